//! Volumes as the NBD server's exports: opened when a client asks for one, held while it uses it.
//!
//! Invariants:
//! 1. An export holds its volume until its last client is gone, so that nobody deletes it meanwhile.
//! 2. Requests of clients count as foreground load: upkeep goes out of their way.
//!
//! No volume is served by no name: which one would be meant changes when volumes come and go.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use claystone_chunk::ByteRange;
use claystone_keeper::Activity;
use claystone_meta::MetaError;
use claystone_nbd::{Export, Exports, Listed};
use claystone_volume::{Access, Blocks, BlocksError, Durable, Span, Stretch, Volume, VolumeError, Volumes, Zeroing};

/// The volumes of a store.
pub struct VolumeExports {
    /// The volumes.
    pub volumes: Volumes,
    /// Who learns of requests.
    pub activity: Activity,
}

#[async_trait]
impl Exports for VolumeExports {
    async fn list(&self) -> Vec<Listed> {
        match self.volumes.list().await {
            Ok(volumes) => {
                let listed = |volume: claystone_meta::VolumeRecord| Listed {
                    name: volume.name,
                    description: volume.code.to_string(),
                };
                volumes.into_iter().map(listed).collect()
            }
            Err(error) => {
                tracing::warn!(%error, "volumes cannot be listed");
                Vec::new()
            }
        }
    }

    async fn open(&self, name: &str) -> Option<Export> {
        match self.volumes.open(name).await {
            Ok(volume) => {
                let description = volume.record().code.to_string();
                let blocks = Arc::new(Served { volume, activity: self.activity.clone() });
                Some(Export { listed: Listed { name: name.to_owned(), description }, blocks })
            }
            Err(VolumeError::Meta(MetaError::NoSuchVolume { .. })) => None,
            Err(error) => {
                tracing::warn!(volume = name, %error, "a client gets no volume");
                None
            }
        }
    }
}

/// A volume that clients use.
struct Served {
    volume: Volume,
    activity: Activity,
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.volume.fmt(f)
    }
}

#[async_trait]
impl Blocks for Served {
    fn bytes(&self) -> u64 {
        self.volume.bytes()
    }

    fn page_bytes(&self) -> u32 {
        self.volume.page_bytes()
    }

    fn access(&self) -> Access {
        self.volume.access()
    }

    async fn read(&self, range: ByteRange) -> Result<Vec<Stretch>, BlocksError> {
        let _request = self.activity.begin();
        self.volume.read(range).await
    }

    async fn write(&self, offset: u64, content: Bytes, durable: Durable) -> Result<(), BlocksError> {
        let _request = self.activity.begin();
        self.volume.write(offset, content, durable).await
    }

    async fn write_zeroes(&self, range: ByteRange, how: Zeroing) -> Result<(), BlocksError> {
        let _request = self.activity.begin();
        self.volume.write_zeroes(range, how).await
    }

    async fn flush(&self) -> Result<(), BlocksError> {
        let _request = self.activity.begin();
        self.volume.flush().await
    }

    async fn spans(&self, range: ByteRange, spans_max: usize) -> Result<Vec<Span>, BlocksError> {
        self.volume.spans(range, spans_max).await
    }
}
