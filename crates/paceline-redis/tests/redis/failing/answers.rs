//! What callers of a service are answered while Redis is down.

use std::convert::Infallible;
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{Request, Response};
use paceline::policy::{SlidingLog, TokenBucket};
use paceline::prelude::*;
use paceline_redis::{OutagePolicy, Redis};
use paceline_tower::{Answers, EnforceLayer, For, OnFailure, PaceLayer};
use tower::{Layer, Service, ServiceExt, service_fn};

use super::{redis, until_up};
use crate::limits::pause;
use crate::servers::Server;

type Answered = Response<String>;

fn inner()
-> impl Service<Request<()>, Response = Answered, Error = Infallible, Future: Send> + Clone {
    service_fn(async |_: Request<()>| Ok(Response::new(String::new())))
}

/// Sends a request.
async fn send<S>(service: &S) -> Answered
where
    S: Service<Request<()>, Response = Answered, Error = Infallible> + Clone,
{
    let request = Request::get("/").header("x-user", "ann").body(()).unwrap();
    let Ok(answer) = service.clone().oneshot(request).await;
    answer
}

fn answers() -> Answers {
    Answers::new("api").with_success_headers(true)
}

fn header<'a>(answer: &'a Answered, name: &str) -> Option<&'a str> {
    Some(answer.headers().get(name)?.to_str().unwrap())
}

/// The caller exceeded nothing: it is told that the service has less capacity, and nothing of its limit.
#[track_caller]
fn assert_unavailable(answer: &Answered) {
    assert_eq!(answer.status(), 503, "{answer:?}");
    assert_eq!(header(answer, RETRY_AFTER.as_str()), Some("1"));
    assert_eq!(header(answer, "ratelimit"), None);
    assert_eq!(header(answer, "ratelimit-policy"), None);
    let problem = answer.body();
    assert!(problem.contains("the limiter failed"), "{problem}");
}

/// A window of three seconds, for one limit and for one key, which is not used up.
async fn window(server: &Server, when_down: OutagePolicy) -> (Redis, SlidingLog) {
    let redis = redis(&server.url(), when_down).await;
    (redis, SlidingLog::new(100, Duration::from_secs(3)))
}

#[tokio::test]
async fn closed_answers_503_until_redis_is_back() {
    let mut server = Server::start().await;
    let (redis, policy) = window(&server, OutagePolicy::closed()).await;
    let limit = redis.limit("a", policy).unwrap();
    let users = For::header(redis.keyed("users", policy).unwrap(), "x-user");

    // The outage policy of the limit decides, whatever that of the layer is.
    let layer = EnforceLayer::new(limit.clone()).on_failure(OnFailure::Open);
    let at_once = layer.clone().answering(answers()).layer(inner());
    let fast = EnforceLayer::new(limit.clone().fail_fast()).answering(answers());
    let fast = fast.layer(inner());
    let by_user = EnforceLayer::with_terms(users).answering(answers());
    let by_user = by_user.layer(inner());
    let paced = PaceLayer::new(limit).within(Duration::from_millis(50));
    let paced = paced.answering(answers()).layer(inner());
    let three = async || {
        [
            send(&at_once).await,
            send(&fast).await,
            send(&by_user).await,
        ]
    };
    for answer in three().await {
        assert_eq!(answer.status(), 200);
        assert!(header(&answer, "ratelimit").is_some());
    }

    server.kill();
    for _ in 0..50 {
        three().await.iter().for_each(assert_unavailable);
    }
    for _ in 0..5 {
        assert_unavailable(&send(&paced).await);
    }
    assert_eq!(layer.failures(), <_>::default());
    let stats = redis.stats();
    assert_eq!((stats.outages, stats.passed_alone), (1, 0), "{stats:?}");
    assert!(stats.skipped > 0 && redis.last_failure().is_some());

    server.start_again().await;
    until_up(&redis).await;
    // The restarted server does not know what was spent before: the window counts as used up once.
    let answer = send(&at_once).await;
    assert_eq!(answer.status(), 429, "{answer:?}");
    assert!(header(&answer, "ratelimit").unwrap().contains(";r=0;"));
    while send(&at_once).await.status() != 200 {
        pause(Duration::from_millis(20)).await;
    }
    assert!(send(&paced).await.status().is_success());
}

#[tokio::test]
async fn open_answers_200_without_a_status_that_is_not_known() {
    let mut server = Server::start().await;
    let (redis, policy) = window(&server, OutagePolicy::open()).await;
    let limit = redis.limit("a", policy).unwrap();
    let service = EnforceLayer::new(limit).answering(answers()).layer(inner());
    assert!(header(&send(&service).await, "ratelimit").is_some());

    server.kill();
    for _ in 0..200 {
        let answer = send(&service).await;
        assert_eq!(answer.status(), 200);
        assert_eq!(header(&answer, "ratelimit"), None);
    }
    assert_eq!(redis.stats().passed_alone, 200);
}

#[tokio::test]
async fn insured_answers_429_with_the_status_of_the_share_when_that_is_used_up() {
    let mut server = Server::start().await;
    let redis = redis(&server.url(), OutagePolicy::insured(2)).await;
    let bucket = TokenBucket::new(Rate::new(1, Duration::from_millis(500)), 4);
    let limit = redis.limit("a", bucket).unwrap();
    let service = EnforceLayer::new(limit).answering(answers()).layer(inner());
    let policy = header(&send(&service).await, "ratelimit-policy").map(str::to_owned);

    server.kill();
    let mut statuses = Vec::new();
    while statuses.last() != Some(&200) {
        let answer = send(&service).await;
        statuses.push(answer.status().as_u16());
        let share = header(&answer, "ratelimit-policy").expect("that of the share");
        assert_ne!(Some(share), policy.as_deref());
    }
    // The share begins with everything spent.
    statuses.pop();
    assert!(statuses.len() > 1);
    assert!(statuses.iter().all(|status| *status == 429), "{statuses:?}");
}
