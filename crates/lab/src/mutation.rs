//! Mutations: a kernel with one synchronising call dropped or altered must not pass, or the emulator proves
//! nothing.
//!
//! Call sites are found in the text, mechanically: every barrier, wait, arrive, fence and commit goes through
//! `gw::`.

use gatework_gpu::{Device, Kind};

use crate::Workload;
use crate::case::Case;

/// Calls that order threads, memory or copies, and how each is altered besides being dropped.
const SYNCHRONISING: &[(&str, &[Alteration])] = &[
    ("sync_threads", &[]),
    ("sync_warp", &[]),
    ("sync_grid", &[]),
    ("sync_cluster", &[]),
    ("cluster_arrive", &[Alteration::Name("cluster_arrive_relaxed")]),
    ("cluster_arrive_relaxed", &[]),
    ("cluster_wait", &[]),
    ("await_stream", &[]),
    ("barrier_sync", &[Alteration::Argument(0, "({}) ^ 1")]),
    ("barrier_arrive", &[Alteration::Argument(0, "({}) ^ 1")]),
    ("fence_block", &[]),
    ("fence_device", &[]),
    ("fence_system", &[]),
    ("fence_cluster", &[]),
    ("fence_async_proxy", &[]),
    ("fence_async_proxy_shared", &[]),
    ("fence_async_proxy_cluster", &[]),
    ("fence_async_proxy_global", &[]),
    ("fence_mbarrier_init", &[]),
    ("mbarrier_init", &[Alteration::Argument(1, "({}) + 1"), Alteration::Argument(1, "({}) * 2")]),
    ("mbarrier_invalidate", &[]),
    ("mbarrier_arrive", &[]),
    ("mbarrier_arrive_at", &[]),
    ("mbarrier_arrive_many", &[Alteration::Argument(1, "({}) / 2"), Alteration::Argument(1, "({}) * 2")]),
    ("mbarrier_expect", &[Alteration::Argument(1, "({}) / 2"), Alteration::Argument(1, "({}) * 2")]),
    ("mbarrier_arrive_expect", &[Alteration::Argument(1, "({}) / 2"), Alteration::Argument(1, "({}) * 2")]),
    ("mbarrier_wait", &[Alteration::Argument(1, "({}) ^ 1"), Alteration::BlockScope]),
    ("mbarrier_try_wait", &[Alteration::Argument(1, "({}) ^ 1")]),
    ("copy_async_arrive", &[Alteration::Name("mbarrier_arrive")]),
    ("copy_async_commit", &[]),
    ("copy_async_wait", &[Alteration::OneMorePending]),
    ("bulk_commit", &[]),
    ("bulk_wait", &[Alteration::OneMorePending]),
    ("bulk_wait_read", &[Alteration::OneMorePending]),
    ("wgmma_fence", &[]),
    ("wgmma_commit", &[]),
    ("wgmma_wait", &[Alteration::OneMorePending]),
    ("store_release", &[Alteration::Name("store_relaxed")]),
    ("load_acquire", &[Alteration::Name("load_relaxed")]),
];

/// Calls whose value is used: they are altered, never dropped.
const NEVER_DROPPED: &[&str] = &["mbarrier_try_wait", "store_release", "load_acquire"];

#[derive(Debug, Clone, Copy)]
enum Alteration {
    /// Argument number so-and-so, wrapped in the pattern.
    Argument(usize, &'static str),
    /// `wait<N>` becomes `wait<N + 1>`.
    OneMorePending,
    /// `<gw::Scope::Cluster>` becomes the block's.
    BlockScope,
    /// Another function with the same arguments.
    Name(&'static str),
}

/// A kernel's text with one synchronising call changed.
#[derive(Debug, Clone)]
pub struct Mutant {
    /// Line of the call, from 1.
    pub line: usize,
    /// The call as it stands.
    pub call: String,
    /// The alteration: `dropped`, or the call that replaced it.
    pub change: String,
    /// The whole changed text.
    pub text: String,
}

impl std::fmt::Display for Mutant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {} -> {}", self.line, self.call, self.change)
    }
}

/// Every mutant of a kernel's text.
///
/// ```
/// let mutants = gatework_lab::mutation::mutants("gw::sync_threads();\ngw::mbarrier_wait(b + s, (k / 3) & 1);");
/// let told: Vec<String> = mutants.iter().map(ToString::to_string).collect();
/// assert_eq!(told, [
///     "line 1: gw::sync_threads() -> dropped",
///     "line 2: gw::mbarrier_wait(b + s, (k / 3) & 1) -> dropped",
///     "line 2: gw::mbarrier_wait(b + s, (k / 3) & 1) -> gw::mbarrier_wait(b + s, ((k / 3) & 1) ^ 1)",
/// ]);
/// ```
pub fn mutants(text: &str) -> Vec<Mutant> {
    let code = without_comments(text);
    let mut mutants = Vec::new();
    for site in call_sites(&code) {
        let call = &code[site.start..site.end];
        let replaced = |with: &str| format!("{}{with}{}", &code[..site.start], &code[site.end..]);
        let line = code[..site.start].matches('\n').count() + 1;
        if !NEVER_DROPPED.contains(&site.name) {
            // The arguments are still evaluated, so that dropping changes the synchronisation alone.
            let dropped = format!(
                "((void)0{})",
                site.arguments.iter().fold(String::new(), |all, a| all + ", (void)(" + a.trim() + ")")
            );
            mutants.push(Mutant {
                line,
                call: call.to_owned(),
                change: "dropped".into(),
                text: replaced(&dropped),
            });
        }
        for alteration in site.alterations {
            if let Some(altered) = site.altered(call, *alteration) {
                mutants.push(Mutant {
                    line,
                    call: call.to_owned(),
                    text: replaced(&altered),
                    change: altered,
                });
            }
        }
    }
    mutants
}

/// How a mutant fared.
#[derive(Debug, Clone)]
pub enum Fate {
    /// It was found out: with which emulator seed, and how.
    Caught {
        /// Seeds tried, this one included.
        seeds: u64,
        /// The fault, or the wrong result, or the compiler's refusal.
        how: String,
    },
    /// It passed with every seed.
    Survived,
}

/// Runs a workload's smallest telling cases with a mutant of one of its kernels, over up to `seeds`
/// schedules.
///
/// `original` is the text that the workload's host code asks for. Fails if an emulated device cannot be
/// opened.
pub fn hunt(workload: &dyn Workload, original: &str, mutant: &str, seeds: u64) -> gatework_gpu::Result<Fate> {
    let cases = workload.cases(Kind::Emulated);
    for seed in 0..seeds {
        for case in &cases {
            if let Some(how) = refusal(workload, case, original, mutant, seed)? {
                return Ok(Fate::Caught { seeds: seed + 1, how });
            }
        }
    }
    Ok(Fate::Survived)
}

/// Why one run is not right, if it is not.
fn refusal(
    workload: &dyn Workload,
    case: &Case,
    original: &str,
    text: &str,
    seed: u64,
) -> gatework_gpu::Result<Option<String>> {
    let device = Device::emulated(seed)?;
    device.substitute(original, text);
    Ok(match workload.run(&device, case, seed) {
        Err(error) => Some(error.to_string()),
        Ok(outputs) => workload.budget(case).judge(&outputs, &workload.reference(case, seed)).refused,
    })
}

struct CallSite<'a> {
    name: &'static str,
    alterations: &'static [Alteration],
    start: usize,
    end: usize,
    /// What stands between `<` and `>`.
    template: Option<&'a str>,
    arguments: Vec<&'a str>,
}

impl CallSite<'_> {
    fn altered(&self, call: &str, alteration: Alteration) -> Option<String> {
        match alteration {
            Alteration::Argument(index, pattern) => {
                let argument = self.arguments.get(index)?.trim();
                let changed = pattern.replace("{}", argument);
                let arguments: Vec<&str> = self
                    .arguments
                    .iter()
                    .enumerate()
                    .map(|(i, other)| if i == index { changed.as_str() } else { other.trim() })
                    .collect();
                Some(format!("gw::{}({})", self.name, arguments.join(", ")))
            }
            Alteration::OneMorePending => {
                let pending = self.template?;
                Some(call.replacen(&format!("<{pending}>"), &format!("<({pending}) + 1>"), 1))
            }
            Alteration::BlockScope => {
                self.template.filter(|scope| scope.contains("Cluster"))?;
                Some(call.replacen("Scope::Cluster", "Scope::Block", 1))
            }
            Alteration::Name(other) => Some(call.replacen(self.name, other, 1)),
        }
    }
}

fn call_sites(code: &str) -> Vec<CallSite<'_>> {
    let mut sites = Vec::new();
    for (start, _) in code.match_indices("gw::") {
        let rest = &code[start + 4..];
        let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let Some(&(name, alterations)) = SYNCHRONISING.iter().find(|(name, _)| *name == &rest[..length])
        else {
            continue;
        };
        let mut at = start + 4 + length;
        let mut template = None;
        if code[at..].starts_with('<') {
            let Some(close) = code[at..].find('>') else { continue };
            template = Some(&code[at + 1..at + close]);
            at += close + 1;
        }
        if !code[at..].starts_with('(') {
            continue;
        }
        let Some((end, arguments)) = arguments(code, at) else { continue };
        sites.push(CallSite { name, alterations, start, end, template, arguments });
    }
    sites
}

/// The end of the parenthesis that opens at `open`, and the arguments in it.
fn arguments(code: &str, open: usize) -> Option<(usize, Vec<&str>)> {
    let (mut depth, mut from, mut found) = (0, open + 1, Vec::new());
    for (at, c) in code[open..].char_indices().map(|(at, c)| (open + at, c)) {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 1 => {
                found.push(&code[from..at]);
                from = at + 1;
            }
            _ => {}
        }
        if depth == 0 {
            if !code[from..at].trim().is_empty() {
                found.push(&code[from..at]);
            }
            return Some((at + 1, found));
        }
    }
    None
}

/// Comments become blanks, so that lines keep their numbers and a call in a comment is none.
fn without_comments(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_in_comments_and_other_calls_are_left_alone() {
        assert!(mutants("// gw::sync_threads();\ngw::shuffle(x, 1); gw::sync_threads_count();").is_empty());
    }

    #[test]
    fn waits_are_altered_in_their_template_argument() {
        let told: Vec<String> =
            mutants("gw::wgmma_wait<0>();").iter().map(|mutant| mutant.change.clone()).collect();
        assert_eq!(told, ["dropped", "gw::wgmma_wait<(0) + 1>()"]);
    }

    #[test]
    fn a_dropped_call_still_evaluates_its_arguments() {
        let mutant = &mutants("gw::mbarrier_arrive(empty + f(a, b));")[0];
        assert_eq!(mutant.text, "((void)0, (void)(empty + f(a, b)));");
    }
}
