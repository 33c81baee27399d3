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
//! costs, not to keep data (docs/decisions/0015-parity-in-place-is-for-measuring-only.md). After a write that failed in the middle
//! nothing is certain, so the device takes and gives nothing more.

mod parity_log;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use claystone_chunk::{ByteRange, ChunkId, ChunkStore, Durability, Lease, Overwrite, OwnerId, SECTOR_BYTES, Term};
use claystone_code::{ChunkIndex, CodeSpec, ErasureCode};
use claystone_env::Env;
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
    records: Vec<(StripeRecord, Claim)>,
    lease: Lease,
    gate: Gate,
    logs: ParityLogs,
    /// Whoever writes shares it, and who replays has it alone.
    replaying: RwLock<()>,
    replays: AtomicU64,
    /// Units of which the logs have the first content, by stripe, column and offset.
    speculated: std::sync::Mutex<BTreeSet<(u64, ChunkIndex, u64)>>,
    /// The first error in the middle of a change.
    failure: OnceLock<String>,
}

impl fmt::Debug for InPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InPlace({:?})", self.method)
    }
}

impl InPlace {
    /// A device of zeros, of `stripes_count` whole stripes, under an owner of its own, with logs of so many bytes on each disk.
    ///
    /// # Errors
    /// The stripes cannot be written.
    pub async fn new(
        env: &Env,
        stripes: Stripes,
        code: CodeSpec,
        method: UpdateMethod,
        geometry: Geometry,
        stripes_count: u64,
        log_bytes: u64,
    ) -> Result<InPlace, VolumeError> {
        let mut owner = [0; 16];
        env.random.fill(&mut owner);
        let lease = Lease { owner: OwnerId(u128::from_le_bytes(owner)), term: Term(1) };
        let zeros = vec![0; geometry.stripe_bytes() as usize];
        let mut records = Vec::new();
        for _ in 0..stripes_count {
            let mut writer =
                stripes.writer(code, geometry.stripe_bytes(), Durability::Buffered).await.map_err(failed_stripe)?;
            writer.append_columns(&zeros).await.map_err(failed_stripe)?;
            records.push(writer.finish().await.map_err(failed_stripe)?);
        }
        let built = code.build()?;
        let logs = ParityLogs::new(stripes.clone(), lease, unit_bytes(geometry), log_bytes);
        Ok(InPlace {
            stripes,
            code: built,
            method,
            geometry,
            records,
            lease,
            gate: Gate::default(),
            logs,
            replaying: RwLock::default(),
            replays: AtomicU64::new(0),
            speculated: std::sync::Mutex::default(),
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
        self.certain(self.logs.replay(&records, &*self.code).await)?;
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

    /// After an error in the middle of a change nothing is certain.
    fn certain<T>(&self, changed: Result<T, BlocksError>) -> Result<T, BlocksError> {
        if let Err(error) = &changed
            && self.failure.set(error.to_string()).is_ok()
        {
            tracing::error!(method = %self.method, %error, "a device that is written in place failed in the middle of a change");
        }
        changed
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
        let reads = chunks.map(async |chunk| Ok((chunk, read_chunk(&self.stripes, stripe, chunk, range).await?)));
        Ok(try_join_all(reads).await?.into_iter().collect())
    }

    /// Reads a chunk, decoded if it is lost, for which parity is brought up to date.
    async fn read_or_decode(
        &self,
        stripe: &StripeRecord,
        chunk: ChunkIndex,
        range: ByteRange,
    ) -> Result<Bytes, BlocksError> {
        let ranges = [(chunk, range)].into();
        if let Some(mut read) = self.stripes.read_columns_plain(stripe, &ranges).await {
            return Ok(read.remove(&chunk).expect("it was asked for"));
        }
        let _alone = self.replaying.write().await;
        if self.method.has_logs() {
            self.replay_alone().await?;
        }
        let hold = self.stripes.share(stripe.id).await.map_err(|error| failed(&error))?;
        let read = self.stripes.read_columns(stripe, &ranges, &hold).await;
        Ok(read.map_err(|error| failed(&error))?.remove(&chunk).expect("it was asked for"))
    }

    async fn overwrite(
        &self,
        stripe: &StripeRecord,
        index: ChunkIndex,
        offset: u64,
        bytes: Bytes,
    ) -> Result<(), BlocksError> {
        let (id, store) = chunk_at(&self.stripes, stripe, index)?;
        let overwritten = store.overwrite(id, self.lease, &[Overwrite { offset, bytes }]).await;
        overwritten.map_err(|error| failed(&error))
    }
}

#[async_trait]
impl Blocks for InPlace {
    fn bytes(&self) -> u64 {
        self.records.len() as u64 * self.geometry.stripe_bytes()
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
        let mut stretches = Vec::new();
        let mut at = range.offset;
        while at < range.end() {
            let spot = self.geometry.spot(at);
            let bytes = (self.geometry.chunk_bytes - spot.offset).min(range.end() - at);
            let (stripe, _) = &self.records[spot.position as usize];
            let wanted = ByteRange { offset: spot.offset, bytes };
            stretches.push(Stretch::Data(self.read_or_decode(stripe, spot.column, wanted).await?));
            at += bytes;
        }
        Ok(stretches)
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
                let old = joined(Blocks::read(self, ByteRange { offset: from, bytes: to - from }).await?);
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
            self.is_sound()?;
            self.certain(self.update(spot.position, spot.column, start.offset, whole).await)?;
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
        self.write(range.offset, Bytes::from(vec![0; range.bytes as usize]), how.durable).await
    }

    async fn flush(&self) -> Result<(), BlocksError> {
        let members = self.stripes.stores().members();
        let stores = members.into_iter().filter_map(|member| member.store.ok());
        self.is_sound()?;
        let synced = try_join_all(stores.map(|store| async move { store.sync().await })).await;
        self.certain(synced.map_err(|error| failed(&error)))?;
        self.certain(self.logs.sync().await)
    }

    async fn spans(&self, range: ByteRange, _spans_max: usize) -> Result<Vec<Span>, BlocksError> {
        within(range, self.bytes())?;
        let whole = Span { bytes: range.bytes, kind: SpanKind::Data };
        Ok((range.bytes > 0).then_some(whole).into_iter().collect())
    }
}

/// Reads a chunk as it lies.
async fn read_chunk(
    stripes: &Stripes,
    stripe: &StripeRecord,
    chunk: ChunkIndex,
    range: ByteRange,
) -> Result<Bytes, BlocksError> {
    let (id, store) = chunk_at(stripes, stripe, chunk)?;
    let read = store.read(id, &[range]).await.map_err(|error| failed(&error))?;
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
