use core::time::Duration;
use std::sync::Arc;

use crate::time::Tick;

use super::breaker::Breaker;
use super::link::{Failure, Hello, Link, NoAnswer};
use super::sight::Sight;
use super::stats::Stats;

/// How long it waits between two attempts to connect: at first, and at most.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// What is known of the connection: told the time and what happened, and pure.
#[derive(Default)]
pub(super) struct State {
    pub(super) calls: u64,
    pub(super) phase: Phase,
    breaker: Breaker,
    pub(super) sight: Sight,
    /// Before the next attempt to connect. It grows until a connection was of use.
    pub(super) pause: Duration,
    pub(super) stats: Stats,
    pub(super) last_failure: Option<Failure>,
}

#[derive(Default)]
pub(super) enum Phase {
    #[default]
    Idle,
    /// The first attempt is under way, or the first after a connection broke: calls wait for it.
    Connecting,
    Up(Arc<dyn Link>),
    /// Calls fail at once. Attempts go on.
    Down,
    /// The same, since the server is well and does not let us in. That is no outage.
    Refused(Failure),
}

/// What is to be done after a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Next {
    Nothing,
    /// A new connection is needed, and nobody makes one yet.
    Connect,
    /// Those who wait for a connection are not to wait for it.
    Tell,
}

impl State {
    /// How a call ended.
    pub(super) fn record(
        &mut self,
        now: Tick,
        used: Option<&Arc<dyn Link>>,
        answer: &Result<Vec<i64>, NoAnswer>,
    ) -> Next {
        let failure = match answer {
            Ok(answer) => {
                self.stats.answered += 1;
                if self.is_current(used) {
                    self.is_of_use();
                    self.sight.seen(now, server_time(answer));
                }
                return Next::Nothing;
            }
            Err(NoAnswer::Skipped) => {
                self.stats.skipped += 1;
                return Next::Nothing;
            }
            Err(NoAnswer::Failed(failure)) => failure,
        };
        *self.stats.of(failure) += 1;
        self.last_failure = Some(failure.clone());
        if !self.is_current(used) {
            return Next::Nothing;
        }
        if failure.is_fault() {
            self.is_of_use();
            return Next::Nothing;
        }
        self.sight.lost(now);
        let was_connecting = matches!(self.phase, Phase::Connecting);
        if self.breaker.failed() {
            self.go_down();
        } else if matches!(failure, Failure::Unreachable(_)) {
            self.phase = Phase::Connecting;
        } else {
            return Next::Nothing;
        }
        if was_connecting {
            Next::Tell
        } else {
            Next::Connect
        }
    }

    pub(super) fn connected(&mut self, now: Tick, link: Arc<dyn Link>, hello: Hello) {
        if !matches!(self.phase, Phase::Connecting) {
            self.breaker = Breaker::half_open();
        }
        self.phase = Phase::Up(link);
        // Until it is of use.
        self.pause = longer(self.pause);
        self.sight.regained(now, hello);
        self.stats.connects += 1;
    }

    pub(super) fn not_connected(&mut self, now: Tick, failure: Failure) {
        self.last_failure = Some(failure.clone());
        self.pause = longer(self.pause);
        if failure.is_fault() {
            self.phase = Phase::Refused(failure);
        } else {
            self.sight.lost(now);
            self.go_down();
        }
    }

    /// Whether a call that used that connection, or waited for one, says something of the one that there is.
    fn is_current(&self, used: Option<&Arc<dyn Link>>) -> bool {
        match (&self.phase, used) {
            (Phase::Up(link), Some(used)) => Arc::ptr_eq(link, used),
            (Phase::Connecting, None) => true,
            _ => false,
        }
    }

    const fn is_of_use(&mut self) {
        self.breaker.succeeded();
        self.pause = Duration::ZERO;
    }

    fn go_down(&mut self) {
        if !matches!(self.phase, Phase::Down) {
            self.phase = Phase::Down;
            self.stats.outages += 1;
        }
    }
}

fn longer(pause: Duration) -> Duration {
    (pause * 2).clamp(PAUSE, LONGEST_PAUSE)
}

fn server_time(answer: &[i64]) -> u64 {
    let time = answer.first().copied().unwrap_or(0);
    u64::try_from(time).unwrap_or(0)
}
