//! Requests to one provider, and what its answers mean. Nothing here waits or tries again.

use core::time::Duration;

use reqwest::{Response, StatusCode, retry};

use crate::{
    message::Message,
    provider::{Name, Provider, RETRY_AFTER},
};

const CONNECT_WITHIN: Duration = Duration::from_secs(1);
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// When a 429 does not say how long.
const WAIT_ANYWAY: Duration = Duration::from_secs(1);

/// What became of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The provider has its messages, from now on or from before.
    Accepted,
    /// It came too soon. Its messages were not taken.
    TooSoon { retry_after: Duration },
    /// Nobody knows; the reason is for people.
    Failed(String),
}

/// One provider's HTTP client.
#[derive(Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    name: Name,
    base: String,
}

impl Client {
    pub(crate) fn new(provider: &Provider) -> Result<Self, String> {
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_WITHIN)
            .timeout(ANSWER_WITHIN)
            // Every attempt is an arrival: it has to take its turn, not be made behind our back.
            .retry(retry::never())
            .no_proxy()
            .build()
            .map_err(|error| format!("no HTTP client: {error}"))?;
        Ok(Self {
            http,
            name: provider.name,
            base: format!("http://{}", provider.address),
        })
    }

    /// An uncounted trip there and back; whether it came back.
    pub(crate) async fn ping(&self) -> bool {
        self.http
            .get(format!("{}/ping", self.base))
            .send()
            .await
            .is_ok()
    }

    pub(crate) async fn send(&self, request: &[&Message]) -> Answer {
        let post = self.http.post(format!("{}{}", self.base, self.name.path()));
        let post = match (self.name, request) {
            (Name::Solo | Name::Segments, [message]) => post.json(&message.wire()),
            _ => post.json(
                &request
                    .iter()
                    .map(|message| message.wire())
                    .collect::<Vec<_>>(),
            ),
        };
        match post.send().await {
            Ok(response) if response.status() == StatusCode::TOO_MANY_REQUESTS => Answer::TooSoon {
                retry_after: retry_after(&response).unwrap_or(WAIT_ANYWAY),
            },
            Ok(response) if response.status().is_success() => match response.bytes().await {
                Ok(_) => Answer::Accepted,
                Err(error) => Answer::Failed(reason(&error)),
            },
            Ok(response) => Answer::Failed(format!("it answered {}", response.status())),
            Err(error) => Answer::Failed(reason(&error)),
        }
    }
}

fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    seconds.parse().map(Duration::from_secs).ok()
}

fn reason(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        "no answer in time".into()
    } else if error.is_connect() {
        "it cannot be reached".into()
    } else {
        "the answer was lost".into()
    }
}
