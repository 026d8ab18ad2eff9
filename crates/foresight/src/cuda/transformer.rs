//! What a transformer's step has beside its products and its attention: normalisations, biases,
//! cross-entropies, embeddings. What products read is rounded.
//!
//! Rows are tokens, window after window, as on the CPU. Sums over rows go by chunks, whose sums are added up
//! in order.

use gatework_gpu::{Buffer, Grid, Kernel, Stream, View, ViewMut, args};
use half::bf16;

use super::kernels;
use super::segments::require;
use super::shared::{REDUCE_THREADS, RowGroup};
use crate::error::{Error, Result};

const WARPS: usize = REDUCE_THREADS as usize / 32;
/// Rows whose sums one block takes: enough that its reading hides what comes after it.
const CHUNK_ROWS: usize = 256;
/// Chunks of one launch: blocks along the grid's second axis.
const MOST_CHUNKS: usize = 65_535;

/// So many rows of so many numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    /// Rows.
    pub count: usize,
    /// Numbers of each.
    pub width: usize,
}

impl Rows {
    fn numbers(self) -> usize {
        self.count * self.width
    }

    fn check(self) -> Result<()> {
        if self.count.div_ceil(CHUNK_ROWS) > MOST_CHUNKS {
            return Err(Error::shape(format!(
                "{} rows: a launch takes {} at most",
                self.count,
                MOST_CHUNKS * CHUNK_ROWS
            )));
        }
        let fits = |number: usize| (1..=1 << 30).contains(&number);
        if fits(self.count) && fits(self.width) {
            return Ok(());
        }
        let Self { count, width } = self;
        Err(Error::shape(format!("{count} rows of {width} numbers: a launch takes from 1 to 2^30 of both")))
    }

    /// A warp a row.
    fn warps(self) -> Grid {
        Grid::new([self.count.div_ceil(WARPS) as u32, 1, 1], [REDUCE_THREADS, 1, 1])
    }
}

/// Tokens in the order in which their rows' gradients are added to the embedding: sorted, those of one token
/// in the order of their rows.
#[derive(Debug)]
pub struct Sorted {
    rows: usize,
    highest: u32,
    order: Buffer<u32>,
    groups: Buffer<RowGroup>,
}

impl Sorted {
    /// Of the tokens of all rows.
    pub fn new(stream: &Stream, tokens: &[u32]) -> Result<Self> {
        let Some(&highest) = tokens.iter().max() else {
            return Err(Error::shape("there are no tokens to sort: one at least is needed"));
        };
        let mut order: Vec<u32> = (0..tokens.len() as u32).collect();
        // Stable: rows of one token stay in their order.
        order.sort_by_key(|&row| tokens[row as usize]);
        let mut groups: Vec<RowGroup> = Vec::new();
        for (at, &row) in order.iter().enumerate() {
            let key = tokens[row as usize];
            match groups.last_mut() {
                Some(group) if group.key == key => group.end += 1,
                _ => groups.push(RowGroup { key, from: at as u32, end: at as u32 + 1 }),
            }
        }
        let (order, groups) = (stream.upload(&order)?, stream.upload(&groups)?);
        Ok(Self { rows: tokens.len(), highest, order, groups })
    }
}

/// What is found of every row by [`RowKernels::cross_entropy`].
#[derive(Debug)]
pub struct Judged {
    /// `−ln p` of its target.
    pub losses: Buffer<f32>,
    /// 1 where the target is the first of the largest logits.
    pub right: Buffer<u32>,
}

/// The kernels, on one stream. Each call is a launch, or two where sums over rows are taken.
#[derive(Debug)]
pub struct RowKernels {
    stream: Stream,
    partials: Option<Buffer<f32>>,
}

impl RowKernels {
    /// Whose launches come in the order of `stream`.
    pub fn new(stream: &Stream) -> Self {
        Self { stream: stream.clone(), partials: None }
    }

    fn kernel(&self, name: &'static str) -> Result<Kernel> {
        Ok(self.stream.device().kernel_of(&kernels::transformer(), name)?)
    }

    /// `y ← bf16((x − mean) / √(variance + ε) · gain + shift)` of every row. `gains` are gains, then shifts;
    /// `moments` become mean and one over the deviation of every row.
    pub fn normalise(
        &self,
        rows: Rows,
        x: &impl View<f32>,
        gains: &impl View<f32>,
        y: &mut impl ViewMut<bf16>,
        moments: &mut impl ViewMut<f32>,
    ) -> Result<()> {
        let [x, gains] = [x.view(), gains.view()];
        let (y, moments) = (y.view_mut(), moments.view_mut());
        rows.check()?;
        require("x", x.len(), rows.numbers())?;
        require("y", y.len(), rows.numbers())?;
        require("gains", gains.len(), 2 * rows.width)?;
        require("moments", moments.len(), 2 * rows.count)?;
        let arguments = args![x, gains, y, moments, rows.count as u32, rows.width as u32];
        Ok(self.kernel("normalise")?.launch(&self.stream, &rows.warps(), &arguments)?)
    }

    /// Adds the gradient of `x` to `dx`, and those of gains and shifts to `of_gains`.
    #[expect(clippy::too_many_arguments, reason = "what a gradient is made of, and what it is")]
    pub fn normalise_back(
        &mut self,
        rows: Rows,
        x: &impl View<f32>,
        gains: &impl View<f32>,
        moments: &impl View<f32>,
        dy: &impl View<f32>,
        dx: &mut impl ViewMut<f32>,
        of_gains: &mut impl ViewMut<f32>,
    ) -> Result<()> {
        let [x, gains, moments, dy] = [x.view(), gains.view(), moments.view(), dy.view()];
        let (dx, mut of_gains) = (dx.view_mut(), of_gains.view_mut());
        rows.check()?;
        for (name, len) in [("x", x.len()), ("dy", dy.len()), ("dx", dx.len())] {
            require(name, len, rows.numbers())?;
        }
        require("gains", gains.len(), 2 * rows.width)?;
        require("of_gains", of_gains.len(), 2 * rows.width)?;
        require("moments", moments.len(), 2 * rows.count)?;
        let (count, width) = (rows.count as u32, rows.width as u32);
        let arguments = args![x, gains, moments, dy, dx, count, width];
        self.kernel("normalise_back")?.launch(&self.stream, &rows.warps(), &arguments)?;
        let kernel = self.kernel("normalise_sums")?;
        let (grid, chunks) = columns(rows, 2);
        let partials = room(&self.stream, &mut self.partials, chunks * 2 * rows.width)?;
        let arguments = args![x, moments, dy, &mut *partials, count, width, CHUNK_ROWS as u32];
        kernel.launch(&self.stream, &grid, &arguments)?;
        self.add_chunks(chunks, 2 * rows.width, &mut of_gains)
    }

    /// Adds the sum of all rows to `of_bias`.
    pub fn bias_back(
        &mut self,
        rows: Rows,
        dy: &impl View<bf16>,
        of_bias: &mut impl ViewMut<f32>,
    ) -> Result<()> {
        let dy = dy.view();
        let mut of_bias = of_bias.view_mut();
        rows.check()?;
        require("dy", dy.len(), rows.numbers())?;
        require("of_bias", of_bias.len(), rows.width)?;
        let kernel = self.kernel("bias_sums")?;
        let (grid, chunks) = columns(rows, 1);
        let partials = room(&self.stream, &mut self.partials, chunks * rows.width)?;
        let arguments = args![dy, &mut *partials, rows.count as u32, rows.width as u32, CHUNK_ROWS as u32];
        kernel.launch(&self.stream, &grid, &arguments)?;
        self.add_chunks(chunks, rows.width, &mut of_bias)
    }

    fn add_chunks(&self, chunks: usize, count: usize, to: &mut impl ViewMut<f32>) -> Result<()> {
        let to = to.view_mut();
        let Some(partials) = &self.partials else { return Err(Error::shape("no sums were taken")) };
        let arguments = args![partials, to, chunks as u32, count as u32];
        let grid = Grid::covering(count, REDUCE_THREADS);
        Ok(self.kernel("add_chunks")?.launch(&self.stream, &grid, &arguments)?)
    }

    /// Losses of every row of logits, and their gradients, `bf16((softmax − target) weight)`. Of a row's
    /// numbers the first `vocabulary` are logits; gradients of the others are 0. Targets are below it.
    pub fn cross_entropy(
        &self,
        rows: Rows,
        vocabulary: usize,
        targets: &[u32],
        logits: &impl View<f32>,
        deltas: &mut impl ViewMut<bf16>,
        weight: f32,
    ) -> Result<Judged> {
        let (logits, deltas) = (logits.view(), deltas.view_mut());
        rows.check()?;
        require("logits", logits.len(), rows.numbers())?;
        require("deltas", deltas.view().len(), rows.numbers())?;
        if [logits.as_raw(), deltas.view().as_raw()].iter().any(|address| !address.is_multiple_of(16)) {
            return Err(Error::shape("rows of logits must begin at a multiple of 16 bytes"));
        }
        require("targets", targets.len(), rows.count)?;
        if vocabulary == 0 || vocabulary > rows.width {
            return Err(Error::shape(format!(
                "a vocabulary of {vocabulary} in rows of {}: it has from 1 number to all of them",
                rows.width
            )));
        }
        if let Some(beyond) = targets.iter().find(|target| **target as usize >= vocabulary) {
            return Err(Error::shape(format!("a target is {beyond}, and the vocabulary has {vocabulary}")));
        }
        let targets = self.stream.upload(targets)?;
        let mut losses = self.stream.alloc(rows.count)?;
        let mut right = self.stream.alloc(rows.count)?;
        // A peak is two numbers and a place.
        let shared = REDUCE_THREADS * 3 * size_of::<f32>() as u32;
        let grid = Grid::new([rows.count as u32, 1, 1], [REDUCE_THREADS, 1, 1]).shared(shared);
        let sizes = (vocabulary as u32, rows.width as u32);
        let arguments = args![logits, &targets, deltas, &mut losses, &mut right, sizes.0, sizes.1, weight];
        self.kernel("cross_entropy")?.launch(&self.stream, &grid, &arguments)?;
        Ok(Judged { losses, right })
    }

    /// `x ← table[token] + places[place]` of every row; places are `context` rows, and windows begin at
    /// multiples of it.
    pub fn embed(
        &self,
        rows: Rows,
        context: usize,
        tokens: &[u32],
        table: &impl View<f32>,
        places: &impl View<f32>,
        x: &mut impl ViewMut<f32>,
    ) -> Result<()> {
        let [table, places] = [table.view(), places.view()];
        let x = x.view_mut();
        rows.check()?;
        require("x", x.len(), rows.numbers())?;
        require("tokens", tokens.len(), rows.count)?;
        require("places", places.len(), context.saturating_mul(rows.width))?;
        if context == 0 {
            return Err(Error::shape("windows of no token: a context starts at 1"));
        }
        check_tokens(tokens.iter().max(), table.len(), rows.width)?;
        let tokens = self.stream.upload(tokens)?;
        let arguments =
            args![&tokens, table, places, x, rows.count as u32, rows.width as u32, context as u32];
        Ok(self.kernel("embed")?.launch(&self.stream, &rows.warps(), &arguments)?)
    }

    /// Adds every row of `dx` to the row of the table that it came from.
    pub fn embed_back(
        &self,
        rows: Rows,
        sorted: &Sorted,
        dx: &impl View<f32>,
        of_table: &mut impl ViewMut<f32>,
    ) -> Result<()> {
        let dx = dx.view();
        let of_table = of_table.view_mut();
        rows.check()?;
        require("dx", dx.len(), rows.numbers())?;
        require("sorted tokens", sorted.rows, rows.count)?;
        check_tokens(Some(&sorted.highest), of_table.len(), rows.width)?;
        let count = sorted.groups.len();
        // A warp for 32 columns of a group.
        let warps = Rows { count: count * rows.width.div_ceil(32), ..rows };
        if warps.count > 1 << 30 {
            return Err(Error::shape(format!(
                "{count} tokens of {} numbers are too many for a launch",
                rows.width
            )));
        }
        let arguments = args![&sorted.groups, &sorted.order, dx, of_table, count as u32, rows.width as u32];
        Ok(self.kernel("embed_back")?.launch(&self.stream, &warps.warps(), &arguments)?)
    }
}

/// Memory for so many partial sums, in what there is if it is large enough.
fn room<'a>(
    stream: &Stream,
    partials: &'a mut Option<Buffer<f32>>,
    needed: usize,
) -> Result<&'a mut Buffer<f32>> {
    let found = match partials.take() {
        Some(found) if found.len() >= needed => found,
        _ => stream.alloc(needed)?,
    };
    Ok(partials.insert(found))
}

/// Blocks of 32 columns and so many rows, with room for what their warps have of so many sums; and how many
/// chunks of rows there are.
fn columns(rows: Rows, places: usize) -> (Grid, usize) {
    let chunks = rows.count.div_ceil(CHUNK_ROWS);
    let blocks = [rows.width.div_ceil(32) as u32, chunks as u32, 1];
    let shared = places * WARPS * 32 * size_of::<f32>();
    (Grid::new(blocks, [REDUCE_THREADS, 1, 1]).shared(shared as u32), chunks)
}

fn check_tokens(highest: Option<&u32>, table: usize, width: usize) -> Result<()> {
    let rows = table / width;
    match highest {
        Some(&token) if token as usize >= rows => {
            Err(Error::shape(format!("a token is {token}, and the table has {rows} rows of {width}")))
        }
        _ => Ok(()),
    }
}
