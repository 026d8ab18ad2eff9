//! Runs Nsight Compute on a program.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gatework_gpu::{Presence, presence};

use super::csv::{Launch, launches};
use super::metrics::{missing, utilisation, wanted};
use super::{LaunchProfile, ProfileRecord};

/// A program that launches something again and again, for the profiler to look at.
#[derive(Debug, Clone)]
pub struct ProfiledProgram {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The kernels to look at; none means all.
    pub kernels: Vec<String>,
    /// The case that it launches, for the record.
    pub case: String,
}

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Nothing is wrong with the kernel: the profiler is missing or may not look.
    #[error("{0}")]
    NotRun(String),
    /// The profiled program or the profiler failed.
    #[error("{0}")]
    Failed(String),
}

/// Profiles one launch, the second: the first loads the kernel.
pub fn profile(program: &ProfiledProgram) -> Result<ProfileRecord, ProfileError> {
    let ncu = match presence::tool("ncu") {
        Presence::Found { what } => PathBuf::from(what),
        Presence::Missing { .. } => {
            let why = "'ncu' was not found: install Nsight Compute and put it on PATH, or name its folder in \
                       GATEWORK_CUDA_TOOLS";
            return Err(ProfileError::NotRun(why.to_owned()));
        }
    };
    let listed = output_of(&ncu, &["--query-metrics"]);
    let metrics = wanted(listed.as_deref());
    let output = command(&ncu, program, &metrics)
        .output()
        .map_err(|error| ProfileError::NotRun(format!("{} cannot be started: {error}", ncu.display())))?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    let found = launches(&stdout);
    if found.is_empty() {
        let said = format!("{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
        return Err(refusal(&said));
    }
    let launches: Vec<LaunchProfile> = found.into_iter().map(judged).collect();
    let mut missing: Vec<String> = launches.iter().flat_map(|launch| missing(&launch.utilisation)).collect();
    missing.dedup();
    Ok(ProfileRecord { tool: version(&ncu), case: program.case.clone(), launches, missing })
}

fn command(ncu: &Path, program: &ProfiledProgram, metrics: &[String]) -> Command {
    let mut command = Command::new(ncu);
    command.args(["--csv", "--clock-control", "none", "--launch-skip", "1", "--launch-count", "1"]);
    command.arg("--metrics").arg(metrics.join(","));
    if !program.kernels.is_empty() {
        command.arg("--kernel-name").arg(format!("regex:^({})$", program.kernels.join("|")));
    }
    command.arg(&program.program).args(&program.arguments).stdin(Stdio::null());
    command
}

fn judged(launch: Launch) -> LaunchProfile {
    let utilisation = utilisation(&launch.metrics);
    LaunchProfile {
        kernel: launch.kernel,
        bound_by: utilisation.bound_by(),
        advice: utilisation.advice().to_owned(),
        utilisation,
        metrics: launch.metrics,
    }
}

/// What the profiler's words mean when it profiled nothing.
fn refusal(said: &str) -> ProfileError {
    if said.contains("ERR_NVGPUCTRPERM") {
        return ProfileError::NotRun(
            "the driver lets only administrators read its performance counters (ERR_NVGPUCTRPERM): run as root, or \
             load the nvidia module with NVreg_RestrictProfilingToAdminUsers=0"
                .to_owned(),
        );
    }
    let complaints: Vec<&str> =
        said.lines().filter(|line| line.contains("==ERROR==") || line.starts_with("error:")).collect();
    let why = if complaints.is_empty() {
        "ncu saw no launch of the workload's kernels"
    } else {
        &complaints.join("; ")
    };
    ProfileError::Failed(why.to_owned())
}

fn version(ncu: &Path) -> String {
    let said = output_of(ncu, &["--version"]).unwrap_or_default();
    let line = said.lines().rfind(|line| line.contains("Version"));
    line.map_or_else(|| "ncu".to_owned(), |line| format!("ncu {}", line.trim()))
}

fn output_of(program: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_rights_are_not_the_kernels_fault() {
        let refused = refusal("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission");
        assert!(matches!(&refused, ProfileError::NotRun(why) if why.contains("run as root")), "{refused}");
        let failed = refusal("==PROF== Connected\n==ERROR== The application returned an error code (1).\n");
        assert!(matches!(&failed, ProfileError::Failed(why) if why.contains("error code (1)")), "{failed}");
        assert!(refusal("").to_string().contains("saw no launch"));
    }

    #[test]
    fn the_command_names_kernels_metrics_and_the_program() {
        let program = ProfiledProgram {
            program: "gatework".into(),
            arguments: vec!["lab".into()],
            kernels: vec!["reduce".into(), "saxpy".into()],
            case: "n1".into(),
        };
        let command = command(Path::new("ncu"), &program, &["a".to_owned(), "b".to_owned()]);
        let arguments: Vec<String> =
            command.get_args().map(|argument| argument.to_string_lossy().into_owned()).collect();
        let text = arguments.join(" ");
        assert!(text.contains("--clock-control none") && text.contains("--metrics a,b"), "{text}");
        assert!(text.ends_with("--kernel-name regex:^(reduce|saxpy)$ gatework lab"), "{text}");
    }
}
