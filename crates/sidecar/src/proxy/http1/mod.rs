//! The client of a service of HTTP/1.1.
//!
//! The task of the client's connection serves the service's connection too: the future that waits for the head sends the request, and
//! the body of the response reads from the socket when hyper asks for more. So nothing is queued between the two sides, and a slow
//! reader slows the service down. A response that can be read in two ways is a failure, and its connection is closed.

mod buffer;
mod connection;
mod exchange;
mod framing;
mod head;
mod pool;
mod send;
#[cfg(test)]
mod tests;

use std::io;

use thiserror::Error;

pub(super) use self::buffer::Buffers;
pub(crate) use self::buffer::{FREE, LARGE, SMALL};
pub(super) use self::connection::Connection;
pub(super) use self::exchange::{Exchange, Incoming};
pub(super) use self::pool::Pool;

/// Fields of a head, or of trailers.
const FIELDS: usize = 100;

/// Why a connection is of no more use before its response is complete.
#[derive(Debug, Error)]
pub(crate) enum Broken {
    #[error("the connection ended before the response")]
    Closed,
    #[error("the connection broke")]
    Io(#[from] io::Error),
    #[error("the head of the response is malformed")]
    Head(#[from] httparse::Error),
    #[error("{0}")]
    Malformed(&'static str),
    #[error("HTTP/2 failed")]
    Http2(#[from] hyper::Error),
}
