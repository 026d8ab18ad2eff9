//! The runtime's own kernels on the emulated device, through the public API, against plain Rust.

use gatework_gpu::{Device, Result};

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
