//! Bugs planted in kernels, each beside a twin without it.
#![allow(dead_code, reason = "every test file uses its own part")]

use gatework_gpu::{Device, Error, FaultKind, Grid, Kernel, Result, Source, args};

/// Schedules under which a bug must be found, and its twin must pass.
const SEEDS: u64 = 20;

/// A kernel body with a `HOLE`. With `bug` there, every schedule stops at the line marked `// here` with a
/// fault of that kind that has those words; with `fix` there, every schedule passes.
pub struct Twins {
    pub body: &'static str,
    pub bug: &'static str,
    pub fix: &'static str,
    pub kind: FaultKind,
    pub words: &'static str,
}

impl Twins {
    /// Plants both in a kernel `planted(u32* x, u32 n)` over 1024 words, all 7, and runs them over the grid.
    #[track_caller]
    pub fn check(&self, grid: Grid) {
        self.check_with("u32* x, u32 n", |device, kernel| {
            let stream = device.stream()?;
            let mut x = stream.upload(&vec![7u32; 1024])?;
            kernel.launch(&stream, &grid, &args![&mut x, 1024u32])?;
            stream.synchronize()
        });
    }

    /// Plants both in a kernel `planted` of those parameters, which `launch` launches and waits for.
    #[track_caller]
    pub fn check_with(&self, parameters: &str, launch: impl Fn(&Device, &Kernel) -> Result<()>) {
        let run = |body: &str, seed: u64| {
            let text = format!("#include \"gw/gw.cuh\"\nGW_KERNEL(planted)({parameters}) {{\n{body}\n}}\n");
            let device = Device::emulated(seed).unwrap();
            let kernel = device.kernel(&Source::new("planted", text)).unwrap();
            match launch(&device, &kernel) {
                Ok(()) => None,
                Err(Error::Fault(fault)) => Some(*fault),
                Err(other) => panic!("not a fault: {other}"),
            }
        };
        let buggy = self.body.replace("HOLE", self.bug);
        let line = 3 + buggy.lines().position(|line| line.contains("// here")).expect("a marked line") as u32;
        for seed in 0..SEEDS {
            let fault = run(&buggy, seed).unwrap_or_else(|| panic!("seed {seed} does not show it:\n{buggy}"));
            assert_eq!(fault.kind, self.kind, "seed {seed}: {fault}\n{buggy}");
            assert!(fault.message.contains(self.words), "seed {seed}: {fault}");
            let site = fault.site.as_ref().map(|site| (site.file.as_str(), site.line));
            assert_eq!(site, Some(("planted.cuh", line)), "seed {seed}: {fault}\n{buggy}");
        }
        let sound = self.body.replace("HOLE", self.fix);
        for seed in 0..SEEDS {
            if let Some(fault) = run(&sound, seed) {
                panic!("seed {seed} stops the twin: {fault}\n{sound}");
            }
        }
    }
}
