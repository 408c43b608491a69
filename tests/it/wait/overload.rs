//! What each kind of queue is worth when requests come twice as fast as they can be served, and an answer is useful for half a
//! second.

use std::ops::AddAssign;
use std::time::Duration;

use paceline::concurrency::Permits;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::timed::{ms, now, since, sleep};

const CALL: u64 = 100;
const IN_TIME: u64 = 500;
/// A permit that comes later is of no use to a call.
const WITHIN: u64 = IN_TIME - CALL;
const OVERLOADED_AFTER: Duration = Duration::from_millis(100);

/// How many requests were answered in time, too late, and not at all.
#[derive(Debug, Default, Eq, PartialEq)]
struct Ends {
    useful: u32,
    late: u32,
    refused: u32,
    /// Of these at once.
    at_once: u32,
}

impl AddAssign<(bool, u64)> for Ends {
    fn add_assign(&mut self, (is_answered, after): (bool, u64)) {
        let in_time = is_answered && after <= IN_TIME;
        self.useful += u32::from(in_time);
        self.late += u32::from(is_answered && !in_time);
        self.refused += u32::from(!is_answered);
        self.at_once += u32::from(!is_answered && after == 0);
    }
}

/// For ten seconds a request comes every 5 ms, and ten permits serve one every 10 ms.
async fn overload(permits: Permits, within: Option<u64>, patience: Duration) -> Ends {
    let start = now();
    let mut requests = JoinSet::new();
    while since(start) < 10_000 {
        let permits = permits.clone();
        requests.spawn(async move {
            let start = now();
            let acquire = async {
                match within {
                    Some(within) => permits.acquire_within(ms(within)).await.ok(),
                    None => Some(permits.acquire().await),
                }
            };
            let permit = timeout(patience, acquire).await.ok().flatten();
            if permit.is_some() {
                sleep(CALL).await;
            }
            (permit.is_some(), since(start))
        });
        sleep(5).await;
    }
    let mut ends = Ends::default();
    while let Some(end) = requests.try_join_next() {
        ends += end.expect("no request panics");
    }
    ends
}

const fn ends(useful: u32, late: u32, refused: u32, at_once: u32) -> Ends {
    Ends {
        useful,
        late,
        refused,
        at_once,
    }
}

#[tokio::test(start_paused = true)]
async fn in_order_of_arrival_nearly_every_answer_is_late_and_with_the_newest_first_none() {
    let newest = || Permits::new(10).with_newest_first(OVERLOADED_AFTER);
    let waits_on = Duration::MAX;
    assert_eq!(
        overload(Permits::new(10), None, waits_on).await,
        ends(90, 900, 0, 0)
    );
    assert_eq!(overload(newest(), None, waits_on).await, ends(990, 0, 0, 0));

    let gives_up = ms(IN_TIME);
    assert_eq!(
        overload(Permits::new(10), None, gives_up).await,
        ends(90, 900, 900, 0)
    );
    assert_eq!(
        overload(newest(), None, gives_up).await,
        ends(990, 0, 950, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn with_an_estimate_every_request_that_would_be_late_is_refused_at_once() {
    let permits = Permits::new(10);
    assert_eq!(
        overload(permits, Some(WITHIN), Duration::MAX).await,
        ends(990, 0, 920, 0)
    );
    let permits = Permits::new(10).with_estimated_wait();
    assert_eq!(
        overload(permits, Some(WITHIN), Duration::MAX).await,
        ends(990, 0, 961, 961)
    );
}
