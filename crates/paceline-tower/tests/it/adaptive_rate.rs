//! A rate that follows the responses.

use std::convert::Infallible;
use std::future::{pending, ready};
use std::sync::{Arc, Mutex};

use ::tower::{Layer, Service, ServiceExt, service_fn};
use futures::FutureExt;
use futures::future::join_all;
use http::{Request, Response};
use paceline::limiter::{AdaptiveRate, CallOutcome, HoldAndProbe, Observed, PolicyExt, RateRule};
use paceline::policy::SlidingLog;
use paceline::time::{Rate, Tick};
use paceline_tower::{EnforceLayer, FeedbackLayer, PaceLayer};
use testkit::probe::service::InnerError;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::timed::{ms, sleep};

fn get() -> Request<()> {
    Request::new(())
}

fn response(status: u16) -> Response<()> {
    Response::builder().status(status).body(()).unwrap()
}

fn rate(start: u32) -> AdaptiveRate<HoldAndProbe> {
    let rule = HoldAndProbe::new(Rate::per_second(1), Rate::per_second(1_000));
    AdaptiveRate::new(rule.with_start(Rate::per_second(start)))
}

/// Remembers the outcomes.
#[derive(Clone, Default)]
struct Recorded(Arc<Mutex<Vec<CallOutcome>>>);

impl RateRule for Recorded {
    fn observe(&mut self, _: Tick, _: Tick, outcome: CallOutcome) {
        self.0.lock().unwrap().push(outcome);
    }

    fn rate(&self, _: Tick) -> f64 {
        1_000.0
    }
}

#[tokio::test(start_paused = true)]
async fn a_429_and_a_503_are_refusals_and_a_failure_says_nothing() {
    let rule = Recorded::default();
    let client = service_fn(|request: Request<()>| async move {
        match request.uri().path().trim_start_matches('/').parse() {
            Ok(1) => pending().await,
            Ok(status) => Ok(response(status)),
            Err(_) => Err(InnerError),
        }
    });
    let rate = Observed::new(
        AdaptiveRate::new(rule.clone()),
        |_: paceline::limiter::Event| (),
    );
    let client = PaceLayer::new(rate).obeying().layer(client);
    for path in ["200", "404", "429", "503", "500", "none", "1"] {
        let request = Request::get(format!("/{path}")).body(()).unwrap();
        let call = client.clone().oneshot(request);
        let _ = tokio::time::timeout(ms(100), call).await;
    }
    let refused = CallOutcome::Refused { retry_after: None };
    let expected = [
        CallOutcome::Accepted,
        CallOutcome::Accepted,
        refused,
        refused,
        CallOutcome::Ignored,
        CallOutcome::Ignored,
        CallOutcome::Ignored,
    ];
    assert_eq!(*rule.0.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn after_a_refusal_one_request_is_under_way_at_a_time() {
    let now_and_most = Arc::new(Mutex::new((0, 0)));
    let seen = Arc::clone(&now_and_most);
    let client = service_fn(move |_: Request<()>| {
        let seen = Arc::clone(&seen);
        async move {
            {
                let (now, most) = &mut *seen.lock().unwrap();
                *now += 1;
                *most = (*now).max(*most);
            }
            sleep(5_000).await;
            seen.lock().unwrap().0 -= 1;
            Ok::<_, Infallible>(response(503))
        }
    });
    let rate = rate(100);
    rate.call().await.refused(None);
    let client = PaceLayer::new(rate).obeying().layer(client);
    let calls = (0..5).map(|_| client.clone().oneshot(get()));
    assert_eq!(join_all(calls).await.len(), 5);
    assert_eq!(now_and_most.lock().unwrap().1, 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_gives_its_turn_to_the_next() {
    let rate = rate(100);
    rate.call().await.refused(None);
    let client = PaceLayer::new(rate)
        .obeying()
        .layer(service_fn(|_: Request<()>| {
            pending::<Result<Response<()>, Infallible>>()
        }));
    for _ in 0..3 {
        let call = tokio::time::timeout(ms(2_000), client.clone().oneshot(get()));
        assert!(call.await.is_err());
    }
    let last = client.clone().oneshot(get());
    assert!(last.now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_a_service_follows_its_health() {
    let database = SlidingLog::new(20, ms(1_000)).shared();
    let seen = database.clone();
    let service = service_fn(move |_: Request<()>| {
        let status = if database.try_acquire(1).is_pass() {
            200
        } else {
            503
        };
        ready(Ok::<_, Infallible>(response(status)))
    });
    let rate = rate(1_000);
    let service = FeedbackLayer::new(rate.clone()).layer(service);
    let mut service = EnforceLayer::new(rate.clone()).layer(service);
    let mut refused = 0;
    for _ in 0..50_000 {
        sleep(1).await;
        refused += u32::from(service.ready().await.unwrap().call(get()).await.is_err());
    }
    assert!(seen.stats().refused < 20, "{:?}", seen.stats());
    assert!(seen.stats().passed > 850, "{:?}", seen.stats());
    assert!(refused > 48_000);
}

/// Answers each request on its connections, with 429 above 40 in any second.
async fn serve(listener: TcpListener) {
    let limit = SlidingLog::new(40, ms(1_000)).shared();
    while let Ok((mut connection, _)) = listener.accept().await {
        let limit = limit.clone();
        tokio::spawn(async move {
            let mut head = Vec::new();
            while connection.read_buf(&mut head).await.unwrap_or(0) > 0 {
                if head.ends_with(b"\r\n\r\n") {
                    let status = if limit.try_acquire(1).is_pass() {
                        "200 OK"
                    } else {
                        "429 Too Many Requests"
                    };
                    let answer = format!(
                        "HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                    );
                    return connection.write_all(answer.as_bytes()).await;
                }
            }
            Ok(())
        });
    }
}

/// On the real clock. On a slow machine there are fewer refusals, and never more.
#[tokio::test]
async fn a_client_of_a_real_server_is_hardly_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(serve(listener));
    let client = service_fn(move |_: Request<()>| async move {
        let mut connection = TcpStream::connect(address).await?;
        connection
            .write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await?;
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        Ok::<_, std::io::Error>(response(status))
    });
    let rate = rate(1_000);
    let client = PaceLayer::new(rate.clone()).obeying().layer(client);
    let mut refused = 0;
    for _ in 0..200 {
        let response = client.clone().oneshot(get()).await.unwrap();
        refused += u32::from(response.status() == 429);
    }
    assert!(refused <= 20, "{refused} of 200");
    assert!(rate.calls_per_second() < 1_000.0);
    server.abort();
}
