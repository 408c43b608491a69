//! Sends prompts to the provider and reads its answers. It neither paces nor retries.

use core::{net::SocketAddr, time::Duration};

use paceline::feedback::Feedback;
use reqwest::{StatusCode, header::HeaderMap, retry};

use crate::provider::{Answer, Prompt, REFUSAL};

/// The answer to a prompt, and what its headers say.
#[derive(Debug)]
pub(crate) struct Reply {
    /// What the call has cost; `None` if it was refused.
    pub(crate) tokens: Option<u32>,
    /// The number of the refusal.
    pub(crate) refusal: u32,
    /// Of all limits.
    pub(crate) feedback: Feedback,
    /// Of the limit of tokens alone.
    pub(crate) token_feedback: Feedback,
}

/// An HTTP client of the provider.
#[derive(Debug)]
pub(crate) struct Http {
    client: reqwest::Client,
    url: String,
}

impl Http {
    pub(crate) fn new(provider: SocketAddr) -> Result<Self, String> {
        // Every attempt is a request that counts, so it has to pass the limit.
        let client = reqwest::Client::builder().retry(retry::never()).no_proxy();
        Ok(Self {
            client: client.build().map_err(|error| reason(&error))?,
            url: format!("http://{provider}/v1/completions"),
        })
    }

    /// Sends a prompt. `known` is the latest refusal that the caller knows of.
    pub(crate) async fn send(&self, prompt: &Prompt, known: u32) -> Result<Reply, String> {
        let post = self.client.post(&self.url).header(REFUSAL, known);
        let response = post
            .json(prompt)
            .send()
            .await
            .map_err(|error| reason(&error))?;
        let headers = response.headers();
        let refusal = headers.get(REFUSAL).and_then(|number| number.to_str().ok());
        let mut reply = Reply {
            tokens: None,
            refusal: refusal
                .and_then(|number| number.parse().ok())
                .unwrap_or_default(),
            feedback: Feedback::parse(headers, Duration::ZERO),
            token_feedback: token_feedback(headers),
        };
        if response.status() != StatusCode::TOO_MANY_REQUESTS {
            let response = response
                .error_for_status()
                .map_err(|error| reason(&error))?;
            let answer: Answer = response.json().await.map_err(|error| reason(&error))?;
            reply.tokens = Some(answer.usage.total_tokens);
        }
        Ok(reply)
    }
}

/// [`Feedback::remaining`] counts requests. To read the tokens, it is given their headers as if they were the only ones.
fn token_feedback(headers: &HeaderMap) -> Feedback {
    let of_tokens = headers.iter().filter_map(|(name, value)| {
        let name = name.as_str().strip_suffix("-tokens")?;
        Some((name, value))
    });
    Feedback::parse(of_tokens, Duration::ZERO)
}

fn reason(error: &reqwest::Error) -> String {
    format!("no answer: {error:?}")
}

#[cfg(test)]
mod tests {
    use super::{Duration, HeaderMap, token_feedback};

    #[test]
    fn the_tokens_that_are_left_are_read_apart_from_the_requests() {
        let mut headers = HeaderMap::new();
        headers.insert("x-ratelimit-remaining-requests", 3.into());
        headers.insert("x-ratelimit-remaining-tokens", 1_234.into());
        headers.insert("x-ratelimit-reset-tokens", "1520ms".parse().unwrap());

        let feedback = token_feedback(&headers);
        assert_eq!(feedback.remaining(), Some(1_234));
        assert_eq!(feedback.reset_in(), Some(Duration::from_millis(1_520)));
    }
}
