//! The client of a provider.

use core::time::Duration;

use reqwest::retry;

const CONNECT_WITHIN: Duration = Duration::from_secs(1);
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// A client that never retries by itself.
pub(crate) fn client() -> Result<reqwest::Client, String> {
    reqwest::Client::builder()
        .connect_timeout(CONNECT_WITHIN)
        .timeout(ANSWER_WITHIN)
        // Every attempt is an arrival at the provider, so it has to wait for its turn.
        .retry(retry::never())
        .no_proxy()
        .build()
        .map_err(|error| format!("no HTTP client: {error}"))
}

/// The reason for a missing answer, as text.
pub(crate) fn reason(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        "no answer in time".into()
    } else if error.is_connect() {
        "it cannot be reached".into()
    } else {
        "the answer was lost".into()
    }
}
