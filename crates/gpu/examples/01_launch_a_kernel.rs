//! Launch a kernel, and see what the emulated device says of a wrong one.
//!
//! ```sh
//! cargo run -p gatework-gpu --example 01_launch_a_kernel               # the emulated device
//! cargo run -p gatework-gpu --example 01_launch_a_kernel -- cuda       # an NVIDIA GPU
//! ```

use gatework_gpu::{Device, Error, Grid, Result, Source, args};

/// CUDA C++ against one portable header. NVRTC compiles it for a GPU, the machine's C++ compiler for the
/// emulated device.
const SCALE: &str = r#"
    #include "gw/gw.cuh"
    // x <- a x, elementwise. One thread an element.
    GW_KERNEL(scale)(f32* x, f32 a, u32 n) {
        const u32 i = gw::global_thread();
        if (i < n) x[i] *= a;
    }
"#;

/// The same without the guard: threads behind the last element store where nothing is.
const UNGUARDED: &str = r#"
    #include "gw/gw.cuh"
    GW_KERNEL(unguarded)(f32* x, f32 a) {
        x[gw::global_thread()] *= a;
    }
"#;

const THREADS: u32 = 128;

fn show(device: &Device) -> Result<()> {
    let numbers: Vec<f32> = (0..1000).map(|i| i as f32).collect();
    // Work is queued in a stream, and runs in its order.
    let stream = device.stream()?;
    let mut x = stream.upload(&numbers)?;
    let scale = device.kernel(&Source::new("scale", SCALE))?;
    // Enough blocks of 128 threads for 1000 elements: 8 blocks, and 24 threads too many.
    let grid = Grid::covering(numbers.len(), THREADS);
    // Arguments are checked against the kernel's own parameters before the launch.
    scale.launch(&stream, &grid, &args![&mut x, 2.5f32, numbers.len() as u32])?;
    let scaled = stream.download(&x)?;
    assert!(scaled.iter().zip(&numbers).all(|(scaled, number)| *scaled == 2.5 * number));
    println!("{} numbers scaled on {}: {:?} ...", scaled.len(), device.properties().name, &scaled[..4]);

    if device.is_emulated() {
        let fault = stray_store(device)?;
        println!("the kernel without its guard was stopped:\n  {fault}");
    }
    Ok(())
}

/// What the emulated device says of the 24 threads too many. On a GPU this would overwrite a neighbour, or
/// nothing would be seen.
fn stray_store(device: &Device) -> Result<String> {
    let stream = device.stream()?;
    let mut x = stream.upload(&[1.0f32; 1000])?;
    let unguarded = device.kernel(&Source::new("unguarded", UNGUARDED))?;
    unguarded.launch(&stream, &Grid::covering(1000, THREADS), &args![&mut x, 2.5f32])?;
    match stream.download(&x) {
        // The fault names kernel, block, thread, address and line; the process goes on.
        Err(Error::Fault(fault)) => Ok(fault.to_string()),
        Err(other) => Err(other),
        Ok(_) => panic!("a stray store was not found"),
    }
}

fn main() -> Result<()> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "emulated".into());
    show(&Device::open(&name)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_shows_what_it_says() {
        let device = Device::open("emulated").unwrap();
        show(&device).unwrap();
        let fault = stray_store(&device).unwrap();
        assert!(fault.contains("unguarded"), "{fault}");
    }
}
