//! What a request queue remembers between round trips: a denial, permits taken ahead, and permits that no request claimed.
//! Pure: the caller passes the time.

use core::time::Duration;
use std::collections::VecDeque;

use crate::time::Tick;

use super::error::ServerError;

/// Until a time, requests of at least this cost are denied without asking Redis.
#[derive(Clone, Debug)]
pub(super) struct CachedDenial {
    pub(super) until: Tick,
    pub(super) cost: u32,
    pub(super) source: DenialSource,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum DenialSource {
    Redis,
    /// The outage policy, because Redis did not answer.
    Fallback,
    /// The server refused the call.
    Fault(ServerError),
}

impl CachedDenial {
    /// How long a request of that cost is denied.
    pub(super) fn wait(&self, now: Tick, cost: u32) -> Option<Duration> {
        (now < self.until && self.cost <= cost).then(|| self.until.since(now))
    }

    /// The server's error, until the server is asked again.
    pub(super) fn fault(&self, now: Tick) -> Option<&ServerError> {
        match &self.source {
            DenialSource::Fault(fault) if now < self.until => Some(fault),
            _ => None,
        }
    }
}

/// Permits taken ahead, in batches. Each batch is void after its time.
#[derive(Clone, Debug, Default)]
pub(super) struct Prefetched {
    /// Permits, and until when they can be used; the oldest batch first.
    batches: VecDeque<(u32, Tick)>,
}

impl Prefetched {
    pub(super) fn available(&mut self, now: Tick) -> u32 {
        let is_gone = |&(permits, until): &(u32, Tick)| until <= now || permits == 0;
        while self.batches.front().is_some_and(is_gone) {
            self.batches.pop_front();
        }
        self.batches.iter().map(|(permits, _)| permits).sum()
    }

    pub(super) fn add(&mut self, permits: u32, until: Tick) {
        self.batches.push_back((permits, until));
    }

    /// Takes the oldest permits, if there are enough.
    pub(super) fn take(&mut self, now: Tick, mut cost: u32) -> bool {
        if self.available(now) < cost {
            return false;
        }
        for (permits, _) in &mut self.batches {
            let taken = cost.min(*permits);
            *permits -= taken;
            cost -= taken;
        }
        true
    }
}

/// Permits that Redis counted for requests that were dropped or changed their cost meanwhile.
#[derive(Debug, Default)]
pub(super) struct Unclaimed {
    permits: u32,
    /// When the oldest of them was counted. All of them count as that old.
    counted_at: Tick,
}

impl Unclaimed {
    pub(super) fn add(&mut self, permits: u32, counted_at: Tick) {
        self.counted_at = match self.permits {
            0 => counted_at,
            _ => self.counted_at.min(counted_at),
        };
        self.permits = self.permits.saturating_add(permits);
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.permits == 0
    }

    /// Takes permits for another request, if there are enough, and returns when they were counted.
    pub(super) fn take(&mut self, cost: u32) -> Option<Tick> {
        self.permits = self.permits.checked_sub(cost)?;
        Some(self.counted_at)
    }

    pub(super) fn take_all(&mut self) -> u32 {
        core::mem::take(&mut self.permits)
    }

    /// Permits older than `time` are void.
    pub(super) fn drop_older_than(&mut self, now: Tick, time: Duration) {
        if now.since(self.counted_at) > time {
            self.permits = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::error::{CallError, Failure};

    fn at(nanos: u64) -> Tick {
        Tick::from_nanos(nanos)
    }

    #[test]
    fn a_denial_covers_requests_of_at_least_its_cost_until_its_end() {
        let denial = CachedDenial {
            until: at(30),
            cost: 5,
            source: DenialSource::Redis,
        };
        let waits = [(10, 5), (10, 9), (10, 4), (29, 5), (30, 5), (31, 5)];
        assert_eq!(
            waits.map(|(now, cost)| denial.wait(at(now), cost)),
            [Some(20), Some(20), None, Some(1), None, None]
                .map(|wait| wait.map(Duration::from_nanos))
        );
        assert_eq!(denial.fault(at(10)), None);
    }

    #[test]
    fn a_fault_is_returned_until_the_server_is_asked_again() {
        let fault = CallError::failed(Failure::Fault("WRONGTYPE".into()));
        let fault = fault.server_error().unwrap();
        let denial = CachedDenial {
            until: at(30),
            cost: 0,
            source: DenialSource::Fault(fault.clone()),
        };
        assert_eq!(denial.fault(at(29)), Some(&fault));
        assert_eq!(denial.fault(at(30)), None);
        assert_eq!(denial.wait(at(29), 1), Some(Duration::from_nanos(1)));
    }

    #[test]
    fn the_oldest_prefetched_permits_go_first_and_each_batch_is_void_after_its_time() {
        let mut prefetched = Prefetched::default();
        assert!(!prefetched.take(at(0), 1));
        prefetched.add(3, at(10));
        prefetched.add(4, at(20));
        assert!(prefetched.take(at(0), 2));
        assert_eq!(prefetched.available(at(9)), 5);
        assert_eq!(prefetched.available(at(10)), 4);
        assert!(!prefetched.take(at(10), 5));
        assert!(prefetched.take(at(19), 4));
        assert_eq!(prefetched.available(at(19)), 0);
    }

    #[test]
    fn one_request_may_take_from_two_batches() {
        let mut prefetched = Prefetched::default();
        prefetched.add(3, at(10));
        prefetched.add(4, at(20));
        assert!(prefetched.take(at(0), 5));
        let available = (prefetched.available(at(0)), prefetched.available(at(15)));
        assert_eq!(available, (2, 2));
    }

    const TEN: Duration = Duration::from_nanos(10);

    #[test]
    fn unclaimed_permits_are_as_old_as_the_oldest_of_them() {
        let mut unclaimed = Unclaimed::default();
        unclaimed.add(2, at(5));
        unclaimed.add(3, at(8));
        assert_eq!(unclaimed.take(6), None);
        assert_eq!(unclaimed.take(4), Some(at(5)));
        unclaimed.drop_older_than(at(15), TEN);
        assert_eq!(unclaimed.take_all(), 1);
        assert!(unclaimed.is_empty());
        unclaimed.add(1, at(20));
        assert_eq!(unclaimed.take(1), Some(at(20)));
    }

    #[test]
    fn unclaimed_permits_are_void_after_their_time_and_their_count_does_not_overflow() {
        let mut unclaimed = Unclaimed::default();
        unclaimed.add(u32::MAX, at(5));
        unclaimed.add(u32::MAX, at(5));
        unclaimed.drop_older_than(at(16), TEN);
        assert!(unclaimed.is_empty());
    }
}
