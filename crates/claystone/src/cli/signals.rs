//! The signals that ask a program to end.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Both of them.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// From now on they are received, and end nothing by themselves.
    ///
    /// # Errors
    /// The system does not let us.
    pub fn new() -> anyhow::Result<Signals> {
        let listen = |kind| signal(kind).context("signals cannot be received");
        Ok(Signals { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// The next one's name.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
