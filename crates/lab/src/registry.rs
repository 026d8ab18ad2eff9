//! The workloads a program knows.

use crate::{Error, Result, Workload};

/// Workloads by name. Every engine adds its own, and so does a user's crate.
#[derive(Default)]
pub struct Registry {
    workloads: Vec<Box<dyn Workload>>,
}

impl Registry {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a workload. Its name must be `area/name`, and new.
    pub fn add(&mut self, workload: Box<dyn Workload>) -> Result<()> {
        let name = workload.name().to_owned();
        if !is_valid(&name) {
            return Err(Error::WorkloadName { name });
        }
        if self.find(&name).is_some() {
            return Err(Error::DuplicateWorkload { name });
        }
        self.workloads.push(workload);
        Ok(())
    }

    /// Adds all workloads of an engine.
    pub fn add_all(&mut self, workloads: Vec<Box<dyn Workload>>) -> Result<()> {
        workloads.into_iter().try_for_each(|workload| self.add(workload))
    }

    /// All workloads, in the order they were added.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &dyn Workload> {
        self.workloads.iter().map(AsRef::as_ref)
    }

    /// The workload called `name`, or an error that names the ones that are close.
    pub fn get(&self, name: &str) -> Result<&dyn Workload> {
        self.find(name)
            .ok_or_else(|| Error::UnknownWorkload { given: name.to_owned(), hint: self.hint(name) })
    }

    /// The workload of that name, or all that a pattern like `attention/*` matches; an error if there is
    /// none.
    pub fn select(&self, pattern: &str) -> Result<Vec<&dyn Workload>> {
        let Some((before, after)) = pattern.split_once('*') else { return Ok(vec![self.get(pattern)?]) };
        let matches = |name: &str| {
            name.strip_prefix(before).is_some_and(|rest| rest.len() >= after.len() && rest.ends_with(after))
        };
        let found: Vec<&dyn Workload> = self.iter().filter(|workload| matches(workload.name())).collect();
        if found.is_empty() {
            return Err(Error::UnknownWorkload { given: pattern.to_owned(), hint: self.hint(pattern) });
        }
        Ok(found)
    }

    fn find(&self, name: &str) -> Option<&dyn Workload> {
        self.iter().find(|workload| workload.name() == name)
    }

    fn hint(&self, given: &str) -> String {
        let mut close: Vec<(f64, &str)> = self
            .iter()
            .map(|workload| (similarity(given, workload.name()), workload.name()))
            .filter(|(similarity, _)| *similarity > CLOSE)
            .collect();
        close.sort_by(|left, right| right.0.total_cmp(&left.0));
        match close.as_slice() {
            [] => {
                let known: Vec<&str> = self.iter().map(|workload| workload.name()).collect();
                format!(": the known ones are {}", known.join(", "))
            }
            close => {
                let names: Vec<&str> = close.iter().map(|(_, name)| *name).collect();
                format!(": did you mean {}?", names.join(" or "))
            }
        }
    }
}

/// From here on a name looks like a typing error of another.
const CLOSE: f64 = 0.6;

/// Of what follows the area: users leave it out, and one that all names share would make them all alike.
fn similarity(given: &str, name: &str) -> f64 {
    let last = |name: &str| name.rsplit('/').next().unwrap_or(name).to_owned();
    strsim::normalized_damerau_levenshtein(&last(given), &last(name))
}

fn is_valid(name: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    name.split_once('/').is_some_and(|(area, rest)| part(area) && rest.split('/').all(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_selects_all_that_match_it() {
        let names = |pattern: &str| -> Vec<String> {
            let registry = runtime();
            registry
                .select(pattern)
                .map_or(Vec::new(), |found| found.iter().map(|w| w.name().to_owned()).collect())
        };
        assert_eq!(names("gpu/*").len(), runtime().iter().len());
        assert_eq!(names("*/saxpy"), ["gpu/saxpy"]);
        assert_eq!(names("gpu/saxpy"), ["gpu/saxpy"]);
        assert!(names("gpu/saxpy*y").is_empty() && names("other/*").is_empty());
    }

    fn runtime() -> Registry {
        let mut registry = Registry::new();
        registry.add_all(crate::runtime::workloads()).unwrap();
        registry
    }

    #[test]
    fn a_typing_error_is_answered_with_the_close_names() {
        let hint = |given| runtime().get(given).err().unwrap().to_string();
        assert!(hint("gpu/saxpi").ends_with("did you mean gpu/saxpy?"), "{}", hint("gpu/saxpi"));
        assert!(hint("transpose").contains("gpu/transpose"));
        assert!(hint("zebra").contains("the known ones are gpu/saxpy"));
    }

    #[test]
    fn the_same_name_twice_is_refused() {
        let error = runtime().add_all(crate::runtime::workloads()).unwrap_err();
        assert!(matches!(error, Error::DuplicateWorkload { .. }), "{error}");
    }

    #[test]
    fn names_have_an_area() {
        assert!(is_valid("gpu/graph-chain") && is_valid("attention/fp8/mission"));
        for name in ["saxpy", "gpu/", "/saxpy", "GPU/saxpy", "gpu/sax py", "gpu//saxpy"] {
            assert!(!is_valid(name), "{name}");
        }
    }
}
