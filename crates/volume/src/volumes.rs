//! All volumes of a store: made, opened once, merged in the background, deleted; and their snapshots.
//!
//! Invariants:
//! 1. A volume is opened at most once by one of these; who asks again gets the same.
//! 2. An open volume has one task that merges; it ends with [`Volumes::stop`].
//! 3. Opening and deleting one holds up nobody who uses, lists or opens another.

mod scratch;
mod slot;
mod snapshots;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

use claystone_chunk::{DiskId, Lease, NodeId, OwnerId, Term};
use claystone_code::ChunkIndex;
use claystone_env::{Env, timeout};
use claystone_meta::{
    DiskState, LogRecord, Meta, MetaError, Redundancy, RedundancyError, SnapshotId, StripeRecord, VolumeRecord,
};
use claystone_stripe::{Candidate, Stripes, place_at_home};
use tokio::sync::Mutex;

use crate::homes::{chunks_at_home, homes_of};
use crate::snapshot::SnapshotInner;
use crate::switch::bound_of;
use crate::task::to_its_end;
use crate::{Blocks, Settings, Strand, StrandName, Volume, VolumeError, VolumeStatus};

/// A volume to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewVolume {
    /// Its name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// What its stripes get.
    pub redundancy: Redundancy,
    /// Bytes of its pages.
    pub page_bytes: u32,
    /// Bytes of the chunks of its stripes.
    pub chunk_bytes: u64,
    /// The nodes where its data chunks shall lie, of each as many.
    pub homes: Vec<NodeId>,
}

impl NewVolume {
    /// One with pages of 4 KiB and chunks of 1 MiB, without homes.
    pub fn new(name: &str, bytes: u64, redundancy: Redundancy) -> NewVolume {
        let homes = Vec::new();
        NewVolume { name: name.to_owned(), bytes, redundancy, page_bytes: 4096, chunk_bytes: 1 << 20, homes }
    }
}

pub use self::scratch::Scratch;
use self::scratch::Scratches;
pub(crate) use self::slot::Held;
use self::slot::{Slot, cut_off};
pub use self::snapshots::{FoundSnapshot, SnapshotName};

/// The volumes of a store. Cheap to clone; calls may come from many tasks.
#[derive(Clone)]
pub struct Volumes {
    env: Env,
    meta: Arc<dyn Meta>,
    stripes: Stripes,
    settings: Settings,
    slots: Arc<std::sync::Mutex<BTreeMap<OwnerId, Arc<Slot>>>>,
    /// Snapshots that somebody reads.
    snapshots: Arc<Mutex<BTreeMap<SnapshotId, Weak<SnapshotInner>>>>,
    /// What no record names.
    scratches: Arc<Scratches>,
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

/// What [`Volumes::recover`] found.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Volumes that do not open, and why; by their ids those whose records cannot be read.
    pub refused: Vec<(String, VolumeError)>,
    /// Of these, those of which not all stripes are held that a crash may have left changed in part: nothing may be repaired.
    pub unprotected: Vec<String>,
}

impl Volumes {
    /// The volumes that `meta` knows of.
    ///
    /// # Panics
    /// If segments have 2 GiB or more.
    pub fn new(env: Env, meta: Arc<dyn Meta>, stripes: Stripes, settings: Settings) -> Volumes {
        assert!(settings.segment_bytes < 1 << 31, "segments have less than 2 GiB");
        let (slots, snapshots, scratches) = (Arc::default(), Arc::default(), Arc::default());
        Volumes { env, meta, stripes, settings, slots, snapshots, scratches }
    }

    /// Makes a volume, all of it a hole.
    ///
    /// # Errors
    /// `BadName`, `BadLength`, `BadPages`, `BadChunks`, `BadCode`, `Redundancy`, `BadHome`, `UnevenHomes`, `NotWholeStripes`, `TooWide`,
    /// `TooFewDisks`, `TooFewAtHome`, `TooFewNodes`, `Meta` (the name is taken).
    pub async fn create(&self, new: NewVolume) -> Result<VolumeRecord, VolumeError> {
        check(&new)?;
        self.check_fits(&new, &self.settings.of_volume(&new.redundancy, new.bytes))?;
        self.check_at_home(&new)?;
        let _taken = self.take_name(&new.name).await?;
        let record = VolumeRecord {
            id: self.new_id(),
            name: new.name.clone(),
            bytes: new.bytes,
            page_bytes: new.page_bytes,
            chunk_bytes: new.chunk_bytes,
            redundancy: new.redundancy,
            homes: new.homes,
            term: Term(0),
            log: LogRecord::default(),
            log_from: Term(0),
            created: self.env.clock.wall(),
        };
        self.meta.create_volume(record.clone()).await?;
        Ok(record)
    }

    /// Whether the disks there are and a segment of the log have room for it, and the bound on its space for it and its log.
    fn check_fits(&self, new: &NewVolume, settings: &Settings) -> Result<(), VolumeError> {
        let code = new.redundancy.code;
        let chunks_bytes = u64::from(new.redundancy.chunks_max()) * new.chunk_bytes;
        if !log_fits(settings, chunks_bytes) {
            let (chunk_bytes, segment_bytes) = (new.chunk_bytes, settings.segment_bytes);
            return Err(VolumeError::TooWide { code, chunk_bytes, segment_bytes });
        }
        let needed = usize::from(new.redundancy.disks_min());
        let available = self.stripes.stores().candidates().len();
        if available < needed {
            return Err(VolumeError::TooFewDisks { code, needed, available });
        }
        let bound = bound_of(&new.redundancy, settings, new.chunk_bytes);
        let (least, log_percent) = bound.percent_min(new.bytes.div_ceil(bound.data * new.chunk_bytes));
        match bound.percent_max {
            Some(percent_max) if u64::from(percent_max) < least => {
                let percent = |percent: u64| u32::try_from(percent).unwrap_or(u32::MAX);
                let (least, log_percent) = (percent(least), percent(log_percent));
                Err(RedundancyError::BoundTooLow { code, percent_max, least, log_percent }.into())
            }
            _ => Ok(()),
        }
    }

    /// Whether its homes have disks for its data chunks, and other nodes for the rest of its stripes.
    fn check_at_home(&self, new: &NewVolume) -> Result<(), VolumeError> {
        let candidates = self.stripes.stores().candidates();
        let needed = usize::from(chunks_at_home(&new.homes, new.redundancy.code.shape().data));
        for home in &new.homes {
            let available = candidates.iter().filter(|candidate| candidate.node == *home).count();
            if available < needed {
                return Err(VolumeError::TooFewAtHome { home: home.clone(), needed, available });
            }
        }
        self.check_nodes(new, &candidates)
    }

    /// Whether stripes of a volume with homes that lie on these disks survive the loss of any node.
    fn check_nodes(&self, new: &NewVolume, disks: &[Candidate]) -> Result<(), VolumeError> {
        let homes = homes_of(&new.homes, new.redundancy.code.shape().data);
        for code in new.redundancy.codes().filter(|_| !homes.is_empty()) {
            let places = place_at_home(code, disks, &homes, |bound| bound / 2);
            let places = (0..).map(ChunkIndex).zip(places).filter_map(|(chunk, disk)| Some((chunk, disk?)));
            if self.stripes.stores().nodes().losses(code, places) == 0 {
                return Err(VolumeError::TooFewNodes { code });
            }
        }
        Ok(())
    }

    fn new_id(&self) -> OwnerId {
        let mut id = [0; 16];
        self.env.random.fill(&mut id);
        OwnerId(u128::from_be_bytes(id))
    }

    /// All volumes by name, but those whose records cannot be read: [`Volumes::recover`] names them.
    ///
    /// # Errors
    /// `Meta`.
    pub async fn list(&self) -> Result<Vec<VolumeRecord>, VolumeError> {
        Ok(self.meta.volumes().await?)
    }

    /// A volume, opened if it is not. Whoever waits for that may go away, it goes on.
    ///
    /// # Errors
    /// `Meta` (there is none of this name), and all of opening: `LogAbsent`, `LogDamaged`, `LeaseEnded`, `Log`, `Blocks`;
    /// `Refused` if it did not open for somebody else just now.
    pub async fn open(&self, name: &str) -> Result<Volume, VolumeError> {
        let record = self.record(name).await?;
        let slot = self.slot(record.id);
        let (working, refusals) = {
            let state = slot.state();
            (state.working(), state.refusals)
        };
        match working {
            Some(volume) => Ok(volume),
            None => self.open_in(&slot, record, refusals).await,
        }
    }

    /// A strand of a volume or of a snapshot, opened if it is not.
    ///
    /// # Errors
    /// `NoSuchStrand`, and as [`Volumes::open`] and [`Volumes::open_snapshot`].
    pub async fn open_strand(&self, name: &StrandName) -> Result<Strand, VolumeError> {
        // Homes stay as they are; a volume of the same name that came meanwhile is another one.
        let record = self.record(&name.volume).await?;
        let open = async {
            let blocks: (OwnerId, Arc<dyn Blocks>) = match name.snapshot_name() {
                Some(snapshot) => {
                    let snapshot = self.open_snapshot(&snapshot).await?;
                    (snapshot.record().volume, Arc::new(snapshot))
                }
                None => {
                    let volume = self.open(&name.volume).await?;
                    (volume.record().id, Arc::new(volume))
                }
            };
            let gone = || MetaError::NoSuchVolume { name: name.volume.clone() }.into();
            if blocks.0 == record.id { Ok(blocks.1) } else { Err(gone()) }
        };
        Strand::open(name.clone(), &record, open).await
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<OwnerId, Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, id: OwnerId) -> Arc<Slot> {
        self.slots().entry(id).or_default().clone()
    }

    /// Works in a task of its own: whoever waits for it may go away.
    async fn in_task<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl Future<Output = Result<T, VolumeError>> + Send + 'static,
    ) -> Result<T, VolumeError> {
        to_its_end(&self.env, name, work).await.unwrap_or_else(|| Err(cut_off()))
    }

    /// Opens every volume that has a log, so that what a crash interrupted is finished; of those that do not open, or whose
    /// records cannot be read, the stripes are held. Before it has returned nothing, or something unprotected, nobody may repair stripes. Forgets logs of volumes
    /// that are no more.
    ///
    /// # Errors
    /// `Meta`: it is not known which volumes there are.
    pub async fn recover(&self) -> Result<Recovered, VolumeError> {
        // Before the records: what is made meanwhile is not among them.
        let owners = self.log_owners().await;
        let records = self.list().await?;
        let corrupt = self.meta.corrupt_volumes().await?;
        let mut recovered = Recovered::default();
        for record in records.iter().filter(|record| !record.log.disks.is_empty()) {
            let slot = self.slot(record.id);
            // A disk may have come back since somebody else began to open it.
            if let Err(error) = self.open_in(&slot, record.clone(), u64::MAX).await {
                // Behind whoever takes the holds.
                drop(slot.turn.lock().await);
                if !slot.state().is_protected {
                    recovered.unprotected.push(record.name.clone());
                }
                recovered.refused.push((record.name.clone(), error));
            }
        }
        // One that cannot be opened, and may have a log.
        for (id, what) in &corrupt {
            let (slot, name) = (self.slot(*id), id.to_string());
            let _turn = slot.turn.lock().await;
            if !slot.state().is_protected {
                self.hold_all(&slot, *id, &name).await;
            }
            if !slot.state().is_protected {
                recovered.unprotected.push(name.clone());
            }
            recovered.refused.push((name, MetaError::Corrupt { what: what.clone() }.into()));
        }
        for (disk, owner) in owners {
            let is_known = records.iter().any(|record| record.id == owner)
                || corrupt.iter().any(|(id, _)| *id == owner)
                || self.scratches().iter().any(|scratch| scratch.device.owner() == owner);
            if !is_known {
                self.forget_on(disk, owner).await;
            }
        }
        Ok(recovered)
    }

    /// All volumes by name, and how they are. Opens none.
    ///
    /// # Errors
    /// `Meta`.
    pub async fn look(&self) -> Result<Vec<Found>, VolumeError> {
        let found = self.list().await?.into_iter().map(|record| {
            let slot = self.slots().get(&record.id).cloned();
            let state = match &slot {
                None => State::Closed,
                Some(slot) => match &*slot.state() {
                    state if state.volume().is_some() => {
                        State::Open(Box::new(state.volume().expect("it is there").status()))
                    }
                    state => state.refused.clone().map_or(State::Closed, |reason| State::Refused { reason }),
                },
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
    /// `BadLength`, `NotWholeStripes`, `Meta` (there is none, or it is longer).
    pub async fn grow(&self, name: &str, bytes: u64) -> Result<VolumeRecord, VolumeError> {
        let record = self.record(name).await?;
        check_length(bytes, record.page_bytes)?;
        check_stripes(bytes, record.stripe_bytes(), &record.homes)?;
        let (volumes, slot) = (self.clone(), self.slot(record.id));
        let work = async move {
            // An opening has read how long it was.
            let _turn = slot.turn.lock().await;
            let grown = volumes.meta.grow_volume(record.id, bytes).await?;
            if let Some(volume) = slot.state().volume() {
                volume.grown(bytes);
            }
            Ok(grown)
        };
        self.in_task("grow", work).await
    }

    /// Sets what a volume's stripes get. Those there are get it one by one, while the volume is open; their data stays where
    /// it is.
    ///
    /// # Errors
    /// `OtherData` if stripes would have other data chunks, `MoreCopies` while somebody uses the volume and its log would
    /// need more copies; and as [`Volumes::create`].
    pub async fn set_redundancy(&self, name: &str, redundancy: Redundancy) -> Result<VolumeRecord, VolumeError> {
        let record = self.record(name).await?;
        let new = NewVolume {
            bytes: record.bytes,
            page_bytes: record.page_bytes,
            chunk_bytes: record.chunk_bytes,
            homes: record.homes.clone(),
            ..NewVolume::new(name, record.bytes, redundancy)
        };
        check(&new)?;
        if redundancy.code.shape().data != record.redundancy.code.shape().data {
            return Err(VolumeError::OtherData { from: record.redundancy.code, to: redundancy.code });
        }
        // While it is open it has the reserve that it was opened with, and later the other one.
        let was = self.settings.of_volume(&record.redundancy, record.bytes);
        let will_be = self.settings.of_volume(&redundancy, record.bytes);
        let reserve_bytes = was.reserve_bytes.max(will_be.reserve_bytes);
        self.check_fits(&new, &Settings { reserve_bytes, ..will_be })?;
        // Data stays where it is, and a disk that is full or away for a while is on its node.
        let members = self.stripes.stores().members().into_iter().map(|member| member.record);
        let active = members.filter(|record| record.state == DiskState::Active);
        let disks = active.map(|record| Candidate { disk: record.id, node: record.node, free_bytes: 0 });
        self.check_nodes(&new, &disks.collect::<Vec<_>>())?;
        let (volumes, slot) = (self.clone(), self.slot(record.id));
        let work = async move {
            let _turn = slot.turn.lock().await;
            let record = volumes.meta.volume(&record.name).await?;
            // Its log gets more copies when it is opened anew.
            let is_closed = redundancy.tolerance_max() > record.redundancy.tolerance_max();
            if is_closed {
                let closed = volumes.close_unused(&slot, &record).await;
                closed.map_err(|_| VolumeError::MoreCopies { name: record.name.clone() })?;
            }
            let set = volumes.meta.set_redundancy(record.id, redundancy).await;
            if let (Ok(_), Some(volume)) = (&set, slot.state().volume()) {
                volume.set_redundancy(redundancy);
            }
            Ok((set, is_closed))
        };
        let (set, is_closed) = self.in_task("set redundancy", work).await?;
        // Only of an open volume stripes are merged and switched.
        if is_closed && let Err(error) = self.open(name).await {
            tracing::warn!(volume = name, %error, "a volume whose log is to have more copies does not open");
        }
        Ok(set?)
    }

    /// Deletes a volume that nobody uses. Returns the stripes that are dead now.
    ///
    /// # Errors
    /// `InUse`, `HasSnapshots`, `Meta` (there is none).
    pub async fn delete(&self, name: &str) -> Result<Vec<StripeRecord>, VolumeError> {
        let record = self.record(name).await?;
        let snapshots = self.meta.snapshots().await?.into_iter().filter(|snapshot| snapshot.volume == record.id);
        let snapshots: Vec<String> = snapshots.map(|snapshot| snapshot.full_name()).collect();
        if !snapshots.is_empty() {
            return Err(VolumeError::HasSnapshots { name: name.to_owned(), snapshots });
        }
        let (volumes, slot) = (self.clone(), self.slot(record.id));
        let work = async move {
            let _turn = slot.turn.lock().await;
            volumes.close_unused(&slot, &record).await?;
            let dead = volumes.meta.delete_volume(record.id).await?;
            volumes.try_all_again();
            volumes.slots().remove(&record.id);
            slot.held.clear();
            // What an absent disk has of its log is forgotten when it is back.
            for member in volumes.stripes.stores().members() {
                volumes.forget_on(member.record.id, record.id).await;
            }
            Ok(dead)
        };
        self.in_task("delete volume", work).await
    }

    /// Who has something of a log, by disk.
    async fn log_owners(&self) -> Vec<(DiskId, OwnerId)> {
        let mut found = Vec::new();
        for member in self.stripes.stores().members() {
            let disk = member.record.id;
            let Some(store) = self.stripes.stores().readable(disk) else { continue };
            match timeout(&*self.env.clock, self.settings.timeout, store.segments().owners()).await {
                Some(Ok(owners)) => found.extend(owners.into_iter().map(|owner| (disk, owner))),
                Some(Err(error)) => tracing::debug!(%disk, %error, "it is not known whose logs are here"),
                None => tracing::debug!(%disk, "it is not known whose logs are here"),
            }
        }
        found
    }

    /// Forgets what a disk has of the log of a volume that is no more. An id is used once, so nobody misses it.
    async fn forget_on(&self, disk: DiskId, owner: OwnerId) {
        let Some(store) = self.stripes.stores().readable(disk) else { return };
        let forget = store.segments().forget_owner(Lease { owner, term: Term(u64::MAX) });
        if !matches!(timeout(&*self.env.clock, self.settings.timeout, forget).await, Some(Ok(()))) {
            tracing::debug!(%disk, %owner, "the log of a volume that is no more was left");
        }
    }

    /// Ends the merging of all open volumes, and syncs them.
    pub async fn stop(&self) {
        let slots: Vec<Arc<Slot>> = self.slots().values().cloned().collect();
        for slot in slots {
            let _turn = slot.turn.lock().await;
            let Some(volume) = slot.state().volume().cloned() else { continue };
            self.close(&slot, None).await;
            if let Err(error) = Blocks::flush(&volume).await {
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
    new.redundancy.validate()?;
    let shape = new.redundancy.code.shape();
    let columns = shape.data;
    let geometry = crate::Geometry { page_bytes: new.page_bytes, chunk_bytes: new.chunk_bytes, columns };
    if !geometry.is_sound() || new.chunk_bytes > CHUNK_BYTES_MAX {
        return Err(VolumeError::BadChunks { chunk_bytes: new.chunk_bytes });
    }
    if shape.alpha != 1 || shape.parity == 0 {
        return Err(VolumeError::BadCode { code: new.redundancy.code });
    }
    check_homes(&new.homes, &new.redundancy)?;
    check_stripes(new.bytes, geometry.stripe_bytes(), &new.homes)
}

/// Whether a volume kept so can have these homes, and survives the loss of any one.
fn check_homes(homes: &[NodeId], redundancy: &Redundancy) -> Result<(), VolumeError> {
    let mut seen = BTreeSet::new();
    if let Some(home) = homes.iter().find(|home| !is_name(&home.0) || !seen.insert(*home)) {
        return Err(VolumeError::BadHome { home: home.clone() });
    }
    let (data, survived) = (redundancy.code.shape().data, redundancy.tolerance_min());
    let of_each = chunks_at_home(homes, data);
    if !homes.is_empty() && (usize::from(of_each) * homes.len() != usize::from(data) || of_each > survived) {
        return Err(VolumeError::UnevenHomes { homes: homes.len(), redundancy: *redundancy });
    }
    Ok(())
}

fn check_stripes(bytes: u64, stripe_bytes: u64, homes: &[NodeId]) -> Result<(), VolumeError> {
    if !homes.is_empty() && !bytes.is_multiple_of(stripe_bytes) {
        return Err(VolumeError::NotWholeStripes { bytes, stripe_bytes });
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), VolumeError> {
    if is_name(name) { Ok(()) } else { Err(VolumeError::BadName { name: name.to_owned() }) }
}

/// Whether a volume, or a snapshot, can have this name.
pub(crate) fn is_name(name: &str) -> bool {
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
