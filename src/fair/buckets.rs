use core::mem;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use crate::policy::{Decision, Quota, Status};
use crate::time::{Tick, saturating_duration};

use super::borrowers::{Borrower, Borrowers};
use super::clients::OVERFLOW;
use super::divide::WHOLE;
use super::fair_share::MOST_CLIENTS;
use super::levels::{Bucket, Levels, Need};
use super::report::ClientShare;
use super::wide::{div_ceil, div_floor, div_rem, mul_div};
use super::{ClientTerms, GuaranteedShare, HasState, RuleState};

/// One permit. It is a multiple of 10,000 and of each weight up to 16, so that buckets reach whole permits at whole nanoseconds.
const PERMIT: i128 = 2_882_880_000;

/// The largest debt of a client.
const MOST_OWED: i128 = PERMIT << 32;

/// How many clients are looked at to forget idle ones, each time.
const LOOKED_AT: usize = 64;

/// The buckets of the clients of a [`GuaranteedShare`], and the pool.
#[derive(Debug)]
pub(crate) struct Buckets {
    share: GuaranteedShare,
    now: Tick,
    /// What is less than one unit, in parts of a cycle.
    rest: u128,
    levels: Levels,
    /// By slot.
    clients: Vec<Client>,
    pool: i128,
    /// What the pool has room for; without clients, for the content of the buckets too.
    most_pooled: i128,
    borrowers: Borrowers,
    paused_until: Tick,
    free: Vec<u32>,
    forgotten: Vec<u32>,
    /// The credit that borrowers have left to others since the owner asked whether that lets clients pass earlier.
    released: i128,
    /// All known clients, and since when each may be idle.
    idle: VecDeque<(Tick, u32)>,
    /// How many clients have each weight.
    weights: BTreeMap<u32, u32>,
    /// How many clients count against the bound.
    bounded: usize,
}

/// What is known of a client, but for what each decision needs: that is in its [`Bucket`].
#[derive(Clone, Copy, Debug, Default)]
struct Client {
    borrower: Borrower,
    turned_away: u64,
    waiting: u64,
    has_own_share: bool,
}

impl HasState for GuaranteedShare {
    type State = Buckets;
}

impl RuleState for Buckets {
    type Rule = GuaranteedShare;

    fn new(share: GuaranteedShare, now: Tick) -> Self {
        let mut buckets = Self {
            share,
            now,
            rest: 0,
            levels: Levels::new(),
            clients: Vec::new(),
            pool: 0,
            most_pooled: 0,
            borrowers: Borrowers::new(now, share.cycle()),
            paused_until: Tick::ZERO,
            free: Vec::new(),
            forgotten: Vec::new(),
            released: 0,
            idle: VecDeque::new(),
            weights: BTreeMap::new(),
            bounded: 0,
        };
        buckets.resize();
        buckets.pool = buckets.most_pooled;
        if share.reserve() > 0 {
            buckets.add(OVERFLOW, share.terms_of_others());
        }
        buckets
    }

    fn share(&self) -> &GuaranteedShare {
        &self.share
    }

    fn advance(&mut self, now: Tick) -> bool {
        self.settle(now);
        let (cycle, times) = (self.share.cycle(), self.share.forgets_after());
        for _ in 0..LOOKED_AT {
            let first = self.idle.front().copied();
            let is_due = |(since, _): &(Tick, u32)| since.after_times(cycle, times) <= self.now;
            let Some((since, slot)) = first.filter(is_due) else {
                break;
            };
            self.idle.pop_front();
            let (client, asked_at) = (self.of(slot), self.levels.bucket(slot).asked_at);
            let keeps_seat = client.waiting > 0 || client.has_own_share;
            if keeps_seat || !self.levels.is_full(slot) {
                self.idle.push_back((self.now, slot));
            } else if asked_at > since {
                self.idle.push_back((asked_at, slot));
            } else {
                self.forget(slot);
            }
        }
        !self.forgotten.is_empty()
    }

    fn forgotten(&mut self) -> Vec<u32> {
        let forgotten = mem::take(&mut self.forgotten);
        let free = forgotten.iter().filter(|slot| **slot != OVERFLOW);
        self.free.extend(free);
        forgotten
    }

    /// The slot of a client that has none: a new one, or [`OVERFLOW`] if there are too many clients. Its bucket starts with what the
    /// buckets of the others have no room for any more, and with what the pool has.
    fn join(&mut self, terms: ClientTerms) -> u32 {
        let has_room = terms.has_own_share() || self.bounded < self.share.max_clients() as usize;
        if has_room && self.idle.len() < MOST_CLIENTS as usize {
            let unused = u32::try_from(self.levels.len()).unwrap_or(OVERFLOW);
            let slot = self.free.pop().unwrap_or(unused);
            self.add(slot, terms);
            return slot;
        }
        if self.levels.weight_of(OVERFLOW) == 0 {
            self.add(OVERFLOW, self.share.terms_of_others());
        }
        OVERFLOW
    }

    fn excerpt(&self) -> Self {
        Self {
            levels: self.levels.excerpt(),
            clients: self.clients.first().copied().into_iter().collect(),
            free: Vec::new(),
            forgotten: Vec::new(),
            idle: VecDeque::new(),
            weights: self.weights.clone(),
            ..*self
        }
    }

    fn is_full(&self) -> bool {
        let most = self.share.max_clients() as usize;
        self.levels.weight_of(OVERFLOW) > 0 && self.bounded >= most
    }

    /// Goes on with other terms of a client. It keeps what it has, as far as its bucket still holds it.
    fn set_terms(&mut self, slot: u32, terms: ClientTerms) {
        let is_same = self.of(slot).has_own_share == terms.has_own_share();
        if !is_same || self.levels.weight_of(slot) != terms.weight().into() {
            let level = self.exit(slot);
            self.enter(slot, terms, Some(level));
        }
    }

    fn decide(&mut self, slot: u32, cost: u32, now: Tick) -> Decision {
        self.settle_client(slot, now);
        let (units, level) = (PERMIT * i128::from(cost), self.levels.level(slot));
        let is_possible = units <= self.most_held(slot) && now >= self.paused_until;
        let borrowed = units - units.min(level);
        if !is_possible || borrowed > 0 && (!self.may_borrow(slot) || borrowed > self.pool) {
            return self.refusal(slot, units, now);
        }
        self.take(slot, cost, level - units, borrowed);
        Decision::Pass
    }

    fn peek(&self, slot: u32, cost: u32, now: Tick) -> Decision {
        let (units, level) = (PERMIT * i128::from(cost), self.levels.level(slot));
        let is_lent = units - level <= self.pool && self.least_pooled(slot) <= self.pool;
        if now >= self.paused_until && (units <= level || is_lent) {
            return Decision::Pass;
        }
        self.refusal(slot, units, now)
    }

    /// Counts permits that were used without having been asked for. What neither the bucket nor the pool has is owed: until that has
    /// come nothing else of the client passes.
    fn charge(&mut self, slot: u32, cost: u32, now: Tick) {
        self.settle_client(slot, now);
        let (units, level) = (PERMIT * i128::from(cost), self.levels.level(slot));
        let mut borrowed = units - units.min(level);
        if borrowed > 0 {
            let may_borrow = self.may_borrow(slot);
            borrowed = borrowed.min(if may_borrow { self.pool } else { 0 });
        }
        self.take(slot, cost, level - units, borrowed);
    }

    fn refuse(&mut self, slot: u32, cost: u32) {
        let client = self.of_mut(slot);
        client.turned_away = client.turned_away.saturating_add(1);
        let bucket = self.begin_request(slot);
        bucket.refused = bucket.refused.saturating_add(cost);
    }

    fn set_waiting(&mut self, slot: u32, cost: u64) {
        self.of_mut(slot).waiting = cost;
    }

    /// Takes permits back that passed and were not used, at whatever instant. What the bucket has no room for flows into the pool.
    fn refund(&mut self, slot: u32, permits: u32, _spent_at: Option<Tick>, now: Tick) {
        self.settle(now);
        self.pool += PERMIT * i128::from(permits);
        if self.levels.weight_of(slot) > 0 {
            self.pool += self.levels.settle(slot);
            let missing = self.levels.room(slot) - self.levels.level(slot);
            let returned = missing.min(PERMIT * i128::from(permits));
            self.pool -= returned;
            self.levels
                .set_level(slot, self.levels.level(slot) + returned);
            let bucket = self.levels.bucket_mut(slot);
            if bucket.asked_at >= self.borrowers.began_at[1] {
                bucket.used = bucket.used.saturating_sub(permits);
            }
        }
        self.cut();
    }

    fn pause_until(&mut self, until: Tick) {
        self.paused_until = until;
    }

    /// Changes the parameters. What was spent stays spent, a client keeps what its bucket still holds, and buckets grow as the rate
    /// gives. The reserve stays.
    fn retune(&mut self, share: GuaranteedShare, now: Tick) {
        self.settle(now);
        let (old, new) = (self.share.cycle(), share.cycle());
        self.rest = mul_div(self.rest, new.as_nanos(), old.as_nanos()).0;
        self.share = share.with_reserve_of(&self.share);
        self.borrowers.retune(self.now, new);
        self.resize();
        self.cut();
    }

    /// What a client has and has used, in a cycle since the limit is used.
    fn client<K>(&self, slot: u32) -> ClientShare<K> {
        let (client, mut bucket) = (self.of(slot), *self.levels.bucket(slot));
        bucket.enter_cycle(self.borrowers.began_at);
        let size = self.quota(slot).permits;
        ClientShare {
            key: None,
            size,
            demand: bucket.demand,
            used: bucket.used,
            refused: bucket.refused.into(),
            waiting: client.waiting,
            lent: 0,
            borrowed: bucket.used.saturating_sub(size),
            requests_passed: bucket.passed,
            requests_refused: client.turned_away,
        }
    }

    /// In no order.
    fn slots(&self) -> impl ExactSizeIterator<Item = u32> {
        self.idle.iter().map(|(_, slot)| *slot)
    }

    /// For each permit of credit once, since the owner then looks at all that wait.
    fn lets_earlier(&mut self) -> bool {
        let is_enough = self.released >= PERMIT;
        self.released = if is_enough { 0 } else { self.released };
        is_enough
    }

    /// What a client has left, if there is no pause: it is unused when its bucket is full.
    fn status(&self, slot: u32, now: Tick) -> Status {
        let full_at = self.given_at(self.levels.units_until_full(slot));
        Status::new(Some(self.quota(slot)), self.room(slot), full_at.since(now))
    }

    /// When a request behind others of its client that cost `queued` may pass, at the earliest: if the client has the whole rate.
    fn open_behind(&self, slot: u32, queued: u64, cost: u32, now: Tick) -> Tick {
        let alone = self.peek(slot, cost, now).retry_in().unwrap_or_default();
        let together = PERMIT * i128::from(queued.saturating_add(cost.into()));
        let missing = together - self.levels.level(slot) - self.pool;
        now.after(alone).max(self.given_at(missing))
    }
}

impl Buckets {
    /// The share of a client in a cycle, rounded down.
    fn quota(&self, slot: u32) -> Quota {
        let capacity = i128::from(self.share.capacity());
        let permits = capacity * self.levels.weight_of(slot) / self.levels.weight.max(1);
        Quota {
            permits: u32::try_from(permits).unwrap_or(u32::MAX),
            window: self.share.cycle(),
        }
    }

    /// How many requests of cost 1 would pass now, one after another.
    fn room(&self, slot: u32) -> u32 {
        let level = self.levels.level(slot);
        let most = self.usable(slot).max(self.pool - self.half_of_pool());
        // A borrower may take more until it has taken more than that.
        let permitted = if most < 0 {
            level.div_euclid(PERMIT)
        } else {
            (level + most).div_euclid(PERMIT).max(0) + 1
        };
        let held = (level + self.pool).div_euclid(PERMIT);
        u32::try_from(held.min(permitted).max(0)).unwrap_or(u32::MAX)
    }

    /// Goes on to `now`, and settles some of the buckets that have filled.
    fn settle(&mut self, now: Tick) {
        let mut units = 0;
        if now > self.now {
            let elapsed = now.since(mem::replace(&mut self.now, now)).as_nanos();
            let parts = elapsed * PERMIT.unsigned_abs() * u128::from(self.share.capacity());
            let (given, rest) = div_rem(parts + self.rest, self.share.cycle().as_nanos());
            self.rest = rest;
            units = self.levels.give(i128::try_from(given).unwrap_or(i128::MAX));
            self.borrowers.advance(now, self.share.cycle());
        }
        let overflow = self.levels.overflow();
        self.lend(units.saturating_add(overflow));
    }

    /// Settles the bucket of a client that asks now, which counts in the present cycle.
    fn settle_client(&mut self, slot: u32, now: Tick) {
        if now > self.now {
            self.settle(now);
        }
        let overflow = self.levels.settle(slot);
        if overflow > 0 {
            self.lend(overflow);
        }
        self.begin_request(slot);
    }

    /// Puts units into the pool, which those that borrow share.
    fn lend(&mut self, units: i128) {
        let before = self.pool;
        self.pool = self.pool.saturating_add(units);
        self.cut();
        self.borrowers.release(self.pool - before);
    }

    fn cut(&mut self) {
        self.pool = self.pool.clamp(0, self.most_pooled);
    }

    fn half_of_pool(&self) -> i128 {
        (i128::from(self.share.pool()) * PERMIT + 1) / 2
    }

    /// What all buckets hold together.
    fn all_buckets(&self) -> i128 {
        let parts = i128::from(self.share.capacity()) * i128::from(self.share.depth()) * PERMIT;
        div_ceil(parts, WHOLE.into())
    }

    /// Makes the buckets as deep as the present weights say. That of the smallest weight holds the least.
    fn resize(&mut self) {
        let smallest = self.weights.first_key_value();
        let least = i128::from(self.share.least()) * PERMIT;
        let least = smallest.map_or(0, |(weight, _)| div_ceil(least, (*weight).into()));
        let part = div_ceil(self.all_buckets(), self.levels.weight.max(1));
        self.levels.set_depth(part.max(least));
        self.most_pooled = i128::from(self.share.pool()) * PERMIT;
        if self.levels.weight == 0 {
            self.most_pooled += self.all_buckets();
        }
        self.pool = self.pool.saturating_add(self.levels.overflow());
    }

    fn add(&mut self, slot: u32, terms: ClientTerms) {
        self.idle.push_back((self.now, slot));
        self.enter(slot, terms, None);
        self.begin_request(slot);
    }

    /// What a forgotten client had goes to the pool, and what that has no room for to the full buckets, which are to grow.
    fn forget(&mut self, slot: u32) {
        self.pool += self.exit(slot);
        self.resize();
        self.pool -= self.levels.grow(self.pool - self.most_pooled);
        self.cut();
        *self.levels.bucket_mut(slot) = Bucket::default();
        *self.of_mut(slot) = Client::default();
        self.forgotten.push(slot);
        // The shares of the others are larger.
        self.released = PERMIT;
    }

    /// Counts the weight of a client in. Its bucket gets what it had, or if it is new, as much as the pool has.
    fn enter(&mut self, slot: u32, terms: ClientTerms, had: Option<i128>) {
        self.bounded += usize::from(slot != OVERFLOW && !terms.has_own_share());
        *self.weights.entry(terms.weight()).or_default() += 1;
        self.levels.enter(slot, terms.weight());
        let len = self.clients.len().max(slot as usize + 1);
        self.clients.resize(len, Client::default());
        self.of_mut(slot).has_own_share = terms.has_own_share();
        self.resize();
        let has = had.unwrap_or_else(|| mem::take(&mut self.pool));
        let level = has.min(self.levels.room(slot));
        self.pool += has - level;
        self.levels.fill(slot, level);
        self.cut();
    }

    /// Counts the weight of a client out, and returns what its bucket has.
    fn exit(&mut self, slot: u32) -> i128 {
        self.pool += self.levels.settle(slot);
        let weight = self.levels.weight_of(slot);
        let level = self.levels.exit(slot);
        let client = &mut self.clients[slot as usize];
        self.borrowers.dismiss(&mut client.borrower, weight);
        self.bounded -= usize::from(slot != OVERFLOW && !client.has_own_share);
        let weight = u32::try_from(weight).unwrap_or(u32::MAX);
        let alike = self.weights.entry(weight).or_default();
        *alike -= 1;
        if *alike == 0 {
            self.weights.remove(&weight);
        }
        level
    }

    /// The most that the bucket of a client and the pool ever hold together.
    fn most_held(&self, slot: u32) -> i128 {
        self.levels.most(slot) + self.most_pooled
    }

    fn usable(&self, slot: u32) -> i128 {
        let (borrower, weight) = (&self.of(slot).borrower, self.levels.weight_of(slot));
        let least = 4 * PERMIT * i128::from(self.share.least());
        (self.borrowers).usable(borrower, weight, self.pool, least)
    }

    /// Whether a borrower is not ahead of the others, or the pool at least half full. The borrower competes from now on.
    fn may_borrow(&mut self, slot: u32) -> bool {
        let (usable, weight) = (self.usable(slot), self.levels.weight_of(slot));
        let borrower = &mut self.clients[slot as usize].borrower;
        self.released += self.borrowers.ask(borrower, weight, usable);
        usable >= 0 || self.pool >= self.half_of_pool()
    }

    /// What the pool has to hold until a client may borrow, if no others ask.
    fn least_pooled(&self, slot: u32) -> i128 {
        let (borrower, weight) = (&self.of(slot).borrower, self.levels.weight_of(slot));
        match self.borrowers.missing(borrower, weight) {
            0 => 0,
            missing => self.half_of_pool().min(self.pool + missing),
        }
    }

    /// Takes what the level of a client falls short of from the pool, as far as it is `borrowed`.
    fn take(&mut self, slot: u32, cost: u32, level: i128, borrowed: i128) {
        if borrowed > 0 {
            self.pool -= borrowed;
            let client = &mut self.clients[slot as usize];
            self.borrowers.lend(&mut client.borrower, borrowed);
        }
        let level = (level + borrowed).max(-MOST_OWED);
        self.levels.set_level(slot, level);
        let bucket = self.levels.bucket_mut(slot);
        bucket.used = bucket.used.saturating_add(cost);
        bucket.passed = bucket.passed.saturating_add(1);
    }

    /// A client asks now, and counts in the present cycle.
    fn begin_request(&mut self, slot: u32) -> &mut Bucket {
        let bucket = self.levels.bucket_mut(slot);
        bucket.enter_cycle(self.borrowers.began_at);
        bucket.asked_at = self.now;
        bucket
    }

    fn of(&self, slot: u32) -> &Client {
        &self.clients[slot as usize]
    }

    fn of_mut(&mut self, slot: u32) -> &mut Client {
        &mut self.clients[slot as usize]
    }

    /// The decision on a request that does not pass now.
    fn refusal(&self, slot: u32, units: i128, now: Tick) -> Decision {
        let most = self.most_held(slot);
        if units > most {
            let capacity = u32::try_from(div_floor(most, PERMIT)).unwrap_or(u32::MAX);
            return Decision::Never { capacity };
        }
        let open_at = self.opens_at(slot, units).max(self.paused_until);
        Decision::Wait {
            retry_in: open_at.since(now).max(Duration::from_nanos(1)),
        }
    }

    /// When a request passes if no others ask. With many buckets that are not full, or when other borrowers stop competing before, an
    /// earlier instant, at which it has to ask again.
    fn opens_at(&self, slot: u32, units: i128) -> Tick {
        let filling = self.levels.filling();
        let there_at = |least_pooled| {
            let need = Need {
                units,
                pool: self.pool,
                most_pooled: self.most_pooled,
                least_pooled,
            };
            self.given_at(self.levels.units_until_there(slot, need, &filling))
        };
        let least = self.least_pooled(slot);
        let (open_at, ends_at) = (there_at(least), self.borrowers.ends_at);
        if least == 0 || open_at <= ends_at {
            return open_at;
        }
        there_at(0).max(ends_at)
    }

    /// The instant by which the rate has given these units.
    fn given_at(&self, units: i128) -> Tick {
        let units = u128::try_from(units).unwrap_or(0);
        let rate = PERMIT.unsigned_abs() * u128::from(self.share.capacity());
        // A product that is too large is more nanoseconds than a tick has.
        let parts = units.checked_mul(self.share.cycle().as_nanos());
        let nanos = parts.map_or(u128::MAX, |parts| {
            parts.saturating_sub(self.rest).div_ceil(rate)
        });
        self.now.after(saturating_duration(nanos))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MILLI: u64 = 1_000_000;

    fn at(nanos: u64) -> Tick {
        Tick::from_nanos(nanos)
    }

    fn wait(nanos: u64) -> Decision {
        Decision::Wait {
            retry_in: Duration::from_nanos(nanos),
        }
    }

    fn weighing(weight: u32) -> ClientTerms {
        ClientTerms::new().try_with_weight(weight).unwrap()
    }

    /// Buckets of this many equal clients, from 0 on.
    fn buckets(share: GuaranteedShare, clients: u32) -> Buckets {
        let mut buckets = Buckets::new(share, at(0));
        for slot in 1..=clients {
            assert_eq!(buckets.join(ClientTerms::new()), slot);
        }
        buckets
    }

    /// Asks for permits one by one. What does not pass is refused. How many pass?
    fn ask(buckets: &mut Buckets, slot: u32, permits: u32, now: u64) -> u32 {
        let _ = buckets.advance(at(now));
        let passes = |buckets: &mut Buckets| {
            let passes = buckets.decide(slot, 1, at(now)).is_pass();
            if !passes {
                buckets.refuse(slot, 1);
            }
            passes
        };
        (0..permits).map(|_| u32::from(passes(buckets))).sum()
    }

    #[test]
    fn a_client_alone_has_the_rate_and_the_pool() {
        let mut buckets = buckets(GuaranteedShare::new(40, SECOND), 1);
        assert_eq!(ask(&mut buckets, 1, 60, 0), 50);
        assert_eq!(buckets.decide(1, 1, at(0)), wait(25 * MILLI));
        assert_eq!(
            buckets.decide(1, 51, at(0)),
            Decision::Never { capacity: 50 }
        );
        assert_eq!(ask(&mut buckets, 1, 60, 500 * MILLI), 20);
        let report = buckets.client::<()>(1);
        assert_eq!((report.size, report.used, report.refused), (40, 70, 50));
        assert_eq!((report.requests_passed, report.requests_refused), (70, 50));
    }

    #[test]
    fn a_bucket_is_for_its_client_whatever_others_ask() {
        let mut buckets = buckets(GuaranteedShare::new(40, SECOND), 4);
        assert_eq!(ask(&mut buckets, 1, 99, 0), 20, "its own 10, and the pool");
        for slot in 2..=4 {
            assert_eq!(ask(&mut buckets, slot, 99, 0), 10);
        }
        assert_eq!(buckets.decide(2, 1, at(0)), wait(100 * MILLI));
        // After a second the others have 10 again, and client 1 has not taken any of theirs.
        for now in (0..=1_000).step_by(50) {
            let _ = ask(&mut buckets, 1, 99, now * MILLI);
        }
        for slot in 2..=4 {
            assert_eq!(ask(&mut buckets, slot, 99, 1_000 * MILLI), 10);
        }
    }

    #[test]
    fn what_overflows_full_buckets_can_be_borrowed() {
        let mut buckets = buckets(GuaranteedShare::new(40, SECOND), 4);
        assert_eq!(ask(&mut buckets, 1, 99, 0), 20);
        // 3 of 4 are full, and one asks for all.
        let passed = (1..=2_000).map(|now| ask(&mut buckets, 1, 3, now * MILLI));
        assert_eq!(passed.sum::<u32>(), 80);
    }

    #[test]
    fn buckets_and_rates_are_in_proportion_to_weights() {
        let mut buckets = Buckets::new(GuaranteedShare::new(40, SECOND), at(0));
        let slots = [1, 3, 4].map(|weight| buckets.join(weighing(weight)));
        assert_eq!(slots, [1, 2, 3]);
        let passed = slots.map(|slot| ask(&mut buckets, slot, 99, 0));
        assert_eq!(passed, [15, 15, 20], "the first has 5, and the pool of 10");
        let passed = slots.map(|slot| ask(&mut buckets, slot, 99, 800 * MILLI));
        assert_eq!(passed, [4, 12, 16]);
    }

    #[test]
    fn the_smallest_bucket_holds_the_least_whatever_the_scale_of_the_weights() {
        for scale in [1, 7, 1_000] {
            let share = GuaranteedShare::new(2, SECOND).try_with_least(3).unwrap();
            let mut buckets = Buckets::new(share, at(0));
            let small = buckets.join(weighing(scale));
            let large = buckets.join(weighing(4 * scale));
            let held = [small, large].map(|slot| buckets.levels.most(slot) / PERMIT);
            assert_eq!(held, [3, 12]);
            assert_eq!(ask(&mut buckets, small, 3, 9_000 * MILLI), 3);
        }
    }

    #[test]
    fn a_newcomer_starts_with_what_others_let_go_and_the_pool() {
        let mut buckets = buckets(GuaranteedShare::new(40, SECOND), 1);
        assert_eq!(buckets.join(ClientTerms::new()), 2);
        assert_eq!(
            [1, 2].map(|slot| buckets.status(slot, at(0)).remaining),
            [30, 30]
        );
        assert_eq!(ask(&mut buckets, 1, 99, 0), 30);
        assert_eq!(ask(&mut buckets, 2, 5, 0), 5);
        assert_eq!(buckets.join(ClientTerms::new()), 3);
        // The bucket of client 2 has still 15 and holds 13 1/3 now, and 1 2/3 are left.
        assert_eq!(ask(&mut buckets, 3, 99, 0), 1);
        assert_eq!(ask(&mut buckets, 2, 99, 0), 13);
        assert_eq!(ask(&mut buckets, 3, 99, 3_000 * MILLI), 23);
    }

    #[test]
    fn a_client_is_forgotten_when_it_is_idle_and_full() {
        let share = GuaranteedShare::new(40, SECOND)
            .try_forgetting_after(2)
            .unwrap();
        let mut buckets = buckets(share, 3);
        assert_eq!(ask(&mut buckets, 1, 1, 1_500 * MILLI), 1);
        buckets.set_waiting(2, 1);
        buckets.charge(3, 100, at(0));
        assert!(buckets.advance(at(3_500 * MILLI)));
        assert_eq!(buckets.forgotten(), [1]);
        assert_eq!((buckets.lets_earlier(), buckets.slots().len()), (true, 2));
        buckets.set_waiting(2, 0);
        assert!(buckets.advance(at(60_000 * MILLI)));
        let mut forgotten = buckets.forgotten();
        forgotten.sort_unstable();
        assert_eq!(forgotten, [2, 3]);
        assert!(buckets.idle.is_empty());
        assert!([1, 2, 3].contains(&buckets.join(ClientTerms::new())));
        assert_eq!(buckets.pool, 10 * PERMIT, "what all had is there once");
    }

    #[test]
    fn those_beyond_the_bound_share_one_bucket() {
        let share = GuaranteedShare::new(40, SECOND)
            .try_with_max_clients(1)
            .unwrap();
        let mut buckets = Buckets::new(share, at(0));
        assert_eq!(buckets.join(ClientTerms::new()), 1);
        assert!(!buckets.is_full());
        assert_eq!(buckets.join(weighing(9)), OVERFLOW);
        assert!(buckets.is_full());
        assert_eq!(buckets.join(weighing(9)), OVERFLOW);
        let own = ClientTerms::new().with_own_share(true);
        assert_eq!(buckets.join(own), 2);
        assert!(buckets.slots().eq([1, OVERFLOW, 2]));
        assert_eq!(buckets.client::<()>(OVERFLOW).size, 13);
    }

    #[test]
    fn permits_without_a_request_are_owed() {
        let mut buckets = buckets(GuaranteedShare::new(40, SECOND), 4);
        buckets.charge(1, 35, at(0));
        // It had 10, and the pool 10. In 600 ms it has 6 more and the pool 10, which others let go.
        assert_eq!(buckets.levels.level(1), -15 * PERMIT);
        assert_eq!(buckets.decide(1, 1, at(0)), wait(600 * MILLI));
        assert_eq!(ask(&mut buckets, 2, 10, 600 * MILLI), 10, "no other pays");
        assert_eq!(ask(&mut buckets, 1, 2, 600 * MILLI), 1);
        assert_eq!(buckets.levels.level(1), 0);
    }

    #[test]
    fn what_is_given_back_fills_the_bucket_and_then_the_pool() {
        let mut buckets = buckets(GuaranteedShare::new(40, SECOND), 4);
        assert_eq!(ask(&mut buckets, 1, 99, 0), 20);
        buckets.refund(1, 15, None, at(0));
        assert_eq!(buckets.levels.level(1), 10 * PERMIT);
        assert_eq!(buckets.pool, 5 * PERMIT);
        buckets.refund(OVERFLOW, 99, Some(at(0)), at(0));
        assert_eq!(buckets.pool, 10 * PERMIT);
        assert_eq!(buckets.client::<()>(1).used, 5);
    }

    #[test]
    fn a_report_counts_a_cycle_and_what_the_one_before_asked() {
        let mut buckets = buckets(GuaranteedShare::new(40, SECOND), 2);
        assert_eq!(ask(&mut buckets, 1, 40, 0), 30);
        let counts = |buckets: &Buckets| {
            let report = buckets.client::<()>(1);
            (report.demand, report.used, report.refused, report.borrowed)
        };
        assert_eq!(counts(&buckets), (0, 30, 10, 10));
        assert_eq!(ask(&mut buckets, 1, 2, 1_100 * MILLI), 2);
        assert_eq!(counts(&buckets), (40, 2, 0, 0));
        let _ = buckets.advance(at(2_100 * MILLI));
        assert_eq!(counts(&buckets), (2, 0, 0, 0));
        let _ = buckets.advance(at(3_100 * MILLI));
        assert_eq!(counts(&buckets), (0, 0, 0, 0));
        assert_eq!(ask(&mut buckets, 1, 5, 3_100 * MILLI), 5);
        let _ = buckets.advance(at(5_100 * MILLI));
        assert_eq!(counts(&buckets), (0, 0, 0, 0), "the cycle before was empty");
    }

    #[test]
    fn a_pause_holds_all_clients() {
        let mut buckets = buckets(GuaranteedShare::new(40, SECOND), 2);
        buckets.pause_until(at(50));
        assert_eq!(buckets.peek(1, 1, at(20)), wait(30));
        assert_eq!(buckets.decide(1, 1, at(20)), wait(30));
        assert_eq!(buckets.decide(2, 1, at(50)), Decision::Pass);
    }

    #[test]
    fn a_request_behind_others_passes_with_the_whole_rate_at_the_earliest() {
        let mut buckets = buckets(GuaranteedShare::new(40, SECOND), 4);
        let behind =
            |buckets: &Buckets, queued| buckets.open_behind(1, queued, 1, at(0)).as_nanos();
        assert_eq!(behind(&buckets, 19), 0);
        assert_eq!(ask(&mut buckets, 1, 99, 0), 20);
        // The buckets of the others overflow.
        assert_eq!(behind(&buckets, 0), 25 * MILLI);
        assert_eq!(behind(&buckets, 99), 2_500 * MILLI);
        assert_eq!(ask(&mut buckets, 2, 1, 0) + ask(&mut buckets, 3, 1, 0), 2);
        assert_eq!(behind(&buckets, 0), 50 * MILLI);
        assert_eq!(behind(&buckets, 99), 2_500 * MILLI);
    }

    #[test]
    fn the_largest_numbers_and_times_do_not_overflow() {
        for cycle in [Duration::from_nanos(1), SECOND, Duration::MAX] {
            for least in [1, u32::MAX] {
                let share = GuaranteedShare::new(u32::MAX, cycle)
                    .try_with_depth(1_000_000)
                    .unwrap()
                    .try_with_least(least)
                    .unwrap();
                let reserve = share.try_with_reserve(9_999).unwrap();
                let mut buckets = Buckets::new(share, at(0));
                for now in [0, 50, 51, u64::MAX - 1, u64::MAX, 0, u64::MAX] {
                    let _ = buckets.advance(at(now));
                    let _ = buckets.forgotten();
                    for own in [true, false] {
                        let slot = buckets.join(weighing(u32::MAX).with_own_share(own));
                        for cost in [1, u32::MAX, u32::MAX - 1, 7] {
                            let _ = buckets.decide(slot, cost, at(now));
                            buckets.refuse(slot, cost);
                            let _ = buckets.peek(slot, cost, at(now));
                        }
                        for _ in 0..5 {
                            buckets.charge(slot, u32::MAX, at(now));
                        }
                        let _ = buckets.decide(slot, 1, at(now));
                        let _ = buckets.open_behind(slot, u64::MAX, u32::MAX, at(now));
                        buckets.refund(slot, u32::MAX, None, at(now));
                        let _ = buckets.status(slot, at(now));
                        buckets.set_terms(slot, weighing(1).with_own_share(own));
                        buckets.retune(if own { reserve } else { share }, at(now));
                        assert!(buckets.pool <= buckets.most_pooled);
                    }
                }
            }
        }
    }

    /// The gaps between requests of cost 1, in nanoseconds.
    #[derive(Clone, Copy)]
    enum Arrivals {
        Even(u64),
        /// A Poisson process with this mean.
        Random(u64),
    }

    /// Asks for a time, and returns of each slot when its requests passed, and how many were refused.
    fn run(buckets: &mut Buckets, all: &[(u32, Arrivals)], until: u64) -> Vec<(Vec<u64>, usize)> {
        let mut random = fastrand::Rng::with_seed(7);
        let mut gap = |arrivals| match arrivals {
            Arrivals::Even(gap) => gap,
            Arrivals::Random(mean) => {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_precision_loss,
                    clippy::cast_sign_loss,
                    reason = "some nanoseconds"
                )]
                let gap = (-(1.0 - random.f64()).ln() * mean as f64) as u64;
                gap
            }
        };
        let start = buckets.now.as_nanos();
        let mut next: BTreeSet<(u64, usize)> = (0..all.len())
            .map(|index| (start + gap(all[index].1), index))
            .collect();
        let mut results = vec![(Vec::new(), 0); all.len()];
        while let Some((now, index)) = next.pop_first().filter(|(now, _)| *now < start + until) {
            let (slot, arrivals) = all[index];
            if ask(buckets, slot, 1, now) == 1 {
                results[index].0.push(now);
            } else {
                results[index].1 += 1;
            }
            next.insert((now + gap(arrivals), index));
        }
        results
    }

    #[test]
    fn a_lender_at_60_percent_loses_less_than_one_request_in_1000() {
        for (mean, seconds) in [(6, 300), (60, 30), (600, 3)] {
            let capacity = 40 * mean / 6;
            let mut buckets = buckets(GuaranteedShare::new(capacity, SECOND), 4);
            let second = 1_000 * MILLI;
            let lender = Arrivals::Random(second / u64::from(mean));
            let flood = Arrivals::Even(second / (10 * u64::from(capacity)));
            let all = [(1, lender), (2, lender), (3, lender), (4, flood)];
            let results = run(&mut buckets, &all, u64::from(seconds) * second);
            let passed: usize = results.iter().map(|(passed, _)| passed.len()).sum();
            let lenders = &results[..3];
            let asked: usize = lenders
                .iter()
                .map(|(passed, lost)| passed.len() + lost)
                .sum();
            let lost: usize = lenders.iter().map(|(_, lost)| lost).sum();
            assert!(asked > 5_000);
            assert!(1_000 * lost < asked, "{lost} of {asked}");
            let all = (capacity * seconds) as usize;
            assert!(100 * passed >= 99 * all, "{passed} of {all}");
        }
    }

    #[test]
    fn borrowers_share_the_pool_by_weight_however_often_they_ask() {
        let micros = |micros: u64| Arrivals::Even(1_000 * micros);
        for (weights, gaps) in [([1, 1], [1_000, 100]), ([3, 1], [500, 50])] {
            let mut buckets = Buckets::new(GuaranteedShare::new(1_000, SECOND), at(0));
            let [a, b] = weights.map(|weight| buckets.join(weighing(weight)));
            // It has more than half of the rate, and uses none.
            buckets.join(weighing(6));
            let all = [(a, micros(gaps[0])), (b, micros(gaps[1]))];
            let _ = run(&mut buckets, &all, 2_000 * MILLI);
            let results = run(&mut buckets, &all, 8_000 * MILLI);
            let [a, b] = [0, 1].map(|index: usize| results[index].0.len());
            let part = 8_000 * weights[0] as usize / (weights[0] + weights[1]) as usize;
            assert!(50 * a.abs_diff(part) < part, "{a} and {b}");
            assert!((8_000 - 1..=8_000 + 1).contains(&(a + b)), "{a} and {b}");
        }
    }

    #[test]
    fn a_borrower_that_waits_is_told_of_the_credit_that_another_one_leaves() {
        let mut buckets = buckets(GuaranteedShare::new(100, SECOND), 4);
        assert_eq!(ask(&mut buckets, 3, 99, 0), 50, "its 25, and the pool");
        assert_eq!(ask(&mut buckets, 2, 26, 0), 25, "it has a part of the pool");
        let _ = buckets.advance(at(900 * MILLI));
        assert_eq!(ask(&mut buckets, 2, 25, 1_400 * MILLI), 25);
        let now = at(2_100 * MILLI);
        let saver = |buckets: &mut Buckets, now| buckets.decide(2, 40, now).is_pass();
        assert!(!saver(&mut buckets, at(1_400 * MILLI)), "and keeps it");
        assert!(buckets.decide(1, 28, now).is_pass(), "3 from the pool");
        assert!(buckets.decide(3, 47, now).is_pass(), "the rest of it");
        assert_eq!(buckets.decide(1, 10, now), wait(330 * MILLI));
        assert!(!buckets.lets_earlier());

        assert!(
            !saver(&mut buckets, now),
            "it leaves what is old of its part"
        );
        assert!(buckets.lets_earlier() && !buckets.lets_earlier());
        assert_eq!(buckets.peek(1, 10, now), wait(200 * MILLI));
    }

    #[test]
    fn after_a_retune_to_a_shorter_cycle_borrowers_stop_competing_by_that() {
        let minute = GuaranteedShare::new(6_000, 60 * SECOND);
        let mut buckets = buckets(minute, 2);
        buckets.retune(GuaranteedShare::new(100, SECOND), at(MILLI));
        let _ = buckets.advance(at(1_001 * MILLI));
        assert_eq!(buckets.borrowers.ends_at, at(2_001 * MILLI));
    }

    #[test]
    fn a_borrower_alone_has_the_whole_pool() {
        let mut buckets = buckets(GuaranteedShare::new(1_000, SECOND), 10);
        let all = [(1, Arrivals::Even(MILLI / 10))];
        let _ = run(&mut buckets, &all, 2_000 * MILLI);
        assert_eq!(run(&mut buckets, &all, 5_000 * MILLI)[0].0.len(), 5_000);
    }

    /// A rate of 100 a second, of which 20 % are for payments, and how often these and the rest ask in a second.
    fn reserve(payments: u64, rest: u64) -> (Buckets, [(u32, Arrivals); 2]) {
        let share = GuaranteedShare::new(100, SECOND);
        let mut buckets = Buckets::new(share.try_with_reserve(2_000).unwrap(), at(0));
        let slot = buckets.join(weighing(2_000).with_own_share(true));
        assert_eq!(buckets.join(ClientTerms::new()), OVERFLOW);
        assert_eq!(
            [slot, OVERFLOW].map(|slot| buckets.client::<()>(slot).size),
            [20, 80]
        );
        let [payments, rest] = [payments, rest].map(|asks| Arrivals::Even(1_000 * MILLI / asks));
        (buckets, [(slot, payments), (OVERFLOW, rest)])
    }

    #[test]
    fn at_twice_the_load_a_reserve_is_there_in_every_window() {
        let (mut buckets, all) = reserve(40, 160);
        let results = run(&mut buckets, &all, 20_000 * MILLI);
        let passed = &results[0].0;
        for start in (0..19_000).step_by(7) {
            let window = start * MILLI..(start + 1_000) * MILLI;
            let passed = passed.iter().filter(|now| window.contains(now)).count();
            assert!(passed >= 20, "{passed} from {start} ms on");
        }
    }

    #[test]
    fn all_of_a_reserve_can_be_borrowed() {
        for alone in [0, 1] {
            let (mut buckets, all) = reserve(1_000, 1_000);
            let _ = run(&mut buckets, &all[alone..=alone], 2_000 * MILLI);
            let results = run(&mut buckets, &all[alone..=alone], 5_000 * MILLI);
            assert!(results[0].0.len().abs_diff(500) <= 1);
        }
    }

    #[test]
    fn when_all_flood_each_class_has_its_part() {
        let (mut buckets, all) = reserve(1_000, 10_000);
        let _ = run(&mut buckets, &all, 2_000 * MILLI);
        let results = run(&mut buckets, &all, 10_000 * MILLI);
        assert_eq!(
            [0, 1].map(|index: usize| results[index].0.len()),
            [200, 800]
        );
    }

    #[test]
    fn while_payments_flood_the_rest_does_not_wait_within_its_part() {
        for rest in [30, 79] {
            let (mut buckets, all) = reserve(1_000, rest);
            let results = run(&mut buckets, &all, 20_000 * MILLI);
            assert_eq!(results[1].1, 0);
            assert!(results[0].0.len() as u64 >= 20 * (100 - rest));
        }
    }

    #[test]
    fn a_reserve_is_full_before_its_class_asks_at_all() {
        let share = GuaranteedShare::new(100, SECOND);
        let mut buckets = Buckets::new(share.try_with_reserve(2_000).unwrap(), at(0));
        let payments = buckets.join(weighing(2_000).with_own_share(true));
        let flood = [(OVERFLOW, Arrivals::Even(MILLI))];
        let _ = run(&mut buckets, &flood, 30_000 * MILLI);
        assert_eq!(ask(&mut buckets, payments, 99, 30_000 * MILLI), 20);
        let more = buckets.decide(payments, 1, at(30_000 * MILLI));
        assert!((40..=50).contains(&more.retry_in().unwrap().as_millis()));
    }

    /// The same rule, with a walk over all clients at each step.
    #[derive(Clone)]
    struct Model {
        share: GuaranteedShare,
        now: u64,
        /// In parts of a cycle.
        rest: i128,
        carry: i128,
        depth: i128,
        pool: i128,
        seats: BTreeMap<u32, Seat>,
        generation: u64,
        ends_at: u64,
        /// What a borrower of weight 1 was credited with in this generation and in the last one.
        credited: [i128; 2],
        credit_carry: i128,
    }

    #[derive(Clone, Copy)]
    struct Seat {
        weight: i128,
        level: i128,
        credit: i128,
        /// The generation in which it last wanted to borrow.
        asked: u64,
    }

    impl Model {
        fn new(share: GuaranteedShare) -> Self {
            let mut model = Self {
                share,
                now: 0,
                rest: 0,
                carry: 0,
                depth: 0,
                pool: 0,
                seats: BTreeMap::new(),
                generation: 9,
                ends_at: share.cycle().as_nanos().try_into().unwrap(),
                credited: [0; 2],
                credit_carry: 0,
            };
            model.pool = model.pool_size() + model.all_buckets();
            if share.reserve() > 0 {
                model.join(OVERFLOW, 10_000 - share.reserve());
            }
            model
        }

        fn pool_size(&self) -> i128 {
            let quarter = i128::from(self.share.capacity() / 4);
            quarter.max(4 * i128::from(self.share.least())) * PERMIT
        }

        fn all_buckets(&self) -> i128 {
            let all = i128::from(self.share.capacity()) * i128::from(self.share.depth()) * PERMIT;
            (all + 9_999) / 10_000
        }

        fn weight(&self) -> i128 {
            self.seats.values().map(|seat| seat.weight).sum()
        }

        fn target(&self) -> i128 {
            let up = |a: i128, b: i128| (a + b - 1) / b;
            let smallest = self.seats.values().map(|seat| seat.weight).min();
            let least = i128::from(self.share.least()) * PERMIT;
            let least = smallest.map_or(0, |weight| up(least, weight));
            up(self.all_buckets(), self.weight().max(1)).max(least)
        }

        /// The buckets shrink, if they have to, and what they have no room for flows out.
        fn shrink(&mut self) {
            let depth = self.depth.min(self.target());
            self.depth = depth;
            for seat in self.seats.values_mut() {
                let over = (seat.level - seat.weight * depth).max(0);
                seat.level -= over;
                self.pool += over;
            }
        }

        fn cut(&mut self) {
            let most = if self.weight() == 0 {
                self.all_buckets()
            } else {
                0
            };
            self.pool = self.pool.clamp(0, self.pool_size() + most);
        }

        fn join(&mut self, slot: u32, weight: u32) {
            let weight = weight.into();
            let is_first = self.seats.is_empty();
            let seat = Seat {
                weight,
                level: 0,
                credit: 0,
                asked: 0,
            };
            self.seats.insert(slot, seat);
            if is_first {
                self.depth = self.target();
            } else {
                self.shrink();
            }
            let room = weight * self.depth;
            let seat = self.seats.get_mut(&slot).unwrap();
            seat.level = room.min(self.pool);
            self.pool -= seat.level;
            self.cut();
        }

        fn leave(&mut self, slot: u32) {
            let seat = self.seats.remove(&slot).unwrap();
            assert_eq!(
                seat.level,
                seat.weight * self.depth,
                "only a full bucket is forgotten"
            );
            self.pool += seat.level;
            self.shrink();
            let (target, depth) = (self.target(), self.depth);
            let is_full = |seat: &Seat| seat.level == seat.weight * depth;
            let seats = self.seats.values().filter(|seat| is_full(seat));
            let full: i128 = seats.map(|seat| seat.weight).sum();
            if full > 0 {
                let excess = (self.pool - self.pool_size()).max(0);
                let growth = (excess / full).min(target - depth);
                self.depth += growth;
                self.pool -= growth * full;
                for seat in self.seats.values_mut().filter(|seat| is_full(seat)) {
                    seat.level += growth * seat.weight;
                }
            }
            self.cut();
        }

        fn set_weight(&mut self, slot: u32, weight: u32) {
            let seat = self.seats.get_mut(&slot).unwrap();
            if seat.weight != i128::from(weight) {
                // It competes again when it asks.
                (seat.weight, seat.asked) = (weight.into(), seat.asked.min(1));
            }
            self.shrink();
            self.cut();
        }

        fn retune(&mut self, share: GuaranteedShare, now: u64) {
            self.settle(now);
            self.share = share;
            self.shrink();
            self.cut();
        }

        /// Goes on to `now`, and returns what each unit of weight was given.
        fn settle(&mut self, now: u64) -> i128 {
            let cycle = i128::try_from(self.share.cycle().as_nanos()).unwrap();
            if now <= self.now {
                return 0;
            }
            let elapsed = i128::from(now - mem::replace(&mut self.now, now));
            self.rest += elapsed * i128::from(self.share.capacity()) * PERMIT;
            self.carry += self.rest / cycle;
            self.rest %= cycle;
            let before = self.pool;
            let weight = self.weight();
            let mut steps = 0;
            if weight == 0 {
                self.pool += mem::take(&mut self.carry);
            } else {
                steps = self.carry / weight;
                self.carry %= weight;
                self.depth = self.target().min(self.depth + steps);
                for seat in self.seats.values_mut() {
                    seat.level += seat.weight * steps;
                }
                let depth = self.depth;
                for seat in self.seats.values_mut() {
                    let over = (seat.level - seat.weight * depth).max(0);
                    seat.level -= over;
                    self.pool += over;
                }
            }
            self.cut();
            let cycle = u64::try_from(cycle).unwrap();
            // After three cycles there are no borrowers.
            let late = self.now.saturating_sub(self.ends_at) / cycle;
            self.ends_at += late.saturating_sub(3) * cycle;
            while self.now >= self.ends_at {
                self.ends_at += cycle;
                self.generation += 1;
                let left = self
                    .seats
                    .values()
                    .filter(|seat| seat.asked + 2 == self.generation);
                let left = left.map(|seat| seat.credit).sum();
                self.credit(left);
                self.credited = [0, self.credited[0]];
            }
            self.credit(self.pool - before);
            steps
        }

        fn competes(&self, seat: &Seat) -> bool {
            seat.asked + 1 >= self.generation
        }

        fn competing(&self) -> i128 {
            let seats = self.seats.values().filter(|seat| self.competes(seat));
            seats.map(|seat| seat.weight).sum()
        }

        fn credit(&mut self, units: i128) {
            let weight = self.competing();
            if weight == 0 || units <= 0 {
                return;
            }
            self.credit_carry += units;
            let steps = self.credit_carry / weight;
            self.credit_carry %= weight;
            self.credited[0] += steps;
            for seat in self.seats.values_mut().filter(|seat| seat.asked > 0) {
                seat.credit += seat.weight * steps;
            }
        }

        /// What it may take by its credit, if others compete.
        fn usable(&self, slot: u32) -> Option<(i128, i128)> {
            let seat = &self.seats[&slot];
            let own = if self.competes(seat) { seat.weight } else { 0 };
            if self.competing() == own {
                return None;
            }
            let credit = if own > 0 {
                seat.credit
            } else {
                seat.credit.min(0)
            };
            let recent = seat.weight * (self.credited[0] + self.credited[1]);
            let most = recent.max(4 * i128::from(self.share.least()) * PERMIT);
            Some((credit.min(most), credit - credit.min(most)))
        }

        fn may_borrow(&mut self, slot: u32) -> bool {
            let (credit, excess) = self.usable(slot).unwrap_or((self.pool, 0));
            let generation = self.generation;
            let seat = self.seats.get_mut(&slot).unwrap();
            (seat.credit, seat.asked) = (credit, generation);
            self.credit(excess);
            credit >= 0 || 2 * self.pool >= self.pool_size()
        }

        fn take(&mut self, slot: u32, cost: i128, is_charge: bool) -> bool {
            let level = self.seats[&slot].level;
            let missing = (cost - level).max(0);
            let may_borrow = missing > 0 && self.may_borrow(slot);
            let mut lent = if may_borrow {
                missing.min(self.pool)
            } else {
                0
            };
            if lent < missing && !is_charge {
                lent = 0;
            }
            let passes = lent == missing;
            if passes || is_charge {
                self.pool -= lent;
                let seat = self.seats.get_mut(&slot).unwrap();
                seat.level += lent - cost;
                seat.credit -= lent;
            }
            passes
        }

        fn decide(&mut self, slot: u32, cost: u32, now: u64) -> bool {
            self.settle(now);
            self.take(slot, PERMIT * i128::from(cost), false)
        }

        fn refund(&mut self, slot: u32, cost: u32, now: u64) {
            self.settle(now);
            let depth = self.depth;
            let seat = self.seats.get_mut(&slot).unwrap();
            let level = seat.level + PERMIT * i128::from(cost);
            seat.level = level.min(seat.weight * depth);
            self.pool += level - seat.level;
            self.cut();
        }
    }

    /// A look at a client that is not known sees what it would have.
    fn check_look(excerpt: &Buckets, seen: u32, buckets: &Buckets, slot: u32, now: Tick) {
        assert_eq!(excerpt.status(seen, now), buckets.status(slot, now));
        for cost in [1, 2, 5, 60] {
            let looked = excerpt.peek(seen, cost, now);
            assert_eq!(looked, buckets.peek(slot, cost, now));
        }
    }

    #[test]
    fn among_many_buckets_a_wait_is_told_in_a_few_steps_and_ends_in_time() {
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let share = GuaranteedShare::new(6_000, SECOND);
            let (mut buckets, mut model) = (buckets(share, 300), Model::new(share));
            (1..=300).for_each(|slot| model.join(slot, 1));
            for slot in 1..=300 {
                // At least one permit is left of 20, but of the pool nothing.
                let cost = if slot == 1 { 1_520 } else { random.u32(1..20) };
                assert!(buckets.decide(slot, cost, at(0)).is_pass());
                assert!(model.decide(slot, cost, 0));
            }
            let cost = random.u32(1..200);
            let (mut now, mut steps) = (0, 0);
            while let Some(wait) = buckets.decide(1, cost, at(now)).retry_in() {
                assert!(!model.clone().decide(1, cost, now));
                now += u64::try_from(wait.as_nanos()).unwrap();
                steps += 1;
            }
            assert!(!model.clone().decide(1, cost, now - 1));
            assert!(model.decide(1, cost, now));
            assert!((1..100).contains(&steps), "{steps}");
            let mut excerpt = buckets.excerpt();
            let seen = excerpt.join(weighing(3));
            let slot = buckets.join(weighing(3));
            check_look(&excerpt, seen, &buckets, slot, at(now));
        }
    }

    /// Random requests and changes, to the buckets and to their model.
    struct Trace {
        buckets: Buckets,
        model: Model,
        random: fastrand::Rng,
        now: u64,
        /// For each client, the least of all windows: what its share gave in it, less what it used.
        due: BTreeMap<u32, i128>,
        /// When what passed, what buckets and pool held at most then, and all weights, since the last change that adds to that.
        passed: Vec<(u64, i128, i128)>,
        waits: usize,
    }

    impl Trace {
        fn new(seed: u64) -> Self {
            let mut random = fastrand::Rng::with_seed(seed);
            let cycle = [60, 1_000, 1_000_000_000][random.usize(..3)];
            let share = Self::share(&mut random, Duration::from_nanos(cycle));
            let share = if seed % 4 == 0 {
                share.try_with_reserve(random.u32(1..10_000)).unwrap()
            } else {
                share.try_with_max_clients(random.u32(..9)).unwrap()
            };
            let buckets = Buckets::new(share, at(0));
            let slots = buckets.slots();
            Self {
                due: slots
                    .map(|slot| (slot, buckets.levels.level(slot)))
                    .collect(),
                buckets,
                model: Model::new(share),
                random,
                now: 0,
                passed: Vec::new(),
                waits: 0,
            }
        }

        fn share(random: &mut fastrand::Rng, cycle: Duration) -> GuaranteedShare {
            let most = [2, 12, 100][random.usize(..3)];
            GuaranteedShare::new(random.u32(1..=most), cycle)
                .try_with_depth([2_500, 10_000, 31_000][random.usize(..3)])
                .unwrap()
                .try_with_least(random.u32(1..4))
                .unwrap()
                .try_forgetting_after(random.u32(1..4))
                .unwrap()
        }

        fn cycle(&self) -> u64 {
            u64::try_from(self.buckets.share().cycle().as_nanos()).unwrap()
        }

        fn step(&mut self) {
            let cycle = self.cycle();
            let ahead = [0, 1, cycle / 40, cycle / 3, 9 * cycle];
            let ahead = ahead[self.random.usize(..5).min(self.random.usize(..5))];
            self.now += self.random.u64(..=ahead);
            self.advance();
            let slots: Vec<_> = self.buckets.slots().collect();
            let slot = if slots.is_empty() || self.random.u8(..9) == 0 {
                self.join()
            } else {
                slots[self.random.usize(..slots.len())]
            };
            for _ in 0..self.random.u32(1..9) {
                self.ask(slot);
                self.check();
            }
            match self.random.u8(..40) {
                0 | 1 => self.set_weight(slot),
                2 => self.retune(),
                3 => self.charge(slot),
                4 => self.refund(slot),
                _ => {}
            }
            self.check();
        }

        fn advance(&mut self) {
            self.settle();
            // One is forgotten at a time, and those that are due at once in the order in which they asked.
            let _ = self.buckets.advance(at(self.now));
            for slot in self.buckets.forgotten() {
                self.model.leave(slot);
                self.due.remove(&slot);
                self.limit_due();
            }
            self.check();
        }

        fn settle(&mut self) {
            let steps = self.model.settle(self.now);
            for (slot, due) in &mut self.due {
                *due += self.model.seats[slot].weight * steps;
            }
            self.limit_due();
        }

        fn limit_due(&mut self) {
            let target = self.model.target();
            for (slot, due) in &mut self.due {
                *due = (*due).min(self.model.seats[slot].weight * target);
            }
        }

        fn join(&mut self) -> u32 {
            let is_own = self.random.u8(..3) == 0;
            let weight = [1, 2, 3, 700, 2_000][self.random.usize(..5)];
            let terms = weighing(weight).with_own_share(is_own);
            let mut excerpt = self.buckets.excerpt();
            let seen = excerpt.join(terms);
            let slot = self.buckets.join(terms);
            if !self.model.seats.contains_key(&slot) {
                let weight = self.buckets.levels.weight_of(slot).try_into().unwrap();
                self.model.join(slot, weight);
                self.due.insert(slot, self.model.seats[&slot].level);
                check_look(&excerpt, seen, &self.buckets, slot, at(self.now));
                self.limit_due();
            }
            slot
        }

        fn ask(&mut self, slot: u32) {
            let most = [1, 3, 20][self.random.usize(..3)];
            let cost = self.random.u32(1..=most);
            let units = PERMIT * i128::from(cost);
            self.buckets.settle(at(self.now));
            let foreseen = self.buckets.peek(slot, cost, at(self.now));
            let remaining = self.buckets.status(slot, at(self.now)).remaining;
            let decision = self.buckets.decide(slot, cost, at(self.now));
            assert_eq!(foreseen, decision);
            self.settle();
            let held = self.held();
            let (level, pool) = (self.model.seats[&slot].level, self.model.pool);
            let is_impossible = matches!(decision, Decision::Never { .. });
            let passes = !is_impossible && self.model.decide(slot, cost, self.now);
            assert_eq!(decision.is_pass(), passes);
            if cost == 1 {
                assert_eq!(passes, remaining > 0);
            }
            let due = self.due.get_mut(&slot).unwrap();
            // No client pays for a neighbour.
            assert!(passes || units > *due);
            if passes {
                *due -= units;
                self.passed.push((self.now, units, held));
                return;
            }
            // Nothing is wasted.
            let is_ahead = || {
                self.model
                    .usable(slot)
                    .is_some_and(|(credit, _)| credit < 0)
            };
            let is_low = 2 * pool < self.model.pool_size();
            assert!(units > level + pool || is_low && is_ahead());
            match decision {
                Decision::Wait { retry_in } => self.check_wait(slot, cost, retry_in),
                decision => {
                    let most = self.model.seats[&slot].weight * self.model.target();
                    let most = (most + self.model.pool_size()) / PERMIT;
                    assert!(i128::from(cost) > most);
                    let capacity = most.try_into().unwrap();
                    assert_eq!(decision, Decision::Never { capacity });
                }
            }
        }

        /// The request passes then, and not a nanosecond earlier, unless other borrowers have to be looked at before.
        fn check_wait(&mut self, slot: u32, cost: u32, retry_in: Duration) {
            let told = self.now + u64::try_from(retry_in.as_nanos()).unwrap();
            let passes = |now| self.model.clone().decide(slot, cost, now);
            assert!(!passes(told - 1));
            let has_rivals = self.model.usable(slot).is_some();
            assert!(passes(told) || has_rivals && told >= self.model.ends_at);
            if told - self.now < 40 {
                assert!(!(self.now..told).any(passes));
            } else {
                let earlier = self.random.u64(self.now..told);
                assert!(!passes(earlier));
            }
            self.waits += 1;
        }

        fn set_weight(&mut self, slot: u32) {
            let is_own = self.buckets.of(slot).has_own_share;
            let weight = self.random.u32(1..6);
            if self.model.share.reserve() > 0 || slot == OVERFLOW {
                return;
            }
            let terms = weighing(weight).with_own_share(is_own);
            self.buckets.set_terms(slot, terms);
            self.model.set_weight(slot, weight);
            self.limit_due();
            self.begin_anew(slot, 0);
        }

        fn retune(&mut self) {
            self.check_windows();
            let share = Self::share(&mut self.random, self.model.share.cycle());
            let share = if self.model.share.reserve() > 0 {
                share.try_with_reserve(self.model.share.reserve()).unwrap()
            } else {
                share.try_with_max_clients(self.random.u32(..9)).unwrap()
            };
            self.buckets.retune(share, at(self.now));
            self.settle();
            self.model.retune(share, self.now);
            self.limit_due();
        }

        fn charge(&mut self, slot: u32) {
            let cost = self.random.u32(1..30);
            self.buckets.charge(slot, cost, at(self.now));
            self.settle();
            let units = PERMIT * i128::from(cost);
            self.model.take(slot, units, true);
            *self.due.get_mut(&slot).unwrap() -= units;
            self.check_windows();
        }

        fn refund(&mut self, slot: u32) {
            let cost = self.random.u32(1..9);
            self.buckets.refund(slot, cost, None, at(self.now));
            self.settle();
            self.model.refund(slot, cost, self.now);
            self.begin_anew(slot, PERMIT * i128::from(cost));
            self.check_windows();
        }

        /// What a client is due changes, and is not more than it has.
        fn begin_anew(&mut self, slot: u32, units: i128) {
            let level = self.model.seats[&slot].level;
            let due = self.due.get_mut(&slot).unwrap();
            *due = level.min(*due + units);
        }

        fn check(&self) {
            assert_eq!(self.buckets.pool, self.model.pool);
            assert_eq!(self.buckets.slots().len(), self.model.seats.len());
            for (slot, seat) in &self.model.seats {
                assert_eq!(self.buckets.levels.level(*slot), seat.level);
                let client = self.buckets.of(*slot);
                let credit = self.buckets.borrowers.credit(&client.borrower, seat.weight);
                if self.model.competes(seat) {
                    assert_eq!(credit, seat.credit);
                }
            }
        }

        /// The most that buckets and pool may hold, with what is on its way into the buckets.
        fn held(&self) -> i128 {
            let (weight, model) = (self.model.weight(), &self.model);
            let buckets = model.all_buckets().max(weight * model.target());
            buckets + model.pool_size() + weight + 1
        }

        /// No window has more than the rate and what was held when it began. Begins anew after a change that adds to it.
        fn check_windows(&mut self) {
            let cycle = i128::from(self.cycle());
            for (first, (start, _, held)) in self.passed.iter().enumerate() {
                let mut sum = 0;
                for (now, units, _) in &self.passed[first..] {
                    sum += units;
                    let rate = i128::from(self.model.share.capacity()) * PERMIT;
                    assert!((sum - held) * cycle <= rate * i128::from(now - start));
                }
            }
            self.passed.clear();
        }
    }

    #[test]
    fn random_traces_keep_the_laws_and_agree_with_a_naive_model() {
        let mut waits = 0;
        for seed in 0..300 {
            let mut trace = Trace::new(seed);
            for _ in 0..100 {
                trace.step();
            }
            trace.check_windows();
            waits += trace.waits;
        }
        assert!(waits > 1_000, "{waits}");
    }
}
