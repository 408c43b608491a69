//! What a queue is worth under overload: requests come twice as fast as they can be served, and each answer is useful only in time.

use std::time::Duration;

use paceline::concurrency::Permits;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::figures::{Figure, Notes};
use crate::measure::Extent;

const PERMITS: u32 = 10;

/// The mean time of a call.
const CALL: Duration = Duration::from_millis(100);

/// A later answer is useless.
const IN_TIME: Duration = Duration::from_millis(500);

/// As long as that, the queue is not overloaded.
const OVERLOADED_AFTER: Duration = Duration::from_millis(100);

/// How requests are queued.
struct Queue {
    name: &'static str,
    permits: fn() -> Permits,
    /// How long a request waits for a permit at the most.
    within: Option<Duration>,
}

const DEADLINE: Option<Duration> = Some(Duration::from_millis(400));

const QUEUES: [Queue; 5] = [
    Queue {
        name: "acquire",
        permits: || Permits::new(PERMITS),
        within: None,
    },
    Queue {
        name: "acquire_within",
        permits: || Permits::new(PERMITS),
        within: DEADLINE,
    },
    Queue {
        name: "acquire_within, estimated wait",
        permits: || Permits::new(PERMITS).with_estimated_wait(),
        within: DEADLINE,
    },
    Queue {
        name: "acquire, newest first",
        permits: || Permits::new(PERMITS).with_newest_first(OVERLOADED_AFTER),
        within: None,
    },
    Queue {
        name: "acquire_within, newest first",
        permits: || Permits::new(PERMITS).with_newest_first(OVERLOADED_AFTER),
        within: DEADLINE,
    },
];

pub(super) fn measure(extent: Extent) -> Vec<Figure> {
    let mut notes = Notes::new("queues");
    let time = Duration::from_secs(extent.pick(60, 2));
    for (case, gives_up) in [("clients wait on", false), ("clients give up", true)] {
        for queue in &QUEUES {
            let runtime = Builder::new_current_thread()
                .enable_all()
                .start_paused(true)
                .build()
                .expect("a runtime without threads");
            let ends = runtime.block_on(overload(queue, gives_up, time));
            let in_time = |end: &&End| end.is_answered && end.after <= IN_TIME;
            let useful = ends.iter().filter(in_time).count() as f64;
            let capacity = f64::from(PERMITS) * time.as_secs_f64() / CALL.as_secs_f64();
            notes.add("useful answers", queue.name, case, useful / capacity);
            for (metric, is_answered) in [("ms to an answer", true), ("ms to a refusal", false)] {
                let median = median_ms(&ends, is_answered);
                notes.add(metric, queue.name, case, median);
            }
        }
    }
    notes.figures
}

/// How a request ended, and how long after it came.
struct End {
    is_answered: bool,
    after: Duration,
}

/// Requests come at random, twice as many as can be served. Returns how those ended that have ended by then.
async fn overload(queue: &Queue, gives_up: bool, time: Duration) -> Vec<End> {
    let start = Instant::now();
    let permits = (queue.permits)();
    let mut random = Random(1);
    let mut requests = JoinSet::new();
    while start.elapsed() < time {
        let call = random.exponential(CALL);
        requests.spawn(request(permits.clone(), queue.within, gives_up, call));
        sleep(random.exponential(CALL / (2 * PERMITS))).await;
    }
    let mut ends = Vec::new();
    while let Some(end) = requests.try_join_next() {
        ends.push(end.expect("no request panics"));
    }
    ends
}

/// The server does not notice that a client has given up once the call is under way.
async fn request(
    permits: Permits,
    within: Option<Duration>,
    gives_up: bool,
    call: Duration,
) -> End {
    let start = Instant::now();
    let acquire = async {
        match within {
            Some(within) => permits.acquire_within(within).await.ok(),
            None => Some(permits.acquire().await),
        }
    };
    let patience = if gives_up { IN_TIME } else { Duration::MAX };
    let permit = timeout(patience, acquire).await.ok().flatten();
    if permit.is_some() {
        sleep(call).await;
    }
    End {
        is_answered: permit.is_some(),
        after: start.elapsed(),
    }
}

fn median_ms(ends: &[End], is_answered: bool) -> Result<f64, String> {
    let of_kind = ends.iter().filter(|end| end.is_answered == is_answered);
    let mut millis: Vec<_> = of_kind.map(|end| end.after.as_secs_f64() * 1e3).collect();
    millis.sort_by(f64::total_cmp);
    let median = millis.get(millis.len() / 2);
    median.copied().ok_or_else(|| "there is none".to_owned())
}

/// The same numbers in each run.
struct Random(u64);

impl Random {
    /// From 0 to 1, without both.
    fn share(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }

    fn exponential(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(-self.share().ln())
    }
}
