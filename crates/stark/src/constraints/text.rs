//! Programs as CUDA C++.

use std::fmt::Write as _;

use gatework_gpu::Source;

use super::graph::{Graph, Id, Node};
use super::program::{Program, Root, Step};
use super::shape::Pattern;
use crate::kernels::with_headers;

/// Threads of a block of generated kernels.
pub(crate) const THREADS: u32 = 128;

/// What a kernel does with its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Adds them to the sums of the rows.
    Constraints,
    /// Writes them to columns.
    Outputs,
}

impl Kind {
    fn of(steps: &[Step]) -> Self {
        let finish = |step: &Step| match *step {
            Step::Finish(Root::Constraint(_), _) => Some(Self::Constraints),
            Step::Finish(Root::Output(_), _) => Some(Self::Outputs),
            Step::Compute(_) => None,
        };
        steps.iter().find_map(finish).unwrap_or(Self::Constraints)
    }

    /// What the text says it is, the kernel's name, and what it is given beside the component.
    fn names(self) -> [&'static str; 3] {
        match self {
            Self::Constraints => ["constraints of a component", "constraints", ""],
            Self::Outputs => ["fractions of a component", "fractions", ", u32* const* outputs"],
        }
    }
}

/// What stands for the leaves of a program.
struct Names<'a> {
    column: &'a dyn Fn(u32, u32) -> String,
    constant: &'a dyn Fn(u32) -> String,
    /// Its address.
    parameter: &'a dyn Fn(u32) -> String,
    /// The address of the coefficient of constraint 0.
    coefficients: &'a str,
    /// The address of the coordinates of output 0.
    outputs: &'a str,
}

/// The kernel of `program`, whose columns are numbered by `column`.
pub(crate) fn once(graph: &Graph, program: &Program, column: &impl Fn(u32, u32) -> u32) -> Source {
    let kind = Kind::of(&program.steps);
    let names = Names {
        column: &|interaction, index| format!("component.columns[{}]", column(interaction, index)),
        constant: &|value| format!("{value}u"),
        parameter: &|slot| format!("component.parameters + {slot}"),
        coefficients: "component.coefficients",
        outputs: "outputs",
    };
    let [what, name, outputs] = kind.names();
    let mut text = format!(
        "#include \"rows.cuh\"\n\n\
         // Some of the {what}, on every row. One thread a row.\n\
         GW_KERNEL_BOUNDED({name}, {THREADS}, 1)(Rows component{outputs}) {{\n    \
         const u32 row = (u32)gw::global_thread();\n    \
         if (row >> component.log_rows) return;\n"
    );
    if kind == Kind::Constraints {
        text.push_str("    QM31 sum = qm31::zero();\n    qm31::Sum products = qm31::sum();\n");
    }
    body(&mut text, "    ", &program.steps, |id| *graph.node(id), &names);
    if kind == Kind::Constraints {
        text.push_str("    add_row(component, row, qm31::add(sum, qm31::total(products)));\n");
    }
    text.push_str("}\n");
    with_headers(Source::new(name, text))
}

/// Where the instances of a pattern find what it leaves open.
pub(crate) struct Widths {
    pub(crate) columns: usize,
    /// For each constant, its place among those that differ between instances, or the value.
    pub(crate) constants: Vec<Place>,
    /// The same for parameters.
    pub(crate) parameters: Vec<Place>,
}

/// A leaf of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The same in all instances.
    Fixed(u32),
    /// The one with this number in the instance's part of a table.
    Varying(u32),
}

impl Widths {
    fn varying(places: &[Place]) -> usize {
        places.iter().filter(|place| matches!(place, Place::Varying(_))).count()
    }
}

/// The kernel that goes through all instances of `pattern` on every row.
pub(crate) fn repeated(pattern: &Pattern, widths: &Widths) -> Source {
    let kind = Kind::of(&pattern.steps);
    let names = Names {
        column: &|_, number| format!("columns[{number}]"),
        constant: &|number| match widths.constants[number as usize] {
            Place::Fixed(value) => format!("{value}u"),
            Place::Varying(place) => format!("constants[{place}]"),
        },
        parameter: &|number| match widths.parameters[number as usize] {
            Place::Fixed(slot) => format!("component.parameters + {slot}"),
            Place::Varying(place) => format!("parameters + {place}"),
        },
        coefficients: "coefficients",
        outputs: "own_outputs",
    };
    let [what, name, outputs] = kind.names();
    let mut text = format!(
        "#include \"rows.cuh\"\n\n\
         // Some of the {what} that repeat on other columns, on every row. One thread a row.\n\
         GW_KERNEL_BOUNDED({name}, {THREADS}, 1)(Rows component{outputs}, Instances instances) {{\n    \
         const u32 row = (u32)gw::global_thread();\n    \
         if (row >> component.log_rows) return;\n"
    );
    if kind == Kind::Constraints {
        text.push_str("    QM31 sum = qm31::zero();\n");
    }
    text.push_str(
        "    GW_UNROLL_BY(1)\n    for (u32 instance = 0; instance < instances.count; ++instance) {\n",
    );
    let mut table = |type_: &str, name: &str, width: usize| {
        if width > 0 {
            let _ = writeln!(text, "        {type_} {name} = instances.{name} + instance * {width};");
        }
    };
    table("const u32* const*", "columns", widths.columns);
    table("const u32*", "constants", Widths::varying(&widths.constants));
    table("const QM31*", "parameters", Widths::varying(&widths.parameters));
    text.push_str("        const u32 first = instances.first + instance * instances.stride;\n");
    match kind {
        Kind::Constraints => text.push_str(
            "        const QM31* coefficients = component.coefficients + first;\n        \
             qm31::Sum products = qm31::sum();\n",
        ),
        Kind::Outputs => text.push_str("        u32* const* own_outputs = outputs + 4 * first;\n"),
    }
    body(&mut text, "        ", &pattern.steps, |id| *pattern.node(id), &names);
    match kind {
        Kind::Constraints => text.push_str(
            "        sum = qm31::add(sum, qm31::total(products));\n    }\n    add_row(component, row, sum);\n}\n",
        ),
        Kind::Outputs => text.push_str("    }\n}\n"),
    }
    with_headers(Source::new(name, text))
}

fn body(text: &mut String, indent: &str, steps: &[Step], node: impl Fn(Id) -> Node, names: &Names<'_>) {
    for step in steps {
        let line = match *step {
            Step::Compute(id) => compute(id, &node(id), names),
            Step::Finish(root, id) => finish(root, id, &node(id), names),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{indent}{line}");
    }
}

fn compute(id: Id, node: &Node, names: &Names<'_>) -> String {
    let v = |id: Id| format!("v{}", id.index());
    let value = match *node {
        Node::Column { interaction, column: index, offset } => {
            let pointer = (names.column)(interaction, index);
            match offset {
                0 => format!("{pointer}[row]"),
                _ => format!("{pointer}[row_ahead(row, {offset}, component.log_trace, component.log_rows)]"),
            }
        }
        Node::Constant(value) => (names.constant)(value),
        Node::Add(a, b) => format!("m31::add({}, {})", v(a), v(b)),
        Node::Sub(a, b) => format!("m31::sub({}, {})", v(a), v(b)),
        Node::Mul(a, b) => format!("m31::mul({}, {})", v(a), v(b)),
        Node::Neg(a) => format!("m31::neg({})", v(a)),
        Node::Inverse(a) => format!("m31::inverse({})", v(a)),
        Node::SecureParameter(slot) => format!("qm31::load({})", (names.parameter)(slot)),
        Node::SecureLift(a) => format!("qm31::lift({})", v(a)),
        Node::SecureCombine([a, b, c, d]) => format!("QM31{{{}, {}, {}, {}}}", v(a), v(b), v(c), v(d)),
        Node::SecureAdd(a, b) => format!("qm31::add({}, {})", v(a), v(b)),
        Node::SecureSub(a, b) => format!("qm31::sub({}, {})", v(a), v(b)),
        Node::SecureMul(a, b) => format!("qm31::mul({}, {})", v(a), v(b)),
        Node::SecureNeg(a) => format!("qm31::neg({})", v(a)),
        Node::SecureAddBase(a, b) => format!("qm31::add_m31({}, {})", v(a), v(b)),
        Node::SecureMulBase(a, b) => format!("qm31::mul_m31({}, {})", v(a), v(b)),
    };
    let type_ = if node.is_secure() { "QM31" } else { "u32" };
    format!("const {type_} {} = {value};", v(id))
}

fn finish(root: Root, id: Id, node: &Node, names: &Names<'_>) -> String {
    let value = format!("v{}", id.index());
    match (root, node.is_secure()) {
        (Root::Constraint(number), secure) => {
            let coefficient = format!("qm31::load({} + {number})", names.coefficients);
            if secure {
                format!("sum = qm31::add(sum, qm31::mul({coefficient}, {value}));")
            } else {
                format!("qm31::add_product(products, {coefficient}, {value});")
            }
        }
        (Root::Output(number), true) => {
            format!("write_output({} + 4 * {number}, row, {value});", names.outputs)
        }
        (Root::Output(number), false) => {
            format!("write_output({} + 4 * {number}, row, qm31::lift({value}));", names.outputs)
        }
    }
}
