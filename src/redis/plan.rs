use core::time::Duration;
use std::sync::Arc;

use super::ConfigError;
use super::twin::{RedisPolicy, Twin};
use super::when_down::{Kind, OutagePolicy};

/// What is fixed of a limit, and the same for all keys.
#[derive(Debug)]
pub(super) struct Plan<P> {
    pub(super) policy: P,
    pub(super) twins: Vec<Twin>,
    pub(super) alone: Alone<P>,
    pub(super) lease: Option<Lease>,
}

/// What it does without Redis.
#[derive(Clone, Debug)]
pub(super) enum Alone<P> {
    Open,
    Closed,
    /// This policy goes on, in memory.
    Insured(P),
}

/// Permits to be taken ahead.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    pub(super) permits: u32,
    pub(super) lasts: Duration,
}

impl<P: RedisPolicy> Plan<P> {
    pub(super) fn new(policy: P, when_down: OutagePolicy) -> Result<Self, ConfigError> {
        let twins = policy.twins()?;
        let alone = match when_down.kind() {
            Kind::Open => Alone::Open,
            Kind::Closed => Alone::Closed,
            Kind::Insured { replicas } => Alone::Insured(policy.share_of(replicas)?),
        };
        Ok(Self {
            policy,
            twins,
            alone,
            lease: None,
        })
    }

    pub(super) fn with_lease(&self, lease: Lease) -> Self
    where
        P: Clone,
    {
        Self {
            policy: self.policy.clone(),
            twins: self.twins.clone(),
            alone: self.alone.clone(),
            lease: Some(lease),
        }
    }

    pub(super) const fn is_insured(&self) -> bool {
        matches!(self.alone, Alone::Insured(_))
    }

    /// The largest cost that can pass.
    pub(super) fn capacity(&self) -> u32 {
        self.twins
            .iter()
            .map(Twin::capacity)
            .min()
            .unwrap_or(u32::MAX)
    }

    /// The keys of the limits of `name`, which is in the form that [`tagged`](super::key::tagged) gives it.
    pub(super) fn keys(&self, name: &str) -> Arc<[String]> {
        let key = |(number, twin): (usize, &Twin)| match self.twins.len() {
            1 => format!("{name}:{}", twin.policy()),
            _ => format!("{name}:{number}:{}", twin.policy()),
        };
        self.twins.iter().enumerate().map(key).collect()
    }
}
