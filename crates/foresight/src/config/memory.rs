//! The memory of a run: what it will hold, held against what there is before any of it is allocated.

use serde::Serialize;

use super::sections::{Config, ModelKind};
use crate::error::{Error, Result};
use crate::learner::EMULATED;

/// Bytes that a run will hold, beside the program itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MemoryPlan {
    /// Weights and their average, where the network learns.
    pub weights: usize,
    /// Moments and the last displacement, there too; with Muon what one of its products takes, and on a device
    /// its direction.
    pub optimiser: usize,
    /// Activations and gradients of all shards, there too. Evaluations run in the same memory.
    pub passes: usize,
    /// All examples, and finished runs.
    pub data: usize,
    /// Snapshots of weights, and three states: two to go back to, or one and its memory for the next, and one
    /// of an action that is tried.
    pub snapshots: usize,
    /// The state that is copied for a checkpoint while that is written.
    pub checkpoint: usize,
    /// The world model.
    pub world: usize,
    /// All that is in the machine's memory; initial weights, too, on their way to a device.
    pub host: usize,
    /// All that is in the memory of the device where the network learns; 0 on the CPU.
    pub device: usize,
}

/// Arrays of all parameters in a state: weights, average, two moments and the last displacement.
pub(super) const STATE: usize = 5;

impl MemoryPlan {
    /// The same run without a folder, which writes no checkpoints.
    pub fn without_checkpoints(self) -> Self {
        Self { checkpoint: 0, host: self.host - self.checkpoint, ..self }
    }

    /// Refuses what this machine has not available now. What a card has not is refused by the card.
    pub fn check(&self, config: &Config) -> Result<()> {
        available().map_or(Ok(()), |available| self.fit(config, available))
    }

    fn fit(&self, config: &Config, available: usize) -> Result<()> {
        // The emulated device's memory is the machine's.
        let needed = if config.run.device == EMULATED { self.host + self.device } else { self.host };
        if needed <= available {
            return Ok(());
        }
        Err(Error::too_large("this machine's memory", needed, available, &way_out(config)))
    }
}

/// The keys that make a run smaller.
fn way_out(config: &Config) -> String {
    let keys = match config.model.kind {
        ModelKind::Mlp => "'batch' or 'model.hidden'",
        ModelKind::Cnn => "'batch', 'model.filters' or 'model.hidden'",
        ModelKind::Gpt => "'batch', 'model.context', 'model.width' or 'model.layers'",
    };
    let engine =
        if config.engine.enabled { ", or train without the engine, which keeps snapshots" } else { "" };
    format!("lower {keys}{engine}")
}

/// Bytes that can still be had: free memory and what the system gives back or moves out, and no more than a
/// container may have, where it says how much that is. None where the system does not tell.
fn available() -> Option<usize> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let of_machine = read("/proc/meminfo").and_then(|table| {
        let of = |name: &str| of_table(&table, name);
        Some(1024 * (of("MemAvailable:")? + of("SwapFree:").unwrap_or(0)))
    });
    let of_container = (|| {
        let number = |path: &str| read(path)?.trim().parse::<usize>().ok();
        let most = number("/sys/fs/cgroup/memory.max")?;
        let used = number("/sys/fs/cgroup/memory.current")?;
        // Pages of files count as used, and go when they are in the way.
        let files =
            read("/sys/fs/cgroup/memory.stat").and_then(|table| of_table(&table, "file ")).unwrap_or(0);
        Some(most.saturating_sub(used.saturating_sub(files)))
    })();
    of_machine.into_iter().chain(of_container).min()
}

/// The first number of the line that begins with `name`.
fn of_table(table: &str, name: &str) -> Option<usize> {
    let line = table.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Prepared;

    #[test]
    fn a_run_that_is_larger_than_the_machine_is_refused_with_the_keys_to_lower() {
        let config = Config::preset("text").unwrap();
        let plan = Prepared::of(&config, |_| ()).unwrap().memory(&config).unwrap();
        assert!(plan.fit(&config, plan.host).is_ok());
        let said = plan.fit(&config, plan.host - 1).unwrap_err().to_string();
        assert!(said.contains("lower 'batch', 'model.context', 'model.width' or 'model.layers'"), "{said}");
        // Without a folder no state is copied for a checkpoint.
        assert_eq!(plan.checkpoint, 5 * plan.weights / 2);
        assert!(plan.without_checkpoints().fit(&config, plan.host - plan.checkpoint).is_ok());
        let with_engine = config.with_setting("engine.enabled=true").unwrap();
        let more = Prepared::of(&config, |_| ()).unwrap().memory(&with_engine).unwrap();
        assert!(more.snapshots == 21 * plan.weights / 2 && more.host > plan.host + more.snapshots);
        assert!(more.fit(&with_engine, 0).unwrap_err().to_string().contains("without the engine"));
    }

    #[test]
    fn what_sections_accept_and_no_machine_holds_is_refused_before_it_is_allocated() {
        let large = "[model]\nwidth = 16384\nlayers = 256";
        let config = Config::preset("text").unwrap().with_text("large", large).unwrap();
        let prepared = Prepared::of(&config, |_| ()).unwrap();
        for said in [prepared.trainee(&config).err(), prepared.memory(&config).err()] {
            let said = said.expect("it is refused").to_string();
            assert!(said.contains("parameters") && said.contains("'model.width'"), "{said}");
        }
        // Fewer parameters, and activations of 200 TB.
        let large = "batch = 1048576\n[model]\nwidth = 8192\nlayers = 10";
        let config = Config::preset("text").unwrap().with_text("large", large).unwrap();
        let said = crate::run::Run::start(&config, &prepared, None).err().expect("it is refused").to_string();
        assert!(said.contains("of this machine's memory"), "{said}");
    }

    #[test]
    fn numbers_are_read_of_tables() {
        let table = "MemFree:  17 kB\nMemAvailable:    3145728 kB\nSwapFree: 1 kB\n";
        assert_eq!(of_table(table, "MemAvailable:"), Some(3_145_728));
        assert_eq!(of_table(table, "SwapTotal:"), None);
        assert_eq!(of_table("anon 5\nfile 12\nfile_mapped 3\n", "file "), Some(12));
    }
}
