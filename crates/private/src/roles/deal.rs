//! The dealer's work: what is to be dealt, and two key files of it.

use std::path::Path;
use std::sync::Arc;

use gatework_fss::backend::Backend;
use gatework_fss::executor::{Circuit, Dealer, rehearse};
use gatework_fss::key::KeySink;
use gatework_fss::secret::scrubbed;
use gatework_fss::{Cost, Party, Randomness};
use gatework_gpu::Observer;
use zeroize::Zeroizing;

use crate::circuit::Network;
use crate::disk::{KeyFileWriter, KeyHeader, SectionEntry, require_space};
use crate::error::{Error, Result};
use crate::model::PublicModel;

/// Deals keys for inferences of the given numbers of tokens, into a file for each party: the server's first.
///
/// Masks and keys are computed by `backend`. Whoever runs this learns every mask and must be neither of the
/// two: a server that dealt could read the client's text. `observer` hears of every section that is done: the
/// weights' masks, and one for each inference.
pub fn deal_files(
    backend: &Arc<dyn Backend>,
    randomness: &mut Randomness,
    model: &PublicModel,
    tokens: &[usize],
    paths: [&Path; 2],
    observer: &dyn Observer,
) -> Result<Vec<Cost>> {
    scrubbed(|| deal(backend, randomness, model, tokens, paths, observer))
}

fn deal(
    backend: &Arc<dyn Backend>,
    randomness: &mut Randomness,
    model: &PublicModel,
    tokens: &[usize],
    paths: [&Path; 2],
    observer: &dyn Observer,
) -> Result<Vec<Cost>> {
    if paths[0] == paths[1] {
        return Err(Error::KeyFile {
            path: paths[0].to_owned(),
            what: "each party has a file of its own".into(),
        });
    }
    let plan = DealPlan::new(model, tokens)?;
    let session = Zeroizing::new(random_bytes(randomness));
    let pairing = Box::new(Zeroizing::new(random_bytes(randomness)));
    let mut dealer = Dealer::new(randomness, backend.clone());
    let header = |party: Party| KeyHeader {
        party,
        format: model.format(),
        session: *session,
        model: model.graph_hash(),
        weights: model.weights_hash(),
        public_key: dealer.public_key(),
        pairing: pairing.clone(),
        sections: [0]
            .iter()
            .chain(tokens)
            .zip(&plan.costs)
            .map(|(&tokens, cost)| SectionEntry {
                tokens: tokens as u32,
                length: cost.key_bytes[party.index()],
            })
            .collect(),
    };
    let [zero, one] = Party::BOTH.map(header);
    require_space(&[(paths[0], zero.file_bytes()), (paths[1], one.file_bytes())])?;
    let mut files = [KeyFileWriter::create(paths[0], zero)?, KeyFileWriter::create(paths[1], one)?];
    plan.sections(&mut dealer, &mut files, observer)?;
    let [zero, one] = files;
    zero.finish()?;
    one.finish()?;
    Ok(plan.costs)
}

/// The contents of a deal: the masks of a model's weights, and keys for texts of some lengths.
pub struct DealPlan<'a> {
    model: &'a PublicModel,
    tokens: Vec<usize>,
    whole: Network,
    /// Of the weights, then of each text.
    costs: Vec<Cost>,
}

impl<'a> DealPlan<'a> {
    /// Finds out what keys for texts of these numbers of tokens take.
    pub fn new(model: &'a PublicModel, tokens: &[usize]) -> Result<Self> {
        let whole = model.network(model.longest())?;
        let rehearsed = rehearse(&whole.set_up())?;
        let mut costs = vec![rehearsed.cost];
        let mut lengths: Vec<(usize, Cost)> = Vec::new();
        for &count in tokens {
            let known = lengths.iter().find(|(length, _)| *length == count).map(|(_, cost)| *cost);
            let cost = match known {
                Some(cost) => cost,
                None => {
                    let network = model.network(count)?;
                    let cost = rehearse(&network.inference(&rehearsed.output))?.cost;
                    lengths.push((count, cost));
                    cost
                }
            };
            costs.push(cost);
        }
        Ok(Self { model, tokens: tokens.to_vec(), whole, costs })
    }

    pub(super) fn model(&self) -> &'a PublicModel {
        self.model
    }

    pub(super) fn tokens(&self) -> &[usize] {
        &self.tokens
    }

    pub(super) fn whole(&self) -> &Network {
        &self.whole
    }

    /// The cost of the weights, then of each text.
    pub fn costs(&self) -> &[Cost] {
        &self.costs
    }

    /// Deals all sections.
    pub(super) fn sections<S: SectionSink>(
        &self,
        dealer: &mut Dealer<'_>,
        sinks: &mut [S; 2],
        observer: &dyn Observer,
    ) -> Result<()> {
        let sections = self.costs.len() as u64;
        let stage = observer.stage("dealing");
        let weights = write_section(dealer, sinks, &self.whole.set_up(), &self.costs[0])?;
        stage.counted("keys", 1, Some(sections));
        for (index, (&count, cost)) in self.tokens.iter().zip(&self.costs[1..]).enumerate() {
            let network = self.model.network(count)?;
            write_section(dealer, sinks, &network.inference(&weights), cost)?;
            stage.counted("keys", index as u64 + 2, Some(sections));
        }
        Ok(())
    }
}

/// Where the sections of one party go.
pub(super) trait SectionSink: KeySink {
    /// Begins the next section.
    fn begin(&mut self, seed: u128) -> Result<()>;

    /// Ends it.
    fn end(&mut self) -> Result<()>;
}

impl SectionSink for KeyFileWriter {
    fn begin(&mut self, seed: u128) -> Result<()> {
        self.begin(seed)
    }

    fn end(&mut self) -> Result<()> {
        self.end()
    }
}

fn write_section<C: Circuit, S: SectionSink>(
    dealer: &mut Dealer<'_>,
    [zero, one]: &mut [S; 2],
    circuit: &C,
    cost: &Cost,
) -> Result<C::Output> {
    let seeds = dealer.seeds();
    zero.begin(seeds[0])?;
    one.begin(seeds[1])?;
    let local = dealer.section(circuit, cost, seeds, [&mut *zero, &mut *one])?;
    zero.end()?;
    one.end()?;
    Ok(local.output)
}

fn random_bytes(randomness: &mut Randomness) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&randomness.block().to_le_bytes());
    bytes[16..].copy_from_slice(&randomness.block().to_le_bytes());
    bytes
}
