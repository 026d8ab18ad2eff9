//! Linear combinations of snapshots.

use gatework_gpu::{Buffer, Grid, Stream, args};

use super::kernels;
use super::segments::require;
use super::shared::REDUCE_THREADS;
use crate::error::{Error, Result};

/// Snapshots of all parameters in one array on the device, in places that are used again.
#[derive(Debug)]
pub struct Snapshots {
    places: usize,
    parameters: usize,
    /// Rows begin at multiples of 16 bytes.
    stride: usize,
    rows: Buffer<f32>,
    taken: Vec<bool>,
}

impl Snapshots {
    /// Room for so many snapshots of so many parameters.
    pub fn new(stream: &Stream, places: usize, parameters: usize) -> Result<Self> {
        if places == 0 || parameters == 0 {
            return Err(Error::shape(format!(
                "room for {places} snapshots of {parameters} parameters: both start at 1"
            )));
        }
        let stride = parameters.next_multiple_of(4);
        let length = places.checked_mul(stride).ok_or_else(|| {
            Error::shape(format!(
                "{places} snapshots of {parameters} parameters are more than can be counted"
            ))
        })?;
        Ok(Self { places, parameters, stride, rows: stream.alloc(length)?, taken: vec![false; places] })
    }

    /// Keeps a copy of `weights` in a place.
    pub fn take(&mut self, stream: &Stream, place: usize, weights: &Buffer<f32>) -> Result<()> {
        require("weights", weights.len(), self.parameters)?;
        let Some(taken) = self.taken.get_mut(place) else {
            return Err(Error::shape(format!(
                "place {place} of {} snapshots: they count from 0",
                self.places
            )));
        };
        let from = place * self.stride;
        stream.copy(weights, &mut self.rows.slice_mut(from..from + self.parameters))?;
        *taken = true;
        Ok(())
    }

    /// `to ← Σ factor · snapshot` over the first snapshots, one a factor, added up in their order.
    pub fn combine(&self, stream: &Stream, factors: &[f32], to: &mut Buffer<f32>) -> Result<()> {
        require("to", to.len(), self.parameters)?;
        if factors.is_empty() || factors.len() > self.places {
            return Err(Error::shape(format!("{} factors for {} snapshots", factors.len(), self.places)));
        }
        if let Some(missing) = self.taken[..factors.len()].iter().position(|taken| !taken) {
            return Err(Error::shape(format!(
                "snapshot {missing} was not taken: take it, or leave out its factor"
            )));
        }
        let coefficients = stream.upload(factors)?;
        let kernel = stream.device().kernel_of(&kernels::combine(), "combine")?;
        let arguments = args![
            &self.rows,
            &coefficients,
            to,
            self.stride as u64,
            factors.len() as u32,
            self.parameters as u64
        ];
        kernel.launch(stream, &Grid::covering(self.parameters.div_ceil(4), REDUCE_THREADS), &arguments)?;
        Ok(())
    }
}
