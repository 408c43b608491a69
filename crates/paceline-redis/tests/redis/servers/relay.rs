use std::future::pending;
use std::io;
use std::iter;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::line::carry;
use super::place::Place;
use super::{TRIES, soon};

/// A TCP proxy in front of a server that simulates network failures.
///
/// It runs in the runtime of the test. A change applies to everything sent after its method returns, on open connections too.
/// While the server is down, new connections are accepted and closed at once; `Cut::Refuse` refuses them.
#[derive(Debug)]
pub(crate) struct Relay {
    rules: watch::Sender<Rules>,
    applied: watch::Receiver<u64>,
    address: SocketAddr,
}

/// How the network fails.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Cut {
    /// Open connections are closed, and new ones refused, as if the process had ended.
    Refuse,
    /// Nothing arrives any more, on open connections and on new ones, which are still accepted. It all arrives when the network is
    /// mended, as with TCP.
    BlackHole,
}

/// The present behaviour of the network.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) server: SocketAddr,
    pub(super) cut: Option<Cut>,
    pub(super) delay: Duration,
    pub(super) drops_replies: bool,
    /// How often all connections have been closed.
    closed: u64,
    /// How many changes there were.
    changed: u64,
}

impl Relay {
    /// Starts a relay in front of the server at this address.
    pub(crate) fn start(server: SocketAddr) -> Self {
        let places = iter::repeat_with(Place::reserve).take(TRIES);
        let mut listening = places.filter_map(|place| Some((listen(place.address()).ok()?, place)));
        let (listener, place) = listening.next().expect("one of a few ports is free");
        let address = place.address();
        let (rules, obeyed) = watch::channel(Rules {
            server,
            cut: None,
            delay: Duration::ZERO,
            drops_replies: false,
            closed: 0,
            changed: 0,
        });
        let (apply, applied) = watch::channel(0);
        tokio::spawn(serve(place, listener, obeyed, apply));
        Self {
            rules,
            applied,
            address,
        }
    }

    /// `redis://127.0.0.1:port`
    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Delays each reply by this time, independently of the others.
    pub(crate) async fn delay_replies(&self, delay: Duration) {
        self.change(|rules| rules.delay = delay).await;
    }

    /// Drops replies and delivers requests. When that ends, open connections are closed: on them the next reply would be taken for a
    /// lost one.
    pub(crate) async fn drop_replies(&self, drops_replies: bool) {
        self.change(|rules| {
            rules.closed += u64::from(rules.drops_replies && !drops_replies);
            rules.drops_replies = drops_replies;
        })
        .await;
    }

    pub(crate) async fn cut(&self, cut: Cut) {
        self.change(|rules| {
            rules.cut = Some(cut);
            rules.closed += u64::from(cut == Cut::Refuse);
        })
        .await;
    }

    /// Ends a cut.
    pub(crate) async fn mend(&self) {
        self.change(|rules| rules.cut = None).await;
    }

    /// Sends new connections to this server, and closes open ones.
    pub(crate) async fn switch_to(&self, server: SocketAddr) {
        self.change(|rules| {
            rules.server = server;
            rules.closed += 1;
        })
        .await;
    }

    async fn change(&self, change: impl FnOnce(&mut Rules)) {
        let mut goal = 0;
        self.rules.send_modify(|rules| {
            change(rules);
            rules.changed += 1;
            goal = rules.changed;
        });
        let mut applied = self.applied.clone();
        let done = applied.wait_for(|&changes| changes >= goal);
        soon("a relay has changed", done).await.expect("it runs");
    }
}

/// Runs until the relay is dropped, which closes the connections and frees the place.
async fn serve(
    place: Place,
    listener: TcpListener,
    mut rules: watch::Receiver<Rules>,
    applied: watch::Sender<u64>,
) {
    let mut listener = Some(listener);
    let mut connections = JoinSet::new();
    let mut closed = 0;
    loop {
        tokio::select! {
            biased;
            changed = rules.changed() => {
                if changed.is_err() {
                    break;
                }
                let now = *rules.borrow_and_update();
                if now.cut == Some(Cut::Refuse) {
                    listener = None;
                } else if listener.is_none() {
                    listener = Some(listen(place.address()).expect("the port is still ours"));
                }
                if now.closed != closed {
                    connections.shutdown().await;
                    closed = now.closed;
                }
                applied.send_replace(now.changed);
            }
            client = accept(listener.as_ref()) => {
                connections.spawn(carry(client, rules.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Waits while connections are refused.
async fn accept(listener: Option<&TcpListener>) -> TcpStream {
    let Some(listener) = listener else {
        return pending().await;
    };
    let accepted = listener.accept().await;
    accepted.expect("there is room for a connection").0
}

/// The standard library's listener, because it binds at once, and can reuse a port with lingering connections.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}
