//! An overloaded service in virtual time: workers behind one queue, and requests of four classes that come by chance. The tests use
//! it, and the measurements in `peers`.
//!
//! The queue has no bound and no request leaves it, so the end of a request is known when it comes. To shed a request costs nothing.
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times are microseconds of some hours, and the dice are floats"
)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use paceline::shed::{Class, WorkerUtilization};
use tokio::task::yield_now;
use tokio::time::interval;

/// The classes, the least important first, and which share of all requests each is.
pub(crate) const CLASSES: [(&str, Class, f64); 4] = [
    ("test traffic", Class::Sheddable(0), 0.2),
    ("reads", Class::Sheddable(1), 0.4),
    ("writes", Class::Sheddable(2), 0.25),
    ("critical", Class::Critical, 0.15),
];

/// How long a worker is busy with a request, on average, in seconds. The times are exponential.
pub(crate) const SERVICE_TIME: f64 = 0.05;

/// In microseconds, as all times below.
const SECOND: u64 = 1_000_000;

/// What decides whether a request is admitted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Protection {
    Nothing,
    /// After a second in which the workers were at least this busy, all that is sheddable is shed, and else nothing.
    Threshold(f64),
    WorkerUtilization {
        delay: Duration,
        ramp: Duration,
    },
}

/// What happened in one second.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Second {
    /// The share of the workers' time in which they were busy.
    pub(crate) utilization: f64,
    /// By class, the share that was to be shed.
    pub(crate) share_shed: [f64; 4],
    /// By class, how many requests came.
    pub(crate) asked: [u32; 4],
    /// By class, how many of them were shed.
    pub(crate) shed: [u32; 4],
    /// How long each of the others took, in seconds.
    pub(crate) latencies: Vec<f64>,
}

impl Second {
    /// The share of all requests that was to be shed.
    pub(crate) fn share_of_all(&self) -> f64 {
        let shares = CLASSES.iter().zip(self.share_shed);
        shares.map(|((_, _, part), shed)| part * shed).sum()
    }

    /// How many were answered within this number of seconds.
    pub(crate) fn answered_within(&self, deadline: f64) -> usize {
        let in_time = self.latencies.iter().filter(|took| **took <= deadline);
        in_time.count()
    }
}

/// Runs a service on a paused clock. A phase is a number of seconds and the load, as a share of the capacity.
///
/// The same seed makes the same requests, whatever is shed of them.
pub(crate) async fn simulate(
    workers: u32,
    phases: &[(usize, f64)],
    protection: Protection,
    seed: u64,
) -> Vec<Second> {
    let mut service = Service::new(workers);
    let mut arrivals = Arrivals::new(seed);
    let shedder = service.shedder(protection, seed);
    let loads = phases
        .iter()
        .flat_map(|(seconds, load)| vec![*load; *seconds]);
    let mut clock = interval(Duration::from_secs(1));
    let mut seconds: Vec<Second> = Vec::new();
    for (load, end) in loads.zip((1..).map(|n| n * SECOND)) {
        clock.tick().await;
        sampled(shedder.as_ref()).await;
        let was_busy = |at| {
            seconds
                .last()
                .is_some_and(|second| second.utilization >= at)
        };
        let sheds_all = matches!(protection, Protection::Threshold(at) if was_busy(at));
        let share = |class| match &shedder {
            Some(shedder) => shedder.share_shed(class),
            None => f64::from(sheds_all && class != Class::Critical),
        };
        let mut second = Second {
            share_shed: CLASSES.map(|(_, class, _)| share(class)),
            ..Second::default()
        };
        let rate = load * f64::from(workers) / SERVICE_TIME;
        while let Some(request) = arrivals.next_before(end, rate) {
            let class = CLASSES[request.class].1;
            second.asked[request.class] += 1;
            let is_admitted = match &shedder {
                Some(shedder) => shedder.admits(class),
                None => !sheds_all || class == Class::Critical,
            };
            if is_admitted {
                second.latencies.push(service.answer(&request));
            } else {
                second.shed[request.class] += 1;
            }
        }
        second.utilization = service.measure(end);
        seconds.push(second);
    }
    seconds
}

/// How often a curve turns back by more than `band`. It begins at 0, and to rise from there is no turn.
pub(crate) fn turns(curve: impl IntoIterator<Item = f64>, band: f64) -> u32 {
    let (mut turns, mut farthest, mut direction) = (0, 0.0_f64, 1.0);
    for point in curve {
        let back = (farthest - point) * direction;
        if back > band {
            turns += 1;
            direction = -direction;
        }
        if back < 0.0 || back > band {
            farthest = point;
        }
    }
    turns
}

/// The task of the shedder has taken the sample of this instant.
async fn sampled(shedder: Option<&WorkerUtilization>) {
    if let Some(shedder) = shedder {
        let _starts = shedder.amount();
    }
    for _ in 0..4 {
        yield_now().await;
    }
}

struct Service {
    workers: u32,
    /// When each worker has done all that it was given.
    free: BinaryHeap<Reverse<u64>>,
    /// By second, for how long the workers are busy, added up.
    busy: Vec<u64>,
    /// The utilization of the last second, as bits, for the sensor.
    measured: Arc<AtomicU64>,
}

impl Service {
    fn new(workers: u32) -> Self {
        Self {
            workers,
            free: (0..workers).map(|_| Reverse(0)).collect(),
            busy: Vec::new(),
            measured: Arc::default(),
        }
    }

    fn shedder(&self, protection: Protection, seed: u64) -> Option<WorkerUtilization> {
        let Protection::WorkerUtilization { delay, ramp } = protection else {
            return None;
        };
        let measured = Arc::clone(&self.measured);
        let sensor = move || f64::from_bits(measured.load(Ordering::Relaxed));
        let shedder = WorkerUtilization::new(sensor).with_classes(3);
        Some(
            shedder
                .try_with_delay(delay)
                .unwrap()
                .try_with_ramp(ramp)
                .unwrap()
                .with_seed(seed),
        )
    }

    /// The worker that is free first takes the request. How long the answer takes, in seconds.
    fn answer(&mut self, request: &Request) -> f64 {
        let Reverse(free) = self.free.pop().expect("there is a worker");
        let mut from = free.max(request.at);
        let end = from + request.takes;
        self.free.push(Reverse(end));
        while from < end {
            let second = from / SECOND;
            let until = end.min((second + 1) * SECOND);
            let index = second as usize;
            if self.busy.len() <= index {
                self.busy.resize(index + 1, 0);
            }
            self.busy[index] += until - from;
            from = until;
        }
        (end - request.at) as f64 / SECOND as f64
    }

    /// The utilization of the second that ends then. All requests that came by then are known.
    fn measure(&self, end: u64) -> f64 {
        let index = (end / SECOND - 1) as usize;
        let busy = self.busy.get(index).copied().unwrap_or(0);
        let utilization = busy as f64 / (SECOND * u64::from(self.workers)) as f64;
        self.measured
            .store(utilization.to_bits(), Ordering::Relaxed);
        utilization
    }
}

struct Request {
    at: u64,
    /// As an index.
    class: usize,
    /// How long a worker is busy with it.
    takes: u64,
}

struct Arrivals {
    random: Rng,
    next: f64,
}

impl Arrivals {
    fn new(seed: u64) -> Self {
        Self {
            random: Rng::with_seed(seed),
            next: 0.0,
        }
    }

    /// The next request, at this rate, if it comes before then.
    fn next_before(&mut self, end: u64, rate: f64) -> Option<Request> {
        let at = self.next as u64;
        if at >= end {
            return None;
        }
        self.next += self.exponential(1.0 / rate);
        let takes = self.exponential(SERVICE_TIME) as u64;
        let mut left = self.random.f64();
        let class = CLASSES.iter().position(|(_, _, part)| {
            left -= part;
            left < 0.0
        });
        Some(Request {
            at,
            class: class.unwrap_or(CLASSES.len() - 1),
            takes,
        })
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * SECOND as f64 * (1.0 - self.random.f64()).ln()
    }
}
