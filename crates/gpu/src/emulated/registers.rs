//! `setmaxnreg`: warpgroups deal out the registers that a block was launched with.

use super::block::{CallSite, Wait};
use super::launch::{Flow, Launch, Step, Stop};
use crate::types::FaultKind;

/// Registers of a multiprocessor, and the most that a thread may be launched with.
const REGISTERS: u32 = 65536;
const MOST: u32 = 255;

/// The registers of a block, by warpgroup.
#[derive(Default)]
pub(super) struct Registers {
    groups: Vec<Group>,
}

/// A warpgroup: registers a thread, and the call that its threads come to.
#[derive(Default, Clone)]
struct Group {
    held: u32,
    call: Option<(u32, bool, CallSite)>,
    arrived: u32,
    waiters: Vec<usize>,
}

impl Launch {
    /// All threads of a warpgroup ask for `count` registers each. Who asks for more waits until others have
    /// given theirs.
    pub(super) fn set_registers(&mut self, count: u32, acquires: bool, site: CallSite) -> Step {
        let (block, thread) = (self.current_block(), self.current_thread());
        self.open_pool(site)?;
        if !(24..=256).contains(&count) || !count.is_multiple_of(8) {
            let message = format!("setmaxnreg of {count} registers: 24 to 256 in steps of 8 are possible");
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        }
        let group = &mut self.blocks[block].pool.groups[thread / 128];
        let held = group.held;
        match group.call {
            Some((other, acquired, _)) if (other, acquired) != (count, acquires) => {
                let message =
                    format!("setmaxnreg of {count} registers, and of {other} in the same warpgroup");
                return Err(self.fault_at(FaultKind::Divergence, site, message));
            }
            _ => group.call = Some((count, acquires, site)),
        }
        if (acquires && count < held) || (!acquires && count > held) {
            let verb = if acquires { "acquires" } else { "releases down to" };
            let message = format!("a warpgroup {verb} {count} registers a thread and holds {held}");
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        }
        group.arrived += 1;
        let is_whole = group.arrived == 128;
        if acquires {
            group.waiters.push(thread);
        }
        let flow = if acquires { self.wait(Wait::Registers { count }, site) } else { Flow::Go };
        if is_whole && !acquires {
            let group = &mut self.blocks[block].pool.groups[thread / 128];
            (group.held, group.call, group.arrived) = (count, None, 0);
        }
        self.deal_registers(block);
        Ok(flow)
    }

    /// Registers that the block was launched with, as the compiler deals them out for the kernel's bounds.
    fn open_pool(&mut self, site: CallSite) -> Result<(), Stop> {
        if !self.block().pool.groups.is_empty() {
            return Ok(());
        }
        let threads = self.grid.threads_per_block() as u32;
        let Some((bound, blocks)) = self.entry.bounds else {
            let message =
                "setmaxnreg in a kernel without GW_KERNEL_BOUNDED: its registers are not known".into();
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        };
        if !threads.is_multiple_of(128) {
            let message =
                format!("setmaxnreg is of whole warpgroups of 128 threads, the block has {threads}");
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        }
        let held = (REGISTERS / (bound.max(1) * blocks.max(1))).min(MOST) / 8 * 8;
        let group = Group { held, ..Group::default() };
        self.block().pool.groups = vec![group; threads as usize / 128];
        Ok(())
    }

    /// Gives registers to warpgroups that wait for them, as far as there are any.
    fn deal_registers(&mut self, block: usize) {
        let Some((bound, blocks)) = self.entry.bounds else { return };
        let groups = &mut self.blocks[block].pool.groups;
        let each = (REGISTERS / (bound.max(1) * blocks.max(1))).min(MOST) / 8 * 8;
        let all = each * groups.len() as u32;
        let mut woken = Vec::new();
        for index in 0..groups.len() {
            let used: u32 = groups.iter().map(|group| group.held).sum();
            let group = &mut groups[index];
            let Some((count, true, _)) = group.call else { continue };
            if group.arrived == 128 && used - group.held + count <= all {
                (group.held, group.call, group.arrived) = (count, None, 0);
                woken.append(&mut group.waiters);
            }
        }
        for thread in woken {
            self.wake(block, thread);
        }
    }
}
