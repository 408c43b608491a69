//! Every order in which threads can take credit, count it and give it back.
#![expect(dead_code, reason = "the model uses a part of the file")]

use core::sync::atomic::Ordering;

use loom::model::Builder;
use loom::sync::{Arc, Mutex, atomic};
use loom::thread;

use credit::{Credit, Number};

#[macro_use]
#[path = "../src/limiter/credit.rs"]
mod credit;

// What the file imports from its own crate.
mod policy {
    pub(crate) use paceline::policy::Policy;
}
mod time {
    pub(crate) use paceline::time::Tick;

    pub(crate) const fn is_real() -> bool {
        true
    }
}

number!(atomic::AtomicU64);

/// A limit with a fixed number of permits, which uses credit as `Shared` does.
struct Limit {
    credit: Credit<atomic::AtomicU64>,
    desk: Mutex<Desk>,
}

#[derive(Default)]
struct Desk {
    left: u32,
    lent: u32,
    passed: u32,
}

impl Limit {
    fn of(left: u32) -> Arc<Self> {
        let desk = Desk {
            left,
            ..Desk::default()
        };
        Arc::new(Self {
            credit: Credit(atomic::AtomicU64::new(0)),
            desk: Mutex::new(desk),
        })
    }

    fn asks(&self, cost: u32) -> u32 {
        if self.credit.take(cost) {
            return 1;
        }
        let mut desk = self.desk.lock().unwrap();
        self.settle(&mut desk);
        let Some(left) = desk.left.checked_sub(cost) else {
            return 0;
        };
        desk.left = left;
        desk.passed += 1;
        desk.lent = desk.left.min(2);
        self.credit.give(desk.lent);
        1
    }

    fn settle(&self, desk: &mut Desk) {
        let lent = core::mem::take(&mut desk.lent);
        let taken = self.credit.call_in(lent);
        desk.left -= taken.permits;
        desk.passed += taken.requests;
    }

    /// The permits that are left, and the requests that have passed.
    fn counts(&self) -> (u32, u32) {
        let mut desk = self.desk.lock().unwrap();
        self.settle(&mut desk);
        (desk.left, desk.passed)
    }
}

#[test]
fn in_every_order_the_limit_holds_and_every_permit_is_counted() {
    let mut model = Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let limit = Limit::of(5);
        assert_eq!(limit.asks(1), 1, "and gives credit");
        let others = [2, 1].map(|cost| {
            let limit = Arc::clone(&limit);
            thread::spawn(move || cost * (limit.asks(cost) + limit.asks(cost)))
        });
        let counted = limit.counts().1;
        let spent: u32 = others.map(|other| other.join().unwrap()).into_iter().sum();

        let (left, passed) = limit.counts();
        assert_eq!(1 + spent + left, 5, "what is spent is counted");
        assert!(
            left == 0 || spent >= 3,
            "a request is refused only for lack of permits"
        );
        assert!(counted <= passed && passed <= 5);
    });
}
