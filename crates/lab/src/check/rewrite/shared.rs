//! Shared memory: every `__shared__` variable as a reference to its place, the dynamic part as a pointer behind them.

use std::fmt::Write as _;

use super::super::lines::{Kind, Token, breaks, closing, joined, split};
use super::super::refusal::Refusal;
use super::Writer;

impl Writer<'_, '_> {
    /// `extern __shared__ T name[];`
    pub(super) fn dynamic_shared(&mut self, shared: usize) -> Result<(), Refusal> {
        let line = self.tokens[shared].line;
        let Some(end) = (shared..self.tokens.len()).find(|&at| self.is(at, ";")) else {
            return Self::refuse(line, "a declaration without its end");
        };
        let (declared, _) = without_alignment(&self.tokens[shared + 1..end]);
        let Some((type_, name, _)) = declarator(&declared) else {
            return Self::refuse(line, "extern __shared__ is known as 'extern __shared__ T name[];'");
        };
        let lines = breaks(&self.tokens[self.at..=end]);
        let next = self.files.directive_for(self.tokens[end].line);
        self.has_dynamic_shared = true;
        // A macro, so that it may stand outside of functions too.
        let text = format!("{lines}\n#define {name} (gw::shared<{type_}>(GW_STATIC_BYTES))\n{next}");
        self.put(&text, end);
        Ok(())
    }

    /// `__shared__ T name[N], other;`, with an alignment before or after the word.
    pub(super) fn shared(&mut self) -> Result<(), Refusal> {
        let line = self.tokens[self.at].line;
        let mut at = self.at;
        if !self.is(at, "__shared__") {
            let close = closing(self.tokens, self.skip(at + 1)).unwrap_or(at);
            at = self.skip(close + 1);
            if !self.is(at, "__shared__") {
                self.put(self.tokens[self.at].text, self.at);
                return Ok(());
            }
        }
        let Some(end) = (at..self.tokens.len()).find(|&at| self.is(at, ";")) else {
            return Self::refuse(line, "a declaration without its end");
        };
        let all: Vec<Token<'_>> =
            self.tokens[self.at..end].iter().filter(|token| !token.is("__shared__")).copied().collect();
        let (declared, alignment) = without_alignment(&all);
        let parts = split(&declared, ",");
        let Some((type_, ..)) = parts.first().and_then(|first| declarator(first)) else {
            return Self::refuse(line, "a __shared__ variable is known as '__shared__ T name[N];'");
        };
        let mut text = breaks(&self.tokens[self.at..=end]);
        let is_local = is_within_a_function(&self.tokens[..self.at]);
        for (number, part) in parts.iter().enumerate() {
            let found = if number == 0 {
                declarator(part).map(|(_, name, extent)| (name, extent))
            } else {
                bare(part)
            };
            let Some((name, extent)) = found else {
                return Self::refuse(line, "a __shared__ variable is known as '__shared__ T name[N];'");
            };
            let id = self.shared;
            self.shared += 1;
            let place = format!(
                "(*static_cast<gw_type_of_{id}*>(gw::cuda::place({id}, sizeof(gw_type_of_{id}), {alignment})))"
            );
            let _ = write!(text, " typedef {type_} gw_type_of_{id}{extent}; ");
            if is_local {
                let _ = write!(text, "gw_type_of_{id}& {name} = {place};");
            } else {
                // Every thread asks for its block's: outside of functions there is no block yet.
                let next = self.files.directive_for(self.tokens[end].line);
                let _ = write!(text, "\n#define {name} {place}\n{next}");
            }
        }
        self.put(&text, end);
        Ok(())
    }
}

/// Whether a bracket is open behind these tokens that is not a namespace's.
fn is_within_a_function(before: &[Token<'_>]) -> bool {
    let (mut open, mut from) = (Vec::new(), 0);
    for (at, token) in before.iter().enumerate().filter(|(_, token)| token.kind == Kind::Mark) {
        match token.text {
            "{" => {
                let head = &before[from..at];
                let has = |word: &str| head.iter().any(|token| token.is(word));
                open.push(!has("namespace") && (!has("extern") || has("(")));
            }
            "}" => {
                open.pop();
            }
            ";" => {}
            _ => continue,
        }
        from = at + 1;
    }
    open.contains(&true)
}

/// Type, name and extents of `T name[N][M]`.
pub(super) fn declarator(part: &[Token<'_>]) -> Option<(String, String, String)> {
    let end = part.iter().position(|token| token.is("[")).unwrap_or(part.len());
    let at = part[..end].iter().rposition(|token| token.kind == Kind::Word)?;
    let type_ = joined(&part[..at]);
    (!type_.is_empty()).then(|| (type_, part[at].text.to_owned(), joined(&part[end..])))
}

/// Name and extents of a further variable of a declaration.
pub(super) fn bare(part: &[Token<'_>]) -> Option<(String, String)> {
    let end = part.iter().position(|token| token.is("[")).unwrap_or(part.len());
    let name = part[..end].iter().find(|token| token.kind == Kind::Word)?;
    Some((name.text.to_owned(), joined(&part[end..])))
}

/// Takes `alignas(N)` and `__align__(N)` out of a declaration; without one, 16.
fn without_alignment<'a>(declared: &[Token<'a>]) -> (Vec<Token<'a>>, String) {
    let (mut rest, mut alignment, mut at) = (Vec::new(), "16".to_owned(), 0);
    while at < declared.len() {
        let token = declared[at];
        let open = (at + 1..declared.len()).find(|&next| !declared[next].is_space());
        let open = open.filter(|&open| declared[open].is("("));
        match open.and_then(|open| closing(declared, open).map(|close| (open, close))) {
            Some((open, close)) if token.is("alignas") || token.is("__align__") => {
                alignment = joined(&declared[open + 1..close]);
                at = close;
            }
            _ => rest.push(token),
        }
        at += 1;
    }
    (rest, alignment)
}
