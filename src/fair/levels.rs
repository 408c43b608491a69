use core::mem;

use crate::time::Tick;

use super::heap::Heap;
use super::wide::{div_ceil, div_floor};

/// How many filled buckets are settled at a time.
const SETTLED: usize = 64;

/// How many buckets that fill are looked at to foresee an instant.
const FORESEEN: usize = 16;

/// How many places are read for each that is wanted, since buckets may have left them.
const READ: usize = 4;

/// Among so few places none is kept that its bucket has left.
const FEW: usize = 64;

/// After a rise of the clock by that much every bucket is full.
const MOST_STEPS: i128 = 1 << 72;

/// The levels of token buckets that share a rate by weight and are equally deep for their weight.
///
/// No time walks over them. A virtual clock rises by what the rate gives to each unit of weight. A bucket of weight w has room for
/// w · (`clock` − `mark`), where the `mark` follows the clock at the depth of a bucket. When the mark rises by a step, all full buckets
/// together overflow by their weight. Those that are not full are ordered by the mark at which they are.
#[derive(Clone, Debug, Default)]
pub(super) struct Levels {
    /// By slot.
    buckets: Vec<Bucket>,
    /// What each unit of weight has been given so far.
    clock: i128,
    /// What is not yet one unit for each unit of weight.
    carry: i128,
    /// At most `depth` behind the clock, and less while the buckets grow.
    mark: i128,
    depth: i128,
    /// The weight of all buckets.
    pub(super) weight: i128,
    /// The part of it that is full.
    full: i128,
    /// The buckets that are not full, and places that their buckets have left.
    filling: Heap<Place>,
    /// How many of these places there are.
    left: usize,
}

/// One bucket, and what its client has asked for. Among many clients a decision takes as long as the memory does: this is one line of
/// the cache.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Bucket {
    /// Its weight times the clock, less what it holds. A debt makes it larger. Of a full one it does not count.
    account: i128,
    /// [`Place::NONE`] if it is full.
    place: Place,
    /// When the client last asked.
    pub(super) asked_at: Tick,
    pub(super) passed: u64,
    /// Without a client 0.
    weight: u32,
    /// What was asked for in the cycle before that of the counts.
    pub(super) demand: u32,
    /// The counts of the last cycle in which the client asked.
    pub(super) used: u32,
    pub(super) refused: u32,
}

/// The mark at which a bucket is full, or an earlier one, and its slot: in one number, so that many take little memory. At 2³² permits a
/// second the mark outgrows its 96 bits after 100 years.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Place(i128);

impl Place {
    const NONE: Self = Self(i128::MIN);

    const fn new(fills_at: i128, slot: u32) -> Self {
        Self((fills_at << 32) | slot as i128)
    }

    const fn fills_at(self) -> i128 {
        self.0 >> 32
    }

    fn slot(self) -> u32 {
        u32::try_from(self.0 & i128::from(u32::MAX)).unwrap_or(0)
    }
}

impl Default for Place {
    fn default() -> Self {
        Self::NONE
    }
}

/// The marks at which buckets fill, and their slots, in order. The others do not fill before `known_until`.
pub(super) struct Filling {
    first: [(i128, u32); FORESEEN],
    known_until: i128,
}

/// What a request needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    pub(super) units: i128,
    /// What the pool has, and has room for.
    pub(super) pool: i128,
    pub(super) most_pooled: i128,
    /// What the pool has to hold before it lends.
    pub(super) least_pooled: i128,
}

impl Levels {
    pub(super) fn new() -> Self {
        Self {
            buckets: vec![Bucket::default()],
            mark: -MOST_STEPS,
            depth: MOST_STEPS,
            ..Self::default()
        }
    }

    /// What a new bucket depends on: the sums, the first bucket and those that fill first, in other slots.
    pub(super) fn excerpt(&self) -> Self {
        let (mut buckets, mut filling) = (vec![self.buckets[0]], Heap::default());
        let most = SETTLED + FORESEEN + 1;
        let places = self.filling.iter().take(READ * most);
        for place in self.in_use(places).take(most) {
            let mut other = place;
            if place.slot() > 0 {
                let mut bucket = self.buckets[place.slot() as usize];
                other = Place::new(place.fills_at(), buckets.len().try_into().unwrap_or(0));
                bucket.place = other;
                buckets.push(bucket);
            }
            filling.push(other);
        }
        Self {
            buckets,
            filling,
            left: 0,
            ..*self
        }
    }

    pub(super) fn len(&self) -> usize {
        self.buckets.len()
    }

    pub(super) fn bucket(&self, slot: u32) -> &Bucket {
        &self.buckets[slot as usize]
    }

    pub(super) fn bucket_mut(&mut self, slot: u32) -> &mut Bucket {
        &mut self.buckets[slot as usize]
    }

    pub(super) fn is_full(&self, slot: u32) -> bool {
        self.buckets[slot as usize].place == Place::NONE
    }

    /// What a bucket holds. A debt is below zero.
    pub(super) fn level(&self, slot: u32) -> i128 {
        let room = self.room(slot);
        if self.is_full(slot) {
            return room;
        }
        room + self.bucket(slot).excess(self.mark).min(0)
    }

    /// What a bucket has room for now.
    pub(super) fn room(&self, slot: u32) -> i128 {
        self.weight_of(slot) * (self.clock - self.mark)
    }

    /// What a bucket has room for when it has grown.
    pub(super) fn most(&self, slot: u32) -> i128 {
        self.weight_of(slot) * self.depth
    }

    /// Divides units by weight. Without buckets they are returned.
    pub(super) fn give(&mut self, units: i128) -> i128 {
        self.carry = self.carry.saturating_add(units);
        if self.weight == 0 {
            return mem::take(&mut self.carry);
        }
        let steps = div_floor(self.carry, self.weight);
        self.carry -= steps * self.weight;
        // What comes after all are full is lost.
        self.clock += steps.min(MOST_STEPS);
        0
    }

    /// How many units have to be given until the clock is there.
    fn units_until(&self, clock: i128) -> i128 {
        (clock - self.clock).saturating_mul(self.weight) - self.carry
    }

    /// How many units have to be given until a bucket is full.
    pub(super) fn units_until_full(&self, slot: u32) -> i128 {
        let missing = self.most(slot) - self.level(slot);
        self.units_until(self.clock + div_ceil(missing, self.weight_of(slot)))
    }

    /// Returns what full buckets have no room for. In which order they became full does not matter, since nothing was taken meanwhile.
    /// Of those that have filled, some are settled.
    pub(super) fn overflow(&mut self) -> i128 {
        let mark = self.mark.max(self.clock - self.depth);
        let mut overflow = self.full.saturating_mul(mark - self.mark);
        self.mark = mark;
        for _ in 0..SETTLED {
            let first = self.filling.first();
            let Some(place) = first.filter(|place| place.fills_at() <= mark) else {
                break;
            };
            let bucket = &mut self.buckets[place.slot() as usize];
            let excess = bucket.excess(mark);
            let mut next = None;
            if bucket.place != place {
                self.left = self.left.saturating_sub(1);
            } else if excess >= 0 {
                bucket.place = Place::NONE;
                self.full += i128::from(bucket.weight);
                overflow = overflow.saturating_add(excess);
            } else {
                // Something was taken since it was queued.
                bucket.place = Place::new(bucket.fills_at(mark), place.slot());
                next = Some(bucket.place);
            }
            self.filling.replace_first(next);
        }
        overflow
    }

    /// Returns what one bucket has no room for, if it has filled.
    pub(super) fn settle(&mut self, slot: u32) -> i128 {
        if self.is_full(slot) {
            return 0;
        }
        let excess = self.bucket(slot).excess(self.mark);
        if excess < 0 {
            return 0;
        }
        self.unqueue(slot);
        self.set_full(slot);
        excess
    }

    /// Sets the level of a bucket, at most to its room.
    pub(super) fn set_level(&mut self, slot: u32, level: i128) {
        let bucket = &mut self.buckets[slot as usize];
        let weight = i128::from(bucket.weight);
        bucket.account = weight.wrapping_mul(self.clock).wrapping_sub(level);
        if bucket.excess(self.mark) >= 0 {
            self.settle(slot);
            return;
        }
        let (old, new) = (bucket.place, Place::new(bucket.fills_at(self.mark), slot));
        if old == Place::NONE {
            self.full -= weight;
        } else if new < old {
            // Only a place that is too late is wrong.
            self.left += 1;
        } else {
            return;
        }
        bucket.place = new;
        self.filling.push(new);
        self.remove_left();
    }

    /// Sets the depth for a unit of weight. Buckets shrink at once, and grow as the clock rises. The first ones do not have to grow.
    pub(super) fn set_depth(&mut self, depth: i128) {
        self.depth = depth;
        if self.weight == 0 {
            self.depth = MOST_STEPS;
            self.mark = self.clock - MOST_STEPS;
        }
    }

    /// Spends up to that many units on the growth of full buckets that are below their depth. Returns how many.
    pub(super) fn grow(&mut self, units: i128) -> i128 {
        if self.full == 0 {
            return 0;
        }
        let growth = self.depth - (self.clock - self.mark);
        let growth = growth.min(div_floor(units.max(0), self.full));
        self.mark -= growth;
        growth * self.full
    }

    /// Counts the weight of a new bucket in. It is full once the depth is set.
    pub(super) fn enter(&mut self, slot: u32, weight: u32) {
        let len = self.buckets.len().max(slot as usize + 1);
        self.buckets.resize(len, Bucket::default());
        self.weight += i128::from(weight);
        self.buckets[slot as usize].weight = weight;
    }

    /// Puts as much into a new bucket.
    pub(super) fn fill(&mut self, slot: u32, level: i128) {
        self.full += self.weight_of(slot);
        self.set_level(slot, level);
    }

    /// Removes a bucket that is settled, and returns what it held.
    pub(super) fn exit(&mut self, slot: u32) -> i128 {
        let level = self.level(slot);
        self.weight -= self.weight_of(slot);
        if !self.is_full(slot) {
            self.unqueue(slot);
            self.set_full(slot);
        }
        self.full -= self.weight_of(slot);
        self.buckets[slot as usize].weight = 0;
        level
    }

    /// The buckets that fill first.
    pub(super) fn filling(&self) -> Filling {
        let mut first = [(i128::MAX, 0); FORESEEN];
        let mut places = self.filling.iter();
        let read = self.in_use(places.by_ref().take(READ * FORESEEN));
        for (filling, place) in first.iter_mut().zip(read) {
            let bucket = self.bucket(place.slot());
            *filling = (bucket.fills_at(self.mark), place.slot());
        }
        first.sort_unstable();
        let known_until = places.next().map_or(i128::MAX, Place::fills_at);
        Filling { first, known_until }
    }

    /// How many units have to be given until a bucket and the pool together have what a request needs, if nothing else is taken. It is
    /// exact if at most [`FORESEEN`] buckets are not full. Otherwise it may be less, but some of those fill before.
    ///
    /// What bucket and pool have rises evenly between the instants at which a bucket fills.
    pub(super) fn units_until_there(&self, slot: u32, need: Need, filling: &Filling) -> i128 {
        let weight = self.weight_of(slot);
        let (mut clock, mut mark, mut pool) = (self.clock, self.mark, need.pool);
        let (mut level, mut full) = (self.level(slot), self.full);
        let (mut fillings, known_until) = (filling.first.into_iter(), filling.known_until);
        let mut next = fillings.next();
        loop {
            let filled = next.filter(|(at, _)| *at <= known_until);
            let until_next = filled.map_or(known_until, |(at, _)| at);
            let until_next = until_next.saturating_sub(mark).max(0);
            // Buckets grow to their depth before they overflow.
            let growth = mark + self.depth - clock;
            let grows = growth > 0 && until_next > 0;
            let length = if grows { growth } else { until_next };
            let is_full = !grows && level >= weight * (clock - mark);
            let rise = if is_full { 0 } else { weight };
            let inflow = if grows { 0 } else { full };
            let alone = steps_to(need.units - level, rise);
            let lent = steps_to(need.units - level - pool, rise + inflow)
                .max(steps_to(need.units - level - need.most_pooled, rise))
                .max(steps_to(need.least_pooled - pool, inflow));
            if alone.min(lent) <= length {
                return self.units_until(clock.saturating_add(alone.min(lent)));
            }
            clock += length;
            level += rise * length;
            if grows {
                continue;
            }
            mark += length;
            pool += inflow * length;
            let Some((_, other)) = filled else {
                return self.units_until(clock);
            };
            full += self.weight_of(other);
            pool += self.bucket(other).excess(mark);
            level = level.min(weight * (clock - mark));
            next = fillings.next();
        }
    }

    pub(super) fn weight_of(&self, slot: u32) -> i128 {
        self.buckets[slot as usize].weight.into()
    }

    fn set_full(&mut self, slot: u32) {
        self.buckets[slot as usize].place = Place::NONE;
        self.full += self.weight_of(slot);
    }

    fn unqueue(&mut self, slot: u32) {
        self.buckets[slot as usize].place = Place::NONE;
        self.left += 1;
        self.remove_left();
    }

    /// Removes the places that buckets have left, if they are many or all places are few.
    fn remove_left(&mut self) {
        if self.left > 0 && self.filling.len() < FEW.max(2 * self.left) {
            let buckets = &self.buckets;
            self.filling
                .retain(|place| buckets[place.slot() as usize].place == *place);
            self.left = 0;
        }
    }

    /// Those of the places that their buckets have not left.
    fn in_use(&self, places: impl Iterator<Item = Place>) -> impl Iterator<Item = Place> {
        places.filter(|place| self.buckets[place.slot() as usize].place == *place)
    }
}

impl Bucket {
    /// What it has no room for, if it has not been full until that mark.
    fn excess(&self, mark: i128) -> i128 {
        i128::from(self.weight)
            .wrapping_mul(mark)
            .wrapping_sub(self.account)
    }

    /// The mark at which it is full.
    fn fills_at(&self, mark: i128) -> i128 {
        mark + div_ceil(-self.excess(mark), self.weight.into())
    }

    /// Begins to count anew, if the client has not asked in this cycle. `began_at`: when the last cycle began, and this one.
    pub(super) fn enter_cycle(&mut self, [last, this]: [Tick; 2]) {
        if self.asked_at < this {
            let asked = self.used.saturating_add(self.refused);
            self.demand = if self.asked_at < last { 0 } else { asked };
            (self.used, self.refused) = (0, 0);
        }
    }
}

/// How many steps of `rise` give what is missing, if any do.
fn steps_to(missing: i128, rise: i128) -> i128 {
    match (missing, rise) {
        (..=0, _) => 0,
        (_, 0) => i128::MAX,
        _ => div_ceil(missing, rise),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Full buckets of 100 units.
    fn full(weights: &[u32]) -> Levels {
        let mut levels = Levels::new();
        for (slot, weight) in (0..).zip(weights) {
            levels.enter(slot, *weight);
            levels.set_depth(100);
            assert_eq!(levels.overflow(), 0);
            levels.fill(slot, levels.room(slot));
        }
        levels
    }

    #[test]
    fn what_a_bucket_has_no_room_for_overflows() {
        let mut levels = full(&[1, 3]);
        levels.set_level(1, 50);
        assert_eq!(levels.give(40) + levels.overflow(), 10);
        assert_eq!((levels.level(0), levels.level(1)), (100, 80));
        assert_eq!(levels.give(400) + levels.overflow(), 400 - 220);
        assert_eq!(levels.units_until_full(1), 0);
    }

    #[test]
    fn buckets_that_fill_at_once_are_settled_64_at_a_time_and_nothing_is_lost() {
        let mut levels = full(&[1; 200]);
        (0..200).for_each(|slot| levels.set_level(slot, 40));
        assert_eq!(levels.give(200 * 100), 0);
        let overflows = [0; 5].map(|_| levels.overflow());
        assert_eq!(overflows, [64 * 40, 64 * 40, 64 * 40, 8 * 40, 0]);
        assert!((0..200).all(|slot| levels.level(slot) == 100));
    }

    #[test]
    fn a_smaller_depth_cuts_at_once_and_a_larger_one_grows_with_time() {
        let mut levels = full(&[1, 1]);
        levels.set_level(0, 30);
        levels.set_depth(40);
        assert_eq!(levels.overflow(), 60);
        levels.set_depth(70);
        assert_eq!(levels.give(20) + levels.overflow(), 0);
        assert_eq!((levels.level(0), levels.level(1)), (40, 50));
        assert_eq!(levels.grow(7), 7);
        assert_eq!((levels.level(0), levels.level(1)), (40, 57));
    }

    #[test]
    fn places_that_buckets_have_left_are_never_most_of_them() {
        let mut levels = full(&[1; 100]);
        for level in 0..100 {
            (0..100).for_each(|slot| levels.set_level(slot, level));
            assert!(levels.filling.len() <= 200);
            assert_eq!(levels.in_use(levels.filling.iter()).count(), 100);
        }
        let few = &mut full(&[1; 30]);
        (0..100).for_each(|level| few.set_level(7, level));
        assert_eq!((few.filling.len(), few.left), (1, 0));
        assert_eq!(few.give(30) + few.overflow(), 29);
        assert!(few.is_full(7) && few.filling.first().is_none());
    }

    #[test]
    fn of_many_places_that_a_bucket_has_left_few_are_read() {
        let mut levels = full(&[1; 200]);
        (0..200).for_each(|slot| levels.set_level(slot, 0));
        (0..=90).for_each(|level| levels.set_level(7, level));
        let filling = levels.filling();
        assert_eq!(filling.first[0], (levels.mark + 10, 7));
        // 64 are read, and the next one is known.
        assert_eq!(filling.known_until, levels.mark + 74);
    }
}
