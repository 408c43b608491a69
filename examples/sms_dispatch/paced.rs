//! How it is done: the library's adapters over a limit that follows the margin.

use core::time::Duration;

use futures::{
    StreamExt,
    stream::{self, LocalBoxStream},
};
use paceline::{
    limiter::{PolicyExt, Shared},
    policy::Interval,
    stream::PaceStreamExt,
    time::Tick,
};

use crate::{dispatch::Pacing, margin::Margin, message::Message, provider::Name};

/// One provider's limit and what it is derived from.
#[derive(Debug)]
pub(crate) struct Paced {
    name: Name,
    limit: Shared<Interval>,
    margin: Margin,
}

impl Paced {
    pub(crate) fn new(name: Name) -> Self {
        let margin = Margin::new(name.quota());
        Self {
            name,
            limit: Interval::every(margin.interval()).shared(),
            margin,
        }
    }
}

impl Pacing for Paced {
    fn turns<'a>(&self, messages: &'a [Message]) -> LocalBoxStream<'a, Vec<&'a Message>> {
        let messages = stream::iter(messages);
        let limit = self.limit.clone();
        match self.name {
            Name::Solo => messages
                .pace(limit)
                .map(|message| vec![message])
                .boxed_local(),
            Name::Bulk => messages
                .pace_batches(limit, self.name.quota().batch)
                .boxed_local(),
            Name::Segments => messages
                .pace_by_cost(limit, |message| message.segments)
                .map(|passed| vec![passed.expect("an interval lets every cost pass")])
                .boxed_local(),
        }
    }

    async fn again(&self, cost: u32, pause: Duration) {
        self.limit.pause_for(pause);
        self.limit
            .acquire(cost)
            .await
            .expect("an interval lets every cost pass");
    }

    fn answered(&mut self, emitted: Tick, answered: Tick) {
        self.margin.answered(emitted, answered);
        // Before the next request is emitted, whose slot moves with it.
        self.limit.retune(Interval::every(self.margin.interval()));
    }

    fn margin(&self) -> Option<&Margin> {
        Some(&self.margin)
    }
}
