//! What the other side counts: arrivals in windows of its own, at the end of a way that takes as long as it likes.

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use paceline::concurrency::Permits;
use paceline::prelude::*;
use proptest::prelude::*;
use testkit::clock::paused_runtime;

use crate::timed::{ms, now, since, sleep};

/// The way to the provider and back, in milliseconds.
type Way = (u64, u64);

/// The most arrivals in any half-open window of this length.
fn most_in_a_window(mut arrivals: Vec<u64>, length: u64) -> usize {
    arrivals.sort_unstable();
    let counts = arrivals.iter().map(|&from| {
        let inside = arrivals
            .iter()
            .filter(|&&at| from <= at && at < from + length);
        inside.count()
    });
    counts.max().unwrap_or(0)
}

/// Sends requests as fast as `permits` let it; gives the instants at which they arrived.
async fn arrivals(permits: &Permits, ways: &[Way]) -> Vec<u64> {
    let start = now();
    let arrived = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for &(there, back) in ways {
        let permit = permits.acquire().await;
        let arrived = Arc::clone(&arrived);
        tasks.push(tokio::spawn(async move {
            sleep(there).await;
            arrived.lock().unwrap().push(since(start));
            sleep(back).await;
            drop(permit);
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    Arc::into_inner(arrived).unwrap().into_inner().unwrap()
}

/// The same with one emission each `spacing`.
async fn arrivals_spaced(spacing: u64, ways: &[Way]) -> Vec<u64> {
    let start = now();
    futures::stream::iter(ways.to_vec())
        .min_interval(ms(spacing))
        .map(|(there, _)| async move {
            sleep(there).await;
            since(start)
        })
        .buffer_unordered(ways.len())
        .collect()
        .await
}

#[test]
fn the_judge_counts_half_open_windows() {
    assert_eq!(most_in_a_window(vec![0, 100, 200], 100), 1);
    assert_eq!(most_in_a_window(vec![200, 0, 101, 199], 100), 3);
    assert_eq!(most_in_a_window(vec![], 100), 0);
}

#[tokio::test(start_paused = true)]
async fn spacing_at_emission_and_permits_that_come_back_at_once_break_where_a_cooldown_does_not() {
    let ways = [(90, 0), (0, 0), (0, 0), (90, 0), (0, 0), (0, 0)];

    let spaced = arrivals_spaced(100, &ways).await;
    assert_eq!(most_in_a_window(spaced, 100), 2, "90 and 100");

    let cooled = arrivals(&Permits::new(1).with_cooldown(ms(100)), &ways).await;
    assert_eq!(cooled, [90, 190, 290, 480, 580, 680]);

    let back_at_once = arrivals(&Permits::new(1), &[(10, 0); 3]).await;
    assert_eq!(most_in_a_window(back_at_once, 100), 3, "10, 20 and 30");

    let three = Permits::new(3).with_cooldown(ms(100));
    let reached = arrivals(&three, &[(0, 0); 9]).await;
    assert_eq!(reached, [0, 0, 0, 100, 100, 100, 200, 200, 200]);
}

/// Mostly quick, sometimes very late.
fn delay() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0_u64..30, 2 => 0_u64..300, 1 => 0_u64..3_000]
}

proptest! {
    /// The bound is the limit at the last grant inside, so the largest limit bounds every window.
    #[test]
    fn no_window_at_the_provider_ever_holds_more_than_the_permits_even_while_they_move(
        limits in prop_oneof![(1_u32..6).prop_map(|n| vec![n]), prop::collection::vec(1_u32..6, 1..20)],
        window in 1_u64..400,
        ways in prop::collection::vec((delay(), delay()), 1..80),
    ) {
        paused_runtime().block_on(async {
            let most = limits.iter().copied().max().unwrap_or(1);
            let permits = Permits::new(limits[0]).with_cooldown(ms(window));
            let mover = permits.clone();
            let moves = tokio::spawn(async move {
                for limit in limits.into_iter().cycle() {
                    mover.resize(limit);
                    sleep(50).await;
                }
            });
            let arrived = arrivals(&permits, &ways).await;
            moves.abort();
            assert_eq!(arrived.len(), ways.len());
            assert!(most_in_a_window(arrived, window) <= most as usize);
        });
    }
}
