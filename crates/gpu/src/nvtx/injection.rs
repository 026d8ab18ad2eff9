//! NVTX without its library: a tool brings functions of its own, as version 3 of NVTX has it.
//!
//! The tool's library exports `InitializeInjectionNvtx2`. It is given a function that hands out tables by
//! number; through the table of callbacks it asks for the slots of each module's functions, and writes its
//! own into them.

use std::ffi::{OsStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use libloading::Library;

use super::{Ranges, words};

/// How many functions each module of NVTX has, and one more; by the module's number. Most are never called
/// here, but a tool may refuse to work without them.
const MODULE_SIZES: [usize; 7] = [0, 16, 9, 15, 7, 16, 7];
const MOST: usize = 16;
const CORE: usize = 1;
const RANGE_PUSH: usize = 9;
const RANGE_POP: usize = 11;

const CALLBACKS: u32 = 1;
const VERSION_INFO: u32 = 3;
/// The version of NVTX whose tables these are.
const NVTX_VERSION: u32 = 3;

/// Where the tool writes its functions.
static SLOTS: [[AtomicPtr<c_void>; MOST]; 7] =
    [const { [const { AtomicPtr::new(ptr::null_mut()) }; MOST] }; 7];

/// Addresses of the slots, as tables that a tool is given.
struct Tables([[*const AtomicPtr<c_void>; MOST]; 7]);
// SAFETY: they point to statics that are atomic.
unsafe impl Send for Tables {}
// SAFETY: as above.
unsafe impl Sync for Tables {}

#[repr(C)]
struct CallbacksTable {
    struct_size: usize,
    get_module_function_table:
        unsafe extern "C" fn(c_uint, *mut *const *const AtomicPtr<c_void>, *mut c_uint) -> c_int,
}

#[repr(C)]
struct VersionTable {
    struct_size: usize,
    version: u32,
    reserved: u32,
    set_injection_version: unsafe extern "C" fn(u32),
}

static CALLBACKS_TABLE: CallbacksTable = CallbacksTable {
    struct_size: size_of::<CallbacksTable>(),
    get_module_function_table: module_function_table,
};

static VERSION_TABLE: VersionTable = VersionTable {
    struct_size: size_of::<VersionTable>(),
    version: NVTX_VERSION,
    reserved: 0,
    set_injection_version: ignore_version,
};

type GetExportTable = unsafe extern "C" fn(u32) -> *const c_void;

/// Loads a tool's library and lets it install its functions.
pub(super) fn ranges(path: &OsStr) -> Result<Ranges, String> {
    let shown = path.to_string_lossy();
    let failed = |error: libloading::Error| format!("NVTX_INJECTION64_PATH={shown}: {}", words(&error));
    // SAFETY: whoever set the variable wants the library loaded into this process, its initialisers too.
    let library = unsafe { Library::new(path) }.map_err(failed)?;
    // Never closed: its functions are called until the end of the process.
    let library: &'static Library = Box::leak(Box::new(library));
    // SAFETY: that is the signature of the function.
    let initialize = unsafe {
        *library
            .get::<unsafe extern "C" fn(GetExportTable) -> c_int>(b"InitializeInjectionNvtx2")
            .map_err(failed)?
    };
    // SAFETY: the function takes one that hands out tables, and calls it before it returns or later; those
    // are static.
    if unsafe { initialize(export_table) } == 0 {
        return Err(format!("{shown} does not want to hear of ranges"));
    }
    let installed = |slot: usize| SLOTS[CORE][slot].load(Ordering::Acquire);
    let (push, pop) = (installed(RANGE_PUSH), installed(RANGE_POP));
    if push.is_null() || pop.is_null() {
        return Err(format!("{shown} hears of other things, but not of ranges of a thread"));
    }
    // SAFETY: a tool writes functions of these signatures into these slots.
    unsafe {
        Ok(Ranges {
            push: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_char) -> c_int>(push),
            pop: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(pop),
        })
    }
}

unsafe extern "C" fn export_table(number: u32) -> *const c_void {
    match number {
        CALLBACKS => (&raw const CALLBACKS_TABLE).cast(),
        VERSION_INFO => (&raw const VERSION_TABLE).cast(),
        _ => ptr::null(),
    }
}

unsafe extern "C" fn module_function_table(
    module: c_uint,
    table: *mut *const *const AtomicPtr<c_void>,
    size: *mut c_uint,
) -> c_int {
    static TABLES: OnceLock<Tables> = OnceLock::new();
    let Some(&functions) = MODULE_SIZES.get(module as usize).filter(|size| **size > 0) else { return 0 };
    let tables =
        TABLES.get_or_init(|| Tables(SLOTS.each_ref().map(|module| module.each_ref().map(ptr::from_ref))));
    // SAFETY: the tool passes places for both answers, or none.
    unsafe {
        if !table.is_null() {
            *table = tables.0[module as usize].as_ptr();
        }
        if !size.is_null() {
            *size = functions as c_uint;
        }
    }
    1
}

unsafe extern "C" fn ignore_version(_version: u32) {}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A tool as they are written, in C++.
    const TOOL: &str = r#"
        #include <cstddef>
        #include <cstdint>
        #include <cstring>
        typedef void (*Function)();
        typedef Function** Table;
        struct Callbacks { size_t size; int (*module)(unsigned, Table*, unsigned*); };
        struct Version { size_t size; uint32_t version, reserved; void (*set)(uint32_t); };
        static char heard[256];
        static int push(const char* name) { strcat(heard, name); strcat(heard, ";"); return 0; }
        static int pop() { strcat(heard, "end;"); return 0; }
        extern "C" const char* tool_heard() { return heard; }
        extern "C" int InitializeInjectionNvtx2(const void* (*get)(uint32_t)) {
            const Callbacks* callbacks = (const Callbacks*)get(1);
            const Version* version = (const Version*)get(3);
            if (!callbacks || callbacks->size < sizeof(Callbacks) || !version || version->version < 3) return 0;
            version->set(3);
            if (get(2) || callbacks->module(0, nullptr, nullptr) || callbacks->module(7, nullptr, nullptr)) return 0;
            for (unsigned module = 1; module <= 6; ++module) {
                Table table = nullptr;
                unsigned size = 0;
                if (!callbacks->module(module, &table, &size) || !table || size < 7) return 0;
                // Those that nobody calls are there to be written too.
                for (unsigned slot = 1; slot < size; ++slot) *table[slot] = nullptr;
                if (module == 1) {
                    *table[9] = (Function)push;
                    *table[11] = (Function)pop;
                }
            }
            return WANTED;
        }
    "#;

    fn tool(folder: &std::path::Path, name: &str, wanted: &str) -> std::path::PathBuf {
        let (source, library) = (folder.join(format!("{name}.cpp")), folder.join(format!("{name}.so")));
        std::fs::write(&source, TOOL).unwrap();
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
        let compiled = Command::new(compiler)
            .args(["-shared", "-fPIC", "-o"])
            .args([&library, &source])
            .arg(format!("-DWANTED={wanted}"))
            .status()
            .unwrap();
        assert!(compiled.success());
        library
    }

    #[test]
    fn a_tool_installs_its_functions_and_hears_of_ranges() {
        let folder = tempfile::tempdir().unwrap();
        let refused = ranges(tool(folder.path(), "unwilling", "0").as_os_str()).unwrap_err();
        assert!(refused.contains("does not want to hear"), "{refused}");
        let path = tool(folder.path(), "willing", "1");
        let ranges = ranges(path.as_os_str()).unwrap();
        ranges.open("stage");
        ranges.open("with a \0 inside");
        ranges.close();
        ranges.close();
        // SAFETY: the library is loaded already, and the function returns a text that ends in NUL.
        let heard = unsafe {
            let library = Library::new(&path).unwrap();
            let heard = *library.get::<unsafe extern "C" fn() -> *const c_char>(b"tool_heard").unwrap();
            std::ffi::CStr::from_ptr(heard()).to_string_lossy().into_owned()
        };
        assert_eq!(heard, "stage;;end;end;");
    }

    #[test]
    fn a_library_that_is_no_tool_is_refused() {
        assert!(ranges(OsStr::new("/nowhere/tool.so")).unwrap_err().contains("NVTX_INJECTION64_PATH"));
        assert!(ranges(OsStr::new("libc.so.6")).unwrap_err().contains("InitializeInjectionNvtx2"));
    }
}
