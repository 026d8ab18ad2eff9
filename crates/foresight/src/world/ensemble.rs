//! Several models that have not seen the same: where they agree, they know.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::episode::{ACTION, Episode, Tick};
use super::gru::{Reset, Scratch};
use super::member::{Draw, Losses, Member, Sizes, Slice, Weights, beside, draw, softmax};
use super::rollout::{Heads, Path, RolloutMetrics, States};
use crate::dense::squares;
use crate::error::{Error, Result};
use crate::optimiser::power;
use crate::random::Random;
use crate::state::FEATURES;

/// Sizes and constants of an ensemble.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorldOptions {
    /// Models.
    pub members: usize,
    /// Numbers of the deterministic state.
    pub hidden: usize,
    /// Categories of the stochastic state.
    pub categories: usize,
    /// Classes of each category.
    pub classes: usize,
    /// Where the reset gate stands.
    pub reset: Reset,
    /// The learning rate.
    pub rate: f64,
    /// Ticks of a training window.
    pub window: usize,
    /// Windows of an update.
    pub batch: usize,
    /// The part of windows that a member sees at all.
    pub bootstrap: f64,
    /// Weight of the divergence.
    pub divergence: f64,
    /// The part of that weight that trains the prior; the rest trains the posterior.
    pub balance: f64,
}

impl Default for WorldOptions {
    fn default() -> Self {
        Self {
            members: 5,
            hidden: 64,
            categories: 8,
            classes: 8,
            reset: Reset::After,
            rate: 2e-3,
            window: 12,
            batch: 4,
            bootstrap: 0.8,
            divergence: 0.1,
            balance: 0.8,
        }
    }
}

impl WorldOptions {
    pub(crate) fn member(&self) -> Member {
        let Self { hidden, categories, classes, reset, .. } = *self;
        Member::new(Sizes { hidden, categories, classes, reset })
    }

    /// What the divergence weighs in what it trains.
    pub(crate) fn weights(&self) -> Weights {
        Weights {
            prior: (self.divergence * self.balance) as f32,
            posterior: (self.divergence * (1.0 - self.balance)) as f32,
        }
    }

    /// Bytes of parameters and moments of an ensemble.
    pub fn bytes(&self) -> usize {
        self.members * 3 * self.member().parameters * size_of::<f32>()
    }
}

/// A member's parameters with the moments of its optimiser, and what it makes of the run so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct MemberState {
    parameters: Vec<f32>,
    first: Vec<f32>,
    second: Vec<f32>,
    random: Random,
    h: Vec<f32>,
    z: Vec<f32>,
    action: [f32; ACTION],
}

/// The ensemble. Everything about it is in its serialised form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ensemble {
    options: WorldOptions,
    updates: u64,
    random: Random,
    states: Vec<MemberState>,
}

/// The states of all members.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecurrentState(Vec<(Vec<f32>, Vec<f32>, [f32; ACTION])>);

/// A distribution of the change of the logarithm of the loss.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Imagined {
    /// Its mean after every tick.
    pub means: Vec<f64>,
    /// Its deviation after every tick.
    pub deviations: Vec<f64>,
    /// The part of the variance at the end that members disagree by (epistemic); the rest is noise
    /// (aleatoric).
    pub disagreement: f64,
    /// Metrics of the rollout.
    pub metrics: RolloutMetrics,
}

/// Gradients of a member longer than this are scaled down to it.
pub(crate) const CLIP: f64 = 5.0;
/// Decays of the moments.
pub(crate) const BETAS: [f32; 2] = [0.9, 0.999];

/// What moments are multiplied with after so many updates, since they began at zero.
pub(crate) fn corrections(updates: u64) -> [f32; 2] {
    BETAS.map(|beta| 1.0 / (1.0 - power(beta, updates)) as f32)
}

impl Imagined {
    /// Averages the paths of all members.
    pub fn of(paths: &[Path]) -> Self {
        let ticks = paths.first().map_or(0, |path| path.changes.len());
        let mixed: Vec<[f64; 3]> =
            (0..ticks).map(|tick| mixture(paths.iter().map(|path| path.changes[tick]))).collect();
        Self {
            means: mixed.iter().map(|mixed| mixed[0]).collect(),
            deviations: mixed.iter().map(|mixed| (mixed[1] + mixed[2]).sqrt()).collect(),
            disagreement: mixed.last().map_or(0.0, |mixed| mixed[1] / (mixed[1] + mixed[2]).max(1e-300)),
            metrics: RolloutMetrics::of(paths),
        }
    }
}

impl Ensemble {
    /// Members with initial parameters of their own.
    pub fn new(options: WorldOptions, seed: u64) -> Result<Self> {
        let sizes = [options.members, options.hidden, options.categories, options.window, options.batch];
        if sizes.contains(&0) || options.classes < 2 || options.window < 2 {
            return Err(Error::config(
                "'world.members', 'hidden', 'categories' and 'batch' start at 1, 'classes' and 'window' at 2",
            ));
        }
        let random = Random::new(seed, "world model");
        let mut ensemble = Self { options, updates: 0, random, states: Vec::new() };
        let member = ensemble.member();
        for index in 0..options.members {
            let mut random = ensemble.random.fork(index as u64);
            let parameters = member.initial(&mut random);
            let (first, second) = (vec![0.0; parameters.len()], vec![0.0; parameters.len()]);
            let (h, z) = (vec![0.0; options.hidden], vec![0.0; member.stochastic()]);
            ensemble.states.push(MemberState {
                parameters,
                first,
                second,
                random,
                h,
                z,
                action: [0.0; ACTION],
            });
        }
        Ok(ensemble)
    }

    fn member(&self) -> Member {
        self.options.member()
    }

    /// Its sizes and constants.
    pub fn options(&self) -> &WorldOptions {
        &self.options
    }

    /// Deterministic state, stochastic state and action of every member.
    #[cfg(feature = "cuda")]
    pub(crate) fn recurrent_states(&self) -> impl Iterator<Item = [&[f32]; 3]> {
        self.states.iter().map(|state| [state.h.as_slice(), state.z.as_slice(), &state.action[..]])
    }

    /// Changes every parameter, as training or rounding would.
    #[cfg(any(feature = "lab", all(test, feature = "cuda")))]
    pub(crate) fn alter(&mut self, mut change: impl FnMut(&mut f32)) {
        self.states.iter_mut().flat_map(|state| &mut state.parameters).for_each(&mut change);
    }

    /// The parameters of every member.
    #[cfg(feature = "cuda")]
    pub(crate) fn parameters(&self) -> impl Iterator<Item = &[f32]> {
        self.states.iter().map(|state| state.parameters.as_slice())
    }

    /// Updates so far.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// Multiply-adds of an update: forward and twice that backward, for every parameter, window and tick.
    pub fn update_work(&self) -> f64 {
        let parameters: usize = self.states.iter().map(|state| state.parameters.len()).sum();
        3.0 * (parameters * self.options.window * self.options.batch) as f64
    }

    /// Multiply-adds of a look, or of a tick of a rollout: every parameter once.
    pub fn look_work(&self) -> f64 {
        self.states.iter().map(|state| state.parameters.len()).sum::<usize>() as f64
    }

    /// The members' recurrent states after the run so far.
    pub fn recurrent(&self) -> RecurrentState {
        RecurrentState(
            self.states.iter().map(|state| (state.h.clone(), state.z.clone(), state.action)).collect(),
        )
    }

    /// Goes back to what the members made of the run.
    pub fn resume(&mut self, recurrent: &RecurrentState) {
        for (state, (h, z, action)) in self.states.iter_mut().zip(&recurrent.0) {
            (state.h, state.z, state.action) = (h.clone(), z.clone(), *action);
        }
    }

    /// Looks at a tick of the run: the states of all members follow it by their posteriors.
    pub fn observe(&mut self, tick: &Tick) {
        let (member, mut scratch) = (self.member(), Scratch::default());
        for state in &mut self.states {
            let given = [&state.z[..], &state.action].concat();
            member.gru.advance(&state.parameters, &given, &mut state.h, &mut scratch);
            let seen = beside(&state.h, self.options.hidden, &tick.features, FEATURES);
            let q = softmax(&member.posterior.forward(&state.parameters, &seen), self.options.classes);
            state.z = draw(&q, self.options.classes, &mut Draw::Mean);
            state.action = tick.action;
        }
    }

    /// Says that another action is in effect since the last tick.
    pub fn change_action(&mut self, action: [f32; ACTION]) {
        self.states.iter_mut().for_each(|state| state.action = action);
    }

    /// The distribution of the loss from here on, one tick an action.
    pub fn imagine(&self, actions: &[[f32; ACTION]]) -> Imagined {
        Imagined::of(&self.roll_out(actions, &States::Expected, Heads::Change))
    }

    /// The rollout of every member from here on, one tick an action, with its features; members side by side.
    pub fn paths(&self, actions: &[[f32; ACTION]], states: &States) -> Vec<Path> {
        self.roll_out(actions, states, Heads::All)
    }

    fn roll_out(&self, actions: &[[f32; ACTION]], states: &States, heads: Heads) -> Vec<Path> {
        let member = self.member();
        let of_member = |(index, state): (usize, &MemberState)| {
            let (h, z) = (state.h.clone(), state.z.clone());
            member.imagine(&state.parameters, h, z, actions, &states.of_member(index), heads)
        };
        self.states.par_iter().enumerate().map(of_member).collect()
    }

    /// The direct head: mean and deviation of ln(end / now), from the states as they are.
    pub fn end(&self) -> [f64; 2] {
        let member = self.member();
        let [mean, between, within] = mixture(self.states.iter().map(|state| {
            let output = member.end.forward(&state.parameters, &[&state.h[..], &state.z].concat());
            [f64::from(output[0]), f64::from(super::member::bounded(output[1]).exp())]
        }));
        [mean, (between + within).sqrt()]
    }

    /// One update of every member on windows of these episodes; nothing if none is long enough.
    pub fn update(&mut self, episodes: &[&Episode]) -> Option<Losses> {
        let lessons = self.lessons(episodes)?;
        let (member, options, updates) = (self.member(), self.options, self.updates);
        let of_member =
            |(state, slices): (&mut MemberState, &Vec<Slice>)| state.learn(&member, slices, updates, options);
        let losses: Vec<Losses> = self.states.par_iter_mut().zip(&lessons).map(of_member).collect();
        Some(Losses::mean(&losses))
    }

    /// Begins an update: chooses what every member learns from, a slice a tick; nothing if no episode is long
    /// enough.
    pub(crate) fn lessons(&mut self, episodes: &[&Episode]) -> Option<Vec<Vec<Slice>>> {
        let window = self.options.window;
        let long: Vec<(usize, &Episode)> = episodes
            .iter()
            .copied()
            .enumerate()
            .filter(|(_, episode)| episode.ticks.len() >= window)
            .collect();
        let starts: usize = long.iter().map(|(_, episode)| episode.ticks.len() + 1 - window).sum();
        if starts == 0 {
            return None;
        }
        self.updates += 1;
        let (mask, options) = (&self.random, self.options);
        let of_member = |(index, state): (usize, &mut MemberState)| {
            slices(&state.choose(&long, starts, index as u64, mask, options))
        };
        Some(self.states.iter_mut().enumerate().map(of_member).collect())
    }

    /// Takes so many random numbers of every member, for others to draw: number `n` of member `m` is
    /// `mix(found[m] + (n + 1) φ)`.
    #[cfg(feature = "cuda")]
    pub(crate) fn take_numbers(&mut self, count: u64) -> Vec<u64> {
        let of_member = |state: &mut MemberState| {
            let base = state.random.base();
            state.random.skip(count);
            base
        };
        self.states.iter_mut().map(of_member).collect()
    }

    /// Parameters, first and second moments of every member.
    #[cfg(feature = "cuda")]
    pub(crate) fn learnt(&self) -> impl Iterator<Item = [&[f32]; 3]> {
        self.states.iter().map(|state| [&state.parameters[..], &state.first, &state.second])
    }

    /// The same to be written over.
    #[cfg(feature = "cuda")]
    pub(crate) fn learnt_mut(&mut self) -> impl Iterator<Item = [&mut [f32]; 3]> {
        self.states.iter_mut().map(|state| [&mut state.parameters[..], &mut state.first, &mut state.second])
    }
}

/// A window of an episode and the level at its end.
type Window<'a> = (&'a [Tick], Option<f32>);

impl MemberState {
    /// Windows that this member's mask lets it see. A window is seen or not for good, by member and place.
    fn choose<'a>(
        &mut self,
        long: &[(usize, &'a Episode)],
        starts: usize,
        index: u64,
        mask: &Random,
        options: WorldOptions,
    ) -> Vec<Window<'a>> {
        let mut chosen = Vec::with_capacity(options.batch);
        // With an unlucky mask there may be nothing to see: what was drawn last is then seen after all.
        for attempt in 0..16 * options.batch {
            let mut start = self.random.below(starts);
            for (place, episode) in long {
                let here = episode.ticks.len() + 1 - options.window;
                if start < here {
                    let key = (*place as u64) << 40 ^ (start / options.window) as u64;
                    let seen = mask.fork(index).fork(key).uniform() < options.bootstrap;
                    if seen || attempt + options.batch >= 16 * options.batch {
                        chosen.push((&episode.ticks[start..start + options.window], episode.end));
                    }
                    break;
                }
                start -= here;
            }
            if chosen.len() == options.batch {
                break;
            }
        }
        chosen
    }

    /// One step of Adam on the windows.
    fn learn(&mut self, member: &Member, slices: &[Slice], updates: u64, options: WorldOptions) -> Losses {
        let mut gradient = vec![0.0; self.parameters.len()];
        let weights = options.weights();
        let how = &mut Draw::Sample(&mut self.random);
        let losses = member.learn(&self.parameters, slices, weights, how, &mut gradient);
        let length = squares(&gradient).sqrt();
        if !length.is_finite() {
            // A window that no number describes: it teaches nothing.
            return losses;
        }
        let clip = (CLIP / length.max(CLIP)) as f32;
        let [beta1, beta2] = BETAS;
        let [first_scale, second_scale] = corrections(updates);
        let moments = self.first.iter_mut().zip(&mut self.second);
        for ((w, g), (m, v)) in self.parameters.iter_mut().zip(&gradient).zip(moments) {
            let g = clip * g;
            *m = beta1 * *m + (1.0 - beta1) * g;
            *v = beta2 * *v + (1.0 - beta2) * g * g;
            *w -= options.rate as f32 * (*m * first_scale) / ((*v * second_scale).sqrt() + 1e-8);
        }
        losses
    }
}

/// Windows as slices, one a tick.
fn slices(windows: &[Window<'_>]) -> Vec<Slice> {
    let ticks = windows.first().map_or(0, |(ticks, _)| ticks.len());
    (0..ticks)
        .map(|at| Slice {
            x: windows.iter().flat_map(|(ticks, _)| ticks[at].features.clone()).collect(),
            a: windows.iter().flat_map(|(ticks, _)| ticks[at].action).collect(),
            change: windows
                .iter()
                .map(|(ticks, _)| at.checked_sub(1).map(|before| ticks[at].level - ticks[before].level))
                .collect(),
            end: windows.iter().map(|(ticks, end)| end.map(|end| end - ticks[at].level)).collect(),
        })
        .collect()
}

/// The mean of normal distributions with these means and variances, how their means vary, and their mean
/// variance.
fn mixture(parts: impl Iterator<Item = [f64; 2]>) -> [f64; 3] {
    let parts: Vec<[f64; 2]> = parts.collect();
    let count = parts.len() as f64;
    let mean = parts.iter().map(|part| part[0]).sum::<f64>() / count;
    let between = parts.iter().map(|part| (part[0] - mean).powi(2)).sum::<f64>() / count;
    [mean, between, parts.iter().map(|part| part[1]).sum::<f64>() / count]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> WorldOptions {
        WorldOptions {
            members: 3,
            hidden: 16,
            categories: 4,
            classes: 4,
            window: 8,
            ..WorldOptions::default()
        }
    }

    /// A made-up run: the loss falls by 0.2 a tick under action 0, and by 0.05 under action 1.
    fn episode(seed: u64, ticks: usize) -> Episode {
        let mut random = Random::new(seed, "episode");
        let mut level = 1.0f32;
        let mut episode = Episode::default();
        for _ in 0..ticks {
            let slow = random.below(2) == 1;
            let mut features = vec![0.0; FEATURES];
            features.iter_mut().for_each(|x| *x = 0.3 * random.normal() as f32);
            features[0] = level;
            let mut action = [0.0; ACTION];
            action[usize::from(slow)] = 1.0;
            episode.ticks.push(Tick { features, action, level });
            level -= if slow { 0.05 } else { 0.2 } + 0.01 * random.normal() as f32;
        }
        episode.end = Some(level);
        episode
    }

    fn taught() -> (Ensemble, Vec<Losses>) {
        let episodes: Vec<Episode> = (0..6).map(|seed| episode(seed, 20)).collect();
        let seen: Vec<&Episode> = episodes.iter().collect();
        let mut ensemble = Ensemble::new(options(), 1).unwrap();
        let losses = (0..300).map(|_| ensemble.update(&seen).unwrap()).collect();
        for tick in &episode(99, 10).ticks {
            ensemble.observe(tick);
        }
        (ensemble, losses)
    }

    #[test]
    fn it_learns_what_actions_do() {
        let (ensemble, losses) = taught();
        let mean = |part: &[Losses]| part.iter().map(|l| l.change).sum::<f64>() / part.len() as f64;
        assert!(
            mean(&losses[280..]) < mean(&losses[..20]) - 1.0,
            "{:?}",
            (mean(&losses[..20]), mean(&losses[280..]))
        );
        let action = |which: usize| {
            let mut action = [0.0; ACTION];
            action[which] = 1.0;
            ensemble.imagine(&[action; 3])
        };
        let (fast, slow) = (action(0), action(1));
        assert!((fast.means[2] + 0.6).abs() < 0.2 && (slow.means[2] + 0.15).abs() < 0.2, "{fast:?} {slow:?}");
        assert!(fast.means[2] < slow.means[2] - 0.2);
        assert!(fast.deviations.windows(2).all(|pair| pair[0] < pair[1]), "further is less certain");
        assert_eq!(fast.metrics.step_deltas.len(), 3);
        assert!(fast.metrics.entropies.iter().all(|e| (0.0..=4f64.ln() + 1e-6).contains(e)));
    }

    #[test]
    fn it_repeats_bit_for_bit_after_being_saved() {
        let (mut ensemble, _) = taught();
        let saved = postcard::to_stdvec(&ensemble).unwrap();
        let mut other: Ensemble = postcard::from_bytes(&saved).unwrap();
        let more = episode(7, 30);
        for ensemble in [&mut ensemble, &mut other] {
            ensemble.update(&[&more]).unwrap();
            ensemble.observe(&more.ticks[0]);
        }
        assert_eq!(ensemble, other);
        assert_eq!(ensemble.end().map(f64::to_bits), other.end().map(f64::to_bits));
    }

    #[test]
    fn members_differ_and_nothing_is_learnt_from_too_little() {
        let mut ensemble = Ensemble::new(options(), 1).unwrap();
        assert_eq!(ensemble.update(&[&episode(1, 5)]), None);
        assert_ne!(ensemble.states[0].parameters, ensemble.states[1].parameters);
        assert!(ensemble.imagine(&[[0.0; ACTION]]).disagreement > 0.0);
        assert!(Ensemble::new(WorldOptions { members: 0, ..options() }, 1).is_err());
    }
}
