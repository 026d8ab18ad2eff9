//! Every exhibit of the zoo is found under every schedule, at a line of its own, and its twin passes.

use gatework_lab::zoo::{EXHIBITS, visit_all};

#[test]
fn every_exhibit_is_found_and_no_twin_raises_an_alarm() {
    let visits = visit_all("", 20, |_| ()).unwrap();
    assert_eq!(visits.len(), EXHIBITS.len());
    let wrong: Vec<_> = visits.iter().filter(|visit| !visit.is_found()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    for visit in &visits {
        let site = visit.fault.as_ref().and_then(|fault| fault.site.as_ref());
        assert!(site.is_some_and(|site| site.file == "exhibit.cuh"), "{visit:#?}");
    }
}

#[test]
fn reports_and_names_are_told_apart() {
    for (number, exhibit) in EXHIBITS.iter().enumerate() {
        assert!(exhibit.report.starts_with("https://github.com/"), "{}", exhibit.name);
        assert!(EXHIBITS[..number].iter().all(|other| other.name != exhibit.name), "{}", exhibit.name);
        let twins = exhibit.text.contains("#if MENDED") && exhibit.text.starts_with("//");
        assert!(twins, "{} says what is wrong and has a twin", exhibit.name);
    }
    assert!(EXHIBITS.len() >= 14);
}

#[test]
fn the_page_shows_every_exhibit_with_its_report() {
    let page = include_str!("../zoo/README.md");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| [`")).collect();
    assert_eq!(rows.len(), EXHIBITS.len());
    for (row, exhibit) in rows.iter().zip(EXHIBITS) {
        let file = format!("[`{0}`]({0}.cuh)", exhibit.name);
        let said = format!("({}) | {} |", exhibit.report, exhibit.says);
        assert!(row.contains(&file) && row.contains(&said), "{}: {row}", exhibit.name);
    }
}
