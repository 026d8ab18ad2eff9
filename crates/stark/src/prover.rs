//! Proofs on a target: by kernels on a device or several, by `SimdBackend` on the CPU.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use gatework_gpu::{Device, Locked, Observer, Target};
use stwo::core::channel::MerkleChannel;
use stwo::core::pcs::PcsConfig;
use stwo::core::vcs_lifted::blake2_merkle::Blake2sMerkleChannel;
use stwo::prover::backend::simd::SimdBackend;

use crate::airs::{self, Air, Input, Proved, ProvesWith};
use crate::{Context, CudaBackend, Plan, Result, Tier};

/// Proves [`Air`]s on one target, with the same bytes on each.
///
/// On a device it makes one proof at a time, each of which has the memory that is free then: of two threads
/// that share a prover, one waits. [`Provers`](crate::Provers) makes many at once.
///
/// ```
/// use gatework_gpu::Target;
/// use gatework_stark::{Prover, airs};
/// use stwo::core::pcs::PcsConfig;
///
/// let air = airs::WideFibonacci { log_rows: 5, columns: 8 };
/// let prover = Prover::builder().build(&Target::open("cpu")?)?;
/// let proved = prover.prove(&air, PcsConfig::default())?;
/// assert!(airs::verify(&air, PcsConfig::default(), proved).is_ok());
/// # Ok::<(), gatework_stark::Error>(())
/// ```
pub struct Prover {
    backend: Backend,
    observer: Arc<dyn Observer>,
}

/// Who computes.
enum Backend {
    /// stwo's own vectorised backend, on all cores.
    Simd,
    /// This crate's kernels.
    Cuda(OnDevices),
}

/// A context, and whose turn it is there.
struct OnDevices {
    context: Context,
    /// The first is the context's.
    devices: Vec<Device>,
    /// Held for a proof: the way that its plan chose is the context's until it is done.
    turn: Locked<()>,
}

impl OnDevices {
    /// Has `body` prove in the context, when it is its turn, with columns where `plan` has them.
    fn prove<R: Send>(&self, plan: &Plan, body: impl FnOnce() -> R + Send) -> Result<R> {
        let prove = || {
            let _turn = self.turn.lock();
            let _pages = match &self.devices[..] {
                [device] => self.context.follow(&plan.way(device)?),
                several => {
                    plan.check_over(several)?;
                    None
                }
            };
            self.context.scope(body)
        };
        // A thread of another pool of rayon takes up other work there while it waits. That may be a proof by
        // this prover, which would wait for the thread's own.
        if rayon::current_thread_index().is_none() {
            return prove();
        }
        let done = thread::scope(|scope| scope.spawn(prove).join());
        done.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// Builds a [`Prover`].
pub struct Builder {
    observer: Arc<dyn Observer>,
    tier: Option<Tier>,
}

impl Builder {
    /// Who is told of the stages of a proof. Default: nobody.
    pub fn observer(self, observer: Arc<dyn Observer>) -> Self {
        Self { observer, ..self }
    }

    /// How constraints are evaluated on a device. Default: generated on CUDA, interpreted on the emulated
    /// device.
    pub fn tier(self, tier: Tier) -> Self {
        Self { tier: Some(tier), ..self }
    }

    /// Opens a stream on the device; on the CPU there is nothing to open.
    pub fn build(self, target: &Target) -> Result<Prover> {
        match target {
            Target::Cpu => Ok(Prover { backend: Backend::Simd, observer: self.observer }),
            Target::Gpu(device) => self.build_over(std::slice::from_ref(device)),
        }
    }

    /// Opens a stream on each of several devices, which make each proof together
    /// ([`Context::over`](crate::Context::over)).
    pub fn build_over(self, devices: &[Device]) -> Result<Prover> {
        let context = Context::over(devices)?;
        context.watch(self.observer.clone());
        if let Some(tier) = self.tier {
            context.set_tier(tier);
        }
        let on_devices = OnDevices { context, devices: devices.to_vec(), turn: Locked::default() };
        Ok(Prover { backend: Backend::Cuda(on_devices), observer: self.observer })
    }
}

impl Prover {
    /// Starts with nobody who is told of stages.
    pub fn builder() -> Builder {
        Builder { observer: Arc::new(()), tier: None }
    }

    /// Makes the trace of `air` and proves it with stwo's Blake2s channel. Columns that do not fit into a
    /// device's memory are streamed from the host's, as [`Plan::way`](crate::Plan::way) says beforehand; over
    /// several devices they are not, and [`Plan::shares`](crate::Plan::shares) says what each must have. What
    /// stwo cannot prove, and what does not fit into device memory even so, is refused before anything is made.
    /// Memory of the host is asked for as the proof goes; [`Plan::host_bytes`](crate::Plan::host_bytes) says
    /// how much.
    pub fn prove<A: Air>(&self, air: &A, config: PcsConfig) -> Result<Proved> {
        self.prove_with::<Blake2sMerkleChannel, A>(air, config)
    }

    /// As [`Prover::prove`], with any channel, as `Poseidon252MerkleChannel`, whose proofs are cheap to
    /// verify in a proof.
    pub fn prove_with<MC: MerkleChannel, A: Air>(&self, air: &A, config: PcsConfig) -> Result<Proved<MC::H>>
    where
        SimdBackend: ProvesWith<MC>,
        CudaBackend: ProvesWith<MC>,
    {
        airs::require_provable(air, config)?;
        match &self.backend {
            Backend::Simd => {
                let input = {
                    let _stage = self.observer.stage("trace");
                    Input::<SimdBackend>::new(air, config)
                };
                let _stage = self.observer.stage("proof");
                airs::prove_with::<MC, _, _>(air, config, input)
            }
            Backend::Cuda(on_devices) => {
                let plan = <CudaBackend as ProvesWith<MC>>::plan(airs::plan(air, config));
                on_devices.prove(&plan, || {
                    let input = {
                        let _stage = self.observer.stage("trace");
                        Input::<CudaBackend>::new(air, config)
                    };
                    airs::prove_with::<MC, _, _>(air, config, input)
                })?
            }
        }
    }
}
