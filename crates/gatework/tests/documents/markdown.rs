//! What the tests need of Markdown: fenced blocks, links, headings, and lines of prose.

/// How a block is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Commands that must succeed.
    Shell,
    /// Commands after `$ `, and what they print.
    Console,
    /// Nothing to run here.
    Other,
}

/// A fenced block.
#[derive(Debug, Clone)]
pub struct Block {
    pub kind: Kind,
    /// The word behind `sh`, as in `sh cuda`.
    pub mark: Option<String>,
    /// The line of its first text, from 1.
    pub line: usize,
    pub text: String,
}

/// The fenced blocks of a page, in order.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in text.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(info)) => {
                let mut words = info.split_whitespace();
                let kind = match words.next() {
                    Some("sh") => Kind::Shell,
                    Some("console") => Kind::Console,
                    _ => Kind::Other,
                };
                let mark = words.next().filter(|_| kind != Kind::Other).map(str::to_owned);
                open = Some(Block { kind, mark, line: index + 2, text: String::new() });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => (),
        }
    }
    blocks
}

/// The lines outside of fenced blocks, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, line))
    })
}

/// The targets of links, each with its line.
pub fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (number, line) in prose(text) {
        let mut rest = line;
        while let Some(at) = rest.find("](") {
            rest = &rest[at + 2..];
            if let Some(end) = rest.find(')') {
                links.push((number, rest[..end].to_owned()));
            }
        }
    }
    links
}

/// The anchors of a page's headings, as renderers make them.
pub fn anchors(text: &str) -> Vec<String> {
    let headings =
        prose(text).filter_map(|(_, line)| Some(line.strip_prefix('#')?.trim_start_matches('#').trim()));
    headings
        .map(|heading| {
            let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
        })
        .collect()
}

/// The columns of every line of prose. Tables, markers and lines that hold a link, which cannot be broken, do
/// not count.
pub fn prose_widths(text: &str) -> Vec<(usize, usize)> {
    prose(text)
        .filter(|(_, line)| {
            let line = line.trim_start();
            !line.starts_with('|')
                && !line.starts_with("<!--")
                && !line.contains("](")
                && !line.contains("://")
        })
        .map(|(number, line)| (number, line.chars().count()))
        .collect()
}
