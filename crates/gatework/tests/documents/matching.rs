//! Whether a command printed what its page shows.
//!
//! White space counts as one space, and rules of tables may have any length. `…` stands for any text, and
//! alone on a line for any lines. A number before a unit of time (s, ms, µs, seconds) may be any number,
//! since no two machines take the same time. Everything else is equal.

/// Units whose numbers differ from machine to machine.
const TIMES: [&str; 5] = ["s", "ms", "µs", "seconds", "minutes"];
const ANYTHING: &str = "…";

/// What differs first, if anything does.
pub fn difference(shown: &str, printed: &str) -> Option<String> {
    let lines = |text: &str| text.trim_end().lines().map(str::to_owned).collect::<Vec<_>>();
    let (shown, printed) = (lines(shown), lines(printed));
    if all_match(&shown, &printed) {
        return None;
    }
    let first = shown
        .iter()
        .zip(&printed)
        .find(|(shown, printed)| shown.trim() != ANYTHING && !line_matches(shown, printed));
    let hint = first.map_or_else(
        || format!("the page shows {} lines, {} were printed", shown.len(), printed.len()),
        |(shown, printed)| format!("the page shows\n  {shown}\nbut this was printed\n  {printed}"),
    );
    Some(format!("{hint}\nall that was printed:\n{}", printed.join("\n")))
}

fn all_match(shown: &[String], printed: &[String]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((line, rest)) if line.trim() == ANYTHING => {
            (0..=printed.len()).any(|skipped| all_match(rest, &printed[skipped..]))
        }
        Some((line, rest)) => printed
            .split_first()
            .is_some_and(|(next, after)| line_matches(line, next) && all_match(rest, after)),
    }
}

fn line_matches(shown: &str, printed: &str) -> bool {
    words_match(&words(shown), &words(printed))
}

/// The words of a line; a number and the unit of time behind it are one word, and so is the rule of a table.
fn words(line: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let bare = word.trim_end_matches([',', '.', ':', ';', ')']);
        let number = |text: &str| text == ANYTHING || text.trim_start_matches('(').parse::<f64>().is_ok();
        if TIMES.contains(&bare) && words.last().is_some_and(|last| number(last)) {
            words.pop();
            words.push(format!("<time>{}", &word[bare.len()..]));
        } else if word.chars().all(|c| c == '─') {
            words.push("─".to_owned());
        } else {
            words.push(word.to_owned());
        }
    }
    words
}

fn words_match(shown: &[String], printed: &[String]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((word, rest)) if word == ANYTHING => {
            (0..=printed.len()).any(|skipped| words_match(rest, &printed[skipped..]))
        }
        Some((word, rest)) => printed
            .split_first()
            .is_some_and(|(next, after)| word_matches(word, next) && words_match(rest, after)),
    }
}

fn word_matches(shown: &str, printed: &str) -> bool {
    match shown.split_once(ANYTHING) {
        None => shown == printed,
        Some((before, after)) => {
            printed.len() >= before.len() + after.len()
                && printed.starts_with(before)
                && printed.ends_with(after)
        }
    }
}
