//! Permits with a switch.

use std::convert::Infallible;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use fastrand::Rng;
use paceline::concurrency::{Admit, KeyedPermits, Permit, Permits, PermitsAt};
use paceline::limiter::{Event, Limits, Mode, Observed, Share, Switch, Switched};
use testkit::wakes::Driven;

use super::claims;
use crate::timed::{now, since, sleep};

const MODES: [Mode; 3] = [Mode::Active, Mode::Shadow, Mode::Off];

/// Admitted with a permit, or without one.
#[derive(Debug)]
enum Admitted<G = Permit> {
    With(G),
    Without,
    Refused,
    Waits,
}

use Admitted::{Refused, Waits, With, Without};

impl<G> Admitted<G> {
    #[expect(clippy::option_option, reason = "a guard, no guard, or no admission")]
    fn of<E>(answer: Poll<Result<Option<Option<G>>, E>>) -> Result<Self, E> {
        Ok(match answer {
            Poll::Pending => Waits,
            Poll::Ready(admitted) => match admitted? {
                None => Refused,
                Some(None) => Without,
                Some(Some(guard)) => With(guard),
            },
        })
    }
}

type Guarded<A> = Admitted<<A as Admit>::Guard>;

fn asked<A: Admit, E>(handle: &mut Switched<A, E>) -> Result<Guarded<A>, A::Error> {
    Admitted::of(handle.poll_admit((), &mut Context::from_waker(Waker::noop())))
}

fn tried<A: Admit>(handle: &mut Switched<A>) -> Result<Guarded<A>, A::Error> {
    Admitted::of(handle.poll_try_admit((), &mut Context::from_waker(Waker::noop())))
}

fn switched(n: u32) -> (Switch, Switched<Permits>, Permits) {
    let (switch, permits) = (Switch::new(), Permits::new(n));
    let switched = Switched::new(permits.clone(), switch.clone());
    (switch, switched, permits)
}

/// The requests that were shadowed, and how many of them were held back and had no answer.
fn counts(switch: &Switch) -> (u64, u64, u64) {
    let stats = switch.stats();
    (stats.shadowed, stats.held_back, stats.unreachable)
}

#[tokio::test(start_paused = true)]
async fn permits_with_an_active_switch_keep_the_claims() {
    claims::hold_for(|n| Switched::new(Permits::new(n), Switch::new())).await;
    claims::hold_for(|n| {
        let Ok(ann) = Switched::new(KeyedPermits::new(n), Switch::new()).at("ann");
        ann
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn where_no_permit_is_free_both_methods_admit_without_one_unless_active() {
    for mode in MODES {
        let (switch, mut limited, permits) = switched(1);
        let held = permits.try_acquire();
        switch.set_mode(mode);
        let (tried, asked) = (tried(&mut limited), asked(&mut limited));
        let counted = counts(&switch);
        if mode == Mode::Active {
            assert!(matches!((tried, asked), (Ok(Refused), Ok(Waits))));
            assert_eq!((counted, permits.stats().waiting), ((0, 0, 0), 1));
        } else {
            assert!(matches!((tried, asked), (Ok(Without), Ok(Without))));
            let shadowed = if mode == Mode::Shadow { 2 } else { 0 };
            assert_eq!(counted, (shadowed, shadowed, 0), "{mode:?}");
            assert_eq!(permits.stats().waiting, 0);
        }
        drop(held);
    }
}

#[tokio::test(start_paused = true)]
async fn where_a_permit_is_free_it_is_taken_unless_off() {
    for mode in MODES {
        let (switch, mut limited, permits) = switched(2);
        switch.set_mode(mode);
        let guards = [asked(&mut limited), tried(&mut limited)];
        let in_use = if mode == Mode::Off { 0 } else { 2 };
        assert_eq!(permits.in_use(), in_use, "{mode:?}");
        let shadowed = if mode == Mode::Shadow { 2 } else { 0 };
        assert_eq!(counts(&switch), (shadowed, 0, 0));
        drop(guards);
        assert_eq!(permits.in_use(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_switch_admits_queued_requests_at_once_which_leave_the_queue() {
    for mode in [Mode::Shadow, Mode::Off] {
        let (switch, limited, permits) = switched(1);
        let held = permits.try_acquire();
        let start = now();
        let waiting = (0..3).map(|_| {
            let mut handle = limited.clone();
            tokio::spawn(async move { poll_fn(|cx| handle.poll_admit((), cx)).await })
        });
        let waiting: Vec<_> = waiting.collect();
        sleep(20).await;
        assert_eq!(permits.stats().waiting, 3);
        switch.set_mode(mode);
        for task in waiting {
            assert!(matches!(task.await.unwrap(), Ok(Some(None))));
        }
        assert_eq!((since(start), permits.stats().waiting), (20, 0));
        let held_back = if mode == Mode::Shadow { 3 } else { 0 };
        assert_eq!(switch.stats().held_back, held_back);
        switch.set_mode(Mode::Active);
        assert!(matches!(tried(&mut limited.clone()), Ok(Refused)));
        drop(held);
        assert!(matches!(tried(&mut limited.clone()), Ok(With(_))));
    }
}

#[tokio::test(start_paused = true)]
async fn a_smaller_share_lets_a_queued_key_go_and_keeps_the_others_queued() {
    let (switch, permits) = (Switch::new(), Permits::new(1));
    let held = permits.try_acquire();
    let [mut ann, mut bob] = ["ann", "bob"].map(|user| {
        let handle = Switched::new(permits.clone(), switch.clone());
        Driven::new(handle.with_key(user))
    });
    let asked = |handle: &mut Driven<Switched<Permits>>| {
        let Ok(answer) = Admitted::of(handle.poll_with(|mut handle, cx| handle.poll_admit((), cx)));
        answer
    };
    assert!(matches!((asked(&mut ann), asked(&mut bob)), (Waits, Waits)));
    switch.set_share(Share::percent(30));
    assert!(switch.share().includes("bob") && !switch.share().includes("ann"));
    assert!(ann.is_woken() && bob.is_woken());
    assert!(matches!(
        (asked(&mut ann), asked(&mut bob)),
        (Without, Waits)
    ));
    drop(held);
    assert!(matches!(asked(&mut bob), With(_)));
}

#[tokio::test(start_paused = true)]
async fn without_a_key_exactly_the_share_of_the_requests_is_limited() {
    let (switch, limited, permits) = switched(1);
    switch.set_share(Share::percent(25));
    let held = permits.try_acquire();
    let refused = (0..10_000).filter(|_| matches!(tried(&mut limited.clone()), Ok(Refused)));
    assert_eq!(refused.count(), 2_500);
    drop(held);
}

/// One request has one number, however often it is polled: 9,999 wakes are no 9,999 requests.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_polled_often_is_one_request() {
    let (switch, mut limited, permits) = switched(1);
    let held = permits.try_acquire();
    switch.set_share(Share::percent(50));
    while !matches!(asked(&mut limited), Ok(Waits)) {}
    let shadowed = switch.stats().shadowed;
    for _ in 0..100 {
        assert!(matches!(asked(&mut limited), Ok(Waits)));
    }
    assert_eq!(switch.stats().shadowed, shadowed);
    drop(held);
    assert!(matches!(asked(&mut limited), Ok(With(_))));
}

/// Permits of classes from 1 on, without a queue, whose answer is under way for one poll. Class 0 fails.
#[derive(Clone, Default)]
struct Remote {
    asked: bool,
    given_up: u32,
}

impl Admit<u32> for Remote {
    type Guard = u32;
    type Error = &'static str;

    fn poll_admit(
        &mut self,
        class: u32,
        _: &mut Context<'_>,
    ) -> Poll<Result<Option<u32>, &'static str>> {
        self.asked = !self.asked;
        if self.asked {
            return Poll::Pending;
        }
        Poll::Ready(match class {
            0 => Err("the server is gone"),
            _ => Ok((class > 1).then_some(class)),
        })
    }

    fn give_up(&mut self) {
        self.given_up += u32::from(self.asked);
        self.asked = false;
    }
}

#[test]
fn an_answer_under_way_is_waited_for_and_an_error_counts_only_where_a_request_is_limited() {
    let mut cx = Context::from_waker(Waker::noop());
    for mode in MODES {
        let switch = Switch::new().with_mode(mode);
        let mut remote = Switched::new(Remote::default(), switch.clone());
        let mut answers = Vec::new();
        for class in 0..3 {
            let mut answer = remote.poll_admit(class, &mut cx);
            assert_eq!(answer.is_pending(), mode != Mode::Off, "{mode:?}");
            if answer.is_pending() {
                answer = remote.poll_admit(class, &mut cx);
            }
            answers.push(answer);
        }
        let (answered, counted) = match mode {
            Mode::Active => (
                [Err("the server is gone"), Ok(None), Ok(Some(Some(2)))],
                (0, 0, 0),
            ),
            Mode::Shadow => (
                [Ok(Some(None)), Ok(Some(None)), Ok(Some(Some(2)))],
                (3, 1, 1),
            ),
            Mode::Off => ([Ok(Some(None)); 3], (0, 0, 0)),
        };
        assert_eq!(answers, answered.map(Poll::Ready), "{mode:?}");
        assert_eq!(counts(&switch), counted);
    }
}

#[test]
fn off_it_does_not_wait_for_an_answer_under_way() {
    let mut cx = Context::from_waker(Waker::noop());
    for mode in [Mode::Active, Mode::Shadow] {
        let switch = Switch::new().with_mode(mode);
        let mut remote = Remote::default();
        let mut handle = Switched::new(&mut remote, switch.clone());
        assert!(handle.poll_admit(2, &mut cx).is_pending());
        switch.set_mode(Mode::Off);
        assert_eq!(handle.poll_admit(2, &mut cx), Poll::Ready(Ok(Some(None))));
        drop(handle);
        assert_eq!(remote.given_up, 1, "{mode:?}");
    }
}

/// Permits that refuse odd keys.
struct EvenKeys(KeyedPermits<u32>);

impl Limits<u32> for EvenKeys {
    type Limit = PermitsAt<u32>;
    type Error = &'static str;

    fn at(&self, key: u32) -> Result<PermitsAt<u32>, &'static str> {
        (key % 2 == 0).then(|| self.0.at(key)).ok_or("odd")
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_without_permits_is_an_error_only_where_it_is_limited() {
    let switch = Switch::new();
    let users = Switched::new(EvenKeys(KeyedPermits::new(1)), switch.clone());
    assert_eq!(users.at(1).map(drop), Err("odd"));
    for (mode, unreachable) in [(Mode::Shadow, 1), (Mode::Off, 1)] {
        switch.set_mode(mode);
        let mut odd = users.at(1).unwrap();
        assert!(matches!(asked(&mut odd), Ok(Without)));
        assert_eq!(switch.stats().unreachable, unreachable);
        let mut even = users.at(2).unwrap();
        let has_permit = matches!(asked(&mut even), Ok(With(_)));
        assert_eq!(has_permit, mode == Mode::Shadow);
    }
    switch.set_mode(Mode::Shadow);
    let mut odd = users.at(1).unwrap();
    switch.set_mode(Mode::Active);
    // As a limiter without a limit.
    assert!(matches!(asked(&mut odd), Ok(Without)));
}

#[tokio::test(start_paused = true)]
async fn an_observer_of_the_permits_sees_their_answers_and_one_around_the_switch_its_effect() {
    let (inside, inner) = std::sync::mpsc::channel();
    let (outside, outer) = std::sync::mpsc::channel();
    let permits = Permits::new(1).with_observer(move |event: Event| inside.send(event).unwrap());
    let permits = Switched::new(permits, Switch::new().with_mode(Mode::Shadow));
    let mut permits = Observed::new(permits, move |event| outside.send(event).unwrap());
    let guards = [(); 2].map(|()| super::asked(&mut permits));
    drop((guards, permits));
    let inner: Vec<_> = inner.try_iter().collect();
    assert!(matches!(
        inner[..],
        [
            Event::Resized { .. },
            Event::Passed { .. },
            Event::Refused { .. },
            Event::Released { .. }
        ]
    ));
    let outer: Vec<_> = outer.try_iter().collect();
    let [Event::Passed { .. }, shadowed @ Event::Shadowed { .. }] = &outer[..] else {
        panic!("{outer:?}")
    };
    let expected =
        "Shadowed { cost: 1, waited: 0ns, retry_in: Some(18446744073709551615.999999999s) }";
    assert_eq!(format!("{shadowed:?}"), expected);
}

/// Whatever the switch does meanwhile, no more guards are out than there are permits, and what waits is limited.
#[tokio::test(start_paused = true)]
async fn on_10_000_random_schedules_guards_are_permits_and_only_an_active_switch_holds_work_back() {
    let mut rng = Rng::with_seed(3);
    for seed in 0..10_000 {
        let n = rng.u32(1..3);
        let (switch, limited, permits) = switched(n);
        let mut handles: Vec<_> = (0..4).map(|_| limited.clone()).collect();
        let mut guards = Vec::new();
        for _ in 0..16 {
            let handle = rng.usize(..4);
            match rng.u8(..6) {
                0 => switch.set_mode(*rng.choice(&MODES).unwrap()),
                1 => handles[handle].give_up(),
                2 if !guards.is_empty() => drop(guards.swap_remove(rng.usize(..guards.len()))),
                ask => {
                    let handle = &mut handles[handle];
                    let ask = if ask == 3 { tried } else { asked };
                    let Ok(answer) = ask(handle);
                    let is_active = switch.mode() == Mode::Active;
                    match answer {
                        With(guard) => guards.push(guard),
                        Without => assert!(!is_active, "{seed}"),
                        Refused | Waits => assert!(is_active, "{seed}"),
                    }
                }
            }
            assert_eq!(permits.in_use() as usize, guards.len(), "{seed}");
            assert!(permits.in_use() <= n, "{seed}");
        }
        drop((handles, guards));
        let left = (permits.in_use(), permits.stats().waiting);
        assert_eq!(left, (0, 0), "{seed}");
    }
}

/// That it compiles is the test: the error of permits in memory stays `Infallible`.
fn _is_infallible(
    handle: &mut Switched<Permits>,
) -> &mut dyn Admit<Guard = Option<Permit>, Error = Infallible> {
    handle
}
