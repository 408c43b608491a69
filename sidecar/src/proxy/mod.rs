//! One request on its way to the upstream, and the response on its way back.
//!
//! [`Proxy::answer`] is the chain; each step is a file.

mod body;
mod check;
mod client;
mod failure;
mod fields;
mod io;
mod patience;
mod pool;
mod problem;
mod tunnel;
mod upload;
mod upstream;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use http::{Request, Response, StatusCode, Version};
use hyper::body::Incoming;

use crate::config::Config;
use crate::state::Sidecar;

use client::Clients;
use problem::Problem;
use upstream::Upstream;

pub(crate) use body::Body;

/// What the requests of one thread share: the pool of its connections to the upstream.
#[derive(Debug)]
pub(crate) struct Proxy {
    sidecar: Arc<Sidecar>,
    upstream: Upstream,
    /// What is made of the configuration, until that is replaced.
    clients: Mutex<Arc<Clients>>,
}

impl Proxy {
    #[must_use]
    pub(crate) fn new(sidecar: Arc<Sidecar>) -> Self {
        let config = sidecar.config();
        Self {
            upstream: Upstream::new(&config.upstream),
            clients: Mutex::new(Arc::new(Clients::new(config))),
            sidecar,
        }
    }

    /// Decides on the request, forwards it, and returns the response, whose body is streamed.
    pub(crate) async fn answer(
        &self,
        peer: SocketAddr,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let is_grpc = problem::is_grpc(request.headers());
        match self.forward(peer, request).await {
            Ok(response) => response,
            Err(problem) => problem.response(is_grpc),
        }
    }

    async fn forward(
        &self,
        peer: SocketAddr,
        mut request: Request<Incoming>,
    ) -> Result<Response<Body>, Problem> {
        let counts = &self.sidecar.counts;
        let config = self.sidecar.config();

        // Nothing of a request that could be read in two ways reaches the upstream.
        check::request(&request).inspect_err(|_| count(&counts.bad_requests))?;
        // The client, before the fields that `Connection` names are dropped.
        let clients = self.clients(&config);
        let _client =
            clients
                .client(peer, &mut request)
                .inspect_err(|problem| match problem.status {
                    StatusCode::BAD_REQUEST => count(&counts.bad_requests),
                    _ => count(&counts.anonymous),
                })?;

        let client_version = request.version();
        let upgrading = fields::for_upstream(&mut request, peer, &config);
        let downgraded = upgrading
            .is_some()
            .then(|| hyper::upgrade::on(&mut request));

        let answered = self
            .upstream
            .send(request, &config.timeouts, counts)
            .await
            .map_err(|failure| failure.problem(counts, &config.upstream.authority))?;

        let mut answered = answered;
        let response = &mut answered.response;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let connections = tunnel::Connections {
                client: downgraded,
                upstream: hyper::upgrade::on(response),
            };
            return tunnel::open(&self.sidecar, upgrading, connections, answered.response)
                .map_err(|failure| failure.problem(counts, &config.upstream.authority));
        }
        fields::for_client(response);
        *response.version_mut() = match client_version {
            Version::HTTP_2 => Version::HTTP_2,
            _ => Version::HTTP_11,
        };
        Ok(answered.streamed(config.timeouts.body))
    }

    /// What is made of the configuration. A reload makes it anew.
    fn clients(&self, config: &Arc<Config>) -> Arc<Clients> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if !clients.are_of(config) {
            *clients = Arc::new(Clients::new(Arc::clone(config)));
        }
        Arc::clone(&clients)
    }
}

fn count(counter: &std::sync::atomic::AtomicU64) {
    counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
}
