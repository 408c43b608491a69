use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use tokio::io::copy_bidirectional;

use super::body::Body;
use super::failure::{Causes, Failure};
use super::fields;
use crate::state::Sidecar;

/// Both ends of an upgraded connection, as soon as they are there.
pub(super) struct Connections {
    /// `None`: the client did not ask for it.
    pub(super) client: Option<OnUpgrade>,
    pub(super) upstream: OnUpgrade,
}

/// The upstream has switched protocols: what each side sends goes to the other one, until both have ended.
pub(super) fn open(
    _sidecar: &Arc<Sidecar>,
    asked: Option<HeaderValue>,
    connections: Connections,
    mut response: Response<Incoming>,
) -> Result<Response<Body>, Failure> {
    let switched = response.headers().get(UPGRADE).cloned();
    let (Some(client), Some(asked), Some(switched)) = (connections.client, asked, switched) else {
        return Err(Failure::Switched);
    };
    if !asked.as_bytes().eq_ignore_ascii_case(switched.as_bytes()) {
        return Err(Failure::Switched);
    }
    tokio::spawn(run(client, connections.upstream));
    fields::for_client(&mut response);
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, switched);
    let mut response = response.map(|_| Body::text(String::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    Ok(response)
}

async fn run(client: OnUpgrade, upstream: OnUpgrade) {
    let (client, upstream) = match tokio::try_join!(client, upstream) {
        Ok(both) => both,
        Err(error) => {
            tracing::debug!(cause = %Causes(&error), "an upgrade failed");
            return;
        }
    };
    let mut client = TokioIo::new(client);
    let mut upstream = TokioIo::new(upstream);
    if let Err(error) = copy_bidirectional(&mut client, &mut upstream).await {
        tracing::debug!(cause = %Causes(&error), "an upgraded connection broke");
    }
}
