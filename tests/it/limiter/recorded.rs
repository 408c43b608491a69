//! A recorder of metrics that tests can read.
#![cfg(all(feature = "metrics", feature = "tracing"))]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

/// The value of a counter or a gauge, and every value that a histogram was given, by its name and labels.
#[derive(Clone, Default)]
pub(crate) struct Recorded(Arc<Mutex<BTreeMap<String, Vec<f64>>>>);

impl Recorded {
    /// What was recorded, a line each.
    pub(crate) fn lines(&self) -> Vec<String> {
        let recorded = self.0.lock().unwrap();
        let lines = recorded.iter();
        lines
            .map(|(name, values)| format!("{name} {values:?}"))
            .collect()
    }

    pub(crate) fn value(&self, name: &str) -> f64 {
        self.0.lock().unwrap()[name][0]
    }

    fn series(&self, key: &Key) -> Arc<Series> {
        let labels = key
            .labels()
            .map(|label| format!("{}={}", label.key(), label.value()));
        let labels = labels.collect::<Vec<_>>().join(",");
        Arc::new(Series {
            name: format!("{}{{{labels}}}", key.name()),
            all: self.clone(),
        })
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.series(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let series = self.series(key);
        series.change(|_| 0.0);
        Gauge::from_arc(series)
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.series(key))
    }
}

struct Series {
    name: String,
    all: Recorded,
}

impl Series {
    fn change(&self, change: impl FnOnce(f64) -> f64) {
        let mut all = self.all.0.lock().unwrap();
        let value = all.entry(self.name.clone()).or_insert_with(|| vec![0.0]);
        value[0] = change(value[0]);
    }
}

impl GaugeFn for Series {
    fn increment(&self, by: f64) {
        self.change(|value| value + by);
    }

    fn decrement(&self, by: f64) {
        self.change(|value| value - by);
    }

    fn set(&self, value: f64) {
        self.change(|_| value);
    }
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        let mut all = self.all.0.lock().unwrap();
        all.entry(self.name.clone()).or_default().push(value);
    }
}

impl CounterFn for Series {
    fn increment(&self, by: u64) {
        self.change(|count| count + f64::from(u32::try_from(by).unwrap()));
    }

    fn absolute(&self, _: u64) {
        unreachable!("counters are only incremented")
    }
}
