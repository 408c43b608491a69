//! The timelines of the stream adapters, as marbles.

use std::collections::BTreeSet;
use std::fs;

use testkit::marble::{Row, TICK};

use super::{BLUE, MIDDLE, PURPLE, Picture, RED, check};
use crate::source::rust_files;

/// Two rows of a doc comment, which are its doctest.
struct Timeline {
    method: String,
    caption: String,
    input: String,
    output: String,
}

/// The timelines in a file, in their order.
fn timelines(source: &str) -> Vec<Timeline> {
    let between = |line: &str, before, after| -> Option<String> {
        let (_, rest) = line.split_once(before)?;
        rest.split_once(after).map(|(found, _)| found.to_owned())
    };
    let (mut method, mut caption, mut input) = (String::new(), String::new(), String::new());
    let mut found = Vec::new();
    for line in source.lines() {
        let Some(line) = line.trim_start().strip_prefix("/// ") else {
            continue;
        };
        if let Some(name) = between(line, "Stream for the [`", "`]") {
            method = name;
        } else if let Some(text) = line.strip_prefix("// ") {
            text.clone_into(&mut caption);
        } else if let Some(row) = between(line, "let input  = \"", "\"") {
            input = row;
        } else if let Some(output) = between(line, "let output = \"", "\"") {
            found.push(Timeline {
                method: method.clone(),
                caption: caption.clone(),
                input: input.clone(),
                output,
            });
        }
    }
    found
}

#[test]
fn every_timeline_has_a_picture_of_its_rows() {
    let mut paths = BTreeSet::new();
    for (file, source) in rust_files(&["src/stream", "src/sink"]) {
        let timelines = timelines(&source);
        let runs = source.matches("marble::check(").count();
        let runs = runs + source.matches("marble::try_check(").count();
        assert_eq!(timelines.len(), runs, "timelines of {file}");
        for timeline in timelines {
            let name = format!("marbles/{}.svg", timeline.method);
            let include = format!("#[doc = include_str!(\"{name}\")]");
            assert_eq!(source.matches(&include).count(), 1, "{file} has {include}");
            let path = format!("src/stream/{name}");
            check(&path, &timeline.draw());
            assert!(paths.insert(path), "{name} is drawn twice");
        }
    }
    let files = fs::read_dir("src/stream/marbles").unwrap();
    let files = files.map(|file| file.unwrap().path().to_string_lossy().into_owned());
    let files: BTreeSet<_> = files.collect();
    assert_eq!(files, paths, "pictures of timelines that are no more");
}

#[test]
fn a_timeline_is_read_with_its_caption_and_its_method() {
    let source = "/// Stream for the [`pace`](x) method.\n/// // slow\n    /// let input  = \"a b |\";\n/// let output = \"a - b |\";";
    let [found] = &timelines(source)[..] else {
        panic!("one timeline")
    };
    let texts = [&found.method, &found.caption, &found.input, &found.output];
    assert_eq!(texts, ["pace", "slow", "a b |", "a - b |"]);
}

const LEFT: usize = 60;
const STEP: usize = 36;
/// Of an item. Items of one instant are one below the other.
const HEIGHT: usize = 25;
/// Above and below the items of a row.
const MARGIN: usize = 4;
const CAPTION: usize = 26;

impl Timeline {
    fn draw(&self) -> String {
        let [input, output] = [&self.input, &self.output].map(|row| Marbles::new(row));
        let caption = format!("{}: {}", self.method, self.caption);
        let ticks = input.ticks().max(output.ticks());
        let width = (LEFT + ticks * STEP).max(caption.len() * 7);
        let middle = input.height() + 8;
        let below = middle + CAPTION + 8;
        let label = format!("{caption}. Input {}, output {}.", self.input, self.output);

        let mut picture = Picture::new(width, below + output.height(), &label);
        input.draw(&mut picture, "input", 0);
        picture.add(format_args!(
            r#"<rect y="{middle}" width="{width}" height="{CAPTION}" rx="5" fill-opacity=".1"/>"#
        ));
        picture.write(width / 2, middle + 17, MIDDLE, &caption);
        output.draw(&mut picture, "output", below);
        picture.done()
    }
}

/// A row: the items of each tick, and the tick of the end.
struct Marbles {
    items: Vec<Vec<String>>,
    end: Option<usize>,
}

impl Marbles {
    fn new(row: &str) -> Self {
        let row = Row::new(row);
        let (mut items, mut end) = (Vec::new(), None);
        for (at, mark) in row.things() {
            let tick = usize::try_from(at.as_nanos() / TICK.as_nanos()).unwrap();
            items.resize(items.len().max(tick + 1), Vec::new());
            match mark {
                "|" => end = Some(tick),
                mark => items[tick].push(mark.to_owned()),
            }
        }
        Self { items, end }
    }

    fn ticks(&self) -> usize {
        self.items.len()
    }

    fn height(&self) -> usize {
        let most = self.items.iter().map(Vec::len).max();
        HEIGHT * most.unwrap_or_default().max(1) + 2 * MARGIN
    }

    fn draw(&self, picture: &mut Picture, label: &str, top: usize) {
        let x = |tick| LEFT + tick * STEP + STEP / 2;
        let y = |place| top + MARGIN + place * HEIGHT + HEIGHT / 2;
        picture.write(0, y(0) + 4, "", label);

        let last = self.end.map_or(x(self.ticks()), x);
        let ticks = (0..self.ticks()).map(|tick| format!("M{} {}v8", x(tick), y(0) - 4));
        let axis = format!("M{LEFT} {}H{last}", y(0)) + &ticks.collect::<String>();
        let line = r#"stroke="currentColor" stroke-opacity=".5""#;
        picture.path(line, &axis);
        if let Some(end) = self.end {
            let height = HEIGHT * self.items[end].len().max(1) + 2 * MARGIN;
            let line = r#"stroke="currentColor" stroke-width="3""#;
            picture.path(line, &format!("M{} {top}v{height}", x(end)));
        }
        picture.add(r#"<g text-anchor="middle">"#);
        for (tick, items) in self.items.iter().enumerate() {
            for (place, item) in items.iter().enumerate() {
                draw_item(picture, item, x(tick), y(place));
            }
        }
        picture.add("</g>");
    }
}

/// A circle, or the box of a group. Letters and digits differ, since they are keys in some timelines.
fn draw_item(picture: &mut Picture, item: &str, x: usize, y: usize) {
    let text = item.trim_matches(['[', ']']);
    let color = match text {
        "X" => RED,
        text if text.starts_with(char::is_lowercase) => BLUE,
        _ => PURPLE,
    };
    let width = if item.starts_with('[') {
        8 * text.len() + 10
    } else {
        22
    };
    let radius = if item.starts_with('[') { 5 } else { 11 };
    picture.add(format_args!(
        r#"<rect x="{}" y="{}" width="{width}" height="22" rx="{radius}" fill="{color}"/>"#,
        x - width / 2,
        y - 11
    ));
    picture.write(x, y + 4, r##"fill="#fff""##, text);
}
