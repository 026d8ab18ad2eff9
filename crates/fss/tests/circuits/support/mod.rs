//! Two parties and a dealer in one process, compared with the clear evaluator and with the cost model.

pub mod opaque;
mod tampered;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;

use gatework_fss::backend::Backend;
use gatework_fss::executor::{
    Channel, Circuit, Dealer, Inputs, Limits, MemoryChannel, Plan, deal_on, estimate, evaluate, run_clear,
};
use gatework_fss::key::{KeySection, KeyStream};
use gatework_fss::secret::{Secret, SharedBytes};
use gatework_fss::{
    Cost, CpuBackend, FixedPoint, Message, Party, Randomness, Result, backend_on, section_key,
};
use gatework_gpu::{Device, Target};
use tampered::Tampered;

pub use tampered::{Missing, OpenedWords};

/// One input: whose it is, and its words.
pub type Given = (Party, Vec<u64>);

/// Everything two parties did with a circuit.
pub struct Seen {
    pub output: Vec<u64>,
    pub cost: Cost,
    /// The bytes of both key streams.
    pub keys: [Vec<u8>; 2],
    /// All messages that each party sent.
    pub sent: [Vec<Vec<u8>>; 2],
    /// Everything that each party opened, in order.
    pub opened: [Vec<OpenedWords>; 2],
    /// Tensors of fresh masks that were drawn.
    pub fresh_masks: usize,
}

/// A channel that keeps a copy of what was sent.
struct Tap {
    inner: MemoryChannel,
    sent: Vec<Vec<u8>>,
}

impl Channel for Tap {
    fn send(&mut self, message: Message) -> Result<()> {
        self.sent.push(message.to_vec());
        self.inner.send(message)
    }

    fn receive(&mut self) -> Result<Vec<u8>> {
        self.inner.receive()
    }
}

/// A deal, with a copy of all that each party holds.
pub struct Dealt {
    pub streams: [KeyStream; 2],
    /// The public key, the party's seed and its material.
    pub held: [Vec<u8>; 2],
}

/// Deals keys for a circuit, for what the estimate says.
pub fn deal<C: Circuit>(
    randomness: &mut Randomness,
    backend: Arc<dyn Backend>,
    format: FixedPoint,
    circuit: &C,
) -> Dealt {
    let cost = estimate(circuit).unwrap();
    let mut dealer = Dealer::new(randomness, backend);
    let (public_key, seeds) = (dealer.public_key(), dealer.seeds());
    let mut material = [Secret::<u8>::default(), Secret::default()];
    let [zero, one] = &mut material;
    let dealt = dealer.section(circuit, &cost, seeds, [zero, one]).unwrap();
    assert_eq!(dealt.cost, cost, "the dealer counts what the estimate counts");
    let held = [0, 1].map(|party| {
        let (public_key, seed) = (public_key.to_le_bytes(), seeds[party].to_le_bytes());
        [&public_key[..], &seed, &material[party]].concat()
    });
    let stream = |party: Party, material: Secret<u8>| {
        let (seed, length) = (seeds[party.index()], material.len() as u64);
        assert_eq!(length, cost.key_bytes[party.index()]);
        let section =
            KeySection::new(seed, section_key(public_key, 0), length, Box::new(SharedBytes::new(material)));
        KeyStream::new(party, format, public_key, vec![section])
    };
    let [zero, one] = material;
    Dealt { streams: [stream(Party::Zero, zero), stream(Party::One, one)], held }
}

/// Runs a circuit that reveals its output to one party, and asserts that both parties together give what the
/// clear evaluator gives, for exactly what the cost model says.
pub fn check<C>(circuit: C, given: &[Given], masks: Option<Vec<Vec<u64>>>, seed: u64) -> Seen
where
    C: Circuit<Output = Option<Vec<u64>>> + Sync,
{
    check_without(Missing::Nothing, circuit, given, masks, seed)
}

/// As [`check`], with fresh masks missing.
pub fn check_without<C>(
    missing: Missing,
    circuit: C,
    given: &[Given],
    masks: Option<Vec<Vec<u64>>>,
    seed: u64,
) -> Seen
where
    C: Circuit<Output = Option<Vec<u64>>> + Sync,
{
    let all: Inputs = given.iter().map(|(_, words)| Some(words.clone())).collect();
    let clear = run_clear(&circuit, all).unwrap();
    let expected = clear.output.unwrap();
    let cost = estimate(&circuit).unwrap();
    assert_eq!(clear.cost, cost, "the clear evaluator counts what the estimate counts");
    let format = circuit.format().unwrap_or(FixedPoint::new(50, 12).unwrap());
    let tampered = || Arc::new(Tampered::new(missing, given, masks.clone()));
    let dealing = tampered();
    let randomness = &mut Randomness::insecure_from_seed_for_tests(seed);
    let Dealt { streams: [zero_keys, one_keys], held } = deal(randomness, dealing.clone(), format, &circuit);
    let fresh_masks = dealing.fresh_masks();
    let plan = Plan::new(Limits::default(), &[cost]);
    let [zero, one] = MemoryChannel::pair();
    let run = |keys: KeyStream, inner: MemoryChannel| {
        let party = keys.party();
        let mut channel = Tap { inner, sent: Vec::new() };
        let tampered = tampered();
        let backend: Arc<dyn Backend> = tampered.clone();
        let own = |(owner, words): &Given| (*owner == party).then(|| words.clone());
        let inputs = given.iter().map(own).collect();
        // Fails if bytes, rounds or generator calls, as counted where they are made, are not what the
        // estimate says.
        let mut outputs =
            evaluate(party, keys, &backend, &mut channel, &plan, vec![(&circuit, inputs)]).unwrap();
        let local = outputs.remove(0);
        assert_eq!(local.cost, cost, "party {party} counts what the estimate counts");
        assert_eq!(
            tampered.fresh_masks(),
            fresh_masks,
            "party {party} draws the masks that the dealer draws"
        );
        (local.output, channel.sent, tampered.take_opened())
    };
    let [zero, one] = thread::scope(|scope| {
        let zero = scope.spawn(|| run(zero_keys, zero));
        let one = scope.spawn(|| run(one_keys, one));
        [zero, one].map(|party| party.join().unwrap())
    });
    for party in 0..2 {
        let sent = [&zero, &one][party].1.iter().map(|message| message.len() as u64 - 16).sum::<u64>();
        assert_eq!(sent, cost.sent_bytes[party], "bytes on the channel of party {party}");
        assert_eq!([&zero, &one][party].1.len() as u64, cost.rounds);
    }
    let output = zero.0.or(one.0).unwrap();
    if let Some(place) = output.iter().zip(&expected).position(|(found, expected)| found != expected) {
        panic!("element {place}: two parties give {}, in clear it is {}", output[place], expected[place]);
    }
    assert_eq!(output.len(), expected.len());
    check_on_the_emulated_device(&circuit, given, &expected, cost);
    assert_eq!(zero.2.len(), one.2.len());
    assert!(zero.2.iter().zip(&one.2).all(|(zero, one)| zero.words == one.words), "both open the same");
    Seen { output, cost, keys: held, sent: [zero.1, one.1], opened: [zero.2, one.2], fresh_masks }
}

/// Circuits of each test that also run on the emulated device: it is slow, and they are alike.
const ON_A_DEVICE: usize = 2;
/// Generator calls and opened words of the largest that do.
const LARGEST_ON_A_DEVICE: u64 = 20_000;

/// One of the two parties, in turns, and the dealer of the other turn on the emulated device: the same
/// output.
fn check_on_the_emulated_device<C>(circuit: &C, given: &[Given], expected: &[u64], cost: Cost)
where
    C: Circuit<Output = Option<Vec<u64>>> + Sync,
{
    static DEVICE: LazyLock<Device> = LazyLock::new(|| Device::emulated(9).unwrap());
    static RUN: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());
    let turn = {
        let mut run = RUN.lock().unwrap();
        let turns = run.entry(thread::current().name().unwrap_or_default().to_owned()).or_default();
        *turns += 1;
        *turns - 1
    };
    if turn >= ON_A_DEVICE || cost.prg_blocks[0] + cost.opened_words > LARGEST_ON_A_DEVICE {
        return;
    }
    let device = || backend_on(&Target::Gpu(DEVICE.clone())).unwrap();
    let host = || -> Arc<dyn Backend> { Arc::new(CpuBackend) };
    let (dealing, backends) = match turn % 2 {
        0 => (host(), [device(), host()]),
        _ => (device(), [host(), device()]),
    };
    let format = circuit.format().unwrap_or(FixedPoint::new(50, 12).unwrap());
    let circuits = std::slice::from_ref(circuit);
    let dealt = deal_on(&dealing, &mut Randomness::from_os().unwrap(), format, circuits).unwrap();
    let plan = Plan::new(Limits::default(), &[cost]);
    let run = |keys: KeyStream, backend: &Arc<dyn Backend>, mut channel: MemoryChannel| {
        let party = keys.party();
        let inputs = given.iter().map(|(owner, words)| (*owner == party).then(|| words.clone())).collect();
        evaluate(party, keys, backend, &mut channel, &plan, vec![(circuit, inputs)]).unwrap().remove(0).output
    };
    let [zero, one] = MemoryChannel::pair();
    let [zero_keys, one_keys] = dealt.streams;
    let [zero_backend, one_backend] = &backends;
    let [zero, one] = thread::scope(|scope| {
        let one = scope.spawn(|| run(one_keys, one_backend, one));
        [run(zero_keys, zero_backend, zero), one.join().unwrap()]
    });
    assert!(zero.or(one).unwrap() == expected, "the emulated device gives something else, turn {turn}");
}

/// All pairs of a value and a mask of `bits` bits.
pub fn all_pairs(bits: u32) -> (Vec<u64>, Vec<u64>) {
    let size = 1u64 << bits;
    let pairs = (0..size).flat_map(|x| (0..size).map(move |r| (x, r)));
    pairs.unzip()
}
