//! The settings: each has one name, which is its flag, its environment variable and its key in the file.

use std::sync::LazyLock;

/// Every setting with its default, its help text and its group. This example for users is where the binary has them from.
pub(super) const FILE: &str = include_str!("../../deploy/sidecar.toml");

/// The settings without a default. The file has examples for them.
const REQUIRED: [&str; 4] = ["listen", "upstream", "capacity", "cycle"];

/// The settings that stay as they were at the start.
const FIXED: [&str; 9] = [
    "listen",
    "upstream",
    "admin",
    "cores",
    "max-head-bytes",
    "max-fields",
    "max-streams",
    "log",
    "log-json",
];

/// A setting. `timeout` is the flag `--timeout`, the variable `PACELINE_TIMEOUT`, and the key `timeout` of the file.
#[derive(Debug)]
pub(super) struct Setting {
    pub(super) key: &'static str,
    /// The default or an example, as a file has it.
    pub(super) in_file: &'static str,
    pub(super) help: &'static str,
    /// The heading of its group in the help text.
    pub(super) heading: &'static str,
}

/// All settings, in the order of the file.
pub(super) static SETTINGS: LazyLock<Vec<Setting>> = LazyLock::new(|| {
    let (mut settings, mut heading) = (Vec::new(), "");
    let comments = FILE.lines().map(|line| line.strip_prefix("# "));
    for (comment, line) in comments.zip(FILE.lines().skip(1)) {
        match (comment, line.split_once(" = ")) {
            (Some(comment), _) if line.is_empty() => heading = comment,
            (Some(help), Some((key, in_file))) if !key.starts_with('#') => settings.push(Setting {
                key,
                in_file,
                help,
                heading,
            }),
            _ => {}
        }
    }
    settings
});

impl Setting {
    /// The setting with this key.
    pub(super) fn of(key: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| setting.key == key)
    }

    /// The name of its environment variable.
    pub(super) fn variable(&self) -> String {
        format!("{PREFIX}{}", self.key.to_uppercase().replace('-', "_"))
    }

    /// The default or an example, as a flag has it.
    pub(super) fn default(&self) -> &'static str {
        self.in_file.trim_matches(['"', '[', ']'])
    }

    /// A line of a file.
    pub(super) fn example(&self) -> String {
        format!("{} = {}", self.key, self.in_file)
    }

    pub(super) fn is_required(&self) -> bool {
        REQUIRED.contains(&self.key)
    }

    /// Whether a reload cannot change it.
    pub(super) fn is_fixed(&self) -> bool {
        FIXED.contains(&self.key)
    }
}

/// What the names of the environment variables begin with.
pub(super) const PREFIX: &str = "PACELINE_";

/// The known name that is most like a wrong one, if one is like it. What both begin with does not make them alike.
pub(super) fn nearest(wrong: &str, known: impl Iterator<Item = String>) -> Option<String> {
    let near = known.map(|name| (strsim::damerau_levenshtein(wrong, &name), name));
    let (distance, name) = near.min()?;
    let length = wrong.strip_prefix(PREFIX).unwrap_or(wrong).len();
    (distance <= length.div_ceil(3)).then_some(name)
}
