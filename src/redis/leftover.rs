use core::time::Duration;

use crate::time::Tick;

/// Permits that came for somebody who had left, or wanted something else meanwhile.
#[derive(Debug, Default)]
pub(super) struct Leftover {
    permits: u32,
    /// When the first of them were counted: none is taken for younger than it is.
    counted_at: Tick,
}

impl Leftover {
    pub(super) fn add(&mut self, permits: u32, counted_at: Tick) {
        self.counted_at = match self.permits {
            0 => counted_at,
            _ => self.counted_at.min(counted_at),
        };
        self.permits = self.permits.saturating_add(permits);
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.permits == 0
    }

    /// For somebody else, if there are so many: when they were counted.
    pub(super) fn take(&mut self, cost: u32) -> Option<Tick> {
        self.permits = self.permits.checked_sub(cost)?;
        Some(self.counted_at)
    }

    /// All of them.
    pub(super) fn take_all(&mut self) -> u32 {
        core::mem::take(&mut self.permits)
    }

    /// Those that nobody has used for so long are void.
    pub(super) fn forget_after(&mut self, now: Tick, time: Duration) {
        if now.since(self.counted_at) > time {
            self.permits = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Tick {
        Tick::from_nanos(nanos)
    }

    const TEN: Duration = Duration::from_nanos(10);

    #[test]
    fn they_are_as_old_as_the_first_of_them() {
        let mut leftover = Leftover::default();
        leftover.add(2, at(5));
        leftover.add(3, at(8));
        assert_eq!(leftover.take(6), None);
        assert_eq!(leftover.take(4), Some(at(5)));
        leftover.forget_after(at(15), TEN);
        assert_eq!(leftover.take_all(), 1);
        assert!(leftover.is_empty());
        leftover.add(1, at(20));
        assert_eq!(leftover.take(1), Some(at(20)));
    }

    #[test]
    fn they_are_void_after_their_time_and_never_too_many_to_be_counted() {
        let mut leftover = Leftover::default();
        leftover.add(u32::MAX, at(5));
        leftover.add(u32::MAX, at(5));
        leftover.forget_after(at(16), TEN);
        assert!(leftover.is_empty());
    }
}
