use paceline::policy::Decision;

/// The expected answer, as far as it is known.
#[derive(Debug)]
pub(crate) enum Expected {
    Sure(Decision),
    /// Waiters before this one may be overdue.
    Unsure,
}

impl Expected {
    pub(crate) fn allows(&self, is_such: impl Fn(Decision) -> bool) -> bool {
        match self {
            Self::Sure(decision) => is_such(*decision),
            Self::Unsure => true,
        }
    }

    /// An expected wait of zero is a wait of unknown length.
    pub(crate) fn agrees_with(&self, answer: Decision) -> bool {
        match *self {
            Self::Sure(Decision::Wait { retry_in }) if retry_in.is_zero() => is_wait(answer),
            Self::Sure(decision) if is_for_ever(decision) => is_for_ever(answer),
            Self::Sure(decision) => decision == answer,
            Self::Unsure => !is_never(answer),
        }
    }
}

pub(crate) fn is_wait(decision: Decision) -> bool {
    matches!(decision, Decision::Wait { .. })
}

pub(crate) fn is_never(decision: Decision) -> bool {
    matches!(decision, Decision::Never { .. })
}

/// A wait until about the last tick, which depends on the start of a clock.
fn is_for_ever(decision: Decision) -> bool {
    matches!(decision, Decision::Wait { retry_in } if retry_in.as_nanos() > u128::from(u64::MAX / 2))
}
