use core::mem;
use core::time::Duration;

use crate::time::Tick;

use super::wide::{div_ceil, div_floor};

/// Divides a pool among the clients that borrow from it, by weight and however often they ask, without a queue.
///
/// A virtual clock rises by what flows into the pool, divided by the weight of the borrowers that compete. The *credit* of a borrower is
/// its weight times that rise, less what it borrowed. A borrower competes for one to two generations of a cycle after it asked. The
/// credit that it leaves unused goes to the others. Borrowers are two sums, one a generation, and never a list.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Borrowers {
    /// What each unit of weight has been credited with so far.
    clock: i128,
    /// What is not yet one unit for each unit of weight.
    carry: i128,
    generation: u64,
    /// When the last generation began, and this one.
    pub(super) began_at: [Tick; 2],
    /// When the borrowers of the last generation stop competing.
    pub(super) ends_at: Tick,
    /// The clock when the last generation began, and this one.
    began: [i128; 2],
    /// The borrowers that last asked in this generation and in the last one, by the parity of its number.
    recent: [Competing; 2],
}

/// The sums of borrowers.
#[derive(Clone, Copy, Debug, Default)]
struct Competing {
    weight: i128,
    credit: i128,
}

/// What is known of one borrower.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Borrower {
    /// Its credit when the clock was `as_of`.
    credit: i128,
    as_of: i128,
    /// The generation in which it last asked, or 0.
    generation: u64,
}

impl Borrowers {
    pub(super) fn new(now: Tick, cycle: Duration) -> Self {
        Self {
            generation: 2,
            began_at: [now; 2],
            ends_at: now.after(cycle),
            ..Self::default()
        }
    }

    /// Another cycle: a shorter one ends earlier.
    pub(super) fn retune(&mut self, now: Tick, cycle: Duration) {
        self.ends_at = self.ends_at.min(now.after(cycle));
    }

    /// Goes on to the generation of `now`.
    pub(super) fn advance(&mut self, now: Tick, cycle: Duration) {
        if now < self.ends_at {
            return;
        }
        // No borrower is older than two generations.
        let is_late = now >= self.ends_at.after(cycle);
        for _ in 0..=u8::from(is_late) {
            self.generation += 1;
            let left = mem::take(self.recent_of(self.generation));
            self.release(left.credit);
            self.began = [self.began[1], self.clock];
        }
        let begins_at = now.last_on_grid(self.ends_at, cycle);
        // In a generation that is skipped nothing has happened.
        let last = if is_late { begins_at } else { self.began_at[1] };
        self.began_at = [last, begins_at];
        self.ends_at = begins_at.after(cycle);
    }

    /// Credits units to all that compete.
    pub(super) fn release(&mut self, units: i128) {
        let weight = self.weight();
        if weight == 0 || units <= 0 {
            return;
        }
        self.carry += units;
        let steps = div_floor(self.carry, weight);
        self.carry -= steps * weight;
        self.clock += steps;
        for competing in &mut self.recent {
            competing.credit += competing.weight * steps;
        }
    }

    /// The weight of the others that compete.
    pub(super) fn others(&self, borrower: &Borrower, weight: i128) -> i128 {
        let own = if self.competes(borrower) { weight } else { 0 };
        self.weight() - own
    }

    /// A new borrower has saved nothing, and an old one still owes what it owed.
    pub(super) fn credit(&self, borrower: &Borrower, weight: i128) -> i128 {
        let risen = weight.saturating_mul(self.clock - borrower.as_of);
        let credit = borrower.credit.saturating_add(risen);
        if self.competes(borrower) {
            credit
        } else {
            credit.min(0)
        }
    }

    /// What has to flow into the pool until the credit of a borrower among others is not below zero, if it competes.
    pub(super) fn missing(&self, borrower: &Borrower, weight: i128) -> i128 {
        let (credit, others) = (self.credit(borrower, weight), self.others(borrower, weight));
        if credit >= 0 || others == 0 {
            return 0;
        }
        let steps = div_ceil(-credit, weight);
        (steps * (others + weight) - self.carry).max(1)
    }

    /// What a borrower may take at most by its credit: of what it has saved, what came in the last two generations, or a `few`. One
    /// that is alone may have the whole `pool`.
    pub(super) fn usable(&self, borrower: &Borrower, weight: i128, pool: i128, few: i128) -> i128 {
        if self.others(borrower, weight) == 0 {
            return pool;
        }
        let recent = weight * (self.clock - self.began[0]);
        self.credit(borrower, weight).min(recent.max(few))
    }

    /// A borrower asks, and competes from now on. What it has saved beyond its `usable` credit goes to all, and is returned.
    pub(super) fn ask(&mut self, borrower: &mut Borrower, weight: i128, usable: i128) -> i128 {
        let is_alone = self.others(borrower, weight) == 0;
        self.dismiss(borrower, weight);
        let excess = borrower.credit - usable;
        (borrower.credit, borrower.generation) = (usable, self.generation);
        let competing = self.recent_of(self.generation);
        competing.weight += weight;
        competing.credit += usable;
        if is_alone {
            return 0;
        }
        self.release(excess);
        excess
    }

    /// Counts what a borrower takes that has just asked.
    pub(super) fn lend(&mut self, borrower: &mut Borrower, units: i128) {
        borrower.credit -= units;
        self.recent_of(borrower.generation).credit -= units;
    }

    /// A borrower stops competing, and keeps its credit.
    pub(super) fn dismiss(&mut self, borrower: &mut Borrower, weight: i128) {
        let credit = self.credit(borrower, weight);
        if self.competes(borrower) {
            let competing = self.recent_of(borrower.generation);
            competing.weight -= weight;
            competing.credit -= credit;
        }
        *borrower = Borrower {
            credit,
            as_of: self.clock,
            generation: 0,
        };
    }

    const fn competes(&self, borrower: &Borrower) -> bool {
        borrower.generation + 1 >= self.generation
    }

    fn weight(&self) -> i128 {
        self.recent[0].weight + self.recent[1].weight
    }

    const fn recent_of(&mut self, generation: u64) -> &mut Competing {
        &mut self.recent[if generation % 2 == 0 { 0 } else { 1 }]
    }
}
