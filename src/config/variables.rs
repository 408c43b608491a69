use super::ConfigError;

/// The text of a configuration with the values of variables in it: `${NAME}` is the value of `NAME`, and `${NAME:-text}` the same, or
/// `text` where the variable is not set or empty. `$$` is `$`, and any other `$` stays. Comments are text too.
///
/// Use it on a file before it is parsed, in any format that has quotes as TOML, JSON and YAML have: `redis = "${REDIS_URI}"`. So a
/// secret is in no file.
///
/// ```
/// use paceline::config::with_variables;
///
/// let file = "api = '${API_LIMIT:-100/min}'\nmail = '${MAIL_LIMIT}'";
/// // In a program: `|name| std::env::var(name).ok()`.
/// let text = with_variables(file, |name| (name == "MAIL_LIMIT").then(|| "10/s".to_owned()))?;
/// assert_eq!(text, "api = '100/min'\nmail = '10/s'");
///
/// let error = with_variables(file, |_| None).unwrap_err();
/// assert_eq!(error.to_string(), "line 2, column 9: the variable `MAIL_LIMIT` is not set");
/// # Ok::<(), paceline::config::ConfigError>(())
/// ```
///
/// # Errors
///
/// With line and column: if a variable is not set; if a value has a quote, a backslash or a line break, with which it could be more than
/// a value; if a `}` is missing; or if the name is not of letters, digits and `_`. The message has no value.
pub fn with_variables(
    text: &str,
    value_of: impl Fn(&str) -> Option<String>,
) -> Result<String, ConfigError> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        let at = text.len() - after.len() - 1;
        rest = if let Some(after) = after.strip_prefix('$') {
            expanded.push('$');
            after
        } else if let Some(inside) = after.strip_prefix('{') {
            let (variable, after) = inside
                .split_once('}')
                .ok_or_else(|| error(text, at, "`${` without `}`"))?;
            let value = value(variable, &value_of).map_err(|why| error(text, at, &why))?;
            expanded.push_str(&value);
            after
        } else {
            expanded.push('$');
            after
        };
    }
    Ok(expanded + rest)
}

/// Of `NAME` or `NAME:-text`.
fn value(variable: &str, value_of: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let (name, default) = match variable.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (variable, None),
    };
    if name.is_empty()
        || !name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    {
        return Err(format!(
            "`{name}` is no name of a variable: letters, digits and `_`"
        ));
    }
    let set = value_of(name).filter(|value| !value.is_empty() || default.is_none());
    let value = set.or_else(|| default.map(str::to_owned));
    let value = value.ok_or_else(|| format!("the variable `{name}` is not set"))?;
    if value.contains(|c: char| matches!(c, '"' | '\'' | '\\') || c.is_control()) {
        return Err(format!(
            "the value of the variable `{name}` has a quote, a backslash or a line break"
        ));
    }
    Ok(value)
}

fn error(text: &str, at: usize, why: &str) -> ConfigError {
    let before = text.get(..at).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    ConfigError::new(format!("line {line}, column {column}: {why}")).at(at)
}
