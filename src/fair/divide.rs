use core::cmp::Reverse;

use super::wide::{div_rem, mul_div, product};
use super::{Claim, ClientTerms, Division};

/// The parts of a whole reservation.
pub(super) const WHOLE: u32 = 10_000;

/// What a client wants and on which terms. `None` wants its default share, neither more nor less.
pub(super) type Want = (Option<u32>, ClientTerms);

/// The sizes of one cycle: `capacity` divided among `claims`, the oldest client first.
///
/// The sizes are whole numbers, and their sum is `capacity`, unless there are no claims. The [module docs](super) have the rule.
/// All arithmetic is exact, for up to 2²⁴ claims.
///
/// ```
/// use paceline::fair::{Claim, Division, divide};
///
/// let asked = [1000, 50, 10].map(Claim::new);
/// assert_eq!(divide(120, &asked, Division::Proportional), [70, 40, 10]);
/// assert_eq!(divide(120, &asked, Division::MaxMin), [60, 50, 10]);
/// ```
#[must_use]
pub fn divide(capacity: u32, claims: &[Claim], division: Division) -> Vec<u32> {
    divide_whole(capacity, claims, 0, division)
}

/// [`divide`] with a reservation in ten-thousandths.
pub(super) fn divide_whole(
    capacity: u32,
    claims: &[Claim],
    reservation: u32,
    division: Division,
) -> Vec<u32> {
    let wants: Vec<Want> = claims
        .iter()
        .map(|claim| (Some(claim.demand()), claim.terms()))
        .collect();
    let shares = Shares::exact(capacity, &wants, reservation, division);
    shares.whole(capacity, |_| 0)
}

/// What a client lends or borrows, in units of [`Shares::unit`].
#[derive(Clone, Copy)]
enum Gap {
    Lends(u128),
    Borrows(u128),
}

/// The exact sizes of a cycle.
pub(super) struct Shares {
    exact: Vec<Exact>,
    /// How many units are one permit.
    unit: u128,
}

/// The size of a client: `whole` permits, `part` units, and `rest` of a divisor that all fractions of a cycle share.
struct Exact {
    whole: u32,
    part: u128,
    rest: u128,
}

impl Shares {
    pub(super) fn exact(
        capacity: u32,
        wants: &[Want],
        reservation: u32,
        division: Division,
    ) -> Self {
        let weights = wants.iter().map(|(_, terms)| u64::from(terms.weight()));
        let unit = u128::from(weights.sum::<u64>()) * u128::from(WHOLE);
        let default = |terms: &ClientTerms| {
            u128::from(capacity) * u128::from(terms.weight()) * u128::from(WHOLE)
        };
        let gap_of = |want: &Want| gap(want, default(&want.1), unit, reservation);
        let gaps: Vec<Gap> = wants.iter().map(gap_of).collect();
        let (lent, lacking) = gaps
            .iter()
            .fold((0, 0_u128), |(lent, lacking), gap| match *gap {
                Gap::Lends(units) => (lent + units, lacking),
                Gap::Borrows(units) => (lent, lacking.saturating_add(units)),
            });
        let level = match division {
            Division::MaxMin if lacking > lent => Some(level(wants, &gaps, lent)),
            _ => None,
        };
        let exact = wants.iter().zip(&gaps).map(|((_, terms), gap)| {
            let weight = u128::from(terms.weight());
            let (units, rest) = match (*gap, level) {
                // A lender keeps what it wants, and a part of what no client borrows.
                (Gap::Lends(units), _) => {
                    let (kept, rest) = mul_div(units, lent.saturating_sub(lacking), lent);
                    (default(terms) - units + kept, rest)
                }
                (Gap::Borrows(units), _) if lacking <= lent => (default(terms) + units, 0),
                (Gap::Borrows(units), None) => {
                    let (borrowed, rest) = mul_div(units, lent, lacking);
                    (default(terms) + borrowed, rest)
                }
                (Gap::Borrows(units), Some((rise, among))) => {
                    let (borrowed, rest) = if product(units, among) <= product(weight, rise) {
                        (units, 0)
                    } else {
                        mul_div(weight, rise, among)
                    };
                    (default(terms) + borrowed, rest)
                }
            };
            let (whole, part) = div_rem(units, unit);
            Exact {
                whole: u32::try_from(whole).unwrap_or(u32::MAX),
                part,
                rest,
            }
        });
        Self {
            exact: exact.collect(),
            unit,
        }
    }

    /// Whole sizes by largest remainder: what the rounding down leaves goes, a permit each, to the largest `rank` and then the
    /// largest fraction; of equal ones to the oldest. A size without a fraction stays as it is.
    pub(super) fn whole(&self, capacity: u32, rank: impl Fn(usize) -> i64) -> Vec<u32> {
        let mut sizes: Vec<u32> = self.exact.iter().map(|exact| exact.whole).collect();
        let given: u32 = sizes.iter().sum();
        let left = usize::try_from(capacity.saturating_sub(given)).unwrap_or(usize::MAX);
        if left == 0 || left >= sizes.len() {
            return sizes;
        }
        let place = |(at, exact): (usize, &Exact)| {
            let has_fraction = exact.part > 0 || exact.rest > 0;
            Reverse((has_fraction, rank(at), exact.part, exact.rest, Reverse(at)))
        };
        let mut order: Vec<_> = self.exact.iter().enumerate().map(place).collect();
        order.select_nth_unstable(left - 1);
        for Reverse((.., Reverse(at))) in &order[..left] {
            sizes[*at] += 1;
        }
        sizes
    }

    /// Whether a size is the next larger whole number.
    pub(super) fn is_above(&self, at: usize, size: u32) -> bool {
        size > self.exact[at].whole
    }

    /// The fraction of a client's exact size, in 2⁻³² permits, rounded down.
    pub(super) fn fraction(&self, at: usize) -> i64 {
        let (fraction, _) = mul_div(self.exact[at].part, 1 << 32, self.unit);
        i64::try_from(fraction).unwrap_or(i64::MAX)
    }
}

fn gap((demand, terms): &Want, default: u128, unit: u128, reservation: u32) -> Gap {
    let Some(demand) = demand else {
        return Gap::Lends(0);
    };
    let bound = |most: Option<u32>| most.map_or(u128::MAX, |most| u128::from(most) * unit);
    let reserve = default / u128::from(WHOLE) * u128::from(reservation);
    let want = (u128::from(*demand) * unit).max(reserve);
    match default.checked_sub(want) {
        Some(units) => Gap::Lends(units.min(bound(terms.most_lent()))),
        None => Gap::Borrows((want - default).min(bound(terms.most_borrowed()))),
    }
}

/// Where water stands that fills up what the borrowers lack: each gets its lack or its weight times the level, whichever is less. The
/// level is a fraction.
fn level(wants: &[Want], gaps: &[Gap], supply: u128) -> (u128, u128) {
    let mut borrowers: Vec<(u128, u128)> = wants
        .iter()
        .zip(gaps)
        .filter_map(|((_, terms), gap)| match gap {
            Gap::Borrows(units) => Some((*units, u128::from(terms.weight()))),
            Gap::Lends(_) => None,
        })
        .collect();
    borrowers.sort_unstable_by(|(a, weight_a), (b, weight_b)| {
        product(*a, *weight_b).cmp(&product(*b, *weight_a))
    });
    let (mut left, mut among) = (supply, borrowers.iter().map(|(_, weight)| weight).sum());
    for (units, weight) in borrowers {
        if product(units, among) > product(weight, left) {
            break;
        }
        left -= units;
        among -= weight;
    }
    (left, among)
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::super::FairShare;
    use super::*;
    use crate::time::OutOfRange;

    const RULE: FairShare = OutOfRange::or_panic(
        FairShare::new(40, Duration::from_secs(10)).try_with_reservation(1_000),
    );

    fn sizes<const N: usize>(rule: FairShare, demands: [u32; N]) -> Vec<u32> {
        rule.divide(&demands.map(Claim::new))
    }

    #[test]
    fn the_sizes_are_the_published_ones() {
        assert_eq!(sizes(RULE, [2, 15, 10, 10]), [5, 15, 10, 10]);
        assert_eq!(sizes(RULE, [3, 15, 50, 10]), [3, 11, 16, 10]);
        assert_eq!(sizes(RULE, [0, 15, 50, 5]), [1, 12, 22, 5]);
    }

    #[test]
    fn all_have_their_default_if_none_asks_or_all_ask_too_much() {
        assert_eq!(sizes(RULE, [0; 4]), [10; 4]);
        assert_eq!(sizes(RULE, [10; 4]), [10; 4]);
        assert_eq!(sizes(RULE, [11, 1000, 12, 40]), [10; 4]);
    }

    #[test]
    fn one_that_asks_gets_all_but_the_reservations() {
        let asked = [0, 0, 0, 1000];
        assert_eq!(sizes(RULE, asked), [1, 1, 1, 37]);
        assert_eq!(
            sizes(RULE.try_with_reservation(0).unwrap(), asked),
            [0, 0, 0, 40]
        );
        assert_eq!(
            sizes(RULE.try_with_reservation(10_000).unwrap(), asked),
            [10; 4]
        );
        assert_eq!(sizes(RULE, [0]), [40]);
        assert_eq!(sizes(RULE, [7]), [40]);
        assert!(sizes(RULE, []).is_empty());
    }

    #[test]
    fn what_is_not_a_whole_permit_goes_to_the_largest_fraction_and_then_the_oldest() {
        let of = |capacity| {
            FairShare::new(capacity, RULE.cycle())
                .try_with_reservation(1_000)
                .unwrap()
        };
        assert_eq!(sizes(of(3), [0; 4]), [1, 1, 1, 0]);
        assert_eq!(sizes(of(10), [0, 0, 20]), [1, 0, 9]);
    }

    #[test]
    fn max_min_serves_the_smallest_needs_first() {
        let asked = [1000, 50, 10].map(Claim::new);
        assert_eq!(divide(120, &asked, Division::Proportional), [70, 40, 10]);
        assert_eq!(divide(120, &asked, Division::MaxMin), [60, 50, 10]);
    }

    #[test]
    fn a_weight_multiplies_the_default_share() {
        let claims = [Claim::new(99), Claim::new(99).try_with_weight(3).unwrap()];
        for division in [Division::Proportional, Division::MaxMin] {
            assert_eq!(divide(40, &claims, division), [10, 30]);
        }
        let claims = [
            Claim::new(0).try_with_weight(4).unwrap(),
            Claim::new(99),
            Claim::new(99).try_with_weight(3).unwrap(),
        ];
        assert_eq!(divide(80, &claims, Division::MaxMin), [0, 20, 60]);
        // Each lacks as much as it weighs less: 40 divided as 89 to 69.
        assert_eq!(divide(80, &claims, Division::Proportional), [0, 33, 47]);
    }

    #[test]
    fn what_none_may_borrow_stays_with_the_lenders() {
        let idle = Claim::new(0);
        let claims = [
            idle,
            idle,
            idle.with_most_lent(0),
            Claim::new(99).with_most_borrowed(6),
        ];
        for division in [Division::Proportional, Division::MaxMin] {
            assert_eq!(divide(40, &claims, division), [7, 7, 10, 16]);
            let bound = [idle.with_most_lent(2), Claim::new(99)];
            assert_eq!(divide(40, &bound, division), [18, 22]);
            let closed = [idle.with_most_lent(0), Claim::new(99).with_most_borrowed(0)];
            assert_eq!(divide(40, &closed, division), [20, 20]);
        }
    }

    #[test]
    fn the_largest_numbers_are_exact() {
        let most = ClientTerms::new().try_with_weight(u32::MAX).unwrap();
        for division in [Division::Proportional, Division::MaxMin] {
            let mut claims = vec![Claim::on_terms(u32::MAX, most); 1_000];
            claims.extend(vec![Claim::on_terms(0, most); 1_000]);
            claims.push(Claim::new(u32::MAX));
            let sizes = divide(u32::MAX, &claims, division);
            assert_eq!(
                sizes.iter().map(|size| u64::from(*size)).sum::<u64>(),
                u64::from(u32::MAX)
            );
            assert!(
                sizes[..1_000]
                    .iter()
                    .all(|size| size.abs_diff(u32::MAX / 1_000) <= 2_200)
            );
            assert_eq!(sizes[1_000..2_000], [0; 1_000]);
        }
    }
}
