//! All volumes of a store: made, opened once, merged in the background, deleted; and their snapshots.
//!
//! Invariants:
//! 1. A volume is opened at most once by one of these; who asks again gets the same.
//! 2. An open volume has one task that merges; it ends with [`Volumes::stop`].

mod snapshots;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, Weak};

use claystone_chunk::{NodeId, OwnerId, StripeId, Term};
use claystone_code::CodeSpec;
use claystone_env::{Env, Task};
use claystone_meta::{Meta, SnapshotId, StripeRecord, VolumeRecord};
use claystone_stripe::{Hold, Stripes};
use tokio::sync::Mutex;

use crate::flusher::flush_in_background;
use crate::open::open;
use crate::snapshot::SnapshotInner;
use crate::{Settings, Volume, VolumeError, VolumeStatus};

/// A volume to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewVolume {
    /// Its name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// The code of its stripes.
    pub code: CodeSpec,
    /// Bytes of its pages.
    pub page_bytes: u32,
    /// Bytes of the chunks of its stripes.
    pub chunk_bytes: u64,
    /// Where its data chunks shall lie.
    pub home: Option<NodeId>,
}

impl NewVolume {
    /// One with pages of 4 KiB and chunks of 1 MiB.
    pub fn new(name: &str, bytes: u64, code: CodeSpec) -> NewVolume {
        NewVolume { name: name.to_owned(), bytes, code, page_bytes: 4096, chunk_bytes: 1 << 20, home: None }
    }
}

pub use self::snapshots::{FoundSnapshot, SnapshotName};

/// The volumes of a store. Cheap to clone; calls may come from many tasks.
#[derive(Clone)]
pub struct Volumes {
    env: Env,
    meta: Arc<dyn Meta>,
    stripes: Stripes,
    settings: Settings,
    open: Arc<Mutex<BTreeMap<OwnerId, Opened>>>,
    /// Stripes of volumes that are not open and may have been left changed in part: nobody decodes or rebuilds them.
    held: Arc<Mutex<BTreeMap<OwnerId, BTreeMap<StripeId, Hold>>>>,
    /// Why a volume did not open when it was to be opened last.
    closed: Arc<std::sync::Mutex<BTreeMap<OwnerId, String>>>,
    /// Snapshots that somebody reads.
    snapshots: Arc<Mutex<BTreeMap<SnapshotId, Weak<SnapshotInner>>>>,
}

/// A volume and how it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Its record.
    pub record: VolumeRecord,
    /// How it is.
    pub state: State,
}

/// How a volume is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Nobody has asked for it.
    Closed,
    /// It is open.
    Open(Box<VolumeStatus>),
    /// It did not open when it was to be opened last.
    Refused {
        /// Why.
        reason: String,
    },
}

struct Opened {
    volume: Volume,
    flusher: Task,
}

impl Volumes {
    /// The volumes that `meta` knows of.
    pub fn new(env: Env, meta: Arc<dyn Meta>, stripes: Stripes, settings: Settings) -> Volumes {
        Volumes {
            env,
            meta,
            stripes,
            settings,
            open: Arc::default(),
            held: Arc::default(),
            closed: Arc::default(),
            snapshots: Arc::default(),
        }
    }

    /// Makes a volume, all of it a hole.
    ///
    /// # Errors
    /// `BadName`, `BadLength`, `BadPages`, `BadChunks`, `BadCode`, `TooWide`, `TooFewDisks`, `Meta` (the name is taken).
    pub async fn create(&self, new: NewVolume) -> Result<VolumeRecord, VolumeError> {
        check(&new)?;
        let chunks_bytes = u64::from(new.code.shape().chunks()) * new.chunk_bytes;
        if !log_fits(&self.settings, chunks_bytes) {
            let (chunk_bytes, segment_bytes) = (new.chunk_bytes, self.settings.segment_bytes);
            return Err(VolumeError::TooWide { code: new.code, chunk_bytes, segment_bytes });
        }
        let needed = usize::from(new.code.disks_min());
        let available = self.stripes.stores().candidates().len();
        if available < needed {
            return Err(VolumeError::TooFewDisks { code: new.code, needed, available });
        }
        let record = VolumeRecord {
            id: self.new_id(),
            name: new.name,
            bytes: new.bytes,
            page_bytes: new.page_bytes,
            chunk_bytes: new.chunk_bytes,
            code: new.code,
            home: new.home,
            term: Term(0),
            log_disks: Vec::new(),
            log_copies: 0,
            log_from: Term(0),
            created: self.env.clock.wall(),
        };
        self.meta.create_volume(record.clone()).await?;
        Ok(record)
    }

    fn new_id(&self) -> OwnerId {
        let mut id = [0; 16];
        self.env.random.fill(&mut id);
        OwnerId(u128::from_be_bytes(id))
    }

    /// All volumes by name.
    ///
    /// # Errors
    /// `Meta`.
    pub async fn list(&self) -> Result<Vec<VolumeRecord>, VolumeError> {
        Ok(self.meta.volumes().await?)
    }

    /// A volume, opened if it is not.
    ///
    /// # Errors
    /// `Meta` (there is none of this name), and all of opening: `LogAbsent`, `LogDamaged`, `LeaseEnded`, `Log`, `Blocks`.
    pub async fn open(&self, name: &str) -> Result<Volume, VolumeError> {
        let record = self.meta.volume(name).await?;
        // Under the lock: who comes meanwhile waits and gets the same.
        let mut opened = self.open.lock().await;
        if let Some(already) = opened.get(&record.id)
            && !already.volume.has_failed()
        {
            return Ok(already.volume.clone());
        }
        // It failed: its clients see so, and whoever comes now gets a new one, with the stripes that a merge left in part.
        if let Some(failed) = opened.remove(&record.id) {
            self.keep(record.id, failed).await;
        }
        let mut held = self.held.lock().await.remove(&record.id).unwrap_or_default();
        let (meta, stripes) = (self.meta.clone(), self.stripes.clone());
        let volume = open(&self.env, meta, stripes, self.settings.clone(), &record, &mut held).await;
        if volume.is_err() {
            self.hold_all(&record, held).await;
        }
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        let volume = match volume {
            Ok(volume) => volume,
            Err(error) => {
                closed.insert(record.id, error.to_string());
                return Err(error);
            }
        };
        closed.remove(&record.id);
        drop(closed);
        let flusher = flush_in_background(&self.env, &volume);
        opened.insert(record.id, Opened { volume: volume.clone(), flusher });
        Ok(volume)
    }

    /// Ends what an open volume does, and keeps the stripes that it left changed in part.
    async fn keep(&self, id: OwnerId, opened: Opened) {
        opened.flusher.cancel();
        opened.flusher.ended().await;
        let inner = &opened.volume.inner;
        // A merge that has begun comes to an end.
        let _merging = inner.merging.lock().await;
        let mut held = self.held.lock().await;
        held.entry(id).or_default().append(&mut inner.kept());
    }

    /// Of a volume that does not open it is not known which stripes were left changed in part. None of those that it shares
    /// was.
    async fn hold_all(&self, record: &VolumeRecord, mut held: BTreeMap<StripeId, Hold>) {
        let mut after = None;
        while let Ok(page) = self.meta.volume_stripes(record.id, after, STRIPES_PAGE).await {
            let Some((last, _)) = page.last() else { break };
            after = Some(*last);
            let ids: Vec<StripeId> = page.into_iter().map(|(_, stripe)| stripe.id).collect();
            let shared = self.meta.shared(&ids).await.unwrap_or_default();
            for id in ids {
                if shared.binary_search(&id).is_err()
                    && let Some(hold) = self.stripes.try_alone(id)
                {
                    held.insert(id, hold);
                }
            }
        }
        self.held.lock().await.insert(record.id, held);
    }

    /// Opens every volume that has a log, so that what a crash interrupted is finished. Returns those that do not open.
    ///
    /// # Errors
    /// `Meta`: it is not known which volumes there are.
    pub async fn recover(&self) -> Result<Vec<(String, VolumeError)>, VolumeError> {
        let mut failed = Vec::new();
        for record in self.list().await? {
            if record.log_disks.is_empty() {
                continue;
            }
            if let Err(error) = self.open(&record.name).await {
                failed.push((record.name, error));
            }
        }
        Ok(failed)
    }

    /// All volumes by name, and how they are. Opens none.
    ///
    /// # Errors
    /// `Meta`.
    pub async fn look(&self) -> Result<Vec<Found>, VolumeError> {
        let records = self.list().await?;
        let opened = self.open.lock().await;
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        let found = records.into_iter().map(|record| {
            let state = match (opened.get(&record.id), closed.get(&record.id)) {
                (Some(opened), _) => State::Open(Box::new(opened.volume.status())),
                (None, Some(reason)) => State::Refused { reason: reason.clone() },
                (None, None) => State::Closed,
            };
            Found { record, state }
        });
        Ok(found.collect())
    }

    /// How many stripes a volume has in the records.
    ///
    /// # Errors
    /// `Meta`.
    pub async fn stripes(&self, volume: OwnerId) -> Result<u64, VolumeError> {
        let (mut count, mut after) = (0, None);
        loop {
            let page = self.meta.volume_stripes(volume, after, STRIPES_PAGE).await?;
            let Some((last, _)) = page.last() else { return Ok(count) };
            after = Some(*last);
            count += page.len() as u64;
        }
    }

    /// Makes a volume longer; it is no error if it has this length.
    ///
    /// # Errors
    /// `BadLength`, `Meta` (there is none, or it is longer).
    pub async fn grow(&self, name: &str, bytes: u64) -> Result<VolumeRecord, VolumeError> {
        let record = self.meta.volume(name).await?;
        check_length(bytes, record.page_bytes)?;
        let grown = self.meta.grow_volume(record.id, bytes).await?;
        if let Some(opened) = self.open.lock().await.get(&record.id) {
            opened.volume.grown(bytes);
        }
        Ok(grown)
    }

    /// Deletes a volume that nobody uses. Returns the stripes that are dead now.
    ///
    /// # Errors
    /// `InUse`, `HasSnapshots`, `Meta` (there is none).
    pub async fn delete(&self, name: &str) -> Result<Vec<StripeRecord>, VolumeError> {
        let record = self.meta.volume(name).await?;
        let snapshots = self.meta.snapshots().await?.into_iter().filter(|snapshot| snapshot.volume == record.id);
        let snapshots: Vec<String> = snapshots.map(|snapshot| snapshot.full_name()).collect();
        if !snapshots.is_empty() {
            return Err(VolumeError::HasSnapshots { name: name.to_owned(), snapshots });
        }
        let mut opened = self.open.lock().await;
        self.close_unused(&record, &mut opened).await?;
        let dead = self.meta.delete_volume(record.id).await?;
        self.closed.lock().unwrap_or_else(PoisonError::into_inner).remove(&record.id);
        self.held.lock().await.remove(&record.id);
        self.forget_log(&record).await;
        Ok(dead)
    }

    /// Closes a volume that nobody uses.
    async fn close_unused(
        &self,
        record: &VolumeRecord,
        opened: &mut BTreeMap<OwnerId, Opened>,
    ) -> Result<(), VolumeError> {
        if opened.get(&record.id).is_some_and(|opened| opened.volume.users() > 0) {
            return Err(VolumeError::InUse { name: record.name.clone() });
        }
        if let Some(opened) = opened.remove(&record.id) {
            self.keep(record.id, opened).await;
        }
        Ok(())
    }

    /// Segments of a volume that is no more. What an absent disk keeps of them stays there.
    async fn forget_log(&self, record: &VolumeRecord) {
        let lease = claystone_chunk::Lease { owner: record.id, term: Term(u64::MAX) };
        for member in self.stripes.stores().members() {
            let Some(store) = self.stripes.stores().readable(member.record.id) else { continue };
            if let Err(error) = store.segments().forget_owner(lease).await {
                tracing::debug!(disk = %member.record.id, %error, "the log of a deleted volume was left");
            }
        }
    }

    /// Ends the merging of all open volumes, and syncs them.
    pub async fn stop(&self) {
        for (id, opened) in std::mem::take(&mut *self.open.lock().await) {
            let volume = opened.volume.clone();
            self.keep(id, opened).await;
            if let Err(error) = crate::Blocks::flush(&volume).await {
                tracing::warn!(?volume, %error, "a volume could not be synced at its end");
            }
            // Clients that are left see that it is over; nothing merges any more.
            volume.inner.close("the store is stopping");
        }
    }
}

fn check(new: &NewVolume) -> Result<(), VolumeError> {
    check_name(&new.name)?;
    if !matches!(new.page_bytes, 1024 | 2048 | 4096 | 8192) {
        return Err(VolumeError::BadPages { page_bytes: new.page_bytes });
    }
    check_length(new.bytes, new.page_bytes)?;
    let columns = new.code.shape().data;
    let geometry = crate::Geometry { page_bytes: new.page_bytes, chunk_bytes: new.chunk_bytes, columns };
    if !geometry.is_sound() || new.chunk_bytes > CHUNK_BYTES_MAX {
        return Err(VolumeError::BadChunks { chunk_bytes: new.chunk_bytes });
    }
    let shape = new.code.shape();
    if shape.alpha != 1 || shape.parity == 0 {
        return Err(VolumeError::BadCode { code: new.code });
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), VolumeError> {
    if is_name(name) { Ok(()) } else { Err(VolumeError::BadName { name: name.to_owned() }) }
}

/// Whether a volume, or a snapshot, can have this name.
fn is_name(name: &str) -> bool {
    let mut letters = name.chars();
    let first = letters.next().is_some_and(|letter| letter.is_ascii_alphanumeric());
    let rest = letters.all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-'));
    first && rest && name.len() <= NAME_BYTES_MAX
}

fn check_length(bytes: u64, page_bytes: u32) -> Result<(), VolumeError> {
    if bytes == 0 || !bytes.is_multiple_of(page_bytes.into()) || bytes > BYTES_MAX {
        return Err(VolumeError::BadLength { bytes, page_bytes, bytes_max: BYTES_MAX });
    }
    Ok(())
}

/// Whether a segment of the log takes what is logged of stripes of so many bytes.
pub(crate) fn log_fits(settings: &Settings, chunks_bytes: u64) -> bool {
    settings.segment_bytes >= segment_bytes_min(chunks_bytes)
}

/// The least bytes of a segment for stripes of so many bytes, parity included: the longest record fits.
pub(crate) const fn segment_bytes_min(chunks_bytes: u64) -> u64 {
    2 * chunks_bytes + (4 << 20)
}

const STRIPES_PAGE: usize = 1000;
const NAME_BYTES_MAX: usize = 128;
/// More than any log takes.
const CHUNK_BYTES_MAX: u64 = 1 << 30;
/// 1 PiB.
const BYTES_MAX: u64 = 1 << 50;
