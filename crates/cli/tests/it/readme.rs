use std::env;
use std::path::Path;
use std::process::Command;

use crate::support::PACELINE;

const README: &str = include_str!("../../README.md");

/// Each command of the page, and what it prints.
fn examples() -> Vec<(String, String)> {
    let blocks = README.split("```console\n").skip(1);
    let blocks = blocks.map(|rest| rest.split("```").next().unwrap());
    let mut examples = Vec::new();
    for line in blocks.flat_map(str::lines) {
        match (line.strip_prefix("$ "), examples.last_mut()) {
            (Some(command), _) => examples.push((command.to_owned(), String::new())),
            (None, Some((_, output))) => output.extend([line, "\n"]),
            (None, None) => panic!("{line:?} is before the first command"),
        }
    }
    examples
}

#[test]
fn every_example_prints_what_the_page_says() {
    let bin = Path::new(PACELINE).parent().unwrap().to_owned();
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths([bin].into_iter().chain(env::split_paths(&path))).unwrap();
    let examples = examples();
    assert!(examples.len() >= 5);
    for (command, expected) in examples {
        let run = Command::new("sh")
            .args(["-c", &format!("exec 2>&1; {command}")])
            .env("PATH", &path)
            .output();
        let printed = String::from_utf8(run.unwrap().stdout).unwrap();
        assert_eq!(printed, expected, "{command}");
    }
}

#[test]
fn the_page_is_short() {
    assert!(README.len() <= 6 * 1024);
}
