//! Checkpoints of Hugging Face's, in clear and by two parties.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use gatework_fss::backend::Backend;
use gatework_fss::executor::{
    Circuit, Inputs, Limits, MemoryChannel, Plan, deal, estimate, evaluate, run_clear, run_in_process_on,
};
use gatework_fss::{Cost, CpuBackend, Party, Randomness, backend_on};
use gatework_gpu::{Device, Target};
use gatework_private::circuit::{ModelWeights, Network};
use gatework_private::graph::Head;
use gatework_private::model::{Checkpoint, Options, Owner, PublicModel, Tokens};
use half::{bf16, f16};
use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
use serde_json::Value;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn expected(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(fixture(name).join("expected.json")).unwrap()).unwrap()
}

fn numbers<T>(value: &Value, number: impl Fn(&Value) -> Option<T>) -> Vec<T> {
    value.as_array().unwrap().iter().map(|entry| number(entry).unwrap()).collect()
}

fn ids(value: &Value) -> Vec<u32> {
    numbers(value, |id| id.as_u64().map(|id| id as u32))
}

fn reals(value: &Value) -> Vec<f64> {
    numbers(value, Value::as_f64)
}

/// A checkpoint and all that its owner makes of it.
struct Opened {
    public: PublicModel,
    owner: Owner,
    in_clear: ModelWeights,
}

impl Opened {
    fn new(directory: &Path, longest: usize, options: Options) -> Self {
        let checkpoint = Checkpoint::load(directory).unwrap();
        let public = checkpoint.public(longest, &options).unwrap();
        let owner = Owner::new(&public, checkpoint.weights(&public).unwrap()).unwrap();
        let network = public.network(longest).unwrap();
        let in_clear = run_clear(&network.set_up(), owner.set_up_inputs()).unwrap().output;
        Self { public, owner, in_clear }
    }

    fn fixture(name: &str, longest: usize, head: Option<Head>) -> Self {
        Self::new(&fixture(name), longest, Options { head, ..Options::default() })
    }

    fn words(&self, ids: &[u32]) -> Vec<u64> {
        let network = self.public.network(ids.len()).unwrap();
        let tokens = self.public.encode_tokens(ids).unwrap();
        run_clear(&network.inference(&self.in_clear), vec![Some(tokens)]).unwrap().output.unwrap()
    }

    fn numbers(&self, ids: &[u32]) -> Vec<f64> {
        let numbers = self.public.decode(ids.len(), &self.words(ids)).unwrap();
        numbers.into_iter().map(f64::from).collect()
    }
}

fn furthest(found: &[f64], exact: &[f64]) -> f64 {
    assert_eq!(found.len(), exact.len());
    found.iter().zip(exact).map(|(found, exact)| (found - exact).abs()).fold(0.0, f64::max)
}

#[test]
fn bert_classifies_as_transformers_does() {
    let expected = expected("bert");
    let bert = Opened::fixture("bert", 128, None);
    assert_eq!(bert.public.head(), Head::Classes(2));
    let tokens = Opened::fixture("bert", 128, Some(Head::Tokens));
    let mut worst = [0f64; 2];
    for row in 0..3 {
        let seen = ids(&expected["attention_mask"][row]).iter().filter(|&&mask| mask == 1).count();
        let ids = &ids(&expected["input_ids"][row])[..seen];
        let logits = reals(&expected["logits"][row]);
        let found = bert.numbers(ids);
        worst[0] = worst[0].max(furthest(&found, &logits));
        assert_eq!(found[0] < found[1], logits[0] < logits[1]);
        let hidden = reals(&expected["last_hidden_cls"][row]);
        worst[1] = worst[1].max(furthest(&tokens.numbers(ids)[..hidden.len()], &hidden));
    }
    println!(
        "BERT in {} bits, {} clamps: logits within {:.4}, hidden states within {:.4}",
        bert.public.format().ring.bits(),
        bert.public.clamps(),
        worst[0],
        worst[1]
    );
    assert!(worst[0] < 0.05 && worst[1] < 0.05, "{worst:?}");
}

#[test]
fn gpt2_scores_and_continues_as_transformers_does() {
    let expected = expected("gpt2");
    let gpt2 = Opened::fixture("gpt2", 64, Some(Head::EveryWord));
    let (mut worst, mut same, mut all) = (0f64, 0, 0);
    for row in 0..2 {
        let given = ids(&expected["input_ids"][row]);
        let found = gpt2.numbers(&given);
        let (_, columns) = gpt2.public.output_shape(given.len());
        worst = worst.max(furthest(&found[found.len() - columns..], &reals(&expected["logits_last"][row])));
        for (scores, best) in found.chunks(columns).zip(ids(&expected["argmax_all"][row])) {
            let found = (0..columns).max_by(|&a, &b| scores[a].total_cmp(&scores[b]));
            same += usize::from(found == Some(best as usize));
            all += 1;
        }
    }
    println!(
        "GPT-2 in {} bits, {} clamps: logits within {worst:.4}, {same} of {all} words the same",
        gpt2.public.format().ring.bits(),
        gpt2.public.clamps()
    );
    assert!(worst < 0.05 && same * 100 >= all * 95, "{worst}, {same} of {all}");

    let next = Opened::fixture("gpt2", 64, None);
    assert_eq!(next.public.head(), Head::NextWord);
    let greedy = ids(&expected["greedy"][0]);
    let mut sequence = greedy[..8].to_vec();
    while sequence.len() < greedy.len() {
        sequence.push(next.public.next_token(&next.words(&sequence)).unwrap());
    }
    assert_eq!(sequence, greedy);
}

/// What `private check` holds fixed point against is what Hugging Face computes, up to its single precision.
#[test]
fn double_precision_is_what_transformers_computes() {
    let expected = |name| expected(name);
    let exact = |name: &str, head: Option<Head>, ids: &[u32]| {
        let checkpoint = Checkpoint::load(&fixture(name)).unwrap();
        let longest = if name == "bert" { 128 } else { 64 };
        let public = checkpoint.public(longest, &Options { head, ..Options::default() }).unwrap();
        let exact = checkpoint.exact_weights(&public).unwrap().evaluate(&public, &ids.into()).unwrap();
        assert_eq!(exact.clamped, []);
        (exact.numbers, public.output_shape(ids.len()).1)
    };
    let (bert, gpt2) = (expected("bert"), expected("gpt2"));
    for row in 0..3 {
        let seen = ids(&bert["attention_mask"][row]).iter().filter(|&&mask| mask == 1).count();
        let ids = &ids(&bert["input_ids"][row])[..seen];
        let off = furthest(&exact("bert", None, ids).0, &reals(&bert["logits"][row]));
        let (states, width) = exact("bert", Some(Head::Tokens), ids);
        let hidden = furthest(&states[..width], &reals(&bert["last_hidden_cls"][row])[..width]);
        assert!(off < 1e-5 && hidden < 1e-5, "{off:e}, {hidden:e}");
        let (mean, _) = exact("bert", Some(Head::Mean), ids);
        let sums: Vec<f64> =
            (0..width).map(|column| states.iter().skip(column).step_by(width).sum()).collect();
        let means: Vec<f64> = sums.into_iter().map(|sum: f64| sum / seen as f64).collect();
        assert!(furthest(&mean, &means) < 1e-12);
    }
    for row in 0..2 {
        let given = ids(&gpt2["input_ids"][row]);
        let (scores, words) = exact("gpt2", Some(Head::EveryWord), &given);
        let off = furthest(&scores[scores.len() - words..], &reals(&gpt2["logits_last"][row]));
        assert!(off < 1e-5, "{off:e}");
        assert!(furthest(&exact("gpt2", None, &given).0, &scores[scores.len() - words..]) < 1e-12);
    }
}

/// Pairs of sentences: a token's type is as secret as the token, and counts as the checkpoint says.
#[test]
fn types_of_tokens_count_as_in_the_checkpoint() {
    let checkpoint = Checkpoint::load(&fixture("bert")).unwrap();
    let bert = Opened::fixture("bert", 16, None);
    let exact = checkpoint.exact_weights(&bert.public).unwrap();
    let ids = vec![3, 17, 5, 23, 8, 40, 9];
    let of = |types: [u32; 7]| Tokens::typed(ids.clone(), types.to_vec()).unwrap();
    let (one, pair) = (of([0; 7]), of([0, 0, 0, 1, 1, 1, 1]));
    assert_eq!(one, ids.clone().into());
    let fixed = |text: &Tokens| {
        let network = bert.public.network(7).unwrap();
        let given = vec![Some(bert.public.encode(text).unwrap())];
        let words = run_clear(&network.inference(&bert.in_clear), given).unwrap().output.unwrap();
        bert.public.decode(7, &words).unwrap().into_iter().map(f64::from).collect::<Vec<_>>()
    };
    for text in [&one, &pair] {
        let off = furthest(&fixed(text), &exact.evaluate(&bert.public, text).unwrap().numbers);
        assert!(off < 0.05, "{off}");
    }
    assert!(furthest(&fixed(&one), &fixed(&pair)) > 0.05, "the types change nothing");
    assert!(bert.public.encode(&of([2; 7])).is_err() && Tokens::typed(vec![1], vec![]).is_err());
    let gpt2 = Opened::fixture("gpt2", 8, None);
    assert!(gpt2.public.encode(&of([0; 7])).is_ok() && gpt2.public.encode(&pair).is_err());
}

/// What a network gives to both parties, with weights and inference in one circuit.
fn in_process(model: &Opened, ids: &[u32]) -> Vec<u64> {
    let host: Arc<dyn Backend> = Arc::new(CpuBackend);
    in_process_on([host.clone(), host], model, ids)
}

/// The same, with each party on a backend of its own.
fn in_process_on(backends: [Arc<dyn Backend>; 2], model: &Opened, ids: &[u32]) -> Vec<u64> {
    let network = model.public.network(ids.len()).unwrap();
    let mut inputs: [Inputs; 2] = [model.owner.set_up_inputs(), Vec::new()];
    inputs[1].resize(inputs[0].len(), None);
    inputs[0].push(None);
    inputs[1].push(Some(model.public.encode_tokens(ids).unwrap()));
    let [zero, one] = run_in_process_on(backends, model.public.format(), network, inputs).unwrap();
    assert_eq!(zero.output, None, "the owner learns nothing");
    one.output.unwrap()
}

#[test]
fn two_parties_compute_what_is_computed_in_clear() {
    for (name, head) in [
        ("bert", None),
        ("bert", Some(Head::Mean)),
        ("bert", Some(Head::Tokens)),
        ("gpt2", None),
        ("gpt2", Some(Head::EveryWord)),
    ] {
        let model = Opened::fixture(name, 8, head);
        for ids in [&[5, 900, 31, 7][..], &[6]] {
            assert_eq!(in_process(&model, ids), model.words(ids), "{name} {head:?} {ids:?}");
        }
    }
    // A ring that is too narrow for the norms, so that operands are clamped.
    let clamped = Opened::new(&fixture("bert"), 8, Options { bits: Some(38), ..Options::default() });
    assert!(clamped.public.clamps() > 0);
    assert_eq!(in_process(&clamped, &[5, 900, 31]), clamped.words(&[5, 900, 31]));
}

#[test]
fn whole_models_on_the_emulated_device_give_what_is_computed_in_clear() {
    let device = Device::emulated(2).unwrap();
    let on = |target: &Target| backend_on(target).unwrap();
    let (cpu, gpu) = (Target::Cpu, Target::Gpu(device.clone()));
    for (name, ids, targets) in [
        ("bert", &[5, 900, 31][..], [&gpu, &cpu]),
        ("gpt2", &[17, 4], [&cpu, &gpu]),
        ("bert", &[6], [&gpu, &gpu]),
    ] {
        let model = Opened::fixture(name, 4, None);
        let started = Instant::now();
        assert_eq!(in_process_on(targets.map(on), &model, ids), model.words(ids), "{name} {ids:?}");
        println!("{name}, {} tokens, {targets:?}: {:.1} s", ids.len(), started.elapsed().as_secs_f64());
    }
    assert_eq!(device.budget().held(), 0, "everything was let go of");
}

/// What both parties of one circuit gave, with keys dealt for it.
struct Both<T> {
    dealer: T,
    parties: [T; 2],
    cost: Cost,
    deal_s: f64,
    evaluate_s: f64,
}

/// Circuits of one deal, in one batch; `inputs` has a party's for each of them.
fn run_parties<C>(
    public: &PublicModel,
    dealer: &[C],
    parties: [&[C]; 2],
    inputs: [Vec<Inputs>; 2],
) -> Both<Vec<C::Output>>
where
    C: Circuit<Output: Send> + Sync,
{
    let started = Instant::now();
    let dealt = deal(&mut Randomness::from_os().unwrap(), public.format(), dealer).unwrap();
    let (deal_s, started) = (started.elapsed().as_secs_f64(), Instant::now());
    let plan = Plan::new(Limits::default(), &dealt.costs());
    let streams = &dealt.streams;
    let run = |party: Party, mut channel: MemoryChannel, inputs: Vec<Inputs>| -> Vec<C::Output> {
        let keys = streams[party.index()].insecure_copy_for_measurements().unwrap();
        let backend: Arc<dyn Backend> = Arc::new(CpuBackend);
        let jobs = parties[party.index()].iter().zip(inputs).collect();
        let outputs = evaluate(party, keys, &backend, &mut channel, &plan, jobs).unwrap();
        outputs.into_iter().map(|local| local.output).collect()
    };
    let [zero, one] = MemoryChannel::pair();
    let [zero_inputs, one_inputs] = inputs;
    let parties = std::thread::scope(|scope| {
        let peer = scope.spawn(|| run(Party::One, one, one_inputs));
        [run(Party::Zero, zero, zero_inputs), peer.join().unwrap()]
    });
    let mut cost = dealt.costs().into_iter().fold(Cost::default(), |sum, cost| sum + cost);
    // Jobs of a batch share their messages.
    cost.rounds = dealt.costs().iter().map(|cost| cost.rounds).max().unwrap_or(0);
    let dealer = dealt.outputs.into_iter().map(|local| local.output).collect();
    Both { dealer, parties, cost, deal_s, evaluate_s: started.elapsed().as_secs_f64() }
}

/// The weights of a model at the dealer and at both parties.
struct Shared<'a> {
    model: &'a Opened,
    dealer: ModelWeights,
    parties: [ModelWeights; 2],
}

impl<'a> Shared<'a> {
    fn new(model: &'a Opened) -> Self {
        let network = model.public.network(model.public.longest()).unwrap();
        let inputs = [vec![model.owner.set_up_inputs()], vec![Vec::new()]];
        let circuit = [network.set_up()];
        let mut both = run_parties(&model.public, &circuit, [&circuit, &circuit], inputs);
        println!("set-up: {}", summary(&both));
        Self {
            model,
            dealer: both.dealer.remove(0),
            parties: both.parties.map(|mut outputs| outputs.remove(0)),
        }
    }

    /// What the client learns of each sequence, all of them in one batch.
    fn infer(&self, sequences: &[&[u32]]) -> Vec<Vec<u64>> {
        let public = &self.model.public;
        let networks: Vec<Network> = sequences.iter().map(|ids| public.network(ids.len()).unwrap()).collect();
        let of = |weights| networks.iter().map(|network| network.inference(weights)).collect::<Vec<_>>();
        let [zero, one] = self.parties.each_ref().map(of);
        let tokens = sequences.iter().map(|ids| vec![Some(public.encode_tokens(ids).unwrap())]).collect();
        let inputs = [vec![vec![None]; sequences.len()], tokens];
        let both = run_parties(public, &of(&self.dealer), [&zero, &one], inputs);
        let lengths: Vec<usize> = sequences.iter().map(|ids| ids.len()).collect();
        println!("{lengths:?} tokens: {}", summary(&both));
        let [owner, client] = both.parties;
        assert!(owner.iter().all(Option::is_none), "the owner learns nothing");
        client.into_iter().map(Option::unwrap).collect()
    }
}

fn summary<T>(both: &Both<T>) -> String {
    format!(
        "dealt in {:.2} s, evaluated in {:.2} s; {:.1} and {:.1} MB of keys, {:.1} MB sent, {} rounds",
        both.deal_s,
        both.evaluate_s,
        both.cost.key_bytes[0] as f64 / 1e6,
        both.cost.key_bytes[1] as f64 / 1e6,
        both.cost.traffic_bytes() as f64 / 1e6,
        both.cost.rounds
    )
}

#[test]
fn weights_that_were_set_up_once_serve_every_length() {
    let model = Opened::fixture("gpt2", 6, None);
    let shared = Shared::new(&model);
    let sequences = [&[3][..], &[9, 8, 7, 6, 5, 4], &[1000, 2]];
    let expected: Vec<Vec<u64>> = sequences.iter().map(|ids| model.words(ids)).collect();
    for (ids, words) in sequences.iter().zip(&expected) {
        assert_eq!(shared.infer(&[ids]), std::slice::from_ref(words));
    }
    assert_eq!(shared.infer(&sequences), expected, "all in one batch");
}

/// A fixture's tensors as another type, and their names without a prefix; and the same numbers as they were.
fn rewritten(name: &str, prefix: &str, dtype: Dtype) -> [Checkpoint; 2] {
    let read = |file: &str| std::fs::read(fixture(name).join(file)).unwrap();
    let (config, file) = (read("config.json"), read("model.safetensors"));
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let (mut short, mut rounded) = (Vec::new(), Vec::new());
    for (name, tensor) in tensors.tensors() {
        let values = tensor.data().chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap()));
        let (halves, wide): (Vec<[u8; 2]>, Vec<[u8; 4]>) = values
            .map(|value| match dtype {
                Dtype::F16 => {
                    (f16::from_f32(value).to_le_bytes(), f16::from_f32(value).to_f32().to_le_bytes())
                }
                _ => (bf16::from_f32(value).to_le_bytes(), bf16::from_f32(value).to_f32().to_le_bytes()),
            })
            .unzip();
        let shape = tensor.shape().to_vec();
        short.push((name.trim_start_matches(prefix).to_owned(), dtype, shape.clone(), halves.concat()));
        rounded.push((name, Dtype::F32, shape, wide.concat()));
    }
    [short, rounded].map(|tensors| {
        let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
            (name.as_str(), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
        });
        Checkpoint::from_bytes(&config, serialize(views, None).unwrap()).unwrap()
    })
}

#[test]
fn names_and_types_of_tensors_may_differ() {
    for (name, prefix) in [("bert", "bert."), ("gpt2", "transformer.")] {
        for dtype in [Dtype::F16, Dtype::BF16] {
            let [short, rounded] = rewritten(name, prefix, dtype)
                .map(|checkpoint| checkpoint.public(6, &Options::default()).unwrap());
            assert_eq!(short, rounded, "{name}, {dtype:?}");
            let original = Checkpoint::load(&fixture(name)).unwrap().public(6, &Options::default()).unwrap();
            assert_ne!(original.weights_hash(), short.weights_hash(), "rounding changes the weights");
        }
    }
}

#[test]
fn the_weights_of_another_model_are_refused() {
    let (bert, gpt2) = (Opened::fixture("bert", 6, None), Opened::fixture("gpt2", 6, None));
    let network = gpt2.public.network(2).unwrap();
    let tokens = gpt2.public.encode_tokens(&[1, 2]).unwrap();
    assert!(run_clear(&network.inference(&bert.in_clear), vec![Some(tokens)]).is_err());
    let checkpoint = Checkpoint::load(&fixture("bert")).unwrap();
    let longer = checkpoint.public(7, &Options::default()).unwrap();
    let error = Owner::new(&longer, checkpoint.weights(&bert.public).unwrap()).err().unwrap().to_string();
    assert!(error.contains("hash"), "{error}");
}

#[test]
fn a_narrower_ring_is_not_what_was_made_public() {
    let checkpoint = Checkpoint::load(&fixture("bert")).unwrap();
    let public = checkpoint.public(8, &Options::default()).unwrap();
    assert_eq!(public.clamps(), 0);
    let bits = public.format().ring.bits();
    // The choices of the proved ring, claimed in one that is four bits narrower.
    let narrower =
        public.to_json().unwrap().replace(&format!("\"bits\": {bits}"), &format!("\"bits\": {}", bits - 4));
    let error = PublicModel::from_json(narrower.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("hash"), "{error}");
    let fixed = checkpoint.public(8, &Options { bits: Some(bits - 4), ..Options::default() }).unwrap();
    assert!(fixed.clamps() > 0);
    Owner::new(&fixed, checkpoint.weights(&fixed).unwrap()).unwrap();
}

#[test]
fn choices_for_the_longest_sequence_hold_for_shorter_ones() {
    for name in ["bert", "gpt2"] {
        let checkpoint = Checkpoint::load(&fixture(name)).unwrap();
        for bits in [None, Some(40)] {
            let public = checkpoint.public(24, &Options { bits, ..Options::default() }).unwrap();
            for tokens in [1, 2, 3, 5, 9, 17, 23, 24] {
                let network = public.network(tokens).unwrap();
                let weights = checkpoint.weights(&public).unwrap().integers();
                network.proved().holds_for(weights).unwrap();
                assert!(estimate(&network.inference(&ModelWeights::shapes(&network))).unwrap().rounds > 0);
            }
        }
    }
}

#[test]
fn clients_are_told_what_is_wrong_with_their_tokens() {
    let public = Opened::fixture("bert", 6, None).public;
    // A word and a type each.
    assert_eq!(public.encode_tokens(&[3, 0]).unwrap().iter().sum::<u64>(), 4);
    for (ids, what) in [(vec![], "0 tokens"), (vec![1; 7], "7 tokens"), (vec![5, 1024], "token 1024")] {
        let error = public.encode_tokens(&ids).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
    assert!(public.decode(6, &[0; 3]).is_err());
    assert!(public.next_token(&[0; 1024]).is_err());
    let network = public.network(2).unwrap();
    let weights = Opened::fixture("bert", 6, None).in_clear;
    let right = public.encode_tokens(&[3, 0]).unwrap();
    // Two words, no word, two types, no type.
    for (place, bit) in [(4, 1), (3, 0), (1025, 1), (1024, 0)] {
        let mut wrong = right.clone();
        wrong[place] = bit;
        let error = run_clear(&network.inference(&weights), vec![Some(wrong)]).unwrap_err().to_string();
        assert!(error.contains("row 0 is not one-hot"), "{error}");
    }
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    product(a, b) / (product(a, a) * product(b, b)).sqrt()
}

/// The real model, privately. Its directory is too large for the repository: `GATEWORK_MINILM` names it.
#[test]
#[ignore = "needs the directory of all-MiniLM-L6-v2 in GATEWORK_MINILM"]
fn minilm_embeds_sentences_as_transformers_does() {
    let directory = std::env::var_os("GATEWORK_MINILM").expect("GATEWORK_MINILM names the model's directory");
    let started = Instant::now();
    let model = Opened::new(Path::new(&directory), 64, Options::default());
    println!(
        "opened in {:.1} s: {} bits, {} clamps",
        started.elapsed().as_secs_f64(),
        model.public.format().ring.bits(),
        model.public.clamps()
    );
    let shared = Shared::new(&model);
    let expected = expected("minilm");
    let sentences = expected["sentences"].as_array().unwrap();
    let sequences: Vec<Vec<u32>> = sentences.iter().map(|sentence| ids(&sentence["input_ids"])).collect();
    let longest = sequences.iter().max_by_key(|ids| ids.len()).unwrap();
    shared.infer(&[&longest[..16]]);
    let found = shared.infer(&sequences.iter().map(Vec::as_slice).collect::<Vec<_>>());
    for ((ids, words), sentence) in sequences.iter().zip(&found).zip(sentences) {
        assert_eq!(*words, model.words(ids));
        let found: Vec<f64> =
            model.public.decode(ids.len(), words).unwrap().into_iter().map(f64::from).collect();
        let cosine = cosine(&found, &reals(&sentence["embedding"]));
        println!("cosine {cosine:.6}, {} tokens", ids.len());
        assert!(cosine >= 0.999, "{cosine}");
    }
}
