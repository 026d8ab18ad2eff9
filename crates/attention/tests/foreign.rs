//! Attention over memory and on a stream that belong to somebody else.

use std::error::Error;
use std::sync::Arc;

use cudarc::driver::{CudaContext, DevicePtr as _, DevicePtrMut as _};
use gatework_attention::{Attention, Mask, Result, Shape};
use gatework_gpu::{Buffer, Device, Stream, Target};
use gatework_lab::Inputs;

const SHAPE: Shape = Shape { batch: 1, heads: 2, key_heads: 1, rows: 70, keys: 140, dim: 64, value_dim: 64 };

fn inputs() -> [Vec<f32>; 3] {
    let mut inputs = Inputs::new(4);
    [SHAPE.query_elements(), SHAPE.key_elements(), SHAPE.key_elements()].map(|count| inputs.normal(count))
}

/// Attends on a stream of somebody else's, from and to memory of somebody else's.
///
/// # Safety
/// As for [`Stream::from_raw`] and [`Buffer::from_raw`]; the addresses hold the tensors of `SHAPE` in f32.
unsafe fn attend<S: Clone + Send + Sync + 'static>(
    device: &Device,
    raw: *mut std::ffi::c_void,
    owner: S,
    [q, k, v, o]: [u64; 4],
) -> Result<()> {
    let (queries, keys) = (SHAPE.query_elements(), SHAPE.key_elements());
    // SAFETY: the caller's promise.
    let (stream, [q, k, v], mut o) = unsafe {
        let stream = Stream::from_raw(device, raw, owner)?;
        let q = Buffer::<f32>::from_raw(&stream, q, queries, ())?;
        let k = Buffer::<f32>::from_raw(&stream, k, keys, ())?;
        let v = Buffer::<f32>::from_raw(&stream, v, keys, ())?;
        (stream.clone(), [q, k, v], Buffer::<f32>::from_raw(&stream, o, queries, ())?)
    };
    let attention = Attention::builder(SHAPE).mask(Mask::Causal).build_on(device)?;
    let mut workspace = attention.workspace(&stream)?;
    attention.forward(&stream, &mut workspace, [&q, &k, &v], &mut o)
}

/// The same with streams and memory of our own.
fn wanted(device: Device) -> Result<Vec<f32>> {
    let [q, k, v] = inputs();
    Attention::builder(SHAPE).mask(Mask::Causal).build(&Target::Gpu(device))?.forward(&q, &k, &v)
}

#[test]
fn lent_tensors_give_the_same_bits_on_the_emulated_device() -> Result<()> {
    let device = Device::emulated(5)?;
    let theirs = device.stream()?;
    let [q, k, v] = inputs();
    let tensors = [theirs.upload(&q)?, theirs.upload(&k)?, theirs.upload(&v)?];
    let o = theirs.alloc::<f32>(SHAPE.query_elements())?;
    let [q, k, v] = tensors.each_ref().map(|tensor| tensor.as_raw());
    let owner = Arc::new(theirs.clone());
    // SAFETY: the buffers outlive what is queued, and all of it is queued on their one stream.
    unsafe { attend(&device, theirs.as_raw(), owner.clone(), [q, k, v, o.as_raw()])? };
    assert_eq!(Arc::strong_count(&owner), 1, "nothing is left of the loan");
    assert_eq!(theirs.download(&o)?, wanted(device)?);
    Ok(())
}

#[test]
#[ignore = "needs an NVIDIA GPU: run it there with --ignored"]
fn lent_tensors_of_cudarc_give_the_same_bits() -> Result<(), Box<dyn Error>> {
    let device = Device::open("cuda:0")?;
    let wanted = wanted(device.clone())?;
    let context = CudaContext::new(0)?;
    // A stream of their own, and the null stream, which candle uses unless told otherwise.
    for theirs in [context.new_stream()?, context.default_stream()] {
        let [q, k, v] = inputs();
        let [q, k, v] = [theirs.clone_htod(&q)?, theirs.clone_htod(&k)?, theirs.clone_htod(&v)?];
        let mut o = theirs.alloc_zeros::<f32>(SHAPE.query_elements())?;
        {
            let [(q, _q), (k, _k), (v, _v)] = [&q, &k, &v].map(|tensor| tensor.device_ptr(&theirs));
            let (o, _o) = o.device_ptr_mut(&theirs);
            // SAFETY: the tensors outlive what is queued, and all of it is queued on their one stream.
            unsafe { attend(&device, theirs.cu_stream().cast(), theirs.clone(), [q, k, v, o])? };
        }
        assert_eq!(theirs.clone_dtoh(&o)?, wanted);
    }
    // SAFETY: refused, so never used.
    let stray = unsafe { Buffer::<f32>::from_raw(&device.stream()?, 0x1000, 4, ()) };
    assert!(stray.err().is_some_and(|error| error.to_string().contains("no 16 bytes of the device cuda:0")));
    Ok(())
}
