//! A file, rewritten and launched under many schedules.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gatework_gpu::{
    Arg, Buffer, ByValue, Device, Emulation, Error, Fault, FaultKind, Grid, IntoArg as _, ParameterShape,
    Prints, RegisterFill, Source, Stream,
};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::files::Files;
use super::plan::{Fill, Plan, PlannedArgument};
use super::refusal::Refusal;
use super::rewrite::{KernelText, Rewritten, message_name, refusal_in, rewrite_files};
use super::templates::Wanted;

/// Bytes that `__shared__` variables may have, as on the card.
const STATIC_BYTES: u32 = 48 << 10;

/// Why a file was not checked.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// It cannot be read.
    #[error("{}: {source}; it should be a text file: name another", path.display())]
    File {
        /// Where it should be.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It uses what is not known.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The plan does not fit the file.
    #[error("{0}")]
    Plan(String),
    /// It does not compile, or cannot be launched so.
    #[error(transparent)]
    Device(#[from] Error),
}

/// A fault of one kind at one line, and under how many schedules it came.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// The fault as the first of them showed it.
    pub fault: Fault,
    /// Schedules that showed it first.
    pub seeds: u64,
}

/// The findings of all schedules of one kernel.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The kernel.
    pub kernel: String,
    /// Blocks of the launch.
    pub blocks: [u32; 3],
    /// Threads of a block.
    pub threads: [u32; 3],
    /// Who said how large buffers are.
    pub sizes: Sizes,
    /// Schedules that it was run under: no more after one that took too long.
    pub seeds: u64,
    /// Faults, each with the schedules that showed it.
    pub findings: Vec<Finding>,
    /// Undefined behaviour that a card resolves in one way: signed integers that overflow, which wrap.
    pub warnings: Vec<Finding>,
    /// Whether it was also run with other contents of registers that nobody has written: if nothing else was
    /// found, the C++ compiler can do that, and the kernel is small and fast enough without optimisation.
    pub fills_registers: bool,
}

/// Who says how large the buffers of a launch are, and what integers are passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sizes {
    /// The file: its allocations and its launch stand there in numbers.
    OfTheFile,
    /// The plan, or its defaults.
    OfThePlan,
}

/// Checks the kernels of a file with the headers that lie beside it.
pub fn check_file(path: &Path, plan: &Plan) -> Result<Vec<Report>, CheckError> {
    let text =
        fs::read_to_string(path).map_err(|source| CheckError::File { path: path.to_owned(), source })?;
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let folder = path.parent().unwrap_or(Path::new(""));
    let find = |header: &str, from: Option<&str>| {
        let beside = from.and_then(|from| Path::new(from).parent()).unwrap_or(Path::new(""));
        let places = [beside.join(header), PathBuf::from(header)];
        let found =
            places.iter().find_map(|place| Some((place, fs::read_to_string(folder.join(place)).ok()?)));
        found.map(|(place, text)| (message_name(&place.to_string_lossy()), text))
    };
    check_files(&Files::of(&message_name(&name), &text, &find)?, plan)
}

/// Checks the kernels of a file that messages call `name`, and that has no headers of its own.
pub fn check(name: &str, text: &str, plan: &Plan) -> Result<Vec<Report>, CheckError> {
    check_files(&Files::of(&message_name(name), text, &|_, _| None)?, plan)
}

fn check_files(files: &Files, plan: &Plan) -> Result<Vec<Report>, CheckError> {
    plan.check().map_err(CheckError::Plan)?;
    let rewritten = rewrite_files(files, plan.kernel.as_deref())?;
    let wanted = plan.kernel.as_deref().map(Wanted::of);
    let named = |kernel: &&KernelText| wanted.as_ref().is_none_or(|wanted| wanted.name == kernel.name);
    let chosen: Vec<&KernelText> = rewritten.kernels.iter().filter(named).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = rewritten.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
        let wanted = wanted.map_or_else(String::new, |wanted| wanted.name);
        return Err(CheckError::Plan(format!(
            "there is no kernel '{wanted}', the file has: {}",
            names.join(", ")
        )));
    }
    if let Some(Wanted { name, arguments: Some(_) }) = &wanted
        && chosen[0].arguments.is_none()
    {
        return Err(CheckError::Plan(format!(
            "the plan has template arguments for '{name}', which is no template"
        )));
    }
    let known = |name: &String| chosen.iter().any(|kernel| kernel.parameters.contains(name));
    if let Some(unknown) = plan.arguments().keys().find(|name| !known(name)) {
        return Err(CheckError::Plan(format!(
            "the plan has an argument '{unknown}', and no kernel takes it"
        )));
    }
    chosen.into_iter().map(|kernel| check_kernel(&rewritten, kernel, plan)).collect()
}

fn check_kernel(rewritten: &Rewritten, kernel: &KernelText, plan: &Plan) -> Result<Report, CheckError> {
    let static_bytes = if rewritten.has_static_shared { STATIC_BYTES } else { 0 };
    let source = Source::new(&kernel.name, rewritten.text.clone()).define("GW_STATIC_BYTES", static_bytes);
    let loaded = Device::emulated_as(Emulation::default())?.kernel(&source);
    let loaded = loaded.map_err(|error| of_the_file(error.into(), rewritten))?;
    let of_the_file = plan.of_the_file(kernel, &loaded.parameters());
    let grid = match &of_the_file {
        Some(of_the_file) => of_the_file.grid(plan, kernel, static_bytes),
        None => plan.grid(kernel, static_bytes, rewritten.has_dynamic_shared),
    };
    let grid = grid.map_err(CheckError::Plan)?;
    let setup = Setup {
        source: &source,
        kernel,
        grid,
        arguments: of_the_file.as_ref().map_or_else(|| plan.arguments(), |file| file.arguments.clone()),
    };
    let (mut findings, mut warnings) = (Vec::new(), Vec::new());
    let mut results: Vec<Vec<Output>> = Vec::new();
    let mut seeds = plan.seeds;
    for seed in 0..plan.seeds {
        let how = Emulation::seeded(seed).limit(Duration::from_secs(plan.seconds));
        // Standard output is the report's, and one schedule prints as much as any.
        let how = how.prints(if seed == 0 { Prints::ToStandardError } else { Prints::Nowhere });
        let run = |how| setup.launch(&Device::emulated_as(how)?);
        let mut ran = run(how)?;
        if let Ran::Stopped(fault) = &ran
            && fault.kind == FaultKind::Overflow
        {
            add(&mut warnings, fault.clone());
            ran = run(how.wrapping().prints(Prints::Nowhere))?;
        }
        match ran {
            Ran::Stopped(mut fault) => {
                name_parameters(&mut fault, &kernel.parameters);
                let too_long = fault.kind == FaultKind::TimeLimit;
                add(&mut findings, fault);
                if too_long {
                    // Every other schedule may take all of its time, too.
                    seeds = seed + 1;
                    break;
                }
            }
            Ran::Ended(outputs) => results.push(outputs),
        }
    }
    let mut fills_registers = false;
    if findings.is_empty() && Emulation::can_fill_registers()? {
        let under = |registers| -> Result<Option<Ran>, CheckError> {
            // Without optimisation all takes longer.
            let limit = Duration::from_secs(plan.seconds.saturating_mul(4));
            let how =
                Emulation::default().limit(limit).wrapping().registers(registers).prints(Prints::Nowhere);
            comparable(setup.launch(&Device::emulated_as(how)?))
        };
        if let Some(ones) = under(RegisterFill::Ones)?
            && let Some(zeros) = under(RegisterFill::Zeros)?
        {
            fills_registers = true;
            findings.extend(unlike(&results, ones, zeros, kernel).map(|fault| Finding { fault, seeds: 1 }));
        }
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.seeds));
    let Grid { blocks, threads, .. } = setup.grid;
    let sizes = if of_the_file.is_some() { Sizes::OfTheFile } else { Sizes::OfThePlan };
    Ok(Report { kernel: kernel.title(), blocks, threads, sizes, seeds, findings, warnings, fills_registers })
}

/// A compiler's error in the words that are about the file: what it says of the code around the kernel follows from that.
fn of_the_file(error: CheckError, rewritten: &Rewritten) -> CheckError {
    let CheckError::Device(Error::Compile { kernel, compiler, log }) = error else { return error };
    if let Some(refusal) = refusal_in(&log, &rewritten.names) {
        let file = refusal.file.filter(|file| rewritten.main != *file);
        return CheckError::Refused(Refusal { file, ..refusal });
    }
    let starts_with_a_name = |line: &str| {
        let is_of =
            |name: &String| line.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with(':'));
        rewritten.names.iter().any(is_of)
    };
    let mut about = String::new();
    let mut kept = false;
    for line in log.lines() {
        let is_message = [": error: ", ": fatal error: ", ": warning: ", ": note: "]
            .iter()
            .any(|kind| line.contains(kind));
        let is_context = line.contains(": In ")
            || line.starts_with("In file included from ")
            || line.starts_with("                 from ");
        if is_message || is_context {
            kept = is_message && starts_with_a_name(line) && !line.contains(": note: ");
        }
        if kept {
            about.push_str(line);
            about.push('\n');
        }
    }
    if let Some((mark, file, line)) = &rewritten.unclosed {
        about = format!("{file}:{line}: this '{mark}' is never closed\n{about}");
    }
    let log = if about.is_empty() { log } else { about.trim_end().to_owned() };
    CheckError::Device(Error::Compile { kernel, compiler, log })
}

/// How a launch ended.
enum Ran {
    Stopped(Fault),
    Ended(Vec<Output>),
}

/// What a kernel left in a buffer that it may write.
struct Output {
    parameter: usize,
    element: usize,
    bytes: Vec<u8>,
}

/// What differs with what registers and memory held before, in buffers that were the same under all
/// schedules: something is read that not every thread initialises.
fn unlike(results: &[Vec<Output>], ones: Ran, zeros: Ran, kernel: &KernelText) -> Option<Fault> {
    let (ones, zeros) = match (ones, zeros) {
        (Ran::Ended(ones), Ran::Ended(zeros)) => (ones, zeros),
        // Something that is not initialised decides what a thread does.
        (Ran::Stopped(mut fault), _) | (_, Ran::Stopped(mut fault)) => {
            fault
                .message
                .push_str(" (only where registers that nobody has written hold something else than before)");
            name_parameters(&mut fault, &kernel.parameters);
            return Some(fault);
        }
    };
    let first = results.first()?;
    for (index, Output { parameter, element, bytes }) in ones.iter().enumerate() {
        if results.iter().any(|others| others[index].bytes != first[index].bytes) {
            continue;
        }
        let mut pairs = bytes.chunks(*element).zip(zeros[index].bytes.chunks(*element));
        let Some(at) = pairs.position(|(one, other)| one != other) else {
            continue;
        };
        let name = &kernel.parameters[*parameter];
        return Some(Fault {
            kind: FaultKind::Uninitialised,
            kernel: kernel.name.clone(),
            block: [0; 3],
            thread: None,
            address: None,
            site: None,
            message: format!(
                "element {at} of parameter {parameter} '{name}' depends on what registers held before they were written: \
                 something is read that nobody, or not every thread, initialises"
            ),
            seed: 0,
        });
    }
    None
}

/// A run that says something of registers: none where the kernel is too large or too slow without
/// optimisation.
fn comparable(ran: Result<Ran, CheckError>) -> Result<Option<Ran>, CheckError> {
    let is_too_much = |fault: &Fault| matches!(fault.kind, FaultKind::TimeLimit | FaultKind::StackOverflow);
    match ran {
        Ok(Ran::Stopped(fault)) if is_too_much(&fault) => Ok(None),
        Err(CheckError::Device(Error::Compile { .. })) => Ok(None),
        ran => ran.map(Some),
    }
}

/// Counts a fault among those of its kind at its line.
fn add(findings: &mut Vec<Finding>, mut fault: Fault) {
    // The way out of whoever has a file and a plan.
    fault.message = fault.message.replace("use Grid::cooperative", "write 'cooperative = true' into a plan");
    let same = |finding: &&mut Finding| finding.fault.kind == fault.kind && finding.fault.site == fault.site;
    match findings.iter_mut().find(same) {
        Some(finding) => finding.seeds += 1,
        None => findings.push(Finding { fault, seeds: 1 }),
    }
}

/// `parameter 1` becomes `parameter 1 'out'`.
fn name_parameters(fault: &mut Fault, names: &[String]) {
    for (number, name) in names.iter().enumerate().rev() {
        let plain = format!("parameter {number}");
        if let Some(at) = fault.message.find(&plain)
            && !fault.message[at + plain.len()..].starts_with(|c: char| c.is_ascii_digit())
        {
            fault.message.insert_str(at + plain.len(), &format!(" '{name}'"));
        }
    }
}

/// Every launch of a check but for its schedule.
struct Setup<'a> {
    source: &'a Source,
    kernel: &'a KernelText,
    grid: Grid,
    arguments: BTreeMap<String, PlannedArgument>,
}

impl Setup<'_> {
    fn launch(&self, device: &Device) -> Result<Ran, CheckError> {
        let stream = device.stream()?;
        let loaded = device.kernel(self.source)?;
        let shapes = loaded.parameters();
        let mut held = shapes
            .iter()
            .zip(&self.kernel.parameters)
            .map(|(shape, name)| Held::new(&stream, shape, name, self.arguments.get(name).copied()))
            .collect::<Result<Vec<_>, _>>()?;
        let arguments: Vec<Arg<'_>> = held.iter_mut().map(Held::argument).collect();
        let launched = loaded.launch(&stream, &self.grid, &arguments);
        match launched.and_then(|()| stream.synchronize()) {
            Ok(()) => {}
            Err(Error::Fault(fault)) => return Ok(Ran::Stopped(*fault)),
            Err(other) => return Err(other.into()),
        }
        let mut outputs = Vec::new();
        for (parameter, (held, shape)) in
            held.iter().zip(shapes).enumerate().filter(|(_, (_, shape))| shape.is_written)
        {
            if let (Some(bytes), Some(element)) = (held.download(&stream)?, shape.element_bytes) {
                outputs.push(Output { parameter, element, bytes });
            }
        }
        Ok(Ran::Ended(outputs))
    }
}

/// Elements and values of each size that C++ knows, whatever they mean.
macro_rules! held {
    ($($buffer:ident $value:ident $bytes:literal),*) => {
        /// What a parameter is given, as bytes.
        enum Held {
            $($buffer(Buffer<[u8; $bytes]>), $value([u8; $bytes]),)*
        }

        impl Held {
            fn argument(&mut self) -> Arg<'_> {
                match self {
                    $(Self::$buffer(buffer) => buffer.into_arg(), Self::$value(value) => ByValue(value).into_arg(),)*
                }
            }

            /// What a buffer holds; none for a value.
            fn download(&self, stream: &Stream) -> Result<Option<Vec<u8>>, Error> {
                match self {
                    $(Self::$buffer(buffer) => Ok(Some(stream.download(buffer)?.as_flattened().to_vec())),
                    Self::$value(_) => Ok(None),)*
                }
            }

            fn buffer(stream: &Stream, size: usize, bytes: Option<&[u8]>, elements: usize) -> Result<Option<Self>, Error> {
                Ok(match size {
                    $($bytes => Some(Self::$buffer(match bytes {
                        Some(bytes) => {
                            let words: Vec<[u8; $bytes]> =
                                bytes.chunks_exact($bytes).map(|chunk| std::array::from_fn(|i| chunk[i])).collect();
                            stream.upload(&words)?
                        }
                        None => stream.alloc::<[u8; $bytes]>(elements)?,
                    })),)*
                    _ => None,
                })
            }

            fn value(bytes: &[u8]) -> Option<Self> {
                match bytes.len() {
                    $($bytes => Some(Self::$value(std::array::from_fn(|i| bytes[i]))),)*
                    _ => None,
                }
            }
        }
    };
}
held!(
    Buffer1 Value1 1, Buffer2 Value2 2, Buffer3 Value3 3, Buffer4 Value4 4, Buffer6 Value6 6, Buffer8 Value8 8,
    Buffer12 Value12 12, Buffer16 Value16 16, Buffer20 Value20 20, Buffer24 Value24 24, Buffer28 Value28 28,
    Buffer32 Value32 32, Buffer48 Value48 48,
    Buffer64 Value64 64, Buffer96 Value96 96, Buffer128 Value128 128
);

impl Held {
    fn new(
        stream: &Stream,
        shape: &ParameterShape,
        name: &str,
        planned: Option<PlannedArgument>,
    ) -> Result<Self, CheckError> {
        let wrong = |what: &str| CheckError::Plan(format!("the parameter '{name}' {what}"));
        let Some(element) = shape.element_bytes else {
            let bytes = match planned {
                Some(PlannedArgument::Buffer { .. }) => {
                    return Err(wrong("is passed by value, and the plan has a buffer"));
                }
                Some(PlannedArgument::Integer(value)) => number(shape, value as f64, value),
                Some(PlannedArgument::Float(value)) => number(shape, value, value as i64),
                None => number(shape, 1.0, Plan::INTEGER),
            };
            let size = shape.bytes;
            return Self::value(&bytes).ok_or_else(|| {
                wrong(&format!("is a struct of {size} bytes, which check cannot take apart"))
            });
        };
        let (elements, fill) = match planned {
            Some(PlannedArgument::Buffer { elements, fill }) => (elements, fill),
            Some(_) => return Err(wrong("is a pointer, and the plan has a number: write { elements = … }")),
            None => (Plan::ELEMENTS, None),
        };
        if elements.checked_mul(element).is_none_or(|bytes| bytes > Plan::BUFFER_BYTES) {
            let most = Plan::BUFFER_BYTES / element.max(1);
            return Err(wrong(&format!("has {elements} elements in the plan: {most} at most, or 1 GiB")));
        }
        let fill = fill.unwrap_or(if shape.is_written { Fill::Zero } else { Fill::Random });
        let bytes = match fill {
            Fill::Zero => Some(vec![0; elements * element]),
            Fill::Random => Some(random(shape, elements)),
            Fill::Unwritten => None,
        };
        Self::buffer(stream, element, bytes.as_deref(), elements)?.ok_or_else(|| {
            wrong(&format!("points to elements of {element} bytes, of which check makes no buffers"))
        })
    }
}

/// A number in the bytes of a parameter.
fn number(shape: &ParameterShape, float: f64, integer: i64) -> Vec<u8> {
    match (shape.is_float, shape.bytes) {
        (true, 4) => (float as f32).to_le_bytes().to_vec(),
        (true, 8) => float.to_le_bytes().to_vec(),
        (_, bytes) => (0..bytes).map(|at| integer.to_le_bytes().get(at).copied().unwrap_or(0)).collect(),
    }
}

/// The same numbers in every run.
fn random(shape: &ParameterShape, elements: usize) -> Vec<u8> {
    let mut random = ChaCha8Rng::seed_from_u64(elements as u64);
    let size = shape.element_bytes.unwrap_or(1);
    let mut bytes = Vec::with_capacity(size * elements);
    for _ in 0..elements {
        match (shape.is_float, size) {
            (true, 4) => bytes.extend((random.random_range(-1.0f32..1.0)).to_le_bytes()),
            (true, 8) => bytes.extend((random.random_range(-1.0f64..1.0)).to_le_bytes()),
            _ => bytes.extend((0..size).map(|at| if at == 0 { random.random_range(0..64u8) } else { 0 })),
        }
    }
    bytes
}
