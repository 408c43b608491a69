//! What a provider counts of one account. It shares no code with the library.

#![expect(
    clippy::disallowed_types,
    reason = "a provider has a clock of its own; sharing the library's would share its mistakes"
)]

use core::time::Duration;
use std::{collections::VecDeque, time::Instant};

/// The limits of an account, over any window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) requests: u32,
    pub(crate) tokens: u32,
    pub(crate) window: Duration,
}

/// What the provider has seen.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Tally {
    pub(crate) arrivals: u32,
    /// Answers with 429.
    pub(crate) refused: u32,
    /// Requests and answers with which a window held more than the budget.
    pub(crate) violations: u32,
    /// Requests that were sent although the client knew of a refusal whose wait was not over.
    pub(crate) too_early: u32,
    /// The tokens of all answers.
    pub(crate) tokens: u32,
    /// The tokens that another process has used.
    pub(crate) others_tokens: u32,
}

/// A request came too soon.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Refusal {
    /// The first refusal is number 1.
    pub(crate) number: u32,
    pub(crate) retry_in: Duration,
}

/// One limit, as the headers of an answer say it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Left {
    pub(crate) limit: u32,
    pub(crate) remaining: u32,
    /// Until nothing is counted any more.
    pub(crate) reset_in: Duration,
}

/// The books of one account.
#[derive(Debug)]
pub(crate) struct Books {
    requests: Used,
    tokens: Used,
    /// Another process exhausts the budget, just before the arrivals of these numbers.
    others_at: &'static [u32],
    /// When the wait of each refusal is over.
    refused_until: Vec<Instant>,
    now: Instant,
    tally: Tally,
}

impl Books {
    pub(crate) fn new(budget: Budget, others_at: &'static [u32], now: Instant) -> Self {
        Self {
            requests: Used::new(budget.requests, budget.window),
            tokens: Used::new(budget.tokens, budget.window),
            others_at,
            refused_until: Vec::new(),
            now,
            tally: Tally::default(),
        }
    }

    /// Counts a request, and the tokens of its prompt unless it is refused. `known` is the latest refusal that the client knew of
    /// when it sent the request.
    pub(crate) fn arrive(&mut self, at: Instant, prompt: u32, known: u32) -> Result<(), Refusal> {
        let at = self.advance(at);
        self.tally.arrivals += 1;
        if self.others_at.contains(&self.tally.arrivals) {
            self.tally.others_tokens += self.tokens.remaining();
            self.requests.add(at, self.requests.remaining());
            self.tokens.add(at, self.tokens.remaining());
        }
        let known = known
            .checked_sub(1)
            .and_then(|known| usize::try_from(known).ok());
        let until = known.and_then(|known| self.refused_until.get(known));
        self.tally.too_early += u32::from(until.is_some_and(|until| at < *until));

        self.requests.add(at, 1);
        let tokens_in = self.tokens.room_in(at, prompt);
        if self.requests.room_in(at, 0).is_zero() && tokens_in.is_zero() {
            self.tokens.add(at, prompt);
            return Ok(());
        }
        let retry_in = self.requests.room_in(at, 1).max(tokens_in);
        self.tally.violations += 1;
        self.tally.refused += 1;
        self.refused_until.push(at + retry_in);
        Err(Refusal {
            number: self.tally.refused,
            retry_in,
        })
    }

    /// Counts the tokens of an answer, of which those of the prompt are counted already.
    pub(crate) fn complete(&mut self, at: Instant, prompt: u32, completion: u32) {
        let at = self.advance(at);
        self.tokens.add(at, completion);
        self.tally.tokens += prompt + completion;
        self.tally.violations += u32::from(!self.tokens.room_in(at, 0).is_zero());
    }

    /// The requests and the tokens that are left.
    pub(crate) fn left(&self) -> [(&'static str, Left); 2] {
        [
            ("requests", self.requests.left(self.now)),
            ("tokens", self.tokens.left(self.now)),
        ]
    }

    pub(crate) const fn tally(&self) -> Tally {
        self.tally
    }

    /// The arrival of a request is read before its body, and another answer may have been counted since.
    fn advance(&mut self, at: Instant) -> Instant {
        self.now = self.now.max(at);
        self.requests.forget(self.now);
        self.tokens.forget(self.now);
        self.now
    }
}

/// What was used of one limit in the window that ends now.
#[derive(Debug)]
struct Used {
    limit: u32,
    window: Duration,
    entries: VecDeque<(Instant, u32)>,
}

impl Used {
    const fn new(limit: u32, window: Duration) -> Self {
        Self {
            limit,
            window,
            entries: VecDeque::new(),
        }
    }

    /// The window is half-open: an entry exactly one window ago is not in it.
    fn forget(&mut self, now: Instant) {
        let is_gone = |(at, _): &&(Instant, u32)| now.saturating_duration_since(*at) >= self.window;
        let gone = self.entries.iter().take_while(is_gone).count();
        self.entries.drain(..gone);
    }

    fn add(&mut self, at: Instant, amount: u32) {
        self.entries.push_back((at, amount));
    }

    fn sum(&self) -> u32 {
        self.entries.iter().map(|(_, amount)| amount).sum()
    }

    fn remaining(&self) -> u32 {
        self.limit.saturating_sub(self.sum())
    }

    /// How long until there is room for this amount more; the whole window if there never is.
    fn room_in(&self, now: Instant, amount: u32) -> Duration {
        let mut sum = self.sum().saturating_add(amount);
        let mut wait = Duration::ZERO;
        for (at, used) in &self.entries {
            if sum <= self.limit {
                return wait;
            }
            sum -= used;
            wait = (*at + self.window).saturating_duration_since(now);
        }
        if sum <= self.limit { wait } else { self.window }
    }

    fn left(&self, now: Instant) -> Left {
        let last = self.entries.back();
        let reset_in = last.map(|(at, _)| (*at + self.window).saturating_duration_since(now));
        Left {
            limit: self.limit,
            remaining: self.remaining(),
            reset_in: reset_in.unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Books, Budget, Duration, Instant, Left, Refusal};

    const BUDGET: Budget = Budget {
        requests: 3,
        tokens: 100,
        window: ms(1_000),
    };

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn books(others_at: &'static [u32]) -> (Books, Instant) {
        let start = Instant::now();
        (Books::new(BUDGET, others_at, start), start)
    }

    fn refusal(number: u32, retry_in: u64) -> Result<(), Refusal> {
        Err(Refusal {
            number,
            retry_in: ms(retry_in),
        })
    }

    #[test]
    fn a_window_holds_as_many_requests_as_the_budget_and_refused_ones_count() {
        let (mut books, start) = books(&[]);
        for at in [0, 10, 20] {
            assert_eq!(books.arrive(start + ms(at), 1, 0), Ok(()));
        }
        assert_eq!(books.arrive(start + ms(30), 1, 0), refusal(1, 980));
        assert_eq!(books.arrive(start + ms(999), 1, 0), refusal(2, 21));
        assert_eq!(books.arrive(start + ms(1_020), 1, 0), Ok(()));
        let tally = books.tally();
        assert_eq!((tally.arrivals, tally.refused, tally.violations), (6, 2, 2));
    }

    #[test]
    fn a_prompt_is_counted_when_it_arrives_and_a_completion_when_it_is_done() {
        let (mut books, start) = books(&[]);
        assert_eq!(books.arrive(start, 40, 0), Ok(()));
        books.complete(start + ms(500), 40, 60);
        assert_eq!(books.tally().violations, 0);
        assert_eq!(books.arrive(start + ms(500), 1, 0), refusal(1, 500));

        assert_eq!(books.arrive(start + ms(1_000), 40, 0), Ok(()));
        books.complete(start + ms(1_499), 40, 1);
        assert_eq!(books.tally().violations, 2, "60 + 40 + 1");
        books.complete(start + ms(1_500), 40, 59);
        assert_eq!(books.tally().violations, 2, "40 + 1 + 59");
    }

    #[test]
    fn a_request_is_too_early_if_its_client_knew_of_a_refusal_whose_wait_is_not_over() {
        let (mut books, start) = books(&[2]);
        assert_eq!(books.arrive(start, 10, 0), Ok(()));
        assert_eq!(books.arrive(start, 10, 0), refusal(1, 1_000));
        assert_eq!(books.tally().others_tokens, 90);
        assert_eq!(books.arrive(start, 10, 0), refusal(2, 1_000));
        assert_eq!(books.tally().too_early, 0);
        assert_eq!(books.arrive(start + ms(999), 10, 1), refusal(3, 1));
        assert_eq!(books.arrive(start + ms(1_000), 10, 3), Ok(()));
        assert_eq!(books.tally().too_early, 1);
    }

    #[test]
    fn the_headers_say_what_is_left_and_when_all_of_it_is() {
        let (mut books, start) = books(&[]);
        let left = |limit, remaining, reset_in| Left {
            limit,
            remaining,
            reset_in: ms(reset_in),
        };
        assert_eq!(books.arrive(start, 30, 0), Ok(()));
        assert_eq!(books.arrive(start + ms(600), 30, 0), Ok(()));
        books.complete(start + ms(700), 30, 25);
        assert_eq!(
            books.left(),
            [
                ("requests", left(3, 1, 900)),
                ("tokens", left(100, 15, 1_000))
            ]
        );
    }
}
