//! Texts in headers and in JSON.

use core::fmt::Write;

/// Appends the text as a string of JSON.
pub(super) fn push_quoted(json: &mut String, text: &str) {
    json.push('"');
    let mut rest = text;
    while let Some(at) = rest.bytes().position(is_special) {
        let (plain, special) = rest.split_at(at);
        json.push_str(plain);
        match special.as_bytes()[0] {
            byte @ (b'"' | b'\\') => json.extend(['\\', byte.into()]),
            byte => drop(write!(json, "\\u{byte:04x}")),
        }
        rest = &special[1..];
    }
    json.push_str(rest);
    json.push('"');
}

const fn is_special(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\' | ..=b'\x1f')
}

pub(super) fn unquoted(text: &str) -> &str {
    let inside = text.strip_prefix('"');
    let inside = inside.and_then(|text| text.strip_suffix('"'));
    inside.unwrap_or(text)
}

/// The texts between the marks outside of quotes.
pub(super) fn split(text: &str, mark: char) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    text.split(move |c| {
        let was_escaped = is_escaped;
        is_escaped = is_quoted && c == '\\' && !was_escaped;
        is_quoted ^= c == '"' && !was_escaped;
        c == mark && !is_quoted
    })
}
