//! The life of the process: ready, draining, over.

use std::error::Error;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use std::{io, thread};

use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::{interval, timeout};

use crate::admin;
use crate::config::{self, Config, Source, Upstream};
use crate::state::Sidecar;

use super::{listen, worker};

/// How often a drain looks whether all connections have ended.
const LOOK: Duration = Duration::from_millis(20);

/// Runs the sidecar to its end: 0 after a drain, 1 if it cannot run.
pub(crate) fn run(config: Config, source: Source) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(live(config, source)),
        Err(error) => Err(error.into()),
    };
    match ended {
        Ok(code) => code,
        Err(error) => {
            let cause = error.source().map(|cause| format!(": {cause}"));
            eprintln!("error: {error}{}", cause.unwrap_or_default());
            ExitCode::FAILURE
        }
    }
}

/// The main thread: operators and signals. Requests are on threads of their own.
async fn live(config: Config, source: Source) -> Result<ExitCode, Box<dyn Error>> {
    let listeners = listen::bind(config.listen, config.cores)?;
    let admin = listen::bind(config.admin, 1)?.remove(0);
    // Port 0 stays in the configuration, so that a reload finds it unchanged.
    let addresses = [listeners[0].local_addr()?, admin.local_addr()?];
    let sidecar = Arc::new(Sidecar::new(config, source)?);

    let mut signals = Signals::new()?;
    let (end, is_ending) = watch::channel(false);
    let (ended, mut a_worker_ended) = mpsc::unbounded_channel();
    for (core, listener) in listeners.into_iter().enumerate() {
        let sidecar = Arc::clone(&sidecar);
        let is_ending = is_ending.clone();
        let ended = Ended(ended.clone());
        thread::Builder::new()
            .name(format!("core-{core}"))
            .spawn(move || {
                let _ended = ended;
                if let Err(error) = worker::run(listener, sidecar, is_ending) {
                    tracing::error!(%error, "a thread cannot serve");
                }
            })?;
    }
    drop(is_ending);
    tokio::spawn(admin::serve(
        TcpListener::from_std(admin)?,
        Arc::clone(&sidecar),
    ));
    tokio::spawn(config::watch(
        Arc::clone(&sidecar),
        Arc::clone(&sidecar.source),
    ));
    tokio::spawn(reload_on_hangup(Arc::clone(&sidecar))?);
    say_ready(addresses, &sidecar.config().upstream);

    tokio::select! {
        () = signals.end() => {}
        _ = a_worker_ended.recv() => {
            tracing::error!("a thread ended");
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(drain(&sidecar, &end, &mut signals).await)
}

fn say_ready([listen, admin]: [SocketAddr; 2], upstream: &Upstream) {
    let scheme = if upstream.is_h2c { "h2c" } else { "http" };
    let authority = &upstream.authority;
    // Without a reader of it the sidecar serves too.
    let _ = writeln!(
        io::stdout(),
        "listening on {listen}, admin on {admin}, upstream {scheme}://{authority}"
    );
}

/// Announces the end, then waits for requests and upgraded connections. A second signal ends it at once.
async fn drain(sidecar: &Sidecar, end: &watch::Sender<bool>, signals: &mut Signals) -> ExitCode {
    sidecar.is_draining.store(true, Relaxed);
    let drain = sidecar.config().drain.clone();
    let connections = || sidecar.counts.connections.load(Relaxed);
    tracing::info!(
        connections = connections(),
        announce = ?drain.announce,
        finish = ?drain.finish,
        "draining"
    );
    if timeout(drain.announce, signals.end()).await.is_ok() {
        tracing::warn!(cut = connections(), "second signal: ends at once");
        return ExitCode::SUCCESS;
    }
    end.send_replace(true);
    let all_ended = async {
        // Until then a connection may wait to be accepted.
        end.closed().await;
        let mut looks = interval(LOOK);
        loop {
            looks.tick().await;
            if connections() == 0 {
                break;
            }
        }
    };
    tokio::select! {
        finished = timeout(drain.finish, all_ended) => {
            if finished.is_ok() {
                tracing::info!("drained");
            } else {
                tracing::warn!(cut = connections(), "drained too slowly");
            }
        }
        () = signals.end() => {
            tracing::warn!(cut = connections(), "second signal: ends at once");
        }
    }
    ExitCode::SUCCESS
}

/// The future that reloads on SIGHUP. From now on the signal no longer ends the process.
fn reload_on_hangup(sidecar: Arc<Sidecar>) -> io::Result<impl Future<Output = ()>> {
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        while hangup.recv().await.is_some() {
            // The log has it.
            let _ = config::reload(&sidecar, &sidecar.source);
        }
    })
}

/// Reports to the main thread that a thread has ended, also with a panic.
struct Ended(mpsc::UnboundedSender<()>);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// SIGTERM or SIGINT.
    pub(crate) async fn end(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
