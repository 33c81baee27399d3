//! Stripes that are merged and split where they lie: counted at the stores, cut at every change of a store, with losses,
//! under readers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use claystone_chunk::testing::{Cut, CutStore, Faults, FaultyStore, MemoryStore, Traps, pattern};
use claystone_chunk::{ByteRange, ChunkId, ChunkStore, DiskId, Durability, NodeId};
use claystone_code::{ChunkIndex, CodeSpec, ConversionGoal, plan_conversion};
use claystone_env::{Env, Space, WallTime};
use claystone_meta::{
    BucketId, BucketRecords, DeleteObject, DiskRecord, DiskRecords, DiskState, Held, MetaError, NewContent, NewObject,
    ObjectRecords, Precondition, Span, SqliteMeta, StripeRecord, StripeRecords, VersionRef, Versioning,
};
use claystone_stripe::{Absence, Converted, Layout, Member, Pace, Settings, Stores, StripeError, Stripes, Unpaced};

/// Disks under one store of records. Objects `0`, `1`, ... have the bytes of `data`, one stripe each when they are written.
struct World {
    env: Env,
    meta: SqliteMeta,
    bucket: BucketId,
    stripes: Stripes,
    disks: Vec<MemoryStore>,
    counting: Vec<Arc<FaultyStore>>,
    cut: Cut,
    /// Of what is written.
    durability: Durability,
    data: Vec<Bytes>,
}

impl World {
    async fn new(disks: u128) -> World {
        let env = claystone_host::env().expect("an environment");
        let meta = SqliteMeta::in_memory(env.cpu.clone()).await.expect("an empty database");
        let bucket = meta.create_bucket("b", "ann", None, WallTime::default()).await.expect("a new bucket").id;
        for disk in 0..disks {
            meta.put_disk(disk_record(disk as usize)).await.expect("a new disk");
        }
        World::over(env, meta, bucket, (0..disks).map(|disk| MemoryStore::new(DiskId(disk))).collect(), Vec::new())
    }

    fn over(env: Env, meta: SqliteMeta, bucket: BucketId, disks: Vec<MemoryStore>, data: Vec<Bytes>) -> World {
        let (stores, cut) = (Stores::default(), Cut::default());
        let settings = Settings { window_bytes: 1 << 20, ..Settings::default() };
        let (stripes, _) = Stripes::new(env.clone(), stores, settings);
        let counting = |disk: &MemoryStore| {
            let store = Arc::new(CutStore::new(disk.clone(), cut.clone(), Traps::default()));
            Arc::new(FaultyStore::new(store, env.clock.clone()))
        };
        let counting = disks.iter().map(counting).collect();
        let world = World { env, meta, bucket, stripes, disks, counting, cut, durability: Durability::default(), data };
        (0..world.disks.len()).for_each(|disk| world.find(disk));
        world
    }

    /// The process ends, the disks lose what was not synced, and a new one begins.
    fn crash(self) -> World {
        self.cut.now();
        self.disks.iter().for_each(|disk| disk.crash(&*self.env.random));
        World::over(self.env, self.meta, self.bucket, self.disks, self.data)
    }

    fn lose(&self, disk: usize) {
        let store = Err(Absence { reason: "lost by the test".to_owned() });
        self.stripes.stores().put(Member { record: disk_record(disk), store, space: Space::default() });
    }

    fn find(&self, disk: usize) {
        let store: Arc<dyn ChunkStore> = self.counting[disk].clone();
        let space = Space { total_bytes: 1 << 40, free_bytes: 1 << 40 };
        self.stripes.stores().put(Member { record: disk_record(disk), store: Ok(store), space });
    }

    /// Disks are on these nodes now.
    fn set_nodes(&self, node: impl Fn(u128) -> u128) {
        for disk in (0..self.disks.len() as u128).map(DiskId) {
            let node = NodeId(node(disk.0).to_string());
            self.stripes.stores().update(disk, |member| member.record.node = node);
        }
    }

    /// Writes the next object, on the given disks only.
    async fn write(&mut self, code: &str, bytes: usize, disks: std::ops::Range<usize>) {
        let data = pattern(self.data.len() as u64, bytes);
        self.put(code, &data, disks).await;
    }

    /// The same of these bytes.
    async fn put(&mut self, code: &str, data: &[u8], disks: std::ops::Range<usize>) {
        let (data, bytes) = (Bytes::copy_from_slice(data), data.len());
        (0..self.disks.len()).filter(|disk| !disks.contains(disk)).for_each(|disk| self.lose(disk));
        let mut writer = self.stripes.writer(spec(code), bytes as u64, self.durability).await.expect("enough disks");
        writer.append(&data).await.expect("stores take it");
        let (stripe, _claim) = writer.finish().await.expect("all stores commit");
        (0..self.disks.len()).for_each(|disk| self.find(disk));
        let object = NewObject {
            bucket: self.bucket,
            key: self.data.len().to_string(),
            versioning: Versioning::Off,
            precondition: Precondition::None,
            content: NewContent::Stripes(vec![stripe.into()]),
            bytes: bytes as u64,
            etag: String::new(),
            created: WallTime::default(),
            attributes: Vec::new(),
        };
        self.meta.put_object(object).await.expect("room");
        self.data.push(data);
    }

    async fn span(&self, object: usize) -> Span {
        let found = self.meta.object("b", &object.to_string(), &VersionRef::Current).await.expect("readable");
        found.spans[0].clone()
    }

    async fn live(&self) -> Vec<StripeRecord> {
        self.meta.stripes(None, 100).await.expect("readable")
    }

    /// Converts all live stripes at once and commits.
    async fn convert(&self, to: &str) -> Result<Converted, StripeError> {
        self.convert_by(to, ConversionGoal::FewestReads).await
    }

    async fn convert_by(&self, to: &str, goal: ConversionGoal) -> Result<Converted, StripeError> {
        let sources = self.live().await;
        let plan = plan_conversion(sources[0].code, spec(to), goal).expect("a conversion");
        self.stripes.convert(&sources, &plan, &Unpaced).await
    }

    /// As upkeep does.
    async fn switch(&self, to: &str) -> Vec<StripeRecord> {
        let converted = self.convert(to).await.unwrap_or_else(|error| panic!("{to}: {error}"));
        let targets = self.meta.convert(converted.change.clone()).await.expect("nothing changed meanwhile");
        drop(converted);
        self.reclaim().await;
        targets
    }

    async fn reclaim(&self) {
        for dead in self.meta.dead_stripes(100).await.expect("readable") {
            if !self.stripes.is_record_claimed(&dead) && self.stripes.discard(&dead).await {
                self.meta.forget(&[dead.id]).await.expect("it is dead");
            }
        }
    }

    async fn read(&self, span: &Span) -> Result<Vec<u8>, StripeError> {
        let mut reader = self.stripes.span_reader(span, ByteRange { offset: 0, bytes: span.data_bytes() });
        let mut bytes = Vec::new();
        while let Some(piece) = reader.next().await? {
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }

    async fn assert_reads(&self, what: &str) {
        for object in 0..self.data.len() {
            let span = self.span(object).await;
            let bytes = self.read(&span).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(bytes == self.data[object], "{what}: object {object} reads other bytes");
        }
    }

    /// With each disk lost, and with some sets of as many as the code tolerates.
    async fn assert_survives(&self, what: &str) {
        let tolerance = usize::from(self.live().await[0].code.tolerance());
        self.assert_reads(what).await;
        for first in 0..self.disks.len() {
            for lost in [vec![first], (0..tolerance).map(|at| (first + at * 5) % self.disks.len()).collect()] {
                lost.iter().for_each(|disk| self.lose(*disk));
                self.assert_reads(&format!("{what}, {lost:?} lost")).await;
                lost.iter().for_each(|disk| self.find(*disk));
            }
        }
    }

    /// The bytes of each chunk of a stripe.
    async fn chunks(&self, record: &StripeRecord) -> Vec<Vec<Bytes>> {
        let range = ByteRange { offset: 0, bytes: Layout::chunk_bytes_of(record).expect("sound") };
        let mut chunks = Vec::new();
        for (index, place) in (0..).map(ChunkIndex).zip(&record.places) {
            let (id, disk) = (record.chunk_id(index).expect("whole"), place.expect("whole").disk);
            chunks.push(self.disks[disk.0 as usize].read(id, &[range]).await.expect("readable"));
        }
        chunks
    }

    /// Chunks that no record names.
    async fn garbage(&self) -> usize {
        let dead = self.meta.dead_stripes(100).await.expect("readable");
        let named: BTreeSet<ChunkId> = self.live().await.iter().chain(&dead).flat_map(names).collect();
        self.disks.iter().flat_map(MemoryStore::ids).filter(|id| !named.contains(id)).count()
    }

    async fn assert_sound(&self, what: &str) {
        assert_eq!(self.meta.check().await.expect("readable"), Vec::<String>::new(), "{what}");
        for stripe in self.live().await {
            let verified = self.stripes.verify(&stripe, &Unpaced).await;
            assert!(verified.healthy(), "{what}: {verified:?}");
        }
    }

    /// Bytes read and written at all stores so far.
    fn counts(&self) -> (u64, u64) {
        let counts = self.counting.iter().map(|store| store.counts());
        counts.fold((0, 0), |sum, counts| (sum.0 + counts.bytes_read, sum.1 + counts.bytes_written))
    }
}

fn spec(code: &str) -> CodeSpec {
    code.parse().expect("a valid code")
}

fn disk_record(disk: usize) -> DiskRecord {
    let id = DiskId(disk as u128);
    let (node, path) = (NodeId(id.to_string()), id.to_string());
    DiskRecord { id, node, path, state: DiskState::Active, added: WallTime::default() }
}

fn names(record: &StripeRecord) -> Vec<ChunkId> {
    (0..record.places.len() as u16).filter_map(|index| record.chunk_id(ChunkIndex(index))).collect()
}

/// Fast and compact code of a family, stripes of the fast one that make one of the compact one, disks of each, and chunks
/// read and written up and down.
struct Family {
    fast: &'static str,
    compact: &'static str,
    stripes: usize,
    disks: usize,
    up: (u64, u64),
    down: (u64, u64),
}

/// The counts of the papers. Splitting a Reed-Solomon stripe reads the data of all parts but the last, and its parity.
const FAMILIES: [Family; 4] = [
    Family { fast: "pc:2x5", compact: "pc:6x5", stripes: 3, disks: 18, up: (18, 6), down: (26, 18) },
    Family { fast: "lrc:12+6+2", compact: "lrc:12+2+2", stripes: 1, disks: 20, up: (6, 2), down: (10, 6) },
    Family { fast: "rsm:6+3", compact: "rsm:12+3", stripes: 2, disks: 9, up: (6, 3), down: (9, 6) },
    Family { fast: "rsm:10+4", compact: "rsm:20+4", stripes: 2, disks: 14, up: (8, 4), down: (14, 8) },
];

impl Family {
    /// Stripes of the fast code that were read back, of which no two share a disk. Their lengths differ, those of their chunks do not.
    async fn world(&self, chunk_bytes: usize) -> World {
        let mut world = World::new((self.stripes * self.disks + 2) as u128).await;
        let data = usize::from(spec(self.fast).shape().data);
        for at in 0..self.stripes {
            world.write(self.fast, data * chunk_bytes - 7 * at, at * self.disks..(at + 1) * self.disks).await;
        }
        for stripe in world.live().await {
            let marked = world.meta.mark_verified(stripe.id, stripe.revision, world.env.clock.wall()).await;
            marked.expect("it was just read");
        }
        world
    }
}

/// As the papers count, each new parity is made of as few old ones as can be.
/// Test of: [hacfs §3.3]
/// Test of: [convertible §IV]
#[tokio::test]
async fn the_stores_are_asked_for_what_the_papers_count() {
    for family in &FAMILIES {
        let chunk_bytes = 160 << 10;
        let world = family.world(chunk_bytes).await;
        for (to, (reads, writes)) in [(family.compact, family.up), (family.fast, family.down)] {
            let before = world.counts();
            let data: BTreeSet<(ChunkId, DiskId)> = data_chunks(&world.live().await);
            let converted = world.convert_by(to, ConversionGoal::ShortSums).await.expect("converted");
            let after = world.counts();
            let unit = chunk_bytes as u64;
            assert_eq!(((after.0 - before.0) / unit, (after.1 - before.1) / unit), (reads, writes), "to {to}");
            assert_eq!((converted.bytes_read, converted.bytes_written), (reads * unit, writes * unit), "to {to}");
            assert_eq!(converted.bytes_verified, writes * unit);
            let targets = world.meta.convert(converted.change.clone()).await.expect("nothing changed meanwhile");
            drop(converted);
            assert_eq!(data_chunks(&targets), data, "data stays where it is under its names");
            world.reclaim().await;
            assert_eq!(world.garbage().await, 0);
            world.assert_sound(to).await;
            world.assert_reads(to).await;
        }
    }
}

fn data_chunks(stripes: &[StripeRecord]) -> BTreeSet<(ChunkId, DiskId)> {
    let of = |stripe: &StripeRecord| -> Vec<(ChunkId, DiskId)> {
        let data = (0..stripe.code.shape().data).map(ChunkIndex);
        let id = |index| stripe.chunk_id(index).expect("whole");
        data.map(|index| (id(index), stripe.places[index.at()].expect("whole").disk)).collect()
    };
    stripes.iter().flat_map(of).collect()
}

/// A stripe of each compact code that is written at once has the chunks of fast ones of the same bytes that were merged, whatever its length,
/// and whichever disk fails meanwhile; and is split into fast ones.
#[tokio::test]
async fn what_is_written_in_bands_is_what_merging_makes() {
    for family in &FAMILIES {
        let (fast, compact) = (spec(family.fast), spec(family.compact));
        let bands = family.stripes as u16;
        for (chunk_bytes, fails) in [(64, None), (70_016, None), (160 << 10, Some(0)), (160 << 10, Some(1))] {
            let world = World::new(u128::from(compact.shape().chunks())).await;
            let band_bytes = usize::from(fast.shape().data) * chunk_bytes - 7;
            let data = pattern(chunk_bytes as u64, usize::from(bands) * band_bytes);
            let writer = world.stripes.writer_in_bands(compact, bands, band_bytes as u64, Durability::Synced).await;
            let mut writer = writer.expect("enough disks");
            if let Some(disk) = fails {
                let broken = Faults { writes_fail: Some("broken".to_owned()), ..Faults::default() };
                world.counting[disk].set(broken);
            }
            for piece in data.chunks(33_333) {
                writer.append(piece).await.expect("stores take it");
            }
            let (record, _claim) = writer.finish().await.expect("as many commit as have to");
            world.counting.iter().for_each(|disk| disk.set(Faults::default()));
            assert_eq!(record.places.iter().filter(|place| place.is_none()).count(), usize::from(fails.is_some()));
            let verified = world.stripes.verify(&record, &Unpaced).await;
            assert!(fails.is_some() || verified.healthy(), "{compact}: {verified:?}");
            for band in 0..bands {
                let expected = &data[usize::from(band) * band_bytes..][..band_bytes];
                let span = Span { stripe: record.clone(), band, held: Held::All };
                assert!(world.read(&span).await.expect("recoverable") == expected, "{compact}, band {band}");
            }
            if fails.is_none() {
                let mut merging = World::new((family.stripes * family.disks + 2) as u128).await;
                for (at, bytes) in data.chunks(band_bytes).enumerate() {
                    merging.put(family.fast, bytes, at * family.disks..(at + 1) * family.disks).await;
                }
                let mut sources = Vec::new();
                for object in 0..family.stripes {
                    sources.push(merging.span(object).await.stripe);
                }
                let plan = plan_conversion(fast, compact, ConversionGoal::FewestReads).expect("a conversion");
                let converted = merging.stripes.convert(&sources, &plan, &Unpaced).await.expect("converted");
                let targets = merging.meta.convert(converted.change.clone()).await;
                let merged = targets.expect("nothing changed meanwhile").remove(0);
                assert_eq!((&merged.bands, merged.data_bytes), (&record.bands, record.data_bytes));
                assert!(
                    world.chunks(&record).await == merging.chunks(&merged).await,
                    "{compact}: a merge makes others"
                );
            }
        }
    }
}

/// The sum of the columns' new parities is the sum of all, so a product code's corners need not be read.
#[tokio::test]
async fn one_place_that_combines_all_reads_less() {
    let world = FAMILIES[0].world(64 << 10).await;
    let before = world.counts();
    let converted = world.convert("pc:6x5").await.expect("converted");
    let after = world.counts();
    assert_eq!(((after.0 - before.0) >> 16, (after.1 - before.1) >> 16), (15, 6));
    world.meta.convert(converted.change.clone()).await.expect("nothing changed meanwhile");
    world.assert_sound("pc:6x5").await;
}

/// Merged, split, merged again: with tails of tiles, in several windows, and each loss that is tolerated.
#[tokio::test]
async fn bytes_are_the_same_under_every_code_of_a_family() {
    for family in &FAMILIES[1..3] {
        let world = family.world(100_032).await;
        world.assert_survives(family.fast).await;
        for to in [family.compact, family.fast, family.compact] {
            let converted = world.convert(to).await.expect("converted");
            world.assert_survives("not yet named").await;
            world.meta.convert(converted.change.clone()).await.expect("nothing changed meanwhile");
            drop(converted);
            world.assert_survives("named").await;
            world.reclaim().await;
            world.assert_survives(to).await;
            world.assert_sound(to).await;
            assert_eq!(world.garbage().await, 0);
        }
    }
    let family = &FAMILIES[0];
    let world = family.world(70_016).await;
    for to in [family.compact, family.fast] {
        world.switch(to).await;
        world.assert_survives(to).await;
    }
}

/// Of stripes that were acknowledged before they were synced, with a disk on each node, none is synced.
#[tokio::test]
async fn what_a_conversion_keeps_is_synced_before_it_is_in_another_stripe() {
    for (family, to) in [(&FAMILIES[2], "rsm:12+3"), (&FAMILIES[1], "lrc:12+2+2")] {
        let mut world = World::new((family.stripes * family.disks + 2) as u128).await;
        world.durability = Durability::Buffered;
        for at in 0..family.stripes {
            world.write(family.fast, 60_000, at * family.disks..(at + 1) * family.disks).await;
        }
        world.switch(to).await;
        world.disks.iter().for_each(MemoryStore::lose_unsynced);
        world.assert_sound(to).await;
        world.assert_survives(to).await;
    }
}

/// Three stripes on two nodes: each loses no more with one of them than its code tolerates, and the one that they would become does.
#[tokio::test]
async fn what_the_power_of_a_node_took_is_found_before_stripes_are_merged() {
    for node in 0..2 {
        let mut world = World::new(14).await;
        world.durability = Durability::Buffered;
        for at in 0..3 {
            world.set_nodes(|disk| disk % 2);
            world.write("rsm:2+2", 60_000, at * 4..at * 4 + 4).await;
        }
        world.set_nodes(|disk| disk % 2);
        let on_node = world.disks.iter().enumerate().filter(|(disk, _)| disk % 2 == node);
        on_node.for_each(|(_, store)| store.lose_unsynced());
        let refused = world.convert("rsm:6+2").await.map(|_| ());
        assert!(matches!(refused, Err(StripeError::NotVerified { .. })), "{refused:?}");
        world.assert_reads("refused").await;
    }
}

/// Two stripes on nodes of their own, of each of which a power cut took a chunk: it survives that, and the one that they would become does not.
#[tokio::test]
async fn what_the_power_of_several_nodes_took_is_found_before_stripes_are_merged() {
    let mut world = World::new(8).await;
    world.durability = Durability::Buffered;
    world.write("rsm:2+1", 60_000, 0..3).await;
    world.write("rsm:2+1", 60_000, 3..6).await;
    let data_disk = |stripe: &StripeRecord| stripe.places[0].expect("placed").disk.0 as usize;
    for disk in world.live().await.iter().map(data_disk) {
        world.disks[disk].lose_unsynced();
    }
    let refused = world.convert("rsm:4+1").await.map(|_| ());
    assert!(matches!(refused, Err(StripeError::NotVerified { .. })), "{refused:?}");
    world.assert_reads("refused").await;
}

/// A scrub that was asked for just after they were written calls them verified, and what is verified is merged without being read back
/// again: so power cuts after the scrub take nothing of them.
#[tokio::test]
async fn what_was_read_back_was_synced_before() {
    let mut world = World::new(8).await;
    world.durability = Durability::Buffered;
    world.write("rsm:2+1", 60_000, 0..3).await;
    world.write("rsm:2+1", 60_000, 3..6).await;
    for stripe in world.live().await {
        assert!(world.stripes.verify(&stripe, &Unpaced).await.healthy());
        world.meta.mark_verified(stripe.id, stripe.revision, world.env.clock.wall()).await.expect("it is there");
    }
    let data_disk = |stripe: &StripeRecord| stripe.places[0].expect("placed").disk.0 as usize;
    for disk in world.live().await.iter().map(data_disk) {
        world.disks[disk].lose_unsynced();
    }
    world.switch("rsm:4+1").await;
    world.assert_sound("merged").await;
    world.assert_survives("merged").await;
}

/// What was read back for a merge is not read back once more for a scrub.
#[tokio::test]
async fn sources_that_nobody_read_back_are_and_what_becomes_of_them_is_verified() {
    let mut world = World::new(8).await;
    world.write("rsm:2+1", 2 << 16, 0..3).await;
    world.write("rsm:2+1", 2 << 16, 3..6).await;
    let converted = world.convert("rsm:4+1").await.expect("converted");
    assert_eq!((converted.bytes_read, converted.bytes_verified), (2 << 16, 7 << 16), "six chunks and the new one");
    let targets = world.meta.convert(converted.change.clone()).await.expect("nothing changed meanwhile");
    assert!(targets[0].verified.is_some());
}

/// The process ends at each change of a store once, before it and after it without the answer.
#[tokio::test]
async fn a_crash_at_any_step_leaves_stripes_that_survive_what_their_code_says() {
    for (family, to) in [(&FAMILIES[2], "rsm:12+3"), (&FAMILIES[1], "lrc:12+2+2")] {
        let (mut steps, mut named) = (0, 0);
        for happens in [false, true] {
            for step in 0.. {
                let world = family.world(1024).await;
                world.cut.set(world.cut.calls() + step, happens);
                let is_cut = tokio::select! {
                    biased;
                    () = world.cut.reached() => true,
                    _ = world.switch(to) => false,
                };
                if !is_cut {
                    break;
                }
                steps += 1;
                let world = world.crash();
                let what = format!("{} -> {to}, step {step}, happens: {happens}", family.fast);
                let is_named = world.live().await[0].code == spec(to);
                named += u64::from(is_named);
                world.assert_survives(&what).await;
                // It can be tried again, and ends as if nothing had been.
                if !is_named {
                    world.switch(to).await;
                }
                world.reclaim().await;
                world.assert_sound(&what).await;
                world.assert_reads(&what).await;
                assert!(world.meta.dead_stripes(9).await.expect("readable").is_empty(), "{what}");
            }
        }
        let writes = family.up.1;
        // Created, filled, committed; and what is dropped is deleted.
        assert!(steps >= 6 * writes && named >= 2 * writes, "{to}: {steps} steps, {named} named");
    }
}

#[tokio::test]
async fn lost_parity_is_decoded_and_no_stripe_comes_to_survive_less() {
    let family = &FAMILIES[2];
    let world = family.world(64 << 10).await;
    let sources = world.live().await;
    let disk = |stripe: usize, chunk: usize| sources[stripe].places[chunk].expect("placed").disk.0 as usize;
    // One parity chunk of one stripe: it is decoded, and the merged stripe has all of its own.
    world.lose(disk(0, 7));
    let converted = world.convert("rsm:12+3").await.expect("one loss");
    assert_eq!(converted.bytes_read, (6 + 3) * (64 << 10), "six of one stripe instead of three");
    world.stripes.discard_converted(converted).await;
    assert_eq!(world.garbage().await, 0, "a refused conversion leaves nothing");
    // One data chunk of one stripe: it survives two more losses, and the other one three, which it would not when they are one.
    world.lose(disk(1, 2));
    world.find(disk(0, 7));
    let refused = world.convert("rsm:12+3").await.map(|_| ());
    assert!(matches!(refused, Err(StripeError::Exposed { before: 3, after: 2, .. })), "{refused:?}");
    assert_eq!(world.garbage().await, 0);
    // With a parity chunk of the other lost too, both survive two, and so does what they become.
    world.lose(disk(0, 8));
    world.switch("rsm:12+3").await;
    world.assert_reads("a data chunk lost").await;
    world.find(disk(1, 2));
    world.find(disk(0, 8));
    world.assert_survives("found again").await;

    // One of each: the stripes by themselves survive two more, together they would one.
    let world = family.world(64 << 10).await;
    let sources = world.live().await;
    for source in &sources {
        world.lose(source.places[2].expect("placed").disk.0 as usize);
    }
    let refused = world.convert("rsm:12+3").await.map(|_| ());
    assert!(matches!(refused, Err(StripeError::Exposed { before: 2, after: 1, .. })), "{refused:?}");
    assert_eq!(world.garbage().await, 0);
}

/// Loses disks once so many bytes were let through.
struct Loses<'a> {
    world: &'a World,
    disks: &'a (dyn Fn() -> Vec<usize> + Sync),
    bytes_left: AtomicI64,
}

#[async_trait]
impl Pace for Loses<'_> {
    async fn admit(&self, bytes: u64) {
        if self.bytes_left.fetch_sub(bytes as i64, Ordering::Relaxed) <= 0 {
            (self.disks)().into_iter().for_each(|disk| self.world.lose(disk));
        }
    }
}

#[tokio::test]
async fn what_is_lost_while_new_chunks_are_read_back_refuses_the_change() {
    let family = &FAMILIES[2];
    let world = family.world(64 << 10).await;
    let sources = world.live().await;
    let plan = plan_conversion(sources[0].code, spec("rsm:12+3"), ConversionGoal::FewestReads).expect("a conversion");
    let all_written = ((plan.reads.len() + plan.writes.len()) << 16) as i64;
    let one_of_each =
        || sources.iter().map(|source| source.places[2].expect("whole").disk.0 as usize).collect::<Vec<_>>();
    let is_new = |chunk: &ChunkId| sources.iter().all(|source| source.id != chunk.stripe);
    let of_new = || {
        let holds_new = |disk: &usize| world.disks[*disk].ids().iter().any(is_new);
        (0..world.disks.len()).filter(holds_new).take(1).collect()
    };
    // Each source survives two more by itself, both together one. And a target would begin with a chunk less than it should have.
    let cases: [(&(dyn Fn() -> Vec<usize> + Sync), bool); 2] = [(&one_of_each, true), (&of_new, false)];
    for (disks, is_exposed) in cases {
        let pace = Loses { world: &world, disks, bytes_left: all_written.into() };
        let refused = world.stripes.convert(&sources, &plan, &pace).await.map(|_| ());
        match is_exposed {
            true => assert!(matches!(refused, Err(StripeError::Exposed { before: 2, after: 1, .. })), "{refused:?}"),
            false => assert!(matches!(refused, Err(StripeError::NotVerified { .. })), "{refused:?}"),
        }
        (0..world.disks.len()).for_each(|disk| world.find(disk));
        world.reclaim().await;
    }
    world.switch("rsm:12+3").await;
    world.assert_survives("tried again").await;
}

#[tokio::test]
async fn a_rebuilt_chunk_of_a_merged_stripe_gets_the_stripes_name() {
    let world = FAMILIES[2].world(64 << 10).await;
    let merged = world.switch("rsm:12+3").await.remove(0);
    let lost = [ChunkIndex(3), ChunkIndex(9), ChunkIndex(13)];
    lost.iter().for_each(|index| world.lose(merged.places[index.at()].expect("placed").disk.0 as usize));
    let rebuilt = world.stripes.rebuild(&merged, &lost, &Unpaced).await.expect("disks are spare");
    let after = world.meta.swap(rebuilt.swap.clone()).await.expect("unchanged");
    drop(rebuilt);
    for index in lost {
        let name = after.chunk_id(index).expect("placed");
        assert_eq!((name.stripe, name.index), (merged.id, index));
    }
    let kept = after.chunk_id(ChunkIndex(4)).expect("placed");
    assert_ne!(kept.stripe, merged.id, "it has the name that it was written under");
    world.assert_reads("rebuilt").await;
    assert_eq!(world.meta.check().await.expect("readable"), Vec::<String>::new());
}

/// Two stripes that share no disk survive three nodes each; on the same nodes they would make one that survives one.
#[tokio::test]
async fn stripes_on_the_same_nodes_are_not_merged_if_that_survives_fewer_of_them() {
    let mut world = World::new(30).await;
    world.write("rsm:6+3", 6 << 16, 0..9).await;
    world.write("rsm:6+3", 6 << 16, 9..18).await;
    world.set_nodes(|disk| if disk < 18 { disk % 9 } else { disk });
    let refused = world.convert("rsm:12+3").await.map(|_| ());
    assert!(matches!(refused, Err(StripeError::OnFewNodes { before: 3, after: 1, .. })), "{refused:?}");
    assert_eq!(world.garbage().await, 0);
    // On so few nodes that fifteen chunks survive the loss of none, and so do nine, there is nothing to keep.
    world.set_nodes(|disk| disk % 2);
    world.switch("rsm:12+3").await;
    // Split, no node has more of a half than it had of all.
    world.switch("rsm:6+3").await;
    world.assert_reads("split").await;
    // Apart, each stripe on nodes of its own.
    world.set_nodes(|disk| disk);
    let targets = world.switch("rsm:12+3").await;
    assert_eq!(world.stripes.stores().nodes().losses_of(&targets[0]), 3);
}

#[tokio::test]
async fn what_cannot_be_converted_is_refused_with_the_reason() {
    // On nine disks the two stripes lie on the same ones.
    let mut world = World::new(16).await;
    world.write("rsm:6+3", 6 << 16, 0..9).await;
    world.write("rsm:6+3", 6 << 16, 0..9).await;
    let refused = world.convert("rsm:12+3").await.map(|_| ());
    assert!(matches!(refused, Err(StripeError::Crowded { .. })), "{refused:?}");
    // A short last stripe.
    let mut world = World::new(20).await;
    world.write("rsm:6+3", 6 << 16, 0..9).await;
    world.write("rsm:6+3", 1000, 9..18).await;
    let refused = world.convert("rsm:12+3").await.map(|_| ());
    // Stripes are taken in the order of their ids, which two of one millisecond have by chance.
    let Err(StripeError::UnequalChunks { chunk_bytes, expected, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!((chunk_bytes.min(expected), chunk_bytes.max(expected)), (192, 65_536));
    // What was written as one band lies over all its chunks.
    let mut world = World::new(20).await;
    world.write("rsm:12+3", 12 << 16, 0..15).await;
    let refused = world.convert("rsm:6+3").await.map(|_| ());
    assert!(matches!(refused, Err(StripeError::BandCut { chunks: 12, .. })), "{refused:?}");
    // Twelve disks have the data, and two are left.
    let mut world = World::new(14).await;
    world.write("rsm:6+1", 6 << 16, 0..7).await;
    world.write("rsm:6+1", 6 << 16, 7..14).await;
    let refused = world.convert("rsm:12+3").await.map(|_| ());
    assert!(matches!(refused, Err(StripeError::TooFewDisks { .. })), "{refused:?}");
    // The last tile of sixteen sub-chunks is longer than that of one: 4096 bytes and 3392.
    let mut world = World::new(12).await;
    world.write("clay:6+2:7", 20_000, 0..8).await;
    let refused = world.convert("rs:6+3").await.map(|_| ());
    assert!(matches!(refused, Err(StripeError::OtherLayout { .. })), "{refused:?}");
}

/// Its chunks would lie beside themselves; and should they not, the records know it.
#[tokio::test]
async fn a_stripe_named_twice_is_refused() {
    let world = FAMILIES[2].world(64 << 10).await;
    let sources = world.live().await;
    let plan = plan_conversion(sources[0].code, spec("rsm:12+3"), ConversionGoal::FewestReads).expect("a conversion");
    let twice = [sources[0].clone(), sources[0].clone()];
    let refused = world.stripes.convert(&twice, &plan, &Unpaced).await.map(|_| ());
    assert!(matches!(refused, Err(StripeError::Crowded { .. })), "{refused:?}");
    let converted = world.convert("rsm:12+3").await.expect("converted");
    let mut change = converted.change.clone();
    change.sources[1] = change.sources[0];
    let refused = world.meta.convert(change).await;
    assert!(matches!(refused, Err(MetaError::StripeChanged { .. })), "{refused:?}");
    world.stripes.discard_converted(converted).await;
    world.assert_reads("not converted").await;
}

/// An object that is deleted while its stripe is merged: the change is refused, and nothing is left of it.
#[tokio::test]
async fn a_delete_meanwhile_refuses_the_change() {
    let world = FAMILIES[2].world(64 << 10).await;
    let converted = world.convert("rsm:12+3").await.expect("converted");
    let delete = DeleteObject {
        bucket: world.bucket,
        key: "1".to_owned(),
        version: VersionRef::Current,
        marker: None,
        precondition: Precondition::None,
        now: WallTime::default(),
    };
    world.meta.delete_object(delete).await.expect("it is there");
    let refused = world.meta.convert(converted.change.clone()).await;
    assert!(matches!(refused, Err(MetaError::StripeChanged { .. })), "{refused:?}");
    world.stripes.discard_converted(converted).await;
    world.reclaim().await;
    assert_eq!(world.garbage().await, 0);
    let span = world.span(0).await;
    assert!(world.read(&span).await.expect("there") == world.data[0]);
}

/// Readers who decode, because a disk is gone, while the code goes back and forth.
#[tokio::test]
async fn readers_notice_nothing() {
    for family in &FAMILIES[1..3] {
        let world = family.world(64 << 10).await;
        let lost = world.live().await[0].places[1].expect("placed").disk.0 as usize;
        world.lose(lost);
        let switching = async {
            for round in 0..12 {
                // A whole stripe is not merged with one that lost data.
                if family.stripes > 1 {
                    world.find(lost);
                }
                world.switch([family.compact, family.fast][round % 2]).await;
                world.lose(lost);
                tokio::task::yield_now().await;
            }
        };
        let reading = |object: usize| {
            let world = &world;
            async move {
                for round in 0..60 {
                    // Reclaim waits longer than a reader takes from the record to its claim; here who was too late begins anew.
                    let (span, _claim) = loop {
                        let span = world.span(object).await;
                        let claim = world.stripes.claim_record(&span.stripe);
                        if world.span(object).await.stripe.id == span.stripe.id {
                            break (span, claim);
                        }
                    };
                    tokio::task::yield_now().await;
                    let bytes = world.read(&span).await.unwrap_or_else(|error| panic!("round {round}: {error}"));
                    assert!(bytes == world.data[object], "object {object}, round {round}");
                }
            }
        };
        tokio::join!(switching, reading(0), reading(family.stripes - 1), reading(0));
    }
}
