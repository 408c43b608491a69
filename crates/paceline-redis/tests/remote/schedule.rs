//! Random schedules: callers ask, try and leave while the server and the network fail in every way.
//!
//! A failure prints its seed. `SEED=7 cargo test … schedule` runs that schedule alone.

use std::ops::Range;
use std::sync::Mutex;

use fastrand::Rng;

use super::*;

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

/// In how many ways the server and the network behave, and how many of them keep the deadline.
const WAYS: u32 = 25;
const PUNCTUAL_WAYS: u32 = 1;

/// When permits were used, and how many.
type Uses = Vec<(Duration, u32)>;

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
    ways: u32,
) -> (Server<P>, Uses) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut random = Rng::with_seed(seed);
        let server = Server::start();
        let uses = Arc::new(Mutex::new(Uses::new()));
        let mut callers = JoinSet::new();
        let mut limits = Vec::new();
        for _ in 0..processes {
            let process = process(&server, outage_policy).await;
            let limit = process.limit_with(0, policy.clone(), prefetch(seed));
            for _ in 0..random.usize(1..6) {
                let (server, limit, uses) = (server.clone(), limit.clone(), Arc::clone(&uses));
                let random = random.fork();
                callers.spawn(async move { call(random, &server, limit, &uses).await });
            }
            limits.push((process, limit));
        }
        trouble(&mut random, &server, ways).await;
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
                uses.lock().unwrap().push((now(&server), 1));
            }
            assert!(process.is_up(), "seed {seed}");
        }
        // Permits of requests that were dropped are on their way back.
        sleep(MINUTE).await;
        let uses = uses.lock().unwrap().clone();
        (server, uses)
    })
}

fn now<P: Rule>(server: &Server<P>) -> Duration {
    server.world().now().since(Tick::ZERO)
}

/// When the server counted permits, and how many.
fn counted<P: Rule>(server: &Server<P>) -> Uses {
    let world = server.world();
    let counted = world.counted.iter();
    counted
        .map(|(at, _, cost)| (at.since(Tick::ZERO), *cost))
        .collect()
}

/// One caller: asks with random costs, and leaves at random times.
async fn call<P: Rule>(mut random: Rng, server: &Server<P>, limit: Limit<P>, uses: &Mutex<Uses>) {
    let watch = Stopwatch::start();
    let mut handle = limit.clone();
    while watch.elapsed() < TROUBLE {
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
                let answer = within(ms(random.u64(0..60)), handle.again(cost, mode)).await;
                answer.is_some_and(|answer| answer.is_ok_and(Decision::is_pass))
            }
            _ => {
                handle = limit.clone();
                false
            }
        };
        if passed {
            uses.lock().unwrap().push((now(server), cost));
        }
        sleep(ms(random.u64(0..20))).await;
    }
}

async fn trouble<P: Rule>(random: &mut Rng, server: &Server<P>, ways: u32) {
    let watch = Stopwatch::start();
    while watch.elapsed() < TROUBLE {
        match random.u32(0..ways) {
            0 => server.world().reply_in = ms(random.u64(0..24)),
            1..4 => server.world().reply_in = ms(random.u64(0..30)),
            4 => server.world().per_key = ms(random.u64(0..20)),
            5 => server.world().reply_in = NEVER,
            6 => server.cut(),
            7 => server.freeze(),
            8 => server.kill(),
            9 => server.restart(),
            10 => server.world().failure = Some(Failure::Unavailable("loading".into())),
            11 => server.world().failure = Some(Failure::Fault("no permission".into())),
            12 => server.world().late_after_reply = ms(random.u64(1..300)),
            _ => heal(server),
        }
        sleep(ms(random.u64(1..150))).await;
    }
}

fn heal<P: Rule>(server: &Server<P>) {
    server.thaw();
    let mut world = server.world();
    (world.reply_in, world.per_key) = (ms(0), ms(0));
    (world.failure, world.is_reachable) = (None, true);
}

/// Each use is of permits that the server counted shortly before, and that were not returned; of a `whole` request, unless they
/// were taken ahead.
fn assert_counted(seed: u64, counted: &Uses, uses: &Uses, whole: bool) {
    assert!(uses.len() > 6, "seed {seed}: {uses:?}");
    if prefetch(seed).is_some() || !whole {
        let each = |(at, cost): &(Duration, u32)| std::iter::repeat_n(*at, *cost as usize);
        let counted = counted.iter().flat_map(each);
        return assert_used(seed, counted, uses.iter().flat_map(each).collect());
    }
    for cost in 1..=3 {
        let of_cost = |of: &Uses| {
            let of = of.iter().filter(|(_, other)| *other == cost);
            of.map(|(at, _)| *at).collect::<Vec<_>>()
        };
        assert_used(seed, of_cost(counted).into_iter(), of_cost(uses));
    }
}

fn assert_used(seed: u64, mut counted: impl Iterator<Item = Duration>, mut uses: Vec<Duration>) {
    uses.sort();
    for used in uses {
        let counted = counted.find(|counted| used.saturating_sub(*counted) <= late(seed));
        assert!(
            counted.is_some_and(|counted| counted <= used),
            "seed {seed}: used at {used:?}, and the next was counted at {counted:?}"
        );
    }
}

/// No window of the server holds more permits than that, and callers use no others.
fn assert_closed<P: Rule>(policy: &P, window: Duration, most: u32) {
    for seed in seeds() {
        let (server, uses) = run(seed, 2, policy, OutagePolicy::closed(), WAYS);
        let counted = counted(&server);
        // A request of a higher cost passes as a debt, and so alone.
        assert_counted(seed, &counted, &uses, policy.capacity() > policy.all());
        let counted = counted.into_iter().map(|(at, cost)| (at, cost.min(most)));
        let found = most_within(window, counted.collect());
        assert!(found <= most, "seed {seed}: {found}");
    }
}

#[test]
fn a_closed_log_passes_only_what_the_server_counted_within_its_bound() {
    assert_closed(&SlidingLog::new(LIMIT, WINDOW), WINDOW, LIMIT);
}

#[test]
fn a_closed_bucket_passes_only_what_the_server_counted_within_its_bound() {
    assert_closed(&TokenBucket::new(Rate::new(1, ms(30)), 5), ms(30), 5);
}

#[test]
fn a_closed_interval_passes_only_what_the_server_counted_within_its_bound() {
    assert_closed(&Interval::every(ms(20)), ms(20), 1);
}

#[test]
fn a_closed_bucket_with_debt_passes_only_what_the_server_counted_within_its_bound() {
    let bucket = TokenBucket::new(Rate::new(1, ms(30)), 2).with_debt();
    assert_closed(&bucket, ms(30), 2);
}

/// The permits of requests that leave or change their cost are returned, and waiters that leave count nothing.
#[test]
fn of_a_punctual_server_callers_use_what_it_counts_and_no_more() {
    for seed in seeds().filter(|seed| prefetch(*seed).is_none()) {
        let log = SlidingLog::new(LIMIT, WINDOW);
        let (server, uses) = run(seed, 2, &log, OutagePolicy::closed(), PUNCTUAL_WAYS);
        let sum: u32 = uses.iter().map(|(_, cost)| cost).sum();
        assert_eq!(super::counted(&server), sum, "seed {seed}");
    }
}

#[test]
fn insured_processes_keep_their_bound_and_pass_their_shares_on_top_of_what_others_pass() {
    for (processes, seed) in
        (1..=2).flat_map(|processes| seeds().map(move |seed| (processes, seed)))
    {
        let log = SlidingLog::new(LIMIT, WINDOW);
        let (_, uses) = run(
            seed,
            processes,
            &log,
            OutagePolicy::insured(processes),
            WAYS,
        );
        let found = most_within(WINDOW.saturating_sub(late(seed)), uses);
        assert!(
            found <= processes * LIMIT,
            "seed {seed}, {processes}: {found}"
        );
    }
}

#[test]
fn an_open_log_passes_more_only_during_trouble() {
    for seed in seeds() {
        let log = SlidingLog::new(LIMIT, WINDOW);
        let (_, uses) = run(seed, 2, &log, OutagePolicy::open(), WAYS);
        assert!(!uses.is_empty());
    }
}
