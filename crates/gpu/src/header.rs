//! Files that kernels include.

/// A file that kernels include by its path.
#[derive(Clone, Copy)]
pub struct Header {
    path: &'static str,
    text: fn() -> &'static str,
}

impl Header {
    /// The file that is included as `path`, with the text that `text` gives.
    pub const fn new(path: &'static str, text: fn() -> &'static str) -> Self {
        Self { path, text }
    }

    /// The path in an `#include`.
    pub fn path(&self) -> &'static str {
        self.path
    }

    /// Its text.
    pub fn text(&self) -> &'static str {
        (self.text)()
    }
}

impl std::fmt::Debug for Header {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Header({})", self.path)
    }
}

/// Lists files of the crate's folder `kernels` that kernels include, for [`modules!`](crate::modules).
#[macro_export]
macro_rules! headers {
    ($($path:literal),* $(,)?) => {
        [$($crate::Header::new(
            $path,
            || include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/", $path)),
        )),*]
    };
}
