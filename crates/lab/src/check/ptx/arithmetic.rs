//! Instructions that compute with registers alone.

use super::operands::{Operands, members, type_of};
use super::text::Instruction;

/// The statement for an instruction of arithmetic, logic, conversion or comparison.
pub(super) fn call(one: &Instruction, x: &Operands) -> Option<String> {
    let parts = one.parts();
    let (name, last) = (*parts.first()?, *parts.last()?);
    match name {
        "mov" => return moved(one, x, last),
        "cvta" => return address(one, x),
        "cvt" => return converted(one, x, &parts),
        "setp" => return compared(one, x, &parts),
        "selp" => {
            let type_ = type_of(last)?;
            let (a, b) = (x.value(x.at(one, 1)?, type_)?, x.value(x.at(one, 2)?, type_)?);
            let p = x.value(x.at(one, 3)?, "bool")?;
            return x.assign(x.at(one, 0)?, &format!("({p} ? {a} : {b})"));
        }
        "lop3" => {
            let table = x.constant(x.at(one, 4)?)?;
            let [a, b, c] = three(one, x, "u32")?;
            return x.assign(x.at(one, 0)?, &format!("gw::logic3<{table}>({a}, {b}, {c})"));
        }
        "prmt" => {
            let [a, b, c] = three(one, x, "u32")?;
            return x.assign(x.at(one, 0)?, &format!("gw::permute_bytes({a}, {b}, {c})"));
        }
        "shf" => {
            let [a, b, c] = three(one, x, "u32")?;
            let function = match (one.has("wrap"), parts.get(1)) {
                (true, Some(&"l")) => "funnel_left",
                (true, Some(&"r")) => "funnel_right",
                _ => return None,
            };
            return x.assign(x.at(one, 0)?, &format!("gw::{function}({a}, {b}, {c})"));
        }
        _ => {}
    }
    let type_ = type_of(last)?;
    let is_float = last == "f32" || last == "f64";
    // Whatever wraps on the card does so here.
    let wide = if last.ends_with("64") { "u64" } else { "u32" };
    let binary = |form: &dyn Fn(&str, &str) -> String, of: &str| {
        let (a, b) = (x.value(x.at(one, 1)?, of)?, x.value(x.at(one, 2)?, of)?);
        x.assign(x.at(one, 0)?, &form(&a, &b))
    };
    let unary = |form: &dyn Fn(&str) -> String| {
        let a = x.value(x.at(one, 1)?, type_)?;
        x.assign(x.at(one, 0)?, &form(&a))
    };
    let is_word = matches!(last, "b32" | "u32" | "s32" | "b64" | "u64" | "s64");
    match name {
        _ if one.has("sat") || one.has("cc") => None,
        "add" | "sub" if is_float => binary(&|a, b| format!("({a} {} {b})", sign(name)), type_),
        "add" | "sub" if is_word => binary(&|a, b| format!("({a} {} {b})", sign(name)), wide),
        "mul" if is_float => binary(&|a, b| format!("({a} * {b})"), type_),
        "mul" if one.has("lo") && is_word => binary(&|a, b| format!("({a} * {b})"), wide),
        "mul" if one.has("hi") && last == "u32" => {
            binary(&|a, b| format!("gw::multiply_high({a}, {b})"), "u32")
        }
        "mul" if one.has("wide") && last == "u32" => binary(&|a, b| format!("((u64){a} * {b})"), "u32"),
        "mul" if one.has("wide") && last == "s32" => binary(&|a, b| format!("((i64){a} * {b})"), "i32"),
        "mad" if one.has("lo") && is_word => {
            let [a, b, c] = three(one, x, wide)?;
            x.assign(x.at(one, 0)?, &format!("({a} * {b} + {c})"))
        }
        "fma" if is_float => {
            let [a, b, c] = three(one, x, type_)?;
            x.assign(x.at(one, 0)?, &format!("gw::fma({a}, {b}, {c})"))
        }
        "div" if is_float => binary(&|a, b| format!("({a} / {b})"), type_),
        "div" if is_word => binary(&|a, b| format!("({a} / {b})"), type_),
        "rem" if is_word => binary(&|a, b| format!("({a} % {b})"), type_),
        "min" | "max" if last == "f32" && one.has("NaN") => {
            (name == "max").then(|| binary(&|a, b| format!("gw::maximum_or_nan({a}, {b})"), type_))?
        }
        "min" | "max" if is_float || is_word => binary(&|a, b| format!("{name}({a}, {b})"), type_),
        "and" | "or" | "xor" if last == "pred" => binary(&|a, b| format!("({a} {} {b})", sign(name)), "bool"),
        "and" | "or" | "xor" if is_word => binary(&|a, b| format!("({a} {} {b})", sign(name)), type_),
        "not" if last == "pred" => unary(&|a| format!("(!{a})")),
        "not" if is_word => unary(&|a| format!("(~{a})")),
        "neg" if is_float => unary(&|a| format!("(-{a})")),
        "neg" if is_word => {
            let a = x.value(x.at(one, 1)?, wide)?;
            x.assign(x.at(one, 0)?, &format!("(0 - {a})"))
        }
        "abs" if is_float => unary(&|a| format!("fabs({a})")),
        "shl" | "shr" if is_word => {
            let of = if name == "shl" { wide } else { type_ };
            let (a, b) = (x.value(x.at(one, 1)?, of)?, x.value(x.at(one, 2)?, "u32")?);
            let function = if name == "shl" { "shift_left" } else { "shift_right" };
            (of != "i64").then(|| x.assign(x.at(one, 0)?, &format!("gw::{function}({a}, {b})")))?
        }
        "popc" if last == "b32" => unary(&|a| format!("gw::count_ones({a})")),
        "clz" if last == "b32" => unary(&|a| format!("gw::leading_zeros({a})")),
        "brev" if last == "b32" => unary(&|a| format!("gw::reverse_bits({a})")),
        "bfe" if last == "u32" => {
            let [a, b, c] = three(one, x, "u32")?;
            x.assign(x.at(one, 0)?, &format!("gw::cuda::field({a}, {b}, {c})"))
        }
        "ex2" | "lg2" | "rcp" | "rsqrt" | "sin" | "cos" | "tanh" | "sqrt" if last == "f32" => {
            let function = match name {
                "ex2" => "exp2f",
                "lg2" => "log2f",
                "rcp" => "__frcp_rn",
                "rsqrt" => "rsqrtf",
                "sin" => "sinf",
                "cos" => "cosf",
                "tanh" => "tanhf",
                _ => "sqrtf",
            };
            unary(&|a| format!("{function}({a})"))
        }
        "dp4a" => {
            let type_ = if parts.get(1) == Some(&"s32") { "i32" } else { "u32" };
            let [a, b, c] = three(one, x, type_)?;
            (parts.get(1) == parts.get(2))
                .then(|| x.assign(x.at(one, 0)?, &format!("__dp4a({a}, {b}, {c})")))?
        }
        _ => None,
    }
}

fn sign(name: &str) -> char {
    match name {
        "add" => '+',
        "sub" => '-',
        "and" => '&',
        "or" => '|',
        _ => '^',
    }
}

fn three(one: &Instruction, x: &Operands, type_: &str) -> Option<[String; 3]> {
    Some([x.value(x.at(one, 1)?, type_)?, x.value(x.at(one, 2)?, type_)?, x.value(x.at(one, 3)?, type_)?])
}

/// `mov`, which also packs registers into a wider one and cuts one into narrower ones.
fn moved(one: &Instruction, x: &Operands, last: &str) -> Option<String> {
    let (to, from) = (x.at(one, 0)?, x.at(one, 1)?);
    let (narrow, shift) = match last {
        "b64" => ("u32", 32),
        _ => ("u16", 16),
    };
    if from.starts_with('{') {
        let [low, high] = members(from).try_into().ok()?;
        let (low, high) = (x.value(&low, narrow)?, x.value(&high, narrow)?);
        let type_ = type_of(last)?;
        return x.assign(to, &format!("(({type_}){low} | ({type_}){high} << {shift})"));
    }
    if to.starts_with('{') {
        let [low, high] = members(to).try_into().ok()?;
        let whole = x.value(from, type_of(last)?)?;
        let first = x.assign(&low, &format!("({narrow}){whole}"))?;
        return Some(format!("{first}; {}", x.assign(&high, &format!("({narrow})({whole} >> {shift})"))?));
    }
    x.assign(to, &x.value(from, type_of(last)?)?)
}

/// `cvta`: between generic addresses and those of shared memory.
fn address(one: &Instruction, x: &Operands) -> Option<String> {
    let (to, from) = (x.at(one, 0)?, x.at(one, 1)?);
    let whole = x.value(from, "u64")?;
    let is_shared = one.has("shared") || one.has("shared::cta");
    let found = if is_shared && one.has("to") {
        format!("(u64)gw::shared_address((const void*){whole})")
    } else if is_shared {
        format!("(u64)gw::cuda::at({whole})")
    } else if one.has("global") {
        whole
    } else {
        return None;
    };
    x.assign(to, &found)
}

fn converted(one: &Instruction, x: &Operands, parts: &[&str]) -> Option<String> {
    let [.., to, from] = parts else { return None };
    let (target, source) = (x.at(one, 0)?, x.at(one, 1)?);
    let second = x.at(one, 2);
    let float = |operand: &str| x.value(operand, "f32");
    let rounding = |mode: &str| match mode {
        _ if one.has("rni") => "rn",
        _ if one.has("rmi") => "rd",
        _ if one.has("rpi") => "ru",
        _ => "rz",
    };
    let found = match (*to, *from) {
        ("f16", "f32") => format!("gw::f32_to_f16({})", float(source)?),
        ("bf16", "f32") => format!("gw::f32_to_bf16({})", float(source)?),
        ("f32", "f16") => format!("gw::f16_to_f32({})", x.value(source, "u16")?),
        ("f32", "bf16") => format!("gw::bf16_to_f32({})", x.value(source, "u16")?),
        // The first of two is the upper half.
        ("f16x2", "f32") => format!("gw::f32_to_f16x2({}, {})", float(second?)?, float(source)?),
        ("bf16x2", "f32") => format!("gw::f32_to_bf16x2({}, {})", float(second?)?, float(source)?),
        ("e4m3x2", "f32") => format!("gw::f32_to_e4m3x2({}, {})", float(second?)?, float(source)?),
        ("e5m2x2", "f32") => format!("gw::f32_to_e5m2x2({}, {})", float(second?)?, float(source)?),
        ("f16x2", "e4m3x2") => format!("gw::e4m3x2_to_f16x2({})", x.value(source, "u16")?),
        ("f16x2", "e5m2x2") => format!("gw::e5m2x2_to_f16x2({})", x.value(source, "u16")?),
        ("s32", "f32") => format!("__float2int_{}({})", rounding(to), float(source)?),
        ("u32", "f32") => format!("__float2uint_{}({})", rounding(to), float(source)?),
        ("f32", "f64") if one.has("rn") => format!("(f32){}", x.value(source, "f64")?),
        ("f64", "f32") => format!("(f64){}", float(source)?),
        ("f32" | "f64", "s32" | "u32" | "s64" | "u64") if one.has("rn") => {
            format!("({}){}", type_of(to)?, x.value(source, type_of(from)?)?)
        }
        (to, from) if !to.contains('f') && !from.contains('f') && !one.has("sat") => {
            format!("({}){}", type_of(to)?, x.value(source, type_of(from)?)?)
        }
        _ => return None,
    };
    x.assign(target, &found)
}

/// `setp.lt.u32 p, a, b`.
fn compared(one: &Instruction, x: &Operands, parts: &[&str]) -> Option<String> {
    let [_, how, last] = parts else { return None };
    let sign = match *how {
        "eq" => "==",
        "ne" => "!=",
        "lt" | "lo" => "<",
        "le" | "ls" => "<=",
        "gt" | "hi" => ">",
        "ge" | "hs" => ">=",
        _ => return None,
    };
    let type_ = type_of(last)?;
    let (a, b) = (x.value(x.at(one, 1)?, type_)?, x.value(x.at(one, 2)?, type_)?);
    x.assign(x.at(one, 0)?, &format!("({a} {sign} {b})"))
}
