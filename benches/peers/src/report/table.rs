use std::fmt::Write as _;

use crate::figures::{Figure, Value};
use crate::measure::with_commas;

use super::words::{Better, Metric};

/// The figures of one metric: a row for each contender, a column for each case.
pub(super) struct Table<'a> {
    pub(super) contenders: Vec<&'a str>,
    pub(super) cases: Vec<&'a str>,
    figures: Vec<&'a Figure>,
}

impl<'a> Table<'a> {
    /// `None` if nothing was measured.
    pub(super) fn of(metric: &str, part: &str, figures: &[&'a Figure]) -> Option<Self> {
        let figures: Vec<&Figure> = figures
            .iter()
            .copied()
            .filter(|figure| figure.metric == metric && figure.part == part)
            .collect();
        let table = Self {
            contenders: in_order(figures.iter().map(|figure| figure.contender.as_str())),
            cases: in_order(figures.iter().map(|figure| figure.case.as_str())),
            figures,
        };
        (!table.figures.is_empty()).then_some(table)
    }

    pub(super) fn value(&self, contender: &str, case: &str) -> Option<&'a Value> {
        let found = self
            .figures
            .iter()
            .find(|figure| figure.contender == contender && figure.case == case);
        found.map(|figure| &figure.value)
    }

    pub(super) fn number(&self, contender: &str, case: &str) -> Option<f64> {
        match self.value(contender, case) {
            Some(Value::Is(number)) => Some(*number),
            _ => None,
        }
    }

    /// The best of each column is in bold. Reasons why there is no number are below.
    pub(super) fn markdown(&self, metric: &Metric) -> String {
        let mut reasons = Vec::new();
        let mut text = row("", self.cases.iter().map(|&case| case.to_owned()));
        text += &row("---", self.cases.iter().map(|_| "---:".to_owned()));
        for contender in &self.contenders {
            let cells = self.cases.iter().map(|case| {
                let best = self.best(case, metric.better);
                cell(self.value(contender, case), best, &mut reasons)
            });
            let cells: Vec<String> = cells.collect();
            text += &row(contender, cells.into_iter());
        }
        for (at, reason) in reasons.iter().enumerate() {
            let _ = writeln!(text, "\n({}) {reason}", at + 1);
        }
        text
    }

    fn best(&self, case: &str, better: Better) -> Option<f64> {
        let numbers = self
            .contenders
            .iter()
            .filter(|contender| !is_bare(contender))
            .filter_map(|contender| self.number(contender, case));
        match better {
            Better::Less => numbers.min_by(f64::total_cmp),
            Better::More => numbers.max_by(f64::total_cmp),
            Better::Neither => None,
        }
    }
}

pub(super) fn in_order<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

/// The bare stream does nothing, so it does not compete.
pub(super) fn is_bare(contender: &str) -> bool {
    contender.starts_with("bare")
}

fn row(name: &str, cells: impl Iterator<Item = String>) -> String {
    let cells: Vec<String> = cells.collect();
    format!("| {name} | {} |\n", cells.join(" | "))
}

fn cell(value: Option<&Value>, best: Option<f64>, reasons: &mut Vec<String>) -> String {
    match value {
        None => String::new(),
        Some(Value::Is(number)) if best.is_some_and(|best| best.total_cmp(number).is_eq()) => {
            format!("**{}**", short(*number))
        }
        Some(Value::Is(number)) => short(*number),
        Some(Value::Not(reason)) => {
            let at = reasons.iter().position(|known| known == reason);
            let at = at.unwrap_or_else(|| {
                reasons.push(reason.clone());
                reasons.len() - 1
            });
            format!("({})", at + 1)
        }
    }
}

/// Three digits that count, and a comma after each thousand.
pub(super) fn short(number: f64) -> String {
    let size = number.abs();
    if size >= 999.5 {
        return with_commas(&format!("{number:.0}"));
    }
    let digits = match size {
        99.95.. => 0,
        9.995.. => 1,
        0.9995.. => 2,
        0.0005.. => 3,
        _ => return "0".to_owned(),
    };
    format!("{number:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(contender: &str, case: &str, value: Value) -> Figure {
        Figure {
            section: "s".to_owned(),
            part: String::new(),
            metric: "ns".to_owned(),
            contender: contender.to_owned(),
            case: case.to_owned(),
            x: None,
            value,
        }
    }

    #[test]
    fn numbers_have_three_digits_that_count() {
        let shown = [0.0, 0.01234, 1.234, 12.34, 123.4, 1_234.0, 1_234_567.0].map(short);
        let expected = ["0", "0.012", "1.23", "12.3", "123", "1,234", "1,234,567"];
        assert_eq!(shown, expected);
        assert_eq!(short(-1234.0), "-1,234");
    }

    #[test]
    fn the_best_is_bold_and_a_reason_is_given() {
        let figures = [
            figure("a", "one", Value::Is(2.0)),
            figure("a", "two", Value::Not("it panicked".to_owned())),
            figure("b", "one", Value::Is(1.0)),
        ];
        let figures: Vec<&Figure> = figures.iter().collect();
        let metric = Metric {
            name: "ns",
            heading: "",
            better: Better::Less,
        };
        let table = Table::of("ns", "", &figures).expect("there are figures");
        assert_eq!(
            table.markdown(&metric),
            "|  | one | two |\n| --- | ---: | ---: |\n| a | 2.00 | (1) |\n| b | **1.00** |  |\n\n(1) it panicked\n"
        );
    }
}
