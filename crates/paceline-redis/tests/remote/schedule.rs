//! Random schedules: callers ask, try and leave while the server and the network fail in every way.
//!
//! A failure prints its seed. `SEED=7 cargo test … schedule` runs that schedule alone.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use tokio::task::JoinSet;

use super::server::{Rule, Server};
use super::{DEADLINE, Limit, MINUTE, Process, WaitMode, ms, within};
use crate::remote::connection::sleep;
use crate::remote::{Failure, OutagePolicy};
use paceline::policy::{Decision, Interval, SlidingLog, TokenBucket};
use paceline::time::{Rate, Tick};

/// For how long the server and the network fail.
const TROUBLE: Duration = Duration::from_secs(3);

const LIMIT: u32 = 6;

const WINDOW: Duration = Duration::from_millis(400);

/// Odd seeds take two permits ahead, for 60 ms.
fn prefetch(seed: u64) -> Option<(u32, Duration)> {
    (seed % 2 == 1).then_some((2, ms(60)))
}

/// How long after it was counted a permit can be used: the deadline and 100 ms, or the prefetch and 100 ms.
fn late(seed: u64) -> Duration {
    prefetch(seed).map_or(DEADLINE, |(_, lasts)| lasts) + ms(100)
}

type Uses = Arc<Mutex<Vec<(Tick, u32)>>>;

fn seeds() -> Range<u64> {
    let one = std::env::var("SEED").ok().map(|seed| seed.parse().unwrap());
    one.map_or(0..30, |seed: u64| seed..seed + 1)
}

/// Runs a schedule in its own virtual time, and returns the permits that callers used.
fn run<P: Rule>(
    seed: u64,
    processes: u32,
    policy: &P,
    outage_policy: OutagePolicy,
) -> (Server<P>, Vec<(Tick, u32)>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut random = Rng::with_seed(seed);
        let server = Server::start();
        let uses = Uses::default();
        let mut callers = JoinSet::new();
        let mut limits = Vec::new();
        for _ in 0..processes {
            let process = Process::of(&server, outage_policy);
            process.connect().await;
            let limit = process.limit_with(0, policy.clone(), prefetch(seed));
            for _ in 0..random.usize(1..6) {
                let (server, limit, uses) = (server.clone(), limit.clone(), Arc::clone(&uses));
                let random = random.fork();
                callers.spawn(async move { call(random, &server, limit, &uses).await });
            }
            limits.push((process, limit));
        }
        trouble(&mut random, &server).await;
        heal(&server);
        // Requests that go on, and new ones.
        let all_done = within(MINUTE, callers.join_all()).await;
        assert!(all_done.is_some(), "seed {seed}: a caller waits for ever");
        // A fault is cached for a second.
        sleep(ms(1_500)).await;
        for (process, limit) in &limits {
            for _ in 0..3 {
                let acquired = within(MINUTE, limit.acquire(1)).await;
                acquired.expect("it waits for ever").unwrap();
                uses.lock().unwrap().push((server.world().now(), 1));
            }
            assert!(process.is_up(), "seed {seed}");
        }
        // Permits of requests that were dropped are on their way back.
        sleep(MINUTE).await;
        let uses = uses.lock().unwrap().clone();
        (server, uses)
    })
}

/// One caller: asks with random costs, and leaves at random times.
async fn call<P: Rule>(mut random: Rng, server: &Server<P>, limit: Limit<P>, uses: &Uses) {
    let start = server.world().now();
    let mut handle = limit.clone();
    while server.world().now().since(start) < TROUBLE {
        let cost = random.u32(1..=3).min(limit.queue.config.capacity);
        let mode = [WaitMode::Wait, WaitMode::WaitFailFast, WaitMode::Try][random.usize(0..3)];
        let passed = match random.u32(0..10) {
            0..3 => limit.try_acquire(cost).await.is_ok_and(Decision::is_pass),
            3..6 => matches!(
                within(ms(random.u64(0..30)), limit.acquire(cost)).await,
                Some(Ok(()))
            ),
            // The handle keeps its position, and asks for another cost next time.
            6..9 => {
                let asked = poll_fn(|cx| handle.poll_ask(cost, mode, cx));
                let answer = within(ms(random.u64(0..60)), asked).await;
                answer.is_some_and(|answer| answer.is_ok_and(Decision::is_pass))
            }
            _ => {
                handle = limit.clone();
                false
            }
        };
        if passed {
            let now = server.world().now();
            uses.lock().unwrap().push((now, cost));
        }
        sleep(ms(random.u64(0..20))).await;
    }
}

async fn trouble<P: Rule>(random: &mut Rng, server: &Server<P>) {
    let start = server.world().now();
    while server.world().now().since(start) < TROUBLE {
        match random.u32(0..24) {
            0..3 => server.world().reply_in = ms(random.u64(0..30)),
            3 => server.world().per_call = ms(random.u64(0..20)),
            4 => server.world().loses_replies = true,
            5 => server.cut(),
            6 => server.freeze(),
            7 => server.kill(),
            8 => server.restart(),
            9 => server.world().failure = Some(Failure::Unavailable("loading".into())),
            10 => server.world().failure = Some(Failure::Fault("no permission".into())),
            11 => server.world().late_after_reply = ms(random.u64(1..300)),
            _ => heal(server),
        }
        sleep(ms(random.u64(1..150))).await;
    }
}

fn heal<P: Rule>(server: &Server<P>) {
    server.thaw();
    let mut world = server.world();
    (world.reply_in, world.per_call) = (ms(0), ms(0));
    (world.loses_replies, world.is_reachable) = (false, true);
    world.failure = None;
}

/// Each use is of a permit that the server counted shortly before, and that was not returned.
fn assert_counted<P: Rule>(seed: u64, server: &Server<P>, uses: &[(Tick, u32)]) {
    let each = |(at, cost): &(Tick, u32)| std::iter::repeat_n(*at, *cost as usize);
    let counted: Vec<_> = server
        .world()
        .counted
        .iter()
        .map(|it| (it.0, it.2))
        .collect();
    let mut counted = counted.iter().flat_map(each).peekable();
    let mut uses = uses.to_vec();
    uses.sort();
    assert!(uses.len() > 6, "seed {seed}: {uses:?}");
    for used in uses.iter().flat_map(each) {
        while counted
            .peek()
            .is_some_and(|counted| used.since(*counted) > late(seed))
        {
            counted.next();
        }
        let counted = counted.next();
        assert!(
            counted.is_some_and(|counted| counted <= used),
            "seed {seed}: used at {used:?}, and the next was counted at {counted:?}"
        );
    }
}

/// No window holds more than that.
fn assert_bounded(seed: u64, mut permits: Vec<(Tick, u32)>, window: Duration, most: u32) {
    permits.sort();
    for (first, (from, _)) in permits.iter().enumerate() {
        let inside = permits[first..].iter();
        let inside = inside.take_while(|(at, _)| at.since(*from) < window);
        let sum: u32 = inside.map(|(_, cost)| cost).sum();
        assert!(
            sum <= most,
            "seed {seed}: {sum} from {from:?} on: {permits:?}"
        );
    }
}

#[test]
fn a_closed_log_passes_only_what_the_server_counted_within_its_bound() {
    for seed in seeds() {
        let log = SlidingLog::new(LIMIT, WINDOW);
        let (server, uses) = run(seed, 2, &log, OutagePolicy::closed());
        assert_counted(seed, &server, &uses);
        let counted = server
            .world()
            .counted
            .iter()
            .map(|it| (it.0, it.2))
            .collect();
        assert_bounded(seed, counted, WINDOW, LIMIT);
    }
}

#[test]
fn a_closed_bucket_passes_only_what_the_server_counted() {
    for seed in seeds() {
        let bucket = TokenBucket::new(Rate::new(1, ms(30)), 5);
        let (server, uses) = run(seed, 2, &bucket, OutagePolicy::closed());
        assert_counted(seed, &server, &uses);
    }
}

#[test]
fn a_closed_interval_passes_only_what_the_server_counted() {
    for seed in seeds() {
        let every = Interval::every(ms(20));
        let (server, uses) = run(seed, 2, &every, OutagePolicy::closed());
        assert_counted(seed, &server, &uses);
        let counted = server.world().counted.clone();
        let mut counted: Vec<_> = counted.into_iter().filter(|it| it.2 > 0).collect();
        counted.sort();
        for pair in counted.windows(2) {
            assert!(
                pair[1].0.since(pair[0].0) >= ms(20),
                "seed {seed}: {pair:?}"
            );
        }
    }
}

#[test]
fn an_insured_log_keeps_its_bound_with_and_without_the_server() {
    for seed in seeds() {
        let log = SlidingLog::new(LIMIT, WINDOW);
        let (_, uses) = run(seed, 1, &log, OutagePolicy::insured(1));
        assert_bounded(seed, uses, WINDOW.saturating_sub(late(seed)), LIMIT);
    }
}

#[test]
fn processes_without_the_server_pass_their_shares_on_top_of_what_others_pass_with_it() {
    for seed in seeds() {
        let log = SlidingLog::new(LIMIT, WINDOW);
        let (_, uses) = run(seed, 2, &log, OutagePolicy::insured(2));
        assert_bounded(seed, uses, WINDOW.saturating_sub(late(seed)), 2 * LIMIT);
    }
}

#[test]
fn an_open_log_passes_more_only_during_trouble() {
    for seed in seeds() {
        let log = SlidingLog::new(LIMIT, WINDOW);
        let (_, uses) = run(seed, 2, &log, OutagePolicy::open());
        assert!(!uses.is_empty());
    }
}
