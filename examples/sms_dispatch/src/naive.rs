//! Common ways to pace, for comparison. They wait for `Retry-After` and ignore all other feedback.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "this is what people write, and it uses nothing of the library"
)]

use core::time::Duration;
use std::{sync::Arc, time::Instant};

use futures::{
    StreamExt,
    stream::{self, LocalBoxStream},
};
use tokio::{sync::Mutex, time::sleep};

use crate::{
    dispatch::Pacing,
    message::Message,
    provider::{Name, Quota},
};

/// A usual token bucket: the quota's rate, and a burst of one second.
#[derive(Debug)]
pub(crate) struct Bucket {
    name: Name,
    tokens: Arc<Mutex<Tokens>>,
}

#[derive(Debug)]
struct Tokens {
    rate: f64,
    burst: f64,
    left: f64,
    filled: Instant,
}

impl Bucket {
    pub(crate) fn new(name: Name) -> Self {
        let rate = rate(name.quota());
        let tokens = Tokens {
            rate,
            burst: rate,
            left: rate,
            filled: Instant::now(),
        };
        Self {
            name,
            tokens: Arc::new(Mutex::new(tokens)),
        }
    }
}

impl Tokens {
    async fn acquire(&mut self, cost: f64) {
        loop {
            let now = Instant::now();
            let fresh = (now - self.filled).as_secs_f64() * self.rate;
            self.left = (self.left + fresh).min(self.burst);
            self.filled = now;
            if self.left >= cost {
                self.left -= cost;
                return;
            }
            sleep(Duration::from_secs_f64((cost - self.left) / self.rate)).await;
        }
    }
}

impl Pacing for Bucket {
    type Pass = ();

    fn turns<'a>(&self, messages: &'a [Message]) -> LocalBoxStream<'a, (Vec<&'a Message>, ())> {
        let name = self.name;
        let tokens = Arc::clone(&self.tokens);
        requests(name, messages)
            .then(move |request| {
                let tokens = Arc::clone(&tokens);
                async move {
                    tokens
                        .lock()
                        .await
                        .acquire(name.cost(&request).into())
                        .await;
                    (request, ())
                }
            })
            .boxed_local()
    }

    async fn again(&self, cost: u32, pause: Duration) {
        sleep(pause).await;
        self.tokens.lock().await.acquire(cost.into()).await;
    }

    fn method(&self) -> &'static str {
        "token bucket"
    }
}

/// `tokio_stream`'s `throttle` with the interval of the quota. It has no costs and no margin.
#[derive(Debug)]
pub(crate) struct Throttle {
    name: Name,
}

impl Throttle {
    pub(crate) const fn new(name: Name) -> Self {
        Self { name }
    }
}

impl Pacing for Throttle {
    type Pass = ();

    fn turns<'a>(&self, messages: &'a [Message]) -> LocalBoxStream<'a, (Vec<&'a Message>, ())> {
        let gap = Duration::from_secs_f64(rate(self.name.quota()).recip());
        let requests = requests(self.name, messages);
        tokio_stream::StreamExt::throttle(requests, gap)
            .map(|request| (request, ()))
            .boxed_local()
    }

    async fn again(&self, _cost: u32, pause: Duration) {
        sleep(pause).await;
    }

    fn method(&self) -> &'static str {
        "throttle"
    }
}

fn rate(quota: Quota) -> f64 {
    f64::from(quota.units) / quota.window.as_secs_f64()
}

fn requests(name: Name, messages: &[Message]) -> LocalBoxStream<'_, Vec<&Message>> {
    let requests = messages.chunks(name.quota().batch);
    stream::iter(requests.map(|request| request.iter().collect())).boxed_local()
}
