//! What was measured: one long list, which the report sorts into tables.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::machine::Machine;

/// One number, or why there is none.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Figure {
    pub(crate) section: String,
    /// What a table of its own is for; may be empty.
    pub(crate) part: String,
    /// What was counted, with its unit: a table has one.
    pub(crate) metric: String,
    /// The contender: a row.
    pub(crate) contender: String,
    /// Under which circumstances: a column.
    pub(crate) case: String,
    /// Where the case lies on the axis of a plot, if it does.
    pub(crate) x: Option<f64>,
    pub(crate) value: Value,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Value {
    Is(f64),
    /// It could not be measured, for this reason.
    Not(String),
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        // JSON has no word for it.
        if value.is_finite() {
            Self::Is(value)
        } else {
            Self::Not("nothing was measured".to_owned())
        }
    }
}

impl<T: Into<Self>> From<Result<T, String>> for Value {
    fn from(result: Result<T, String>) -> Self {
        result.map_or_else(Self::Not, Into::into)
    }
}

/// All figures of one machine.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Figures {
    pub(crate) machine: Machine,
    /// How long each section took, in seconds.
    pub(crate) took: Vec<(String, f64)>,
    #[serde(rename = "figures")]
    all: Vec<Figure>,
}

impl Figures {
    pub(crate) fn load(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_str(&fs::read_to_string(path)?)?)
    }

    /// A line for each figure, so that a new measurement can be compared with the old one.
    pub(crate) fn save(&self, path: &Path) -> io::Result<()> {
        let lines: Result<Vec<String>, _> = self.all.iter().map(serde_json::to_string).collect();
        let text = format!(
            "{{\n\"machine\": {},\n\"took\": {},\n\"figures\": [\n{}\n]\n}}\n",
            serde_json::to_string(&self.machine)?,
            serde_json::to_string(&self.took)?,
            lines?.join(",\n")
        );
        fs::write(path, text)
    }

    /// Puts a section that was measured anew into the place of the old one.
    pub(crate) fn replace(&mut self, section: &str, took: f64, figures: Vec<Figure>) {
        self.took.retain(|(name, _)| name != section);
        self.took.push((section.to_owned(), took));
        self.all.retain(|figure| figure.section != section);
        self.all.extend(figures);
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Figure> {
        self.all.iter()
    }

    pub(crate) fn of<'a>(&'a self, section: &'a str) -> impl Iterator<Item = &'a Figure> {
        self.all
            .iter()
            .filter(move |figure| figure.section == section)
    }
}

/// Collects the figures of a section, and says them as they come.
#[derive(Debug)]
pub(crate) struct Notes {
    section: &'static str,
    part: String,
    pub(crate) figures: Vec<Figure>,
}

impl Notes {
    pub(crate) const fn new(section: &'static str) -> Self {
        Self {
            section,
            part: String::new(),
            figures: Vec::new(),
        }
    }

    /// What follows stands in tables of its own.
    pub(crate) fn begin(&mut self, part: &str) {
        part.clone_into(&mut self.part);
    }

    pub(crate) fn add(
        &mut self,
        metric: &str,
        contender: &str,
        case: &str,
        value: impl Into<Value>,
    ) {
        self.push(metric, contender, case, None, value.into());
    }

    /// A figure that has its place on the axis of a plot.
    pub(crate) fn add_at(
        &mut self,
        metric: &str,
        contender: &str,
        (case, x): (&str, f64),
        value: impl Into<Value>,
    ) {
        self.push(metric, contender, case, Some(x), value.into());
    }

    fn push(&mut self, metric: &str, contender: &str, case: &str, x: Option<f64>, value: Value) {
        match &value {
            Value::Is(value) => eprintln!("  {contender}, {case}: {value:.3} {metric}"),
            Value::Not(why) => eprintln!("  {contender}, {case}: no {metric}: {why}"),
        }
        self.figures.push(Figure {
            section: self.section.to_owned(),
            part: self.part.clone(),
            metric: metric.to_owned(),
            contender: contender.to_owned(),
            case: case.to_owned(),
            x,
            value,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

    fn figures(value: impl Into<Value>) -> Vec<Figure> {
        let mut notes = Notes::new("keyed");
        notes.add_at("ns", "paceline", ("first", 1.0), value);
        notes.figures
    }

    #[test]
    fn what_is_saved_is_what_is_loaded() {
        let path = env::temp_dir().join(format!("peers-figures-{}.json", std::process::id()));
        let mut saved = Figures::default();
        saved.replace("keyed", 1.0, figures(2.5));
        saved.replace("other", 1.0, figures(Err::<f64, _>("it panics".to_owned())));
        saved.replace("third", 1.0, figures(f64::NAN));
        saved.save(&path).unwrap();
        let loaded = Figures::load(&path);
        fs::remove_file(&path).unwrap();
        assert_eq!(loaded.unwrap().all, saved.all);
    }

    #[test]
    fn a_section_takes_the_place_of_the_old_one() {
        let mut all = Figures::default();
        all.replace("keyed", 1.0, figures(2.5));
        all.replace("keyed", 3.0, figures(3.5));
        let values: Vec<&Value> = all.of("keyed").map(|figure| &figure.value).collect();
        assert_eq!(values, [&Value::Is(3.5)]);
        assert_eq!(all.took, [("keyed".to_owned(), 3.0)]);
    }
}
