//! Event files of TensorBoard: a record is its length, a checksum of that, the event, a checksum of that.
//!
//! The event is a protocol buffer: `wall_time = 1` (double), `step = 2` (varint), `file_version = 3`
//! (string), and `summary = 5` with `value = 1` of `tag = 1` (string) and `simple_value = 2` (float).

/// The cyclic redundancy check with Castagnoli's polynomial, as `x86` and `iSCSI` have it.
pub fn crc32c(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = table();
    !bytes.iter().fold(!0, |crc: u32, &byte| (crc >> 8) ^ TABLE[usize::from(crc as u8 ^ byte)])
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ ((crc & 1) * 0x82f6_3b78);
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

/// A checksum of bytes that themselves end in checksums would be weak, so that TensorFlow rotates it and adds
/// a constant.
fn masked(bytes: &[u8]) -> [u8; 4] {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

fn record(event: &[u8]) -> Vec<u8> {
    let length = (event.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), event, &masked(event)].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A field that has a length: strings and messages.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2][..], &varint(content.len() as u64), content].concat()
}

fn time(seconds: f64) -> Vec<u8> {
    [&[1 << 3 | 1][..], &seconds.to_le_bytes()].concat()
}

/// The record that every file begins with.
pub fn version_event(seconds: f64) -> Vec<u8> {
    record(&[time(seconds), field(3, b"brain.Event:2")].concat())
}

/// A record of one number at a step.
pub fn scalar_event(seconds: f64, step: u64, tag: &str, value: f32) -> Vec<u8> {
    let value = [field(1, tag.as_bytes()), [&[2 << 3 | 5][..], &value.to_le_bytes()].concat()].concat();
    let summary = field(1, &value);
    record(&[time(seconds), [&[2 << 3][..], &varint(step)].concat(), field(5, &summary)].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_standard() {
        // RFC 3720, appendix B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn a_record_has_its_length_and_checksums() {
        let bytes = scalar_event(1.5, 300, "loss", 0.25);
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        assert_eq!(bytes.len(), 8 + 4 + length + 4);
        assert_eq!(bytes[8..12], masked(&bytes[..8]));
        assert_eq!(bytes[12 + length..], masked(&bytes[12..12 + length]));
        assert_eq!(bytes[12..21], [&[9][..], &1.5f64.to_le_bytes()].concat());
        assert_eq!(bytes[21..24], [16, 0xac, 0x02]);
        assert!(bytes.windows(4).any(|window| window == b"loss"));
    }
}
