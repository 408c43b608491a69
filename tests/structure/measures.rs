//! Measures how large and how entangled the source is. `scripts/structure` prints the numbers.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::frames;
use crate::imports;
use crate::source::{LIBRARIES, code_lines, rust_files};

struct Crate {
    name: &'static str,
    folder: &'static str,
    lines: Ceiling,
    types: Ceiling,
}

/// A number that may fall and must not rise.
#[derive(Clone, Copy)]
struct Ceiling {
    /// The number when it was last lowered. The test fails above it.
    ceiling: usize,
    /// The number to reach.
    target: usize,
}

const CRATES: [Crate; 3] = [
    Crate {
        name: "paceline",
        folder: "src",
        lines: at_most(24_526, 24_099),
        types: at_most(366, 366),
    },
    Crate {
        name: "paceline-redis",
        folder: "crates/paceline-redis/src",
        lines: at_most(6_998, 6_980),
        types: at_most(97, 95),
    },
    Crate {
        name: "paceline-tower",
        folder: "crates/paceline-tower/src",
        lines: at_most(3_071, 3_071),
        types: at_most(78, 78),
    },
];

/// A property of the whole project.
struct Limit {
    name: &'static str,
    ceiling: Ceiling,
    measure: fn() -> Measure,
}

const LIMITS: [Limit; 5] = [
    Limit {
        name: "folders at the top",
        ceiling: at_most(8, 8),
        measure: folders_at_the_top,
    },
    Limit {
        name: "bytes of Markdown",
        ceiling: at_most(219 * 1024, 219 * 1024),
        measure: markdown,
    },
    Limit {
        name: "files that import each other in a circle",
        ceiling: at_most(0, 0),
        measure: circular_imports,
    },
    Limit {
        name: "duplicates of more than 10 lines of code",
        ceiling: at_most(0, 0),
        measure: duplicates,
    },
    Limit {
        name: "frames from the poll of `pace(shared)` to the clock",
        ceiling: at_most(7, 7),
        measure: frames::to_the_clock,
    },
];

const fn at_most(ceiling: usize, target: usize) -> Ceiling {
    Ceiling { ceiling, target }
}

const LONGEST_DUPLICATE: usize = 10;

/// A number, and the places that it counts.
pub(crate) struct Measure {
    value: usize,
    places: Vec<String>,
}

impl Measure {
    const fn of(value: usize) -> Self {
        Self {
            value,
            places: Vec::new(),
        }
    }

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
    for (name, limit, measure) in measured() {
        let Ceiling { ceiling, target } = limit;
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
    assert!(
        risen.is_empty(),
        "{}. To raise a ceiling, say in one line of DESIGN.md, section \"Raises\", what a user gets for it.",
        risen.join("; ")
    );
}

fn measured() -> Vec<(String, Ceiling, Measure)> {
    let mut all = Vec::new();
    for of in &CRATES {
        let lines = lines_of_code(&rust_files(&[of.folder]));
        let types = lines.iter().filter(|line| defines_a_type(line)).count();
        let name = of.name;
        all.push((
            format!("lines of code of {name}"),
            of.lines,
            Measure::of(lines.len()),
        ));
        all.push((
            format!("named types of {name} (struct, enum, trait, type)"),
            of.types,
            Measure::of(types),
        ));
    }
    for limit in &LIMITS {
        all.push((limit.name.to_owned(), limit.ceiling, (limit.measure)()));
    }
    all
}

/// The lines of code of all these files, without docs, comments, blank lines, and unit tests.
fn lines_of_code(files: &[(String, String)]) -> Vec<String> {
    let lines = files.iter().flat_map(|(_, text)| code_lines(text));
    let lines = lines.map(|(_, line)| line);
    lines.filter(|line| !line.trim().is_empty()).collect()
}

fn without_visibility(line: &str) -> &str {
    match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ").map_or("", |(_, rest)| rest),
        Some(rest) => rest.trim_start(),
        None => line,
    }
}

/// A `type` inside of an `impl` or a trait is none.
fn defines_a_type(line: &str) -> bool {
    let is_named = |line: &str, keyword: &str| {
        let name = without_visibility(line).strip_prefix(keyword);
        name.is_some_and(|name| name.starts_with(|first: char| first.is_ascii_uppercase()))
    };
    let is_anywhere = ["struct ", "enum ", "trait "]
        .iter()
        .any(|keyword| is_named(line.trim(), keyword));
    is_anywhere || is_named(line, "type ")
}

/// The pages of the project, without what is built or downloaded, and without the tables of measurements, which a program writes.
fn markdown() -> Measure {
    let mut value = 0;
    let mut folders = vec![Path::new(".").to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if entry.file_type().unwrap().is_dir() {
                if name != "target" && !name.starts_with('.') {
                    folders.push(entry.path());
                }
            } else if entry.path().extension().is_some_and(|end| end == "md")
                && !entry.path().ends_with("performance/tables.md")
            {
                value += usize::try_from(entry.metadata().unwrap().len()).unwrap();
            }
        }
    }
    assert!(value > 0, "there are pages");
    Measure::of(value)
}

fn folders_at_the_top() -> Measure {
    let entries = fs::read_dir(".").unwrap();
    let folders = entries.map(|entry| entry.unwrap()).filter(|entry| {
        let name = entry.file_name();
        let is_ours = name != "target" && !name.to_string_lossy().starts_with('.');
        is_ours && entry.file_type().unwrap().is_dir()
    });
    let names = folders.map(|folder| folder.file_name().to_string_lossy().into_owned());
    Measure::of_places(names.collect())
}

fn circular_imports() -> Measure {
    let circles = LIBRARIES.iter().flat_map(|source| {
        let folder = source.trim_end_matches("src");
        let mut files = rust_files(&[source]);
        for (path, _) in &mut files {
            *path = path.trim_start_matches(folder).to_owned();
        }
        imports::in_circles(&files)
    });
    Measure::of_places(circles.collect())
}

/// Runs of equal lines of code in two places, without the imports.
fn duplicates() -> Measure {
    let files = rust_files(&LIBRARIES);
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
    let text = "//! Docs\n\nuse a;\n    // why\nfn f() {\n    g(); // here\n}\n#[cfg(test)]\nfn h() {}\n\
                last();\n#[cfg(test)]\n// Of f.\n#[path = \"../c.rs\"]\npub(crate) mod tests {\n    more();\n}\n";
    let file = |text: &str| (String::new(), text.to_owned());
    let files = [
        file(text),
        file("#[cfg(all(test, loom))]\nmod d;"),
        file("other();"),
    ];
    let code = [
        "use a;",
        "fn f() {",
        "    g();        ",
        "}",
        "#[cfg(test)]",
        "fn h() {}",
        "last();",
        "other();",
    ];
    assert_eq!(lines_of_code(&files), code);
}

#[test]
fn a_definition_of_a_type_is_counted() {
    for line in [
        "struct A;",
        "    pub enum B {",
        "pub(crate) trait C {",
        "pub(in crate::a) struct D(u8);",
        "pub type E = A;",
    ] {
        assert!(defines_a_type(line), "{line}");
    }
    for line in [
        "impl Trait for A {",
        "    type E = A;",
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
