//! The provider that the programs of `docs/http-clients.md` call. They run as doctests of this package.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::IntoResponse;
use tokio::net::TcpListener;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/http-clients.md")]
mod http_clients {}

/// Starts a server on a free port of this machine, and returns its URL. It refuses the second request with 429 and `Retry-After: 1`, and
/// answers all others with 200.
///
/// # Errors
///
/// If there is no free port.
pub async fn refusing_once() -> io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    let arrivals = Arc::new(AtomicU32::new(0));
    let answer = async move || {
        if arrivals.fetch_add(1, Ordering::Relaxed) == 1 {
            (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, "1")]).into_response()
        } else {
            StatusCode::OK.into_response()
        }
    };
    let router = Router::new().fallback(answer);
    tokio::spawn(axum::serve(listener, router).into_future());
    Ok(url)
}
