//! What passes together: a line, a group of lines, or a slice of bytes.

use std::pin::Pin;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures::future;
use futures::stream::{self, Stream, StreamExt};
use paceline::stream::GroupedWithin;
use tokio::sync::mpsc;

use crate::args::Pace;
use crate::job::{End, Item, Job};
use crate::parts::Part;

pub(crate) fn items(args: &Pace, job: &Arc<Job>) -> Pin<Box<dyn Stream<Item = Item>>> {
    let parts = read(Arc::clone(job));
    let mut clock = job.clock();
    let Some(most) = args.batch else {
        let (by_key, costs_bytes) = (args.by_key.clone(), args.bytes);
        return Box::pin(parts.map(move |part| {
            let key = by_key.as_ref().map(|of| of.key(&part.bytes).to_vec());
            let length = u32::try_from(part.bytes.len()).unwrap_or(u32::MAX);
            Item {
                key: key.unwrap_or_default(),
                cost: if costs_bytes { length } else { 1 },
                since: clock.now(),
                ..Item::of(part)
            }
        }));
    };
    let within = args.within.unwrap_or(AT_THE_END);
    let groups = GroupedWithin::try_new(parts, most as usize, within);
    let groups = groups.unwrap_or_else(|error| job.end(&End::Failed(error.to_string())));
    let (separate, end) = (args.separate, args.end_of_line());
    Box::pin(groups.filter_map(move |group| {
        let bytes: Vec<u8> = group.iter().flat_map(|part| &part.bytes).copied().collect();
        // A last line without an end stays so.
        let separator = (separate && bytes.ends_with(&[end])).then_some(end);
        let lines = group.len() as u64;
        let first = group.into_iter().next();
        future::ready(first.map(|first| Item {
            bytes: bytes.into(),
            separator,
            lines,
            since: clock.now(),
            ..Item::of(first)
        }))
    }))
}

/// No input is read for so long.
const AT_THE_END: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Reads in a thread of its own.
fn read(job: Arc<Job>) -> impl Stream<Item = Part> {
    let (sender, mut receiver) = mpsc::channel(1);
    thread::spawn(move || {
        let mut chunk = vec![0; job.unit().chunk()];
        loop {
            let (parts, is_over) = job.read(&mut chunk).unwrap_or_else(|error| {
                job.end(&End::Failed(format!("cannot read the input: {error}")))
            });
            if sender.blocking_send(parts).is_err() || is_over {
                return;
            }
        }
    });
    stream::poll_fn(move |cx| receiver.poll_recv(cx)).flat_map(stream::iter)
}
