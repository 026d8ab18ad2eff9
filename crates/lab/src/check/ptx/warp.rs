//! Instructions by which lanes of a warp tell each other values.

use super::operands::Operands;
use super::text::Instruction;

/// The statement for a shuffle, a vote, a reduction or an election.
pub(super) fn call(one: &Instruction, x: &Operands) -> Option<String> {
    let parts = one.parts();
    let at = |number: usize| x.at(one, number);
    let word = |number: usize| x.value(at(number)?, "u32");
    // `d|p`: the value, and whether its lane is in range.
    let (to, also) =
        at(0)?.split_once('|').map_or((at(0)?, None), |(to, also)| (to.trim(), Some(also.trim())));
    match *parts.first()? {
        "shfl" if one.has("sync") && one.has("b32") => {
            let mode = ["idx", "up", "down", "bfly"].into_iter().position(|mode| one.has(mode))?;
            let call = format!(
                "const auto gw_moved = gw::cuda::shuffled<{mode}>({}, {}, {}, {}); ",
                word(1)?,
                word(2)?,
                word(3)?,
                word(4)?
            );
            let mut text = format!("{call}{}; ", x.assign(to, "gw_moved.value")?);
            if let Some(also) = also {
                text.push_str(&x.assign(also, "gw_moved.in_range")?);
                text.push_str("; ");
            }
            Some(format!("{{ {text}}}"))
        }
        "vote" if one.has("sync") => {
            let predicate = x.value(at(1)?, "bool")?;
            let mask = word(2)?;
            let function = ["ballot", "any", "all"].into_iter().find(|function| one.has(function))?;
            x.assign(to, &format!("gw::{function}({predicate}, {mask})"))
        }
        "match" if one.has("any") && one.has("sync") && one.has("b32") => {
            x.assign(to, &format!("gw::match_any({}, {})", word(1)?, word(2)?))
        }
        "redux" if one.has("sync") => {
            let operation =
                ["add", "min", "max", "and", "or", "xor"].into_iter().find(|name| one.has(name))?;
            let signed = one.has("s32") && (operation == "min" || operation == "max");
            let value = x.value(at(1)?, if signed { "i32" } else { "u32" })?;
            x.assign(to, &format!("gw::reduce_{operation}({value}, {})", word(2)?))
        }
        "activemask" => x.assign(to, "__activemask()"),
        "elect" => {
            let mut text = format!("const u32 gw_together = gw::ballot(true, {}); ", word(1)?);
            text.push_str(&format!("{}; ", x.assign(to, "(u32)__builtin_ctz(gw_together)")?));
            if let Some(also) = also {
                let elected = "((u32)__builtin_ctz(gw_together) == gw::lane())";
                text.push_str(&format!("{}; ", x.assign(also, elected)?));
            }
            Some(format!("{{ {text}}}"))
        }
        _ => None,
    }
}
