use core::task::{Context, Poll};

use crate::limiter::{Method, Observed, Observer};
use crate::policy::Decision;

use super::switched::decision_of;
use super::{Admit, Admitted};

/// Each request has cost 1. That work has ended is not reported.
impl<C, A: Admit<C>, O: Observer> Admit<C> for Observed<A, O> {
    type Guard = A::Guard;
    type Error = A::Error;

    fn poll_admit(&mut self, class: C, cx: &mut Context<'_>) -> Admitted<A::Guard, A::Error> {
        let answer = self.parts().0.poll_admit(class, cx);
        report(self, Method::Decide, &answer);
        answer
    }

    fn poll_try_admit(&mut self, class: C, cx: &mut Context<'_>) -> Admitted<A::Guard, A::Error> {
        let answer = self.parts().0.poll_try_admit(class, cx);
        report(self, Method::Try, &answer);
        answer
    }

    fn give_up(&mut self) {
        let (permits, reporter) = self.parts();
        permits.give_up();
        reporter.gave_up();
    }

    fn shadowed(&self) -> Option<Decision> {
        self.limiter().shadowed()
    }
}

fn report<C, A: Admit<C>, O: Observer>(
    observed: &mut Observed<A, O>,
    method: Method,
    answer: &Admitted<A::Guard, A::Error>,
) {
    let (permits, reporter) = observed.parts();
    match answer {
        Poll::Ready(Ok(guard)) => {
            reporter.decided(1, decision_of(guard.as_ref()), permits.shadowed());
        }
        Poll::Pending if method == Method::Decide => reporter.waits(),
        // There is no answer, or it is under way.
        Poll::Ready(Err(_)) | Poll::Pending => {}
    }
}
