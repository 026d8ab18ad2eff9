//! `foresight/gru`: several gated recurrent units, each with weights of its own, over many steps in one
//! launch.

use std::cell::RefCell;
use std::rc::Rc;

use gatework_gpu::{Buffer, Device, Stream};
use gatework_lab::{
    Bench, Case, Evidence, Inputs, KernelSpec, Outputs, RunError, Side, Timing, Work, poisoned,
};

use super::Job;
use crate::cuda::kernels::{Beside, Form, recurrent};
use crate::cuda::{DeviceGru, GruSizes, Residence, Schedule, Team, WeightFormat};
use crate::workloads::plain::gru;
use crate::world::{ACTION, Reset};

/// Numbers that go in beside the state: what a world model of 8 times 8 classes is given.
const INPUTS: usize = 64 + ACTION;

#[derive(Clone, Copy)]
pub(super) struct Units;

/// Blocks of a team, or 0 for the schedule that suits.
fn case(members: usize, hidden: usize, steps: usize, reset: Reset, format: WeightFormat) -> Case {
    let (place, before) = if reset == Reset::Before { ("before", 1) } else { ("after", 0) };
    let (name, halved) = if format == WeightFormat::Bf16 { ("bf16", 1) } else { ("f32", 0) };
    Case::new(format!("{steps}x{members}x{hidden}-{place}-{name}"))
        .with("members", members)
        .with("hidden", hidden)
        .with("steps", steps)
        .with("reset_before", before)
        .with("bf16", halved)
        .with("blocks", 0)
}

/// The same with blocks in a cluster, or in a grid that streams its weights.
pub(super) fn scheduled(mut case: Case, blocks: usize, team: Team) -> Case {
    let (name, grid) = if team == Team::Grid { ("grid", 1) } else { ("cluster", 0) };
    case.name = format!("{}-{name}-{blocks}", case.name);
    case.with("blocks", blocks).with("grid", grid)
}

pub(super) fn schedule(case: &Case) -> Option<Schedule> {
    let blocks = case.dimension("blocks");
    (blocks > 0).then(|| match case.dimension("grid") {
        0 => Schedule { blocks, team: Team::Cluster, residence: Residence::Shared },
        _ => Schedule { blocks, team: Team::Grid, residence: Residence::Streamed },
    })
}

pub(super) fn format(case: &Case) -> WeightFormat {
    if case.dimension("bf16") == 1 { WeightFormat::Bf16 } else { WeightFormat::F32 }
}

pub(super) fn reset(case: &Case) -> Reset {
    if case.dimension("reset_before") == 1 { Reset::Before } else { Reset::After }
}

/// The kernel in the forms that cases run it in.
pub(super) fn specs(entry: &'static str, beside: Beside) -> Vec<KernelSpec> {
    let forms = [
        (WeightFormat::F32, Team::Cluster, Residence::Shared, Reset::After),
        (WeightFormat::Bf16, Team::Cluster, Residence::Shared, Reset::Before),
        (WeightFormat::Bf16, Team::Grid, Residence::Shared, Reset::After),
        (WeightFormat::F32, Team::Grid, Residence::Streamed, Reset::Before),
    ];
    let spec = |(format, team, residence, reset)| {
        let module = recurrent(Form { format, team, residence, reset }, beside);
        KernelSpec::new(module.source()).entries([entry]).threads(256)
    };
    forms.into_iter().map(spec).collect()
}

/// Weights of every member, inputs of every step, states before the first.
struct Data {
    sizes: GruSizes,
    steps: usize,
    weights: Vec<Vec<f32>>,
    inputs: Vec<f32>,
    start: Vec<f32>,
}

impl Data {
    fn new(case: &Case, seed: u64) -> Self {
        let [members, hidden, steps] = ["members", "hidden", "steps"].map(|name| case.dimension(name));
        let sizes = GruSizes { members, inputs: INPUTS, hidden, reset: reset(case) };
        let mut inputs = Inputs::new(seed);
        let scale = 1.0 / ((hidden + INPUTS) as f32).sqrt();
        let of_member = |_| inputs.normal(sizes.weights()).into_iter().map(|w| scale * w).collect();
        let weights = (0..members).map(of_member).collect();
        let start = inputs.uniform(members * hidden, -1.0..1.0);
        Self { weights, inputs: inputs.normal(steps * members * INPUTS), start, sizes, steps }
    }

    fn plain(&self, format: WeightFormat, reset: Reset) -> Outputs {
        let GruSizes { members, hidden, .. } = self.sizes;
        let double = |x: &[f32]| x.iter().copied().map(f64::from).collect::<Vec<f64>>();
        // Biases stay as they are.
        let rounded = |weights: &Vec<f32>| -> Vec<f32> {
            let mut rounded = weights.clone();
            let matrices = [(INPUTS, 3 * hidden), (hidden, hidden), (hidden, hidden), (hidden, hidden)];
            let mut at = 0;
            for (rows, columns) in matrices {
                rounded[at..at + rows * columns].iter_mut().for_each(|w| *w = format.rounded(*w));
                at += (rows + 1) * columns;
            }
            rounded
        };
        let weights: Vec<Vec<f32>> = self.weights.iter().map(rounded).collect();
        let mut h: Vec<Vec<f64>> = self.start.chunks(hidden).map(double).collect();
        let mut states = Vec::with_capacity(self.steps * members * hidden);
        for x in self.inputs.chunks(members * INPUTS) {
            for (member, x) in x.chunks(INPUTS).enumerate() {
                h[member] = gru(&weights[member], &mut 0, &double(x), &h[member], reset);
                states.extend(h[member].iter().map(|h| *h as f32));
            }
        }
        Outputs::new().with("states", states)
    }
}

/// A job with its inputs on the device.
struct Bound {
    gru: DeviceGru,
    inputs: Buffer<f32>,
    start: Buffer<f32>,
    states: Buffer<f32>,
}

impl Bound {
    fn new(stream: &Stream, case: &Case, data: &Data) -> Result<Self, RunError> {
        let weights: Vec<&[f32]> = data.weights.iter().map(Vec::as_slice).collect();
        Ok(Self {
            gru: DeviceGru::new(stream, data.sizes, &weights, format(case), schedule(case))?,
            inputs: stream.upload(&data.inputs)?,
            start: stream.upload(&data.start)?,
            states: poisoned(stream, data.steps * data.start.len())?,
        })
    }

    fn advance(&mut self, stream: &Stream) -> crate::Result<()> {
        self.gru.advance(stream, &self.inputs, &self.start, &mut self.states)
    }
}

impl Job for Units {
    fn name(&self) -> &'static str {
        "foresight/gru"
    }

    fn summary(&self) -> &'static str {
        "many steps of several gated recurrent units in one launch, the reset gate before or after the product"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        specs("gru", Beside::default())
    }

    fn cases(&self) -> Vec<Case> {
        use Reset::{After, Before};
        use WeightFormat::{Bf16, F32};
        vec![
            scheduled(case(2, 9, 3, Before, F32), 2, Team::Cluster),
            scheduled(case(2, 9, 3, Before, F32), 2, Team::Grid),
            case(1, 1, 3, After, F32),
            case(5, 33, 2, After, Bf16),
            case(7, 64, 2, Before, Bf16),
            case(5, 256, 2, After, F32),
            case(1, 1025, 1, Before, F32),
        ]
    }

    fn few(&self) -> usize {
        2
    }

    fn large(&self) -> Vec<Case> {
        use Reset::{After, Before};
        use WeightFormat::{Bf16, F32};
        vec![
            case(5, 64, 50, After, F32),
            case(5, 256, 50, After, F32),
            case(5, 256, 50, Before, F32),
            case(5, 256, 50, After, Bf16),
            case(5, 512, 50, After, Bf16),
            case(5, 1024, 50, After, Bf16),
        ]
    }

    fn tried(&self) -> Option<Case> {
        Some(case(2, 17, 3, Reset::After, WeightFormat::F32))
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        let stream = device.stream()?;
        let mut bound = Bound::new(&stream, case, &Data::new(case, seed))?;
        bound.advance(&stream)?;
        Ok(Outputs::new().with("states", stream.download(&bound.states)?))
    }

    fn reference(&self, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        Ok(Data::new(case, seed).plain(format(case), reset(case)))
    }

    fn within(&self, _: &Case) -> [f64; 2] {
        [2e-5, 1e-4]
    }

    fn mistaken(&self, case: &Case, seed: u64) -> Result<(&'static str, Outputs), RunError> {
        let other = if reset(case) == Reset::After { Reset::Before } else { Reset::After };
        Ok(("the reset gate in the other place", Data::new(case, seed).plain(format(case), other)))
    }

    fn work(&self, case: &Case) -> Work {
        let [members, hidden, steps] = ["members", "hidden", "steps"].map(|name| case.dimension(name) as u64);
        let weights = members * hidden * (3 * INPUTS as u64 + 3 * hidden);
        let bytes_of_weight = if format(case) == WeightFormat::Bf16 { 2 } else { 4 };
        let states = members * (steps * (hidden + INPUTS as u64) + hidden);
        Work { operations: 2 * steps * weights, bytes: bytes_of_weight * weights + 4 * states }
    }

    fn bench(&self, device: &Device, case: &Case) -> Result<Bench, RunError> {
        const SEED: u64 = 1;
        let stream = device.stream()?;
        let data = Data::new(case, SEED);
        let job = Rc::new(RefCell::new(Bound::new(&stream, case, &data)?));
        let mut single = Bound::new(&stream, case, &data)?;
        let (members, steps) = (data.sizes.members, data.steps);
        single.inputs = stream.upload(&data.inputs[..members * INPUTS])?;
        single.states = stream.alloc(members * data.sizes.hidden)?;
        let (timed, spoilt, seen) = (job.clone(), job.clone(), job);
        let candidate = Side::new("one launch", move |stream: &Stream| timed.borrow_mut().advance(stream));
        let baseline = Side::new("a launch a step", move |stream: &Stream| -> crate::Result<()> {
            (0..steps).try_for_each(|_| single.advance(stream))
        });
        let expected = data.plain(format(case), reset(case));
        let evidence = Evidence::new(
            gatework_lab::Workload::budget(&super::OnDevice { job: *self, cases: super::Cases::All }, case),
            move |stream| Ok(stream.fill(&mut spoilt.borrow_mut().states, f32::NAN)?),
            move |stream| Ok(Outputs::new().with("states", stream.download(&seen.borrow().states)?)),
            move |_| Ok(expected.clone()),
        );
        stream.synchronize()?;
        let why = "weights are loaded once, and steps meet at a barrier instead of at a launch";
        let bench = Bench::new(self.work(case), candidate, baseline).timing(Timing::Launches { count: 5 });
        Ok(bench.shown_by(evidence).expect_at_most(0.5, why))
    }
}
