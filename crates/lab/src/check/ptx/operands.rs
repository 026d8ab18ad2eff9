//! Operands of inline PTX as expressions of C++: a register has a size and no meaning.

use super::super::lines::{Kind, Token, closing, joined, split};
use super::text::{Instruction, listed};

/// `"=r"(expression)`, with its name if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Bound {
    name: Option<String>,
    constraint: char,
    expression: String,
}

/// A register that the text declares.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Local {
    name: String,
    kind: String,
}

/// What operands of a text can name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Operands {
    bound: Vec<Bound>,
    locals: Vec<Local>,
}

/// The type in C++ of a register's contents: of `b32`, `s64`, `f32`.
pub(super) fn type_of(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "pred" => "bool",
        "b8" | "u8" => "u8",
        "s8" => "i8",
        "b16" | "u16" | "f16" | "bf16" => "u16",
        "s16" => "i16",
        "b32" | "u32" | "f16x2" | "bf16x2" => "u32",
        "s32" => "i32",
        "b64" | "u64" => "u64",
        "s64" => "i64",
        "f32" => "f32",
        "f64" => "f64",
        _ => return None,
    })
}

impl Operands {
    /// From the sections behind the text: outputs, then inputs.
    pub(super) fn of(sections: &[&[Token<'_>]]) -> Self {
        let operands = sections.iter().flat_map(|section| split(section, ","));
        Self { bound: operands.filter_map(bound).collect(), locals: Vec::new() }
    }

    pub(super) fn declare(&mut self, kind: &str, name: &str) {
        self.locals.push(Local { name: name.to_owned(), kind: kind.to_owned() });
    }

    /// Declarations of the text's registers.
    pub(super) fn declarations(&self) -> Option<String> {
        let one = |local: &Local| Some(format!("{} {}; ", type_of(&local.kind)?, local_name(&local.name)));
        self.locals.iter().map(one).collect()
    }

    fn bound(&self, operand: &str) -> Option<&Bound> {
        let name = operand.strip_prefix('%')?;
        match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
            Some(name) => self.bound.iter().find(|bound| bound.name.as_deref() == Some(name)),
            None => self.bound.get(name.parse::<usize>().ok()?),
        }
    }

    fn local(&self, operand: &str) -> Option<&Local> {
        self.locals.iter().find(|local| local.name == operand)
    }

    /// The type of the register that an operand names.
    fn register(&self, operand: &str) -> Option<&'static str> {
        match self.bound(operand) {
            Some(bound) => Some(match bound.constraint {
                'h' => "u16",
                'r' => "u32",
                'l' => "u64",
                'f' => "f32",
                'd' => "f64",
                _ => return None,
            }),
            None => type_of(&self.local(operand)?.kind),
        }
    }

    /// The bits of an operand as a value of a type of C++.
    pub(super) fn value(&self, operand: &str, type_: &str) -> Option<String> {
        let operand = operand.trim();
        if let Some(name) = operand.strip_prefix('!') {
            return Some(format!("(!{})", self.value(name, type_)?));
        }
        if let Some(bound) = self.bound(operand) {
            return Some(match self.register(operand) {
                Some(register) => {
                    format!("gw::cuda::as<{type_}>(gw::cuda::held<{register}>({}))", bound.expression)
                }
                None => format!("({type_})({})", bound.expression),
            });
        }
        if let Some(local) = self.local(operand) {
            return Some(match type_of(&local.kind)? {
                "bool" => local_name(operand),
                _ => format!("gw::cuda::as<{type_}>({})", local_name(operand)),
            });
        }
        if let Some(special) = operand.strip_prefix('%').and_then(special) {
            return Some(format!("({type_})({special})"));
        }
        constant(operand, type_)
    }

    /// A statement that gives an operand a value of a type of C++.
    pub(super) fn assign(&self, operand: &str, value: &str) -> Option<String> {
        let operand = operand.trim();
        if operand == "_" {
            return Some(format!("(void)({value})"));
        }
        if let Some(bound) = self.bound(operand) {
            let register = self.register(operand)?;
            return Some(format!("gw::cuda::give({}, gw::cuda::as<{register}>({value}))", bound.expression));
        }
        let local = self.local(operand)?;
        Some(match type_of(&local.kind)? {
            "bool" => format!("{} = {value}", local_name(operand)),
            type_ => format!("{} = gw::cuda::as<{type_}>({value})", local_name(operand)),
        })
    }

    /// `[%1 + 16]` as a number of 64 bits.
    fn address(&self, operand: &str) -> Option<String> {
        let bare = operand.trim();
        let bare = bare.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(bare).trim();
        let (base, offset) = match bare.split_once('+') {
            Some((base, offset)) => (base.trim(), Some(offset.trim())),
            None => (bare, None),
        };
        let register = self.register(base).unwrap_or("u32");
        let base = self.value(base, register)?;
        Some(match offset {
            Some(offset) => {
                let offset = if self.bound(offset).is_some() {
                    self.value(offset, "i32")?
                } else {
                    constant(offset, "i64")?
                };
                format!("(u64)({base} + {offset})")
            }
            None => format!("(u64)({base})"),
        })
    }

    /// A pointer to shared memory from its 32-bit address.
    pub(super) fn shared(&self, operand: &str) -> Option<String> {
        Some(format!("gw::cuda::at({})", self.address(operand)?))
    }

    pub(super) fn global(&self, operand: &str) -> Option<String> {
        Some(format!("(void*)({})", self.address(operand)?))
    }

    pub(super) fn barrier(&self, operand: &str) -> Option<String> {
        Some(format!("gw::cuda::barrier({})", self.address(operand)?))
    }

    /// What an operand that must be known to the compiler is.
    pub(super) fn constant(&self, operand: &str) -> Option<String> {
        match self.bound(operand) {
            Some(bound) => Some(bound.expression.clone()),
            None => constant(operand.trim(), "u32"),
        }
    }

    /// The expression that a register stands for, to take its address.
    pub(super) fn place(&self, operand: &str) -> Option<String> {
        match self.bound(operand.trim()) {
            Some(bound) => Some(bound.expression.clone()),
            None => self.local(operand.trim()).map(|local| local_name(&local.name)),
        }
    }

    /// The operands of an instruction that are not there count as none.
    pub(super) fn at<'a>(&self, one: &'a Instruction, number: usize) -> Option<&'a str> {
        one.operands.get(number).map(String::as_str)
    }
}

/// The members of `{a, b}`; an operand without braces is its only one.
pub(super) fn members(operand: &str) -> Vec<String> {
    let operand = operand.trim();
    match operand.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        Some(inside) => listed(inside),
        None => vec![operand.to_owned()],
    }
}

/// A register of the text, by a name that no variable has.
fn local_name(name: &str) -> String {
    format!("gw_reg_{}", name.replace(['%', '$'], "_"))
}

/// `[name] "=r"(expression)`.
fn bound(operand: &[Token<'_>]) -> Option<Bound> {
    let constraint = operand.iter().find(|token| token.kind == Kind::Text)?;
    let constraint = constraint.text.chars().rfind(char::is_ascii_alphabetic)?;
    let open = operand.iter().position(|token| token.is("("))?;
    let close = closing(operand, open)?;
    let name = operand.iter().position(|token| token.is("[")).filter(|&at| at < open);
    let name = name.and_then(|at| closing(operand, at).map(|end| joined(&operand[at + 1..end])));
    Some(Bound { name, constraint, expression: format!("({})", joined(&operand[open + 1..close])) })
}

/// A number of PTX: integers as in C, `0f3F800000` for the bits of a float.
fn constant(text: &str, type_: &str) -> Option<String> {
    let bits = |prefix: &str, digits: usize| {
        let rest = text.strip_prefix(prefix)?;
        (rest.len() == digits && rest.chars().all(|c| c.is_ascii_hexdigit())).then_some(rest)
    };
    if let Some(hex) = bits("0f", 8).or_else(|| bits("0F", 8)) {
        return Some(format!("gw::cuda::as<{type_}>(gw::bits<f32>(0x{hex}u))"));
    }
    if let Some(hex) = bits("0d", 16).or_else(|| bits("0D", 16)) {
        return Some(format!("gw::cuda::as<{type_}>(gw::bits<f64>(0x{hex}ull))"));
    }
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let is_number = unsigned.starts_with(|c: char| c.is_ascii_digit())
        && unsigned.chars().all(|c| c.is_ascii_alphanumeric() || c == '.');
    is_number.then(|| format!("({type_})({})", text.trim_end_matches('U')))
}

/// A special register.
fn special(name: &str) -> Option<&'static str> {
    Some(match name {
        "laneid" => "gw::lane()",
        "warpid" => "gw::warp()",
        "nwarpid" => "((gw::threads() + 31) / 32)",
        "tid.x" => "gw::thread_x()",
        "tid.y" => "gw::thread_y()",
        "tid.z" => "gw::thread_z()",
        "ctaid.x" => "gw::block_x()",
        "ctaid.y" => "gw::block_y()",
        "ctaid.z" => "gw::block_z()",
        "ntid.x" => "gw::threads_x()",
        "ntid.y" => "gw::threads_y()",
        "ntid.z" => "gw::threads_z()",
        "nctaid.x" => "gw::blocks_x()",
        "nctaid.y" => "gw::blocks_y()",
        "nctaid.z" => "gw::blocks_z()",
        "lanemask_eq" => "(1u << gw::lane())",
        "lanemask_lt" => "((1u << gw::lane()) - 1)",
        "lanemask_le" => "((2u << gw::lane()) - 1)",
        "lanemask_gt" => "(~((2u << gw::lane()) - 1))",
        "lanemask_ge" => "(~((1u << gw::lane()) - 1))",
        "clock" | "clock64" | "globaltimer" => "gw::clock()",
        "cluster_ctarank" => "gw::cluster_rank()",
        "cluster_nctarank" => "gw::cluster_size()",
        _ => return None,
    })
}
