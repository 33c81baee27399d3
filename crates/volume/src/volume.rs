//! An open volume: a block device over stripes, written to a log and merged later.
//!
//! ```text
//!  write --> record in the log, on several disks --> the diffs know it --> returned        no parity, no database
//!  flush --> the log's segments synced
//!  read  --> pages with a diff from the log, all others from their stripe
//!  merge --> (crate::merge) diffs into stripes, in the background
//! ```
//!
//! Invariants:
//! 1. A page reads as its diff, or if it has none as its stripe has it, or as zeros where there is no stripe.
//! 2. `known` names the chunks as the records did when this volume last had the stripe alone; a merge looks at the record
//!    before it changes a chunk. So a reader that finds an old place finds there what was true when it began.
//! 3. After a failure (`failure`) nothing is written any more: the volume is opened anew.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use claystone_chunk::{ByteRange, Lease, StripeId};
use claystone_code::CodeSpec;
use claystone_env::{Env, Moment};
use claystone_meta::{Meta, Redundancy, StripeRecord, VolumeRecord};
use claystone_stripe::{Hold, Homes, Stripes};
use futures::future::{try_join, try_join_all};
use tokio::sync::Notify;

use crate::base::Base;
use crate::blocks::Spans;
use crate::coding::Codings;
use crate::diffs::{Diff, DiffKind, Diffs};
use crate::gate::{Gate, Pass};
use crate::geometry::{Geometry, Page, Spot};
use crate::homes::homes_of;
use crate::log::record::{Record, crc32c};
use crate::log::{Log, LogFailure};
use crate::merge::PutOff;
use crate::pace::Pace;
use crate::readers::Readers;
use crate::switch::{Heats, form_of};
use crate::toll::Toll;
use crate::zeros::Zeros;
use crate::{
    Access, Blocks, BlocksError, Durable, FormTally, MergeReport, Settings, Space, Span, SpanKind, Stretch,
    SwitchReport, VolumeStatus, Zeroing, joined, within,
};

/// A volume that is open: the one owner of its lease. Cheap to clone.
#[derive(Clone)]
pub struct Volume {
    pub(crate) inner: Arc<Inner>,
    /// One for whoever has the volume. What merges in the background has `inner` only.
    user: Arc<()>,
}

pub(crate) struct Inner {
    pub(crate) env: Env,
    pub(crate) meta: Arc<dyn Meta>,
    pub(crate) stripes: Stripes,
    pub(crate) lease: Lease,
    pub(crate) record: VolumeRecord,
    pub(crate) geometry: Geometry,
    pub(crate) codings: Codings,
    pub(crate) settings: Settings,
    pub(crate) diffs: Arc<Mutex<Diffs>>,
    /// Stripes by position; the diffs know which positions have one.
    pub(crate) known: RwLock<BTreeMap<u64, Arc<StripeRecord>>>,
    /// Chunks of all of `known`; changed with it.
    pub(crate) chunks: AtomicU64,
    pub(crate) log: Log,
    /// Pages that are zeros in their stripes.
    zeros: Mutex<Zeros>,
    pub(crate) bytes: AtomicU64,
    /// Held by whoever merges.
    pub(crate) merging: tokio::sync::Mutex<()>,
    /// A merge has ended, or there is reason for one.
    pub(crate) merge_ended: Notify,
    pub(crate) merge_wanted: Arc<Notify>,
    /// Rounds of merging.
    pub(crate) rounds: AtomicU64,
    /// Writes that were let in.
    pub(crate) records: AtomicU64,
    /// Nothing can be merged now: who finds the reserve used up is refused.
    pub(crate) is_stuck: AtomicBool,
    /// How often it was found out whether that is so.
    pub(crate) verdicts: AtomicU64,
    /// Since when nothing was merged though there was something to merge.
    pub(crate) idle_since: Mutex<Option<Moment>>,
    pub(crate) failure: Mutex<Option<String>>,
    /// Stripes that a merge is changing, or left changed in part: then nobody decodes them before the volume is opened anew
    /// and mends them.
    pub(crate) kept: Mutex<BTreeMap<StripeId, Hold>>,
    /// Stripes that could not be merged.
    pub(crate) put_off: Mutex<BTreeMap<u64, PutOff>>,
    /// What was merged since the volume was opened, and in how many rounds.
    pub(crate) merged: Mutex<(u64, MergeReport)>,
    /// What stripes get.
    pub(crate) redundancy: RwLock<Redundancy>,
    /// It was set a moment ago: stripes are looked at at once.
    pub(crate) switch_wanted: AtomicBool,
    /// How much each stripe is written.
    pub(crate) heats: Mutex<Heats>,
    /// Stripes that could not be given another form, and when that is tried again.
    pub(crate) unswitchable: Mutex<BTreeMap<u64, Moment>>,
    /// Stripes that were given another form since the volume was opened.
    pub(crate) switched: Mutex<SwitchReport>,
    /// Where data chunks are to lie.
    pub(crate) homes: Homes,
    /// Up to which position they were looked at for that.
    pub(crate) homed: Mutex<Option<u64>>,
    base: Base,
    /// Who reads now.
    pub(crate) readers: Readers,
    pub(crate) gate: Gate,
    /// What writers pay while the reserve is nearly used up.
    pub(crate) toll: Toll,
    /// Who writes now.
    pub(crate) pace: Pace,
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Volume({})", self.inner.record.name)
    }
}

/// What an open volume is made of.
pub(crate) struct Parts {
    pub(crate) env: Env,
    pub(crate) meta: Arc<dyn Meta>,
    pub(crate) stripes: Stripes,
    pub(crate) record: VolumeRecord,
    pub(crate) geometry: Geometry,
    pub(crate) settings: Settings,
    pub(crate) diffs: Arc<Mutex<Diffs>>,
    pub(crate) known: BTreeMap<u64, Arc<StripeRecord>>,
    pub(crate) log: Log,
}

impl Volume {
    pub(crate) fn new(parts: Parts) -> Volume {
        let Parts { env, meta, stripes, record, geometry, settings, diffs, known, log } = parts;
        let base = Base { clock: env.clock.clone(), meta: meta.clone(), stripes: stripes.clone(), geometry };
        let redundancy = record.redundancy;
        let codings = Codings::new(&geometry);
        {
            let mut diffs = diffs.lock().unwrap_or_else(PoisonError::into_inner);
            known.iter().for_each(|(at, stripe)| diffs.set_begun(*at, Some(codings.logged_bytes(stripe.code))));
        }
        let heats = Heats::new(settings.heat_half_life, env.clock.now());
        let inner = Inner {
            env,
            meta,
            stripes,
            base,
            homes: homes_of(&record.homes, geometry.columns),
            homed: Mutex::default(),
            readers: Readers::default(),
            lease: Lease { owner: record.id, term: record.term },
            bytes: AtomicU64::new(record.bytes),
            record,
            codings,
            geometry,
            settings,
            diffs,
            chunks: AtomicU64::new(known.values().map(|stripe| u64::from(stripe.code.shape().chunks())).sum()),
            known: RwLock::new(known),
            log,
            zeros: Mutex::new(Zeros::new(geometry)),
            merging: tokio::sync::Mutex::default(),
            merge_ended: Notify::new(),
            merge_wanted: Arc::default(),
            rounds: AtomicU64::new(0),
            records: AtomicU64::new(0),
            is_stuck: AtomicBool::new(false),
            verdicts: AtomicU64::new(0),
            idle_since: Mutex::default(),
            failure: Mutex::default(),
            kept: Mutex::default(),
            put_off: Mutex::default(),
            merged: Mutex::default(),
            redundancy: RwLock::new(redundancy),
            switch_wanted: AtomicBool::new(false),
            heats: Mutex::new(heats),
            unswitchable: Mutex::default(),
            switched: Mutex::default(),
            gate: Gate::default(),
            toll: Toll::default(),
            pace: Pace::default(),
        };
        Volume { inner: Arc::new(inner), user: Arc::default() }
    }

    /// The volume's record, as it was opened.
    pub fn record(&self) -> &VolumeRecord {
        &self.inner.record
    }

    /// Whether it takes nothing more and must be opened anew.
    pub fn has_failed(&self) -> bool {
        self.inner.has_failed()
    }

    /// How it is now, for whoever shows it.
    pub fn status(&self) -> VolumeStatus {
        let inner = &*self.inner;
        let (merges, merged) = *inner.merged.lock().unwrap_or_else(PoisonError::into_inner);
        let (pages, stripes) = {
            let diffs = inner.diffs();
            (diffs.pages(), diffs.stripe_count())
        };
        let redundancy = inner.redundancy();
        let codes: Vec<CodeSpec> = {
            let known = inner.known.read().unwrap_or_else(PoisonError::into_inner);
            known.values().map(|stripe| stripe.code).collect()
        };
        let [mut mirrored, mut coded, mut others] = [FormTally::default(); 3];
        let chunk_bytes = inner.geometry.chunk_bytes;
        for code in &codes {
            let shape = code.shape();
            let (data, chunks) = (u64::from(shape.data), u64::from(shape.chunks()));
            match form_of(&redundancy, *code) {
                Some(form) => {
                    let of_mirrored = u64::from(form.mirrored(shape.data));
                    let copies = of_mirrored * redundancy.mirroring.map_or(0, |mirroring| u64::from(mirroring.copies));
                    mirrored.add(of_mirrored, copies * chunk_bytes);
                    coded.add(data - of_mirrored, (chunks - copies) * chunk_bytes);
                }
                None => others.add(data, chunks * chunk_bytes),
            }
        }
        let view = inner.log.view();
        VolumeStatus {
            bytes: inner.bytes.load(Ordering::Acquire),
            stripes: codes.len() as u64,
            redundancy,
            stripe_bytes: inner.geometry.stripe_bytes(),
            mirrored,
            coded,
            others,
            switched: *inner.switched.lock().unwrap_or_else(PoisonError::into_inner),
            log_bytes: view.bytes(),
            log_disks: view.disks().into_iter().collect(),
            log_copies: view.fewest_copies(),
            log_copies_wanted: inner.log.copies(),
            reserve_bytes: inner.settings.segments_max() * inner.settings.segment_bytes,
            used_percent: inner.used_percent(),
            diff_pages: pages,
            diff_stripes: stripes,
            users: self.users(),
            merges,
            merged,
            failure: inner.failure.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// Others who have this volume, beside whoever opened it for them.
    pub(crate) fn users(&self) -> usize {
        Arc::strong_count(&self.user) - 1
    }

    /// Makes room at the end; the record has it already.
    pub(crate) fn grown(&self, bytes: u64) {
        self.inner.bytes.fetch_max(bytes, Ordering::AcqRel);
    }

    /// Its stripes get this from now on; the record has it already.
    pub(crate) fn set_redundancy(&self, redundancy: Redundancy) {
        let inner = &self.inner;
        *inner.redundancy.write().unwrap_or_else(PoisonError::into_inner) = redundancy;
        self.inner.switch_wanted.store(true, Ordering::Release);
        self.inner.merge_wanted.notify_one();
    }
}

impl Inner {
    pub(crate) fn diffs(&self) -> MutexGuard<'_, Diffs> {
        self.diffs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn zeros(&self) -> MutexGuard<'_, Zeros> {
        self.zeros.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn kept(&self) -> MutexGuard<'_, BTreeMap<StripeId, Hold>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What stripes get.
    pub(crate) fn redundancy(&self) -> Redundancy {
        *self.redundancy.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// These pages were written.
    fn heat_up(&self, pages: &Range<Page>) {
        let now = self.env.clock.now();
        let bytes = self.geometry.start(pages.start)..self.geometry.start(pages.end);
        let mut heats = self.heats.lock().unwrap_or_else(PoisonError::into_inner);
        for part in self.geometry.chunks(bytes) {
            let Spot { position, column, .. } = self.geometry.spot(part.offset);
            heats.written(position, column, now);
        }
    }

    /// The stripe at a position, as it was last seen.
    pub(crate) fn stripe(&self, position: u64) -> Option<Arc<StripeRecord>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(&position).cloned()
    }

    /// What is at a position from now on. What merges will log of a stripe of another name or code is counted as if nobody shared it.
    pub(crate) fn remember(&self, position: u64, stripe: Option<StripeRecord>) {
        let chunks = |stripe: &StripeRecord| u64::from(stripe.code.shape().chunks());
        let new = stripe.map(Arc::new);
        let old = {
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
            self.chunks.fetch_add(new.as_deref().map_or(0, chunks), Ordering::AcqRel);
            let old = match new.clone() {
                Some(stripe) => known.insert(position, stripe),
                None => known.remove(&position),
            };
            self.chunks.fetch_sub(old.as_deref().map_or(0, chunks), Ordering::AcqRel);
            old
        };
        // Of one that only moved it stays what it was: nothing, where it is shared.
        let form = |stripe: &Arc<StripeRecord>| (stripe.id, stripe.code);
        if old.as_ref().map(form) != new.as_ref().map(form) {
            let logged_bytes = new.as_deref().map(|stripe| self.codings.logged_bytes(stripe.code));
            self.diffs().set_begun(position, logged_bytes);
        }
        if new.is_none() {
            self.heats.lock().unwrap_or_else(PoisonError::into_inner).forget(position);
        }
        if old.map(|old| old.id) != new.map(|new| new.id) {
            self.zeros().forget(position);
            // Another stripe may be switched where the one before could not.
            self.unswitchable.lock().unwrap_or_else(PoisonError::into_inner).remove(&position);
        }
    }

    /// Nothing is written from now on.
    pub(crate) fn fail(&self, reason: String) -> BlocksError {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if failure.is_none() {
            tracing::error!(volume = self.record.name, reason, "a volume failed: open it anew");
        }
        BlocksError::Failed { reason: failure.get_or_insert(reason).clone() }
    }

    /// Nothing is written from now on, as somebody wants it.
    pub(crate) fn close(&self, reason: &str) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert_with(|| reason.to_owned());
    }

    pub(crate) fn log_failed(&self, error: LogFailure) -> BlocksError {
        self.fail(error.reason)
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    pub(crate) fn working(&self) -> Result<(), BlocksError> {
        match &*self.failure.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(reason) => Err(BlocksError::Failed { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    fn within(&self, range: ByteRange) -> Result<(), BlocksError> {
        within(range, self.bytes.load(Ordering::Acquire))
    }

    /// The pages that a range touches.
    fn pages(&self, range: ByteRange) -> Range<Page> {
        if range.bytes == 0 {
            return Page(0)..Page(0);
        }
        self.geometry.page(range.offset)..Page(self.geometry.page(range.end() - 1).0 + 1)
    }

    // ---- Reading ----

    async fn read(&self, range: ByteRange) -> Result<Vec<Stretch>, BlocksError> {
        let _reading = self.readers.enter();
        for _ in 0..LOOKS_MAX {
            let parts = self.parts(range);
            let reads = parts.into_iter().map(|part| self.read_part(part));
            if let Some(stretches) = try_join_all(reads).await?.into_iter().collect::<Option<Vec<_>>>() {
                return Ok(stretches.into_iter().flatten().collect());
            }
            // A segment was over between the look and the read: what was in it is in the stripes now.
        }
        Err(self.fail("a page of the log is always gone when it is read".to_owned()))
    }

    /// Where a range's bytes are now: ranges that follow each other, each within one kind of place. The stripes of those that
    /// have no diff are looked up later, when they are read: see [`Inner::look`].
    fn parts(&self, range: ByteRange) -> Vec<Part> {
        let diffs: Vec<(Page, Diff)> = self.diffs().range(self.pages(range)).collect();
        let page_bytes = u64::from(self.geometry.page_bytes);
        let mut parts: Vec<Part> = Vec::new();
        let mut at = range.offset;
        for (page, diff) in diffs {
            let start = self.geometry.start(page);
            self.push_base(&mut parts, at..start.max(at));
            let from = start.max(range.offset);
            at = (start + page_bytes).min(range.end());
            match parts.last_mut() {
                Some(Part::Diffs { pages, .. }) if follows(pages, page, diff, page_bytes) => pages.push((page, diff)),
                _ => parts.push(Part::Diffs { from, pages: vec![(page, diff)], to: at }),
            }
            if let Some(Part::Diffs { to, .. }) = parts.last_mut() {
                *to = at;
            }
        }
        self.push_base(&mut parts, at..range.end());
        parts
    }

    /// Cuts a range without diffs at the borders of chunks.
    fn push_base(&self, parts: &mut Vec<Part>, bytes: Range<u64>) {
        parts.extend(self.geometry.chunks(bytes).map(Part::Base));
    }

    async fn read_part(&self, part: Part) -> Result<Option<Vec<Stretch>>, BlocksError> {
        match part {
            Part::Base(range) => self.read_base(range).await.map(|stretch| Some(vec![stretch])),
            Part::Diffs { from, pages, to } => self.read_diffs(from..to, &pages).await,
        }
    }

    /// Bytes of pages whose diffs are one behind the other in the log, or are zeros. `None`: their segment is over.
    async fn read_diffs(&self, bytes: Range<u64>, pages: &[(Page, Diff)]) -> Result<Option<Vec<Stretch>>, BlocksError> {
        if pages[0].1.kind == DiffKind::Zeros {
            return Ok(Some(vec![Stretch::Hole(bytes.end - bytes.start)]));
        }
        // Together, if one copy has all of them; else each from a copy that has it.
        let reads: Vec<&[(Page, Diff)]> = match self.read_log(pages).await {
            Ok(content) => return Ok(Some(vec![self.stretch(&bytes, pages[0].0, content)])),
            Err(LogRead::Over) => return Ok(None),
            Err(LogRead::Lost) => pages.chunks(1).collect(),
        };
        let mut stretches = Vec::with_capacity(reads.len());
        for page in reads {
            match self.read_log(page).await {
                Ok(content) => stretches.push(self.stretch(&bytes, page[0].0, content)),
                Err(LogRead::Over) => return Ok(None),
                Err(LogRead::Lost) => {
                    let start = self.geometry.start(page[0].0);
                    let end = (start + u64::from(self.geometry.page_bytes)).min(bytes.end);
                    let offset = start.max(bytes.start);
                    return Err(BlocksError::Lost { range: ByteRange { offset, bytes: end - offset } });
                }
            }
        }
        Ok(Some(stretches))
    }

    /// What of these pages' content is within the bytes.
    fn stretch(&self, bytes: &Range<u64>, first: Page, content: Bytes) -> Stretch {
        let start = self.geometry.start(first);
        let (from, to) = (bytes.start.max(start), bytes.end.min(start + content.len() as u64));
        Stretch::Data(content.slice((from - start) as usize..(to - start) as usize))
    }

    /// The content of pages that lie one behind the other in the log, checked.
    pub(crate) async fn read_log(&self, pages: &[(Page, Diff)]) -> Result<Bytes, LogRead> {
        let page_bytes = self.geometry.page_bytes as usize;
        let right = |content: &Bytes| {
            let kinds = pages.iter().map(|(_, diff)| diff.kind);
            content
                .chunks_exact(page_bytes)
                .zip(kinds)
                .all(|(page, kind)| kind == DiffKind::Content { crc: crc32c(page) })
        };
        let at = pages[0].1.at;
        let view = self.log.view();
        match view.read(at, (pages.len() * page_bytes) as u64, right).await {
            Some(content) => Ok(content),
            None if !view.has(at.segment) => Err(LogRead::Over),
            None => Err(LogRead::Lost),
        }
    }

    /// Bytes of one chunk of a stripe.
    async fn read_base(&self, range: ByteRange) -> Result<Stretch, BlocksError> {
        let position = self.geometry.spot(range.offset).position;
        let mut tries = 0;
        loop {
            let Some(stripe) = self.stripe(position) else { return Ok(Stretch::Hole(range.bytes)) };
            // Who merges comes to an end, or the volume fails.
            match self.base.read(&stripe, range, || self.working()).await {
                Ok(read) => return Ok(Stretch::Data(read.content)),
                Err(error) => {
                    // Another stripe may have taken its place meanwhile.
                    tries += 1;
                    if tries == LOOKS_MAX || self.stripe(position).is_some_and(|now| now.id == stripe.id) {
                        return Err(error);
                    }
                }
            }
        }
    }

    // ---- Writing ----

    async fn write(&self, offset: u64, content: Bytes, durable: Durable) -> Result<(), BlocksError> {
        let range = ByteRange { offset, bytes: content.len() as u64 };
        self.within(range)?;
        self.working()?;
        for part in records(range.offset..range.end()) {
            let content = content.slice((part.start - offset) as usize..(part.end - offset) as usize);
            self.write_record(part.start, content).await?;
        }
        match durable {
            Durable::Now if range.bytes > 0 => self.make_durable().await,
            _ => Ok(()),
        }
    }

    /// Writes zeros as any bytes are written: they take space.
    async fn write_zeros(&self, bytes: Range<u64>) -> Result<(), BlocksError> {
        let zeros = Bytes::from(vec![0; RECORD_BYTES_MAX.min(bytes.end.saturating_sub(bytes.start)) as usize]);
        for part in records(bytes) {
            self.write_record(part.start, zeros.slice(..(part.end - part.start) as usize)).await?;
        }
        Ok(())
    }

    async fn write_record(&self, offset: u64, content: Bytes) -> Result<(), BlocksError> {
        let page_bytes = u64::from(self.geometry.page_bytes);
        let range = ByteRange { offset, bytes: content.len() as u64 };
        let pages = self.pages(range);
        let parts = !offset.is_multiple_of(page_bytes) || !range.end().is_multiple_of(page_bytes);
        let bytes = (pages.end.0 - pages.start.0) * page_bytes;
        self.admit(bytes, || !parts && self.all_have_diffs(&pages)).await?;
        // It may have failed while this waited.
        self.working()?;
        let pass = self.gate.enter(pages.clone(), parts).await;
        let content = if parts { self.whole_pages(&pages, offset, content).await? } else { content };
        let crcs = content.chunks_exact(page_bytes as usize).map(crc32c).collect();
        let record = Record::Write { first: pages.start, crcs, content };
        self.heat_up(&pages);
        self.log_write(record, &pages, pass).await
    }

    /// What was written before this is durable when it returns. Merging gives way to it as to a write.
    async fn make_durable(&self) -> Result<(), BlocksError> {
        let _writing = self.pace.enter(self.env.clock.now());
        self.log.sync().await.map_err(|error| self.log_failed(error))
    }

    async fn log_write(&self, record: Record, pages: &Range<Page>, pass: Pass) -> Result<(), BlocksError> {
        let _writing = self.pace.enter(self.env.clock.now());
        let are_zeros = matches!(record, Record::Zero { .. });
        match self.log.append_with(record, pass).await {
            Ok(Some(_)) => {
                self.try_again(pages, are_zeros);
                Ok(())
            }
            // A full disk is full again at once if nobody says so.
            Ok(None) => Err(BlocksError::NoSpace { needed_bytes: self.settings.segment_bytes, free_bytes: 0 }),
            Err(error) => Err(self.log_failed(error)),
        }
    }

    /// Whether diffs wait in all stripes that these pages are in.
    fn all_have_diffs(&self, pages: &Range<Page>) -> bool {
        let diffs = self.diffs();
        self.geometry.positions(pages).all(|position| diffs.has(position))
    }

    /// Puts bytes into what their first and last page are now.
    async fn whole_pages(&self, pages: &Range<Page>, offset: u64, content: Bytes) -> Result<Bytes, BlocksError> {
        let page_bytes = u64::from(self.geometry.page_bytes);
        let (start, end) = (self.geometry.start(pages.start), self.geometry.start(pages.end));
        let last = Page(pages.end.0 - 1);
        let old = |page: Page| async move {
            let range = ByteRange { offset: self.geometry.start(page), bytes: page_bytes };
            self.read(range).await.map(joined)
        };
        let needs_first = offset > start || (pages.start == last && offset + (content.len() as u64) < end);
        let needs_last = pages.start != last && offset + (content.len() as u64) < end;
        let first = async { if needs_first { old(pages.start).await.map(Some) } else { Ok(None) } };
        let after = async { if needs_last { old(last).await.map(Some) } else { Ok(None) } };
        let (first, after) = try_join(first, after).await?;
        let mut whole = BytesMut::zeroed((end - start) as usize);
        if let Some(first) = first {
            whole[..first.len()].copy_from_slice(&first);
        }
        if let Some(after) = after {
            let at = whole.len() - after.len();
            whole[at..].copy_from_slice(&after);
        }
        let skipped = (offset - start) as usize;
        whole[skipped..skipped + content.len()].copy_from_slice(&content);
        Ok(whole.freeze())
    }

    async fn zero(&self, range: ByteRange, how: Zeroing) -> Result<(), BlocksError> {
        self.within(range)?;
        self.working()?;
        if range.bytes == 0 {
            return Ok(());
        }
        let page_bytes = u64::from(self.geometry.page_bytes);
        let bytes = range.offset..range.end();
        let whole = bytes.start.next_multiple_of(page_bytes)..bytes.end / page_bytes * page_bytes;
        match how.space {
            // Of a page in part the rest has to be read; and what takes space is written.
            _ if how.only_fast && (how.space == Space::Keep || whole != bytes) => {
                return Err(BlocksError::Slow { range });
            }
            Space::Keep => self.write_zeros(bytes).await?,
            // Within one page, or parts of two.
            Space::Return if whole.is_empty() => self.write_zeros(bytes).await?,
            Space::Return => {
                self.write_zeros(bytes.start..whole.start).await?;
                self.write_zeros(whole.end..bytes.end).await?;
                let mut at = whole.start;
                while at < whole.end {
                    let position = self.geometry.spot(at).position;
                    let end = ((position + 1) * self.geometry.stripe_bytes()).min(whole.end);
                    self.zero_pages(self.geometry.page(at)..self.geometry.page(end)).await?;
                    at = end;
                }
            }
        }
        match how.durable {
            Durable::Now => self.make_durable().await,
            Durable::WithFlush => Ok(()),
        }
    }

    /// Zeros whole pages of one stripe.
    async fn zero_pages(&self, pages: Range<Page>) -> Result<(), BlocksError> {
        // A write that is on its way here may be that of somebody who is gone, and comes before this.
        if let Some(_alone) = self.gate.try_enter(&pages, true) {
            let (diffs, stripe) = self.look(self.geometry.position(pages.start), pages.clone());
            if diffs.is_empty() && stripe.is_none() {
                // What was a hole may have become another's since it failed.
                return self.working();
            }
        }
        self.admit_discard().await?;
        self.working()?;
        let pass = self.gate.enter(pages.clone(), false).await;
        let record = Record::Zero { first: pages.start, pages: pages.end.0 - pages.start.0 };
        self.log_write(record, &pages, pass).await
    }

    /// The diffs of pages of one stripe, and the stripe at this position. They are looked at in this order: a merge makes a
    /// stripe known before it releases the diffs that are in it, so a page that is in neither is nowhere.
    fn look(&self, position: u64, pages: Range<Page>) -> (Vec<(Page, Diff)>, Option<Arc<StripeRecord>>) {
        let diffs = self.diffs().range(pages).collect();
        (diffs, self.stripe(position))
    }

    fn spans(&self, range: ByteRange, spans_max: usize) -> Vec<Span> {
        let mut spans = Spans::new(spans_max);
        let mut at = range.offset;
        while at < range.end() {
            // Stripe by stripe, so that a look at a few spans of a large volume is short.
            let position = self.geometry.spot(at).position;
            let end = ((position + 1) * self.geometry.stripe_bytes()).min(range.end());
            let (diffs, stripe) = self.look(position, self.pages(ByteRange { offset: at, bytes: end - at }));
            let base = if stripe.is_some() { SpanKind::Data } else { SpanKind::Hole };
            for (page, diff) in diffs {
                let start = self.geometry.start(page);
                let kind = if diff.kind == DiffKind::Zeros { SpanKind::Hole } else { SpanKind::Data };
                let until = (start + u64::from(self.geometry.page_bytes)).min(end);
                if !spans.push(start.saturating_sub(at), base) || !spans.push(until - start.max(at), kind) {
                    return spans.finish();
                }
                at = until;
            }
            if !spans.push(end - at, base) {
                break;
            }
            at = end;
        }
        spans.finish()
    }
}

/// Bytes of a read that are in one kind of place.
#[derive(Debug)]
enum Part {
    /// In one chunk of a stripe, or nowhere.
    Base(ByteRange),
    /// In the log, one page behind the other, or all zeros: `from..to` of these pages.
    Diffs { from: u64, pages: Vec<(Page, Diff)>, to: u64 },
}

/// Why pages of the log could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogRead {
    /// Their segment is over: look again.
    Over,
    /// No disk has them.
    Lost,
}

/// What is written of these bytes by one record each: records end where pages do.
fn records(bytes: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut at = bytes.start;
    std::iter::from_fn(move || {
        let start = at;
        at = ((start / RECORD_BYTES_MAX + 1) * RECORD_BYTES_MAX).min(bytes.end);
        (start < bytes.end).then_some(start..at)
    })
}

/// Whether a page lies in the log behind those before it, or is zeros as they are.
fn follows(pages: &[(Page, Diff)], page: Page, diff: Diff, page_bytes: u64) -> bool {
    let (last, before) = pages[pages.len() - 1];
    let next = page.0 == last.0 + 1 && pages.len() < READ_PAGES_MAX;
    next && match (before.kind, diff.kind) {
        (DiffKind::Zeros, DiffKind::Zeros) => true,
        (DiffKind::Content { .. }, DiffKind::Content { .. }) => {
            before.at.segment == diff.at.segment && before.at.offset + page_bytes == diff.at.offset
        }
        _ => false,
    }
}

#[async_trait]
impl Blocks for Volume {
    fn bytes(&self) -> u64 {
        self.inner.bytes.load(Ordering::Acquire)
    }

    fn page_bytes(&self) -> u32 {
        self.inner.geometry.page_bytes
    }

    fn access(&self) -> Access {
        Access::ReadWrite
    }

    async fn read(&self, range: ByteRange) -> Result<Vec<Stretch>, BlocksError> {
        self.inner.within(range)?;
        // A former owner must not show what was true once.
        self.inner.working()?;
        let stretches = self.inner.read(range).await?;
        // What it had may have become another's since it failed.
        self.inner.working()?;
        Ok(stretches.into_iter().filter(|stretch| stretch.bytes() > 0).collect())
    }

    async fn write(&self, offset: u64, content: Bytes, durable: Durable) -> Result<(), BlocksError> {
        self.inner.write(offset, content, durable).await
    }

    async fn write_zeroes(&self, range: ByteRange, how: Zeroing) -> Result<(), BlocksError> {
        self.inner.zero(range, how).await
    }

    async fn flush(&self) -> Result<(), BlocksError> {
        self.inner.working()?;
        self.inner.make_durable().await
    }

    async fn spans(&self, range: ByteRange, spans_max: usize) -> Result<Vec<Span>, BlocksError> {
        self.inner.within(range)?;
        // As for a read: where it had nothing the next owner may have data.
        self.inner.working()?;
        let spans = self.inner.spans(range, spans_max);
        self.inner.working()?;
        Ok(spans)
    }
}

/// A read looks again this often while segments end under it.
const LOOKS_MAX: usize = 100;
/// Pages read from the log at once.
const READ_PAGES_MAX: usize = 256;
/// Records of writes end at multiples of this.
const RECORD_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests;
