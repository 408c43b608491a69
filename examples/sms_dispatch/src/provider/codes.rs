//! A provider of one-time passwords and news that slows down for a while and says nothing of it. It counts arrivals with code of its
//! own.

#![expect(
    clippy::disallowed_types,
    reason = "a provider has a clock of its own; sharing the library's would share its mistakes"
)]

use core::{future::ready, time::Duration};
use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use axum::{Extension, Json, Router, extract::State, http::StatusCode, routing::post};
use serde::{Deserialize, Serialize};

use crate::strict::{self, Arrival, Sliding};

/// The contract: at most this number in any second.
pub(crate) const CONTRACT: u32 = 40;
/// What it really takes, from a time after the first message on.
pub(crate) const TAKES: [(Duration, u32); 3] = [
    (Duration::ZERO, CONTRACT),
    (Duration::from_secs(5), 12),
    (Duration::from_secs(13), CONTRACT),
];
/// One in this number fails before it is accepted.
const FAILS: u32 = 25;
const SECOND: Duration = Duration::from_secs(1);

/// A message as it is sent.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Wire {
    pub(crate) number: u32,
    pub(crate) to: u32,
}

/// What it counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Messages, each counted once.
    pub(crate) accepted: u32,
    pub(crate) duplicates: u32,
    /// Messages that came after a later one to the same number.
    pub(crate) out_of_order: u32,
    pub(crate) refused: u32,
    pub(crate) failed: u32,
    /// Arrivals above the contract.
    pub(crate) violations: u32,
}

/// The running provider.
#[derive(Clone, Debug)]
pub(crate) struct Codes {
    pub(crate) address: SocketAddr,
    books: Arc<Mutex<Books>>,
}

#[derive(Debug)]
struct Books {
    contract: Sliding,
    /// The first arrival, and the accepted ones of the last second.
    first: Option<Instant>,
    recent: VecDeque<Instant>,
    arrivals: u32,
    known: HashSet<u32>,
    last_to: HashMap<u32, u32>,
    tally: Tally,
}

impl Codes {
    pub(crate) fn start() -> io::Result<Self> {
        let listener = strict::listen()?;
        let books = Books {
            contract: Sliding::new(CONTRACT, SECOND),
            first: None,
            recent: VecDeque::new(),
            arrivals: 0,
            known: HashSet::new(),
            last_to: HashMap::new(),
            tally: Tally::default(),
        };
        let codes = Self {
            address: listener.local_addr()?,
            books: Arc::new(Mutex::new(books)),
        };
        let router = Router::new().route("/", post(Self::take));
        strict::in_background(strict::serve(listener, router.with_state(codes.clone())))?;
        Ok(codes)
    }

    pub(crate) fn tally(&self) -> Tally {
        self.books().tally
    }

    fn take(
        State(codes): State<Self>,
        Extension(arrival): Extension<Arrival>,
        Json(message): Json<Wire>,
    ) -> impl Future<Output = StatusCode> {
        ready(codes.books().take(arrival.0, message))
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    fn take(&mut self, at: Instant, message: Wire) -> StatusCode {
        self.tally.violations += u32::from(self.contract.is_over(at, 1));
        let since = at.saturating_duration_since(*self.first.get_or_insert(at));
        let phases = TAKES.iter().rev();
        let taken = phases.clone().find(|(from, _)| *from <= since);
        let most = taken.map_or(CONTRACT, |(_, most)| *most) as usize;
        self.recent
            .retain(|earlier| at.saturating_duration_since(*earlier) < SECOND);
        if self.recent.len() >= most {
            self.tally.refused += 1;
            return StatusCode::TOO_MANY_REQUESTS;
        }
        self.recent.push_back(at);
        self.arrivals += 1;
        if self.arrivals % FAILS == 0 {
            self.tally.failed += 1;
            return StatusCode::INTERNAL_SERVER_ERROR;
        }
        if !self.known.insert(message.number) {
            self.tally.duplicates += 1;
            return StatusCode::OK;
        }
        self.tally.accepted += 1;
        let last = self.last_to.insert(message.to, message.number);
        self.tally.out_of_order += u32::from(last > Some(message.number));
        StatusCode::OK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_fewer_for_a_while_and_counts_what_is_wrong() {
        let codes = Codes::start().unwrap();
        let mut books = codes.books();
        let start = Instant::now();
        let mut at = |millis: u64, number, to| {
            let at = start + Duration::from_millis(millis);
            books.take(at, Wire { number, to }).as_u16()
        };
        assert_eq!(at(0, 7, 1), 200);
        assert_eq!(at(1, 7, 1), 200);
        assert_eq!(at(2, 5, 1), 200);
        assert_eq!(at(3, 6, 2), 200);
        for number in 0..12 {
            assert_eq!(at(6_000, 100 + number, 3), 200);
        }
        assert_eq!(at(6_999, 112, 3), 429);
        let statuses: Vec<_> = (0..41).map(|number| at(14_000, 200 + number, 4)).collect();
        assert_eq!((statuses[8], statuses[33]), (500, 500));
        assert_eq!(statuses[40], 429);
        let tally = books.tally;
        assert_eq!((tally.accepted, tally.duplicates), (3 + 12 + 38, 1));
        assert_eq!((tally.out_of_order, tally.violations), (1, 1));
        assert_eq!((tally.refused, tally.failed), (2, 2));
    }
}
