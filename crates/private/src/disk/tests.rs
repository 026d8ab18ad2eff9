//! Files that were read back, damaged, exchanged or used twice.

use std::fs::{self, Permissions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use gatework_fss::key::KeySink as _;
use gatework_fss::{FixedPoint, Party};
use tempfile::TempDir;
use zeroize::Zeroizing;

use super::*;

/// Lengths that end within, at and behind the end of a chunk; one is long enough to be read ahead.
const LENGTHS: [u64; 4] = [100, CHUNK as u64 - 16, 6 * CHUNK as u64 + 5, 0];

fn header(session: u8) -> KeyHeader {
    let tokens = [0, 16, 16, 3];
    KeyHeader {
        party: Party::One,
        format: FixedPoint::new(50, 12).unwrap(),
        session: [session; 32],
        model: [2; 32],
        weights: [3; 32],
        public_key: 4,
        pairing: Box::new(Zeroizing::new([session; 32])),
        sections: tokens
            .into_iter()
            .zip(LENGTHS)
            .map(|(tokens, length)| SectionEntry { tokens, length })
            .collect(),
    }
}

fn material(section: usize) -> Vec<u8> {
    (0..LENGTHS[section]).map(|i| (i * 31 + section as u64 * 7 + (i >> 8)) as u8).collect()
}

fn written(folder: &Path, name: &str, session: u8) -> PathBuf {
    let path = folder.join(name);
    let mut writer = KeyFileWriter::create(&path, header(session)).unwrap();
    for section in 0..LENGTHS.len() {
        writer.begin(section as u128 + 100).unwrap();
        material(section).chunks(300_000).for_each(|piece| writer.write(piece).unwrap());
        writer.end().unwrap();
    }
    writer.finish().unwrap();
    path
}

fn fresh() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path(), "client.keys", 1);
    (folder, path)
}

fn read(keys: &mut KeyFile, section: usize) -> Result<(u128, Vec<u8>)> {
    let stream = if section == 0 { keys.set_up() } else { keys.spend(&[section]) }?;
    let mut section = stream.into_sections().remove(0);
    let mut bytes = Vec::new();
    while bytes.len() < section.length() as usize {
        let count = 70_001.min(section.length() as usize - bytes.len());
        bytes.extend_from_slice(section.take(count)?.as_slice());
    }
    Ok((section.seed(), bytes))
}

#[test]
fn a_file_reads_back_once() {
    let (_folder, path) = fresh();
    let size = fs::metadata(&path).unwrap();
    assert_eq!(size.len(), LENGTHS.iter().sum::<u64>() + overhead_bytes(LENGTHS.into_iter()));
    assert_eq!(size.permissions().mode() & 0o777, 0o600);
    let mut keys = KeyFile::open(&path, Party::One).unwrap();
    assert_eq!(keys.unused(16).collect::<Vec<_>>(), [1, 2]);
    for section in [0, 2, 0, 1] {
        assert_eq!(read(&mut keys, section).unwrap(), (section as u128 + 100, material(section)));
    }
    drop(keys);
    let mut keys = KeyFile::open(&path, Party::One).unwrap();
    assert_eq!(read(&mut keys, 0).unwrap().1, material(0), "the set-up may be read again");
    assert_eq!(read(&mut keys, 3).unwrap().1, material(3));
    assert_eq!(keys.unused(16).count(), 0);
    for section in 1..4 {
        assert!(matches!(read(&mut keys, section), Err(Error::Reused { .. })));
    }
    drop(keys);
    let mut keys = KeyFile::open(&path, Party::One).unwrap();
    assert!(matches!(read(&mut keys, 1), Err(Error::Reused { section: 1 })));
    let gone = read(&mut keys, 0).unwrap_err().to_string();
    assert!(gone.contains("used up"), "the set-up goes with the last key: {gone}");
}

#[test]
fn held_sections_are_whole_and_gone_from_the_file() {
    let (_folder, path) = fresh();
    let mut keys = KeyFile::open(&path, Party::One).unwrap();
    let (stream, held) = keys.hold(&[2, 1]).unwrap();
    for (mut section, number) in stream.into_sections().into_iter().zip([2, 1]) {
        assert_eq!(section.seed(), number as u128 + 100);
        let length = section.length() as usize;
        assert_eq!(section.take(length).unwrap().as_slice(), material(number));
    }
    drop(held.wipe());
    assert_eq!(keys.used_bytes_left().unwrap(), 0);
    assert!(matches!(keys.hold(&[1]), Err(Error::Reused { section: 1 })));
    assert!(matches!(keys.hold(&[0]), Err(Error::Reused { section: 0 })), "the masks of the weights");
    drop(keys);
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 40;
    bytes[last] ^= 1;
    fs::write(&path, bytes).unwrap();
    let mut keys = KeyFile::open(&path, Party::One).unwrap();
    let refused = keys.hold(&[3]).err().unwrap().to_string();
    assert!(refused.contains("section 3 was altered"), "{refused}");
    assert_eq!(keys.used_bytes_left().unwrap(), 0, "what cannot be read is used up too");
}

#[test]
fn what_is_read_ahead_comes_in_order_and_fails_where_it_is_used() {
    let (_folder, path) = fresh();
    let start = header(1).offset_of(2) as usize;
    let mut bytes = fs::read(&path).unwrap();
    // In the fifth chunk.
    bytes[start + 4 * (CHUNK + HASH) + 1000] ^= 1;
    fs::write(&path, bytes).unwrap();
    let mut keys = KeyFile::open(&path, Party::One).unwrap();
    let mut section = keys.spend(&[2]).unwrap().into_sections().remove(0);
    let expected = material(2);
    let mut at = 0;
    // Within a chunk, across an end, several chunks at once, up to the last byte before the damage.
    for count in [10, 1000, CHUNK, 2 * CHUNK + 7, CHUNK - 16 - 1017] {
        assert_eq!(
            section.take(count).unwrap().as_slice(),
            &expected[at..at + count],
            "{count} bytes from {at}"
        );
        at += count;
    }
    assert_eq!(at, 4 * CHUNK - 16);
    for _ in 0..2 {
        let error = section.take(1).err().unwrap().to_string();
        assert!(
            error.contains("section 2 was altered or used up in chunk 4") || error.contains("up to here"),
            "{error}"
        );
    }
    drop(section);
    assert_eq!(keys.used_bytes_left().unwrap(), 0, "what was not read is used up too");
}

#[test]
fn what_was_used_is_erased_though_its_last_chunk_is_damaged() {
    let (_folder, path) = fresh();
    let file = File::options().write(true).open(&path).unwrap();
    let last = header(1).offset_of(3) - HASH as u64 - 1;
    file.write_all_at(&[0xa5], last).unwrap();
    // Read as it is used, to the last byte but a few.
    let mut keys = KeyFile::open(&path, Party::One).unwrap();
    assert!(read(&mut keys, 2).is_err());
    assert_eq!(keys.used_bytes_left().unwrap(), 0);
    // Held as a whole, with one before it that is sound.
    let (_folder, path) = fresh();
    File::options().write(true).open(&path).unwrap().write_all_at(&[0xa5], last).unwrap();
    let mut keys = KeyFile::open(&path, Party::One).unwrap();
    assert!(keys.hold(&[2, 1]).is_err());
    assert_eq!(keys.used_bytes_left().unwrap(), 0, "the one behind it is used up, too");
}

#[test]
fn what_lies_where_the_next_ledger_goes_does_not_matter() {
    let (folder, path) = fresh();
    let next = PathBuf::from(format!("{}.ledger.next", path.display()));
    let elsewhere = folder.path().join("elsewhere");
    fs::write(&elsewhere, b"untouched").unwrap();
    std::os::unix::fs::symlink(&elsewhere, &next).unwrap();
    let mut keys = KeyFile::open(&path, Party::One).unwrap();
    keys.spend(&[1]).unwrap();
    assert_eq!(fs::read(&elsewhere).unwrap(), b"untouched");
    // One that everybody may write to does not pass its mode on.
    fs::write(&next, b"old").unwrap();
    fs::set_permissions(&next, Permissions::from_mode(0o666)).unwrap();
    keys.spend(&[3]).unwrap();
    assert_eq!(fs::metadata(Ledger::path_beside(&path)).unwrap().permissions().mode() & 0o777, 0o600);
    drop(keys);
    assert!(KeyFile::open(&path, Party::One).is_ok());
}

#[test]
fn a_ledger_of_another_version_is_named_as_such() {
    let (_folder, path) = fresh();
    let ledger = Ledger::path_beside(&path);
    let mut bytes = fs::read(&ledger).unwrap();
    bytes[9] = 0;
    fs::write(&ledger, bytes).unwrap();
    let error = KeyFile::open(&path, Party::One).err().unwrap().to_string();
    assert!(error.contains("it has version 0, this program reads 1: have new keys dealt"), "{error}");
}

#[test]
fn a_section_that_is_left_in_the_middle_is_erased() {
    let (_folder, path) = fresh();
    let mut keys = KeyFile::open(&path, Party::One).unwrap();
    let mut section = keys.spend(&[2]).unwrap().into_sections().remove(0);
    section.take(CHUNK + 1).unwrap();
    drop(section);
    assert_eq!(keys.used_bytes_left().unwrap(), 0);
}

#[test]
fn used_keys_are_no_longer_in_the_file() {
    let (_folder, path) = fresh();
    let blocks = fs::metadata(&path).unwrap().blocks();
    let mut keys = KeyFile::open(&path, Party::One).unwrap();
    read(&mut keys, 1).unwrap();
    // Of the third only the seed is taken before an inference ends early.
    drop(keys.spend(&[2]).unwrap());
    let bytes = fs::read(&path).unwrap();
    let start = header(1).offset_of(1) as usize;
    let end = header(1).offset_of(3) as usize;
    assert!(bytes[start..end].iter().all(|&byte| byte == 0));
    assert!(bytes[end..].iter().any(|&byte| byte != 0) && bytes[..start].iter().any(|&byte| byte != 0));
    assert!(fs::metadata(&path).unwrap().blocks() < blocks / 2);
}

#[test]
fn what_a_killed_process_left_is_erased_at_the_next_start() {
    let (_folder, path) = fresh();
    let mut keys = KeyFile::open(&path, Party::One).unwrap();
    std::mem::forget(keys.spend(&[2]).unwrap());
    assert!(keys.used_bytes_left().unwrap() > CHUNK / 2);
    // The seed is gone already: masks follow from it.
    let (bytes, start) = (fs::read(&path).unwrap(), header(1).offset_of(2) as usize);
    assert!(bytes[start..start + SEED].iter().all(|&byte| byte == 0));
    drop(keys);
    let mut keys = KeyFile::open(&path, Party::One).unwrap();
    assert_eq!(keys.used_bytes_left().unwrap(), 0);
    keys.catch_up(&[0b10]).unwrap();
    assert!(keys.ledger.is_used(1));
    assert_eq!(keys.used_bytes_left().unwrap(), 0);
}

#[test]
fn a_deal_into_one_file_under_two_names_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.keys");
    let same = folder.path().join(".").join("a.keys");
    let _first = KeyFileWriter::create(&path, header(1)).unwrap();
    assert!(KeyFileWriter::create(&same, header(1)).err().unwrap().to_string().contains("another deal"));
}

#[test]
fn a_restored_ledger_does_not_bring_keys_back() {
    let (_folder, path) = fresh();
    let ledger = Ledger::path_beside(&path);
    let old = fs::read(&ledger).unwrap();
    let mut keys = KeyFile::open(&path, Party::One).unwrap();
    read(&mut keys, 1).unwrap();
    let bits = keys.ledger.bits();
    drop(keys);
    fs::write(&ledger, old).unwrap();
    let mut keys = KeyFile::open(&path, Party::One).unwrap();
    assert!(!keys.ledger.is_used(1), "the old ledger knows nothing");
    // The bytes are gone all the same.
    let error = keys.spend(&[1]).err().unwrap().to_string();
    assert!(error.contains("altered or used up"), "{error}");
    // The peer's ledger tells what a whole backup would hide.
    keys.ledger.catch_up(&[0b100]).unwrap();
    assert_eq!(keys.ledger.bits(), [bits[0] | 0b100]);
    assert!(matches!(keys.ledger.catch_up(&[0b1_0000]), Err(Error::Peer { .. })));
    assert!(matches!(keys.ledger.catch_up(&[0, 0]), Err(Error::Peer { .. })));
}

#[test]
fn the_ledger_moves_all_or_nothing() {
    let (_folder, path) = fresh();
    let mut keys = KeyFile::open(&path, Party::One).unwrap();
    for refused in [&[1, 1][..], &[1, 4], &[0], &[2, 0], &[usize::MAX]] {
        assert!(matches!(keys.spend(refused), Err(Error::Reused { .. })), "{refused:?}");
    }
    assert_eq!(keys.ledger.bits(), [0]);
    keys.spend(&[3, 1]).unwrap();
    assert_eq!(keys.ledger.bits(), [0b1010]);
}

#[test]
fn damage_anywhere_is_noticed_before_it_is_used() {
    let (_folder, path) = fresh();
    let whole = fs::read(&path).unwrap();
    let outcome = || -> Result<()> {
        let mut keys = KeyFile::open(&path, Party::One)?;
        (0..LENGTHS.len()).try_for_each(|section| read(&mut keys, section).map(drop))
    };
    let places = (0..40).map(|i| i * (whole.len() - 1) / 39);
    for place in places {
        let mut bytes = whole.clone();
        bytes[place] ^= 0x10;
        fs::write(&path, bytes).unwrap();
        fs::remove_file(Ledger::path_beside(&path)).unwrap();
        Ledger::create(&path, &header(1)).unwrap();
        assert!(matches!(outcome(), Err(Error::KeyFile { .. })), "byte {place}");
    }
    for length in [0, 10, 200, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        assert!(matches!(outcome(), Err(Error::KeyFile { .. })), "{length} bytes");
    }
    fs::write(&path, [&whole[..], &[0]].concat()).unwrap();
    assert!(matches!(outcome(), Err(Error::KeyFile { .. })), "a byte more");
}

#[test]
fn chunks_that_were_moved_or_come_from_elsewhere_are_refused() {
    let (folder, path) = fresh();
    let other = written(folder.path(), "other.keys", 9);
    let stride = CHUNK + HASH;
    let start = header(1).offset_of(2) as usize;
    let refused = |bytes: Vec<u8>| {
        fs::write(&path, bytes).unwrap();
        let mut keys = KeyFile::open(&path, Party::One).unwrap();
        let error = read(&mut keys, 2).unwrap_err().to_string();
        drop(keys);
        fs::remove_file(Ledger::path_beside(&path)).unwrap();
        Ledger::create(&path, &header(1)).unwrap();
        error.contains("altered")
    };
    let whole = fs::read(&path).unwrap();
    let mut exchanged = whole.clone();
    let (first, second) = exchanged[start..start + 2 * stride].split_at_mut(stride);
    first.swap_with_slice(second);
    assert!(refused(exchanged));
    let mut foreign = whole.clone();
    foreign[start..start + stride].copy_from_slice(&fs::read(&other).unwrap()[start..start + stride]);
    assert!(refused(foreign));
    fs::write(&path, whole).unwrap();
    assert!(read(&mut KeyFile::open(&path, Party::One).unwrap(), 2).is_ok());
}

#[test]
fn files_of_others_are_refused() {
    let (folder, path) = fresh();
    let error = |path: &Path, party| KeyFile::open(path, party).err().unwrap().to_string();
    assert!(matches!(
        KeyFile::open(&path, Party::Zero),
        Err(Error::Fss(gatework_fss::Error::WrongParty { .. }))
    ));
    let open = KeyFile::open(&path, Party::One).unwrap();
    assert!(error(&path, Party::One).contains("another process uses it"));
    drop(open);
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    assert!(error(&path, Party::One).contains("others may read it (mode 640)"));
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    // The ledger of another deal, none, and one that was altered.
    let ledger = Ledger::path_beside(&path);
    let other = written(folder.path(), "other.keys", 9);
    let mine = fs::read(&ledger).unwrap();
    fs::copy(Ledger::path_beside(&other), &ledger).unwrap();
    assert!(error(&path, Party::One).contains("another key file"));
    fs::remove_file(&ledger).unwrap();
    assert!(error(&path, Party::One).contains("client.keys.ledger"));
    for place in 0..mine.len() {
        let mut altered = mine.clone();
        altered[place] ^= 1;
        fs::write(&ledger, altered).unwrap();
        fs::set_permissions(&ledger, Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(KeyFile::open(&path, Party::One), Err(Error::KeyFile { .. })));
    }
    // One whose bits were changed by somebody who has no key file, and whose hash is made right as far as
    // that goes.
    let content = mine.len() - HASH;
    let mut forged = mine.clone();
    forged[content - 1] ^= 0b10;
    let hash = blake3::hash(&forged[..content]);
    forged[content..].copy_from_slice(hash.as_bytes());
    fs::write(&ledger, forged).unwrap();
    assert!(error(&path, Party::One).contains("it was altered"));
    fs::write(&ledger, mine).unwrap();
    fs::set_permissions(&ledger, Permissions::from_mode(0o620)).unwrap();
    assert!(error(&path, Party::One).contains("others may write to it (mode 620)"));
    fs::set_permissions(&ledger, Permissions::from_mode(0o600)).unwrap();
    assert!(KeyFile::open(&path, Party::One).is_ok());
}

#[test]
fn an_unfinished_deal_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("client.keys");
    let mut writer = KeyFileWriter::create(&path, header(1)).unwrap();
    writer.begin(1).unwrap();
    writer.write(&[1; 99]).unwrap();
    assert!(writer.end().unwrap_err().to_string().contains("99 bytes long"));
    assert!(writer.finish().unwrap_err().to_string().contains("missing"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let path = written(folder.path(), "client.keys", 1);
    assert!(KeyFileWriter::create(&path, header(1)).err().unwrap().to_string().contains("exists already"));
}

#[test]
fn where_holes_cannot_be_punched_zeros_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, vec![7; 3 * CHUNK]).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    erase::overwrite(&file, 5, 2 * CHUNK as u64).unwrap();
    let mut ends = [0; 2];
    file.read_exact_at(&mut ends[..1], 4).unwrap();
    file.read_exact_at(&mut ends[1..], 5 + 2 * CHUNK as u64).unwrap();
    assert_eq!(ends, [7, 7]);
    assert_eq!(fs::read(&path).unwrap().iter().filter(|&&byte| byte == 0).count(), 2 * CHUNK);
}
