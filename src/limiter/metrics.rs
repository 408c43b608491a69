use core::borrow::Borrow;
use core::fmt;
use core::hash::Hash;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use metrics::{Counter, Gauge, Histogram, Label, SharedString, counter, gauge, histogram};

use crate::time::since_1970;

use super::{Event, Observer};

/// An observer that counts in the [`metrics`](https://docs.rs/metrics) facade. Feature `metrics`.
///
/// A limit carries it, so that every request is counted, made by hand or by an adapter. The recorder has to be installed before
/// it is built.
///
/// ```
/// use paceline::limiter::{Metrics, PolicyExt};
/// use paceline::policy::Interval;
/// use std::time::Duration;
///
/// let limit = Interval::every(Duration::from_millis(50)).shared();
/// let limit = limit.with_observer(Metrics::new("sms"));
/// # let _ = limit;
/// ```
///
/// # All metrics of this crate
///
/// Names, labels and units follow the conventions of Prometheus and OpenTelemetry: base units, `_total` for counters. Two limits
/// with one name are one series.
///
/// | metric | kind | labels | what it is |
/// |---|---|---|---|
/// | `paceline_requests_total` | counter | `limit`, `outcome` | requests: `passed`, `shadowed` (passed in shadow mode, and would not have), `refused`, `too_costly`, `gave_up` |
/// | `paceline_permits_total` | counter | `limit` | the costs of what passed, without `shadowed` |
/// | `paceline_wait_seconds` | histogram | `limit` | how long the requests that passed were queued |
/// | `paceline_waiting_requests` | gauge | `limit` | requests that are queued |
/// | `paceline_paused_until_timestamp_seconds` | gauge | `limit` | when the last pause ends or ended, in seconds since 1970; 0 after `resume` |
/// | `paceline_permits_in_use` | gauge | `limit` | permits for concurrency that are in use; [`for_permits`](Self::for_permits) |
/// | `paceline_permits_limit` | gauge | `limit` | how many there are; [`for_permits`](Self::for_permits) |
/// | `paceline_requests_total` | counter | `limit`, `key`, `outcome` | requests of one of the busiest keys, and of all others; [`by_key`](Self::by_key) |
/// | `paceline_permits_total` | counter | `limit`, `key` | the costs of what passed; [`by_key`](Self::by_key) |
/// | `paceline_requests_total` | counter | `limit`, `class`, `outcome` | requests of one class that a load shedder admitted, `passed`, or `shed`; [`WorkerUtilization::with_metrics`](crate::shed::WorkerUtilization::with_metrics) |
/// | `paceline_shed_amount` | gauge | `limit` | how much it sheds: 1 is all that is sheddable, and from 0 down nothing |
/// | `paceline_remote_up` | gauge | | 1 while there is a connection to Redis, else 0; of `paceline-redis`, without an observer |
/// | `paceline_remote_outages_total` | counter | | how often the connection was lost |
/// | `paceline_remote_faults_total` | counter | | calls that Redis refused, counted once a second at most |
/// | `paceline_remote_lost_states_total` | counter | | states of limits that Redis lost |
/// | `paceline_remote_lost_leases_total` | counter | | leases that ended before their release |
///
/// The gauges are right without a task that refreshes them: they change with each event. That of pauses is a time for this
/// reason. A limit is paused while `paceline_paused_until_timestamp_seconds > time()`. Of a keyed limit it is the pause of the key
/// that was paused or resumed last.
#[derive(Clone)]
pub struct Metrics {
    requests: Requests,
    wait: Histogram,
    waiting: Gauge,
    paused_until: Gauge,
    permits_in_use: Gauge,
    permits_limit: Gauge,
}

impl Metrics {
    /// Counts for the limit of this name.
    pub fn new(limit: impl Into<SharedString>) -> Self {
        let limit = limit.into();
        Self {
            paused_until: gauge!("paceline_paused_until_timestamp_seconds", "limit" => limit.clone()),
            ..Self::without_pause(limit)
        }
    }

    /// Counts for [`Permits`](crate::concurrency::Permits) of this name: with gauges of how many there are and are in use.
    ///
    /// ```
    /// use paceline::concurrency::Permits;
    /// use paceline::limiter::Metrics;
    ///
    /// let permits = Permits::new(20).with_observer(Metrics::for_permits("uploads"));
    /// # let _ = permits;
    /// ```
    pub fn for_permits(limit: impl Into<SharedString>) -> Self {
        let limit = limit.into();
        Self {
            permits_in_use: gauge!("paceline_permits_in_use", "limit" => limit.clone()),
            permits_limit: gauge!("paceline_permits_limit", "limit" => limit.clone()),
            ..Self::without_pause(limit)
        }
    }

    fn without_pause(limit: SharedString) -> Self {
        Self {
            wait: histogram!("paceline_wait_seconds", "limit" => limit.clone()),
            waiting: gauge!("paceline_waiting_requests", "limit" => limit.clone()),
            paused_until: Gauge::noop(),
            permits_in_use: Gauge::noop(),
            permits_limit: Gauge::noop(),
            requests: Requests::new([("limit", limit)]),
        }
    }

    /// Counts for a keyed limit, with the label `key` for the `k` busiest keys at most, and `other` for the rest. For
    /// [`Keyed::with_observer_by_key`](super::Keyed::with_observer_by_key), and for that of a `RedisKeyed`.
    ///
    /// The busiest are found by Space-Saving (Metwally, Agrawal, El Abbadi: *Efficient Computation of Frequent and Top-k Elements
    /// in Data Streams*, 2005), which counts 8 `k` keys. A key gets a label if certainly more than one in 8 `k` of all requests
    /// so far were for it, and keeps the label until a busier key needs it. A `k` of zero labels no key. A key that
    /// is displayed as `other` shares the series of the rest.
    ///
    /// An exporter keeps the series of a key that has lost its label, with its last value. There are few of those in a process:
    /// 8 `k` whenever the number of requests doubles, at most. `PrometheusBuilder::idle_timeout` of
    /// `metrics-exporter-prometheus` drops series that do not change any more.
    ///
    /// A request for a key that is not counted yet takes a look at all that are: about a microsecond for a `k` of 20.
    ///
    /// ```
    /// use paceline::limiter::{Metrics, PolicyExt};
    /// use paceline::policy::TokenBucket;
    /// use paceline::time::Rate;
    ///
    /// let users = TokenBucket::new(Rate::per_second(1), 2).keyed::<String>();
    /// let users = users.with_observer_by_key(Metrics::by_key("users", 20));
    /// # let _ = users;
    /// ```
    pub fn by_key<K>(
        limit: impl Into<SharedString>,
        k: usize,
    ) -> impl Fn(&K, Event) + Send + Sync + 'static
    where
        K: Hash + Eq + ToOwned<Owned: Hash + Eq + Clone + Send> + fmt::Display + ?Sized + 'static,
    {
        let limit = limit.into();
        let other = Requests::new([("limit", limit.clone()), ("key", "other".into())]);
        let busiest = Mutex::new(Busiest::new(k));
        move |key: &K, event| {
            if !event.is_of_request() {
                return;
            }
            let labelled = {
                let mut busiest = busiest.lock().unwrap_or_else(PoisonError::into_inner);
                busiest.count(key)
            };
            match labelled {
                None => other.count(event),
                Some(requests) => {
                    let key = || ("key", key.to_string().into());
                    let new = || Requests::new([("limit", limit.clone()), key()]);
                    requests.get_or_init(new).count(event);
                }
            }
        }
    }
}

impl Observer for Metrics {
    fn observe(&mut self, event: Event) {
        Observer::observe(&mut &*self, event);
    }

    fn queued(&mut self) {
        Observer::queued(&mut &*self);
    }

    fn dequeued(&mut self) {
        Observer::dequeued(&mut &*self);
    }
}

/// For a limit that carries its observer.
impl Observer for &Metrics {
    fn observe(&mut self, event: Event) {
        self.requests.count(event);
        match event {
            Event::Passed { cost, waited } => {
                self.wait.record(waited);
                self.permits_in_use.increment(cost);
            }
            Event::Released { count } => self.permits_in_use.decrement(count),
            Event::Resized { limit } => self.permits_limit.set(limit),
            Event::Paused { duration: pause } | Event::FeedbackApplied { pause } => {
                // A gauge that is right without a task is a time, and the server of metrics compares it with its own.
                let until = since_1970().as_secs_f64() + pause.as_secs_f64();
                self.paused_until.set(until);
            }
            Event::Resumed => self.paused_until.set(0),
            _ => {}
        }
    }

    fn queued(&mut self) {
        self.waiting.increment(1);
    }

    fn dequeued(&mut self) {
        self.waiting.decrement(1);
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// The counters.
#[derive(Clone)]
struct Requests {
    passed: Counter,
    shadowed: Counter,
    refused: Counter,
    too_costly: Counter,
    gave_up: Counter,
    permits: Counter,
}

impl Requests {
    fn new<const N: usize>(labels: [(&'static str, SharedString); N]) -> Self {
        let labels = labels.map(|(name, value)| Label::new(name, value)).to_vec();
        let requests = |outcome: &'static str| {
            let mut labels = labels.clone();
            labels.push(Label::new("outcome", outcome));
            counter!("paceline_requests_total", labels)
        };
        Self {
            passed: requests("passed"),
            shadowed: requests("shadowed"),
            refused: requests("refused"),
            too_costly: requests("too_costly"),
            gave_up: requests("gave_up"),
            permits: counter!("paceline_permits_total", labels),
        }
    }

    fn count(&self, event: Event) {
        match event {
            Event::Passed { cost, .. } => {
                self.passed.increment(1);
                self.permits.increment(u64::from(cost));
            }
            Event::Shadowed { .. } => self.shadowed.increment(1),
            Event::Refused { .. } => self.refused.increment(1),
            Event::TooCostly { .. } => self.too_costly.increment(1),
            Event::GaveUp { .. } => self.gave_up.increment(1),
            _ => {}
        }
    }
}

/// The keys with the most requests, by Space-Saving: a new key replaces the least busy one and starts with its count, as an upper
/// bound of its own requests.
struct Busiest<K: ToOwned + ?Sized> {
    labels: usize,
    requests: u64,
    counted: HashMap<K::Owned, Count>,
}

/// The number of keys that are counted for each label.
const COUNTED: usize = 8;

struct Count {
    /// The key has had at most this many requests,
    most: u64,
    /// and at least this many.
    least: u64,
    /// The counters of a key with a label, made when they are first needed.
    label: Option<Arc<OnceLock<Requests>>>,
}

impl<K: Hash + Eq + ToOwned<Owned: Hash + Eq + Clone> + ?Sized> Busiest<K> {
    fn new(labels: usize) -> Self {
        Self {
            labels,
            requests: 0,
            counted: HashMap::new(),
        }
    }

    /// Counts a request for `key`. Returns the counters of its label, if it has one.
    fn count(&mut self, key: &K) -> Option<Arc<OnceLock<Requests>>> {
        self.requests += 1;
        let room = self.labels.saturating_mul(COUNTED);
        if !self.counted.contains_key(key) && room > 0 {
            let new = Count {
                most: self.make_room(room),
                least: 0,
                label: None,
            };
            self.counted.insert(key.to_owned(), new);
        }
        let count = self.counted.get_mut(key)?;
        count.most += 1;
        count.least += 1;
        let least = count.least;
        let is_busy = least.saturating_mul(room as u64) > self.requests;
        if count.label.is_none() && is_busy && self.frees_label(least) {
            self.counted.get_mut(key)?.label = Some(Arc::default());
        }
        self.counted.get(key)?.label.clone()
    }

    /// Forgets the least busy key if there is no room. Returns how many requests it may have had.
    fn make_room(&mut self, room: usize) -> u64 {
        let counted = self.counted.iter();
        let idlest = counted.min_by_key(|(_, count)| count.most);
        let idlest = idlest.map(|(key, count)| (key.clone(), count.most));
        match idlest.filter(|_| self.counted.len() >= room) {
            None => 0,
            Some((key, most)) => {
                self.counted.remove::<K>(key.borrow());
                most
            }
        }
    }

    /// Whether there is a label for a key with `least` requests: one is left, or one of a less busy key.
    fn frees_label(&mut self, least: u64) -> bool {
        let counts = self.counted.values_mut();
        let mut labelled: Vec<_> = counts.filter(|count| count.label.is_some()).collect();
        if labelled.len() < self.labels {
            return true;
        }
        let idlest = labelled.iter_mut().min_by_key(|count| count.most);
        idlest.is_some_and(|count| count.most < least && count.label.take().is_some())
    }
}
