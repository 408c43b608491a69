use std::future::Future;
use std::rc::Rc;

use http::uri::Authority;
use http::{Method, Request, Response};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::body::Answered;
use super::count;
use super::failure::{Causes, Failure};
use super::h2c::{Multiplexed, Outgoing};
use super::http1::{Broken, Buffers, Connection, Exchange, Pool};
use super::patience::Patience;
use super::upload::Upload;
use crate::config::{self, Config, Timeouts};
use crate::state::Counts;

/// The service, as one thread sees it.
#[derive(Debug)]
pub(super) struct Upstream {
    authority: Authority,
    /// Host and port, to connect to.
    address: String,
    is_h2c: bool,
    pool: Rc<Pool>,
    buffers: Rc<Buffers>,
    multiplexed: Multiplexed,
}

impl Upstream {
    pub(super) fn new(upstream: &config::Upstream) -> Self {
        let authority = upstream.authority.clone();
        let port = authority.port_u16().unwrap_or(80);
        Self {
            address: format!("{}:{port}", authority.host()),
            authority,
            is_h2c: upstream.is_h2c,
            pool: Rc::default(),
            buffers: Rc::default(),
            multiplexed: Multiplexed::default(),
        }
    }

    /// Sends the request. It goes out a second time, on a new connection, if the first one had been used before and ended before a
    /// byte of an answer: the service closed it while the request was on its way. In HTTP/2 the service can say so, and can refuse a stream.
    pub(super) async fn send(
        &self,
        request: Box<Request<Upload>>,
        config: &Config,
        counts: &Counts,
    ) -> Result<Response<Answered>, Failure> {
        if self.is_h2c {
            return Box::pin(self.send_http2(*request, &config.timeouts, counts)).await;
        }
        let timeouts = &config.timeouts;
        let is_repeatable = is_repeatable(&request);
        let connection = match self.pool.take(config) {
            Some(connection) => connection,
            None => Box::pin(self.connection(timeouts)).await?,
        };
        let mut exchange = Exchange::new(connection, request);
        let mut answered = exchange.response(timeouts).await;
        if let Err(Failure::Broken(error)) = &answered
            && is_repeatable
            && exchange.is_unseen()
        {
            again(error, counts);
            exchange.move_to(Box::pin(self.connection(timeouts)).await?);
            answered = exchange.response(timeouts).await;
        }
        let pool = Rc::clone(&self.pool);
        Ok(answered?.map(|()| Answered::Http1(exchange, pool)))
    }

    async fn send_http2(
        &self,
        request: Request<Upload>,
        timeouts: &Timeouts,
        counts: &Counts,
    ) -> Result<Response<Answered>, Failure> {
        let is_repeatable = is_repeatable(&request);
        let mut outgoing = Outgoing::new(request, &self.authority, timeouts)?;
        let mut failed = None;
        loop {
            let sender = self.multiplexed.sender(failed.as_ref(), self.socket());
            let sender = in_time(timeouts, sender).await?;
            match outgoing.send(&sender, timeouts).await {
                Ok(response) => return Ok(outgoing.answered(response).map(Answered::Http2)),
                Err(Failure::Broken(error)) if outgoing.may_repeat(&error, is_repeatable) => {
                    again(&error, counts);
                    failed = Some(sender);
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    async fn connection(&self, timeouts: &Timeouts) -> Result<Box<Connection>, Failure> {
        let socket = in_time(timeouts, self.socket()).await?;
        let patience = Patience::new(timeouts);
        let buffers = Rc::clone(&self.buffers);
        Ok(Box::new(Connection::new(socket, buffers, patience)))
    }

    async fn socket(&self) -> Result<TcpStream, Failure> {
        let socket = TcpStream::connect(&self.address).await;
        let socket = socket.map_err(Failure::Connect)?;
        socket.set_nodelay(true).map_err(Failure::Connect)?;
        Ok(socket)
    }
}

async fn in_time<T>(
    timeouts: &Timeouts,
    connecting: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let connected = timeout(timeouts.connect, connecting).await;
    connected.map_err(|_| Failure::ConnectLate)?
}

fn again(error: &Broken, counts: &Counts) {
    tracing::debug!(cause = %Causes(error), "the request goes out again");
    count(&counts.retried);
}

fn is_repeatable(request: &Request<Upload>) -> bool {
    let is_idempotent = matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE | Method::TRACE
    );
    is_idempotent && request.body().is_empty()
}
