//! Runs the pipelines of all providers at once, until they are done or the run is stopped.

use core::{future::pending, pin::pin, time::Duration};

use futures::future::join_all;
use paceline::time::Clock;
#[cfg(unix)]
use tokio::signal::unix::{self, SignalKind};
use tokio::{select, signal, sync::watch, time::timeout};

use crate::{
    args::Args,
    client::Client,
    dispatch::{Dispatcher, Outcome, Pacing},
    progress::Progress,
    provider::{Name, Provider},
    rows::Rows,
};

/// The exit status that a shell shows for a program that SIGINT ended, and for one that SIGTERM ended.
const INTERRUPTED: u8 = 130;
const TERMINATED: u8 = 143;

/// What a run needs, whatever paces it.
pub(crate) struct Run<'a> {
    pub(crate) args: &'a Args,
    pub(crate) rows: &'a Rows,
    pub(crate) providers: &'a [Provider],
    pub(crate) clock: Clock,
}

impl Run<'_> {
    /// Dispatches to all providers at once. If a signal stopped it, the second part is the exit status for that.
    pub(crate) async fn all<P: Pacing>(
        &self,
        pacing: impl Fn(Name) -> P,
    ) -> Result<(Vec<Outcome>, Option<u8>), String> {
        let (stop, stopped) = watch::channel(false);
        let mut progress = Progress::new();
        let mut pipelines = Vec::new();
        for provider in self.providers {
            let messages = self.rows.of(provider.name);
            let dispatcher = Dispatcher {
                name: provider.name,
                client: Client::new(provider)?,
                pacing: pacing(provider.name),
                clock: self.clock.clone(),
                stop: stopped.clone(),
                retries: self.args.retries,
                progress: progress.bar(provider.name, messages.len()),
                new_quota: None,
            };
            pipelines.push(dispatcher.run(messages));
        }
        let longest = self
            .args
            .time_limit()
            .map_or(Duration::MAX, Duration::from_secs);
        let stopping = async {
            let signal = timeout(longest, signalled()).await.ok();
            stop.send_replace(true);
            signal
        };
        let mut signal = None;
        let mut pipelines = pin!(join_all(pipelines));
        let mut stopping = pin!(stopping);
        let mut lines = pin!(progress.report());
        let outcomes = loop {
            select! {
                outcomes = &mut pipelines => break outcomes,
                by = &mut stopping, if !*stopped.borrow() => signal = by,
                never = &mut lines => match never {},
            }
        };
        progress.end();
        Ok((outcomes, signal))
    }
}

/// Waits for Ctrl-C or SIGTERM, and returns the exit status for it.
async fn signalled() -> u8 {
    let interrupted = async {
        if signal::ctrl_c().await.is_err() {
            // The signal cannot be caught here.
            pending::<()>().await;
        }
    };
    let terminated = async {
        #[cfg(unix)]
        if let Ok(mut terminate) = unix::signal(SignalKind::terminate()) {
            terminate.recv().await;
            return;
        }
        pending::<()>().await;
    };
    select! {
        () = interrupted => INTERRUPTED,
        () = terminated => TERMINATED,
    }
}
