//! `ComponentProver` for every component of the constraint framework.

use std::borrow::Cow;

use itertools::Itertools as _;
use stwo::core::air::Component;
use stwo::core::constraints::coset_vanishing;
use stwo::core::fields::m31::BaseField;
use stwo::core::pcs::TreeVec;
use stwo::core::poly::circle::{CanonicCoset, CircleDomain};
use stwo::core::utils::bit_reverse;
use stwo::prover::backend::Column as _;
use stwo::prover::poly::BitReversedOrder;
use stwo::prover::poly::circle::{CircleEvaluation, PolyOps as _};
use stwo::prover::{ComponentProver, DomainEvaluationAccumulator, EvaluationMode, Poly, Trace};
use stwo_constraint_framework::{FrameworkComponent, FrameworkEval, PREPROCESSED_TRACE_IDX};

use super::cache::{Prepared, Workshop};
use super::chunks::{Domain, Read, by_chunks, log_chunk};
use super::inputs::Inputs;
use super::program::Roots;
use super::record::record;
use super::tape::{self, Tape};
use crate::backend::CudaBackend;
use crate::column::coordinates;
use crate::cuda::flat_words;
use crate::error::OrRaise as _;
use crate::queue::Queue;
use crate::shared::Rows;
use crate::stages::Stage;

type Evaluation = CircleEvaluation<CudaBackend, BaseField, BitReversedOrder>;

impl<E: FrameworkEval + Sync> ComponentProver<CudaBackend> for FrameworkComponent<E> {
    fn evaluate_constraint_quotients_on_domain(
        &self,
        trace: &Trace<'_, CudaBackend>,
        accumulator: &mut DomainEvaluationAccumulator<CudaBackend>,
    ) {
        let constraints = self.n_constraints();
        if constraints == 0 {
            return;
        }
        if self.is_disabled() {
            accumulator.skip_coeffs(constraints);
            return;
        }
        let mut polynomials = trace.polys.sub_tree(self.trace_locations());
        let preprocessed = self.preprocessed_column_indices().iter();
        polynomials[PREPROCESSED_TRACE_IDX] =
            preprocessed.map(|&index| &trace.polys[PREPROCESSED_TRACE_IDX][index]).collect();
        let mode = accumulator.evaluation_mode();
        let bound = Component::max_constraint_log_degree_bound(self);
        let domain = evaluation_domain(bound, mode);
        let columns = columns_on(domain, polynomials, mode);
        let log_columns = bound + log_expansion(mode);
        for column in columns.iter().flatten() {
            assert!(
                column.values.len() == 1 << log_columns,
                "a component on 2^{log_columns} rows has no column of {} values",
                column.values.len()
            );
        }

        let log_trace = self.log_size();
        let tape = record(&**self, self.claimed_sum());
        assert_eq!(tape.constraints.len(), constraints, "a recording has the constraints of the component");
        let [mut sums] = accumulator.columns([(domain.log_size(), constraints)]);
        sums.random_coeff_powers.reverse();

        let queue = sums.col.columns[0].queue().clone();
        let _stage = queue.stage(Stage::Constraints);
        let coefficients = queue.upload(&flat_words(&sums.random_coeff_powers));
        let denominators = queue.upload(&denominators(log_trace, domain));
        let rows = Rows {
            // Who launches has those of `inputs` on the device.
            columns: 0,
            parameters: 0,
            coefficients: coefficients.as_raw(),
            denominators: denominators.as_raw(),
            sums: coordinates(&queue, sums.col),
            log_trace,
            log_rows: domain.log_size(),
        };
        let all = columns.iter().flatten().map(|column| &column.values);
        match log_chunk(all.clone(), domain.log_size()) {
            None => on_all_rows(&queue, &tape, &columns, &rows),
            Some(log_chunk) => on_chunks(&queue, &tape, &columns, &rows, log_chunk),
        }
    }
}

type Columns<'a> = TreeVec<Vec<Cow<'a, Evaluation>>>;

/// Adds up the constraints of columns in device memory.
fn on_all_rows(queue: &Queue, tape: &Tape, columns: &Columns<'_>, rows: &Rows) {
    let first_of_interaction = first_columns(columns);
    let inputs = Inputs {
        columns: columns.iter().flatten().map(|column| column.values.address(queue)).collect(),
        parameters: tape.parameters.clone(),
    };
    let column = |interaction: u32, column: u32| first_of_interaction[interaction as usize] + column;
    let workshop = Workshop::of(queue);
    let tier = workshop.tier();
    let depends_on = ("constraints", tier, *tape.key().as_bytes(), &first_of_interaction);
    let prepared = workshop.get(depends_on, || {
        let graph = tape.graph();
        Prepared::new(queue, tier, &graph, &Roots::constraints(&graph), column)
    });
    prepared.or_raise().launch(queue, &inputs, rows, None);
}

/// The same of columns of which some are streamed, a chunk of 2^`log_chunk` rows at a time.
fn on_chunks(queue: &Queue, tape: &Tape, columns: &Columns<'_>, rows: &Rows, log_chunk: u32) {
    let (own, reads) = tape.constraints_at_own_rows();
    let column = |read: &tape::Read| Read {
        column: &columns[read.interaction as usize][read.column as usize].values,
        offset: read.offset,
    };
    let reads = reads.iter().map(column).collect_vec();
    let workshop = Workshop::of(queue);
    let tier = workshop.tier();
    let depends_on = ("constraints of chunks", tier, *own.key().as_bytes());
    let prepared = workshop.get(depends_on, || {
        let graph = own.graph();
        Prepared::new(queue, tier, &graph, &Roots::constraints(&graph), |_, column| column)
    });
    let prepared = prepared.or_raise();
    let domain = Domain { log_trace: rows.log_trace, log_rows: rows.log_rows };
    by_chunks(queue, &reads, domain, log_chunk, |chunk, columns| {
        let inputs = Inputs { columns, parameters: own.parameters.clone() };
        let run = chunk.first >> rows.log_trace;
        let of_chunk = Rows {
            denominators: rows.denominators + (run * size_of::<u32>()) as u64,
            sums: rows.sums.map(|coordinate| chunk.address(coordinate)),
            log_rows: log_chunk,
            ..*rows
        };
        prepared.launch(queue, &inputs, &of_chunk, None);
    });
}

/// The first column of each interaction in the component's table.
fn first_columns<T>(columns: &TreeVec<Vec<T>>) -> Vec<u32> {
    columns
        .iter()
        .scan(0, |next, interaction| {
            let first = *next;
            *next += interaction.len() as u32;
            Some(first)
        })
        .collect()
}

/// By how much larger than the domain of constraints that of the columns is.
fn log_expansion(mode: EvaluationMode) -> u32 {
    match mode {
        EvaluationMode::SubDomain { log_expansion } => log_expansion,
        EvaluationMode::ExtendToEvalDomain => 0,
    }
}

fn evaluation_domain(log_degree_bound: u32, mode: EvaluationMode) -> CircleDomain {
    let log_expansion = log_expansion(mode);
    CanonicCoset::new(log_degree_bound + log_expansion).circle_domain().split(log_expansion).0
}

/// The component's columns on a domain: those committed to, of which it is a prefix, or evaluated there.
fn columns_on<'a>(
    domain: CircleDomain,
    polynomials: TreeVec<Vec<&'a &'a Poly<CudaBackend>>>,
    mode: EvaluationMode,
) -> TreeVec<Vec<Cow<'a, Evaluation>>> {
    match mode {
        EvaluationMode::SubDomain { .. } => {
            polynomials.map_cols(|polynomial| Cow::Borrowed(&polynomial.evals))
        }
        EvaluationMode::ExtendToEvalDomain => {
            let twiddles = CudaBackend::precompute_twiddles(domain.half_coset);
            polynomials
                .map_cols(|polynomial| Cow::Owned(polynomial.get_evaluation_on_domain(domain, &twiddles)))
        }
    }
}

/// Inverses of the vanishing polynomial of the trace's coset, one for each run of as many rows as the trace
/// has.
pub(crate) fn denominators(log_trace: u32, domain: CircleDomain) -> Vec<u32> {
    let coset = CanonicCoset::new(log_trace).coset();
    let runs = 0..1usize << (domain.log_size() - log_trace);
    let mut inverses = runs.map(|index| coset_vanishing(coset, domain.at(index)).inverse()).collect_vec();
    bit_reverse(&mut inverses);
    inverses.iter().map(|inverse: &BaseField| inverse.0).collect()
}
