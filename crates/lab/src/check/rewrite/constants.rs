//! `__constant__` variables that host code would fill: here they hold what buffers hold, small random numbers.

use std::fmt::Write as _;

use super::super::lines::{Token, split};
use super::shared::{bare, declarator};

/// A function that fills the variables of one declaration.
pub(super) struct Filled {
    pub(super) text: String,
    pub(super) has_integers: bool,
}

/// The words of a type, and of what its values are made.
const TYPES: &[(&str, &str)] = &[
    ("float", "f32"),
    ("float2", "f32"),
    ("float3", "f32"),
    ("float4", "f32"),
    ("double", "f64"),
    ("double2", "f64"),
    ("char", "signed char"),
    ("signed char", "signed char"),
    ("unsigned char", "u8"),
    ("uchar4", "u8"),
    ("bool", "u8"),
    ("int8_t", "signed char"),
    ("uint8_t", "u8"),
    ("short", "short"),
    ("unsigned short", "u16"),
    ("int16_t", "short"),
    ("uint16_t", "u16"),
    ("int", "i32"),
    ("int2", "i32"),
    ("int3", "i32"),
    ("int4", "i32"),
    ("int32_t", "i32"),
    ("unsigned", "u32"),
    ("unsigned int", "u32"),
    ("uint", "u32"),
    ("uint2", "u32"),
    ("uint3", "u32"),
    ("uint4", "u32"),
    ("uint32_t", "u32"),
    ("long", "i64"),
    ("long long", "i64"),
    ("int64_t", "i64"),
    ("unsigned long", "u64"),
    ("unsigned long long", "u64"),
    ("uint64_t", "u64"),
    ("size_t", "u64"),
];

/// What fills the variables of `T name[N], other`; none if the type is not one of numbers.
pub(super) fn filled(declared: &[Token<'_>], number: usize) -> Option<Filled> {
    let parts = split(declared, ",");
    let (type_, ..) = declarator(parts.first()?)?;
    let words: Vec<&str> =
        type_.split_whitespace().filter(|word| *word != "const" && *word != "static").collect();
    let (_, scalar) = TYPES.iter().find(|(name, _)| *name == words.join(" "))?;
    let mut text = format!(" extern \"C\" GW_HOST void gw_fill_constant_{number}() {{");
    for (at, part) in parts.iter().enumerate() {
        let (name, extent) = match at {
            0 => declarator(part).map(|(_, name, extent)| (name, extent))?,
            _ => bare(part)?,
        };
        let fill = if extent.is_empty() { "fill_one" } else { "fill_many" };
        let _ = write!(text, " gw::cuda::{fill}(({scalar}*)&{name}, sizeof({name}) / sizeof({scalar}));");
    }
    text.push_str(" }");
    Some(Filled { text, has_integers: !scalar.starts_with('f') })
}
