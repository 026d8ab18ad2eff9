//! What stwo 2.3.0 cannot prove: said before it is tried, whichever backend would try.
//!
//! stwo itself goes on to a panic without a sentence, to constraints that "do not hold", or to a proof that
//! its own verifier refuses.

use stwo::core::air::Component;
use stwo::core::channel::MerkleChannel;
use stwo::core::pcs::PcsConfig;
use stwo::core::verifier::PREPROCESSED_TRACE_IDX;
use stwo::prover::CommitmentSchemeProver;
use stwo::prover::backend::BackendForChannel;

use crate::{Error, Result};

/// The bound of a component that is disabled, and the most rows that it gives.
const LOG_LEAST_BOUND: u32 = 1;
/// Most bits of work that are ground.
const MOST_POW_BITS: u32 = 32;

/// What is to be proved, as far as that decides whether it can be.
pub(crate) struct Limits {
    pub(crate) config: PcsConfig,
    /// For each component, the logarithms of its rows and of the bound that it gives for its constraints.
    pub(crate) components: Vec<(u32, u32)>,
    /// The logarithms of the longest column of each tree, before it is extended.
    pub(crate) trees: Vec<Option<u32>>,
}

impl Limits {
    /// Of components over what a scheme has committed to.
    pub(crate) fn of<B: BackendForChannel<MC>, MC: MerkleChannel>(
        components: &[&dyn Component],
        scheme: &CommitmentSchemeProver<'_, B, MC>,
    ) -> Self {
        let log_blowup = scheme.config.fri_config.log_blowup_factor;
        let log_size = |component: &&dyn Component| {
            let log_rows = component.trace_log_degree_bounds().iter().flatten().copied().max().unwrap_or(0);
            (log_rows, component.max_constraint_log_degree_bound())
        };
        let trees = scheme.polynomials().0.into_iter().map(|polynomials| {
            let log_sizes = polynomials.iter().map(|polynomial| polynomial.evals.domain.log_size());
            log_sizes.max().map(|log_size| log_size.saturating_sub(log_blowup))
        });
        Self {
            config: scheme.config,
            components: components.iter().map(log_size).collect(),
            trees: trees.collect(),
        }
    }

    /// The error that says why it cannot be proved, if it cannot.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_components()?;
        self.check_trees()?;
        self.check_folds()?;
        self.check_security()
    }

    fn log_blowup(&self) -> u32 {
        self.config.fri_config.log_blowup_factor
    }

    /// The logarithm of the rows of the largest component, which is that of the halves of the composition
    /// polynomial.
    fn log_rows(&self) -> u32 {
        self.components.iter().map(|&(_, log_bound)| log_bound.saturating_sub(1)).max().unwrap_or(0)
    }

    /// The logarithm of the rows of the tree of the composition polynomial, which queries are drawn from.
    fn log_lifted(&self) -> u32 {
        self.config.lifting_log_size.unwrap_or(self.log_rows() + self.log_blowup())
    }

    /// Constraints are lifted with the composition polynomial, columns with the trace. The two agree for one
    /// degree alone.
    fn check_components(&self) -> Result<()> {
        if self.components.is_empty() {
            return unsupported("a proof without components: give the prover one at least".into());
        }
        for &(log_rows, log_bound) in &self.components {
            let disabled = log_rows <= LOG_LEAST_BOUND && log_bound == LOG_LEAST_BOUND;
            if log_bound != log_rows + 1 && !disabled {
                return unsupported(format!(
                    "a component of 2^{log_rows} rows whose max_constraint_log_degree_bound is {log_bound}; stwo 2.3.0 proves \
                     {}, which is degree 3: give that bound, and make products of more factors columns of their own",
                    log_rows + 1
                ));
            }
        }
        Ok(())
    }

    fn check_trees(&self) -> Result<()> {
        let (log_rows, log_blowup) = (self.log_rows(), self.log_blowup());
        let longest = self.trees.iter().copied().flatten().max().unwrap_or(0).max(log_rows);
        let log_needed = longest + log_blowup;
        if let Some(log_lifted) = self.config.lifting_log_size {
            if log_lifted < log_needed {
                return unsupported(format!(
                    "trees lifted to 2^{log_lifted} rows, where columns have 2^{log_needed}: set lifting_log_size to \
                     Some({log_needed}) or more"
                ));
            }
            return Ok(());
        }
        for (tree, log_longest) in self.trees.iter().enumerate() {
            let Some(log_longest) = *log_longest else { continue };
            // Lifted proofs without preprocessed columns are refused by stwo's verifier.
            let with = match self.trees.first() {
                Some(Some(_)) => "",
                _ => " and commit to a preprocessed column",
            };
            let way_out = format!("set lifting_log_size to Some({log_needed}){with}");
            match tree {
                // Queries are brought down to a lower tree in an order that is not ascending, where some fall
                // together.
                PREPROCESSED_TRACE_IDX if log_longest < log_rows => {
                    return unsupported(format!(
                        "preprocessed columns of 2^{log_longest} rows beside a trace of 2^{log_rows}: stwo 2.3.0's verifier \
                         refuses such proofs, depending on their queries; {way_out}, or make one preprocessed column as long as the trace"
                    ));
                }
                // Queries of a higher one are brought up.
                PREPROCESSED_TRACE_IDX => (),
                _ if log_longest != log_rows => {
                    return unsupported(format!(
                        "a tree of columns of 2^{log_longest} rows where the largest component has 2^{log_rows}: stwo 2.3.0 opens \
                         all trees of a trace at the same rows; {way_out}, or commit to a column of 2^{log_rows} rows in that tree"
                    ));
                }
                _ => (),
            }
        }
        Ok(())
    }

    /// As [`Limits::check`], for proofs that sample all preprocessed columns: none may be longer than what
    /// queries are drawn from.
    pub(crate) fn check_sampling_all(&self) -> Result<()> {
        let preprocessed = self.trees.get(PREPROCESSED_TRACE_IDX).copied().flatten();
        let (log_longest, log_lifted) = (preprocessed.unwrap_or(0) + self.log_blowup(), self.log_lifted());
        if log_longest > log_lifted {
            return unsupported(format!(
                "all preprocessed columns sampled, where some have 2^{log_longest} rows when they are extended and the trace has \
                 2^{log_lifted}: set lifting_log_size to Some({log_longest}), or sample those that are used"
            ));
        }
        Ok(())
    }

    fn check_folds(&self) -> Result<()> {
        let fri = &self.config.fri_config;
        let fold_step = fri.fold_step;
        if fold_step == 0 {
            return unsupported("folds by 2^0, which fold nothing: set fold_step to 1 or more".into());
        }
        let (log_first, log_last) =
            (self.log_lifted(), fri.log_last_layer_degree_bound + fri.log_blowup_factor);
        if log_first < fold_step + log_last {
            return unsupported(format!(
                "2^{log_first} values, folded by 2^{fold_step}, with a last layer of 2^{log_last}: prove more rows, or \
                 choose a smaller fold_step or a smaller bound for the last layer's degree"
            ));
        }
        Ok(())
    }

    fn check_security(&self) -> Result<()> {
        let PcsConfig { pow_bits, fri_config, .. } = self.config;
        if fri_config.n_queries == 0 {
            return unsupported(
                "a proof without queries, which shows nothing: set n_queries to 1 or more".into(),
            );
        }
        if pow_bits > MOST_POW_BITS {
            return unsupported(format!(
                "{pow_bits} bits of work: set pow_bits to {MOST_POW_BITS} or less, and n_queries to more"
            ));
        }
        Ok(())
    }
}

fn unsupported(what: String) -> Result<()> {
    Err(Error::Unsupported { what })
}
