//! Volumes whose records have no room: what needs none goes on, the rest waits.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use claystone_chunk::testing::{MemoryStore, pattern};
use claystone_chunk::{ByteRange, ChunkStore, DiskId, Lease, NodeId, OwnerId, StripeId};
use claystone_env::{Env, Space};
use claystone_meta::{DiskRecord, DiskRecords, DiskState, Meta, MetaError, SqliteMeta, Workers};
use claystone_sim::{DiskModel, World, run};
use claystone_stripe::{Member, Stores, Stripes};
use claystone_volume::{Blocks, Durable, NewVolume, Settings, Volume, Volumes, joined};

const PAGE: u64 = 4096;
const CHUNK: u64 = 64 << 10;
const STRIPE: u64 = 2 * CHUNK;
/// A file system with room for no step by which the database grows.
fn tiny() -> DiskModel {
    DiskModel::ssd(1 << 20)
}

struct Store {
    meta: Arc<dyn Meta>,
    volumes: Volumes,
    /// Whose stripes fill the database.
    filler: Lease,
    filled: u64,
}

/// A store on four disks in memory, whose records are in a file that cannot grow.
async fn store(world: &World, directory: &tempfile::TempDir) -> Store {
    let env: Env = world.process("node").env().clone();
    let workers = Workers { writer: env.cpu.clone(), readers: env.cpu.clone() };
    let meta = SqliteMeta::open(&directory.path().join("meta.db"), workers).await.expect("a new database");
    meta.watch_space(world.disk("database", tiny()).attach());
    let stores = Stores::default();
    for number in 0..4 {
        let (id, node, path) = (DiskId(number), NodeId(number.to_string()), number.to_string());
        let record = DiskRecord { id, node, path, state: DiskState::Active, added: env.clock.wall() };
        meta.put_disk(record.clone()).await.expect("a new disk");
        let store: Arc<dyn ChunkStore> = Arc::new(MemoryStore::new(id));
        stores.put(Member { record, store: Ok(store), space: Space { total_bytes: 1 << 40, free_bytes: 1 << 40 } });
    }
    let (stripes, _) = Stripes::new(env.clone(), stores, claystone_stripe::Settings::default());
    let meta: Arc<dyn Meta> = Arc::new(meta);
    let settings = Settings { reserve_bytes: 64 << 20, segment_bytes: 8 << 20, ..Settings::default() };
    let volumes = Volumes::new(env, meta.clone(), stripes, settings);
    let filler = volumes.create(new("filler", 1 << 40)).await.expect("a new volume").id;
    let filler = Lease { owner: filler, term: meta.take_lease(filler).await.expect("room").term };
    Store { meta, volumes, filler, filled: 0 }
}

fn new(name: &str, bytes: u64) -> NewVolume {
    NewVolume { chunk_bytes: CHUNK, ..NewVolume::new(name, bytes, "rs:2+1".parse().expect("a valid code")) }
}

impl Store {
    /// Names stripes like this one until the database is full.
    async fn fill(&mut self, owner: OwnerId) {
        let like = self.meta.volume_stripes(owner, None, 1).await.expect("readable").remove(0).1;
        // At last one by one.
        for wave in [100, 1] {
            loop {
                let positions = self.filled..self.filled + wave;
                let named =
                    |at| (at, Some(claystone_meta::StripeRecord { id: StripeId(u128::from(at) + 1), ..like.clone() }));
                match self.meta.put_volume_stripes(self.filler, positions.clone().map(named).collect()).await {
                    Ok(_) => self.filled = positions.end,
                    Err(MetaError::Full) => break,
                    Err(error) => panic!("expected Full, got {error:?}"),
                }
                assert!(self.filled < 100_000, "the database grows without room");
            }
        }
    }

    /// Gives what filled the database back.
    async fn make_room(&self) {
        for first in (0..self.filled).step_by(100) {
            let gone = (first..self.filled.min(first + 100)).map(|at| (at, None)).collect();
            let dead = self.meta.put_volume_stripes(self.filler, gone).await.expect("it frees room");
            let dead: Vec<StripeId> = dead.into_iter().map(|stripe| stripe.id).collect();
            self.meta.forget(&dead).await.expect("it frees room");
        }
    }
}

async fn write(volume: &Volume, stripe: u64, seed: u64) {
    volume.write(stripe * STRIPE, pattern(seed, PAGE as usize), Durable::Now).await.expect("the log has room");
}

async fn check(volume: &Volume, pages: &BTreeMap<u64, u64>) {
    for (stripe, seed) in pages {
        let read = volume.read(ByteRange { offset: stripe * STRIPE, bytes: PAGE }).await.map(joined);
        assert_eq!(read, Ok::<Bytes, _>(pattern(*seed, PAGE as usize)), "stripe {stripe}");
    }
}

/// Merges some rounds, of which none fails.
async fn merge(volume: &Volume) {
    for _ in 0..40 {
        volume.merge_once(u64::MAX).await.expect("what needs no room goes on");
    }
}

#[test]
fn stripes_that_the_records_have_no_room_for_wait_in_the_log() {
    run(1, |world| async move {
        let directory = tempfile::tempdir().expect("a directory");
        let mut store = store(&world, &directory).await;
        store.volumes.create(new("v", 400 * STRIPE)).await.expect("a new volume");
        let volume = store.volumes.open("v").await.expect("it opens");
        let mut pages: BTreeMap<u64, u64> = (0..10).map(|stripe| (stripe, stripe)).collect();
        for (stripe, seed) in &pages {
            write(&volume, *stripe, *seed).await;
        }
        merge(&volume).await;
        store.volumes.take_snapshot(&"v@then".parse().expect("a valid name")).await.expect("a snapshot");
        store.fill(volume.record().id).await;

        // New stripes, and such as the snapshot has too.
        pages.extend((5..300).map(|stripe| (stripe, stripe + 1000)));
        for (stripe, seed) in pages.range(5..) {
            write(&volume, *stripe, *seed).await;
        }
        merge(&volume).await;
        check(&volume, &pages).await;
        let left = volume.status().diff_pages;
        assert!(left > 0, "all of it found room, so this shows nothing");
        write(&volume, 0, 1).await;
        pages.insert(0, 1);

        store.make_room().await;
        merge(&volume).await;
        assert_eq!(volume.status().diff_pages, 0, "there is room again");
        check(&volume, &pages).await;
    });
}
