use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use paceline::policy::{AlignedWindow, Alignment, AnyKind, AnyPolicy, Decision, Policy, Unlimited};
use paceline::time::{Rate, Tick, WallClock};
use testkit::turns::Turns;

const MICRO: u64 = 1_000;

/// The longest time of a question, and the end of every run.
const HOUR: Tick = Tick::from_nanos(3_600_000_000 * MICRO);

/// The answer to a question: what a policy lets through of these arrivals, and how many of them are in a window of the provider.
///
/// A question has three lines: a policy, such as `10/s burst 5`; the window of the provider; and the times of the arrivals, with
/// commas between them. Two more lines are optional: the times of a second tenant, and the weights of both tenants, such as `3:1`.
///
/// The answer is JSON: `paced`, when each passes if it waits, within an hour; `passes`, whether each passes
/// if it may not wait; and the most that any window has of the arrivals, and of those that passed either way. All times are whole
/// microseconds. `tenants` has the tenant of each request that waited, 0 or 1, in the order of one `queue` and `by_turns`: the
/// times are the same. If the question cannot be read, it has an `error`.
///
/// An aligned window begins a tenth of its length after 0, and again after each length.
#[must_use]
pub fn answer(question: &str) -> String {
    match Question::read(question) {
        Ok(question) => question.play(),
        Err(error) => format!("{{\"error\":{}}}", quoted(&error)),
    }
}

struct Question {
    policy: AnyPolicy,
    /// What the wall clocks of the policy read.
    now: Arc<AtomicU64>,
    window: u64,
    arrivals: Vec<Tick>,
    /// The tenant of each arrival.
    tenants: Vec<u64>,
    weights: [u32; 2],
}

impl Question {
    fn read(text: &str) -> Result<Self, String> {
        let mut lines = text.lines();
        let mut line = |what| lines.next().ok_or(format!("there is no {what}"));
        let now = Arc::default();
        let policy = policy(line("policy")?, &now)?;
        let window = tick(line("window")?)?.as_nanos();
        let mut arrivals = Vec::new();
        for tenant in 0..2 {
            let times = lines.next().unwrap_or_default().split(',');
            for time in times.filter(|time| !time.is_empty()) {
                arrivals.push((tick(time)?, tenant));
            }
        }
        arrivals.sort_unstable();
        let (arrivals, tenants) = arrivals.into_iter().unzip();
        let weights = lines.next().map_or(Ok([1, 1]), weights)?;
        Ok(Self {
            policy,
            now,
            window,
            arrivals,
            tenants,
            weights,
        })
    }

    fn play(&self) -> String {
        let paced = self.paced();
        let passes = self.passes();
        let at_once = self.arrivals.iter().zip(&passes);
        let at_once: Vec<Tick> = at_once
            .filter(|(_, passes)| **passes)
            .map(|(at, _)| *at)
            .collect();
        let most = [&self.arrivals, &paced, &at_once].map(|times| self.most(times));
        let [arrivals, waiting, refusing] = most;
        let micros = paced.iter().map(|at| at.as_nanos().div_ceil(MICRO));
        let micros: Vec<u64> = micros.collect();
        let (queue, by_turns) = (&self.tenants[..paced.len()], self.by_turns(&paced));
        format!(
            "{{\"paced\":{micros:?},\"passes\":{passes:?},\
             \"tenants\":{{\"queue\":{queue:?},\"by_turns\":{by_turns:?}}},\
             \"most\":{{\"arrivals\":{arrivals},\"paced\":{waiting},\"passed\":{refusing}}}}}"
        )
    }

    fn decide(&self, state: &mut <AnyPolicy as Policy>::State, now: Tick) -> Decision {
        self.now.store(now.as_nanos(), Ordering::Relaxed);
        self.policy.decide(state, now, 1)
    }

    /// When each passes, first come, first served.
    fn paced(&self) -> Vec<Tick> {
        let mut now = Tick::ZERO;
        let mut state = self.policy.fresh(now);
        let pass = |arrival: &Tick| {
            now = now.max(*arrival);
            while let Decision::Wait { retry_in } = self.decide(&mut state, now) {
                now = now.after(retry_in);
                if now > HOUR {
                    return None;
                }
            }
            Some(now)
        };
        self.arrivals.iter().map_while(pass).collect()
    }

    /// The tenant that passes at each of these times, if tenants take turns. Each request costs 1, so the order does not change
    /// the times.
    fn by_turns(&self, paced: &[Tick]) -> Vec<u64> {
        let mut turns = Turns::default();
        let mut joined = 0;
        let pass = |(passed, now): (usize, &Tick)| {
            // While no request waits, one passes as it comes, before others of the same instant.
            if joined == passed && self.arrivals[joined] == *now {
                joined += 1;
                return Some(self.tenants[passed]);
            }
            let come = self.arrivals.partition_point(|at| at <= now);
            for number in joined..come {
                let tenant = self.tenants[number];
                let weight = self.weights[usize::from(tenant == 1)];
                turns.join(tenant, number as u64, 1, weight);
            }
            joined = come;
            let passed = usize::try_from(turns.pass()?).ok()?;
            Some(self.tenants[passed])
        };
        paced.iter().enumerate().map_while(pass).collect()
    }

    /// Whether each passes at once.
    fn passes(&self) -> Vec<bool> {
        let mut state = self.policy.fresh(Tick::ZERO);
        let arrivals = self.arrivals.iter();
        let passes = arrivals.map(|at| self.decide(&mut state, *at).is_pass());
        passes.collect()
    }

    /// The most of these times in a window, wherever it begins. They are in order.
    fn most(&self, times: &[Tick]) -> usize {
        let ends = times.iter().enumerate().map(|(number, first)| {
            let inside = times[number..].iter();
            inside
                .take_while(|at| at.as_nanos() - first.as_nanos() < self.window)
                .count()
        });
        ends.max().unwrap_or(0)
    }
}

/// The policy of a text. Its wall clocks read `now`: a page has no clock of the system.
fn policy(text: &str, now: &Arc<AtomicU64>) -> Result<AnyPolicy, String> {
    let policy: AnyPolicy = text.parse().map_err(|error| format!("{error}"))?;
    let written = policy.to_string();
    if !written.contains(" aligned") {
        return Ok(policy);
    }
    let mut limits = written.split(" and ").zip(policy.limits());
    let none = AnyPolicy::from(Unlimited);
    limits.try_fold(none, |all, (text, limit)| {
        let text = text.trim_end_matches(" per request");
        let AnyKind::Aligned(window) = &limit.kind else {
            let limit: AnyPolicy = text.parse().map_err(|error| format!("{error}"))?;
            return Ok(all.and(limit));
        };
        let (rate, rest) = text.split_once(" aligned").unwrap_or_default();
        if rest.starts_with(" utc") {
            return Err(format!("the page has no time zones, got `{text}`"));
        }
        Ok(all.and(aligned(rate, window.margin(), now)?))
    })
}

fn aligned(
    rate: &str,
    margin: Option<RangeInclusive<Duration>>,
    now: &Arc<AtomicU64>,
) -> Result<AnyPolicy, String> {
    let wrong = |_| format!("the page has no calendar: write a window up to a day, got `{rate}`");
    let rate: Rate = rate.parse().map_err(wrong)?;
    let length = rate.period();
    let now = Arc::clone(now);
    let start = length.saturating_sub(length / 10);
    let clock = WallClock::new(move || start + Duration::from_nanos(now.load(Ordering::Relaxed)));
    let window = AlignedWindow::try_new(rate.permits(), Alignment::Every(length));
    let window = window.map_err(|error| error.to_string())?;
    let window = AnyPolicy::from(window.with_clock(clock));
    match margin {
        Some(delay) => window
            .try_with_margin(delay)
            .map_err(|error| error.to_string()),
        None => Ok(window),
    }
}

fn tick(micros: &str) -> Result<Tick, String> {
    let wrong = || format!("a time is a number of microseconds up to 3600000000, got `{micros}`");
    let number: u64 = micros.parse().map_err(|_| wrong())?;
    let tick = Tick::from_nanos(number.saturating_mul(MICRO));
    if tick > HOUR { Err(wrong()) } else { Ok(tick) }
}

fn weights(text: &str) -> Result<[u32; 2], String> {
    let weight = |text: &str| text.parse().ok().filter(|weight| *weight > 0);
    let both = text.split_once(':');
    both.and_then(|(one, other)| Some([weight(one)?, weight(other)?]))
        .ok_or_else(|| format!("weights are two numbers from 1, such as 3:1, got `{text}`"))
}

/// As a string of JSON.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => quoted.extend(['\\', char]),
            char if char.is_control() => quoted.push(' '),
            char => quoted.push(char),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn ask(question: &str) -> Value {
        serde_json::from_str(&answer(question)).unwrap()
    }

    #[test]
    fn a_burst_is_paced_or_refused_and_windows_are_counted_wherever_they_begin() {
        let bucket = ask("10/s burst 3\n1000000\n0,0,0,0,50000,1500000");
        assert_eq!(
            bucket["paced"],
            json!([0, 0, 0, 100_000, 200_000, 1_500_000])
        );
        assert_eq!(
            bucket["passes"],
            json!([true, true, true, false, false, true])
        );
        let most = json!({ "arrivals": 5, "paced": 5, "passed": 3 });
        assert_eq!(bucket["most"], most);

        let arrivals = "1000000\n0,900000,1000000,1001000,2500000";
        let fixed = ask(&format!("2/s fixed\n{arrivals}"));
        let times = json!([0, 900_000, 1_000_000, 1_001_000, 2_500_000]);
        assert_eq!(fixed["paced"], times);
        assert_eq!(fixed["most"]["paced"], 3);
        assert_eq!(ask(&format!("2/s\n{arrivals}"))["most"]["paced"], 2);
    }

    #[test]
    fn an_aligned_window_begins_a_tenth_of_its_length_after_zero() {
        let windows = ask("2/s aligned\n1000000\n0,0,99999,100000,100000,200000");
        let times = json!([0, 0, 100_000, 100_000, 1_100_000, 1_100_000]);
        assert_eq!(windows["paced"], times);
        assert_eq!(
            windows["passes"],
            json!([true, true, false, true, true, false])
        );
        let both = ask("2/s aligned per request and every 10ms\n1000\n0,0,0");
        assert_eq!(both["paced"], json!([0, 10_000, 100_000]));
        let early = ask("2/s aligned margin 80ms and 9/s\n1000000\n0,20000,50000");
        assert_eq!(early["paced"], json!([0, 100_000, 100_000]));
    }

    #[test]
    fn a_run_ends_after_an_hour() {
        for slow in [
            "1/213503day",
            "every 213503day",
            "1/213503day aligned",
            "every 3601s",
        ] {
            let answer = ask(&format!("{slow}\n1000\n0,0,0"));
            assert_eq!(answer["paced"], json!([0]), "{slow}");
        }
    }

    #[test]
    fn times_are_put_in_order_and_rounded_up_to_microseconds() {
        let thirds = ask("3/s burst 1\n1000000\n400000,0,0");
        assert_eq!(thirds["paced"], json!([0, 333_334, 666_667]));
        assert_eq!(ask("unlimited\n10\n1,10")["most"]["paced"], 2);
        assert_eq!(ask("unlimited\n10\n")["paced"], json!([]));
    }

    #[test]
    fn a_second_tenant_waits_for_one_request_of_a_backlog_by_turns_and_for_all_in_one_queue() {
        let answer = ask("every 100ms\n1000000\n0,0,0,0,0,0\n150000");
        let times = json!([0, 100_000, 200_000, 300_000, 400_000, 500_000, 600_000]);
        assert_eq!(answer["paced"], times);
        assert_eq!(answer["tenants"]["queue"], json!([0, 0, 0, 0, 0, 0, 1]));
        assert_eq!(answer["tenants"]["by_turns"], json!([0, 0, 1, 0, 0, 0, 0]));
    }

    #[test]
    fn tenants_take_as_many_turns_as_their_weights() {
        let arrivals = "every 100ms\n1000000\n0,0,0,0,0,0,0\n0,0,0";
        let by_turns = |question: &str| ask(question)["tenants"]["by_turns"].clone();
        let even = json!([0, 0, 1, 0, 1, 0, 1, 0, 0, 0]);
        assert_eq!(by_turns(arrivals), even);
        assert_eq!(by_turns(&format!("{arrivals}\n1:1")), even);
        let heavy = json!([0, 0, 0, 1, 0, 0, 0, 1, 0, 1]);
        assert_eq!(by_turns(&format!("{arrivals}\n3:1")), heavy);
        let late = json!([0, 1, 1, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(by_turns(&format!("{arrivals}\n1:4294967295")), late);
    }

    #[test]
    fn requests_that_need_not_wait_pass_as_they_come() {
        let burst = ask("10/s burst 3\n1000000\n0,0,0,0,0\n0");
        assert_eq!(burst["tenants"]["by_turns"], json!([0, 0, 0, 0, 1, 0]));
        assert_eq!(burst["tenants"]["queue"], json!([0, 0, 0, 0, 0, 1]));
        let apart = ask("10/s burst 3\n1000000\n0,1000000\n500000\n1:9");
        assert_eq!(apart["tenants"]["by_turns"], json!([0, 1, 0]));
    }

    #[test]
    fn an_order_has_those_that_pass_within_an_hour() {
        let slow = ask("every 1800s\n1000\n0,0,0,0,0\n0");
        assert_eq!(slow["tenants"]["queue"], json!([0, 0, 0]));
        assert_eq!(slow["tenants"]["by_turns"], json!([0, 0, 1]));
        assert_eq!(ask("1/s\n1000")["tenants"]["by_turns"], json!([]));
    }

    #[test]
    fn what_cannot_be_read_is_an_error_that_names_it() {
        for (question, named) in [
            ("", "no policy"),
            ("10/s", "no window"),
            ("10/fortnight\n1000\n0", "fortnight"),
            ("10/month aligned\n1000\n0", "no calendar"),
            ("10/s and 5/s aligned utc+02:00\n1000\n0", "no time zones"),
            ("10/s\n1000\n0,\"x", "got `\"x`"),
            ("10/s\n-5\n0", "got `-5`"),
            ("10/s\n1000\nNaN", "got `NaN`"),
            ("10/s\n1000\n18446744073709551615", "up to 3600000000"),
            ("10/s\n1000\n0\n1x", "got `1x`"),
            ("10/s\n1000\n0\n0\n3", "such as 3:1, got `3`"),
            ("10/s\n1000\n0\n0\n0:1", "from 1, such as 3:1, got `0:1`"),
            ("10/s\n1000\n0\n0\n1:2:3", "got `1:2:3`"),
            ("10/s\n1000\n0\n0\n1:-1", "got `1:-1`"),
        ] {
            let error = ask(question)["error"].as_str().unwrap().to_owned();
            assert!(error.contains(named), "{error}");
        }
    }
}
