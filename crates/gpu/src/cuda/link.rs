//! PTX to a cubin for the card at hand, by the driver's own compiler.

use std::ffi::{CString, c_void};
use std::ptr;

use cudarc::driver::sys::{self, CUjit_option, CUjitInputType, CUlinkState};

use crate::cuda::status::{check, check_release};
use crate::{Error, Result};

/// Bytes of what the compiler says that are kept.
const LOG: usize = 16 << 10;

/// Compiles PTX for the device of the current context. The cubin is wanted for what it says of its kernels,
/// which a module that the driver compiled by itself would not.
pub(super) fn cubin(name: &str, text: &str) -> Result<Vec<u8>> {
    let refused =
        |log: String| Error::Compile { kernel: name.to_owned(), compiler: "the driver".to_owned(), log };
    let text = CString::new(text)
        .map_err(|error| refused(format!("the PTX has a NUL character at byte {}", error.nul_position())))?;
    let shown = CString::new(name).unwrap_or_default();
    let mut log = vec![0u8; LOG];
    let mut options =
        [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    // A number is passed as if it were a pointer.
    let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), ptr::without_provenance_mut(LOG)];
    let mut state = Linker(ptr::null_mut());
    // SAFETY: both lists have two entries; they and the log live until the linker is destroyed, which `state`
    // sees to at the latest. The call writes the linker.
    let status = unsafe {
        sys::cuLinkCreate_v2(options.len() as u32, options.as_mut_ptr(), values.as_mut_ptr(), &mut state.0)
    };
    check("cuLinkCreate", status)?;
    let bytes = text.as_bytes_with_nul();
    // SAFETY: the linker is alive; text and name end in NUL, and the call copies what it needs of them.
    let status = unsafe {
        sys::cuLinkAddData_v2(
            state.0,
            CUjitInputType::CU_JIT_INPUT_PTX,
            bytes.as_ptr().cast_mut().cast(),
            bytes.len(),
            shown.as_ptr(),
            0,
            ptr::null_mut(),
            ptr::null_mut(),
        )
    };
    let (mut image, mut size) = (ptr::null_mut(), 0);
    let linked = check("cuLinkAddData", status).and_then(|()| {
        // SAFETY: the linker is alive, and both are written by the call.
        check("cuLinkComplete", unsafe { sys::cuLinkComplete(state.0, &mut image, &mut size) })
    });
    if let Err(error) = linked {
        // The linker writes to the log until it is gone.
        drop(state);
        let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
        let said = String::from_utf8_lossy(&log[..end]).into_owned();
        return Err(refused(if said.is_empty() { error.to_string() } else { said }));
    }
    // SAFETY: the linker made `size` bytes at `image`, which are its own until it is destroyed.
    Ok(unsafe { std::slice::from_raw_parts(image.cast::<u8>(), size) }.to_vec())
}

/// Destroyed at the end of its scope.
struct Linker(CUlinkState);

impl Drop for Linker {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: created once, destroyed once.
            check_release("cuLinkDestroy", unsafe { sys::cuLinkDestroy(self.0) });
        }
    }
}
