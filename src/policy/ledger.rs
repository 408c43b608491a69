use std::collections::VecDeque;

/// An empty ledger keeps memory for this many entries, so that a ledger in steady use does not allocate each time.
const KEPT: usize = 16;

/// The costs that were spent and when, oldest first: the memory of the sliding windows, and of permits that cool down.
///
/// `when` is a number that never decreases: a tick, or the number of a bucket. Each entry holds the sum of all costs up to
/// it, so that each query is a binary search.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    entries: VecDeque<Entry>,
    /// The sum of the costs before the first entry. Sums may wrap, since only differences are used.
    before: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    when: u64,
    /// The sum of the costs up to and including this entry.
    sum: u64,
}

impl Ledger {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The `when` of the last entry.
    pub(crate) fn last(&self) -> Option<u64> {
        self.entries.back().map(|entry| entry.when)
    }

    /// The cost spent at `when` or later.
    pub(crate) fn spent_from(&self, when: u64) -> u64 {
        let earlier = self.entries.partition_point(|entry| entry.when < when);
        self.total().wrapping_sub(self.sum_before(earlier))
    }

    /// The `when` of the last entry that must expire so that the rest is at most `room`; `None` if it is already.
    pub(crate) fn must_go(&self, room: u64) -> Option<u64> {
        let total = self.total();
        if total.wrapping_sub(self.before) <= room {
            return None;
        }
        let last = self
            .entries
            .partition_point(|entry| total.wrapping_sub(entry.sum) > room);
        self.entries.get(last).map(|entry| entry.when)
    }

    /// Adds `cost` at `when`, or to the last entry if that is later.
    pub(crate) fn spend(&mut self, when: u64, cost: u32) {
        let spent = self.total().wrapping_sub(self.before);
        // More than the largest number would count as little.
        let sum = self.before.wrapping_add(spent.saturating_add(cost.into()));
        match self.entries.back_mut() {
            Some(last) if last.when >= when => last.sum = sum,
            _ => self.entries.push_back(Entry { when, sum }),
        }
    }

    /// Removes `cost` from the end, or everything if less is known.
    pub(crate) fn take_back(&mut self, cost: u32) {
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

    /// Removes `cost` from the entries at `when` or before, the latest first, or everything in them if that is less.
    pub(crate) fn take_back_from(&mut self, when: u64, cost: u32) {
        let end = self.entries.partition_point(|entry| entry.when <= when);
        let later = self.entries.split_off(end);
        let total = self.total();
        self.take_back(cost);
        let taken = total.wrapping_sub(self.total());
        self.entries.extend(later.into_iter().map(|entry| Entry {
            sum: entry.sum.wrapping_sub(taken),
            ..entry
        }));
    }

    /// Drops the entries at `when` or before. If no entry is left, releases the memory above [`KEPT`] entries.
    pub(crate) fn forget(&mut self, when: u64) {
        let gone = self.entries.partition_point(|entry| entry.when <= when);
        self.before = self.sum_before(gone);
        self.entries.drain(..gone);
        if self.is_empty() && self.entries.capacity() > KEPT {
            self.entries = VecDeque::new();
        }
    }

    /// Replaces the `when` of each entry. The order must not change.
    pub(crate) fn redate(&mut self, when: impl Fn(u64) -> u64) {
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
    fn spent_from_sums_the_later_entries() {
        let ledger = ledger(&[(10, 1), (20, 2), (20, 3), (30, 4)]);

        let spent = [0, 10, 11, 20, 21, 30, 31].map(|when| ledger.spent_from(when));
        assert_eq!(spent, [10, 10, 9, 9, 4, 4, 0]);
        assert_eq!(ledger.last(), Some(30));
    }

    #[test]
    fn must_go_is_the_last_entry_that_must_expire() {
        let ledger = ledger(&[(10, 1), (20, 5), (30, 4)]);

        let must_go = [10, 9, 8, 4, 3, 0].map(|room| ledger.must_go(room));
        assert_eq!(
            must_go,
            [None, Some(10), Some(20), Some(20), Some(30), Some(30)]
        );
    }

    #[test]
    fn forgotten_entries_no_longer_count() {
        let mut ledger = ledger(&[(10, 1), (20, 5), (30, 4)]);

        ledger.forget(20);
        assert_eq!((ledger.spent_from(0), ledger.must_go(4)), (4, None));
        ledger.forget(30);
        assert!(ledger.is_empty());
        ledger.spend(40, 2);
        assert_eq!(ledger.spent_from(0), 2);
    }

    #[test]
    fn an_empty_ledger_keeps_memory_for_a_few_entries_and_releases_more() {
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
    fn take_back_removes_the_latest_cost_first_and_at_most_everything() {
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
    fn a_cost_is_taken_back_from_its_time_and_then_from_before() {
        let taken = |when, cost| {
            let mut ledger = ledger(&[(10, 1), (20, 5), (30, 4)]);
            ledger.take_back_from(when, cost);
            [10, 20, 30].map(|when| ledger.spent_from(when) - ledger.spent_from(when + 1))
        };
        assert_eq!(taken(30, 3), [1, 5, 1]);
        assert_eq!(taken(20, 3), [1, 2, 4]);
        assert_eq!(taken(29, 5), [1, 0, 4]);
        assert_eq!(taken(20, u32::MAX), [0, 0, 4]);
        assert_eq!(taken(9, 3), [1, 5, 4]);
    }

    #[test]
    fn more_than_the_largest_sum_is_the_largest_sum() {
        let mut ledger = Ledger {
            before: 7,
            ..Ledger::default()
        };
        ledger.spend(10, u32::MAX);
        ledger.entries[0].sum = 6;
        ledger.spend(20, 2);
        assert_eq!(ledger.spent_from(10), u64::MAX);
        assert_eq!(ledger.must_go(1), Some(10));
    }

    #[test]
    fn a_cost_at_an_earlier_time_is_added_to_the_last_entry() {
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
