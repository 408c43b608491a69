//! Readers that are slow, and readers that do not read.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::frames::{self, DATA, END_STREAM, RST_STREAM, SETTINGS, WINDOW_UPDATE};
use super::support::{GET, PATIENCE, Sidecar, head};
use super::upstream;

/// A connection whose receive buffer has this size.
fn narrow(at: SocketAddr, bytes: usize) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(bytes).unwrap();
    socket.connect(&at.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A service with a body of this size.
fn large(bytes: usize) -> SocketAddr {
    let body = bytes::Bytes::from(vec![b'x'; bytes]);
    upstream::http(move |_| {
        let body = body.clone();
        async { upstream::reply(body) }
    })
}

const BODY: usize = 8 << 20;
const TIMEOUT: Duration = Duration::from_secs(5);

/// Reads 200 kB a second for three times the timeout of a body.
fn read_slowly(stream: &mut TcpStream) -> usize {
    let start = Instant::now();
    let mut read = 0;
    let mut chunk = vec![0; 10_000];
    while start.elapsed() < 3 * TIMEOUT {
        stream.read_exact(&mut chunk).unwrap();
        read += chunk.len();
        thread::sleep(Duration::from_millis(50));
    }
    read
}

#[test]
fn a_slow_and_steady_reader_is_not_cut() {
    let sidecar = Sidecar::start(large(BODY), &["--body-timeout", "5s"]);
    let mut stream = narrow(sidecar.listen, 1 << 16);
    stream.write_all(GET.as_bytes()).unwrap();
    head(&mut stream);
    let read = read_slowly(&mut stream);
    assert!(read < BODY / 2, "{read}");
    let mut rest = vec![0; BODY - read];
    stream.read_exact(&mut rest).unwrap();
}

/// A connection of HTTP/2 with a large window, and a window of this size for each stream.
fn http2(at: SocketAddr, window: u32) -> TcpStream {
    let mut stream = narrow(at, 1 << 16);
    stream.write_all(frames::PREFACE).unwrap();
    let settings = [&[0, 4][..], &window.to_be_bytes()].concat();
    frames::send(&mut stream, SETTINGS, 0, 0, &settings);
    let more = (1_u32 << 30).to_be_bytes();
    frames::send(&mut stream, WINDOW_UPDATE, 0, 0, &more);
    stream
}

#[test]
fn streams_are_not_cut_while_their_connection_is_read_slowly() {
    let (streams, body) = (40, BODY / 40);
    let sidecar = Sidecar::start(large(body), &["--body-timeout", "5s"]);
    let mut stream = http2(sidecar.listen, 1 << 30);
    for number in 0..streams {
        frames::request(&mut stream, 2 * number + 1);
    }
    let start = Instant::now();
    let (mut read, mut ended) = (0, 0);
    while ended < streams {
        let frame = frames::receive(&mut stream).expect("it is still open");
        assert_ne!(frame.kind, RST_STREAM, "after {read} bytes");
        if frame.kind == DATA {
            read += frame.payload.len();
            ended += u32::from(frame.flags & END_STREAM);
            if start.elapsed() < 3 * TIMEOUT {
                thread::sleep(Duration::from_millis(80));
            }
        }
    }
    assert_eq!(read, body * streams as usize);
}
