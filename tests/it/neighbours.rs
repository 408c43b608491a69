//! Our extension traits beside those of `futures` and `tokio_stream`: no method name may be ambiguous.
#![expect(
    unused_imports,
    reason = "that the traits can be imported together is the test"
)]

use std::future::ready;
use std::time::Duration;

use futures::SinkExt as _;
use futures::StreamExt as _;
use futures::TryStreamExt as _;
use futures::{sink, stream};
use paceline::concurrency::Permits;
use paceline::policy::Interval;
use paceline::prelude::*;
use paceline::shed::{Class, WorkerUtilization};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_stream::StreamExt as _;

#[tokio::test(start_paused = true)]
async fn every_method_can_be_called_beside_the_neighbours_traits() {
    let d = Duration::from_millis(1);
    let limit = Interval::every(d).shared();

    let _ = stream::iter([1]).pace(limit.clone());
    let _ = stream::iter([1]).try_pace(limit.clone());
    let _ = stream::iter([1]).min_interval(d);
    let _ = stream::iter([1]).pace_by_cost(limit.clone(), |cost| *cost);
    let now = crate::timed::now();
    let _ = stream::iter([1]).pace_by_deadline(limit.clone(), |_| now, 1);
    let _ = stream::iter([1]).pace_by_key(Interval::every(d).keyed(), |key| *key, 1);
    let _ = stream::iter([1]).try_pace_by_key(Interval::every(d).keyed(), |key| *key, 1);
    let limits = Interval::every(d).keyed();
    let _ = stream::iter([1]).pace_by_key_and_cost(limits, |key| *key, |_| 1, 1);
    let _ = stream::iter([1]).pace_batches(limit.clone(), 1);
    let _ = stream::iter([1]).grouped_within(1, d);
    let _ = stream::iter([1]).grouped_weighted_within(1, d, |weight| *weight);
    let _ = stream::iter([1]).enforce(limit.clone());
    let _ = stream::iter([1]).shed(limit.clone());
    let shedder = WorkerUtilization::new(|| 0.0);
    let _ = stream::iter([1]).shed_by(shedder, |_| Class::Critical);
    let _ = stream::iter([1]).debounce(d);
    let _ = stream::iter([1]).sample(d);
    let _ = stream::iter([1]).throttle_first(d);

    let results = || stream::iter([Ok::<u64, ()>(1)]);
    let _ = results().try_grouped_within(1, d);
    let _ = results().try_grouped_weighted_within(1, d, |weight| *weight);

    let _ = sink::drain::<u32>().pace_sends(limit.clone());
    let _ = sink::drain::<u32>().pace_sends_by_cost(limit.clone(), |cost| *cost);
    let _ = sink::drain::<u32>().enforce_sends(limit.clone());
    let _ = sink::drain::<u32>().shed_sends(limit);
    let _ = sink::drain::<Vec<u32>>().group_sends(1, d);

    let _ = tokio::io::empty().pace_reads(Interval::every(d).owned());
    let _ = tokio::io::sink().pace_writes(Interval::every(d).owned());
    let _ = stream::iter([1]).concurrent(Permits::new(1), ready);
}

/// A method that is added to a trait has to be called above.
#[test]
fn every_method_is_called_above() {
    let sources = [
        include_str!("../../src/stream/ext.rs"),
        include_str!("../../src/sink/ext.rs"),
        include_str!("../../src/io/pace_read.rs"),
        include_str!("../../src/io/pace_write.rs"),
    ];
    let here = include_str!("neighbours.rs");
    let methods = sources
        .into_iter()
        .flat_map(|source| source.split("pub trait ").skip(1))
        .filter_map(|rest| rest.split("\n}").next())
        .flat_map(str::lines)
        .filter_map(|line| line.strip_prefix("    fn "))
        .map(|line| line.split(['(', '<']).next().unwrap());
    let mut seen = 0;
    for method in methods {
        seen += 1;
        assert!(
            here.contains(&format!(".{method}(")),
            "{method} is not called"
        );
    }
    assert!(seen > 20, "{seen} methods were found");
}
