//! Sequences of different lengths in one call: packed one after the other, without padding.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use gatework_gpu::{Device, Locked, Stream, Target};
use rayon::prelude::*;

use crate::attention::{Attention, Builder};
use crate::cuda::{DevicePackedAttention, PackedWorkspace};
use crate::form::{Form, Output};
use crate::lengths::Lengths;
use crate::shape::{Layout, Shape};
use crate::{Element, Error, Result};

/// Attention of packed sequences on one target, over tensors in host memory: queries `[rows, heads, dim]`,
/// keys and values `[keys, key heads, dim]`. Made by [`Builder::build_packed`].
///
/// A row's bits depend on its own sequence alone. On the CPU they are those of the sequence by itself. On a
/// device all sequences are quantised by one launch and attended by another: buffers there go to a
/// [`DevicePackedAttention`].
#[derive(Debug)]
pub struct PackedAttention {
    heads: usize,
    key_heads: usize,
    dim: usize,
    value_dim: usize,
    lengths: Lengths,
    runner: Runner,
}

/// The implementation behind a [`PackedAttention`].
#[derive(Debug)]
enum Runner {
    Cpu {
        sinks: Vec<f32>,
        /// One for each sequence; none for those without rows or without keys.
        attentions: Vec<Option<Arc<Attention>>>,
    },
    Device(Box<OnDevice>),
}

/// An attention of packed sequences on a device, with what all its calls share.
#[derive(Debug)]
struct OnDevice {
    attention: DevicePackedAttention,
    stream: Stream,
    /// One call at a time: a second waits for the first.
    workspace: Locked<PackedWorkspace>,
}

impl OnDevice {
    fn new(attention: DevicePackedAttention, device: &Device) -> Result<Self> {
        let stream = device.stream()?;
        let workspace = Locked::new(attention.workspace(&stream)?);
        Ok(Self { attention, stream, workspace })
    }

    fn forward<O: Element, T: Element>(&self, [q, k, v]: [&[T]; 3]) -> Result<Output<O>> {
        let stream = &self.stream;
        let mut workspace = self.workspace.lock();
        let [.., outputs] = self.attention.elements();
        if outputs == 0 {
            return Ok(Output { o: Vec::new(), lse: Vec::new() });
        }
        // There may be rows and no key at all.
        let upload = |x: &[T]| if x.is_empty() { stream.alloc(1) } else { stream.upload(x) };
        let (q, k, v) = (upload(q)?, upload(k)?, upload(v)?);
        let mut o = stream.alloc(outputs)?;
        self.attention.forward(stream, &mut workspace, [&q, &k, &v], &mut o)?;
        Ok(Output { o: stream.download(&o)?, lse: stream.download(workspace.lse())? })
    }
}

/// A sequence's rows and keys, and what attends them.
type Sequence<'a> = ((Range<usize>, Range<usize>), &'a Option<Arc<Attention>>);
/// A sequence's part of the output, and of the log-sum-exp.
pub(crate) type Part<O> = (Vec<O>, Vec<f32>);

impl Builder {
    /// Checks the combination: an attention of packed sequences. Of the builder's shape, heads and dimension
    /// count, and its layout does not.
    pub fn build_packed(self, lengths: &Lengths, target: &Target) -> Result<PackedAttention> {
        let Shape { heads, key_heads, dim, value_dim, .. } = *self.shape();
        // Also checks what there is no sequence for, and sizes that only all sequences together have.
        let (rows, keys) = (lengths.rows().max(1), lengths.keys().max(1));
        let whole = Shape { batch: 1, heads, key_heads, rows, keys, dim, value_dim };
        self.clone().reshaped(whole).into_form().check()?;
        let lengths = lengths.clone();
        let runner = match target {
            Target::Cpu => self.packed_on_cpu(&lengths)?,
            Target::Gpu(device) => {
                let attention = self.build_packed_on(&lengths, device)?;
                Runner::Device(Box::new(OnDevice::new(attention, device)?))
            }
        };
        Ok(PackedAttention { heads, key_heads, dim, value_dim, lengths, runner })
    }

    /// Checks the combination: an attention of packed sequences in the memory of `device`, in one launch that
    /// quantises and one that attends. Of the builder's shape, heads and dimensions count, and its layout does
    /// not; a row's bits depend on its own sequence alone, whatever its `bits` say.
    pub fn build_packed_on(self, lengths: &Lengths, device: &Device) -> Result<DevicePackedAttention> {
        let (rotation, schedule) = (self.rotated(), self.scheduled());
        let (rows, keys) = (lengths.rows().max(1), lengths.keys().max(1));
        let form = self.into_form();
        let shape = Shape { batch: 1, rows, keys, ..form.shape };
        let form = Form { shape, layout: Layout::RowsFirst, ..form };
        form.check()?;
        DevicePackedAttention::new(device, form, rotation, schedule, lengths)
    }

    fn packed_on_cpu(self, lengths: &Lengths) -> Result<Runner> {
        let shape = *self.shape();
        let sinks = (0..shape.heads).map(|head| self.sink(head)).collect();
        let mut known: HashMap<(usize, usize), Arc<Attention>> = HashMap::new();
        let mut attentions = Vec::with_capacity(lengths.sequences());
        for (rows, keys) in lengths.each() {
            let (rows, keys) = (rows.len(), keys.len());
            if rows == 0 || keys == 0 {
                attentions.push(None);
                continue;
            }
            let attention = match known.get(&(rows, keys)) {
                Some(attention) => attention.clone(),
                None => {
                    let builder = self.clone().reshaped(Shape { batch: 1, rows, keys, ..shape });
                    Arc::new(builder.layout(Layout::RowsFirst).build(&Target::Cpu)?)
                }
            };
            known.insert((rows, keys), attention.clone());
            attentions.push(Some(attention));
        }
        Ok(Runner::Cpu { sinks, attentions })
    }
}

impl PackedAttention {
    /// The sequences it was built for.
    pub fn lengths(&self) -> &Lengths {
        &self.lengths
    }

    /// `softmax(scale q k^T + mask) v` of every sequence, in the format of the inputs.
    pub fn forward<T: Element>(&self, q: &[T], k: &[T], v: &[T]) -> Result<Vec<T>> {
        Ok(self.forward_to(q, k, v)?.o)
    }

    /// The same in a format of one's own, with the log-sum-exp of every row, `[heads, rows]`.
    pub fn forward_to<O: Element, T: Element>(&self, q: &[T], k: &[T], v: &[T]) -> Result<Output<O>> {
        let (query, key, value) =
            (self.heads * self.dim, self.key_heads * self.dim, self.key_heads * self.value_dim);
        let (rows, keys) = (self.lengths.rows(), self.lengths.keys());
        let found = [("q", q.len(), rows * query), ("k", k.len(), keys * key), ("v", v.len(), keys * value)];
        for (tensor, found, needed) in found {
            if found != needed {
                return Err(Error::Length { tensor, found, needed });
            }
        }
        let (sinks, attentions) = match &self.runner {
            Runner::Cpu { sinks, attentions } => (sinks, attentions),
            Runner::Device(device) => return device.forward([q, k, v]),
        };
        let sequences: Vec<Sequence<'_>> = self.lengths.each().zip(attentions).collect();
        let attend = |((rows, keys), attention): &Sequence<'_>| {
            let Some(attention) = attention else {
                return Ok(without_keys(sinks.iter().copied(), rows.len(), self.value_dim));
            };
            let queries = &q[rows.start * query..rows.end * query];
            let (k, v) = (&k[keys.start * key..keys.end * key], &v[keys.start * value..keys.end * value]);
            attention.forward_to(queries, k, v).map(|Output { o, lse }| (o, lse))
        };
        let parts: Vec<Part<O>> = sequences.par_iter().map(attend).collect::<Result<_>>()?;
        Ok(joined(self.heads, &parts))
    }
}

/// What rows that see no key give, of heads with these sinks.
pub(crate) fn without_keys<O: Element>(
    sinks: impl ExactSizeIterator<Item = f32>,
    rows: usize,
    dim: usize,
) -> Part<O> {
    let o = vec![O::from_f32(0.0); rows * sinks.len() * dim];
    (o, sinks.flat_map(|sink| vec![sink; rows]).collect())
}

/// The parts, one after the other; the log-sum-exps head by head.
pub(crate) fn joined<O: Element>(heads: usize, parts: &[Part<O>]) -> Output<O> {
    let o = parts.iter().flat_map(|(o, _)| o.iter().copied()).collect();
    let of_head = |head: usize| {
        parts.iter().flat_map(move |(_, lse)| {
            let rows = lse.len() / heads;
            lse[head * rows..(head + 1) * rows].iter().copied()
        })
    };
    Output { o, lse: (0..heads).flat_map(of_head).collect() }
}
