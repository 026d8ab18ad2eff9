//! Kernels: their heads as those of the portable header, and the arguments of templates.

use std::fmt::Write as _;

use super::super::launches::{launch_of, side};
use super::super::lines::{Kind, Token, breaks, closing, joined, split, tokens};
use super::super::refusal::Refusal;
use super::super::structs::{CALLED, Flattened, flattened};
use super::super::templates::{Template, launched, listed};
use super::{KernelText, Writer};

/// What may stand between `__global__` and the name of a kernel, with parentheses.
const ATTRIBUTES: &[&str] = &["__launch_bounds__", "__cluster_dims__", "__maxnreg__", "__attribute__"];

/// One, two or three numbers.
fn sides(listed: &[String]) -> Option<[u32; 3]> {
    let mut sides = [1; 3];
    for (side, text) in sides.iter_mut().zip(listed) {
        *side = text.parse().ok()?;
    }
    (listed.len() <= 3).then_some(sides)
}

impl<'a> Writer<'a, '_> {
    /// `__global__ void __launch_bounds__(t, b) name(…)`, in any order of the first three.
    pub(super) fn kernel(&mut self, global: usize, template: Option<&[Token<'a>]>) -> Result<(), Refusal> {
        let line = self.tokens[global].line;
        let (mut at, mut bounds, mut cluster, mut most_threads) = (self.skip(global + 1), None, None, None);
        loop {
            if let Some(word) = self.tokens.get(at).filter(|word| ATTRIBUTES.contains(&word.text)) {
                let open = self.skip(at + 1);
                let Some(close) = closing(self.tokens, open).filter(|_| self.is(open, "(")) else {
                    return Self::refuse(line, "a parenthesis is not closed");
                };
                let inside = split(&self.tokens[open + 1..close], ",");
                let listed = inside.iter().map(|part| joined(part)).collect::<Vec<_>>();
                match word.text {
                    "__launch_bounds__" => {
                        most_threads = inside.first().and_then(|part| side(self.tokens, part));
                        bounds = Some(listed);
                    }
                    "__cluster_dims__" => cluster = sides(&listed),
                    _ => {}
                }
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
        let flattened = flattened(self.tokens, &parameters);
        let parameters: Vec<String> = match &flattened {
            Some(flattened) => flattened.names.clone(),
            None => parameters.iter().filter_map(|part| parameter_name(part)).collect(),
        };
        let mut head = match bounds.as_deref() {
            None | Some([]) => format!("GW_KERNEL({name})"),
            Some([threads]) => format!("GW_KERNEL_BOUNDED({name}, {threads}, 1)"),
            Some([threads, blocks, ..]) => format!("GW_KERNEL_BOUNDED({name}, {threads}, {blocks})"),
        };
        let (mut bound, mut arguments, mut behind) = (String::new(), None, String::new());
        // Of what is not closed, the compiler says where.
        let last = closing(self.tokens, end).filter(|_| self.is(end, "{")).unwrap_or(self.tokens.len() - 1);
        if let Some(Flattened { list, body, .. }) = flattened {
            let called = format!("gw_body_of_{name}");
            behind = format!(" {head}({list}) {{ {} }}", body.replace(CALLED, &called));
            head = format!("static void {called}");
        }
        if let Some(template) = template {
            let Some(given) = self.template_arguments(&name, line, template)? else {
                self.blank(last);
                return Ok(());
            };
            bound = format!("namespace gw_of_{name} {{ {}", given.declarations);
            arguments = Some(given.listed);
            let _ = write!(behind, " }} using gw_of_{name}::{name};");
        }
        self.behind = Some((last, behind));
        let text = format!("{}{bound}{head}", breaks(&self.tokens[self.at..open]));
        let outer = namespaces(&self.tokens[..global]);
        if !outer.is_empty() {
            // What starts kernels stands outside of all namespaces.
            let _ = write!(self.exported, "using {outer}{name}; ");
        }
        let line = self.files.place(line).1;
        let launch = launch_of(self.tokens, &name);
        self.kernels.push(KernelText { name, arguments, line, parameters, launch, cluster, most_threads });
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

    /// Writes what stands behind a kernel's body.
    pub(super) fn end_kernel(&mut self) {
        if let Some((_, text)) = self.behind.take_if(|(last, _)| self.at > *last) {
            self.out.push_str(&text);
        }
    }
}

/// The arguments of a template.
struct Given {
    /// Declarations of its parameters with these values.
    declarations: String,
    /// The arguments, as `float, 4`.
    listed: String,
}

/// The namespaces around what follows the tokens, as `a::b::`. One without a name needs none.
fn namespaces(before: &[Token<'_>]) -> String {
    let (mut open, mut from): (Vec<Option<String>>, usize) = (Vec::new(), 0);
    for (at, token) in before.iter().enumerate().filter(|(_, token)| token.kind == Kind::Mark) {
        match token.text {
            "{" => {
                let head = &before[from..at];
                let start = head.iter().position(|token| token.is("namespace"));
                open.push(start.map(|start| {
                    let words = head[start + 1..].iter().filter(|token| token.kind == Kind::Word);
                    words.map(|word| format!("{}::", word.text)).collect()
                }));
            }
            "}" => {
                open.pop();
            }
            ";" => {}
            _ => continue,
        }
        from = at + 1;
    }
    open.into_iter().flatten().collect()
}

/// The last word before an array's extents or a default.
fn parameter_name(part: &[Token<'_>]) -> Option<String> {
    let end = part.iter().position(|token| token.is("[") || token.is("=")).unwrap_or(part.len());
    let mut words = part[..end].iter().filter(|token| token.kind == Kind::Word);
    words.next_back().map(|token| token.text.to_owned()).filter(|name| name != "void")
}
