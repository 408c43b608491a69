//! Limits by name, reloaded while they are in use.

use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use paceline::config::{LimitConfig, LimitsConfig, NamedLimits};
use paceline::limiter::{AcquireError, Limiter, LimiterExt, LineError, Mode};
use tokio::task::JoinHandle;

use crate::timed::{now, since};

fn config(limits: &[(&str, &str)]) -> LimitsConfig {
    let config = LimitsConfig::new();
    limits.iter().fold(config, |config, (name, policy)| {
        config.with(*name, limit(policy))
    })
}

fn limit(policy: &str) -> LimitConfig {
    LimitConfig::new(policy.parse::<paceline::policy::AnyPolicy>().unwrap())
}

fn left(limits: &NamedLimits, name: &str) -> u32 {
    limits.get(name).unwrap().status().unwrap().remaining
}

/// A request that waits for a limit `api`, which is spent.
async fn waiter(limits: &NamedLimits) -> JoinHandle<Result<(), AcquireError<LineError>>> {
    let api = limits.get("api").unwrap();
    api.acquire(1).await.unwrap();
    let waiter = tokio::spawn(api.acquire(1));
    tokio::task::yield_now().await;
    waiter
}

#[tokio::test(start_paused = true)]
async fn a_reload_says_what_became_of_each_limit() {
    let before = config(&[("a", "1/s"), ("b", "2/s"), ("c", "3/s"), ("d", "4/s")]);
    let limits = NamedLimits::new(&before);
    let after = config(&[("b", "2/s"), ("c", "30/s"), ("e", "5/s")])
        .with("b", limit("2/s").with_mode(Mode::Shadow));
    let after = after.with("f", limit("6/s"));

    let changes = limits.reload(&after);
    assert_eq!(changes.added, ["e", "f"]);
    assert_eq!(changes.retuned, ["b", "c"]);
    assert_eq!(changes.closed, ["a", "d"]);
    assert_eq!(changes.unchanged, [""; 0]);

    let changes = limits.reload(&after);
    assert_eq!(changes.unchanged, ["b", "c", "e", "f"]);
    assert_eq!((changes.added, changes.closed), (vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn what_was_spent_stays_spent_and_what_did_not_change_keeps_its_state() {
    let limits = NamedLimits::new(&config(&[("api", "100/min"), ("mail", "10/min fixed")]));
    limits.get("api").unwrap().acquire(60).await.unwrap();
    limits.get("mail").unwrap().acquire(7).await.unwrap();

    limits.reload(&config(&[("api", "70/min"), ("mail", "10/min fixed")]));
    assert_eq!((left(&limits, "api"), left(&limits, "mail")), (10, 3));
}

#[tokio::test(start_paused = true)]
async fn waiters_feel_a_new_policy_and_a_new_mode() {
    for (new, at) in [
        (limit("every 2s"), 2_000),
        (limit("every 1h").with_mode(Mode::Off), 0),
    ] {
        let limits = NamedLimits::new(&config(&[("api", "every 1h")]));
        let start = now();
        let waiter = waiter(&limits).await;
        let changes = limits.reload(&LimitsConfig::new().with("api", new));
        assert_eq!(changes.retuned, ["api"]);
        waiter.await.unwrap().unwrap();
        assert_eq!(since(start), at);
    }
}

#[tokio::test(start_paused = true)]
async fn what_vanished_is_closed_and_a_name_that_comes_back_is_a_new_limit() {
    let one = config(&[("api", "1/min")]);
    let limits = NamedLimits::new(&one);
    let api = limits.get("api").unwrap();
    let waiter = waiter(&limits).await;

    limits.reload(&LimitsConfig::new());
    assert!(waiter.await.unwrap().unwrap_err().is_closed());
    assert!(api.acquire(1).await.unwrap_err().is_closed());
    assert!(limits.get("api").is_none());

    limits.reload(&one);
    assert!(api.acquire(1).await.unwrap_err().is_closed());
    limits.get("api").unwrap().acquire(1).await.unwrap();
}

/// As a task does that an executor polls where it is woken.
struct LooksWhenWoken(NamedLimits);

impl Wake for LooksWhenWoken {
    fn wake(self: Arc<Self>) {
        assert!(self.0.get("new").is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_woken_by_a_reload_may_look_for_a_limit_at_once() {
    let limits = NamedLimits::new(&config(&[("gone", "1/min"), ("kept", "1/min")]));
    let waker = Waker::from(Arc::new(LooksWhenWoken(limits.clone())));
    let mut cx = Context::from_waker(&waker);
    let mut waiters = Vec::new();
    for name in ["gone", "kept"] {
        let limit = limits.get(name).unwrap();
        limit.acquire(1).await.unwrap();
        let mut waiter = Box::pin(limit.acquire(1));
        assert!(waiter.as_mut().poll(&mut cx).is_pending());
        waiters.push(waiter);
    }
    limits.reload(&config(&[("kept", "9/min"), ("new", "1/min")]));
    let [gone, kept] = &mut waiters[..] else {
        panic!("two waiters");
    };
    assert!(gone.await.unwrap_err().is_closed());
    kept.await.unwrap();
}
