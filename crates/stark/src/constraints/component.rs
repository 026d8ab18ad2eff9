//! `ComponentProver` for every component of the constraint framework.

use std::borrow::Cow;
use std::ops::Range;

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
use stwo::prover::secure_column::SecureColumnByCoords;
use stwo::prover::{
    AccumulationOps as _, ComponentProver, DomainEvaluationAccumulator, EvaluationMode, Poly, Trace,
};
use stwo_constraint_framework::{FrameworkComponent, FrameworkEval, PREPROCESSED_TRACE_IDX};

use super::cache::{Prepared, Workshop};
use super::chunks::{Chunk, Domain, Read, by_chunks, log_chunk, log_chunk_within};
use super::inputs::Inputs;
use super::program::Roots;
use super::record::record;
use super::tape::{self, Tape};
use crate::backend::CudaBackend;
use crate::column::{DeviceColumn, coordinates, secure_column};
use crate::cuda::flat_words;
use crate::error::OrRaise as _;
use crate::queue::Queue;
use crate::ranks::{Ranks, meet};
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
        let factors = Factors {
            coefficients: flat_words(&sums.random_coeff_powers),
            denominators: denominators(log_trace, domain),
            domain: Domain { log_trace, log_rows: domain.log_size() },
        };
        let all = columns.iter().flatten().map(|column| &column.values);
        if all.clone().any(|column| column.there().is_some()) {
            return on_ranks(&queue, &tape, &columns, &factors, sums.col);
        }
        match log_chunk(all, domain.log_size()) {
            None => on_all_rows(&queue, &tape, &columns, &factors, sums.col),
            Some(log_chunk) => on_chunks(&queue, &tape, &columns, &factors, sums.col, log_chunk),
        }
    }
}

/// What constraints are multiplied with, and where.
struct Factors {
    coefficients: Vec<u32>,
    denominators: Vec<u32>,
    domain: Domain,
}

impl Factors {
    /// Calls `launch` with these on the device, for rows that are added up in `sums`.
    fn on(&self, queue: &Queue, sums: &SecureColumnByCoords<CudaBackend>, launch: impl FnOnce(&Rows)) {
        let (coefficients, denominators) =
            (queue.upload(&self.coefficients), queue.upload(&self.denominators));
        let Domain { log_trace, log_rows } = self.domain;
        launch(&Rows {
            // Who launches has those of `inputs` on the device.
            columns: 0,
            parameters: 0,
            coefficients: coefficients.as_raw(),
            denominators: denominators.as_raw(),
            sums: coordinates(queue, sums),
            log_trace,
            log_rows,
        });
    }
}

type Columns<'a> = TreeVec<Vec<Cow<'a, Evaluation>>>;

/// Adds up the constraints of columns in device memory.
fn on_all_rows(
    queue: &Queue,
    tape: &Tape,
    columns: &Columns<'_>,
    factors: &Factors,
    sums: &SecureColumnByCoords<CudaBackend>,
) {
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
    factors.on(queue, sums, |rows| prepared.or_raise().launch(queue, &inputs, rows, None));
}

/// The same of columns of which some are streamed, a chunk of 2^`log_chunk` rows at a time.
fn on_chunks(
    queue: &Queue,
    tape: &Tape,
    columns: &Columns<'_>,
    factors: &Factors,
    sums: &SecureColumnByCoords<CudaBackend>,
    log_chunk: u32,
) {
    let constraints = tape.constraints_at_own_rows();
    let columns: Vec<Vec<_>> =
        columns.iter().map(|tree| tree.iter().map(|column| column.values.alias()).collect()).collect();
    let rows = 0..1 << factors.domain.log_rows;
    add_chunks(queue, &constraints, &columns, factors, sums, log_chunk, rows);
}

/// The same of columns of which some lie on other devices: each device does a part of the rows, and the lead
/// adds what comes of them to `sums`.
fn on_ranks(
    lead: &Queue,
    tape: &Tape,
    columns: &Columns<'_>,
    factors: &Factors,
    sums: &SecureColumnByCoords<CudaBackend>,
) {
    let constraints = tape.constraints_at_own_rows();
    let log_rows = factors.domain.log_rows;
    let (ranks, log_ranks) = Ranks::for_rows(lead, log_rows);
    let count = 1usize << (log_rows - log_ranks);
    let ahead = constraints.1.iter().filter(|read| read.offset != 0).count() as u64;
    let brought = constraints.1.len() as u64 + ahead;
    let log_chunk = log_chunk_within(lead.window(), (brought, ahead), log_rows - log_ranks);
    let part = |(rank, queue): (usize, &Queue)| {
        let seen = |column: &Cow<'_, Evaluation>| column.values.seen_from(queue);
        let columns: Vec<Vec<_>> = columns.iter().map(|tree| tree.iter().map(seen).collect()).collect();
        let mut part = secure_column(queue, count);
        for coordinate in &mut part.columns {
            queue.stream().fill(&mut coordinate.words_mut(), 0).or_raise();
        }
        add_chunks(
            queue,
            &constraints,
            &columns,
            factors,
            &part,
            log_chunk,
            rank * count..(rank + 1) * count,
        );
        part
    };
    let parts: Vec<_> = meet(lead, || ranks.iter().enumerate().map(part).collect());
    for (rank, part) in parts.iter().enumerate() {
        let mut arrived = secure_column(lead, count);
        for (to, from) in arrived.columns.iter_mut().zip(&part.columns) {
            to.fetch(from);
        }
        let rows = |coordinate: &DeviceColumn<BaseField>| coordinate.part(rank * count, count);
        let mut sums = SecureColumnByCoords { columns: sums.columns.each_ref().map(rows) };
        CudaBackend::accumulate(&mut sums, &arrived);
    }
}

/// Adds up constraints of `rows`, in chunks of 2^`log_chunk`, in `sums`, which are of these rows. Columns are
/// those of each interaction.
fn add_chunks(
    queue: &Queue,
    (own, reads): &(Tape, Vec<tape::Read>),
    columns: &[Vec<DeviceColumn<BaseField>>],
    factors: &Factors,
    sums: &SecureColumnByCoords<CudaBackend>,
    log_chunk: u32,
    rows: Range<usize>,
) {
    let column = |read: &tape::Read| Read {
        column: &columns[read.interaction as usize][read.column as usize],
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
    let Domain { log_trace, .. } = factors.domain;
    let first = rows.start;
    let chunks = rows.start >> log_chunk..rows.end >> log_chunk;
    factors.on(queue, sums, |all| {
        by_chunks(queue, &reads, factors.domain, log_chunk, chunks, |chunk, columns| {
            let inputs = Inputs { columns, parameters: own.parameters.clone() };
            let run = chunk.first >> log_trace;
            let within = Chunk { first: chunk.first - first, ..chunk };
            let of_chunk = Rows {
                denominators: all.denominators + (run * size_of::<u32>()) as u64,
                sums: all.sums.map(|coordinate| within.address(coordinate)),
                log_rows: log_chunk,
                ..*all
            };
            prepared.launch(queue, &inputs, &of_chunk, None);
        });
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
