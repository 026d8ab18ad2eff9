//! Many bugs in one file of kernels, each beside a twin without it: compiled once, run under many schedules.
#![allow(dead_code, reason = "every test file uses its own part")]

use std::time::Duration;

use gatework_gpu::{Device, Emulation, Error, Fault, FaultKind, Grid, Source, args};

/// Schedules under which a bug must be found, and its twin must pass.
const SEEDS: u64 = 20;

/// A kernel `(u32* x, u32* fresh, u32 n)` whose body has a `HOLE`. With `bug` there, every schedule stops at
/// a line marked `// here`, or at the kernel's first where none is, with a fault of that kind that has those
/// words; with `fix` there, every schedule passes. `x` has 1024 words, all 7 but for the last eight, which
/// are 0; `fresh` has as many that nobody has written; `n` is 1024.
pub struct Bug {
    pub name: &'static str,
    pub body: &'static str,
    pub bug: &'static str,
    pub fix: &'static str,
    pub kind: FaultKind,
    pub words: &'static str,
    pub grid: Grid,
}

/// One block of so many threads with 8 KiB of shared memory.
pub fn block(threads: u32) -> Grid {
    blocks(1, threads)
}

/// So many blocks of so many threads with 8 KiB of shared memory.
pub fn blocks(blocks: u32, threads: u32) -> Grid {
    Grid::new([blocks, 1, 1], [threads, 1, 1]).shared(8192)
}

/// A file of kernels with the lines that are marked in each.
struct File {
    text: String,
    marked: Vec<Vec<u32>>,
}

impl File {
    fn new(prelude: &str, bugs: &[Bug]) -> Self {
        let mut file = Self { text: format!("{prelude}\n"), marked: Vec::new() };
        for bug in bugs {
            file.add(&format!("{}_bug", bug.name), &bug.body.replace("HOLE", bug.bug));
            file.add(&format!("{}_fix", bug.name), &bug.body.replace("HOLE", bug.fix));
        }
        file
    }

    fn add(&mut self, name: &str, body: &str) {
        let first = self.text.lines().count() as u32 + 1;
        let kernel = match body.strip_prefix("BOUNDED ") {
            Some(body) => {
                format!("GW_KERNEL_BOUNDED({name}, 256, 1)(u32* x, u32* fresh, u32 n) {{\n{body}\n}}\n")
            }
            None => format!("GW_KERNEL({name})(u32* x, u32* fresh, u32 n) {{\n{body}\n}}\n"),
        };
        let marks = |(line, text): (usize, &str)| text.contains("// here").then_some(first + line as u32);
        let marked: Vec<u32> = kernel.lines().enumerate().filter_map(marks).collect();
        self.marked.push(if marked.is_empty() { vec![first] } else { marked });
        self.text.push_str(&kernel);
    }
}

/// Runs a kernel under one schedule: a fault, or nothing.
pub fn run(source: &Source, kernel: &str, grid: &Grid, seed: u64) -> Option<Fault> {
    let device = Device::emulated_as(Emulation::seeded(seed).limit(Duration::from_millis(400))).unwrap();
    let stream = device.stream().unwrap();
    let mut words = vec![7u32; 1024];
    words[1016..].fill(0);
    let mut x = stream.upload(&words).unwrap();
    let mut fresh = stream.alloc::<u32>(1024).unwrap();
    let kernel = device.kernel_named(source, kernel).unwrap();
    let launched = kernel.launch(&stream, grid, &args![&mut x, &mut fresh, 1024u32]);
    match launched.and_then(|()| stream.synchronize()) {
        Ok(()) => None,
        Err(Error::Fault(fault)) => {
            // The stream is usable again, and memory was not lost.
            assert_eq!(stream.download(&stream.upload(&[1u8, 2, 3]).unwrap()).unwrap(), [1, 2, 3]);
            Some(*fault)
        }
        Err(other) => panic!("not a fault: {other}"),
    }
}

/// Finds all bugs, and none in their twins. Says everything that is wrong at once.
#[track_caller]
pub fn find_all(prelude: &str, bugs: &[Bug]) {
    find_all_under(SEEDS, prelude, bugs);
}

/// The same under so many schedules: for what takes long and depends on none.
#[track_caller]
pub fn find_all_under(seeds: u64, prelude: &str, bugs: &[Bug]) {
    let file = File::new(&format!("#include \"gw/gw.cuh\"\n{prelude}"), bugs);
    let source = Source::new("planted", file.text.clone());
    let mut wrong = Vec::new();
    for (number, bug) in bugs.iter().enumerate() {
        let lines = &file.marked[2 * number];
        for seed in 0..seeds {
            let found = run(&source, &format!("{}_bug", bug.name), &bug.grid, seed);
            let Some(fault) = found else {
                wrong.push(format!("{}: seed {seed} does not show it", bug.name));
                break;
            };
            let at = fault.site.as_ref().map(|site| (site.file.as_str(), site.line));
            let in_place = at.is_some_and(|(file, line)| file == "planted.cuh" && lines.contains(&line));
            if fault.kind != bug.kind || !fault.message.contains(bug.words) || !in_place {
                wrong.push(format!(
                    "{}: wanted {:?} at {lines:?}: {fault} [{:?}]",
                    bug.name, bug.kind, fault.kind
                ));
                break;
            }
        }
        for seed in 0..seeds {
            if let Some(fault) = run(&source, &format!("{}_fix", bug.name), &bug.grid, seed) {
                wrong.push(format!("{}: seed {seed} stops the twin: {fault} [{:?}]", bug.name, fault.kind));
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), bugs.len(), wrong.join("\n"));
}
