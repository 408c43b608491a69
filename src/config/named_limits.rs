use core::fmt;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use crate::limiter::{Line, Mode, Shared, Switch, SwitchExt, Switched};
use crate::policy::AnyPolicy;

use super::{LimitConfig, LimitsConfig};

/// Named limits, from a configuration that may change while they are in use.
///
/// Clones have the same limits. A name's handle is a [`Line`] in front of a [`Shared`] limit with a [`Switch`] for its mode:
/// `line.limiter().limiter()` is the limit, for its status, a pause and so on, and `line.limiter().switch()` the switch. Fetch it once or for each request: a handle stays that of its limit,
/// whatever is reloaded.
///
/// ```
/// use paceline::config::{LimitConfig, LimitsConfig, NamedLimits};
/// use paceline::policy::AnyPolicy;
/// use paceline::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = |rate: &str| {
///     let policy: AnyPolicy = rate.parse().unwrap();
///     LimitsConfig::new().with("api", LimitConfig::new(policy))
/// };
/// let limits = NamedLimits::new(&config("100/min"));
/// let api = limits.get("api").ok_or("no limit `api`")?;
/// api.acquire(30).await?;
///
/// // The file has changed. What is spent stays spent.
/// let changes = limits.reload(&config("80/min"));
/// assert_eq!(changes.retuned, ["api"]);
/// assert_eq!(api.limiter().limiter().status().unwrap().remaining, 50);
///
/// limits.reload(&LimitsConfig::new());
/// assert!(api.acquire(1).await.unwrap_err().is_closed());
/// # Ok(())
/// # }
/// ```
///
/// To watch a file and to decide when it is read is up to the program.
#[doc(alias("RateLimiterRegistry", "hot reload", "ProxyManager"))]
#[derive(Clone)]
pub struct NamedLimits {
    limits: Arc<RwLock<HashMap<String, Named>>>,
    reloads: Arc<Mutex<()>>,
}

type NamedLimit = Line<Switched<Shared<AnyPolicy>>>;

/// A limit with its new mode, and its new policy if that has changed.
type Retuned = (NamedLimit, Mode, Option<AnyPolicy>);

/// A limit, and what the configuration said of it last.
struct Named {
    config: LimitConfig,
    line: NamedLimit,
}

impl NamedLimits {
    /// The limits of a configuration, unused.
    #[must_use]
    pub fn new(config: &LimitsConfig) -> Self {
        let limits = config.iter();
        let limits = limits.map(|(name, config)| (name.to_owned(), Named::new(config)));
        Self {
            limits: Arc::new(RwLock::new(limits.collect())),
            reloads: Arc::default(),
        }
    }

    /// A handle on the limit of this name; `None` if the configuration has none.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Line<Switched<Shared<AnyPolicy>>>> {
        let limits = self.read();
        limits.get(name).map(|named| named.line.clone())
    }

    /// Goes on with another configuration, and says what has changed.
    ///
    /// * A limit of a new name is unused.
    /// * One whose policy has changed is retuned: what was spent stays spent, and its waiters wait for the new policy. See
    ///   [`AnyPolicy`] for what a change of the kind means. Another mode takes effect at once.
    /// * One that is not in it any more is closed, as by [`Line::close`]: its requests, waiting or new, fail. If its name comes back
    ///   later, it is a new limit.
    /// * The others go on as if nothing had happened.
    ///
    /// Each limit changes at once, all of them one after another. A configuration that cannot be read is an error of its reader, so
    /// there is nothing in here to fail.
    pub fn reload(&self, config: &LimitsConfig) -> Changes {
        // Waiters are woken, and may look for a limit, when the lock is free. Of two reloads one comes after the other.
        let _one = self.reloads.lock().unwrap_or_else(PoisonError::into_inner);
        let (changes, closed, retuned) = self.change(config);
        for line in closed {
            line.close();
        }
        for (line, mode, policy) in retuned {
            let switched = line.limiter();
            if let Some(policy) = policy {
                switched.limiter().retune(policy);
            }
            switched.switch().set_mode(mode);
        }
        changes
    }

    /// Says what has to be done to which limits.
    fn change(&self, config: &LimitsConfig) -> (Changes, Vec<NamedLimit>, Vec<Retuned>) {
        let mut changes = Changes::default();
        let (mut closed, mut retuned) = (Vec::new(), Vec::new());
        let mut limits = self.limits.write().unwrap_or_else(PoisonError::into_inner);
        limits.retain(|name, named| {
            let stays = config.get(name).is_some();
            if !stays {
                closed.push(named.line.clone());
                changes.closed.push(name.clone());
            }
            stays
        });
        for (name, config) in config.iter() {
            let names = match limits.get_mut(name) {
                None => {
                    limits.insert(name.to_owned(), Named::new(config));
                    &mut changes.added
                }
                Some(named) if named.config == *config => &mut changes.unchanged,
                Some(named) => {
                    retuned.push(named.with(config));
                    &mut changes.retuned
                }
            };
            names.push(name.to_owned());
        }
        changes.closed.sort_unstable();
        (changes, closed, retuned)
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<String, Named>> {
        self.limits.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for NamedLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = self.read();
        let configs = limits.iter().map(|(name, named)| (name, &named.config));
        f.debug_map().entries(configs).finish()
    }
}

impl Named {
    fn new(config: &LimitConfig) -> Self {
        let limit = Shared::new(config.policy().clone());
        let switch = Switch::new().with_mode(config.mode());
        Self {
            config: config.clone(),
            line: Line::new(limit.switched(&switch)),
        }
    }

    /// Goes on with another configuration. Returns what that is for the limit.
    fn with(&mut self, config: &LimitConfig) -> Retuned {
        let is_other = self.config.policy() != config.policy();
        let policy = is_other.then(|| config.policy().clone());
        self.config = config.clone();
        (self.line.clone(), config.mode(), policy)
    }
}

/// What a [reload](NamedLimits::reload) has done, as the names of the limits, in order.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Changes {
    /// They are new.
    pub added: Vec<String>,
    /// They go on with other parameters or in another mode.
    pub retuned: Vec<String>,
    /// They are not in the configuration any more.
    pub closed: Vec<String>,
    /// The configuration says of them what it said before.
    pub unchanged: Vec<String>,
}
