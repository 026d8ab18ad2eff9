//! CUDA C++ onto the portable header, line by line: kernels, `__shared__`, builtin variables and inline PTX.
//! Host code is left out.

use std::fmt::Write as _;

use super::lines::{Kind, Token, breaks, closing, joined, split, tokens, unclosed};
use super::ptx;
use super::refusal::Refusal;
use super::templates::{Template, Wanted, angle_closing, launched, listed};
use super::variables::{Declared, declared, is_initialised};

/// Headers that a file may include: what of them kernels use is in ours.
pub const KNOWN_INCLUDES: &[&str] = &[
    "cuda_runtime.h",
    "cuda_runtime_api.h",
    "cuda.h",
    "cuda_fp16.h",
    "cuda_bf16.h",
    "device_launch_parameters.h",
    "stdint.h",
    "cstdint",
    "stddef.h",
    "cstddef",
    "stdio.h",
    "cstdio",
    "stdlib.h",
    "cstdlib",
    "math.h",
    "cmath",
    "assert.h",
    "cassert",
];

/// A kernel as the text has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelText {
    /// Its name.
    pub name: String,
    /// What a template is checked with, as `float, 4`.
    pub arguments: Option<String>,
    /// The line it begins at.
    pub line: u32,
    /// Names of its parameters.
    pub parameters: Vec<String>,
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
    pub name: String,
    /// The last bracket that nothing closes, and its line.
    pub unclosed: Option<(char, u32)>,
}

/// Rewrites a file that messages call `name`. A kernel that is a template gets the arguments of `kernel`, as
/// in `scale<float, 4>`, or of its first launch in the file; if `kernel` names another, it is left out.
pub fn rewrite(name: &str, text: &str, kernel: Option<&str>) -> Result<Rewritten, Refusal> {
    let wanted = kernel.map(Wanted::of);
    let all = tokens(text.trim_start_matches('\u{feff}'));
    let name = &name.replace(['"', '\\', '\n'], "_");
    let mut writer = Writer {
        tokens: &all,
        at: 0,
        out: String::new(),
        kernels: Vec::new(),
        wanted: wanted.as_ref(),
        instance: None,
        shared: 0,
        has_dynamic_shared: false,
        has_variables: false,
        name,
    };
    let _ = write!(writer.out, "#include \"gw/cuda.cuh\"\n#line 1 \"{name}\"\n");
    let host = host_functions(&all);
    while writer.at < all.len() {
        match host.iter().find(|range| range.0 == writer.at) {
            Some(&(_, end)) => writer.blank(end),
            None => writer.step()?,
        }
        writer.end_instance();
    }
    if writer.kernels.is_empty() {
        return Err(Refusal { line: 1, message: "there is no __global__ function in the file".into() });
    }
    if writer.has_variables {
        writer.out.push_str("\nGW_VARIABLES\n");
    }
    Ok(Rewritten {
        text: writer.out,
        kernels: writer.kernels,
        has_static_shared: writer.shared > 0,
        has_dynamic_shared: writer.has_dynamic_shared,
        name: name.clone(),
        unclosed: unclosed(&all),
    })
}

/// Functions that neither `__global__` nor `__device__` stands before, as first and last token.
fn host_functions(all: &[Token<'_>]) -> Vec<(usize, usize)> {
    let (mut found, mut start, mut at) = (Vec::new(), 0, 0);
    while at < all.len() {
        let token = &all[at];
        if token.kind == Kind::Directive || token.is(";") || token.is("}") {
            start = at + 1;
        } else if token.is("{") {
            let head = &all[start..at];
            let has = |word: &str| head.iter().any(|token| token.is(word));
            let opens_scope = has("namespace") || (has("extern") && !has("("));
            let is_type = ["struct", "class", "union", "enum"].iter().any(|word| has(word));
            let end = closing(all, at).unwrap_or(all.len() - 1);
            if opens_scope {
                start = at + 1;
            } else {
                if has("(") && !is_type && !has("__global__") && !has("__device__") {
                    let first = start + head.iter().take_while(|token| token.is_space()).count();
                    found.push((first, end));
                }
                (at, start) = (end, end + 1);
            }
        }
        at += 1;
    }
    found
}

struct Writer<'a, 'b> {
    tokens: &'b [Token<'a>],
    at: usize,
    out: String,
    kernels: Vec<KernelText>,
    /// The kernel that the plan names.
    wanted: Option<&'b Wanted>,
    /// The last token of a template's body that stands in a namespace with its arguments, and the kernel's name.
    instance: Option<(usize, String)>,
    shared: usize,
    has_dynamic_shared: bool,
    /// Whether there are `__device__` variables that kernels may write.
    has_variables: bool,
    name: &'b str,
}

impl<'a, 'b> Writer<'a, 'b> {
    fn refuse<T>(line: u32, message: impl Into<String>) -> Result<T, Refusal> {
        Err(Refusal { line, message: message.into() })
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
            (Kind::Directive, text) => self.directive(text, token.line),
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

    /// `__device__`: before a variable it says where that lies.
    fn device(&mut self) {
        if declared(self.tokens, self.at) == Declared::Variable {
            self.has_variables = true;
            self.put("__attribute__((section(\"gw_variables\"), used))", self.at);
        } else {
            self.put("", self.at);
        }
    }

    /// `__constant__ T name[N] = {…};`
    fn constant(&mut self) -> Result<(), Refusal> {
        if !is_initialised(self.tokens, self.at) {
            return Self::refuse(
                self.tokens[self.at].line,
                "a __constant__ variable without an initial value: check leaves out host code, which would copy \
                 one, so write one into the declaration",
            );
        }
        let next = self.skip(self.at + 1);
        let end = if self.is(next, "__device__") { next } else { self.at };
        let is_const = ["const", "constexpr"].iter().any(|word| self.is(self.skip(end + 1), word));
        let lines = breaks(&self.tokens[self.at..=end]);
        self.put(&format!("{}{lines}", if is_const { "" } else { "const" }), end);
        Ok(())
    }

    fn directive(&mut self, text: &str, line: u32) -> Result<(), Refusal> {
        let Some(include) = text[1..].trim_start().strip_prefix("include") else {
            self.put(text, self.at);
            return Ok(());
        };
        let path = include.trim().trim_matches(['<', '>', '"']);
        if path.starts_with("gw/") {
            self.put(text, self.at);
        } else if KNOWN_INCLUDES.contains(&path) {
            let small_floats = path == "cuda_fp16.h" || path == "cuda_bf16.h";
            self.put(if small_floats { "#include \"gw/cuda_half.cuh\"" } else { "" }, self.at);
        } else {
            let known = KNOWN_INCLUDES.join(", ");
            return Self::refuse(
                line,
                format!("includes {}, of these check knows the contents: {known}", include.trim()),
            );
        }
        Ok(())
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

    /// `__global__ void __launch_bounds__(t, b) name(…)`, in any order of the first three.
    fn kernel(&mut self, global: usize, template: Option<&[Token<'a>]>) -> Result<(), Refusal> {
        let line = self.tokens[global].line;
        let (mut at, mut bounds) = (self.skip(global + 1), None);
        loop {
            if self.is(at, "__launch_bounds__") {
                let open = self.skip(at + 1);
                let Some(close) = closing(self.tokens, open).filter(|_| self.is(open, "(")) else {
                    return Self::refuse(line, "a parenthesis is not closed");
                };
                bounds = Some(
                    split(&self.tokens[open + 1..close], ",")
                        .iter()
                        .map(|part| joined(part))
                        .collect::<Vec<_>>(),
                );
                at = self.skip(close + 1);
            } else if self.is(at, "void") || self.is(at, "static") || self.is(at, "inline") {
                at = self.skip(at + 1);
            } else {
                break;
            }
        }
        let Some(token) = self.tokens.get(at).filter(|token| token.kind == Kind::Word) else {
            return Self::refuse(line, "a __global__ function without a name");
        };
        let (name, open) = (token.text.to_owned(), self.skip(at + 1));
        let close = closing(self.tokens, open).filter(|_| self.is(open, "("));
        let Some(close) = close else {
            return Self::refuse(line, format!("the parameters of '{name}' are not closed"));
        };
        let end = self.skip(close + 1);
        if self.is(end, ";") {
            self.blank(end);
            return Ok(());
        }
        let parameters = split(&self.tokens[open + 1..close], ",");
        let parameters: Vec<String> = parameters.iter().filter_map(|part| parameter_name(part)).collect();
        let head = match bounds.as_deref() {
            None | Some([]) => format!("GW_KERNEL({name})"),
            Some([threads]) => format!("GW_KERNEL_BOUNDED({name}, {threads}, 1)"),
            Some([threads, blocks, ..]) => format!("GW_KERNEL_BOUNDED({name}, {threads}, {blocks})"),
        };
        let (mut bound, mut arguments) = (String::new(), None);
        if let Some(template) = template {
            let Some(last) = closing(self.tokens, end).filter(|_| self.is(end, "{")) else {
                return Self::refuse(line, format!("the body of '{name}' is not closed"));
            };
            let Some(given) = self.template_arguments(&name, line, template)? else {
                self.blank(last);
                return Ok(());
            };
            bound = format!("namespace gw_of_{name} {{ {}", given.declarations);
            arguments = Some(given.listed);
            self.instance = Some((last, name.clone()));
        }
        let text = format!("{}{bound}{head}", breaks(&self.tokens[self.at..open]));
        self.kernels.push(KernelText { name, arguments, line, parameters });
        self.put(&text, open - 1);
        Ok(())
    }

    /// The arguments that a template is checked with; none where the plan names another kernel.
    fn template_arguments(
        &self,
        name: &str,
        line: u32,
        parameters: &[Token<'a>],
    ) -> Result<Option<Given>, Refusal> {
        let wanted = match self.wanted {
            Some(wanted) if wanted.name != name => return Ok(None),
            Some(wanted) => wanted.arguments.as_deref(),
            None => None,
        };
        let Some(template) = Template::of(parameters) else {
            return Self::refuse(
                line,
                format!(
                    "the kernel '{name}' is a template with parameters that check does not know: types and values are"
                ),
            );
        };
        let given = match wanted {
            Some(text) => listed(&tokens(text)),
            None => match launched(self.tokens, name) {
                Some(given) => given,
                None if template.has_defaults() => Vec::new(),
                None => {
                    let names = template.names();
                    return Self::refuse(
                        line,
                        format!(
                            "the kernel '{name}' is a template that nothing in the file launches: name its arguments in \
                             the plan, as kernel = \"{name}<{names}>\" with {names} filled in, or another kernel"
                        ),
                    );
                }
            },
        };
        match template.bound(&given) {
            Ok(declarations) => Ok(Some(Given { declarations, listed: given.join(", ") })),
            Err(what) => Self::refuse(line, format!("the kernel '{name}' {what}")),
        }
    }

    /// Closes the namespace of a template's arguments behind its body.
    fn end_instance(&mut self) {
        if let Some((_, name)) = self.instance.take_if(|(last, _)| self.at > *last) {
            let _ = write!(self.out, " }} using gw_of_{name}::{name};");
        }
    }

    /// `extern __shared__ T name[];`
    fn dynamic_shared(&mut self, shared: usize) -> Result<(), Refusal> {
        let line = self.tokens[shared].line;
        let Some(end) = (shared..self.tokens.len()).find(|&at| self.is(at, ";")) else {
            return Self::refuse(line, "a declaration without its end");
        };
        let (declared, _) = without_alignment(&self.tokens[shared + 1..end]);
        let Some((type_, name, _)) = declarator(&declared) else {
            return Self::refuse(line, "extern __shared__ is known as 'extern __shared__ T name[];'");
        };
        let lines = breaks(&self.tokens[self.at..=end]);
        let next = self.tokens[end].line;
        self.has_dynamic_shared = true;
        // A macro, so that it may stand outside of functions too.
        let text = format!(
            "{lines}\n#define {name} (gw::shared<{type_}>(GW_STATIC_BYTES))\n#line {next} \"{}\"\n",
            self.name
        );
        self.put(&text, end);
        Ok(())
    }

    /// `__shared__ T name[N], other;`, with an alignment before or after the word.
    fn shared(&mut self) -> Result<(), Refusal> {
        let line = self.tokens[self.at].line;
        let mut at = self.at;
        if !self.is(at, "__shared__") {
            let close = closing(self.tokens, self.skip(at + 1)).unwrap_or(at);
            at = self.skip(close + 1);
            if !self.is(at, "__shared__") {
                self.put(self.tokens[self.at].text, self.at);
                return Ok(());
            }
        }
        let Some(end) = (at..self.tokens.len()).find(|&at| self.is(at, ";")) else {
            return Self::refuse(line, "a declaration without its end");
        };
        let all: Vec<Token<'_>> =
            self.tokens[self.at..end].iter().filter(|token| !token.is("__shared__")).copied().collect();
        let (declared, alignment) = without_alignment(&all);
        let parts = split(&declared, ",");
        let Some((type_, ..)) = parts.first().and_then(|first| declarator(first)) else {
            return Self::refuse(line, "a __shared__ variable is known as '__shared__ T name[N];'");
        };
        let mut text = breaks(&self.tokens[self.at..=end]);
        for (number, part) in parts.iter().enumerate() {
            let found = if number == 0 {
                declarator(part).map(|(_, name, extent)| (name, extent))
            } else {
                bare(part)
            };
            let Some((name, extent)) = found else {
                return Self::refuse(line, "a __shared__ variable is known as '__shared__ T name[N];'");
            };
            let id = self.shared;
            self.shared += 1;
            let _ = write!(
                text,
                " typedef {type_} gw_type_of_{id}{extent}; gw_type_of_{id}& {name} = \
                 *static_cast<gw_type_of_{id}*>(gw::cuda::place({id}, sizeof(gw_type_of_{id}), {alignment}));"
            );
        }
        self.put(&text, end);
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
        let call = ptx::translate(&self.tokens[open + 1..close], line)?;
        let text = format!("do {{ {call} }} while (0){}", breaks(&self.tokens[self.at..=close]));
        self.put(&text, close);
        Ok(())
    }
}

/// The arguments of a template.
struct Given {
    /// Declarations of its parameters with these values.
    declarations: String,
    /// The arguments, as `float, 4`.
    listed: String,
}

/// The last word before an array's extents or a default.
fn parameter_name(part: &[Token<'_>]) -> Option<String> {
    let end = part.iter().position(|token| token.is("[") || token.is("=")).unwrap_or(part.len());
    let mut words = part[..end].iter().filter(|token| token.kind == Kind::Word);
    words.next_back().map(|token| token.text.to_owned()).filter(|name| name != "void")
}

/// Type, name and extents of `T name[N][M]`.
fn declarator(part: &[Token<'_>]) -> Option<(String, String, String)> {
    let end = part.iter().position(|token| token.is("[")).unwrap_or(part.len());
    let at = part[..end].iter().rposition(|token| token.kind == Kind::Word)?;
    let type_ = joined(&part[..at]);
    (!type_.is_empty()).then(|| (type_, part[at].text.to_owned(), joined(&part[end..])))
}

/// Name and extents of a further variable of a declaration.
fn bare(part: &[Token<'_>]) -> Option<(String, String)> {
    let end = part.iter().position(|token| token.is("[")).unwrap_or(part.len());
    let name = part[..end].iter().find(|token| token.kind == Kind::Word)?;
    Some((name.text.to_owned(), joined(&part[end..])))
}

/// Takes `alignas(N)` and `__align__(N)` out of a declaration; without one, 16.
fn without_alignment<'a>(declared: &[Token<'a>]) -> (Vec<Token<'a>>, String) {
    let (mut rest, mut alignment, mut at) = (Vec::new(), "16".to_owned(), 0);
    while at < declared.len() {
        let token = declared[at];
        let open = (at + 1..declared.len()).find(|&next| !declared[next].is_space());
        let open = open.filter(|&open| declared[open].is("("));
        match open.and_then(|open| closing(declared, open).map(|close| (open, close))) {
            Some((open, close)) if token.is("alignas") || token.is("__align__") => {
                alignment = joined(&declared[open + 1..close]);
                at = close;
            }
            _ => rest.push(token),
        }
        at += 1;
    }
    (rest, alignment)
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
        let include = refused("\n#include <cute/tensor.hpp>\n__global__ void k() {}");
        assert_eq!(include.line, 2);
        assert!(include.message.contains("cute/tensor.hpp"), "{include}");
        let template = refused("template <class T>\n__global__ void k(T* x) {}");
        assert!(template.message.contains("kernel = \"k<T>\""), "{template}");
        let pack = refused("template <class... T>\n__global__ void k(T... x) {}");
        assert!(pack.message.contains("does not know"), "{pack}");
        let asm =
            refused("__global__ void k() {\nasm volatile(\"vmad.u32 %0, %1;\" : \"=r\"(a) : \"r\"(b));\n}");
        assert_eq!(asm.line, 2);
        assert!(asm.message.contains("vmad.u32"), "{asm}");
        assert!(refused("int main() { return 0; }").message.contains("no __global__"));
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
