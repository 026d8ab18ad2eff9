//! The toolkit's command-line programs: where they are, and what `cuobjdump` says of a binary.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use crate::cuda::sass::SassReport;
use crate::scratch::Scratch;
use crate::types::{Architecture, Binary};
use crate::{Error, Result};

/// Finds a program: in the folder that `GATEWORK_CUDA_TOOLS` names, on `PATH`, or in an installed toolkit.
pub(crate) fn find(name: &str) -> Result<PathBuf> {
    let named = |variable: &str| env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let toolkits =
        ["CUDA_PATH", "CUDA_HOME"].into_iter().filter_map(named).chain([PathBuf::from("/usr/local/cuda")]);
    named("GATEWORK_CUDA_TOOLS")
        .into_iter()
        .chain(env::split_paths(&path))
        .chain(toolkits.map(|toolkit| toolkit.join("bin")))
        .map(|folder| folder.join(name))
        .find(|candidate| is_executable(candidate))
        .ok_or_else(|| Error::NoTool { tool: name.to_owned() })
}

/// Counts the machine instructions of a cubin, kernel by kernel. Needs `cuobjdump` and `nvdisasm`, and no
/// GPU.
pub fn disassemble(binary: &Binary) -> Result<SassReport> {
    if binary.architecture == Architecture::Emulated {
        let source = io::Error::new(
            io::ErrorKind::InvalidInput,
            "this is a library of the emulated device, which has no machine instructions of a GPU",
        );
        return Err(Error::Io { path: binary.path.clone(), source });
    }
    let cuobjdump = find("cuobjdump")?;
    let path = path_with_folder_of(&find("nvdisasm")?)?;
    let failed = |source| Error::Io { path: cuobjdump.clone(), source };
    // `cuobjdump` unpacks binaries into the temporary folder, and leaves them there when it is killed.
    let scratch = Scratch::new().map_err(|source| Error::Io { path: env::temp_dir(), source })?;
    let output = Command::new(&cuobjdump)
        .arg("--dump-sass")
        .arg(&binary.path)
        .env("PATH", path)
        .env("TMPDIR", scratch.path())
        .output()
        .map_err(failed)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let reason =
            format!("it could not read {} ({}): {}", binary.path.display(), output.status, said.trim());
        return Err(failed(io::Error::other(reason)));
    }
    Ok(SassReport::parse(&String::from_utf8_lossy(&output.stdout)))
}

/// `PATH` with the tool's folder in front: `cuobjdump` looks for `nvdisasm` there and nowhere else.
fn path_with_folder_of(tool: &Path) -> Result<OsString> {
    let inherited = env::var_os("PATH").unwrap_or_default();
    let folders = tool.parent().map(Path::to_path_buf).into_iter().chain(env::split_paths(&inherited));
    env::join_paths(folders)
        .map_err(|error| Error::Io { path: tool.to_owned(), source: io::Error::other(error.to_string()) })
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use crate::cuda::nvrtc;
    use crate::source::Source;

    /// A binary whose file has those bytes.
    fn cubin(folder: &Path, bytes: &[u8]) -> Binary {
        let path = folder.join("kernel.cubin");
        fs::write(&path, bytes).unwrap();
        Binary {
            name: "kernel".into(),
            architecture: Architecture::Sm("sm_90a".into()),
            key: String::new(),
            hash: String::new(),
            path,
            log: String::new(),
            resources: Vec::new(),
            cached: false,
            folder: None,
        }
    }

    #[test]
    fn a_missing_tool_is_named() {
        let error = find("no-such-cuda-tool").unwrap_err();
        assert!(matches!(error, Error::NoTool { .. }), "{error}");
        assert!(error.to_string().contains("'no-such-cuda-tool' was not found"), "{error}");
    }

    #[test]
    fn a_file_that_cannot_be_run_is_no_tool() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tool");
        fs::write(&file, "").unwrap();
        assert!(!is_executable(&file));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(is_executable(&file));
        assert!(!is_executable(folder.path()));
    }

    #[test]
    #[ignore = "needs NVRTC, cuobjdump and nvdisasm"]
    fn instructions_of_a_compiled_kernel_are_counted() {
        let text = "extern \"C\" __global__ void waits(float* x) {\n\
                    __shared__ float tile[32];\n\
                    tile[threadIdx.x] = x[threadIdx.x];\n\
                    __syncthreads();\n\
                    x[threadIdx.x] = tile[31 - threadIdx.x];\n}";
        let compiled = nvrtc::compile(&Source::new("waits", text), &BTreeMap::new(), "sm_90a").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let binary = cubin(folder.path(), &compiled.bytes);
        let report = disassemble(&binary).unwrap();
        assert_eq!(report.kernels.len(), 1);
        assert_eq!(report.count("waits", "BAR"), 1, "{report:?}");
        assert_eq!(report.count("waits", "LDG"), 1, "{report:?}");
        assert_eq!(report.count("waits", "LDL"), 0, "{report:?}");
    }

    #[test]
    #[ignore = "needs cuobjdump and nvdisasm"]
    fn a_file_that_is_no_cubin_is_an_error_with_the_tools_words() {
        let folder = tempfile::tempdir().unwrap();
        let binary = cubin(folder.path(), b"not a cubin");
        let error = disassemble(&binary).unwrap_err();
        assert!(error.to_string().contains("kernel.cubin"), "{error}");
    }
}
