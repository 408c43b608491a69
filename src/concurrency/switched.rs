use core::task::{Context, Poll};
use core::time::Duration;

use crate::limiter::{Mode, Switched};
use crate::policy::Decision;

use super::{Admit, Admitted};

/// The guard is `None` for work that holds no permit: while the switch is off, and where there was none for shadowed work.
impl<C: Clone, A: Admit<C>, E> Admit<C> for Switched<A, E> {
    type Guard = Option<A::Guard>;
    type Error = A::Error;

    fn poll_admit(
        &mut self,
        class: C,
        cx: &mut Context<'_>,
    ) -> Admitted<Option<A::Guard>, A::Error> {
        poll_as(self, class, cx, A::poll_admit)
    }

    fn poll_try_admit(
        &mut self,
        class: C,
        cx: &mut Context<'_>,
    ) -> Admitted<Option<A::Guard>, A::Error> {
        poll_as(self, class, cx, A::poll_try_admit)
    }

    fn give_up(&mut self) {
        self.forget(A::give_up);
    }

    fn shadowed(&self) -> Option<Decision> {
        self.shadowed
    }
}

fn poll_as<C: Clone, A: Admit<C>, E>(
    switched: &mut Switched<A, E>,
    class: C,
    cx: &mut Context<'_>,
    ask: impl Fn(&mut A, C, &mut Context<'_>) -> Admitted<A::Guard, A::Error>,
) -> Admitted<Option<A::Guard>, A::Error> {
    let answer = switched.poll_ask(1, cx, Poll::is_pending, |switched, mode, cx| match mode {
        Mode::Active => poll_active(switched, class.clone(), cx, &ask),
        Mode::Shadow => poll_shadow(switched, class.clone(), cx),
        Mode::Off => {
            switched.leave(A::give_up);
            Poll::Ready(Ok(Some(None)))
        }
    });
    if answer.is_ready() {
        switched.end_request();
    }
    answer
}

fn poll_active<C, A: Admit<C>, E>(
    switched: &mut Switched<A, E>,
    class: C,
    cx: &mut Context<'_>,
    ask: impl Fn(&mut A, C, &mut Context<'_>) -> Admitted<A::Guard, A::Error>,
) -> Admitted<Option<A::Guard>, A::Error> {
    let mut shadowed = None;
    let answer = switched.poll_limiter(|permits| {
        let answer = ask(permits, class, cx);
        shadowed = permits.shadowed();
        answer
    });
    switched.shadowed = shadowed;
    answer.map(|answer| answer.map_or(Ok(Some(None)), |admitted| Ok(admitted?.map(Some))))
}

/// Admits the work, except while the answer is under way.
fn poll_shadow<C, A: Admit<C>, E>(
    switched: &mut Switched<A, E>,
    class: C,
    cx: &mut Context<'_>,
) -> Admitted<Option<A::Guard>, A::Error> {
    let answer = switched.poll_limiter(|permits| permits.poll_try_admit(class, cx));
    answer.map(|answer| {
        let admitted = answer.and_then(Result::ok);
        switched.count_shadowed(admitted.as_ref().map(|guard| decision_of(guard.as_ref())));
        switched.leave(A::give_up);
        Ok(Some(admitted.flatten()))
    })
}

/// What a guard, or none, is to an observer and to a switch.
pub(super) const fn decision_of<G>(guard: Option<&G>) -> Decision {
    match guard {
        Some(_) => Decision::Pass,
        None => Decision::Wait {
            retry_in: Duration::MAX,
        },
    }
}
