//! A limit for each of a million keys.

use std::thread;
use std::time::{Duration, Instant};

use crate::contenders::{KEYED, Keyed, KeyedLimit};
use crate::figures::{Figure, Notes};
use crate::measure::{Extent, bytes, median, nanos_each, timed, worked};

/// A first decision takes half of the tokens of a key, which are back after so long. So no key settles while the
/// others come, and there is something left to decide about.
const SETTLES_IN: Duration = Duration::from_secs(5);
const QUICKLY: Duration = Duration::from_millis(200);
const BURST: u32 = 100;
const HALF: u32 = 50;

/// A limit that does not bind. Its keys do not settle during the measurement.
const UNBOUND: KeyedLimit = KeyedLimit {
    per_token: Duration::from_millis(1),
    burst: u32::MAX,
};

/// This number of keys fits into the caches.
const FEW: usize = 1_000;

const NANOS: &str = "ns a decision";
const BYTES: &str = "bytes a key";
const KEYS: &str = "keys remembered";
const STALL: &str = "longest, in ms";

pub(super) fn measure(extent: Extent) -> Vec<Figure> {
    let mut notes = Notes::new("keyed");
    let keys = Keys::new(extent.pick(1_000_000, 2_000));
    let settles_in = extent.pick(SETTLES_IN, QUICKLY);
    let mut lives: Vec<Vec<Life>> = KEYED.iter().map(|_| Vec::new()).collect();
    for _ in 0..extent.pick(3, 1) {
        for (contender, lives) in KEYED.iter().zip(&mut lives) {
            lives.push(life(contender, &keys, settles_in));
        }
    }
    for (contender, lives) in KEYED.iter().zip(&lives) {
        note(contender, lives, &mut notes);
    }
    cached(extent, &mut notes);
    notes.figures
}

/// Two generations of keys, and the first in another order.
struct Keys {
    first: Vec<u64>,
    shuffled: Vec<u64>,
    second: Vec<u64>,
}

impl Keys {
    fn new(count: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(1);
        let first: Vec<u64> = (0..count).collect();
        let mut shuffled = first.clone();
        rng.shuffle(&mut shuffled);
        Self {
            first,
            shuffled,
            second: (count..2 * count).collect(),
        }
    }
}

/// What was seen while a million keys came, were asked again, settled, and others came.
struct Life {
    nanos: Cases,
    bytes: Cases,
    keys: Cases,
    stalls: Cases,
}

type Cases = Vec<(&'static str, f64)>;

fn life(contender: &Keyed, keys: &Keys, settles_in: Duration) -> Life {
    let limit = KeyedLimit {
        per_token: settles_in / HALF,
        burst: BURST,
    };
    let count = keys.first.len();
    let (mut nanos, mut memory, mut known, mut stalls) = (vec![], vec![], vec![], vec![]);
    let mut store = None;
    let mut took = Duration::ZERO;
    let new = bytes(|| {
        let store = store.insert((contender.new)(limit));
        took = worked(|| store.ask_all(&keys.first, HALF)).0;
    });
    let store = store.expect("made above");
    let born = Instant::now();
    let mut held = new.kept;
    let mut remember = |case, bytes: i64, keys: usize| {
        memory.push((case, bytes as f64 / count as f64));
        known.push((case, keys as f64));
    };
    nanos.push(("first", nanos_each(took, count)));
    remember("at most, as they come", new.most, store.keys());
    remember("all there", held, store.keys());

    let (took, passed) = worked(|| store.ask_all(&keys.shuffled, 1));
    // An interval saves nothing up.
    let is_passed = passed == count;
    nanos.push(("known, passes", if_all(is_passed, nanos_each(took, count))));
    let (took, passed) = worked(|| store.ask_all(&keys.shuffled, BURST));
    nanos.push((
        "known, refused",
        if_all(passed == 0, nanos_each(took, count)),
    ));
    let (took, ()) = timed(|| {
        thread::scope(|scope| {
            for half in keys.shuffled.chunks(count.div_ceil(2)) {
                scope.spawn(|| store.ask_all(half, 1));
            }
        });
    });
    nanos.push(("known, two threads, on the wall", nanos_each(took, count)));

    thread::sleep((settles_in + settles_in / 5).saturating_sub(born.elapsed()));
    let mut settled = Duration::ZERO;
    held += bytes(|| settled = timed(|| store.tidy()).0).kept;
    remember("settled", held, store.keys());
    let mut slowest = Duration::ZERO;
    held += bytes(|| slowest = store.slowest(&keys.second[..count / 100], HALF)).kept;
    remember("and 1% new", held, store.keys());
    held += bytes(|| slowest = slowest.max(store.slowest(&keys.second[count / 100..], HALF))).kept;
    remember("and as many new", held, store.keys());
    stalls.push(("decision on a new key", slowest.as_secs_f64() * 1e3));
    if store.needs_tidying() {
        stalls.push(("tidying, asked for", settled.as_secs_f64() * 1e3));
    }
    Life {
        nanos,
        bytes: memory,
        keys: known,
        stalls,
    }
}

fn note(contender: &Keyed, lives: &[Life], notes: &mut Notes) {
    let of_nanos: fn(&Life) -> &Cases = |life| &life.nanos;
    let metrics = [
        (NANOS, of_nanos),
        (BYTES, |life| &life.bytes),
        (KEYS, |life| &life.keys),
        (STALL, |life| &life.stalls),
    ];
    for (metric, of) in metrics {
        for (at, (case, _)) in of(&lives[0]).iter().enumerate() {
            let values: Vec<f64> = lives.iter().map(|life| of(life)[at].1).collect();
            notes.add(metric, contender.name, case, median_if_all(&values));
        }
    }
}

const OTHERWISE: &str = "some were answered otherwise: an interval saves nothing up, and a slow machine lets keys settle";

/// Not a number if they were not all answered as they were to be.
const fn if_all(is_so: bool, nanos: f64) -> f64 {
    if is_so { nanos } else { f64::NAN }
}

fn median_if_all(values: &[f64]) -> Result<f64, String> {
    if values.iter().any(|value| value.is_nan()) {
        return Err(OTHERWISE.to_owned());
    }
    Ok(median(values))
}

/// A thousand keys, again and again, in turns.
fn cached(extent: Extent, notes: &mut Notes) {
    let mut rng = fastrand::Rng::with_seed(2);
    let asked: Vec<u64> = (0..extent.pick(200_000, 2_000))
        .map(|_| rng.u64(..FEW as u64))
        .collect();
    let stores: Vec<_> = KEYED
        .iter()
        .map(|contender| (contender.new)(UNBOUND))
        .collect();
    let mut rounds: Vec<Vec<f64>> = KEYED.iter().map(|_| Vec::new()).collect();
    for _ in 0..extent.pick(15, 2) {
        for (store, rounds) in stores.iter().zip(&mut rounds) {
            let (took, passed) = worked(|| store.ask_all(&asked, 1));
            let is_passed = passed == asked.len();
            rounds.push(if_all(is_passed, nanos_each(took, asked.len())));
        }
    }
    for (contender, rounds) in KEYED.iter().zip(&rounds) {
        let value = median_if_all(rounds);
        notes.add(NANOS, contender.name, "one of 1,000 keys, passes", value);
    }
}
