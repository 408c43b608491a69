use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

use super::body::Body;
use super::failure::{Causes, Failure};
use super::fields;

/// The upstream has switched protocols, as `asked` by the client: what each side sends goes to the other one, until both have ended.
pub(super) fn open(
    asked: Option<(HeaderValue, OnUpgrade)>,
    mut response: Response<Incoming>,
) -> Result<Response<Body>, Failure> {
    let switched = response.headers().get(UPGRADE).cloned();
    let (Some((asked, client)), Some(switched)) = (asked, switched) else {
        return Err(Failure::Switched);
    };
    if !asked.as_bytes().eq_ignore_ascii_case(switched.as_bytes()) {
        return Err(Failure::Switched);
    }
    tokio::spawn(run(client, hyper::upgrade::on(&mut response)));
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
