//! Causal attention of bf16 and its gradient, without matrices of scores (FlashAttention-2).
//!
//! Queries, keys and values of a token lie beside each other, as one product gives them: `[token, kind, head,
//! number]`. What heads give is `[token, head, number]`.

use gatework_gpu::{ByValue, Grid, Stream, View, ViewMut, args};
use half::bf16;

use super::kernels;
use super::segments::require;
use super::shared::{ATTEND_THREADS, ATTEND_TILE, AttendShape};
use crate::error::{Error, Result};

/// Numbers of a head at most: the gradients of keys and values of a head are held in registers.
pub const MOST_HEAD_NUMBERS: usize = 128;
/// Depth of one product of the tensor cores.
const DEPTH: usize = 16;
/// Numbers that are read in one access where all rows begin at multiples of so many.
const GROUP: usize = 8;
/// Blocks along the second and third axis of a grid.
const MOST_BLOCKS: usize = 65_535;

/// Windows of tokens, and heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// Windows, none of which sees another.
    pub windows: usize,
    /// Tokens of each.
    pub context: usize,
    /// Heads of a token.
    pub heads: usize,
    /// Numbers of a head.
    pub numbers: usize,
}

impl Heads {
    fn width(self) -> usize {
        self.heads * self.numbers
    }

    /// Numbers of what heads give.
    fn given(self) -> usize {
        self.windows * self.context * self.width()
    }

    /// Places of all heads: each has a level.
    pub fn places(self) -> usize {
        self.windows * self.heads * self.context
    }

    fn check(self) -> Result<()> {
        let Self { windows, context, heads, numbers } = self;
        if numbers > MOST_HEAD_NUMBERS {
            return Err(Error::shape(format!(
                "heads of {numbers} numbers: on a device a head has {MOST_HEAD_NUMBERS} at most; take more heads"
            )));
        }
        let fits = [windows, context, heads, numbers].iter().all(|size| (1..=1 << 30).contains(size));
        if !fits || windows > MOST_BLOCKS || heads > MOST_BLOCKS {
            return Err(Error::shape(format!(
                "{windows} windows of {context} tokens with {heads} heads of {numbers} numbers: a launch takes from 1 to \
                 2^30 of each, and at most {MOST_BLOCKS} windows and heads"
            )));
        }
        Ok(())
    }

    fn shape(self) -> AttendShape {
        let scale = 1.0 / (self.numbers as f32).sqrt();
        AttendShape {
            context: self.context as u32,
            width: self.width() as u32,
            head: self.numbers as u32,
            scale,
            power: scale * std::f32::consts::LOG2_E,
        }
    }

    /// A block for each tile of each head, with so many tiles in shared memory and numbers beside them.
    fn grid(self, tiles: usize, numbers: usize) -> Grid {
        let blocks =
            [self.context.div_ceil(ATTEND_TILE as usize), self.heads, self.windows].map(|n| n as u32);
        let row = self.padded() + GROUP;
        let shared = tiles * ATTEND_TILE as usize * row * size_of::<bf16>() + numbers * size_of::<f32>();
        Grid::new(blocks, [ATTEND_THREADS, 1, 1]).shared(shared as u32)
    }

    /// Numbers of a head in whole products.
    fn padded(self) -> usize {
        self.numbers.next_multiple_of(DEPTH)
    }

    fn launch(
        self,
        stream: &Stream,
        name: &'static str,
        grid: &Grid,
        addresses: &[u64],
        arguments: &[gatework_gpu::Arg<'_>],
    ) -> Result<()> {
        let wide = self.numbers.is_multiple_of(GROUP) && addresses.iter().all(|at| at.is_multiple_of(16));
        let module = kernels::attention(self.padded() as u32, wide);
        Ok(stream.device().kernel_of(&module, name)?.launch(stream, grid, arguments)?)
    }
}

/// `given ← softmax(q kᵀ / √d) v` of every head, in which a token sees those up to itself, rounded; and the
/// level of every place, `log2 Σ exp(q kᵀ / √d)`, which the gradient needs.
pub fn attend(
    stream: &Stream,
    heads: Heads,
    read: &impl View<bf16>,
    given: &mut impl ViewMut<bf16>,
    levels: &mut impl ViewMut<f32>,
) -> Result<()> {
    heads.check()?;
    let (read, given, levels) = (read.view(), given.view_mut(), levels.view_mut());
    require("read", read.len(), 3 * heads.given())?;
    require("given", given.view().len(), heads.given())?;
    require("levels", levels.view().len(), heads.places())?;
    let addresses = [read.as_raw(), given.view().as_raw()];
    let arguments = args![read, given, levels, ByValue(&heads.shape())];
    heads.launch(stream, "attend", &heads.grid(5, 0), &addresses, &arguments)
}

/// What [`attend`] read and gave, and the gradient of the latter.
#[derive(Debug)]
pub struct Attended<'a, Read, Given, Levels> {
    /// Queries, keys and values.
    pub read: &'a Read,
    /// What heads gave.
    pub given: &'a Given,
    /// The gradient of that, rounded.
    pub of_given: &'a Given,
    /// Levels of all places.
    pub levels: &'a Levels,
}

/// The gradients of queries, keys and values, rounded, as they lie in what was read. `dots` has room for a
/// number a place.
pub fn attend_back<Read: View<bf16>, Given: View<bf16>, Levels: View<f32>>(
    stream: &Stream,
    heads: Heads,
    attended: &Attended<'_, Read, Given, Levels>,
    dots: &mut impl ViewMut<f32>,
    of_read: &mut impl ViewMut<bf16>,
) -> Result<()> {
    heads.check()?;
    let Attended { read, given, of_given, levels } = attended;
    let (read, given, of_given, levels) = (read.view(), given.view(), of_given.view(), levels.view());
    let (mut dots, mut of_read) = (dots.view_mut(), of_read.view_mut());
    require("read", read.len(), 3 * heads.given())?;
    require("given", given.len(), heads.given())?;
    require("of_given", of_given.len(), heads.given())?;
    require("levels", levels.len(), heads.places())?;
    require("dots", dots.view().len(), heads.places())?;
    require("of_read", of_read.view().len(), 3 * heads.given())?;
    let addresses = [read.as_raw(), given.as_raw(), of_given.as_raw(), of_read.view().as_raw()];
    let shape = heads.shape();
    let arguments =
        args![read, given, of_given, levels, dots.view_mut(), of_read.view_mut(), ByValue(&shape)];
    heads.launch(stream, "attend_queries", &heads.grid(6, 0), &addresses, &arguments)?;
    let numbers = 4 * ATTEND_TILE as usize;
    let arguments = args![read, of_given, levels, dots.view(), of_read.view_mut(), ByValue(&shape)];
    heads.launch(stream, "attend_keys", &heads.grid(6, numbers), &addresses, &arguments)
}
