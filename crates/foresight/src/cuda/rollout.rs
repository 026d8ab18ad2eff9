//! Rollouts of a whole ensemble in one launch.

use gatework_gpu::{Buffer, ByValue, Stream, args};

use super::gru::{GateSlabs, GruSizes};
use super::kernels;
use super::shared::RolloutShape;
use super::team::{
    MOST_HIDDEN, Needs, Places, Residence, Schedule, WeightFormat, append_rows, partials_of, require_finite,
};
use crate::error::{Error, Result};
use crate::state::{FEATURES, Features, Normaliser};
use crate::world::inside::Linear;
use crate::world::{ACTION, Ensemble, Path, States, WorldOptions};

/// Outputs of the heads that a rollout asks: features, mean and logarithm of the variance.
const HEADS: usize = FEATURES + 2;
/// What a tick of a member has in `paths`.
const OF_PATH: usize = 4;

/// The columns of a member that blocks own: gates and, beside them, heads; prior; posterior.
#[derive(Debug, Clone, Copy)]
struct Slabs {
    gates: GateSlabs,
    categories: usize,
    classes: usize,
    /// Whether the posterior is there too.
    encoded: bool,
}

impl Slabs {
    fn new(options: &WorldOptions, format: WeightFormat, blocks: usize, encoded: bool) -> Self {
        let WorldOptions { members, hidden, categories, classes, reset, .. } = *options;
        let inputs = categories * classes + ACTION;
        let sizes = GruSizes { members, inputs, hidden, reset };
        let beside = HEADS.div_ceil(blocks).next_multiple_of(format.columns());
        Self { gates: GateSlabs { sizes, format, blocks, beside }, categories, classes, encoded }
    }

    fn stochastic(&self) -> usize {
        self.categories * self.classes
    }

    /// Whole vectors of so many columns.
    fn whole(&self, columns: usize) -> usize {
        columns.next_multiple_of(self.gates.format.columns())
    }

    fn own_categories(&self) -> usize {
        self.categories.div_ceil(self.gates.blocks)
    }

    fn prior_width(&self) -> usize {
        self.whole(self.own_categories() * self.classes)
    }

    /// Bytes of rows of so many columns, which are whole vectors.
    fn bytes_of(&self, rows: usize, columns: usize) -> usize {
        rows * columns / self.gates.format.columns() * 16
    }

    /// Bytes of the gates with the heads, of the prior and of the posterior.
    fn bytes(&self) -> [usize; 3] {
        let hidden = self.gates.sizes.hidden;
        [
            self.gates.bytes(),
            self.bytes_of(hidden, self.prior_width()),
            if self.encoded { self.bytes_of(hidden + FEATURES, self.prior_width()) } else { 0 },
        ]
    }

    /// What the kernel is told, and the shared memory of its blocks.
    fn shape(&self, ticks: usize, back: Back, residence: Residence) -> (RolloutShape, usize) {
        let GruSizes { hidden, .. } = self.gates.sizes;
        let [gates, prior, posterior] = self.bytes();
        let (slab, held) = (gates + prior + posterior, self.gates.held_bytes());
        let (width, prior_width) = (self.gates.width(), self.prior_width());
        let mut places = Places::after(if residence == Residence::Shared { slab - held } else { 0 });
        let words = |bytes: usize| (bytes / size_of::<u32>()) as u32;
        let of_logits = partials_of(prior_width / self.gates.format.columns(), prior_width);
        let shape = RolloutShape {
            blocks: self.gates.blocks as u32,
            ticks: ticks as u32,
            hidden: hidden as u32,
            width: width as u32,
            categories: self.categories as u32,
            classes: self.classes as u32,
            own_categories: self.own_categories() as u32,
            prior_width: prior_width as u32,
            head_width: self.gates.beside as u32,
            words: words(slab),
            held_words: words(held),
            held_rows: self.gates.held_rows() as u32,
            prior_word: words(gates - held),
            posterior_word: words(gates - held + prior),
            given_at: places.floats(self.stochastic() + ACTION),
            state_at: places.floats(2 * hidden.next_multiple_of(4)),
            reset_at: places.floats(hidden),
            partial_at: places.floats(self.gates.partials()),
            kept_at: places.floats(2 * width),
            bias_at: places.floats(4 * width + self.gates.beside + 2 * prior_width),
            logits_at: places.floats(2 * prior_width),
            noise_at: places.floats(2 * prior_width),
            choices_at: places.floats(2 * self.own_categories()),
            entropies_at: places.floats(3 * self.categories),
            of_logits_at: places.floats(of_logits.max(self.gates.partials_of_reset())),
            seen_at: places.floats(FEATURES),
            history: back.ticks as u32,
            first_place: back.first as u32,
            places: back.places as u32,
        };
        (shape, places.bytes())
    }

    /// All slabs and biases of an ensemble, as the kernel has them.
    fn pack(&self, ensemble: &Ensemble) -> Result<(Vec<u32>, Vec<f32>)> {
        let member = ensemble.options().member();
        let (hidden, stochastic, format) = (self.gates.sizes.hidden, self.stochastic(), self.gates.format);
        let (mut words, mut biases) = (Vec::new(), Vec::new());
        for (index, parameters) in ensemble.parameters().enumerate() {
            require_finite(index, parameters)?;
            let of = |layer: &Linear, row: usize, column: usize| {
                parameters[layer.matrix.start + row * layer.outputs + column]
            };
            for block in 0..self.gates.blocks {
                let head = |column: usize| match block * self.gates.beside + column {
                    at @ ..FEATURES => Some((&member.features, at)),
                    at @ FEATURES..HEADS => Some((&member.change, at - FEATURES)),
                    _ => None,
                };
                // Heads read the state before the stochastic state, and no action.
                self.gates.append(&mut words, &member.gru, parameters, block, |row, column| {
                    let (layer, at) = head(column)?;
                    let of_state = || row.checked_sub(stochastic + ACTION);
                    let row = if row < stochastic { hidden + row } else { of_state()? };
                    Some(of(layer, row, at))
                });
                self.gates.append_biases(&mut biases, &member.gru, parameters, block);
                biases.extend(
                    (0..self.gates.beside).map(|column| {
                        head(column).map_or(0.0, |(layer, at)| parameters[layer.bias.start + at])
                    }),
                );
                // Columns of classes behind the block's last category belong to the next block.
                let own = self.own_categories() * self.classes;
                let class = |column: usize| {
                    let at = block * own + column;
                    (column < own && at < stochastic).then_some(at)
                };
                append_rows(&mut words, format, [hidden, self.prior_width()], |row, column| {
                    Some(of(&member.prior, row, class(column)?))
                });
                biases.extend(
                    (0..self.prior_width()).map(|column| {
                        class(column).map_or(0.0, |at| parameters[member.prior.bias.start + at])
                    }),
                );
                if self.encoded {
                    let size = [hidden + FEATURES, self.prior_width()];
                    append_rows(&mut words, format, size, |row, column| {
                        Some(of(&member.posterior, row, class(column)?))
                    });
                }
                let of_posterior = |at: usize| parameters[member.posterior.bias.start + at];
                biases.extend((0..self.prior_width()).map(|column| class(column).map_or(0.0, of_posterior)));
            }
        }
        Ok((words, biases))
    }
}

/// Which places of a ring a launch looks back on.
#[derive(Debug, Clone, Copy)]
struct Back {
    ticks: usize,
    first: usize,
    places: usize,
}

impl Back {
    /// At nothing.
    const NONE: Self = Self { ticks: 0, first: 0, places: 1 };
}

/// Ticks that were pushed and that no launch has looked back on yet, in a ring on the device, and what
/// normalises them.
#[derive(Debug)]
struct History {
    /// Whether ticks can be pushed at all; if not, the arrays have no use.
    places: usize,
    waiting: usize,
    /// Where the next tick goes.
    next: usize,
    features: Buffer<f64>,
    actions: Buffer<f32>,
    normaliser: Buffer<f64>,
    /// A launch reads one and writes the other.
    next_normaliser: Buffer<f64>,
}

impl History {
    /// An empty ring, with room for a normaliser.
    fn new(stream: &Stream, places: usize) -> Result<Self> {
        Ok(Self {
            places,
            waiting: 0,
            next: 0,
            features: stream.alloc(places.max(1) * FEATURES)?,
            actions: stream.alloc(places.max(1) * ACTION)?,
            normaliser: stream.alloc(Normaliser::NUMBERS)?,
            next_normaliser: stream.alloc(Normaliser::NUMBERS)?,
        })
    }

    fn back(&self) -> Back {
        let places = self.places.max(1);
        Back { ticks: self.waiting, first: (self.next + places - self.waiting) % places, places }
    }
}

/// What a launch is told, and what it leaves on the device.
#[derive(Debug)]
struct Imagined {
    ticks: usize,
    sampled: bool,
    /// The members' streams of random numbers, then the actions.
    told: Buffer<u64>,
    paths: Buffer<f64>,
    features: Buffer<f32>,
    classes: Buffer<u32>,
    margins: Buffer<f32>,
}

/// An ensemble on a device: its weights, and what its members make of the run so far.
///
/// [`Self::imagine`] is [`Ensemble::paths`] in one launch. Generator and functions are the CPU's, bit for
/// bit; sums are added up in another order. So a sampled class is the CPU's unless its margin is as small as
/// the difference between sums.
#[derive(Debug)]
pub struct DeviceWorld {
    options: WorldOptions,
    format: WeightFormat,
    schedule: Schedule,
    weights: Buffer<u32>,
    biases: Buffer<f32>,
    hidden: Buffer<f32>,
    stochastic: Buffer<f32>,
    actions: Buffer<f32>,
    history: History,
    exchange: Buffer<f32>,
    arrived: Buffer<u32>,
    imagined: Option<Imagined>,
}

impl DeviceWorld {
    /// Puts an ensemble on the device. Without a schedule, with the one that suits.
    pub fn new(
        stream: &Stream,
        ensemble: &Ensemble,
        format: WeightFormat,
        schedule: Option<Schedule>,
    ) -> Result<Self> {
        Self::with_history(stream, ensemble, &Normaliser::default(), 0, format, schedule)
    }

    /// The same, with a ring of so many places for ticks ([`Self::push`]) that are normalised and followed on
    /// the device, in the launch of the next [`Self::imagine`] and before it, as [`Normaliser::take`] and
    /// [`Ensemble::observe`] would.
    pub fn with_history(
        stream: &Stream,
        ensemble: &Ensemble,
        normaliser: &Normaliser,
        places: usize,
        format: WeightFormat,
        schedule: Option<Schedule>,
    ) -> Result<Self> {
        let options = *ensemble.options();
        let WorldOptions { members, hidden, categories, classes, .. } = options;
        let stochastic = categories * classes;
        if hidden > MOST_HIDDEN || stochastic > MOST_HIDDEN {
            return Err(Error::shape(format!(
                "{hidden} hidden numbers and {categories} × {classes} classes: both are {MOST_HIDDEN} at most on a device"
            )));
        }
        let needs = |blocks: usize| {
            let slabs = Slabs::new(&options, format, blocks, places > 0);
            let (_, rest) = slabs.shape(1, Back::NONE, Residence::Streamed);
            Needs { slab: slabs.bytes().iter().sum(), held: slabs.gates.held_bytes(), rest }
        };
        let device = stream.device();
        let schedule = match schedule {
            Some(schedule) => {
                schedule.check(device, members, needs)?;
                schedule
            }
            None => Schedule::suited(device, members, hidden.div_ceil(format.columns()), needs)?,
        };
        let (words, biases) = Slabs::new(&options, format, schedule.blocks, places > 0).pack(ensemble)?;
        let mut world = Self {
            options,
            format,
            schedule,
            weights: stream.upload(&words)?,
            biases: stream.upload(&biases)?,
            hidden: stream.alloc(members * hidden)?,
            stochastic: stream.alloc(members * stochastic)?,
            actions: stream.alloc(members * ACTION)?,
            history: History::new(stream, places)?,
            exchange: stream.alloc(members * (3 * hidden + stochastic + 3 * categories))?,
            arrived: stream.alloc_zeros(1)?,
            imagined: None,
        };
        world.follow(stream, ensemble, normaliser)?;
        Ok(world)
    }

    /// How it is run.
    pub fn schedule(&self) -> Schedule {
        self.schedule
    }

    /// Takes over what the host makes of the run by now: the members' states, and the normaliser that their
    /// features went through. Weights stay: after an update, make another.
    ///
    /// Ticks that wait in the ring are forgotten: the host is taken to have seen them, and looking back on
    /// them would count them twice. Push those that it has not seen after this call. A world without a ring
    /// has no use for the normaliser.
    pub fn follow(&mut self, stream: &Stream, ensemble: &Ensemble, normaliser: &Normaliser) -> Result<()> {
        if *ensemble.options() != self.options {
            return Err(Error::shape(
                "the ensemble has other sizes than the one on the device: make another",
            ));
        }
        let (mut h, mut z, mut actions) = (Vec::new(), Vec::new(), Vec::new());
        for [of_member, stochastic, action] in ensemble.recurrent_states() {
            h.extend_from_slice(of_member);
            z.extend_from_slice(stochastic);
            actions.extend_from_slice(action);
        }
        stream.copy_from_host(&h, &mut self.hidden)?;
        stream.copy_from_host(&z, &mut self.stochastic)?;
        stream.copy_from_host(&actions, &mut self.actions)?;
        stream.copy_from_host(&normaliser.numbers(), &mut self.history.normaliser)?;
        self.history.waiting = 0;
        Ok(())
    }

    /// Puts a tick into the ring: features as they are, and the action that is in effect from there on. It
    /// waits there for the next [`Self::imagine`], or until [`Self::follow`] takes over from a host that has
    /// seen it.
    pub fn push(&mut self, stream: &Stream, features: &Features, action: &[f32; ACTION]) -> Result<()> {
        let History { places, waiting, next, .. } = self.history;
        if waiting == places {
            return Err(Error::shape(format!(
                "{waiting} ticks wait in a ring of {places} places: imagine, which looks back on them, or make a longer one"
            )));
        }
        let (at, of_action) = (next * FEATURES, next * ACTION);
        stream.copy_from_host(features, &mut self.history.features.slice_mut(at..at + FEATURES))?;
        stream.copy_from_host(action, &mut self.history.actions.slice_mut(of_action..of_action + ACTION))?;
        self.history.next = (next + 1) % places;
        self.history.waiting += 1;
        Ok(())
    }

    /// Queues what every member imagines, one tick an action.
    pub fn imagine(&mut self, stream: &Stream, actions: &[[f32; ACTION]], states: &States) -> Result<()> {
        let WorldOptions { members, categories, reset, .. } = self.options;
        let ticks = actions.len();
        if ticks == 0 || u32::try_from(ticks).is_err() {
            return Err(Error::shape(
                "there is nothing to imagine: give one action a tick, and one tick at least",
            ));
        }
        let sampled = matches!(states, States::Sampled(_));
        let base = |index: usize| match states.of_member(index) {
            States::Expected => 0,
            States::Sampled(random) => random.base(),
        };
        let mut told: Vec<u64> = (0..members).map(base).collect();
        told.resize(members + (ticks * ACTION).div_ceil(2), 0);
        let places = bytemuck::cast_slice_mut::<u64, f32>(&mut told[members..]).iter_mut();
        places.zip(actions.iter().flatten()).for_each(|(place, number)| *place = *number);
        let encoded = self.history.places > 0;
        let slabs = Slabs::new(&self.options, self.format, self.schedule.blocks, encoded);
        let Schedule { team, residence, .. } = self.schedule;
        let (shape, bytes) = slabs.shape(ticks, self.history.back(), residence);
        let rows = ticks * members;
        // Classes and margins that are not drawn have no place of their own.
        let drawn = if sampled { rows * categories } else { 1 };
        let mut imagined = match self.imagined.take() {
            Some(imagined) if imagined.ticks == ticks && imagined.sampled == sampled => imagined,
            _ => Imagined {
                ticks,
                sampled,
                told: stream.alloc(told.len())?,
                paths: stream.alloc(rows * OF_PATH)?,
                features: stream.alloc(rows * FEATURES)?,
                classes: stream.alloc(drawn)?,
                margins: stream.alloc(drawn)?,
            },
        };
        stream.copy_from_host(&told, &mut imagined.told)?;
        let form = kernels::Form { format: self.format, team, residence, reset };
        let kernel = stream
            .device()
            .kernel_of(&kernels::recurrent(form, kernels::Beside { sampled, encoded }), "rollout")?;
        let arguments = args![
            &self.weights,
            &self.biases,
            &imagined.told,
            &mut self.hidden,
            &mut self.stochastic,
            &mut self.actions,
            &self.history.features,
            &self.history.actions,
            &self.history.normaliser,
            &mut self.history.next_normaliser,
            &mut self.exchange,
            &mut self.arrived,
            &mut imagined.paths,
            &mut imagined.features,
            &mut imagined.classes,
            &mut imagined.margins,
            ByValue(&shape)
        ];
        kernel.launch(stream, &self.schedule.grid(members, bytes), &arguments)?;
        self.imagined = Some(imagined);
        let History { waiting, normaliser, next_normaliser, .. } = &mut self.history;
        if *waiting > 0 {
            std::mem::swap(normaliser, next_normaliser);
            *waiting = 0;
        }
        Ok(())
    }

    /// Forgets what was imagined last.
    pub fn forget(&mut self) {
        self.imagined = None;
    }

    /// Downloads the last rollout, member by member.
    pub fn paths(&self, stream: &Stream) -> Result<Vec<Path>> {
        let Some(Imagined { ticks, sampled, paths, features, classes, margins, .. }) = &self.imagined else {
            return Err(Error::shape("nothing was imagined yet: call DeviceWorld::imagine first"));
        };
        let WorldOptions { members, categories, .. } = self.options;
        let numbers = stream.download(paths)?;
        let features = stream.download(features)?;
        let (classes, margins) = if *sampled {
            (stream.download(classes)?, stream.download(margins)?)
        } else {
            (Vec::new(), Vec::new())
        };
        let of_member = |member: usize| {
            let mut path = Path::default();
            for row in (0..*ticks).map(|tick| tick * members + member) {
                let [mean, variance, squares, entropy] = std::array::from_fn(|i| numbers[row * OF_PATH + i]);
                path.changes.push([mean, variance]);
                path.hidden_norms.push(squares.sqrt());
                path.entropies.push(entropy / categories as f64);
                path.features.extend_from_slice(&features[row * FEATURES..(row + 1) * FEATURES]);
                if *sampled {
                    path.classes.extend_from_slice(&classes[row * categories..(row + 1) * categories]);
                    path.margins.extend_from_slice(&margins[row * categories..(row + 1) * categories]);
                }
            }
            path
        };
        Ok((0..members).map(of_member).collect())
    }
}
