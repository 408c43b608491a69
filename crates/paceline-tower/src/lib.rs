//! The limits of [`paceline`] as [`tower`](https://docs.rs/tower) layers, for services and for outbound clients.
//!
//! A layer works with hyper, axum, tonic, and any other [`Service`](https://docs.rs/tower-service). It takes any limit of `paceline`:
//! a [`Shared`](paceline::limiter::Shared), a [`Keyed`](paceline::limiter::Keyed), [`Permits`](paceline::concurrency::Permits), an
//! [`Adaptive`](paceline::concurrency::Adaptive), or one in Redis.
//!
//! | layer | a request that cannot pass now | for |
//! |---|---|---|
//! | [`EnforceLayer`] | is refused at once | a server with a quota for each caller |
//! | [`PaceLayer`] | waits, as long as you say | a client of a provider with a quota |
//! | [`ConcurrencyLayer`] | waits for a permit, or is refused | the number of requests under way, bodies included |
//! | [`AdaptiveLayer`] | waits for a permit, or is refused | the same, with a number that follows what the server bears |
//! | [`FeedbackLayer`] | passes; the response pauses the limit of its host | a client that obeys `Retry-After` and the headers of a quota |
//! | [`ShedLayer`] | is refused at once, the least important first | a server that has more work than capacity |
//!
//! ```
//! use http::{Request, Response};
//! use paceline::concurrency::Permits;
//! use paceline::prelude::*;
//! use paceline_tower::{Answers, ConcurrencyLayer, EnforceLayer, header_key};
//! use std::convert::Infallible;
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let users = TokenBucket::new(Rate::per_minute(100), 2).keyed();
//! let by_user = EnforceLayer::by_key(users, header_key("x-user")).answering(Answers::new("users"));
//! let permits = ConcurrencyLayer::new(Permits::new(10)).until_response().answering(Answers::new("room"));
//! let inner = service_fn(|_: Request<()>| async {
//!     Ok::<_, Infallible>(Response::new("hello".to_owned()))
//! });
//! let service = by_user.layer(permits.layer(inner));
//!
//! let mut answers = Vec::new();
//! for _ in 0..3 {
//!     let request = Request::get("/").header("x-user", "ann").body(()).unwrap();
//!     answers.push(service.clone().oneshot(request).await.unwrap());
//! }
//! assert_eq!(answers[1].body(), "hello");
//! assert_eq!(answers[2].status(), 429);
//! assert_eq!(answers[2].headers()["retry-after"], "1");
//! # }
//! ```
//!
//! # What all layers have in common
//!
//! * **One limit.** Services of one layer, and their clones, share the limit. The inner service has to be `Clone`, as that of
//!   `tower::buffer` or a `tower::util::BoxCloneService` is, and then the service is too.
//! * **`poll_ready` takes nothing.** An idle clone holds no slot and no permit, so it blocks no request.
//! * **Which limit.** `new` takes one for all requests. `by_key` takes [`Limits`](paceline::limiter::Limits) and a closure that returns
//!   the key; `None` is not limited. `costing` takes a closure that returns the cost. Both run in `call`, and are boxed. The rest is
//!   [`For::each`].
//! * **Refused** is an error, [`Error`], which keeps the inner error as it is. With `answering` or `answering_with` it is an HTTP
//!   response, and the error type is that of the inner service: axum needs no error handler.
//! * **A kill switch, a shadow mode, a share, an observer** are put around the limit before the layer gets it:
//!   `EnforceLayer::by_key(users.switched(&switch), key)`, see [`Switched`](paceline::limiter::Switched) and
//!   [`Observed`](paceline::limiter::Observed). An observer around the switch sees a request that passed only because of the switch as
//!   [`Shadowed`](paceline::limiter::Event::Shadowed); one inside the switch sees the answer of the limit. By key, the share has the same
//!   keys in all processes. A shadowed request is under way with a permit if there is one, and else without; in an
//!   [`AdaptiveLayer`] it then reports nothing.
//! * **A limiter that fails** lets requests pass, or refuses them: [`OnFailure`]. Failures are counted by cause.
//! * **Under way is not refused.** While the answer of a limit on a server is under way, a request waits for the answer. No request
//!   is shed because a task has used up its cooperative budget.
//!
//! # Which key
//!
//! | key | from | limits |
//! |---|---|---|
//! | the user or account that a layer in front has authenticated | [`extension_key`] | a person, on any network and device |
//! | an API key | [`header_key`], [`For::header`] | a program; only after the key has been checked, or a caller invents a new one for each request |
//! | the address | [`ClientIp`] | a client without an account: sign-in, sign-up, public pages |
//! | the host, of an outbound request | [`host_key`] | what this program sends to a provider |
//!
//! **Tiers.** A [`Keyed::by`](paceline::limiter::Keyed::by) finds the policy by the key, such as an extension of user and tier.
//!
//! **Addresses are shared.** Behind the NAT of an office, a school or a mobile network, thousands of people have one IPv4 address. A
//! limit that is right for one of them is an outage for the rest. So a limit by address is ten to a hundred times as generous as one
//! by user, and as soon as the user is known, the user is the key. The other way round, one client has all the addresses of an IPv6
//! /64, so those are one key.
//!
//! **A request without a key is not limited.** A caller can leave out a header. [`on_missing_key`](LimitLayer::on_missing_key) refuses
//! such requests, or lets them share one limit. Or the address stands in:
//!
//! ```
//! use axum::extract::ConnectInfo;
//! use http::Request;
//! use paceline::policy::TokenBucket;
//! use paceline::prelude::*;
//! use paceline::time::Rate;
//! use paceline_tower::{Answers, ClientIp, EnforceLayer, extension_key};
//! use std::net::SocketAddr;
//! # use std::convert::Infallible;
//! # use tower::{Layer, ServiceExt, service_fn};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let client = ClientIp::peer::<ConnectInfo<SocketAddr>>();
//! let user = extension_key::<String, ()>();
//! let limits = TokenBucket::new(Rate::per_minute(100), 100).keyed::<String>();
//! let layer = EnforceLayer::by_key(limits, move |request: &Request<()>| {
//!     // The texts differ, so that no user can have the key of an address.
//!     let user = user(request).map(|user| format!("user {user}"));
//!     user.or_else(|| Some(client.key(request).to_string()))
//! });
//! let layer = layer.answering(Answers::new("api").with_success_headers(true));
//! # let inner = service_fn(|_: Request<()>| async {
//! #     Ok::<_, Infallible>(http::Response::new(String::new()))
//! # });
//! # let peer: SocketAddr = "192.0.2.1:80".parse().unwrap();
//! # let request = Request::get("/").extension(ConnectInfo(peer)).body(()).unwrap();
//! # let response = layer.layer(inner).oneshot(request).await.unwrap();
//! # assert_eq!(response.headers()["ratelimit"], r#""api";r=99;t=1"#);
//! # }
//! ```
//!
//! Which limit a service needs first, where in a stack, and how to launch it: [a guide](_docs::services).
//!
//! # Outbound clients
//!
//! `PaceLayer::by_key(limits, host_key()).obeying()` around a client keeps the limit of each host, and waits as long as a host asks:
//! see [`FeedbackLayer`]. The client of `hyper-util` takes requests of `http` as they are. `reqwest` has types of its own, which it
//! converts: the page `docs/http-clients.md` of the repository has the program, and one without layers.
//!
//! `examples/services/src/bin/outbound.rs` is a larger program. A host counts requests when they arrive, and they leave at the times
//! of the limit. So keep a margin, or hold a permit until a window after the response, as that program does.
//!
//! # If it does not compile
//!
//! | the compiler says | the mistake |
//! |---|---|
//! | `Infallible: From<Error<…>>`, from axum | the layer has no [`answering`](LimitLayer::answering), so a refusal is an error |
//! | `oneshot`, `ready` or `call` "exists but its trait bounds were not satisfied" | the inner service is not `Clone`; or it is not for HTTP, and a layer with permits or a shedder has no [`until_response`](LimitLayer::until_response) |
//! | "type annotations needed" for the argument of a closure | it needs the type of the request: `\|request: &http::Request<Body>\| …` |
//! | "cannot answer with a body of type `Held<…>`" | behind the layer is one with permits, whose bodies hold them: `answers.with_body(\|text\| Body::from(text).into())` |
//! | expected one request, found another, of `Terms` | a layer is for one type of request: make one for each, with clones of the limit |
//! | "lifetime may not live long enough" in the key | the key borrows from the request: return an owned one, such as a `String` |
//!
//! # What it leaves to others
//!
//! * There is no queue in front of `call`, as `tower::buffer` is one. The requests that wait are the futures of your callers.
//! * It has no layer that retries: `tower` has one. With feature `retry`, `RetryPolicy` is a policy for it with a budget. It belongs
//!   outside of a [`PaceLayer`], so that each attempt waits for the limit. [`retry_in`](Error::retry_in) says when to come again.
//! * It does not read the address of the client by itself: the key function does. Only [`FeedbackLayer`] reads the clock of the
//!   machine, for dates in a response.

mod adaptive;
mod admission;
mod answer;
mod answers;
mod call;
mod client_ip;
mod concurrency;
mod enforce;
mod error;
mod failure;
mod feedback;
mod held;
mod keys;
mod layer;
mod pace;
mod problem;
mod refusal;
#[cfg(feature = "retry")]
mod retry;
mod shed;
mod terms;
mod text;

pub use adaptive::AdaptiveLayer;
pub use answer::{Answer, AsError, AsResponse};
pub use answers::{Answers, AnswersWithBody};
pub use client_ip::{ClientIp, ClientKey, Proxies, ProxyHeader};
pub use concurrency::ConcurrencyLayer;
pub use enforce::EnforceLayer;
pub use error::Error;
pub use failure::{Failures, OnFailure};
pub use feedback::FeedbackLayer;
pub use held::{Held, UntilBody, UntilResponse};
pub use keys::{extension_key, header_key, host_key};
pub use layer::{LimitLayer, Limited};
pub use pace::PaceLayer;
pub use problem::{Problem, ProblemFormat};
pub use refusal::Refusal;
#[cfg(feature = "retry")]
pub use retry::RetryPolicy;
pub use shed::{ShedLayer, http_class};
pub use terms::{BadKey, For, OnMissingKey};

/// The guide: a page of the repository.
pub mod _docs {
    #[doc = include_str!("../docs/services.md")]
    pub mod services {}
}

// Pages that need both crates.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    mod readme {}

    #[doc = include_str!("../../../docs/migrating.md")]
    mod migrating {}

    #[doc = include_str!("../../../docs/shedding.md")]
    mod shedding {}
}

/// What the types of layers and services are made of: futures, markers, and the traits that tell them apart. Few programs name them.
pub mod future {
    pub use crate::adaptive::AdaptFuture;
    pub use crate::concurrency::ConcurrencyFuture;
    pub use crate::feedback::{FeedbackFuture, FeedbackService};
    pub use crate::layer::LimitedFuture;

    // Markers, and the traits that tell them apart.
    #[doc(hidden)]
    pub use crate::{
        adaptive::{Adapting, ByStatus, Classified, Classify, ReportOutcome},
        answer::Respond,
        concurrency::Admitting,
        enforce::Enforcing,
        held::Hold,
        layer::{Charges, Waits},
        pace::Pacing,
        shed::{AtClass, Shedding},
        terms::{Reports, Terms},
    };
}
