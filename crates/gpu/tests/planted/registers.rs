//! Registers that only some threads initialise: no shadow sees them, but results differ with what they held
//! before. What neither fill can change stays hidden, as a signed maximum over positive numbers does, or a
//! bool.

use gatework_gpu::{Device, Emulation, Grid, RegisterFill, Source, args};

const SEEDS: u64 = 20;
const THREADS: u32 = 64;

/// A body with a `HOLE` that computes `u32 v` or `f32 v` from `x`, the thread's number `t` and `n`.
struct Register {
    name: &'static str,
    body: &'static str,
    bug: &'static str,
    fix: &'static str,
}

const REGISTERS: &[Register] = &[
    Register { name: "half", body: "u32 v HOLE;\nif (t < 32) v = 1;\nv += x[t];", bug: "", fix: "= 0" },
    Register {
        name: "loop",
        body: "f32 v HOLE;\nfor (u32 i = 0; i < n; ++i) v += (f32)x[i];",
        bug: "",
        fix: "= 0.0f",
    },
    Register {
        name: "maximum",
        body: "u32 v HOLE;\nfor (u32 i = 0; i < n; ++i) v = v > x[i] ? v : x[i];",
        bug: "",
        fix: "= 1",
    },
    Register {
        name: "minimum",
        body: "u32 v HOLE;\nfor (u32 i = 0; i < n; ++i) v = v < x[i] + 1 ? v : x[i] + 1;",
        bug: "",
        fix: "= 9",
    },
    Register {
        name: "array",
        body: "u32 part[4];\nfor (u32 i = 0; i < HOLE; ++i) part[i] = i;\nu32 v = part[t % 4];",
        bug: "3",
        fix: "4",
    },
    Register {
        name: "structure",
        body: "struct { u32 low, high; } pair;\npair.low = t;\nHOLE\nu32 v = pair.low + pair.high;",
        bug: "",
        fix: "pair.high = 0;",
    },
    Register {
        name: "switch",
        body: "u32 v;\nswitch (t % 4) {\ncase 0: v = 1; break;\ncase 1: v = 2; break;\ncase 2: v = 3; break;\nHOLE\n}",
        bug: "",
        fix: "default: v = 4;",
    },
    Register {
        name: "shuffled",
        body: "u32 w HOLE;\nif (t % 32 == 0) w = x[t];\nu32 v = gw::shuffle(w, t % 2);",
        bug: "",
        fix: "= 0",
    },
    Register {
        name: "flag",
        body: "u32 seen HOLE;\nif (x[t] > 60) seen = 1;\nu32 v = seen != 0 ? 1 : 0;",
        bug: "",
        fix: "= 0",
    },
    Register {
        name: "accumulators",
        body: "f32 sums[8];\nfor (u32 i = 0; i < 8; ++i) { if (i HOLE t % 8) sums[i] = 0.0f; }\n\
               f32 v = 0.0f;\nfor (u32 i = 0; i < 8; ++i) { sums[i] += 1.0f; v += sums[i]; }",
        bug: "!=",
        fix: "< 8 +",
    },
];

fn text() -> String {
    let mut text = "#include \"gw/gw.cuh\"\n".to_owned();
    for Register { name, body, bug, fix } in REGISTERS {
        for (kind, filling) in [("bug", bug), ("fix", fix)] {
            let body = body.replace("HOLE", filling);
            text.push_str(&format!(
                "GW_KERNEL({name}_{kind})(const u32* x, u32* out, u32 n) {{\nconst u32 t = (u32)gw::global_thread();\n{body}\n\
                 out[t] = gw::bits<u32>((f32)v);\n}}\n"
            ));
        }
    }
    text
}

fn run(source: &Source, kernel: &str, how: Emulation) -> Vec<u32> {
    let device = Device::emulated_as(how).unwrap();
    let stream = device.stream().unwrap();
    let x = stream.upload(&(0..THREADS).collect::<Vec<u32>>()).unwrap();
    let mut out = stream.alloc::<u32>(THREADS as usize).unwrap();
    let kernel = device.kernel_named(source, kernel).unwrap();
    kernel.launch(&stream, &Grid::new([1, 1, 1], [THREADS, 1, 1]), &args![&x, &mut out, THREADS]).unwrap();
    stream.download(&out).unwrap()
}

#[test]
fn what_only_some_threads_initialise_shows_under_two_fills() {
    let source = Source::new("planted", text());
    for Register { name, .. } in REGISTERS {
        for seed in 0..SEEDS {
            let under = |kind: &str, fill| {
                run(&source, &format!("{name}_{kind}"), Emulation::seeded(seed).registers(fill))
            };
            assert_ne!(
                under("bug", RegisterFill::Ones),
                under("bug", RegisterFill::Zeros),
                "{name}, seed {seed}"
            );
            assert_eq!(
                under("fix", RegisterFill::Ones),
                under("fix", RegisterFill::Zeros),
                "{name}, seed {seed}"
            );
        }
    }
}
