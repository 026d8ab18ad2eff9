//! Kernels that are templates: which arguments they are checked with, and what their parameters are called then.

use std::collections::BTreeSet;

use super::launches::evaluated;
use super::lines::{Kind, Token, angle_closing, closing, joined};

/// A kernel as a plan names it: `scale`, or `scale<float, 4>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) name: String,
    /// The text between its angle brackets.
    pub(super) arguments: Option<String>,
}

impl Wanted {
    pub(super) fn of(text: &str) -> Self {
        let text = text.trim();
        match text.split_once('<') {
            Some((name, rest)) => {
                let arguments = rest.trim_end().strip_suffix('>').unwrap_or(rest);
                Self { name: name.trim().to_owned(), arguments: Some(arguments.trim().to_owned()) }
            }
            None => Self { name: text.to_owned(), arguments: None },
        }
    }
}

/// A parameter of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Parameter {
    name: String,
    /// The declaration of a value, as `int N`; none for a type.
    value: Option<String>,
    default: Option<String>,
}

/// The parameters of a template, without the angle brackets around them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    parameters: Vec<Parameter>,
}

impl Template {
    /// Reads what stands between the angle brackets. Packs, and templates as parameters, are not known.
    pub(super) fn of(tokens: &[Token<'_>]) -> Option<Self> {
        let parts = arguments(tokens);
        Some(Self { parameters: parts.into_iter().map(parameter).collect::<Option<_>>()? })
    }

    /// The parameters' names, as `T, N`.
    pub(super) fn names(&self) -> String {
        self.parameters.iter().map(|parameter| parameter.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Whether it can be used without arguments.
    pub(super) fn has_defaults(&self) -> bool {
        self.parameters.iter().all(|parameter| parameter.default.is_some())
    }

    /// Declarations that give the parameters these values; what is left out takes its default.
    pub(super) fn bound(&self, given: &[String]) -> Result<String, String> {
        if given.len() > self.parameters.len() {
            return Err(format!("takes {} template arguments, not {}", self.parameters.len(), given.len()));
        }
        let mut text = String::new();
        for (index, Parameter { name, value, default }) in self.parameters.iter().enumerate() {
            let Some(argument) = given.get(index).or(default.as_ref()) else {
                return Err(format!("has a template parameter '{name}' without an argument"));
            };
            text.push_str(&match value {
                None => format!("using {name} = {argument}; "),
                Some(declaration) => format!("constexpr {declaration} = {argument}; "),
            });
        }
        Ok(text)
    }
}

/// Cuts at commas outside of all brackets, angle brackets too. Nothing but space is no argument.
fn arguments<'a, 'b>(tokens: &'b [Token<'a>]) -> Vec<&'b [Token<'a>]> {
    let (mut parts, mut from, mut at) = (Vec::new(), 0, 0);
    while at < tokens.len() {
        match tokens[at].text {
            "," => {
                parts.push(&tokens[from..at]);
                from = at + 1;
            }
            "<" => at = angle_closing(tokens, at).unwrap_or(at),
            "(" | "{" | "[" => at = closing(tokens, at).unwrap_or(at),
            _ => {}
        }
        at += 1;
    }
    parts.push(&tokens[from..]);
    if parts.len() == 1 && parts[0].iter().all(Token::is_space) {
        parts.clear();
    }
    parts
}

/// The arguments in a text such as `float, 4`.
pub(super) fn listed(tokens: &[Token<'_>]) -> Vec<String> {
    arguments(tokens).into_iter().map(joined).collect()
}

fn parameter(part: &[Token<'_>]) -> Option<Parameter> {
    let equals = part.iter().position(|token| token.is("="));
    let (head, default) = match equals {
        Some(at) => (&part[..at], Some(joined(&part[at + 1..]))),
        None => (part, None),
    };
    if head.iter().any(|token| token.is("template") || token.is(".")) {
        return None;
    }
    // The name of a pointer to a function stands behind its star.
    let star = head.windows(2).position(|pair| pair[0].is("(") && pair[1].is("*"));
    let at = match star {
        Some(star) => (star..head.len()).find(|&at| head[at].kind == Kind::Word)?,
        None => head.iter().rposition(|token| token.kind == Kind::Word)?,
    };
    let name = head[at].text.to_owned();
    let value = match joined(&head[..at]).as_str() {
        "" => return None,
        "typename" | "class" => None,
        _ => Some(joined(head)),
    };
    Some(Parameter { name, value, default })
}

/// The arguments of the first `name<…><<<` in the file. A parameter of a template around the launch is no
/// argument; a constant of the function around it counts as its value.
pub(super) fn launched(tokens: &[Token<'_>], name: &str) -> Option<Vec<String>> {
    let parameters = parameters_of_all(tokens);
    let argument = |part: &[Token<'_>]| {
        let is_plain = !part.iter().any(|token| parameters.contains(token.text));
        if is_plain { Some(joined(part)) } else { Some(evaluated(tokens, part)?.to_string()) }
    };
    let next = |at: usize| (at..tokens.len()).find(|&at| !tokens[at].is_space());
    for at in (0..tokens.len()).filter(|&at| tokens[at].kind == Kind::Word && tokens[at].text == name) {
        let Some(open) = next(at + 1).filter(|&open| tokens[open].is("<")) else { continue };
        let Some(close) = angle_closing(tokens, open) else { continue };
        let launches = next(close + 1)
            .is_some_and(|from| tokens[from..].iter().take(3).filter(|token| token.is("<")).count() == 3);
        if launches
            && let Some(given) = arguments(&tokens[open + 1..close]).into_iter().map(argument).collect()
        {
            return Some(given);
        }
    }
    None
}

/// The parameters' names of every template in the file.
fn parameters_of_all(tokens: &[Token<'_>]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for at in (0..tokens.len()).filter(|&at| tokens[at].is("template")) {
        let open = (at + 1..tokens.len()).find(|&open| !tokens[open].is_space());
        let Some(open) = open.filter(|&open| tokens[open].is("<")) else { continue };
        if let Some(template) =
            angle_closing(tokens, open).and_then(|close| Template::of(&tokens[open + 1..close]))
        {
            names.extend(template.parameters.into_iter().map(|parameter| parameter.name));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::super::lines::tokens;
    use super::*;

    #[test]
    fn parameters_are_bound_in_their_order() {
        let head = tokens("typename T, int N = (4 > 3 ? 8 : 2), class U = Pair<T, 2>");
        let template = Template::of(&head).unwrap();
        assert_eq!(template.names(), "T, N, U");
        assert!(!template.has_defaults());
        let text = template.bound(&["float".into()]).unwrap();
        assert_eq!(text, "using T = float; constexpr int N = (4 > 3 ? 8 : 2); using U = Pair<T, 2>; ");
        let function = Template::of(&tokens("T (*ACT)(const T&), bool B")).unwrap();
        let text = function.bound(&["f<T>".into(), "true".into()]).unwrap();
        assert_eq!(text, "constexpr T (*ACT)(const T&) = f<T>; constexpr bool B = true; ");
        assert!(template.bound(&[]).unwrap_err().contains("'T'"));
        assert!(template.bound(&["a".into(), "b".into(), "c".into(), "d".into()]).unwrap_err().contains('4'));
    }

    #[test]
    fn what_is_no_plain_parameter_is_not_known() {
        for head in ["typename... T", "template <class> class C", "typename", "int"] {
            assert_eq!(Template::of(&tokens(head)), None, "{head}");
        }
    }

    #[test]
    fn launches_name_arguments() {
        let text = tokens("void f() { scale<4, A<B<2>>> <<<dim3(1), 32>>>(x); add<float><<<1, 2>>>(x); }");
        assert_eq!(launched(&text, "scale").unwrap(), ["4", "A<B<2>>"]);
        assert_eq!(launched(&text, "add").unwrap(), ["float"]);
        assert_eq!(launched(&text, "f"), None);
        assert_eq!(launched(&tokens("add<float"), "add"), None);
        let around = tokens(
            "template <class T, int N> void f() { add<T, 2 * N><<<1, N>>>(); } void g() { add<int, 4><<<1, 4>>>(); }",
        );
        assert_eq!(launched(&around, "add").unwrap(), ["int", "4"]);
        let constants = tokens(
            "template <int N, bool B> __global__ void k(); int main() { const int N = 4 * 8; const bool B = true; k<N, B><<<1, N>>>(); }",
        );
        assert_eq!(launched(&constants, "k").unwrap(), ["32", "1"]);
    }

    #[test]
    fn plans_name_kernels_with_their_arguments() {
        let wanted = Wanted::of(" scale<float, A<2> > ");
        assert_eq!((wanted.name.as_str(), wanted.arguments.as_deref()), ("scale", Some("float, A<2>")));
        assert_eq!(Wanted::of("scale").arguments, None);
    }
}
