//! What keeps the weights' hash from being guessed.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

use super::refused;

/// A random key of the weights' hash, which their owner alone keeps.
///
/// The hash is public. Without a salt, whoever has a guess of the weights, such as a fine-tuned model of
/// somebody else's, could confirm it. The default is no salt, for weights whose hash nobody else sees.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Salt([u8; 32]);

/// Never the salt itself.
impl fmt::Debug for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Salt")
    }
}

impl Salt {
    /// A fresh one.
    pub fn random() -> Result<Self> {
        let mut salt = [0; 32];
        getrandom::fill(&mut salt).map_err(|error| refused(format!("no salt: {error}")))?;
        Ok(Self(salt))
    }

    /// Where the salt of a public description is kept: beside it, on the owner's machine alone.
    pub fn path_beside(public: &Path) -> PathBuf {
        let mut name = public.as_os_str().to_owned();
        name.push(".salt");
        name.into()
    }

    /// Writes it to a file that only its owner may use, in the place of an earlier one.
    pub fn write(&self, path: &Path) -> Result<()> {
        let failed = |source| Error::File { path: path.to_owned(), doing: "write", source };
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let text = format!("{}\n", blake3::Hash::from(self.0).to_hex());
        let written = options.open(path).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        written.map_err(failed)
    }

    /// Reads it; none if there is no such file.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Error::File { path: path.to_owned(), doing: "read", source }),
            Ok(text) => text,
        };
        let salt = blake3::Hash::from_hex(text.trim_end());
        let salt = salt.map_err(|_| refused(format!("{} is not a salt", path.display())))?;
        Ok(Some(Self(salt.into())))
    }

    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::model::{Checkpoint, Options, Owner};

    #[test]
    fn a_salt_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = Salt::path_beside(&folder.path().join("model.json"));
        assert!(path.ends_with("model.json.salt"));
        assert_eq!(Salt::read(&path).unwrap(), None);
        for _ in 0..2 {
            let salt = Salt::random().unwrap();
            salt.write(&path).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            assert_eq!(Salt::read(&path).unwrap(), Some(salt));
        }
        fs::write(&path, "salt").unwrap();
        assert!(Salt::read(&path).is_err());
    }

    /// The same weights twice, and whoever has them without the salt.
    #[test]
    fn a_salted_hash_does_not_confirm_a_guess() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/bert");
        let checkpoint = Checkpoint::load(&folder).unwrap();
        let salts = [Salt::random().unwrap(), Salt::random().unwrap()];
        let public = salts.map(|salt| checkpoint.public(4, &Options { salt, ..Options::default() }).unwrap());
        assert_ne!(public[0].weights_hash(), public[1].weights_hash());
        assert_eq!(public[0].graph_hash(), public[1].graph_hash());
        let weights = || checkpoint.weights(&public[0]).unwrap();
        assert_ne!(weights().hash(), public[0].weights_hash());
        let error = Owner::new(&public[0], weights()).err().unwrap().to_string();
        assert!(error.contains("salt"), "{error}");
        assert!(Owner::new(&public[0], weights().salted(salts[1])).is_err());
        assert!(Owner::new(&public[0], weights().salted(salts[0])).is_ok());
    }
}
