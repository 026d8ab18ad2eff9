//! Variables outside of functions: which declarations behind `__device__` and `__constant__` are some.

use super::lines::{Kind, Token, closing};

/// What `__device__` stands before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Declared {
    Function,
    /// A variable that nobody writes: it may lie where the compiler puts it.
    Constant,
    Variable,
}

/// Reads the declaration that the token at `at` belongs to, up to where a function differs from a variable.
pub(super) fn declared(tokens: &[Token<'_>], at: usize) -> Declared {
    let ends = |token: &Token<'_>| {
        token.kind == Kind::Directive || [";", "{", "}"].iter().any(|mark| token.is(mark))
    };
    let start = tokens[..at].iter().rposition(ends).map_or(0, |end| end + 1);
    let is_const =
        |token: &Token<'_>| ["const", "constexpr", "__constant__"].iter().any(|word| token.is(word));
    let mut constant = tokens[start..at].iter().any(is_const);
    let mut next = at + 1;
    while let Some(token) = tokens.get(next) {
        match token.text {
            _ if token.is_space() => {}
            "alignas" | "__align__" | "__attribute__" | "__launch_bounds__" | "decltype" => {
                let open = (next + 1..tokens.len()).find(|&open| !tokens[open].is_space());
                next = open.and_then(|open| closing(tokens, open)).unwrap_or(next);
            }
            "(" | "operator" => return Declared::Function,
            "=" | ";" | "[" | "{" | "," => break,
            // What was constant is what the pointer points to.
            "*" => constant = false,
            _ => constant |= is_const(token),
        }
        next += 1;
    }
    if constant { Declared::Constant } else { Declared::Variable }
}

/// Whether the declaration that goes on behind `at` has an initial value.
pub(super) fn is_initialised(tokens: &[Token<'_>], at: usize) -> bool {
    let mut next = at + 1;
    while let Some(token) = tokens.get(next) {
        if token.is(";") {
            return false;
        }
        if token.is("=") || token.is("{") {
            return true;
        }
        if token.is("[") || token.is("(") {
            next = closing(tokens, next).unwrap_or(next);
        }
        next += 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::lines::tokens;
    use super::*;

    #[test]
    fn functions_constants_and_variables_are_told_apart() {
        let told = |text: &str| {
            let tokens = tokens(text);
            let at = tokens.iter().position(|token| token.is("__device__")).expect("a declaration");
            declared(&tokens, at)
        };
        for text in [
            "__device__ int f(int x);",
            "static __device__ __forceinline__ float4 f(float x) {}",
            "__device__ bool operator==(A a, B b) {}",
            "__device__ decltype(1 + 2) f() {}",
            "template <class T> __device__ T f(T x) {}",
        ] {
            assert_eq!(told(text), Declared::Function, "{text}");
        }
        for text in [
            "__device__ int x;",
            "int y = 3; static __device__ float table[3] = {1, 2, 3};",
            "__device__ __align__(16) char bytes[64];",
            "__device__ const int* p = 0;",
            "volatile __device__ int a, b;",
            "#define N (3)\n__device__ unsigned long long count{0};",
        ] {
            assert_eq!(told(text), Declared::Variable, "{text}");
        }
        for text in [
            "__device__ const float table[3] = {1, 2, 3};",
            "constexpr __device__ int n = 3;",
            "__device__ int* const p = 0;",
            "__device__ __constant__ int n = 3;",
        ] {
            assert_eq!(told(text), Declared::Constant, "{text}");
        }
    }

    #[test]
    fn an_extent_is_no_initial_value() {
        let told = |text: &str| is_initialised(&tokens(text), 0);
        assert!(told("__constant__ float w[4] = {1};") && told("__constant__ int n{3};"));
        assert!(
            !told("__constant__ float w[n == 3 ? 4 : 5]; int x = 3;") && !told("__constant__ float w[4]")
        );
    }
}
