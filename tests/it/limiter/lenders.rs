//! Clients that ask for less than their default share on average, and not for the same in each cycle, beside one that takes all it gets.

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use fastrand::Rng;
use paceline::fair::{FairShare, GuaranteedShare, Rule};
use paceline::limiter::Fair;

use crate::timed::sleep;

/// Cycles of 100 ms.
const CYCLE: Duration = Duration::from_millis(100);

/// How a lender asks, in each cycle for as many requests on average.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Demand {
    Steady,
    /// Each request at random: a Poisson distribution.
    Random,
    /// The same, but six requests at once.
    Bursts,
}

impl Demand {
    /// The requests of one cycle.
    fn draw(self, average: u32, random: &mut Rng) -> u32 {
        let burst = match self {
            Self::Steady => return average,
            Self::Random => 1,
            Self::Bursts => 6,
        };
        (0..average / burst).map(|_| one(random)).sum::<u32>() * burst
    }
}

/// At each of 64 instants one comes with a probability of 1 in 64, so that it is one on average. Exact on each machine.
fn one(random: &mut Rng) -> u32 {
    let bits = (0..6).fold(u64::MAX, |bits, _| bits & random.u64(..));
    bits.count_ones()
}

fn pass<R: Rule>(clients: &Fair<&'static str, R>, client: &'static str, asked: u32) -> u32 {
    let passed = (0..asked).filter(|_| clients.try_acquire(&client, 1).is_pass());
    passed.count().try_into().unwrap()
}

/// How many permits pass of a client that takes all it gets, and asks for the whole capacity on top.
fn take<R: Rule>(clients: &Fair<&'static str, R>, client: &'static str, capacity: u32) -> u32 {
    let mut passed = 0;
    for cost in [100, 10, 1, capacity] {
        while clients.try_acquire(&client, cost).is_pass() {
            passed += cost;
        }
    }
    passed
}

/// The rule of cycles for a lender and a borrower, of which the default of each is twice this average.
fn by_demand(average: u32, reservation: u32) -> FairShare {
    let share = FairShare::new(4 * average, CYCLE);
    share.try_with_reservation(reservation).unwrap()
}

/// How many requests of a lender within its default were refused, and how many it made. Its default is twice its average.
async fn loss<R: Rule>(share: R, demand: Demand, average: u32, comes_first: bool) -> (u32, u32) {
    let (default, capacity) = (2 * average, 4 * average);
    let clients = Fair::new(share);
    assert_eq!(pass(&clients, "lender", average), average);
    assert!(take(&clients, "borrower", capacity) >= default);
    sleep(100).await;
    let mut random = Rng::with_seed(1);
    let (mut due, mut lost) = (0, 0);
    // So many that the result is within a few percent of its limit.
    for _ in 0..20_000 / average.isqrt() {
        let asked = demand.draw(average, &mut random);
        let first = if comes_first { asked } else { 0 };
        let mut lent = pass(&clients, "lender", first);
        let borrowed = take(&clients, "borrower", capacity);
        lent += pass(&clients, "lender", asked - first);
        assert!(borrowed >= default);
        due += asked.min(default);
        lost += asked.min(default).saturating_sub(lent);
        sleep(100).await;
    }
    (lost, due)
}

/// A row for each average, as the guide of the sidecar has them.
#[tokio::test(start_paused = true)]
async fn what_a_lender_loses_is_in_the_guide() {
    let guide = fs::read_to_string("docs/sidecar.md").unwrap();
    let mut rows = String::new();
    for average in [6, 60, 600] {
        let mut row = format!("| {average} |");
        for (demand, reservation) in [
            (Demand::Random, 1_000),
            (Demand::Bursts, 1_000),
            (Demand::Random, 5_000),
        ] {
            let share = by_demand(average, reservation);
            let (lost, due) = loss(share, demand, average, false).await;
            let lost = 100.0 * f64::from(lost) / f64::from(due);
            if (demand, reservation) == (Demand::Random, 1_000) {
                let rule = 100.0 / (std::f64::consts::PI * f64::from(average)).sqrt();
                assert!((0.9..1.1).contains(&(lost / rule)), "{lost} and {rule}");
            }
            write!(row, " {lost:.1} % |").unwrap();
        }
        println!("{row}");
        writeln!(rows, "{row}").unwrap();
    }
    assert!(guide.contains(&rows), "{rows}");
}

#[tokio::test(start_paused = true)]
async fn a_lender_that_asks_for_the_same_again_or_comes_first_loses_nothing() {
    let steady = loss(by_demand(60, 0), Demand::Steady, 60, false);
    assert_eq!(steady.await.0, 0);
    for demand in [Demand::Steady, Demand::Random, Demand::Bursts] {
        for average in [6, 60] {
            let first = loss(by_demand(average, 0), demand, average, true);
            assert_eq!(first.await.0, 0, "{demand:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lender_with_a_guaranteed_share_loses_nothing_within_its_default() {
    for demand in [Demand::Steady, Demand::Random, Demand::Bursts] {
        for average in [6, 60, 600] {
            let share = GuaranteedShare::new(4 * average, CYCLE);
            let guaranteed = loss(share, demand, average, false);
            assert_eq!(guaranteed.await.0, 0, "{demand:?}");
        }
    }
}

/// How many requests of three lenders were refused, in ten-thousandths, beside a client that takes all it gets at each instant. Each of
/// the four has `default` permits a cycle. A lender asks at random: on average `average` bursts of this cost a cycle.
async fn refused<R: Rule>(share: R, default: u32, average: u32, burst: u32) -> u32 {
    const LENDERS: [&str; 3] = ["a", "b", "c"];
    let clients = Fair::new(share);
    let mut random = Rng::with_seed(1);
    for lender in LENDERS {
        assert_eq!(pass(&clients, lender, 1), 1);
    }
    let (mut asked, mut passed) = (0, 0);
    // All at full speed for a while first: what newcomers find is another matter.
    for cycle in 0..10 + 4_000 / average {
        for _ in 0..average {
            take(&clients, "borrower", 4 * default);
            for lender in LENDERS {
                let asks = one(&mut random) * burst;
                let lent = pass(&clients, lender, asks);
                if cycle >= 10 {
                    (asked, passed) = (asked + asks, passed + lent);
                }
            }
            tokio::time::advance(CYCLE / average).await;
        }
    }
    (asked - passed) * 10_000 / asked
}

#[tokio::test(start_paused = true)]
async fn a_guaranteed_share_refuses_fewer_requests_of_lenders_the_deeper_its_buckets_are() {
    println!("a cycle, of default: by demand, depth a half, 1, 2; refused in 0.01 %");
    for (default, average, burst) in [
        (10, 6, 1),
        (10, 8, 1),
        (20, 19, 1),
        (100, 60, 1),
        (100, 80, 1),
        (100, 95, 1),
        (1_000, 600, 1),
        (12, 1, 6),
        (100, 1, 50),
    ] {
        let by_demand = FairShare::new(4 * default, CYCLE).try_with_reservation(1_000);
        let by_demand = refused(by_demand.unwrap(), default, average, burst).await;
        let mut guaranteed = [5_000, 10_000, 20_000];
        for depth in &mut guaranteed {
            let share = GuaranteedShare::new(4 * default, CYCLE).try_with_depth(*depth);
            *depth = refused(share.unwrap(), default, average, burst).await;
        }
        println!(
            "{} of {default}: {by_demand}, {guaranteed:?}",
            average * burst
        );
    }
}
