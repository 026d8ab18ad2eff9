//! The transcript on the device, while FRI is committed to: no challenge waits for the host.

use gatework_gpu::{Code as _, Grid, args};
use stwo::core::channel::MerkleChannel;
use stwo::core::fields::qm31::SecureField;
use stwo::core::vcs::blake2_hash::Blake2sHash;
use stwo::core::vcs_lifted::blake2_merkle::Blake2sMerkleChannelGeneric;
use stwo::prover::backend::Column as _;
use stwo::prover::secure_column::SecureColumnByCoords;

use crate::backend::CudaBackend;
use crate::column::{DeviceColumn, Element as _};
use crate::cuda::fri::Challenge;
use crate::cuda::merkle::SecureTree;
use crate::cuda::{Runs, gather};
use crate::kernels;
use crate::queue::Queue;
use crate::shared::DigestWords;

/// Channels whose transcript a device can continue: those of Blake2s.
pub trait DeviceChannel: MerkleChannel {
    /// What the words of its digests are.
    const WORDS: DigestWords;

    /// The channel's digest.
    fn digest(channel: &Self::C) -> Blake2sHash;

    /// Goes on from a digest, as after mixing something in.
    fn set_digest(channel: &mut Self::C, digest: Blake2sHash);
}

impl<const IS_M31_OUTPUT: bool> DeviceChannel for Blake2sMerkleChannelGeneric<IS_M31_OUTPUT> {
    const WORDS: DigestWords = DigestWords::of(IS_M31_OUTPUT);

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
    digest: DeviceColumn<Blake2sHash>,
    form: DigestWords,
}

impl Transcript {
    /// Goes on from where `channel` is.
    pub(super) fn of<MC: DeviceChannel>(queue: &Queue, channel: &MC::C) -> Self {
        let mut words = Vec::new();
        MC::digest(channel).write(&mut words);
        Self { queue: queue.clone(), digest: DeviceColumn::from_words(queue, &words), form: MC::WORDS }
    }

    /// Takes a root in and draws a challenge.
    pub(super) fn draw(&mut self, root: &DeviceColumn<Blake2sHash>) -> Challenge {
        let mut alpha = self.queue.alloc::<[u32; 4]>(1);
        let arguments = args![self.digest.words_mut(), root.words(&self.queue), &mut alpha, self.form.code()];
        self.queue.launch(&kernels::FRI, "draw_challenge", &Grid::new([1; 3], [1; 3]), &arguments);
        alpha
    }

    /// Hashes a tree above its leaves, takes its root in and draws a challenge.
    pub(super) fn draw_by(&mut self, tree: &mut SecureTree) -> Challenge {
        let mut alpha = self.queue.alloc::<[u32; 4]>(1);
        tree.finish(&self.queue, &mut self.digest, &mut alpha, self.form);
        alpha
    }

    pub(super) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// What the words of digests are.
    pub(super) fn form(&self) -> DigestWords {
        self.form
    }

    /// The digest, to go on from.
    pub(super) fn digest_mut(&mut self) -> &mut DeviceColumn<Blake2sHash> {
        &mut self.digest
    }

    /// Brings `channel` to where this is, and reads `values` on the way. Something is mixed in next: how much was drawn since
    /// the last root is not kept.
    pub(super) fn finish<MC: DeviceChannel>(
        self,
        channel: &mut MC::C,
        values: &SecureColumnByCoords<CudaBackend>,
    ) -> Vec<SecureField> {
        let rows = values.columns[0].len();
        let wanted = (0..rows).flat_map(|row| values.columns.each_ref().map(|column| (column, row)));
        let queue = &self.queue;
        let runs = [Runs::of(queue, &[(&self.digest, 0)]), Runs::of(queue, &wanted.collect::<Vec<_>>())];
        let [digest, values] = gather(queue, runs);
        MC::set_digest(channel, Blake2sHash::read(&digest));
        values.chunks_exact(SecureField::WORDS).map(SecureField::read).collect()
    }
}
