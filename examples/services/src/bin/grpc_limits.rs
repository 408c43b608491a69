//! A gRPC server with a limit for each API key, and a bound on the calls under way.
//!
//! `cargo run -p services --bin grpc_limits` starts it and a client, and prints the answers.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use paceline::concurrency::Permits;
use paceline::limiter::KeyedAt;
use paceline::policy::FixedWindow;
use paceline::prelude::*;
use paceline_tower::{Answers, BadKey, ConcurrencyLayer, EnforceLayer, For, header_key};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::server::{HealthReporter, health_reporter};
use tower::util::MapRequestLayer;

const API_KEY: &str = "x-api-key";

/// How many calls pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// In an hour, for each API key.
    pub(crate) an_hour: u32,
    /// Under way at once, for all keys together.
    pub(crate) under_way: u32,
    /// Whether a call waits until fewer are under way. Else it is refused.
    pub(crate) waits: bool,
}

/// A limit for each API key. A call without one is refused, where [`For::header`] would let it pass.
fn by_api_key(an_hour: u32) -> For<http::Request<Body>, KeyedAt<String, FixedWindow>> {
    let users = FixedWindow::new(an_hour, Duration::from_secs(3_600)).keyed();
    let key = header_key(API_KEY);
    For::each(move |call| {
        let key = key(call).ok_or(BadKey::in_header(API_KEY))?;
        Ok(Some(users.at(key)))
    })
}

/// The health service of gRPC behind limits, on a free port of this machine. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    pub(crate) health: HealthReporter,
    pub(crate) permits: Permits,
    /// Counted behind the limits.
    handled: Arc<AtomicU32>,
    serving: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(limits: Limits) -> Result<Self, Box<dyn Error>> {
        let by_user = EnforceLayer::with_terms(by_api_key(limits.an_hour));
        let answers = Answers::new("calls").with_success_headers(true);
        let by_user = by_user.answering(answers.with_body(|text| Body::new(text).into()));

        // A stream is under way until its trailers are sent.
        let permits = Permits::new(limits.under_way);
        let at_once = ConcurrencyLayer::new(permits.clone());
        let at_once = if limits.waits {
            at_once
        } else {
            at_once.at_once()
        };
        let at_once = at_once.answering(Answers::new("under-way").with_body(Body::new));

        let handled = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&handled);
        let counting = MapRequestLayer::new(move |call: http::Request<Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            call
        });

        let (health, service) = health_reporter();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        // The first layer is the outermost: a call over its quota takes no permit.
        let server = tonic::transport::Server::builder()
            .layer(by_user)
            .layer(at_once)
            .layer(counting)
            .add_service(service)
            .serve_with_incoming(TcpIncoming::from(listener));
        let serving = tokio::spawn(async {
            if let Err(error) = server.await {
                eprintln!("grpc_limits: {error}");
            }
        });
        Ok(Self {
            addr,
            health,
            permits,
            handled,
            serving,
        })
    }

    /// A client with a connection of its own.
    pub(crate) async fn connect(&self) -> Result<HealthClient<Channel>, tonic::transport::Error> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.addr))?;
        Ok(HealthClient::new(endpoint.connect().await?))
    }

    /// How many calls have come through the limits.
    pub(crate) fn handled(&self) -> u32 {
        self.handled.load(Ordering::Relaxed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A call with this API key.
pub(crate) fn from(key: &'static str) -> Request<HealthCheckRequest> {
    let mut call = Request::new(HealthCheckRequest::default());
    let key = tonic::metadata::MetadataValue::from_static(key);
    call.metadata_mut().insert(API_KEY, key);
    call
}

/// What the server wrote in this header of its answer.
pub(crate) fn said<'a, T>(answer: &'a Result<Response<T>, Status>, name: &str) -> &'a str {
    let metadata = match answer {
        Ok(response) => response.metadata(),
        Err(status) => status.metadata(),
    };
    let value = metadata.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or("")
}

/// Prints an answer, and checks its code.
fn report<T>(call: &str, answer: &Result<Response<T>, Status>, expected: Code) {
    let (code, message) = match answer {
        Ok(_) => (Code::Ok, ""),
        Err(status) => (status.code(), status.message()),
    };
    let left = said(answer, "ratelimit");
    let pushback = said(answer, "grpc-retry-pushback-ms");
    println!(
        "{call:12} {:18} {left:21} {pushback:>8}  {message}",
        format!("{code:?}")
    );
    assert_eq!(code, expected, "{call}");
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut server = Server::start(Limits {
        an_hour: 3,
        under_way: 2,
        waits: false,
    })
    .await?;
    let mut client = server.connect().await?;

    println!(
        "{:12} {:18} {:21} {:>8}  message",
        "call", "code", "ratelimit", "pushback"
    );
    for _ in 0..3 {
        report("ann: Check", &client.check(from("ann")).await, Code::Ok);
    }
    let refused = client.check(from("ann")).await;
    report("ann: Check", &refused, Code::ResourceExhausted);
    report("bob: Check", &client.check(from("bob")).await, Code::Ok);
    let without = Request::new(HealthCheckRequest::default());
    report(
        "?: Check",
        &client.check(without).await,
        Code::InvalidArgument,
    );

    let (bob, carol) = (
        client.watch(from("bob")).await,
        client.watch(from("carol")).await,
    );
    report("bob: Watch", &bob, Code::Ok);
    report("carol: Watch", &carol, Code::Ok);
    report(
        "dave: Check",
        &client.check(from("dave")).await,
        Code::Unavailable,
    );
    assert_eq!(server.permits.in_use(), 2);

    // The server ends both streams, so there is room again.
    server.health.clear_service_status("").await;
    server
        .health
        .set_service_status("", tonic_health::ServingStatus::Serving)
        .await;
    for stream in [bob?, carol?] {
        let mut stream = stream.into_inner();
        while stream.message().await?.is_some() {}
    }
    report("dave: Check", &client.check(from("dave")).await, Code::Ok);
    println!("{} of 10 calls came through the limits", server.handled());
    assert_eq!(server.handled(), 7);
    Ok(())
}
