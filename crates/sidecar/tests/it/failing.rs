//! Services that refuse, die, are late or close silently, and clients that go.

use std::future::pending;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::client::Answer;
use super::frames::{self, DATA, END_HEADERS, HEADERS, RST_STREAM, SETTINGS};
use super::support::{GET, Sidecar, connect, head, rest, wait_until};
use super::upstream::{self, OK, Recorder};

/// An error code: the stream was not processed.
const REFUSED_STREAM: [u8; 4] = [0, 0, 0, 7];

/// What has happened so often, for a service to count and a test to wait for.
#[derive(Clone, Debug, Default)]
struct Count(Arc<AtomicUsize>);

impl Count {
    fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn wait_for(&self, what: &str, count: usize) {
        wait_until(what, || self.get() == count);
    }

    /// Counts when it is dropped.
    fn at_end(&self) -> impl Send + use<> {
        struct End(Count);
        impl Drop for End {
            fn drop(&mut self) {
                self.0.add();
            }
        }
        End(self.clone())
    }
}

#[test]
fn a_service_that_refuses_is_a_bad_gateway_and_the_cause_is_in_the_log() {
    let sidecar = Sidecar::start(upstream::nothing(), &[]);
    let mut client = sidecar.client();
    for _ in 0..2 {
        let answer = client.get("/", "a");
        assert_eq!(answer.status, 502);
        let content_type = answer.header("content-type");
        assert_eq!(content_type, Some("application/problem+json"));
        let problem = r#"{"title":"Bad Gateway","status":502,"detail":"the upstream failed"}"#;
        assert_eq!(answer.text(), problem);
    }
    sidecar.wait_for_log("Connection refused");
    let grpc = [("x-client-id", "a"), ("content-type", "application/grpc")];
    let answer = client.send("POST", "/", &grpc, b"");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("grpc-status"), Some("14"));
}

#[test]
fn a_service_that_is_gone_costs_at_most_a_line_of_the_log_a_second() {
    let sidecar = Sidecar::start(upstream::nothing(), &[]);
    let start = Instant::now();
    for _ in 0..50 {
        assert_eq!(sidecar.get("a").status, 502);
    }
    sidecar.wait_for_log("a request failed");
    let lines = sidecar.log().matches("a request failed").count() as u64;
    assert!(lines <= start.elapsed().as_secs() + 1, "{lines}");
}

#[test]
fn a_service_that_does_not_accept_is_a_gateway_timeout() {
    // Nothing accepts, and the queue is full.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let moment = Duration::from_millis(100);
    let full = (0..200).map_while(|_| TcpStream::connect_timeout(&at, moment).ok());
    let full: Vec<_> = full.collect();
    if full.len() == 200 {
        // This system takes any number.
        return;
    }
    let sidecar = Sidecar::start(at, &["--connect-timeout", "200ms"]);
    assert_eq!(sidecar.get("a").status, 504);
}

#[test]
fn a_service_that_is_late_is_a_gateway_timeout_and_its_connection_ends() {
    let closed = Count::default();
    let count = closed.clone();
    let service = upstream::raw(move |mut connection| {
        connection.head().unwrap();
        // Half a head is none.
        connection.send("HTTP/1.1 200 OK\r\n");
        connection.rest();
        count.add();
    });
    let sidecar = Sidecar::start(service, &["--response-timeout", "200ms"]);
    let answer = sidecar.get("a");
    assert_eq!(answer.status, 504);
    let text = answer.text();
    assert!(text.contains("did not respond in time"), "{text}");
    closed.wait_for("its connection ended", 1);
}

#[test]
fn the_time_for_a_response_begins_when_the_body_is_sent() {
    let service = upstream::raw(|mut connection| {
        connection.head().unwrap();
        connection.take(10).unwrap();
        connection.send(OK);
    });
    let sidecar = Sidecar::start(service, &["--response-timeout", "300ms"]);
    let mut stream = sidecar.open(
        "POST / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\nconnection: close\r\ncontent-length: 10\r\n\r\n",
    );
    for _ in 0..10 {
        thread::sleep(Duration::from_millis(100));
        stream.write_all(b"x").unwrap();
    }
    let response = rest(&mut stream);
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}

#[test]
fn a_body_that_stops_coming_is_the_fault_of_its_sender() {
    let service = upstream::raw(|mut connection| {
        let head = connection.head().unwrap();
        if head.starts_with("GET") {
            connection.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfive5");
        }
        connection.rest();
    });
    let sidecar = Sidecar::start(service, &["--body-timeout", "200ms"]);
    let request = "POST / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\ncontent-length: 10\r\n\r\nfive5";
    let response = sidecar.exchange(request);
    assert!(response.starts_with("HTTP/1.1 408"), "{response}");

    let response = sidecar.exchange(GET);
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    assert!(response.ends_with("five5"), "{response}");
    sidecar.wait_for_log("sent nothing more");
}

#[test]
fn a_body_that_the_service_does_not_take_is_late_after_the_body_timeout() {
    let service = upstream::raw(|mut connection| {
        connection.head().unwrap();
        thread::park();
    });
    let flags = ["--body-timeout", "300ms", "--response-timeout", "1h"];
    let sidecar = Sidecar::start(service, &flags);
    let request =
        "POST / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\ncontent-length: 9999999999\r\n\r\n";
    let mut stream = sidecar.open(request);
    let mut sending = stream.try_clone().unwrap();
    let sending = thread::spawn(move || while sending.write_all(&[b'x'; 4096]).is_ok() {});
    let head = head(&mut stream);
    assert!(head.starts_with("HTTP/1.1 504"), "{head}");
    drop(stream);
    drop(sidecar);
    sending.join().unwrap();
}

#[test]
fn an_upload_goes_on_while_its_early_answer_is_not_read() {
    const LENGTH: usize = 32 << 20;
    let service = upstream::raw(|mut connection| {
        connection.head().unwrap();
        let mut stream = connection.stream().try_clone().unwrap();
        let sending = thread::spawn(move || {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {LENGTH}\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(&vec![b'd'; LENGTH]).unwrap();
        });
        assert_eq!(connection.take(LENGTH), Some(vec![b'u'; LENGTH]));
        sending.join().unwrap();
    });
    let sidecar = Sidecar::start(service, &[]);
    let mut stream = sidecar.open(format!(
        "POST / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\ncontent-length: {LENGTH}\r\n\r\n"
    ));
    // It reads nothing before it has sent everything.
    stream.write_all(&vec![b'u'; LENGTH]).unwrap();
    assert!(head(&mut stream).starts_with("HTTP/1.1 200"));
    let mut body = vec![0; LENGTH];
    stream.read_exact(&mut body).unwrap();
    assert!(body.iter().all(|byte| *byte == b'd'));
}

#[test]
fn a_service_that_dies_in_its_body_ends_the_response_visibly() {
    for head in ["content-length: 10", "transfer-encoding: chunked"] {
        let service = upstream::raw(move |mut connection| {
            connection.head().unwrap();
            connection.send(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n5\r\nfive5"));
        });
        let sidecar = Sidecar::start(service, &[]);
        let answer = sidecar
            .client()
            .try_send("GET", "/", &[("x-client-id", "a")], b"");
        assert!(answer.is_err(), "{head}: {answer:?}");
        sidecar.wait_for_log("broke off");
    }
}

#[test]
fn an_answer_whose_end_is_ambiguous_is_a_bad_gateway_and_its_connection_ends() {
    let length = "content-length: 2\r\n";
    let chunked = "transfer-encoding: chunked\r\n";
    for (version, fields) in [
        ("1.1", [length, chunked].concat()),
        ("1.1", [length, length].concat()),
        ("1.1", [length, "content-length: 3\r\n"].concat()),
        ("1.1", "content-length: 2, 2\r\n".to_owned()),
        ("1.1", "content-length: +2\r\n".to_owned()),
        ("1.1", "content-length: -2\r\n".to_owned()),
        ("1.1", "content-length:\r\n".to_owned()),
        ("1.1", "content-length: 99999999999999999999\r\n".to_owned()),
        ("1.1", [chunked, chunked].concat()),
        ("1.1", "transfer-encoding: gzip, chunked\r\n".to_owned()),
        ("1.1", "transfer-encoding: identity\r\n".to_owned()),
        ("1.0", chunked.to_owned()),
        ("1.1", "a b: c\r\n".to_owned()),
        ("1.1", "a: b\r\n c\r\n".to_owned()),
        ("1.1", format!("a: {}\r\n", "b".repeat(65_536))),
        ("1.1", "a: b\r\n".repeat(101)),
    ] {
        let closed = Count::default();
        let count = closed.clone();
        let answer = format!("HTTP/{version} 200 OK\r\n{fields}\r\n0\r\n\r\n");
        let service = upstream::raw(move |mut connection| {
            connection.head().unwrap();
            connection.send(&answer);
            connection.rest();
            count.add();
        });
        let sidecar = Sidecar::start(service, &[]);
        assert_eq!(sidecar.get("a").status, 502, "{version} {fields:.60}");
        closed.wait_for("its connection ended", 1);
    }
}

#[test]
fn a_malformed_chunk_ends_the_response_visibly() {
    for chunks in [
        "2\r\nokk\r\n",
        "x\r\n",
        "\r\n",
        "2\nok\r\n",
        "2 x\r\nok\r\n",
        "-2\r\nok\r\n",
        "10000000000000000\r\nok\r\n",
        "0\r\na b: c\r\n\r\n",
    ] {
        let service = upstream::raw(move |mut connection| {
            connection.head().unwrap();
            connection.send(format!(
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n{chunks}"
            ));
            connection.rest();
        });
        let sidecar = Sidecar::start(service, &[]);
        let answer = sidecar
            .client()
            .try_send("GET", "/", &[("x-client-id", "a")], b"");
        assert!(answer.is_err(), "{chunks:?}: {answer:?}");
    }
}

#[test]
fn bytes_after_an_answer_are_not_the_next_answer() {
    let service = upstream::raw(|mut connection| {
        while connection.head().is_some() {
            connection.send([OK, "HTTP/1.1 500 Smuggled\r\ncontent-length: 0\r\n\r\n"].concat());
        }
    });
    let sidecar = Sidecar::start(service, &[]);
    assert_eq!(sidecar.client().statuses("a", 5), [200; 5]);
}

#[test]
fn a_service_that_closes_without_a_word_is_a_bad_gateway() {
    let heads = Count::default();
    let count = heads.clone();
    let service = upstream::raw(move |mut connection| {
        connection.head().unwrap();
        count.add();
    });
    assert_eq!(Sidecar::start(service, &[]).get("a").status, 502);
    assert_eq!(heads.get(), 1, "a new connection is not repeated");
}

/// A service that closes silently after every 50th answer, when the next request is on its way already.
fn closing() -> SocketAddr {
    upstream::raw(|mut connection| {
        for _ in 0..50 {
            if connection.head().is_none() {
                return;
            }
            connection.send(OK);
        }
        // It closes only when it is asked again: the worst time.
        connection.head();
    })
}

#[test]
fn requests_pass_a_service_that_closes_after_each_50th_and_count_once_when_they_are_repeated() {
    let sidecar = Sidecar::start(closing(), &["--capacity", "5000"]);
    let clients = [(); 5].map(|()| {
        let mut client = sidecar.client();
        thread::spawn(move || client.statuses("a", 1000))
    });
    for client in clients {
        assert_eq!(client.join().unwrap(), [200; 1000]);
    }
    assert_eq!(sidecar.get("a").status, 429);
}

#[test]
fn only_an_idempotent_request_without_a_body_is_repeated() {
    for (method, body, passes) in [
        ("DELETE", &b""[..], true),
        ("POST", b"", false),
        ("PUT", b"body", false),
        ("PATCH", b"", false),
    ] {
        let sidecar = Sidecar::start(closing(), &[]);
        let mut client = sidecar.client();
        assert_eq!(client.statuses("a", 50), [200; 50]);
        let answer = client.send(method, "/", &[("x-client-id", "a")], body);
        assert_eq!(answer.status == 200, passes, "{method}");
    }
}

#[test]
fn idle_connections_are_given_up_and_used_last_first() {
    let (opened, closed) = (Count::default(), Count::default());
    let counts = [opened.clone(), closed.clone()];
    let service = upstream::raw(move |mut connection| {
        counts[0].add();
        while connection.head().is_some() {
            connection.send(OK);
        }
        counts[1].add();
    });
    let sidecar = Sidecar::start(service, &["--upstream-idle-timeout", "300ms"]);
    let mut client = sidecar.client();
    assert_eq!(client.statuses("a", 20), [200; 20]);
    let open = opened.get() - closed.get();
    assert_eq!(open, 1, "they share a connection");
    closed.wait_for("all are closed", opened.get());
    assert_eq!(client.get("/", "a").status, 200);
}

#[test]
fn as_many_connections_are_kept_as_were_in_use_at_once() {
    const AT_ONCE: usize = 400;
    let opened = Count::default();
    let count = opened.clone();
    let all = Arc::new(Barrier::new(AT_ONCE));
    let service = upstream::raw(move |mut connection| {
        count.add();
        while connection.head().is_some() {
            all.wait();
            connection.send(OK);
        }
    });
    // The queue of the service's listener is shorter than that.
    let flags = ["--upstream-idle-timeout", "1h", "--connect-timeout", "1m"];
    let sidecar = Sidecar::start(service, &flags);
    let mut clients: Vec<_> = (0..AT_ONCE).map(|_| connect(sidecar.listen)).collect();
    for _ in 0..3 {
        for client in &mut clients {
            client.write_all(GET.as_bytes()).unwrap();
        }
        for client in &mut clients {
            assert!(head(client).starts_with("HTTP/1.1 200"));
            client.read_exact(&mut [0; 2]).unwrap();
        }
        assert_eq!(opened.get(), AT_ONCE);
    }
}

#[test]
fn a_slow_reader_does_not_hold_up_another_request() {
    let service = upstream::http(|request| async move {
        let is_large = request.uri().path() == "/large";
        upstream::reply(vec![b'x'; if is_large { 64 << 20 } else { 2 }])
    });
    let sidecar = Sidecar::start(service, &[]);
    let mut slow = sidecar.open(GET.replace("GET /", "GET /large"));
    head(&mut slow);
    let mut client = sidecar.client();
    for _ in 0..10 {
        assert_eq!(client.get("/", "a").text(), "xx");
    }
}

#[test]
fn the_request_ends_when_its_client_goes() {
    let (begun, ended) = (Count::default(), Count::default());
    let counts = [begun.clone(), ended.clone()];
    let service = upstream::raw(move |mut connection| {
        let Some(head) = connection.head() else {
            return;
        };
        if head.starts_with("GET /body") {
            connection.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfive5");
        }
        counts[0].add();
        connection.rest();
        counts[1].add();
    });
    // One request at a time: a permit that stayed would be seen.
    let sidecar = Sidecar::start(service, &["--concurrency", "1"]);
    for (number, path) in ["/head", "/body", "/upload"].into_iter().enumerate() {
        let fields = match path {
            "/upload" => "content-length: 10\r\n\r\nfive5",
            _ => "\r\n",
        };
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\n{fields}");
        let mut stream = sidecar.open(request);
        begun.wait_for("it is under way", number + 1);
        assert_eq!(sidecar.get("a").status, 503);
        if path == "/body" {
            assert!(head(&mut stream).starts_with("HTTP/1.1 200"));
        }
        drop(stream);
        ended.wait_for("the request ended", number + 1);
    }
}

#[test]
fn a_stream_that_is_late_ends_and_its_connection_stays() {
    let ended = Count::default();
    let count = ended.clone();
    let service = upstream::http(move |request| {
        let end = count.at_end();
        async move {
            if request.uri().path() == "/late" {
                pending::<()>().await;
            }
            drop(end);
            upstream::reply("ok")
        }
    });
    let sidecar = Sidecar::h2c(service, &["--response-timeout", "200ms"]);
    let mut client = sidecar.client();
    for number in 0..3 {
        assert_eq!(client.get("/late", "a").status, 504);
        ended.wait_for("the stream ended", 2 * number + 1);
        assert_eq!(client.get("/", "a").text(), "ok");
    }
}

#[test]
fn a_stream_ends_when_its_client_goes() {
    let (begun, ended) = (Count::default(), Count::default());
    let counts = [begun.clone(), ended.clone()];
    let service = upstream::http(move |_| {
        counts[0].add();
        let end = counts[1].at_end();
        async move {
            pending::<()>().await;
            drop(end);
            upstream::reply("never")
        }
    });
    let sidecar = Sidecar::h2c(service, &["--concurrency", "1"]);
    for number in 1..3 {
        let stream = sidecar.open(GET);
        begun.wait_for("it is under way", number);
        drop(stream);
        ended.wait_for("the stream ended", number);
    }
}

#[test]
fn a_service_of_http_2_that_is_not_there_or_is_none_is_a_bad_gateway() {
    for service in [upstream::nothing(), Recorder::ok().at] {
        let sidecar = Sidecar::h2c(service, &["--response-timeout", "1s"]);
        assert_eq!(sidecar.get("a").status, 502);
    }
}

/// Answers each request with the number of its connection and its body, until the sidecar closes.
fn respond_to_all(stream: &mut TcpStream, number: usize) {
    while let Some(requests) = upstream::requests(stream, 1) {
        for (id, body) in requests {
            upstream::respond(stream, id, &format!("{number} {body}"));
        }
    }
}

/// Sends these requests at once.
fn ask(sidecar: &Sidecar, requests: &[(&'static str, &'static str)]) -> Vec<JoinHandle<Answer>> {
    let asking = requests.iter().map(|&(method, body)| {
        let mut client = sidecar.client();
        thread::spawn(move || client.send(method, "/", &[("x-client-id", "a")], body.as_bytes()))
    });
    asking.collect()
}

/// Status and text of their answers, sorted.
fn answers(asking: Vec<JoinHandle<Answer>>) -> Vec<(u16, String)> {
    let answers = asking.into_iter().map(|asking| asking.join().unwrap());
    let mut answers: Vec<_> = answers
        .map(|answer| (answer.status, answer.text()))
        .collect();
    answers.sort();
    answers
}

#[test]
fn requests_above_the_last_stream_of_a_connection_go_out_again_and_the_others_are_answered_on_it() {
    let service = || {
        upstream::frames(|stream, number| {
            if number == 0 {
                let requests = upstream::requests(stream, 4).unwrap();
                upstream::go_away(stream, 1);
                let (id, body) = requests.iter().find(|(id, _)| *id == 1).unwrap();
                upstream::respond(stream, *id, &format!("first {body}"));
            }
            respond_to_all(stream, number);
        })
    };
    for (method, body) in [
        ("POST", "body"),
        ("POST", ""),
        ("PATCH", "body"),
        ("GET", ""),
    ] {
        let sidecar = Sidecar::h2c(service(), &[]);
        let again = (200, format!("1 {body}"));
        let first = (200, format!("first {body}"));
        let expected = [again.clone(), again.clone(), again, first];
        assert_eq!(
            answers(ask(&sidecar, &[(method, body); 4])),
            expected,
            "{method}"
        );
        let repeats = sidecar.metric("paceline_retries_total").unwrap();
        assert!(repeats >= 3.0, "{repeats}");
    }
}

#[test]
fn requests_that_wait_for_a_place_on_a_connection_go_out_on_the_next() {
    let (go, end) = channel();
    let end = Mutex::new(end);
    let service = upstream::frames(move |stream, number| {
        if number == 0 {
            // One stream at a time.
            frames::send(stream, SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 1]);
            upstream::requests(stream, 1).unwrap();
            upstream::respond(stream, 1, "ready");
            upstream::requests(stream, 1).unwrap();
            end.lock().unwrap().recv().unwrap();
            upstream::go_away(stream, 3);
            upstream::respond(stream, 3, "0 ");
        }
        respond_to_all(stream, number);
    });
    let sidecar = Sidecar::h2c(service, &[]);
    assert_eq!(sidecar.get("a").text(), "ready");
    let asking = ask(&sidecar, &[("GET", ""); 4]);
    let passed = r#"paceline_client_requests_total{client="a",outcome="passed"}"#;
    wait_until("they wait", || sidecar.metric(passed) == Some(5.0));
    go.send(()).unwrap();
    let expected = ["0 ", "1 ", "1 ", "1 "].map(|text| (200, text.to_owned()));
    assert_eq!(answers(asking), expected);
}

#[test]
fn a_service_that_takes_no_request_of_a_connection_is_a_bad_gateway_after_a_few() {
    let connections = Count::default();
    let count = connections.clone();
    let service = upstream::frames(move |stream, _| {
        count.add();
        if upstream::requests(stream, 1).is_some() {
            upstream::go_away(stream, 0);
            upstream::requests(stream, 1);
        }
    });
    let sidecar = Sidecar::h2c(service, &[]);
    assert_eq!(answers(ask(&sidecar, &[("POST", "body")]))[0].0, 502);
    assert!((2..=33).contains(&connections.get()), "{connections:?}");
}

#[test]
fn a_stream_that_is_refused_goes_out_once_more_on_another_connection() {
    for (refusing, status) in [(1, 200), (2, 502)] {
        let service = upstream::frames(move |stream, number| {
            if number < refusing {
                for (id, _) in upstream::requests(stream, 1).unwrap() {
                    frames::send(stream, RST_STREAM, 0, id, &REFUSED_STREAM);
                }
            }
            respond_to_all(stream, number);
        });
        let sidecar = Sidecar::h2c(service, &[]);
        assert_eq!(answers(ask(&sidecar, &[("POST", "body")]))[0].0, status);
        assert_eq!(sidecar.metric("paceline_retries_total"), Some(1.0));
        // The other connection goes on.
        assert_eq!(sidecar.get("a").text(), "1 ");
    }
}

#[test]
fn a_connection_that_refuses_a_stream_and_closes_costs_no_request() {
    let service = upstream::frames(|stream, number| {
        if number > 0 {
            return respond_to_all(stream, number);
        }
        for (id, _) in upstream::requests(stream, 3).unwrap() {
            frames::send(stream, RST_STREAM, 0, id, &REFUSED_STREAM);
        }
        // It closes when the sidecar does, or after another request.
        upstream::requests(stream, 1);
    });
    let sidecar = Sidecar::h2c(service, &[]);
    let expected = [(); 3].map(|()| (200, "1 body".to_owned()));
    assert_eq!(answers(ask(&sidecar, &[("POST", "body"); 3])), expected);
}

#[test]
fn a_body_of_which_at_most_16_kib_were_sent_goes_out_again() {
    for (part, status, retries) in [(3, 200, 1.0), (8_192, 200, 1.0), (8_193, 502, 0.0)] {
        let (came, comes) = channel();
        let service = upstream::frames(move |stream, number| {
            if number > 0 {
                let (id, body) = upstream::requests(stream, 1).unwrap().remove(0);
                return upstream::respond(stream, id, &body.len().to_string());
            }
            for _ in 0..2 {
                let mut left = part;
                while left > 0 {
                    left -= frames::next(stream, DATA).payload.len();
                }
                came.send(()).unwrap();
            }
            upstream::go_away(stream, 0);
            upstream::requests(stream, 1);
        });
        let sidecar = Sidecar::h2c(service, &[]);
        let length = 2 * part;
        let mut stream = sidecar.open(format!(
            "POST / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
        ));
        for _ in 0..2 {
            stream.write_all(&vec![b'x'; part]).unwrap();
            comes.recv().unwrap();
        }
        let answer = head(&mut stream);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{answer}"
        );
        if status == 200 {
            assert!(rest(&mut stream).contains(&length.to_string()));
        }
        assert_eq!(sidecar.metric("paceline_retries_total"), Some(retries));
    }
}

#[test]
fn a_body_that_http_2_ends_without_an_error_before_its_end_breaks_off() {
    for fields in [&[0x88][..], b"\x88\x0f\x0d\x0299"] {
        for goes_away in [false, true] {
            let service = upstream::frames(move |stream, _| {
                for (id, _) in upstream::requests(stream, 1).unwrap() {
                    frames::send(stream, HEADERS, END_HEADERS, id, fields);
                    frames::send(stream, DATA, 0, id, b"half");
                    if goes_away {
                        upstream::go_away(stream, 0);
                    } else {
                        frames::send(stream, RST_STREAM, 0, id, &[0; 4]);
                    }
                }
                upstream::requests(stream, 1);
            });
            let sidecar = Sidecar::h2c(service, &[]);
            let answer = sidecar.exchange(GET);
            assert!(!answer.ends_with("0\r\n\r\n"), "{answer}");
            wait_until("it is counted", || {
                sidecar.metric("paceline_responses_broken_total") == Some(1.0)
            });
        }
    }
}

#[test]
fn a_client_does_not_hear_that_its_stream_was_refused_after_the_head() {
    let service = upstream::frames(move |stream, _| {
        for (id, _) in upstream::requests(stream, 1).unwrap() {
            frames::send(stream, HEADERS, END_HEADERS, id, &[0x88]);
            frames::send(stream, DATA, 0, id, b"half");
            frames::send(stream, RST_STREAM, 0, id, &REFUSED_STREAM);
        }
        upstream::requests(stream, 1);
    });
    let sidecar = Sidecar::h2c(service, &[]);
    let mut client = frames::open(sidecar.listen, &[]);
    frames::request(&mut client, 1);
    let reset = frames::next(&mut client, RST_STREAM);
    assert_ne!(reset.payload, REFUSED_STREAM, "it may be repeated");
}

#[test]
fn a_connection_of_http_2_that_breaks_costs_only_requests_that_may_not_be_repeated() {
    for (method, body, status) in [("GET", "", 200), ("POST", "", 502), ("PUT", "body", 502)] {
        let service = upstream::frames(|stream, number| {
            if number == 0 {
                upstream::requests(stream, 1);
                return;
            }
            respond_to_all(stream, number);
        });
        let sidecar = Sidecar::h2c(service, &[]);
        assert_eq!(
            answers(ask(&sidecar, &[(method, body)]))[0].0,
            status,
            "{method}"
        );
        assert_eq!(sidecar.get("a").status, 200);
    }
}

#[test]
fn a_service_that_comes_back_is_asked_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let sidecar = Sidecar::start(at, &[]);
    let mut client = sidecar.client();
    let mut listener = Some(listener);
    for _ in 0..2 {
        let listener = listener.take();
        let listener = listener.unwrap_or_else(|| TcpListener::bind(at).unwrap());
        let answering = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            head(&mut stream);
            stream.write_all(OK.as_bytes()).unwrap();
        });
        assert_eq!(client.get("/", "a").status, 200);
        answering.join().unwrap();
        assert_eq!(client.get("/", "a").status, 502);
    }
}
