//! Connections: taken from a listener, served, and ended in order.
//!
//! Invariants:
//! 1. At most `connections_max` connections are open; further ones wait in the listener's queue.
//! 2. A handshake ends in time or is given up.
//! 3. A client that is gone is missed within a second, also while there is no room to read what he sent before. One over TCP of
//!    which nothing is heard for two minutes, not even that its machine is there, loses its connection.
//! 4. After the signal to stop no request is taken, those that are running may end within `grace`, then all is closed.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use claystone_env::{Env, timeout};
use rustix::net::sockopt;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{Semaphore, watch};

use crate::handshake::{Stream, negotiate};
use crate::peer::Peer;
use crate::session::{Room, Session};
use crate::wire::PAYLOAD_BYTES_MAX;
use crate::{Exports, NbdError, Tls};

/// What the operator decided.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Open connections, at most.
    pub connections_max: u32,
    /// Requests that one connection holds, at most: received, and not yet answered.
    pub requests_max: usize,
    /// Bytes of their contents, at most; 32 MiB or more, since one request may be as long.
    pub bytes_max: u64,
    /// How long a client may take to choose an export.
    pub handshake_time_max: Duration,
    /// How long requests that are running may take to end after the signal to stop.
    pub grace: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            connections_max: 256,
            requests_max: 256,
            bytes_max: 64 << 20,
            handshake_time_max: Duration::from_secs(30),
            grace: Duration::from_secs(10),
        }
    }
}

/// Where clients come from.
#[derive(Debug)]
pub enum Listener {
    /// Over the network.
    Tcp(TcpListener),
    /// From this machine.
    Unix(UnixListener),
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Listener {
        Listener::Tcp(listener)
    }
}

impl From<UnixListener> for Listener {
    fn from(listener: UnixListener) -> Listener {
        Listener::Unix(listener)
    }
}

impl Listener {
    async fn accept(&self) -> io::Result<(Box<dyn Stream>, Peer)> {
        Ok(match self {
            Listener::Tcp(listener) => {
                let stream = accept_tcp(listener).await?;
                let peer = Peer::of(&stream)?;
                (Box::new(stream), peer)
            }
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let peer = Peer::of(&stream)?;
                (Box::new(stream), peer)
            }
        })
    }
}

/// A connection from the network; TLS, if any, comes on top of it.
async fn accept_tcp(listener: &TcpListener) -> io::Result<TcpStream> {
    let (stream, _) = listener.accept().await?;
    // Small replies must not wait for acknowledgements.
    stream.set_nodelay(true)?;
    // The session of a client that vanished without a word would last for ever, and hold its device.
    sockopt::set_socket_keepalive(&stream, true)?;
    sockopt::set_tcp_keepidle(&stream, PROBE_AFTER)?;
    sockopt::set_tcp_keepintvl(&stream, PROBE_EVERY)?;
    sockopt::set_tcp_keepcnt(&stream, PROBES_MAX)?;
    sockopt::set_tcp_user_timeout(&stream, UNHEARD_MAX.as_millis() as u32)?;
    Ok(stream)
}

/// The NBD server. Cheap to clone.
#[derive(Clone)]
pub struct Nbd {
    env: Env,
    exports: Arc<dyn Exports>,
    tls: Tls,
    settings: Settings,
}

/// How far a shutdown has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Serving,
    Ending,
    Closed,
}

impl Nbd {
    /// A server of these exports.
    ///
    /// # Panics
    /// If `settings` leave no room for one request, or one connection.
    pub fn new(env: Env, exports: Arc<dyn Exports>, tls: Tls, settings: Settings) -> Nbd {
        assert!(settings.bytes_max >= u64::from(PAYLOAD_BYTES_MAX), "a connection must hold one request");
        assert!(settings.requests_max > 0 && settings.connections_max > 0, "nobody would be served");
        Nbd { env, exports, tls, settings }
    }

    /// Serves connections until `shutdown` completes, then ends them in order.
    pub async fn serve(&self, listener: impl Into<Listener>, shutdown: impl Future<Output = ()>) {
        let (listener, settings, clock) = (listener.into(), &self.settings, &self.env.clock);
        let room = Arc::new(Semaphore::new(settings.connections_max as usize));
        let (stage, watching) = watch::channel(Stage::Serving);
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            let next = async {
                let permit = room.clone().acquire_owned().await.expect("nobody closes it");
                listener.accept().await.map(|accepted| (accepted, permit))
            };
            let accepted = tokio::select! {
                biased;
                () = &mut shutdown => break,
                accepted = next => accepted,
            };
            let ((stream, peer), permit) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file handles, most likely: existing connections must end before a new one can begin.
                    tracing::warn!(%error, "a connection could not be taken");
                    clock.sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (server, watching) = (self.clone(), watching.clone());
            let task = async move {
                let hung_up = peer.hung_up(&*server.env.clock);
                if let Err(error) = server.serve_connection(stream, hung_up, watching).await {
                    tracing::debug!(error = &error as &dyn std::error::Error, "a connection ended out of order");
                }
                drop(permit);
            };
            self.env.tasks.spawn("nbd connection", Box::pin(task));
        }
        drop(listener);
        stage.send_replace(Stage::Ending);
        let all_ended = room.acquire_many(settings.connections_max);
        if timeout(&**clock, settings.grace, all_ended).await.is_none() {
            tracing::warn!(grace = ?settings.grace, "closing connections whose requests did not end in time");
        }
        stage.send_replace(Stage::Closed);
        let _ = timeout(&**clock, CLOSE_TIME_MAX, room.acquire_many(settings.connections_max)).await;
    }

    async fn serve_connection(
        &self,
        stream: Box<dyn Stream>,
        hung_up: impl Future<Output = ()>,
        mut stage: watch::Receiver<Stage>,
    ) -> Result<(), NbdError> {
        let handshake = negotiate(stream, &self.tls, &*self.exports);
        let agreed = tokio::select! {
            biased;
            _ = stage.wait_for(|stage| *stage != Stage::Serving) => return Ok(()),
            agreed = timeout(&*self.env.clock, self.settings.handshake_time_max, handshake) => agreed,
        };
        let Some(agreed) = agreed.ok_or(NbdError::HandshakeTooSlow)?? else { return Ok(()) };
        let room = Room { requests_max: self.settings.requests_max, bytes_max: self.settings.bytes_max };
        let mut session = Session::new(agreed, room);
        let mut hung_up = std::pin::pin!(hung_up);
        let mut is_there = true;
        let ended = loop {
            tokio::select! {
                biased;
                _ = stage.wait_for(|stage| *stage != Stage::Serving) => break None,
                ended = poll_fn(|cx| session.poll(cx)) => break Some(ended),
                () = &mut hung_up, if is_there => {
                    is_there = false;
                    session.hang_up();
                }
            }
        };
        let ended = match ended {
            Some(ended) => ended,
            None => {
                session.stop();
                tokio::select! {
                    biased;
                    _ = stage.wait_for(|stage| *stage == Stage::Closed) => return Ok(()),
                    ended = poll_fn(|cx| session.poll(cx)) => ended,
                }
            }
        };
        // With TLS, a word of farewell.
        let mut stream = session.into_stream();
        if ended.is_ok() {
            let _ = timeout(&*self.env.clock, CLOSE_TIME_MAX, stream.shutdown()).await;
        }
        ended
    }
}

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const CLOSE_TIME_MAX: Duration = Duration::from_secs(1);

/// Where nothing was sent or received for so long, the client's kernel is asked whether it is there.
const PROBE_AFTER: Duration = Duration::from_secs(60);
/// How often it is asked while it does not answer.
const PROBE_EVERY: Duration = Duration::from_secs(10);
/// As many questions without an answer are the end.
const PROBES_MAX: u32 = 6;
/// The end for a client that does not acknowledge, or has no room for, what is sent to it: long enough for a network that
/// is rebuilt, or a client that is stopped for a moment.
const UNHEARD_MAX: Duration = Duration::from_secs(120);

const _: () = assert!(
    PROBE_AFTER.as_secs() + PROBES_MAX as u64 * PROBE_EVERY.as_secs() == UNHEARD_MAX.as_secs(),
    "the kernel counts time, not questions, where both are given"
);

#[cfg(test)]
mod tests;
