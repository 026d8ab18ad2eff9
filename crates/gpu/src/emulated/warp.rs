//! What the threads of a warp do together: exchanges, matrix loads and stores, small products.

use super::access::{Place, Touch};
use super::block::{CallSite, Wait};
use super::clocks::{Meeting, Slot};
use super::launch::{Launch, Step, Stop};
use super::shadow::Manner;
use super::tensor::{Adder, Matrix};
use crate::abi::{ExchangeOp, Format};
use crate::types::FaultKind;

/// What one lane brings to a meeting of its warp. Pointers are into the lane's own stack, which stays while
/// it waits.
#[derive(Debug, Clone, Copy)]
pub(super) enum Offer {
    Sync,
    Exchange { op: ExchangeOp, value: u64, argument: u32, wide: bool },
    Load { registers: *mut u32, row: usize, count: usize, transpose: bool },
    Store { registers: *const u32, row: usize, count: usize, transpose: bool },
    Mma { format: Format, d: *mut u32, a: *const u32, b: *const u32, c: *const u32 },
}

impl Offer {
    fn same_kind(&self, other: &Offer) -> bool {
        match (self, other) {
            (Self::Exchange { op: a, .. }, Self::Exchange { op: b, .. }) => a == b,
            (Self::Mma { format: a, .. }, Self::Mma { format: b, .. }) => a == b,
            (Self::Load { count: a, transpose: s, .. }, Self::Load { count: b, transpose: t, .. })
            | (Self::Store { count: a, transpose: s, .. }, Self::Store { count: b, transpose: t, .. }) => {
                a == b && s == t
            }
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

/// A warp's meetings in progress. Lanes that have parted meet under masks of their own, at the same time.
#[derive(Default)]
pub(super) struct Warp {
    meetings: Vec<Gathering>,
}

/// Lanes that meet under one mask.
struct Gathering {
    mask: u32,
    arrived: u32,
    offers: [Option<Offer>; 32],
    site: CallSite,
}

impl Launch {
    /// Waits until all lanes of `mask` have come with the same call; the last one carries it out for all.
    pub(super) fn meet(&mut self, mask: u32, offer: Offer, site: CallSite) -> Step {
        let thread = self.current_thread();
        let (slot, warp, lane) = (self.current_block(), thread / 32, thread % 32);
        if mask >> lane & 1 == 0 {
            let message = format!("lane {lane} calls with the mask {mask:#010x}, which does not name it");
            return Err(self.fault_at(FaultKind::Divergence, site, message));
        }
        self.check_registers(&offer, site)?;
        let meetings = &mut self.blocks[slot].warps[warp].meetings;
        let same = |meeting: &Gathering| {
            let first = meeting.offers.iter().flatten().next();
            meeting.mask == mask
                && meeting.site.same_as(&site)
                && first.is_none_or(|first| first.same_kind(&offer))
        };
        match meetings.iter_mut().find(|meeting| meeting.mask & mask != 0) {
            Some(meeting) if !same(meeting) => {
                let (line, other) = (meeting.site.line, meeting.mask);
                let message = format!(
                    "lanes of one warp meet at different calls: line {} with the mask {mask:#010x} and line {line} \
                     with {other:#010x}",
                    site.line
                );
                return Err(self.fault_at(FaultKind::Divergence, site, message));
            }
            Some(meeting) => {
                meeting.arrived |= 1 << lane;
                meeting.offers[lane] = Some(offer);
            }
            None => {
                let mut offers = [None; 32];
                offers[lane] = Some(offer);
                meetings.push(Gathering { mask, arrived: 1 << lane, offers, site });
            }
        }
        let flow = self.wait(Wait::Warp, site);
        self.close_meetings(slot, warp)?;
        // Whoever closes the meeting is among those it wakes: everyone comes back through the queue.
        Ok(flow)
    }

    /// The arrays that an instruction reads and writes as registers must be the thread's own: they are
    /// touched later, by whichever lane completes the meeting.
    fn check_registers(&mut self, offer: &Offer, site: CallSite) -> Result<(), Stop> {
        match *offer {
            Offer::Sync | Offer::Exchange { .. } => Ok(()),
            Offer::Load { count, .. } | Offer::Store { count, .. } if !matches!(count, 1 | 2 | 4) => {
                let message = format!("a matrix instruction of {count} tiles: 1, 2 or 4 are possible");
                Err(self.fault_at(FaultKind::Protocol, site, message))
            }
            Offer::Load { registers, count, .. } => self.require_own(registers as usize, count, site),
            Offer::Store { registers, count, .. } => self.require_own(registers as usize, count, site),
            Offer::Mma { d, a, b, c, .. } => {
                self.require_own(d as usize, 4, site)?;
                self.require_own(a as usize, 4, site)?;
                self.require_own(b as usize, 2, site)?;
                self.require_own(c as usize, 4, site)
            }
        }
    }

    /// `words` words at `address` must be variables of the running thread.
    pub(super) fn require_own(&mut self, address: usize, words: usize, site: CallSite) -> Result<(), Stop> {
        let (low, high) = self.stack();
        if address >= low && address.saturating_add(4 * words) <= high && address.is_multiple_of(4) {
            return Ok(());
        }
        let message = format!("registers at {address:#x}: they must be an array of the thread's own");
        Err(self.fault_at(FaultKind::Protocol, site, message))
    }

    /// A lane has ended: nobody waits for it any more.
    pub(super) fn lane_left(&mut self, slot: usize, warp: usize) -> Result<(), Stop> {
        self.close_meetings(slot, warp)
    }

    fn close_meetings(&mut self, slot: usize, warp: usize) -> Result<(), Stop> {
        let live = live_lanes(&self.blocks[slot].threads[warp * 32..], |thread| !thread.done);
        loop {
            let meetings = &mut self.blocks[slot].warps[warp].meetings;
            let complete = meetings.iter().position(|meeting| meeting.arrived == meeting.mask & live);
            let Some(complete) = complete else { return Ok(()) };
            let met = meetings.swap_remove(complete);
            self.carry_out(slot, warp, &met)?;
            for thread in lanes(warp, met.arrived) {
                self.wake(slot, thread);
            }
        }
    }

    fn carry_out(&mut self, slot: usize, warp: usize, met: &Gathering) -> Result<(), Stop> {
        let site = met.site;
        let Some(first) = met.offers.iter().flatten().next() else { return Ok(()) };
        match first {
            Offer::Sync => {
                let mut meeting = Meeting::default();
                for thread in lanes(warp, met.arrived) {
                    let state = &mut self.blocks[slot].threads[thread];
                    meeting.add(&state.knowledge, thread as Slot, state.time);
                    state.time += 1;
                }
                for thread in lanes(warp, met.arrived) {
                    self.blocks[slot].threads[thread].knowledge = meeting.knowledge().clone();
                }
                Ok(())
            }
            Offer::Exchange { .. } => {
                let noise = self.schedule.next();
                for lane in 0..32 {
                    if let Some(Offer::Exchange { op, value, argument, wide }) = met.offers[lane] {
                        let noise = noise.rotate_left(lane as u32) | 1;
                        let answer = exchange(op, lane, (value, value ^ noise), argument, met);
                        self.blocks[slot].threads[warp * 32 + lane].result =
                            if wide { answer } else { answer & 0xFFFF_FFFF };
                    }
                }
                Ok(())
            }
            Offer::Load { count, .. } | Offer::Store { count, .. } => {
                self.require_whole_warp(met, site)?;
                self.move_matrices(slot, warp, *count, met, site)
            }
            Offer::Mma { format, .. } => {
                self.require_whole_warp(met, site)?;
                small_product(*format, met);
                Ok(())
            }
        }
    }

    fn require_whole_warp(&mut self, met: &Gathering, site: CallSite) -> Result<(), Stop> {
        if met.arrived == u32::MAX {
            return Ok(());
        }
        let message =
            format!("a matrix instruction needs all 32 lanes; only {:#010x} are there", met.arrived);
        Err(self.fault_at(FaultKind::Divergence, site, message))
    }

    /// `ldmatrix` and `stmatrix`: lane i names row i % 8 of tile i / 8.
    fn move_matrices(
        &mut self,
        slot: usize,
        warp: usize,
        count: usize,
        met: &Gathering,
        site: CallSite,
    ) -> Result<(), Stop> {
        let runner = self.current_thread();
        for tile in 0..count {
            for row in 0..8 {
                let provider = tile * 8 + row;
                let (address, write, transpose) = match met.offers[provider] {
                    Some(Offer::Load { row, transpose, .. }) => (row, false, transpose),
                    Some(Offer::Store { row, transpose, .. }) => (row, true, transpose),
                    _ => continue,
                };
                let touch = Touch {
                    address,
                    bytes: 16,
                    write,
                    updates: false,
                    alignment: 16,
                    manner: Manner::Generic,
                    pc: 0,
                };
                let offset = self.check_as(slot, warp * 32 + provider, touch, site)?;
                for column in 0..8 {
                    // Element (row, column) is half `column % 2` of register `tile` of lane 4 row + column /
                    // 2.
                    let (g, c) = if transpose { (column, row) } else { (row, column) };
                    let lane = 4 * g + c / 2;
                    let at = offset + 2 * column;
                    let bytes = &mut self.blocks[slot].shared.bytes_mut()[at..at + 2];
                    match met.offers[lane] {
                        Some(Offer::Load { registers, .. }) => {
                            let half = u32::from(u16::from_le_bytes([bytes[0], bytes[1]]));
                            // SAFETY: the lane passed an array of `count` registers and waits in this call.
                            let register = unsafe { &mut *registers.add(tile) };
                            *register = if c % 2 == 0 {
                                (*register & !0xFFFF) | half
                            } else {
                                (*register & 0xFFFF) | half << 16
                            };
                        }
                        Some(Offer::Store { registers, .. }) => {
                            // SAFETY: as above.
                            let register = unsafe { *registers.add(tile) };
                            bytes.copy_from_slice(&((register >> (16 * (c % 2))) as u16).to_le_bytes());
                        }
                        _ => {}
                    }
                }
            }
        }
        self.run_as(slot, runner);
        Ok(())
    }

    /// Checks a shared-memory access on behalf of another lane of the warp.
    fn check_as(&mut self, slot: usize, thread: usize, touch: Touch, site: CallSite) -> Result<usize, Stop> {
        self.run_as(slot, thread);
        self.thread().site = site;
        match self.check(touch, None)? {
            Place::Shared { offset, block } if block == slot => Ok(offset),
            _ => {
                let message = format!("a matrix row at {:#x} is not in shared memory", touch.address);
                Err(self.fault_at(FaultKind::Protocol, site, message))
            }
        }
    }
}

fn live_lanes<T>(threads: &[T], alive: impl Fn(&T) -> bool) -> u32 {
    threads
        .iter()
        .take(32)
        .enumerate()
        .fold(0, |mask, (lane, thread)| mask | u32::from(alive(thread)) << lane)
}

fn lanes(warp: usize, mask: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |lane| mask >> lane & 1 == 1).map(move |lane| warp * 32 + lane)
}

/// What lane `lane` gets out of an exchange.
fn exchange(op: ExchangeOp, lane: usize, (mine, noise): (u64, u64), argument: u32, met: &Gathering) -> u64 {
    let value = |lane: usize| match met.offers.get(lane) {
        Some(Some(Offer::Exchange { value, .. })) => Some(*value),
        _ => None,
    };
    let others = || (0..32).filter_map(|lane| value(lane).map(|value| (lane, value)));
    let fold = |combine: fn(u32, u32) -> u32| {
        u64::from(others().map(|(_, value)| value as u32).reduce(combine).unwrap_or(0))
    };
    // A shuffle from beyond the warp's edge gives back the lane's own value, one from a lane that is not
    // there anything else.
    let from = |source: Option<usize>| source.map_or(mine, |source| value(source).unwrap_or(noise));
    // The instruction looks at five bits of a lane or a distance.
    let argument = argument as usize % 32;
    match op {
        ExchangeOp::Shuffle => from(Some(argument)),
        ExchangeOp::ShuffleUp => from(lane.checked_sub(argument)),
        ExchangeOp::ShuffleDown => from(Some(lane + argument).filter(|&source| source < 32)),
        ExchangeOp::ShuffleXor => from(Some(lane ^ argument)),
        ExchangeOp::Ballot => others().fold(0, |mask, (lane, value)| mask | u64::from(value != 0) << lane),
        ExchangeOp::MatchAny => {
            others().fold(0, |mask, (lane, value)| mask | u64::from(value == mine) << lane)
        }
        ExchangeOp::MatchAll => {
            if others().all(|(_, value)| value == mine) {
                u64::from(met.mask)
            } else {
                0
            }
        }
        ExchangeOp::ReduceAdd => fold(u32::wrapping_add),
        ExchangeOp::ReduceMinU => fold(u32::min),
        ExchangeOp::ReduceMaxU => fold(u32::max),
        ExchangeOp::ReduceMinS => fold(|a, b| (a as i32).min(b as i32) as u32),
        ExchangeOp::ReduceMaxS => fold(|a, b| (a as i32).max(b as i32) as u32),
        ExchangeOp::ReduceAnd => fold(|a, b| a & b),
        ExchangeOp::ReduceOr => fold(|a, b| a | b),
        ExchangeOp::ReduceXor => fold(|a, b| a ^ b),
    }
}

/// `mma.sync` of 16 x 8 x (16 or 32): fragments as in gw/matrix.cuh.
fn small_product(format: Format, met: &Gathering) {
    let depth = format.depth();
    let adder = Adder::of_warp(format);
    let (mut a, mut b) = (Matrix::new(adder, 16), Matrix::new(adder, 8));
    for lane in 0..32 {
        let Some(Offer::Mma { a: a_registers, b: b_registers, .. }) = met.offers[lane] else { continue };
        // SAFETY: the lane passed arrays of four and two registers and waits in this call.
        let (a_words, b_words) =
            unsafe { (*a_registers.cast::<[u32; 4]>(), *b_registers.cast::<[u32; 2]>()) };
        a.set_fragment(lane, &a_words);
        for (half, word) in b_words.into_iter().enumerate() {
            let k = half * depth / 2 + (lane % 4) * format.per_word();
            for (i, value) in format.decode_word(word).enumerate() {
                b.set(lane / 4, k + i, value);
            }
        }
    }
    for lane in 0..32 {
        let Some(Offer::Mma { d, c, .. }) = met.offers[lane] else { continue };
        // SAFETY: as above; C may be the same array as D, so it is copied first.
        let c_words = unsafe { *c.cast::<[u32; 4]>() };
        let mut d_words = [0u32; 4];
        for (i, word) in d_words.iter_mut().enumerate() {
            let (row, column) = (lane / 4 + 8 * (i / 2), 2 * (lane % 4) + i % 2);
            *word = adder.accumulate(c_words[i], a.row(row), b.row(column));
        }
        // SAFETY: as above.
        unsafe { *d.cast::<[u32; 4]>() = d_words };
    }
}
