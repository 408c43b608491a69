use std::pin::pin;
use std::task::{Context, Poll, ready};

use futures::stream::{self, FusedStream};
use futures::{Stream, StreamExt};
use paceline::limiter::{Limiter, Owned};
use paceline::policy::{Decision, Interval};
use paceline::prelude::*;

use crate::timed::{arriving, assert_left, drained, ms, now, since};

/// A permit each 100 ms. After some permits it fails for good.
struct Failing {
    limit: Owned<Interval>,
    permits: u32,
}

impl Failing {
    fn after(permits: u32) -> Self {
        let limit = Interval::every(ms(100)).owned();
        Self { limit, permits }
    }
}

impl Limiter for Failing {
    type Error = &'static str;

    fn poll_decide(
        &mut self,
        cost: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Decision, &'static str>> {
        let Ok(decision) = ready!(self.limit.poll_decide(cost, cx));
        if decision.is_pass() && cost > 0 {
            let Some(left) = self.permits.checked_sub(1) else {
                return Poll::Ready(Err("refused"));
            };
            self.permits = left;
        }
        Poll::Ready(Ok(decision))
    }

    fn give_up(&mut self) {}
}

#[tokio::test(start_paused = true)]
async fn the_error_of_the_limiter_is_the_last_item_and_the_parts_have_what_was_not_emitted() {
    let mut paced = stream::iter(1..=5).try_pace(Failing::after(2));
    assert_eq!(paced.size_hint(), (1, Some(5)));
    let left = drained(paced.by_ref()).await;
    assert_left(
        &left,
        [(0, Ok(1)), (100, Ok(2)), (200, Err("refused"))],
        200,
    );

    assert!(paced.is_terminated());
    assert_eq!(paced.size_hint(), (0, Some(0)));
    assert_eq!(paced.next().await, None);
    let (input, held) = paced.into_parts();
    assert_eq!(held, Some(3));
    assert_eq!(input.collect::<Vec<_>>().await, [4, 5]);
}

#[tokio::test(start_paused = true)]
async fn a_limiter_that_would_fail_is_not_asked_without_an_item() {
    let start = now();
    let mut paced = pin!(arriving([(300, 1)], 400).try_pace(Failing::after(1)));
    assert_eq!(paced.next().await, Some(Ok(1)));
    assert_eq!(paced.next().await, None);
    assert_eq!(since(start), 400);
}
