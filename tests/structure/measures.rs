//! Measures how large and how entangled the source is. `scripts/structure` prints the numbers.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::frames;
use crate::imports;
use crate::source::{code_lines, is_for_tests, rust_files};

/// A number that may fall and must not rise.
struct Limit {
    name: &'static str,
    /// The number when it was last lowered. The test fails above it.
    ceiling: usize,
    /// The number to reach.
    target: usize,
    measure: fn() -> Measure,
}

const LIMITS: [Limit; 5] = [
    Limit {
        name: "lines of code in src, without tower, shed and fair",
        ceiling: 24_560,
        target: 12_300,
        measure: lines_of_src,
    },
    Limit {
        name: "named types in src, without tower, shed and fair (struct, enum, trait)",
        ceiling: 339,
        target: 190,
        measure: types_of_src,
    },
    Limit {
        name: "files of src that import each other in a circle",
        ceiling: 0,
        target: 0,
        measure: circular_imports,
    },
    Limit {
        name: "duplicates in src of more than 10 lines of code",
        ceiling: 0,
        target: 0,
        measure: duplicates,
    },
    Limit {
        name: "frames from the poll of `pace(shared)` to the clock",
        ceiling: 7,
        target: 7,
        measure: frames::to_the_clock,
    },
];

const LONGEST_DUPLICATE: usize = 10;

/// A number, and the places that it counts.
pub(crate) struct Measure {
    value: usize,
    places: Vec<String>,
}

impl Measure {
    pub(crate) fn of_places(places: Vec<String>) -> Self {
        Self {
            value: places.len(),
            places,
        }
    }
}

#[test]
fn no_number_rises() {
    let mut table = String::from("   now  ceiling  target\n");
    let mut places = String::new();
    let mut risen = Vec::new();
    for limit in &LIMITS {
        let (name, ceiling, target) = (limit.name, limit.ceiling, limit.target);
        let measure = (limit.measure)();
        let value = measure.value;
        writeln!(table, "{value:>6} {ceiling:>8} {target:>7}  {name}").unwrap();
        if !measure.places.is_empty() {
            writeln!(places, "\n{name}:\n  {}", measure.places.join("\n  ")).unwrap();
        }
        if value > ceiling {
            risen.push(format!("{name}: {value}, more than {ceiling}"));
        }
    }
    println!("\n{table}{places}");
    assert!(risen.is_empty(), "{}", risen.join("; "));
}

/// The lines of code before the tests of a file, without docs, comments and blank lines.
fn lines_of_code(text: &str) -> Vec<&str> {
    text.lines()
        .map(str::trim)
        .take_while(|line| !is_for_tests(line))
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
        .collect()
}

/// The library without layers for services, shedders and fair shares, which would hide how the rest grows.
fn library() -> Vec<(String, String)> {
    let files = rust_files(&["src"]).into_iter();
    let apart = ["src/tower/", "src/shed/", "src/fair/"];
    let is_apart = |path: &str| apart.iter().any(|folder| path.starts_with(folder));
    files.filter(|(path, _)| !is_apart(path)).collect()
}

fn lines_of_src() -> Measure {
    let files = library();
    let lines = files.iter().map(|(_, text)| lines_of_code(text).len());
    Measure {
        value: lines.sum(),
        places: Vec::new(),
    }
}

fn types_of_src() -> Measure {
    let files = library();
    let lines = files.iter().flat_map(|(_, text)| lines_of_code(text));
    Measure {
        value: lines.filter(|line| defines_a_type(line)).count(),
        places: Vec::new(),
    }
}

fn defines_a_type(line: &str) -> bool {
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ").map_or("", |(_, rest)| rest),
        Some(rest) => rest.trim_start(),
        None => line,
    };
    ["struct ", "enum ", "trait "].iter().any(|keyword| {
        line.strip_prefix(keyword)
            .is_some_and(|name| name.starts_with(|first: char| first.is_ascii_uppercase()))
    })
}

fn circular_imports() -> Measure {
    let files = rust_files(&["src"]);
    Measure::of_places(imports::in_circles(&files))
}

/// Runs of equal lines of code in two places, without the imports.
fn duplicates() -> Measure {
    let files = rust_files(&["src"]);
    let files: Vec<(&str, Vec<(usize, String)>)> = files
        .iter()
        .map(|(path, text)| (&**path, normalized(text)))
        .collect();
    Measure::of_places(duplicates_in(&files))
}

/// The lines of code with their numbers, without imports and spaces.
fn normalized(text: &str) -> Vec<(usize, String)> {
    let mut in_import = false;
    let mut lines = code_lines(text);
    lines.retain_mut(|(_, line)| {
        *line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        let begins_or_goes_on = in_import || imports::import_on(line).is_some();
        in_import = begins_or_goes_on && !line.ends_with(';');
        !begins_or_goes_on && !line.is_empty()
    });
    lines
}

fn duplicates_in(files: &[(&str, Vec<(usize, String)>)]) -> Vec<String> {
    let run = LONGEST_DUPLICATE + 1;
    let line = |(file, at): (usize, usize)| files[file].1.get(at).map(|(_, line)| line);
    let mut seen: HashMap<Vec<&String>, Vec<(usize, usize)>> = HashMap::new();
    let mut found = Vec::new();
    for (file, (path, lines)) in files.iter().enumerate() {
        for (at, window) in lines.windows(run).enumerate() {
            let window: Vec<&String> = window.iter().map(|(_, line)| line).collect();
            let earlier = seen.entry(window).or_default();
            for &(other, start) in &*earlier {
                let is_apart = other != file || at >= start + run;
                let is_first =
                    start == 0 || at == 0 || line((other, start - 1)) != line((file, at - 1));
                if is_apart && is_first {
                    let more = lines[at..].iter().zip(&files[other].1[start..]);
                    let length = more.take_while(|(a, b)| a.1 == b.1).count();
                    found.push(format!(
                        "{length} lines: {}:{} and {path}:{}",
                        files[other].0, files[other].1[start].0, lines[at].0
                    ));
                }
            }
            earlier.push((file, at));
        }
    }
    found
}

#[test]
fn docs_comments_and_tests_are_not_lines_of_code() {
    let text = "//! Docs\n\nuse a;\n    // why\nfn f() {\n    g(); // here\n}\n#[cfg(test)]\nmod tests {}\n";
    assert_eq!(
        lines_of_code(text),
        ["use a;", "fn f() {", "g(); // here", "}"]
    );
}

#[test]
fn a_definition_of_a_type_is_counted() {
    for line in [
        "struct A;",
        "pub enum B {",
        "pub(crate) trait C {",
        "pub(in crate::a) struct D(u8);",
    ] {
        assert!(defines_a_type(line), "{line}");
    }
    for line in [
        "impl Trait for A {",
        "type E = A;",
        "let structure = Enum::A;",
        "fn f(trait_: T) {",
        "publish();",
    ] {
        assert!(!defines_a_type(line), "{line}");
    }
}

#[test]
fn a_duplicate_of_eleven_lines_is_found_and_one_of_ten_is_not() {
    let body = |lines: usize| {
        let lines: Vec<String> = (0..lines)
            .map(|line| format!("    step({line});\n"))
            .collect();
        lines.concat()
    };
    let text = |name: &str, lines| {
        let text = format!(
            "use a::{{\n    {name},\n}};\n// {name}\nfn {name}() {{\n{}}}\nlast({name});",
            body(lines)
        );
        normalized(&text)
    };
    let found = |lines| duplicates_in(&[("a.rs", text("f", lines)), ("b.rs", text("g", lines))]);
    assert_eq!(found(9), [""; 0]);
    assert_eq!(found(10), ["11 lines: a.rs:6 and b.rs:6"]);
    assert_eq!(found(30), ["31 lines: a.rs:6 and b.rs:6"]);
    let same = [("a.rs", normalized(&"x();\n".repeat(15)))];
    assert_eq!(
        duplicates_in(&same),
        [""; 0],
        "a run does not repeat itself"
    );
}
