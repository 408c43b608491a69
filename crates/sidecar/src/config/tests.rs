//! Settings as text, what holds when several places give one, and the words for what is wrong.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use paceline::fair::{ClientTerms, Division, FairShare, GuaranteedShare, Newcomers};
use paceline::limiter::Share;
use paceline_tower::ProxyHeader;

use super::cli::report;
use super::settings::{FILE, SETTINGS, Setting};
use super::source::{Errors, Source};
use super::value::Value as _;
use super::{Anonymous, Client, Concurrency, Config, Depth, Mode, Sharing, Shed, Timeouts};

/// The smallest file.
const REQUIRED: &str = "listen = \"127.0.0.1:9000\"\nupstream = \"http://127.0.0.1:8080\"\ncapacity = 40\ncycle = \"10s\"\n";

fn source(flags: &[(&'static str, &str)], variables: &[(&str, &str)]) -> Source {
    let flags = flags.iter().map(|(key, value)| (*key, (*value).to_owned()));
    let variables = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let file = Some(PathBuf::from("sidecar.toml"));
    Source::new(flags.collect(), variables, file).unwrap().0
}

fn load(text: &str) -> Result<Config, Errors> {
    load_with(&source(&[], &[]), text)
}

fn load_with(source: &Source, text: &str) -> Result<Config, Errors> {
    let text = Ok(text.to_owned());
    source.load(&text).map(|(config, _)| config)
}

/// Of a file with more than what is required, or else.
fn config(more: &str) -> Config {
    load(&format!("{REQUIRED}{more}")).unwrap()
}

/// Of a file with what is required, which has four lines, and more.
fn errors(more: &str) -> String {
    load(&format!("{REQUIRED}{more}")).unwrap_err().to_string()
}

#[test]
fn what_is_required_is_enough() {
    assert_eq!(config(""), Config::defaults());
}

#[test]
fn a_flag_holds_over_a_variable_over_the_file_over_the_default() {
    // What each place gives, and what holds.
    let table = [
        (None, None, None, 1_000),
        (None, None, Some("7"), 7),
        (None, Some("8"), None, 8),
        (None, Some("8"), Some("7"), 8),
        (Some("9"), None, None, 9),
        (Some("9"), None, Some("7"), 9),
        (Some("9"), Some("8"), None, 9),
        (Some("9"), Some("8"), Some("7"), 9),
    ];
    for (flag, variable, file, holds) in table {
        let flags = flag.map(|value| ("max-clients", value));
        let variables = variable.map(|value| ("PACELINE_MAX_CLIENTS", value));
        let source = source(flags.as_slice(), variables.as_slice());
        let more = file.map_or(String::new(), |value| format!("max-clients = {value}\n"));
        let text = Ok(format!("{REQUIRED}{more}"));
        let (config, reading) = source.load(&text).unwrap();
        let line = report(&source, &config, &reading);
        let line = line.lines().find(|line| line.starts_with("max-clients"));
        let origin = match (flag, variable, file) {
            (Some(_), ..) => "flag --max-clients",
            (_, Some(_), _) => "environment variable PACELINE_MAX_CLIENTS",
            (.., Some(_)) => "sidecar.toml:5",
            _ => "default",
        };
        assert!(line.unwrap().ends_with(&format!("# {origin}")), "{line:?}");
        assert_eq!(config.fair.max_clients, holds);
    }
}

#[test]
fn every_setting_can_be_a_flag_a_variable_or_a_key() {
    let everything = EVERYTHING.iter().copied();
    let defaults = Config::defaults();
    let keys: Vec<_> = everything.clone().map(|(key, _)| key).collect();
    assert_eq!(
        keys,
        SETTINGS
            .iter()
            .map(|setting| setting.key)
            .collect::<Vec<_>>()
    );

    let as_flags: Vec<_> = everything.clone().collect();
    let names: Vec<_> = SETTINGS.iter().map(Setting::variable).collect();
    let texts = everything.clone().map(|(_, text)| text);
    let as_variables: Vec<_> = names.iter().map(String::as_str).zip(texts).collect();
    let mut as_file = String::new();
    for (key, text) in everything {
        let mut shown = defaults.shown[key].clone();
        shown.text = text.to_owned();
        writeln!(as_file, "{key} = {}", shown.in_file()).unwrap();
    }

    let token = "secret\n";
    let path = std::env::temp_dir().join(format!("paceline-everything-{}", std::process::id()));
    std::fs::write(&path, token).unwrap();
    let place = |text: &str| text.replace("TOKEN", path.to_str().unwrap());
    let flags: Vec<_> = as_flags
        .iter()
        .map(|(key, text)| (*key, place(text)))
        .collect();
    let flags: Vec<_> = flags
        .iter()
        .map(|(key, text)| (*key, text.as_str()))
        .collect();
    let variables: Vec<_> = as_variables
        .iter()
        .map(|(name, text)| (*name, place(text)))
        .collect();
    let variables: Vec<_> = variables
        .iter()
        .map(|(name, text)| (*name, text.as_str()))
        .collect();
    let mut expected = everything_as_config(path.clone());
    for (source, text) in [
        (source(&flags, &[]), ""),
        (source(&[], &variables), ""),
        (source(&[], &[]), &*place(&as_file)),
    ] {
        let config = load_with(&source, text).unwrap();
        // A value is shown as the text from which it would be read.
        for (key, text) in EVERYTHING {
            assert_eq!(config.shown[key].text, place(text), "{key}");
            assert_ne!(config.shown[key], defaults.shown[key], "{key}");
        }
        expected.shown.clone_from(&config.shown);
        assert_eq!(config, expected);
    }
    std::fs::remove_file(path).unwrap();
}

/// No setting has its default here.
const EVERYTHING: &[(&str, &str)] = &[
    ("listen", "0.0.0.0:1"),
    ("upstream", "h2c://[::1]:2"),
    ("admin", "[::1]:3"),
    ("admin-token-file", "TOKEN"),
    ("cores", "4"),
    ("capacity", "5"),
    ("cycle", "6ms"),
    ("sharing", "guaranteed"),
    ("depth", "250%"),
    ("reservation", "7.25%"),
    ("max-min", "true"),
    ("early-cycles", "off"),
    ("max-clients", "8"),
    ("known-only", "true"),
    ("forget-after", "9"),
    ("carry", "true"),
    ("client", "ip"),
    ("client-header", "x-tenant"),
    ("ip-header", "x-forwarded-for"),
    ("trusted-proxies", "10.0.0.0/8,fd00::/8"),
    ("anonymous", "share"),
    ("mode", "passthrough"),
    ("enforced", "10%"),
    ("headers-on-success", "false"),
    ("concurrency", "11..12"),
    ("shed", "true"),
    ("shed-good", "13%"),
    ("shed-bad", "14%"),
    ("shed-delay", "15s"),
    ("shed-ramp", "16m"),
    ("head-timeout", "17s"),
    ("idle-timeout", "18s"),
    ("body-timeout", "19s"),
    ("queue-timeout", "28s"),
    ("connect-timeout", "20s"),
    ("response-timeout", "21s"),
    ("upstream-idle-timeout", "22s"),
    ("drain-announce", "0s"),
    ("drain-finish", "23h"),
    ("max-head-bytes", "8192"),
    ("max-fields", "24"),
    ("max-connections", "25"),
    ("max-connections-per-address", "27"),
    ("max-streams", "26"),
    ("log", "trace"),
    ("log-json", "true"),
];

fn everything_as_config(token: PathBuf) -> Config {
    let seconds = Duration::from_secs;
    let mut config = Config::defaults();
    config.listen = "0.0.0.0:1".parse().unwrap();
    config.upstream = super::Upstream {
        authority: "[::1]:2".parse().unwrap(),
        is_h2c: true,
    };
    config.admin = "[::1]:3".parse().unwrap();
    config.admin_token_file = Some(token);
    config.cores = 4;
    config.fair = super::Fair {
        capacity: 5,
        cycle: Duration::from_millis(6),
        sharing: Sharing::Guaranteed,
        depth: Depth(25_000),
        reservation: Share::of_ten_thousand(725),
        is_max_min: true,
        early_cycles: None,
        max_clients: 8,
        is_known_only: true,
        forgetting_after: 9,
        has_carry: true,
    };
    config.client = Client::Ip {
        header: Some(ProxyHeader::XForwardedFor),
        trusted: vec!["10.0.0.0/8".to_owned(), "fd00::/8".to_owned()],
    };
    config.anonymous = Anonymous::Share;
    config.mode = Mode::Passthrough;
    config.enforced = Share::percent(10);
    config.headers_on_success = false;
    config.concurrency = Some(Concurrency::Adaptive {
        initial: 11,
        max: 12,
    });
    config.shed = Some(Shed {
        good: 0.13,
        bad: 0.14,
        delay: seconds(15),
        ramp: seconds(16 * 60),
    });
    config.timeouts = Timeouts {
        head: seconds(17),
        between: seconds(18),
        body: seconds(19),
        queue: seconds(28),
        connect: seconds(20),
        response: seconds(21),
        upstream_idle: seconds(22),
    };
    config.drain = super::Drain {
        announce: Duration::ZERO,
        finish: seconds(23 * 3_600),
    };
    config.bounds = super::Bounds {
        head_bytes: 8_192,
        fields: 24,
        connections: 25,
        of_address: Some(27),
        streams: 26,
    };
    config.log = tracing::Level::TRACE;
    config.log_json = true;
    config
}

#[test]
fn a_value_is_shown_as_the_text_from_which_it_would_be_read() {
    let defaults = Config::defaults();
    for setting in &*SETTINGS {
        let shown = &defaults.shown[setting.key];
        assert_eq!(shown.text, setting.default(), "{}", setting.key);
        assert_eq!(shown.in_file(), setting.in_file, "{}", setting.key);
    }
}

#[test]
fn the_report_is_a_file_that_gives_the_same() {
    let text =
        "enforced = \"0.5%\"\n[clients.shop]\nmost-lent = 5\n[clients.\"a\\\"b.c\"]\nweight = 2\n";
    let source = source(&[], &[]);
    let text = Ok(format!("{REQUIRED}{text}"));
    let (config, reading) = source.load(&text).unwrap();
    let report = report(&source, &config, &reading);
    assert_eq!(load(&report).unwrap(), config);
    let clients: Vec<_> = report
        .lines()
        .filter(|line| line.contains("clients."))
        .collect();
    assert!(
        clients[0].starts_with(r#"clients."a\"b.c" = { weight = 2 } "#),
        "{clients:?}"
    );
    assert!(clients[0].ends_with("# sidecar.toml:8"), "{clients:?}");
    let shop = "clients.shop = { weight = 1, most-lent = 5 } ";
    assert!(clients[1].starts_with(shop), "{clients:?}");
}

#[test]
fn clients_have_terms_in_the_file() {
    let more =
        "[clients.shop]\nweight = 3\nmost-lent = 5\n[clients.\"10.0.0.1\"]\nmost-borrowed = 0\n";
    let own_share = ClientTerms::new().with_own_share(true);
    let terms = BTreeMap::from([
        ("10.0.0.1".to_owned(), own_share.with_most_borrowed(0)),
        (
            "shop".to_owned(),
            own_share.with_most_lent(5).try_with_weight(3).unwrap(),
        ),
    ]);
    assert_eq!(config(more).terms, terms);
}

#[test]
fn the_limit_has_the_parameters_of_the_configuration() {
    let by_default = FairShare::new(40, Duration::from_secs(10))
        .try_with_reservation(1_000)
        .unwrap()
        .with_newcomers(Newcomers::EndCycle { at_most: 1 });
    assert_eq!(config("").fair_share(), by_default);

    let more = "max-min = true\nearly-cycles = \"off\"\nmax-clients = 2\nforget-after = 3\ncarry = true\nreservation = \"0%\"\n";
    let all = FairShare::new(40, Duration::from_secs(10))
        .with_division(Division::MaxMin)
        .with_newcomers(Newcomers::Join)
        .try_with_max_clients(2)
        .unwrap()
        .try_forgetting_after(3)
        .unwrap()
        .with_carry(true);
    assert_eq!(config(more).fair_share(), all);

    assert_eq!(config("").fair.sharing, Sharing::Demand);
    let more = "sharing = \"guaranteed\"\ndepth = \"50%\"\nmax-clients = 2\nforget-after = 3\n";
    let guaranteed = GuaranteedShare::new(40, Duration::from_secs(10))
        .try_with_depth(5_000)
        .unwrap()
        .try_with_max_clients(2)
        .unwrap()
        .try_forgetting_after(3)
        .unwrap();
    assert_eq!(config(more).guaranteed_share(), guaranteed);

    let known_only = by_default.try_with_max_clients(0).unwrap();
    assert_eq!(config("known-only = true").fair_share(), known_only);
}

#[test]
fn durations_have_a_unit() {
    let table = [
        ("500ms", Some(Duration::from_millis(500)), "500ms"),
        ("10s", Some(Duration::from_secs(10)), "10s"),
        ("10 s", Some(Duration::from_secs(10)), "10s"),
        ("1500ms", Some(Duration::from_millis(1_500)), "1500ms"),
        ("120s", Some(Duration::from_secs(120)), "2m"),
        ("90m", Some(Duration::from_secs(5_400)), "90m"),
        ("1h", Some(Duration::from_secs(3_600)), "1h"),
        ("10", None, ""),
        ("s", None, ""),
        ("", None, ""),
        ("1.5s", None, ""),
        ("-1s", None, ""),
        ("10d", None, ""),
        ("10S", None, ""),
        ("99999999999999999999s", None, ""),
        ("9999999999999999999h", None, ""),
    ];
    for (text, duration, shown) in table {
        assert_eq!(Duration::read(text).ok(), duration, "{text}");
        if let Some(duration) = duration {
            assert_eq!(duration.text(), shown);
        }
    }
}

#[test]
fn a_concurrency_is_fixed_or_adaptive() {
    let of = |text| config(&format!("concurrency = {text}\n")).concurrency;
    assert_eq!(of("\"off\""), None);
    assert_eq!(of("50"), Some(Concurrency::Fixed(50)));
    assert_eq!(of("\"50\""), Some(Concurrency::Fixed(50)));
    let adaptive = Concurrency::Adaptive {
        initial: 20,
        max: 200,
    };
    assert_eq!(of("\"20..200\""), Some(adaptive));
}

#[test]
fn a_wrong_value_is_named_with_its_place() {
    for row in WRONG_LINES.lines() {
        let (line, error) = row.split_once(" | ").unwrap();
        let expected = format!("sidecar.toml:{error}");
        assert_eq!(errors(&format!("{line}\n")), expected, "{line}");
    }
}

/// The fifth line of a file, and the error after the name of the file.
const WRONG_LINES: &str = r#"capcity = 3 | 5:1: unknown key `capcity`; did you mean `capacity`?
head_timeout = "3s" | 5:1: unknown key `head_timeout`; did you mean `head-timeout`?
CYCLE = "3s" | 5:1: unknown key `CYCLE`; did you mean `cycle`?
something-else = 3 | 5:1: unknown key `something-else`; --help names all of them
client = { header = 3 } | 5:10: client: expected a string such as "header", got a table
reservation = 10 | 5:15: reservation: expected a string such as "10%", got the number 10
reservation = 0.1 | 5:15: reservation: expected a string such as "10%", got the number 0.1
  carry = 1 | 5:11: carry: expected true or false, got the number 1
cores = "4" | 5:9: cores: expected a whole number such as 1, got the string `4`
cores = 1.5 | 5:9: cores: expected a whole number such as 1, got the number 1.5
cores = -1 | 5:9: cores: `-1` is not a whole number from 0 to 4294967295
cores = 0x1_0000_0000 | 5:9: cores: `4294967296` is not a whole number from 0 to 4294967295
early-cycles = true | 5:16: early-cycles: expected a whole number or the string "off", got true
early-cycles = "never" | 5:16: early-cycles: `never` is not a whole number from 0 to 4294967295, or off
trusted-proxies = "10.0.0.0/8" | 5:19: trusted-proxies: expected a list of strings such as ["10.0.0.0/8"], got the string `10.0.0.0/8`
trusted-proxies = [1] | 5:19: trusted-proxies: expected a list of strings such as ["10.0.0.0/8"], got a list
drain-finish = 1979-05-27 | 5:16: drain-finish: expected a string such as "25s", got a date
clients = 3 | 5:11: clients: expected tables such as [clients.shop], got the number 3
clients.shop = 3 | 5:16: clients.shop: expected a table such as { weight = 3, most-lent = 5 }, got the number 3
clients.shop.wieght = 3 | 5:14: unknown key `wieght`; did you mean `weight`?
clients.shop.size = 3 | 5:14: unknown key `size`; a client has weight, most-lent and most-borrowed
admin-token-file = 3 | 5:20: admin-token-file: expected a string, got the number 3
clients.shop.weight = "3" | 5:23: clients.shop.weight: expected a whole number such as 5, got the string `3`
clients.shop.weight = -3 | 5:23: clients.shop.weight: `-3` is not a whole number from 0 to 4294967295
clients.shop.weight = 0 | 5:9: clients.shop: a client needs a weight of at least 1, got 0
clients."ü".weight = 1 | 5:9: clients.ü: no client has this id: an id has 1 to 64 visible ASCII characters
capacity = 3 | 5:1: duplicate key `capacity`: remove one of them
clients = { a.weight = 1, a.weight = 2 } | 5:29: duplicate key `weight`: remove one of them
shed-bad = "50%" | 5:12: shed-bad: shed-good must be above 0% and below shed-bad, and shed-bad below 100%, got 70% and 50%
admin = "127.0.0.1:9000" | 5:9: admin: admin `127.0.0.1:9000` is the port of listen `127.0.0.1:9000`: give each a port of its own
cores =  | 5:9: string values must be quoted, expected literal string; write it as in cores = 1
max-streams = 10% | 5:15: string values must be quoted, expected literal string; write it as in max-streams = 250
idle-timeout = 10s | 5:16: string values must be quoted, expected literal string; write it as in idle-timeout = "1m"
admin = 127.0.0.1:9102 | 5:14: invalid float, expected nothing; write it as in admin = "127.0.0.1:9102"
nonsense = 10s | 5:12: string values must be quoted, expected literal string
client = "ip"; carry = true | 5:14: unexpected key or value, expected newline, `#`; write it as in client = "header""#;

#[test]
fn the_column_counts_characters() {
    let more = "log-json = true # é\nclients = { \"é\" = { weight = 1 }, a = 3 }\n";
    let error = errors(more);
    assert!(
        error.contains("sidecar.toml:6:39: clients.a: expected a table"),
        "{error}"
    );
}

#[test]
fn an_error_is_one_line_without_control_characters() {
    let error = errors("client-header = \"a\\n\\u001b[31m\"\n");
    let right = "write letters, digits and hyphens, as in x-client-id";
    assert_eq!(
        error,
        format!(
            "sidecar.toml:5:17: client-header: `a\\n\\u{{1b}}[31m` is not the name of a header: {right}"
        )
    );
}

#[test]
fn no_part_of_a_file_and_no_change_of_a_character_is_more_than_an_error() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/sidecar.toml");
    let whole = std::fs::read_to_string(path).unwrap();
    let lines = whole.lines().filter(|line| !line.starts_with('#'));
    let whole: Vec<char> = lines.flat_map(|line| line.chars().chain(['\n'])).collect();
    let mut refused = 0;
    let mut look = |text: &[char]| {
        let text: String = text.iter().collect();
        if let Err(Errors(errors)) = load(&text) {
            assert!(!errors.is_empty());
            refused += 1;
        }
    };
    for at in 0..whole.len() {
        look(&whole[..at]);
        for other in ['\0', '\n', '"', '=', '0', 'é', '['] {
            let mut text = whole.clone();
            text[at] = other;
            look(&text);
        }
    }
    assert!(refused > 1_000, "{refused}");
}

#[test]
fn a_byte_order_mark_is_not_counted() {
    let error = load("\u{feff}capacity = 0\nlisten = 1\n")
        .unwrap_err()
        .to_string();
    assert!(error.contains("sidecar.toml:1:12: capacity: "), "{error}");
    assert!(error.contains("sidecar.toml:2:10: listen: "), "{error}");
}

#[test]
fn all_errors_are_reported_at_once_in_the_order_of_their_places() {
    let source = source(
        &[("cycle", "0s")],
        &[("PACELINE_MODE", "on"), ("PACELINE_CORES", "0")],
    );
    let text = "capacity = 0\nlisten = \"127.0.0.1:9000\"\nenforced = \"200%\"\n";
    let Errors(errors) = load_with(&source, text).unwrap_err();
    assert_eq!(
        errors,
        [
            "sidecar.toml:1:12: capacity: a fair share needs a capacity of at least 1, got 0",
            "sidecar.toml:3:12: enforced: `200%` is not a share: write 0% to 100%, with at most two decimals, as in 5% or 0.25%",
            "PACELINE_CORES: must be 1 to 1024, got 0",
            "PACELINE_MODE: `on` is not a mode: write enforce, passthrough or off",
            "--cycle: a fair share needs a cycle of at least 1 ns, got 0",
            "upstream: missing; give --upstream, PACELINE_UPSTREAM, or upstream = \"http://127.0.0.1:8080\" in sidecar.toml",
        ]
    );
}

#[test]
fn what_a_broken_file_would_have_set_is_not_missing() {
    let error = load("capacity = = 40").unwrap_err().to_string();
    let right = "write it as in capacity = 40";
    let expected = format!("sidecar.toml:1:12: extra `=`, expected nothing; {right}");
    assert_eq!(error, expected);
}

#[test]
fn an_upstream_that_is_the_sidecar_itself_is_refused() {
    let is_itself = |listen: &str, upstream: &str| {
        let flags = [
            ("listen", listen),
            ("upstream", upstream),
            ("capacity", "1"),
            ("cycle", "1s"),
        ];
        match load_with(&source(&flags, &[]), "") {
            Ok(_) => false,
            Err(Errors(errors)) => {
                let end = format!(
                    "is the sidecar itself: listen is `{listen}`; give the port of the service"
                );
                assert_eq!(errors, [format!("--upstream: `{upstream}` {end}")]);
                true
            }
        }
    };
    for (listen, upstream) in [
        ("127.0.0.1:9000", "http://127.0.0.1:9000"),
        ("127.0.0.1:9000", "h2c://localhost:9000"),
        ("127.0.0.1:9000", "http://LOCALHOST.:9000"),
        ("127.0.0.1:9000", "http://0.0.0.0:9000"),
        ("127.0.0.1:9000", "http://[::ffff:127.0.0.1]:9000"),
        ("0.0.0.0:9000", "http://127.0.0.1:9000"),
        ("0.0.0.0:9000", "http://localhost:9000"),
        ("0.0.0.0:9000", "http://0.0.0.0:9000"),
        ("[::]:9000", "http://127.0.0.1:9000"),
        ("[::1]:9000", "http://[::1]:9000"),
        ("10.0.0.5:80", "http://10.0.0.5"),
    ] {
        assert!(is_itself(listen, upstream), "{listen} {upstream}");
    }
    for (listen, upstream) in [
        ("127.0.0.1:9000", "http://127.0.0.1:9001"),
        ("127.0.0.1:9000", "http://127.0.0.2:9000"),
        ("10.0.0.5:9000", "http://127.0.0.1:9000"),
        ("0.0.0.0:9000", "http://10.0.0.5:9000"),
        ("127.0.0.1:9000", "http://shop:9000"),
        ("127.0.0.1:0", "http://127.0.0.1:9000"),
    ] {
        assert!(!is_itself(listen, upstream), "{listen} {upstream}");
    }
}

#[test]
fn clients_by_address_name_the_proxies_that_are_trusted() {
    let by = |header: &str, trusted: &str| {
        errors(&format!(
            "client = \"ip\"\nip-header = \"{header}\"\ntrusted-proxies = {trusted}\n"
        ))
    };
    assert_eq!(
        by("x-real-ip", "[]"),
        "sidecar.toml:7:19: trusted-proxies: `x-real-ip` is only read from trusted proxies: name their addresses in trusted-proxies, as in 10.0.0.0/8"
    );
    // One value, one error.
    assert_eq!(
        by("x-real-ip", "3"),
        "sidecar.toml:7:19: trusted-proxies: expected a list of strings such as [\"10.0.0.0/8\"], got the number 3"
    );
    assert_eq!(
        by("forwarded", "[\"10.0.0.1/8\"]"),
        "sidecar.toml:7:19: trusted-proxies: `10.0.0.1/8` has bits after its prefix; its range is `10.0.0.0/8`"
    );
    assert_eq!(
        by("none", "[\"10.0.0.0/8\"]"),
        "sidecar.toml:7:19: trusted-proxies: `10.0.0.0/8` is not used: name the header that these proxies set in ip-header"
    );
    assert_eq!(
        errors("ip-header = \"forwarded\"\ntrusted-proxies = [\"10.0.0.0/8\"]\n"),
        "sidecar.toml:5:13: ip-header: `forwarded` is only read with client = ip\n\
         sidecar.toml:6:19: trusted-proxies: `10.0.0.0/8` is only used with client = ip"
    );
}

#[test]
fn bounds_of_a_client_that_the_guaranteed_share_does_not_use_are_warned_about() {
    let warnings = |sharing: &str| {
        let terms = "[clients.shop]\nweight = 3\nmost-lent = 5\nmost-borrowed = 0\n[clients.\"10.0.0.1\"]\nweight = 2\n";
        let text = Ok(format!("{REQUIRED}sharing = \"{sharing}\"\n{terms}"));
        let source = source(&[], &[]);
        source.load(&text).unwrap().1.warnings
    };
    assert_eq!(
        warnings("guaranteed"),
        [
            "sidecar.toml:8:13: clients.shop.most-lent: is not used with sharing = guaranteed",
            "sidecar.toml:9:17: clients.shop.most-borrowed: is not used with sharing = guaranteed",
        ]
    );
    assert!(warnings("demand").is_empty());
}

#[test]
fn a_variable_that_is_nearly_a_setting_is_refused_and_another_one_ignored() {
    let of = |name: &str| {
        Source::new(BTreeMap::new(), [(name.to_owned(), "1".to_owned())], None)
            .map(|(_, warnings)| warnings)
            .map_err(|error| error.to_string())
    };
    let error = "PACELINE_CAPACTY: no such variable; did you mean PACELINE_CAPACITY?";
    assert_eq!(of("PACELINE_CAPACTY").unwrap_err(), error);

    assert_eq!(of("PACELINE_CAPACITY"), Ok(vec![]));
    assert_eq!(of("PACELINE_CONFIG"), Ok(vec![]));
    assert_eq!(of("PATH"), Ok(vec![]));
    // Kubernetes sets these for a service named paceline.
    for name in [
        "SERVICE_HOST",
        "SERVICE_PORT",
        "PORT",
        "PORT_9000_TCP",
        "PORT_9000_TCP_ADDR",
        "SERVICE_PORT_HTTP",
    ] {
        let name = format!("PACELINE_{name}");
        assert_eq!(
            of(&name),
            Ok(vec![format!(
                "{name}: not a variable of the sidecar, ignored"
            )])
        );
    }
}

/// It is the file of which the settings are made.
#[test]
fn the_example_names_every_setting_with_its_default() {
    let lines = FILE.lines();
    let keys = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let settings = SETTINGS.iter();
    assert!(keys.eq(settings.clone().map(Setting::example)));
    for setting in settings.clone() {
        let place = format!("# {}\n{}\n", setting.help, setting.example());
        assert!(FILE.contains(&place), "{place}");
        assert!(FILE.contains(&format!("\n\n# {}\n\n", setting.heading)));
    }
    let keys = |are: fn(&Setting) -> bool| {
        let keys = settings.clone().filter(|setting| are(setting));
        keys.map(|setting| setting.key).collect::<Vec<_>>()
    };
    let required = keys(Setting::is_required).join(", ");
    let top = EXAMPLE_TOP.replace("REQUIRED", &required);
    let top = top.replace("FIXED", &keys(Setting::is_fixed).join(", "));
    assert!(FILE.starts_with(&top), "{top}");
    assert_eq!(load(FILE).unwrap(), Config::defaults());

    // Its end too can be used as it is.
    let (_, end) = FILE.split_once("\n# The terms of single clients").unwrap();
    let end = format!("# The terms{end}")
        .replace("\n# [", "\n[")
        .replace("\n# m", "\nm")
        .replace("\n# w", "\nw");
    let terms = ClientTerms::new().with_own_share(true);
    let terms = terms.with_most_lent(5).with_most_borrowed(20);
    assert_eq!(
        config(&end).terms["shop"],
        terms.try_with_weight(3).unwrap()
    );
}

const EXAMPLE_TOP: &str = "\
# Every setting of the sidecar with its default. These have none and are required, with examples here:
# REQUIRED.
# A flag or an environment variable holds over the file: --head-timeout 10s, PACELINE_HEAD_TIMEOUT=10s.
# A change of the file holds within 5 s, for new requests. Only these need a restart:
# FIXED.

";
