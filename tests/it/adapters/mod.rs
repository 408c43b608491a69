//! What all adapters of a kind do, streams and sinks alike: a table of adapters over each claim.

mod collecting;
mod never_pending;
mod paced;
mod panicking;
mod refusing;

use std::pin::pin;

use futures::channel::mpsc;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, Sink, SinkExt, StreamExt};
use paceline::policy::AnyPolicy;

type Items = BoxStream<'static, u32>;

fn policy(text: &str) -> AnyPolicy {
    text.parse().unwrap()
}

/// What comes out of a sink that is sent each item as it comes, whatever it answers.
fn sent<S>(mut items: Items, adapter: impl FnOnce(mpsc::UnboundedSender<u32>) -> S) -> Items
where
    S: Sink<u32> + Send + 'static,
{
    let (outlet, taken) = mpsc::unbounded();
    let sink = adapter(outlet);
    let sending = async move {
        let mut sink = pin!(sink);
        while let Some(item) = items.next().await {
            let _ = sink.send(item).await;
        }
    };
    let nothing = sending.into_stream().flat_map(|()| stream::empty());
    stream::select(taken, nothing).boxed()
}
