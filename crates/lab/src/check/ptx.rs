//! Inline PTX as calls of the portable header.

use super::lines::{Kind, Token, closing, joined, split};
use super::refusal::Refusal;

/// The instructions that are known, by how they begin.
pub const KNOWN: &[&str] = &[
    "bar.sync",
    "barrier.sync",
    "bar.arrive",
    "barrier.arrive",
    "bar.warp.sync",
    "barrier.cluster.arrive",
    "barrier.cluster.wait",
    "fence.proxy.async",
    "fence.mbarrier_init",
    "fence.acq_rel",
    "fence.sc",
    "membar",
    "mbarrier.init",
    "mbarrier.inval",
    "mbarrier.arrive",
    "mbarrier.arrive.expect_tx",
    "mbarrier.expect_tx",
    "mbarrier.try_wait.parity",
    "mbarrier.test_wait.parity",
    "cp.async.ca.shared.global",
    "cp.async.cg.shared.global",
    "cp.async.commit_group",
    "cp.async.wait_group",
    "cp.async.wait_all",
    "cp.async.mbarrier.arrive",
    "cp.async.bulk.shared::cluster.global.mbarrier",
    "cp.async.bulk.shared::cta.global.mbarrier",
    "cp.async.bulk.global.shared::cta.bulk_group",
    "cp.async.bulk.commit_group",
    "cp.async.bulk.wait_group",
    "wgmma.fence",
    "wgmma.mma_async",
    "wgmma.commit_group",
    "wgmma.wait_group",
    "ld.acquire",
    "ld.relaxed",
    "st.release",
    "st.relaxed",
    "setmaxnreg",
    "griddepcontrol.wait",
    "griddepcontrol.launch_dependents",
    "nanosleep",
    "trap",
    "mov",
];

/// One instruction of a text of PTX.
struct Instruction {
    opcode: String,
    operands: Vec<String>,
}

/// The calls that the inside of an `asm(…)` stands for.
pub(super) fn translate(inside: &[Token<'_>], line: u32) -> Result<String, Refusal> {
    let refuse = |message: String| Refusal { line, message };
    let sections = sections(inside);
    let text: String = sections[0]
        .iter()
        .filter(|token| token.kind == Kind::Text)
        .map(|token| literal(token.text))
        .collect();
    let mut operands = Vec::new();
    for section in sections.iter().skip(1).take(2) {
        for operand in split(section, ",") {
            operands.extend(expression(operand));
        }
    }
    let instructions = instructions(&text);
    let find = |prefix: &str| instructions.iter().find(|one| one.opcode.starts_with(prefix));
    let place = |operand: &str| {
        place(operand, &operands).ok_or_else(|| refuse(format!("the operand '{operand}' of inline PTX")))
    };
    if let Some(wait) = find("mbarrier.try_wait.parity").or_else(|| find("mbarrier.test_wait.parity")) {
        let [_, barrier, parity, ..] = wait.operands.as_slice() else {
            return Err(refuse(format!("{} with {} operands", wait.opcode, wait.operands.len())));
        };
        let scope = if wait.opcode.contains(".cluster.") { "Cluster" } else { "Block" };
        let (barrier, parity) = (place(barrier)?, place(parity)?);
        let call =
            |name: &str| format!("gw::{name}<gw::Scope::{scope}>(gw::cuda::barrier({barrier}), {parity})");
        if find("bra").is_some() {
            return Ok(format!("{};", call("mbarrier_wait")));
        }
        return Ok(format!("{} = {};", place("%0")?, call("mbarrier_try_wait")));
    }
    if let Some(product) = find("wgmma.mma_async") {
        return wgmma(product, &instructions, &place).map_err(refuse);
    }
    let mut calls = String::new();
    for one in &instructions {
        let operands: Vec<String> =
            one.operands.iter().map(|operand| place(operand)).collect::<Result<_, _>>()?;
        let call = call(&one.opcode, &operands).ok_or_else(|| {
            refuse(format!("inline PTX '{}', of which these are known: {}", one.opcode, KNOWN.join(", ")))
        })?;
        calls.push_str(&call);
        calls.push_str("; ");
    }
    Ok(calls)
}

/// Cuts at colons; two that touch are two.
fn sections<'a, 'b>(inside: &'b [Token<'a>]) -> Vec<&'b [Token<'a>]> {
    split(inside, ":")
}

/// A string without its quotes and escapes.
fn literal(text: &str) -> String {
    text.trim_matches('"').replace("\\n", "\n").replace("\\t", " ").replace("%%", "%").replace("\\\"", "\"")
}

/// The expression of `"r"(expression)`.
fn expression(operand: &[Token<'_>]) -> Option<String> {
    let open = operand.iter().position(|token| token.is("("))?;
    let close = closing(operand, open)?;
    Some(format!("({})", joined(&operand[open + 1..close])))
}

/// Instructions of a text, without declarations, labels and predicates.
fn instructions(text: &str) -> Vec<Instruction> {
    let mut found = Vec::new();
    for statement in text.split(';') {
        let mut rest =
            statement.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join(" ");
        rest = rest.trim().trim_start_matches('{').trim().trim_end_matches('}').trim().to_owned();
        // A brace that was taken off the end belongs to a list of registers.
        if rest.matches('{').count() > rest.matches('}').count() {
            rest.push('}');
        }
        if let Some((label, after)) = rest.split_once(": ").or_else(|| rest.split_once(":\n"))
            && label.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '$' || c == '%' || c == '=')
        {
            rest = after.trim().to_owned();
        }
        if rest.ends_with(':') {
            continue;
        }
        if rest.starts_with('@') {
            rest = rest.split_once(' ').map_or(String::new(), |(_, after)| after.trim().to_owned());
        }
        if rest.is_empty() || rest.starts_with(".reg") || rest.ends_with(':') {
            continue;
        }
        let (opcode, operands) = rest.split_once(char::is_whitespace).unwrap_or((rest.as_str(), ""));
        found.push(Instruction { opcode: opcode.to_owned(), operands: operands_of(operands) });
    }
    found
}

/// Operands, lists in braces and addresses in brackets each as one.
fn operands_of(text: &str) -> Vec<String> {
    let (mut found, mut depth, mut current) = (Vec::new(), 0, String::new());
    for c in text.chars() {
        match c {
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' => depth -= 1,
            _ => {}
        }
        if c == ',' && depth == 0 {
            found.push(std::mem::take(&mut current).trim().to_owned());
        } else {
            current.push(c);
        }
    }
    found.push(current.trim().to_owned());
    found.retain(|operand| !operand.is_empty());
    found
}

/// What an operand is in C++: `%3`, `[%1]`, `[%1 + 16]`, a number, `_`.
fn place(operand: &str, operands: &[String]) -> Option<String> {
    let bare = operand.trim().trim_start_matches('[').trim_end_matches(']').trim();
    if let Some((base, offset)) = bare.split_once('+') {
        return Some(format!("({} + {})", place(base, operands)?, offset.trim()));
    }
    if let Some(number) = bare.strip_prefix('%') {
        return match number.parse::<usize>() {
            Ok(number) => operands.get(number).cloned(),
            Err(_) => special(number),
        };
    }
    let is_number = bare.starts_with(|c: char| c.is_ascii_digit()) || bare == "_";
    is_number.then(|| bare.to_owned())
}

/// A special register.
fn special(name: &str) -> Option<String> {
    let found = match name {
        "laneid" => "gw::lane()",
        "warpid" => "gw::warp()",
        "tid.x" => "gw::thread_x()",
        "tid.y" => "gw::thread_y()",
        "ctaid.x" => "gw::block_x()",
        "ctaid.y" => "gw::block_y()",
        "ntid.x" => "gw::threads_x()",
        "nctaid.x" => "gw::blocks_x()",
        "cluster_ctarank" => "gw::cluster_rank()",
        _ => return None,
    };
    Some(found.to_owned())
}

fn call(opcode: &str, operands: &[String]) -> Option<String> {
    let is = |prefix: &str| opcode == prefix || opcode.starts_with(&format!("{prefix}."));
    let at = |number: usize| operands.get(number).map(String::as_str);
    let barrier = |number: usize| at(number).map(|address| format!("gw::cuda::barrier({address})"));
    let shared = |number: usize| at(number).map(|address| format!("gw::cuda::at({address})"));
    let global = |number: usize| at(number).map(|address| format!("(void*){address}"));
    let found = if is("bar.warp.sync") {
        format!("gw::sync_warp({})", at(0)?)
    } else if is("barrier.cluster.arrive") {
        if opcode.contains("relaxed") {
            "gw::cluster_arrive_relaxed()".into()
        } else {
            "gw::cluster_arrive()".into()
        }
    } else if is("barrier.cluster.wait") {
        "gw::cluster_wait()".into()
    } else if is("bar.sync") || is("barrier.sync") {
        match operands {
            [id] if id == "0" => "gw::sync_threads()".into(),
            [id] => format!("gw::barrier_sync({id}, gw::threads())"),
            _ => format!("gw::barrier_sync({}, {})", at(0)?, at(1)?),
        }
    } else if is("bar.arrive") || is("barrier.arrive") {
        format!("gw::barrier_arrive({}, {})", at(0)?, at(1)?)
    } else if is("fence.proxy.async") {
        match opcode.strip_prefix("fence.proxy.async")? {
            "" => "gw::fence_async_proxy()".into(),
            ".global" => "gw::fence_async_proxy_global()".into(),
            ".shared::cta" => "gw::fence_async_proxy_shared()".into(),
            ".shared::cluster" => "gw::fence_async_proxy_cluster()".into(),
            _ => return None,
        }
    } else if is("fence.mbarrier_init") {
        "gw::fence_mbarrier_init()".into()
    } else if is("fence.acq_rel") || is("fence.sc") || is("membar") {
        let scope = opcode.rsplit('.').next()?;
        format!(
            "gw::fence_{}()",
            match scope {
                "cta" => "block",
                "cluster" => "cluster",
                "gpu" | "gl" => "device",
                "sys" => "system",
                _ => return None,
            }
        )
    } else if is("mbarrier.init") {
        format!("gw::mbarrier_init({}, {})", barrier(0)?, at(1)?)
    } else if is("mbarrier.inval") {
        format!("gw::mbarrier_invalidate({})", barrier(0)?)
    } else if is("mbarrier.arrive.expect_tx") && at(0)? == "_" && !opcode.contains("shared::cluster") {
        format!("gw::mbarrier_arrive_expect({}, {})", barrier(1)?, at(2)?)
    } else if is("mbarrier.expect_tx") && !opcode.contains("shared::cluster") {
        format!("gw::mbarrier_expect({}, {})", barrier(0)?, at(1)?)
    } else if is("mbarrier.arrive")
        && at(0)? == "_"
        && !opcode.contains("expect_tx")
        && !opcode.contains("shared::cluster")
    {
        format!("gw::mbarrier_arrive_many({}, {})", barrier(1)?, at(2).unwrap_or("1"))
    } else if is("cp.async.bulk.commit_group") {
        "gw::bulk_commit()".into()
    } else if is("cp.async.bulk.wait_group") {
        let name = if opcode.ends_with(".read") { "bulk_wait_read" } else { "bulk_wait" };
        format!("gw::{name}<{}>()", at(0)?)
    } else if is("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes")
        || is("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes")
    {
        if opcode.contains("multicast") {
            return None;
        }
        format!("gw::bulk_load({}, {}, {}, {})", shared(0)?, global(1)?, at(2)?, barrier(3)?)
    } else if is("cp.async.bulk.global.shared::cta.bulk_group") {
        format!("gw::bulk_store({}, {}, {})", global(0)?, shared(1)?, at(2)?)
    } else if is("cp.async.ca.shared.global")
        || is("cp.async.cg.shared.global")
        || is("cp.async.ca.shared::cta.global")
        || is("cp.async.cg.shared::cta.global")
    {
        let source = at(3).unwrap_or(at(2)?);
        format!("gw::copy_async<{}>({}, {}, {source})", at(2)?, shared(0)?, global(1)?)
    } else if is("cp.async.commit_group") {
        "gw::copy_async_commit()".into()
    } else if is("cp.async.wait_group") {
        format!("gw::copy_async_wait<{}>()", at(0)?)
    } else if is("cp.async.wait_all") {
        "gw::copy_async_commit(); gw::copy_async_wait<0>()".into()
    } else if is("cp.async.mbarrier.arrive.noinc") {
        format!("gw::copy_async_arrive({})", barrier(0)?)
    } else if is("cp.async.mbarrier.arrive") {
        format!("gw::copy_async_arrive_besides({})", barrier(0)?)
    } else if is("wgmma.fence") {
        "gw::wgmma_fence()".into()
    } else if is("wgmma.commit_group") {
        "gw::wgmma_commit()".into()
    } else if is("wgmma.wait_group") {
        format!("gw::wgmma_wait<{}>()", at(0)?)
    } else if is("ld.acquire") || is("ld.relaxed") || is("st.release") || is("st.relaxed") {
        return access(opcode, operands);
    } else if is("setmaxnreg.inc") {
        format!("gw::registers_acquire<{}>()", at(0)?)
    } else if is("setmaxnreg.dec") {
        format!("gw::registers_release<{}>()", at(0)?)
    } else if is("griddepcontrol.wait") {
        "gw::await_stream()".into()
    } else if is("griddepcontrol.launch_dependents") {
        "gw::admit_next()".into()
    } else if is("nanosleep") {
        "gw::pause()".into()
    } else if opcode == "trap" {
        "gw::trap()".into()
    } else if is("mov") {
        format!("{} = {}", at(0)?, at(1)?)
    } else {
        return None;
    };
    Some(found)
}

/// Loads and stores with an order and a scope, of words of 4 or 8 bytes.
fn access(opcode: &str, operands: &[String]) -> Option<String> {
    let mut parts = opcode.split('.');
    let (kind, order, scope) = (parts.next()?, parts.next()?, parts.next()?);
    let scope = match scope {
        "cta" => "Block",
        "cluster" => "Cluster",
        "gpu" => "Device",
        "sys" => "System",
        _ => return None,
    };
    let word = match opcode.rsplit('.').next()? {
        "u32" | "b32" | "s32" => "u32",
        "u64" | "b64" | "s64" => "u64",
        _ => return None,
    };
    let [first, second] = operands else { return None };
    Some(match kind {
        "ld" => format!("{first} = gw::load_{order}<gw::Scope::{scope}>((const {word}*){second})"),
        _ => format!("gw::store_{order}<gw::Scope::{scope}>(({word}*){first}, ({word}){second})"),
    })
}

/// `wgmma.mma_async.sync.aligned.m64nNkK.d.a.b {d…}, a, b, p, 1, 1, …;`
fn wgmma(
    product: &Instruction,
    all: &[Instruction],
    place: &impl Fn(&str) -> Result<String, Refusal>,
) -> Result<String, String> {
    let text = |refusal: Refusal| refusal.message;
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
    let list = |operand: &str| -> Vec<String> {
        operand.trim_matches(['{', '}', ' ']).split(',').map(|one| one.trim().to_owned()).collect()
    };
    let registers = list(accumulators);
    let wanted = if half == 1 { width / 4 } else { width / 2 };
    if registers.len() != wanted as usize {
        return Err(format!("wgmma of width {width} with {} accumulators: it has {wanted}", registers.len()));
    }
    let first = place(&registers[0]).map_err(text)?;
    let last = place(&registers[registers.len() - 1]).map_err(text)?;
    let accumulate = match all
        .iter()
        .find(|one| one.opcode.starts_with("setp.ne") && one.operands.first() == Some(scale))
    {
        Some(set) => format!("{} != 0", place(set.operands.get(1).map_or("", String::as_str)).map_err(text)?),
        None => format!("{} != 0", place(scale).map_err(text)?),
    };
    let (descriptor, fragment) = if a.starts_with('{') {
        let parts = list(a);
        ("0".to_owned(), format!("(const u32*)&{}", place(&parts[0]).map_err(text)?))
    } else {
        (place(a).map_err(text)?, "nullptr".into())
    };
    let b = place(b).map_err(text)?;
    // Behind the two signs stand the directions of A and B, for 16-bit formats; A in registers has none.
    let directions: Vec<String> =
        rest.iter().skip(2).map(|one| place(one)).collect::<Result<_, _>>().map_err(text)?;
    let (ta, tb) = match directions.as_slice() {
        [ta, tb] => (ta.clone(), tb.clone()),
        [tb] => ("0".into(), tb.clone()),
        _ => ("0".into(), "0".into()),
    };
    Ok(format!(
        "gw::cuda::wgmma<gw::{format}, {width}, {wanted}>(&{first}, &{last}, {descriptor}, {fragment}, {b}, {accumulate}, \
         {ta}, {tb}, {half});"
    ))
}

#[cfg(test)]
mod tests {
    use super::super::lines::tokens;
    use super::*;

    fn of(inside: &str) -> String {
        translate(&tokens(inside), 7).unwrap()
    }

    #[test]
    fn instructions_become_calls() {
        assert_eq!(
            of(r#""mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(b), "r"(4)"#),
            "gw::mbarrier_init(gw::cuda::barrier((b)), (4)); "
        );
        let wait = r#""{\n.reg .pred P1;\nLAB_WAIT:\nmbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n@P1 bra DONE;\nbra LAB_WAIT;\nDONE:\n}" :: "r"(b), "r"(phase)"#;
        assert_eq!(of(wait), "gw::mbarrier_wait<gw::Scope::Block>(gw::cuda::barrier((b)), (phase));");
        let try_ = r#""{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(b), "r"(p)"#;
        assert_eq!(
            of(try_),
            "(done) = gw::mbarrier_try_wait<gw::Scope::Block>(gw::cuda::barrier((b)), (p));"
        );
        assert_eq!(
            of(r#""fence.proxy.async.shared::cta;" ::: "memory""#),
            "gw::fence_async_proxy_shared(); "
        );
        assert_eq!(
            of(r#""ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p)"#),
            "(v) = gw::load_acquire<gw::Scope::Device>((const u32*)(p)); "
        );
        let wgmma = r#""{.reg .pred p; setp.ne.b32 p, %6, 0; wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%0, %1, %2, %3}, %4, %5, p, 1, 1;}"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b), "r"(s)"#;
        assert_eq!(
            of(wgmma),
            "gw::cuda::wgmma<gw::E4M3, 8, 4>(&(d[0]), &(d[3]), (a), nullptr, (b), (s) != 0, 0, 0, 0);"
        );
    }

    #[test]
    fn an_unknown_instruction_is_named() {
        let refused = translate(
            &tokens(r#""tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;" :: "r"(a)"#),
            3,
        );
        let refused = refused.unwrap_err();
        assert_eq!(refused.line, 3);
        assert!(refused.message.contains("tcgen05.alloc"), "{refused}");
    }
}
