use std::io;
use std::sync::atomic::Ordering::Relaxed;

use http::StatusCode;
use http::uri::Authority;
use thiserror::Error;

use super::count;
use super::http1::Broken;
use super::problem::Problem;
use crate::state::Counts;

/// Why there is no response of the upstream.
#[derive(Debug, Error)]
pub(super) enum Failure {
    #[error("no connection to the upstream")]
    Connect(#[source] io::Error),
    #[error("the upstream did not accept a connection in time")]
    ConnectLate,
    #[error("the upstream closed or broke the connection before its response was there")]
    Broken(#[source] Broken),
    #[error("the upstream did not respond in time")]
    Late,
    #[error("the body of the request ended early or is malformed")]
    Upload,
    #[error("the body of the request did not come in time")]
    UploadLate,
    #[error("the upstream switched to a protocol that the client had not asked for")]
    Switched,
}

impl Failure {
    /// Counts a failure of the upstream, logs the cause once a second, and says to the client what it may know.
    pub(super) fn problem(self, counts: &Counts, upstream: &Authority) -> Problem {
        let (counter, status) = match &self {
            Self::Connect(_) | Self::Broken(_) | Self::Switched => {
                (Some(&counts.upstream_failed), StatusCode::BAD_GATEWAY)
            }
            Self::ConnectLate | Self::Late => {
                (Some(&counts.upstream_late), StatusCode::GATEWAY_TIMEOUT)
            }
            // Counted as all bad requests are.
            Self::Upload => (None, StatusCode::BAD_REQUEST),
            Self::UploadLate => (None, StatusCode::REQUEST_TIMEOUT),
        };
        if let Some(counter) = counter {
            count(counter);
        }
        let cause = Causes(&self).to_string();
        if status.is_server_error() && counts.failures.may_be_logged() {
            let all = counts.upstream_failed.load(Relaxed) + counts.upstream_late.load(Relaxed);
            tracing::warn!(%upstream, status = status.as_u16(), cause, all, "a request failed");
        } else {
            tracing::debug!(status = status.as_u16(), cause, "a request failed");
        }
        let detail = match status {
            StatusCode::BAD_GATEWAY => "the upstream failed",
            StatusCode::GATEWAY_TIMEOUT => "the upstream did not respond in time",
            StatusCode::BAD_REQUEST => "the body of the request ended early or is malformed",
            _ => "the body of the request did not come in time",
        };
        Problem::new(status, detail)
    }
}

/// An error and what it came from, in one line.
pub(super) struct Causes<'a>(pub(super) &'a dyn std::error::Error);

impl std::fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}
