//! A compiled kernel in this process: its entry, its parameters, and the way from an address to a source
//! line.

use std::ffi::c_void;
use std::fs::File;
use std::io::Write as _;
use std::ops::Range;
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use libloading::Library;
use object::{Object as _, ObjectSection as _};

use super::functions::{API, Api};
use crate::abi::{ParameterInfo, Scalar};
use crate::shared::Code as _;
use crate::types::{ArgType, Binary, KernelInfo, Parameter, Resources, Site};
use crate::{Error, Result};

/// One kernel of a loaded library.
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) invoke: unsafe extern "C" fn(*mut *mut c_void),
    image: Range<usize>,
    hooks: Range<usize>,
    /// Most threads of a block, and blocks that shall be resident, as the kernel promises them.
    pub(super) bounds: Option<(u32, u32)>,
    path: PathBuf,
    lines: OnceLock<Option<Lines>>,
    /// `__device__` variables; empty if there are none.
    variables: Range<usize>,
    /// Keeps the code mapped.
    library: Library,
    /// The file that the code was mapped from, if it is a copy. The loader knows a library by its name, which is
    /// that of the descriptor: it must not be given to another file meanwhile.
    _copy: Option<File>,
}

/// A parameter as the kernel's side described it.
fn parameter(binary: &Binary, info: ParameterInfo) -> Result<Parameter> {
    let scalar = Scalar::from_code(info.scalar).ok_or_else(|| Error::Load {
        kernel: binary.name.clone(),
        reason: format!("{} is no scalar that the runtime knows", info.scalar),
    })?;
    let type_ = if info.is_pointer != 0 {
        let (element_bytes, mutable) = (info.element_bytes as usize, info.is_mutable != 0);
        ArgType::Pointer { element: scalar, element_bytes, mutable }
    } else {
        ArgType::Value(scalar)
    };
    Ok(Parameter { bytes: info.bytes as usize, type_: Some(type_) })
}

/// Threads a block may have at most.
const MAX_THREADS: u32 = 1024;

pub(super) fn load(binary: &Binary, entry: &str) -> Result<(Arc<Entry>, KernelInfo)> {
    let failed =
        |error: libloading::Error| Error::Load { kernel: binary.name.clone(), reason: error.to_string() };
    if has_initialisers(&binary.path) {
        return Err(Error::Load {
            kernel: binary.name.clone(),
            reason:
                "a variable outside of functions is computed when the program starts (by a constructor, or a \
                     call), which no kernel may use: leave it out, or move it into a function of the host"
                    .into(),
        });
    }
    // SAFETY: the library was compiled here from a kernel source (its hash was checked) and has no
    // initialisers.
    let mut library = unsafe { Library::new(&binary.path) }.map_err(failed)?;
    let (mut copy, mut variables) = (None, 0..0);
    if has_variables(&library) {
        // Each device has variables of its own, which start as they are initialised.
        let file = copy_of(&binary.path).map_err(|source| Error::Io { path: binary.path.clone(), source })?;
        // SAFETY: as above.
        library = unsafe { Library::new(format!("/proc/self/fd/{}", file.as_raw_fd())) }.map_err(failed)?;
        copy = Some(file);
        let mut ends = [0u64; 2];
        // SAFETY: the type is the one that `GW_VARIABLES` gives it.
        unsafe {
            let tell: unsafe extern "C" fn(*mut u64) = *library.get(VARIABLES).map_err(failed)?;
            tell(ends.as_mut_ptr());
        }
        variables = ends[0] as usize..ends[1] as usize;
    }
    let missing = |_| Error::NoEntry { kernel: binary.name.clone(), entry: entry.to_owned() };
    // SAFETY: the types of the symbols are those that `GW_EXPORT` and gw/emulated.cuh give them.
    let (invoke, parameters, image, hooks, bounds) = unsafe {
        let invoke: unsafe extern "C" fn(*mut *mut c_void) =
            *library.get(format!("gw_invoke_{entry}").as_bytes()).map_err(missing)?;
        let count: unsafe extern "C" fn() -> u32 =
            *library.get(format!("gw_parameter_count_{entry}").as_bytes()).map_err(missing)?;
        let describe: unsafe extern "C" fn(*mut ParameterInfo) =
            *library.get(format!("gw_describe_{entry}").as_bytes()).map_err(missing)?;
        let bind: unsafe extern "C" fn(*const Api) = *library.get(b"gw_bind").map_err(failed)?;
        let image: unsafe extern "C" fn(*mut u64) = *library.get(b"gw_image").map_err(failed)?;
        let bounds: Option<[u32; 2]> =
            library.get::<*const [u32; 2]>(format!("gw_bounds_{entry}").as_bytes()).ok().map(|at| **at);
        bind(&raw const API);
        let mut ends = [0u64; 4];
        image(ends.as_mut_ptr());
        for number in 0.. {
            let Ok(fill) =
                library.get::<unsafe extern "C" fn()>(format!("gw_fill_constant_{number}").as_bytes())
            else {
                break;
            };
            fill();
        }
        let [begin, end, hooks_begin, hooks_end] = ends.map(|end| end as usize);
        let mut parameters = vec![ParameterInfo::default(); count() as usize];
        describe(parameters.as_mut_ptr());
        (invoke, parameters, begin..end, hooks_begin..hooks_end, bounds)
    };
    let info = KernelInfo {
        resources: Resources::default(),
        max_threads: bounds.map_or(MAX_THREADS, |[threads, _]| threads.min(MAX_THREADS)),
        key: binary.key.clone(),
        hash: binary.hash.clone(),
        parameters: parameters.into_iter().map(|info| parameter(binary, info)).collect::<Result<_>>()?,
    };
    let (path, lines) = (binary.path.clone(), OnceLock::new());
    let bounds = bounds.map(|[threads, blocks]| (threads, blocks));
    let name = entry.to_owned();
    let entry = Entry { name, invoke, image, hooks, bounds, path, lines, variables, library, _copy: copy };
    Ok((Arc::new(entry), info))
}

/// Whether loading a library runs code of the source: its functions must not run before they are bound. The
/// one function that is there in any case is the compiler's, and does nothing. A file that cannot be read is
/// the loader's to refuse.
fn has_initialisers(path: &Path) -> bool {
    let Ok(bytes) = std::fs::read(path) else { return false };
    let Ok(file) = object::File::parse(&*bytes) else { return false };
    let functions = |section: object::Section<'_, '_>| section.size() / size_of::<usize>() as u64;
    let lists =
        file.sections().filter(|section| section.name().is_ok_and(|name| name.starts_with(".init_array")));
    lists.map(functions).sum::<u64>() > 1
}

/// The function that says where `__device__` variables lie.
const VARIABLES: &[u8] = b"gw_variables_at";

fn has_variables(library: &Library) -> bool {
    // SAFETY: only whether the symbol is there is asked.
    unsafe { library.get::<unsafe extern "C" fn(*mut u64)>(VARIABLES) }.is_ok()
}

/// A copy of a file that has no place in any folder.
fn copy_of(path: &Path) -> std::io::Result<File> {
    // SAFETY: the name is a string that ends, and the descriptor is nobody else's.
    let mut copy = unsafe {
        let descriptor = libc::memfd_create(c"gatework-kernel".as_ptr(), libc::MFD_CLOEXEC);
        if descriptor < 0 {
            return Err(std::io::Error::last_os_error());
        }
        File::from_raw_fd(descriptor)
    };
    copy.write_all(&std::fs::read(path)?)?;
    Ok(copy)
}

impl Entry {
    /// Where the library itself lies: constants of the kernel are in it.
    pub(super) fn image(&self) -> &Range<usize> {
        &self.image
    }

    /// Where its `__device__` variables lie.
    pub(super) fn variables(&self) -> &Range<usize> {
        &self.variables
    }

    /// The header's own functions in it, which call the runtime.
    pub(super) fn hooks(&self) -> &Range<usize> {
        &self.hooks
    }

    /// An address of code as an offset into the image; 0 if it is not of this library.
    pub(super) fn offset(&self, pc: usize) -> u32 {
        if self.image.contains(&pc) { (pc - self.image.start) as u32 } else { 0 }
    }

    /// The line that the kernel begins at.
    pub(super) fn definition(&self) -> Option<Site> {
        // SAFETY: only the address of the symbol is taken.
        let at = unsafe { self.library.get::<unsafe extern "C" fn()>(self.name.as_bytes()) }.ok()?;
        self.line(self.offset(*at as usize) + 1)
    }

    /// The source line of the call that returns to `pc`, the innermost that is not in the portable header.
    pub(super) fn line(&self, pc: u32) -> Option<Site> {
        if pc == 0 {
            return None;
        }
        self.lines.get_or_init(|| Lines::load(&self.path)).as_ref()?.find(u64::from(pc) - 1)
    }
}

/// The line table of a library. Read once, at the first fault.
struct Lines {
    path: PathBuf,
}

impl Lines {
    fn load(path: &Path) -> Option<Self> {
        path.exists().then(|| Self { path: path.to_owned() })
    }

    fn find(&self, address: u64) -> Option<Site> {
        let loader = addr2line::Loader::new(&self.path).ok()?;
        let mut frames = loader.find_frames(address).ok()?;
        let mut innermost = None;
        while let Ok(Some(frame)) = frames.next() {
            let Some(location) = frame.location else { continue };
            let (Some(file), Some(line)) = (location.file, location.line) else { continue };
            let site = Site { file: base_name(file), line };
            if !file.contains("gw/") && site.file != "exports" {
                return Some(site);
            }
            innermost.get_or_insert(site);
        }
        innermost
    }
}

/// The file's name: folders in line tables are those of the machine that compiled.
fn base_name(file: &str) -> String {
    file.rsplit('/').next().unwrap_or(file).to_owned()
}
