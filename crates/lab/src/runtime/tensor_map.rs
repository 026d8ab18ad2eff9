//! Boxes of tensors, loaded, looked at as they lie in shared memory, and stored elsewhere.

use gatework_gpu::{Device, Grid, Kind, Swizzle, TensorElement, TensorLayout, TensorMap, args};

use crate::kernels;
use crate::{Case, Control, ErrorBudget, Inputs, KernelSpec, Outputs, RunError, Work, Workload, poisoned};

const ENTRIES: [&str; 3] = ["tensor_tiles_1", "tensor_tiles_2", "tensor_tiles_3"];
const THREADS: u32 = 64;
/// Bytes between rows that belong to no element.
const GAP: u64 = 16;
const SWIZZLES: [Swizzle; 4] = [Swizzle::None, Swizzle::Bytes32, Swizzle::Bytes64, Swizzle::Bytes128];

/// `gpu/tensor-map`.
pub(super) struct TensorMaps;

/// A tensor of elements of so many bytes, and its boxes.
#[derive(Clone)]
struct Subject {
    element: usize,
    layout: TensorLayout,
}

impl Subject {
    /// Boxes that cover more than the tensor: extents are no multiples of them.
    fn new(element: usize, boxed: &[u32], swizzle: Swizzle) -> Self {
        let extents: Vec<u64> =
            boxed.iter().map(|&side| 2 * u64::from(side) + u64::from(side / 2 + 1)).collect();
        let mut stride = (extents[0] * element as u64).next_multiple_of(16) + GAP;
        let mut strides = Vec::new();
        for extent in &extents[1..] {
            strides.push(stride);
            stride = stride * extent + GAP;
        }
        Self { element, layout: TensorLayout { extents, strides, boxed: boxed.into(), swizzle } }
    }

    fn all() -> Vec<Self> {
        vec![
            Self::new(4, &[32], Swizzle::None),
            Self::new(1, &[48, 5], Swizzle::None),
            Self::new(2, &[16, 9], Swizzle::Bytes32),
            Self::new(4, &[16, 8], Swizzle::Bytes64),
            Self::new(2, &[64, 16], Swizzle::Bytes128),
            Self::new(8, &[4, 3, 2], Swizzle::None),
            Self::new(1, &[128, 4, 3], Swizzle::Bytes128),
        ]
    }

    fn case(&self) -> Case {
        let swizzle = SWIZZLES.iter().position(|swizzle| *swizzle == self.layout.swizzle).unwrap_or_default();
        let mut case =
            Case::new(format!("{}d-of-{}-swizzle-{}", self.rank(), self.element, [0, 32, 64, 128][swizzle]))
                .with("element", self.element)
                .with("swizzle", swizzle);
        for (name, &side) in ["x", "y", "z"].into_iter().zip(&self.layout.boxed) {
            case = case.with(name, side as usize);
        }
        case
    }

    fn of(case: &Case) -> Self {
        let sides = ["x", "y", "z"].into_iter().filter(|name| case.dimensions.contains_key(*name));
        let boxed: Vec<u32> = sides.map(|name| case.dimension(name) as u32).collect();
        Self::new(case.dimension("element"), &boxed, SWIZZLES[case.dimension("swizzle")])
    }

    fn rank(&self) -> usize {
        self.layout.extents.len()
    }

    fn box_bytes(&self) -> usize {
        self.layout.box_bytes(self.element) as usize
    }

    /// Bytes of the tensor with its gaps.
    fn bytes(&self) -> usize {
        let rows: u64 = self.layout.strides.last().zip(self.layout.extents.last()).map_or(0, |(s, e)| s * e);
        rows.max(self.layout.extents[0] * self.element as u64).next_multiple_of(16) as usize
    }

    fn input(&self, seed: u64) -> Vec<u8> {
        let words = Inputs::new(seed).words(self.bytes().div_ceil(4));
        words.into_iter().flat_map(u32::to_le_bytes).take(self.bytes()).collect()
    }

    /// Corners of loads, beyond every edge too, and of stores: a grid of boxes that ends beyond the last
    /// element.
    fn corners(&self) -> Vec<[i32; 6]> {
        let boxed: Vec<i32> =
            (0..3).map(|axis| self.layout.boxed.get(axis).map_or(1, |&side| side as i32)).collect();
        let count = |axis: usize| if axis < self.rank() { 4 } else { 1 };
        // The innermost coordinate names a multiple of 16 bytes.
        let step = |axis: usize| if axis == 0 { 16 / self.element as i32 } else { 1 };
        let mut corners = Vec::new();
        for z in 0..count(2) {
            for y in 0..count(1) {
                for x in 0..count(0) {
                    let place = [x, y, z];
                    let to = std::array::from_fn::<i32, 3, _>(|axis| match count(axis) {
                        1 => 0,
                        _ => place[axis] * boxed[axis],
                    });
                    let from = std::array::from_fn::<i32, 3, _>(|axis| match count(axis) {
                        1 => 0,
                        _ => {
                            let middle = boxed[axis] / 2 / step(axis) * step(axis);
                            to[axis] - middle + step(axis) * (1 - 2 * (place[(axis + 1) % 3] & 1))
                        }
                    });
                    corners.push([from[0], from[1], from[2], to[0], to[1], to[2]]);
                }
            }
        }
        corners
    }

    /// The tensor that boxes are stored to: its rows are a multiple of 16 bytes.
    fn stored(&self) -> TensorLayout {
        let mut layout = self.layout.clone();
        let step = 16 / self.element as u64;
        layout.extents[0] = layout.extents[0] / step * step;
        layout
    }

    /// Every element of the box at a corner: its place in the box, and in the tensor unless it lies outside.
    fn elements(&self, layout: &TensorLayout, corner: &[i32]) -> Vec<(usize, Option<usize>)> {
        let TensorLayout { extents, strides, boxed, .. } = layout;
        let count: usize = boxed.iter().map(|&side| side as usize).product();
        let element = |number: usize| {
            let mut rest = number;
            let mut place = Some(0);
            for axis in 0..self.rank() {
                let at = i64::from(corner[axis]) + (rest % boxed[axis] as usize) as i64;
                rest /= boxed[axis] as usize;
                let stride = if axis == 0 { self.element as u64 } else { strides[axis - 1] };
                let inside = at >= 0 && (at as u64) < extents[axis];
                place = place.filter(|_| inside).map(|place: u64| place + at as u64 * stride);
            }
            (number * self.element, place.map(|place| place as usize))
        };
        (0..count).map(element).collect()
    }

    /// Where byte `offset` of a box lies: 16-byte chunks are exchanged among 8 rows of 128 bytes.
    fn swizzled(&self, offset: usize) -> usize {
        let rows = match self.layout.swizzle {
            Swizzle::None => 1,
            Swizzle::Bytes32 => 2,
            Swizzle::Bytes64 => 4,
            Swizzle::Bytes128 => 8,
        };
        let (row, chunk) = (offset / 128, offset / 16 % 8);
        row * 128 + (chunk ^ (row % rows)) * 16 + offset % 16
    }

    /// The images of all boxes, and the other tensor.
    fn moved(&self, seed: u64) -> (Vec<u8>, Vec<u8>) {
        let input = self.input(seed);
        let mut images = Vec::new();
        let mut to = vec![0x5a; input.len()];
        for corner in self.corners() {
            let mut image = vec![0; self.box_bytes()];
            for (at, place) in self.elements(&self.layout, &corner[..3]) {
                for byte in 0..self.element {
                    image[self.swizzled(at + byte)] = place.map_or(0, |place| input[place + byte]);
                }
            }
            for (at, place) in self.elements(&self.stored(), &corner[3..]) {
                for byte in 0..self.element {
                    if let Some(place) = place {
                        to[place + byte] = !image[self.swizzled(at + byte)];
                    }
                }
            }
            images.extend(image);
        }
        (images, to)
    }

    fn run(&self, device: &Device, seed: u64) -> Result<Outputs, RunError> {
        match self.element {
            1 => self.run_as::<u8>(device, seed),
            2 => self.run_as::<u16>(device, seed),
            4 => self.run_as::<u32>(device, seed),
            8 => self.run_as::<u64>(device, seed),
            other => unreachable!("elements have 1, 2, 4 or 8 bytes, not {other}"),
        }
    }

    fn run_as<T: TensorElement>(&self, device: &Device, seed: u64) -> Result<Outputs, RunError> {
        let stream = device.stream()?;
        let kernel = device.kernel_of(&kernels::TENSOR_TILES, ENTRIES[self.rank() - 1])?;
        let from = stream.upload(&elements::<T>(&self.input(seed)))?;
        let mut to = stream.upload(&elements::<T>(&vec![0x5a; self.bytes()]))?;
        let corners = self.corners();
        let places = stream.upload(&corners.concat())?;
        let mut images = poisoned::<u32>(&stream, corners.len() * self.box_bytes() / 4)?;
        let shared = 2 * self.box_bytes().next_multiple_of(1024) as u32 + 8;
        let grid = Grid::new([corners.len() as u32, 1, 1], [THREADS, 1, 1]).shared(shared);
        {
            let from = TensorMap::new(&from, &self.layout)?;
            let to = TensorMap::new_mut(&mut to, &self.stored())?;
            kernel.launch(
                &stream,
                &grid,
                &args![&from, &to, &places, &mut images, self.box_bytes() as u32],
            )?;
        }
        let images: Vec<u8> = bytemuck::cast_slice(&stream.download(&images)?).to_vec();
        let to: Vec<u8> = bytemuck::cast_slice(&stream.download(&to)?).to_vec();
        Ok(Outputs::new().with("images", images).with("to", to))
    }
}

/// Bytes as elements.
fn elements<T: TensorElement>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}

impl Workload for TensorMaps {
    fn name(&self) -> &str {
        "gpu/tensor-map"
    }

    fn summary(&self) -> &str {
        "bulk copies of boxes of tensors in one to three dimensions, swizzled, over every edge"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        vec![
            KernelSpec::new(kernels::TENSOR_TILES.source())
                .entries(ENTRIES)
                .require("UTMALDG")
                .require("UTMASTG")
                .threads(THREADS),
        ]
    }

    fn cases(&self, _: Kind) -> Vec<Case> {
        Subject::all().iter().map(Subject::case).collect()
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        Subject::of(case).run(device, seed)
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        let (images, to) = Subject::of(case).moved(seed);
        Outputs::new().with("images", images).with("to", to)
    }

    fn budget(&self, _: &Case) -> ErrorBudget {
        ErrorBudget::Exact
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        let subject = Subject::of(case);
        let (images, to) = subject.moved(seed);
        let wrong = |name, images: Vec<u8>, to: Vec<u8>| {
            Control::new(name, Outputs::new().with("images", images).with("to", to))
        };
        let mut unwritten = to.clone();
        unwritten[..subject.element].fill(0x5a);
        let mut controls = vec![
            Control::zeros(reference),
            wrong(
                "outside is not zero",
                images.iter().map(|&byte| if byte == 0 { 0xff } else { byte }).collect(),
                to.clone(),
            ),
            wrong("the first element is not stored", images.clone(), unwritten),
        ];
        if subject.layout.swizzle != Swizzle::None {
            let chunks = images.chunks(subject.box_bytes());
            let straight = chunks.flat_map(|image| (0..image.len()).map(|at| image[subject.swizzled(at)]));
            controls.push(wrong("boxes are not swizzled", straight.collect(), to));
        }
        controls
    }

    fn work(&self, case: &Case) -> Work {
        let subject = Subject::of(case);
        let boxes = subject.corners().len() * subject.box_bytes();
        Work { operations: 0, bytes: (2 * boxes + 2 * subject.bytes()) as u64 }
    }
}
