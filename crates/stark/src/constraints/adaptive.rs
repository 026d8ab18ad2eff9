//! The interpreter, until generated kernels are there.

use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle};

use gatework_gpu::{Buffer, Device, Kernel, Locked, Source};

use super::generate::{Part, Tables, compile};
use super::inputs::Inputs;
use super::interpret::Interpreted;
use crate::error::OrRaise as _;
use crate::queue::Queue;
use crate::shared::Rows;
use crate::{Error, Result};

/// Constraints that are interpreted while a thread compiles kernels for them.
pub(crate) struct Adaptive {
    interpreted: Interpreted,
    tables: Tables,
    device: Device,
    sources: Vec<Source>,
    kernels: Arc<OnceLock<Result<Vec<Kernel>>>>,
    compiler: Locked<Compiler>,
}

enum Compiler {
    NotBegun,
    Begun(JoinHandle<()>),
    Done,
}

impl Adaptive {
    /// Compiles `parts`, which compute the same as `interpreted`, from the first launch on.
    pub(crate) fn new(queue: &Queue, interpreted: Interpreted, parts: &[Part]) -> Self {
        let sources = parts.iter().map(|part| part.source.clone()).collect();
        Self {
            interpreted,
            tables: Tables::new(queue, parts),
            device: queue.stream().device().clone(),
            sources,
            kernels: Arc::new(OnceLock::new()),
            compiler: Locked::new(Compiler::NotBegun),
        }
    }

    /// Begins to compile, once.
    fn begin(&self) -> Result<()> {
        let mut compiler = self.compiler.lock();
        if !matches!(*compiler, Compiler::NotBegun) {
            return Ok(());
        }
        let (device, sources, slot) = (self.device.clone(), self.sources.clone(), self.kernels.clone());
        // One after the other: the other cores are the prover's.
        let work = move || {
            let compiled = sources.iter().map(|source| Ok(device.kernel(source)?)).collect();
            // Nobody else sets it.
            let _ = slot.set(compiled);
        };
        let thread = Builder::new()
            .name("stark-compiler".into())
            .spawn(work)
            .map_err(|error| Error::Unsupported { what: format!("a thread that compiles ({error})") })?;
        *compiler = Compiler::Begun(thread);
        Ok(())
    }

    /// Runs on all rows what is there.
    pub(crate) fn launch(&self, queue: &Queue, inputs: &Inputs, rows: &Rows, outputs: Option<&Buffer<u64>>) {
        self.begin().or_raise();
        match self.kernels.get() {
            None => self.interpreted.launch(queue, inputs, rows, outputs),
            Some(Ok(kernels)) => self.tables.launch(queue, kernels, inputs, rows, outputs),
            Some(Err(_)) => {
                // The error is the other thread's; the compiler says it again here.
                let kernels = compile(queue, &self.sources).or_raise();
                self.tables.launch(queue, &kernels, inputs, rows, outputs);
            }
        }
    }

    /// Waits for the compiler, if it has begun.
    pub(crate) fn wait(&self) {
        let mut compiler = self.compiler.lock();
        if matches!(*compiler, Compiler::NotBegun) {
            return;
        }
        if let Compiler::Begun(thread) = std::mem::replace(&mut *compiler, Compiler::Done)
            && let Err(panic) = thread.join()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Drop for Adaptive {
    /// What has been begun is finished: the next process finds it in the cache.
    fn drop(&mut self) {
        let compiler = self.compiler.get_mut();
        if let Compiler::Begun(thread) = std::mem::replace(compiler, Compiler::Done) {
            // A panic there was printed, and who drops this cannot do anything about it.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use stwo::core::fields::qm31::SecureField;

    use super::super::generate::parts;
    use super::super::program::Roots;
    use super::super::record::record;
    use super::*;
    use crate::airs::WideFibonacci;
    use crate::error::catch;

    fn adaptive(queue: &Queue, change: impl Fn(&mut Vec<Part>)) -> Adaptive {
        let graph = record(&WideFibonacci { log_rows: 4, columns: 5 }, SecureField::default()).graph();
        let (roots, column) = (Roots::constraints(&graph), |_, column| column);
        let mut parts = parts(&graph, &roots, column);
        change(&mut parts);
        let adaptive = Adaptive::new(queue, Interpreted::new(queue, &graph, &roots, column), &parts);
        adaptive.begin().unwrap();
        adaptive
    }

    #[test]
    fn kernels_are_there_once_they_were_waited_for() {
        let queue = Queue::new(Device::emulated(1).unwrap().stream().unwrap());
        let adaptive = adaptive(&queue, |_| ());
        adaptive.wait();
        assert!(matches!(adaptive.kernels.get(), Some(Ok(kernels)) if kernels.len() == 1));
    }

    #[test]
    fn what_does_not_compile_is_an_error_and_not_interpreted_for_ever() {
        let queue = Queue::new(Device::emulated(1).unwrap().stream().unwrap());
        let adaptive = adaptive(&queue, |parts| parts[0].source = Source::new("constraints", "no kernel"));
        adaptive.wait();
        let inputs = Inputs { columns: vec![0; 5], parameters: Vec::new() };
        let rows = bytemuck::Zeroable::zeroed();
        let error = catch(|| adaptive.launch(&queue, &inputs, &rows, None)).unwrap_err();
        assert!(matches!(error, Error::Gpu(_)), "{error}");
    }
}
