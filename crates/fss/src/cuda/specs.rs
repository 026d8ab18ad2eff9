//! What the lab knows of the kernels: those behind each call of the backend.

use gatework_gpu::Module;
use gatework_lab::KernelSpec;

use super::kernels;
use super::schedule::AesForm;

/// The kernels of one module that are launched, by their names.
fn spec<const N: usize>(module: Module, threads: u32, entries: [&str; N]) -> KernelSpec {
    KernelSpec::new(module.source()).entries(entries).threads(threads)
}

/// Element-wise arithmetic, sums and messages: what every gate needs.
pub(crate) fn arithmetic() -> Vec<KernelSpec> {
    vec![
        spec(kernels::ARITHMETIC, 256, ["interpret"]),
        spec(kernels::PACKING, 256, ["pack", "open"]),
        spec(kernels::SUMS, 128, ["row_sums", "column_sums"]),
    ]
}

/// Lookups, as a card runs them.
pub(crate) fn lookup() -> Vec<KernelSpec> {
    let form = AesForm::OF_A_CARD.for_short_work();
    vec![spec(form.module(&kernels::LOOKUP), 128, ["lookup_trees", "lookup_tables"])]
}

/// Words that a party derives.
pub(crate) fn prg(form: AesForm) -> Vec<KernelSpec> {
    vec![spec(form.module(&kernels::PRG), 256, ["derive_words"])]
}

/// Comparisons.
pub(crate) fn compare(form: AesForm) -> Vec<KernelSpec> {
    vec![
        spec(form.module(&kernels::COMPARE), 256, ["compare_trees", "compare_tables"]),
        spec(AesForm::Quads.module(&kernels::COMPARE), 768, ["compare_trees"]),
        spec(form.module(&kernels::ROOTS), 256, ["derive_roots"]),
    ]
}

/// Products in limbs, with as many as rings of 49 to 56 bits take.
pub(crate) fn products_in_limbs() -> Vec<KernelSpec> {
    let limbs = kernels::LIMBS.define("LIMBS", 7u32);
    vec![
        spec(limbs, 256, ["multiply_limbs"]).require("IMMA"),
        spec(limbs, 128, ["multiply_narrow"]).require("IMMA"),
        spec(limbs, 256, ["split_words"]),
    ]
}

/// Products word by word.
pub(crate) fn products_in_words() -> Vec<KernelSpec> {
    vec![spec(kernels::GEMM, 256, ["multiply_words"])]
}

/// Keys as the dealer makes them.
pub(crate) fn deal(form: AesForm) -> Vec<KernelSpec> {
    let entries = ["generate_trees", "generate_tables", "table_signs"];
    vec![
        spec(form.module(&kernels::GENERATE), 256, entries),
        spec(form.module(&kernels::ROOTS), 256, ["derive_roots"]),
    ]
}
