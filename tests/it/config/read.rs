//! Rates, policies and limits from TOML and JSON.

use paceline::config::{LimitConfig, LimitsConfig};
use paceline::limiter::Mode;
use paceline::policy::AnyPolicy;
use paceline::time::Rate;

fn policy(text: &str) -> AnyPolicy {
    text.parse().unwrap()
}

/// Of a table with one limit `api`.
fn from_toml(limit: &str) -> Result<LimitConfig, String> {
    let config: Result<LimitsConfig, _> = toml::from_str(limit);
    let config = config.map_err(|error| error.to_string())?;
    Ok(config.get("api").unwrap().clone())
}

fn from_json(limit: &str) -> Result<AnyPolicy, String> {
    serde_json::from_str(limit).map_err(|error| error.to_string())
}

#[test]
fn a_rate_is_a_text() {
    let rate = Rate::per_minute(100);
    assert_eq!(serde_json::to_string(&rate).unwrap(), "\"100/min\"");
    assert_eq!(serde_json::from_str::<Rate>("\"100/min\"").unwrap(), rate);
    let error = serde_json::from_str::<Rate>("100").unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid type: integer `100`, expected a rate, such as \"100/min\" at line 1 column 3"
    );
    let error = serde_json::from_str::<Rate>("\"100/mn\"").unwrap_err();
    assert_eq!(
        error.to_string(),
        "`100/mn` is not a rate: the unit must be one of ns, us, ms, s, min, h, day, got `mn` at line 1 column 8"
    );
}

#[test]
fn a_policy_is_written_as_its_text() {
    let text = "60/min fixed per request and 90000/min burst 90000";
    let json = serde_json::to_string(&policy(text)).unwrap();
    assert_eq!(json, format!("\"{text}\""));
    assert_eq!(from_json(&json).unwrap(), policy(text));
}

#[test]
fn a_limit_has_a_mode_beside_its_policy() {
    let shadow = |text| LimitConfig::new(policy(text)).with_mode(Mode::Shadow);
    let of = |toml| from_toml(toml).unwrap();
    assert_eq!(of("api = '10/s'"), LimitConfig::new(policy("10/s")));
    assert_eq!(
        of("api = { policy = '10/s and 50/min', mode = 'shadow' }"),
        shadow("10/s and 50/min")
    );
    assert_eq!(of("[api]\npolicy = '10/s'\nmode = 'off'").mode(), Mode::Off);
}

#[test]
fn an_error_names_the_field_or_the_value_and_what_would_be_right_with_line_and_column() {
    for (toml, expected) in [
        (
            "mail = '10/s'\napi = '100/min brust 20'",
            "line 2, column 7: `100/min brust 20` is not a policy: `brust` at column 9 should be `burst`, \
             `sliding`, `smooth`, `fixed`, `aligned`, `to`, `margin`, `per request` or `and`; did you mean `burst`?",
        ),
        (
            "mail = '10/s'\napi = { policy = '100/min', brust = 20 }",
            "line 2, column 7: unknown field `brust`, expected `policy` or `mode`",
        ),
        (
            "[api]\nrate = '100/min'",
            "line 1, column 1: unknown field `rate`, expected `policy` or `mode`",
        ),
        (
            "[api]\npolicy = '100/min burst 0'",
            "line 2, column 10: `100/min burst 0` is not a policy: a token bucket needs a burst of at least 1, got 0",
        ),
        (
            "[api]\npolicy = { rate = '100/min' }",
            "line 2, column 10: invalid type: map, expected a policy, such as \"100/min burst 20\"",
        ),
        (
            "[api]\npolicy = '10/s'\nmode = 'shadwo'",
            "line 3, column 8: a mode is `active`, `shadow` or `off`, got `shadwo`",
        ),
        (
            "[api]\nmode = 'off'",
            "line 1, column 1: missing field `policy`",
        ),
        (
            "api = 100",
            "line 1, column 7: invalid type: integer `100`, expected a policy, such as \"100/min burst 20\", \
             or a table of a `policy` and a `mode`",
        ),
    ] {
        let error = from_toml(toml).unwrap_err();
        let place = error.lines().next().unwrap();
        let message = error.lines().last().unwrap();
        assert_eq!(
            format!("{place}: {message}"),
            format!("TOML parse error at {expected}")
        );
    }
}

#[test]
fn a_name_or_a_field_that_comes_twice_is_an_error() {
    for (twice, expected) in [
        (
            r#"{"api": "1/s", "api": "2/s"}"#,
            "there are two limits `api` at line 1 column 20",
        ),
        (
            r#"{"api": {"policy": "1/s", "policy": "2/s"}}"#,
            "there are two fields `policy` at line 1 column 42",
        ),
    ] {
        let error = serde_json::from_str::<LimitsConfig>(twice).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}
