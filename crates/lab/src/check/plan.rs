//! How a stranger's kernel is launched: as a small TOML says, or by defaults that follow from its parameters.

use std::collections::BTreeMap;

use gatework_gpu::Grid;
use serde::Deserialize;

/// How a kernel is launched. What is left out has a default.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Plan {
    /// The kernel, as `scale`, or `scale<float, 4>` if it is a template; without it, all of the file are
    /// checked.
    pub kernel: Option<String>,
    blocks: Extent,
    threads: Extent,
    /// Bytes of dynamic shared memory; without it, 48 KiB where the file declares `extern __shared__`.
    pub shared: Option<u32>,
    cluster: Option<Extent>,
    cooperative: bool,
    early: bool,
    /// Schedules to run it under.
    pub seeds: u64,
    /// Processor time of one launch, in seconds.
    pub seconds: u64,
    /// Buffers and values by the names of their parameters.
    pub args: BTreeMap<String, PlannedArgument>,
}

/// One, two or three numbers.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Extent {
    Line(u32),
    Plane([u32; 2]),
    Space([u32; 3]),
}

impl Extent {
    fn whole(self) -> [u32; 3] {
        match self {
            Self::Line(x) => [x, 1, 1],
            Self::Plane([x, y]) => [x, y, 1],
            Self::Space(all) => all,
        }
    }
}

/// The argument for one parameter of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum PlannedArgument {
    /// An integer by value.
    Integer(i64),
    /// A float by value.
    Float(f64),
    /// A buffer.
    Buffer {
        /// Its elements.
        elements: usize,
        /// What is in them.
        #[serde(default)]
        fill: Option<Fill>,
    },
}

/// The contents of a buffer before the launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fill {
    /// Small numbers of either sign, or from 0 to 63 where the elements are integers.
    Random,
    /// Zeros.
    Zero,
    /// Nothing: to read it is a fault.
    Unwritten,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            kernel: None,
            blocks: Extent::Line(2),
            threads: Extent::Line(128),
            shared: None,
            cluster: None,
            cooperative: false,
            early: false,
            seeds: 20,
            seconds: 20,
            args: BTreeMap::new(),
        }
    }
}

impl Plan {
    /// Elements of a buffer that the plan says nothing of, and the value of an integer.
    pub(super) const ELEMENTS: usize = 1 << 16;
    pub(super) const INTEGER: i64 = 64;

    /// Bytes of dynamic shared memory that a kernel gets which declares some, where the plan says nothing of it:
    /// what every card gives without being asked for more.
    const DYNAMIC_SHARED: u32 = 48 << 10;

    /// Bytes of one buffer at most.
    pub(super) const BUFFER_BYTES: usize = 1 << 30;

    /// What no file could be checked with.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.seeds == 0 {
            return Err("no schedules: at least one seed is needed".into());
        }
        if self.seconds == 0 {
            return Err("no time: a launch needs at least 'seconds = 1'".into());
        }
        Ok(())
    }

    /// The launch, with so many bytes of `__shared__` variables below the dynamic shared memory, which the file
    /// `declares` or not.
    pub(crate) fn grid(&self, static_bytes: u32, declares_dynamic: bool) -> Result<Grid, String> {
        let dynamic = self.shared.unwrap_or(if declares_dynamic { Self::DYNAMIC_SHARED } else { 0 });
        let Some(shared) = dynamic.checked_add(static_bytes) else {
            return Err(format!("the plan has {dynamic} bytes of shared memory: no card has so much"));
        };
        Ok(Grid {
            cluster: self.cluster.map(Extent::whole),
            cooperative: self.cooperative,
            early: self.early,
            ..Grid::new(self.blocks.whole(), self.threads.whole()).shared(shared)
        })
    }
}
