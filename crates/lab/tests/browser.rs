//! Pages in a real browser: none is wider than its window, from a telephone to a wide screen, and something
//! is drawn. Where no browser is installed the tests are shown as ignored, and why.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

use gatework_lab::Outcome;
use gatework_lab::report::{Cell, Page, Part};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// CSS pixels: a telephone, a tablet, a small and a large screen.
const WIDTHS: [u32; 4] = [390, 768, 1300, 1920];
const FLAGS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--dump-dom",
];
/// Loads the page in a frame of each width, which is what its media queries see, and leaves the widths that
/// it takes. A browser's own window cannot be as narrow as a telephone.
const MEASURE: &str = r#"<script>addEventListener("load", () => {
    const frames = [...document.querySelectorAll("iframe")].map((frame) => frame.contentDocument.documentElement);
    const taken = frames.map((page) => `${page.clientWidth}:${page.scrollWidth}:${page.scrollHeight}`);
    document.documentElement.textContent = `measured ${taken.join(" ")} end`;
});</script>"#;

fn main() -> ExitCode {
    let trials = vec![
        Trial::ignorable_test("the_report_fits_every_screen", || fits("report", &support::drawn::drawn())),
        Trial::ignorable_test("a_page_with_long_words_fits_every_screen", || fits("page", &page())),
        Trial::ignorable_test("a_page_that_is_too_wide_is_found", too_wide_is_found),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// A page with everything that a tour has, and cells that cannot be broken.
fn page() -> String {
    let header = ["stop", "what it computes", "case", "seconds", "result"].map(str::to_owned).to_vec();
    let row = vec![
        Cell::Text("attention/a-workload-with-a-very-long-name-indeed".into()),
        Cell::Text("softmax(q k^T) v of slices in host memory, against double precision".into()),
        Cell::Number("1x4/2x100/157x64-causal-on-a-device-with-a-long-name".into()),
        Cell::Number("0.25".into()),
        Cell::Outcome(Outcome::Failed { why: "off by one".into() }),
    ];
    let table = Part::Table("Stops".into(), header, vec![row; 4]);
    Page::new("A page", "What it is.").section("Engines", &[Part::Text("A paragraph.".into()), table]).html()
}

fn fits(name: &str, html: &str) -> Result<Completion, Failed> {
    let Some(browser) = browser() else { return Ok(not_here()) };
    if let Some(folder) = env::var_os("GATEWORK_KEEP_PAGES") {
        fs::write(Path::new(&folder).join(format!("{name}.html")), html)?;
    }
    for (width, [window, page, height]) in WIDTHS.iter().zip(measured(&browser, html)?) {
        if page > window {
            return Err(format!("{width} pixels wide: the page takes {page} of {window}").into());
        }
        if height < 300 {
            return Err(format!("{width} pixels wide: the page is {height} pixels high, and so empty").into());
        }
    }
    Ok(Completion::Completed)
}

/// The measurement itself sees what it is for.
fn too_wide_is_found() -> Result<Completion, Failed> {
    let Some(browser) = browser() else { return Ok(not_here()) };
    let html = r#"<!DOCTYPE html><body style="margin:0"><div style="width:1000px;height:400px">wide</div>"#;
    let found: Vec<bool> = measured(&browser, html)?.iter().map(|[window, page, _]| page > window).collect();
    if found == [true, true, false, false] {
        Ok(Completion::Completed)
    } else {
        Err(format!("{found:?}").into())
    }
}

fn not_here() -> Completion {
    Completion::ignored_with("needs a browser: chromium, chromium-browser or google-chrome in PATH")
}

fn browser() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let folders: Vec<PathBuf> = env::split_paths(&path).collect();
    folders.iter().flat_map(|folder| names.map(|name| folder.join(name))).find(|program| program.is_file())
}

/// Of each width: what the window has, what the page takes, and how high it is.
fn measured(browser: &Path, html: &str) -> Result<Vec<[u32; 3]>, Failed> {
    let folder = tempfile::tempdir()?;
    let quoted = html.replace('&', "&amp;").replace('"', "&quot;");
    let frames = WIDTHS.map(|width| {
        format!(r#"<iframe style="border:0" width="{width}" height="800" srcdoc="{quoted}"></iframe>"#)
    });
    let frame = folder.path().join("frames.html");
    fs::write(&frame, format!("<!DOCTYPE html>{MEASURE}{}", frames.concat()))?;
    let profile = format!("--user-data-dir={}", folder.path().join("profile").display());
    let output = Command::new(browser).args(FLAGS).arg(profile).arg(&frame).output()?;
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let inner = dom.split_once("measured ").and_then(|(_, rest)| rest.split_once(" end"));
    let (inner, _) = inner.ok_or_else(|| format!("the browser measured nothing: {output:?}"))?;
    let numbers =
        |text: &str| text.split(':').map(|number| number.parse().ok()).collect::<Option<Vec<u32>>>();
    let found: Option<Vec<[u32; 3]>> = inner.split(' ').map(|text| numbers(text)?.try_into().ok()).collect();
    found
        .filter(|found| found.len() == WIDTHS.len())
        .ok_or_else(|| format!("the browser measured '{inner}'").into())
}
