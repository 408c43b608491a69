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
use testkit::conformance::Parcel;
use testkit::conformance::sink::{Failure, Inner, InnerError, Subject, Unmovable, check_unmovable};

use crate::timed::ms;

const D: Duration = ms(100);

/// An adapter that refuses no item, and can be taken apart.
fn adapter<A, T, H>(
    build: impl FnMut(Inner<T>) -> A + 'static,
    into_parts: impl FnMut(A) -> (Inner<T>, H) + 'static,
) -> Subject<A, T>
where
    A: Sink<u32, Error = InnerError> + Send + Sync + Unpin,
    T: Parcel,
    H: Parcel,
{
    let subject = Subject::new(build, Failure::Inner);
    subject.into_parts(into_parts).scale(D)
}

fn exceeded(error: SendError<InnerError, Exceeded<u32>>) -> Failure {
    match error {
        SendError::Inner(error) => Failure::Inner(error),
        SendError::Refused(refused) => Failure::Refused(refused.into_item()),
    }
}

fn too_costly(error: SendError<InnerError, TooCostly<u32>>) -> Failure {
    match error {
        SendError::Inner(error) => Failure::Inner(error),
        SendError::Refused(refused) => Failure::Refused(refused.into_item()),
    }
}

#[tokio::test(start_paused = true)]
async fn pace_sends() {
    let build = |inner: Inner<u32>| inner.pace_sends(Interval::every(D).owned());
    let subject = adapter(build, PaceSends::into_parts);
    subject.spacing(D).check().await;
}

#[tokio::test(start_paused = true)]
async fn pace_sends_over_a_shared_limit() {
    let limit = || Interval::every(D).with_delayed_start().shared();
    let build = move |inner: Inner<u32>| inner.pace_sends(limit());
    let subject = adapter(build, PaceSends::into_parts);
    subject.spacing(D).check().await;
}

#[tokio::test(start_paused = true)]
async fn pace_sends_over_a_bucket_and_a_window() {
    let limit = || TokenBucket::new(Rate::new(3, D), 2).owned();
    let bucket = move |inner: Inner<u32>| inner.pace_sends(limit());
    adapter(bucket, PaceSends::into_parts).check().await;
    let window = |inner: Inner<u32>| inner.pace_sends(SlidingLog::new(2, D).shared());
    adapter(window, PaceSends::into_parts).check().await;
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

/// With this limit most items are held for a while.
#[tokio::test(start_paused = true)]
async fn pace_sends_over_a_limit_that_is_not_in_memory() {
    let build = |inner: Inner<u32>| inner.pace_sends(remote());
    let subject = adapter(build, PaceSends::into_parts);
    subject.spacing(D).check().await;
}

#[tokio::test(start_paused = true)]
async fn enforce_sends_over_a_limit_that_is_not_in_memory() {
    let subject = Subject::new(|inner: Inner<u32>| inner.enforce_sends(remote()), exceeded);
    let subject = subject.into_parts(EnforceSends::into_parts);
    subject.spacing(D).check().await;
}

/// Items that cost nothing, 1, more, and more than the limit can ever grant.
#[tokio::test(start_paused = true)]
async fn pace_sends_by_cost() {
    let build = |inner: Inner<u32>| {
        let limit = TokenBucket::new(Rate::new(3, D), 3).shared();
        inner.pace_sends_by_cost(limit, |item| item % 5)
    };
    let subject = Subject::new(build, too_costly).into_parts(PaceSendsByCost::into_parts);
    subject.scale(D).check().await;
}

#[tokio::test(start_paused = true)]
async fn pace_sends_by_cost_keeps_a_spacing() {
    let build = |inner: Inner<u32>| inner.pace_sends_by_cost(Interval::every(D).owned(), |_| 1);
    let subject = Subject::new(build, too_costly).into_parts(PaceSendsByCost::into_parts);
    subject.spacing(D).check().await;
}

#[tokio::test(start_paused = true)]
async fn enforce_sends() {
    let build = |inner: Inner<u32>| inner.enforce_sends(Interval::every(D).owned());
    let subject = Subject::new(build, exceeded).into_parts(EnforceSends::into_parts);
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
    let limit = || Interval::every(D).owned();
    check_unmovable(|inner: One| inner.pace_sends(limit()), Failure::Inner).await;
    check_unmovable(
        |inner: One| inner.pace_sends_by_cost(limit(), |_| 1),
        too_costly,
    )
    .await;
    check_unmovable(|inner: One| inner.enforce_sends(limit()), exceeded).await;
    check_unmovable(|inner: One| inner.shed_sends(limit()), Failure::Inner).await;
    check_unmovable(
        |inner: Unmovable<Vec<u32>>| inner.group_sends(3, D),
        Failure::Inner,
    )
    .await;
}
