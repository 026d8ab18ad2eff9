//! How the file itself launches a kernel, as far as that stands there in numbers: blocks and threads, the
//! integers that it passes, and the bytes of the buffers that it allocates.

use std::cell::Cell;

use super::lines::{Kind, Token, angle_closing, closing, joined, split, tokens};

/// Names that lead to other names at most, and names that are looked up for one value: each may lead to many.
const DEPTH: u32 = 16;
const STEPS: u32 = 200;
/// Tokens of a value, or of a function that is one.
const MOST_TOKENS: usize = 400;

/// What may still be done for a value.
#[derive(Clone, Copy)]
struct Effort<'a> {
    depth: u32,
    steps: &'a Cell<u32>,
}

impl Effort<'_> {
    fn of<T>(work: impl FnOnce(Effort<'_>) -> T) -> T {
        work(Effort { depth: DEPTH, steps: &Cell::new(STEPS) })
    }

    /// What is left behind one name.
    fn deeper(self) -> Option<Self> {
        self.steps.set(self.steps.get().checked_sub(1)?);
        Some(Self { depth: self.depth.checked_sub(1)?, ..self })
    }
}

/// A launch, where its parts are known before the program runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Launch {
    pub(super) blocks: Option<[u32; 3]>,
    pub(super) threads: Option<[u32; 3]>,
    /// Bytes of dynamic shared memory.
    pub(super) shared: Option<u32>,
    pub(super) cooperative: bool,
    pub(super) arguments: Vec<Passed>,
}

/// An argument of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Passed {
    Integer(u64),
    /// Memory that the file allocates once, or always with as many bytes.
    Buffer {
        bytes: u64,
    },
    /// What only the program knows.
    Unknown,
}

/// The first launch of a kernel. Of a template that is launched more than once, arguments are those of any.
pub(super) fn launch_of(tokens: &[Token<'_>], name: &str) -> Launch {
    let next = |at: usize| (at..tokens.len()).find(|&at| !tokens[at].is_space());
    let is = |at: usize, text: &str| tokens.get(at).is_some_and(|token| token.is(text));
    let is_launch = |open: usize| (0..3).all(|i| is(open + i, "<"));
    let opened = |at: usize| {
        let open = next(at + 1)?;
        if !is(open, "<") || is_launch(open) {
            return Some((open, false)).filter(|_| is_launch(open));
        }
        let after = angle_closing(tokens, open).and_then(|close| next(close + 1))?;
        Some((after, true)).filter(|_| is_launch(after))
    };
    let named = |at: &usize| tokens[*at].kind == Kind::Word && tokens[*at].text == name;
    let mut launches = (0..tokens.len()).filter(named).filter_map(|at| Some((at, opened(at)?)));
    let Some((at, (open, is_template))) = launches.next() else {
        return launch_by_call(tokens, name).unwrap_or_default();
    };
    let Some(close) = (open + 3..tokens.len()).find(|&at| (0..3).all(|i| is(at + i, ">"))) else {
        return Launch::default();
    };
    let scope = scope(tokens, at);
    let parts = split(&tokens[open + 3..close], ",");
    let of =
        |part: Option<&&[Token<'_>]>| part.and_then(|part| Effort::of(|effort| extent(&scope, part, effort)));
    let shared = match parts.get(2) {
        Some(part) => evaluated(&scope, part).and_then(|bytes| u32::try_from(bytes).ok()),
        None => Some(0),
    };
    let list = next(close + 3).filter(|&list| is(list, "("));
    let end = list.and_then(|list| closing(tokens, list));
    let arguments = match list.zip(end).filter(|_| !is_template || launches.next().is_none()) {
        Some((list, end)) => passed(&scope, &tokens[list + 1..end]),
        None => Vec::new(),
    };
    let [blocks, threads] = [0, 1].map(|at| of(parts.get(at)));
    Launch { blocks, threads, shared, cooperative: false, arguments }
}

/// What a launch at `at` may refer to: the function around it, what stands outside of functions, and functions that
/// only return a value. Parameters of the function around have no value, which only its caller knows.
fn scope<'a>(all: &[Token<'a>], at: usize) -> Vec<Token<'a>> {
    let mark = |text: &'static str| Token { kind: Kind::Mark, text, line: 0 };
    let word = |text: &'a str| Token { kind: Kind::Word, text, line: 0 };
    let (mut scope, mut start, mut here) = (Vec::new(), 0, 0);
    while here < all.len() {
        let token = all[here];
        if token.kind == Kind::Directive || token.is(";") || token.is("}") {
            scope.extend_from_slice(&all[start..=here]);
            start = here + 1;
        } else if token.is("(") {
            here = closing(all, here).unwrap_or(here);
        } else if token.is("{") {
            let head = &all[start..here];
            let has = |text: &str| head.iter().any(|token| token.is(text));
            // Not `dim3 a(1), b{2}`, whose brackets are values.
            let last = head.iter().rfind(|token| !token.is_space());
            let opens_body =
                last.is_some_and(|last| [")", "const", "noexcept"].iter().any(|end| last.is(end)));
            let list =
                head.iter().rposition(|token| token.is(")")).filter(|_| opens_body && !has("namespace"));
            // Not `auto f = [](…) {…}` and the like; default arguments stand in the list.
            let first = head.iter().position(|token| token.is("(")).unwrap_or(0);
            let list = list.filter(|_| !head[..first].iter().any(|token| token.is("=")));
            if has("namespace") {
                scope.extend_from_slice(&all[start..=here]);
                start = here + 1;
            }
            if let Some(last) = list {
                let end = closing(all, here).unwrap_or(all.len() - 1);
                let is_around = (start..=end).contains(&at);
                let only_returns = all[here + 1..]
                    .iter()
                    .find(|token| !token.is_space())
                    .is_some_and(|token| token.is("return"));
                if is_around || only_returns {
                    scope.extend_from_slice(&all[start..=end]);
                }
                if is_around {
                    for part in split(&head[(first + 1).min(last)..last], ",") {
                        let named = part.split(|token| token.is("=")).next().unwrap_or(part);
                        let Some(name) = named.iter().rev().find(|token| token.kind == Kind::Word) else {
                            continue;
                        };
                        scope.extend([word(name.text), mark("="), mark("?"), mark(";")]);
                        scope.extend([word("cudaMalloc"), mark("("), mark("&"), word(name.text), mark(",")]);
                        scope.extend([mark("?"), mark(")"), mark(";")]);
                    }
                }
                (here, start) = (end, end + 1);
            }
        }
        here += 1;
    }
    scope.extend_from_slice(&all[start.min(all.len())..]);
    scope
}

/// The first of `cudaLaunchKernel((void*)name, grid, block, arguments, shared, stream)` and its cooperative
/// form. The arguments are in an array, which is not followed.
fn launch_by_call(all: &[Token<'_>], name: &str) -> Option<Launch> {
    let next = |at: usize| (at..all.len()).find(|&at| !all[at].is_space());
    (0..all.len()).find_map(|at| {
        let cooperative = all[at].is("cudaLaunchCooperativeKernel");
        let open = next(at + 1).filter(|_| cooperative || all[at].is("cudaLaunchKernel"))?;
        let close = closing(all, open).filter(|_| all[open].is("("))?;
        let parts = split(&all[open + 1..close], ",");
        parts.first()?.iter().find(|token| token.is(name))?;
        let scope = scope(all, at);
        let [blocks, threads] = [1, 2].map(|at| Effort::of(|effort| extent(&scope, parts.get(at)?, effort)));
        Some(Launch { blocks, threads, cooperative, ..Launch::default() })
    })
}

fn passed(all: &[Token<'_>], list: &[Token<'_>]) -> Vec<Passed> {
    let parts = split(list, ",").into_iter().filter(|part| !part.iter().all(Token::is_space));
    let one = |part: &[Token<'_>]| match (
        variable(part).and_then(|name| allocated(all, name)),
        evaluated(all, part),
    ) {
        (Some(bytes), _) => Passed::Buffer { bytes },
        (None, Some(value)) => Passed::Integer(value),
        (None, None) => Passed::Unknown,
    };
    parts.map(one).collect()
}

/// The variable of `name`, `&name`, `(T*)name` and `static_cast<T*>(name)`.
fn variable<'a>(part: &[Token<'a>]) -> Option<&'a str> {
    let words: Vec<Token<'a>> = part.iter().filter(|token| !token.is_space()).copied().collect();
    let mut rest = words.as_slice();
    loop {
        rest = match rest {
            [name] if name.kind == Kind::Word => return Some(name.text),
            [mark, inner @ ..] if mark.is("&") => inner,
            [cast, ..] if cast.is("static_cast") || cast.is("reinterpret_cast") => {
                &rest
                    [angle_closing(rest, 1).filter(|_| rest.get(1).is_some_and(|token| token.is("<")))? + 1..]
            }
            [open, inner @ .., close]
                if open.is("(") && closing(rest, 0) == Some(rest.len() - 1) && close.is(")") =>
            {
                inner
            }
            [open, ..] if open.is("(") => {
                let close = closing(rest, 0).filter(|&close| rest[close - 1].is("*"))?;
                &rest[close + 1..]
            }
            _ => return None,
        }
    }
}

/// Functions that allocate: the first argument is where the address goes, the second how many bytes.
const ALLOCATE: &[&str] = &["cudaMalloc", "cudaMallocAsync", "cudaMallocManaged"];

/// The bytes that are allocated for a variable, if they are the same wherever that is done.
fn allocated(all: &[Token<'_>], name: &str) -> Option<u64> {
    let next = |at: usize| (at..all.len()).find(|&at| !all[at].is_space());
    let mut sizes = (0..all.len())
        .filter(|&at| all[at].kind == Kind::Word && ALLOCATE.contains(&all[at].text))
        .filter_map(|at| {
            let mut open = next(at + 1)?;
            if all[open].is("<") {
                open = next(angle_closing(all, open)? + 1)?;
            }
            let close = closing(all, open).filter(|_| all[open].is("("))?;
            let parts = split(&all[open + 1..close], ",");
            let is_it = parts.first().and_then(|part| variable(part)) == Some(name);
            is_it.then(|| parts.get(1).and_then(|part| evaluated(all, part)))
        });
    let first = sizes.next()??;
    sizes.all(|size| size == Some(first)).then_some(first)
}

/// The value of an expression of integers and of names for such, if it stands in the file.
pub(super) fn evaluated(all: &[Token<'_>], part: &[Token<'_>]) -> Option<u64> {
    let words: Vec<Token<'_>> = part.iter().filter(|token| !token.is_space()).copied().collect();
    Effort::of(|effort| number(all, &words, effort))
}

/// The same as a number of threads or blocks.
pub(super) fn side(all: &[Token<'_>], part: &[Token<'_>]) -> Option<u32> {
    Effort::of(|effort| value(all, part, effort))
}

fn value(all: &[Token<'_>], part: &[Token<'_>], effort: Effort<'_>) -> Option<u32> {
    let words: Vec<Token<'_>> = part.iter().filter(|token| !token.is_space()).copied().collect();
    u32::try_from(number(all, &words, effort)?).ok().filter(|&side| side > 0)
}

/// Three numbers from `4`, `N / 2`, `dim3(4, 2)` or the name of one of them.
fn extent(all: &[Token<'_>], part: &[Token<'_>], effort: Effort<'_>) -> Option<[u32; 3]> {
    let words: Vec<Token<'_>> = part.iter().filter(|token| !token.is_space()).copied().collect();
    if let [first, open, rest @ .., _] = words.as_slice()
        && first.is("dim3")
        && (open.is("(") || open.is("{"))
    {
        return sides(all, rest, effort);
    }
    if let [name] = words.as_slice()
        && name.kind == Kind::Word
        && let Some(given) = dim3_called(all, name.text)
    {
        return sides(all, given, effort);
    }
    Some([value(all, part, effort)?, 1, 1])
}

fn sides(all: &[Token<'_>], list: &[Token<'_>], effort: Effort<'_>) -> Option<[u32; 3]> {
    let mut found = [1; 3];
    let parts = split(list, ",");
    if parts.len() > 3 {
        return None;
    }
    for (side, part) in found.iter_mut().zip(parts) {
        *side = value(all, part, effort)?;
    }
    Some(found)
}

/// What stands in the parentheses of `dim3 name(…)`, `dim3 other(…), name{…}` or `dim3 name = dim3(…)`, if there
/// is one such.
fn dim3_called<'a, 'b>(all: &'b [Token<'a>], name: &str) -> Option<&'b [Token<'a>]> {
    let next = |at: usize| (at..all.len()).find(|&at| !all[at].is_space());
    let list = |called: usize| {
        let mut open = next(called + 1)?;
        if all[open].is("=") {
            open = next(next(open + 1).filter(|&at| all[at].is("dim3"))? + 1)?;
        }
        let close = closing(all, open).filter(|_| all[open].is("(") || all[open].is("{"))?;
        Some(&all[open + 1..close])
    };
    let mut found = (0..all.len()).filter(|&at| all[at].is("dim3")).filter_map(|at| {
        let (mut at, mut depth) = (next(at + 1)?, 0);
        let end = (at..all.len()).find(|&end| all[end].is(";"))?;
        while at < end {
            match all[at].text {
                "(" | "{" => depth += 1,
                ")" | "}" => depth -= 1,
                _ if depth == 0 && all[at].is(name) => return list(at),
                _ => {}
            }
            at += 1;
        }
        None
    });
    found.next().filter(|_| found.next().is_none())
}

/// The value of an expression of integers and of names for such.
fn number(all: &[Token<'_>], words: &[Token<'_>], effort: Effort<'_>) -> Option<u64> {
    let mut reader = Reader { all, words, at: 0, effort: effort.deeper()? };
    let value = reader.shift()?;
    (reader.at == words.len()).then_some(value)
}

struct Reader<'a, 'b> {
    all: &'b [Token<'a>],
    words: &'b [Token<'a>],
    at: usize,
    effort: Effort<'b>,
}

impl Reader<'_, '_> {
    fn takes(&mut self, mark: &str) -> bool {
        let is = self.words.get(self.at).is_some_and(|word| word.is(mark));
        self.at += usize::from(is);
        is
    }

    /// Two marks, one behind the other.
    fn takes_both(&mut self, mark: &str) -> bool {
        let are =
            self.words.get(self.at..self.at + 2).is_some_and(|words| words.iter().all(|word| word.is(mark)));
        self.at += if are { 2 } else { 0 };
        are
    }

    fn shift(&mut self) -> Option<u64> {
        let mut value = self.sum()?;
        loop {
            if self.takes_both("<") {
                let by = u32::try_from(self.sum()?).ok()?;
                value = value.checked_shl(by).filter(|shifted| shifted >> by == value)?;
            } else if self.takes_both(">") {
                value = value.checked_shr(u32::try_from(self.sum()?).ok()?)?;
            } else {
                return Some(value);
            }
        }
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
        let mut rest = &self.words[self.at..];
        while rest.first()?.is("(") {
            let close = closing(rest, 0)?;
            self.at += close + 1;
            // `(size_t)n`, and not `(n)`.
            let starts =
                |token: &Token<'_>| token.kind == Kind::Word || token.kind == Kind::Number || token.is("(");
            if type_bytes(&rest[1..close]).is_none() || !rest.get(close + 1).is_some_and(starts) {
                return number(self.all, &rest[1..close], self.effort);
            }
            rest = &rest[close + 1..];
        }
        let word = *rest.first()?;
        self.at += 1;
        match word.kind {
            Kind::Number => integer(word.text),
            Kind::Word if word.text == "true" => Some(1),
            Kind::Word if word.text == "false" => Some(0),
            Kind::Word if rest.get(1).is_some_and(|token| token.is("(")) => {
                let close = closing(rest, 1)?;
                self.at += close;
                let inside = &rest[2..close];
                if word.text == "sizeof" {
                    type_bytes(inside)
                } else {
                    called(self.all, word.text, inside, self.effort)
                }
            }
            Kind::Word => named(self.all, word.text, self.effort),
            _ => None,
        }
    }
}

/// Bytes of a type that every file has.
fn type_bytes(words: &[Token<'_>]) -> Option<u64> {
    let names: Vec<&str> =
        words.iter().map(|word| word.text).filter(|name| !matches!(*name, "const" | "std" | ":")).collect();
    if names.last() == Some(&"*") {
        return Some(8);
    }
    Some(match names.join(" ").as_str() {
        "char" | "signed char" | "unsigned char" | "bool" | "int8_t" | "uint8_t" => 1,
        "short" | "unsigned short" | "int16_t" | "uint16_t" | "half" | "__half" | "__nv_bfloat16"
        | "nv_bfloat16" => 2,
        "int" | "unsigned" | "unsigned int" | "int32_t" | "uint32_t" | "float" | "half2" | "__half2"
        | "__nv_bfloat162" | "uchar4" | "char4" => 4,
        "double" | "long" | "unsigned long" | "long long" | "unsigned long long" | "long long int"
        | "int64_t" | "uint64_t" | "size_t" | "float2" | "int2" | "uint2" => 8,
        "float3" | "int3" | "uint3" => 12,
        "float4" | "int4" | "uint4" | "double2" | "ulonglong2" | "longlong2" => 16,
        _ => return None,
    })
}

/// The value of `name(…)`, for a macro, or for a function that only returns an expression of its parameters.
fn called(all: &[Token<'_>], name: &str, inside: &[Token<'_>], effort: Effort<'_>) -> Option<u64> {
    let (found, is_macro) = match macro_called(all, name) {
        Some(found) => (found, true),
        None => (function_called(all, name)?, false),
    };
    let (parameters, body) = found;
    let given: Vec<String> = split(inside, ",").iter().map(|part| joined(part)).collect();
    if given.len() != parameters.len() {
        return None;
    }
    let mut text = String::new();
    for token in tokens(&body) {
        match parameters.iter().position(|name| token.is(name)) {
            // The preprocessor puts texts, and a call values.
            Some(at) if is_macro => text.push_str(&given[at]),
            Some(at) => text.extend(["(", &given[at], ")"]),
            None => text.push_str(token.text),
        }
        // Every call may double what is to be read.
        if text.len() > 4096 {
            return None;
        }
    }
    let words: Vec<Token<'_>> = tokens(&text).into_iter().filter(|token| !token.is_space()).collect();
    if is_macro && !is_of_one_piece(&words) {
        return None;
    }
    number(all, &words, effort)
}

/// The parameters and the text of `#define name(…) …`, if there is one such.
fn macro_called(all: &[Token<'_>], name: &str) -> Option<(Vec<String>, String)> {
    let of = |token: &Token<'_>| {
        let rest =
            token.text.get(1..)?.trim_start().strip_prefix("define")?.trim_start().strip_prefix(name)?;
        let (list, body) = rest.strip_prefix('(')?.split_once(')')?;
        Some((list.split(',').map(|name| name.trim().to_owned()).collect(), body.replace('\\', " ")))
    };
    let mut found = all.iter().filter(|token| token.kind == Kind::Directive).filter_map(of);
    found.next().filter(|_| found.next().is_none())
}

/// The parameters and the value of `T name(T a, T b) { return …; }`, if there is one such.
fn function_called(all: &[Token<'_>], name: &str) -> Option<(Vec<String>, String)> {
    let next = |at: usize| (at..all.len()).find(|&at| !all[at].is_space());
    let of = |at: usize| {
        let open = next(at + 1).filter(|&open| all[at].is(name) && all[open].is("("))?;
        let all = &all[..(open + MOST_TOKENS).min(all.len())];
        let next = |at: usize| (at..all.len()).find(|&at| !all[at].is_space());
        let close = closing(all, open)?;
        let body = next(close + 1).filter(|&body| all[body].is("{"))?;
        let returns = next(body + 1).filter(|&returns| all[returns].is("return"))?;
        let end = closing(all, body)?;
        let last = (returns..end).find(|&last| all[last].is(";"))?;
        next(last + 1).filter(|&behind| behind == end)?;
        let parameter = |part: &&[Token<'_>]| {
            let word = part.iter().rev().find(|token| token.kind == Kind::Word)?;
            Some(word.text.to_owned())
        };
        let parameters = split(&all[open + 1..close], ",").iter().map(parameter).collect::<Option<_>>()?;
        Some((parameters, joined(&all[returns + 1..last])))
    };
    let mut found = (0..all.len()).filter_map(of);
    found.next().filter(|_| found.next().is_none())
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
fn named(all: &[Token<'_>], name: &str, effort: Effort<'_>) -> Option<u64> {
    let next = |at: usize| (at..all.len()).find(|&at| !all[at].is_space());
    let mut values = Vec::new();
    for (at, token) in all.iter().enumerate() {
        if token.kind == Kind::Directive {
            let mut words = token.text[1..].trim_start().splitn(3, char::is_whitespace);
            if words.next() == Some("define") && words.next() == Some(name) {
                let value = tokens(words.next().unwrap_or(""));
                let value: Vec<Token<'_>> = value.into_iter().filter(|token| !token.is_space()).collect();
                values.push(is_of_one_piece(&value).then(|| number(all, &value, effort)).flatten());
            }
            continue;
        }
        if !token.is(name) {
            continue;
        }
        if changes(all, at) {
            return None;
        }
        let near = (at + MOST_TOKENS).min(all.len());
        if let Some(equals) = next(at + 1).filter(|&equals| all[equals].is("="))
            && !all.get(equals + 1).is_some_and(|token| token.is("="))
            && let Some(end) = (equals..near).find(|&end| all[end].is(";") || all[end].is(","))
        {
            let value: Vec<Token<'_>> =
                all[equals + 1..end].iter().filter(|token| !token.is_space()).copied().collect();
            values.push(number(all, &value, effort));
        }
    }
    let first = *values.first()?;
    first.filter(|_| values.iter().all(|value| *value == first))
}

/// Whether the name at `at` is counted up or down, changed by `*=` and the like, or has its address taken.
fn changes(all: &[Token<'_>], at: usize) -> bool {
    let is =
        |at: usize, marks: &[&str]| all.get(at).is_some_and(|token| marks.iter().any(|mark| token.is(mark)));
    let behind = (at + 1..all.len()).find(|&at| !all[at].is_space()).unwrap_or(all.len());
    let twice = |at: usize, mark: &str| is(at, &[mark]) && is(at + 1, &[mark]);
    if (is(behind, &["+", "-", "*", "/", "%", "&", "|", "^"]) && is(behind + 1, &["="]))
        || twice(behind, "+")
        || twice(behind, "-")
        || ((twice(behind, "<") || twice(behind, ">")) && is(behind + 2, &["="]))
    {
        return true;
    }
    let before = |at: usize| (0..at).rev().find(|&at| !all[at].is_space());
    let Some(last) = before(at) else { return false };
    if last > 0 && (twice(last - 1, "+") || twice(last - 1, "-")) {
        return true;
    }
    is(last, &["&"]) && before(last).is_some_and(|at| is(at, &["(", ",", "{", "="]))
}

/// Whether a macro's text means the same wherever it stands: it is in brackets, or has no operator outside of them.
fn is_of_one_piece(words: &[Token<'_>]) -> bool {
    let operators = ["+", "-", "*", "/", "%", "<", ">", "&", "|", "^", "?"];
    let (mut depth, mut at) = (0, 0);
    while at < words.len() {
        match words[at].text {
            "(" | "{" | "[" => depth += 1,
            ")" | "}" | "]" => depth -= 1,
            text if depth == 0 && at > 0 && operators.contains(&text) => return false,
            _ => {}
        }
        at += 1;
    }
    true
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
        let of = |text: &str| (of(text).blocks, of(text).threads);
        let both = |blocks, threads| (Some(blocks), Some(threads));
        assert_eq!(of("void f() { k<<<4, 256>>>(x); }"), both([4, 1, 1], [256, 1, 1]));
        assert_eq!(of("k<float, A<2>> <<< dim3(2, 3), 0x40 >>>(x);"), both([2, 3, 1], [64, 1, 1]));
        let named = "#define BLOCK (8 * WARP) // threads\nconstexpr int WARP = 32;\nconst int N = 1024, M = 3;\n\
                     dim3 grid((N + BLOCK - 1) / BLOCK, M); dim3 block{BLOCK}; k<<<grid, block, 0, s>>>(x);";
        assert_eq!(of(named), both([4, 3, 1], [256, 1, 1]));
        assert_eq!(of("dim3 b = dim3(16, 16); k<<<1, b>>>(x);"), both([1, 1, 1], [16, 16, 1]));
        assert_eq!(of("dim3 b(16, 2), g{(40 + 15) / 16}; k<<<g, b>>>(x);"), both([3, 1, 1], [16, 2, 1]));
    }

    #[test]
    fn expressions_of_macros_functions_types_and_shifts_are_read() {
        let text = "#define CEIL_DIV(M, N) (((M) + (N)-1) / (N))\nstatic inline int cdiv(int a, int b) { return (a + b - 1) / b; }\n\
                    const size_t bytes = (size_t)1000 * sizeof(float);\n\
                    k<<<dim3(CEIL_DIV(1000, 32), cdiv(7, 2)), (1 << 8) >> 1, 2 * sizeof(unsigned int)>>>(a, b);";
        let launch = of(text);
        assert_eq!(launch.blocks, Some([32, 4, 1]));
        assert_eq!((launch.threads, launch.shared), (Some([128, 1, 1]), Some(8)));
    }

    #[test]
    fn arguments_are_the_buffers_and_integers_of_the_file() {
        let text = "void f() { const int n = 1000; float *a, *b; int* c; double* d;\n\
                    CHECK(cudaMalloc(&a, n * sizeof(float))); cudaMalloc((void**)&b, 64);\n\
                    cudaMalloc<int>(&c, 8); cudaMalloc(&d, 8); cudaMalloc(&d, 16);\n\
                    k<<<2, 32>>>(a, (const float4*)b, reinterpret_cast<int*>(c), d, n, 0.5f, a + 1, x); }";
        let bytes = |bytes| Passed::Buffer { bytes };
        let unknown = Passed::Unknown;
        assert_eq!(
            of(text).arguments,
            [bytes(4000), bytes(64), bytes(8), unknown, Passed::Integer(1000), unknown, unknown, unknown]
        );
    }

    #[test]
    fn calls_launch_too() {
        let text = "dim3 block(64); CHECK(cudaLaunchCooperativeKernel((void*)k<float>, dim3(4, 2), block, args, 0, 0));";
        let launch = of(text);
        assert!(launch.cooperative && launch.arguments.is_empty() && launch.shared.is_none());
        assert_eq!((launch.blocks, launch.threads), (Some([4, 2, 1]), Some([64, 1, 1])));
        let plain = of("cudaLaunchKernel((const void*)&k, 3, 32, args, 0, s);");
        assert_eq!(
            (plain.blocks, plain.threads, plain.cooperative),
            (Some([3, 1, 1]), Some([32, 1, 1]), false)
        );
        assert_eq!(of("cudaLaunchKernel((void*)j, 3, 32, args, 0, s);"), Launch::default());
    }

    #[test]
    fn names_have_the_values_of_the_function_around_the_launch() {
        let bytes = |text: &str| of(text).arguments;
        let buffer = |bytes| vec![Passed::Buffer { bytes }];
        let one = "void a() { int n = 3; float* d; cudaMalloc(&d, 64); }\n";
        assert_eq!(bytes(&format!("{one}void b() {{ cudaMalloc(&d, 256); k<<<1, 32>>>(d); }}")), buffer(256));
        assert_eq!(bytes(&format!("{one}void b(float* d) {{ k<<<1, 32>>>(d); }}")), [Passed::Unknown]);
        assert_eq!(bytes(&format!("{one}void b(int n) {{ k<<<1, 32>>>(n); }}")), [Passed::Unknown]);
        let threads = |text: &str| of(text).threads;
        assert_eq!(threads("const int n = 8; namespace a { void run(int n) { k<<<1, n>>>(); } }"), None);
        assert_eq!(threads("void run(int n = 4, int m = 2) { k<<<1, n>>>(); }"), None);
        assert_eq!(
            threads("namespace a { const int n = 8; } void run() { k<<<1, n>>>(); }"),
            Some([8, 1, 1])
        );
        for change in ["n *= 4", "n++", "--n", "n <<= 2", "read(&n)"] {
            let text = format!("void f() {{ int n = 64; {change}; cudaMalloc(&d, n); k<<<1, 32>>>(d); }}");
            assert_eq!(bytes(&text), [Passed::Unknown], "{change}");
        }
        assert_eq!(
            bytes(
                "void f() { int n = 64; if (n <= 3 || n == 4) g(n & n); cudaMalloc(&d, n); k<<<1, 32>>>(d); }"
            ),
            buffer(64)
        );
        let twice = "void f() { cudaMalloc(&d, 64); k<T><<<1, 32>>>(d); k<int><<<1, 32>>>(d); }";
        assert_eq!(bytes(twice), []);
    }

    #[test]
    fn macros_are_texts() {
        let threads = |text: &str| of(text).threads;
        assert_eq!(threads("#define N 4 + 2\nvoid f() { k<<<1, N * 8>>>(); }"), None);
        assert_eq!(threads("#define N (4 + 2)\nvoid f() { k<<<1, N * 8>>>(); }"), Some([48, 1, 1]));
        assert_eq!(
            threads("#define HALF(n) (n / 2)\nvoid f() { k<<<1, HALF(64 + 64)>>>(); }"),
            Some([96, 1, 1])
        );
        assert_eq!(threads("#define HALF(n) n / 2\nvoid f() { k<<<1, HALF(64)>>>(); }"), None);
        let casts = format!("k<<<{}1, 32>>>(0);", "(int)".repeat(100_000));
        assert_eq!(of(&casts).blocks, Some([1, 1, 1]));
    }

    #[test]
    fn names_that_double_end() {
        let mut text = String::new();
        for i in 0..40 {
            let next = i + 1;
            text += &format!("#define A{i} A{next} + A{next}\n#define F{i}(x) F{next}(x) + F{next}(x + x)\n");
        }
        text += "k<<<A0, F0(1)>>>(A1);";
        assert_eq!(
            of(&text),
            Launch { shared: Some(0), arguments: vec![Passed::Unknown], ..Launch::default() }
        );
    }

    #[test]
    fn what_only_the_program_knows_is_not_guessed() {
        let threads = |text: &str| of(text).threads;
        let launch = of("k<<<(n + 255) / 256, 256>>>(x);");
        assert_eq!((launch.blocks, launch.threads), (None, Some([256, 1, 1])));
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
