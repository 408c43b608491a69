//! What each kind of queue is worth when requests come twice as fast as they can be served, and an answer is useful for half a
//! second.

use std::convert;
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

type Kind = fn(Permits) -> Permits;

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

#[tokio::test(start_paused = true)]
async fn the_newest_first_and_an_estimate_keep_answers_in_time_and_the_order_of_arrival_does_not() {
    let newest_first = |permits: Permits| permits.with_newest_first(OVERLOADED_AFTER);
    let estimated = Permits::with_estimated_wait;
    let (waits_on, gives_up) = (Duration::MAX, ms(IN_TIME));
    let within = Some(WITHIN);
    for (name, kind, within, patience, ends) in [
        (
            "in order",
            convert::identity as Kind,
            None,
            waits_on,
            [90, 900, 0, 0],
        ),
        ("newest first", newest_first, None, waits_on, [990, 0, 0, 0]),
        (
            "in order, impatient",
            convert::identity,
            None,
            gives_up,
            [90, 900, 900, 0],
        ),
        (
            "newest first, impatient",
            newest_first,
            None,
            gives_up,
            [990, 0, 950, 0],
        ),
        (
            "in order, within",
            convert::identity,
            within,
            waits_on,
            [990, 0, 920, 0],
        ),
        (
            "estimated, within",
            estimated,
            within,
            waits_on,
            [990, 0, 961, 961],
        ),
    ] {
        let [useful, late, refused, at_once] = ends;
        let expected = Ends {
            useful,
            late,
            refused,
            at_once,
        };
        let answered = overload(kind(Permits::new(10)), within, patience).await;
        assert_eq!(answered, expected, "{name}");
    }
}
