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
    /// The deviation of that.
    pub deviation: f64,
    /// What it costs, probes included, in full-backward equivalents.
    pub cost: f64,
    /// How sure one can be of it, from 0 to 1.
    pub confidence: f64,
}

impl Candidate {
    /// `(drop − penalty · deviation) / cost`. Where a run no longer falls a drop counts as a little, so that the cheaper of
    /// two useless actions is worth more.
    pub fn worth(&self, penalty: f64) -> f64 {
        const LITTLE: f64 = 1e-4;
        (self.drop.max(LITTLE) - penalty * self.deviation) / self.cost.max(1e-9)
    }
}

/// The action that was chosen, and what it was chosen from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Choice {
    /// The one that is worth most among those that are sure enough; full steps always are.
    pub chosen: Candidate,
    /// All of them, full steps first.
    pub candidates: Vec<Candidate>,
}

/// Chooses by [`Candidate::worth`]. A tie goes to the one that comes first, which is full steps. To explore is to leave
/// full steps out where something else is sure enough.
pub(super) fn choose(
    full: Candidate,
    others: Vec<Candidate>,
    penalty: f64,
    threshold: f64,
    explore: bool,
) -> Choice {
    let sure = others.iter().filter(|other| other.confidence >= threshold);
    let all = std::iter::once(&full).filter(|_| !explore).chain(sure);
    let best = all
        .copied()
        .reduce(|best, other| if other.worth(penalty) > best.worth(penalty) { other } else { best });
    let chosen = best.unwrap_or(full);
    let candidates = std::iter::once(full).chain(others).collect();
    Choice { chosen, candidates }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(action: Action, drop: f64, cost: f64, confidence: f64) -> Candidate {
        Candidate { action, drop, deviation: 0.01, cost, confidence }
    }

    #[test]
    fn the_cheaper_wins_only_if_it_keeps_up_and_is_sure() {
        let full = candidate(Action::Full, 0.1, 48.0, 1.0);
        let freeze =
            |drop, confidence| candidate(Action::Freeze { groups: 1, steps: 48 }, drop, 30.0, confidence);
        let chosen = |other| choose(full, vec![other], 0.1, 0.5, false).chosen.action;
        assert_eq!(chosen(freeze(0.09, 0.9)), Action::Freeze { groups: 1, steps: 48 });
        assert_eq!(chosen(freeze(0.09, 0.4)), Action::Full);
        assert_eq!(chosen(freeze(0.05, 0.9)), Action::Full);
        assert_eq!(chosen(candidate(Action::Full, 0.1, 48.0, 1.0)), Action::Full);
        let explored = |other| choose(full, vec![other], 0.1, 0.5, true).chosen.action;
        assert_eq!(explored(freeze(0.05, 0.9)), Action::Freeze { groups: 1, steps: 48 });
        assert_eq!(explored(freeze(0.05, 0.4)), Action::Full);
        // Nothing falls any more: what costs less.
        let (full, cheap) = (Candidate { drop: -0.1, deviation: 0.0, ..full }, freeze(-0.1, 0.9));
        let cheap = Candidate { deviation: 0.0, ..cheap };
        assert_eq!(choose(full, vec![cheap], 0.1, 0.5, false).chosen, cheap);
    }
}
