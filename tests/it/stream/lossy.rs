//! The lossy adapters count every item that they drop, at every moment.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;

use futures::{FutureExt, Stream, StreamExt};
use paceline::prelude::*;
use paceline::stream::{Debounce, Sample, ThrottleFirst};
use testkit::clock::jump;

use crate::timed::{arriving, ms};

/// Several items in one instant, some at a multiple of 100 ms, some near it.
const ARRIVALS: [u64; 14] = [
    0, 0, 30, 100, 100, 101, 199, 300, 450, 451, 600, 600, 700, 999,
];

/// Leaps of the clock to instants, between them and far behind them.
const LEAPS: [u64; 12] = [0, 50, 50, 1, 49, 130, 70, 100, 220, 29, 301, 100];

/// How many items the input has emitted.
type Arrived = Rc<Cell<u64>>;

/// An input that counts its items.
fn input(arrived: &Arrived) -> Pin<Box<dyn Stream<Item = u64>>> {
    let arrived = Rc::clone(arrived);
    let counted = arriving((0..).zip(ARRIVALS).map(|(n, at)| (at, n)), 1_050)
        .inspect(move |_| arrived.set(arrived.get() + 1));
    Box::pin(counted)
}

/// Polls now and then, and compares the counts after each poll.
async fn adds_up<S: Stream + Unpin>(
    build: impl Fn(Pin<Box<dyn Stream<Item = u64>>>) -> S,
    count: impl Fn(&S) -> u64,
    split: impl Fn(S) -> u64,
) {
    for leaps in 0..=LEAPS.len() {
        let arrived = Arrived::default();
        let mut adapter = build(input(&arrived));
        let mut emitted = 0;
        for leap in &LEAPS[..leaps] {
            while let Some(Some(_)) = adapter.next().now_or_never() {
                emitted += 1;
            }
            let dropped = count(&adapter);
            assert!(
                arrived.get() - emitted - dropped <= 1,
                "after {leaps} leaps"
            );
            jump(ms(*leap)).await;
        }
        let dropped = count(&adapter);
        let held = split(adapter);
        assert_eq!(
            emitted + dropped + held,
            arrived.get(),
            "after {leaps} leaps"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn every_item_is_accounted_for() {
    let d = ms(100);
    let held = |item: Option<u64>| u64::from(item.is_some());
    adds_up(
        |input| input.debounce(d),
        Debounce::dropped_count,
        |adapter| held(adapter.into_parts().1),
    )
    .await;
    for keeps_last in [false, true] {
        adds_up(
            |input| {
                let sampled = input.sample(d);
                if keeps_last {
                    sampled.with_keep_last()
                } else {
                    sampled
                }
            },
            Sample::dropped_count,
            |adapter| held(adapter.into_parts().1),
        )
        .await;
    }
    adds_up(
        |input| input.throttle_first(d),
        ThrottleFirst::dropped_count,
        |_| 0,
    )
    .await;
}
