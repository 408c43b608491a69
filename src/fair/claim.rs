use core::num::NonZeroU32;

use crate::time::OutOfRange;

/// What one client asks of a capacity in a cycle, and on which terms it shares.
///
/// ```
/// use paceline::fair::{Claim, Division, divide};
///
/// let claims = [Claim::new(2), Claim::new(30).try_with_weight(3).unwrap()];
/// assert_eq!(divide(40, &claims, Division::MaxMin), [10, 30]);
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Claim {
    demand: u32,
    terms: ClientTerms,
}

impl Claim {
    /// A client that asks for `demand` permits, with a weight of 1 and no bound on what it lends or borrows.
    #[must_use]
    pub const fn new(demand: u32) -> Self {
        Self::on_terms(demand, ClientTerms::new())
    }

    /// A client that asks for `demand` permits on these terms.
    #[must_use]
    pub const fn on_terms(demand: u32, terms: ClientTerms) -> Self {
        Self { demand, terms }
    }

    /// Sets the [weight](ClientTerms::try_with_weight).
    ///
    /// # Errors
    ///
    /// If `weight` is zero.
    pub const fn try_with_weight(self, weight: u32) -> Result<Self, OutOfRange> {
        match self.terms.try_with_weight(weight) {
            Ok(terms) => Ok(Self::on_terms(self.demand, terms)),
            Err(error) => Err(error),
        }
    }

    /// Sets [the most that it lends](ClientTerms::with_most_lent).
    #[must_use]
    pub const fn with_most_lent(self, permits: u32) -> Self {
        Self::on_terms(self.demand, self.terms.with_most_lent(permits))
    }

    /// Sets [the most that it borrows](ClientTerms::with_most_borrowed).
    #[must_use]
    pub const fn with_most_borrowed(self, permits: u32) -> Self {
        Self::on_terms(self.demand, self.terms.with_most_borrowed(permits))
    }

    /// The permits that it asks for.
    #[must_use]
    pub const fn demand(&self) -> u32 {
        self.demand
    }

    /// The terms on which it shares.
    #[must_use]
    pub const fn terms(&self) -> ClientTerms {
        self.terms
    }
}

/// On which terms a client shares a capacity: its weight, bounds on what it lends and borrows, and whether it always finds room.
///
/// The bounds apply to exact sizes, before they become whole numbers. A whole size differs from the exact one by less than one
/// permit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ClientTerms {
    weight: NonZeroU32,
    most_lent: Option<u32>,
    most_borrowed: Option<u32>,
    has_own_share: bool,
}

impl ClientTerms {
    /// A weight of 1, and no bound on lending or borrowing.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            weight: NonZeroU32::MIN,
            most_lent: None,
            most_borrowed: None,
            has_own_share: false,
        }
    }

    /// Sets the weight. The default share of a client is in proportion to its weight.
    ///
    /// # Errors
    ///
    /// If `weight` is zero.
    pub const fn try_with_weight(mut self, weight: u32) -> Result<Self, OutOfRange> {
        let Some(weight) = NonZeroU32::new(weight) else {
            return Err(OutOfRange::new(
                "weight",
                "a client needs a weight of at least 1, got 0",
            ));
        };
        self.weight = weight;
        Ok(self)
    }

    /// Sets the most that the client lends in a cycle, in permits. Default: all but its reservation.
    #[must_use]
    pub const fn with_most_lent(mut self, permits: u32) -> Self {
        self.most_lent = Some(permits);
        self
    }

    /// Sets the most that the client borrows in a cycle, in permits. Default: no bound.
    #[must_use]
    pub const fn with_most_borrowed(mut self, permits: u32) -> Self {
        self.most_borrowed = Some(permits);
        self
    }

    /// Sets whether the client has a share of its own however many clients there are. It then does not count against
    /// [`max_clients`](super::FairShare::try_with_max_clients), and by the rule of a [`GuaranteedShare`](super::GuaranteedShare) it is never
    /// forgotten. Default: `false`.
    #[must_use]
    pub const fn with_own_share(mut self, has_own_share: bool) -> Self {
        self.has_own_share = has_own_share;
        self
    }

    pub(super) const fn without_bounds(mut self) -> Self {
        (self.most_lent, self.most_borrowed) = (None, None);
        self
    }

    /// The weight, at least 1.
    #[must_use]
    pub const fn weight(&self) -> u32 {
        self.weight.get()
    }

    /// The most that the client lends in a cycle, if that is bounded.
    #[must_use]
    pub const fn most_lent(&self) -> Option<u32> {
        self.most_lent
    }

    /// The most that the client borrows in a cycle, if that is bounded.
    #[must_use]
    pub const fn most_borrowed(&self) -> Option<u32> {
        self.most_borrowed
    }

    /// Whether the client has a share of its own however many clients there are.
    #[must_use]
    pub const fn has_own_share(&self) -> bool {
        self.has_own_share
    }
}

impl Default for ClientTerms {
    fn default() -> Self {
        Self::new()
    }
}

/// How unused permits are divided among clients that need more.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Division {
    /// In proportion to what each lacks: the published rule. A client that asks for more than it needs gets more.
    #[default]
    Proportional,
    /// The smallest needs first, the rest evenly by weight: max-min fairness. Asking for more than it needs gains a client nothing.
    MaxMin,
}
