//! Configuration spaces: named knobs with their values, and constraints between them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One setting of a knob.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A size or a count.
    Integer(i64),
    /// One of several ways, by name.
    Choice(String),
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Choice(value.to_owned())
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Integer(value) => value.fmt(f),
            Self::Choice(value) => f.write_str(value),
        }
    }
}

/// The part of a configuration that a knob changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// The algorithm. Children inherit all of it from one parent.
    Macro,
    /// Its sizes. Children mix those of both.
    Micro,
}

/// A named set of values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Knob {
    /// Its name.
    pub name: String,
    /// The part of a configuration that it changes.
    pub layer: Layer,
    /// Its values, in the order in which neighbours are alike.
    pub values: Vec<Value>,
    /// Whether the binary shows it. Of a knob that it does not show, as the size of a grid, equal binaries do
    /// not make equal configurations.
    pub compiled: bool,
}

/// A value for every knob.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Configuration {
    values: BTreeMap<String, Value>,
}

impl Configuration {
    /// With one more value.
    pub fn with(mut self, knob: &str, value: impl Into<Value>) -> Self {
        self.values.insert(knob.to_owned(), value.into());
        self
    }

    /// The value of a knob.
    pub fn get(&self, knob: &str) -> Option<&Value> {
        self.values.get(knob)
    }

    /// The value of an integer knob. Panics if there is none of that name, as indexing a map does.
    pub fn integer(&self, knob: &str) -> i64 {
        match self.get(knob) {
            Some(Value::Integer(value)) => *value,
            other => panic!("knob '{knob}' is no integer of this configuration but {other:?}"),
        }
    }

    /// The value of a choice. Panics if there is none of that name, as indexing a map does.
    pub fn choice(&self, knob: &str) -> &str {
        match self.get(knob) {
            Some(Value::Choice(value)) => value,
            other => panic!("knob '{knob}' is no choice of this configuration but {other:?}"),
        }
    }
}

impl std::fmt::Display for Configuration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let settings: Vec<String> =
            self.values.iter().map(|(knob, value)| format!("{knob}={value}")).collect();
        f.write_str(&settings.join(" "))
    }
}

struct Constraint {
    name: String,
    holds: Box<dyn Fn(&Configuration) -> bool + Send + Sync>,
}

/// All configurations of some knobs that satisfy some constraints.
///
/// ```
/// use gatework_lab::tune::Space;
/// let space = Space::new()
///     .micro("TILE", [16, 32, 64])
///     .micro("ROWS", [4, 8, 32])
///     .constraint("at most 1024 threads", |c| c.integer("TILE") * c.integer("ROWS") <= 1024);
/// assert_eq!(space.configurations().count(), 8); // all but 64 x 32
/// ```
#[derive(Default)]
pub struct Space {
    knobs: Vec<Knob>,
    constraints: Vec<Constraint>,
}

impl Space {
    /// A space of one configuration, without knobs.
    pub fn new() -> Self {
        Self::default()
    }

    /// With a choice between algorithms.
    pub fn macro_choice<const N: usize>(self, name: &str, values: [&str; N]) -> Self {
        self.knob(name, Layer::Macro, values.map(Value::from).to_vec(), true)
    }

    /// With a size.
    pub fn micro<const N: usize>(self, name: &str, values: [i64; N]) -> Self {
        self.knob(name, Layer::Micro, values.map(Value::from).to_vec(), true)
    }

    /// With a size that only the host sees, as the number of blocks.
    pub fn micro_of_launch<const N: usize>(self, name: &str, values: [i64; N]) -> Self {
        self.knob(name, Layer::Micro, values.map(Value::from).to_vec(), false)
    }

    /// With any knob. Panics on one without values: it would leave no configuration.
    pub fn knob(mut self, name: &str, layer: Layer, values: Vec<Value>, compiled: bool) -> Self {
        assert!(!values.is_empty(), "knob '{name}' has no value");
        self.knobs.push(Knob { name: name.to_owned(), layer, values, compiled });
        self
    }

    /// With a condition that every configuration satisfies.
    pub fn constraint(
        mut self,
        name: &str,
        holds: impl Fn(&Configuration) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.constraints.push(Constraint { name: name.to_owned(), holds: Box::new(holds) });
        self
    }

    /// The knobs.
    pub fn knobs(&self) -> &[Knob] {
        &self.knobs
    }

    /// The constraints, by name.
    pub fn constraint_names(&self) -> Vec<String> {
        self.constraints.iter().map(|constraint| constraint.name.clone()).collect()
    }

    /// Why a configuration is not of this space, if it is not.
    pub fn refusal(&self, configuration: &Configuration) -> Option<String> {
        for knob in &self.knobs {
            match configuration.get(&knob.name) {
                Some(value) if knob.values.contains(value) => {}
                Some(value) => return Some(format!("{}={value} is none of the knob's values", knob.name)),
                None => return Some(format!("the knob {} has no value", knob.name)),
            }
        }
        let broken = self.constraints.iter().find(|constraint| !(constraint.holds)(configuration))?;
        Some(format!("it breaks the constraint '{}'", broken.name))
    }

    /// Whether a configuration is of this space.
    pub fn contains(&self, configuration: &Configuration) -> bool {
        self.refusal(configuration).is_none()
    }

    /// All configurations, the last knob changing fastest.
    pub fn configurations(&self) -> impl Iterator<Item = Configuration> + '_ {
        let combinations = self.combinations();
        (0..combinations).map(|index| self.combination(index)).filter(|found| self.contains(found))
    }

    /// Values of all knobs, multiplied: an upper bound on the configurations.
    fn combinations(&self) -> u64 {
        self.knobs.iter().fold(1, |product, knob| product.saturating_mul(knob.values.len() as u64))
    }

    fn combination(&self, mut index: u64) -> Configuration {
        let mut configuration = Configuration::default();
        for knob in self.knobs.iter().rev() {
            let count = knob.values.len() as u64;
            configuration.values.insert(knob.name.clone(), knob.values[(index % count) as usize].clone());
            index /= count;
        }
        configuration
    }

    /// The settings of the knobs that a binary does not show.
    pub(crate) fn launch_settings(&self, configuration: &Configuration) -> String {
        let hidden = self.knobs.iter().filter(|knob| !knob.compiled);
        let settings =
            hidden.filter_map(|knob| Some(format!(" {}={}", knob.name, configuration.get(&knob.name)?)));
        settings.collect()
    }
}

impl std::fmt::Debug for Space {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Space")
            .field("knobs", &self.knobs)
            .field("constraints", &self.constraint_names())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_come_in_order_and_satisfy_every_constraint() {
        let space = Space::new()
            .macro_choice("way", ["rows", "tiles"])
            .micro("side", [1, 2, 3])
            .constraint("rows have side 1", |c| c.choice("way") != "rows" || c.integer("side") == 1);
        let all: Vec<String> = space.configurations().map(|found| found.to_string()).collect();
        assert_eq!(all, ["side=1 way=rows", "side=1 way=tiles", "side=2 way=tiles", "side=3 way=tiles"]);
    }

    #[test]
    fn a_refusal_names_the_knob_or_the_constraint() {
        let space = Space::new().micro("side", [1, 2]).constraint("odd", |c| c.integer("side") % 2 == 1);
        let refusal = |configuration: Configuration| space.refusal(&configuration).unwrap();
        assert!(refusal(Configuration::default()).contains("side has no value"));
        assert!(refusal(Configuration::default().with("side", 7)).contains("side=7"));
        assert!(refusal(Configuration::default().with("side", 2)).contains("'odd'"));
    }

    #[test]
    fn configurations_read_as_plain_json() {
        let configuration = Configuration::default().with("way", "rows").with("side", 2);
        let text = serde_json::to_string(&configuration).unwrap();
        assert_eq!(text, r#"{"side":2,"way":"rows"}"#);
        assert_eq!(serde_json::from_str::<Configuration>(&text).unwrap(), configuration);
    }
}
