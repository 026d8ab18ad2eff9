#pragma once
// The portable device header: every intrinsic a kernel may use, in two forms, one for the GPU and one for the emulated
// device. Kernels use these names and nothing else, so that the emulator sees all they do.
//
// `gw/wgmma.cuh` is large and is included by those who need it.

#include "gw/types.cuh"
#include "gw/emulated.cuh"
#include "gw/index.cuh"
#include "gw/memory.cuh"
#include "gw/sync.cuh"
#include "gw/warp.cuh"
#include "gw/debug.cuh"
#include "gw/atomic.cuh"
#include "gw/integer.cuh"
#include "gw/math.cuh"
#include "gw/convert.cuh"
#include "gw/half.cuh"
#include "gw/async_copy.cuh"
#include "gw/mbarrier.cuh"
#include "gw/bulk.cuh"
#include "gw/cluster.cuh"
#include "gw/matrix.cuh"
#include "gw/tensor_map.cuh"
