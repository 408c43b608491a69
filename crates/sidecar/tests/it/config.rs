//! What the binary makes of its flags, its environment and its file.

use super::support::{File, command, output, run, with_defaults};

/// What is required.
const REQUIRED: [[&str; 2]; 4] = [
    ["--listen", "127.0.0.1:9000"],
    ["--upstream", "http://127.0.0.1:8080"],
    ["--capacity", "40"],
    ["--cycle", "10s"],
];

/// The flags that are required, with others in place of those of the same name.
pub(crate) fn required_with<'f>(flags: &[&'f str]) -> Vec<&'f str> {
    with_defaults(&REQUIRED, flags)
}

/// The errors of a configuration that is refused, as `--check` and a start print them.
fn refused(flags: &[&str]) -> String {
    let start = output(flags);
    let (code, out, err) = output(&[&["--check"], flags].concat());
    assert_eq!((code, out.as_str()), (2, ""), "{err}");
    assert_eq!(start, (code, out, err.clone()));
    err
}

/// What `--check` prints, of flags that are right.
pub(crate) fn checked(flags: &[&str]) -> String {
    let (code, out, err) = output(&[&["--check"], flags].concat());
    assert_eq!((code, err.as_str()), (0, ""));
    out
}

/// The line of a setting in what `--check` prints: its value, and where that comes from.
pub(crate) fn line<'o>(out: &'o str, key: &str) -> (&'o str, &'o str) {
    let start = format!("{key} = ");
    let line = out.lines().find_map(|line| line.strip_prefix(&start));
    let line = line.unwrap_or_else(|| panic!("no {key} in {out}"));
    let (value, origin) = line.rsplit_once("  # ").unwrap();
    (value.trim_end(), origin)
}

#[test]
fn without_flags_each_missing_setting_is_named() {
    assert_eq!(
        refused(&[]),
        "\
error: listen: missing; give --listen, PACELINE_LISTEN, or listen = \"127.0.0.1:9000\" in a file for --config
error: upstream: missing; give --upstream, PACELINE_UPSTREAM, or upstream = \"http://127.0.0.1:8080\" in a file for --config
error: capacity: missing; give --capacity, PACELINE_CAPACITY, or capacity = 40 in a file for --config
error: cycle: missing; give --cycle, PACELINE_CYCLE, or cycle = \"10s\" in a file for --config
"
    );
}

#[test]
fn each_bad_value_is_refused_in_its_own_words() {
    for row in BAD_VALUES.lines() {
        let [key, value, error] = row.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{row}");
        };
        let flag = format!("--{key}");
        // An error names the flag that is given, save for a few.
        let mut expected = match error.chars().next() {
            Some('-' | '/') => error.to_owned(),
            _ => format!("{flag}: {error}"),
        };
        for (mark, words) in WORDS.lines().filter_map(|line| line.split_once(" = ")) {
            expected = expected.replace(mark, words);
        }
        let expected = format!("error: {expected}\n");
        assert_eq!(refused(&required_with(&[&flag, value])), expected, "{row}");
    }
}

/// What the errors of a kind have in common.
const WORDS: &str = "\
{share} = write 0% to 100%, with at most two decimals, as in 5% or 0.25%
{duration} = write a whole number and its unit, ms, s, m or h, as in 500ms, 10s or 2m
{concurrency} = write off, a number as in 50, or for an adaptive one where it begins and its maximum, as in 20..200
{address} = write an IP address and a port, as in 127.0.0.1:9000, 0.0.0.0:9000 or [::]:9000
{upstream} = write a host and a port, as in http://127.0.0.1:8080
{user} = has a user or a password, which the service does not get: write
{thresholds} = shed-good must be above 0% and below shed-bad, and shed-bad below 100%, got
{itself} = is the sidecar itself: listen is `127.0.0.1:9000`; give the port of the service
{number} = is not a whole number from 0 to 4294967295";

/// A flag, its value, and the error.
const BAD_VALUES: &str = "\
capacity | 0 | a fair share needs a capacity of at least 1, got 0
capacity | -1 | `-1` {number}
capacity | 4294967296 | `4294967296` {number}
capacity | 1e3 | `1e3` {number}
capacity |  | `` {number}
cycle | 0s | a fair share needs a cycle of at least 1 ns, got 0
cycle | 10 | `10` is not a duration: {duration}
cycle | 31000d | `31000d` is not a duration: {duration}
cycle | 721h | must be at most 720h, got 721h
reservation | 101% | `101%` is not a share: {share}
reservation | 0.1 | `0.1` is not a share: {share}
sharing | fair | `fair` is not a way to share: write demand or guaranteed
depth | 0% | must be 1% to 10000%, got 0%
depth | 20000% | must be 1% to 10000%, got 20000%
depth | 10s | `10s` is not a depth: write a whole percentage of a cycle, as in 50% or 200%
depth | 50000000% | `50000000%` is not a depth: write a whole percentage of a cycle, as in 50% or 200%
enforced | 200% | `200%` is not a share: {share}
mode | on | `on` is not a mode: write enforce, passthrough or off
max-clients | 0 | must be at least 1, got 0: for the clients of the file alone write known-only = true
forget-after | 0 | a client is forgotten after at least 1 idle cycle, got 0
early-cycles | never | `never` {number}, or off
cores | 0 | must be 1 to 1024, got 0
cores | 2000 | must be 1 to 1024, got 2000
listen | 9000 | `9000` is not an address to listen on: {address}
listen | localhost:9000 | `localhost:9000` is not an address to listen on: {address}
admin | 127.0.0.1:9000 | admin `127.0.0.1:9000` is the port of listen `127.0.0.1:9000`: give each a port of its own
listen | 127.0.0.1:9102 | admin `127.0.0.1:9102` is the port of listen `127.0.0.1:9102`: give each a port of its own
admin | 127.0.0.1:8080 | --upstream: `http://127.0.0.1:8080` is the sidecar itself: admin is `127.0.0.1:8080`; give the port of the service
upstream | 127.0.0.1:8080 | `127.0.0.1:8080` has no scheme: write http://127.0.0.1:8080, or h2c://127.0.0.1:8080 for HTTP/2
upstream | http://127.0.0.1:8080/api | `http://127.0.0.1:8080/api` has a path, `/api`, but requests keep their own: write http://127.0.0.1:8080
upstream | h2c://shop:1?a=b | `h2c://shop:1?a=b` has a path, `?a=b`, but requests keep their own: write h2c://shop:1
upstream | http://shop#top | `http://shop#top` has a path, `#top`, but requests keep their own: write http://shop
upstream | https://127.0.0.1:8080 | `https://127.0.0.1:8080` asks for TLS, which is not spoken to the upstream: write http://127.0.0.1:8080
upstream | unix:///run/shop | `unix:///run/shop` has an unknown scheme: write http:// or h2c://
upstream | 8080 | `8080` is not an upstream: {upstream}
upstream | http:/shop | `http:/shop` is not an upstream: {upstream}
upstream | shop | `shop` has no scheme: write http://shop, or h2c://shop for HTTP/2
upstream |  | `` is not an upstream: {upstream}
upstream | http:// | `http://` is not an upstream: {upstream}
upstream | http://:8080 | `http://:8080` is not an upstream: {upstream}
upstream | http://me@shop:8080 | `http://***@shop:8080` {user} http://shop:8080
upstream | http://me:pass@word@shop | `http://***@shop` {user} http://shop
upstream | me:pass/word@shop:8080 | `http://***@shop:8080` {user} http://shop:8080
upstream | https://me:password@shop | `https://***@shop` {user} https://shop
listen | http://me:pass/word@shop:80 | `http://***@shop:80` is not an address to listen on: {address}
upstream | http://shop:0 | `http://shop:0` is not an upstream: {upstream}
upstream | http://shop:65536 | `http://shop:65536` is not an upstream: {upstream}
upstream | http://shop :80 | `http://shop :80` is not an upstream: {upstream}
upstream | http://127.0.0.1:9000 | `http://127.0.0.1:9000` {itself}
client | cookie | `cookie` is not a way to know a client: write header or ip
client-header | x client | `x client` is not the name of a header: write letters, digits and hyphens, as in x-client-id
client-header | Host | `Host` is about the connection or the message: name one that is only about the client, as in x-client-id
client-header |  | `` is not the name of a header: write letters, digits and hyphens, as in x-client-id
ip-header | via | `via` is not a header of proxies: write forwarded, x-forwarded-for, x-real-ip or none
ip-header | forwarded | `forwarded` is only read with client = ip
trusted-proxies | 10.0.0.0/8 | `10.0.0.0/8` is only used with client = ip
anonymous | drop | `drop` is not an answer to requests without a client: write refuse, pass or share
concurrency | 0 | there must be at least 1 permit, got 0
concurrency | many | `many` is not a concurrency: {concurrency}
concurrency | 1.. | `1..` is not a concurrency: {concurrency}
concurrency | 20..10 | the floor must not be above the ceiling, got 20 and 10
shed-good | 90% | {thresholds} 90% and 80%
shed-good | 0% | {thresholds} 0% and 80%
shed-bad | 50% | {thresholds} 70% and 50%
shed-bad | 100% | {thresholds} 70% and 100%
shed-delay | 0s | the delay must be at least 1 ns, got 0
shed-ramp | 0s | the ramp must be at least 1 ns, got 0
head-timeout | 0s | must be longer than 0s, got 0s
idle-timeout | 0ms | must be longer than 0s, got 0s
body-timeout | 0s | must be longer than 0s, got 0s
connect-timeout | 0s | must be longer than 0s, got 0s
response-timeout | 0s | must be longer than 0s, got 0s
upstream-idle-timeout | 0s | must be longer than 0s, got 0s
queue-timeout | 1000h | must be at most 720h, got 1000h
drain-finish | 1000h | must be at most 720h, got 1000h
max-head-bytes | 8191 | must be 8192 to 16777216, got 8191
max-fields | 0 | must be 1 to 10000, got 0
max-connections | 0 | must be at least 1, got 0
max-connections-per-address | 0 | must be at least 1, got 0
max-streams | 0 | must be at least 1, got 0
log | loud | `loud` is not a level: write error, warn, info, debug or trace
admin-token-file | /nowhere/token | `/nowhere/token` cannot be read: No such file or directory (os error 2)
admin-token-file | /dev/zero | `/dev/zero` has more than 1 MiB: name another file
config | /nowhere/sidecar.toml | /nowhere/sidecar.toml: cannot be read: No such file or directory (os error 2)
config | /dev/zero | /dev/zero: has more than 1 MiB: name another file";

#[test]
fn a_file_of_more_than_1_mib_is_refused() {
    let file = File::new("sidecar.toml", &"\n".repeat(1 << 20));
    let flags = required_with(&["--config", file.path()]);
    checked(&flags);
    file.write(&"\n".repeat((1 << 20) + 1));
    let error = "has more than 1 MiB: name another file";
    assert_eq!(
        refused(&flags),
        format!("error: {}: {error}\n", file.path())
    );
}

#[test]
fn a_switch_is_true_or_false() {
    for (flag, value) in [
        ("--carry", "true"),
        ("--carry=true", "true"),
        ("--carry=false", "false"),
    ] {
        let out = checked(&required_with(&[flag]));
        assert_eq!(line(&out, "carry"), (value, "flag --carry"));
    }
    let error = "error: --carry: `yes` is not true or false: write true or false\n";
    assert_eq!(refused(&required_with(&["--carry=yes"])), error);
}

#[test]
fn a_list_without_a_proxy_is_refused() {
    let by_proxies = ["--client", "ip", "--ip-header", "forwarded"];
    let error = "`forwarded` is only read from trusted proxies: name their addresses in trusted-proxies, as in 10.0.0.0/8\n";
    for (more, key) in [
        (&["--trusted-proxies", ","][..], "trusted-proxies"),
        (&[], "ip-header"),
    ] {
        let flags = [&by_proxies[..], more].concat();
        let error = format!("error: --{key}: {error}");
        assert_eq!(refused(&required_with(&flags)), error);
    }
}

#[test]
fn more_clients_than_a_share_can_have_are_refused() {
    let text = "max-clients = 9_999_999\n[clients.a]\n[clients.b]\n";
    let file = File::new("sidecar.toml", text);
    let path = file.path();
    let expected = format!(
        "error: {path}:1:15: max-clients: a fair share has at most 10000000 clients, got 10000001: 9999999 and the 2 of the file\n"
    );
    assert_eq!(refused(&required_with(&["--config", path])), expected);
    file.write(&text.replace("999_999", "999_998"));
    checked(&required_with(&["--config", path]));
}

#[test]
fn a_client_cannot_have_the_name_of_all_others() {
    let file = File::new("sidecar.toml", "[clients.\"(other clients)\"]\n");
    let error = refused(&required_with(&["--config", file.path()]));
    assert!(error.contains("no client has this id"), "{error}");
}

#[test]
fn an_empty_token_file_is_refused() {
    let token = File::new("token", " \n");
    let path = token.path();
    let error = format!("error: --admin-token-file: `{path}` is empty: write the token into it\n");
    let flags = required_with(&["--admin-token-file", path]);
    assert_eq!(refused(&flags), error);
}

/// What `--check` warns about, of flags that are right.
fn warned(flags: &[&str]) -> String {
    let flags = required_with(flags);
    let (code, _, err) = output(&[&["--check"], &flags[..]].concat());
    assert_eq!(code, 0, "{err}");
    err
}

#[test]
fn an_admin_port_for_other_machines_without_a_token_is_warned_about() {
    let flags = ["--admin", "0.0.0.0:9102"];
    let warning = "warning: --admin: other machines can read from `0.0.0.0:9102`, and without admin-token-file only this one can change anything\n";
    assert_eq!(warned(&flags), warning);

    let token = File::new("token", "secret\n");
    let with_token = [&flags[..], &["--admin-token-file", token.path()]].concat();
    assert_eq!(warned(&with_token), "");
}

#[test]
fn proxies_at_every_address_are_warned_about() {
    let by_proxies = ["--client", "ip", "--ip-header", "x-forwarded-for"];
    for (trusted, every) in [("0.0.0.0/0", "0.0.0.0/0"), ("10.0.0.0/8,::/0", "::/0")] {
        let flags = [&by_proxies[..], &["--trusted-proxies", trusted]].concat();
        let warning = format!(
            "warning: --trusted-proxies: `{every}` is every address, so each caller can choose its client: name only the proxies\n"
        );
        assert_eq!(warned(&flags), warning);
    }
    let flags = [&by_proxies[..], &["--trusted-proxies", "10.0.0.0/8"]].concat();
    assert_eq!(warned(&flags), "");
}

#[test]
fn a_setting_of_the_other_way_to_share_is_warned_about() {
    let guaranteed = ["--sharing", "guaranteed"];
    for (flag, value) in [
        ("--reservation", "20%"),
        ("--max-min", "true"),
        ("--early-cycles", "off"),
        ("--carry", "true"),
    ] {
        let warning = format!("warning: {flag}: is not used with sharing = guaranteed\n");
        let flag = format!("{flag}={value}");
        assert_eq!(warned(&[&guaranteed[..], &[&flag]].concat()), warning);
        assert_eq!(warned(&[&flag]), "");
    }
    let warning = "warning: --depth: is not used with sharing = demand\n";
    assert_eq!(warned(&["--depth", "50%"]), warning);
    assert_eq!(warned(&[&guaranteed[..], &["--depth", "50%"]].concat()), "");
    // As every default of the file.
    let all = ["--reservation", "10%", "--depth", "100%"];
    assert_eq!(warned(&[&guaranteed[..], &all].concat()), "");
}

#[test]
fn a_client_header_with_secrets_is_warned_about() {
    for header in [
        "Authorization",
        "cookie",
        "proxy-authorization",
        "x-api-key",
    ] {
        let lower = header.to_lowercase();
        let warning = format!(
            "warning: --client-header: `{lower}` has secrets, and the metrics show the ids of clients: name a header without secrets\n"
        );
        assert_eq!(warned(&["--client-header", header]), warning);
        // By its address a client is known without the header.
        assert_eq!(warned(&["--client-header", header, "--client", "ip"]), "");
    }
}

#[test]
fn a_password_in_a_url_is_printed_by_no_error() {
    let url = "http://me:password@shop:80";
    let text = format!(
        "upstream = \"{url}\"\nlisten = [\"{url}\"]\ncapacity = \"{url}\"\n\"{url}\" = 1\nmode = \"{url}\"\n"
    );
    let file = File::new("sidecar.toml", &text);
    let by_file = output(&["--config", file.path()]);
    let by_argument = output(&[url]);
    let mut with_variable = command(&required_with(&[]));
    let by_variable = run(with_variable.env("PACELINE_CLIENT_HEADER", url), b"");
    for (code, out, err) in [by_file, by_argument, by_variable] {
        assert_eq!((code, out.as_str()), (2, ""));
        assert!(err.contains("://***@shop:80"), "{err}");
        assert!(!err.contains("password@"), "{err}");
    }
}

#[test]
fn an_unknown_flag_is_refused_with_the_nearest() {
    let (code, out, err) = output(&required_with(&["--capcity", "3"]));
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("unexpected argument '--capcity'"), "{err}");
    assert!(err.contains("'--capacity'"), "{err}");
}

#[test]
fn a_value_holds_from_the_flag_then_the_variable_then_the_file() {
    let file = File::new(
        "sidecar.toml",
        "upstream = \"http://shop:1\"\nlisten = \"127.0.0.1:1\"\n\n  capacity = 1\ncycle = \"1s\"\n[clients.shop]\nweight = 3\n",
    );
    let report = |flags: &[&str]| {
        let mut command = command(&[flags, &["--check"]].concat());
        command
            .env("PACELINE_CONFIG", file.path())
            .env("PACELINE_CAPACITY", "2")
            .env("PACELINE_LISTEN", "127.0.0.1:2");
        let (code, out, err) = run(&mut command, b"");
        assert_eq!(code, 0, "{err}");
        out
    };
    let out = report(&["--listen", "127.0.0.1:3"]);
    let at = |line| format!("{}:{line}", file.path());
    for (key, value, origin) in [
        ("listen", "\"127.0.0.1:3\"", "flag --listen"),
        ("capacity", "2", "environment variable PACELINE_CAPACITY"),
        ("upstream", "\"http://shop:1\"", &at(1)),
        ("cycle", "\"1s\"", &at(5)),
        ("clients.shop", "{ weight = 3 }", &at(6)),
        ("mode", "\"enforce\"", "default"),
    ] {
        assert_eq!(line(&out, key), (value, origin));
    }

    // A file that is named by a flag is another one.
    let text = "upstream = \"http://other:1\"\ncycle = \"1s\"\n";
    let other = File::new("sidecar.toml", text);
    let out = report(&["--config", other.path()]);
    let origin = format!("{}:1", other.path());
    let expected = ("\"http://other:1\"", origin.as_str());
    assert_eq!(line(&out, "upstream"), expected);
}

#[test]
fn a_wrong_name_or_type_in_the_file_is_refused_with_its_place() {
    let text = "capcity = 40\ncycle = 10\n\n[client.shop]\n";
    let file = File::new("sidecar.toml", text);
    let path = file.path();
    let flags = [REQUIRED[0], REQUIRED[1], ["--config", path]];
    assert_eq!(
        refused(flags.as_flattened()),
        format!(
            "\
error: {path}:1:1: unknown key `capcity`; did you mean `capacity`?
error: {path}:2:9: cycle: expected a string such as \"10s\", got the number 10
error: {path}:4:2: client: expected a string such as \"header\", got a table
error: capacity: missing; give --capacity, PACELINE_CAPACITY, or capacity = 40 in {path}
"
        )
    );
}

#[test]
fn a_variable_that_is_nearly_a_setting_is_refused() {
    let error = "error: PACELINE_CAPACTY: no such variable; did you mean PACELINE_CAPACITY?\n";
    let warning = "warning: PACELINE_SERVICE_HOST: not a variable of the sidecar, ignored\n";
    for (name, code, err) in [
        ("PACELINE_CAPACTY", 2, error),
        ("PACELINE_SERVICE_HOST", 0, warning),
    ] {
        let mut command = command(&required_with(&["--check"]));
        let ended = run(command.env(name, "1"), b"");
        assert_eq!((ended.0, ended.2.as_str()), (code, err));
    }
}

#[test]
fn the_help_text_has_every_setting_with_its_default() {
    let (code, help, err) = output(&["--help"]);
    assert_eq!((code, err.as_str()), (0, ""));
    for line in checked(&required_with(&[])).lines() {
        let (key, value) = line.split_once(" = ").unwrap();
        let value = value.rsplit_once("  # ").unwrap().0.trim_end();
        let flag = format!("--{key}");
        let rest = help
            .split_whitespace()
            .skip_while(|word| word.split('[').next() != Some(&flag));
        let rest: Vec<_> = rest.take(40).collect();
        let value = value.trim_matches(['"', '[', ']']);
        let default = format!("[default: {value}]");
        let is_known = rest.join(" ").contains(&default) || value.is_empty();
        let is_required =
            REQUIRED.iter().any(|[name, _]| *name == flag) && rest.contains(&"[required]");
        assert!(is_known || is_required, "{flag}: {rest:?}");
    }
}
