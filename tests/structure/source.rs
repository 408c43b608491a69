//! Reads the project's own source: the files of a folder, and what of a text is code. Tests run in the folder of the project.

use std::fs;
use std::path::Path;

/// The sources of the libraries that have folders on the map.
pub(crate) const ON_THE_MAP: [&str; 2] = ["crates/paceline-redis/src", "src"];

/// The sources of all libraries.
pub(crate) const LIBRARIES: [&str; 3] = [ON_THE_MAP[0], "crates/paceline-tower/src", ON_THE_MAP[1]];

/// The Rust files in these folders of the project, each with its path and its text, in the order of their paths.
pub(crate) fn rust_files(folders: &[&str]) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for folder in folders {
        let before = files.len();
        add_rust_files(Path::new(folder), &mut files);
        assert!(files.len() > before, "no files in {folder}");
    }
    files.sort();
    files
}

fn add_rust_files(folder: &Path, files: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            files.push((path.to_string_lossy().replace('\\', "/"), text));
        }
    }
}

/// The lines up to the test module, each with its number. Comments and the content of literals are blank.
pub(crate) fn code_lines(text: &str) -> Vec<(usize, String)> {
    let code = blanked(text);
    let lines: Vec<&str> = code.lines().collect();
    let tests = (0..lines.len()).find(|at| begins_tests(&lines[*at..]));
    let code = &lines[..tests.unwrap_or(lines.len())];
    (1..)
        .zip(code.iter().map(|&line| line.to_owned()))
        .collect()
}

/// Whether a module begins here that only tests have. Other attributes may be between.
fn begins_tests(lines: &[&str]) -> bool {
    let mut lines = lines.iter().map(|line| line.trim_start());
    let is_for_tests = lines
        .next()
        .is_some_and(|line| line.starts_with("#[cfg(test") || line.starts_with("#[cfg(all(test"));
    let mut after = lines.skip_while(|line| line.is_empty() || line.starts_with("#["));
    let is_module = |line: &str| line.split(' ').any(|word| word == "mod");
    is_for_tests && after.next().is_some_and(is_module)
}

/// The text with every comment and every string and character literal blanked, line by line.
fn blanked(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (blank, taken) = if rest.starts_with("//") {
            (true, rest.find('\n').unwrap_or(rest.len()))
        } else if rest.starts_with("/*") {
            (true, block_comment(rest))
        } else if first == '"' {
            (true, string(rest))
        } else if let Some(hashes) = raw_string(rest).filter(|_| !code.ends_with(is_of_word)) {
            let end = format!("\"{}", "#".repeat(hashes));
            let start = 1 + hashes + 1;
            (
                true,
                rest[start..]
                    .find(&end)
                    .map_or(rest.len(), |at| start + at + end.len()),
            )
        } else if first == '\'' {
            (true, character(rest))
        } else {
            (false, first.len_utf8())
        };
        let (piece, after) = rest.split_at(taken);
        if blank {
            code.extend(piece.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        } else {
            code.push_str(piece);
        }
        rest = after;
    }
    code
}

/// How long the block comment is that `text` begins with; they nest.
fn block_comment(text: &str) -> usize {
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(next) = text[at..].chars().next() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += next.len_utf8();
        }
    }
    at
}

/// How long the string literal is that `text` begins with.
fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// How many hashes the raw string has that `text` begins with.
fn raw_string(text: &str) -> Option<usize> {
    let hashes = text.strip_prefix('r')?;
    let quote = hashes.trim_start_matches('#');
    quote.starts_with('"').then(|| hashes.len() - quote.len())
}

/// How long the character literal is that `text` begins with; 1 for the mark of a lifetime.
fn character(text: &str) -> usize {
    if text.starts_with("'\\") {
        return text[3..].find('\'').map_or(1, |at| 3 + at + 1);
    }
    match text.char_indices().nth(2) {
        Some((at, '\'')) => at + 1,
        _ => 1,
    }
}

pub(crate) fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}
