use core::future::Future;
use core::hash::Hash;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

use crate::policy::Policy;

use super::acquire::{Passage, PassageInTime};
use super::{AcquireError, Gate, KeyedAt, TooCostly};

/// Future of [`Keyed::acquire`](super::Keyed::acquire).
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` or poll them"]
pub struct AcquireAt<K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    passage: Passage<KeyedAt<K, P>>,
}

impl<K, P> AcquireAt<K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    pub(super) const fn new(gate: Gate<KeyedAt<K, P>>, cost: u32) -> Self {
        Self {
            passage: Passage::new(gate, cost),
        }
    }
}

impl<K, P> Future for AcquireAt<K, P>
where
    K: Hash + Eq + Clone + Unpin,
    P: Policy + Send + 'static,
    P::State: Send,
{
    type Output = Result<(), TooCostly>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.passage.poll(cx)
    }
}

/// Future of [`Keyed::acquire_within`](super::Keyed::acquire_within).
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` or poll them"]
pub struct AcquireWithinAt<K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    passage: PassageInTime<KeyedAt<K, P>>,
}

impl<K, P> AcquireWithinAt<K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    pub(super) const fn new(gate: Gate<KeyedAt<K, P>>, cost: u32, within: Duration) -> Self {
        Self {
            passage: PassageInTime::new(gate, cost, within),
        }
    }
}

impl<K, P> Future for AcquireWithinAt<K, P>
where
    K: Hash + Eq + Clone + Unpin,
    P: Policy + Send + 'static,
    P::State: Send,
{
    type Output = Result<(), AcquireError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.passage.poll(cx)
    }
}
