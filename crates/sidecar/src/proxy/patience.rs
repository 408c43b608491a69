use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::now;
use crate::config::Timeouts;

/// Notices that nothing moves. It belongs to a connection and is used again, since a timer for each request costs more than the
/// rest of the waiting.
///
/// It looks a few times within the shortest limit, and at least each second, so it is late by up to two such periods and never early.
#[derive(Debug)]
pub(super) struct Patience {
    tick: Interval,
    /// What had moved at a tick, and since when nothing more has.
    quiet: Option<(u64, Instant)>,
}

impl Patience {
    pub(super) fn new(timeouts: &Timeouts) -> Self {
        let shortest = timeouts.response.min(timeouts.body);
        let period = (shortest / 8).clamp(Duration::from_millis(5), Duration::from_secs(1));
        let mut tick = interval_at(now() + period, period);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { tick, quiet: None }
    }

    /// Another wait begins.
    pub(super) fn begin(&mut self) {
        self.quiet = None;
    }

    /// Ready when `moved` has been the same for the limit.
    pub(super) fn poll_over(
        &mut self,
        cx: &mut Context<'_>,
        moved: u64,
        limit: Duration,
    ) -> Poll<()> {
        while self.tick.poll_tick(cx).is_ready() {
            let now = now();
            match self.quiet {
                Some((seen, since)) if seen == moved => {
                    if now.saturating_duration_since(since) >= limit {
                        return Poll::Ready(());
                    }
                }
                _ => self.quiet = Some((moved, now)),
            }
        }
        Poll::Pending
    }
}
