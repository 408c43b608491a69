//! How do I write rows to a database in batches, and not too often?
#![expect(clippy::disallowed_methods, reason = "shows the time")]

use std::time::Duration;

use futures::{StreamExt, channel::mpsc, stream};
use paceline::policy::Interval;
use paceline::prelude::*;
use tokio::task::JoinHandle;
use tokio::time::Instant;

type Batch = Vec<u32>;

const WINDOW: Duration = Duration::from_millis(20);
const SPACING: Interval = Interval::every(Duration::from_millis(100));

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    // Slow rows: a group leaves when it has three rows, or 20 ms after its first one.
    let (sink, writes) = database();
    let rows = stream::iter(1..=5).min_interval(Duration::from_millis(8));
    let groups = rows.grouped_within(3, WINDOW);
    groups.map(Ok).forward(sink).await.unwrap();
    assert_eq!(
        writes.await.unwrap(),
        [(16, vec![1, 2, 3]), (32, vec![4, 5])]
    );

    // Fast rows: the sink groups them, and keeps the groups 100 ms apart.
    let (sink, writes) = database();
    let sink = sink.pace_sends(SPACING.owned()).group_sends(3, WINDOW);
    let rows = stream::iter(1..=5);
    rows.map(Ok).forward(sink).await.unwrap();
    assert_eq!(
        writes.await.unwrap(),
        [(0, vec![1, 2, 3]), (100, vec![4, 5])]
    );

    // Without a window: one write each 100 ms, with all rows since the last one.
    let (sink, writes) = database();
    let rows = stream::iter(1..=5).min_interval(Duration::from_millis(30));
    let groups = rows.pace_batches(SPACING.owned(), 10);
    groups.map(Ok).forward(sink).await.unwrap();
    assert_eq!(
        writes.await.unwrap(),
        [(0, vec![1]), (100, vec![2, 3, 4]), (200, vec![5])]
    );
}

/// A sink of batches, and the batches that it received with their times in milliseconds.
fn database() -> (mpsc::Sender<Batch>, JoinHandle<Vec<(u128, Batch)>>) {
    let start = Instant::now();
    let (sink, batches) = mpsc::channel(0);
    let writes = batches.map(move |batch: Batch| {
        let millis = start.elapsed().as_millis();
        println!("{millis:3} ms: write {batch:?}");
        (millis, batch)
    });
    (sink, tokio::spawn(writes.collect()))
}
