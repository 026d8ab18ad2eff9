//! Integer instructions, atomic operations, and messages between blocks and warps that atomics order.

use gatework_gpu::{Device, Grid, Kind, args};

use super::atomics::{Atomics, Messages};
use crate::kernels;
use crate::{Case, Control, ErrorBudget, Inputs, KernelSpec, Outputs, RunError, Work, Workload, poisoned};

const THREADS: u32 = 128;
const WORDS_BLOCKS: u32 = 2;
const WORDS_ENTRIES: [&str; 2] = ["integer_words", "permute_words"];

/// Truth tables as in the kernel: bit `4 a + 2 b + c` is the result for the bits a, b, c.
const TABLES: [u8; 7] = [0x00, 0x96, 0xe8, 0xca, 0x2d, 0x40, 0xff];
/// Results of one element.
const CALLS: usize = 3 + TABLES.len() + 12;

/// `gpu/integer`.
pub(super) struct Integer;

/// What a case checks.
enum Subject {
    Words(Words),
    Permutations(Permutations),
    Atomics(Atomics),
    Messages(Messages),
}

impl Subject {
    fn new(case: &Case, seed: u64) -> Self {
        let has = |dimension: &str| case.dimensions.contains_key(dimension);
        if has("words") {
            Self::Words(Words::new(case.dimension("words"), seed))
        } else if has("selectors") {
            Self::Permutations(Permutations::new(case.dimension("selectors"), seed))
        } else if has("blocks") {
            Self::Atomics(Atomics::new(case.dimension("blocks"), seed))
        } else {
            Self::Messages(Messages::new(case.dimension("messages"), seed))
        }
    }
}

/// Three words for each element.
struct Words {
    a: Vec<u32>,
    b: Vec<u32>,
    c: Vec<u32>,
}

impl Words {
    fn new(count: usize, seed: u64) -> Self {
        let mut inputs = Inputs::new(seed);
        let [mut a, b, c] = [inputs.words(count), inputs.words(count), inputs.words(count)];
        // Every number of leading zeros, none and all of them included.
        for (i, word) in a.iter_mut().enumerate().skip(count / 2) {
            *word = word.checked_shr(i as u32 % 33).unwrap_or(0);
        }
        Self { a, b, c }
    }

    /// Results by call, then by element, where `shift_bits` bits of a shift count.
    fn results(&self, shift_bits: u32) -> Vec<u32> {
        let elements: Vec<[u32; CALLS]> = (0..self.a.len()).map(|i| self.element(i, shift_bits)).collect();
        (0..CALLS).flat_map(|call| elements.iter().map(move |results| results[call])).collect()
    }

    fn element(&self, i: usize, shift_bits: u32) -> [u32; CALLS] {
        let (x, y, z) = (self.a[i], self.b[i], self.c[i]);
        let (left, right) = (u128::from(y) << 32 | u128::from(x), u128::from(z) << 32 | u128::from(y));
        let product = (left * right) >> 64;
        let pair = u128::from(left as u64);
        let shift = (i % 64) as u32 % (1 << shift_bits);
        let mut results =
            vec![((u64::from(x) * u64::from(y)) >> 32) as u32, product as u32, (product >> 32) as u32];
        results.extend(TABLES.map(|table| bitwise(table, x, y, z)));
        results.push(((pair << shift) >> 32) as u32);
        results.push((pair >> shift) as u32);
        results.extend([x.reverse_bits(), x.count_ones(), x.leading_zeros()]);
        let (count, wide) = ((i % 67) as u32, (i % 131) as u32);
        results.push(x.checked_shl(count).unwrap_or(0));
        results.push(x.checked_shr(count).unwrap_or(0));
        results.push((x as i32 >> count.min(31)) as u32);
        results.push(((left as u64).checked_shl(wide).unwrap_or(0) >> 32) as u32);
        results.push((left as u64).checked_shr(wide).unwrap_or(0) as u32);
        // As Rust casts: towards zero, to the nearest in range, and 0 for a NaN.
        results.push(f32::from_bits(y) as i32 as u32);
        results.push(f32::from_bits(z) as u32);
        std::array::from_fn(|call| results[call])
    }

    fn run(&self, device: &Device) -> Result<Vec<u32>, RunError> {
        let stream = device.stream()?;
        let kernel = device.kernel_of(&kernels::INTEGER_WORDS, WORDS_ENTRIES[0])?;
        let (a, b, c) = (stream.upload(&self.a)?, stream.upload(&self.b)?, stream.upload(&self.c)?);
        let mut out = poisoned::<u32>(&stream, CALLS * self.a.len())?;
        let grid = Grid::new([WORDS_BLOCKS, 1, 1], [THREADS, 1, 1]);
        kernel.launch(&stream, &grid, &args![&a, &b, &c, &mut out, self.a.len() as u32])?;
        Ok(stream.download(&out)?)
    }
}

/// A function of three bits, bit by bit.
fn bitwise(table: u8, x: u32, y: u32, z: u32) -> u32 {
    (0..32).fold(0, |word, at| {
        let row = (x >> at & 1) * 4 + (y >> at & 1) * 2 + (z >> at & 1);
        word | u32::from(table >> row & 1) << at
    })
}

/// Two words for each selector of bytes.
struct Permutations {
    a: Vec<u32>,
    b: Vec<u32>,
}

impl Permutations {
    fn new(selectors: usize, seed: u64) -> Self {
        let mut inputs = Inputs::new(seed);
        Self { a: inputs.words(selectors), b: inputs.words(selectors) }
    }

    /// `repeat_sign`: what the top bit of a selector's nibble is for.
    fn results(&self, repeat_sign: bool) -> Vec<u32> {
        let permute = |(selector, (a, b)): (usize, (&u32, &u32))| {
            let mut bytes = a.to_le_bytes().to_vec();
            bytes.extend(b.to_le_bytes());
            let picked = [0, 4, 8, 12].map(|at| {
                let nibble = selector >> at & 15;
                let byte = bytes[nibble % 8];
                let sign = if byte >= 128 { 255 } else { 0 };
                if nibble >= 8 && repeat_sign { sign } else { byte }
            });
            u32::from_le_bytes(picked)
        };
        self.a.iter().zip(&self.b).enumerate().map(permute).collect()
    }

    fn run(&self, device: &Device) -> Result<Vec<u32>, RunError> {
        let stream = device.stream()?;
        let kernel = device.kernel_of(&kernels::INTEGER_WORDS, WORDS_ENTRIES[1])?;
        let (a, b) = (stream.upload(&self.a)?, stream.upload(&self.b)?);
        let mut out = poisoned::<u32>(&stream, self.a.len())?;
        kernel.launch(
            &stream,
            &Grid::new([WORDS_BLOCKS, 1, 1], [THREADS, 1, 1]),
            &args![&a, &b, &mut out],
        )?;
        Ok(stream.download(&out)?)
    }
}

impl Workload for Integer {
    fn name(&self) -> &str {
        "gpu/integer"
    }

    fn summary(&self) -> &str {
        "integer instructions, atomics by many threads, and messages that atomics and fences order"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        let words = kernels::INTEGER_WORDS.source();
        vec![
            KernelSpec::new(words.clone())
                .entries([WORDS_ENTRIES[0]])
                .require("LOP3")
                .require("SHF")
                .threads(THREADS),
            KernelSpec::new(words).entries([WORDS_ENTRIES[1]]).require("PRMT").threads(THREADS),
            Atomics::spec(),
            Messages::spec(),
        ]
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        let (words, blocks, messages) = match kind {
            Kind::Emulated => (1000, 4, 6),
            Kind::Cuda => (1_000_000, 100, 1000),
        };
        vec![
            Case::new("words").with("words", words),
            Case::new("permutations").with("selectors", 1 << 16),
            Case::new("atomics").with("blocks", blocks),
            Case::new("messages").with("messages", messages),
        ]
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let one = |out: Vec<u32>| Outputs::new().with("out", out);
        match Subject::new(case, seed) {
            Subject::Words(words) => Ok(one(words.run(device)?)),
            Subject::Permutations(permutations) => Ok(one(permutations.run(device)?)),
            Subject::Atomics(atomics) => atomics.run(device),
            Subject::Messages(messages) => Ok(one(messages.run(device)?)),
        }
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        let one = |out: Vec<u32>| Outputs::new().with("out", out);
        match Subject::new(case, seed) {
            Subject::Words(words) => one(words.results(5)),
            Subject::Permutations(permutations) => one(permutations.results(true)),
            Subject::Atomics(atomics) => atomics.reference(),
            Subject::Messages(messages) => one(messages.words().to_vec()),
        }
    }

    fn budget(&self, _: &Case) -> ErrorBudget {
        ErrorBudget::Exact
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        let wrong = |name, out: Vec<u32>| Control::new(name, Outputs::new().with("out", out));
        let mut controls = vec![Control::zeros(reference)];
        match Subject::new(case, seed) {
            Subject::Words(words) => {
                controls.push(wrong("shifts count six bits", words.results(6)));
                controls.push(Control::one_off(reference, "out", 0, 1.0));
            }
            Subject::Permutations(permutations) => {
                controls.push(wrong("signs are not repeated", permutations.results(false)));
                controls.push(Control::swapped(reference, "out", 0x3210, 0x7654));
            }
            Subject::Atomics(atomics) => controls.extend(atomics.controls(reference)),
            Subject::Messages(messages) => controls.extend(messages.controls(reference)),
        }
        controls
    }

    fn work(&self, case: &Case) -> Work {
        match Subject::new(case, 0) {
            Subject::Words(words) => {
                let (count, calls) = (words.a.len() as u64, CALLS as u64);
                Work { operations: calls * count, bytes: 4 * (3 + calls) * count }
            }
            Subject::Permutations(permutations) => {
                let count = permutations.a.len() as u64;
                Work { operations: count, bytes: 3 * 4 * count }
            }
            Subject::Atomics(atomics) => atomics.work(),
            Subject::Messages(messages) => Work { operations: 0, bytes: 8 * messages.words().len() as u64 },
        }
    }
}
