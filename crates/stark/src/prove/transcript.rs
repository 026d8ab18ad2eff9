//! The transcript while FRI is committed to: on the device, so that no challenge waits for the host, or with
//! the host.

use gatework_gpu::{Code as _, Grid, args};
use stwo::core::channel::{Channel as _, MerkleChannel};
use stwo::core::fields::qm31::SecureField;
use stwo::core::vcs_lifted::blake2_merkle::Blake2sMerkleChannelGeneric;
use stwo::core::vcs_lifted::merkle_hasher::MerkleHasherLifted;
use stwo::core::vcs_lifted::poseidon252_merkle::Poseidon252MerkleChannel;
use stwo::prover::backend::Column as _;
use stwo::prover::secure_column::SecureColumnByCoords;

use crate::backend::CudaBackend;
use crate::column::DeviceColumn;
use crate::cuda::fri::Challenge;
use crate::cuda::merkle::SecureTree;
use crate::cuda::{Runs, gather, words};
use crate::element::Element;
use crate::kernels;
use crate::queue::Queue;
use crate::shared::DigestWords;

/// The digests of a channel's trees, and of its transcript.
pub type Digest<MC> = <<MC as MerkleChannel>::H as MerkleHasherLifted>::Hash;

/// Channels that [`prove`](crate::prove()) knows: those of Blake2s, and Poseidon252.
pub trait DeviceChannel: MerkleChannel<H: MerkleHasherLifted<Hash: Element>> {
    /// What the words of its digests are, if the device goes on with its transcript from layer to layer of
    /// FRI. None if the host does, which is the faster one with Poseidon252: a core takes less time for its
    /// few permutations than a thread of a GPU, and what it costs is a wait.
    const WORDS: Option<DigestWords>;

    /// The channel's digest.
    fn digest(channel: &Self::C) -> Digest<Self>;

    /// Goes on from a digest, as after mixing something in.
    fn set_digest(channel: &mut Self::C, digest: Digest<Self>);
}

impl<const IS_M31_OUTPUT: bool> DeviceChannel for Blake2sMerkleChannelGeneric<IS_M31_OUTPUT> {
    const WORDS: Option<DigestWords> = Some(DigestWords::of(IS_M31_OUTPUT));

    fn digest(channel: &Self::C) -> Digest<Self> {
        channel.digest()
    }

    fn set_digest(channel: &mut Self::C, digest: Digest<Self>) {
        channel.update_digest(digest);
    }
}

impl DeviceChannel for Poseidon252MerkleChannel {
    const WORDS: Option<DigestWords> = None;

    fn digest(channel: &Self::C) -> Digest<Self> {
        channel.digest()
    }

    fn set_digest(channel: &mut Self::C, digest: Digest<Self>) {
        channel.update_digest(digest);
    }
}

/// Takes a root in and draws a challenge, on the host.
pub(super) fn draw_on_host<MC: DeviceChannel>(
    queue: &Queue,
    channel: &mut MC::C,
    root: &DeviceColumn<Digest<MC>>,
) -> Challenge {
    MC::mix_root(channel, root.at(0));
    queue.upload(&[words(channel.draw_secure_felt())])
}

/// A channel's digest in device memory.
pub(super) struct Transcript<T> {
    queue: Queue,
    digest: DeviceColumn<T>,
    form: DigestWords,
}

impl<T: Element> Transcript<T> {
    /// Goes on from where `channel` is; the words of its digests are of this form.
    pub(super) fn of<MC: DeviceChannel<H: MerkleHasherLifted<Hash = T>>>(
        queue: &Queue,
        channel: &MC::C,
        form: DigestWords,
    ) -> Self {
        let mut words = Vec::new();
        MC::digest(channel).write(&mut words);
        Self { queue: queue.clone(), digest: DeviceColumn::from_words(queue, &words), form }
    }

    /// Takes a root in and draws a challenge.
    pub(super) fn draw(&mut self, root: &DeviceColumn<T>) -> Challenge {
        let mut alpha = self.queue.alloc::<[u32; 4]>(1);
        let arguments = args![self.digest.words_mut(), root.words(&self.queue), &mut alpha, self.form.code()];
        self.queue.launch(&kernels::FRI, "draw_challenge", &Grid::new([1; 3], [1; 3]), &arguments);
        alpha
    }

    /// Hashes a tree above its leaves, takes its root in and draws a challenge.
    pub(super) fn draw_by(&mut self, tree: &mut SecureTree<T>) -> Challenge {
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
    pub(super) fn digest_mut(&mut self) -> &mut DeviceColumn<T> {
        &mut self.digest
    }

    /// Brings `channel` to where this is, and reads `values` on the way. Something is mixed in next: how much
    /// was drawn since the last root is not kept.
    pub(super) fn finish<MC: DeviceChannel<H: MerkleHasherLifted<Hash = T>>>(
        self,
        channel: &mut MC::C,
        values: &SecureColumnByCoords<CudaBackend>,
    ) -> Vec<SecureField> {
        let rows = values.columns[0].len();
        let wanted = (0..rows).flat_map(|row| values.columns.each_ref().map(|column| (column, row)));
        let queue = &self.queue;
        let runs = [Runs::of(queue, &[(&self.digest, 0)]), Runs::of(queue, &wanted.collect::<Vec<_>>())];
        let [digest, values] = gather(queue, runs);
        MC::set_digest(channel, T::read(&digest));
        values.chunks_exact(SecureField::WORDS).map(SecureField::read).collect()
    }
}
