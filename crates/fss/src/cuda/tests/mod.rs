//! Every call of the backend on the emulated device, equal to the CPU's bit for bit.

mod memory;

use std::sync::Arc;

use gatework_gpu::{Architecture, ByValue, Device, Grid, Source, args, compile, presence};

use super::kernels;
use super::prg::Generator;
use super::queue::Queue;
use super::shared::PRG_THREADS;
use super::*;
use crate::key::{KeySink, Material, Pieces};
use crate::prg::Cipher;
use crate::ring::packed_bytes;
use crate::secret::SharedBytes;
use crate::{CpuBackend, Error};

const FORMS: [AesForm; 5] = [
    AesForm::Table { copies: 32 },
    AesForm::Table { copies: 1 },
    AesForm::Pairs,
    AesForm::Quads,
    AesForm::BitPlanes,
];

fn device() -> Device {
    Device::emulated(11).unwrap()
}

fn backends() -> [Arc<dyn Backend>; 2] {
    backends_with(AesForm::Table { copies: 1 })
}

/// The CPU and the device, with a form of AES, and so few bytes of keys at once that most arrays lie in
/// several chunks.
fn backends_with(aes: AesForm) -> [Arc<dyn Backend>; 2] {
    let device = device();
    let schedule = Schedule {
        aes,
        keys: KeyAhead { chunk: 1024, staged: 3072, copied: 2048, under_way: 2 },
        leaves_each: 16,
        ..Schedule::of(&device)
    };
    [Arc::new(CpuBackend), Arc::new(CudaBackend::with(&device, schedule).unwrap())]
}

fn spread(len: usize, bits: u32, seed: u64) -> Vec<u64> {
    let word = |i: u64| {
        let x = (i + 1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(seed.wrapping_mul(0xd134_2543_de82_ef95));
        (x ^ x >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ x >> 17
    };
    (0..len as u64).map(|i| word(i) & (u64::MAX >> (64 - bits))).collect()
}

fn upload(backend: &Arc<dyn Backend>, words: &[u64]) -> Handle {
    backend.upload(Secret::new(words.to_vec())).unwrap()
}

fn download(backend: &Arc<dyn Backend>, words: &Handle) -> Vec<u64> {
    backend.download(words).unwrap().to_vec()
}

/// What both backends give, which must be the same.
fn same(
    what: &str,
    backends: &[Arc<dyn Backend>; 2],
    give: impl Fn(&Arc<dyn Backend>) -> Handle,
) -> Vec<u64> {
    let [host, device] = backends.each_ref().map(|backend| download(backend, &give(backend)));
    let different = host.iter().zip(&device).position(|(host, device)| host != device);
    assert_eq!((host.len(), different), (device.len(), None), "{what}: the first word that differs");
    host
}

/// blocks[i] <- AES_k(blocks[i]). One thread two blocks.
const ENCRYPT: &str = r#"
#include "aes.cuh"
GW_KERNEL(encrypt)(const u32* table, RoundKeys keys, u64 count, u64* blocks) {
    const aes::Cipher cipher = aes::prepare(keys, table);
    gw::sync_threads();
    const u64 at = 2 * gw::global_thread();
    if (at >= count) return;
    Block pair[2] = {load_block(blocks, at), load_block(blocks, at + 1 < count ? at + 1 : at)};
    cipher.encrypt(pair);
    store_block(blocks, at, pair[0]);
    if (at + 1 < count) store_block(blocks, at + 1, pair[1]);
}
"#;

fn encrypted(form: AesForm, key: u128, blocks: &[u128]) -> Vec<u128> {
    let queue = Queue::new(&device()).unwrap();
    let generator = Generator::new(&queue, form).unwrap();
    let mut words = queue.upload::<u64>(bytemuck::cast_slice(blocks)).unwrap();
    let grid = Grid::covering(blocks.len().div_ceil(2), PRG_THREADS).shared(form.shared_bytes());
    let keys = generator.keys(key);
    let arguments = args![&generator.table, ByValue(&keys), blocks.len() as u64, &mut words];
    // The definitions are those of a module in this form.
    let definitions = match form {
        AesForm::Table { copies } => {
            format!("#define AES_BITSLICED 0\n#define AES_TABLES 1\n#define AES_COPIES {copies}\n")
        }
        AesForm::Pairs => "#define AES_BITSLICED 0\n#define AES_TABLES 2\n".to_owned(),
        AesForm::Quads => "#define AES_BITSLICED 0\n#define AES_TABLES 4\n".to_owned(),
        AesForm::BitPlanes => "#define AES_BITSLICED 1\n".to_owned(),
    };
    let source = kernels::with_headers(Source::new("encrypt", definitions + ENCRYPT));
    queue.device().kernel(&source).unwrap().launch(queue.stream(), &grid, &arguments).unwrap();
    bytemuck::cast_slice(&queue.stream().download(&words).unwrap()).to_vec()
}

fn block(hex: &str) -> u128 {
    u128::from_be_bytes(u128::from_str_radix(hex, 16).unwrap().to_le_bytes())
}

/// Every module in every form that it can have.
fn modules() -> Vec<gatework_gpu::Module> {
    let plain = [kernels::ARITHMETIC, kernels::GEMM, kernels::PACKING, kernels::SUMS];
    let limbs = (1..=8u32).map(|limbs| kernels::LIMBS.define("LIMBS", limbs));
    let ciphers = [kernels::COMPARE, kernels::GENERATE, kernels::LOOKUP, kernels::PRG, kernels::ROOTS];
    let forms = FORMS.iter().flat_map(|form| ciphers.iter().map(|module| form.module(module)));
    let modules = plain.into_iter().chain(limbs).chain(forms);
    #[cfg(feature = "lab")]
    let modules = modules.chain([FORMS[0].module(&kernels::PUBLISHED)]);
    modules.collect()
}

/// Without NVRTC, which needs no GPU, only the emulated device's compiler is asked.
#[test]
fn every_module_compiles_and_none_spills() {
    for module in modules() {
        compile(&module.source(), &Architecture::Emulated).unwrap();
    }
    if !presence::nvrtc().is_found() {
        eprintln!("NVRTC was not found: nothing was compiled for sm_90a");
        return;
    }
    for module in modules() {
        let binary = compile(&module.source(), &Architecture::Sm("sm_90a".into())).unwrap();
        for (kernel, resources) in &binary.resources {
            assert_eq!(resources.spill_stores + resources.spill_loads, 0, "{kernel}");
            assert_eq!(resources.stack_bytes, 0, "{kernel}");
        }
    }
}

#[test]
fn fips_197_vectors() {
    // Appendix B, appendix C.1, and a vector of NIST SP 800-38A F.1.1.
    let vectors = [
        (
            "2b7e151628aed2a6abf7158809cf4f3c",
            "3243f6a8885a308d313198a2e0370734",
            "3925841d02dc09fbdc118597196a0b32",
        ),
        (
            "000102030405060708090a0b0c0d0e0f",
            "00112233445566778899aabbccddeeff",
            "69c4e0d86a7b0430d8cdb78070b4c55a",
        ),
        (
            "2b7e151628aed2a6abf7158809cf4f3c",
            "6bc1bee22e409f96e93d7e117393172a",
            "3ad77bb40d7a3660a89ecaf32466ef97",
        ),
    ];
    for form in FORMS {
        for (key, plain, expected) in vectors {
            let found = encrypted(form, block(key), &[block(plain); 3]);
            assert_eq!(found, [block(expected); 3], "{form:?}");
        }
    }
}

#[test]
fn random_blocks_match_cpu() {
    let words = spread(2 * 301, 64, 5);
    let blocks: Vec<u128> = bytemuck::cast_slice::<u64, [u64; 2]>(&words)
        .iter()
        .map(|[lo, hi]| u128::from(*lo) | u128::from(*hi) << 64)
        .collect();
    for form in FORMS {
        for key in [0, 42, u128::MAX, blocks[7]] {
            let mut expected = blocks.clone();
            Cipher::portable(key).encrypt(&mut expected);
            assert_eq!(encrypted(form, key, &blocks), expected, "{form:?} under {key:x}");
        }
    }
}

/// A section of every kind of material, as a dealer on `backend` writes it; also the dealer's own words.
fn deal(backend: &Arc<dyn Backend>, domain: u32, len: usize, bits: u32) -> (Vec<Vec<u64>>, [Secret<u8>; 2]) {
    let ring = Ring::new(bits).unwrap();
    let mut keys = backend.dealer_keys([3, 5], 77).unwrap();
    let mut bytes = [Secret::default(), Secret::default()];
    let mut seen = vec![keys.derived(len, ring).unwrap()];
    seen.push(keys.derived_by(Party::One, len, ring).unwrap());
    let values = upload(backend, &spread(len, bits, 1));
    keys.share(&values, len, ring).unwrap();
    let [zero, one] = &mut bytes;
    let first = keys.write(&mut [zero, one]).unwrap();
    keys.give(Party::Zero, &values, len, ring).unwrap();
    seen.push(keys.points(domain, &upload(backend, &spread(len, 64, 2)), len).unwrap());
    keys.share(&values, len, ring).unwrap();
    let [zero, one] = &mut bytes;
    let second = keys.write(&mut [zero, one]).unwrap();
    let [zero, one] = &mut bytes;
    let last = keys.finish(&mut [zero, one]).unwrap();
    assert_eq!(
        [0, 1].map(|party: usize| first[party] + second[party] + last[party]),
        bytes.each_ref().map(|bytes| bytes.len() as u64)
    );
    (seen.iter().map(|handle| download(backend, handle)).collect(), bytes)
}

/// Everything that a party reads, and evaluates, of such a section.
fn read(
    backend: &Arc<dyn Backend>,
    party: Party,
    bytes: &Secret<u8>,
    (domain, len, bits): (u32, usize, u32),
) -> (Vec<Vec<u64>>, u64) {
    let ring = Ring::new(bits).unwrap();
    let material = Box::new(SharedBytes::new(bytes.clone()));
    let section = KeySection::new([3, 5][party.index()], 77, bytes.len() as u64, material);
    let mut keys = backend.party_keys(party, section).unwrap();
    let mut seen = vec![keys.derived(len, ring).unwrap()];
    if party == Party::One {
        seen.push(keys.derived_alone(len, ring).unwrap());
    }
    seen.push(keys.shares(len, ring).unwrap());
    if party == Party::Zero {
        seen.push(keys.given(len, ring).unwrap());
    }
    let points = keys.points(domain, len).unwrap();
    seen.push(keys.shares(len, ring).unwrap());
    assert_eq!((keys.left(), keys.used()), (0, bytes.len() as u64));
    let x = upload(backend, &spread(len, domain, 9));
    for shifts in [1usize, 2, 3, 18] {
        seen.push(backend.less_than(&points, &x, &spread(shifts, 64, 4)).unwrap());
    }
    if domain <= 16 {
        let table = Table::new(domain, |x| x as i64 * 977 - 5).unwrap();
        seen.push(backend.lookup(&points, &x, &table).unwrap());
    }
    (seen.iter().map(|handle| download(backend, handle)).collect(), keys.calls())
}

fn material_matches_cpu(aes: AesForm, cases: &[(u32, usize, u32)]) {
    let [host, device] = backends_with(aes);
    for &case in cases {
        let (domain, len, bits) = case;
        let (words, bytes) = deal(&host, domain, len, bits);
        let (found_words, found_bytes) = deal(&device, domain, len, bits);
        assert_eq!(found_words, words, "the dealer's words, {case:?}");
        for party in Party::BOTH {
            let bytes = &bytes[party.index()];
            assert!(**bytes == *found_bytes[party.index()], "what {party} is dealt, {case:?}");
            assert_eq!(
                read(&device, party, bytes, case),
                read(&host, party, bytes, case),
                "{party}, {case:?}"
            );
        }
    }
}

#[test]
fn keys_and_point_functions_match_cpu() {
    let tables = [(1, 3, 1), (5, 33, 64), (6, 1, 7), (7, 20, 50), (9, 21, 37)];
    let trees = [(10, 1, 33), (10, 40, 8), (11, 7, 63), (13, 5, 50), (16, 2, 50)];
    let walks = [(37, 65, 37), (50, 31, 50), (63, 34, 16), (64, 33, 64)];
    material_matches_cpu(AesForm::Table { copies: 1 }, &[&tables[..], &trees, &walks].concat());
}

#[test]
fn every_form_of_the_cipher_gives_the_same_keys() {
    for form in [AesForm::Table { copies: 32 }, AesForm::Pairs, AesForm::Quads, AesForm::BitPlanes] {
        material_matches_cpu(form, &[(8, 3, 9), (12, 3, 50), (33, 3, 50)]);
    }
}

#[test]
fn derived_words_match_cpu_at_every_width() {
    let backends = backends();
    for bits in 1..=64 {
        let (ring, len) = (Ring::new(bits).unwrap(), 129 + 37 * bits as usize % 300);
        same(&format!("{bits} bits"), &backends, |backend| {
            let section = KeySection::new(8, 9, 0, Box::new(SharedBytes::new(Secret::default())));
            let mut keys = backend.party_keys(Party::Zero, section).unwrap();
            keys.derived(5, Ring::BIT).unwrap();
            keys.derived(len, ring).unwrap()
        });
    }
}

#[test]
fn sums_match_cpu() {
    let backends = backends();
    let ring = Ring::new(50).unwrap();
    let words = spread(6 * 77, 50, 3);
    let ragged = [1usize, 100, 0, 33, 7, 321];
    for sums in [Sums::Rows(1), Sums::Rows(6), Sums::Rows(77), Sums::Ragged(&ragged), Sums::Columns(77)] {
        let found = same(&format!("{sums:?}"), &backends, |backend| {
            backend.sums(&upload(backend, &words), sums, ring).unwrap()
        });
        let total = |words: &[u64]| ring.reduce(words.iter().fold(0, |sum, word| sum.wrapping_add(*word)));
        assert_eq!(total(&found), total(&words));
    }
}

#[test]
fn parts_follow_each_other() {
    let backends = backends();
    let (a, b) = (spread(3, 64, 1), spread(40, 64, 2));
    let found = same("concat", &backends, |backend| {
        let parts = [&a, &b, &Vec::new(), &a].map(|words| upload(backend, words));
        backend.concat(&parts.each_ref()).unwrap()
    });
    assert_eq!(found, [&a[..], &b, &a].concat());
}

#[test]
fn products_match_cpu() {
    products_on(&backends(), &[50, 64]);
}

#[test]
fn products_in_limbs_match_cpu() {
    let device = device();
    let schedule = Schedule { products: ProductForm::Limbs, ..Schedule::of(&device) };
    let device: Arc<dyn Backend> = Arc::new(CudaBackend::with(&device, schedule).unwrap());
    products_on(&[Arc::new(CpuBackend), device], &[1, 9, 50, 64]);
}

fn products_on(backends: &[Arc<dyn Backend>; 2], rings: &[u32]) {
    for ((batch, rows, inner, columns), bits) in
        [(1, 1, 1, 1), (2, 5, 37, 3), (1, 65, 17, 66), (1, 3, 300, 5), (3, 66, 19, 67)]
            .into_iter()
            .flat_map(|sizes| rings.iter().map(move |&bits| (sizes, bits)))
    {
        let ring = Ring::new(bits).unwrap();
        let shape = MatmulShape { batch, rows, inner, columns };
        let [a, b] = [1, 2].map(|seed| spread(batch * rows * inner, 64, seed));
        let [c, d] = [3, 4].map(|seed| spread(batch * inner * columns, 50, seed));
        let start = spread(shape.product(), 64, 5);
        for layout in [Layout::Plain, Layout::Transposed] {
            same(&format!("{shape:?}, {layout:?}, {ring:?}"), backends, |backend| {
                let [a, b, c, d] = [&a, &b, &c, &d].map(|words| upload(backend, words));
                let start = upload(backend, &start);
                let shared = start.clone();
                let sums = backend.products(shape, layout, ring, &[[&a, &c], [&b, &d]], Some(start)).unwrap();
                let twice = backend.products(shape, layout, ring, &[[&a, &d]], Some(sums)).unwrap();
                let fresh = backend.products(shape, layout, ring, &[[&a, &c]], None).unwrap();
                let none = backend.products(shape, layout, ring, &[], None).unwrap();
                backend.concat(&[&twice, &fresh, &none, &shared]).unwrap()
            });
        }
    }
}

#[test]
fn messages_match_cpu() {
    let backends = backends();
    let sizes: Vec<(usize, u32)> =
        (1..=64).map(|bits| (1 + (bits as usize * 29) % 97, bits)).chain([(0, 5), (300, 1)]).collect();
    let own: Vec<Vec<u64>> = sizes.iter().map(|&(len, bits)| spread(len, bits, 7)).collect();
    let parts = |backend: &Arc<dyn Backend>, open: bool| -> Vec<Part> {
        let part = |(index, (words, &(len, bits))): (usize, (&Vec<u64>, &(usize, u32)))| Part {
            words: (!open || index % 3 != 0 || index % 4 == 1).then(|| upload(backend, words)),
            len,
            ring: Ring::new(bits).unwrap(),
            in_message: !open || index % 4 != 1,
        };
        own.iter().zip(&sizes).enumerate().map(part).collect()
    };
    let messages = backends.each_ref().map(|backend| {
        let message = backend.pack(b"a header", &parts(backend, false)).unwrap();
        message.take().unwrap()
    });
    assert!(messages[0][..] == messages[1][..]);
    same("what is opened", &backends, |backend| {
        let opened = backend.open(parts(backend, true), &messages[0][8..]).unwrap();
        backend.concat(&opened.iter().collect::<Vec<_>>()).unwrap()
    });
    assert!(backends[1].open(parts(&backends[1], true), &[0; 3]).is_err());
}

#[test]
fn a_section_that_ends_early_is_an_error() {
    let [_, device] = backends();
    let bytes = SharedBytes::new(Secret::new(vec![1; 100]));
    let mut keys = device.party_keys(Party::Zero, KeySection::new(1, 2, 100, Box::new(bytes))).unwrap();
    let error = keys.given(101, Ring::new(8).unwrap()).err().unwrap();
    assert!(error.to_string().contains("its section has 100 left"), "{error}");
    assert!(keys.given(100, Ring::new(8).unwrap()).is_ok());
}

/// Material that is there up to a place, and damaged behind it.
struct Damaged {
    sound: usize,
}

impl Material for Damaged {
    fn take(&mut self, count: usize) -> Result<SharedBytes> {
        self.sound =
            self.sound.checked_sub(count).ok_or_else(|| Error::Key { what: "it is damaged".into() })?;
        Ok(SharedBytes::new(Secret::new(vec![7; count])))
    }
}

#[test]
fn damaged_material_is_an_error_where_it_is_read_and_not_before() {
    let [_, device] = backends();
    let section = || KeySection::new(1, 2, 9000, Box::new(Damaged { sound: 2560 }));
    let bytes = Ring::new(8).unwrap();
    let mut keys = device.party_keys(Party::Zero, section()).unwrap();
    assert_eq!(download(&device, &keys.given(2048, bytes).unwrap()), [7; 2048]);
    // Chunks of 1024 bytes: the third is not whole.
    let error = keys.given(1, bytes).err().unwrap();
    assert!(error.to_string().contains("it is damaged"), "{error}");
    assert!(keys.given(1, bytes).is_err());
    // Where all of it is brought near, it is read there.
    let mut keys = device.party_keys(Party::Zero, section()).unwrap();
    assert!(keys.settle().unwrap_err().to_string().contains("it is damaged"));
    assert_eq!(download(&device, &keys.given(2048, bytes).unwrap()), [7; 2048]);
    assert!(keys.given(1, bytes).is_err());
    // The first chunk, with whoever brings it near and without: the cause is said either way.
    let nothing = || KeySection::new(1, 2, 9000, Box::new(Damaged { sound: 0 }));
    let mut keys = device.party_keys(Party::Zero, nothing()).unwrap();
    let error = keys.given(1, bytes).err().unwrap();
    assert!(error.to_string().contains("it is damaged"), "{error}");
    let error = device.party_keys(Party::Zero, nothing()).unwrap().settle().err().unwrap();
    assert!(error.to_string().contains("it is damaged"), "{error}");
    // One that is let go of while its bytes are on their way.
    let mut keys = device.party_keys(Party::Zero, section()).unwrap();
    keys.given(1, bytes).unwrap();
}

/// Large material stays where the device wrote it; it is the same, whoever keeps it.
#[test]
fn what_is_kept_is_what_would_be_written() {
    let ring = Ring::new(64).unwrap();
    let deal = |backend: &Arc<dyn Backend>, sinks: &mut [&mut dyn KeySink; 2]| {
        let mut keys = backend.dealer_keys([3, 5], 77).unwrap();
        for (len, seed) in [(40_000, 1), (100, 2), (70_001, 3)] {
            let values = upload(backend, &spread(len, 64, seed));
            keys.share(&values, len, ring).unwrap();
            keys.give(Party::One, &values, len, ring).unwrap();
            keys.points(17, &values, len / 8).unwrap();
            keys.write(sinks).unwrap();
        }
        keys.finish(sinks).unwrap();
    };
    let [host, device] = backends();
    let mut written = [Secret::default(), Secret::default()];
    let [zero, one] = &mut written;
    deal(&host, &mut [zero, one]);
    let mut kept = [Pieces::default(), Pieces::default()];
    let [zero, one] = &mut kept;
    deal(&device, &mut [zero, one]);
    for (pieces, written) in kept.into_iter().zip(&written) {
        assert_eq!(pieces.length(), written.len() as u64);
        let found = pieces.finished().take(written.len()).unwrap();
        assert!(found.as_slice() == written.as_slice());
    }
}

/// Through a ring of four chunks, many times over: words of every width, from anywhere, more at once than the
/// ring holds.
#[test]
fn words_come_round_the_ring_whole() {
    let backends = backends();
    let mut state = 5u64;
    let mut random = move || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(11);
        state >> 33
    };
    let items: Vec<(usize, u32)> = (0..120)
        .map(|item| match item % 30 {
            29 => (9000, 1 + random() as u32 % 64),
            _ => (random() as usize % 200, 1 + random() as u32 % 64),
        })
        .collect();
    let length: usize = items.iter().map(|&(len, bits)| packed_bytes(len, bits)).sum();
    let bytes: Vec<u8> = (0..length).map(|_| random() as u8).collect();
    let read = |backend: &Arc<dyn Backend>| {
        let material = SharedBytes::new(Secret::new(bytes.clone()));
        let section = KeySection::new(1, 2, length as u64, Box::new(material));
        let mut keys = backend.party_keys(Party::Zero, section).unwrap();
        let words = items
            .iter()
            .map(|&(len, bits)| download(backend, &keys.given(len, Ring::new(bits).unwrap()).unwrap()));
        let words: Vec<Vec<u64>> = words.collect();
        assert_eq!(keys.left(), 0);
        words
    };
    assert_eq!(read(&backends[1]), read(&backends[0]));
}

/// The baseline of comparisons computes AES, with a key for every block.
#[cfg(feature = "lab")]
#[test]
fn the_published_form_is_aes_too() {
    let queue = Queue::new(&device()).unwrap();
    let form = AesForm::Table { copies: 1 };
    let generator = Generator::new(&queue, form).unwrap();
    let kernel = r#"
        GW_KERNEL(rekeyed)(const u32* table, const u64* keys, u64* blocks) {
            const u64 at = gw::global_thread();
            store_block(blocks, at, encrypt_under(table, load_block(keys, at), load_block(blocks, at)));
        }
    "#;
    let published = kernels::PUBLISHED.source();
    let text = format!(
        "#define AES_BITSLICED 0\n#define AES_TABLES 1\n#define AES_COPIES 1\n{}{kernel}",
        published.text()
    );
    let words = spread(2 * 32, 64, 8);
    let (keys, mut blocks) = (queue.upload(&words).unwrap(), queue.upload(&spread(2 * 32, 64, 9)).unwrap());
    let source = kernels::with_headers(Source::new("rekeyed", text));
    let launched = queue.device().kernel_named(&source, "rekeyed").unwrap();
    let arguments = args![&generator.table, &keys, &mut blocks];
    launched.launch(queue.stream(), &Grid::new([1; 3], [32, 1, 1]), &arguments).unwrap();
    let block = |words: &[u64], at: usize| u128::from(words[2 * at]) | u128::from(words[2 * at + 1]) << 64;
    let (found, inputs) = (queue.stream().download(&blocks).unwrap(), spread(2 * 32, 64, 9));
    for at in 0..32 {
        let mut expected = [block(&inputs, at)];
        Cipher::portable(block(&words, at)).encrypt(&mut expected);
        assert_eq!(block(&found, at), expected[0], "block {at}");
    }
}

#[test]
fn handles_of_another_queue_are_refused() {
    let device = device();
    let [one, other] = [(), ()].map(|()| CudaBackend::new(&device).unwrap());
    let words = one.upload(Secret::new(vec![1, 2])).unwrap();
    assert!(matches!(other.download(&words), Err(Error::OtherBackend)));
    let host = CpuBackend.upload(Secret::new(vec![1])).unwrap();
    assert!(matches!(one.download(&host), Err(Error::OtherBackend)));
}

/// Counts what is left to read, from outside.
struct Counted(Arc<std::sync::atomic::AtomicUsize>);

impl Material for Counted {
    fn take(&mut self, count: usize) -> Result<SharedBytes> {
        self.0.fetch_add(count, std::sync::atomic::Ordering::SeqCst);
        Ok(SharedBytes::new(Secret::new(vec![5; count])))
    }
}

#[test]
fn keys_that_are_brought_near_are_read_before_anybody_asks() {
    let bytes = Ring::new(8).unwrap();
    for backend in backends() {
        let read = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let section = || KeySection::new(1, 2, 12_345, Box::new(Counted(read.clone())));
        let mut keys = backend.party_keys(Party::Zero, section()).unwrap();
        assert_eq!(read.load(std::sync::atomic::Ordering::SeqCst), 0);
        keys.settle().unwrap();
        assert_eq!(read.load(std::sync::atomic::Ordering::SeqCst), 12_345);
        // Twice is once, and in the middle it is too late.
        keys.settle().unwrap();
        for count in [1, 999, 11_345] {
            assert_eq!(download(&backend, &keys.given(count, bytes).unwrap()), vec![5; count]);
            keys.settle().unwrap();
        }
        assert_eq!((keys.used(), keys.left()), (12_345, 0));
        assert!(keys.given(1, bytes).is_err());
        // Let go of before anybody asks.
        backend.party_keys(Party::One, section()).unwrap().settle().unwrap();
    }
}
