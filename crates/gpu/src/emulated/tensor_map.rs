//! Bulk tensor copies: boxes of a tensor, cut into runs of bytes that are copied or become zeros.

use super::block::CallSite;
use super::launch::{Launch, Stop};
use super::shadow::Manner;
use super::transfer::{Copy, Parcel, Sides};
use crate::types::{FaultKind, MOST_DIMENSIONS, Swizzle, TensorLayout, TensorSpec, TensorWords};

/// The first word of every map of this device.
const MAGIC: u64 = 0x6777_5465_6e73_6f72;
const SWIZZLES: [Swizzle; 4] = [Swizzle::None, Swizzle::Bytes32, Swizzle::Bytes64, Swizzle::Bytes128];

/// A map as the kernel hands it to a copy.
#[derive(Debug, PartialEq, Eq)]
struct Decoded {
    address: u64,
    element_bytes: usize,
    writable: bool,
    layout: TensorLayout,
}

/// The words that a kernel is given: magic, address, rank with element size, swizzle and use, then extents,
/// strides, box.
pub(super) fn encode(spec: &TensorSpec<'_>) -> TensorWords {
    let TensorSpec { layout, .. } = spec;
    let swizzle = SWIZZLES.iter().position(|swizzle| *swizzle == layout.swizzle).unwrap_or_default();
    let mut words = [0; 16];
    words[0] = MAGIC;
    words[1] = spec.address;
    words[2] = layout.extents.len() as u64
        | (spec.element_bytes as u64) << 8
        | (swizzle as u64) << 16
        | u64::from(spec.writable) << 24;
    words[3..][..layout.extents.len()].copy_from_slice(&layout.extents);
    words[6..][..layout.strides.len()].copy_from_slice(&layout.strides);
    for (word, &boxed) in words[8..].iter_mut().zip(&layout.boxed) {
        *word = u64::from(boxed);
    }
    words
}

/// The map of such words, if they are one: whatever else a kernel was given is none.
fn decode(words: &TensorWords) -> Option<Decoded> {
    let byte = |at: u32| (words[2] >> at & 0xFF) as usize;
    let (rank, element_bytes) = (byte(0), byte(8));
    if words[0] != MAGIC || rank == 0 || rank > MOST_DIMENSIONS || ![1, 2, 4, 8].contains(&element_bytes) {
        return None;
    }
    let boxed = words[8..8 + rank].iter().map(|&boxed| u32::try_from(boxed).ok()).collect::<Option<_>>()?;
    let layout = TensorLayout {
        extents: words[3..3 + rank].to_vec(),
        strides: words[6..6 + rank - 1].to_vec(),
        boxed,
        swizzle: *SWIZZLES.get(byte(16))?,
    };
    // Half of the address space: sums of places inside of it do not overflow.
    layout.check(element_bytes, 1 << 62).ok()?;
    Some(Decoded { address: words[1], element_bytes, writable: byte(24) != 0, layout })
}

/// A run of bytes of a box: where it lies in shared memory, and in the tensor, unless it lies outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    shared: usize,
    global: Option<usize>,
    bytes: usize,
}

impl Decoded {
    fn box_bytes(&self) -> usize {
        self.layout.box_bytes(self.element_bytes) as usize
    }

    /// The runs of the box whose corner is at `corner`, put at `offset` of shared memory.
    fn runs(&self, corner: &[i32], offset: usize) -> Vec<Run> {
        let TensorLayout { extents, strides, boxed, swizzle } = &self.layout;
        let at = |axis: usize| corner.get(axis).map_or(0, |&corner| i64::from(corner));
        let side = |axis: usize| boxed.get(axis).map_or(1, |&boxed| i64::from(boxed));
        let row_bytes = side(0) as usize * self.element_bytes;
        let inside = |axis: usize, place: i64| {
            place >= 0 && extents.get(axis).is_none_or(|&extent| (place as u64) < extent)
        };
        let mut runs = Vec::new();
        for (number, (z, y)) in (0..side(2)).flat_map(|z| (0..side(1)).map(move |y| (z, y))).enumerate() {
            let (y, z) = (at(1) + y, at(2) + z);
            let row = (inside(1, y) && inside(2, z)).then(|| {
                let far = [y, z].into_iter().zip(strides).map(|(place, &stride)| place as u64 * stride);
                self.address.wrapping_add(far.sum::<u64>())
            });
            // Elements of the row that lie in the tensor.
            let extent = i64::try_from(extents[0]).unwrap_or(i64::MAX);
            let (first, last) = (-at(0).min(0), (extent - at(0)).clamp(0, side(0)));
            let (first, last) = match row {
                Some(_) if first < last => {
                    (first as usize * self.element_bytes, last as usize * self.element_bytes)
                }
                _ => (0, 0),
            };
            // Swizzled rows move in chunks of 16 bytes.
            let step = if *swizzle == Swizzle::None { row_bytes } else { 16 };
            for start in (0..row_bytes).step_by(step) {
                let end = start + step;
                let cuts = [start, first.clamp(start, end), last.clamp(start, end), end];
                for (part, pair) in cuts.windows(2).enumerate().filter(|(_, pair)| pair[0] < pair[1]) {
                    let global = row.filter(|_| part == 1).map(|row| {
                        let place = at(0) * self.element_bytes as i64 + pair[0] as i64;
                        row.wrapping_add_signed(place) as usize
                    });
                    let linear = offset + number * row_bytes;
                    let shared = swizzle.place(linear + start) + pair[0] - start;
                    runs.push(Run { shared, global, bytes: pair[1] - pair[0] });
                }
            }
        }
        runs
    }
}

impl Launch {
    /// Global to shared memory, for an mbarrier; to several blocks of the cluster where `blocks` is not 0.
    pub(super) fn tensor_load(
        &mut self,
        map: usize,
        to: usize,
        barrier: usize,
        corner: &[i32],
        blocks: u32,
        site: CallSite,
    ) -> Result<(), Stop> {
        let map = self.tensor_map(map, corner, site)?;
        let (base, offset) = self.box_in_shared(&map, to, site)?;
        let piece = |run: Run| {
            let from = run.global.unwrap_or(0);
            let source_bytes = if run.global.is_some() { run.bytes } else { 0 };
            Copy { source_bytes, ..Copy::plain(base + run.shared, from, run.bytes) }
        };
        let pieces = map.runs(corner, offset).into_iter().map(piece).collect();
        let sides = Sides { from_shared: false, alignment: 1 };
        let parcel = Parcel { pieces, bytes: map.box_bytes(), sides };
        if blocks == 0 {
            self.fly(parcel, barrier, site)
        } else {
            self.multicast(&parcel, barrier, blocks, site)
        }
    }

    /// Shared to global memory, in the thread's open group. What lies outside of the tensor is not written.
    pub(super) fn tensor_store(
        &mut self,
        map: usize,
        from: usize,
        corner: &[i32],
        site: CallSite,
    ) -> Result<(), Stop> {
        let map = self.tensor_map(map, corner, site)?;
        if !map.writable {
            let message =
                "a store through a tensor map that is for loads: make it by TensorMap::new_mut".into();
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        }
        // An illegal instruction on the card, where loads may start there.
        if let Some(before) = corner.iter().find(|&&coordinate| coordinate < 0) {
            let message = format!(
                "a store of a box at coordinate {before}: it may end outside of the tensor, not start before it"
            );
            return Err(self.fault_at(FaultKind::OutOfBounds, site, message));
        }
        let (base, offset) = self.box_in_shared(&map, from, site)?;
        let piece = |run: Run| run.global.map(|to| Copy::plain(to, base + run.shared, run.bytes));
        let pieces: Vec<Copy> = map.runs(corner, offset).into_iter().filter_map(piece).collect();
        self.store_pieces(&pieces, 1, Manner::AsyncProxy, site)
    }

    /// Towards the cache, of which there is none: the map and the corner must be right all the same.
    pub(super) fn tensor_prefetch(&mut self, map: usize, corner: &[i32], site: CallSite) -> Result<(), Stop> {
        self.tensor_map(map, corner, site).map(|_| ())
    }

    /// The map at an address, which must be a parameter of the kernel.
    fn tensor_map(&mut self, address: usize, corner: &[i32], site: CallSite) -> Result<Decoded, Stop> {
        let end = address.saturating_add(size_of::<TensorWords>());
        let is_parameter = self.arguments.iter().any(|range| range.start <= address && end <= range.end);
        // SAFETY: the words lie in an argument of the launch, which outlives its threads, and nobody writes
        // them.
        let words = is_parameter.then(|| unsafe { (address as *const TensorWords).read_unaligned() });
        let Some(map) = words.as_ref().and_then(decode) else {
            let what = if is_parameter {
                "is none"
            } else {
                "is no parameter of the kernel: take it by GW_TENSOR_MAP"
            };
            let message = format!("what is given for a tensor map {what}");
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        };
        let rank = map.layout.extents.len();
        if rank != corner.len() {
            let message = format!("a box at {} coordinates of a tensor of {rank} dimensions", corner.len());
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        }
        // An illegal instruction on the card.
        let start = i64::from(corner[0]) * map.element_bytes as i64;
        if start % 16 != 0 {
            let message = format!(
                "a box whose innermost coordinate {} stands for byte {start} of a row, which is no multiple of 16",
                corner[0]
            );
            return Err(self.fault_at(FaultKind::Misaligned, site, message));
        }
        Ok(map)
    }

    /// Where a box lies: the start of the block's shared memory, and the place in it.
    fn box_in_shared(
        &mut self,
        map: &Decoded,
        address: usize,
        site: CallSite,
    ) -> Result<(usize, usize), Stop> {
        let alignment = map.layout.swizzle.alignment();
        let base = self.block().shared.base();
        let Some(offset) = self.block().shared.offset(address, map.box_bytes()) else {
            let message = format!(
                "a box of {} bytes at {address:#x} does not lie in the block's {} bytes of shared memory",
                map.box_bytes(),
                self.block().shared.bytes
            );
            return Err(self.fault_at(FaultKind::OutOfBounds, site, message));
        };
        if !offset.is_multiple_of(alignment) {
            let message = format!("a box at shared offset {offset}, which is no multiple of {alignment}");
            return Err(self.fault_at(FaultKind::Misaligned, site, message));
        }
        Ok((base, offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::TensorScalar;

    fn map(extents: &[u64], boxed: &[u32], swizzle: Swizzle) -> Decoded {
        let layout = TensorLayout::dense::<u32>(extents, boxed).swizzle(swizzle);
        let spec = TensorSpec {
            address: 4096,
            scalar: TensorScalar::U32,
            element_bytes: 4,
            layout: &layout,
            writable: true,
        };
        decode(&encode(&spec)).unwrap()
    }

    #[test]
    fn words_that_are_no_map_are_refused() {
        let layout = TensorLayout::dense::<u32>(&[64, 8], &[4, 4]);
        let spec = TensorSpec {
            address: 16,
            scalar: TensorScalar::U32,
            element_bytes: 4,
            layout: &layout,
            writable: false,
        };
        let words = encode(&spec);
        assert_eq!(decode(&words).unwrap().layout, layout);
        assert_eq!(decode(&[0; 16]), None);
        for (word, value) in [(0, 1), (2, 0), (2, 9 << 8 | 2), (3, 0), (6, 1), (8, 1 << 40), (9, 0)] {
            let mut words = words;
            words[word] = value;
            assert_eq!(decode(&words), None, "word {word}");
        }
    }

    #[test]
    fn a_box_is_cut_where_the_tensor_ends() {
        let map = map(&[12, 2], &[8, 2], Swizzle::None);
        let run =
            |shared, global: Option<usize>, bytes| Run { shared, global: global.map(|at| 4096 + at), bytes };
        assert_eq!(map.runs(&[0, 0], 0), [run(0, Some(0), 32), run(32, Some(48), 32)]);
        assert_eq!(
            map.runs(&[8, 1], 128),
            [run(128, Some(80), 16), run(144, None, 16), run(160, None, 32)],
            "past the right and lower edges"
        );
        assert_eq!(
            map.runs(&[-2, -1], 0),
            [run(0, None, 32), run(32, None, 8), run(40, Some(0), 24)],
            "before the left and upper edges"
        );
        assert!(map.runs(&[i32::MAX, i32::MIN], 0).iter().all(|run| run.global.is_none()), "far out");
    }

    #[test]
    fn chunks_of_a_swizzled_box_change_places() {
        let map = map(&[32, 8], &[32, 8], Swizzle::Bytes128);
        let runs = map.runs(&[0, 0], 0);
        assert_eq!(runs.len(), 64);
        for (number, run) in runs.iter().enumerate() {
            let (row, chunk) = (number / 8, number % 8);
            assert_eq!(run.shared, 128 * row + 16 * (chunk ^ row));
            assert_eq!(run.global, Some(4096 + 16 * number));
        }
    }
}
