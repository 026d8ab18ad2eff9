//! Programs as CUDA C++.

use std::fmt::Write as _;

use gatework_gpu::{Kernel, Source};

use super::graph::{Graph, Id, Node};
use super::program::{Program, Root, Step};
use crate::Result;
use crate::kernels::with_headers;
use crate::queue::Queue;

/// Steps of one kernel: more compile slowly and spill.
const STEPS_PER_KERNEL: usize = 2000;

/// Threads of a block of generated kernels.
pub(crate) const THREADS: u32 = 128;

/// The sources for all constraints of `graph`, whose columns are numbered by `column`. They depend on the AIR alone, not on
/// the challenges of a proof.
pub(crate) fn sources(graph: &Graph, column: impl Fn(u32, u32) -> u32) -> Vec<Source> {
    Program::partitions(graph, STEPS_PER_KERNEL)
        .iter()
        .map(|program| with_headers(Source::new("constraints", text(graph, program, &column))))
        .collect()
}

/// The kernels of wide Fibonacci, for the gates.
#[cfg(feature = "lab")]
pub(crate) fn wide_fibonacci_source(columns: usize) -> Vec<Source> {
    let air = crate::airs::WideFibonacci { log_rows: 4, columns };
    sources(&super::record::record(&air, Default::default()), |_, column| column)
}

/// Compiles `sources`, or finds them in the cache, on all cores.
pub(crate) fn compile(queue: &Queue, sources: &[Source]) -> Result<Vec<Kernel>> {
    use rayon::iter::{IntoParallelRefIterator as _, ParallelIterator as _};
    sources.par_iter().map(|source| Ok(queue.stream().device().kernel(source)?)).collect()
}

fn text(graph: &Graph, program: &Program, column: &impl Fn(u32, u32) -> u32) -> String {
    let mut text = format!(
        "#include \"rows.cuh\"\n\n\
         // Some of the constraints of a component, on every row. One thread a row.\n\
         GW_KERNEL_BOUNDED(constraints, {THREADS}, 1)(Component component) {{\n    \
         const u32 row = (u32)gw::global_thread();\n    \
         if (row >> component.log_rows) return;\n    \
         QM31 sum = qm31::zero();\n    \
         qm31::Sum products = qm31::sum();\n"
    );
    for step in &program.steps {
        let line = match *step {
            Step::Compute(id) => compute(graph, id, column),
            Step::Finish(root, id) => finish(graph, root, id),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "    {line}");
    }
    text.push_str("    add_row(component, row, qm31::add(sum, qm31::total(products)));\n}\n");
    text
}

fn compute(graph: &Graph, id: Id, column: &impl Fn(u32, u32) -> u32) -> String {
    let v = |id: Id| format!("v{}", id.index());
    let value = match *graph.node(id) {
        Node::Column { interaction, column: index, offset } => {
            let pointer = format!("component.columns[{}]", column(interaction, index));
            match offset {
                0 => format!("{pointer}[row]"),
                _ => format!("{pointer}[row_ahead(row, {offset}, component.log_trace, component.log_rows)]"),
            }
        }
        Node::Constant(value) => format!("{value}u"),
        Node::Add(a, b) => format!("m31::add({}, {})", v(a), v(b)),
        Node::Sub(a, b) => format!("m31::sub({}, {})", v(a), v(b)),
        Node::Mul(a, b) => format!("m31::mul({}, {})", v(a), v(b)),
        Node::Neg(a) => format!("m31::neg({})", v(a)),
        Node::Inverse(a) => format!("m31::inverse({})", v(a)),
        Node::SecureParameter(slot) => format!("qm31::load(component.parameters + {slot})"),
        Node::SecureLift(a) => format!("qm31::lift({})", v(a)),
        Node::SecureCombine([a, b, c, d]) => format!("QM31{{{}, {}, {}, {}}}", v(a), v(b), v(c), v(d)),
        Node::SecureAdd(a, b) => format!("qm31::add({}, {})", v(a), v(b)),
        Node::SecureSub(a, b) => format!("qm31::sub({}, {})", v(a), v(b)),
        Node::SecureMul(a, b) => format!("qm31::mul({}, {})", v(a), v(b)),
        Node::SecureNeg(a) => format!("qm31::neg({})", v(a)),
        Node::SecureAddBase(a, b) => format!("qm31::add_m31({}, {})", v(a), v(b)),
        Node::SecureMulBase(a, b) => format!("qm31::mul_m31({}, {})", v(a), v(b)),
    };
    let type_ = if graph.node(id).is_secure() { "QM31" } else { "u32" };
    format!("const {type_} {} = {value};", v(id))
}

fn finish(graph: &Graph, root: Root, id: Id) -> String {
    let Root::Constraint(number) = root else { unreachable!("only constraints are generated") };
    let coefficient = format!("qm31::load(component.coefficients + {number})");
    if graph.node(id).is_secure() {
        format!("sum = qm31::add(sum, qm31::mul({coefficient}, v{}));", id.index())
    } else {
        format!("qm31::add_product(products, {coefficient}, v{});", id.index())
    }
}

#[cfg(test)]
mod tests {
    use gatework_gpu::{Architecture, presence};
    use stwo::core::channel::Blake2sChannel;
    use stwo::core::fields::qm31::SecureField;
    use stwo_constraint_framework::FrameworkEval;

    use super::super::record::record;
    use super::*;
    use crate::airs::{Air, Lookup, Plonk, Poseidon2, StateMachine, WideFibonacci};

    fn sources_of(eval: &impl FrameworkEval, sum: SecureField) -> Vec<Source> {
        sources(&record(eval, sum), |interaction, column| 10_000 * interaction + column)
    }

    fn evals<A: Air>(air: &A, seed: u64) -> Vec<A::Eval> {
        use stwo::core::channel::Channel as _;
        let channel = &mut Blake2sChannel::default();
        channel.mix_u64(seed);
        air.evals(channel)
    }

    #[test]
    fn text_depends_on_the_air_and_not_on_challenges() {
        fn same<A: Air>(air: &A) {
            let of = |seed: u32| {
                let sum = SecureField::from_u32_unchecked(seed, 1, 2, 3);
                sources_of(&evals(air, seed.into())[0], sum)
                    .iter()
                    .map(|source| source.text().to_owned())
                    .collect()
            };
            let texts: [Vec<String>; 2] = [of(1), of(2)];
            assert_eq!(texts[0], texts[1]);
        }
        same(&Lookup { log_rows: 5, salt: 0 });
        same(&Plonk { log_rows: 5 });
        same(&StateMachine { log_rows: 5 });
        same(&Poseidon2 { log_rows: 5 });
    }

    #[test]
    fn many_constraints_are_cut_into_several_kernels() {
        assert!(sources_of(&WideFibonacci { log_rows: 3, columns: 700 }, SecureField::default()).len() > 1);
    }

    #[test]
    fn generated_kernels_compile_for_a_gpu_and_none_spills() {
        if !presence::nvrtc().is_found() {
            eprintln!("NVRTC was not found: nothing was compiled for sm_90a");
            return;
        }
        let poseidon2 = sources_of(&evals(&Poseidon2 { log_rows: 5 }, 1)[0], SecureField::default());
        let wide = sources_of(&WideFibonacci { log_rows: 5, columns: 100 }, SecureField::default());
        assert!(poseidon2.len() > 8 && wide.len() == 1);
        for source in poseidon2.iter().chain(&wide) {
            let binary = gatework_gpu::compile(source, &Architecture::Sm("sm_90a".into())).unwrap();
            for (_, resources) in &binary.resources {
                assert_eq!(resources.spill_stores + resources.spill_loads, 0);
            }
        }
    }
}
