//! Gated recurrent units of an ensemble over many steps, in one launch.

use gatework_gpu::{Buffer, ByValue, Stream, args};

use super::kernels;
use super::segments::require;
use super::shared::{GruShape, TEAM_THREADS};
use super::team::{
    MOST_HIDDEN, Needs, Places, Residence, Schedule, WeightFormat, append_rows, groups_of, partials_of,
    require_finite,
};
use crate::error::{Error, Result};
use crate::world::Reset;
use crate::world::inside::Gru;

/// Sizes of the units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GruSizes {
    /// Members of the ensemble, each with weights of its own.
    pub members: usize,
    /// Numbers that go in beside the state.
    pub inputs: usize,
    /// Numbers of the state, 1 to 4096.
    pub hidden: usize,
    /// Where the reset gate stands.
    pub reset: Reset,
}

impl GruSizes {
    /// Weights of a member.
    pub fn weights(&self) -> usize {
        let mut weights = 0;
        Gru::place(self.inputs, self.hidden, self.reset, &mut weights);
        weights
    }

    fn check(&self) -> Result<()> {
        let Self { members, inputs, hidden, .. } = *self;
        if members == 0 || inputs == 0 || !(1..=MOST_HIDDEN).contains(&hidden) || inputs > MOST_HIDDEN {
            return Err(Error::shape(format!(
                "{members} members with {inputs} inputs and {hidden} hidden numbers: members start at 1, inputs and \
                 hidden numbers are 1 to {MOST_HIDDEN}"
            )));
        }
        Ok(())
    }
}

/// The columns of a GRU that blocks own, as a slab has them.
#[derive(Debug, Clone, Copy)]
pub(super) struct GateSlabs {
    pub(super) sizes: GruSizes,
    pub(super) format: WeightFormat,
    pub(super) blocks: usize,
    /// Columns of others behind the gates', in whole vectors.
    pub(super) beside: usize,
}

impl GateSlabs {
    /// Numbers of the state that a block owns.
    pub(super) fn width(&self) -> usize {
        self.sizes.hidden.div_ceil(self.blocks).next_multiple_of(self.format.columns())
    }

    /// Columns of a row.
    fn row(&self) -> usize {
        3 * self.width() + self.beside
    }

    fn bytes_of(&self, rows: usize) -> usize {
        rows * self.row() / self.format.columns() * 16
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes_of(self.sizes.inputs + self.sizes.hidden)
    }

    /// The first rows of the state that registers hold: none where a thread has several vectors.
    pub(super) fn held_rows(&self) -> usize {
        let vectors = self.row() / self.format.columns();
        if vectors > TEAM_THREADS as usize {
            return 0;
        }
        self.sizes.hidden.min(self.format.held_rows() * groups_of(vectors))
    }

    /// Those of them that lie nowhere else. With the reset gate before the product, another product reads
    /// the same rows by other threads.
    fn held_alone(&self) -> usize {
        if self.sizes.reset == Reset::Before { 0 } else { self.held_rows() }
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.bytes_of(self.held_alone())
    }

    /// What groups of threads leave of the products.
    pub(super) fn partials(&self) -> usize {
        partials_of(self.row() / self.format.columns(), 4 * self.width() + self.beside)
    }

    /// What they leave of the state after its reset, where that comes before the product.
    pub(super) fn partials_of_reset(&self) -> usize {
        match self.sizes.reset {
            Reset::Before => partials_of(self.width() / self.format.columns(), self.width()),
            Reset::After => 0,
        }
    }

    /// A block's columns of the gates z, r, n and of those beside, whose weights are `beside` of row and
    /// column: rows of the state that registers alone hold, of the input, of
    /// the rest of the state.
    pub(super) fn append(
        &self,
        words: &mut Vec<u32>,
        gru: &Gru,
        parameters: &[f32],
        block: usize,
        beside: impl Fn(usize, usize) -> Option<f32>,
    ) {
        let (width, GruSizes { inputs, hidden, .. }) = (self.width(), self.sizes);
        let weight = |row: usize, column: usize| {
            if column >= 3 * width {
                return beside(row, column - 3 * width);
            }
            let (gate, at) = (column / width, block * width + column % width);
            let of_input = gru.input.matrix.start + row * 3 * hidden + gate * hidden + at;
            let place = match row.checked_sub(inputs) {
                None => of_input,
                Some(row) => gru.state[gate].matrix.start + row * hidden + at,
            };
            (at < hidden).then(|| parameters[place])
        };
        let held = inputs + self.held_alone();
        for rows in [inputs..held, 0..inputs, held..inputs + hidden] {
            append_rows(words, self.format, [rows.len(), self.row()], |row, column| {
                weight(rows.start + row, column)
            });
        }
    }

    /// A block's biases: z, r, the input's part of n, the state's part of n, for each vector of columns.
    pub(super) fn append_biases(&self, biases: &mut Vec<f32>, gru: &Gru, parameters: &[f32], block: usize) {
        let (width, hidden) = (self.width(), self.sizes.hidden);
        let columns = self.format.columns();
        biases.extend((0..4 * width).map(|place| {
            let (vector, part) = (place / (4 * columns), place / columns % 4);
            let at = block * width + vector * columns + place % columns;
            if at >= hidden {
                return 0.0;
            }
            let input = |gate: usize| parameters[gru.input.bias.start + gate * hidden + at];
            let state = |gate: usize| parameters[gru.state[gate].bias.start + at];
            match part {
                0 | 1 => input(part) + state(part),
                2 => input(2),
                _ => state(2),
            }
        }));
    }
}

/// The units of an ensemble on a device.
#[derive(Debug)]
pub struct DeviceGru {
    sizes: GruSizes,
    format: WeightFormat,
    schedule: Schedule,
    weights: Buffer<u32>,
    biases: Buffer<f32>,
    exchange: Buffer<f32>,
    arrived: Buffer<u32>,
}

impl DeviceGru {
    /// Puts the weights of every member on the device: those of the input to z, r and n as `inputs × 3
    /// hidden`, their bias, and for each gate those of the state as `hidden × hidden` and their bias, as
    /// [`world`](crate::world) has them. Without a schedule, the one that suits.
    pub fn new(
        stream: &Stream,
        sizes: GruSizes,
        members: &[&[f32]],
        format: WeightFormat,
        schedule: Option<Schedule>,
    ) -> Result<Self> {
        sizes.check()?;
        require("members", members.len(), sizes.members)?;
        for (member, weights) in members.iter().enumerate() {
            require("weights of a member", weights.len(), sizes.weights())?;
            require_finite(member, weights)?;
        }
        let needs = |blocks: usize| {
            let slabs = GateSlabs { sizes, format, blocks, beside: 0 };
            let rest = shape(&slabs, 1, Residence::Streamed).1;
            Needs { slab: slabs.bytes(), held: slabs.held_bytes(), rest }
        };
        let device = stream.device();
        let schedule = match schedule {
            Some(schedule) => {
                schedule.check(device, sizes.members, needs)?;
                schedule
            }
            None => {
                let useful = sizes.hidden.div_ceil(format.columns());
                Schedule::suited(device, sizes.members, useful, needs)?
            }
        };
        let gru = Gru::place(sizes.inputs, sizes.hidden, sizes.reset, &mut 0);
        let slabs = GateSlabs { sizes, format, blocks: schedule.blocks, beside: 0 };
        let (mut words, mut biases) = (Vec::new(), Vec::new());
        for parameters in members {
            for block in 0..schedule.blocks {
                slabs.append(&mut words, &gru, parameters, block, |_, _| None);
                slabs.append_biases(&mut biases, &gru, parameters, block);
            }
        }
        Ok(Self {
            sizes,
            format,
            schedule,
            weights: stream.upload(&words)?,
            biases: stream.upload(&biases)?,
            exchange: stream.alloc(3 * sizes.members * sizes.hidden)?,
            arrived: stream.alloc_zeros(1)?,
        })
    }

    /// How it is run.
    pub fn schedule(&self) -> Schedule {
        self.schedule
    }

    /// The states after every step, as `steps × members × hidden`, from inputs as `steps × members × inputs`
    /// and states before the first as `members × hidden`.
    pub fn advance(
        &mut self,
        stream: &Stream,
        inputs: &Buffer<f32>,
        start: &Buffer<f32>,
        states: &mut Buffer<f32>,
    ) -> Result<()> {
        let GruSizes { members, inputs: width, hidden, reset } = self.sizes;
        let steps = inputs.len() / (members * width);
        if steps == 0 || u32::try_from(steps).is_err() {
            return Err(Error::shape(format!(
                "'inputs' has {} numbers, which are no step of {members} members with {width} each",
                inputs.len()
            )));
        }
        require("inputs", inputs.len(), steps * members * width)?;
        require("start", start.len(), members * hidden)?;
        require("states", states.len(), steps * members * hidden)?;
        let Schedule { blocks, team, residence } = self.schedule;
        let slabs = GateSlabs { sizes: self.sizes, format: self.format, blocks, beside: 0 };
        let (shape, bytes) = shape(&slabs, steps, residence);
        let form = kernels::Form { format: self.format, team, residence, reset };
        let kernel =
            stream.device().kernel_of(&kernels::recurrent(form, kernels::Beside::default()), "gru")?;
        let arguments = args![
            &self.weights,
            &self.biases,
            inputs,
            start,
            states,
            &mut self.exchange,
            &mut self.arrived,
            ByValue(&shape)
        ];
        kernel.launch(stream, &self.schedule.grid(members, bytes), &arguments)?;
        Ok(())
    }
}

/// What the kernel is told, and the shared memory of its blocks.
fn shape(slabs: &GateSlabs, steps: usize, residence: Residence) -> (GruShape, usize) {
    let GruSizes { inputs, hidden, .. } = slabs.sizes;
    let width = slabs.width();
    let settled = slabs.bytes() - slabs.held_bytes();
    let mut places = Places::after(if residence == Residence::Shared { settled } else { 0 });
    let words = |bytes: usize| (bytes / size_of::<u32>()) as u32;
    let shape = GruShape {
        blocks: slabs.blocks as u32,
        steps: steps as u32,
        inputs: inputs as u32,
        hidden: hidden as u32,
        width: width as u32,
        words: words(slabs.bytes()),
        held_words: words(slabs.held_bytes()),
        held_rows: slabs.held_rows() as u32,
        inputs_at: places.floats(2 * inputs),
        state_at: places.floats(2 * hidden.next_multiple_of(4)),
        reset_at: places.floats(hidden),
        partial_at: places.floats(slabs.partials()),
        of_reset_at: places.floats(slabs.partials_of_reset()),
        kept_at: places.floats(2 * width),
        bias_at: places.floats(4 * width),
    };
    (shape, places.bytes())
}
