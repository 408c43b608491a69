//! Several policies at once. What holds for each of them holds for all.

use paceline::policy::{All, Status};
use paceline::time::Tick;
use proptest::prelude::{BoxedStrategy, Strategy};

use super::super::model::{Due, Model};
use super::{Subject, Window};

/// A macro, because Rust cannot implement a trait for tuples of any length.
macro_rules! all {
    ($($policy:ident $index:tt),+) => {
        impl<$($policy: Subject),+> Subject for All<($($policy,)+)> {
            type Model = ($($policy::Model,)+);

            /// Its members have tests of their own.
            const TIMES: u32 = 3;

            const PHASED: bool = $($policy::PHASED)||+;

            const RETURNS_IN_TIME: bool = $($policy::RETURNS_IN_TIME)&&+;

            fn any() -> BoxedStrategy<Self> {
                ($($policy::any(),)+).prop_map(Self::new).boxed()
            }

            fn full(&self) -> Self {
                Self::new(($(self.limits().$index.full(),)+))
            }

            fn grain(&self) -> u64 {
                [$(self.limits().$index.grain()),+].into_iter().min().unwrap()
            }

            fn period(&self) -> u64 {
                [$(self.limits().$index.period()),+].into_iter().max().unwrap()
            }

            fn burst(&self) -> u32 {
                [$(self.limits().$index.burst()),+].into_iter().min().unwrap()
            }

            fn quotas_in_a_window(&self) -> u128 {
                [$(self.limits().$index.quotas_in_a_window()),+].into_iter().max().unwrap()
            }

            /// That of the one may be less than that of another.
            fn sustains_its_quota(&self) -> bool {
                false
            }

            fn parts(&self, state: &Self::State, now: Tick) -> Vec<Status> {
                [$(self.limits().$index.parts(&state.$index, now)),+].concat()
            }

            /// "That of each of them."
            fn allows(&self, window: &Window) -> bool {
                $(self.limits().$index.allows(window))&&+
            }
        }

        impl<$($policy: Subject),+> Model<All<($($policy,)+)>> for ($($policy::Model,)+) {
            const LATE_WHEN_RETUNED: u128 = {
                let mut late = 0;
                $(
                    let of_this = <$policy::Model as Model<$policy>>::LATE_WHEN_RETUNED;
                    if of_this > late {
                        late = of_this;
                    }
                )+
                late
            };

            fn start(policy: &All<($($policy,)+)>, now: Tick) -> Self {
                ($(Model::start(&policy.limits().$index, now),)+)
            }

            fn due(&self, now: Tick, cost: u32) -> Due {
                let due = Due::At(now.as_nanos().into());
                $(let due = due.and(self.$index.due(now, cost));)+
                due
            }

            fn count(&mut self, now: Tick, cost: u32) {
                $(self.$index.count(now, cost);)+
            }

            fn charge(&mut self, now: Tick, cost: u32) -> Option<()> {
                $(self.$index.charge(now, cost)?;)+
                Some(())
            }

            fn refund_from(&mut self, now: Tick, spent_at: Tick, cost: u32) {
                $(self.$index.refund_from(now, spent_at, cost);)+
            }

            fn refund(&mut self, now: Tick, cost: u32) {
                $(self.$index.refund(now, cost);)+
            }

            fn retuned(&self, policy: &All<($($policy,)+)>, now: Tick) -> Option<Self> {
                Some(($(self.$index.retuned(&policy.limits().$index, now)?,)+))
            }
        }
    };
}

all!(A 0, B 1);
all!(A 0, B 1, C 2);
