//! What lasts: long bodies, many connections, many requests.

use std::fs;
use std::io::{Read, Write};
use std::process::Command;
use std::thread;
use std::time::Duration;

use socket2::SockRef;

use super::client::metric;
use super::support::{Sidecar, head, run, wait_until};
use super::upstream::{self, hello};

const GIB: usize = 1 << 30;

/// Its resident memory now, which is `VmRSS`, or at most, which is `VmHWM`.
pub(crate) fn resident_kb(sidecar: &Sidecar, field: &str) -> u32 {
    let status = fs::read_to_string(format!("/proc/{}/status", sidecar.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kb = line.unwrap().trim_matches([':', '\t', ' ', 'k', 'B']);
    kb.parse().unwrap()
}

/// Reads a gibibyte, slowly at first.
fn take(stream: &mut impl Read) {
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
}

fn give(stream: &mut impl Write) {
    let chunk = vec![0; 1 << 16];
    for _ in 0..GIB / chunk.len() {
        stream.write_all(&chunk).unwrap();
    }
}

#[test]
fn a_gibibyte_each_way_past_a_slow_reader_takes_less_than_32_mib() {
    let service = upstream::raw(|mut connection| {
        connection.head().unwrap();
        take(connection.reader());
        connection.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {GIB}\r\n\r\n"));
        give(&mut connection.stream());
    });
    let sidecar = Sidecar::start(service, &[]);
    let before = resident_kb(&sidecar, "VmRSS");
    let mut client = sidecar.open(format!(
        "POST /up HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\ncontent-length: {GIB}\r\n\r\n"
    ));
    give(&mut client);
    let head = head(&mut client);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    take(&mut client);
    let most = resident_kb(&sidecar, "VmHWM");
    println!("{most} kB after {before} kB");
    assert!(most < before + 32 * 1024, "{most} kB after {before} kB");
}

#[test]
fn an_upload_to_a_service_that_does_not_read_costs_at_most_100_kb() {
    const COUNT: u32 = 80;
    // The large buffers of the process, lent and spare, in kB.
    const LARGE: u32 = (12 + 2) * 512;
    let service = upstream::raw(|mut connection| {
        connection.head().unwrap();
        thread::park();
    });
    let flags = ["--body-timeout", "1h", "--response-timeout", "1h"];
    let sidecar = Sidecar::start(service, &flags);
    let before = resident_kb(&sidecar, "VmRSS");
    let request =
        "POST / HTTP/1.1\r\nhost: a\r\nx-client-id: a\r\ncontent-length: 9999999999\r\n\r\n";
    let mut uploads: Vec<_> = (0..COUNT).map(|_| sidecar.open(request)).collect();
    for upload in &uploads {
        upload.set_nonblocking(true).unwrap();
        // The kernel has little memory for the sockets of all tests.
        SockRef::from(upload).set_send_buffer_size(1 << 16).unwrap();
    }
    // Until nothing is taken of any of them.
    let chunk = vec![b'x'; 1 << 16];
    let mut idle = 0;
    while idle < 20 {
        let taken = uploads.iter_mut().map(|it| it.write(&chunk).unwrap_or(0));
        idle = if taken.sum::<usize>() == 0 {
            idle + 1
        } else {
            0
        };
        thread::sleep(Duration::from_millis(20));
    }
    let grown = resident_kb(&sidecar, "VmHWM").saturating_sub(before + LARGE);
    println!("{} kB each", grown / COUNT);
    assert!(grown < 100 * COUNT, "{} kB each", grown / COUNT);
}

#[test]
fn thousands_of_idle_connections_are_held_and_their_memory_goes_back_to_the_system() {
    let sidecar = Sidecar::start(hello(), &[]);
    let before = resident_kb(&sidecar, "VmRSS");
    // The limit of open files may allow no more.
    let count = 9_500;
    // A byte: it is past the preface check.
    let idle: Vec<_> = (0..count).map(|_| sidecar.open("G")).collect();
    let connections = || sidecar.metric("paceline_connections").unwrap();
    wait_until("all are counted", || connections() >= f64::from(count));
    let grown = resident_kb(&sidecar, "VmRSS").saturating_sub(before);
    println!("{} bytes each", grown * 1024 / count);
    assert_eq!(sidecar.get("a").status, 200);
    drop(idle);
    wait_until("all have gone", || connections() < 10.0);
    assert_eq!(sidecar.get("a").status, 200);
    wait_until("most of their memory has gone", || {
        resident_kb(&sidecar, "VmRSS") < before + grown / 4
    });
}

/// Of 2,000 requests, by h2load with these flags: how many were answered with 2xx and with 4xx, and no other way.
fn h2load(sidecar: &Sidecar, flag: &str) -> (u32, u32) {
    let mut h2load = Command::new("h2load");
    h2load
        .args(["--requests=2000", "--clients=20", "--header=x-client-id: a"])
        .args([flag, &format!("http://{}/", sidecar.listen)]);
    let (_, said, _) = run(&mut h2load, b"");
    let mut lines = said.lines();
    let line = lines.find_map(|line| line.strip_prefix("status codes: "));
    let codes = line.unwrap_or_else(|| panic!("{said}")).split(", ");
    let codes = codes.map(|code| code.split(' ').next().unwrap().parse().unwrap());
    let [passed, 0, refused, 0] = codes.collect::<Vec<_>>()[..] else {
        panic!("{said}");
    };
    (passed, refused)
}

#[test]
fn h2load_passes_exactly_the_capacity_of_each_sidecar_over_both_protocols_and_all_is_counted() {
    let service = hello();
    let protocols = ["--h1", "--max-concurrent-streams=10"];
    let sidecars = protocols.map(|_| Sidecar::start(service, &["--capacity", "40"]));
    for (protocol, sidecar) in protocols.into_iter().zip(&sidecars) {
        assert_eq!(h2load(sidecar, protocol), (40, 1_960), "{protocol}");
        let scrape = sidecar.scrape();
        for (outcome, count) in [("passed", 40.0), ("refused", 1_960.0)] {
            let labels = format!("{{client=\"a\",outcome=\"{outcome}\"}}");
            let counted = metric(&scrape, &format!("paceline_client_requests_total{labels}"));
            assert_eq!(counted, Some(count), "{protocol} {outcome}");
        }
    }
}
