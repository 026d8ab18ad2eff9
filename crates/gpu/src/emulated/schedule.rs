//! The source of all randomness of a launch: which thread runs next, when a copy lands.

/// A small generator (SplitMix64): repeatable from its seed on every machine.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    state: u64,
    /// A copy in flight lands with chance 1 in this many switches, or only when nothing else can run.
    landing: Option<u32>,
    /// Of so many threads drawn, the one whose warp has the highest rank runs.
    candidates: u32,
    ranks: u64,
}

impl Schedule {
    /// Seeds differ not only in order but in temper: some starve warps, some land copies as late as the rules
    /// allow.
    pub(super) fn new(seed: u64) -> Self {
        let mut schedule =
            Self { state: seed ^ 0x9E37_79B9_7F4A_7C15, landing: None, candidates: 1, ranks: 0 };
        schedule.landing = [None, Some(64), Some(4)][schedule.below(3)];
        schedule.candidates = [1, 1, 4][schedule.below(3)];
        schedule.ranks = schedule.next();
        schedule
    }

    /// What tells the schedules of one device of a group from those of another; nothing for the first.
    pub(super) fn salt_of(device: usize) -> u64 {
        mix(device as u64)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.state)
    }

    /// A number below `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// Whether a copy in flight should land now although threads could run.
    pub(super) fn lands_now(&mut self) -> bool {
        match self.landing {
            None => false,
            Some(chance) => self.below(chance as usize) == 0,
        }
    }

    /// How many accesses a thread may make before another gets a turn.
    pub(super) fn fuel(&mut self) -> u32 {
        64 + self.below(1024) as u32
    }

    /// Picks an index of `ready`, all as likely.
    pub(super) fn pick_fairly<T>(&mut self, ready: &[T]) -> usize {
        self.below(ready.len())
    }

    /// Picks an index of `ready` to this schedule's liking; `warp` tells the warp of an entry.
    pub(super) fn pick<T>(&mut self, ready: &[T], warp: impl Fn(&T) -> u32) -> usize {
        let mut best = self.below(ready.len());
        for _ in 1..self.candidates {
            let other = self.below(ready.len());
            let rank = |index: usize| mix(self.ranks ^ u64::from(warp(&ready[index])));
            if rank(other) > rank(best) {
                best = other;
            }
        }
        best
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
