//! Every adapter goes through the suite.

use std::convert::Infallible;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Sink;
use paceline::limiter::{Limiter, Owned, TooCostly};
use paceline::policy::{Decision, Interval, SlidingLog, TokenBucket};
use paceline::prelude::*;
use paceline::sink::{
    EnforceSends, Exceeded, GroupSends, PaceSends, PaceSendsByCost, SendError, Window,
};
use paceline::time::Rate;
use testkit::conformance::sink::{Failure, Inner, InnerError, Unmovable, check_unmovable};
use testkit::conformance::{Parcel, Subject};

use crate::timed::ms;

const D: Duration = ms(100);

/// An adapter that refuses no item.
fn adapter<A, T, H>(
    build: impl Fn(Inner<T>) -> A + 'static,
    into_parts: impl Fn(A) -> (Inner<T>, H) + 'static,
) -> Subject
where
    A: Sink<u32, Error = InnerError> + Send + Sync + Unpin + 'static,
    T: Parcel,
    H: Parcel,
{
    Subject::sink_in_parts(build, Failure::Inner, into_parts).scale(D)
}

/// The meaning of an error of an adapter that refuses items.
fn refusing<R: 'static>(
    into_item: fn(R) -> u32,
) -> impl Fn(SendError<InnerError, R>) -> Failure + 'static {
    move |error| match error {
        SendError::Inner(error) => Failure::Inner(error),
        SendError::Refused(refused) => Failure::Refused(into_item(refused)),
    }
}

/// An interval that cannot peek without counting, and needs two polls to answer, like a limit on another machine.
struct Remote {
    limit: Owned<Interval>,
    is_asked: bool,
}

fn remote() -> Remote {
    Remote {
        limit: Interval::every(D).owned(),
        is_asked: false,
    }
}

impl Limiter for Remote {
    type Error = Infallible;

    fn poll_decide(
        &mut self,
        cost: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Decision, Infallible>> {
        self.is_asked = !self.is_asked && cost > 0;
        if self.is_asked {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.limit.poll_decide(cost, cx)
    }

    fn give_up(&mut self) {
        self.is_asked = false;
    }
}

/// With the limit that is not in memory most items are held for a while.
#[tokio::test(start_paused = true)]
async fn pace_sends() {
    let build = |inner: Inner<u32>| inner.pace_sends(Interval::every(D).owned());
    let subject = adapter(build, PaceSends::into_parts);
    subject.spacing(D).check().await;
    let limit = || Interval::every(D).with_delayed_start().shared();
    let build = move |inner: Inner<u32>| inner.pace_sends(limit());
    let subject = adapter(build, PaceSends::into_parts);
    subject.spacing(D).check().await;
    let build = |inner: Inner<u32>| inner.pace_sends(remote());
    let subject = adapter(build, PaceSends::into_parts);
    subject.spacing(D).check().await;
    let limit = || TokenBucket::new(Rate::new(3, D), 2).owned();
    let bucket = move |inner: Inner<u32>| inner.pace_sends(limit());
    adapter(bucket, PaceSends::into_parts).check().await;
    let window = |inner: Inner<u32>| inner.pace_sends(SlidingLog::new(2, D).shared());
    adapter(window, PaceSends::into_parts).check().await;
}

/// Items that cost nothing, 1, more, and more than the limit can ever grant.
#[tokio::test(start_paused = true)]
async fn pace_sends_by_cost() {
    let build = |inner: Inner<u32>| {
        let limit = TokenBucket::new(Rate::new(3, D), 3).shared();
        inner.pace_sends_by_cost(limit, |item| item % 5)
    };
    let too_costly = refusing(TooCostly::into_item);
    let subject = Subject::sink_in_parts(build, too_costly, PaceSendsByCost::into_parts);
    subject.scale(D).check().await;
    let build = |inner: Inner<u32>| inner.pace_sends_by_cost(Interval::every(D).owned(), |_| 1);
    let too_costly = refusing(TooCostly::into_item);
    let subject = Subject::sink_in_parts(build, too_costly, PaceSendsByCost::into_parts);
    subject.spacing(D).check().await;
}

#[tokio::test(start_paused = true)]
async fn enforce_sends() {
    let build = |inner: Inner<u32>| inner.enforce_sends(Interval::every(D).owned());
    let exceeded = refusing(Exceeded::into_item);
    let subject = Subject::sink_in_parts(build, exceeded, EnforceSends::into_parts);
    subject.spacing(D).check().await;
    let build = |inner: Inner<u32>| inner.enforce_sends(remote());
    let exceeded = refusing(Exceeded::into_item);
    let subject = Subject::sink_in_parts(build, exceeded, EnforceSends::into_parts);
    subject.spacing(D).check().await;
}

#[tokio::test(start_paused = true)]
async fn shed_sends() {
    let build = |inner: Inner<u32>| inner.shed_sends(Interval::every(D).shared());
    let subject = adapter(build, |adapter| adapter.into_parts());
    subject.lossy().spacing(D).check().await;
}

#[tokio::test(start_paused = true)]
async fn group_sends() {
    for window in [Window::FirstItem, Window::LastGroup, Window::Grid] {
        for max in [1, 3, usize::MAX] {
            let build = move |inner: Inner<Vec<u32>>| inner.group_sends(max, D).with_window(window);
            adapter(build, GroupSends::into_parts).check().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn groups_with_a_spacing() {
    let build = |inner: Inner<Vec<u32>>| {
        let paced = inner.pace_sends(Interval::every(D).owned());
        paced.group_sends(3, D)
    };
    let into_parts = |adapter: GroupSends<PaceSends<_, _, _>, u32>| {
        let (paced, held) = adapter.into_parts();
        let (inner, group) = paced.into_parts();
        (inner, [group.unwrap_or_default(), held].concat())
    };
    adapter(build, into_parts).spacing(D).check().await;
}

#[tokio::test(start_paused = true)]
async fn inner_sinks_need_not_be_unpin() {
    type One = Unmovable<u32>;
    type Many = Unmovable<Vec<u32>>;
    let limit = || Interval::every(D).owned();
    check_unmovable(|inner: One| inner.pace_sends(limit()), Failure::Inner).await;
    let by_cost = |inner: One| inner.pace_sends_by_cost(limit(), |_| 1);
    check_unmovable(by_cost, refusing(TooCostly::into_item)).await;
    let enforce = |inner: One| inner.enforce_sends(limit());
    check_unmovable(enforce, refusing(Exceeded::into_item)).await;
    check_unmovable(|inner: One| inner.shed_sends(limit()), Failure::Inner).await;
    check_unmovable(|inner: Many| inner.group_sends(3, D), Failure::Inner).await;
}
