//! The engine's kernel sources.

use gatework_gpu::{Architecture, Source};

use crate::cuda::schedule::LOWEST;

/// A file of kernels, which no other has the name of.
pub(crate) struct Module {
    name: &'static str,
    text: &'static str,
    /// A number that the text is compiled for.
    define: Option<(&'static str, u32)>,
}

/// The name of a module, the number that it is compiled for, and the kernel.
pub(crate) type KernelKey = (&'static str, u32, &'static str);

/// Files that kernels include.
const HEADERS: [(&str, &str); 7] = [
    ("blake2s.cuh", include_str!("../kernels/blake2s.cuh")),
    ("butterfly.cuh", include_str!("../kernels/butterfly.cuh")),
    ("circle.cuh", include_str!("../kernels/circle.cuh")),
    ("field.cuh", include_str!("../kernels/field.cuh")),
    ("rows.cuh", include_str!("../kernels/rows.cuh")),
    ("sums.cuh", include_str!("../kernels/sums.cuh")),
    ("transcript.cuh", include_str!("../kernels/transcript.cuh")),
];

impl Module {
    #[cfg(test)]
    pub(crate) const fn new(name: &'static str, text: &'static str) -> Self {
        Self { name, text, define: None }
    }

    /// The module's source.
    pub(crate) fn source(&self) -> Source {
        let source = with_headers(Source::new(self.name, self.text));
        match self.define {
            Some((name, value)) => source.define(name, value),
            None => source,
        }
    }

    /// What tells one of its kernels from all others.
    pub(crate) fn key(&self, entry: &'static str) -> KernelKey {
        (self.name, self.define.map_or(0, |(_, value)| value), entry)
    }
}

/// A source that may include the engine's headers.
pub(crate) fn with_headers(source: Source) -> Source {
    HEADERS.iter().fold(source, |source, (path, text)| source.include(*path, *text))
}

macro_rules! modules {
    ($($constant:ident = $name:literal),* $(,)?) => {
        $(pub(crate) const $constant: Module =
            Module { name: $name, text: include_str!(concat!("../kernels/", $name, ".cuh")), define: None };)*

        /// Every module.
        const ALL: &[Module] = &[$($constant),*];
    };
}

modules! {
    ACCUMULATION = "accumulation",
    CIRCLE_FFT = "circle_fft",
    COLUMNS = "columns",
    FRI = "fri",
    GRIND = "grind",
    INTERPRETER = "interpreter",
    LOGUP = "logup",
    LOOKUPS = "lookups",
    MERKLE = "merkle",
    OODS = "oods",
    QUOTIENTS = "quotients",
    RATES = "rates",
    TWIDDLES = "twiddles",
}

/// Compiles every module that a proof may need into the cache, on all cores. What does not compile is an error where it is used.
pub(crate) fn compile_all(architecture: &Architecture) {
    use rayon::iter::{IntoParallelRefIterator as _, ParallelIterator as _};
    let sources: Vec<_> = ALL.iter().map(Module::source).chain([circle_pass(LOWEST).source()]).collect();
    sources.par_iter().for_each(|source| {
        let _ = gatework_gpu::compile(source, architecture);
    });
}

/// Passes of `layers` layers of the circle transform.
pub(crate) const fn circle_pass(layers: u32) -> Module {
    let text = include_str!("../kernels/circle_pass.cuh");
    Module { name: "circle_pass", text, define: Some(("LAYERS", layers)) }
}

/// What generated kernels are held against.
#[cfg(feature = "lab")]
pub(crate) const WIDE_FIBONACCI: Module =
    Module { name: "wide_fibonacci", text: include_str!("../kernels/wide_fibonacci.cuh"), define: None };

#[cfg(test)]
mod tests {
    use gatework_gpu::{Architecture, compile, presence};

    use super::*;
    use crate::cuda::schedule;

    /// Without NVRTC, which needs no GPU, only the emulated device's compiler is asked.
    #[test]
    fn every_module_compiles_and_none_spills() {
        let modules =
            || ALL.iter().map(Module::source).chain(schedule::PASSES.map(|n| circle_pass(n).source()));
        for source in modules() {
            compile(&source, &Architecture::Emulated).unwrap();
        }
        if !presence::nvrtc().is_found() {
            eprintln!("NVRTC was not found: nothing was compiled for sm_90a");
            return;
        }
        for source in modules() {
            let binary = compile(&source, &Architecture::Sm("sm_90a".into())).unwrap();
            for (kernel, resources) in &binary.resources {
                assert_eq!(resources.spill_stores + resources.spill_loads, 0, "{kernel}");
            }
        }
    }
}
