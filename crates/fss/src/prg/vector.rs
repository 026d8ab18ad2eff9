//! AES and tree arithmetic on vectors of 128-bit blocks: AES-NI, VAES on 256 bits, VAES on 512 bits.
//!
//! Code that is generic over [`Vector`] is inlined into one function per width, which alone enables the
//! instructions.

use std::arch::x86_64::*;

use zeroize::Zeroize;

/// The eleven round keys of AES-128.
#[derive(Clone)]
pub(crate) struct RoundKeys(pub(crate) [u128; 11]);

impl Drop for RoundKeys {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl RoundKeys {
    /// The key schedule, by the processor's own instruction: no table is read at a secret place.
    ///
    /// Only called where [`Width::detect`] found AES-NI.
    pub(crate) fn expand(key: u128) -> Self {
        debug_assert!(is_x86_feature_detected!("aes"));
        // SAFETY: every caller has asked `Width` first, which requires AES-NI.
        unsafe { expand(key) }
    }
}

#[target_feature(enable = "aes,sse2")]
fn expand(key: u128) -> RoundKeys {
    #[target_feature(enable = "aes,sse2")]
    fn next<const ROUND_CONSTANT: i32>(previous: u128) -> u128 {
        // SAFETY: a u128 and a __m128i are the same 16 bytes.
        let mixed: u128 = unsafe {
            let register: __m128i = std::mem::transmute(previous);
            let assist = _mm_aeskeygenassist_si128::<ROUND_CONSTANT>(register);
            std::mem::transmute(_mm_shuffle_epi32::<0xff>(assist))
        };
        let words = previous ^ previous << 32;
        words ^ words << 64 ^ mixed
    }
    let k0 = key;
    let k1 = next::<0x01>(k0);
    let k2 = next::<0x02>(k1);
    let k3 = next::<0x04>(k2);
    let k4 = next::<0x08>(k3);
    let k5 = next::<0x10>(k4);
    let k6 = next::<0x20>(k5);
    let k7 = next::<0x40>(k6);
    let k8 = next::<0x80>(k7);
    let k9 = next::<0x1b>(k8);
    let k10 = next::<0x36>(k9);
    RoundKeys([k0, k1, k2, k3, k4, k5, k6, k7, k8, k9, k10])
}

/// How many blocks an instruction works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    /// AES-NI: one.
    One,
    /// VAES and AVX2: two.
    Two,
    /// VAES and AVX-512: four.
    Four,
}

impl Width {
    /// The widest of this machine.
    pub(crate) fn detect() -> Option<Self> {
        Self::available().into_iter().next_back()
    }

    /// All of this machine, narrow ones first.
    pub(crate) fn available() -> Vec<Self> {
        let mut widths = Vec::new();
        if is_x86_feature_detected!("aes") && is_x86_feature_detected!("sse4.1") {
            widths.push(Self::One);
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("vaes") {
                widths.push(Self::Two);
                if is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
                {
                    widths.push(Self::Four);
                }
            }
        }
        widths
    }
}

/// Runs a function that is generic over a [`Vector`] with the instructions of a width.
macro_rules! at_width {
    ($width:expr, $function:ident $(::<$($constant:tt),*>)?, ($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?) => {{
        #[target_feature(enable = "aes,sse4.1")]
        unsafe fn one($($argument: $type),*) $(-> $result)? {
            // SAFETY: the caller has checked this function's instructions.
            unsafe { $function::<__m128i $(, $($constant),*)?>($($argument),*) }
        }
        #[target_feature(enable = "aes,vaes,avx2")]
        unsafe fn two($($argument: $type),*) $(-> $result)? {
            // SAFETY: the caller has checked this function's instructions.
            unsafe { $function::<__m256i $(, $($constant),*)?>($($argument),*) }
        }
        #[target_feature(enable = "aes,vaes,avx2,avx512f,avx512bw,avx512vl,avx512dq")]
        unsafe fn four($($argument: $type),*) $(-> $result)? {
            // SAFETY: the caller has checked this function's instructions.
            unsafe { $function::<__m512i $(, $($constant),*)?>($($argument),*) }
        }
        // SAFETY: a `Width` exists only where its instructions were detected.
        unsafe {
            match $width {
                Width::One => one($($argument),*),
                Width::Two => two($($argument),*),
                Width::Four => four($($argument),*),
            }
        }
    }};
}
pub(crate) use at_width;

/// Blocks side by side in a register.
///
/// # Safety
/// Every function needs the instructions of its implementation's [`Width`]; pointers are to `BLOCKS`
/// elements, of any alignment.
pub(crate) trait Vector: Copy {
    /// Blocks in a register.
    const BLOCKS: usize;

    unsafe fn load(blocks: *const u128) -> Self;
    unsafe fn store(self, blocks: *mut u128);
    unsafe fn splat(block: u128) -> Self;
    /// Asks for blocks that will be loaded soon. Any pointer will do.
    #[inline(always)]
    unsafe fn prefetch(blocks: *const u128) {
        // SAFETY: a prefetch does not fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(blocks.cast()) }
    }
    /// One word for each block, in both of its halves.
    unsafe fn spread(words: *const u64) -> Self;
    unsafe fn xor(self, other: Self) -> Self;
    unsafe fn and(self, other: Self) -> Self;
    /// !self & other.
    unsafe fn and_not(self, other: Self) -> Self;
    unsafe fn round(self, key: Self) -> Self;
    unsafe fn last_round(self, key: Self) -> Self;
    unsafe fn swap_halves(self) -> Self;
    /// The lowest bit of each block, in all of its 128.
    unsafe fn lowest_bit_mask(self) -> Self;
    /// The highest bit of each half, in all of its 64.
    unsafe fn highest_bit_mask(self) -> Self;
    /// Each half, shifted left by one.
    unsafe fn double(self) -> Self;

    /// (self & mask) ^ other.
    #[inline(always)]
    unsafe fn and_xor(self, mask: Self, other: Self) -> Self {
        // SAFETY: passed on.
        unsafe { self.and(mask).xor(other) }
    }

    /// !self & (left ^ right).
    #[inline(always)]
    unsafe fn not_and_xor(self, left: Self, right: Self) -> Self {
        // SAFETY: passed on.
        unsafe { self.and_not(left.xor(right)) }
    }
}

impl Vector for __m128i {
    const BLOCKS: usize = 1;

    #[inline(always)]
    unsafe fn load(blocks: *const u128) -> Self {
        // SAFETY: see the trait.
        unsafe { _mm_loadu_si128(blocks.cast()) }
    }
    #[inline(always)]
    unsafe fn store(self, blocks: *mut u128) {
        // SAFETY: see the trait.
        unsafe { _mm_storeu_si128(blocks.cast(), self) }
    }
    #[inline(always)]
    unsafe fn splat(block: u128) -> Self {
        // SAFETY: the same 16 bytes.
        unsafe { std::mem::transmute(block) }
    }
    #[inline(always)]
    unsafe fn spread(words: *const u64) -> Self {
        // SAFETY: see the trait.
        unsafe { _mm_set1_epi64x(words.read_unaligned() as i64) }
    }
    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: see the trait.
        unsafe { _mm_xor_si128(self, other) }
    }
    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        // SAFETY: see the trait.
        unsafe { _mm_and_si128(self, other) }
    }
    #[inline(always)]
    unsafe fn and_not(self, other: Self) -> Self {
        // SAFETY: see the trait.
        unsafe { _mm_andnot_si128(self, other) }
    }
    #[inline(always)]
    unsafe fn round(self, key: Self) -> Self {
        // SAFETY: see the trait.
        unsafe { _mm_aesenc_si128(self, key) }
    }
    #[inline(always)]
    unsafe fn last_round(self, key: Self) -> Self {
        // SAFETY: see the trait.
        unsafe { _mm_aesenclast_si128(self, key) }
    }
    #[inline(always)]
    unsafe fn swap_halves(self) -> Self {
        // SAFETY: see the trait.
        unsafe { _mm_shuffle_epi32::<0x4e>(self) }
    }
    #[inline(always)]
    unsafe fn lowest_bit_mask(self) -> Self {
        // SAFETY: see the trait.
        unsafe {
            let bit = _mm_and_si128(self, _mm_set1_epi64x(1));
            _mm_shuffle_epi32::<0x44>(_mm_sub_epi64(_mm_setzero_si128(), bit))
        }
    }
    #[inline(always)]
    unsafe fn highest_bit_mask(self) -> Self {
        // SAFETY: see the trait.
        unsafe { _mm_sub_epi64(_mm_setzero_si128(), _mm_srli_epi64::<63>(self)) }
    }
    #[inline(always)]
    unsafe fn double(self) -> Self {
        // SAFETY: see the trait.
        unsafe { _mm_add_epi64(self, self) }
    }
}

impl Vector for __m256i {
    const BLOCKS: usize = 2;

    #[inline(always)]
    unsafe fn load(blocks: *const u128) -> Self {
        // SAFETY: see the trait.
        unsafe { _mm256_loadu_si256(blocks.cast()) }
    }
    #[inline(always)]
    unsafe fn store(self, blocks: *mut u128) {
        // SAFETY: see the trait.
        unsafe { _mm256_storeu_si256(blocks.cast(), self) }
    }
    #[inline(always)]
    unsafe fn splat(block: u128) -> Self {
        // SAFETY: the same 16 bytes.
        unsafe { _mm256_broadcastsi128_si256(std::mem::transmute::<u128, __m128i>(block)) }
    }
    #[inline(always)]
    unsafe fn spread(words: *const u64) -> Self {
        // SAFETY: see the trait.
        unsafe {
            let pair = _mm_loadu_si128(words.cast());
            _mm256_permute4x64_epi64::<0b01_01_00_00>(_mm256_castsi128_si256(pair))
        }
    }
    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: see the trait.
        unsafe { _mm256_xor_si256(self, other) }
    }
    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        // SAFETY: see the trait.
        unsafe { _mm256_and_si256(self, other) }
    }
    #[inline(always)]
    unsafe fn and_not(self, other: Self) -> Self {
        // SAFETY: see the trait.
        unsafe { _mm256_andnot_si256(self, other) }
    }
    #[inline(always)]
    unsafe fn round(self, key: Self) -> Self {
        // SAFETY: see the trait.
        unsafe { _mm256_aesenc_epi128(self, key) }
    }
    #[inline(always)]
    unsafe fn last_round(self, key: Self) -> Self {
        // SAFETY: see the trait.
        unsafe { _mm256_aesenclast_epi128(self, key) }
    }
    #[inline(always)]
    unsafe fn swap_halves(self) -> Self {
        // SAFETY: see the trait.
        unsafe { _mm256_shuffle_epi32::<0x4e>(self) }
    }
    #[inline(always)]
    unsafe fn lowest_bit_mask(self) -> Self {
        // SAFETY: see the trait.
        unsafe {
            let bit = _mm256_and_si256(self, _mm256_set1_epi64x(1));
            _mm256_shuffle_epi32::<0x44>(_mm256_sub_epi64(_mm256_setzero_si256(), bit))
        }
    }
    #[inline(always)]
    unsafe fn highest_bit_mask(self) -> Self {
        // SAFETY: see the trait.
        unsafe { _mm256_sub_epi64(_mm256_setzero_si256(), _mm256_srli_epi64::<63>(self)) }
    }
    #[inline(always)]
    unsafe fn double(self) -> Self {
        // SAFETY: see the trait.
        unsafe { _mm256_add_epi64(self, self) }
    }
}

impl Vector for __m512i {
    const BLOCKS: usize = 4;

    #[inline(always)]
    unsafe fn load(blocks: *const u128) -> Self {
        // SAFETY: see the trait.
        unsafe { _mm512_loadu_si512(blocks.cast()) }
    }
    #[inline(always)]
    unsafe fn store(self, blocks: *mut u128) {
        // SAFETY: see the trait.
        unsafe { _mm512_storeu_si512(blocks.cast(), self) }
    }
    #[inline(always)]
    unsafe fn splat(block: u128) -> Self {
        // SAFETY: the same 16 bytes.
        unsafe { _mm512_broadcast_i32x4(std::mem::transmute::<u128, __m128i>(block)) }
    }
    #[inline(always)]
    unsafe fn spread(words: *const u64) -> Self {
        // SAFETY: see the trait.
        unsafe {
            let four = _mm512_castsi256_si512(_mm256_loadu_si256(words.cast()));
            _mm512_permutexvar_epi64(_mm512_set_epi64(3, 3, 2, 2, 1, 1, 0, 0), four)
        }
    }
    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: see the trait.
        unsafe { _mm512_xor_si512(self, other) }
    }
    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        // SAFETY: see the trait.
        unsafe { _mm512_and_si512(self, other) }
    }
    #[inline(always)]
    unsafe fn and_not(self, other: Self) -> Self {
        // SAFETY: see the trait.
        unsafe { _mm512_andnot_si512(self, other) }
    }
    #[inline(always)]
    unsafe fn round(self, key: Self) -> Self {
        // SAFETY: see the trait.
        unsafe { _mm512_aesenc_epi128(self, key) }
    }
    #[inline(always)]
    unsafe fn last_round(self, key: Self) -> Self {
        // SAFETY: see the trait.
        unsafe { _mm512_aesenclast_epi128(self, key) }
    }
    #[inline(always)]
    unsafe fn swap_halves(self) -> Self {
        // SAFETY: see the trait.
        unsafe { _mm512_shuffle_epi32::<0x4e>(self) }
    }
    #[inline(always)]
    unsafe fn lowest_bit_mask(self) -> Self {
        // SAFETY: see the trait.
        unsafe {
            let bit = _mm512_and_si512(self, _mm512_set1_epi64(1));
            _mm512_shuffle_epi32::<0x44>(_mm512_sub_epi64(_mm512_setzero_si512(), bit))
        }
    }
    #[inline(always)]
    unsafe fn highest_bit_mask(self) -> Self {
        // SAFETY: see the trait.
        unsafe { _mm512_srai_epi64::<63>(self) }
    }
    #[inline(always)]
    unsafe fn double(self) -> Self {
        // SAFETY: see the trait.
        unsafe { _mm512_add_epi64(self, self) }
    }
    #[inline(always)]
    unsafe fn and_xor(self, mask: Self, other: Self) -> Self {
        // SAFETY: see the trait. The table of (a & b) ^ c.
        unsafe { _mm512_ternarylogic_epi64::<0x6a>(self, mask, other) }
    }
    #[inline(always)]
    unsafe fn not_and_xor(self, left: Self, right: Self) -> Self {
        // SAFETY: see the trait. The table of !a & (b ^ c).
        unsafe { _mm512_ternarylogic_epi64::<0x06>(self, left, right) }
    }
}

/// σ on every block.
///
/// # Safety
/// As [`Vector`].
#[inline(always)]
pub(crate) unsafe fn sigma<V: Vector>(blocks: V, upper_halves: V) -> V {
    // SAFETY: passed on.
    unsafe { blocks.and_xor(upper_halves, blocks.swap_halves()) }
}

/// Every round key, in all blocks of a register.
///
/// # Safety
/// As [`Vector`].
#[inline(always)]
pub(crate) unsafe fn spread_keys<V: Vector>(keys: &RoundKeys) -> [V; 11] {
    // SAFETY: passed on.
    unsafe {
        let mut spread = [V::splat(0); 11];
        for (spread, key) in spread.iter_mut().zip(&keys.0) {
            *spread = V::splat(*key);
        }
        spread
    }
}

/// AES on `N` registers at once.
///
/// # Safety
/// As [`Vector`].
#[inline(always)]
pub(crate) unsafe fn aes<V: Vector, const N: usize>(mut state: [V; N], keys: &[V; 11]) -> [V; N] {
    // SAFETY: passed on.
    unsafe {
        for lane in &mut state {
            *lane = lane.xor(keys[0]);
        }
        for key in &keys[1..10] {
            for lane in &mut state {
                *lane = lane.round(*key);
            }
        }
        for lane in &mut state {
            *lane = lane.last_round(keys[10]);
        }
    }
    state
}

/// x ← AES(x), with feed-forward AES(x) ⊕ x.
pub(crate) fn encrypt<const FEED_FORWARD: bool>(width: Width, keys: &RoundKeys, blocks: &mut [u128]) {
    if FEED_FORWARD {
        at_width!(width, encrypt_blocks::<true>, (keys: &RoundKeys, blocks: &mut [u128]));
    } else {
        at_width!(width, encrypt_blocks::<false>, (keys: &RoundKeys, blocks: &mut [u128]));
    }
}

/// # Safety
/// As [`Vector`].
#[inline(always)]
unsafe fn encrypt_blocks<V: Vector, const FEED_FORWARD: bool>(round_keys: &RoundKeys, blocks: &mut [u128]) {
    const LANES: usize = 8;
    // SAFETY: chunks are as long as what is loaded from and stored to them.
    unsafe {
        let keys = spread_keys::<V>(round_keys);
        let step = LANES * V::BLOCKS;
        let mut padded = [0u128; 32];
        for chunk in blocks.chunks_mut(step) {
            let full = chunk.len() == step;
            let at = if full {
                chunk.as_mut_ptr()
            } else {
                padded[..chunk.len()].copy_from_slice(chunk);
                padded.as_mut_ptr()
            };
            let mut input = [V::splat(0); LANES];
            for (lane, input) in input.iter_mut().enumerate() {
                *input = V::load(at.add(lane * V::BLOCKS));
            }
            let output = aes(input, &keys);
            for lane in 0..LANES {
                let block = if FEED_FORWARD { output[lane].xor(input[lane]) } else { output[lane] };
                block.store(at.add(lane * V::BLOCKS));
            }
            if !full {
                chunk.copy_from_slice(&padded[..chunk.len()]);
            }
        }
    }
}
