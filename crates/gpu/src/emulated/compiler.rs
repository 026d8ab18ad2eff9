//! The machine's own C++ compiler makes kernels for the emulated device.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::locked::Locked;
use crate::source::Source;
use crate::types::Compiled;
use crate::{Error, Result};

/// Every load and store is instrumented, and so are array indices and divisors, which would otherwise reach
/// host memory or stop the process, and shifts and conversions, which would have another result than on the
/// card; locals start as garbage; nothing is fused that the GPU would not fuse; the library runs on any
/// machine of this architecture. A function that is nowhere defined is the linker's error: found at its first
/// call, it would end the process. One that is defined here is this one, and never the process's own of that
/// name.
const FLAGS: &[&str] = &[
    "-std=c++17",
    "-O2",
    "-g1",
    "-fPIC",
    "-shared",
    "-nostdlib",
    "-fsanitize=thread",
    "-fsanitize=integer-divide-by-zero",
    "-fsanitize=shift-exponent",
    "-fsanitize=float-cast-overflow",
    "-fsanitize=signed-integer-overflow",
    "-fsanitize=alignment",
    "-fsanitize=return",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-strict-aliasing",
    "-fno-stack-protector",
    "-ffp-contract=off",
    "-Werror=frame-larger-than=65536",
    "-Werror=vla",
    "-Werror=alloca",
    "-Wl,-z,defs",
    "-Wl,-Bsymbolic",
];

/// Of each list, the first that the compiler understands. Clang's `bounds` holds a check that traps, its
/// `array-bounds` does not; GCC knows `bounds` alone. Locals are poisoned by newer compilers only. A loop
/// without an end is none that the compiler may leave out. Volatile accesses are told apart from others; Clang
/// takes GCC's option for that, too, and does nothing.
const OPTIONAL_FLAGS: &[&[&str]] = &[
    &["-fsanitize=array-bounds", "-fsanitize=bounds"],
    &["-ftrivial-auto-var-init=pattern"],
    &["-fno-finite-loops"],
    &["-mllvm -tsan-distinguish-volatile=1", "--param=tsan-distinguish-volatile=1"],
];

/// Defined in a source whose locals start as a `pattern` or as `zero`: they do so for certain only without
/// optimisation.
pub(crate) const LOCALS: &str = "GW_LOCALS";

/// Whether locals can be made to start as that definition says. Clang would fill the padding of structures
/// too, which copies carry into memory.
pub(crate) fn can_fill_locals() -> Result<bool> {
    let Compiler { command, name, .. } = compiler()?;
    Ok(!name.contains("clang") && accepts(&command, "-ftrivial-auto-var-init=zero"))
}

/// A compiler that answered.
#[derive(Clone)]
struct Compiler {
    command: String,
    /// The first line of `--version`.
    name: String,
    flags: Vec<&'static str>,
}

/// The compiler's command: `CXX`, else `c++`.
fn command() -> String {
    std::env::var("CXX").ok().filter(|command| !command.is_empty()).unwrap_or_else(|| "c++".into())
}

/// The first line of `--version`.
pub(crate) fn name() -> Result<String> {
    Ok(compiler()?.name)
}

/// The flags that every kernel is compiled with.
pub(crate) fn flags() -> Result<Vec<String>> {
    Ok(compiler()?.flags.into_iter().map(str::to_owned).collect())
}

/// The name, and below it the flags in use: part of the cache key.
pub(crate) fn version() -> Result<String> {
    let compiler = compiler()?;
    Ok(format!("{}\n{}", compiler.name, compiler.flags.join(" ")))
}

/// Asks the compiler once a process what it is and what it understands.
fn compiler() -> Result<Compiler> {
    static KNOWN: Locked<BTreeMap<String, Compiler>> = Locked::new(BTreeMap::new());
    let command = command();
    let mut known = KNOWN.lock();
    if let Some(compiler) = known.get(&command) {
        return Ok(compiler.clone());
    }
    let output = run(&command, Command::new(&command).arg("--version"))?;
    let told = String::from_utf8_lossy(&output.stdout);
    let name = told.lines().next().filter(|line| !line.is_empty() && output.status.success());
    let name = name.ok_or_else(|| Error::NoCompiler {
        command: command.clone(),
        reason: format!("it answers --version with {}", output.status),
    })?;
    let understood = |choices: &&[&'static str]| choices.iter().copied().find(|flag| accepts(&command, flag));
    let optional = OPTIONAL_FLAGS.iter().filter_map(understood).flat_map(str::split_whitespace);
    let flags = FLAGS.iter().copied().chain(optional).collect();
    let compiler = Compiler { command: command.clone(), name: name.to_owned(), flags };
    known.insert(command, compiler.clone());
    Ok(compiler)
}

fn accepts(command: &str, flag: &str) -> bool {
    let tried = Command::new(command)
        .args(flag.split_whitespace())
        .args(["-x", "c++", "-fsyntax-only", "/dev/null"])
        .output();
    tried.is_ok_and(|output| output.status.success())
}

/// Compiles a source with its includes, in `folder`, into the bytes of a shared library.
pub(crate) fn compile(
    source: &Source,
    includes: &BTreeMap<String, Cow<'static, str>>,
    folder: &Path,
) -> Result<Compiled> {
    let io = |path: &Path, source| Error::Io { path: path.to_owned(), source };
    for (path, text) in includes {
        let path = folder.join(path);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(|error| io(parent, error))?;
        fs::write(&path, text.as_bytes()).map_err(|error| io(&path, error))?;
    }
    let main = format!("{}.cuh", source.name());
    let input = folder.join("kernel.cpp");
    fs::write(&input, translation_unit(source, &main)).map_err(|error| io(&input, error))?;

    let Compiler { command, flags, .. } = compiler()?;
    let mut compilation = Command::new(&command);
    // Its own temporary files go with the folder, however this process ends.
    compilation.current_dir(folder).env("TMPDIR", folder).args(flags);
    if let Some(start) = source.defines().get(LOCALS) {
        if !can_fill_locals()? {
            let reason = "it cannot fill registers, as GCC 12 and later ones can".into();
            return Err(Error::NoCompiler { command, reason });
        }
        compilation.args(["-O0".to_owned(), format!("-ftrivial-auto-var-init={start}")]);
    }
    for (name, value) in source.defines() {
        compilation.arg(format!("-D{name}={value}"));
    }
    let output = run(&command, compilation.args(["-I.", "kernel.cpp", "-o", "kernel.so", "-lm", "-lgcc"]))?;
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(Error::Compile { kernel: source.name().to_owned(), compiler: command, log });
    }
    let library = folder.join("kernel.so");
    let bytes = fs::read(&library).map_err(|error| io(&library, error))?;
    Ok(Compiled { bytes, log, resources: Vec::new() })
}

/// The source under its own name for messages, and an exported entry for each of its kernels.
fn translation_unit(source: &Source, name: &str) -> String {
    let mut unit = format!("#line 1 \"{name}\"\n{}\n#line 1 \"exports\"\n", source.text());
    unit.push_str("#include \"gw/emulated.cuh\"\n");
    for entry in source.entries() {
        let _ = writeln!(unit, "GW_EXPORT({entry})");
    }
    unit
}

fn run(name: &str, command: &mut Command) -> Result<Output> {
    command
        .output()
        .map_err(|error| Error::NoCompiler { command: name.to_owned(), reason: error.to_string() })
}
