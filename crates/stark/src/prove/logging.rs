//! stwo's channels that write down what goes in and out.

use stwo::core::channel::Channel;
use stwo::core::proof_of_work::GrindOps;
use stwo::prover::channel::logging_channel::{LoggingChannel, LoggingMerkleChannel};

use super::transcript::{DeviceChannel, Digest};
use crate::backend::CudaBackend;
use crate::shared::DigestWords;

impl<C: Channel> GrindOps<LoggingChannel<C>> for CudaBackend
where
    CudaBackend: GrindOps<C>,
{
    fn grind(channel: &LoggingChannel<C>, pow_bits: u32) -> u64 {
        let nonce = <Self as GrindOps<C>>::grind(&channel.channel, pow_bits);
        tracing::debug!("Grind result: {nonce}");
        nonce
    }
}

/// While FRI is committed to, the transcript of Blake2s is on the device: what is mixed in and drawn there is
/// not written down.
impl<MC: DeviceChannel> DeviceChannel for LoggingMerkleChannel<MC> {
    const WORDS: Option<DigestWords> = MC::WORDS;

    fn digest(channel: &Self::C) -> Digest<Self> {
        MC::digest(&channel.channel)
    }

    fn set_digest(channel: &mut Self::C, digest: Digest<Self>) {
        MC::set_digest(&mut channel.channel, digest);
    }
}
