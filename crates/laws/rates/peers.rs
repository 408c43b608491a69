//! The rules of others, as short as they can be told.

use paceline::limiter::{CallOutcome, RateRule};
use paceline::time::Tick;

/// The same rate, whatever happens.
pub(crate) struct Fixed(pub(crate) f64);

impl RateRule for Fixed {
    fn observe(&mut self, _: Tick, _: Tick, _: CallOutcome) {}

    fn rate(&self, _: Tick) -> f64 {
        self.0
    }
}

/// CUBIC (RFC 9438) with calls a second in place of segments: a refusal cuts to 0.7, and the rate comes back to the old one and above.
pub(crate) struct Cubic {
    top: f64,
    cut_at: Option<Tick>,
    start: f64,
}

impl Cubic {
    pub(crate) fn new(start: f64) -> Self {
        let (top, cut_at) = (start, None);
        Self { top, cut_at, start }
    }
}

const C: f64 = 0.4;
const BETA: f64 = 0.7;

/// The rate so long after a cut from `top`.
fn cubic(top: f64, seconds: f64) -> f64 {
    let back = (top * (1.0 - BETA) / C).cbrt();
    C * (seconds - back).powi(3) + top
}

impl RateRule for Cubic {
    fn observe(&mut self, now: Tick, sent_at: Tick, outcome: CallOutcome) {
        let counts = self.cut_at.is_none_or(|cut_at| sent_at > cut_at);
        if matches!(outcome, CallOutcome::Refused { .. }) && counts {
            (self.top, self.cut_at) = (self.rate(now), Some(now));
        }
    }

    /// Doubles each second until the first refusal.
    fn rate(&self, now: Tick) -> f64 {
        let rate = match self.cut_at {
            Some(cut_at) => cubic(self.top, (now - cut_at).as_secs_f64()),
            None => self.start * (now - Tick::ZERO).as_secs_f64().exp2(),
        };
        rate.clamp(0.1, 10_000.0)
    }
}

/// The adaptive retry mode of the AWS SDKs: CUBIC from the rate that was measured, and at most twice that.
pub(crate) struct AwsAdaptive {
    rate: f64,
    top: f64,
    throttled_at: Option<Tick>,
    measured: f64,
    half_second: u64,
    calls: u32,
}

impl AwsAdaptive {
    pub(crate) fn new(start: f64) -> Self {
        Self {
            rate: start,
            top: 0.0,
            throttled_at: None,
            measured: 0.0,
            half_second: 0,
            calls: 0,
        }
    }

    fn measure(&mut self, now: Tick) {
        let half_second = now.as_nanos() / 500_000_000;
        self.calls += 1;
        if half_second > self.half_second {
            let passed = u32::try_from(half_second - self.half_second).unwrap();
            let rate = f64::from(self.calls) * 2.0 / f64::from(passed);
            self.measured = rate * 0.8 + self.measured * 0.2;
            (self.half_second, self.calls) = (half_second, 0);
        }
    }
}

impl RateRule for AwsAdaptive {
    fn observe(&mut self, now: Tick, _: Tick, outcome: CallOutcome) {
        self.measure(now);
        let rate = if let CallOutcome::Refused { .. } = outcome {
            let is_first = self.throttled_at.is_none();
            self.top = if is_first {
                self.measured
            } else {
                self.measured.min(self.rate)
            };
            self.throttled_at = Some(now);
            self.top * BETA
        } else if let Some(at) = self.throttled_at {
            cubic(self.top, (now - at).as_secs_f64())
        } else {
            return;
        };
        self.rate = rate.min(2.0 * self.measured).max(0.5);
    }

    fn rate(&self, _: Tick) -> f64 {
        self.rate
    }
}

/// Scrapy's `AutoThrottle` with two calls at once: the delay follows the latency, and a refusal may only make it longer.
pub(crate) struct AutoThrottle {
    delay: f64,
}

impl AutoThrottle {
    pub(crate) fn new(start: f64) -> Self {
        let delay = 1.0 / start;
        Self { delay }
    }
}

impl RateRule for AutoThrottle {
    fn observe(&mut self, now: Tick, sent_at: Tick, outcome: CallOutcome) {
        let aim = (now - sent_at).as_secs_f64() / 2.0;
        let delay = f64::midpoint(self.delay, aim).max(aim).min(60.0);
        if outcome == CallOutcome::Accepted || delay > self.delay {
            self.delay = delay;
        }
    }

    fn rate(&self, _: Tick) -> f64 {
        1.0 / self.delay
    }
}
