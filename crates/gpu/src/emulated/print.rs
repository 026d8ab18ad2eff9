//! `gw::print`: a kernel's words on standard output, formatted as C has it.

use std::ffi::{CStr, CString, c_char, c_int};
use std::io::{self, Write as _};

use super::block::CallSite;
use super::launch::{Launch, Stop};
use crate::abi::Printed;
use crate::types::{FaultKind, Prints};

/// The most bytes that one directive may print, and its width or precision ask for.
const LONGEST: usize = 4096;

unsafe extern "C" {
    fn snprintf(to: *mut c_char, bytes: usize, format: *const c_char, ...) -> c_int;
}

/// One argument: what it is, and its bits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Argument {
    pub(super) kind: Printed,
    pub(super) bits: u64,
}

impl Launch {
    /// The text at an address, which must be a constant of the kernel.
    pub(super) fn constant_text(&mut self, address: usize, site: CallSite) -> Result<String, Stop> {
        let image = self.entry.image().clone();
        if !image.contains(&address) {
            let message = "a text that is no constant of the kernel".into();
            return Err(self.fault_at(FaultKind::Protocol, site, message));
        }
        // SAFETY: the image is mapped as long as the entry lives, and nobody writes its constants.
        let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, image.end - address) };
        let text = CStr::from_bytes_until_nul(bytes).map(|text| text.to_string_lossy().into_owned());
        text.map_err(|_| {
            let message = "a text without an end".into();
            self.fault_at(FaultKind::Protocol, site, message)
        })
    }

    /// Prints, or says at which directive format and arguments part.
    pub(super) fn print(
        &mut self,
        format: usize,
        arguments: &[Argument],
        site: CallSite,
    ) -> Result<(), Stop> {
        let format = self.constant_text(format, site)?;
        let texts: Vec<Option<String>> = arguments
            .iter()
            .map(|argument| match argument.kind {
                Printed::Text => self.constant_text(argument.bits as usize, site).map(Some),
                _ => Ok(None),
            })
            .collect::<Result<_, _>>()?;
        match formatted(&format, arguments, &texts) {
            Ok(text) => {
                // Somebody who does not listen is no reason to stop, as on a card.
                let _ = match self.prints {
                    Prints::ToStandardOutput => io::stdout().write_all(text.as_bytes()),
                    Prints::ToStandardError => io::stderr().write_all(text.as_bytes()),
                    Prints::Nowhere => Ok(()),
                };
                Ok(())
            }
            Err(why) => {
                Err(self.fault_at(FaultKind::Protocol, site, format!("gw::print of {format:?}: {why}")))
            }
        }
    }
}

/// One directive of a format: `%`, flags, width, precision, length, conversion.
struct Directive<'a> {
    /// Flags, width and precision.
    options: &'a str,
    conversion: char,
}

/// The text that `format` makes of the arguments; `texts` holds those that are texts.
fn formatted(format: &str, arguments: &[Argument], texts: &[Option<String>]) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = format;
    let mut next = arguments.iter().zip(texts);
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let (directive, after) = directive(rest)?;
        rest = after;
        let Some((argument, text)) = next.next() else {
            return Err(format!("%{} has no argument", directive.conversion));
        };
        out.push_str(&printed(&directive, *argument, text.as_deref())?);
    }
    if next.next().is_some() {
        return Err("there are more arguments than directives".into());
    }
    out.push_str(rest);
    Ok(out)
}

fn directive(text: &str) -> Result<(Directive<'_>, &str), String> {
    let options = text.find(|c: char| !"-+ #0123456789.".contains(c)).unwrap_or(text.len());
    let after = text[options..].trim_start_matches(['l', 'h', 'j', 'z', 't']);
    let conversion = after.chars().next().ok_or("a directive without its conversion")?;
    let mut numbers =
        text[..options].split(|c: char| !c.is_ascii_digit()).filter(|number| !number.is_empty());
    if numbers.any(|number| number.parse::<usize>().map_or(true, |number| number > LONGEST)) {
        return Err(format!("a width over {LONGEST}"));
    }
    Ok((Directive { options: &text[..options], conversion }, &after[conversion.len_utf8()..]))
}

fn printed(directive: &Directive<'_>, argument: Argument, text: Option<&str>) -> Result<String, String> {
    let Directive { options, conversion } = *directive;
    let fits = match conversion {
        'd' | 'i' | 'u' | 'x' | 'X' | 'o' | 'c' => {
            matches!(argument.kind, Printed::Signed | Printed::Unsigned)
        }
        'f' | 'F' | 'e' | 'E' | 'g' | 'G' | 'a' | 'A' => argument.kind == Printed::Float,
        's' => argument.kind == Printed::Text,
        'p' => matches!(argument.kind, Printed::Pointer | Printed::Text),
        other => return Err(format!("%{other} is no conversion that a device knows")),
    };
    if !fits {
        return Err(format!("%{conversion} is given a value of kind {:?}", argument.kind));
    }
    let length = if matches!(conversion, 'd' | 'i' | 'u' | 'x' | 'X' | 'o') { "ll" } else { "" };
    let format =
        CString::new(format!("%{options}{length}{conversion}")).map_err(|error| error.to_string())?;
    let text = CString::new(text.unwrap_or_default()).map_err(|error| error.to_string())?;
    let mut room = vec![0u8; 2 * LONGEST];
    let (to, bytes) = (room.as_mut_ptr().cast::<c_char>(), room.len());
    // SAFETY: the room has so many bytes, and the one directive of the format was just matched with the type
    // of the one argument: `long long`, `double`, a text that ends in NUL, a pointer, or an `int`.
    let written = unsafe {
        match conversion {
            'c' => snprintf(to, bytes, format.as_ptr(), argument.bits as c_int),
            's' => snprintf(to, bytes, format.as_ptr(), text.as_ptr()),
            'p' => snprintf(to, bytes, format.as_ptr(), argument.bits as usize as *const u8),
            'd' | 'i' | 'u' | 'x' | 'X' | 'o' => snprintf(to, bytes, format.as_ptr(), argument.bits),
            _ => snprintf(to, bytes, format.as_ptr(), f64::from_bits(argument.bits)),
        }
    };
    let written = usize::try_from(written).map_err(|_| "the format cannot be printed".to_owned())?;
    room.truncate(written.min(bytes - 1));
    Ok(String::from_utf8_lossy(&room).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(format: &str, arguments: &[Argument]) -> Result<String, String> {
        let texts: Vec<Option<String>> = arguments
            .iter()
            .map(|argument| (argument.kind == Printed::Text).then(|| "warp".into()))
            .collect();
        formatted(format, arguments, &texts)
    }

    #[test]
    fn directives_print_as_in_c() {
        let signed = Argument { kind: Printed::Signed, bits: -7i64 as u64 };
        let unsigned = Argument { kind: Printed::Unsigned, bits: 255 };
        let float = Argument { kind: Printed::Float, bits: 1.5f64.to_bits() };
        let text = Argument { kind: Printed::Text, bits: 0 };
        assert_eq!(
            told("%d|%5d|%-4u|%08x|", &[signed, signed, unsigned, unsigned]).unwrap(),
            "-7|   -7|255 |000000ff|"
        );
        assert_eq!(told("%s %.2f 100%% %llu", &[text, float, unsigned]).unwrap(), "warp 1.50 100% 255");
        assert_eq!(told("%g and %e", &[float, float]).unwrap(), "1.5 and 1.500000e+00");
    }

    #[test]
    fn a_format_that_does_not_fit_is_told() {
        let unsigned = Argument { kind: Printed::Unsigned, bits: 255 };
        for (format, arguments, words) in [
            ("%d", vec![], "no argument"),
            ("none", vec![unsigned], "more arguments"),
            ("%s", vec![unsigned], "kind Unsigned"),
            ("%n", vec![unsigned], "no conversion"),
            ("%99999d", vec![unsigned], "a width over"),
            ("%", vec![unsigned], "without its conversion"),
        ] {
            let error = told(format, &arguments).unwrap_err();
            assert!(error.contains(words), "{format}: {error}");
        }
    }
}
