//! Checks the shell scripts: under `set -e` a command that is joined to the next one by `&&` cannot fail.

use std::fs;
use std::path::PathBuf;

#[test]
fn every_check_of_a_script_is_a_command_of_its_own() {
    let mut scripts = vec![PathBuf::from(".ci/run")];
    scripts.extend(
        fs::read_dir("scripts")
            .unwrap()
            .map(|entry| entry.unwrap().path()),
    );
    let mut found = Vec::new();
    for script in &scripts {
        let text = fs::read_to_string(script).unwrap();
        let lines = silent_lines(&text).into_iter();
        found.extend(lines.map(|line| format!("{}:{line}", script.display())));
    }
    assert!(scripts.len() > 5, "no scripts found");
    assert!(found.is_empty(), "{found:#?}");
}

/// The lines whose commands are joined by `&&`, other than in a condition: all but the last command of such a list fail in silence.
fn silent_lines(script: &str) -> Vec<usize> {
    let is_condition = |line: &str| {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        ["if", "elif", "while", "until"].contains(&first) || first.starts_with('#')
    };
    let lines = (1..).zip(script.lines());
    let silent = lines.filter(|(_, line)| line.contains("&&") && !is_condition(line));
    silent.map(|(number, _)| number).collect()
}

#[test]
fn a_list_of_commands_is_found_and_a_condition_is_not() {
    let script =
        "# a && b\necho '+ format' && cargo fmt\nif a && b; then\n  c\nfi\ntest a &&\n  test b\n";
    assert_eq!(silent_lines(script), [2, 6]);
}
