use core::mem;
use core::ops::{Index, IndexMut};
use std::collections::BinaryHeap;

use super::client::{Client, TURN};
use super::divide::{Shares, Want};
use super::fair_share::MOST_CLIENTS;
use super::{ClientTerms, FairShare};

/// The slot that clients beyond the bound share.
pub(crate) const OVERFLOW: u32 = 0;

/// All clients by slot, and how the capacity is divided among them.
#[derive(Clone, Debug, Default)]
pub(super) struct Clients {
    slots: Vec<Client>,
    /// The slots of known clients, the oldest first.
    pub(super) order: Vec<u32>,
    free: Vec<u32>,
    forgotten: Vec<u32>,
    weights: u64,
    /// How many clients count against the bound.
    pub(super) bounded: usize,
    /// The sum of all sizes. It is the capacity, or more while newcomers came for whom it was not divided anew.
    sized: u64,
    /// What can be taken back at once: the sum of all that is borrowed and unspent.
    reclaimable: u64,
    /// Those from whom it can be taken, with upper bounds. Built when first needed after a division.
    lenders: Option<BinaryHeap<(u32, u32)>>,
}

impl Clients {
    pub(super) fn new() -> Self {
        Self {
            slots: vec![Client::default()],
            ..Self::default()
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Client> {
        self.order.iter().map(|slot| &self[*slot])
    }

    pub(super) fn for_each(&mut self, mut change: impl FnMut(&mut Client)) {
        for slot in &self.order {
            change(&mut self.slots[*slot as usize]);
        }
    }

    /// The slot of a new client, whose size is still 0, or [`OVERFLOW`] if there are too many.
    pub(super) fn add(&mut self, terms: ClientTerms, max_clients: u32) -> u32 {
        let is_in_bound = terms.has_own_share() || self.bounded < max_clients as usize;
        let (slot, client) = if is_in_bound && self.order.len() < MOST_CLIENTS as usize {
            let unused = u32::try_from(self.slots.len()).unwrap_or(OVERFLOW);
            (self.free.pop().unwrap_or(unused), Client::new(terms))
        } else {
            (OVERFLOW, Client::new(ClientTerms::new()))
        };
        if slot == OVERFLOW && self[OVERFLOW].is_known {
            return OVERFLOW;
        }
        self.order.push(slot);
        self.weights += u64::from(client.terms.weight());
        self.bounded += usize::from(slot != OVERFLOW && !terms.has_own_share());
        if slot as usize == self.slots.len() {
            self.slots.push(client);
        } else {
            self[slot] = client;
        }
        slot
    }

    /// Takes effect with the next division.
    pub(super) fn set_terms(&mut self, slot: u32, terms: ClientTerms) {
        let old = mem::replace(&mut self[slot].terms, terms);
        self.weights -= u64::from(old.weight());
        self.weights += u64::from(terms.weight());
        self.bounded += usize::from(old.has_own_share());
        self.bounded -= usize::from(terms.has_own_share());
    }

    /// The slots of the clients that were forgotten since the last call. They are used again from now on.
    pub(super) fn forgotten(&mut self) -> Vec<u32> {
        self.free.extend(&self.forgotten);
        mem::take(&mut self.forgotten)
    }

    /// Forgets idle clients, and the youngest ones beyond the bound, unless they wait: it may be lower than before.
    pub(super) fn forget(&mut self, share: &FairShare) {
        let (slots, forgotten) = (&mut self.slots, &mut self.forgotten);
        let (weights, mut bounded) = (&mut self.weights, 0);
        self.order.retain(|slot| {
            let client = &mut slots[*slot as usize];
            let is_bounded = *slot != OVERFLOW && !client.terms.has_own_share();
            let is_beyond = is_bounded && bounded >= share.max_clients() as usize;
            let is_idle = client.idle_cycles >= u64::from(share.forgets_after());
            client.is_known =
                !is_idle && (!is_beyond || client.waiting > 0 || client.overdrawn > 0);
            if client.is_known {
                bounded += usize::from(is_bounded);
            } else {
                *weights -= u64::from(client.terms.weight());
            }
            if !client.is_known && *slot != OVERFLOW {
                forgotten.push(*slot);
            }
            client.is_known
        });
        self.bounded = bounded;
    }

    /// What a client below its default share can get at once.
    pub(super) fn to_take_back(&self, capacity: u32) -> u64 {
        self.reclaimable.saturating_add(self.spare(capacity))
    }

    /// The share of a client by weight, rounded down.
    pub(super) fn default_of(&self, slot: u32, capacity: u32) -> u32 {
        default_of(&self[slot], capacity, self.weights).0
    }

    /// Adds spare permits to the size of a client, and then unspent permits of the largest borrowers.
    pub(super) fn take_back(&mut self, slot: u32, missing: u32, capacity: u32) {
        let spare = u32::try_from(self.spare(capacity)).unwrap_or(u32::MAX);
        let spare = spare.min(missing);
        self[slot].size += missing;
        self.sized += u64::from(spare);
        let mut missing = missing - spare;
        self.reclaimable -= u64::from(missing);
        let (order, slots) = (&self.order, &mut self.slots);
        let all = || {
            let each = order
                .iter()
                .map(|slot| (slots[*slot as usize].unspent_loan(), *slot));
            each.filter(|(unspent, _)| *unspent > 0).collect()
        };
        let lenders = self.lenders.get_or_insert_with(all);
        while missing > 0 {
            let Some((bound, lender)) = lenders.pop() else {
                break;
            };
            let client = &mut slots[lender as usize];
            let unspent = client.unspent_loan();
            // What it spent since then may leave it less than another one has.
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

    /// Enlarges the size of a client to what it `needs`, and says whether that takes something from others. It owes what is above
    /// its `own` part.
    pub(super) fn lend(&mut self, slot: u32, needs: u32, own: u32) -> bool {
        let more = self.change(slot, |client| client.borrow(needs, own));
        self.sized += u64::from(more);
        more > 0
    }

    /// Takes permits back, which may be of this cycle, and says how many are. Of a forgotten client none is.
    pub(super) fn refund(&mut self, slot: u32, permits: u32, may_be_of_this_cycle: bool) -> u32 {
        if !self[slot].is_known {
            return 0;
        }
        let refund = |client: &mut Client| client.refund(permits, may_be_of_this_cycle);
        let (unused, repaid) = self.change(slot, refund);
        self.sized -= u64::from(repaid);
        unused
    }

    /// Gives a newcomer its default share although others have it too. What was spent bounds all of them.
    pub(super) fn size_without_dividing(&mut self, slot: u32, share: &FairShare) {
        let weights = self.weights;
        let client = &mut self[slot];
        set_default(client, share, weights);
        client.size = client.default;
        let size = u64::from(client.size);
        self.sized += size;
    }

    /// Gives each client the size that it has if nothing was spent in this cycle. It has to [`fit`](Self::fit) then.
    pub(super) fn divide(&mut self, share: &FairShare, begins: bool) {
        let (capacity, carries, weights) = (share.capacity(), share.carries(), self.weights);
        let wants: Vec<Want> = self.all().map(Client::want).collect();
        let shares = Shares::exact(capacity, &wants, share.reservation(), share.division());
        let rank = |at: usize| self[self.order[at]].carried + shares.fraction(at);
        let sizes = shares.whole(capacity, |at| if carries { rank(at) } else { 0 });
        let (mut at, mut repaid) = (0, 0);
        self.for_each(|client| {
            set_default(client, share, weights);
            client.size = sizes[at];
            if begins {
                client.round(shares.fraction(at), shares.is_above(at, sizes[at]), carries);
            }
            if client.is_in_debt() {
                repaid += client.repay();
            }
            at += 1;
        });
        if repaid > 0 {
            self.divide_repaid(repaid, share);
        }
    }

    /// Spends in a new cycle what clients have overdrawn, as far as their sizes allow, and says how much.
    pub(super) fn spend_overdrawn(&mut self) -> u32 {
        let mut spent = 0;
        self.for_each(|client| spent += client.spend_overdrawn());
        spent
    }

    /// Divides what debtors repay among those that owe nothing. If all owe something, they owe it to each other, and it is forgiven.
    fn divide_repaid(&mut self, repaid: u32, share: &FairShare) {
        let others = self.all().filter(|client| !client.is_in_debt());
        let wants: Vec<Want> = others.map(Client::want_of_repaid).collect();
        let sizes = Shares::exact(repaid, &wants, 0, share.division()).whole(repaid, |_| 0);
        let mut sizes = sizes.into_iter();
        self.for_each(|client| {
            if wants.is_empty() {
                client.forgive();
            } else if !client.is_in_debt() {
                client.size += sizes.next().unwrap_or(0);
            }
        });
    }

    /// Reduces what clients have not spent, in proportion, to what is `unspent` of the capacity. If that is for the turn of a client
    /// that has carried its fractions, the others have theirs later.
    pub(super) fn fit(&mut self, unspent: u32, takes_turn: bool) {
        let wanted: u64 = self.all().map(|client| u64::from(client.unspent())).sum();
        let unspent = u64::from(unspent).min(wanted);
        let (mut before, mut given) = (0, 0);
        let (mut sized, mut reclaimable) = (0, 0);
        self.for_each(|client| {
            before += u128::from(client.unspent());
            // Sums are rounded, so that they add up.
            let upto = before * u128::from(unspent) / u128::from(wanted.max(1));
            let left = u32::try_from(upto - given).unwrap_or(u32::MAX);
            given = upto;
            if takes_turn {
                client.carry(i64::from(client.unspent().saturating_sub(left)) * TURN);
            }
            client.size = client.used.saturating_add(left);
            sized += u64::from(client.size);
            reclaimable += u64::from(client.unspent_loan());
        });
        (self.sized, self.reclaimable, self.lenders) = (sized, reclaimable, None);
    }

    /// Updates the sum that can be taken back when a client changes.
    pub(super) fn change<T>(&mut self, slot: u32, change: impl FnOnce(&mut Client) -> T) -> T {
        let client = &mut self[slot];
        let before = client.unspent_loan();
        let result = change(client);
        let after = client.unspent_loan();
        self.reclaimable = self.reclaimable - u64::from(before) + u64::from(after);
        if after > before {
            // The others are upper bounds.
            self.lenders
                .iter_mut()
                .for_each(|lenders| lenders.push((after, slot)));
        }
        result
    }

    /// What is in no size.
    fn spare(&self, capacity: u32) -> u64 {
        u64::from(capacity).saturating_sub(self.sized)
    }
}

impl Index<u32> for Clients {
    type Output = Client;

    fn index(&self, slot: u32) -> &Client {
        &self.slots[slot as usize]
    }
}

impl IndexMut<u32> for Clients {
    fn index_mut(&mut self, slot: u32) -> &mut Client {
        &mut self.slots[slot as usize]
    }
}

fn set_default(client: &mut Client, share: &FairShare, weights: u64) {
    let (default, has_fraction) = default_of(client, share.capacity(), weights);
    client.default = default;
    client.turn = u32::from(share.carries() && has_fraction);
}

/// The share of a client by weight, rounded down, and whether that left a fraction.
fn default_of(client: &Client, capacity: u32, weights: u64) -> (u32, bool) {
    let units = u64::from(capacity) * u64::from(client.terms.weight());
    let weights = weights.max(1);
    let default = u32::try_from(units / weights).unwrap_or(capacity);
    (default, units % weights > 0)
}
