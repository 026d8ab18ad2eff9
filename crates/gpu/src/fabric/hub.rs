//! Where ranks meet: each brings something, and goes on with what all of them brought, or with the failure
//! that all of them are told.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Condvar, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::failure::{Call, Failure};
use super::traffic::Meter;
use crate::Result;
use crate::locked::Locked;

/// One meeting of a fabric: the same for all that belong there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// Who sends and who receives; `None`: everybody meets.
    pub(super) pair: Option<(usize, usize)>,
    /// How many there were before.
    pub(super) number: u64,
}

/// What all ranks of a fabric share.
pub(super) struct Hub<T> {
    pub(super) ranks: usize,
    pub(super) deadline: Duration,
    pub(super) meter: Meter,
    state: Locked<State<T>>,
    changed: Condvar,
}

struct State<T> {
    failure: Option<Failure>,
    /// How a rank went, for those that did.
    gone: Vec<Option<&'static str>>,
    /// Where each rank waits.
    waiting: Vec<Option<Key>>,
    meetings: HashMap<Key, Meeting<T>>,
}

struct Meeting<T> {
    call: Call,
    /// Who came first.
    opened_by: usize,
    members: Vec<usize>,
    /// What each member brought.
    brought: Vec<Option<T>>,
    /// Members that have not taken it all yet.
    left: usize,
}

impl<T> Meeting<T> {
    fn is_complete(&self) -> bool {
        self.brought.iter().all(Option::is_some)
    }

    fn missing(&self) -> impl Iterator<Item = usize> + '_ {
        let absent = |(member, brought): (&usize, &Option<T>)| brought.is_none().then_some(*member);
        self.members.iter().zip(&self.brought).filter_map(absent)
    }
}

impl<T: Clone> Hub<T> {
    pub(super) fn new(ranks: usize, deadline: Duration) -> Self {
        let state = State {
            failure: None,
            gone: vec![None; ranks],
            waiting: vec![None; ranks],
            meetings: HashMap::new(),
        };
        let (meter, state) = (Meter::new(ranks), Locked::new(state));
        Self { ranks, deadline, meter, state, changed: Condvar::new() }
    }

    /// Brings `mine` to a meeting and waits for the rest: what the members brought, in their order.
    ///
    /// Whatever keeps one from coming is an error for all: another call, a wait in a circle, a rank that is
    /// gone, the deadline.
    pub(super) fn meet(
        &self,
        me: usize,
        key: Key,
        members: &[usize],
        call: &Call,
        mine: T,
    ) -> Result<Vec<T>> {
        let until = Instant::now().checked_add(self.deadline);
        let mut state = self.state.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone().into());
        }
        if let Err(failure) = state.come(me, key, members, call, mine) {
            return Err(self.lose(state, failure).into());
        }
        self.changed.notify_all();
        loop {
            if let Some(all) = state.take(me, key) {
                return Ok(all);
            }
            if let Some(failure) = state.failure.clone() {
                return Err(failure.into());
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                let failure = state.stalled(key, call, self.deadline);
                return Err(self.lose(state, failure).into());
            }
            state = match left {
                Some(left) => {
                    self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// The failure that lost the fabric, if one did.
    pub(super) fn check(&self) -> Result<()> {
        self.state.lock().failure.clone().map_or(Ok(()), |failure| Err(failure.into()))
    }

    /// Loses the fabric; the first reason stays.
    pub(super) fn fail(&self, failure: Failure) {
        self.lose(self.state.lock(), failure);
    }

    /// A rank goes: whoever waits for it, now or later, is told.
    pub(super) fn leave(&self, rank: usize, how: &'static str) {
        let mut state = self.state.lock();
        state.gone[rank] = Some(how);
        let missed = state.meetings.values().find(|meeting| meeting.missing().any(|member| member == rank));
        if let Some(failure) = missed.map(|meeting| gone(rank, how, meeting.call.name)) {
            self.lose(state, failure);
        }
    }

    fn lose(&self, mut state: MutexGuard<'_, State<T>>, failure: Failure) -> Failure {
        let failure = state.failure.get_or_insert(failure).clone();
        // What ranks brought to meetings that will never be holds their memory.
        let lost: Vec<Key> = state
            .meetings
            .iter()
            .filter(|(_, meeting)| !meeting.is_complete())
            .map(|(&key, _)| key)
            .collect();
        let lost: Vec<_> = lost.iter().map(|key| state.meetings.remove(key)).collect();
        drop(state);
        self.changed.notify_all();
        // Frees memory, which may take its time.
        drop(lost);
        failure
    }
}

impl<T: Clone> State<T> {
    fn come(&mut self, me: usize, key: Key, members: &[usize], call: &Call, mine: T) -> Result<(), Failure> {
        let refuse = |what| Err(Failure { rank: me, call: call.name, what });
        let meeting = match self.meetings.entry(key) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(none) => none.insert(Meeting {
                call: call.clone(),
                opened_by: me,
                members: members.to_vec(),
                brought: members.iter().map(|_| None).collect(),
                left: members.len(),
            }),
        };
        if meeting.call != *call {
            return refuse(format!("calls {call} where rank {} calls {}", meeting.opened_by, meeting.call));
        }
        let place = meeting.members.iter().position(|&member| member == me);
        let Some(place) = place.and_then(|place| meeting.brought.get_mut(place)) else {
            return refuse(format!("comes to {call}, which is none of its own"));
        };
        *place = Some(mine);
        self.waiting[me] = Some(key);
        let Some(meeting) = self.meetings.get(&key) else { return Ok(()) };
        if let Some(rank) = meeting.missing().find(|&member| self.gone[member].is_some()) {
            return Err(gone(rank, self.gone[rank].unwrap_or_default(), call.name));
        }
        if let Some(other) = self.waits_for(me, me, &mut vec![false; self.gone.len()]) {
            let theirs = self.waiting[other].and_then(|key| self.meetings.get(&key));
            let theirs = theirs.map(|meeting| meeting.call.to_string()).unwrap_or_default();
            return refuse(format!("calls {call} while rank {other} waits for it in {theirs}"));
        }
        Ok(())
    }

    /// A rank that waits for `goal` and that `from` waits for, directly or by way of others.
    fn waits_for(&self, from: usize, goal: usize, seen: &mut [bool]) -> Option<usize> {
        let meeting = self.meetings.get(&self.waiting[from]?)?;
        for next in meeting.missing() {
            if next == goal {
                return Some(from);
            }
            if !std::mem::replace(&mut seen[next], true)
                && let Some(found) = self.waits_for(next, goal, seen)
            {
                return Some(found);
            }
        }
        None
    }

    fn take(&mut self, me: usize, key: Key) -> Option<Vec<T>> {
        let meeting = self.meetings.get_mut(&key).filter(|meeting| meeting.is_complete())?;
        let all = meeting.brought.iter().flatten().cloned().collect();
        meeting.left -= 1;
        self.waiting[me] = None;
        if meeting.left == 0 {
            self.meetings.remove(&key);
        }
        Some(all)
    }

    fn stalled(&self, key: Key, call: &Call, deadline: Duration) -> Failure {
        let missing: Vec<usize> =
            self.meetings.get(&key).map(|meeting| meeting.missing().collect()).unwrap_or_default();
        let others = match missing.get(1..) {
            Some(rest @ [_, ..]) => format!(" (nor did {rest:?})"),
            _ => String::new(),
        };
        let what = format!("did not come to {call} within {deadline:?}{others}");
        Failure { rank: missing.first().copied().unwrap_or_default(), call: call.name, what }
    }
}

fn gone(rank: usize, how: &str, call: &'static str) -> Failure {
    Failure { rank, call, what: format!("{how} and will not come") }
}
