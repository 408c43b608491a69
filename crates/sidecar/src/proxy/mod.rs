//! One request on its way to the upstream, and the response on its way back.
//!
//! [`Proxy::answer`] is the chain; each step is a file.

mod body;
mod check;
mod client;
mod failure;
mod fields;
mod gate;
mod h2c;
mod http1;
mod limit;
mod patience;
mod problem;
mod refused;
mod times;
mod tunnel;
mod upload;
mod upstream;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderValue, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use paceline::limiter::Status;
use paceline_tower::ProblemFormat;
use tokio::time::Instant;

use crate::config::{Client, Config, Mode};
use crate::state::Sidecar;

use client::Clients;
use failure::Failure;
use gate::Admitted;
use limit::{Verdict, Written};
use problem::Problem;
use upload::Upload;
use upstream::Upstream;

pub(crate) use body::{Body, Polled};
pub(crate) use check::FramedTwice;
pub(crate) use client::Peer;
pub(crate) use gate::Gate;
pub(crate) use http1::{FREE as FREE_BUFFERS, LARGE, SMALL};
pub(crate) use limit::{Cycle, Limit};
pub(crate) use refused::Refuser;
pub(crate) use times::{Histogram, Times};

/// What the requests of one thread share: the pool of its connections to the upstream.
pub(crate) struct Proxy {
    sidecar: Arc<Sidecar>,
    upstream: Upstream,
    /// The host of the upstream.
    host: HeaderValue,
    /// What is made of the configuration, until that is replaced.
    clients: RefCell<Rc<Clients>>,
    written: RefCell<Written>,
}

impl Proxy {
    #[must_use]
    pub(crate) fn new(sidecar: Arc<Sidecar>) -> Self {
        let config = sidecar.config();
        Self {
            upstream: Upstream::new(&config.upstream),
            host: HeaderValue::try_from(config.upstream.authority.as_str())
                .expect("an authority is printable"),
            clients: RefCell::new(Rc::new(Clients::new(config))),
            written: RefCell::default(),
            sidecar,
        }
    }

    /// Decides on the request, forwards it, and returns the response, whose body is streamed.
    pub(crate) fn answer<'a>(
        &'a self,
        peer: &'a Peer,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Body>> + use<'a> {
        let format = ProblemFormat::of(request.method(), request.headers());
        let version = request.version();
        let config = self.sidecar.config();
        // Boxed: it is moved often, and what is large in a future is not in the caches when there are many.
        let request = Box::new(Upload::of(request, &config.client));
        let cancelled = Cancelled(Some(&self.sidecar.counts.cancelled));
        async move {
            // As a whole: the block would capture a copy of the reference in it.
            let mut cancelled = cancelled;
            let answered = self.forward(peer, request, &config).await;
            cancelled.0 = None;
            match answered {
                Ok(response) => response,
                Err(problem) => {
                    if problem.is_of_client() {
                        let (status, detail) = (problem.status(), problem.detail());
                        self.sidecar.bad_request(peer.ip, status, detail);
                    }
                    problem.response(format, version)
                }
            }
        }
    }

    /// The answer to a request for which there is no place.
    pub(crate) fn refuse<B>(&self, request: &Request<B>) -> Response<Body> {
        count(&self.sidecar.counts.shed);
        let format = ProblemFormat::of(request.method(), request.headers());
        gate::refusal("there are too many requests at once").response(format, request.version())
    }

    /// The chain. A step that refuses the request ends it.
    async fn forward(
        &self,
        peer: &Peer,
        mut request: Box<Request<Upload>>,
        config: &Arc<Config>,
    ) -> Result<Response<Body>, Problem> {
        let received_at = now();
        let counts = &self.sidecar.counts;
        let version = request.version();

        // What can be read in two ways does not reach the upstream.
        check::request(&request)?;
        // The client has its share, and the upstream has room. The fields that `Connection` names are still there.
        let (status, mut admitted) = self.admit(peer, &mut request, config).await?;
        // The request becomes that of the sidecar. Of a client by its address nothing else is known.
        if matches!(config.client, Client::Ip { .. }) && !self.clients(config).trust(peer) {
            fields::drop_forwarded(request.headers_mut());
        }
        let upgrade = fields::for_upstream(&mut request, peer, &self.host, config);
        let upgrade = upgrade.map(|protocol| (protocol, hyper::upgrade::on(&mut *request)));

        let sent_at = now();
        let answered = self.upstream.send(request, config, counts).await;
        let mut answered = answered.map_err(|failure| {
            if matches!(failure, Failure::ConnectLate | Failure::Late) {
                admitted.overloaded();
            }
            failure.problem(counts, &config.upstream.authority)
        })?;
        let answered_at = now();
        admitted.answered();
        self.sidecar.times.upstream.record(answered_at - sent_at);

        // The response becomes that of the sidecar.
        let mut response = if answered.status() == StatusCode::SWITCHING_PROTOCOLS {
            // It is no longer a request under way.
            drop(admitted);
            let opened = tunnel::open(upgrade, answered);
            opened.map_err(|failure| failure.problem(counts, &config.upstream.authority))?
        } else {
            fields::for_client(&mut answered);
            answered.map(|it| it.body(config.timeouts.body, admitted, &self.sidecar))
        };
        if let Some(status) = status {
            let written = &mut self.written.borrow_mut();
            let headers = response.headers_mut();
            self.sidecar.limit.describe(headers, &status, written);
        }
        *response.version_mut() = match version {
            Version::HTTP_2 => Version::HTTP_2,
            _ => Version::HTTP_11,
        };
        let added = (sent_at - received_at) + (now() - answered_at);
        self.sidecar.times.added.record(added);
        Ok(response)
    }

    /// Finds the client, asks for its share, and for what all clients together may do to the upstream.
    async fn admit(
        &self,
        peer: &Peer,
        request: &mut Request<Upload>,
        config: &Arc<Config>,
    ) -> Result<(Option<Status>, Admitted), Problem> {
        let Sidecar { counts, limit, .. } = &*self.sidecar;
        let client = match config.mode {
            Mode::Off => Ok(None),
            _ => self.clients(config).client(peer, request),
        };
        let client = match client {
            Ok(client) => {
                if client.is_none() && config.mode != Mode::Off {
                    count(&counts.anonymous_passed);
                }
                client
            }
            // As one with an id, a request without a valid id is refused only where the share is enforced.
            Err(_) if !config.enforces(peer.text.to_str().unwrap_or_default()) => {
                count(&counts.anonymous_passed);
                None
            }
            Err(problem) => {
                if !problem.is_of_client() {
                    count(&counts.anonymous);
                }
                return Err(problem);
            }
        };
        let verdict = match client.as_deref() {
            Some(client) => limit.decide(client, config),
            None => Verdict::UNASKED,
        };
        let (status, is_counted) = match verdict {
            Verdict::Pass { status, is_counted } => (status, is_counted),
            Verdict::Refuse(wait, status) => {
                count(&counts.refused);
                let written = &mut self.written.borrow_mut();
                return Err(limit.refusal(wait, status, written));
            }
        };
        if config.concurrency.is_none() && config.shed.is_none() {
            return Ok((status, Admitted::default()));
        }
        // All those without a share of their own are one client.
        let of_gate = client
            .as_deref()
            .filter(|&client| !config.fair.is_known_only || config.terms.contains_key(client));
        let gate = self.sidecar.gate();
        let admitted = gate.admit(of_gate.map(str::to_owned), config.timeouts.queue);
        let admitted = admitted.await.inspect_err(|_| {
            count(&counts.shed);
            if let Some(client) = client.as_deref().filter(|_| is_counted) {
                limit.refund(client, config);
            }
        })?;
        Ok((status, admitted))
    }

    /// What is made of the configuration. A reload makes it anew.
    fn clients(&self, config: &Arc<Config>) -> Rc<Clients> {
        let mut clients = self.clients.borrow_mut();
        if !clients.are_of(config) {
            *clients = Rc::new(Clients::new(Arc::clone(config)));
        }
        Rc::clone(&clients)
    }
}

/// Counts a request whose client leaves before the head of its response is there.
struct Cancelled<'a>(Option<&'a AtomicU64>);

impl Drop for Cancelled<'_> {
    fn drop(&mut self) {
        self.0.map(count);
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

#[expect(clippy::disallowed_methods, reason = "the library does not wait here")]
fn now() -> Instant {
    Instant::now()
}
