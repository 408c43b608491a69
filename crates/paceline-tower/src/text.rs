//! Texts in headers and in JSON.

use core::fmt::Write;

/// Appends the text as a string of JSON.
pub(super) fn push_quoted(json: &mut String, mut text: &str) {
    json.push('"');
    let is_special = |byte| matches!(byte, ..b' ' | b'"' | b'\\');
    // Most texts have nothing special. Without an early end the loop looks at many bytes at once.
    let has_special = text.bytes().fold(false, |has, byte| has | is_special(byte));
    while has_special && let Some(at) = text.bytes().position(is_special) {
        let _ = write!(json, "{}\\u{:04x}", &text[..at], text.as_bytes()[at]);
        text = &text[at + 1..];
    }
    json.push_str(text);
    json.push('"');
}

/// The text without the quotes around it, if it has both.
pub(super) fn unquoted(text: &str) -> &str {
    let inside = text.strip_prefix('"');
    inside.and_then(|it| it.strip_suffix('"')).unwrap_or(text)
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
