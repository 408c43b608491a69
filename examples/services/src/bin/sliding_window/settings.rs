//! The settings: six keys of one file, and variables of the environment over them.

use std::collections::HashMap;
use std::error::Error;
use std::net::IpAddr;
use std::time::Duration;

use config::{Config, Environment, File, FileFormat};
use paceline::config::{ConfigError, with_variables};
use paceline::policy::SlidingCounter;
use paceline::time::Rate;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// What the variables that go over the file begin with. (Not `SLIDING_WINDOW_`: Kubernetes sets `SLIDING_WINDOW_PORT` in every pod
/// beside a service of that name.)
pub(crate) const PREFIX: &str = "LIMITER";

/// The settings of the service. Their type is the only place that knows what may stand in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    pub(crate) host: IpAddr,
    /// 0 is a free one.
    pub(crate) port: u16,
    /// The URI of Redis. It may have a password, so it comes from a variable.
    pub(crate) redis: String,
    /// How many requests of a client pass in a window.
    pub(crate) limit: u32,
    window: Window,
    /// Whether requests are limited.
    pub(crate) enabled: bool,
}

impl Settings {
    pub(crate) fn policy(&self) -> Result<SlidingCounter, ConfigError> {
        Ok(SlidingCounter::try_smooth(self.limit, self.window.0)?)
    }
}

/// A time such as `60s` or `1min`.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Window(Duration);

impl TryFrom<String> for Window {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let rate = format!("1/{text}").parse::<Rate>();
        let rate = rate.map_err(|_| format!("`{text}` is not a time, such as 60s or 1min"))?;
        Ok(Self(rate.period()))
    }
}

/// Reads the text of a TOML file. It is the one rule for settings, and for a table of limits:
///
/// * `${NAME}` in the file is the value of the variable `NAME`.
/// * The variable `PREFIX_KEY` goes over `key`, and `PREFIX_TABLE__KEY` over `key` in a table.
/// * A key that is unknown, missing or of another type is an error that names it and where it comes from.
pub(crate) fn load<T: DeserializeOwned>(
    text: &str,
    prefix: &str,
    variables: &HashMap<String, String>,
) -> Result<T, Box<dyn Error>> {
    let text = with_variables(text, |name| variables.get(name).cloned())?;
    let over = Environment::with_prefix(prefix)
        .prefix_separator("_")
        .separator("__")
        .source(Some(variables.clone()));
    let file = File::from_str(&text, FileFormat::Toml);
    let settings = Config::builder().add_source(file).add_source(over);
    Ok(settings.build()?.try_deserialize()?)
}

#[cfg(test)]
mod tests {
    use paceline::config::{LimitConfig, LimitsConfig};
    use paceline::limiter::Mode;

    use super::*;

    const FILE: &str = include_str!("../../../sliding_window.toml");

    fn variables(all: &[(&str, &str)]) -> HashMap<String, String> {
        let all = all.iter().map(|(name, value)| [name, value]);
        all.map(|pair| pair.map(ToString::to_string).into())
            .collect()
    }

    fn loaded(text: &str, all: &[(&str, &str)]) -> Result<Settings, String> {
        load(text, PREFIX, &variables(all)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_variable_stands_in_the_file_and_another_goes_over_it() {
        let uri = ("REDIS_URI", "redis://:secret@redis:6379/0");
        let settings = loaded(FILE, &[uri]).unwrap();
        assert_eq!(settings.redis, uri.1);
        assert_eq!((settings.limit, settings.port), (100, 8080));
        assert!(settings.enabled);
        let minute = Duration::from_secs(60);
        assert_eq!(settings.policy(), Ok(SlidingCounter::smooth(100, minute)));

        let over = [
            uri,
            ("LIMITER_HOST", "127.0.0.1"),
            ("LIMITER_PORT", "0"),
            ("LIMITER_LIMIT", "5"),
            ("LIMITER_WINDOW", "2h"),
            ("LIMITER_ENABLED", "false"),
            ("LIMITER_REDIS", "redis://other"),
            // Not one of ours.
            ("SLIDING_WINDOW_PORT", "tcp://10.0.0.7:80"),
        ];
        let settings = loaded(FILE, &over).unwrap();
        assert_eq!((&*settings.redis, settings.port), ("redis://other", 0));
        assert!(settings.host.is_loopback() && !settings.enabled);
        let policy = SlidingCounter::smooth(5, 120 * minute);
        assert_eq!(settings.policy(), Ok(policy));
    }

    #[test]
    fn a_fault_names_its_key() {
        let uri = ("REDIS_URI", "redis://redis");
        for (variable, value, named) in [
            ("LIMITER_PORT", "http", "port"),
            ("LIMITER_PORT", "65536", "port"),
            ("LIMITER_HOST", "localhost", "host"),
            ("LIMITER_LIMIT", "-1", "limit"),
            (
                "LIMITER_WINDOW",
                "60 parsecs",
                "`60 parsecs` is not a time, such as 60s",
            ),
            ("LIMITER_ENABLED", "perhaps", "enabled"),
            ("LIMITER_LIMITS", "5", "unknown field `limits`"),
        ] {
            let error = loaded(FILE, &[uri, (variable, value)]).err().unwrap();
            assert!(error.contains(named), "{variable}: {error}");
        }
        let error = loaded(FILE, &[]).err().unwrap();
        assert!(
            error.contains("the variable `REDIS_URI` is not set"),
            "{error}"
        );
        let missing = FILE.replace("limit = 100", "");
        let error = loaded(&missing, &[uri]).err().unwrap();
        assert!(error.contains("missing"), "{error}");
        assert!(error.contains("limit"), "{error}");
    }

    /// The same rule for limits by name, alone or in a table.
    #[test]
    fn a_table_of_limits_is_read_by_the_same_rule() {
        #[derive(Deserialize)]
        struct Program {
            limits: LimitsConfig,
        }

        let set = variables(&[
            ("MAIL_LIMIT", "10/s and 500/day"),
            ("SHOP_API", "80/min burst 20"),
        ]);
        let limits = "api = '100/min'\nmail = '${MAIL_LIMIT}'";
        let alone: LimitsConfig =
            load(limits, "SHOP", &set).unwrap_or_else(|error| panic!("{error}"));
        let policy_of =
            |limits: &LimitsConfig, name| limits.get(name).map(|it| it.policy().to_string());
        assert_eq!(policy_of(&alone, "api").unwrap(), "80/min burst 20");
        assert_eq!(
            policy_of(&alone, "mail").unwrap(),
            "10/s sliding and 500/day sliding"
        );

        let table = "[limits]\nsearch = { policy = '${NONE:-5/s}', mode = 'shadow' }";
        let set = variables(&[("SHOP_LIMITS__SEARCH__MODE", "off")]);
        let program: Program = load(table, "SHOP", &set).unwrap();
        let search = program.limits.get("search").map(LimitConfig::mode);
        assert_eq!(search, Some(Mode::Off));
    }
}
