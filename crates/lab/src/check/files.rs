//! A file with the headers of its own beside it, as one text whose lines are still known by their files.

use std::collections::BTreeSet;
use std::ops::Range;

use super::includes::{Include, included};
use super::lines::{Kind, Token, tokens};
use super::refusal::Refusal;

/// Finds headers that a file includes by `"…"`: the path as it stands there, and the header that includes it.
pub type FindHeader<'a> = &'a dyn Fn(&str, Option<&str>) -> Option<(String, String)>;

/// How deep headers may include each other.
const DEPTH: usize = 32;
/// Lines of a file with all its headers.
const LINES: u32 = 200_000;

/// A text, and which file each of its lines is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Files {
    pub(super) text: String,
    /// Where a run of lines of one file begins: the line in the text, the file, the line in it.
    runs: Vec<(u32, String, u32)>,
}

impl Files {
    /// The file called `name`, with what `find` finds in the place of its includes. A header that is not found
    /// stays an include.
    pub(super) fn of(name: &str, text: &str, find: FindHeader<'_>) -> Result<Self, Refusal> {
        let mut files = Self { text: String::new(), runs: vec![(1, name.to_owned(), 1)] };
        let mut line = 1;
        let start = Open { name, path: None, depth: 0 };
        files.add(&start, text.trim_start_matches('\u{feff}'), &mut line, find, &mut BTreeSet::new())?;
        Ok(files)
    }

    fn add(
        &mut self,
        open: &Open<'_>,
        text: &str,
        line: &mut u32,
        find: FindHeader<'_>,
        once: &mut BTreeSet<String>,
    ) -> Result<(), Refusal> {
        let all = tokens(text);
        let off = switched_off(&all);
        for (at, token) in all.into_iter().enumerate() {
            let lines = token.text.matches('\n').count() as u32;
            if off.iter().any(|range| range.contains(&at)) {
                self.text.push_str(&"\n".repeat(lines as usize));
                *line += lines;
                continue;
            }
            let header = (token.kind == Kind::Directive)
                .then(|| included(token.text))
                .flatten()
                .filter(|(path, is_quoted)| *is_quoted && Include::of(path).is_none())
                .and_then(|(path, _)| find(path, open.path));
            let Some((path, header)) = header else {
                let is_once = token.kind == Kind::Directive
                    && token.text[1..].split_whitespace().eq(["pragma", "once"]);
                // It speaks of a file, and the text is one of several.
                if !is_once {
                    self.text.push_str(token.text);
                }
                *line += lines;
                continue;
            };
            let refuse =
                |message: String| Refusal { file: Some(open.name.to_owned()), line: token.line, message };
            if open.depth == DEPTH {
                return Err(refuse(format!("headers include each other more than {DEPTH} deep: {path}")));
            }
            if once.contains(&path) {
                continue;
            }
            if is_included_once(&header) {
                once.insert(path.clone());
            }
            self.enter(line, &path, 1);
            let inner = Open { name: &path, path: Some(&path), depth: open.depth + 1 };
            self.add(&inner, header.trim_start_matches('\u{feff}'), line, find, once)?;
            if *line > LINES {
                return Err(refuse(format!("the file has more than {LINES} lines with its headers: {path}")));
            }
            // What follows the include on its line, most often the end of it.
            self.enter(line, open.name, token.line);
        }
        Ok(())
    }

    /// Goes on with that line of a file, for the compiler too. `line` is the text's own.
    fn enter(&mut self, line: &mut u32, file: &str, of_file: u32) {
        self.text.push('\n');
        self.text.push_str(&directive(of_file, file));
        *line += 2;
        self.runs.push((*line, file.to_owned(), of_file));
    }

    /// The file that a line of the text is from, and the line in it.
    pub(super) fn place(&self, line: u32) -> (&str, u32) {
        let run = self.runs.iter().rev().find(|(first, ..)| *first <= line).unwrap_or(&self.runs[0]);
        (&run.1, run.2 + line.saturating_sub(run.0))
    }

    /// The names of all files, each once.
    pub(super) fn names(&self) -> Vec<String> {
        let all: BTreeSet<&String> = self.runs.iter().map(|(_, file, _)| file).collect();
        all.into_iter().cloned().collect()
    }

    /// Whether a file is not the one that was asked for.
    pub(super) fn is_header(&self, file: &str) -> bool {
        self.runs[0].1 != file
    }

    /// What tells the compiler that the next line of the text is that of a file.
    pub(super) fn directive_for(&self, line: u32) -> String {
        let (file, line) = self.place(line);
        directive(line, file)
    }
}

/// A file that is being read.
struct Open<'a> {
    /// What messages call it.
    name: &'a str,
    /// Where it was found, if it is a header.
    path: Option<&'a str>,
    depth: usize,
}

fn directive(line: u32, file: &str) -> String {
    format!("#line {line} \"{file}\"\n")
}

/// What stands between `#if 0` and its `#else` or `#endif`: nobody ever compiles it, and it may be no C++.
fn switched_off(all: &[Token<'_>]) -> Vec<Range<usize>> {
    let word = |at: usize| -> Option<Vec<&str>> {
        (all[at].kind == Kind::Directive).then(|| all[at].text[1..].split_whitespace().take(2).collect())
    };
    let (mut found, mut at) = (Vec::new(), 0);
    while at < all.len() {
        if word(at).is_some_and(|words| words == ["if", "0"]) {
            let (mut depth, mut end) = (0, at + 1);
            while end < all.len() {
                match word(end).as_deref() {
                    Some(["if" | "ifdef" | "ifndef", ..]) => depth += 1,
                    Some(["endif", ..]) if depth > 0 => depth -= 1,
                    Some(["endif" | "else" | "elif", ..]) if depth == 0 => break,
                    _ => {}
                }
                end += 1;
            }
            found.push(at + 1..end);
            at = end;
        }
        at += 1;
    }
    found
}

/// Whether a header guards itself: by `#pragma once`, or by a macro around all of it.
fn is_included_once(header: &str) -> bool {
    let all = tokens(header);
    let words = |token: &Token<'_>| -> Vec<String> {
        token.text[1..].split_whitespace().take(2).map(str::to_owned).collect()
    };
    let directives: Vec<Vec<String>> =
        all.iter().filter(|token| token.kind == Kind::Directive).map(words).collect();
    let guards = match directives.as_slice() {
        [first, second, ..] => {
            first.len() == 2 && first[0] == "ifndef" && second.as_slice() == ["define", first[1].as_str()]
        }
        _ => false,
    };
    guards || directives.iter().any(|words| words.as_slice() == ["pragma", "once"])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(path: &str, _: Option<&str>) -> Option<(String, String)> {
        let text = match path {
            "once.h" => "#pragma once\nint once;\n",
            "guarded.h" => "#ifndef G\n#define G\n#include \"once.h\"\nint guarded;\n#endif\n",
            "again.h" => "int again;",
            "self.h" => "#include \"self.h\"\n",
            _ => return None,
        };
        Some((format!("lib/{path}"), text.to_owned()))
    }

    #[test]
    fn every_line_knows_its_file() {
        let text = "int a;\n#include \"guarded.h\" // directive\nint b;\n#include \"once.h\"\n#include \"again.h\"\n\
                    #include \"again.h\"\n#include \"missing.h\"\n#include <guarded.h>\nint c;";
        let files = Files::of("a.cu", text, &find).unwrap();
        let place = |part: &str| {
            let at = files.text.find(part).unwrap_or_else(|| panic!("{part}: {}", files.text));
            files.place(1 + files.text[..at].matches('\n').count() as u32)
        };
        assert_eq!(place("int a"), ("a.cu", 1));
        assert_eq!(place("int once"), ("lib/once.h", 2));
        assert_eq!(place("int guarded"), ("lib/guarded.h", 4));
        assert_eq!(place("int b"), ("a.cu", 3));
        assert_eq!(place("missing.h"), ("a.cu", 7));
        assert_eq!(place("int c"), ("a.cu", 9));
        assert_eq!(files.text.matches("int once").count(), 1);
        assert_eq!(files.text.matches("int again").count(), 2);
        // As the compiler counts: by the last directive before.
        for (number, line) in files.text.lines().enumerate() {
            if let Some(told) = line.strip_prefix("#line ") {
                let (file, line) = files.place(number as u32 + 2);
                assert_eq!(told, format!("{line} \"{file}\""));
            }
        }
    }

    #[test]
    fn what_is_switched_off_is_left_out() {
        let text = "#if 0\n#ifdef A\n__global__ void old() {\n#endif\n#else\nint kept;\n#endif\n#if 01\nint other;\n#endif\n#if 0\nend";
        let files = Files::of("a.cu", text, &find).unwrap();
        assert_eq!(files.text.matches('\n').count(), text.matches('\n').count());
        assert!(
            !files.text.contains("old") && !files.text.contains("end\n") && files.text.contains("int kept")
        );
        assert!(files.text.contains("int other") && files.text.ends_with("#if 0\n"), "{}", files.text);
    }

    #[test]
    fn headers_that_include_themselves_are_refused() {
        let refused = Files::of("a.cu", "\n#include \"self.h\"\n", &find).unwrap_err();
        assert!(refused.to_string().contains("lib/self.h, line 1"), "{refused}");
    }
}
