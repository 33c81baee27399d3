//! A whole session over given bytes, for a fuzz target.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use bytes::Bytes;
use claystone_volume::testing::MemoryBlocks;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::handshake::negotiate;
use crate::session::{Room, Session};
use crate::{Export, Exports, Listed, NoExport, Tls};

/// What a client sends, then its end; whatever is answered is forgotten.
struct Given(Bytes);

impl AsyncRead for Given {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let count = self.0.len().min(into.remaining());
        into.put_slice(&self.0.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Given {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

struct One(Arc<MemoryBlocks>);

#[async_trait]
impl Exports for One {
    async fn list(&self) -> Vec<Listed> {
        vec![Listed { name: "v".to_owned(), description: String::new() }]
    }

    async fn open(&self, name: &str) -> Result<Export, NoExport> {
        let listed = Listed { name: "v".to_owned(), description: String::new() };
        match name {
            "" | "v" => Ok(Export { listed, blocks: self.0.clone() }),
            "w" => Err(NoExport::Refused { reason: "not now".to_owned() }),
            _ => Err(NoExport::Missing),
        }
    }
}

/// Serves a client that sends `bytes`, on a device of 1 MiB in memory.
///
/// # Panics
/// If the server panics, which is what is looked for.
pub fn session(bytes: &[u8]) {
    let exports = One(Arc::new(MemoryBlocks::new(1 << 20, 4096)));
    futures::executor::block_on(async {
        let stream = Box::new(Given(Bytes::copy_from_slice(bytes)));
        let Ok(Some(agreed)) = negotiate(stream, &Tls::Off, &exports).await else { return };
        let mut session = Session::new(agreed, Room { requests_max: 16, bytes_max: 32 << 20 });
        let _ = poll_fn(|cx| session.poll(cx)).await;
    });
}
