//! The imports between the files of `src/`, and the circles among them.
//!
//! A re-export (`pub use`) is no import of its file: a module that only lists its children depends on none. A path through a
//! re-export leads to the file with the definition.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{code_lines, is_of_word};

/// A module, as the segments of its path.
type Module = Vec<String>;

#[derive(Default)]
struct File {
    path: String,
    /// The names that it re-exports, with their paths.
    re_exports: BTreeMap<String, Vec<String>>,
    /// The paths that it uses.
    uses: Vec<Vec<String>>,
}

/// The files that are in a circle, each with the shortest circle through it.
pub(crate) fn in_circles(files: &[(String, String)]) -> Vec<String> {
    let modules: BTreeMap<Module, File> = files
        .iter()
        .map(|(path, text)| (module_of(path), File::read(path, text)))
        .collect();
    let imports: BTreeMap<&Module, BTreeSet<&Module>> = modules
        .iter()
        .map(|(module, file)| {
            let paths = file.uses.iter();
            let targets = paths.filter_map(|path| definition(&modules, module, path));
            (module, targets.filter(|target| *target != module).collect())
        })
        .collect();
    imports
        .keys()
        .filter_map(|module| shortest_circle(&imports, module))
        .map(|circle| {
            let paths: Vec<&str> = circle
                .iter()
                .map(|module| &*modules[*module].path)
                .collect();
            paths.join(" -> ")
        })
        .collect()
}

fn module_of(path: &str) -> Module {
    let inside = path
        .strip_prefix("src/")
        .unwrap_or(path)
        .trim_end_matches(".rs");
    let inside = inside.trim_end_matches("/mod");
    let segments = inside.split('/').filter(|segment| *segment != "lib");
    segments.map(str::to_owned).collect()
}

impl File {
    fn read(path: &str, text: &str) -> Self {
        let mut file = Self {
            path: path.to_owned(),
            ..Self::default()
        };
        let mut statement: Option<(bool, String)> = None;
        for (_, line) in code_lines(text) {
            if statement.is_none() {
                statement = import_on(&line).map(|(is_public, _)| (is_public, String::new()));
            }
            let Some((is_public, import)) = &mut statement else {
                file.uses.extend(inline_paths(&line));
                continue;
            };
            import.push_str(&line);
            if line.trim_end().ends_with(';') {
                let (_, tree) = import_on(import).unwrap();
                for (path, name) in leaves(tree.trim_end().trim_end_matches(';')) {
                    if path == [&*name] {
                        // It makes a macro of this file visible.
                    } else if *is_public {
                        file.re_exports.insert(name, path);
                    } else {
                        file.uses.push(path);
                    }
                }
                statement = None;
            }
        }
        file
    }
}

/// Whether the import that begins on this line is public, and its tree.
pub(crate) fn import_on(line: &str) -> Option<(bool, &str)> {
    let line = line.trim_start();
    let after = line
        .strip_prefix("pub")
        .map(|rest| match rest.strip_prefix('(') {
            Some(rest) => rest.split_once(')').map_or("", |(_, rest)| rest),
            None => rest,
        });
    let tree = after.unwrap_or(line).trim_start().strip_prefix("use ")?;
    Some((after.is_some(), tree))
}

/// The paths of an import, each with the name that it gives.
fn leaves(tree: &str) -> Vec<(Vec<String>, String)> {
    let tree = tree.trim();
    if let Some((before, group)) = tree.split_once('{') {
        let prefix = segments(before);
        let group = group.trim_end().strip_suffix('}').unwrap_or(group);
        return split_outside_braces(group)
            .into_iter()
            .flat_map(leaves)
            .map(|(path, name)| ([&*prefix, &*path].concat(), name))
            .collect();
    }
    if tree.is_empty() {
        return Vec::new();
    }
    let (path, name) = tree.split_once(" as ").unwrap_or((tree, tree));
    let mut path = segments(path);
    let name = segments(name).pop().unwrap_or_default();
    if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
        path.pop();
    }
    vec![(path, name)]
}

fn segments(path: &str) -> Vec<String> {
    let segments = path
        .split("::")
        .map(str::trim)
        .filter(|segment| !segment.is_empty());
    segments.map(str::to_owned).collect()
}

fn split_outside_braces(group: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&group[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&group[start..]);
    parts
}

/// Paths in the middle of the code that begin in this crate.
fn inline_paths(line: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in line.match_indices(start) {
            let before = &line[..at];
            // Not `pub(in crate::a)`, and not the end of another path.
            if before.ends_with(is_of_word) || before.ends_with(':') || before.ends_with("(in ") {
                continue;
            }
            let rest = &line[at..];
            let end = rest
                .find(|c| !is_of_word(c) && c != ':')
                .unwrap_or(rest.len());
            paths.push(segments(&rest[..end]));
        }
    }
    paths
}

/// The module with the definition of a path, if that is in this crate.
fn definition<'a>(
    modules: &'a BTreeMap<Module, File>,
    from: &Module,
    path: &[String],
) -> Option<&'a Module> {
    let mut module = from.clone();
    let mut rest = path;
    match &*path[0] {
        "crate" => {
            module.clear();
            rest = &path[1..];
        }
        "self" => rest = &path[1..],
        "super" => {
            while let Some((first, others)) = rest.split_first()
                && first == "super"
            {
                module.pop();
                rest = others;
            }
        }
        name => {
            let child = [&*module, std::slice::from_ref(&path[0])].concat();
            if !modules.contains_key(&child) && !modules.get(from)?.re_exports.contains_key(name) {
                return None;
            }
        }
    }
    while let Some((name, others)) = rest.split_first() {
        let child = [&*module, std::slice::from_ref(name)].concat();
        if modules.contains_key(&child) {
            module = child;
            rest = others;
        } else if let Some(target) = modules.get(&module)?.re_exports.get(name) {
            return definition(modules, &module, &[&**target, others].concat());
        } else {
            break;
        }
    }
    modules.get_key_value(&module).map(|(module, _)| module)
}

/// A shortest way from a module back to it.
fn shortest_circle<'a>(
    imports: &BTreeMap<&'a Module, BTreeSet<&'a Module>>,
    start: &'a Module,
) -> Option<Vec<&'a Module>> {
    let mut ways = vec![vec![start]];
    let mut seen = BTreeSet::new();
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            for next in &imports[way[way.len() - 1]] {
                let way = [&*way, &[*next]].concat();
                if *next == start {
                    return Some(way);
                }
                if seen.insert(*next) {
                    longer.push(way);
                }
            }
        }
        ways = longer;
    }
    None
}

fn circles(files: &[(&str, &str)]) -> Vec<String> {
    let files: Vec<_> = files
        .iter()
        .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
        .collect();
    in_circles(&files)
}

#[test]
fn a_parent_that_re_exports_its_children_is_in_no_circle() {
    let parent =
        "mod a;\nmod b;\npub use a::A;\npub(crate) use b::{B, Other as C};\npub trait T {}";
    let child = "use super::{B, T};\nfn f(_: super::C) {}\npub(in crate::m) struct A;";
    let other = "use super::T;\npub struct B;";
    let files = [
        ("src/lib.rs", "pub mod m;"),
        ("src/m/mod.rs", parent),
        ("src/m/a.rs", child),
        ("src/m/b.rs", other),
    ];
    assert_eq!(circles(&files), [""; 0]);
}

#[test]
fn a_circle_through_a_re_export_is_found() {
    let parent = "mod a;\nmod b;\npub use a::A;\npub use b::B;";
    let files = [
        ("src/m/mod.rs", parent),
        ("src/m/a.rs", "use super::B;"),
        ("src/m/b.rs", "fn f(_: crate::m::A) {}"),
        (
            "src/n.rs",
            "use crate::{m::{self, A}, o::O};\nuse redis::Client;",
        ),
        ("src/o.rs", "#[cfg(test)]\nmod tests { use crate::n::N; }"),
    ];
    assert_eq!(
        circles(&files),
        [
            "src/m/a.rs -> src/m/b.rs -> src/m/a.rs",
            "src/m/b.rs -> src/m/a.rs -> src/m/b.rs",
        ]
    );
}

#[test]
fn a_parent_that_uses_a_child_that_uses_the_parent_is_a_circle() {
    let files = [
        ("src/m/mod.rs", "mod a;\nuse a::{\n    A,\n};\nstruct M(A);"),
        ("src/m/a.rs", "use super::M;"),
    ];
    assert_eq!(circles(&files).len(), 2);
}
