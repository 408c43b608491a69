//! The port for operators: metrics, probes, clients, events, the live page, and changes.
//!
//! It speaks HTTP/1.1 only. Nothing here is reachable through the public port.

mod access;
mod answer;
mod change;
mod events;
mod metrics;
mod page;
mod process;
mod ready;
mod stall;
mod view;

use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::state::Sidecar;

use self::answer::{Answer, problem};
use self::events::Events;
use self::ready::Readiness;
use self::stall::Stall;
use self::view::View;

/// Until the head of a request is complete, and how long a peer may take nothing of its answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections at once. More wait in the queue of the listener.
pub(crate) const CONNECTIONS: usize = 256;
/// Readers of `/events` at once.
const SUBSCRIBERS: usize = 32;
const HEAD_BYTES: usize = 16 * 1024;

/// The port for operators of one sidecar.
#[derive(Debug)]
struct Admin {
    sidecar: Arc<Sidecar>,
    readiness: Readiness,
    subscribers: Arc<Semaphore>,
}

/// Answers operators on `listener` for ever. It ends when it is dropped, and the connections with the runtime.
pub(crate) async fn serve(listener: TcpListener, sidecar: Arc<Sidecar>) {
    let admin = Arc::new(Admin {
        sidecar,
        readiness: Readiness::default(),
        subscribers: Arc::new(Semaphore::new(SUBSCRIBERS)),
    });
    let room = Arc::new(Semaphore::new(admin.sidecar.places.admin));
    while let Ok(permit) = Arc::clone(&room).acquire_owned().await {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "the admin port cannot accept a connection");
                // Out of file descriptors, most likely. Some will be free soon.
                let _ = timeout(Duration::from_millis(100), pending::<()>()).await;
                continue;
            }
        };
        let admin = Arc::clone(&admin);
        tokio::spawn(async move {
            connection(&admin, stream, peer).await;
            drop(permit);
        });
    }
}

async fn connection(admin: &Admin, stream: TcpStream, peer: SocketAddr) {
    let service = service_fn(|request| async move {
        let answer = admin.answer(peer, request).await;
        Ok::<_, Infallible>(answer::hardened(answer))
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_header_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(Stall::new(stream, PATIENCE)), service);
    if let Err(error) = served.await {
        tracing::debug!(%error, %peer, "a connection to the admin port broke");
    }
}

impl Admin {
    async fn answer(&self, peer: SocketAddr, request: Request<Incoming>) -> Answer {
        if let Err(reason) = access::check_host(peer, request.headers()) {
            return problem(StatusCode::FORBIDDEN, reason);
        }
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        match (request.uri().path(), is_read) {
            ("/", true) => page::answer(),
            ("/healthz", true) => answer::text("ok\n"),
            ("/readyz", true) => self.ready().await,
            ("/metrics", true) => metrics::answer(&self.sidecar, request.headers()),
            ("/clients", true) => answer::json(&View::of(&self.sidecar)),
            ("/events", true) => self.events(),
            ("/" | "/healthz" | "/readyz" | "/metrics" | "/clients" | "/events", false) => {
                answer::not_allowed("GET, HEAD")
            }
            ("/mode" | "/reload", _) if request.method() != Method::POST => {
                answer::not_allowed("POST")
            }
            ("/mode" | "/reload", _) => self.change(peer, request).await,
            _ => {
                let detail = "there is no such path on the admin port";
                problem(StatusCode::NOT_FOUND, detail)
            }
        }
    }

    async fn ready(&self) -> Answer {
        if self.sidecar.is_draining() {
            return problem(StatusCode::SERVICE_UNAVAILABLE, "the sidecar is draining");
        }
        match self.readiness.check(&self.sidecar.config()).await {
            Ok(()) => answer::text("ready\n"),
            Err(reason) => problem(StatusCode::SERVICE_UNAVAILABLE, &reason),
        }
    }

    fn events(&self) -> Answer {
        if self.sidecar.is_draining() {
            return problem(StatusCode::SERVICE_UNAVAILABLE, "the sidecar is draining");
        }
        if let Ok(permit) = Arc::clone(&self.subscribers).try_acquire_owned() {
            answer::events(Events::new(Arc::clone(&self.sidecar), permit))
        } else {
            let detail = format!("there are {SUBSCRIBERS} readers of /events already");
            problem(StatusCode::SERVICE_UNAVAILABLE, &detail)
        }
    }

    async fn change(&self, peer: SocketAddr, request: Request<Incoming>) -> Answer {
        let config = self.sidecar.config();
        let token_file = config.admin_token_file.as_deref();
        if let Err(reason) = access::check_change(peer, request.headers(), token_file).await {
            return problem(StatusCode::FORBIDDEN, reason);
        }
        tracing::info!(%peer, path = request.uri().path(), "an operator asks for a change");
        match request.uri().path() {
            "/mode" => change::mode(&self.sidecar, request).await,
            _ => change::reload(&self.sidecar),
        }
    }
}

#[cfg(test)]
mod tests {
    use paceline::time::Clock;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use crate::config::{Config, Source, Upstream};

    use super::*;

    /// A connection to the admin port of a sidecar.
    async fn connected() -> TcpStream {
        let upstream = Upstream {
            authority: "127.0.0.1:1".parse().unwrap(),
            is_h2c: false,
        };
        let address = "127.0.0.1:0".parse().unwrap();
        let config = Config::new(address, upstream, 40, Duration::from_secs(1));
        let sidecar = Sidecar::new(config, Source::default()).unwrap();
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, Arc::new(sidecar)));
        TcpStream::connect(address).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_head_is_closed_after_ten_seconds() {
        for begun in ["", "G", "GET /healthz HTTP/1.1\r\nhost: localhost\r\n"] {
            let mut stream = connected().await;
            let mut clock = Clock::new();
            let start = clock.now();
            stream.write_all(begun.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.unwrap();
            assert_eq!(clock.now().since(start).as_secs(), 10, "{begun:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_without_its_body_is_refused_after_ten_seconds() {
        let mut stream = connected().await;
        let head = b"POST /mode HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 20\r\n\r\n{\"mode\"";
        stream.write_all(head).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 408");
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_does_not_read_is_closed() {
        let mut stream = connected().await;
        let request = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n";
        loop {
            let written = timeout(6 * PATIENCE, stream.write_all(request)).await;
            if written.expect("it is still open").is_err() {
                break;
            }
        }
    }
}
