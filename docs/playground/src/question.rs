use std::fmt::Write;

use paceline::policy::{AnyPolicy, Decision, Policy};
use paceline::time::Tick;

const MICRO: u64 = 1_000;

/// The answer to a question: what a policy lets through of these arrivals, and how many of them are in a window of the provider.
///
/// A question has three lines: a policy, such as `10/s burst 5`; the window of the provider in milliseconds; and the times of the
/// arrivals in milliseconds, with commas between them. The answer is JSON, with times in milliseconds: `paced`, when each passes
/// if it waits; `passes`, whether each passes if it may not wait; and the most that any window has of the arrivals, and of those
/// that passed either way. If the question cannot be read, it has an `error`.
#[must_use]
pub fn answer(question: &str) -> String {
    match Question::read(question) {
        Ok(question) => question.play(),
        Err(error) => format!("{{\"error\":{}}}", quoted(&error)),
    }
}

struct Question {
    policy: AnyPolicy,
    window: u64,
    arrivals: Vec<Tick>,
}

impl Question {
    fn read(text: &str) -> Result<Self, String> {
        let mut lines = text.lines();
        let mut line = |what| lines.next().ok_or(format!("there is no {what}"));
        let policy = line("policy")?;
        let policy = policy.parse().map_err(|error| format!("{error}"))?;
        let window = nanos(line("window")?)?;
        let times = lines
            .next()
            .unwrap_or_default()
            .split(',')
            .filter(|time| !time.is_empty());
        let arrivals: Result<Vec<_>, _> = times
            .map(|time| nanos(time).map(Tick::from_nanos))
            .collect();
        let mut arrivals = arrivals?;
        arrivals.sort_unstable();
        Ok(Self {
            policy,
            window,
            arrivals,
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
        let mut answer = String::from("{\"paced\":[");
        for (number, at) in paced.iter().enumerate() {
            let comma = if number > 0 { "," } else { "" };
            let micros = at.as_nanos().div_ceil(MICRO);
            // Writing to a `String` does not fail.
            let _ = write!(answer, "{comma}{}.{:03}", micros / 1_000, micros % 1_000);
        }
        let _ = write!(
            answer,
            "],\"passes\":{passes:?},\"most\":{{\"arrivals\":{},\"paced\":{},\"passed\":{}}}}}",
            self.most(&self.arrivals),
            self.most(&paced),
            self.most(&at_once)
        );
        answer
    }

    /// When each passes, first come, first served.
    fn paced(&self) -> Vec<Tick> {
        let (policy, mut now) = (&self.policy, Tick::ZERO);
        let mut state = policy.fresh(now);
        let pass = |arrival: &Tick| {
            now = now.max(*arrival);
            while let Decision::Wait { retry_in } = policy.decide(&mut state, now, 1) {
                now = now.after(retry_in);
            }
            now
        };
        self.arrivals.iter().map(pass).collect()
    }

    /// Whether each passes at once.
    fn passes(&self) -> Vec<bool> {
        let mut state = self.policy.fresh(Tick::ZERO);
        let arrivals = self.arrivals.iter();
        let decide = |at: &Tick| self.policy.decide(&mut state, *at, 1).is_pass();
        arrivals.map(decide).collect()
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

/// Of a number of milliseconds.
fn nanos(millis: &str) -> Result<u64, String> {
    let wrong = || format!("a time is a number of milliseconds up to 3600000, got `{millis}`");
    let number: f64 = millis.trim().parse().map_err(|_| wrong())?;
    if !(0.0..=3_600_000.0).contains(&number) {
        return Err(wrong());
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is in range"
    )]
    let micros = (number * 1e3).round() as u64;
    Ok(micros * MICRO)
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
        let bucket = ask("10/s burst 3\n1000\n0,0,0,0,50,1500");
        assert_eq!(
            bucket["paced"],
            json!([0.0, 0.0, 0.0, 100.0, 200.0, 1500.0])
        );
        assert_eq!(
            bucket["passes"],
            json!([true, true, true, false, false, true])
        );
        let most = json!({ "arrivals": 5, "paced": 5, "passed": 3 });
        assert_eq!(bucket["most"], most);

        let fixed = ask("2/s fixed\n1000\n0,900,1000,1001,2500");
        assert_eq!(fixed["paced"], json!([0.0, 900.0, 1000.0, 1001.0, 2500.0]));
        assert_eq!(fixed["most"]["paced"], 3);
        assert_eq!(ask("2/s\n1000\n0,900,1000,1001,2500")["most"]["paced"], 2);
    }

    #[test]
    fn times_are_put_in_order_and_rounded_up_to_microseconds() {
        let thirds = ask("3/s burst 1\n1000\n400,0,0");
        assert_eq!(thirds["paced"], json!([0.0, 333.334, 666.667]));
        assert_eq!(ask("unlimited\n10\n0.5,10.4994")["most"]["paced"], 2);
        assert_eq!(ask("unlimited\n10\n")["paced"], json!([]));
    }

    #[test]
    fn what_cannot_be_read_is_an_error_that_names_it() {
        for (question, named) in [
            ("", "no policy"),
            ("10/s", "no window"),
            ("10/fortnight\n1000\n0", "fortnight"),
            ("10/s\n1000\n0,\"x", "got `\"x`"),
            ("10/s\n-5\n0", "got `-5`"),
            ("10/s\n1000\nNaN", "got `NaN`"),
        ] {
            let error = ask(question)["error"].as_str().unwrap().to_owned();
            assert!(error.contains(named), "{error}");
        }
    }
}
