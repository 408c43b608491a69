//! Which requests pass, and how the others are refused.

use std::io::Read;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use paceline::limiter::Share;

use super::client::{Answer, metric};
use super::frames::{self, END_HEADERS, END_STREAM, HEADERS};
use super::support::{File, LAST_GET, Sidecar, on_free_ports, output, rest, run, wait_until};
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

/// How many of `asked` requests pass.
fn passed(sidecar: &Sidecar, client: &str, asked: usize) -> usize {
    let statuses = sidecar.client().statuses(client, asked);
    statuses.iter().filter(|status| **status == 200).count()
}

#[test]
fn a_guaranteed_share_is_there_after_others_have_taken_what_they_can() {
    // In ten hours, so that nothing comes back while the test runs.
    let by_demand = ["--capacity", "40", "--cycle", "10h"];
    let guaranteed = [&by_demand[..], &["--sharing", "guaranteed"]].concat();
    for (flags, flooded, left) in [(&by_demand[..], 20, 19), (&guaranteed, 29, 20)] {
        let sidecar = Sidecar::start(upstream::hello(), flags);
        assert_eq!(passed(&sidecar, "shop", 1), 1);
        assert_eq!(passed(&sidecar, "flood", 100), flooded);
        assert_eq!(passed(&sidecar, "shop", 30), left);
        let refused = sidecar.client().get("/", "shop");
        let policy = refused.header("ratelimit-policy");
        assert_eq!(policy, Some(r#""share";q=20;w=36000"#));
    }
}

#[test]
fn half_the_depth_saves_up_half_the_share() {
    let flags = ["--capacity", "400", "--cycle", "10h", "--depth", "50%"];
    let flags = [&flags[..], &["--sharing", "guaranteed"]].concat();
    let sidecar = Sidecar::start(upstream::hello(), &flags);
    // And a quarter of the capacity that all can borrow.
    assert_eq!(passed(&sidecar, "shop", 310), 300);
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

/// The answer to a gRPC call of the client `a`.
fn called(sidecar: &Sidecar, content_type: &str) -> Answer {
    let fields = [("x-client-id", "a"), ("content-type", content_type)];
    sidecar.client().send("POST", "/", &fields, b"x")
}

#[test]
fn grpc_is_refused_by_trailers_only() {
    let refused = called(&used_up(), "application/grpc+proto");
    assert_eq!(refused.status, 200);
    assert_eq!(refused.header("grpc-status"), Some("8"));
    assert_eq!(refused.header("content-type"), Some("application/grpc"));
    let message = refused.header("grpc-message").unwrap();
    assert!(message.starts_with("the share of this client"), "{message}");
    assert!(refused.body.is_empty());
}

#[test]
fn a_client_of_grpc_or_grpc_web_is_answered_in_its_own_protocol_and_others_in_json() {
    let sidecar = used_up();
    let json = "application/problem+json";
    for (content_type, answered) in [
        ("Application/gRPC", "application/grpc"),
        ("application/grpc;v=1", "application/grpc"),
        ("application/grpc-web", "application/grpc-web"),
        ("application/grpc-web+proto", "application/grpc-web+proto"),
        ("application/grpc-web-text", "application/grpc-web-text"),
        ("application/grpc-other", json),
        ("application/grpcx", json),
    ] {
        let refused = called(&sidecar, content_type);
        assert_eq!(
            refused.header("content-type"),
            Some(answered),
            "{content_type}"
        );
        let is_grpc = refused.header("grpc-status") == Some("8");
        assert_eq!(is_grpc, answered != json, "{content_type}");
        assert_eq!(refused.status, if is_grpc { 200 } else { 429 });
    }
}

#[test]
fn the_pushback_of_grpc_is_the_wait_to_the_millisecond() {
    // Every wait is shorter than a second.
    let flags = ["--capacity", "1", "--cycle", "900ms"];
    let sidecar = Sidecar::start(upstream::hello(), &flags);
    let mut refused = None;
    wait_until("a refusal", || {
        let answer = called(&sidecar, "application/grpc");
        let is_refused = answer.header("grpc-status") == Some("8");
        refused = is_refused.then_some(answer);
        is_refused
    });
    let refused = refused.unwrap();
    assert_eq!(refused.header("retry-after"), Some("1"));
    let pushback = refused.header("grpc-retry-pushback-ms").unwrap();
    let pushback: u32 = pushback.parse().unwrap();
    assert!((1..=900).contains(&pushback), "{pushback}");
}

#[test]
fn a_call_that_is_answered_the_same_next_time_is_not_repeated() {
    let sidecar = start(&[]);
    let mut client = sidecar.client();
    let grpc = ("content-type", "application/grpc");
    let long = "a".repeat(65);
    for (fields, code) in [
        (&[grpc][..], "8"),
        (&[grpc, ("x-client-id", long.as_str())], "3"),
    ] {
        let refused = client.send("POST", "/", fields, b"");
        assert_eq!(refused.header("grpc-status"), Some(code));
        assert_eq!(refused.header("grpc-retry-pushback-ms"), Some("-1"));
        if code == "3" {
            client = sidecar.client();
        }
    }
    // The service may be there again soon: the client has a backoff of its own.
    let failed = called(&Sidecar::start(upstream::nothing(), &[]), grpc.1);
    assert_eq!(failed.header("grpc-status"), Some("14"));
    assert_eq!(failed.header("grpc-retry-pushback-ms"), None);
}

#[test]
fn a_head_request_of_http2_is_refused_without_a_body() {
    let sidecar = Sidecar::start(upstream::nothing(), &[]);
    let mut stream = frames::open(sidecar.listen, &[]);
    let mut block = frames::get(&[]);
    // The method by its name, in place of the index of GET.
    block.splice(0..1, *b"\x02\x04HEAD");
    frames::send(&mut stream, HEADERS, END_STREAM | END_HEADERS, 1, &block);
    let head = frames::next(&mut stream, HEADERS);
    assert_eq!(head.flags & END_STREAM, END_STREAM, "{head:x?}");
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
        ("x_forwarded_for", "192.0.2.1"),
        ("x-real_ip", "192.0.2.1"),
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
            ("x_forwarded_for", None),
            ("x-real_ip", None),
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
    let enforced = Share::percent(50);
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

/// The requests come from several addresses of this machine.
#[test]
fn a_request_without_an_id_is_refused_if_its_address_is_in_the_enforced_part() {
    for percent in [0, 1, 50, 100] {
        let part = format!("{percent}%");
        let sidecar = start(&["--enforced", &part]);
        for from in 1..9 {
            let from = format!("127.0.0.{from}");
            let is_refused = Share::percent(percent).includes(from.as_str());
            for (fields, refused) in [(&[][..], "429"), (&["--header", "x-client-id;"], "400")] {
                let status = if is_refused { refused } else { "200" };
                let mut curl = Command::new("curl");
                curl.args(["--silent", "--include", "--interface", &from]);
                curl.args(fields).arg(format!("http://{}/", sidecar.listen));
                let (_, said, _) = run(&mut curl, b"");
                let start = format!("HTTP/1.1 {status} ");
                assert!(said.starts_with(&start), "{part} {from}: {said}");
            }
        }
    }
}

/// Its weight of 50 is against ten clients and all others together: 81 of 100 requests, of which it lends nothing.
#[test]
fn a_client_of_the_file_has_its_share_whatever_ids_come_first() {
    let file = File::new(
        "sidecar.toml",
        "max-clients = 10\nforget-after = 1000\n[clients.victim]\nweight = 50\nmost-lent = 0\n",
    );
    let flags = ["--config", file.path(), "--capacity", "100"];
    let flags = [&flags[..], &["--cycle", "1s"]].concat();
    let sidecar = Sidecar::start(upstream::hello(), &flags);
    let mut client = sidecar.client();
    let mut cycle = None;
    for round in 0..4 {
        wait_until("the next cycle", || {
            let next = sidecar.metric("paceline_cycles_total");
            std::mem::replace(&mut cycle, next) != next
        });
        for made_up in 0..500 {
            client.get("/", &format!("{round}-{made_up}"));
        }
        assert_eq!(client.statuses("victim", 30), [200; 30], "{round}");
    }
    let scrape = sidecar.scrape();
    let size = |client: &str| {
        metric(
            &scrape,
            &format!("paceline_client_size{{client=\"{client}\"}}"),
        )
    };
    assert!(size("victim") >= Some(81.0), "{scrape}");
    assert!(size("(other clients)") < Some(20.0), "{scrape}");
    assert_eq!(scrape.matches("paceline_client_size{").count(), 12);
}

#[test]
fn with_known_only_the_ids_that_the_file_does_not_name_share_one_share() {
    let file = File::new("sidecar.toml", "known-only = true\n[clients.shop]\n");
    let sidecar = start(&["--config", file.path()]);
    let statuses = ["a", "b", "c", "d", "e"].map(|id| sidecar.get(id).status);
    assert_eq!(statuses, [200, 200, 200, 200, 429]);
    // A client of the file ends the cycle early, as each new client may, and has half.
    let mut client = sidecar.client();
    assert_eq!(client.statuses("shop", 3), [200, 200, 429]);
    let statuses = ["f", "a", "b"].map(|id| sidecar.get(id).status);
    assert_eq!(statuses, [200, 200, 429]);
    assert_eq!(clients_of(&sidecar), ["(other clients)", "shop"]);
}

/// The clients of the metrics, in order of their names.
fn clients_of(sidecar: &Sidecar) -> Vec<String> {
    let scrape = sidecar.scrape();
    let sizes = scrape.lines().filter_map(|line| {
        let rest = line.strip_prefix("paceline_client_size{client=\"")?;
        Some(rest.split_once("\"}")?.0.to_owned())
    });
    let mut clients: Vec<_> = sizes.collect();
    clients.sort();
    clients
}

fn reload(sidecar: &Sidecar) {
    let by_program = [("content-type", "application/json")];
    let reload = sidecar.operator().send("POST", "/reload", &by_program, b"");
    assert_eq!(reload.status, 200, "{}", reload.text());
}

#[test]
fn a_reload_gives_shares_to_new_names_and_takes_those_of_others_though_they_go_on() {
    let text = |name: &str| format!("known-only = true\n[clients.{name}]\n");
    let file = File::new("sidecar.toml", &text("shop"));
    let sidecar = start(&["--config", file.path(), "--cycle", "500ms"]);
    let mut client = sidecar.client();
    for (name, other) in [("shop", "bank"), ("bank", "shop"), ("shop", "bank")] {
        file.write(&text(name));
        reload(&sidecar);
        wait_until("the one has a share and the other has none", || {
            client.get("/", name);
            client.get("/", other);
            clients_of(&sidecar) == ["(other clients)", name]
        });
    }
    // Without known-only both have one, and no other client is left.
    file.write("");
    reload(&sidecar);
    wait_until("both have a share", || {
        client.get("/", "shop");
        client.get("/", "bank");
        clients_of(&sidecar) == ["bank", "shop"]
    });
}

#[test]
fn a_file_may_name_thousands_of_clients() {
    let names = (0..5_000).map(|name| format!("[clients.client-{name}]\nweight = 2\n"));
    let text = names.collect::<String>();
    let file = File::new("sidecar.toml", &text);
    let flags = [
        "--config",
        file.path(),
        "--known-only",
        "--capacity",
        "10000",
    ];
    let sidecar = Sidecar::start(upstream::hello(), &flags);
    let mut client = sidecar.client();
    for name in 0..5_000 {
        assert_eq!(client.get("/", &format!("client-{name}")).status, 200);
    }
    assert_eq!(client.get("/", "client-5000").status, 200);
    let size = r#"paceline_client_size{client="client-4999"}"#;
    assert!(sidecar.metric(size).is_some());
    file.write(&text.replace("[clients.client-1]", "[clients.client-5000]"));
    reload(&sidecar);
    sidecar.wait_for_log("configuration reloaded: clients");
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
