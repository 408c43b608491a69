//! The providers' HTTP servers, on loopback, in one thread.

#![expect(
    clippy::disallowed_types,
    reason = "a provider has a clock of its own; sharing the library's would share its mistakes"
)]

use core::future::{Ready, ready};
use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use axum::{
    Extension, Json, Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderValue, StatusCode},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use futures::{future::join_all, stream};
use serde_json::json;

use super::{
    Name, Quota,
    books::{Books, Figures, Lowering},
    judge::Judge,
};
use crate::{
    message::Wire,
    segments::segments,
    strict::{self, Arrival, refused},
};

/// A header of draft-ietf-httpapi-ratelimit-headers: the quota and its window in whole seconds.
const RATELIMIT_POLICY: &str = "ratelimit-policy";
/// With `lose_answers`, one answer in this number is lost.
const LOST: u32 = 20;

/// Faults that the providers simulate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// This provider answers 503 to every request.
    pub(crate) down: Option<Name>,
    /// This provider accepts messages and drops every twentieth answer.
    pub(crate) lose_answers: Option<Name>,
    /// A provider with a lower quota applies it once it has accepted this number of messages.
    pub(crate) lower_after: Option<usize>,
}

/// A running provider: its address and its records.
#[derive(Clone, Debug)]
pub(crate) struct Provider {
    pub(crate) name: Name,
    pub(crate) address: SocketAddr,
    books: Arc<Mutex<Books>>,
    down: bool,
    lose_answers: bool,
}

/// Starts all three providers.
pub(crate) fn start(faults: Faults) -> io::Result<Vec<Provider>> {
    let mut providers = Vec::new();
    let mut listeners = Vec::new();
    for name in Name::ALL {
        let listener = strict::listen()?;
        providers.push(Provider::new(
            name,
            listener.local_addr()?,
            faults,
            Instant::now(),
        ));
        listeners.push(listener);
    }
    let sites: Vec<_> = providers.iter().cloned().zip(listeners).collect();
    strict::in_background(join_all(
        sites
            .into_iter()
            .map(|(provider, listener)| provider.serve(listener)),
    ))?;
    Ok(providers)
}

impl Provider {
    pub(super) fn new(name: Name, address: SocketAddr, faults: Faults, start: Instant) -> Self {
        let quota = name.quota();
        let phase = quota.window.mul_f64(fastrand::f64());
        let judge = Judge::new(quota.units, quota.window, start, phase);
        let lowered = name.lowered().zip(faults.lower_after);
        let lowering = lowered.map(|((quota, _), after)| Lowering { after, quota });
        Self {
            name,
            address,
            books: Arc::new(Mutex::new(Books::new(name, judge, lowering))),
            down: faults.down == Some(name),
            lose_answers: faults.lose_answers == Some(name),
        }
    }

    pub(crate) fn figures(&self) -> Figures {
        self.books().figures()
    }

    async fn serve(self, listener: TcpListener) -> io::Result<()> {
        let router = Router::new()
            .route("/ping", get(Self::ping))
            .route(self.name.path(), post(Self::take))
            .with_state(self);
        strict::serve(listener, router).await
    }

    /// A request that is not counted. Clients use it to measure round trips.
    fn ping(State(provider): State<Self>) -> Ready<StatusCode> {
        let status = if provider.down {
            StatusCode::SERVICE_UNAVAILABLE
        } else {
            StatusCode::NO_CONTENT
        };
        ready(status)
    }

    #[expect(clippy::needless_pass_by_value, reason = "extractors come by value")]
    fn take(
        State(provider): State<Self>,
        Extension(arrival): Extension<Arrival>,
        body: Bytes,
    ) -> Ready<Response> {
        ready(provider.answer(arrival, &body))
    }

    pub(super) fn answer(&self, arrival: Arrival, body: &[u8]) -> Response {
        if self.down {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
        let Some(request) = self.parse(body) else {
            return StatusCode::BAD_REQUEST.into_response();
        };
        let mut books = self.books();
        let mut response = match books.take(arrival.0, request) {
            Err(wait) => refused(wait),
            Ok(_) if self.lose_answers && books.answers() % LOST == 0 => lost(),
            Ok(accepted) => Json(json!({ "accepted": accepted })).into_response(),
        };
        // The client knows the contract, whose window is no whole number of seconds. Only another quota is announced.
        if let Some(quota) = books.lowered() {
            response
                .headers_mut()
                .insert(RATELIMIT_POLICY, policy(quota));
        }
        response
    }

    fn parse(&self, body: &[u8]) -> Option<Vec<Wire<'static>>> {
        let quota = self.name.quota();
        let request: Vec<Wire<'static>> = match self.name {
            Name::Bulk => serde_json::from_slice(body).ok()?,
            Name::Solo | Name::Segments => vec![serde_json::from_slice(body).ok()?],
        };
        let fits = request
            .iter()
            .all(|message| segments(&message.text) <= quota.max_segments);
        (fits && (1..=quota.batch).contains(&request.len())).then_some(request)
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn policy(quota: Quota) -> HeaderValue {
    let (units, seconds) = (quota.units, quota.window.as_secs());
    let policy = format!(r#""default";q={units};w={seconds}"#);
    HeaderValue::try_from(policy).expect("digits and quotes are fine in a header")
}

/// A body that fails at once. The connection closes, and the client cannot know whether its request was accepted.
fn lost() -> Response {
    Response::new(Body::from_stream(stream::iter([Err::<Bytes, _>(
        io::Error::other("lost"),
    )])))
}
