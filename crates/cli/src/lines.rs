//! The lines of standard input.

use std::sync::Arc;
use std::thread;

use futures::stream::{self, Stream, StreamExt};
use tokio::sync::mpsc;

use crate::job::{End, Job};

/// A line with its newline. The last one may have none.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) bytes: Vec<u8>,
    /// From 1.
    pub(crate) number: u64,
}

/// How many bytes one read takes at most. That many may be read ahead, and twice as many may be under way.
const CHUNK: usize = 8 * 1024;

/// Reads in a thread of its own.
pub(crate) fn read(job: Arc<Job>) -> impl Stream<Item = Line> {
    let (sender, mut receiver) = mpsc::channel(1);
    thread::spawn(move || {
        let mut chunk = vec![0; CHUNK];
        let mut lines = Lines::default();
        loop {
            let length = job.read(&mut chunk).unwrap_or_else(|error| {
                job.end(&End::Failed(format!("cannot read the input: {error}")))
            });
            let complete = match length {
                0 => lines.last().into_iter().collect(),
                _ => lines.of(&chunk[..length]),
            };
            let is_over = length == 0;
            if sender.blocking_send(complete).is_err() || is_over {
                return;
            }
        }
    });
    stream::poll_fn(move |cx| receiver.poll_recv(cx)).flat_map(stream::iter)
}

/// Divides chunks into lines.
#[derive(Default)]
struct Lines {
    /// The beginning of the next line.
    rest: Vec<u8>,
    number: u64,
}

impl Lines {
    /// The lines that end in this chunk.
    fn of(&mut self, chunk: &[u8]) -> Vec<Line> {
        let mut complete = Vec::new();
        for part in chunk.split_inclusive(|&byte| byte == b'\n') {
            self.rest.extend_from_slice(part);
            if part.ends_with(b"\n") {
                complete.extend(self.last());
            }
        }
        complete
    }

    fn last(&mut self) -> Option<Line> {
        if self.rest.is_empty() {
            return None;
        }
        self.number += 1;
        Some(Line {
            bytes: std::mem::take(&mut self.rest),
            number: self.number,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_may_come_in_parts_and_the_last_one_may_have_no_newline() {
        let mut lines = Lines::default();
        let mut of = |chunk: &[u8]| -> Vec<(u64, Vec<u8>)> {
            let lines = match chunk {
                b"" => lines.last().into_iter().collect(),
                _ => lines.of(chunk),
            };
            let parts = lines.into_iter().map(|line| (line.number, line.bytes));
            parts.collect()
        };
        assert_eq!(of(b"a"), []);
        assert_eq!(of(b"b\n\nc"), [(1, b"ab\n".to_vec()), (2, b"\n".to_vec())]);
        assert_eq!(of(b"\n\xff"), [(3, b"c\n".to_vec())]);
        assert_eq!(of(b""), [(4, b"\xff".to_vec())]);
        assert_eq!(of(b""), []);
    }
}
