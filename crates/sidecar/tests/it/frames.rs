//! HTTP/2 by hand, frame by frame.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::support::connect;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

pub(crate) fn send(stream: &mut TcpStream, kind: u8, flags: u8, id: u32, payload: &[u8]) {
    assert!(try_send(stream, kind, flags, id, payload), "frame {kind}");
}

/// Whether the connection is still open.
pub(crate) fn try_send(
    stream: &mut TcpStream,
    kind: u8,
    flags: u8,
    id: u32,
    payload: &[u8],
) -> bool {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(id.to_be_bytes());
    frame.extend(payload);
    match stream.write_all(&frame) {
        Ok(()) => true,
        Err(error) => match error.kind() {
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => false,
            _ => panic!("neither sent nor the end: {error}"),
        },
    }
}

/// `None`: the connection is closed or reset.
pub(crate) fn receive(stream: &mut TcpStream) -> Option<Frame> {
    let mut head = [0; 9];
    fill(stream, &mut head)?;
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    fill(stream, &mut payload)?;
    Some(Frame {
        kind: head[3],
        flags: head[4],
        stream: u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
        payload,
    })
}

fn fill(stream: &mut TcpStream, bytes: &mut [u8]) -> Option<()> {
    match stream.read_exact(bytes) {
        Ok(()) => Some(()),
        Err(error) => match error.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => None,
            _ => panic!("neither a frame nor the end: {error}"),
        },
    }
}

/// The next frame of this kind.
pub(crate) fn next(stream: &mut TcpStream, kind: u8) -> Frame {
    loop {
        let frame = receive(stream).unwrap_or_else(|| panic!("no frame {kind}"));
        if frame.kind == kind {
            return frame;
        }
    }
}

pub(crate) fn open(at: SocketAddr, settings: &[u8]) -> TcpStream {
    let mut stream = connect(at);
    stream.write_all(PREFACE).unwrap();
    send(&mut stream, SETTINGS, 0, 0, settings);
    stream
}

/// Sends a request of client `a`.
pub(crate) fn request(stream: &mut TcpStream, id: u32) {
    request_with(stream, id, &[]);
}

/// Sends a request of client `a` with more fields.
pub(crate) fn request_with(stream: &mut TcpStream, id: u32, fields: &[u8]) {
    let block = get(fields);
    let pieces: Vec<_> = block.chunks(16_000).collect();
    for (index, piece) in pieces.iter().enumerate() {
        let (kind, first) = match index {
            0 => (HEADERS, END_STREAM),
            _ => (CONTINUATION, 0),
        };
        let is_last = index + 1 == pieces.len();
        let last = if is_last { END_HEADERS } else { 0 };
        send(stream, kind, first | last, id, piece);
    }
}

/// A field whose value has this length.
pub(crate) fn long_field(length: u32) -> Vec<u8> {
    // A length of HPACK: 127, then the rest in groups of 7 bits.
    let mut field = b"\x00\x01b\x7f".to_vec();
    let mut rest = length - 127;
    while rest >= 128 {
        field.push((rest % 128 + 128).try_into().unwrap());
        rest /= 128;
    }
    field.push(rest.try_into().unwrap());
    field.extend(vec![b'c'; length as usize]);
    field
}

/// `GET /` of client `a`, without Huffman codes and the dynamic table.
pub(crate) fn get(more: &[u8]) -> Vec<u8> {
    let mut block = vec![0x82, 0x86, 0x84, 0x01, 1, b'a'];
    block.extend(b"\x00\x0bx-client-id\x01a");
    block.extend(more);
    block
}
