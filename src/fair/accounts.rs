use core::mem;
use core::time::Duration;
use std::collections::BinaryHeap;

use crate::policy::{Decision, Policy, SlidingLog, SlidingLogState};
use crate::time::Tick;

use super::client::{Client, PERMIT};
use super::divide::{Shares, Want};
use super::{ClientShare, Cycle, FairShare, Newcomers, Terms};

/// The slot that clients beyond the bound share.
pub(crate) const OVERFLOW: u32 = 0;

/// How many clients may be sized anew in a cycle because of newcomers and large requests, before each costs decisions.
const WORK: u64 = 1 << 20;

/// The work that a decision pays for.
const WORK_OF_A_DECISION: u64 = 16;

/// What each client of a [`FairShare`] may use and has used, cycle by cycle: the pure part of the limiter.
///
/// A client is a slot, a small number. The owner calls [`advance`](Self::advance) with the time first, removes the keys of the
/// [`forgotten`](Self::forgotten) slots, looks its key up, and only then calls the other methods with the same time.
///
/// The demand of a client in a cycle is what passed, what was told to [`refuse`](Self::refuse), and what
/// [waits](Self::set_waiting) when the cycle ends.
#[derive(Clone, Debug)]
pub(crate) struct Accounts {
    share: FairShare,
    /// By slot.
    clients: Vec<Client>,
    /// The slots of known clients, the oldest first.
    order: Vec<u32>,
    free: Vec<u32>,
    forgotten: Vec<u32>,
    weights: u64,
    number: u64,
    start: Tick,
    /// The end of the last cycle with a request; `None` before the first one.
    idle_since: Option<Tick>,
    is_active: bool,
    early_ends: u32,
    spent: u32,
    /// The sum of all sizes. It is the capacity, or more while too much [`WORK`] was done to divide anew.
    sized: u64,
    /// What can be taken back at once: the sum of all that is borrowed and unspent.
    reclaimable: u64,
    /// Those from whom it can be taken, with upper bounds. Built when first needed in a division.
    lenders: Option<BinaryHeap<(u32, u32)>>,
    waiting: u64,
    work: u64,
    paused_until: Tick,
    /// Only with pacing.
    log: Option<SlidingLogState>,
}

/// By which right a request passes, or why not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Right {
    /// It is within the size.
    Size,
    /// It is within the default share, of which so much has to be taken back.
    Default(u32),
    /// It is the first of the cycle, larger than any share of its client, and what it takes is owed.
    Loan,
    /// A new client does not find its default share, so that the cycle ends.
    NewCycle,
    /// None before then.
    Wait(Tick),
}

impl Accounts {
    pub(crate) fn new(share: FairShare, now: Tick) -> Self {
        let mut overflow = Client::new(Terms::new());
        overflow.is_known = false;
        Self {
            share,
            clients: vec![overflow],
            order: Vec::new(),
            free: Vec::new(),
            forgotten: Vec::new(),
            weights: 0,
            number: 0,
            start: now,
            idle_since: None,
            is_active: false,
            early_ends: 0,
            spent: 0,
            sized: 0,
            reclaimable: 0,
            lenders: None,
            waiting: 0,
            work: WORK,
            paused_until: Tick::ZERO,
            log: share.paces().then(|| log_of(&share).fresh(now)),
        }
    }

    pub(crate) fn share(&self) -> &FairShare {
        &self.share
    }

    /// Goes to the cycle of `now`, and says whether that is another one. Call it before all other methods.
    pub(crate) fn advance(&mut self, now: Tick) -> bool {
        let cycle = Tick::ZERO.after(self.share.cycle()).as_nanos();
        let elapsed = now.as_nanos().saturating_sub(self.start.as_nanos()) / cycle;
        if elapsed == 0 {
            return false;
        }
        let end = self.end();
        self.start = now.last_on_grid(self.start, self.share.cycle());
        if self.waiting > 0 {
            self.idle_since = Some(self.start);
        } else if self.is_active {
            self.idle_since = Some(end);
        }
        self.is_active = false;
        self.early_ends = 0;
        for slot in &self.order {
            self.clients[*slot as usize].end_cycle(elapsed - 1, self.share.smoothing());
        }
        self.forget_idle();
        self.begin_cycle(elapsed);
        true
    }

    /// The slots of the clients that were forgotten since the last call. They are used again from now on.
    pub(crate) fn forgotten(&mut self) -> Vec<u32> {
        self.free.extend(&self.forgotten);
        mem::take(&mut self.forgotten)
    }

    /// The slot of a client that has none: a new one, or [`OVERFLOW`] if there are too many clients.
    pub(crate) fn join(&mut self, terms: Terms) -> u32 {
        let own = self.order.len() - usize::from(self.clients[0].is_known);
        let slot = if own >= self.share.max_clients() as usize {
            if self.clients[0].is_known {
                return OVERFLOW;
            }
            self.clients[0] = Client::new(Terms::new());
            OVERFLOW
        } else if let Some(slot) = self.free.pop() {
            self.clients[slot as usize] = Client::new(terms);
            slot
        } else {
            self.clients.push(Client::new(terms));
            u32::try_from(self.clients.len() - 1).unwrap_or(OVERFLOW)
        };
        self.order.push(slot);
        self.weights += u64::from(self.clients[slot as usize].terms.weight());
        if self.may_divide() {
            self.divide(false);
            self.fit();
        } else {
            self.size_without_dividing(slot);
        }
        slot
    }

    /// Asks for `cost` permits, and counts them if they pass. A refusal is counted by [`refuse`](Self::refuse) or as
    /// [waiting](Self::set_waiting).
    pub(crate) fn decide(&mut self, slot: u32, cost: u32, now: Tick) -> Decision {
        if let Some(decision) = self.without_asking(cost) {
            return decision;
        }
        self.begin_if_idle(now);
        self.work = self.work.saturating_add(WORK_OF_A_DECISION);
        let mut right = self.right(slot, cost, now);
        if right == Right::NewCycle {
            self.end_early(now);
            right = self.right(slot, cost, now);
        }
        match right {
            Right::Size => self.count(slot, cost, now),
            Right::Default(missing) => {
                self.take_back(slot, missing);
                self.count(slot, cost, now);
            }
            Right::Loan => self.lend(slot, cost, now),
            Right::NewCycle => return wait(self.end(), now),
            Right::Wait(until) => return wait(until, now),
        }
        Decision::Pass
    }

    /// The decision that [`decide`](Self::decide) would make.
    pub(crate) fn peek(&self, slot: u32, cost: u32, now: Tick) -> Decision {
        if let Some(decision) = self.without_asking(cost) {
            return decision;
        }
        match self.right(slot, cost, now) {
            Right::Wait(until) => wait(until, now),
            _ => Decision::Pass,
        }
    }

    /// Counts a request that gave up or did not want to wait.
    pub(crate) fn refuse(&mut self, slot: u32, cost: u32) {
        let client = &mut self.clients[slot as usize];
        client.turned_away = client.turned_away.saturating_add(1);
        // What can never pass is no demand.
        if cost <= self.share.capacity() {
            client.refused = client.refused.saturating_add(cost.into());
            self.is_active = true;
        }
    }

    /// Tells the cost of all requests that now wait in the queue of a client.
    pub(crate) fn set_waiting(&mut self, slot: u32, cost: u64) {
        let client = &mut self.clients[slot as usize];
        self.is_active |= client.waiting != cost;
        self.waiting = self
            .waiting
            .saturating_sub(client.waiting)
            .saturating_add(cost);
        client.waiting = cost;
    }

    /// Takes permits back that passed and were not used.
    pub(crate) fn refund(&mut self, slot: u32, permits: u32, now: Tick) {
        let client = &mut self.clients[slot as usize];
        let could = client.unspent_loan();
        let unused = permits.min(client.used);
        let repaid = unused.min(client.loan);
        client.used -= unused;
        client.loan -= repaid;
        client.size -= repaid;
        client.owed = client
            .owed
            .saturating_sub(u64::from(permits - unused) * PERMIT);
        let can = client.unspent_loan();
        self.spent = self.spent.saturating_sub(unused);
        self.sized -= u64::from(repaid);
        self.reclaimable = self.reclaimable - u64::from(could) + u64::from(can);
        if let Some(lenders) = &mut self.lenders {
            lenders.push((can, slot));
        }
        if let Some(log) = &mut self.log {
            log_of(&self.share).refund(log, now, permits);
        }
    }

    /// Lets nothing pass until then.
    pub(crate) fn pause_until(&mut self, until: Tick) {
        self.paused_until = until;
    }

    /// Changes the parameters. What was spent stays spent.
    pub(crate) fn retune(&mut self, share: FairShare, now: Tick) {
        let old = mem::replace(&mut self.share, share);
        self.log = share.paces().then(|| match self.log.take() {
            Some(mut log) => {
                log_of(&share).retune(&log_of(&old), &mut log, now);
                log
            }
            None => log_of(&share).fresh(now),
        });
        self.divide(false);
        self.fit();
    }

    /// What a client may use and has used in this cycle.
    pub(crate) fn client(&self, slot: u32) -> ClientShare {
        let client = &self.clients[slot as usize];
        ClientShare {
            size: client.size,
            demand: client.demand,
            used: client.used,
            refused: client.refused,
            waiting: client.waiting,
            lent: client.default.saturating_sub(client.size),
            borrowed: client.size.saturating_sub(client.default),
            requests_passed: client.passed,
            requests_refused: client.turned_away,
        }
    }

    /// The cycle that runs.
    pub(crate) fn cycle(&self) -> Cycle {
        Cycle {
            number: self.number,
            start: self.start,
            end: self.end(),
            capacity: self.share.capacity(),
            spent: self.spent,
        }
    }

    /// The slots of all clients, the oldest first.
    pub(crate) fn slots(&self) -> &[u32] {
        &self.order
    }

    fn end(&self) -> Tick {
        self.start.after(self.share.cycle())
    }

    fn without_asking(&self, cost: u32) -> Option<Decision> {
        let capacity = self.share.capacity();
        if cost > capacity {
            return Some(Decision::Never { capacity });
        }
        (cost == 0).then_some(Decision::Pass)
    }

    /// A cycle begins with the first request after an idle one.
    fn begin_if_idle(&mut self, now: Tick) {
        let is_idle = |since: Tick| since.after(self.share.cycle()) <= now;
        if !self.is_active && self.waiting == 0 && self.idle_since.is_none_or(is_idle) {
            self.start = now;
        }
        self.is_active = true;
    }

    fn right(&self, slot: u32, cost: u32, now: Tick) -> Right {
        if now < self.paused_until {
            return Right::Wait(self.paused_until);
        }
        let client = &self.clients[slot as usize];
        let Some(needed) = client.used.checked_add(cost) else {
            return Right::Wait(self.end());
        };
        let unspent = self.share.capacity().saturating_sub(self.spent);
        let missing = needed.saturating_sub(client.size);
        let is_in_default = needed <= client.default;
        let right = if cost <= unspent && missing == 0 {
            Right::Size
        } else if cost <= unspent && is_in_default && u64::from(missing) <= self.to_take_back() {
            Right::Default(missing)
        } else if cost <= unspent && needed == cost && !is_in_default && !client.is_in_debt() {
            Right::Loan
        } else if is_in_default && client.is_new && self.may_end_early() {
            Right::NewCycle
        } else {
            return Right::Wait(self.end());
        };
        let open_at = self.open_at(client, right, cost, now);
        if now < open_at {
            return Right::Wait(open_at);
        }
        right
    }

    /// When pacing lets a request pass.
    fn open_at(&self, client: &Client, right: Right, cost: u32, now: Tick) -> Tick {
        let Some(log) = &self.log else {
            return Tick::ZERO;
        };
        let size = if right == Right::Size {
            client.size
        } else {
            client.default
        };
        let decision = log_of(&self.share).peek(log, now, cost);
        let in_log = decision
            .retry_in()
            .map_or(Tick::ZERO, |wait| now.after(wait));
        client.next_at(size, self.share.cycle()).max(in_log)
    }

    fn may_end_early(&self) -> bool {
        match self.share.newcomers() {
            Newcomers::Join => false,
            Newcomers::EndCycle { at_most } => self.early_ends < at_most,
        }
    }

    fn end_early(&mut self, now: Tick) {
        for slot in &self.order {
            self.clients[*slot as usize].end_cycle_early();
        }
        self.early_ends += 1;
        self.start = now.max(self.start);
        self.begin_cycle(1);
    }

    fn begin_cycle(&mut self, elapsed: u64) {
        self.number = self.number.saturating_add(elapsed);
        self.spent = 0;
        self.work = WORK;
        self.divide(true);
        self.fit();
    }

    fn forget_idle(&mut self) {
        let (clients, forgotten) = (&mut self.clients, &mut self.forgotten);
        let weights = &mut self.weights;
        let idle_cycles = self.share.forgets_after();
        self.order.retain(|slot| {
            let client = &mut clients[*slot as usize];
            client.is_known = !client.is_idle_for(idle_cycles);
            if !client.is_known {
                *weights -= u64::from(client.terms.weight());
            }
            if !client.is_known && *slot != OVERFLOW {
                forgotten.push(*slot);
            }
            client.is_known
        });
    }

    fn count(&mut self, slot: u32, cost: u32, now: Tick) {
        let client = &mut self.clients[slot as usize];
        let could = client.unspent_loan();
        client.count(cost, now);
        self.reclaimable -= u64::from(could - client.unspent_loan());
        self.spent = self.spent.saturating_add(cost);
        if let Some(log) = &mut self.log {
            // It was asked before.
            let _ = log_of(&self.share).decide(log, now, cost);
        }
    }

    fn to_take_back(&self) -> u64 {
        self.reclaimable.saturating_add(self.spare())
    }

    /// What is in no size.
    fn spare(&self) -> u64 {
        u64::from(self.share.capacity()).saturating_sub(self.sized)
    }

    /// Adds to the size of a client what is spare, and then what others borrowed most and did not spend.
    fn take_back(&mut self, slot: u32, missing: u32) {
        let mut missing = missing;
        let spare = u32::try_from(self.spare()).unwrap_or(u32::MAX).min(missing);
        self.clients[slot as usize].size += missing;
        self.sized += u64::from(spare);
        missing -= spare;
        self.reclaimable -= u64::from(missing);
        let (order, clients) = (&self.order, &mut self.clients);
        let all = || {
            let lenders = order
                .iter()
                .map(|slot| (clients[*slot as usize].unspent_loan(), *slot));
            lenders.filter(|(unspent, _)| *unspent > 0).collect()
        };
        let lenders = self.lenders.get_or_insert_with(all);
        while missing > 0 {
            let Some((bound, lender)) = lenders.pop() else {
                break;
            };
            let client = &mut clients[lender as usize];
            let unspent = client.unspent_loan();
            let taken = if unspent == bound {
                unspent.min(missing)
            } else {
                0
            };
            client.size -= taken;
            missing -= taken;
            if unspent > taken {
                lenders.push((unspent - taken, lender));
            }
        }
    }

    fn lend(&mut self, slot: u32, cost: u32, now: Tick) {
        let client = &mut self.clients[slot as usize];
        client.loan = cost - client.size;
        self.sized += u64::from(client.loan);
        client.size = cost;
        self.count(slot, cost, now);
        if self.may_divide() {
            self.fit();
        }
    }

    /// Whether there is work left for all clients, which is then done.
    fn may_divide(&mut self) -> bool {
        let clients = self.order.len() as u64;
        let may = self.work >= clients;
        if may {
            self.work -= clients;
        }
        may
    }

    /// Gives a newcomer its default share although others have it too. What was spent bounds all of them.
    fn size_without_dividing(&mut self, slot: u32) {
        let (capacity, weights) = (self.share.capacity(), self.weights);
        let client = &mut self.clients[slot as usize];
        client.default = default_of(client, capacity, weights);
        client.size = client.default;
        self.sized += u64::from(client.size);
    }

    /// Gives every client the size that it has if nothing was spent in this cycle.
    fn divide(&mut self, begins: bool) {
        let weights = self.weights;
        let (capacity, carries) = (self.share.capacity(), self.share.carries());
        let (reservation, division) = (self.share.reservation(), self.share.division());
        let wants: Vec<Want> = self
            .order
            .iter()
            .map(|slot| {
                let client = &self.clients[*slot as usize];
                ((!client.is_new).then_some(client.demand), client.terms)
            })
            .collect();
        let shares = Shares::exact(capacity, &wants, reservation, division);
        let carried = |at: usize| {
            let client = &self.clients[self.order[at] as usize];
            if carries { client.carried } else { 0 }
        };
        let sizes = shares.whole(capacity, carried);
        for (at, (slot, size)) in self.order.iter().zip(&sizes).enumerate() {
            let client = &mut self.clients[*slot as usize];
            client.default = default_of(client, capacity, weights);
            client.size = *size;
            if begins {
                client.round(shares.fraction(at), shares.is_above(at, *size), carries);
            }
        }
        self.repay();
    }

    /// Takes from the sizes what is owed, and divides it among those that owe nothing.
    fn repay(&mut self) {
        let mut repaid = 0;
        let mut others: Vec<u32> = Vec::new();
        for slot in &self.order {
            let client = &mut self.clients[*slot as usize];
            if client.is_in_debt() {
                repaid += client.repay();
            } else {
                others.push(*slot);
            }
        }
        if repaid == 0 {
            return;
        }
        let wants: Vec<Want> = others
            .iter()
            .map(|slot| {
                let client = &self.clients[*slot as usize];
                let lacks = client.demand.saturating_sub(client.size);
                let terms = Terms::new().with_weight(client.terms.weight());
                ((!client.is_new).then_some(lacks), terms)
            })
            .collect();
        let shares = Shares::exact(repaid, &wants, 0, self.share.division());
        for (slot, size) in others.iter().zip(shares.whole(repaid, |_| 0)) {
            self.clients[*slot as usize].size += size;
        }
        if others.is_empty() {
            self.forgive();
        }
    }

    /// If all owe something, they owe it to each other.
    fn forgive(&mut self) {
        for slot in &self.order {
            let client = &mut self.clients[*slot as usize];
            client.size += client.paying;
            (client.paying, client.owed) = (0, 0);
        }
    }

    /// Reduces what clients have not spent, in proportion, to what is unspent of the capacity.
    fn fit(&mut self) {
        let unspent = u64::from(self.share.capacity().saturating_sub(self.spent));
        let clients = self.order.iter().map(|slot| &self.clients[*slot as usize]);
        let wanted: u64 = clients.map(|client| u64::from(client.unspent())).sum();
        let (mut before, mut given) = (0_u64, 0);
        (self.sized, self.reclaimable, self.lenders) = (0, 0, None);
        for slot in &self.order {
            let client = &mut self.clients[*slot as usize];
            before += u64::from(client.unspent());
            let upto = if wanted <= unspent {
                before
            } else {
                let upto = u128::from(before) * u128::from(unspent) / u128::from(wanted);
                u64::try_from(upto).unwrap_or(u64::MAX)
            };
            client.size = client
                .used
                .saturating_add(u32::try_from(upto - given).unwrap_or(0));
            given = upto;
            self.sized += u64::from(client.size);
            self.reclaimable += u64::from(client.unspent_loan());
        }
    }
}

fn log_of(share: &FairShare) -> SlidingLog {
    SlidingLog::new(share.capacity(), share.cycle())
}

fn default_of(client: &Client, capacity: u32, weights: u64) -> u32 {
    let weight = u64::from(client.terms.weight());
    let default = u128::from(capacity) * u128::from(weight) / u128::from(weights.max(1));
    u32::try_from(default).unwrap_or(capacity)
}

fn wait(until: Tick, now: Tick) -> Decision {
    Decision::Wait {
        retry_in: until.since(now).max(Duration::from_nanos(1)),
    }
}
