use core::fmt::Write as _;

use super::ConfigError;

/// A key is at most so long, in bytes, before what is unusual in it is written otherwise.
const LONGEST: usize = 200;

/// `prefix:{name}`: what a name is called in Redis, for all its keys. They lie in the same slot of a cluster.
///
/// The prefix is what [`escaped`] made, or several such with `:` in between.
pub(super) fn tagged(prefix: &str, name: &str) -> Result<String, ConfigError> {
    let name = escaped("a name", name)?;
    Ok(format!("{prefix}:{{{name}}}"))
}

/// Letters, digits and `-._~@/` stay as they are, all else becomes `%` and two digits for each byte: no two names share a key.
pub(super) fn escaped(what: &str, text: &str) -> Result<String, ConfigError> {
    if text.is_empty() || text.len() > LONGEST {
        let bytes = text.len();
        return Err(ConfigError::new(format!(
            "{what} of a limit in Redis has 1 to {LONGEST} bytes, got {bytes}"
        )));
    }
    let mut key = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'@' | b'/' => {
                key.push(char::from(byte));
            }
            _ => {
                // To write into a text does not fail.
                let _ = write!(key, "%{byte:02X}");
            }
        }
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_meaning_in_a_key_is_written_otherwise() {
        assert_eq!(tagged("app", "bob").unwrap(), "app:{bob}");
        assert_eq!(escaped("a prefix", "a:b").unwrap(), "a%3Ab");
        assert_eq!(tagged("a:b", "{x}%").unwrap(), "a:b:{%7Bx%7D%25}");
        assert_eq!(tagged("app", "é\n").unwrap(), "app:{%C3%A9%0A}");
    }

    #[test]
    fn what_is_empty_or_too_long_is_refused_with_its_length() {
        for (name, bytes) in [(String::new(), "got 0"), ("x".repeat(201), "got 201")] {
            let error = tagged("app", &name).unwrap_err().to_string();
            assert!(
                error.ends_with(bytes) && error.contains("1 to 200 bytes"),
                "{error}"
            );
        }
        assert!(tagged("app", &"x".repeat(200)).is_ok());
    }
}
