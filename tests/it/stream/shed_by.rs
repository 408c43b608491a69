use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use futures::{FutureExt, Stream, StreamExt, stream};
use paceline::concurrency::Admit;
use paceline::prelude::*;
use paceline::shed::{Class, WorkerUtilization};

use crate::timed::{arriving, assert_left, drained, ms};

/// A shedder that answers after some polls, and sheds the odd classes. It counts its answers.
#[derive(Clone, Default)]
pub(crate) struct Slow {
    polls: u32,
    waited: u32,
    asked: Arc<AtomicU32>,
}

impl Slow {
    pub(crate) fn after(polls: u32) -> Self {
        Self {
            polls,
            ..Self::default()
        }
    }
}

impl Admit<u32> for Slow {
    type Guard = Option<()>;
    type Error = Infallible;

    fn poll_admit(
        &mut self,
        class: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Option<()>>, Infallible>> {
        if self.waited < self.polls {
            self.waited += 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.waited = 0;
        self.asked.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Ok((class % 2 == 0).then_some(None)))
    }

    fn give_up(&mut self) {}
}

const fn class(item: u32) -> Class {
    match item {
        0..10 => Class::Sheddable(0),
        10..20 => Class::Sheddable(1),
        _ => Class::Critical,
    }
}

/// The first class is gone after 20 ms, and the second after 30.
fn overloaded() -> WorkerUtilization {
    let shedder = WorkerUtilization::new(|| 1.0).with_classes(2);
    let shedder = shedder
        .try_with_period(ms(5))
        .unwrap()
        .try_with_delay(ms(10))
        .unwrap();
    shedder.try_with_ramp(ms(20)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn drops_and_counts_items_that_the_shedder_refuses() {
    let arrivals = [0, 9, 21, 22, 31, 32, 33]
        .into_iter()
        .zip([1, 2, 3, 11, 12, 21, 4]);
    let shedder = overloaded();
    let mut shed = Box::pin(arriving(arrivals, 40).shed_by(shedder.clone(), |item| class(*item)));
    let left = drained(shed.by_ref()).await;
    // Of the second class nothing is shed before 20 ms.
    assert_left(&left, [(0, 1), (9, 2), (22, 11), (32, 21)], 40);
    assert_eq!(shed.shed_count(), 3);
    let counted = shedder.stats().iter().map(|class| class.shed).sum::<u64>();
    assert_eq!(counted, 3);
}

#[tokio::test(start_paused = true)]
async fn each_item_is_asked_about_once() {
    let shedder = Slow::default();
    let asked = Arc::clone(&shedder.asked);
    let shed = stream::iter(0..100).shed_by(shedder, |item| *item);
    assert_eq!(shed.count().await, 50);
    assert_eq!(asked.load(Ordering::Relaxed), 100);
}

#[tokio::test(start_paused = true)]
async fn holds_and_returns_the_item_while_an_answer_is_under_way() {
    let mut shed = stream::iter([2, 3, 4]).shed_by(Slow::after(1), |item| *item);
    assert!(shed.next().now_or_never().is_none());
    assert_eq!(shed.size_hint(), (0, Some(3)));
    assert_eq!(shed.next().now_or_never(), Some(Some(2)));
    assert!(shed.next().now_or_never().is_none());
    let (rest, held) = shed.into_parts();
    assert_eq!(held, Some(3));
    assert_eq!(rest.collect::<Vec<_>>().await, [4]);
}

#[tokio::test(start_paused = true)]
async fn the_class_of_an_item_may_depend_on_those_before() {
    let mut seen = 0;
    let every_third = move |_: &char| {
        seen += 1;
        u32::from(seen % 3 != 0)
    };
    let shed = stream::iter('a'..='i').shed_by(Slow::default(), every_third);
    assert_eq!(shed.collect::<String>().await, "cfi");
}
