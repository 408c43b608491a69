//! The policy of the command line.

use paceline::policy::AnyPolicy;

use crate::Failure;
use crate::args::Limit;

/// The policy that the arguments name. If lines cost their bytes, numbers may have a suffix.
pub(crate) fn policy(limit: &Limit, bytes: bool) -> Result<AnyPolicy, Failure> {
    let mut text = limit.policy.join(" ");
    if let Some(burst) = &limit.burst {
        if text.split_whitespace().any(|word| word == "and") {
            let message = format!(
                "--burst {burst} is for a single rate: write `burst {burst}` after the rate that it is for in `{text}`"
            );
            return Err(Failure::Argument(message));
        }
        text = format!("{text} burst {burst}");
    }
    if bytes {
        let words = text.split_whitespace().map(number);
        text = words.collect::<Result<Vec<_>, _>>()?.join(" ");
    }
    let policy: Result<AnyPolicy, _> = text.parse();
    let policy = policy.map_err(|error| Failure::Argument(error.to_string()))?;
    Ok(if bytes { policy } else { of_requests(&policy) })
}

/// The same policy without `per request`, which means nothing where each request costs 1.
fn of_requests(policy: &AnyPolicy) -> AnyPolicy {
    let text = policy.to_string().replace(" per request", "");
    text.parse().unwrap_or_else(|_| policy.clone())
}

/// The word with its number written out: `64K` is `65536`, and `1M/s` is `1048576/s`.
fn number(word: &str) -> Result<String, Failure> {
    let (number, rest) = word.split_at(word.find('/').unwrap_or(word.len()));
    let (digits, suffix) = number.split_at(number.len().saturating_sub(1));
    let shift = match suffix {
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Ok(word.to_owned()),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number {
        return Ok(word.to_owned());
    }
    let count = digits.parse::<u64>().ok();
    let count = count.and_then(|count| u32::try_from(count.checked_mul(1 << shift)?).ok());
    let count = count.ok_or_else(|| {
        let most = u32::MAX;
        Failure::Argument(format!(
            "`{number}` in `{word}` is too large: at most {most} bytes, such as 3G"
        ))
    })?;
    Ok(format!("{count}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str], burst: Option<&str>, bytes: bool) -> Result<String, String> {
        let limit = Limit {
            policy: words.iter().map(|&word| word.to_owned()).collect(),
            burst: burst.map(str::to_owned),
        };
        let policy = policy(&limit, bytes).map_err(|error| error.to_string())?;
        Ok(policy.to_string())
    }

    #[test]
    fn words_are_one_text_and_a_burst_comes_last() {
        let of = |words: &[&str], burst| parsed(words, burst, false).unwrap();
        assert_eq!(of(&["100/min burst 20"], None), "100/min burst 20");
        assert_eq!(of(&["100/min", "burst", "20"], None), "100/min burst 20");
        assert_eq!(of(&["100/min"], Some("20")), "100/min burst 20");
        assert_eq!(of(&["60/min fixed per request"], None), "60/min fixed");
        let error = parsed(&["10/s and 500/day"], Some("5"), false).unwrap_err();
        assert!(error.contains("--burst 5 is for a single rate"), "{error}");
    }

    #[test]
    fn bytes_have_suffixes_of_1024() {
        let of = |text, burst| parsed(&[text], burst, true);
        assert_eq!(of("1M/s", None).unwrap(), "1048576/s sliding");
        let text = "2048/s burst 65536";
        assert_eq!(of("2K/s", Some("64K")).unwrap(), text);
        assert_eq!(of("1G/h fixed", None).unwrap(), "1073741824/h fixed");
        let error = of("4G/s", None).unwrap_err();
        assert!(error.starts_with("`4G` in `4G/s` is too large"), "{error}");
        assert!(parsed(&["1M/s"], None, false).is_err());
    }
}
