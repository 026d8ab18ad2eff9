//! Inputs that are almost right.

/// Makes inputs from those that are right, the same for the same seed.
///
/// Half of the changes know what files are made of: numbers in text and in bytes, pairs of brackets, lines,
/// keys and values. The others are those that every fuzzer makes.
pub struct Mutator {
    state: u64,
}

/// Numbers at which arithmetic goes wrong, as text has them.
const EDGES: [&str; 16] = [
    "0",
    "-1",
    "1e308",
    "-1e999",
    "1e-320",
    "nan",
    "18446744073709551615",
    "18446744073709551616",
    "9223372036854775807",
    "-9223372036854775808",
    "4294967295",
    "4294967296",
    "2147483647",
    "9007199254740993",
    "65537",
    "0.1",
];
/// What an unlucky editor, an old system or an attacker puts into text.
const INTRUDERS: [&[u8]; 10] = [
    b"\xef\xbb\xbf",
    b"\r\n",
    b"\0",
    b"\xff\xfe",
    b"\xc3",
    "\u{202e}é🦀".as_bytes(),
    b"\"",
    b"\\u0000",
    b"/*/",
    b"null",
];
/// Longest input: what is larger is slow, and shows nothing new.
const LONGEST: usize = 1 << 16;

impl Mutator {
    /// Inputs that follow from a seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// An input with one to four changes. `others` are what it may get pieces of.
    pub fn altered(&mut self, input: &[u8], others: &[&[u8]]) -> Vec<u8> {
        let mut bytes = input.to_vec();
        for _ in 0..1 + self.below(4) {
            let at = self.below(bytes.len() + 1);
            match self.below(16) {
                0 | 1 => self.flip(&mut bytes, at),
                2 => self.overwrite(&mut bytes, at),
                3 => bytes.truncate(at),
                4 => bytes.insert(at, self.word() as u8),
                5 => drop(bytes.drain(self.span(&bytes, at))),
                6 => self.copy_within(&mut bytes, at),
                7 => self.take_from(&mut bytes, at, others),
                8..=10 => self.replace_number(&mut bytes, at),
                11 | 12 => self.replace_word(&mut bytes, at),
                13 => self.repeat_line(&mut bytes, at),
                14 => self.nest(&mut bytes, at),
                _ => drop(bytes.splice(at..at, INTRUDERS[self.below(INTRUDERS.len())].iter().copied())),
            }
            bytes.truncate(LONGEST);
        }
        bytes
    }

    /// SplitMix64.
    fn word(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `limit`, which is not 0.
    fn below(&mut self, limit: usize) -> usize {
        (self.word() % limit as u64) as usize
    }

    /// A few bytes from `at` on.
    fn span(&mut self, bytes: &[u8], at: usize) -> std::ops::Range<usize> {
        at..(at + self.below(40)).min(bytes.len())
    }

    fn flip(&mut self, bytes: &mut [u8], at: usize) {
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << self.below(8);
        }
    }

    fn overwrite(&mut self, bytes: &mut [u8], at: usize) {
        let to = self.word() as u8;
        if let Some(byte) = bytes.get_mut(at) {
            *byte = to;
        }
    }

    fn copy_within(&mut self, bytes: &mut Vec<u8>, at: usize) {
        let copied = bytes[self.span(bytes, at)].to_vec();
        let to = self.below(bytes.len() + 1);
        bytes.splice(to..to, copied);
    }

    fn take_from(&mut self, bytes: &mut Vec<u8>, at: usize, others: &[&[u8]]) {
        if others.is_empty() {
            return;
        }
        let other = others[self.below(others.len())];
        let from = self.below(other.len() + 1);
        bytes.splice(at.., other[from..].iter().copied());
    }

    /// The next run of digits becomes another number.
    fn replace_number(&mut self, bytes: &mut Vec<u8>, at: usize) {
        let start = bytes[at..].iter().position(u8::is_ascii_digit).map(|start| at + start);
        if let Some(start) = start {
            let end = bytes[start..].iter().position(|byte| !byte.is_ascii_digit());
            let end = end.map_or(bytes.len(), |end| start + end);
            bytes.splice(start..end, EDGES[self.below(EDGES.len())].bytes());
        }
    }

    /// Two, four or eight bytes become a number near an edge, in either order.
    fn replace_word(&mut self, bytes: &mut [u8], at: usize) {
        let width = [2, 4, 8][self.below(3)];
        let top = 1u64.checked_shl(self.below(65) as u32).unwrap_or(0);
        let number = top.wrapping_add(self.below(5) as u64).wrapping_sub(2);
        let little = number.to_le_bytes();
        let big = number.to_be_bytes();
        let written = if self.below(4) > 0 { &little[..width] } else { &big[8 - width..] };
        if let Some(place) = bytes.get_mut(at..at + width) {
            place.copy_from_slice(written);
        }
    }

    /// A line, or what stands between two commas, comes again.
    fn repeat_line(&mut self, bytes: &mut Vec<u8>, at: usize) {
        let ends = |byte: &u8| matches!(byte, b'\n' | b',');
        let start = bytes[..at].iter().rposition(ends).map_or(0, |end| end + 1);
        let end = bytes[at..].iter().position(ends).map_or(bytes.len(), |end| at + end + 1);
        let line = bytes[start..end].to_vec();
        let times = if self.below(8) == 0 { 200 } else { 1 };
        for _ in 0..times {
            bytes.splice(end..end, line.iter().copied());
            if bytes.len() > LONGEST {
                break;
            }
        }
    }

    /// Brackets around a place, few or many.
    fn nest(&mut self, bytes: &mut Vec<u8>, at: usize) {
        let (open, close) = [("[", "]"), ("{\"a\":", "}"), ("(", ")"), ("{", "}")][self.below(4)];
        let depth = [1, 3, 200, 2000][self.below(4)];
        let closing = if self.below(2) == 0 { close.repeat(depth) } else { String::new() };
        bytes.splice(at..at, (open.repeat(depth) + &closing).into_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_follow_from_the_seed_and_stay_short() {
        let input = br#"{"rows": [12, 7.5], "name": "a"}"#;
        let made = |seed| {
            let mut mutator = Mutator::new(seed);
            (0..2000).map(|_| mutator.altered(input, &[b"other", b""])).collect::<Vec<_>>()
        };
        assert_eq!(made(1), made(1));
        assert_ne!(made(1), made(2));
        assert!(made(1).iter().all(|bytes| bytes.len() <= LONGEST));
        let distinct: std::collections::BTreeSet<_> = made(1).into_iter().collect();
        assert!(distinct.len() > 1500, "{} distinct inputs of 2000", distinct.len());
        // Every kind of input is at its end here.
        Mutator::new(3).altered(b"", &[]);
    }
}
