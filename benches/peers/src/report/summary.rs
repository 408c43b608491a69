//! The first table of the page: the figures that most ask for, ours beside the best of the others.

use std::fmt::Write as _;

use crate::figures::{Figure, Value};

use super::table::{is_bare, short};
use super::verdict::is_ours;

/// Of what, and which figure.
struct Row {
    what: &'static str,
    section: &'static str,
    part: &'static str,
    metric: &'static str,
    case: &'static str,
    best: Best,
    /// Which promise costs the difference, where another may be ahead.
    why: &'static str,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Best {
    Least,
    Most,
    /// The most among contenders without gaps that are too short.
    MostOfTheStrict,
}

const ONE: &str = "one thread";
const SHARE: &str = "share of the allowed rate";

const ROWS: &[Row] = &[
    share(
        "share of 100 a second that is reached, nothing too soon",
        "10 ms",
    ),
    share("share of 400 a second", "2.5 ms"),
    share("share of 1,000 a second", "1 ms"),
    share("share of 2,000 a second", "500 µs"),
    share("share of 10,000 a second", "100 µs"),
    share("share of 100,000 a second", "10 µs"),
    least(
        "ns an element costs more than without a limit",
        (
            "hot",
            "a stream through one limit",
            "an element",
            "ns more than bare",
        ),
    )
    .since("no item is lost whatever the limit does, and other tasks have their turn"),
    least(
        "ns a call that waits in line if it must",
        ("hot", "a call that would wait", "an element", "ns"),
    )
    .since("it waits in order of arrival, for any cost, and can be cancelled"),
    least(
        "ns a permit, 8 tasks on two threads",
        ("contention", "", "ns a permit", "8 tasks"),
    )
    .since("a lock, behind which requests of any cost wait in order"),
    least(
        "polls a grant, 1,000 waiters",
        ("contention", "", "polls a grant", "1,000 waiters, 10 a ms"),
    )
    .since("by default a grant comes at its instant, and not at the next millisecond"),
    least(
        "µs of processor time a grant, 1,000 waiters",
        (
            "contention",
            "",
            "µs of processor time a grant",
            "1,000 waiters, 10 a ms",
        ),
    )
    .since("by default a grant comes at its instant, and not at the next millisecond"),
    least(
        "ns a decision, a million keys",
        ("keyed", "", "ns a decision", "known, passes"),
    )
    .since("clients cannot choose keys that collide, and a test can pause the clock"),
    least(
        "bytes a key, a million keys",
        ("keyed", "", "bytes a key", "all there"),
    ),
    least(
        "seconds for a million emissions on a paused clock",
        ("virtual", "", "seconds on the wall", "1,000,000 emissions"),
    )
    .since("the next slot counts from the emission that really happened"),
    least(
        "µs a decision in Redis, 1 caller",
        ("redis", "", "µs a decision, median", "1 caller"),
    )
    .since("each request has a deadline, after which the outage policy decides"),
    decisions(
        "thousand decisions a second in Redis, 64 callers, own keys",
        "64 callers, own keys",
    ),
    decisions(
        "thousand decisions a second in Redis, 64 callers, one key",
        "64 callers, one key",
    ),
    least(
        "bytes of a limit of 1,000 in Redis",
        ("redis", "", "bytes a limit in Redis", "limit of 1,000"),
    ),
    least(
        "ns a request to a service costs more than without a limit",
        (
            "tower",
            "one limit for all requests, passed",
            "a request",
            "ns more than bare",
        ),
    )
    .since("any limiter, also one on a server, and one that fails"),
    least(
        "ns a request to a service costs more than without a limit for each key",
        (
            "tower",
            "a limit for each key, passed",
            "a request",
            "ns more than bare",
        ),
    )
    .since("clients cannot choose keys that collide, and a test can pause the clock"),
    Row {
        what: "requests over HTTP for each one without a limit",
        section: "tower",
        part: "",
        metric: "share of the rate without a limit",
        case: "32 connections",
        best: Best::Most,
        why: "each answer says what is left",
    },
];

const fn decisions(what: &'static str, case: &'static str) -> Row {
    Row {
        what,
        section: "redis",
        part: "",
        metric: "thousand decisions a second",
        case,
        best: Best::Most,
        why: "",
    }
}

const fn share(what: &'static str, case: &'static str) -> Row {
    Row {
        what,
        section: "precision",
        part: ONE,
        metric: SHARE,
        case,
        best: Best::MostOfTheStrict,
        why: "",
    }
}

const fn least(
    what: &'static str,
    (section, part, metric, case): (&'static str, &'static str, &'static str, &'static str),
) -> Row {
    Row {
        what,
        section,
        part,
        metric,
        case,
        best: Best::Least,
        why: "",
    }
}

/// Nothing, if none of the figures is there.
pub(super) fn table(figures: &[&Figure]) -> String {
    let mut text = String::new();
    for row in ROWS {
        let of = |ours| row.best(figures, ours);
        if let (Some((ours, value)), Some((theirs, other))) = (of(true), of(false)) {
            let is_behind = match row.best {
                Best::Least => other < value,
                Best::Most | Best::MostOfTheStrict => other > value,
            };
            let why = if is_behind { row.why } else { "" };
            let (value, other) = (short(value), short(other));
            let what = row.what;
            let _ = writeln!(
                text,
                "| {what} | {value}: {ours} | {other}: {theirs} | {why} |"
            );
        }
    }
    if text.is_empty() {
        return text;
    }
    format!(
        "## In short\n\n| | paceline | best of the others | the difference, if another is ahead |\n|---|---|---|---|\n{text}\n"
    )
}

impl Row {
    const fn since(mut self, why: &'static str) -> Self {
        self.why = why;
        self
    }

    fn best<'a>(&self, figures: &[&'a Figure], ours: bool) -> Option<(&'a str, f64)> {
        let all = figures.iter().filter_map(|figure| {
            let is_it = self.is_of(figure) && figure.metric == self.metric;
            let is_theirs = is_ours(&figure.contender) == ours && !is_bare(&figure.contender);
            let Value::Is(value) = figure.value else {
                return None;
            };
            (is_it && is_theirs).then_some((figure.contender.as_str(), value))
        });
        match self.best {
            Best::Least => all.min_by(|a, b| a.1.total_cmp(&b.1)),
            Best::Most => all.max_by(|a, b| a.1.total_cmp(&b.1)),
            Best::MostOfTheStrict => all
                .filter(|(contender, _)| self.is_strict(figures, contender))
                .max_by(|a, b| a.1.total_cmp(&b.1)),
        }
    }

    fn is_of(&self, figure: &Figure) -> bool {
        figure.section == self.section && figure.part == self.part && figure.case == self.case
    }

    /// Less than one gap in a hundred seems too short. Some do because the measuring thread was interrupted.
    fn is_strict(&self, figures: &[&Figure], contender: &str) -> bool {
        figures.iter().any(|figure| {
            let is_it = figure.metric == "gaps too short, in %" && figure.contender == contender;
            self.is_of(figure) && is_it && matches!(figure.value, Value::Is(short) if short < 1.0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(metric: &str, contender: &str, value: f64) -> Figure {
        Figure {
            section: "precision".to_owned(),
            part: ONE.to_owned(),
            metric: metric.to_owned(),
            contender: contender.to_owned(),
            case: "1 ms".to_owned(),
            x: None,
            value: Value::Is(value),
        }
    }

    #[test]
    fn who_lets_something_through_too_soon_is_not_the_best() {
        let figures = [
            figure(SHARE, "paceline pace", 0.9),
            figure("gaps too short, in %", "paceline pace", 0.0),
            figure(SHARE, "hasty", 1.0),
            figure("gaps too short, in %", "hasty", 50.0),
            figure(SHARE, "late", 0.5),
            figure("gaps too short, in %", "late", 0.1),
        ];
        let table = table(&figures.iter().collect::<Vec<_>>());
        assert!(
            table.contains("| 0.900: paceline pace | 0.500: late |"),
            "{table}"
        );
    }

    #[test]
    fn of_a_rate_the_most_is_the_best() {
        let rate = |contender: &str, value| Figure {
            section: "redis".to_owned(),
            part: String::new(),
            case: "64 callers, one key".to_owned(),
            ..figure("thousand decisions a second", contender, value)
        };
        let figures = [
            rate("paceline TokenBucket", 900.0),
            rate("paceline SlidingLog", 500.0),
            rate("another", 100.0),
            rate("bare SET", 2_000.0),
        ];
        let table = table(&figures.iter().collect::<Vec<_>>());
        assert!(
            table.contains("| 900: paceline TokenBucket | 100: another |  |"),
            "{table}"
        );
    }

    #[test]
    fn where_another_is_ahead_the_row_says_what_costs_the_difference() {
        let took = |contender, value| Figure {
            section: "virtual".to_owned(),
            part: String::new(),
            case: "1,000,000 emissions".to_owned(),
            ..figure("seconds on the wall", contender, value)
        };
        let told = |ours, other| {
            let figures = [took("paceline pace", ours), took("another", other)];
            table(&figures.iter().collect::<Vec<_>>()).contains("| the next slot counts")
        };
        assert!(told(2.0, 1.0));
        assert!(!told(1.0, 2.0));
    }

    #[test]
    fn where_nothing_was_measured_there_is_no_table() {
        assert_eq!(table(&[]), "");
    }
}
