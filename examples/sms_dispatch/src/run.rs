//! All the pipelines at once, until they are done or somebody says stop.

use core::{future::pending, pin::pin, time::Duration};

use futures::future::join_all;
use paceline::time::Clock;
use tokio::{select, signal, sync::watch, time::timeout};

use crate::{
    args::Args,
    client::Client,
    dispatch::{Dispatcher, Outcome, Pacing},
    progress::Progress,
    provider::{Name, Provider},
    rows::Rows,
};

/// What a run needs, however it is paced.
pub(crate) struct Run<'a> {
    pub(crate) args: &'a Args,
    pub(crate) rows: &'a Rows,
    pub(crate) providers: &'a [Provider],
    pub(crate) clock: Clock,
}

impl Run<'_> {
    /// Dispatches to all providers at once, until they are done or somebody says stop; and whether that was Ctrl-C.
    pub(crate) async fn all<P: Pacing>(
        &self,
        pacing: impl Fn(Name) -> P,
    ) -> Result<(Vec<Outcome>, bool), String> {
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
                told: None,
            };
            pipelines.push(dispatcher.run(messages));
        }
        let asked = async {
            let interrupted = self.asked_to_stop().await;
            stop.send_replace(true);
            interrupted
        };
        let mut interrupted = false;
        let mut pipelines = pin!(join_all(pipelines));
        let mut asked = pin!(asked);
        let mut lines = pin!(progress.report());
        let outcomes = loop {
            select! {
                outcomes = &mut pipelines => break outcomes,
                by_hand = &mut asked, if !*stopped.borrow() => interrupted = by_hand,
                never = &mut lines => match never {},
            }
        };
        progress.end();
        Ok((outcomes, interrupted))
    }

    /// Waits for Ctrl-C (and says so), or for the time to be over.
    async fn asked_to_stop(&self) -> bool {
        let asked = async {
            if signal::ctrl_c().await.is_err() {
                // Nobody can ask, then.
                pending::<()>().await;
            }
        };
        let longest = self
            .args
            .time_limit()
            .map_or(Duration::MAX, Duration::from_secs);
        timeout(longest, asked).await.is_ok()
    }
}
