//! The pictures of the docs are what the code does. `scripts/pictures` draws them anew.

mod marbles;
mod paced;
mod policies;
mod turns;

use std::fmt::{Display, Write as _};
use std::fs;

// Each is readable on white and on black, and so is white text on it.
const BLUE: &str = "#2f7de1";
const PURPLE: &str = "#8e6ad8";
const RED: &str = "#e5484d";

const MIDDLE: &str = r#"text-anchor="middle""#;
const END: &str = r#"text-anchor="end""#;

/// Fails if the file is another picture. Writes it if the variable `DRAW` is set.
fn check(path: &str, picture: &str) {
    if std::env::var_os("DRAW").is_some() {
        return fs::write(path, picture).unwrap();
    }
    let is_drawn = fs::read_to_string(path).is_ok_and(|drawn| drawn == picture);
    let hint = "run scripts/pictures, and look at the picture";
    assert!(is_drawn, "{path} is not what the code does: {hint}");
}

/// A picture, one element a line: a blank line would end it in Markdown.
///
/// Text has the color of the page around it. A file of its own has no page: it follows the color scheme of the reader.
struct Picture {
    text: String,
}

impl Picture {
    fn new(width: usize, height: usize, label: &str) -> Self {
        let label = escape(label);
        let text = format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" aria-label="{label}" font-family="sans-serif" font-size="12" fill="currentColor" style="max-width:100%;height:auto">
<style>svg:root{{color:#1f2328}}@media(prefers-color-scheme:dark){{svg:root{{color:#e6edf3}}}}</style>
"#
        );
        Self { text }
    }

    fn add(&mut self, element: impl Display) {
        writeln!(self.text, "{element}").unwrap();
    }

    fn path(&mut self, attributes: &str, d: &str) {
        self.add(format_args!(r#"<path {attributes} d="{d}"/>"#));
    }

    fn write(&mut self, x: usize, y: usize, attributes: &str, text: &str) {
        let text = escape(text);
        self.add(format_args!(
            r#"<text x="{x}" y="{y}" {attributes}>{text}</text>"#
        ));
    }

    /// Writes `0 s` at `left`, and a second more at each step up to the last.
    fn write_seconds(&mut self, left: usize, step: usize, last: usize, y: usize) {
        for second in 0..=last {
            self.write(left + second * step, y, MIDDLE, &format!("{second} s"));
        }
    }

    fn done(mut self) -> String {
        self.add("</svg>");
        self.text
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('"', "&quot;")
}

#[test]
fn text_in_a_picture_may_have_any_character() {
    assert_eq!(escape(r#"a < b & "c""#), "a &lt; b &amp; &quot;c&quot;");
}
