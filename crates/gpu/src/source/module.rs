//! Modules of kernels, as crates declare them.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::{Source, kernels_in};
use crate::header::Header;
use crate::types::{Image, ImageCode};

/// Definitions that a module may be compiled with.
const MOST_DEFINITIONS: usize = 8;

/// A file of kernels that is part of a crate: its name, its text, the files it may include, and the
/// definitions it is compiled with.
///
/// Declared by [`modules!`](crate::modules). A [`Device`](crate::Device) resolves a kernel of it once and
/// then finds it by where the module lies in the program: no launch reads the text again.
///
/// ```
/// use gatework_gpu::{Device, Grid, Module, args};
///
/// // In a crate: `gatework_gpu::modules! { /// x <- a x. pub(crate) SCALE = "scale"; }`
/// static SCALE: Module = Module::new("scale", "#include \"gw/gw.cuh\"\n\
///     GW_KERNEL(scale)(f32* x, u32 n) { if (gw::global_thread() < n) x[gw::global_thread()] *= FACTOR; }", &[]);
///
/// let device = Device::open("emulated")?;
/// let stream = device.stream()?;
/// let mut x = stream.upload(&[1.0f32, 2.0])?;
/// let doubled = device.kernel_of(&SCALE.define("FACTOR", 2u32), "scale")?;
/// doubled.launch(&stream, &Grid::covering(2, 32), &args![&mut x, 2u32])?;
/// assert_eq!(stream.download(&x)?, [2.0, 4.0]);
/// # Ok::<(), gatework_gpu::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Module {
    name: &'static str,
    text: &'static str,
    headers: &'static [Header],
    definitions: [Option<(&'static str, Definition)>; MOST_DEFINITIONS],
    exact: bool,
}

/// The value of a preprocessor definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Definition {
    /// A number.
    Number(i64),
    /// A name or an expression.
    Text(&'static str),
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl From<$number> for Definition {
            fn from(number: $number) -> Self {
                Self::Number(number.into())
            }
        }
    )*};
}

numbers!(bool, u8, i32, u32, i64);

impl From<&'static str> for Definition {
    fn from(text: &'static str) -> Self {
        Self::Text(text)
    }
}

impl std::fmt::Display for Definition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// What tells a kernel of a module from all others: addresses in the program stand for texts, which never
/// change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ModuleKey {
    text: (usize, usize),
    headers: usize,
    definitions: [Option<(&'static str, Definition)>; MOST_DEFINITIONS],
    exact: bool,
    entry: &'static str,
}

impl Hash for ModuleKey {
    /// Only what usually differs: this is done for every launch.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.0.hash(state);
        self.entry.hash(state);
        self.definitions.iter().flatten().for_each(|(_, value)| value.hash(state));
    }
}

impl Module {
    /// A module without definitions. Its kernels are those that `text` defines.
    pub const fn new(name: &'static str, text: &'static str, headers: &'static [Header]) -> Self {
        Self { name, text, headers, definitions: [None; MOST_DEFINITIONS], exact: false }
    }

    /// PTX of another compiler, which the driver compiles for its card when a kernel of it is loaded. `name`
    /// is what errors call it.
    pub fn from_ptx(name: impl Into<String>, text: impl Into<Arc<str>>) -> Image {
        Image::new(name.into(), ImageCode::Ptx(text.into()))
    }

    /// A cubin of another compiler, for the architecture that it was compiled for.
    pub fn from_cubin(name: impl Into<String>, bytes: impl Into<Arc<[u8]>>) -> Image {
        Image::new(name.into(), ImageCode::Cubin(bytes.into()))
    }

    /// The same text, compiled with a macro more.
    ///
    /// Panics beyond eight: a module that needs more should derive some of them in its text.
    pub fn define(mut self, name: &'static str, value: impl Into<Definition>) -> Self {
        let free = self.definitions.iter_mut().find(|place| place.is_none());
        let free =
            free.unwrap_or_else(|| panic!("module '{}' has its {MOST_DEFINITIONS} definitions", self.name));
        *free = Some((name, value.into()));
        self
    }

    /// The same text for kernels that promise bits: no product and sum of floats becomes one operation unless
    /// the text says `gw::fma` (NVRTC's `--fmad=false`). The emulated device never fuses them, so that both
    /// compute the same.
    pub const fn exact(mut self) -> Self {
        self.exact = true;
        self
    }

    /// The module's name, which its only kernel has too, if there is but one.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The source text with its headers and definitions.
    pub fn source(&self) -> Source {
        let source = Source::new(self.name, self.text).include_all(self.headers);
        let source = if self.exact { source.option("--fmad=false") } else { source };
        self.definitions.iter().flatten().fold(source, |source, (name, value)| source.define(*name, value))
    }

    /// The kernels that the text defines.
    pub fn kernels(&self) -> Vec<&'static str> {
        kernels_in(self.text)
    }

    pub(crate) fn key(&self, entry: &'static str) -> ModuleKey {
        ModuleKey {
            text: (self.text.as_ptr() as usize, self.text.len()),
            headers: self.headers.as_ptr() as usize,
            definitions: self.definitions,
            exact: self.exact,
            entry,
        }
    }
}

/// Declares modules of kernels: each the file `kernels/<name>.cuh` of the crate that invokes this, with the
/// headers that all of them may include.
///
/// ```ignore
/// static HEADERS: [Header; 1] = gatework_gpu::headers!["field.cuh"];
///
/// gatework_gpu::modules! {
///     headers HEADERS;
///     /// Sums of columns.
///     pub(crate) SUMS = "sums";
/// }
/// ```
#[macro_export]
macro_rules! modules {
    (headers $headers:expr; $($(#[$doc:meta])* $visibility:vis $constant:ident = $name:literal;)*) => {
        $($(#[$doc])*
        $visibility static $constant: $crate::Module = $crate::Module::new(
            $name,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/", $name, ".cuh")),
            &$headers,
        );)*
    };
    ($($(#[$doc:meta])* $visibility:vis $constant:ident = $name:literal;)*) => {
        $($(#[$doc])*
        $visibility static $constant: $crate::Module = $crate::Module::new(
            $name,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/", $name, ".cuh")),
            &[],
        );)*
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    static ONE: Module = Module::new("one", "text of one", &[]);
    static TWO: Module = Module::new("one", "text of two", &[]);

    #[test]
    fn keys_tell_texts_definitions_and_entries_apart() {
        let key = ONE.key("run");
        assert!(key == ONE.key("run"));
        assert!(key != TWO.key("run"));
        assert!(key != ONE.key("walk"));
        assert!(key != ONE.exact().key("run"));
        assert!(key != ONE.define("N", 3u32).key("run"));
        assert!(ONE.define("N", 3u32).key("run") != ONE.define("N", 4u32).key("run"));
        assert!(ONE.define("N", "4").key("run") == ONE.define("N", "4").key("run"));
    }

    #[test]
    fn the_source_has_the_definitions_of_its_module() {
        let plain = ONE.source().define("N", 3).define("T", "f32").hash().unwrap();
        assert_eq!(ONE.define("N", 3u32).define("T", "f32").source().hash().unwrap(), plain);
    }

    #[test]
    #[should_panic(expected = "module 'one' has its 8 definitions")]
    fn a_ninth_definition_is_refused() {
        let names = ["A", "B", "C", "D", "E", "F", "G", "H", "I"];
        names.into_iter().fold(ONE, |module, name| module.define(name, 1u32));
    }
}
