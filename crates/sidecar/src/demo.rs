//! `paceline-sidecar demo`: four clients share one service, and one of them has a spike.
//!
//! The service and the clients are in this process. The sidecar is a child process, started as anyone starts it, and the table is
//! read from its admin port.

use std::convert::Infallible;
use std::error::Error;
use std::fmt::Write;
use std::future::pending;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;
use std::{env, io};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use paceline::prelude::*;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::admin::View;
use crate::server::Signals;

type Failure = Box<dyn Error + Send + Sync>;

const CAPACITY: u32 = 40;
const CYCLE: Duration = Duration::from_secs(2);
const CLIENTS: [&str; 4] = ["catalog", "cart", "campaign", "search"];

/// The default share of a client.
const DEFAULT: u32 = CAPACITY / 4;

/// A part of the demo: what happens, and the requests of each client in a cycle. All parts are equally long.
const PARTS: [(&str, [u32; 4]); 4] = [
    (
        "cart needs more than its default of 10, and catalog leaves some",
        [2, 15, 10, 10],
    ),
    (
        "campaign has a spike: it and cart borrow what catalog leaves",
        [3, 15, 50, 10],
    ),
    (
        "catalog needs nothing and search less: campaign borrows more",
        [0, 15, 50, 5],
    ),
    (
        "the spike ends: the others have back what they lent",
        [2, 15, 10, 10],
    ),
];

/// What the service takes for a request.
const SERVICE_TIME: Duration = Duration::from_millis(5);

/// Requests begin so long after the cycle, in case that clocks differ by a moment.
const AFTER_START: Duration = Duration::from_millis(50);

/// Requests are sent evenly in this part of the cycle. The rest is for a machine that is busy.
const SPAN: Duration = Duration::from_millis(1_300);

/// The part that a client without requests can be idle: all of it.
const FORGET_AFTER: &str = "100000";

/// The flags of the demo.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Demo {
    /// How long it lasts, from 10s to 1h
    #[arg(long = "for", value_name = "DURATION", default_value = "1m", value_parser = length)]
    length: Duration,

    /// The address for clients; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// The address of the live page; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    admin: SocketAddr,
}

fn length(text: &str) -> Result<Duration, String> {
    let length = crate::config::duration(text)?;
    let range = Duration::from_secs(10)..=Duration::from_secs(3_600);
    if range.contains(&length) {
        Ok(length)
    } else {
        Err(format!("must be 10s to 1h, got {text}"))
    }
}

/// Runs it to its end: 0, also after an interrupt, or 1 if it cannot run.
pub(crate) fn run(demo: &Demo) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let ended = runtime.map_err(Failure::from).and_then(|runtime| {
        runtime.block_on(async {
            tokio::select! {
                ended = show(demo) => ended,
                ended = interrupted() => ended,
            }
        })
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Waits for SIGINT or SIGTERM.
async fn interrupted() -> Result<(), Failure> {
    Signals::new()?.end().await;
    println!("interrupted");
    Ok(())
}

async fn show(demo: &Demo) -> Result<(), Failure> {
    let upstream = upstream().await?;
    let (_sidecar, [listen, admin]) = Sidecar::start(demo, upstream)?;
    println!("A service on {upstream}, and in front of it the sidecar on {listen}.");
    println!("The live page: http://{admin}/");
    println!();
    println!(
        "The service bears {CAPACITY} requests in a cycle of {} s. Each of four clients has {DEFAULT} by default.",
        CYCLE.as_secs()
    );
    println!(
        "Sizes follow what was asked in the cycle before. What a client does not need, others borrow."
    );
    println!("What is above the size gets 429.");

    let mut clients = Vec::new();
    for name in CLIENTS {
        let mut client = Client::connect(listen, name).await?;
        // The sidecar knows it from now on.
        client.ask().await?;
        clients.push(client);
    }
    // The cycle of this first request is the rest of the length.
    let cycles = u32::try_from(demo.length.as_secs() / CYCLE.as_secs())? - 1;
    let mut part_before = None;
    for cycle in 0..cycles {
        let part = (cycle * 4 / cycles) as usize;
        let (words, asks) = PARTS[part];
        if part_before.replace(part) != Some(part) {
            heading(words);
        }
        let start = view(admin).await?.until_next();
        clients = in_one_cycle(clients, asks, start).await?;
        let view = view(admin).await?;
        print_row(cycle + 1, &view, asks, &mut clients)?;
    }
    summary(&clients);
    Ok(())
}

/// Every client sends its requests evenly in the cycle that begins after `start`. Returns when the cycle is nearly over.
async fn in_one_cycle(
    clients: Vec<Client>,
    asks: [u32; 4],
    start: Duration,
) -> Result<Vec<Client>, Failure> {
    let start = start + AFTER_START;
    let mut sending = Vec::new();
    for (mut client, asks) in clients.into_iter().zip(asks) {
        sending.push(tokio::spawn(async move {
            wait(start).await;
            let pace = Interval::every(SPAN / asks.max(1)).shared();
            for _ in 0..asks {
                pace.acquire_one().await;
                client.ask().await?;
            }
            Ok::<_, Failure>(client)
        }));
    }
    wait(start + SPAN).await;
    let mut back = Vec::new();
    for sent in sending {
        back.push(sent.await??);
    }
    Ok(back)
}

async fn wait(duration: Duration) {
    let _ = timeout(duration, pending::<()>()).await;
}

fn heading(words: &str) {
    println!();
    println!("{words}");
    println!(
        "       {:^22}{:^22}{:^22}{:^22}",
        CLIENTS[0], CLIENTS[1], CLIENTS[2], CLIENTS[3]
    );
    println!("cycle  {}", "  asks   size passed  ".repeat(4));
}

fn print_row(
    cycle: u32,
    view: &View,
    asks: [u32; 4],
    clients: &mut [Client],
) -> Result<(), Failure> {
    let mut row = format!("{cycle:5}  ");
    let mut refused = Vec::new();
    for (name, asks) in CLIENTS.into_iter().zip(asks) {
        let client = view.clients.iter().find(|client| client.client == name);
        let client = client.ok_or_else(|| format!("/clients does not have {name}"))?;
        if u64::from(client.used) + client.refused != u64::from(asks) {
            println!("{cycle:5}  the machine was too busy: the requests were not in one cycle");
            return Ok(());
        }
        write!(row, "{asks:6} {:6} {:6}  ", client.size, client.used)?;
        refused.push(client.refused);
    }
    println!("{}", row.trim_end());
    for ((client, asks), refused) in clients.iter_mut().zip(asks).zip(refused) {
        if asks <= DEFAULT {
            client.asked_inside += u64::from(asks);
            client.refused_inside += refused;
        }
    }
    Ok(())
}

fn summary(clients: &[Client]) {
    println!();
    for client in clients {
        let (passed, refused) = (client.passed, client.refused);
        print!("{}: {passed} passed, {refused} refused.", client.name);
        let (asked, refused) = (client.asked_inside, client.refused_inside);
        if asked > 0 {
            print!(
                " In cycles in which it asked for at most {DEFAULT}: {refused} of {asked} refused."
            );
        }
        println!();
    }
}

/// The service. It answers each request after a few milliseconds, and it listens until the process ends.
async fn upstream() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(|_| async {
                wait(SERVICE_TIME).await;
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"hello\n"))))
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    Ok(address)
}

/// The child process. It ends when this is dropped.
struct Sidecar(Child);

impl Sidecar {
    /// With its addresses for clients and operators.
    fn start(demo: &Demo, upstream: SocketAddr) -> Result<(Self, [SocketAddr; 2]), Failure> {
        let mut command = Command::new(env::current_exe()?);
        for (name, _) in env::vars_os() {
            if name.to_string_lossy().starts_with("PACELINE_") {
                command.env_remove(name);
            }
        }
        let child = command
            .args(["--listen", &demo.listen.to_string()])
            .args(["--admin", &demo.admin.to_string()])
            .args(["--upstream", &format!("http://{upstream}")])
            .args(["--capacity", &CAPACITY.to_string()])
            .args(["--cycle", &format!("{}s", CYCLE.as_secs())])
            .args(["--forget-after", FORGET_AFTER])
            .args(["--drain-announce", "0s"])
            .args(["--log", "warn", "--max-connections", "100"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut sidecar = Self(child);
        let mut ready = String::new();
        if let Some(stdout) = sidecar.0.stdout.take() {
            BufReader::new(stdout).read_line(&mut ready)?;
        }
        let address = |after: &str| {
            let rest = ready.split_once(after)?.1;
            rest.split(',').next()?.parse().ok()
        };
        // It has written to standard error why it does not run.
        let addresses = address("listening on ").zip(address("admin on "));
        let (listen, admin) = addresses.ok_or("the sidecar did not start")?;
        Ok((sidecar, [listen, admin]))
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A client of the service, with one connection.
struct Client {
    name: &'static str,
    connection: SendRequest<Empty<Bytes>>,
    passed: u32,
    refused: u32,
    /// Requests in the cycles in which it asked for at most its default.
    asked_inside: u64,
    refused_inside: u64,
}

impl Client {
    async fn connect(sidecar: SocketAddr, name: &'static str) -> Result<Self, Failure> {
        Ok(Self {
            name,
            connection: connect(sidecar).await?,
            passed: 0,
            refused: 0,
            asked_inside: 0,
            refused_inside: 0,
        })
    }

    /// Sends one request.
    async fn ask(&mut self) -> Result<(), Failure> {
        let request = Request::get("/")
            .header("host", "demo")
            .header("x-client-id", self.name)
            .body(Empty::new())?;
        self.connection.ready().await?;
        let response = self.connection.send_request(request).await?;
        let status = response.status();
        response.into_body().collect().await?;
        match status {
            StatusCode::OK => self.passed += 1,
            StatusCode::TOO_MANY_REQUESTS => self.refused += 1,
            other => return Err(format!("the sidecar answered {other} to {}", self.name).into()),
        }
        Ok(())
    }
}

async fn connect(address: SocketAddr) -> Result<SendRequest<Empty<Bytes>>, Failure> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

/// What `/clients` says of the cycle.
async fn view(admin: SocketAddr) -> Result<View, Failure> {
    let mut operator = connect(admin).await?;
    let request = Request::get("/clients")
        .header("host", "localhost")
        .body(Empty::new())?;
    let response = operator.send_request(request).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    match status {
        StatusCode::OK => Ok(serde_json::from_slice(&body)?),
        other => Err(format!("the admin port answered {other} to /clients").into()),
    }
}
