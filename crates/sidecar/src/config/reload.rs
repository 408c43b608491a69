//! A new configuration while the sidecar serves.

use std::error::Error as _;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::Config;
use super::settings::{Draft, settings};
use super::source::{CLIENTS, Errors, Reading, Source};
use crate::state::Sidecar;

/// How often [`watch`] looks at the file.
pub(super) const PERIOD: Duration = Duration::from_secs(5);

/// Reads the file again. The new configuration holds for the requests that come then. The log says what changed, or why it is
/// refused.
///
/// # Errors
///
/// What is wrong with it, or which settings cannot change while the sidecar runs. The old configuration stays as a whole.
pub(crate) fn reload(sidecar: &Sidecar, source: &Source) -> Result<(), Errors> {
    // It is locked until the end, so that of two reloads the one with the older contents is not the last.
    let mut seen = source.seen();
    let text = source.text();
    let result = source.load_text(&text).and_then(|reading| {
        let config = reading.draft.clone().finish();
        let changes = source.changes(&sidecar.config(), &config, &reading)?;
        sidecar.set_config(config).map_err(|error| {
            let cause = error.source().map(|cause| format!(": {cause}"));
            let error = format!("{error}{}", cause.unwrap_or_default());
            Errors(vec![source.named("shed", reading.origin("shed"), &error)])
        })?;
        Ok((changes, reading.warnings))
    });
    *seen = text.ok();
    match result {
        Ok((changes, warnings)) => {
            sidecar.counts.reloads.fetch_add(1, Ordering::Relaxed);
            for warning in warnings {
                tracing::warn!("{warning}");
            }
            if changes.is_empty() {
                tracing::info!("configuration reloaded, nothing changed");
            } else {
                tracing::info!("configuration reloaded: {}", changes.join(", "));
            }
            Ok(())
        }
        Err(errors) => {
            let refused = &sidecar.counts.reloads_refused;
            refused.fetch_add(1, Ordering::Relaxed);
            for error in &errors.0 {
                tracing::error!("configuration refused, the old one stays: {error}");
            }
            Err(errors)
        }
    }
}

/// Reloads when the contents of the file change. It does not end.
///
/// A `ConfigMap` changes by a symbolic link, so the contents are compared.
pub(crate) async fn watch(sidecar: Arc<Sidecar>, source: Arc<Source>) {
    let mut looks = interval(PERIOD);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        if source.has_changed() {
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

    fn has_changed(&self) -> bool {
        *self.seen() != self.text().ok()
    }

    /// The words for what changes, or for what would change and cannot.
    fn changes(&self, old: &Config, new: &Config, read: &Reading) -> Result<Vec<String>, Errors> {
        let (old, new) = (Draft::of(old.clone()), Draft::of(new.clone()));
        let (mut changes, mut errors) = (Vec::new(), Vec::new());
        for setting in settings() {
            let (key, old, new) = (setting.key, old.show(setting), new.show(setting));
            if old == new {
                continue;
            }
            if setting.is_fixed {
                let right = "while the sidecar runs: restart it";
                let error = format!("cannot change from `{old}` to `{new}` {right}");
                errors.push(self.named(key, read.origin(key), &error));
            } else {
                changes.push(format!("{key} from `{old}` to `{new}`"));
            }
        }
        if old.config.terms != new.config.terms {
            changes.push(CLIENTS.to_owned());
        }
        if errors.is_empty() {
            Ok(changes)
        } else {
            Err(Errors(errors))
        }
    }
}
