//! Bytes of a file that must not stay.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;

use super::CHUNK;

/// Erases a part of a file: its blocks are given back, or overwritten where the file system cannot do that.
pub(super) fn punch(file: &File, start: u64, length: u64) -> io::Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: the descriptor is open for as long as `file` is, and the call touches no memory of this
    // process.
    let outcome = unsafe { libc::fallocate(file.as_raw_fd(), mode, start as i64, length as i64) };
    if outcome == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() != Some(libc::EOPNOTSUPP) {
        return Err(error);
    }
    overwrite(file, start, length)
}

pub(super) fn overwrite(file: &File, start: u64, length: u64) -> io::Result<()> {
    let zeros = vec![0; CHUNK];
    let mut at = start;
    while at < start + length {
        let count = (start + length - at).min(CHUNK as u64) as usize;
        file.write_all_at(&zeros[..count], at)?;
        at += count as u64;
    }
    Ok(())
}
