//! Headers that a file may include, and what becomes of each.

/// What stands in the place of an include.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Include {
    /// One of ours, with what kernels use of it; the empty one is there anyway.
    Ours(&'static str),
    /// Itself: a small part of the C++ library that the compiler brings.
    Itself,
    /// Nothing: only host code uses it, which is left out.
    Host,
}

/// Headers of CUDA and of C whose contents are in ours.
const OURS: &[(&str, &str)] = &[
    ("cuda_runtime.h", ""),
    ("cuda_runtime_api.h", ""),
    ("cuda.h", ""),
    ("device_launch_parameters.h", ""),
    ("device_functions.h", ""),
    ("driver_types.h", ""),
    ("vector_types.h", ""),
    ("vector_functions.h", ""),
    ("math_constants.h", ""),
    ("sm_30_intrinsics.h", ""),
    ("cuda_fp16.h", "gw/cuda_half.cuh"),
    ("cuda_bf16.h", "gw/cuda_half.cuh"),
    ("cooperative_groups.h", "gw/cuda_groups.cuh"),
    ("cooperative_groups/reduce.h", "gw/cuda_groups.cuh"),
    ("cuda_pipeline.h", "gw/cuda_pipeline.cuh"),
    ("cuda_pipeline_primitives.h", "gw/cuda_pipeline.cuh"),
    ("mma.h", "gw/cuda_wmma.cuh"),
    ("stdint.h", ""),
    ("cstdint", ""),
    ("stddef.h", ""),
    ("cstddef", ""),
    ("stdio.h", ""),
    ("cstdio", ""),
    ("stdlib.h", ""),
    ("cstdlib", ""),
    ("math.h", ""),
    ("cmath", ""),
    ("assert.h", ""),
    ("cassert", ""),
];

/// Headers of the C++ library that kernels may use.
const ITSELF: &[&str] = &[
    "algorithm",
    "array",
    "cfloat",
    "climits",
    "cstring",
    "float.h",
    "functional",
    "initializer_list",
    "iterator",
    "limits",
    "limits.h",
    "numeric",
    "string.h",
    "tuple",
    "type_traits",
    "utility",
];

/// Headers that only host code uses; `x/*` is every header in the folder `x`.
const HOST: &[&str] = &[
    "chrono",
    "ctime",
    "deque",
    "exception",
    "filesystem",
    "fstream",
    "iomanip",
    "iostream",
    "istream",
    "list",
    "map",
    "memory",
    "mutex",
    "omp.h",
    "ostream",
    "queue",
    "random",
    "set",
    "sstream",
    "stdexcept",
    "string",
    "string_view",
    "sys/time.h",
    "thread",
    "time.h",
    "unistd.h",
    "unordered_map",
    "unordered_set",
    "vector",
    "cublas.h",
    "cublasLt.h",
    "cublas_v2.h",
    "cudaProfiler.h",
    "cuda_profiler_api.h",
    "cudnn.h",
    "cufft.h",
    "curand.h",
    "cusolverDn.h",
    "cusparse.h",
    "helper_cuda.h",
    "helper_functions.h",
    "helper_timer.h",
    "nccl.h",
    "nvToolsExt.h",
    "nvml.h",
    "nvtx3/*",
    "ATen/*",
    "c10/*",
    "torch/*",
    "pybind11/*",
    "Python.h",
    "gtest/*",
    "benchmark/*",
];

/// Every header that is known, by the path it is included by.
pub fn known_includes() -> Vec<&'static str> {
    OURS.iter().map(|(path, _)| *path).chain(ITSELF.iter().copied()).chain(HOST.iter().copied()).collect()
}

impl Include {
    /// What becomes of the header of a path, if it is known.
    pub(super) fn of(path: &str) -> Option<Self> {
        let folder = |known: &&str| known.strip_suffix('*').is_some_and(|folder| path.starts_with(folder));
        if let Some((_, ours)) = OURS.iter().find(|(known, _)| *known == path) {
            Some(Self::Ours(ours))
        } else if ITSELF.contains(&path) {
            Some(Self::Itself)
        } else {
            HOST.iter().any(|known| *known == path || folder(known)).then_some(Self::Host)
        }
    }
}

/// The path between the quotes or angle brackets of a line of the preprocessor, and whether it has quotes.
pub(super) fn included(directive: &str) -> Option<(&str, bool)> {
    let rest = directive.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?.trim_start();
    let (quote, end) = match rest.chars().next()? {
        '"' => (true, '"'),
        '<' => (false, '>'),
        _ => return None,
    };
    let path = &rest[1..];
    Some((path[..path.find(end)?].trim(), quote))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_of_the_three_or_none() {
        assert_eq!(Include::of("cuda_fp16.h"), Some(Include::Ours("gw/cuda_half.cuh")));
        assert_eq!(Include::of("algorithm"), Some(Include::Itself));
        for host in ["vector", "torch/extension.h", "c10/cuda/CUDAGuard.h"] {
            assert_eq!(Include::of(host), Some(Include::Host), "{host}");
        }
        for unknown in ["torch", "cute/tensor.hpp", "torch.h", ""] {
            assert_eq!(Include::of(unknown), None, "{unknown}");
        }
        let mut known = known_includes();
        let count = known.len();
        known.sort_unstable();
        known.dedup();
        assert_eq!(known.len(), count, "a header stands in two lists");
    }

    #[test]
    fn a_directive_has_its_path() {
        assert_eq!(included("#include <cuda.h> // why"), Some(("cuda.h", false)));
        assert_eq!(included("#  include \"a/b.cuh\""), Some(("a/b.cuh", true)));
        assert_eq!(included("#define include <a>"), None);
        assert_eq!(included("#include NAME"), None);
        assert_eq!(included("#include <cuda.h"), None);
    }
}
