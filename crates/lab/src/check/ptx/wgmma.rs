//! Products of a warpgroup.

use super::operands::{Operands, members};
use super::text::Instruction;

/// `wgmma.mma_async.sync.aligned.m64nNkK.d.a.b {d…}, a, b, p, 1, 1, …;`
pub(super) fn call(product: &Instruction, x: &Operands) -> Result<String, String> {
    let unknown = |operand: &str| format!("the operand '{operand}' of {}", product.opcode);
    let value = |operand: &str, type_: &str| x.value(operand, type_).ok_or_else(|| unknown(operand));
    let place = |operand: &str| x.place(operand).ok_or_else(|| unknown(operand));
    let parts: Vec<&str> = product.opcode.split('.').collect();
    let shape = parts.iter().position(|part| part.starts_with("m64n")).ok_or("a wgmma without its shape")?;
    let width = parts[shape].trim_start_matches("m64n").split('k').next().and_then(|n| n.parse::<u32>().ok());
    let width = width.ok_or_else(|| format!("the shape {} of wgmma", parts[shape]))?;
    let [result, format, ..] = parts[shape + 1..] else { return Err("a wgmma without its formats".into()) };
    let format = match format {
        "f16" => "F16",
        "bf16" => "BF16",
        "e4m3" => "E4M3",
        "e5m2" => "E5M2",
        "s8" => "S8",
        other => return Err(format!("wgmma of {other}: f16, bf16, e4m3, e5m2 and s8 are known")),
    };
    let half = u32::from(result == "f16");
    let [accumulators, a, b, scale, rest @ ..] = product.operands.as_slice() else {
        return Err(format!("wgmma with {} operands", product.operands.len()));
    };
    let registers = members(accumulators);
    let wanted = if half == 1 { width / 4 } else { width / 2 };
    if registers.len() != wanted as usize {
        return Err(format!("wgmma of width {width} with {} accumulators: it has {wanted}", registers.len()));
    }
    let (Some(first), Some(last)) = (registers.first(), registers.last()) else {
        return Err("a wgmma without accumulators".into());
    };
    let (first, last) = (place(first)?, place(last)?);
    let accumulate = value(scale, "bool")?;
    let (descriptor, fragment) = if a.starts_with('{') {
        ("0".to_owned(), format!("(const u32*)&{}", place(members(a).first().map_or("", String::as_str))?))
    } else {
        (value(a, "u64")?, "nullptr".into())
    };
    let b = value(b, "u64")?;
    // Behind the two signs stand the directions of A and B, for 16-bit formats; A in registers has none.
    let directions: Vec<String> =
        rest.iter().skip(2).map(|one| value(one, "u32")).collect::<Result<_, _>>()?;
    let (ta, tb) = match directions.as_slice() {
        [ta, tb] => (ta.clone(), tb.clone()),
        [tb] => ("0".into(), tb.clone()),
        _ => ("0".into(), "0".into()),
    };
    Ok(format!(
        "gw::cuda::wgmma<gw::{format}, {width}, {wanted}>(&{first}, &{last}, {descriptor}, {fragment}, {b}, {accumulate}, \
         {ta}, {tb}, {half})"
    ))
}
