//! The cache on the emulated device: against double precision, bit for bit against itself, in graphs, and
//! what it refuses.

use gatework_attention::reference::{self, Scores};
use gatework_attention::{
    Attention, Builder, CachedAttention, KvCache, Mask, Output, PAGE_KEYS, Result, Sequence, Shape, StepSize,
};
use gatework_gpu::{Device, Target};
use gatework_lab::Inputs;
use half::{bf16, f16};

fn numbers(inputs: &mut Inputs, count: usize) -> Vec<f16> {
    inputs.normal(count).into_iter().map(f16::from_f32).collect()
}

fn wide(x: &[f16]) -> Vec<f64> {
    x.iter().map(|x| f64::from(x.to_f32())).collect()
}

/// `[rows, heads, dim]` as `[heads, rows, dim]`.
fn heads_first<T: Copy>(x: &[T], heads: usize, dim: usize) -> Vec<T> {
    let head = |head: usize| x.chunks(heads * dim).flat_map(move |row| &row[head * dim..][..dim]);
    (0..heads).flat_map(head).copied().collect()
}

/// A sequence's numbers.
struct Given {
    rows: usize,
    q: Vec<f16>,
    k: Vec<f16>,
    v: Vec<f16>,
}

impl Given {
    fn new(inputs: &mut Inputs, heads: &Shape, rows: usize, keys: usize) -> Self {
        let row = heads.key_heads * heads.dim;
        Self {
            rows,
            q: numbers(inputs, rows * heads.heads * heads.dim),
            k: numbers(inputs, keys * row),
            v: numbers(inputs, keys * row),
        }
    }
}

/// The relative error of a sequence's outputs, and the largest error of its log-sum-exps.
fn errors(shape: &Shape, scores: &Scores<'_>, given: &Given, got: &Output<f32>) -> (f64, f64) {
    let Shape { heads, key_heads, dim, .. } = *shape;
    let of_keys = |x: &[f16]| wide(&heads_first(x, key_heads, dim));
    let q = wide(&heads_first(&given.q, heads, dim));
    let (o, lse) = reference::attention_of(shape, scores, &q, &of_keys(&given.k), &of_keys(&given.v));
    let apart = got
        .lse
        .iter()
        .zip(&lse)
        .map(|(&got, &lse)| if f64::from(got) == lse { 0.0 } else { (f64::from(got) - lse).abs() });
    (reference::relative_error(heads_first(&got.o, heads, dim), &o), apart.fold(0.0, f64::max))
}

/// Appends sequences in turns, so that their pages are mixed.
fn mixed(cache: &mut KvCache, given: &[Given], row: usize) -> Result<Vec<(Sequence, usize)>> {
    let rows: Vec<(Sequence, usize)> = given.iter().map(|one| (cache.begin(), one.rows)).collect();
    for turn in 0..3 {
        for ((sequence, _), one) in rows.iter().zip(given).rev() {
            let keys = one.k.len() / row;
            let part = keys * turn / 3 * row..keys * (turn + 1) / 3 * row;
            cache.append(*sequence, &one.k[part.clone()], &one.v[part])?;
        }
    }
    Ok(rows)
}

/// What each sequence gave.
fn parts(output: &Output<f32>, rows: &[(Sequence, usize)], shape: &Shape) -> Vec<Output<f32>> {
    let total: usize = rows.iter().map(|(_, rows)| rows).sum();
    let mut first = 0;
    let mut all = Vec::new();
    for &(_, rows) in rows {
        let row = shape.heads * shape.dim;
        let o = output.o[first * row..(first + rows) * row].to_vec();
        let lse = (0..shape.heads).flat_map(|head| &output.lse[head * total + first..][..rows]);
        all.push(Output { o, lse: lse.copied().collect() });
        first += rows;
    }
    all
}

/// An attention, and rows and keys of each sequence.
#[derive(Clone, Copy)]
struct Case {
    heads: usize,
    key_heads: usize,
    dim: usize,
    lengths: &'static [(usize, usize)],
    mask: Mask,
    has_sinks: bool,
    cap: Option<f32>,
}

#[test]
fn lengths_masks_groups_and_scores_match_reference() -> Result<()> {
    let mut inputs = Inputs::new(3);
    let sinks: Vec<f64> = vec![0.5, -1.0, f64::NEG_INFINITY, 2.0, 0.0, 1.0];
    let full =
        Case { heads: 4, key_heads: 2, dim: 64, lengths: &[], mask: Mask::Full, has_sinks: false, cap: None };
    let causal = Case { mask: Mask::Causal, ..full };
    let window = |left, right| Case { mask: Mask::Window { left, right }, ..full };
    let cases = [
        Case { lengths: &[(1, 300), (2, 0), (1, 1)], ..causal },
        Case { heads: 2, key_heads: 1, dim: 128, lengths: &[(3, 1500), (1, 128), (0, 5)], ..causal },
        Case { heads: 3, key_heads: 1, lengths: &[(30, 129), (5, 2)], has_sinks: true, ..causal },
        Case { heads: 6, lengths: &[(2, 1290), (16, 1025)], has_sinks: true, ..window(1100, 0) },
        Case { heads: 2, dim: 128, lengths: &[(1, 200), (4, 700)], ..window(60, 2) },
        Case { heads: 1, key_heads: 1, dim: 128, lengths: &[(70, 200), (1, 257)], cap: Some(4.0), ..full },
        Case { heads: 5, key_heads: 1, lengths: &[(40, 500)], cap: Some(3.0), ..window(90, 0) },
    ];
    for (seed, case) in cases.into_iter().enumerate() {
        let Case { heads, key_heads, dim, lengths, mask, has_sinks, cap: soft_cap } = case;
        let device = Target::Gpu(Device::emulated(seed as u64)?);
        let shape = Shape { batch: 1, heads, key_heads, rows: 1, keys: 1, dim, value_dim: dim };
        let sinks = &sinks[..if has_sinks { heads } else { 0 }];
        let mut builder: Builder = Attention::builder(shape).mask(mask);
        if has_sinks {
            builder = builder.sinks(sinks.iter().map(|&sink| sink as f32).collect::<Vec<_>>());
        }
        if let Some(cap) = soft_cap {
            builder = builder.soft_cap(cap);
        }
        let attention = builder.build_cached()?;
        let given: Vec<Given> =
            lengths.iter().map(|&(rows, keys)| Given::new(&mut inputs, &shape, rows, keys)).collect();
        let mut cache = KvCache::new(key_heads, dim, 30, &device)?;
        let rows = mixed(&mut cache, &given, key_heads * dim)?;
        let q: Vec<f16> = given.iter().flat_map(|one| one.q.clone()).collect();
        let together = attention.forward_to::<f32, _>(&cache, &rows, &q)?;
        let scale = 1.0 / (dim as f64).sqrt();
        let scores = Scores { mask, scale, soft_cap: soft_cap.map(f64::from), sinks };
        for ((one, got), &(rows, keys)) in given.iter().zip(parts(&together, &rows, &shape)).zip(lengths) {
            let (error, lse) = errors(&Shape { rows, keys, ..shape }, &scores, one, &got);
            assert!(error < 0.08 && lse < 0.08, "case {seed}, {rows} rows over {keys}: {error}, {lse}");
        }
    }
    Ok(())
}

#[test]
fn a_batch_changes_no_bit_of_its_sequences() -> Result<()> {
    let mut inputs = Inputs::new(8);
    let shape = Shape { batch: 1, heads: 4, key_heads: 2, rows: 1, keys: 1, dim: 64, value_dim: 64 };
    let attention = Attention::builder(shape).mask(Mask::Causal).build_cached()?;
    for seed in 0..6 {
        let device = Target::Gpu(Device::emulated(seed)?);
        let mut cache = KvCache::new(2, 64, 60, &device)?;
        let lengths = [(1, 1100), (3, 130), (1, 0), (20, 400), (16, 1024)];
        let given: Vec<Given> =
            lengths.iter().map(|&(rows, keys)| Given::new(&mut inputs, &shape, rows, keys)).collect();
        let mut rows = mixed(&mut cache, &given, 128)?;
        // One that shares pages with another.
        rows.push((cache.fork(rows[0].0, 1000)?, 2));
        let mut queries: Vec<Vec<f16>> = given.iter().map(|one| one.q.clone()).collect();
        queries.push(numbers(&mut inputs, 2 * 4 * 64));
        let attend = |cache: &KvCache, chosen: &[usize]| -> Result<Vec<Output<f32>>> {
            let rows: Vec<(Sequence, usize)> = chosen.iter().map(|&one| rows[one]).collect();
            let q: Vec<f16> = chosen.iter().flat_map(|&one| queries[one].clone()).collect();
            Ok(parts(&attention.forward_to::<f32, _>(cache, &rows, &q)?, &rows, &shape))
        };
        let alone: Vec<Output<f32>> =
            (0..6).map(|one| attend(&cache, &[one]).map(|mut all| all.remove(0))).collect::<Result<_>>()?;
        let count = 2 + inputs.integers(1, 0..4)[0] as usize;
        let batch: Vec<usize> = inputs.integers(count, 0..6).into_iter().map(|one| one as usize).collect();
        for (&one, got) in batch.iter().zip(attend(&cache, &batch)?) {
            assert_eq!(got, alone[one], "sequence {one} in {batch:?}");
        }
    }
    Ok(())
}

/// What a decoder does: steps of a row or several, of sequences that begin and end.
struct Decoder {
    shape: Shape,
    attention: CachedAttention,
    inputs: Inputs,
}

impl Decoder {
    fn new(seed: u64) -> Result<Self> {
        let shape = Shape { batch: 1, heads: 4, key_heads: 2, rows: 1, keys: 1, dim: 64, value_dim: 64 };
        let attention = Attention::builder(shape).mask(Mask::Causal).build_cached()?;
        Ok(Self { shape, attention, inputs: Inputs::new(seed) })
    }

    /// Queries, keys and values of rows.
    fn numbers(&mut self, rows: usize) -> [Vec<f16>; 3] {
        let Shape { heads, key_heads, dim, .. } = self.shape;
        [heads, key_heads, key_heads].map(|heads| numbers(&mut self.inputs, rows * heads * dim))
    }
}

/// What happens to three sequences in a step: one may be cut, to so many keys, and each gets rows.
struct Step {
    cut: Option<(usize, usize)>,
    rows: [usize; 3],
}

impl Step {
    fn of(rows: [usize; 3]) -> Self {
        Self { cut: None, rows }
    }
}

/// Three sequences with prompts of these lengths take steps by one captured graph, and by `append_all` and
/// `forward_to`.
fn a_graph_gives_what_append_and_attend_give(
    seed: u64,
    most: StepSize,
    prompts: [usize; 3],
    script: &[Step],
) -> Result<()> {
    let mut decoder = Decoder::new(seed)?;
    let device = Device::emulated(seed)?;
    let (target, stream) = (Target::Gpu(device.clone()), device.stream()?);
    let mut plain = KvCache::new(2, 64, 24, &target)?;
    let mut stepped = KvCache::new(2, 64, 24, &target)?;
    let steps = decoder.attention.steps(&stepped, &stream, most)?;
    let zeros = |heads: usize| stream.alloc_zeros::<f16>(most.sequences * most.rows * heads * 64);
    let (mut q, mut k, mut v) = (zeros(4)?, zeros(2)?, zeros(2)?);
    let mut o = stream.alloc_zeros::<f32>(q.len())?;
    let mut graph = decoder.attention.capture(&stream, steps, &mut stepped, [&q, &k, &v], &mut o)?;
    assert_eq!(graph.launches(), 2);
    let mut pairs: Vec<(Sequence, Sequence)> = Vec::new();
    for keys in prompts {
        let [_, k, v] = decoder.numbers(keys);
        let pair = (plain.begin(), stepped.begin());
        plain.append(pair.0, &k, &v)?;
        stepped.append(pair.1, &k, &v)?;
        pairs.push(pair);
    }
    for (step, &Step { cut, rows }) in script.iter().enumerate() {
        if let Some((sequence, keys)) = cut {
            plain.truncate(pairs[sequence].0, keys)?;
            stepped.truncate(pairs[sequence].1, keys)?;
        }
        let rows_of = |pick: fn(&(Sequence, Sequence)) -> Sequence| -> Vec<(Sequence, usize)> {
            pairs
                .iter()
                .zip(rows)
                .filter(|(_, rows)| *rows > 0)
                .map(|(pair, rows)| (pick(pair), rows))
                .collect()
        };
        let (plainly, by_steps) = (rows_of(|pair| pair.0), rows_of(|pair| pair.1));
        let total: usize = rows.iter().sum();
        let [new_q, new_k, new_v] = decoder.numbers(total);
        stream.copy_from_host(&new_q, &mut q.slice_mut(..new_q.len()))?;
        stream.copy_from_host(&new_k, &mut k.slice_mut(..new_k.len()))?;
        stream.copy_from_host(&new_v, &mut v.slice_mut(..new_v.len()))?;
        graph.step(&stream, &mut stepped, &by_steps)?;
        plain.append_all(&plainly, &new_k, &new_v)?;
        let wanted = decoder.attention.forward_to::<f32, _>(&plain, &plainly, &new_q)?;
        assert_eq!(stream.download(&o.slice(..wanted.o.len()))?, wanted.o, "step {step}");
        assert_eq!(stream.download(&graph.lse().slice(..wanted.lse.len()))?, wanted.lse, "step {step}");
        assert_eq!(plain.statistics(), stepped.statistics());
    }
    Ok(())
}

#[test]
fn a_captured_step_is_two_launches_and_gives_what_append_and_attend_give() -> Result<()> {
    // Parts begin, pages fill, pages that were full are cut and written again, sequences stay away.
    let script = [
        Step::of([1, 1, 1]),
        Step::of([4, 3, 0]),
        Step { cut: Some((1, 100)), rows: [1, 1, 2] },
        Step::of([2, 4, 4]),
        Step::of([1, 0, 1]),
    ];
    let most = StepSize { sequences: 3, rows: 4, keys: 1200 };
    a_graph_gives_what_append_and_attend_give(4, most, [1020, 127, 0], &script)
}

#[test]
fn prompts_and_decoding_go_through_one_graph() -> Result<()> {
    // Many rows have one part and few have several, over the same keys, in steps of their own and together.
    let script = [
        Step::of([40, 0, 40]),
        Step::of([1, 0, 1]),
        Step::of([16, 40, 1]),
        Step::of([17, 1, 3]),
        Step::of([1, 1, 1]),
    ];
    let most = StepSize { sequences: 3, rows: 40, keys: 1200 };
    a_graph_gives_what_append_and_attend_give(9, most, [1010, 1000, 0], &script)
}

#[test]
fn steps_without_room_are_refused_and_change_nothing() -> Result<()> {
    let mut decoder = Decoder::new(5)?;
    let device = Device::emulated(5)?;
    let (target, stream) = (Target::Gpu(device.clone()), device.stream()?);
    let mut cache = KvCache::with_open_pages(2, 64, 3, 2, &target)?;
    let one = cache.begin();
    let [q, k, v] = decoder.numbers(4);
    cache.append(one, &k, &v)?;
    let attention = decoder.attention.clone();
    let mut steps = attention.steps(&cache, &stream, StepSize { sequences: 3, rows: 4, keys: 200 })?;
    let (q, k, v) = (stream.upload(&q)?, stream.upload(&k)?, stream.upload(&v)?);
    let (mut o, other, third) = (stream.alloc_zeros::<f16>(q.len())?, cache.begin(), cache.begin());
    let mut elsewhere = KvCache::new(2, 64, 1, &target)?;
    let stranger = elsewhere.begin();
    let mut on_cpu = KvCache::new(2, 64, 1, &Target::Cpu)?;
    let before = cache.statistics();
    let mut try_step = |cache: &mut KvCache, rows: &[(Sequence, usize)]| {
        attention.step(&stream, &mut steps, cache, rows, [&q, &k, &v], &mut o).unwrap_err().to_string()
    };
    assert_eq!(try_step(&mut cache, &[(one, 5)]), "'q' has 1024 elements, the shape needs 1280");
    assert_eq!(
        try_step(&mut cache, &[(one, 1), (one, 1)]),
        "cache: the sequence is given twice; append its keys together"
    );
    assert_eq!(
        try_step(&mut cache, &[(stranger, 1)]),
        "cache: the sequence is of another cache; use that one"
    );
    assert_eq!(
        try_step(&mut elsewhere, &[(stranger, 1)]),
        "cache: the memory for steps is of another cache; make it for this one"
    );
    assert_eq!(
        try_step(&mut on_cpu, &[]),
        "unsupported attention: steps over a cache on the CPU; use append_all and forward_to, or a cache on a device"
    );
    assert_eq!(
        try_step(&mut cache, &[(one, 1), (other, 1), (third, 1)]),
        "cache: 2 pages are open, and it has no room for more; free sequences, or make it with more open pages"
    );
    assert_eq!(
        try_step(&mut cache, &[(one, 0), (other, 0), (one, 0)]),
        "cache: the sequence is given twice; append its keys together"
    );
    assert_eq!(cache.statistics(), before);
    let [_, k, v] = decoder.numbers(197);
    cache.append(one, &k, &v)?;
    let told = attention.step(&stream, &mut steps, &mut cache, &[(one, 1)], [&q, &q, &q], &mut o);
    assert_eq!(
        told.unwrap_err().to_string(),
        "cache: a step of 1 rows over 202 keys; its memory is for 4 over 200: make a larger one"
    );
    let nothing = attention.steps(&cache, &stream, StepSize { sequences: 0, rows: 1, keys: 1 }).unwrap_err();
    assert!(nothing.to_string().contains("each must be at least 1"), "{nothing}");
    assert_eq!(cache.keys(one)?, 201);
    Ok(())
}

#[test]
fn steps_of_another_attention_are_refused() -> Result<()> {
    let device = Device::emulated(7)?;
    let (target, stream) = (Target::Gpu(device.clone()), device.stream()?);
    let builder = |heads: usize| {
        let shape = Shape { batch: 1, heads, key_heads: 2, rows: 1, keys: 1, dim: 64, value_dim: 64 };
        Attention::builder(shape).mask(Mask::Causal)
    };
    let plain = builder(8).build_cached()?;
    let with_sinks = builder(8).sinks(vec![0.5; 8]).build_cached()?;
    let others = [
        builder(16).build_cached()?,
        builder(4).build_cached()?,
        with_sinks.clone(),
        builder(8).sinks(vec![0.25; 8]).build_cached()?,
        builder(8).mask(Mask::Full).build_cached()?,
        builder(8).soft_cap(3.0).build_cached()?,
        builder(8).scale(0.5).build_cached()?,
    ];
    let mut cache = KvCache::new(2, 64, 4, &target)?;
    let sequence = cache.begin();
    let most = StepSize { sequences: 4, rows: 1, keys: 200 };
    let (q, k) = (stream.alloc_zeros::<f16>(4 * 16 * 64)?, stream.alloc_zeros::<f16>(4 * 2 * 64)?);
    let mut o = stream.alloc_zeros::<f32>(q.len())?;
    let refused = "cache: the memory for steps is of an attention with other heads, mask, scale, cap or sinks; make it with this one";
    for (index, other) in others.iter().enumerate() {
        let mut steps = plain.steps(&cache, &stream, most)?;
        let told = other.step(&stream, &mut steps, &mut cache, &[(sequence, 1)], [&q, &k, &k], &mut o);
        assert_eq!(told.unwrap_err().to_string(), refused, "attention {index}");
        let told = other.capture(&stream, steps, &mut cache, [&q, &k, &k], &mut o).map(|_| ());
        assert_eq!(told.unwrap_err().to_string(), refused, "attention {index}");
    }
    let mut steps = with_sinks.steps(&cache, &stream, most)?;
    let told = others[3].step(&stream, &mut steps, &mut cache, &[(sequence, 1)], [&q, &k, &k], &mut o);
    assert_eq!(told.unwrap_err().to_string(), refused, "other sinks");
    assert_eq!(cache.keys(sequence)?, 0);
    let alike = builder(8).sinks(vec![0.5; 8]).build_cached()?;
    alike.step(&stream, &mut steps, &mut cache, &[(sequence, 1)], [&q, &k, &k], &mut o)?;
    stream.synchronize()?;
    assert_eq!(cache.keys(sequence)?, 1);
    Ok(())
}

#[test]
fn a_step_that_cannot_attend_appends_nothing() -> Result<()> {
    let mut decoder = Decoder::new(10)?;
    let (device, elsewhere) = (Device::emulated(10)?, Device::emulated(11)?);
    let (target, stream) = (Target::Gpu(device.clone()), device.stream()?);
    let attention = decoder.attention.clone();
    let mut cache = KvCache::new(2, 64, 4, &target)?;
    let sequence = cache.begin();
    let [_, k, v] = decoder.numbers(5);
    cache.append(sequence, &k, &v)?;
    let [q, ..] = decoder.numbers(1);
    let mut steps = attention.steps(&cache, &stream, StepSize { sequences: 1, rows: 1, keys: 200 })?;
    let before = (attention.forward_to::<f32, _>(&cache, &[(sequence, 1)], &q)?, cache.statistics());
    let attend = |cache: &KvCache| attention.forward_to::<f32, _>(cache, &[(sequence, 1)], &q);
    // Quantised with the others, they would leave nothing of them.
    let large = stream.upload(&vec![f16::MAX; 2 * 64])?;
    let new_q = stream.upload(&q)?;
    let rows = [(sequence, 1)];

    let mut o = elsewhere.stream()?.alloc_zeros::<f32>(q.len())?;
    let told = attention.step(&stream, &mut steps, &mut cache, &rows, [&new_q, &large, &large], &mut o);
    assert_eq!(
        told.unwrap_err().to_string(),
        "cache: 'o' is on another device than the stream; copy it to the stream's"
    );
    assert!((attend(&cache)?, cache.statistics()) == before, "an output on another device");

    let kernel = include_str!("../kernels/cached.cuh");
    device.substitute(kernel, "#error no attention");
    let mut o = stream.alloc_zeros::<f16>(q.len())?;
    let told = attention.step(&stream, &mut steps, &mut cache, &rows, [&new_q, &large, &large], &mut o);
    assert!(told.unwrap_err().to_string().contains("no attention"));
    device.substitute(kernel, kernel);
    assert!((attend(&cache)?, cache.statistics()) == before, "a kernel that does not compile");

    attention.step(&stream, &mut steps, &mut cache, &rows, [&new_q, &large, &large], &mut o)?;
    assert!(attend(&cache)? != before.0, "a step that attends appends");
    Ok(())
}

#[test]
fn what_is_not_finite_stays_so_in_pages_that_fill_and_are_cut() -> Result<()> {
    let shape = Shape { batch: 1, heads: 1, key_heads: 1, rows: 1, keys: 1, dim: 64, value_dim: 64 };
    let attention = Attention::builder(shape).mask(Mask::Causal).build_cached()?;
    let target = Target::Gpu(Device::emulated(2)?);
    let ones = |count: usize| vec![bf16::ONE; count * 64];
    let q = ones(1);
    let attend = |cache: &KvCache, sequence: Sequence| {
        attention.forward_to::<f32, _>(cache, &[(sequence, 1)], &q).map(|output| output.o)
    };
    for key in [3, 90] {
        let mut cache = KvCache::new(1, 64, 4, &target)?;
        let (in_key, in_value) = (cache.begin(), cache.begin());
        let (mut k, mut v) = (ones(PAGE_KEYS), ones(PAGE_KEYS));
        k[key * 64 + 7] = bf16::NAN;
        v[key * 64 + 7] = bf16::INFINITY;
        cache.append(in_key, &k, &ones(PAGE_KEYS))?;
        cache.append(in_value, &ones(PAGE_KEYS), &v)?;
        let is_wrong = |o: &[f32]| o.iter().all(|x| x.is_nan());
        let is_infinite = |o: &[f32]| {
            o.iter()
                .enumerate()
                .all(|(i, &x)| if i == 7 { x == f32::INFINITY } else { (x - 1.0).abs() < 0.01 })
        };
        assert!(is_wrong(&attend(&cache, in_key)?) && is_infinite(&attend(&cache, in_value)?));
        // Cut before it and behind it, and written again.
        for sequence in [in_key, in_value] {
            cache.truncate(sequence, 50)?;
            cache.append(sequence, &ones(2), &ones(2))?;
        }
        let (seen, o) = (key < 50, attend(&cache, in_key)?);
        assert_eq!(is_wrong(&o), seen, "key {key}");
        let o = attend(&cache, in_value)?;
        assert_eq!(is_infinite(&o), seen, "key {key}: {o:?}");
        assert!(seen || o.iter().all(|x| (x - 1.0).abs() < 0.01));
    }
    Ok(())
}

#[test]
fn sequences_that_share_an_open_page_may_write_in_one_call() -> Result<()> {
    let mut decoder = Decoder::new(6)?;
    let target = Target::Gpu(Device::emulated(6)?);
    let ([_, k, v], [q, new_k, new_v]) = (decoder.numbers(80), decoder.numbers(5));
    let run = |together: bool| -> Result<Output<f32>> {
        let mut cache = KvCache::new(2, 64, 2, &target)?;
        let prompt = cache.begin();
        cache.append(prompt, &k, &v)?;
        // One copies the page, the other has more of it and writes behind that, in place: there is no third
        // page.
        let rows = [(cache.fork(prompt, 70)?, 2), (cache.fork(prompt, 50)?, 3)];
        cache.free(prompt)?;
        if together {
            cache.append_all(&rows, &new_k, &new_v)?;
        } else {
            cache.append(rows[1].0, &new_k[2 * 128..], &new_v[2 * 128..])?;
            cache.append(rows[0].0, &new_k[..2 * 128], &new_v[..2 * 128])?;
        }
        assert_eq!(cache.statistics().free_pages, 0);
        decoder.attention.forward_to(&cache, &rows, &q)
    };
    assert_eq!(run(true)?, run(false)?);
    Ok(())
}
