//! How the cards of a machine are joined.

use serde::Serialize;

/// The cards of a machine and what joins them, as the driver and NVML report it.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Topology {
    /// Every card, by its number.
    pub cards: Vec<Card>,
    /// Every ordered pair of different cards.
    pub links: Vec<PeerLink>,
}

/// One card.
#[derive(Debug, Clone, Serialize)]
pub struct Card {
    /// `cuda:0`.
    pub id: String,
    /// Its place on the bus, as `0000:65:00.0`.
    pub bus: String,
    /// Its NVLinks that are up, where NVML tells.
    pub nvlinks: Option<NvLinks>,
}

/// NVLinks of one card that are up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct NvLinks {
    /// All of them.
    pub active: u32,
    /// Those that lead to a switch, and so to every card there.
    pub to_switches: u32,
    /// Where each of the others leads, by its place on the bus, where NVML tells.
    pub remotes: Vec<String>,
}

/// The link from one card to another, as the driver reports it.
#[derive(Debug, Clone, Serialize)]
pub struct PeerLink {
    /// Whose kernels.
    pub from: usize,
    /// Whose memory.
    pub to: usize,
    /// Whether kernels can address it.
    pub access: bool,
    /// How good the way is in comparison to the machine's others, 0 being the best.
    pub performance_rank: u32,
    /// Whether atomics work there.
    pub atomics: bool,
    /// NVLinks that lead straight from one to the other, where NVML tells.
    pub nvlinks: Option<u32>,
}
