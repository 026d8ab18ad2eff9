//! Whether files fit before they are written.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::error::{Error, Result};

use super::{failed, folder_of};

/// Fails if new files of so many bytes do not fit on their disks.
pub(crate) fn require_space(files: &[(&Path, u64)]) -> Result<()> {
    let mut disks: BTreeMap<u64, (&Path, u64)> = BTreeMap::new();
    for &(path, bytes) in files {
        let folder = folder_of(path);
        let disk = folder.metadata().map_err(failed(folder, "read"))?.dev();
        let (_, needed) = disks.entry(disk).or_insert((folder, 0));
        *needed += bytes;
    }
    for (folder, needed) in disks.into_values() {
        let available = available_space(folder).map_err(failed(folder, "read"))?;
        if available < needed {
            return Err(Error::NoSpace { folder: folder.to_owned(), needed, available });
        }
    }
    Ok(())
}

fn available_space(folder: &Path) -> io::Result<u64> {
    let path = CString::new(folder.as_os_str().as_bytes())?;
    let mut found = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path ends with a zero, and the call writes the whole structure if it succeeds.
    let found = unsafe {
        if libc::statvfs(path.as_ptr(), found.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        found.assume_init()
    };
    Ok(found.f_bavail * found.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = ["a", "b"].map(|name| folder.path().join(name));
        let available = available_space(folder.path()).unwrap();
        assert!(require_space(&[(&one, 1000), (&other, 1000)]).is_ok());
        let share = available / 4 * 3;
        assert!(require_space(&[(&one, share)]).is_ok());
        let refused = require_space(&[(&one, share), (&other, share)]).unwrap_err();
        assert!(matches!(&refused, Error::NoSpace { needed, .. } if *needed == 2 * share), "{refused}");
        assert!(require_space(&[(&folder.path().join("none/c"), 1)]).is_err());
    }
}
