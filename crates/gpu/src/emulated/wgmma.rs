//! Warpgroup products: issued now, read from shared memory and delivered to the registers at the wait.
//!
//! Each warp of a warpgroup is carried out by itself: it owns 16 rows of D. A lane's accumulators are taken
//! over at the issue, poisoned meanwhile, and given back at the wait that covers their last product.

use std::collections::VecDeque;

use super::access::Touch;
use super::block::{Agent, CallSite, Wait};
use super::clocks::Slot;
use super::launch::{Flow, Launch, Step, Stop};
use super::shadow::{Manner, Stamp};
use super::tensor::{Adder, Matrix};
use crate::abi::{Format, WgmmaCall};
use crate::types::FaultKind;

/// What accumulators hold while the hardware has them.
const POISON: u32 = 0xFFFF_FFFF;

/// The products of one warp. As an agent, its time is the number of products carried out.
#[derive(Default)]
pub(super) struct WgmmaState {
    agent: Option<Slot>,
    products: VecDeque<Product>,
    /// Products that every lane has waited for and that are gone from `products`.
    retired: usize,
    executed: usize,
    lanes: Vec<Lane>,
}

#[derive(Default)]
struct Lane {
    issued: usize,
    /// Products issued before each commit that has not been waited for.
    groups: VecDeque<usize>,
    delivered: usize,
    fenced: bool,
    held: Vec<Held>,
    /// Arrays that registers of A came from, each with the last product that uses them.
    sources: Vec<(usize, usize)>,
}

/// Accumulators that the hardware has.
struct Held {
    address: usize,
    values: Vec<u32>,
    /// The last product that uses them.
    last: usize,
}

impl Held {
    fn overlaps(&self, address: usize, bytes: usize) -> bool {
        address < self.address + 4 * self.values.len() && self.address < address.saturating_add(bytes)
    }
}

/// One instruction, as its lanes issue it one by one.
struct Product {
    call: WgmmaCall,
    a_registers: [[u32; 4]; 32],
    accumulators: [usize; 32],
    issued: u32,
    site: CallSite,
}

/// A matrix operand in shared memory, as its descriptor says.
#[derive(Clone, Copy)]
struct Operand {
    base: usize,
    leading: usize,
    stride: usize,
    swizzle: u32,
    transposed: bool,
    element: usize,
}

impl Operand {
    fn new(descriptor: u64, transposed: bool, format: Format) -> Self {
        let field = |at: u32| ((descriptor >> at & 0x3FFF) << 4) as usize;
        Self {
            base: field(0),
            leading: field(16),
            stride: field(32),
            swizzle: (descriptor >> 62) as u32,
            transposed,
            element: format.bytes(),
        }
    }

    /// Shared offset of element (`row`, `k`): `row` counts along M or N.
    fn offset(&self, row: usize, k: usize) -> usize {
        let pitch = [16, 128, 64, 32][self.swizzle as usize];
        let linear = match (self.transposed, self.swizzle) {
            // K-major: a group of 8 rows of `pitch` bytes; without swizzle each 16 bytes of K are a tile of
            // their own.
            (false, 0) => {
                let byte = k * self.element;
                row / 8 * self.stride + row % 8 * 16 + byte / 16 * self.leading + byte % 16
            }
            (false, _) => row / 8 * self.stride + row % 8 * pitch + k * self.element,
            // MN-major: 8 rows of K, each with `pitch` bytes along M or N.
            (true, 0) => {
                let byte = row * self.element;
                byte / 16 * self.stride + byte % 16 + k / 8 * self.leading + k % 8 * 16
            }
            (true, _) => {
                let byte = row * self.element;
                byte / pitch * self.leading + byte % pitch + k / 8 * self.stride + k % 8 * pitch
            }
        };
        let address = self.base + linear;
        let bits = [0, 7, 3, 1][self.swizzle as usize];
        address ^ (address >> 7 & bits) << 4
    }

    /// Offsets of the 16-byte chunks that hold rows `rows` of `depth` elements each.
    fn chunks(self, rows: std::ops::Range<usize>, depth: usize) -> impl Iterator<Item = usize> {
        let per_chunk = 16 / self.element;
        let (outer, inner, transposed) = if self.transposed {
            ((0..depth).step_by(1), rows.start..rows.end, true)
        } else {
            ((rows.start..rows.end).step_by(1), 0..depth, false)
        };
        outer.flat_map(move |o| {
            inner
                .clone()
                .step_by(per_chunk)
                .map(move |i| if transposed { self.offset(i, o) } else { self.offset(o, i) })
        })
    }
}

impl Launch {
    /// One lane issues a product.
    pub(super) fn wgmma(&mut self, call: &WgmmaCall, site: CallSite) -> Result<(), Stop> {
        let thread = self.current_thread();
        let (warp, lane) = (thread / 32, thread % 32);
        let (block, all) = (self.current_block(), self.grid.threads_per_block() as usize);
        if all < (warp / 4 + 1) * 128 {
            let message = format!("wgmma needs whole warpgroups of 128 threads; the block has {all}");
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        }
        self.require_own(call.accumulators as usize, call.registers(), site)?;
        let state = &self.blocks[block].products[warp];
        let first =
            state.lanes.get(lane).map_or(0, |lane| lane.issued) - state.retired == state.products.len();
        if first {
            self.check_operands(call, site)?;
        }
        let state = &mut self.blocks[block].products[warp];
        state.lanes.resize_with(32, Lane::default);
        if !state.lanes[lane].fenced {
            let message = "wgmma without wgmma_fence before it: the registers may still be in use".into();
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        }
        let number = state.lanes[lane].issued;
        let index = number - state.retired;
        if first {
            state.products.push_back(Product {
                call: *call,
                a_registers: [[0; 4]; 32],
                accumulators: [0; 32],
                issued: 0,
                site,
            });
        }
        let product = &mut state.products[index];
        if !product.call.same_instruction(call) {
            let message = "the lanes of a warp issue different wgmma instructions".into();
            return Err(self.fault_at(FaultKind::Divergence, site, message));
        }
        self.check_warpgroup(warp, number, call, site)?;
        let state = &mut self.blocks[block].products[warp];
        let product = &mut state.products[index];
        product.a_registers[lane] = call.a;
        product.accumulators[lane] = call.accumulators as usize;
        product.issued |= 1 << lane;
        let complete = product.issued == u32::MAX;
        let (address, registers) = (call.accumulators as usize, call.registers());
        let lane = &mut state.lanes[lane];
        lane.issued += 1;
        if call.a_in_registers != 0 {
            lane.sources.retain(|(source, _)| *source != call.a_source as usize);
            lane.sources.push((call.a_source as usize, number));
        }
        match lane.held.iter_mut().find(|held| held.overlaps(address, 4 * registers)) {
            Some(held) if held.address == address && held.values.len() == registers => held.last = number,
            Some(_) => {
                let message =
                    "the accumulators of a wgmma overlap others that have not been waited for".into();
                return Err(self.fault_at(FaultKind::Protocol, site, message));
            }
            None => {
                // SAFETY: `require_own` found `registers` words on the running thread's stack.
                let words = unsafe { std::slice::from_raw_parts_mut(call.accumulators, registers) };
                lane.held.push(Held { address, values: words.to_vec(), last: number });
                words.fill(POISON);
            }
        }
        if first {
            self.record_reads(warp, number, call, site)?;
        }
        if complete {
            self.wake_product_waiters(block, warp);
        }
        Ok(())
    }

    /// The four warps of a warpgroup issue the same instruction on the same operands.
    fn check_warpgroup(
        &mut self,
        warp: usize,
        number: usize,
        call: &WgmmaCall,
        site: CallSite,
    ) -> Result<(), Stop> {
        let fellows = warp / 4 * 4..warp / 4 * 4 + 4;
        let products = &self.block().products;
        let other = fellows.into_iter().find(|&fellow| {
            let state = &products[fellow];
            let theirs = number.checked_sub(state.retired).and_then(|index| state.products.get(index));
            theirs.is_some_and(|theirs| !theirs.call.same_instruction(call))
        });
        let Some(other) = other else { return Ok(()) };
        let message = format!(
            "warp {warp} issues another wgmma than warp {other}: the four warps of a warpgroup issue one instruction, with the \
             same descriptors"
        );
        Err(self.fault_at(FaultKind::Divergence, site, message))
    }

    fn check_operands(&mut self, call: &WgmmaCall, site: CallSite) -> Result<(), Stop> {
        let format = call.format();
        let transposed = call.transpose_a != 0 || call.transpose_b != 0;
        if transposed && format.bytes() == 1 {
            let message = "wgmma of 8-bit formats takes K-major operands only".into();
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        }
        if !call.n.is_multiple_of(8) || call.n == 0 || call.n > 256 {
            return Err(self.fault_at(FaultKind::Protocol, site, format!("wgmma of width {}", call.n)));
        }
        let shared = self.block().shared.bytes;
        let warp_rows = (self.current_thread() / 32 % 4) * 16;
        for (operand, rows) in call.operands(format, warp_rows) {
            if let Some(beyond) = operand.chunks(rows, format.depth()).find(|offset| offset + 16 > shared) {
                let message =
                    format!("a wgmma operand reaches shared offset {beyond}, the block has {shared} bytes");
                return Err(self.fault_at(FaultKind::OutOfBounds, site, message));
            }
        }
        Ok(())
    }

    /// From now until the wait, shared memory belongs to the product.
    fn record_reads(
        &mut self,
        warp: usize,
        number: usize,
        call: &WgmmaCall,
        site: CallSite,
    ) -> Result<(), Stop> {
        let block = self.block();
        let base = block.shared.base();
        let agent = match block.products[warp].agent {
            Some(agent) => agent,
            None => block.new_agent(Agent::Products(warp)),
        };
        self.block().products[warp].agent = Some(agent);
        let pc = self.code_of(site);
        let stamp = Stamp { block: self.block().number, slot: agent, time: number as u32 + 1, pc };
        self.thread().site = site;
        let format = call.format();
        for (operand, rows) in call.operands(format, warp % 4 * 16) {
            for offset in operand.chunks(rows, format.depth()) {
                let touch = Touch {
                    address: base + offset,
                    bytes: 16,
                    write: false,
                    updates: false,
                    alignment: 16,
                    manner: Manner::AsyncProxy,
                    pc: 0,
                };
                self.check(touch, Some(stamp))?;
            }
        }
        Ok(())
    }

    pub(super) fn fence_products(&mut self) {
        let thread = self.current_thread();
        let state = &mut self.block().products[thread / 32];
        state.lanes.resize_with(32, Lane::default);
        state.lanes[thread % 32].fenced = true;
    }

    pub(super) fn wgmma_commit(&mut self) {
        let thread = self.current_thread();
        let state = &mut self.block().products[thread / 32];
        state.lanes.resize_with(32, Lane::default);
        let lane = &mut state.lanes[thread % 32];
        lane.groups.push_back(lane.issued);
    }

    /// Waits until at most `pending` groups are under way, and delivers the others.
    pub(super) fn wgmma_wait(&mut self, pending: u32, site: CallSite) -> Step {
        let thread = self.current_thread();
        let (block, warp, lane) = (self.current_block(), thread / 32, thread % 32);
        let state = &mut self.blocks[block].products[warp];
        state.lanes.resize_with(32, Lane::default);
        let waited = state.lanes[lane].groups.len().saturating_sub(pending as usize);
        let Some(&target) = waited.checked_sub(1).and_then(|last| state.lanes[lane].groups.get(last)) else {
            return Ok(Flow::Go);
        };
        let group = &self.blocks[block].products[warp / 4 * 4..warp / 4 * 4 + 4];
        let has_issued = |state: &WgmmaState| {
            state.lanes.len() == 32 && state.lanes.iter().all(|lane| lane.issued >= target)
        };
        if !group.iter().all(has_issued) {
            // Comes back here when the other lanes have issued theirs.
            self.thread().result = u64::from(true);
            return Ok(self.wait(Wait::Products, site));
        }
        self.execute_until(warp, target);
        self.deliver(warp, lane, target, waited)?;
        self.thread().result = u64::from(false);
        Ok(Flow::Go)
    }

    fn wake_product_waiters(&mut self, block: usize, warp: usize) {
        for thread in warp / 4 * 128..warp / 4 * 128 + 128 {
            if self.blocks[block].threads[thread].waiting == Wait::Products {
                self.wake(block, thread);
            }
        }
    }

    fn execute_until(&mut self, warp: usize, target: usize) {
        let block = self.block();
        let shared = block.shared.bytes();
        let state = &mut block.products[warp];
        while state.executed < target {
            let product = &state.products[state.executed - state.retired];
            multiply(product, warp % 4, shared, &mut state.lanes);
            state.executed += 1;
        }
    }

    fn deliver(&mut self, warp: usize, lane: usize, target: usize, groups: usize) -> Result<(), Stop> {
        // Where the function that waits has its frame: what lies below was of functions that have returned,
        // and is now the runtime's own.
        let scope = self.thread().frames.last().copied().unwrap_or(usize::MAX);
        let state = &mut self.block().products[warp];
        let site = state.products.back().map_or(CallSite::NOWHERE, |product| product.site);
        let this = &mut state.lanes[lane];
        this.groups.drain(..groups);
        this.delivered = target;
        // Whoever waits may touch the registers; the next product must be fenced again.
        this.fenced = false;
        let (done, held): (Vec<_>, Vec<_>) =
            std::mem::take(&mut this.held).into_iter().partition(|held| held.last < target);
        this.held = held;
        this.sources.retain(|(_, last)| *last >= target);
        let oldest = state.lanes.iter().map(|lane| lane.delivered).min().unwrap_or(0);
        let gone = oldest - state.retired;
        state.products.drain(..gone);
        state.retired = oldest;
        let agent = state.agent;
        for held in done {
            if held.address < scope {
                let message = "the accumulators of a wgmma went out of scope before the wait".into();
                return Err(self.fault_at(FaultKind::Protocol, site, message));
            }
            // SAFETY: the words lay on the running thread's stack when they were taken, and their frame is
            // still there.
            let words =
                unsafe { std::slice::from_raw_parts_mut(held.address as *mut u32, held.values.len()) };
            words.copy_from_slice(&held.values);
        }
        if let Some(agent) = agent {
            self.thread().knowledge.own.seen.raise(agent, target as u32);
        }
        Ok(())
    }

    /// An access to a thread's own stack: free, unless the bytes are accumulators that the hardware has.
    pub(super) fn touch_local(&mut self, touch: Touch) -> Step {
        let thread = self.current_thread();
        let state = &self.block().products[thread / 32];
        let Some(lane) = state.lanes.get(thread % 32) else { return Ok(Flow::Go) };
        let end = touch.address.saturating_add(touch.bytes);
        if touch.write && lane.sources.iter().any(|(source, _)| touch.address < source + 16 && *source < end)
        {
            let site = self.entry.line(touch.pc);
            let message = "writes the A registers of a wgmma that has not been waited for".into();
            return Err(self.fault(FaultKind::Protocol, Some(touch.address), site, message));
        }
        if !lane.held.iter().any(|held| held.overlaps(touch.address, touch.bytes)) {
            return Ok(Flow::Go);
        }
        let site = self.entry.line(touch.pc);
        let message = "touches the accumulators of a wgmma that has not been waited for".into();
        Err(self.fault(FaultKind::Protocol, Some(touch.address), site, message))
    }

    pub(super) fn check_exit_products(&mut self) -> Result<(), Stop> {
        let thread = self.current_thread();
        let state = &self.block().products[thread / 32];
        let lost = state.lanes.get(thread % 32).is_some_and(|lane| lane.delivered < lane.issued);
        if lost {
            let site = state.products.back().map_or(CallSite::NOWHERE, |product| product.site);
            let message = "the thread ends with wgmma products that were never waited for".into();
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        }
        Ok(())
    }
}

impl WgmmaCall {
    /// The shared-memory operands and the rows of each that warp rows `warp_rows ..` read.
    fn operands(
        &self,
        format: Format,
        warp_rows: usize,
    ) -> impl Iterator<Item = (Operand, std::ops::Range<usize>)> {
        let a = (self.a_in_registers == 0).then(|| {
            (Operand::new(self.a_descriptor, self.transpose_a != 0, format), warp_rows..warp_rows + 16)
        });
        let b = (Operand::new(self.b_descriptor, self.transpose_b != 0, format), 0..self.n as usize);
        a.into_iter().chain([b])
    }
}

/// Carries out one product for one warp on the lanes' held accumulators.
fn multiply(product: &Product, warp: usize, shared: &[u8], lanes: &mut [Lane]) {
    let call = &product.call;
    let format = call.format();
    let adder = Adder::Fused(format);
    let gather = |operand: Operand, rows: std::ops::Range<usize>| {
        let mut matrix = Matrix::new(adder, rows.len());
        // Elements that lie side by side: a chunk of 16 bytes along K, or single ones of a transposed
        // operand.
        let run = if operand.transposed { 1 } else { 16 / format.bytes() };
        for (place, row) in rows.enumerate() {
            for k in (0..format.depth()).step_by(run) {
                let at = operand.offset(row, k);
                matrix.set_run(place, k, &shared[at..at + run * format.bytes()]);
            }
        }
        matrix
    };
    let a = if call.a_in_registers != 0 {
        let mut matrix = Matrix::new(adder, 16);
        for (lane, registers) in product.a_registers.iter().enumerate() {
            matrix.set_fragment(lane, registers);
        }
        matrix
    } else {
        gather(Operand::new(call.a_descriptor, call.transpose_a != 0, format), warp * 16..warp * 16 + 16)
    };
    let b = gather(Operand::new(call.b_descriptor, call.transpose_b != 0, format), 0..call.n as usize);
    for (lane, state) in lanes.iter_mut().enumerate() {
        let address = product.accumulators[lane];
        let Some(held) = state.held.iter_mut().find(|held| held.address == address) else { continue };
        for (i, word) in held.values.iter_mut().enumerate() {
            let start = if call.accumulate != 0 { *word } else { 0 };
            *word = if call.half_accumulators != 0 {
                let (row, column) = (lane / 4 + 8 * (i % 2), i / 2 * 8 + 2 * (lane % 4));
                adder.accumulate_halves(start, a.row(row), [b.row(column), b.row(column + 1)])
            } else {
                let (row, column) = (lane / 4 + 8 * (i / 2 % 2), i / 4 * 8 + 2 * (lane % 4) + i % 2);
                adder.accumulate(start, a.row(row), b.row(column))
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swizzles_permute_sixteen_byte_chunks_of_a_row() {
        for (swizzle, pitch) in [(1u64, 128usize), (2, 64), (3, 32)] {
            let descriptor = swizzle << 62 | ((8 * pitch as u64) >> 4) << 32 | (1024 >> 4);
            let operand = Operand::new(descriptor, false, Format::E4m3);
            let mut seen: Vec<usize> =
                (0..16).flat_map(|row| (0..pitch).map(move |k| operand.offset(row, k))).collect();
            seen.sort_unstable();
            let all: Vec<usize> = (1024..1024 + 16 * pitch).collect();
            assert_eq!(seen, all, "swizzle {swizzle} is a permutation of its tile");
            assert_eq!(operand.offset(0, 5), 1024 + 5);
        }
    }
}
