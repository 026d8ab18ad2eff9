//! How work reports its progress.

/// Something that an observer is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice<'a> {
    /// A stage began. Stages nest: one that begins before another has ended is a part of it.
    Started {
        /// Its name, as a progress bar shows it.
        stage: &'a str,
    },
    /// So much of the innermost stage is done.
    Counted {
        /// The unit, in the plural: `seeds`, `rounds`, `keys`.
        what: &'a str,
        /// Units that are done.
        done: u64,
        /// All units, where it is known how many there will be.
        of: Option<u64>,
    },
    /// The stage is over, whether or not it succeeded.
    Ended {
        /// The name that it began with.
        stage: &'a str,
    },
}

impl Notice<'_> {
    /// The part of the stage that is done, from 0 to 1, where this notice says so.
    pub fn fraction(&self) -> Option<f64> {
        match *self {
            Self::Counted { done, of: Some(of), .. } if of > 0 => Some((done as f64 / of as f64).min(1.0)),
            _ => None,
        }
    }
}

/// Hears how work goes on. It is called on the thread that works, so it must be quick.
///
/// A closure is one: `&|notice: Notice<'_>| …` (with the type written out), and `&()` ignores everything.
pub trait Observer: Send + Sync {
    /// Takes notice of `notice`.
    fn hear(&self, notice: Notice<'_>);
}

impl Observer for () {
    fn hear(&self, _: Notice<'_>) {}
}

impl<F: Fn(Notice<'_>) + Send + Sync> Observer for F {
    fn hear(&self, notice: Notice<'_>) {
        self(notice);
    }
}

impl dyn Observer + '_ {
    /// Begins a stage, which ends when the guard is dropped, on an error path too.
    pub fn stage<'a>(&'a self, name: &'a str) -> StageGuard<'a> {
        self.hear(Notice::Started { stage: name });
        StageGuard { observer: self, name }
    }
}

/// A stage that runs until this is dropped.
#[must_use = "the stage ends when this is dropped"]
pub struct StageGuard<'a> {
    observer: &'a (dyn Observer + 'a),
    name: &'a str,
}

impl StageGuard<'_> {
    /// Says that `done` of all `of` units of the stage are done.
    pub fn counted(&self, what: &str, done: u64, of: Option<u64>) {
        self.observer.hear(Notice::Counted { what, done, of });
    }
}

impl Drop for StageGuard<'_> {
    fn drop(&mut self) {
        self.observer.hear(Notice::Ended { stage: self.name });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_stage_ends_on_an_error_path_too() {
        let told = Mutex::new(Vec::new());
        let observer = |notice: Notice<'_>| told.lock().unwrap().push(format!("{notice:?}"));
        let observer: &dyn Observer = &observer;
        let fail = || -> Result<(), &str> {
            let outer = observer.stage("outer");
            let _inner = observer.stage("inner");
            outer.counted("parts", 1, None);
            Err("stopped")
        };
        assert!(fail().is_err());
        let wanted = [
            Notice::Started { stage: "outer" },
            Notice::Started { stage: "inner" },
            Notice::Counted { what: "parts", done: 1, of: None },
            Notice::Ended { stage: "inner" },
            Notice::Ended { stage: "outer" },
        ];
        assert_eq!(*told.lock().unwrap(), wanted.map(|notice| format!("{notice:?}")));
    }

    #[test]
    fn a_fraction_is_known_where_the_whole_is() {
        let counted = |done, of| Notice::Counted { what: "seeds", done, of }.fraction();
        assert_eq!(
            [counted(1, Some(4)), counted(9, Some(4)), counted(1, None)],
            [Some(0.25), Some(1.0), None]
        );
        assert_eq!([counted(0, Some(0)), Notice::Started { stage: "a" }.fraction()], [None, None]);
    }
}
