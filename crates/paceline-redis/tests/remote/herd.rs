//! Many keys at once on a server that needs time for each.

use super::*;
use crate::remote::window::Window;
use crate::remote::{ClassConfig, LeasePool};

/// A server that answers 50,000 keys a second.
fn slow() -> Server<TokenBucket> {
    let server = Server::start();
    server.world().per_key = Duration::from_micros(20);
    server
}

/// Waiters for a permit of each key, again and again, for so long. Returns how many passed, by key.
async fn herd(
    process: &Process<TokenBucket>,
    keys: u32,
    limit: TokenBucket,
    time: Duration,
) -> Vec<usize> {
    let mut waiters = JoinSet::new();
    let watch = Stopwatch::start();
    for key in 0..keys {
        let limit = process.limit(key, limit);
        waiters.spawn(async move { passing_until(&limit, watch, time).await.len() });
    }
    waiters.join_all().await
}

/// A pool of leases of which one can be held.
fn pool(process: &Process<TokenBucket>) -> Arc<LeasePool<Server<TokenBucket>>> {
    let class = ClassConfig::new("key".into(), 1, 1, OutagePolicy::open()).unwrap();
    LeasePool::new(&process.batcher, MINUTE, vec![class], None).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_herd_of_lease_pools_is_no_outage() {
    let process = process(&slow(), OutagePolicy::open()).await;
    let pools: Vec<_> = (0..10_000).map(|_| pool(&process)).collect();
    let asked = pools.iter().map(async |pool| {
        assert_eq!(pool.in_use().await, Ok(vec![0]));
        assert!(!pool.ask(0, false).await.unwrap().unwrap().is_local());
    });
    join_all(asked).await;
    process.assert_calm();
}

#[tokio::test(start_paused = true)]
async fn a_herd_of_questions_outside_the_queues_is_no_outage() {
    let process = process(&slow(), OutagePolicy::open()).await;
    let taken = (0..10_000).map(async |key| process.limit(key, four_every(1_000)).take_all().await);
    assert_eq!(join_all(taken).await, vec![Ok(4); 10_000]);
    process.assert_calm();
}

/// A provider has refused each key.
#[tokio::test(start_paused = true)]
async fn a_herd_of_changes_is_no_outage() {
    let process = process(&slow(), OutagePolicy::open()).await;
    let pause = Change::Pause(MINUTE);
    let limits: Vec<_> = (0..3_000)
        .map(|key| process.limit(key, four_every(1_000)))
        .collect();
    let paused = limits.iter().map(|limit| limit.queue.change(&pause));
    assert_eq!(join_all(paused).await, vec![Ok(()); 3_000]);
    process.assert_calm();
}

/// Before it is sent, and while it is under way.
#[tokio::test(start_paused = true)]
async fn a_question_about_leases_may_be_dropped() {
    let server = slow();
    let process = process(&server, OutagePolicy::open()).await;
    let pool = pool(&process);
    for polls in 1..4 {
        let mut asking = Box::pin(pool.in_use());
        for _ in 0..polls {
            assert!(futures::poll!(&mut asking).is_pending());
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(pool.in_use().await, Ok(vec![0]));
    process.assert_calm();

    server.kill();
    while process.is_up() {
        assert!(pool.in_use().await.is_err());
    }
    let error = pool.in_use().await.unwrap_err();
    assert!(error.is_skipped(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_herd_of_keys_is_no_outage_and_each_key_gets_its_permits() {
    for outage_policy in [OutagePolicy::closed(), OutagePolicy::open()] {
        let process = process(&slow(), outage_policy).await;
        let bucket = TokenBucket::new(Rate::per_second(1), 1);
        let passed = herd(&process, 10_000, bucket, ms(1_500)).await;
        assert_eq!(passed, vec![2; 10_000]);
        process.assert_calm();
    }
}

#[tokio::test(start_paused = true)]
async fn an_overloaded_server_is_used_to_nine_tenths() {
    for reply_in in [0, 5] {
        let server = slow();
        server.world().reply_in = ms(reply_in);
        let process = process(&server, OutagePolicy::closed()).await;
        // Twice what the server can do.
        let bucket = TokenBucket::new(Rate::per_second(10), 1);
        let passed = herd(&process, 10_000, bucket, ms(600)).await;
        let sum = passed.iter().sum::<usize>();
        assert!(sum >= 27_000, "{sum}");
        process.assert_calm();
    }
}

/// A bound for calls of 64 keys, with 5 ms as the shortest call. A quarter of what that leaves of the deadline is 5 ms.
fn window() -> Window {
    let mut window = Window::new(DEADLINE, 64);
    assert!(window.sent(64));
    window.ended((at(0), true), at(5), 64, Some(ms(5)));
    assert_eq!(window.room(), 256, "it was not used up, and stays");
    window
}

#[test]
fn the_bound_of_keys_under_way_grows_while_it_is_used_up_and_calls_are_fast() {
    let mut window = window();
    assert!(window.sent(64));
    for _ in 0..3 {
        assert!(!window.sent(64));
    }
    assert_eq!(window.room(), 0);
    window.ended((at(10), true), at(15), 64, Some(ms(5)));
    assert_eq!(window.room(), 64 + 32);
    window.sent(96);
    window.ended((at(10), false), at(20), 64, Some(ms(10)));
    assert_eq!(window.room(), 64 + 36);
}

#[test]
fn the_bound_halves_once_for_all_slow_calls_that_were_under_way_together() {
    let mut window = window();
    for _ in 0..4 {
        window.sent(64);
    }
    window.ended((at(10), false), at(21), 64, Some(ms(11)));
    assert_eq!(window.room(), 0, "128 may be under way, and 192 are");
    window.ended((at(10), false), at(22), 64, Some(ms(12)));
    window.ended((at(10), false), at(22), 128, None);
    assert_eq!(window.room(), 128);
    window.silent(at(50));
    assert_eq!(window.room(), 64);
}

#[test]
fn the_shortest_call_rises_only_with_calls_that_are_alone() {
    let mut window = window();
    for call in 1..=20 {
        window.sent(64);
        window.ended((at(20 * call), false), at(20 * call + 18), 64, Some(ms(18)));
    }
    assert_eq!(window.room(), 1, "each was slow");
    // The way takes 18 ms now. Alone, calls are measured as 11.5, 14.75 and more.
    for call in 30..=32 {
        assert!(window.sent(1));
        window.ended((at(20 * call), true), at(20 * call + 18), 1, Some(ms(18)));
    }
    assert!(window.room() > 1);
}

#[test]
fn at_least_one_key_may_be_under_way() {
    let mut window = Window::new(DEADLINE, 1);
    for silence in 0..20 {
        window.silent(at(silence));
    }
    assert_eq!(window.room(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_becomes_slow_gets_fewer_keys_at_a_time_and_more_when_it_is_fast_again() {
    let server = slow();
    let process = process(&server, OutagePolicy::closed()).await;
    let bucket = TokenBucket::new(Rate::per_second(100), 1);
    let mut passes = Vec::new();
    for per_key in [20, 200, 20] {
        server.world().per_key = Duration::from_micros(per_key);
        // What was under way when the server became slow is over after the first half.
        herd(&process, 3_000, bucket, ms(500)).await;
        let before = process.stats().timeouts;
        let by_key = herd(&process, 3_000, bucket, ms(500)).await;
        assert_eq!(process.stats().timeouts, before);
        passes.push(by_key.into_iter().sum::<usize>());
        // A caller that tries is answered in time, behind the calls under way.
        let took = server.world().longest_call();
        assert!(took <= DEADLINE, "{took:?}");
    }
    // 50,000 and 5,000 a second.
    assert!(passes[0] > 20_000 && passes[2] > 20_000, "{passes:?}");
    assert!((1_500..=2_500).contains(&passes[1]), "{passes:?}");
    assert_eq!(process.stats().outages, 0);
}
