use core::error::Error;
use core::fmt;
use std::sync::Arc;

use http::Request;

use paceline::limiter::{Limits, Status};
use paceline::policy::Decision;

use super::keys::{header_named, value};

/// Which limit a request of type `R` has, and what it costs. `L` is a handle on the limit.
///
/// A layer makes one itself with `new` and `by_key`, and it is part of the type of the layer:
///
/// ```
/// use http::Request;
/// use paceline::limiter::{KeyedAt, PolicyExt};
/// use paceline::policy::TokenBucket;
/// use paceline::time::Rate;
/// use paceline_tower::{EnforceLayer, For, header_key};
///
/// struct App {
///     by_user: EnforceLayer<For<Request<String>, KeyedAt<String, TokenBucket>>>,
/// }
///
/// let users = TokenBucket::new(Rate::per_minute(100), 20).keyed();
/// let app = App { by_user: EnforceLayer::by_key(users, header_key("x-user")) };
/// # let _ = app.by_user;
/// ```
///
/// Of a layer with answers the type is `EnforceLayer<For<…>, AsResponse<Answers>>`: see [`AsResponse`](crate::AsResponse).
///
/// For the other rules [`with_terms`](super::EnforceLayer::with_terms) of each layer takes one.
pub struct For<R, L> {
    limit: LimitOf<R, L>,
    cost: Option<Arc<CostFn<R>>>,
}

enum LimitOf<R, L> {
    /// With its clone, so that only this kind needs one.
    All(L, fn(&L) -> L),
    /// With the name of the header that has the key.
    Each(Arc<LimitFn<R, L>>, Option<&'static str>),
}

type LimitFn<R, L> = dyn Fn(&R, Option<&mut Once<'_>>) -> Result<Option<L>, BadKey> + Send + Sync;

type CostFn<R> = dyn Fn(&R) -> u32 + Send + Sync;

/// A request that asks once: what [`try_once`](paceline::limiter::Limiter::try_once) takes, and its answer if there is one.
pub(super) type Once<'a> = (&'a dyn Fn() -> u32, bool, Option<Status>, Option<Decision>);

impl<R, L> For<R, L> {
    /// One limit for all requests.
    #[must_use]
    pub const fn all(limit: L) -> Self
    where
        L: Clone,
    {
        let limit = LimitOf::All(limit, L::clone);
        Self { limit, cost: None }
    }

    /// A limit, or permits, for each key. A request without a key is **not limited**, unless
    /// [`on_missing_key`](Self::on_missing_key) says otherwise.
    #[must_use]
    pub fn key<M, K>(limits: M, key: impl Fn(&R) -> Option<K> + Send + Sync + 'static) -> Self
    where
        M: Limits<K, Limit = L> + Send + Sync + 'static,
    {
        let limit = move |request: &R, once: Option<&mut Once<'_>>| {
            let Some(key) = key(request) else {
                return Ok(None);
            };
            if let Some((cost, all, left, answer)) = once {
                *answer = limits.try_at(&key, cost(), *all, left);
                if answer.is_some() {
                    return Ok(None);
                }
            }
            limits.at(key).map(Some).map_err(|_| BadKey::default())
        };
        let limit = LimitOf::Each(Arc::new(limit), None);
        Self { limit, cost: None }
    }

    /// A rule of your own: the limit of each request. `None` is a request without a key.
    ///
    /// ```
    /// use http::Request;
    /// use paceline::prelude::*;
    /// use paceline::time::Rate;
    /// use paceline_tower::{EnforceLayer, For};
    /// use std::convert::Infallible;
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let reads = TokenBucket::new(Rate::per_second(10), 10).shared();
    /// let writes = TokenBucket::new(Rate::per_second(1), 1).shared();
    /// let by_method = For::each(move |request: &Request<()>| {
    ///     let limit = if request.method().is_safe() { &reads } else { &writes };
    ///     Ok(Some(limit.clone()))
    /// });
    /// let inner = service_fn(|_| async { Ok::<_, Infallible>(()) });
    /// let service = EnforceLayer::with_terms(by_method).layer(inner);
    ///
    /// let send = |method| {
    ///     let request = Request::builder().method(method).body(()).unwrap();
    ///     service.clone().oneshot(request)
    /// };
    /// assert!(send("POST").await.is_ok());
    /// assert!(send("POST").await.is_err());
    /// assert!(send("GET").await.is_ok());
    /// # }
    /// ```
    #[must_use]
    pub fn each(limit: impl Fn(&R) -> Result<Option<L>, BadKey> + Send + Sync + 'static) -> Self {
        let limit = move |request: &R, _: Option<&mut Once<'_>>| limit(request);
        let limit = LimitOf::Each(Arc::new(limit), None);
        Self { limit, cost: None }
    }

    /// What happens to a request without a key, as [`LimitLayer::on_missing_key`](super::LimitLayer::on_missing_key).
    #[must_use]
    pub fn on_missing_key(mut self, rule: OnMissingKey<L>) -> Self
    where
        R: 'static,
        L: Clone + Send + Sync + 'static,
    {
        if let LimitOf::Each(limit, header) = self.limit {
            let missing = BadKey::of(header, true);
            let limit = move |request: &R, mut once: Option<&mut Once<'_>>| {
                let found = limit(request, once.as_deref_mut())?;
                let is_answered = once.is_some_and(|(.., answer)| answer.is_some());
                match &rule {
                    OnMissingKey::Refuse if found.is_none() && !is_answered => Err(missing),
                    OnMissingKey::Share(shared) if !is_answered => {
                        Ok(found.or_else(|| Some(shared.clone())))
                    }
                    _ => Ok(found),
                }
            };
            self.limit = LimitOf::Each(Arc::new(limit), header);
        }
        self
    }

    pub(super) fn costing(mut self, cost: impl Fn(&R) -> u32 + Send + Sync + 'static) -> Self {
        self.cost = Some(Arc::new(cost));
        self
    }
}

impl<B, L> For<Request<B>, L> {
    /// A limit, or permits, for each value of a header: [`header_key`](super::header_key), and a refusal that names the header if its
    /// value cannot be used. A request without the header has no key.
    ///
    /// Limits in Redis refuse a key that is empty or longer than 200 bytes. The answer is 400 then, and never has the value.
    ///
    /// ```
    /// use http::{Request, Response};
    /// use paceline::policy::FixedWindow;
    /// use paceline::prelude::*;
    /// use paceline_tower::{Answers, EnforceLayer, For};
    /// use std::convert::Infallible;
    /// use std::time::Duration;
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let users = FixedWindow::new(1, Duration::from_secs(60)).keyed();
    /// let layer = EnforceLayer::with_terms(For::header(users, "x-user")).answering(Answers::new("users"));
    /// let service = layer.layer(service_fn(|_: Request<()>| async {
    ///     Ok::<_, Infallible>(Response::new(String::new()))
    /// }));
    ///
    /// let mut statuses = Vec::new();
    /// for user in ["ann", "ann", "bob"] {
    ///     let request = Request::get("/").header("x-user", user).body(()).unwrap();
    ///     statuses.push(service.clone().oneshot(request).await.unwrap().status().as_u16());
    /// }
    /// assert_eq!(statuses, [200, 429, 200]);
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// If this is not the name of a header.
    #[must_use]
    #[track_caller]
    pub fn header<M>(limits: M, name: &'static str) -> Self
    where
        M: Limits<String, Limit = L> + Send + Sync + 'static,
    {
        let header = header_named(name);
        let limit = move |request: &Request<B>, once: Option<&mut Once<'_>>| {
            let Some(key) = value(request.headers(), &header) else {
                return Ok(None);
            };
            if let Some((cost, all, left, answer)) = once {
                *answer = limits.try_as(&*key, cost(), *all, left);
                if answer.is_some() {
                    return Ok(None);
                }
            }
            let limit = limits.at(key.into_owned());
            limit.map(Some).map_err(|_| BadKey::in_header(name))
        };
        let limit = LimitOf::Each(Arc::new(limit), Some(name));
        Self { limit, cost: None }
    }
}

impl<R, L> Terms for For<R, L> {
    type Request = R;
    type Limit = L;

    fn limit(&self, request: &R, once: Option<&mut Once<'_>>) -> Result<Option<L>, BadKey> {
        match &self.limit {
            LimitOf::All(limit, clone) => Ok(Some(clone(limit))),
            LimitOf::Each(limit, _) => limit(request, once),
        }
    }

    fn cost(&self, request: &R) -> u32 {
        self.cost.as_ref().map_or(1, |cost| cost(request))
    }

    fn shared(&self) -> Option<&L> {
        match &self.limit {
            LimitOf::All(limit, _) => Some(limit),
            LimitOf::Each(..) => None,
        }
    }
}

impl<R, L> Clone for For<R, L> {
    fn clone(&self) -> Self {
        let limit = match &self.limit {
            LimitOf::All(limit, clone) => LimitOf::All(clone(limit), *clone),
            LimitOf::Each(limit, header) => LimitOf::Each(Arc::clone(limit), *header),
        };
        let cost = self.cost.clone();
        Self { limit, cost }
    }
}

impl<R, L> fmt::Debug for For<R, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("For").finish_non_exhaustive()
    }
}

/// What a layer asks its terms: a [`For`], with or without a classifier.
pub trait Terms {
    /// The request of the service.
    type Request;

    /// A handle on the limit of one request.
    type Limit;

    /// A handle on the limit of this request. `None`: it is not limited, or the limit has answered a request that asks `once`.
    ///
    /// # Errors
    ///
    /// If the key of the request cannot be used.
    fn limit(
        &self,
        request: &Self::Request,
        once: Option<&mut Once<'_>>,
    ) -> Result<Option<Self::Limit>, BadKey>;

    /// What the request costs.
    fn cost(&self, request: &Self::Request) -> u32;

    /// The limit, if all requests have the same.
    fn shared(&self) -> Option<&Self::Limit> {
        None
    }
}

/// Whether the terms of a layer are told how each call ended: those of an [`AdaptiveLayer`](super::AdaptiveLayer) are.
pub trait Reports<P, E, G> {
    /// Reports the result of a call. `false`: that panicked.
    fn report(&self, result: &Result<P, E>, guard: &mut G) -> bool;
}

impl<R, L, P, E, G> Reports<P, E, G> for For<R, L> {
    fn report(&self, _: &Result<P, E>, _: &mut G) -> bool {
        true
    }
}

/// What happens to a request without a key: see [`on_missing_key`](super::LimitLayer::on_missing_key).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "a request is limited or not")]
pub enum OnMissingKey<L> {
    /// It passes, and is not limited.
    #[default]
    Pass,
    /// It is refused: [`Refusal::is_bad_key`](super::Refusal::is_bad_key), and 400 for HTTP.
    Refuse,
    /// It has this limit, which all requests without a key share, such as that of one key.
    Share(L),
}

/// The key of a request cannot be used, or is missing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BadKey {
    header: Option<&'static str>,
    is_missing: bool,
}

impl BadKey {
    /// The key is the value of this header. The refusal names it.
    #[must_use]
    pub const fn in_header(name: &'static str) -> Self {
        Self::of(Some(name), false)
    }

    const fn of(header: Option<&'static str>, is_missing: bool) -> Self {
        Self { header, is_missing }
    }
}

impl fmt::Display for BadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_missing {
            "is missing"
        } else {
            "cannot be used"
        };
        match self.header {
            Some(name) => write!(f, "the key in header `{name}` {what}"),
            None => write!(f, "the key of the request {what}"),
        }
    }
}

impl Error for BadKey {}
