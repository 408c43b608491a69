use std::collections::VecDeque;

/// An empty ledger keeps room for so many entries: one that is used again and again does not allocate each time.
const KEPT: usize = 16;

/// What was spent when, oldest first: the memory of the sliding windows.
///
/// When is a number that never falls: a tick, or the number of a bucket. Each entry keeps the sum of all that was spent up
/// to it, so that every question is a binary search.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    entries: VecDeque<Entry>,
    /// All that was spent before the first entry. Sums may wrap: only their differences mean something.
    before: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    when: u64,
    /// All that was spent up to and including this entry.
    sum: u64,
}

impl Ledger {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// When something was spent last.
    pub(super) fn last(&self) -> Option<u64> {
        self.entries.back().map(|entry| entry.when)
    }

    /// How much was spent at `when` or later.
    pub(super) fn spent_from(&self, when: u64) -> u64 {
        let earlier = self.entries.partition_point(|entry| entry.when < when);
        self.total().wrapping_sub(self.sum_before(earlier))
    }

    /// If more than `room` was spent: until when that was which has to be gone so that no more than `room` is left.
    pub(super) fn must_go(&self, room: u64) -> Option<u64> {
        let total = self.total();
        if total.wrapping_sub(self.before) <= room {
            return None;
        }
        let last = self
            .entries
            .partition_point(|entry| total.wrapping_sub(entry.sum) > room);
        self.entries.get(last).map(|entry| entry.when)
    }

    /// Writes down that `cost` was spent at `when`, or at the last entry if that is later.
    pub(super) fn spend(&mut self, when: u64, cost: u32) {
        let sum = self.total().wrapping_add(u64::from(cost));
        match self.entries.back_mut() {
            Some(last) if last.when >= when => last.sum = sum,
            _ => self.entries.push_back(Entry { when, sum }),
        }
    }

    /// Takes back the last `cost` that was spent, as far as it is still known.
    pub(super) fn take_back(&mut self, cost: u32) {
        let before = self.before;
        let left = self
            .total()
            .wrapping_sub(before)
            .saturating_sub(u64::from(cost));
        let whole = self
            .entries
            .partition_point(|entry| entry.sum.wrapping_sub(before) <= left);
        let rest = left > self.sum_before(whole).wrapping_sub(before);
        self.entries.truncate(whole + usize::from(rest));
        if let Some(last) = self.entries.back_mut() {
            last.sum = before.wrapping_add(left);
        }
    }

    /// Forgets what was spent at `when` or before, and gives back the memory when nothing is left, unless it is little.
    pub(super) fn forget(&mut self, when: u64) {
        if self.last().is_none_or(|last| last <= when) {
            return self.forget_all();
        }
        let gone = self.entries.partition_point(|entry| entry.when <= when);
        self.before = self.sum_before(gone);
        self.entries.drain(..gone);
    }

    fn forget_all(&mut self) {
        self.before = self.total();
        self.entries.clear();
        if self.entries.capacity() > KEPT {
            self.entries = VecDeque::new();
        }
    }

    /// Says anew when each entry was. The order must stay.
    pub(super) fn redate(&mut self, when: impl Fn(u64) -> u64) {
        for entry in &mut self.entries {
            entry.when = when(entry.when);
        }
    }

    fn total(&self) -> u64 {
        self.entries.back().map_or(self.before, |entry| entry.sum)
    }

    fn sum_before(&self, index: usize) -> u64 {
        let previous = index
            .checked_sub(1)
            .and_then(|index| self.entries.get(index));
        previous.map_or(self.before, |entry| entry.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(spent: &[(u64, u32)]) -> Ledger {
        let mut ledger = Ledger::default();
        for (when, cost) in spent {
            ledger.spend(*when, *cost);
        }
        ledger
    }

    #[test]
    fn says_what_was_spent_since() {
        let ledger = ledger(&[(10, 1), (20, 2), (20, 3), (30, 4)]);

        let spent = [0, 10, 11, 20, 21, 30, 31].map(|when| ledger.spent_from(when));
        assert_eq!(spent, [10, 10, 9, 9, 4, 4, 0]);
        assert_eq!(ledger.last(), Some(30));
    }

    #[test]
    fn says_how_much_of_the_past_has_to_go() {
        let ledger = ledger(&[(10, 1), (20, 5), (30, 4)]);

        let must_go = [10, 9, 8, 4, 3, 0].map(|room| ledger.must_go(room));
        assert_eq!(
            must_go,
            [None, Some(10), Some(20), Some(20), Some(30), Some(30)]
        );
    }

    #[test]
    fn what_is_forgotten_no_longer_counts() {
        let mut ledger = ledger(&[(10, 1), (20, 5), (30, 4)]);

        ledger.forget(20);
        assert_eq!((ledger.spent_from(0), ledger.must_go(4)), (4, None));
        ledger.forget(30);
        assert!(ledger.is_empty());
        ledger.spend(40, 2);
        assert_eq!(ledger.spent_from(0), 2);
    }

    #[test]
    fn an_empty_one_keeps_room_for_a_few_entries_and_releases_more() {
        for (spent, kept) in [(KEPT, KEPT), (KEPT + 1, 0)] {
            let mut ledger = Ledger::default();
            for when in 0..spent {
                ledger.spend(when as u64, 1);
            }
            ledger.forget(spent as u64);
            assert!(ledger.is_empty());
            assert_eq!(ledger.entries.capacity(), kept, "after {spent}");
        }
    }

    #[test]
    fn takes_back_the_latest_first_and_no_more_than_there_is() {
        let mut ledger = ledger(&[(10, 1), (20, 5), (30, 4)]);

        ledger.take_back(6);
        assert_eq!(
            (ledger.spent_from(0), ledger.spent_from(20), ledger.last()),
            (4, 3, Some(20))
        );
        ledger.take_back(3);
        assert_eq!(ledger.last(), Some(10));
        ledger.take_back(99);
        assert!(ledger.is_empty());
        assert_eq!(ledger.spent_from(0), 0);
    }

    #[test]
    fn time_that_goes_back_is_written_down_as_the_latest() {
        let ledger = ledger(&[(30, 1), (10, 2)]);
        assert_eq!((ledger.spent_from(30), ledger.last()), (3, Some(30)));
    }

    #[test]
    fn sums_may_wrap() {
        let mut ledger = Ledger {
            before: u64::MAX - 2,
            ..Ledger::default()
        };
        ledger.spend(10, 2);
        ledger.spend(20, 2);
        assert_eq!(
            (
                ledger.spent_from(0),
                ledger.spent_from(20),
                ledger.must_go(2)
            ),
            (4, 2, Some(10))
        );
        ledger.take_back(1);
        ledger.forget(10);
        assert_eq!(ledger.spent_from(0), 1);
    }
}
