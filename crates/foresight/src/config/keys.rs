//! Keys of tables: which there are, and which was meant.

use toml::{Table, Value};

use crate::error::{Error, Result};

/// All keys of a table with their sections, as `optimiser.learning_rate`.
fn paths(table: &Table, before: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (key, value) in table {
        let path = if before.is_empty() { key.clone() } else { format!("{before}.{key}") };
        if let Value::Table(inner) = value {
            found.extend(paths(inner, &path));
        }
        found.push(path);
    }
    found
}

/// Refuses a key that `known` has not, with the nearest that it has.
pub(super) fn check_keys(name: &str, known: &Table, given: &Table) -> Result<()> {
    let valid = paths(known, "");
    for path in paths(given, "") {
        if valid.contains(&path) {
            continue;
        }
        let last = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
        // A key that is right in the wrong section is nearer than one that is misspelt; of two such, the
        // nearer section.
        let likeness = |candidate: &String| {
            let whole = strsim::jaro_winkler(candidate, &path);
            whole.max(strsim::jaro_winkler(&last(candidate), &last(&path))) + 0.01 * whole
        };
        let nearest = valid.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
        let meant = nearest.map_or_else(String::new, |nearest| format!("; did you mean '{nearest}'?"));
        return Err(Error::config(format!("{name}: there is no key '{path}'{meant}")));
    }
    Ok(())
}

/// Puts what is given over what is there, section by section.
pub(super) fn merge(table: &mut Table, given: Table) {
    for (key, value) in given {
        match (table.get_mut(&key), value) {
            (Some(Value::Table(inner)), Value::Table(given)) => merge(inner, given),
            (_, value) => drop(table.insert(key, value)),
        }
    }
}
