//! Names of several devices at once.

use std::fmt;

/// Most devices of one set, virtual ones counted.
pub(crate) const MOST: usize = 64;

/// Several devices by name, not opened yet: what [`Device::open_all`](crate::Device::open_all) opens.
///
/// | name | devices |
/// |---|---|
/// | `cuda:all` | every card |
/// | `cuda:0,1` | those cards, in that order |
/// | `cuda:0*4` | four virtual devices on one card |
/// | `cuda:0*2,1*2` | two virtual devices on each of two cards |
/// | `emulated:4` | four emulated devices that know each other |
/// | `emulated*4` | four virtual devices on one emulated device |
///
/// Virtual devices are separate devices to a program, with streams and a byte budget of their own, and share
/// a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceSet(Members);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Members {
    AllCards,
    Cards(Cards),
    Emulated(u8),
    EmulatedShares(u8),
}

/// Cards in the order of their ranks, each with the number of virtual devices on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cards {
    terms: [(u8, u8); MOST],
    len: usize,
}

impl Cards {
    /// Numbers of cards, each with the number of virtual devices on it.
    pub(crate) fn terms(&self) -> &[(u8, u8)] {
        &self.terms[..self.len]
    }
}

impl DeviceSet {
    /// Reads a name of several devices; `None` if it is none. `cuda:1` and `emulated` are names of one.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        if name == "cuda:all" {
            return Some(Self(Members::AllCards));
        }
        if let Some(count) = name.strip_prefix("emulated:") {
            return Some(Self(Members::Emulated(parse_count(count)?)));
        }
        if let Some(count) = name.strip_prefix("emulated*") {
            return Some(Self(Members::EmulatedShares(parse_count(count)?)));
        }
        let list = name.strip_prefix("cuda:").filter(|list| list.contains([',', '*']))?;
        let (mut cards, mut devices) = (Cards { terms: [(0, 0); MOST], len: 0 }, 0);
        for term in list.split(',') {
            let (ordinal, count) = match term.split_once('*') {
                Some((ordinal, count)) => (ordinal, parse_count(count)?),
                None => (term, 1),
            };
            let ordinal = parse_number(ordinal)?;
            // A card that is named twice would be shared unevenly: say how often instead.
            if cards.terms().iter().any(|&(seen, _)| seen == ordinal) {
                return None;
            }
            devices += usize::from(count);
            *cards.terms.get_mut(cards.len)? = (ordinal, count);
            cards.len += 1;
        }
        (devices <= MOST).then_some(Self(Members::Cards(cards)))
    }

    pub(crate) fn members(&self) -> &Members {
        &self.0
    }

    /// How many devices there are; `None` where only the machine knows.
    pub fn count(&self) -> Option<usize> {
        match &self.0 {
            Members::AllCards => None,
            Members::Cards(cards) => Some(cards.terms().iter().map(|&(_, count)| usize::from(count)).sum()),
            Members::Emulated(count) | Members::EmulatedShares(count) => Some(usize::from(*count)),
        }
    }
}

impl fmt::Display for DeviceSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Members::AllCards => f.write_str("cuda:all"),
            Members::Emulated(count) => write!(f, "emulated:{count}"),
            Members::EmulatedShares(count) => write!(f, "emulated*{count}"),
            Members::Cards(cards) => {
                for (index, (ordinal, count)) in cards.terms().iter().enumerate() {
                    f.write_str(if index == 0 { "cuda:" } else { "," })?;
                    match (count, cards.len) {
                        (1, 2..) => write!(f, "{ordinal}")?,
                        _ => write!(f, "{ordinal}*{count}")?,
                    }
                }
                Ok(())
            }
        }
    }
}

/// A number as people write it: digits alone.
fn parse_number(given: &str) -> Option<u8> {
    given.bytes().all(|byte| byte.is_ascii_digit()).then(|| given.parse().ok())?
}

fn parse_count(given: &str) -> Option<u8> {
    parse_number(given).filter(|&count| (1..=MOST).contains(&usize::from(count)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_read_as_they_are_written() {
        let names = [
            ("cuda:all", None),
            ("cuda:0,1", Some(2)),
            ("cuda:1,0", Some(2)),
            ("cuda:0*4", Some(4)),
            ("cuda:0*1", Some(1)),
            ("cuda:0*2,1*2", Some(4)),
            ("cuda:0*2,3", Some(3)),
            ("emulated:1", Some(1)),
            ("emulated:8", Some(8)),
            ("emulated*64", Some(64)),
        ];
        for (name, count) in names {
            let set = DeviceSet::parse(name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!((set.to_string().as_str(), set.count()), (name, count));
        }
        let none = [
            "",
            "cuda",
            "cuda:0",
            "cuda:",
            "cuda:,",
            "cuda:0,",
            "cuda:0,0",
            "cuda:0*0",
            "cuda:0*65",
            "cuda:0*40,1*40",
            "cuda:x,1",
            "cuda:+0,1",
            "cuda:0*4*4",
            "cuda:300,1",
            "emulated",
            "emulated:",
            "emulated:0",
            "emulated:65",
            "emulated:-1",
            "emulated*",
            "emulated:4*2",
            "auto:2",
        ];
        for name in none {
            assert_eq!(DeviceSet::parse(name), None, "{name}");
        }
    }
}
