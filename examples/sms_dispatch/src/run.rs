//! Runs the pipelines of all providers at once, until they are done or the run is stopped.

use core::{future::pending, pin::pin, time::Duration};

use futures::future::{join, join_all};
use indicatif::ProgressBar;
use paceline::time::Clock;
#[cfg(unix)]
use tokio::signal::unix::{self, SignalKind};
use tokio::{select, signal, sync::watch, time::timeout};

use crate::{
    args::Args,
    client::Client,
    codes,
    dispatch::{Dispatcher, Outcome, Pacing},
    progress::Progress,
    provider::{Codes, CodesTally, Name, Provider},
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

/// What became of the messages.
pub(crate) struct Dispatched {
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) codes: Option<(codes::Outcome, CodesTally)>,
    /// The exit status for the signal that stopped the run.
    pub(crate) signal: Option<u8>,
}

impl Run<'_> {
    /// Dispatches to all providers at once.
    pub(crate) async fn all<P: Pacing>(
        &self,
        pacing: impl Fn(Name) -> P,
    ) -> Result<Dispatched, String> {
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
                progress: progress.bar(provider.name.as_str(), messages.len()),
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
        let messages = self.args.codes();
        let bar = (messages > 0).then(|| progress.bar("codes", messages as usize));
        let codes = self.codes(messages, stopped.clone(), bar);
        let mut pipelines = pin!(join(join_all(pipelines), codes));
        let mut stopping = pin!(stopping);
        let mut lines = pin!(progress.report());
        let (outcomes, codes) = loop {
            select! {
                outcomes = &mut pipelines => break outcomes,
                by = &mut stopping, if !*stopped.borrow() => signal = by,
                never = &mut lines => match never {},
            }
        };
        progress.end();
        Ok(Dispatched {
            outcomes,
            codes: codes?,
            signal,
        })
    }

    /// Sends passwords and news, if there is a bar for them.
    async fn codes(
        &self,
        messages: u32,
        stopped: watch::Receiver<bool>,
        bar: Option<ProgressBar>,
    ) -> Result<Option<(codes::Outcome, CodesTally)>, String> {
        let Some(bar) = bar else {
            return Ok(None);
        };
        let provider = Codes::start().map_err(|error| format!("no provider: {error}"))?;
        let outcome = codes::dispatch(&provider, messages, stopped, &bar).await?;
        Ok(Some((outcome, provider.tally())))
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
