//! What many tasks ask at once.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cpu_time::ProcessTime;
use tokio::task::JoinSet;

/// A contender that many tasks ask at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contended {
    pub(crate) name: &'static str,
    /// Whether the limit can make a task wait.
    pub(crate) waits: bool,
    pub(crate) run: fn(Crowd, Bound) -> Gathering,
}

pub(crate) type Gathering = Pin<Box<dyn Future<Output = Gathered> + Send>>;

/// How fast they may go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Bound {
    /// As fast as they can.
    None,
    /// This many permits each millisecond, which is also the burst.
    PerMillisecond(u32),
}

/// The number of tasks, and how often each asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowd {
    pub(crate) tasks: u64,
    pub(crate) each: u64,
    pub(crate) patience: Duration,
}

/// What became of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gathered {
    pub(crate) took: Duration,
    pub(crate) cpu: Duration,
    pub(crate) grants: u64,
    pub(crate) polls: u64,
}

impl Crowd {
    /// Every task gets a clone of the limit, and asks as long as its ticket says.
    pub(super) fn gather<L, F>(self, limit: L, ask: fn(L, Ticket) -> F) -> Gathering
    where
        L: Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        Box::pin(async move {
            let counts = Arc::new(Counts::default());
            let (start, cpu) = (Instant::now(), ProcessTime::now());
            let mut tasks = JoinSet::new();
            for number in 0..self.tasks {
                let ticket = Ticket {
                    number,
                    left: self.each,
                    grants: 0,
                    polls: 0,
                    counts: Arc::clone(&counts),
                };
                tasks.spawn(ask(limit.clone(), ticket));
            }
            let all = async { while tasks.join_next().await.is_some() {} };
            // A request that is not done then is not counted.
            let _ = tokio::time::timeout(self.patience, all).await;
            Gathered {
                took: start.elapsed(),
                cpu: cpu.elapsed(),
                grants: counts.grants.load(Ordering::Relaxed),
                polls: counts.polls.load(Ordering::Relaxed),
            }
        })
    }
}

#[derive(Debug, Default)]
struct Counts {
    grants: AtomicU64,
    polls: AtomicU64,
}

/// What a task may still ask, and what it counted. It is added up when the task has ended.
#[derive(Debug)]
pub(super) struct Ticket {
    number: u64,
    left: u64,
    grants: u64,
    polls: u64,
    counts: Arc<Counts>,
}

impl Ticket {
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn goes_on(&mut self) -> bool {
        let goes_on = self.left > 0;
        self.left -= u64::from(goes_on);
        goes_on
    }

    /// Something that was granted without waiting.
    pub(super) fn granted(&mut self) {
        self.grants += 1;
        self.polls += 1;
    }

    /// Waits for something that is granted, and counts how often it had to be polled.
    pub(super) async fn wait<T>(&mut self, granted: impl Future<Output = T>) -> T {
        let mut granted = pin!(granted);
        let done = poll_fn(|cx| {
            self.polls += 1;
            granted.as_mut().poll(cx)
        })
        .await;
        self.grants += 1;
        done
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.counts.grants.fetch_add(self.grants, Ordering::Relaxed);
        self.counts.polls.fetch_add(self.polls, Ordering::Relaxed);
    }
}
