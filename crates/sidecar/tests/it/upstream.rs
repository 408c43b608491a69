//! Services behind the sidecar, in the process of the test: with hyper for what is regular, and by raw bytes for the rest.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::mem;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use socket2::{Domain, Socket, Type};

use super::frames::{self, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PREFACE, SETTINGS};
use super::support::PATIENCE;

/// What a service answers.
pub(crate) type Reply = Response<BoxBody<Bytes, hyper::Error>>;

/// A reply with this body, whose length is known.
pub(crate) fn reply(body: impl Into<Bytes>) -> Reply {
    let body = Full::new(body.into()).map_err(|never| match never {});
    Response::new(body.boxed())
}

/// A service that answers `hello` to everything.
pub(crate) fn hello() -> SocketAddr {
    http(|_| async { reply("hello") })
}

/// A service of HTTP/1.1, and of HTTP/2 with prior knowledge.
pub(crate) fn http<H, F>(handler: H) -> SocketAddr
where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Reply> + Send + 'static,
{
    tasks(move |stream| {
        let handler = handler.clone();
        let service = service_fn(move |request| {
            let reply = handler(request);
            async { Ok::<_, Infallible>(reply.await) }
        });
        // How a connection ends is seen by the client.
        async move {
            let mut first = [0; 3];
            let _ = stream.peek(&mut first).await;
            let io = TokioIo::new(stream);
            let _ = if first == *b"PRI" {
                let http2 = http2::Builder::new(TokioExecutor::new());
                http2.serve_connection(io, service).await
            } else {
                let http1 = http1::Builder::new();
                http1.serve_connection(io, service).await
            };
        }
    })
}

/// A service that serves each connection with a task, on a thread of its own.
pub(crate) fn tasks<S, F>(serve: S) -> SocketAddr
where
    S: Fn(tokio::net::TcpStream) -> F + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let accept = async move {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                continue;
            };
            stream.set_nodelay(true).unwrap();
            tokio::spawn(serve(stream));
        }
    };
    thread::spawn(move || runtime.block_on(accept));
    at
}

/// What a service by raw bytes answers.
pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// The same of a service that then closes.
pub(crate) const LAST_OK: &str =
    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";

/// A service by raw bytes: the script serves a connection, and closes it when it returns.
pub(crate) fn raw(script: impl Fn(Connection) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let script = Arc::new(script);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let script = Arc::clone(&script);
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            thread::spawn(move || script(Connection(BufReader::new(stream))));
        }
    });
    at
}

/// A service of HTTP/2 by frames: the script serves a connection, whose number it gets, and closes it when it returns.
pub(crate) fn frames(script: impl Fn(&mut TcpStream, usize) + Send + Sync + 'static) -> SocketAddr {
    let connections = AtomicUsize::new(0);
    raw(move |connection| {
        let mut stream = connection.stream();
        stream.read_exact(&mut [0; PREFACE.len()]).unwrap();
        let mut stream = stream.try_clone().unwrap();
        frames::send(&mut stream, SETTINGS, 0, 0, &[]);
        script(&mut stream, connections.fetch_add(1, Ordering::Relaxed));
    })
}

/// The next requests of a connection by frames, as they end: stream and body. `None`: the sidecar has closed.
pub(crate) fn requests(stream: &mut TcpStream, count: usize) -> Option<Vec<(u32, String)>> {
    let mut bodies = HashMap::<u32, String>::new();
    let mut requests = Vec::new();
    while requests.len() < count {
        let frame = frames::receive(stream)?;
        if frame.kind != HEADERS && frame.kind != DATA {
            continue;
        }
        let body = bodies.entry(frame.stream).or_default();
        if frame.kind == DATA {
            *body += &String::from_utf8(frame.payload).unwrap();
        }
        if frame.flags & END_STREAM != 0 {
            requests.push((frame.stream, mem::take(body)));
        }
    }
    Some(requests)
}

/// Answers 200 with this body.
pub(crate) fn respond(stream: &mut TcpStream, id: u32, body: &str) {
    frames::send(stream, HEADERS, END_HEADERS, id, &[0x88]);
    frames::send(stream, DATA, END_STREAM, id, body.as_bytes());
}

/// The connection ends without an error, and this is the last stream that the service processes.
pub(crate) fn go_away(stream: &mut TcpStream, last: u32) {
    let payload = [last.to_be_bytes(), [0; 4]].concat();
    frames::send(stream, GOAWAY, 0, 0, &payload);
}

/// A service that switches to another protocol, and then sends back what it gets.
pub(crate) fn echo() -> SocketAddr {
    raw(|mut connection| {
        connection.head().unwrap();
        connection.send(SWITCH);
        let mut back = connection.stream().try_clone().unwrap();
        let _ = io::copy(connection.reader(), &mut back);
    })
}

/// A request to switch to a protocol, and the answer of a service that does.
pub(crate) const UPGRADE: &str = "GET / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\nconnection: upgrade\r\n\
                                  upgrade: raw\r\n\r\n";
pub(crate) const SWITCH: &str =
    "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: raw\r\n\r\n";

/// An address at which nothing listens, also later: it stays bound.
pub(crate) fn nothing() -> SocketAddr {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    socket.bind(&any.into()).unwrap();
    let bound = socket.local_addr().unwrap().as_socket().unwrap();
    mem::forget(socket);
    bound
}

/// A connection of a raw service.
#[derive(Debug)]
pub(crate) struct Connection(BufReader<TcpStream>);

impl Connection {
    /// The head of the next request, with its empty line. `None`: the sidecar has closed.
    pub(crate) fn head(&mut self) -> Option<String> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.0.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        Some(head)
    }

    /// The next bytes of a body.
    pub(crate) fn take(&mut self, length: usize) -> Option<Vec<u8>> {
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).ok()?;
        Some(body)
    }

    /// Everything until the sidecar closes.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let _ = self.0.read_to_end(&mut rest);
        rest
    }

    /// Whether the connection is still open. A test sees what arrives.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.0.get_mut().write_all(bytes.as_ref()).is_ok()
    }

    pub(crate) fn reader(&mut self) -> &mut impl Read {
        &mut self.0
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        self.0.get_ref()
    }
}

/// A service that writes down the heads and the bodies of its requests, and always answers the same.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    pub(crate) at: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    pub(crate) fn answering(answer: &str) -> Self {
        let answer = answer.to_owned();
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let record = Arc::clone(&seen);
        let at = raw(move |mut connection| {
            while let Some(mut request) = connection.head() {
                let lower = request.to_ascii_lowercase();
                let length = lower.split_once("content-length: ");
                if let Some((_, length)) = length {
                    let length = length.split_once('\r').unwrap().0.parse().unwrap();
                    let body = connection.take(length).unwrap_or_default();
                    request += &String::from_utf8(body).unwrap();
                } else if lower.contains("transfer-encoding: chunked") {
                    // The last chunk, and the trailers.
                    let body = request.len() - 2;
                    while !request[body..].contains("\r\n0\r\n") || !request.ends_with("\r\n\r\n") {
                        let Some(more) = connection.take(1) else {
                            break;
                        };
                        request.push(more[0].into());
                    }
                }
                record.lock().unwrap().push(request);
                connection.send(&answer);
            }
        });
        Self { at, seen }
    }

    pub(crate) fn ok() -> Self {
        Self::answering(OK)
    }

    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    /// The value of a field of the last request.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        let seen = self.seen();
        let mut lines = seen.last()?.lines();
        lines.find_map(|line| {
            let (of, value) = line.split_once(": ")?;
            of.eq_ignore_ascii_case(name).then(|| value.to_owned())
        })
    }
}
