//! The report of a run, as a table or as JSON.

use core::iter;
use core::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use hdrhistogram::Histogram;
use paceline::time::Tick;
use serde::Serialize;

use crate::{
    codes,
    dispatch::{Margins, Outcome},
    provider::{CodesTally, Figures, TAKES},
    rows::Rows,
    strict::round,
};

/// The rows of the table, in the order of [`Line::cells`].
const ROWS: [&str; 15] = [
    "provider",
    "quota",
    "allowed /s",
    "achieved /s",
    "% of allowed",
    "violations sliding/fixed",
    "announcements",
    "bans",
    "sent",
    "unsent",
    "duplicates",
    "wait ms p50/p99",
    "kept apart by",
    "margin ms start/end/worst",
    "told/obeyed at s",
];

/// The whole run. Its fields are those of the JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) mode: &'static str,
    pub(crate) seconds: f64,
    pub(crate) rows: usize,
    pub(crate) sent: usize,
    pub(crate) unsent: usize,
    pub(crate) bad_rows: usize,
    pub(crate) duplicates: u32,
    /// Violations of a quota that the dispatcher could know.
    pub(crate) violations: u32,
    /// Refusals that announced a lower quota. They are not among the violations.
    pub(crate) announcements: u32,
    pub(crate) bans: u32,
    /// The lowest value of all providers.
    pub(crate) percent_of_allowed: Option<f64>,
    pub(crate) providers: Vec<Line>,
    pub(crate) codes: Option<CodesLine>,
}

/// The figures of passwords and news.
#[derive(Debug, Serialize)]
pub(crate) struct CodesLine {
    sent: u32,
    too_late: u32,
    given_up: u32,
    unsent: u32,
    retries: u32,
    refused: u32,
    failed: u32,
    out_of_order: u32,
    duplicates: u32,
    violations: u32,
    password_wait_p50_ms: f64,
    password_wait_p99_ms: f64,
    news_wait_p50_ms: f64,
    news_wait_p99_ms: f64,
}

/// The part of one provider.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    provider: &'static str,
    quota: &'static str,
    /// The quota to which it changed during the run.
    lowered_quota: Option<&'static str>,
    unit: &'static str,
    /// Each quota counts for as long as it was in force.
    allowed_per_second: f64,
    achieved_per_second: Option<f64>,
    percent_of_allowed: Option<f64>,
    violations: u32,
    violations_sliding: u32,
    violations_fixed: u32,
    announcements: u32,
    bans: u32,
    wait_p50_ms: f64,
    wait_p99_ms: f64,
    kept_apart_by: &'static str,
    margin_start_ms: Option<f64>,
    margin_end_ms: Option<f64>,
    margin_worst_ms: Option<f64>,
    /// When the dispatcher learned of the lower quota, and when the first request under it left, in seconds from the start.
    /// Null without feedback.
    told_at_s: Option<f64>,
    obeyed_at_s: Option<f64>,
    sent: usize,
    unsent: usize,
    /// The provider's count. It exceeds `sent` if the answer to the last request was lost.
    accepted: u32,
    duplicates: u32,
    down: Option<String>,
}

impl Report {
    /// Joins the counts of the dispatcher and of the providers.
    ///
    /// # Panics
    ///
    /// If a row is neither sent nor unsent nor bad, or a provider lacks a message that was sent.
    pub(crate) fn new(
        mode: &'static str,
        took: Duration,
        read: &Rows,
        providers: Vec<Line>,
        codes: Option<CodesLine>,
    ) -> Self {
        let (rows, bad_rows) = (read.len(), read.bad.len());
        let sent = providers.iter().map(|line| line.sent).sum();
        let unsent = providers.iter().map(|line| line.unsent).sum();
        assert_eq!(sent + unsent + bad_rows, rows, "every row went somewhere");
        Self {
            mode,
            seconds: round(took.as_secs_f64()),
            rows,
            sent,
            unsent,
            bad_rows,
            duplicates: providers.iter().map(|line| line.duplicates).sum(),
            violations: providers.iter().map(|line| line.violations).sum(),
            announcements: providers.iter().map(|line| line.announcements).sum(),
            bans: providers.iter().map(|line| line.bans).sum(),
            percent_of_allowed: providers
                .iter()
                .filter_map(|line| line.percent_of_allowed)
                .reduce(f64::min),
            providers,
            codes,
        }
    }

    /// Whether messages were not sent that could have been.
    pub(crate) fn has_unsent(&self) -> bool {
        let codes = self.codes.as_ref();
        self.unsent > 0 || codes.is_some_and(|codes| codes.given_up + codes.unsent > 0)
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("it holds nothing that JSON does not")
    }

    pub(crate) fn to_table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED);
        for (row, name) in ROWS.iter().enumerate() {
            let cells = self.providers.iter().map(|line| line.cells()[row].clone());
            let cells: Vec<_> = iter::once((*name).to_owned()).chain(cells).collect();
            if row == 0 {
                table.set_header(cells);
            } else {
                table.add_row(cells);
            }
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!(
            "{table}\n{} rows = {} sent + {} unsent + {} bad; {} duplicates; {} violations; {} announcements; {} bans; {}; {:.1} s",
            self.rows,
            self.sent,
            self.unsent,
            self.bad_rows,
            self.duplicates,
            self.violations,
            self.announcements,
            self.bans,
            self.mode,
            self.seconds,
        ) + &self
            .codes
            .as_ref()
            .map_or(String::new(), CodesLine::to_text)
    }
}

impl CodesLine {
    pub(crate) fn new(outcome: &codes::Outcome, tally: CodesTally) -> Self {
        Self {
            sent: outcome.sent,
            too_late: outcome.too_late,
            given_up: outcome.given_up,
            unsent: outcome.unsent,
            retries: outcome.retries,
            refused: tally.refused,
            failed: tally.failed,
            out_of_order: tally.out_of_order,
            duplicates: tally.duplicates,
            violations: tally.violations,
            password_wait_p50_ms: quantile(&outcome.passwords, 0.5),
            password_wait_p99_ms: quantile(&outcome.passwords, 0.99),
            news_wait_p50_ms: quantile(&outcome.news, 0.5),
            news_wait_p99_ms: quantile(&outcome.news, 0.99),
        }
    }

    fn to_text(&self) -> String {
        let [full, slow, again] = TAKES;
        format!(
            "\ncodes, {} messages in any 1 s, and {} from {} to {} s without a word: {} sent, {} too late, {} given up, {} unsent;\n\
             {} retries ({} refused, {} failed); {} out of order; {} duplicates; {} violations; wait ms p50/p99: passwords {:.0}/{:.0}, news {:.0}/{:.0}",
            full.1,
            slow.1,
            slow.0.as_secs(),
            again.0.as_secs(),
            self.sent,
            self.too_late,
            self.given_up,
            self.unsent,
            self.retries,
            self.refused,
            self.failed,
            self.out_of_order,
            self.duplicates,
            self.violations,
            self.password_wait_p50_ms,
            self.password_wait_p99_ms,
            self.news_wait_p50_ms,
            self.news_wait_p99_ms,
        )
    }
}

impl Line {
    pub(crate) fn new(outcome: &Outcome, figures: Figures, start: Tick) -> Self {
        let name = outcome.name;
        assert!(
            figures.accepted as usize >= outcome.sent,
            "{name} has accepted what it was sent"
        );
        let allowed = figures.allowed_per_second;
        let lowered = name.lowered().filter(|_| figures.was_lowered);
        let since_start = |at: Tick| round(at.since(start).as_secs_f64());
        let margin = |of: fn(&Margins) -> Duration| {
            outcome.margin.as_ref().map(|margins| millis(of(margins)))
        };
        Self {
            provider: name.as_str(),
            quota: name.quota_in_words(),
            lowered_quota: lowered.map(|(_, in_words)| in_words),
            unit: name.unit(),
            allowed_per_second: round(allowed),
            achieved_per_second: figures.per_second.map(round),
            percent_of_allowed: figures
                .per_second
                .map(|achieved| round(100.0 * achieved / allowed)),
            violations: figures.tally.violations,
            violations_sliding: figures.tally.sliding,
            violations_fixed: figures.tally.fixed,
            announcements: figures.tally.announcements,
            bans: figures.tally.bans,
            wait_p50_ms: quantile(&outcome.waits, 0.5),
            wait_p99_ms: quantile(&outcome.waits, 0.99),
            kept_apart_by: outcome.method,
            margin_start_ms: margin(|margins| margins.start),
            margin_end_ms: margin(|margins| margins.end),
            margin_worst_ms: margin(|margins| margins.worst),
            told_at_s: outcome.new_quota.map(|quota| since_start(quota.at)),
            obeyed_at_s: outcome
                .new_quota
                .and_then(|quota| quota.obeyed)
                .map(since_start),
            sent: outcome.sent,
            unsent: outcome.unsent.len(),
            accepted: figures.accepted,
            duplicates: figures.duplicates,
            down: outcome.down.clone(),
        }
    }

    fn cells(&self) -> [String; 15] {
        let shown = |number: Option<f64>, digits| {
            number.map_or_else(|| "-".into(), |number| format!("{number:.digits$}"))
        };
        let joined = |numbers: &[Option<f64>]| {
            if numbers.iter().all(Option::is_none) {
                return "-".into();
            }
            let all = numbers.iter().map(|number| shown(*number, 2));
            all.collect::<Vec<_>>().join("/")
        };
        let margins = [
            self.margin_start_ms,
            self.margin_end_ms,
            self.margin_worst_ms,
        ];
        [
            self.provider.into(),
            match self.lowered_quota {
                Some(lowered) => format!("{}\nthen {lowered}", self.quota),
                None => self.quota.into(),
            },
            format!("{:.1} {}s", self.allowed_per_second, self.unit),
            shown(self.achieved_per_second, 2),
            shown(self.percent_of_allowed, 1),
            format!("{}/{}", self.violations_sliding, self.violations_fixed),
            self.announcements.to_string(),
            self.bans.to_string(),
            self.sent.to_string(),
            self.unsent.to_string(),
            self.duplicates.to_string(),
            format!("{:.0}/{:.0}", self.wait_p50_ms, self.wait_p99_ms),
            self.kept_apart_by.into(),
            joined(&margins),
            joined(&[self.told_at_s, self.obeyed_at_s]),
        ]
    }
}

fn quantile(waits: &Histogram<u64>, quantile: f64) -> f64 {
    millis(Duration::from_micros(waits.value_at_quantile(quantile)))
}

fn millis(duration: Duration) -> f64 {
    round(duration.as_secs_f64() * 1e3)
}
