use std::mem::MaybeUninit;

use bytes::{Buf, Bytes};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use hyper::ext::ReasonPhrase;

use super::framing::{Chunk, Framing, name_and_value};
use super::{Broken, FIELDS};
use crate::proxy::fields;

/// The head of a response. The fields of its framing are not in it, except the length.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) response: Response<()>,
    pub(super) framing: Framing,
    /// Whether the connection can have another request.
    pub(super) is_kept: bool,
}

/// Of the head of a response.
const BYTES: usize = 64 * 1024;

/// Takes the head of the response to a request with this method of what was received. `None`: it is not complete. Its fields go into
/// the map that is spare, which is empty and needs no allocation.
pub(super) fn parse(
    received: &mut Bytes,
    method: &Method,
    spare: &mut HeaderMap,
) -> Result<Option<Head>, Broken> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS];
    let mut parsed = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let status = config.parse_response_with_uninit_headers(&mut parsed, received, &mut fields)?;
    let length = match status {
        httparse::Status::Complete(length) => Some(length),
        httparse::Status::Partial => None,
    };
    if length.unwrap_or(received.len()) > BYTES {
        return Err(Broken::Malformed("the head of the response is too large"));
    }
    let Some(length) = length else {
        return Ok(None);
    };

    let status = StatusCode::from_u16(parsed.code.unwrap_or_default());
    let status =
        status.map_err(|_| Broken::Malformed("the status of the response is malformed"))?;
    let is_newest = parsed.version == Some(1);
    let mut framing = Lengths::default();
    let mut is_kept = is_newest;
    let mut headers = std::mem::take(spare);
    headers.reserve(parsed.headers.len() + fields::ADDED_FOR_CLIENT);
    for field in &*parsed.headers {
        let (name, value) = name_and_value(field, received)?;
        if name == CONTENT_LENGTH {
            framing.length(value.as_bytes())?;
        } else if name == TRANSFER_ENCODING {
            framing.coding(value.as_bytes(), is_newest)?;
            continue;
        } else if name == CONNECTION {
            let mut names_fields = false;
            for token in fields::tokens(&value) {
                if token.eq_ignore_ascii_case(b"close") {
                    framing.closes = true;
                } else if token.eq_ignore_ascii_case(b"keep-alive") {
                    is_kept = true;
                } else {
                    names_fields = true;
                }
            }
            if !names_fields {
                continue;
            }
        }
        headers.append(name, value);
    }
    is_kept &= !framing.closes;
    let framing = framing.of(method, status)?;

    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.version_mut() = if is_newest {
        Version::HTTP_11
    } else {
        Version::HTTP_10
    };
    *response.headers_mut() = headers;
    let reason = parsed.reason.unwrap_or_default();
    if status.canonical_reason() != Some(reason)
        && let Ok(reason) = ReasonPhrase::try_from(reason.as_bytes())
    {
        response.extensions_mut().insert(reason);
    }
    received.advance(length);
    Ok(Some(Head {
        response,
        framing,
        is_kept: is_kept && framing != Framing::Close,
    }))
}

/// What the fields say about the end of the body.
#[derive(Default)]
struct Lengths {
    length: Option<u64>,
    is_chunked: bool,
    closes: bool,
}

impl Lengths {
    fn length(&mut self, value: &[u8]) -> Result<(), Broken> {
        let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        let text = std::str::from_utf8(value).ok().filter(|_| is_number);
        let length = text.and_then(|text| text.parse().ok());
        match (length, self.length) {
            (Some(length), None) => self.length = Some(length),
            (None, _) => return Err(Broken::Malformed("the length of the response is malformed")),
            (_, Some(_)) => return Err(Broken::Malformed("the response has several lengths")),
        }
        Ok(())
    }

    fn coding(&mut self, value: &[u8], is_newest: bool) -> Result<(), Broken> {
        if self.is_chunked || !is_newest || !value.eq_ignore_ascii_case(b"chunked") {
            return Err(Broken::Malformed(
                "the coding of the response is not `chunked`",
            ));
        }
        self.is_chunked = true;
        Ok(())
    }

    fn of(&self, method: &Method, status: StatusCode) -> Result<Framing, Broken> {
        let has_none = status.is_informational()
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
            || *method == Method::HEAD;
        match (self.length, self.is_chunked) {
            (Some(_), true) => Err(Broken::Malformed("the response has a length and a coding")),
            _ if has_none => Ok(Framing::OVER),
            (_, true) => Ok(Framing::Chunked(Chunk::Size)),
            (Some(length), false) => Ok(Framing::Length(length)),
            (None, false) => Ok(Framing::Close),
        }
    }
}

/// Writes the head of a request without the fields of its framing, which follow, and without its end.
pub(super) fn write<B>(head: &mut Vec<u8>, request: &Request<B>) {
    let path = request.uri().path_and_query();
    head.extend_from_slice(request.method().as_str().as_bytes());
    head.extend_from_slice(b" ");
    head.extend_from_slice(path.map_or("/", |path| path.as_str()).as_bytes());
    head.extend_from_slice(b" HTTP/1.1\r\n");
    write_fields(head, request.headers());
}

/// Writes fields, except the length.
pub(super) fn write_fields(head: &mut Vec<u8>, headers: &HeaderMap) {
    for (name, value) in headers {
        if *name != CONTENT_LENGTH {
            head.extend_from_slice(name.as_str().as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
    }
}
