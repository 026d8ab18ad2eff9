//! The two parties.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gatework_fss::backend::Backend;
use gatework_fss::executor::Inputs;
use gatework_fss::secret::scrubbed;
use gatework_fss::{CpuBackend, Error as FssError, Party};
use gatework_gpu::Observer;

use crate::disk::KeyFile;
use crate::error::{Error, Result};
use crate::model::{Owner, PublicModel, Tokens};
use crate::net::Link;

use super::lengths::Lengths;
use super::message::{Hello, MOST_SECTIONS, Message};
use super::pair::{Held, Pair, Weighing};
use super::parts::PartTime;
use super::summary::Summary;

/// What key files in a folder are called.
const EXTENSION: &str = "keys";

/// Key files of a server: one, or all of a folder, to which more may be added while it serves.
pub struct KeyStore {
    path: PathBuf,
}

impl KeyStore {
    /// One key file, or all of party 0's in a folder. There must be one.
    pub fn open(path: &Path) -> Result<Self> {
        let store = Self { path: path.to_owned() };
        if !path.is_dir() {
            KeyFile::open(path, Party::Zero)?;
        } else if store.sessions()?.is_empty() {
            let what = "there is no key file of the server in it (they are called *.keys)".into();
            return Err(Error::KeyFile { path: path.to_owned(), what });
        }
        Ok(store)
    }

    /// The files, with the sessions that they are for. What is no key file of the server is left out.
    pub fn sessions(&self) -> Result<Vec<(PathBuf, [u8; 32])>> {
        let failed = |source| Error::File { path: self.path.clone(), doing: "read", source };
        let mut candidates = vec![self.path.clone()];
        if self.path.is_dir() {
            let entries = fs::read_dir(&self.path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            candidates = entries.map_err(failed)?.into_iter().map(|entry| entry.path()).collect();
            candidates.retain(|path| path.extension().is_some_and(|extension| extension == EXTENSION));
        }
        let session = |path: PathBuf| match KeyFile::peek(&path) {
            Ok(header) if header.party == Party::Zero => Some((path, header.session)),
            Ok(_) => None,
            Err(error) => {
                tracing::warn!("left out: {error}");
                None
            }
        };
        Ok(candidates.into_iter().filter_map(session).collect())
    }

    fn find(&self, session: &[u8; 32]) -> Result<KeyFile> {
        let unknown = || Error::Peer { what: "it has keys of another deal than this side".into() };
        let found = self.sessions()?.into_iter().find(|(_, found)| found == session);
        KeyFile::open(&found.ok_or_else(unknown)?.0, Party::Zero)
    }
}

/// The party with the weights.
pub struct Server<'a> {
    owner: &'a Owner,
    keys: &'a KeyStore,
    backend: Arc<dyn Backend>,
    lengths: Arc<Lengths>,
}

impl<'a> Server<'a> {
    /// A server of a model. That it owns the weights, and that they fit the model, is what an [`Owner`]
    /// stands for.
    pub fn new(owner: &'a Owner, keys: &'a KeyStore) -> Self {
        Self { owner, keys, backend: Arc::new(CpuBackend), lengths: Arc::default() }
    }

    /// The same, computing on another backend than the CPU.
    pub fn on(self, backend: Arc<dyn Backend>) -> Self {
        Self { backend, ..self }
    }

    /// Serves one client until it has no more wishes.
    pub fn serve(&self, link: Link) -> Result<Summary> {
        self.greet(link)?.serve()
    }

    /// Takes a client's greeting, which must come soon, and answers it: from here on it is known whose keys
    /// it has.
    pub fn greet(&self, mut link: Link) -> Result<Greeted<'_>> {
        match self.exchange_greetings(&mut link) {
            Ok(keys) => {
                let pair =
                    Pair::new(self.owner.public(), self.backend.clone(), keys, link, self.lengths.clone())?;
                Ok(Greeted { owner: self.owner, pair })
            }
            Err(error) => Err(refuse(&mut link, error)),
        }
    }

    fn exchange_greetings(&self, link: &mut Link) -> Result<KeyFile> {
        let theirs = expect_hello(link, Party::One)?;
        let mut keys = self.keys.find(&theirs.session)?;
        accept(self.owner.public(), &mut keys, link, &theirs)?;
        let hello = hello(&keys, link);
        link.send(Message::Hello(hello).encode())?;
        Ok(keys)
    }
}

/// A client whose greeting was answered.
pub struct Greeted<'a> {
    owner: &'a Owner,
    pair: Pair<'a>,
}

impl Greeted<'_> {
    /// Tells the client that it must come back later.
    pub fn turn_away(mut self) -> Error {
        refuse(&mut self.pair.link, Error::Busy)
    }

    /// Serves it until it has no more wishes.
    pub fn serve(self) -> Result<Summary> {
        let Self { owner, mut pair } = self;
        let mut held: Option<Held> = None;
        loop {
            let request = pair.receive()?;
            // Keys that are held are for the next request or for none.
            let held_before = match (held.take(), &request) {
                (Some(keys), Message::Begin) => Some(keys),
                (Some(keys), _) => {
                    pair.let_go(keys);
                    None
                }
                (None, _) => None,
            };
            match request {
                Message::SetUp | Message::SetUpAgain => {
                    if let Err(error) = pair.prepare_set_up() {
                        return Err(refuse(&mut pair.link, error));
                    }
                    pair.send(&Message::Ready)?;
                    let again = matches!(request, Message::SetUpAgain);
                    let mut weighing = if again { Weighing::There } else { Weighing::Sent };
                    pair.set_up(owner.set_up_inputs(), &mut weighing)?;
                }
                Message::Infer(sections) => {
                    let sections = indices(sections);
                    let keys = match pair.prepare(&sections).and_then(|()| pair.spend(&sections)) {
                        Ok(keys) => keys,
                        Err(error) => return Err(refuse(&mut pair.link, error)),
                    };
                    pair.send(&Message::Ready)?;
                    pair.infer(keys, &sections, vec![vec![None]; sections.len()])?;
                }
                Message::Hold(sections) => {
                    let sections = indices(sections);
                    held = match pair.prepare_to_hold(&sections).and_then(|()| pair.hold(sections)) {
                        Ok(keys) => Some(keys),
                        Err(error) => return Err(refuse(&mut pair.link, error)),
                    };
                    pair.send(&Message::Ready)?;
                }
                Message::Begin => {
                    let Some(keys) = held_before else {
                        let error = Error::Peer { what: "it wants to begin, and no keys are held".into() };
                        return Err(refuse(&mut pair.link, error));
                    };
                    let inputs = vec![vec![None]; keys.texts()];
                    pair.infer_with(keys, inputs)?;
                }
                Message::Done => return Ok(pair.summary()),
                other => {
                    let error = Error::Peer { what: format!("it sent {other} where a request belongs") };
                    return Err(refuse(&mut pair.link, error));
                }
            }
        }
    }
}

/// The party with the text.
pub struct Client<'a> {
    pair: Pair<'a>,
    taken: bool,
    keeping: bool,
}

impl<'a> Client<'a> {
    /// Greets the server. Both sides have shown that they hold their halves of one deal, and know what of it
    /// was used.
    pub fn new(model: &'a PublicModel, keys: KeyFile, link: Link) -> Result<Self> {
        Self::on(model, Arc::new(CpuBackend), keys, link)
    }

    /// The same, computing on another backend than the CPU.
    pub fn on(
        model: &'a PublicModel,
        backend: Arc<dyn Backend>,
        mut keys: KeyFile,
        mut link: Link,
    ) -> Result<Self> {
        let hello = hello(&keys, &link);
        link.send(Message::Hello(hello).encode())?;
        let theirs = expect_hello(&mut link, Party::Zero)?;
        if let Err(error) = accept(model, &mut keys, &mut link, &theirs) {
            return Err(refuse(&mut link, error));
        }
        Ok(Self {
            pair: Pair::new(model, backend, keys, link, Arc::default())?,
            taken: false,
            keeping: false,
        })
    }

    #[cfg(test)]
    pub(super) fn into_pair(self) -> Pair<'a> {
        self.pair
    }

    /// The keys.
    pub fn keys(&self) -> &KeyFile {
        self.pair.keys()
    }

    /// Has `observer` told of every round.
    pub fn observed(mut self, observer: &'a dyn Observer) -> Self {
        self.pair.observer = observer;
        self
    }

    /// Gets to know what texts of so many tokens take, so that the first of them need not wait for it.
    pub fn plan(&mut self, tokens: &[usize]) -> Result<()> {
        tokens.iter().try_for_each(|&tokens| self.pair.network(tokens))
    }

    /// Takes the masked weights, if that was not done yet.
    pub fn set_up(&mut self) -> Result<()> {
        if self.taken {
            return Ok(());
        }
        self.pair.prepare_set_up()?;
        let nothing = vec![None; self.pair.weight_count()];
        match self.keeping.then(|| self.pair.keys().kept_weights()).flatten() {
            Some(kept) => {
                self.pair.ask(&Message::SetUpAgain)?;
                if let Err(error) = self.pair.set_up(nothing, &mut Weighing::Here(kept.into())) {
                    self.pair.keys().forget_weights();
                    return Err(error);
                }
            }
            None => {
                let mut weighing = if self.keeping { Weighing::Noted(Vec::new()) } else { Weighing::Sent };
                self.pair.ask(&Message::SetUp)?;
                self.pair.set_up(nothing, &mut weighing)?;
                if let Weighing::Noted(messages) = weighing {
                    self.pair.keep_weights(messages);
                }
            }
        }
        self.taken = true;
        Ok(())
    }

    /// Keeps the masked weights in a file beside the key file, for the next session of the same deal.
    pub fn keeping_weights(self) -> Self {
        Self { keeping: true, ..self }
    }

    /// Runs texts, as token ids or [`Tokens`], through the model in one batch, and returns the words of each
    /// result, for [`PublicModel::decode`]. Uses up a key for each.
    pub fn infer<T: Clone + Into<Tokens>>(&mut self, texts: &[T]) -> Result<Vec<Vec<u64>>> {
        let texts: Vec<Tokens> = texts.iter().cloned().map(T::into).collect();
        let lengths: Vec<usize> = texts.iter().map(|text| text.ids().len()).collect();
        let sections = self.sections(&lengths)?;
        self.infer_texts(&sections, &texts)
    }

    /// The same with the keys of these sections, by their positions in the key file: for whoever decides
    /// which key serves which text.
    pub fn infer_at<T: Clone + Into<Tokens>>(
        &mut self,
        sections: &[usize],
        texts: &[T],
    ) -> Result<Vec<Vec<u64>>> {
        let texts: Vec<Tokens> = texts.iter().cloned().map(T::into).collect();
        let entries = &self.pair.keys().header().sections;
        let lengths: Vec<Option<usize>> =
            sections.iter().map(|&section| entries.get(section).map(|entry| entry.tokens as usize)).collect();
        let given: Vec<Option<usize>> = texts.iter().map(|text| Some(text.ids().len())).collect();
        if lengths != given || !(1..=MOST_SECTIONS).contains(&texts.len()) {
            let what = format!("texts of {given:?} tokens for sections of {lengths:?}");
            return Err(Error::Unsupported { gate: "a batch", what });
        }
        let (ledger, mut taken) = (self.pair.keys().ledger(), BTreeSet::new());
        if let Some(&section) =
            sections.iter().find(|&&section| ledger.is_used(section) || !taken.insert(section))
        {
            return Err(Error::Reused { section });
        }
        self.infer_texts(sections, &texts)
    }

    fn infer_texts(&mut self, sections: &[usize], texts: &[Tokens]) -> Result<Vec<Vec<u64>>> {
        let inputs = self.inputs(texts)?;
        self.set_up()?;
        self.pair.prepare(sections)?;
        self.pair.ask(&Message::Infer(numbers(sections)))?;
        let keys = self.pair.spend(sections)?;
        results(self.pair.infer(keys, sections, inputs)?)
    }

    /// Takes keys for texts of so many tokens into the memory of both sides, so that an answer only takes the
    /// gates. The keys are used from here on, whether or not the texts follow. The server waits for them as
    /// long as for any message, and ends the session then: 120 s, if its timeouts do not say otherwise.
    pub fn prepare(&mut self, tokens: &[usize]) -> Result<Prepared<'_, 'a>> {
        let sections = self.sections(tokens)?;
        self.set_up()?;
        self.pair.prepare_to_hold(&sections)?;
        self.pair.ask(&Message::Hold(numbers(&sections)))?;
        let held = self.pair.hold(sections)?;
        Ok(Prepared { held: Some(held), tokens: tokens.to_vec(), client: self })
    }

    /// Unused keys for texts of so many tokens, one after the other.
    fn sections(&self, tokens: &[usize]) -> Result<Vec<usize>> {
        if !(1..=MOST_SECTIONS).contains(&tokens.len()) {
            let what = format!("{} texts in one batch: there may be 1 to {MOST_SECTIONS}", tokens.len());
            return Err(Error::Unsupported { gate: "a batch", what });
        }
        let mut taken: BTreeMap<usize, usize> = BTreeMap::new();
        let section = |&tokens: &usize| {
            let before = taken.entry(tokens).or_default();
            *before += 1;
            self.pair.keys().unused(tokens as u32).nth(*before - 1).ok_or(Error::NoKeys { tokens })
        };
        tokens.iter().map(section).collect()
    }

    fn inputs(&self, texts: &[Tokens]) -> Result<Vec<Inputs>> {
        let model = self.pair.model();
        texts.iter().map(|text| Ok(vec![Some(model.encode(text)?)])).collect()
    }

    /// A summary of the session so far.
    pub fn summary(&self) -> Summary {
        self.pair.summary()
    }

    /// Where the time of the last inference went, part by part of the model. None before the first.
    pub fn parts(&self) -> &[PartTime] {
        self.pair.parts()
    }

    /// Says goodbye.
    pub fn finish(mut self) -> Result<Summary> {
        self.pair.send(&Message::Done)?;
        self.pair.link.flush()?;
        Ok(self.summary())
    }
}

/// Keys in memory on both sides, for texts that are yet to come.
pub struct Prepared<'b, 'a> {
    client: &'b mut Client<'a>,
    /// Until they are used.
    held: Option<Held>,
    tokens: Vec<usize>,
}

impl Drop for Prepared<'_, '_> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.client.pair.let_go(held);
        }
    }
}

impl Prepared<'_, '_> {
    /// Runs texts of the lengths that were prepared for through the model, as [`Client::infer`] does.
    pub fn infer<T: Clone + Into<Tokens>>(mut self, texts: &[T]) -> Result<Vec<Vec<u64>>> {
        let tokens = &self.tokens;
        let texts: Vec<Tokens> = texts.iter().cloned().map(T::into).collect();
        if texts.len() != tokens.len()
            || texts.iter().zip(tokens).any(|(text, &tokens)| text.ids().len() != tokens)
        {
            let what = format!("keys are held for texts of {tokens:?} tokens, others are given");
            return Err(Error::Unsupported { gate: "a batch", what });
        }
        let inputs = self.client.inputs(&texts)?;
        let Some(held) = self.held.take() else { return Err(Error::NoWeights) };
        self.client.pair.send(&Message::Begin)?;
        results(self.client.pair.infer_with(held, inputs)?)
    }
}

/// As they are written in a message.
fn numbers(sections: &[usize]) -> Vec<u32> {
    sections.iter().map(|&section| section as u32).collect()
}

fn indices(sections: Vec<u32>) -> Vec<usize> {
    sections.into_iter().map(|section| section as usize).collect()
}

fn results(outputs: Vec<Option<Vec<u64>>>) -> Result<Vec<Vec<u64>>> {
    let missing = || Error::OutOfStep { what: "the client's result is missing".into() };
    outputs.into_iter().map(|output| output.ok_or_else(missing)).collect()
}

fn hello(keys: &KeyFile, link: &Link) -> Hello {
    let header = keys.header();
    let (party, session, model, weights) = (header.party, header.session, header.model, header.weights);
    let hello = Hello { party, session, model, weights, ledger: keys.ledger.bits(), proof: [0; 32] };
    let proof = *scrubbed(|| hello.prove(&header.pairing, link.binding())).as_bytes();
    Hello { proof, ..hello }
}

fn expect_hello(link: &mut Link, party: Party) -> Result<Hello> {
    match Message::decode(&link.receive_greeting()?)? {
        Message::Hello(hello) if hello.party == party => Ok(hello),
        Message::Hello(hello) => {
            Err(Error::Peer { what: format!("it is party {}, as this side is", hello.party) })
        }
        Message::Refusal(why) => Err(Error::Refused { why }),
        other => Err(Error::Peer { what: format!("it sent {other} where a greeting belongs") }),
    }
}

/// Believes a greeting, or says why not. The ledger is compared last, when it is certain whose it is.
fn accept(model: &PublicModel, keys: &mut KeyFile, link: &mut Link, theirs: &Hello) -> Result<()> {
    let header = keys.header();
    let refused = |what: &str| Err(Error::Peer { what: what.to_owned() });
    if theirs.session != header.session {
        return refused("it has keys of another deal than this side");
    }
    // In constant time, as `blake3::Hash` compares.
    let proof = scrubbed(|| theirs.prove(&header.pairing, link.binding()));
    if proof != blake3::Hash::from_bytes(theirs.proof) {
        return refused("it does not hold the other half of these keys");
    }
    if (theirs.model, theirs.weights) != (header.model, header.weights) {
        return refused("its keys are for another model");
    }
    if (header.model, header.weights) != (model.graph_hash(), model.weights_hash()) {
        return Err(Error::Key { what: "it is for another model than the one that is given".into() });
    }
    if header.format != model.format() {
        return Err(FssError::Format {
            keys: header.format.to_string(),
            circuit: model.format().to_string(),
        }
        .into());
    }
    keys.catch_up(&theirs.ledger)
}

/// Tells the other side why, without what is nobody else's business, and waits until it is told.
fn refuse(link: &mut Link, error: Error) -> Error {
    let words = match &error {
        Error::File { .. } | Error::KeyFile { .. } => {
            "its key file cannot be used: another session has it, it is damaged, or its disk is full; its own log says which"
                .to_owned()
        }
        other => other.to_string(),
    };
    if !matches!(error, Error::Closed | Error::Refused { .. } | Error::Timeout { .. } | Error::Tls { .. }) {
        // What follows is that the link closes, whether or not the other side still listens.
        let told = link.send(Message::Refusal(words).encode()).and_then(|()| link.flush());
        if let Err(failed) = told {
            tracing::debug!("the refusal was not delivered: {failed}");
        }
    }
    error
}
