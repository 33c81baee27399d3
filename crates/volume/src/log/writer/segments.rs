//! Segments begun one after another, the next one made before it is needed.
//!
//! ```text
//!  no next --a quarter is left--> making --on every disk--> made --this one is full--> begun
//!     ^                              |                        |
//!     +------ a disk refuses it -----+---- a disk is lost ----+
//! ```
//!
//! One that is needed and was not made ahead is made then: a short one in the reserve of disks where too few have room else, so
//! that what makes room has somewhere to go. Where too few take it also there, the segment that is there goes on.
//!
//! Invariants:
//! 1. What is made ahead has no record: to recovery it is none, and is deleted.
//! 2. Its disks are among the recorded ones before they are asked to make it.
//! 3. It takes no room that merging may need: it is made only where a write may begin a segment.
//! 4. No segment begins on fewer disks because others are full, but an opening's first, without which nothing could be read, and
//!    one that is on more disks than the one before. What is acknowledged and what a merge is about to write does not go there:
//!    it is refused until there is a segment with the copies that the disks which work could take.
//! 5. No more than [`RESERVE_SEGMENTS_MAX`] of an opening are in the reserve at once, and but for its first they take no writes:
//!    they are for what makes room. Who finds the reserve full asks for it again after a while.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, PoisonError};

use bytes::BytesMut;
use claystone_chunk::{ChunkStore, DiskId, SegmentError};
use claystone_env::timeout;
use claystone_stripe::{Candidate, Member, place};
use futures::future::FutureExt;

use super::{Append, Asked, Batch, FAILED_FOR, Late, Outcome, Patience, UNSYNCED_BYTES_MAX, Writer, all_but_late};
use crate::log::LogFailure;
use crate::log::record::{LogPlace, Record};
use crate::log::view::Segment;

/// The segment after the one that is appended to.
#[derive(Default)]
pub(super) struct Next {
    number: u64,
    bytes: u64,
    /// Its disks, and the stores that make it.
    homes: BTreeMap<DiskId, Arc<dyn ChunkStore>>,
    /// Some of them had to give of their reserve.
    is_in_reserve: bool,
    /// While it is made.
    pub(super) making: Option<Append>,
}

/// What became of beginning a segment.
#[derive(Default)]
pub(super) struct Begun {
    /// Appends go to a new one. If not, no disk has room for it.
    pub(super) is_new: bool,
    /// A disk was lost.
    pub(super) lost: bool,
}

impl Next {
    fn is_there(&self) -> bool {
        !self.homes.is_empty()
    }
}

impl Writer {
    /// Disks that take a segment of so many bytes now and have as much again for `spare` more, in the order to try them.
    pub(super) fn candidates(&self, bytes: u64, spare: u64) -> Vec<Candidate> {
        let mut candidates = self.stores.stores.candidates();
        let now = self.env.clock.now();
        candidates
            .retain(|candidate| !self.failed.contains_key(&candidate.disk) && !self.late.has(candidate.disk, now));
        candidates.retain(|candidate| candidate.free_bytes > (1 + spare) * bytes);
        candidates
    }

    /// Disks that take writes, full or not.
    fn candidates_in_reserve(&self) -> Vec<Candidate> {
        let works = |disk: &DiskId| self.failed.get(disk).is_none_or(|failed| failed.is_full);
        let members = self.stores.stores.members().into_iter();
        let members = members.filter(|member| member.writable() && works(&member.record.id));
        let candidate = |member: Member| Candidate {
            disk: member.record.id,
            node: member.record.node,
            free_bytes: member.space.free_bytes,
        };
        members.map(candidate).collect()
    }

    /// How many copies a segment would have if no disk were full. Where disks are absent or failed these are fewer than it is
    /// to have.
    fn copies_due(&self) -> usize {
        let now = self.env.clock.now();
        let takes = |member: &&Member| {
            let works = self.failed.get(&member.record.id).is_none_or(|failed| failed.is_full);
            member.writable() && works && !self.late.has(member.record.id, now)
        };
        self.stores.stores.members().iter().filter(takes).count().min(self.settings.copies)
    }

    /// Whether the segment has fewer copies than it would have if no disk were full.
    pub(super) fn misses_copies_for_room(&self) -> bool {
        self.homes.len() < self.settings.copies && self.homes.len() < self.copies_due()
    }

    /// Whether a segment begun now is on more disks than this one, or on as many of more nodes; or leaves those that are to be left, and is
    /// on as many as there could be.
    pub(super) fn is_better_in_another(&self) -> bool {
        let candidates = self.next_segment().1;
        let could_be = candidates.len().min(self.settings.copies);
        let nodes = candidates.iter().map(|candidate| &candidate.node).collect::<BTreeSet<_>>().len();
        let nodes_could_be = nodes.min(could_be);
        if could_be >= self.homes.len() && nodes_could_be > self.nodes() {
            return true;
        }
        let stays = |disk: &DiskId| self.stores.stores.is_writable(*disk);
        let leaves = !self.homes.keys().all(stays);
        could_be > self.homes.len() || (leaves && could_be >= self.homes.len().min(self.copies_due()).max(1))
    }

    /// On how many nodes it is.
    fn nodes(&self) -> usize {
        let members = self.homes.keys().filter_map(|disk| self.stores.stores.member(*disk));
        members.map(|member| member.record.node).collect::<BTreeSet<_>>().len()
    }

    /// How long the next segment may become, and the disks for it: shorter where disks are nearly full, so that as many
    /// take it as there could be.
    pub(super) fn next_segment(&self) -> (u64, Vec<Candidate>) {
        let halves = (0..HALVINGS_MAX).map(|halving| self.settings.segment_bytes >> halving);
        let sizes = halves.take_while(|bytes| *bytes >= self.settings.segment_bytes_min);
        let choices = sizes.map(|bytes| (bytes, self.candidates(bytes, 1)));
        let mut best = (self.settings.segment_bytes, Vec::new());
        for (bytes, candidates) in choices {
            if candidates.len().min(self.settings.copies) > best.1.len().min(self.settings.copies) {
                best = (bytes, candidates);
            }
        }
        best
    }

    /// Whether a write may begin a segment: as many disks as it would have if none were full have room for merges behind it,
    /// which are what makes room.
    pub(super) fn has_room_for_writes(&self) -> bool {
        let spare = SPARE_SEGMENTS - u64::from(self.next_made.is_there());
        self.candidates(self.settings.segment_bytes, spare).len() >= self.copies_due()
    }

    /// Whether a segment may go into the reserve of disks.
    fn may_take_reserve(&self) -> bool {
        let was_refused = |at| self.env.clock.now().since(at) < FAILED_FOR;
        let there = self.in_reserve.iter().filter(|number| self.view.has(**number)).count();
        !self.has_begun || (there < RESERVE_SEGMENTS_MAX && !self.reserve_refused.is_some_and(was_refused))
    }

    /// Ends the segment and begins the next, on disks chosen before or now: as many as the log wants, or as there are. Where
    /// too few have room for it nothing ends.
    pub(super) async fn begin_segment(&mut self) -> Result<Begun, LogFailure> {
        let mut begun = Begun { lost: self.settle().await?, is_new: false };
        if self.unsynced_bytes >= 2 * UNSYNCED_BYTES_MAX {
            begun.lost |= self.sync_all().await?;
        }
        for _ in 0..BEGIN_TRIES {
            let Some(mut next) = self.take_next().await? else {
                self.view.set_ahead(BTreeSet::new());
                self.record(&[]).await?;
                self.has_begun |= begun.is_new;
                return Ok(begun);
            };
            next.homes.retain(|disk, _| !self.failed.contains_key(disk));
            if next.homes.is_empty() {
                continue;
            }
            if begun.is_new {
                // It has nothing but its first record.
                self.homes.keys().for_each(|disk| self.view.leave(*disk, self.number));
                self.view.segments().remove(&self.number);
            } else if !self.homes.is_empty() {
                self.previous = Some(LogPlace { segment: self.number, offset: self.end });
                self.ended.push(self.number, std::mem::take(&mut self.homes));
            }
            begun.is_new = true;
            begun.lost |= self.begin(next).await?;
            // A disk refused it, or was lost with its first record: on with others, where there are some.
            if self.next_segment().1.len().min(self.settings.copies) <= self.homes.len() {
                break;
            }
        }
        if begun.is_new {
            self.has_begun = true;
            return Ok(begun);
        }
        Err(LogFailure { reason: "disk after disk fails when it is to take a segment of the log".to_owned() })
    }

    /// Appends to this segment from now on. Whether a disk was lost in doing so.
    async fn begin(&mut self, next: Next) -> Result<bool, LogFailure> {
        if next.is_in_reserve {
            let view = &self.view;
            self.in_reserve.retain(|number| view.has(*number));
            self.in_reserve.insert(next.number);
        }
        self.is_for_room = next.is_in_reserve && self.has_begun;
        (self.number, self.room, self.homes) = (next.number, next.bytes, next.homes);
        (self.next, self.end) = (0, 0);
        if self.homes.len() < self.settings.copies {
            let (disks, copies) = (self.homes.len(), self.settings.copies);
            tracing::warn!(disks, copies, "a volume's log has fewer copies than its code tolerates losses");
        }
        let over_below = self.view.segments().keys().next().copied().unwrap_or(self.number);
        let disks = self.homes.keys().copied().collect();
        self.view.segments().insert(self.number, Segment { disks, end: 0 });
        self.view.set_ahead(BTreeSet::new());
        self.record(&[]).await?;
        let (previous, unsynced_from) = (self.previous, self.ended.tell_first());
        let begin = Record::Begin { over_below, previous, unsynced_from, page_bytes: self.settings.page_bytes };
        let mut content = BytesMut::new();
        begin.encode(self.segment(), 0, &mut content);
        self.launch(Batch::default(), content.freeze());
        let lost = self.settle().await?;
        // The first of an opening ends what was found. Another one is synced with what it holds.
        let lost_in_sync = !self.has_begun && self.sync_all().await?;
        Ok(lost || lost_in_sync)
    }

    /// The segment that was made ahead, or one that is made now.
    async fn take_next(&mut self) -> Result<Option<Next>, LogFailure> {
        match self.take_made().await? {
            Some(next) => Ok(Some(next)),
            None => self.make_segment().await,
        }
    }

    /// Makes a segment now. `None`: too few disks have room for it, in their reserve too. An opening takes as many as there are:
    /// without a segment of its own it could not even be read, nor be merged or discarded to make room.
    async fn make_segment(&mut self) -> Result<Option<Next>, LogFailure> {
        for is_in_reserve in [false, true] {
            let may_take_reserve = self.may_take_reserve();
            if is_in_reserve && !may_take_reserve {
                break;
            }
            // One that is only on more disks than this one is for where there is no other way.
            let is_last_try = is_in_reserve || !may_take_reserve;
            let is_enough = |writer: &Writer, copies: usize| {
                copies >= writer.copies_due().max(1) || (is_last_try && copies > writer.homes.len())
            };
            let (bytes, roomy) = self.next_segment();
            if !is_in_reserve && !is_enough(self, roomy.len()) {
                continue;
            }
            let next = match is_in_reserve {
                false if self.is_untouched() => {
                    self.make_segment_on(self.settings.segment_bytes_min, roomy, Vec::new()).await?
                }
                false => self.make_segment_on(bytes, roomy, Vec::new()).await?,
                true => {
                    let bytes = self.settings.segment_bytes_min;
                    self.make_segment_on(bytes, self.candidates(bytes, 1), self.candidates_in_reserve()).await?
                }
            };
            if is_enough(self, next.homes.len()) {
                return Ok(Some(next));
            }
            if is_in_reserve {
                self.reserve_refused = Some(self.env.clock.now());
            }
            let disks: Vec<DiskId> = next.homes.into_keys().collect();
            self.view.delete(next.number, &disks).await;
        }
        Ok(None)
    }

    /// Whether an opening found nothing that waits, and nobody has written yet: who only asks how long a volume is takes no more of the
    /// disks than the shortest segment does.
    fn is_untouched(&self) -> bool {
        !self.has_begun && self.diffs.lock().unwrap_or_else(PoisonError::into_inner).pages() == 0
    }

    /// Makes a segment on as many of these disks as the log wants, or as take it: those that have room, then others in their
    /// reserve.
    async fn make_segment_on(
        &mut self,
        bytes: u64,
        roomy: Vec<Candidate>,
        others: Vec<Candidate>,
    ) -> Result<Next, LogFailure> {
        self.numbers += 1;
        let random = &self.env.random;
        let order = place(&roomy, &[], roomy.len(), |bound| random.below(bound));
        let taken: Vec<_> = roomy.iter().map(|candidate| (candidate.disk, candidate.node.clone())).collect();
        let others = place(&others, &taken, others.len(), |bound| random.below(bound));
        let order = order.into_iter().map(|disk| (disk, true)).chain(others.into_iter().map(|disk| (disk, false)));
        let there = order.filter_map(|(disk, is_roomy)| Some((disk, is_roomy, self.stores.stores.readable(disk)?)));
        let mut left: VecDeque<_> = there.collect();
        let mut next = Next { number: self.numbers, bytes, ..Next::default() };
        while next.homes.len() < self.settings.copies && !left.is_empty() {
            let missing = self.settings.copies - next.homes.len();
            let asked: BTreeMap<DiskId, (bool, Arc<dyn ChunkStore>)> = left
                .drain(..missing.min(left.len()))
                .map(|(disk, is_roomy, store)| (disk, (is_roomy, store)))
                .collect();
            let chosen: Vec<DiskId> = next.homes.keys().chain(asked.keys()).copied().collect();
            self.record(&chosen).await?;
            let creates =
                asked.iter().map(|(&disk, (is_roomy, store))| self.create(next.number, bytes, disk, *is_roomy, store));
            let patience = self.patience();
            let fewest = patience.fewest.saturating_sub(next.homes.len());
            let made = self.made_by(creates.collect(), Patience { fewest, ..patience }).await;
            for (disk, made) in made {
                let (is_roomy, store) = &asked[&disk];
                match made {
                    Ok(()) => {
                        next.is_in_reserve |= !is_roomy;
                        next.homes.insert(disk, store.clone());
                    }
                    Err(error @ SegmentError::Fenced { .. }) => return Err(LogFailure { reason: error.to_string() }),
                    // That it is full is known, and may be over any time.
                    Err(error @ SegmentError::DiskFull { .. }) if !is_roomy => {
                        tracing::debug!(%disk, %error, "a disk has no room in its reserve for a segment of a volume's log");
                    }
                    Err(error) => {
                        tracing::warn!(%disk, %error, "a disk takes no segment of a volume's log");
                        self.fail(disk, &error);
                        self.view.leave(disk, next.number);
                    }
                }
            }
        }
        Ok(next)
    }

    /// Asks a disk for a segment, in its reserve if it has no room else.
    fn create(&self, number: u64, bytes: u64, disk: DiskId, is_roomy: bool, store: &Arc<dyn ChunkStore>) -> Asked {
        let (stores, store, lease) = (self.stores.clone(), store.clone(), self.lease);
        let created = async move {
            let segments = store.segments();
            let created = async {
                match is_roomy {
                    true => segments.create_segment(number, lease, bytes).await,
                    false => segments.create_segment_in_reserve(number, lease, bytes).await,
                }
            };
            stores.in_time(disk, created).await
        };
        (disk, created.boxed())
    }

    /// What becomes of a segment that these disks are asked for. Who is late with that is not left for it.
    fn made_by(&self, asked: Vec<Asked>, patience: Patience) -> Append {
        all_but_late(self.env.clone(), Late::default(), patience, asked).boxed()
    }

    /// Begins to make the next segment where this one is nearly full.
    pub(super) async fn make_ahead(&mut self) -> Result<(), LogFailure> {
        let is_due = self.room - self.next < self.room / MADE_AHEAD_SHARE && self.made_ahead_in != self.number;
        if !is_due || self.next_made.is_there() {
            return Ok(());
        }
        // Once in each segment: who refuses it is asked again when it is needed.
        self.made_ahead_in = self.number;
        let candidates = self.candidates(self.settings.segment_bytes, SPARE_SEGMENTS);
        if candidates.len() < self.settings.copies {
            return Ok(());
        }
        let order = place(&candidates, &[], self.settings.copies, |bound| self.env.random.below(bound));
        let there = order.into_iter().filter_map(|disk| Some((disk, self.stores.stores.readable(disk)?)));
        let homes: BTreeMap<DiskId, Arc<dyn ChunkStore>> = there.collect();
        if homes.len() < self.settings.copies {
            return Ok(());
        }
        self.view.set_ahead(homes.keys().copied().collect());
        self.record(&[]).await?;
        self.numbers += 1;
        let (number, bytes) = (self.numbers, self.settings.segment_bytes);
        let creates = homes.iter().map(|(disk, store)| self.create(number, bytes, *disk, true, store));
        // Nobody waits for it.
        let patience = self.patience();
        let making = Some(self.made_by(creates.collect(), Patience { for_others: patience.limit, ..patience }));
        self.next_made = Next { number, bytes, homes, is_in_reserve: false, making };
        Ok(())
    }

    /// The next segment was made, or not everywhere.
    pub(super) async fn made(&mut self, outcome: Outcome) -> Result<(), LogFailure> {
        self.next_made.making = None;
        let mut is_made = true;
        for (disk, made) in outcome {
            match made {
                Ok(()) => {}
                Err(error @ SegmentError::Fenced { .. }) => return Err(LogFailure { reason: error.to_string() }),
                Err(error) => {
                    tracing::warn!(%disk, %error, "a disk takes no segment of a volume's log");
                    self.fail(disk, &error);
                    is_made = false;
                }
            }
        }
        if is_made { Ok(()) } else { self.forget_next().await }
    }

    /// Deletes the segment that was made ahead.
    pub(super) async fn forget_next(&mut self) -> Result<(), LogFailure> {
        let next = std::mem::take(&mut self.next_made);
        // One that has failed may not answer, and those that still make it are not waited for.
        let is_made = next.making.is_none();
        let (disks, left): (Vec<DiskId>, Vec<DiskId>) =
            next.homes.into_keys().partition(|disk| is_made && !self.failed.contains_key(disk));
        left.into_iter().for_each(|disk| self.view.leave(disk, next.number));
        self.view.delete(next.number, &disks).await;
        self.view.set_ahead(BTreeSet::new());
        self.record(&[]).await
    }

    /// Takes the segment that was made ahead, if it is on disks that are all still good, and soon.
    async fn take_made(&mut self) -> Result<Option<Next>, LogFailure> {
        if let Some(making) = &mut self.next_made.making {
            let clock = self.env.clock.clone();
            match timeout(&*clock, self.settings.late_after, making).await {
                Some(outcome) => self.made(outcome).await?,
                None => self.forget_next().await?,
            }
        }
        if !self.next_made.is_there() {
            return Ok(None);
        }
        if !self.is_next_good() {
            self.forget_next().await?;
            return Ok(None);
        }
        Ok(Some(std::mem::take(&mut self.next_made)))
    }

    /// Whether the stores that made the next segment are the ones that are there, and take writes.
    pub(super) fn is_next_good(&self) -> bool {
        self.next_made.homes.iter().all(|(disk, home)| self.is_good(*disk, home))
    }

    /// Whether this store is the one that is there for a disk, and takes writes.
    pub(super) fn is_good(&self, disk: DiskId, home: &Arc<dyn ChunkStore>) -> bool {
        let store = self.stores.stores.readable(disk);
        self.stores.stores.is_writable(disk)
            && !self.failed.contains_key(&disk)
            && store.is_some_and(|store| Arc::ptr_eq(&store, home))
    }
}

const BEGIN_TRIES: usize = 4;
const HALVINGS_MAX: u32 = 6;
/// Short ones: 32 MiB under rs:4+2, of 64 MiB at least that chunks leave free on a disk.
const RESERVE_SEGMENTS_MAX: usize = 2;
/// Segments that a write leaves room for: merging a full one takes about two.
const SPARE_SEGMENTS: u64 = 3;
/// The next segment is made when less than this part of one is left.
const MADE_AHEAD_SHARE: u64 = 4;
