//! A limit that answers without a handle answers as one that is asked through a handle.

use std::convert::Infallible;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use ::tower::Layer;
use fastrand::Rng;
use http::{HeaderValue, Request};
use paceline::limiter::{Event, Keyed, Limiter, Limits, PolicyExt, Shared, Status, WhenFull};
use paceline::policy::{Decision, FixedWindow, Interval, Policy, SlidingLog, TokenBucket};
use paceline::time::{Rate, Tick};
use paceline_tower::{Answers, EnforceLayer, Failures, For, header_key};

use super::{call, echo, hello};
use crate::timed::{ms, sleep};

/// A limit, or limits by key, that are asked through a handle only.
#[derive(Clone)]
struct ByHandle<L>(L);

impl<L: Limiter> Limiter for ByHandle<L> {
    type Error = L::Error;

    fn poll_decide(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Result<Decision, L::Error>> {
        self.0.poll_decide(cost, cx)
    }

    fn poll_try(&mut self, cost: u32, cx: &mut Context<'_>) -> Poll<Result<Decision, L::Error>> {
        self.0.poll_try(cost, cx)
    }

    fn give_up(&mut self) {
        self.0.give_up();
    }

    fn inner(&self) -> Option<&dyn Limiter<Error = L::Error>> {
        Some(&self.0)
    }
}

impl<M: Limits<String>> Limits<String> for ByHandle<M> {
    type Limit = ByHandle<M::Limit>;
    type Error = M::Error;

    fn at(&self, key: String) -> Result<ByHandle<M::Limit>, M::Error> {
        self.0.at(key).map(ByHandle)
    }
}

type Log = Arc<Mutex<Vec<(String, Event)>>>;

/// What happens between two requests.
#[derive(Clone, Copy)]
enum Step {
    Sleep(u64),
    /// A request of this cost from one of the users, or without one.
    Send(u32, Option<&'static str>),
    Pause(&'static str),
    /// A request of this user is queued, or leaves the queue.
    Queue(&'static str),
}

fn steps(random: &mut Rng) -> Vec<Step> {
    const USERS: [&str; 4] = ["ann", "bob", "cem", ""];
    let user = |random: &mut Rng| random.choice(USERS).unwrap();
    let step = |_| match random.u32(..20) {
        0..4 => Step::Sleep(random.u64(1..40)),
        4 => Step::Sleep(1_000),
        5 => Step::Pause(user(random)),
        6 | 7 => Step::Queue(user(random)),
        8 => Step::Send(random.u32(..9), None),
        _ => Step::Send(random.u32(..4), Some(user(random))),
    };
    (0..60).map(step).collect()
}

fn request(cost: u32, user: Option<&'static str>) -> Request<()> {
    let mut request = Request::new(());
    let headers = request.headers_mut();
    headers.insert("x-cost", cost.into());
    if let Some(user) = user {
        headers.insert("x-user", HeaderValue::from_static(user));
    }
    request
}

fn cost(request: &Request<()>) -> u32 {
    let cost = request.headers()["x-cost"].to_str().unwrap();
    cost.parse().unwrap()
}

/// What callers see: the responses with all headers, and the refusals as errors.
async fn seen<L>(
    terms: For<Request<()>, L>,
    steps: &[Step],
    mut other: impl FnMut(Step),
) -> Vec<String>
where
    L: Limiter<Error = Infallible> + Clone + Send + Sync + 'static,
{
    let as_error = EnforceLayer::with_terms(terms).costing(cost);
    let answers = Answers::new("users")
        .with_success_headers(true)
        .with_legacy(true);
    let as_response = as_error.clone().answering(answers);
    let (mut failing, mut answering) = (as_error.layer(hello()), as_response.layer(hello()));
    let mut seen = Vec::new();
    for (at, &step) in steps.iter().enumerate() {
        match step {
            Step::Sleep(millis) => sleep(millis).await,
            Step::Send(cost, user) if at % 2 == 0 => {
                seen.push(format!(
                    "{:?}",
                    call(&mut failing, request(cost, user)).await
                ));
            }
            Step::Send(cost, user) => {
                seen.push(format!(
                    "{:?}",
                    call(&mut answering, request(cost, user)).await
                ));
            }
            step => other(step),
        }
    }
    seen.push(format!("{:?}", as_error.failures()));
    seen
}

fn poll_once(handle: &mut impl Limiter<Error = Infallible>) {
    let _ = handle.poll_decide(2, &mut Context::from_waker(Waker::noop()));
}

async fn of_one<P>(policy: P, steps: &[Step], lends: bool) -> (Vec<String>, Vec<(String, Event)>)
where
    P: Policy<State: Send> + Clone + Send + Sync + 'static,
{
    let log = Log::default();
    let writes = Arc::clone(&log);
    let limit: Shared<P> = policy.shared().with_observer(move |event: Event| {
        writes.lock().unwrap().push((String::new(), event));
    });
    let mut queued = None;
    let other = |step| match step {
        Step::Pause(_) => limit.pause_for(ms(30)),
        _ => match queued.take() {
            None => poll_once(queued.insert(limit.clone())),
            Some(handle) => drop(handle),
        },
    };
    let mut seen = if lends {
        seen(For::all(limit.clone()), steps, other).await
    } else {
        seen(For::all(ByHandle(limit.clone())), steps, other).await
    };
    seen.push(format!("{:?}", (limit.stats(), limit.status())));
    let log = log.lock().unwrap().clone();
    (seen, log)
}

async fn by_key<P>(
    keyed: Keyed<String, P>,
    steps: &[Step],
    way: usize,
) -> (Vec<String>, Vec<(String, Event)>)
where
    P: Policy<State: Send> + Clone + PartialEq + Send + Sync + 'static,
{
    let log = Log::default();
    let writes = Arc::clone(&log);
    let keyed = keyed.with_observer_by_key(move |key: &String, event| {
        writes.lock().unwrap().push((key.clone(), event));
    });
    let mut queued = None;
    let other = |step| match step {
        Step::Pause(user) => keyed.with(user, |limit| limit.pause_for(ms(30))),
        Step::Queue(user) => match queued.take() {
            None => poll_once(queued.insert(keyed.at(user.to_owned()))),
            Some(handle) => drop(handle),
        },
        _ => {}
    };
    let limits = keyed.clone();
    let mut seen = match way {
        0 => seen(For::header(limits, "x-user"), steps, other).await,
        1 => seen(For::key(limits, header_key("x-user")), steps, other).await,
        2 => seen(For::header(ByHandle(limits), "x-user"), steps, other).await,
        _ => {
            seen(
                For::key(ByHandle(limits), header_key("x-user")),
                steps,
                other,
            )
            .await
        }
    };
    seen.push(format!(
        "{:?}",
        (keyed.stats(), keyed.status("ann"), keyed.len())
    ));
    let log = log.lock().unwrap().clone();
    (seen, log)
}

async fn answers_the_same<P>(policy: P)
where
    P: Policy<State: Send> + Clone + PartialEq + Send + Sync + 'static,
{
    for seed in 0..20 {
        let steps = steps(&mut Rng::with_seed(seed));
        let lent = of_one(policy.clone(), &steps, true).await;
        assert_eq!(lent, of_one(policy.clone(), &steps, false).await, "{seed}");
        // The places of keys in their table do not depend on chance.
        let hasher = BuildHasherDefault::<DefaultHasher>::default;
        let keyed = || policy.clone().keyed::<String>().with_hasher(hasher());
        let full = |when_full| keyed().with_max_keys(2).with_when_full(when_full);
        let tables: [&dyn Fn() -> Keyed<String, P>; 4] = [
            &keyed,
            &|| full(WhenFull::Wait),
            &|| full(WhenFull::Pass),
            &|| full(WhenFull::Share(policy.clone())),
        ];
        for (table, keyed) in tables.iter().enumerate() {
            let lent = by_key(keyed(), &steps, 0).await;
            assert!(!lent.1.is_empty());
            for way in 1..4 {
                let other = by_key(keyed(), &steps, way).await;
                assert_eq!(lent, other, "seed {seed}, table {table}, way {way}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_bucket_answers_the_same_without_a_handle() {
    answers_the_same(TokenBucket::new(Rate::per_second(50), 3)).await;
    answers_the_same(TokenBucket::new(Rate::per_second(50), 3).with_empty_start()).await;
}

#[tokio::test(start_paused = true)]
async fn windows_answer_the_same_without_a_handle() {
    answers_the_same(FixedWindow::new(3, ms(50))).await;
    answers_the_same(SlidingLog::new(3, ms(50))).await;
}

#[tokio::test(start_paused = true)]
async fn an_interval_answers_the_same_without_a_handle() {
    answers_the_same(Interval::every(ms(20))).await;
}

/// Its decisions are those of a window, and its status panics.
#[derive(Clone, Copy, Debug, PartialEq)]
struct NoStatus(FixedWindow);

impl Policy for NoStatus {
    type State = <FixedWindow as Policy>::State;

    fn fresh(&self, now: Tick) -> Self::State {
        self.0.fresh(now)
    }

    fn decide(&self, state: &mut Self::State, now: Tick, cost: u32) -> Decision {
        self.0.decide(state, now, cost)
    }

    fn status(&self, _: &Self::State, _: Tick) -> Status {
        panic!("planted")
    }

    fn refund(&self, state: &mut Self::State, now: Tick, cost: u32) {
        self.0.refund(state, now, cost);
    }

    fn retune(&self, old: &Self, state: &mut Self::State, now: Tick) {
        self.0.retune(&old.0, state, now);
    }

    fn settled_at(&self, state: &Self::State) -> Tick {
        self.0.settled_at(state)
    }
}

/// Whether three requests of a user pass, how many headers their responses have, and what has failed.
async fn answered<L>(terms: For<Request<()>, L>) -> (Vec<(u16, usize)>, Failures)
where
    L: Limiter<Error = Infallible> + Clone + Send + Sync + 'static,
{
    let answers = Answers::new("users").with_success_headers(true);
    let layer = EnforceLayer::with_terms(terms).answering(answers);
    let mut service = layer.layer(hello());
    let mut answered = Vec::new();
    for _ in 0..3 {
        let response = call(&mut service, request(1, Some("ann"))).await.unwrap();
        answered.push((response.status().as_u16(), response.headers().len()));
    }
    (answered, layer.failures())
}

#[tokio::test(start_paused = true)]
async fn a_decision_stands_if_the_policy_panics_where_its_status_is_read() {
    let policy = NoStatus(FixedWindow::new(2, ms(60_000)));
    let (limit, keyed) = (policy.shared(), policy.keyed::<String>());
    // A refusal has `Retry-After` and the type of its content.
    let expected = (vec![(200, 0), (200, 0), (429, 2)], Failures::default());
    assert_eq!(answered(For::all(limit)).await, expected);
    assert_eq!(
        answered(For::all(ByHandle(policy.shared()))).await,
        expected
    );
    assert_eq!(
        answered(For::header(keyed.clone(), "x-user")).await,
        expected
    );
    let handles = ByHandle(policy.keyed());
    assert_eq!(answered(For::header(handles, "x-user")).await, expected);
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_is_a_failure_and_the_response_says_nothing_of_the_limit() {
    let window = FixedWindow::new(2, ms(60_000));
    let panics = |event: Event| assert!(!matches!(event, Event::Passed { .. }), "planted");
    let limit = || window.shared().with_observer(panics);
    let keyed = || window.keyed::<String>().with_observer(panics);
    let mut expected = (vec![(200, 0), (200, 0), (429, 4)], Failures::default());
    expected.1.panics = 2;
    assert_eq!(answered(For::all(limit())).await, expected);
    assert_eq!(answered(For::all(ByHandle(limit()))).await, expected);
    assert_eq!(answered(For::header(keyed(), "x-user")).await, expected);
    assert_eq!(
        answered(For::header(ByHandle(keyed()), "x-user")).await,
        expected
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_key_has_no_cost_and_one_with_a_key_is_asked_for_it_once() {
    let asked = Arc::new(Mutex::new(0));
    let counts = Arc::clone(&asked);
    let cost = move |_: &u32| {
        *counts.lock().unwrap() += 1;
        1
    };
    let even = |n: &u32| (n % 2 == 0).then(|| n.to_string());
    let window = FixedWindow::new(1, ms(60_000));
    let layer = EnforceLayer::by_key(window.keyed(), even).costing(cost.clone());
    let by_handle = EnforceLayer::by_key(ByHandle(window.keyed()), even).costing(cost.clone());
    let one = EnforceLayer::new(window.shared()).costing(cost);
    for (n, expected) in [(1, [0, 0, 1]), (2, [1, 1, 1]), (2, [1, 1, 1])] {
        let mut seen = Vec::new();
        let _ = call(&mut layer.layer(echo()), n).await;
        seen.push(core::mem::take(&mut *asked.lock().unwrap()));
        let _ = call(&mut by_handle.layer(echo()), n).await;
        seen.push(core::mem::take(&mut *asked.lock().unwrap()));
        let _ = call(&mut one.layer(echo()), n).await;
        seen.push(core::mem::take(&mut *asked.lock().unwrap()));
        assert_eq!(seen, expected);
    }
}
