//! Pauses, modes and parameters that hold for all processes.

use std::time::Duration;

use paceline::feedback::Feedback;
use paceline::limiter::{Limits, Mode, Switch};
use paceline::policy::{
    All, Decision, FixedWindow, Interval, SlidingCounter, SlidingLog, TokenBucket,
};
use paceline::prelude::*;
use paceline::time::Rate;
use paceline_redis::{OutagePolicy, Redis, RedisKeyed, RedisLimiter, RedisPolicy, ServerError};

use super::{MINUTE, PATIENT, a_minute_of, client, denied, log, passed, pause, redis, wait_of};
use crate::servers::Server;

const SECOND: Duration = Duration::from_secs(1);

/// Long enough for a process to read what has changed, with its next call.
async fn second() {
    pause(SECOND).await;
}

/// Asks until the switch has that mode, as one of another process will.
async fn reads(switch: &Switch, mode: Mode, ask: impl AsyncFn()) {
    while switch.mode() != mode {
        ask().await;
        pause(Duration::from_millis(20)).await;
    }
}

/// The same limit in two processes.
async fn two(server: &Server) -> [RedisLimiter<SlidingLog>; 2] {
    let fleet = [redis(server).await, redis(server).await];
    fleet.map(|redis| redis.limit("a", log(5)).unwrap())
}

/// The same table in each process.
async fn table(server: &Server) -> RedisKeyed<SlidingLog> {
    redis(server).await.keyed("hosts", log(5)).unwrap()
}

#[tokio::test]
async fn a_new_client_hears_of_each_of_thousands_of_pauses() {
    let server = Server::start().await;
    let hosts = table(&server).await;
    for host in 0..2_500 {
        let host = hosts.at(&host.to_string()).unwrap();
        host.pause_for(MINUTE).await.unwrap();
    }
    let new = table(&server).await;
    // A thousand are read with each call.
    for _ in 0..3 {
        passed(new.at("not paused").unwrap().try_acquire(1).await);
    }
    for host in ["0", "1000", "2499"] {
        denied(new.at(host).unwrap().try_acquire(1).await);
    }
}

#[tokio::test]
async fn another_client_hears_of_a_pause_of_feedback_and_of_a_resume() {
    let server = Server::start().await;
    let [one, other] = two(&server).await;
    passed(other.try_acquire(1).await);

    one.pause_for(MINUTE).await.unwrap();
    assert!(one.paused_for().unwrap() > MINUTE / 2);
    second().await;
    denied(other.try_acquire(1).await);
    denied(other.peek(1).await);
    assert_eq!(other.try_acquire_up_to(5).await, Ok(0));
    let refused = Feedback::parse([("Retry-After", "120")], Duration::ZERO);
    let paused = other.apply_feedback(&refused).await;
    assert_eq!(paused, Ok(Some(2 * MINUTE)));
    second().await;
    let _ = one.try_acquire(1).await;
    second().await;
    assert!(wait_of(one.try_acquire(1).await) > MINUTE);

    let waits = tokio::spawn({
        let other = other.clone();
        async move { other.acquire(1).await }
    });
    second().await;
    one.resume().await.unwrap();
    waits.await.unwrap().unwrap();
    assert_eq!((one.paused_for(), other.paused_for()), (None, None));
    // What was granted while the pause was not known has been given back.
    assert_eq!(one.try_acquire_up_to(5).await, Ok(3));
}

#[tokio::test]
async fn a_response_to_one_client_pauses_its_host_in_another() {
    use http::{Request, Response};
    use paceline_tower::{PaceLayer, host_key};
    use std::convert::Infallible;
    use tower::{Layer, ServiceExt, service_fn};

    let server = Server::start().await;
    let (one, other) = (table(&server).await, table(&server).await);
    let client = service_fn(|_: Request<()>| async {
        let refused = Response::builder().status(429).header("retry-after", "60");
        Ok::<_, Infallible>(refused.body(()).unwrap())
    });
    let (pace, feedback) = PaceLayer::by_key(one.clone(), host_key()).obeying();
    let request = Request::get("http://a.example/").body(()).unwrap();
    let service = (pace, feedback.clone()).layer(client);
    assert_eq!(service.oneshot(request).await.unwrap().status(), 429);
    assert_eq!(feedback.failures().errors, 0);

    for hosts in [one, other] {
        denied(hosts.at("a.example").unwrap().try_acquire(1).await);
        passed(hosts.at("b.example").unwrap().try_acquire(1).await);
    }
}

#[tokio::test]
async fn pauses_expire_in_redis_and_modes_stay_until_they_are_taken_back_or_the_server_is_flushed()
{
    let (server, of_one, limit) = a_minute_of(5).await;
    for _ in 0..3 {
        limit.pause_for(Duration::from_millis(20)).await.unwrap();
        pause(Duration::from_millis(40)).await;
    }
    for key in ["by_name", "versions", "ends"] {
        let key = format!("paceline:{{overrides}}:{key}");
        assert_eq!(server.cli::<u64>(&["EXISTS", &key]).await, 0, "{key}");
    }

    let of_other = redis(&server).await;
    let limits = [&of_one, &of_other].map(|redis| {
        let limit = redis.limit("a", log(5)).unwrap();
        limit.switched(&redis.switch("a").unwrap())
    });
    let both_read = async |mode| {
        for limit in &limits {
            let ask = async || {
                let _ = limit.try_acquire(1).await;
            };
            reads(limit.switch(), mode, ask).await;
        }
    };
    let lives = async || -> i64 { server.cli(&["PTTL", "paceline:{overrides}:by_name"]).await };
    of_one.set_mode("a", Mode::Off).await.unwrap();
    assert_eq!(lives().await, -1);
    both_read(Mode::Off).await;
    assert_eq!(limits[1].try_acquire(9).await, Decision::Pass);

    of_one.set_mode("a", Mode::Active).await.unwrap();
    let taken_back = lives().await;
    assert!((3_500_000..3_700_000).contains(&taken_back), "{taken_back}");
    both_read(Mode::Active).await;

    of_one.set_mode("a", Mode::Off).await.unwrap();
    both_read(Mode::Off).await;
    server.flush_all().await;
    both_read(Mode::Active).await;
}

#[tokio::test]
async fn a_key_is_paused_alone_and_a_switch_around_the_table_is_for_all_keys() {
    let server = Server::start().await;
    let clients = [redis(&server).await, redis(&server).await];
    let hosts = clients.each_ref();
    let [one, other] = hosts.map(|redis| redis.keyed("hosts", log(2)).unwrap());
    let [a, c] = ["a.example", "c.example"].map(|host| one.at(host).unwrap());
    a.pause_for(MINUTE).await.unwrap();
    c.retune(log(1)).await.unwrap();
    denied(other.at("a.example").unwrap().try_acquire(1).await);
    passed(other.at("b.example").unwrap().try_acquire(2).await);
    let never = other.at("c.example").unwrap().try_acquire(2).await;
    assert_eq!(never, Ok(Decision::Never { capacity: 1 }));
    a.resume().await.unwrap();
    passed(a.try_acquire(1).await);

    clients[0].set_mode("hosts", Mode::Shadow).await.unwrap();
    let switch = clients[1].switch("hosts").unwrap();
    let hosts = other.clone().switched(&switch);
    reads(&switch, Mode::Shadow, async || {
        let _ = hosts.at("b.example").unwrap().try_acquire(1).await;
    })
    .await;
    for host in ["a.example", "b.example", "d.example"] {
        let limit = hosts.at(host).unwrap();
        assert!(limit.try_acquire(2).await.is_pass() && limit.try_acquire(2).await.is_pass());
    }
    assert!(switch.stats().held_back >= 3);
    assert!(one.at("").is_err());
}

/// Whether two permits can pass within half a minute.
fn is_fast(answer: Result<Decision, ServerError>) -> bool {
    match answer.unwrap() {
        Decision::Pass => true,
        Decision::Wait { retry_in } => retry_in < MINUTE / 2,
        Decision::Never { .. } => false,
    }
}

/// Retunes a limit to parameters that do not pass two permits within a minute, and back.
async fn is_retuned_and_back<P: RedisPolicy>(server: &Server, name: &str, made: P, less: P) {
    let made_of = |redis: Redis| redis.limit(name, made.clone()).unwrap();
    let (one, other) = (made_of(redis(server).await), made_of(redis(server).await));
    assert!(other.try_acquire(1).await.unwrap().is_pass(), "{name}");
    one.retune(less.clone()).await.unwrap();
    assert!(!is_fast(one.try_acquire(2).await), "{name}");
    second().await;
    // The first call hears of it, and that of a process that starts with the old parameters.
    let started = made_of(redis(server).await);
    for limit in [&other, &started] {
        let _ = limit.peek(1).await;
        assert!(!is_fast(limit.try_acquire(2).await), "{name}");
    }

    one.retune(made.clone()).await.unwrap();
    second().await;
    let _ = other.peek(1).await;
    assert!(is_fast(other.try_acquire(2).await), "{name}");
}

#[tokio::test]
async fn each_policy_is_retuned_in_another_client_and_back() {
    let server = Server::start().await;
    let bucket = |permits, burst| TokenBucket::new(Rate::new(permits, MINUTE / 7), burst);
    let every = |millis| Interval::every(Duration::from_millis(millis));
    let fixed = |limit| FixedWindow::new(limit, MINUTE);
    let strict = |limit, buckets| SlidingCounter::strict(limit, MINUTE, buckets);
    let smooth = |limit| SlidingCounter::smooth(limit, MINUTE);
    let made = All::new((bucket(3, 7), All::new((log(9), fixed(9)))));
    let less = All::new((bucket(5, 6), All::new((log(8), fixed(1)))));
    tokio::join!(
        is_retuned_and_back(&server, "bucket", bucket(3, 7), bucket(2, 1)),
        is_retuned_and_back(&server, "interval", every(3), every(60_000)),
        is_retuned_and_back(&server, "log", log(9), log(1)),
        is_retuned_and_back(&server, "fixed", fixed(9), fixed(1)),
        is_retuned_and_back(&server, "strict", strict(9, 7), strict(1, 5)),
        is_retuned_and_back(&server, "smooth", smooth(9), smooth(1)),
        is_retuned_and_back(&server, "all", made, less),
    );
}

#[tokio::test]
async fn parameters_that_do_not_fit_are_refused_with_the_reason() {
    let server = Server::start().await;
    let redis = redis(&server).await.when_down(OutagePolicy::insured(3));
    let limit = redis.limit("a", log(9)).unwrap();
    let error = limit.retune(log(2)).await.unwrap_err();
    let why = "a limit of 2 cannot be divided among 3 replicas: each needs at least 1";
    assert_eq!(error.unfit().unwrap().to_string(), why);
    passed(limit.try_acquire(9).await);
}

#[tokio::test]
async fn overrides_that_cannot_be_read_are_named_and_stop_no_decision() {
    let server = Server::start().await;
    let bob = "ACL SETUSER bob on >pass ~paceline:{a}:* +@all";
    server.cli::<()>(&bob.split(' ').collect::<Vec<_>>()).await;
    let of_bob = server.url().replace("redis://", "redis://bob:pass@");
    let another_type = ["SET", "paceline:{overrides}:versions", "x"];
    server.cli::<()>(&another_type).await;
    for (url, why) in [(server.url(), "WRONGTYPE"), (of_bob, "NoPerm")] {
        let redis = client(&url, OutagePolicy::closed(), PATIENT);
        let limit = redis.limit("a", log(9)).unwrap();
        for _ in 0..4 {
            passed(limit.try_acquire(1).await);
        }
        assert_eq!((redis.stats().faults, redis.stats().outages), (1, 0));
        let failure = redis.last_failure().unwrap();
        let place = "the overrides in paceline:{overrides}:by_name";
        assert!(
            failure.contains(place) && failure.contains(why),
            "{failure}"
        );

        let error = limit.pause_for(MINUTE).await.unwrap_err();
        assert!(error.server_error().is_some(), "{error}");
        // It holds here.
        denied(limit.try_acquire(1).await);
    }
}

#[tokio::test]
async fn more_than_ten_thousand_overrides_are_refused() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let limit = redis.limit("a", log(2)).unwrap();
    let versions: Vec<String> = (0..10_000)
        .flat_map(|n| [n.to_string(), format!("n{n}")])
        .collect();
    let mut add = redis::cmd("ZADD");
    add.arg("paceline:{overrides}:versions").arg(versions);
    server.command::<()>(&add).await;
    let error = limit.pause_for(MINUTE).await.unwrap_err();
    assert!(error.to_string().contains("10000 overrides"), "{error}");
}

#[tokio::test]
async fn prefixes_have_overrides_of_their_own() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let [one, other] = ["one", "two"].map(|prefix| {
        let redis = redis.clone().with_prefix(prefix).unwrap();
        redis.limit("a", log(5)).unwrap()
    });
    one.pause_for(MINUTE).await.unwrap();
    denied(one.try_acquire(1).await);
    passed(other.try_acquire(1).await);
    assert_eq!(redis.stats().connects, 1);
}

#[tokio::test]
async fn what_was_taken_back_is_dropped_after_an_hour_and_still_heard_by_an_idle_client() {
    let server = Server::start_with_clock().await;
    let (own, other) = (redis(&server).await, redis(&server).await);
    own.set_mode("stays", Mode::Shadow).await.unwrap();
    own.set_mode("back", Mode::Off).await.unwrap();
    let idle = other.switch("back").unwrap();
    let limit = other.limit("back", log(5)).unwrap();
    let limit = limit.switched(&idle);
    let ask = async || {
        let _ = limit.try_acquire(1).await;
    };
    reads(&idle, Mode::Off, ask).await;
    own.set_mode("back", Mode::Active).await.unwrap();
    let before = server.time_us().await;
    server.set_clock(7_200);
    while server.time_us().await < before + 7_000_000_000 {
        pause(Duration::from_millis(20)).await;
    }
    own.set_mode("other", Mode::Off).await.unwrap();
    let names: Vec<String> = server
        .cli(&["ZRANGE", "paceline:{overrides}:versions", "0", "-1"])
        .await;
    assert_eq!(names, ["paceline:{stays}", "paceline:{other}"]);
    reads(&idle, Mode::Active, ask).await;
}
