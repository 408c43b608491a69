//! What a request queue remembers between round trips: a denial, and permits that no request has used yet; and what stays of a key
//! that is not in use. Pure: the caller passes the time.

use core::time::Duration;
use std::collections::VecDeque;

use paceline::time::Tick;

use super::Return;
use super::error::ServerError;
use super::request::Undecided;

/// Until a time, requests of at least this cost are denied without asking the server.
#[derive(Clone, Debug)]
pub(crate) struct CachedDenial {
    pub(crate) until: Tick,
    pub(crate) cost: u32,
    pub(crate) source: DenialSource,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum DenialSource {
    Server,
    /// The outage policy, because the server did not answer: an insurance, or a pause that is known.
    Fallback,
    /// The same, and the outage policy has nothing for the request.
    Outage,
    /// The server refused the call.
    Fault(ServerError),
}

impl CachedDenial {
    /// How long a request of that cost is denied.
    pub(crate) fn wait(&self, now: Tick, cost: u32) -> Option<Duration> {
        (now < self.until && self.cost <= cost).then(|| self.until.since(now))
    }

    pub(crate) fn is_of_server(&self) -> bool {
        self.source == DenialSource::Server
    }

    /// Whether the server did not answer.
    pub(crate) fn is_of_outage(&self) -> bool {
        matches!(self.source, DenialSource::Fallback | DenialSource::Outage)
    }

    /// Whether the server did not decide.
    pub(crate) fn is_undecided(&self) -> bool {
        matches!(self.source, DenialSource::Outage | DenialSource::Fault(_))
    }

    /// The server's error, until the server is asked again.
    pub(crate) fn fault(&self, now: Tick) -> Option<Undecided> {
        match &self.source {
            DenialSource::Fault(fault) if now < self.until => Some(Undecided::Fault(fault.clone())),
            _ => None,
        }
    }
}

/// What is known of a key. It is all that stays of a key that is not in use.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyRecord<M> {
    pub(crate) memory: M,
    /// When the memory was returned, by the server's clock.
    pub(crate) memory_from: u64,
    /// The end of the server's last denial, if the key is not in use.
    pub(crate) denied_until: Tick,
    pub(crate) denied_cost: u32,
    /// Which limit was the last to deny a request, from 0.
    pub(crate) binding: Option<u8>,
    /// How many requests of cost 1 would have passed after the reply with this memory,
    pub(crate) remaining: u32,
    /// and which limit had the least left, from 0. `None` before the first reply.
    pub(crate) scarcest: Option<u8>,
}

/// Permits that the server counted and no request has used: prefetched permits, or the permits of requests that were dropped or
/// have changed their cost.
#[derive(Clone, Debug, Default)]
pub(crate) struct SparePermits {
    /// Each batch can be used before its time.
    pub(super) batches: VecDeque<(Tick, Return)>,
}

impl SparePermits {
    pub(crate) fn available(&self, now: Tick) -> u32 {
        let usable = self.batches.iter().filter(|(until, _)| now < *until);
        let permits = usable.map(|(_, batch)| batch.cost);
        permits.fold(0, u32::saturating_add)
    }

    pub(crate) fn add(&mut self, permits: Return, until: Tick) {
        self.batches.push_back((until, permits));
    }

    /// Takes permits, the first added first. Returns until when all of them can be used, and when the first was counted. `None` if
    /// there are not enough.
    pub(crate) fn take(&mut self, now: Tick, mut cost: u32) -> Option<(Tick, u64)> {
        if self.batches.is_empty() || self.available(now) < cost {
            return None;
        }
        let (mut until, mut counted_at) = (Tick::MAX, u64::MAX);
        let usable = self.batches.iter_mut().filter(|(until, _)| now < *until);
        for (batch_until, batch) in usable {
            let taken = cost.min(batch.cost);
            if taken > 0 {
                until = until.min(*batch_until);
                counted_at = counted_at.min(batch.counted_at);
            }
            batch.cost -= taken;
            cost -= taken;
        }
        self.batches.retain(|(_, batch)| batch.cost > 0);
        Some((until, counted_at))
    }

    /// Takes the permits of one grant of exactly that cost. A part of them may be worth less: an interval and a debt are of the
    /// whole request, and so is what a limit of requests has counted.
    pub(crate) fn take_whole(&mut self, now: Tick, cost: u32) -> Option<(Tick, u64)> {
        let is_whole = |(until, batch): &(Tick, Return)| now < *until && batch.cost == cost;
        let index = self.batches.iter().position(is_whole)?;
        let (until, batch) = self.batches.remove(index)?;
        Some((until, batch.counted_at))
    }

    /// All permits, to be returned to the server.
    pub(crate) fn take_all(&mut self) -> Vec<Return> {
        self.batches.drain(..).map(|(_, batch)| batch).collect()
    }

    pub(crate) fn drop_expired(&mut self, now: Tick) {
        self.batches.retain(|(until, _)| now < *until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::error::{CallError, Failure};

    fn at(nanos: u64) -> Tick {
        Tick::from_nanos(nanos)
    }

    #[test]
    fn a_denial_covers_requests_of_at_least_its_cost_until_its_end() {
        let denial = CachedDenial {
            until: at(30),
            cost: 5,
            source: DenialSource::Server,
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
        assert_eq!(denial.fault(at(29)), Some(Undecided::Fault(fault.clone())));
        assert_eq!(denial.fault(at(30)), None);
        assert_eq!(denial.wait(at(29), 1), Some(Duration::from_nanos(1)));
    }

    fn returned(cost: u32, counted_at: u64) -> Return {
        Return {
            cost,
            requests: 1,
            counted_at,
        }
    }

    /// Batches of so many permits, counted at 1, 2 and so on, with their ends.
    fn spare<const N: usize>(batches: [(u32, u64); N]) -> SparePermits {
        let mut spare = SparePermits::default();
        for (counted_at, (cost, until)) in (1..).zip(batches) {
            spare.add(returned(cost, counted_at), at(until));
        }
        spare
    }

    #[test]
    fn the_permits_added_first_go_first_and_each_batch_is_void_after_its_time() {
        let mut spare = spare([(3, 10), (4, 20)]);
        assert_eq!(spare.take(at(0), 2), Some((at(10), 1)));
        assert_eq!(spare.available(at(9)), 5);
        assert_eq!(spare.available(at(10)), 4);
        assert_eq!(spare.take(at(10), 5), None);
        assert_eq!(spare.take(at(19), 4), Some((at(20), 2)));
        assert_eq!(spare.available(at(19)), 0);
        assert_eq!(spare.take(at(19), 1), None);
    }

    #[test]
    fn permits_from_two_batches_can_be_used_until_the_first_of_them_ends() {
        for ends in [[10, 20], [20, 10]] {
            let mut spare = spare([(3, ends[0]), (4, ends[1])]);
            assert_eq!(spare.take(at(0), 5), Some((at(10), 1)));
            assert_eq!(spare.available(at(0)), 2);
        }
    }

    #[test]
    fn void_permits_are_returned_with_the_time_of_their_grant_unless_they_were_dropped() {
        for (is_dropped, expected) in [
            (false, &[returned(3, 1), returned(4, 2)][..]),
            (true, &[returned(3, 1)]),
        ] {
            // The second batch ends before the first.
            let mut spare = spare([(3, 20), (4, 10)]);
            assert_eq!(spare.available(at(15)), 3);
            if is_dropped {
                spare.drop_expired(at(15));
            }
            assert_eq!(spare.take_all(), expected);
            assert_eq!(spare.take_all(), []);
        }
    }

    #[test]
    fn the_number_of_permits_does_not_overflow() {
        let mut spare = spare([(u32::MAX, 5); 2]);
        assert_eq!(spare.available(at(4)), u32::MAX);
        assert_eq!(spare.take(at(4), u32::MAX), Some((at(5), 1)));
        assert_eq!(spare.available(at(4)), u32::MAX);
    }
}
