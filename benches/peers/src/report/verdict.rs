use crate::figures::Figure;

use super::table::{Table, is_bare, short};
use super::words::{Better, Words};

/// Less than this is not worth a word: a machine is not that quiet.
const WORTH_SAYING: f64 = 1.1;

/// More than this is beside next to nothing, and not a factor that says anything.
const COUNTLESS: f64 = 1_000.0;

/// For each metric, where some other contender is better than the best of ours, and by what factor.
pub(super) fn behind(words: &Words, figures: &[&Figure]) -> Vec<String> {
    let mut all = Vec::new();
    for metric in words.metrics {
        let tables = super::parts(figures)
            .into_iter()
            .filter_map(|part| Some((part, Table::of(metric.name, part, figures)?)));
        for (part, table) in tables {
            let factors = table.cases.iter().filter_map(|case| {
                let best = |ours: bool| {
                    let contenders = table
                        .contenders
                        .iter()
                        .filter(|name| is_ours(name) == ours && !is_bare(name));
                    let numbers =
                        contenders.filter_map(|name| Some((*name, table.number(name, case)?)));
                    match metric.better {
                        Better::Less => numbers.min_by(|a, b| a.1.total_cmp(&b.1)),
                        Better::More => numbers.max_by(|a, b| a.1.total_cmp(&b.1)),
                        Better::Neither => None,
                    }
                };
                let ((_, ours), (name, theirs)) = (best(true)?, best(false)?);
                let factor = match metric.better {
                    Better::More => theirs / ours,
                    _ => ours / theirs,
                };
                let is_worth_saying = factor.is_finite() && factor >= WORTH_SAYING;
                let by = if factor > COUNTLESS {
                    "more than a thousand times".to_owned()
                } else {
                    format!("by {}", short(factor))
                };
                is_worth_saying.then(|| (name, format!("{case}, {by}")))
            });
            let mut ahead: Vec<(&str, Vec<String>)> = Vec::new();
            for (name, factor) in factors {
                match ahead.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, factors)) => factors.push(factor),
                    None => ahead.push((name, vec![factor])),
                }
            }
            if !ahead.is_empty() {
                let part = if part.is_empty() {
                    ""
                } else {
                    &format!(", {part}")
                };
                let ahead = ahead.iter();
                let ahead = ahead.map(|(name, factors)| format!("{name} ({})", factors.join("; ")));
                let ahead: Vec<String> = ahead.collect();
                all.push(format!("in {}{part}: {}", metric.name, ahead.join(", ")));
            }
        }
    }
    all
}

pub(super) fn is_ours(contender: &str) -> bool {
    contender.starts_with("paceline")
}

#[cfg(test)]
mod tests {
    use super::super::words::{Metric, Shown};
    use super::*;
    use crate::figures::Value;

    const LESS: Words = words(&[Metric {
        name: "ns",
        heading: "",
        better: Better::Less,
    }]);

    const MORE: Words = words(&[Metric {
        name: "ns",
        heading: "",
        better: Better::More,
    }]);

    const fn words(metrics: &'static [Metric]) -> Words {
        Words {
            title: "",
            question: "",
            metrics,
            shown: Shown::Table {
                metric: "ns",
                part: "",
            },
            why: "",
        }
    }

    fn said(ours: f64, theirs: f64) -> Vec<String> {
        said_of(&LESS, ours, theirs)
    }

    fn said_of(words: &Words, ours: f64, theirs: f64) -> Vec<String> {
        let figure = |contender: &str, value| Figure {
            section: String::new(),
            part: String::new(),
            metric: "ns".to_owned(),
            contender: contender.to_owned(),
            case: "hot".to_owned(),
            x: None,
            value: Value::Is(value),
        };
        let bare = figure("bare stream", 0.1);
        let figures = [figure("paceline pace", ours), figure("other", theirs), bare];
        behind(words, &figures.iter().collect::<Vec<&Figure>>())
    }

    #[test]
    fn says_by_what_factor_another_is_ahead_and_of_whom() {
        assert_eq!(said(30.0, 10.0), ["in ns: other (hot, by 3.00)"]);
        let countless = "in ns: other (hot, more than a thousand times)";
        assert_eq!(said(30.0, 0.01), [countless]);
    }

    #[test]
    fn where_more_is_better_whoever_has_more_is_ahead() {
        let ahead = ["in ns: other (hot, by 3.00)"];
        assert_eq!(said_of(&MORE, 10.0, 30.0), ahead);
        assert!(said_of(&MORE, 30.0, 10.0).is_empty());
    }

    #[test]
    fn says_nothing_where_nobody_is_ahead_and_of_what_does_nothing() {
        assert!(said(10.0, 30.0).is_empty());
        assert!(said(10.0, 9.9).is_empty());
    }
}
