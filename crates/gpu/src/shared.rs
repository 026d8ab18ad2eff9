//! What host code and kernels share, said once: [`shared!`](crate::shared!) makes the Rust items and the
//! header that kernels include from one declaration.

use std::fmt::Write as _;

/// Declares constants, structs and enumerations that host code and kernels share.
///
/// The first line names the header and the path that kernels include it by, and, where needed, files that it
/// includes itself (`after "field.cuh"`) and the namespace that it is in (`in "gw::emulated"`). Then come
/// items, in the order in which a kernel must see them:
///
/// * `const` becomes a `constexpr` of the same name;
/// * `struct` becomes a struct of the same fields in the same order. The kernel's compiler checks its size,
///   and that of the emulated device the place of every field. Where the two languages name a type
///   differently, as they do for pointers, `=> "const u32*"` gives the kernel's, and `=> "const u32* {}[4]"`
///   that of an array;
/// * `enum` becomes an `enum class` of 32 bits with the same variants, and implements [`Code`]. In a kernel,
///   `known` tells whether a value is one of them;
/// * `text` names a function `fn(&mut String)` that appends what these do not cover, as a table.
///
/// ```
/// use bytemuck::{Pod, Zeroable};
/// use gatework_gpu::{ByValue, Code as _, Device, Grid, Source, args};
///
/// gatework_gpu::shared! {
///     /// What `combine.cuh` and its host code share.
///     header HEADER = "combine_shared.cuh";
///     /// Elements of a tile.
///     const TILE: u32 = 4;
///     /// What is done to every element.
///     enum Operation { Add, Multiply }
///     /// One launch.
///     #[derive(Clone, Copy, Pod, Zeroable)]
///     struct Job {
///         operation: u32 => "Operation",
///         factor: u32,
///     }
/// }
///
/// let source = Source::new("combine", r#"
///     #include "gw/gw.cuh"
///     #include "combine_shared.cuh"
///     GW_KERNEL(combine)(u32* x, Job job) {
///         for (u32 i = 0; i < TILE; ++i) {
///             x[i] = job.operation == Operation::Add ? x[i] + job.factor : x[i] * job.factor;
///         }
///     }
/// "#).include_all(&[HEADER]);
/// let device = Device::open("emulated")?;
/// let stream = device.stream()?;
/// let mut x = stream.upload(&[1u32; TILE as usize])?;
/// let job = Job { operation: Operation::Multiply.code(), factor: 3 };
/// device.kernel(&source)?.launch(&stream, &Grid::new([1; 3], [1; 3]), &args![&mut x, ByValue(&job)])?;
/// assert_eq!(stream.download(&x)?, [3; TILE as usize]);
/// # Ok::<(), gatework_gpu::Error>(())
/// ```
#[macro_export]
macro_rules! shared {
    (
        $(#[$attribute:meta])*
        $visibility:vis header $header:ident = $path:literal
        $(after $($before:literal),+)? $(in $namespace:literal)?;
        $($items:tt)*
    ) => {
        $crate::shared! {
            @item [$(#[$attribute])* $visibility $header $path [$($($before),+)?] [$($namespace)?]] [] $($items)*
        }
    };

    (
        @item
        [
            $(#[$attribute:meta])*
            $visibility:vis $header:ident $path:literal [$($before:literal),*] [$($namespace:literal)?]
        ]
        [$($part:expr,)*]
    ) => {
        $(#[$attribute])*
        $visibility const $header: $crate::Header = $crate::Header::new($path, || {
            static TEXT: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
                let namespace: &[&str] = &[$($namespace)?];
                $crate::shared::render(&[$($before),*], namespace, &[$($part as fn(&mut String)),*])
            });
            &TEXT
        });
    };

    (
        @item $head:tt [$($done:tt)*]
        $(#[$attribute:meta])* $visibility:vis const $name:ident: $type:ty = $value:expr;
        $($rest:tt)*
    ) => {
        $(#[$attribute])*
        $visibility const $name: $type = $value;
        $crate::shared! {
            @item $head
            [$($done)* |text: &mut String| $crate::shared::constant(text, stringify!($name), $name),]
            $($rest)*
        }
    };

    (
        @item $head:tt [$($done:tt)*]
        text $declare:path;
        $($rest:tt)*
    ) => {
        $crate::shared! { @item $head [$($done)* $declare,] $($rest)* }
    };

    (
        @item $head:tt [$($done:tt)*]
        $(#[$attribute:meta])* $visibility:vis struct $name:ident {
            $($(#[$of_field:meta])* $field_visibility:vis $field:ident: $type:ty $(=> $theirs:literal)?),* $(,)?
        }
        $($rest:tt)*
    ) => {
        $(#[$attribute])*
        #[repr(C)]
        $visibility struct $name {
            $($(#[$of_field])* $field_visibility $field: $type),*
        }
        impl $crate::shared::Shared for $name {
            fn declare(name: &str) -> String {
                format!("{} {name}", stringify!($name))
            }
        }
        $crate::shared! {
            @item $head
            [$($done)* |text: &mut String| $crate::shared::structure(
                text,
                stringify!($name),
                std::mem::size_of::<$name>(),
                &[$((
                    stringify!($field),
                    $crate::shared::field::<$type>(stringify!($field), &[$($theirs)?]),
                    std::mem::offset_of!($name, $field),
                )),*],
            ),]
            $($rest)*
        }
    };

    (
        @item $head:tt [$($done:tt)*]
        $(#[$attribute:meta])* $visibility:vis enum $name:ident {
            $($(#[$of_variant:meta])* $variant:ident),* $(,)?
        }
        $($rest:tt)*
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u32)]
        $visibility enum $name {
            $($(#[$of_variant])* $variant),*
        }
        impl $crate::Code for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),*];

            fn code(self) -> u32 {
                self as u32
            }
        }
        $crate::shared! {
            @item $head
            [$($done)* |text: &mut String| $crate::shared::enumeration::<$name>(text, stringify!($name)),]
            $($rest)*
        }
    };
}

/// An enumeration that kernels know by numbers, from zero on.
pub trait Code: Copy + std::fmt::Debug + 'static {
    /// Every variant, in the order of the numbers.
    const ALL: &'static [Self];

    /// The variant's number.
    fn code(self) -> u32;

    /// The variant of a number; none if there is none.
    fn from_code(code: u32) -> Option<Self> {
        Self::ALL.get(code as usize).copied()
    }
}

/// A type that both languages have.
pub trait Shared {
    /// The declaration of a variable of this type in a kernel.
    fn declare(name: &str) -> String;
}

/// A type that a shared constant may have.
pub trait Constant: Shared {
    /// The value as a kernel writes it.
    fn literal(&self) -> String;
}

macro_rules! scalars {
    ($($type:ident $suffix:literal),*) => {$(
        impl Shared for $type {
            fn declare(name: &str) -> String {
                format!("{} {name}", stringify!($type))
            }
        }
        impl Constant for $type {
            fn literal(&self) -> String {
                format!("{self:?}{}", $suffix)
            }
        }
    )*};
}

scalars!(u8 "", i8 "", u16 "", i16 "", u32 "u", i32 "", u64 "ull", i64 "ll", f32 "f", f64 "");

impl<T: Shared, const N: usize> Shared for [T; N] {
    fn declare(name: &str) -> String {
        T::declare(&format!("{name}[{N}]"))
    }
}

impl<T: Shared> Shared for *mut T {
    fn declare(name: &str) -> String {
        T::declare(&format!("*{name}"))
    }
}

impl<T: Shared> Shared for *const T {
    fn declare(name: &str) -> String {
        format!("const {}", T::declare(&format!("*{name}")))
    }
}

impl Shared for std::ffi::c_void {
    fn declare(name: &str) -> String {
        format!("void {name}")
    }
}

/// The text of a header: what it includes, and its parts inside of a namespace, if there is one.
pub fn render(before: &[&str], namespace: &[&str], parts: &[fn(&mut String)]) -> String {
    let mut text = String::from(
        "#pragma once\n// Generated from what the host code declares.\n#include \"gw/types.cuh\"\n",
    );
    for path in before {
        let _ = writeln!(text, "#include \"{path}\"");
    }
    for name in namespace {
        let _ = writeln!(text, "namespace {name} {{");
    }
    for part in parts {
        part(&mut text);
    }
    for name in namespace {
        let _ = writeln!(text, "}}  // namespace {name}");
    }
    text
}

/// Appends a constant.
pub fn constant<T: Constant>(text: &mut String, name: &str, value: T) {
    let _ = writeln!(text, "constexpr {} = {};", T::declare(name), value.literal());
}

/// The declaration of a field: with the kernel's own type, if one is given. The name goes where that has
/// `{}`, or after it.
pub fn field<T: Shared>(name: &str, theirs: &[&str]) -> String {
    match theirs.first() {
        None => T::declare(name),
        Some(theirs) if theirs.contains("{}") => theirs.replace("{}", name),
        Some(theirs) => format!("{theirs} {name}"),
    }
}

/// Appends a struct: its fields with their declarations and places.
pub fn structure(text: &mut String, name: &str, bytes: usize, fields: &[(&str, String, usize)]) {
    let _ = writeln!(text, "struct {name} {{");
    for (_, declaration, _) in fields {
        let _ = writeln!(text, "    {declaration};");
    }
    let _ = writeln!(text, "}};\nstatic_assert(sizeof({name}) == {bytes}, \"the size of {name}\");");
    // NVRTC has no offsetof. Both compilers lay these types out alike.
    text.push_str("#ifndef GW_CUDA\n");
    for (field, _, place) in fields {
        let check = format!("__builtin_offsetof({name}, {field}) == {place}");
        let _ = writeln!(text, "static_assert({check}, \"the place of {name}::{field}\");");
    }
    text.push_str("#endif\n");
}

/// Appends an enumeration.
pub fn enumeration<T: Code>(text: &mut String, name: &str) {
    let _ = writeln!(text, "enum class {name} : u32 {{");
    for variant in T::ALL {
        let _ = writeln!(text, "    {variant:?} = {},", variant.code());
    }
    let count = T::ALL.len();
    let _ =
        writeln!(text, "}};\nGW_DEVICE constexpr bool known({name} code) {{ return (u32)code < {count}; }}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Architecture, Source, compile};

    crate::shared! {
        /// One item of each kind.
        header HEADER = "test.cuh" in "test";
        const WIDTH: u32 = 12;
        const FACTOR: f32 = 0.5;
        struct Pair {
            left: u32,
            right: [u16; 2],
            place: u64 => "const u8*",
        }
        enum Colour {
            Red,
            DeepBlue,
        }
    }

    #[test]
    fn the_header_says_what_the_items_are() {
        let text = HEADER.text();
        for line in [
            "constexpr u32 WIDTH = 12u;",
            "constexpr f32 FACTOR = 0.5f;",
            "    u16 right[2];",
            "    const u8* place;",
            "static_assert(sizeof(Pair) == 16, \"the size of Pair\");",
            "static_assert(__builtin_offsetof(Pair, right) == 4, \"the place of Pair::right\");",
            "    DeepBlue = 1,",
            "GW_DEVICE constexpr bool known(Colour code) { return (u32)code < 2; }",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        let source =
            Source::new("k", "#include \"gw/gw.cuh\"\n#include \"test.cuh\"\nGW_KERNEL(k)(test::Pair p) {}");
        compile(&source.include_all(&[HEADER]), &Architecture::Emulated).unwrap();
    }

    #[test]
    fn an_unknown_number_is_no_variant() {
        assert_eq!(Colour::from_code(1), Some(Colour::DeepBlue));
        assert_eq!(Colour::from_code(2), None);
    }
}
