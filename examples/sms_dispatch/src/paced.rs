//! Pacing with the library: its adapters over a limit, and one of two corrections for the network.

use core::time::Duration;

use futures::{
    FutureExt, StreamExt,
    stream::{self, LocalBoxStream},
};
use paceline::{
    concurrency::{Permit, Permits},
    feedback::Feedback,
    limiter::{PolicyExt, Shared},
    policy::Interval,
    stream::PaceStreamExt,
    time::Tick,
};

use crate::{
    dispatch::Pacing,
    margin::Margin,
    message::Message,
    provider::{Name, Quota},
};

/// One provider's limit, and the correction that makes it hold at the provider.
#[derive(Debug)]
pub(crate) struct Paced {
    quota: Quota,
    /// Every request passes this limit, so it can pause all of them.
    limit: Shared<Interval>,
    cover: Cover,
}

/// The correction for the network, where two requests may come closer to each other.
#[derive(Debug)]
enum Cover {
    /// Each permit is released one window after the answer, which proves the arrival. It needs no measurement, and each
    /// request costs a round trip. It is for a fixed quota, since a cool-down cannot be changed.
    Cooldown(Permits),
    /// The interval is longer by the difference between round trips. That is less than a round trip, and in a quota of many
    /// requests they share it. The limit can be retuned when the provider announces another quota.
    Margin(Margin),
}

impl Paced {
    pub(crate) fn new(name: Name) -> Self {
        let quota = name.quota();
        let (interval, cover) = match name {
            Name::Solo => {
                let permits = Permits::new(quota.units).with_cooldown(quota.window);
                // Without a limit of its own, but it can be paused.
                (Duration::ZERO, Cover::Cooldown(permits))
            }
            Name::Bulk | Name::Segments => {
                let margin = Margin::new(quota);
                (margin.interval(), Cover::Margin(margin))
            }
        };
        Self {
            quota,
            limit: Interval::every(interval).shared(),
            cover,
        }
    }
}

impl Pacing for Paced {
    /// The permit that cools down after the answer, with a cool-down.
    type Pass = Option<Permit>;

    fn turns<'a>(
        &self,
        messages: &'a [Message],
    ) -> LocalBoxStream<'a, (Vec<&'a Message>, Self::Pass)> {
        let messages = stream::iter(messages);
        let limit = self.limit.clone();
        match &self.cover {
            Cover::Cooldown(permits) => {
                let permits = permits.clone();
                messages
                    .then(move |message| {
                        permits.acquire_owned().map(move |permit| (message, permit))
                    })
                    .pace(limit)
                    .map(|(message, permit)| (vec![message], Some(permit)))
                    .boxed_local()
            }
            Cover::Margin(_) if self.quota.batch > 1 => messages
                .pace_batches(limit, self.quota.batch)
                .map(|batch| (batch, None))
                .boxed_local(),
            Cover::Margin(_) => messages
                .pace_by_cost(limit, |message| message.segments)
                .map(|passed| passed.expect("an interval lets every cost pass"))
                .map(|message| (vec![message], None))
                .boxed_local(),
        }
    }

    async fn again(&self, cost: u32, pause: Duration) -> Self::Pass {
        self.limit.pause_for(pause);
        let permit = match &self.cover {
            Cover::Cooldown(permits) => Some(permits.acquire().await),
            Cover::Margin(_) => None,
        };
        self.limit
            .acquire(cost)
            .await
            .expect("an interval lets every cost pass");
        permit
    }

    fn answered(&mut self, emitted: Tick, answered: Tick) {
        if let Cover::Margin(margin) = &mut self.cover {
            margin.answered(emitted, answered);
            // This comes before the next request, and moves its slot.
            self.limit.retune(Interval::every(margin.interval()));
        }
    }

    fn on_feedback(&mut self, feedback: &Feedback) -> bool {
        // An accepted request may also report that no permits remain.
        self.limit.apply_feedback(feedback);
        let (Cover::Margin(margin), Some(rate)) = (&mut self.cover, feedback.limit()) else {
            return false;
        };
        let Some(pause) = margin.obey(rate) else {
            return false;
        };
        self.limit.pause_for(pause);
        self.limit.retune(Interval::every(margin.interval()));
        true
    }

    fn margin(&self) -> Option<&Margin> {
        match &self.cover {
            Cover::Cooldown(_) => None,
            Cover::Margin(margin) => Some(margin),
        }
    }

    fn method(&self) -> &'static str {
        match &self.cover {
            Cover::Cooldown(_) => "cool-down",
            Cover::Margin(_) => "margin",
        }
    }
}
