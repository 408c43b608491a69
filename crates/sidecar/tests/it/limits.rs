//! Which requests pass, and how the others are refused.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::client::{Answer, Client};
use super::support::{PATIENCE, Sidecar, output, wait_until};
use super::upstream::{self, Recorder};

fn start(flags: &[&str]) -> Sidecar {
    Sidecar::start(
        upstream::hello(),
        &[&["--capacity", "4", "--cycle", "10m"], flags].concat(),
    )
}

/// The statuses of `count` requests of one client.
fn statuses(sidecar: &Sidecar, id: &str, count: usize) -> Vec<u16> {
    let mut client = Client::connect(sidecar.listen);
    (0..count).map(|_| client.get("/", id).status).collect()
}

fn without_client(sidecar: &Sidecar) -> Answer {
    Client::connect(sidecar.listen)
        .send("GET", "/", &[], b"")
        .unwrap()
}

#[test]
fn a_refusal_says_when_to_come_back() {
    let sidecar = start(&[]);
    let mut client = Client::connect(sidecar.listen);
    for left in [3, 2, 1, 0] {
        let answer = client.get("/", "a");
        assert_eq!(answer.status, 200);
        assert_eq!(
            answer.header("ratelimit-policy"),
            Some(r#""share";q=4;w=600"#)
        );
        let limit = answer.header("ratelimit").unwrap();
        assert!(
            limit.starts_with(&format!(r#""share";r={left};t="#)),
            "{limit}"
        );
    }
    let refused = client.get("/", "a");
    assert_eq!(refused.status, 429);
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=600).contains(&wait), "{wait}");
    let limit = format!(r#""share";r=0;t={wait}"#);
    assert_eq!(refused.header("ratelimit"), Some(limit.as_str()));
    assert_eq!(
        refused.header("content-type"),
        Some("application/problem+json")
    );
    let problem = format!(
        r#"{{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"detail":"the share of this client is used up (4 per 600s), retry in {wait} s","violated-policies":["share"]}}"#
    );
    assert_eq!(refused.text(), problem);
    // The connection goes on.
    assert_eq!(client.get("/", "a").status, 429);
}

#[test]
fn a_refused_body_of_any_size_does_not_cost_the_answer() {
    let sidecar = start(&[]);
    assert_eq!(statuses(&sidecar, "a", 4), [200; 4]);
    let mut client = Client::connect(sidecar.listen);
    for length in [1, 100_000, 10 << 20] {
        let body = vec![b'x'; length];
        let refused = client
            .send("POST", "/", &[("x-client-id", "a")], &body)
            .unwrap();
        assert_eq!(refused.status, 429, "{length} bytes");
    }
}

#[test]
fn grpc_is_refused_by_trailers_only() {
    let sidecar = start(&[]);
    assert_eq!(statuses(&sidecar, "a", 4), [200; 4]);
    let fields = [
        ("x-client-id", "a"),
        ("content-type", "application/grpc+proto"),
    ];
    let refused = Client::connect(sidecar.listen)
        .send("POST", "/", &fields, b"x")
        .unwrap();
    assert_eq!(refused.status, 200);
    assert_eq!(refused.header("grpc-status"), Some("8"));
    assert_eq!(refused.header("content-type"), Some("application/grpc"));
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    let pushback = (wait * 1000).to_string();
    assert_eq!(
        refused.header("grpc-retry-pushback-ms"),
        Some(pushback.as_str())
    );
    assert!(
        refused
            .header("grpc-message")
            .unwrap()
            .starts_with("the share of this client")
    );
    assert!(refused.body.is_empty());
}

#[test]
fn a_head_request_is_refused_without_a_body() {
    let sidecar = start(&[]);
    assert_eq!(statuses(&sidecar, "a", 4), [200; 4]);
    let mut client = Client::connect(sidecar.listen);
    let refused = client
        .send("HEAD", "/", &[("x-client-id", "a")], b"")
        .unwrap();
    assert_eq!(refused.status, 429);
    let length: usize = refused.header("content-length").unwrap().parse().unwrap();
    assert_eq!(client.get("/", "a").body.len(), length);
}

#[test]
fn a_request_without_a_client_is_refused_passes_or_shares() {
    let sidecar = start(&[]);
    let refused = without_client(&sidecar);
    assert_eq!(refused.status, 429);
    assert!(
        refused.text().contains("`x-client-id`"),
        "{}",
        refused.text()
    );

    let sidecar = start(&["--anonymous", "pass"]);
    for _ in 0..10 {
        let passed = without_client(&sidecar);
        assert_eq!((passed.status, passed.header("ratelimit")), (200, None));
    }
    assert_eq!(statuses(&sidecar, "a", 5), [200, 200, 200, 200, 429]);

    let sidecar = start(&["--anonymous", "share"]);
    let shared: Vec<_> = (0..5).map(|_| without_client(&sidecar).status).collect();
    assert_eq!(shared, [200, 200, 200, 200, 429]);
}

#[test]
fn the_header_of_the_client_is_a_setting() {
    let sidecar = start(&["--client-header", "X-Tenant"]);
    let mut client = Client::connect(sidecar.listen);
    assert_eq!(client.get("/", "a").status, 429);
    let mut ask = |fields: &[(&str, &str)]| client.send("GET", "/", fields, b"").unwrap();
    let named = [("x-tenant", "a"), ("connection", "x-tenant")];
    assert_eq!(ask(&named).status, 200);
    let twice = ask(&[("x-tenant", "a"), ("x-tenant", "a")]);
    assert_eq!(twice.status, 400);
    assert!(twice.text().contains("`x-tenant`"), "{}", twice.text());
}

#[test]
fn a_client_can_be_an_address() {
    let service = Recorder::ok();
    let flags = ["--capacity", "2", "--cycle", "10m", "--client", "ip"];
    let sidecar = Sidecar::start(service.at, &flags);
    assert_eq!(statuses(&sidecar, "a", 2), [200, 200]);
    assert_eq!(statuses(&sidecar, "b", 1), [429], "the same address");

    let trusting = [
        "--ip-header",
        "x-forwarded-for",
        "--trusted-proxies",
        "127.0.0.0/8",
    ];
    let sidecar = Sidecar::start(service.at, &[&flags[..], &trusting].concat());
    let mut client = Client::connect(sidecar.listen);
    let mut ask = |from| {
        client
            .send("GET", "/", &[("x-forwarded-for", from)], b"")
            .unwrap()
            .status
    };
    assert_eq!(
        [ask("192.0.2.1"), ask("192.0.2.1"), ask("192.0.2.1")],
        [200, 200, 429]
    );
    assert_eq!(ask("spoofed, 192.0.2.1"), 429);
    assert_eq!(
        service.field("x-forwarded-for").as_deref(),
        Some("192.0.2.1, 127.0.0.1")
    );
}

#[test]
fn passthrough_decides_and_refuses_nothing() {
    let sidecar = start(&["--mode", "passthrough"]);
    assert_eq!(statuses(&sidecar, "a", 6), [200; 6]);
    let answer = Client::connect(sidecar.listen).get("/", "a");
    assert!(
        answer
            .header("ratelimit")
            .unwrap()
            .starts_with(r#""share";r=0;t="#)
    );
    let clients = Client::connect(sidecar.admin)
        .send("GET", "/clients", &[], b"")
        .unwrap()
        .text();
    assert!(
        clients.contains(r#""used":4"#) && clients.contains(r#""refused":3"#),
        "{clients}"
    );
}

#[test]
fn off_asks_nothing() {
    let sidecar = start(&["--mode", "off"]);
    assert_eq!(statuses(&sidecar, "a", 6), [200; 6]);
    assert_eq!(
        Client::connect(sidecar.listen)
            .get("/", "a")
            .header("ratelimit"),
        None
    );
}

#[test]
fn where_nothing_is_refused_a_request_needs_no_client() {
    for mode in ["passthrough", "off"] {
        let sidecar = start(&["--mode", mode]);
        let mut client = Client::connect(sidecar.listen);
        let long = "x".repeat(65);
        for fields in [
            &[][..],
            &[("x-client-id", "")],
            &[("x-client-id", long.as_str())],
            &[("x-client-id", "a"), ("x-client-id", "b")],
        ] {
            let answer = client.send("GET", "/", fields, b"").unwrap();
            assert_eq!(answer.status, 200, "{mode} {fields:?}");
        }
    }
}

#[test]
fn the_share_is_enforced_for_a_part_of_the_clients() {
    let enforced = paceline::limiter::Share::percent(50);
    let ids = ["ann", "bob", "eve", "dan"];
    let flags = [
        "--capacity",
        "1",
        "--cycle",
        "10m",
        "--early-cycles",
        "off",
        "--enforced",
        "50%",
    ];
    for id in ids {
        let sidecar = Sidecar::start(upstream::hello(), &flags);
        let second = if enforced.includes(id) { 429 } else { 200 };
        assert_eq!(statuses(&sidecar, id, 2), [200, second], "{id}");
    }
    assert!(ids.iter().any(|id| enforced.includes(*id)));
    assert!(!ids.iter().all(|id| enforced.includes(*id)));
}

#[test]
fn successes_can_be_without_headers_of_the_limit() {
    let sidecar = start(&["--headers-on-success=false"]);
    let mut client = Client::connect(sidecar.listen);
    for _ in 0..4 {
        assert_eq!(client.get("/", "a").header("ratelimit"), None);
    }
    let refused = client.get("/", "a");
    assert!(refused.header("ratelimit").is_some() && refused.header("retry-after").is_some());
}

#[test]
fn a_bound_on_what_is_under_way_holds_until_the_body_ends() {
    let may_end = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&may_end);
    let service = upstream::raw(move |_, mut connection| {
        while let Some(head) = connection.head() {
            connection.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfive5");
            if head.starts_with("GET /slow") {
                wait_until("it may end", || end.load(Ordering::Relaxed));
            }
            connection.send("five5");
        }
    });
    for bound in ["2", "2..2"] {
        may_end.store(false, Ordering::Relaxed);
        let flags = [
            "--capacity",
            "1000",
            "--cycle",
            "10m",
            "--concurrency",
            bound,
        ];
        let sidecar = Sidecar::start(service, &flags);
        let slow: Vec<_> = (0..2)
            .map(|_| {
                let mut stream = TcpStream::connect(sidecar.listen).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let request =
                    "GET /slow HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\nconnection: close\r\n\r\n";
                stream.write_all(request.as_bytes()).unwrap();
                let mut first = [0; 12];
                stream.read_exact(&mut first).unwrap();
                assert_eq!(&first, b"HTTP/1.1 200");
                stream
            })
            .collect();
        // What does not reach the service does not count.
        assert_eq!(statuses(&sidecar, "b", 600), [503; 600]);
        let refused = Client::connect(sidecar.listen).get("/", "b");
        assert_eq!(refused.status, 503);
        assert_eq!(refused.header("retry-after"), Some("1"));
        assert!(
            refused.text().contains("temporary-reduced-capacity"),
            "{}",
            refused.text()
        );
        may_end.store(true, Ordering::Relaxed);
        for mut stream in slow {
            let mut rest = String::new();
            stream.read_to_string(&mut rest).unwrap();
            assert!(rest.ends_with("five5five5"), "{rest}");
        }
        assert_eq!(Client::connect(sidecar.listen).get("/", "b").status, 200);
    }
}

#[test]
fn the_shedder_needs_a_cgroup() {
    // Where there is one it starts, and an idle machine sheds nothing; elsewhere the file is named.
    let readable = paceline::shed::CgroupCpu::open();
    if let Err(error) = readable {
        let upstream = format!("http://{}", upstream::hello());
        let flags = [
            "--listen",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
            "--upstream",
            &upstream,
        ];
        let rest = ["--capacity", "1", "--cycle", "1s", "--shed"];
        let (code, _, log) = output(&[&flags[..], &rest].concat());
        assert_eq!(code, 1, "{log}");
        assert!(log.contains(&error.to_string()), "{log}");
    } else {
        let sidecar = start(&["--shed"]);
        assert_eq!(statuses(&sidecar, "a", 4), [200; 4]);
    }
}

/// A sidecar with this file, after 5 requests of client `a`, and then with another one.
fn reloaded(name: &str, before: &str, after: &str) -> Sidecar {
    let file = std::env::temp_dir().join(format!("paceline-{name}-{}.toml", std::process::id()));
    std::fs::write(&file, before).unwrap();
    let config = file.to_string_lossy().into_owned();
    let sidecar = Sidecar::start(upstream::hello(), &["--config", &config]);
    assert_eq!(statuses(&sidecar, "a", 5), [200, 200, 200, 200, 429]);
    std::fs::write(&file, after).unwrap();
    sidecar.send(rustix::process::Signal::HUP);
    wait_until("it is reloaded", || {
        sidecar.log().contains("configuration reloaded")
    });
    std::fs::remove_file(&file).unwrap();
    sidecar
}

#[test]
fn the_capacity_changes_with_a_reload_and_what_is_spent_stays_spent() {
    let before = "capacity = 4\ncycle = \"10m\"\n";
    let after = "capacity = 6\ncycle = \"10m\"\n";
    let sidecar = reloaded("capacity", before, after);
    assert_eq!(statuses(&sidecar, "a", 3), [200, 200, 429]);
}

#[test]
fn the_terms_of_clients_change_with_a_reload() {
    let before = "capacity = 4\ncycle = \"10m\"\n";
    let after = "capacity = 4\ncycle = \"10m\"\n[clients.b]\nweight = 3\n";
    let sidecar = reloaded("terms", before, after);
    // It ends the cycle early, and has three quarters of the next one.
    assert_eq!(statuses(&sidecar, "b", 4), [200, 200, 200, 429]);
}
