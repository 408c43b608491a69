use core::error::Error;
use core::fmt;

use crate::limiter::Limits;

/// Which limit a request has, and what it costs.
///
/// [`Direct`], [`ByKey`] and [`Costed`] are made by the methods of the layers. An implementation of your own is for a rule that
/// they cannot express.
///
/// ```
/// use paceline::limiter::{PolicyExt, Shared};
/// use paceline::policy::TokenBucket;
/// use paceline::time::Rate;
/// use paceline::tower::{BadKey, EnforceLayer, Terms};
/// use std::convert::Infallible;
/// use tower::{Layer, ServiceExt, service_fn};
///
/// /// A limit for reads, and one for writes.
/// #[derive(Clone)]
/// struct ByMethod {
///     reads: Shared<TokenBucket>,
///     writes: Shared<TokenBucket>,
/// }
///
/// impl Terms<http::Request<()>> for ByMethod {
///     type Limit = Shared<TokenBucket>;
///
///     fn limit(&self, request: &http::Request<()>) -> Result<Option<Self::Limit>, BadKey> {
///         let limit = if request.method().is_safe() { &self.reads } else { &self.writes };
///         Ok(Some(limit.clone()))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let limits = ByMethod {
///     reads: TokenBucket::new(Rate::per_second(10), 10).shared(),
///     writes: TokenBucket::new(Rate::per_second(1), 1).shared(),
/// };
/// let inner = service_fn(|_| async { Ok::<_, Infallible>(()) });
/// let service = EnforceLayer::with_terms(limits).layer(inner);
///
/// let send = |method| {
///     let request = http::Request::builder().method(method).body(()).unwrap();
///     service.clone().oneshot(request)
/// };
/// assert!(send("POST").await.is_ok());
/// assert!(send("POST").await.is_err());
/// assert!(send("GET").await.is_ok());
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say which limit a request of type `{R}` has",
    note = "the key and cost functions have to take a reference to the request of the service: `|request: &http::Request<Body>| …`"
)]
pub trait Terms<R> {
    /// A handle on the limit of one request.
    type Limit;

    /// A handle on the limit of this request. `None`: it is not limited.
    ///
    /// # Errors
    ///
    /// If the key of the request cannot be used.
    fn limit(&self, request: &R) -> Result<Option<Self::Limit>, BadKey>;

    /// What the request costs.
    ///
    /// Provided: 1.
    fn cost(&self, request: &R) -> u32 {
        let _ = request;
        1
    }

    /// The limit, if all requests have the same.
    #[doc(hidden)]
    fn shared(&self) -> Option<&Self::Limit> {
        None
    }
}

/// The key of a request cannot be used.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BadKey {
    header: Option<&'static str>,
}

impl BadKey {
    /// The key is the value of this header. The refusal names it.
    #[must_use]
    pub const fn in_header(name: &'static str) -> Self {
        Self { header: Some(name) }
    }
}

impl fmt::Display for BadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.header {
            Some(name) => write!(f, "the key in header `{name}` cannot be used"),
            None => f.write_str("the key of the request cannot be used"),
        }
    }
}

impl Error for BadKey {}

/// One limit for all requests.
#[derive(Clone, Debug)]
pub struct Direct<L> {
    pub(super) limit: L,
}

impl<R, L: Clone> Terms<R> for Direct<L> {
    type Limit = L;

    fn limit(&self, _: &R) -> Result<Option<L>, BadKey> {
        Ok(Some(self.limit.clone()))
    }

    fn shared(&self) -> Option<&L> {
        Some(&self.limit)
    }
}

/// A limit for each key, or permits for each key.
#[derive(Clone, Debug)]
pub struct ByKey<M, F> {
    limits: M,
    key: F,
}

impl<M, F> ByKey<M, F> {
    pub(super) const fn new(limits: M, key: F) -> Self {
        Self { limits, key }
    }
}

impl<R, K, M, F> Terms<R> for ByKey<M, F>
where
    M: Limits<K>,
    F: Fn(&R) -> Option<K>,
{
    type Limit = M::Limit;

    fn limit(&self, request: &R) -> Result<Option<M::Limit>, BadKey> {
        let key = (self.key)(request);
        let handle = key.map(|key| self.limits.at(key).map_err(|_| BadKey::default()));
        handle.transpose()
    }
}

/// A limit with a cost for each request.
#[derive(Clone, Debug)]
pub struct Costed<T, F> {
    pub(super) terms: T,
    pub(super) cost: F,
}

impl<R, T, F> Terms<R> for Costed<T, F>
where
    T: Terms<R>,
    F: Fn(&R) -> u32,
{
    type Limit = T::Limit;

    fn limit(&self, request: &R) -> Result<Option<T::Limit>, BadKey> {
        self.terms.limit(request)
    }

    fn cost(&self, request: &R) -> u32 {
        (self.cost)(request)
    }

    fn shared(&self) -> Option<&T::Limit> {
        self.terms.shared()
    }
}
