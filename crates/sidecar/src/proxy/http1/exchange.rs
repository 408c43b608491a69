use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::SizeHint;
use tokio::net::TcpStream;
use tokio::task::spawn_local;
use tokio_util::task::AbortOnDropHandle;

use super::Broken;
use super::connection::{Connection, Writer};
use super::framing::Framing;
use super::head::{self, Head};
use super::pool::Pool;
use super::send::{Sending, UploadFailed};
use crate::config::Timeouts;
use crate::proxy::Polled;
use crate::proxy::failure::Failure;
use crate::proxy::patience::Patience;
use crate::proxy::upload::Upload;

/// A request on a connection, until the head of its response is there.
#[derive(Debug)]
pub(crate) struct Exchange {
    connection: Box<Connection>,
    sending: Sending,
    method: Method,
    framing: Framing,
    /// Whether the service keeps the connection.
    is_kept: bool,
}

/// The body of a response on its way from the service.
#[derive(Debug)]
pub(crate) struct Incoming {
    connection: Box<Connection>,
    framing: Framing,
    /// Whether the connection can have another request.
    is_kept: bool,
    /// Sends what is left of the request. A task of its own: the client may read nothing before it has sent everything.
    rest: Option<AbortOnDropHandle<()>>,
}

impl Exchange {
    pub(crate) fn new(mut connection: Box<Connection>, mut request: Box<Request<Upload>>) -> Self {
        connection.begin();
        let method = request.method().clone();
        let sending = Sending::new(&mut request, &mut connection.writer.borrow_mut());
        // Cleared now: its fields are parts of what the client's connection has read, whose memory is free then.
        request.headers_mut().clear();
        connection.reader.headers = std::mem::take(request.headers_mut());
        Self {
            connection,
            sending,
            method,
            framing: Framing::OVER,
            is_kept: false,
        }
    }

    /// Whether the service may have closed a kept connection before it saw the request.
    pub(crate) fn is_unseen(&self) -> bool {
        self.connection.is_reused && !self.connection.reader.has_received
    }

    /// Moves the request, which has no body, to another connection.
    pub(crate) fn move_to(&mut self, mut connection: Box<Connection>) {
        connection.begin();
        let head = self.connection.writer.borrow_mut().take_front();
        connection.writer.borrow_mut().front = head;
        self.connection = connection;
    }

    /// Sends the request, and waits for the head of the response.
    pub(crate) async fn response(&mut self, timeouts: &Timeouts) -> Result<Response<()>, Failure> {
        let head = poll_fn(|cx| self.poll(cx, timeouts)).await?;
        self.framing = head.framing;
        self.is_kept = head.is_kept;
        Ok(head.response)
    }

    fn poll(&mut self, cx: &mut Context<'_>, timeouts: &Timeouts) -> Poll<Result<Head, Failure>> {
        let has_failed = loop {
            let sent = self.poll_send(cx);
            let is_waiting = self.sending.is_waiting();
            let has_failed = matches!(sent, Poll::Ready(Err(UploadFailed)));
            if let Poll::Ready(head) = self.poll_head(cx) {
                return Poll::Ready(head.map_err(|broken| {
                    if has_failed {
                        Failure::Upload
                    } else {
                        Failure::Broken(broken)
                    }
                }));
            }
            if is_waiting == self.sending.is_waiting() {
                break has_failed;
            }
        };
        if has_failed {
            return Poll::Ready(Err(Failure::Upload));
        }
        let late = ready!(self.poll_late(cx, timeouts));
        if matches!(late, Failure::UploadLate) {
            self.sending.give_up();
        }
        Poll::Ready(Err(late))
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), UploadFailed>> {
        let mut writer = self.connection.writer.borrow_mut();
        if self.sending.is_over(&writer) {
            return Poll::Ready(Ok(()));
        }
        self.sending.poll(&mut writer, cx)
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Head, Broken>> {
        let reader = &mut self.connection.reader;
        loop {
            if !reader.received.is_empty()
                && let Some(head) =
                    head::parse(&mut reader.received, &self.method, &mut reader.headers)?
            {
                match head.response.status() {
                    StatusCode::CONTINUE => self.sending.go_on(),
                    StatusCode::SWITCHING_PROTOCOLS => return Poll::Ready(Ok(head)),
                    // hyper's server cannot send it.
                    status if status.is_informational() => {}
                    _ => return Poll::Ready(Ok(head)),
                }
            } else if ready!(reader.poll_fill(cx))? == 0 {
                return Poll::Ready(Err(Broken::Closed));
            }
        }
    }

    /// Ready when nothing has moved for too long.
    fn poll_late(&mut self, cx: &mut Context<'_>, timeouts: &Timeouts) -> Poll<Failure> {
        let (side, limit, late) = if self.sending.awaits_client {
            (0, timeouts.body, Failure::UploadLate)
        } else if self.connection.writer.borrow().is_stuck() {
            (1, timeouts.body, Failure::Late)
        } else {
            (2, timeouts.response, Failure::Late)
        };
        // What counts as quiet changes with the side that is awaited.
        let moved = self.sending.moved * 3 + side;
        let patience = &mut self.connection.patience;
        ready!(patience.poll_over(cx, moved, limit));
        Poll::Ready(late)
    }

    /// The body of the response.
    pub(crate) fn into_incoming(mut self) -> Incoming {
        self.connection.patience.begin();
        let mut writer = self.connection.writer.borrow_mut();
        let is_sent = self.sending.is_over(&writer);
        if is_sent {
            writer.forget_front();
        }
        drop(writer);
        let rest = (!is_sent && !self.framing.is_over()).then(|| {
            let writer = Rc::clone(&self.connection.writer);
            AbortOnDropHandle::new(spawn_local(send_rest(writer, self.sending)))
        });
        Incoming {
            connection: self.connection,
            framing: self.framing,
            is_kept: self.is_kept && (is_sent || rest.is_some()),
            rest,
        }
    }

    /// The socket of a connection that is no longer one of HTTP, and what was read of it already.
    pub(crate) fn into_parts(self) -> Option<(TcpStream, Bytes)> {
        let is_sent = self.sending.is_over(&self.connection.writer.borrow());
        if !is_sent {
            return None;
        }
        self.connection.into_parts()
    }
}

async fn send_rest(writer: Rc<RefCell<Writer>>, mut sending: Sending) {
    poll_fn(|cx| {
        let mut writer = writer.borrow_mut();
        writer.is_broken |= ready!(sending.poll(&mut writer, cx)).is_err();
        Poll::Ready(())
    })
    .await;
}

impl Incoming {
    /// All of the body, if it is here already.
    pub(crate) fn whole(&mut self) -> Option<Bytes> {
        let Framing::Length(length) = self.framing else {
            return None;
        };
        let length = usize::try_from(length).ok()?;
        let received = &mut self.connection.reader.received;
        (length <= received.len()).then(|| {
            self.framing = Framing::OVER;
            received.split_to(length)
        })
    }

    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Polled<Broken> {
        let reader = &mut self.connection.reader;
        loop {
            if let Some(frame) = self.framing.next(&mut reader.received)? {
                return Poll::Ready(Some(Ok(frame)));
            }
            if self.framing.is_over() {
                return Poll::Ready(None);
            }
            if ready!(reader.poll_fill(cx)).map_err(Broken::Io)? == 0 {
                if self.framing != Framing::Close {
                    return Poll::Ready(Some(Err(Broken::Closed)));
                }
                self.framing = Framing::OVER;
            }
        }
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.framing.is_over()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        self.framing.size_hint()
    }

    pub(crate) fn patience(&mut self) -> &mut Patience {
        &mut self.connection.patience
    }

    /// The response is complete: the connection is for the next request, unless there is something left of this one.
    pub(crate) fn finish(self, pool: &Rc<Pool>) {
        let is_sent = self.rest.as_ref().is_none_or(|rest| rest.is_finished());
        let is_kept = self.is_kept && is_sent && !self.connection.writer.borrow().is_broken;
        if is_kept && self.connection.reader.received.is_empty() {
            pool.put(self.connection);
        }
    }
}
