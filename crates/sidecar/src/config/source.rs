//! Where a configuration comes from: flags over environment over a file over defaults.

use std::collections::BTreeMap;
use std::fs;
use std::iter;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Terms;
use super::check::{check, warn};
use super::settings::{Draft, PREFIX, Setting, nearest, setting, settings};
use super::value::{Form, Value as _};

/// What was given at the start. The file is read again at each reload.
#[derive(Debug, Default)]
pub(crate) struct Source {
    /// By the key of the setting.
    pub(super) flags: BTreeMap<&'static str, String>,
    /// By the key of the setting.
    pub(super) variables: BTreeMap<&'static str, String>,
    pub(super) file: Option<PathBuf>,
    /// The contents at the last reload, or at the start; `None`: it could not be read. It is locked while a reload lasts.
    pub(super) seen: Mutex<Option<String>>,
}

/// Everything that is wrong with a configuration: a line each, with the flag, the variable, or the place in the file.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub(crate) struct Errors(pub(crate) Vec<String>);

impl Errors {
    /// A value can have any characters. In an error those that are not visible are escaped, so that it stays one line.
    fn new(lines: &[String]) -> Self {
        let printable = |char: char| match char {
            char if char.is_control() => char.escape_default().to_string(),
            char => char.to_string(),
        };
        let lines = lines.iter().map(|line| without_passwords(line));
        Self(
            lines
                .map(|line| line.chars().map(printable).collect())
                .collect(),
        )
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

/// Where a value comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Origin {
    Default,
    /// At this place.
    File(Place),
    Variable,
    Flag,
}

/// A place in the file, both counted from 1.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Place {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// The settings read so far, and their faults.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) draft: Draft,
    /// By the key of the setting, or `clients.` and the id of a client.
    origins: BTreeMap<String, Origin>,
    pub(super) warnings: Vec<String>,
    errors: Vec<String>,
}

impl Source {
    /// Of flags, by the key of their setting, and of all environment variables.
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
            if let Some(setting) = settings().find(|setting| setting.variable() == name) {
                of_settings.insert(setting.key, value);
            } else if let Some(near) = nearest(&name, settings().map(Setting::variable)) {
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
        if errors.is_empty() {
            Ok((source, warnings))
        } else {
            Err(Errors::new(&errors))
        }
    }

    /// The contents of the file, or why it cannot be read.
    pub(super) fn text(&self) -> Result<String, String> {
        let Some(path) = &self.file else {
            return Ok(String::new());
        };
        fs::read_to_string(path)
            .map_err(|error| format!("{}: cannot be read: {error}", path.display()))
    }

    /// Reads and checks everything, with these contents of the file.
    pub(super) fn load_text(&self, text: &Result<String, String>) -> Result<Reading, Errors> {
        let mut reading = Reading {
            draft: Draft::new(),
            origins: BTreeMap::new(),
            warnings: Vec::new(),
            errors: Vec::new(),
        };
        let table = text.as_deref().map_err(String::clone).and_then(|text| {
            let table = DeTable::parse(text).map_err(|error| {
                let at = Text::new(text).place(error.span());
                let line = text.lines().nth(at.line - 1).unwrap_or_default();
                let key = line.split('=').next().unwrap_or_default();
                let right = match (error.message(), setting(key.trim())) {
                    ("duplicate key", _) => {
                        let key = error.span().and_then(|span| text.get(span));
                        format!(" `{}`: remove one of them", key.unwrap_or_default())
                    }
                    (_, Some(setting)) => format!("; write it as in {}", example(setting)),
                    _ => String::new(),
                };
                let words = error.message().replace('\n', " ");
                format!("{}: {words}{right}", self.at(at))
            })?;
            Ok((text, table))
        });
        // What a file sets is not missing if the file cannot be read.
        let is_whole = table.is_ok();
        match table {
            Ok((text, table)) => self.read_file(&Text::new(text), table.get_ref(), &mut reading),
            Err(error) => reading.errors.push(error),
        }
        for (origin, given) in [
            (Origin::Variable, &self.variables),
            (Origin::Flag, &self.flags),
        ] {
            for (key, text) in given {
                if let Some(setting) = setting(key) {
                    self.set(&mut reading, setting, text, origin);
                }
            }
        }
        if is_whole {
            self.find_missing(&mut reading);
            self.check(&mut reading);
        }
        if reading.errors.is_empty() {
            let mut warnings = Vec::new();
            warn(&reading.draft, |keys, warning| {
                warnings.push(self.blamed(&reading, keys, &warning));
            });
            reading.warnings = warnings;
            Ok(reading)
        } else {
            Err(Errors::new(&reading.errors))
        }
    }

    /// Takes a value, or reports a fault in its text.
    fn set(&self, reading: &mut Reading, setting: &Setting, text: &str, origin: Origin) {
        reading.origins.insert(setting.key.to_owned(), origin);
        if let Err(error) = (setting.field)(&mut reading.draft).set(text) {
            let error = self.named(setting.key, origin, &error);
            reading.errors.push(error);
        }
    }

    fn find_missing(&self, reading: &mut Reading) {
        for setting in settings().filter(|setting| setting.is_required) {
            let key = setting.key;
            if reading.origins.contains_key(key) {
                continue;
            }
            let (variable, example) = (setting.variable(), example(setting));
            let file = match &self.file {
                Some(path) => format!("{example} in {}", path.display()),
                None => format!("{example} in a file for --config"),
            };
            let error = format!("{key}: missing; give --{key}, {variable}, or {file}");
            reading.errors.push(error);
        }
    }

    fn check(&self, reading: &mut Reading) {
        let mut errors = Vec::new();
        check(&reading.draft, |keys, error| {
            // A value that could not be read is not checked.
            let start = self.blamed(reading, keys, "");
            if !reading.errors.iter().any(|error| error.starts_with(&start)) {
                errors.push(start + &error);
            }
        });
        reading.errors.append(&mut errors);
    }

    /// The words of an error about these keys, with the place of the first that is given.
    fn blamed(&self, reading: &Reading, keys: &[&str], error: &str) -> String {
        let is_given = |key: &&&str| reading.origin(key) != Origin::Default;
        let key = keys.iter().find(is_given).unwrap_or(&keys[0]);
        self.named(key, reading.origin(key), error)
    }

    /// The words of an error, with the place of its value in front.
    pub(super) fn named(&self, key: &str, origin: Origin, error: &str) -> String {
        match origin {
            Origin::Default => match &self.file {
                Some(path) => format!("{}: {key}: {error}", path.display()),
                None => format!("{key}: {error}"),
            },
            Origin::File(place) => format!("{}: {key}: {error}", self.at(place)),
            Origin::Variable => {
                let variable = setting(key).map(Setting::variable).unwrap_or_default();
                format!("{variable}: {error}")
            }
            Origin::Flag => format!("--{key}: {error}"),
        }
    }

    fn at(&self, Place { line, column }: Place) -> String {
        let path = self.file.as_deref().unwrap_or(Path::new(""));
        format!("{}:{line}:{column}", path.display())
    }

    /// The words for where a value comes from.
    pub(super) fn origin(&self, key: &str, origin: Origin) -> String {
        match origin {
            Origin::Default => "default".to_owned(),
            Origin::Flag => format!("flag --{key}"),
            Origin::Variable => {
                let variable = setting(key).map(Setting::variable).unwrap_or_default();
                format!("environment variable {variable}")
            }
            Origin::File(Place { line, .. }) => {
                let path = self.file.as_deref().unwrap_or(Path::new(""));
                format!("{}:{line}", path.display())
            }
        }
    }

    fn read_file(&self, text: &Text<'_>, table: &DeTable<'_>, reading: &mut Reading) {
        for (key, value) in in_order(table) {
            let at_key = text.place(Some(key.span()));
            let at_value = Origin::File(text.place(Some(value.span())));
            let name = key.get_ref().as_ref();
            if name == CLIENTS {
                self.read_clients(text, value, reading);
            } else if let Some(setting) = setting(name) {
                let form = (setting.field)(&mut reading.draft).form();
                if let Some(value) = text_of(value.get_ref(), form) {
                    self.set(reading, setting, &value, at_value);
                } else {
                    let expected = form.expected(&Draft::new().show(setting));
                    let got = kind(value.get_ref());
                    let error = format!("expected {expected}, got {got}");
                    reading.origins.insert(name.to_owned(), at_value);
                    reading.errors.push(self.named(name, at_value, &error));
                }
            } else {
                let known = settings().map(|setting| setting.key).chain([CLIENTS]);
                self.unknown(reading, at_key, name, known, "--help names all of them");
            }
        }
    }

    /// Reads the tables `[clients.ID]`.
    fn read_clients(&self, text: &Text<'_>, value: &Spanned<DeValue<'_>>, reading: &mut Reading) {
        let wrong_type = |key: &str, value: &Spanned<DeValue<'_>>, expected: &str| {
            let at_value = Origin::File(text.place(Some(value.span())));
            let got = kind(value.get_ref());
            self.named(key, at_value, &format!("expected {expected}, got {got}"))
        };
        let Some(clients) = value.get_ref().as_table() else {
            let expected = "tables such as [clients.shop]";
            reading.errors.push(wrong_type(CLIENTS, value, expected));
            return;
        };
        for (id, value) in in_order(clients) {
            let key = format!("{CLIENTS}.{}", id.get_ref());
            let origin = Origin::File(text.place(Some(id.span())));
            reading.origins.insert(key.clone(), origin);
            let Some(table) = value.get_ref().as_table() else {
                let expected = "a table such as { weight = 3, most-lent = 5 }";
                reading.errors.push(wrong_type(&key, value, expected));
                continue;
            };
            let mut terms = Terms {
                weight: 1,
                most_lent: None,
                most_borrowed: None,
            };
            for (name, value) in in_order(table) {
                let at_key = text.place(Some(name.span()));
                let at_value = Origin::File(text.place(Some(value.span())));
                let name = name.get_ref().as_ref();
                if !TERMS.contains(&name) {
                    let all = "a client has weight, most-lent and most-borrowed";
                    self.unknown(reading, at_key, name, TERMS, all);
                    continue;
                }
                let name_of_all = format!("{key}.{name}");
                let Some(number) = text_of(value.get_ref(), Form::Number) else {
                    let expected = "a whole number such as 5";
                    reading
                        .errors
                        .push(wrong_type(&name_of_all, value, expected));
                    continue;
                };
                match (u32::read(&number), name) {
                    (Ok(number), "weight") => terms.weight = number,
                    (Ok(number), "most-lent") => terms.most_lent = Some(number),
                    (Ok(number), _) => terms.most_borrowed = Some(number),
                    (Err(error), _) => {
                        let error = self.named(&name_of_all, at_value, &error);
                        reading.errors.push(error);
                    }
                }
            }
            let id = id.get_ref().clone().into_owned();
            reading.draft.config.terms.insert(id, terms);
        }
    }

    fn unknown(
        &self,
        reading: &mut Reading,
        place: Place,
        name: &str,
        known: impl IntoIterator<Item = &'static str>,
        all: &str,
    ) {
        // The name of a field in a program, or of a variable.
        let alike = name.to_lowercase().replace('_', "-");
        let known = known.into_iter().map(str::to_owned);
        let hint = match nearest(&alike, known) {
            Some(near) => format!("; did you mean `{near}`?"),
            None => format!("; {all}"),
        };
        let at = self.at(place);
        reading
            .errors
            .push(format!("{at}: unknown key `{name}`{hint}"));
    }
}

impl Reading {
    /// Where the value of a setting comes from, or of a client's terms.
    pub(super) fn origin(&self, key: &str) -> Origin {
        self.origins.get(key).copied().unwrap_or(Origin::Default)
    }
}

/// The variable that names the file.
pub(super) const CONFIG: &str = "PACELINE_CONFIG";

/// The table with the terms of clients.
pub(super) const CLIENTS: &str = "clients";

/// What a client may have.
const TERMS: [&str; 3] = ["weight", "most-lent", "most-borrowed"];

type Entry<'t, 'i> = (
    &'t Spanned<std::borrow::Cow<'i, str>>,
    &'t Spanned<DeValue<'i>>,
);

/// The entries of a table as they stand in the file.
fn in_order<'t, 'i>(table: &'t DeTable<'i>) -> Vec<Entry<'t, 'i>> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

/// The text of a value, if it has one of the types that the form allows.
fn text_of(value: &DeValue<'_>, form: Form) -> Option<String> {
    match (value, form) {
        (DeValue::String(text), Form::Text | Form::NumberOrText) => Some(text.to_string()),
        (DeValue::Integer(number), Form::Number | Form::NumberOrText) => {
            let parsed = i128::from_str_radix(number.as_str(), number.radix());
            Some(parsed.map_or_else(|_| number.to_string(), |number| number.to_string()))
        }
        (DeValue::Boolean(switch), Form::Switch) => Some(switch.to_string()),
        (DeValue::Array(items), Form::List) => {
            let items = items.iter().map(|item| item.get_ref().as_str());
            items
                .collect::<Option<Vec<_>>>()
                .map(|items| items.join(","))
        }
        _ => None,
    }
}

/// The words for the type of a value, with the value if it is short.
fn kind(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("the string `{text}`"),
        DeValue::Integer(number) => format!("the number {number}"),
        DeValue::Float(number) => format!("the number {number}"),
        DeValue::Boolean(switch) => format!("{switch}"),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// The line of a file that gives a setting its default, or an example.
fn example(setting: &Setting) -> String {
    let mut draft = Draft::new();
    let form = (setting.field)(&mut draft).form();
    format!("{} = {}", setting.key, form.in_file(&draft.show(setting)))
}

/// The text of a file, and where its lines begin.
struct Text<'t> {
    text: &'t str,
    lines: Vec<usize>,
}

impl<'t> Text<'t> {
    fn new(text: &'t str) -> Self {
        let ends = text.match_indices('\n').map(|(end, _)| end + 1);
        let lines = iter::once(0).chain(ends).collect();
        Self { text, lines }
    }

    /// Where a span begins.
    fn place(&self, span: Option<Range<usize>>) -> Place {
        let start = span.map_or(self.text.len(), |span| span.start);
        let line = self.lines.partition_point(|begin| *begin <= start);
        let before = self.text.get(self.lines[line - 1]..start);
        // A file can begin with a byte order mark, which no editor counts.
        let before = before.unwrap_or_default().trim_start_matches('\u{feff}');
        Place {
            line,
            column: before.chars().count() + 1,
        }
    }
}
