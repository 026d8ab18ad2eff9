//! How many samples may be asked for, by every command that times something.

/// Reads a number of samples that carries a verdict.
pub(crate) fn at_least_100(given: &str) -> Result<usize, String> {
    match given.parse() {
        Ok(samples) if samples >= 100 => Ok(samples),
        Ok(_) => Err("fewer than 100 samples do not carry a verdict: give 100 or more".to_owned()),
        Err(error) => Err(format!("{error}")),
    }
}
