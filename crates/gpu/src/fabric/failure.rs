//! What loses a fabric, and calls as ranks compare them.

use std::fmt;

use crate::Error;

/// Why a fabric is lost: told to every rank.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) rank: usize,
    pub(super) call: &'static str,
    pub(super) what: String,
}

impl From<Failure> for Error {
    fn from(Failure { rank, call, what }: Failure) -> Self {
        Self::Peer { rank, call, what }
    }
}

/// A call as all ranks must make it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) name: &'static str,
    /// The type of the elements.
    element: &'static str,
    /// Numbers that must agree, by name.
    terms: Vec<(&'static str, usize)>,
}

impl Call {
    /// A call that moves no elements.
    pub(super) fn bare(name: &'static str) -> Self {
        Self { name, element: "", terms: Vec::new() }
    }

    /// A call on elements of type `T`.
    pub(super) fn of<T>(name: &'static str) -> Self {
        Self { name, element: std::any::type_name::<T>(), terms: Vec::new() }
    }

    pub(super) fn with(mut self, name: &'static str, value: usize) -> Self {
        self.terms.push((name, value));
        self
    }

    pub(super) fn with_all(mut self, name: &'static str, values: &[usize]) -> Self {
        self.terms.extend(values.iter().map(|&value| (name, value)));
        self
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terms = self.terms.iter().map(|(name, value)| format!("{name} {value}"));
        let element = Some(self.element.to_owned()).filter(|element| !element.is_empty());
        let inside: Vec<String> = element.into_iter().chain(terms).collect();
        write!(f, "{}({})", self.name, inside.join(", "))
    }
}
