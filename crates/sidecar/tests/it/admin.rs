//! The port for operators: what each path answers, and what it refuses.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::client::{Answer, metric};
use super::support::{
    File, PATIENCE, Sidecar, connect, head, promtool, rest, wait_until, with_defaults,
};
use super::upstream::hello;

/// What makes a request one that no page of another site can send.
const JSON: (&str, &str) = ("content-type", "application/json");

/// A request of a program that sends a form.
const FORM: [(&str, &str); 2] = [
    ("content-type", "application/x-www-form-urlencoded"),
    ("x-requested-with", "curl"),
];

const OFF: &str = r#"{"mode":"off"}"#;

type Headers = [(&'static str, &'static str)];

/// With a capacity of 40, and a cycle of 1 s unless the flags say another one.
fn start(flags: &[&str]) -> Sidecar {
    let defaults = [["--capacity", "40"], ["--cycle", "1s"]];
    Sidecar::start(hello(), &with_defaults(&defaults, flags))
}

fn get(sidecar: &Sidecar, path: &str) -> Answer {
    sidecar.operator().send("GET", path, &[], b"")
}

fn post(sidecar: &Sidecar, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    sidecar
        .operator()
        .send("POST", path, headers, body.as_bytes())
}

fn value(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_else(|_| panic!("{}", answer.text()))
}

/// Problem details of this status, and what they say.
#[track_caller]
fn problem(answer: &Answer, status: u16) -> String {
    assert_eq!(answer.status, status, "{}", answer.text());
    let content_type = answer.header("content-type");
    assert_eq!(content_type, Some("application/problem+json"));
    let problem = value(answer);
    assert_eq!(problem["status"], status);
    problem["detail"].as_str().unwrap().to_owned()
}

#[track_caller]
fn is_enforced(sidecar: &Sidecar) {
    let mode = sidecar.metric("paceline_mode{mode=\"enforce\"}");
    assert_eq!(mode, Some(1.0));
}

#[test]
fn each_path_takes_its_methods_and_other_paths_are_404() {
    let sidecar = start(&[]);
    for (path, content_type) in [
        ("/", "text/html; charset=utf-8"),
        ("/healthz", "text/plain; charset=utf-8"),
        ("/readyz", "text/plain; charset=utf-8"),
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8"),
        ("/clients", "application/json"),
        ("/events", "text/event-stream"),
    ] {
        let ask = |method| sidecar.operator().send(method, path, &[JSON], b"");
        for method in ["HEAD", "GET"] {
            if (method, path) == ("GET", "/events") {
                continue; // It does not end.
            }
            let answer = ask(method);
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
            for (name, value) in [
                ("content-type", content_type),
                ("cache-control", "no-store"),
                ("x-content-type-options", "nosniff"),
            ] {
                assert_eq!(answer.header(name), Some(value), "{method} {path}");
            }
            assert_eq!(answer.body.is_empty(), method == "HEAD", "{method} {path}");
        }
        for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
            let answer = ask(method);
            problem(&answer, 405);
            assert_eq!(answer.header("allow"), Some("GET, HEAD"), "{method} {path}");
        }
    }
    for path in ["/mode", "/reload"] {
        let answer = get(&sidecar, path);
        problem(&answer, 405);
        assert_eq!(answer.header("allow"), Some("POST"));
    }
    for path in ["/nothing", "/metrics/", "//", "/Metrics", "/favicon.ico"] {
        problem(&get(&sidecar, path), 404);
    }
}

#[test]
fn the_public_port_has_no_path_of_the_admin_port() {
    let sidecar = start(&["--mode", "enforce"]);
    for (method, path) in [("POST", "/mode"), ("POST", "/reload"), ("GET", "/metrics")] {
        // It is a request without a client, as any other path would be.
        let answer = sidecar.client().send(method, path, &[JSON], OFF.as_bytes());
        assert_eq!(answer.status, 429, "{path}");
    }
    is_enforced(&sidecar);
}

#[test]
fn ready_is_when_the_upstream_accepts_and_not_while_draining() {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = upstream.local_addr().unwrap();
    drop(upstream);
    let sidecar = Sidecar::start(at, &["--drain-announce", "60s"]);
    let reason = problem(&get(&sidecar, "/readyz"), 503);
    assert!(reason.contains(&at.to_string()), "{reason}");
    assert_eq!(get(&sidecar, "/healthz").status, 200);

    let _upstream = TcpListener::bind(at).unwrap();
    wait_until("it is ready", || get(&sidecar, "/readyz").status == 200);

    sidecar.signal(Signal::TERM);
    wait_until("it drains", || get(&sidecar, "/readyz").status == 503);
    let reason = problem(&get(&sidecar, "/readyz"), 503);
    assert_eq!(reason, "the sidecar is draining");
    assert_eq!(get(&sidecar, "/healthz").status, 200);
}

/// Many probes at once are one connection to the upstream.
#[test]
fn probes_do_not_flood_the_upstream() {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let sidecar = Sidecar::start(upstream.local_addr().unwrap(), &[]);
    let start = Instant::now();
    for _ in 0..200 {
        assert_eq!(get(&sidecar, "/readyz").status, 200);
    }
    // One try a second, and the two at the ends.
    let most = start.elapsed().as_secs() + 2;
    upstream.set_nonblocking(true).unwrap();
    let mut tries = 0;
    while upstream.accept().is_ok() {
        tries += 1;
    }
    assert!((1..=most).contains(&tries), "{tries} tries, {most} allowed");
}

#[test]
fn a_foreign_name_for_this_machine_is_refused() {
    let sidecar = start(&[]);
    for (host, status) in [
        ("host: localhost\r\n", 200),
        ("host: 127.0.0.1:9102\r\n", 200),
        ("host: [::1]:9102\r\n", 200),
        ("", 403),
        ("host: rebound.example:9102\r\n", 403),
        ("host: localhost\r\nhost: localhost\r\n", 403),
    ] {
        let mut stream = connect(sidecar.admin);
        let head = format!("GET /clients HTTP/1.1\r\n{host}connection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let answer = rest(&mut stream);
        let expected = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&expected), "{host}: {answer}");
    }
}

#[test]
fn a_change_that_a_page_of_another_site_can_make_a_browser_send_is_refused() {
    let sidecar = start(&[]);
    let own = format!("http://{}", sidecar.admin);
    let refused: [&Headers; 10] = [
        &[],
        &[("content-type", "text/plain")],
        &[("content-type", "application/x-www-form-urlencoded")],
        &[("content-type", "multipart/form-data; boundary=x")],
        &[("content-type", "text/plain; application/json")],
        &[JSON, ("origin", "http://other.example")],
        &[JSON, ("origin", "null")],
        &[JSON, ("origin", "http://localhost:1")],
        &[JSON, ("sec-fetch-site", "cross-site")],
        &[JSON, ("x-forwarded-for", "10.0.0.7")],
    ];
    for path in ["/mode", "/reload"] {
        for headers in refused {
            let reason = problem(&post(&sidecar, path, headers, OFF), 403);
            assert!(reason.contains("a change "), "{headers:?}: {reason}");
        }
        let same = [
            JSON,
            ("origin", own.as_str()),
            ("sec-fetch-site", "same-origin"),
        ];
        let answer = post(&sidecar, path, &same, "{\"mode\":\"enforce\"}");
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    is_enforced(&sidecar);
}

#[test]
fn the_mode_and_the_enforced_share_change() {
    let sidecar = start(&[]);
    let with_charset = [("content-type", "application/json; charset=utf-8")];
    let both = r#"{"mode":"enforce","share":100}"#;
    let changes: [(&Headers, &str, &str, f64); 6] = [
        (&[JSON], r#"{"mode":"passthrough"}"#, "passthrough", 100.0),
        (&[JSON], r#"{"share":25}"#, "passthrough", 25.0),
        (&FORM, "mode=enforce", "enforce", 25.0),
        (&FORM, "mode=off&share=0", "off", 0.0),
        (&with_charset, both, "enforce", 100.0),
        (&FORM, "share=50", "enforce", 50.0),
    ];
    for (headers, body, mode, share) in changes {
        let answer = post(&sidecar, "/mode", headers, body);
        assert_eq!(answer.status, 200, "{body}: {}", answer.text());
        assert_eq!(value(&answer), json!({ "mode": mode, "share": share }));
        let scrape = sidecar.scrape();
        for name in ["enforce", "passthrough", "off"] {
            let is_on = metric(&scrape, &format!("paceline_mode{{mode=\"{name}\"}}"));
            assert_eq!(is_on, Some(f64::from(u8::from(name == mode))));
        }
        let enforced = metric(&scrape, "paceline_enforced_ratio");
        assert_eq!(enforced, Some(share / 100.0));
    }
}

#[test]
fn a_wrong_change_is_refused_with_what_would_be_right() {
    let sidecar = start(&[]);
    let wrong: [(&Headers, &str, &str); 9] = [
        (&[JSON], "", "EOF"),
        (&[JSON], "{}", "neither mode nor share"),
        (
            &[JSON],
            r#"{"mode":"Off"}"#,
            "`enforce`, `passthrough`, `off`",
        ),
        (&[JSON], r#"{"mode":"off","share":101}"#, "101"),
        (&[JSON], r#"{"share":-1}"#, "-1"),
        (&[JSON], r#"{"modus":"off"}"#, "modus"),
        (&FORM, "mode", "mode"),
        (&FORM, "mode=off&mode=enforce", "twice"),
        (&FORM, "share=all", "all"),
    ];
    for (headers, body, part) in wrong {
        let reason = problem(&post(&sidecar, "/mode", headers, body), 400);
        assert!(reason.contains(part), "{body}: {reason}");
    }
    let xml = [("content-type", "application/xml"), FORM[1]];
    problem(&post(&sidecar, "/mode", &xml, "<mode/>"), 415);
    let long = format!("{{\"mode\":\"{}\"}}", "x".repeat(5_000));
    problem(&post(&sidecar, "/mode", &[JSON], &long), 413);
    is_enforced(&sidecar);
}

#[test]
fn the_token_is_read_at_each_use() {
    let token = File::new("token", "first-secret\n");
    let sidecar = start(&["--admin-token-file", token.path()]);
    let with = |value: &str| {
        let from = ("x-forwarded-for", "10.0.0.7");
        let headers = [("authorization", value), from, JSON];
        post(&sidecar, "/mode", &headers, OFF)
    };
    assert_eq!(with("Bearer first-secret").status, 200);
    assert_eq!(with("bearer first-secret").status, 200);
    for wrong in [
        "Bearer first-secre",
        "Bearer first-secret2",
        "Bearer",
        "Bearer ",
        "Basic first-secret",
        "first-secret",
    ] {
        problem(&with(wrong), 403);
    }
    token.write("second-secret");
    problem(&with("Bearer first-secret"), 403);
    assert_eq!(with("Bearer second-secret").status, 200);
    // An empty file holds no token, and so none is right.
    token.write("\n");
    for empty in ["Bearer ", "Bearer", "Bearer second-secret"] {
        problem(&with(empty), 403);
    }
    token.remove();
    problem(&with("Bearer second-secret"), 403);
    sidecar.wait_for_log("admin_token_file");
}

#[test]
fn without_a_token_file_no_token_is_right() {
    let headers = [("authorization", "Bearer secret"), JSON];
    let reason = problem(&post(&start(&[]), "/mode", &headers, OFF), 403);
    assert!(reason.contains("admin_token_file"), "{reason}");
}

/// Opens `/events` and skips the head.
fn events(sidecar: &Sidecar) -> BufReader<TcpStream> {
    let mut stream = connect(sidecar.admin);
    // An old protocol, so that the body is not in chunks.
    stream
        .write_all(b"GET /events HTTP/1.0\r\nhost: localhost\r\n\r\n")
        .unwrap();
    let head = head(&mut stream);
    assert!(head.contains(" 200 "), "{head}");
    assert!(head.contains("text/event-stream"), "{head}");
    BufReader::new(stream)
}

/// The next event; `None` at the end.
fn next(events: &mut impl BufRead) -> Option<Value> {
    events.lines().find_map(|line| {
        let line = line.unwrap();
        let data = line.strip_prefix("data: ")?;
        Some(serde_json::from_str(data).unwrap())
    })
}

#[test]
fn events_come_in_each_cycle() {
    let sidecar = start(&[]);
    let mut events = events(&sidecar);
    let cycle = |event: &Value| event["cycle"].as_u64().unwrap();
    let (mut last, mut row) = (cycle(&next(&mut events).unwrap()), 1);
    let start = Instant::now();
    // A busy machine may be late for one cycle, and not for ever.
    while row < 4 {
        assert!(start.elapsed() < PATIENCE);
        let event = next(&mut events).unwrap();
        let is_within = event["elapsed_ms"].as_u64() <= event["cycle_ms"].as_u64();
        assert!(is_within, "{event}");
        row = match cycle(&event) - last {
            0 => row,
            1 => row + 1,
            _ => 1,
        };
        last = cycle(&event);
    }
}

#[test]
fn readers_of_events_are_bounded() {
    let sidecar = start(&[]);
    let mut readers: Vec<_> = (0..32).map(|_| events(&sidecar)).collect();
    let reason = problem(&get(&sidecar, "/events"), 503);
    assert!(reason.contains("32"), "{reason}");
    readers.pop();
    wait_until("the place is free", || {
        sidecar.operator().send("HEAD", "/events", &[], b"").status == 200
    });
    assert!(next(&mut readers[0]).is_some());
}

#[test]
fn events_end_when_the_sidecar_drains() {
    let sidecar = start(&["--drain-announce", "60s"]);
    let mut events = events(&sidecar);
    let mut last = next(&mut events).unwrap();
    assert_eq!(last["is_draining"], false);
    sidecar.signal(Signal::TERM);
    while let Some(event) = next(&mut events) {
        last = event;
    }
    assert_eq!(last["is_draining"], true);
    problem(&get(&sidecar, "/events"), 503);
}

/// Connections that never send a whole head: silent ones, half heads, and heads of which a byte comes now and then. One that is
/// closed is opened again, until the port is closed or this is dropped.
struct Held {
    renewed: Arc<AtomicU32>,
}

impl Held {
    fn open(at: SocketAddr, count: usize) -> Self {
        let begun = [
            "",
            "GET /healthz HTTP/1.1\r\n",
            "GET /healthz HTTP/1.1\r\na:",
        ];
        let open = move |number: usize| {
            let mut stream = TcpStream::connect(at).ok()?;
            stream.set_nonblocking(true).ok()?;
            let _ = stream.write_all(begun[number % 3].as_bytes());
            Some(stream)
        };
        let mut streams: Vec<_> = (0..count).filter_map(open).collect();
        let held = Self {
            renewed: Arc::default(),
        };
        let renewed = Arc::downgrade(&held.renewed);
        thread::spawn(move || {
            while let Some(renewed) = renewed.upgrade() {
                for (number, stream) in streams.iter_mut().enumerate() {
                    let read = stream.read(&mut [0; 512]);
                    if read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
                        let next: &[u8] = if number % 3 == 2 { b"b" } else { b"" };
                        let _ = stream.write_all(next);
                    } else if let Some(new) = open(number) {
                        *stream = new;
                        renewed.fetch_add(1, Ordering::Relaxed);
                    }
                }
                thread::sleep(Duration::from_millis(1));
            }
        });
        held
    }

    fn renewed(&self) -> u32 {
        self.renewed.load(Ordering::Relaxed)
    }
}

#[test]
fn connections_without_a_head_cost_no_probe_no_scrape_and_no_reader_of_events() {
    let sidecar = start(&[]);
    let mut readers: Vec<_> = (0..8).map(|_| events(&sidecar)).collect();
    let silent = Held::open(sidecar.admin, 1_200);
    for _ in 0..12 {
        assert_eq!(get(&sidecar, "/healthz").status, 200);
        assert_eq!(get(&sidecar, "/readyz").status, 200);
        sidecar.scrape();
        // Now many have been closed for others.
        let renewed = silent.renewed();
        wait_until("they are renewed", || silent.renewed() > renewed);
    }
    let view = value(&get(&sidecar, "/clients"));
    for reader in &mut readers {
        while next(reader).unwrap()["cycle"].as_u64() <= view["cycle"].as_u64() {}
    }
}

#[test]
fn an_answer_says_that_its_connection_ends() {
    let sidecar = start(&[]);
    for path in ["/mode", "/reload"] {
        let mut operator = sidecar.operator();
        let answer = operator.send("POST", path, &[JSON], OFF.as_bytes());
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert_eq!(answer.header("connection"), Some("close"), "{path}");
        assert!(operator.try_send("GET", "/", &[], b"").is_err(), "{path}");
    }
    let long = "x".repeat(5_000);
    problem(&post(&sidecar, "/reload", &[JSON], &long), 413);
}

#[test]
fn open_metrics_are_there_for_a_scraper_that_asks() {
    let sidecar = start(&[]);
    let types = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
    let accept = [("accept", types)];
    let answer = sidecar.operator().send("GET", "/metrics", &accept, b"");
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(answer.header("content-type"), Some(content_type));
    let text = answer.text();
    assert!(text.ends_with("# EOF\n"), "{text}");
    for line in ["paceline_requests counter", "paceline_build info"] {
        assert!(text.contains(&format!("# TYPE {line}\n")), "{text}");
    }
    checked_scrape(&sidecar);
}

/// In which promtool finds no fault.
fn checked_scrape(sidecar: &Sidecar) -> String {
    let scrape = sidecar.scrape();
    assert_eq!(promtool(&["check", "metrics"], &scrape), "", "{scrape}");
    scrape
}

/// The count of one client.
fn requests(scrape: &str, client: &str, outcome: &str) -> Option<f64> {
    let labels = format!("{{client=\"{client}\",outcome=\"{outcome}\"}}");
    metric(scrape, &format!("paceline_client_requests_total{labels}"))
}

/// The cycle does not end.
const LONG: [&str; 4] = ["--cycle", "60s", "--early-cycles", "off"];

#[test]
fn names_of_clients_are_escaped_in_labels() {
    let sidecar = start(&LONG);
    let names = [
        ("a\"b", "a\\\"b"),
        ("a\\b", "a\\\\b"),
        ("a\\n", "a\\\\n"),
        ("x\",outcome=\"y", "x\\\",outcome=\\\"y"),
        ("}#{", "}#{"),
    ];
    let mut client = sidecar.client();
    for (name, _) in names {
        assert_eq!(client.get("/", name).status, 200);
    }
    let text = checked_scrape(&sidecar);
    let clients = value(&get(&sidecar, "/clients"));
    let clients = clients["clients"].as_array().unwrap();
    for (name, label) in names {
        let counts = ["passed", "refused"].map(|outcome| requests(&text, label, outcome));
        assert_eq!(counts, [Some(1.0), Some(0.0)], "{name}: {text}");
        let size = format!("paceline_client_size{{client=\"{label}\"}}");
        assert_eq!(metric(&text, &size), Some(8.0), "{name}");
        let is_listed = clients.iter().any(|client| client["client"] == name);
        assert!(is_listed, "{name}: {clients:?}");
    }
}

#[test]
fn each_request_is_counted_once() {
    let sidecar = start(&["--cycle", "60s"]);
    let mut client = sidecar.client();
    client.statuses("alone", 60);
    assert_eq!(client.send("GET", "/", &[], b"").status, 429);
    let two = [("x-client-id", "a"), ("x-client-id", "b")];
    assert_eq!(sidecar.client().send("GET", "/", &two, b"").status, 400);

    let text = checked_scrape(&sidecar);
    for (outcome, expected) in [
        ("answered", 40.0),
        ("refused", 20.0),
        ("anonymous", 1.0),
        ("shed", 0.0),
        ("bad_request", 1.0),
        ("upstream_failed", 0.0),
        ("upstream_late", 0.0),
        ("cancelled", 0.0),
    ] {
        let series = format!("paceline_requests_total{{outcome=\"{outcome}\"}}");
        assert_eq!(metric(&text, &series), Some(expected), "{outcome}\n{text}");
    }
    assert_eq!(requests(&text, "alone", "passed"), Some(40.0));
    assert_eq!(requests(&text, "alone", "refused"), Some(20.0));
    for histogram in ["added", "upstream"] {
        let of = |series: &str| metric(&text, &format!("paceline_{histogram}_seconds_{series}"));
        assert_eq!(of("count"), Some(40.0), "{text}");
        assert_eq!(of("bucket{le=\"+Inf\"}"), Some(40.0));
        assert!(of("sum").unwrap() > 0.0);
    }
    drop(client);
    sidecar.wait_for_connections(0);

    let view = value(&get(&sidecar, "/clients"));
    assert_eq!((&view["capacity"], &view["known"]), (&40.into(), &1.into()));
    let alone = json!({
        "client": "alone", "size": 40, "demand": view["clients"][0]["demand"], "used": 40, "refused": 20, "lent": 0, "borrowed": 0,
        "waiting": 0, "passed_total": 40, "refused_total": 20,
    });
    assert_eq!(view["clients"][0], alone);
}

/// Its counts are gone too: series of old clients would fill the memory of Prometheus.
#[test]
fn a_client_that_left_has_no_series() {
    let sidecar = start(&["--forget-after", "2"]);
    let mut client = sidecar.client();
    client.get("/", "short");
    assert!(sidecar.scrape().contains("client=\"short\""));
    wait_until("it is forgotten", || {
        client.get("/", "long");
        !sidecar.scrape().contains("short")
    });
    let text = checked_scrape(&sidecar);
    assert!(text.contains("client=\"long\""), "{text}");
    assert!(!get(&sidecar, "/clients").text().contains("short"));
}

#[test]
fn clients_beyond_the_bound_are_one_in_the_metrics() {
    let sidecar = start(&[&LONG[..], &["--max-clients", "2"]].concat());
    let mut client = sidecar.client();
    for number in 0..5 {
        client.get("/", &format!("client-{number}"));
    }
    let text = checked_scrape(&sidecar);
    assert_eq!(value(&get(&sidecar, "/clients"))["known"], 3, "{text}");
    assert!(text.contains("client=\"(other clients)\""), "{text}");
    assert!(!text.contains("client-4"), "{text}");
}
