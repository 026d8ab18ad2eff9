//! How the file itself launches a kernel, as far as that stands there in numbers.

use super::lines::{Kind, Token, angle_closing, closing, split};

/// Names that lead to other names at most.
const DEPTH: u32 = 16;

/// The blocks and threads of a launch, where they are known before the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Launch {
    pub(super) blocks: Option<[u32; 3]>,
    pub(super) threads: Option<[u32; 3]>,
}

/// The first launch of a kernel.
pub(super) fn launch_of(tokens: &[Token<'_>], name: &str) -> Launch {
    let next = |at: usize| (at..tokens.len()).find(|&at| !tokens[at].is_space());
    let is = |at: usize, text: &str| tokens.get(at).is_some_and(|token| token.is(text));
    for at in (0..tokens.len()).filter(|&at| tokens[at].kind == Kind::Word && tokens[at].text == name) {
        let Some(mut open) = next(at + 1) else { continue };
        let is_launch = |open: usize| (0..3).all(|i| is(open + i, "<"));
        if is(open, "<") && !is_launch(open) {
            let Some(after) = angle_closing(tokens, open).and_then(|close| next(close + 1)) else { continue };
            open = after;
        }
        if !is_launch(open) {
            continue;
        }
        let Some(close) = (open + 3..tokens.len()).find(|&at| (0..3).all(|i| is(at + i, ">"))) else {
            continue;
        };
        let parts = split(&tokens[open + 3..close], ",");
        let of = |part: Option<&&[Token<'_>]>| part.and_then(|part| extent(tokens, part, DEPTH));
        return Launch { blocks: of(parts.first()), threads: of(parts.get(1)) };
    }
    Launch::default()
}

/// The value of an expression of integers and of names for such, if it stands in the file.
pub(super) fn evaluated(all: &[Token<'_>], part: &[Token<'_>]) -> Option<u64> {
    let words: Vec<Token<'_>> = part.iter().filter(|token| !token.is_space()).copied().collect();
    number(all, &words, DEPTH)
}

/// The same as a number of threads or blocks.
pub(super) fn side(all: &[Token<'_>], part: &[Token<'_>]) -> Option<u32> {
    value(all, part, DEPTH)
}

fn value(all: &[Token<'_>], part: &[Token<'_>], depth: u32) -> Option<u32> {
    let words: Vec<Token<'_>> = part.iter().filter(|token| !token.is_space()).copied().collect();
    u32::try_from(number(all, &words, depth)?).ok().filter(|&side| side > 0)
}

/// Three numbers from `4`, `N / 2`, `dim3(4, 2)` or the name of one of them.
fn extent(all: &[Token<'_>], part: &[Token<'_>], depth: u32) -> Option<[u32; 3]> {
    let words: Vec<Token<'_>> = part.iter().filter(|token| !token.is_space()).copied().collect();
    if let [first, open, rest @ .., _] = words.as_slice()
        && first.is("dim3")
        && (open.is("(") || open.is("{"))
    {
        return sides(all, rest, depth);
    }
    if let [name] = words.as_slice()
        && name.kind == Kind::Word
        && let Some(given) = dim3_called(all, name.text)
    {
        return sides(all, given, depth);
    }
    Some([value(all, part, depth)?, 1, 1])
}

fn sides(all: &[Token<'_>], list: &[Token<'_>], depth: u32) -> Option<[u32; 3]> {
    let mut found = [1; 3];
    let parts = split(list, ",");
    if parts.len() > 3 {
        return None;
    }
    for (side, part) in found.iter_mut().zip(parts) {
        *side = value(all, part, depth)?;
    }
    Some(found)
}

/// What stands in the parentheses of `dim3 name(…)`, if there is one such.
fn dim3_called<'a, 'b>(all: &'b [Token<'a>], name: &str) -> Option<&'b [Token<'a>]> {
    let next = |at: usize| (at..all.len()).find(|&at| !all[at].is_space());
    let mut found = (0..all.len()).filter_map(|at| {
        let called = next(at + 1).filter(|&called| all[at].is("dim3") && all[called].is(name))?;
        let mut open = next(called + 1)?;
        if all[open].is("=") {
            open = next(next(open + 1).filter(|&at| all[at].is("dim3"))? + 1)?;
        }
        let close = closing(all, open).filter(|_| all[open].is("(") || all[open].is("{"))?;
        Some(&all[open + 1..close])
    });
    found.next().filter(|_| found.next().is_none())
}

/// The value of an expression of integers and of names for such.
fn number(all: &[Token<'_>], words: &[Token<'_>], depth: u32) -> Option<u64> {
    let mut reader = Reader { all, words, at: 0, depth: depth.checked_sub(1)? };
    let value = reader.sum()?;
    (reader.at == words.len()).then_some(value)
}

struct Reader<'a, 'b> {
    all: &'b [Token<'a>],
    words: &'b [Token<'a>],
    at: usize,
    depth: u32,
}

impl Reader<'_, '_> {
    fn takes(&mut self, mark: &str) -> bool {
        let is = self.words.get(self.at).is_some_and(|word| word.is(mark));
        self.at += usize::from(is);
        is
    }

    fn sum(&mut self) -> Option<u64> {
        let mut value = self.product()?;
        loop {
            if self.takes("+") {
                value = value.checked_add(self.product()?)?;
            } else if self.takes("-") {
                value = value.checked_sub(self.product()?)?;
            } else {
                return Some(value);
            }
        }
    }

    fn product(&mut self) -> Option<u64> {
        let mut value = self.factor()?;
        loop {
            if self.takes("*") {
                value = value.checked_mul(self.factor()?)?;
            } else if self.takes("/") {
                value = value.checked_div(self.factor()?)?;
            } else if self.takes("%") {
                value = value.checked_rem(self.factor()?)?;
            } else {
                return Some(value);
            }
        }
    }

    fn factor(&mut self) -> Option<u64> {
        if self.takes("(") {
            let value = self.sum()?;
            return self.takes(")").then_some(value);
        }
        let word = *self.words.get(self.at)?;
        self.at += 1;
        match word.kind {
            Kind::Number => integer(word.text),
            Kind::Word if word.text == "true" => Some(1),
            Kind::Word if word.text == "false" => Some(0),
            Kind::Word => named(self.all, word.text, self.depth),
            _ => None,
        }
    }
}

/// `256`, `0x100u`, `1'024`.
fn integer(text: &str) -> Option<u64> {
    let text = text.replace(['\'', '_'], "");
    let text = text.trim_end_matches(['u', 'U', 'l', 'L']);
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The value of `#define NAME value` or `const int NAME = value;`. A name that has several values has none.
fn named(all: &[Token<'_>], name: &str, depth: u32) -> Option<u64> {
    let next = |at: usize| (at..all.len()).find(|&at| !all[at].is_space());
    let mut values = Vec::new();
    for (at, token) in all.iter().enumerate() {
        if token.kind == Kind::Directive {
            let mut words = token.text[1..].trim_start().splitn(3, char::is_whitespace);
            if words.next() == Some("define") && words.next() == Some(name) {
                let value = super::lines::tokens(words.next().unwrap_or(""));
                let value: Vec<Token<'_>> = value.into_iter().filter(|token| !token.is_space()).collect();
                values.push(number(all, &value, depth));
            }
        } else if token.is(name)
            && let Some(equals) = next(at + 1).filter(|&equals| all[equals].is("="))
            && !all.get(equals + 1).is_some_and(|token| token.is("="))
            && let Some(end) = (equals..all.len()).find(|&end| all[end].is(";") || all[end].is(","))
        {
            let value: Vec<Token<'_>> =
                all[equals + 1..end].iter().filter(|token| !token.is_space()).copied().collect();
            values.push(number(all, &value, depth));
        }
    }
    let first = *values.first()?;
    first.filter(|_| values.iter().all(|value| *value == first))
}

#[cfg(test)]
mod tests {
    use super::super::lines::tokens;
    use super::*;

    fn of(text: &str) -> Launch {
        launch_of(&tokens(text), "k")
    }

    #[test]
    fn numbers_and_their_names_are_read() {
        let both = |blocks, threads| Launch { blocks: Some(blocks), threads: Some(threads) };
        assert_eq!(of("void f() { k<<<4, 256>>>(x); }"), both([4, 1, 1], [256, 1, 1]));
        assert_eq!(of("k<float, A<2>> <<< dim3(2, 3), 0x40 >>>(x);"), both([2, 3, 1], [64, 1, 1]));
        let named = "#define BLOCK (8 * WARP) // threads\nconstexpr int WARP = 32;\nconst int N = 1024, M = 3;\n\
                     dim3 grid((N + BLOCK - 1) / BLOCK, M); dim3 block{BLOCK}; k<<<grid, block, 0, s>>>(x);";
        assert_eq!(of(named), both([4, 3, 1], [256, 1, 1]));
        assert_eq!(of("dim3 b = dim3(16, 16); k<<<1, b>>>(x);"), both([1, 1, 1], [16, 16, 1]));
    }

    #[test]
    fn what_only_the_program_knows_is_not_guessed() {
        let threads = |text: &str| of(text).threads;
        assert_eq!(
            of("k<<<(n + 255) / 256, 256>>>(x);"),
            Launch { blocks: None, threads: Some([256, 1, 1]) }
        );
        for text in [
            "int t = 32; t = 64; k<<<1, t>>>(x);",
            "k<<<1, f(3)>>>(x);",
            "#define A B\n#define B A\nk<<<1, A>>>(x);",
            "dim3 b(1); dim3 b(2); k<<<1, b>>>(x);",
            "k<<<1, 3 - 4>>>(x);",
            "k<<<1, 0>>>(x);",
            "j<<<1, 32>>>(x);",
            "k<<<1, 32",
        ] {
            assert_eq!(threads(text), None, "{text}");
        }
    }
}
