//! What a limit for each key is asked.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// A contender with a limit for each key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keyed {
    pub(crate) name: &'static str,
    pub(crate) new: fn(KeyedLimit) -> Box<dyn Store>,
}

/// A token each `per_token`, and a burst.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyedLimit {
    pub(crate) per_token: Duration,
    pub(crate) burst: u32,
}

/// What each contender says for itself.
pub(crate) trait Ask: Send + Sync {
    fn ask(&self, key: u64, cost: u32) -> bool;

    fn keys(&self) -> usize;

    /// Forgets what it need not know, if that can be asked for.
    fn tidy(&self) {}

    /// Whether it can.
    fn needs_tidying(&self) -> bool {
        false
    }
}

/// Many questions at a time, so that the call through a pointer costs nothing.
pub(crate) trait Store: Ask {
    /// How many passed.
    fn ask_all(&self, keys: &[u64], cost: u32) -> usize;

    /// The longest that one of them took.
    fn slowest(&self, keys: &[u64], cost: u32) -> Duration;
}

impl<A: Ask> Store for A {
    fn ask_all(&self, keys: &[u64], cost: u32) -> usize {
        keys.iter()
            .filter(|&&key| black_box(self.ask(key, cost)))
            .count()
    }

    fn slowest(&self, keys: &[u64], cost: u32) -> Duration {
        let mut slowest = Duration::ZERO;
        for &key in keys {
            let start = Instant::now();
            black_box(self.ask(key, cost));
            slowest = slowest.max(start.elapsed());
        }
        slowest
    }
}
