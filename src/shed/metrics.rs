use metrics::{Gauge, Label, SharedString, counter, gauge};

use super::gauge::Tally;

/// What the `metrics` facade knows of a shedder. The task of the shedder brings it up to date, and no request does.
pub(super) struct Published {
    limit: SharedString,
    amount: Option<Gauge>,
    /// How many requests of each class are counted there: admitted, and shed.
    counted: Vec<(u64, u64)>,
}

impl Published {
    pub(super) const fn new(limit: SharedString) -> Self {
        Self {
            limit,
            amount: None,
            counted: Vec::new(),
        }
    }

    /// The critical class comes last.
    pub(super) fn update(&mut self, amount: f64, tallies: &[Tally]) {
        let limit = &self.limit;
        let new = || gauge!("paceline_shed_amount", "limit" => limit.clone());
        self.amount.get_or_insert_with(new).set(amount);
        self.counted.resize(tallies.len(), (0, 0));
        for (class, (tally, counted)) in tallies.iter().zip(&mut self.counted).enumerate() {
            let class = match class {
                class if class + 1 == tallies.len() => SharedString::const_str("critical"),
                class => class.to_string().into(),
            };
            let add = |outcome: &'static str, count: u64| {
                let limit = Label::new("limit", limit.clone());
                let class = Label::new("class", class.clone());
                let labels = vec![limit, class, Label::new("outcome", outcome)];
                counter!("paceline_requests_total", labels).increment(count);
            };
            let counts = tally.counts();
            add("passed", counts.0 - counted.0);
            add("shed", counts.1 - counted.1);
            *counted = counts;
        }
    }
}
