//! `gatework private check`: what fixed point makes of a model, beside the checkpoint in double precision.

use std::collections::BTreeMap;
use std::path::Path;

use gatework_fss::executor::run_clear;
use gatework_private::circuit::ModelWeights;
use gatework_private::graph::Head;
use gatework_private::model::{Checkpoint, ExactWeights, Options, Owner, PublicModel};
use serde::Serialize;

use crate::command::ending::{Ending, Failure};
use crate::command::output::table;
use crate::command::schema;
use crate::command::shell::Shell;

use super::options::CheckOptions;
use super::texts::{Text, Texts, TokenizerOf};
use super::weights::checkpoint;

#[derive(Serialize)]
struct Document {
    ring_bits: u32,
    texts: Vec<Checked>,
    /// Over all texts.
    largest_difference: f64,
    /// The same, over the largest number of the result in which it is.
    relative_difference: f64,
    /// Clamps that cut something off: fixed point then computes something else than the checkpoint.
    clamps_that_bite: Vec<Bite>,
    #[serde(skip_serializing_if = "Option::is_none")]
    accuracy: Option<Accuracy>,
}

impl schema::Document for Document {
    const SCHEMA: schema::Schema = schema::PRIVATE_CHECK;
}

/// What fixed point made of one text.
#[derive(Serialize)]
pub(super) struct Checked {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    tokens: usize,
    pub(super) largest_difference: f64,
    relative_difference: f64,
    /// Between the two results as vectors.
    cosine: f64,
    /// The class, or the next word, by the checkpoint and in fixed point, where the model chooses one.
    #[serde(skip_serializing_if = "Option::is_none")]
    chosen: Option<[usize; 2]>,
}

/// A clamp that cuts something off.
#[derive(Serialize)]
pub(super) struct Bite {
    tensor: String,
    largest: f64,
    limit: f64,
}

#[derive(Serialize)]
struct Accuracy {
    texts: usize,
    checkpoint: f64,
    fixed_point: f64,
    /// Texts of which both say the same.
    agreement: f64,
}

pub(super) fn run(options: &CheckOptions, shell: &Shell) -> Result<Ending, Failure> {
    let (texts, labels) = read(options)?;
    let longest = texts.texts.iter().map(Text::len).max().unwrap_or(1);
    let jobs = shell.progress.start(2 + texts.texts.len());
    jobs.doing(format!("reading {}", options.model.display()));
    let checkpoint = checkpoint(&options.model)?;
    jobs.done();
    jobs.doing("measuring the weights".into());
    let chosen = Options { head: options.head.map(Into::into), bits: options.bits, ..Options::default() };
    let public = checkpoint.public(longest, &chosen)?;
    if labels.is_some() && !matches!(public.head(), Head::Classes(_)) {
        return Err(Failure::input(
            "--labelled needs a model that classifies: this one gives no classes".into(),
        ));
    }
    let model = Both::new(&checkpoint, &public)?;
    drop(checkpoint);
    jobs.done();
    let (mut checked, mut bites) = (Vec::new(), BTreeMap::new());
    for text in &texts.texts {
        jobs.doing(format!("a text of {} tokens", text.len()));
        checked.push(model.check(text, &mut bites)?);
        jobs.done();
    }
    drop(jobs);
    let largest = |of: fn(&Checked) -> f64| checked.iter().map(of).fold(0.0, f64::max);
    let document = Document {
        ring_bits: public.format().ring.bits(),
        largest_difference: largest(|text| text.largest_difference),
        relative_difference: largest(|text| text.relative_difference),
        clamps_that_bite: bites.into_values().collect(),
        accuracy: labels.map(|labels| Accuracy::of(&checked, &labels)),
        texts: checked,
    };
    shell.output.show(&document, || document.text())?;
    let within = options.at_most.is_none_or(|most| document.largest_difference <= most);
    Ok(if within { Ending::Done } else { Ending::GateFailed })
}

/// The texts, and their classes where the file says them.
fn read(options: &CheckOptions) -> Result<(Texts, Option<Vec<usize>>), Failure> {
    let Some(path) = &options.labelled else {
        return Ok((Texts::read(&options.texts, TokenizerOf::Folder(&options.model))?, None));
    };
    let file = std::fs::read_to_string(path)
        .map_err(|error| Failure::input(format!("--labelled {}: {error}", path.display())))?;
    let (mut labels, mut texts) = (Vec::new(), options.texts.clone());
    for (number, line) in file.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let (label, text) = labelled(line).ok_or_else(|| wrong(path, number + 1))?;
        labels.push(label);
        texts.text.push(text.to_owned());
    }
    if labels.len() != texts.text.len() || texts.file.is_some() || !texts.ids.is_empty() {
        return Err(Failure::input(
            "--labelled brings its own texts: leave out --text, --file and --ids".into(),
        ));
    }
    Ok((Texts::read(&texts, TokenizerOf::Folder(&options.model))?, Some(labels)))
}

fn labelled(line: &str) -> Option<(usize, &str)> {
    let (label, text) = line.split_once('\t')?;
    Some((label.trim().parse().ok()?, text)).filter(|(_, text)| !text.trim().is_empty())
}

fn wrong(path: &Path, line: usize) -> Failure {
    Failure::input(format!(
        "--labelled {}: line {line} is not the number of a class, a tab and a text",
        path.display()
    ))
}

impl Bite {
    pub(super) fn line(&self) -> String {
        let Self { tensor, largest, limit } = self;
        format!(
            "\na clamp bites: '{tensor}' comes to {largest:.3}, and is cut off at {limit:.3}: the result is not the checkpoint's"
        )
    }
}

/// A model in fixed point, and as it is.
pub(super) struct Both<'a> {
    public: &'a PublicModel,
    fixed: ModelWeights,
    exact: ExactWeights,
}

impl<'a> Both<'a> {
    pub(super) fn new(checkpoint: &Checkpoint, public: &'a PublicModel) -> Result<Self, Failure> {
        let owner = Owner::new(public, checkpoint.weights(public)?)?;
        let whole = public.network(public.longest())?;
        let fixed =
            run_clear(&whole.set_up(), owner.set_up_inputs()).map_err(gatework_private::Error::from)?;
        Ok(Self { public, fixed: fixed.output, exact: checkpoint.exact_weights(public)? })
    }

    /// Evaluates a text both ways, and adds the clamps that cut something off to `bites`.
    pub(super) fn check(&self, text: &Text, bites: &mut BTreeMap<String, Bite>) -> Result<Checked, Failure> {
        let given = vec![Some(self.public.encode(&text.tokens)?)];
        let network = self.public.network(text.len())?;
        let words =
            run_clear(&network.inference(&self.fixed), given).map_err(gatework_private::Error::from)?;
        let words =
            words.output.ok_or_else(|| Failure::device("the clear evaluation gave nothing".into()))?;
        let fixed: Vec<f64> = self.public.decode(text.len(), &words)?.into_iter().map(f64::from).collect();
        let exact = self.exact.evaluate(self.public, &text.tokens)?;
        for (tensor, largest, limit) in exact.clamped {
            let bite = bites.entry(tensor.clone()).or_insert(Bite { tensor, largest, limit });
            bite.largest = bite.largest.max(largest);
        }
        Ok(Checked::of(text, self.public, &exact.numbers, &fixed))
    }
}

impl Checked {
    fn of(text: &Text, public: &PublicModel, exact: &[f64], fixed: &[f64]) -> Self {
        let size = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
        let difference = exact.iter().zip(fixed).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
        let largest = exact.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
        let product: f64 = exact.iter().zip(fixed).map(|(x, y)| x * y).sum();
        let columns = public.output_shape(text.len()).1;
        let choice = |x: &[f64]| {
            let last = &x[x.len() - columns..];
            (0..columns).max_by(|&a, &b| last[a].total_cmp(&last[b]).then(b.cmp(&a))).unwrap_or(0)
        };
        let chooses = matches!(public.head(), Head::Classes(_) | Head::NextWord | Head::EveryWord);
        Self {
            text: text.words.clone(),
            tokens: text.len(),
            largest_difference: difference,
            relative_difference: if largest == 0.0 { difference } else { difference / largest },
            cosine: product / (size(exact) * size(fixed)),
            chosen: chooses.then(|| [exact, fixed].map(choice)),
        }
    }
}

impl Accuracy {
    fn of(checked: &[Checked], labels: &[usize]) -> Self {
        let share = |is_so: &dyn Fn(&[usize; 2], usize) -> bool| {
            let chosen = checked.iter().filter_map(|text| text.chosen.as_ref()).zip(labels);
            chosen.filter(|&(chosen, &label)| is_so(chosen, label)).count() as f64
                / labels.len().max(1) as f64
        };
        Self {
            texts: labels.len(),
            checkpoint: share(&|chosen, label| chosen[0] == label),
            fixed_point: share(&|chosen, label| chosen[1] == label),
            agreement: share(&|chosen, _| chosen[0] == chosen[1]),
        }
    }
}

impl Document {
    fn text(&self) -> String {
        let mut rows =
            table(["tokens", "largest difference", "relative", "cosine", "checkpoint, fixed point"]);
        for text in &self.texts {
            rows.add_row([
                text.tokens.to_string(),
                format!("{:.2e}", text.largest_difference),
                format!("{:.2e}", text.relative_difference),
                format!("{:.6}", text.cosine),
                text.chosen.map_or_else(|| "-".to_owned(), |[exact, fixed]| format!("{exact}, {fixed}")),
            ]);
        }
        let mut text = format!(
            "{rows}\n\nIn a ring of {} bits, beside the checkpoint in double precision: off by {:.2e} at most, {:.2e} of the \
             largest number of the same result.",
            self.ring_bits, self.largest_difference, self.relative_difference
        );
        self.clamps_that_bite.iter().for_each(|bite| text.push_str(&bite.line()));
        if let Some(Accuracy { texts, checkpoint, fixed_point, agreement }) = &self.accuracy {
            text.push_str(&format!(
                "\n{texts} labelled texts: {:.2} % right by the checkpoint, {:.2} % in fixed point; both say the same of {:.2} %.",
                100.0 * checkpoint,
                100.0 * fixed_point,
                100.0 * agreement
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_labelled_line_is_a_class_a_tab_and_a_text() {
        assert_eq!(labelled("1\ta fine film"), Some((1, "a fine film")));
        for line in ["a fine film", "one\ta fine film", "1\t  ", "-1\tx", ""] {
            assert_eq!(labelled(line), None, "{line}");
        }
    }
}
