//! Lists of numbers, as they are typed.

/// Most inferences of one deal.
const MOST: usize = 4096;

/// Tokens of each text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lengths(pub(crate) Vec<usize>);

/// Token ids of one text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ids(pub(crate) Vec<u32>);

/// `16`, `16x8`, `4-12`, and several of them with commas.
pub(crate) fn parse(given: &str) -> Result<Lengths, String> {
    let mut lengths = Vec::new();
    for part in given.split(',') {
        let (range, times) = match part.split_once('x') {
            Some((range, times)) => (range, number(times)?),
            None => (part, 1),
        };
        let (first, last) = match range.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(range)?, number(range)?),
        };
        if first == 0 || last < first || times == 0 {
            return Err(format!("'{part}' is no text: write 16, 16x8 or 4-12"));
        }
        let count = (last - first + 1).saturating_mul(times);
        if lengths.len().saturating_add(count) > MOST {
            return Err(format!("more than {MOST} texts: deal several times"));
        }
        lengths.extend((first..=last).flat_map(|length| std::iter::repeat_n(length, times)));
    }
    Ok(Lengths(lengths))
}

/// `101,7592,102`.
pub(crate) fn ids(given: &str) -> Result<Ids, String> {
    let ids = given.split(',').map(|id| id.trim().parse().map_err(|_| format!("'{id}' is no token id")));
    ids.collect::<Result<_, _>>().map(Ids)
}

fn number(given: &str) -> Result<usize, String> {
    given.trim().parse().map_err(|_| format!("'{given}' is no number of tokens: write 16, 16x8 or 4-12"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        assert_eq!(parse("16").unwrap().0, [16]);
        assert_eq!(parse("4-6x2,9").unwrap().0, [4, 4, 5, 5, 6, 6, 9]);
        assert_eq!(ids("101, 7,102").unwrap().0, [101, 7, 102]);
    }

    #[test]
    fn other_lists_are_refused() {
        for given in ["", "0", "5-4", "3x0", "a", "4-", "-4", "1-18446744073709551615", "9x5000", "1,,2"] {
            assert!(parse(given).is_err(), "{given}");
        }
        assert!(ids("1,b").is_err() && ids("-1").is_err() && ids("").is_err());
    }
}
