//! How healthy the server is: calls counted by how they ended, the circuit breaker, and the times of outages and restarts. Pure:
//! the caller passes the time.

use core::ops::Range;
use core::time::Duration;
use std::sync::Arc;

use paceline::time::Tick;

use super::error::Failure;

/// How calls to Redis ended, by cause. Each count starts when the [`Redis`](crate::Redis) is opened.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct ServerStats {
    /// Calls that were answered.
    pub answered: u64,
    /// Calls without an answer within the deadline, including the wait for a connection. Redis may have counted them: if the
    /// answer comes within a second, and nothing passes in an outage, their permits are given back. If Redis is down by then, they
    /// are given back on the next connection, if that is made within ten seconds. Otherwise they stay counted.
    pub timeouts: u64,
    /// Calls without a connection, or with a broken one. Redis may have counted them.
    pub unreachable: u64,
    /// Calls to a server that could not serve: it was loading, a replica, out of memory, or without its cluster.
    pub unavailable: u64,
    /// Calls that the server refused and will refuse again: a fault in how Redis is used. They are no outage.
    pub faults: u64,
    /// Calls that were not made because Redis was known to be down.
    pub skipped: u64,
    /// How often Redis went down.
    pub outages: u64,
    /// How often a connection was made.
    pub connects: u64,
    /// States that were missing or older than known, so that the whole limit counted as spent.
    pub lost_states: u64,
    /// Requests that passed without Redis, by [`OutagePolicy::open`](crate::OutagePolicy::open),
    /// [`always_open`](crate::OutagePolicy::always_open) or an insurance.
    pub passed_alone: u64,
    /// Leases that ended before they were given back: see [`Lease`](crate::Lease).
    pub lost_leases: u64,
}

impl ServerStats {
    pub(crate) const fn of(&mut self, failure: &Failure) -> &mut u64 {
        match failure {
            Failure::Timeout => &mut self.timeouts,
            Failure::Unreachable(_) => &mut self.unreachable,
            Failure::Unavailable(_) => &mut self.unavailable,
            Failure::Fault(_) => &mut self.faults,
        }
    }
}

/// A circuit breaker. It opens after three consecutive failures, or when half of the last sixteen calls failed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Breaker {
    /// One bit for each of the last calls, the latest lowest: 1 for a failure.
    failed: u16,
}

const CONSECUTIVE: u32 = 3;
const HALF: u32 = u16::BITS / 2;

impl Breaker {
    /// For a connection after an outage: the first failure opens the breaker again, unless a success comes before.
    pub(crate) const fn half_open() -> Self {
        Self {
            failed: (1 << (CONSECUTIVE - 1)) - 1,
        }
    }

    pub(crate) const fn succeeded(&mut self) {
        self.failed <<= 1;
    }

    /// Records a failure, and returns whether the breaker is open now.
    pub(crate) const fn failed(&mut self) -> bool {
        self.failed = self.failed << 1 | 1;
        self.failed.trailing_ones() >= CONSECUTIVE || self.failed.count_ones() >= HALF
    }
}

/// One server process, from its start to its end.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ServerRun {
    pub(crate) id: Arc<str>,
    /// In whole seconds.
    pub(crate) uptime: u64,
    /// By which policy the server deletes keys when its memory is full, if it does.
    pub(crate) evicts: Option<Arc<str>>,
}

/// The times of the server and of its outages. The server's times are microseconds since 1970.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ServerHealth {
    /// The start of the outage that goes on now, by the local clock. No two outages have the same start.
    pub(crate) down_since: Option<Tick>,
    /// The same by the server's clock, if that was ever read.
    down_from: Option<u64>,
    /// The last outage by the server's clock; both ends are 0 if there was none. During an outage other processes may have used
    /// fallbacks, which the server does not know of.
    pub(crate) last_outage: Range<u64>,
    /// The last restart of the server, which may have lost its data; both ends are 0 if there was none. State that was written
    /// before the start may be out of date. At the end this process reached the server again, and until then fallbacks may have
    /// been in use.
    pub(crate) restart: Range<u64>,
    /// The last reading of the server's clock, and the local time of that reading.
    last_seen: Option<(Tick, u64)>,
    run_id: Option<Arc<str>>,
    /// Whether a connection was made since the last failure. It may still be of no use.
    has_reconnected: bool,
}

impl ServerHealth {
    /// The server answered a call: any outage is over.
    pub(crate) fn answered(&mut self, now: Tick, time: u64) {
        if !self.has_reconnected {
            self.set_last_outage(now, time);
        }
        self.down_since = None;
        self.last_seen = Some((now, time));
    }

    /// Whether the server has answered a call, or a new connection was made, at that time or later.
    pub(crate) fn has_answered_since(&self, since: Tick) -> bool {
        self.last_seen.is_some_and(|(seen, _)| seen >= since)
    }

    /// The server did not answer.
    pub(crate) fn failed(&mut self, now: Tick) {
        self.has_reconnected = false;
        if self.down_since.is_none() {
            self.down_since = Some(now);
            self.down_from = self.server_time(now);
        }
    }

    /// The server's clock `now`, rather a little too early than too late. `None` if it was never read.
    pub(crate) fn server_time(&self, now: Tick) -> Option<u64> {
        let (here, there) = self.last_seen?;
        Some(there.saturating_add(micros(now.since(here))))
    }

    /// There is a new connection. `run` is `None` for a cluster, and if the server does not say.
    ///
    /// The outage ends with the first answer, not here: otherwise every connection that turns out to be of no use would start a
    /// new outage, and with it a new insurance.
    pub(crate) fn reconnected(&mut self, now: Tick, run: Option<ServerRun>, time: u64) {
        if self.was_restarted(now, run.as_ref()) {
            let uptime = run.as_ref().map_or(0, |run| run.uptime);
            self.restart = time.saturating_sub(uptime.saturating_mul(SECOND))..time;
        }
        self.run_id = run.map(|run| run.id);
        self.set_last_outage(now, time);
        self.has_reconnected = true;
        self.last_seen = Some((now, time));
    }

    /// A server that does not say which run it is counts as restarted.
    fn was_restarted(&self, now: Tick, run: Option<&ServerRun>) -> bool {
        if self.last_seen.is_some() {
            return run.is_none() || run.map(|run| &run.id) != self.run_id.as_ref();
        }
        // The first connection. If attempts failed before, the server may have been started since the first of them.
        match (self.down_since, run) {
            (Some(since), Some(run)) => {
                run.uptime.saturating_mul(SECOND) <= micros(now.since(since)) + SECOND
            }
            _ => false,
        }
    }

    fn set_last_outage(&mut self, now: Tick, time: u64) {
        if let Some(since) = self.down_since {
            let by_length = || time.saturating_sub(micros(now.since(since)));
            self.last_outage = self.down_from.unwrap_or_else(by_length)..time;
        }
    }
}

/// In microseconds. The server states its uptime in whole seconds.
const SECOND: u64 = 1_000_000;

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_breaker_opens_after_three_failures_or_half_of_the_last_calls_and_half_open_after_one() {
        let one_in_three = "x..".repeat(100);
        for (mut breaker, calls, opens_at) in [
            (Breaker::default(), "xx.xxx", Some(5)),
            (Breaker::default(), ".x.x.x.x.x.x.x.x", Some(15)),
            (Breaker::default(), &one_in_three, None),
            (Breaker::half_open(), "x", Some(0)),
            (Breaker::half_open(), ".xxx", Some(3)),
        ] {
            let opened = calls.bytes().position(|call| {
                if call == b'x' {
                    return breaker.failed();
                }
                breaker.succeeded();
                false
            });
            assert_eq!(opened, opens_at, "{calls}");
        }
    }

    fn at(millis: u64) -> Tick {
        Tick::from_nanos(millis * 1_000_000)
    }

    fn run(id: &str, uptime: u64) -> ServerRun {
        let id = id.into();
        ServerRun {
            id,
            uptime,
            evicts: None,
        }
    }

    fn connected_once() -> ServerHealth {
        let mut health = ServerHealth::default();
        health.reconnected(at(0), Some(run("a", 50)), 100 * SECOND);
        health
    }

    #[test]
    fn the_first_connection_is_trusted() {
        let health = connected_once();
        assert_eq!((health.down_since, health.last_outage), (None, 0..0));
        assert_eq!(health.restart, 0..0);
    }

    #[test]
    fn a_first_connection_after_failures_is_trusted_unless_the_server_started_since() {
        for (uptime, is_trusted) in [(50, true), (4, true), (3, false), (0, false)] {
            let mut health = ServerHealth::default();
            health.failed(at(0));
            health.reconnected(at(2_000), Some(run("a", uptime)), 100 * SECOND);
            let restart = (100 - uptime) * SECOND..100 * SECOND;
            let expected = if is_trusted { 0..0 } else { restart };
            assert_eq!(health.restart, expected, "{uptime}");
            let last_outage = 98 * SECOND..100 * SECOND;
            assert_eq!(health.last_outage, last_outage);
        }
    }

    #[test]
    fn a_connection_that_answers_nothing_does_not_end_the_outage() {
        let mut health = connected_once();
        health.failed(at(1_000));
        health.reconnected(at(2_000), Some(run("a", 52)), 102 * SECOND);
        assert_eq!(health.down_since, Some(at(1_000)));
        health.failed(at(2_500));
        health.reconnected(at(4_000), Some(run("a", 54)), 104 * SECOND);
        assert_eq!(health.down_since, Some(at(1_000)));
        let last_outage = 101 * SECOND..104 * SECOND;
        assert_eq!(health.last_outage, last_outage);
        health.answered(at(60_000), 160 * SECOND);
        assert_eq!((health.down_since, health.last_outage), (None, last_outage));
    }

    #[test]
    fn an_outage_is_stated_in_the_servers_time() {
        let mut health = connected_once();
        health.failed(at(2_000));
        health.failed(at(3_000));
        assert_eq!(health.down_since, Some(at(2_000)));
        health.answered(at(5_000), 105 * SECOND);
        assert_eq!(health.down_since, None);
        assert_eq!(health.last_outage, 102 * SECOND..105 * SECOND);
        assert_eq!(health.restart, 0..0);
        health.failed(at(6_000));
        assert_eq!(health.down_since, Some(at(6_000)));
    }

    #[test]
    fn another_run_id_is_a_restart_and_the_same_run_id_is_not() {
        let mut health = connected_once();
        health.reconnected(at(1_000), Some(run("a", 51)), 101 * SECOND);
        assert_eq!(health.restart, 0..0);
        health.reconnected(at(2_000), Some(run("b", 1)), 102 * SECOND);
        assert_eq!(health.restart, 101 * SECOND..102 * SECOND);
    }

    #[test]
    fn a_server_without_a_run_id_counts_as_restarted() {
        let mut health = connected_once();
        health.reconnected(at(1_000), None, 101 * SECOND);
        assert_eq!(health.restart, 101 * SECOND..101 * SECOND);
    }
}
