//! The links of the pages lead to files and headings that exist.

use std::fs;
use std::path::{Path, PathBuf};

/// The pages of the project.
fn pages() -> Vec<PathBuf> {
    let folders = [
        ".",
        "crates/paceline-tower",
        "crates/paceline-tower/docs",
        "docs",
        "docs/performance",
        "crates/cli",
        "crates/paceline-redis",
    ];
    let files = folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap());
    let files = files.map(|entry| entry.unwrap().path());
    let pages: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
        .collect();
    assert!(pages.len() > 10, "{pages:?}");
    pages
}

/// What a page links to: the text in the brackets of `](...)` and the end of `[name]: ...`, outside of code.
fn links(page: &str) -> Vec<String> {
    let mut is_code = false;
    let prose = page.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    let prose = prose.collect::<Vec<_>>().join("\n");
    // Every second part is between backticks.
    let plain: String = prose.split('`').step_by(2).collect();
    let starts = plain.split("](").skip(1);
    let links = starts.filter_map(|rest| rest.split(')').next());
    let named = plain.lines().filter(|line| line.starts_with('['));
    let named = named.filter_map(|line| Some(line.split_once("]: ")?.1));
    links.chain(named).map(str::to_owned).collect()
}

/// The name by which a link reaches a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = kept
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn has_anchor(page: &Path, name: &str) -> bool {
    let text = fs::read_to_string(page).unwrap();
    let mut headings = text.lines().filter(|line| line.starts_with('#'));
    headings.any(|heading| anchor(heading) == name)
}

#[test]
fn every_link_of_a_page_leads_to_a_file_and_a_heading() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&text) {
            if link.contains("://") {
                continue;
            }
            let (file, name) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => page.clone(),
                file => page.parent().unwrap().join(file),
            };
            let leads = target.exists() && (name.is_empty() || has_anchor(&target, name));
            if !leads {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn a_link_in_code_is_none_and_a_heading_has_its_name() {
    let page =
        "see [one](a.md) and `[two](b.md)`\n```text\n[three](c.md)\n```\n[four](#d)\n[e]: f.md";
    assert_eq!(links(page), ["a.md", "#d", "f.md"]);
    assert_eq!(
        anchor("## What it costs, and `why`"),
        "what-it-costs-and-why"
    );
}
