use std::collections::VecDeque;

use crate::time::Tick;

/// Permits that were taken ahead, each lot until its time.
#[derive(Clone, Debug, Default)]
pub(super) struct Spare {
    /// The oldest first.
    lots: VecDeque<Lot>,
}

#[derive(Clone, Copy, Debug)]
struct Lot {
    permits: u32,
    until: Tick,
}

impl Spare {
    /// How many there are.
    pub(super) fn left(&mut self, now: Tick) -> u32 {
        while self
            .lots
            .front()
            .is_some_and(|lot| lot.until <= now || lot.permits == 0)
        {
            self.lots.pop_front();
        }
        self.lots.iter().map(|lot| lot.permits).sum()
    }

    pub(super) fn add(&mut self, permits: u32, until: Tick) {
        self.lots.push_back(Lot { permits, until });
    }

    /// Uses the oldest, if there are so many.
    pub(super) fn take(&mut self, now: Tick, cost: u32) -> bool {
        if self.left(now) < cost {
            return false;
        }
        let mut cost = cost;
        for lot in &mut self.lots {
            let taken = cost.min(lot.permits);
            lot.permits -= taken;
            cost -= taken;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Tick {
        Tick::from_nanos(nanos)
    }

    #[test]
    fn the_oldest_go_first_and_each_lot_is_void_after_its_time() {
        let mut spare = Spare::default();
        assert!(!spare.take(at(0), 1));
        spare.add(3, at(10));
        spare.add(4, at(20));
        assert!(spare.take(at(0), 2));
        assert_eq!(spare.left(at(9)), 5);
        assert_eq!(spare.left(at(10)), 4);
        assert!(!spare.take(at(10), 5));
        assert!(spare.take(at(19), 4));
        assert_eq!(spare.left(at(19)), 0);
    }

    #[test]
    fn one_request_may_take_from_two_lots() {
        let mut spare = Spare::default();
        spare.add(3, at(10));
        spare.add(4, at(20));
        assert!(spare.take(at(0), 5));
        assert_eq!((spare.left(at(0)), spare.left(at(15))), (2, 2));
    }
}
