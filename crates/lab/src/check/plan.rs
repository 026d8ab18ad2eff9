//! How a stranger's kernel is launched: as a small TOML says, or by defaults that follow from its parameters.

use std::collections::BTreeMap;

use gatework_gpu::{Grid, ParameterShape};
use serde::Deserialize;

use super::launches::{Launch, Passed};
use super::rewrite::KernelText;

/// How a kernel is launched. What is left out has a default.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Plan {
    /// The kernel, as `scale`, or `scale<float, 4>` if it is a template; without it, all of the file are
    /// checked.
    pub kernel: Option<String>,
    blocks: Option<Extent>,
    threads: Option<Extent>,
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
    args: BTreeMap<String, Planned>,
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

/// What a plan says of a parameter: an argument, or one for each of its fields.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
enum Planned {
    Argument(PlannedArgument),
    Fields(BTreeMap<String, Planned>),
}

impl Planned {
    /// Adds every argument by its path, as `params.size`.
    fn list(&self, path: &str, to: &mut BTreeMap<String, PlannedArgument>) {
        match self {
            Self::Argument(argument) => {
                to.insert(path.to_owned(), *argument);
            }
            Self::Fields(fields) => {
                fields.iter().for_each(|(name, field)| field.list(&format!("{path}.{name}"), to));
            }
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
            blocks: None,
            threads: None,
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

/// A launch as the file has it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OfTheFile {
    blocks: [u32; 3],
    threads: [u32; 3],
    shared: u32,
    /// Floats are left out.
    pub(super) arguments: BTreeMap<String, PlannedArgument>,
}

impl OfTheFile {
    /// The launch, with so many bytes of `__shared__` variables below the dynamic shared memory.
    pub(super) fn grid(&self, plan: &Plan, kernel: &KernelText, static_bytes: u32) -> Result<Grid, String> {
        let shared = Some(self.shared);
        let (blocks, threads) = (Some(Extent::Space(self.blocks)), Some(Extent::Space(self.threads)));
        Plan { blocks, threads, shared, ..plan.clone() }.grid(kernel, static_bytes, false)
    }
}

/// Whether every schedule may run so many blocks, which the file asks for.
fn few(blocks: &[u32; 3]) -> bool {
    blocks.iter().map(|&side| u64::from(side)).product::<u64>() <= Plan::MOST_BLOCKS
}

impl Plan {
    /// Elements of a buffer that the plan says nothing of, and the value of an integer.
    pub(super) const ELEMENTS: usize = 1 << 16;
    pub(super) const INTEGER: i64 = 64;

    /// Blocks and threads of a kernel of which neither the plan nor the file says anything.
    const BLOCKS: u32 = 2;
    const THREADS: u32 = 128;

    /// Blocks that the file may ask for: every schedule runs all of them.
    const MOST_BLOCKS: u64 = 64;

    /// Bytes of dynamic shared memory that a kernel gets which declares some, where the plan says nothing of it:
    /// what every card gives without being asked for more.
    const DYNAMIC_SHARED: u32 = 48 << 10;

    /// Bytes of all buffers that the file may ask for: every schedule fills them anew.
    const FILE_BYTES: u64 = 64 << 20;

    /// Bytes of one buffer at most.
    pub(super) const BUFFER_BYTES: usize = 1 << 30;

    /// Every argument by the name of its parameter, or by the path of its field.
    pub(super) fn arguments(&self) -> BTreeMap<String, PlannedArgument> {
        let mut all = BTreeMap::new();
        self.args.iter().for_each(|(name, planned)| planned.list(name, &mut all));
        all
    }

    /// Whether it says nothing of how large a launch is, so that the file may.
    fn leaves_sizes(&self) -> bool {
        let Self { blocks, threads, shared, cluster, args, .. } = self;
        blocks.is_none() && threads.is_none() && shared.is_none() && cluster.is_none() && args.is_empty()
    }

    /// The launch and the arguments of the file itself, if it says all of them in numbers and the plan says
    /// nothing: then buffers end where its buffers end. `parameters` are the kernel's.
    pub(super) fn of_the_file(
        &self,
        kernel: &KernelText,
        parameters: &[ParameterShape],
    ) -> Option<OfTheFile> {
        let Launch { blocks, threads, shared, arguments, .. } = &kernel.launch;
        let (blocks, threads, shared) = (blocks.filter(few)?, (*threads)?, (*shared)?);
        let lists = [arguments.len(), parameters.len(), kernel.parameters.len()];
        if !self.leaves_sizes() || lists.iter().any(|&count| count != lists[0]) {
            return None;
        }
        let (mut planned, mut sum) = (BTreeMap::new(), 0u64);
        for ((passed, shape), name) in arguments.iter().zip(parameters).zip(&kernel.parameters) {
            let argument = match (passed, shape.element_bytes) {
                // Integers may be indices, and only the program knows of what. Longer elements are vectors.
                (_, Some(element)) if !shape.is_written && !shape.is_float && element <= size_of::<u64>() => {
                    return None;
                }
                (Passed::Buffer { bytes }, Some(element)) => {
                    sum = sum.saturating_add(*bytes);
                    let elements =
                        usize::try_from(bytes / element.max(1) as u64).ok().filter(|&count| count > 0)?;
                    PlannedArgument::Buffer { elements, fill: None }
                }
                (Passed::Integer(value), None) if !shape.is_float => {
                    PlannedArgument::Integer(i64::try_from(*value).ok()?)
                }
                (Passed::Integer(_) | Passed::Unknown, None) if shape.is_float => continue,
                _ => return None,
            };
            planned.insert(name.clone(), argument);
        }
        (sum <= Self::FILE_BYTES).then_some(OfTheFile { blocks, threads, shared, arguments: planned })
    }

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

    /// The launch of a kernel: as the plan says, else as the file launches it, with so many bytes of
    /// `__shared__` variables below the dynamic shared memory, which the file `declares` or not.
    pub(crate) fn grid(
        &self,
        kernel: &KernelText,
        static_bytes: u32,
        declares_dynamic: bool,
    ) -> Result<Grid, String> {
        let dynamic = self.shared.unwrap_or(if declares_dynamic { Self::DYNAMIC_SHARED } else { 0 });
        let Some(shared) = dynamic.checked_add(static_bytes) else {
            return Err(format!("the plan has {dynamic} bytes of shared memory: no card has so much"));
        };
        let cluster = self.cluster.map(Extent::whole).or(kernel.cluster);
        let blocks =
            self.blocks.map(Extent::whole).or(kernel.launch.blocks.filter(few)).unwrap_or_else(|| {
                let [x, y, z] = cluster.unwrap_or([1; 3]);
                [x.saturating_mul(Self::BLOCKS), y, z]
            });
        let threads = self.threads.map(Extent::whole).or(kernel.launch.threads);
        let threads = threads.unwrap_or([kernel.most_threads.unwrap_or(Self::THREADS), 1, 1]);
        Ok(Grid {
            cluster,
            cooperative: self.cooperative || kernel.launch.cooperative,
            early: self.early,
            ..Grid::new(blocks, threads).shared(shared)
        })
    }
}
