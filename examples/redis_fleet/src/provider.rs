//! The provider, which counts the requests that reach it, with its own code.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a provider has a clock of its own; sharing the library's would share its mistakes"
)]

mod books;

use core::{
    future::{Ready, ready},
    net::SocketAddr,
    time::Duration,
};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Instant,
};

use axum::{
    Extension, Router,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::time::sleep;

use self::books::Books;
use crate::{
    plan::Plan,
    strict::{self, Arrival, refused},
    worker::micros_now,
};

pub(crate) use self::books::{Figures, Part, Phase};

/// The time when a request was sent, in microseconds since 1970.
pub(crate) const SENT_AT: &str = "x-sent-at";

/// A running provider: its address, and its records.
#[derive(Clone, Debug)]
pub(crate) struct Provider {
    pub(crate) address: SocketAddr,
    books: Arc<Mutex<Books>>,
    ready: Arc<AtomicU32>,
    /// How long it takes to answer.
    takes: Duration,
    window: Duration,
}

impl Provider {
    pub(crate) fn start(plan: &Plan) -> Result<Self, String> {
        let listener = strict::listen().map_err(|error| format!("no provider: {error}"))?;
        let address = listener.local_addr();
        let provider = Self {
            address: address.map_err(|error| format!("no provider: {error}"))?,
            books: Arc::new(Mutex::new(Books::new(plan.requests, plan.window))),
            ready: Arc::default(),
            takes: plan.takes(),
            window: plan.window,
        };
        let router = Router::new()
            .route("/workers/{worker}", get(Self::greet).post(Self::take))
            .with_state(provider.clone());
        strict::in_background(strict::serve(listener, router))
            .map_err(|error| format!("no provider: {error}"))?;
        Ok(provider)
    }

    /// How many workers have sent a request.
    pub(crate) fn ready(&self) -> u32 {
        self.ready.load(Ordering::Relaxed)
    }

    /// Starts a phase.
    pub(crate) fn turn(&self, phase: Phase) {
        let now = Instant::now();
        self.books().turn(now, phase);
    }

    /// Ends the phase.
    pub(crate) fn close(&self) {
        let now = Instant::now();
        self.books().close(now);
    }

    /// How many requests of this worker arrived.
    pub(crate) fn arrivals_of(&self, worker: u32) -> u64 {
        self.books().arrivals_of(worker)
    }

    /// The totals. A gap of at least `silence` counts as a silence.
    pub(crate) fn figures(&self, silence: Duration) -> Figures {
        self.books().figures(silence)
    }

    /// This request is not counted.
    fn greet(State(provider): State<Self>) -> Ready<StatusCode> {
        provider.ready.fetch_add(1, Ordering::Relaxed);
        ready(StatusCode::NO_CONTENT)
    }

    async fn take(
        State(provider): State<Self>,
        Path(worker): Path<u32>,
        Extension(arrival): Extension<Arrival>,
        headers: HeaderMap,
    ) -> Response {
        let way = way(&headers).unwrap_or_default();
        let was_accepted = provider.books().arrive(arrival.0, worker, way);
        sleep(provider.takes).await;
        if was_accepted {
            "accepted".into_response()
        } else {
            refused(provider.window)
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The travel time, by the clock that all processes on this machine share; rather a little too long than too short.
fn way(headers: &HeaderMap) -> Option<Duration> {
    let sent_at: u64 = headers.get(SENT_AT)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_micros(micros_now().saturating_sub(sent_at)))
}
