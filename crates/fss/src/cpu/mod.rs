//! The backend on the host's cores.

mod arithmetic;
mod gemm;
mod keys;

use keys::{DealtSection, HostPoints, ReadSection};

use crate::backend::{Backend, DealerKeys, Download, Handle, Layout, MatmulShape, Part, PartyKeys, Sums};
use crate::error::{Error, Result};
use crate::formula::{Formula, Operand};
use crate::key::KeySection;
use crate::message::Message;
use crate::party::Party;
use crate::ring::{Ring, pack_into, packed_bytes, unpack};
use crate::secret::Secret;
use crate::table::Table;

/// The host: words are vectors, and every call is done when it returns.
#[derive(Debug, Clone, Copy, Default)]
pub struct CpuBackend;

type HostWords = Secret<u64>;

fn words(handle: &Handle) -> Result<&HostWords> {
    handle.get().ok_or(Error::OtherBackend)
}

impl Backend for CpuBackend {
    fn name(&self) -> String {
        "the CPU".into()
    }

    fn upload(&self, words: Secret<u64>) -> Result<Handle> {
        Ok(Handle::new(words))
    }

    fn download(&self, handle: &Handle) -> Result<Secret<u64>> {
        words(handle).cloned()
    }

    fn compute(&self, formula: &Formula, operands: &[Operand], len: usize) -> Result<Handle> {
        let slices = operands.iter().map(|operand| Ok((words(&operand.words)?.as_slice(), &operand.view)));
        Ok(Handle::new(arithmetic::evaluate(formula, &slices.collect::<Result<Vec<_>>>()?, len)))
    }

    fn sums(&self, handle: &Handle, sums: Sums<'_>, ring: Ring) -> Result<Handle> {
        let words = words(handle)?;
        let sum = |row: &[u64]| ring.reduce(row.iter().fold(0, |sum, &word| sum.wrapping_add(word)));
        let found: HostWords = match sums {
            Sums::Rows(width) => words.chunks(width).map(sum).collect(),
            Sums::Ragged(lengths) => {
                let mut rest = words.as_slice();
                let mut row = |&length: &usize| {
                    let (row, after) = rest.split_at(length);
                    rest = after;
                    sum(row)
                };
                lengths.iter().map(&mut row).collect()
            }
            Sums::Columns(columns) => {
                let mut all = Secret::new(vec![0u64; columns]);
                for row in words.chunks(columns) {
                    all.iter_mut().zip(row).for_each(|(sum, &word)| *sum = sum.wrapping_add(word));
                }
                all.iter_mut().for_each(|sum| *sum = ring.reduce(*sum));
                all
            }
        };
        Ok(Handle::new(found))
    }

    fn concat(&self, parts: &[&Handle]) -> Result<Handle> {
        let parts = parts.iter().map(|part| words(part)).collect::<Result<Vec<_>>>()?;
        let mut all = HostWords::with_capacity(parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| all.extend_from_slice(part));
        Ok(Handle::new(all))
    }

    fn products(
        &self,
        shape: MatmulShape,
        layout: Layout,
        ring: Ring,
        pairs: &[[&Handle; 2]],
        start: Option<Handle>,
    ) -> Result<Handle> {
        let mut sums: HostWords = match start {
            None => Secret::new(vec![0; shape.product()]),
            // Whoever else holds the start keeps it as it is.
            Some(start) => start.try_unwrap().or_else(|shared| words(&shared).cloned())?,
        };
        for [a, b] in pairs {
            gemm::accumulate_batch(shape, layout, words(a)?, words(b)?, &mut sums);
        }
        if ring != Ring::WORD {
            sums.iter_mut().for_each(|sum| *sum = ring.reduce(*sum));
        }
        Ok(Handle::new(sums))
    }

    fn less_than(&self, keys: &Handle, x: &Handle, shifts: &[u64]) -> Result<Handle> {
        let (keys, x) = (keys.get::<HostPoints>().ok_or(Error::OtherBackend)?, words(x)?);
        let mask = u64::MAX >> (64 - keys.points.domain());
        let mut points = Vec::with_capacity(shifts.len() * x.len());
        for &shift in shifts {
            points.extend(x.iter().map(|&word| word.wrapping_add(shift) & mask));
        }
        Ok(Handle::new(HostWords::new(keys.points.less_than(&keys.hash, &points))))
    }

    fn lookup(&self, keys: &Handle, x: &Handle, table: &Table) -> Result<Handle> {
        let keys = keys.get::<HostPoints>().ok_or(Error::OtherBackend)?;
        Ok(Handle::new(HostWords::new(keys.points.lookup(&keys.hash, words(x)?, table))))
    }

    fn pack(&self, header: &[u8], parts: &[Part]) -> Result<Box<dyn Download>> {
        let packed: usize = parts.iter().map(|part| packed_bytes(part.len, part.ring.bits())).sum();
        let mut bytes = Vec::with_capacity(header.len() + packed);
        bytes.extend_from_slice(header);
        for part in parts {
            pack_into(words(part.words.as_ref().ok_or(Error::Absent)?)?, part.ring.bits(), &mut bytes);
        }
        Ok(Box::new(Packed(bytes)))
    }

    fn open(&self, parts: Vec<Part>, bytes: &[u8]) -> Result<Vec<Handle>> {
        let mut rest = bytes;
        let mut opened = Vec::with_capacity(parts.len());
        for part in parts {
            if !part.in_message {
                opened.push(part.words.ok_or(Error::Absent)?);
                continue;
            }
            let bits = part.ring.bits();
            let theirs;
            (theirs, rest) = rest.split_at_checked(packed_bytes(part.len, bits)).ok_or(Error::Absent)?;
            let mut sums = HostWords::with_capacity(part.len);
            unpack(theirs, part.len, bits, &mut sums)?;
            if let Some(own) = &part.words {
                for (sum, own) in sums.iter_mut().zip(words(own)?.iter()) {
                    *sum = part.ring.reduce(sum.wrapping_add(*own));
                }
            }
            opened.push(Handle::new(sums));
        }
        Ok(opened)
    }

    fn party_keys(&self, party: Party, section: KeySection) -> Result<Box<dyn PartyKeys>> {
        Ok(Box::new(ReadSection::new(party, section)))
    }

    fn dealer_keys(&self, seeds: [u128; 2], public_key: u128) -> Result<Box<dyn DealerKeys>> {
        Ok(Box::new(DealtSection::new(seeds, public_key)))
    }
}

/// A message that is there already.
struct Packed(Vec<u8>);

impl Download for Packed {
    fn ready(&self) -> bool {
        true
    }

    fn take(self: Box<Self>) -> Result<Message> {
        Ok(self.0.into())
    }
}
