//! Pauses, modes and parameters that hold for all processes.

use std::time::Duration;

use paceline::feedback::Feedback;
use paceline::limiter::{Limits, Mode, Switch};
use paceline::policy::{
    All, Decision, FixedWindow, Interval, SlidingCounter, SlidingLog, TokenBucket,
};
use paceline::prelude::*;
use paceline::time::Rate;
use paceline_redis::{OutagePolicy, Redis, RedisLimiter, RedisPolicy, ServerError};

use super::{MINUTE, PATIENT, pause, redis, wait_of};
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

async fn two<P: RedisPolicy>(server: &Server, policy: P) -> [RedisLimiter<P>; 2] {
    let one = redis(server).await.limit("a", policy.clone()).unwrap();
    let other = redis(server).await.limit("a", policy).unwrap();
    [one, other]
}

#[tokio::test]
async fn a_new_client_hears_of_each_of_thousands_of_pauses() {
    let server = Server::start().await;
    let users = redis(&server)
        .await
        .keyed("users", SlidingLog::new(5, MINUTE));
    let users = users.unwrap();
    for user in 0..2_500 {
        users
            .at(&user.to_string())
            .unwrap()
            .pause_for(MINUTE)
            .await
            .unwrap();
    }

    let new = redis(&server)
        .await
        .keyed("users", SlidingLog::new(5, MINUTE));
    let new = new.unwrap();
    // A thousand are read with each call.
    for _ in 0..3 {
        assert_eq!(
            new.at("not paused").unwrap().try_acquire(1).await,
            Ok(Decision::Pass)
        );
    }
    for user in ["0", "1000", "2499"] {
        let wait = new
            .at(user)
            .unwrap()
            .try_acquire(1)
            .await
            .unwrap()
            .retry_in();
        assert!(wait > Some(MINUTE / 2), "{user}");
    }
}

#[tokio::test]
async fn another_client_hears_of_a_pause_of_feedback_and_of_a_resume() {
    let server = Server::start().await;
    let [one, other] = two(&server, SlidingLog::new(5, MINUTE)).await;
    assert!(other.try_acquire(1).await.unwrap().is_pass());

    one.pause_for(MINUTE).await.unwrap();
    assert!(one.paused_for().unwrap() > MINUTE / 2);
    second().await;
    assert!(wait_of(other.try_acquire(1).await) > MINUTE / 2);
    assert!(wait_of(other.peek(1).await) > MINUTE / 2);
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
    let hosts = async || {
        let redis = redis(&server).await;
        redis.keyed("hosts", SlidingLog::new(5, MINUTE)).unwrap()
    };
    let (one, other) = (hosts().await, hosts().await);
    let client = service_fn(|_: Request<()>| async {
        let refused = Response::builder().status(429).header("retry-after", "60");
        Ok::<_, Infallible>(refused.body(()).unwrap())
    });
    let layer = PaceLayer::by_key(one.clone(), host_key());
    let (pace, feedback) = layer.obeying();
    let request = Request::get("http://a.example/").body(()).unwrap();
    let service = (pace, feedback.clone()).layer(client);
    assert_eq!(service.oneshot(request).await.unwrap().status(), 429);
    assert_eq!(feedback.failures().errors, 0);

    assert!(wait_of(one.at("a.example").unwrap().try_acquire(1).await) > MINUTE / 2);
    second().await;
    let _ = other.at("a.example").unwrap().try_acquire(1).await;
    second().await;
    assert!(wait_of(other.at("a.example").unwrap().try_acquire(1).await) > MINUTE / 2);
    assert!(
        other
            .at("b.example")
            .unwrap()
            .try_acquire(1)
            .await
            .unwrap()
            .is_pass()
    );
}

#[tokio::test]
async fn pauses_expire_in_redis_and_modes_stay() {
    let server = Server::start().await;
    let (of_one, of_other) = (redis(&server).await, redis(&server).await);
    let [one, _] = two(&server, SlidingLog::new(5, MINUTE)).await;
    for _ in 0..3 {
        one.pause_for(Duration::from_millis(20)).await.unwrap();
        pause(Duration::from_millis(40)).await;
    }
    for key in ["by_name", "versions", "ends"] {
        let key = format!("paceline:{{overrides}}:{key}");
        assert_eq!(server.cli::<u64>(&["EXISTS", &key]).await, 0, "{key}");
    }

    of_one.set_mode("a", Mode::Off).await.unwrap();
    let lives: i64 = server.cli(&["PTTL", "paceline:{overrides}:by_name"]).await;
    assert_eq!(lives, -1);
    let switch = of_other.switch("a").unwrap();
    let other = of_other.limit("a", SlidingLog::new(5, MINUTE)).unwrap();
    let other = other.switched(&switch);
    reads(&switch, Mode::Off, async || {
        let _ = other.try_acquire(9).await;
    })
    .await;
    assert_eq!(other.try_acquire(9).await, Decision::Pass);

    of_one.set_mode("a", Mode::Active).await.unwrap();
    let lives: i64 = server.cli(&["PTTL", "paceline:{overrides}:by_name"]).await;
    assert!((3_500_000..3_700_000).contains(&lives), "{lives}");
}

#[tokio::test]
async fn a_key_is_paused_alone_and_a_switch_around_the_table_is_for_all_keys() {
    let server = Server::start().await;
    let clients = [redis(&server).await, redis(&server).await];
    let hosts = clients
        .each_ref()
        .map(|redis| redis.keyed("hosts", SlidingLog::new(2, MINUTE)).unwrap());
    let [one, other] = &hosts;
    one.at("a.example")
        .unwrap()
        .pause_for(MINUTE)
        .await
        .unwrap();
    one.at("c.example")
        .unwrap()
        .retune(SlidingLog::new(1, MINUTE))
        .await
        .unwrap();
    assert!(wait_of(other.at("a.example").unwrap().try_acquire(1).await) > MINUTE / 2);
    assert!(
        other
            .at("b.example")
            .unwrap()
            .try_acquire(2)
            .await
            .unwrap()
            .is_pass()
    );
    let never = Decision::Never { capacity: 1 };
    assert_eq!(
        other.at("c.example").unwrap().try_acquire(2).await,
        Ok(never)
    );
    one.at("a.example").unwrap().resume().await.unwrap();
    assert!(
        one.at("a.example")
            .unwrap()
            .try_acquire(1)
            .await
            .unwrap()
            .is_pass()
    );

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
    let log = |limit| SlidingLog::new(limit, MINUTE);
    let fixed = |limit| FixedWindow::new(limit, MINUTE);
    tokio::join!(
        is_retuned_and_back(&server, "bucket", bucket(3, 7), bucket(2, 1)),
        is_retuned_and_back(
            &server,
            "interval",
            Interval::every(Duration::from_millis(3)),
            Interval::every(MINUTE)
        ),
        is_retuned_and_back(&server, "log", log(9), log(1)),
        is_retuned_and_back(&server, "fixed", fixed(9), fixed(1)),
        is_retuned_and_back(
            &server,
            "strict",
            SlidingCounter::strict(9, MINUTE, 7),
            SlidingCounter::strict(1, MINUTE, 5),
        ),
        is_retuned_and_back(
            &server,
            "smooth",
            SlidingCounter::smooth(9, MINUTE),
            SlidingCounter::smooth(1, MINUTE),
        ),
        is_retuned_and_back(
            &server,
            "all",
            All::new((bucket(3, 7), All::new((log(9), fixed(9))))),
            All::new((bucket(5, 6), All::new((log(8), fixed(1))))),
        ),
    );
}

#[tokio::test]
async fn parameters_that_do_not_fit_are_refused_with_the_reason() {
    let server = Server::start().await;
    let redis = redis(&server).await.when_down(OutagePolicy::insured(3));
    let limit = redis.limit("a", SlidingLog::new(9, MINUTE)).unwrap();
    let error = limit.retune(SlidingLog::new(2, MINUTE)).await.unwrap_err();
    let why = "a limit of 2 cannot be divided among 3 replicas: each needs at least 1";
    assert_eq!(error.unfit().unwrap().to_string(), why);
    assert!(limit.try_acquire(9).await.unwrap().is_pass());
}

#[tokio::test]
async fn overrides_of_another_type_are_named_and_stop_no_decision() {
    let server = Server::start().await;
    let key = "paceline:{overrides}:versions";
    server.cli::<()>(&["SET", key, "x"]).await;
    let redis = redis(&server).await;
    let limit = redis.limit("a", SlidingLog::new(5, MINUTE)).unwrap();
    assert!(limit.try_acquire(1).await.unwrap().is_pass());
    assert_eq!((redis.stats().faults, redis.stats().outages), (1, 0));
    let failure = redis.last_failure().unwrap();
    let place = "the overrides in paceline:{overrides}:by_name";
    assert!(
        failure.contains(place) && failure.contains("WRONGTYPE"),
        "{failure}"
    );
    let error = limit.pause_for(MINUTE).await.unwrap_err();
    assert!(error.server_error().is_some(), "{error}");
    assert!(
        wait_of(limit.try_acquire(1).await) > MINUTE / 2,
        "it holds here"
    );
}

#[tokio::test]
async fn a_user_who_may_not_read_overrides_can_use_limits() {
    let server = Server::start().await;
    let rules = [
        "ACL",
        "SETUSER",
        "bob",
        "on",
        ">pass",
        "~paceline:{a}:*",
        "+@all",
    ];
    server.cli::<()>(&rules).await;
    let url = server.url().replace("redis://", "redis://bob:pass@");
    let redis = Redis::open(&url, OutagePolicy::closed()).unwrap();
    let redis = redis.with_deadline(PATIENT).unwrap();
    let limit = redis.limit("a", SlidingLog::new(5, MINUTE)).unwrap();
    for _ in 0..5 {
        assert!(limit.try_acquire(1).await.unwrap().is_pass());
    }
    assert_eq!((redis.stats().faults, redis.stats().outages), (1, 0));
    let failure = redis.last_failure().unwrap();
    assert!(failure.contains("the overrides in paceline:"), "{failure}");
}

#[tokio::test]
async fn more_than_ten_thousand_overrides_are_refused() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let hosts = redis.keyed("hosts", SlidingLog::new(2, MINUTE)).unwrap();
    let versions: Vec<String> = (0..10_000)
        .flat_map(|n| [n.to_string(), format!("n{n}")])
        .collect();
    let mut add = redis::cmd("ZADD");
    add.arg("paceline:{overrides}:versions").arg(versions);
    server.command::<()>(&add).await;
    let error = hosts
        .at("a.example")
        .unwrap()
        .pause_for(MINUTE)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("10000 overrides"), "{error}");
}

#[tokio::test]
async fn prefixes_have_overrides_of_their_own() {
    let server = Server::start().await;
    let redis = redis(&server).await;
    let of = |prefix| redis.clone().with_prefix(prefix).unwrap();
    let limits =
        ["one", "two"].map(|prefix| of(prefix).limit("a", SlidingLog::new(5, MINUTE)).unwrap());
    limits[0].pause_for(MINUTE).await.unwrap();
    assert!(!limits[0].try_acquire(1).await.unwrap().is_pass());
    assert!(limits[1].try_acquire(1).await.unwrap().is_pass());
    assert_eq!(redis.stats().connects, 1);
}

#[tokio::test]
async fn a_flushed_server_has_no_modes_any_more() {
    let server = Server::start().await;
    let clients = [redis(&server).await, redis(&server).await];
    clients[0].set_mode("a", Mode::Off).await.unwrap();
    let limits = clients.each_ref().map(|redis| {
        let limit = redis.limit("a", SlidingLog::new(5, MINUTE)).unwrap();
        limit.switched(&redis.switch("a").unwrap())
    });
    let asked = async |mode| {
        for limit in &limits {
            let ask = async || {
                let _ = limit.try_acquire(1).await;
            };
            reads(limit.switch(), mode, ask).await;
        }
    };
    asked(Mode::Off).await;
    server.flush_all().await;
    asked(Mode::Active).await;
}

#[tokio::test]
async fn what_was_taken_back_is_dropped_after_an_hour_and_still_heard_by_an_idle_client() {
    let server = Server::start_with_clock().await;
    let (own, other) = (redis(&server).await, redis(&server).await);
    own.set_mode("stays", Mode::Shadow).await.unwrap();
    own.set_mode("back", Mode::Off).await.unwrap();
    let idle = other.switch("back").unwrap();
    let limit = other.limit("back", SlidingLog::new(5, MINUTE)).unwrap();
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

#[tokio::test]
async fn a_name_of_a_switch_is_as_long_as_that_of_a_limit() {
    let redis = Redis::open("redis://127.0.0.1:1", OutagePolicy::closed()).unwrap();
    let long = "x".repeat(201);
    for name in ["", &long] {
        let refused = redis.switch(name).unwrap_err().to_string();
        assert!(refused.contains("1 to 200 bytes"), "{refused}");
        let error = redis.set_mode(name, Mode::Off).await.unwrap_err();
        assert!(error.unfit().is_some(), "{error}");
    }
}
