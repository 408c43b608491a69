//! Reads the source and fails on what would break the layers: an import of what lies above, a banned word in a pure
//! folder, a file too long to read.
//!
//! The rules are pure functions of a path and a text, and are tried on small planted texts.

mod code;
mod planted;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use code::{code_lines, is_of_word};

/// What the non-test code of a folder may import; its own folder always. Any other folder knows nothing of the rest.
const LAYERS: [(&str, &[&str]); 15] = [
    ("time", &[]),
    // Those who wait for a limit and those who wait for a permit stand in the same kind of line.
    ("line", &["time"]),
    // The first of that line may not be polled.
    ("patience", &["time"]),
    ("policy", &["time"]),
    ("batch", &["time"]),
    ("concurrency", &["time", "line", "patience"]),
    ("shed", &["time"]),
    ("fair", &["time"]),
    ("feedback", &["time"]),
    (
        "limiter",
        &["time", "line", "patience", "policy", "feedback"],
    ),
    ("io", &["time", "policy", "limiter"]),
    (
        "stream",
        &["time", "policy", "limiter", "batch", "concurrency", "shed"],
    ),
    (
        "sink",
        &["time", "policy", "limiter", "batch", "concurrency", "shed"],
    ),
    (
        "tower",
        &["time", "policy", "limiter", "concurrency", "shed"],
    ),
    ("redis", &["time", "policy", "limiter"]),
];

/// The map, and what only names things: they know everything.
const EXEMPT: [&str; 3] = ["lib", "prelude", "_docs"];

/// Folders whose code is sums, given the time.
const PURE: [&str; 5] = ["policy", "batch", "shed", "fair", "feedback"];

/// Files of other folders that are held to the same: permits have a lock and a line, their sums and controllers have not.
const PURE_FILES: [&str; 10] = [
    "src/concurrency/stock.rs",
    "src/concurrency/outcome.rs",
    "src/concurrency/aimd.rs",
    "src/concurrency/gradient.rs",
    "src/redis/cache.rs",
    "src/redis/health.rs",
    "src/redis/lease_queue.rs",
    "src/redis/lease_table.rs",
    "src/redis/policy.rs",
    "src/redis/scripts.rs",
];

/// What sums do not need.
const BANNED: [&str; 16] = [
    "Instant",
    "SystemTime",
    "Clock",
    "Mutex",
    "RwLock",
    "Atomic",
    "async",
    ".await",
    "sleep",
    "Waker",
    "Context<",
    "panic!",
    "unwrap(",
    "expect(",
    "todo!",
    "unreachable!",
];

/// Folders whose sums are exact.
const EXACT: [&str; 2] = ["policy", "feedback"];

/// What exact sums do not need either.
const FLOATS: [&str; 2] = ["f32", "f64"];

/// What is shared is behind a lock: whoever shares an atomic has to try every order of its reads and writes, with a model.
const SHARED_WITHOUT_A_LOCK: [&str; 3] = ["Atomic", "atomic", "fence("];

/// Who has tried that, and with what.
const MODELLED: [&str; 1] = ["src/limiter/credit.rs"];
const MODEL: &str = "use loom::model";

const MOST_LINES: usize = 400;

/// A trait is a list of methods, each with an example, and cannot be cut in two.
const MOST_LINES_OF_A_LIST: usize = 600;

#[test]
fn nothing_in_src_uses_what_lies_above_it() {
    assert_none(&in_files(&["src"], layering));
}

#[test]
fn pure_folders_hold_sums_and_nothing_else() {
    assert_none(&in_files(&["src"], purity));
}

#[test]
fn nothing_in_src_is_shared_without_a_lock() {
    assert_none(&in_files(&["src"], locking));
}

#[test]
fn every_pure_file_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for file in PURE_FILES {
        assert!(root.join(file).is_file(), "{file}");
    }
}

#[test]
fn every_file_can_be_read_in_one_sitting() {
    assert_none(&in_files(
        &["src", "testkit/src", "peers/src", "examples", "benches"],
        length,
    ));
}

/// What is wrong, and where.
#[derive(Debug, Eq, PartialEq)]
struct Fault {
    path: String,
    line: usize,
    what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

fn assert_none(faults: &[Fault]) {
    let list: Vec<String> = faults.iter().map(Fault::to_string).collect();
    assert!(
        list.is_empty(),
        "{} faults:\n{}",
        list.len(),
        list.join("\n")
    );
}

fn in_files(folders: &[&str], rule: fn(&str, &str) -> Vec<Fault>) -> Vec<Fault> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in folders {
        rust_files(&root.join(folder), &mut files);
    }
    assert!(!files.is_empty(), "no files in {folders:?}");
    files.sort();
    files
        .iter()
        .flat_map(|file| {
            let path = file
                .strip_prefix(root)
                .unwrap_or(file)
                .to_string_lossy()
                .replace('\\', "/");
            rule(&path, &fs::read_to_string(file).unwrap())
        })
        .collect()
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// An import from above or from beside, and any way of writing one that this could not see.
fn layering(path: &str, text: &str) -> Vec<Fault> {
    let place = place(path);
    if EXEMPT.contains(&place.layer) {
        return Vec::new();
    }
    let Some(&(_, below)) = LAYERS.iter().find(|(layer, _)| *layer == place.layer) else {
        let what = format!(
            "`{}` has no layer; give it one in tests/it/layering.rs",
            place.layer
        );
        return vec![fault(path, 1, what)];
    };
    let mut faults = Vec::new();
    for (number, line) in code_lines(text) {
        for (at, _) in line.match_indices("crate::") {
            if line[..at].ends_with(is_of_word) {
                continue;
            }
            let rest = &line[at + "crate::".len()..];
            let target = &rest[..rest.find(|c| !is_of_word(c)).unwrap_or(rest.len())];
            if target.is_empty() {
                faults.push(fault(
                    path,
                    number,
                    "`crate::{…}`: one `use` per module path",
                ));
            } else if target != place.layer && !below.contains(&target) {
                let what = format!("`{}` must not know `{target}`", place.layer);
                faults.push(fault(path, number, what));
            }
        }
        if line.contains("super::super") {
            faults.push(fault(
                path,
                number,
                "`super::super`: name the path from `crate`",
            ));
        } else if place.is_root && has_word(&line, "super::") {
            faults.push(fault(
                path,
                number,
                "`super::` leaves the folder: name the path from `crate`",
            ));
        }
        if line.contains("use crate as ") || line.contains("use crate;") {
            faults.push(fault(path, number, "`crate` by another name"));
        }
    }
    faults
}

/// A word that sums do not need.
fn purity(path: &str, text: &str) -> Vec<Fault> {
    let layer = place(path).layer;
    if !PURE.contains(&layer) && !PURE_FILES.contains(&path) {
        return Vec::new();
    }
    let floats: &[&str] = if EXACT.contains(&layer) { &FLOATS } else { &[] };
    let mut faults = Vec::new();
    for (number, line) in code_lines(text) {
        let line = line.replace("#[expect(", "#[").replace("#![expect(", "#![");
        for word in BANNED.iter().chain(floats) {
            if has_word(&line, word) {
                faults.push(fault(path, number, format!("`{word}` in a pure folder")));
            }
        }
    }
    faults
}

/// A number that threads share and no lock guards.
fn locking(path: &str, text: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    if MODELLED.contains(&path) && text.contains(MODEL) {
        return faults;
    }
    for (number, line) in code_lines(text) {
        for word in SHARED_WITHOUT_A_LOCK {
            if has_word(&line, word) {
                let what = format!("`{word}` without a model that tries every order");
                faults.push(fault(path, number, what));
                break;
            }
        }
    }
    faults
}

fn length(path: &str, text: &str) -> Vec<Fault> {
    let lines = text.lines().count();
    let most = if path.ends_with("/ext.rs") {
        MOST_LINES_OF_A_LIST
    } else {
        MOST_LINES
    };
    if lines <= most {
        return Vec::new();
    }
    vec![fault(
        path,
        most + 1,
        format!("{lines} lines, more than {most}"),
    )]
}

fn fault(path: &str, line: usize, what: impl Into<String>) -> Fault {
    Fault {
        path: path.to_owned(),
        line,
        what: what.into(),
    }
}

/// Where a file of `src/` stands.
struct Place<'a> {
    layer: &'a str,
    /// Whether `super` of this file is outside its layer.
    is_root: bool,
}

fn place(path: &str) -> Place<'_> {
    let inside = path.strip_prefix("src/").unwrap_or(path);
    match inside.split_once('/') {
        Some((layer, file)) => Place {
            layer,
            is_root: file == "mod.rs",
        },
        None => Place {
            layer: inside.trim_end_matches(".rs"),
            is_root: true,
        },
    }
}

/// Whether a word of `line` is `word` or begins with it: a `MutexGuard` comes of a `Mutex`.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word)
        .any(|(at, _)| !word.starts_with(is_of_word) || !line[..at].ends_with(is_of_word))
}
