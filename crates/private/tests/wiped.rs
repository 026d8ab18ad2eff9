//! Whether secrets are gone when a session is: this process looks through its own memory.
//!
//! Dealer, server and client run in it, and what the test itself knows of a secret it keeps under a mask.

#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use gatework_fss::backend::Backend;
use gatework_fss::{CpuBackend, backend_on};
use gatework_gpu::{Device, Target};
use gatework_private::disk::KeyFile;
use gatework_private::model::{Owner, RandomModel};
use gatework_private::roles::Loopback;

const MASK: u8 = 0xa5;
const SECRET: usize = 16;

/// 16 bytes of a secret, not as they are.
struct Masked {
    name: String,
    bytes: [u8; SECRET],
}

impl Masked {
    fn read(name: String, file: &File, offset: u64) -> Self {
        let mut bytes = [0; SECRET];
        file.read_exact_at(&mut bytes, offset).unwrap();
        bytes.iter_mut().for_each(|byte| *byte ^= MASK);
        assert!(bytes.iter().any(|&byte| byte != MASK), "{name} is there before it is used");
        Self { name, bytes }
    }
}

/// The pairing secret, and the seeds of all sections.
fn secrets_of(path: &Path) -> Vec<Masked> {
    let (header, file) = (KeyFile::peek(path).unwrap(), File::open(path).unwrap());
    let name = |what: &str| format!("{what} of {}", path.file_name().unwrap().display());
    let mut secrets = vec![Masked::read(name("pairing secret"), &file, 128)];
    let mut offset = 164 + 12 * header.sections.len() as u64 + 32;
    for (number, section) in header.sections.iter().enumerate() {
        secrets.push(Masked::read(name(&format!("seed {number}")), &file, offset));
        let bytes = section.length + SECRET as u64;
        offset += bytes + 32 * bytes.div_ceil(1 << 20);
    }
    assert_eq!(offset, file.metadata().unwrap().len());
    secrets
}

/// Names of the secrets that are in this process's memory, once for each place.
fn found(secrets: &[Masked]) -> Vec<String> {
    const PIECE: usize = 1 << 20;
    let memory = File::open("/proc/self/mem").unwrap();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    // Pieces overlap, so that a secret at the end of one is whole in the next.
    let mut buffer = vec![0u8; PIECE + SECRET];
    let own = buffer.as_ptr_range();
    let own = own.start as u64..own.end as u64;
    let mut starts = vec![false; 1 << 16];
    for secret in secrets {
        starts[usize::from(secret.bytes[0] ^ MASK) << 8 | usize::from(secret.bytes[1] ^ MASK)] = true;
    }
    let mut found = Vec::new();
    for line in maps.lines() {
        let mut fields = line.split_whitespace();
        let (range, rights) = (fields.next().unwrap(), fields.next().unwrap());
        if !rights.starts_with("rw") {
            continue;
        }
        let (start, end) = range.split_once('-').unwrap();
        let [mut at, end] = [start, end].map(|address| u64::from_str_radix(address, 16).unwrap());
        while at < end {
            let count = (end - at).min((PIECE + SECRET) as u64) as usize;
            // What the kernel does not show nobody can read.
            if memory.read_exact_at(&mut buffer[..count], at).is_ok() {
                for place in 0..count.saturating_sub(SECRET - 1) {
                    let here = at + place as u64;
                    if !starts[usize::from(buffer[place]) << 8 | usize::from(buffer[place + 1])]
                        || own.contains(&here)
                        || place >= PIECE
                    {
                        continue;
                    }
                    let bytes = &buffer[place..place + SECRET];
                    let same = |secret: &&Masked| {
                        bytes.iter().zip(&secret.bytes).all(|(byte, masked)| byte ^ MASK == *masked)
                    };
                    if let Some(secret) = secrets.iter().find(same) {
                        let area = line.split_whitespace().nth(5).unwrap_or("memory without a name");
                        found.push(format!("{} in {area} at {here:x}", secret.name));
                    }
                }
            }
            at += PIECE as u64;
        }
    }
    buffer.fill(0);
    std::hint::black_box(&buffer);
    found
}

fn session(name: &str, backends: [Arc<dyn Backend>; 2], held: bool, finish: impl Fn()) {
    let weights = RandomModel::new("bert-toy", 1).unwrap();
    let model = weights.public(2).unwrap();
    let owner = Owner::new(&model, weights.weights(&model).unwrap()).unwrap();
    let place = tempfile::tempdir().unwrap();
    let roles = Loopback::new(&owner, place.path()).unwrap().on(backends);
    roles.deal(&[2, 2], &()).unwrap();
    let secrets: Vec<Masked> =
        ["server.keys", "client.keys"].iter().flat_map(|file| secrets_of(&place.path().join(file))).collect();
    let texts = [vec![5, 9]];
    for _ in 0..2 {
        let answer: gatework_private::Result<_> = roles.ask(|mut client| {
            let answer = match held {
                true => client.prepare(&[2])?.infer(&texts)?,
                false => client.infer(&texts)?,
            };
            client.finish()?;
            Ok(answer)
        });
        assert_eq!(answer.unwrap().len(), 1);
    }
    finish();
    let left = found(&secrets);
    assert!(left.is_empty(), "{name}: {} copies are left:\n{}", left.len(), left.join("\n"));
}

#[test]
fn seeds_and_pairing_secrets_are_gone_after_a_session() {
    // It finds what is there.
    let control: Vec<u8> = (0..SECRET as u8).map(|byte| byte.wrapping_mul(37) ^ 0x5c).collect();
    let mut masked = Masked { name: "control".into(), bytes: [0; SECRET] };
    masked.bytes.iter_mut().zip(&control).for_each(|(masked, byte)| *masked = byte ^ MASK);
    assert_eq!(found(std::slice::from_ref(&masked)).len(), 1);
    drop(control);
    let cpu = || -> Arc<dyn Backend> { Arc::new(CpuBackend) };
    session("both on the CPU", [cpu(), cpu()], false, || ());
    session("both on the CPU, keys held", [cpu(), cpu()], true, || ());
    let device = Device::emulated(3).unwrap();
    let gpu = || backend_on(&Target::Gpu(device.clone())).unwrap();
    // What is queued and waits for nobody runs on a card by itself.
    let finish = || device.synchronize().unwrap();
    session("the server on the emulated device", [gpu(), cpu()], false, finish);
    session("the client on the emulated device, keys held", [cpu(), gpu()], true, finish);
}
