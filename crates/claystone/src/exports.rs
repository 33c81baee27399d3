//! Volumes, their snapshots and strands as the NBD server's exports: opened when a client asks for one, held while it uses it.
//!
//! Invariants:
//! 1. An export holds its volume or snapshot until its last client is gone, so that nobody deletes it meanwhile.
//! 2. Requests of clients count as foreground load: upkeep goes out of their way.
//!
//! No volume is served by no name: which one would be meant changes when volumes come and go.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use claystone_chunk::ByteRange;
use claystone_keeper::Activity;
use claystone_meta::{MetaError, SnapshotRecord, VolumeRecord};
use claystone_nbd::{Export, Exports, Listed, NoExport};
use claystone_volume::{
    Access, Blocks, BlocksError, Durable, FoundSnapshot, Scratch, Span, StrandName, Stretch, VolumeError, Volumes,
    Zeroing,
};

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
        match self.find().await {
            Ok(listed) => listed,
            Err(error) => {
                tracing::warn!(%error, "volumes cannot be listed");
                Vec::new()
            }
        }
    }

    async fn open(&self, name: &str) -> Result<Export, NoExport> {
        let opened = match () {
            () if name.contains(':') => self.open_strand(name).await,
            () if name.contains('@') => self.open_snapshot(name).await,
            () => self.open_volume(name).await,
        };
        match opened {
            Ok((blocks, description)) => {
                let blocks = Arc::new(Served { blocks, activity: self.activity.clone() });
                Ok(Export { listed: Listed { name: name.to_owned(), description }, blocks })
            }
            Err(error) => match no_export(error) {
                NoExport::Refused { reason } => {
                    tracing::warn!(volume = name, reason, "a client gets no volume");
                    Err(NoExport::Refused { reason })
                }
                missing @ NoExport::Missing => Err(missing),
            },
        }
    }
}

/// A device, and what it is in a few words.
type Opened = (Arc<dyn Blocks>, String);

impl VolumeExports {
    /// All volumes by name, each with its strands and snapshots behind it, and theirs.
    async fn find(&self) -> Result<Vec<Listed>, VolumeError> {
        let snapshots = self.volumes.snapshots().await?;
        let mut listed = Vec::new();
        for volume in self.volumes.list().await? {
            let own = snapshots.iter().filter(|snapshot| snapshot.record.volume == volume.id);
            listed.push(Listed { name: volume.name.clone(), description: volume.redundancy.to_string() });
            listed.extend(strands(&volume, None));
            for FoundSnapshot { record, .. } in own {
                listed.push(Listed { name: record.full_name(), description: snapshot_description(record) });
                listed.extend(strands(&volume, Some(&record.name)));
            }
        }
        let scratches = self.volumes.scratches().into_iter();
        listed.extend(scratches.map(|scratch| Listed { name: scratch.name.clone(), description: described(&scratch) }));
        Ok(listed)
    }

    async fn open_volume(&self, name: &str) -> Result<Opened, VolumeError> {
        if let Some(scratch) = self.volumes.scratch(name) {
            if let Some(reason) = scratch.device.failure() {
                return Err(BlocksError::Failed { reason: reason.to_owned() }.into());
            }
            return Ok((scratch.device.clone(), described(&scratch)));
        }
        let volume = self.volumes.open(name).await?;
        let description = volume.record().redundancy.to_string();
        Ok((Arc::new(volume), description))
    }

    async fn open_strand(&self, name: &str) -> Result<Opened, VolumeError> {
        let strand = self.volumes.open_strand(&name.parse()?).await?;
        let description = strand_description(strand.name());
        Ok((Arc::new(strand), description))
    }

    async fn open_snapshot(&self, name: &str) -> Result<Opened, VolumeError> {
        let snapshot = self.volumes.open_snapshot(&name.parse()?).await?;
        let description = snapshot_description(snapshot.record());
        Ok((Arc::new(snapshot), description))
    }
}

/// What a client is told where there is nothing to use.
fn no_export(error: VolumeError) -> NoExport {
    match error {
        VolumeError::Meta(MetaError::NoSuchVolume { .. } | MetaError::NoSuchSnapshot { .. })
        | VolumeError::NoSuchStrand { .. }
        | VolumeError::BadStrandName { .. }
        | VolumeError::BadName { .. }
        | VolumeError::BadSnapshotName { .. } => NoExport::Missing,
        error => NoExport::Refused { reason: format!("{:#}", anyhow::Error::from(error)) },
    }
}

/// The strands of a volume, or of a snapshot of it.
fn strands(volume: &VolumeRecord, snapshot: Option<&String>) -> impl Iterator<Item = Listed> {
    let names = volume.homes.iter().map(move |home| StrandName {
        volume: volume.name.clone(),
        home: home.clone(),
        snapshot: snapshot.cloned(),
    });
    names.map(|name| Listed { name: name.to_string(), description: strand_description(&name) })
}

fn strand_description(name: &StrandName) -> String {
    let reads = if name.snapshot.is_some() { ", of a snapshot: read-only" } else { "" };
    format!("what {} has on {}{reads}", name.volume, name.home)
}

fn described(scratch: &Scratch) -> String {
    format!("{}, {}: gone when the store stops", scratch.code, scratch.device.method())
}

fn snapshot_description(record: &SnapshotRecord) -> String {
    format!("{}, a snapshot: read-only", record.redundancy)
}

/// A volume or a snapshot that clients use.
struct Served {
    blocks: Arc<dyn Blocks>,
    activity: Activity,
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.blocks.fmt(f)
    }
}

#[async_trait]
impl Blocks for Served {
    fn bytes(&self) -> u64 {
        self.blocks.bytes()
    }

    fn page_bytes(&self) -> u32 {
        self.blocks.page_bytes()
    }

    fn access(&self) -> Access {
        self.blocks.access()
    }

    async fn read(&self, range: ByteRange) -> Result<Vec<Stretch>, BlocksError> {
        let _request = self.activity.begin();
        self.blocks.read(range).await
    }

    async fn write(&self, offset: u64, content: Bytes, durable: Durable) -> Result<(), BlocksError> {
        let _request = self.activity.begin();
        self.blocks.write(offset, content, durable).await
    }

    async fn write_zeroes(&self, range: ByteRange, how: Zeroing) -> Result<(), BlocksError> {
        let _request = self.activity.begin();
        self.blocks.write_zeroes(range, how).await
    }

    async fn flush(&self) -> Result<(), BlocksError> {
        let _request = self.activity.begin();
        self.blocks.flush().await
    }

    async fn spans(&self, range: ByteRange, spans_max: usize) -> Result<Vec<Span>, BlocksError> {
        self.blocks.spans(range, spans_max).await
    }
}

#[cfg(test)]
mod tests {
    use claystone_volume::SnapshotName;

    use super::*;

    #[test]
    fn only_what_is_not_there_is_missing() {
        let name = "v".to_owned();
        let bad = "v@".parse::<SnapshotName>().expect_err("no name");
        for missing in [bad, MetaError::NoSuchVolume { name: name.clone() }.into()] {
            assert_eq!(no_export(missing), NoExport::Missing);
        }
        let absent = VolumeError::LogAbsent { name, absent: Vec::new() };
        for (refused, word) in [(absent, "absent"), (MetaError::Full.into(), "no space left for metadata")] {
            let NoExport::Refused { reason } = no_export(refused) else { panic!("it is there") };
            assert!(reason.contains(word), "{reason}");
        }
    }
}
