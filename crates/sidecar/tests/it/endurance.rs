//! What lasts: long bodies, many connections, changes under load, an upstream that comes and goes.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use super::client::{Client, metric, scrape};
use super::hello;
use super::support::{Sidecar, wait_until};

const GIB: usize = 1 << 30;

fn resident_kb(sidecar: &Sidecar) -> i64 {
    let status = fs::read_to_string(format!("/proc/{}/status", sidecar.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

fn connections(sidecar: &Sidecar) -> f64 {
    metric(&scrape(sidecar.admin), "paceline_connections").unwrap()
}

/// Reads the head of a request, and returns what follows it.
fn head_of(stream: &mut TcpStream) -> Vec<u8> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    head
}

#[test]
fn a_gibibyte_each_way_past_a_slow_reader_takes_less_than_32_mib() {
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = service.local_addr().unwrap();
    // It takes a gibibyte, slowly at first, and then sends one.
    let serving = thread::spawn(move || {
        let (mut stream, _) = service.accept().unwrap();
        head_of(&mut stream);
        let mut chunk = vec![0; 1 << 16];
        let mut taken = 0;
        while taken < GIB {
            let read = stream.read(&mut chunk).unwrap();
            assert!(read > 0, "the body ended after {taken}");
            taken += read;
            if taken < 1 << 22 {
                thread::sleep(Duration::from_millis(5));
            }
        }
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {GIB}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        for _ in 0..GIB / chunk.len() {
            stream.write_all(&chunk).unwrap();
        }
    });
    let sidecar = Sidecar::start(at, &["--capacity", "10", "--cycle", "10s"]);
    let before = resident_kb(&sidecar);
    let most = Arc::new(AtomicU32::new(0));
    let is_done = Arc::new(AtomicBool::new(false));

    let mut client = TcpStream::connect(sidecar.listen).unwrap();
    let head = format!(
        "POST /up HTTP/1.1\r\nhost: {at}\r\nx-client-id: a\r\ncontent-length: {GIB}\r\n\r\n"
    );
    client.write_all(head.as_bytes()).unwrap();
    let watching = {
        let (most, is_done, pid) = (Arc::clone(&most), Arc::clone(&is_done), sidecar.pid());
        thread::spawn(move || {
            while !is_done.load(Ordering::Relaxed) {
                let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
                let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
                let now = line
                    .unwrap()
                    .trim()
                    .trim_end_matches(" kB")
                    .parse()
                    .unwrap();
                most.fetch_max(now, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(20));
            }
        })
    };
    let mut chunk = vec![0; 1 << 16];
    for _ in 0..GIB / chunk.len() {
        client.write_all(&chunk).unwrap();
    }
    let head = head_of(&mut client);
    assert!(
        head.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&head)
    );
    let mut taken = 0;
    while taken < GIB {
        if taken < 1 << 22 {
            thread::sleep(Duration::from_millis(5));
        }
        let read = client.read(&mut chunk).unwrap();
        assert!(read > 0, "the answer ended after {taken}");
        taken += read;
    }
    is_done.store(true, Ordering::Relaxed);
    watching.join().unwrap();
    serving.join().unwrap();
    let grown = i64::from(most.load(Ordering::Relaxed)) - before;
    println!("{grown} kB more than before");
    assert!(grown < 32 * 1024, "{grown} kB");
}

#[test]
fn ten_thousand_idle_connections_are_held_and_still_a_request_passes() {
    let hello = hello::start();
    let sidecar = Sidecar::start(hello, &["--capacity", "10", "--cycle", "10s"]);
    let before = resident_kb(&sidecar);
    // The last ones are for the request and the scrapes: 10,000 is the bound.
    let count: u32 = 9_990;
    let idle: Vec<TcpStream> = (0..count)
        .map(|_| {
            let mut stream = TcpStream::connect(sidecar.listen).unwrap();
            // A byte: it is past the preface check.
            stream.write_all(b"G").unwrap();
            stream
        })
        .collect();
    wait_until("all are counted", || {
        connections(&sidecar) >= f64::from(count)
    });
    let each = (resident_kb(&sidecar) - before) * 1024 / i64::from(count);
    println!("{each} bytes each");
    assert_eq!(Client::connect(sidecar.listen).get("/", "a").status, 200);
    drop(idle);
    wait_until("all have gone", || connections(&sidecar) < 10.0);
    assert_eq!(Client::connect(sidecar.listen).get("/", "a").status, 200);
}

/// Clients that send one request after the other until they are told to stop. How many were answered with 200.
struct Load {
    is_done: Arc<AtomicBool>,
    clients: Vec<thread::JoinHandle<u32>>,
}

impl Load {
    fn on(sidecar: &Sidecar) -> Self {
        let is_done = Arc::new(AtomicBool::new(false));
        let client = |id: u32, at: SocketAddr, is_done: Arc<AtomicBool>| {
            move || {
                let mut client = Client::connect(at);
                let mut answered = 0;
                while !is_done.load(Ordering::Relaxed) {
                    let answer = client.get("/", &format!("client-{id}"));
                    assert_eq!(answer.status, 200, "{}", answer.text());
                    assert_eq!(answer.text(), "hello");
                    answered += 1;
                }
                answered
            }
        };
        let clients = (0..4)
            .map(|id| thread::spawn(client(id, sidecar.listen, Arc::clone(&is_done))))
            .collect();
        Self { is_done, clients }
    }

    fn ended(self) -> u32 {
        self.is_done.store(true, Ordering::Relaxed);
        let answered = self
            .clients
            .into_iter()
            .map(|client| client.join().unwrap());
        answered.sum()
    }
}

#[test]
fn a_hundred_changes_of_mode_and_reloads_under_load_lose_no_request() {
    let folder = std::env::temp_dir().join(format!("paceline-reload-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("sidecar.toml");
    let write = |capacity: u32| fs::write(&file, format!("capacity = {capacity}\n")).unwrap();
    write(1_000_000);
    let hello = hello::start();
    let config = file.to_string_lossy().into_owned();
    let sidecar = Sidecar::start(hello, &["--config", &config, "--cycle", "100ms"]);
    let load = Load::on(&sidecar);
    for change in 0..100 {
        write(1_000_000 + change);
        let modes = ["passthrough", "off", "enforce"];
        let mode = modes[change as usize % modes.len()];
        let body = format!("{{\"mode\":\"{mode}\"}}");
        let json = [("content-type", "application/json")];
        let admin = || Client::connect(sidecar.admin);
        let answer = admin()
            .send("POST", "/mode", &json, body.as_bytes())
            .unwrap();
        assert!(matches!(answer.status, 200 | 204), "{}", answer.text());
        let answer = admin().send("POST", "/reload", &json, b"{}").unwrap();
        assert!(matches!(answer.status, 200 | 204), "{}", answer.text());
    }
    let capacity = metric(&scrape(sidecar.admin), "paceline_capacity");
    let answered = load.ended();
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(capacity, Some(1_000_099.0));
    assert!(answered > 0);
}

#[test]
fn two_sidecars_each_keep_their_own_capacity() {
    let hello = hello::start();
    let flags = ["--capacity", "40", "--cycle", "10m"];
    let sidecars = [Sidecar::start(hello, &flags), Sidecar::start(hello, &flags)];
    let passed = sidecars.map(|sidecar| {
        let mut client = Client::connect(sidecar.listen);
        let answers = (0..60).map(|_| client.get("/", "a").status);
        answers.filter(|status| *status == 200).count()
    });
    assert_eq!(passed, [40, 40]);
}

#[test]
fn alone_with_a_capacity_of_40_exactly_40_of_60_pass() {
    let flags = ["--capacity", "40", "--cycle", "10m"];
    let sidecar = Sidecar::start(hello::start(), &flags);
    let mut client = Client::connect(sidecar.listen);
    let answers: Vec<_> = (0..60).map(|_| client.get("/", "a")).collect();
    let passed = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!(passed, 40);
    let refused = &answers[59];
    assert_eq!(refused.status, 429);
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=600).contains(&wait), "{wait}");
    let anonymous = client.send("GET", "/", &[], b"").unwrap();
    assert_eq!(anonymous.status, 429);
}

/// Of 2,000 requests, by h2load with these flags: how many were answered with 2xx and with 4xx, and no other way.
fn h2load(sidecar: &Sidecar, flags: &[&str]) -> (u32, u32) {
    let output = Command::new("h2load")
        .args(["--requests=2000", "--clients=20", "--header=x-client-id: a"])
        .args(flags)
        .arg(format!("http://{}/", sidecar.listen))
        .output()
        .expect("h2load is there: it is in the package nghttp2-client of Debian");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = said
        .lines()
        .find_map(|line| line.strip_prefix("status codes: "));
    let codes = line.unwrap_or_else(|| panic!("{said}")).split(", ");
    let codes: Vec<u32> = codes
        .map(|code| code.split(' ').next().unwrap().parse().unwrap())
        .collect();
    let [passed, 0, refused, 0] = codes[..] else {
        panic!("{said}");
    };
    (passed, refused)
}

#[test]
fn h2load_passes_exactly_the_capacity_over_both_protocols() {
    for flags in [&["--h1"][..], &["--max-concurrent-streams=10"]] {
        let share = ["--capacity", "40", "--cycle", "10m"];
        let sidecar = Sidecar::start(hello::start(), &share);
        assert_eq!(h2load(&sidecar, flags), (40, 1_960), "{flags:?}");
    }
}

#[test]
fn wrk_sees_what_the_metrics_count() {
    let share = ["--capacity", "100", "--cycle", "10m"];
    let sidecar = Sidecar::start(hello::start(), &share);
    let output = Command::new("wrk")
        .args(["--threads=1", "--connections=16", "--duration=1s"])
        .args(["--header", "x-client-id: a"])
        .arg(format!("http://{}/", sidecar.listen))
        .output()
        .expect("wrk is there: it is in the package wrk of Debian");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!said.contains("Socket errors"), "{said}");
    let number = |text: Option<&str>| text.map_or(0.0, |text| text.trim().parse::<f64>().unwrap());
    let lines = || said.lines();
    let all = number(lines().find_map(|line| Some(line.split_once(" requests in")?.0)));
    let refused = number(lines().find_map(|line| Some(line.split_once("responses:")?.1)));
    let scrape = scrape(sidecar.admin);
    let counted = |outcome: &str| {
        let series =
            format!("paceline_client_requests_total{{client=\"a\",outcome=\"{outcome}\"}}");
        metric(&scrape, &series).unwrap_or_else(|| panic!("{scrape}"))
    };
    // Whole numbers below 2^53 are exact.
    let is_same = |a: f64, b: f64| a.to_bits() == b.to_bits();
    assert!(is_same(counted("passed"), all.min(100.0)), "{said}");
    // wrk does not count what is under way at its end.
    let under_way = counted("refused") - refused;
    assert!((0.0..=16.0).contains(&under_way), "{under_way}: {said}");
    assert!(is_same(all - refused, counted("passed")), "{said}");
}
