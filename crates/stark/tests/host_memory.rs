//! The planner against what `SimdBackend` really holds.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use gatework_stark::airs::{self, Air, Input, Lookup, Plonk, Poseidon2, StateMachine, WideFibonacci};
use stwo::core::fri::FriConfig;
use stwo::core::pcs::PcsConfig;
use stwo::prover::ComponentProver;
use stwo::prover::backend::simd::SimdBackend;
use stwo_constraint_framework::FrameworkComponent;

/// Bytes that are held, and the most that were.
static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(held, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn peaks<A: Air>(air: &A, config: PcsConfig) -> (u64, u64)
where
    FrameworkComponent<A::Eval>: ComponentProver<SimdBackend>,
{
    let prove = || airs::prove(air, config, Input::<SimdBackend>::new(air, config)).unwrap();
    (peak_of(prove).1, airs::plan(air, config).host_peak_bytes())
}

/// What `body` gives, and the most that it held.
fn peak_of<R>(body: impl FnOnce() -> R) -> (R, u64) {
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let value = body();
    (value, (PEAK.load(Ordering::Relaxed) - before) as u64)
}

/// The same of a verification.
fn verifying_peaks(air: &Plonk, config: PcsConfig) -> (u64, u64) {
    let proved = airs::prove(air, config, Input::<SimdBackend>::new(air, config)).unwrap();
    (peak_of(|| airs::verify(air, config, proved).unwrap()).1, airs::verifying_bytes(air, config))
}

// One test: what is held is counted for the whole process.
#[test]
fn the_predicted_peaks_are_about_the_real_ones() {
    let few = PcsConfig { pow_bits: 1, fri_config: FriConfig::new(0, 1, 3, 1), lifting_log_size: None };
    let many = PcsConfig { pow_bits: 1, fri_config: FriConfig::new(1, 2, 5, 3), lifting_log_size: None };
    let cases = [
        peaks(&WideFibonacci { log_rows: 14, columns: 20 }, few),
        peaks(&WideFibonacci { log_rows: 15, columns: 5 }, few),
        peaks(&WideFibonacci { log_rows: 12, columns: 200 }, few),
        peaks(&WideFibonacci { log_rows: 12, columns: 1000 }, few),
        peaks(&WideFibonacci { log_rows: 12, columns: 40 }, many),
        peaks(&Lookup { log_rows: 14, salt: 1 }, few),
        peaks(&Plonk { log_rows: 14 }, few),
        peaks(&Plonk { log_rows: 13 }, many),
        peaks(&StateMachine { log_rows: 14 }, few),
        peaks(&Poseidon2 { log_rows: 10 }, few),
    ];
    for (case, (peak, predicted)) in cases.into_iter().enumerate() {
        let ratio = predicted as f64 / peak as f64;
        assert!((0.95..1.15).contains(&ratio), "case {case}: {predicted} predicted, {peak} held, {ratio:.3}");
    }
    for (peak, predicted) in [
        verifying_peaks(&Plonk { log_rows: 14 }, few),
        verifying_peaks(&Plonk { log_rows: 16 }, few),
        verifying_peaks(&Plonk { log_rows: 13 }, many),
    ] {
        let ratio = predicted as f64 / peak as f64;
        assert!((0.95..1.3).contains(&ratio), "{predicted} predicted to verify, {peak} held, {ratio:.3}");
    }
    assert_eq!(airs::verifying_bytes(&WideFibonacci { log_rows: 26, columns: 60_000 }, few), 0);
}
