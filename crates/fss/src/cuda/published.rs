//! What comparisons are held against: a kernel written the published way, which keys the cipher anew with
//! every node.

use gatework_gpu::{Buffer, Grid, Stream, args};

use crate::dpf;
use crate::error::Result;

use super::kernels;
use super::prg::Generator;
use super::queue::Queue;
use super::schedule::{AesForm, Schedule};
use super::shared::COMPARE_THREADS;

/// Comparisons of as many keys of a domain. Their bits mean nothing: the cost of a comparison does not depend
/// on them.
pub(crate) struct Published {
    queue: Queue,
    form: AesForm,
    generator: Generator,
    domain: u32,
    roots: Buffer<u64>,
    corrections: Buffer<u64>,
    points: Buffer<u64>,
    bits: Buffer<u64>,
}

impl Published {
    pub(crate) fn new(stream: &Stream, domain: u32, count: usize) -> Result<Self> {
        let queue = Queue::on(stream.clone())?;
        let form = match Schedule::of(stream.device()).aes {
            AesForm::BitPlanes | AesForm::Pairs | AesForm::Quads => AesForm::Table { copies: 32 },
            table @ AesForm::Table { .. } => table,
        };
        let filled = |words: usize| {
            let mut buffer = queue.alloc::<u64>(words)?;
            stream.fill(&mut buffer, 0x9e37_79b9_7f4a_7c15)?;
            Ok::<_, crate::Error>(buffer)
        };
        let roots = filled(2 * count)?;
        let corrections = filled(2 * dpf::correction_words(domain) * count)?;
        let (points, bits) = (filled(count)?, filled(count)?);
        let generator = Generator::new(&queue, form)?;
        Ok(Self { queue, form, generator, domain, roots, corrections, points, bits })
    }

    pub(crate) fn run(&mut self) -> Result<()> {
        let count = self.points.len();
        self.queue.launch(
            &self.form.module(&kernels::PUBLISHED),
            "compare_rekeyed",
            &Grid::covering(count, COMPARE_THREADS).shared(self.form.shared_bytes()),
            &args![
                &self.generator.table,
                &self.roots,
                &self.corrections,
                &self.points,
                self.domain,
                count as u64,
                &mut self.bits
            ],
        )
    }
}
