//! Connections: taken from a listener, served, and ended in order.
//!
//! Invariants:
//! 1. At most `connections_max` connections are open; further ones wait in the listener's queue.
//! 2. A client that does not send a whole head in time is given up; heads are limited in number and bytes.
//! 3. After the signal to stop no new request begins, those under way may end within `grace`, then all is closed.
//!
//! Only HTTP/1.1 is spoken: it is what S3 clients use without TLS, and telling HTTP/2 apart would need a wait for the
//! first bytes that nothing bounds.

use std::sync::Arc;
use std::time::Duration;

use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use claystone_env::{Tasks, timeout};

use crate::S3;
use crate::service::Service;

/// How far a shutdown has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Serving,
    Ending,
    Closed,
}

impl S3 {
    /// Serves connections until `shutdown` completes, then ends them in order.
    pub async fn serve(&self, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        let settings = self.settings();
        let env = self.env();
        let room = Arc::new(Semaphore::new(settings.connections_max as usize));
        let (stage, watching) = watch::channel(Stage::Serving);
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut shutdown => break,
                accepted = accept(&listener, &room) => accepted,
            };
            let (stream, peer, permit) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file handles, most likely: existing connections must end before a new one can begin.
                    tracing::warn!(%error, "a connection could not be taken");
                    env.clock.sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let service = self.service(Some(peer.ip()));
            let serving = serve_connection(stream, service, env.tasks.clone(), watching.clone());
            let task = async move {
                serving.await;
                drop(permit);
            };
            env.tasks.spawn("s3 connection", Box::pin(task));
        }
        drop(listener);
        stage.send_replace(Stage::Ending);
        let all_ended = room.acquire_many(settings.connections_max);
        if timeout(&*env.clock, settings.grace, all_ended).await.is_none() {
            tracing::warn!(grace = ?settings.grace, "closing connections whose requests did not end in time");
        }
        stage.send_replace(Stage::Closed);
        let _ = timeout(&*env.clock, CLOSE_TIME_MAX, room.acquire_many(settings.connections_max)).await;
    }
}

async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, std::net::SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    let permit = room.clone().acquire_owned().await.expect("nobody closes it");
    let (stream, peer) = listener.accept().await?;
    // Small responses must not wait for acknowledgements.
    stream.set_nodelay(true)?;
    Ok((stream, peer, permit))
}

async fn serve_connection(
    stream: TcpStream,
    service: Service,
    tasks: Arc<dyn Tasks>,
    mut stage: watch::Receiver<Stage>,
) {
    let mut builder = auto::Builder::new(Spawn(tasks)).http1_only();
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_headers(HEADERS_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        .keep_alive(true);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    loop {
        let changed = tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection broke");
                }
                return;
            }
            changed = stage.changed() => changed,
        };
        let now = *stage.borrow_and_update();
        match now {
            _ if changed.is_err() => return,
            Stage::Serving => {}
            Stage::Ending => connection.as_mut().graceful_shutdown(),
            Stage::Closed => return,
        }
    }
}

/// Gives hyper's tasks to the environment.
#[derive(Clone)]
struct Spawn(Arc<dyn Tasks>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Spawn {
    fn execute(&self, future: F) {
        self.0.spawn("http", Box::pin(future));
    }
}

const HEAD_TIME_MAX: Duration = Duration::from_secs(75);
const HEADERS_MAX: usize = 200;
/// Bounds a head, and how much of a body is read at once.
const BUFFER_BYTES_MAX: usize = 256 << 10;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const CLOSE_TIME_MAX: Duration = Duration::from_secs(1);
