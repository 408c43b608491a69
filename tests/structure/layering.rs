//! Reads the source and fails on a broken layer: an import from a layer above, a clock or a lock in a pure folder, an atomic
//! without a model.
//!
//! The layers are those of the map in `DESIGN.md`. Each rule is a pure function of a path and a text, and has tests with small texts.

mod map;
mod planted;

use std::fmt;
use std::fs;
use std::path::Path;

use map::Map;

use crate::source::{LIBRARIES, ON_THE_MAP, code_lines, is_of_word, rust_files};

/// Files that only list and re-export, or forward. They may import everything.
const EXEMPT: [&str; 3] = ["lib", "prelude", "_docs"];

/// Folders of pure code, which gets the time as an argument.
const PURE: [&str; 4] = ["policy", "batch", "fair", "feedback"];

/// Pure files in the other folders.
const PURE_FILES: [&str; 9] = [
    "src/concurrency/aimd.rs",
    "src/concurrency/gradient.rs",
    "crates/paceline-redis/src/remote/lease_queue.rs",
    "crates/paceline-redis/src/remote/lease_table.rs",
    "crates/paceline-redis/src/redis/policy.rs",
    "crates/paceline-redis/src/redis/scripts.rs",
    "crates/paceline-redis/src/remote/cache.rs",
    "crates/paceline-redis/src/remote/health.rs",
    "src/shed/curve.rs",
];

/// What pure code does not use.
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

/// Folders with exact arithmetic.
const EXACT: [&str; 3] = ["policy", "fair", "feedback"];

/// What exact arithmetic does not use either.
const FLOATS: [&str; 2] = ["f32", "f64"];

/// What threads share is behind a lock. An atomic needs a model that tries every order of its reads and writes.
const SHARED_WITHOUT_A_LOCK: [&str; 3] = ["Atomic", "atomic", "fence("];

/// The files that have a model, and the model.
const MODELLED: [(&str, &str); 3] = [
    ("src/limiter/prefetch.rs", "crates/models/prefetch.rs"),
    ("src/limiter/switch.rs", "crates/models/switch.rs"),
    ("src/shed/gauge.rs", "crates/models/gauge.rs"),
];

#[test]
fn no_file_imports_from_a_layer_above() {
    assert_none(&in_folders(&ON_THE_MAP, layering));
}

#[test]
fn the_map_has_the_folders_of_src_and_no_others() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let entries = ON_THE_MAP.map(|src| fs::read_dir(root.join(src)).unwrap());
    let entries = entries.into_iter().flatten().map(|entry| entry.unwrap());
    let folders = entries.filter(|entry| entry.file_type().unwrap().is_dir());
    let folders = folders.map(|entry| entry.file_name().into_string().unwrap());
    let differences = Map::of_this_house().differences(&folders.collect());
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn pure_folders_have_no_clock_lock_float_or_panic() {
    assert_none(&in_folders(&ON_THE_MAP, purity));
}

#[test]
fn every_atomic_has_a_model() {
    assert_none(&in_folders(&LIBRARIES, locking));
}

#[test]
fn every_model_tries_its_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (file, model) in MODELLED {
        let model = fs::read_to_string(root.join(model)).unwrap();
        assert!(
            model.contains(&format!("#[path = \"../../{file}\"]")),
            "{file}"
        );
        let file = fs::read_to_string(root.join(file)).unwrap();
        assert!(
            file.contains("use loom::model"),
            "its tests try every order"
        );
    }
}

#[test]
fn every_pure_file_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for file in PURE_FILES {
        assert!(root.join(file).is_file(), "{file}");
    }
}

/// A broken rule, and its place.
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

fn in_folders(folders: &[&str], rule: fn(&str, &str) -> Vec<Fault>) -> Vec<Fault> {
    let files = rust_files(folders);
    files
        .iter()
        .flat_map(|(path, text)| rule(path, text))
        .collect()
}

/// Finds imports from layers above or beside, and imports that are written so that this rule could not see them.
fn layering(path: &str, text: &str) -> Vec<Fault> {
    let place = place(path);
    if EXEMPT.contains(&place.layer) {
        return Vec::new();
    }
    let Some(below) = Map::of_this_house().below(place.layer) else {
        let what = format!("`{}` is not on the map in DESIGN.md", place.layer);
        return vec![fault(path, 1, what)];
    };
    let mut faults = Vec::new();
    for (number, line) in code_lines(text) {
        let crates = ["crate::", "paceline::"].into_iter();
        for (at, krate) in crates.flat_map(|krate| line.match_indices(krate)) {
            if line[..at].ends_with(is_of_word) {
                continue;
            }
            let rest = &line[at + krate.len()..];
            let target = &rest[..rest.find(|c| !is_of_word(c)).unwrap_or(rest.len())];
            if target.is_empty() {
                faults.push(fault(
                    path,
                    number,
                    "`crate::{…}`: one `use` per module path",
                ));
            } else if target != place.layer && !below.contains(target) {
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

/// Finds words that pure code does not use.
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

/// Finds atomics without a model.
fn locking(path: &str, text: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    if MODELLED.iter().any(|(file, _)| *file == path) {
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

fn fault(path: &str, line: usize, what: impl Into<String>) -> Fault {
    Fault {
        path: path.to_owned(),
        line,
        what: what.into(),
    }
}

/// The layer of a file of a library.
struct Place<'a> {
    layer: &'a str,
    /// Whether `super` of this file is outside its layer.
    is_root: bool,
}

fn place(path: &str) -> Place<'_> {
    let inside = path.rsplit_once("src/").map_or(path, |(_, inside)| inside);
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

/// Whether a word of `line` begins with `word`, as `MutexGuard` begins with `Mutex`.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word)
        .any(|(at, _)| !word.starts_with(is_of_word) || !line[..at].ends_with(is_of_word))
}
