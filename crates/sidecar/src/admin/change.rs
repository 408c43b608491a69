//! `POST /mode` and `POST /reload`.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use paceline::limiter::Share;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use crate::config::{self, Mode};
use crate::state::Sidecar;

use super::PATIENCE;
use super::access::media_type;
use super::answer::{self, Answer, problem};
use super::view::percent;

/// The largest body of a change.
const BODY_BYTES: usize = 4 * 1024;

/// The status and the reason of a refusal.
type Refusal = (StatusCode, String);

/// What `POST /mode` takes. What is absent stays.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    mode: Option<Mode>,
    /// The enforced part of the clients, in percent.
    share: Option<u32>,
}

/// Changes the mode, the enforced part of the clients, or both, until the next reload.
pub(super) async fn mode(sidecar: &Sidecar, request: Request<Incoming>) -> Answer {
    let change = read(request).await;
    match change.and_then(|change| apply(sidecar, &change)) {
        Ok(now) => answer::json(&now),
        Err((status, detail)) => problem(status, &detail),
    }
}

/// Reads the configuration again. A bad one is refused with every line that is wrong, and the old one stays.
pub(super) async fn reload(sidecar: &Sidecar, request: Request<Incoming>) -> Answer {
    // It says nothing. Unread, it could cost the client the answer.
    if let Err((status, detail)) = body(request).await {
        return problem(status, &detail);
    }
    match config::reload(sidecar, &sidecar.source) {
        Ok(()) => answer::json(&json!({ "reloaded": true })),
        Err(errors) => problem(StatusCode::UNPROCESSABLE_ENTITY, &errors.to_string()),
    }
}

fn apply(sidecar: &Sidecar, change: &Change) -> Result<Value, Refusal> {
    let share = change.share.map(Share::try_percent).transpose();
    let share = share.map_err(|error| bad(format!("share: {error}")))?;
    if change.mode.is_none() && share.is_none() {
        return Err(bad("there is neither mode nor share"));
    }
    let config = sidecar.change_config(|config| config.change(change.mode, share));
    let now = json!({ "mode": config.mode, "share": percent(config.enforced) });
    let (mode, share) = (now["mode"].as_str(), now["share"].as_f64());
    tracing::info!(mode, share, "the mode was changed");
    Ok(now)
}

async fn read(request: Request<Incoming>) -> Result<Change, Refusal> {
    let content_type = request.headers().get(CONTENT_TYPE);
    let is_form = match content_type.map(|value| media_type(value.as_bytes())) {
        Some(b"application/json") => false,
        Some(b"application/x-www-form-urlencoded") => true,
        _ => {
            let detail =
                "content-type has to be application/json or application/x-www-form-urlencoded";
            return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, detail.to_owned()));
        }
    };
    let body = body(request).await?;
    let change = if is_form {
        form(&body).and_then(|form| serde_json::from_value(form).map_err(|error| error.to_string()))
    } else {
        serde_json::from_slice(&body).map_err(|error| error.to_string())
    };
    change.map_err(bad)
}

async fn body(request: Request<Incoming>) -> Result<Bytes, Refusal> {
    let body = Limited::new(request.into_body(), BODY_BYTES).collect();
    match timeout(PATIENCE, body).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            let detail = format!("the body has more than {BODY_BYTES} bytes");
            Err((StatusCode::PAYLOAD_TOO_LARGE, detail))
        }
        Ok(Err(_)) => Err(bad("the body is broken")),
        Err(_) => {
            let detail = format!("the body is not complete after {PATIENCE:?}");
            Err((StatusCode::REQUEST_TIMEOUT, detail))
        }
    }
}

/// A form as the JSON that says the same. Neither names nor values of a change need an escape.
fn form(body: &Bytes) -> Result<Value, String> {
    let body = str::from_utf8(body).map_err(|error| error.to_string())?;
    let mut fields = Map::new();
    for field in body.trim().split('&') {
        let (name, value) = field
            .split_once('=')
            .ok_or_else(|| format!("{field:?} is not a field and a value"))?;
        let value = value
            .parse::<u32>()
            .map_or_else(|_| Value::from(value), Value::from);
        if fields.insert(name.to_owned(), value).is_some() {
            return Err(format!("{name} is there twice"));
        }
    }
    Ok(Value::Object(fields))
}

fn bad(detail: impl Into<String>) -> Refusal {
    (StatusCode::BAD_REQUEST, detail.into())
}
