//! The outage policies of the workers.

use clap::ValueEnum;
use paceline_redis::OutagePolicy;
use serde::Serialize;

use crate::fleet::WORKERS;

/// The choices of [`OutagePolicy`].
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Policy {
    /// Nothing passes.
    Closed,
    /// Each worker continues with a third of the limit, which starts empty.
    Insured,
    /// Everything passes.
    Open,
}

impl Policy {
    pub(crate) const fn when_down(self) -> OutagePolicy {
        match self {
            Self::Closed => OutagePolicy::closed(),
            Self::Insured => OutagePolicy::insured(WORKERS),
            Self::Open => OutagePolicy::open(),
        }
    }

    /// Whether the policy promises to keep the quota while Redis is down.
    pub(crate) const fn promises(self) -> bool {
        matches!(self, Self::Closed | Self::Insured)
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Insured => "insured",
            Self::Open => "open",
        }
    }
}
