//! Machine instructions, counted from what `cuobjdump --dump-sass` prints.

use std::collections::BTreeMap;

use serde::Serialize;

/// How often each instruction occurs in each kernel of a binary.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SassReport {
    /// Kernels in the order of the listing; of each, the count by opcode without its modifiers, as `QGMMA` or `LDL`.
    pub kernels: Vec<(String, BTreeMap<String, u32>)>,
}

impl SassReport {
    /// How often `opcode` occurs in `kernel`: zero also where there is no such kernel.
    pub fn count(&self, kernel: &str, opcode: &str) -> u32 {
        let counts = self.kernels.iter().find(|(name, _)| name == kernel).map(|(_, counts)| counts);
        counts.and_then(|counts| counts.get(opcode)).copied().unwrap_or(0)
    }

    /// Reads a listing, in which a line `Function : name` starts each kernel.
    pub(super) fn parse(listing: &str) -> Self {
        let mut report = Self::default();
        for line in listing.lines() {
            if let Some(name) = line.trim().strip_prefix("Function : ") {
                report.kernels.push((name.trim().to_owned(), BTreeMap::new()));
            } else if let (Some(opcode), Some((_, counts))) = (opcode(line), report.kernels.last_mut()) {
                *counts.entry(opcode.to_owned()).or_default() += 1;
            }
        }
        report
    }
}

/// The opcode of `/*00f0*/  @!P0 EXIT ;  /* 0x000000000000094d */`, and nothing of a line that only continues an
/// encoding.
fn opcode(line: &str) -> Option<&str> {
    let (address, rest) = line.trim_start().strip_prefix("/*")?.split_once("*/")?;
    if address.is_empty() || !address.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let instruction = rest.trim_start().trim_start_matches('{').trim_start();
    let instruction = match instruction.strip_prefix('@') {
        Some(predicated) => predicated.split_once(char::is_whitespace)?.1.trim_start(),
        None => instruction,
    };
    let end = instruction.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(instruction.len());
    Some(&instruction[..end]).filter(|opcode| !opcode.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From `cuobjdump` 13.4.92 on a cubin for sm_90a, shortened.
    const LISTING: &str = r#"
	code for sm_90a
	.target	sm_90a

		Function : plain
	.headerflags	@"EF_CUDA_ACCELERATORS EF_CUDA_SM90 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM90)"
        /*0000*/                   LDC R1, c[0x0][0x28] ;                     /* 0x00000a00ff017b82 */
                                                                              /* 0x000fe20000000800 */
        /*00f0*/               @P0 EXIT ;                                     /* 0x000000000000094d */
                                                                              /* 0x000fea0003800000 */
        /*0200*/              @!P0 FMUL R6, R6, 0.5 ;                         /* 0x3f00000006068820 */
        /*0a60*/                   NOP;                                       /* 0x0000000000007918 */
        /*0a70*/                   NOP;                                       /* 0x0000000000007918 */
		..........


		Function : _Z4tmplILi3EEvPf
        /*0000*/                   LDC R1, c[0x0][0x28] ;                     /* 0x00000a00ff017b82 */
        /*0020*/                   LDC.64 R2, c[0x0][0x210] ;                 /* 0x00008400ff027b82 */
        /*10040*/                  IMAD.WIDE.U32 R2, R5, 0x4, R2 ;            /* 0x0000000405027825 */
		..........
"#;

    #[test]
    fn instructions_are_counted_by_kernel_and_opcode() {
        let report = SassReport::parse(LISTING);
        let names: Vec<&str> = report.kernels.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["plain", "_Z4tmplILi3EEvPf"]);
        let counts = |index: usize| -> Vec<(&str, u32)> {
            report.kernels[index].1.iter().map(|(opcode, &count)| (opcode.as_str(), count)).collect()
        };
        assert_eq!(counts(0), [("EXIT", 1), ("FMUL", 1), ("LDC", 1), ("NOP", 2)]);
        assert_eq!(counts(1), [("IMAD", 1), ("LDC", 2)]);
    }

    #[test]
    fn what_is_not_there_counts_zero() {
        let report = SassReport::parse(LISTING);
        assert_eq!(report.count("plain", "NOP"), 2);
        assert_eq!(report.count("plain", "LDL"), 0);
        assert_eq!(report.count("nobody", "NOP"), 0);
    }
}
