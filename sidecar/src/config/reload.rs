//! A new configuration while the sidecar serves.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::Config;
use super::source::{Errors, Source};
use super::value::Value as _;
use crate::state::Sidecar;

/// How often [`watch`] looks at the file.
const PERIOD: Duration = Duration::from_secs(5);

/// Reads the configuration again. It holds for the requests that come then. A refusal is in the log too.
///
/// # Errors
///
/// What is wrong with it, or which settings cannot change while the sidecar runs. The old configuration stays.
pub(crate) fn reload(sidecar: &Sidecar, source: &Source) -> Result<(), Errors> {
    // One at a time: the older contents must not come last.
    let mut seen = source.seen();
    let text = source.text();
    let result = source.load_text(&text).and_then(|reading| {
        let config = unchanged(&sidecar.config(), reading.draft.finish())?;
        sidecar.set_config(config);
        Ok(reading.warnings)
    });
    *seen = text.ok();
    match result {
        Ok(warnings) => {
            sidecar.counts.reloads.fetch_add(1, Ordering::Relaxed);
            for warning in warnings {
                tracing::warn!("{warning}");
            }
            tracing::info!("configuration reloaded");
            Ok(())
        }
        Err(errors) => {
            sidecar
                .counts
                .reloads_refused
                .fetch_add(1, Ordering::Relaxed);
            for error in &errors.0 {
                tracing::error!("configuration refused, the old one stays: {error}");
            }
            Err(errors)
        }
    }
}

/// Reloads when the contents of the file have changed. It does not end.
///
/// A `ConfigMap` changes by a symbolic link, so the contents are compared.
pub(crate) async fn watch(sidecar: Arc<Sidecar>, source: Arc<Source>) {
    let mut looks = interval(PERIOD);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let is_same = *source.seen() == source.text().ok();
        if !is_same {
            // The log has it.
            let _ = reload(&sidecar, &source);
        }
    }
}

impl Source {
    /// The contents of the last reload.
    pub(super) fn seen(&self) -> MutexGuard<'_, Option<String>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The new configuration, if what cannot change is as in the old one.
fn unchanged(old: &Config, new: Config) -> Result<Config, Errors> {
    let fixed = [
        ("listen", old.listen.show(), new.listen.show()),
        ("admin", old.admin.show(), new.admin.show()),
        ("upstream", old.upstream.show(), new.upstream.show()),
        ("cores", old.cores.show(), new.cores.show()),
        ("log", old.log.show(), new.log.show()),
        ("log-json", old.log_json.show(), new.log_json.show()),
    ];
    let changed = fixed.into_iter().filter(|(_, old, new)| old != new);
    let errors: Vec<_> = changed
        .map(|(key, old, new)| {
            format!(
                "{key}: cannot change from `{old}` to `{new}` while the sidecar runs: restart it"
            )
        })
        .collect();
    if errors.is_empty() {
        Ok(new)
    } else {
        Err(Errors(errors))
    }
}
