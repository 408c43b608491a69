use crate::figures::Figure;

use super::table::{Table, is_bare, short};
use super::words::{Better, Metric, Words};

/// Less than this is not worth a word: a machine is not that quiet.
const WORTH_SAYING: f64 = 1.1;

/// More than this is beside next to nothing, and not a factor that says anything.
const COUNTLESS: f64 = 1_000.0;

/// For each metric, where some other contender is better than the best of ours, and by what factor.
pub(super) fn behind(words: &Words, figures: &[&Figure]) -> Vec<String> {
    let mut all = Vec::new();
    for metric in words.metrics {
        for part in super::parts(figures) {
            let Some(table) = Table::of(metric.name, part, figures) else {
                continue;
            };
            let mut ahead: Vec<(&str, Vec<Case<'_>>)> = Vec::new();
            for (name, case) in table
                .cases
                .iter()
                .filter_map(|case| lost(&table, case, metric))
            {
                match ahead.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, cases)) => cases.push(case),
                    None => ahead.push((name, vec![case])),
                }
            }
            if !ahead.is_empty() {
                let ahead = ahead.iter();
                let ahead = ahead.map(|(name, lost)| format!("{name} ({})", told(lost, &table)));
                let ahead: Vec<String> = ahead.collect();
                let comma = if part.is_empty() { "" } else { ", " };
                all.push(format!(
                    "in {}{comma}{part}: {}",
                    metric.name,
                    ahead.join(", ")
                ));
            }
        }
    }
    all
}

/// In which case, and by what factor.
struct Case<'a> {
    name: &'a str,
    factor: f64,
}

/// Who is ahead in a case, if that is worth saying.
fn lost<'a>(table: &Table<'a>, case: &'a str, metric: &Metric) -> Option<(&'a str, Case<'a>)> {
    let best = |ours: bool| {
        let contenders = table
            .contenders
            .iter()
            .filter(|name| is_ours(name) == ours && !is_bare(name));
        let numbers = contenders.filter_map(|name| Some((*name, table.number(name, case)?)));
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
    is_worth_saying.then_some((name, Case { name: case, factor }))
}

/// More than two cases are in the tables.
fn told(lost: &[Case<'_>], table: &Table<'_>) -> String {
    let by = |factor: f64| match factor {
        COUNTLESS.. => "more than a thousand times".to_owned(),
        _ => format!("by {}", short(factor)),
    };
    if lost.len() <= 2 {
        let cases = lost.iter();
        let cases = cases.map(|case| format!("{}, {}", case.name, by(case.factor)));
        return cases.collect::<Vec<_>>().join("; ");
    }
    let most = lost.iter().map(|case| case.factor).fold(0.0, f64::max);
    format!(
        "{} of {} cases, at most {}",
        lost.len(),
        table.cases.len(),
        by(most)
    )
}

pub(super) fn is_ours(contender: &str) -> bool {
    contender.starts_with("paceline")
}

#[cfg(test)]
mod tests {
    use super::super::words::Shown;
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

    fn figure(contender: &str, value: f64) -> Figure {
        Figure {
            section: String::new(),
            part: String::new(),
            metric: "ns".to_owned(),
            contender: contender.to_owned(),
            case: "hot".to_owned(),
            x: None,
            value: Value::Is(value),
        }
    }

    fn said(ours: f64, theirs: f64) -> Vec<String> {
        said_of(&LESS, ours, theirs)
    }

    fn said_of(words: &Words, ours: f64, theirs: f64) -> Vec<String> {
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
    fn of_many_cases_it_says_how_many_and_the_worst() {
        let cases = ["one", "two", "three", "four"];
        let both = cases
            .iter()
            .zip([3.0, 2.0, 4.0, 1.0])
            .flat_map(|(case, ours)| {
                let of = |contender, value| Figure {
                    case: (*case).to_owned(),
                    ..figure(contender, value)
                };
                [of("paceline pace", ours), of("other", 1.0)]
            });
        let figures: Vec<Figure> = both.collect();
        let figures: Vec<&Figure> = figures.iter().collect();
        assert_eq!(
            behind(&LESS, &figures),
            ["in ns: other (3 of 4 cases, at most by 4.00)"]
        );
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
