//! How long a client may be silent, or not read.
//!
//! A timer a request costs more than the rest of the server. So each thread has one clock of coarse ticks. A connection writes down
//! at which tick it is late, and the worker looks at all connections once a tick. A wait is never shorter than its setting, and at
//! most two ticks longer. A tick passes only while the thread runs: a thread that was stalled does not blame its clients.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::config::Timeouts;
use crate::proxy::Polled;

use super::places::Place;

const NEVER: u64 = u64::MAX;

/// When the process ends: until the head of a request is complete, if its timeout is not shorter.
const GRACE: Duration = Duration::from_secs(1);

/// The clock of one thread, and the waits in its ticks.
#[derive(Debug)]
pub(super) struct Clock {
    now: AtomicU64,
    tick: Duration,
    head: AtomicU64,
    between: AtomicU64,
    body: AtomicU64,
}

impl Clock {
    pub(super) fn new(timeouts: &Timeouts) -> Self {
        let shortest = timeouts.head.min(timeouts.between).min(timeouts.body);
        let tick = (shortest / 10).clamp(Duration::from_millis(5), Duration::from_millis(500));
        let clock = Self {
            now: AtomicU64::new(0),
            tick,
            head: AtomicU64::new(0),
            between: AtomicU64::new(0),
            body: AtomicU64::new(0),
        };
        clock.set(timeouts);
        clock
    }

    /// Takes over waits from a reload. Connections that wait already keep theirs.
    pub(super) fn set(&self, timeouts: &Timeouts) {
        self.head.store(self.ticks(timeouts.head), Relaxed);
        self.between.store(self.ticks(timeouts.between), Relaxed);
        self.body.store(self.ticks(timeouts.body), Relaxed);
    }

    pub(super) fn tick(&self) -> Duration {
        self.tick
    }

    pub(super) fn advance(&self) {
        self.now.store(self.now.load(Relaxed) + 1, Relaxed);
    }

    /// Rounded up, and one more for the tick that is under way.
    fn ticks(&self, wait: Duration) -> u64 {
        let ticks = wait.as_nanos().div_ceil(self.tick.as_nanos()) + 1;
        u64::try_from(ticks).unwrap_or(NEVER / 2)
    }

    fn after(&self, ticks: &AtomicU64) -> u64 {
        self.now.load(Relaxed) + ticks.load(Relaxed)
    }
}

/// What is expected from the client.
mod phase {
    /// A head, or the rest of it.
    pub(super) const HEAD: u8 = 0;
    /// HTTP/1: a body, or nothing until the response is complete.
    pub(super) const EXCHANGE: u8 = 1;
    /// HTTP/1: the next request, or the end.
    pub(super) const BETWEEN: u8 = 2;
    /// A connection of HTTP/2. The number of its streams decides.
    pub(super) const STREAMS: u8 = 3;
    /// The same, after it was asked to end.
    pub(super) const ENDING: u8 = 4;
    /// A stream of HTTP/2.
    pub(super) const STREAM: u8 = 5;
    /// HTTP/1: nothing. The connection is over, and what still comes is thrown away.
    pub(super) const OVER: u8 = 6;
    /// The connection was upgraded, and is no longer watched.
    pub(super) const UPGRADED: u8 = 7;
    /// HTTP/1: the client takes the end of a response.
    pub(super) const ANSWERED: u8 = 8;
}

/// When a connection, or a stream of HTTP/2, is late.
#[derive(Debug)]
pub(super) struct Watch {
    clock: Arc<Clock>,
    phase: AtomicU8,
    /// The tick until which the client has to send something.
    read_by: AtomicU64,
    /// The tick until which the client has to take something.
    write_by: AtomicU64,
    /// HTTP/2: the streams that began since the last look.
    began: AtomicUsize,
    /// HTTP/1: bytes of a body that hyper may not have written yet.
    unwritten: AtomicUsize,
    /// HTTP/1: whether the body waits until they are.
    is_held: AtomicBool,
}

impl Watch {
    /// Of a new connection: its first head is due.
    pub(super) fn connection(clock: &Arc<Clock>) -> Arc<Self> {
        Self::new(clock, phase::HEAD, clock.after(&clock.head))
    }

    fn new(clock: &Arc<Clock>, phase: u8, read_by: u64) -> Arc<Self> {
        Arc::new(Self {
            clock: Arc::clone(clock),
            phase: AtomicU8::new(phase),
            read_by: AtomicU64::new(read_by),
            write_by: AtomicU64::new(NEVER),
            began: AtomicUsize::new(0),
            unwritten: AtomicUsize::new(0),
            is_held: AtomicBool::new(false),
        })
    }

    pub(super) fn is_late(&self) -> bool {
        let now = self.clock.now.load(Relaxed);
        self.read_by.load(Relaxed).min(self.write_by.load(Relaxed)) <= now
    }

    /// HTTP/1: a head is complete.
    pub(super) fn head_is_complete(&self) {
        self.phase.store(phase::EXCHANGE, Relaxed);
        self.read_by.store(NEVER, Relaxed);
    }

    /// HTTP/1: the response is complete.
    fn is_answered(&self) {
        if self.phase.load(Relaxed) == phase::EXCHANGE {
            self.phase.store(phase::ANSWERED, Relaxed);
            self.read_by
                .store(self.clock.after(&self.clock.between), Relaxed);
        }
    }

    /// HTTP/1: all that hyper had is written. Whether the body waited for it.
    pub(super) fn has_flushed(&self) -> bool {
        if self.phase.load(Relaxed) == phase::ANSWERED {
            self.phase.store(phase::BETWEEN, Relaxed);
        }
        self.unwritten.store(0, Relaxed);
        self.is_held.swap(false, Relaxed)
    }

    /// HTTP/1: whether there is neither a request nor a response under way.
    pub(super) fn awaits_head(&self) -> bool {
        matches!(self.phase.load(Relaxed), phase::HEAD | phase::BETWEEN)
    }

    /// HTTP/1: the response switches to another protocol.
    pub(super) fn is_upgraded(&self) {
        self.phase.store(phase::UPGRADED, Relaxed);
    }

    /// HTTP/1: the response is sent, and only the client may be sending.
    pub(super) fn is_over(&self) {
        self.phase.store(phase::OVER, Relaxed);
        self.read_by
            .store(self.clock.after(&self.clock.head), Relaxed);
        self.write_by.store(NEVER, Relaxed);
    }

    /// HTTP/1: whether a part of a head came, and the rest too late.
    pub(super) fn has_late_head(&self) -> bool {
        self.phase.load(Relaxed) == phase::HEAD && self.is_late()
    }

    /// The connection speaks HTTP/2.
    pub(super) fn has_streams(&self) {
        self.phase.store(phase::STREAMS, Relaxed);
        self.streams_were_counted(0);
    }

    /// HTTP/2: a stream of this connection began. It has a watch of its own.
    pub(super) fn stream(&self) -> Arc<Self> {
        self.began.store(self.began.load(Relaxed) + 1, Relaxed);
        self.read_by.store(NEVER, Relaxed);
        Self::new(&self.clock, phase::STREAM, NEVER)
    }

    /// HTTP/2: this number of streams is open now. Without any, the connection has to begin one in time.
    pub(super) fn streams_were_counted(&self, open: usize) {
        let wait = match self.phase.load(Relaxed) {
            phase::STREAMS => &self.clock.between,
            phase::ENDING => &self.clock.head,
            _ => return,
        };
        let began = self.began.swap(0, Relaxed);
        if open > 0 {
            self.read_by.store(NEVER, Relaxed);
        } else if began > 0 || self.read_by.load(Relaxed) == NEVER {
            self.read_by.store(self.clock.after(wait), Relaxed);
        }
    }

    /// The connection has read something. The first byte after an answer begins a head.
    pub(super) fn has_read(&self) {
        if self.phase.load(Relaxed) == phase::BETWEEN {
            self.phase.store(phase::HEAD, Relaxed);
            self.read_by
                .store(self.clock.after(&self.clock.head), Relaxed);
        }
    }

    /// The client does not take what there is. Asking again does not extend the wait.
    pub(super) fn waits_for_reader(&self) {
        if self.write_by.load(Relaxed) == NEVER {
            let by = self.clock.after(&self.clock.body);
            self.write_by.store(by, Relaxed);
        }
    }

    pub(super) fn has_written(&self) {
        self.write_by.store(NEVER, Relaxed);
    }

    /// The connection does not take what its streams have, so they are not late for that.
    pub(super) fn stands_for(&self, stream: &Self) {
        if self.write_by.load(Relaxed) != NEVER && stream.write_by.load(Relaxed) != NEVER {
            stream.has_written();
            stream.waits_for_reader();
        }
    }

    /// HTTP/2: the connection is asked to end, and gets some time for that. `false`: it is not HTTP/2, or had that time.
    pub(super) fn ends(&self) -> bool {
        let has_streams = self.phase.load(Relaxed) == phase::STREAMS;
        if has_streams {
            self.phase.store(phase::ENDING, Relaxed);
            self.read_by
                .store(self.clock.after(&self.clock.head), Relaxed);
        }
        has_streams
    }

    /// The process ends. The rest of a head has little time, and so has a connection of HTTP/2 to see the announcement.
    pub(super) fn drains(&self) {
        if self.ends() || self.phase.load(Relaxed) == phase::HEAD {
            let by = self.clock.now.load(Relaxed) + self.clock.ticks(GRACE);
            self.read_by.fetch_min(by, Relaxed);
        }
    }

    fn is_stream(&self) -> bool {
        self.phase.load(Relaxed) == phase::STREAM
    }
}

/// How much of a body hyper has at most before it has written it, and one frame.
const UNWRITTEN: usize = 16 * 1024;

/// HTTP/2 takes a piece when the client has room for a byte of it. So these are small, and the last one is not worth an attack.
const PIECE: usize = 16 * 1024;
const LAST_PIECE: usize = 1024;

pin_project! {
    /// The body of a response. When it is complete, the connection waits for the next request.
    #[derive(Debug)]
    pub(super) struct Download<B> {
        #[pin]
        body: B,
        watch: Arc<Watch>,
        place: Option<Place>,
        // HTTP/2: the rest of a frame.
        rest: Bytes,
    }

    impl<B> PinnedDrop for Download<B> {
        fn drop(this: Pin<&mut Self>) {
            if !this.watch.is_stream() {
                this.watch.is_answered();
            }
        }
    }
}

impl<B> Download<B> {
    pub(super) fn new(body: B, watch: Arc<Watch>, place: Option<Place>) -> Self {
        if watch.is_stream() {
            // HTTP/2 asks for the first frame when the client has room for it.
            watch.waits_for_reader();
        }
        Self {
            body,
            watch,
            place,
            rest: Bytes::new(),
        }
    }
}

impl<B: Body<Data = Bytes>> Download<B> {
    fn poll_http1(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled<B::Error> {
        let this = self.project();
        let unwritten = this.watch.unwritten.load(Relaxed);
        if unwritten >= UNWRITTEN {
            this.watch.is_held.store(true, Relaxed);
            return Poll::Pending;
        }
        let frame = ready!(this.body.poll_frame(cx));
        if let Some(data) = frame.iter().flatten().find_map(Frame::data_ref) {
            this.watch.unwritten.store(unwritten + data.len(), Relaxed);
        }
        Poll::Ready(frame)
    }

    fn poll_http2(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled<B::Error> {
        let this = self.project();
        // HTTP/2 asks for a frame when the client has room for it.
        this.watch.has_written();
        if this.rest.is_empty() {
            match ready!(this.body.poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => *this.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                ended => return Poll::Ready(ended),
            }
        }
        let piece = match this.rest.len() {
            length @ ..=LAST_PIECE => length,
            length => (length - LAST_PIECE).min(PIECE),
        };
        let piece = this.rest.split_to(piece);
        this.watch.waits_for_reader();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

impl<B: Body<Data = Bytes>> Body for Download<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Polled<B::Error> {
        if self.watch.is_stream() {
            self.poll_http2(cx)
        } else {
            self.poll_http1(cx)
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Full};

    use super::*;

    const TICK: Duration = Duration::from_millis(100);

    /// Ticks of 100 ms: a head is due after 10 of them, a next request after 60, progress of a body after 30.
    fn clock() -> Arc<Clock> {
        let timeouts = Timeouts {
            head: TICK * 10,
            between: TICK * 60,
            body: TICK * 30,
            queue: TICK,
            connect: TICK,
            response: TICK,
            upstream_idle: TICK,
        };
        let clock = Arc::new(Clock::new(&timeouts));
        assert_eq!(clock.tick(), TICK);
        clock
    }

    /// After how many ticks from now it is late. The tick that is under way may be almost over, so it does not count.
    fn late_after(clock: &Clock, watch: &Watch) -> u64 {
        (0..1_000)
            .find(|_| {
                let is_late = watch.is_late();
                clock.advance();
                is_late
            })
            .unwrap_or(NEVER)
    }

    fn pass(clock: &Clock, ticks: u32) {
        (0..ticks).for_each(|_| clock.advance());
    }

    #[test]
    fn the_first_head_is_due_from_the_connect() {
        let clock = clock();
        let watch = Watch::connection(&clock);
        assert_eq!(late_after(&clock, &watch), 11);
    }

    #[test]
    fn bytes_of_a_head_do_not_extend_its_limit() {
        let clock = clock();
        let watch = Watch::connection(&clock);
        for _ in 0..10 {
            watch.has_read();
            clock.advance();
        }
        assert_eq!(late_after(&clock, &watch), 1);
    }

    #[test]
    fn a_request_under_way_is_never_late_by_itself() {
        let clock = clock();
        let watch = Watch::connection(&clock);
        watch.head_is_complete();
        assert_eq!(late_after(&clock, &watch), NEVER);
    }

    #[test]
    fn the_next_head_is_due_from_its_first_byte() {
        let clock = clock();
        let watch = Watch::connection(&clock);
        watch.head_is_complete();
        drop(Download::new(
            Full::new(Bytes::new()),
            Arc::clone(&watch),
            None,
        ));
        watch.has_flushed();
        pass(&clock, 50);
        watch.has_read();
        assert_eq!(late_after(&clock, &watch), 11);

        watch.head_is_complete();
        drop(Download::new(
            Full::new(Bytes::new()),
            Arc::clone(&watch),
            None,
        ));
        assert_eq!(late_after(&clock, &watch), 61);
        assert!(!watch.has_late_head());
    }

    #[test]
    fn only_progress_extends_the_wait_for_a_reader() {
        let clock = clock();
        let watch = Watch::connection(&clock);
        watch.head_is_complete();
        watch.waits_for_reader();
        pass(&clock, 20);
        watch.waits_for_reader();
        assert_eq!(late_after(&clock, &watch), 11);

        watch.has_written();
        watch.waits_for_reader();
        assert_eq!(late_after(&clock, &watch), 31);
        watch.has_written();
        assert_eq!(late_after(&clock, &watch), NEVER);
    }

    #[test]
    fn a_connection_of_http2_is_late_without_streams_only() {
        let clock = clock();
        let watch = Watch::connection(&clock);
        watch.has_streams();
        watch.streams_were_counted(1);
        assert_eq!(late_after(&clock, &watch), NEVER);

        // A stream that came and went between two looks counts.
        watch.streams_were_counted(0);
        pass(&clock, 50);
        drop(watch.stream());
        watch.streams_were_counted(0);
        pass(&clock, 50);
        watch.streams_were_counted(0);
        assert_eq!(late_after(&clock, &watch), 11);

        // It is asked once, and then has the time of a head, after a stream that crosses with that.
        assert!(watch.ends());
        assert!(!watch.ends());
        drop(watch.stream());
        watch.streams_were_counted(1);
        assert_eq!(late_after(&clock, &watch), NEVER);
        watch.streams_were_counted(0);
        assert_eq!(late_after(&clock, &watch), 11);
    }

    #[tokio::test]
    async fn a_stream_is_late_when_nothing_asks_for_its_body() {
        let clock = clock();
        let connection = Watch::connection(&clock);
        connection.has_streams();
        let stream = connection.stream();
        assert_eq!(late_after(&clock, &stream), NEVER);

        let mut body = Download::new(Full::new(Bytes::from("ab")), Arc::clone(&stream), None);
        pass(&clock, 20);
        body.frame().await.unwrap().unwrap();
        assert_eq!(late_after(&clock, &stream), 31);

        assert!(body.frame().await.is_none());
        assert_eq!(late_after(&clock, &stream), NEVER);
    }

    #[test]
    fn a_reload_changes_the_waits_that_begin_then() {
        let clock = clock();
        let before = Watch::connection(&clock);
        let mut timeouts = Timeouts {
            head: TICK * 20,
            between: TICK,
            body: TICK,
            queue: TICK,
            connect: TICK,
            response: TICK,
            upstream_idle: TICK,
        };
        clock.set(&timeouts);
        let after = Watch::connection(&clock);
        assert_eq!(late_after(&clock, &before), 11);
        pass(&clock, 8);
        assert!(!after.is_late());
        pass(&clock, 1);
        assert!(after.is_late());

        // Rounded up to whole ticks.
        timeouts.head = TICK + Duration::from_nanos(1);
        clock.set(&timeouts);
        assert_eq!(late_after(&clock, &Watch::connection(&clock)), 3);
    }
}
