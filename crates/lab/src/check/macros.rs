//! Macros that make kernels, or have inline PTX or shared memory in them, written out where they are used: those
//! are rewritten where they stand in the text.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::lines::{Kind, Token, breaks, closing, tokens};

/// Bytes that all uses may be written out to: macros within macros can grow without bound.
const MOST_BYTES: usize = 1 << 20;

/// What is rewritten.
const REWRITTEN: &[&str] = &["__global__", "__shared__", "asm", "__asm__"];

/// A macro as its `#define` has it.
struct Macro<'a> {
    /// None if it takes no list of arguments.
    parameters: Option<Vec<String>>,
    body: Vec<Token<'a>>,
}

/// The text with every use of a macro that has one of [`REWRITTEN`] in it, or another such macro, written out
/// on the line of its use. Every line stays where it was.
pub(super) fn written_out(text: &str) -> Cow<'_, str> {
    let all = tokens(text);
    let has_any = |text: &str| REWRITTEN.iter().any(|word| text.contains(word));
    if !all.iter().any(|token| token.kind == Kind::Directive && has_any(token.text)) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(expand(&all, &mut BTreeMap::new(), &mut { MOST_BYTES }))
}

fn expand<'a>(all: &[Token<'a>], known: &mut BTreeMap<&'a str, Macro<'a>>, room: &mut usize) -> String {
    let (mut out, mut at) = (String::new(), 0);
    while at < all.len() {
        let token = all[at];
        if token.kind == Kind::Directive {
            define(token.text, known);
        } else if let Some(found) = known.get(token.text).filter(|_| token.kind == Kind::Word)
            && let Some((arguments, end)) = arguments(all, at, found)
            && let text = found.text(&arguments)
            && let Some(left) = room.checked_sub(text.len().max(1))
        {
            *room = left;
            // A macro is not written out within itself.
            let mut others: BTreeMap<&str, Macro<'_>> = known
                .iter()
                .filter(|(name, _)| **name != token.text)
                .map(|(name, found)| {
                    (*name, Macro { parameters: found.parameters.clone(), body: found.body.clone() })
                })
                .collect();
            out.push_str(&expand(&tokens(&text), &mut others, room));
            out.push_str(&breaks(&all[at..=end]));
            at = end + 1;
            continue;
        }
        out.push_str(token.text);
        at += 1;
    }
    out
}

/// Keeps what a directive says of a macro, if that is to be written out.
fn define<'a>(directive: &'a str, known: &mut BTreeMap<&'a str, Macro<'a>>) {
    let words = directive[1..].trim_start();
    if let Some(name) = words.strip_prefix("undef") {
        known.remove(name.trim());
        return;
    }
    let Some(rest) = words.strip_prefix("define").map(str::trim_start) else { return };
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    let all = tokens(rest);
    let is_list = all.first().is_some_and(|token| token.is("("));
    let close = closing(&all, 0).filter(|_| is_list);
    let parameters = close.map(|close| {
        let words = all[1..close].iter().filter(|token| !token.is_space());
        let text: String = words.map(|token| token.text).collect();
        text.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    });
    let body = all[close.map_or(0, |close| close + 1)..].to_vec();
    let is_rewritten = |token: &Token<'_>| {
        token.kind == Kind::Word && (REWRITTEN.contains(&token.text) || known.contains_key(token.text))
    };
    if body.iter().any(is_rewritten) {
        known.insert(name, Macro { parameters, body });
    } else {
        known.remove(name);
    }
}

/// The arguments of a use, and the index of its last token. A name without its list is no use.
fn arguments(all: &[Token<'_>], at: usize, found: &Macro<'_>) -> Option<(Vec<String>, usize)> {
    let Some(parameters) = &found.parameters else { return Some((Vec::new(), at)) };
    let open = (at + 1..all.len()).find(|&open| !all[open].is_space()).filter(|&open| all[open].is("("))?;
    let close = closing(all, open)?;
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for token in &all[open + 1..close] {
        let takes_all =
            parameters.last().is_some_and(|name| name.ends_with("...")) && parts.len() == parameters.len();
        match token.text {
            "(" => depth += 1,
            ")" => depth -= 1,
            "," if depth == 0 && !takes_all => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(part) = parts.last_mut() {
            part.push_str(if token.is_space() { " " } else { token.text });
        }
    }
    Some((parts.into_iter().map(|part| part.trim().to_owned()).collect(), close))
}

impl Macro<'_> {
    /// Its body with these arguments, on one line: `#` makes a text of one, `##` joins two tokens.
    fn text(&self, arguments: &[String]) -> String {
        let parameters = self.parameters.as_deref().unwrap_or_default();
        let given = |token: &Token<'_>| {
            let is_named = |name: &String| {
                let rest = name.strip_suffix("...");
                let rest = rest.map(|name| if name.is_empty() { "__VA_ARGS__" } else { name });
                token.is(rest.unwrap_or(name))
            };
            let at = parameters.iter().position(is_named).filter(|_| token.kind == Kind::Word)?;
            Some(arguments.get(at).map_or("", String::as_str))
        };
        let (mut out, mut at) = (String::new(), 0);
        let next = |at: usize| (at..self.body.len()).find(|&at| !is_blank(&self.body[at]));
        while at < self.body.len() {
            let token = &self.body[at];
            let joins = |at: usize| self.body[at].is("#") && self.body.get(at + 1).is_some_and(|t| t.is("#"));
            if joins(at) {
                out.truncate(out.trim_end().len());
                at = next(at + 2).unwrap_or(self.body.len());
                continue;
            }
            let argument =
                next(at + 1).filter(|_| token.is("#")).and_then(|at| Some((at, given(&self.body[at])?)));
            if let Some((end, argument)) = argument {
                out.push_str(&format!("{argument:?}"));
                at = end + 1;
                continue;
            }
            match given(token) {
                Some(argument) => out.push_str(argument),
                None if is_blank(token) => out.push(' '),
                None => out.push_str(token.text),
            }
            at += 1;
        }
        out
    }
}

/// A space, or the backslash before the end of a line.
fn is_blank(token: &Token<'_>) -> bool {
    token.is_space() || token.is("\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_line(text: &str) -> String {
        let out = written_out(text).into_owned();
        assert_eq!(out.matches('\n').count(), text.matches('\n').count(), "{out}");
        out.lines().last().unwrap_or("").split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn kernels_are_written_out_and_nothing_else() {
        assert_eq!(
            last_line("#define KERNEL extern \"C\" __global__ void\nKERNEL k(int* x) { x[0] = 1; }"),
            { "extern \"C\" __global__ void k(int* x) { x[0] = 1; }" }
        );
        let unary = "#define UNARY(name, expr) \\\n  template <typename T> __global__ void name##_kernel(T* y) { \\\n    \
                     T v = y[0]; y[0] = (expr); }\nUNARY(relu, max(v, T(0)))";
        assert_eq!(
            last_line(unary),
            "template <typename T> __global__ void relu_kernel(T* y) { T v = y[0]; y[0] = (max(v, T(0))); }"
        );
        let nested = "#define ONE(name, type) __global__ void name ## _ ## type(type* x) { say(#type); }\n\
                      #define ALL(name, ...) ONE(name, float) ONE(name, __VA_ARGS__)\nALL(f,\n int)";
        let out = written_out(nested).into_owned();
        assert!(out.contains("__global__ void f_float(float* x) { say(\"float\"); }"), "{out}");
        assert!(out.contains("__global__ void f_int(int* x) { say(\"int\"); }"), "{out}");
        let other = "#define TWICE(x) (2 * (x))\nint a = TWICE(3);";
        assert_eq!(written_out(other), other);
    }

    #[test]
    fn what_ends_nowhere_or_names_itself_is_left() {
        for text in [
            "#define K(x) __global__ void x() {}\nK(a",
            "#define K(x) __global__ K(x)\nK(a)",
            "#define K __global__ K\nK f() {}",
            "#define\n#define K( __global__\nK",
        ] {
            let out = written_out(text);
            assert_eq!(out.matches('\n').count(), text.matches('\n').count(), "{out}");
        }
        let text = "#define K __global__ void\n#undef K\nK f() {}";
        assert_eq!(written_out(text), text);
    }
}
