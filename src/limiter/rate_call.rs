use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use crate::feedback::Feedback;
use crate::time::Tick;

use super::{CallOutcome, contained_in_unwind};

/// A call of an [`AdaptiveRate`](super::AdaptiveRate), which reports its outcome.
///
/// A call that is dropped without a report says nothing about the rate: it was cancelled, or failed for another reason. The rate does not grow by it.
///
/// ```
/// use paceline::feedback::Feedback;
/// use paceline::limiter::{AdaptiveRate, HoldAndProbe};
/// use paceline::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let start = tokio::time::Instant::now();
/// let rate = AdaptiveRate::new(HoldAndProbe::new(Rate::per_second(10), Rate::per_second(100)));
///
/// let headers = [("Retry-After", "2")];
/// rate.call().await.answered(true, &Feedback::parse(headers, Duration::ZERO));
/// rate.call().await.accepted();
/// assert_eq!(start.elapsed(), Duration::from_secs(2));
/// # }
/// ```
#[must_use = "a call that is dropped at once reports nothing: call it `_call`, since `let _ =` drops it too"]
pub struct RateCall {
    pub(super) sent_at: Tick,
    /// How often the rule had changed between one call and many.
    pub(super) phase: u64,
    /// `None` after the report.
    pub(super) control: Option<Arc<dyn Report>>,
}

impl RateCall {
    /// The provider answered.
    pub fn accepted(mut self) {
        self.report(CallOutcome::Accepted, None);
    }

    /// The provider refused the call for its rate (429, 503), and perhaps asks for a wait.
    pub fn refused(mut self, retry_after: Option<Duration>) {
        self.report(CallOutcome::Refused { retry_after }, None);
    }

    /// The provider answered, or refused the call, with these headers. A pause is obeyed, and a quota with its window gives the rate.
    pub fn answered(mut self, is_refused: bool, feedback: &Feedback) {
        let retry_after = feedback.pause();
        let outcome = if is_refused {
            CallOutcome::Refused { retry_after }
        } else {
            CallOutcome::Accepted
        };
        self.report(outcome, Some(feedback));
    }

    fn report(&mut self, outcome: CallOutcome, feedback: Option<&Feedback>) {
        if let Some(control) = self.control.take() {
            control.report(self, outcome, feedback);
        }
    }
}

impl Drop for RateCall {
    fn drop(&mut self) {
        contained_in_unwind(|| self.report(CallOutcome::Ignored, None));
    }
}

impl fmt::Debug for RateCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateCall")
            .field("sent_at", &self.sent_at)
            .finish_non_exhaustive()
    }
}

/// Takes in the outcome of a call, whatever the rule and the policy are.
pub(super) trait Report: Send + Sync {
    fn report(&self, call: &RateCall, outcome: CallOutcome, feedback: Option<&Feedback>);
}
