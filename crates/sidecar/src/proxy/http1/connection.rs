use std::cell::RefCell;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::buffer::{Buffers, LARGE, Large, SMALL};
use crate::proxy::patience::Patience;

/// A connection to the service.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) reader: Reader,
    pub(super) writer: Rc<RefCell<Writer>>,
    pub(super) patience: Patience,
    /// Whether it has had a request before.
    pub(super) is_reused: bool,
}

/// What the service sends.
#[derive(Debug)]
pub(super) struct Reader {
    socket: OwnedReadHalf,
    buffers: Rc<Buffers>,
    /// Read, and not yet used.
    pub(super) received: Bytes,
    /// For the fields of the next head.
    pub(super) headers: HeaderMap,
    /// Whether anything came since the request was sent.
    pub(super) has_received: bool,
    /// Whether the last read filled a buffer, so that a larger one is of use.
    has_filled: bool,
}

/// What is sent to the service.
///
/// A write that fails does not end the connection: a service that answers early and closes is still read to its end, where a failed
/// write would hide its answer.
#[derive(Debug)]
pub(super) struct Writer {
    socket: OwnedWriteHalf,
    /// Heads, and what stands before a chunk.
    pub(super) front: Vec<u8>,
    /// How much of that is sent.
    sent: usize,
    pub(super) body: Bytes,
    /// What stands after a chunk.
    pub(super) back: &'static [u8],
    pub(super) is_broken: bool,
}

impl Connection {
    pub(crate) fn new(socket: TcpStream, buffers: Rc<Buffers>, patience: Patience) -> Self {
        let (reader, writer) = socket.into_split();
        Self {
            reader: Reader {
                socket: reader,
                buffers,
                received: Bytes::new(),
                headers: HeaderMap::new(),
                has_received: false,
                has_filled: false,
            },
            writer: Rc::new(RefCell::new(Writer {
                socket: writer,
                front: Vec::new(),
                sent: 0,
                body: Bytes::new(),
                back: b"",
                is_broken: false,
            })),
            patience,
            is_reused: false,
        }
    }

    /// Whether nothing came since the last response: neither the end of the connection nor a byte that nothing asked for.
    pub(super) fn is_quiet(&self) -> bool {
        let read = self.reader.socket.try_read(&mut [0]);
        self.reader.received.is_empty()
            && read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// The next request begins.
    pub(super) fn begin(&mut self) {
        self.patience.begin();
        self.reader.has_received = false;
        self.reader.has_filled = false;
        self.writer.borrow_mut().forget_front();
    }

    /// The socket, and what was read of it already.
    pub(super) fn into_parts(self) -> Option<(TcpStream, Bytes)> {
        let writer = Rc::into_inner(self.writer)?.into_inner();
        let socket = self.reader.socket.reunite(writer.socket).ok()?;
        Some((socket, self.reader.received))
    }
}

impl Reader {
    /// Reads more, after what is there. Ready with 0 at the end.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if !self.received.is_empty() {
            // A buffer only when there is something for it.
            ready!(self.socket.as_ref().poll_read_ready(cx))?;
            let mut all = BytesMut::with_capacity(self.received.len() + SMALL);
            all.extend_from_slice(&self.received);
            let read = ready!(pin!(self.socket.read_buf(&mut all)).poll(cx))?;
            self.received = all.freeze();
            return Poll::Ready(Ok(read));
        }
        let large = if self.has_filled {
            ready!(self.socket.as_ref().poll_read_ready(cx))?;
            Large::lend()
        } else {
            None
        };
        let read = ready!(match large {
            Some(large) => self.poll_large(cx, large),
            None => self.poll_small(cx),
        })?;
        self.has_received |= read > 0;
        self.has_filled = read >= SMALL;
        Poll::Ready(Ok(read))
    }

    fn poll_small(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut small = self.buffers.small.borrow_mut();
        small.reserve(SMALL);
        let read = ready!(pin!(self.socket.read_buf(&mut *small)).poll(cx))?;
        self.received = if read < SMALL / 2 {
            // Copied: each part that a slow client leaves would keep a whole buffer.
            let part = Bytes::copy_from_slice(&small);
            small.clear();
            part
        } else {
            small.split().freeze()
        };
        Poll::Ready(Ok(read))
    }

    fn poll_large(&mut self, cx: &mut Context<'_>, mut large: Large) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(&mut large.bytes[..LARGE]);
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut buffer))?;
        let read = buffer.filled().len();
        large.filled = read;
        self.received = Bytes::from_owner(large);
        Poll::Ready(Ok(read))
    }
}

impl Writer {
    pub(super) fn is_empty(&self) -> bool {
        self.sent == self.front.len() && self.body.is_empty() && self.back.is_empty()
    }

    /// Whether the service does not take what there is.
    pub(super) fn is_stuck(&self) -> bool {
        !self.is_empty() && !self.is_broken
    }

    /// Takes what was written down last, to send it again.
    pub(super) fn take_front(&mut self) -> Vec<u8> {
        self.sent = 0;
        std::mem::take(&mut self.front)
    }

    /// Where the next part is written, when what was there before is sent.
    pub(super) fn next_front(&mut self) -> &mut Vec<u8> {
        if self.sent == self.front.len() {
            self.forget_front();
        }
        &mut self.front
    }

    /// What was there before is of no more use. After a long head its memory is not kept.
    pub(super) fn forget_front(&mut self) {
        self.sent = 0;
        self.front.clear();
        self.front.shrink_to(SMALL);
    }

    /// Sends what there is. Ready when all of it is sent; never ready after a failure.
    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while !self.is_empty() {
            if self.is_broken {
                return Poll::Pending;
            }
            let front = &self.front[self.sent..];
            let socket = Pin::new(&mut self.socket);
            let sent = if self.body.is_empty() && self.back.is_empty() {
                socket.poll_write(cx, front)
            } else {
                let all = [front, &self.body, self.back].map(IoSlice::new);
                socket.poll_write_vectored(cx, &all)
            };
            match ready!(sent) {
                Ok(sent @ 1..) => self.advance(sent),
                Ok(0) | Err(_) => self.is_broken = true,
            }
        }
        Poll::Ready(())
    }

    fn advance(&mut self, mut sent: usize) {
        let front = sent.min(self.front.len() - self.sent);
        self.sent += front;
        sent -= front;
        let body = sent.min(self.body.len());
        self.body.advance(body);
        if self.body.is_empty() {
            // It lets go of the buffer of the client.
            self.body = Bytes::new();
        }
        self.back = &self.back[sent - body..];
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;
    use crate::config::Timeouts;

    #[tokio::test]
    async fn a_small_part_that_a_client_leaves_does_not_keep_the_buffer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).await;
        let (mut service, _) = listener.accept().await.unwrap();
        let second = Duration::from_secs(1);
        let patience = Patience::new(&Timeouts {
            head: second,
            between: second,
            body: second,
            queue: second,
            connect: second,
            response: second,
            upstream_idle: second,
        });
        let buffers = Rc::<Buffers>::default();
        let mut connection = Connection::new(socket.unwrap(), Rc::clone(&buffers), patience);
        let (mut left, mut places) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            service.write_all(b"part").await.unwrap();
            let read = poll_fn(|cx| connection.reader.poll_fill(cx)).await;
            assert_eq!(read.unwrap(), 4);
            left.push(std::mem::take(&mut connection.reader.received));
            places.push(buffers.small.borrow().as_ptr());
        }
        assert_eq!(left, ["part"; 3]);
        assert_eq!(places, [places[0]; 3], "each part has kept its buffer");
    }
}
