//! Readers that are slow, and readers that do not read.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, SockRef, Socket, Type};

use super::endurance::resident_kb;
use super::frames::{self, DATA, END_STREAM, RST_STREAM, SETTINGS, WINDOW_UPDATE};
use super::support::{GET, PATIENCE, Sidecar, head, wait_until};
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

/// The most that a connection that does not read may cost, when the allocator has given back what is free.
const MOST_KB: u32 = 100;

/// The resident memory is at most so much more than before, for each of so many.
fn grows_little(sidecar: &Sidecar, before: u32, count: u32) {
    wait_until("each costs little", || {
        let kb = resident_kb(sidecar, "VmRSS").saturating_sub(before) / count;
        println!("{kb} kB each");
        kb < MOST_KB
    });
}

/// Waits until the service has sent nothing more for a while.
fn wait_until_it_stalls(sent: &AtomicUsize) {
    let mut last = (0, 0);
    wait_until("nothing more is sent", || {
        let now = sent.load(Relaxed);
        last = if now == last.0 {
            (now, last.1 + 1)
        } else {
            (now, 0)
        };
        now > 0 && last.1 > 50
    });
}

/// A service with an endless body, and how much of all bodies it has sent.
fn endless() -> (SocketAddr, Arc<AtomicUsize>) {
    let sent = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&sent);
    let at = upstream::raw(move |mut connection| {
        connection.head();
        // The kernel has little memory for the sockets of all tests.
        SockRef::from(connection.stream())
            .set_send_buffer_size(1 << 16)
            .unwrap();
        connection.send("HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n");
        while connection.send([b'x'; 16_384]) {
            count.fetch_add(16_384, Relaxed);
        }
    });
    (at, sent)
}

#[test]
fn a_connection_that_does_not_read_costs_less_than_100_kb() {
    let (service, sent) = endless();
    let sidecar = Sidecar::start(service, &["--body-timeout", "1h"]);
    drop(sidecar.anonymous());
    let before = resident_kb(&sidecar, "VmRSS");
    let held: Vec<_> = (0..100)
        .map(|_| {
            let mut stream = narrow(sidecar.listen, 4096);
            stream.write_all(GET.as_bytes()).unwrap();
            stream
        })
        .collect();
    wait_until_it_stalls(&sent);
    grows_little(&sidecar, before, 100);
    drop(held);
}

#[test]
fn a_stream_that_does_not_read_costs_less_than_100_kb() {
    // With nothing to send, with room for a byte, and with a connection that is not read.
    for window in [0, 1, 1 << 30] {
        let (service, sent) = endless();
        let sidecar = Sidecar::start(service, &["--body-timeout", "1h"]);
        drop(sidecar.anonymous());
        let before = resident_kb(&sidecar, "VmRSS");
        let mut stream = http2(sidecar.listen, window);
        for number in 0..100 {
            frames::request(&mut stream, 2 * number + 1);
        }
        wait_until_it_stalls(&sent);
        grows_little(&sidecar, before, 100);
    }
}
