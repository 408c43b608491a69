//! What every stream adapter promises, and how it may be broken.

use std::fmt;

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
    /// The promise, in a line.
    const fn promise(self) -> &'static str {
        match self {
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
        }
    }

    pub(super) fn broken(self, detail: impl Into<String>) -> Violation {
        Violation {
            rule: self,
            detail: detail.into(),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.promise())
    }
}

/// A rule that was broken, and how.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Violation {
    /// Which rule.
    pub rule: Rule,
    /// What happened, with the schedule that shows it.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, detail } = self;
        write!(f, "{rule:?} ({rule}): {detail}")
    }
}
