use core::time::Duration;

use crate::time::{OutOfRange, Tick};

/// How urgent a request is that waits. It decides about the order of the queue, and not about what passes. In a queue
/// [by deadline](crate::limiter::Shared::by_deadline) it decides nothing.
///
/// A class above is worth some time of waiting, 10 s unless [`with_ageing`](crate::limiter::Shared::with_ageing) says otherwise. A request
/// is served as if it had come that much earlier than a request of the class below. So no request starves: one of `Low` is served before
/// every one of `High` that comes 20 s after it. Requests of one class are served first come, first served.
///
/// ```
/// use paceline::limiter::Priority;
/// use paceline::prelude::*;
/// use tokio::time::Instant;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let limit = Interval::every(Duration::from_millis(100)).shared();
/// let urgent = limit.clone().with_priority(Priority::High);
/// limit.acquire_one().await;
///
/// let start = Instant::now();
/// let batch = [(); 5].map(|()| tokio::spawn(limit.acquire_owned(1)));
/// tokio::task::yield_now().await;
/// urgent.acquire_one().await;
/// assert_eq!(start.elapsed(), Duration::from_millis(100), "the next slot, before five that wait");
/// # for one in batch { one.await.unwrap().unwrap() }
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
#[doc(alias("class", "weight", "importance"))]
pub enum Priority {
    /// Before the others.
    High,
    /// That of a handle which was given none.
    #[default]
    Normal,
    /// After the others.
    Low,
}

/// What a class above is worth.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ageing(Duration);

/// With more, the times of several classes would not fit into a tick.
const MOST: Duration = Duration::from_secs(365 * 86_400);

impl Ageing {
    pub(super) const DEFAULT: Self = Self(Duration::from_secs(10));

    pub(super) fn try_new(ageing: Duration) -> Result<Self, OutOfRange> {
        if ageing > MOST {
            let message = "a class is worth at most a year of waiting, 31536000s";
            return Err(OutOfRange::new("ageing", message).got_time(ageing));
        }
        Ok(Self(ageing))
    }

    /// The instant by which a request is ordered that comes `now`: a year later, which leaves room for classes above.
    pub(super) fn order(self, now: Tick, priority: Priority) -> Tick {
        now.after(match priority {
            Priority::High => MOST.saturating_sub(self.0),
            Priority::Normal => MOST,
            Priority::Low => MOST + self.0,
        })
    }
}
