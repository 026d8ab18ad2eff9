//! Kernel source text with everything it includes.

mod module;
mod portable;

use std::borrow::Cow;
use std::collections::BTreeMap;

pub(crate) use module::ModuleKey;
pub use module::{Definition, Module};

use crate::header::Header;
use crate::types::Architecture;
use crate::{Error, Result};

/// CUDA C++ text, written against the portable header `gw/gw.cuh`.
///
/// ```
/// use gatework_gpu::Source;
/// let source = Source::new("scale", r#"
///     #include "gw/gw.cuh"
///     // x <- a x, elementwise. One thread an element.
///     GW_KERNEL(scale)(f32* x, f32 a, u32 n) {
///         const u32 i = gw::global_thread();
///         if (i < n) x[i] *= a;
///     }
/// "#);
/// assert_eq!(source.name(), "scale");
/// ```
#[derive(Debug, Clone)]
pub struct Source {
    name: String,
    text: Cow<'static, str>,
    includes: BTreeMap<String, Cow<'static, str>>,
    defines: BTreeMap<String, String>,
    options: Vec<String>,
    plain: bool,
}

impl Source {
    /// A source whose kernel has its name.
    pub fn new(name: impl Into<String>, text: impl Into<Cow<'static, str>>) -> Self {
        Self {
            name: name.into(),
            text: text.into(),
            includes: BTreeMap::new(),
            defines: BTreeMap::new(),
            options: Vec::new(),
            plain: false,
        }
    }

    /// Plain CUDA C++, which uses nothing of ours: compiled by NVRTC with the options that it is given
    /// ([`Source::option`]: `-I` for folders of headers, `-std`), for cards only. Its kernels are found by
    /// their `extern "C"` or mangled names. What it includes is taken from [`Source::include`], or by the
    /// compiler from its folders; in that case it is compiled anew by every process, since nobody knows
    /// whether those files changed.
    ///
    /// ```
    /// use gatework_gpu::{Architecture, Source, compile};
    /// let source = Source::plain("scale", r#"
    ///     extern "C" __global__ void scale(float* x, float a, unsigned n) {
    ///         unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    ///         if (i < n) x[i] *= a;
    ///     }
    /// "#);
    /// assert!(compile(&source, &Architecture::Emulated).unwrap_err().to_string().contains("on a card only"));
    /// ```
    pub fn plain(name: impl Into<String>, text: impl Into<Cow<'static, str>>) -> Self {
        Self { plain: true, ..Self::new(name, text) }
    }

    /// Provides a file for `#include "path"`.
    pub fn include(mut self, path: impl Into<String>, text: impl Into<Cow<'static, str>>) -> Self {
        self.includes.insert(path.into(), text.into());
        self
    }

    /// Provides files for `#include`.
    pub fn include_all(self, headers: &[Header]) -> Self {
        headers.iter().fold(self, |source, header| source.include(header.path(), header.text()))
    }

    /// Defines a macro.
    pub fn define(mut self, name: impl Into<String>, value: impl std::fmt::Display) -> Self {
        self.defines.insert(name.into(), value.to_string());
        self
    }

    /// Passes an option to NVRTC. The emulated device's compiler does not see it.
    pub fn option(mut self, option: impl Into<String>) -> Self {
        self.options.push(option.into());
        self
    }

    /// The same source with other text.
    pub fn with_text(&self, text: impl Into<Cow<'static, str>>) -> Self {
        Self { text: text.into(), ..self.clone() }
    }

    /// The text of a file that it was provided with.
    pub fn included(&self, path: &str) -> Option<&str> {
        self.includes.get(path).map(AsRef::as_ref)
    }

    /// The same source with each text, its own or a provided file's, as `other` has it, if that has one.
    #[cfg(feature = "testing")]
    pub(crate) fn replaced(&self, other: impl Fn(&str) -> Option<String>) -> Self {
        let mut source = self.clone();
        for text in source.includes.values_mut().chain([&mut source.text]) {
            if let Some(other) = other(text) {
                *text = other.into();
            }
        }
        source
    }

    /// The source's name, which is its kernel's unless another is asked for.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// BLAKE3 of the text, everything it includes and its definitions: the same for all compilers.
    pub fn hash(&self) -> Result<String> {
        let mut hasher = blake3::Hasher::new();
        self.feed(&self.resolve()?, &mut hasher);
        Ok(hasher.finalize().to_hex().to_string())
    }

    pub(crate) fn defines(&self) -> &BTreeMap<String, String> {
        &self.defines
    }

    pub(crate) fn options(&self) -> &[String] {
        &self.options
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.plain
    }

    /// Whether everything that goes into it is known here, and not only to the compiler.
    pub(crate) fn is_self_contained(&self) -> bool {
        let provided = |path: &String| self.includes.contains_key(path);
        let texts = self.includes.values().chain([&self.text]);
        !self.plain || texts.flat_map(|text| all_included(text)).all(|path| provided(&path))
    }

    /// Names defined with `GW_KERNEL` in the text: the source's own first, if it is one of them.
    pub(crate) fn entries(&self) -> Vec<&str> {
        let mut entries = kernels_in(&self.text);
        entries.sort_by_key(|entry| *entry != self.name);
        entries
    }

    /// In-memory key of the kernels made from this source.
    pub(crate) fn key(&self, architecture: &Architecture) -> Result<String> {
        Ok(format!("{architecture}/{}", self.hash()?))
    }

    /// Every file the text includes, directly or through another, by the path it is included by.
    pub(crate) fn resolve(&self) -> Result<BTreeMap<String, Cow<'static, str>>> {
        if self.plain {
            return Ok(self.includes.clone());
        }
        let mut found = BTreeMap::new();
        let mut pending = included(&self.text);
        while let Some(path) = pending.pop() {
            if found.contains_key(&path) {
                continue;
            }
            let text = Some(&path)
                .filter(|path| stays_inside(path))
                .and_then(|path| self.includes.get(path))
                .cloned()
                .or_else(|| portable::text(&path).map(Cow::Borrowed))
                .ok_or_else(|| Error::MissingInclude { kernel: self.name.clone(), include: path.clone() })?;
            pending.extend(included(&text));
            found.insert(path, text);
        }
        Ok(found)
    }

    pub(crate) fn feed(&self, includes: &BTreeMap<String, Cow<'static, str>>, hasher: &mut blake3::Hasher) {
        let mut field = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        field(if self.plain { b"plain" } else { b"" });
        field(self.name.as_bytes());
        field(self.text.as_bytes());
        for (path, text) in includes {
            field(path.as_bytes());
            field(text.as_bytes());
        }
        for (name, value) in &self.defines {
            field(name.as_bytes());
            field(value.as_bytes());
        }
        for option in &self.options {
            field(option.as_bytes());
        }
    }
}

/// Names defined with `GW_KERNEL` in a text, each once.
fn kernels_in(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for marker in ["GW_KERNEL(", "GW_KERNEL_BOUNDED("] {
        for (at, _) in text.match_indices(marker) {
            let rest = &text[at + marker.len()..];
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            let name = &rest[..end];
            if !name.is_empty() && rest[end..].starts_with([')', ',', ' ']) && !found.contains(&name) {
                found.push(name);
            }
        }
    }
    found
}

/// Whether a path names a file below the folder that a compiler is given, and nothing else of the machine.
fn stays_inside(path: &str) -> bool {
    std::path::Path::new(path).components().all(|part| matches!(part, std::path::Component::Normal(_)))
}

/// Paths of the `#include "…"` lines of a text.
fn included(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include"))
        .filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next().map(str::to_owned))
        .collect()
}

/// The same, with those of `#include <…>`, and what neither can be read from, as a macro.
fn all_included(text: &str) -> Vec<String> {
    let directives = text
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include"));
    let path = |rest: &str| {
        let rest = rest.trim();
        let quoted = |open: char, close: char| rest.strip_prefix(open)?.split(close).next();
        quoted('"', '"').or_else(|| quoted('<', '>')).unwrap_or(rest).to_owned()
    };
    directives.map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_sources_are_told_apart_and_know_whether_they_are_whole() {
        let text = "#include \"a.h\"\n # include <b.h>\n__global__ void k() {}";
        let plain = Source::plain("k", text).include("a.h", "int a;");
        assert!(!plain.is_self_contained());
        assert!(plain.resolve().is_ok(), "what is missing is the compiler's to find");
        let whole = plain.clone().include("b.h", "int b;");
        assert!(whole.is_self_contained());
        assert!(!plain.include("b.h", "#include HEADER").is_self_contained());
        let (plain, portable) = (Source::plain("k", "int a;"), Source::new("k", "int a;"));
        assert_ne!(plain.hash().unwrap(), portable.hash().unwrap());
    }

    #[test]
    fn the_hash_moves_with_text_includes_defines_and_options() {
        let base = Source::new("k", "#include \"a.h\"\n").include("a.h", "int a;");
        let hash = |source: &Source| source.hash().unwrap();
        let variants = [
            base.with_text("#include \"a.h\"\n "),
            base.clone().include("a.h", "int b;"),
            base.clone().define("N", 3),
            base.clone().option("-w"),
        ];
        for variant in &variants {
            assert_ne!(hash(&base), hash(variant));
        }
        assert_eq!(hash(&base), hash(&base.clone().include("unused.h", "never included")));
    }

    #[test]
    fn a_missing_include_is_named() {
        let error = Source::new("k", "  # include \"nowhere.cuh\"").hash().unwrap_err();
        assert!(error.to_string().contains("\"nowhere.cuh\""), "{error}");
    }

    #[test]
    fn an_include_cannot_leave_the_source() {
        for path in ["../up.cuh", "/etc/absolute.cuh", "a/../../up.cuh"] {
            let source = Source::new("k", format!("#include \"{path}\"")).include(path, "int a;");
            assert!(matches!(source.hash(), Err(Error::MissingInclude { .. })), "{path}");
        }
        assert!(Source::new("k", "#include \"a/b.cuh\"").include("a/b.cuh", "int a;").hash().is_ok());
    }

    #[test]
    fn entries_are_those_the_text_defines() {
        let text = "GW_KERNEL(one)(u32 n) {} GW_KERNEL_BOUNDED(two, 128, 1)(u32 n) {}";
        assert_eq!(Source::new("one", text).entries(), ["one", "two"]);
        assert_eq!(Source::new("other", text).entries(), ["one", "two"]);
    }
}
