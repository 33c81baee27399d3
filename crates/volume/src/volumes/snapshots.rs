//! Snapshots of the volumes of a store: taken, read, cloned, gone back to, deleted.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Weak};

use claystone_chunk::Term;
use claystone_meta::{LogRecord, MetaError, SnapshotId, SnapshotRecord, SnapshotTally, StripeRecord, VolumeRecord};

use super::slot::Slot;
use super::{Volumes, check_name, is_name};
use crate::VolumeError;
use crate::snapshot::{Snapshot, SnapshotInner};

/// `VOLUME@SNAPSHOT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotName {
    /// The volume's name.
    pub volume: String,
    /// The snapshot's own.
    pub snapshot: String,
}

impl FromStr for SnapshotName {
    type Err = VolumeError;

    fn from_str(text: &str) -> Result<SnapshotName, VolumeError> {
        let (volume, snapshot) =
            text.split_once('@').ok_or_else(|| VolumeError::BadSnapshotName { name: text.to_owned() })?;
        check_name(volume)?;
        check_snapshot_name(snapshot)?;
        Ok(SnapshotName { volume: volume.to_owned(), snapshot: snapshot.to_owned() })
    }
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.volume, self.snapshot)
    }
}

/// A snapshot and how it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSnapshot {
    /// Its record.
    pub record: SnapshotRecord,
    /// Who reads it.
    pub users: usize,
}

impl Volumes {
    /// Takes a snapshot of a volume: all that was acknowledged before this was called, and nothing of what is written after
    /// it returned. Writers go on. The volume is opened if it is not.
    ///
    /// # Errors
    /// `BadSnapshotName`, `Meta` (the name is taken), `NotMerged`, `Blocks`, and all of opening.
    pub async fn take_snapshot(&self, name: &SnapshotName) -> Result<SnapshotRecord, VolumeError> {
        check_snapshot_name(&name.snapshot)?;
        let volume = self.open(&name.volume).await?;
        // Found out before anything is merged for it.
        let taken = self.meta.snapshots().await?.into_iter().map(|snapshot| snapshot.full_name());
        if taken.into_iter().any(|taken| taken == name.to_string()) {
            return Err(MetaError::SnapshotExists { name: name.to_string() }.into());
        }
        volume.snapshot(&name.snapshot).await
    }

    /// A snapshot, to be read.
    ///
    /// # Errors
    /// `Meta` (there is none).
    pub async fn open_snapshot(&self, name: &SnapshotName) -> Result<Snapshot, VolumeError> {
        // Under the lock: who deletes it comes before, and it is not found, or after, and finds it in use.
        let mut open = self.snapshots.lock().await;
        let record = self.meta.snapshot(&name.volume, &name.snapshot).await?;
        if let Some(inner) = open.get(&record.id).and_then(Weak::upgrade) {
            return Ok(Snapshot { inner });
        }
        open.retain(|_, inner| inner.strong_count() > 0);
        let id = record.id;
        let snapshot = Snapshot::new(self.env.clock.clone(), self.meta.clone(), self.stripes.clone(), record);
        open.insert(id, Arc::downgrade(&snapshot.inner));
        Ok(snapshot)
    }

    /// All snapshots, by volume and in the order they were taken.
    ///
    /// # Errors
    /// `Meta`.
    pub async fn snapshots(&self) -> Result<Vec<FoundSnapshot>, VolumeError> {
        let records = self.meta.snapshots().await?;
        let open = self.snapshots.lock().await;
        Ok(records.into_iter().map(|record| FoundSnapshot { users: users(&open, record.id), record }).collect())
    }

    /// What a snapshot holds, and what its delete would give back.
    ///
    /// # Errors
    /// `Meta`.
    pub async fn snapshot_tally(&self, id: SnapshotId) -> Result<SnapshotTally, VolumeError> {
        Ok(self.meta.snapshot_tally(id).await?)
    }

    /// Deletes a snapshot that nobody reads. Returns the stripes that are dead now.
    ///
    /// # Errors
    /// `SnapshotInUse`, `Meta` (there is none).
    pub async fn delete_snapshot(&self, name: &SnapshotName) -> Result<Vec<StripeRecord>, VolumeError> {
        let mut open = self.snapshots.lock().await;
        let record = self.meta.snapshot(&name.volume, &name.snapshot).await?;
        if users(&open, record.id) > 0 {
            return Err(VolumeError::SnapshotInUse { name: name.to_string() });
        }
        let dead = self.meta.delete_snapshot(record.id).await?;
        open.remove(&record.id);
        self.try_all_again();
        Ok(dead)
    }

    /// Whoever had stripes with somebody who is gone may have them alone now, and needs no disks for new ones.
    pub(super) fn try_all_again(&self) {
        let slots: Vec<Arc<Slot>> = self.slots().values().cloned().collect();
        // Nobody becomes a user of the volume by this.
        let inners = slots.iter().filter_map(|slot| slot.state().volume().map(|volume| volume.inner.clone()));
        inners.for_each(|inner| inner.try_all_again());
    }

    /// Makes a volume that has what a snapshot has, and shares its stripes until one of them is written.
    ///
    /// # Errors
    /// `BadName`, `Meta` (there is no such snapshot, or the name is taken).
    pub async fn clone_snapshot(&self, from: &SnapshotName, name: &str) -> Result<VolumeRecord, VolumeError> {
        check_name(name)?;
        let _taken = self.take_name(name).await?;
        let snapshot = self.meta.snapshot(&from.volume, &from.snapshot).await?;
        let source = self.meta.volume(&from.volume).await?;
        let record = VolumeRecord {
            id: self.new_id(),
            name: name.to_owned(),
            bytes: snapshot.bytes,
            page_bytes: snapshot.page_bytes,
            chunk_bytes: snapshot.chunk_bytes,
            redundancy: snapshot.redundancy,
            homes: source.homes,
            term: Term(0),
            log: LogRecord::default(),
            log_from: Term(0),
            created: self.env.clock.wall(),
        };
        self.meta.clone_snapshot(snapshot.id, record.clone()).await?;
        Ok(record)
    }

    /// Makes a volume that nobody uses what its snapshot is; what was written since is gone, merged or not. Its length
    /// stays: what lies behind the snapshot's is zeros. Returns the stripes that are dead now.
    ///
    /// # Errors
    /// `InUse`, `Meta` (there is no such snapshot).
    pub async fn revert(&self, to: &SnapshotName) -> Result<Vec<StripeRecord>, VolumeError> {
        let record = self.meta.volume(&to.volume).await?;
        let snapshot = self.meta.snapshot(&to.volume, &to.snapshot).await?;
        let (volumes, slot) = (self.clone(), self.slot(record.id));
        let work = async move {
            let _turn = slot.turn.lock().await;
            volumes.close_unused(&slot, &record).await?;
            let dead = volumes.meta.revert_volume(record.id, snapshot.id).await?;
            volumes.try_all_again();
            // What a merge had left changed in part is dead.
            slot.held.clear();
            slot.state().refused = None;
            Ok(dead)
        };
        let dead = self.in_task("revert volume", work).await?;
        // Opened, it deletes the log that is over.
        if let Err(error) = self.open(&to.volume).await {
            tracing::warn!(volume = to.volume, %error, "a volume that was reverted does not open");
        }
        Ok(dead)
    }
}

fn users(open: &BTreeMap<SnapshotId, Weak<SnapshotInner>>, id: SnapshotId) -> usize {
    open.get(&id).map_or(0, Weak::strong_count)
}

fn check_snapshot_name(name: &str) -> Result<(), VolumeError> {
    if is_name(name) { Ok(()) } else { Err(VolumeError::BadSnapshotName { name: name.to_owned() }) }
}
