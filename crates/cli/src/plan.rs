//! How much passes a policy, found by asking it.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use paceline::policy::states::AnyPolicyState;
use paceline::policy::{AnyPolicy, Decision, Policy};
use paceline::time::{Rate, Tick};

use crate::Failure;
use crate::args::Limit;
use crate::bandwidth;
use crate::job::per_second;
use crate::policy::policy;

/// The plan of a policy, of lines or of bytes that are copied.
pub(crate) fn of(limit: &Limit, bytes: bool) -> Result<String, Failure> {
    let policy = if bytes {
        bandwidth::policy(limit, false)?
    } else {
        policy(limit, false)?
    };
    Ok(Plan::of(&policy).to_string())
}

/// How often a policy is asked for one line of the plan, at most.
const MAX_STEPS: u64 = 5_000_000;

/// A settled limit has settled by then: a hundred years.
const NEVER: Duration = Duration::from_secs(100 * 365 * 86_400);

const NS: Duration = Duration::from_nanos(1);

struct Plan {
    policy: String,
    at_once: u32,
    windows: Vec<(String, Most)>,
    sustained: f64,
    gap: (Duration, Duration),
    longest_wait: Duration,
    again_after: Duration,
}

/// The most lines of all traces that were tried.
#[derive(Clone, Copy)]
struct Most {
    lines: u64,
    /// Whether there were too many to try all.
    is_more: bool,
}

impl Plan {
    fn of(policy: &AnyPolicy) -> Self {
        let search = Search::of(policy);
        let mut windows = vec![
            ("second".to_owned(), Duration::from_secs(1)),
            ("minute".to_owned(), Duration::from_secs(60)),
        ];
        for window in windows_of(policy) {
            if windows.iter().all(|(_, other)| *other != window) {
                windows.push((time(window), window));
            }
        }
        windows.sort_by_key(|(_, window)| *window);
        let most = |(name, window)| (name, search.most_in(window));
        let windows = windows.into_iter().map(most).collect();
        let steady = search.steady();
        Self {
            policy: policy.to_string(),
            at_once: search.at_once,
            windows,
            sustained: steady.sustained,
            gap: steady.gap,
            longest_wait: search.longest_wait().max(steady.gap.1),
            again_after: search.again_after(),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:24}{}", "policy", self.policy)?;
        if self.at_once == u32::MAX {
            return writeln!(f, "{:24}everything", "at once");
        }
        writeln!(f, "{:24}{}", "at once, after a rest", self.at_once)?;
        for (name, most) in &self.windows {
            let least = if most.is_more { "at least " } else { "" };
            let name = format!("in any {name}");
            writeln!(f, "{name:24}{least}{}", most.lines)?;
        }
        let [second, minute, hour] = [1.0, 60.0, 3_600.0].map(|by| short(self.sustained * by));
        writeln!(f, "{:24}{second}/s, {minute}/min, {hour}/h", "sustained")?;
        match self.gap {
            (least, most) if least == most => writeln!(f, "{:24}{}", "gap", time(least))?,
            (least, most) => {
                let (least, most) = (time(least), time(most));
                writeln!(f, "{:24}{least} to {most}", "gap")?;
            }
        }
        writeln!(f, "{:24}{}", "longest wait", time(self.longest_wait))?;
        writeln!(f, "{:24}{}", "next burst after", time(self.again_after))
    }
}

/// As in a policy, such as `12s` or `1min`, or with decimals.
fn time(time: Duration) -> String {
    let is_whole = time.as_nanos().is_multiple_of(1_000_000);
    match Rate::try_new(1, time).map(|rate| rate.to_string()) {
        Ok(rate) if is_whole => {
            let period = rate.trim_start_matches("1/");
            let is_one = period.starts_with(char::is_alphabetic);
            format!("{}{period}", if is_one { "1" } else { "" })
        }
        _ => format!("{time:?}"),
    }
}

/// With three decimals at most.
fn short(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The window of each of its limits.
fn windows_of(policy: &AnyPolicy) -> Vec<Duration> {
    let text = policy.to_string();
    let limits = text.split(" and ");
    let quotas = limits.filter_map(|limit| limit.parse::<AnyPolicy>().ok()?.quota());
    quotas.map(|quota| quota.window).collect()
}

/// Traces that are hard on a policy: some lines at the start, a rest, and then as many as pass, as early as they pass.
struct Search<'a> {
    policy: &'a AnyPolicy,
    /// When something changes after everything was spent at the start, and just before.
    instants: BTreeSet<Tick>,
    /// The time after which nothing counts as spent any more, and no shorter than the longest window.
    settles_in: Duration,
    at_once: u32,
}

struct Steady {
    sustained: f64,
    gap: (Duration, Duration),
}

impl<'a> Search<'a> {
    fn of(policy: &'a AnyPolicy) -> Self {
        const RETRIES: usize = 6;
        let mut trace = Trace::of(policy);
        let mut instants = BTreeSet::new();
        for _ in 0..RETRIES {
            trace.take(u32::MAX);
            instants.insert(trace.now);
            let Some(wait) = trace.wait(1) else { break };
            trace.skip(wait);
        }
        let mut spent = Trace::of(policy);
        spent.take(u32::MAX);
        let settles_in = policy.settled_at(&spent.state).since(Tick::ZERO);
        let windows = windows_of(policy);
        let longest = windows.iter().max().copied().unwrap_or(NS);
        let settles_in = match settles_in {
            time if time > NEVER => longest,
            time => time.max(longest),
        };
        for window in windows.into_iter().chain([settles_in]) {
            instants.insert(Tick::ZERO.after(window));
            instants.insert(Tick::ZERO.after_times(window, 2));
        }
        // The windows of a calendar begin by the wall clock, which goes on meanwhile.
        let before = [NS, Duration::from_millis(100)];
        let before = before.map(|time| instants.iter().map(move |at| at.before(time)));
        let before: Vec<Tick> = before.into_iter().flatten().collect();
        instants.extend(before);

        let mut search = Self {
            policy,
            instants,
            settles_in,
            at_once: 0,
        };
        let rooms = search.instants.iter().map(|&at| {
            let mut trace = Trace::of(policy);
            trace.skip(at.since(Tick::ZERO));
            policy.room(&trace.state, trace.now)
        });
        search.at_once = rooms.max().unwrap_or(u32::MAX);
        search
    }

    /// The states after some lines at the start and a rest.
    fn rested(&self) -> impl Iterator<Item = Trace<'a>> {
        let policy = self.policy;
        let starts = [0, 1, u32::MAX].into_iter();
        starts.flat_map(move |first| {
            self.instants.iter().map(move |&at| {
                let mut trace = Trace::of(policy);
                trace.take(first);
                trace.skip(at.since(Tick::ZERO));
                trace
            })
        })
    }

    fn most_in(&self, window: Duration) -> Most {
        let mut most = Most {
            lines: 0,
            is_more: false,
        };
        let mut steps = MAX_STEPS;
        for mut trace in self.rested() {
            let lines = trace.greedy(window, &mut steps);
            most.lines = most.lines.max(lines);
            if steps == 0 {
                most.is_more = true;
                break;
            }
        }
        most
    }

    /// What passes in the long run, while more lines wait.
    fn steady(&self) -> Steady {
        const TIMES: u32 = 20;
        let mut steps = MAX_STEPS;
        let mut trace = Trace::of(self.policy);
        trace.greedy(self.settles_in, &mut steps);
        let (from, last) = (trace.now, trace.last);
        trace.gap = None;
        let lines = trace.greedy(self.settles_in.saturating_mul(TIMES), &mut steps);
        // A window may begin with a line, which is one line too many. From line to line there is no such error, but there may be
        // a part of a longer window too many.
        let rate = |time: Duration| per_second(lines, time);
        let in_window = rate(trace.now.since(from));
        let line_to_line = trace
            .last
            .zip(last)
            .map(|(last, first)| rate(last.since(first)));
        Steady {
            sustained: line_to_line.map_or(in_window, |rate| rate.min(in_window)),
            gap: trace.gap.unwrap_or_default(),
        }
    }

    /// The longest that the next line waits.
    fn longest_wait(&self) -> Duration {
        let waits = self.rested().filter_map(|mut trace| {
            trace.take(u32::MAX);
            trace.wait(1)
        });
        waits.max().unwrap_or_default()
    }

    /// The longest time from a burst to the next one as large.
    fn again_after(&self) -> Duration {
        let bursts = self.rested().filter_map(|mut trace| {
            let is_burst = trace.take(u32::MAX) == self.at_once;
            is_burst.then_some(trace)
        });
        let waits = bursts.filter_map(|trace| trace.wait(self.at_once));
        waits.max().unwrap_or_default()
    }
}

/// A limit in use.
#[derive(Clone)]
struct Trace<'a> {
    policy: &'a AnyPolicy,
    state: AnyPolicyState,
    now: Tick,
    /// When the last line passed.
    last: Option<Tick>,
    /// The shortest and the longest time between two lines.
    gap: Option<(Duration, Duration)>,
}

impl<'a> Trace<'a> {
    fn of(policy: &'a AnyPolicy) -> Self {
        Self {
            policy,
            state: policy.fresh(Tick::ZERO),
            now: Tick::ZERO,
            last: None,
            gap: None,
        }
    }

    fn skip(&mut self, time: Duration) {
        self.now = self.now.after(time);
        self.policy.foresee(&mut self.state, self.now);
    }

    /// Lets as many lines pass as pass now, at most `most`.
    fn take(&mut self, most: u32) -> u32 {
        let lines = self.policy.room(&self.state, self.now).min(most);
        if lines == 0
            || !self
                .policy
                .decide(&mut self.state, self.now, lines)
                .is_pass()
        {
            return 0;
        }
        let mut seen = |gap: Duration| {
            let (least, most) = self.gap.unwrap_or((gap, gap));
            self.gap = Some((least.min(gap), most.max(gap)));
        };
        if let Some(last) = self.last {
            seen(self.now.since(last));
        }
        if lines > 1 {
            seen(Duration::ZERO);
        }
        self.last = Some(self.now);
        lines
    }

    /// How long that many wait.
    fn wait(&self, lines: u32) -> Option<Duration> {
        match self.policy.peek(&self.state, self.now, lines) {
            Decision::Wait { retry_in } => Some(retry_in),
            Decision::Pass | Decision::Never { .. } => None,
        }
    }

    /// How many lines pass in a window that begins now, if each passes as early as it can. It is over at the end of the window,
    /// or when there are no steps left.
    fn greedy(&mut self, window: Duration, steps: &mut u64) -> u64 {
        let end = self.now.after(window);
        let mut lines = 0;
        while *steps > 0 {
            *steps -= 1;
            lines += u64::from(self.take(u32::MAX));
            let Some(wait) = self.wait(1) else {
                *steps = 0;
                break;
            };
            if self.now.after(wait) >= end {
                let rest = end.since(self.now);
                self.skip(rest);
                break;
            }
            self.skip(wait);
        }
        lines
    }
}
