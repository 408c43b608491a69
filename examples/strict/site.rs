//! A provider's HTTP server on loopback, in its own thread and runtime.

#![expect(
    clippy::disallowed_types,
    reason = "a provider has a clock of its own; sharing the library's would share its mistakes"
)]

use core::{future::Future, time::Duration};
use std::{io, net::TcpListener, thread, time::Instant};

use axum::{
    Router,
    extract::Request,
    http::{StatusCode, header::RETRY_AFTER},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    serve::ListenerExt,
};
use tokio::runtime;

/// The time of a request, taken before its body is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival(pub(crate) Instant);

/// Listens on a free port.
pub(crate) fn listen() -> io::Result<TcpListener> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Runs the servers until the program ends.
pub(crate) fn in_background<F>(serving: F) -> io::Result<()>
where
    F: Future<Output: Send> + Send + 'static,
{
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    thread::Builder::new()
        .name("providers".into())
        .spawn(move || runtime.block_on(serving))?;
    Ok(())
}

/// Serves these routes, and stamps each request with its [`Arrival`].
pub(crate) async fn serve(listener: TcpListener, router: Router) -> io::Result<()> {
    // Small answers leave at once.
    let listener = tokio::net::TcpListener::from_std(listener)?.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, router.layer(middleware::from_fn(stamp))).await
}

/// The answer to a request that came too soon, with the time to wait.
pub(crate) fn refused(wait: Duration) -> Response {
    // If it were rounded down, the client would come too soon again.
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    (
        StatusCode::TOO_MANY_REQUESTS,
        [(RETRY_AFTER, seconds.to_string())],
    )
        .into_response()
}

async fn stamp(mut request: Request, next: Next) -> Response {
    request.extensions_mut().insert(Arrival(Instant::now()));
    next.run(request).await
}
