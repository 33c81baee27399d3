//! Other ways to keep parity up to date, to be measured beside this one. They write in place, over stripes that are there.
//!
//! | method | a write of whole pages | before it is acknowledged |
//! |---|---|---|
//! | replicas | overwrites every copy | 1 step |
//! | naive | reads old data and old parity, overwrites data and parity | 2 steps |
//! | parity log | reads old data; overwrites it, and appends the change at each parity | 2 steps |
//! | speculative, next | overwrites data, and appends it at each parity | 1 step |
//! | speculative, first | appends new data at each parity, which wants the old: reads, appends it too, overwrites | 3 steps |
//!
//! Source: [drc-dpu §2.3]: what delayed parity update is compared with.
//!
//! Logs of changes are replayed when they are full, while writers wait, and before lost data is decoded.
//!
//! None of them survives a crash in the middle of a write, and none finds its logs after one: they are here for what a write
//! costs, not to keep data (docs/decisions/0015-parity-in-place-is-for-measuring-only.md).
//!
//! Invariants:
//! 1. After a change that failed, or was cut off, in the middle nothing is certain: the device takes and gives nothing more.
//! 2. Nothing is decoded beside a change, nor by parity that is behind: logs are replayed before. A disk that is away then misses what its parity was to
//!    get, and that parity counts no more, though the disk comes back; the device takes no writes from then on.

mod parity_log;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use claystone_chunk::{
    ByteRange, ChunkId, ChunkStore, DiskId, Durability, Lease, Overwrite, OwnerId, SECTOR_BYTES, Term,
};
use claystone_code::{ChunkIndex, CodeSpec, ErasureCode};
use claystone_env::{Clock, Env, timeout};
use claystone_meta::StripeRecord;
use claystone_stripe::{Claim, StripeError, Stripes};
use futures::future::try_join_all;
use tokio::sync::RwLock;

use self::parity_log::{Logged, ParityLogs, Target};
use crate::gate::Gate;
use crate::geometry::{Geometry, Page};
use crate::{Access, Blocks, BlocksError, Durable, Span, SpanKind, Stretch, VolumeError, Zeroing, joined, within};

/// How parity follows a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateMethod {
    /// There is none: every chunk is a copy.
    Replicas,
    /// It is read, changed and written.
    Naive,
    /// What changes is appended beside it.
    ParityLog,
    /// New data is appended beside it, and the old too where it was not since the last replay.
    Speculative,
    /// The same as if every page had been written since the last replay. To be measured: what is logged is never replayed.
    SpeculativeNext,
    /// The same as if none had.
    SpeculativeFirst,
}

impl UpdateMethod {
    /// Those that a device may have for longer than a measurement, by their names.
    pub const NAMED: [(&str, UpdateMethod); 4] = [
        ("replicas", UpdateMethod::Replicas),
        ("naive", UpdateMethod::Naive),
        ("parity-log", UpdateMethod::ParityLog),
        ("speculative", UpdateMethod::Speculative),
    ];

    /// Whether parity is behind what was written until logs are replayed.
    fn has_logs(self) -> bool {
        !matches!(self, UpdateMethod::Replicas | UpdateMethod::Naive)
    }
}

impl fmt::Display for UpdateMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UpdateMethod::Replicas => "replicas",
            UpdateMethod::Naive => "naive",
            UpdateMethod::ParityLog => "parity-log",
            UpdateMethod::Speculative => "speculative",
            UpdateMethod::SpeculativeNext => "speculative-next",
            UpdateMethod::SpeculativeFirst => "speculative-first",
        })
    }
}

/// A text that names no method.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is none of replicas, naive, parity-log, speculative")]
pub struct UnknownMethod(String);

impl FromStr for UpdateMethod {
    type Err = UnknownMethod;

    fn from_str(text: &str) -> Result<UpdateMethod, UnknownMethod> {
        let found = UpdateMethod::NAMED.iter().find(|(name, _)| *name == text);
        found.map(|(_, method)| *method).ok_or_else(|| UnknownMethod(text.to_owned()))
    }
}

/// A device that is written in place by one method.
pub struct InPlace {
    stripes: Stripes,
    code: Arc<dyn ErasureCode>,
    method: UpdateMethod,
    geometry: Geometry,
    bytes: u64,
    records: Vec<(StripeRecord, Claim)>,
    clock: Arc<dyn Clock>,
    lease: Lease,
    gate: Gate,
    logs: ParityLogs,
    /// Whoever writes shares it, and who replays has it alone.
    replaying: RwLock<()>,
    replays: AtomicU64,
    /// Units of which the logs have the first content, by stripe, column and offset.
    speculated: std::sync::Mutex<BTreeSet<(u64, ChunkIndex, u64)>>,
    /// Disks of which the parity missed a replay.
    behind: std::sync::Mutex<BTreeSet<DiskId>>,
    /// The first error in the middle of a change.
    failure: OnceLock<String>,
}

/// A change that is under way.
struct UnderWay<'a> {
    device: &'a InPlace,
    is_over: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.device.fail(&"a change was cut off in the middle");
        }
    }
}

impl fmt::Debug for InPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InPlace({:?})", self.method)
    }
}

impl InPlace {
    /// A device of so many zeros, under an owner of its own, with logs of `log_bytes` on each disk at most.
    ///
    /// # Errors
    /// The stripes cannot be written; those that were are deleted.
    pub async fn new(
        env: &Env,
        stripes: Stripes,
        code: CodeSpec,
        method: UpdateMethod,
        geometry: Geometry,
        bytes: u64,
        log_bytes: u64,
    ) -> Result<InPlace, VolumeError> {
        let mut owner = [0; 16];
        env.random.fill(&mut owner);
        let lease = Lease { owner: OwnerId(u128::from_le_bytes(owner)), term: Term(1) };
        let built = code.build()?;
        let zeros = vec![0; geometry.stripe_bytes() as usize];
        let mut records = Vec::new();
        for _ in 0..bytes.div_ceil(geometry.stripe_bytes()) {
            match write_stripe(&stripes, &*env.clock, code, &zeros).await {
                Ok(written) => records.push(written),
                Err(error) => {
                    for (record, _) in &records {
                        // What a disk keeps is swept later.
                        stripes.discard(record).await;
                    }
                    return Err(error);
                }
            }
        }
        let clock = env.clock.clone();
        let logs = ParityLogs::new(stripes.clone(), clock.clone(), lease, unit_bytes(geometry), log_bytes);
        Ok(InPlace {
            stripes,
            code: built,
            method,
            geometry,
            bytes,
            records,
            clock,
            lease,
            gate: Gate::default(),
            logs,
            replaying: RwLock::default(),
            replays: AtomicU64::new(0),
            speculated: std::sync::Mutex::default(),
            behind: std::sync::Mutex::default(),
            failure: OnceLock::new(),
        })
    }

    /// Whose its logs are.
    pub fn owner(&self) -> OwnerId {
        self.lease.owner
    }

    /// How it is written.
    pub fn method(&self) -> UpdateMethod {
        self.method
    }

    /// How often logs were replayed.
    pub fn replays(&self) -> u64 {
        self.replays.load(Ordering::Relaxed)
    }

    /// Bytes of the longest of its logs.
    pub fn log_bytes(&self) -> u64 {
        self.logs.longest()
    }

    /// Why it takes and gives nothing more, if it does not.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Its stripes.
    pub fn records(&self) -> impl Iterator<Item = &StripeRecord> {
        self.records.iter().map(|(record, _)| record)
    }

    /// Patches parity with all that was logged.
    ///
    /// # Errors
    /// A disk failed; so has the device.
    pub async fn replay(&self) -> Result<(), BlocksError> {
        let _alone = self.replaying.write().await;
        self.replay_alone().await
    }

    async fn replay_alone(&self) -> Result<(), BlocksError> {
        self.is_sound()?;
        let records: Vec<StripeRecord> = self.records().cloned().collect();
        let away = self.change(self.logs.replay(&records, &*self.code)).await?;
        self.behind.lock().unwrap_or_else(PoisonError::into_inner).extend(away);
        self.speculated().clear();
        self.replays.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn speculated(&self) -> std::sync::MutexGuard<'_, BTreeSet<(u64, ChunkIndex, u64)>> {
        self.speculated.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_sound(&self) -> Result<(), BlocksError> {
        match self.failure.get() {
            Some(reason) => Err(BlocksError::Failed { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    fn fail(&self, error: &dyn fmt::Display) {
        if self.failure.set(error.to_string()).is_ok() {
            tracing::error!(method = %self.method, %error, "a device that is written in place failed in the middle of a change");
        }
    }

    /// Carries out a change: after one that fails, or is cut off, nothing is certain.
    async fn change<T>(&self, change: impl Future<Output = Result<T, BlocksError>>) -> Result<T, BlocksError> {
        let mut under_way = UnderWay { device: self, is_over: false };
        let changed = change.await;
        under_way.is_over = true;
        if let Err(error) = &changed {
            self.fail(error);
        }
        changed
    }

    /// What is known of a stripe: parity that is behind has no place.
    fn decodable(&self, stripe: &StripeRecord) -> StripeRecord {
        let behind = self.behind.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stripe = stripe.clone();
        for place in &mut stripe.places[self.geometry.columns.into()..] {
            place.take_if(|place| behind.contains(&place.disk));
        }
        stripe
    }

    /// Whether all parity can be written.
    fn takes_writes(&self) -> Result<(), BlocksError> {
        self.is_sound()?;
        match self.behind.lock().unwrap_or_else(PoisonError::into_inner).first() {
            Some(disk) => Err(failed(&format!("disk {disk} was away and lacks parity: nothing is written any more"))),
            None => Ok(()),
        }
    }

    /// Writes whole pages within one chunk. Nobody else writes these rows.
    async fn update(&self, position: u64, column: ChunkIndex, offset: u64, new: Bytes) -> Result<(), BlocksError> {
        let stripe = &self.records[position as usize].0;
        let append = |parity: &ChunkIndex, kind: Logged, content: &Bytes| {
            let target = Target { position, stripe, parity: *parity, column, offset };
            self.logs.append(target, kind, content.clone())
        };
        let range = ByteRange { offset, bytes: new.len() as u64 };
        let parity: Vec<ChunkIndex> = (self.geometry.columns..self.code.shape().chunks()).map(ChunkIndex).collect();
        match self.method {
            UpdateMethod::Replicas => {
                let all = (0..self.code.shape().chunks()).map(ChunkIndex);
                try_join_all(all.map(|index| self.overwrite(stripe, index, offset, new.clone()))).await?;
            }
            UpdateMethod::Naive => {
                let mut old = self.read(stripe, parity.iter().copied().chain([column]), range).await?;
                let before = old.remove(&column).expect("it was asked for");
                let mut sums: Vec<BytesMut> = old.values().map(|bytes| BytesMut::from(&bytes[..])).collect();
                let mut targets: Vec<&mut [u8]> = sums.iter_mut().map(|sum| &mut sum[..]).collect();
                self.code.encode_add(column, &[&change(&before, &new)], &mut targets);
                let writes = parity.iter().copied().zip(sums.into_iter().map(BytesMut::freeze)).chain([(column, new)]);
                try_join_all(writes.map(|(index, bytes)| self.overwrite(stripe, index, offset, bytes))).await?;
            }
            UpdateMethod::ParityLog => {
                let mut old = self.read(stripe, [column].into_iter(), range).await?;
                let delta = Bytes::from(change(&old.remove(&column).expect("it was asked for"), &new));
                let logged = try_join_all(parity.iter().map(|parity| append(parity, Logged::Delta, &delta)));
                futures::future::try_join(logged, self.overwrite(stripe, column, offset, new)).await?;
            }
            _ if self.succeeds(position, column, range) => {
                let logged = try_join_all(parity.iter().map(|parity| append(parity, Logged::New, &new)));
                futures::future::try_join(logged, self.overwrite(stripe, column, offset, new.clone())).await?;
            }
            _ => {
                try_join_all(parity.iter().map(|parity| append(parity, Logged::New, &new))).await?;
                let mut old = self.read(stripe, [column].into_iter(), range).await?;
                let before = old.remove(&column).expect("it was asked for");
                let logged = try_join_all(parity.iter().map(|parity| append(parity, Logged::Old, &before)));
                futures::future::try_join(logged, self.overwrite(stripe, column, offset, new)).await?;
                let units = (0..range.bytes).step_by(unit_bytes(self.geometry) as usize);
                self.speculated().extend(units.map(|at| (position, column, offset + at)));
            }
        }
        Ok(())
    }

    /// Whether speculating succeeds: the logs have the first content of all of this.
    fn succeeds(&self, position: u64, column: ChunkIndex, range: ByteRange) -> bool {
        match self.method {
            UpdateMethod::SpeculativeNext => true,
            UpdateMethod::SpeculativeFirst => false,
            _ => {
                let known = self.speculated();
                let mut units = (range.offset..range.end()).step_by(unit_bytes(self.geometry) as usize);
                units.all(|offset| known.contains(&(position, column, offset)))
            }
        }
    }

    /// Reads chunks as they lie, within an update: parity may be behind, so nothing is decoded, and who is late is waited for.
    async fn read(
        &self,
        stripe: &StripeRecord,
        chunks: impl Iterator<Item = ChunkIndex>,
        range: ByteRange,
    ) -> Result<BTreeMap<ChunkIndex, Bytes>, BlocksError> {
        let read = async |chunk| Ok((chunk, read_chunk(&self.stripes, &*self.clock, stripe, chunk, range).await?));
        Ok(try_join_all(chunks.map(read)).await?.into_iter().collect())
    }

    /// Reads a chunk, decoded if it is lost, for which parity is brought up to date.
    async fn read_or_decode(
        &self,
        stripe: &StripeRecord,
        chunk: ChunkIndex,
        range: ByteRange,
    ) -> Result<Bytes, BlocksError> {
        // Who is late is waited for: decoding would have all writers wait.
        if let Ok(read) = read_chunk(&self.stripes, &*self.clock, stripe, chunk, range).await {
            return Ok(read);
        }
        let _alone = self.replaying.write().await;
        self.is_sound()?;
        if self.method.has_logs() {
            self.replay_alone().await?;
        }
        let hold = self.stripes.share(stripe.id).await.map_err(|error| failed(&error))?;
        let read = self.stripes.read_columns(&self.decodable(stripe), &[(chunk, range)].into(), &hold).await;
        match read {
            Ok(mut read) => Ok(read.remove(&chunk).expect("it was asked for")),
            Err(StripeError::Unrecoverable { .. }) => Err(BlocksError::Lost { range }),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Reads bytes of its stripes, beyond its own end too.
    async fn read_stripes(&self, range: ByteRange) -> Result<Vec<Stretch>, BlocksError> {
        let mut stretches = Vec::new();
        for part in self.geometry.chunks(range.offset..range.end()) {
            let spot = self.geometry.spot(part.offset);
            let (stripe, _) = &self.records[spot.position as usize];
            let wanted = ByteRange { offset: spot.offset, bytes: part.bytes };
            stretches.push(Stretch::Data(self.read_or_decode(stripe, spot.column, wanted).await?));
        }
        Ok(stretches)
    }

    async fn overwrite(
        &self,
        stripe: &StripeRecord,
        index: ChunkIndex,
        offset: u64,
        bytes: Bytes,
    ) -> Result<(), BlocksError> {
        let (id, store) = chunk_at(&self.stripes, stripe, index)?;
        let changes = [Overwrite { offset, bytes }];
        in_time(&*self.clock, store.overwrite(id, self.lease, &changes)).await
    }
}

#[async_trait]
impl Blocks for InPlace {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn page_bytes(&self) -> u32 {
        self.geometry.page_bytes
    }

    fn access(&self) -> Access {
        Access::ReadWrite
    }

    async fn read(&self, range: ByteRange) -> Result<Vec<Stretch>, BlocksError> {
        within(range, self.bytes())?;
        self.is_sound()?;
        self.read_stripes(range).await
    }

    async fn write(&self, offset: u64, content: Bytes, durable: Durable) -> Result<(), BlocksError> {
        within(ByteRange { offset, bytes: content.len() as u64 }, self.bytes())?;
        let unit = unit_bytes(self.geometry);
        let end = offset + content.len() as u64;
        let mut at = offset;
        while at < end {
            let spot = self.geometry.spot(at);
            let chunk_end = at + self.geometry.chunk_bytes - spot.offset;
            let next = end.min(chunk_end);
            let (from, to) = (at / unit * unit, next.next_multiple_of(unit));
            // Rows are named by their place in the first column, so that writers of one row meet.
            let row = Page((spot.position * self.geometry.chunk_bytes + spot.offset) / unit);
            let _pass = self.gate.enter(row..Page(row.0 + (to - from) / unit), true).await;
            let part = content.slice((at - offset) as usize..(next - offset) as usize);
            let whole = if from == at && to == next {
                part
            } else {
                let old = joined(self.read_stripes(ByteRange { offset: from, bytes: to - from }).await?);
                let mut whole = BytesMut::from(&old[..]);
                whole[(at - from) as usize..(next - from) as usize].copy_from_slice(&part);
                whole.freeze()
            };
            let start = self.geometry.spot(from);
            if self.logs.are_full() && self.method.has_logs() {
                let _alone = self.replaying.write().await;
                // Whoever had it before may have replayed them.
                if self.logs.are_full() {
                    self.replay_alone().await?;
                }
            }
            let _sharing = self.replaying.read().await;
            self.takes_writes()?;
            self.change(self.update(spot.position, spot.column, start.offset, whole)).await?;
            at = next;
        }
        match durable {
            Durable::Now => self.flush().await,
            Durable::WithFlush => Ok(()),
        }
    }

    async fn write_zeroes(&self, range: ByteRange, how: Zeroing) -> Result<(), BlocksError> {
        within(range, self.bytes())?;
        if how.only_fast && range.bytes > 0 {
            return Err(BlocksError::Slow { range });
        }
        let zeros = Bytes::from(vec![0; self.geometry.chunk_bytes.min(range.bytes) as usize]);
        for part in self.geometry.chunks(range.offset..range.end()) {
            self.write(part.offset, zeros.slice(..part.bytes as usize), Durable::WithFlush).await?;
        }
        match how.durable {
            Durable::Now => self.flush().await,
            Durable::WithFlush => Ok(()),
        }
    }

    async fn flush(&self) -> Result<(), BlocksError> {
        self.is_sound()?;
        // What lies on others is not its own, or lost.
        let disks: BTreeSet<DiskId> =
            self.records().flat_map(|record| record.places.iter().flatten()).map(|place| place.disk).collect();
        let stores: Vec<_> = disks.into_iter().filter_map(|disk| self.stripes.stores().readable(disk)).collect();
        let synced = async {
            try_join_all(stores.iter().map(|store| in_time(&*self.clock, store.sync()))).await?;
            self.logs.sync().await
        };
        // Nothing is changed by it: who goes away meanwhile leaves all as it is.
        synced.await.inspect_err(|error| self.fail(error))
    }

    async fn spans(&self, range: ByteRange, _spans_max: usize) -> Result<Vec<Span>, BlocksError> {
        within(range, self.bytes())?;
        let whole = Span { bytes: range.bytes, kind: SpanKind::Data };
        Ok((range.bytes > 0).then_some(whole).into_iter().collect())
    }
}

/// A stripe that was written whole.
async fn write_stripe(
    stripes: &Stripes,
    clock: &dyn Clock,
    code: CodeSpec,
    content: &[u8],
) -> Result<(StripeRecord, Claim), VolumeError> {
    let mut writer = stripes.writer(code, content.len() as u64, Durability::Buffered).await.map_err(failed_stripe)?;
    writer.append_columns(content).await.map_err(failed_stripe)?;
    let (record, claim) = writer.finish().await.map_err(failed_stripe)?;
    if record.places.iter().any(Option::is_none) {
        stripes.discard(&record).await;
        return Err(VolumeError::Blocks(failed(&"a disk failed while it was written")));
    }
    // It is zeros, and what is measured shall not be that it takes its space.
    let take_space = async {
        for chunk in (0..record.places.len() as u16).map(ChunkIndex) {
            let (id, store) = chunk_at(stripes, &record, chunk)?;
            in_time(clock, store.take_space(id)).await?;
        }
        Ok::<(), BlocksError>(())
    };
    if let Err(error) = take_space.await {
        stripes.discard(&record).await;
        return Err(error.into());
    }
    Ok((record, claim))
}

/// Nobody waits for a disk for ever.
async fn in_time<T, E: fmt::Display>(
    clock: &dyn Clock,
    call: impl Future<Output = Result<T, E>>,
) -> Result<T, BlocksError> {
    match timeout(clock, TIMEOUT, call).await {
        Some(answer) => answer.map_err(|error| failed(&error)),
        None => Err(failed(&"a disk does not answer")),
    }
}

/// Reads a chunk as it lies.
async fn read_chunk(
    stripes: &Stripes,
    clock: &dyn Clock,
    stripe: &StripeRecord,
    chunk: ChunkIndex,
    range: ByteRange,
) -> Result<Bytes, BlocksError> {
    let (id, store) = chunk_at(stripes, stripe, chunk)?;
    let read = in_time(clock, store.read(id, &[range])).await?;
    read.into_iter().next().ok_or_else(|| failed(&"a disk read nothing"))
}

/// The name of a chunk, and where it is.
fn chunk_at(
    stripes: &Stripes,
    stripe: &StripeRecord,
    chunk: ChunkIndex,
) -> Result<(ChunkId, Arc<dyn ChunkStore>), BlocksError> {
    let place = stripe.places[chunk.at()].ok_or_else(|| failed(&"a chunk has no place"))?;
    let id = stripe.chunk_id(chunk).ok_or_else(|| failed(&"a chunk has no place"))?;
    Ok((id, stripes.stores().readable(place.disk).ok_or_else(|| failed(&"a disk is absent"))?))
}

fn change(old: &[u8], new: &[u8]) -> Vec<u8> {
    old.iter().zip(new).map(|(old, new)| old ^ new).collect()
}

fn failed(error: &dyn std::fmt::Display) -> BlocksError {
    BlocksError::Failed { reason: error.to_string() }
}

fn failed_stripe(error: StripeError) -> VolumeError {
    VolumeError::Blocks(failed(&error))
}

/// What is written at least, and logged one by one.
fn unit_bytes(geometry: Geometry) -> u64 {
    geometry.page_bytes.max(SECTOR_BYTES).into()
}

const TIMEOUT: Duration = Duration::from_secs(30);
