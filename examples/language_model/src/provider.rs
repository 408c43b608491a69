//! A provider of a language model: an HTTP server on loopback that limits requests and tokens, and counts violations.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a provider has a clock of its own; sharing the library's would share its mistakes"
)]

use core::{net::SocketAddr, time::Duration};
use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use axum::{
    Extension, Json, Router,
    http::{HeaderMap, HeaderName, HeaderValue},
    response::{IntoResponse, Response},
    routing::post,
};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::{
    books::{Books, Budget, Refusal, Tally},
    site::{Arrival, in_background, listen, refused, serve},
};

/// The number of a refusal, in its answer; and in a request, that of the latest refusal that its client knew of.
pub(crate) const REFUSAL: HeaderName = HeaderName::from_static("x-refusal");

/// What a client asks.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Prompt {
    /// The answer to a prompt is as long in every run.
    pub(crate) id: u32,
    pub(crate) text: String,
    /// The most tokens of the answer.
    pub(crate) max_tokens: u32,
}

impl Prompt {
    /// A token is a word.
    pub(crate) fn tokens(&self) -> u32 {
        u32::try_from(self.text.split(' ').count()).unwrap_or(u32::MAX)
    }
}

/// The end of an answer.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Answer {
    pub(crate) usage: Usage,
}

/// What a call has cost.
#[derive(Debug, Deserialize, Serialize)]
#[expect(clippy::struct_field_names, reason = "the names of the API")]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: u32,
    pub(crate) completion_tokens: u32,
    pub(crate) total_tokens: u32,
}

/// A running provider, for one account.
#[derive(Debug)]
pub(crate) struct Provider {
    pub(crate) address: SocketAddr,
    books: Arc<Mutex<Books>>,
}

impl Provider {
    /// Starts one. Another process of the account exhausts the budget, just before the arrivals `others_at`.
    pub(crate) fn start(budget: Budget, others_at: &'static [u32]) -> io::Result<Self> {
        let listener = listen()?;
        let address = listener.local_addr()?;
        let books = Books::new(budget, others_at, Instant::now());
        let books = Arc::new(Mutex::new(books));
        let shared = Arc::clone(&books);
        let complete = move |Extension(Arrival(at)), headers: HeaderMap, Json(prompt)| {
            complete(Arc::clone(&shared), at, headers, prompt)
        };
        let routes = Router::new().route("/v1/completions", post(complete));
        in_background(serve(listener, routes))?;
        Ok(Self { address, books })
    }

    pub(crate) fn tally(&self) -> Tally {
        lock(&self.books).tally()
    }
}

async fn complete(
    books: Arc<Mutex<Books>>,
    at: Instant,
    headers: HeaderMap,
    prompt: Prompt,
) -> Response {
    let known = headers.get(REFUSAL).and_then(|known| known.to_str().ok());
    let known = known.and_then(|known| known.parse().ok());
    let judged = lock(&books).arrive(at, prompt.tokens(), known.unwrap_or_default());
    let mut response = match judged {
        Ok(()) => Json(generate(&books, &prompt).await).into_response(),
        Err(Refusal { number, retry_in }) => {
            ([(REFUSAL, number.to_string())], refused(retry_in)).into_response()
        }
    };
    say_what_is_left(&lock(&books), response.headers_mut());
    response
}

/// Most answers are short, and one in eight is as long as it may be.
async fn generate(books: &Mutex<Books>, prompt: &Prompt) -> Answer {
    let mut random = fastrand::Rng::with_seed(prompt.id.into());
    let longest = prompt.max_tokens;
    let completion = match random.u32(..8) {
        0 => longest,
        _ => random.u32(longest / 10..=longest * 2 / 5),
    };
    sleep(Duration::from_millis(30 + u64::from(completion / 8))).await;

    let prompt_tokens = prompt.tokens();
    lock(books).complete(Instant::now(), prompt_tokens, completion);
    Answer {
        usage: Usage {
            prompt_tokens,
            completion_tokens: completion,
            total_tokens: prompt_tokens + completion,
        },
    }
}

/// Writes headers such as `x-ratelimit-remaining-tokens`, and a reset such as `1520ms`.
fn say_what_is_left(books: &Books, headers: &mut HeaderMap) {
    for (name, left) in books.left() {
        let reset = left.reset_in.as_micros().div_ceil(1_000);
        for (part, value) in [
            ("limit", left.limit.to_string()),
            ("remaining", left.remaining.to_string()),
            ("reset", format!("{reset}ms")),
        ] {
            let name = HeaderName::try_from(format!("x-ratelimit-{part}-{name}"));
            let name = name.expect("letters and hyphens are fine in a name");
            let value = HeaderValue::try_from(value).expect("digits are fine in a header");
            headers.insert(name, value);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
