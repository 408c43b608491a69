//! The map of the house: the table in `DESIGN.md` that names the folders of `src/`, and what each uses.

use std::collections::BTreeSet;
use std::fs;
use std::sync::OnceLock;

const PAGE: &str = "DESIGN.md";
const HEADING: &str = "## The map";

/// The folders, each with those that it may import from, besides itself. A folder comes after all that it uses.
#[derive(Debug)]
pub(super) struct Map(Vec<(String, BTreeSet<String>)>);

impl Map {
    pub(super) fn of_this_house() -> &'static Self {
        static MAP: OnceLock<Map> = OnceLock::new();
        MAP.get_or_init(|| {
            let text = fs::read_to_string(PAGE).unwrap();
            Self::read(&text)
                .unwrap_or_else(|why| panic!("the map in {PAGE} cannot be read: {why}"))
        })
    }

    /// The rows are `` | `folder` | content | `used`, `used` | ``.
    fn read(page: &str) -> Result<Self, String> {
        let mut lines = page.lines();
        if !lines.any(|line| line == HEADING) {
            return Err(format!("it has no heading \"{HEADING}\""));
        }
        let section = lines.take_while(|line| !line.starts_with("## "));
        let mut map = Self(Vec::new());
        for row in section.filter(|line| line.starts_with('|')).skip(2) {
            let wrong = |what: String| Err(format!("{what}, in the row \"{row}\""));
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let &[folder, _, below] = &*cells else {
                return wrong("it has not three cells".to_owned());
            };
            let Some(folder) = name(folder) else {
                return wrong(format!("\"{folder}\" is no `folder`"));
            };
            if map.below(folder).is_some() {
                return wrong(format!("`{folder}` has two rows"));
            }
            let mut layers = BTreeSet::new();
            let cells = below.split(',').map(str::trim);
            for cell in cells.filter(|cell| !cell.is_empty()) {
                let Some(layer) = name(cell) else {
                    return wrong(format!("\"{cell}\" is no `folder`"));
                };
                if map.below(layer).is_none() {
                    return wrong(format!("`{layer}` has no row above"));
                }
                layers.insert(layer.to_owned());
            }
            map.0.push((folder.to_owned(), layers));
        }
        if map.0.is_empty() {
            return Err(format!("below \"{HEADING}\" there is no table"));
        }
        Ok(map)
    }

    /// What a folder may import from, besides itself. `None` if it is not on the map.
    pub(super) fn below(&self, folder: &str) -> Option<&BTreeSet<String>> {
        let row = self.0.iter().find(|(name, _)| name == folder);
        row.map(|(_, below)| below)
    }

    /// The folders that are missing on the map, and those that are on the map only.
    pub(super) fn differences(&self, folders: &BTreeSet<String>) -> Vec<String> {
        let on_the_map: BTreeSet<String> = self.0.iter().map(|(name, _)| name.clone()).collect();
        let missing = folders.difference(&on_the_map);
        let missing = missing.map(|folder| format!("src/{folder} is missing on the map in {PAGE}"));
        let gone = on_the_map.difference(folders);
        let gone = gone.map(|folder| format!("the map in {PAGE} has `{folder}`, and src has not"));
        missing.chain(gone).collect()
    }
}

/// The name between backticks.
fn name(cell: &str) -> Option<&str> {
    let name = cell.strip_prefix('`')?.strip_suffix('`')?;
    (!name.is_empty() && !name.contains('`')).then_some(name)
}

fn page(rows: &str) -> String {
    format!(
        "# Design\n\n| `a` | table | before |\n\n## The map\n\n| folder | content | uses |\n|---|---|---|\n{rows}\n## Next\n\n| `x` | | `y` |\n"
    )
}

fn read(rows: &str) -> Result<Map, String> {
    Map::read(&page(rows))
}

#[test]
fn a_map_is_read_up_to_the_next_heading() {
    let map = read("| `time` | clocks | |\n| `policy` | rules, pure | `time` |\n").unwrap();
    assert!(map.below("time").unwrap().is_empty());
    assert!(map.below("policy").unwrap().contains("time"));
    assert!(map.below("x").is_none());
}

#[test]
fn a_map_with_an_arrow_that_climbs_or_that_cannot_be_read_is_refused_with_the_reason() {
    let without = Map::read("# Design\n").unwrap_err();
    assert_eq!(without, "it has no heading \"## The map\"");
    for (rows, reason) in [
        ("", "below \"## The map\" there is no table"),
        ("| `time` | clocks |\n", "it has not three cells"),
        ("| time | | |\n", "\"time\" is no `folder`"),
        (
            "| `a` | | |\n| `b` | | `a`  `c` |\n",
            "\"`a`  `c`\" is no `folder`",
        ),
        ("| `a` | | |\n| `a` | | |\n", "`a` has two rows"),
        ("| `a` | | `b` |\n| `b` | | `a` |\n", "`b` has no row above"),
        ("| `a` | | `a` |\n", "`a` has no row above"),
    ] {
        let refusal = read(rows).unwrap_err();
        assert!(refusal.starts_with(reason), "{refusal}");
    }
}

#[test]
fn a_folder_that_is_missing_and_one_that_is_gone_are_found() {
    let map = read("| `time` | | |\n| `gone` | | |\n").unwrap();
    let folders = ["time", "new"].map(str::to_owned).into();
    assert_eq!(
        map.differences(&folders),
        [
            "src/new is missing on the map in DESIGN.md",
            "the map in DESIGN.md has `gone`, and src has not"
        ]
    );
}
