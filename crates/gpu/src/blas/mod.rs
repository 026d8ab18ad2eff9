//! Products of matrices by cuBLASLt, in the order of our streams. Behind the feature `blas`.
//!
//! ```no_run
//! use gatework_gpu::blas::{Blas, Product};
//! use gatework_gpu::Device;
//! let device = Device::open("cuda")?;
//! let stream = device.stream()?;
//! let (a, b) = (stream.upload(&vec![1.0f32; 6])?, stream.upload(&vec![2.0f32; 12])?);
//! let mut c = stream.alloc_zeros::<f32>(8)?;
//! let blas = Blas::new(&stream)?;
//! // c (2 x 4) <- a (2 x 3) b (3 x 4)
//! blas.multiply(&stream, &Product::new(2, 4, 3), &a, &b, &mut c)?;
//! assert_eq!(stream.download(&c)?, [6.0; 8]);
//! # Ok::<(), gatework_gpu::Error>(())
//! ```

mod product;

use std::collections::HashMap;

pub use product::{BlasElement, E4m3, E5m2, Left, Pick, Product, Right, reference};

use crate::buffer::{Buffer, View, ViewMut};
use crate::cuda::blas::{Handle, Matmul, Plan};
use crate::locked::Locked;
use crate::order::Access;
use crate::{Device, Error, Result, Stream};

/// Bytes that cuBLASLt may work in: what NVIDIA recommends for Hopper.
pub const WORKSPACE: usize = 32 << 20;

/// cuBLASLt on one device, with its workspace and the plans that it has made. Products on several streams
/// share the workspace, and so run one after another: make one of these for each stream that should run
/// beside others.
pub struct Blas {
    plans: Locked<HashMap<Matmul, Plan>>,
    /// After the plans that were made with it, and before what keeps its context.
    handle: Handle,
    workspace: Locked<Buffer<u8>>,
    device: Device,
}

impl Blas {
    /// Finds the library and takes a workspace of 32 MiB in the order of `stream`. Fails with a sentence
    /// where the library is missing, and on the emulated device.
    pub fn new(stream: &Stream) -> Result<Self> {
        let device = stream.device().clone();
        device.driver().enter("cuBLASLt")?;
        let handle = Handle::new()?;
        let workspace = Locked::new(stream.alloc::<u8>(WORKSPACE)?);
        Ok(Self { device, plans: Locked::default(), workspace, handle })
    }

    /// The library's version, as 130001.
    pub fn version(&self) -> usize {
        self.handle.version()
    }

    /// Queues `c <- alpha a b + beta c`, with `c` row by row and factors as the product says, summed in f32. `a`, `b` and `c` have `m k`,
    /// `k n` and `m n` elements. Types that the library does not multiply, or sizes that it does not (those
    /// of 8-bit types are multiples of 16), are an error that says so.
    pub fn multiply<A: BlasElement, B: BlasElement, C: BlasElement>(
        &self,
        stream: &Stream,
        product: &Product,
        a: &impl View<A>,
        b: &impl View<B>,
        c: &mut impl ViewMut<C>,
    ) -> Result<()> {
        const CALL: &str = "Blas::multiply";
        let (a, b, c) = (a.view(), b.view(), c.view_mut().into_slice());
        product.check([a.len(), b.len(), c.len()])?;
        for device in [stream.device(), a.device(), b.device(), c.device()] {
            self.device.require_same(device, CALL)?;
        }
        if product.is_empty() {
            return Ok(());
        }
        let driver = self.device.driver();
        driver.enter("cuBLASLt")?;
        let pointers = [a.pointer().0, b.pointer().0, c.pointer().0];
        let sizes = [product.m, product.n, product.k];
        let types = [A::TYPE, B::TYPE, C::TYPE];
        let matmul = Matmul::of(types, sizes, product.layouts(), product.splits_sums(), pointers);
        let workspace = self.workspace.lock();
        let mut plans = self.plans.lock();
        if !plans.contains_key(&matmul) {
            let plan = Plan::new(&self.handle, &matmul, workspace.len())?;
            plans.insert(matmul.clone(), plan);
        }
        let plan = plans.get(&matmul).ok_or_else(|| Error::Blas { message: "a plan is gone".into() })?;
        let uses = [
            a.used(Access::Read),
            b.used(Access::Read),
            c.used(Access::Write),
            workspace.view().used(Access::Write),
        ];
        stream.queue_retained(&uses, || {
            // SAFETY: the lengths were checked against the sizes of the plan, everything is of this device,
            // whose context is current, and stays until the stream has passed the product.
            unsafe {
                plan.run(
                    &self.handle,
                    (product.alpha, product.beta),
                    pointers,
                    (workspace.view().pointer().0, workspace.len()),
                    stream.as_raw(),
                )
            }
        })
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        // What the library holds belongs to the context.
        if let Err(error) = self.device.driver().enter("cuBLASLt") {
            tracing::warn!("{error}");
        }
    }
}

impl std::fmt::Debug for Blas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Blas({:?})", self.device)
    }
}
