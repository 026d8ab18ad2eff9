//! Parameters that are structs by value: their fields become parameters of a kernel around the kernel.

use std::fmt::Write as _;

use super::lines::{Kind, Token, closing, joined, split};

/// Structs in structs at most.
const DEPTH: u32 = 8;

/// A field of a parameter that a plan can give.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Field {
    type_: String,
    /// As `params.size`.
    path: String,
}

/// A kernel whose parameters are fields and plain parameters, and the call of the kernel that the file has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Flattened {
    /// What plans call the parameters.
    pub(super) names: Vec<String>,
    /// The list of parameters, without parentheses.
    pub(super) list: String,
    /// The body, which calls `{CALLED}`.
    pub(super) body: String,
}

/// What stands for the kernel's own function in the body.
pub(super) const CALLED: &str = "gw_called";

/// Takes the structs among a kernel's parameters apart. None if there are none that the file declares.
pub(super) fn flattened(all: &[Token<'_>], parameters: &[&[Token<'_>]]) -> Option<Flattened> {
    let mut has_struct = false;
    let (mut names, mut list, mut filled, mut arguments) =
        (Vec::new(), Vec::new(), String::new(), Vec::new());
    for part in parameters {
        let (type_, name) = declared(part)?;
        let bare = type_.replace("const ", "").replace("__grid_constant__", "").replace('&', "");
        let bare = bare.trim();
        let Some(fields) = fields(all, bare, &name, DEPTH) else {
            names.push(name.clone());
            list.push(joined(part));
            arguments.push(name);
            continue;
        };
        has_struct = true;
        let _ = write!(filled, "{bare} {name}{{}}; ");
        for Field { type_, path } in fields {
            let parameter = format!("gw_field_{}", path.replace('.', "_"));
            let _ = write!(filled, "{path} = {parameter}; ");
            list.push(format!("{type_} {parameter}"));
            names.push(path);
        }
        arguments.push(name);
    }
    let body = format!("{filled}{CALLED}({});", arguments.join(", "));
    has_struct.then(|| Flattened { names, list: list.join(", "), body })
}

/// Type and name of `T name`; none of an array or a function.
fn declared(part: &[Token<'_>]) -> Option<(String, String)> {
    let end = part.iter().position(|token| token.is("=")).unwrap_or(part.len());
    if part[..end].iter().any(|token| token.is("[") || token.is("(")) {
        return None;
    }
    let at = part[..end].iter().rposition(|token| token.kind == Kind::Word)?;
    let type_ = joined(&part[..at]);
    (!type_.is_empty()).then(|| (type_, part[at].text.to_owned()))
}

/// The fields of a struct of that name, if the file declares it.
fn fields(all: &[Token<'_>], name: &str, path: &str, depth: u32) -> Option<Vec<Field>> {
    let depth = depth.checked_sub(1)?;
    let (bases, body) = body_of(all, name)?;
    let mut found = Vec::new();
    for base in bases {
        found.extend(fields(all, &base, path, depth)?);
    }
    for declaration in declarations(body) {
        for (number, part) in split(declaration, ",").into_iter().enumerate() {
            let type_of_all = || declared(split(declaration, ",")[0]).map(|(type_, _)| type_);
            let Some((type_, name)) = (if number == 0 {
                declared(part)
            } else {
                let name =
                    part.iter().find(|token| token.kind == Kind::Word).map(|token| token.text.to_owned());
                let is_array = part.iter().any(|token| token.is("["));
                name.filter(|_| !is_array).and_then(|name| Some((type_of_all()?, name)))
            }) else {
                // An array: it stays as the struct initialises it.
                continue;
            };
            let path = format!("{path}.{name}");
            match fields(all, type_.trim_start_matches("const ").trim(), &path, depth) {
                Some(inner) => found.extend(inner),
                None => found.push(Field { type_, path }),
            }
        }
    }
    Some(found)
}

/// What stands between the braces of `struct name : bases { … }` or `typedef struct { … } name`.
fn body_of<'a, 'b>(all: &'b [Token<'a>], name: &str) -> Option<(Vec<String>, &'b [Token<'a>])> {
    let next = |at: usize| (at..all.len()).find(|&at| !all[at].is_space());
    for at in (0..all.len()).filter(|&at| all[at].is("struct") || all[at].is("class")) {
        let open =
            (at..all.len()).find(|&open| [";", "{", "(", ")", ">"].iter().any(|mark| all[open].is(mark)));
        let Some(open) = open.filter(|&open| all[open].is("{")) else { continue };
        let Some(close) = closing(all, open) else { continue };
        let head = &all[at + 1..open];
        let colon = head.iter().position(|token| token.is(":")).unwrap_or(head.len());
        let called = head[..colon].iter().rfind(|token| token.kind == Kind::Word).map(|token| token.text);
        let behind = next(close + 1).map(|at| all[at].text);
        if called != Some(name) && (called.is_some() || behind != Some(name)) {
            continue;
        }
        let bases = head.get(colon + 1..).unwrap_or(&[]);
        let bases = split(bases, ",").into_iter().filter_map(|base| {
            base.iter().rfind(|token| token.kind == Kind::Word).map(|token| token.text.to_owned())
        });
        return Some((bases.collect(), &all[open + 1..close]));
    }
    None
}

/// The declarations of variables in the body of a struct.
fn declarations<'a, 'b>(body: &'b [Token<'a>]) -> Vec<&'b [Token<'a>]> {
    let other = [
        "static",
        "using",
        "typedef",
        "enum",
        "constexpr",
        "friend",
        "template",
        "operator",
        "static_assert",
    ];
    let (mut found, mut from, mut at) = (Vec::new(), 0, 0);
    while at < body.len() {
        let token = &body[at];
        if token.kind == Kind::Directive || (token.is(":") && is_access(&body[from..at])) {
            from = at + 1;
        } else if token.is("{") {
            let end = closing(body, at).unwrap_or(body.len() - 1);
            // A function ends here, an initial value before a semicolon.
            if body[from..at].iter().any(|token| token.is("(")) {
                from = end + 1;
            }
            at = end;
        } else if token.is(";") {
            let declaration = &body[from..at];
            let is_variable = !declaration.iter().any(|token| token.is("(") || other.contains(&token.text));
            if is_variable && declaration.iter().any(|token| token.kind == Kind::Word) {
                found.push(declaration);
            }
            from = at + 1;
        }
        at += 1;
    }
    found
}

fn is_access(tokens: &[Token<'_>]) -> bool {
    let mut words = tokens.iter().filter(|token| !token.is_space());
    let is = words.next().is_some_and(|word| matches!(word.text, "public" | "private" | "protected"));
    is && words.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::super::lines::tokens;
    use super::*;

    fn of(file: &str, list: &str) -> Option<Flattened> {
        let (all, list) = (tokens(file), tokens(list));
        flattened(&all, &split(&list, ","))
    }

    #[test]
    fn fields_become_parameters() {
        let file = "struct Base { int rows, columns; };\n\
                    typedef struct { float scale; } Inner;\n\
                    struct Params : public Base {\n public:\n  const float* __restrict__ x; Inner inner; int table[4];\n  \
                    Params() = default;\n  __device__ float at(int i) const { return x[i]; }\n  static int count;\n  bool flag = false;\n};";
        let found = of(file, "const __grid_constant__ Params p, float* out").unwrap();
        assert_eq!(found.names, ["p.rows", "p.columns", "p.x", "p.inner.scale", "p.flag", "out"]);
        assert_eq!(
            found.list,
            "int gw_field_p_rows, int gw_field_p_columns, const float* __restrict__ gw_field_p_x, float gw_field_p_inner_scale, \
             bool gw_field_p_flag, float* out"
        );
        assert!(found.body.starts_with("Params p{}; p.rows = gw_field_p_rows; "), "{}", found.body);
        assert!(found.body.ends_with("gw_called(p, out);"), "{}", found.body);
    }

    #[test]
    fn plain_parameters_stay() {
        assert_eq!(of("struct P { int n; };", "const float* x, P* p, int n"), None);
        assert_eq!(of("struct P;", "P p"), None);
        assert_eq!(of("", "float (*f)(float)"), None);
        // A struct that is in itself has no end.
        assert_eq!(of("struct P { P p; };", "P p").map(|found| found.names.len()), Some(1));
    }
}
