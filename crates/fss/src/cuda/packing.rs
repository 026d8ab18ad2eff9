//! Words packed to their effective bits, and what becomes of the peer's.

use bytemuck::Zeroable as _;
use gatework_gpu::{Arg, Buffer, ByValue, Event, Grid, IntoArg, Pinned, Slice, View as _, args};

use crate::backend::{Download, Handle, Part};
use crate::error::{Error, Result};
use crate::message::Message;
use crate::ring::packed_bytes;
use crate::secret::copy_on_all_cores;

use super::kernels;
use super::queue::Queue;
use super::shared::{MOST_PARTS, OpenPart, OpenParts, PACKING_THREADS, PackPart, PackParts};
use super::words::{DeviceWords, expect_words, keep_words, words};

/// Words to pack, less others.
pub(super) struct Packed<'a> {
    pub(super) words: Slice<'a, u64>,
    pub(super) minus: Option<Slice<'a, u64>>,
    pub(super) bits: u32,
}

/// The bytes of all parts, each from a byte on, behind room for so many bytes of a header.
pub(super) fn pack(queue: &Queue, header: usize, parts: &[Packed<'_>]) -> Result<Buffer<u8>> {
    let bytes = |part: &Packed<'_>| packed_bytes(part.words.len(), part.bits);
    let mut packed = queue.alloc::<u8>(header + parts.iter().map(bytes).sum::<usize>())?;
    let mut first = header;
    for some in parts.chunks(MOST_PARTS as usize) {
        let (mut table, mut most) = (PackParts::zeroed(), 0);
        for (place, part) in table.at.iter_mut().zip(some) {
            *place = PackPart {
                words: part.words.as_raw(),
                minus: part.minus.map_or(0, |minus| minus.as_raw()),
                len: part.words.len() as u64,
                first: first as u64,
                bits: part.bits,
                unused: 0,
            };
            first += bytes(part);
            most = most.max(bytes(part));
        }
        let line = Grid::covering(most.div_ceil(8), PACKING_THREADS);
        let grid = Grid::new([line.blocks[0], some.len() as u32, 1], line.threads);
        queue.launch(&kernels::PACKING, "pack", &grid, &args![ByValue(&table), &mut packed])?;
    }
    Ok(packed)
}

/// Packed words of one ring, and what they are added to.
pub(super) struct Opened<'a> {
    pub(super) own: Option<&'a DeviceWords>,
    pub(super) sums: Slice<'a, u64>,
    pub(super) bits: u32,
}

/// Where packed bytes lie, in whole words.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    Device(&'a Buffer<u64>),
    /// Page-locked memory of the host, which the kernel reads over the link.
    Host(&'a Pinned<u64>),
}

impl<'a> IntoArg<'a> for Source<'a> {
    fn into_arg(self) -> Arg<'a> {
        match self {
            Self::Device(words) => words.into_arg(),
            Self::Host(words) => words.into_arg(),
        }
    }
}

/// Unpacks bytes from byte `first` on, which lie in whole words, into sums that nothing else is queued for.
///
/// # Safety
/// Nobody else writes the sums, or reads them but in the order of this queue.
pub(super) unsafe fn unpack(
    queue: &Queue,
    parts: &[Opened<'_>],
    mut first: usize,
    packed: Source<'_>,
) -> Result<()> {
    for some in parts.chunks(MOST_PARTS as usize) {
        let (mut table, mut most) = (OpenParts::zeroed(), 0);
        for (place, part) in table.at.iter_mut().zip(some) {
            let len = part.sums.len();
            *place = OpenPart {
                own: part.own.map_or(0, |own| own.view().as_raw()),
                sums: part.sums.as_raw(),
                len: len as u64,
                first: first as u64,
                bits: part.bits,
                unused: 0,
            };
            first += packed_bytes(len, part.bits);
            most = most.max(len);
        }
        let line = Grid::covering(most, PACKING_THREADS);
        let grid = Grid::new([line.blocks[0], some.len() as u32, 1], line.threads);
        queue.launch(&kernels::PACKING, "open", &grid, &args![ByValue(&table), packed])?;
    }
    Ok(())
}

/// The message of some parts, on its way.
pub(super) fn message(queue: &Queue, header: &[u8], parts: &[Part]) -> Result<Box<dyn Download>> {
    let parts = parts.iter().map(|part| {
        let words = words(queue, part.words.as_ref().ok_or(Error::Absent)?)?.view();
        Ok(Packed { words: words.slice(..part.len), minus: None, bits: part.ring.bits() })
    });
    let parts = parts.collect::<Result<Vec<_>>>()?;
    // The header is put there when the bytes have arrived.
    let packed = pack(queue, header.len(), &parts)?;
    let mut bytes = queue.device().pinned().take_as_is(packed.len())?;
    queue.stream().copy_to_pinned(&packed, &mut bytes)?;
    let arrived = queue.stream().record()?;
    Ok(Box::new(Arriving { header: header.to_vec(), bytes, arrived }))
}

/// What parts become when the peer's packed words are added. Messages of at most `direct` bytes are read
/// where they are staged: a copy would wait for the copies of keys that were queued before it.
pub(super) fn open(queue: &Queue, parts: Vec<Part>, bytes: &[u8], direct: usize) -> Result<Vec<Handle>> {
    let in_message = || parts.iter().filter(|part| part.in_message);
    let needed: usize = in_message().map(|part| packed_bytes(part.len, part.ring.bits())).sum();
    if needed > bytes.len() {
        return Err(Error::Absent);
    }
    let fill = |words: &mut [u64]| {
        let staged: &mut [u8] = bytemuck::cast_slice_mut(words);
        copy_on_all_cores(&mut staged[..needed], &bytes[..needed]);
        staged[needed..].fill(0);
    };
    let words_needed = needed.div_ceil(8);
    let (staged, copied);
    let packed = if needed <= direct {
        staged = queue.staged(words_needed, fill)?;
        Source::Host(&staged)
    } else {
        copied = queue.upload_with(words_needed, fill)?;
        Source::Device(&copied)
    };
    let sums = in_message().map(|part| queue.alloc::<u64>(part.len)).collect::<Result<Vec<_>>>()?;
    let opened = in_message().zip(&sums).map(|(part, sums)| {
        let own = part.words.as_ref().map(|own| words(queue, own)).transpose()?;
        own.map_or(Ok(()), |own| expect_words("an opening", own, part.len))?;
        Ok(Opened { own, sums: sums.view(), bits: part.ring.bits() })
    });
    let opened = opened.collect::<Result<Vec<_>>>()?;
    // SAFETY: the sums were allocated here, and nobody else has them.
    unsafe { unpack(queue, &opened, 0, packed)? };
    drop(opened);
    let mut sums = sums.into_iter();
    let handle = |part: Part| match part.in_message {
        true => sums.next().map(|sums| keep_words(queue, sums)).ok_or(Error::Absent),
        false => part.words.ok_or(Error::Absent),
    };
    parts.into_iter().map(handle).collect()
}

/// A message on its way from the device, there when its event is.
struct Arriving {
    header: Vec<u8>,
    bytes: Pinned<u8>,
    arrived: Event,
}

impl Download for Arriving {
    fn ready(&self) -> bool {
        // What cannot be asked is said by whoever waits.
        self.arrived.is_complete().unwrap_or(true)
    }

    fn take(self: Box<Self>) -> Result<Message> {
        let Self { header, mut bytes, .. } = *self;
        bytes.write()?[..header.len()].copy_from_slice(&header);
        Ok(Message::of(bytes.into_read()?))
    }
}
