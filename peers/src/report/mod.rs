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
use words::Words;

/// Where the figures are, beside the page.
pub(crate) const STORED: &str = "figures.json";

/// Writes the page, the plots and the figures into a folder.
pub(crate) fn write(figures: &Figures, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut page = head(figures);
    page += &summary::table(&figures.all().collect::<Vec<_>>());
    for &section in Section::value_variants() {
        let of: Vec<&Figure> = figures.of(section.name()).collect();
        if !of.is_empty() {
            page += &chapter(section, &of, folder)?;
        }
    }
    fs::write(folder.join("README.md"), page)?;
    figures.save(&folder.join(STORED))
}

/// The tables of a section, to be read in a terminal.
pub(crate) fn tables(section: Section, figures: &Figures) -> String {
    let figures: Vec<&Figure> = figures.of(section.name()).collect();
    all_tables(&words::of(section), &figures)
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

fn chapter(section: Section, figures: &[&Figure], folder: &Path) -> io::Result<String> {
    let words = words::of(section);
    let mut text = format!("## {}\n\n{}\n\n", words.title, words.question);
    for drawing in words.drawings {
        let file = format!("{}.svg", drawing.name);
        if drawing.draw(figures, &folder.join(&file))? {
            let _ = writeln!(text, "![{}]({file})\n", drawing.title);
        }
    }
    let behind = verdict::behind(&words, figures);
    if !behind.is_empty() {
        let _ = writeln!(text, "**Where another is ahead:** {}.\n", behind.join("; "));
    }
    if !words.why.is_empty() {
        let _ = writeln!(text, "{}\n", words.why);
    }
    text += &all_tables(&words, figures);
    Ok(text)
}

fn all_tables(words: &Words, figures: &[&Figure]) -> String {
    let mut text = String::new();
    for metric in words.metrics {
        for part in parts(figures) {
            let Some(table) = Table::of(metric.name, part, figures) else {
                continue;
            };
            let part = if part.is_empty() {
                String::new()
            } else {
                format!(" ({part})")
            };
            let _ = writeln!(
                text,
                "{}{part}:\n\n{}",
                metric.heading,
                table.markdown(metric)
            );
        }
    }
    text
}

fn parts<'a>(figures: &[&'a Figure]) -> Vec<&'a str> {
    table::in_order(figures.iter().map(|figure| figure.part.as_str()))
}
