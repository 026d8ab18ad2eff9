//! Kernels that are generated for an AIR.

use gatework_gpu::{Arg, Buffer, ByValue, Grid, IntoArg, Kernel, Source};

use super::graph::{Graph, Id};
use super::inputs::{Inputs, or_some_words};
use super::program::{Measure, Program, Root, Roots};
use super::reroll::Search;
use super::shape::{Leaves, Pattern, Shapes};
#[cfg(feature = "lab")]
use super::tape::Tape;
use super::text::{self, Place, THREADS, Widths};
use crate::Result;
use crate::cuda::flat_words;
use crate::error::OrRaise as _;
use crate::queue::Queue;
use crate::shared::{Instances, Rows};

/// Steps of one kernel: more compile slowly and spill.
const STEPS_PER_KERNEL: usize = 2000;

/// Operations of M31 of a kernel that goes through instances, and what is looked through for some. A product
/// of QM31 is one step and sixteen operations, and a compiler takes its time for these.
const OPERATIONS_PER_KERNEL: usize = 2000;

/// A kernel's source. Sources depend on the AIR alone, not on the challenges of a proof.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) source: Source,
    /// Where the kernel goes through several instances.
    pub(crate) repeated: Option<Repeated>,
}

/// What the instances of a kernel work on: one after the other in each table.
#[derive(Debug)]
pub(crate) struct Repeated {
    /// Numbers of columns of the component.
    columns: Vec<u32>,
    constants: Vec<u32>,
    /// Slots of parameters.
    parameters: Vec<u32>,
    /// The first root of the first instance, and from there to the first of the next.
    first: u32,
    stride: u32,
    pub(crate) count: u32,
}

/// The kernels for `roots`, whose columns are numbered by `column`.
pub(crate) fn parts(graph: &Graph, roots: &Roots, column: impl Fn(u32, u32) -> u32) -> Vec<Part> {
    let shapes = Shapes::new(graph);
    let search = Search::new(graph, roots, &shapes, OPERATIONS_PER_KERNEL);
    let stretches = search.stretches();
    let repeats = |group: usize| stretches.iter().any(|stretch| stretch.range().contains(&group));
    let others = (0..roots.groups()).filter(|&group| !repeats(group));
    let mut parts = once(graph, others.map(|group| roots.of(group..group + 1)), &column);
    for stretch in &stretches {
        for piece in search.pieces(stretch) {
            let instances = stretch.parts(piece).map(|groups| Pattern::new(&shapes, roots.of(groups)));
            let (patterns, leaves): (Vec<_>, Vec<_>) = instances.unzip();
            // A part of equal patterns is equal: the order of a node's operands is the same in every program.
            assert!(patterns.iter().all(|pattern| *pattern == patterns[0]), "instances have one pattern");
            parts.push(repeated(&patterns[0], &leaves, &column));
        }
    }
    parts
}

/// Kernels for groups of roots, with no regard to what repeats.
fn once<'a>(
    graph: &Graph,
    groups: impl IntoIterator<Item = &'a [(Root, Id)]>,
    column: &impl Fn(u32, u32) -> u32,
) -> Vec<Part> {
    let part = |program: &Program| Part { source: text::once(graph, program, column), repeated: None };
    Program::partitions(graph, groups, STEPS_PER_KERNEL, Measure::Steps).iter().map(part).collect()
}

/// The kernel for all instances of a pattern.
fn repeated(pattern: &Pattern, instances: &[Leaves], column: &impl Fn(u32, u32) -> u32) -> Part {
    let (constant_places, constants) = places(instances, |leaves| &leaves.constants);
    let (parameter_places, parameters) = places(instances, |leaves| &leaves.parameters);
    let columns = instances.iter().flat_map(|leaves| &leaves.columns);
    let widths = Widths {
        columns: instances[0].columns.len(),
        constants: constant_places,
        parameters: parameter_places,
    };
    let repeated = Repeated {
        columns: columns.map(|&(interaction, index)| column(interaction, index)).collect(),
        constants,
        parameters,
        first: instances[0].first_root,
        stride: instances[1].first_root - instances[0].first_root,
        count: instances.len() as u32,
    };
    Part { source: text::repeated(pattern, &widths), repeated: Some(repeated) }
}

/// Where a pattern finds its leaves, and the table of those in which instances differ.
fn places(instances: &[Leaves], leaves: impl Fn(&Leaves) -> &[u32]) -> (Vec<Place>, Vec<u32>) {
    let first = leaves(&instances[0]);
    let differs =
        |&number: &usize| instances.iter().any(|instance| leaves(instance)[number] != first[number]);
    let varying: Vec<usize> = (0..first.len()).filter(differs).collect();
    let place = |number| match varying.binary_search(&number) {
        Ok(place) => Place::Varying(place as u32),
        Err(_) => Place::Fixed(first[number]),
    };
    let table = instances.iter().flat_map(|instance| varying.iter().map(|&number| leaves(instance)[number]));
    ((0..first.len()).map(place).collect(), table.collect())
}

/// Kernels for all constraints of a graph, with no regard to what repeats, for the gates.
#[cfg(feature = "lab")]
pub(crate) fn unrolled(tape: &Tape) -> Vec<Source> {
    let graph = tape.graph();
    let roots = Roots::constraints(&graph);
    let groups = (0..roots.groups()).map(|group| roots.of(group..group + 1));
    once(&graph, groups, &|_, column| column).into_iter().map(|part| part.source).collect()
}

/// Compiles `sources`, or finds them in the cache, on all cores.
pub(crate) fn compile<'a>(
    queue: &Queue,
    sources: impl IntoIterator<Item = &'a Source>,
) -> Result<Vec<Kernel>> {
    use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};
    let sources: Vec<&Source> = sources.into_iter().collect();
    sources.into_par_iter().map(|source| Ok(queue.stream().device().kernel(source)?)).collect()
}

/// Kernels that are ready to be launched.
pub(crate) struct Generated {
    kernels: Vec<Kernel>,
    tables: Tables,
}

impl Generated {
    /// Compiles `parts`.
    pub(crate) fn new(queue: &Queue, parts: &[Part]) -> Result<Self> {
        let kernels = compile(queue, parts.iter().map(|part| &part.source))?;
        Ok(Self { kernels, tables: Tables::new(queue, parts) })
    }

    /// Runs them on all rows.
    pub(crate) fn launch(&self, queue: &Queue, inputs: &Inputs, rows: &Rows, outputs: Option<&Buffer<u64>>) {
        self.tables.launch(queue, &self.kernels, inputs, rows, outputs);
    }
}

/// What kernels are given that depends on the AIR alone.
pub(crate) struct Tables {
    /// For each kernel that has instances, its places in the tables below.
    instances: Vec<Option<Instances>>,
    columns: Vec<u32>,
    parameters: Vec<u32>,
    constants: Buffer<u32>,
}

impl Tables {
    pub(crate) fn new(queue: &Queue, parts: &[Part]) -> Self {
        let (mut columns, mut parameters, mut constants) = (Vec::new(), Vec::new(), Vec::new());
        let instances = parts.iter().map(|part| {
            part.repeated.as_ref().map(|repeated| {
                let instances = Instances {
                    columns: columns.len() as u64,
                    parameters: parameters.len() as u64,
                    constants: constants.len() as u64,
                    first: repeated.first,
                    stride: repeated.stride,
                    count: repeated.count,
                    unused: 0,
                };
                columns.extend(&repeated.columns);
                parameters.extend(&repeated.parameters);
                constants.extend(&repeated.constants);
                instances
            })
        });
        let instances = instances.collect();
        Self { instances, columns, parameters, constants: queue.upload(&or_some_words(constants)) }
    }

    /// Runs kernels on all rows. Columns and parameters of `rows` are those given here; each instance of a
    /// kernel has its own behind them, so that a kernel finds either without a detour.
    pub(crate) fn launch(
        &self,
        queue: &Queue,
        kernels: &[Kernel],
        inputs: &Inputs,
        rows: &Rows,
        outputs: Option<&Buffer<u64>>,
    ) {
        let Inputs { columns, parameters } = inputs;
        let with = self.columns.iter().map(|&column| columns[column as usize]);
        let column_table = queue.upload(&columns.iter().copied().chain(with).collect::<Vec<_>>());
        let with = self.parameters.iter().map(|&slot| parameters[slot as usize]);
        let parameter_table: Vec<_> = parameters.iter().copied().chain(with).collect();
        let parameter_table = queue.upload(&or_some_words(flat_words(&parameter_table)));
        let rows = Rows { columns: column_table.as_raw(), parameters: parameter_table.as_raw(), ..*rows };
        let grid = Grid::covering(1 << rows.log_rows, THREADS);
        for (kernel, instances) in kernels.iter().zip(&self.instances) {
            let instances = instances.map(|places| Instances {
                columns: rows.columns + 8 * (columns.len() as u64 + places.columns),
                parameters: rows.parameters + 16 * (parameters.len() as u64 + places.parameters),
                constants: self.constants.as_raw() + 4 * places.constants,
                ..places
            });
            let outputs = outputs.map(IntoArg::into_arg);
            let instances = instances.as_ref().map(|instances| ByValue(instances).into_arg());
            let arguments: Vec<Arg<'_>> =
                [ByValue(&rows).into_arg()].into_iter().chain(outputs).chain(instances).collect();
            kernel.launch(queue.stream(), &grid, &arguments).or_raise();
        }
    }
}

#[cfg(test)]
mod tests {
    use gatework_gpu::Architecture;
    use stwo::core::channel::Blake2sChannel;
    use stwo::core::fields::qm31::SecureField;
    use stwo_constraint_framework::FrameworkEval;

    use super::super::record::record;
    use super::super::synthetic::{Blocks, Fractions, OneLargeTerm, Sequence};
    use super::*;
    use crate::airs::{Air, Lookup, Plonk, Poseidon2, StateMachine, WideFibonacci};

    fn column(interaction: u32, column: u32) -> u32 {
        10_000 * interaction + column
    }

    fn parts_of(eval: &impl FrameworkEval) -> Vec<Part> {
        let graph = record(eval, SecureField::default()).graph();
        parts(&graph, &Roots::constraints(&graph), column)
    }

    /// With no regard to what repeats.
    fn parts_without_instances(eval: &impl FrameworkEval) -> Vec<Part> {
        let graph = record(eval, SecureField::default()).graph();
        let roots = Roots::constraints(&graph);
        once(&graph, (0..roots.groups()).map(|group| roots.of(group..group + 1)), &column)
    }

    fn texts(parts: &[Part]) -> Vec<&str> {
        parts.iter().map(|part| part.source.text()).collect()
    }

    /// Instances of each kernel that has some.
    fn instances(parts: &[Part]) -> Vec<u32> {
        parts.iter().filter_map(|part| part.repeated.as_ref()).map(|repeated| repeated.count).collect()
    }

    /// Lines that a row goes through, and lines that are compiled.
    fn lines(parts: &[Part]) -> (usize, usize) {
        let of = |part: &Part| part.source.text().lines().count();
        let run =
            |part: &Part| of(part) * part.repeated.as_ref().map_or(1, |repeated| repeated.count as usize);
        (parts.iter().map(run).sum(), parts.iter().map(of).sum())
    }

    /// Few kernels, and hardly more work than without instances.
    fn is_shorter(eval: &impl FrameworkEval, kernels: usize, of_before: usize) {
        let (before, after) = (parts_without_instances(eval), parts_of(eval));
        assert!(after.len() <= kernels, "{} kernels", after.len());
        assert!(lines(&after).0 * 100 <= lines(&before).0 * 106, "{:?} {:?}", lines(&before), lines(&after));
        assert!(lines(&after).1 * of_before <= lines(&before).1, "{:?} {:?}", lines(&before), lines(&after));
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
                let graph = record(&evals(air, seed.into())[0], sum).graph();
                let parts = [Roots::constraints(&graph), Roots::fractions(&graph)]
                    .iter()
                    .flat_map(|roots| parts(&graph, roots, column))
                    .collect::<Vec<_>>();
                texts(&parts).into_iter().map(str::to_owned).collect()
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
        assert!(parts_of(&evals(&Poseidon2 { log_rows: 3 }, 1)[0]).len() > 1);
    }

    #[test]
    #[ignore = "needs NVRTC"]
    fn generated_kernels_compile_for_a_gpu_and_none_spills() {
        let poseidon2 = &evals(&Poseidon2 { log_rows: 5 }, 1)[0];
        let graph = record(poseidon2, SecureField::default()).graph();
        let fractions = parts(&graph, &Roots::fractions(&graph), column);
        let wide = parts_of(&WideFibonacci { log_rows: 5, columns: 100 });
        let blocks = parts_of(&Blocks { constants_differ: true, ..Blocks::default() });
        for part in parts_of(poseidon2).iter().chain(&fractions).chain(&wide).chain(&blocks) {
            let binary = gatework_gpu::compile(&part.source, &Architecture::Sm("sm_90a".into())).unwrap();
            for (_, resources) in &binary.resources {
                assert_eq!(resources.spill_stores + resources.spill_loads, 0);
            }
        }
    }

    #[test]
    fn permutations_of_a_row_are_one_text() {
        let poseidon2 = &evals(&Poseidon2 { log_rows: 5 }, 1)[0];
        is_shorter(poseidon2, 5, 5);
        assert!(instances(&parts_of(poseidon2)).contains(&8));
        let graph = record(poseidon2, SecureField::default()).graph();
        let fractions = parts(&graph, &Roots::fractions(&graph), column);
        assert_eq!((fractions.len(), instances(&fractions).len()), (1, 1));
    }

    #[test]
    fn a_middle_that_repeats_is_one_text() {
        for constants_differ in [false, true] {
            let blocks = Blocks { constants_differ, ..Blocks::default() };
            is_shorter(&blocks, 2, 3);
            let text = texts(&parts_of(&blocks)).concat();
            assert_eq!(text.contains("constants["), constants_differ);
        }
    }

    #[test]
    fn stretches_of_two_kinds_are_two_texts() {
        is_shorter(&Blocks { others: 50, ..Blocks::default() }, 3, 3);
        assert_eq!(instances(&parts_of(&Blocks { others: 50, ..Blocks::default() })).len(), 2);
    }

    #[test]
    fn a_block_that_differs_is_left_out() {
        let blocks = Blocks { odd_one: Some(7), ..Blocks::default() };
        let covered: u32 = instances(&parts_of(&blocks)).iter().sum();
        assert!(covered > 0 && instances(&parts_of(&blocks)) != instances(&parts_of(&Blocks::default())));
    }

    #[test]
    fn fractions_with_parameters_of_their_own_are_one_text() {
        let graph = record(&Fractions { count: 450 }, SecureField::default()).graph();
        let fractions = parts(&graph, &Roots::fractions(&graph), column);
        let with_instances = fractions.iter().filter(|part| part.repeated.is_some()).collect::<Vec<_>>();
        assert_eq!(with_instances.len(), 1);
        assert!(with_instances[0].source.text().contains("qm31::load(parameters + 1)"));
    }

    #[test]
    fn one_sequence_over_many_columns_is_cut_into_instances() {
        is_shorter(&WideFibonacci { log_rows: 5, columns: 700 }, 2, 3);
    }

    #[test]
    fn what_fits_or_does_not_repeat_is_left_as_it_is() {
        fn left(eval: &impl FrameworkEval) {
            let (before, after) = (parts_without_instances(eval), parts_of(eval));
            assert_eq!(texts(&before), texts(&after));
            assert!(instances(&after).is_empty());
        }
        left(&WideFibonacci { log_rows: 5, columns: 100 });
        left(&Blocks { repeats: 0, irregular: 97, ..Blocks::default() });
        // What all of them share would be computed by each instance, or by each kernel.
        left(&OneLargeTerm);
        assert_eq!(parts_of(&OneLargeTerm).len(), 1);
    }

    /// Words of kinds of constraints that are repeated by chance.
    #[test]
    fn every_constraint_is_computed_once() {
        let mut state = 1u32;
        let mut below = |limit: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as usize % limit
        };
        let mut with_instances = 0;
        for _ in 0..40 {
            let mut kinds = Vec::new();
            for _ in 0..1 + below(5) {
                let word: Vec<usize> = (0..1 + below(7)).map(|_| below(6)).collect();
                (0..1 + below(40)).for_each(|_| kinds.extend(&word));
            }
            let sequence = Sequence(kinds);
            let (before, after) = (parts_without_instances(&sequence), parts_of(&sequence));
            let of = |part: &Part| part.source.text().matches("add_product(").count();
            let of =
                |part: &Part| of(part) * part.repeated.as_ref().map_or(1, |repeated| repeated.count as usize);
            assert_eq!(after.iter().map(of).sum::<usize>(), sequence.0.len());
            assert!(
                lines(&after).0 * 100 <= lines(&before).0 * 110 && lines(&after).1 <= lines(&before).1 + 20
            );
            with_instances += usize::from(!instances(&after).is_empty());
        }
        assert!(with_instances > 10, "{with_instances}");
    }
}
