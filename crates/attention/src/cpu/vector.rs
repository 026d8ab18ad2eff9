//! The inner loops, once for each width of vector registers.

use std::ops::Range;

use super::{Order, TILE, Tiles};

/// Query rows whose sums are in registers at a time.
pub(super) const GROUP: usize = 6;

/// What a row looks at.
#[derive(Debug, Clone)]
pub(super) struct Look {
    /// The keys that it sees.
    pub(super) keys: Range<usize>,
    /// The logit of a key without a value; minus infinity for none.
    pub(super) sink: f32,
    /// Scores become `cap tanh(score / cap)`.
    pub(super) soft_cap: Option<f32>,
}

/// Vector instructions that this code is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Instructions {
    /// 16 numbers at a time.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// 8 numbers at a time, with fused multiply-add.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// What the compiler makes of plain loops.
    Portable,
}

impl Instructions {
    /// The widest that this machine has.
    pub(super) fn detect() -> Self {
        Self::all_here().first().copied().unwrap_or(Self::Portable)
    }

    /// All that this machine has, the widest first.
    pub(super) fn all_here() -> Vec<Self> {
        let mut found = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                found.push(Self::Avx512);
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                found.push(Self::Avx2);
            }
        }
        found.push(Self::Portable);
        found
    }

    /// Attends rows of `queries`, of which row `i` has the look `looks[i]`. `out` starts as zeros.
    ///
    /// `queries` and `out` have whole groups of rows; those past `looks` are padding.
    pub(super) fn attend(
        self,
        queries: &[f32],
        tiles: &Tiles<'_>,
        looks: &[Look],
        out: &mut [f32],
        lse: &mut [f32],
    ) {
        match self {
            // SAFETY: this value is made only where the machine has the instructions.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => unsafe { attend_avx512(queries, tiles, looks, out, lse) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { attend_avx2(queries, tiles, looks, out, lse) },
            Self::Portable => attend::<Portable, 2>(queries, tiles, looks, out, lse),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn attend_avx512(queries: &[f32], tiles: &Tiles<'_>, looks: &[Look], out: &mut [f32], lse: &mut [f32]) {
    attend::<Avx512, 4>(queries, tiles, looks, out, lse);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn attend_avx2(queries: &[f32], tiles: &Tiles<'_>, looks: &[Look], out: &mut [f32], lse: &mut [f32]) {
    attend::<Avx2, 2>(queries, tiles, looks, out, lse);
}

/// `COLUMNS` registers of each of the `GROUP` rows hold sums: all that the machine has, less those for
/// operands.
#[inline(always)]
fn attend<V: Vector, const COLUMNS: usize>(
    queries: &[f32],
    tiles: &Tiles<'_>,
    looks: &[Look],
    out: &mut [f32],
    lse: &mut [f32],
) {
    let (dim, value_dim) = (tiles.width, tiles.value_width);
    let mut scores = vec![0.0f32; queries.len() / dim * TILE];
    let mut state: Vec<Running> = looks.iter().map(Running::of).collect();
    let first = looks.iter().map(|look| look.keys.start).min().unwrap_or(0) / TILE;
    let end = looks.iter().map(|look| look.keys.end).max().unwrap_or(0).div_ceil(TILE);
    let mut scratch = tiles.scratch();
    for tile in first..end {
        let (keys, values) = tiles.get(tile, &mut scratch);
        match tiles.of_keys {
            Order::Transposed => {
                scores.fill(0.0);
                add_product::<V, COLUMNS>(queries, dim, keys, TILE, &mut scores);
            }
            Order::AsTheyAre => {
                let rows = queries.chunks_exact(dim).zip(scores.chunks_exact_mut(TILE)).take(looks.len());
                rows.for_each(|(query, scores)| dots::<V>(query, keys, scores));
            }
        }
        let within = |key: usize| key.saturating_sub(tile * TILE).min(TILE);
        let visible = |look: &Look| within(look.keys.start)..within(look.keys.end);
        let rows = scores.chunks_exact_mut(TILE).zip(out.chunks_exact_mut(value_dim));
        for ((scores, out), (state, look)) in rows.zip(state.iter_mut().zip(looks)) {
            if let Some(cap) = look.soft_cap {
                scores.iter_mut().for_each(|score| *score = cap * (*score / cap).tanh());
            }
            state.take::<V>(scores, visible(look), out);
        }
        let partly = looks.iter().any(|look| visible(look) != (0..TILE));
        if partly && !all_finite::<V>(values) {
            // Zero times what is not finite is not zero: keys that a row does not see must stay out of its
            // sums.
            let rows = scores.chunks_exact(TILE).zip(out.chunks_exact_mut(value_dim));
            for ((weights, out), look) in rows.zip(looks) {
                add_visible(weights, values, visible(look), out);
            }
        } else {
            add_product::<V, COLUMNS>(&scores, TILE, values, value_dim, out);
        }
    }
    for ((state, out), lse) in state.iter().zip(out.chunks_exact_mut(value_dim)).zip(lse) {
        if state.top > f32::NEG_INFINITY {
            out.iter_mut().for_each(|o| *o /= state.sum);
        }
        // A row that saw no key: the logarithm of no weight at all.
        *lse = state.top + state.sum.ln();
    }
}

/// The softmax of a row so far.
struct Running {
    top: f32,
    sum: f32,
}

impl Running {
    /// Before the first key: the weight of the sink is all there is.
    fn of(look: &Look) -> Self {
        Self { top: look.sink, sum: if look.sink == f32::NEG_INFINITY { 0.0 } else { 1.0 } }
    }

    /// Turns the `visible` scores of a tile into weights and the others into zeros; brings what the row has
    /// added up so far to the new maximum.
    #[inline(always)]
    fn take<V: Vector>(&mut self, scores: &mut [f32], visible: Range<usize>, out: &mut [f32]) {
        if visible.is_empty() {
            scores.fill(0.0);
            return;
        }
        scores[..visible.start].fill(f32::NEG_INFINITY);
        scores[visible.end..].fill(f32::NEG_INFINITY);
        let top = reduce::<V>(scores, V::max).highest().max(self.top);
        if top > self.top {
            let correction = (self.top - top).exp();
            self.sum *= correction;
            for part in out.chunks_exact_mut(V::LANES) {
                V::load(part).mul(V::splat(correction)).store(part);
            }
            self.top = top;
        }
        // Below every finite score is a row of minus infinities: no weight, as the limit has it.
        let shift = V::splat(if top == f32::NEG_INFINITY { 0.0 } else { top });
        for part in scores.chunks_exact_mut(V::LANES) {
            exp(V::load(part).sub(shift)).store(part);
        }
        self.sum += reduce::<V>(scores, V::add).sum();
    }
}

/// Whether nothing here is infinite or not a number: whatever is times zero is not zero.
#[inline(always)]
fn all_finite<V: Vector>(values: &[f32]) -> bool {
    let zero = V::splat(0.0);
    values.chunks_exact(V::LANES).fold(zero, |sum, part| V::load(part).mul_add(zero, sum)).sum() == 0.0
}

/// `out += weights values` over the visible keys alone.
fn add_visible(weights: &[f32], values: &[f32], visible: Range<usize>, out: &mut [f32]) {
    let dim = out.len();
    for key in visible {
        for (out, value) in out.iter_mut().zip(&values[key * dim..][..dim]) {
            *out = weights[key].mul_add(*value, *out);
        }
    }
}

/// All vectors of a run, one operation after the other.
#[inline(always)]
fn reduce<V: Vector>(run: &[f32], operation: impl Fn(V, V) -> V) -> V {
    let mut parts = run.chunks_exact(V::LANES);
    let first = parts.next().map_or(V::splat(0.0), V::load);
    parts.fold(first, |sum, part| operation(sum, V::load(part)))
}

/// The product of one row with each of the keys.
#[inline(always)]
fn dots<V: Vector>(query: &[f32], keys: &[f32], scores: &mut [f32]) {
    for (key, score) in keys.chunks_exact(query.len()).zip(scores) {
        let parts = query.chunks_exact(V::LANES).zip(key.chunks_exact(V::LANES));
        let sum = parts.fold(V::splat(0.0), |sum, (q, k)| V::load(q).mul_add(V::load(k), sum));
        *score = sum.sum();
    }
}

/// `c[row][n] += sum over i of a[row][i] b[i][n]`: rows of `depth` numbers by rows of `width`.
#[inline(always)]
fn add_product<V: Vector, const COLUMNS: usize>(
    a: &[f32],
    depth: usize,
    b: &[f32],
    width: usize,
    c: &mut [f32],
) {
    let step = COLUMNS * V::LANES;
    assert!(width.is_multiple_of(V::LANES) && b.len() == depth * width && a.len() / depth == c.len() / width);
    let whole = width / step * step;
    for (a, c) in a.chunks_exact(GROUP * depth).zip(c.chunks_exact_mut(GROUP * width)) {
        for from in (0..whole).step_by(step) {
            add_columns::<V, COLUMNS>(a, depth, b, width, from, c);
        }
        for from in (whole..width).step_by(V::LANES) {
            add_columns::<V, 1>(a, depth, b, width, from, c);
        }
    }
}

/// The same for `GROUP` rows, and `COLUMNS` vectors of the width from `from` on.
#[inline(always)]
fn add_columns<V: Vector, const COLUMNS: usize>(
    a: &[f32],
    depth: usize,
    b: &[f32],
    width: usize,
    from: usize,
    c: &mut [f32],
) {
    assert!(a.len() == GROUP * depth && b.len() == depth * width);
    let mut sums = [[V::splat(0.0); COLUMNS]; GROUP];
    for (i, b) in b.chunks_exact(width).enumerate() {
        let b = &b[from..from + COLUMNS * V::LANES];
        let columns: [V; COLUMNS] = std::array::from_fn(|j| V::load(&b[j * V::LANES..]));
        for (row, sums) in sums.iter_mut().enumerate() {
            // SAFETY: `a` has `GROUP` rows of `depth`, and `i` is below `depth` by the length of `b`.
            let factor = V::splat(unsafe { *a.get_unchecked(row * depth + i) });
            for (sum, column) in sums.iter_mut().zip(columns) {
                *sum = factor.mul_add(column, *sum);
            }
        }
    }
    for (row, sums) in sums.iter().enumerate() {
        for (j, sum) in sums.iter().enumerate() {
            let c = &mut c[row * width + from + j * V::LANES..][..V::LANES];
            V::load(c).add(*sum).store(c);
        }
    }
}

/// Below this, `exp` is less than the least normal number.
const LEAST: f32 = -87.3;

/// `exp(x)` for `x <= 0`, to about one part in ten million; 0 below `LEAST`, not-a-number for itself.
///
/// `x = n ln 2 + r` with `n` whole and `|r| <= ln 2 / 2`; `ln 2` in two parts, so that `r` is exact; the
/// polynomial is Taylor's, whose next term is below half a unit in the last place.
#[inline(always)]
fn exp<V: Vector>(x: V) -> V {
    const TERMS: [f32; 6] = [1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];
    let n = x.mul(V::splat(std::f32::consts::LOG2_E)).round();
    let r = n.mul_add(V::splat(-0.693_359_4), x);
    let r = n.mul_add(V::splat(2.121_944_4e-4), r);
    let sum = TERMS.iter().fold(V::splat(1.0 / 720.0), |sum, term| sum.mul_add(r, V::splat(*term)));
    sum.times_two_to(n).zero_where_below(x, LEAST)
}

/// A vector register of f32.
trait Vector: Copy {
    const LANES: usize;
    fn splat(x: f32) -> Self;
    /// The first `LANES` of a run.
    fn load(from: &[f32]) -> Self;
    fn store(self, to: &mut [f32]);
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// `self * factor + addend`.
    fn mul_add(self, factor: Self, addend: Self) -> Self;
    fn max(self, other: Self) -> Self;
    /// To the nearest whole number.
    fn round(self) -> Self;
    /// `self * 2^n` for whole `n` from -126 to 0; anything else gives anything.
    fn times_two_to(self, n: Self) -> Self;
    /// Zero in the lanes where `x < limit`.
    fn zero_where_below(self, x: Self, limit: f32) -> Self;

    /// All lanes together.
    #[inline(always)]
    fn sum(self) -> f32 {
        self.fold(|a, b| a + b)
    }

    /// The largest of the lanes that are numbers.
    #[inline(always)]
    fn highest(self) -> f32 {
        self.fold(f32::max)
    }

    /// Halves onto each other until one lane is left: no lane waits for more than four others.
    #[inline(always)]
    fn fold(self, operation: impl Fn(f32, f32) -> f32) -> f32 {
        let mut lanes = [0.0; 16];
        self.store(&mut lanes);
        let mut half = Self::LANES / 2;
        while half > 0 {
            for i in 0..half {
                lanes[i] = operation(lanes[i], lanes[i + half]);
            }
            half /= 2;
        }
        lanes[0]
    }
}

/// Eight numbers that the compiler puts into whatever registers there are.
#[derive(Clone, Copy)]
struct Portable([f32; 8]);

impl Portable {
    #[inline(always)]
    fn zip(self, other: Self, operation: impl Fn(f32, f32) -> f32) -> Self {
        Self(std::array::from_fn(|i| operation(self.0[i], other.0[i])))
    }
}

impl Vector for Portable {
    const LANES: usize = 8;

    #[inline(always)]
    fn splat(x: f32) -> Self {
        Self([x; 8])
    }

    #[inline(always)]
    fn load(from: &[f32]) -> Self {
        let from = &from[..8];
        Self(std::array::from_fn(|i| from[i]))
    }

    #[inline(always)]
    fn store(self, to: &mut [f32]) {
        to[..8].copy_from_slice(&self.0);
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        self.zip(other, |a, b| a - b)
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self.zip(other, |a, b| a * b)
    }

    /// In two steps: a fused one is a call of a library where the machine has no instruction for it.
    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        self.mul(factor).add(addend)
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        self.zip(other, f32::max)
    }

    /// By a number so large that its last place is one.
    #[inline(always)]
    fn round(self) -> Self {
        const SHIFT: f32 = 12_582_912.0;
        Self(self.0.map(|x| (x + SHIFT) - SHIFT))
    }

    #[inline(always)]
    fn times_two_to(self, n: Self) -> Self {
        self.zip(n, |x, n| x * f32::from_bits(((n as i32 + 127) << 23) as u32))
    }

    #[inline(always)]
    fn zero_where_below(self, x: Self, limit: f32) -> Self {
        self.zip(x, |value, x| if x < limit { 0.0 } else { value })
    }
}

#[cfg(target_arch = "x86_64")]
use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::Vector;

    /// Registers of [`super::Instructions::Avx512`].
    #[derive(Clone, Copy)]
    pub(super) struct Avx512(__m512);

    /// Registers of [`super::Instructions::Avx2`].
    #[derive(Clone, Copy)]
    pub(super) struct Avx2(__m256);

    /// The methods that are one instruction each, and those around memory.
    macro_rules! vector {
        ($name:ident, $lanes:literal, $splat:ident, $load:ident, $store:ident, $add:ident, $sub:ident, $mul:ident,
         $mul_add:ident, $max:ident, $($rest:item)*) => {
            // SAFETY, of every block here: values of this type are made only in functions compiled for its
            // instructions, which run only where `Instructions::all_here` found them.
            #[expect(clippy::undocumented_unsafe_blocks, reason = "one reason for all, above")]
            impl Vector for $name {
                const LANES: usize = $lanes;

                #[inline(always)]
                fn splat(x: f32) -> Self {
                    Self(unsafe { $splat(x) })
                }

                #[inline(always)]
                fn load(from: &[f32]) -> Self {
                    let from = &from[..$lanes];
                    Self(unsafe { $load(from.as_ptr()) })
                }

                #[inline(always)]
                fn store(self, to: &mut [f32]) {
                    let to = &mut to[..$lanes];
                    unsafe { $store(to.as_mut_ptr(), self.0) }
                }

                #[inline(always)]
                fn add(self, other: Self) -> Self {
                    Self(unsafe { $add(self.0, other.0) })
                }

                #[inline(always)]
                fn sub(self, other: Self) -> Self {
                    Self(unsafe { $sub(self.0, other.0) })
                }

                #[inline(always)]
                fn mul(self, other: Self) -> Self {
                    Self(unsafe { $mul(self.0, other.0) })
                }

                #[inline(always)]
                fn mul_add(self, factor: Self, addend: Self) -> Self {
                    Self(unsafe { $mul_add(self.0, factor.0, addend.0) })
                }

                #[inline(always)]
                fn max(self, other: Self) -> Self {
                    Self(unsafe { $max(self.0, other.0) })
                }

                $($rest)*
            }
        };
    }

    vector! {
        Avx512, 16, _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_add_ps, _mm512_sub_ps, _mm512_mul_ps,
        _mm512_fmadd_ps, _mm512_max_ps,

        #[inline(always)]
        fn round(self) -> Self {
            Self(unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0) })
        }

        #[inline(always)]
        fn times_two_to(self, n: Self) -> Self {
            Self(unsafe { _mm512_scalef_ps(self.0, n.0) })
        }

        #[inline(always)]
        fn zero_where_below(self, x: Self, limit: f32) -> Self {
            Self(unsafe {
                let below = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(x.0, _mm512_set1_ps(limit));
                _mm512_mask_mov_ps(self.0, below, _mm512_setzero_ps())
            })
        }
    }

    vector! {
        Avx2, 8, _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_add_ps, _mm256_sub_ps, _mm256_mul_ps,
        _mm256_fmadd_ps, _mm256_max_ps,

        #[inline(always)]
        fn round(self) -> Self {
            Self(unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0) })
        }

        #[inline(always)]
        fn times_two_to(self, n: Self) -> Self {
            Self(unsafe {
                let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n.0), _mm256_set1_epi32(127));
                _mm256_mul_ps(self.0, _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent)))
            })
        }

        #[inline(always)]
        fn zero_where_below(self, x: Self, limit: f32) -> Self {
            Self(unsafe {
                let below = _mm256_cmp_ps::<_CMP_LT_OQ>(x.0, _mm256_set1_ps(limit));
                _mm256_andnot_ps(below, self.0)
            })
        }
    }
}
