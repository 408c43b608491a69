//! The port for operators: what each path answers, and what it refuses.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use rustix::process::Signal;
use serde_json::Value;

use super::client::{Answer, Client, metric, scrape};
use super::support::{PATIENCE, Sidecar};
use super::upstream;

/// What makes a request one that no page of another site can send.
const JSON: (&str, &str) = ("content-type", "application/json");

type Headers = [(&'static str, &'static str)];

/// An upstream that accepts connections, and answers none.
fn silent() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn get(sidecar: &Sidecar, path: &str) -> Answer {
    ask(sidecar, "GET", path, &[], "")
}

fn post(sidecar: &Sidecar, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    ask(sidecar, "POST", path, headers, body)
}

fn ask(
    sidecar: &Sidecar,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let mut client = Client::connect(sidecar.admin);
    client.send(method, path, headers, body.as_bytes()).unwrap()
}

fn json(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_else(|_| panic!("{}", answer.text()))
}

/// Problem details of this status, and what they say.
#[track_caller]
fn problem(answer: &Answer, status: u16) -> String {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json")
    );
    let problem = json(answer);
    assert_eq!(problem["status"], status);
    problem["detail"].as_str().unwrap().to_owned()
}

/// Waits until it holds.
#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A file of this test alone. It goes when it is dropped.
struct File(std::path::PathBuf);

impl File {
    fn new(name: &str, contents: &str) -> Self {
        let file = env::temp_dir().join(format!("paceline-admin-{}-{name}", process::id()));
        fs::write(&file, contents).unwrap();
        Self(file)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// With a capacity of 40, and a cycle of 1 s unless the flags say another one.
fn start(upstream: SocketAddr, flags: &[&str]) -> Sidecar {
    let mut all = vec!["--capacity", "40"];
    if !flags.contains(&"--cycle") {
        all.extend(["--cycle", "1s"]);
    }
    all.extend(flags);
    Sidecar::start(upstream, &all)
}

#[test]
fn each_path_takes_its_methods_and_other_paths_are_404() {
    let (_upstream, at) = silent();
    let sidecar = start(at, &[]);
    let types = [
        ("/", "text/html; charset=utf-8"),
        ("/healthz", "text/plain; charset=utf-8"),
        ("/readyz", "text/plain; charset=utf-8"),
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8"),
        ("/clients", "application/json"),
    ];
    for (path, content_type) in types {
        let answer = get(&sidecar, path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert_eq!(answer.header("content-type"), Some(content_type));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert!(!answer.body.is_empty());
        let head = ask(&sidecar, "HEAD", path, &[], "");
        assert_eq!(
            (head.status, head.header("content-type")),
            (200, Some(content_type))
        );
    }
    assert_eq!(ask(&sidecar, "HEAD", "/events", &[], "").status, 200);
    for (path, _) in types.into_iter().chain([("/events", "")]) {
        for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
            let answer = ask(&sidecar, method, path, &[JSON], "");
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
    let (_upstream, at) = silent();
    let sidecar = start(at, &["--mode", "enforce"]);
    for (method, path) in [("POST", "/mode"), ("POST", "/reload"), ("GET", "/metrics")] {
        let mut client = Client::connect(sidecar.listen);
        // It is a request without a client, as any other path would be.
        let answer = client
            .send(method, path, &[JSON], b"{\"mode\":\"off\"}")
            .unwrap();
        assert_eq!(answer.status, 429, "{path}");
    }
    let mode = metric(&scrape(sidecar.admin), "paceline_mode{mode=\"enforce\"}");
    assert_eq!(mode, Some(1.0));
}

#[test]
fn ready_is_when_the_upstream_accepts_and_not_while_draining() {
    let (upstream, at) = silent();
    drop(upstream);
    let sidecar = start(at, &["--drain-announce", "60s"]);
    let reason = problem(&get(&sidecar, "/readyz"), 503);
    assert!(reason.contains(&at.to_string()), "{reason}");
    assert_eq!(get(&sidecar, "/healthz").status, 200);

    let _upstream = TcpListener::bind(at).unwrap();
    until("it is ready", || get(&sidecar, "/readyz").status == 200);

    sidecar.send(Signal::TERM);
    until("it drains", || get(&sidecar, "/readyz").status == 503);
    let reason = problem(&get(&sidecar, "/readyz"), 503);
    assert_eq!(reason, "the sidecar is draining");
    assert_eq!(get(&sidecar, "/healthz").status, 200);
}

/// Many probes at once are one connection to the upstream.
#[test]
fn probes_do_not_flood_the_upstream() {
    let (upstream, at) = silent();
    let sidecar = start(at, &[]);
    let start = Instant::now();
    let mut client = Client::connect(sidecar.admin);
    for _ in 0..200 {
        assert_eq!(client.send("GET", "/readyz", &[], b"").unwrap().status, 200);
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
    let (_upstream, at) = silent();
    let sidecar = start(at, &[]);
    let with_host = |host: &str| {
        let mut stream = TcpStream::connect(sidecar.admin).unwrap();
        let head = format!("GET /clients HTTP/1.1\r\n{host}connection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut first = String::new();
        BufReader::new(stream).read_line(&mut first).unwrap();
        first
    };
    for host in [
        "host: localhost\r\n",
        "host: 127.0.0.1:9102\r\n",
        "host: [::1]:9102\r\n",
    ] {
        assert!(with_host(host).contains(" 200 "), "{host}");
    }
    for host in [
        "",
        "host: rebound.example:9102\r\n",
        "host: localhost\r\nhost: localhost\r\n",
    ] {
        assert!(with_host(host).contains(" 403 "), "{host}");
    }
}

#[test]
fn a_change_that_a_page_of_another_site_can_make_a_browser_send_is_refused() {
    let (_upstream, at) = silent();
    let sidecar = start(at, &[]);
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
            let answer = post(&sidecar, path, headers, "{\"mode\":\"off\"}");
            let reason = problem(&answer, 403);
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
    assert_eq!(
        metric(&scrape(sidecar.admin), "paceline_mode{mode=\"enforce\"}"),
        Some(1.0)
    );
}

#[test]
fn the_mode_and_the_enforced_share_change() {
    let (_upstream, at) = silent();
    let sidecar = start(at, &[]);
    let form = [
        ("content-type", "application/x-www-form-urlencoded"),
        ("x-requested-with", "curl"),
    ];
    let changes: [(&Headers, &str, &str, f64); 6] = [
        (&[JSON], r#"{"mode":"passthrough"}"#, "passthrough", 100.0),
        (&[JSON], r#"{"share":25}"#, "passthrough", 25.0),
        (&form, "mode=enforce", "enforce", 25.0),
        (&form, "mode=off&share=0", "off", 0.0),
        (
            &[("content-type", "application/json; charset=utf-8")],
            r#"{"mode":"enforce","share":100}"#,
            "enforce",
            100.0,
        ),
        (&form, "share=50", "enforce", 50.0),
    ];
    for (headers, body, mode, share) in changes {
        let answer = post(&sidecar, "/mode", headers, body);
        assert_eq!(answer.status, 200, "{body}: {}", answer.text());
        assert_eq!(
            json(&answer),
            serde_json::json!({ "mode": mode, "share": share })
        );
        let scrape = scrape(sidecar.admin);
        for name in ["enforce", "passthrough", "off"] {
            let series = format!("paceline_mode{{mode=\"{name}\"}}");
            assert_eq!(
                metric(&scrape, &series),
                Some(f64::from(u8::from(name == mode)))
            );
        }
        assert_eq!(
            metric(&scrape, "paceline_enforced_ratio"),
            Some(share / 100.0)
        );
    }
}

#[test]
fn a_wrong_change_is_refused_with_what_would_be_right() {
    let (_upstream, at) = silent();
    let sidecar = start(at, &[]);
    let form = [
        ("content-type", "application/x-www-form-urlencoded"),
        ("x-requested-with", "curl"),
    ];
    let wrong: [(&Headers, &str, &str); 9] = [
        (&[JSON], "", "EOF"),
        (&[JSON], "{}", "neither mode nor share"),
        (&[JSON], r#"{"mode":"Off"}"#, "enforce, passthrough, off"),
        (&[JSON], r#"{"mode":"off","share":101}"#, "101"),
        (&[JSON], r#"{"share":-1}"#, "-1"),
        (&[JSON], r#"{"modus":"off"}"#, "modus"),
        (&form, "mode", "mode"),
        (&form, "mode=off&mode=enforce", "twice"),
        (&form, "share=all", "all"),
    ];
    for (headers, body, part) in wrong {
        let reason = problem(&post(&sidecar, "/mode", headers, body), 400);
        assert!(reason.contains(part), "{body}: {reason}");
    }
    let xml = [
        ("content-type", "application/xml"),
        ("x-requested-with", "curl"),
    ];
    problem(&post(&sidecar, "/mode", &xml, "<mode/>"), 415);
    let long = format!("{{\"mode\":\"{}\"}}", "x".repeat(5_000));
    problem(&post(&sidecar, "/mode", &[JSON], &long), 413);
    assert_eq!(
        metric(&scrape(sidecar.admin), "paceline_mode{mode=\"enforce\"}"),
        Some(1.0)
    );
}

#[test]
fn the_token_is_read_at_each_use() {
    let (_upstream, at) = silent();
    let token = File::new("token", "first-secret\n");
    let sidecar = start(at, &["--admin-token-file", token.path()]);
    let with = |value: &str| {
        let headers = [
            ("authorization", value),
            ("x-forwarded-for", "10.0.0.7"),
            JSON,
        ];
        post(&sidecar, "/mode", &headers, "{\"mode\":\"off\"}")
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
    fs::write(&token.0, "second-secret").unwrap();
    problem(&with("Bearer first-secret"), 403);
    assert_eq!(with("Bearer second-secret").status, 200);
    // An empty file holds no token, and so none is right.
    fs::write(&token.0, "\n").unwrap();
    for empty in ["Bearer ", "Bearer", "Bearer second-secret"] {
        problem(&with(empty), 403);
    }
    fs::remove_file(&token.0).unwrap();
    problem(&with("Bearer second-secret"), 403);
    assert!(
        sidecar.log().contains("admin_token_file"),
        "{}",
        sidecar.log()
    );
}

#[test]
fn without_a_token_file_no_token_is_right() {
    let (_upstream, at) = silent();
    let sidecar = start(at, &[]);
    let headers = [("authorization", "Bearer secret"), JSON];
    let reason = problem(
        &post(&sidecar, "/mode", &headers, "{\"mode\":\"off\"}"),
        403,
    );
    assert!(reason.contains("admin_token_file"), "{reason}");
}

#[test]
fn a_reload_says_what_is_wrong_and_the_old_configuration_stays() {
    let (_upstream, at) = silent();
    let (listen, admin) = (free(), free());
    let contents = |capacity: &str| {
        format!(
            "listen = \"{listen}\"\nadmin = \"{admin}\"\nupstream = \"http://{at}\"\ncapacity = {capacity}\ncycle = \"1s\"\n"
        )
    };
    let file = File::new("config.toml", &contents("40"));
    let sidecar = Sidecar::run(&["--config", file.path()]);
    fs::write(&file.0, contents("60")).unwrap();
    let answer = post(&sidecar, "/reload", &[JSON], "");
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(json(&get(&sidecar, "/clients"))["capacity"], 60);

    fs::write(&file.0, contents("0")).unwrap();
    let reason = problem(&post(&sidecar, "/reload", &[JSON], ""), 422);
    assert!(
        reason.contains("capacity") && reason.contains(":4:"),
        "{reason}"
    );
    let scrape = scrape(sidecar.admin);
    assert_eq!(metric(&scrape, "paceline_capacity"), Some(60.0));
    // The file is also looked at now and then.
    let done = metric(&scrape, "paceline_config_reloads_total{outcome=\"done\"}").unwrap();
    let refused = metric(
        &scrape,
        "paceline_config_reloads_total{outcome=\"refused\"}",
    )
    .unwrap();
    assert!(done >= 1.0 && refused >= 1.0, "{scrape}");
}

fn free() -> SocketAddr {
    silent().1
}

/// Opens `/events` and skips the head.
fn events(sidecar: &Sidecar) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(sidecar.admin).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // An old protocol, so that the body is not in chunks.
    stream
        .write_all(b"GET /events HTTP/1.0\r\nhost: localhost\r\n\r\n")
        .unwrap();
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(stream.read_line(&mut head).unwrap(), 0, "{head}");
    }
    assert!(
        head.contains(" 200 ") && head.contains("text/event-stream"),
        "{head}"
    );
    stream
}

/// The next event; `None` at the end.
fn next(events: &mut impl BufRead) -> Option<Value> {
    loop {
        let mut line = String::new();
        if events.read_line(&mut line).unwrap() == 0 {
            return None;
        }
        if let Some(data) = line.strip_prefix("data: ") {
            return Some(serde_json::from_str(data).unwrap());
        }
    }
}

#[test]
fn events_come_in_each_cycle() {
    let (_upstream, at) = silent();
    let sidecar = start(at, &[]);
    let mut events = events(&sidecar);
    let cycle = |event: &Value| event["cycle"].as_u64().unwrap();
    let (mut last, mut row) = (cycle(&next(&mut events).unwrap()), 1);
    let start = Instant::now();
    // A busy machine may be late for one cycle, and not for ever.
    while row < 4 {
        assert!(start.elapsed() < PATIENCE);
        let event = next(&mut events).unwrap();
        assert!(
            event["elapsed_ms"].as_u64() <= event["cycle_ms"].as_u64(),
            "{event}"
        );
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
    let (_upstream, at) = silent();
    let sidecar = start(at, &[]);
    let mut readers: Vec<_> = (0..32).map(|_| events(&sidecar)).collect();
    let reason = problem(&get(&sidecar, "/events"), 503);
    assert!(reason.contains("32"), "{reason}");
    readers.pop();
    until("the place is free", || {
        ask(&sidecar, "HEAD", "/events", &[], "").status == 200
    });
    assert!(next(&mut readers[0]).is_some());
}

#[test]
fn events_end_when_the_sidecar_drains() {
    let (_upstream, at) = silent();
    let sidecar = start(at, &["--drain-announce", "60s"]);
    let mut events = events(&sidecar);
    let mut last = next(&mut events).unwrap();
    assert_eq!(last["is_draining"], false);
    sidecar.send(Signal::TERM);
    while let Some(event) = next(&mut events) {
        last = event;
    }
    assert_eq!(last["is_draining"], true);
    problem(&get(&sidecar, "/events"), 503);
}

/// Has promtool read it.
fn promtool(scrape: &str) {
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts: it is in Debian's package prometheus");
    child
        .stdin
        .take()
        .unwrap()
        .write_all(scrape.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.is_empty(),
        "{said}\n{scrape}"
    );
}

#[test]
fn open_metrics_are_there_for_a_scraper_that_asks() {
    let (_upstream, at) = silent();
    let sidecar = start(at, &[]);
    let accept = (
        "accept",
        "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5",
    );
    let answer = ask(&sidecar, "GET", "/metrics", &[accept], "");
    let content_type = answer.header("content-type").unwrap();
    assert_eq!(
        content_type,
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    );
    let text = answer.text();
    assert!(text.ends_with("# EOF\n"), "{text}");
    assert!(
        text.contains("# TYPE paceline_requests counter\n"),
        "{text}"
    );
    assert!(text.contains("# TYPE paceline_build info\n"), "{text}");
    promtool(&scrape(sidecar.admin));
}

/// The count of one client.
fn requests(scrape: &str, client: &str, outcome: &str) -> Option<f64> {
    let series =
        format!("paceline_client_requests_total{{client=\"{client}\",outcome=\"{outcome}\"}}");
    metric(scrape, &series)
}

#[test]
fn names_of_clients_are_escaped_in_labels() {
    let sidecar = start(
        upstream::hello(),
        &["--cycle", "60s", "--early-cycles", "off"],
    );
    let names = [
        ("a\"b", "a\\\"b"),
        ("a\\b", "a\\\\b"),
        ("a\\n", "a\\\\n"),
        ("x\",outcome=\"y", "x\\\",outcome=\\\"y"),
        ("}#{", "}#{"),
    ];
    let mut client = Client::connect(sidecar.listen);
    for (name, _) in names {
        assert_eq!(client.get("/", name).status, 200);
    }
    let text = scrape(sidecar.admin);
    promtool(&text);
    for (name, label) in names {
        assert_eq!(
            requests(&text, label, "passed"),
            Some(1.0),
            "{name}\n{text}"
        );
        assert_eq!(requests(&text, label, "refused"), Some(0.0), "{name}");
        let size = metric(
            &text,
            &format!("paceline_client_size{{client=\"{label}\"}}"),
        );
        assert_eq!(size, Some(8.0), "{name}");
    }
    let clients = json(&get(&sidecar, "/clients"));
    let clients = clients["clients"].as_array().unwrap();
    let listed: Vec<_> = clients
        .iter()
        .map(|client| client["client"].as_str().unwrap())
        .collect();
    for (name, _) in names {
        assert!(listed.contains(&name), "{listed:?}");
    }
}

#[test]
fn each_request_is_counted_once() {
    let sidecar = start(upstream::hello(), &["--cycle", "60s"]);
    let mut client = Client::connect(sidecar.listen);
    for _ in 0..60 {
        client.get("/", "alone");
    }
    assert_eq!(client.send("GET", "/", &[], b"").unwrap().status, 429);
    let two = [("x-client-id", "a"), ("x-client-id", "b")];
    assert_eq!(
        Client::connect(sidecar.listen)
            .send("GET", "/", &two, b"")
            .unwrap()
            .status,
        400
    );

    let text = scrape(sidecar.admin);
    promtool(&text);
    let outcomes = [
        ("answered", 40.0),
        ("refused", 20.0),
        ("anonymous", 1.0),
        ("shed", 0.0),
        ("bad_request", 1.0),
        ("upstream_failed", 0.0),
        ("upstream_late", 0.0),
    ];
    for (outcome, expected) in outcomes {
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
    until("no connection is left", || {
        metric(&scrape(sidecar.admin), "paceline_connections") == Some(0.0)
    });

    let view = json(&get(&sidecar, "/clients"));
    assert_eq!((&view["capacity"], &view["known"]), (&40.into(), &1.into()));
    let alone = serde_json::json!({
        "client": "alone", "size": 40, "demand": view["clients"][0]["demand"], "used": 40, "refused": 20, "lent": 0, "borrowed": 0,
        "waiting": 0, "passed_total": 40, "refused_total": 20,
    });
    assert_eq!(view["clients"][0], alone);
}

/// Its counts are gone too: series of old clients would fill the memory of Prometheus.
#[test]
fn a_client_that_left_has_no_series() {
    let sidecar = start(upstream::hello(), &["--forget-after", "2"]);
    let mut client = Client::connect(sidecar.listen);
    client.get("/", "short");
    assert!(scrape(sidecar.admin).contains("client=\"short\""));
    until("it is forgotten", || {
        client.get("/", "long");
        !scrape(sidecar.admin).contains("short")
    });
    let text = scrape(sidecar.admin);
    assert!(text.contains("client=\"long\""), "{text}");
    promtool(&text);
    assert!(!get(&sidecar, "/clients").text().contains("short"));
}

#[test]
fn clients_beyond_the_bound_are_one_in_the_metrics() {
    let sidecar = start(
        upstream::hello(),
        &[
            "--max-clients",
            "2",
            "--cycle",
            "60s",
            "--early-cycles",
            "off",
        ],
    );
    let mut client = Client::connect(sidecar.listen);
    for number in 0..5 {
        client.get("/", &format!("client-{number}"));
    }
    let text = scrape(sidecar.admin);
    promtool(&text);
    let known = json(&get(&sidecar, "/clients"))["known"].as_u64().unwrap();
    assert_eq!(known, 3, "{text}");
    assert!(text.contains("client=\"(other clients)\""), "{text}");
    assert!(!text.contains("client-4"), "{text}");
}
