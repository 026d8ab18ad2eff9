#include "gw/gw.cuh"

// Loads and stores of 8 x 8 tiles of 16-bit elements, COUNT at a time, as stored and transposed.
//
// Block 2 i + t, one warp, loads COUNT = 2^i of four tiles, transposed if t = 1, and writes
//   fragments[block][j][lane]   register j of each lane; 0 for the registers past COUNT,
//   same[block]                 the tiles, stored from those registers in the way they were loaded,
//   crossed[block]              the tiles, stored in the other way.
// Tiles are row-major in device memory. In shared memory each row lies by itself, PITCH bytes from the next, in an order
// that is not the tile's, so that only the addresses that the lanes give say where it is.
#define TILES 4
#define PITCH 48
#define TILE_BYTES (8 * PITCH)
#define TILE_WORDS 32
#define ROW_WORDS 4

GW_DEVICE u8* row_of(u8* tiles, u32 tile, u32 row) { return tiles + tile * TILE_BYTES + (5 * row + 3) % 8 * PITCH; }

// The row that this lane names: of the tiles in order, eight lanes each. Lanes past the last tile name rows that are
// there but are not moved.
GW_DEVICE u8* row_of_lane(u8* tiles) { return row_of(tiles, gw::lane() / 8, gw::lane() % 8); }

GW_DEVICE void spread(u8* tiles, const u32* from) {
    for (u32 word = gw::lane(); word < TILES * TILE_WORDS; word += 32) {
        const u32 row = word % TILE_WORDS / ROW_WORDS;
        u32* to = reinterpret_cast<u32*>(row_of(tiles, word / TILE_WORDS, row));
        to[word % ROW_WORDS] = from ? from[word] : 0;
    }
    gw::sync_warp();
}

// Each lane reads the words that it writes in `spread`, so that one may follow the other.
GW_DEVICE void collect(u32* to, u8* tiles) {
    gw::sync_warp();
    for (u32 word = gw::lane(); word < TILES * TILE_WORDS; word += 32) {
        const u32 row = word % TILE_WORDS / ROW_WORDS;
        to[word] = reinterpret_cast<const u32*>(row_of(tiles, word / TILE_WORDS, row))[word % ROW_WORDS];
    }
}

template <u32 COUNT, gw::Transpose LOADED>
GW_DEVICE void round_trip(const u32* from, u32* fragments, u32* same, u32* crossed) {
    constexpr gw::Transpose OTHER = LOADED == gw::AS_STORED ? gw::TRANSPOSED : gw::AS_STORED;
    u8* tiles = gw::shared<u8>();
    spread(tiles, from);
    u32 registers[COUNT];
    gw::load_matrix<COUNT, LOADED>(registers, row_of_lane(tiles));
    GW_UNROLL
    for (u32 j = 0; j < TILES; ++j) fragments[32 * j + gw::lane()] = j < COUNT ? registers[j % COUNT] : 0;
    gw::sync_warp();

    spread(tiles, nullptr);
    gw::store_matrix<COUNT, LOADED>(row_of_lane(tiles), registers);
    collect(same, tiles);

    spread(tiles, nullptr);
    gw::store_matrix<COUNT, OTHER>(row_of_lane(tiles), registers);
    collect(crossed, tiles);
}

GW_KERNEL(matrix_tiles)(const u32* from, u32* fragments, u32* same, u32* crossed) {
    const u32 block = gw::block_x();
    const u32 at = block * TILES * TILE_WORDS;
    fragments += at;
    same += at;
    crossed += at;
    if (block == 0) round_trip<1, gw::AS_STORED>(from, fragments, same, crossed);
    else if (block == 1) round_trip<1, gw::TRANSPOSED>(from, fragments, same, crossed);
    else if (block == 2) round_trip<2, gw::AS_STORED>(from, fragments, same, crossed);
    else if (block == 3) round_trip<2, gw::TRANSPOSED>(from, fragments, same, crossed);
    else if (block == 4) round_trip<4, gw::AS_STORED>(from, fragments, same, crossed);
    else round_trip<4, gw::TRANSPOSED>(from, fragments, same, crossed);
}
