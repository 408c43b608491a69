//! One thread: its runtime, its listener, its connections.

use std::net::TcpListener as StdListener;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::{future, io, net};

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::watch;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{MissedTickBehavior, interval};

use crate::state::{Complaints, Sidecar};

use super::connection::{Line, Server, serve};
use super::places::{Full, Place};
use super::watchdog::{Clock, Watch};

/// Serves until the process ends. When `is_ending` becomes true, it accepts no more connections and lets requests finish. It drops
/// `is_ending` when all connections that came before are counted.
pub(super) fn run(
    listener: StdListener,
    sidecar: Arc<Sidecar>,
    is_ending: watch::Receiver<bool>,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())?;
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        Worker::new(sidecar).work(listener, is_ending).await;
        Ok(())
    })
}

/// A connection as the worker sees it.
struct Connection {
    watch: Arc<Watch>,
    line: Rc<Line>,
    task: AbortHandle,
}

struct Worker {
    sidecar: Arc<Sidecar>,
    server: Rc<Server>,
    clock: Arc<Clock>,
    connections: Vec<Connection>,
    complaints: Complaints,
}

impl Worker {
    fn new(sidecar: Arc<Sidecar>) -> Self {
        let config = sidecar.config();
        Self {
            server: Rc::new(Server::new(Arc::clone(&sidecar))),
            clock: Arc::new(Clock::new(&config.timeouts)),
            connections: Vec::new(),
            complaints: Complaints::default(),
            sidecar,
        }
    }

    async fn work(mut self, listener: TcpListener, is_ending: watch::Receiver<bool>) {
        let (mut listener, mut is_ending) = (Some(listener), Some(is_ending));
        let mut ticks = interval(self.clock.tick());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // After a failed accept the next one is after a tick: without descriptors it would fail at once again.
        let mut has_failed = false;
        loop {
            let accept = async {
                match &listener {
                    Some(listener) if !has_failed => listener.accept().await,
                    _ => future::pending().await,
                }
            };
            let end = async {
                match &mut is_ending {
                    Some(is_ending) => is_ending.changed().await,
                    None => future::pending().await,
                }
            };
            tokio::select! {
                accepted = accept => has_failed = !self.accepted(accepted),
                _ = ticks.tick() => {
                    has_failed = false;
                    self.look();
                }
                _ = end => {
                    if let Some(Ok(listener)) = listener.take().map(TcpListener::into_std) {
                        self.accept_the_last(&listener);
                    }
                    for each in &self.connections {
                        each.watch.drains();
                        each.line.end();
                    }
                    is_ending = None;
                }
            }
        }
    }

    /// Connections that the kernel has accepted already would be reset with the listener.
    fn accept_the_last(&mut self, listener: &StdListener) {
        while let Ok((stream, peer)) = listener.accept() {
            let stream = stream.set_nonblocking(true).map(|()| stream);
            let stream = stream.and_then(TcpStream::from_std);
            self.accepted(stream.map(|stream| (stream, peer)));
        }
    }

    /// Whether the next one may follow at once.
    fn accepted(&mut self, accepted: io::Result<(TcpStream, net::SocketAddr)>) -> bool {
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_of_the_client(&error) => return true,
            Err(error) => {
                if self.complaints.may_be_logged() {
                    tracing::warn!(%error, "cannot accept a connection");
                }
                return false;
            }
        };
        let place = match Place::of_connection(&self.sidecar, peer.ip()) {
            Ok(place) => place,
            Err(full) => {
                self.refused(peer, full);
                return true;
            }
        };
        let watch = Watch::connection(&self.clock);
        let line = Rc::<Line>::default();
        let served = serve(
            stream,
            peer,
            place,
            Arc::clone(&watch),
            Rc::clone(&line),
            Rc::clone(&self.server),
        );
        let task = spawn_local(served).abort_handle();
        self.connections.push(Connection { watch, line, task });
        true
    }

    fn refused(&mut self, peer: net::SocketAddr, full: Full) {
        let counts = &self.sidecar.counts;
        let (counter, whose) = match full {
            Full::All => (&counts.connections_refused, ""),
            Full::Address => (&counts.address_refused, " of one address"),
        };
        let refused = counter.fetch_add(1, Relaxed) + 1;
        if self.complaints.may_be_logged() {
            tracing::warn!(%peer, refused, "too many connections{whose}: closed at once");
        }
    }

    /// Once a tick: cuts late connections, and forgets ended ones.
    fn look(&mut self) {
        self.clock.advance();
        let config = self.sidecar.config();
        self.clock.set(&config.timeouts);

        let mut late = 0;
        self.connections.retain(|each| {
            late += each.line.cut_streams(&each.watch);
            if each.task.is_finished() {
                return false;
            }
            if !each.watch.is_late() {
                return true;
            }
            late += 1;
            if each.watch.ends() {
                each.line.end();
                return true;
            }
            each.task.abort();
            false
        });
        self.sidecar
            .counts
            .connections_late
            .fetch_add(late, Relaxed);
    }
}

/// A connection that its client has given up already. The next accept can follow at once.
fn is_of_the_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}
