//! The engine's kernel sources.

use gatework_gpu::Source;

/// A file of kernels, which no other has the name of.
pub(crate) struct Module {
    name: &'static str,
    text: &'static str,
}

/// Files that kernels include.
const HEADERS: [(&str, &str); 5] = [
    ("blake2s.cuh", include_str!("../kernels/blake2s.cuh")),
    ("circle.cuh", include_str!("../kernels/circle.cuh")),
    ("field.cuh", include_str!("../kernels/field.cuh")),
    ("rows.cuh", include_str!("../kernels/rows.cuh")),
    ("sums.cuh", include_str!("../kernels/sums.cuh")),
];

impl Module {
    #[cfg(test)]
    pub(crate) const fn new(name: &'static str, text: &'static str) -> Self {
        Self { name, text }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// The module's source.
    pub(crate) fn source(&self) -> Source {
        with_headers(Source::new(self.name, self.text))
    }
}

/// A source that may include the engine's headers.
pub(crate) fn with_headers(source: Source) -> Source {
    HEADERS.iter().fold(source, |source, (path, text)| source.include(*path, *text))
}

macro_rules! modules {
    ($($constant:ident = $name:literal),* $(,)?) => {
        $(pub(crate) const $constant: Module =
            Module { name: $name, text: include_str!(concat!("../kernels/", $name, ".cuh")) };)*

        /// Every module, for the compile gate.
        #[cfg(test)]
        pub(crate) const ALL: &[Module] = &[$($constant),*];
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
    TWIDDLES = "twiddles",
}

/// What generated kernels are held against.
#[cfg(feature = "lab")]
pub(crate) const WIDE_FIBONACCI: Module =
    Module { name: "wide_fibonacci", text: include_str!("../kernels/wide_fibonacci.cuh") };

#[cfg(test)]
mod tests {
    use gatework_gpu::{Architecture, compile, presence};

    use super::ALL;

    /// Without NVRTC, which needs no GPU, only the emulated device's compiler is asked.
    #[test]
    fn every_module_compiles_and_none_spills() {
        for module in ALL {
            compile(&module.source(), &Architecture::Emulated).unwrap();
        }
        if !presence::nvrtc().is_found() {
            eprintln!("NVRTC was not found: nothing was compiled for sm_90a");
            return;
        }
        for module in ALL {
            let binary = compile(&module.source(), &Architecture::Sm("sm_90a".into())).unwrap();
            for (kernel, resources) in &binary.resources {
                assert_eq!(resources.spill_stores + resources.spill_loads, 0, "{kernel}");
            }
        }
    }
}
