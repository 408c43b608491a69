//! The inner sink that the suite hands to an adapter.

use std::{
    error::Error,
    fmt,
    future::Future,
    marker::PhantomData,
    mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_sink::Sink;
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep};

use crate::{
    clock::{now, sleep_until},
    conformance::{Parcel, schedule::Dice},
};

/// The inner sink of every rule: fast or slow, failing on request. It records the calls on it.
///
/// It is `Unpin`, so that an adapter over it can be taken apart after it was polled; [`Unmovable`] is the one that is not.
#[must_use = "sinks do nothing unless polled"]
pub struct Inner<T> {
    room: Room,
    fails_at: Option<usize>,
    log: Arc<Log>,
    has_room: Until,
    is_flushed: Until,
    takes: PhantomData<fn(T)>,
}

impl<T> Inner<T> {
    pub(super) fn new(room: Room, fails_at: Option<usize>, start: Instant) -> Self {
        Self {
            room,
            fails_at,
            log: Arc::new(Log::starting(start)),
            has_room: Until::default(),
            is_flushed: Until::default(),
            takes: PhantomData,
        }
    }

    pub(super) fn log(&self) -> Arc<Log> {
        Arc::clone(&self.log)
    }

    /// The first step of every call.
    fn begin(&self) -> Result<MutexGuard<'_, Entries>, InnerError> {
        let mut entries = self.log.entries();
        let error = InnerError {
            call: entries.calls,
        };
        entries.calls += 1;
        if self.fails_at == Some(error.call) {
            entries.raised = Some(error);
            return Err(error);
        }
        Ok(entries)
    }

    /// Ready when all accepted items are flushed.
    fn poll_flushed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut entries = self.log.entries();
        if mem::take(&mut entries.has_news) {
            let gap = self.room.gap(2 * entries.taken.len());
            self.is_flushed.set(gap);
        }
        let flushed = self.is_flushed.poll(cx);
        entries.was_pending |= flushed.is_pending();
        entries.is_flushed |= flushed.is_ready();
        flushed
    }
}

impl<T: Parcel> Sink<T> for Inner<T> {
    type Error = InnerError;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), InnerError>> {
        drop(self.begin()?);
        let ready = self.has_room.poll(cx);
        let mut entries = self.log.entries();
        entries.was_pending |= ready.is_pending();
        entries.is_ready = ready.is_ready();
        ready.map(Ok)
    }

    fn start_send(mut self: Pin<&mut Self>, parcel: T) -> Result<(), InnerError> {
        let items = parcel.into_items();
        let mut entries = match self.begin() {
            Ok(entries) => entries,
            Err(error) => {
                self.log.entries().spoiled.extend(items);
                return Err(error);
            }
        };
        if !mem::take(&mut entries.is_ready) {
            entries.sent_unasked.extend(&items);
        }
        if entries.is_closing {
            entries.sent_too_late.extend(&items);
        }
        let at = now() - entries.start;
        entries.taken.push((at, items));
        entries.has_news = true;
        entries.is_flushed = false;
        let gap = self.room.gap(2 * entries.taken.len() + 1);
        drop(entries);
        self.has_room.set(gap);
        Ok(())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), InnerError>> {
        drop(self.begin()?);
        self.poll_flushed(cx).map(Ok)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), InnerError>> {
        self.begin()?.is_closing = true;
        ready!(self.poll_flushed(cx));
        self.log.entries().closed += 1;
        Poll::Ready(Ok(()))
    }
}

impl<T> fmt::Debug for Inner<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("room", &self.room)
            .finish_non_exhaustive()
    }
}

/// The error of a call on an [`Inner`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct InnerError {
    /// The number of the call that failed.
    pub call: usize,
}

impl fmt::Display for InnerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the inner sink was told to fail at call {}", self.call)
    }
}

impl Error for InnerError {}

/// How fast an inner sink is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Room {
    Always,
    /// It is pending for a while after each item and at each flush. How long depends only on how many items it has accepted.
    Slow(u64, Duration),
}

impl Room {
    fn gap(self, number: usize) -> Duration {
        match self {
            Self::Always => Duration::ZERO,
            Self::Slow(seed, scale) => {
                let number = u64::try_from(number).unwrap_or_default();
                Dice::new(seed * 1_000 + number).gap(scale)
            }
        }
    }
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Always => "a fast inner sink",
            Self::Slow(..) => "a slow inner sink",
        })
    }
}

/// An instant to wait for.
#[derive(Default)]
struct Until {
    at: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Until {
    fn set(&mut self, gap: Duration) {
        self.at = Some(now() + gap);
        self.sleep = None;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.at {
            Some(at) if now() < at => {
                let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(at)));
                sleep.as_mut().poll(cx)
            }
            _ => Poll::Ready(()),
        }
    }
}

/// The record of calls on an inner sink, which can be read while the adapter owns the sink.
pub(super) struct Log {
    entries: Mutex<Entries>,
}

impl Log {
    fn starting(start: Instant) -> Self {
        Self {
            entries: Mutex::new(Entries {
                start,
                calls: 0,
                taken: Vec::new(),
                spoiled: Vec::new(),
                sent_unasked: Vec::new(),
                sent_too_late: Vec::new(),
                is_ready: false,
                has_news: false,
                is_flushed: true,
                is_closing: false,
                closed: 0,
                was_pending: false,
                raised: None,
            }),
        }
    }

    pub(super) fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, written by one call and read by one rule"
)]
pub(super) struct Entries {
    start: Instant,
    calls: usize,
    /// The items it was given, with the time from the start of the run.
    pub(super) taken: Vec<(Duration, Vec<u32>)>,
    /// The item it was given when it failed.
    pub(super) spoiled: Vec<u32>,
    pub(super) sent_unasked: Vec<u32>,
    pub(super) sent_too_late: Vec<u32>,
    is_ready: bool,
    has_news: bool,
    pub(super) is_flushed: bool,
    is_closing: bool,
    /// How often a close was completed.
    pub(super) closed: usize,
    /// Whether it was pending since the adapter was polled.
    was_pending: bool,
    /// Its error since the adapter was polled.
    raised: Option<InnerError>,
}

impl Entries {
    /// The adapter is polled now.
    pub(super) fn forget_the_last_poll(&mut self) {
        self.was_pending = false;
        self.raised = None;
    }

    pub(super) fn was_pending(&self) -> bool {
        self.was_pending
    }

    pub(super) fn raised(&self) -> Option<InnerError> {
        self.raised
    }

    /// The items that it was given, including those at which it failed.
    pub(super) fn given(&self) -> usize {
        let taken: usize = self.taken.iter().map(|(_, items)| items.len()).sum();
        taken + self.spoiled.len()
    }
}

pin_project! {
    /// An [`Inner`] that is not `Unpin`: see [`check_unmovable`](super::check_unmovable).
    ///
    /// ```compile_fail,E0277
    /// fn move_it<T: Unpin>() {}
    ///
    /// move_it::<testkit::conformance::sink::Unmovable<u32>>();
    /// ```
    #[derive(Debug)]
    #[must_use = "sinks do nothing unless polled"]
    #[project(!Unpin)]
    pub struct Unmovable<T> {
        #[pin]
        inner: Inner<T>,
    }
}

impl<T> Unmovable<T> {
    /// A slow one.
    pub(super) fn new(start: Instant) -> Self {
        let room = Room::Slow(0, Duration::from_millis(10));
        Self {
            inner: Inner::new(room, None, start),
        }
    }

    pub(super) fn log(&self) -> Arc<Log> {
        self.inner.log()
    }
}

impl<T: Parcel> Sink<T> for Unmovable<T> {
    type Error = InnerError;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), InnerError>> {
        self.project().inner.poll_ready(cx)
    }

    fn start_send(self: Pin<&mut Self>, parcel: T) -> Result<(), InnerError> {
        self.project().inner.start_send(parcel)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), InnerError>> {
        self.project().inner.poll_flush(cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), InnerError>> {
        self.project().inner.poll_close(cx)
    }
}
