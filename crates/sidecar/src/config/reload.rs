//! A new configuration while the sidecar serves.

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::Config;
use super::reading::{CLIENTS, Reading};
use super::settings::SETTINGS;
use super::source::{Errors, Source};
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
    let result = source.load(&text).and_then(|(config, reading)| {
        let changes = changes(&sidecar.config(), &config, &reading)?;
        sidecar.set_config(config).map_err(|error| {
            let cause = error.source().map(|cause| format!(": {cause}"));
            let error = format!("{error}{}", cause.unwrap_or_default());
            Errors(vec![reading.blamed(&["shed"]).1 + &error])
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
        if *source.seen() != source.text().ok() {
            // The log has it.
            let _ = reload(&sidecar, &source);
        }
    }
}

/// The words for what changes, or for what would change and cannot.
fn changes(old: &Config, new: &Config, reading: &Reading<'_>) -> Result<Vec<String>, Errors> {
    let (mut changes, mut errors) = (Vec::new(), Vec::new());
    for setting in &*SETTINGS {
        let key = setting.key;
        let [old, new] = [old, new].map(|config| &config.shown[key].text);
        if old == new {
            continue;
        }
        if setting.is_fixed() {
            let right = "while the sidecar runs: restart it";
            let error = format!("cannot change from `{old}` to `{new}` {right}");
            errors.push(reading.blamed(&[key]).1 + &error);
        } else {
            changes.push(format!("{key} from `{old}` to `{new}`"));
        }
    }
    if old.terms != new.terms {
        changes.push(CLIENTS.to_owned());
    }
    Errors::or(errors, changes)
}
