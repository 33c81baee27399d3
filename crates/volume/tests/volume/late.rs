//! Disks of a volume's log that take long, in simulated time: writers wait for one that is late beside others once, and not for
//! as long as it takes.

use std::sync::Arc;
use std::time::Duration;

use claystone_chunk::testing::{Faults, FaultyStore, MemoryStore, pattern};
use claystone_chunk::{ByteRange, ChunkStore, DiskId, NodeId};
use claystone_env::{Env, Space};
use claystone_meta::{DiskRecord, DiskState, Meta, SqliteMeta};
use claystone_sim::{World, run};
use claystone_stripe::{Member, Stores, Stripes};
use claystone_volume::{Blocks, Durable, NewVolume, Settings, Volume, Volumes, joined};

const PAGE: u64 = 4096;
const PAGES: u64 = 256;

struct Store {
    env: Env,
    meta: Arc<dyn Meta>,
    disks: Vec<MemoryStore>,
    faulty: Vec<Arc<FaultyStore>>,
    stores: Stores,
    volumes: Volumes,
}

impl Store {
    async fn new(world: &World, disks: u128) -> Store {
        let env = world.process("node").env().clone();
        let meta: Arc<dyn Meta> = Arc::new(SqliteMeta::in_memory(env.cpu.clone()).await.expect("an empty database"));
        let disks: Vec<MemoryStore> = (0..disks).map(|disk| MemoryStore::new(DiskId(disk))).collect();
        for disk in &disks {
            meta.put_disk(record(&env, disk.disk())).await.expect("a new disk");
        }
        Store::over(env, meta, disks)
    }

    fn over(env: Env, meta: Arc<dyn Meta>, disks: Vec<MemoryStore>) -> Store {
        let stores = Stores::default();
        let faulty = disks.iter().map(|disk| Arc::new(FaultyStore::new(Arc::new(disk.clone()), env.clock.clone())));
        let faulty: Vec<Arc<FaultyStore>> = faulty.collect();
        for store in &faulty {
            let space = Space { total_bytes: 1 << 40, free_bytes: 1 << 40 };
            stores.put(Member { record: record(&env, store.disk()), store: Ok(store.clone()), space });
        }
        let (stripes, _) = Stripes::new(env.clone(), stores.clone(), claystone_stripe::Settings::default());
        let settings = Settings { reserve_bytes: 256 << 20, segment_bytes: 5 << 20, ..Settings::default() };
        let volumes = Volumes::new(env.clone(), meta.clone(), stripes, settings);
        Store { env, meta, disks, faulty, stores, volumes }
    }

    /// The process ends, the disks lose what was not synced, and another one begins.
    fn crash(self) -> Store {
        self.faulty.iter().for_each(|store| store.set(Faults { hang: true, ..Faults::default() }));
        self.disks.iter().for_each(|disk| disk.crash(&*self.env.random));
        Store::over(self.env, self.meta, self.disks)
    }

    async fn create(&self) -> Volume {
        let code: claystone_code::CodeSpec = "replica:3".parse().expect("a valid code");
        let new = NewVolume { chunk_bytes: 64 << 10, ..NewVolume::new("v", PAGES * PAGE, code.into()) };
        self.volumes.create(new).await.expect("a new volume");
        self.volumes.open("v").await.expect("it opens")
    }

    fn set(&self, disk: DiskId, faults: Faults) {
        self.faulty[disk.0 as usize].set(faults);
    }
}

fn record(env: &Env, disk: DiskId) -> DiskRecord {
    let (node, path) = (NodeId(disk.to_string()), disk.to_string());
    DiskRecord { id: disk, node, path, state: DiskState::Active, added: env.clock.wall() }
}

fn takes(write_delay: Duration) -> Faults {
    Faults { write_delay, ..Faults::default() }
}

/// Writes all pages one after another, each flushed; the longest that one took, and all of them.
async fn write_all(store: &Store, volume: &Volume, seed: u64) -> (Duration, Duration) {
    let clock = &store.env.clock;
    let (start, mut longest) = (clock.now(), Duration::ZERO);
    for page in 0..PAGES {
        let began = clock.now();
        let content = pattern(seed + page, PAGE as usize);
        volume.write(page * PAGE, content, Durable::Now).await.expect("other disks take it");
        longest = longest.max(clock.now().since(began));
    }
    (longest, clock.now().since(start))
}

async fn check(volume: &Volume, seed: u64, what: &str) {
    let read = joined(volume.read(ByteRange { offset: 0, bytes: PAGES * PAGE }).await.expect(what));
    for (page, content) in (0..).zip(read.chunks(PAGE as usize)) {
        assert!(content == pattern(seed + page, PAGE as usize), "{what}: page {page}");
    }
}

#[test]
fn a_disk_that_does_not_answer_costs_writers_a_second_once() {
    for late in 0..3 {
        run(late, |world| async move {
            let store = Store::new(&world, 5).await;
            let volume = store.create().await;
            write_all(&store, &volume, 1000).await;
            let disk = volume.status().log_disks[late as usize];
            store.set(disk, Faults { hang: true, ..Faults::default() });
            let (longest, all) = write_all(&store, &volume, 2000).await;
            assert!(longest < Duration::from_millis(2500) && all < Duration::from_millis(3000), "{longest:?} {all:?}");
            // Others have what it had.
            store.env.clock.sleep(Duration::from_secs(10)).await;
            let status = volume.status();
            assert_eq!((status.log_copies, status.log_disks.contains(&disk)), (3, false));
            // It is asked for nothing while it is silent, so there is no second time.
            for seed in 3..8 {
                let (longest, _) = write_all(&store, &volume, seed * 1000).await;
                assert!(longest < Duration::from_millis(100), "{longest:?}");
                store.env.clock.sleep(Duration::from_secs(20)).await;
            }
            check(&volume, 7000, "without the disk").await;
        });
    }
}

/// Segments are asked of disks that were not written to for long.
#[test]
fn a_disk_that_does_not_make_a_segment_holds_up_nobody_for_long() {
    for late in 0..4 {
        run(late, |world| async move {
            let store = Store::new(&world, 4).await;
            let volume = store.create().await;
            write_all(&store, &volume, 1000).await;
            let log = volume.status().log_disks;
            let disk = (0..4).map(DiskId).find(|disk| !log.contains(disk)).expect("a fourth one");
            store.set(disk, Faults { hang: true, ..Faults::default() });
            let mut longest = Duration::ZERO;
            for seed in 2..40 {
                longest = longest.max(write_all(&store, &volume, seed * 1000).await.0);
            }
            assert!(longest < Duration::from_millis(2500), "{longest:?}");
            let status = volume.status();
            assert_eq!((status.log_copies, status.log_disks), (3, log));
            check(&volume, 39_000, "without the disk").await;
        });
    }
}

#[test]
fn where_all_disks_are_slow_none_is_left() {
    for delays in [[5000, 5000, 5000], [5000, 5900, 5300], [0, 4000, 4500], [100, 900, 700]] {
        run(1, |world| async move {
            let store = Store::new(&world, 5).await;
            let volume = store.create().await;
            let disks = volume.status().log_disks;
            for (disk, ms) in disks.iter().zip(delays) {
                store.set(*disk, takes(Duration::from_millis(ms)));
            }
            write_all(&store, &volume, 1000).await;
            let status = volume.status();
            assert_eq!((status.log_copies, status.log_disks), (3, disks), "{delays:?}");
            check(&volume, 1000, "slow").await;
        });
    }
}

/// Appends that come to a disk when the log has long left it are no harm, also where it has got copies anew.
#[test]
fn what_comes_late_to_a_disk_that_was_left_does_not_count() {
    for late in 0..3 {
        for disks in [3, 5] {
            run(late, |world| async move {
                let store = Store::new(&world, disks).await;
                let volume = store.create().await;
                write_all(&store, &volume, 1000).await;
                let before = volume.status().log_disks;
                let disk = before[late as usize];
                store.set(disk, takes(Duration::from_secs(8)));
                write_all(&store, &volume, 2000).await;
                assert!(!volume.status().log_disks.contains(&disk));
                store.set(disk, Faults::default());
                // What it was asked for comes, and it is among the disks again at last, where there are no others.
                store.env.clock.sleep(Duration::from_secs(60)).await;
                assert_eq!(volume.status().log_copies, 3);
                write_all(&store, &volume, 3000).await;
                check(&volume, 3000, "with what came late").await;
                drop(volume);
                let mut store = store;
                for lost in before {
                    store = store.crash();
                    store.stores.update(lost, |member| {
                        member.store = Err(claystone_stripe::Absence { reason: "lost by the test".to_owned() });
                    });
                    let volume = store.volumes.open("v").await.expect("two others are there");
                    check(&volume, 3000, "opened again").await;
                }
            });
        }
    }
}

/// When a disk answers again that was left, what it has of segments that are over takes no room on it any more.
#[test]
fn what_a_disk_that_was_left_has_is_deleted_when_it_is_over() {
    run(1, |world| async move {
        let store = Store::new(&world, 5).await;
        let volume = store.create().await;
        write_all(&store, &volume, 1000).await;
        let disk = volume.status().log_disks[0];
        let has = async || {
            let segments = store.disks[disk.0 as usize].segments().segments(volume.record().id).await.expect("listed");
            segments.len()
        };
        store.set(disk, takes(Duration::from_secs(8)));
        write_all(&store, &volume, 2000).await;
        assert!(!volume.status().log_disks.contains(&disk) && has().await > 0);
        store.set(disk, Faults::default());
        // All of it is merged when nobody writes.
        store.env.clock.sleep(Duration::from_secs(20)).await;
        volume.merge_all().await.expect("merged");
        assert_eq!((volume.status().diff_pages, volume.status().log_disks.contains(&disk), has().await), (0, false, 0));
        check(&volume, 2000, "merged").await;
    });
}

/// One disk after another takes long: the second one is waited for, so that what is flushed is on two at any time.
#[test]
fn disks_that_are_late_one_after_another_leave_two_copies() {
    for disks in [3, 5] {
        run(1, |world| async move {
            let store = Store::new(&world, disks).await;
            let volume = store.create().await;
            write_all(&store, &volume, 1000).await;
            for (seed, disk) in (2..).zip((0..disks).map(DiskId)) {
                store.set(disk, takes(Duration::from_millis(1500)));
                for page in 0..20 {
                    let content = pattern(seed * 1000 + page, PAGE as usize);
                    volume.write(page * PAGE, content, Durable::Now).await.expect("others take it");
                    assert!(volume.status().log_copies >= 2, "disk {disk} page {page}");
                }
                store.set(disk, Faults::default());
            }
            store.env.clock.sleep(Duration::from_secs(60)).await;
            assert_eq!(volume.status().log_copies, 3);
        });
    }
}

/// The copies that a disk misses are made while appends go on: it may take long for these, and is not left again for it.
#[test]
fn a_slow_disk_gets_its_copies_back() {
    run(1, |world| async move {
        let store = Store::new(&world, 3).await;
        let volume = store.create().await;
        let disk = volume.status().log_disks[0];
        store.set(disk, takes(Duration::from_secs(8)));
        for seed in 1..12 {
            write_all(&store, &volume, seed * 1000).await;
        }
        assert_eq!(volume.status().log_copies, 2);
        store.set(disk, takes(Duration::from_millis(900)));
        for seed in 12..16 {
            store.env.clock.sleep(Duration::from_secs(20)).await;
            write_all(&store, &volume, seed * 1000).await;
        }
        assert_eq!(volume.status().log_copies, 3);
        check(&volume, 15_000, "with copies made anew").await;
    });
}
