//! A web server, and what can be in front of it.

use ::tower::layer::util::Identity;
use axum::Router;
use axum::routing::get;

/// What a client over HTTP sends requests to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    pub(crate) name: &'static str,
    pub(crate) router: fn() -> Router,
}

pub(crate) const BARE: Site = Site {
    name: "bare axum",
    router: hello,
};

/// What `axum` does for any layer.
pub(crate) const IDENTITY: Site = Site {
    name: "bare axum, a layer that does nothing",
    router: || hello().layer(Identity::new()),
};

pub(super) fn hello() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}
