//! Bulk tensor copies, each used wrongly once and rightly once, and maps that cannot be.

#[path = "support/planted.rs"]
mod planted;

use gatework_gpu::{
    ByValue, Device, Error, FaultKind, Grid, Result, Source, Swizzle, TensorLayout, TensorMap, args,
};
use planted::Twins;

/// Words of a matrix of 32 columns and 32 rows, in boxes of 16 columns and 8 rows.
fn layout() -> TensorLayout {
    TensorLayout::dense::<u32>(&[32, 32], &[16, 8])
}

/// Runs twins as kernels of a map of 1024 words that may be stored to, over one block of 32 threads.
#[track_caller]
fn check(twins: &Twins) {
    twins.check_with("GW_TENSOR_MAP(map), u32* out", |device, kernel| {
        let stream = device.stream()?;
        let mut x = stream.upload(&vec![7u32; 1024])?;
        let mut out = stream.upload(&vec![0u32; 1024])?;
        let map = TensorMap::new_mut(&mut x, &layout())?;
        let grid = Grid::new([1, 1, 1], [32, 1, 1]).shared(4096);
        kernel.launch(&stream, &grid, &args![&map, &mut out])?;
        stream.synchronize()
    });
}

/// Thread 0 loads a box of 512 bytes, and all read it.
macro_rules! load {
    ($expected:literal, $load:literal, $wait:literal) => {
        concat!(
            "u32* s = gw::shared<u32>();\ngw::Mbarrier* b = gw::shared<gw::Mbarrier>(4088);\nif (gw::thread() == 0) {\n\
             gw::mbarrier_init(b, 1);\ngw::fence_mbarrier_init();\ngw::mbarrier_arrive_expect(b, ",
            $expected,
            ");\n",
            $load,
            "\n}\ngw::sync_threads();\n",
            $wait
        )
    };
}

/// All write a box of 512 bytes, and thread 0 stores it.
macro_rules! store {
    ($fence:literal, $store:literal, $after:literal) => {
        concat!(
            "u32* s = gw::shared<u32>();\nfor (u32 i = gw::thread(); i < 128; i += 32) s[i] = i;\n",
            $fence,
            "\ngw::sync_threads();\nif (gw::thread() == 0) {\n",
            $store,
            "\ngw::bulk_commit();\n",
            $after,
            "\n}"
        )
    };
}

#[test]
fn a_box_lies_inside_of_shared_memory() {
    check(&Twins {
        body: load!(
            "512",
            "gw::bulk_tensor_load(s + HOLE, map, b, 0, 0);  // here",
            "gw::mbarrier_wait(b, 0);\nout[gw::thread()] = s[512 + gw::thread()];"
        ),
        bug: "928",
        fix: "512",
        kind: FaultKind::OutOfBounds,
        words: "a box of 512 bytes",
    });
}

#[test]
fn a_box_lies_at_a_multiple_of_its_alignment() {
    check(&Twins {
        body: load!(
            "512",
            "gw::bulk_tensor_load(s + HOLE, map, b, 0, 0);  // here",
            "gw::mbarrier_wait(b, 0);"
        ),
        bug: "4",
        fix: "32",
        kind: FaultKind::Misaligned,
        words: "no multiple of 128",
    });
}

#[test]
fn a_box_has_as_many_coordinates_as_its_tensor() {
    check(&Twins {
        body: load!("512", "gw::bulk_tensor_load(s, map, b, HOLE);  // here", "gw::mbarrier_wait(b, 0);"),
        bug: "0, 0, 0",
        fix: "0, 0",
        kind: FaultKind::Protocol,
        words: "3 coordinates of a tensor of 2 dimensions",
    });
}

#[test]
fn all_bytes_of_a_box_are_expected_also_those_outside() {
    check(&Twins {
        body: load!(
            "HOLE",
            "gw::bulk_tensor_load(s, map, b, 24, 0);",
            "gw::mbarrier_wait(b, 0);  // here\nout[gw::thread()] = s[gw::thread()];"
        ),
        bug: "768",
        fix: "512",
        kind: FaultKind::Deadlock,
        words: "the phase of parity 0",
    });
}

#[test]
fn a_box_is_waited_for_before_it_is_read() {
    check(&Twins {
        body: load!(
            "512",
            "gw::bulk_tensor_load(s, map, b, 0, 0);",
            "HOLE\nout[gw::thread()] = s[gw::thread()];  // here\ngw::mbarrier_wait(b, 0);"
        ),
        bug: "",
        fix: "gw::mbarrier_wait(b, 0);",
        kind: FaultKind::Race,
        words: "a bulk copy for the mbarrier",
    });
}

#[test]
fn a_box_is_read_before_the_next_one_takes_its_place() {
    check(&Twins {
        body: load!(
            "512",
            "gw::bulk_tensor_load(s, map, b, 0, 0);",
            "gw::mbarrier_wait(b, 0);\nout[gw::thread()] = s[gw::thread()];\nHOLE\nif (gw::thread() == 0) {\n\
             gw::mbarrier_arrive_expect(b, 512);\ngw::bulk_tensor_load(s, map, b, 16, 0);  // here\n}\n\
             gw::mbarrier_wait(b, 1);"
        ),
        bug: "gw::sync_warp(1u << gw::lane());",
        fix: "gw::sync_warp();",
        kind: FaultKind::Race,
        words: "nothing orders the two",
    });
}

#[test]
fn a_map_stays_where_the_launch_put_it() {
    check(&Twins {
        body: load!(
            "512",
            "gw::TensorMap copy = map;\nconst gw::TensorMap& other = copy;\n\
             gw::bulk_tensor_load(s, HOLE, b, 0, 0);  // here",
            "gw::mbarrier_wait(b, 0);"
        ),
        bug: "other",
        fix: "map",
        kind: FaultKind::Protocol,
        words: "take it by GW_TENSOR_MAP",
    });
}

#[test]
fn a_box_starts_at_a_multiple_of_16_bytes_of_a_row() {
    check(&Twins {
        body: load!("512", "gw::bulk_tensor_load(s, map, b, HOLE, -3);  // here", "gw::mbarrier_wait(b, 0);"),
        bug: "-2",
        fix: "-8",
        kind: FaultKind::Misaligned,
        words: "byte -8 of a row, which is no multiple of 16",
    });
    check(&Twins {
        body: store!(
            "gw::fence_async_proxy_shared();",
            "gw::bulk_tensor_store(map, s, HOLE, 8);  // here",
            "gw::bulk_wait<0>();"
        ),
        bug: "15",
        fix: "20",
        kind: FaultKind::Misaligned,
        words: "byte 60 of a row",
    });
}

#[test]
fn a_store_does_not_start_before_the_tensor() {
    check(&Twins {
        body: store!(
            "gw::fence_async_proxy_shared();",
            "gw::bulk_tensor_store(map, s, HOLE);  // here",
            "gw::bulk_wait<0>();"
        ),
        bug: "-4, 8",
        fix: "28, 30",
        kind: FaultKind::OutOfBounds,
        words: "coordinate -4",
    });
}

#[test]
fn a_prefetch_takes_the_map_s_coordinates() {
    check(&Twins {
        body: "gw::tensor_map_prefetch(map);\ngw::bulk_tensor_prefetch(map, HOLE);  // here\nout[gw::thread()] = 1;",
        bug: "0",
        fix: "0, 8",
        kind: FaultKind::Protocol,
        words: "1 coordinates",
    });
}

#[test]
fn what_a_tensor_store_reads_was_fenced() {
    check(&Twins {
        body: store!("HOLE", "gw::bulk_tensor_store(map, s, 16, 8);  // here", "gw::bulk_wait<0>();"),
        bug: "gw::fence_async_proxy_global();",
        fix: "gw::fence_async_proxy_shared();",
        kind: FaultKind::Race,
        words: "fence_async_proxy_shared",
    });
}

#[test]
fn two_boxes_of_a_tensor_do_not_overlap() {
    check(&Twins {
        body: store!(
            "gw::fence_async_proxy_shared();",
            "}\nif (gw::thread() < 2) {\ngw::bulk_tensor_store(map, s, HOLE * gw::thread(), 8);  // here",
            "gw::bulk_wait<0>();"
        ),
        bug: "12",
        fix: "16",
        kind: FaultKind::Race,
        words: "a bulk store of thread",
    });
}

#[test]
fn a_box_that_was_stored_is_waited_for_before_it_is_loaded() {
    check(&Twins {
        body: "u32* s = gw::shared<u32>();\nif (gw::thread() > 0) return;\nfor (u32 i = 0; i < 128; ++i) s[i] = i;\n\
               gw::Mbarrier* b = gw::shared<gw::Mbarrier>(4088);\ngw::mbarrier_init(b, 1);\ngw::fence_async_proxy_shared();\n\
               gw::bulk_tensor_store(map, s, 0, 0);\ngw::bulk_commit();\nHOLE\ngw::mbarrier_arrive_expect(b, 512);\n\
               gw::bulk_tensor_load(s + 128, map, b, 8, 4);  // here\ngw::mbarrier_wait(b, 0);\ngw::bulk_wait<0>();",
        bug: "gw::bulk_wait_read<0>();",
        fix: "gw::bulk_wait<0>();",
        kind: FaultKind::Race,
        words: "a bulk store of thread",
    });
}

#[test]
fn a_box_goes_to_every_block_of_the_mask() -> Result<()> {
    let text = "#include \"gw/gw.cuh\"\nGW_KERNEL(spread)(GW_TENSOR_MAP(map), u32* out) {\n\
                u32* s = gw::shared<u32>();\ngw::Mbarrier* b = gw::shared<gw::Mbarrier>(4088);\n\
                if (gw::thread() == 0) {\ngw::mbarrier_init(b, 1);\ngw::fence_mbarrier_init();\n\
                gw::mbarrier_arrive_expect(b, 512);\n}\ngw::sync_cluster();\n\
                if (gw::cluster_rank() == 1 && gw::thread() == 0) gw::bulk_tensor_load_multicast(s, map, b, 7, -4, 31);\n\
                gw::mbarrier_wait(b, 0);\nout[gw::global_thread()] = s[gw::thread()];\n}";
    for seed in 0..20 {
        let device = Device::emulated(seed)?;
        let stream = device.stream()?;
        let x = stream.upload(&std::array::from_fn::<u32, 1024, _>(|i| i as u32))?;
        let mut out = stream.alloc::<u32>(6 * 32)?;
        let map = TensorMap::new(&x, &layout())?;
        let grid = Grid::new([6, 1, 1], [32, 1, 1]).shared(4096).cluster([3, 1, 1]);
        device.kernel(&Source::new("spread", text))?.launch(&stream, &grid, &args![&map, &mut out])?;
        let row = |t: u32| if !(4..16).contains(&t) { 0 } else { 31 * 32 + t - 4 };
        for block in stream.download(&out)?.chunks(32) {
            assert_eq!(block, std::array::from_fn::<u32, 32, _>(|t| row(t as u32)), "seed {seed}");
        }
    }
    Ok(())
}

#[test]
fn rows_of_a_tensor_that_is_stored_to_are_whole() -> Result<()> {
    let stream = Device::emulated(0)?.stream()?;
    let mut x = stream.alloc_zeros::<u32>(1024)?;
    let odd =
        TensorLayout { extents: vec![30, 4], strides: vec![128], boxed: vec![16, 2], swizzle: Swizzle::None };
    assert!(TensorMap::new(&x, &odd).is_ok(), "loads are cut off by elements");
    let refused = TensorMap::new_mut(&mut x, &odd).unwrap_err().to_string();
    assert!(refused.contains("rows of 120 bytes to store to"), "{refused}");
    let whole = TensorLayout { extents: vec![28, 4], ..odd };
    assert!(TensorMap::new_mut(&mut x, &whole).is_ok());
    Ok(())
}

#[test]
fn a_map_for_loads_is_not_stored_to() -> Result<()> {
    let text = "#include \"gw/gw.cuh\"\nGW_KERNEL(keep)(GW_TENSOR_MAP(map)) {\ngw::bulk_tensor_store(map, gw::shared<u8>(), 0, 0);\n\
                gw::bulk_commit();\ngw::bulk_wait<0>();\n}";
    let device = Device::emulated(0)?;
    let stream = device.stream()?;
    let x = stream.upload(&vec![7u32; 1024])?;
    let map = TensorMap::new(&x, &layout())?;
    let grid = Grid::new([1, 1, 1], [1, 1, 1]).shared(4096);
    device.kernel(&Source::new("keep", text))?.launch(&stream, &grid, &args![&map])?;
    let Err(Error::Fault(fault)) = stream.synchronize() else { panic!("the store went unseen") };
    assert_eq!((fault.kind, fault.site.map(|site| site.line)), (FaultKind::Protocol, Some(3)));
    assert!(fault.message.contains("TensorMap::new_mut"));
    Ok(())
}

#[test]
fn words_that_are_no_map_are_a_fault_and_no_access() -> Result<()> {
    let text = "#include \"gw/gw.cuh\"\nGW_KERNEL(wild)(GW_TENSOR_MAP(map)) {\ngw::bulk_tensor_prefetch(map, 0, 0);\n}";
    let device = Device::emulated(0)?;
    let kernel = device.kernel(&Source::new("wild", text))?;
    let stream = device.stream()?;
    for words in [[0u64; 16], [u64::MAX; 16]] {
        kernel.launch(&stream, &Grid::new([1; 3], [1; 3]), &args![ByValue(&words)])?;
        let Err(Error::Fault(fault)) = stream.synchronize() else { panic!("the words were taken") };
        assert_eq!(fault.kind, FaultKind::Protocol, "{fault}");
    }
    Ok(())
}

#[test]
fn a_map_that_cannot_be_is_refused_with_a_sentence() -> Result<()> {
    let device = Device::emulated(0)?;
    let stream = device.stream()?;
    let x = stream.upload(&vec![7u32; 1024])?;
    let refused = |map: Result<TensorMap<'_>>| match map {
        Err(Error::TensorMap { message }) => message,
        other => panic!("{other:?}"),
    };
    let wide = TensorLayout::dense::<u32>(&[32, 33], &[16, 8]);
    assert!(refused(TensorMap::new(&x, &wide)).contains("spans 4224 bytes in memory of 4096"));
    let odd = TensorLayout::dense::<u32>(&[30, 30], &[16, 8]);
    assert!(refused(TensorMap::new(&x, &odd)).contains("a stride of 120 bytes"));
    let swizzled = layout().swizzle(Swizzle::Bytes128);
    assert!(refused(TensorMap::new(&x, &swizzled)).contains("under a swizzle of rows of 128"));
    let small = TensorLayout::dense::<u32>(&[16, 16], &[16, 8]);
    assert!(refused(TensorMap::new(&x.slice(1..), &small)).contains("starts at a multiple of 16"));
    TensorMap::new(&x.slice(4..), &small)?;
    Ok(())
}
