//! A small HTTP/1.1 client over one connection: enough for the admin API and for the load of `claystone bench`.
//!
//! Left out: TLS, redirects, proxies. The program talks to servers on its own machine.

use std::time::Duration;

use anyhow::{Context, anyhow};
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// A request's body.
pub type Body = BoxBody<Bytes, std::convert::Infallible>;

/// A body of no bytes.
pub fn empty() -> Body {
    Empty::new().boxed()
}

/// A body of these bytes.
pub fn full(bytes: Bytes) -> Body {
    Full::new(bytes).boxed()
}

/// One connection. Requests go over it one after the other.
#[derive(Debug)]
pub struct Connection {
    sender: SendRequest<Body>,
}

impl Connection {
    /// Connects to `HOST:PORT`.
    ///
    /// # Errors
    /// Nobody listens there, or it takes longer than [`CONNECT_LIMIT`].
    pub async fn open(authority: &str) -> anyhow::Result<Connection> {
        let connect = tokio::time::timeout(CONNECT_LIMIT, TcpStream::connect(authority));
        let stream = connect.await.map_err(|_| anyhow!("{authority} does not answer"))?;
        let stream = stream.with_context(|| format!("nothing listens on {authority}"))?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // Ends when the sender is dropped; its errors reach the request under way.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Connection { sender })
    }

    /// Sends a request and returns the response as soon as its head is there.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn send(&mut self, request: Request<Body>) -> anyhow::Result<Response<Incoming>> {
        self.sender.ready().await?;
        Ok(self.sender.send_request(request).await?)
    }
}

/// Reads a body of at most `bytes_max` bytes.
///
/// # Errors
/// It is longer, or the connection broke.
pub async fn collect(response: Response<Incoming>, bytes_max: usize) -> anyhow::Result<Bytes> {
    let body = http_body_util::Limited::new(response.into_body(), bytes_max);
    Ok(body.collect().await.map_err(|error| anyhow!("the answer cannot be read: {error}"))?.to_bytes())
}

const CONNECT_LIMIT: Duration = Duration::from_secs(5);
