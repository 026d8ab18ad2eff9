//! Memory of the device: every allocation may fail, and nothing stays behind.

use std::sync::Arc;

use super::device;
use crate::backend::{Backend, MatmulShape};
use crate::cuda::CudaBackend;
use crate::executor::{deal_on, run_in_process_on};
use crate::gates::Activation;
use crate::{CpuBackend, Error, Evaluator, FixedPoint, Party, Randomness, Result, Ring};

/// A truncation, a table, a comparison and a product of matrices.
async fn some_gates(evaluator: &Evaluator) -> Result<Option<Vec<u64>>> {
    let ring = Ring::new(50)?;
    let x = evaluator.input(Party::One, ring, 6, -20_000..=20_000).await?;
    let matrix = evaluator.weights(Party::Zero, ring, 6, -100..=100).await?;
    let gelu = evaluator.open(Activation::gelu(12)?.apply(evaluator, &x).await?).await?;
    let mask = evaluator.mask_share(&gelu)?;
    let shape = MatmulShape { batch: 1, rows: 2, inner: 3, columns: 2 };
    let product = evaluator.matmul(&gelu, &mask, matrix.wire(), matrix.mask(), shape)?;
    let product = evaluator.open(product).await?;
    evaluator.reveal(&product, Party::One)
}

#[test]
fn every_allocation_that_fails_is_an_error_and_the_next_run_works() {
    let (device, format) = (device(), FixedPoint::new(50, 12).unwrap());
    let cuda = Arc::new(CudaBackend::new(&device).unwrap());
    let held = device.budget().held();
    let run = |refused: u64| {
        device.faults().refuse_allocation(refused);
        let backends: [Arc<dyn Backend>; 2] = [cuda.clone(), Arc::new(CpuBackend)];
        let inputs =
            [vec![None, Some(vec![1, 2, 3, 4, 5, 6])], vec![Some(vec![7, 80, 900, 10, 11, 12]), None]];
        run_in_process_on(backends, format, some_gates, inputs).map(|[_, one]| one.output)
    };
    let expected = run(0).unwrap();
    let allocations = device.faults().allocations();
    // What is kept between runs, programs of formulas and tables, is not allocated again.
    run(0).unwrap();
    let again = device.faults().allocations();
    assert!(again > 50 && again < allocations, "{again} of {allocations} allocations");
    for refused in 1..=again {
        match run(refused) {
            Err(Error::Device(gatework_gpu::Error::OutOfMemory { .. })) => {}
            Err(other) => panic!("allocation {refused}: {other}"),
            Ok(_) => panic!("allocation {refused} was not missed"),
        }
    }
    assert_eq!(run(0).unwrap(), expected);
    // The dealer's too.
    let deal = |refused: u64| {
        device.faults().refuse_allocation(refused);
        let backend: Arc<dyn Backend> = cuda.clone();
        let mut randomness = Randomness::insecure_from_seed_for_tests(1);
        deal_on(&backend, &mut randomness, format, &[some_gates]).map(|_| ())
    };
    deal(0).unwrap();
    deal(0).unwrap();
    for refused in 1..=device.faults().allocations() {
        let error = deal(refused).err();
        let out_of_memory = matches!(error, Some(Error::Device(gatework_gpu::Error::OutOfMemory { .. })));
        assert!(out_of_memory, "the dealer's allocation {refused}: {error:?}");
    }
    deal(0).unwrap();
    drop(cuda);
    assert!(device.budget().held() <= held);
    assert_eq!(device.budget().held(), 0);
}

/// Sessions share a backend, as those of a server do.
#[test]
fn sessions_side_by_side_give_the_same_and_leave_nothing_behind() {
    let (device, format) = (device(), FixedPoint::new(50, 12).unwrap());
    let [zero, one] = [(), ()].map(|()| Arc::new(CudaBackend::new(&device).unwrap()) as Arc<dyn Backend>);
    let words = || [vec![None, Some(vec![1, 2, 3, 4, 5, 6])], vec![Some(vec![7, 80, 900, 10, 11, 12]), None]];
    let run = || {
        let ran = run_in_process_on([zero.clone(), one.clone()], format, some_gates, words());
        ran.map(|[_, one]| one.output).unwrap()
    };
    let expected = run();
    device.synchronize().unwrap();
    let held = device.budget().held();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..8).for_each(|_| assert_eq!(run(), expected)));
        }
    });
    device.synchronize().unwrap();
    assert_eq!(device.budget().held(), held, "what is kept between runs does not grow");
}
