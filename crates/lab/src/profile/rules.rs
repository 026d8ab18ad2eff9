//! What bounds a kernel, from how busy its units were.

use serde::{Deserialize, Serialize};

/// Percent of what a unit can do; none where the profiler does not know it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Utilisation {
    /// The tensor cores.
    pub tensor: Option<f64>,
    /// The busiest part of the multiprocessors.
    pub multiprocessors: Option<f64>,
    /// Device memory.
    pub memory: Option<f64>,
}

/// The resource that bounds a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BoundBy {
    /// The tensor cores are busy at least half of the time, and memory less than half.
    Compute,
    /// Memory moves more than 70 % of what it can.
    Memory,
    /// Neither: the kernel waits.
    Latency,
}

const BUSY_TENSOR: f64 = 50.0;
const IDLE_MEMORY: f64 = 50.0;
const BUSY_MEMORY: f64 = 70.0;
const BUSY_MULTIPROCESSORS: f64 = 60.0;

impl Utilisation {
    /// What bounds a kernel that is this busy. A unit that is not known counts as idle.
    ///
    /// ```
    /// use gatework_lab::profile::{BoundBy, Utilisation};
    /// let busy = |tensor, memory| Utilisation { tensor, multiprocessors: None, memory };
    /// assert_eq!(busy(Some(72.0), Some(31.0)).bound_by(), BoundBy::Compute);
    /// assert_eq!(busy(None, Some(91.0)).bound_by(), BoundBy::Memory);
    /// assert_eq!(busy(Some(12.0), Some(30.0)).bound_by(), BoundBy::Latency);
    /// ```
    pub fn bound_by(&self) -> BoundBy {
        let (tensor, memory) = (self.tensor.unwrap_or(0.0), self.memory.unwrap_or(0.0));
        if tensor >= BUSY_TENSOR && memory < IDLE_MEMORY {
            BoundBy::Compute
        } else if memory > BUSY_MEMORY {
            BoundBy::Memory
        } else {
            BoundBy::Latency
        }
    }

    /// A suggestion of what to try next.
    pub fn advice(&self) -> &'static str {
        match self.bound_by() {
            BoundBy::Compute => {
                "the tensor cores set the pace: use a narrower format, larger tiles so that fewer operands are \
                 loaded twice, or overlap what is not a matrix product with what is"
            }
            BoundBy::Memory => {
                "memory sets the pace: move fewer bytes (fuse with a neighbour, a narrower format, reuse from \
                 shared memory); a faster loop changes nothing"
            }
            BoundBy::Latency if self.tensor.unwrap_or(0.0) > 0.0 => {
                "the tensor cores wait for operands: more stages in flight, a warp that only copies, two \
                 warpgroups that take turns, fewer barriers"
            }
            BoundBy::Latency if self.multiprocessors.unwrap_or(0.0) >= BUSY_MULTIPROCESSORS => {
                "the ordinary units set the pace: fewer instructions an element (vector loads, cheaper index \
                 arithmetic), or move the work to the tensor cores"
            }
            BoundBy::Latency => {
                "nothing is busy: more loads in flight a thread, more threads a multiprocessor, fewer barriers, \
                 or more work a launch"
            }
        }
    }
}

impl std::fmt::Display for BoundBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Compute => "compute-bound",
            Self::Memory => "memory-bound",
            Self::Latency => "latency-bound",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(tensor: f64, memory: f64) -> BoundBy {
        Utilisation { tensor: Some(tensor), multiprocessors: Some(80.0), memory: Some(memory) }.bound_by()
    }

    #[test]
    fn the_rules_hold_at_their_edges() {
        assert_eq!(bound(50.0, 49.9), BoundBy::Compute);
        assert_eq!(bound(50.0, 50.0), BoundBy::Latency);
        assert_eq!(bound(49.9, 49.9), BoundBy::Latency);
        assert_eq!(bound(80.0, 70.1), BoundBy::Memory);
        assert_eq!(bound(0.0, 70.0), BoundBy::Latency);
    }

    #[test]
    fn every_case_has_advice_of_its_own() {
        let with = |tensor, multiprocessors, memory| {
            Utilisation { tensor: Some(tensor), multiprocessors: Some(multiprocessors), memory: Some(memory) }
                .advice()
        };
        let said = [
            with(80.0, 80.0, 10.0),
            with(0.0, 50.0, 90.0),
            with(10.0, 50.0, 10.0),
            with(0.0, 90.0, 10.0),
            with(0.0, 10.0, 10.0),
        ];
        let distinct: std::collections::BTreeSet<_> = said.into_iter().collect();
        assert_eq!(distinct.len(), 5);
    }
}
