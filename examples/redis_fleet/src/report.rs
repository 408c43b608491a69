//! The results, as a table or as JSON.

use core::{fmt::Write, time::Duration};

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::{
    fleet::WORKERS,
    plan::Plan,
    policy::Policy,
    provider::{Part, Phase},
    scenario::Outcome,
    strict::round,
};

/// The whole run. Its fields are those of the JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    workers: u32,
    /// The quota of the provider: a number of requests in any window.
    requests: u32,
    window_ms: f64,
    /// How much longer the window in Redis is, and how much of that is for the travel time.
    margin_ms: f64,
    way_ms: f64,
    seed: u64,
    seconds: f64,
    /// Whether the policies that promise to keep the quota kept it.
    pub(crate) kept: bool,
    policies: Vec<Line>,
}

/// The provider's count for one policy.
#[derive(Debug, Serialize)]
struct Line {
    policy: Policy,
    sent: u64,
    accepted: u64,
    violations: u64,
    phases: Vec<Share>,
    /// The total of all silences, and each.
    standing_still_s: f64,
    silences_s: Vec<f64>,
    killed_worker: u32,
    /// The longest travel time of a request. If it exceeds the margin, the count says nothing about the limit.
    longest_way_ms: f64,
    /// Reported by the workers that were not killed.
    unanswered: u64,
    last_failure: Option<String>,
    lost_states: u64,
    passed_alone: u64,
    cost: String,
}

/// One phase.
#[derive(Debug, Serialize)]
struct Share {
    phase: &'static str,
    seconds: f64,
    sent: u64,
    accepted: u64,
    /// The share of what the quota allows in that time.
    percent_of_allowed: f64,
}

impl Report {
    pub(crate) fn new(plan: &Plan, took: Duration, outcomes: &[Outcome]) -> Self {
        let policies: Vec<Line> = outcomes
            .iter()
            .map(|outcome| Line::new(plan, outcome))
            .collect();
        Self {
            workers: WORKERS,
            requests: plan.requests,
            window_ms: millis(plan.window),
            margin_ms: millis(plan.margin()),
            way_ms: millis(plan.way),
            seed: plan.seed,
            seconds: seconds(took),
            kept: policies
                .iter()
                .all(|line| !line.policy.promises() || line.violations == 0),
            policies,
        }
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("it holds nothing that JSON does not")
    }

    pub(crate) fn to_table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED);
        let mut header: Vec<String> = ["policy", "sent", "accepted", "violations"]
            .map(Into::into)
            .into();
        let phases = self.policies.iter().flat_map(|line| &line.phases);
        header.extend(phases.take(4).map(|share| share.phase.to_owned()));
        header.push("standing still".into());
        table.set_header(header);
        for line in &self.policies {
            table.add_row(line.cells());
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }

        let limit_ms = self.window_ms + self.margin_ms;
        let mut shown = format!(
            "{WORKERS} workers, at most {} requests in any {:.0} ms; in Redis in any {limit_ms:.0} ms, for late permits and the way: \
             so {:.0} % is all there can be in the long run\n{table}\n",
            self.requests,
            self.window_ms,
            100.0 * self.window_ms / limit_ms,
        );
        for line in &self.policies {
            let _ = writeln!(shown, "{}: {}", line.policy.as_str(), line.cost);
        }
        let _ = write!(
            shown,
            "% of what the quota allows, as the provider counts; seed {}; {:.1} s",
            self.seed, self.seconds
        );
        shown
    }
}

impl Line {
    fn new(plan: &Plan, outcome: &Outcome) -> Self {
        let (figures, accounts) = (&outcome.figures, &outcome.accounts);
        let standing_still: Duration = figures.silences.iter().sum();
        let mut line = Self {
            policy: outcome.policy,
            sent: figures.sent,
            accepted: figures.accepted,
            violations: figures.sent - figures.accepted,
            phases: figures
                .parts
                .iter()
                .map(|part| Share::new(plan, part))
                .collect(),
            standing_still_s: seconds(standing_still),
            silences_s: figures
                .silences
                .iter()
                .map(|silence| seconds(*silence))
                .collect(),
            killed_worker: outcome.victim,
            longest_way_ms: millis(figures.longest_way),
            unanswered: accounts.iter().map(|account| account.unanswered).sum(),
            last_failure: accounts
                .iter()
                .find_map(|account| account.last_failure.clone()),
            lost_states: accounts.iter().map(|account| account.lost_states).sum(),
            passed_alone: accounts.iter().map(|account| account.passed_alone).sum(),
            cost: String::new(),
        };
        line.cost = line.cost(plan);
        line
    }

    fn cells(&self) -> Vec<String> {
        let mut cells = vec![
            self.policy.as_str().to_owned(),
            self.sent.to_string(),
            self.accepted.to_string(),
            self.violations.to_string(),
        ];
        let shares = self.phases.iter();
        cells.extend(shares.map(|share| format!("{:.0} %", share.percent_of_allowed)));
        cells.push(format!("{:.1} s", self.standing_still_s));
        cells
    }

    /// The result in a sentence or two.
    fn cost(&self, plan: &Plan) -> String {
        let window = seconds(plan.limit_window());
        let still = self.standing_still_s;
        let mut cost = match self.policy {
            Policy::Closed => format!(
                "nothing is sent while Redis is down, and for another window ({window} s) when it is back, since it has lost what \
                 it knew: {still:.1} s in all."
            ),
            Policy::Insured => format!(
                "nothing is sent for a window ({window} s) when Redis goes, since all may have been spent, and for another when it \
                 is back, since it has lost what it knew: {still:.1} s in all. In between each worker has a third of the limit, \
                 and that of the killed one lies idle."
            ),
            Policy::Open => format!(
                "everything is sent while Redis is down, and the provider refused {} requests. When it is back, a window \
                 ({window} s) is waited here too: {still:.1} s in all.",
                self.violations
            ),
        };
        let way = millis(plan.way);
        if self.policy.promises() && self.violations > 0 && self.longest_way_ms > way {
            let _ = write!(
                cost,
                " THE QUOTA WAS OVERSTEPPED: a request was on its way for up to {:.0} ms, and {way:.0} were allowed for (--way).",
                self.longest_way_ms
            );
        } else if self.policy.promises() && self.violations > 0 {
            cost.push_str(" THE QUOTA WAS OVERSTEPPED.");
        }
        if let Some(failure) = &self.last_failure {
            let _ = write!(cost, " {} unanswered: {failure}.", self.unanswered);
        }
        cost
    }
}

impl Share {
    fn new(plan: &Plan, part: &Part) -> Self {
        let allowed =
            f64::from(plan.requests) * part.lasted.as_secs_f64() / plan.window.as_secs_f64();
        #[expect(
            clippy::cast_precision_loss,
            reason = "nobody sends 2^52 requests in a minute"
        )]
        let accepted = part.accepted as f64;
        Self {
            phase: match part.phase {
                Phase::Before => "before",
                Phase::WorkerKilled => "worker killed",
                Phase::RedisDown => "Redis down",
                Phase::Back => "back",
            },
            seconds: seconds(part.lasted),
            sent: part.sent,
            accepted: part.accepted,
            percent_of_allowed: round(100.0 * accepted / allowed),
        }
    }
}

fn millis(duration: Duration) -> f64 {
    round(duration.as_secs_f64() * 1e3)
}

fn seconds(duration: Duration) -> f64 {
    round(duration.as_secs_f64())
}
