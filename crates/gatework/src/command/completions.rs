//! `gatework completions`: what a shell needs to complete the command line.

use crate::command::cli::{self, CompletionsOptions};
use crate::command::ending::{Ending, Failure};
use crate::command::noun::Entry;
use crate::command::shell::{DeviceUse, Shell};

pub(crate) fn run(options: &CompletionsOptions, shell: &Shell, nouns: &[Entry]) -> Result<Ending, Failure> {
    shell.device.check("completions", DeviceUse::None)?;
    shell.output.require_text("completions")?;
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut cli::command(nouns), "gatework", &mut script);
    shell.output.print(&String::from_utf8_lossy(&script))?;
    Ok(Ending::Done)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;
    use clap_complete::Shell as ShellKind;

    use super::*;
    use crate::command::NOUNS;

    #[test]
    fn every_shell_completes_every_command() {
        for kind in ShellKind::value_variants() {
            let mut script = Vec::new();
            clap_complete::generate(*kind, &mut cli::command(&NOUNS), "gatework", &mut script);
            let script = String::from_utf8(script).unwrap();
            for word in ["doctor", "lab", "forecast", "--log-rows", "--device"] {
                // fish writes long options without their dashes.
                assert!(script.contains(word.trim_start_matches("--")), "{word} for {kind}");
            }
        }
    }
}
