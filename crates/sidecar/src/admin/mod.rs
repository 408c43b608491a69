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
#[cfg(test)]
mod tests;
mod view;

use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, yield_now};
use tokio::time::timeout;
use tokio_io_timeout::TimeoutWriter;

use crate::state::Sidecar;

use self::answer::{Answer, problem};
use self::events::Events;
use self::ready::Readiness;
pub(crate) use self::view::View;

/// Until the head of a request is complete.
const HEAD_WITHIN: Duration = Duration::from_secs(2);
/// Until the body of a request is complete, and how long a peer may take nothing of its answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections at once, if there are descriptors for them. For one more the oldest without a place is closed.
pub(crate) const CONNECTIONS: usize = 256;
/// Readers of `/events` at once.
const SUBSCRIBERS: usize = 32;
const HEAD_BYTES: usize = 16 * 1024;

/// The port for operators of one sidecar.
#[derive(Debug)]
struct Admin {
    sidecar: Arc<Sidecar>,
    readiness: Readiness,
    places: Semaphore,
    subscribers: Arc<Semaphore>,
}

/// A connection as the port sees it.
struct Connection {
    task: AbortHandle,
    /// Whether its request has a place. Then it is not closed for another connection.
    has_place: Arc<AtomicBool>,
}

/// Answers operators on `listener` for ever. It ends when it is dropped, and the connections with the runtime.
pub(crate) async fn serve(listener: TcpListener, sidecar: Arc<Sidecar>) {
    let most = sidecar.places.admin;
    let admin = Arc::new(Admin {
        sidecar,
        readiness: Readiness::default(),
        places: Semaphore::new(places(most)),
        subscribers: Arc::new(Semaphore::new(SUBSCRIBERS)),
    });
    // The oldest first.
    let mut connections = Vec::<Connection>::new();
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "the admin port cannot accept a connection");
                // Out of file descriptors, most likely. Some will be free soon.
                let _ = timeout(Duration::from_millis(100), pending::<()>()).await;
                continue;
            }
        };
        connections.retain(|each| !each.task.is_finished());
        if connections.len() >= most {
            close_oldest(&mut connections);
        }
        let has_place = Arc::<AtomicBool>::default();
        let (admin, place) = (Arc::clone(&admin), Arc::clone(&has_place));
        let task = tokio::spawn(async move { connection(&admin, stream, peer, &place).await });
        let task = task.abort_handle();
        connections.push(Connection { task, has_place });
        // A connection reads what has come before it can be the oldest, also while many are accepted.
        yield_now().await;
    }
}

/// How many requests may be under way at once that can last. The other connections are left to probes.
const fn places(connections: usize) -> usize {
    connections * 3 / 4
}

/// Closes the oldest connection without a place. There is one, since there are fewer places than connections.
fn close_oldest(connections: &mut Vec<Connection>) {
    let mut all = connections.iter();
    if let Some(oldest) = all.position(|each| !each.has_place.load(Ordering::Relaxed)) {
        connections.remove(oldest).task.abort();
    }
}

/// Answers the request of a connection. It has only one: between two a client could not know whether its connection is still open.
async fn connection(admin: &Admin, stream: TcpStream, peer: SocketAddr, has_place: &AtomicBool) {
    // Until the answer is written.
    let place = OnceLock::new();
    let place = &place;
    let service = service_fn(|request: Request<Incoming>| async move {
        let is_probe = matches!(request.uri().path(), "/healthz" | "/readyz");
        let answer = if is_probe {
            admin.answer(peer, request).await
        } else if let Ok(permit) = admin.places.try_acquire() {
            let _ = place.set(permit);
            has_place.store(true, Ordering::Relaxed);
            admin.answer(peer, request).await
        } else {
            let detail = "there are too many requests to the admin port already";
            problem(StatusCode::SERVICE_UNAVAILABLE, detail)
        };
        Ok::<_, Infallible>(answer::hardened(answer))
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .keep_alive(false)
        .max_header_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(with_patience(stream)), service);
    if let Err(error) = served.await {
        tracing::debug!(%error, %peer, "a connection to the admin port broke");
    }
}

/// A connection on which a write that makes no progress for some time fails. A peer that does not read `/events` would keep its
/// connection for ever.
fn with_patience(stream: TcpStream) -> Pin<Box<TimeoutWriter<TcpStream>>> {
    let mut stream = TimeoutWriter::new(stream);
    stream.set_timeout(Some(PATIENCE));
    Box::pin(stream)
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
            _ => change::reload(&self.sidecar, request).await,
        }
    }
}
