use core::fmt;
use core::future::Future;
use core::pin::Pin;
use std::sync::Arc;

use super::script::Script;

/// The way to a server, or to a cluster of them: all that this folder knows of a client library.
///
/// Whoever replaces the library implements this and [`Link`].
pub(super) trait Store: fmt::Debug + Send + Sync {
    /// Connects anew. Whoever calls it sees to it that it does not take for ever.
    fn connect(&self) -> Boxed<'_, Arc<dyn Link>>;
}

/// An open connection, which many calls share.
///
/// A call that is dropped may have been carried out or not.
pub(super) trait Link: Send + Sync {
    /// Runs a script, once: what may have been carried out is not tried again. The answer begins with the server's time.
    fn call<'a>(&'a self, call: &'a Call) -> Boxed<'a, Vec<i64>>;

    /// What time it is there, in microseconds since 1970.
    fn time(&self) -> Boxed<'_, u64>;

    /// Which run of a server it is; `None` of a cluster, and where it is not told.
    fn run(&self) -> Boxed<'_, Option<Run>>;
}

pub(super) type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

/// A script and what it is given.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) script: &'static Script,
    pub(super) keys: Arc<[String]>,
    pub(super) args: Vec<Arg>,
}

/// Something a script is given.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Arg {
    Number(u64),
    Word(&'static str),
    Text(Arc<str>),
}

impl From<u64> for Arg {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Arg {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<&'static str> for Arg {
    fn from(word: &'static str) -> Self {
        Self::Word(word)
    }
}

/// Who answers, and what time it is there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Hello {
    /// The run of the server. Unknown of a cluster, and where it is not told.
    pub(super) run: Option<Run>,
    /// In microseconds since 1970.
    pub(super) time: u64,
}

/// From a start of a server to its end.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Run {
    pub(super) id: String,
    /// For how long, in whole seconds.
    pub(super) uptime: u64,
}

/// Why there is no answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Failure {
    /// There was none in time. The call may have been carried out.
    Timeout,
    /// There is no connection, or it broke. The call may have been carried out.
    Unreachable(Arc<str>),
    /// The server is there and cannot serve: it loads, is a replica now, or has lost its cluster. It was not carried out.
    Unavailable(Arc<str>),
    /// The server refuses *this* call, and would refuse it again: a wrong type, keys in two slots, no permission.
    Fault(Arc<str>),
}

impl Failure {
    /// Whether the server is well.
    pub(super) const fn is_fault(&self) -> bool {
        matches!(self, Self::Fault(_))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("no answer in time"),
            Self::Unreachable(why) => write!(f, "cannot be reached: {why}"),
            Self::Unavailable(why) => write!(f, "cannot serve now: {why}"),
            Self::Fault(why) => write!(f, "refused: {why}"),
        }
    }
}

/// How a call ended without an answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum NoAnswer {
    /// It was made, and failed.
    Failed(Failure),
    /// It was not made: Redis is down.
    Skipped,
}
