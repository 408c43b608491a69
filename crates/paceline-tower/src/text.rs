//! Texts in headers and in JSON.

use core::fmt::Write;

/// Appends the text as a string of JSON.
pub(super) fn push_quoted(json: &mut String, text: &str) {
    json.push('"');
    let mut rest = text;
    let is_special = |byte| matches!(byte, ..b' ' | b'"' | b'\\');
    // To search for a byte is quicker than to look at each character.
    while let Some(at) = rest.bytes().position(is_special) {
        let _ = write!(json, "{}\\u{:04x}", &rest[..at], rest.as_bytes()[at]);
        rest = &rest[at + 1..];
    }
    json.push_str(rest);
    json.push('"');
}

/// The text without the quotes around it, if it has both.
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
