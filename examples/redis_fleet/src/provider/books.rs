//! The records of the provider.

#![expect(
    clippy::disallowed_types,
    reason = "a provider has a clock of its own; sharing the library's would share its mistakes"
)]

use core::time::Duration;
use std::time::Instant;

use crate::strict::Sliding;

/// The phases of a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Phase {
    Before,
    WorkerKilled,
    RedisDown,
    Back,
}

/// The arrivals in one phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) phase: Phase,
    pub(crate) lasted: Duration,
    pub(crate) sent: u64,
    pub(crate) accepted: u64,
}

/// The provider's count.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    /// All arrivals, including those before the first phase.
    pub(crate) sent: u64,
    pub(crate) accepted: u64,
    /// The arrivals in the phases, and how many were accepted.
    pub(crate) parts: Vec<Part>,
    /// The length of each silence.
    pub(crate) silences: Vec<Duration>,
    /// The longest travel time of a request.
    pub(crate) longest_way: Duration,
}

/// Accepts or refuses arrivals, and records them.
#[derive(Debug)]
pub(super) struct Books {
    judge: Sliding,
    arrivals: Vec<Entry>,
    turns: Vec<(Instant, Phase)>,
    closed: Option<Instant>,
    longest_way: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Instant,
    worker: u32,
    was_accepted: bool,
}

impl Books {
    pub(super) const fn new(requests: u32, window: Duration) -> Self {
        Self {
            judge: Sliding::new(requests, window),
            arrivals: Vec::new(),
            turns: Vec::new(),
            closed: None,
            longest_way: Duration::ZERO,
        }
    }

    /// Whether the request is accepted. It counts in any case.
    pub(super) fn arrive(&mut self, at: Instant, worker: u32, way: Duration) -> bool {
        self.longest_way = self.longest_way.max(way);
        let was_accepted = !self.judge.is_over(at, 1);
        self.arrivals.push(Entry {
            at,
            worker,
            was_accepted,
        });
        was_accepted
    }

    pub(super) fn turn(&mut self, now: Instant, phase: Phase) {
        self.turns.push((now, phase));
    }

    pub(super) const fn close(&mut self, now: Instant) {
        self.closed = Some(now);
    }

    pub(super) fn arrivals_of(&self, worker: u32) -> u64 {
        count(self.arrivals.iter().filter(|entry| entry.worker == worker))
    }

    pub(super) fn figures(&self, silence: Duration) -> Figures {
        Figures {
            sent: count(self.arrivals.iter()),
            accepted: count(self.arrivals.iter().filter(|entry| entry.was_accepted)),
            parts: self.parts(),
            silences: self.silences(silence),
            longest_way: self.longest_way,
        }
    }

    fn parts(&self) -> Vec<Part> {
        let ends = self.turns.iter().skip(1).map(|(end, _)| *end);
        let turns = self.turns.iter().zip(ends.chain(self.closed));
        let part = |(&(begin, phase), end): (&(Instant, Phase), Instant)| {
            let inside = self
                .arrivals
                .iter()
                .filter(|entry| (begin..end).contains(&entry.at));
            Part {
                phase,
                lasted: end - begin,
                sent: count(inside.clone()),
                accepted: count(inside.filter(|entry| entry.was_accepted)),
            }
        };
        turns.map(part).collect()
    }

    /// The gaps between arrivals, from the last one before the first phase to the end of the last phase.
    fn silences(&self, silence: Duration) -> Vec<Duration> {
        let (Some((begin, _)), Some(end)) = (self.turns.first(), self.closed) else {
            return Vec::new();
        };
        let early = self.arrivals.partition_point(|entry| entry.at < *begin);
        let inside = self.arrivals[early.saturating_sub(1)..].iter();
        let inside: Vec<Instant> = inside
            .map(|entry| entry.at)
            .take_while(|at| *at < end)
            .chain([end])
            .collect();
        let gaps = inside.windows(2).map(|pair| pair[1] - pair[0]);
        gaps.filter(|gap| *gap >= silence).collect()
    }
}

fn count(entries: impl Iterator<Item: Sized>) -> u64 {
    entries.count() as u64
}

#[cfg(test)]
mod tests {
    use super::{Books, Duration, Instant, Phase};

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn refused_requests_count_too() {
        let start = Instant::now();
        let mut books = Books::new(2, ms(100));
        let arrived =
            [0, 10, 20, 105, 121, 125].map(|at| books.arrive(start + ms(at), 1, ms(at / 5)));

        // At 105 the window holds the arrivals of 10 and 20; at 121 only those of 105 and 121.
        assert_eq!(arrived, [true, true, false, false, true, false]);
        let figures = books.figures(ms(50));
        assert_eq!((figures.sent, figures.accepted), (6, 3));
        assert_eq!(figures.longest_way, ms(25));
    }

    #[test]
    fn arrivals_belong_to_the_phase_in_which_they_came() {
        let start = Instant::now();
        let mut books = Books::new(1, ms(10));
        for at in [0, 20, 40, 45, 60, 99, 100] {
            books.arrive(start + ms(at), 1 + u32::from(at > 40), ms(0));
        }
        books.turn(start + ms(20), Phase::Before);
        books.turn(start + ms(45), Phase::RedisDown);
        books.close(start + ms(100));

        let parts = books.figures(ms(1)).parts;
        let part = |at: usize| (parts[at].phase, parts[at].lasted, parts[at].sent);
        assert_eq!(parts.len(), 2);
        assert_eq!(part(0), (Phase::Before, ms(25), 2));
        assert_eq!(part(1), (Phase::RedisDown, ms(55), 3));
        assert_eq!(parts[1].accepted, 2);
        assert_eq!((books.arrivals_of(1), books.arrivals_of(2)), (3, 4));
    }

    #[test]
    fn a_silence_may_begin_before_the_first_phase_and_end_with_the_last() {
        let start = Instant::now();
        let mut books = Books::new(9, ms(10));
        for at in [0, 30, 90, 100, 300] {
            books.arrive(start + ms(at), 1, ms(0));
        }
        books.turn(start + ms(40), Phase::Before);
        books.close(start + ms(200));
        assert_eq!(books.figures(ms(60)).silences, [ms(60), ms(100)]);
        assert_eq!(books.figures(ms(61)).silences, [ms(100)]);
    }
}
