//! Permits that are taken and given back without the lock are those that a plain count allows.

use paceline::concurrency::Permits;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Take(u32),
    GiveBack(usize),
    Resize(u32),
    Read,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..4_u32).prop_map(Step::Take),
        4 => (0..8_usize).prop_map(Step::GiveBack),
        1 => (0..6_u32).prop_map(Step::Resize),
        1 => Just(Step::Read),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #[test]
    fn permits_agree_with_a_plain_count(first in 1..6_u32, steps in steps()) {
        let permits = Permits::new(first);
        let (mut limit, mut held, mut passed, mut refused) = (first, Vec::new(), 0, 0);
        for step in steps {
            let in_use: u32 = held.iter().map(paceline::concurrency::Permit::count).sum();
            match step {
                Step::Take(cost) => {
                    let permit = permits.try_acquire_many(cost);
                    prop_assert_eq!(permit.is_some(), cost == 0 || in_use + cost <= limit);
                    passed += u64::from(permit.is_some() && cost > 0);
                    refused += u64::from(permit.is_none());
                    held.extend(permit);
                }
                Step::GiveBack(at) if at < held.len() => drop(held.swap_remove(at)),
                Step::GiveBack(_) => {}
                Step::Resize(n) => {
                    limit = n;
                    permits.resize(n);
                }
                Step::Read => {
                    prop_assert_eq!((permits.in_use(), permits.limit()), (in_use, limit));
                    let stats = permits.stats();
                    prop_assert_eq!((stats.passed, stats.refused), (passed, refused));
                }
            }
        }
        drop(held);
        prop_assert_eq!(permits.in_use(), 0);
        prop_assert_eq!(permits.stats().passed, passed);
    }
}
