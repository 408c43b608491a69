use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, ready};
use std::time::Duration;

use http::header::{EXPECT, HOST, TRANSFER_ENCODING};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::body::{Body, Download};
use super::failure::{Causes, Failure};
use super::gate::Admitted;
use super::io::Io;
use super::patience::Patience;
use super::pool::{Lease, Pool, Sender};
use super::upload::{Progress, Upload};
use super::{count, now};
use crate::config::{self, Timeouts};
use crate::state::Counts;

/// The service, as one thread sees it.
#[derive(Debug)]
pub(super) struct Upstream {
    authority: Authority,
    /// Host and port, to connect to.
    address: String,
    is_h2c: bool,
    pool: Arc<Pool>,
    /// One connection for all requests, if HTTP/2 is spoken. It is locked while it is made.
    multiplexed: Mutex<Option<http2::SendRequest<Upload>>>,
}

/// A response whose body is still on the connection.
pub(super) struct Answered {
    response: Response<Incoming>,
    lease: Lease,
    upload: Option<Arc<Progress>>,
}

impl Upstream {
    pub(super) fn new(upstream: &config::Upstream) -> Self {
        let authority = upstream.authority.clone();
        let port = authority.port_u16().unwrap_or(80);
        Self {
            address: format!("{}:{port}", authority.host()),
            authority,
            is_h2c: upstream.is_h2c,
            pool: Arc::default(),
            multiplexed: Mutex::default(),
        }
    }

    /// Sends the request. It goes out a second time, on a new connection, if the first one had been used before and ended before a
    /// byte of an answer: the upstream closed it while the request was on its way.
    pub(super) async fn send(
        &self,
        request: Request<Upload>,
        timeouts: &Timeouts,
        counts: &Counts,
    ) -> Result<Answered, Failure> {
        let request = self.addressed(request)?;
        let idle = if self.is_h2c {
            None
        } else {
            self.pool.take(now())
        };
        let lease = match idle {
            Some(lease) => lease,
            None => self.connect(timeouts).await?,
        };
        let spare = (lease.is_reused && is_repeatable(&request)).then(|| copy(&request));
        match (self.attempt(request, lease, timeouts).await, spare) {
            (Err((Failure::Broken(error), false)), Some(spare)) => {
                tracing::debug!(cause = %Causes(&error), "the request goes out again");
                count(&counts.retried);
                let lease = self.connect(timeouts).await?;
                let again = self.attempt(spare, lease, timeouts).await;
                again.map_err(|(failure, _)| failure)
            }
            (result, _) => result.map_err(|(failure, _)| failure),
        }
    }

    /// Waits for the head of the response. The error comes with whether anything was received.
    async fn attempt(
        &self,
        mut request: Request<Upload>,
        mut lease: Lease,
        timeouts: &Timeouts,
    ) -> Result<Answered, (Failure, bool)> {
        let upload = request.body().progress();
        if let Some(progress) = upload.clone().filter(|_| request.body().is_waiting()) {
            hyper::ext::on_informational(&mut request, move |response| {
                if response.status() == StatusCode::CONTINUE {
                    progress.go_on();
                }
            });
        }
        let patience = &mut lease.patience;
        let result = match &mut lease.sender {
            Sender::Http1(sender, _) => {
                let response = sender.send_request(request);
                wait(response, upload.as_deref(), patience, timeouts).await
            }
            Sender::Http2(sender) => {
                let response = sender.send_request(request);
                wait(response, upload.as_deref(), patience, timeouts).await
            }
        };
        match result {
            Ok(response) => {
                lease.patience.begin();
                Ok(Answered {
                    response,
                    lease,
                    upload,
                })
            }
            Err(failure) => {
                // A stream that was reset on a connection that goes on was refused with intent.
                let is_alive = matches!(&lease.sender, Sender::Http2(sender) if sender.is_ready());
                Err((
                    failure,
                    is_alive || lease.has_received.load(Ordering::Relaxed),
                ))
            }
        }
    }

    /// A new connection, or a stream of the shared connection.
    async fn connect(&self, timeouts: &Timeouts) -> Result<Lease, Failure> {
        let connecting = async {
            if self.is_h2c {
                self.stream(timeouts).await
            } else {
                self.connection(timeouts).await
            }
        };
        let connected = timeout(timeouts.connect, connecting).await;
        connected.map_err(|_| Failure::ConnectLate)?
    }

    async fn connection(&self, timeouts: &Timeouts) -> Result<Lease, Failure> {
        let (io, has_received) = self.socket().await?;
        let (sender, connection) = http1::handshake(io).await.map_err(Failure::Broken)?;
        tokio::spawn(run(connection.with_upgrades()));
        let sender = Sender::Http1(sender, Arc::downgrade(&self.pool));
        let patience = Patience::new(timeouts);
        Ok(Lease::new(
            sender,
            has_received,
            patience,
            timeouts.upstream_idle,
        ))
    }

    async fn stream(&self, timeouts: &Timeouts) -> Result<Lease, Failure> {
        // Others wait here while one connects, and then use its connection.
        let mut multiplexed = self.multiplexed.lock().await;
        let known = multiplexed.clone().filter(http2::SendRequest::is_ready);
        let is_reused = known.is_some();
        let sender = if let Some(sender) = known {
            sender
        } else {
            let (io, _) = self.socket().await?;
            let handshake = http2::handshake(TokioExecutor::new(), io).await;
            let (sender, connection) = handshake.map_err(Failure::Broken)?;
            tokio::spawn(run(connection));
            multiplexed.insert(sender).clone()
        };
        let patience = Patience::new(timeouts);
        let sender = Sender::Http2(sender);
        let mut lease = Lease::new(sender, Arc::default(), patience, timeouts.upstream_idle);
        lease.is_reused = is_reused;
        Ok(lease)
    }

    async fn socket(&self) -> Result<(TokioIo<Io>, Arc<AtomicBool>), Failure> {
        let socket = TcpStream::connect(&self.address).await;
        let socket = socket.map_err(Failure::Connect)?;
        socket.set_nodelay(true).map_err(Failure::Connect)?;
        let has_received = Arc::new(AtomicBool::new(false));
        Ok((
            TokioIo::new(Io::new(socket, Arc::clone(&has_received))),
            has_received,
        ))
    }

    /// The request with scheme and authority of the upstream. Path and query stay as they are, byte for byte.
    fn addressed(&self, request: Request<Upload>) -> Result<Request<Upload>, Failure> {
        let (mut parts, mut upload) = request.into_parts();
        let path = parts.uri.path_and_query().cloned();
        let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
        if self.is_h2c {
            let mut uri = http::uri::Parts::default();
            uri.scheme = Some(Scheme::HTTP);
            uri.authority = Some(self.authority.clone());
            uri.path_and_query = Some(path);
            parts.uri = Uri::from_parts(uri).map_err(|_| Failure::Upload)?;
            parts.version = Version::HTTP_2;
            parts.headers.remove(HOST);
            upload.go_on();
        } else {
            if parts.uri.authority().is_some() {
                parts.uri = Uri::from(path);
            }
            parts.version = Version::HTTP_11;
            // hyper would leave out the body of a `GET` otherwise.
            if !upload.is_end_stream() && upload.size_hint().exact().is_none() {
                let chunked = HeaderValue::from_static("chunked");
                parts.headers.insert(TRANSFER_ENCODING, chunked);
            }
        }
        if !upload.is_waiting() {
            parts.headers.remove(EXPECT);
        }
        Ok(Request::from_parts(parts, upload))
    }
}

impl Answered {
    pub(super) fn response(&mut self) -> &mut Response<Incoming> {
        &mut self.response
    }

    /// The response to an upgrade, whose connection is no longer one of requests.
    pub(super) fn into_response(self) -> Response<Incoming> {
        self.response
    }

    /// The response to the client. The connection goes back to the pool at the end of the body.
    pub(super) fn streamed(self, limit: Duration, admitted: Admitted) -> Response<Body> {
        let Self {
            response,
            lease,
            upload,
        } = self;
        response.map(|body| {
            Body::streamed(Download {
                body,
                limit,
                upload,
                held: Some((lease, admitted)),
            })
        })
    }
}

async fn run(connection: impl Future<Output = hyper::Result<()>>) {
    if let Err(error) = connection.await {
        tracing::debug!(cause = %Causes(&error), "a connection to the upstream ended");
    }
}

async fn wait(
    response: impl Future<Output = hyper::Result<Response<Incoming>>>,
    upload: Option<&Progress>,
    patience: &mut Patience,
    timeouts: &Timeouts,
) -> Result<Response<Incoming>, Failure> {
    let mut response = pin!(response);
    poll_fn(|cx| {
        if let Poll::Ready(result) = response.as_mut().poll(cx) {
            let has_failed = upload.is_some_and(Progress::has_failed);
            return Poll::Ready(result.map_err(|error| {
                if has_failed {
                    Failure::Upload
                } else {
                    Failure::Broken(error)
                }
            }));
        }
        let (moved, awaits_client) = upload.map_or((0, false), Progress::so_far);
        let (limit, late) = if awaits_client {
            (timeouts.body, Failure::UploadLate)
        } else {
            (timeouts.response, Failure::Late)
        };
        // What counts as quiet changes with the side that is awaited.
        let moved = moved * 2 + u64::from(awaits_client);
        ready!(patience.poll_over(cx, moved, limit));
        if let Some(upload) = upload.filter(|_| awaits_client) {
            upload.fail();
        }
        Poll::Ready(Err(late))
    })
    .await
}

fn is_repeatable(request: &Request<Upload>) -> bool {
    let is_idempotent = matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE | Method::TRACE
    );
    is_idempotent && request.body().is_empty()
}

/// The same request without a body.
fn copy(request: &Request<Upload>) -> Request<Upload> {
    let mut copy = Request::new(Upload::empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    copy
}
