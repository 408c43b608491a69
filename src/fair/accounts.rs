use core::mem;
use core::time::Duration;

use crate::policy::states::SlidingLogState;
use crate::policy::{Decision, Policy, Quota, SlidingLog, Status};
use crate::time::Tick;

use super::client::Client;
use super::clients::{Clients, OVERFLOW};
use super::report::{ClientShare, FairCycle};
use super::{ClientTerms, FairShare, HasState, Newcomers, RuleState};

/// How many clients may be sized anew in a cycle because of newcomers and large requests, before each costs decisions.
const WORK: u64 = 1 << 19;

/// The work that a decision pays for.
const WORK_OF_A_DECISION: u64 = 16;

/// What each client of a [`FairShare`] may use and has used, cycle by cycle.
///
/// The demand of a client in a cycle is what passed or was [charged](Self::charge), what was [refused](Self::refuse), and what
/// [waits](Self::set_waiting) when the cycle ends.
#[derive(Clone, Debug)]
pub(crate) struct Accounts {
    share: FairShare,
    clients: Clients,
    number: u64,
    start: Tick,
    /// The end of the last cycle with a request; `None` before the first one.
    idle_since: Option<Tick>,
    is_active: bool,
    /// By newcomers without and with a share of their own.
    early_ends: [u32; 2],
    has_ended_early: bool,
    spent: u32,
    waiting: u64,
    work: u64,
    paused_until: Tick,
    /// Only with pacing.
    log: Option<SlidingLogState>,
}

/// By which right a request passes, or why not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Right {
    /// It is within the size, or within the default share, of which a part has to be taken back. Or it is the first of the cycle and
    /// larger than any share of its client: what is above the default share is owed.
    Share,
    /// A new client does not find its default share, so that the cycle ends.
    NewCycle,
    /// Not before then.
    Wait(Tick),
}

impl HasState for FairShare {
    type State = Accounts;
}

impl RuleState for Accounts {
    type Rule = FairShare;

    fn new(share: FairShare, now: Tick) -> Self {
        Self {
            share,
            clients: Clients::new(),
            number: 0,
            start: now,
            idle_since: None,
            is_active: false,
            early_ends: [0; 2],
            has_ended_early: false,
            spent: 0,
            waiting: 0,
            work: WORK,
            paused_until: Tick::ZERO,
            log: share.paces().then(|| log_of(&share).fresh(now)),
        }
    }

    fn share(&self) -> &FairShare {
        &self.share
    }

    fn advance(&mut self, now: Tick) -> bool {
        let end = self.end();
        if now < end {
            return false;
        }
        let cycle = Tick::ZERO.after(self.share.cycle()).as_nanos();
        let elapsed = now.as_nanos().saturating_sub(self.start.as_nanos()) / cycle;
        if elapsed == 0 {
            return false;
        }
        self.start = now.last_on_grid(self.start, self.share.cycle());
        if self.waiting > 0 {
            self.idle_since = Some(self.start);
        } else if self.is_active {
            self.idle_since = Some(end);
        }
        self.is_active = false;
        self.early_ends = [0; 2];
        let smoothing = self.share.smoothing();
        self.clients
            .for_each(|client| client.end_cycle(elapsed - 1, smoothing));
        self.clients.forget(&self.share);
        self.begin_cycle(elapsed);
        true
    }

    fn forgotten(&mut self) -> Vec<u32> {
        self.clients.forgotten()
    }

    fn join(&mut self, terms: ClientTerms) -> u32 {
        let known = self.clients.order.len();
        let slot = self.clients.add(terms, self.share.max_clients());
        if self.clients.order.len() == known {
            return slot;
        }
        if self.may_divide() {
            self.clients.divide(&self.share, false);
            self.clients.fit(self.unspent(), false);
        } else {
            self.clients.size_without_dividing(slot, &self.share);
        }
        slot
    }

    fn excerpt(&self) -> Self {
        self.clone()
    }

    fn is_full(&self) -> bool {
        let most = self.share.max_clients() as usize;
        self.clients[OVERFLOW].is_known && self.clients.bounded >= most
    }

    fn set_terms(&mut self, slot: u32, terms: ClientTerms) {
        self.clients.set_terms(slot, terms);
    }

    fn decide(&mut self, slot: u32, cost: u32, now: Tick) -> Decision {
        if let Some(decision) = self.without_asking(cost) {
            return decision;
        }
        self.begin_request(now);
        let mut right = self.right(slot, cost, now);
        if right == Right::NewCycle {
            self.end_early(slot, now);
            right = self.right(slot, cost, now);
        }
        match right {
            Right::Share => self.spend(slot, cost, now),
            Right::NewCycle => return wait(self.end(), now),
            Right::Wait(until) => return wait(until, now),
        }
        let client = &mut self.clients[slot];
        client.passed = client.passed.saturating_add(1);
        Decision::Pass
    }

    fn peek(&self, slot: u32, cost: u32, now: Tick) -> Decision {
        if let Some(decision) = self.without_asking(cost) {
            return decision;
        }
        match self.right(slot, cost, now) {
            Right::Wait(until) => wait(until, now),
            _ => Decision::Pass,
        }
    }

    fn open_behind(&self, slot: u32, queued: u64, cost: u32, now: Tick) -> Tick {
        // A client gets no more than the capacity of each cycle.
        let together = queued.saturating_add(cost.into());
        let cycles = together
            .saturating_sub(self.unspent().into())
            .div_ceil(self.share.capacity().into());
        let alone = self.peek(slot, cost, now).retry_in();
        let open_at = now.after(alone.unwrap_or_default());
        let Some(more) = cycles.checked_sub(1) else {
            return open_at;
        };
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let begins = self.end().after_times(self.share.cycle(), more);
        open_at.max(begins)
    }

    /// They are spent in this cycle as far as it has them, and the rest in later cycles, before anything else of this client passes.
    /// What the client takes from others is owed to them.
    fn charge(&mut self, slot: u32, cost: u32, now: Tick) {
        self.begin_request(now);
        self.spend(slot, cost, now);
    }

    fn refuse(&mut self, slot: u32, cost: u32) {
        let client = &mut self.clients[slot];
        client.turned_away = client.turned_away.saturating_add(1);
        // What can never pass is no demand.
        if cost <= self.share.capacity() {
            client.refused = client.refused.saturating_add(cost.into());
            self.is_active = true;
        }
    }

    fn set_waiting(&mut self, slot: u32, cost: u64) {
        let client = &mut self.clients[slot];
        self.is_active |= client.waiting != cost;
        self.waiting = self
            .waiting
            .saturating_sub(client.waiting)
            .saturating_add(cost);
        client.waiting = cost;
    }

    /// Those of an earlier cycle only reduce what the client owes.
    fn refund(&mut self, slot: u32, permits: u32, spent_at: Option<Tick>, now: Tick) {
        let may_be_of_this_cycle = spent_at.is_none_or(|at| at >= self.start);
        let unused = self.clients.refund(slot, permits, may_be_of_this_cycle);
        self.spent = self.spent.saturating_sub(unused);
        if let Some(log) = &mut self.log {
            match spent_at {
                Some(at) => log_of(&self.share).refund_from(log, now, at, permits),
                None => log_of(&self.share).refund(log, now, permits),
            }
        }
    }

    fn pause_until(&mut self, until: Tick) {
        self.paused_until = until;
    }

    fn retune(&mut self, share: FairShare, now: Tick) {
        let old = mem::replace(&mut self.share, share);
        self.log = share.paces().then(|| match self.log.take() {
            Some(mut log) => {
                log_of(&share).retune(&log_of(&old), &mut log, now);
                log
            }
            None => log_of(&share).fresh(now),
        });
        self.clients.divide(&self.share, false);
        self.clients.fit(self.unspent(), false);
    }

    fn client<K>(&self, slot: u32) -> ClientShare<K> {
        let client = &self.clients[slot];
        ClientShare {
            key: None,
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

    /// A new client that ends a cycle early does.
    fn lets_earlier(&mut self) -> bool {
        mem::take(&mut self.has_ended_early)
    }

    /// The quota is the size in this cycle, and the reset its end.
    fn status(&self, slot: u32, now: Tick) -> Status {
        let quota = Quota {
            permits: self.clients[slot].size,
            window: self.share.cycle(),
        };
        Status::new(Some(quota), self.room(slot, now), self.end().since(now))
    }

    /// The oldest first.
    fn slots(&self) -> impl ExactSizeIterator<Item = u32> {
        self.clients.order.iter().copied()
    }
}

impl Accounts {
    /// The cycle that runs.
    pub(crate) fn cycle(&self, now: Tick) -> FairCycle {
        FairCycle {
            number: self.number,
            capacity: self.share.capacity(),
            spent: self.spent,
            began_ago: now.since(self.start),
            ends_in: self.end().since(now),
        }
    }

    /// How many requests of cost 1 would pass now.
    fn room(&self, slot: u32, now: Tick) -> u32 {
        let client = &self.clients[slot];
        let is_open = |cost: u32| self.peek(slot, cost, now).is_pass();
        if self.share.paces() {
            return u32::from(is_open(1));
        }
        // Up to here a request that passes also does so in parts.
        let most = client.size.max(client.default);
        let most = most.saturating_sub(client.used).max(1);
        if is_open(most) {
            return most;
        }
        let (mut passed, mut refused) = (0, most);
        while passed + 1 < refused {
            let cost = passed + (refused - passed) / 2;
            if is_open(cost) {
                passed = cost;
            } else {
                refused = cost;
            }
        }
        passed
    }

    fn end(&self) -> Tick {
        self.start.after(self.share.cycle())
    }

    fn without_asking(&self, cost: u32) -> Option<Decision> {
        let capacity = self.share.capacity();
        (cost > capacity).then_some(Decision::Never { capacity })
    }

    fn begin_request(&mut self, now: Tick) {
        self.start = self.start_of_request(now);
        self.is_active = true;
        self.work = self.work.saturating_add(WORK_OF_A_DECISION);
    }

    /// The start of the cycle of a request: a cycle begins with the first request after an idle one.
    fn start_of_request(&self, now: Tick) -> Tick {
        let is_idle = |since: Tick| since.after(self.share.cycle()) <= now;
        if !self.is_active && self.idle_since.is_none_or(is_idle) {
            return now;
        }
        self.start
    }

    fn right(&self, slot: u32, cost: u32, now: Tick) -> Right {
        if now < self.paused_until {
            return Right::Wait(self.paused_until);
        }
        let end = self.start_of_request(now).after(self.share.cycle());
        let client = &self.clients[slot];
        let Some(needed) = client.used.checked_add(cost) else {
            return Right::Wait(end);
        };
        if client.overdrawn > 0 {
            return Right::Wait(end);
        }
        let is_covered = cost <= self.unspent();
        let (right, size) = if is_covered && needed <= client.size {
            (Right::Share, client.size)
        } else if is_covered && self.may_have_more(client, needed, cost) {
            (Right::Share, client.default)
        } else if needed <= self.clients.default_of(slot, self.share.capacity())
            && client.is_new
            && !client.is_in_debt()
            && self.may_end_early(client)
        {
            (Right::NewCycle, client.default)
        } else {
            return Right::Wait(end);
        };
        let open_at = self.open_at(client, size, cost, now);
        if now < open_at {
            return Right::Wait(open_at);
        }
        right
    }

    /// Whether a request above the size takes back a part of the default share, or is a loan or the turn of another client.
    fn may_have_more(&self, client: &Client, needed: u32, cost: u32) -> bool {
        if needed <= client.own_default() {
            let missing = needed.saturating_sub(client.size);
            return u64::from(missing) <= self.clients.to_take_back(self.share.capacity());
        }
        needed == cost && !client.is_in_debt() && !client.has_had_its_turn(needed)
    }

    /// When pacing lets a request pass.
    fn open_at(&self, client: &Client, size: u32, cost: u32, now: Tick) -> Tick {
        let Some(log) = &self.log else {
            return Tick::ZERO;
        };
        let decision = log_of(&self.share).peek(log, now, cost);
        let in_log = decision
            .retry_in()
            .map_or(Tick::ZERO, |wait| now.after(wait));
        client.next_at(size, self.share.cycle()).max(in_log)
    }

    fn may_end_early(&self, client: &Client) -> bool {
        let own = usize::from(client.terms.has_own_share());
        match self.share.newcomers() {
            Newcomers::Join => false,
            Newcomers::EndCycle { at_most } => self.early_ends[own] < at_most,
        }
    }

    fn end_early(&mut self, slot: u32, now: Tick) {
        self.clients.for_each(Client::end_cycle_early);
        self.early_ends[usize::from(self.clients[slot].terms.has_own_share())] += 1;
        self.has_ended_early = true;
        self.start = now.max(self.start);
        self.begin_cycle(1);
    }

    fn begin_cycle(&mut self, elapsed: u64) {
        self.number = self.number.saturating_add(elapsed);
        self.work = WORK;
        self.clients.divide(&self.share, true);
        self.spent = self.clients.spend_overdrawn();
        self.clients.fit(self.unspent(), false);
    }

    fn unspent(&self) -> u32 {
        self.share.capacity().saturating_sub(self.spent)
    }

    /// Enlarges the size of a client until `cost` is within it: up to the default share by what can be taken back, and then by what
    /// others have not spent, which this returns. What is above the default share is owed.
    fn enlarge(&mut self, slot: u32, cost: u32) -> bool {
        let capacity = self.share.capacity();
        let client = &self.clients[slot];
        let (own, needed) = (client.own_default(), client.used.saturating_add(cost));
        if needed <= client.size {
            return false;
        }
        let missing = u64::from(own.min(needed).saturating_sub(client.size));
        let missing = missing.min(self.clients.to_take_back(capacity));
        if missing > 0 {
            let missing = u32::try_from(missing).unwrap_or(u32::MAX);
            self.clients.take_back(slot, missing, capacity);
        }
        self.clients.lend(slot, needed, own)
    }

    /// Counts permits for a client, of this cycle as far as it has them. If others lent them, their sizes shrink to the unspent rest.
    fn spend(&mut self, slot: u32, cost: u32, now: Tick) {
        let covered = cost.min(self.unspent());
        let has_lent = self.enlarge(slot, covered);
        let share = &self.share;
        self.clients
            .change(slot, |client| client.spend(cost, covered, now, share));
        self.spent = self.spent.saturating_add(covered);
        if has_lent && self.may_divide() {
            let has_turn = self.clients[slot].has_turn_of_another();
            self.clients.fit(self.unspent(), has_turn);
        }
        if let Some(log) = &mut self.log {
            log_of(&self.share).charge(log, now, cost);
        }
    }

    /// Whether there is work left for all clients, which is then done.
    fn may_divide(&mut self) -> bool {
        let clients = self.clients.order.len() as u64;
        let may = self.work >= clients;
        if may {
            self.work -= clients;
        }
        may
    }
}

fn log_of(share: &FairShare) -> SlidingLog {
    SlidingLog::new(share.capacity(), share.cycle())
}

fn wait(until: Tick, now: Tick) -> Decision {
    Decision::Wait {
        retry_in: until.since(now).max(Duration::from_nanos(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Division, OVERFLOW};
    use super::*;
    use crate::time::OutOfRange;

    const CYCLE: Duration = Duration::from_nanos(100);
    const RULE: FairShare =
        OutOfRange::or_panic(FairShare::new(40, CYCLE).try_with_reservation(1_000));

    fn at(nanos: u64) -> Tick {
        Tick::from_nanos(nanos)
    }

    fn wait(nanos: u64) -> Decision {
        Decision::Wait {
            retry_in: Duration::from_nanos(nanos),
        }
    }

    /// Accounts with this many clients, in their first cycle, which begins at 0.
    fn accounts(share: FairShare, clients: u32) -> Accounts {
        let mut accounts = Accounts::new(share, at(0));
        for slot in 1..=clients {
            assert_eq!(accounts.join(ClientTerms::new()), slot);
        }
        accounts
    }

    /// Asks for permits one by one. What does not pass is refused. How many pass?
    fn ask(accounts: &mut Accounts, slot: u32, permits: u32, now: u64) -> u32 {
        let _ = accounts.advance(at(now));
        let passes = |accounts: &mut Accounts| {
            let passes = accounts.decide(slot, 1, at(now)).is_pass();
            if !passes {
                accounts.refuse(slot, 1);
            }
            passes
        };
        (0..permits).map(|_| u32::from(passes(accounts))).sum()
    }

    fn sizes(accounts: &Accounts) -> Vec<u32> {
        let slots = accounts.clients.order.iter();
        slots
            .map(|slot| accounts.client::<()>(*slot).size)
            .collect()
    }

    #[test]
    fn cycles_follow_the_published_table() {
        let mut accounts = accounts(RULE, 4);
        assert_eq!(sizes(&accounts), [10; 4]);
        let table = [
            ([2, 15, 10, 10], [5, 15, 10, 10]),
            ([3, 15, 50, 10], [3, 11, 16, 10]),
            ([0, 15, 50, 5], [1, 12, 22, 5]),
        ];
        for (start, (asked, then)) in (0..).step_by(100).zip(table) {
            for (slot, permits) in (1..).zip(asked) {
                let _ = ask(&mut accounts, slot, permits, start);
            }
            assert!(accounts.advance(at(start + 100)));
            assert_eq!(sizes(&accounts), then);
        }
    }

    #[test]
    fn a_client_alone_has_the_capacity() {
        let mut accounts = accounts(RULE, 1);
        assert_eq!(ask(&mut accounts, 1, 60, 0), 40);
        assert_eq!(accounts.decide(1, 1, at(30)), wait(70));
        assert_eq!(
            accounts.decide(1, 41, at(30)),
            Decision::Never { capacity: 40 }
        );
        assert_eq!(ask(&mut accounts, 1, 60, 100), 40);
        let report = accounts.client::<()>(1);
        assert_eq!((report.demand, report.used, report.refused), (60, 40, 20));
        assert_eq!((report.requests_passed, report.requests_refused), (80, 40));
    }

    #[test]
    fn a_cycle_begins_with_the_first_request_after_an_idle_one() {
        let mut accounts = accounts(RULE, 1);
        assert_eq!(ask(&mut accounts, 1, 1, 30), 1);
        assert_eq!((accounts.start, accounts.end()), (at(30), at(130)));
        assert_eq!(ask(&mut accounts, 1, 1, 229), 1);
        assert_eq!(accounts.start, at(130), "requests keep coming");
        // The cycle from 230 on is idle, and a look at it changes nothing.
        let _ = accounts.advance(at(300));
        let _ = accounts.advance(at(340));
        assert_eq!(accounts.start, at(330));
        assert_eq!(ask(&mut accounts, 1, 1, 345), 1);
        assert_eq!((accounts.start, accounts.spent), (at(345), 1));
        assert_eq!(accounts.number, 3);
    }

    #[test]
    fn while_requests_wait_no_cycle_is_idle() {
        let mut accounts = accounts(RULE, 2);
        assert_eq!(ask(&mut accounts, 1, 40, 0), 20);
        accounts.set_waiting(1, 25);
        let _ = accounts.advance(at(550));
        assert_eq!(accounts.start, at(500));
        assert_eq!(accounts.client::<()>(1).demand, 25);
        assert_eq!(sizes(&accounts), [25, 15]);
        assert_eq!(accounts.decide(1, 1, at(550)), Decision::Pass);
        assert_eq!(accounts.start, at(500));
        let _ = accounts.advance(at(5_050));
        assert_eq!(accounts.forgotten(), [2], "a client that waits is not idle");
        accounts.set_waiting(1, 24);
        assert_eq!(accounts.decide(1, 1, at(5_060)), Decision::Pass);
        assert_eq!(accounts.start, at(5_000));
        accounts.set_waiting(1, 0);
        let _ = accounts.advance(at(5_250));
        assert_eq!(accounts.decide(1, 1, at(5_250)), Decision::Pass);
        assert_eq!(accounts.start, at(5_250), "none waits any more");
    }

    #[test]
    fn a_newcomer_is_admitted_at_once_from_what_is_unspent() {
        let mut accounts = accounts(RULE, 1);
        assert_eq!(ask(&mut accounts, 1, 15, 0), 15);
        assert_eq!(accounts.join(ClientTerms::new()), 2);
        assert_eq!(sizes(&accounts), [20, 20]);
        assert_eq!(ask(&mut accounts, 2, 30, 1), 20);
        assert_eq!(accounts.join(ClientTerms::new()), 3);
        // 5 are left. All 5 are unspent of client 1, and 3 may have 13 of 40.
        assert_eq!(sizes(&accounts), [15, 20, 5]);
        assert_eq!(ask(&mut accounts, 3, 6, 2), 5);
        assert_eq!(accounts.join(ClientTerms::new()), 4);
        assert_eq!(ask(&mut accounts, 4, 1, 3), 0);
        assert_eq!(accounts.spent, 40);
    }

    #[test]
    fn a_newcomer_without_its_default_share_ends_the_cycle_so_often() {
        let share = RULE.with_newcomers(Newcomers::EndCycle { at_most: 1 });
        let mut accounts = accounts(share, 1);
        assert_eq!(ask(&mut accounts, 1, 60, 0), 40);
        assert_eq!(accounts.join(ClientTerms::new()), 2);
        assert_eq!(accounts.peek(2, 1, at(30)), Decision::Pass);
        assert_eq!(ask(&mut accounts, 2, 30, 30), 20);
        let cycle = (accounts.start, accounts.end(), accounts.number);
        assert_eq!(cycle, (at(30), at(130), 1));
        assert_eq!(ask(&mut accounts, 1, 60, 31), 20);
        assert_eq!(accounts.join(ClientTerms::new()), 3);
        assert_eq!(ask(&mut accounts, 3, 30, 32), 0, "once is enough");
        let _ = accounts.advance(at(130));
        assert_eq!(ask(&mut accounts, 3, 40, 130), 13);
        assert_eq!(accounts.join(ClientTerms::new()), 4);
        assert_eq!(ask(&mut accounts, 4, 9, 131), 9);
        assert_eq!(accounts.start, at(130), "it found its share");
    }

    #[test]
    fn newcomers_do_not_use_up_the_early_end_of_one_with_its_own_share() {
        let share = RULE.with_newcomers(Newcomers::EndCycle { at_most: 1 });
        let mut accounts = accounts(share, 1);
        assert_eq!(ask(&mut accounts, 1, 40, 0), 40);
        for (now, has_own_share, passes) in [
            (10, false, true),
            (20, false, false),
            (30, true, true),
            (40, true, false),
            (50, false, false),
        ] {
            let terms = ClientTerms::new().with_own_share(has_own_share);
            let slot = accounts.join(terms);
            assert_eq!(accounts.decide(slot, 1, at(now)).is_pass(), passes, "{now}");
            let _ = ask(&mut accounts, 1, 40, now);
            for slot in 1..=slot {
                let _ = ask(&mut accounts, slot, 40, now);
            }
        }
    }

    #[test]
    fn each_cycle_that_ends_in_its_time_lets_newcomers_end_one_early() {
        let share = RULE.with_newcomers(Newcomers::EndCycle { at_most: 1 });
        let mut accounts = accounts(share, 1);
        for (newcomer, start) in (2..).zip([0, 130, 260]) {
            for slot in 1..newcomer {
                let _ = ask(&mut accounts, slot, 40, start);
            }
            assert_eq!(accounts.join(ClientTerms::new()), newcomer);
            assert_eq!(ask(&mut accounts, newcomer, 1, start + 30), 1);
            assert_eq!(accounts.start, at(start + 30));
        }
    }

    #[test]
    fn a_cycle_that_ends_early_keeps_what_was_asked_for_before() {
        let share = RULE.with_newcomers(Newcomers::EndCycle { at_most: 1 });
        let mut accounts = accounts(share, 3);
        for (slot, permits) in [(1, 30), (2, 10), (3, 2)] {
            let _ = ask(&mut accounts, slot, permits, 0);
        }
        let _ = accounts.advance(at(100));
        assert_eq!(accounts.decide(2, 40, at(101)), Decision::Pass);
        assert_eq!(accounts.join(ClientTerms::new()), 4);
        assert_eq!(accounts.decide(4, 1, at(99)), Decision::Pass);
        assert_eq!(accounts.start, at(100), "the clock went back");
        let demands = [1, 2, 3].map(|slot| accounts.client::<()>(slot).demand);
        assert_eq!(demands, [30, 40, 2]);
    }

    #[test]
    fn an_owner_takes_back_what_others_have_not_spent() {
        let mut accounts = accounts(RULE, 4);
        for (slot, permits) in [(2, 40), (3, 20)] {
            let _ = ask(&mut accounts, slot, permits, 0);
        }
        let _ = accounts.advance(at(100));
        assert_eq!(sizes(&accounts), [1, 24, 14, 1]);
        // Of 14 and 4 that are borrowed, 3 spends all of its own, and 2 spends 2.
        assert_eq!(ask(&mut accounts, 3, 15, 101), 14);
        assert_eq!(ask(&mut accounts, 2, 12, 101), 12);
        assert_eq!(accounts.peek(1, 10, at(102)), Decision::Pass);
        assert_eq!(ask(&mut accounts, 1, 12, 102), 10);
        assert_eq!(sizes(&accounts), [10, 15, 14, 1]);
        assert_eq!(
            ask(&mut accounts, 4, 12, 103),
            4,
            "one own and three unspent"
        );
        assert_eq!(ask(&mut accounts, 2, 12, 104), 0);
        assert_eq!(accounts.spent, 40);
    }

    #[test]
    fn the_largest_unspent_borrow_goes_first() {
        let mut accounts = accounts(FairShare::new(40, CYCLE), 4);
        for (slot, permits) in [(2, 15), (3, 17)] {
            let _ = ask(&mut accounts, slot, permits, 0);
        }
        let _ = accounts.advance(at(100));
        let before = sizes(&accounts);
        assert_eq!(before, [4, 15, 17, 4]);
        assert_eq!(ask(&mut accounts, 1, 5, 101), 5);
        assert_eq!(sizes(&accounts), [5, 15, 16, 4]);
        assert_eq!(ask(&mut accounts, 3, 14, 101), 14);
        assert_eq!(ask(&mut accounts, 1, 1, 102), 1);
        assert_eq!(sizes(&accounts), [6, 14, 16, 4]);
        accounts.refund(3, 9, None, at(103));
        assert_eq!(ask(&mut accounts, 1, 4, 103), 4);
        assert_eq!(sizes(&accounts), [10, 13, 13, 4]);
        assert_eq!(ask(&mut accounts, 4, 7, 103), 7);
        assert_eq!(sizes(&accounts), [10, 12, 11, 7]);
    }

    #[test]
    fn a_cost_above_the_share_passes_first_in_a_cycle_and_is_owed() {
        let mut accounts = accounts(RULE, 4);
        assert_eq!(accounts.decide(1, 25, at(0)), Decision::Pass);
        assert_eq!(sizes(&accounts), [25, 5, 5, 5], "15 are owed");
        for slot in [2, 3, 4] {
            assert_eq!(ask(&mut accounts, slot, 10, 1), 5);
        }
        assert_eq!(accounts.decide(1, 25, at(50)), wait(50));
        accounts.refuse(1, 25);
        let _ = accounts.advance(at(100));
        // All ask for at least 10. Of its 10 the debtor has none, and the others share them.
        assert_eq!(sizes(&accounts), [0, 14, 13, 13]);
        assert_eq!(accounts.decide(1, 25, at(100)), wait(100), "it owes still");
        accounts.refuse(1, 25);
        for slot in [2, 3, 4] {
            let _ = ask(&mut accounts, slot, 14, 101);
        }
        let _ = accounts.advance(at(200));
        assert_eq!(sizes(&accounts), [5, 12, 12, 11]);
        let _ = accounts.advance(at(300));
        assert_eq!(sizes(&accounts), [10; 4], "it is paid");
    }

    #[test]
    fn a_debtor_does_not_take_back_what_it_repays() {
        let mut accounts = accounts(RULE, 4);
        assert_eq!(accounts.decide(1, 14, at(0)), Decision::Pass);
        for slot in 1..=4 {
            accounts.set_waiting(slot, 40);
        }
        let _ = accounts.advance(at(100));
        assert_eq!(sizes(&accounts), [6, 12, 11, 11], "it owed 4");
        assert_eq!(ask(&mut accounts, 1, 10, 100), 6);
        assert_eq!(ask(&mut accounts, 2, 12, 100), 12);
        let _ = accounts.advance(at(200));
        assert_eq!(ask(&mut accounts, 1, 10, 200), 10, "it is paid");
    }

    #[test]
    fn a_newcomer_does_not_end_a_debt() {
        let mut accounts = accounts(RULE, 4);
        assert_eq!(accounts.decide(1, 25, at(0)), Decision::Pass);
        for slot in 1..=4 {
            accounts.set_waiting(slot, 40);
        }
        let _ = accounts.advance(at(100));
        assert_eq!(accounts.client::<()>(1).size, 0, "of 15 it pays 10");
        assert_eq!(accounts.join(ClientTerms::new()), 5);
        assert_eq!(sizes(&accounts), [0, 10, 10, 10, 10], "of 15 it pays 8");
        accounts.set_waiting(5, 40);
        let _ = accounts.advance(at(200));
        assert_eq!(accounts.client::<()>(1).size, 1, "of 7 it pays 7");
        let _ = accounts.advance(at(300));
        assert_eq!(sizes(&accounts), [8; 5]);
    }

    #[test]
    fn a_debt_is_paid_in_idle_cycles_too() {
        for (idle, is_paid) in [(100, false), (200, true)] {
            let mut accounts = accounts(RULE, 4);
            assert_eq!(accounts.decide(1, 25, at(0)), Decision::Pass);
            let _ = accounts.advance(at(idle + 100));
            assert_eq!(accounts.peek(1, 25, at(idle + 100)).is_pass(), is_paid);
        }
    }

    #[test]
    fn a_loan_covers_what_is_unspent_only() {
        let mut accounts = accounts(RULE, 4);
        assert_eq!(ask(&mut accounts, 1, 10, 0), 10);
        assert_eq!(accounts.decide(2, 31, at(1)), wait(99));
        assert_eq!(accounts.decide(1, 11, at(1)), wait(99), "not its first");
        assert_eq!(accounts.decide(2, 30, at(1)), Decision::Pass);
        assert_eq!(ask(&mut accounts, 3, 1, 2), 0);
        assert_eq!(accounts.spent, 40);
    }

    #[test]
    fn a_client_with_less_than_a_permit_passes_as_its_share_allows() {
        let mut accounts = accounts(FairShare::new(3, CYCLE), 10);
        let mut passed = [0; 11];
        for cycle in 0..100 {
            for slot in (1..=10).rev() {
                passed[slot as usize] += ask(&mut accounts, slot, 1, cycle * 100);
            }
        }
        assert_eq!(passed.iter().sum::<u32>(), 300);
        assert!(passed[1..].iter().all(|passed| *passed >= 20), "{passed:?}");
    }

    #[test]
    fn carried_fractions_take_turns() {
        let mut accounts = accounts(FairShare::new(3, CYCLE).with_carry(true), 10);
        let mut sum = [0; 10];
        for slot in 1..=10 {
            accounts.set_waiting(slot, 1);
        }
        for cycle in 1..=20 {
            let _ = accounts.advance(at(cycle * 100));
            for (sum, size) in sum.iter_mut().zip(sizes(&accounts)) {
                *sum += size;
            }
        }
        assert_eq!(sum, [6; 10]);
    }

    /// What passes in 400 cycles if each client asks in this order for this cost, once in a cycle.
    fn passed_in_order<const N: usize>(capacity: u32, cost: u32, order: [u32; N]) -> [u32; N] {
        let share = FairShare::new(capacity, CYCLE).with_carry(true);
        let mut accounts = accounts(share, order.len().try_into().unwrap());
        let mut passed = [0; N];
        for cycle in 0..400 {
            let _ = accounts.advance(at(cycle * 100));
            for slot in order {
                if accounts.decide(slot, cost, at(cycle * 100)).is_pass() {
                    passed[slot as usize - 1] += cost;
                } else {
                    accounts.refuse(slot, cost);
                }
            }
        }
        passed
    }

    #[test]
    fn with_carried_fractions_the_order_within_a_cycle_does_not_matter() {
        let forwards = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        let backwards = [10, 9, 8, 7, 6, 5, 4, 3, 2, 1];
        let mixed = [3, 8, 1, 10, 5, 2, 9, 7, 4, 6];
        for order in [forwards, backwards, mixed] {
            for capacity in [1, 3, 7, 9] {
                let passed = passed_in_order(capacity, 1, order);
                assert_eq!(passed.iter().sum::<u32>(), 400 * capacity, "none is lost");
                let behind = passed.map(|passed| passed.abs_diff(40 * capacity));
                assert!(behind.iter().all(|behind| *behind <= 9), "{passed:?}");
            }
        }
        let passed = passed_in_order(3, 1, forwards);
        let expected = [121, 121, 121, 120, 120, 120, 120, 120, 120, 117];
        assert_eq!(passed, expected);
    }

    #[test]
    fn a_client_that_cannot_use_its_size_has_had_no_turn() {
        // Each needs 14 of 13⅓, so that two pass in a cycle.
        let passed = passed_in_order(40, 14, [1, 2, 3]);
        assert_eq!(passed, [3738, 3738, 3710]);
    }

    #[test]
    fn carried_fractions_do_not_keep_a_client_from_what_others_leave() {
        let mut accounts = accounts(FairShare::new(3, CYCLE).with_carry(true), 10);
        for cycle in 0..100 {
            // The demand of the cycle before is always 0 when it asks.
            let asked = u32::from(cycle % 2 == 0);
            assert_eq!(ask(&mut accounts, 10, asked, cycle * 100), asked, "{cycle}");
        }
    }

    #[test]
    fn carried_fractions_add_up_to_the_weights() {
        let mut accounts = Accounts::new(FairShare::new(1, CYCLE).with_carry(true), at(0));
        for (slot, weight) in [(1, 9), (2, 1)] {
            assert_eq!(
                accounts.join(ClientTerms::new().try_with_weight(weight).unwrap()),
                slot
            );
            accounts.set_waiting(slot, 9);
        }
        let mut sum = [0, 0];
        for cycle in 1..=100 {
            let _ = accounts.advance(at(cycle * 100));
            for (sum, size) in sum.iter_mut().zip(sizes(&accounts)) {
                *sum += size;
            }
        }
        assert_eq!(sum, [90, 10]);
    }

    #[test]
    fn carried_fractions_do_not_enlarge_a_size_without_a_fraction() {
        let mut accounts = accounts(FairShare::new(11, CYCLE).with_carry(true), 4);
        for cycle in 1..=20 {
            let last = if cycle == 1 { 9 } else { 1 };
            for (slot, demand) in [(1, 9), (2, 9), (3, 9), (4, last)] {
                accounts.set_waiting(slot, demand);
            }
            let _ = accounts.advance(at(cycle * 100));
            // In the first cycle it loses three quarters of a permit. Then it asks for one and no more.
            let size = accounts.client::<()>(4).size;
            assert_eq!(size, if cycle == 1 { 2 } else { 1 });
        }
    }

    #[test]
    fn with_carried_fractions_none_falls_behind_its_reservation() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..100 {
            let (capacity, clients) = (random.u32(1..30), random.u32(1..=7));
            let share = FairShare::new(capacity, CYCLE).with_carry(true);
            let mut accounts = accounts(share.try_with_reservation(5_000).unwrap(), clients);
            let mut sum = vec![0; clients as usize];
            for cycle in 1..=100_u32 {
                for slot in 1..=clients {
                    accounts.set_waiting(slot, random.u64(1..=u64::from(capacity)));
                }
                let _ = accounts.advance(at(u64::from(cycle) * 100));
                for (sum, size) in sum.iter_mut().zip(sizes(&accounts)) {
                    *sum += size;
                    let reserved = cycle * capacity / clients / 2;
                    assert!(*sum + 2 > reserved, "{sum} of {reserved}");
                }
            }
        }
    }

    #[test]
    fn smoothing_averages_what_is_asked_for() {
        let mut accounts = accounts(RULE.try_with_smoothing(4).unwrap(), 2);
        let mut demands = Vec::new();
        for (cycle, permits) in (0..).zip([8, 16, 16, 0, 0]) {
            let _ = ask(&mut accounts, 1, permits, cycle * 100);
            let _ = ask(&mut accounts, 2, 1, cycle * 100);
            let _ = accounts.advance(at(cycle * 100 + 100));
            demands.push(accounts.client::<()>(1).demand);
        }
        // 8, 10, 11.5, 8.6, 6.5
        assert_eq!(demands, [8, 10, 12, 9, 6]);
    }

    #[test]
    fn an_idle_client_is_forgotten_and_a_waiting_one_is_not() {
        let mut accounts = accounts(RULE.try_forgetting_after(3).unwrap(), 3);
        assert_eq!(ask(&mut accounts, 1, 1, 0), 1);
        accounts.set_waiting(2, 1);
        for cycle in 1..=3 {
            assert_eq!(ask(&mut accounts, 3, 1, cycle * 100), 1);
            assert!(accounts.forgotten().is_empty());
        }
        assert_eq!(ask(&mut accounts, 3, 1, 400), 1);
        assert_eq!(accounts.forgotten(), [1]);
        assert_eq!(accounts.clients.order, [2, 3]);
        assert_eq!(accounts.join(ClientTerms::new()), 1, "its slot is free");
        assert_eq!(accounts.clients.order, [2, 3, 1], "by age");

        accounts.set_waiting(2, 0);
        let _ = accounts.advance(at(u64::MAX / 2));
        assert_eq!(accounts.forgotten(), [2, 3, 1]);
        assert!(accounts.clients.order.is_empty());
    }

    #[test]
    fn clients_beyond_the_bound_share_one_size() {
        let mut accounts = accounts(RULE.try_with_max_clients(3).unwrap(), 3);
        assert_eq!(accounts.join(ClientTerms::new()), OVERFLOW);
        assert_eq!(accounts.join(ClientTerms::new()), OVERFLOW);
        assert_eq!(sizes(&accounts), [10; 4]);
        assert_eq!(ask(&mut accounts, OVERFLOW, 20, 0), 10);
        let _ = accounts.advance(at(2_000));
        assert_eq!(accounts.forgotten(), [1, 2, 3]);
        assert!(accounts.clients.order.is_empty());
    }

    #[test]
    fn a_client_with_its_own_share_finds_room_and_takes_none() {
        let own = ClientTerms::new().with_own_share(true);
        let mut accounts = accounts(RULE.try_with_max_clients(2).unwrap(), 2);
        assert_eq!(accounts.join(own), 3);
        assert_eq!(accounts.join(ClientTerms::new()), OVERFLOW);
        assert_eq!(accounts.join(own), 4);
        assert_eq!(sizes(&accounts), [8; 5]);
        // One that loses it counts, and one that gets it does not.
        accounts.set_terms(4, ClientTerms::new());
        accounts.set_terms(1, own);
        accounts.set_terms(2, own);
        assert!(!accounts.is_full());
        assert_eq!(accounts.join(ClientTerms::new()), 5);
        assert_eq!(accounts.join(ClientTerms::new()), OVERFLOW);
        assert!(accounts.is_full());
        let _ = accounts.advance(at(2_000));
        assert_eq!(accounts.forgotten(), [1, 2, 3, 4, 5]);
        assert_eq!(ask_newcomers(&mut accounts, 3), [5, 4, OVERFLOW]);
    }

    /// The slots of so many new clients.
    fn ask_newcomers(accounts: &mut Accounts, clients: u32) -> Vec<u32> {
        let slots = (0..clients).map(|_| accounts.join(ClientTerms::new()));
        slots.collect()
    }

    #[test]
    fn with_a_bound_of_none_all_share_one_size_but_for_those_with_their_own() {
        let mut accounts = accounts(RULE.try_with_max_clients(0).unwrap(), 0);
        assert_eq!(ask_newcomers(&mut accounts, 2), [OVERFLOW; 2]);
        assert_eq!(accounts.join(ClientTerms::new().with_own_share(true)), 1);
        assert_eq!(sizes(&accounts), [20, 20]);
    }

    #[test]
    fn a_lower_bound_holds_from_the_next_cycle_on_for_those_that_do_not_wait() {
        let mut accounts = accounts(RULE, 4);
        accounts.set_terms(3, ClientTerms::new().with_own_share(true));
        accounts.set_waiting(4, 1);
        accounts.retune(RULE.try_with_max_clients(1).unwrap(), at(10));
        assert_eq!(ask(&mut accounts, 2, 1, 50), 1);
        let _ = accounts.advance(at(100));
        assert_eq!(accounts.forgotten(), [2], "the oldest stays");
        assert_eq!(accounts.clients.order, [1, 3, 4]);
        assert_eq!(accounts.join(ClientTerms::new()), OVERFLOW);
        accounts.set_waiting(4, 0);
        let _ = accounts.advance(at(200));
        assert_eq!(accounts.forgotten(), [4]);
    }

    #[test]
    fn random_clients_in_one_cycle_pass_the_capacity_and_no_more() {
        for (at_most, max_clients) in [(0, 5), (1, 5), (3, 1_000)] {
            let newcomers = Newcomers::EndCycle { at_most };
            let share = RULE
                .with_newcomers(newcomers)
                .try_with_max_clients(max_clients)
                .unwrap();
            for each in [1, 50] {
                let mut accounts = accounts(share, 0);
                let mut passed = 0;
                for now in 0..10_000 {
                    let _ = accounts.advance(at(now / 101));
                    let slot = accounts.join(ClientTerms::new());
                    let permits = if now < 100 { each } else { 1 };
                    passed += ask(&mut accounts, slot, permits, now / 101);
                }
                let all = 40 * (1 + at_most);
                match (each, max_clients) {
                    // Five, and the one that all others are, which has a sixth of 40.
                    (1, 5) => assert_eq!(passed, 11),
                    // Of more than 40 none has a permit, so that none ends a cycle.
                    (1, _) => assert_eq!(passed, 40),
                    _ => assert!((all - 39..=all).contains(&passed), "{passed}"),
                }
            }
        }
    }

    #[test]
    fn a_refund_can_be_spent_again_and_ends_a_debt() {
        let mut accounts = accounts(RULE, 4);
        assert_eq!(accounts.decide(1, 25, at(0)), Decision::Pass);
        accounts.refund(1, 25, None, at(1));
        assert_eq!(accounts.spent, 0);
        assert_eq!(sizes(&accounts), [10, 5, 5, 5]);
        for slot in 1..=4 {
            assert_eq!(ask(&mut accounts, slot, 11, 2), 10, "15 are in no size");
        }
        let _ = accounts.advance(at(100));
        assert_eq!(sizes(&accounts), [10; 4]);
        accounts.refund(1, u32::MAX, None, at(101));
        assert_eq!(accounts.spent, 0);
    }

    #[test]
    fn what_is_charged_above_the_capacity_is_spent_in_later_cycles() {
        let mut accounts = accounts(RULE, 1);
        accounts.charge(1, 100, at(30));
        let cycle = (accounts.start, accounts.spent);
        assert_eq!(cycle, (at(30), 40), "it is a request");
        assert_eq!(accounts.decide(1, 1, at(40)), wait(90));
        let _ = accounts.advance(at(130));
        let client = accounts.client::<()>(1);
        assert_eq!((client.demand, client.used, client.size), (100, 40, 40));
        assert_eq!((client.refused, client.waiting), (0, 0));
        assert_eq!((client.requests_passed, client.requests_refused), (0, 0));
        assert_eq!(accounts.decide(1, 1, at(130)), wait(100));
        let _ = accounts.advance(at(230));
        assert_eq!((accounts.client::<()>(1).demand, accounts.spent), (60, 20));
        assert_eq!(ask(&mut accounts, 1, 30, 230), 20);
        assert_eq!(ask(&mut accounts, 1, 50, 330), 40);
    }

    #[test]
    fn what_is_charged_above_the_default_share_is_owed_to_the_others() {
        let mut accounts = accounts(RULE, 4);
        accounts.charge(1, 20, at(0));
        accounts.charge(1, 5, at(0));
        assert_eq!(sizes(&accounts), [25, 4, 5, 6], "15 are owed");
        accounts.charge(2, 10, at(1));
        assert_eq!(sizes(&accounts), [25, 10, 2, 3], "none is owed");
        for slot in [3, 4] {
            let _ = ask(&mut accounts, slot, 10, 2);
        }
        let _ = accounts.advance(at(100));
        assert_eq!(sizes(&accounts), [0, 14, 13, 13]);
        assert_eq!(ask(&mut accounts, 1, 10, 100), 0);
        accounts.charge(1, 4, at(101));
        for slot in 1..=4 {
            accounts.set_waiting(slot, 40);
        }
        let _ = accounts.advance(at(200));
        assert_eq!(accounts.client::<()>(1).size, 1, "of 9 it pays 9");
    }

    #[test]
    fn a_charge_takes_back_what_others_have_not_spent_and_owes_none_of_it() {
        let mut accounts = accounts(RULE, 4);
        for (slot, permits) in [(2, 40), (3, 20)] {
            let _ = ask(&mut accounts, slot, permits, 0);
        }
        let _ = accounts.advance(at(100));
        assert_eq!(sizes(&accounts), [1, 24, 14, 1]);
        accounts.charge(1, 10, at(101));
        assert_eq!(sizes(&accounts), [10, 15, 14, 1]);
        let _ = accounts.advance(at(200));
        assert_eq!(sizes(&accounts), [10; 4], "10, 0, 0 and 0 are asked for");
    }

    #[test]
    fn what_a_size_has_borrowed_is_not_owed() {
        for charges in [&[35][..], &[33, 2], &[10, 25]] {
            let mut accounts = accounts(RULE, 2);
            let _ = ask(&mut accounts, 1, 30, 0);
            let _ = ask(&mut accounts, 2, 10, 0);
            let _ = accounts.advance(at(100));
            assert_eq!(sizes(&accounts), [30, 10]);
            for cost in charges {
                accounts.charge(1, *cost, at(100));
            }
            accounts.set_waiting(2, 40);
            let _ = accounts.advance(at(200));
            assert_eq!(sizes(&accounts), [15, 25], "it repays 5 of 20");
        }
    }

    #[test]
    fn who_has_overdrawn_waits_whatever_the_others_leave() {
        let mut accounts = accounts(RULE, 2);
        assert_eq!(ask(&mut accounts, 1, 20, 0), 20);
        assert_eq!(ask(&mut accounts, 2, 20, 0), 20);
        accounts.charge(1, 3, at(1));
        accounts.refund(2, 20, None, at(2));
        assert_eq!(accounts.decide(1, 1, at(3)), wait(97));
        assert_eq!(accounts.decide(1, 30, at(3)), wait(97));
        assert_eq!(ask(&mut accounts, 2, 20, 4), 20, "they are his");
        let _ = accounts.advance(at(100));
        assert_eq!(ask(&mut accounts, 1, 20, 100), 17);
        assert_eq!(ask(&mut accounts, 2, 20, 100), 20);
    }

    #[test]
    fn a_refund_gives_back_first_what_is_overdrawn() {
        let mut accounts = accounts(RULE, 1);
        accounts.charge(1, 50, at(0));
        accounts.refund(1, 9, None, at(1));
        assert_eq!(accounts.decide(1, 1, at(1)), wait(99));
        assert_eq!(accounts.spent, 40);
        accounts.refund(1, 3, None, at(2));
        assert_eq!(accounts.spent, 38);
        assert_eq!(ask(&mut accounts, 1, 9, 3), 2);
        let _ = accounts.advance(at(100));
        assert_eq!(accounts.spent, 0);
    }

    #[test]
    fn what_was_spent_in_an_earlier_cycle_makes_no_room_when_it_comes_back() {
        let mut accounts = accounts(RULE, 4);
        assert_eq!(accounts.decide(1, 25, at(30)), Decision::Pass);
        accounts.refund(1, 20, Some(at(30)), at(50));
        assert_eq!(accounts.spent, 5);
        accounts.refund(1, 5, Some(at(29)), at(50));
        assert_eq!(accounts.spent, 5, "spent before the cycle");
        accounts.charge(1, 60, at(60));
        for slot in 1..=4 {
            accounts.set_waiting(slot, 40);
        }
        let _ = accounts.advance(at(130));
        // It owes 30, and has overdrawn 25.
        accounts.refund(1, 24, Some(at(60)), at(130));
        accounts.refund(1, 12, Some(at(60)), at(130));
        assert_eq!(
            (accounts.client::<()>(1).used, accounts.client::<()>(1).size),
            (0, 0)
        );
        let _ = accounts.advance(at(230));
        assert_eq!(accounts.client::<()>(1).size, 1, "of 9 it pays 9");
    }

    #[test]
    fn what_is_overdrawn_is_paid_in_idle_cycles_and_remembered_until_then() {
        for (idle, left) in [(900, 30), (1_000, 10), (1_100, 0)] {
            let mut accounts = accounts(RULE.try_forgetting_after(3).unwrap(), 2);
            // It owes 20 and has overdrawn 190, and pays 20 in a cycle.
            accounts.charge(1, 230, at(0));
            let _ = accounts.advance(at(idle + 100));
            assert_eq!(accounts.spent, left);
            let known = if left > 0 { &[1][..] } else { &[] };
            assert_eq!(accounts.clients.order, known);
        }
    }

    #[test]
    fn a_client_without_a_permit_of_its_own_pays_by_and_by() {
        let mut accounts = accounts(FairShare::new(4, CYCLE), 8);
        assert_eq!(accounts.decide(1, 4, at(0)), Decision::Pass);
        accounts.charge(8, 1, at(1));
        let mut paid_in = None;
        for cycle in 1..10 {
            for slot in 1..=7 {
                accounts.set_waiting(slot, 1);
            }
            let _ = accounts.advance(at(cycle * 100));
            let passes = accounts.peek(8, 1, at(cycle * 100)).is_pass();
            paid_in = paid_in.or(passes.then_some(cycle));
        }
        assert_eq!(paid_in, Some(2), "a half in each cycle");
    }

    #[test]
    fn what_is_charged_spaces_the_requests_after_it() {
        let mut accounts = accounts(RULE.with_pacing(true), 4);
        assert_eq!(ask(&mut accounts, 1, 1, 0), 1);
        accounts.charge(1, 2, at(5));
        assert_eq!(accounts.peek(1, 1, at(5)), wait(25), "10 for each");
        accounts.charge(1, 1, at(32));
        assert_eq!(accounts.peek(1, 1, at(32)), wait(10));
        accounts.charge(2, 40, at(50));
        let _ = accounts.advance(at(100));
        assert_eq!(
            accounts.peek(3, 1, at(100)),
            wait(50),
            "40 are in the window"
        );
        accounts.refund(2, 10, Some(at(50)), at(100));
        assert_eq!(accounts.peek(3, 1, at(100)), Decision::Pass);
    }

    #[test]
    fn a_refund_of_paced_permits_is_of_those_that_were_spent_then() {
        let mut accounts = accounts(RULE.with_pacing(true), 4);
        for (slot, cost, now) in [(1, 1, 0), (1, 19, 50), (2, 20, 60)] {
            accounts.charge(slot, cost, at(now));
        }
        let _ = accounts.advance(at(100));
        accounts.refund(1, 19, Some(at(50)), at(100));
        assert_eq!(accounts.decide(3, 20, at(100)), Decision::Pass);
        assert_eq!(accounts.peek(4, 1, at(100)), wait(60));
        accounts.refund(3, 1, None, at(100));
        assert_eq!(accounts.peek(4, 1, at(100)), Decision::Pass);
    }

    #[test]
    fn new_parameters_keep_what_was_spent() {
        let mut accounts = accounts(RULE, 4);
        assert_eq!(ask(&mut accounts, 1, 10, 0), 10);
        let larger = FairShare::new(80, CYCLE * 2);
        accounts.retune(larger, at(10));
        assert_eq!(accounts.end(), at(200));
        assert_eq!(ask(&mut accounts, 1, 99, 11), 10);
        accounts.retune(FairShare::new(8, CYCLE), at(20));
        for slot in 1..=4 {
            assert_eq!(ask(&mut accounts, slot, 1, 21), 0);
        }
        assert_eq!(
            accounts.decide(1, 9, at(22)),
            Decision::Never { capacity: 8 }
        );
        let _ = accounts.advance(at(100));
        assert_eq!(sizes(&accounts).iter().sum::<u32>(), 8);
    }

    #[test]
    fn a_pause_holds_all_clients() {
        let mut accounts = accounts(RULE, 2);
        accounts.pause_until(at(50));
        assert_eq!(accounts.decide(1, 1, at(20)), wait(30));
        assert_eq!(accounts.decide(2, 1, at(50)), Decision::Pass);
    }

    #[test]
    fn paced_permits_are_spread_over_the_cycle() {
        let mut accounts = accounts(RULE.with_pacing(true), 4);
        let mut passed = Vec::new();
        for now in 0..100 {
            if ask(&mut accounts, 2, 1, now) == 1 {
                passed.push(now);
            }
        }
        assert_eq!(passed, [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]);
        // It asked for 100: 37 in a cycle, one each 2.7.
        assert_eq!(ask(&mut accounts, 2, 1, 100), 1);
        assert_eq!(accounts.peek(2, 1, at(101)), wait(2));
    }

    #[test]
    fn a_clock_that_goes_back_lets_nothing_pass_twice() {
        for share in [RULE, RULE.with_pacing(true)] {
            let mut accounts = accounts(share, 1);
            assert!(ask(&mut accounts, 1, 99, 500) > 0);
            let spent = accounts.spent;
            for now in [499, 100, 0] {
                let _ = ask(&mut accounts, 1, 99, now);
                assert!(accounts.spent <= 40);
                assert!(accounts.spent == spent || spent < 40);
            }
        }
    }

    #[test]
    fn the_largest_numbers_and_times_do_not_overflow() {
        for cycle in [Duration::from_nanos(1), CYCLE, Duration::MAX] {
            for paces in [false, true] {
                let share = FairShare::new(u32::MAX, cycle)
                    .try_with_reservation(10_000)
                    .unwrap()
                    .try_with_smoothing(100)
                    .unwrap()
                    .with_carry(true)
                    .with_pacing(paces);
                let mut accounts = accounts(share, 0);
                for now in [0, 50, u64::MAX - 1, u64::MAX, 0, u64::MAX] {
                    let _ = accounts.advance(at(now));
                    let _ = accounts.forgotten();
                    let slot = accounts.join(ClientTerms::new().try_with_weight(u32::MAX).unwrap());
                    for cost in [1, u32::MAX, u32::MAX - 1, 7] {
                        let _ = accounts.decide(slot, cost, at(now));
                        accounts.refuse(slot, cost);
                    }
                    accounts.charge(slot, u32::MAX, at(now));
                    accounts.charge(slot, 7, at(now));
                    accounts.set_waiting(slot, u64::MAX / 8);
                    accounts.refund(slot, u32::MAX, None, at(now));
                    let _ = accounts.decide(slot, u32::MAX, at(now));
                    accounts.retune(share, at(now));
                    let sum: u64 = sizes(&accounts).into_iter().map(u64::from).sum();
                    assert!(sum <= u32::MAX.into());
                }
            }
        }
    }

    /// What is known of the accounts from outside, on random traces.
    struct Trace {
        accounts: Accounts,
        /// The same accounts, but what passes there is charged here.
        twin: Accounts,
        random: fastrand::Rng,
        now: u64,
        /// When a cost passed, and in which cycle.
        passed: Vec<(u64, u32, u64)>,
        has_refunds: bool,
        /// Whether it goes from cycle to cycle, and does not skip the empty ones.
        skips_no_cycle: bool,
        /// All that passed and was charged, but for what was given back.
        used: u64,
        /// What was spent in all cycles before this one, and the number of this one and what is spent in it.
        spent: (u64, u64, u32),
    }

    impl Trace {
        fn new(seed: u64) -> Self {
            let mut random = fastrand::Rng::with_seed(seed);
            let most = [3, 40, 400][random.usize(..3)];
            let capacity = random.u32(1..=most);
            let share = FairShare::new(capacity, CYCLE)
                .try_with_reservation(random.u32(..=10) * 1_000)
                .unwrap()
                .with_division([Division::Proportional, Division::MaxMin][random.usize(..2)])
                .try_with_max_clients(random.u32(..9))
                .unwrap()
                .try_forgetting_after(random.u32(1..5))
                .unwrap()
                .with_carry(random.bool())
                .try_with_smoothing(random.u32(1..4))
                .unwrap()
                .with_pacing(random.u8(..4) == 0)
                .with_newcomers(match random.u32(..4) {
                    0 => Newcomers::Join,
                    at_most => Newcomers::EndCycle { at_most },
                });
            Self {
                accounts: Accounts::new(share, at(0)),
                twin: Accounts::new(share, at(0)),
                random,
                now: 0,
                passed: Vec::new(),
                has_refunds: seed % 2 == 0,
                skips_no_cycle: seed % 3 == 0,
                used: 0,
                spent: (0, 0, 0),
            }
        }

        /// Does the same to the accounts and their twin.
        fn on_both<T>(&mut self, change: impl Fn(&mut Accounts) -> T) -> T {
            change(&mut self.twin);
            let done = change(&mut self.accounts);
            self.note_spent();
            done
        }

        fn note_spent(&mut self) {
            let cycle = &self.accounts;
            if self.spent.1 != cycle.number {
                self.spent.0 += u64::from(self.spent.2);
            }
            (self.spent.1, self.spent.2) = (cycle.number, cycle.spent);
        }

        fn step(&mut self) {
            let ahead =
                [0, 1, 7, 30, 150, 1_700][self.random.usize(..6).min(self.random.usize(..6))];
            self.now += self.random.u64(..=ahead);
            let mut now = self.now;
            if self.skips_no_cycle {
                now = now.min(self.accounts.end().as_nanos());
            }
            loop {
                if self.on_both(|accounts| accounts.advance(at(now))) {
                    self.check_shares();
                }
                if now == self.now {
                    break;
                }
                now = (now + 100).min(self.now);
            }
            self.on_both(Accounts::forgotten);
            self.check_sizes();
            let slots = &self.accounts.clients.order;
            let slot = if slots.is_empty() || self.random.u8(..8) == 0 {
                let weight = self.random.u32(1..4);
                let terms = ClientTerms::new().try_with_weight(weight).unwrap();
                let terms = terms.with_own_share(self.random.u8(..8) == 0);
                self.on_both(|accounts| accounts.join(terms))
            } else {
                slots[self.random.usize(..slots.len())]
            };
            for _ in 0..self.random.u32(1..8) {
                self.ask(slot);
            }
            if self.random.u8(..6) == 0 {
                let waiting = self.random.u64(..30);
                self.on_both(|accounts| accounts.set_waiting(slot, waiting));
            }
            if self.random.u8(..8) == 0 {
                self.charge(slot);
            }
            self.check_sizes();
            self.check_nothing_is_lost();
            self.check_twin();
            self.refund(slot);
        }

        /// What is charged is spent now, or the client has overdrawn and waits.
        fn charge(&mut self, slot: u32) {
            let capacity = self.accounts.share().capacity();
            let most = [capacity / 10, capacity, 3 * capacity][self.random.usize(..3)];
            let cost = self.random.u32(..=most);
            let before = self.accounts.spent;
            let now = at(self.now);
            self.on_both(|accounts| accounts.charge(slot, cost, now));
            self.used += u64::from(cost);
            let spent = self.accounts.spent - before;
            assert_eq!(spent, cost.min(capacity - before));
            if spent < cost {
                let decision = self.accounts.peek(slot, 1, at(self.now));
                let end = self.accounts.end().as_nanos();
                assert_eq!(decision, wait(end.saturating_sub(self.now).max(1)));
            }
        }

        /// What was refunded did not pass.
        fn refund(&mut self, slot: u32) {
            let used = self.accounts.client::<()>(slot).used;
            let Some((when, cost, _)) = self.passed.last_mut() else {
                return;
            };
            let is_last = *when == self.now && *cost <= used;
            if self.has_refunds && is_last && self.random.u8(..5) == 0 {
                let cost = mem::take(cost);
                let now = at(self.now);
                self.on_both(|accounts| accounts.refund(slot, cost, None, now));
                self.used -= u64::from(cost);
            }
        }

        fn ask(&mut self, slot: u32) {
            let capacity = self.accounts.share().capacity();
            let large = self.random.u8(..10) == 0;
            let cost = self.random.u32(
                1..=if large {
                    capacity + 1
                } else {
                    1 + capacity / 20
                },
            );
            let now = at(self.now);
            let foreseen = self.accounts.peek(slot, cost, now);
            let before = self.accounts.number;
            let decision = self.accounts.decide(slot, cost, now);
            self.note_spent();
            let (number, end) = (self.accounts.number, self.accounts.end());
            if decision.is_pass() && number == before {
                self.twin.charge(slot, cost, now);
            } else {
                assert_eq!(self.twin.decide(slot, cost, now), decision);
            }
            assert_eq!(decision, foreseen);
            match decision {
                Decision::Pass => {
                    self.passed.push((self.now, cost, number));
                    self.used += u64::from(cost);
                }
                Decision::Wait { retry_in } => {
                    assert!(!retry_in.is_zero());
                    if !self.accounts.share().paces() {
                        assert_eq!(now.after(retry_in), end.max(at(self.now + 1)));
                    }
                    self.on_both(|accounts| accounts.refuse(slot, cost));
                }
                Decision::Never { .. } => assert!(cost > capacity),
            }
        }

        /// Whatever was used is spent in one cycle, and in no two; or a client still has it overdrawn. In a cycle that is skipped, and
        /// with a fraction of a permit that is not carried, a client pays without spending.
        fn check_nothing_is_lost(&self) {
            let slots = self.accounts.clients.order.iter();
            let overdrawn =
                slots.map(|slot| self.accounts.clients[*slot].overdrawn.div_ceil(1 << 32));
            let known = self.spent.0 + u64::from(self.spent.2) + overdrawn.sum::<u64>();
            assert!(known <= self.used);
            if self.skips_no_cycle && self.accounts.share().carries() {
                assert_eq!(known, self.used);
            }
        }

        /// What would pass may as well be charged.
        fn check_twin(&self) {
            let slots = &self.accounts.clients.order;
            assert_eq!(slots, &self.twin.clients.order);
            assert_eq!(
                self.accounts.cycle(at(self.now)),
                self.twin.cycle(at(self.now))
            );
            for slot in slots {
                let charged = ClientShare {
                    requests_passed: self.accounts.client::<()>(*slot).requests_passed,
                    ..self.twin.client::<()>(*slot)
                };
                assert_eq!(self.accounts.client::<()>(*slot), charged);
            }
        }

        /// In the next cycle a client has what it asked for, up to its default share, but for what it owes.
        fn check_shares(&self) {
            for slot in &self.accounts.clients.order {
                let client = &self.accounts.clients[*slot];
                let due = client.demand.min(client.default);
                assert!(client.is_new || client.size + client.paying >= due);
            }
        }

        fn check_sizes(&self) {
            let share = self.accounts.share();
            let capacity = u64::from(share.capacity());
            let slots = &self.accounts.clients.order;
            let clients = || slots.iter().map(|slot| self.accounts.client::<()>(*slot));
            let sized: u64 = clients().map(|client| u64::from(client.size)).sum();
            // What is refunded of a loan is in no size until the next division.
            assert!(sized <= capacity);
            assert!(self.has_refunds || slots.is_empty() || sized == capacity);
            assert!(clients().all(|client| client.used <= client.size));
            let used: u32 = clients().map(|client| client.used).sum();
            assert_eq!(used, self.accounts.spent);
            let to_take_back =
                clients().map(|client| client.borrowed.min(client.size - client.used));
            let sum: u64 = to_take_back.map(u64::from).sum();
            assert_eq!(
                sum,
                self.accounts
                    .clients
                    .to_take_back(sized.try_into().unwrap())
            );
        }

        fn check_bounds(&self) {
            let share = self.accounts.share();
            let capacity = u64::from(share.capacity());
            for (first, (start, _, number)) in self.passed.iter().enumerate() {
                let later = self.passed[first..].iter();
                let in_cycle = later.clone().take_while(|(_, _, other)| other == number);
                assert!(in_cycle.map(|(_, cost, _)| u64::from(*cost)).sum::<u64>() <= capacity);
                let in_window = later.take_while(|(when, _, _)| *when < start + 100);
                let bound = match share.newcomers() {
                    _ if share.paces() => capacity,
                    Newcomers::Join => 2 * capacity,
                    Newcomers::EndCycle { at_most } => (2 + 2 * u64::from(at_most)) * capacity,
                };
                assert!(in_window.map(|(_, cost, _)| u64::from(*cost)).sum::<u64>() <= bound);
            }
        }
    }

    #[test]
    fn random_traces_keep_every_bound() {
        for seed in 0..300 {
            let mut trace = Trace::new(seed);
            for _ in 0..200 {
                trace.step();
            }
            trace.check_bounds();
        }
    }
}
