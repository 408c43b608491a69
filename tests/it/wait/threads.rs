//! Real threads that ask, cancel, hold and return at random.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::poll;
use tokio::task::yield_now;

use super::{Kind, block_on, runtime_with_threads};
use crate::timed::ms;

claims! {
    bare:
    on_many_threads_no_permit_is_lost_and_no_waiter_forgotten: in_order newest fair,
    on_many_threads_every_waiter_is_woken_when_permits_return_by_time: in_order newest,
}

/// A small generator of numbers, one a task.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

const PERMITS: u32 = 3;

fn on_many_threads_no_permit_is_lost_and_no_waiter_forgotten<K: Kind>() {
    hammer(&K::of(PERMITS), 300);
}

fn on_many_threads_every_waiter_is_woken_when_permits_return_by_time<K: Kind>() {
    hammer(&K::new(PERMITS, Duration::from_micros(100)), 30);
}

fn hammer<K: Kind>(limit: &K, rounds: u64) {
    let runtimes = [(); 2].map(|()| runtime_with_threads(2));
    let in_use = Arc::new(AtomicU32::new(0));
    let tasks = runtimes.iter().cycle().zip(1..=24).map(|(runtime, seed)| {
        let (limit, in_use) = (limit.clone(), Arc::clone(&in_use));
        runtime.spawn(works(
            limit,
            in_use,
            Random(u64::wrapping_mul(seed, 0x9E37_79B9_7F4A_7C15)),
            rounds,
        ))
    });
    let tasks: Vec<_> = tasks.collect();
    for task in block_on(&runtimes[0], futures::future::join_all(tasks)) {
        task.unwrap();
    }
    assert_eq!(limit.waiting(), 0);
    std::thread::sleep(ms(1));
    assert!(limit.try_acquire(PERMITS).is_some());
}

async fn works<K: Kind>(limit: K, in_use: Arc<AtomicU32>, mut random: Random, rounds: u64) {
    for _ in 0..rounds {
        let cost = 1 + u32::try_from(random.below(u64::from(PERMITS))).unwrap();
        let mut request = limit.acquire(cost);
        let grant = match random.below(5) {
            // Cancelled after a few polls.
            0 => {
                let mut grant = None;
                for _ in 0..random.below(3) {
                    if let std::task::Poll::Ready(granted) = poll!(&mut request) {
                        grant = Some(granted);
                        break;
                    }
                    yield_now().await;
                }
                grant
            }
            // Cancelled while it sleeps.
            1 => tokio::time::timeout(ms(random.below(3)), request)
                .await
                .ok(),
            2 => limit.try_acquire(cost),
            _ => Some(request.await),
        };
        let Some(grant) = grant else { continue };
        let used = in_use.fetch_add(cost, Ordering::SeqCst) + cost;
        assert!(used <= PERMITS, "{used} permits of {PERMITS}");
        for _ in 0..random.below(3) {
            yield_now().await;
        }
        in_use.fetch_sub(cost, Ordering::SeqCst);
        drop(grant);
        if random.below(50) == 0 {
            limit.pause();
            limit.resume(PERMITS);
        }
    }
}
