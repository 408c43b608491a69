//! The input in parts: lines, or slices of bytes.

use bytes::Bytes;

/// What the input consists of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit {
    /// Lines that end in this byte.
    Line(u8),
    /// Bytes, of which that many take a permit together.
    Byte(usize),
}

/// How many bytes one read takes at most. That many may be read ahead, and twice as many may be under way.
const CHUNK_OF_LINES: usize = 8 * 1024;
pub(crate) const CHUNK_OF_BYTES: usize = 64 * 1024;

impl Unit {
    pub(crate) const fn chunk(self) -> usize {
        match self {
            Self::Line(_) => CHUNK_OF_LINES,
            Self::Byte(_) => CHUNK_OF_BYTES,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Line(_) => "line",
            Self::Byte(_) => "byte",
        }
    }
}

/// A line with its end, which the last one may lack, or a slice.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) bytes: Bytes,
    /// From 1.
    pub(crate) number: u64,
    /// How many bytes of the input come before.
    pub(crate) place: u64,
}

/// Divides chunks into parts.
#[derive(Debug)]
pub(crate) struct Parts {
    unit: Unit,
    /// The beginning of the next line.
    pub(crate) line: Vec<u8>,
    number: u64,
    place: u64,
}

impl Parts {
    pub(crate) const fn new(unit: Unit) -> Self {
        Self {
            unit,
            line: Vec::new(),
            number: 0,
            place: 0,
        }
    }

    /// How many lines, also one that has only begun, or how many bytes.
    pub(crate) fn count(&self) -> u64 {
        match self.unit {
            Unit::Line(_) => self.number + u64::from(!self.line.is_empty()),
            Unit::Byte(_) => self.place,
        }
    }

    /// The parts that end in this chunk.
    pub(crate) fn of(&mut self, chunk: &[u8]) -> Vec<Part> {
        match self.unit {
            Unit::Byte(slice) => {
                let mut chunk = Bytes::copy_from_slice(chunk);
                let mut slices = Vec::new();
                while !chunk.is_empty() {
                    let slice = chunk.split_to(slice.min(chunk.len()));
                    slices.push(self.part(slice));
                }
                slices
            }
            Unit::Line(end) => {
                let mut complete = Vec::new();
                for part in chunk.split_inclusive(|&byte| byte == end) {
                    self.line.extend_from_slice(part);
                    if part.ends_with(&[end]) {
                        complete.extend(self.last());
                    }
                }
                complete
            }
        }
    }

    pub(crate) fn last(&mut self) -> Option<Part> {
        let line = std::mem::take(&mut self.line);
        (!line.is_empty()).then(|| self.part(line.into()))
    }

    fn part(&mut self, bytes: Bytes) -> Part {
        let place = self.place;
        self.place += bytes.len() as u64;
        self.number += 1;
        Part {
            bytes,
            number: self.number,
            place,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(parts: impl IntoIterator<Item = Part>) -> Vec<(u64, u64, Vec<u8>)> {
        let parts = parts.into_iter();
        parts
            .map(|it| (it.number, it.place, it.bytes.to_vec()))
            .collect()
    }

    #[test]
    fn a_line_may_come_in_parts_and_the_last_one_may_have_no_newline() {
        let mut parts = Parts::new(Unit::Line(b'\n'));
        assert_eq!(all(parts.of(b"a")), []);
        assert_eq!(
            all(parts.of(b"b\n\nc")),
            [(1, 0, b"ab\n".to_vec()), (2, 3, b"\n".to_vec())]
        );
        assert_eq!(parts.count(), 3);
        assert_eq!(all(parts.of(b"\n\xff")), [(3, 4, b"c\n".to_vec())]);
        assert_eq!(all(parts.last()), [(4, 6, b"\xff".to_vec())]);
        assert_eq!(all(parts.last()), []);
        assert_eq!(parts.count(), 4);
    }

    #[test]
    fn a_slice_does_not_care_for_lines() {
        let mut parts = Parts::new(Unit::Byte(2));
        assert_eq!(
            all(parts.of(b"a\n\0")),
            [(1, 0, b"a\n".to_vec()), (2, 2, b"\0".to_vec())]
        );
        assert_eq!(all(parts.of(b"b")), [(3, 3, b"b".to_vec())]);
        assert_eq!(parts.count(), 4);
    }
}
