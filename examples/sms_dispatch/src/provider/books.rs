//! The records that a provider keeps of its client.

#![expect(
    clippy::disallowed_types,
    reason = "a provider has a clock of its own; sharing the library's would share its mistakes"
)]

use core::time::Duration;
use std::{collections::HashSet, time::Instant};

use super::{
    Name, Quota,
    judge::{Judge, Tally},
};
use crate::{message::Wire, segments::segments};

/// What a provider counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) tally: Tally,
    /// Messages accepted, each counted once.
    pub(crate) accepted: u32,
    /// Messages that had been accepted before.
    pub(crate) duplicates: u32,
    /// Units a second, from the first accepted request to the last. `None` if there are fewer than two.
    pub(crate) per_second: Option<f64>,
    /// The highest rate that the quotas allowed, each for as long as it was in force.
    pub(crate) allowed_per_second: f64,
    pub(crate) was_lowered: bool,
}

/// A quota that comes into force without notice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lowering {
    /// It comes into force once this number of messages has been accepted.
    pub(super) after: usize,
    pub(super) quota: Quota,
}

/// The records of one provider.
#[derive(Debug)]
pub(super) struct Books {
    name: Name,
    judge: Judge,
    lowering: Option<Lowering>,
    /// The quota that replaced the contract's, and when.
    lowered: Option<(Quota, Instant)>,
    known: HashSet<String>,
    duplicates: u32,
    /// Accepted requests.
    answers: u32,
    /// Units accepted before the last request.
    units: u32,
    last_units: u32,
    /// The arrival of the first of them and of the last.
    span: Option<(Instant, Instant)>,
}

impl Books {
    pub(super) fn new(name: Name, judge: Judge, lowering: Option<Lowering>) -> Self {
        Self {
            name,
            judge,
            lowering,
            lowered: None,
            known: HashSet::new(),
            duplicates: 0,
            answers: 0,
            units: 0,
            last_units: 0,
            span: None,
        }
    }

    /// Judges a request, accepts its messages, and returns the number of new ones.
    pub(super) fn take(
        &mut self,
        at: Instant,
        request: Vec<Wire<'static>>,
    ) -> Result<u32, Duration> {
        self.lower(at);
        let name = self.name;
        let size = |message: &Wire<'_>| match name {
            Name::Solo | Name::Bulk => 1,
            Name::Segments => segments(&message.text),
        };
        let cost = match name {
            Name::Bulk => 1,
            Name::Solo | Name::Segments => request.iter().map(size).sum(),
        };
        self.judge.arrive(at, cost)?;
        self.answers += 1;

        let (mut new, mut units) = (0, 0);
        for message in request {
            let size = size(&message);
            if self.known.insert(message.id.into_owned()) {
                new += 1;
                units += size;
            } else {
                self.duplicates += 1;
            }
        }
        if new > 0 {
            self.units += self.last_units;
            self.last_units = units;
            self.span = Some((self.span.map_or(at, |(first, _)| first), at));
        }
        Ok(new)
    }

    pub(super) const fn answers(&self) -> u32 {
        self.answers
    }

    /// The quota that replaced the contract's.
    pub(super) fn lowered(&self) -> Option<Quota> {
        self.lowered.map(|(quota, _)| quota)
    }

    pub(super) fn figures(&self) -> Figures {
        let span = self.span.map_or(Duration::ZERO, |(first, last)| {
            last.saturating_duration_since(first)
        });
        Figures {
            tally: self.judge.tally(),
            accepted: u32::try_from(self.known.len()).unwrap_or(u32::MAX),
            duplicates: self.duplicates,
            // The gap that belongs to the last request comes after it, so the request does not count.
            per_second: (!span.is_zero()).then(|| f64::from(self.units) / span.as_secs_f64()),
            allowed_per_second: self.allowed_per_second(),
            was_lowered: self.lowered.is_some(),
        }
    }

    fn lower(&mut self, at: Instant) {
        let accepted = self.known.len();
        if let Some(Lowering { quota, .. }) = self.lowering.take_if(|next| accepted >= next.after) {
            self.judge.lower(quota.units, quota.window, at);
            self.lowered = Some((quota, at));
        }
    }

    fn allowed_per_second(&self) -> f64 {
        let contract = self.name.quota().per_second();
        let (Some((quota, since)), Some((first, last))) = (self.lowered, self.span) else {
            return contract;
        };
        let lowered = last.saturating_duration_since(since).as_secs_f64();
        let whole = last.saturating_duration_since(first).as_secs_f64();
        if whole == 0.0 {
            return contract;
        }
        contract + (quota.per_second() - contract) * (lowered / whole)
    }
}
