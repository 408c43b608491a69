//! A judge of deadlines that shares nothing with the library: when a policy lets a request pass, and how many deadlines can be met.

use std::collections::BTreeMap;

/// A policy, with times in milliseconds. What has passed is a list of instants, of which a request adds as many as it costs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rule {
    Every(u64),
    Log(usize, u64),
    Bucket(u64, u64),
}

impl Rule {
    pub(crate) fn text(self) -> String {
        match self {
            Self::Every(gap) => format!("every {gap}ms"),
            Self::Log(most, window) => format!("{most}/{window}ms sliding"),
            Self::Bucket(gap, burst) => format!("1/{gap}ms burst {burst}"),
        }
    }

    pub(crate) fn passes(self, passed: &[u64], now: u64, cost: usize) -> bool {
        match self {
            Self::Every(gap) => passed.last().is_none_or(|last| {
                let cost = passed.iter().filter(|at| *at == last).count();
                last + gap * cost as u64 <= now
            }),
            Self::Log(most, window) => {
                let counted = passed.iter().filter(|at| **at + window > now).count();
                counted + cost <= most
            }
            Self::Bucket(gap, burst) => {
                // Of the time in which the bucket fills, what is used.
                let full = passed.iter().fold(0, |full: u64, at| full.max(*at) + gap);
                full.max(now) + gap * cost as u64 <= now + burst * gap
            }
        }
    }
}

/// The most deadlines that an order meets which leaves no permit unused while an item waits that can make it. Each item has its arrival
/// and its deadline, up to 40.
pub(crate) fn most(rule: Rule, items: &[(u64, u64)]) -> usize {
    most_from(rule, items, &mut BTreeMap::new(), &[], 0, 0)
}

fn most_from(
    rule: Rule,
    items: &[(u64, u64)],
    known: &mut BTreeMap<(u64, Vec<u64>, u32), usize>,
    passed: &[u64],
    now: u64,
    gone: u32,
) -> usize {
    if now > 40 {
        return 0;
    }
    let key = (now, passed.to_vec(), gone);
    if let Some(best) = known.get(&key) {
        return *best;
    }
    let waits = |at: usize| gone & 1 << at == 0 && items[at].0 <= now && now <= items[at].1;
    let waiting: Vec<usize> = (0..items.len()).filter(|at| waits(*at)).collect();
    let best = if waiting.is_empty() || !rule.passes(passed, now, 1) {
        most_from(rule, items, known, passed, now + 1, gone)
    } else {
        let mut next = passed.to_vec();
        next.push(now);
        let each = waiting
            .iter()
            .map(|at| 1 + most_from(rule, items, known, &next, now, gone | 1 << at));
        each.max().unwrap()
    };
    known.insert(key, best);
    best
}
