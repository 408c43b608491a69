//! Contenders that let many elements pass while their limit does not bind.

use std::future::Future;
use std::pin::{Pin, pin};

use futures::{Sink, SinkExt, Stream, StreamExt};

/// A contender, and the part in which it is compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hot {
    pub(crate) part: Part,
    pub(crate) name: &'static str,
    /// The number of elements.
    pub(crate) run: fn(u64) -> Work,
}

pub(crate) type Work = Pin<Box<dyn Future<Output = ()>>>;

/// Those of one part do the same.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Part {
    Stream,
    Waiting,
    Asking,
    OwnStreams,
    OwnSinks,
    OwnIo,
    Clocks,
    Direct,
    DirectRefused,
    ByKey,
    ByKeyRefused,
    UnderWay,
    UnderWayRefused,
}

impl Part {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Stream => "a stream through one limit",
            Self::Waiting => "a call that would wait",
            Self::Asking => "a call that does not wait",
            Self::OwnStreams => "all stream adapters",
            Self::OwnSinks => "all sink adapters",
            Self::OwnIo => "readers and writers, 8 KiB an element",
            Self::Clocks => "readings of a clock",
            Self::Direct => "one limit for all requests, passed",
            Self::DirectRefused => "one limit for all requests, refused",
            Self::ByKey => "a limit for each key, passed",
            Self::ByKeyRefused => "a limit for each key, refused",
            Self::UnderWay => "requests under way, passed",
            Self::UnderWayRefused => "requests under way, refused",
        }
    }
}

pub(super) fn items(count: u64) -> impl Stream<Item = u64> + Unpin + 'static {
    futures::stream::iter(0..count)
}

pub(super) fn drained<S: Stream + 'static>(stream: S) -> Work {
    Box::pin(async move {
        let mut stream = pin!(stream);
        while stream.next().await.is_some() {}
    })
}

pub(super) fn filled<S>(sink: S, count: u64) -> Work
where
    S: Sink<u64> + 'static,
{
    Box::pin(async move {
        let mut sink = pin!(sink);
        let sent = sink.send_all(&mut items(count).map(Ok)).await;
        assert!(sent.is_ok(), "the sink takes everything");
    })
}

/// Asks again and again without waiting.
pub(super) fn asked(count: u64, mut ask: impl FnMut() -> bool + 'static) -> Work {
    Box::pin(async move {
        for _ in 0..count {
            assert!(std::hint::black_box(ask()), "the limit does not bind");
        }
    })
}
