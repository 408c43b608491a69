use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Request;
use http::header::CONTENT_LENGTH;
use http_body::{Body, Frame};

use super::connection::Writer;
use super::head;
use crate::proxy::upload::{Upload, UploadError};

/// A request on its way to the service.
#[derive(Debug)]
pub(super) struct Sending {
    upload: Upload,
    coding: Coding,
    is_complete: bool,
    /// How often something moved.
    pub(super) moved: u64,
    /// Whether the client has to send more.
    pub(super) awaits_client: bool,
}

#[derive(Clone, Copy, Debug)]
enum Coding {
    /// Bytes that are still to come.
    Length(u64),
    Chunked,
}

/// The body of the request failed.
#[derive(Debug)]
pub(super) struct UploadFailed;

impl Sending {
    /// Writes the head down. It is sent with the first part of the body, if that is here.
    pub(super) fn new(request: &mut Request<Upload>, writer: &mut Writer) -> Self {
        let head = &mut writer.front;
        head::write(head, request);
        let length = request.body().size_hint().exact();
        // To write to a `Vec` does not fail.
        let _ = match length {
            Some(0) if !request.headers().contains_key(CONTENT_LENGTH) => write!(head, "\r\n"),
            Some(length) => write!(head, "content-length: {length}\r\n\r\n"),
            None => write!(head, "transfer-encoding: chunked\r\n\r\n"),
        };
        Self {
            is_complete: length == Some(0),
            coding: length.map_or(Coding::Chunked, Coding::Length),
            upload: std::mem::take(request.body_mut()),
            moved: 0,
            awaits_client: false,
        }
    }

    pub(super) fn go_on(&mut self) {
        self.upload.go_on();
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.upload.is_waiting()
    }

    /// The client is late, so nothing more is read of it.
    pub(super) fn give_up(&mut self) {
        self.upload.give_up();
    }

    /// Whether the service has been sent all of it.
    pub(super) fn is_over(&self, writer: &Writer) -> bool {
        self.is_complete && writer.is_empty()
    }

    /// Sends what there is. Ready when all is sent, or when the client has broken its body.
    pub(super) fn poll(
        &mut self,
        writer: &mut Writer,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), UploadFailed>> {
        loop {
            if !self.is_complete && writer.body.is_empty() && !writer.is_broken {
                let polled = Pin::new(&mut self.upload).poll_frame(cx);
                self.awaits_client = polled.is_pending() && !self.upload.is_waiting();
                match polled {
                    Poll::Ready(frame) => self.encode(frame, writer)?,
                    Poll::Pending if writer.is_empty() => return Poll::Pending,
                    Poll::Pending => {}
                }
            }
            ready!(writer.poll_send(cx));
            self.moved += 1;
            if self.is_complete {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Writes down the next part of the body, or its end.
    fn encode(
        &mut self,
        frame: Option<Result<Frame<Bytes>, UploadError>>,
        writer: &mut Writer,
    ) -> Result<(), UploadFailed> {
        let frame = frame.transpose().map_err(|_| UploadFailed)?;
        let front = writer.next_front();
        // To write to a `Vec` does not fail.
        match (frame.map(Frame::into_data), &mut self.coding) {
            (Some(Ok(data)), Coding::Length(left)) => {
                *left = left.checked_sub(data.len() as u64).ok_or(UploadFailed)?;
                self.is_complete = *left == 0;
                writer.body = data;
            }
            (Some(Ok(data)), Coding::Chunked) => {
                // A chunk without bytes is the end.
                if !data.is_empty() {
                    let _ = write!(front, "{:x}\r\n", data.len());
                    writer.body = data;
                    writer.back = b"\r\n";
                }
            }
            (Some(Err(_)), Coding::Length(_)) => {}
            (Some(Err(frame)), Coding::Chunked) => {
                front.extend_from_slice(b"0\r\n");
                let trailers = frame.into_trailers().unwrap_or_default();
                head::write_fields(front, &trailers);
                front.extend_from_slice(b"\r\n");
                self.is_complete = true;
            }
            (None, Coding::Chunked) => {
                front.extend_from_slice(b"0\r\n\r\n");
                self.is_complete = true;
            }
            (None, Coding::Length(_)) => return Err(UploadFailed),
        }
        Ok(())
    }
}
