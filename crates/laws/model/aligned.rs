//! The model of an aligned window: the windows of the calendar, one after another.

use std::sync::OnceLock;

use paceline::policy::{AlignedWindow, Alignment};
use paceline::time::Tick;

use super::super::subject::Aligned;
use super::windows::{due, take_newest, total};
use super::{Due, Model};

const DAY: i128 = 86_400_000_000_000;

/// Each request that passed, with its instant. The wall clock shows the ticks.
#[derive(Clone, Debug)]
pub(crate) struct Calendar {
    window: AlignedWindow,
    passed: Vec<(u128, u32)>,
    /// The end of the window in which a request passed last, and when its first one did.
    opened: Option<(u128, u128)>,
    /// The count at a retune, and the end of the window that it is for.
    kept: Option<u128>,
}

impl Calendar {
    /// The shortest delay until a request arrives, and the longest one.
    fn delays(&self) -> [u128; 2] {
        let delay = self.window.margin();
        delay.map_or([0; 2], |delay| {
            [delay.start().as_nanos(), delay.end().as_nanos()]
        })
    }

    /// When what leaves begins to arrive in another window than what leaves at this instant.
    fn end_after(&self, at: u128) -> u128 {
        let [shortest, _] = self.delays();
        let ahead = i128::from(self.window.utc_offset()) * 1_000_000_000;
        let ahead = ahead + i128::try_from(shortest).unwrap();
        let local = i128::try_from(at).unwrap() + ahead;
        let (length, first) = match self.window.alignment() {
            Alignment::Month => {
                let months = first_days();
                let next = months.partition_point(|day| day * DAY <= local);
                return u128::try_from(months[next] * DAY - ahead).unwrap();
            }
            Alignment::Week => (7 * DAY, 4 * DAY),
            other => (i128::try_from(other.longest().as_nanos()).unwrap(), 0),
        };
        let number = (local - first).div_euclid(length);
        u128::try_from(first + (number + 1) * length - ahead).unwrap()
    }

    fn counts_at(&self, then: u128) -> u128 {
        let end = self.end_after(then);
        if let Some(kept) = self.kept {
            return total(&self.passed, |_| kept == end);
        }
        total(&self.passed, |at| self.end_after(at) == end)
    }
}

/// Of all months to the year 2600.
fn first_days() -> &'static [i128] {
    static DAYS: OnceLock<Vec<i128>> = OnceLock::new();
    DAYS.get_or_init(|| {
        let mut days = vec![-31, 0];
        for year in 1970..2600 {
            let is_leap = year % 400 == 0 || (year % 4 == 0 && year % 100 != 0);
            let february = if is_leap { 29 } else { 28 };
            for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
                days.push(days[days.len() - 1] + length);
            }
        }
        days
    })
}

impl Model<Aligned> for Calendar {
    fn start(policy: &Aligned, _now: Tick) -> Self {
        Self {
            window: policy.window.clone(),
            passed: Vec::new(),
            opened: None,
            kept: None,
        }
    }

    fn due(&self, now: Tick, cost: u32) -> Due {
        let limit = self.window.limit();
        let over = self.end_after(now.as_nanos().into());
        due(limit, now, cost, &[over], |then| {
            let [shortest, longest] = self.delays();
            let end = self.end_after(then);
            // A window that ends after the last tick has no next one.
            let has_next = longest > shortest && end < u64::MAX.into();
            let may_be_late = has_next && then + longest - shortest >= end;
            !may_be_late && self.counts_at(then) + u128::from(cost) <= limit.into()
        })
    }

    fn count(&mut self, now: Tick, cost: u32) {
        let now = now.as_nanos().into();
        let end = self.end_after(now);
        if cost == 0 {
            return;
        }
        if self.opened.is_none_or(|(opened, _)| opened != end) {
            self.opened = Some((end, now));
            self.kept = None;
            self.passed.clear();
        }
        self.passed.push((now, cost));
    }

    fn refund(&mut self, _now: Tick, cost: u32) {
        take_newest(&mut self.passed, cost);
    }

    /// Only of this window.
    fn refund_from(&mut self, now: Tick, spent_at: Tick, cost: u32) {
        if self
            .opened
            .is_some_and(|(_, began)| began <= spent_at.as_nanos().into())
        {
            self.refund(now, cost);
        }
    }

    /// The count of the window at this instant, in the new window at this instant.
    fn retuned(&self, policy: &Aligned, now: Tick) -> Option<Self> {
        let mut kept = Self::start(policy, now);
        let now = now.as_nanos().into();
        let end = self.end_after(now);
        kept.passed.clone_from(&self.passed);
        kept.passed.retain(|&(at, _)| self.end_after(at) == end);
        let opened = self.opened.filter(|(opened, _)| *opened == end);
        let end = kept.end_after(now);
        kept.opened = opened.map(|(_, began)| (end, began));
        kept.kept = Some(end);
        Some(kept)
    }
}
