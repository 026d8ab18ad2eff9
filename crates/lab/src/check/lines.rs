//! C++ as a list of tokens, each with its line.

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Word,
    Number,
    /// A string, with its quotes.
    Text,
    /// White space, or a comment.
    Space,
    /// A line of the preprocessor.
    Directive,
    /// Any other character, and characters in quotes.
    Mark,
}

/// A piece of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind,
    pub(super) text: &'a str,
    pub(super) line: u32,
}

impl Token<'_> {
    pub(super) fn is(&self, text: &str) -> bool {
        self.text == text && self.kind != Kind::Space
    }

    pub(super) fn is_space(&self) -> bool {
        self.kind == Kind::Space
    }
}

/// Cuts a text into tokens, whose texts together are the text.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let (mut rest, mut line, mut starts_line) = (text, 1, true);
    while let Some(first) = rest.chars().next() {
        let (kind, len) = next(rest, first, starts_line);
        let (token, after) = rest.split_at(len);
        tokens.push(Token { kind, text: token, line });
        line += token.matches('\n').count() as u32;
        starts_line = if kind == Kind::Space { starts_line || token.contains('\n') } else { false };
        if kind == Kind::Directive {
            starts_line = true;
        }
        rest = after;
    }
    tokens
}

fn next(rest: &str, first: char, starts_line: bool) -> (Kind, usize) {
    let run = |accept: fn(char) -> bool| rest.find(|c| !accept(c)).unwrap_or(rest.len());
    match first {
        '#' if starts_line => (Kind::Directive, directive(rest)),
        _ if first.is_whitespace() => (Kind::Space, run(char::is_whitespace)),
        '/' if rest.starts_with("//") => (Kind::Space, rest.find('\n').unwrap_or(rest.len())),
        '/' if rest.starts_with("/*") => (Kind::Space, rest[2..].find("*/").map_or(rest.len(), |at| at + 4)),
        '"' => (Kind::Text, quoted(rest, '"')),
        '\'' => (Kind::Mark, quoted(rest, '\'')),
        _ if first.is_alphabetic() || first == '_' => (Kind::Word, run(|c| c.is_alphanumeric() || c == '_')),
        _ if first.is_ascii_digit() => {
            (Kind::Number, run(|c| c.is_alphanumeric() || c == '.' || c == '\'' || c == '_'))
        }
        _ => (Kind::Mark, first.len_utf8()),
    }
}

/// A line of the preprocessor ends where the line does, but for those that go on behind a backslash.
fn directive(rest: &str) -> usize {
    let mut from = 0;
    while let Some(at) = rest[from..].find('\n') {
        let end = from + at;
        if !rest[..end].trim_end_matches('\r').ends_with('\\') {
            return end;
        }
        from = end + 1;
    }
    rest.len()
}

fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '\n' => return at,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Index of the token that closes what the one at `open` opens.
pub(super) fn closing(tokens: &[Token<'_>], open: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        if token.kind != Kind::Mark {
            continue;
        }
        match token.text {
            "(" | "{" | "[" => depth += 1,
            ")" | "}" | "]" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// Index of the `>` that closes the `<` at `open`.
pub(super) fn angle_closing(tokens: &[Token<'_>], open: usize) -> Option<usize> {
    let (mut depth, mut at) = (0, open);
    while at < tokens.len() {
        match tokens[at].text {
            "<" => depth += 1,
            ">" => depth -= 1,
            "(" | "{" | "[" => at = closing(tokens, at)?,
            ";" | ")" | "}" => return None,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
        at += 1;
    }
    None
}

/// The last bracket that nothing closes, and its line.
pub(super) fn unclosed(tokens: &[Token<'_>]) -> Option<(char, u32)> {
    let mut open: Vec<(char, u32)> = Vec::new();
    for token in tokens.iter().filter(|token| token.kind == Kind::Mark) {
        match token.text {
            "(" | "{" | "[" => open.extend(token.text.chars().map(|mark| (mark, token.line))),
            ")" | "}" | "]" => {
                open.pop();
            }
            _ => {}
        }
    }
    open.pop()
}

/// The text of tokens, on one line.
pub(super) fn joined(tokens: &[Token<'_>]) -> String {
    let text: String = tokens.iter().map(|token| if token.is_space() { " " } else { token.text }).collect();
    text.trim().to_owned()
}

/// As many ends of lines as tokens have, so that what follows keeps its line.
pub(super) fn breaks(tokens: &[Token<'_>]) -> String {
    "\n".repeat(tokens.iter().map(|token| token.text.matches('\n').count()).sum())
}

/// Cuts tokens at a mark outside of all brackets.
pub(super) fn split<'a, 'b>(tokens: &'b [Token<'a>], mark: &str) -> Vec<&'b [Token<'a>]> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0, 0);
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "(" | "{" | "[" => depth += 1,
            ")" | "}" | "]" => depth -= 1,
            _ if depth == 0 && token.is(mark) => {
                parts.push(&tokens[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&tokens[from..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_the_text_and_know_their_lines() {
        let text =
            "#define A \\\n  1\nint f(float* x) { /* a\nb */ return x[0] + 'c' + \"d\\\"e\" 0x1F; } // end\n";
        let all = tokens(text);
        assert_eq!(all.iter().map(|token| token.text).collect::<String>(), text);
        let line = |word: &str| all.iter().find(|token| token.text == word).map(|token| token.line);
        assert_eq!((line("f"), line("return"), line("0x1F")), (Some(3), Some(4), Some(4)));
        assert_eq!(all[0].kind, Kind::Directive);
        assert!(all.iter().any(|token| token.kind == Kind::Text && token.text == "\"d\\\"e\""));
    }

    #[test]
    fn a_comment_does_not_end_where_it_begins() {
        let texts: Vec<&str> = tokens("/*/ a */b/**/").iter().map(|token| token.text).collect();
        assert_eq!(texts, ["/*/ a */", "b", "/**/"]);
    }
}
