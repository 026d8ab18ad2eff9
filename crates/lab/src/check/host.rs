//! Host code among kernels: which declarations of a file no kernel can use.

use std::collections::BTreeSet;

use super::lines::{Kind, Token, angle_closing, closing, tokens};

/// Names of the C++ library's namespace that only host code uses.
const HOST_STANDARD: &[&str] = &[
    "cerr",
    "chrono",
    "clog",
    "cout",
    "deque",
    "endl",
    "exception",
    "fstream",
    "function",
    "future",
    "ifstream",
    "istream",
    "list",
    "lock_guard",
    "map",
    "mt19937",
    "mutex",
    "ofstream",
    "ostream",
    "queue",
    "random_device",
    "runtime_error",
    "set",
    "shared_ptr",
    "string",
    "string_view",
    "stringstream",
    "thread",
    "unique_ptr",
    "unordered_map",
    "unordered_set",
    "vector",
];

/// Namespaces of libraries of which kernels know nothing.
const HOST_NAMESPACES: &[&str] = &["at", "c10", "pybind11", "py", "thrust", "torch"];

/// How types and functions of CUDA's host libraries begin.
const HOST_PREFIXES: &[&str] =
    &["cublas", "cudnn", "cufft", "curandGenerator", "cusolver", "cusparse", "nccl", "nvml", "nvtx"];

/// Types of CUDA's runtime that kernels are not given.
const HOST_TYPES: &[&str] = &[
    "cudaDeviceProp",
    "cudaError_t",
    "cudaEvent_t",
    "cudaGraphExec_t",
    "cudaGraph_t",
    "cudaMemPool_t",
    "cudaStream_t",
    "CUcontext",
    "CUdevice",
    "CUfunction",
    "CUmodule",
    "FILE",
];

/// Declarations outside of functions that are left out, as first and last token: functions that neither
/// `__global__` nor `__device__` stands before, prototypes of such, explicit instantiations, and what names
/// things of the host.
pub(super) fn host_code(all: &[Token<'_>]) -> Vec<(usize, usize)> {
    let marks = device_marks(all);
    let is_of_device = |head: &[Token<'_>]| head.iter().any(|token| marks.contains(token.text));
    let (mut found, mut start, mut at) = (Vec::new(), 0, 0);
    while at < all.len() {
        let token = &all[at];
        let first = start + all[start..at].iter().take_while(|token| token.is_space()).count();
        if token.kind == Kind::Directive || token.is("}") {
            start = at + 1;
        } else if token.is(";") {
            if is_host_declaration(&all[first..at], &is_of_device) {
                found.push((first, at));
            }
            start = at + 1;
        } else if token.is("(") {
            at = closing(all, at).unwrap_or(at);
        } else if token.is("{") {
            let head = &all[first..at];
            let opens_scope = has(head, "namespace") || (has(head, "extern") && !has(head, "("));
            let end = closing(all, at).unwrap_or(all.len() - 1);
            if opens_scope {
                start = at + 1;
            } else if is_type(head) {
                let last = (end..all.len()).find(|&at| all[at].is(";")).unwrap_or(end);
                if !is_of_device(&all[first..end]) && names_host(&all[first..end]) {
                    found.push((first, last));
                }
                (at, start) = (last, last + 1);
            } else {
                let is_function = has(head, "(") && !has(head, "constexpr");
                if !is_of_device(head) && (is_function || names_host(head)) {
                    found.push((first, end));
                }
                (at, start) = (end, end + 1);
            }
        }
        at += 1;
    }
    found
}

fn has(head: &[Token<'_>], word: &str) -> bool {
    head.iter().any(|token| token.is(word))
}

/// Words that make a declaration one of the device: CUDA's own, and macros that have one of them.
fn device_marks<'a>(all: &[Token<'a>]) -> BTreeSet<&'a str> {
    let mut marks = BTreeSet::from(["__global__", "__device__", "__constant__", "__shared__"]);
    let defined = all.iter().filter(|token| token.kind == Kind::Directive).filter_map(|token| {
        let rest = token.text[1..].trim_start().strip_prefix("define")?.trim_start();
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        Some(rest.split_at(end))
    });
    for (name, text) in defined {
        // A macro may stand for another that was defined before it.
        let has_mark = tokens(text).iter().any(|token| marks.contains(token.text));
        if has_mark {
            marks.insert(name);
        }
    }
    marks
}

/// `struct Name`, and not a function that returns one.
fn is_type(head: &[Token<'_>]) -> bool {
    let words = ["struct", "class", "union", "enum"];
    words.iter().any(|word| has(head, word)) && !has(&without_templates(head), "(")
}

/// Without what stands between `template <` and `>`, and without attributes.
fn without_templates<'a>(head: &[Token<'a>]) -> Vec<Token<'a>> {
    let (mut rest, mut at) = (Vec::new(), 0);
    while at < head.len() {
        let next = (at + 1..head.len()).find(|&next| !head[next].is_space());
        let skipped = match (head[at].text, next) {
            ("template", Some(open)) if head[open].is("<") => angle_closing(head, open),
            ("alignas" | "__align__" | "__attribute__", Some(open)) if head[open].is("(") => {
                closing(head, open)
            }
            _ => None,
        };
        match skipped {
            Some(end) => at = end,
            None => rest.push(head[at]),
        }
        at += 1;
    }
    rest
}

/// What ends in a semicolon, outside of functions.
fn is_host_declaration(head: &[Token<'_>], is_of_device: &dyn Fn(&[Token<'_>]) -> bool) -> bool {
    let words: Vec<&Token<'_>> = head.iter().filter(|token| !token.is_space()).collect();
    let Some(first) = words.first() else { return false };
    let is_instance = |at: usize| {
        words.get(at).is_some_and(|word| word.is("template"))
            && !words.get(at + 1).is_some_and(|word| word.is("<"))
    };
    // An instance that the file asks for: whichever is checked is made anyway.
    if is_instance(0) || (first.is("extern") && is_instance(1)) {
        return true;
    }
    if is_of_device(head) {
        return false;
    }
    names_host(head) || is_prototype(&without_templates(head)) || is_computed(&words)
}

/// `T name = f(…)`: a variable that the program computes when it starts, which no kernel may use. Constants may
/// be those of a macro.
fn is_computed(words: &[&Token<'_>]) -> bool {
    let kept = [
        "typedef",
        "using",
        "static_assert",
        "constexpr",
        "const",
        "operator",
        "asm",
        "__managed__",
        "texture",
    ];
    let Some(equals) = words.iter().position(|word| word.is("=")) else { return false };
    let (before, value) = words.split_at(equals);
    let is_call = |pair: &[&Token<'_>]| {
        pair[0].kind == Kind::Word
            && pair[1].is("(")
            && !["sizeof", "alignof", "decltype"].contains(&pair[0].text)
    };
    // `const char* name` is one that changes.
    let changes = before.iter().rposition(|word| word.is("*")).unwrap_or(0);
    before.len() >= 2
        && !before.iter().any(|word| word.is("("))
        && !before[changes..].iter().any(|word| kept.contains(&word.text))
        && value.windows(2).any(is_call)
}

/// `T name(…)`: a macro has no type before its name, and a variable's initial value a `=`.
fn is_prototype(head: &[Token<'_>]) -> bool {
    let kept = ["typedef", "using", "static_assert", "constexpr", "const", "operator", "asm", "decltype"];
    let Some(open) = head.iter().position(|token| token.is("(")) else { return false };
    let before = &head[..open];
    let words = before.iter().filter(|token| token.kind == Kind::Word).count();
    words >= 2 && !has(before, "=") && !kept.iter().any(|word| has(before, word))
}

/// Whether tokens name what only host code has.
fn names_host(tokens: &[Token<'_>]) -> bool {
    let words: Vec<&Token<'_>> = tokens.iter().filter(|token| !token.is_space()).collect();
    words.iter().enumerate().any(|(at, word)| {
        let is = |offset: usize, text: &str| words.get(at + offset).is_some_and(|word| word.is(text));
        let is_qualifier = is(1, ":") && is(2, ":");
        word.kind == Kind::Word
            && (HOST_TYPES.contains(&word.text)
                || HOST_PREFIXES.iter().any(|prefix| word.text.starts_with(prefix))
                || (is_qualifier && HOST_NAMESPACES.contains(&word.text))
                || (is_qualifier
                    && word.is("std")
                    && words.get(at + 3).is_some_and(|name| HOST_STANDARD.contains(&name.text))))
    })
}

#[cfg(test)]
mod tests {
    use super::super::lines::joined;
    use super::*;

    fn left_out(text: &str) -> Vec<String> {
        let all = tokens(text);
        host_code(&all).into_iter().map(|(first, last)| joined(&all[first..=last])).collect()
    }

    #[test]
    fn what_only_the_host_uses_is_left_out() {
        for text in [
            "int main() { return 0; }",
            "void launch(float* x, cudaStream_t s);",
            "std::vector<float> all(3);",
            "typedef std::map<int, int> Map;",
            "torch::Tensor forward(torch::Tensor q) { return q; }",
            "template <class T> void start(T* x) { k<T><<<1, 2>>>(x); }",
            "template __global__ void k<float>(float*);",
            "template void start<float>(float*);",
            "struct Model { std::vector<float> weights; void load(); };",
            "static cublasHandle_t handle;",
            "PYBIND11_MODULE(NAME, m) { m.def(\"f\", &f); }",
            "extern \"C\" int run(int argc, char** argv);",
            "inline struct timespec now() { return {}; }",
            "static int devices = std::atoi(\"2\");",
            "static const char* name = getenv(\"NAME\");",
            "float* pool = (float*)malloc(16);",
        ] {
            let found = left_out(&format!("int before;\n{text}\nint after;"));
            assert_eq!(found, [text], "{text}");
        }
    }

    #[test]
    fn macros_may_mark_what_is_of_the_device() {
        let text = "#define DEVICE __device__ __forceinline__\n#define MATH static DEVICE\n#define API extern\n\
                    MATH float twice(float x) { return 2 * x; }\nDEVICE float half_of(float x);\nAPI int host(int x) { return x; }";
        assert_eq!(left_out(text), ["API int host(int x) { return x; }"]);
    }

    #[test]
    fn what_kernels_use_stays() {
        for text in [
            "__global__ void k(float* x) { x[0] = 1; }",
            "__device__ float twice(float x);",
            "constexpr int ceiling(int a, int b) { return (a + b - 1) / b; }",
            "struct Params { const float* x; int n; };",
            "template <typename T> struct __align__(16) Vec { T v[4]; };",
            "enum class Op : int { Add, Mul };",
            "typedef float (*Function)(float);",
            "using namespace std;",
            "using V = Vec<float>;",
            "const int size = round_up(3);",
            "static const char* const name = NAME(3);",
            "int size = (3);",
            "static int bytes = sizeof(float);",
            "static_assert(sizeof(int) == 4, \"int\");",
            "DECLARE(float, 3);",
            "__constant__ float w[2] = {1, 2};",
            "namespace a { namespace b { int x; } }",
            "struct Sum { __device__ float operator()(float a, float b) const { return a + b; } };",
        ] {
            assert_eq!(left_out(text), Vec::<String>::new(), "{text}");
        }
    }
}
