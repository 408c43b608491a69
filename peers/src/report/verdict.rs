use crate::figures::Figure;

use super::table::{Table, is_bare, short};
use super::words::{Better, Words};

/// Less than this is not worth a word: a machine is not that quiet.
const WORTH_SAYING: f64 = 1.1;

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
                        Better::Neither => None,
                    }
                };
                let ((_, ours), (name, theirs)) = (best(true)?, best(false)?);
                let factor = ours / theirs;
                let is_worth_saying = factor.is_finite() && factor >= WORTH_SAYING;
                is_worth_saying.then(|| format!("{case}: {name}, by {}", short(factor)))
            });
            let factors: Vec<String> = factors.collect();
            if !factors.is_empty() {
                let part = if part.is_empty() {
                    ""
                } else {
                    &format!(", {part}")
                };
                all.push(format!("in {}{part} ({})", metric.name, factors.join("; ")));
            }
        }
    }
    all
}

fn is_ours(contender: &str) -> bool {
    contender.starts_with("paceline")
}
