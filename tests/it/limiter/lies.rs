//! What a client gains by lying about its needs, measured from outside: arrivals and counts of their own, and nothing but the answers of
//! the limits. The rows of the table in the guide are results of these tests.
//!
//! An honest client competes with one of the same weight that may lie. Parts are in thousandths.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::fs;
use std::future::poll_fn;
use std::mem;

use fastrand::Rng;
use futures::future::{LocalBoxFuture, join_all, select};
use futures::{FutureExt, StreamExt, stream};
use paceline::concurrency::FairPermits;
use paceline::fair::{ClientTerms, Division, FairShare, GuaranteedShare, Rule};
use paceline::limiter::{Fair, FairQueue, Limiter};
use paceline::policy::{Decision, Interval};
use tokio::time::{advance, timeout};

use crate::timed::{ms, sleep};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Lie {
    None,
    /// Asks for five where it needs two.
    More,
    /// Asks ten times as often.
    Oftener,
    /// Asks for so many at once, too, also while it needs nothing.
    Probes(u32),
    /// While it needs nothing, asks for none, and is forgotten.
    Leaves,
    /// Asks for a thousand, and after a while leaves the queue.
    Cancels,
    /// Asks for a thousand, and after a while for one.
    Lowers,
    /// Takes so many names in turn.
    Names(u32),
    /// Has another name each so many milliseconds.
    Renames(u32),
}

const HONEST: u32 = 0;
const LENDER: u32 = 1;
/// The first of its names.
const LIAR: u32 = 2;

fn part(of: u64, all: u64) -> u64 {
    (of * 1_000 + all / 2) / all
}

/// The row of the guide: what an honest client gets, and a liar, in percent.
fn assert_row(lie: &str, cells: &[Option<[u64; 2]>]) {
    let mut row = format!("| {lie} |");
    for cell in cells {
        let percent = |part: u64| (part + 5) / 10;
        match cell {
            Some([honest, liar]) => write!(row, " {} → {} |", percent(*honest), percent(*liar)),
            None => write!(row, " |"),
        }
        .unwrap();
    }
    let guide = fs::read_to_string("docs/fairness.md").unwrap();
    assert!(guide.contains(&row), "{row}");
}

/// Permits of 400 a second. Half of them are the share of a client that asks for 20 of them, and lends the rest.
struct Market<R: Rule> {
    clients: Fair<u32, R>,
    random: Rng,
    now: u32,
    /// What the honest client has got, and the liar.
    got: [u64; 2],
    /// What the liar needed, and has got of it.
    need: u64,
    met: u64,
}

const CAPACITY: u32 = 400;
const DEMAND: FairShare = FairShare::new(CAPACITY, ms(1_000));
const MAX_MIN: FairShare = DEMAND.with_division(Division::MaxMin);
const GUARANTEED: GuaranteedShare = GuaranteedShare::new(CAPACITY, ms(1_000));

/// What a bucket and the pool hold, and so the most that can pass. The pool has that if no other client borrows.
const MOST: u32 = 200;

impl<R: Rule> Market<R> {
    fn new(share: R, honest: u32, seed: u64) -> Self {
        let terms = move |name: &u32| {
            let weights = [honest, honest + 1];
            let weight = weights.get(*name as usize).copied().unwrap_or(1);
            let terms = ClientTerms::new().try_with_weight(weight).unwrap();
            terms.with_own_share(*name <= LIAR)
        };
        Self {
            clients: Fair::new(share).with_terms(terms),
            random: Rng::with_seed(seed),
            now: 0,
            got: [0; 2],
            need: 0,
            met: 0,
        }
    }

    fn ask(&self, name: u32, cost: u32) -> bool {
        self.clients.try_acquire(&name, cost).is_pass()
    }

    /// A millisecond, in which the honest client and the liar come so often, in thousandths, and in a random order.
    async fn tick(&mut self, often: [u32; 2], lie: Lie) {
        if self.now % 50 == 0 {
            self.ask(LENDER, 1);
        }
        let mut turns = Vec::new();
        for (client, often) in often.into_iter().enumerate() {
            let times = often / 1_000 + u32::from(self.random.u32(..1_000) < often % 1_000);
            turns.extend((0..times).map(|_| client));
        }
        self.random.shuffle(&mut turns);
        for client in turns {
            let name = match lie {
                _ if client == 0 => HONEST,
                Lie::Names(names) => LIAR + self.random.u32(..names),
                Lie::Renames(period) => LIAR + self.now / period,
                _ => LIAR,
            };
            if let (Lie::Probes(cost), 1) = (lie, client)
                && self.ask(name, cost)
            {
                self.got[1] += u64::from(cost);
            }
            let passes = u64::from(self.ask(name, 1));
            self.got[client] += passes;
            if client == 1 && (lie != Lie::More || self.random.u32(..5) < 2) {
                self.need += 1;
                self.met += passes;
            }
        }
        self.now += 1;
        advance(ms(1)).await;
    }

    /// What both have got since the last time.
    fn take(&mut self) -> [u64; 2] {
        (self.need, self.met) = (0, 0);
        mem::take(&mut self.got)
    }
}

/// Both always want more: the part of the liar, beside an honest client of this weight.
async fn flooding<R: Rule>(share: R, lie: Lie, honest: u32, seed: u64) -> u64 {
    let mut market = Market::new(share, honest, seed);
    let often = if lie == Lie::Oftener { 6_000 } else { 600 };
    for now in 0..24_000 {
        if now == 12_000 {
            market.take();
        }
        market.tick([600, often], lie).await;
    }
    let [honest, liar] = market.take();
    part(liar, honest + liar)
}

/// The liar needs nine tenths of its share: how much of it it gets, beside a client that floods.
async fn in_need<R: Rule>(share: R, lie: Lie) -> u64 {
    let mut market = Market::new(share, 1, 1);
    let often = if lie == Lie::More { 225 } else { 90 };
    for now in 0..20_000 {
        if now == 5_000 {
            market.take();
        }
        market.tick([600, often], lie).await;
    }
    part(market.met, market.need)
}

/// The liar needs nothing, then floods for a second, again and again: its part of these seconds, and of all the time.
async fn bursting<R: Rule>(share: R, lie: Lie, quiet: u32, seed: u64) -> [u64; 2] {
    let mut market = Market::new(share, 1, seed);
    let (mut bursts, mut all) = ([0; 2], [0; 2]);
    for now in 0..52_000 {
        let at = now % (quiet + 1_000);
        let often = if at < quiet { 0 } else { 6_000 };
        market.tick([600, often], Lie::None).await;
        let mut got = market.take();
        if at < quiet {
            let cost = match lie {
                Lie::Probes(cost) => cost,
                Lie::Leaves => 0,
                _ => u32::from(at % 500 == 0),
            };
            if cost > 0 && market.ask(LIAR, cost) {
                got[1] += u64::from(cost);
            }
        }
        for client in [0, 1] {
            all[client] += got[client];
            bursts[client] += if at < quiet { 0 } else { got[client] };
        }
    }
    [bursts, all].map(|[honest, liar]| part(liar, honest + liar))
}

/// A limit for which requests wait, that serves a hundred a second.
trait Waits {
    /// Ends when it is served.
    fn ask(&self, name: u32, cost: u32) -> LocalBoxFuture<'_, ()>;

    /// The same for one, which asked for a thousand before.
    fn lower(&self, name: u32) -> LocalBoxFuture<'_, ()>;
}

impl Waits for FairQueue<u32, Interval> {
    fn ask(&self, name: u32, cost: u32) -> LocalBoxFuture<'_, ()> {
        let passed = self.acquire(name, cost);
        passed.map(|passed| passed.unwrap()).boxed_local()
    }

    fn lower(&self, name: u32) -> LocalBoxFuture<'_, ()> {
        let mut handle = self.at(name);
        let asks = async move {
            let mut much = poll_fn(|cx| handle.poll_decide(1_000, cx)).fuse();
            let _ = timeout(ms(200), &mut much).await;
            loop {
                match poll_fn(|cx| handle.poll_decide(1, cx)).await {
                    Ok(Decision::Wait { .. }) => sleep(1).await,
                    Ok(decision) => return assert!(decision.is_pass()),
                }
            }
        };
        asks.boxed_local()
    }
}

/// Ten permits, which a request holds for a tenth of a second.
impl Waits for FairPermits<u32> {
    fn ask(&self, name: u32, cost: u32) -> LocalBoxFuture<'_, ()> {
        let permits = self.at(name);
        let call = async move {
            let _permit = permits.acquire_many(cost.min(10)).await;
            sleep(100).await;
        };
        call.boxed_local()
    }

    /// A permit has no such request.
    fn lower(&self, name: u32) -> LocalBoxFuture<'_, ()> {
        self.ask(name, 1)
    }
}

fn limits_that_wait() -> [Box<dyn Waits>; 2] {
    let queue = FairQueue::new(Interval::every(ms(10)));
    [Box::new(queue), Box::new(FairPermits::new(10))]
}

/// So many requests at a time, again and again.
fn again<'f>(times: usize, ask: impl AsyncFn() + 'f) -> LocalBoxFuture<'f, ()> {
    let ask = async move {
        let one = || async {
            loop {
                ask().await;
            }
        };
        join_all((0..times).map(|_| one())).await;
    };
    ask.boxed_local()
}

/// Both always have requests that wait: the part of the liar.
async fn waiting(limit: &dyn Waits, lie: Lie) -> u64 {
    let served = RefCell::new([0; 2]);
    let names = Cell::new(0);
    let name = || {
        names.set(names.get() + 1);
        match lie {
            Lie::Names(all) => LIAR + names.get() % all,
            Lie::Renames(_) => LIAR + names.get(),
            _ => LIAR,
        }
    };
    let honest = again(20, async || {
        limit.ask(HONEST, 1).await;
        served.borrow_mut()[0] += 1;
    });
    let times = if lie == Lie::Oftener { 200 } else { 20 };
    let liar = again(times, async || {
        match lie {
            Lie::Lowers => limit.lower(name()).await,
            _ => limit.ask(name(), 1).await,
        }
        served.borrow_mut()[1] += 1;
    });
    let cancels = again(usize::from(lie == Lie::Cancels), async || {
        let _ = timeout(ms(50), limit.ask(LIAR, 1_000)).await;
    });
    let all = join_all([cancels, honest, liar]);
    select(all, sleep(50_000).boxed_local()).await;
    let [honest, liar] = served.take();
    part(liar, honest + liar)
}

/// The liar needs 45 of 100 a second: how much of it it gets in time, beside a client that floods.
async fn waiting_in_need(limit: &dyn Waits, lie: Lie) -> u64 {
    let served = Cell::new(0);
    let honest = again(20, async || limit.ask(HONEST, 1).await);
    let (cost, needed) = if lie == Lie::More { (5, 2) } else { (1, 1) };
    let need = 45 * 50;
    let liar = stream::iter(0..need / needed).map(|number| {
        let served = &served;
        async move {
            sleep(50_000 * number * needed / need).await;
            limit.ask(LIAR, cost).await;
            served.set(served.get() + needed);
        }
    });
    let liar = liar.buffer_unordered(10_000).for_each(async |()| {});
    let all = join_all([honest, liar.boxed_local()]);
    select(all, sleep(50_000).boxed_local()).await;
    part(served.get(), need)
}

/// What of all four an honest client gets, and a liar.
async fn flooding_all(lie: Lie) -> [Option<[u64; 2]>; 4] {
    let mut cells = [[0; 2]; 4];
    for (place, lie) in [Lie::None, lie].into_iter().enumerate() {
        for (limit, cell) in limits_that_wait().iter().zip(&mut cells) {
            cell[place] = waiting(&**limit, lie).await;
        }
        cells[2][place] = flooding(DEMAND, lie, 1, 1).await;
        cells[3][place] = flooding(GUARANTEED, lie, 1, 1).await;
    }
    cells.map(Some)
}

#[tokio::test(start_paused = true)]
async fn a_client_that_asks_for_more_than_it_needs_gets_less_of_it() {
    let mut cells = [[0; 2]; 4];
    for (place, lie) in [Lie::None, Lie::More].into_iter().enumerate() {
        for (limit, cell) in limits_that_wait().iter().zip(&mut cells) {
            cell[place] = waiting_in_need(&**limit, lie).await;
        }
        cells[2][place] = in_need(DEMAND, lie).await;
        cells[3][place] = in_need(GUARANTEED, lie).await;
    }
    assert_eq!(cells[3][0], 1_000, "nothing is refused within a share");
    let lie = "asks for 5 where it needs 2: of its need";
    assert_row(lie, &cells.map(Some));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_asks_oftener_gains_only_where_demand_counts() {
    assert_row("asks ten times as often", &flooding_all(Lie::Oftener).await);
    for lie in [Lie::Oftener, Lie::Probes(CAPACITY)] {
        let max_min = flooding(MAX_MIN, lie, 1, 1).await;
        assert_eq!(max_min, 500);
    }
    for seed in 2..5 {
        let even = flooding(GUARANTEED, Lie::Oftener, 1, seed).await;
        let by_weight = flooding(GUARANTEED, Lie::Oftener, 3, seed).await;
        assert!((499..=501).contains(&even), "{even} with {seed}");
        assert!((249..=251).contains(&by_weight), "{by_weight} with {seed}");
    }
}

/// It keeps its place among the borrowers and saves its part for two cycles.
#[tokio::test(start_paused = true)]
async fn requests_too_large_to_pass_save_for_a_burst_and_gain_nothing_over_a_longer_time() {
    let probes = Lie::Probes(MOST);
    let (mut once, mut often) = ([[0; 2]; 2], [[0; 2]; 2]);
    for (place, lie) in [Lie::Leaves, probes].into_iter().enumerate() {
        once[place] = bursting(GUARANTEED, lie, 12_000, 1).await;
        often[place] = bursting(GUARANTEED, lie, 1_000, 1).await;
    }
    let mut whole = [[0; 2]; 2];
    for (place, lie) in [Lie::None, Lie::Probes(CAPACITY)].into_iter().enumerate() {
        whole[0][place] = flooding(DEMAND, lie, 1, 1).await;
        whole[1][place] = flooding(GUARANTEED, lie, 1, 1).await;
    }
    let [demand, guaranteed] = whole.map(Some);
    assert_row(
        "asks for the whole capacity at once",
        &[None, None, demand, guaranteed],
    );
    let cell = |all: [[u64; 2]; 2], place: usize| Some(all.map(|parts| parts[place]));
    let lie = "idle, asks for more than can pass: of its next cycle";
    assert_row(lie, &[None, None, None, cell(once, 0)]);
    let lie = "the same every other cycle: of all the time";
    assert_row(lie, &[None, None, None, cell(often, 1)]);
    for seed in 2..4 {
        let [of_burst, of_all] = bursting(GUARANTEED, probes, 12_000, seed).await;
        assert!(
            (790..=820).contains(&of_burst) && of_all < 100,
            "{of_burst} {of_all} with {seed}"
        );
        // Two cycles of its part are 180 of the 20,000 that both get.
        let [_, of_all] = bursting(GUARANTEED, probes, 1_000, seed).await;
        assert!(of_all <= 505, "{of_all} with {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_can_never_pass_saves_nothing() {
    let honest = bursting(GUARANTEED, Lie::None, 12_000, 1).await;
    let liar = bursting(GUARANTEED, Lie::Probes(MOST + 1), 12_000, 1).await;
    assert_eq!([honest[0], liar[0]], [602, 602]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_and_comes_back_gains_nothing() {
    let [stays, leaves] = [Lie::None, Lie::Leaves];
    for seed in 1..3 {
        let stays = bursting(GUARANTEED, stays, 12_000, seed).await;
        let leaves = bursting(GUARANTEED, leaves, 12_000, seed).await;
        assert!(
            leaves[0] <= stays[0] && leaves[1] <= stays[1],
            "{stays:?} and {leaves:?} with {seed}"
        );
        // Under a new name it begins with what the others leave, and the names that it had lend.
        let renames = flooding(GUARANTEED, Lie::Renames(1_000), 1, seed).await;
        assert!(renames < 450, "{renames} with {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn large_requests_that_are_cancelled_or_lowered_gain_nothing() {
    let mut cells = Vec::new();
    for (place, lies) in [[Lie::None, Lie::Cancels], [Lie::None, Lie::Lowers]]
        .into_iter()
        .enumerate()
    {
        for limit in 0..2 {
            let mut cell = [0; 2];
            for (part, lie) in cell.iter_mut().zip(lies) {
                *part = waiting(&*limits_that_wait()[limit], lie).await;
            }
            assert!(cell[1] <= 501, "{lies:?} {cell:?}");
            if place == 0 {
                cells.push(Some(cell));
            }
        }
    }
    cells.extend([None, None]);
    assert_row("cancels large requests, or lowers them", &cells);
}

#[tokio::test(start_paused = true)]
async fn each_name_gains_a_share_up_to_the_largest_number_of_clients() {
    let names = Lie::Names(10);
    assert_row("has ten names", &flooding_all(names).await);
    // It has a share of its own, one more client has, and all others together.
    let bounded = GUARANTEED.try_with_max_clients(1).unwrap();
    let three = flooding(bounded, names, 1, 1).await;
    assert!(three <= 751, "three of four shares, got {three}");
    // A name for each request gains less.
    let renames = flooding(GUARANTEED, Lie::Renames(10), 1, 1).await;
    assert!(renames < 700, "{renames}");
}
