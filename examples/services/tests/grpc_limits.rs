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
use tonic_health::pb::health_check_response::ServingStatus::{NotServing, Serving};

#[expect(dead_code, reason = "a test needs a part of the program")]
#[path = "../src/bin/grpc_limits.rs"]
mod grpc_limits;

use grpc_limits::{Limits, Server, from, said};

const fn limits(an_hour: u32, under_way: u32) -> Limits {
    Limits {
        an_hour,
        under_way,
        waits: false,
    }
}

/// One call is under way at a time, and the hour is long enough.
const ONE: Limits = limits(100, 1);

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
    let expected = "Ok Ok Ok ResourceExhausted Ok InvalidArgument Ok Ok Unavailable Ok 10";
    assert_eq!(codes.join(" "), expected, "{printed}");
}

#[tokio::test]
async fn a_refusal_is_a_status_with_the_wait_and_the_limit() {
    let server = Server::with(limits(2, 1)).await;
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
async fn a_stream_is_under_way_until_its_trailers() {
    let mut server = Server::with(ONE).await;
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
    let server = Server::with(ONE).await;
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
    let server = Server::with(Limits { waits: true, ..ONE }).await;
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
async fn streams_on_several_connections_share_the_limit_and_the_permits() {
    let server = Server::with(limits(15, 3)).await;
    let clients = join_all((0..5).map(|_| server.connect())).await;
    let streams = clients.into_iter().flat_map(|client| {
        let client = client.unwrap();
        (0..4).map(move |_| {
            let mut client = client.clone();
            tokio::spawn(async move { client.watch(from("ann")).await })
        })
    });
    let answers = join_all(streams).await.into_iter().map(Result::unwrap);
    let answers: Vec<_> = answers.collect();
    let counts = [Code::Ok, Code::Unavailable, Code::ResourceExhausted]
        .map(|of| answers.iter().filter(|answer| code(answer) == of).count());
    assert_eq!((counts, server.handled()), ([3, 12, 5], 3));
    drop(answers);
    let all = timeout(LONG, server.permits.acquire_many(3)).await;
    assert!(all.expect("all permits come back").is_ok());
}

/// The answer to a call of `Check`, with the frames of HTTP/2 as they come.
async fn raw(server: &Server, with: impl FnOnce(Builder) -> Builder) -> Response<RecvStream> {
    let stream = TcpStream::connect(server.addr).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let uri = format!("http://{}/grpc.health.v1.Health/Check", server.addr);
    let call = http::Request::post(uri).header("content-type", "application/grpc");
    let call = with(call.header("te", "trailers")).body(()).unwrap();
    let mut client = client.ready().await.unwrap();
    let (answer, mut body) = client.send_request(call, false).unwrap();
    // A message of 0 bytes.
    body.send_data(vec![0; 5].into(), true).unwrap();
    answer.await.unwrap()
}

#[tokio::test]
async fn a_refusal_is_trailers_only() {
    let server = Server::with(limits(1, 1)).await;
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
    for (name, key, status, pushback) in [
        ("x-api-key", "ann", "8", None),
        ("x-api-key", "carol", "14", Some("1000")),
        (
            "x-other",
            "without a key it is refused for good",
            "3",
            Some("-1"),
        ),
    ] {
        let refused = raw(&server, |call| call.header(name, key)).await;
        // The frame of the headers ended the stream.
        assert!(refused.body().is_end_stream(), "{status}");
        assert_eq!(refused.status(), 200);
        let headers = refused.headers();
        assert_eq!(headers["content-type"], "application/grpc");
        assert_eq!(headers["grpc-status"], status);
        assert!(headers.contains_key("grpc-message"), "{status}");
        let said = &headers["grpc-retry-pushback-ms"];
        assert!(pushback.is_none_or(|pushback| said == pushback), "{said:?}");
        assert!(!headers.contains_key("content-length"), "{status}");
    }
    assert_eq!(server.handled(), 2);
    drop(stream);
}
