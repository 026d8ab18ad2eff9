//! Operations of ranks that are virtual devices of the device under test.

use gatework_gpu::fabric::{DeviceRank, Fabric, Operation, Reduction};
use gatework_gpu::{Buffer, Device, Error, Kind, Stream, View as _, ViewMut as _};

use crate::{Case, Control, ErrorBudget, Inputs, KernelSpec, Outputs, RunError, Work, Workload, poisoned};

/// Rows that are summed, over however many ranks they are dealt out.
const ROWS: usize = 8;
const THREADS: u32 = 256;

/// `gpu/fabric`.
pub(super) struct Collectives;

/// One case: so many ranks with so many words each.
#[derive(Clone, Copy)]
struct Subject {
    ranks: usize,
    words: usize,
}

/// What one rank ends with, or all of them one after another.
#[derive(Default, Clone)]
struct Results {
    passed: Vec<u32>,
    broadcast: Vec<u32>,
    gathered: Vec<u32>,
    exchanged: Vec<u32>,
    returned: Vec<u32>,
    parcels: Vec<u32>,
    sum: Vec<u32>,
    most: Vec<u64>,
    float_sum: Vec<f32>,
}

impl Results {
    fn append(&mut self, mut other: Self) {
        self.passed.append(&mut other.passed);
        self.broadcast.append(&mut other.broadcast);
        self.gathered.append(&mut other.gathered);
        self.exchanged.append(&mut other.exchanged);
        self.returned.append(&mut other.returned);
        self.parcels.append(&mut other.parcels);
        self.sum.append(&mut other.sum);
        self.most.append(&mut other.most);
        self.float_sum.append(&mut other.float_sum);
    }

    fn outputs(self, bytes: Vec<u64>) -> Outputs {
        Outputs::new()
            .with("passed", self.passed)
            .with("broadcast", self.broadcast)
            .with("gathered", self.gathered)
            .with("exchanged", self.exchanged)
            .with("returned", self.returned)
            .with("parcels", self.parcels)
            .with("sum", self.sum)
            .with("most", self.most)
            .with("float sum", self.float_sum)
            .with("bytes of links", bytes)
    }
}

impl Subject {
    fn case(self) -> Case {
        Case::new(format!("{}-ranks-of-{}", self.ranks, self.words))
            .with("ranks", self.ranks)
            .with("words", self.words)
    }

    fn of(case: &Case) -> Self {
        Self { ranks: case.dimension("ranks"), words: case.dimension("words") }
    }

    /// The rank whose data all have, and that has the largest.
    fn root(self) -> usize {
        self.ranks - 1
    }

    /// Words of one rank.
    fn words_of(self, rank: usize, count: usize, seed: u64) -> Vec<u32> {
        Inputs::new(seed.wrapping_mul(64).wrapping_add(rank as u64)).words(count)
    }

    fn wide_of(self, rank: usize, seed: u64) -> Vec<u64> {
        let words = self.words_of(rank, 2 * self.words, seed);
        words.chunks_exact(2).map(|pair| u64::from(pair[0]) << 32 | u64::from(pair[1])).collect()
    }

    /// The same rows for any number of ranks. Their sum depends on the order of additions.
    fn rows(self, seed: u64) -> Vec<Vec<f32>> {
        let mut inputs = Inputs::new(seed);
        let scaled =
            |row: usize| inputs.normal(self.words).iter().map(|x| x * 3f32.powi(row as i32)).collect();
        (0..ROWS).map(scaled).collect()
    }

    /// Words that a rank sends to another: uneven, some none.
    fn parcel(self, from: usize, to: usize) -> usize {
        (3 * from + 5 * to + 1) % 4 * self.words / 3
    }

    fn sends(self, from: usize) -> Vec<usize> {
        (0..self.ranks).map(|to| self.parcel(from, to)).collect()
    }

    fn receives(self, to: usize) -> Vec<usize> {
        (0..self.ranks).map(|from| self.parcel(from, to)).collect()
    }

    /// What the rank of `rank` does. Every source is spoiled as soon as the call that reads it has returned.
    fn work(self, rank: &mut DeviceRank, seed: u64) -> gatework_gpu::Result<Results> {
        let (me, words) = (rank.rank(), self.words);
        let stream = &rank.place().device().stream()?;
        let source = |count| stream.upload(&self.words_of(me, count, seed));
        let target = |count| poisoned::<u32>(stream, count);
        let spoil = |mut buffer: Buffer<u32>| stream.fill(&mut buffer, 0);

        let mut passed = target(words)?;
        self.pass(rank, stream, source(words)?, &mut passed)?;

        let mut broadcast = if me == self.root() { source(words)? } else { target(words)? };
        rank.broadcast(stream, self.root(), broadcast.view_mut())?;

        let lens = self.receives(0);
        let (from, mut gathered) = (source(lens[me])?, target(lens.iter().sum())?);
        rank.all_gather_parts(stream, &lens, from.view(), gathered.view_mut())?;
        spoil(from)?;

        let (from, mut exchanged) = (source(words * self.ranks)?, target(words * self.ranks)?);
        rank.all_to_all(stream, from.view(), exchanged.view_mut())?;
        spoil(from)?;
        let mut returned = target(words * self.ranks)?;
        rank.all_to_all(stream, exchanged.view(), returned.view_mut())?;

        let (sends, receives) = (self.sends(me), self.receives(me));
        let (from, mut parcels) = (source(sends.iter().sum())?, target(receives.iter().sum())?);
        rank.all_to_all_parts(stream, &sends, &receives, from.view(), parcels.view_mut())?;
        spoil(from)?;

        let (from, mut sum) = (source(words)?, target(words)?);
        rank.all_reduce(stream, Reduction::new(Operation::Sum), from.view(), sum.view_mut())?;
        spoil(from)?;

        let wide = stream.upload(&self.wide_of(me, seed))?;
        let mut most = poisoned::<u64>(stream, if me == self.root() { words } else { 0 })?;
        rank.reduce(stream, Reduction::new(Operation::Max), self.root(), wide.view(), most.view_mut())?;

        let each = ROWS / self.ranks;
        let rows = stream.upload(&self.rows(seed)[me * each..][..each].concat())?;
        let mut float_sum = poisoned::<f32>(stream, words)?;
        let reduction = Reduction::new(Operation::Sum).rows(each);
        rank.all_reduce(stream, reduction, rows.view(), float_sum.view_mut())?;

        rank.settle(stream)?;
        Ok(Results {
            passed: stream.download(&passed)?,
            broadcast: stream.download(&broadcast)?,
            gathered: stream.download(&gathered)?,
            exchanged: stream.download(&exchanged)?,
            returned: stream.download(&returned)?,
            parcels: stream.download(&parcels)?,
            sum: stream.download(&sum)?,
            most: stream.download(&most)?,
            float_sum: stream.download(&float_sum)?,
        })
    }

    /// Even ranks send to the next one, and odd ones back.
    fn pass(
        self,
        rank: &mut DeviceRank,
        stream: &Stream,
        mut from: Buffer<u32>,
        passed: &mut Buffer<u32>,
    ) -> gatework_gpu::Result<()> {
        if self.ranks == 1 {
            return stream.copy(&from, passed);
        }
        let other = rank.rank() ^ 1;
        if rank.rank().is_multiple_of(2) {
            rank.send(stream, other, from.view())?;
            rank.receive(stream, other, passed.view_mut())?;
        } else {
            rank.receive(stream, other, passed.view_mut())?;
            rank.send(stream, other, from.view())?;
        }
        stream.fill(&mut from, 0)
    }

    fn run(self, device: &Device, seed: u64) -> gatework_gpu::Result<Outputs> {
        let devices = device.split(self.ranks)?;
        let ranks = Fabric::new().over(&devices)?;
        let ended: Vec<_> = std::thread::scope(|scope| {
            let work = |mut rank: DeviceRank| self.work(&mut rank, seed).map(|results| (results, rank));
            let threads: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(move || work(rank))).collect();
            let joined = threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            joined.collect()
        });
        let mut all = Results::default();
        let (mut bytes, mut lost) = (Vec::new(), None);
        for one in ended {
            match one {
                Ok((results, rank)) => {
                    all.append(results);
                    bytes = self.links(|from, to| rank.traffic().bytes(from, to));
                }
                // What one rank failed of says more than what the others heard.
                Err(error @ Error::Peer { .. }) => lost = lost.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        lost.map_or_else(|| Ok(all.outputs(bytes)), Err)
    }

    fn links(self, bytes: impl Fn(usize, usize) -> u64) -> Vec<u64> {
        let pairs = (0..self.ranks).flat_map(|from| (0..self.ranks).map(move |to| (from, to)));
        pairs.map(|(from, to)| bytes(from, to)).collect()
    }

    /// Bytes on a link, by the closed form of each operation.
    fn bytes(self, from: usize, to: usize) -> u64 {
        if from == to {
            return 0;
        }
        let at_root = |rank: usize, bytes: usize| if rank == self.root() { bytes } else { 0 };
        let part = |rank| gatework_gpu::fabric::part_of(self.words, self.ranks, rank).1;
        let passed = if from == to ^ 1 { 4 * self.words } else { 0 };
        let moved = passed
            + at_root(from, 4 * self.words)
            + 4 * self.parcel(from, 0)
            + 2 * 4 * self.words
            + 4 * self.parcel(from, to);
        let reduced = 4 * (part(to) + part(from))
            + 8 * part(to)
            + at_root(to, 8 * part(from))
            + 4 * (ROWS / self.ranks * part(to) + part(from));
        (moved + reduced) as u64
    }

    fn expected(self, me: usize, seed: u64) -> Results {
        let of = |rank, count| self.words_of(rank, count, seed);
        let all = 0..self.ranks;
        let lens = self.receives(0);
        let parcel = |from: usize| {
            let sends = self.sends(from);
            let start: usize = sends[..me].iter().sum();
            of(from, sends.iter().sum())[start..][..sends[me]].to_vec()
        };
        let most = || {
            let wide: Vec<Vec<u64>> = all.clone().map(|rank| self.wide_of(rank, seed)).collect();
            (0..self.words).map(|i| wide.iter().map(|row| row[i]).max().unwrap_or_default()).collect()
        };
        let mut float_sum = vec![0.0; self.words];
        for (row, values) in self.rows(seed).into_iter().enumerate() {
            for (sum, value) in float_sum.iter_mut().zip(values) {
                *sum = if row == 0 { value } else { *sum + value };
            }
        }
        let mut sum = vec![0u32; self.words];
        for rank in all.clone() {
            sum.iter_mut().zip(of(rank, self.words)).for_each(|(sum, word)| *sum = sum.wrapping_add(word));
        }
        let exchanged =
            |from: usize| of(from, self.words * self.ranks)[me * self.words..][..self.words].to_vec();
        Results {
            passed: of(if self.ranks == 1 { me } else { me ^ 1 }, self.words),
            broadcast: of(self.root(), self.words),
            gathered: all.clone().flat_map(|rank| of(rank, lens[rank])).collect(),
            exchanged: all.clone().flat_map(exchanged).collect(),
            returned: of(me, self.words * self.ranks),
            parcels: all.clone().flat_map(parcel).collect(),
            sum,
            most: if me == self.root() { most() } else { Vec::new() },
            float_sum,
        }
    }

    fn reference(self, seed: u64) -> Results {
        let mut all = Results::default();
        (0..self.ranks).for_each(|rank| all.append(self.expected(rank, seed)));
        all
    }
}

impl Workload for Collectives {
    fn name(&self) -> &str {
        "gpu/fabric"
    }

    fn summary(&self) -> &str {
        "send, broadcast, gather, all-to-all and reduce over virtual devices, and the bytes of every link"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        let [sum, most] = [Operation::Sum, Operation::Max].map(Reduction::new);
        let modules = [sum.module::<u32>(), most.module::<u64>(), sum.module::<f32>()];
        modules.map(|module| KernelSpec::new(module.source()).threads(THREADS)).into()
    }

    fn cases(&self, kind: Kind) -> Vec<Case> {
        let sizes: &[usize] = match kind {
            Kind::Emulated => &[3, 37],
            Kind::Cuda => &[3, 4097, 30_011],
        };
        let of_ranks = |ranks| sizes.iter().map(move |&words| Subject { ranks, words }.case());
        [1, 2, 4, 8].into_iter().flat_map(of_ranks).collect()
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        Ok(Subject::of(case).run(device, seed)?)
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        let subject = Subject::of(case);
        subject.reference(seed).outputs(subject.links(|from, to| subject.bytes(from, to)))
    }

    fn budget(&self, _: &Case) -> ErrorBudget {
        ErrorBudget::Exact
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        let subject = Subject::of(case);
        let right = subject.reference(seed);
        let bytes = subject.links(|from, to| subject.bytes(from, to));
        let wrong = |name, results: Results| Control::new(name, results.outputs(bytes.clone()));
        // Floats as they are when ranks add in the other order.
        let mut backwards = vec![0.0; subject.words];
        for (row, values) in subject.rows(seed).into_iter().rev().enumerate() {
            for (sum, value) in backwards.iter_mut().zip(values) {
                *sum = if row == 0 { value } else { *sum + value };
            }
        }
        let mut controls = vec![
            Control::zeros(reference),
            Control::one_off(reference, "sum", subject.words / 2, 1.0),
            Control::one_off(reference, "bytes of links", 0, 4.0),
        ];
        if backwards != right.float_sum[..subject.words] {
            let float_sum = backwards.repeat(subject.ranks);
            controls.push(wrong(
                "floats are summed from the last row on",
                Results { float_sum, ..right.clone() },
            ));
        }
        if subject.ranks > 1 {
            let mut exchanged = right.exchanged.clone();
            exchanged.rotate_left(subject.words);
            controls.push(wrong("parts are one rank off", Results { exchanged, ..right.clone() }));
            let mut returned = right.returned.clone();
            returned[..subject.words].fill(0);
            controls.push(wrong("a source was spoiled before it was read", Results { returned, ..right }));
        }
        controls
    }

    fn work(&self, case: &Case) -> Work {
        let subject = Subject::of(case);
        let bytes = subject.links(|from, to| subject.bytes(from, to)).iter().sum();
        Work { operations: 0, bytes }
    }
}
