//! A provider with a limit that its clients do not know.

use std::collections::VecDeque;
use std::time::Duration;

use paceline::time::{Rate, Tick};

use super::SECOND;

/// How the provider counts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counts {
    /// A token bucket with a burst of one second.
    Bucket,
    /// Any second.
    Log,
    /// Each second of its clock.
    Seconds,
    /// Each minute of its clock.
    Minutes,
}

impl Counts {
    pub(crate) const fn window(self) -> Duration {
        match self {
            Self::Minutes => Duration::from_secs(60),
            _ => SECOND,
        }
    }
}

pub(crate) struct Provider {
    counts: Counts,
    /// The limit in calls a second, and from when on it holds.
    limits: Vec<(Tick, u32)>,
    /// When a window of its clock began.
    origin: Tick,
    tokens: f64,
    filled_at: Tick,
    accepted: VecDeque<Tick>,
    window: Tick,
    used: u32,
}

impl Provider {
    /// The first limit holds from the start. `phase` is how far its first window has come.
    pub(crate) fn new(counts: Counts, limits: Vec<(Tick, u32)>, phase: Duration) -> Self {
        Self {
            counts,
            tokens: f64::from(limits[0].1),
            limits,
            origin: Tick::ZERO + counts.window().saturating_sub(phase),
            filled_at: Tick::ZERO,
            accepted: VecDeque::new(),
            window: Tick::ZERO,
            used: 0,
        }
    }

    fn limit(&self, now: Tick) -> u32 {
        let earlier = self.limits.iter().rev().find(|(from, _)| *from <= now);
        earlier.expect("the first one holds from the start").1
    }

    /// What its headers say.
    pub(crate) fn quota(&self, now: Tick) -> Rate {
        let window = self.counts.window();
        Rate::new(self.limit(now) * seconds(window), window)
    }

    /// `None`: accepted. Else how long until a call can be accepted.
    pub(crate) fn refuses(&mut self, now: Tick) -> Option<Duration> {
        let limit = self.limit(now);
        match self.counts {
            Counts::Bucket => self.bucket_refuses(now, f64::from(limit)),
            Counts::Log => self.log_refuses(now, limit as usize),
            Counts::Seconds | Counts::Minutes => self.window_refuses(now, limit),
        }
    }

    fn bucket_refuses(&mut self, now: Tick, limit: f64) -> Option<Duration> {
        let filled = (now - self.filled_at).as_secs_f64() * limit;
        (self.tokens, self.filled_at) = ((self.tokens + filled).min(limit), now);
        if self.tokens < 1.0 {
            return Some(Duration::from_secs_f64((1.0 - self.tokens) / limit));
        }
        self.tokens -= 1.0;
        None
    }

    fn log_refuses(&mut self, now: Tick, limit: usize) -> Option<Duration> {
        while self.accepted.front().is_some_and(|at| *at + SECOND <= now) {
            self.accepted.pop_front();
        }
        if let Some(oldest) = self.accepted.len().checked_sub(limit) {
            return Some(self.accepted[oldest] + SECOND - now);
        }
        self.accepted.push_back(now);
        None
    }

    fn window_refuses(&mut self, now: Tick, limit: u32) -> Option<Duration> {
        let length = self.counts.window();
        let mut window = Tick::ZERO;
        if now >= self.origin {
            window = now.last_on_grid(self.origin, length);
        }
        if window != self.window {
            (self.window, self.used) = (window, 0);
        }
        if self.used >= limit * seconds(length) {
            let end = if now < self.origin {
                self.origin
            } else {
                window + length
            };
            return Some(end - now);
        }
        self.used += 1;
        None
    }
}

fn seconds(window: Duration) -> u32 {
    u32::try_from(window.as_secs()).expect("a minute at most")
}
