//! A service with more requests than capacity, on a paused clock: with a load shedder, with a threshold, and without.

#[path = "../../../../tests/it/shed/simulation.rs"]
mod simulation;

use std::time::Duration;

use tokio::runtime::Builder;

use crate::figures::{Figure, Notes};
use crate::measure::{Extent, quantile};

use simulation::{CLASSES, Protection, SERVICE_TIME, Second, simulate, turns};

const CONTENDERS: [(&str, Protection); 4] = [
    (
        "paceline WorkerUtilization",
        Protection::WorkerUtilization {
            delay: Duration::from_secs(28),
            ramp: Duration::from_secs(120),
        },
    ),
    (
        "paceline WorkerUtilization, quick",
        Protection::WorkerUtilization {
            delay: Duration::from_millis(2_800),
            ramp: Duration::from_secs(12),
        },
    ),
    ("threshold of 0.8", Protection::Threshold(0.8)),
    ("no shedder", Protection::Nothing),
];

const SEED: u64 = 7;

/// In seconds, and how a table calls them.
const DEADLINES: [(f64, &str); 4] = [
    (0.1, "100 ms"),
    (0.25, "250 ms"),
    (0.5, "500 ms"),
    (1.0, "1 s"),
];
/// What is in time in a plot.
const DEADLINE: f64 = 0.25;

/// A turn counts if it goes beyond this share of all requests.
const BANDS: [(f64, &str); 3] = [
    (0.0, "any"),
    (0.01, "by more than 1 % of all requests"),
    (0.05, "by more than 5 %"),
];

/// Phases in seconds: before the overload, meanwhile and after it.
struct Course {
    before: usize,
    overload: usize,
    after: usize,
    /// How much of the overload is its beginning.
    beginning: usize,
    /// How long a point of a plot is.
    point: usize,
}

pub(super) fn measure(extent: Extent) -> Vec<Figure> {
    let hour = Course {
        before: 300,
        overload: 3_600,
        after: 600,
        beginning: 600,
        point: 30,
    };
    let minutes = Course {
        before: 30,
        overload: 240,
        after: 30,
        beginning: 60,
        point: 30,
    };
    let course = extent.pick(hour, minutes);
    let mut notes = Notes::new("shed");
    for workers in [16, 64] {
        notes.begin(&format!("{workers} workers"));
        for (name, protection) in CONTENDERS {
            let service = Service { workers, name };
            let seconds = service.run(&course, protection);
            service.tables(&course, &seconds, &mut notes);
            if workers == 16 {
                service.curves(&course, &seconds, &mut notes);
            }
        }
    }
    notes.figures
}

struct Service {
    workers: u32,
    name: &'static str,
}

impl Service {
    fn run(&self, course: &Course, protection: Protection) -> Vec<Second> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime can be built where there are threads");
        let phases = [
            (course.before, 0.6),
            (course.overload, 1.5),
            (course.after, 0.6),
        ];
        runtime.block_on(simulate(self.workers, &phases, protection, SEED))
    }

    fn tables(&self, course: &Course, seconds: &[Second], notes: &mut Notes) {
        let overload = &seconds[course.before..course.before + course.overload];
        let later = &overload[course.beginning..];
        for (deadline, case) in DEADLINES {
            let (all, later) = (
                self.goodput(overload, deadline),
                self.goodput(later, deadline),
            );
            notes.add("goodput", self.name, case, all);
            notes.add("goodput after the beginning", self.name, case, later);
        }
        for (which, (class, ..)) in CLASSES.iter().enumerate() {
            let sum = |of: fn(&Second) -> [u32; 4]| {
                let counts = overload.iter().map(|second| f64::from(of(second)[which]));
                counts.sum::<f64>()
            };
            let share = sum(|second| second.shed) / sum(|second| second.asked);
            notes.add("share that is shed", self.name, class, share);
        }
        for (band, case) in BANDS {
            let turns = turns(overload.iter().map(Second::share_of_all), band);
            let a_minute = f64::from(turns) * 60.0 / overload.len() as f64;
            notes.add("turns a minute", self.name, case, a_minute);
        }
        for (seconds, case) in [(overload, "all the time"), (later, "after the beginning")] {
            let latencies = seconds
                .iter()
                .flat_map(|second| second.latencies.iter().copied());
            let latency = quantile(&latencies.collect::<Vec<f64>>(), 0.99);
            notes.add("s to the answer, 99 %", self.name, case, latency);
        }
    }

    fn curves(&self, course: &Course, seconds: &[Second], notes: &mut Notes) {
        let is_quick = self.name.ends_with("quick");
        for (at, point) in (1..).zip(seconds.chunks(course.point)) {
            let minute = (at * course.point) as f64 / 60.0;
            let place = ("over time", minute);
            let goodput = self.goodput(point, DEADLINE);
            notes.add_at("goodput over time", self.name, place, goodput);
            if is_quick {
                continue;
            }
            let busy = mean(point, |second| second.utilization);
            notes.add_at("utilization", self.name, place, busy);
            if self.name.starts_with("paceline") {
                for (which, (class, ..)) in CLASSES.iter().enumerate() {
                    let share = mean(point, |second| second.share_shed[which]);
                    notes.add_at("share of the class that is shed", class, place, share);
                }
            }
        }
        if self.name != "no shedder" {
            let from = course.before + course.overload / 2;
            for (at, second) in (0_u32..).zip(&seconds[from..from + 60]) {
                let place = ("in a minute", f64::from(at));
                let share = second.share_of_all();
                notes.add_at(
                    "share of all requests that is shed",
                    self.name,
                    place,
                    share,
                );
            }
        }
    }

    /// Answers within the deadline, as a share of the capacity.
    fn goodput(&self, seconds: &[Second], deadline: f64) -> f64 {
        let capacity = f64::from(self.workers) / SERVICE_TIME;
        mean(seconds, |second| second.answered_within(deadline) as f64) / capacity
    }
}

fn mean(seconds: &[Second], of: impl Fn(&Second) -> f64) -> f64 {
    seconds.iter().map(of).sum::<f64>() / seconds.len() as f64
}
