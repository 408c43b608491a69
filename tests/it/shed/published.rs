//! What the `metrics` facade knows of a shedder.

use paceline::shed::Class;

use super::{Dial, Timeline};
use crate::limiter::recorded::Recorded;

#[test]
fn requests_are_published_by_class_with_each_sample_and_at_the_end() {
    let recorded = Recorded::default();
    let runtime = testkit::clock::paused_runtime();
    metrics::with_local_recorder(&recorded, || {
        let shedder = Dial::at(1.0).shedder().with_classes(2).with_metrics("api");
        runtime.block_on(async {
            let timeline = Timeline::of(&shedder).await;
            timeline.at(88_000).await;
            for _ in 0..5 {
                let _ = shedder.admits(Class::Sheddable(0));
                let _ = shedder.admits(Class::Critical);
            }
            let of_critical = "paceline_requests_total{limit=api,class=critical,outcome=passed}";
            assert_eq!(recorded.value(of_critical).to_bits(), 0_f64.to_bits());
            // Half is shed: all of class 0, and nothing of class 1.
            let _ = shedder.admits(Class::Sheddable(1));
            timeline.at(89_000).await;
        });
        drop(shedder);
    });
    assert_eq!(
        recorded.lines(),
        [
            "paceline_requests_total{limit=api,class=0,outcome=passed} [0.0]",
            "paceline_requests_total{limit=api,class=0,outcome=shed} [5.0]",
            "paceline_requests_total{limit=api,class=1,outcome=passed} [1.0]",
            "paceline_requests_total{limit=api,class=1,outcome=shed} [0.0]",
            "paceline_requests_total{limit=api,class=critical,outcome=passed} [5.0]",
            "paceline_requests_total{limit=api,class=critical,outcome=shed} [0.0]",
            "paceline_shed_amount{limit=api} [0.5083333333333333]",
        ]
    );
}
