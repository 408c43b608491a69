//! Pauses, modes and parameters that hold for all processes.

use paceline::limiter::{Event, LimiterExt, Mode, Share, Shared, SwitchExt, Switched};

use super::*;

const SECOND: Duration = ms(1_000);
const HOUR: Duration = ms(3_600_000);

impl<P: Rule> Process<P> {
    /// As `Redis::set_mode`.
    async fn set_mode(&self, name: &str, mode: Mode) {
        let change = Change::Mode(mode);
        self.batcher.change(name, &change).await.unwrap();
    }
}

impl<P: Rule> Limit<P> {
    async fn pause(&self, time: Duration) -> Result<(), CallError> {
        self.pause_for(time, Event::paused).await
    }

    async fn resume(&self) -> Result<(), CallError> {
        self.change(Change::Resume, Event::Resumed).await
    }
}

/// How often overrides were read.
fn reads<P: Rule>(server: &Server<P>) -> usize {
    server.world().reads.len()
}

/// A limit in memory of one an hour, with this switch.
fn one_an_hour(switch: &Switch) -> Switched<Shared<SlidingLog>> {
    Shared::new(SlidingLog::new(1, HOUR)).switched(switch)
}

#[tokio::test(start_paused = true)]
async fn what_is_too_much_for_one_reply_is_read_with_the_next_calls() {
    let server = Server::start();
    server.world().most_overrides = 2;
    let old = process(&server, OutagePolicy::closed()).await;
    for key in 0..5 {
        let limit = old.limit(key, SlidingLog::new(5, MINUTE));
        limit.pause(HOUR).await.unwrap();
    }

    let new = process(&server, OutagePolicy::closed()).await;
    let [first, last] = [0, 4].map(|key| new.limit(key, SlidingLog::new(5, MINUTE)));
    assert_eq!(wait_of(first.try_acquire(1).await), HOUR);
    let unpaused = new.limit(9, SlidingLog::new(5, MINUTE));
    for _ in 0..2 {
        assert_eq!(unpaused.try_acquire(1).await, Ok(Decision::Pass));
    }
    assert_eq!(wait_of(last.try_acquire(1).await), HOUR);
    let all = reads(&server);
    assert_eq!(unpaused.try_acquire(1).await, Ok(Decision::Pass));
    // It has all, and reads no more for a second.
    assert_eq!(reads(&server), all);
}

#[tokio::test(start_paused = true)]
async fn a_pause_holds_here_at_once_and_ends_by_itself() {
    let (server, _process, limit) = distant(7, SlidingLog::new(5, MINUTE)).await;
    let watch = Stopwatch::start();

    let changed = tokio::spawn({
        let limit = limit.clone();
        async move { limit.pause(2 * SECOND).await.unwrap() }
    });
    settle().await;
    let answers = [0, 1, 6].map(|cost| limit.try_acquire(cost));
    let never = Decision::Never { capacity: 5 };
    let retry_in = 2 * SECOND;
    let expected = [Decision::Pass, Decision::Wait { retry_in }, never];
    assert_eq!(join_all(answers).await, expected.map(Ok));
    assert_eq!(watch.elapsed(), ms(0));
    changed.await.unwrap();
    // By the server's clock the pause begins when the server hears of it, and the reply takes 7 ms.
    assert_eq!(limit.queue.pause(), Some(2 * SECOND));
    limit.acquire(1).await.unwrap();
    assert_eq!(watch.elapsed(), 2 * SECOND + ms(14));
    assert_eq!(server.world().counted.len(), 1);
}

/// After what time a process that asks again and again got such an answer for the last time.
async fn last<P: Rule>(limit: &Limit<P>, passes: bool) -> Duration {
    let watch = Stopwatch::start();
    let mut last = Duration::ZERO;
    while limit.passes(1).await == passes {
        last = watch.elapsed();
        sleep(ms(1)).await;
    }
    last
}

#[tokio::test(start_paused = true)]
async fn a_busy_process_hears_of_a_pause_a_resume_and_a_retune_within_a_second_and_a_trip() {
    let (server, _processes, [one, other]) = two(plenty()).await;
    server.world().reply_in = ms(3);
    assert!(other.passes(1).await);
    sleep(ms(300)).await;

    let watch = Stopwatch::start();
    let paused = tokio::join!(one.pause(4 * SECOND), last(&other, true));
    last(&other, false).await;
    assert!(watch.elapsed() >= 4 * SECOND);
    one.pause(HOUR).await.unwrap();
    last(&other, true).await;
    let resumed = tokio::join!(one.resume(), last(&other, false));
    let an_hour = SlidingLog::new(1, HOUR);
    let retuned = tokio::join!(one.retune(an_hour), last(&other, true));
    let taken_back = tokio::join!(one.retune(plenty()), last(&other, false));
    for (changed, heard) in [paused, resumed, retuned, taken_back] {
        changed.unwrap();
        assert!((ms(3)..=SECOND + ms(3)).contains(&heard), "{heard:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_request_after_a_long_idle_time_does_not_pass_a_paused_limit() {
    let (server, _processes, [one, other]) = two(plenty()).await;
    server.world().reply_in = ms(3);
    assert!(other.passes(1).await);
    sleep(MINUTE).await;
    one.pause(HOUR).await.unwrap();
    sleep(MINUTE).await;
    let before = reads(&server);

    let watch = Stopwatch::start();
    let wait = wait_of(other.try_acquire(1).await);
    // One round trip, for the decision and the read.
    assert_eq!((watch.elapsed(), reads(&server)), (ms(3), before + 1));
    assert_eq!(wait + MINUTE + ms(3), HOUR);
    assert_eq!(other.take_all().await, Ok(0));
    sleep(ms(50)).await;
    // What the server had granted was returned.
    assert_eq!(counted(&server), 1);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_of_an_hour_long_denial_wakes_within_a_second_of_a_change_elsewhere() {
    for is_paused in [false, true] {
        let (server, _processes, [one, other]) = two(SlidingLog::new(1, HOUR)).await;
        server.world().reply_in = ms(3);
        assert!(one.passes(1).await);
        if is_paused {
            one.retune(SlidingLog::new(2, HOUR)).await.unwrap();
            one.pause(HOUR).await.unwrap();
        }
        let waited = acquiring(&other, 1);
        let watch = Stopwatch::start();
        sleep(10 * SECOND).await;
        if is_paused {
            one.resume().await.unwrap();
        } else {
            one.retune(SlidingLog::new(2, HOUR)).await.unwrap();
        }
        let changed = watch.elapsed();
        let waited = waited.await.unwrap();
        assert!(waited <= changed + SECOND + ms(6), "{is_paused} {waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn own_waiters_pass_at_once_after_a_resume() {
    let (_server, _process, limit) = distant(3, plenty()).await;
    limit.pause(HOUR).await.unwrap();
    let waited = acquiring(&limit, 1);
    sleep(ms(500)).await;
    limit.resume().await.unwrap();
    assert_eq!(waited.await.unwrap(), ms(503));
    assert_eq!(limit.queue.pause(), None);
}

#[tokio::test(start_paused = true)]
async fn waiters_read_once_a_second_and_an_idle_process_never() {
    let slow = SlidingLog::new(1, HOUR);
    let (server, process, _) = closed(slow).await;
    let limits: Vec<_> = (0..20).map(|key| process.limit(key, slow)).collect();
    for limit in &limits {
        assert!(limit.passes(1).await);
    }
    sleep(MINUTE).await;
    assert_eq!((reads(&server), calls(&server)), (1, 20));

    let waiting: Vec<_> = limits.iter().map(|limit| acquiring(limit, 1)).collect();
    sleep(MINUTE).await;
    assert_eq!(reads(&server), 61);
    for pair in server.world().reads[1..].windows(2) {
        assert!(pair[1].since(pair[0]) >= SECOND);
    }
    for waiting in waiting {
        waiting.abort();
    }
    settle().await;
    sleep(2 * SECOND).await;
    let before = reads(&server);
    sleep(MINUTE).await;
    assert_eq!(reads(&server), before);
}

#[tokio::test(start_paused = true)]
async fn of_two_pauses_in_two_processes_the_later_end_counts() {
    let (_server, _processes, [one, other]) = two(plenty()).await;
    let (long, short) = tokio::join!(one.pause(10 * SECOND), other.pause(2 * SECOND));
    long.and(short).unwrap();
    for limit in [&one, &other] {
        assert_eq!(wait_of(limit.try_acquire(1).await), 10 * SECOND);
    }
    one.pause(SECOND).await.unwrap();
    assert_eq!(one.queue.pause(), Some(10 * SECOND));
}

/// What passes a limit with a switch around it.
async fn passes<P: Rule>(limit: &Limit<P>, switch: &Switch, cost: u32) -> bool {
    let mut limit = limit.clone().switched(switch);
    let asked = poll_fn(|cx| limit.poll_try(cost, cx)).await;
    asked.unwrap().is_pass()
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_off_makes_no_calls_and_hears_within_a_second_that_it_holds() {
    let (server, processes, [one, other]) = two(SlidingLog::new(1, HOUR)).await;
    let [of_one, of_other] = processes.each_ref().map(|process| process.switch("a"));
    processes[0].set_mode("a", Mode::Off).await;
    // The server was asked once, before this process knew.
    assert!(passes(&other, &of_other, 1).await && passes(&other, &of_other, 1).await);
    let before = calls(&server);
    for _ in 0..50 {
        assert!(passes(&one, &of_one, 7).await && passes(&other, &of_other, 7).await);
        sleep(ms(100)).await;
    }
    // At first the permit that nobody needed is returned.
    assert!(calls(&server) <= before + 1);
    assert_eq!(counted(&server), 0);
    assert!((10..=13).contains(&reads(&server)), "{}", reads(&server));

    processes[0].set_mode("a", Mode::Active).await;
    let watch = Stopwatch::start();
    while passes(&other, &of_other, 1).await {
        sleep(ms(10)).await;
    }
    assert!(watch.elapsed() <= SECOND + ms(10), "{:?}", watch.elapsed());
    assert_eq!(of_one.mode(), Mode::Active);
}

#[tokio::test(start_paused = true)]
async fn a_process_without_limits_reads_the_mode_of_its_switch_and_only_while_it_is_asked() {
    let server = Server::<SlidingLog>::start();
    let one = process(&server, OutagePolicy::closed()).await;
    one.set_mode("a", Mode::Off).await;
    // It has not connected.
    let other = Process::of(&server, OutagePolicy::closed());
    let switch = other.switch("a");
    let limit = one_an_hour(&switch);
    limit.acquire(1).await.unwrap();
    assert!(!limit.try_acquire(1).await.is_pass());
    sleep(ms(1)).await;
    assert_eq!(switch.mode(), Mode::Off);
    one.set_mode("a", Mode::Active).await;
    sleep(MINUTE).await;
    assert!(limit.try_acquire(1).await.is_pass());
    sleep(MINUTE).await;
    one.set_mode("a", Mode::Shadow).await;
    let before = reads(&server);
    assert!(!limit.try_acquire(1).await.is_pass());
    settle().await;
    assert!(limit.try_acquire(1).await.is_pass());
    sleep(MINUTE).await;
    assert_eq!(reads(&server), before + 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_in_memory_hears_with_the_next_request_of_its_process() {
    let server = Server::<SlidingLog>::start();
    let one = process(&server, OutagePolicy::closed()).await;
    let other = process(&server, OutagePolicy::closed()).await;
    let limit = one_an_hour(&other.switch("a"));
    limit.acquire(1).await.unwrap();
    let waiting = tokio::spawn(limit.acquire(1));
    sleep(SECOND).await;
    one.set_mode("a", Mode::Off).await;
    sleep(MINUTE).await;
    assert!(!waiting.is_finished());
    assert!(!limit.try_acquire(1).await.is_pass());
    waiting.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_switch_has_the_mode_that_was_set_before_it_was_made_and_no_other_name_has_it() {
    let server = Server::<SlidingLog>::start();
    let process = process(&server, OutagePolicy::closed()).await;
    process.set_mode("a", Mode::Off).await;
    let switches = ["a", "b"].map(|name| process.switch(name));
    let modes = switches.each_ref().map(Switch::mode);
    assert_eq!(modes, [Mode::Off, Mode::Active]);
    // The same switch, with its share.
    switches[0].set_share(Share::NONE);
    assert_eq!(process.switch("a").share(), Share::NONE);
}

#[tokio::test(start_paused = true)]
async fn a_mode_that_is_set_on_the_switch_itself_lasts_until_the_next_read() {
    let (server, process, limit) = closed(plenty()).await;
    let switch = process.switch("a");
    assert!(passes(&limit, &switch, 1).await);
    switch.set_mode(Mode::Off);
    sleep(ms(500)).await;
    assert!(passes(&limit, &switch, 1).await);
    assert_eq!(switch.mode(), Mode::Off);
    sleep(ms(500)).await;
    assert!(passes(&limit, &switch, 1).await);
    settle().await;
    assert_eq!(switch.mode(), Mode::Active, "although nothing has changed");

    // Without the server, nothing but a mode of that name replaces it.
    server.kill();
    notice(&process, &limit).await;
    switch.set_mode(Mode::Off);
    limit.pause(HOUR).await.unwrap_err();
    sleep(MINUTE).await;
    assert!(passes(&limit, &switch, 1).await);
    assert_eq!(switch.mode(), Mode::Off);
    let shadow = Change::Mode(Mode::Shadow);
    process.batcher.change("b", &shadow).await.unwrap_err();
    assert_eq!(switch.mode(), Mode::Off);
    process.batcher.change("a", &shadow).await.unwrap_err();
    assert_eq!(switch.mode(), Mode::Shadow);
}

#[tokio::test(start_paused = true)]
async fn the_mode_in_which_a_switch_starts_lasts_until_the_first_read() {
    let server = Server::<SlidingLog>::start();
    let process = Process::of(&server, OutagePolicy::closed());
    let switch = process.switch("a").with_mode(Mode::Shadow);
    let limit = one_an_hour(&switch);
    for _ in 0..3 {
        assert!(limit.try_acquire(1).await.is_pass());
    }
    sleep(ms(1)).await;
    assert_eq!(switch.mode(), Mode::Active);
    assert!(!limit.try_acquire(1).await.is_pass());
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_watched_asks_and_passes_whatever_the_answer_is() {
    let (server, process, limit) = closed(SlidingLog::new(2, HOUR)).await;
    process.set_mode("a", Mode::Shadow).await;
    let switch = process.switch("a");
    let watched = limit.clone().switched(&switch);
    let watch = Stopwatch::start();
    for _ in 0..5 {
        watched.acquire(1).await.unwrap();
    }
    assert!(passes(&limit, &switch, 3).await, "more than the limit");
    assert_eq!(watch.elapsed(), ms(0));
    assert_eq!((switch.stats().held_back, counted(&server)), (4, 2));

    limit.pause(HOUR).await.unwrap();
    watched.acquire(1).await.unwrap();
    server.world().refused_keys.insert(1);
    let refused = process.limit(1, SlidingLog::new(2, HOUR)).switched(&switch);
    refused.acquire(1).await.unwrap();
    let stats = switch.stats();
    assert_eq!((stats.held_back, stats.unreachable), (5, 1));

    server.world().refused_keys.clear();
    let silent = process.limit(2, SlidingLog::new(2, HOUR)).switched(&switch);
    server.freeze();
    let watch = Stopwatch::start();
    silent.acquire(1).await.unwrap();
    assert_eq!(watch.elapsed(), DEADLINE);
    assert_eq!(switch.stats().held_back, 6);
}

#[tokio::test(start_paused = true)]
async fn waiters_pass_when_their_limit_is_only_watched_in_every_process() {
    for mode in [Mode::Shadow, Mode::Off] {
        let (_server, processes, limits) = two(SlidingLog::new(1, HOUR)).await;
        assert!(limits[0].passes(1).await);
        let [here, there] = [0, 1].map(|number| {
            let watch = Stopwatch::start();
            let limit = limits[number].clone();
            let limit = limit.switched(&processes[number].switch("a"));
            tokio::spawn(async move {
                limit.acquire(1).await.unwrap();
                watch.elapsed()
            })
        });
        sleep(10 * SECOND).await;
        processes[0].set_mode("a", mode).await;
        assert_eq!(here.await.unwrap(), 10 * SECOND);
        assert!(there.await.unwrap() <= 11 * SECOND);
    }
}

#[tokio::test(start_paused = true)]
async fn a_retune_holds_for_processes_with_the_replaced_parameters_and_no_others() {
    let (server, _processes, [one, other]) = two(SlidingLog::new(9, HOUR)).await;
    let deployed = process(&server, OutagePolicy::closed()).await;
    let deployed = deployed.limit(0, SlidingLog::new(5, HOUR));
    one.retune(SlidingLog::new(3, HOUR)).await.unwrap();
    assert!(other.passes(3).await);
    assert!(!one.passes(1).await);
    let never = Decision::Never { capacity: 3 };
    assert_eq!(other.try_acquire(4).await, Ok(never));
    assert!(deployed.passes(2).await && !deployed.passes(1).await);
    // Taken back, within a second.
    one.retune(SlidingLog::new(9, HOUR)).await.unwrap();
    sleep(SECOND).await;
    assert!(one.passes(2).await && other.passes(2).await && !other.passes(1).await);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_costs_more_than_the_new_limit_is_refused() {
    let (server, _processes, [one, other]) = two(SlidingLog::new(9, HOUR)).await;
    assert!(one.passes(9).await);
    let mut waiting = other.join(5);
    let _behind = other.join(1);
    sleep(10 * SECOND).await;
    one.retune(SlidingLog::new(3, HOUR)).await.unwrap();
    sleep(SECOND + ms(1)).await;
    let watch = Stopwatch::start();
    let never = Decision::Never { capacity: 3 };
    assert_eq!(waiting.again(5, WaitMode::Wait).await, Ok(never));
    assert_eq!(watch.elapsed(), ms(0));
    // The server was not asked for five of three, which it cannot answer.
    assert_eq!(server.world().counted.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_insurance_follows_a_retune() {
    let (server, process, limit) = one(OutagePolicy::insured(2), SlidingLog::new(2, SECOND)).await;
    assert!(limit.passes(1).await);
    limit.retune(SlidingLog::new(8, SECOND)).await.unwrap();
    server.kill();
    notice(&process, &limit).await;
    sleep(2 * SECOND).await;
    let passed = join_all([1; 8].map(|cost| limit.passes(cost))).await;
    // A half of the limit.
    assert_eq!(passed, [[true; 4], [false; 4]].concat());
}

#[tokio::test(start_paused = true)]
async fn what_is_known_stays_in_force_during_an_outage() {
    let (server, process, limit) = one(OutagePolicy::open(), plenty()).await;
    limit.pause(5 * SECOND).await.unwrap();
    let other = process.limit(1, plenty());
    server.kill();
    notice(&process, &other).await;
    let watch = Stopwatch::start();
    assert!(other.passes(1).await && !limit.passes(1).await);
    let left = limit.queue.pause().unwrap();
    limit.acquire(1).await.unwrap();
    assert_eq!(watch.elapsed(), left);

    // A change is made here, and the error says that others may not know.
    let error = limit.pause(SECOND).await.unwrap_err();
    assert!(error.is_skipped());
    assert!(!limit.passes(1).await);
    let off = Change::Mode(Mode::Off);
    process.batcher.change("a", &off).await.unwrap_err();
    server.world().is_reachable = true;
    process.connect().await;
    other.acquire(1).await.unwrap();
    // Also when all overrides were read.
    assert_eq!(process.switch("a").mode(), Mode::Off);
}

#[tokio::test(start_paused = true)]
async fn a_flushed_server_keeps_pauses_that_are_known_and_forgets_modes_and_parameters() {
    for restarts in [false, true] {
        let (server, _processes, [one, other]) = two(plenty()).await;
        one.pause(10 * SECOND).await.unwrap();
        let third = process(&server, OutagePolicy::closed()).await;
        let (limit, switch) = (third.limit(1, plenty()), third.switch("a"));
        third.set_mode("a", Mode::Off).await;
        assert!(!other.passes(1).await);
        if restarts {
            server.restart();
        } else {
            server.flush();
        }
        sleep(2 * SECOND).await;
        for _ in 0..200 {
            let _ = limit.try_acquire(1).await;
            let _ = other.try_acquire(1).await;
            sleep(ms(10)).await;
        }
        assert_eq!(switch.mode(), Mode::Active, "{restarts}");
        assert_eq!(other.queue.pause(), Some(6 * SECOND), "{restarts}");
        while one.try_acquire(1).await.is_err() || restarts && server.world().attempts < 6 {
            sleep(ms(100)).await;
        }
        // The versions of the new server are not those of the old one.
        one.pause(HOUR).await.unwrap();
        sleep(SECOND).await;
        let _ = other.try_acquire(1).await;
        settle().await;
        assert!(wait_of(other.try_acquire(1).await) > MINUTE, "{restarts}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_read_delays_a_decision_by_half_of_the_deadline_and_is_no_outage() {
    let (server, process, limit) = distant(5, plenty()).await;
    server.world().loses_overrides = true;
    for _ in 0..5 {
        // The next read is a second later.
        let delayed = (ms(5) + DEADLINE) / 2;
        assert_eq!(passed_at(&limit, &[1; 2]).await, [delayed, delayed + ms(5)]);
        sleep(SECOND).await;
    }
    process.assert_calm();
}

#[tokio::test(start_paused = true)]
async fn a_refused_read_stops_no_decision_and_is_repeated_after_ten_seconds() {
    let (server, process, limit) = closed(plenty()).await;
    server.world().override_failure = Some(Failure::Fault("NOPERM".into()));
    for _ in 0..400 {
        assert!(limit.passes(1).await);
        sleep(ms(100)).await;
    }
    let stats = process.stats();
    assert_eq!((stats.outages, stats.faults), (0, 4));
    let failure = process.batcher.connection.last_failure();
    assert_eq!(failure, Some(Failure::Fault("NOPERM".into())));
    let error = limit.pause(SECOND).await.unwrap_err();
    assert!(error.server_error().is_some());
    assert!(!limit.passes(1).await);
}

#[tokio::test(start_paused = true)]
async fn prefetched_permits_do_not_pass_a_limit_that_was_paused_a_second_ago() {
    let (_server, processes, [one, _]) = two(plenty()).await;
    let other = processes[1].limit_with(0, plenty(), Some((1_000, MINUTE)));
    assert!(other.passes(1).await);
    one.pause(HOUR).await.unwrap();
    sleep(ms(999)).await;
    assert!(other.passes(1).await, "it may not know yet");
    sleep(ms(1)).await;
    assert!(!other.passes(1).await);
}

#[tokio::test(start_paused = true)]
async fn a_denial_by_replaced_parameters_that_comes_after_the_retune_does_not_count() {
    let (_server, _process, limit) = distant(7, SlidingLog::new(1, HOUR)).await;
    assert!(limit.passes(1).await);
    let waiting = [acquiring(&limit, 1), acquiring(&limit, 1)];
    sleep(ms(1)).await;
    limit.retune(SlidingLog::new(3, HOUR)).await.unwrap();
    for waited in waiting {
        assert_eq!(waited.await.unwrap(), ms(14), "asked twice");
    }
}

#[tokio::test(start_paused = true)]
async fn a_resume_during_an_outage_ends_a_denial_that_was_as_long_as_the_pause() {
    let (server, process, limit) = one(OutagePolicy::open(), plenty()).await;
    assert!(limit.passes(1).await);
    server.freeze();
    let waiting = limit.join(1);
    settle().await;
    let _ = limit.pause(HOUR).await;
    server.kill();
    notice(&process, &process.limit(1, plenty())).await;
    assert_eq!(limit.queue.denied(1), limit.queue.pause());
    drop(waiting);
    let _ = limit.resume().await;
    assert!(limit.passes(1).await);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_costs_more_than_the_new_limit_is_refused_though_its_call_is_under_way() {
    for fails in [false, true] {
        let (server, _process, limit) = distant(7, SlidingLog::new(9, MINUTE)).await;
        assert!(limit.passes(9).await);
        if fails {
            server.world().failure = Some(Failure::Unavailable("loading".into()));
        }
        // Its caller does not poll it again.
        let _waiting = limit.join(5);
        let behind = acquiring(&limit, 1);
        sleep(ms(1)).await;
        limit.retune(SlidingLog::new(3, MINUTE)).await.unwrap();
        server.world().failure = None;
        // The server was not asked for five of three, which it cannot answer.
        assert!(behind.await.unwrap() <= MINUTE + ms(20), "{fails}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_left_of_replaced_parameters_is_not_what_is_left_of_the_new_ones() {
    let (_server, _process, limit) = distant(7, SlidingLog::new(9, HOUR)).await;
    let asked = acquiring(&limit, 1);
    settle().await;
    let (asked, retuned) = tokio::join!(asked, limit.retune(SlidingLog::new(3, HOUR)));
    asked.unwrap();
    retuned.unwrap();
    assert_eq!(limit.left(), None);
    assert!(limit.passes(1).await);
    assert_eq!(limit.left(), Some(1));
}

#[tokio::test(start_paused = true)]
async fn lost_reads_do_not_make_calls_smaller() {
    let (server, process, _) = distant(5, plenty()).await;
    let limits: Vec<_> = (0..64).map(|key| process.limit(key, plenty())).collect();
    let spent = process.limit(64, SlidingLog::new(1, HOUR));
    assert!(spent.passes(1).await);
    // Its process always has something to do.
    let _waiting = spent.join(1);
    server.world().loses_overrides = true;
    for _ in 0..10 {
        // The first call reads, and the second does not.
        assert!(limits[0].passes(1).await && limits[0].passes(1).await);
        sleep(SECOND).await;
    }
    join_all(limits.iter().map(|limit| limit.passes(1))).await;
    assert_eq!(server.world().calls.last().unwrap().1, 64);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_costs_more_than_the_new_limit_takes_no_call() {
    let (server, _process, limit) = closed(SlidingLog::new(9, HOUR)).await;
    assert!(limit.passes(9).await);
    let _waiting = limit.join(5);
    settle().await;
    let before = calls(&server);
    limit.retune(SlidingLog::new(3, HOUR)).await.unwrap();
    sleep(2 * HOUR).await;
    assert_eq!(calls(&server), before);
}
