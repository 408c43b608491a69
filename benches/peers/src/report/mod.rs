//! Turns figures into a page. It measures nothing, so that a page can be drawn again from what is stored.

mod plot;
mod summary;
mod table;
mod verdict;
mod words;

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use clap::ValueEnum;

use crate::figures::{Figure, Figures};
use crate::sections::Section;

use table::Table;
use words::{Metric, Shown, Words};

/// Where the figures are, beside the page.
pub(crate) const STORED: &str = "figures.json";

/// Where all tables are, beside the page. The page has a link to it.
const TABLES: &str = "tables.md";

/// Writes the page, the tables, the plots and the figures into a folder.
pub(crate) fn write(figures: &Figures, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut page = head(figures);
    page += &summary::table(&figures.all().collect::<Vec<_>>());
    let mut raw = words::TABLES.to_owned();
    for &section in Section::value_variants() {
        let of: Vec<&Figure> = figures.of(section.name()).collect();
        if of.is_empty() {
            continue;
        }
        for words in words::of(section) {
            page += &chapter(words, &of, folder)?;
            let _ = write!(raw, "## {}\n\n{}", words.title, all_tables(words, &of));
        }
    }
    fs::write(folder.join("README.md"), page)?;
    fs::write(folder.join(TABLES), raw)?;
    figures.save(&folder.join(STORED))
}

/// The tables of a section, to be read in a terminal.
pub(crate) fn tables(section: Section, figures: &Figures) -> String {
    let figures: Vec<&Figure> = figures.of(section.name()).collect();
    let tables = words::of(section).iter();
    tables.map(|words| all_tables(words, &figures)).collect()
}

fn head(figures: &Figures) -> String {
    let machine = &figures.machine;
    let packages: Vec<String> = machine
        .packages
        .iter()
        .map(|(name, version)| format!("{name} {version}"))
        .collect();
    let minutes = figures.took.iter().map(|(_, took)| took).sum::<f64>() / 60.0;
    let server = match machine.server.as_str() {
        "" => String::new(),
        server => format!("| server | {server} |\n"),
    };
    format!(
        "{}\n| | |\n|---|---|\n| processor | {}, {} cores |\n| system | {} |\n| compiler | {} |\n{server}| packages | {} |\n\
         | took | {minutes:.1} minutes |\n\n",
        words::INTRODUCTION,
        machine.processor,
        machine.cores,
        machine.system,
        machine.rustc,
        packages.join(", "),
    )
}

fn chapter(words: &Words, figures: &[&Figure], folder: &Path) -> io::Result<String> {
    let mut text = format!("## {}\n\n{}\n\n", words.title, words.question);
    match &words.shown {
        Shown::Table { metric, part } => {
            let shown = words.metrics.iter().filter(|of| of.name == *metric);
            text.extend(shown.filter_map(|metric| table_of(metric, part, figures)));
        }
        Shown::Plot(drawing) => {
            let file = format!("{}.svg", drawing.name);
            if drawing.draw(figures, &folder.join(&file))? {
                let _ = writeln!(text, "![{}]({file})\n", drawing.title);
            }
        }
    }
    let behind = verdict::behind(words, figures);
    if !behind.is_empty() {
        let _ = writeln!(text, "**Where another is ahead:** {}.\n", behind.join("; "));
    }
    let _ = writeln!(text, "{}\n", words.why);
    Ok(text)
}

fn all_tables(words: &Words, figures: &[&Figure]) -> String {
    let mut text = String::new();
    for metric in words.metrics {
        let parts = parts(figures).into_iter();
        text.extend(parts.filter_map(|part| table_of(metric, part, figures)));
    }
    text
}

/// `None` if nothing was measured.
fn table_of(metric: &Metric, part: &str, figures: &[&Figure]) -> Option<String> {
    let table = Table::of(metric.name, part, figures)?.markdown(metric);
    let heading = metric.heading;
    Some(if part.is_empty() {
        format!("{heading}:\n\n{table}\n")
    } else {
        format!("{heading} ({part}):\n\n{table}\n")
    })
}

fn parts<'a>(figures: &[&'a Figure]) -> Vec<&'a str> {
    table::in_order(figures.iter().map(|figure| figure.part.as_str()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_subject_shows_a_metric_of_its_own_titles_are_distinct_and_the_tables_have_a_link() {
        assert!(words::INTRODUCTION.contains(&format!("]({TABLES})")));
        let mut titles = HashSet::new();
        for &section in Section::value_variants() {
            for words in words::of(section) {
                assert!(titles.insert(words.title), "{}", words.title);
                if let Shown::Table { metric, .. } = words.shown {
                    let is_own = words.metrics.iter().any(|of| of.name == metric);
                    assert!(is_own, "{metric}");
                }
            }
        }
    }
}
