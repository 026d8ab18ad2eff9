//! AES-128: the processor's instructions where it has them, the `aes` crate elsewhere.

use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt as _, KeyInit as _};

#[cfg(target_arch = "x86_64")]
use super::vector;

/// AES-128 under one key. A block is the little-endian number of its 16 bytes.
#[derive(Clone)]
pub(crate) enum Cipher {
    /// Round keys for the vector code, in one place however often this moves, and how wide it may be.
    #[cfg(target_arch = "x86_64")]
    Vector(Box<vector::RoundKeys>, vector::Width),
    /// Constant time by bit slicing, or by the processor's own instructions.
    Portable(Box<Aes128>),
}

impl Cipher {
    /// The fastest cipher of this machine.
    pub(crate) fn new(key: u128) -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(width) = vector::Width::detect() {
            return Self::Vector(Box::new(vector::RoundKeys::expand(key)), width);
        }
        Self::portable(key)
    }

    /// The cipher that every machine has.
    pub(crate) fn portable(key: u128) -> Self {
        Self::Portable(Box::new(Aes128::new(&key.to_le_bytes().into())))
    }

    /// Encrypts every block where it lies.
    pub(crate) fn encrypt(&self, blocks: &mut [u128]) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Vector(keys, width) => vector::encrypt::<false>(*width, keys, blocks),
            Self::Portable(cipher) => portable::<false>(cipher, blocks),
        }
    }

    /// x ← AES(x) ⊕ x for every block.
    pub(crate) fn encrypt_xor(&self, blocks: &mut [u128]) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Vector(keys, width) => vector::encrypt::<true>(*width, keys, blocks),
            Self::Portable(cipher) => portable::<true>(cipher, blocks),
        }
    }
}

fn portable<const FEED_FORWARD: bool>(cipher: &Aes128, blocks: &mut [u128]) {
    /// As many as a bit-sliced implementation likes at once.
    const LANES: usize = 64;
    let mut lanes = [aes::Block::default(); LANES];
    for chunk in blocks.chunks_mut(LANES) {
        let lanes = &mut lanes[..chunk.len()];
        for (lane, block) in lanes.iter_mut().zip(chunk.iter()) {
            *lane = block.to_le_bytes().into();
        }
        cipher.encrypt_blocks(lanes);
        for (lane, block) in lanes.iter().zip(chunk.iter_mut()) {
            let encrypted = u128::from_le_bytes((*lane).into());
            *block = if FEED_FORWARD { encrypted ^ *block } else { encrypted };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ciphers of every width this machine has.
    fn ciphers(key: u128) -> Vec<(String, Cipher)> {
        let ciphers = vec![("portable".to_owned(), Cipher::portable(key))];
        #[cfg(target_arch = "x86_64")]
        let ciphers = vector::Width::available().into_iter().fold(ciphers, |mut ciphers, width| {
            ciphers.push((
                format!("{width:?}"),
                Cipher::Vector(Box::new(vector::RoundKeys::expand(key)), width),
            ));
            ciphers
        });
        ciphers
    }

    fn block(hex: &str) -> u128 {
        u128::from_be_bytes(u128::from_str_radix(hex, 16).unwrap().to_le_bytes())
    }

    #[test]
    fn fips_197_vectors() {
        // Appendix B, appendix C.1, and the first vectors of NIST SP 800-38A F.1.1.
        let vectors = [
            (
                "2b7e151628aed2a6abf7158809cf4f3c",
                "3243f6a8885a308d313198a2e0370734",
                "3925841d02dc09fbdc118597196a0b32",
            ),
            (
                "000102030405060708090a0b0c0d0e0f",
                "00112233445566778899aabbccddeeff",
                "69c4e0d86a7b0430d8cdb78070b4c55a",
            ),
            (
                "2b7e151628aed2a6abf7158809cf4f3c",
                "6bc1bee22e409f96e93d7e117393172a",
                "3ad77bb40d7a3660a89ecaf32466ef97",
            ),
            (
                "2b7e151628aed2a6abf7158809cf4f3c",
                "ae2d8a571e03ac9c9eb76fac45af8e51",
                "f5d3d58503b9699de785895a96fdbaaf",
            ),
        ];
        for (key, plain, encrypted) in vectors {
            for (name, cipher) in ciphers(block(key)) {
                for count in [1, 3, 16, 33, 100] {
                    let mut blocks = vec![block(plain); count];
                    cipher.encrypt(&mut blocks);
                    assert!(blocks.iter().all(|&found| found == block(encrypted)), "{name}, {count} blocks");
                }
            }
        }
    }

    #[test]
    fn every_width_agrees() {
        let inputs: Vec<u128> = (1..=131u128).map(|i| i.wrapping_mul(u128::MAX / 7)).collect();
        for feed_forward in [false, true] {
            let outputs: Vec<Vec<u128>> = ciphers(42)
                .into_iter()
                .map(|(_, cipher)| {
                    let mut blocks = inputs.clone();
                    if feed_forward {
                        cipher.encrypt_xor(&mut blocks);
                    } else {
                        cipher.encrypt(&mut blocks);
                    }
                    blocks
                })
                .collect();
            assert!(outputs.windows(2).all(|pair| pair[0] == pair[1]));
            assert_ne!(outputs[0], inputs);
        }
    }
}
