//! Two parties and a dealer in one process, compared with the clear evaluator and with the cost model.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::thread;

use crate::backend::{Backend, CpuBackend};
use crate::prg::counted;
use crate::tensor::Words;
use crate::{
    Channel, Circuit, Cost, FixedPoint, Inputs, KeyStream, Limits, MemoryChannel, Party, Plan, Randomness,
    Result, Ring, deal, estimate, evaluate, run_clear,
};

thread_local! {
    static FORCED_MASKS: RefCell<Option<Vec<Vec<u64>>>> = const { RefCell::new(None) };
    static MISSING: Cell<Missing> = const { Cell::new(Missing::Nothing) };
    static FRESH_MASKS: Cell<usize> = const { Cell::new(0) };
    static OPENED: RefCell<Vec<OpenedWords>> = const { RefCell::new(Vec::new()) };
}

/// Which fresh masks are zero, as if a gate had forgotten them. The results stay right, so that nothing but a test of what is opened
/// can find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    Nothing,
    /// All masks of bits.
    Bits,
    /// All masks of wider words.
    Words,
    /// The tensor of masks of this number.
    Only(usize),
    /// Two tensors of masks.
    Both(usize, usize),
}

/// A fresh mask, or zeros if the test wants it missing. Dealer and parties come here in the same order.
pub(crate) fn weakened(mut mask: Words, ring: Ring) -> Words {
    // Without key material there is no mask to count.
    if mask.is_empty() {
        return mask;
    }
    let number = FRESH_MASKS.replace(FRESH_MASKS.get() + 1);
    let missing = match MISSING.get() {
        Missing::Nothing => false,
        Missing::Bits => ring == Ring::BIT,
        Missing::Words => ring != Ring::BIT,
        Missing::Only(only) => number == only,
        Missing::Both(one, two) => number == one || number == two,
    };
    if missing {
        mask.fill(0);
    }
    mask
}

/// What a party learns from one request.
pub(crate) struct OpenedWords {
    pub(crate) ring: Ring,
    /// The only sender, for an input.
    pub(crate) from: Option<Party>,
    /// What the party itself sent.
    pub(crate) own: Vec<u64>,
    /// The sums of both parties' words, modulo the ring: of bits, their exclusive or.
    pub(crate) words: Vec<u64>,
}

/// Keeps what this thread's party has opened.
pub(crate) fn record_opened(ring: Ring, from: Option<Party>, own: Vec<u64>, words: &[u64]) {
    OPENED.with_borrow_mut(|opened| opened.push(OpenedWords { ring, from, own, words: words.to_vec() }));
}

/// The mask that a test wants for an input, so that it can go through all of them.
pub(crate) fn forced_mask(index: usize) -> Option<Words> {
    FORCED_MASKS
        .with_borrow(|masks| masks.as_ref().and_then(|masks| masks.get(index).cloned()).map(Words::new))
}

/// One input: whose it is, and its words.
pub(crate) type Given = (Party, Vec<u64>);

/// Everything two parties did with a circuit.
pub(crate) struct Seen {
    pub(crate) output: Vec<u64>,
    pub(crate) cost: Cost,
    /// The bytes of both key streams.
    pub(crate) keys: [Vec<u8>; 2],
    /// All messages that each party sent.
    pub(crate) sent: [Vec<Vec<u8>>; 2],
    /// Everything that each party opened, in order.
    pub(crate) opened: [Vec<OpenedWords>; 2],
    /// Tensors of fresh masks that were drawn.
    pub(crate) fresh_masks: usize,
}

/// A channel that keeps a copy of what was sent.
struct Tap {
    inner: MemoryChannel,
    sent: Vec<Vec<u8>>,
}

impl Channel for Tap {
    fn send(&mut self, message: Vec<u8>) -> Result<()> {
        self.sent.push(message.clone());
        self.inner.send(message)
    }

    fn receive(&mut self) -> Result<Vec<u8>> {
        self.inner.receive()
    }
}

/// Runs a circuit that reveals its output to one party, and asserts that both parties together give what the clear
/// evaluator gives, for exactly what the cost model says.
pub(crate) fn check<C>(circuit: C, given: &[Given], masks: Option<Vec<Vec<u64>>>, seed: u64) -> Seen
where
    C: Circuit<Output = Option<Vec<u64>>> + Sync,
{
    check_without(Missing::Nothing, circuit, given, masks, seed)
}

/// As [`check`], with fresh masks missing.
pub(crate) fn check_without<C>(
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
    FORCED_MASKS.set(masks.clone());
    MISSING.set(missing);
    FRESH_MASKS.set(0);
    let format = circuit.format().unwrap_or(FixedPoint::new(50, 12).unwrap());
    let circuits = [circuit];
    let dealt = deal(&mut Randomness::insecure_from_seed_for_tests(seed), format, &circuits).unwrap();
    FORCED_MASKS.set(None);
    MISSING.set(Missing::Nothing);
    let fresh_masks = FRESH_MASKS.get();
    let held = dealt.streams.each_ref().map(|stream| stream.bytes());
    let key_bytes = dealt.streams.each_ref().map(|stream| stream.key_bytes());
    let [zero_keys, one_keys] = dealt.streams;
    assert_eq!(dealt.outputs[0].cost, cost, "the dealer counts what the estimate counts");
    let plan = Plan::new(Limits::default(), &[cost]).unwrap();
    let [zero, one] = MemoryChannel::pair();
    let run = |keys: KeyStream, inner: MemoryChannel| {
        let party = keys.party();
        let mut channel = Tap { inner, sent: Vec::new() };
        // A thread of its own, which starts without masks and records and ends with them.
        FORCED_MASKS.set(masks.clone());
        MISSING.set(missing);
        let backend: Arc<dyn Backend> = Arc::new(CpuBackend::new(keys.tree_hash()));
        let own = |(owner, words): &Given| (*owner == party).then(|| words.clone());
        let inputs = given.iter().map(own).collect();
        let jobs = vec![(&circuits[0], inputs)];
        counted::take();
        let mut outputs = evaluate(party, keys, &backend, &mut channel, &plan, jobs).unwrap();
        assert_eq!(counted::take(), cost.prg_blocks[party.index()], "generator calls of party {party}");
        let local = outputs.remove(0);
        assert_eq!(local.cost, cost, "party {party} counts what the estimate counts");
        assert_eq!(FRESH_MASKS.get(), fresh_masks, "party {party} draws the masks that the dealer draws");
        (local.output, channel.sent, OPENED.take())
    };
    let [zero, one] = thread::scope(|scope| {
        let zero = scope.spawn(|| run(zero_keys, zero));
        let one = scope.spawn(|| run(one_keys, one));
        [zero, one].map(|party| party.join().unwrap())
    });
    for (party, key_bytes) in key_bytes.into_iter().enumerate() {
        assert_eq!(key_bytes, cost.key_bytes[party]);
        let sent = [&zero, &one][party].1.iter().map(|message| message.len() as u64 - 16).sum::<u64>();
        assert_eq!(sent, cost.sent_bytes[party], "bytes on the channel of party {party}");
        assert_eq!([&zero, &one][party].1.len() as u64, cost.rounds);
    }
    let output = zero.0.or(one.0).unwrap();
    if let Some(place) = output.iter().zip(&expected).position(|(found, expected)| found != expected) {
        panic!("element {place}: two parties give {}, in clear it is {}", output[place], expected[place]);
    }
    assert_eq!(output.len(), expected.len());
    assert_eq!(zero.2.len(), one.2.len());
    assert!(zero.2.iter().zip(&one.2).all(|(zero, one)| zero.words == one.words), "both open the same");
    Seen { output, cost, keys: held, sent: [zero.1, one.1], opened: [zero.2, one.2], fresh_masks }
}

/// All pairs of a value and a mask of `bits` bits.
pub(crate) fn all_pairs(bits: u32) -> (Vec<u64>, Vec<u64>) {
    let size = 1u64 << bits;
    let pairs = (0..size).flat_map(|x| (0..size).map(move |r| (x, r)));
    pairs.unzip()
}
