use super::link::Failure;

/// How calls to Redis ended, each cause apart. All counts are since the [`Redis`](super::Redis) was opened.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Calls that were answered.
    pub answered: u64,
    /// Calls without an answer within the deadline, waiting for a connection included. Redis may have counted them.
    pub timeouts: u64,
    /// Calls whose connection could not be made, or broke. Redis may have counted them.
    pub unreachable: u64,
    /// Calls to a server that could not serve: it was loading, a replica, out of memory, or without its cluster.
    pub unavailable: u64,
    /// Calls that the server refused and will refuse again: a fault in how it is used. They are no outage.
    pub faults: u64,
    /// Calls that were not made, since Redis was known to be down.
    pub skipped: u64,
    /// How often Redis went down.
    pub outages: u64,
    /// How often a connection was made.
    pub connects: u64,
    /// States that were gone or older than known, so that all of the limit counted as spent.
    pub lost_states: u64,
    /// Requests that passed while Redis was down, by [`OutagePolicy::open`](super::OutagePolicy::open) or an insurance.
    pub passed_alone: u64,
    /// Leases that ended before they were given back: see [`Lease`](super::Lease).
    pub lost_leases: u64,
}

impl Stats {
    pub(super) const fn of(&mut self, failure: &Failure) -> &mut u64 {
        match failure {
            Failure::Timeout => &mut self.timeouts,
            Failure::Unreachable(_) => &mut self.unreachable,
            Failure::Unavailable(_) => &mut self.unavailable,
            Failure::Fault(_) => &mut self.faults,
        }
    }
}
