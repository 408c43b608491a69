use core::error::Error;
use core::fmt;
use core::marker::PhantomData;

use crate::concurrency::AdmitByKey;
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

/// A limit for each key, or permits for each key: `W` says which.
#[derive(Clone, Debug)]
pub struct ByKey<M, F, W = Rates> {
    limits: M,
    key: F,
    of: PhantomData<fn() -> W>,
}

/// Permits for each key.
pub type PermitsByKey<M, F> = ByKey<M, F, Guards>;

impl<M, F, W> ByKey<M, F, W> {
    pub(super) const fn new(limits: M, key: F) -> Self {
        Self {
            limits,
            key,
            of: PhantomData,
        }
    }
}

impl<R, K, M, F, W> Terms<R> for ByKey<M, F, W>
where
    M: Handles<K, W>,
    F: Fn(&R) -> Option<K>,
{
    type Limit = M::Handle;

    fn limit(&self, request: &R) -> Result<Option<M::Handle>, BadKey> {
        let key = (self.key)(request);
        let handle = key.map(|key| self.limits.handle(key).ok_or(BadKey::default()));
        handle.transpose()
    }
}

/// A handle for each key: on a limit, of [`Limits`], or on permits, of [`AdmitByKey`]. `W` says which, and is inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has neither limits nor permits for keys of type `{K}`",
    note = "a `Keyed` has a limit for each key, and a `KeyedPermits` has permits",
    note = "a header's value is a key of type `String`"
)]
pub trait Handles<K, W> {
    /// The handle of one key.
    type Handle;

    /// The handle of this key; `None` if the key cannot be used.
    fn handle(&self, key: K) -> Option<Self::Handle>;
}

/// Of a limit of rate: a request passes, and holds nothing.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Rates;

impl<K, M: Limits<K>> Handles<K, Rates> for M {
    type Handle = M::Limiter;

    fn handle(&self, key: K) -> Option<M::Limiter> {
        self.at(key).ok()
    }
}

/// Of permits: a request holds a guard while it is under way.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Guards;

impl<K, M: AdmitByKey<K>> Handles<K, Guards> for M {
    type Handle = M::Admit;

    fn handle(&self, key: K) -> Option<M::Admit> {
        self.at(key).ok()
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

/// Terms whose limit can be put into another: for [`switched`](super::LimitLayer::switched) and
/// [`observed`](super::LimitLayer::observed). Terms of your own wrap their limits themselves, or implement it.
#[diagnostic::on_unimplemented(
    message = "the limit of `{Self}` cannot be wrapped from outside",
    note = "put a `Switched` or an `Observed` around the limits in it, or implement `WrapLimit` for it"
)]
pub trait WrapLimit {
    /// The limit of all requests, or the limits by key.
    type Inner;

    /// The same terms with another limit.
    type With<N>;

    /// Puts the limit into another. What the key of a request is, and what it costs, stays.
    fn wrap<N>(self, wrap: impl FnOnce(Self::Inner) -> N) -> Self::With<N>;
}

impl<L> WrapLimit for Direct<L> {
    type Inner = L;
    type With<N> = Direct<N>;

    fn wrap<N>(self, wrap: impl FnOnce(L) -> N) -> Direct<N> {
        Direct {
            limit: wrap(self.limit),
        }
    }
}

impl<M, F, W> WrapLimit for ByKey<M, F, W> {
    type Inner = M;
    type With<N> = ByKey<N, F, W>;

    fn wrap<N>(self, wrap: impl FnOnce(M) -> N) -> ByKey<N, F, W> {
        ByKey::new(wrap(self.limits), self.key)
    }
}

impl<T: WrapLimit, F> WrapLimit for Costed<T, F> {
    type Inner = T::Inner;
    type With<N> = Costed<T::With<N>, F>;

    fn wrap<N>(self, wrap: impl FnOnce(T::Inner) -> N) -> Costed<T::With<N>, F> {
        Costed {
            terms: self.terms.wrap(wrap),
            cost: self.cost,
        }
    }
}
