use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Frame, SizeHint};

use super::{Broken, FIELDS};

/// Where the body of a response ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Framing {
    /// After this number of bytes. 0: it has ended.
    Length(u64),
    Chunked(Chunk),
    /// With the connection.
    Close,
}

/// What comes next of a chunked body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Chunk {
    Size,
    Data(u64),
    /// The end of the line after the data.
    End,
    Trailers,
}

/// The line with the size of a chunk, extensions included.
const LONGEST_LINE: usize = 1024;

/// All trailers together.
const TRAILER_BYTES: usize = 16 * 1024;

impl Framing {
    pub(super) const OVER: Self = Self::Length(0);

    pub(super) fn is_over(self) -> bool {
        self == Self::OVER
    }

    pub(super) fn size_hint(self) -> SizeHint {
        match self {
            Self::Length(left) => SizeHint::with_exact(left),
            Self::Chunked(_) | Self::Close => SizeHint::new(),
        }
    }

    /// Takes the next frame of what was received. `None`: the body is over, or more has to come.
    pub(super) fn next(&mut self, received: &mut Bytes) -> Result<Option<Frame<Bytes>>, Broken> {
        loop {
            match self {
                Self::Length(left) => return Ok(data(left, received)),
                Self::Close => return Ok(data(&mut { u64::MAX }, received)),
                Self::Chunked(Chunk::Data(left)) => {
                    let data = data(left, received);
                    if *left == 0 {
                        *self = Self::Chunked(Chunk::End);
                    }
                    return Ok(data);
                }
                Self::Chunked(Chunk::End) => {
                    if received.len() < 2 {
                        return Ok(None);
                    }
                    if !received.starts_with(b"\r\n") {
                        return Err(Broken::Malformed("a chunk is longer than its size"));
                    }
                    received.advance(2);
                    *self = Self::Chunked(Chunk::Size);
                }
                Self::Chunked(Chunk::Size) => {
                    let Some((size, line)) = size(received)? else {
                        return Ok(None);
                    };
                    received.advance(line);
                    *self = Self::Chunked(match size {
                        0 => Chunk::Trailers,
                        size => Chunk::Data(size),
                    });
                }
                Self::Chunked(Chunk::Trailers) => {
                    let Some(trailers) = trailers(received)? else {
                        return Ok(None);
                    };
                    *self = Self::OVER;
                    return Ok((!trailers.is_empty()).then(|| Frame::trailers(trailers)));
                }
            }
        }
    }
}

fn data(left: &mut u64, received: &mut Bytes) -> Option<Frame<Bytes>> {
    let most = usize::try_from(*left).unwrap_or(usize::MAX);
    let data = received.split_to(received.len().min(most));
    *left -= data.len() as u64;
    (!data.is_empty()).then(|| Frame::data(data))
}

/// The size of a chunk and the length of its line. `None`: the line is not complete.
fn size(received: &[u8]) -> Result<Option<(u64, usize)>, Broken> {
    let known = &received[..received.len().min(LONGEST_LINE)];
    let Some(end) = known.iter().position(|byte| *byte == b'\n') else {
        return match known.len() {
            LONGEST_LINE => Err(Broken::Malformed("the line before a chunk is too long")),
            _ => Ok(None),
        };
    };
    let malformed = Broken::Malformed("the line before a chunk is malformed");
    let Some(line) = known[..end].strip_suffix(b"\r") else {
        return Err(malformed);
    };
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit());
    let (digits, extensions) = line.split_at(digits.count());
    // Some services fill the size up with spaces.
    let mut after = extensions.iter().skip_while(|byte| **byte == b' ');
    let is_extended = after.next().is_none_or(|byte| *byte == b';');
    let digits = std::str::from_utf8(digits).unwrap_or_default();
    match u64::from_str_radix(digits, 16) {
        Ok(size) if is_extended && !extensions.contains(&b'\r') => Ok(Some((size, end + 1))),
        _ => Err(malformed),
    }
}

/// The trailers, which may be none. `None`: they are not complete.
fn trailers(received: &mut Bytes) -> Result<Option<HeaderMap>, Broken> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let (length, fields) = match httparse::parse_headers(received, &mut fields)? {
        httparse::Status::Complete(parsed) => parsed,
        httparse::Status::Partial => (usize::MAX, &[][..]),
    };
    if received.len().min(length) > TRAILER_BYTES {
        return Err(Broken::Malformed("the trailers are too large"));
    }
    if length == usize::MAX {
        return Ok(None);
    }
    // httparse takes lines that end with a line feed alone.
    let lines = received[..length].split_inclusive(|byte| *byte == b'\n');
    if !{ lines }.all(|line| line.ends_with(b"\r\n")) {
        return Err(Broken::Malformed("the trailers are malformed"));
    }
    let mut trailers = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let (name, value) = name_and_value(field, received)?;
        trailers.append(name, value);
    }
    received.advance(length);
    Ok(Some(trailers))
}

/// A field of what was received, whose value is not copied.
pub(super) fn name_and_value(
    field: &httparse::Header<'_>,
    received: &Bytes,
) -> Result<(HeaderName, HeaderValue), Broken> {
    let name = HeaderName::from_bytes(field.name.as_bytes());
    let name = name.map_err(|_| Broken::Malformed("the name of a field is malformed"))?;
    let value = HeaderValue::from_maybe_shared(received.slice_ref(field.value));
    let value = value.map_err(|_| Broken::Malformed("the value of a field is malformed"))?;
    Ok((name, value))
}
