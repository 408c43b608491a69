//! Values as they were given: read one by one, with what is wrong and where.

use std::collections::BTreeMap;
use std::iter;
use std::mem;
use std::ops::Range;

use paceline::fair::ClientTerms;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::settings::{SETTINGS, Setting, nearest};
use super::source::{Origin, Source};
use super::value::{Form, Shown, Value};

/// The table with the terms of clients.
pub(super) const CLIENTS: &str = "clients";

/// What a client may have.
const TERMS: [&str; 3] = ["weight", "most-lent", "most-borrowed"];

/// A configuration that is being read.
#[derive(Debug)]
pub(super) struct Reading<'t> {
    source: &'t Source,
    text: Text<'t>,
    /// The entries of the file that were not read yet.
    table: DeTable<'t>,
    /// Whether the file could be read. What a broken file would have set is not missing, and not checked.
    is_whole: bool,
    /// By the key of the setting, or `clients.` and the id of a client.
    origins: BTreeMap<String, Origin>,
    /// By the key of the setting.
    pub(super) shown: BTreeMap<&'static str, Shown>,
    pub(super) warnings: Vec<String>,
    errors: Vec<(Origin, String)>,
}

impl<'t> Reading<'t> {
    /// With these contents of the file.
    pub(super) fn new(source: &'t Source, text: &'t Result<String, String>) -> Self {
        let parsed = text.as_deref().map(DeTable::parse);
        let text = Text::new(text.as_deref().unwrap_or_default());
        let mut reading = Self {
            source,
            text,
            table: DeTable::new(),
            is_whole: false,
            origins: BTreeMap::new(),
            shown: BTreeMap::new(),
            warnings: Vec::new(),
            errors: Vec::new(),
        };
        match parsed {
            Ok(Ok(table)) => {
                reading.table = table.into_inner();
                reading.is_whole = true;
            }
            Ok(Err(error)) => reading.syntax(&error),
            Err(error) => reading.errors.push((Origin::File(0, 0), error.clone())),
        }
        reading
    }

    /// Reports that the file is no TOML.
    fn syntax(&mut self, error: &toml::de::Error) {
        let (line, column) = self.text.place(error.span());
        let words = self.text.text.lines().nth(line - 1).unwrap_or_default();
        let key = words.split('=').next().unwrap_or_default();
        let right = match (error.message(), Setting::of(key.trim())) {
            ("duplicate key", _) => {
                let key = error.span().and_then(|span| self.text.text.get(span));
                format!(" `{}`: remove one of them", key.unwrap_or_default())
            }
            (_, Some(setting)) => format!("; write it as in {}", setting.example()),
            _ => String::new(),
        };
        let origin = Origin::File(line, column);
        let (at, words) = (self.source.at(origin), error.message().replace('\n', " "));
        self.errors.push((origin, format!("{at}{words}{right}")));
    }

    /// The value of a setting. What is wrong with it is reported, and what is below holds.
    pub(super) fn value<T: Value>(&mut self, key: &'static str) -> T {
        let setting = Setting::of(key).expect("it has a line in the file of all settings");
        let mut value = T::read(setting.default()).expect("its default is right");
        let in_file = self.table.remove(key);
        let in_file = in_file.map(|given| self.in_file(&given, T::FORM, setting.in_file));
        let variable = self.source.variables.get(key);
        let variable = variable.map(|text| (Origin::Variable, Ok(text.clone())));
        let flag = self.source.flags.get(key);
        let flag = flag.map(|text| (Origin::Flag, Ok(text.clone())));
        for (origin, text) in [in_file, variable, flag].into_iter().flatten() {
            value = self.parsed(key, origin, text).unwrap_or(value);
        }
        if setting.is_required() && self.is_whole && self.origin(key) == Origin::Default {
            let file = match &self.source.file {
                Some(path) => path.display().to_string(),
                None => "a file for --config".to_owned(),
            };
            let (variable, example) = (setting.variable(), setting.example());
            let error = format!("{key}: missing; give --{key}, {variable}, or {example} in {file}");
            self.errors.push((Origin::Default, error));
        }
        self.shown.insert(key, Shown::of(&value));
        value
    }

    /// The text of a value of the file, and its place.
    fn in_file(
        &self,
        value: &Spanned<DeValue<'_>>,
        form: Form,
        example: &str,
    ) -> (Origin, Result<String, String>) {
        let text = text_of(value.get_ref(), form);
        let text = text.ok_or_else(|| wrong_type(value, &form.expected(example)));
        (self.place(value.span()), text)
    }

    /// Reads a value from its text, or reports what is wrong.
    fn parsed<T: Value>(
        &mut self,
        key: &str,
        origin: Origin,
        text: Result<String, String>,
    ) -> Option<T> {
        self.origins.insert(key.to_owned(), origin);
        let value = text.and_then(|text| T::read(&text));
        value.map_err(|error| self.error(key, origin, &error)).ok()
    }

    /// The tables `[clients.ID]`.
    pub(super) fn terms(&mut self) -> BTreeMap<String, ClientTerms> {
        let Some(clients) = self.table.remove(CLIENTS) else {
            return BTreeMap::new();
        };
        let clients = self.table_of(CLIENTS, clients, "tables such as [clients.shop]");
        let clients = clients.into_iter().map(|(id, value)| {
            let key = format!("{CLIENTS}.{}", id.get_ref());
            let origin = self.place(id.span());
            let expected = "a table such as { weight = 3, most-lent = 5 }";
            let mut table = self.table_of(&key, value, expected);
            self.origins.insert(key.clone(), origin);
            let mut number = |name: &str| {
                let (origin, text) = self.in_file(&table.remove(name)?, Form::Number, "5");
                self.parsed::<u32>(&format!("{key}.{name}"), origin, text)
            };
            let [weight, most_lent, most_borrowed] = TERMS.map(&mut number);
            let all = "a client has weight, most-lent and most-borrowed";
            self.unknown(table, &TERMS, all);
            let id = id.into_inner().into_owned();
            if id.is_empty() || id.len() > 64 || !id.bytes().all(|byte| byte.is_ascii_graphic()) {
                let right = "an id has 1 to 64 visible ASCII characters";
                self.wrong(&[&key], &format!("no client has this id: {right}"));
            }
            let weighed = ClientTerms::new().try_with_weight(weight.unwrap_or(1));
            self.check(&[&key], weighed.as_ref());
            let mut terms = weighed.unwrap_or_default().with_own_share(true);
            if let Some(permits) = most_lent {
                terms = terms.with_most_lent(permits);
            }
            if let Some(permits) = most_borrowed {
                terms = terms.with_most_borrowed(permits);
            }
            (id, terms)
        });
        clients.collect()
    }

    /// A table of the file, or an empty one instead of another value.
    fn table_of(&mut self, key: &str, value: Spanned<DeValue<'t>>, expected: &str) -> DeTable<'t> {
        let place = self.place(value.span());
        if !value.get_ref().is_table() {
            self.error(key, place, &wrong_type(&value, expected));
        }
        match value.into_inner() {
            DeValue::Table(table) => table,
            _ => DeTable::new(),
        }
    }

    /// Reports the keys that are left in a table.
    fn unknown(&mut self, table: DeTable<'_>, known: &[&str], all: &str) {
        for (key, _) in table {
            let (place, name) = (self.place(key.span()), key.get_ref());
            // The name of a field in a program, or of a variable.
            let alike = name.to_lowercase().replace('_', "-");
            let known = known.iter().copied().map(str::to_owned);
            let hint = match nearest(&alike, known) {
                Some(near) => format!("; did you mean `{near}`?"),
                None => format!("; {all}"),
            };
            let at = self.source.at(place);
            let error = format!("{at}unknown key `{name}`{hint}");
            self.errors.push((place, error));
        }
    }

    fn place(&self, span: Range<usize>) -> Origin {
        let (line, column) = self.text.place(Some(span));
        Origin::File(line, column)
    }

    /// Where the value of a setting comes from, or of a client's terms.
    pub(super) fn origin(&self, key: &str) -> Origin {
        self.origins.get(key).copied().unwrap_or(Origin::Default)
    }

    /// The first of these keys that is given somewhere: its place, and the start of an error about it.
    pub(super) fn blamed(&self, keys: &[&str]) -> (Origin, String) {
        let is_given = |key: &&&str| self.origin(key) != Origin::Default;
        let key = keys.iter().find(is_given).unwrap_or(&keys[0]);
        let origin = self.origin(key);
        (origin, self.source.named(key, origin))
    }

    /// Reports what is wrong with the values of these keys, unless one could not be read.
    pub(super) fn wrong(&mut self, keys: &[&str], error: &str) {
        let (origin, start) = self.blamed(keys);
        let mut errors = self.errors.iter();
        let is_known = errors.any(|(_, error)| error.starts_with(&start));
        if self.is_whole && !is_known {
            self.errors.push((origin, start + error));
        }
    }

    /// Reports an error of the library about the values of these keys.
    pub(super) fn check<T, E: ToString>(&mut self, keys: &[&str], result: Result<T, E>) {
        if let Err(error) = result {
            self.wrong(keys, &error.to_string());
        }
    }

    /// Reports what is right and maybe not meant.
    pub(super) fn warn(&mut self, keys: &[&str], warning: &str) {
        let (_, start) = self.blamed(keys);
        self.warnings.push(start + warning);
    }

    fn error(&mut self, key: &str, origin: Origin, error: &str) {
        let start = self.source.named(key, origin);
        self.errors.push((origin, start + error));
    }

    /// Everything that is wrong, after all settings were read: in the order of the file, then variables and flags.
    pub(super) fn errors(&mut self) -> impl Iterator<Item = String> + use<> {
        let known = SETTINGS.iter().map(|setting| setting.key).chain([CLIENTS]);
        let known: Vec<_> = known.collect();
        let table = mem::take(&mut self.table);
        self.unknown(table, &known, "--help names all of them");
        let mut errors = mem::take(&mut self.errors);
        errors.sort_by_key(|(origin, _)| *origin);
        errors.into_iter().map(|(_, error)| error)
    }
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

/// The error for a value of another type. A short one is named.
fn wrong_type(value: &Spanned<DeValue<'_>>, expected: &str) -> String {
    let got = match value.get_ref() {
        DeValue::String(text) => format!("the string `{text}`"),
        DeValue::Integer(number) => format!("the number {number}"),
        DeValue::Float(number) => format!("the number {number}"),
        DeValue::Boolean(switch) => format!("{switch}"),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    };
    format!("expected {expected}, got {got}")
}

/// The text of a file, and where its lines begin.
#[derive(Debug)]
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

    /// The line and the column where a span begins, both counted from 1.
    fn place(&self, span: Option<Range<usize>>) -> (usize, usize) {
        let start = span.map_or(self.text.len(), |span| span.start);
        let line = self.lines.partition_point(|begin| *begin <= start);
        let before = self.text.get(self.lines[line - 1]..start);
        // A file can begin with a byte order mark, which no editor counts.
        let before = before.unwrap_or_default().trim_start_matches('\u{feff}');
        (line, before.chars().count() + 1)
    }
}
