//! A kernel's parameters, read from the cubin itself.
//!
//! The driver tells them one by one until it answers an invalid index with an error, which every checking
//! tool reports. The cubin says the same without one: section `.nv.info.<kernel>` is a list of attributes,
//! each a format byte, an attribute byte, and either a 16-bit value or a 16-bit length and that many bytes.
//! `KPARAM_INFO` holds a parameter's ordinal and offset (16 bits each, after a 32-bit index) and its size in
//! the top 14 bits of a last word.

use object::{Object as _, ObjectSection as _};

use crate::types::Parameter;
use crate::{Error, Result};

const SIZED_FORMAT: u8 = 4;
const KPARAM_INFO: u8 = 0x17;
const SIZE_SHIFT: u32 = 18;

/// Sizes of the parameters of `entry`, in order.
pub(crate) fn parameters(cubin: &[u8], kernel: &str, entry: &str) -> Result<Vec<Parameter>> {
    let unreadable = |reason: String| Error::Load { kernel: kernel.to_owned(), reason };
    let file = object::File::parse(cubin).map_err(|error| unreadable(format!("it is no cubin: {error}")))?;
    let section = file
        .section_by_name(&format!(".nv.info.{entry}"))
        .ok_or_else(|| Error::NoEntry { kernel: kernel.to_owned(), entry: entry.to_owned() })?;
    let attributes = section.data().map_err(|error| unreadable(error.to_string()))?;
    let mut found =
        list(attributes).ok_or_else(|| unreadable(format!("the attributes of '{entry}' end early")))?;
    found.sort_by_key(|&(ordinal, _)| ordinal);
    Ok(found.into_iter().map(|(_, bytes)| Parameter { bytes, type_: None }).collect())
}

/// Ordinal and size of every parameter. `None` if the list is cut short.
pub(crate) fn list(mut attributes: &[u8]) -> Option<Vec<(u16, usize)>> {
    let mut found = Vec::new();
    while let [format, attribute, low, high, rest @ ..] = attributes {
        if *format != SIZED_FORMAT {
            attributes = rest;
            continue;
        }
        let (data, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([*low, *high])))?;
        attributes = rest;
        if *attribute == KPARAM_INFO {
            let ordinal = u16::from_le_bytes(data.get(4..6)?.try_into().ok()?);
            let word = u32::from_le_bytes(data.get(8..12)?.try_into().ok()?);
            found.push((ordinal, (word >> SIZE_SHIFT) as usize));
        }
    }
    attributes.is_empty().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attributes of `saxpy(const f32*, f32*, f32, u64)` as ptxas 13.0 wrote them.
    const SAXPY: &[u8] = &[
        0x04, 0x37, 0x04, 0x00, 0x82, 0x00, 0x00, 0x00, 0x04, 0x17, 0x0c, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03,
        0x00, 0x18, 0x00, 0x00, 0xf0, 0x21, 0x00, 0x04, 0x17, 0x0c, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00,
        0x10, 0x00, 0x00, 0xf0, 0x11, 0x00, 0x04, 0x17, 0x0c, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x08,
        0x00, 0x00, 0xf0, 0x21, 0x00, 0x04, 0x17, 0x0c, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0xf0, 0x21, 0x00, 0x03, 0x50, 0x00, 0x00, 0x03, 0x1b, 0xff, 0x00,
    ];

    #[test]
    fn parameters_of_a_real_kernel_are_read() {
        assert_eq!(list(SAXPY), Some(vec![(3, 8), (2, 4), (1, 8), (0, 8)]));
    }

    #[test]
    fn a_list_that_is_cut_short_is_refused() {
        assert_eq!(list(&SAXPY[..20]), None);
        assert_eq!(list(&SAXPY[..3]), None);
        assert!(parameters(b"not an ELF file", "k", "k").is_err());
    }
}
