//! Costs that are known afterwards.

use std::sync::mpsc;
use std::thread;

use futures::executor::block_on;
use paceline::limiter::{
    Combined, Event, Limits, Mode, Observed, Reservation, Settle, Shared, Switch, WhenFull,
};
use paceline::policy::states::TokenBucketState;
use paceline::policy::{All, AnyPolicy, Decision, FixedWindow, PerRequest, Policy, Status};
use paceline::prelude::*;
use paceline::time::Tick;
use tokio::task::yield_now;
use tokio::time::advance;

use super::{queued, remaining, spawned, too_costly, wait};
use crate::timed::{ms, now, since, sleep};

const MINUTE: Duration = Duration::from_secs(60);

/// Ten tokens a second, a hundred at once.
const BUCKET: TokenBucket = TokenBucket::new(Rate::per_second(10), 100);

fn bucket() -> Shared<TokenBucket> {
    BUCKET.shared()
}

#[tokio::test(start_paused = true)]
async fn what_was_not_used_comes_back_and_what_is_missing_is_charged() {
    let limit = bucket();
    for (estimate, actual, left) in [
        (40, 10, 90),
        (40, 40, 50),
        (20, 45, 5),
        (5, 0, 5),
        (0, 3, 2),
    ] {
        let reserved = limit.reserve(estimate).await.unwrap();
        assert_eq!(reserved.estimate(), estimate);
        let before = remaining(&limit);
        reserved.settle(actual);
        assert_eq!(remaining(&limit) + actual, before + estimate);
        assert_eq!(remaining(&limit), left);
    }
    drop(limit.reserve(2).await.unwrap());
    assert_eq!(remaining(&limit), 0, "dropped, it keeps its estimate");
}

#[tokio::test(start_paused = true)]
async fn a_debt_delays_the_waiters_by_what_is_owed() {
    let limit = bucket();
    let reserved = limit.reserve(100).await.unwrap();
    let passed = spawned([10, 20].map(|cost| limit.acquire_owned(cost)));
    yield_now().await;
    assert_eq!(limit.peek(1), wait(3_100));

    sleep(500).await;
    reserved.settle(125);
    assert_eq!(limit.peek(1), wait(5_100));
    assert_eq!(passed.await, [3_500, 5_500]);
}

#[tokio::test(start_paused = true)]
async fn a_head_that_sleeps_for_an_earlier_instant_waits_again() {
    let limit = bucket();
    limit.acquire(100).await.unwrap();
    let passed = spawned([limit.acquire_owned(10)]);
    sleep(999).await;
    limit.charge(5);
    limit.charge(5);
    assert_eq!(passed.await, [2_000]);
}

#[tokio::test(start_paused = true)]
async fn a_settlement_lets_a_waiter_pass_at_once() {
    let limit = bucket();
    let reserved = limit.reserve(100).await.unwrap();
    let passed = spawned([50, 10].map(|cost| limit.acquire_owned(cost)));
    sleep(200).await;
    reserved.settle(47);
    assert_eq!(passed.await, [200, 700], "5 of 10 are left");
}

#[tokio::test(start_paused = true)]
async fn what_comes_back_after_its_window_makes_no_room_in_the_next() {
    let limit = SlidingLog::new(100, MINUTE).shared();
    let late = limit.reserve(60).await.unwrap();
    sleep(59_000).await;
    let in_time = limit.reserve(30).await.unwrap();
    sleep(1_000).await;
    limit.acquire(70).await.unwrap();
    late.settle(0);
    assert_eq!(remaining(&limit), 0);
    in_time.settle(10);
    assert_eq!(remaining(&limit), 20);
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_would_be_late_or_can_never_pass_is_refused_at_once_and_counts_nothing()
{
    let (start, limit) = (now(), bucket());
    let reserved = limit.reserve_within(100, ms(0)).await.unwrap();
    let late = limit.reserve_within(10, ms(999)).await.unwrap_err();
    assert_eq!(late.retry_in(), Some(ms(1_000)));
    let never = limit.reserve_within(101, MINUTE).await.unwrap_err();
    assert_eq!(too_costly(never), (101, 100));
    let never = limit.reserve(101).await.unwrap_err();
    assert_eq!(too_costly(never), (101, 100));
    let refused = [10, 101].map(|estimate| limit.try_reserve(estimate).unwrap_err());
    assert_eq!(refused, [wait(1_000), Decision::Never { capacity: 100 }]);
    assert_eq!(since(start), 0);

    let second = limit.reserve_within(10, ms(1_000)).await.unwrap();
    assert_eq!(since(start), 1_000);
    second.settle(0);
    reserved.settle(0);
    assert_eq!(remaining(&limit), 100);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_reserve_leaves_no_trace() {
    let limit = bucket();
    limit.acquire(100).await.unwrap();
    let _never_polled = limit.reserve(1);
    let cancelled = queued(limit.reserve(50));
    let with_deadline = queued(limit.reserve_within(30, MINUTE));
    assert_eq!(limit.waiting(), 2);
    drop((cancelled, with_deadline));
    assert_eq!(limit.waiting(), 0);
    assert_eq!(limit.peek(10), wait(1_000));
    sleep(10_000).await;
    assert_eq!(remaining(&limit), 100);
}

#[test]
fn threads_that_settle_leave_what_they_have_used() {
    let limit = FixedWindow::new(1_000_000, MINUTE * 60).shared();
    let reserved = limit.try_reserve(60).unwrap();
    let threads = [0, 1].map(|_| {
        let limit = limit.clone();
        thread::spawn(move || {
            for actual in 0..1_000 {
                limit.try_reserve(500).unwrap().settle(actual);
            }
        })
    });
    // Without a runtime, and in another thread than that in which it was made.
    thread::spawn(move || reserved.settle(10)).join().unwrap();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(remaining(&limit), 1_000_000 - 2 * 499_500 - 10);
}

/// A request that passes leaves prefetched permits for the next one, which are counted later than they pass.
#[test]
fn prefetched_permits_come_back_too() {
    type Log = Shared<SlidingLog>;
    let reserves: [fn(&Log) -> Reservation<Log>; 3] = [
        |limit| limit.try_reserve(10).unwrap(),
        |limit| block_on(limit.reserve(10)).unwrap(),
        |limit| block_on(limit.reserve_within(10, ms(0))).unwrap(),
    ];
    for reserve in reserves {
        let limit = SlidingLog::new(1_000, MINUTE * 60).shared();
        let estimates = [(); 4].map(|()| reserve(&limit));
        for estimate in estimates {
            estimate.settle(1);
        }
        assert_eq!(remaining(&limit), 996);
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_settles_for_itself() {
    let users = BUCKET.keyed::<&str>();
    let (ann, bob) = (users.at("ann"), users.at("bob"));
    ann.reserve(60).await.unwrap().settle(10);
    bob.reserve(60).await.unwrap().settle(90);
    assert_eq!((remaining(&ann), remaining(&bob)), (90, 10));
    users.charge(&"bob", 20);
    assert_eq!(users.peek(&"bob", 1), wait(1_100));
    let late = bob.reserve_within(10, ms(1_000)).await.unwrap_err();
    assert_eq!(late.retry_in(), Some(ms(2_000)));
    assert!(bob.try_reserve(10).is_err() && ann.try_reserve(10).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_evicted_in_between_is_charged_and_has_nothing_to_give_back() {
    let users = FixedWindow::new(100, MINUTE).keyed::<&str>();
    let ann = users.at("ann");
    let (below, above) = (
        ann.reserve(60).await.unwrap(),
        ann.reserve(40).await.unwrap(),
    );
    sleep(60_000).await;
    users.forget_settled();
    assert!(users.is_empty());

    below.settle(0);
    users.charge(&"bob", 0);
    assert!(users.is_empty(), "a key that has spent nothing is not kept");
    above.settle(90);
    assert_eq!(remaining(&ann), 50);
    assert_eq!(users.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_key_without_room_is_charged_to_the_limit_for_such_keys() {
    let charged = |when_full| {
        let users = BUCKET.keyed::<u32>().with_max_keys(1);
        let users = users.with_when_full(when_full);
        assert!(users.try_acquire(&1, 50).is_pass());
        users.charge(&1, 10);
        users.charge(&2, 30);
        assert_eq!((users.len(), remaining(&users.at(1))), (1, 40));
        remaining(&users.at(2))
    };
    assert_eq!(charged(WhenFull::Share(BUCKET)), 70);
    assert_eq!(charged(WhenFull::Pass), u32::MAX);
    assert_eq!(charged(WhenFull::Wait), 0, "there is no room");
}

/// Each member of a combined limit settles for itself.
#[tokio::test(start_paused = true)]
async fn a_key_that_passes_without_room_settles_nothing_also_in_a_combined_limit() {
    let users = BUCKET.keyed::<u32>().with_max_keys(1);
    let users = users.with_when_full(WhenFull::Pass);
    let account = bucket();
    users.acquire(1, 100).await.unwrap();
    let alone = users.at(2).reserve(50).await.unwrap();
    let call = Combined::new((users.at(2), account.clone()));
    let reserved = call.reserve(50).await.unwrap();
    let other = call.reserve(20).await.unwrap();
    sleep(10_000).await;
    users.forget_settled();
    alone.settle(100);
    assert!(users.is_empty());

    account.acquire(90).await.unwrap();
    assert!(users.try_acquire(&2, 60).is_pass());
    reserved.settle(0);
    other.settle(30);
    assert_eq!(remaining(&users.at(2)), 40, "nothing was counted");
    assert_eq!(remaining(&account), 50);
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_off_settles_nothing_and_a_shadowed_one_does() {
    let (limit, switch) = (bucket(), Switch::new().with_mode(Mode::Off));
    let switched = limit.clone().switched(&switch);
    switched.charge(30);
    switched.reserve(1_000).await.unwrap().settle(2_000);
    switch.set_mode(Mode::Shadow);
    assert_eq!(remaining(&limit), 100);
    switched.charge(30);
    assert_eq!(remaining(&limit), 70);
    switched.reserve(40).await.unwrap().settle(20);
    assert_eq!(remaining(&limit), 50);

    // What passed while it was off settles nothing later.
    let keys = BUCKET.keyed::<u8>();
    let Ok(of_key) = keys.clone().switched(&switch).at(1);
    switch.set_mode(Mode::Off);
    let reserved = switched.try_reserve(40).unwrap();
    let reserved_by_key = of_key.reserve(50).await.unwrap();
    switch.set_mode(Mode::Active);
    assert!(of_key.try_acquire(60).await.is_pass());
    reserved.settle(0);
    reserved_by_key.settle(70);
    assert_eq!((remaining(&limit), remaining(&keys.at(1))), (50, 40));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_only_a_shadow_lets_pass_settles_nothing() {
    let (limit, switch) = (bucket(), Switch::new());
    let switched = limit.clone().switched(&switch);
    switched.acquire(90).await.unwrap();
    switch.set_mode(Mode::Shadow);
    let below = switched.reserve(20).await.unwrap();
    let above = switched.try_reserve(20).unwrap();
    let counted = switched.reserve(10).await.unwrap();
    switch.set_mode(Mode::Active);

    below.settle(0);
    above.settle(90);
    assert_eq!(limit.peek(1), wait(100));
    counted.settle(0);
    assert_eq!(remaining(&limit), 10);
}

#[tokio::test(start_paused = true)]
async fn a_limiter_around_another_settles_with_that_one() {
    let (sender, events) = mpsc::channel();
    let limit = bucket();
    let around = limit.clone().switched(&Switch::new());
    let around = Observed::new(around, move |event: Event| sender.send(event).unwrap());

    around.reserve(40).await.unwrap().settle(10);
    assert_eq!(remaining(&limit), 90);
    let reserved = around.reserve_within(40, ms(0)).await.unwrap();
    reserved.settle(50);
    assert_eq!(remaining(&limit), 40);
    assert_eq!(around.try_reserve(50).unwrap_err(), wait(1_000));
    assert_eq!(
        events.try_iter().count(),
        3,
        "the requests, and not what was settled"
    );
}

#[tokio::test(start_paused = true)]
async fn whatever_settles_can_be_behind_a_pointer() {
    let limit = bucket();
    let erased: &dyn Settle = &limit;
    erased.charge(30);
    erased.refund_from(now(), 10);
    assert_eq!(remaining(&limit), 80);
}

#[tokio::test(start_paused = true)]
async fn a_reset_forgets_what_was_spent_and_what_is_owed_and_wakes_the_waiters() {
    let limit = bucket();
    limit.retune(TokenBucket::new(Rate::per_second(10), 50));
    limit.acquire(50).await.unwrap();
    limit.charge(500);
    limit.pause_for(MINUTE);
    limit.set_remaining(0, MINUTE);
    let passed = spawned([30, 30].map(|cost| limit.acquire_owned(cost)));
    sleep(100).await;
    limit.reset();
    assert_eq!(passed.await, [100, 1_100]);
    assert_eq!(limit.paused_for(), None);
    sleep(60_000).await;
    assert_eq!(remaining(&limit), 50, "of the last retune");
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_leaves_more_lets_a_waiter_pass_at_once() {
    let limit = bucket();
    limit.set_remaining(0, MINUTE);
    let passed = spawned([limit.acquire_owned(10)]);
    yield_now().await;
    limit.set_remaining(15, ms(5_000));
    assert_eq!(passed.await, [0]);
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_leaves_less_makes_the_waiters_wait_longer() {
    let limit = bucket();
    limit.acquire(100).await.unwrap();
    let passed = spawned([10, 10].map(|cost| limit.acquire_owned(cost)));
    sleep(500).await;
    limit.set_remaining(10, ms(4_500));
    assert_eq!(limit.peek(1), wait(4_500));
    assert_eq!(passed.await, [1_000, 5_000]);
}

#[tokio::test(start_paused = true)]
async fn a_wait_behind_others_is_exact_while_little_remains() {
    let limit = Interval::every(ms(1_000)).shared();
    limit.set_remaining(2, ms(2_500));
    let passed = spawned([(); 4].map(|()| limit.acquire_owned(1)));
    yield_now().await;
    let start = now();
    assert_eq!(limit.peek(1), wait(4_500));
    assert!(limit.acquire_within(1, ms(4_499)).await.is_err());
    limit.acquire_within(1, ms(4_500)).await.unwrap();
    assert_eq!(since(start), 4_500);
    assert_eq!(passed.await, [0, 1_000, 2_500, 3_500]);
}

#[tokio::test(start_paused = true)]
async fn what_remains_is_counted_in_requests_where_the_policy_counts_them() {
    let of = |text: &str| text.parse::<AnyPolicy>().unwrap().shared();
    let each = PerRequest::new(FixedWindow::new(100, MINUTE));
    let tokens = TokenBucket::new(Rate::per_minute(9_000), 9_000);
    for (requests, limit) in [
        (5, of("100/min fixed per request")),
        (5, of("100/min fixed per request and 90/s per request")),
        (5, AnyPolicy::from(All::new((each, each))).shared()),
        (1, of("100/min fixed per request and 9000/min")),
        (1, of("100/min fixed")),
    ] {
        limit.set_remaining(5, ms(5_000));
        let passed = (0..9).filter(|_| limit.try_acquire(3).is_pass()).count();
        assert_eq!(passed, requests, "{:?}", limit.policy());
        assert_eq!(limit.peek(3), wait(5_000));
    }

    let limit = each.shared();
    limit.set_remaining(2, ms(5_000));
    limit.acquire(40).await.unwrap();
    limit.charge(7);
    assert_eq!(remaining(&limit), 1, "a charge is no request");
    let waiting = spawned([3, 4].map(|cost| limit.acquire_owned(cost)));
    yield_now().await;
    assert_eq!(limit.peek(5), wait(5_000));
    assert_eq!(waiting.await, [0, 5_000]);

    let mixed = All::new((each, tokens)).shared();
    mixed.set_remaining(50, ms(5_000));
    mixed.acquire(20).await.unwrap();
    mixed.charge(20);
    assert_eq!(remaining(&mixed), 10);
}

#[tokio::test(start_paused = true)]
async fn what_remains_is_counted_as_new_parameters_count() {
    let of = |text: &str| text.parse::<AnyPolicy>().unwrap();
    let (requests, costs) = (of("100/min fixed per request"), of("100/min fixed"));
    for (old, new, passes) in [(&requests, &costs, 1), (&costs, &requests, 5)] {
        let limit = old.clone().shared();
        limit.set_remaining(5, ms(5_000));
        limit.retune(new.clone());
        let passed = (0..9).filter(|_| limit.try_acquire(3).is_pass()).count();
        assert_eq!(passed, passes, "{new:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_wakes_long_after_the_reset_passes_then() {
    let limit = Interval::every(ms(1_000)).shared();
    limit.set_remaining(0, ms(3_000));
    let passed = spawned([(); 2].map(|()| limit.acquire_owned(1)));
    yield_now().await;
    advance(ms(7_500)).await;
    assert_eq!(passed.await, [7_500, 8_500]);
}

#[tokio::test(start_paused = true)]
async fn what_remains_for_a_key_is_remembered_until_the_reset() {
    let hosts = Interval::every(ms(10)).keyed::<&str>();
    let a = hosts.at("a.example");
    hosts.with(&"a.example", |limit| limit.set_remaining(2, ms(5_000)));
    a.acquire(1).await.unwrap();
    sleep(1_000).await;
    hosts.forget_settled();
    assert_eq!((hosts.len(), remaining(&a)), (1, 1));
    assert!(a.try_acquire(1).is_pass());
    assert_eq!(hosts.peek(&"a.example", 1), wait(4_000));
    let paused_for = hosts.with(&"a.example", |limit| limit.paused_for());
    assert_eq!(paused_for, Some(ms(4_000)));
    assert!(hosts.try_acquire(&"b.example", 1).is_pass());

    let start = now();
    a.acquire(1).await.unwrap();
    assert_eq!(since(start), 4_000);
    sleep(1_000).await;
    hosts.forget_settled();
    assert!(hosts.is_empty());

    hosts.with(&"a.example", |limit| limit.set_remaining(0, MINUTE));
    hosts.with(&"a.example", |limit| limit.resume());
    assert!(hosts.is_empty());
}

#[test]
fn nothing_is_prefetched_while_little_remains() {
    let limit = TokenBucket::new(Rate::new(1, MINUTE * 60), 10_000).shared();
    assert!(limit.try_acquire(1).is_pass());
    limit.set_remaining(3, MINUTE * 60);
    let passed = (0..10).filter(|_| limit.try_acquire(1).is_pass()).count();
    assert_eq!(passed, 3);
}

/// A bucket with all that holds its requests back, in plain fields.
struct Model {
    policy: TokenBucket,
    state: TokenBucketState,
    paused_until: Tick,
    /// What the last reply left until the reset that it named.
    left: u32,
    reset_at: Tick,
}

impl Model {
    fn held_for(&self, now: Tick, cost: u32) -> Duration {
        let is_left = cost <= self.left;
        let reset_at = if is_left { Tick::ZERO } else { self.reset_at };
        self.paused_until.max(reset_at).since(now)
    }

    fn peek(&self, now: Tick, cost: u32) -> Decision {
        let retry_in = match self.policy.peek(&self.state, now, cost) {
            never @ Decision::Never { .. } => return never,
            decision => decision.retry_in().unwrap_or_default(),
        };
        match retry_in.max(self.held_for(now, cost)) {
            _ if cost == 0 => Decision::Pass,
            Duration::ZERO => Decision::Pass,
            retry_in => Decision::Wait { retry_in },
        }
    }

    fn status(&self, now: Tick) -> Status {
        let mut status = self.policy.status(&self.state, now);
        for (left, until) in [(self.left, self.reset_at), (0, self.paused_until)] {
            if now < until && left <= status.remaining {
                status.remaining = left;
                status.reset_in = status.reset_in.max(until.since(now));
            }
        }
        status
    }

    fn pass(&mut self, now: Tick, cost: u32) -> bool {
        let passes = self.peek(now, cost).is_pass();
        if passes {
            self.charge(now, cost);
        }
        passes
    }

    fn charge(&mut self, now: Tick, cost: u32) {
        self.policy.charge(&mut self.state, now, cost);
        self.left = self.left.saturating_sub(cost);
    }
}

/// Of two pauses the later end counts, and of two replies the later one.
#[tokio::test(start_paused = true)]
async fn with_pauses_replies_charges_and_new_parameters_a_limit_answers_as_a_plain_model() {
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (start, limit) = (now(), bucket());
        let mut model = Model {
            policy: BUCKET,
            state: BUCKET.fresh(Tick::ZERO),
            paused_until: Tick::ZERO,
            left: u32::MAX,
            reset_at: Tick::ZERO,
        };
        // Both clocks start now.
        assert!(limit.try_acquire(1).is_pass() && model.pass(Tick::ZERO, 1));
        for _ in 0..60 {
            let now = Tick::ZERO.after(start.elapsed());
            let (number, time) = (random.u32(0..120), ms(random.u64(0..5_000)));
            match random.u32(0..11) {
                0 => {
                    limit.set_remaining(number, time);
                    (model.left, model.reset_at) = (number, now.after(time));
                }
                1 => {
                    let time = if number == 0 { Duration::MAX } else { time };
                    limit.pause_for(time);
                    model.paused_until = model.paused_until.max(now.after(time));
                }
                2 => {
                    limit.resume();
                    (model.left, model.reset_at) = (u32::MAX, Tick::ZERO);
                    model.paused_until = Tick::ZERO;
                }
                3 => {
                    limit.charge(number / 4);
                    model.charge(now, number / 4);
                }
                4 => {
                    limit.refund(number / 4);
                    model.policy.refund(&mut model.state, now, number / 4);
                }
                5 => {
                    let new = TokenBucket::new(Rate::per_second(20), number + 1);
                    limit.retune(new);
                    new.retune(&model.policy, &mut model.state, now);
                    model.policy = new;
                }
                6 => {
                    let actual = random.u32(0..120);
                    let reserved = limit.try_reserve(number).ok();
                    assert_eq!(model.pass(now, number), reserved.is_some());
                    if let Some(reserved) = reserved {
                        reserved.settle(actual);
                        model.charge(now, actual.saturating_sub(number));
                        let unused = number.saturating_sub(actual);
                        let state = &mut model.state;
                        model.policy.refund_from(state, now, now, unused);
                    }
                }
                7 => {
                    let passes = limit.try_acquire(number).is_pass();
                    assert_eq!(model.pass(now, number), passes, "seed {seed}");
                }
                _ => advance(Duration::from_nanos(random.u64(0..2_000_000_000))).await,
            }
            let now = Tick::ZERO.after(start.elapsed());
            for cost in [0, 1, random.u32(1..=120)] {
                assert_eq!(limit.peek(cost), model.peek(now, cost), "seed {seed}");
            }
            assert_eq!(limit.status(), Some(model.status(now)), "seed {seed}");
            let held_for = Some(model.held_for(now, 1)).filter(|time| !time.is_zero());
            assert_eq!(limit.paused_for(), held_for, "seed {seed}");
        }
    }
}
