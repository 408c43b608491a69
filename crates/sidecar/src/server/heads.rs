//! The heads of HTTP/1 requests in the bytes that the client sent, before hyper reads them.
//!
//! hyper hides a part of a head: it drops a length beside `Transfer-Encoding`, and a second length that is the same. A proxy in front
//! may have believed what was dropped. So the lines of each head are counted. hyper remains the parser, and says how long a body
//! is: an error here could only refuse more requests.

use std::mem::take;
use std::sync::{Mutex, MutexGuard, PoisonError};

use memchr::memchr;

/// Follows the bytes of one connection.
#[derive(Debug, Default)]
pub(super) struct Heads {
    place: Place,
    /// The lines of a head, without empty ones.
    lines: usize,
    /// This line of a head, or of trailers, is not empty.
    is_begun: bool,
}

/// Where the next byte belongs.
#[derive(Clone, Copy, Debug, Default)]
enum Place {
    #[default]
    Head,
    /// The rest of a body with a length.
    Body(u64),
    ChunkSize {
        size: u64,
        is_complete: bool,
    },
    /// The rest of a chunk with its line end.
    Chunk(u64),
    Trailers,
    /// The connection speaks another protocol.
    Other,
}

const CHUNK_SIZE: Place = Place::ChunkSize {
    size: 0,
    is_complete: false,
};

impl Heads {
    pub(super) fn lock(shared: &Mutex<Self>) -> MutexGuard<'_, Self> {
        shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many of these bytes hyper may see now: all, or those up to the end of a head.
    pub(super) fn pass(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while let Some((byte, after)) = rest.split_first() {
            match &mut self.place {
                Place::Head => {
                    // Empty lines may come before a head.
                    if self.reaches_empty_line(&mut rest) && self.lines > 0 {
                        break;
                    }
                }
                Place::Body(left) => {
                    if skip(&mut rest, left) {
                        self.place = Place::Head;
                    }
                }
                Place::Chunk(left) => {
                    if skip(&mut rest, left) {
                        self.place = CHUNK_SIZE;
                    }
                }
                Place::ChunkSize { size, is_complete } => {
                    rest = after;
                    match (*byte as char).to_digit(16) {
                        Some(digit) if !*is_complete => {
                            *size = size.saturating_mul(16).saturating_add(digit.into());
                        }
                        _ if *byte != b'\n' => *is_complete = true,
                        _ if *size == 0 => self.place = Place::Trailers,
                        _ => self.place = Place::Chunk(size.saturating_add(2)),
                    }
                }
                Place::Trailers => {
                    if self.reaches_empty_line(&mut rest) {
                        self.place = Place::Head;
                        self.lines = 0;
                    }
                }
                Place::Other => return bytes.len(),
            }
        }
        bytes.len() - rest.len()
    }

    /// hyper has read a head and kept so many fields. Its body has this length, or is in chunks. Returns whether the client sent other
    /// fields, too.
    pub(super) fn had_more(&mut self, fields: usize, length: Option<u64>) -> bool {
        self.place = match length {
            None => CHUNK_SIZE,
            Some(0) => Place::Head,
            Some(length) => Place::Body(length),
        };
        // The first line is no field.
        take(&mut self.lines) != fields + 1
    }

    /// The connection is one of HTTP/2, or is upgraded.
    pub(super) fn are_over(&mut self) {
        self.place = Place::Other;
    }

    /// Takes lines up to an empty one, or all that is there.
    fn reaches_empty_line(&mut self, rest: &mut &[u8]) -> bool {
        while let Some(end) = memchr(b'\n', rest) {
            let is_empty = !self.is_begun && is_empty(&rest[..end]);
            *rest = &rest[end + 1..];
            self.is_begun = false;
            if is_empty {
                return true;
            }
            self.lines += 1;
        }
        self.is_begun |= !is_empty(take(rest));
        false
    }
}

/// Whether it is no line, but its end at most.
fn is_empty(line: &[u8]) -> bool {
    matches!(line, b"" | b"\r")
}

/// Skips so many bytes, or all that are there. Returns whether none are left to skip.
fn skip(rest: &mut &[u8], left: &mut u64) -> bool {
    let there = usize::try_from(*left).map_or(rest.len(), |left| left.min(rest.len()));
    *rest = &rest[there..];
    *left -= there as u64;
    *left == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A head, its body, its length if it has one, the fields that hyper keeps, and whether there are more.
    type Row = (&'static str, &'static str, Option<u64>, usize, bool);

    const REQUESTS: &[Row] = &[
        ("GET / HTTP/1.1\r\nhost: a\r\n\r\n", "", Some(0), 1, false),
        ("\r\n\nGET / HTTP/1.1\na: b\nc:\n\n", "", Some(0), 2, false),
        (
            "POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\n",
            "GET /\r\n\r\n",
            Some(9),
            1,
            false,
        ),
        (
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\na: b\r\n\r\n",
            "7;a=b\r\na\r\n\r\nbc\r\n0010 \r\n0123456789abcdef\r\n0\r\n\r\n",
            None,
            2,
            false,
        ),
        (
            "POST / HTTP/1.1\r\ncontent-length: 5\r\na: b\r\ntransfer-encoding: chunked\r\n\r\n",
            "0\r\na: b\r\nc: d\r\n\r\n",
            None,
            2,
            true,
        ),
        (
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n",
            "000000000000000000A\r\n0123456789\r\n0;a\r\n\r\n",
            None,
            1,
            true,
        ),
        (
            "POST / HTTP/1.1\ncontent-length: 2\na: b\ncontent-length: 2\n\n",
            "ab",
            Some(2),
            2,
            true,
        ),
        (
            "POST / HTTP/1.1\r\ncontent-length: 1\r\n\r\n",
            "\n",
            Some(1),
            1,
            false,
        ),
        ("GET / HTTP/1.1\r\n\r\n", "", Some(0), 0, false),
    ];

    /// Gives these pieces, and asks at the end of each head as hyper does.
    fn follow(pieces: &[&[u8]]) {
        let mut heads = Heads::default();
        let (mut at, mut requests) = (0, REQUESTS.iter());
        let mut request = requests.next().unwrap();
        let mut end = request.0.len();
        for mut piece in pieces.iter().copied() {
            while !piece.is_empty() {
                let passed = heads.pass(piece);
                assert!(passed > 0, "it looks like the end of the connection");
                piece = &piece[passed..];
                at += passed;
                let (head, body, length, fields, has_more) = *request;
                assert!(at <= end, "beyond {head:?}");
                if at == end {
                    assert_eq!(heads.had_more(fields, length), has_more, "{head:?}");
                    let Some(next) = requests.next() else {
                        return;
                    };
                    request = next;
                    end += body.len() + request.0.len();
                }
            }
        }
        panic!("{request:?} has no end");
    }

    #[test]
    fn each_head_is_judged_by_itself_wherever_the_bytes_are_cut() {
        let all = REQUESTS.iter().map(|row| [row.0, row.1].concat());
        let all = all.collect::<String>().into_bytes();
        follow(&[&all]);
        follow(&all.chunks(1).collect::<Vec<_>>());
        for first in 0..all.len() {
            let (before, after) = all.split_at(first);
            follow(&[before, after]);
            for second in 0..after.len().min(40) {
                let (middle, after) = after.split_at(second);
                follow(&[before, middle, after]);
            }
        }
    }

    #[test]
    fn the_largest_chunk_and_the_largest_body_are_skipped() {
        let mut heads = Heads::default();
        heads.pass(b"GET / HTTP/1.1\r\n\r\n");
        assert!(!heads.had_more(0, None));
        let bytes = b"fffffffffffffffff\r\na: b\r\n\r\na: b\r\n\r\n";
        assert_eq!(heads.pass(bytes), bytes.len());
        assert!(heads.had_more(0, Some(u64::MAX)));
        assert_eq!(heads.pass(bytes), bytes.len());
        assert!(heads.had_more(0, Some(0)));
    }

    #[test]
    fn a_head_that_hyper_has_not_taken_counts_for_the_next_one() {
        let mut heads = Heads::default();
        heads.pass(b"GET / HTTP/1.1\r\n\r\n");
        heads.pass(b"GET / HTTP/1.1\r\n\r\n");
        assert!(heads.had_more(0, Some(0)));
    }

    #[test]
    fn another_protocol_passes_as_it_is() {
        let mut heads = Heads::default();
        heads.are_over();
        assert_eq!(heads.pass(b"a\n\nb\n\nc"), 7);
    }
}
