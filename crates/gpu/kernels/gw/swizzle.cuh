#pragma once
// How tiles that matrix instructions read lie in shared memory: chunks of 16 bytes change places inside of 8 rows, so that a
// column of chunks falls on different banks.

#include "gw/types.cuh"

namespace gw {

enum Swizzle : u32 { SWIZZLE_NONE = 0, SWIZZLE_128 = 1, SWIZZLE_64 = 2, SWIZZLE_32 = 3 };

// Where byte `offset` of a tile that starts at a multiple of 8 rows really lies.
GW_DEVICE u32 swizzled(u32 offset, Swizzle swizzle) {
    return swizzle == SWIZZLE_128  ? offset ^ ((offset >> 7 & 7) << 4)
           : swizzle == SWIZZLE_64 ? offset ^ ((offset >> 7 & 3) << 4)
           : swizzle == SWIZZLE_32 ? offset ^ ((offset >> 7 & 1) << 4)
                                   : offset;
}

}  // namespace gw
