//! Ranks of every place, driven alike.
#![allow(dead_code, reason = "every test file uses its own part")]

use bytemuck::Pod;
use gatework_gpu::fabric::{DeviceRank, Devices, Fabric, Host, HostRank, Place, Rank};
use gatework_gpu::{Buffer, Device, Result, Stream, View, ViewMut};

/// A place whose memory tests can fill and look at.
pub trait Memory: Place + Send + 'static {
    type Held<T: Pod>;
    fn order(rank: &Rank<Self>) -> Result<Self::Order>;
    fn upload<T: Pod>(order: &Self::Order, host: &[T]) -> Result<Self::Held<T>>;
    fn read<T: Pod>(held: &Self::Held<T>) -> Self::Read<'_, T>;
    fn write<T: Pod>(held: &mut Self::Held<T>) -> Self::Write<'_, T>;
    fn download<T: Pod>(order: &Self::Order, held: &Self::Held<T>) -> Result<Vec<T>>;
    /// Overwrites all of it, in order.
    fn spoil<T: Pod>(order: &Self::Order, held: &mut Self::Held<T>) -> Result<()>;
}

impl Memory for Host {
    type Held<T: Pod> = Vec<T>;

    fn order(_: &HostRank) -> Result<()> {
        Ok(())
    }

    fn upload<T: Pod>((): &(), host: &[T]) -> Result<Vec<T>> {
        Ok(host.to_vec())
    }

    fn read<T: Pod>(held: &Vec<T>) -> &[T] {
        held
    }

    fn write<T: Pod>(held: &mut Vec<T>) -> &mut [T] {
        held
    }

    fn download<T: Pod>((): &(), held: &Vec<T>) -> Result<Vec<T>> {
        Ok(held.clone())
    }

    fn spoil<T: Pod>((): &(), held: &mut Vec<T>) -> Result<()> {
        held.fill(T::zeroed());
        Ok(())
    }
}

impl Memory for Devices {
    type Held<T: Pod> = Buffer<T>;

    fn order(rank: &DeviceRank) -> Result<Stream> {
        rank.place().device().stream()
    }

    fn upload<T: Pod>(stream: &Stream, host: &[T]) -> Result<Buffer<T>> {
        stream.upload(host)
    }

    fn read<T: Pod>(held: &Buffer<T>) -> gatework_gpu::Slice<'_, T> {
        held.view()
    }

    fn write<T: Pod>(held: &mut Buffer<T>) -> gatework_gpu::SliceMut<'_, T> {
        held.view_mut()
    }

    fn download<T: Pod>(stream: &Stream, held: &Buffer<T>) -> Result<Vec<T>> {
        stream.download(held)
    }

    fn spoil<T: Pod>(stream: &Stream, held: &mut Buffer<T>) -> Result<()> {
        stream.fill(&mut held.view_mut().as_bytes_mut(), 0)
    }
}

/// Emulated devices, each with memory of its own.
pub fn separate(fabric: Fabric, seed: u64, ranks: usize) -> Vec<DeviceRank> {
    fabric.over(&Device::emulated_group(seed, ranks).unwrap()).unwrap()
}

/// Virtual devices on one emulated device.
pub fn shares(fabric: Fabric, seed: u64, ranks: usize) -> Vec<DeviceRank> {
    fabric.over(&Device::emulated(seed).unwrap().split(ranks).unwrap()).unwrap()
}

/// What each rank makes of itself, on a thread of its own; `None` where it panicked.
pub fn attempted<P: Memory, R: Send>(
    ranks: Vec<Rank<P>>,
    work: impl Fn(Rank<P>) -> R + Sync,
) -> Vec<Option<R>>
where
    Rank<P>: Send,
{
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(move || work(rank))).collect();
        threads.into_iter().map(|thread| thread.join().ok()).collect()
    })
}

/// As [`attempted`], where none may fail.
#[track_caller]
pub fn driven<P: Memory, R: Send>(
    ranks: Vec<Rank<P>>,
    work: impl Fn(&mut Rank<P>) -> Result<R> + Sync,
) -> Vec<R>
where
    Rank<P>: Send,
{
    let done = attempted(ranks, |mut rank| {
        let done = work(&mut rank);
        // Nobody goes before all are done, so that the first error is the one that is seen.
        (done, rank)
    });
    done.into_iter().map(|one| one.expect("no panic").0.unwrap_or_else(|error| panic!("{error}"))).collect()
}
