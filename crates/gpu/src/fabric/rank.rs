//! One rank of a fabric, and what it does together with the others.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytemuck::Pod;

use super::failure::{Call, Failure};
use super::fold::{Element, Reduction, part_of};
use super::hub::{Hub, Key};
use super::place::{Journey, Place, Pull};
use super::traffic::Traffic;
use crate::{Error, Result};

/// One rank of a [`Fabric`](super::Fabric), driven by a thread of its own.
///
/// Every rank makes the same calls with lengths that agree, in the same order; those of [`Rank::send`] and
/// [`Rank::receive`] concern two ranks only. A call that returns an error has lost the fabric: all other
/// ranks get [`Error::Peer`] where they wait or at their next call, and so does this one. What such a call
/// was to write is undefined.
pub struct Rank<P: Place> {
    hub: Arc<Hub<Brought<P>>>,
    rank: usize,
    /// Meetings of everybody so far, and of this rank with one other.
    meetings: HashMap<Option<(usize, usize)>, u64>,
    place: P,
}

/// What ranks bring to a meeting.
pub struct Brought<P: Place> {
    offer: P::Offer,
    /// Bytes that are offered.
    bytes: usize,
    /// Elements for each rank, and from each, where they differ.
    parts: Option<Parts>,
}

impl<P: Place> Clone for Brought<P> {
    fn clone(&self) -> Self {
        Self { offer: self.offer.clone(), bytes: self.bytes, parts: self.parts.clone() }
    }
}

#[derive(Clone)]
struct Parts {
    sends: Vec<usize>,
    receives: Vec<usize>,
}

/// What a rank takes, given what each rank sends where that differs.
type Plan<'a> = dyn Fn(&[Vec<usize>], usize) -> Vec<Pull> + 'a;

/// An operation as its members carry it out.
struct Job<'a> {
    call: Call,
    pair: Option<(usize, usize)>,
    parts: Option<Parts>,
    plan: &'a Plan<'a>,
}

impl<P: Place> Rank<P> {
    pub(super) fn new(hub: Arc<Hub<Brought<P>>>, rank: usize, place: P) -> Self {
        Self { hub, rank, meetings: HashMap::new(), place }
    }

    /// Its number, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> usize {
        self.hub.ranks
    }

    /// Where it keeps its data.
    pub fn place(&self) -> &P {
        &self.place
    }

    /// How long a call waits for the other ranks.
    pub fn deadline(&self) -> Duration {
        self.hub.deadline
    }

    /// Bytes that all ranks have moved so far, counted when they are queued.
    pub fn traffic(&self) -> Traffic {
        self.hub.meter.read()
    }

    /// The elements of `len` that this rank has after [`Rank::reduce_scatter`]: where they start, and how
    /// many.
    pub fn part(&self, len: usize) -> (usize, usize) {
        part_of(len, self.ranks(), self.rank)
    }

    /// Sends to another rank, which receives as many. Returns when it has come for them: ranks that all send
    /// first are an error, and want [`Rank::all_to_all_parts`].
    pub fn send<T: Pod>(&mut self, order: &P::Order, to: usize, from: P::Read<'_, T>) -> Result<()> {
        let pair = (self.rank, to);
        self.guarded("send", |rank| {
            rank.require_other(to)?;
            rank.pass(order, pair, P::len(&from), Some(from), None)
        })
    }

    /// Receives what another rank sends.
    pub fn receive<T: Pod>(&mut self, order: &P::Order, from: usize, to: P::Write<'_, T>) -> Result<()> {
        let pair = (from, self.rank);
        self.guarded("receive", |rank| {
            rank.require_other(from)?;
            rank.pass(order, pair, P::len_mut(&to), None, Some(to))
        })
    }

    /// Every rank's `data` becomes that of `root`.
    pub fn broadcast<T: Pod>(&mut self, order: &P::Order, root: usize, data: P::Write<'_, T>) -> Result<()> {
        self.guarded("broadcast", |rank| {
            rank.require_rank(root)?;
            let len = P::len_mut(&data);
            let whole = Pull { from: root, source: 0, target: 0, bytes: len * size_of::<T>() };
            let plan = |_: &[Vec<usize>], to| if to == root { Vec::new() } else { vec![whole] };
            let call = Call::of::<T>("broadcast").with("root", root).with("elements", len);
            let job = Job { call, pair: None, parts: None, plan: &plan };
            if rank.rank == root {
                rank.carry_out::<T>(order, job, Some(P::as_read(&data)), None)
            } else {
                rank.carry_out(order, job, None, Some(data))
            }
        })
    }

    /// Every rank has `from` of all ranks, in the order of ranks. All are of one length.
    pub fn all_gather<T: Pod>(
        &mut self,
        order: &P::Order,
        from: P::Read<'_, T>,
        to: P::Write<'_, T>,
    ) -> Result<()> {
        self.guarded("all_gather", |rank| {
            let lens = vec![P::len(&from); rank.ranks()];
            rank.collect("all_gather", order, None, &lens, from, Some(to))
        })
    }

    /// As [`Rank::all_gather`] with `lens[r]` elements of rank `r`.
    pub fn all_gather_parts<T: Pod>(
        &mut self,
        order: &P::Order,
        lens: &[usize],
        from: P::Read<'_, T>,
        to: P::Write<'_, T>,
    ) -> Result<()> {
        self.guarded("all_gather_parts", |rank| {
            rank.collect("all_gather_parts", order, None, lens, from, Some(to))
        })
    }

    /// `root` has `from` of all ranks, `lens[r]` elements of rank `r`, in the order of ranks. Elsewhere `to`
    /// is empty.
    pub fn gather<T: Pod>(
        &mut self,
        order: &P::Order,
        root: usize,
        lens: &[usize],
        from: P::Read<'_, T>,
        to: P::Write<'_, T>,
    ) -> Result<()> {
        self.guarded("gather", |rank| {
            rank.require_rank(root)?;
            rank.collect("gather", order, Some(root), lens, from, Some(to))
        })
    }

    /// Part `s` of rank `r` becomes part `r` of rank `s`. All parts are of one length.
    pub fn all_to_all<T: Pod>(
        &mut self,
        order: &P::Order,
        from: P::Read<'_, T>,
        to: P::Write<'_, T>,
    ) -> Result<()> {
        self.guarded("all_to_all", |rank| {
            let (ranks, len) = (rank.ranks(), P::len(&from));
            if !len.is_multiple_of(ranks) {
                return Err(length("all_to_all", format!("{len} elements are no {ranks} equal parts")));
            }
            expect("all_to_all", P::len_mut(&to), len)?;
            let bytes = len / ranks * size_of::<T>();
            let plan = |_: &[Vec<usize>], to: usize| {
                let pull = |from| Pull { from, source: to * bytes, target: from * bytes, bytes };
                (0..ranks).map(pull).collect()
            };
            let call = Call::of::<T>("all_to_all").with("elements", len);
            let job = Job { call, pair: None, parts: None, plan: &plan };
            rank.carry_out(order, job, Some(from), Some(to))
        })
    }

    /// As [`Rank::all_to_all`] with parts of any length: `sends[s]` elements for rank `s` and `receives[r]`
    /// from rank `r`, each in the order of ranks. What one sends is what the other receives.
    pub fn all_to_all_parts<T: Pod>(
        &mut self,
        order: &P::Order,
        sends: &[usize],
        receives: &[usize],
        from: P::Read<'_, T>,
        to: P::Write<'_, T>,
    ) -> Result<()> {
        const CALL: &str = "all_to_all_parts";
        self.guarded(CALL, |rank| {
            let ranks = rank.ranks();
            for (counts, len) in [(sends, P::len(&from)), (receives, P::len_mut(&to))] {
                expect(CALL, counts.len(), ranks)?;
                expect(CALL, len, total(counts)?)?;
            }
            let plan = |sent: &[Vec<usize>], to: usize| {
                let size = size_of::<T>();
                let mut target = 0;
                let pull = |from: usize| {
                    let source = sent[from][..to].iter().sum::<usize>() * size;
                    let pull = Pull { from, source, target, bytes: sent[from][to] * size };
                    target += pull.bytes;
                    pull
                };
                (0..ranks).map(pull).collect()
            };
            let parts = Some(Parts { sends: sends.to_vec(), receives: receives.to_vec() });
            let job = Job { call: Call::of::<T>(CALL), pair: None, parts, plan: &plan };
            rank.carry_out(order, job, Some(from), Some(to))
        })
    }

    /// Every rank has its [part](Rank::part) of the reduction of all ranks' rows.
    pub fn reduce_scatter<T: Element>(
        &mut self,
        order: &P::Order,
        reduction: Reduction,
        from: P::Read<'_, T>,
        to: P::Write<'_, T>,
    ) -> Result<()> {
        const CALL: &str = "reduce_scatter";
        self.guarded(CALL, |rank| {
            let len = reduction.check::<T>(CALL, P::len(&from))?;
            expect(CALL, P::len_mut(&to), rank.part(len).1)?;
            rank.scatter(CALL, order, reduction, len, from, to)
        })
    }

    /// `root` has the reduction of all ranks' rows. Elsewhere `to` is empty.
    pub fn reduce<T: Element>(
        &mut self,
        order: &P::Order,
        reduction: Reduction,
        root: usize,
        from: P::Read<'_, T>,
        to: P::Write<'_, T>,
    ) -> Result<()> {
        self.guarded("reduce", |rank| {
            rank.require_rank(root)?;
            rank.reduce_to("reduce", order, reduction, Some(root), from, to)
        })
    }

    /// Every rank has the reduction of all ranks' rows.
    pub fn all_reduce<T: Element>(
        &mut self,
        order: &P::Order,
        reduction: Reduction,
        from: P::Read<'_, T>,
        to: P::Write<'_, T>,
    ) -> Result<()> {
        self.guarded("all_reduce", |rank| rank.reduce_to("all_reduce", order, reduction, None, from, to))
    }

    /// Waits until everything that was queued in this order is done, here and on all other ranks. What failed
    /// in it on one of them is an error on all: after this, and only after this, is what was received in this
    /// order known to be what was sent. What failed on another stream, one that made the data for example,
    /// shows when that one is waited for.
    pub fn settle(&mut self, order: &P::Order) -> Result<()> {
        self.guarded("settle", |rank| {
            if !rank.place.settle(order, rank.hub.deadline)? {
                let what = format!("has work that did not end within {:?}", rank.hub.deadline);
                return Err(Failure { rank: rank.rank, call: "settle", what }.into());
            }
            let offer = rank.place.offer::<u8>(order, None)?;
            rank.meet(&Call::bare("settle"), None, Brought { offer, bytes: 0, parts: None }).map(drop)
        })
    }

    /// Reduces by parts, one a rank, and collects them.
    fn reduce_to<T: Element>(
        &mut self,
        call: &'static str,
        order: &P::Order,
        reduction: Reduction,
        root: Option<usize>,
        from: P::Read<'_, T>,
        to: P::Write<'_, T>,
    ) -> Result<()> {
        let len = reduction.check::<T>(call, P::len(&from))?;
        let lens: Vec<usize> = (0..self.ranks()).map(|rank| part_of(len, self.ranks(), rank).1).collect();
        let mut part = self.place.own::<T>(order, lens[self.rank])?;
        self.scatter(call, order, reduction, len, from, P::write_own(&mut part))?;
        self.collect(call, order, root, &lens, P::read_own(&part), Some(to))
    }

    /// Takes this rank's part of every row of all ranks, and folds them in order.
    fn scatter<T: Element>(
        &mut self,
        call: &'static str,
        order: &P::Order,
        reduction: Reduction,
        len: usize,
        from: P::Read<'_, T>,
        to: P::Write<'_, T>,
    ) -> Result<()> {
        // Integers are the same in any order: each rank folds its own rows first, and one travels.
        if T::EXACT && reduction.rows > 1 {
            let mut folded = self.place.own::<T>(order, len)?;
            self.place.fold(order, reduction.operation, from, P::write_own(&mut folded))?;
            return self.scatter(call, order, reduction.rows(1), len, P::read_own(&folded), to);
        }
        let (ranks, rows, size) = (self.ranks(), reduction.rows, size_of::<T>());
        let plan = |_: &[Vec<usize>], to: usize| {
            let (start, count) = part_of(len, ranks, to);
            let pull = |row: usize| Pull {
                from: row / rows,
                source: (row % rows * len + start) * size,
                target: row * count * size,
                bytes: count * size,
            };
            (0..ranks * rows).map(pull).collect()
        };
        let agreed =
            Call::of::<T>(call).with(reduction.operation.function(), rows).with("elements of a row", len);
        let mut all = self.place.own::<T>(order, ranks * rows * self.part(len).1)?;
        let job = Job { call: agreed, pair: None, parts: None, plan: &plan };
        self.carry_out(order, job, Some(from), Some(P::write_own(&mut all)))?;
        self.place.fold(order, reduction.operation, P::read_own(&all), to)
    }

    /// Collects a part of each rank, on one or on all.
    fn collect<T: Pod>(
        &mut self,
        call: &'static str,
        order: &P::Order,
        root: Option<usize>,
        lens: &[usize],
        from: P::Read<'_, T>,
        to: Option<P::Write<'_, T>>,
    ) -> Result<()> {
        expect(call, lens.len(), self.ranks())?;
        expect(call, P::len(&from), lens[self.rank])?;
        let collects = |rank| root.is_none_or(|root| root == rank);
        let wanted = if collects(self.rank) { total(lens)? } else { 0 };
        expect(call, to.as_ref().map_or(0, |to| P::len_mut(to)), wanted)?;
        let plan = |_: &[Vec<usize>], to| {
            let mut target = 0;
            let pull = |(from, &len): (usize, &usize)| {
                let pull = Pull { from, source: 0, target, bytes: len * size_of::<T>() };
                target += pull.bytes;
                pull
            };
            if collects(to) { lens.iter().enumerate().map(pull).collect() } else { Vec::new() }
        };
        let agreed = Call::of::<T>(call).with_all("elements", lens);
        let agreed = root.into_iter().fold(agreed, |agreed, root| agreed.with("root", root));
        self.carry_out(order, Job { call: agreed, pair: None, parts: None, plan: &plan }, Some(from), to)
    }

    /// A send and its receive: one call to both.
    fn pass<T: Pod>(
        &mut self,
        order: &P::Order,
        pair: (usize, usize),
        len: usize,
        from: Option<P::Read<'_, T>>,
        to: Option<P::Write<'_, T>>,
    ) -> Result<()> {
        let whole = Pull { from: pair.0, source: 0, target: 0, bytes: len * size_of::<T>() };
        let plan = |_: &[Vec<usize>], rank| if rank == pair.1 { vec![whole] } else { Vec::new() };
        let call =
            Call::of::<T>("send and receive").with("from", pair.0).with("to", pair.1).with("elements", len);
        self.carry_out(order, Job { call, pair: Some(pair), parts: None, plan: &plan }, from, to)
    }

    /// Meets the others with what this rank offers, takes its part of theirs, and lets nobody go before all
    /// have taken.
    fn carry_out<T: Pod>(
        &mut self,
        order: &P::Order,
        job: Job<'_>,
        from: Option<P::Read<'_, T>>,
        to: Option<P::Write<'_, T>>,
    ) -> Result<()> {
        let bytes = from.as_ref().map_or(0, |from| P::len(from) * size_of::<T>());
        let room = to.as_ref().map_or(0, |to| P::len_mut(to) * size_of::<T>());
        let offer = self.place.offer(order, from)?;
        let mine = Brought { offer: offer.clone(), bytes, parts: job.parts };
        let members = self.members(job.pair);
        let all = self.meet(&job.call, job.pair, mine)?;
        let sends = sends_of(&members, &all, job.call.name)?;
        let plan = |rank: usize| (job.plan)(&sends, rank);
        for pull in plan(self.rank) {
            let offered = members.iter().position(|&member| member == pull.from).map(|at| all[at].bytes);
            let fits = |start: usize, len| start.checked_add(pull.bytes).is_some_and(|end| end <= len);
            if !fits(pull.source, offered.unwrap_or(0)) || !fits(pull.target, room) {
                return Err(length(job.call.name, format!("{pull:?} lies outside of what was given")));
            }
        }
        let offers: Vec<P::Offer> = all.iter().map(|brought| brought.offer.clone()).collect();
        let journey = Journey { me: self.rank, members: &members, offers: &offers, plan: &plan };
        let done = self.place.carry(order, &journey, to)?;
        for pull in plan(self.rank) {
            self.hub.meter.add(pull.from, self.rank, pull.bytes);
        }
        let ends = self.meet(&job.call, job.pair, Brought { offer: done, bytes: 0, parts: None })?;
        let reads_mine = |rank: usize| {
            rank != self.rank && plan(rank).iter().any(|pull| pull.from == self.rank && pull.bytes > 0)
        };
        let readers = members.iter().zip(&ends).filter(|(member, _)| reads_mine(**member));
        let points: Vec<&P::Offer> = readers.map(|(_, end)| &end.offer).collect();
        self.place.follow(order, &points, &offer)
    }

    fn meet(
        &mut self,
        call: &Call,
        pair: Option<(usize, usize)>,
        mine: Brought<P>,
    ) -> Result<Vec<Brought<P>>> {
        let count = self.meetings.entry(pair).or_default();
        let key = Key { pair, number: *count };
        *count += 1;
        let members = self.members(pair);
        self.hub.meet(self.rank, key, &members, call, mine)
    }

    fn members(&self, pair: Option<(usize, usize)>) -> Vec<usize> {
        pair.map_or_else(|| (0..self.ranks()).collect(), |(from, to)| vec![from, to])
    }

    /// Runs a call. What fails here is told to everybody, because they wait for this rank.
    fn guarded(&mut self, call: &'static str, body: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let outcome = self.hub.check().and_then(|()| body(self));
        if let Err(error) = &outcome {
            self.hub.fail(match error {
                Error::Peer { rank, call, what } => Failure { rank: *rank, call, what: what.clone() },
                error => Failure { rank: self.rank, call, what: format!("failed: {error}") },
            });
            self.place.abandon();
        }
        outcome
    }

    fn require_rank(&self, rank: usize) -> Result<()> {
        if rank < self.ranks() {
            return Ok(());
        }
        Err(length("Fabric", format!("there is no rank {rank}: there are {}, from 0", self.ranks())))
    }

    fn require_other(&self, rank: usize) -> Result<()> {
        self.require_rank(rank)?;
        if rank == self.rank {
            return Err(length("Fabric", format!("rank {rank} cannot send to itself; copy instead")));
        }
        Ok(())
    }
}

impl<P: Place> Drop for Rank<P> {
    fn drop(&mut self) {
        let how = if std::thread::panicking() { "panicked" } else { "was dropped" };
        self.hub.leave(self.rank, how);
    }
}

impl<P: Place> std::fmt::Debug for Rank<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rank({} of {})", self.rank, self.ranks())
    }
}

/// What each member sends to each rank, after a look whether that is what they expect.
fn sends_of<P: Place>(members: &[usize], all: &[Brought<P>], call: &'static str) -> Result<Vec<Vec<usize>>> {
    let parts: Vec<&Parts> = all.iter().filter_map(|brought| brought.parts.as_ref()).collect();
    if parts.len() != members.len() {
        return Ok(Vec::new());
    }
    for (from, sender) in parts.iter().enumerate() {
        for (to, receiver) in parts.iter().enumerate() {
            let (sent, expected) = (sender.sends[to], receiver.receives[from]);
            if sent != expected {
                let what = format!("sends {sent} elements to rank {to}, which expects {expected}");
                return Err(Failure { rank: from, call, what }.into());
            }
        }
    }
    Ok(parts.into_iter().map(|parts| parts.sends.clone()).collect())
}

fn total(lens: &[usize]) -> Result<usize> {
    let sum = lens.iter().try_fold(0usize, |sum, &len| sum.checked_add(len));
    sum.ok_or_else(|| length("Fabric", "the parts are more than can be addressed".into()))
}

fn expect(call: &'static str, given: usize, wanted: usize) -> Result<()> {
    if given == wanted {
        Ok(())
    } else {
        Err(length(call, format!("{given} given where {wanted} are needed")))
    }
}

fn length(call: &'static str, message: String) -> Error {
    Error::Length { call, message }
}
