use core::hash::{BuildHasherDefault, Hasher};
use core::mem;
use core::num::NonZeroU32;
use std::collections::{BTreeSet, HashMap};
use std::hash::RandomState;

use crate::time::Tick;

use super::Priority;
use super::in_order::InOrder;
use super::waiter::{Ticket, Waiter};

/// The key of a request and its weight, where flows take turns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Flow {
    /// The hash of its key. Two keys with one hash are one flow.
    id: u64,
    pub(super) weight: NonZeroU32,
}

impl Flow {
    /// All requests without a key.
    pub(crate) const OF_NO_KEY: Self = Self::new(0, NonZeroU32::MIN);

    /// Two bits of the hash of its key give way to the class of a request.
    pub(crate) const fn new(hash: u64, weight: NonZeroU32) -> Self {
        let id = hash & !CLASS;
        Self { id, weight }
    }

    /// What the ticket of a request says.
    pub(super) const fn in_class(self, priority: Priority) -> u64 {
        self.id
            | match priority {
                Priority::Normal => 0,
                Priority::High => 1,
                Priority::Low => 2,
            }
    }

    /// What a permit keeps, to be [given back](super::WaitQueue::release).
    pub(crate) const fn id(self) -> u64 {
        self.id
    }
}

const CLASS: u64 = 3;

/// The waiters of each flow, which take turns by weight: self-clocked fair queueing (S. J. Golestani, 1994).
///
/// Each flow has an account of the permits that it has had, divided by its weight. The next flow is the one whose account is the smallest
/// once its first request is paid; of two that are equal, one that was not served last, or else the one whose first request is older. A
/// flow that begins to wait starts at the account of the flow served last, so it saves nothing while it does not wait. Nor does a flow
/// whose turn was missed: when it is served, its account is raised to that of the flow served before.
///
/// If requests have [classes](Self::serve_by_class), the class of the oldest one is served, and flows take turns within it.
///
/// If the flows [divide](Self::divide) permits, those below their share come before those above. If they [pay for
/// time](Self::count_time), the account is the time for which a flow has held permits while any flow waited, and is known
/// only afterwards. So the next flow is the one with the smallest account, and one that owes is remembered until the others have had as
/// much, or could have had. Flows begin later as others pay, so that no number of new ones holds up one that owes.
#[derive(Default)]
pub(crate) struct Flows {
    /// Those that wait, use permits, or owe.
    lanes: HashMap<u64, Lane, BuildHasherDefault<IsHashed>>,
    /// The places of those that wait, but for the first one: most often it is the flow that was served last, and the others stay as they are.
    waiting: BTreeSet<Place>,
    first: Option<Place>,
    /// The first requests of those that wait, if requests have classes.
    oldest: Option<BTreeSet<Ticket>>,
    /// The accounts of flows that neither wait nor use permits.
    owing: BTreeSet<(u128, u64)>,
    course: Course,
    /// How many permits the flows divide, if any.
    total: Option<u32>,
    /// Hashes the keys.
    pub(crate) hasher: RandomState,
}

/// How far all flows have come.
#[derive(Default)]
struct Course {
    /// The account at which a flow begins.
    account: u128,
    /// The turn of the next flow.
    next: Option<Turn>,
    /// The sum over the flows that use permits or wait.
    weights: u64,
    counts_time: bool,
    /// For how many nanoseconds any flow has waited, until the last look at the clock.
    waited: u64,
    looked_at: Tick,
}

/// One permit, or a nanosecond, at weight 1. Every weight up to 30 divides it.
const UNIT: u64 = 2_329_089_562_800;

/// An empty map with at most this much room keeps its memory.
const FEW: usize = 64;

/// Where a flow that waits stands.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
struct Place {
    /// That of its first request.
    class: u64,
    /// What it uses, for its weight: see [`load`].
    load: u128,
    turn: Turn,
}

/// The account of a flow once its first request is paid, and that request.
type Turn = (u128, Ticket);

/// The waiters of one flow.
#[derive(Default)]
struct Lane {
    waiters: InOrder,
    /// That of its newest request; zero before the first one.
    weight: u32,
    account: u128,
    /// How many permits it uses, and how long flows had waited when that changed last.
    in_use: u32,
    since: u64,
    /// Where it stands, if it waits.
    place: Option<Place>,
}

impl Flows {
    /// From now on the flows divide a total of permits.
    pub(crate) fn divide(&mut self, total: u32) {
        self.total = Some(total);
        self.choose();
    }

    /// The class of the request that is the first in the order of tickets comes before the others.
    pub(super) fn serve_by_class(&mut self) {
        let places = self.lanes.values().filter_map(|lane| lane.place);
        self.oldest = Some(places.map(|place| place.turn.1).collect());
        self.choose();
    }

    /// Flows pay for the time for which they use permits.
    pub(crate) const fn count_time(&mut self) {
        self.course.counts_time = true;
    }

    pub(crate) const fn divides(&self) -> bool {
        self.total.is_some()
    }

    /// To be called before the first flow waits, and before the last one ceases to.
    pub(super) fn look_at(&mut self, now: Tick) {
        let course = &mut self.course;
        let time = now.as_nanos().saturating_sub(course.looked_at.as_nanos());
        course.looked_at = course.looked_at.max(now);
        if !course.counts_time {
            return;
        }
        if course.next.is_some() {
            course.waited += time;
        } else {
            // Debts lapse in the time that nobody wants.
            let lapsed = time.saturating_mul(self.total.unwrap_or_default().into());
            course.account += share(lapsed, course.weights.max(1));
        }
    }

    #[inline]
    pub(super) fn head(&self) -> Option<Ticket> {
        self.course.next.map(|(_, head)| head)
    }

    pub(super) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Waiter> {
        let lane = self.lanes.get_mut(&(ticket.flow & !CLASS))?;
        lane.waiters.get_mut(ticket)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Waiter> {
        let lanes = self.lanes.values_mut();
        lanes.flat_map(|lane| lane.waiters.iter_mut())
    }

    pub(super) fn insert(&mut self, ticket: Ticket, waiter: Waiter, weight: NonZeroU32) {
        self.change(ticket.flow, |lane, _| {
            lane.weight = weight.get();
            lane.waiters.insert(ticket, waiter);
        });
    }

    /// `paid`: it has passed, at this cost, whether it was queued or had reserved its position.
    pub(super) fn remove(&mut self, ticket: Ticket, paid: u32) -> Option<Waiter> {
        self.change(ticket.flow, |lane, course| {
            let has_paid = paid > 0 && !lane.waiters.is_empty();
            if has_paid {
                course.serve(lane, paid);
            }
            let removed = lane.waiters.remove(ticket);
            // Of equal ones, another has the next turn.
            lane.account += u128::from(has_paid && !lane.waiters.is_empty());
            removed
        })
    }

    /// Returns the cost before.
    pub(super) fn change_cost(&mut self, ticket: Ticket, cost: u32) -> Option<u32> {
        self.change(ticket.flow, |lane, _| {
            let waiter = lane.waiters.get_mut(ticket)?;
            Some(mem::replace(&mut waiter.cost, cost))
        })
    }

    /// Permits that flows divide: one uses `cost` more from now on.
    pub(crate) fn take(&mut self, flow: Flow, cost: u32) {
        if self.divides() && cost > 0 {
            self.change(flow.id, |lane, course| {
                course.pay_for_time(lane);
                lane.weight = flow.weight.get();
                lane.in_use += cost;
            });
        }
    }

    /// Permits that flows divide: one has given some back.
    pub(super) fn give_back(&mut self, id: u64, count: u32) {
        if self.divides() {
            self.change(id, |lane, course| {
                course.pay_for_time(lane);
                lane.in_use = lane.in_use.saturating_sub(count);
            });
        }
    }

    /// The only place where a flow begins, moves or ends.
    fn change<T>(&mut self, flow: u64, change: impl FnOnce(&mut Lane, &mut Course) -> T) -> T {
        let id = flow & !CLASS;
        let course = &mut self.course;
        let lane = self.lanes.entry(id).or_default();
        let (place, weight) = (lane.place, lane.weight_in_share());
        if lane.waiters.is_empty() {
            self.owing.remove(&(lane.account, id));
            lane.account = lane.account.max(course.account);
        }
        let done = change(lane, course);
        lane.place = course.place_of(lane);
        let has_moved = lane.place != place;
        if has_moved {
            if let Some(oldest) = &mut self.oldest {
                place.map(|place| oldest.remove(&place.turn.1));
                oldest.extend(lane.place.map(|place| place.turn.1));
            }
            let is_first = self.first.take_if(|first| Some(*first) == place).is_some();
            if let Some(place) = place.filter(|_| !is_first) {
                self.waiting.remove(&place);
            }
            if self.first.is_none() && self.waiting.is_empty() {
                self.first = lane.place;
            } else {
                self.waiting.extend(lane.place);
            }
        }
        let new_weight = lane.weight_in_share();
        course.weights = course.weights + u64::from(new_weight) - u64::from(weight);
        if new_weight == 0 {
            if !course.counts_time {
                lane.account = course.account;
            }
            self.owing.insert((lane.account, id));
            self.forget_paid();
        }
        if has_moved || self.divides() {
            self.choose();
        }
        done
    }

    /// Forgets flows that owe nothing any more. Two are enough, since only one has ended.
    fn forget_paid(&mut self) {
        for _ in 0..2 {
            let first = self.owing.first().copied();
            if let Some((_, id)) = first.filter(|(account, _)| *account <= self.course.account) {
                self.owing.pop_first();
                self.lanes.remove(&id);
            }
        }
        if self.lanes.is_empty() {
            self.lanes.shrink_to(FEW);
        }
    }

    fn choose(&mut self) {
        let next = if let Some(total) = self.total {
            self.waiting.extend(self.first.take());
            self.next_by_share(total)
        } else {
            let oldest = self.oldest.as_ref().and_then(BTreeSet::first);
            // Before all of its class.
            let start = oldest.map(|oldest| Place {
                class: oldest.flow & CLASS,
                ..Place::default()
            });
            let next = match start {
                None => self.waiting.first(),
                Some(start) => self.waiting.range(start..).next(),
            };
            let is_of_another =
                |first: Place| start.is_some_and(|start| first.class != start.class);
            let is_first = |place: &&Place| {
                self.first
                    .is_none_or(|first| **place < first || is_of_another(first))
            };
            if let Some(place) = next.filter(is_first).copied() {
                self.waiting.remove(&place);
                self.waiting.extend(self.first.replace(place));
            }
            self.first.as_ref()
        };
        self.course.next = next.map(|place| place.turn);
    }

    /// The next of the flows below their share, or else of the others. It looks at one flow of each load.
    fn next_by_share(&self, total: u32) -> Option<&Place> {
        let share = load(total, self.course.weights.max(1));
        let rank = |place: &Place| (place.load >= share, place.turn);
        let mut earliest: Option<&Place> = None;
        let mut next = self.waiting.first();
        while let Some(place) = next {
            if earliest.is_none_or(|first| rank(place) < rank(first)) {
                earliest = Some(place);
            }
            let last_of_load = Place {
                turn: (u128::MAX, Ticket::default()),
                ..*place
            };
            next = self.waiting.range(last_of_load..).next();
        }
        earliest
    }
}

impl Course {
    fn place_of(&self, lane: &mut Lane) -> Option<Place> {
        let (weight, account, in_use) = (lane.weight, lane.account, lane.in_use);
        let (first, waiter) = lane.waiters.end_mut(false)?;
        let (class, load) = (first.flow & CLASS, load(in_use, weight.into()));
        let turn = (self.paid(account, weight, waiter.cost), first);
        Some(Place { class, load, turn })
    }

    /// The account after a request of this cost, as far as that is known.
    fn paid(&self, account: u128, weight: u32, cost: u32) -> u128 {
        if self.counts_time {
            return account;
        }
        account + share(cost.into(), weight.into())
    }

    fn serve(&mut self, lane: &mut Lane, cost: u32) {
        let paid = self.paid(lane.account, lane.weight, cost);
        self.account = self.account.max(paid);
        if !self.counts_time {
            lane.account = self.account;
        }
    }

    fn pay_for_time(&mut self, lane: &mut Lane) {
        let waited = self.waited - mem::replace(&mut lane.since, self.waited);
        let held = waited.saturating_mul(lane.in_use.into());
        if held > 0 {
            lane.account += share(held, lane.weight.into());
            // Below the average, and no later than the flow that waits for the next turn.
            let average = self.account + share(held, self.weights);
            let latest = self.next.map_or(average, |(next, _)| next);
            self.account = self.account.max(average.min(latest));
        }
    }
}

/// What is used for a weight, in parts of 2⁻⁹⁶. The order is exact: two such fractions differ by more than a part, if one weight has 32
/// bits and the other 64.
fn load(in_use: u32, weight: u64) -> u128 {
    if in_use == 0 {
        return 0;
    }
    (u128::from(in_use) << 96) / u128::from(weight)
}

fn share(amount: u64, weights: u64) -> u128 {
    u128::from(amount) * u128::from(UNIT / weights)
}

impl Lane {
    /// Its weight while it waits or uses permits.
    const fn weight_in_share(&self) -> u32 {
        if self.in_use > 0 || !self.waiters.is_empty() {
            self.weight
        } else {
            0
        }
    }
}

/// The keys are hashes.
#[derive(Default)]
struct IsHashed(u64);

impl Hasher for IsHashed {
    fn write(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.is_empty(), "only whole numbers are hashed");
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = id >> 2;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use testkit::turns::Turns;

    use super::*;

    fn ticket(key: u64, number: u64) -> Ticket {
        Ticket::new(Tick::ZERO, number, key << 2)
    }

    fn insert(flows: &mut Flows, ticket: Ticket, cost: u32, weight: u32) {
        let weight = NonZeroU32::new(weight).unwrap();
        flows.insert(ticket, Waiter::noop(cost), weight);
    }

    /// The head passes.
    fn pass(flows: &mut Flows) -> Option<Ticket> {
        let ticket = flows.head()?;
        let cost = flows.get_mut(ticket)?.cost;
        flows.remove(ticket, cost).map(|_| ticket)
    }

    #[test]
    fn random_schedules_pass_as_in_the_plain_loop() {
        let mut passed = 0;
        for seed in 0..3_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (keys, most) = (random.u64(1..7), random.u32(1..10));
            let (mut flows, mut turns) = (Flows::default(), Turns::default());
            let mut waiting: Vec<(u64, u64)> = Vec::new();
            for number in 0..150 {
                match random.u8(..10) {
                    0..5 => {
                        let key = random.u64(..keys);
                        let cost = random.u32(1..=most);
                        let weight = random.u32(1..4);
                        insert(&mut flows, ticket(key, number), cost, weight);
                        turns.join(key, number, cost, weight);
                        waiting.push((key, number));
                    }
                    5 if !waiting.is_empty() => {
                        let index = random.usize(..waiting.len());
                        let (key, number) = waiting.remove(index);
                        assert!(flows.remove(ticket(key, number), 0).is_some());
                        turns.cancel(number);
                    }
                    _ => {
                        let number = turns.pass();
                        let key = waiting.iter().position(|waiter| Some(waiter.1) == number);
                        let first = key.map(|index| waiting.remove(index));
                        let expected = first.map(|(key, number)| ticket(key, number));
                        assert_eq!(pass(&mut flows), expected, "{seed}: {number:?}");
                        passed += u32::from(expected.is_some());
                    }
                }
            }
        }
        assert!(passed > 100_000, "{passed}");
    }

    #[test]
    fn a_million_keys_one_after_the_other_leave_no_memory() {
        let mut flows = Flows::default();
        for key in 0..1_000_000 {
            insert(&mut flows, ticket(key, 2 * key), 1, 1);
            insert(&mut flows, ticket(key, 2 * key + 1), 1, 1);
            assert!(pass(&mut flows).is_some());
            assert!(flows.remove(ticket(key, 2 * key + 1), 0).is_some());
        }
        assert!(is_empty(&flows));
    }

    #[test]
    fn many_keys_at_once_give_their_memory_back() {
        let mut flows = Flows::default();
        for key in 0..10_000 {
            insert(&mut flows, ticket(key, key), 1, 1);
        }
        while pass(&mut flows).is_some() {}
        assert!(is_empty(&flows));
    }

    fn flow(key: u64, weight: u32) -> Flow {
        Flow::new(key << 2, NonZeroU32::new(weight).unwrap())
    }

    fn is_empty(flows: &Flows) -> bool {
        flows.lanes.is_empty()
            && flows.lanes.capacity() <= 2 * FEW
            && flows.waiting.is_empty()
            && flows.first.is_none()
            && flows.owing.is_empty()
            && flows.course.weights == 0
    }

    #[test]
    fn a_key_that_neither_uses_permits_nor_waits_leaves_no_memory() {
        for counts_time in [false, true] {
            let mut flows = Flows::default();
            flows.divide(10);
            if counts_time {
                flows.count_time();
            }
            for key in 0..1_000 {
                flows.look_at(Tick::from_nanos(key));
                flows.take(flow(key, 3), 2);
                insert(&mut flows, ticket(key, 2 * key), 1, 2);
                insert(&mut flows, ticket(key, 2 * key + 1), 1, 5);
            }
            assert_eq!(flows.course.weights, 5_000);
            for now in 1_000..2_000 {
                let passed = pass(&mut flows).unwrap();
                flows.look_at(Tick::from_nanos(now));
                flows.take(flow(passed.flow >> 2, 2), 1);
            }
            flows.look_at(Tick::from_nanos(2_000));
            for key in 0..1_000 {
                flows.remove(ticket(key, 2 * key), 0);
                flows.remove(ticket(key, 2 * key + 1), 0);
                let in_use = flows.lanes[&(key << 2)].in_use;
                flows.give_back(key << 2, in_use);
            }
            // In an idle hour as much could have been had.
            flows.look_at(Tick::from_nanos(3_600_000_000_000));
            for key in 1_000..2_000 {
                flows.take(flow(key, 1), 1);
                flows.give_back(key << 2, 1);
            }
            assert!(is_empty(&flows), "{counts_time}");
        }
    }

    #[test]
    fn by_time_keys_that_come_once_leave_no_memory_beside_one_that_always_waits() {
        let mut flows = Flows::default();
        flows.divide(1);
        flows.count_time();
        let mut most = 0;
        for key in 1..500_000 {
            insert(&mut flows, ticket(key, 2 * key), 1, 1);
            insert(&mut flows, ticket(0, 2 * key + 1), 1, 1);
            for half in 0..2 {
                let passed = pass(&mut flows).unwrap();
                flows.take(flow(passed.flow >> 2, 1), 1);
                flows.look_at(Tick::from_nanos(100 * (2 * key + half)));
                flows.give_back(passed.flow, 1);
            }
            most = most.max(flows.lanes.len());
        }
        assert!(most < 10, "{most}");
    }

    #[test]
    fn uses_and_times_of_any_size_do_not_overflow() {
        let mut flows = Flows::default();
        flows.divide(u32::MAX);
        flows.count_time();
        for key in 0..4 {
            flows.look_at(Tick::ZERO);
            flows.take(flow(key, u32::MAX), u32::MAX);
            insert(&mut flows, ticket(key, 2 * key), u32::MAX, u32::MAX);
            insert(&mut flows, ticket(key, 2 * key + 1), 1, 1);
        }
        for key in 0..4 {
            flows.look_at(Tick::MAX);
            flows.give_back(key << 2, u32::MAX);
            assert!(pass(&mut flows).is_some());
        }
        while pass(&mut flows).is_some() {}
        assert!(is_empty(&flows));
    }

    #[test]
    fn loads_of_any_weights_are_in_exact_order() {
        let most = u64::from(u32::MAX);
        assert_eq!(load(2, 2 * most), load(1, most));
        assert_eq!(load(0, 1), load(0, most));
        assert!(load(u32::MAX - 2, most - 1) < load(u32::MAX - 1, most));
        // The share of a flow, where the sum of the weights has 64 bits.
        assert!(load(1, most) > load(1 << 31, (most << 31) + 1));
        assert!(load(1, most) < load(1 << 31, (most << 31) - 1));
    }

    #[test]
    fn the_next_is_found_at_one_key_of_each_load_and_no_other_key_moves() {
        let mut flows = Flows::default();
        flows.divide(1_000);
        for key in 0..1_000 {
            flows.look_at(Tick::ZERO);
            flows.take(flow(key, 1), 1);
            insert(&mut flows, ticket(key, key), 1, 1);
        }
        // All use less than their share, then all more, then all just as much.
        for (total, is_below) in [(1_001, true), (999, false), (1_000, false)] {
            flows.divide(total);
            let load = flows.waiting.first().unwrap().load;
            assert_eq!(load < super::load(total, flows.course.weights), is_below);
            assert_eq!(flows.head(), Some(ticket(0, 0)));
        }
        flows.look_at(Tick::ZERO);
        flows.give_back(999 << 2, 1);
        assert_eq!(flows.head(), Some(ticket(999, 999)));
    }

    #[test]
    fn a_key_below_its_share_comes_before_one_above_it_in_any_class() {
        for (of_one, of_other) in [(0, 1), (1, 0), (2, 1)] {
            let mut flows = Flows::default();
            flows.serve_by_class();
            flows.divide(4);
            flows.take(flow(1, 1), 3);
            for (key, class) in [(1, of_one), (2, of_other)] {
                let ticket = Ticket::new(Tick::ZERO, key, key << 2 | class);
                insert(&mut flows, ticket, 1, 1);
            }
            assert_eq!(flows.head().map(|head| head.number), Some(2));
        }
    }

    #[test]
    fn costs_of_any_size_do_not_overflow() {
        let mut flows = Flows::default();
        for number in 0..1_000 {
            let weight = if number % 3 == 0 { u32::MAX } else { 1 };
            insert(&mut flows, ticket(number % 7, number), u32::MAX, weight);
        }
        for _ in 0..1_000 {
            assert!(pass(&mut flows).is_some());
        }
    }
}
