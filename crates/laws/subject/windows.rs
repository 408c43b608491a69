//! The policies that count in windows.

use std::time::Duration;

use paceline::policy::{FixedWindow, SlidingCounter, SlidingLog};
use proptest::prelude::{BoxedStrategy, Just, Strategy, prop_oneof};
use proptest::sample::select;

use super::super::model::{Buckets, List, Page};
use super::{Subject, Window, durations, nanos};

impl Subject for SlidingLog {
    type Model = List;

    fn any() -> BoxedStrategy<Self> {
        (limits(), windows())
            .prop_map(|(limit, window)| Self::new(limit, window))
            .boxed()
    }

    fn grain(&self) -> u64 {
        nanos(self.window() / self.limit()).max(1)
    }

    fn period(&self) -> u64 {
        nanos(self.window())
    }

    fn burst(&self) -> u32 {
        self.limit()
    }

    /// "A half-open window of the given length holds at most `limit`", and so m of them m · `limit`.
    fn allows(&self, window: &Window) -> bool {
        window.total <= touched(window, self.window()) * u128::from(self.limit())
    }
}

impl Subject for SlidingCounter {
    type Model = Buckets;

    const PHASED: bool = true;

    fn any() -> BoxedStrategy<Self> {
        let buckets = prop_oneof![1 => Just(None), 3 => select(&[1, 2, 3, 4, 5, 7, 10, 60, u32::MAX][..]).prop_map(Some)];
        (limits(), windows(), buckets)
            .prop_map(|(limit, window, buckets)| match buckets {
                Some(buckets) => Self::strict(limit, window, buckets),
                None => Self::smooth(limit, window),
            })
            .boxed()
    }

    fn grain(&self) -> u64 {
        let buckets = u128::from(self.buckets().unwrap_or(1));
        u64::try_from(self.window().as_nanos().div_ceil(buckets)).unwrap_or(u64::MAX)
    }

    fn period(&self) -> u64 {
        nanos(self.window())
    }

    fn burst(&self) -> u32 {
        self.limit()
    }

    fn quotas_in_a_window(&self) -> u128 {
        if self.buckets().is_some() { 1 } else { 2 }
    }

    fn sustains_its_quota(&self) -> bool {
        false
    }

    /// Strict: "a half-open window of the given length holds at most `limit`". Smooth: "less than 2 · `limit`".
    fn allows(&self, window: &Window) -> bool {
        let most = match self.buckets() {
            Some(_) => u128::from(self.limit()),
            None => 2 * u128::from(self.limit()) - 1,
        };
        window.total <= touched(window, self.window()) * most
    }
}

impl Subject for FixedWindow {
    type Model = Page;

    const PHASED: bool = true;

    fn any() -> BoxedStrategy<Self> {
        (limits(), windows())
            .prop_map(|(limit, window)| Self::new(limit, window))
            .boxed()
    }

    fn grain(&self) -> u64 {
        nanos(self.window())
    }

    fn burst(&self) -> u32 {
        self.limit()
    }

    fn quotas_in_a_window(&self) -> u128 {
        2
    }

    /// "Any half-open window of the given length holds at most 2 · `limit`": m of them touch m + 1.
    fn allows(&self, window: &Window) -> bool {
        window.total <= (touched(window, self.window()) + 1) * u128::from(self.limit())
    }
}

pub(super) fn limits() -> impl Strategy<Value = u32> {
    prop_oneof![
        6 => select(&[1, 2, 3, 7][..]),
        1 => Just(100),
        1 => Just(u32::MAX),
        1 => 1..=u32::MAX,
    ]
}

/// Some windows have fewer nanoseconds than buckets.
fn windows() -> impl Strategy<Value = Duration> {
    prop_oneof![
        4 => (1..50u64).prop_map(Duration::from_nanos),
        3 => select(&[1, 7, 100][..]).prop_map(Duration::from_nanos),
        2 => durations(),
    ]
}

/// The least m with span < m · `length`.
fn touched(window: &Window, length: Duration) -> u128 {
    u128::from(window.span) / length.as_nanos() + 1
}
