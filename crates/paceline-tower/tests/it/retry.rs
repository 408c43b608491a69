//! Requests are made again outside of the limit, which every attempt asks.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use ::tower::retry::RetryLayer;
use ::tower::{Layer, Service, ServiceExt, service_fn};
use futures::future::join_all;
use http::{Method, Request, Response};
use paceline::concurrency::Permits;
use paceline::limiter::{AdaptiveRate, HoldAndProbe, PolicyExt, Share};
use paceline::policy::Interval;
use paceline::retry::{Failure, Retry, RetryBudget};
use paceline::time::Rate;
use paceline_tower::{ConcurrencyLayer, PaceLayer, RetryPolicy, host_key};
use testkit::probe::service::InnerError;
use tokio::time::Instant;

use crate::timed::{ms, now, since, sleep};

/// When the calls came, and to which host.
#[derive(Clone)]
struct Server {
    start: Instant,
    calls: Arc<Mutex<Vec<(u64, String)>>>,
}

impl Server {
    fn new() -> Self {
        let (start, calls) = (now(), Arc::default());
        Self { start, calls }
    }

    /// A service that answers each call as `answer` says for its host and its number.
    fn answering(
        &self,
        answer: fn(&str, usize) -> Result<Response<()>, InnerError>,
    ) -> impl Service<Request<()>, Response = Response<()>, Error = InnerError, Future: Send>
    + Clone
    + use<> {
        let this = self.clone();
        service_fn(move |request: Request<()>| {
            let host = request.uri().host().unwrap_or_default().to_owned();
            let mut calls = this.calls.lock().unwrap();
            let number = calls.iter().filter(|(_, called)| *called == host).count();
            let answer = answer(&host, number);
            calls.push((since(this.start), host));
            async move { answer }
        })
    }

    fn calls(&self, host: &str) -> Vec<u64> {
        let calls = self.calls.lock().unwrap();
        let of_host = calls.iter().filter(|(_, called)| called == host);
        of_host.map(|(at, _)| *at).collect()
    }
}

fn response(status: u16) -> Response<()> {
    Response::builder().status(status).body(()).unwrap()
}

fn get(host: &str) -> Request<()> {
    Request::get(format!("http://{host}/")).body(()).unwrap()
}

fn retry(cap: u32) -> Retry {
    let retry = Retry::new(RetryBudget::new(cap, Share::NONE));
    retry.with_backoff(ms(100)..=ms(100))
}

#[tokio::test(start_paused = true)]
async fn every_attempt_asks_the_limit_and_a_retry_after_holds_the_limit_of_its_key() {
    let server = Server::new();
    let inner = server.answering(|host, number| {
        let refused = Response::builder().status(429).header("retry-after", "3");
        match (host, number) {
            ("a", 0) => Ok(refused.body(()).unwrap()),
            ("b", 0) => Ok(response(502)),
            _ => Ok(response(200)),
        }
    });
    let hosts = Interval::every(ms(1_000)).keyed();
    let client = PaceLayer::by_key(hosts, host_key()).obeying().layer(inner);
    let client = RetryLayer::new(RetryPolicy::by_status(retry(9))).layer(client);
    let calls = ["a", "a", "b", "b"].map(|host| client.clone().oneshot(get(host)));
    for answer in join_all(calls).await {
        assert_eq!(answer.unwrap().status(), 200);
    }
    assert_eq!(server.calls("a"), [0, 3_000, 4_000]);
    // The second request of `b` had its turn before the retry.
    assert_eq!(server.calls("b"), [0, 1_000, 2_000]);
}

#[tokio::test(start_paused = true)]
async fn refusals_are_no_attempts_and_only_idempotent_requests_are_made_again_after_other_failures()
{
    for (method, statuses, calls) in [
        (Method::GET, [500, 502, 504, 200], 3),
        (Method::PUT, [429, 503, 500, 200], 4),
        (Method::POST, [500, 200, 200, 200], 1),
        (Method::POST, [429, 503, 200, 200], 3),
        (Method::GET, [404, 200, 200, 200], 1),
        (Method::DELETE, [0, 200, 200, 200], 2),
        (Method::POST, [0, 200, 200, 200], 1),
    ] {
        let made = Arc::new(Mutex::new(0));
        let inner = {
            let made = Arc::clone(&made);
            service_fn(move |_: Request<()>| {
                let mut made = made.lock().unwrap();
                *made += 1;
                let status = statuses[*made - 1];
                async move {
                    if status == 0 {
                        Err(InnerError)
                    } else {
                        Ok(response(status))
                    }
                }
            })
        };
        let start = now();
        let client = RetryLayer::new(RetryPolicy::by_status(retry(9))).layer(inner);
        let request = Request::builder().method(method).body(()).unwrap();
        let answer = client.oneshot(request).await;
        let last = statuses[calls - 1];
        assert_eq!(answer.map_or(0, |answer| answer.status().as_u16()), last);
        assert_eq!(*made.lock().unwrap(), calls);
        assert_eq!(since(start), 100 * (calls as u64 - 1));
    }
}

#[tokio::test(start_paused = true)]
async fn requests_share_the_budget_and_each_has_attempts_of_its_own() {
    let server = Server::new();
    let inner = server.answering(|host, _| {
        if host == "a" {
            Err(InnerError)
        } else {
            Ok(response(200))
        }
    });
    let budget = RetryBudget::new(3, Share::percent(50));
    let retry = Retry::new(budget.clone())
        .with_backoff(ms(100)..=ms(100))
        .with_attempts(3);
    let client = RetryLayer::new(RetryPolicy::by_status(retry)).layer(inner);
    let calls = (0..4).map(|_| client.clone().oneshot(get("a")));
    assert!(join_all(calls).await.iter().all(Result::is_err));
    assert_eq!(server.calls("a"), [0, 0, 0, 0, 100, 100, 100]);
    for left in [0, 1, 1, 2] {
        client.clone().oneshot(get("b")).await.unwrap();
        assert_eq!(budget.left(), left);
    }
    client.oneshot(get("a")).await.unwrap_err();
    assert_eq!(server.calls("a")[7..], [100, 200, 300]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_response_gives_its_permit_back_before_the_wait() {
    let server = Server::new();
    let inner = server.answering(|_, number| Ok(response(if number == 0 { 503 } else { 200 })));
    let inner = inner.map_response(|response: Response<()>| response.map(|()| String::new()));
    let permits = Permits::new(1);
    let client = ConcurrencyLayer::new(permits.clone()).layer(inner);
    let client = RetryLayer::new(RetryPolicy::by_status(retry(9))).layer(client);
    let call = client.oneshot(get("a"));
    let (answer, ()) = tokio::join!(call, async {
        tokio::task::yield_now().await;
        assert_eq!(permits.in_use(), 0);
    });
    assert_eq!(answer.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_for_60_s_sees_what_was_under_way_and_11_probes() {
    let server = Server::new();
    let start = server.start;
    let inner = service_fn(move |_: Request<()>| async move {
        sleep(50).await;
        let at = since(start);
        Ok::<_, Infallible>(response(if (5_000..65_000).contains(&at) {
            429
        } else {
            200
        }))
    });
    let refused = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&refused);
    let inner = inner.map_response(move |response: Response<()>| {
        *counted.lock().unwrap() += u32::from(response.status() == 429);
        response
    });
    let rule = HoldAndProbe::new(Rate::per_second(1), Rate::per_second(1_000));
    let rate = AdaptiveRate::new(rule.with_start(Rate::per_second(20)));
    let client = PaceLayer::new(rate).obeying().layer(inner);
    let budget = RetryBudget::new(100, Share::percent(10));
    let client = RetryLayer::new(RetryPolicy::by_status(Retry::new(budget))).layer(client);
    let calls = (0..1_000).map(|_| client.clone().oneshot(get("a")));
    for answer in join_all(calls).await {
        assert_eq!(answer.unwrap().status(), 200);
    }
    assert!(start.elapsed().as_secs() >= 65);
    // At 20 to 320 calls a second, calls of 50 ms.
    assert!(*refused.lock().unwrap() <= 16 + 11, "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_function_says_what_other_services_answer() {
    let retry = retry(9);
    let failure_of = |request: &u32, result: &Result<u32, &str>| match result {
        Err("later") => Some(Failure::Transient),
        Err(_) => Some(Failure::Final),
        Ok(answer) if answer < request => Some(Failure::Transient),
        Ok(_) => None,
    };
    let answers = Arc::new(Mutex::new(vec![Ok(5), Ok(3), Err("later")]));
    let inner = service_fn(move |_: u32| {
        let answer = answers.lock().unwrap().pop().unwrap();
        async move { answer }
    });
    let client = RetryLayer::new(RetryPolicy::new(retry, failure_of)).layer(inner);
    assert_eq!(client.oneshot(4).await, Ok(5));
}
