use core::time::Duration;

/// What one client of a [`Fair`](crate::limiter::Fair) limit may use and has used in this cycle, in permits. With a guaranteed share a cycle is one
/// since the limit is used.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ClientShare<K> {
    /// The client. `None` for all those together that are beyond the largest number of clients.
    pub key: Option<K>,
    /// What it may use in this cycle; of a guaranteed share, that share.
    pub size: u32,
    /// Its demand in the cycle before, or on average, with refused and waiting requests: its size follows from it.
    pub demand: u32,
    /// The permits that passed or were charged in this cycle, as far as the cycle had them.
    pub used: u32,
    /// What was refused in this cycle.
    pub refused: u64,
    /// What waits now.
    pub waiting: u64,
    /// By how much its size is below its default share; 0 of a guaranteed share.
    pub lent: u32,
    /// By how much its size is above its default share; of a guaranteed share, by how much it has used more.
    pub borrowed: u32,
    /// How many requests have passed since it is remembered.
    pub requests_passed: u64,
    /// How many requests were refused since it is remembered.
    pub requests_refused: u64,
}

/// The cycle of a [`Fair`](crate::limiter::Fair) limit that is under way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct FairCycle {
    /// How many cycles were before it, those without a request included.
    pub number: u64,
    /// The permits of a cycle.
    pub capacity: u32,
    /// How many of them are spent.
    pub spent: u32,
    /// How long ago it began.
    pub began_ago: Duration,
    /// When it ends, unless a new client ends it before.
    pub ends_in: Duration,
}
