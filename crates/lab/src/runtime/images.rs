//! Kernels of other compilers: PTX, a cubin, plain CUDA C++.

use std::fs;

use gatework_gpu::{Device, Error, Grid, Image, Kernel, Kind, Module, ParameterType, Source, args, compile};

use crate::{Case, Control, ErrorBudget, Inputs, KernelSpec, Outputs, RunError, Work, Workload, poisoned};

const THREADS: u32 = 128;

/// `gpu/images`.
pub(super) struct Images;

/// y[i] <- a x[i] for i < n, one thread an element.
const PTX: &str = r"
.version 7.0
.target sm_70
.address_size 64
.visible .entry scale(
	.param .u64 scale_x,
	.param .u64 scale_y,
	.param .f32 scale_a,
	.param .u32 scale_n
)
{
	.reg .pred %outside;
	.reg .f32 %a, %value;
	.reg .b32 %block, %width, %thread, %index, %n;
	.reg .b64 %x, %y, %offset, %from, %to;

	ld.param.u32 %n, [scale_n];
	mov.u32 %block, %ctaid.x;
	mov.u32 %width, %ntid.x;
	mov.u32 %thread, %tid.x;
	mad.lo.u32 %index, %block, %width, %thread;
	setp.ge.u32 %outside, %index, %n;
	@%outside bra DONE;
	ld.param.u64 %x, [scale_x];
	ld.param.u64 %y, [scale_y];
	ld.param.f32 %a, [scale_a];
	cvta.to.global.u64 %x, %x;
	cvta.to.global.u64 %y, %y;
	mul.wide.u32 %offset, %index, 4;
	add.u64 %from, %x, %offset;
	add.u64 %to, %y, %offset;
	ld.global.f32 %value, [%from];
	mul.rn.f32 %value, %value, %a;
	st.global.f32 [%to], %value;
DONE:
	ret;
}
";

/// The same in plain CUDA C++, with a name that the compiler mangles.
const PLAIN: &str = r"
__global__ void scale(const float* x, float* y, float a, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __fmul_rn(a, x[i]);
}
";
const MANGLED: &str = "_Z5scalePKfPffj";

fn declared() -> [ParameterType; 4] {
    [
        ParameterType::read::<f32>(),
        ParameterType::write::<f32>(),
        ParameterType::value::<f32>(),
        ParameterType::value::<u32>(),
    ]
}

fn plain() -> Source {
    Source::plain("scale", PLAIN)
}

/// The kernel, come by in every way.
fn kernels(device: &Device) -> Result<[Kernel; 3], RunError> {
    let binary = compile(&plain(), &device.properties().architecture)?;
    let bytes = fs::read(&binary.path).map_err(|source| Error::Io { path: binary.path.clone(), source })?;
    let load = |image: Image, entry: &str| device.kernel_in(&image, entry, &declared());
    Ok([
        load(Module::from_ptx("scale", PTX), "scale")?,
        load(Module::from_cubin("scale", bytes), MANGLED)?,
        device.kernel_named(&plain(), MANGLED)?.declare(&declared())?,
    ])
}

/// Whether a device without a card says so, for each of them.
fn refused(device: &Device) -> Result<Outputs, RunError> {
    let says_so = |outcome: Result<Kernel, Error>| matches!(outcome, Err(Error::NeedsCard { .. }));
    let ptx = device.kernel_in(&Module::from_ptx("scale", PTX), "scale", &declared());
    let plain = device.kernel_named(&plain(), MANGLED);
    // What is no cubin is told before where it would have run.
    let cubin = device.kernel_in(&Module::from_cubin("scale", *b"no cubin"), MANGLED, &declared());
    let refused = [says_so(ptx), says_so(plain), matches!(cubin, Err(Error::Load { .. }))];
    Ok(Outputs::new().with("refused", refused.map(u32::from).to_vec()))
}

struct Problem {
    x: Vec<f32>,
    a: f32,
}

impl Problem {
    fn new(case: &Case, seed: u64) -> Self {
        let mut inputs = Inputs::new(seed);
        let x = inputs.words(case.dimension("n"));
        Self { x: x.into_iter().map(|word| word as f32 / 65536.0 - 32768.0).collect(), a: 1.1 }
    }

    fn outputs(&self, a: f32) -> Outputs {
        let y: Vec<f32> = self.x.iter().map(|x| a * x).collect();
        Outputs::new()
            .with("ptx", y.clone())
            .with("cubin", y.clone())
            .with("plain", y)
            .with("refused", vec![1u32; 2])
    }
}

impl Workload for Images {
    fn name(&self) -> &str {
        "gpu/images"
    }

    fn summary(&self) -> &str {
        "kernels of other compilers: PTX, a cubin and plain CUDA C++, with declared parameters"
    }

    fn kernels(&self) -> Vec<KernelSpec> {
        Vec::new()
    }

    /// The emulated device has none to run, and refuses all of them.
    fn cases(&self, kind: Kind) -> Vec<Case> {
        let (sizes, card): (&[usize], usize) = match kind {
            Kind::Emulated => (&[33], 0),
            Kind::Cuda => (&[1, 127, 1_000_003], 1),
        };
        sizes.iter().map(|&n| Case::new(format!("n{n}")).with("n", n).with("card", card)).collect()
    }

    fn run(&self, device: &Device, case: &Case, seed: u64) -> Result<Outputs, RunError> {
        if case.dimension("card") == 0 {
            return refused(device);
        }
        let problem = Problem::new(case, seed);
        let stream = device.stream()?;
        let n = problem.x.len();
        let (x, grid) = (stream.upload(&problem.x)?, Grid::covering(n, THREADS));
        let mut outputs = Outputs::new();
        for (name, kernel) in ["ptx", "cubin", "plain"].into_iter().zip(kernels(device)?) {
            let mut y = poisoned::<f32>(&stream, n)?;
            kernel.launch(&stream, &grid, &args![&x, &mut y, problem.a, n as u32])?;
            outputs = outputs.with(name, stream.download(&y)?);
        }
        let image = Module::from_ptx("scale", PTX);
        let fewer = device.kernel_in(&image, "scale", &declared()[..3]).is_err();
        let [kernel, ..] = kernels(device)?;
        let read_only = kernel.launch(&stream, &grid, &args![&x, &x, problem.a, n as u32]).is_err();
        Ok(outputs.with("refused", [fewer, read_only].map(u32::from).to_vec()))
    }

    fn reference(&self, case: &Case, seed: u64) -> Outputs {
        if case.dimension("card") == 0 {
            return Outputs::new().with("refused", vec![1u32; 3]);
        }
        let problem = Problem::new(case, seed);
        problem.outputs(problem.a)
    }

    fn budget(&self, _: &Case) -> ErrorBudget {
        ErrorBudget::Exact
    }

    fn controls(&self, case: &Case, seed: u64, reference: &Outputs) -> Vec<Control> {
        if case.dimension("card") == 0 {
            return vec![Control::zeros(reference), Control::one_off(reference, "refused", 1, 1.0)];
        }
        let problem = Problem::new(case, seed);
        vec![
            Control::zeros(reference),
            Control::unwritten_tail(reference, 1),
            Control::new("another factor", problem.outputs(1.2)),
        ]
    }

    fn work(&self, case: &Case) -> Work {
        let n = case.dimension("n") as u64;
        Work { operations: 3 * n, bytes: 3 * 2 * 4 * n }
    }
}
