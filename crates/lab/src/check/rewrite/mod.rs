//! CUDA C++ onto the portable header, line by line: kernels, `__shared__`, builtin variables and inline PTX.
//! Host code is left out.

mod constants;
mod kernel;
mod shared;

use std::fmt::Write as _;

use self::constants::filled;
use super::files::Files;
use super::host::host_code;
use super::includes::{Include, included};
use super::launches::Launch;
use super::lines::{Kind, Token, angle_closing, breaks, closing, tokens, unclosed};
use super::macros::written_out;
use super::ptx;
use super::refusal::Refusal;
use super::templates::Wanted;
use super::variables::{Declared, declared, is_initialised};

/// A kernel as the text has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KernelText {
    /// Its name.
    pub name: String,
    /// What a template is checked with, as `float, 4`.
    pub arguments: Option<String>,
    /// The line it begins at.
    pub line: u32,
    /// Names of its parameters.
    pub parameters: Vec<String>,
    /// How the file launches it.
    pub(super) launch: Launch,
    /// `__cluster_dims__`.
    pub(super) cluster: Option<[u32; 3]>,
    /// The threads of `__launch_bounds__`.
    pub(super) most_threads: Option<u32>,
}

impl KernelText {
    /// Its name with its template's arguments, as `scale<float, 4>`.
    pub fn title(&self) -> String {
        match &self.arguments {
            Some(arguments) => format!("{}<{arguments}>", self.name),
            None => self.name.clone(),
        }
    }
}

/// A file that the emulated device compiles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewritten {
    /// The text, with every line where it was.
    pub text: String,
    /// Its kernels.
    pub kernels: Vec<KernelText>,
    /// Whether there are `__shared__` variables beside the dynamic shared memory.
    pub has_static_shared: bool,
    /// Whether there is dynamic shared memory: `extern __shared__`.
    pub has_dynamic_shared: bool,
    /// The name of the file in messages.
    pub(super) main: String,
    /// The names of the file and of its headers.
    pub(super) names: Vec<String>,
    /// The last bracket that nothing closes, its file and its line.
    pub(super) unclosed: Option<(char, String, u32)>,
}

/// Rewrites a file that messages call `name` and that has no headers of its own. A kernel that is a template
/// gets the arguments of `kernel`, as in `scale<float, 4>`, or of its first launch in the file; if `kernel`
/// names another, it is left out.
pub fn rewrite(name: &str, text: &str, kernel: Option<&str>) -> Result<Rewritten, Refusal> {
    rewrite_files(&Files::of(&message_name(name), text, &|_, _| None)?, kernel)
}

/// A file's name as a `#line` can have it.
pub(super) fn message_name(name: &str) -> String {
    name.replace(['"', '\\', '\n'], "_")
}

/// What stands before a refusal that only counts where the compiler meets it.
const REFUSED: &str = "gatework refuses: ";

fn refused_later(what: &str) -> String {
    format!("{REFUSED}{}", what.replace('\n', " "))
}

/// The refusal in a compiler's log, if that is why it failed.
pub(super) fn refusal_in(log: &str, files: &[String]) -> Option<Refusal> {
    let line = log.lines().find(|line| line.contains(REFUSED))?;
    let message = line[line.find(REFUSED)? + REFUSED.len()..].trim_end_matches(['"', '\'', '”']).to_owned();
    let place = files.iter().find_map(|file| {
        let rest = line.strip_prefix(file.as_str())?.strip_prefix(':')?;
        Some((file.clone(), rest.split(':').next()?.parse().ok()?))
    });
    let (file, line) = place?;
    Some(Refusal { file: Some(file), line, message })
}

pub(super) fn rewrite_files(files: &Files, kernel: Option<&str>) -> Result<Rewritten, Refusal> {
    let text = written_out(&files.text);
    let all = tokens(&text);
    let found = rewrite_tokens(files, &all, kernel);
    found.map_err(|refusal| {
        let (file, line) = files.place(refusal.line);
        Refusal { file: files.is_header(file).then(|| file.to_owned()), line, ..refusal }
    })
}

fn rewrite_tokens(files: &Files, all: &[Token<'_>], kernel: Option<&str>) -> Result<Rewritten, Refusal> {
    let wanted = kernel.map(Wanted::of);
    let mut writer = Writer {
        tokens: all,
        at: 0,
        out: String::new(),
        kernels: Vec::new(),
        wanted: wanted.as_ref(),
        behind: None,
        shared: 0,
        has_dynamic_shared: false,
        has_variables: false,
        has_standard: false,
        constants: 0,
        unsized_constants: false,
        refused: 0,
        exported: String::new(),
        files,
    };
    let beginning = files.directive_for(1);
    let host = host_code(all);
    while writer.at < all.len() {
        match host.iter().find(|range| range.0 == writer.at) {
            Some(&(_, end)) => writer.blank(end),
            None => writer.step()?,
        }
        writer.end_kernel();
    }
    if writer.kernels.is_empty() {
        return Writer::refuse(1, "there is no __global__ function in the file");
    }
    if writer.has_variables {
        writer.out.push_str("\nGW_VARIABLES\n");
    }
    if writer.unsized_constants {
        writer.kernels.iter_mut().for_each(|kernel| kernel.launch.arguments.clear());
    }
    if !writer.exported.is_empty() {
        let _ = write!(writer.out, "\n{}\n", writer.exported);
    }
    // What most files only have by way of other headers.
    let standard = if writer.has_standard {
        "#include <limits>\n#include <type_traits>\n#include <utility>\n"
    } else {
        ""
    };
    let place = |line| {
        let (file, line) = files.place(line);
        (file.to_owned(), line)
    };
    Ok(Rewritten {
        text: format!("#include \"gw/cuda.cuh\"\n{standard}{beginning}{}", writer.out),
        kernels: writer.kernels,
        has_static_shared: writer.shared > 0,
        has_dynamic_shared: writer.has_dynamic_shared,
        main: files.place(1).0.to_owned(),
        names: files.names(),
        unclosed: unclosed(all).map(|(mark, line)| (mark, place(line).0, place(line).1)),
    })
}

/// Names that CUDA has outside of `std`, too.
const GLOBAL: &[&str] = &[
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cbrt",
    "ceil",
    "copysign",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "fabs",
    "fdim",
    "floor",
    "fma",
    "fmax",
    "fmin",
    "fmod",
    "frexp",
    "hypot",
    "int16_t",
    "int32_t",
    "int64_t",
    "int8_t",
    "isfinite",
    "isinf",
    "isnan",
    "ldexp",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "max",
    "min",
    "nearbyint",
    "pow",
    "printf",
    "ptrdiff_t",
    "remainder",
    "rint",
    "round",
    "signbit",
    "sin",
    "sinh",
    "size_t",
    "sqrt",
    "tan",
    "tanh",
    "tgamma",
    "trunc",
    "uint16_t",
    "uint32_t",
    "uint64_t",
    "uint8_t",
    "uintptr_t",
];

struct Writer<'a, 'b> {
    tokens: &'b [Token<'a>],
    at: usize,
    out: String,
    kernels: Vec<KernelText>,
    /// The kernel that the plan names.
    wanted: Option<&'b Wanted>,
    /// The last token of a kernel's body, and what stands behind it.
    behind: Option<(usize, String)>,
    shared: usize,
    has_dynamic_shared: bool,
    /// Whether there are `__device__` variables that kernels may write.
    has_variables: bool,
    /// Whether something of the C++ library is named.
    has_standard: bool,
    /// Declarations of `__constant__` variables that have no initial value.
    constants: usize,
    /// Whether integers are among them: they may be the sizes of something.
    unsized_constants: bool,
    /// Pieces of inline PTX that are not known.
    refused: usize,
    /// What brings kernels out of their namespaces.
    exported: String,
    files: &'b Files,
}

impl<'a, 'b> Writer<'a, 'b> {
    fn refuse<T>(line: u32, message: impl Into<String>) -> Result<T, Refusal> {
        Err(Refusal { file: None, line, message: message.into() })
    }

    /// Index of the first token from `at` on that is no space.
    fn skip(&self, mut at: usize) -> usize {
        while self.tokens.get(at).is_some_and(Token::is_space) {
            at += 1;
        }
        at
    }

    fn is(&self, at: usize, text: &str) -> bool {
        self.tokens.get(at).is_some_and(|token| token.is(text))
    }

    /// Leaves out tokens up to `end`, but for the ends of lines.
    fn blank(&mut self, end: usize) {
        let text = breaks(&self.tokens[self.at..=end]);
        self.put(&text, end);
    }

    /// Writes a text in the place of the tokens up to `end`.
    fn put(&mut self, text: &str, end: usize) {
        self.out.push_str(text);
        self.at = end + 1;
    }

    fn step(&mut self) -> Result<(), Refusal> {
        let token = self.tokens[self.at];
        match (token.kind, token.text) {
            (Kind::Directive, text) => {
                self.directive(text);
                Ok(())
            }
            (Kind::Word, "template" | "extern" | "static" | "inline" | "__global__") => self.declaration(),
            (Kind::Word, "__shared__" | "alignas" | "__align__") => self.shared(),
            (Kind::Word, "__device__") => {
                self.device();
                Ok(())
            }
            (Kind::Word, "__constant__") => self.constant(),
            (Kind::Word, "__managed__" | "texture" | "surface") => {
                Self::refuse(token.line, format!("{} is not known to the emulated device", token.text))
            }
            (Kind::Word, "asm" | "__asm__") => self.assembly(),
            (Kind::Mark, "<") if (1..3).all(|next| self.is(self.at + next, "<")) => Self::refuse(
                token.line,
                "a kernel launches a kernel, which the emulated device does not know",
            ),
            (Kind::Word, "std") => {
                self.standard();
                Ok(())
            }
            (Kind::Word, "__syncthreads_count" | "__syncthreads_or" | "__syncthreads_and") => {
                // They meet in a word of shared memory.
                self.shared += 1;
                self.put(token.text, self.at);
                Ok(())
            }
            (Kind::Word, "threadIdx" | "blockIdx" | "blockDim" | "gridDim") => {
                self.index(token.text);
                Ok(())
            }
            _ => {
                self.put(token.text, self.at);
                Ok(())
            }
        }
    }

    /// `std::`: functions of mathematics and integers are those of CUDA, outside of any namespace.
    fn standard(&mut self) {
        let colons = self.skip(self.at + 1);
        let name = self.skip(colons + 2);
        let is_qualifier = self.is(colons, ":") && self.is(colons + 1, ":");
        match self.tokens.get(name).filter(|_| is_qualifier) {
            Some(token) if GLOBAL.contains(&token.text) => {
                let lines = breaks(&self.tokens[self.at..name]);
                self.put(&format!("{lines}::"), name - 1);
            }
            Some(_) => {
                self.has_standard = true;
                self.put("std", self.at);
            }
            None => self.put("std", self.at),
        }
    }

    /// `__device__`: before a variable it says where that lies.
    fn device(&mut self) {
        if declared(self.tokens, self.at) == Declared::Variable {
            self.has_variables = true;
            self.put("__attribute__((section(\"gw_variables\"), used))", self.at);
        } else {
            self.put("", self.at);
        }
    }

    /// `__constant__ T name[N] = {…};`, or `__constant__ T name[N], other;`, which are filled as buffers are.
    fn constant(&mut self) -> Result<(), Refusal> {
        let line = self.tokens[self.at].line;
        let next = self.skip(self.at + 1);
        let last = if self.is(next, "__device__") { next } else { self.at };
        let lines = breaks(&self.tokens[self.at..=last]);
        if is_initialised(self.tokens, self.at) {
            let is_const = ["const", "constexpr"].iter().any(|word| self.is(self.skip(last + 1), word));
            self.put(&format!("{lines}{}", if is_const { "" } else { "const" }), last);
            return Ok(());
        }
        let end = (last..self.tokens.len()).find(|&at| self.is(at, ";"));
        let filled = end.and_then(|end| filled(&self.tokens[last + 1..end], self.constants));
        let (Some(end), Some(filled)) = (end, filled) else {
            return Self::refuse(
                line,
                "a __constant__ variable without an initial value, of a type that check cannot fill: write a value into \
                 the declaration",
            );
        };
        self.constants += 1;
        self.unsized_constants |= filled.has_integers;
        let declared: String = self.tokens[last + 1..=end].iter().map(|token| token.text).collect();
        self.put(&format!("{lines}{declared}{}", filled.text), end);
        Ok(())
    }

    fn directive(&mut self, text: &str) {
        let Some((path, _)) = included(text) else {
            self.put(text, self.at);
            return;
        };
        match Include::of(path) {
            _ if path.starts_with("gw/") => self.put(text, self.at),
            Some(Include::Itself) => self.put(text, self.at),
            Some(Include::Host | Include::Ours("")) => self.put("", self.at),
            Some(Include::Ours(ours)) => {
                // The barrier of a cooperative launch is a variable of the device.
                self.has_variables |= ours == "gw/cuda_groups.cuh";
                self.put(&format!("#include \"{ours}\""), self.at);
            }
            // Where no compiler looks, it does no harm.
            None => {
                let what = format!(
                    "includes {path}, which is neither beside the file nor known: gatework check --known lists what is"
                );
                self.put(&format!("#error {}", refused_later(&what)), self.at);
            }
        }
    }

    fn index(&mut self, word: &str) {
        let (dot, axis) = (self.skip(self.at + 1), self.skip(self.skip(self.at + 1) + 1));
        let (short, whole) = match word {
            "threadIdx" => ("thread", "thread_index"),
            "blockIdx" => ("block", "block_index"),
            "blockDim" => ("threads", "block_extent"),
            _ => ("blocks", "grid_extent"),
        };
        let axis_of = self.tokens.get(axis).filter(|token| matches!(token.text, "x" | "y" | "z"));
        match axis_of.filter(|_| self.is(dot, ".")) {
            Some(token) => {
                let text = format!("gw::{short}_{}(){}", token.text, breaks(&self.tokens[self.at..=axis]));
                self.put(&text, axis);
            }
            None => self.put(&format!("gw::cuda::{whole}()"), self.at),
        }
    }

    /// What may be a kernel, or dynamic shared memory.
    fn declaration(&mut self) -> Result<(), Refusal> {
        let mut at = self.at;
        let mut parameters = None;
        if self.is(at, "template") {
            let open = self.skip(at + 1);
            let Some(close) = angle_closing(self.tokens, open).filter(|_| self.is(open, "<")) else {
                self.put(self.tokens[self.at].text, self.at);
                return Ok(());
            };
            parameters = Some(&self.tokens[open + 1..close]);
            at = self.skip(close + 1);
        }
        while let Some(token) = self.tokens.get(at)
            && (matches!(token.text, "extern" | "static" | "inline" | "__forceinline__")
                || token.kind == Kind::Text)
        {
            at = self.skip(at + 1);
        }
        if self.is(at, "__global__") {
            return self.kernel(at, parameters);
        }
        if self.is(at, "__shared__") && self.is(self.at, "extern") {
            return self.dynamic_shared(at);
        }
        if self.is(at, "__shared__") {
            let text = breaks(&self.tokens[self.at..at]);
            self.put(&text, at - 1);
            return self.shared();
        }
        self.put(self.tokens[self.at].text, self.at);
        Ok(())
    }

    fn assembly(&mut self) -> Result<(), Refusal> {
        let line = self.tokens[self.at].line;
        let mut open = self.skip(self.at + 1);
        while self.is(open, "volatile") || self.is(open, "__volatile__") {
            open = self.skip(open + 1);
        }
        let close = closing(self.tokens, open).filter(|_| self.is(open, "("));
        let Some(close) = close else { return Self::refuse(line, "asm that is not closed") };
        // A function of which nothing is left may hold what is not known.
        let call = match ptx::translate(&self.tokens[open + 1..close], line) {
            Ok(call) => call,
            Err(refusal) => {
                let (number, what) = (self.refused, refused_later(&refusal.message));
                self.refused += 1;
                let what = what.replace(['\\', '"'], "'");
                format!(
                    "extern void gw_refused_{number}() __attribute__((error(\"{what}\"))); gw_refused_{number}();"
                )
            }
        };
        let text = format!("do {{ {call} }} while (0){}", breaks(&self.tokens[self.at..=close]));
        self.put(&text, close);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stay_where_they_are() {
        let text = "#include <cuda_runtime.h>\n\nextern \"C\" __global__ void\n__launch_bounds__(128)\nscale(float* x,\n  int n) {\n\
                    __shared__ float tile[4]\n[32], sum;\nextern __shared__ char more[];\nint i = blockIdx.x * blockDim.x + threadIdx.x;\n\
                    x[i] = 1;\n}\nint main() {\n scale<<<1, 2>>>(0, 1);\n}\n__device__ int twice(int a) { return 2 * a; }\n";
        let rewritten = rewrite("scale.cu", text, None).unwrap();
        let kernel = &rewritten.kernels[0];
        assert_eq!((kernel.name.as_str(), kernel.line), ("scale", 3));
        assert_eq!(kernel.parameters, ["x", "n"]);
        assert!(rewritten.has_static_shared);
        assert!(rewritten.text.contains("GW_KERNEL_BOUNDED(scale, 128, 1)"), "{}", rewritten.text);
        assert!(!rewritten.text.contains("main") && rewritten.text.contains("twice"), "{}", rewritten.text);
        assert!(
            rewritten.text.contains("gw::block_x() * gw::threads_x() + gw::thread_x()"),
            "{}",
            rewritten.text
        );
    }

    #[test]
    fn what_is_not_known_is_refused_by_name_and_line() {
        let refused = |text: &str| rewrite("a.cu", text, None).unwrap_err();
        let template = refused("template <class T>\n__global__ void k(T* x) {}");
        assert!(template.message.contains("kernel = \"k<T>\""), "{template}");
        let pack = refused("template <class... T>\n__global__ void k(T... x) {}");
        assert!(pack.message.contains("does not know"), "{pack}");
        let launch = refused("__global__ void k() {\n  j<<<1, 2>>>();\n}");
        assert!(launch.line == 2 && launch.message.contains("launches a kernel"), "{launch}");
        assert!(refused("int main() { return 0; }").message.contains("no __global__"));
    }

    #[test]
    fn what_is_not_known_is_left_to_the_compiler_to_find() {
        let text = "#ifdef OTHER\n#include <cute/tensor.hpp>\n#endif\n__global__ void k() {\nasm(\"vmad.u32 %0;\" : \"=r\"(a));\n}";
        let rewritten = rewrite("a.cu", text, None).unwrap();
        assert!(
            rewritten.text.contains("#error gatework refuses: includes cute/tensor.hpp"),
            "{}",
            rewritten.text
        );
        assert!(
            rewritten.text.contains("error(\"gatework refuses: inline PTX 'vmad.u32 %0'"),
            "{}",
            rewritten.text
        );
        let names = ["a.cu".to_owned(), "b.h".to_owned()];
        let log = "a.cu: In function 'k':\nb.h:5:12: error: call to ‘gw_refused_0’ declared with attribute error: gatework refuses: why\n";
        let refusal = refusal_in(log, &names).unwrap();
        assert_eq!(refusal, Refusal { file: Some("b.h".into()), line: 5, message: "why".into() });
        assert_eq!(refusal_in("a.cu:5:12: error: other", &names), None);
    }

    #[test]
    fn attributes_without_their_parentheses_are_refused() {
        let refused = |text: &str| rewrite("a.cu", text, None).unwrap_err().message;
        for text in
            ["__global__ __launch_bounds__; void k() {}", "__global__ void __launch_bounds__ k(int n) {}"]
        {
            assert!(refused(text).contains("not closed"), "{text}");
        }
        assert!(refused("__global__ void k() { __shared__ alignas, x; }").contains("T name[N]"));
    }
}
