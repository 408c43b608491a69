//! A limit of any kind behind a switch.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};

use futures::{FutureExt, SinkExt, StreamExt, stream};
use paceline::fair::FairShare;
use paceline::limiter::{
    Combined, Event, Fair, Limiter, Limits, Mode, Observed, Share, Shared, Switch, Switched,
    WhenFull,
};
use paceline::policy::{Decision, Policy};
use paceline::prelude::*;
use paceline::time::Resolution;
use testkit::clock::jump;
use testkit::wakes::counter;

use super::{bucket, queued, spawned, used};
use crate::stream::pace_by_key::EvenKeys;
use crate::timed::{ms, now, since, sleep};

const MODES: [Mode; 3] = [Mode::Active, Mode::Shadow, Mode::Off];

type Answer<E> = Poll<Result<Decision, E>>;

const PASS: Answer<Infallible> = Poll::Ready(Ok(Decision::Pass));

const fn wait(millis: u64) -> Answer<Infallible> {
    Poll::Ready(Ok(super::wait(millis)))
}

/// What the three methods answer, each to a handle of its own, in the order of the trait.
fn answers<L: Limiter + Clone>(limiter: &L, cost: u32) -> [Answer<L::Error>; 3] {
    let asked = |ask: fn(&mut L, u32, &mut Context<'_>) -> Answer<L::Error>| {
        ask(&mut limiter.clone(), cost, &mut context())
    };
    [L::poll_decide, L::poll_try, L::poll_open].map(asked)
}

fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// A limit behind a switch, and the limit itself.
fn switched<P>(policy: P) -> (Switch, Switched<Shared<P>>, Shared<P>)
where
    P: Policy + Send + 'static,
    P::State: Send,
{
    let (switch, limit) = (Switch::new(), policy.shared());
    let switched = Switched::new(limit.clone(), switch.clone());
    (switch, switched, limit)
}

/// The requests that were shadowed, and how many of them were held back and had no answer.
fn counts(switch: &Switch) -> (u64, u64, u64) {
    let stats = switch.stats();
    (stats.shadowed, stats.held_back, stats.unreachable)
}

#[tokio::test(start_paused = true)]
async fn a_mode_that_is_kept_elsewhere_is_refreshed_before_each_request_and_not_when_it_is_read() {
    let asked = Arc::new(Mutex::new(0));
    let counts = Arc::clone(&asked);
    let switch = Switch::with_refresh(move || *counts.lock().unwrap() += 1);
    let limit = used(100).switched(&switch);
    assert!(!limit.try_acquire(1).await.is_pass());
    switch.set(Mode::Shadow, Share::percent(50));
    let read = (switch.mode(), switch.share());
    assert_eq!(read, (Mode::Shadow, Share::percent(50)));
    assert!(limit.try_acquire(1).await.is_pass());
    switch.set_mode(Mode::Off);
    assert!(limit.try_acquire(1).await.is_pass());
    assert_eq!((switch.mode(), *asked.lock().unwrap()), (Mode::Off, 3));
}

/// As one that reads the mode at once.
#[tokio::test(start_paused = true)]
async fn a_refresh_may_set_the_mode_of_the_request_that_asks() {
    let cell = Arc::new(OnceLock::<Switch>::new());
    let own = Arc::clone(&cell);
    let switch = Switch::with_refresh(move || own.get().unwrap().set_mode(Mode::Off));
    cell.set(switch.clone()).unwrap();
    assert!(used(100).switched(&switch).try_acquire(1).await.is_pass());
}

#[tokio::test(start_paused = true)]
async fn each_method_answers_as_the_mode_says_and_charges_what_conforms_if_it_is_no_look() {
    let never = Poll::Ready(Ok(Decision::Never { capacity: 6 }));
    // The mode, what is spent, and the cost; the answer, the requests that the limit passes, and the counts of the switch.
    for (mode, spent, cost, answer, passed, counted) in [
        (Mode::Active, 0, 2, PASS, 2, (0, 0, 0)),
        (Mode::Shadow, 0, 2, PASS, 2, (2, 0, 0)),
        (Mode::Off, 0, 2, PASS, 0, (0, 0, 0)),
        (Mode::Active, 6, 1, wait(100), 0, (0, 0, 0)),
        (Mode::Shadow, 6, 1, PASS, 0, (2, 2, 0)),
        (Mode::Off, 6, 1, PASS, 0, (0, 0, 0)),
        (Mode::Active, 0, 7, never, 0, (0, 0, 0)),
        (Mode::Shadow, 0, 7, PASS, 0, (2, 2, 0)),
        (Mode::Off, 0, 7, PASS, 0, (0, 0, 0)),
    ] {
        let (switch, limiter, limit) = switched(bucket(6));
        limit.charge(spent);
        switch.set_mode(mode);
        let case = format!("{mode:?}, {spent} of 6 are spent, cost {cost}");
        assert_eq!(answers(&limiter, cost), [answer; 3], "{case}");
        assert_eq!(counts(&switch), counted, "{case}");
        let stats = limit.stats();
        assert_eq!((stats.passed, stats.waiting), (passed, 0), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn cost_0_passes_in_every_mode_and_is_neither_counted_nor_drawn() {
    for mode in MODES {
        for share in [Share::NONE, Share::percent(1), Share::FULL] {
            let (switch, limiter, _) = switched(bucket(1));
            switch.set(mode, share);
            assert_eq!(answers(&limiter, 0), [PASS; 3]);
            assert_eq!(counts(&switch), (0, 0, 0));

            // The first number of the sequence, 0, is still there.
            switch.set(Mode::Active, Share::of_ten_thousand(1));
            assert_eq!(limiter.clone().poll_try(1, &mut context()), PASS);
            assert_eq!(counts(&switch), (0, 0, 0));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_a_request_waits_for_it_passes_at_once_when_the_switch_turns() {
    type Turn = fn(&Switch);
    const LONG: u64 = 3_600_000;
    let to_shadow: Turn = |switch| switch.set_mode(Mode::Shadow);
    let turns = [
        (to_shadow, 8),
        (|switch| switch.set_mode(Mode::Off), 0),
        (|switch| switch.set_share(Share::NONE), 8),
        (|switch| switch.set(Mode::Off, Share::NONE), 0),
    ];
    for (turn, held_back) in turns {
        let (switch, every) = (Switch::new(), Interval::every(ms(LONG)));
        // The first waits for a timer, and the others for their turn.
        let limit = used(LONG);
        let queue = limit.clone().switched(&switch);
        let users = every.keyed().switched(&switch);
        let full = every.keyed().with_max_keys(1).switched(&switch);
        let sharing = every.keyed().with_max_keys(1);
        let sharing = sharing.with_when_full(WhenFull::Share(every));
        let sharing = sharing.switched(&switch);
        let clients = Fair::new(FairShare::new(1, ms(LONG))).switched(&switch);
        let both = Combined::new((used(LONG), used(LONG))).switched(&switch);
        for passes in [
            users.acquire(1, 1).now_or_never(),
            full.acquire(1, 1).now_or_never(),
            sharing.acquire(1, 1).now_or_never(),
            sharing.acquire(2, 1).now_or_never(),
            clients.acquire(1, 1).now_or_never(),
        ] {
            assert_eq!(passes, Some(Ok(())));
        }
        let passed = spawned([
            queue.acquire(1).boxed(),
            queue.acquire(1).boxed(),
            queue.acquire(1).boxed(),
            users.acquire(1, 1).boxed(),
            full.acquire(2, 1).boxed(),
            sharing.acquire(3, 1).boxed(),
            clients.acquire(1, 1).boxed(),
            both.acquire(1).boxed(),
        ]);
        sleep(10).await;
        assert_eq!(limit.waiting(), 3);
        turn(&switch);
        assert_eq!(passed.await, [10; 8], "{switch:?}");
        assert_eq!(switch.stats().held_back, held_back);
        let left = (limit.waiting(), limit.stats().passed);
        assert_eq!(left, (0, 1), "nothing passed before its time");
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_that_waits_ends_when_the_switch_turns() {
    for mode in [Mode::Shadow, Mode::Off] {
        let (switch, limiter, limit) = switched(Interval::every(ms(100)));
        limiter.acquire_one().await;
        let mut limiter = limiter.clone();
        let (waker, woken) = counter();
        let mut cx = Context::from_waker(&waker);
        assert_eq!(limiter.poll_open(1, &mut cx), wait(100));

        switch.set_mode(mode);
        assert_eq!(woken.count(), 1);
        assert_eq!(limiter.poll_open(1, &mut cx), PASS);
        assert_eq!(limit.stats().waiting, 0);
        assert_eq!(counts(&switch), (0, 0, 0), "a look is no request");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_shadowed_takes_the_permit_that_is_due() {
    let (switch, limiter, limit) = switched(Interval::every(ms(100)));
    limiter.acquire_one().await;
    let mut waits = queued(limiter.acquire_one());
    jump(ms(100)).await;
    switch.set_mode(Mode::Shadow);
    assert!(waits.poll().is_ready());
    assert_eq!(limit.stats().passed, 2);
    assert_eq!(counts(&switch), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_leaves_no_trace_in_the_queue_and_in_the_switch() {
    for mode in MODES {
        let (switch, limiter, limit) = switched(Interval::every(ms(100)));
        limiter.acquire_one().await;
        let dropped = queued(limiter.acquire_one());
        let mut given_up = limiter.clone();
        let (waker, woken) = counter();
        let mut cx = Context::from_waker(&waker);
        assert_eq!(given_up.poll_decide(1, &mut cx), Poll::Pending);

        assert_eq!(limit.stats().waiting, 2);
        drop(dropped);
        given_up.give_up();
        assert_eq!(limit.stats().waiting, 0);
        drop(waker);
        assert!(!woken.is_kept());
        switch.set_mode(mode);
        assert_eq!(limit.stats().passed, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_latest_task_is_woken() {
    let (switch, limiter, _) = switched(Interval::every(ms(100)));
    limiter.acquire_one().await;
    let mut waits = queued(limiter.acquire_one());
    waits.change_task();
    assert!(waits.poll().is_pending());
    let wakes = waits.wakes();
    switch.set_mode(Mode::Active);
    assert_eq!(waits.wakes(), wakes, "nothing has changed");
    switch.set_mode(Mode::Off);
    assert_eq!(waits.wakes(), wakes + 1);
    assert!(waits.poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn of_100_000_keys_exactly_those_in_the_share_are_limited_and_all_are_charged() {
    let switch = Switch::new().with_share(Share::percent(1));
    let keyed = Interval::every(ms(1_000)).keyed::<u64>();
    let limits = Switched::new(keyed.clone(), switch.clone());
    let mut refused = 0;
    for key in 0..100_000 {
        let Ok(mut limit) = limits.at(key);
        assert_eq!(limit.poll_try(1, &mut context()), PASS);
        let is_pass = limit.poll_try(1, &mut context()) == PASS;
        assert_eq!(is_pass, !switch.share().includes(&key));
        refused += u32::from(!is_pass);
    }
    assert_eq!(refused, 1_038);
    assert_eq!(keyed.stats().passed, 100_000);
    assert_eq!(counts(&switch), (2 * 98_962, 98_962, 0));
}

#[tokio::test(start_paused = true)]
async fn of_10_000_requests_without_a_key_exactly_the_share_is_limited() {
    let (switch, limiter, limit) = switched(Interval::every(ms(1_000)));
    limiter.acquire_one().await;
    switch.set_share(Share::of_ten_thousand(25));
    let answers = (0..10_000).map(|_| limiter.clone().poll_try(1, &mut context()));
    assert_eq!(answers.filter(|answer| *answer != PASS).count(), 25);
    assert_eq!(limit.stats().passed, 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_keeps_its_number_however_often_it_is_polled() {
    let (switch, limiter, _) = switched(Interval::every(ms(100)));
    limiter.acquire_one().await;
    // Of the first numbers, 0 and 6,181, only the former is in the share.
    switch.set_share(Share::percent(50));
    let mut in_share = limiter.clone();
    for _ in 0..9 {
        assert_eq!(in_share.poll_open(1, &mut context()), wait(100));
        assert_eq!(in_share.poll_decide(1, &mut context()), wait(100));
    }
    let mut shadowed = limiter.clone();
    for _ in 0..9 {
        assert_eq!(shadowed.poll_open(1, &mut context()), PASS);
    }
    assert_eq!(shadowed.poll_decide(1, &mut context()), PASS);
    assert_eq!(in_share.poll_decide(1, &mut context()), wait(100));

    // A clone and a request that was given up draw anew: 2,362 and 8,543.
    assert_eq!(in_share.clone().poll_try(1, &mut context()), wait(200));
    in_share.give_up();
    assert_eq!(in_share.poll_decide(1, &mut context()), PASS);
}

#[tokio::test(start_paused = true)]
async fn a_clone_has_the_same_switch_and_key() {
    let switch = Switch::new().with_share(Share::percent(30));
    let limit = Interval::every(ms(100)).shared();
    let bob = Switched::new(limit, switch.clone()).with_key("bob");
    let clone = bob.clone();
    bob.acquire_one().await;
    assert_eq!(answers(&clone, 1), [wait(100); 3]);
    bob.switch().set_mode(Mode::Off);
    assert_eq!(answers(&clone, 1), [PASS; 3]);
    assert_eq!(
        format!("{switch:?}"),
        "Switch { mode: Off, share: 30%, stats: SwitchStats { shadowed: 0, held_back: 0, unreachable: 0 } }"
    );
}

/// A limiter on a server, with the answers that it gives.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<ServerState>>);

#[derive(Default)]
struct ServerState {
    answers: VecDeque<Answer<&'static str>>,
    asked: usize,
    left: usize,
}

impl Server {
    fn answering<const N: usize>(answers: [Answer<&'static str>; N]) -> Self {
        let server = Self::default();
        server.0.lock().unwrap().answers = answers.into();
        server
    }

    /// How often it was asked, and how often a request was given up.
    fn seen(&self) -> (usize, usize) {
        let state = self.0.lock().unwrap();
        (state.asked, state.left)
    }
}

impl Limiter for Server {
    type Error = &'static str;

    fn poll_decide(&mut self, _: u32, _: &mut Context<'_>) -> Answer<&'static str> {
        let mut state = self.0.lock().unwrap();
        state.asked += 1;
        state.answers.pop_front().unwrap()
    }

    fn give_up(&mut self) {
        self.0.lock().unwrap().left += 1;
    }

    fn resolution(&self) -> Resolution {
        Resolution::Millis
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_limiter_reaches_the_caller_in_active_only() {
    let pass = Poll::Ready(Ok(Decision::Pass));
    for (mode, expected, asked, unreachable) in [
        (Mode::Active, Poll::Ready(Err("down")), 1, 0),
        (Mode::Shadow, pass, 1, 1),
        (Mode::Off, pass, 0, 0),
    ] {
        let server = Server::answering([Poll::Ready(Err("down"))]);
        let switch = Switch::new().with_mode(mode);
        let mut limiter = Switched::new(server.clone(), switch.clone());
        assert_eq!(limiter.poll_decide(1, &mut context()), expected);
        assert_eq!(server.seen().0, asked, "{mode:?}");
        assert_eq!(counts(&switch), (unreachable, 0, unreachable));
    }
}

#[tokio::test(start_paused = true)]
async fn in_shadow_an_answer_under_way_is_awaited_and_in_off_given_up() {
    let pass = Poll::Ready(Ok(Decision::Pass));
    let refused = Poll::Ready(Ok(Decision::Wait { retry_in: ms(9) }));
    let server = Server::answering([Poll::Pending, refused, Poll::Pending]);
    let switch = Switch::new().with_mode(Mode::Shadow);
    let mut limiter = Switched::new(server.clone(), switch.clone());
    let (waker, woken) = counter();
    let mut cx = Context::from_waker(&waker);

    assert_eq!(limiter.poll_decide(1, &mut cx), Poll::Pending);
    assert_eq!(counts(&switch), (0, 0, 0));
    assert_eq!(limiter.poll_decide(1, &mut cx), pass);
    assert_eq!(counts(&switch), (1, 1, 0));
    assert_eq!(server.seen(), (2, 1), "a refused request leaves");

    assert_eq!(limiter.poll_try(1, &mut cx), Poll::Pending);
    switch.set_mode(Mode::Off);
    assert_eq!(woken.count(), 1);
    assert_eq!(limiter.poll_try(1, &mut cx), pass);
    assert_eq!(server.seen(), (3, 2));
    assert_eq!(limiter.poll_try(1, &mut cx), pass);
    assert_eq!(server.seen(), (3, 2), "off asks nothing");
    assert_eq!(limiter.resolution(), Resolution::Millis);
}

#[tokio::test(start_paused = true)]
async fn a_key_without_a_limit_is_an_error_only_while_it_is_limited() {
    let (keyed, odd) = (Interval::every(ms(100)).keyed(), 7_u64);
    let switch = Switch::new();
    let limits = Switched::new(EvenKeys(keyed), switch.clone());
    assert!(limits.at(odd).is_err());
    assert!(limits.at(8).is_ok());

    switch.set_share(Share::NONE);
    let limit = limits.at(odd).unwrap();
    assert_eq!(answers(&limit, 1), [PASS; 3]);
    assert_eq!(counts(&switch), (2, 0, 2));
    switch.set(Mode::Shadow, Share::FULL);
    assert_eq!(answers(&limits.at(odd).unwrap(), 1), [PASS; 3]);
    switch.set_mode(Mode::Off);
    assert_eq!(answers(&limits.at(odd).unwrap(), 1), [PASS; 3]);
    assert_eq!(counts(&switch), (4, 0, 4));

    switch.set_mode(Mode::Active);
    assert_eq!(answers(&limit, 1), [PASS; 3], "it was made without a limit");
    assert!(limits.at(odd).is_err());
}

#[tokio::test(start_paused = true)]
async fn adapters_take_it_and_feel_the_switch() {
    let start = now();
    let (switch, limiter, _) = switched(Interval::every(ms(100)));
    let mut paced = stream::iter(0..9).pace(limiter.clone());
    paced.next().await;
    paced.next().await;
    assert_eq!(since(start), 100);
    switch.set_mode(Mode::Shadow);
    assert_eq!(paced.count().await, 7);
    let mut sink = futures::sink::drain().pace_sends(limiter);
    sink.send(1).await.unwrap();
    assert_eq!(since(start), 100);
    switch.set_mode(Mode::Active);
    sink.send(2).await.unwrap();
    assert_eq!(since(start), 200);
}

#[tokio::test(start_paused = true)]
async fn a_stream_paced_by_key_is_limited_for_the_share_and_feels_a_larger_one() {
    let switch = Switch::new().with_share(Share::percent(30));
    let users = Interval::every(ms(100)).keyed();
    let users = Switched::new(users, switch.clone());
    let calls = ["ann", "bob", "ann", "bob", "ann"];
    let start = now();
    let mut paced = stream::iter(calls).try_pace_by_key(users, |user| *user, 9);
    let mut order = Vec::new();
    for _ in 0..4 {
        order.push(paced.next().await.unwrap().unwrap());
    }
    assert_eq!((order, since(start)), (vec!["ann", "bob", "ann", "ann"], 0));
    assert!(paced.next().now_or_never().is_none());
    switch.set_share(Share::NONE);
    assert_eq!(paced.next().await, Some(Ok("bob")));
    assert_eq!(since(start), 0);
}

#[tokio::test(start_paused = true)]
async fn it_goes_around_an_observer_and_an_observer_around_it() {
    let switch = Switch::new().with_mode(Mode::Shadow);
    let events = [(); 2].map(|()| Arc::new(Mutex::new(Vec::new())));
    let [inside, outside] = events.clone().map(|events| {
        move |event: Event| {
            let passed = matches!(event, Event::Passed { .. });
            events.lock().unwrap().push(passed);
        }
    });
    let limit = Observed::new(bucket(1).shared(), inside);
    let limit = Observed::new(limit.switched(&switch), outside);
    limit.acquire_one().await;
    assert_eq!(stream::iter([1]).pace(limit).count().await, 1);
    // The second one passed only in shadow mode, which is an event of its own.
    for events in events {
        assert_eq!(*events.lock().unwrap(), [true, false]);
    }
}
