//! The cost of an element in each adapter while the limit does not bind.

use std::future::{Future, ready};
use std::pin::pin;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput};
use futures::sink::drain;
use futures::{Sink, SinkExt, Stream, StreamExt};
use paceline::concurrency::Permits;
use paceline::limiter::{Owned, Shared};
use paceline::policy::TokenBucket;
use paceline::prelude::*;
use paceline::shed::{Class, WorkerUtilization};
use paceline::time::Rate;
use tokio::io::{AsyncReadExt, AsyncWriteExt, repeat, sink};
use tokio::runtime::{Builder, Runtime};

const ELEMENTS: u64 = 10_000;
const HOUR: Duration = Duration::from_secs(3600);
const GROUP: usize = 100;
const SLICE: usize = 8 * 1024;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    streams(&mut Bench::group("stream", &mut criterion, &runtime));
    sinks(&mut Bench::group("sink", &mut criterion, &runtime));
    bytes(&mut Bench::group("io", &mut criterion, &runtime));
    criterion.final_summary();
}

fn streams(bench: &mut Bench<'_>) {
    bench.stream("bare", items);
    bench.stream("pace/owned", || items().pace(owned()));
    bench.stream("pace/shared", || items().pace(shared()));
    bench.stream("pace/keyed", || items().pace(bucket().keyed().at(1_u64)));
    bench.stream("try_pace", || items().try_pace(owned()));
    bench.stream("min_interval", || items().min_interval(Duration::ZERO));
    bench.stream("pace_by_cost/owned", || {
        items().pace_by_cost(owned(), |_| 1)
    });
    bench.stream("pace_by_cost/shared", || {
        items().pace_by_cost(shared(), |_| 1)
    });
    bench.stream("pace_batches/owned", || {
        items().pace_batches(owned(), GROUP)
    });
    bench.stream("pace_batches/shared", || {
        items().pace_batches(shared(), GROUP)
    });
    bench.stream("pace_by_key", || {
        items().pace_by_key(bucket().keyed(), |item| item % 100, 1_000)
    });
    bench.stream("pace_by_key_and_cost", || {
        let limits = bucket().keyed();
        items().pace_by_key_and_cost(limits, |item| item % 100, |_| 1, 1_000)
    });
    bench.stream("enforce/owned", || items().enforce(owned()));
    bench.stream("enforce/shared", || items().enforce(shared()));
    bench.stream("shed/owned", || items().shed(owned()));
    bench.stream("shed/shared", || items().shed(shared()));
    bench.stream("shed_by", || {
        let shedder = WorkerUtilization::new(|| 0.5);
        items().shed_by(shedder, |_| Class::Sheddable(0))
    });
    bench.stream("grouped_within", || items().grouped_within(GROUP, HOUR));
    bench.stream("grouped_weighted_within", || {
        items().grouped_weighted_within(GROUP as u64, HOUR, |_| 1)
    });
    bench.stream("try_grouped_within", || {
        let items = items().map(Ok::<_, ()>);
        items.try_grouped_within(GROUP, HOUR)
    });
    bench.stream("try_grouped_weighted_within", || {
        let items = items().map(Ok::<_, ()>);
        items.try_grouped_weighted_within(GROUP as u64, HOUR, |_| 1)
    });
    bench.stream("debounce", || items().debounce(Duration::from_micros(1)));
    bench.stream("sample", || items().sample(Duration::from_micros(1)));
    bench.stream("throttle_first", || items().throttle_first(HOUR));
    bench.stream("concurrent", || items().concurrent(Permits::new(10), ready));
}

fn sinks(bench: &mut Bench<'_>) {
    bench.sink("bare", drain);
    bench.sink("pace_sends/owned", || drain().pace_sends(owned()));
    bench.sink("pace_sends/shared", || drain().pace_sends(shared()));
    bench.sink("pace_sends_by_cost/owned", || {
        drain().pace_sends_by_cost(owned(), |_| 1)
    });
    bench.sink("pace_sends_by_cost/shared", || {
        drain().pace_sends_by_cost(shared(), |_| 1)
    });
    bench.sink("enforce_sends/owned", || drain().enforce_sends(owned()));
    bench.sink("enforce_sends/shared", || drain().enforce_sends(shared()));
    bench.sink("shed_sends/owned", || drain().shed_sends(owned()));
    bench.sink("shed_sends/shared", || drain().shed_sends(shared()));
    bench.sink("group_sends", || {
        drain::<Vec<u64>>().group_sends(GROUP, HOUR)
    });
}

fn bytes(bench: &mut Bench<'_>) {
    bench.work("pace_reads/bare", || read(repeat(0)));
    bench.work("pace_reads/owned", || {
        read(repeat(0).pace_reads(bandwidth().owned()))
    });
    bench.work("pace_reads/shared", || {
        read(repeat(0).pace_reads(bandwidth().shared()))
    });
    bench.work("pace_writes/bare", || write(sink()));
    bench.work("pace_writes/owned", || {
        write(sink().pace_writes(bandwidth().owned()))
    });
    bench.work("pace_writes/shared", || {
        write(sink().pace_writes(bandwidth().shared()))
    });
}

/// The benches of one folder, with the names of its adapters.
struct Bench<'a> {
    group: BenchmarkGroup<'a, WallTime>,
    runtime: &'a Runtime,
}

impl<'a> Bench<'a> {
    fn group(folder: &str, criterion: &'a mut Criterion, runtime: &'a Runtime) -> Self {
        let mut group = criterion.benchmark_group(folder);
        group.throughput(Throughput::Elements(ELEMENTS));
        Self { group, runtime }
    }

    fn work<F: Future>(&mut self, name: &str, work: impl Fn() -> F) {
        let runtime = self.runtime;
        self.group.bench_function(name, |bencher| {
            bencher.iter(|| runtime.block_on(async { work().await }));
        });
    }

    fn stream<S: Stream>(&mut self, name: &str, stream: impl Fn() -> S) {
        self.work(name, || async {
            let mut stream = pin!(stream());
            while stream.next().await.is_some() {}
        });
    }

    fn sink<S: Sink<u64>>(&mut self, name: &str, sink: impl Fn() -> S) {
        self.work(name, || async {
            let mut sink = pin!(sink());
            let sent = sink.send_all(&mut items().map(Ok)).await;
            assert!(sent.is_ok(), "the sink takes everything");
        });
    }
}

fn items() -> impl Stream<Item = u64> + Unpin {
    futures::stream::iter(0..ELEMENTS)
}

async fn read(reader: impl AsyncReadExt) {
    let mut reader = pin!(reader);
    let mut buffer = [0; SLICE];
    for _ in 0..ELEMENTS {
        assert_eq!(reader.read(&mut buffer).await.unwrap(), SLICE);
    }
}

async fn write(writer: impl AsyncWriteExt) {
    let mut writer = pin!(writer);
    let buffer = [0; SLICE];
    for _ in 0..ELEMENTS {
        assert_eq!(writer.write(&buffer).await.unwrap(), SLICE);
    }
}

/// A burst so large that the limit never binds and that no key settles during the run.
const fn bucket() -> TokenBucket {
    TokenBucket::new(Rate::per_second(1_000), u32::MAX)
}

/// A burst of bytes so large that the limit never binds.
const fn bandwidth() -> TokenBucket {
    TokenBucket::new(Rate::new(u32::MAX, Duration::from_nanos(1)), u32::MAX)
}

fn owned() -> Owned<TokenBucket> {
    bucket().owned()
}

fn shared() -> Shared<TokenBucket> {
    bucket().shared()
}
