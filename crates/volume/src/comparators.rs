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
//! None of them survives a crash in the middle of a write, and none recovers from its logs: they are here for what a write
//! costs, not to keep data (docs/decisions/0015-parity-in-place-is-in-the-bench-only.md).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use claystone_chunk::{
    ByteRange, ChunkError, DiskId, Durability, Lease, Overwrite, OwnerId, SECTOR_BYTES, SegmentError, Term,
};
use claystone_code::{ChunkIndex, CodeSpec, ErasureCode};
use claystone_env::Env;
use claystone_meta::StripeRecord;
use claystone_stripe::{Claim, StripeError, Stripes};
use futures::future::try_join_all;
use tokio::sync::Mutex;

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
    /// New data is appended beside it: pages that were written since the last replay.
    SpeculativeNext,
    /// New data, then old data is appended beside it: pages that were not.
    SpeculativeFirst,
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
    /// The log of changes on each disk.
    logs: std::sync::Mutex<BTreeMap<DiskId, Arc<Mutex<ParityLog>>>>,
    numbers: AtomicU64,
}

/// Where changes for the parity chunks on a disk are appended; number 0: nowhere yet.
#[derive(Debug, Default)]
struct ParityLog {
    number: u64,
    end: u64,
}

impl std::fmt::Debug for InPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "InPlace({:?})", self.method)
    }
}

impl InPlace {
    /// A device of zeros, of `stripes_count` whole stripes, under an owner of its own.
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
        Ok(InPlace {
            stripes,
            code: built,
            method,
            geometry,
            records,
            lease,
            gate: Gate::default(),
            logs: std::sync::Mutex::default(),
            numbers: AtomicU64::new(1),
        })
    }

    /// Writes whole pages within one chunk. Nobody else writes these rows.
    async fn update(
        &self,
        stripe: &StripeRecord,
        column: ChunkIndex,
        offset: u64,
        new: Bytes,
    ) -> Result<(), BlocksError> {
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
                let logged = try_join_all(parity.iter().map(|index| self.append(stripe, *index, delta.clone())));
                futures::future::try_join(logged, self.overwrite(stripe, column, offset, new)).await?;
            }
            UpdateMethod::SpeculativeNext => {
                let logged = try_join_all(parity.iter().map(|index| self.append(stripe, *index, new.clone())));
                futures::future::try_join(logged, self.overwrite(stripe, column, offset, new.clone())).await?;
            }
            UpdateMethod::SpeculativeFirst => {
                try_join_all(parity.iter().map(|index| self.append(stripe, *index, new.clone()))).await?;
                let mut old = self.read(stripe, [column].into_iter(), range).await?;
                let before = old.remove(&column).expect("it was asked for");
                let logged = try_join_all(parity.iter().map(|index| self.append(stripe, *index, before.clone())));
                futures::future::try_join(logged, self.overwrite(stripe, column, offset, new)).await?;
            }
        }
        Ok(())
    }

    async fn read(
        &self,
        stripe: &StripeRecord,
        chunks: impl Iterator<Item = ChunkIndex>,
        range: ByteRange,
    ) -> Result<BTreeMap<ChunkIndex, Bytes>, BlocksError> {
        let ranges = chunks.map(|index| (index, range)).collect();
        if let Some(read) = self.stripes.read_columns_plain(stripe, &ranges).await {
            return Ok(read);
        }
        let hold = self.stripes.share(stripe.id).await.map_err(|error| failed(&error))?;
        self.stripes.read_columns(stripe, &ranges, &hold).await.map_err(|error| failed(&error))
    }

    async fn overwrite(
        &self,
        stripe: &StripeRecord,
        index: ChunkIndex,
        offset: u64,
        bytes: Bytes,
    ) -> Result<(), BlocksError> {
        let place = stripe.places[index.at()].ok_or_else(|| failed(&"a chunk has no place"))?;
        let id = stripe.chunk_id(index).ok_or_else(|| failed(&"a chunk has no place"))?;
        let store = self.stripes.stores().readable(place.disk).ok_or_else(|| failed(&"a disk is absent"))?;
        let overwritten = store.overwrite(id, self.lease, &[Overwrite { offset, bytes }]).await;
        overwritten.map_err(|error: ChunkError| failed(&error))
    }

    /// Appends to the log beside a parity chunk.
    async fn append(&self, stripe: &StripeRecord, index: ChunkIndex, content: Bytes) -> Result<(), BlocksError> {
        let place = stripe.places[index.at()].ok_or_else(|| failed(&"a chunk has no place"))?;
        let store = self.stripes.stores().readable(place.disk).ok_or_else(|| failed(&"a disk is absent"))?;
        let log = {
            let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
            logs.entry(place.disk).or_default().clone()
        };
        // One append of a segment after another.
        let mut log = log.lock().await;
        if log.number == 0 || log.end + content.len() as u64 > LOG_BYTES {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            let made = store.segments().create_segment(number, self.lease, LOG_BYTES).await;
            made.map_err(|error: SegmentError| failed(&error))?;
            // The space beside parity is bounded; others would replay it first.
            let over = store.segments().delete_segment(log.number, self.lease).await;
            over.map_err(|error: SegmentError| failed(&error))?;
            *log = ParityLog { number, end: 0 };
        }
        let end = log.end;
        log.end += content.len() as u64;
        let appended = store.segments().append(log.number, self.lease, end, content).await;
        appended.map_err(|error: SegmentError| failed(&error))
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
        let mut stretches = Vec::new();
        let mut at = range.offset;
        while at < range.end() {
            let spot = self.geometry.spot(at);
            let bytes = (self.geometry.chunk_bytes - spot.offset).min(range.end() - at);
            let (stripe, _) = &self.records[spot.position as usize];
            let wanted = ByteRange { offset: spot.offset, bytes };
            let mut read = InPlace::read(self, stripe, [spot.column].into_iter(), wanted).await?;
            stretches.extend(read.remove(&spot.column).map(Stretch::Data));
            at += bytes;
        }
        Ok(stretches)
    }

    async fn write(&self, offset: u64, content: Bytes, durable: Durable) -> Result<(), BlocksError> {
        within(ByteRange { offset, bytes: content.len() as u64 }, self.bytes())?;
        let unit = u64::from(self.geometry.page_bytes.max(SECTOR_BYTES));
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
            self.update(&self.records[spot.position as usize].0, spot.column, start.offset, whole).await?;
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
        let synced = try_join_all(stores.map(|store| async move { store.sync().await })).await;
        synced.map_err(|error| failed(&error))?;
        let logs: Vec<(DiskId, Arc<Mutex<ParityLog>>)> = {
            let logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
            logs.iter().map(|(disk, log)| (*disk, log.clone())).collect()
        };
        for (disk, log) in logs {
            let number = log.lock().await.number;
            let store = self.stripes.stores().readable(disk).ok_or_else(|| failed(&"a disk is absent"))?;
            store.segments().sync_segment(number, self.lease).await.map_err(|error| failed(&error))?;
        }
        Ok(())
    }

    async fn spans(&self, range: ByteRange, _spans_max: usize) -> Result<Vec<Span>, BlocksError> {
        within(range, self.bytes())?;
        let whole = Span { bytes: range.bytes, kind: SpanKind::Data };
        Ok((range.bytes > 0).then_some(whole).into_iter().collect())
    }
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

const LOG_BYTES: u64 = 64 << 20;
