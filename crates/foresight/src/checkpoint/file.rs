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
use std::io::{self, BufReader, BufWriter, Cursor, Read, Seek, SeekFrom, Write};
use std::ops::RangeInclusive;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

const MAGIC: &[u8; 8] = b"GWFORESI";
pub(crate) const HEADER: usize = 8 + 4 + 8 + 32;
/// Bytes that are read or written at once.
const BLOCK: usize = 1 << 18;
/// The longest text in a file: of a network's layers, or the name of another file.
const LONGEST_TEXT: usize = 1 << 20;

/// What is in a file, and in which versions it can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Versions that are read. The last of them is written.
    pub versions: RangeInclusive<u32>,
    /// What to do with a file of another version.
    pub way_out: &'static str,
    /// What to do with a file of another fingerprint.
    pub of_another: &'static str,
}

/// Checkpoints of runs.
pub const RUNS: Layout = Layout {
    versions: 3..=3,
    way_out: "resume it with the program that wrote it",
    of_another: "use the configuration it was made with, and --device where it began on another device",
};

/// Writes a file beside its place, syncs it, and renames it there: whatever happens, a reader finds what was
/// there before or all of this. The payload goes to the disk as it is put into bytes: beside a large one there
/// is no room for its bytes.
pub fn write(path: &Path, layout: &Layout, fingerprint: &str, payload: &impl Serialize) -> Result<()> {
    let beside = path.with_extension("writing");
    let written = File::create(&beside)
        .map_err(Error::writing(path))
        .and_then(|file| write_whole(path, file, layout, fingerprint, payload));
    let placed = written.and_then(|()| {
        fs::rename(&beside, path).and_then(|()| sync_folder(path)).map_err(Error::writing(path))
    });
    // What is half-written helps nobody, and a full disk needs the room.
    placed.inspect_err(|_| drop(fs::remove_file(&beside)))
}

/// The body behind room for the header, which says how long it has become, and then the header.
fn write_whole(
    path: &Path,
    mut file: File,
    layout: &Layout,
    fingerprint: &str,
    payload: &impl Serialize,
) -> Result<()> {
    file.write_all(&[0; HEADER]).map_err(Error::writing(path))?;
    let body = Body { file, hash: blake3::Hasher::new(), failed: None };
    let mut writer = BufWriter::with_capacity(BLOCK, body);
    let put = postcard::to_io(&(fingerprint, payload), &mut writer).map(drop);
    // What is left of it is written, or has failed already.
    let flushed = writer.flush();
    let (Body { mut file, hash, failed }, _) = writer.into_parts();
    if let Some(source) = failed.or(flushed.err()) {
        return Err(Error::writing(path)(source));
    }
    put.map_err(|error| Error::checkpoint(path, format!("it cannot be put into bytes: {error}")))?;
    let mut header = Vec::with_capacity(HEADER);
    header.extend(MAGIC);
    header.extend(layout.versions.end().to_le_bytes());
    header.extend(hash.count().to_le_bytes());
    header.extend(hash.finalize().as_bytes());
    let finished = file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(&header));
    finished.and_then(|()| file.sync_all()).map_err(Error::writing(path))
}

/// A body on its way to a file, and its checksum.
struct Body {
    file: File,
    hash: blake3::Hasher,
    /// Why it could not be written, which the serializer does not tell.
    failed: Option<io::Error>,
}

impl Write for Body {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(failed) = &self.failed {
            return Err(failed.kind().into());
        }
        match self.file.write(bytes) {
            Ok(count) => {
                self.hash.update(&bytes[..count]);
                Ok(count)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let kind = error.kind();
                self.failed = Some(error);
                Err(kind.into())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A rename is on disk when its folder is.
fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => File::open(folder)?.sync_all(),
        None => File::open(".")?.sync_all(),
    }
}

/// Reads a file of `fingerprint`. One that is cut short, damaged, of another version or of another network is
/// refused with a sentence.
pub fn read<P: DeserializeOwned>(path: &Path, layout: &Layout, fingerprint: &str) -> Result<P> {
    let file = File::open(path).map_err(Error::reading(path))?;
    understand(path, file, layout, fingerprint)
}

/// As [`read`], from the bytes of a file that errors call `path`. Nothing holds more memory than there are
/// bytes, whatever lengths stand in them.
pub(crate) fn parse<P: DeserializeOwned>(
    path: &Path,
    bytes: &[u8],
    layout: &Layout,
    fingerprint: &str,
) -> Result<P> {
    check(path, Cursor::new(bytes), layout)?;
    let not_understood = |error| Error::checkpoint(path, format!("it cannot be understood: {error}"));
    let (found, rest): (String, &[u8]) =
        postcard::take_from_bytes(&bytes[HEADER..]).map_err(not_understood)?;
    require(path, &found, layout, fingerprint)?;
    postcard::from_bytes(rest).map_err(not_understood)
}

/// Reads it twice: nothing of it is understood before its checksum is right.
fn understand<P: DeserializeOwned>(
    path: &Path,
    mut source: impl Read + Seek,
    layout: &Layout,
    fingerprint: &str,
) -> Result<P> {
    let length = check(path, &mut source, layout)?;
    source.seek(SeekFrom::Start(HEADER as u64)).map_err(Error::reading(path))?;
    let reader = BufReader::with_capacity(BLOCK, source);
    let not_understood = |error| Error::checkpoint(path, format!("it cannot be understood: {error}"));
    let mut room = vec![0; LONGEST_TEXT.min(length as usize)];
    let (found, (reader, _)): (String, _) =
        postcard::from_io((reader, &mut room[..])).map_err(not_understood)?;
    require(path, &found, layout, fingerprint)?;
    let (payload, _) = postcard::from_io((reader, &mut room[..])).map_err(not_understood)?;
    Ok(payload)
}

/// Holds the header against what follows it, and says how many bytes that is.
fn check(path: &Path, mut source: impl Read, layout: &Layout) -> Result<u64> {
    let bad = |what: String| Err(Error::checkpoint(path, what));
    let mut header = Vec::with_capacity(HEADER);
    source.by_ref().take(HEADER as u64).read_to_end(&mut header).map_err(Error::reading(path))?;
    if header.len() < HEADER || &header[..8] != MAGIC {
        return bad("it is no checkpoint, or was cut short at its very beginning".into());
    }
    let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let version = word(8);
    if !layout.versions.contains(&version) {
        let (first, last) = (layout.versions.start(), layout.versions.end());
        let known = if first == last { format!("version {last}") } else { format!("{first} to {last}") };
        return bad(format!("it has version {version}, and this program reads {known}: {}", layout.way_out));
    }
    let length = u64::from(word(12)) | u64::from(word(16)) << 32;
    let mut hash = blake3::Hasher::new();
    hash.update_reader(&mut source).map_err(Error::reading(path))?;
    if length != hash.count() {
        return bad(format!("it says {length} bytes and holds {}: it was cut short", hash.count()));
    }
    if hash.finalize().as_bytes() != &header[20..HEADER] {
        return bad("its checksum is wrong: it was damaged".into());
    }
    Ok(length)
}

fn require(path: &Path, found: &str, layout: &Layout, fingerprint: &str) -> Result<()> {
    if found == fingerprint {
        return Ok(());
    }
    let what = format!("it is of '{found}', and this run is '{fingerprint}': {}", layout.of_another);
    Err(Error::checkpoint(path, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_damage_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.checkpoint");
        let payload: Vec<f32> = vec![1.0, f32::NAN, f32::MIN_POSITIVE / 2.0];
        write(&path, &RUNS, "net", &payload).unwrap();
        let back: Vec<f32> = read(&path, &RUNS, "net").unwrap();
        assert_eq!(back.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), {
            payload.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
        });
        let good = fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut damaged = good.clone();
            damaged[at] ^= 0x10;
            fs::write(&path, &damaged).unwrap();
            assert!(read::<Vec<f32>>(&path, &RUNS, "net").is_err(), "byte {at}");
            fs::write(&path, &good[..at]).unwrap();
            assert!(read::<Vec<f32>>(&path, &RUNS, "net").is_err(), "cut at {at}");
        }
    }

    #[test]
    fn another_network_or_version_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.checkpoint");
        write(&path, &RUNS, "64 > dense 64x10", &7u64).unwrap();
        let said = read::<u64>(&path, &RUNS, "2 > dense 2x2").unwrap_err().to_string();
        assert!(said.contains("'64 > dense 64x10'") && said.contains("'2 > dense 2x2'"), "{said}");
        let mut bytes = fs::read(&path).unwrap();
        bytes[8] = 9;
        fs::write(&path, bytes).unwrap();
        let said = read::<u64>(&path, &RUNS, "64 > dense 64x10").unwrap_err().to_string();
        assert!(said.contains("it has version 9, and this program reads version 3: resume it"), "{said}");
    }

    #[test]
    fn a_failed_write_leaves_the_one_before_and_no_litter() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.checkpoint");
        write(&path, &RUNS, "net", &1u64).unwrap();
        // A folder in the place of the temporary file: it cannot be created, as on a full disk.
        fs::create_dir(path.with_extension("writing")).unwrap();
        assert!(write(&path, &RUNS, "net", &2u64).unwrap_err().to_string().contains("cannot be written"));
        assert_eq!(read::<u64>(&path, &RUNS, "net").unwrap(), 1);
    }
}
