//! The other end of a connection: whether it is still there, when nobody reads what it sent.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use claystone_env::Clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A client's end, as the kernel knows it. It keeps the connection open: drop it with its stream.
#[derive(Debug)]
pub(crate) struct Peer(OwnedFd);

impl Peer {
    /// The other end of a socket.
    ///
    /// # Errors
    /// There are no file handles.
    pub(crate) fn of(socket: &impl AsFd) -> io::Result<Peer> {
        socket.as_fd().try_clone_to_owned().map(Peer)
    }

    /// Returns when it sends nothing any more, a little later. What it sent before may be there to be read yet.
    pub(crate) async fn hung_up(&self, clock: &dyn Clock) {
        while !self.has_hung_up() {
            clock.sleep(LOOK_EVERY).await;
        }
    }

    fn has_hung_up(&self) -> bool {
        let mut ends = [PollFd::new(&self.0, PollFlags::RDHUP)];
        // Errors and an end of both directions are told whatever is asked for.
        poll(&mut ends, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|count| count > 0)
    }
}

const LOOK_EVERY: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::UnixStream;

    use super::*;

    #[tokio::test]
    async fn an_end_is_seen_before_what_was_sent_is_read() {
        let (mut client, server) = UnixStream::pair().expect("two sockets");
        let peer = Peer::of(&server).expect("a file handle");
        client.write_all(b"unread").await.expect("sent");
        assert!(!peer.has_hung_up());
        drop(client);
        assert!(peer.has_hung_up());
        let env = claystone_host::env().expect("an environment");
        peer.hung_up(&*env.clock).await;
    }
}
