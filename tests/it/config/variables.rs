use paceline::config::with_variables;

fn expanded(text: &str) -> Result<String, String> {
    let value_of = |name: &str| {
        let value = match name {
            "HOST" => "redis.shop",
            "LIMIT_2" => "100",
            "EMPTY" => "",
            "NESTED" => "${HOST}",
            "QUOTED" => "a' b",
            "LINES" => "a\nenabled = false",
            "ESCAPED" => r"a\",
            _ => return None,
        };
        Some(value.to_owned())
    };
    with_variables(text, value_of).map_err(|error| error.to_string())
}

#[test]
fn each_variable_is_replaced_once_and_all_else_stays() {
    for (text, expected) in [
        ("", ""),
        ("no variable", "no variable"),
        ("'${HOST}:${LIMIT_2}'", "'redis.shop:100'"),
        ("${EMPTY}", ""),
        ("${EMPTY:-é}", "é"),
        ("${NONE:-}", ""),
        ("${NONE:-redis://localhost:6379}", "redis://localhost:6379"),
        ("${HOST:-other}", "redis.shop"),
        // A value is no text of the file.
        ("${NESTED}", "${HOST}"),
        ("$${HOST} costs $5 or $", "${HOST} costs $5 or $"),
        ("$$$${HOST}", "$${HOST}"),
        ("$$${HOST}", "$redis.shop"),
    ] {
        assert_eq!(expanded(text).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn a_fault_is_named_with_its_place_and_without_the_value() {
    let part = "has a quote, a backslash or a line break";
    for (text, expected) in [
        (
            "${NONE}",
            "line 1, column 1: the variable `NONE` is not set",
        ),
        (
            "a = 1\né = '${NONE}'",
            "line 2, column 6: the variable `NONE` is not set",
        ),
        ("a\r\n${HOST", "line 2, column 1: `${` without `}`"),
        (
            "${}",
            "line 1, column 1: `` is no name of a variable: letters, digits and `_`",
        ),
        (
            "${A B}",
            "line 1, column 1: `A B` is no name of a variable: letters, digits and `_`",
        ),
        (
            "${QUOTED}",
            &format!("line 1, column 1: the value of the variable `QUOTED` {part}"),
        ),
        (
            " ${LINES}",
            &format!("line 1, column 2: the value of the variable `LINES` {part}"),
        ),
        (
            "${ESCAPED}",
            &format!("line 1, column 1: the value of the variable `ESCAPED` {part}"),
        ),
    ] {
        assert_eq!(expanded(text), Err(expected.to_owned()), "{text}");
    }
}
