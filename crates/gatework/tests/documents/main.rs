//! Every command in README.md and docs/ runs as it is written, and prints what the page shows.
//!
//! The fenced blocks of a page are run in order, in a folder of the page's own that looks like the root of
//! the repository:
//!
//! * `sh`: commands that must succeed.
//! * `console`: lines that begin with `$ ` are commands, and what follows each is what it prints, on stdout
//!   and stderr together. A command that fails is followed by `$ echo $?`. See [`matching`] for what may
//!   differ.
//! * `sh cuda`, `sh cairo`, `sh network`: shown as ignored, with the reason.
//!
//! `cargo run` in a page is the binary or the example that this test run has built; see [`session`].
//! Blocks of Rust are doctests of the crate `gatework`.
//!
//! `GATEWORK_BLESS=1 cargo test -p gatework --test documents` writes what commands print into `console`
//! blocks, and the page of commands.

mod commands;
mod markdown;
mod matching;
mod session;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::{env, fs};

use libtest_mimic::{Arguments, Failed, Trial};
use markdown::{Block, Kind};

/// What marks a block that this machine cannot run, and why not.
const MARKS: [(&str, &str); 3] = [
    ("cuda", "needs an NVIDIA GPU"),
    ("cairo", "needs ./prepare of integrations/cairo"),
    ("network", "fetches from outside"),
];
/// The widest line of prose.
const WIDTH: usize = 110;

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let Ok(root) = root.canonicalize() else {
        // A package by itself has no documents.
        println!("the repository around this crate is not there: nothing to run");
        return ExitCode::SUCCESS;
    };
    let bless = env::var_os("GATEWORK_BLESS").is_some();
    let mut trials = Vec::new();
    for page in runnable_pages(&root) {
        let text = fs::read_to_string(root.join(&page)).expect("a page");
        let blocks = markdown::blocks(&text);
        trials.extend(blocks.iter().filter_map(|block| ignored(&page, block)));
        if blocks.iter().any(|block| block.mark.is_none() && block.kind != Kind::Other) {
            let (root, name) = (root.clone(), page.display().to_string());
            trials.push(Trial::test(name, move || session::run_page(&root, &page, bless)));
        }
    }
    let here = root.clone();
    trials.push(Trial::test("every_link_leads_somewhere", move || every_link_leads_somewhere(&here)));
    let here = root.clone();
    trials.push(Trial::test("prose_is_at_most_110_columns_wide", move || prose_is_narrow(&here)));
    let here = root.clone();
    trials.push(Trial::test("every_program_is_a_doctest", move || every_program_is_a_doctest(&here)));
    let here = root.clone();
    trials.push(Trial::test("the_picture_is_what_records_say", move || picture_is_fresh(&here, bless)));
    let here = root.clone();
    trials.push(Trial::test("every_page_is_in_the_summary", move || every_page_is_listed(&here)));
    trials.push(Trial::test("the_page_of_commands_is_what_help_says", move || commands::check(&root, bless)));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The pages whose commands are run.
fn runnable_pages(root: &Path) -> Vec<PathBuf> {
    let mut pages = vec![PathBuf::from("README.md")];
    pages.extend(pages_of(root));
    pages
}

/// All pages of the book, relative to the repository.
fn pages_of(root: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).expect("a folder of documents").flatten() {
            let path = folder.join(entry.file_name());
            if entry.path().is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

fn ignored(page: &Path, block: &Block) -> Option<Trial> {
    let mark = block.mark.as_deref()?;
    let name = format!("{}:{}", page.display(), block.line);
    match MARKS.iter().find(|(known, _)| *known == mark) {
        Some((_, why)) => {
            Some(Trial::test(format!("{name}: {why}"), || Ok(())).with_ignored_flag(true).with_kind(mark))
        }
        None => {
            let said = format!("'{mark}' is no mark of a block; there are cuda, cairo and network");
            Some(Trial::test(name, move || Err(said.into())))
        }
    }
}

/// All documents that people read: those of the root, of the book and of the crates.
fn documents(root: &Path) -> Vec<PathBuf> {
    let mut documents = pages_of(root);
    documents.extend(
        ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"].map(PathBuf::from),
    );
    for folder in fs::read_dir(root.join("crates")).expect("the crates").flatten() {
        let path = Path::new("crates").join(folder.file_name()).join("README.md");
        if root.join(&path).exists() {
            documents.push(path);
        }
    }
    documents
}

fn every_link_leads_somewhere(root: &Path) -> Result<(), Failed> {
    let mut broken = Vec::new();
    for page in documents(root) {
        let text = fs::read_to_string(root.join(&page))?;
        for (line, link) in markdown::links(&text) {
            let (path, anchor) = link.split_once('#').unwrap_or((link.as_str(), ""));
            let outside = path.contains("://") || path.starts_with("mailto:");
            let target = root.join(&page).parent().unwrap_or(root).join(path);
            let target = if path.is_empty() { root.join(&page) } else { target };
            if !outside && !target.exists() {
                broken.push(format!("{}:{line}: {link} is not there", page.display()));
            } else if !outside
                && !anchor.is_empty()
                && target.extension().is_some_and(|ending| ending == "md")
            {
                let headings = markdown::anchors(&fs::read_to_string(&target)?);
                if !headings.iter().any(|heading| heading == anchor) {
                    broken.push(format!("{}:{line}: {link} has no such heading", page.display()));
                }
            }
        }
    }
    if broken.is_empty() { Ok(()) } else { Err(broken.join("\n").into()) }
}

fn prose_is_narrow(root: &Path) -> Result<(), Failed> {
    let mut wide = Vec::new();
    for page in documents(root) {
        let text = fs::read_to_string(root.join(&page))?;
        for (line, columns) in markdown::prose_widths(&text) {
            if columns > WIDTH {
                wide.push(format!("{}:{line}: {columns} columns", page.display()));
            }
        }
    }
    if wide.is_empty() { Ok(()) } else { Err(format!("{} lines:\n{}", wide.len(), wide.join("\n")).into()) }
}

fn every_page_is_listed(root: &Path) -> Result<(), Failed> {
    let summary = fs::read_to_string(root.join("docs/SUMMARY.md"))?;
    let listed: Vec<String> = markdown::links(&summary).into_iter().map(|(_, link)| link).collect();
    for page in pages_of(root) {
        let name = page.strip_prefix("docs").unwrap_or(&page).display().to_string();
        if name != "SUMMARY.md" && !listed.contains(&name) {
            return Err(format!("docs/SUMMARY.md does not list {name}").into());
        }
    }
    Ok(())
}

fn every_program_is_a_doctest(root: &Path) -> Result<(), Failed> {
    let included = fs::read_to_string(root.join("crates/gatework/src/lib.rs"))?;
    for page in pages_of(root) {
        let has_program = fs::read_to_string(root.join(&page))?.contains("```rust");
        if has_program && !included.contains(&format!("../../../{}\"", page.display())) {
            return Err(format!("crates/gatework/src/lib.rs does not include {}", page.display()).into());
        }
    }
    Ok(())
}

/// The picture of the front page. With `bless`, draws it.
fn picture_is_fresh(root: &Path, bless: bool) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let (shown, drawn) = (root.join("results/overview.svg"), folder.path().join("overview.svg"));
    let status = Command::new(env!("CARGO_BIN_EXE_gatework"))
        .args(["lab", "picture", "--results"])
        .args([root.join("results").as_os_str(), "--out".as_ref(), drawn.as_os_str()])
        .stdout(Stdio::null())
        .status()?;
    if !status.success() {
        return Err("the picture cannot be drawn".into());
    }
    if bless {
        fs::copy(&drawn, &shown)?;
    }
    if fs::read(&shown)? == fs::read(&drawn)? {
        return Ok(());
    }
    Err("results/overview.svg is not what the records say; 'gatework lab picture' draws it anew".into())
}
