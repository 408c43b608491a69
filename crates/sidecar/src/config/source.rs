//! Where a configuration comes from: flags over environment over a file over defaults.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Config;
use super::reading::Reading;
use super::settings::{PREFIX, SETTINGS, Setting, nearest};

/// The most bytes of a file.
const LONGEST: u64 = 1024 * 1024;

/// What was given at the start. The file is read again at each reload.
#[derive(Debug, Default)]
pub(crate) struct Source {
    /// By the key of the setting.
    pub(super) flags: BTreeMap<&'static str, String>,
    /// By the key of the setting.
    pub(super) variables: BTreeMap<&'static str, String>,
    pub(super) file: Option<PathBuf>,
    /// The contents at the last reload, or at the start; `None`: it could not be read. It is locked while a reload lasts.
    seen: Mutex<Option<String>>,
}

/// Everything that is wrong with a configuration: a line each, with the flag, the variable, or the place in the file.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub(crate) struct Errors(pub(crate) Vec<String>);

impl Errors {
    /// `value`, unless there are errors.
    ///
    /// A setting can have any characters. In an error those that are not visible are escaped, so that it stays one line.
    pub(super) fn or<T>(errors: impl IntoIterator<Item = String>, value: T) -> Result<T, Self> {
        let printable = |char: char| match char {
            char if char.is_control() => char.escape_default().to_string(),
            char => char.to_string(),
        };
        let lines = errors.into_iter().map(|line| without_passwords(&line));
        let lines: Vec<_> = lines
            .map(|line| line.chars().map(printable).collect())
            .collect();
        if lines.is_empty() {
            Ok(value)
        } else {
            Err(Self(lines))
        }
    }
}

/// Hides the user and the password of each URL.
pub(super) fn without_passwords(text: &str) -> String {
    let mut parts = text.split("://");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|char: char| char.is_whitespace() || char == '`');
        let (url, rest) = part.split_at(end.unwrap_or(part.len()));
        let hidden = url.rsplit_once('@').map(|(_, host)| format!("***@{host}"));
        shown.extend(["://", hidden.as_deref().unwrap_or(url), rest]);
    }
    shown
}

/// Where a value comes from, in the order in which errors are reported.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Origin {
    /// At this line and column, both counted from 1.
    File(usize, usize),
    Variable,
    Flag,
    Default,
}

impl Source {
    /// Of flags, by the key of their setting, and of all environment variables. With warnings.
    pub(super) fn new(
        flags: BTreeMap<&'static str, String>,
        variables: impl IntoIterator<Item = (String, String)>,
        file: Option<PathBuf>,
    ) -> Result<(Self, Vec<String>), Errors> {
        let (mut errors, mut warnings) = (Vec::new(), Vec::new());
        let mut of_settings = BTreeMap::new();
        for (name, value) in variables {
            if !name.starts_with(PREFIX) || name == CONFIG {
                continue;
            }
            if let Some(setting) = SETTINGS.iter().find(|each| each.variable() == name) {
                of_settings.insert(setting.key, value);
            } else if let Some(near) = nearest(&name, SETTINGS.iter().map(Setting::variable)) {
                errors.push(format!("{name}: no such variable; did you mean {near}?"));
            } else {
                // Kubernetes sets PACELINE_SERVICE_HOST and more for a service named paceline.
                warnings.push(format!("{name}: not a variable of the sidecar, ignored"));
            }
        }
        let source = Self {
            flags,
            variables: of_settings,
            file,
            seen: Mutex::default(),
        };
        Errors::or(errors, (source, warnings))
    }

    /// The contents of the last reload.
    pub(super) fn seen(&self) -> MutexGuard<'_, Option<String>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The contents of the file, or why it cannot be read.
    pub(super) fn text(&self) -> Result<String, String> {
        let Some(path) = &self.file else {
            return Ok(String::new());
        };
        read(path).map_err(|error| format!("{}: {error}", self.path()))
    }

    /// Reads and checks everything, with these contents of the file.
    pub(super) fn load<'t>(
        &'t self,
        text: &'t Result<String, String>,
    ) -> Result<(Config, Reading<'t>), Errors> {
        let mut reading = Reading::new(self, text);
        let config = Config::read(&mut reading);
        let errors = reading.errors();
        Errors::or(errors, (config, reading))
    }

    fn path(&self) -> String {
        let path = self.file.as_ref();
        path.map_or_else(String::new, |path| path.display().to_string())
    }

    /// The place of a value in front of an error about it.
    pub(super) fn named(&self, key: &str, origin: Origin) -> String {
        match origin {
            Origin::Default if self.file.is_none() => format!("{key}: "),
            Origin::Default => format!("{}: {key}: ", self.path()),
            Origin::File(..) => format!("{}{key}: ", self.at(origin)),
            Origin::Variable => format!("{}: ", variable(key)),
            Origin::Flag => format!("--{key}: "),
        }
    }

    /// A place of the file in front of an error that has no key.
    pub(super) fn at(&self, origin: Origin) -> String {
        match origin {
            Origin::File(line, column) => format!("{}:{line}:{column}: ", self.path()),
            _ => String::new(),
        }
    }

    /// The words for where a value comes from.
    pub(super) fn origin(&self, key: &str, origin: Origin) -> String {
        match origin {
            Origin::Default => "default".to_owned(),
            Origin::Flag => format!("flag --{key}"),
            Origin::Variable => format!("environment variable {}", variable(key)),
            Origin::File(line, _) => format!("{}:{line}", self.path()),
        }
    }
}

/// The text of a file, or why there is none. A device or a pipe may have no end.
pub(super) fn read(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    let file = File::open(path);
    let read = file.and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes));
    match read {
        Ok(read) if read as u64 > LONGEST => {
            Err("has more than 1 MiB: name another file".to_owned())
        }
        Ok(_) => String::from_utf8(bytes).map_err(|error| format!("cannot be read: {error}")),
        Err(error) => Err(format!("cannot be read: {error}")),
    }
}

/// The variable of a setting.
fn variable(key: &str) -> String {
    Setting::of(key).map(Setting::variable).unwrap_or_default()
}

/// The variable that names the file.
pub(super) const CONFIG: &str = "PACELINE_CONFIG";
