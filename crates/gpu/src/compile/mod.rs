//! Source text to a binary: by NVRTC or by the machine's C++ compiler, or from the cache on disk.

mod cache;

pub use cache::cache_directory;

use crate::source::Source;
use crate::types::{Architecture, Binary};
use crate::{Error, Result, cuda, emulated};

/// Compiles a source, or finds it in the cache. For an `sm_…` this needs NVRTC and no GPU.
pub fn compile(source: &Source, architecture: &Architecture) -> Result<Binary> {
    let _span = tracing::debug_span!("compile", kernel = source.name(), %architecture).entered();
    let includes = source.resolve()?;
    match architecture {
        Architecture::Sm(name) => {
            cache::find_or_build(source, &includes, architecture, &cuda::nvrtc::identity()?, |_| {
                cuda::nvrtc::compile(source, &includes, name)
            })
        }
        Architecture::Emulated if source.is_plain() => {
            Err(Error::NeedsCard { what: format!("'{}', which is plain CUDA C++,", source.name()) })
        }
        Architecture::Emulated => {
            cache::find_or_build(source, &includes, architecture, &emulated::compiler::version()?, |folder| {
                emulated::compiler::compile(source, &includes, folder)
            })
        }
    }
}

/// The options that [`compile`] gives to the compiler for a source, definitions included. Fails where the
/// machine has no such compiler.
pub fn compile_options(source: &Source, architecture: &Architecture) -> Result<Vec<String>> {
    match architecture {
        Architecture::Sm(name) => Ok(cuda::nvrtc::options(source, name)),
        Architecture::Emulated => {
            let defines = source.defines().iter().map(|(name, value)| format!("-D{name}={value}"));
            Ok(emulated::compiler::flags()?.into_iter().chain(defines).collect())
        }
    }
}
