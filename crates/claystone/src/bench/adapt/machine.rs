//! The real store with its real upkeep, on directories of this machine as disks: few objects, and every chunk counted that is
//! read and written. Here each chunk of a stripe is lost in turn and rebuilt, and stripes are merged and split again; whole
//! workloads are played by `replay`.
//!
//! Invariants:
//! 1. All counts are of the stores, which know nothing of plans.
//! 2. What is read is compared with what was put.
//! 3. Nothing is hedged, so that a slow moment adds no reads.
//!
//! Left out: drives. The directories lie on one file system and most of what is read is in memory: times are of the program.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use bytes::Bytes;
use claystone_chunk::{ByteRange, ChunkId, ChunkStore, DiskId, StripeId};
use claystone_code::{ChunkIndex, CodeSpec};
use claystone_env::Clock;
use claystone_keeper::Keeper;
use claystone_meta::{DiskRecords, HeatPolicy, Meta, StripeRecord};
use claystone_object::{
    Attributes, Confirmed, Durability, Object, Objects, Precondition, Put, Settings, VersionRef, Versioning,
};
use claystone_stripe::{Layout, Stores, Stripes, Unpaced};
use futures::{StreamExt, TryStreamExt, stream};

use super::counted::{Counts, Tally};
use super::simulate::Keeping;
use crate::bench::load;
use crate::bench::volume::world::Machine;

/// Rebuilding each chunk of a stripe, one after the other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PerChunk {
    /// Chunks read for a lost one, on average.
    pub read: f64,
    /// At most.
    pub read_most: f64,
    /// At most, of data chunks.
    pub read_data_most: f64,
    /// Chunks read and written for all of them, for each data chunk.
    pub moved_per_data: f64,
}

/// What a conversion moved, in chunks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transfers {
    /// Data chunks read.
    pub data_read: f64,
    /// Parity chunks read.
    pub parity_read: f64,
    /// Chunks written.
    pub written: f64,
}

/// What copying the same objects to a bucket of the new code moved instead, in the same chunks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Copied {
    /// Read of the disks.
    pub read: f64,
    /// Written to them.
    pub written: f64,
    /// Read and written by a client who copies, over its connection: the store copying by itself spares that.
    pub by_client: f64,
}

/// A conversion beside copying.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Conversion {
    /// The old code.
    pub from: CodeSpec,
    /// The new one.
    pub to: CodeSpec,
    /// What it moved.
    pub transfers: Transfers,
    /// What copying moved; of conversions to the compact code.
    pub copied: Option<Copied>,
}

/// Merges and splits with these policies, each with one conversion there and back, and beside the first a copy to a new bucket.
///
/// # Errors
/// Something was refused, or other bytes came back.
pub async fn codes(
    place: &Path,
    policies: &[HeatPolicy],
    singles: &[CodeSpec],
) -> anyhow::Result<(BTreeMap<CodeSpec, PerChunk>, Vec<Conversion>)> {
    let store = Store::new(place, DISKS, claystone_stripe::Settings::default(), None).await?;
    let (mut per_chunk, mut conversions) = (BTreeMap::new(), Vec::new());
    for (number, policy) in policies.iter().enumerate() {
        let bucket = store.bucket(&format!("policy{number}"), Keeping::Policy(*policy)).await?;
        let mut stripes: Vec<StripeId> = Vec::new();
        for at in 0..usize::from(policy.sources()) {
            store.put(&bucket, at, CODES_OBJECT_BYTES).await?;
            stripes.push(store.only_stripe(&bucket, at).await?.id);
        }
        per_chunk.insert(policy.fast, store.lose_each_chunk(stripes[0]).await?);
        let (from, to) = (policy.fast, policy.compact);
        let copies = store.bucket(&format!("copies{number}"), Keeping::Code(to)).await?;
        let copied = Some(store.copy(&bucket, &copies, stripes.len()).await?);
        let (merged, transfers) = store.convert(&stripes, to).await?;
        conversions.push(Conversion { from, to, transfers, copied });
        per_chunk.insert(policy.compact, store.lose_each_chunk(merged[0].id).await?);
        let merged: Vec<StripeId> = merged.iter().map(|stripe| stripe.id).collect();
        let (_, transfers) = store.convert(&merged, from).await?;
        conversions.push(Conversion { from: to, to: from, transfers, copied: None });
        for at in 0..stripes.len() {
            store.read(&bucket, at, CODES_OBJECT_BYTES).await?;
            store.read(&copies, at, CODES_OBJECT_BYTES).await?;
        }
    }
    for (number, code) in singles.iter().enumerate() {
        let bucket = store.bucket(&format!("code{number}"), Keeping::Code(*code)).await?;
        store.put(&bucket, 0, CODES_OBJECT_BYTES).await?;
        let stripe = store.only_stripe(&bucket, 0).await?;
        per_chunk.insert(*code, store.lose_each_chunk(stripe.id).await?);
    }
    Ok((per_chunk, conversions))
}

/// A store on directories, and what is read and written there.
pub struct Store {
    /// Its records.
    pub meta: Arc<dyn Meta>,
    /// Its stripes.
    pub stripes: Stripes,
    /// Its face.
    pub objects: Objects,
    /// Its upkeep, of which nothing runs by itself.
    pub keeper: Keeper,
    /// What its disks did.
    pub tally: Tally,
    /// Of all disks, also those that are away.
    pub stores: BTreeMap<DiskId, Arc<dyn ChunkStore>>,
}

impl Store {
    /// An empty one on so many disks. `clock`: another than the system's.
    ///
    /// # Errors
    /// It cannot be made there.
    pub async fn new(
        place: &Path,
        disks: u128,
        settings: claystone_stripe::Settings,
        clock: Option<Arc<dyn Clock>>,
    ) -> anyhow::Result<Store> {
        let Machine { mut env, meta, members, .. } = Machine::new(place, disks).await?;
        if let Some(clock) = clock {
            env.clock = clock;
        }
        let (tally, known) = (Tally::default(), Stores::default());
        let mut stores = BTreeMap::new();
        for mut member in members {
            let inner = member.store.map_err(|absence| anyhow!(absence.reason))?;
            let store = tally.around(inner);
            stores.insert(member.record.id, store.clone());
            member.store = Ok(store);
            meta.put_disk(member.record.clone()).await?;
            known.put(member);
        }
        let settings = claystone_stripe::Settings { hedge_delay_min: NO_HEDGE, ..settings };
        let (stripes, damage) = Stripes::new(env.clone(), known, settings);
        let meta: Arc<dyn Meta> = meta;
        let settings = Settings { durability: Durability::Buffered, ..Settings::new("rs:6+3".parse()?) };
        let objects = Objects::new(env.clone(), meta.clone(), stripes.clone(), settings);
        let settings = claystone_keeper::Settings {
            convert_after: Duration::ZERO,
            reclaim_after: Duration::ZERO,
            ..Default::default()
        };
        let keeper = Keeper::new(env, meta.clone(), stripes.clone(), damage, settings)?;
        Ok(Store { meta, stripes, objects, keeper, tally, stores })
    }

    /// A new bucket.
    ///
    /// # Errors
    /// There are too few disks for what it wants.
    pub async fn bucket(&self, name: &str, keeping: Keeping) -> anyhow::Result<String> {
        self.objects.create_bucket(name, "owner", Some(keeping.first())).await?;
        if let Keeping::Policy(policy) = keeping {
            self.objects.set_policy(name, Some(policy)).await?;
        }
        Ok(name.to_owned())
    }

    /// Puts an object.
    ///
    /// # Errors
    /// It was refused.
    pub async fn put(&self, bucket: &str, at: usize, bytes: u64) -> anyhow::Result<()> {
        let etag = format!("{at}");
        let put = Put {
            bucket: bucket.to_owned(),
            key: key(at),
            versioning: Versioning::Off,
            precondition: Precondition::None,
            attributes: Attributes::default(),
            bytes,
            body: stream::iter([Ok(content(at, bytes))]).boxed(),
            digests: Vec::new(),
            confirm: Box::new(move |_| Ok(Confirmed { etag, checksums: BTreeMap::new() })),
        };
        self.objects.put(put).await?;
        Ok(())
    }

    /// Finds an object that was put.
    ///
    /// # Errors
    /// It is not there.
    pub async fn find(&self, bucket: &str, at: usize) -> anyhow::Result<Object> {
        let found = self.objects.find(bucket, &key(at), &VersionRef::Current).await?;
        found.object.with_context(|| format!("object {at} is gone"))
    }

    async fn only_stripe(&self, bucket: &str, at: usize) -> anyhow::Result<StripeRecord> {
        let object = self.find(bucket, at).await?;
        match object.stripes()[..] {
            [stripe] => Ok(stripe.clone()),
            ref stripes => Err(anyhow!("object {at} has {} stripes", stripes.len())),
        }
    }

    /// Reads an object and compares it.
    async fn read(&self, bucket: &str, at: usize, bytes: u64) -> anyhow::Result<()> {
        let object = self.find(bucket, at).await?;
        self.read_range(&object, at, ByteRange { offset: 0, bytes }, bytes).await
    }

    /// Reads a part of an object and compares it.
    ///
    /// # Errors
    /// It cannot be read, or holds other bytes.
    pub async fn read_range(&self, object: &Object, at: usize, range: ByteRange, bytes: u64) -> anyhow::Result<()> {
        let parts: Vec<Bytes> = self.objects.read(object, Some(range)).try_collect().await?;
        let expected = content(at, bytes).slice(range.offset as usize..range.end() as usize);
        ensure!(parts.concat() == expected, "object {at} has other bytes at {}", range.offset);
        Ok(())
    }

    /// Loses each chunk of a stripe in turn and rebuilds it.
    async fn lose_each_chunk(&self, stripe: StripeId) -> anyhow::Result<PerChunk> {
        let mut record = self.meta.stripe(stripe).await?.context("the stripe is there")?;
        let chunk_bytes = Layout::chunk_bytes_of(&record)? as f64;
        let (mut all, mut most, mut data_most, mut written) = (0.0, 0.0, 0.0, 0.0);
        let chunks = record.code.shape().chunks();
        for index in (0..chunks).map(ChunkIndex) {
            let id = record.chunk_id(index).context("a chunk has a place")?;
            let place = record.places[index.at()].context("a chunk has a place")?;
            self.stores[&place.disk].delete(id).await?;
            self.tally.take();
            let rebuilt = self.stripes.rebuild(&record, &[index], &Unpaced).await?;
            let counts = self.tally.take();
            record = self.meta.swap(rebuilt.swap).await?;
            let read = counts.read_bytes() as f64 / chunk_bytes;
            all += read;
            most = f64::max(most, read);
            if index.0 < record.code.shape().data {
                data_most = f64::max(data_most, read);
            }
            written += counts.written_bytes() as f64 / chunk_bytes;
        }
        let data = f64::from(record.code.shape().data);
        let (read, moved_per_data) = (all / f64::from(chunks), (all + written) / data);
        Ok(PerChunk { read, read_most: most, read_data_most: data_most, moved_per_data })
    }

    /// Converts stripes; returns the new ones, and what was moved.
    async fn convert(&self, stripes: &[StripeId], to: CodeSpec) -> anyhow::Result<(Vec<StripeRecord>, Transfers)> {
        let mut data: BTreeSet<ChunkId> = BTreeSet::new();
        let mut chunk_bytes = 1.0;
        for stripe in stripes {
            let record = self.meta.stripe(*stripe).await?.context("the stripe is there")?;
            chunk_bytes = Layout::chunk_bytes_of(&record)? as f64;
            data.extend((0..record.code.shape().data).filter_map(|index| record.chunk_id(ChunkIndex(index))));
        }
        self.tally.take();
        let made = self.keeper.convert(stripes, to).await?;
        let Counts { read, written, .. } = self.tally.take();
        let of = |is_data: bool| {
            let chunks = read.iter().filter(|((_, chunk), _)| data.contains(chunk) == is_data);
            chunks.map(|(_, bytes)| *bytes).sum::<u64>() as f64 / chunk_bytes
        };
        let written = written.values().sum::<u64>() as f64 / chunk_bytes;
        Ok((made, Transfers { data_read: of(true), parity_read: of(false), written }))
    }

    /// Copies objects, each one stripe, to another bucket, as a request to copy does.
    async fn copy(&self, from: &str, to: &str, objects: usize) -> anyhow::Result<Copied> {
        let chunk_bytes = Layout::chunk_bytes_of(&self.only_stripe(from, 0).await?)? as f64;
        self.tally.take();
        for at in 0..objects {
            let object = self.find(from, at).await?;
            let (off, none) = (Versioning::Off, Precondition::None);
            self.objects.copy(&object, to, &key(at), off, none, Attributes::default()).await?;
        }
        let counts = self.tally.take();
        let by_client = 2.0 * objects as f64 * CODES_OBJECT_BYTES as f64;
        let chunks = |bytes: f64| bytes / chunk_bytes;
        Ok(Copied {
            read: chunks(counts.read_bytes() as f64),
            written: chunks(counts.written_bytes() as f64),
            by_client: chunks(by_client),
        })
    }

    /// Bytes of all committed chunks, as the stores say, without those of some disks.
    ///
    /// # Errors
    /// A store failed.
    pub async fn chunks_bytes(&self, without: &BTreeSet<DiskId>) -> anyhow::Result<u64> {
        let mut bytes = 0;
        for (_, store) in self.stores.iter().filter(|(disk, _)| !without.contains(disk)) {
            let chunks = store.list(None, CHUNKS_MAX).await?;
            ensure!(chunks.len() < CHUNKS_MAX, "more chunks than are listed at once");
            for chunk in chunks {
                bytes += store.info(chunk).await?.bytes;
            }
        }
        Ok(bytes)
    }
}

/// What an object is called.
pub fn key(at: usize) -> String {
    format!("object-{at:04}")
}

/// Bytes of an object, unlike those of others.
fn content(at: usize, bytes: u64) -> Bytes {
    let begin = at * 4093 % POOL_BYTES;
    // Of few lengths, for each is made once.
    let pool_bytes = (POOL_BYTES + bytes as usize).next_power_of_two();
    load::content(pool_bytes).slice(begin..begin + bytes as usize)
}

/// 42 for a stripe of `pc:6x5`, and some to go to.
const DISKS: u128 = 45;
/// Whole rows of 6, 10 and 12 tiles of 64 KiB.
const CODES_OBJECT_BYTES: u64 = 60 * (64 << 10);
const NO_HEDGE: Duration = Duration::from_secs(20);
const CHUNKS_MAX: usize = 100_000;
const POOL_BYTES: usize = 1 << 20;
