//! The cache against a plain model of it, and what it refuses.

use std::collections::HashSet;

use gatework_attention::cuda::Rotation;
use gatework_attention::reference::{self, Scores};
use gatework_attention::{
    Attention, CachedAttention, Error, KvCache, Layout, Mask, Output, PAGE_KEYS, Result, Sequence, Shape,
};
use gatework_gpu::{Device, Target};
use gatework_lab::Inputs;
use half::f16;

/// Runs of random operations on the emulated device, which takes its time.
const DEVICE_RUNS: u64 = 100;
const KEY_HEADS: usize = 2;
const DIM: usize = 64;
const ROW: usize = KEY_HEADS * DIM;
const SHAPE: Shape =
    Shape { batch: 1, heads: 4, key_heads: KEY_HEADS, rows: 1, keys: 1, dim: DIM, value_dim: DIM };

/// Rows that were written into a page after the first `kept`.
#[derive(Clone)]
struct Written {
    kept: usize,
    k: Vec<f16>,
    v: Vec<f16>,
}

/// A page by its name, which sequences with the same page have in common, and how it was written. A device
/// makes its image from rows in f16, as long as it has them: then all that counts is one write of all of
/// them.
#[derive(Clone)]
struct Page {
    name: u64,
    writes: Vec<Written>,
}

impl Page {
    /// Rows that it was quantised with.
    fn rows(&self) -> usize {
        self.writes.last().map_or(0, |last| last.kept + last.k.len() / ROW)
    }

    fn write(&mut self, kept: usize, k: &[f16], v: &[f16]) {
        let is_in_f16 = self.rows() < PAGE_KEYS;
        match &mut self.writes[..] {
            [one] if is_in_f16 => {
                one.k.truncate(kept * ROW);
                one.v.truncate(kept * ROW);
                one.k.extend(k);
                one.v.extend(v);
            }
            _ => self.writes.push(Written { kept, k: k.to_vec(), v: v.to_vec() }),
        }
    }
}

/// A sequence of the model: all it has, and its pages.
#[derive(Clone, Default)]
struct Model {
    k: Vec<f16>,
    v: Vec<f16>,
    pages: Vec<Page>,
}

impl Model {
    fn keys(&self) -> usize {
        self.k.len() / ROW
    }

    fn truncate(&mut self, keys: usize) {
        self.k.truncate(keys * ROW);
        self.v.truncate(keys * ROW);
        self.pages.truncate(keys.div_ceil(PAGE_KEYS));
    }

    /// Adds rows; pages that they begin get names.
    fn append(&mut self, k: &[f16], v: &[f16], mut name: impl FnMut() -> u64) {
        let (mut key, mut k_left, mut v_left) = (self.keys(), k, v);
        while !k_left.is_empty() {
            let kept = key % PAGE_KEYS;
            let count = (PAGE_KEYS - kept).min(k_left.len() / ROW);
            let ((k, k_after), (v, v_after)) = (k_left.split_at(count * ROW), v_left.split_at(count * ROW));
            match self.pages.get_mut(key / PAGE_KEYS) {
                Some(page) => page.write(kept, k, v),
                None => {
                    let writes = vec![Written { kept, k: k.to_vec(), v: v.to_vec() }];
                    self.pages.push(Page { name: name(), writes });
                }
            }
            (key, k_left, v_left) = (key + count, k_after, v_after);
        }
        self.k.extend(k);
        self.v.extend(v);
    }

    /// The same sequence alone in a cache of its own.
    fn replayed(&self, target: &Target) -> Result<(KvCache, Sequence)> {
        let mut cache = KvCache::new(KEY_HEADS, DIM, self.pages.len().max(1), target)?;
        let sequence = cache.begin();
        for (index, page) in self.pages.iter().enumerate() {
            for Written { kept, k, v } in &page.writes {
                cache.truncate(sequence, index * PAGE_KEYS + kept)?;
                cache.append(sequence, k, v)?;
            }
        }
        cache.truncate(sequence, self.keys())?;
        Ok((cache, sequence))
    }
}

/// Numbers below bounds.
struct Dice(Inputs);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0.integers(1, 0..bound as i64)[0] as usize
    }

    fn numbers(&mut self, count: usize) -> Vec<f16> {
        self.0.normal(count).into_iter().map(f16::from_f32).collect()
    }
}

/// What a run did, so that a test can say that it did all of it.
#[derive(Default)]
struct Done {
    full: usize,
    copied: usize,
    attended: usize,
    /// Writes into pages that were full before.
    reopened: usize,
}

struct Run {
    target: Target,
    cache: KvCache,
    pages: usize,
    models: Vec<(Sequence, Model)>,
    freed: Vec<Sequence>,
    attention: CachedAttention,
    dice: Dice,
    done: Done,
    /// Of pages that were named.
    names: u64,
}

impl Run {
    fn new(seed: u64, target: Target) -> Result<Self> {
        let mut dice = Dice(Inputs::new(seed));
        let pages = 1 + dice.below(7);
        let cache = KvCache::new(KEY_HEADS, DIM, pages, &target)?;
        let attention = Attention::builder(SHAPE).mask(Mask::Causal).build_cached()?;
        let (models, freed, done) = (Vec::new(), Vec::new(), Done::default());
        Ok(Self { target, cache, pages, models, freed, attention, dice, done, names: 0 })
    }

    fn step(&mut self) -> Result<()> {
        if self.models.is_empty() {
            self.models.push((self.cache.begin(), Model::default()));
        }
        let one = self.dice.below(self.models.len());
        match self.dice.below(12) {
            0 => self.models.push((self.cache.begin(), Model::default())),
            1..=4 => self.append(one)?,
            5 | 6 => self.fork(one)?,
            7 => {
                let keys = self.dice.below(self.models[one].1.keys() + 1);
                self.cache.truncate(self.models[one].0, keys)?;
                self.models[one].1.truncate(keys);
            }
            8 => {
                let (sequence, _) = self.models.swap_remove(one);
                self.cache.free(sequence)?;
                self.freed.push(sequence);
            }
            _ => self.attend()?,
        }
        self.check();
        Ok(())
    }

    fn append(&mut self, one: usize) -> Result<()> {
        let most = if self.dice.below(2) == 0 { 3 } else { 300 };
        let count = self.dice.below(most) * ROW;
        let (k, v) = (self.dice.numbers(count), self.dice.numbers(count));
        let (sequence, before) = self.models[one].clone();
        let mut grown = before.clone();
        let is_open = count > 0 && !before.keys().is_multiple_of(PAGE_KEYS);
        let owners = |name: u64| {
            let has = |model: &Model| model.pages.iter().any(|page| page.name == name);
            self.models.iter().filter(|(_, model)| has(model)).count()
        };
        let copied = is_open && before.pages.last().is_some_and(|page| owners(page.name) > 1);
        self.done.reopened +=
            usize::from(is_open && before.pages.last().is_some_and(|page| page.rows() == PAGE_KEYS));
        let mut names = self.names;
        let mut name = || {
            names += 1;
            names
        };
        if let Some(page) = grown.pages.last_mut().filter(|_| copied) {
            page.name = name();
            self.done.copied += 1;
        }
        grown.append(&k, &v, name);
        self.names = names;
        self.models[one].1 = grown;
        let fits = self.used() <= self.pages;
        match self.cache.append(sequence, &k, &v) {
            Ok(()) => assert!(fits, "an append without room"),
            Err(Error::CacheFull { .. }) => {
                assert!(!fits, "an append with room");
                self.models[one].1 = before;
                self.done.full += 1;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn fork(&mut self, one: usize) -> Result<()> {
        let (sequence, mut model) = self.models[one].clone();
        let keys = self.dice.below(model.keys() + 1);
        model.truncate(keys);
        self.models.push((self.cache.fork(sequence, keys)?, model));
        Ok(())
    }

    /// Some sequences, in any order and more than once, together.
    fn attend(&mut self) -> Result<()> {
        let chosen: Vec<(usize, usize)> = (0..1 + self.dice.below(3))
            .map(|_| (self.dice.below(self.models.len()), self.dice.below(5)))
            .collect();
        let total: usize = chosen.iter().map(|&(_, rows)| rows).sum();
        let q = self.dice.numbers(total * SHAPE.heads * DIM);
        let rows: Vec<(Sequence, usize)> =
            chosen.iter().map(|&(model, rows)| (self.models[model].0, rows)).collect();
        let Output { o, lse } = self.attention.forward_to::<f32, _>(&self.cache, &rows, &q)?;
        let mut row = 0;
        for &(model, rows) in &chosen {
            let part = row * SHAPE.heads * DIM..(row + rows) * SHAPE.heads * DIM;
            let wanted = self.alone(&self.models[model].1, rows, &q[part.clone()])?;
            assert_eq!(o[part], wanted.o, "{rows} rows of {} keys", self.models[model].1.keys());
            for head in 0..SHAPE.heads {
                assert_eq!(lse[head * total + row..][..rows], wanted.lse[head * rows..][..rows]);
            }
            row += rows;
        }
        self.done.attended += usize::from(total > 0);
        Ok(())
    }

    /// What the last rows of a sequence give by themselves, bit for bit: on a device, in a cache of their
    /// own. That is near what they give without one.
    fn alone(&self, model: &Model, rows: usize, q: &[f16]) -> Result<Output<f32>> {
        let exact = alone(model, rows, q)?;
        if let Target::Cpu = self.target {
            return Ok(exact);
        }
        let (cache, sequence) = model.replayed(&self.target)?;
        let found = self.attention.forward_to::<f32, _>(&cache, &[(sequence, rows)], q)?;
        let exact: Vec<f64> = exact.o.iter().map(|&x| f64::from(x)).collect();
        let error = reference::relative_error(found.o.iter().copied(), &exact);
        assert!(error < 0.15, "{rows} rows of {} keys: {error}", model.keys());
        Ok(found)
    }

    fn used(&self) -> usize {
        let pages: HashSet<u64> =
            self.models.iter().flat_map(|(_, model)| model.pages.iter().map(|page| page.name)).collect();
        pages.len()
    }

    fn check(&self) {
        let found = self.cache.statistics();
        assert_eq!((found.pages, found.free_pages), (self.pages, self.pages - self.used()));
        assert_eq!(found.sequences, self.models.len());
        assert_eq!(found.keys, self.models.iter().map(|(_, model)| model.keys()).sum::<usize>());
        for (sequence, model) in &self.models {
            assert_eq!(self.cache.keys(*sequence).unwrap(), model.keys());
        }
        assert!(self.freed.iter().all(|freed| self.cache.keys(*freed).is_err()));
    }
}

/// The last rows of a sequence by themselves, without a cache, in f32.
fn alone(model: &Model, rows: usize, q: &[f16]) -> Result<Output<f32>> {
    if rows == 0 || model.keys() == 0 {
        return Ok(Output { o: vec![0.0; q.len()], lse: vec![f32::NEG_INFINITY; rows * SHAPE.heads] });
    }
    let shape = Shape { rows, keys: model.keys(), ..SHAPE };
    let attention =
        Attention::builder(shape).mask(Mask::Causal).layout(Layout::RowsFirst).build(&Target::Cpu)?;
    attention.forward_to(q, &model.k, &model.v)
}

/// Runs of random operations, each on the target of its seed.
fn run_all(
    seeds: std::ops::Range<u64>,
    steps: usize,
    target: impl Fn(u64) -> Result<Target>,
) -> Result<Done> {
    let mut done = Done::default();
    for seed in seeds {
        let mut run = Run::new(seed, target(seed)?)?;
        for _ in 0..steps {
            run.step()?;
        }
        for (sequence, _) in std::mem::take(&mut run.models) {
            run.cache.free(sequence)?;
        }
        assert_eq!(run.cache.statistics().free_pages, run.pages);
        done.full += run.done.full;
        done.copied += run.done.copied;
        done.attended += run.done.attended;
        done.reopened += run.done.reopened;
    }
    Ok(done)
}

#[test]
fn random_operations_match_a_plain_model() -> Result<()> {
    let done = run_all(0..1000, 30, |_| Ok(Target::Cpu))?;
    // Runs that never fill a cache, copy a page or attend would show nothing.
    assert!(done.full > 500 && done.copied > 500 && done.attended > 2000);
    Ok(())
}

#[test]
fn random_operations_on_a_device_match_a_plain_model() -> Result<()> {
    let done = run_all(0..DEVICE_RUNS, 20, |seed| Ok(Target::Gpu(Device::emulated(seed)?)))?;
    let Done { full, copied, attended, reopened } = done;
    let told = format!("{full} full, {copied} copied, {reopened} reopened, {attended} attended");
    assert!(full > 80 && copied > 30 && reopened > 20 && attended > 300, "{told}");
    Ok(())
}

#[test]
fn a_long_sequence_token_by_token_matches_reference() -> Result<()> {
    let (keys, mut dice) = (300, Dice(Inputs::new(7)));
    let mut cache = KvCache::new(KEY_HEADS, DIM, 3, &Target::Cpu)?;
    let (sequence, whole) = (
        cache.begin(),
        Model { k: dice.numbers(keys * ROW), v: dice.numbers(keys * ROW), ..Model::default() },
    );
    for (k, v) in whole.k.chunks(ROW).zip(whole.v.chunks(ROW)) {
        cache.append(sequence, k, v)?;
    }
    let q = dice.numbers(SHAPE.heads * DIM);
    let got = Attention::builder(SHAPE).mask(Mask::Causal).build_cached()?.forward_to::<f32, _>(
        &cache,
        &[(sequence, 1)],
        &q,
    )?;
    let wide = |x: &[f16]| x.iter().map(|x| f64::from(x.to_f32())).collect::<Vec<_>>();
    let heads_first = |x: &[f16]| {
        let head = |head: usize| x.chunks(ROW).flat_map(move |row| &row[head * DIM..][..DIM]).copied();
        wide(&(0..KEY_HEADS).flat_map(head).collect::<Vec<_>>())
    };
    let scores = Scores { mask: Mask::Causal, scale: 0.125, soft_cap: None, sinks: &[] };
    let shape = Shape { keys, ..SHAPE };
    let (wanted, lse) =
        reference::attention_of(&shape, &scores, &wide(&q), &heads_first(&whole.k), &heads_first(&whole.v));
    assert!(reference::relative_error(got.o, &wanted) < 1e-5);
    assert!(reference::relative_error(got.lse, &lse) < 1e-5);
    Ok(())
}

#[test]
fn bad_input_is_an_error_and_changes_nothing() -> Result<()> {
    for target in [Target::Cpu, Target::Gpu(Device::emulated(0)?)] {
        refuse_bad_input(&target)?;
    }
    Ok(())
}

fn refuse_bad_input(target: &Target) -> Result<()> {
    let mut cache = KvCache::new(KEY_HEADS, DIM, 2, target)?;
    let (one, gone) = (cache.begin(), cache.begin());
    cache.append(one, &vec![f16::ONE; 130 * ROW], &vec![f16::ONE; 130 * ROW])?;
    cache.free(gone)?;
    let before = cache.statistics();
    let other = KvCache::new(KEY_HEADS, DIM, 1, target)?.begin();
    let row = [1.0f32; ROW];
    let large = [1e6f32; ROW];
    let attention = Attention::builder(SHAPE).build_cached()?;
    let wide = Attention::builder(Shape { dim: 128, value_dim: 128, ..SHAPE }).build_cached()?;
    let latent = Attention::builder(Shape { dim: 192, value_dim: 128, ..SHAPE }).build_cached();
    assert!(
        latent.unwrap_err().to_string().contains("keys of 192 and values of 128; values must be as long")
    );
    let attend = |rows: &[(Sequence, usize)]| attention.forward_to::<f32, f32>(&cache, rows, &[]).map(|_| ());
    let refused = [
        (attend(&[(one, 1)]), "'q' has 0 elements, the shape needs 256"),
        (attend(&[(gone, 0)]), "cache: the sequence was freed; begin another"),
        (attend(&[(other, 0)]), "cache: the sequence is of another cache; use that one"),
        (attend(&[(one, usize::MAX), (one, 1)]), "cache: there are more rows than memory could hold"),
        (
            wide.forward_to::<f32, f32>(&cache, &[], &[]).map(|_| ()),
            "cache: it has 2 key heads of dimension 64, the attention 2 of 128; both must be the same",
        ),
        (cache.append(gone, &row, &row), "cache: the sequence was freed; begin another"),
        (cache.append(one, &row[1..], &row[1..]), "'k' has 127 elements, the shape needs 128"),
        (cache.append(one, &row, &row[..0]), "'v' has 0 elements, the shape needs 128"),
        (
            cache.append(one, &row, &large),
            "cache: v has 1000000; the cache keeps f16, whose largest is 65504",
        ),
        (cache.truncate(one, 131), "cache: the sequence has 130 keys and not 131; ask for at most those"),
        (
            cache.fork(one, 131).map(|_| ()),
            "cache: the sequence has 130 keys and not 131; ask for at most those",
        ),
        (
            cache.append_all(&[(one, 1), (one, 1)], &[1.0f32; 2 * ROW], &[1.0f32; 2 * ROW]),
            "cache: the sequence is given twice; append its keys together",
        ),
        (
            cache.append_all(&[(one, usize::MAX)], &row, &row),
            "cache: there are more rows than memory could hold",
        ),
        (cache.free(gone), "cache: the sequence was freed; begin another"),
        (
            cache.append(one, &vec![f16::ONE; 200 * ROW], &vec![f16::ONE; 200 * ROW]),
            "the cache is full: 1 pages are needed and 0 of 2 are free; free or truncate sequences",
        ),
    ];
    for (found, wanted) in refused {
        assert_eq!(found.unwrap_err().to_string(), wanted);
    }
    assert_eq!(cache.statistics(), before);
    Ok(())
}

#[test]
fn caches_that_cannot_be_are_refused() -> Result<()> {
    for target in [Target::Cpu, Target::Gpu(Device::emulated(0)?)] {
        for (key_heads, dim, pages) in
            [(0, 64, 1), (1, 64, 0), (1, 96, 1), (1, 64, usize::MAX), (1, 64, 1 << 30), (70_000, 64, 1)]
        {
            let refused = KvCache::new(key_heads, dim, pages, &target).unwrap_err();
            assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
        }
        assert!(KvCache::with_open_pages(1, 64, 1, 0, &target).is_err());
    }
    let rotated = Attention::builder(SHAPE).rotation(Rotation::Hadamard).build_cached().unwrap_err();
    assert!(rotated.to_string().contains("a rotation of cached keys"), "{rotated}");
    Ok(())
}
