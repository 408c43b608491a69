//! Which requests pass, and how the others are refused.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::client::Answer;
use super::support::{LAST_GET, Sidecar, on_free_ports, output, rest, wait_until};
use super::upstream::{self, Recorder};

/// With a capacity of 4.
fn start(flags: &[&str]) -> Sidecar {
    Sidecar::start(upstream::hello(), &[&["--capacity", "4"], flags].concat())
}

/// After the whole share of client `a`.
fn used_up() -> Sidecar {
    let sidecar = start(&[]);
    assert_eq!(sidecar.client().statuses("a", 4), [200; 4]);
    sidecar
}

/// The seconds after which a refused client may come back.
fn wait_of(refused: &Answer) -> u64 {
    let wait = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=600).contains(&wait), "{wait}");
    wait
}

#[test]
fn a_refusal_says_when_to_come_back() {
    let sidecar = start(&[]);
    let mut client = sidecar.client();
    for left in [3, 2, 1, 0] {
        let answer = client.get("/", "a");
        assert_eq!(answer.status, 200);
        let policy = answer.header("ratelimit-policy");
        assert_eq!(policy, Some(r#""share";q=4;w=600"#));
        let limit = answer.header("ratelimit").unwrap();
        let start = format!(r#""share";r={left};t="#);
        assert!(limit.starts_with(&start), "{limit}");
    }
    let refused = client.get("/", "a");
    assert_eq!(refused.status, 429);
    let wait = wait_of(&refused);
    let limit = format!(r#""share";r=0;t={wait}"#);
    assert_eq!(refused.header("ratelimit"), Some(limit.as_str()));
    let content_type = refused.header("content-type");
    assert_eq!(content_type, Some("application/problem+json"));
    let problem = format!(
        r#"{{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"detail":"the share of this client is used up (4 per 600s), retry in {wait} s","violated-policies":["share"]}}"#
    );
    assert_eq!(refused.text(), problem);
    // The connection goes on.
    assert_eq!(client.get("/", "a").status, 429);
}

#[test]
fn a_refused_body_of_any_size_does_not_cost_the_answer_or_the_connection() {
    let sidecar = used_up();
    let mut client = sidecar.client();
    for length in [1, 1, 100_000, 16 << 20] {
        let body = vec![b'x'; length];
        let refused = client.send("POST", "/", &[("x-client-id", "a")], &body);
        assert_eq!(refused.status, 429, "{length} bytes");
    }
}

#[test]
fn grpc_is_refused_by_trailers_only() {
    let fields = [
        ("x-client-id", "a"),
        ("content-type", "application/grpc+proto"),
    ];
    let refused = used_up().client().send("POST", "/", &fields, b"x");
    assert_eq!(refused.status, 200);
    assert_eq!(refused.header("grpc-status"), Some("8"));
    assert_eq!(refused.header("content-type"), Some("application/grpc"));
    let pushback = (wait_of(&refused) * 1000).to_string();
    let field = refused.header("grpc-retry-pushback-ms");
    assert_eq!(field, Some(pushback.as_str()));
    let message = refused.header("grpc-message").unwrap();
    assert!(message.starts_with("the share of this client"), "{message}");
    assert!(refused.body.is_empty());
}

#[test]
fn a_head_request_is_refused_without_a_body() {
    let sidecar = used_up();
    let mut client = sidecar.client();
    let refused = client.send("HEAD", "/", &[("x-client-id", "a")], b"");
    assert_eq!(refused.status, 429);
    let length: usize = refused.header("content-length").unwrap().parse().unwrap();
    assert_eq!(client.get("/", "a").body.len(), length);
}

#[test]
fn a_request_without_a_client_is_refused_passes_or_shares() {
    let refused = start(&[]).anonymous();
    assert_eq!(refused.status, 429);
    let text = refused.text();
    assert!(text.contains("`x-client-id`"), "{text}");

    let sidecar = start(&["--anonymous", "pass"]);
    for _ in 0..10 {
        let passed = sidecar.anonymous();
        assert_eq!((passed.status, passed.header("ratelimit")), (200, None));
    }
    let statuses = sidecar.client().statuses("a", 5);
    assert_eq!(statuses, [200, 200, 200, 200, 429]);

    let sidecar = start(&["--anonymous", "share"]);
    let statuses = [(); 5].map(|()| sidecar.anonymous().status);
    assert_eq!(statuses, [200, 200, 200, 200, 429]);
}

#[test]
fn the_header_of_the_client_is_a_setting() {
    let sidecar = start(&["--client-header", "X-Tenant"]);
    let mut client = sidecar.client();
    assert_eq!(client.get("/", "a").status, 429);
    let mut ask = |fields: &[(&str, &str)]| client.send("GET", "/", fields, b"");
    let named = [("x-tenant", "a"), ("connection", "x-tenant")];
    assert_eq!(ask(&named).status, 200);
    let twice = ask(&[("x-tenant", "a"), ("x-tenant", "a")]);
    assert_eq!(twice.status, 400);
    assert!(twice.text().contains("`x-tenant`"), "{}", twice.text());
}

#[test]
fn a_client_can_be_an_address() {
    let service = Recorder::ok();
    let flags = ["--capacity", "2", "--client", "ip"];
    let sidecar = Sidecar::start(service.at, &flags);
    assert_eq!(sidecar.client().statuses("a", 2), [200, 200]);
    assert_eq!(sidecar.get("b").status, 429, "the same address");

    let trusting = [
        "--ip-header",
        "x-forwarded-for",
        "--trusted-proxies",
        "127.0.0.0/8",
    ];
    let sidecar = Sidecar::start(service.at, &[&flags[..], &trusting].concat());
    let mut client = sidecar.client();
    for (from, status) in [
        ("192.0.2.1", 200),
        ("192.0.2.1", 200),
        ("192.0.2.1", 429),
        ("spoofed, 192.0.2.1", 429),
    ] {
        let answer = client.send("GET", "/", &[("x-forwarded-for", from)], b"");
        assert_eq!(answer.status, status, "{from}");
    }
    let forwarded = service.field("x-forwarded-for");
    assert_eq!(forwarded.as_deref(), Some("192.0.2.1, 127.0.0.1"));
}

#[test]
fn what_a_caller_that_is_no_proxy_says_of_itself_does_not_reach_the_service() {
    let service = Recorder::ok();
    let fields = [
        ("forwarded", "for=192.0.2.1"),
        ("x-forwarded-for", "192.0.2.1"),
        ("x-forwarded-host", "made.up"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-port", "443"),
        ("x-real-ip", "192.0.2.1"),
        ("x-forwarder", "stays"),
    ];
    let by_ip = ["--client", "ip"];
    let by_other_proxies = [
        "--ip-header",
        "forwarded",
        "--trusted-proxies",
        "10.0.0.0/8",
    ];
    for (flags, mode) in [
        (&by_ip[..], "enforce"),
        (&by_ip[..], "off"),
        (&[&by_ip[..], &by_other_proxies].concat(), "enforce"),
    ] {
        let sidecar = Sidecar::start(service.at, &[flags, &["--mode", mode]].concat());
        let mut client = sidecar.client();
        assert_eq!(client.send("GET", "/", &fields, b"").status, 200);
        let host = sidecar.listen.to_string();
        for (name, value) in [
            ("forwarded", None),
            ("x-forwarded-for", Some("127.0.0.1")),
            ("x-forwarded-host", Some(host.as_str())),
            ("x-forwarded-proto", Some("http")),
            ("x-forwarded-port", None),
            ("x-real-ip", None),
            ("x-forwarder", Some("stays")),
        ] {
            assert_eq!(service.field(name).as_deref(), value, "{flags:?}: {name}");
        }
    }
    // Where a gateway writes the id, it is the gateway that tells.
    let sidecar = Sidecar::start(service.at, &[]);
    let by_header = [&fields[..], &[("x-client-id", "a")]].concat();
    sidecar.client().send("GET", "/", &by_header, b"");
    assert_eq!(service.field("forwarded").as_deref(), Some("for=192.0.2.1"));
    assert_eq!(service.field("x-forwarded-port").as_deref(), Some("443"));
}

#[test]
fn passthrough_decides_and_refuses_nothing() {
    let sidecar = start(&["--mode", "passthrough"]);
    assert_eq!(sidecar.client().statuses("a", 6), [200; 6]);
    let answer = sidecar.get("a");
    let limit = answer.header("ratelimit").unwrap();
    assert!(limit.starts_with(r#""share";r=0;t="#), "{limit}");
    let clients = sidecar.operator().send("GET", "/clients", &[], b"").text();
    assert!(clients.contains(r#""used":4"#), "{clients}");
    assert!(clients.contains(r#""refused":3"#), "{clients}");
}

#[test]
fn off_asks_nothing() {
    let sidecar = start(&["--mode", "off"]);
    assert_eq!(sidecar.client().statuses("a", 6), [200; 6]);
    assert_eq!(sidecar.get("a").header("ratelimit"), None);
}

#[test]
fn where_nothing_is_refused_a_request_needs_no_client() {
    for mode in ["passthrough", "off"] {
        let sidecar = start(&["--mode", mode]);
        let mut client = sidecar.client();
        let long = "x".repeat(65);
        for fields in [
            &[][..],
            &[("x-client-id", "")],
            &[("x-client-id", long.as_str())],
            &[("x-client-id", "a"), ("x-client-id", "b")],
        ] {
            let answer = client.send("GET", "/", fields, b"");
            assert_eq!(answer.status, 200, "{mode} {fields:?}");
        }
    }
}

#[test]
fn the_share_is_enforced_for_a_part_of_the_clients() {
    let enforced = paceline::limiter::Share::percent(50);
    let ids = ["ann", "bob", "eve", "dan"];
    let part = ["--enforced", "50%", "--early-cycles", "off"];
    for id in ids {
        let sidecar = start(&part);
        let fifth = if enforced.includes(id) { 429 } else { 200 };
        let statuses = sidecar.client().statuses(id, 5);
        assert_eq!(statuses, [200, 200, 200, 200, fifth], "{id}");
    }
    assert!(ids.iter().any(|id| enforced.includes(*id)));
    assert!(!ids.iter().all(|id| enforced.includes(*id)));
}

#[test]
fn successes_can_be_without_headers_of_the_limit() {
    let sidecar = start(&["--headers-on-success=false"]);
    let mut client = sidecar.client();
    for _ in 0..4 {
        assert_eq!(client.get("/", "a").header("ratelimit"), None);
    }
    let refused = client.get("/", "a");
    assert!(refused.header("ratelimit").is_some());
    assert!(refused.header("retry-after").is_some());
}

#[test]
fn a_bound_on_what_is_under_way_holds_until_the_body_ends() {
    let may_end = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&may_end);
    let service = upstream::raw(move |mut connection| {
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
        let sidecar = Sidecar::start(service, &["--concurrency", bound]);
        let slow = [(); 2].map(|()| {
            let mut stream = sidecar.open(LAST_GET.replace("GET /", "GET /slow"));
            let mut first = [0; 12];
            stream.read_exact(&mut first).unwrap();
            assert_eq!(&first, b"HTTP/1.1 200");
            stream
        });
        // What does not reach the service does not count.
        assert_eq!(sidecar.client().statuses("b", 600), [503; 600]);
        let refused = sidecar.get("b");
        assert_eq!(refused.status, 503);
        assert_eq!(refused.header("retry-after"), Some("1"));
        let text = refused.text();
        assert!(text.contains("temporary-reduced-capacity"), "{text}");
        may_end.store(true, Ordering::Relaxed);
        for mut stream in slow {
            let rest = rest(&mut stream);
            assert!(rest.ends_with("five5five5"), "{rest}");
        }
        assert_eq!(sidecar.get("b").status, 200);
    }
}

#[test]
fn the_shedder_needs_a_cgroup() {
    // Where there is one it starts, and an idle machine sheds nothing; elsewhere the file is named.
    if let Err(error) = paceline::shed::CgroupCpu::open() {
        let upstream = format!("http://{}", upstream::hello());
        let (code, _, log) = output(&on_free_ports(&upstream, &["--shed"]));
        assert_eq!(code, 1, "{log}");
        assert!(log.contains(&error.to_string()), "{log}");
    } else {
        let sidecar = start(&["--shed"]);
        assert_eq!(sidecar.client().statuses("a", 4), [200; 4]);
    }
}
