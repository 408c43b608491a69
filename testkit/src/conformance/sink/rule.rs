//! What every sink adapter promises, and how it may be broken.

use std::fmt;

/// One promise of every sink adapter.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Rule {
    /// Every wait comes to an end: it neither hangs (an hour with nothing) nor spins (20,000 polls with nothing).
    Alive,
    /// After every `Pending` a clone of the latest poll's waker exists or was woken, and wakes go to that waker.
    KeepsAWaker,
    /// The inner sink is given every item once, in order; by a lossy adapter, some of them, in order. What was refused came
    /// back in an error.
    NothingLost,
    /// The inner sink is sent an item only when it has said that it is ready for it.
    AsksFirst,
    /// To be asked for its readiness several times changes nothing.
    AskingIsFree,
    /// A permit is taken when the inner sink takes the item: a slow one never brings two sends closer.
    PermitLast,
    /// With nothing held, flushing and closing wait for the inner sink alone.
    Prompt,
    /// When it says that it is flushed, the inner sink has all that was sent, and is flushed.
    Flushes,
    /// It closes the inner sink once, when that has all that was sent.
    Closes,
    /// An error of the inner sink is passed on at once and as it is. What the inner sink was not given is still sent after it.
    InnerErrors,
    /// Waits that are given up change neither what the inner sink is given nor when.
    CancelSafe,
    /// What the inner sink was given and what is held is all that was sent, whenever it is taken apart.
    IntoParts,
    /// After a late wake-up or with a late producer nothing is lost, and sends keep their spacing.
    LateWakeUp,
}

impl Rule {
    /// The promise, in a line.
    const fn promise(self) -> &'static str {
        match self {
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
