//! Classic mistakes, planted one at a time: each is a typed fault that names its place, and the process goes
//! on.

use gatework_gpu::{ByValue, Device, Error, Fault, FaultKind, Grid, Result, Source, args};

/// Runs `body` as a kernel `planted(u32* x, u32 n)` over `blocks` x `threads` with 4 KiB of shared memory,
/// under several schedules, and returns the fault of the first that shows it.
fn plant(body: &str, blocks: u32, threads: u32) -> Option<Fault> {
    plant_with(body, Grid::new([blocks, 1, 1], [threads, 1, 1]).shared(4096), 20)
}

fn plant_with(body: &str, grid: Grid, seeds: u64) -> Option<Fault> {
    let text = format!(
        "#include \"gw/gw.cuh\"\n#include \"gw/wgmma.cuh\"\nGW_KERNEL(planted)(u32* x, u32 n) {{\n{body}\n}}\n"
    );
    let source = Source::new("planted", text);
    (0..seeds).find_map(|seed| {
        let device = Device::emulated(seed).unwrap();
        let stream = device.stream().unwrap();
        let mut words = vec![7u32; 1024];
        words[512] = 0;
        let mut x = stream.upload(&words).unwrap();
        let kernel = device.kernel(&source).unwrap();
        kernel.launch(&stream, &grid, &args![&mut x, 1024u32]).unwrap();
        match stream.synchronize() {
            Ok(()) => None,
            Err(Error::Fault(fault)) => {
                // The stream is usable again, and memory was not lost.
                assert_eq!(stream.download(&stream.upload(&[1u8, 2, 3]).unwrap()).unwrap(), [1, 2, 3]);
                Some(*fault)
            }
            Err(other) => panic!("not a fault: {other}"),
        }
    })
}

#[track_caller]
fn assert_fault(fault: Option<Fault>, kind: FaultKind, line: u32, words: &str) {
    let fault = fault.expect("no schedule shows the fault");
    assert_eq!(fault.kind, kind, "{fault}");
    assert!(fault.message.contains(words), "{fault}");
    // The body starts on line 4.
    assert_eq!(
        fault.site.as_ref().map(|site| (site.file.as_str(), site.line)),
        Some(("planted.cuh", line)),
        "{fault}"
    );
}

#[test]
fn out_of_bounds_reads_and_writes() {
    assert_fault(
        plant("x[gw::thread()] = x[gw::thread() + 1024];", 1, 32),
        FaultKind::OutOfBounds,
        4,
        "reads 4 bytes",
    );
    assert_fault(plant("x[1024 + gw::thread()] = 1;", 1, 32), FaultKind::OutOfBounds, 4, "writes 4 bytes");
    assert_fault(plant("x[-1ll] = 1;", 1, 1), FaultKind::OutOfBounds, 4, "writes 4 bytes");
    assert_fault(plant("gw::shared<u32>()[1024] = n;", 1, 1), FaultKind::OutOfBounds, 4, "shared memory");
    assert_fault(
        plant("u32* null = nullptr;\nx[0] = *(volatile u32*)null;", 1, 1),
        FaultKind::OutOfBounds,
        5,
        "reads",
    );
}

#[test]
fn what_would_end_the_process_is_a_fault() {
    let top = "x[0] = *(volatile u32*)(~0ull - 3);";
    assert_fault(plant(top, 1, 1), FaultKind::OutOfBounds, 4, "in no buffer");
    let copy = "__builtin_memcpy(x, x + n, 4 * n);";
    assert_fault(plant(copy, 1, 1), FaultKind::OutOfBounds, 4, "reads 4096 bytes");
    assert_fault(plant("__builtin_memset(x, 0, 4 * n + 4);", 1, 1), FaultKind::OutOfBounds, 4, "writes 4100");
    let array = "u32 a[8];\nfor (u32 i = 0; i < 8; ++i) a[i] = x[i];\nx[0] = a[x[1] + 1];";
    assert_fault(plant(array, 1, 1), FaultKind::OutOfBounds, 6, "beyond the end of an array");
    assert_fault(plant("x[0] = n / (x[1] - 7);", 1, 1), FaultKind::DivisionByZero, 4, "divided by zero");
    let shift = "x[0] = n << (x[1] + 25);";
    assert_fault(plant(shift, 1, 1), FaultKind::OutOfRange, 4, "gw::shift_left");
    let cast = "const f32 large = (f32)x[1] * 1e9f;\nx[0] = (u32)large;";
    assert_fault(plant(cast, 1, 1), FaultKind::OutOfRange, 5, "gw::f32_to_i32");
    let deep = "struct Deep { __attribute__((noinline)) static u32 go(volatile u32* x, u32 n) {\n\
                return n == 0 ? 0 : x[n & 7] + go(x, n - 1) * x[1]; } };\nx[0] = Deep::go(x, 1000 * n);";
    assert_eq!(plant(deep, 1, 1).unwrap().kind, FaultKind::StackOverflow);
    let paused = plant_with("while (x[0] != 1) gw::pause();", Grid::new([1, 1, 1], [1, 1, 1]), 1);
    assert_eq!(paused.unwrap().kind, FaultKind::Deadlock, "nobody ends the pause");
    // Rightly used, each is allowed.
    assert!(
        plant("static const u32 TABLE[2] = {1, 2};\nx[0] = gw::load_relaxed(TABLE + (n & 1));", 1, 1)
            .is_none()
    );
    let defined = "x[0] = gw::shift_left(n, x[1] + 25) + gw::f32_to_u32((f32)x[1] * 1e9f);";
    assert!(plant(defined, 1, 1).is_none());
    assert!(plant("__builtin_memmove(x + 4, x, 2 * n);\n__builtin_memset(x, 0, 16);", 1, 1).is_none());
}

#[test]
fn a_function_that_is_nowhere_defined_is_a_compile_error() {
    let text = "#include \"gw/gw.cuh\"\nu32 nowhere(u32);\nGW_KERNEL(lost)(u32* x) { x[0] = nowhere(1); }";
    let error = Device::emulated(0).unwrap().kernel(&Source::new("lost", text)).unwrap_err();
    assert!(matches!(&error, Error::Compile { log, .. } if log.contains("nowhere")), "{error}");
}

#[test]
fn a_kernel_may_have_the_name_of_a_library_function_and_large_arguments() -> Result<()> {
    let text = "#include \"gw/gw.cuh\"\nstruct Table { u32 words[512]; };\n\
                GW_KERNEL(index)(u32* x, Table table) { x[gw::thread()] = table.words[7 * gw::thread()]; }";
    let device = Device::emulated(0)?;
    let stream = device.stream()?;
    let mut x = stream.alloc::<u32>(64)?;
    let table: [u32; 512] = std::array::from_fn(|i| i as u32);
    let grid = Grid::new([1, 1, 1], [64, 1, 1]);
    device.kernel(&Source::new("index", text))?.launch(&stream, &grid, &args![&mut x, ByValue(&table)])?;
    assert_eq!(stream.download(&x)?, std::array::from_fn::<u32, 64, _>(|i| 7 * i as u32));
    Ok(())
}

#[test]
fn an_off_by_one_names_the_thread_and_the_buffer() {
    let fault = plant("const u64 i = gw::global_thread();\nif (i <= n) x[i] = 1;", 5, 256).unwrap();
    assert_eq!(
        (fault.kind, fault.block, fault.thread),
        (FaultKind::OutOfBounds, [4, 0, 0], Some([0, 0, 0])),
        "{fault}"
    );
    assert!(fault.message.contains("4096 bytes into a buffer of 4096 bytes"), "{fault}");
}

#[test]
fn misaligned_vector_accesses() {
    let read = "u32x4 v = gw::load_128(x + 1);\nx[100] = v.x;";
    assert_fault(plant(read, 1, 1), FaultKind::Misaligned, 4, "no multiple of 16");
    assert_fault(
        plant("gw::store_128(x + 2, u32x4{1, 2, 3, 4});", 1, 1),
        FaultKind::Misaligned,
        4,
        "no multiple of 16",
    );
    assert_fault(plant("*(u64*)(x + 1) = 5;", 1, 1), FaultKind::Misaligned, 4, "no multiple of 8");
}

#[test]
fn races_in_shared_and_global_memory() {
    let shared = "u32* s = gw::shared<u32>();\ns[gw::thread()] = gw::thread();\nx[gw::thread()] = s[gw::thread() ^ 32];";
    let fault = plant(shared, 1, 64).unwrap();
    assert_eq!(fault.kind, FaultKind::Race, "{fault}");
    assert_fault(
        plant("x[0] = gw::block_x();", 2, 1),
        FaultKind::Race,
        4,
        "which thread [0, 0, 0] of block [",
    );
    let warp = "u32* s = gw::shared<u32>();\ns[gw::lane()] = 1;\ngw::shuffle(0u, 0);\nx[gw::lane()] = s[31 - gw::lane()];";
    assert_eq!(plant(warp, 1, 32).unwrap().kind, FaultKind::Race, "a shuffle orders no memory");
    assert!(plant(&warp.replace("gw::shuffle(0u, 0)", "gw::sync_warp()"), 1, 32).is_none());
}

#[test]
fn a_missing_fence_between_blocks_is_a_race() {
    let message = |fence: &str| {
        format!(
            "if (gw::block_x() == 0) {{\nx[1] = 42;\n{fence}\ngw::atomic_exchange(x, 1u);\n}} else {{\n\
             while (gw::load_relaxed(x) != 1) {{}}\n{fence}\nx[2] = x[1];\n}}"
        )
    };
    assert_eq!(plant(&message(""), 2, 1).unwrap().kind, FaultKind::Race);
    assert!(plant(&message("gw::fence_device();"), 2, 1).is_none());
    assert_eq!(
        plant(&message("gw::fence_block();"), 2, 1).unwrap().kind,
        FaultKind::Race,
        "too narrow a fence"
    );
}

#[test]
fn fences_carry_as_far_as_both_of_them_reach() {
    let pass = |release: &str, acquire: &str| {
        let body = format!(
            "if (gw::block_x() == 0) {{\nx[1] = 42;\n{release}\ngw::atomic_exchange(x, 1u);\n}} else {{\n\
             while (gw::load_relaxed(x) != 1) {{}}\n{acquire}\nx[2] = x[1];\n}}"
        );
        plant(&body, 2, 1)
    };
    let (block, device) = ("gw::fence_block();", "gw::fence_device();");
    let both = format!("{device}\n{block}");
    assert_eq!(pass(block, device).unwrap().kind, FaultKind::Race, "the writer's fence is too narrow");
    assert_eq!(pass(device, block).unwrap().kind, FaultKind::Race, "the reader's fence is too narrow");
    assert!(pass(&both, &format!("{block}\n{device}")).is_none(), "a narrow fence takes nothing away");
}

#[test]
fn a_grid_barrier_does_not_wait_for_copies() {
    let store = "u32* s = gw::shared<u32>();\ns[gw::thread()] = 5;\ngw::fence_async_proxy_shared();\ngw::sync_threads();\n\
                 if (gw::thread() == 0) {\ngw::bulk_store(x + 32 * gw::block_x(), s, 128);\ngw::bulk_commit();\nEARLY\n}\n\
                 gw::sync_grid(x + 512);\nx[600 + 32 * gw::block_x() + gw::thread()] = x[32 - 32 * gw::block_x()];\n\
                 if (gw::thread() == 0) gw::bulk_wait<0>();";
    let grid = Grid::new([2, 1, 1], [32, 1, 1]).shared(4096).cooperative();
    assert!(plant_with(&store.replace("EARLY", "gw::bulk_wait<0>();"), grid, 20).is_none());
    let fault = plant_with(&store.replace("EARLY", ""), grid, 20).expect("the copy is still under way");
    assert_eq!(fault.kind, FaultKind::Race, "{fault}");
}

#[test]
fn either_fence_shows_an_mbarrier_to_the_copy_engine() {
    let load = "gw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\ngw::mbarrier_init(b, 1);\nFENCE\n\
                gw::mbarrier_arrive_expect(b, 512);\ngw::bulk_load(gw::shared<u8>(), x, 512, b);\n\
                gw::mbarrier_wait(b, 0);\nx[0] = gw::shared<u32>()[3];";
    assert!(plant(&load.replace("FENCE", "gw::fence_mbarrier_init();"), 1, 1).is_none());
    assert!(plant(&load.replace("FENCE", "gw::fence_async_proxy_shared();"), 1, 1).is_none());
    assert_eq!(plant(&load.replace("FENCE", ""), 1, 1).unwrap().kind, FaultKind::Protocol);
}

#[test]
fn divergent_barriers() {
    let zero = "if (gw::thread() < 32) gw::barrier_arrive(0, 64);\nelse gw::sync_threads();";
    assert_fault(plant(zero, 1, 64), FaultKind::Protocol, 4, "0 is sync_threads");
    assert_fault(
        plant("if (gw::thread() < 32) gw::sync_threads();", 1, 64),
        FaultKind::Divergence,
        4,
        "has ended",
    );
    let two = "if (gw::thread() < 32) {\ngw::sync_threads();\n} else {\ngw::sync_threads();\n}";
    assert_eq!(plant(two, 1, 64).unwrap().kind, FaultKind::Divergence);
    let lanes = "if (gw::lane() < 16) gw::shuffle(1u, 0);\nelse gw::ballot(true);";
    assert_eq!(plant(lanes, 1, 32).unwrap().kind, FaultKind::Divergence);
    let half = "if (gw::lane() < 16) gw::sync_warp();";
    assert!(plant(half, 1, 32).is_none_or(|fault| fault.kind == FaultKind::Deadlock));
}

#[test]
fn lanes_that_have_parted_meet_under_masks_of_their_own() {
    let halves = "const u32 mask = 0xFFFFu << (gw::lane() & 16);\nu32 v = gw::lane();\n\
                  for (u32 i = 8; i > 0; i /= 2) v += gw::shuffle_xor(v, i, mask);\n\
                  if (v != (gw::lane() < 16 ? 120 : 376)) x[4096] = 0;";
    assert!(plant(halves, 1, 32).is_none());
    let branches = "u32* s = gw::shared<u32>();\ns[gw::lane()] = 1;\nif (gw::lane() < 16) {\ngw::sync_warp(LOW);\n\
                    x[gw::lane()] = s[15 - gw::lane()];\n} else {\ngw::sync_warp(0xFFFF0000u);\n}";
    assert!(plant(&branches.replace("LOW", "0xFFFF"), 1, 32).is_none());
    assert_eq!(plant(&branches.replace("LOW", "0x1FFFF"), 1, 32).unwrap().kind, FaultKind::Divergence);
}

#[test]
fn matrix_instructions_take_registers_of_the_thread() {
    let descriptor =
        "const u64 t = gw::wgmma_descriptor(gw::shared<u8>(), gw::SWIZZLE_32, 256);\ngw::wgmma_fence();\n";
    let product = |body: &str| plant(&format!("{descriptor}{body}"), 1, 128);
    let wild = "gw::load_matrix<4>(*(u32(*)[4])(u64)(16 * n), gw::shared<u8>());";
    assert_fault(plant(wild, 1, 32), FaultKind::Protocol, 4, "an array of the thread's own");
    let wild = "u32 a[4] = {}, b[2] = {};\ngw::mma(gw::F16{}, *(f32(*)[4])x, a, b, *(f32(*)[4])x);";
    assert_fault(plant(wild, 1, 32), FaultKind::Protocol, 5, "an array of the thread's own");
    let wild = "gw::Wgmma<gw::E4M3, 8>::ss(*(f32(*)[4])(u64)(16 * n), t, t, false);";
    assert_fault(product(wild), FaultKind::Protocol, 6, "an array of the thread's own");
    let mixed = "u32 a[4], b[1];\nif (gw::lane() & 1) gw::load_matrix<4>(a, gw::shared<u8>()); \
                 else gw::load_matrix<1>(b, gw::shared<u8>());\nx[gw::lane()] = a[0] + b[0];";
    assert_eq!(plant(mixed, 1, 32).unwrap().kind, FaultKind::Divergence);
    let overlapping = "f32 d[16];\ngw::Wgmma<gw::E4M3, 32>::ss(d, t, t, false);\n\
                       gw::Wgmma<gw::E4M3, 8>::ss(*(f32(*)[4])d, t, t, true);\n\
                       gw::wgmma_commit();\ngw::wgmma_wait<0>();\nx[gw::thread()] = gw::bits<u32>(d[0]);";
    assert_fault(product(overlapping), FaultKind::Protocol, 8, "overlap others");
    let gone = "struct Inner { __attribute__((noinline)) static void issue(u64 t) {\n\
                f32 d[4];\ngw::Wgmma<gw::E4M3, 8>::ss(d, t, t, false); } };\n\
                Inner::issue(t);\ngw::wgmma_commit();\ngw::wgmma_wait<0>();";
    assert_fault(product(gone), FaultKind::Protocol, 8, "went out of scope");
    let lent = "struct Inner { __attribute__((noinline)) static void issue(f32 (&d)[4], u64 t) {\n\
                gw::Wgmma<gw::E4M3, 8>::ss(d, t, t, false); } };\nf32 d[4];\n\
                Inner::issue(d, t);\ngw::wgmma_commit();\ngw::wgmma_wait<0>();\nx[gw::thread()] = gw::bits<u32>(d[0]);";
    assert!(product(lent).is_none(), "accumulators of the caller outlive the function that issues");
}

#[test]
fn deadlocks_name_who_waits_for_what() {
    let fault = plant("gw::barrier_sync(1, 64);", 1, 32)
        .or_else(|| plant("gw::barrier_sync(1, 64);", 1, 96))
        .unwrap();
    assert_eq!(fault.kind, FaultKind::Protocol, "more threads than the block has: {fault}");
    let fault = plant("if (gw::thread() < 32) gw::barrier_sync(3, 64);", 1, 64).unwrap();
    assert_eq!(fault.kind, FaultKind::Deadlock, "{fault}");
    assert!(fault.message.contains("threads 0-31 of the block wait for named barrier 3 (line 4)"), "{fault}");
    let spin = plant_with("while (gw::load_relaxed(x) != 1) {}", Grid::new([1, 1, 1], [1, 1, 1]), 1).unwrap();
    assert!(spin.kind == FaultKind::Deadlock && spin.message.contains("spins"), "{spin}");
}

#[test]
fn freed_memory_is_recognised() -> Result<()> {
    let device = Device::emulated(1)?;
    let stream = device.stream()?;
    // A pointer that outlives its buffer, as a struct of pointers would carry it.
    let text = "#include \"gw/gw.cuh\"\nGW_KERNEL(keep)(u32* x, u64* kept) { kept[0] = (u64)x; }\n\
                GW_KERNEL(use)(u64* kept) { *(u32*)kept[0] = 1; }";
    let source = Source::new("keep", text);
    let mut kept = stream.alloc::<u64>(1)?;
    let mut x = stream.alloc::<u32>(16)?;
    let one = Grid::new([1, 1, 1], [1, 1, 1]);
    device.kernel(&source)?.launch(&stream, &one, &args![&mut x, &mut kept])?;
    drop(x);
    device.kernel_named(&source, "use")?.launch(&stream, &one, &args![&mut kept])?;
    let Err(Error::Fault(fault)) = stream.synchronize() else { panic!("the access went unseen") };
    assert_eq!(fault.kind, FaultKind::FreedMemory, "{fault}");
    Ok(())
}

#[test]
fn asynchronous_copies_must_be_waited_for() {
    let copy = "u32* s = gw::shared<u32>();\ngw::copy_async<16>(s + 4 * gw::thread(), x + 4 * gw::thread());\n\
                gw::copy_async_commit();\nWAIT\nx[gw::thread()] = s[4 * gw::thread()];";
    assert!(plant(&copy.replace("WAIT", "gw::copy_async_wait<0>();\ngw::sync_warp();"), 1, 32).is_none());
    assert_eq!(plant(&copy.replace("WAIT", ""), 1, 32).unwrap().kind, FaultKind::Race);
    let store = "u32* s = gw::shared<u32>();\ns[gw::thread()] = 5;\nFENCE\ngw::sync_threads();\nif (gw::thread() == 0) {\n\
                 gw::bulk_store(x, s, 128);\ngw::bulk_commit();\nWAIT\n}\ngw::sync_threads();";
    let with = |fence: &str, wait: &str| plant(&store.replace("FENCE", fence).replace("WAIT", wait), 1, 32);
    assert!(with("gw::fence_async_proxy_shared();", "gw::bulk_wait<0>();").is_none());
    assert_eq!(with("", "gw::bulk_wait<0>();").unwrap().kind, FaultKind::Race);
    assert_eq!(with("gw::fence_async_proxy_shared();", "").unwrap().kind, FaultKind::Protocol);
    let abandoned = "gw::Mbarrier* b = gw::shared<gw::Mbarrier>(1024);\ngw::mbarrier_init(b, 1);\ngw::fence_mbarrier_init();\n\
                     gw::mbarrier_arrive_expect(b, 512);\ngw::bulk_load(gw::shared<u8>(), x, 512, b);";
    let fault = plant(abandoned, 1, 1).expect("the block ends under its own copy");
    assert!(fault.message.contains("in flight"), "{fault}");
}

#[test]
fn a_run_repeats_from_its_seed() {
    let body = "u32* s = gw::shared<u32>();\ns[gw::thread()] = 1;\nx[gw::thread()] = s[gw::thread() ^ 33];";
    let told = |seed: u64| {
        let text = format!("#include \"gw/gw.cuh\"\nGW_KERNEL(planted)(u32* x, u32 n) {{\n{body}\n}}\n");
        let device = Device::emulated(seed).unwrap();
        let stream = device.stream().unwrap();
        let mut x = stream.upload(&[0u32; 256]).unwrap();
        let grid = Grid::new([1, 1, 1], [256, 1, 1]).shared(1024);
        let kernel = device.kernel(&Source::new("planted", text)).unwrap();
        kernel.launch(&stream, &grid, &args![&mut x, 1024u32]).unwrap();
        match stream.synchronize() {
            Err(Error::Fault(fault)) => (fault.thread, fault.site),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(told(5), told(5));
    assert!((0..10).any(|seed| told(seed) != told(5)), "every seed gives the same schedule");
}

#[test]
fn an_early_launch_that_does_not_wait_for_the_stream() {
    let early = Grid::new([2, 1, 1], [32, 1, 1]).shared(4096).early();
    let words = "before gw::await_stream()";
    assert_fault(plant_with("x[gw::thread()] = n;", early, 1), FaultKind::Protocol, 4, words);
    // One thread's wait is not another's.
    let one = "if (gw::thread() == 0) gw::await_stream();\nx[gw::block_x() * 32 + gw::thread()] = n;";
    assert_fault(plant_with(one, early, 1), FaultKind::Protocol, 5, words);
    let all = "gw::shared<u32>()[gw::thread()] = n;\ngw::await_stream();\nx[gw::block_x() * 32 + gw::thread()] = n;";
    assert!(plant_with(all, early, 3).is_none());
    // A launch that starts when all before it is done needs no wait.
    assert!(
        plant_with("x[gw::thread()] = n;", Grid { early: false, blocks: [1, 1, 1], ..early }, 1).is_none()
    );
}

#[test]
fn stores_that_wgmma_reads_need_a_proxy_fence() {
    let proxy = plant_with(
        "u32* s = gw::shared<u32>();\nfor (u32 i = gw::thread(); i < 1024; i += 128) s[i] = 0;\ngw::sync_threads();\n\
         const u64 t = gw::wgmma_descriptor(s, gw::SWIZZLE_32, 256);\nf32 d[4];\ngw::wgmma_fence();\n\
         gw::Wgmma<gw::E4M3, 8>::ss(d, t, t, false);\ngw::wgmma_commit();\ngw::wgmma_wait<0>();\nx[gw::thread()] = (u32)d[0];",
        Grid::new([1, 1, 1], [128, 1, 1]).shared(4096),
        5,
    );
    let fault = proxy.expect("stores that wgmma reads need a proxy fence");
    assert!(fault.kind == FaultKind::Race && fault.message.contains("fence_async_proxy"), "{fault}");
}

#[test]
fn a_code_that_the_runtime_does_not_know_is_a_fault() {
    let wrong = [
        ("x[0] = gw::emulated::call::convert((gw::emulated::Conversion)99, 0);", "99 is no Conversion"),
        ("gw::emulated::call::fence((gw::emulated::FenceKind)10);", "10 is no FenceKind"),
        ("x[0] = gw::emulated::call::index((gw::emulated::Index)8, 0);", "8 is no Index"),
    ];
    for (body, message) in wrong {
        let fault = plant(body, 1, 1).expect("an unknown code");
        assert!(fault.kind == FaultKind::Protocol && fault.message.contains(message), "{fault}");
    }
}

#[test]
fn a_kernel_that_stops_itself_says_where() {
    let fault = plant("if (n > 0) gw::trap();\nx[0] = 1;", 1, 1).expect("the trap");
    assert_eq!(fault.kind, FaultKind::Trap, "{fault}");
    assert_eq!(fault.site.map(|site| site.line), Some(4));
}
