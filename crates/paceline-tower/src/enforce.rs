use super::answer::AsError;
use super::layer::{Charges, LimitLayer};

/// Refuses requests that come too soon, at once.
///
/// ```
/// use paceline::policy::TokenBucket;
/// use paceline::prelude::*;
/// use paceline::time::Rate;
/// use paceline_tower::EnforceLayer;
/// use std::convert::Infallible;
/// use std::time::Duration;
/// use tower::{Layer, Service, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let users = TokenBucket::new(Rate::per_second(1), 2).keyed::<String>();
/// let layer = EnforceLayer::by_key(users, |user: &String| Some(user.clone()));
/// let greet = service_fn(|user: String| async move { Ok::<_, Infallible>(format!("hello {user}")) });
/// let mut service = layer.layer(greet);
///
/// for _ in 0..2 {
///     let greeting = service.ready().await.unwrap().call("ann".to_owned()).await;
///     assert_eq!(greeting.unwrap(), "hello ann");
/// }
/// let refused = service.ready().await.unwrap().call("ann".to_owned()).await.unwrap_err();
/// assert!(refused.is_too_soon());
/// assert_eq!(refused.retry_in(), Some(Duration::from_secs(1)));
///
/// assert!(service.ready().await.unwrap().call("bob".to_owned()).await.is_ok());
/// # }
/// ```
///
/// **Ready** when the inner service is. That takes nothing from the limit.
///
/// **Waits** for nothing but the answer of a limit on a server. A limit in memory is asked in `call`.
///
/// **Fails** with [`Error`](super::Error), or answers: see [`answering`](LimitLayer::answering). A refusal leaves the inner service ready.
/// Where the answer of a limit was under way, the readiness is given back: the clone that was ready is dropped.
///
/// **Cancel safety**: a future that is dropped while the answer is under way takes nothing. After that the request has passed, and
/// counts.
///
/// **Shares** its limit: services of one layer, and their clones, have one.
#[doc(alias("GovernorLayer", "RateLimitLayer"))]
pub type EnforceLayer<T, A = AsError> = LimitLayer<Enforcing, T, A>;

/// What an [`EnforceLayer`] does.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Enforcing;

impl Charges for Enforcing {
    const IS_AT_ONCE: bool = true;
}
