//! Which action is worth most.

use serde::Serialize;

use super::action::Action;

/// An action with what is expected of it over the same number of steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Candidate {
    /// The action.
    pub action: Action,
    /// The expected drop of ln loss.
    pub drop: f64,
    /// The deviation of what it drops less or more than full steps would: what all actions have in common is
    /// not in it.
    pub deviation: f64,
    /// The cost, probes included, in full-backward equivalents.
    pub cost: f64,
    /// How sure one can be of it, from 0 to 1.
    pub confidence: f64,
}

impl Candidate {
    /// What it gains over full steps, in ln loss: the drop that is gained or lost, and what the equivalents
    /// that it saves would buy at the price of full steps, less `penalty` deviations. Uncertainty always
    /// counts against it. Where a run no longer falls, its drop counts as a little, so that the cheaper of
    /// two useless actions is worth more.
    pub fn advantage(&self, full: &Self, penalty: f64) -> f64 {
        const LITTLE: f64 = 1e-4;
        let price = full.drop.max(LITTLE) / full.cost.max(1e-9);
        (self.drop - full.drop) + price * (full.cost - self.cost) - penalty * self.deviation
    }
}

/// The action that was chosen, and what it was chosen from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Choice {
    /// The one with the largest advantage among those that are sure enough, or full steps where none has any.
    pub chosen: Candidate,
    /// All of them, full steps first.
    pub candidates: Vec<Candidate>,
}

/// Chooses by [`Candidate::advantage`]. To explore is to leave full steps out where something else is sure
/// enough.
pub(super) fn choose(
    full: Candidate,
    others: Vec<Candidate>,
    penalty: f64,
    threshold: f64,
    explore: bool,
) -> Choice {
    let least = if explore { f64::NEG_INFINITY } else { 0.0 };
    let advantage = |other: &Candidate| other.advantage(&full, penalty);
    let chosen = others
        .iter()
        .copied()
        .filter(|other| other.confidence >= threshold && advantage(other) > least)
        .reduce(|best, other| if advantage(&other) > advantage(&best) { other } else { best })
        .unwrap_or(full);
    let candidates = std::iter::once(full).chain(others).collect();
    Choice { chosen, candidates }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREEZE: Action = Action::Freeze { groups: 1, steps: 48 };

    fn candidate(action: Action, drop: f64, cost: f64, confidence: f64) -> Candidate {
        Candidate { action, drop, deviation: 0.01, cost, confidence }
    }

    #[test]
    fn the_cheaper_wins_only_if_it_keeps_up_and_is_sure() {
        let full = candidate(Action::Full, 0.1, 48.0, 1.0);
        let freeze = |drop, confidence| candidate(FREEZE, drop, 30.0, confidence);
        let chosen = |other| choose(full, vec![other], 0.1, 0.5, false).chosen.action;
        assert_eq!(chosen(freeze(0.09, 0.9)), FREEZE);
        assert_eq!(chosen(freeze(0.09, 0.4)), Action::Full);
        assert_eq!(chosen(freeze(0.05, 0.9)), Action::Full);
        let explored = |other| choose(full, vec![other], 0.1, 0.5, true).chosen.action;
        assert_eq!(explored(freeze(0.05, 0.9)), FREEZE);
        assert_eq!(explored(freeze(0.05, 0.4)), Action::Full);
        // Nothing falls any more: what costs less.
        let (full, cheap) = (Candidate { drop: -0.1, ..full }, freeze(-0.1, 0.9));
        let cheap = Candidate { deviation: 0.0, ..cheap };
        assert_eq!(choose(full, vec![cheap], 0.1, 0.5, false).chosen, cheap);
    }

    /// Whatever the signs of drops, more uncertainty never makes an action more attractive.
    #[test]
    fn uncertainty_always_counts_against_an_action() {
        for drop in [-0.2, 0.0, 0.05, 0.3] {
            let full = candidate(Action::Full, drop, 48.0, 1.0);
            for cost in [10.0, 48.0, 60.0] {
                let freeze = candidate(FREEZE, drop - 0.01, cost, 1.0);
                let unsure = Candidate { deviation: 0.5, ..freeze };
                assert!(unsure.advantage(&full, 0.1) < freeze.advantage(&full, 0.1), "{drop} {cost}");
            }
        }
    }
}
