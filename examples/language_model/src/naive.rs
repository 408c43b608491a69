//! The client without a limit.

#![expect(clippy::disallowed_methods, reason = "it does without the library")]

use core::time::Duration;

use tokio::time::sleep;

use crate::{client::Http, provider::Prompt, run::Caller};

/// How often it tries a call, and how long it waits in between.
const TRIES: u32 = 3;
const WAIT: Duration = Duration::from_millis(200);

/// A client that sends at once, and tries again after a short time.
#[derive(Debug)]
pub(crate) struct Naive {
    pub(crate) http: Http,
}

impl Caller for Naive {
    async fn call(&self, prompt: &Prompt) -> Result<bool, String> {
        for _ in 0..TRIES {
            if self.http.send(prompt, 0).await?.tokens.is_some() {
                return Ok(true);
            }
            sleep(WAIT).await;
        }
        Ok(false)
    }
}
