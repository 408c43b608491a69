use std::future::Future;
use std::rc::Rc;

use http::uri::Authority;
use http::{Method, Request, Response};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::body::Answered;
use super::count;
use super::failure::{Causes, Failure};
use super::h2c::{self, Multiplexed};
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
    /// byte of an answer: the service closed it while the request was on its way.
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
        mut request: Request<Upload>,
        timeouts: &Timeouts,
        counts: &Counts,
    ) -> Result<Response<Answered>, Failure> {
        h2c::address(&mut request, &self.authority)?;
        let stream = self.stream(timeouts).await?;
        let spare = (stream.is_reused && is_repeatable(&request)).then(|| copy(&request));
        let answered = match (stream.send(request, timeouts).await, spare) {
            (Err((Failure::Broken(error), true)), Some(spare)) => {
                again(&error, counts);
                self.stream(timeouts).await?.send(spare, timeouts).await
            }
            (answered, _) => answered,
        };
        let response = answered.map_err(|(failure, _)| failure)?;
        Ok(response.map(Answered::Http2))
    }

    async fn connection(&self, timeouts: &Timeouts) -> Result<Box<Connection>, Failure> {
        let socket = in_time(timeouts, self.socket()).await?;
        let patience = Patience::new(timeouts);
        let buffers = Rc::clone(&self.buffers);
        Ok(Box::new(Connection::new(socket, buffers, patience)))
    }

    async fn stream(&self, timeouts: &Timeouts) -> Result<h2c::Stream, Failure> {
        in_time(timeouts, self.multiplexed.stream(self.socket())).await
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

/// The same request without a body.
fn copy(request: &Request<Upload>) -> Request<Upload> {
    let mut copy = Request::new(Upload::empty());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    copy
}
