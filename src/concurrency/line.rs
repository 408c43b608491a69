//! [`Line`] around permits: a bound on waiting, and a close.

use core::future::{Future, poll_fn};
use core::task::{Context, Poll};

use crate::limiter::{Line, LineError};
use crate::policy::Decision;

use super::{Admit, Admitted};

impl<A: Admit> Line<A> {
    /// Waits for a permit of a line around [`Permits`](crate::concurrency::Permits) or any other that [admit](Admit) work.
    ///
    /// ```
    /// use paceline::concurrency::Permits;
    /// use paceline::limiter::Line;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let line = Line::new(Permits::new(1)).with_max_waiting(1);
    /// let permit = line.acquire_permit().await.unwrap();
    ///
    /// let waits = tokio::spawn(line.acquire_permit());
    /// tokio::task::yield_now().await;
    /// assert!(line.acquire_permit().await.unwrap_err().is_full());
    ///
    /// line.close(); // fails what waits; work under way keeps its permit
    /// assert!(waits.await.unwrap().unwrap_err().is_closed());
    /// # drop(permit);
    /// # }
    /// ```
    ///
    /// Permits that refuse a request and have no queue answer as a full line does. There is no jitter.
    ///
    /// # Errors
    ///
    /// [`is_closed`](LineError::is_closed), [`is_full`](LineError::is_full), and the error of the permits.
    ///
    /// # Panics
    ///
    /// Where those permits do.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line and the queue. Nothing was taken.
    pub fn acquire_permit(
        &self,
    ) -> impl Future<Output = Result<A::Guard, LineError<A::Error>>> + use<A>
    where
        A: Clone,
    {
        let mut line = self.clone();
        poll_fn(move |cx| {
            let answer = line.poll_admit((), cx);
            answer.map(|answer| answer?.ok_or_else(|| line.full(None)))
        })
    }
}

impl<C, A: Admit<C>> Admit<C> for Line<A> {
    type Guard = A::Guard;
    type Error = LineError<A::Error>;

    fn poll_admit(&mut self, class: C, cx: &mut Context<'_>) -> Admitted<A::Guard, Self::Error> {
        if self.is_closed() {
            Admit::<C>::give_up(self);
            return Poll::Ready(Err(LineError::closed()));
        }
        let is_full = self.is_full();
        let answer = if is_full {
            self.limiter_mut().poll_try_admit(class, cx)
        } else {
            self.limiter_mut().poll_admit(class, cx)
        };
        match answer {
            Poll::Ready(Ok(None)) if is_full => return Poll::Ready(Err(self.full(None))),
            Poll::Ready(_) => self.leave(),
            Poll::Pending => {
                if let Err(error) = self.wait(cx) {
                    Admit::<C>::give_up(self);
                    return Poll::Ready(Err(error));
                }
            }
        }
        answer.map_err(LineError::of_limit)
    }

    fn poll_try_admit(
        &mut self,
        class: C,
        cx: &mut Context<'_>,
    ) -> Admitted<A::Guard, Self::Error> {
        self.leave();
        if self.is_closed() {
            Admit::<C>::give_up(self);
            return Poll::Ready(Err(LineError::closed()));
        }
        let answer = self.limiter_mut().poll_try_admit(class, cx);
        answer.map_err(LineError::of_limit)
    }

    fn give_up(&mut self) {
        self.limiter_mut().give_up();
        self.leave();
    }

    fn shadowed(&self) -> Option<Decision> {
        self.limiter().shadowed()
    }
}
