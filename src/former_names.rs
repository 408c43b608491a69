//! Options have names that begin with `with_`. Those that had others keep them here, deprecated.

use core::hash::Hash;
#[cfg(feature = "redis")]
use core::time::Duration;

use futures_core::{Stream, TryStream};

use crate::batch::Window;
use crate::concurrency::{Aimd, Gradient};
use crate::limiter::{Keyed, Owned, WhenFull};
use crate::policy::{Interval, OutOfRange, Policy, TokenBucket};
#[cfg(feature = "redis")]
use crate::redis::{ConfigError, RedisLimiter, RedisPolicy};
use crate::sink::GroupSends;
use crate::stream::{GroupedWithin, OnError, Pace, Sample, TryGroupedWithin};

#[doc(hidden)]
impl Interval {
    #[deprecated(note = "`with_delayed_start`")]
    #[must_use]
    pub const fn delayed(self) -> Self {
        self.with_delayed_start()
    }
}

#[doc(hidden)]
impl TokenBucket {
    #[deprecated(note = "`with_empty_start`")]
    #[must_use]
    pub const fn empty(self) -> Self {
        self.with_empty_start()
    }
}

#[doc(hidden)]
impl<K, P> Keyed<K, P>
where
    K: Hash + Eq + Clone,
    P: Policy + Send + 'static,
    P::State: Send,
{
    #[deprecated(note = "`with_max_keys`")]
    #[must_use]
    #[track_caller]
    pub fn max_keys(self, max: usize) -> Self {
        self.with_max_keys(max)
    }

    #[deprecated(note = "`try_with_max_keys`")]
    pub fn try_max_keys(self, max: usize) -> Result<Self, OutOfRange> {
        self.try_with_max_keys(max)
    }

    #[deprecated(note = "`with_when_full`")]
    #[must_use]
    pub fn when_full(self, when_full: WhenFull<P>) -> Self {
        self.with_when_full(when_full)
    }
}

#[doc(hidden)]
impl Aimd {
    #[deprecated(note = "`with_start`")]
    #[must_use]
    #[track_caller]
    pub const fn starting_at(self, limit: u32) -> Self {
        self.with_start(limit)
    }
}

#[doc(hidden)]
impl Gradient {
    #[deprecated(note = "`with_start`")]
    #[must_use]
    #[track_caller]
    pub fn starting_at(self, limit: u32) -> Self {
        self.with_start(limit)
    }
}

#[doc(hidden)]
impl<S: Stream, P: Policy> Pace<S, Owned<P>> {
    #[deprecated(note = "`with_count_from_next_poll`")]
    pub fn from_next_poll(self) -> Self {
        self.with_count_from_next_poll()
    }
}

#[doc(hidden)]
impl<S: Stream> Sample<S> {
    #[deprecated(note = "`with_keep_last`")]
    pub fn keep_last(self) -> Self {
        self.with_keep_last()
    }
}

#[doc(hidden)]
impl<S: Stream, F> GroupedWithin<S, F> {
    #[deprecated(note = "`with_window`")]
    pub fn window(self, window: Window) -> Self {
        self.with_window(window)
    }
}

#[doc(hidden)]
impl<S: TryStream, F> TryGroupedWithin<S, F> {
    #[deprecated(note = "`with_window`")]
    pub fn window(self, window: Window) -> Self {
        self.with_window(window)
    }

    #[deprecated(note = "`with_on_error`")]
    pub fn on_error(self, on_error: OnError) -> Self {
        self.with_on_error(on_error)
    }
}

#[doc(hidden)]
impl<S, Item> GroupSends<S, Item> {
    #[deprecated(note = "`with_window`")]
    pub fn window(self, window: Window) -> Self {
        self.with_window(window)
    }
}

#[cfg(feature = "redis")]
#[doc(hidden)]
impl<P: RedisPolicy> RedisLimiter<P> {
    #[deprecated(note = "`with_prefetch`")]
    pub fn prefetch(self, permits: u32, lasts: Duration) -> Result<Self, ConfigError> {
        self.with_prefetch(permits, lasts)
    }
}

#[cfg(feature = "redis")]
#[doc(hidden)]
impl<P: RedisPolicy> crate::redis::Keyed<P> {
    #[deprecated(note = "`with_long_keys_hashed`")]
    #[must_use]
    pub fn hashing_long_keys(self) -> Self {
        self.with_long_keys_hashed()
    }
}
