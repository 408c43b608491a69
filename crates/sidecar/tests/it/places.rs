//! Places for connections: few descriptors, and one address that wants all.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::sync::Semaphore;

use super::frames::{self, HEADERS};
use super::support::{
    GET, LAST_GET, Sidecar, command, connect, curl, on_free_ports, rest, wait_until,
};
use super::upstream::{self, hello, nothing, reply};

/// A sidecar with 128 descriptors.
fn with_few_descriptors(upstream: SocketAddr, flags: &[&str]) -> Sidecar {
    let upstream = format!("http://{upstream}");
    let sidecar = command(&on_free_ports(&upstream, flags));
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -n 128 && exec \"$0\" \"$@\""]);
    shell.arg(sidecar.get_program()).args(sidecar.get_args());
    for (name, _) in sidecar.get_envs() {
        shell.env_remove(name);
    }
    Sidecar::of(shell)
}

/// A service that answers when it may.
struct Held {
    at: SocketAddr,
    arrived: Arc<AtomicUsize>,
    may_answer: Arc<Semaphore>,
}

impl Held {
    fn new() -> Self {
        let (arrived, may_answer) = (Arc::<AtomicUsize>::default(), Arc::new(Semaphore::new(0)));
        let (count, gate) = (Arc::clone(&arrived), Arc::clone(&may_answer));
        let at = upstream::http(move |_| {
            count.fetch_add(1, Relaxed);
            let gate = Arc::clone(&gate);
            async move {
                let _ = gate.acquire().await;
                reply("hello")
            }
        });
        Self {
            at,
            arrived,
            may_answer,
        }
    }

    /// Waits until so many requests are under way at once.
    fn wait_for(&self, count: usize) {
        wait_until("all requests have arrived", || {
            self.arrived.load(Relaxed) == count
        });
    }
}

/// The value of a series as a whole number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "they are small"
)]
fn count(sidecar: &Sidecar, series: &str) -> usize {
    sidecar.metric(series).unwrap() as usize
}

#[test]
fn with_128_descriptors_and_300_clients_each_accepted_request_is_answered_and_the_admin_port_lives()
{
    let service = Held::new();
    let sidecar = with_few_descriptors(service.at, &["--head-timeout", "1h"]);
    sidecar.wait_for_log("max-connections is ");
    let mut clients: Vec<_> = (0..300).map(|_| connect(sidecar.listen)).collect();
    let refused = "paceline_connections_refused_total{reason=\"all\"}";
    let connections = || count(&sidecar, "paceline_connections");
    wait_until("all are accepted or refused", || {
        connections() + count(&sidecar, refused) == 300
    });
    let accepted = connections();
    assert!(accepted > 30, "{accepted}");

    for client in &mut clients {
        // A refused one is closed.
        let _ = client.write_all(LAST_GET.as_bytes());
    }
    service.wait_for(accepted);
    assert_eq!(count(&sidecar, "process_max_fds"), 128);
    assert!(count(&sidecar, "process_open_fds") > 2 * accepted);
    for path in ["/healthz", "/readyz"] {
        let answer = sidecar.operator().send("GET", path, &[], b"");
        assert_eq!(answer.status, 200, "{path}");
    }
    service.may_answer.add_permits(1_000);
    let answers = clients.iter_mut().map(rest);
    let answers: Vec<_> = answers.filter(|answer| !answer.is_empty()).collect();
    for answer in &answers {
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    assert_eq!(answers.len(), accepted);
}

#[test]
fn with_128_descriptors_streams_of_http2_that_find_no_place_are_503() {
    let service = Held::new();
    let sidecar = with_few_descriptors(service.at, &[]);
    let mut stream = frames::open(sidecar.listen, &[]);
    for number in 0..100 {
        frames::request(&mut stream, 2 * number + 1);
    }
    let is_200 = |head: &[u8]| head.starts_with(b"\x88");
    let mut next = || frames::next(&mut stream, HEADERS).payload;
    // All others wait.
    let first = next();
    assert!(first.starts_with(b"\x48\x83\x6c\x0c\xff"), "{first:x?}");
    let refused = || count(&sidecar, "paceline_requests_total{outcome=\"shed\"}");
    wait_until("all have arrived", || {
        service.arrived.load(Relaxed) + refused() == 100
    });
    assert!(refused() < 70, "{}", refused());
    service.may_answer.add_permits(1_000);
    let answered = (1..100).filter(|_| is_200(&next())).count();
    assert_eq!(answered, 100 - refused());
    drop(stream);

    // Their places are free again.
    sidecar.wait_for_connections(0);
    let mut clients: Vec<_> = (0..30).map(|_| sidecar.open(LAST_GET)).collect();
    for client in &mut clients {
        assert!(rest(client).starts_with("HTTP/1.1 200 "));
    }
}

#[test]
fn a_connection_of_http2_takes_no_place_of_a_request() {
    let sidecar = Sidecar::start(hello(), &["--max-connections", "1"]);
    let mut stream = frames::open(sidecar.listen, &[]);
    for id in [1, 3] {
        frames::request(&mut stream, id);
        let head = frames::next(&mut stream, HEADERS);
        assert_eq!((head.stream, head.payload[0]), (id, 0x88));
    }
    assert_eq!(rest(&mut connect(sidecar.listen)), "");
}

#[test]
fn one_address_has_no_more_connections_than_its_bound() {
    let flags = ["--max-connections-per-address", "3"];
    let sidecar = Sidecar::start(hello(), &flags);
    let held: Vec<TcpStream> = (0..3).map(|_| sidecar.open(GET)).collect();
    sidecar.wait_for_connections(3);
    for _ in 0..2 {
        assert_eq!(rest(&mut connect(sidecar.listen)), "");
    }
    sidecar.wait_for_log("too many connections of one address");
    let refused = |reason| {
        let series = format!("paceline_connections_refused_total{{reason=\"{reason}\"}}");
        count(&sidecar, &series)
    };
    assert_eq!((refused("address"), refused("all")), (2, 0));
    let other = curl(sidecar.listen, "/", &["--interface", "127.0.0.2"], b"");
    assert!(other.starts_with("HTTP/1.1 200 "), "{other}");

    drop(held);
    sidecar.wait_for_connections(0);
    assert_eq!(sidecar.get("a").status, 200);
}

#[test]
fn a_scrape_says_what_the_process_uses() {
    let sidecar = Sidecar::start(nothing(), &[]);
    let open = count(&sidecar, "process_open_fds");
    let held: Vec<_> = (0..50).map(|_| sidecar.open("G")).collect();
    sidecar.wait_for_connections(50);
    // The first count may have a connection that has just ended.
    wait_until("descriptors are counted", || {
        count(&sidecar, "process_open_fds") >= open + 45
    });
    drop(held);
    wait_until("they are closed", || {
        count(&sidecar, "process_open_fds") < open + 5
    });

    let resident = sidecar.metric("process_resident_memory_bytes").unwrap();
    assert!((1e6..1e9).contains(&resident), "{resident}");
    let started = sidecar.metric("process_start_time_seconds").unwrap();
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let age = now.as_secs_f64() - started;
    // The kernel counts from its start in hundredths, and says in seconds when that was.
    assert!((-2.0..3_600.0).contains(&age), "{age}");
    let spent = || sidecar.metric("process_cpu_seconds_total").unwrap();
    let before = spent();
    wait_until("it has worked for a moment", || spent() > before);
}
