//! Which code a record is of.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// The environment variable that says the revision where git cannot: a commit, with `+changes` behind it if
/// the tree had some.
const VARIABLE: &str = "GATEWORK_REVISION";
/// What stands behind a commit in [`VARIABLE`] if the tree had changes.
const CHANGES: &str = "+changes";

/// A commit, and whether the tree had changes that were not committed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revision {
    /// The commit's hash.
    pub commit: String,
    /// Whether tracked files differed from it.
    pub dirty: bool,
}

impl Revision {
    /// The revision of the tree that this program was built from: what `GATEWORK_REVISION` says, or git.
    /// Asked once.
    pub(crate) fn current() -> Option<Self> {
        static CURRENT: OnceLock<Option<Revision>> = OnceLock::new();
        let said = || std::env::var(VARIABLE).ok().and_then(|text| Self::parse(&text));
        CURRENT
            .get_or_init(|| said().or_else(|| Self::of_tree(Path::new(env!("CARGO_MANIFEST_DIR")))))
            .clone()
    }

    fn parse(text: &str) -> Option<Self> {
        let (commit, dirty) = text.strip_suffix(CHANGES).map_or((text, false), |commit| (commit, true));
        let is_hash = commit.len() >= 7 && commit.chars().all(|digit| digit.is_ascii_hexdigit());
        is_hash.then(|| Self { commit: commit.to_owned(), dirty })
    }

    fn of_tree(folder: &Path) -> Option<Self> {
        let git = |arguments: &[&str]| -> Option<String> {
            let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().ok()?;
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let found = Self::parse(&git(&["rev-parse", "HEAD"])?)?;
        // Records are written while the tree is measured: they are no change of the code.
        let changes = git(&["status", "--porcelain", "--untracked-files=no", "--", ":/", ":!/results"])?;
        Some(Self { dirty: !changes.is_empty(), ..found })
    }
}

impl std::fmt::Display for Revision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let short: String = self.commit.chars().take(9).collect();
        write!(f, "{short}{}", if self.dirty { CHANGES } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_is_a_hash_and_says_whether_there_were_changes() {
        let clean = Revision::parse("0123456789abcdef").unwrap();
        assert!(!clean.dirty);
        let dirty = Revision::parse("0123456789abcdef+changes").unwrap();
        assert_eq!((dirty.commit.as_str(), dirty.dirty), ("0123456789abcdef", true));
        assert_eq!(dirty.to_string(), "012345678+changes");
        assert_eq!(Revision::parse("main"), None);
        assert_eq!(Revision::of_tree(Path::new("/")), None);
    }
}
