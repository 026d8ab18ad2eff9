//! The profiler's table: a header, then a line for every launch and metric, among lines of other kinds.

use std::collections::BTreeMap;

/// One launch as the profiler numbered it.
#[derive(Debug, PartialEq)]
pub(super) struct Launch {
    pub(super) kernel: String,
    pub(super) metrics: BTreeMap<String, f64>,
}

/// The launches of a table. A metric that is no number is left out.
pub(super) fn launches(text: &str) -> Vec<Launch> {
    let mut rows = text.lines().filter(|line| line.starts_with('"')).map(fields);
    let Some(header) = rows.by_ref().find(|row| row.iter().any(|field| field == "Metric Name")) else {
        return Vec::new();
    };
    let column = |name: &str| header.iter().position(|field| field == name);
    let (Some(id), Some(kernel), Some(metric), Some(value)) =
        (column("ID"), column("Kernel Name"), column("Metric Name"), column("Metric Value"))
    else {
        return Vec::new();
    };
    let mut found: Vec<(String, Launch)> = Vec::new();
    for row in rows {
        let cell = |index: usize| row.get(index).map_or("", String::as_str);
        let place = match found.iter().position(|(known, _)| known == cell(id)) {
            Some(place) => place,
            None => {
                let launch = Launch { kernel: cell(kernel).to_owned(), metrics: BTreeMap::new() };
                found.push((cell(id).to_owned(), launch));
                found.len() - 1
            }
        };
        if let Ok(number) = cell(value).replace(',', "").parse() {
            found[place].1.metrics.insert(cell(metric).to_owned(), number);
        }
    }
    found.into_iter().map(|(_, launch)| launch).collect()
}

/// The quoted fields of a line; a quote inside one is doubled.
fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let mut characters = line.trim_end().chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                field.push('"');
                characters.next();
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(std::mem::take(&mut field)),
            other => field.push(other),
        }
    }
    fields.push(field);
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r#"==PROF== Connected to process 4711 (/opt/gatework)
==PROF== Profiling "fp8_tile" - 0: 0%....50%....100% - 3 passes
==PROF== Disconnected from process 4711
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"
"0","4711","gatework","127.0.0.1","fp8_tile","1","13","(256, 1, 1)","(32, 64, 1)","0","9.0","Command line profiler metrics","dram__throughput.avg.pct_of_peak_sustained_elapsed","%","21.53"
"0","4711","gatework","127.0.0.1","fp8_tile","1","13","(256, 1, 1)","(32, 64, 1)","0","9.0","Command line profiler metrics","sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed","%","61.07"
"0","4711","gatework","127.0.0.1","fp8_tile","1","13","(256, 1, 1)","(32, 64, 1)","0","9.0","Command line profiler metrics","smsp__cycles.sum","cycle","1,234,567"
"0","4711","gatework","127.0.0.1","fp8_tile","1","13","(256, 1, 1)","(32, 64, 1)","0","9.0","Command line profiler metrics","sm__throughput.avg.pct_of_peak_sustained_elapsed","%","n/a"
"#;

    #[test]
    fn a_launch_is_read_from_its_lines() {
        let [launch] = launches(SAMPLE).try_into().unwrap();
        assert_eq!(launch.kernel, "fp8_tile");
        assert_eq!(launch.metrics["sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"], 61.07);
        assert_eq!(launch.metrics["smsp__cycles.sum"], 1_234_567.0);
        assert_eq!(launch.metrics.len(), 3, "what is no number is left out");
    }

    #[test]
    fn quotes_and_commas_inside_a_field_stay_there() {
        assert_eq!(fields(r#""a","(1, 2)","say ""x""","""#), ["a", "(1, 2)", "say \"x\"", ""]);
    }

    #[test]
    fn text_without_a_table_has_no_launches() {
        assert_eq!(launches("==ERROR== No kernels were profiled.\n"), []);
    }
}
