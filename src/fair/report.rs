use crate::time::Tick;

/// What one client may use and has used in a cycle, in permits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ClientShare {
    /// What it may use in this cycle.
    pub size: u32,
    /// What it asked for in the cycle before, or on average: the number from which its size was made.
    pub demand: u32,
    /// What passed in this cycle.
    pub used: u32,
    /// What was refused in this cycle.
    pub refused: u64,
    /// What waits now.
    pub waiting: u64,
    /// By how much its size is below its default share.
    pub lent: u32,
    /// By how much its size is above its default share.
    pub borrowed: u32,
    /// How many requests passed since it is known.
    pub requests_passed: u64,
    /// How many requests were refused since it is known.
    pub requests_refused: u64,
}

/// The cycle that runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Cycle {
    /// How many cycles were before it. Cycles without a request count.
    pub number: u64,
    /// When it began.
    pub start: Tick,
    /// When it ends, unless a newcomer ends it before.
    pub end: Tick,
    /// The permits of a cycle.
    pub capacity: u32,
    /// How many of them are spent.
    pub spent: u32,
}
