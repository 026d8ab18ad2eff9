//! One checkpoint file.
//!
//! ```text
//! 8 bytes   "GWFORESI"
//! 4 bytes   version, little-endian
//! 8 bytes   length of the body, little-endian
//! 32 bytes  BLAKE3 of the body
//! body      fingerprint and payload
//! ```

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

const MAGIC: &[u8; 8] = b"GWFORESI";
/// The layout of checkpoints that this crate writes, and the only one that it reads.
pub const VERSION: u32 = 3;
pub(crate) const HEADER: usize = 8 + 4 + 8 + 32;

/// Writes a checkpoint beside its place, syncs it, and renames it there: whatever happens, a reader finds
/// what was there before or all of this.
pub fn write(path: &Path, fingerprint: &str, payload: &impl Serialize) -> Result<()> {
    let body = postcard::to_stdvec(&(fingerprint, payload))
        .map_err(|error| Error::checkpoint(path, format!("it cannot be put into bytes: {error}")))?;
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend((body.len() as u64).to_le_bytes());
    bytes.extend(blake3::hash(&body).as_bytes());
    bytes.extend(body);
    let beside = path.with_extension("writing");
    let written = File::create(&beside).and_then(|mut file| {
        file.write_all(&bytes)?;
        file.sync_all()
    });
    let placed = written.and_then(|()| fs::rename(&beside, path)).and_then(|()| sync_folder(path));
    placed.map_err(|source| {
        // What is half-written helps nobody, and a full disk needs the room.
        let _ = fs::remove_file(&beside);
        Error::writing(path)(source)
    })
}

/// A rename is on disk when its folder is.
fn sync_folder(path: &Path) -> std::io::Result<()> {
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => File::open(folder)?.sync_all(),
        None => File::open(".")?.sync_all(),
    }
}

/// Reads a checkpoint of `fingerprint`. One that is cut short, damaged, of another version or of another
/// network is refused with a sentence.
pub fn read<P: DeserializeOwned>(path: &Path, fingerprint: &str) -> Result<P> {
    parse(path, &fs::read(path).map_err(Error::reading(path))?, fingerprint)
}

/// As [`read`], from the bytes of a file that errors call `path`.
pub(crate) fn parse<P: DeserializeOwned>(path: &Path, bytes: &[u8], fingerprint: &str) -> Result<P> {
    let bad = |what: String| Err(Error::checkpoint(path, what));
    if bytes.len() < HEADER || &bytes[..8] != MAGIC {
        return bad("it is no checkpoint, or was cut short at its very beginning".into());
    }
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let version = word(8);
    if version != VERSION {
        return bad(format!(
            "it has version {version}, and this program reads version {VERSION}: resume it with the program that \
             wrote it"
        ));
    }
    let length = u64::from(word(12)) | u64::from(word(16)) << 32;
    let body = &bytes[HEADER..];
    if length != body.len() as u64 {
        return bad(format!("it says {length} bytes and holds {}: it was cut short", body.len()));
    }
    if blake3::hash(body).as_bytes() != &bytes[20..HEADER] {
        return bad("its checksum is wrong: it was damaged".into());
    }
    let (found, rest): (String, &[u8]) = postcard::take_from_bytes(body)
        .map_err(|error| Error::checkpoint(path, format!("it cannot be understood: {error}")))?;
    if found != fingerprint {
        return bad(format!(
            "it is of '{found}', and this run is '{fingerprint}': use the configuration it was made with"
        ));
    }
    postcard::from_bytes(rest)
        .map_err(|error| Error::checkpoint(path, format!("it cannot be understood: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_damage_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.checkpoint");
        let payload: Vec<f32> = vec![1.0, f32::NAN, f32::MIN_POSITIVE / 2.0];
        write(&path, "net", &payload).unwrap();
        let back: Vec<f32> = read(&path, "net").unwrap();
        assert_eq!(back.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), {
            payload.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
        });
        let good = fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut damaged = good.clone();
            damaged[at] ^= 0x10;
            fs::write(&path, &damaged).unwrap();
            assert!(read::<Vec<f32>>(&path, "net").is_err(), "byte {at}");
            fs::write(&path, &good[..at]).unwrap();
            assert!(read::<Vec<f32>>(&path, "net").is_err(), "cut at {at}");
        }
    }

    #[test]
    fn another_network_or_version_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.checkpoint");
        write(&path, "64 > dense 64x10", &7u64).unwrap();
        let said = read::<u64>(&path, "2 > dense 2x2").unwrap_err().to_string();
        assert!(said.contains("'64 > dense 64x10'") && said.contains("'2 > dense 2x2'"), "{said}");
        let mut bytes = fs::read(&path).unwrap();
        bytes[8] = 9;
        fs::write(&path, bytes).unwrap();
        assert!(read::<u64>(&path, "64 > dense 64x10").unwrap_err().to_string().contains("version 9"));
    }

    #[test]
    fn a_failed_write_leaves_the_one_before_and_no_litter() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.checkpoint");
        write(&path, "net", &1u64).unwrap();
        // A folder in the place of the temporary file: it cannot be created, as on a full disk.
        fs::create_dir(path.with_extension("writing")).unwrap();
        assert!(write(&path, "net", &2u64).unwrap_err().to_string().contains("cannot be written"));
        assert_eq!(read::<u64>(&path, "net").unwrap(), 1);
    }
}
