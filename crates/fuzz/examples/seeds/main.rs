//! Writes the seeds of every target into `corpus/`, by the writers that users have: `cargo run -p
//! gatework-fuzz --example seeds`.
//!
//! What a program outside of this workspace writes (ptxas, cuobjdump, the profiler, other compilers) is here
//! as text.

mod checkpoints;
mod training;

use std::error::Error;
use std::fs;
use std::path::Path;

use gatework_fuzz::corpus;
use gatework_lab::tune::{Search, Strategy, TuningState};
use gatework_private::model::{Checkpoint, Options};
use gatework_private::net::make_test_certificates;
use safetensors::tensor::{Dtype, TensorView, serialize};

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    private()?;
    for (name, proof) in gatework::command::fuzzing::stark_proofs() {
        put("stark_proof", &format!("{name}.json"), &proof)?;
    }
    attention()?;
    lab()?;
    gpu()?;
    training::write()
}

/// Writes a seed of a target.
fn put(target: &str, name: &str, bytes: &[u8]) -> Outcome {
    let folder = corpus::folder(target).join("seeds");
    fs::create_dir_all(&folder)?;
    Ok(fs::write(folder.join(name), bytes)?)
}

fn private() -> Outcome {
    for (entry, name, bytes) in gatework_private::fuzzing::seeds() {
        let target = if entry == "kept_weights" { "weights" } else { entry };
        put(&format!("private_{target}"), name, &bytes)?;
    }
    for (family, config, weights) in checkpoints::small() {
        put("private_config", &format!("{family}.json"), &config)?;
        put("private_safetensors", &format!("{family}.safetensors"), &weights)?;
        let public = Checkpoint::from_bytes(&config, weights)?.public(4, &Options::default())?;
        put("private_model", &format!("{family}.json"), public.to_json()?.as_bytes())?;
    }
    let folder = tempfile::tempdir()?;
    let files = make_test_certificates(folder.path(), &["localhost".into()])?;
    let pem = [&files.server[0], &files.server[1], &files.authority].map(fs::read);
    let pem: Vec<u8> = pem.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
    put("private_identity", "server.pem", &pem)
}

fn attention() -> Outcome {
    let q: Vec<u8> = (0..2 * 64).flat_map(|i| (i as f32 / 64.0).to_le_bytes()).collect();
    let k: Vec<u8> = (0..3 * 64).flat_map(|i| (1.0 - i as f32 / 64.0).to_le_bytes()).collect();
    let view = |shape: [usize; 4], bytes| TensorView::new(Dtype::F32, shape.to_vec(), bytes);
    let plain =
        [("q", view([1, 1, 2, 64], &q)?), ("k", view([1, 1, 3, 64], &k)?), ("v", view([1, 1, 3, 64], &k)?)];
    put("attention_input", "plain.safetensors", &serialize(plain, None)?)?;
    let half: Vec<u8> = (0..128u16).flat_map(|i| (0x3c00 + i).to_le_bytes()).collect();
    let view = |bytes| TensorView::new(Dtype::F16, vec![1, 1, 2, 64], bytes);
    let sinks = [0.5f32.to_le_bytes()].concat();
    let with_sinks = [
        ("q", view(&half)?),
        ("k", view(&half)?),
        ("v", view(&half)?),
        ("sinks", TensorView::new(Dtype::F32, vec![1], &sinks)?),
    ];
    put("attention_input", "sinks.safetensors", &serialize(with_sinks, None)?)
}

/// The shortest recorded line that has a part, for every part that records have.
fn records() -> Outcome {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/nvidia-h200.jsonl");
    let text = fs::read_to_string(results)?;
    for part in ["performance", "measured", "tuning", "profile", "cases", "kernels"] {
        let has = |line: &&str| {
            line.contains(&format!("\"{part}\":{{")) || line.contains(&format!("\"{part}\":[{{"))
        };
        if let Some(line) =
            text.lines().filter(has).min_by_key(|line| line.len()).filter(|line| line.len() < 40_000)
        {
            put("lab_records", &format!("{part}.jsonl"), format!("{line}\n").as_bytes())?;
        }
    }
    Ok(())
}

fn lab() -> Outcome {
    records()?;
    put("lab_document", "plain.md", DOCUMENT.as_bytes())?;
    for name in ["pipeline.cu", "reduce.cu"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/tests/cuda").join(name);
        put("lab_cuda_source", name, &fs::read(path)?)?;
    }
    put("lab_cuda_source", "shared.cu", CUDA.as_bytes())?;
    put("lab_launch_plan", "pipeline.toml", PLAN.as_bytes())?;
    put("lab_peer", "answers.jsonl", PEER.as_bytes())?;
    put("lab_profile", "one-launch.csv", PROFILE.as_bytes())?;
    let workload = gatework::workloads().into_iter().find(|workload| workload.tunable().is_some());
    let workload = workload.ok_or("no workload can be tuned")?;
    let tunable = workload.tunable().ok_or("no workload can be tuned")?;
    let search = Search::new(tunable.space(), tunable.default_configuration(), Strategy::Evolution, 1, 5);
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("state.json");
    TuningState::new(workload.name(), "emulated", vec!["ab".into()], &search).write(&path)?;
    put("lab_tuning_state", "fresh.json", &fs::read(path)?)
}

fn gpu() -> Outcome {
    put("gpu_ptx", "four.ptx", PTX.as_bytes())?;
    put("gpu_sass", "two.sass", SASS.as_bytes())?;
    put("gpu_ptxas", "two.log", PTXAS.as_bytes())?;
    put("gpu_cubin", "scale.cubin", &cubin())?;
    put("gpu_cubin", "attributes", ATTRIBUTES)?;
    for name in ["auto", "cpu", "cuda", "cuda:7", "emulated", "cuda:0,cuda:1", "emulated:4"] {
        if name.parse::<gatework_gpu::DeviceChoice>().is_ok() {
            put("gpu_device_name", &name.replace([':', ','], "-"), name.as_bytes())?;
        }
    }
    Ok(())
}

/// An ELF file for CUDA with one section, the attributes of the kernel `scale`.
fn cubin() -> Vec<u8> {
    const NAMES: &[u8] = b"\0.shstrtab\0.nv.info.scale\0";
    const HEADER: usize = 64;
    let attributes_at = HEADER + NAMES.len();
    let sections_at = attributes_at + ATTRIBUTES.len();
    let mut file = b"\x7fELF\x02\x01\x01\x33\x07\0\0\0\0\0\0\0".to_vec();
    file.extend([2u16, 190].map(u16::to_le_bytes).concat());
    file.extend(1u32.to_le_bytes());
    file.extend([0u64, 0, sections_at as u64].map(u64::to_le_bytes).concat());
    file.extend(0u32.to_le_bytes());
    file.extend([HEADER as u16, 0, 0, 64, 3, 1].map(u16::to_le_bytes).concat());
    file.extend(NAMES);
    file.extend(ATTRIBUTES);
    let section = |name: u32, kind: u32, offset: usize, size: usize| {
        let mut entry = [name, kind].map(u32::to_le_bytes).concat();
        entry.extend([0u64, 0, offset as u64, size as u64].map(u64::to_le_bytes).concat());
        entry.extend([0u32, 0].map(u32::to_le_bytes).concat());
        entry.extend([1u64, 0].map(u64::to_le_bytes).concat());
        entry
    };
    file.extend(section(0, 0, 0, 0));
    file.extend(section(1, 3, HEADER, NAMES.len()));
    file.extend(section(11, 0x7000_0000, attributes_at, ATTRIBUTES.len()));
    file
}

/// Attributes of a kernel with a pointer and a float, as ptxas 13.0 writes them.
const ATTRIBUTES: &[u8] = &[
    0x04, 0x37, 0x04, 0x00, 0x82, 0x00, 0x00, 0x00, 0x04, 0x17, 0x0c, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01,
    0x00, 0x08, 0x00, 0x00, 0xf0, 0x11, 0x00, 0x04, 0x17, 0x0c, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0xf0, 0x21, 0x00, 0x03, 0x50, 0x00, 0x00,
];

const DOCUMENT: &str = "\
# Times

A copy takes `5 ms`.

| case | time | record |
|---|---|---|
| n1024 | 372 µs | [record](results/nvidia-h200.jsonl#c30a8ee0b1ac) |

```text
<!-- lab table: benches gpu/* -->
```
";

const CUDA: &str = r#"#include <cuda_runtime.h>
#define N 32
namespace kernels {
extern "C" __global__ void __launch_bounds__(128, 2) scale(float* x, const int n = 3) {
    __shared__ __align__(16) float tile[4][N], sum;
    extern __shared__ char more[];
    unsigned done;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(b), "r"(phase) : "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%0, %1, %2, %3}, %4, %5, 1, 1, 1;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
    asm("ld.acquire.gpu.global.u32 %0, [%1 + 4];" : "=r"(v) : "l"(p));
    x[blockIdx.x * blockDim.x + threadIdx.x] = 'c' + 0x1F; // the end
}
}
int main() { /* host */ kernels::scale<<<1, 2>>>(0, 1); }
"#;

const PLAN: &str = "\
kernel = \"pipeline\"
blocks = [4, 2, 1]
threads = 128
shared = 512
cluster = [2, 1]
cooperative = true
seeds = 20
seconds = 3
[args]
tiles = 3
scale = 0.5
in = { elements = 1024, fill = \"random\" }
";

const PEER: &str = r#"{"protocol":1,"peer":"PyTorch","versions":{"torch":"2.9.0"},"device":"NVIDIA H200","operations":["saxpy"]}
{"samples_ns":[812.0,799.5,1e3]}
"#;

const PROFILE: &str = r#"==PROF== Connected to process 4711 (/opt/gatework)
"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","4711","fp8_tile","dram__throughput.avg.pct_of_peak_sustained_elapsed","%","21.53"
"0","4711","say ""x""","smsp__cycles.sum","cycle","1,234,567"
"#;

const PTX: &str = "\
// Generated by NVIDIA NVVM Compiler
.version 8.3
.target sm_90a
/* .visible .entry hidden(.param .u32 x) */
.visible .entry _Z5scalePffj(
	.param .u64 .ptr .global .align 4 _Z5scalePffj_param_0,
	.param .f32 _Z5scalePffj_param_1, // the factor
	.param .u32 _Z5scalePffj_param_2
)
.maxntid 256, 1, 1
{ ret; }
.visible .entry nothing() { ret; }
.entry bare
{ ret; }
.visible .entry by_value(.param .align 8 .b8 by_value_param_0[24], .param .b16 h) { ret; }
";

const SASS: &str = "\
	code for sm_90a
		Function : plain
        /*0000*/                   LDC R1, c[0x0][0x28] ;                     /* 0x00000a00ff017b82 */
        /*00f0*/               @P0 EXIT ;                                     /* 0x000000000000094d */
		Function : copies
        /*0000*/                   UMOV UR7, URZ ;                            /* 0x00000a00ff017b82 */
        /*0010*/                   UBLKCP.S.G [UR12], [UR6], UR8 ;            /* 0x00000a00ff017b82 */
        /*0020*/                   UIMAD.WIDE UR6, UR4, 0x8, UR6 ;            /* 0x00000a00ff017b82 */
";

const PTXAS: &str = "\
ptxas info    : Compiling entry function 'plain' for 'sm_90a'
ptxas info    : Function properties for plain
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 31 registers, used 1 barriers, 256 bytes smem
ptxas info    : Function properties for _Z6calleePfi
ptxas         .     1448 bytes stack frame, 2280 bytes spill stores, 3096 bytes spill loads
";
