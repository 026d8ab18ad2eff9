//! Machine instructions, counted from what `cuobjdump --dump-sass` prints.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

/// How often each instruction occurs in each kernel of a binary.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SassReport {
    /// Kernels in the order of the listing; of each, the count by opcode without its modifiers, as `QGMMA` or
    /// `LDL`.
    pub kernels: Vec<(String, BTreeMap<String, u32>)>,
    /// Bulk copies whose global address has a constant zero for its upper half, with their kernels. No memory
    /// of a device lies there: ptxas 13.0 was seen to lose the upper half where a pointer was indexed with 32
    /// bits.
    pub truncated: Vec<(String, String)>,
}

impl SassReport {
    /// How often `opcode` occurs in `kernel`: zero also where there is no such kernel.
    pub fn count(&self, kernel: &str, opcode: &str) -> u32 {
        let counts = self.kernels.iter().find(|(name, _)| name == kernel).map(|(_, counts)| counts);
        counts.and_then(|counts| counts.get(opcode)).copied().unwrap_or(0)
    }

    /// Reads a listing, in which a line `Function : name` starts each kernel.
    pub(crate) fn parse(listing: &str) -> Self {
        let mut report = Self::default();
        let mut zeros = Zeros::default();
        for line in listing.lines() {
            if let Some(name) = line.trim().strip_prefix("Function : ") {
                report.kernels.push((name.trim().to_owned(), BTreeMap::new()));
                zeros = Zeros::default();
            } else if let (Some(found), Some((name, counts))) =
                (Instruction::of(line), report.kernels.last_mut())
            {
                *counts.entry(found.opcode().to_owned()).or_default() += 1;
                if zeros.truncate(&found) {
                    report.truncated.push((name.clone(), found.text.to_owned()));
                }
                zeros.follow(&found);
            }
        }
        report
    }
}

/// A line of a listing.
struct Instruction<'a> {
    predicated: bool,
    /// From the opcode on, without what ends it: `UBLKCP.S.G [UR12], [UR6], UR8`.
    text: &'a str,
}

impl<'a> Instruction<'a> {
    /// That of `/*00f0*/  @!P0 EXIT ;  /* 0x000000000000094d */`, and nothing of a line that only continues
    /// an encoding.
    fn of(line: &'a str) -> Option<Self> {
        let (address, rest) = line.trim_start().strip_prefix("/*")?.split_once("*/")?;
        if address.is_empty() || !address.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let text = rest.split(';').next().unwrap_or(rest).trim_start().trim_start_matches('{').trim();
        let (predicated, text) = match text.strip_prefix('@') {
            Some(guarded) => (true, guarded.split_once(char::is_whitespace)?.1.trim_start()),
            None => (false, text),
        };
        let found = Self { predicated, text };
        Some(found).filter(|found| !found.opcode().is_empty())
    }

    /// Without its modifiers.
    fn opcode(&self) -> &'a str {
        let end = self.text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.text.len());
        &self.text[..end]
    }

    /// With them.
    fn mnemonic(&self) -> &'a str {
        self.text.split_whitespace().next().unwrap_or(self.text)
    }

    fn operands(&self) -> impl Iterator<Item = &'a str> {
        self.text.get(self.mnemonic().len()..).unwrap_or("").split(',').map(str::trim)
    }
}

/// Uniform registers that hold a constant zero, as far as a listing from top to bottom tells.
#[derive(Default)]
struct Zeros(BTreeSet<u32>);

impl Zeros {
    /// Whether this is a bulk copy of a global address whose upper half is one of them.
    fn truncate(&self, instruction: &Instruction<'_>) -> bool {
        // What is written stands first; S is shared memory, G is global: `UBLKCP.S.G`, `UBLKRED.G.S.ADD`.
        let mnemonic = instruction.mnemonic();
        let global = match mnemonic.starts_with("UBLK") {
            true if mnemonic.contains(".S.G") => 1,
            true if mnemonic.contains(".G.S") => 0,
            _ => return false,
        };
        let address = instruction.operands().nth(global).unwrap_or("");
        let register = uniform(address.trim_start_matches('[').trim_end_matches(']'));
        register.is_some_and(|register| self.0.contains(&register.saturating_add(1)))
    }

    fn follow(&mut self, instruction: &Instruction<'_>) {
        let mnemonic = instruction.mnemonic();
        if !instruction.predicated && matches!(instruction.opcode(), "BRA" | "EXIT" | "RET" | "BRX" | "JMP") {
            self.0.clear();
        }
        let mut operands = instruction.operands();
        let Some(written) = operands.next().and_then(uniform) else { return };
        let wide = [".64", ".128", ".WIDE"].iter().position(|width| mnemonic.contains(width));
        let registers = match wide {
            None => 1,
            Some(1) => 4,
            Some(_) => 2,
        };
        (written..written.saturating_add(registers)).for_each(|register| {
            self.0.remove(&register);
        });
        if mnemonic == "UMOV" && !instruction.predicated && operands.next() == Some("URZ") {
            self.0.insert(written);
        }
    }
}

/// The number of `UR6`.
fn uniform(operand: &str) -> Option<u32> {
    operand.strip_prefix("UR")?.parse().ok()
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

    /// A kernel as ptxas 13.0.88 made it for sm_90a, shortened: `ULEA.HI.X UR7` is missing.
    const LOST: &str = r"
		Function : lost
        /*0400*/                   UMOV UR6, UR5 ;
        /*0410*/                   UMOV UR7, URZ ;
        /*0420*/                   ULDC.64 UR8, c[0x0][0x218] ;
        /*0450*/                   ULEA UR6, UR6, UR8, 0x4 ;
        /*0460*/                   UMOV UR8, 0x40 ;
        /*0490*/               @P0 ELECT P2, URZ, PT ;
        /*04a0*/               @P2 R2UR UR13, R0 ;
        /*04b0*/               @P2 R2UR UR12, R4 ;
        /*04e0*/                   UBLKCP.S.G [UR12], [UR6], UR8 ;
        /*04f0*/               @P0 BRA.U.ANY `(.L_x_4) ;
";

    #[test]
    fn a_global_address_without_its_upper_half_is_found() {
        let lost = |listing: &str| SassReport::parse(listing).truncated;
        assert_eq!(lost(LOST), [("lost".to_owned(), "UBLKCP.S.G [UR12], [UR6], UR8".to_owned())]);
        // As the same kernel with an index of 64 bits has it, and with what was missing.
        let wide = LOST.replace("ULEA UR6, UR6, UR8, 0x4", "UIMAD.WIDE.U32 UR6, UR4, 0x400, UR8");
        assert_eq!(lost(&wide), []);
        let whole = LOST.replace("UMOV UR8, 0x40 ", "ULEA.HI.X UR7, UR6, UR9, UR7, 0x4, UP0 ");
        assert_eq!(lost(&whole), []);
        // Shared addresses have 32 bits, and a jump ends what is known.
        assert_eq!(lost(&LOST.replace("UBLKCP.S.G [UR12], [UR6]", "UBLKCP.G.S [UR12], [UR6]")), []);
        assert_eq!(lost(&LOST.replace("UMOV UR8, 0x40 ", "BRA `(.L_x_9) ")), []);
        for other in [
            "UBLKCP.S.G.MULTICAST [UR12], [UR6]",
            "UBLKCP.G.S [UR6], [UR12]",
            "UBLKRED.G.S.ADD [UR6], [UR12]",
        ] {
            assert_eq!(lost(&LOST.replace("UBLKCP.S.G [UR12], [UR6]", other)).len(), 1, "{other}");
        }
    }

    #[test]
    fn what_is_not_there_counts_zero() {
        let report = SassReport::parse(LISTING);
        assert_eq!(report.count("plain", "NOP"), 2);
        assert_eq!(report.count("plain", "LDL"), 0);
        assert_eq!(report.count("nobody", "NOP"), 0);
    }

    #[test]
    fn a_register_that_no_card_has_is_read_too() {
        let listing = "Function : f\n/*00*/ UMOV UR4294967295, URZ ;\n/*10*/ UBLKCP.S.G [UR1], [UR4294967295], UR8 ;\n\
                       /*20*/ UIMAD.WIDE.128 UR4294967294, UR4, 0x8 ;\n";
        assert_eq!(SassReport::parse(listing).count("f", "UMOV"), 1);
    }
}
