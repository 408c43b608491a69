//! One connection: what it speaks, its requests, its end.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::error::Error as _;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::header::CONNECTION;
use http::{HeaderValue, Request, StatusCode, Version};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, spawn_local};

use crate::proxy::{FramedTwice, LARGE, Peer, Proxy, Refuser};
use crate::state::Sidecar;

use super::heads::Heads;
use super::places::Place;
use super::socket::{self, Socket};
use super::watchdog::{Download, Watch};

/// hyper's own default for HTTP/1.
const FIELDS: usize = 100;
/// HTTP/2: most bytes of a response that a stream takes ahead of its client.
const SENT_AHEAD: usize = 32 * 1024;
/// A peer of HTTP/2 that does not answer a ping is gone.
const PING_AFTER: Duration = Duration::from_secs(30);
const PONG_WITHIN: Duration = Duration::from_secs(20);

/// HTTP/2: most bytes of an upload that a stream holds. A connection holds 1 MiB.
const SMALL_WINDOW: u32 = 64 * 1024;
const LARGE_WINDOW: u32 = 1024 * 1024;
/// The connections of the process that may have large windows, so that many slow ones cost little.
static LARGE_WINDOWS: Semaphore = Semaphore::const_new(32);

/// What the worker and the task of a connection know of each other.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Whether the requests under way are the last ones.
    is_ending: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    /// The streams of HTTP/2.
    streams: RefCell<Vec<(Arc<Watch>, AbortHandle)>>,
    /// The watch of the stream that hyper is about to spawn.
    next: RefCell<Option<Arc<Watch>>>,
}

impl Line {
    /// Lets the requests under way finish, and takes no more.
    pub(super) fn end(&self) {
        self.is_ending.set(true);
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    /// Returns when the worker says that the connection ends.
    pub(super) async fn ended(&self) {
        poll_fn(|cx| {
            self.wakes(cx);
            if self.is_ending.get() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// A task has one waker for all its life.
    fn wakes(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        waker.get_or_insert_with(|| cx.waker().clone());
    }

    /// Cuts streams that are late, and returns how many. The connection goes on.
    pub(super) fn cut_streams(&self, connection: &Watch) -> u64 {
        let mut late = 0;
        let mut streams = self.streams.borrow_mut();
        streams.retain(|(watch, task)| {
            connection.stands_for(watch);
            let is_late = watch.is_late();
            if is_late {
                task.abort();
                late += 1;
            }
            !is_late && !task.is_finished()
        });
        connection.streams_were_counted(streams.len());
        late
    }
}

/// What the connections of one thread share.
pub(super) struct Server {
    sidecar: Arc<Sidecar>,
    proxy: Proxy,
    http1: http1::Builder,
    head_bytes: u32,
    fields: usize,
    streams: u32,
}

impl Server {
    pub(super) fn new(sidecar: Arc<Sidecar>) -> Self {
        let bounds = &sidecar.config().bounds;
        let mut http1 = http1::Builder::new();
        // The watch of the connection is cheaper than hyper's timer for heads, which is a new one for each request.
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(None)
            .max_buf_size(bounds.head_bytes.max(LARGE))
            .max_header_size(bounds.head_bytes);
        if bounds.fields != FIELDS {
            // With its default hyper parses on the stack.
            http1.max_headers(bounds.fields);
        }
        Self {
            proxy: Proxy::new(Arc::clone(&sidecar)),
            sidecar,
            http1,
            head_bytes: u32::try_from(bounds.head_bytes).unwrap_or(u32::MAX),
            fields: bounds.fields,
            streams: bounds.streams,
        }
    }

    fn http2(&self, line: &Rc<Line>, window: u32) -> http2::Builder<Spawn> {
        let mut http2 = http2::Builder::new(Spawn(Rc::clone(line)));
        http2
            .timer(TokioTimer::new())
            .max_concurrent_streams(self.streams)
            .max_header_list_size(self.head_bytes)
            .max_send_buf_size(SENT_AHEAD)
            .initial_stream_window_size(window)
            .keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PONG_WITHIN);
        http2
    }
}

/// Serves a connection until it ends.
pub(super) async fn serve(
    mut stream: TcpStream,
    peer: SocketAddr,
    mut place: Place,
    watch: Arc<Watch>,
    line: Rc<Line>,
    server: Rc<Server>,
) {
    let ended = match socket::first_bytes(&mut stream, line.ended()).await {
        Ok(None) => return,
        Ok(Some((is_http2, replay))) => {
            if is_http2 {
                place.has_streams();
            }
            let refuser = Refuser::new(Arc::clone(&server.sidecar), peer.ip());
            let heads = Arc::<Mutex<Heads>>::default();
            let socket = Socket::new(
                replay,
                stream,
                Arc::clone(&watch),
                Arc::clone(&heads),
                refuser,
                place,
            );
            // Boxed: a connection that is silent so far has no room for them.
            if is_http2 {
                Heads::lock(&heads).are_over();
                Box::pin(serve_http2(socket, peer, &watch, &line, &server)).await
            } else {
                Box::pin(serve_http1(socket, &heads, peer, &watch, &line, &server)).await
            }
        }
        Err(error) => {
            tracing::debug!(%peer, %error, "a connection broke");
            return;
        }
    };
    if let Err(error) = ended {
        let cause = error.source().map(ToString::to_string);
        tracing::debug!(%peer, %error, cause, "a connection ended with an error");
    }
}

async fn serve_http1(
    socket: Socket,
    heads: &Mutex<Heads>,
    peer: SocketAddr,
    watch: &Arc<Watch>,
    line: &Line,
    server: &Server,
) -> hyper::Result<()> {
    let has_body = Cell::new(false);
    let peer = &Peer::new(peer);
    let service = service_fn(|mut request: Request<Incoming>| {
        watch.head_is_complete();
        has_body.set(!request.body().is_end_stream());
        let length = request.body().size_hint().exact();
        if Heads::lock(heads).had_more(request.headers().len(), length) {
            // hyper drops no other fields.
            request.extensions_mut().insert(FramedTwice);
        }
        let answered = server.proxy.answer(peer, request);
        async move {
            let mut response = answered.await;
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                watch.is_upgraded();
                Heads::lock(heads).are_over();
            } else if server.sidecar.is_draining() {
                // The client moves to another replica before this one closes.
                let headers = response.headers_mut();
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response.map(|body| Download::new(body, Arc::clone(watch), None)))
        }
    });
    let connection = server.http1.serve_connection(TokioIo::new(socket), service);
    let mut connection = connection.with_upgrades();
    let ended = until_end(
        line,
        Pin::new(&mut connection),
        http1::UpgradeableConnection::graceful_shutdown,
    )
    .await;
    let is_refused = ended.as_ref().is_err_and(hyper::Error::is_parse);
    if has_body.get() || is_refused {
        // The client may still be sending.
        if let Some(parts) = connection.into_parts() {
            let mut socket = parts.io.into_inner();
            if is_refused {
                socket.refuse().await;
            }
            socket.linger().await;
        }
    }
    ended
}

async fn serve_http2(
    socket: Socket,
    peer: SocketAddr,
    watch: &Arc<Watch>,
    line: &Rc<Line>,
    server: &Rc<Server>,
) -> hyper::Result<()> {
    watch.has_streams();
    let ip = peer.ip();
    let peer = Peer::new(peer);
    let service = service_fn(|request: Request<Incoming>| {
        let watch = watch.stream();
        *line.next.borrow_mut() = Some(Arc::clone(&watch));
        let (server, peer) = (Rc::clone(server), peer.clone());
        async move {
            let Ok(place) = Place::of_stream(&server.sidecar) else {
                let response = server.proxy.refuse(&request);
                return Ok(response.map(|body| Download::new(body, watch, None)));
            };
            // hyper bounds the bytes of a head, and not its fields.
            if request.headers().len() > server.fields {
                let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
                let refuser = Refuser::new(Arc::clone(&server.sidecar), ip);
                let response = refuser.response(status, Version::HTTP_2);
                return Ok(response.map(|body| Download::new(body, watch, Some(place))));
            }
            let response = server.proxy.answer(&peer, request).await;
            Ok::<_, Infallible>(response.map(|body| Download::new(body, watch, Some(place))))
        }
    });
    let large = LARGE_WINDOWS.try_acquire();
    let window = large.as_ref().map_or(SMALL_WINDOW, |_| LARGE_WINDOW);
    let connection = server.http2(line, window);
    let connection = connection.serve_connection(TokioIo::new(socket), service);
    until_end(line, pin!(connection), http2::Connection::graceful_shutdown).await
}

/// Drives a connection, and shuts it down when the worker says so.
async fn until_end<C: Future>(
    line: &Line,
    mut connection: Pin<&mut C>,
    shut_down: impl Fn(Pin<&mut C>),
) -> C::Output {
    let mut is_ending = false;
    poll_fn(|cx| {
        let mut polled = connection.as_mut().poll(cx);
        if polled.is_pending() && line.is_ending.get() && !is_ending {
            // Only now: a request that has come already is still answered.
            is_ending = true;
            shut_down(connection.as_mut());
            polled = connection.as_mut().poll(cx);
        }
        if polled.is_pending() {
            line.wakes(cx);
        }
        polled
    })
    .await
}

/// Spawns the streams of a connection of HTTP/2.
#[derive(Clone, Debug)]
struct Spawn(Rc<Line>);

impl<F: Future<Output: 'static> + 'static> hyper::rt::Executor<F> for Spawn {
    fn execute(&self, stream: F) {
        let task = spawn_local(stream);
        if let Some(watch) = self.0.next.borrow_mut().take() {
            let streams = &mut *self.0.streams.borrow_mut();
            streams.push((watch, task.abort_handle()));
        }
    }
}
