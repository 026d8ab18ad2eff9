//! Inline PTX as calls of the portable header.

mod arithmetic;
mod barriers;
mod memory;
mod operands;
mod text;
mod warp;
mod wgmma;

use std::fmt::Write as _;

use self::operands::Operands;
use self::text::{Instruction, Statement, statements};
use super::lines::{Kind, Token, split};
use super::refusal::Refusal;

/// The instructions that are known, by how they begin.
pub const KNOWN: &[&str] = &[
    "abs",
    "activemask",
    "add",
    "and",
    "atom",
    "bar.arrive",
    "bar.sync",
    "bar.warp.sync",
    "barrier.arrive",
    "barrier.cluster.arrive",
    "barrier.cluster.wait",
    "barrier.sync",
    "bfe",
    "bra",
    "brev",
    "clz",
    "cos.approx",
    "cp.async.bulk.commit_group",
    "cp.async.bulk.global.shared::cta.bulk_group",
    "cp.async.bulk.prefetch",
    "cp.async.bulk.shared::cluster.global.mbarrier",
    "cp.async.bulk.shared::cta.global.mbarrier",
    "cp.async.bulk.wait_group",
    "cp.async.ca.shared.global",
    "cp.async.cg.shared.global",
    "cp.async.commit_group",
    "cp.async.mbarrier.arrive",
    "cp.async.wait_all",
    "cp.async.wait_group",
    "createpolicy",
    "cvt",
    "cvta",
    "discard",
    "div",
    "dp4a",
    "elect.sync",
    "ex2.approx",
    "fence.acq_rel",
    "fence.mbarrier_init",
    "fence.proxy.async",
    "fence.sc",
    "fma",
    "griddepcontrol.launch_dependents",
    "griddepcontrol.wait",
    "ld",
    "ldmatrix",
    "lg2.approx",
    "lop3",
    "mad.lo",
    "match.any.sync",
    "max",
    "mbarrier.arrive",
    "mbarrier.arrive.expect_tx",
    "mbarrier.expect_tx",
    "mbarrier.init",
    "mbarrier.inval",
    "mbarrier.test_wait.parity",
    "mbarrier.try_wait.parity",
    "membar",
    "min",
    "mma.sync",
    "mov",
    "mul",
    "nanosleep",
    "neg",
    "not",
    "or",
    "popc",
    "prefetch",
    "prmt",
    "rcp.approx",
    "red",
    "redux.sync",
    "rem",
    "rsqrt.approx",
    "selp",
    "setmaxnreg",
    "setp",
    "shf",
    "shfl.sync",
    "shl",
    "shr",
    "sin.approx",
    "sqrt",
    "st",
    "stmatrix",
    "sub",
    "tanh.approx",
    "trap",
    "vote.sync",
    "wgmma.commit_group",
    "wgmma.fence",
    "wgmma.mma_async",
    "wgmma.wait_group",
    "xor",
];

/// The statements that the inside of an `asm(…)` stands for.
pub(super) fn translate(inside: &[Token<'_>], line: u32) -> Result<String, Refusal> {
    let refuse = |message: String| Refusal { file: None, line, message };
    let sections = split(inside, ":");
    let text: String = sections[0]
        .iter()
        .filter(|token| token.kind == Kind::Text)
        .map(|token| literal(token.text))
        .collect();
    let statements = statements(&text);
    let mut operands = Operands::of(sections.get(1..sections.len().min(3)).unwrap_or(&[]));
    for statement in &statements {
        if let Statement::Register { kind, name } = statement {
            operands.declare(kind, name);
        }
    }
    // A loop around a wait becomes one that the emulated device knows to wait: then it can tell who waits for whom.
    if let Some(wait) = waited_for(&statements) {
        let call = barriers::wait(wait, &operands, "mbarrier_wait");
        return call.map(|call| format!("{call}; ")).ok_or_else(|| refuse(unknown(wait)));
    }
    let mut out = operands
        .declarations()
        .ok_or_else(|| refuse("inline PTX with registers of a type that check does not know".into()))?;
    let labels: String = statements
        .iter()
        .filter_map(|statement| match statement {
            Statement::Label(label) => Some(format!("__label__ {label}; ")),
            _ => None,
        })
        .collect();
    out.insert_str(0, &labels);
    for statement in &statements {
        match statement {
            Statement::Register { .. } => {}
            Statement::Label(label) => {
                let _ = write!(out, "{label}: ; ");
            }
            Statement::Instruction(one) => {
                let call = instruction(one, &operands)
                    .map_err(|what| refuse(what.unwrap_or_else(|| unknown(one))))?;
                match &one.predicate {
                    None => {
                        let _ = write!(out, "{call}; ");
                    }
                    Some(predicate) => {
                        let condition = operands.value(predicate, "bool");
                        let condition = condition
                            .ok_or_else(|| refuse(format!("the predicate '{predicate}' of inline PTX")))?;
                        let _ = write!(out, "if ({condition}) {{ {call}; }} ");
                    }
                }
            }
        }
    }
    Ok(out)
}

fn unknown(one: &Instruction) -> String {
    let Instruction { opcode, operands, .. } = one;
    format!(
        "inline PTX '{opcode} {}' is not known: gatework check --known lists what is",
        operands.join(", ")
    )
}

/// One instruction as a statement, or what is wrong if that is known.
fn instruction(one: &Instruction, x: &Operands) -> Result<String, Option<String>> {
    if one.is("wgmma.mma_async") {
        return wgmma::call(one, x).map_err(Some);
    }
    if one.is("bra") {
        let label = one.operands.first().ok_or(None)?;
        return Ok(format!("goto {}", label.replace(['$', '%', '='], "_")));
    }
    let found = barriers::call(one, x).or_else(|| memory::call(one, x));
    found.or_else(|| warp::call(one, x)).or_else(|| arithmetic::call(one, x)).ok_or(None)
}

/// The wait of a text that repeats it until it is over.
fn waited_for(statements: &[Statement]) -> Option<&Instruction> {
    let mut instructions = statements.iter().filter_map(|statement| match statement {
        Statement::Instruction(one) => Some(one),
        _ => None,
    });
    let repeats = instructions.clone().any(|one| one.is("bra"));
    instructions.find(|one| repeats && barriers::is_wait(one))
}

/// A string without its quotes and escapes.
fn literal(text: &str) -> String {
    text.trim_matches('"').replace("\\n", "\n").replace("\\t", " ").replace("%%", "%").replace("\\\"", "\"")
}

#[cfg(test)]
mod tests {
    use super::super::lines::tokens;
    use super::*;

    fn of(inside: &str) -> String {
        translate(&tokens(inside), 7).unwrap_or_else(|refusal| panic!("{refusal}"))
    }

    #[test]
    fn instructions_become_calls() {
        let (b, four) = ("gw::cuda::held<u32>((b))", "gw::cuda::as<u32>(gw::cuda::held<u32>((4)))");
        assert_eq!(
            of(r#""mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(b), "r"(4)"#),
            format!("gw::mbarrier_init(gw::cuda::barrier((u64)(gw::cuda::as<u32>({b}))), {four}); ")
        );
        assert_eq!(
            of(r#""fence.proxy.async.shared::cta;" ::: "memory""#),
            "gw::fence_async_proxy_shared(); "
        );
        assert_eq!(
            of(r#""ld.acquire.gpu.global.u32 %0, [%[p]];" : "=r"(v) : [p] "l"(p)"#),
            "gw::cuda::give((v), gw::cuda::as<u32>(gw::load_acquire<gw::Scope::Device>((const u32*)(void*)((u64)\
             (gw::cuda::as<u64>(gw::cuda::held<u64>((p)))))))); "
        );
        assert_eq!(of(r#""cp.async.wait_group %0;" :: "n"(N - 1)"#), "gw::copy_async_wait<(N - 1)>(); ");
        let wgmma = r#""{.reg .pred p; setp.ne.b32 p, %6, 0; wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%0, %1, %2, %3}, %4, %5, p, 1, 1;}"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b), "r"(s)"#;
        let wgmma = of(wgmma);
        assert!(wgmma.contains("gw::cuda::wgmma<gw::E4M3, 8, 4>(&(d[0]), &(d[3]), "), "{wgmma}");
        assert!(wgmma.contains("gw_reg_p = (") && wgmma.contains(", gw_reg_p, 0, 0, 0)"), "{wgmma}");
    }

    #[test]
    fn a_loop_around_a_wait_is_one_wait() {
        let wait = r#""{\n.reg .pred P1;\nLAB_WAIT:\nmbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n@P1 bra DONE;\nbra LAB_WAIT;\nDONE:\n}" :: "r"(b), "r"(phase)"#;
        let text = of(wait);
        assert!(text.starts_with("gw::mbarrier_wait<gw::Scope::Block>(") && !text.contains("goto"), "{text}");
        let once = r#""{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(b), "r"(p)"#;
        let text = of(once);
        assert!(text.contains("gw_reg_p = gw::mbarrier_try_wait<gw::Scope::Block>("), "{text}");
        assert!(
            text.contains("gw::cuda::give((done), gw::cuda::as<u32>((gw_reg_p ? (u32)(1) : (u32)(0))))"),
            "{text}"
        );
    }

    #[test]
    fn predicates_and_labels_become_ifs_and_gotos() {
        let text = of(
            r#""{ .reg .pred p; L: setp.lt.u32 p, %0, 3; @p bra L; @!p st.shared.v2.u32 [%1+8], {%0, 7}; }" : "+r"(x) : "r"(a)"#,
        );
        assert!(text.starts_with("__label__ L; bool gw_reg_p; L: ; gw_reg_p = ("), "{text}");
        assert!(
            text.contains("if (gw_reg_p) { goto L; } if ((!gw_reg_p)) { gw::cuda::store<u32, 2>("),
            "{text}"
        );
    }

    #[test]
    fn the_state_of_a_barrier_is_dropped_only_where_nothing_can_use_it() {
        let local = r#""{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }" :: "r"(b)"#;
        assert!(of(local).contains("gw::mbarrier_arrive_many("));
        let kept = r#""mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(state) : "r"(b)"#;
        assert!(translate(&tokens(kept), 1).is_err());
    }

    #[test]
    fn what_is_cut_short_is_refused() {
        let cut = [
            r#""dp4a.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c)"#,
            r#""wgmma.mma_async.sync.aligned.m64n0k32.f32.e4m3.e4m3 {}, %0, %1, 1, 1, 1;" :: "l"(a), "l"(b)"#,
            r#""wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%0, %1, %2, %3}, {}, %4, 1, 1, 1;" :: "r"(a), "r"(b), "r"(c), "r"(d), "l"(e)"#,
            r#""wgmma.mma_async.m64n8k32;" ::"#,
            r#""shfl.sync.idx.b32 ;" ::"#,
            r#""mma.sync;" ::"#,
            r#""mov.b64 {}, %0;" :: "l"(a)"#,
            r#""cvt;" ::"#,
            r#""bra;" ::"#,
        ];
        for text in cut {
            assert!(translate(&tokens(text), 1).is_err(), "{text}");
        }
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
