//! Sends requests to one provider and reads its answers. It neither paces nor retries.

#![expect(
    clippy::disallowed_types,
    reason = "the dates in headers are of the clock on the wall"
)]

use std::time::{SystemTime, UNIX_EPOCH};

use paceline::feedback::Feedback;
use reqwest::{Response, StatusCode};

use crate::{
    message::Message,
    provider::{Name, Provider},
    strict::{self, reason},
};

/// The outcome of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The provider has the messages, from this request or from an earlier one.
    Accepted,
    /// The request came too soon, and its messages were not accepted.
    TooSoon,
    /// The outcome is unknown. The text has the reason.
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
        Ok(Self {
            http: strict::client()?,
            name: provider.name,
            base: format!("http://{}", provider.address),
        })
    }

    /// Makes a round trip that is not counted, and returns whether it succeeded.
    pub(crate) async fn ping(&self) -> bool {
        self.http
            .get(format!("{}/ping", self.base))
            .send()
            .await
            .is_ok()
    }

    /// Sends a request, and returns its outcome and the feedback in the headers.
    pub(crate) async fn send(&self, request: &[&Message]) -> (Answer, Feedback) {
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
            Ok(response) => {
                let feedback = feedback(&response);
                (answer(response).await, feedback)
            }
            Err(error) => (Answer::Failed(reason(&error)), Feedback::default()),
        }
    }
}

async fn answer(response: Response) -> Answer {
    match response.status() {
        StatusCode::TOO_MANY_REQUESTS => Answer::TooSoon,
        status if status.is_success() => match response.bytes().await {
            Ok(_) => Answer::Accepted,
            Err(error) => Answer::Failed(reason(&error)),
        },
        status => Answer::Failed(format!("it answered {status}")),
    }
}

fn feedback(response: &Response) -> Feedback {
    // With a clock before 1970 no date is right.
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Feedback::parse(response.headers(), now.unwrap_or_default())
}
