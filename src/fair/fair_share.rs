use core::ops::RangeInclusive;
use core::time::Duration;

use crate::time::OutOfRange;

use super::divide::{WHOLE, divide_whole};
use super::{Claim, Division};

/// The parameters of a capacity that clients share, cycle by cycle.
///
/// The module docs have [the rule](super) and the bounds. A limiter applies it; [`divide`](Self::divide) shows the sizes of one cycle.
///
/// ```
/// use paceline::fair::{Claim, FairShare};
/// use std::time::Duration;
///
/// let share = FairShare::new(40, Duration::from_secs(10)).try_with_reservation(1_000).unwrap();
/// let asked = [2, 15, 10, 10].map(Claim::new);
/// assert_eq!(share.divide(&asked), [5, 15, 10, 10]);
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FairShare {
    capacity: u32,
    cycle: Duration,
    reservation: u32,
    division: Division,
    newcomers: Newcomers,
    max_clients: u32,
    forgetting_after: u32,
    carries: bool,
    smoothing: u32,
    paces: bool,
}

/// What happens when a new client comes in the middle of a cycle.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Newcomers {
    /// It gets its default share at once, as far as that is unspent. What was spent stays spent.
    #[default]
    Join,
    /// The same. If that does not cover its request, and its default share would, then the cycle ends early and the next one begins.
    EndCycle {
        /// How often that happens until a cycle ends in its own time. It is as often, and apart, for clients
        /// [with their own share](super::ClientTerms::with_own_share): others cannot use up theirs.
        at_most: u32,
    },
}

impl FairShare {
    /// `capacity` permits in each `cycle`.
    ///
    /// Defaults: no reservation, [`Division::Proportional`], [`Newcomers::Join`], 1,000 clients, of which one is forgotten after 10
    /// cycles without a request, no carried fractions, no smoothing, no pacing.
    ///
    /// # Panics
    ///
    /// If `capacity` or `cycle` is zero. [`try_new`](Self::try_new) returns an error instead.
    #[must_use]
    #[track_caller]
    pub const fn new(capacity: u32, cycle: Duration) -> Self {
        OutOfRange::or_panic(Self::try_new(capacity, cycle))
    }

    /// The same as [`new`](Self::new), for values from a configuration.
    ///
    /// ```
    /// use paceline::fair::FairShare;
    /// use std::time::Duration;
    ///
    /// let error = FairShare::try_new(0, Duration::from_secs(10)).unwrap_err();
    /// assert_eq!(error.to_string(), "a fair share needs a capacity of at least 1, got 0");
    /// ```
    ///
    /// # Errors
    ///
    /// If `capacity` or `cycle` is zero.
    pub const fn try_new(capacity: u32, cycle: Duration) -> Result<Self, OutOfRange> {
        if capacity == 0 {
            return Err(OutOfRange::new(
                "capacity",
                "a fair share needs a capacity of at least 1, got 0",
            ));
        }
        if cycle.is_zero() {
            return Err(OutOfRange::new(
                "cycle",
                "a fair share needs a cycle of at least 1 ns, got 0",
            ));
        }
        Ok(Self {
            capacity,
            cycle,
            reservation: 0,
            division: Division::Proportional,
            newcomers: Newcomers::Join,
            max_clients: 1_000,
            forgetting_after: 10,
            carries: false,
            smoothing: 1,
            paces: false,
        })
    }

    /// Sets the part of its default share that a client keeps although it does not ask for it, in ten-thousandths: 1,000 is 10 %.
    /// Default: 0.
    ///
    /// With a reservation a client that was idle finds something at once. A [`Share`](crate::limiter::Share) has this number as
    /// [`ten_thousandths`](crate::limiter::Share::ten_thousandths).
    ///
    /// # Errors
    ///
    /// If it is more than 10,000.
    pub const fn try_with_reservation(mut self, ten_thousandths: u32) -> Result<Self, OutOfRange> {
        self.reservation = ten_thousandths;
        let message = "a reservation is at most 10000 ten-thousandths";
        within(self, ten_thousandths, 0..=WHOLE, "ten_thousandths", message)
    }

    /// Sets how what some clients leave is divided among the others. Default: [`Division::Proportional`].
    #[must_use]
    pub const fn with_division(mut self, division: Division) -> Self {
        self.division = division;
        self
    }

    /// Sets what happens when a new client comes in the middle of a cycle. Default: [`Newcomers::Join`].
    #[must_use]
    pub const fn with_newcomers(mut self, newcomers: Newcomers) -> Self {
        self.newcomers = newcomers;
        self
    }

    /// Sets how many clients have a share of their own. Default: 1,000. All others together are one more client, so that invented
    /// names gain no capacity. Clients [with their own share](super::ClientTerms::with_own_share) do not count, and with 0 no others
    /// have one.
    ///
    /// # Errors
    ///
    /// If it is more than 10,000,000.
    pub const fn try_with_max_clients(mut self, max_clients: u32) -> Result<Self, OutOfRange> {
        self.max_clients = max_clients;
        let message = "a fair share has at most 10000000 clients";
        within(self, max_clients, 0..=MOST_CLIENTS, "max_clients", message)
    }

    /// Sets after how many cycles without a request a client is forgotten. Default: 10. Until then its default share is kept for it,
    /// and lent to others.
    ///
    /// # Errors
    ///
    /// If it is zero.
    pub const fn try_forgetting_after(mut self, idle_cycles: u32) -> Result<Self, OutOfRange> {
        self.forgetting_after = idle_cycles;
        let message = "a client is forgotten after at least 1 idle cycle";
        within(self, idle_cycles, 1..=u32::MAX, "idle_cycles", message)
    }

    /// Sets whether the fraction that a client loses when its size becomes a whole number counts for it in the next cycle. Default:
    /// `false`, the published rule.
    ///
    /// Without it, and with a capacity of 3 among 10 equal clients, always the same 3 have a size of 1. With it they take turns. A
    /// client whose turn it is not may still take a permit that no other has spent, unless it is ahead of its share; it then gives up
    /// a later turn, which goes to the client whose permit it took. So each gets its share, whatever the order of the requests within
    /// a cycle is.
    #[must_use]
    pub const fn with_carry(mut self, carries: bool) -> Self {
        self.carries = carries;
        self
    }

    /// Averages the demand of a client: a new cycle counts for one part in `cycles`, what was before for the rest. Default: 1, so that
    /// only the last cycle counts.
    ///
    /// # Errors
    ///
    /// If it is not from 1 to 100.
    pub const fn try_with_smoothing(mut self, cycles: u32) -> Result<Self, OutOfRange> {
        self.smoothing = cycles;
        let message = "demand is averaged over 1 to 100 cycles";
        within(self, cycles, 1..=100, "cycles", message)
    }

    /// Sets whether the permits of a client are spread over the cycle. Default: `false`.
    ///
    /// With it, no half-open window of the length of a cycle holds more than the capacity, wherever it begins. It costs 16 bytes for
    /// each instant within the last cycle at which a request passed. It is for requests that wait: without waiting, a request that comes
    /// sooner than cycle / size after the last one of its client is refused, although the client is inside its share.
    #[must_use]
    pub const fn with_pacing(mut self, paces: bool) -> Self {
        self.paces = paces;
        self
    }

    /// The permits of a cycle.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The length of a cycle.
    #[must_use]
    pub const fn cycle(&self) -> Duration {
        self.cycle
    }

    /// The part of its default share that a client keeps in any case, in ten-thousandths.
    #[must_use]
    pub const fn reservation(&self) -> u32 {
        self.reservation
    }

    /// How what some clients leave is divided among the others.
    #[must_use]
    pub const fn division(&self) -> Division {
        self.division
    }

    /// What happens when a new client comes in the middle of a cycle.
    #[must_use]
    pub const fn newcomers(&self) -> Newcomers {
        self.newcomers
    }

    /// How many clients have a share of their own, beside those whose terms say so.
    #[must_use]
    pub const fn max_clients(&self) -> u32 {
        self.max_clients
    }

    /// After how many cycles without a request a client is forgotten.
    #[must_use]
    pub const fn forgets_after(&self) -> u32 {
        self.forgetting_after
    }

    /// Whether lost fractions count in the next cycle.
    #[must_use]
    pub const fn carries(&self) -> bool {
        self.carries
    }

    /// Over how many cycles demand is averaged; 1 for none.
    #[must_use]
    pub const fn smoothing(&self) -> u32 {
        self.smoothing
    }

    /// Whether the permits of a client are spread over the cycle.
    #[must_use]
    pub const fn paces(&self) -> bool {
        self.paces
    }

    /// The sizes of one cycle, if these clients, the oldest first, asked for this in the cycle before.
    ///
    /// It is [`divide`](super::divide) with the reservation.
    #[must_use]
    pub fn divide(&self, claims: &[Claim]) -> Vec<u32> {
        divide_whole(self.capacity, claims, self.reservation, self.division)
    }
}

/// `share`, if the value of this parameter is in its range.
pub(super) const fn within<S: Copy>(
    share: S,
    value: u32,
    range: RangeInclusive<u32>,
    parameter: &'static str,
    message: &'static str,
) -> Result<S, OutOfRange> {
    if *range.start() <= value && value <= *range.end() {
        return Ok(share);
    }
    Err(OutOfRange::new(parameter, message).got_number(value as i64))
}

/// Up to here the sums of a division are exact in 128 bits.
pub(super) const MOST_CLIENTS: u32 = 10_000_000;
