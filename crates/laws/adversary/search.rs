//! All short sequences of gaps and costs.

use std::time::Duration;

use paceline::policy::{Decision, Policy};
use paceline::time::Tick;

/// Which sequences are searched: all with this number of requests, these gaps and these costs.
#[derive(Clone, Debug)]
pub(super) struct Search {
    window: u64,
    requests: u32,
    gaps: Vec<u64>,
    costs: Vec<u32>,
    give_back: bool,
}

impl Search {
    /// Searches sequences of `requests` for the half-open window of `window` ns that holds most.
    pub(super) fn of(window: u64, requests: u32) -> Self {
        let search = Self {
            window,
            requests,
            gaps: vec![0],
            costs: vec![1],
            give_back: false,
        };
        search.gaps_around(&[window])
    }

    /// Also the gaps one nanosecond before each of these, at it and after it.
    pub(super) fn gaps_around(mut self, edges: &[u64]) -> Self {
        let around = edges.iter().flat_map(|edge| [edge - 1, *edge, edge + 1]);
        self.gaps.extend(around);
        self.gaps.sort_unstable();
        self.gaps.dedup();
        self
    }

    pub(super) fn costs(mut self, costs: &[u32]) -> Self {
        self.costs = costs.to_vec();
        self.costs.retain(|cost| *cost > 0);
        self.costs.sort_unstable();
        self.costs.dedup();
        self
    }

    /// Also refunds one permit once, at the worst instant.
    pub(super) fn with_one_refund(mut self) -> Self {
        self.give_back = true;
        self
    }
}

/// The most that any window of what passed held.
pub(super) fn most<P: Policy>(policy: &P, search: &Search) -> u128 {
    let start = Tick::from_nanos(1000);
    let mut attacker = Attacker {
        policy,
        search,
        passed: Vec::new(),
        most: 0,
    };
    attacker.go_on(
        &policy.fresh(start),
        start,
        search.requests,
        search.give_back,
    );
    attacker.most
}

struct Attacker<'a, P> {
    policy: &'a P,
    search: &'a Search,
    passed: Vec<(u64, u32)>,
    most: u128,
}

impl<P: Policy> Attacker<'_, P> {
    fn go_on(&mut self, state: &P::State, now: Tick, requests: u32, give_back: bool) {
        if requests == 0 {
            return;
        }
        for gap in &self.search.gaps {
            let then = now.after(Duration::from_nanos(*gap));
            for cost in &self.search.costs {
                self.ask(state, (now, then), *cost, (requests, give_back));
            }
            if give_back && !self.passed.is_empty() {
                self.give_back(state, then, requests);
            }
        }
    }

    /// A refused request waits and comes again, once: every later request would get the same instant.
    fn ask(&mut self, state: &P::State, times: (Tick, Tick), cost: u32, left: (u32, bool)) {
        let (before, mut now) = times;
        let mut state = state.clone();
        match self.policy.decide(&mut state, now, cost) {
            Decision::Pass => {}
            Decision::Wait { retry_in } if before == now => {
                now = now.after(retry_in);
                let answer = self.policy.decide(&mut state, now, cost);
                assert_eq!(answer, Decision::Pass, "{state:?} at {now:?}");
            }
            Decision::Wait { .. } | Decision::Never { .. } => return,
        }
        self.passed.push((now.as_nanos(), cost));
        self.look();
        self.go_on(&state, now, left.0 - 1, left.1);
        self.passed.pop();
    }

    /// Refunds the first request that passed.
    fn give_back(&mut self, state: &P::State, now: Tick, requests: u32) {
        let mut state = state.clone();
        self.policy.refund(&mut state, now, 1);
        self.passed[0].1 -= 1;
        self.go_on(&state, now, requests, false);
        self.passed[0].1 += 1;
    }

    fn look(&mut self) {
        let Some(&(last, _)) = self.passed.last() else {
            return;
        };
        let inside = self.passed.iter().rev();
        let inside = inside.take_while(|(at, _)| last - at < self.search.window);
        let total = inside.map(|&(_, cost)| u128::from(cost)).sum();
        self.most = self.most.max(total);
    }
}
