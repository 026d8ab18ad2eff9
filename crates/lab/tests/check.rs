//! Plain CUDA files through `check`: bugs at their own lines, and nothing where there is none.

use std::path::{Path, PathBuf};

use gatework_gpu::FaultKind;
use gatework_lab::check::{CheckError, Plan, Report, Sizes, check, check_file};

const REDUCE: &str = include_str!("cuda/reduce.cu");
const PIPELINE: &str = include_str!("cuda/pipeline.cu");

fn plan(toml: &str) -> Plan {
    toml::from_str(toml).unwrap()
}

/// The one kernel's report.
#[track_caller]
fn report(name: &str, text: &str, plan: &Plan) -> Report {
    let mut reports = check(name, text, plan).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(reports.len(), 1);
    reports.remove(0)
}

#[track_caller]
fn line_of(text: &str, part: &str) -> u32 {
    1 + text.lines().position(|line| line.contains(part)).expect("the line is there") as u32
}

#[test]
fn a_forgotten_barrier_is_found_without_a_plan() {
    let found = report("reduce.cu", REDUCE, &Plan::default());
    assert_eq!(found.findings.iter().map(|finding| finding.seeds).sum::<u64>(), found.seeds, "{found:?}");
    for finding in &found.findings {
        let (fault, site) = (&finding.fault, finding.fault.site.as_ref().unwrap());
        assert_eq!((fault.kind, site.file.as_str()), (FaultKind::Race, "reduce.cu"), "{fault}");
        let lines =
            [line_of(REDUCE, "partial[threadIdx.x / warpSize] = v"), line_of(REDUCE, "sum += partial[w]")];
        assert!(lines.contains(&site.line), "{fault}");
    }
    let mended = REDUCE.replace("// MISSING __syncthreads();", "__syncthreads();");
    let clean = report("reduce.cu", &mended, &Plan::default());
    assert!(clean.findings.is_empty(), "{clean:?}");
}

#[test]
fn inline_ptx_is_understood_and_a_missing_proxy_fence_found() {
    let plan = plan("threads = 128\nshared = 512\nblocks = 1\n[args]\ntiles = 3\nin = { elements = 1024 }\n");
    let found = report("pipeline.cu", &PIPELINE.replace("FENCE", ""), &plan);
    let fault = &found.findings[0].fault;
    assert_eq!((found.findings.len(), found.findings[0].seeds), (1, 20), "{found:?}");
    assert_eq!(fault.kind, FaultKind::Race, "{fault}");
    assert_eq!(
        fault.site.as_ref().unwrap().line,
        line_of(PIPELINE, "cp.async.bulk.global.shared::cta"),
        "{fault}"
    );
    assert!(fault.message.contains("fence_async_proxy_shared"), "{fault}");
    let fence = "asm volatile(\"fence.proxy.async.shared::cta;\" ::: \"memory\");";
    let clean = report("pipeline.cu", &PIPELINE.replace("FENCE", fence), &plan);
    assert!(clean.findings.is_empty(), "{clean:?}");
}

#[test]
fn parameters_are_called_by_their_names() {
    let text =
        "__global__ void over(float* out, int n) {\n  out[blockIdx.x * blockDim.x + threadIdx.x] = 1;\n}\n";
    let found = report("over.cu", text, &plan("seeds = 3\n[args]\nout = { elements = 200 }\n"));
    let fault = &found.findings[0].fault;
    assert_eq!((fault.kind, fault.site.as_ref().unwrap().line), (FaultKind::OutOfBounds, 2), "{fault}");
    assert!(fault.message.contains("parameter 0 'out'"), "{fault}");
}

#[test]
fn an_overflow_is_a_warning_and_hides_nothing() {
    let text = "__global__ void wrap(int* out, int n) {\n  int a = 2147483640 + n;\n  out[a < 0 ? 200 : 0] = a;\n}\n";
    let plan = plan("seeds = 3\nblocks = 1\nthreads = 1\n[args]\nout = { elements = 200 }\n");
    let found = report("wrap.cu", text, &plan);
    let line = |finding: &gatework_lab::check::Finding| finding.fault.site.as_ref().map(|site| site.line);
    assert_eq!(
        (found.warnings.len(), found.warnings[0].seeds, line(&found.warnings[0])),
        (1, 3, Some(2)),
        "{found:?}"
    );
    assert_eq!(found.warnings[0].fault.kind, FaultKind::Overflow);
    let bounds = &found.findings[0];
    assert_eq!(
        (bounds.fault.kind, bounds.seeds, line(bounds)),
        (FaultKind::OutOfBounds, 3, Some(3)),
        "{found:?}"
    );
    let clean = report("wrap.cu", &text.replace("2147483640", "2147483000"), &plan);
    assert!(clean.findings.is_empty() && clean.warnings.is_empty(), "{clean:?}");
}

#[test]
fn registers_that_some_threads_do_not_initialise_are_found() {
    let text = "__global__ void part(float* out, const float* in, int n) {\n  float sum;\n  if (threadIdx.x < 16) sum = 0.0f;\n  \
                for (int i = 0; i < n; ++i) sum += in[i];\n  out[threadIdx.x] = sum;\n}\n";
    let plan = plan(
        "seeds = 3\nblocks = 1\nthreads = 32\n[args]\nout = { elements = 32 }\nin = { elements = 8 }\nn = 8\n",
    );
    let found = report("part.cu", text, &plan);
    assert!(found.fills_registers, "this test needs GCC 12 or later");
    let fault = &found.findings[0].fault;
    assert_eq!((fault.kind, found.findings.len()), (FaultKind::Uninitialised, 1), "{fault}");
    assert!(fault.message.contains("element 16 of parameter 0 'out'"), "{fault}");
    let clean = report("part.cu", &text.replace("float sum;", "float sum = 0.0f;"), &plan);
    assert!(clean.findings.is_empty(), "{clean:?}");
}

#[test]
fn what_other_things_decide_is_not_taken_for_uninitialised() {
    let text = "__global__ void places(unsigned* out, unsigned* next) {\n  out[atomicAdd(next, 1u)] = threadIdx.x;\n}\n\
                struct Pair { unsigned low; double high; };\n\
                __global__ void padding(Pair* pairs) {\n  Pair pair;\n  pair.low = threadIdx.x;\n  pair.high = 1.0;\n  \
                pairs[threadIdx.x] = pair;\n}\n\
                __global__ void rest(float* half) {\n  if (threadIdx.x < 32) half[threadIdx.x] = 1.0f;\n}\n";
    let one_block = plan("seeds = 2\nblocks = 1\nthreads = 64\n");
    let plan = plan(
        "seeds = 8\nblocks = 1\nthreads = 64\n[args]\nnext = { elements = 1 }\nhalf = { elements = 64, fill = \"unwritten\" }\n",
    );
    for found in check("places.cu", text, &plan).unwrap() {
        assert!(found.fills_registers && found.findings.is_empty(), "{found:?}");
    }
    let half_written =
        "__global__ void half(float2* out) {\n  float2 v;\n  v.x = 1.0f;\n  out[threadIdx.x] = v;\n}\n";
    let found = report("half.cu", half_written, &one_block);
    assert_eq!(found.findings[0].fault.kind, FaultKind::Uninitialised, "{found:?}");
}

#[test]
fn what_is_too_slow_without_optimisation_is_not_compared() {
    // An optimising compiler leaves the loop out.
    let text = "__global__ void slow(unsigned* out) {\n  unsigned x = 1;\n  \
                for (unsigned long long i = 0; i < 100000000000ull; ++i) x = 2;\n  out[threadIdx.x] = x;\n}\n";
    let found = report("slow.cu", text, &plan("seeds = 1\nblocks = 1\nthreads = 1\nseconds = 1\n"));
    assert!(found.findings.is_empty() && !found.fills_registers, "{found:?}");
}

#[test]
fn what_does_not_fit_is_refused_with_a_sentence() {
    let refused = |text: &str, toml: &str| check("a.cu", text, &plan(toml)).unwrap_err();
    let kernel = "__global__ void k(float* x, int n) { x[0] = n; }\n";
    assert!(refused(kernel, "kernel = \"j\"").to_string().contains("the file has: k"));
    assert!(refused(kernel, "[args]\ny = 3").to_string().contains("no kernel takes it"));
    assert!(refused(kernel, "[args]\nx = 3").to_string().contains("is a pointer"));
    assert!(refused(kernel, "[args]\nn = { elements = 3 }").to_string().contains("passed by value"));
    assert!(toml::from_str::<Plan>("grid = 3").is_err(), "an unknown key");
    let unknown = refused("__global__ void k(float* x) { x[0] = __nonsense(3); }", "");
    assert!(
        matches!(&unknown, CheckError::Device(_)) && unknown.to_string().contains("__nonsense"),
        "{unknown}"
    );
}

#[test]
fn templates_are_checked_with_the_arguments_of_their_launch_or_of_the_plan() {
    let text = "#include <cuda_runtime.h>\n\
                template <typename T> __device__ T twice(T x) { return x + x; }\n\
                template <typename T, int WIDTH = 32>\n__global__ void __launch_bounds__(WIDTH) reverse(const T* in, T* out) {\n  \
                __shared__ T tile[WIDTH];\n  tile[threadIdx.x] = twice<T>(in[threadIdx.x]);\n  \
                __syncthreads();\n  out[threadIdx.x] = tile[WIDTH - 1 - threadIdx.x];\n}\n\
                __global__ void plain(int* out) { out[threadIdx.x] = 1; }\n\
                void start(double* a) {\n  reverse<double, 64> <<<1, 64>>>(a, a);\n}\n";
    let reports = check("reverse.cu", text, &plan("blocks = 1\nthreads = 64\nseeds = 3\n")).unwrap();
    let names: Vec<&str> = reports.iter().map(|report| report.kernel.as_str()).collect();
    assert_eq!(names, ["reverse<double, 64>", "plain"]);
    assert!(reports.iter().all(|report| report.findings.is_empty()), "{reports:?}");

    let racy = text.replace("  __syncthreads();\n", "\n");
    let named = plan("kernel = \"reverse<float>\"\nblocks = 1\nthreads = 32\nseeds = 3\n");
    let found = report("reverse.cu", &racy, &named);
    let fault = &found.findings[0].fault;
    assert_eq!((found.kernel.as_str(), fault.kind), ("reverse<float>", FaultKind::Race), "{fault}");
    assert!([6, 8].contains(&fault.site.as_ref().unwrap().line), "{fault}");
    let plain = report("reverse.cu", text, &plan("kernel = \"plain\"\nseeds = 2\nblocks = 1\n"));
    assert!(plain.findings.is_empty(), "{plain:?}");

    let refused = |text: &str, toml: &str| check("reverse.cu", text, &plan(toml)).unwrap_err().to_string();
    let unlaunched = refused(&text.replace("<<<1, 64>>>", ""), "");
    assert!(unlaunched.contains("line 4") && unlaunched.contains("\"reverse<T, WIDTH>\""), "{unlaunched}");
    assert!(refused(text, "kernel = \"reverse<>\"").contains("'T' without an argument"));
    assert!(refused(text, "kernel = \"plain<int>\"").contains("no template"));
}

#[test]
fn dynamic_shared_memory_is_there_without_a_plan() {
    let text = "__global__ void k(float* out) {\n  extern __shared__ float all[];\n  all[threadIdx.x] = 1;\n  \
                out[threadIdx.x + blockIdx.x * blockDim.x] = all[threadIdx.x];\n}\n";
    assert!(report("k.cu", text, &plan("seeds = 2\n")).findings.is_empty());
    let found = report("k.cu", text, &plan("seeds = 2\nshared = 64\n"));
    assert_eq!(found.findings[0].fault.site.as_ref().unwrap().line, 3, "{found:?}");
}

#[test]
fn device_variables_are_memory_that_starts_anew() {
    // The last block adds up what all blocks left, and leaves the counter as it found it in all schedules but the last.
    let text = "__device__ unsigned arrived;\n__device__ float partial[4], scale = 2.0f;\nstatic __device__ __forceinline__ float twice(float x) { return scale * x; }\n\
                __global__ void last_block(float* out) {\n  __shared__ bool last;\n  if (threadIdx.x == 0) {\n    partial[blockIdx.x] = twice(1.0f);\n    \
                __threadfence();\n    last = atomicAdd(&arrived, 1u) == gridDim.x - 1;\n  }\n  __syncthreads();\n  if (last && threadIdx.x == 0) {\n    \
                __threadfence();\n    float sum = 0;\n    for (unsigned i = 0; i < gridDim.x; ++i) sum += partial[i];\n    \
                out[sum == 8.0f ? 0 : 1] = sum;\n  }\n}\n";
    let plan = plan("blocks = 4\nthreads = 32\nseeds = 5\n[args]\nout = { elements = 1 }\n");
    let clean = report("last.cu", text, &plan);
    assert!(clean.findings.is_empty(), "{clean:?}");
    let racy = text.replace("atomicAdd(&arrived, 1u)", "arrived++");
    let found = report("last.cu", &racy, &plan);
    let fault = &found.findings[0].fault;
    assert_eq!((fault.kind, fault.site.as_ref().unwrap().line), (FaultKind::Race, 9), "{fault}");
    assert!(fault.message.contains("__device__ variables"), "{fault}");
    let beyond = text.replace("partial[blockIdx.x] =", "(&partial[0])[blockIdx.x + 4096] =");
    let found = report("last.cu", &beyond, &plan);
    assert_eq!(found.findings[0].fault.kind, FaultKind::OutOfBounds, "{found:?}");
}

#[test]
fn constants_have_the_values_that_the_file_gives_them() {
    let text = "__constant__ int table[4] = {1, 2, 3, 4};\n__constant__ const float half = 0.5f;\n\
                __device__ int of(const int* t, int i) { return t[i & 3]; }\n\
                __global__ void k(float* out) {\n  int i = threadIdx.x;\n  out[of(table, i) == 1 + (i & 3) ? i : -1] = half;\n}\n";
    let plan = plan("blocks = 1\nthreads = 64\nseeds = 3\n[args]\nout = { elements = 64 }\n");
    assert!(report("k.cu", text, &plan).findings.is_empty());
}

#[test]
fn small_floats_are_rounded_as_the_card_rounds_them() {
    let text = "\u{feff}#include <cuda_fp16.h>\r\n#include <cuda_bf16.h>\r\n__global__ void k(half* out, const __half2* in) {\r\n  \
                half third = __float2half(1.0f / 3.0f);\r\n  half2 sum = __hadd2(__floats2half2_rn(1.0f, 2048.0f), __float2half2_rn(1.0f));\r\n  \
                __nv_bfloat16 wide = __float2bfloat16(1.00390625f);\r\n  \
                bool right = __half2float(third) == 0.333251953125f && __low2float(sum) == 2.0f && __high2float(sum) == 2048.0f\r\n    \
                && __bfloat162float(wide) == 1.0f && __hfma(third, half(3.0f), half(-1.0f)) == half(-0.000244140625f);\r\n  \
                out[right ? threadIdx.x : 1u << 30] = third + __low2half(in[threadIdx.x]);\r\n}\r\n";
    let found = report("k.cu", text, &plan("blocks = 1\nthreads = 32\nseeds = 2\n"));
    assert!(found.findings.is_empty(), "{found:?}");
    let wrong = report(
        "k.cu",
        &text.replace("0.333251953125f", "0.3333f"),
        &plan("blocks = 1\nthreads = 32\nseeds = 2\n"),
    );
    let fault = &wrong.findings[0].fault;
    assert_eq!((fault.kind, fault.site.as_ref().unwrap().line), (FaultKind::OutOfBounds, 9), "{fault}");
}

#[test]
fn a_kernel_without_an_end_is_not_run_under_every_schedule() {
    let text = "__global__ void spin(volatile int* flag) {\n  while (*flag == 0) {}\n}\n";
    let found = report("spin.cu", text, &plan("blocks = 1\nthreads = 32\nseeds = 20\nseconds = 1\n"));
    assert_eq!((found.seeds, found.findings.len()), (1, 1), "{found:?}");
    assert_eq!(found.findings[0].fault.kind, FaultKind::TimeLimit);
}

#[test]
fn errors_of_the_compiler_are_about_the_file() {
    let said = |text: &str| check("a.cu", text, &Plan::default()).unwrap_err().to_string();
    let unclosed = said("__global__ void k(int* x) {\n  if (x[0]) {\n    x[1] = 2;\n}\n");
    assert!(unclosed.contains("a.cu:1: this '{' is never closed"), "{unclosed}");
    let unknown = said("__global__ void k(int* x) {\n  x[0] = nothing;\n}\n");
    assert!(
        unknown.contains("a.cu:2:") && unknown.contains("'nothing'") || unknown.contains("‘nothing’"),
        "{unknown}"
    );
    for said in [unclosed, unknown] {
        assert!(!said.contains("gw_") && !said.contains("GW_EXPORT") && said.lines().count() < 8, "{said}");
    }
}

/// A copy of a file of `tests/cuda` and of the headers beside it, with `from` replaced by `to`.
fn altered(name: &str, from: &str, to: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let cuda = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cuda");
    for entry in std::fs::read_dir(cuda).unwrap() {
        let entry = entry.unwrap();
        let text = std::fs::read_to_string(entry.path()).unwrap();
        let text = if entry.file_name() == name { text.replacen(from, to, 1) } else { text };
        std::fs::write(folder.path().join(entry.file_name()), text).unwrap();
    }
    let path = folder.path().join(name);
    (folder, path)
}

/// The reports of a file as it is, which must be clean, and of the altered one.
#[track_caller]
fn both(name: &str, plan: &Plan, from: &str, to: &str) -> (Vec<Report>, Vec<Report>) {
    let check = |from: &str, to: &str| {
        let (_folder, path) = altered(name, from, to);
        check_file(&path, plan).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let clean = check("", "");
    for report in &clean {
        assert!(report.findings.is_empty() && report.warnings.is_empty(), "{report:?}");
    }
    (clean, check(from, to))
}

#[track_caller]
fn assert_found(report: &Report, kind: FaultKind, file: &str, line: u32) {
    let fault = &report.findings.first().expect("a finding").fault;
    let site = fault.site.as_ref().expect("a place");
    assert_eq!((fault.kind, site.file.as_str(), site.line), (kind, file, line), "{fault}");
}

#[test]
fn host_code_and_cooperative_groups_are_no_hindrance() {
    let bound = "if (ROW >= rows) return;";
    let plan = plan(
        "seeds = 3\n[args]\nrows = 5\ncolumns = 70\nin = { elements = 350 }\nout = { elements = 350 }\n",
    );
    let (clean, found) = both("softmax.cu", &plan, bound, "");
    // Both stand in the file, blocks as what a function returns.
    assert_eq!((clean[0].blocks, clean[0].threads), ([16, 1, 1], [128, 1, 1]));
    let text = include_str!("cuda/softmax.cu");
    assert_found(&found[0], FaultKind::OutOfBounds, "softmax.cu", line_of(text, "top = std::max"));
}

#[test]
fn products_of_a_warp_are_those_of_the_card() {
    let (clean, found) = both(
        "products.cu",
        &plan("seeds = 2\nblocks = 1\n"),
        "    __syncwarp();\n    uint32_t x[4]",
        "    uint32_t x[4]",
    );
    assert_eq!(clean.iter().map(|report| report.threads[0]).collect::<Vec<_>>(), [32, 32]);
    assert!(!found[0].findings.is_empty() && found[1].findings.is_empty(), "{found:?}");
    assert_eq!(found[0].findings[0].fault.kind, FaultKind::Race, "{found:?}");
}

#[test]
fn registers_predicates_and_labels_of_inline_ptx_are_understood() {
    let wait = "    asm volatile(\"cp.async.wait_group 0;\");\n";
    let (_, found) = both("registers.cu", &plan("seeds = 3\n"), wait, "");
    assert_eq!(found[0].findings[0].fault.kind, FaultKind::Race, "{found:?}");
    let (_folder, path) =
        altered("registers.cu", "shfl.sync.bfly.b32 %0, %1, 1", "shfl.sync.bfly.b32 %0, %1, 2");
    let found = check_file(&path, &plan("seeds = 1\n")).unwrap();
    let text = include_str!("cuda/registers.cu");
    assert_found(&found[0], FaultKind::Assertion, "registers.cu", line_of(text, "assert(ok)"));
}

#[test]
fn headers_beside_the_file_and_fields_of_structs_are_known() {
    let plan = plan(
        "seeds = 3\n[args]\nstep.x = { elements = 100 }\n\"step.v\" = { elements = 100 }\nstep.range.count = 90\n\
         step.range.first = 10\nstep.dt = 0.5\n",
    );
    let check = |from: &str, to: &str| {
        let (folder, header) = altered("particles.h", from, to);
        assert!(header.exists());
        check_file(&folder.path().join("particles.cu"), &plan)
    };
    let clean = check("", "").unwrap();
    assert_eq!(
        (clean[0].kernel.as_str(), clean[0].blocks[0], clean[0].threads[0]),
        ("advance<unsigned long long>", 2, 64)
    );
    assert!(clean[0].findings.is_empty(), "{clean:?}");
    let found = check("first + i", "first + 2 * i").unwrap();
    let text = include_str!("cuda/particles.cu");
    assert_found(&found[0], FaultKind::OutOfBounds, "particles.cu", line_of(text, "step.x[place"));
    assert!(found[0].findings[0].fault.message.contains("'step."), "{found:?}");
    let unknown =
        check("#include <vector>", "#include <vector>\n#include <cute/tensor.hpp>").unwrap_err().to_string();
    assert!(unknown.contains("particles.h, line 5") && unknown.contains("cute/tensor.hpp"), "{unknown}");
    let asm = check("return step", "asm(\"vmad.u32 %0;\");\n    return step").unwrap_err().to_string();
    assert!(asm.contains("particles.h, line 14") && asm.contains("vmad.u32"), "{asm}");
    let wrong = check("return step", "return stride").unwrap_err().to_string();
    assert!(wrong.contains("particles.h:14:") && wrong.contains("stride"), "{wrong}");
    let elsewhere = toml::from_str::<Plan>("[args]\nstep.y = 3\n").unwrap();
    let (folder, _) = altered("particles.cu", "", "");
    let refused = check_file(&folder.path().join("particles.cu"), &elsewhere).unwrap_err().to_string();
    assert!(refused.contains("'step.y', and no kernel takes it"), "{refused}");
}

#[test]
fn a_file_is_launched_with_its_own_sizes_where_it_says_them() {
    let plan = plan("seeds = 3");
    let (clean, found) = both("last_block.cu", &plan, "i < count; i +=", "i <= count; i +=");
    assert_eq!((clean[0].kernel.as_str(), clean[0].sizes), ("sum_float", Sizes::OfTheFile));
    assert_eq!((clean[0].blocks, clean[0].threads), ([4, 1, 1], [64, 1, 1]));
    let text = include_str!("cuda/last_block.cu");
    assert_found(&found[0], FaultKind::OutOfBounds, "last_block.cu", line_of(text, "T mine = 0") + 1);
    // With a size of the plan, the others are its defaults.
    let (_folder, path) = altered("last_block.cu", "i < count; i +=", "i <= count; i +=");
    let planned = check_file(&path, &self::plan("seeds = 1\nblocks = 1\n")).unwrap();
    assert!(planned[0].sizes == Sizes::OfThePlan && planned[0].findings.is_empty(), "{planned:?}");
}

#[test]
fn shared_memory_outside_of_functions_is_of_the_block() {
    let (clean, found) =
        both("last_block.cu", &plan("seeds = 6"), "    __syncthreads();\n    if (is_last", "    if (is_last");
    assert_eq!(clean[0].seeds, 6);
    let text = include_str!("cuda/last_block.cu");
    let fault = &found[0].findings.first().expect("a finding").fault;
    assert_eq!(fault.kind, FaultKind::Race, "{fault}");
    let site = fault.site.as_ref().expect("a place");
    let lines = [line_of(text, "is_last = atomicInc"), line_of(text, "if (is_last") - 1];
    assert!(lines.contains(&site.line), "{fault}");
}

#[test]
fn flags_in_global_memory_may_be_volatile() {
    let text = "__global__ void hand_over(const int* in, volatile int* flag, int* data, int* out) {\n\
                if (threadIdx.x > 0) return;\nif (blockIdx.x == 0) {\n*data = in[0] + 1;\n__threadfence();\n*flag = 1;\n\
                } else {\nwhile (*flag == 0) ;\n__threadfence();\nout[0] = *data;\n}\n}";
    let plan = plan("threads = 32");
    let clean = report("flag.cu", text, &plan);
    assert!(clean.findings.is_empty(), "{clean:?}");
    for fence in ["\n__threadfence();\n*flag", "\n__threadfence();\nout"] {
        let without = text.replacen(fence, &fence.replace("__threadfence();", ""), 1);
        let found = report("flag.cu", &without, &plan);
        let [finding] = found.findings.as_slice() else { panic!("{found:?}") };
        assert_eq!(finding.fault.kind, FaultKind::Race, "{finding:?}");
        assert_eq!(finding.fault.site.as_ref().map(|site| site.line), Some(line_of(text, "out[0] = *data")));
        assert_eq!(finding.seeds, plan.seeds);
    }
    // In shared memory it stands for a barrier of the warp that is missing.
    let text = "__global__ void tail(const float* in, float* out) {\n__shared__ volatile float s[32];\n\
                s[threadIdx.x] = in[threadIdx.x];\nif (threadIdx.x < 16) s[threadIdx.x] += s[threadIdx.x + 16];\n\
                if (threadIdx.x == 0) out[0] = s[0];\n}";
    let found = report("tail.cu", text, &self::plan("blocks = 1\nthreads = 32"));
    assert_eq!(found.findings.first().map(|finding| finding.fault.kind), Some(FaultKind::Race), "{found:?}");
}

#[test]
fn macros_may_hold_inline_ptx() {
    let text = "#include <cuda_fp16.h>\n#include <cstdint>\n\
                #define CP_ASYNC(to, from, bytes) asm volatile(\"cp.async.cg.shared.global [%0], [%1], %2;\\n\" :: \"r\"(to), \"l\"(from), \"n\"(bytes))\n\
                #define COMMIT() asm volatile(\"cp.async.commit_group;\\n\" ::)\n\
                #define WAIT(n) asm volatile(\"cp.async.wait_group %0;\\n\" :: \"n\"(n))\n\
                __global__ void copy(const float4* in, float4* out) {\n__shared__ float4 tile[2][32];\n\
                for (int i = 0; i < 2; ++i) {\n\
                CP_ASYNC((uint32_t)__cvta_generic_to_shared(&tile[i][threadIdx.x]), in + 32 * i + threadIdx.x, 16);\nCOMMIT();\n}\n\
                WAIT(0);\n__syncthreads();\nout[threadIdx.x] = tile[1][31 - threadIdx.x];\n}\n\
                int main() { float4 *in, *out; cudaMalloc(&in, 64 * sizeof(float4)); cudaMalloc(&out, 512); copy<<<1, 32>>>(in, out); }";
    let clean = report("copy.cu", text, &plan(""));
    assert!(clean.findings.is_empty() && clean.sizes == Sizes::OfTheFile, "{clean:?}");
    let found = report("copy.cu", &text.replace("WAIT(0)", "WAIT(1)"), &plan(""));
    assert_found(&found, FaultKind::Race, "copy.cu", line_of(text, "out[threadIdx.x] ="));
}

#[test]
fn constants_that_the_host_would_fill_hold_small_numbers() {
    let text = "#define R 2\n__constant__ float taps[2 * R + 1], bias;\nnamespace a { static __constant__ unsigned int order[3]; }\n\
                __constant__ int width;\n\
                __global__ void convolve(const float* in, float* out) {\nint i = threadIdx.x;\nfloat sum = bias;\n\
                for (int k = 0; k < 2 * R + 1; ++k) sum += taps[k] * in[i + k];\n\
                if (taps[0] == 0 || taps[0] == taps[1] || bias < -1 || bias > 1) __trap();\n\
                if (width != 64 || a::order[0] > 63 || a::order[0] == a::order[1]) __trap();\nout[i] = sum;\n}";
    let clean = report("convolve.cu", text, &plan("threads = 32\nblocks = 1"));
    assert!(clean.findings.is_empty(), "{clean:?}");
    let written = text.replace("out[i] = sum", "*(float*)&taps[0] = sum");
    let found = report("convolve.cu", &written, &plan("threads = 32\nblocks = 1"));
    assert_found(&found, FaultKind::OutOfBounds, "convolve.cu", line_of(text, "out[i] = sum"));
    let refused = check(
        "convolve.cu",
        &text.replace("__constant__ int width", "struct S { int a; };\n__constant__ S width"),
        &plan(""),
    );
    assert!(matches!(&refused, Err(CheckError::Refused(refusal)) if refusal.line == 5), "{refused:?}");
}

#[test]
fn cooperative_launches_are_known_by_their_call() {
    let text = "#include <cooperative_groups.h>\n__global__ void k(int* a, int* b) {\nint i = blockIdx.x * 32 + threadIdx.x;\na[i] = i;\n\
                cooperative_groups::this_grid().sync();\nb[i] = a[127 - i];\n}\n\
                int main() { void* all[2]; cudaLaunchCooperativeKernel((void*)k, 4, 32, all); }";
    let clean = report("grid.cu", text, &plan("seeds = 3"));
    assert!(clean.findings.is_empty() && clean.blocks == [4, 1, 1], "{clean:?}");
    let found = report("grid.cu", &text.replace("cudaLaunchCooperativeKernel", "call"), &plan("seeds = 1"));
    let message = &found.findings.first().expect("a finding").fault.message;
    assert!(message.contains("write 'cooperative = true' into a plan"), "{message}");
}

#[test]
fn what_the_host_computes_when_it_starts_is_left_out_or_refused() {
    let kernel = "__global__ void k(int* x) { x[threadIdx.x] = 1; }\nint main() { k<<<1, 32>>>(nullptr); }";
    for text in [
        "static int count = std::atoi(\"2\");",
        "float* pool = (float*)malloc(16);",
        "int get(); int from = get();",
    ] {
        let clean = report("host.cu", &format!("#include <cstdlib>\n{text}\n{kernel}"), &plan(""));
        assert!(clean.findings.is_empty(), "{text}: {clean:?}");
    }
    let timer = "struct Timer { int started; Timer() { volatile int now = 3; started = now; } ~Timer() { started = 0; } };\n\
                 static Timer timer;";
    let refused = check("host.cu", &format!("{timer}\n{kernel}"), &plan(""));
    let Err(CheckError::Device(error)) = refused else { panic!("{refused:?}") };
    assert!(error.to_string().contains("computed when the program starts"), "{error}");
}

/// Only the program knows what its integers index: buffers that end where the file's end would be overrun by others.
#[test]
fn integers_that_may_be_indices_leave_sizes_to_the_plan() {
    let text = "__global__ void gather(const int* index, const float* in, float* out) {\n\
                out[threadIdx.x] = in[index[threadIdx.x]];\n}\n\
                int main() { int* index; float *in, *out; cudaMalloc(&index, 128); cudaMalloc(&in, 64); cudaMalloc(&out, 128);\n\
                gather<<<1, 32>>>(index, in, out); }";
    let clean = report("gather.cu", text, &plan(""));
    assert!(clean.findings.is_empty() && clean.sizes == Sizes::OfThePlan, "{clean:?}");
}
