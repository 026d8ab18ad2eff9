// Products of matrices modulo 2^(8 LIMBS) on integer tensor cores.
//
// A word is Σ_i d_i 2^(8 i) with digits -128 ≤ d_i < 128, so that
//
//   Σ_k a_k b_k  =  Σ_s 2^(8 s) Σ_(i + j = s) Σ_k a_k,i b_k,j        modulo 2^(8 LIMBS), s < LIMBS
//
// and every inner sum is exact in 32 bits while LIMBS inner 2^14 < 2^31. LIMBS (LIMBS + 1) / 2 products of digits for one of words:
// 28 for rings of up to 56 bits. Bound by the tensor cores where the matrices are large: 990 T products of digits a second on an
// H200, so 35 T products of words of 50 bits.
//
// Digits lie in planes, [limb][row][inner], inner filled up with zeros to a multiple of LIMB_DEPTH; of the right factor rows are
// columns.

#include "gw/gw.cuh"
#include "shared.cuh"

// Fragments of 8 columns that a warp has: its sums and its left digits must fit its registers.
constexpr u32 FRAGMENTS = LIMBS == 8 ? 2 : 4;
// Warps below each other, of 16 rows each.
constexpr u32 WARP_ROWS = LIMB_TILE / 16;

// Digits of four neighbouring words: limb i of word w is byte w of result i. Adding 128 to every byte, with carries, and taking it
// away again, without, leaves what a byte of -128 .. 127 needs.
GW_DEVICE void split(const u64 (&words)[4], u32 (&digits)[LIMBS]) {
    constexpr u64 HALVES = 0x8080808080808080ull;
    GW_UNROLL
    for (u32 i = 0; i < LIMBS; ++i) digits[i] = 0;
    GW_UNROLL
    for (u32 w = 0; w < 4; ++w) {
        const u64 balanced = (words[w] + HALVES) ^ HALVES;
        GW_UNROLL
        for (u32 i = 0; i < LIMBS; ++i) digits[i] |= (u32)(balanced >> (8 * i) & 0xFF) << (8 * w);
    }
}

// Planes of `rows` x `inner` words, which lie row by row, or inner index by inner index if `by_inner`. A thread splits four
// neighbours of a row; matrices of a batch in y.
GW_KERNEL_BOUNDED(split_words, 256, 1)(const u64* words, u32 rows, u32 inner, u32 padded, u32 by_inner, u32* planes) {
    const u64 at = gw::global_thread(), groups = padded / 4;
    if (at >= rows * groups) return;
    // Neighbouring threads read neighbouring words.
    const u32 row = (u32)(by_inner ? at % rows : at / groups), group = (u32)(by_inner ? at / rows : at % groups);
    words += (u64)gw::block_y() * rows * inner;
    planes += (u64)gw::block_y() * LIMBS * rows * groups;
    u64 four[4];
    GW_UNROLL
    for (u32 i = 0; i < 4; ++i) {
        const u32 k = 4 * group + i;
        four[i] = k < inner ? words[by_inner ? (u64)k * rows + row : (u64)row * inner + k] : 0;
    }
    u32 digits[LIMBS];
    split(four, digits);
    GW_UNROLL
    for (u32 i = 0; i < LIMBS; ++i) planes[((u64)i * rows + row) * groups + group] = digits[i];
}

// Rows of a factor, of which ROWS are in a tile that THREADS threads copy, LIMB_DEPTH digits of each.
template <u32 ROWS, u32 THREADS>
struct Planes {
    // A row of a tile in shared memory: its digits, and as many bytes more that eight rows of a fragment lie in all banks.
    static constexpr u32 STRIDE = LIMB_DEPTH + 16;
    static constexpr u32 TILE_BYTES = LIMBS * ROWS * STRIDE;

    const u8* digits;
    u32 rows, padded;

    // Queues copies of ROWS rows from `first` on. Rows past the last repeat it: what is computed from them is not stored.
    GW_DEVICE void load(u8* tile, u32 first, u32 start) const {
        constexpr u32 PIECES = LIMB_DEPTH / 16;
        GW_UNROLL_BY(1)
        for (u32 i = gw::thread_x(); i < LIMBS * ROWS * PIECES; i += THREADS) {
            const u32 piece = i % PIECES, r = i / PIECES % ROWS, limb = i / PIECES / ROWS;
            const u32 row = gw::lesser(first + r, rows - 1);
            const u8* from = digits + ((u64)limb * rows + row) * padded + start + 16 * piece;
            gw::copy_async<16>(tile + (limb * ROWS + r) * STRIDE + 16 * piece, from);
        }
    }

    // Four digits of a row of a tile.
    static GW_DEVICE u32 four(const u8* tile, u32 limb, u32 row, u32 place) {
        return *reinterpret_cast<const u32*>(tile + (limb * ROWS + row) * STRIDE + place);
    }
};

// sums[s][b][r][c] <- ((sums[s][b][r][c], or 0) + Σ_k left[b][r][k] right[b][c][k]) & mask, for the `each` inner indices k of
// slice s.
//
// A block has a tile of LIMB_TILE rows and as many columns as ACROSS warps side by side have; each warp 16 rows and 8 FRAGMENTS
// columns, in LIMBS fragments for every 16 x 8 of them. Tiles of digits are copied one step ahead. Rows in y, batch and slices
// in z.
template <u32 ACROSS>
GW_DEVICE void multiply_tile(
    const u8* left, const u8* right, u32 rows, u32 columns, u32 padded, u32 each, u64 mask, u32 accumulate, u64* sums) {
    constexpr u32 THREADS = 32 * WARP_ROWS * ACROSS, COLUMNS = 8 * FRAGMENTS * ACROSS;
    typedef Planes<LIMB_TILE, THREADS> Left;
    typedef Planes<COLUMNS, THREADS> Right;
    constexpr u32 LEFT_BYTES = Left::TILE_BYTES, STAGE_BYTES = LEFT_BYTES + Right::TILE_BYTES;
    u8* const tiles = gw::shared<u8>();
    const u32 first_row = gw::block_y() * LIMB_TILE, first_column = gw::block_x() * COLUMNS;
    const u32 slices = (padded + each - 1) / each, slice = gw::block_z() % slices, batch = gw::block_z() / slices;
    const u32 start = slice * each, end = gw::lesser(start + each, padded);
    const Left a{left + (u64)batch * LIMBS * rows * padded, rows, padded};
    const Right b{right + (u64)batch * LIMBS * columns * padded, columns, padded};
    const u32 warp_row = gw::warp() % WARP_ROWS * 16, warp_column = gw::warp() / WARP_ROWS * 8 * FRAGMENTS;
    const u32 g = gw::lane() / 4, t = gw::lane() % 4;
    i32 sum[FRAGMENTS][LIMBS][4] = {};
    a.load(tiles, first_row, start);
    b.load(tiles + LEFT_BYTES, first_column, start);
    gw::copy_async_commit();
    u32 stage = 0;
    for (u32 k = start; k < end; k += LIMB_DEPTH, stage ^= 1) {
        u8* const next = tiles + (stage ^ 1) * STAGE_BYTES;
        if (k + LIMB_DEPTH < end) {
            a.load(next, first_row, k + LIMB_DEPTH);
            b.load(next + LEFT_BYTES, first_column, k + LIMB_DEPTH);
        }
        gw::copy_async_commit();
        gw::copy_async_wait<1>();
        gw::sync_threads();
        const u8* const left_tile = tiles + stage * STAGE_BYTES;
        const u8* const right_tile = left_tile + LEFT_BYTES;
        // Instructions take 32 digits.
        GW_UNROLL
        for (u32 place = 4 * t; place < LIMB_DEPTH; place += 32) {
            u32 x[LIMBS][4];
            GW_UNROLL
            for (u32 i = 0; i < LIMBS; ++i) {
                x[i][0] = Left::four(left_tile, i, warp_row + g, place);
                x[i][1] = Left::four(left_tile, i, warp_row + g + 8, place);
                x[i][2] = Left::four(left_tile, i, warp_row + g, place + 16);
                x[i][3] = Left::four(left_tile, i, warp_row + g + 8, place + 16);
            }
            GW_UNROLL
            for (u32 n = 0; n < FRAGMENTS; ++n) {
                GW_UNROLL
                for (u32 j = 0; j < LIMBS; ++j) {
                    const u32 y[2] = {Right::four(right_tile, j, warp_column + 8 * n + g, place),
                                      Right::four(right_tile, j, warp_column + 8 * n + g, place + 16)};
                    GW_UNROLL
                    for (u32 i = 0; i + j < LIMBS; ++i) {
                        gw::mma(gw::S8{}, sum[n][i + j], x[i], y, sum[n][i + j]);
                    }
                }
            }
        }
        gw::sync_threads();
    }
    GW_UNROLL
    for (u32 n = 0; n < FRAGMENTS; ++n) {
        GW_UNROLL
        for (u32 d = 0; d < 4; ++d) {
            const u32 row = first_row + warp_row + g + 8 * (d / 2);
            const u32 column = first_column + warp_column + 8 * n + 2 * t + d % 2;
            if (row >= rows || column >= columns) continue;
            u64 word = 0;
            GW_UNROLL
            for (u32 s = 0; s < LIMBS; ++s) word += (u64)(i64)sum[n][s][d] << (8 * s);
            u64* const to = sums + ((u64)(slice * (gw::blocks_z() / slices) + batch) * rows + row) * columns + column;
            *to = ((accumulate ? *to : 0) + word) & mask;
        }
    }
}

// Two warps side by side: fewest reads of digits, for products that fill the device.
GW_KERNEL_BOUNDED(multiply_limbs, 2 * LIMB_THREADS, 1)(
    const u8* left, const u8* right, u32 rows, u32 columns, u32 padded, u32 each, u64 mask, u32 accumulate, u64* sums) {
    multiply_tile<2>(left, right, rows, columns, padded, each, mask, accumulate, sums);
}

// One: a block takes half of a multiprocessor's registers and of its shared memory, so that the kernels of other streams find room
// beside it.
GW_KERNEL_BOUNDED(multiply_narrow, LIMB_THREADS, 2)(
    const u8* left, const u8* right, u32 rows, u32 columns, u32 padded, u32 each, u64 mask, u32 accumulate, u64* sums) {
    multiply_tile<1>(left, right, rows, columns, padded, each, mask, accumulate, sums);
}
