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
const PURE_FILES: [&str; 12] = [
    "src/concurrency/aimd.rs",
    "src/concurrency/gradient.rs",
    "src/limiter/additive_increase.rs",
    "src/limiter/hold_and_probe.rs",
    "src/limiter/rate_rule.rs",
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
    ("src/wait/offer.rs", "crates/models/offer.rs"),
    ("src/limiter/switch.rs", "crates/models/switch.rs"),
    ("src/shed/gauge.rs", "crates/models/gauge.rs"),
];

#[test]
fn no_file_imports_from_a_layer_above() {
    assert_none(&in_folders(&ON_THE_MAP, layering));
}

#[test]
fn the_map_has_the_folders_of_src_and_no_others() {
    let entries = ON_THE_MAP.map(|src| fs::read_dir(src).unwrap());
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
    for (file, model) in MODELLED {
        let model = fs::read_to_string(model).unwrap();
        let includes = format!("#[path = \"../../{file}\"]");
        assert!(model.contains(&includes), "{file}");
        let file = fs::read_to_string(file).unwrap();
        assert!(
            file.contains("use loom::model"),
            "its tests try every order"
        );
    }
}

#[test]
fn every_pure_file_exists() {
    for file in PURE_FILES {
        assert!(Path::new(file).is_file(), "{file}");
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

/// What a rule says of each line of code.
fn faults(path: &str, text: &str, rule: impl Fn(&str) -> Vec<String>) -> Vec<Fault> {
    let lines = code_lines(text).into_iter();
    let faults = lines.flat_map(|(line, code)| {
        let path = path.to_owned();
        let fault = move |what| Fault {
            path: path.clone(),
            line,
            what,
        };
        rule(&code).into_iter().map(fault)
    });
    faults.collect()
}

/// Finds imports from layers above or beside, and imports that are written so that this rule could not see them.
fn layering(path: &str, text: &str) -> Vec<Fault> {
    let Place { layer, is_root } = place(path);
    if EXEMPT.contains(&layer) {
        return Vec::new();
    }
    let Some(below) = Map::of_this_house().below(layer) else {
        return vec![Fault {
            path: path.to_owned(),
            line: 1,
            what: format!("`{layer}` is not on the map in DESIGN.md"),
        }];
    };
    faults(path, text, |line| {
        let mut found = Vec::new();
        let crates = ["crate::", "paceline::"].into_iter();
        for (at, krate) in crates.flat_map(|krate| line.match_indices(krate)) {
            if line[..at].ends_with(is_of_word) {
                continue;
            }
            let rest = &line[at + krate.len()..];
            let target = &rest[..rest.find(|c| !is_of_word(c)).unwrap_or(rest.len())];
            if target.is_empty() {
                found.push("`crate::{…}`: one `use` per module path".to_owned());
            } else if target != layer && !below.contains(target) {
                found.push(format!("`{layer}` must not know `{target}`"));
            }
        }
        if line.contains("super::super") {
            found.push("`super::super`: name the path from `crate`".to_owned());
        } else if is_root && has_word(line, "super::") {
            found.push("`super::` leaves the folder: name the path from `crate`".to_owned());
        }
        if line.contains("use crate as ") || line.contains("use crate;") {
            found.push("`crate` by another name".to_owned());
        }
        found
    })
}

/// Finds words that pure code does not use.
fn purity(path: &str, text: &str) -> Vec<Fault> {
    let layer = place(path).layer;
    if !PURE.contains(&layer) && !PURE_FILES.contains(&path) {
        return Vec::new();
    }
    let floats: &[&str] = if EXACT.contains(&layer) { &FLOATS } else { &[] };
    faults(path, text, |line| {
        let line = line.replace("#[expect(", "#[").replace("#![expect(", "#![");
        let words = BANNED.iter().chain(floats);
        let found = words.filter(|word| has_word(&line, word));
        found
            .map(|word| format!("`{word}` in a pure folder"))
            .collect()
    })
}

/// Finds atomics without a model.
fn locking(path: &str, text: &str) -> Vec<Fault> {
    if MODELLED.iter().any(|(file, _)| *file == path) {
        return Vec::new();
    }
    faults(path, text, |line| {
        let mut words = SHARED_WITHOUT_A_LOCK.iter();
        let found = words.find(|word| has_word(line, word));
        let without = |word| format!("`{word}` without a model that tries every order");
        found.map(without).into_iter().collect()
    })
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
