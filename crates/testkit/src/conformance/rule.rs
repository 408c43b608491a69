//! What every adapter and service promises, and how it may be broken.

use std::{fmt, panic::Location};

/// One promise.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Rule {
    /// It comes to an end: it neither hangs (an hour with nothing) nor spins (20,000 polls with nothing), nor goes on
    /// for ever (10,000 items).
    Alive,
    /// After every `Pending` a clone of the latest poll's waker exists or was woken, and wakes go to that waker.
    KeepsAWaker,
    /// Every item comes once, in order; from a lossy adapter, some of them, in order. What a sink refused it returned in
    /// an error.
    NothingLost,
    /// Waits that are given up change neither the items nor their instants, nor take anything from a limit.
    CancelSafe,
    /// Nothing is missing, whenever the adapter is taken apart: what came out, what it held and what the input still has
    /// are the whole input of a stream; what the inner sink was given and what it held are all that was sent into a sink.
    IntoParts,
    /// After a late wake-up or with a late task nothing is lost, and emissions or sends keep their spacing. No more
    /// requests pass at once than the limit of a service says.
    LateWakeUp,

    /// The input of a stream is not polled again after its end, even if the adapter is.
    InputAfterEnd,
    /// A stream ends in the instant of its last emission or of its input's end, whichever is later.
    EndsOnTime,
    /// `is_terminated` is false while anything is to come, and true after the end.
    Terminated,
    /// `size_hint` brackets what is to come, held items included.
    SizeHint,

    /// An inner sink is sent an item only after its `poll_ready` was ready.
    AsksFirst,
    /// Several calls of `poll_ready` of a sink are the same as one.
    AskingIsFree,
    /// A permit is taken when the inner sink takes the item: a slow inner sink never brings two sends closer.
    PermitLast,
    /// With nothing held, flushing and closing a sink wait for the inner sink alone.
    Prompt,
    /// After a flush the inner sink has all items that were sent, and is flushed.
    Flushes,
    /// The inner sink is closed once, after it has all items that were sent.
    Closes,
    /// An error of the inner sink or service is passed on at once and unchanged. Items that the inner sink was not given
    /// are sent after it. An item whose send fails before the inner sink was given it is not held: its producer sends it again.
    InnerErrors,

    /// The inner service is called by a clone that is ready, and no clone stays reserved after its request.
    ReadyMeansReady,
    /// Clones of a service that are ready and idle take nothing from the limit.
    ReadyTakesNothing,
    /// All clones of a service share one limit.
    ClonesShare,
    /// A body arrives down to its trailers or its error, and says the same about its length.
    BodyToItsEnd,
}

/// A rule that was broken, and how.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Violation {
    /// Which rule.
    pub rule: Rule,
    /// What happened, with the scene that shows it.
    pub detail: String,
}

impl Violation {
    pub(super) fn new(rule: Rule, detail: String) -> Self {
        Self { rule, detail }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.detail)
    }
}

/// Panics with the list of violations and the line of the caller, if there are any.
pub(super) fn assert_none(violations: &[Violation], caller: &Location<'_>) {
    let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
    assert!(
        lines.is_empty(),
        "does not conform, at {caller}:\n  {}",
        lines.join("\n  ")
    );
}
