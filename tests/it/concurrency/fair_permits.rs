//! Permits that keys divide by weight.

use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::task::Poll;

use paceline::concurrency::{FairPermits, Permit};
use testkit::shares::Shares;
use testkit::wakes::Driven;

fn weight(weight: u32) -> NonZeroU32 {
    NonZeroU32::new(weight).unwrap()
}

/// Pseudo-random numbers below `n`.
fn below(seed: &mut u64, n: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    (*seed >> 33) % n
}

/// Keys whose weight is one more than their number.
fn by_number(total: u32) -> FairPermits<u64> {
    FairPermits::new(total).with_weights(|key| weight(1 + u32::try_from(*key).unwrap()))
}

type Request = Pin<Box<dyn Future<Output = Permit>>>;

/// Requests polled by hand, when they are woken.
struct Requests {
    permits: FairPermits<u64>,
    waiting: Vec<(u64, u64, Driven<Request>)>,
    held: Vec<(u64, Permit)>,
}

impl Requests {
    fn of(permits: FairPermits<u64>) -> Self {
        Self {
            permits,
            waiting: Vec::new(),
            held: Vec::new(),
        }
    }

    /// Returns whether it passes at once.
    fn join(&mut self, key: u64, id: u64, cost: u32) -> bool {
        let permits = self.permits.at(key);
        let request: Request =
            Box::pin(async move { permits.acquire_many(cost).await.expect("not too many") });
        let mut request = Driven::new(request);
        let polled = request.poll();
        let passes = polled.is_ready();
        match polled {
            Poll::Ready(permit) => self.held.push((key, permit)),
            Poll::Pending => self.waiting.push((key, id, request)),
        }
        passes
    }

    /// Polls those that are woken, and returns which of them pass, in this order.
    fn passed(&mut self) -> Vec<u64> {
        let mut passed = Vec::new();
        while let Some(index) = self.waiting.iter().position(|(.., one)| one.is_woken()) {
            if let Poll::Ready(permit) = self.waiting[index].2.poll() {
                let (key, id, _) = self.waiting.remove(index);
                self.held.push((key, permit));
                passed.push(id);
            }
        }
        passed
    }
}

#[tokio::test(start_paused = true)]
async fn random_schedules_pass_as_in_the_plain_list_and_never_more_than_the_total() {
    let (mut granted, mut alone) = (0, 0);
    for seed in 0..1_000 {
        let random = &mut (seed + 1);
        let (keys, most) = (1 + below(random, 6), 1 + below(random, 4) as u32);
        let mut total = most + below(random, 8) as u32;
        let mut requests = Requests::of(by_number(total));
        let mut shares = Shares::new(total);
        for id in 0..120 {
            match below(random, 12) {
                0..5 => {
                    let (key, cost) = (below(random, keys), 1 + below(random, most.into()) as u32);
                    let at_once = shares.join(key, id, cost, 1 + key as u32);
                    assert_eq!(requests.join(key, id, cost), at_once, "{seed} {id}");
                }
                5 if !requests.waiting.is_empty() => {
                    let index = below(random, requests.waiting.len() as u64) as usize;
                    let (key, id, request) = requests.waiting.remove(index);
                    drop(request);
                    shares.cancel(key, id);
                }
                6 if below(random, 2) == 0 => {
                    total = if below(random, 3) == 0 {
                        0
                    } else {
                        most + below(random, 8) as u32
                    };
                    requests.permits.total().resize(total);
                    shares.resize(total);
                }
                _ if !requests.held.is_empty() => {
                    let index = below(random, requests.held.len() as u64) as usize;
                    let (key, permit) = requests.held.remove(index);
                    shares.give_back(key, permit.count());
                }
                _ => {}
            }
            let expected: Vec<u64> = std::iter::from_fn(|| shares.pass()).collect();
            assert_eq!(requests.passed(), expected, "{seed} {id}");
            let in_use = requests.permits.total().in_use();
            assert_eq!(in_use, shares.in_use());
            assert!(in_use <= total || expected.is_empty());
            granted += expected.len();
            alone += usize::from(shares.waiting().filter(|key| shares.is_below(*key)).count() == 1);
        }
    }
    assert!(granted > 15_000 && alone > 10_000, "{granted} {alone}");
}
