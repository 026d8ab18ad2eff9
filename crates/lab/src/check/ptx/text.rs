//! The text of inline PTX as declarations, labels and instructions.

/// One instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Instruction {
    /// Its predicate, as `p` or `!p`.
    pub(super) predicate: Option<String>,
    /// As `ld.global.u32`.
    pub(super) opcode: String,
    /// Each as it stands there: `%0`, `[%1+16]`, `{%2, %3}`.
    pub(super) operands: Vec<String>,
}

impl Instruction {
    /// The words of the opcode: `ld`, `global`, `u32`.
    pub(super) fn parts(&self) -> Vec<&str> {
        self.opcode.split('.').collect()
    }

    /// Whether the opcode is `prefix`, or goes on behind it with a dot.
    pub(super) fn is(&self, prefix: &str) -> bool {
        self.opcode.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }

    /// Whether a word is part of the opcode.
    pub(super) fn has(&self, part: &str) -> bool {
        self.opcode.split('.').any(|word| word == part)
    }
}

/// A piece of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Statement {
    /// `.reg .b32 name;`
    Register {
        /// `b32`.
        kind: String,
        name: String,
    },
    Label(String),
    Instruction(Instruction),
}

/// Cuts a text into statements.
pub(super) fn statements(text: &str) -> Vec<Statement> {
    let text: String =
        text.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join(" ");
    let mut found = Vec::new();
    for statement in text.split(';') {
        let mut rest = without_scope(statement);
        while let Some((label, after)) = label_of(&rest) {
            found.push(Statement::Label(label));
            rest = without_scope(&after);
        }
        if rest.is_empty() {
            continue;
        }
        if let Some(declared) = rest.strip_prefix(".reg") {
            registers(declared.trim(), &mut found);
            continue;
        }
        let mut predicate = None;
        if let Some(after) = rest.strip_prefix('@') {
            let after = after.trim_start().to_owned();
            let Some((name, instruction)) = after.split_once(char::is_whitespace) else { continue };
            predicate = Some(name.to_owned());
            rest = instruction.trim().to_owned();
        }
        let (opcode, operands) = rest.split_once(char::is_whitespace).unwrap_or((rest.as_str(), ""));
        let (opcode, operands) = (opcode.to_owned(), listed(operands));
        found.push(Statement::Instruction(Instruction { predicate, opcode, operands }));
    }
    found
}

/// Takes off the braces around all of the text: those that belong to lists of registers stay.
fn without_scope(text: &str) -> String {
    let mut rest = text.trim().trim_start_matches(['{', '}', ' ', '\t']).to_owned();
    while rest.ends_with('}') && rest.matches('}').count() > rest.matches('{').count() {
        rest.truncate(rest.len() - 1);
        rest.truncate(rest.trim_end().len());
    }
    rest
}

/// A name before a colon, and what follows. `shared::cta` has two of them.
fn label_of(text: &str) -> Option<(String, String)> {
    let (name, after) = text.split_once(':')?;
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '$' || c == '%' || c == '=';
    let name = name.trim();
    (!name.is_empty() && name.chars().all(is_name) && !after.starts_with(':'))
        .then(|| (name.replace(['$', '%', '='], "_"), after.trim().to_owned()))
}

/// `.b32 a, b`, and `.b32 r<4>` for r0 to r3.
fn registers(declared: &str, found: &mut Vec<Statement>) {
    let Some((kind, names)) = declared.split_once(char::is_whitespace) else { return };
    let kind = kind.trim_start_matches('.').to_owned();
    for name in names.split(',').map(str::trim) {
        let range = name.split_once('<').and_then(|(stem, count)| {
            Some((stem.to_owned(), count.trim_end_matches('>').trim().parse::<u32>().ok()?.min(64)))
        });
        match range {
            Some((stem, count)) => found.extend(
                (0..count).map(|i| Statement::Register { kind: kind.clone(), name: format!("{stem}{i}") }),
            ),
            None => found.push(Statement::Register { kind: kind.clone(), name: name.to_owned() }),
        }
    }
}

/// Operands, lists in braces and addresses in brackets each as one.
pub(super) fn listed(text: &str) -> Vec<String> {
    let (mut found, mut depth, mut current) = (Vec::new(), 0, String::new());
    for c in text.chars() {
        match c {
            '{' | '[' | '(' => depth += 1,
            '}' | ']' | ')' => depth -= 1,
            _ => {}
        }
        if c == ',' && depth == 0 {
            found.push(std::mem::take(&mut current).trim().to_owned());
        } else {
            current.push(c);
        }
    }
    found.push(current.trim().to_owned());
    found.retain(|operand| !operand.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_labels_and_predicates_are_told_apart() {
        let text = "{\n .reg .pred p, q; .reg .b32 r<2>; // note;\nWAIT: @!p bra DONE;\n mma.x {%0, %1}, [%2 + 16];\n DONE:\n}";
        let register = |kind: &str, name: &str| Statement::Register { kind: kind.into(), name: name.into() };
        let instruction = |predicate: Option<&str>, opcode: &str, operands: &[&str]| {
            Statement::Instruction(Instruction {
                predicate: predicate.map(str::to_owned),
                opcode: opcode.into(),
                operands: operands.iter().map(|&operand| operand.to_owned()).collect(),
            })
        };
        assert_eq!(
            statements(text),
            [
                register("pred", "p"),
                register("pred", "q"),
                register("b32", "r0"),
                register("b32", "r1"),
                Statement::Label("WAIT".into()),
                instruction(Some("!p"), "bra", &["DONE"]),
                instruction(None, "mma.x", &["{%0, %1}", "[%2 + 16]"]),
                Statement::Label("DONE".into()),
            ]
        );
        assert_eq!(statements("st.shared::cta.u32 [%0], %1;").len(), 1);
        assert_eq!(statements("} {"), []);
    }
}
