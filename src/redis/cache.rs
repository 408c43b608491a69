//! What a request queue remembers between round trips: a denial, and permits that no request has used yet. Pure: the caller passes the time.

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

/// Permits that Redis counted and no request has used: those taken ahead, or those whose request was dropped or changed its cost
/// meanwhile.
#[derive(Clone, Debug, Default)]
pub(super) struct SparePermits {
    /// Permits, and until when they can be used.
    batches: VecDeque<(u32, Tick)>,
}

impl SparePermits {
    pub(super) fn available(&mut self, now: Tick) -> u32 {
        self.batches
            .retain(|&(permits, until)| now < until && permits > 0);
        let permits = self.batches.iter().map(|(permits, _)| *permits);
        permits.fold(0, u32::saturating_add)
    }

    pub(super) fn add(&mut self, permits: u32, until: Tick) {
        self.batches.push_back((permits, until));
    }

    /// Takes permits, the first added first, and returns until when all of them can be used. `None` if there are not enough.
    pub(super) fn take(&mut self, now: Tick, mut cost: u32) -> Option<Tick> {
        if self.available(now) < cost {
            return None;
        }
        let mut first_end = None;
        for (permits, until) in &mut self.batches {
            if cost == 0 {
                break;
            }
            let taken = cost.min(*permits);
            *permits -= taken;
            cost -= taken;
            first_end = first_end.into_iter().chain([*until]).min();
        }
        first_end
    }

    pub(super) fn take_all(&mut self, now: Tick) -> u32 {
        let all = self.available(now);
        self.batches.clear();
        all
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
    fn the_permits_added_first_go_first_and_each_batch_is_void_after_its_time() {
        let mut spare = SparePermits::default();
        assert_eq!(spare.take(at(0), 1), None);
        spare.add(3, at(10));
        spare.add(4, at(20));
        assert_eq!(spare.take(at(0), 2), Some(at(10)));
        assert_eq!(spare.available(at(9)), 5);
        assert_eq!(spare.available(at(10)), 4);
        assert_eq!(spare.take(at(10), 5), None);
        assert_eq!(spare.take(at(19), 4), Some(at(20)));
        assert_eq!(spare.available(at(19)), 0);
    }

    #[test]
    fn permits_from_two_batches_can_be_used_until_the_first_of_them_ends() {
        for ends in [[10, 20], [20, 10]] {
            let mut spare = SparePermits::default();
            spare.add(3, at(ends[0]));
            spare.add(4, at(ends[1]));
            assert_eq!(spare.take(at(0), 5), Some(at(10)));
            assert_eq!(spare.available(at(0)), 2);
        }
    }

    #[test]
    fn a_batch_that_ends_before_an_earlier_one_is_void_too() {
        let mut spare = SparePermits::default();
        spare.add(3, at(20));
        spare.add(4, at(10));
        assert_eq!(spare.available(at(15)), 3);
        assert_eq!(spare.take_all(at(15)), 3);
        assert_eq!(spare.take_all(at(15)), 0);
    }

    #[test]
    fn the_number_of_permits_does_not_overflow() {
        let mut spare = SparePermits::default();
        spare.add(u32::MAX, at(5));
        spare.add(u32::MAX, at(5));
        assert_eq!(spare.take_all(at(4)), u32::MAX);
    }
}
