//! The port for operators: metrics, probes, clients, events, the live page, and changes.
//!
//! It speaks HTTP/1.1 only. Nothing here is reachable through the public port.

mod access;
mod answer;
mod change;
mod events;
mod metrics;
mod page;
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
const CONNECTIONS: usize = 256;
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
    let room = Arc::new(Semaphore::new(CONNECTIONS));
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
        let path = request.uri().path();
        let allowed: &[Method] = match path {
            "/" | "/healthz" | "/readyz" | "/metrics" | "/clients" | "/events" => {
                &[Method::GET, Method::HEAD]
            }
            "/mode" | "/reload" => &[Method::POST],
            _ => {
                return problem(
                    StatusCode::NOT_FOUND,
                    "there is no such path on the admin port",
                );
            }
        };
        if !allowed.contains(request.method()) {
            return answer::not_allowed(allowed);
        }
        match path {
            "/healthz" => answer::text("ok\n"),
            "/readyz" => self.ready().await,
            "/metrics" => metrics::answer(&self.sidecar, request.headers()),
            "/clients" => answer::json(&View::of(&self.sidecar)),
            "/events" => self.events(),
            "/mode" | "/reload" => self.change(peer, request).await,
            _ => page::answer(),
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
        match request.uri().path() {
            "/mode" => change::mode(&self.sidecar, request).await,
            _ => change::reload(&self.sidecar),
        }
    }
}
