//! A party on the emulated device: its memory is planned, may run out at any allocation, and is given back.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Instant;

use gatework_fss::backend_on;
use gatework_gpu::{Device, Target};

use super::*;
use crate::model::RandomModel;

/// The emulated device takes its time.
const PATIENT: Timeouts = Timeouts { connect: Duration::from_secs(60), message: Duration::from_secs(120) };
const EIGHT: [u32; 8] = [3, 17, 5, 23, 1, 0, 9, 20];

/// A model with weights, keys for it, and texts of their length.
struct Case {
    public: PublicModel,
    owner: Owner,
    text: Vec<u32>,
    expected: Vec<u64>,
}

impl Case {
    fn of((public, owner): (PublicModel, Owner), text: &[u32]) -> Self {
        let whole = public.network(public.longest()).unwrap();
        let weights = run_clear(&whole.set_up(), owner.set_up_inputs()).unwrap().output;
        let network = public.network(text.len()).unwrap();
        let input = vec![Some(public.encode_tokens(text).unwrap())];
        let expected = run_clear(&network.inference(&weights), input).unwrap().output.unwrap();
        Self { public, owner, text: text.to_vec(), expected }
    }

    fn layer() -> Self {
        Self::of(small::model(1), &EIGHT)
    }

    /// Two layers of a BERT or a GPT-2.
    fn toy(name: &str) -> Self {
        let model = RandomModel::new(name, 3).unwrap();
        let public = model.public(3).unwrap();
        let owner = Owner::new(&public, model.weights(&public).unwrap()).unwrap();
        Self::of((public, owner), &[5, 9, 31])
    }

    /// In a folder in memory where there is one: every key that is used is synced to disk several times.
    fn scene(&self, keys: usize) -> Scene {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        Scene::of_in(folder.unwrap(), &self.public, &vec![self.text.len(); keys])
    }

    /// One session with one inference, before whose gates `begin` is called; what came of it at the server
    /// and at the client.
    fn ask(
        &self,
        scene: &Scene,
        [zero, one]: [&Arc<dyn Backend>; 2],
        begin: impl FnOnce(),
    ) -> (Result<Summary>, Answer) {
        let (listener, address) = listen("127.0.0.1:0").unwrap();
        thread::scope(|scope| {
            let server = scope.spawn(|| {
                let keys = KeyStore::open(&scene.server)?;
                let (socket, _) = listener.accept().unwrap();
                let link = Link::accept(socket, &CERTIFICATES.1.server()?, PATIENT)?;
                Server::new(&self.owner, &keys).on(zero.clone()).serve(link)
            });
            let identity = CERTIFICATES.1.client().unwrap();
            let asked = || {
                let link = Link::connect(&address.to_string(), "localhost", &identity, PATIENT)?;
                let mut client = Client::on(&self.public, one.clone(), scene.keys()?, link)?;
                client.set_up()?;
                begin();
                let results = client.infer(std::slice::from_ref(&self.text))?;
                Ok((results, client.finish()?))
            };
            let answer = asked();
            (server.join().unwrap(), answer)
        })
    }

    /// Refuses one allocation of an inference after the other, with a party on the device.
    fn every_allocation_may_fail(&self, on_device: Party, numbers: impl Fn(u64) -> Vec<u64>) {
        const PER_DEAL: usize = 100;
        let device = Device::emulated(5).unwrap();
        let gpu = backend_on(&Target::Gpu(device.clone())).unwrap();
        let backends = match on_device {
            Party::Zero => [&gpu, &cpu()],
            Party::One => [&cpu(), &gpu],
        };
        let scene = self.scene(3);
        let started = Instant::now();
        let works = |scene: &Scene| {
            device.faults().refuse_allocation(0);
            device.faults().leave_out_kernels(false);
            let (server, client) = self.ask(scene, backends, || ());
            assert_eq!(client.unwrap().0, std::slice::from_ref(&self.expected));
            server.unwrap();
        };
        works(&scene);
        // What is kept between inferences is there now.
        let refuse = |number: u64| {
            // The server may still be busy with the weights.
            let mut before = u64::MAX;
            while on_device == Party::Zero && device.faults().allocations() != before {
                before = device.faults().allocations();
                thread::sleep(Duration::from_millis(50));
            }
            device.faults().refuse_allocation(number);
        };
        let (_, counted) = self.ask(&scene, backends, || refuse(0));
        let (allocations, held) = (device.faults().allocations(), device.budget().held());
        counted.unwrap();
        assert!(allocations > 100, "{allocations}");
        let numbers = numbers(allocations);
        println!(
            "{} of {allocations} allocations, after {:.1} s",
            numbers.len(),
            started.elapsed().as_secs_f64()
        );
        // What the host does depends on no value.
        for numbers in numbers.chunks(PER_DEAL) {
            let scene = self.scene(numbers.len() + 1);
            device.faults().leave_out_kernels(true);
            for &number in numbers {
                let (server, client) = self.ask(&scene, backends, || refuse(number));
                let (failed, other) = match on_device {
                    Party::Zero => (server.err(), client.err()),
                    Party::One => (client.err(), server.err()),
                };
                let failed = failed.unwrap_or_else(|| panic!("allocation {number} was not missed"));
                let typed = matches!(
                    &failed,
                    Error::Fss(gatework_fss::Error::Device(gatework_gpu::Error::OutOfMemory { .. }))
                );
                assert!(typed && failed.to_string().contains("out of device memory"), "{number}: {failed}");
                // A server may fail when the client has its result already.
                let heard = matches!(other, Some(Error::Closed));
                assert!(heard || other.is_none() && on_device == Party::Zero, "{number}: {other:?}");
            }
            let expected: Vec<bool> =
                (0..numbers.len() + 2).map(|s| (1..=numbers.len()).contains(&s)).collect();
            assert_eq!(used(&scene.server, Party::Zero), expected);
            assert_eq!(used(&scene.client, Party::One), expected);
            // On the same device, with the key that is left.
            let (_, next) = self.ask(&scene, backends, || refuse(0));
            next.unwrap();
        }
        works(&scene);
        println!("all of them after {:.1} s", started.elapsed().as_secs_f64());
        device.synchronize().unwrap();
        assert_eq!(device.budget().held(), held, "nothing stays behind");
        assert_eq!(device.budget().promised(), 0);
    }
}

#[test]
fn out_of_memory_at_every_allocation_of_a_layer_burns_the_key_and_the_next_run_works() {
    Case::layer().every_allocation_may_fail(Party::One, |count| (1..=count).collect());
}

/// Twenty of them, spread out, the first and the last included.
fn sampled(count: u64) -> Vec<u64> {
    (0..20).map(|sample| 1 + sample * (count - 1) / 19).collect()
}

#[test]
fn out_of_memory_in_two_layers_of_bert_burns_the_key_and_the_next_run_works() {
    Case::toy("bert-toy").every_allocation_may_fail(Party::Zero, sampled);
}

#[test]
fn out_of_memory_in_two_layers_of_gpt2_burns_the_key_and_the_next_run_works() {
    Case::toy("gpt2-toy").every_allocation_may_fail(Party::One, sampled);
}

/// What was planned is what is held, and what does not fit is refused before a key is used.
#[test]
fn memory_is_planned_before_a_key_is_used() {
    for (name, party) in [("bert-toy", Party::One), ("bert-toy", Party::Zero), ("gpt2-toy", Party::One)] {
        let case = Case::toy(name);
        let device = Device::emulated(6).unwrap();
        let gpu = backend_on(&Target::Gpu(device.clone())).unwrap();
        device.faults().leave_out_kernels(true);
        let backends = match party {
            Party::Zero => [&gpu, &cpu()],
            Party::One => [&cpu(), &gpu],
        };
        let scene = case.scene(3);
        // Tables and programs are kept from the first session on.
        case.ask(&scene, backends, || ()).1.unwrap();
        device.budget().reset_peak();
        let (server, client) = case.ask(&scene, backends, || ());
        let summary = match party {
            Party::Zero => server.unwrap(),
            Party::One => client.unwrap().1,
        };
        let (planned, peak) = (summary.planned_device_bytes.unwrap(), device.budget().peak());
        println!("{name}, party {party}: {planned} bytes planned, {peak} held at most");
        assert!(planned.abs_diff(peak) * 10 <= peak, "{name}: {planned} planned, {peak} held");
        // Whoever describes or deals foresees the same, and refuses what does not fit.
        let foreseen = foresee_device(&gpu, &case.public, &[case.text.len()]).unwrap().unwrap();
        assert_eq!(foreseen.set_up[party.index()].max(foreseen.peak[party.index()]), planned);
        assert!(foresee_device(&cpu(), &case.public, &[case.text.len()]).unwrap().is_none());
        device.budget().set_limit(planned / 2);
        let error = foresee_device(&gpu, &case.public, &[case.text.len()]).unwrap_err();
        assert!(matches!(error, Error::NoDeviceMemory { limit, .. } if limit == planned / 2), "{error}");
        // One byte less than the plan is not enough, and neither side uses a key for it.
        device.budget().set_limit(planned - 1);
        let (server, client) = case.ask(&scene, backends, || ());
        let refused = match party {
            Party::Zero => server.unwrap_err(),
            Party::One => client.err().unwrap(),
        };
        let numbers = matches!(
            refused,
            Error::NoDeviceMemory { needed, promised: 0, limit } if needed == planned && limit == planned - 1
        );
        assert!(numbers && refused.to_string().contains(&planned.to_string()), "{refused}");
        assert_eq!(used(&scene.server, Party::Zero), [false, true, true, false]);
        assert_eq!(used(&scene.client, Party::One), [false, true, true, false]);
        device.budget().set_limit(planned);
        case.ask(&scene, backends, || ()).1.unwrap();
        assert_eq!(device.budget().promised(), 0);
    }
}

/// Several clients at once, on the device and on the CPU, with what they leave behind.
#[test]
fn a_hundred_inferences_side_by_side_neither_hang_nor_grow() {
    const SESSIONS: usize = 4;
    const EACH: usize = 25;
    let (done, waiting) = channel::<()>();
    let work = thread::spawn(move || {
        let case = Case::of(small::model(1), &TEXT[..2]);
        // One runs its kernels, and the other's sessions only meet: that takes a tenth of the time.
        let [device, meeting] = [8, 9].map(|seed| Device::emulated(seed).unwrap());
        meeting.faults().leave_out_kernels(true);
        let on = |device: &Device| backend_on(&Target::Gpu(device.clone())).unwrap();
        // The servers share a queue, as sessions of one process do; a client has its own.
        let (alone, server, client) = (on(&device), on(&meeting), on(&meeting));
        let pairs: [[&Arc<dyn Backend>; 2]; SESSIONS] =
            [[&alone, &cpu()], [&server, &client], [&server, &cpu()], [&cpu(), &client]];
        let warm = case.scene(2 * SESSIONS);
        pairs.iter().chain(&pairs).for_each(|pair| drop(case.ask(&warm, *pair, || ()).1.unwrap()));
        let held = |device: &Device| {
            device.synchronize().unwrap();
            assert_eq!(device.budget().promised(), 0);
            (device.budget().held(), device.pinned().stats().held)
        };
        let before = [&device, &meeting].map(held);
        thread::scope(|scope| {
            for (number, pair) in pairs.into_iter().enumerate() {
                let case = &case;
                scope.spawn(move || {
                    let scene = case.scene(EACH);
                    for _ in 0..EACH {
                        let (server, client) = case.ask(&scene, pair, || ());
                        let results = client.unwrap().0;
                        assert!(number > 0 || results == [case.expected.clone()]);
                        server.unwrap();
                    }
                });
            }
        });
        let after = [&device, &meeting].map(held);
        assert_eq!(after.map(|held| held.0), before.map(|held| held.0), "device memory grows");
        // A message that a thread of the network has not let go yet is a block more; what is lost with every
        // inference is more than that.
        let lost = EACH as u64 * 4096;
        assert!(after[0].1 < before[0].1 + lost, "page-locked memory grows: {before:?}, then {after:?}");
        // Sessions side by side need blocks side by side; the pool has them once.
        assert!(after[1].1 <= SESSIONS as u64 * before[1].1, "page-locked: {before:?}, then {after:?}");
        drop((alone, server, client));
        assert_eq!((device.budget().held(), meeting.budget().held()), (0, 0));
        // Whoever waits hears of a panic by the end of this.
        drop(done);
    });
    match waiting.recv_timeout(Duration::from_secs(300)) {
        Err(RecvTimeoutError::Disconnected) => work.join().unwrap(),
        _ => panic!("a hundred inferences take more than five minutes: somebody waits for nobody"),
    }
}

/// A session in which a client prepares and lets go, and one in which it wants a key again that was used.
#[test]
fn what_is_not_used_is_not_promised_and_what_is_used_is_not_rehearsed() {
    let case = Case::toy("bert-toy");
    let device = Device::emulated(6).unwrap();
    let gpu = backend_on(&Target::Gpu(device.clone())).unwrap();
    device.faults().leave_out_kernels(true);
    let scene = case.scene(3);
    let (listener, address) = listen("127.0.0.1:0").unwrap();
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let keys = KeyStore::open(&scene.server)?;
            let (socket, _) = listener.accept().unwrap();
            let link = Link::accept(socket, &CERTIFICATES.1.server()?, PATIENT)?;
            Server::new(&case.owner, &keys).on(cpu()).serve(link)
        });
        let identity = CERTIFICATES.1.client().unwrap();
        let link = Link::connect(&address.to_string(), "localhost", &identity, PATIENT).unwrap();
        let mut client = Client::on(&case.public, gpu.clone(), scene.keys().unwrap(), link).unwrap();
        client.set_up().unwrap();
        let weights = device.budget().promised();
        let prepared = client.prepare(&[case.text.len()]).unwrap();
        assert!(device.budget().promised() > weights, "an inference holds more than the weights");
        drop(prepared);
        assert_eq!(device.budget().promised(), weights);
        // Keys of two texts, one of which was used just now.
        let mut pair = client.into_pair();
        let error = pair.prepare(&[2, 1]).unwrap_err();
        assert!(matches!(error, Error::Reused { section: 1 }), "{error}");
        let lengths = [case.text.len(); 2];
        assert!(!pair.lengths.has_rehearsed(&lengths));
        pair.prepare(&[2, 3]).unwrap();
        assert!(pair.lengths.has_rehearsed(&lengths));
        pair.send(&Message::Done).unwrap();
        server.join().unwrap().unwrap();
    });
}
