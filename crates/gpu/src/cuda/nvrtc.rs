//! NVRTC, the compiler for CUDA C++ that lives in a library and needs no GPU.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;

use cudarc::nvrtc::sys::{self, nvrtcProgram, nvrtcResult};

use crate::cuda::{nvrtc_library, ptxas};
use crate::source::Source;
use crate::types::Compiled;
use crate::{Error, Result};

/// Which NVRTC this machine has, as `NVRTC 13.0`.
pub(crate) fn version() -> Result<String> {
    nvrtc_library::load()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library is loaded, and both numbers are written by the call.
    match unsafe { sys::nvrtcVersion(&mut major, &mut minor) } {
        nvrtcResult::NVRTC_SUCCESS => Ok(format!("NVRTC {major}.{minor}")),
        status => Err(Error::NoNvrtc { reason: format!("it does not tell its version: {}", words(status)) }),
    }
}

/// The version, and the options that every source is compiled with: part of the cache key.
pub(crate) fn identity() -> Result<String> {
    Ok(format!("{} {}", version()?, FIXED_OPTIONS.join(" ")))
}

/// From 13 on NVRTC has a cache of its own. What it finds there comes without the assembler's log, and so
/// without resources.
fn keeps_a_cache(version: &str) -> bool {
    let major = version.trim_start_matches("NVRTC ").split('.').next();
    major.and_then(|major| major.parse::<u32>().ok()).is_some_and(|major| major >= 13)
}

/// Compiles a source for an architecture by name, as `sm_90a`, to a cubin.
pub(crate) fn compile(
    source: &Source,
    includes: &BTreeMap<String, Cow<'static, str>>,
    architecture: &str,
) -> Result<Compiled> {
    let compiler = version()?;
    let refuse =
        |log: String| Error::Compile { kernel: source.name().to_owned(), compiler: compiler.clone(), log };
    let program = Program::new(source, includes).map_err(refuse)?;
    let mut options = options(source, architecture);
    if keeps_a_cache(&compiler) {
        options.push("--no-cache".into());
    }
    let outcome = program.compile(&options);
    let log = program.log().map_err(refuse)?;
    outcome.map_err(|reason| refuse(format!("{log}{reason}")))?;
    let bytes = program.cubin().map_err(refuse)?;
    Ok(Compiled { bytes, resources: ptxas::resources(&log), log })
}

/// `--ptxas-options=-v` is what writes the resources into the log; line numbers cost nothing and serve the
/// profiler.
const FIXED_OPTIONS: [&str; 4] = ["--std=c++17", "--ptxas-options=-v", "--generate-line-info", "-DGW_CUDA=1"];

/// Those that plain sources are compiled with too.
const OPTIONS_OF_ALL: [&str; 2] = ["--ptxas-options=-v", "--generate-line-info"];

pub(crate) fn options(source: &Source, architecture: &str) -> Vec<String> {
    let mut options = vec![format!("--gpu-architecture={architecture}")];
    // Plain sources choose their own dialect, and know nothing of ours.
    let fixed = FIXED_OPTIONS.iter().filter(|option| !source.is_plain() || OPTIONS_OF_ALL.contains(option));
    options.extend(fixed.map(|&option| option.to_owned()));
    options.extend(source.defines().iter().map(|(name, value)| format!("-D{name}={value}")));
    options.extend_from_slice(source.options());
    options
}

/// What went wrong, for the compiler's log.
type Outcome<T> = std::result::Result<T, String>;

struct Program {
    raw: nvrtcProgram,
    /// Text the program may still point into.
    _texts: Vec<CString>,
}

impl Program {
    fn new(source: &Source, includes: &BTreeMap<String, Cow<'static, str>>) -> Outcome<Self> {
        let text = c_string("the source", source.text())?;
        let name = c_string("the source's name", &format!("{}.cu", source.name()))?;
        let paths = includes.keys().map(|path| c_string(path, path)).collect::<Outcome<Vec<_>>>()?;
        let headers =
            includes.iter().map(|(path, text)| c_string(path, text)).collect::<Outcome<Vec<_>>>()?;
        let (path_pointers, header_pointers) = (pointers(&paths), pointers(&headers));
        let mut raw = ptr::null_mut();
        // SAFETY: the library is loaded; every text ends in NUL, both lists have as many entries as the call
        // is told, and the texts live as long as the program. `raw` is written by the call.
        let status = unsafe {
            sys::nvrtcCreateProgram(
                &mut raw,
                text.as_ptr(),
                name.as_ptr(),
                headers.len() as c_int,
                header_pointers.as_ptr(),
                path_pointers.as_ptr(),
            )
        };
        check(status)?;
        let texts = [text, name].into_iter().chain(paths).chain(headers).collect();
        Ok(Self { raw, _texts: texts })
    }

    fn compile(&self, options: &[String]) -> Outcome<()> {
        let options =
            options.iter().map(|option| c_string("an option", option)).collect::<Outcome<Vec<_>>>()?;
        let pointers = pointers(&options);
        // SAFETY: the program is alive, and the options end in NUL and live until the call returns.
        check(unsafe { sys::nvrtcCompileProgram(self.raw, pointers.len() as c_int, pointers.as_ptr()) })
    }

    fn log(&self) -> Outcome<String> {
        let mut size = 0;
        // SAFETY: the program is alive, and `size` is written by the call.
        check(unsafe { sys::nvrtcGetProgramLogSize(self.raw, &mut size) })?;
        let mut bytes = vec![0u8; size];
        // SAFETY: the call writes as many bytes as it said, the ending NUL among them.
        check(unsafe { sys::nvrtcGetProgramLog(self.raw, bytes.as_mut_ptr().cast()) })?;
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    fn cubin(&self) -> Outcome<Vec<u8>> {
        let mut size = 0;
        // SAFETY: the program is compiled, and `size` is written by the call.
        check(unsafe { sys::nvrtcGetCUBINSize(self.raw, &mut size) })?;
        if size == 0 {
            return Err(
                "the compiler made no cubin: is the architecture a real one, sm_… and not compute_…?".into(),
            );
        }
        let mut bytes = vec![0u8; size];
        // SAFETY: the call writes as many bytes as it said.
        check(unsafe { sys::nvrtcGetCUBIN(self.raw, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once. The only possible answer besides success is that it was not a
        // program.
        let _ = unsafe { sys::nvrtcDestroyProgram(&mut self.raw) };
    }
}

fn check(status: nvrtcResult) -> Outcome<()> {
    match status {
        nvrtcResult::NVRTC_SUCCESS => Ok(()),
        _ => Err(words(status)),
    }
}

fn words(status: nvrtcResult) -> String {
    // SAFETY: the answer is a text of the library, for every status.
    unsafe { CStr::from_ptr(sys::nvrtcGetErrorString(status)) }.to_string_lossy().into_owned()
}

fn c_string(what: &str, text: &str) -> Outcome<CString> {
    CString::new(text).map_err(|error| format!("{what} has a NUL character at byte {}", error.nul_position()))
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compiles a text that may include `outer.h`.
    fn compiled(source: &Source) -> Result<Compiled> {
        let includes =
            [("gw/outer.h", "#include \"gw/inner.h\"\n"), ("gw/inner.h", "using u32 = unsigned int;\n")];
        let includes = includes.map(|(path, text)| (path.to_owned(), Cow::Borrowed(text))).into();
        compile(source, &includes, "sm_90a")
    }

    #[test]
    #[ignore = "needs NVRTC"]
    fn a_kernel_compiles_to_a_cubin_with_its_resources() {
        let text = "#include \"gw/outer.h\"\n\
                    #if GW_CUDA != 1\n#error\n#endif\n\
                    extern \"C\" __global__ void scale(float* x, float a, u32 n) {\n\
                    __shared__ float factor[COUNT];\n\
                    factor[threadIdx.x % COUNT] = a;\n__syncthreads();\n\
                    if (threadIdx.x < n) x[threadIdx.x] *= factor[(threadIdx.x + 1) % COUNT];\n}";
        let compiled = compiled(&Source::new("scale", text).define("COUNT", 16)).unwrap();
        assert!(compiled.bytes.starts_with(b"\x7fELF"));
        let [(name, resources)] = compiled.resources.as_slice() else {
            panic!("one kernel expected in {:?}", compiled.resources)
        };
        assert_eq!(name, "scale");
        assert!(resources.registers > 0, "{}", compiled.log);
        assert_eq!(resources.shared_bytes, 64);
        assert_eq!((resources.stack_bytes, resources.spill_stores, resources.spill_loads), (0, 0, 0));
    }

    #[test]
    #[ignore = "needs NVRTC"]
    fn spills_reach_the_resources() {
        let text = "extern \"C\" __global__ void crowded(float* x, int rounds) {\n\
                    float v[96];\n\
                    #pragma unroll\n\
                    for (int i = 0; i < 96; i++) v[i] = x[i * blockDim.x + threadIdx.x];\n\
                    for (int k = 0; k < rounds; k++) {\n\
                    #pragma unroll\n\
                    for (int i = 0; i < 96; i++) v[i] = v[i] * v[(i + 7) % 96] + v[(i * 5 + 1) % 96];\n}\n\
                    #pragma unroll\n\
                    for (int i = 0; i < 96; i++) x[i * blockDim.x + threadIdx.x] = v[i];\n}";
        let source = Source::new("crowded", text).option("--maxrregcount=32");
        let compiled = compiled(&source).unwrap();
        let (_, resources) = &compiled.resources[0];
        assert!(resources.spill_stores > 0 && resources.spill_loads > 0, "{}", compiled.log);
    }

    #[test]
    #[ignore = "needs NVRTC"]
    fn a_refusal_carries_the_whole_log() {
        let text = "extern \"C\" __global__ void broken(float* x) { x[0] = undeclared; also_undeclared(); }";
        let error = compiled(&Source::new("broken", text)).err().expect("the source is wrong");
        assert!(matches!(error, Error::Compile { .. }), "{error}");
        let text = error.to_string();
        for part in ["'broken'", "NVRTC ", "broken.cu(1)", "\"undeclared\"", "\"also_undeclared\""] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
    }

    #[test]
    #[ignore = "needs NVRTC"]
    fn an_unknown_architecture_is_refused_with_a_reason() {
        let source = Source::new("empty", "extern \"C\" __global__ void empty() {}");
        let error = compile(&source, &BTreeMap::new(), "sm_1").err().expect("there is no sm_1");
        assert!(error.to_string().contains("gpu-architecture"), "{error}");
    }

    #[test]
    fn plain_sources_have_their_own_dialect_and_no_macro_of_ours() {
        let options = options(&Source::plain("k", "").option("-std=c++20").define("N", 3), "sm_90a");
        assert_eq!(
            options,
            [
                "--gpu-architecture=sm_90a",
                "--ptxas-options=-v",
                "--generate-line-info",
                "-DN=3",
                "-std=c++20"
            ]
        );
    }

    #[test]
    #[ignore = "needs NVRTC"]
    fn plain_cuda_compiles_and_its_cubin_tells_the_parameters_by_mangled_name_too() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("elsewhere.h"), "struct Three { float at[3]; };\n").unwrap();
        let text = "#include <elsewhere.h>\n#include \"given.h\"\n\
                    #ifdef GW_CUDA\n#error\n#endif\n\
                    extern \"C\" __global__ void scale(float* x, Three a, word n) { if (threadIdx.x < n) x[threadIdx.x] *= a.at[1]; }\n\
                    __global__ void scale_all(double* x, double a) { x[threadIdx.x] *= a; }";
        let source = Source::plain("plain", text)
            .include("given.h", "using word = unsigned;")
            .option(format!("-I{}", folder.path().display()));
        let architecture = crate::Architecture::Sm("sm_90a".into());
        let binary = crate::compile(&source, &architecture).unwrap();
        assert!(!binary.cached && !crate::compile(&source, &architecture).unwrap().cached);
        let cubin = crate::Module::from_cubin("plain", std::fs::read(&binary.path).unwrap());
        assert_eq!(cubin.parameter_bytes("scale").unwrap(), [8, 12, 4]);
        assert_eq!(cubin.parameter_bytes("_Z9scale_allPdd").unwrap(), [8, 8]);
        assert!(matches!(cubin.parameter_bytes("scale_all"), Err(Error::NoEntry { .. })));
        let without = Source::plain("plain", text).include("given.h", "using word = unsigned;");
        let error = crate::compile(&without, &architecture).unwrap_err();
        assert!(error.to_string().contains("elsewhere.h"), "{error}");
    }
}
