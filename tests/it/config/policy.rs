//! A policy of any kind, and its text.

use std::time::Duration;

use paceline::policy::{
    AlignedWindow, Alignment, All, AnyPolicy, Decision, FixedWindow, Interval, PerRequest, Policy,
    Quota, Ramp, SlidingCounter, SlidingLog, TokenBucket, Unlimited,
};
use paceline::prelude::*;
use paceline::time::{Rate, Tick, WallClock};
use proptest::prelude::{BoxedStrategy, Just, Strategy, any, prop_oneof};
use proptest::{prop_assert, prop_assert_eq, proptest};

use crate::timed::{ms, now, since, sleep};

fn parsed(text: &str) -> AnyPolicy {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
fn is_written(text: &str, policy: impl Into<AnyPolicy>) {
    let policy = policy.into();
    assert_eq!(parsed(text), policy);
    assert_eq!(policy.to_string(), text);
}

#[test]
fn each_kind_has_a_text() {
    let minute = Duration::from_secs(60);
    let bucket = TokenBucket::new(Rate::per_minute(100), 20);
    is_written("100/min burst 20", bucket);
    is_written("100/min burst 20 start 0", bucket.with_empty_start());
    let with_debt = bucket.with_start(5).with_debt();
    is_written("100/min burst 20 start 5 debt", with_debt);

    is_written("every 50ms", Interval::every(ms(50)));
    let delayed = Interval::every(minute).with_delayed_start();
    is_written("every 1min delayed", delayed);
    is_written("every 0ns", Interval::every(Duration::ZERO));

    let ramp = Ramp::new(Rate::per_second(1), Rate::per_second(100), minute);
    is_written("1/s to 100/s within 1min", ramp);
    let again = ramp.with_restart_after(minute * 5);
    is_written("1/s to 100/s within 1min restart 5min", again);

    is_written("100/min sliding", SlidingLog::new(100, minute));
    let buckets = SlidingCounter::strict(100, minute, 10);
    is_written("100/min sliding 10 buckets", buckets);
    is_written("100/min smooth", SlidingCounter::smooth(100, minute));
    is_written("100/min fixed", FixedWindow::new(100, minute));

    let day = AlignedWindow::new(5_000, Alignment::Day);
    is_written("5000/day aligned", day.clone());
    let in_the_west = day.with_utc_offset(-28_800);
    is_written("5000/day aligned utc-08:00", in_the_west);
    let month = AlignedWindow::new(7, Alignment::Month);
    is_written("7/month aligned utc+05:30", month.with_utc_offset(19_800));

    let arriving = AlignedWindow::new(9, Alignment::Hour).with_margin(ms(5)..=ms(80));
    is_written("9/h aligned margin 5ms to 80ms", arriving);

    is_written("unlimited", Unlimited);
    let requests = PerRequest::new(FixedWindow::new(60, minute));
    is_written("60/min fixed per request", requests);
    let second = SlidingLog::from_rate(Rate::per_second(10));
    let both = All::new((second, SlidingLog::from_rate(Rate::per_day(500))));
    is_written("10/s sliding and 500/day sliding", both);
    let tokens = TokenBucket::new(Rate::per_minute(90_000), 90_000);
    let text = "60/min fixed per request and 90000/min burst 90000";
    is_written(text, All::new((requests, tokens)));
}

#[test]
fn a_text_may_be_written_in_other_ways() {
    for (one, other) in [
        ("100/min", "100/min sliding"),
        ("  60/min\t burst  3 ", "1/s burst 3"),
        ("every min", "every 60s"),
        ("6/min to 10 / s within 5 s", "6/min to 600/min within 5s"),
        ("5/min sliding 1 bucket", "5/min sliding 1 buckets"),
        ("9/24h aligned utc-8", "9/day aligned utc-08:00"),
        ("9/week aligned utc+0", "9/week aligned"),
        ("unlimited and 10/s", "10/s"),
        ("10/s margin 80 ms", "10/1080ms"),
        ("10/s fixed Margin 5ms to 80ms", "10/1075ms"),
        ("10/s smooth margin 5ms to 80ms", "10/1075ms smooth"),
        (
            "10/s sliding 9 buckets margin 1s",
            "10/2s sliding 9 buckets",
        ),
        ("100/s burst 20 start 9 margin 120ms", "100/s burst 8"),
        (
            "100/s burst 20 start 9 margin 90ms",
            "100/s burst 11 start 9",
        ),
        (
            "every 50ms delayed margin 5ms to 80ms",
            "every 125ms delayed",
        ),
        (
            "1/s to 5/s within 1min restart 1h margin 1s",
            "1/2s to 5/2s within 1min restart 1h",
        ),
        ("9/h aligned margin 80ms", "9/h aligned margin 0ms to 80ms"),
        ("9/h aligned margin 0ms", "9/h aligned"),
        ("unlimited margin 80ms", "unlimited"),
        (
            "2/s fixed margin 1s per request and 10/s",
            "2/2s per request and 10/s",
        ),
        ("10 / min burst 5", "10/min burst 5"),
        ("10/ 250 ms and 3 /S", "10/250ms and 3/s"),
        ("every 50 ms delayed", "every 50ms delayed"),
        ("10/S BURST 5 Per Request", "10/s burst 5 per request"),
        ("9 / Month Aligned UTC-8", "9/month aligned utc-08:00"),
        ("EVERY 2 H AND UNLIMITED", "every 2h"),
        (
            "10/s per request and unlimited per request",
            "10/s per request",
        ),
    ] {
        assert_eq!(parsed(one), parsed(other), "{one}");
    }
}

/// A text, and the error behind it.
const ERRORS: &str = "
100/min brust 20 => `brust` at column 9 should be `burst`, `sliding`, `smooth`, `fixed`, `aligned`, `to`, `margin`, `per request` or `and`; did you mean `burst`?
100/min slding => `slding` at column 9 should be `burst`, `sliding`, `smooth`, `fixed`, `aligned`, `to`, `margin`, `per request` or `and`; did you mean `sliding`?
10/s pre request => `pre` at column 6 should be `burst`, `sliding`, `smooth`, `fixed`, `aligned`, `to`, `margin`, `per request` or `and`; did you mean `per request`?
evry 50ms => `evry` at column 1 should be `every`, `unlimited` or a rate such as 100/min; did you mean `every`?
 => it ends where `every`, `unlimited` or a rate such as 100/min should follow
100/min and => it ends where `every`, `unlimited` or a rate such as 100/min should follow
100/min burst 20 30 => `30` at column 18 should be `start`, `debt`, `margin`, `per request` or `and`
100/min burst => the burst must be a whole number up to 4294967295, got nothing
100/min burst -1 => the burst must be a whole number up to 4294967295, got `-1`
100/min burst 0 => a token bucket needs a burst of at least 1, got 0
100/min burst 20 start 21 => a token bucket starts with at most its burst, got 21 and 20
100/min sliding 0 buckets => a counter needs at least 1 bucket, got 0
100/min sliding 10 bukets => `bukets` at column 20 should be `buckets`; did you mean `buckets`?
100/min sliding fixed => `fixed` at column 17 should be a number of buckets, `margin`, `per request` or `and`
every => it ends where a time such as 250ms should follow
10/s margin => it ends where a time such as 250ms should follow
10/s margin 80ms to 5ms => a margin needs a longest delay of at least the shortest, got 5ms and 80ms
10/s burst 5 debt margin 5ms => a token bucket with debt has no margin
10/min aligned margin 1min => the margin of an aligned window is shorter than the window (a sliding window can keep a longer one), got 60s
1/s to 5/s within 1min margin 40h => the rates of a ramp have periods of at most 39 hours, got 144001s
1/s to 5/s within 1min restart 0s => a ramp restarts after an idle time of at least 1 ns, got 0
10/s per => it ends where `request` should follow
500/month => it ends where `aligned` should follow
500/day aligned utc+24 => an offset from UTC is less than a day, so at most 86399 seconds, got 86400
500/day aligned utc+2h => write an offset as utc+02:00 or utc-8, got `utc+2h`
0/s => a rate needs at least 1 permit, got 0
10/s and 5/fortnight => the unit must be one of ns, us, ms, s, min, h, day, got `fortnight`
every 50 => `50` needs a unit: one of ns, us, ms, s, min, h, day, as in 250ms
10/5 burst 3 => `5` needs a unit: one of ns, us, ms, s, min, h, day, as in 250ms
50ms => write permits/period, as in 30/s, 100/min or 5/250ms, or `every 50ms`
a 10/s => `a` at column 1 should be `every`, `unlimited` or a rate such as 100/min
every 1.5s => the period must be a whole number of units, as in 250ms, got `1.5s`
";

#[test]
fn an_error_names_the_word_its_place_what_would_be_right_and_the_nearest() {
    for row in ERRORS.trim_matches('\n').lines() {
        let (text, expected) = row.split_once(" => ").unwrap();
        let error = text.parse::<AnyPolicy>().unwrap_err().to_string();
        assert_eq!(error, format!("`{text}` is not a policy: {expected}"));
    }
    for (text, place) in [("10/s und 5/min", 5), ("10/s per ", 9)] {
        let error = text.parse::<AnyPolicy>().unwrap_err();
        assert_eq!(error.position(), Some(place), "{text}");
    }
}

#[test]
fn a_long_text_gives_a_short_message_and_the_place() {
    for text in [
        "x".repeat(10_000),
        format!("10/s burst {}", "9".repeat(10_000)),
        format!("10/{}", "s".repeat(10_000)),
        format!("10/s {}", "ä".repeat(10_000)),
        format!("9/day aligned utc{}", "+".repeat(10_000)),
        "10/s and ".repeat(10_000),
    ] {
        let error = text.parse::<AnyPolicy>().unwrap_err();
        assert!(error.to_string().len() < 700, "{error}");
        assert!(error.position().is_some());
    }
    let error = "1".repeat(10_000).parse::<Rate>().unwrap_err().to_string();
    assert!(error.len() < 300, "{error}");
}

#[test]
fn more_limits_than_a_program_would_write_are_refused() {
    let text = |limits: usize| vec!["10/s"; limits].join(" and ");
    assert!(text(32).parse::<AnyPolicy>().is_ok());
    let error = text(33).parse::<AnyPolicy>().unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with(": `and` joins at most 32 limits"),
        "{error}"
    );
    assert_eq!(error.position(), Some(32 * 9));
}

fn rates() -> impl Strategy<Value = Rate> {
    let period = prop_oneof![
        Just(Duration::from_nanos(1)),
        Just(Duration::MAX),
        (1..100_000u64).prop_map(Duration::from_millis),
        (1..=u64::MAX).prop_map(Duration::from_nanos),
        (1..50u64).prop_map(|hours| Duration::from_secs(3_600 * hours)),
    ];
    (1..=u32::MAX, period).prop_map(|(permits, period)| Rate::new(permits, period))
}

fn aligned_windows() -> impl Strategy<Value = AlignedWindow> {
    let alignment = prop_oneof![
        Just(Alignment::Minute),
        Just(Alignment::Hour),
        Just(Alignment::Day),
        Just(Alignment::Week),
        Just(Alignment::Month),
        Just(Alignment::Every(Duration::from_secs(300))),
        Just(Alignment::Every(Duration::from_secs(60))),
        Just(Alignment::Every(Duration::from_secs(3_600))),
        Just(Alignment::Every(Duration::from_secs(86_400))),
    ];
    let offset = prop_oneof![
        Just(0),
        -86_399..86_400,
        (-23..24i32).prop_map(|hour| hour * 3_600)
    ];
    let delay = (any::<Duration>(), 0..60_000_000_000u64);
    (1..=u32::MAX, alignment, offset, delay).prop_map(|(limit, alignment, offset, delay)| {
        let (shortest, margin) = (delay.0 / 2, Duration::from_nanos(delay.1));
        let window = AlignedWindow::new(limit, alignment).with_utc_offset(offset);
        window.with_margin(shortest..=shortest + margin)
    })
}

fn ramps() -> impl Strategy<Value = Ramp> {
    let time = || (1..=1u64 << 47).prop_map(Duration::from_nanos);
    let (permits, idle) = ((1..=u32::MAX, 1..=u32::MAX), any::<Option<Duration>>());
    (permits, time(), time(), idle).prop_map(|((from, to), period, within, idle)| {
        let ramp = Ramp::new(Rate::new(from, period), Rate::new(to, period), within);
        let idle = idle.filter(|idle| !idle.is_zero());
        idle.map_or(ramp, |idle| ramp.with_restart_after(idle))
    })
}

fn limits() -> BoxedStrategy<AnyPolicy> {
    let bucket = (rates(), 1..=u32::MAX, any::<u32>(), any::<bool>());
    let bucket = bucket.prop_map(|(rate, burst, start, debt)| {
        let bucket = TokenBucket::new(rate, burst).with_start(start.min(burst));
        AnyPolicy::from(if debt { bucket.with_debt() } else { bucket })
    });
    let interval = (any::<Duration>(), any::<bool>()).prop_map(|(every, delayed)| {
        let every = Interval::every(every);
        AnyPolicy::from(if delayed {
            every.with_delayed_start()
        } else {
            every
        })
    });
    let strict = (rates(), 1..=u32::MAX);
    prop_oneof![
        bucket,
        interval,
        rates().prop_map(|rate| SlidingLog::from_rate(rate).into()),
        strict.prop_map(|(rate, n)| SlidingCounter::strict_from_rate(rate, n).into()),
        rates().prop_map(|rate| SlidingCounter::smooth_from_rate(rate).into()),
        rates().prop_map(|rate| FixedWindow::from_rate(rate).into()),
        aligned_windows().prop_map(AnyPolicy::from),
        ramps().prop_map(AnyPolicy::from),
        Just(Unlimited.into()),
    ]
    .boxed()
}

fn policies() -> impl Strategy<Value = AnyPolicy> {
    let limit = (limits(), any::<bool>());
    let limit = limit.prop_map(|(limit, each)| if each { limit.per_request() } else { limit });
    proptest::collection::vec(limit, 1..4).prop_map(|limits| {
        let mut limits = limits.into_iter();
        let first = limits.next().unwrap();
        limits.fold(first, AnyPolicy::and)
    })
}

proptest! {
    #[test]
    fn every_policy_reads_what_it_writes(policy in policies()) {
        let text = policy.to_string();
        prop_assert_eq!(text.parse(), Ok(policy), "{}", text);
    }

    #[test]
    fn no_text_panics_and_each_error_names_a_place_in_it(
        words in proptest::collection::vec(
            prop_oneof![
                Just("100/min"), Just("every"), Just("50ms"), Just("burst"), Just("20"), Just("start"), Just("debt"),
                Just("sliding"), Just("buckets"), Just("aligned"), Just("utc-8"), Just("utc"), Just("per"),
                Just("request"), Just("and"), Just("5/month"), Just("0"), Just("é"), Just("utcé"), Just("µs"),
                Just("to"), Just("within"), Just("restart"), Just("margin"),
                Just("99999999999"), Just("/"), Just("1/µs"), Just("every50ms"), Just("utc+1:2:3:4"), Just("utc+99"),
            ],
            0..8,
        ),
    ) {
        let text = words.join(" ");
        if let Err(error) = text.parse::<AnyPolicy>() {
            prop_assert!(text.is_char_boundary(error.position().unwrap()));
            let start = format!("`{text}` is not a policy: ");
            prop_assert!(error.to_string().starts_with(&start));
        }
    }
}

#[test]
fn what_it_describes_is_what_the_policy_in_it_describes() {
    let at = Tick::from_nanos;
    let (second, day) = (Duration::from_secs(1), Duration::from_secs(86_400));
    let both = parsed("10/s fixed and 500/day fixed");
    let all = All::new((FixedWindow::new(10, second), FixedWindow::new(500, day)));
    let (mut state, mut of_all) = (both.fresh(at(0)), all.fresh(at(0)));
    for cost in [4, 6, 3, 11] {
        let decision = both.decide(&mut state, at(5), cost);
        assert_eq!(decision, all.decide(&mut of_all, at(5), cost));
        assert_eq!(both.status(&state, at(5)), all.status(&of_all, at(5)));
    }
    assert_eq!(both.quota(), all.quota());
    let one = parsed("10/s fixed");
    assert_eq!(one.status(&one.fresh(at(0)), at(0)).binding, None);
    assert_eq!(
        one.quota(),
        Some(Quota {
            permits: 10,
            window: second
        })
    );
    let none = parsed("unlimited");
    let mut state = none.fresh(at(0));
    assert_eq!(none.decide(&mut state, at(0), u32::MAX), Decision::Pass);
    assert_eq!(
        none.status(&state, at(0)),
        Unlimited.status(&Unlimited.fresh(at(0)), at(0))
    );
}

/// What a policy answers to the same calls, one after the other. It is large enough to give credit.
fn answers(policy: &impl Policy) -> Vec<String> {
    let at = |seconds: u64| Tick::from_nanos(seconds * 1_000_000_000);
    let mut state = policy.fresh(at(0));
    let mut answers = Vec::new();
    for (step, seconds) in [0, 1, 1, 2, 61, 62, 130].into_iter().enumerate() {
        let now = at(seconds);
        match step {
            2 => policy.refund(&mut state, now, 1),
            3 => policy.charge(&mut state, now, 700),
            4 => policy.refund_from(&mut state, now, at(2), 300),
            _ => {}
        }
        let peek = policy.peek(&state, now, 400);
        let decision = policy.decide(&mut state, now, if step == 0 { 1 } else { 400 });
        let credit = (policy.credit(&state, now), policy.room(&state, now));
        let settled = (policy.settled_at(&state), policy.is_settled(&state, now));
        let status = policy.status(&state, now);
        answers.push(format!(
            "{peek:?} {decision:?} {credit:?} {settled:?} {status:?}"
        ));
    }
    answers
}

#[track_caller]
fn answers_as_the_policy_in_it(policy: impl Policy + Into<AnyPolicy>) {
    let expected = answers(&policy);
    let any: AnyPolicy = policy.into();
    assert_eq!(answers(&any), expected, "{any}");
}

#[test]
fn each_kind_answers_as_the_policy_in_it() {
    let minute = Duration::from_secs(60);
    let clock = WallClock::new(|| Duration::from_secs(86_400 - 30));
    let calendar = AlignedWindow::new(1_000, Alignment::Day).with_clock(clock);
    answers_as_the_policy_in_it(TokenBucket::new(Rate::per_minute(1_000), 1_000));
    answers_as_the_policy_in_it(TokenBucket::new(Rate::per_minute(9), 1_000).with_debt());
    answers_as_the_policy_in_it(Interval::every(ms(10)));
    answers_as_the_policy_in_it(SlidingLog::new(1_000, minute));
    answers_as_the_policy_in_it(SlidingCounter::strict(1_000, minute, 6));
    answers_as_the_policy_in_it(SlidingCounter::smooth(1_000, minute));
    answers_as_the_policy_in_it(FixedWindow::new(1_000, minute));
    answers_as_the_policy_in_it(calendar);
}

#[test]
fn a_request_counts_as_one_where_the_text_says_so() {
    let at = Tick::from_nanos;
    let policy = parsed("2/100ns fixed per request and 1000/100ns fixed");
    let mut state = policy.fresh(at(0));
    assert!(policy.decide(&mut state, at(0), 300).is_pass());
    policy.charge(&mut state, at(0), 100);
    policy.refund(&mut state, at(0), 50);
    assert_eq!(policy.status(&state, at(0)).remaining, 1);
    assert!(policy.decide(&mut state, at(0), 650).is_pass());
    assert_eq!(policy.room(&state, at(0)), 0);
    policy.refund_from(&mut state, at(0), at(0), 1_000);
    assert_eq!(policy.room(&state, at(0)), 0, "two requests were made");
}

/// Also the limits that pass more at once than another one of them.
#[test]
fn a_spent_policy_waits_for_each_of_its_limits() {
    let now = Tick::from_nanos(5);
    for (text, wait) in [
        ("10/s and 500/day", Some(86_400_000)),
        ("500/day and 10/s", Some(86_400_000)),
        ("10/s burst 5 and every 7ms", Some(100)),
        ("3/s and 5/min fixed per request", Some(60_000)),
        ("4/s sliding 4 buckets and 4/2s smooth", Some(2_500)),
        ("10/s burst 5 start 0 debt", Some(100)),
        ("unlimited", None),
    ] {
        let policy = parsed(text);
        let spent = policy.spent(now);
        assert_eq!(
            policy.peek(&spent, now, 1).retry_in(),
            wait.map(ms),
            "{text}"
        );
        let settles_in = policy.settled_at(&spent).since(now);
        assert!(wait.is_none_or(|wait| settles_in >= ms(wait)), "{text}");
    }
}

/// What the next policy has left of what was spent, all at 0 ns.
fn left_after(old: &str, spent: u32, new: &str, now: u64) -> (u32, u128) {
    let at = Tick::from_nanos;
    let (old, new) = (parsed(old), parsed(new));
    let mut state = old.fresh(at(0));
    assert!(old.decide(&mut state, at(0), spent).is_pass());
    new.retune(&old, &mut state, at(now));
    let status = new.status(&state, at(now));
    (status.remaining, status.reset_in.as_nanos())
}

/// Whether `new`, 50 ns after `old` was spent, has so much left and is full again after so many ns.
#[track_caller]
fn assert_left(rows: &[(&str, u32, &str, (u32, u128))]) {
    for (old, spent, new, expected) in rows {
        assert_eq!(
            left_after(old, *spent, new, 50),
            *expected,
            "{old} -> {new}"
        );
    }
}

#[test]
fn a_retune_to_the_same_kind_keeps_the_state_of_that_kind() {
    assert_left(&[
        ("10/100ns", 4, "20/200ns", (16, 150)),
        ("10/100ns fixed", 4, "3/60ns fixed", (0, 10)),
        ("every 100ns", 1, "every 300ns", (0, 250)),
        (
            "10/100ns sliding 4 buckets",
            4,
            "9/100ns sliding 2 buckets",
            (5, 100),
        ),
    ]);
    let bucket = left_after("1/10ns burst 8", 8, "1/10ns burst 4", 20);
    assert_eq!(bucket, (2, 20));
}

#[test]
fn a_retune_to_another_kind_spends_what_was_missing_until_the_old_one_was_full() {
    assert_left(&[
        ("10/100ns", 4, "10/100ns fixed", (6, 100)),
        ("10/100ns fixed", 9, "1/10ns burst 5", (0, 50)),
        ("10/100ns", 1, "every 40ns", (0, 40)),
        ("every 100ns", 7, "10/100ns", (9, 100)),
        ("10/100ns", 4, "unlimited", (u32::MAX, 0)),
        ("unlimited", 4, "10/100ns", (10, 0)),
        // It has spent 5 already.
        ("10/100ns", 4, "1/10ns burst 8 start 3", (3, 50)),
    ]);
    let expired = left_after("10/100ns", 4, "10/100ns fixed", 100);
    assert_eq!(expired, (10, 0));
    let six_missing = left_after("1/10ns burst 8", 8, "10/100ns", 25);
    assert_eq!(six_missing, (4, 100));
}

#[test]
fn a_limit_that_stays_keeps_its_state_wherever_it_is_written() {
    let both = "10/100ns and 500/900ns";
    assert_left(&[
        (both, 4, "500/900ns and 10/100ns", (6, 50)),
        (both, 4, "500/900ns", (496, 850)),
        // The new one begins with 4 spent.
        ("500/900ns", 4, both, (6, 100)),
        // It takes the place of the other.
        (both, 4, "500/900ns and 6/100ns", (2, 50)),
    ]);
}

#[test]
fn of_more_limits_than_before_each_new_one_begins_with_the_most_that_was_spent() {
    assert_left(&[
        ("9/100ns and 99/900ns", 4, "50/900ns", (46, 900)),
        ("50/900ns", 4, "9/100ns and 99/900ns", (5, 100)),
    ]);
}

#[tokio::test(start_paused = true)]
async fn queued_requests_feel_a_change_of_the_kind_at_once() {
    let start = now();
    let limit = parsed("every 1h").shared();
    limit.acquire_one().await;
    let waiting = tokio::spawn(limit.acquire_owned(1));
    sleep(1_000).await;
    limit.retune(parsed("2/10s"));
    waiting.await.unwrap().unwrap();
    assert_eq!(since(start), 1_000);
    limit.acquire_one().await;
    assert_eq!(since(start), 11_000);
}

#[tokio::test(start_paused = true)]
async fn a_window_of_the_calendar_in_it_ends_by_its_clock() {
    let start = now();
    let clock = WallClock::starting_at(Duration::from_secs(86_400 - 5));
    let midnight = AlignedWindow::new(2, Alignment::Day).with_clock(clock);
    let limit = AnyPolicy::from(midnight).and(parsed("every 1s")).shared();
    for _ in 0..3 {
        limit.acquire_one().await;
    }
    assert_eq!(since(start), 5_000);
}
