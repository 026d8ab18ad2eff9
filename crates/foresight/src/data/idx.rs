//! `idx`, the file format of MNIST: two zero bytes, 8 for bytes, the number of dimensions, each dimension as
//! a big-endian word, then the bytes.

use std::path::Path;

use super::examples::{Examples, Splits};
use crate::error::{Error, Result};

/// The dimensions and the bytes of a file of `dimensions` dimensions.
fn parse<'a>(name: &str, bytes: &'a [u8], dimensions: u8) -> Result<(Vec<usize>, &'a [u8])> {
    let bad = |what: String| Err(Error::data(format!("{name}: {what}")));
    let header = 4 + 4 * usize::from(dimensions);
    if bytes.len() < header || bytes[..4] != [0, 0, 8, dimensions] {
        return bad(format!(
            "it is no idx file of bytes in {dimensions} dimensions; unpack it first if it is packed"
        ));
    }
    let word =
        |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize;
    let sizes: Vec<usize> = (0..usize::from(dimensions)).map(|i| word(4 + 4 * i)).collect();
    let wanted = sizes.iter().try_fold(1usize, |all, &size| all.checked_mul(size));
    let body = &bytes[header..];
    if wanted != Some(body.len()) {
        return bad(format!("it says {sizes:?} and holds {} bytes: it is cut short or damaged", body.len()));
    }
    Ok((sizes, body))
}

/// Images of an idx file: rows, columns, and all grey values. `name` is what errors call it.
pub fn read_images<'a>(name: &str, bytes: &'a [u8]) -> Result<([usize; 2], &'a [u8])> {
    let (sizes, body) = parse(name, bytes, 3)?;
    Ok(([sizes[1], sizes[2]], body))
}

/// Labels of an idx file. `name` is what errors call it.
pub fn read_labels(name: &str, bytes: &[u8]) -> Result<Vec<u16>> {
    let (_, body) = parse(name, bytes, 1)?;
    Ok(body.iter().map(|&label| u16::from(label)).collect())
}

fn pair(folder: &Path, part: &str) -> Result<Examples> {
    let read = |name: String| {
        let path = folder.join(&name);
        let bytes = std::fs::read(&path).map_err(|source| {
            Error::data(format!(
                "{} cannot be read ({source}); 'gatework train fetch mnist --into {}' puts it there",
                path.display(),
                folder.display()
            ))
        })?;
        Ok::<_, Error>((name, bytes))
    };
    let (images_name, images) = read(format!("{part}-images-idx3-ubyte"))?;
    let (labels_name, labels) = read(format!("{part}-labels-idx1-ubyte"))?;
    let ([rows, columns], grey) = read_images(&images_name, &images)?;
    // The mean and the deviation of all training images.
    let inputs = grey.iter().map(|&grey| (f32::from(grey) / 255.0 - 0.1307) / 0.3081).collect();
    Examples::new([1, rows, columns], 10, inputs, read_labels(&labels_name, &labels)?)
}

/// MNIST from a folder with its four files, unpacked: the official 10,000 test images validate, and `probe`
/// of the training images are held back.
pub fn mnist(folder: &Path, probe: usize, seed: u64) -> Result<Splits> {
    Splits::with_validation(&pair(folder, "train")?, probe, pair(folder, "t10k")?, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_is_refused() {
        let good = [&[0, 0, 8, 1, 0, 0, 0, 2][..], &[7, 9]].concat();
        assert_eq!(read_labels("labels", &good).unwrap(), [7, 9]);
        let said = |bytes: &[u8]| read_labels("labels", bytes).unwrap_err().to_string();
        assert!(said(&good[..9]).contains("cut short"));
        assert!(said(&[0x1f, 0x8b, 8, 0]).contains("unpack it first"));
        assert!(said(&[]).contains("no idx file"));
        let huge = [&[0, 0, 8, 3][..], &[255; 12]].concat();
        assert!(read_images("images", &huge).unwrap_err().to_string().contains("cut short"));
    }

    #[test]
    fn a_missing_file_names_the_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let said = mnist(folder.path(), 10, 1).unwrap_err().to_string();
        assert!(said.contains("train-images-idx3-ubyte") && said.contains("train fetch mnist"), "{said}");
    }
}
