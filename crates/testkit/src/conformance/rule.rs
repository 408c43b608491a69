//! What every stream adapter promises, and how it may be broken.

use std::fmt;

use super::Violation;

/// One promise of every stream adapter.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Rule {
    /// It comes to an end: it neither hangs (an hour with nothing) nor spins (20,000 polls with nothing), nor goes on
    /// giving (10,000 items).
    Alive,
    /// After every `Pending` a clone of the latest poll's waker exists or was woken, and wakes go to that waker.
    KeepsAWaker,
    /// Every item comes once, in order; from a lossy adapter, some of them, in order.
    NothingLost,
    /// The input is not polled again after its end, even if the adapter is.
    InputAfterEnd,
    /// It ends in the instant of its last emission or of its input's end, whichever is later.
    EndsOnTime,
    /// `is_terminated` is false while anything is to come, and true after the end.
    Terminated,
    /// `size_hint` brackets what is to come, held items included.
    SizeHint,
    /// Futures dropped while they wait for an item change neither the items nor their instants.
    CancelSafe,
    /// What came out, what is held and what the input still has are the whole input, whenever it is taken apart.
    IntoParts,
    /// After a late wake-up or with a late consumer nothing is lost, and emissions keep their spacing.
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
            Self::Alive => "it comes to an end",
            Self::KeepsAWaker => "a pending stream wakes the task that polled it last",
            Self::NothingLost => "every item comes once, in order",
            Self::InputAfterEnd => "the input is not polled after its end",
            Self::EndsOnTime => "the end is not delayed",
            Self::Terminated => "`is_terminated` is true after the end, and not before",
            Self::SizeHint => "`size_hint` brackets what is to come",
            Self::CancelSafe => "a dropped wait changes nothing",
            Self::IntoParts => "taking it apart loses nothing",
            Self::LateWakeUp => "being late loses nothing and keeps the spacing",
        })
    }
}
