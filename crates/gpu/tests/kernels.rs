//! The runtime's own kernels on the emulated device, through the public API, against plain Rust.

use gatework_gpu::{Device, Error, Grid, Module, Result, args};

#[test]
fn fill_and_gather_match_reference_for_every_width() -> Result<()> {
    let device = Device::emulated(3)?;
    let stream = device.stream()?;
    fn round<T: bytemuck::Pod + PartialEq + std::fmt::Debug>(
        stream: &gatework_gpu::Stream,
        make: impl Fn(usize) -> T,
    ) -> Result<()> {
        let source: Vec<T> = (0..50).map(&make).collect();
        let indices: Vec<u32> = (0..37).map(|i| (i * 29 + 3) % 50).collect();
        let from = stream.upload(&source)?;
        let mut to = stream.alloc::<T>(indices.len())?;
        stream.fill(&mut to, make(7))?;
        assert!(stream.download(&to)?.iter().all(|x| *x == make(7)));
        stream.gather(&from, &stream.upload(&indices)?, &mut to)?;
        let wanted: Vec<T> = indices.iter().map(|&i| source[i as usize]).collect();
        assert_eq!(stream.download(&to)?, wanted);
        let beyond = stream.upload(&vec![50u32; indices.len()])?;
        stream.gather(&from, &beyond, &mut to)?;
        assert!(bytemuck::cast_slice::<T, u8>(&stream.download(&to)?).iter().all(|&byte| byte == 0xFF));
        Ok(())
    }
    round(&stream, |i| i as u8)?;
    round(&stream, |i| i as u16)?;
    round(&stream, |i| i as f32)?;
    round(&stream, |i| i as u64)?;
    round(&stream, |i| [i as u32; 3])?;
    round(&stream, |i| i as u128)?;
    round(&stream, |i| [i as u16; 13])?;
    round(&stream, |i| [i as u64; 8])
}

static WRITES: Module =
    Module::new("writes", "#include \"gw/gw.cuh\"\nGW_KERNEL(write)(u32* to) { to[0] = VALUE; }", &[]);
static BROKEN: Module = Module::new("broken", "GW_KERNEL(write)(u32* to) { not C++ }", &[]);

#[test]
fn modules_are_prepared_together_and_the_first_that_fails_is_named() -> Result<()> {
    let device = Device::emulated(1)?;
    let [one, two] = [1u32, 2].map(|value| WRITES.define("VALUE", value));
    let error = device.prepare(&[one, BROKEN, WRITES, two]).unwrap_err();
    assert!(matches!(error, Error::Compile { kernel, .. } if kernel == "broken"));
    device.prepare(&[one, two])?;
    let stream = device.stream()?;
    for (module, value) in [(one, 1), (two, 2), (one, 1)] {
        let mut word = stream.alloc::<u32>(1)?;
        let kernel = device.kernel_of(&module, "write")?;
        kernel.launch(&stream, &Grid::new([1; 3], [1; 3]), &args![&mut word])?;
        assert_eq!(stream.download(&word)?, [value]);
    }
    let error = device.kernel_of(&one, "read").unwrap_err();
    assert!(matches!(error, Error::NoEntry { entry, .. } if entry == "read"));
    Ok(())
}
