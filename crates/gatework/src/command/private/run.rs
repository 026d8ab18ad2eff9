//! `gatework private run`.

use std::collections::BTreeMap;

use gatework_fss::executor::run_clear;
use gatework_fss::{Party, backend_on};
use gatework_gpu::Target;
use gatework_private::disk::KeyFile;
use gatework_private::graph::Head;
use gatework_private::model::{Checkpoint, Options, Owner, PublicModel, Tokens};
use gatework_private::net::{CertificateFiles, Link};
use gatework_private::roles::{Client, Loopback};
use serde::Serialize;

use crate::command::ending::{Ending, Failure};
use crate::command::interrupt::SecretFolder;
use crate::command::progress::{Jobs, Progress};
use crate::command::schema;
use crate::command::shell::Shell;

use super::answer::{self, Answer};
use super::bundled;
use super::check::{Bite, Both};
use super::options::RunOptions;
use super::public_model;
use super::summary::Told;
use super::texts::{Text, Texts, TokenizerOf};
use super::timeline::{StageTime, Timeline};
use super::weights::checkpoint;

/// Texts of one request: what both sides hold of each is in memory until all are done.
const BATCH: usize = 16;

#[derive(Serialize)]
struct Document {
    results: Vec<Answer>,
    summary: Told,
    /// The stages of the session: masked weights, and of each request the parts of the model.
    stages: Vec<StageTime>,
    #[serde(flatten)]
    check: Option<Check>,
}

impl schema::Document for Document {
    const SCHEMA: schema::Schema = schema::PRIVATE_RUN;
}

/// What a result was held against, where that was asked.
#[derive(Serialize)]
struct Check {
    /// Whether the clear evaluation gives the same, bit for bit.
    equal_in_clear: bool,
    /// How far the model in fixed point is from the checkpoint in double precision, for the texts as they
    /// were given.
    largest_difference: f64,
    clamps_that_bite: Vec<Bite>,
}

impl Check {
    fn lines(&self) -> String {
        let equal = if self.equal_in_clear { "the same, bit for bit" } else { "something else" };
        let mut lines = format!(
            "\nthe clear evaluation gives {equal}\nthe checkpoint in double precision is off by {:.2e} at most",
            self.largest_difference
        );
        self.clamps_that_bite.iter().for_each(|bite| lines.push_str(&bite.line()));
        lines
    }
}

/// What came of the texts: the words of each result, and the tokens that were added to each text.
struct Inferred {
    words: Vec<Vec<u64>>,
    generated: Vec<Vec<u32>>,
    told: Told,
    stages: Vec<StageTime>,
}

pub(super) fn run(options: &RunOptions, shell: &Shell) -> Result<Ending, Failure> {
    let (texts, (model, inferred, check)) = if options.local {
        let of = options.model.as_deref().map_or(TokenizerOf::Bundled, TokenizerOf::Folder);
        let texts = Texts::read(&options.texts, of)?;
        let done = local(options, &texts, shell)?;
        (texts, done)
    } else {
        let public = required(&options.public)?;
        let texts = Texts::read(&options.texts, TokenizerOf::Public(public))?;
        let model = public_model(public)?;
        let inferred = remote(options, &model, &texts, shell)?;
        (texts, (model, inferred, None))
    };
    let mut results = Vec::new();
    for ((text, words), generated) in texts.texts.iter().zip(&inferred.words).zip(inferred.generated) {
        results.push(Answer::new(&model, &texts, text, generated, words)?);
    }
    let document = Document { results, summary: inferred.told, stages: inferred.stages, check };
    shell.output.show(&document, || {
        let check = document.check.as_ref().map(Check::lines).unwrap_or_default();
        format!("{}\n\n{}{check}", answer::lines(&document.results), document.summary.lines())
    })?;
    let holds = document.check.is_none_or(|check| check.equal_in_clear);
    Ok(if holds { Ending::Done } else { Ending::GateFailed })
}

/// What clap has made sure of.
fn required<T>(option: &Option<T>) -> Result<&T, Failure> {
    option.as_ref().ok_or_else(|| Failure::input("an option is missing".into()))
}

fn remote(
    options: &RunOptions,
    model: &PublicModel,
    texts: &Texts,
    shell: &Shell,
) -> Result<Inferred, Failure> {
    let progress = &shell.progress;
    let target = options.memory.limited(shell.target()?)?;
    let backend = backend_on(&target)?;
    let identity = options.identity.load(CertificateFiles::client)?;
    let address = required(&options.connect)?;
    let no_port = || Failure::input(format!("--connect {address}: it has no port; write {address}:7117"));
    let (host, _) = address.rsplit_once(':').ok_or_else(no_port)?;
    let name = options.server_name.as_deref().unwrap_or(host).trim_matches(['[', ']']);
    let keys = KeyFile::open(required(&options.keys)?, Party::One)?;
    let jobs = progress.start(2 + options.generate.max(1));
    jobs.doing(format!("connecting to {address}"));
    let link = Link::connect(address, name, &identity, options.identity.timeouts())?;
    let client = Client::on(model, backend, keys, link)?.keeping_weights();
    jobs.done();
    infer(model, client, texts, options.generate, (progress, &target), &jobs)
}

/// Sends all texts in one batch; with `generate`, again with the word that was found, so many times.
fn infer<'a>(
    model: &'a PublicModel,
    client: Client<'a>,
    texts: &Texts,
    generate: usize,
    (progress, target): (&'a Progress, &Target),
    jobs: &Jobs<'_>,
) -> Result<Inferred, Failure> {
    let scores_words = matches!(model.head(), Head::NextWord | Head::EveryWord);
    if generate > 0 && !scores_words {
        return Err(Failure::input("--generate needs a model that scores words, as GPT-2 does".into()));
    }
    require_keys(&client, texts, generate)?;
    let timeline = Timeline::beside(progress);
    let mut client = client.observed(&timeline);
    client.set_up()?;
    jobs.done();
    let mut running: Vec<Tokens> = texts.texts.iter().map(|text| text.tokens.clone()).collect();
    let mut generated = vec![Vec::new(); running.len()];
    let mut words = Vec::new();
    for round in 0..generate.max(1) {
        if generate > 0 {
            jobs.doing(format!("word {} of {generate}", round + 1));
        }
        words.clear();
        for batch in running.chunks(BATCH) {
            words.extend(client.infer(batch)?);
        }
        for (((running, text), words), generated) in
            running.iter_mut().zip(&texts.texts).zip(&words).zip(&mut generated)
        {
            if generate > 0 {
                generated.push(model.next_token(words)?);
                *running = text.followed_by(generated)?;
            }
        }
        jobs.done();
    }
    let told = Told::new(client.summary()).with_device_of(target);
    // The results are here, whether or not the farewell arrives.
    if let Err(error) = client.finish() {
        tracing::warn!("the server was not told that this is all: {error}");
    }
    Ok(Inferred { words, generated, told, stages: timeline.stages() })
}

/// Says now what would otherwise be found when half of the keys are used up.
fn require_keys(client: &Client<'_>, texts: &Texts, generate: usize) -> Result<(), Failure> {
    let mut needed: BTreeMap<usize, usize> = BTreeMap::new();
    for text in &texts.texts {
        (0..generate.max(1)).for_each(|added| *needed.entry(text.len() + added).or_default() += 1);
    }
    for (tokens, count) in needed {
        let left = client.keys().unused(tokens as u32).count();
        if left < count {
            return Err(Failure::input(format!(
                "{count} keys for texts of {tokens} tokens are needed, and {left} are left: have more dealt"
            )));
        }
    }
    Ok(())
}

/// Deals, serves and runs in one process, over a real connection to itself, with files in a folder that goes
/// away.
fn local(
    options: &RunOptions,
    texts: &Texts,
    shell: &Shell,
) -> Result<(PublicModel, Inferred, Option<Check>), Failure> {
    let (progress, target) = (&shell.progress, options.memory.limited(shell.target()?)?);
    // Each party has a queue of its own.
    let backends = [backend_on(&target)?, backend_on(&target)?];
    let lengths = || texts.texts.iter().map(Text::len);
    let dealt: Vec<usize> =
        (0..options.generate.max(1)).flat_map(|added| lengths().map(move |length| length + added)).collect();
    let longest = dealt.iter().copied().max().unwrap_or(1);
    let jobs = progress.start(4 + options.generate.max(1));
    let checkpoint = match &options.model {
        Some(folder) => {
            jobs.doing(format!("reading {}", folder.display()));
            checkpoint(folder)?
        }
        None => {
            progress.say(bundled::NOTICE);
            bundled::checkpoint()?
        }
    };
    jobs.done();
    jobs.doing("measuring the weights".into());
    let model = checkpoint.public(longest, &Options::default())?;
    let owner = Owner::new(&model, checkpoint.weights(&model)?)?;
    let checkpoint = options.check.then_some(checkpoint);
    jobs.done();
    jobs.doing("dealing".into());
    let place = SecretFolder::new(None)
        .map_err(|error| Failure::input(format!("no folder for keys can be made: {error}; set TMPDIR")))?;
    let roles = Loopback::new(&owner, place.path())?.on(backends).with_timeouts(options.identity.timeouts());
    roles.deal(&dealt, progress)?;
    jobs.done();
    let inferred =
        roles.ask(|client| infer(&model, client, texts, options.generate, (progress, &target), &jobs))?;
    let check = match checkpoint {
        Some(checkpoint) => Some(check(&checkpoint, &model, &owner, texts, &inferred)?),
        None => None,
    };
    Ok((model, inferred, check))
}

fn check(
    checkpoint: &Checkpoint,
    model: &PublicModel,
    owner: &Owner,
    texts: &Texts,
    inferred: &Inferred,
) -> Result<Check, Failure> {
    let (both, mut bites) = (Both::new(checkpoint, model)?, BTreeMap::new());
    let mut largest_difference = 0.0f64;
    for text in &texts.texts {
        largest_difference = largest_difference.max(both.check(text, &mut bites)?.largest_difference);
    }
    Ok(Check {
        equal_in_clear: equal_in_clear(model, owner, texts, inferred)?,
        largest_difference,
        clamps_that_bite: bites.into_values().collect(),
    })
}

fn equal_in_clear(
    model: &PublicModel,
    owner: &Owner,
    texts: &Texts,
    inferred: &Inferred,
) -> Result<bool, Failure> {
    let clear = || -> Result<bool, Failure> {
        let whole = model.network(model.longest())?;
        let weights =
            run_clear(&whole.set_up(), owner.set_up_inputs()).map_err(gatework_private::Error::from)?.output;
        for ((text, generated), words) in texts.texts.iter().zip(&inferred.generated).zip(&inferred.words) {
            let tokens = text.followed_by(&generated[..generated.len().saturating_sub(1)])?;
            let network = model.network(tokens.ids().len())?;
            let given = vec![Some(model.encode(&tokens)?)];
            let found =
                run_clear(&network.inference(&weights), given).map_err(gatework_private::Error::from)?;
            if found.output.as_ref() != Some(words) {
                return Ok(false);
            }
        }
        Ok(true)
    };
    clear()
}
