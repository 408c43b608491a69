use crate::time::Tick;

/// What one client may use and has used in a cycle, in permits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ClientShare {
    /// What it may use in this cycle.
    pub(crate) size: u32,
    /// What it asked for in the cycle before, or on average: the number from which its size was made.
    pub(crate) demand: u32,
    /// What passed in this cycle.
    pub(crate) used: u32,
    /// What was refused in this cycle.
    pub(crate) refused: u64,
    /// What waits now.
    pub(crate) waiting: u64,
    /// By how much its size is below its default share.
    pub(crate) lent: u32,
    /// By how much its size is above its default share.
    pub(crate) borrowed: u32,
    /// How many requests passed since it is known.
    pub(crate) requests_passed: u64,
    /// How many requests were refused since it is known.
    pub(crate) requests_refused: u64,
}

/// The cycle that runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Cycle {
    /// How many cycles were before it. Cycles without a request count.
    pub(crate) number: u64,
    /// When it began.
    pub(crate) start: Tick,
    /// When it ends, unless a newcomer ends it before.
    pub(crate) end: Tick,
    /// The permits of a cycle.
    pub(crate) capacity: u32,
    /// How many of them are spent.
    pub(crate) spent: u32,
}
