use core::fmt;
use core::time::Duration;

use crate::time::{OutOfRange, Tick};

use super::Accumulator;
use super::window::{Window, WindowClock};

/// Collects items into groups. A group is complete when it is full, by count or by weight, or when its window has ended.
///
/// Count is a special case of weight: each item weighs 1.
///
/// ```
/// use paceline::batch::{Group, Window};
/// use paceline::time::Tick;
/// use std::time::Duration;
///
/// let mut group = Group::new(2, Duration::from_nanos(100), Window::FirstItem);
/// let at = Tick::from_nanos;
///
/// assert_eq!(group.push('a', at(30)), None);
/// assert_eq!(group.due(), Some(at(130)));
/// assert_eq!(group.push('b', at(40)), Some(vec!['a', 'b']), "full");
/// ```
pub struct Group<T> {
    items: GroupBuffer<T>,
    /// The sum of the weights of the items: at most `max`, unless there is only one item.
    weight: u64,
    max: u64,
    clock: WindowClock,
}

impl<T> Group<T> {
    /// Groups of at most `max` items, each with a window of length `window` that starts as `start` says.
    ///
    /// # Panics
    ///
    /// If `max` or `window` is zero. [`try_new`](Self::try_new) returns an error instead.
    #[must_use]
    #[track_caller]
    pub const fn new(max: usize, window: Duration, start: Window) -> Self {
        OutOfRange::or_panic(check(max as u64, window, NO_ITEMS));
        Self::unchecked(max as u64, window, start)
    }

    /// The same as [`new`](Self::new), for values from a configuration.
    ///
    /// ```
    /// use paceline::batch::{Group, Window};
    /// use std::time::Duration;
    ///
    /// let error = Group::<u8>::try_new(0, Duration::from_secs(1), Window::FirstItem).unwrap_err();
    /// assert_eq!(error.to_string(), "a group needs room for at least 1 item, got 0");
    /// ```
    ///
    /// # Errors
    ///
    /// If `max` or `window` is zero.
    pub const fn try_new(max: usize, window: Duration, start: Window) -> Result<Self, OutOfRange> {
        match check(max as u64, window, NO_ITEMS) {
            Ok(()) => Ok(Self::unchecked(max as u64, window, start)),
            Err(error) => Err(error),
        }
    }

    /// Groups with a weight of at most `max`, each with a window of length `window` that starts as `start` says.
    ///
    /// ```
    /// use paceline::batch::{Group, Window};
    /// use paceline::time::Tick;
    /// use std::time::Duration;
    ///
    /// let mut group = Group::weighing(10, Duration::from_nanos(100), Window::FirstItem);
    /// let now = Tick::ZERO;
    ///
    /// assert_eq!(group.push_weighing('a', 6, now), None);
    /// assert_eq!(group.push_weighing('b', 6, now), Some(vec!['a']), "b has no room beside it");
    /// assert_eq!(group.push_weighing('c', 4, now), Some(vec!['b', 'c']), "full");
    /// ```
    ///
    /// # Panics
    ///
    /// If `max` or `window` is zero. [`try_weighing`](Self::try_weighing) returns an error instead.
    #[must_use]
    #[track_caller]
    pub const fn weighing(max: u64, window: Duration, start: Window) -> Self {
        OutOfRange::or_panic(check(max, window, NO_WEIGHT));
        Self::unchecked(max, window, start)
    }

    /// The same as [`weighing`](Self::weighing), for values from a configuration.
    ///
    /// # Errors
    ///
    /// If `max` or `window` is zero.
    pub const fn try_weighing(
        max: u64,
        window: Duration,
        start: Window,
    ) -> Result<Self, OutOfRange> {
        match check(max, window, NO_WEIGHT) {
            Ok(()) => Ok(Self::unchecked(max, window, start)),
            Err(error) => Err(error),
        }
    }

    const fn unchecked(max: u64, window: Duration, start: Window) -> Self {
        Self {
            items: GroupBuffer::new(),
            weight: 0,
            max,
            clock: WindowClock::new(window, start),
        }
    }

    /// The same groups, with windows that start as `start` says.
    #[must_use]
    pub fn with_window(mut self, start: Window) -> Self {
        self.clock.start = start;
        self
    }

    /// Starts the first window, unless it has started already.
    pub fn begin(&mut self, now: Tick) {
        self.clock.begin(now);
    }

    /// Adds an item of weight 1 that arrives `now`: see [`push_weighing`](Self::push_weighing).
    #[must_use = "a group that is complete should leave at once"]
    pub fn push(&mut self, item: T, now: Tick) -> Option<Vec<T>> {
        self.push_weighing(item, 1, now)
    }

    /// Adds an item that arrives `now`, and returns the group that the item completes.
    ///
    /// * If the item fills the group, the returned group includes it.
    /// * If the window of the held items has ended, or the item does not fit beside them, the returned group is without
    ///   the item. The item becomes the first of the next group.
    ///
    /// An item that fills a group alone can complete two groups: the one before it and its own. The second one is then
    /// [due](Self::is_due) at once.
    #[must_use = "a group that is complete should leave at once"]
    #[inline]
    pub fn push_weighing(&mut self, item: T, weight: u64, now: Tick) -> Option<Vec<T>> {
        self.begin(now);
        let before = if self.is_due(now) {
            Some(self.take(now))
        } else if self.has_room_for(weight) {
            None
        } else {
            Some(self.close(true, now))
        };
        if self.items.is_empty() {
            self.clock.open(now);
        }
        self.items.push(item);
        self.weight = self.weight.saturating_add(weight);
        before.or_else(|| self.is_due(now).then(|| self.take(now)))
    }

    /// When the window of the held items ends; `None` if no item is held.
    #[must_use]
    pub fn due(&self) -> Option<Tick> {
        self.clock.ends.filter(|_| !self.items.is_empty())
    }

    /// Whether the group has to leave `now`: it is full, or its window has ended. An empty group is never due.
    #[must_use]
    pub fn is_due(&self, now: Tick) -> bool {
        self.is_full() || self.due().is_some_and(|due| due <= now)
    }

    /// Takes the group, which leaves `now`. The next group begins, unless the group was empty.
    pub fn take(&mut self, now: Tick) -> Vec<T> {
        self.close(self.is_full(), now)
    }

    /// How many items are held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether no item is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The largest weight of a group. Only a group of a single heavier item weighs more. If each item weighs 1, this is the
    /// largest number of items.
    #[must_use]
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// Reuses the memory of `group` for a later group. Items that are still in it are dropped.
    pub fn recycle(&mut self, group: Vec<T>) {
        self.items.recycle(group);
    }

    /// The items that are held.
    #[must_use]
    pub fn into_items(self) -> Vec<T> {
        self.items.into_vec()
    }

    const fn is_full(&self) -> bool {
        self.weight >= self.max
    }

    /// Whether an item of this weight that arrives `now` completes a group.
    pub(crate) fn is_due_with(&self, weight: u64, now: Tick) -> bool {
        let is_first = self.items.is_empty();
        self.weight.saturating_add(weight) >= self.max || self.clock.is_over(is_first, now)
    }

    /// Whether an item of this weight can join the group. The first item always can.
    fn has_room_for(&self, weight: u64) -> bool {
        self.items.is_empty() || weight <= self.max.saturating_sub(self.weight)
    }

    /// Takes the items, which leave `now`: because the group was filled, or because its window has ended.
    fn close(&mut self, was_filled: bool, now: Tick) -> Vec<T> {
        if self.items.is_empty() {
            return Vec::new();
        }
        self.clock.close(was_filled, now);
        self.weight = 0;
        self.items.take()
    }
}

/// An item comes with its weight.
impl<T> Accumulator for Group<T> {
    type Item = (T, u64);
    type Complete = Vec<T>;

    fn begin(&mut self, now: Tick) {
        self.begin(now);
    }

    fn push(&mut self, (item, weight): (T, u64), now: Tick) -> Option<Vec<T>> {
        self.push_weighing(item, weight, now)
    }

    fn due(&self) -> Option<Tick> {
        self.due()
    }

    fn is_due(&self, now: Tick) -> bool {
        self.is_due(now)
    }

    fn take(&mut self, now: Tick) -> Option<Vec<T>> {
        Some(self.take(now)).filter(|group| !group.is_empty())
    }

    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}

/// Does not require `T: Debug` and does not print the items: they may be secret or large.
impl<T> fmt::Debug for Group<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("len", &self.items.len())
            .field("weight", &self.weight)
            .field("max", &self.max)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

const NO_ITEMS: OutOfRange =
    OutOfRange::new("max", "a group needs room for at least 1 item, got 0");
const NO_WEIGHT: OutOfRange = OutOfRange::new(
    "max",
    "a group needs room for a weight of at least 1, got 0",
);
const NO_WINDOW: OutOfRange =
    OutOfRange::new("window", "a group needs a window of at least 1 ns, got 0");

const fn check(max: u64, window: Duration, zero_max: OutOfRange) -> Result<(), OutOfRange> {
    if max == 0 {
        return Err(zero_max);
    }
    if window.is_zero() {
        return Err(NO_WINDOW);
    }
    Ok(())
}

/// The items of one group.
///
/// Each group allocates at most once, with the size of the group before it. A recycled group saves that allocation too.
#[derive(Debug)]
pub(crate) struct GroupBuffer<T> {
    held: Vec<T>,
    /// Empty. Its memory comes from a recycled group.
    spare: Vec<T>,
    /// The number of items of the last group.
    last_len: usize,
}

impl<T> GroupBuffer<T> {
    pub(crate) const fn new() -> Self {
        Self {
            held: Vec::new(),
            spare: Vec::new(),
            last_len: 0,
        }
    }

    pub(crate) fn push(&mut self, item: T) {
        if self.held.capacity() == 0 {
            self.held = core::mem::take(&mut self.spare);
            self.held.reserve(self.last_len);
        }
        self.held.push(item);
    }

    pub(crate) fn take(&mut self) -> Vec<T> {
        self.last_len = self.held.len();
        core::mem::take(&mut self.held)
    }

    /// Keeps the memory of `group` for a later group; of two recycled groups the larger. Drops the items in it.
    pub(crate) fn recycle(&mut self, mut group: Vec<T>) {
        group.clear();
        if group.capacity() > self.spare.capacity() {
            self.spare = group;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(crate) fn into_vec(self) -> Vec<T> {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_nanos(100);

    fn at(nanos: u64) -> Tick {
        Tick::from_nanos(nanos)
    }

    fn started(max: usize, window: Window) -> Group<char> {
        let mut group = Group::new(max, LENGTH, window);
        group.begin(at(0));
        group
    }

    #[test]
    fn an_empty_group_is_never_due() {
        for window in [Window::FirstItem, Window::LastGroup, Window::Grid] {
            let group = started(2, window);
            assert_eq!(group.due(), None);
            assert!(!group.is_due(Tick::MAX));
        }
    }

    #[test]
    fn no_item_waits_longer_than_a_window_that_starts_at_the_first_item() {
        let mut group = started(3, Window::FirstItem);

        assert_eq!(group.push('a', at(90)), None);
        assert_eq!(group.push('b', at(150)), None);
        assert_eq!(group.due(), Some(at(190)));
        assert!(!group.is_due(at(189)));
        assert!(group.is_due(at(190)));
        assert_eq!(group.take(at(190)), ['a', 'b']);
        assert_eq!(group.push('c', at(195)), None);
        assert_eq!(group.due(), Some(at(295)));
    }

    #[test]
    fn after_an_empty_window_from_the_last_group_the_next_item_leaves_alone() {
        let mut group = started(9, Window::LastGroup);

        assert_eq!(group.push('a', at(90)), None);
        assert_eq!(group.due(), Some(at(100)));
        assert_eq!(
            group.take(at(130)),
            ['a'],
            "late, and the next window counts from there"
        );
        assert_eq!(group.push('b', at(229)), None);
        assert_eq!(group.take(at(230)), ['b']);
        assert_eq!(
            group.push('c', at(330)),
            Some(vec!['c']),
            "the window ended with the arrival"
        );
    }

    #[test]
    fn a_late_group_does_not_move_the_grid_and_a_full_one_does() {
        let mut group = started(2, Window::Grid);

        assert_eq!(group.push('a', at(90)), None);
        assert_eq!(group.due(), Some(at(100)));
        assert_eq!(group.take(at(130)), ['a']);
        assert_eq!(
            group.push('b', at(200)),
            None,
            "the tick is over: it goes first"
        );
        assert_eq!(group.due(), Some(at(300)));
        assert_eq!(group.push('c', at(250)), Some(vec!['b', 'c']));
        assert_eq!(group.push('d', at(1_010)), None);
        assert_eq!(group.due(), Some(at(1_050)));
    }

    #[test]
    fn an_item_that_arrives_when_the_window_ends_starts_the_next_group() {
        for window in [Window::FirstItem, Window::LastGroup, Window::Grid] {
            let mut group = started(9, window);
            assert_eq!(group.push('a', at(0)), None);
            assert_eq!(group.push('b', at(100)), Some(vec!['a']), "{window:?}");
            assert_eq!(group.due(), Some(at(200)));
            assert_eq!(group.push('c', at(350)), Some(vec!['b']));
            assert!(!group.is_empty() && format!("{group:?}").contains("len: 1"));
            assert_eq!(group.into_items(), ['c']);
        }
    }

    #[test]
    fn a_group_of_one_is_full_at_once() {
        let mut group = started(1, Window::FirstItem);
        assert_eq!(group.push('a', at(0)), Some(vec!['a']));
        assert_eq!(group.push('b', at(0)), Some(vec!['b']));
        assert!(group.is_empty() && group.due().is_none());
    }

    #[test]
    fn a_weight_of_exactly_the_maximum_completes_a_group() {
        let mut group = Group::weighing(10, LENGTH, Window::FirstItem);
        assert_eq!(group.push_weighing('a', 4, at(0)), None);
        assert_eq!(group.push_weighing('b', 6, at(1)), Some(vec!['a', 'b']));
        assert!(group.is_empty());
    }

    #[test]
    fn an_item_that_does_not_fit_completes_the_group_and_starts_the_next() {
        let mut group = Group::weighing(10, LENGTH, Window::FirstItem);
        assert_eq!(group.push_weighing('a', 6, at(0)), None);
        assert_eq!(group.push_weighing('b', 5, at(30)), Some(vec!['a']));
        assert_eq!(group.due(), Some(at(130)), "its own window");
        assert!(!group.is_due(at(30)));
        assert_eq!(group.push_weighing('c', 5, at(40)), Some(vec!['b', 'c']));
    }

    #[test]
    fn an_item_heavier_than_the_maximum_leaves_alone_without_an_empty_group_before_it() {
        let mut group = Group::weighing(10, LENGTH, Window::FirstItem);
        assert_eq!(group.push_weighing('a', 11, at(0)), Some(vec!['a']));
        assert_eq!(group.push_weighing('b', 1, at(0)), None);
        assert_eq!(group.due(), Some(at(100)));
    }

    #[test]
    fn an_item_that_completes_two_groups_is_held_and_due() {
        for weight in [10, 11, u64::MAX] {
            let mut group = Group::weighing(10, LENGTH, Window::FirstItem);
            assert_eq!(group.push_weighing('a', 1, at(0)), None);
            assert_eq!(group.push_weighing('b', weight, at(0)), Some(vec!['a']));
            assert!(group.is_due(at(0)));
            assert_eq!(group.push_weighing('c', weight, at(0)), Some(vec!['b']));
            assert_eq!(group.take(at(0)), ['c']);
            assert!(group.is_empty() && !group.is_due(Tick::MAX));
        }
    }

    #[test]
    fn a_group_completed_by_an_item_that_does_not_fit_restarts_the_grid() {
        let mut group = Group::weighing(10, LENGTH, Window::Grid);
        group.begin(at(0));
        assert_eq!(group.push_weighing('a', 6, at(20)), None);
        assert_eq!(group.push_weighing('b', 6, at(30)), Some(vec!['a']));
        assert_eq!(group.due(), Some(at(130)));
    }

    #[test]
    fn the_largest_weights_do_not_overflow() {
        let mut group = Group::weighing(u64::MAX, LENGTH, Window::FirstItem);
        let most = u64::MAX - 1;
        assert_eq!(group.push_weighing('a', most, at(0)), None);
        assert_eq!(group.push_weighing('b', most, at(0)), Some(vec!['a']));
        assert_eq!(group.push_weighing('c', 1, at(0)), Some(vec!['b', 'c']));
    }

    #[test]
    fn items_of_weight_0_wait_for_the_window() {
        let mut group = Group::weighing(1, LENGTH, Window::FirstItem);
        for _ in 0..9 {
            assert_eq!(group.push_weighing('a', 0, at(0)), None);
        }
        assert_eq!(group.due(), Some(at(100)));
        assert_eq!(group.push_weighing('b', 2, at(1)), Some(vec!['a'; 9]));
        assert_eq!(group.take(at(1)), ['b']);
    }

    #[test]
    fn taking_an_empty_group_starts_no_window() {
        let mut group = started(9, Window::LastGroup);
        assert!(group.take(at(50)).is_empty());
        assert_eq!(group.push('a', at(60)), None);
        assert_eq!(group.due(), Some(at(100)));
    }

    #[test]
    fn the_longest_window_and_the_largest_group_work() {
        for window in [Window::FirstItem, Window::LastGroup, Window::Grid] {
            let mut group = Group::new(usize::MAX, Duration::MAX, window);
            assert_eq!(group.push('a', at(5)), None);
            assert_eq!(group.due(), Some(Tick::MAX));
            assert_eq!(group.take(at(6)), ['a']);
        }
    }

    #[test]
    fn a_maximum_or_a_window_of_0_is_an_error_with_the_message_of_the_panic() {
        let no_items = Group::<char>::try_new(0, LENGTH, Window::Grid).err();
        let no_weight = Group::<char>::try_weighing(0, LENGTH, Window::Grid).err();
        let no_window = Group::<char>::try_new(1, Duration::ZERO, Window::Grid).err();
        let said = [no_items, no_weight, no_window]
            .map(|error| error.map(|error| (error.parameter(), error.to_string())));
        let expected = [
            ("max", "a group needs room for at least 1 item, got 0"),
            (
                "max",
                "a group needs room for a weight of at least 1, got 0",
            ),
            ("window", "a group needs a window of at least 1 ns, got 0"),
        ];
        assert_eq!(
            said,
            expected.map(|(parameter, message)| Some((parameter, message.to_owned())))
        );
        assert!(Group::<char>::try_new(1, LENGTH, Window::Grid).is_ok());
        assert!(Group::<char>::try_weighing(1, LENGTH, Window::Grid).is_ok());
    }

    #[test]
    #[should_panic(expected = "a group needs room for at least 1 item, got 0")]
    fn new_panics_on_a_maximum_of_0() {
        let _ = Group::<char>::new(0, LENGTH, Window::Grid);
    }

    #[test]
    #[should_panic(expected = "a group needs room for a weight of at least 1, got 0")]
    fn weighing_panics_on_a_maximum_of_0() {
        let _ = Group::<char>::weighing(0, LENGTH, Window::Grid);
    }

    #[test]
    #[should_panic(expected = "a group needs a window of at least 1 ns, got 0")]
    fn new_panics_on_a_window_of_0() {
        let _ = Group::<char>::new(1, Duration::ZERO, Window::Grid);
    }

    fn group_of(items: &mut GroupBuffer<u32>, count: u32) -> Vec<u32> {
        (0..count).for_each(|n| items.push(n));
        items.take()
    }

    #[test]
    fn a_group_is_allocated_once_with_the_size_of_the_group_before() {
        let mut items = GroupBuffer::new();
        assert_eq!(group_of(&mut items, 1_000).len(), 1_000);
        items.push(0);
        assert_eq!(items.held.capacity(), 1_000);
        assert_eq!(group_of(&mut items, 999).capacity(), 1_000);
    }

    #[test]
    fn the_memory_of_a_recycled_group_is_used_again() {
        let mut items = GroupBuffer::new();
        let group = group_of(&mut items, 100);
        let address = group.as_ptr();
        items.recycle(group);
        items.recycle(vec![1, 2, 3]);
        let again = group_of(&mut items, 100);
        assert_eq!(again.as_ptr(), address);
        assert_eq!(again[..3], [0, 1, 2], "the recycled items are gone");
    }
}
