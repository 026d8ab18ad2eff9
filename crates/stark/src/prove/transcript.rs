//! The transcript on the device, while FRI is committed to: no challenge waits for the host.

use gatework_gpu::{Buffer, Grid, args};
use stwo::core::channel::MerkleChannel;
use stwo::core::vcs::blake2_hash::Blake2sHash;
use stwo::core::vcs_lifted::blake2_merkle::Blake2sMerkleChannelGeneric;

use crate::column::{DeviceColumn, Element as _};
use crate::cuda::fri::Challenge;
use crate::error::OrRaise as _;
use crate::kernels;
use crate::queue::Queue;

/// Channels whose transcript a device can continue: those of Blake2s.
pub trait DeviceChannel: MerkleChannel {
    /// Whether words of digests are reduced modulo the prime.
    const REDUCED: bool;

    /// The channel's digest.
    fn digest(channel: &Self::C) -> Blake2sHash;

    /// Goes on from a digest, as after mixing something in.
    fn set_digest(channel: &mut Self::C, digest: Blake2sHash);
}

impl<const IS_M31_OUTPUT: bool> DeviceChannel for Blake2sMerkleChannelGeneric<IS_M31_OUTPUT> {
    const REDUCED: bool = IS_M31_OUTPUT;

    fn digest(channel: &Self::C) -> Blake2sHash {
        channel.digest()
    }

    fn set_digest(channel: &mut Self::C, digest: Blake2sHash) {
        channel.update_digest(digest);
    }
}

/// A channel's digest in device memory.
pub(super) struct Transcript {
    queue: Queue,
    digest: Buffer<u32>,
    reduced: bool,
}

impl Transcript {
    /// Goes on from where `channel` is.
    pub(super) fn of<MC: DeviceChannel>(queue: &Queue, channel: &MC::C) -> Self {
        let mut words = Vec::new();
        MC::digest(channel).write(&mut words);
        Self { queue: queue.clone(), digest: queue.upload(&words), reduced: MC::REDUCED }
    }

    /// Takes a root in and draws a challenge.
    pub(super) fn draw(&mut self, root: &DeviceColumn<Blake2sHash>) -> Challenge {
        let mut alpha = self.queue.alloc::<[u32; 4]>(1);
        let arguments = args![&mut self.digest, root.words(&self.queue), &mut alpha, u32::from(self.reduced)];
        self.queue.launch(&kernels::FRI, "draw_challenge", &Grid::new([1; 3], [1; 3]), &arguments);
        alpha
    }

    /// The queue, the digest, and whether digests are reduced: for a kernel that draws itself.
    pub(super) fn parts(&mut self) -> (&Queue, &mut Buffer<u32>, u32) {
        (&self.queue, &mut self.digest, u32::from(self.reduced))
    }

    /// Brings `channel` to where this is. Something is mixed in next: how much was drawn since the last root is not kept.
    pub(super) fn finish<MC: DeviceChannel>(self, channel: &mut MC::C) {
        let words = self.queue.stream().download(&self.digest).or_raise();
        MC::set_digest(channel, Blake2sHash::read(&words));
    }
}
