//! The page about it shows what the example prints.

use std::process::Command;

/// What differs from one run to the next is left out: times, and what the system says of a broken connection.
fn masked(line: &str) -> String {
    if let Some((name, until)) = line.split_once("} ")
        && name.starts_with("paceline_paused_until")
        && until != "0"
    {
        return format!("{name}}} (a time)");
    }
    match line.split_once("cause=") {
        Some((event, _)) => event.to_owned(),
        None => line.to_owned(),
    }
}

#[test]
fn the_page_shows_what_it_prints() {
    let output = Command::new(env!("CARGO_BIN_EXE_watch")).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(
        !printed.contains("there is no redis-server"),
        "the test needs one"
    );
    let printed: Vec<String> = printed.lines().map(masked).collect();

    let page = include_str!("../../../docs/watching.md");
    let mut is_shown = false;
    let mut shown = Vec::new();
    for line in page.lines() {
        if line.starts_with("```") {
            is_shown = line == "```text";
        } else if is_shown || line.starts_with("## ") {
            shown.push(masked(line));
        }
    }
    assert_eq!(printed, shown);
}
