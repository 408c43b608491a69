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
fn a_table_says_what_a_text_says() {
    for (table, text) in [
        (r#"{"rate": "100/min"}"#, "100/min"),
        (r#"{"rate": "100/min", "burst": 20}"#, "100/min burst 20"),
        (
            r#"{"debt": true, "start": 5, "burst": 20, "rate": "100/min", "per_request": true}"#,
            "100/min burst 20 start 5 debt per request",
        ),
        (
            r#"{"limit": 100, "window": "1min", "kind": "sliding"}"#,
            "100/min sliding",
        ),
        (
            r#"{"limit": 100, "window": "min", "kind": "sliding", "buckets": 10}"#,
            "100/min sliding 10 buckets",
        ),
        (
            r#"{"limit": 5, "window": "250ms", "kind": "fixed"}"#,
            "5/250ms fixed",
        ),
        (
            r#"{"rate": "100/min", "kind": "smooth", "per_request": false}"#,
            "100/min smooth",
        ),
        (
            r#"{"rate": "7/month", "kind": "aligned", "utc": "-08:00"}"#,
            "7/month aligned utc-08:00",
        ),
        (
            r#"{"limit": 7, "window": "week", "kind": "aligned"}"#,
            "7/week aligned",
        ),
        (r#"{"every": "50ms"}"#, "every 50ms"),
        (
            r#"{"every": "50ms", "delayed": true}"#,
            "every 50ms delayed",
        ),
    ] {
        assert_eq!(from_json(table).unwrap(), policy(text), "{table}");
        let json: serde_json::Value = serde_json::from_str(table).unwrap();
        let toml = toml::to_string(&json).unwrap();
        let config = from_toml(&format!("[api]\n{toml}")).unwrap();
        assert_eq!(config, LimitConfig::new(policy(text)), "{toml}");
    }
}

#[test]
fn a_limit_has_a_mode_beside_its_policy() {
    let shadow = |text| LimitConfig::new(policy(text)).with_mode(Mode::Shadow);
    let of = |toml| from_toml(toml).unwrap();
    assert_eq!(of("api = '10/s'"), LimitConfig::new(policy("10/s")));
    assert_eq!(
        of("api = { rate = '10/s', mode = 'shadow' }"),
        shadow("10/s")
    );
    assert_eq!(
        of("api = { policy = '10/s and 50/min', mode = 'shadow' }"),
        shadow("10/s and 50/min")
    );
    assert_eq!(
        of("api = { policy = { rate = '10/s', burst = 3 }, mode = 'shadow' }"),
        shadow("10/s burst 3")
    );
    assert_eq!(of("[api]\npolicy = '10/s'\nmode = 'off'").mode(), Mode::Off);
}

#[test]
fn an_error_names_the_field_or_the_value_and_what_would_be_right_with_line_and_column() {
    let in_text =
        "should be `burst`, `sliding`, `smooth`, `fixed`, `aligned`, `per request` or `and`";
    let known = "`rate`, `limit`, `window`, `every`, `kind`, `buckets`, `burst`, `start`, `debt`, `delayed`, `utc`, \
                 `per_request`, `policy`, `mode`";
    let number = "expected a whole number from 0 to 4294967295";
    for (toml, place, message) in [
        (
            "mail = '10/s'\napi = '100/min brust 20'",
            (2, 7),
            format!(
                "`100/min brust 20` is not a policy: `brust` at column 9 {in_text}; did you mean `burst`?"
            ),
        ),
        (
            "mail = '10/s'\napi = { rate = '100/min', brust = 20 }",
            (2, 27),
            format!("unknown field `brust`, expected one of {known}"),
        ),
        (
            "[api]\nrate = '100/min'\nburst = -1",
            (3, 9),
            format!("invalid value: integer `-1`, {number}"),
        ),
        (
            "[api]\nlimit = 4294967296\nwindow = '1s'",
            (2, 9),
            format!("invalid value: integer `4294967296`, {number}"),
        ),
        (
            "[api]\nrate = '100/min'\nburst = '20'",
            (3, 9),
            format!("invalid type: string \"20\", {number}"),
        ),
        (
            "[api]\nrate = '100/min'\nburst = 0",
            (1, 1),
            "`100/min burst 0` is not a policy: a token bucket needs a burst of at least 1, got 0".into(),
        ),
        (
            "[api]\nrate = '10/s and 5/min'",
            (2, 8),
            "invalid value: string \"10/s and 5/min\", expected a text without spaces".into(),
        ),
        (
            "[api]\nrate = '10/s'\nkind = 'sldng'",
            (1, 1),
            format!("`10/s sldng` is not a policy: `sldng` at column 6 {in_text}; did you mean `sliding`?"),
        ),
        (
            "[api]\nrate = '10/s'\nmode = 'shadwo'",
            (3, 8),
            "a mode is `active`, `shadow` or `off`, got `shadwo`".into(),
        ),
        (
            "[api]\nlimit = 100\nkind = 'fixed'",
            (1, 1),
            "missing field `window`".into(),
        ),
        ("[api]\nkind = 'fixed'", (1, 1), "missing field `rate`".into()),
        (
            "[api]\nrate = '10/s'\nevery = '1s'",
            (1, 1),
            "a policy has either `rate`, or `limit` and `window`, or `every`".into(),
        ),
        (
            "[api]\npolicy = '10/s'\nburst = 20",
            (1, 1),
            "beside `policy` there is only `mode`".into(),
        ),
        (
            "api = 100",
            (1, 7),
            "invalid type: integer `100`, expected a policy, such as \"100/min burst 20\", or a table of a limit".into(),
        ),
    ] {
        let error = from_toml(toml).unwrap_err();
        let (line, column) = place;
        let first = format!("TOML parse error at line {line}, column {column}");
        assert_eq!(error.lines().next(), Some(&*first), "{error}");
        assert_eq!(error.lines().last(), Some(&*message), "{error}");
    }
}

#[test]
fn a_policy_alone_has_no_mode() {
    let error = from_json(r#"{"rate": "10/s", "mode": "off"}"#).unwrap_err();
    assert!(
        error.starts_with("unknown field `mode`, expected one of `rate`,"),
        "{error}"
    );
    assert!(
        error.ends_with("`per_request` at line 1 column 23"),
        "{error}"
    );
}

#[test]
fn a_name_or_a_field_that_comes_twice_is_an_error() {
    let error =
        serde_json::from_str::<LimitsConfig>(r#"{"api": "1/s", "api": "2/s"}"#).unwrap_err();
    assert_eq!(
        error.to_string(),
        "there are two limits `api` at line 1 column 20"
    );
    let error = from_json(r#"{"rate": "1/s", "burst": 1, "burst": 2}"#).unwrap_err();
    assert_eq!(error, "duplicate field `burst` at line 1 column 39");
}
