//! The laws of a division: the sum, the reservation, the bounds, the answer to a client that asks for more, what is charged, and a
//! naive model.
//!
//! The model computes with fractions, as the formula in the docs is written, and shares no code with the library.

use std::cmp::Ordering;
use std::ops::{Add, Div, Mul, Sub};
use std::time::Duration;

use fastrand::Rng;
use paceline::fair::{Claim, Division, FairShare};
use paceline::limiter::{Fair, Settle};
use testkit::clock::paused_runtime;
use tokio::time::advance;

/// A reduced fraction with a positive denominator.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Fraction(i128, i128);

impl Fraction {
    const ZERO: Self = Self(0, 1);

    fn new(over: i128, under: i128) -> Self {
        let (mut a, mut b) = (over.unsigned_abs(), under.unsigned_abs());
        while b > 0 {
            (a, b) = match (u64::try_from(a), u64::try_from(b)) {
                (Ok(a), Ok(b)) => (u128::from(b), u128::from(a % b)),
                _ => (b, a % b),
            };
        }
        let divisor = i128::try_from(a).unwrap() * under.signum();
        Self(over / divisor, under / divisor)
    }

    fn whole(number: u32) -> Self {
        Self(number.into(), 1)
    }

    fn floor(self) -> u32 {
        self.0.div_euclid(self.1).try_into().unwrap()
    }

    fn ceil(self) -> u32 {
        let up = self.0 + self.1 - 1;
        up.div_euclid(self.1).try_into().unwrap()
    }
}

impl Add for Fraction {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self::new(self.0 * other.1 + other.0 * self.1, self.1 * other.1)
    }
}

impl Sub for Fraction {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self::new(self.0 * other.1 - other.0 * self.1, self.1 * other.1)
    }
}

impl Mul for Fraction {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        Self::new(self.0 * other.0, self.1 * other.1)
    }
}

impl Div for Fraction {
    type Output = Self;

    fn div(self, other: Self) -> Self {
        Self::new(self.0 * other.1, self.1 * other.0)
    }
}

impl PartialOrd for Fraction {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Fraction {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.0 * other.1).cmp(&(other.0 * self.1))
    }
}

fn sum(fractions: impl Iterator<Item = Fraction>) -> Fraction {
    fractions.fold(Fraction::ZERO, Add::add)
}

/// The formula, one line after the other.
struct Model {
    reserve: Vec<Fraction>,
    default: Vec<Fraction>,
    want: Vec<Fraction>,
    left_over: Fraction,
    size: Vec<Fraction>,
}

impl Model {
    fn new(rule: FairShare, claims: &[Claim]) -> Self {
        let capacity = Fraction::whole(rule.capacity());
        let weight = |claim: &Claim| Fraction::whole(claim.terms().weight());
        let weights = sum(claims.iter().map(weight));
        let part = Fraction::new(rule.reservation().into(), 10_000);
        let all = || claims.iter();
        let default: Vec<_> = all().map(|c| capacity * weight(c) / weights).collect();
        let reserve: Vec<_> = default.iter().map(|default| *default * part).collect();
        let want: Vec<_> = (0..claims.len())
            .map(|at| {
                let (demand, terms) = (claims[at].demand(), claims[at].terms());
                let mut want = Fraction::whole(demand).max(reserve[at]);
                if let Some(most) = terms.most_lent() {
                    want = want.max(default[at] - Fraction::whole(most));
                }
                if let Some(most) = terms.most_borrowed() {
                    want = want.min(default[at] + Fraction::whole(most));
                }
                want
            })
            .collect();
        let over = |a: Fraction, b: Fraction| (a - b).max(Fraction::ZERO);
        let gap: Vec<_> = (0..claims.len())
            .map(|at| over(default[at], want[at]))
            .collect();
        let lack: Vec<_> = (0..claims.len())
            .map(|at| over(want[at], default[at]))
            .collect();
        let (lent, lacking) = (sum(gap.iter().copied()), sum(lack.iter().copied()));
        let left_over = over(lent, lacking);
        let borrowed = match rule.division() {
            Division::MaxMin => poured(lent, &lack, &all().map(weight).collect::<Vec<_>>()),
            _ if lacking == Fraction::ZERO => lack.clone(),
            _ => lack
                .iter()
                .map(|lack| (*lack).min(*lack / lacking * lent))
                .collect(),
        };
        let size = (0..claims.len()).map(|at| {
            if gap[at] > Fraction::ZERO {
                want[at] + gap[at] / lent * left_over
            } else {
                default[at] + borrowed[at]
            }
        });
        let size = size.collect();
        Self {
            reserve,
            default,
            want,
            left_over,
            size,
        }
    }

    /// A permit at a time to the largest remainder.
    fn whole(&self, capacity: u32) -> Vec<u32> {
        let mut sizes: Vec<u32> = self.size.iter().map(|size| size.floor()).collect();
        let rest = |sizes: &[u32], at: usize| self.size[at] - Fraction::whole(sizes[at]);
        while sizes.iter().sum::<u32>() < capacity {
            let mut best = 0;
            for at in 1..sizes.len() {
                if rest(&sizes, at) > rest(&sizes, best) {
                    best = at;
                }
            }
            sizes[best] += 1;
        }
        sizes
    }
}

/// Pours what is lent over all that lack something, by weight, again and again, until it is gone or none lacks more.
fn poured(supply: Fraction, lack: &[Fraction], weights: &[Fraction]) -> Vec<Fraction> {
    let mut filled = vec![Fraction::ZERO; lack.len()];
    let mut left = supply;
    loop {
        let open: Vec<usize> = (0..lack.len())
            .filter(|at| filled[*at] < lack[*at])
            .collect();
        if open.is_empty() || left == Fraction::ZERO {
            return filled;
        }
        // Up to where the first one is full, or everything is gone.
        let among = sum(open.iter().map(|at| weights[*at]));
        let to_full = open
            .iter()
            .map(|at| (lack[*at] - filled[*at]) / weights[*at]);
        let rise = to_full.min().unwrap().min(left / among);
        for at in &open {
            filled[*at] = filled[*at] + rise * weights[*at];
        }
        left = left - rise * among;
    }
}

fn random_rule(random: &mut Rng) -> FairShare {
    let most = [3, 40, 300][random.usize(..3)];
    let division = [Division::Proportional, Division::MaxMin][random.usize(..2)];
    FairShare::new(random.u32(1..=most), Duration::from_secs(1))
        .try_with_reservation([0, 0, 1_000, 2_500, 10_000][random.usize(..5)])
        .unwrap()
        .with_division(division)
}

fn random_claim(random: &mut Rng, capacity: u32) -> Claim {
    let most = [0, 2, capacity / 4, capacity, 3 * capacity][random.usize(..5)];
    let mut claim = Claim::new(random.u32(..=most))
        .try_with_weight(random.u32(1..=5))
        .unwrap();
    if random.u8(..6) == 0 {
        claim = claim.with_most_lent(random.u32(..=capacity / 3));
    }
    if random.u8(..6) == 0 {
        claim = claim.with_most_borrowed(random.u32(..=capacity / 3));
    }
    claim
}

/// Calls `check` with random cycles: a rule, and up to 7 clients whose claims change from cycle to cycle.
fn for_each_cycle(seed: u64, cycles: u32, mut check: impl FnMut(&mut Rng, FairShare, &[Claim])) {
    let mut random = Rng::with_seed(seed);
    for _ in 0..cycles / 10 {
        let rule = random_rule(&mut random);
        let count = random.usize(1..=7);
        let claim = |random: &mut Rng| random_claim(random, rule.capacity());
        let mut claims: Vec<_> = (0..count).map(|_| claim(&mut random)).collect();
        for _ in 0..10 {
            let changed = random.usize(..count);
            claims[changed] = claim(&mut random);
            check(&mut random, rule, &claims);
        }
    }
}

/// The same claims, but one asks for `demand`.
fn asking(claims: &[Claim], at: usize, demand: u32) -> Vec<Claim> {
    let mut claims = claims.to_vec();
    claims[at] = Claim::on_terms(demand, claims[at].terms());
    claims
}

/// And so the sum is the capacity, and no size is below the reservation or above the need and what is left over.
#[test]
fn the_sizes_are_those_of_the_formula() {
    for_each_cycle(1, 300_000, |_, rule, claims| {
        let (model, sizes) = (Model::new(rule, claims), rule.divide(claims));
        let expected = model.whole(rule.capacity());
        assert_eq!(sizes, expected, "{rule:?} {claims:?}");
        assert_eq!(sizes.iter().sum::<u32>(), rule.capacity());
        for (at, size) in sizes.into_iter().enumerate() {
            assert!(size >= model.reserve[at].floor());
            assert!(size >= model.want[at].min(model.default[at]).floor());
            assert!(size <= (model.want[at].max(model.reserve[at]) + model.left_over).ceil());
        }
    });
}

#[test]
fn a_client_that_asks_for_more_never_gets_less() {
    for_each_cycle(4, 100_000, |random, rule, claims| {
        let at = random.usize(..claims.len());
        let more = claims[at].demand() + random.u32(1..100);
        let size = |claims: &[Claim]| rule.divide(claims)[at];
        // A size is rounded, and so is that of each other client.
        assert!(size(&asking(claims, at, more)) + 1 >= size(claims));
    });
}

#[test]
fn under_max_min_asking_for_more_than_one_gets_changes_no_size() {
    let mut lacking = 0;
    for_each_cycle(5, 200_000, |random, rule, claims| {
        let rule = rule.with_division(Division::MaxMin);
        let sizes = rule.divide(claims);
        let at = random.usize(..claims.len());
        if sizes[at] < claims[at].demand() {
            lacking += 1;
            let more = asking(claims, at, claims[at].demand() + random.u32(1..1_000));
            assert_eq!(rule.divide(&more), sizes, "{rule:?} {claims:?}");
        }
    });
    assert!(lacking > 20_000, "only {lacking} cases");
}

#[test]
fn in_proportion_asking_for_more_than_one_gets_pays() {
    let claims = [1000, 50, 10].map(Claim::new);
    let rule = FairShare::new(120, Duration::from_secs(1));
    assert_eq!(rule.divide(&claims), [70, 40, 10]);
    assert_eq!(rule.divide(&asking(&claims, 1, 1000)), [55, 55, 10]);
}

#[test]
fn equal_claims_differ_by_a_permit_in_favour_of_the_older() {
    for_each_cycle(6, 100_000, |random, rule, claims| {
        let claims = vec![claims[0]; random.usize(1..=7)];
        let sizes = rule.divide(&claims);
        assert!(sizes.is_sorted_by(|older, younger| older >= younger));
        assert!(sizes[0] - sizes[sizes.len() - 1] <= 1);
    });
}

/// What each client may use and has used, in a cycle after all of `claims` were charged in one cycle and not asked for.
struct Charged {
    sizes: Vec<u32>,
    used: Vec<u32>,
}

impl Charged {
    /// `had` is the size of each client when it was charged.
    fn new(rule: FairShare, claims: &[Claim], had: &[u32]) -> Self {
        let model = Model::new(rule, claims);
        let mut sizes = model.whole(rule.capacity());
        let (mut unspent, mut repaid) = (rule.capacity(), 0);
        let (mut overdrawn, mut owed) = (Vec::new(), Vec::new());
        for (at, claim) in claims.iter().enumerate() {
            let covered = claim.demand().min(unspent);
            unspent -= covered;
            overdrawn.push(claim.demand() - covered);
            owed.push(covered.saturating_sub(had[at].max(model.default[at].floor())));
            let paying = owed[at].min(sizes[at]);
            sizes[at] -= paying;
            repaid += paying;
        }
        let others: Vec<_> = (0..claims.len()).filter(|at| owed[*at] == 0).collect();
        if repaid > 0 && !others.is_empty() {
            let rest = FairShare::new(repaid, rule.cycle()).with_division(rule.division());
            let lacks = others.iter().map(|&at| {
                let lack = claims[at].demand().saturating_sub(sizes[at]);
                Claim::new(lack)
                    .try_with_weight(claims[at].terms().weight())
                    .unwrap()
            });
            let lacks: Vec<_> = lacks.collect();
            let parts = Model::new(rest, &lacks).whole(repaid);
            for (&at, part) in others.iter().zip(parts) {
                sizes[at] += part;
            }
        } else if others.is_empty() {
            sizes = model.whole(rule.capacity());
        }
        let used = overdrawn.iter().zip(&sizes);
        let used = used.map(|(overdrawn, size)| *overdrawn.min(size)).collect();
        Self { sizes, used }
    }
}

#[test]
fn the_sizes_after_charges_are_those_of_the_formula_less_what_is_owed() {
    let (mut in_debt, mut overdrawn) = (0, 0);
    for_each_cycle(7, 20_000, |_, rule, claims| {
        let terms: Vec<_> = claims.iter().map(Claim::terms).collect();
        let clients = Fair::new(rule).with_terms(move |client: &usize| terms[*client]);
        let (had, shares) = paused_runtime().block_on(async {
            // Each is known from now on, and owes nothing.
            for client in 0..claims.len() {
                let _ = clients.try_acquire(&client, u32::MAX);
            }
            advance(rule.cycle()).await;
            let charged = claims.iter().enumerate().map(|(client, claim)| {
                let had = clients.shares()[client].size;
                clients.at(client).charge(claim.demand());
                had
            });
            let had: Vec<_> = charged.collect();
            advance(rule.cycle()).await;
            (had, clients.shares())
        });
        let expected = Charged::new(rule, claims, &had);
        let sizes: Vec<_> = shares.iter().map(|share| share.size).collect();
        let used: Vec<_> = shares.iter().map(|share| share.used).collect();
        assert_eq!(sizes, expected.sizes, "{rule:?} {claims:?}");
        assert_eq!(used, expected.used, "{rule:?} {claims:?}");
        in_debt += u32::from(sizes != rule.divide(claims));
        overdrawn += u32::from(used.iter().any(|used| *used > 0));
    });
    assert!(
        in_debt > 1_000 && overdrawn > 1_000,
        "{in_debt}, {overdrawn}"
    );
}
