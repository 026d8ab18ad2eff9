//! Runs the blocks of a page.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use libtest_mimic::Failed;

use super::markdown::{Block, Kind, blocks};
use super::matching::difference;

/// Stands between what two commands of a block print, with the exit code of the one before.
const SEPARATOR: char = '\u{1}';

/// Seconds that a block may take.
const LONGEST: &str = "300";

/// Runs the blocks of a page in a folder of its own. With `bless`, writes what was printed into the page.
pub fn run_page(root: &Path, page: &Path, bless: bool) -> Result<(), Failed> {
    let path = root.join(page);
    let text = fs::read_to_string(&path)?;
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let folder = workplace(root)?;
    let mut blessed = Vec::new();
    for block in blocks(&text).into_iter().filter(|block| block.mark.is_none()) {
        let place = format!("{}:{}", page.display(), block.line);
        match block.kind {
            Kind::Shell => run_shell(folder.path(), &block.text).map_err(|why| format!("{place}: {why}"))?,
            Kind::Console => {
                let fresh = run_console(folder.path(), &block).map_err(|why| format!("{place}: {why}"))?;
                let differs = fresh.iter().find_map(|shown| difference(&shown.shown, &shown.printed));
                match differs {
                    Some(_) if bless => blessed.push((block, transcript(&fresh))),
                    Some(differs) => return Err(format!("{place}: {differs}").into()),
                    None => (),
                }
            }
            Kind::Other => (),
        }
    }
    // From the last to the first, so that lines keep their numbers.
    for (block, transcript) in blessed.iter().rev() {
        let from = block.line - 1;
        lines.splice(from..from + block.text.lines().count(), transcript.lines().map(str::to_owned));
    }
    if !blessed.is_empty() {
        fs::write(&path, lines.join("\n") + "\n")?;
    }
    Ok(())
}

/// A folder that looks like the root of the repository; what commands write stays out of it.
fn workplace(root: &Path) -> Result<tempfile::TempDir, Failed> {
    let folder = tempfile::tempdir()?;
    for entry in fs::read_dir(root)?.flatten() {
        let name = entry.file_name();
        if name != "target" && !name.to_string_lossy().starts_with(".git") {
            std::os::unix::fs::symlink(entry.path(), folder.path().join(name))?;
        }
    }
    let programs = folder.path().join(".programs");
    fs::create_dir(&programs)?;
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_gatework"), programs.join("gatework"))?;
    let cargo = programs.join("cargo");
    fs::write(&cargo, stand_in_for_cargo())?;
    make_executable(&cargo)?;
    Ok(folder)
}

/// `cargo run` as pages have it: what was built beside this test is not built again with other features.
/// `cargo test` is what runs this.
fn stand_in_for_cargo() -> String {
    let built = Path::new(env!("CARGO_BIN_EXE_gatework")).parent().map(PathBuf::from).unwrap_or_default();
    let built = built.display();
    format!(
        r#"#!/usr/bin/env bash
set -euo pipefail
program={built}/gatework
# Tests build an example as a test that calls its main, under a name with a hash; the newest is this one's.
example() {{ ls -t {built}/examples/"$1" {built}/examples/"$1"-* 2> /dev/null | grep -v '\.d$' | head -1 || true; }}
verb=$1; shift
[ "$verb" = test ] && exit 0
[ "$verb" = run ] || {{ echo "pages run 'cargo run' and 'cargo test' alone, not 'cargo $verb'" >&2; exit 2; }}
while [ $# -gt 0 ]; do
    case "$1" in
        --) shift; break ;;
        -p) shift 2 ;;
        --release) shift ;;
        --example) program=$(example "$2"); shift 2 ;;
        *) echo "cargo run $1 is not known here" >&2; exit 2 ;;
    esac
done
[ -x "$program" ] || {{ echo "$program is not built: run 'cargo test --workspace --no-run' first" >&2; exit 2; }}
exec "$program" "$@"
"#
    )
}

fn make_executable(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

fn bash(folder: &Path, script: &str) -> Result<(Option<i32>, String), Failed> {
    let path = std::env::var("PATH").unwrap_or_default();
    // What a page leaves running ends with its block.
    let script = format!("exec 2>&1\ntrap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n{script}");
    let mut command = Command::new("timeout");
    command.args([LONGEST, "bash", "-c", &script]).current_dir(folder).stdin(Stdio::null());
    command.env("PATH", format!("{}:{path}", folder.join(".programs").display()));
    for variable in ["GATEWORK_DEVICE", "GATEWORK_LOG", "GATEWORK_EMULATOR_SEED", "GATEWORK_EMULATOR_SECONDS"]
    {
        command.env_remove(variable);
    }
    let output = command.output()?;
    Ok((output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned()))
}

fn run_shell(folder: &Path, text: &str) -> Result<(), String> {
    let (code, printed) = bash(folder, &format!("set -euo pipefail\n{text}"))
        .map_err(|error| error.message().unwrap_or_default().to_owned())?;
    if code == Some(0) { Ok(()) } else { Err(format!("exit code {code:?}; it printed\n{printed}")) }
}

/// A command of a `console` block.
struct Shown {
    command: String,
    shown: String,
    printed: String,
}

fn transcript(commands: &[Shown]) -> String {
    commands.iter().map(|shown| format!("$ {}\n{}", shown.command, with_end(&shown.printed))).collect()
}

fn with_end(text: &str) -> String {
    let text = text.trim_end();
    if text.is_empty() { String::new() } else { format!("{text}\n") }
}

fn run_console(folder: &Path, block: &Block) -> Result<Vec<Shown>, String> {
    let mut commands = commands(&block.text);
    let mut script = String::from("status=0\n");
    for shown in &commands {
        script.push_str(&format!(
            "(exit $status)\n{}\nstatus=$?\nprintf '%s{SEPARATOR}' \"$status\"\n",
            shown.command
        ));
    }
    let (_, output) =
        bash(folder, &script).map_err(|error| error.message().unwrap_or_default().to_owned())?;
    let parts: Vec<&str> = output.split(SEPARATOR).collect();
    if parts.len() != commands.len() + 1 {
        return Err(format!("the block ended early; it printed\n{output}"));
    }
    for index in 0..commands.len() {
        let (printed, code) = split_code(parts[index]);
        let tells = commands.get(index + 1).is_some_and(|next| next.command == "echo $?");
        if code != "0" && !tells {
            return Err(format!("'{}' ended with {code}; it printed\n{printed}", commands[index].command));
        }
        commands[index].printed = printed.to_owned();
    }
    Ok(commands)
}

/// What a command printed, and the exit code that stands behind its last line break.
fn split_code(part: &str) -> (&str, &str) {
    part.split_at(part.trim_end_matches(|c: char| c.is_ascii_digit()).len())
}

fn commands(text: &str) -> Vec<Shown> {
    let mut commands: Vec<Shown> = Vec::new();
    let mut continued = false;
    for line in text.lines() {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (_, Some(last)) if continued => {
                last.command.push('\n');
                last.command.push_str(line);
                continued = line.ends_with('\\');
            }
            (Some(command), _) => {
                continued = command.ends_with('\\');
                commands.push(Shown {
                    command: command.to_owned(),
                    shown: String::new(),
                    printed: String::new(),
                });
            }
            (None, Some(last)) => {
                last.shown.push_str(line);
                last.shown.push('\n');
            }
            (None, None) => (),
        }
    }
    commands
}
