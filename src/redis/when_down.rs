/// What a limit answers while Redis is slow or gone.
///
/// There is no right choice, only one that fits: see the guide on [failing safely](crate::redis#when-redis-is-slow-or-gone).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OutagePolicy {
    kind: Kind,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Open,
    Closed,
    Insured { replicas: u32 },
}

impl OutagePolicy {
    /// Everything passes: for limits that protect a service of your own, where a refusal costs more than a surplus.
    #[must_use]
    pub const fn open() -> Self {
        Self { kind: Kind::Open }
    }

    /// Nothing passes until Redis is back: for quotas where a surplus costs more than to stand still.
    #[must_use]
    pub const fn closed() -> Self {
        Self { kind: Kind::Closed }
    }

    /// A limit in memory goes on, at the part of this one that each of so many replicas may use alone.
    ///
    /// It starts empty-handed when the outage begins, since all may have been spent just before: a bucket fills from nothing,
    /// and of a window nothing passes until a whole one is over. So it is in Redis after a long outage. Together the replicas never pass more than the limit,
    /// as long as there are no more of them than said here. (If only some cannot reach Redis, these pass their parts beside
    /// what the others still pass there.)
    ///
    /// # Panics
    ///
    /// If `replicas` is zero.
    #[must_use]
    #[track_caller]
    pub const fn insured(replicas: u32) -> Self {
        assert!(replicas > 0, "an insurance needs at least 1 replica, got 0");
        Self {
            kind: Kind::Insured { replicas },
        }
    }

    pub(super) const fn kind(self) -> Kind {
        self.kind
    }
}
