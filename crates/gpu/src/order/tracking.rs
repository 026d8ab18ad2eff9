//! Who used a block of memory last.

use std::sync::atomic::{AtomicU64, Ordering};

use super::line::{Line, Ordered};
use crate::Result;
use crate::locked::Locked;

/// What queued work does to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    /// Somebody promised that it is ordered: it is not tracked.
    Unordered,
    Read,
    Write,
}

/// Streams whose uses are noted without a lock.
const LANES: usize = 4;

/// The last uses of one block of memory.
///
/// What is atomic is a shortcut to what is locked, for uses that wait for nothing. It rests on Rust's
/// borrows: nobody else uses memory while somebody queues a write of it. Where that does not hold, because a
/// graph or a tensor map writes memory that others hold too, the block is *shared*, and every use takes the
/// lock until it is queued.
pub(crate) struct Tracking<S> {
    /// The only stream that used it since all others were waited for, by the number of its line: it may write
    /// at once.
    sole: AtomicU64,
    /// When the last writer wrote.
    written: AtomicU64,
    /// Streams that come after the last write: they may read at once.
    lanes: [Lane; LANES],
    uses: Locked<Uses<S>>,
}

#[derive(Default)]
struct Lane {
    /// The number of a line; 0 if nobody has it.
    line: AtomicU64,
    /// When that stream used it last; 0 if it did not since the last write.
    read: AtomicU64,
}

struct Uses<S> {
    writer: Option<Use<S>>,
    /// Reads since the last write, one a stream.
    readers: Vec<Use<S>>,
    shared: bool,
}

struct Use<S> {
    stream: S,
    time: u64,
}

impl<S: Ordered> Tracking<S> {
    /// Memory that nobody has used.
    pub(crate) fn unused() -> Self {
        let uses = Uses { writer: None, readers: Vec::new(), shared: false };
        Self {
            sole: AtomicU64::new(0),
            written: AtomicU64::new(0),
            lanes: Default::default(),
            uses: Locked::new(uses),
        }
    }

    /// Memory that is there from this point of `stream` on.
    pub(crate) fn written_by(stream: &S) -> Self {
        let mut tracking = Self::unused();
        let time = stream.line().now();
        tracking.uses.get_mut().writer = Some(Use { stream: stream.clone(), time });
        tracking.reset(stream.line(), time);
        tracking
    }

    /// From now on somebody may use it whom no borrow keeps from it.
    pub(crate) fn share(&self) {
        let mut uses = self.uses.lock();
        if !uses.shared {
            uses.shared = true;
            let lines: [u64; LANES] = std::array::from_fn(|at| self.lanes[at].line.load(Ordering::Acquire));
            self.sole.store(0, Ordering::SeqCst);
            self.lanes.iter().for_each(|lane| lane.line.store(0, Ordering::SeqCst));
            // Last, so that a use that was noted in a lane is seen; one that is noted later finds its lane
            // gone.
            self.fold_lines(&mut uses, &lines);
        }
    }

    /// Whether `line` has used it and nobody else wrote it since.
    pub(crate) fn has_lane(&self, line: &Line) -> bool {
        self.lanes.iter().any(|lane| lane.line.load(Ordering::Acquire) == line.number())
    }

    /// Whether a use on `line` waits for nothing.
    fn is_ordered(&self, line: &Line, access: Access) -> bool {
        match access {
            Access::Unordered => true,
            Access::Read => self.has_lane(line),
            Access::Write => self.sole.load(Ordering::Acquire) == line.number(),
        }
    }

    /// Notes a use for which [`Tracking::is_ordered`] held. Whether it could: not if the block was shared
    /// meanwhile.
    fn note(&self, line: &Line, time: u64, access: Access) -> bool {
        match access {
            Access::Unordered => true,
            Access::Write => {
                raise(&self.written, time);
                self.sole.load(Ordering::Acquire) == line.number()
            }
            Access::Read => {
                let own = |lane: &&Lane| lane.line.load(Ordering::Acquire) == line.number();
                let Some(lane) = self.lanes.iter().find(own) else { return false };
                raise(&lane.read, time);
                // Looked at again: whoever took the lane away has seen the time, or this sees that it is
                // gone.
                own(&lane)
            }
        }
    }

    /// Brings what was noted without the lock under it.
    fn fold(&self, uses: &mut Uses<S>) {
        let lines: [u64; LANES] = std::array::from_fn(|at| self.lanes[at].line.load(Ordering::Acquire));
        self.fold_lines(uses, &lines);
    }

    /// The same, where lanes are or were of those lines.
    fn fold_lines(&self, uses: &mut Uses<S>, lines: &[u64]) {
        if let Some(writer) = &mut uses.writer {
            writer.time = writer.time.max(self.written.load(Ordering::SeqCst));
        }
        for (lane, &number) in self.lanes.iter().zip(lines) {
            let time = lane.read.load(Ordering::SeqCst);
            if number == 0 || time == 0 {
                continue;
            }
            if let Some(reader) =
                uses.readers.iter_mut().find(|reader| reader.stream.line().number() == number)
            {
                reader.time = reader.time.max(time);
            } else if let Some(writer) =
                uses.writer.as_ref().filter(|use_| use_.stream.line().number() == number)
            {
                let stream = writer.stream.clone();
                uses.readers.push(Use { stream, time });
            }
        }
    }

    /// Makes `stream` come after the uses that such an access conflicts with.
    fn order(&self, uses: &mut Uses<S>, stream: &S, access: Access) -> Result<()> {
        self.fold(uses);
        let readers = uses.readers.iter().filter(|_| access == Access::Write);
        for earlier in uses.writer.iter().chain(readers) {
            if !stream.line().follows(earlier.stream.line(), earlier.time) {
                stream.run_after(&earlier.stream)?;
            }
        }
        Ok(())
    }

    /// Notes a use under the lock.
    fn note_ordered(&self, uses: &mut Uses<S>, stream: &S, access: Access) {
        let (line, time) = (stream.line(), stream.line().now());
        if access == Access::Write {
            uses.readers.clear();
            match &mut uses.writer {
                Some(writer) if writer.stream.line().number() == line.number() => writer.time = time,
                writer => *writer = Some(Use { stream: stream.clone(), time }),
            }
            if !uses.shared {
                self.reset(line, time);
            }
            return;
        }
        match uses.readers.iter_mut().find(|reader| reader.stream.line().number() == line.number()) {
            Some(reader) => reader.time = reader.time.max(time),
            None => uses.readers.push(Use { stream: stream.clone(), time }),
        }
        if uses.shared {
            return;
        }
        if self.sole.load(Ordering::Acquire) != line.number() {
            self.sole.store(0, Ordering::Release);
        }
        // Lanes of others stay as they are: their streams may be noting reads.
        let own = self.lanes.iter().find(|lane| lane.line.load(Ordering::Acquire) == line.number());
        let lane = own.or_else(|| self.lanes.iter().find(|lane| lane.line.load(Ordering::Acquire) == 0));
        if let Some(lane) = lane {
            raise(&lane.read, time);
            lane.line.store(line.number(), Ordering::Release);
        }
    }

    /// The state after a write, during which nobody else uses the memory.
    fn reset(&self, line: &Line, time: u64) {
        self.written.store(time, Ordering::Release);
        for (index, lane) in self.lanes.iter().enumerate() {
            lane.read.store(0, Ordering::Release);
            lane.line.store(if index == 0 { line.number() } else { 0 }, Ordering::Release);
        }
        self.sole.store(line.number(), Ordering::Release);
    }
}

/// The larger of both. Almost always that is what is there, and then nothing is written.
fn raise(time: &AtomicU64, to: u64) {
    if time.load(Ordering::Acquire) < to {
        time.fetch_max(to, Ordering::AcqRel);
    }
}

/// Queues `work` on `stream`, after the uses of memory that it conflicts with, and notes what it uses.
pub(crate) fn queued<'a, S, R>(
    stream: &S,
    uses: impl Iterator<Item = (&'a Tracking<S>, Access)> + Clone,
    work: impl FnOnce() -> Result<R>,
) -> Result<R>
where
    S: Ordered + 'a,
{
    let line = stream.line();
    if !uses.clone().all(|(tracking, access)| tracking.is_ordered(line, access)) {
        return queued_in_order(stream, uses, work);
    }
    let outcome = work();
    let time = line.now();
    for (tracking, access) in uses {
        if !tracking.note(line, time, access) {
            tracking.note_ordered(&mut tracking.uses.lock(), stream, access);
        }
    }
    outcome
}

/// Blocks that are locked without a list of them on the heap.
const FEW: usize = 8;

/// The same, for memory that others used last.
#[cold]
fn queued_in_order<'a, S, R>(
    stream: &S,
    uses: impl Iterator<Item = (&'a Tracking<S>, Access)>,
    work: impl FnOnce() -> Result<R>,
) -> Result<R>
where
    S: Ordered + 'a,
{
    let mut uses = uses.filter(|(_, access)| *access != Access::Unordered);
    let Some(first) = uses.next() else { return work() };
    let (mut few, mut count) = ([first; FEW], 1);
    for (place, used) in few[1..].iter_mut().zip(&mut uses) {
        *place = used;
        count += 1;
    }
    let rest: Vec<_> = if count == FEW { uses.collect() } else { Vec::new() };
    if rest.is_empty() {
        return queued_one_by_one(stream, each_once(&mut few[..count]), work);
    }
    let mut many: Vec<_> = few.into_iter().chain(rest).collect();
    let many = each_once(&mut many);
    let mut locked: Vec<_> =
        many.iter().map(|(tracking, access)| (*tracking, *access, tracking.uses.lock())).collect();
    for (tracking, access, uses) in &mut locked {
        tracking.order(uses, stream, *access)?;
    }
    let outcome = work();
    for (tracking, access, uses) in &mut locked {
        tracking.note_ordered(uses, stream, *access);
    }
    outcome
}

/// Each block once, for the most that is done to it, in the one order in which everybody locks them.
fn each_once<'b, 'a, S>(uses: &'b mut [(&'a Tracking<S>, Access)]) -> &'b [(&'a Tracking<S>, Access)] {
    uses.sort_unstable_by_key(|(tracking, access)| {
        (std::ptr::from_ref(*tracking), std::cmp::Reverse(*access))
    });
    let mut kept = 0;
    for next in 0..uses.len() {
        if next == 0 || !std::ptr::eq(uses[next].0, uses[kept - 1].0) {
            uses[kept] = uses[next];
            kept += 1;
        }
    }
    &uses[..kept]
}

/// Locks the first block, then the others, then queues the work: the locks are on the stack.
fn queued_one_by_one<S: Ordered, R>(
    stream: &S,
    uses: &[(&Tracking<S>, Access)],
    work: impl FnOnce() -> Result<R>,
) -> Result<R> {
    let Some(((tracking, access), others)) = uses.split_first() else { return work() };
    let mut locked = tracking.uses.lock();
    tracking.order(&mut locked, stream, *access)?;
    let outcome = queued_one_by_one(stream, others, work);
    // Noted even if nothing was queued: at worst somebody waits for a little more.
    tracking.note_ordered(&mut locked, stream, *access);
    outcome
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::sync::Arc;

    use super::*;

    /// Streams that do nothing but know exactly what comes before what.
    #[derive(Default)]
    struct World {
        /// Of each stream, how many operations of every stream are before its next.
        before: Vec<Vec<usize>>,
        waits: usize,
        needless: usize,
        /// Operations that use each block: stream, its number there, access.
        uses: Vec<Vec<(usize, usize, Access)>>,
    }

    #[derive(Clone)]
    struct Model {
        index: usize,
        line: Arc<Line>,
        world: Rc<RefCell<World>>,
    }

    impl Ordered for Model {
        fn line(&self) -> &Arc<Line> {
            &self.line
        }

        fn run_after(&self, other: &Self) -> Result<()> {
            let mark = other.line.mark();
            {
                let mut world = self.world.borrow_mut();
                let needed = world.before[other.index][other.index] > world.before[self.index][other.index];
                world.waits += 1;
                world.needless += usize::from(!needed);
                world.join(self.index, other.index);
            }
            self.line.learn(&mark);
            Ok(())
        }
    }

    impl World {
        fn join(&mut self, to: usize, from: usize) {
            let known = self.before[from].clone();
            self.before[to].iter_mut().zip(known).for_each(|(to, from)| *to = from.max(*to));
        }

        /// Whether a use conflicts with an earlier one that is not before it.
        fn races(&self, stream: usize, block: usize, access: Access) -> bool {
            self.uses[block].iter().any(|&(other, number, theirs)| {
                (access == Access::Write || theirs == Access::Write) && number >= self.before[stream][other]
            })
        }

        fn run(&mut self, stream: usize, uses: &[(usize, Access)]) {
            let number = self.before[stream][stream];
            self.before[stream][stream] += 1;
            for &(block, access) in uses {
                self.uses[block].push((stream, number, access));
            }
        }
    }

    fn random(state: &mut u64, below: usize) -> usize {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) as usize % below
    }

    /// Runs a random program: launches with a few blocks, or many, and events of the program's own. How many
    /// uses raced.
    fn run(
        seed: u64,
        streams: usize,
        blocks: usize,
        shared: bool,
        tracked: bool,
    ) -> (usize, Rc<RefCell<World>>) {
        let world = World {
            before: vec![vec![0; streams]; streams],
            uses: vec![Vec::new(); blocks],
            ..World::default()
        };
        let world = Rc::new(RefCell::new(world));
        let streams: Vec<Model> =
            (0..streams).map(|index| Model { index, line: Line::new(), world: world.clone() }).collect();
        let trackings: Vec<Tracking<Model>> = (0..blocks).map(|_| Tracking::unused()).collect();
        if shared {
            trackings.iter().for_each(Tracking::share);
        }
        // Some with more blocks than are locked on the stack.
        let most = if blocks > FEW { 2 * FEW } else { 4 };
        let (mut state, mut races) = (seed, 0);
        for _ in 0..600 {
            let stream = &streams[random(&mut state, streams.len())];
            if random(&mut state, 4) == 0 {
                let other = &streams[random(&mut state, streams.len())];
                let mark = other.line.mark();
                world.borrow_mut().join(stream.index, other.index);
                stream.line.learn(&mark);
                continue;
            }
            let mut used = Vec::new();
            for _ in 0..1 + random(&mut state, most) {
                let block = random(&mut state, blocks);
                let access = if random(&mut state, 3) == 0 { Access::Write } else { Access::Read };
                used.push((block, access));
            }
            let uses = used.iter().map(|&(block, access)| {
                (&trackings[block], if tracked { access } else { Access::Unordered })
            });
            let queued = queued(stream, uses, || {
                let mut world = world.borrow_mut();
                races += used.iter().filter(|use_| world.races(stream.index, use_.0, use_.1)).count();
                world.run(stream.index, &used);
                Ok(())
            });
            queued.unwrap();
        }
        (races, world)
    }

    #[test]
    fn uses_that_conflict_are_ordered_and_nothing_waits_for_what_is_known() {
        for seed in 0..200 {
            let (streams, blocks) = (2 + seed as usize % 7, [1, 2, 3, 5, 24][seed as usize % 5]);
            let (races, world) = run(seed, streams, blocks, seed % 3 == 0, true);
            assert_eq!(races, 0, "seed {seed}");
            assert_eq!(world.borrow().needless, 0, "seed {seed}");
        }
    }

    #[test]
    fn without_tracking_the_same_programs_race() {
        assert!((0..20).all(|seed| run(seed, 3, 2, false, false).0 > 0));
    }

    #[test]
    fn readers_do_not_wait_for_each_other_and_a_writer_does_once() {
        let world = World { before: vec![vec![0; 6]; 6], uses: vec![Vec::new()], ..World::default() };
        let world = Rc::new(RefCell::new(world));
        let streams: Vec<Model> =
            (0..6).map(|index| Model { index, line: Line::new(), world: world.clone() }).collect();
        let tracking = Tracking::written_by(&streams[0]);
        let use_by = |stream: &Model, access| {
            queued(stream, [(&tracking, access)].into_iter(), || {
                world.borrow_mut().run(stream.index, &[(0, access)]);
                Ok(())
            })
        };
        use_by(&streams[0], Access::Write).unwrap();
        for stream in streams.iter().chain(&streams) {
            use_by(stream, Access::Read).unwrap();
        }
        assert_eq!(world.borrow().waits, 5, "each once, for the write");
        use_by(&streams[0], Access::Write).unwrap();
        assert_eq!(world.borrow().waits, 10, "for each reader");
        use_by(&streams[0], Access::Write).unwrap();
        assert_eq!(world.borrow().waits, 10);
    }

    #[test]
    fn a_use_that_is_being_queued_while_the_block_becomes_shared_is_not_lost() {
        for access in [Access::Read, Access::Write] {
            let before = vec![vec![0; 2]; 2];
            let world = Rc::new(RefCell::new(World { before, uses: vec![Vec::new()], ..World::default() }));
            let stream = |index| Model { index, line: Line::new(), world: world.clone() };
            let (first, second) = (stream(0), stream(1));
            let block = Tracking::unused();
            let queue = |stream: &Model, access, meanwhile: &dyn Fn()| {
                queued(stream, [(&block, access)].into_iter(), || {
                    meanwhile();
                    let races = world.borrow().races(stream.index, 0, access);
                    world.borrow_mut().run(stream.index, &[(0, access)]);
                    Ok(races)
                })
                .unwrap()
            };
            queue(&first, access, &|| {});
            queue(&first, access, &|| block.share());
            assert!(!queue(&second, Access::Write, &|| {}), "{access:?}");
        }
    }

    #[test]
    fn work_that_fails_to_be_queued_is_reported() {
        let world = Rc::new(RefCell::new(World { before: vec![vec![0]], ..World::default() }));
        let stream = Model { index: 0, line: Line::new(), world };
        let tracking = Tracking::written_by(&stream);
        let refused: Result<()> = queued(&stream, [(&tracking, Access::Write)].into_iter(), || {
            Err(crate::Error::Graph { message: "of my own".into() })
        });
        assert!(refused.is_err());
    }
}
