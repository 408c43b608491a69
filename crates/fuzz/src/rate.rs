use std::time::Duration;

use arbitrary::Unstructured;
use paceline::time::Rate;

/// Any text is a rate or an error that quotes the text. A displayed rate parses to the same rate.
///
/// # Panics
///
/// If one of this does not hold.
pub fn rate(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match text.parse::<Rate>() {
        Ok(rate) => parses_as_it_displays(rate),
        Err(wrong) => assert!(wrong.to_string().contains(&*text), "{wrong}"),
    }
    let mut numbers = Unstructured::new(data);
    if let Ok((permits, secs, nanos)) = numbers.arbitrary::<(u32, u64, u32)>() {
        let period = Duration::new(secs, nanos % 1_000_000_000);
        match Rate::try_new(permits, period) {
            Ok(rate) => parses_as_it_displays(rate),
            Err(wrong) => assert!(permits == 0 || period.is_zero(), "{wrong}"),
        }
    }
}

fn parses_as_it_displays(rate: Rate) {
    let text = rate.to_string();
    let parsed: Rate = text.parse().expect("what is displayed is a rate");
    assert_eq!(parsed, rate, "{text}");
    assert_eq!(parsed.permits(), rate.permits(), "{text}");
    assert_eq!(parsed.period(), rate.period(), "{text}");
    assert_eq!(parsed.to_string(), text);
}
