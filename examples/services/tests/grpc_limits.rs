//! The limits of the example on a real server, as real clients see them.

use std::process::Command;
use std::time::Duration;

use futures::future::join_all;
use h2::RecvStream;
use http::Response;
use http::request::Builder;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::{Code, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus::{NotServing, Serving};

#[expect(dead_code, reason = "a test needs a part of the program")]
#[path = "../src/bin/grpc_limits.rs"]
mod grpc_limits;

use grpc_limits::{Limits, Server, from, said};

const LIMITS: Limits = Limits {
    an_hour: 100,
    under_way: 1,
    waits: false,
};

/// For what does not come if there is a fault.
const LONG: Duration = Duration::from_secs(60);

impl Server {
    async fn with(limits: Limits) -> Self {
        Self::start(limits).await.unwrap()
    }

    /// Waits until there is a free permit.
    async fn has_room(&self) {
        let room = timeout(LONG, self.permits.acquire()).await;
        drop(room.expect("a permit comes back"));
    }

    /// Waits until no call waits for a permit.
    async fn has_no_queue(&self) {
        let empty = async {
            while self.permits.stats().waiting > 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(LONG, empty).await.expect("the queue empties");
    }
}

fn code<T>(answer: &Result<T, Status>) -> Code {
    answer.as_ref().err().map_or(Code::Ok, Status::code)
}

#[test]
fn the_program_prints_the_code_of_each_answer() {
    let program = Command::new(env!("CARGO_BIN_EXE_grpc_limits"));
    let output = { program }.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let codes = |line: &str| line.split_whitespace().nth(2).unwrap_or("").to_owned();
    let codes: Vec<_> = printed.lines().skip(1).map(codes).collect();
    let (ok, refused) = (
        "Ok",
        ["ResourceExhausted", "InvalidArgument", "Unavailable"],
    );
    let expected = [
        ok, ok, ok, refused[0], ok, refused[1], ok, ok, refused[2], ok, "10",
    ];
    assert_eq!(codes, expected, "{printed}");
}

#[tokio::test]
async fn a_refusal_is_a_status_with_the_wait_and_the_limit() {
    let server = Server::with(Limits {
        an_hour: 2,
        ..LIMITS
    })
    .await;
    let mut client = server.connect().await.unwrap();
    for left in ["1", "0"] {
        let passed = client.check(from("ann")).await;
        assert_eq!(said(&passed, "ratelimit-policy"), r#""calls";q=2;w=3600"#);
        let limit = format!(r#""calls";r={left};t="#);
        assert!(said(&passed, "ratelimit").starts_with(&limit), "{passed:?}");
        assert_eq!(said(&passed, "grpc-retry-pushback-ms"), "");
        server.has_room().await;
    }
    let refused = client.check(from("ann")).await;
    let pushback: u32 = said(&refused, "grpc-retry-pushback-ms").parse().unwrap();
    assert!((1..=3_600_000).contains(&pushback), "{pushback}");
    assert_eq!(said(&refused, "ratelimit-policy"), r#""calls";q=2;w=3600"#);
    let status = refused.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    let message = "rate limit exceeded (2 per 3600s), retry in ";
    assert!(status.message().starts_with(message), "{status}");
    assert_eq!(server.handled(), 2);
}

#[tokio::test]
async fn a_stream_is_refused_as_a_call_is() {
    let server = Server::with(Limits {
        an_hour: 1,
        ..LIMITS
    })
    .await;
    let mut client = server.connect().await.unwrap();
    let stream = client.watch(from("ann")).await.unwrap();
    assert_eq!(
        code(&client.watch(from("ann")).await),
        Code::ResourceExhausted
    );
    let full = client.watch(from("bob")).await;
    assert_eq!(said(&full, "grpc-retry-pushback-ms"), "1000");
    assert_eq!(code(&full), Code::Unavailable);
    assert_eq!(server.handled(), 1);
    drop(stream);
}

#[tokio::test]
async fn a_call_without_a_key_is_refused_for_good() {
    let server = Server::with(LIMITS).await;
    let mut client = server.connect().await.unwrap();
    let refused = client
        .check(tonic::Request::new(HealthCheckRequest::default()))
        .await;
    assert_eq!(said(&refused, "grpc-retry-pushback-ms"), "-1");
    assert_eq!(code(&refused), Code::InvalidArgument);
    assert_eq!(server.handled(), 0);
}

#[tokio::test]
async fn a_stream_is_under_way_until_its_trailers() {
    let mut server = Server::with(LIMITS).await;
    let mut client = server.connect().await.unwrap();
    let mut stream = client.watch(from("ann")).await.unwrap().into_inner();
    for (next, status) in [
        (Serving, ServingStatus::NotServing),
        (NotServing, ServingStatus::Serving),
    ] {
        let message = stream.message().await.unwrap().unwrap();
        assert_eq!(message.status(), next);
        assert_eq!(server.permits.in_use(), 1);
        assert_eq!(code(&client.check(from("bob")).await), Code::Unavailable);
        server.health.set_service_status("", status).await;
    }
    stream.message().await.unwrap().unwrap();
    server.health.clear_service_status("").await;
    assert!(stream.message().await.unwrap().is_none());
    assert!(stream.trailers().await.unwrap().is_some());
    // The permit was back before the trailers were sent.
    assert_eq!(server.permits.in_use(), 0);
}

#[tokio::test]
async fn a_stream_that_the_client_drops_gives_its_permit_back() {
    let server = Server::with(LIMITS).await;
    let mut client = server.connect().await.unwrap();
    for _ in 0..3 {
        let mut stream = client.watch(from("ann")).await.unwrap().into_inner();
        stream.message().await.unwrap().unwrap();
        assert_eq!(server.permits.in_use(), 1);
        drop(stream);
        server.has_room().await;
    }
    // With the whole connection.
    let mut other = server.connect().await.unwrap();
    let stream = other.watch(from("ann")).await.unwrap();
    assert_eq!(server.permits.in_use(), 1);
    drop((stream, other));
    server.has_room().await;
}

#[tokio::test]
async fn a_call_whose_deadline_is_over_leaves_the_queue_and_is_not_handled() {
    let server = Server::with(Limits {
        waits: true,
        ..LIMITS
    })
    .await;
    let mut client = server.connect().await.unwrap();
    let stream = client.watch(from("ann")).await.unwrap();

    let mut late = from("bob");
    late.set_timeout(Duration::from_millis(50));
    // As tonic reports a deadline.
    assert_eq!(code(&client.check(late).await), Code::Cancelled);
    server.has_no_queue().await;

    // The server watches the deadline, whatever the client does.
    let answer = raw(&server, |call| {
        call.header("x-api-key", "bob")
            .header("grpc-timeout", "50m")
    });
    assert_eq!(answer.await.headers()["grpc-status"], "1");
    server.has_no_queue().await;

    let mut queued = client.clone();
    let queued = tokio::spawn(async move { queued.check(from("bob")).await });
    drop(stream);
    assert_eq!(code(&queued.await.unwrap()), Code::Ok);
    assert_eq!(server.handled(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_on_several_connections_share_one_limit() {
    let limits = Limits {
        under_way: 1_000,
        ..LIMITS
    };
    let server = Server::with(limits).await;
    let clients = join_all((0..8).map(|_| server.connect())).await;
    let calls = clients.into_iter().flat_map(|client| {
        let client = client.unwrap();
        (0..25).map(move |_| {
            let mut client = client.clone();
            tokio::spawn(async move { code(&client.check(from("ann")).await) })
        })
    });
    let codes = join_all(calls).await.into_iter().map(Result::unwrap);
    let (passed, refused): (Vec<_>, Vec<_>) = codes.partition(|code| *code == Code::Ok);
    assert_eq!((passed.len(), server.handled()), (100, 100));
    assert_eq!(refused, [Code::ResourceExhausted; 100]);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_on_several_connections_share_the_permits() {
    let server = Server::with(Limits {
        under_way: 3,
        ..LIMITS
    })
    .await;
    let clients = join_all((0..5).map(|_| server.connect())).await;
    let streams = clients.into_iter().flat_map(|client| {
        let client = client.unwrap();
        (0..4).map(move |_| {
            let mut client = client.clone();
            tokio::spawn(async move { client.watch(from("ann")).await })
        })
    });
    let answers = join_all(streams).await.into_iter().map(Result::unwrap);
    let (held, refused): (Vec<_>, Vec<_>) = answers.partition(Result::is_ok);
    assert_eq!((held.len(), server.handled()), (3, 3));
    assert!(
        refused
            .iter()
            .all(|answer| code(answer) == Code::Unavailable)
    );
    drop(held);
    let all = timeout(LONG, server.permits.acquire_many(3)).await;
    assert!(all.expect("all permits come back").is_ok());
}

/// The answer to a call of `Check`, with the frames of HTTP/2 as they come.
async fn raw(server: &Server, with: impl FnOnce(Builder) -> Builder) -> Response<RecvStream> {
    let stream = TcpStream::connect(server.addr).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let call = http::Request::post(format!(
        "http://{}/grpc.health.v1.Health/Check",
        server.addr
    ));
    let call = call
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    let call = with(call).body(()).unwrap();
    let (answer, mut body) = client
        .ready()
        .await
        .unwrap()
        .send_request(call, false)
        .unwrap();
    // A message of 0 bytes.
    body.send_data(vec![0; 5].into(), true).unwrap();
    answer.await.unwrap()
}

#[tokio::test]
async fn a_refusal_is_trailers_only() {
    let server = Server::with(Limits {
        an_hour: 1,
        ..LIMITS
    })
    .await;
    let mut client = server.connect().await.unwrap();
    let passed = raw(&server, |call| call.header("x-api-key", "ann")).await;
    assert!(!passed.body().is_end_stream());
    assert!(!passed.headers().contains_key("grpc-status"));
    let mut body = passed.into_body();
    while body.data().await.is_some() {}
    let trailers = body.trailers().await.unwrap().unwrap();
    assert_eq!(trailers["grpc-status"], "0");
    server.has_room().await;

    let stream = client.watch(from("bob")).await.unwrap();
    for (key, status) in [(Some("ann"), "8"), (Some("carol"), "14"), (None, "3")] {
        let refused = raw(&server, |call| match key {
            Some(key) => call.header("x-api-key", key),
            None => call,
        });
        let refused = refused.await;
        // The frame of the headers ended the stream.
        assert!(refused.body().is_end_stream(), "{status}");
        assert_eq!(refused.status(), 200);
        let headers = refused.headers();
        assert_eq!(headers["content-type"], "application/grpc");
        assert_eq!(headers["grpc-status"], status);
        for name in ["grpc-message", "grpc-retry-pushback-ms"] {
            assert!(headers.contains_key(name), "{status}: no {name}");
        }
        assert!(!headers.contains_key("content-length"), "{status}");
    }
    drop(stream);
}
