use paceline::policy::Decision;

/// What is known of an answer.
#[derive(Debug)]
pub(crate) enum Expected {
    Sure(Decision),
    /// Whether somebody stands before depends on patience.
    Unsure,
}

impl Expected {
    pub(crate) fn allows(&self, is_such: impl Fn(Decision) -> bool) -> bool {
        match self {
            Self::Sure(decision) => is_such(*decision),
            Self::Unsure => true,
        }
    }

    /// A wait of zero is one of which nobody knows how long it is.
    pub(crate) fn is_told(&self, answer: Decision) -> bool {
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

/// Up to about the last tick, and that depends on when a clock was started.
fn is_for_ever(decision: Decision) -> bool {
    matches!(decision, Decision::Wait { retry_in } if retry_in.as_nanos() > u128::from(u64::MAX / 2))
}
