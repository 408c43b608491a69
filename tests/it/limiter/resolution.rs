//! How exactly a limit waits. That each wait does so is in `precise_runtimes.rs`, and that none is early in `real_time.rs`.

use paceline::limiter::Limiter;
use paceline::policy::Interval;
use paceline::prelude::*;
use paceline::time::Resolution;

use crate::timed::ms;

#[test]
fn any_limit_may_wait_to_the_millisecond_and_waits_exactly_by_default() {
    let interval = Interval::every(ms(1));
    let (owned, shared, keyed) = (interval.owned(), interval.shared(), interval.keyed());
    let by_default = [
        Resolution::default(),
        owned.resolution(),
        shared.resolution(),
        keyed.at(1).resolution(),
    ];
    assert_eq!(by_default, [Resolution::Exact; 4]);

    let millis = Resolution::Millis;
    let keyed = keyed.with_resolution(millis).with_max_keys(10);
    let chosen = [
        owned.with_resolution(millis).resolution(),
        shared.with_resolution(millis).clone().resolution(),
        keyed.clone().at(1).resolution(),
    ];
    assert_eq!(chosen, [millis; 3]);
}
