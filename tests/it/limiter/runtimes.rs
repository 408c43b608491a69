//! Streams that move to another runtime, on the real clock: lower bounds and liveness only.

use std::time::Duration;

use futures::{StreamExt, poll, stream};
use paceline::policy::Interval;
use paceline::prelude::*;
use tokio::runtime::{Builder, Runtime};

use crate::timed::ms;

const LONG: Duration = Duration::from_secs(20);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

#[test]
fn a_stream_goes_on_in_another_runtime() {
    let mut paced = stream::iter(0..3).min_interval(ms(20));
    let there = runtime();
    there.block_on(async {
        paced.next().await;
        assert!(poll!(paced.next()).is_pending());
    });
    drop(there);

    let here = runtime();
    let rest = async { tokio::time::timeout(LONG, paced.next()).await };
    assert_eq!(here.block_on(rest), Ok(Some(1)));

    // The runtime it came from still exists, and does not run.
    let idle = runtime();
    idle.block_on(async { assert!(poll!(paced.next()).is_pending()) });
    let rest = async { tokio::time::timeout(LONG, paced.next()).await };
    assert_eq!(here.block_on(rest), Ok(Some(2)));
}

#[test]
fn a_stream_by_key_goes_on_in_another_runtime() {
    let limits = Interval::every(ms(20)).keyed::<u32>();
    let mut paced = Box::pin(stream::iter([1, 2, 3]).pace_by_key(limits, |_| 0, 10));
    let (idle, here) = (runtime(), runtime());
    idle.block_on(async {
        paced.next().await;
        assert!(poll!(paced.next()).is_pending());
    });
    let rest = async { tokio::time::timeout(LONG, paced.next()).await };
    assert_eq!(here.block_on(rest), Ok(Some(2)));
}
