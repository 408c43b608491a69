use core::time::Duration;

use crate::time::OutOfRange;

use super::ClientTerms;
use super::divide::WHOLE;
use super::fair_share::{MOST_CLIENTS, within};

/// The parameters of a rate of which each client has a guaranteed share, while others borrow what it does not use.
///
/// Each client has a token bucket with its share of the rate by weight. What overflows a full bucket flows into one pool. A request
/// takes from the bucket of its client, and what is missing from the pool. So a client that stays within its share never waits because
/// of its neighbours, and no capacity is lost while any client wants it.
///
/// The module docs have [the rule](super#a-guaranteed-share) and its laws.
///
/// ```
/// use paceline::fair::GuaranteedShare;
/// use std::time::Duration;
///
/// // 100 permits a second. A client can save up half a second of its share.
/// let share = GuaranteedShare::new(100, Duration::from_secs(1)).try_with_depth(5_000).unwrap();
/// assert_eq!((share.capacity(), share.depth(), share.pool()), (100, 5_000, 25));
/// ```
///
/// # Terms
///
/// Of the [`ClientTerms`] the weight counts, and whether a client has its own share. Bounds on lending and borrowing are ignored: a bucket
/// lends only what overflows it, and a client borrows only what is in the pool.
///
/// # Window bound
///
/// At most C · T + S + B permits pass in a half-open window of T, wherever it begins, all clients together. C is the rate, S what all
/// buckets hold and B what the pool holds: with the defaults C · T and 1.25 cycles of a capacity of 16 or more. If a client would hold
/// less than [`least`](Self::try_with_least), S is larger: `least` for each client of the smallest weight, and in proportion for the
/// others. Permits that are charged, or given back after others passed, come on top.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[doc(alias("hierarchical token bucket", "HTB", "borrowing"))]
pub struct GuaranteedShare {
    capacity: u32,
    cycle: Duration,
    depth: u32,
    least: u32,
    reserve: u32,
    max_clients: u32,
    forgetting_after: u32,
}

impl GuaranteedShare {
    /// A rate of `capacity` permits in each `cycle`.
    ///
    /// Defaults: all buckets together hold one cycle of the rate, each at least 1 permit; no reserve; 1,000 clients, of which one is
    /// forgotten after 10 cycles without a request.
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
    /// use paceline::fair::GuaranteedShare;
    /// use std::time::Duration;
    ///
    /// let error = GuaranteedShare::try_new(0, Duration::from_secs(1)).unwrap_err();
    /// assert_eq!(error.to_string(), "a guaranteed share needs a capacity of at least 1, got 0");
    /// ```
    ///
    /// # Errors
    ///
    /// If `capacity` or `cycle` is zero.
    pub const fn try_new(capacity: u32, cycle: Duration) -> Result<Self, OutOfRange> {
        let (parameter, message) = if capacity == 0 {
            let message = "a guaranteed share needs a capacity of at least 1, got 0";
            ("capacity", message)
        } else if cycle.is_zero() {
            let message = "a guaranteed share needs a cycle of at least 1 ns, got 0";
            ("cycle", message)
        } else {
            return Ok(Self {
                capacity,
                cycle,
                depth: WHOLE,
                least: 1,
                reserve: 0,
                max_clients: 1_000,
                forgetting_after: 10,
            });
        };
        Err(OutOfRange::new(parameter, message))
    }

    /// Sets how much the bucket of a client holds: its share of the rate for this time, in ten-thousandths of a cycle. Default: 10,000,
    /// one cycle.
    ///
    /// A deeper bucket bears larger bursts of its client, and lets more pass in a window. While another client floods, one that sends 6
    /// requests a cycle at random, and so uses 80 % of its share, is refused 4.2 % of them with half a cycle, 0.9 % with one, and 0.04 %
    /// with two. With 60 requests a cycle none of 600,000 was refused.
    ///
    /// # Errors
    ///
    /// If it is not from 1 to 1,000,000, 100 cycles.
    pub const fn try_with_depth(mut self, ten_thousandths: u32) -> Result<Self, OutOfRange> {
        self.depth = ten_thousandths;
        let message = "a bucket holds from 1 to 1000000 ten-thousandths of a cycle";
        within(
            self,
            ten_thousandths,
            1..=100 * WHOLE,
            "ten_thousandths",
            message,
        )
    }

    /// Sets the least that the bucket of a client holds, in permits. Default: 1.
    ///
    /// A bucket that holds less than the cost of a request guarantees nothing. Set it to the usual cost. A request of up to five times
    /// this can pass however many clients there are. The bucket of the smallest weight holds it and the others more, by weight: a client
    /// with 1 % of the rate deepens all buckets to at least 100 times this together.
    ///
    /// # Errors
    ///
    /// If it is zero.
    pub const fn try_with_least(mut self, permits: u32) -> Result<Self, OutOfRange> {
        self.least = permits;
        let message = "a bucket holds at least 1 permit";
        within(self, permits, 1..=u32::MAX, "permits", message)
    }

    /// Keeps this part of the rate, in ten-thousandths, for clients with their own share, whose weights are parts too. All others together
    /// are one client with the rest: it sets [`max_clients`](Self::try_with_max_clients) to 0.
    ///
    /// # Errors
    ///
    /// If it is not from 1 to 9,999: the others need a part, too.
    pub(crate) const fn try_with_reserve(
        mut self,
        ten_thousandths: u32,
    ) -> Result<Self, OutOfRange> {
        (self.reserve, self.max_clients) = (ten_thousandths, 0);
        let message = "a reserve has from 1 to 9999 ten-thousandths of the rate";
        within(
            self,
            ten_thousandths,
            1..=WHOLE - 1,
            "ten_thousandths",
            message,
        )
    }

    /// Sets after how many cycles without a request a client is forgotten. Default: 10.
    ///
    /// A client is forgotten only while its bucket is full, so that it gains nothing by coming back. It loses its share: when it comes
    /// back it starts with what the pool has, and its guarantee holds from its first full bucket on. One
    /// [with its own share](ClientTerms::with_own_share) is never forgotten.
    ///
    /// # Errors
    ///
    /// If it is zero.
    pub const fn try_forgetting_after(mut self, idle_cycles: u32) -> Result<Self, OutOfRange> {
        self.forgetting_after = idle_cycles;
        let message = "a client is forgotten after at least 1 idle cycle";
        within(self, idle_cycles, 1..=u32::MAX, "idle_cycles", message)
    }

    /// Sets how many clients have a bucket of their own, beside those [with their own share](ClientTerms::with_own_share). Default: 1,000.
    /// All others together are one more client, so that invented names gain no capacity.
    ///
    /// # Errors
    ///
    /// If it is more than 10,000,000.
    pub const fn try_with_max_clients(mut self, max_clients: u32) -> Result<Self, OutOfRange> {
        self.max_clients = max_clients;
        let message = "a guaranteed share has at most 10000000 clients";
        within(self, max_clients, 0..=MOST_CLIENTS, "max_clients", message)
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

    /// For how long a bucket saves the share of its client, in ten-thousandths of a cycle.
    #[must_use]
    pub const fn depth(&self) -> u32 {
        self.depth
    }

    /// The least that the bucket of a client holds, in permits.
    #[must_use]
    pub const fn least(&self) -> u32 {
        self.least
    }

    /// The part of the rate that is kept for clients with their own share, in ten-thousandths; 0 for none.
    #[must_use]
    pub const fn reserve(&self) -> u32 {
        self.reserve
    }

    /// How many clients have a bucket of their own, beside those whose terms say so.
    #[must_use]
    pub const fn max_clients(&self) -> u32 {
        self.max_clients
    }

    /// After how many cycles without a request a client is forgotten.
    #[must_use]
    pub const fn forgets_after(&self) -> u32 {
        self.forgetting_after
    }

    /// What the pool holds, in whole permits: a quarter of the capacity, and at least four times [`least`](Self::least).
    #[must_use]
    pub const fn pool(&self) -> u64 {
        let (quarter, least) = (self.capacity as u64 / 4, 4 * self.least as u64);
        if quarter > least { quarter } else { least }
    }

    /// Another rate with the same reserve.
    pub(super) const fn with_reserve_of(mut self, other: &Self) -> Self {
        if other.reserve > 0 {
            (self.reserve, self.max_clients) = (other.reserve, 0);
        }
        self
    }

    /// The terms of the clients that have no bucket of their own. Beside a reserve they are there from the start.
    pub(super) fn terms_of_others(&self) -> ClientTerms {
        let terms = ClientTerms::new().with_own_share(self.reserve > 0);
        let weight = WHOLE - self.reserve;
        let others = terms.try_with_weight(if self.reserve > 0 { weight } else { 1 });
        others.unwrap_or(terms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_is_wrong_and_what_would_be_right() {
        let second = Duration::from_secs(1);
        let share = GuaranteedShare::new(10, second);
        let errors = [
            GuaranteedShare::try_new(0, second),
            GuaranteedShare::try_new(1, Duration::ZERO),
            share.try_with_depth(0),
            share.try_with_depth(1_000_001),
            share.try_with_least(0),
            share.try_with_reserve(10_000),
            share.try_with_max_clients(10_000_001),
            share.try_forgetting_after(0),
        ];
        assert_eq!(
            errors.map(|error| error.unwrap_err().to_string()),
            [
                "a guaranteed share needs a capacity of at least 1, got 0",
                "a guaranteed share needs a cycle of at least 1 ns, got 0",
                "a bucket holds from 1 to 1000000 ten-thousandths of a cycle, got 0",
                "a bucket holds from 1 to 1000000 ten-thousandths of a cycle, got 1000001",
                "a bucket holds at least 1 permit, got 0",
                "a reserve has from 1 to 9999 ten-thousandths of the rate, got 10000",
                "a guaranteed share has at most 10000000 clients, got 10000001",
                "a client is forgotten after at least 1 idle cycle, got 0",
            ]
        );
    }

    #[test]
    fn the_widest_options_are_taken() {
        let share = GuaranteedShare::new(u32::MAX, Duration::from_nanos(1));
        assert!(share.try_with_depth(1_000_000).is_ok() && share.try_with_depth(1).is_ok());
        assert!(share.try_with_reserve(9_999).is_ok() && share.try_with_reserve(1).is_ok());
        assert!(share.try_with_max_clients(10_000_000).is_ok());
        assert_eq!(
            share.try_with_least(u32::MAX).unwrap().pool(),
            4 * u64::from(u32::MAX)
        );
    }

    #[test]
    #[should_panic(expected = "a guaranteed share needs a capacity of at least 1, got 0")]
    fn refuses_no_capacity() {
        let _ = GuaranteedShare::new(0, Duration::from_secs(1));
    }
}
