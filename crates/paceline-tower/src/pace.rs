use super::answer::AsError;
use super::feedback::FeedbackLayer;
use super::layer::{Charges, LimitLayer, Waits};

/// Lets requests wait until their limit lets them pass.
///
/// ```
/// use paceline::policy::Interval;
/// use paceline::prelude::*;
/// use paceline_tower::PaceLayer;
/// use std::convert::Infallible;
/// use std::time::Duration;
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let start = tokio::time::Instant::now();
/// let limit = Interval::every(Duration::from_millis(100)).shared();
/// let layer = PaceLayer::new(limit).within(Duration::from_millis(250));
/// let service = layer.layer(service_fn(|_: ()| async { Ok::<_, Infallible>(()) }));
///
/// let calls = (0..5).map(|_| service.clone().oneshot(()));
/// let responses = futures::future::join_all(calls).await;
///
/// // At 0, 100 and 200 ms. The others could not pass within 250 ms, and were refused at once.
/// assert_eq!(responses.iter().filter(|response| response.is_ok()).count(), 3);
/// let late = responses[4].as_ref().unwrap_err();
/// assert!(late.is_too_late());
/// assert_eq!(late.retry_in(), Some(Duration::from_millis(300)));
/// assert_eq!(start.elapsed(), Duration::from_millis(200));
/// # }
/// ```
///
/// **Ready** at once, and that takes nothing from the limit. So an idle clone delays no request.
///
/// **Waits** in its future, first come, first served by the first poll. Then it waits until the inner service is ready, and calls
/// it: what the service waits for is not charged twice, and it reserves nothing while the request waits.
///
/// **Fails** with [`Error`](super::Error), or answers: see [`answering`](LimitLayer::answering).
///
/// **Holds** the request while it waits. [`max_waiting`](LimitLayer::max_waiting) bounds their number, and [`within`](LimitLayer::within) the
/// time.
///
/// **Cancel safety**: a future that is dropped while it waits leaves the queue, and takes nothing. One that is dropped later has
/// passed, and counts.
///
/// **Shares** its limit: services of one layer, and their clones, have one.
///
/// It needs no runtime until it has to wait.
#[doc(alias("RateLimitLayer", "ServiceBuilder"))]
pub type PaceLayer<T, A = AsError> = LimitLayer<Pacing, T, A>;

/// What a [`PaceLayer`] does.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Pacing;

impl Charges for Pacing {
    const IS_AT_ONCE: bool = false;
}

impl Waits for Pacing {}

impl<T, A> PaceLayer<T, A> {
    /// Also obeys what the responses of an outbound client say: this layer around a [`FeedbackLayer`] with the same limits.
    ///
    /// The last method of all, since the result is two layers. The outer one comes first.
    ///
    /// ```
    /// use http::{Request, Response};
    /// use paceline::policy::SlidingLog;
    /// use paceline::prelude::*;
    /// use paceline_tower::PaceLayer;
    /// use std::convert::Infallible;
    /// use std::time::Duration;
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let start = tokio::time::Instant::now();
    /// let client = service_fn(|_: Request<()>| async {
    ///     Ok::<_, Infallible>(Response::builder().header("retry-after", "2").status(503).body(()).unwrap())
    /// });
    /// let limit = SlidingLog::new(100, Duration::from_secs(60)).shared();
    /// let client = PaceLayer::new(limit).obeying().layer(client);
    ///
    /// for _ in 0..3 {
    ///     let response = client.clone().oneshot(Request::new(())).await.unwrap();
    ///     assert_eq!(response.status(), 503);
    /// }
    /// assert_eq!(start.elapsed(), Duration::from_secs(4));
    /// # }
    /// ```
    ///
    /// With an [`AdaptiveRate`](paceline::limiter::AdaptiveRate) the rate follows the responses. So does that of a service whose limit
    /// is to follow its health, where this layer is around it:
    ///
    /// ```
    /// use http::{Request, Response};
    /// use paceline::limiter::{AdaptiveRate, HoldAndProbe};
    /// use paceline::policy::SlidingLog;
    /// use paceline::prelude::*;
    /// use paceline_tower::PaceLayer;
    /// use std::convert::Infallible;
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let provider = SlidingLog::new(20, Duration::from_secs(1)).shared();
    /// let client = service_fn(move |_: Request<()>| {
    ///     let status = if provider.try_acquire(1).is_pass() { 200 } else { 429 };
    ///     async move { Ok::<_, Infallible>(Response::builder().status(status).body(()).unwrap()) }
    /// });
    /// let rate = AdaptiveRate::new(HoldAndProbe::new(Rate::per_second(1), Rate::per_second(1_000)));
    /// let client = PaceLayer::new(rate.clone()).obeying().layer(client);
    ///
    /// for _ in 0..1_000 {
    ///     client.clone().oneshot(Request::new(())).await.unwrap();
    /// }
    /// assert!((18.0..21.0).contains(&rate.calls_per_second()));
    /// # }
    /// ```
    #[must_use]
    pub fn obeying(self) -> (Self, FeedbackLayer<T>)
    where
        T: Clone,
    {
        let feedback = FeedbackLayer::of(self.terms().clone());
        (self, feedback)
    }
}
