//! What came of it all, as a table or as JSON.

use core::iter;
use core::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::{
    dispatch::{Margins, Outcome},
    provider::Figures,
    rows::Rows,
};

/// What the table says of each provider, in the order of [`Line::cells`].
const ROWS: [&str; 13] = [
    "provider",
    "quota",
    "allowed /s",
    "achieved /s",
    "% of allowed",
    "violations sliding/fixed",
    "bans",
    "sent",
    "unsent",
    "duplicates",
    "wait ms p50/p99",
    "kept apart by",
    "margin ms start/end/worst",
];

/// The whole run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) mode: &'static str,
    pub(crate) seconds: f64,
    pub(crate) rows: usize,
    pub(crate) sent: usize,
    pub(crate) unsent: usize,
    pub(crate) bad_rows: usize,
    pub(crate) duplicates: u32,
    pub(crate) violations: u32,
    pub(crate) bans: u32,
    /// The lowest of the providers'.
    pub(crate) percent_of_allowed: Option<f64>,
    pub(crate) providers: Vec<Line>,
}

/// One provider's part of it.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    provider: &'static str,
    quota: &'static str,
    unit: &'static str,
    allowed_per_second: f64,
    achieved_per_second: Option<f64>,
    percent_of_allowed: Option<f64>,
    violations: u32,
    violations_sliding: u32,
    violations_fixed: u32,
    bans: u32,
    wait_p50_ms: f64,
    wait_p99_ms: f64,
    kept_apart_by: &'static str,
    margin_start_ms: Option<f64>,
    margin_end_ms: Option<f64>,
    margin_worst_ms: Option<f64>,
    sent: usize,
    unsent: usize,
    /// As the provider counts; more than were sent if the answer to the last request never came.
    accepted: u32,
    duplicates: u32,
    down: Option<String>,
}

impl Report {
    /// Puts together what the dispatcher and the providers say.
    ///
    /// # Panics
    ///
    /// When a row is neither sent nor unsent nor bad, or a provider does not have what was sent.
    pub(crate) fn new(
        mode: &'static str,
        took: Duration,
        read: &Rows,
        providers: Vec<Line>,
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
            bans: providers.iter().map(|line| line.bans).sum(),
            percent_of_allowed: providers
                .iter()
                .filter_map(|line| line.percent_of_allowed)
                .reduce(f64::min),
            providers,
        }
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
            "{table}\n{} rows = {} sent + {} unsent + {} bad; {} duplicates; {} violations; {} bans; {}; {:.1} s",
            self.rows,
            self.sent,
            self.unsent,
            self.bad_rows,
            self.duplicates,
            self.violations,
            self.bans,
            self.mode,
            self.seconds,
        )
    }
}

impl Line {
    pub(crate) fn new(outcome: &Outcome, figures: Figures) -> Self {
        let name = outcome.name;
        assert!(
            figures.accepted as usize >= outcome.sent,
            "{name} has accepted what it was sent"
        );
        let allowed = name.allowed_per_second();
        let margin = |of: fn(&Margins) -> Duration| {
            outcome.margin.as_ref().map(|margins| millis(of(margins)))
        };
        Self {
            provider: name.as_str(),
            quota: name.quota_in_words(),
            unit: name.unit(),
            allowed_per_second: allowed,
            achieved_per_second: figures.per_second.map(round),
            percent_of_allowed: figures
                .per_second
                .map(|achieved| round(100.0 * achieved / allowed)),
            violations: figures.tally.violations,
            violations_sliding: figures.tally.sliding,
            violations_fixed: figures.tally.fixed,
            bans: figures.tally.bans,
            wait_p50_ms: quantile(&outcome.waits, 0.5),
            wait_p99_ms: quantile(&outcome.waits, 0.99),
            kept_apart_by: outcome.method,
            margin_start_ms: margin(|margins| margins.start),
            margin_end_ms: margin(|margins| margins.end),
            margin_worst_ms: margin(|margins| margins.worst),
            sent: outcome.sent,
            unsent: outcome.unsent.len(),
            accepted: figures.accepted,
            duplicates: figures.duplicates,
            down: outcome.down.clone(),
        }
    }

    fn cells(&self) -> [String; 13] {
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
            self.quota.into(),
            format!("{:.1} {}s", self.allowed_per_second, self.unit),
            shown(self.achieved_per_second, 2),
            shown(self.percent_of_allowed, 1),
            format!("{}/{}", self.violations_sliding, self.violations_fixed),
            self.bans.to_string(),
            self.sent.to_string(),
            self.unsent.to_string(),
            self.duplicates.to_string(),
            format!("{:.0}/{:.0}", self.wait_p50_ms, self.wait_p99_ms),
            self.kept_apart_by.into(),
            joined(&margins),
        ]
    }
}

fn quantile(waits: &Histogram<u64>, quantile: f64) -> f64 {
    millis(Duration::from_micros(waits.value_at_quantile(quantile)))
}

fn millis(duration: Duration) -> f64 {
    round(duration.as_secs_f64() * 1e3)
}

/// Three digits are all anybody reads.
fn round(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}
