//! The memory of an attention.

use std::sync::Arc;

use gatework_gpu::{Buffer, Stream};

use super::{DeviceAttention, KEY_TILE, QUERY_TILE, value_group};
use crate::shared::{SUM_ROWS, Span};
use crate::{Result, Shape};

/// Quantised queries, keys and values as tile images, and the row log-sum-exp: all the memory an attention
/// needs besides its inputs and output.
#[derive(Debug)]
pub struct Workspace {
    /// The identity of the attention that it was made by.
    pub(super) owner: Arc<()>,
    pub(super) images: Images,
    pub(super) lse: Buffer<f32>,
    /// Who works on what, where blocks have several items; else a word that nobody reads.
    pub(super) lists: Buffer<u32>,
    /// Entries of all lists, or the number of items.
    pub(super) items: usize,
    /// What parts of the keys give, where there are several.
    pub(super) parts: Option<PartsOfKeys>,
    /// Stands for scales that inputs have not.
    pub(super) no_scales: Buffer<f32>,
}

/// What the quantiser makes and the attention kernel reads, and the sinks.
#[derive(Debug)]
pub(super) struct Images {
    pub(super) q: Buffer<u8>,
    pub(super) k: Buffer<u8>,
    pub(super) v: Buffer<u8>,
    pub(super) q_scales: Buffer<f32>,
    pub(super) k_scales: Buffer<f32>,
    pub(super) v_scales: Buffer<f32>,
    /// What is not finite: a byte a row of queries and of keys, a word a column of a tile of values.
    pub(super) q_marks: Buffer<u8>,
    pub(super) k_marks: Buffer<u8>,
    pub(super) v_marks: Buffer<u32>,
    /// The sinks' logits, or a word that nobody reads.
    pub(super) sinks: Buffer<f32>,
    /// Stands for the list of tiles that only packed sequences have.
    pub(super) no_spans: Buffer<Span>,
}

/// Outputs and log-sum-exps of attention over parts of the keys.
#[derive(Debug)]
pub(super) struct PartsOfKeys {
    pub(super) outputs: Buffer<f32>,
    pub(super) lse: Buffer<f32>,
}

impl Workspace {
    pub(super) fn new(attention: &DeviceAttention, stream: &Stream) -> Result<Self> {
        let Shape { batch, heads, key_heads, rows, .. } = attention.form.shape;
        let (schedule, known) = (attention.schedule, attention.known);
        let (width, value_width) = (known.dim, known.value_dim);
        let query_tiles = batch * heads * attention.query_tiles();
        let key_tiles = batch * key_heads * attention.key_tiles();
        let value_groups =
            batch * key_heads * attention.key_tiles().div_ceil(value_group(attention.form.shape.keys));
        let lists =
            schedule.lists(known, &attention.form.shape, attention.form.mask, attention.device.properties());
        let mask = attention.form.mask;
        let splits = schedule.splits(&attention.form.shape, mask);
        let parts = if splits > 1 {
            let outputs = stream.alloc(splits * attention.form.shape.output_elements())?;
            Some(PartsOfKeys { outputs, lse: stream.alloc(splits * batch * heads * rows)? })
        } else {
            None
        };
        let images = Images {
            q: stream.alloc(query_tiles * QUERY_TILE * width)?,
            k: stream.alloc(key_tiles * KEY_TILE * width)?,
            v: stream.alloc(key_tiles * KEY_TILE * (value_width + SUM_ROWS as usize))?,
            q_scales: stream.alloc(query_tiles)?,
            k_scales: stream.alloc(key_tiles)?,
            v_scales: stream.alloc(value_groups)?,
            q_marks: stream.alloc(query_tiles * QUERY_TILE)?,
            k_marks: stream.alloc(key_tiles * KEY_TILE)?,
            v_marks: stream.alloc(key_tiles * value_width)?,
            sinks: match &attention.form.sinks {
                Some(sinks) => stream.upload(sinks)?,
                None => stream.alloc(1)?,
            },
            no_spans: stream.alloc(1)?,
        };
        Ok(Self {
            owner: attention.identity.clone(),
            images,
            lse: stream.alloc(batch * heads * rows)?,
            items: if lists.is_empty() { schedule.items(&attention.form.shape, mask) } else { lists.len() },
            lists: if lists.is_empty() { stream.alloc(1)? } else { stream.upload(&lists)? },
            parts,
            no_scales: stream.alloc(1)?,
        })
    }

    /// Log-sum-exp of every query row, `[batch, heads, rows]`, natural logarithm.
    pub fn lse(&self) -> &Buffer<f32> {
        &self.lse
    }
}
