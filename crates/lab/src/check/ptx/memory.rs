//! Instructions that load, store, copy and update memory.

use super::operands::{Operands, members, type_of};
use super::text::Instruction;

/// The statement for an access, an atomic update or a hint.
pub(super) fn call(one: &Instruction, x: &Operands) -> Option<String> {
    let name = *one.parts().first()?;
    match name {
        "ld" | "st" if one.has("acquire") || one.has("release") || one.has("relaxed") => ordered(one, x),
        "ld" => load(one, x),
        "st" => store(one, x),
        "atom" | "red" => update(one, x),
        "prefetch" | "prefetchu" | "applypriority" | "discard" => Some(String::new()),
        _ if one.is("cp.async.bulk.prefetch") => Some(String::new()),
        // A hint of where to cache changes nothing here.
        "createpolicy" => x.assign(x.at(one, 0)?, "0ull"),
        "ldmatrix" | "stmatrix" => matrix(one, x, name),
        "mma" => product(one, x),
        _ => None,
    }
}

/// Where an access goes: `.shared` addresses have 32 bits.
fn pointer(one: &Instruction, x: &Operands, operand: &str) -> Option<String> {
    let elsewhere = ["local", "const", "param", "shared::cluster"];
    if elsewhere.iter().any(|space| one.has(space)) {
        return None;
    }
    if one.has("shared") || one.has("shared::cta") { x.shared(operand) } else { x.global(operand) }
}

/// Elements of an access.
fn width(one: &Instruction) -> usize {
    match (one.has("v2"), one.has("v4")) {
        (true, _) => 2,
        (_, true) => 4,
        _ => 1,
    }
}

fn load(one: &Instruction, x: &Operands) -> Option<String> {
    let type_ = type_of(one.parts().last()?)?;
    let (to, count) = (members(x.at(one, 0)?), width(one));
    let pointer = pointer(one, x, x.at(one, 1)?)?;
    if to.len() != count {
        return None;
    }
    let kind = if one.has("nc") { "load_constant" } else { "load" };
    let mut text = format!("const auto gw_loaded = gw::cuda::{kind}<{type_}, {count}>({pointer}); ");
    for (number, to) in to.iter().enumerate() {
        text.push_str(&x.assign(to, &format!("gw_loaded.of[{number}]"))?);
        text.push_str("; ");
    }
    Some(format!("{{ {text}}}"))
}

fn store(one: &Instruction, x: &Operands) -> Option<String> {
    let type_ = type_of(one.parts().last()?)?;
    let (pointer, from) = (pointer(one, x, x.at(one, 0)?)?, members(x.at(one, 1)?));
    if from.len() != width(one) {
        return None;
    }
    let values: Vec<String> = from.iter().map(|value| x.value(value, type_)).collect::<Option<_>>()?;
    Some(format!("gw::cuda::store<{type_}, {}>({pointer}, {{{{{}}}}})", from.len(), values.join(", ")))
}

fn scope(one: &Instruction) -> Option<&'static str> {
    let scopes = [("cta", "Block"), ("cluster", "Cluster"), ("gpu", "Device"), ("sys", "System")];
    scopes.iter().find(|(word, _)| one.has(word)).map(|(_, scope)| *scope)
}

/// Loads and stores with an order and a scope, of words of 4 or 8 bytes.
fn ordered(one: &Instruction, x: &Operands) -> Option<String> {
    let parts = one.parts();
    let order = ["acquire", "release", "relaxed"].into_iter().find(|order| one.has(order))?;
    let scope = scope(one)?;
    let word = match *parts.last()? {
        "u32" | "b32" | "s32" | "f32" => "u32",
        "u64" | "b64" | "s64" | "f64" => "u64",
        _ => return None,
    };
    if width(one) != 1 {
        return None;
    }
    if parts[0] == "ld" {
        let from = pointer(one, x, x.at(one, 1)?)?;
        return x
            .assign(x.at(one, 0)?, &format!("gw::load_{order}<gw::Scope::{scope}>((const {word}*){from})"));
    }
    let (to, value) = (pointer(one, x, x.at(one, 0)?)?, x.value(x.at(one, 1)?, word)?);
    Some(format!("gw::store_{order}<gw::Scope::{scope}>(({word}*){to}, {value})"))
}

/// `atom` gives the value before, `red` does not.
fn update(one: &Instruction, x: &Operands) -> Option<String> {
    let parts = one.parts();
    let last = *parts.last()?;
    let is_reduction = parts[0] == "red";
    let first = usize::from(!is_reduction);
    let order = match ["acquire", "release", "acq_rel"].into_iter().find(|order| one.has(order)) {
        Some("acquire") => "Acquire",
        Some("release") => "Release",
        Some(_) => "AcquireRelease",
        None => "Relaxed",
    };
    let how = format!("<gw::Order::{order}, gw::Scope::{}>", scope(one).unwrap_or("Device"));
    let to = pointer(one, x, x.at(one, first)?)?;
    let operation = ["add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"];
    let operation = operation.into_iter().find(|name| one.has(name))?;
    let bits = if last.ends_with("64") { "u64" } else { "u32" };
    let (function, type_) = match (operation, last) {
        ("add", "u32" | "s32") => ("atomic_add", "u32"),
        ("add", "u64") => ("atomic_add", "u64"),
        ("add", "f32" | "f64") => ("atomic_add", type_of(last)?),
        ("add", "f16x2") => ("atomic_add_f16_pair", "u32"),
        ("add", "bf16x2") => ("atomic_add_bf16_pair", "u32"),
        ("min", "u32" | "s32" | "u64" | "s64") => ("atomic_min", type_of(last)?),
        ("max", "u32" | "s32" | "u64" | "s64") => ("atomic_max", type_of(last)?),
        ("and", "b32" | "b64") => ("atomic_and", bits),
        ("or", "b32" | "b64") => ("atomic_or", bits),
        ("xor", "b32" | "b64") => ("atomic_xor", bits),
        ("exch", "b32" | "b64") => ("atomic_exchange", bits),
        ("inc", "u32") => ("atomic_inc", "u32"),
        ("dec", "u32") => ("atomic_dec", "u32"),
        ("cas", "b32" | "b64") => ("atomic_cas", bits),
        _ => return None,
    };
    if width(one) != 1 {
        return None;
    }
    let mut values = vec![x.value(x.at(one, first + 1)?, type_)?];
    if operation == "cas" {
        values.push(x.value(x.at(one, first + 2)?, type_)?);
    }
    let call = format!("gw::{function}{how}(({type_}*){to}, {})", values.join(", "));
    if is_reduction { Some(call) } else { x.assign(x.at(one, 0)?, &call) }
}

/// `ldmatrix` and `stmatrix` of 8x8 tiles of 16 bits.
fn matrix(one: &Instruction, x: &Operands, name: &str) -> Option<String> {
    let count = ["x1", "x2", "x4"].into_iter().position(|count| one.has(count)).map(|at| 1 << at)?;
    if !one.has("m8n8") || !one.has("b16") {
        return None;
    }
    let direction = if one.has("trans") { "gw::TRANSPOSED" } else { "gw::AS_STORED" };
    let (tiles, row) = if name == "ldmatrix" { (0, 1) } else { (1, 0) };
    let registers = members(x.at(one, tiles)?);
    let row = x.shared(x.at(one, row)?)?;
    if registers.len() != count {
        return None;
    }
    if name == "stmatrix" {
        let values: Vec<String> = registers.iter().map(|one| x.value(one, "u32")).collect::<Option<_>>()?;
        return Some(format!(
            "{{ const u32 gw_tiles[{count}] = {{{}}}; gw::store_matrix<{count}, {direction}>({row}, gw_tiles); }}",
            values.join(", ")
        ));
    }
    let mut text = format!("u32 gw_tiles[{count}]; gw::load_matrix<{count}, {direction}>(gw_tiles, {row}); ");
    for (number, register) in registers.iter().enumerate() {
        text.push_str(&x.assign(register, &format!("gw_tiles[{number}]"))?);
        text.push_str("; ");
    }
    Some(format!("{{ {text}}}"))
}

/// `mma.sync` of the shapes that gw/matrix.cuh has.
fn product(one: &Instruction, x: &Operands) -> Option<String> {
    let parts = one.parts();
    let shape =
        parts.iter().position(|part| part.starts_with('m') && part.contains('n') && part.contains('k'))?;
    let [d, a, b, c] = parts.get(parts.len().checked_sub(4)?..)? else { return None };
    let (format, wanted, number) = match (*a, *d) {
        ("f16", "f32") => ("F16", "m16n8k16", "f32"),
        ("bf16", "f32") => ("BF16", "m16n8k16", "f32"),
        ("e4m3", "f32") => ("E4M3", "m16n8k32", "f32"),
        ("e5m2", "f32") => ("E5M2", "m16n8k32", "f32"),
        ("s8", "s32") => ("S8", "m16n8k32", "i32"),
        _ => return None,
    };
    if a != b
        || c != d
        || parts[shape] != wanted
        || !one.has("row")
        || !one.has("col")
        || one.has("satfinite")
    {
        return None;
    }
    let lists: Vec<Vec<String>> = one.operands.iter().map(|operand| members(operand)).collect();
    let [to, left, right, add] = lists.as_slice() else { return None };
    let values = |list: &[String], count: usize, type_: &str| -> Option<String> {
        let values: Vec<String> = list.iter().map(|one| x.value(one, type_)).collect::<Option<_>>()?;
        (values.len() == count).then(|| values.join(", "))
    };
    let mut text = format!(
        "const u32 gw_a[4] = {{{}}}, gw_b[2] = {{{}}}; const {number} gw_c[4] = {{{}}}; {number} gw_d[4]; \
         gw::mma(gw::{format}(), gw_d, gw_a, gw_b, gw_c); ",
        values(left, 4, "u32")?,
        values(right, 2, "u32")?,
        values(add, 4, number)?
    );
    if to.len() != 4 {
        return None;
    }
    for (index, register) in to.iter().enumerate() {
        text.push_str(&x.assign(register, &format!("gw_d[{index}]"))?);
        text.push_str("; ");
    }
    Some(format!("{{ {text}}}"))
}
