//! The promises of every sink adapter, and how they can be broken.

use std::fmt;

use crate::conformance::Violation;

/// One promise of every sink adapter.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Rule {
    /// Every wait ends: the adapter neither hangs (an hour without progress) nor spins (20,000 polls without progress).
    Alive,
    /// After every `Pending` a clone of the latest poll's waker exists or was woken, and wakes go to that waker.
    KeepsAWaker,
    /// The inner sink is given every item once, in order. A lossy adapter may drop items. Refused items were returned in an
    /// error.
    NothingLost,
    /// The inner sink is sent an item only after its `poll_ready` was ready.
    AsksFirst,
    /// Several calls of `poll_ready` are the same as one.
    AskingIsFree,
    /// A permit is taken when the inner sink takes the item: a slow inner sink never brings two sends closer.
    PermitLast,
    /// With nothing held, flushing and closing wait for the inner sink alone.
    Prompt,
    /// After a flush the inner sink has all items that were sent, and is flushed.
    Flushes,
    /// The inner sink is closed once, after it has all items that were sent.
    Closes,
    /// An error of the inner sink is passed on at once and unchanged. Items that the inner sink was not given are sent after it.
    InnerErrors,
    /// Waits that are given up change neither what the inner sink is given nor when.
    CancelSafe,
    /// The items that the inner sink was given and those held are all items sent, whenever the adapter is taken apart.
    IntoParts,
    /// After a late wake-up or with a late producer nothing is lost, and sends keep their spacing.
    LateWakeUp,
}

impl Rule {
    pub(super) fn broken(self, detail: impl Into<String>) -> Violation<Self> {
        Violation::new(self, detail)
    }
}

/// The promise, in a line.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Alive => "every wait comes to an end",
            Self::KeepsAWaker => "a pending sink wakes the task that polled it last",
            Self::NothingLost => "every item is sent once, in order",
            Self::AsksFirst => "the inner sink is asked before it is sent an item",
            Self::AskingIsFree => "asking again changes nothing",
            Self::PermitLast => "a slow inner sink keeps the spacing",
            Self::Prompt => "with nothing held, flush and close are not delayed",
            Self::Flushes => "a flush sends and flushes all there is",
            Self::Closes => "the inner sink is closed once, and last",
            Self::InnerErrors => "errors of the inner sink are passed on and cost nothing else",
            Self::CancelSafe => "a dropped wait changes nothing",
            Self::IntoParts => "taking it apart loses nothing",
            Self::LateWakeUp => "being late loses nothing and keeps the spacing",
        })
    }
}
