//! Overwrites on a simulated disk: power cuts and failures at every operation, fences, and what they cost.

use std::time::Duration;

use bytes::Bytes;
use claystone_chunk::testing::{pattern, put};
use claystone_chunk::{
    ByteRange, ChunkError, ChunkId, ChunkStore, DiskId, Lease, NodeId, Overwrite, OwnerId, StoreState, Term,
};
use claystone_disk::{ClusterId, DirectoryStore, Expected, Identity, Options, format};
use claystone_env::WallTime;
use claystone_sim::{DiskModel, Fault, Process, SimDisk, World, run};

const EXPECTED: Expected = Expected { cluster: ClusterId(7), disk: DiskId(1) };
const OPTIONS: Options = Options { reserve_bytes: Some(0), sync_interval: Duration::from_secs(1) };
const LEASE: Lease = Lease { owner: OwnerId(1), term: Term(1) };

fn chunk(number: u128) -> ChunkId {
    format!("{number:032x}.0.0").parse().expect("an id")
}

/// A disk and the process that serves it.
struct Served {
    world: World,
    disk: SimDisk,
    process: Process,
}

impl Served {
    async fn format(world: World) -> Served {
        let disk = world.disk("d", DiskModel::ssd(256 << 20));
        let process = world.process("p");
        let node = NodeId("node-1".to_owned());
        let created = WallTime { unix_ms: 1 };
        let identity = Identity { disk: EXPECTED.disk, cluster: EXPECTED.cluster, node, created };
        format(&*process.worker(&disk), disk.attach(), identity).await.expect("format");
        Served { world, disk, process }
    }

    async fn open(&self) -> DirectoryStore {
        let worker = self.process.worker(&self.disk);
        let open = DirectoryStore::open(self.process.env(), self.disk.attach(), worker, EXPECTED, OPTIONS);
        open.await.expect("open")
    }

    /// Ends the process and opens the store anew, with a power cut in between or without.
    async fn restart(&mut self, store: DirectoryStore, power_cut: bool) -> DirectoryStore {
        self.process.kill();
        if power_cut {
            self.disk.crash();
        }
        drop(store);
        self.process = self.world.process("p");
        // Killed tasks let go of the disk when they are run next.
        self.world.clock().sleep(Duration::from_secs(1)).await;
        self.open().await
    }
}

/// What is done to a chunk while power goes: two calls, each of these sectors, each followed by a sync.
#[derive(Debug, Clone, Copy)]
struct Deed {
    bytes: usize,
    /// It was committed as zeros.
    is_hollow: bool,
    first: &'static [u64],
    second: &'static [u64],
}

// Packed behind the header; one sector and a header; sectors alone, adjacent and last; entries behind the first 4096 bytes
// of the file, in the last entry of it and the first behind it. The same of zeros, which take their space first.
const DEEDS: [Deed; 7] = [
    Deed { bytes: 1000, is_hollow: false, first: &[0], second: &[0] },
    Deed { bytes: 4096, is_hollow: false, first: &[0], second: &[0] },
    Deed { bytes: 20_000, is_hollow: false, first: &[0], second: &[3] },
    Deed { bytes: 20_000, is_hollow: false, first: &[1, 2, 4], second: &[4, 0, 1] },
    Deed { bytes: 1020 * 4096 + 5, is_hollow: false, first: &[1007, 1008, 5], second: &[1020, 1008] },
    Deed { bytes: 20_000, is_hollow: true, first: &[1, 2], second: &[4, 1] },
    Deed { bytes: 1020 * 4096 + 5, is_hollow: true, first: &[1008], second: &[1020, 0] },
];

impl Deed {
    fn sectors(self) -> u64 {
        self.bytes.div_ceil(4096) as u64
    }

    fn range(self, sector: u64) -> ByteRange {
        let offset = sector * 4096;
        ByteRange { offset, bytes: 4096.min(self.bytes as u64 - offset) }
    }

    /// A sector before (0), after the first call (1) and after the second (2).
    fn content(self, sector: u64, calls: u64) -> Bytes {
        let calls = if calls == 2 && !self.second.contains(&sector) { 1 } else { calls };
        let calls = if calls == 1 && !self.first.contains(&sector) { 0 } else { calls };
        if calls == 0 && self.is_hollow {
            return Bytes::from(vec![0; self.range(sector).bytes as usize]);
        }
        // What it was committed with has the same shape, so that no more is computed than asked for.
        pattern(calls * 10_000 + sector, self.range(sector).bytes as usize)
    }

    /// All of it before the first call.
    fn committed(self) -> Bytes {
        let sectors: Vec<Bytes> = (0..self.sectors()).map(|sector| self.content(sector, 0)).collect();
        sectors.concat().into()
    }

    fn changes(self, call: u64) -> Vec<Overwrite> {
        let sectors = if call == 1 { self.first } else { self.second };
        let change = |sector: &u64| Overwrite { offset: sector * 4096, bytes: self.content(*sector, call) };
        sectors.iter().map(change).collect()
    }

    /// Does it, up to the first step that fails; returns how many were acknowledged.
    async fn act(self, store: &DirectoryStore) -> u64 {
        for step in 0..4 {
            let done = match step {
                0 | 2 => store.overwrite(chunk(1), LEASE, &self.changes(step / 2 + 1)).await,
                _ => store.sync().await,
            };
            if done.is_err() {
                return step;
            }
        }
        4
    }

    /// Checks what is left, does the last call again, and checks that all is well. Returns how many sectors were as
    /// before, as they should be, and lost, of those that were not settled.
    async fn check(self, store: &DirectoryStore, acknowledged: u64, context: &str) -> [u64; 3] {
        // The calls that must be there, and the last that may be.
        let (synced, begun) = (acknowledged / 2, (acknowledged / 2 + 1).min(2));
        let mut seen = [0; 3];
        for sector in 0..self.sectors() {
            let (old, new) = (self.content(sector, synced), self.content(sector, begun));
            let is_settled = old == new || acknowledged == 4;
            match store.read(chunk(1), &[self.range(sector)]).await {
                Ok(read) if is_settled => assert!(read[0] == old, "sector {sector} {context}"),
                Ok(read) if read[0] == old => seen[0] += 1,
                Ok(read) => {
                    assert!(read[0] == new, "sector {sector} {context}");
                    seen[1] += 1;
                }
                Err(ChunkError::SectorsLost { .. }) if !is_settled => seen[2] += 1,
                Err(error) => panic!("{error} {context}"),
            }
        }
        for call in 1..=begun.max(1) {
            store.overwrite(chunk(1), LEASE, &self.changes(call)).await.expect("again");
        }
        store.sync().await.expect("sync");
        let verdict = store.verify(chunk(1)).await.expect("verify");
        assert_eq!(verdict.lost_sectors, vec![], "{context}");
        for sector in 0..self.sectors() {
            let read = store.read(chunk(1), &[self.range(sector)]).await.expect("well again");
            assert!(read[0] == self.content(sector, begun), "sector {sector} {context}");
        }
        seen
    }
}

/// Returns whether power went, and what was seen of sectors that were not settled.
fn cut_during(deed: Deed, operation: u64, seed: u64) -> (bool, [u64; 3]) {
    run(seed, |world| async move {
        let context = format!("({deed:?}, power cut at operation {operation}, seed {seed})");
        let mut served = Served::format(world).await;
        let store = served.open().await;
        put(&store, chunk(1), deed.committed()).await.expect("put");
        put(&store, chunk(2), pattern(8, 9000)).await.expect("put");
        served.disk.cut_power_after(operation);
        let acknowledged = deed.act(&store).await;
        let cut = !served.disk.is_powered();
        let store = served.restart(store, true).await;
        let seen = deed.check(&store, acknowledged, &context).await;
        let all = [ByteRange { offset: 0, bytes: 9000 }];
        assert!(store.read(chunk(2), &all).await.expect("untouched")[0] == pattern(8, 9000), "{context}");
        (cut, seen)
    })
}

#[test]
fn a_power_cut_at_any_operation_leaves_sectors_old_new_or_lost_and_the_others_alone() {
    let mut seen = [0; 3];
    for deed in DEEDS {
        let mut operation = 0;
        loop {
            let mut cut_ever = false;
            // The longest takes its time.
            for seed in 0..if deed.bytes > 1 << 20 { 2 } else { 12 } {
                let (cut, more) = cut_during(deed, operation, operation * 100 + seed);
                cut_ever |= cut;
                seen = [0, 1, 2].map(|kind| seen[kind] + more[kind]);
            }
            if !cut_ever {
                break;
            }
            operation += 1;
        }
        assert!(operation >= 4, "{deed:?} has operations");
    }
    assert!(seen.iter().all(|count| *count > 50), "{seen:?} old, new, lost");
}

#[test]
fn a_failure_of_any_operation_is_told_and_fails_the_store() {
    for deed in DEEDS {
        for (fault, power_cut) in [(Fault::Medium, false), (Fault::Medium, true), (Fault::NoSpace, true)] {
            let mut operation = 0;
            while run(operation, |world| async move {
                let context = format!("({deed:?}, {fault:?} at operation {operation}, power cut: {power_cut})");
                let mut served = Served::format(world).await;
                let store = served.open().await;
                put(&store, chunk(1), deed.committed()).await.expect("put");
                served.disk.fail_after(operation, fault);
                let acknowledged = deed.act(&store).await;
                let happened = served.disk.spare_faults();
                let failed = matches!(store.state(), StoreState::Failed { .. });
                // The first operations look for a fence and open the chunk, and one that is hollow takes its space; nothing was written then.
                let lacks_space = deed.is_hollow && matches!(fault, Fault::NoSpace);
                assert!(acknowledged == 4 || failed || operation < 6 || lacks_space, "{context}");
                let store = served.restart(store, power_cut).await;
                deed.check(&store, acknowledged, &context).await;
                happened
            }) {
                operation += 1;
            }
            assert!(operation >= 4, "{deed:?} has operations");
        }
    }
}

#[test]
fn an_overwrite_of_an_open_chunk_is_two_writes_and_no_read() {
    run(1, |world| async move {
        let served = Served::format(world).await;
        let store = served.open().await;
        put(&store, chunk(1), pattern(1, 100_000)).await.expect("put");
        put(&store, chunk(2), pattern(1, 1000)).await.expect("put");
        store.sync().await.expect("what was there before it was opened");
        let change = |sector: u64, bytes| Overwrite { offset: sector * 4096, bytes: pattern(2, bytes) };
        for (id, changes, writes, bytes) in [
            (chunk(1), vec![change(3, 4096)], 2, 4100),
            (chunk(1), vec![change(4, 4096), change(5, 8192)], 2, 3 * 4100),
            (chunk(1), vec![change(4, 4096), change(6, 4096)], 4, 2 * 4100),
            (chunk(2), vec![change(0, 1000)], 1, 1004),
        ] {
            store.overwrite(id, LEASE, &changes).await.expect("opens it");
            let before = served.disk.stats();
            store.overwrite(id, LEASE, &changes).await.expect("overwrite");
            let after = served.disk.stats();
            assert_eq!(after.operations - before.operations, writes);
            assert_eq!((after.bytes_written - before.bytes_written, after.bytes_read - before.bytes_read), (bytes, 0));
        }
        let before = served.disk.stats();
        store.sync().await.expect("sync");
        store.sync().await.expect("nothing waits");
        assert_eq!(served.disk.stats().syncs - before.syncs, 2, "each file once, and no directory");
    });
}

#[test]
fn a_chunk_that_is_buffered_and_overwritten_is_synced_with_its_name() {
    for seed in 0..20 {
        run(seed, |world| async move {
            let mut served = Served::format(world).await;
            let store = served.open().await;
            let mut writer = store.create(chunk(1), 9000).await.expect("create");
            writer.append(pattern(1, 9000)).await.expect("append");
            writer.commit(claystone_chunk::Durability::Buffered).await.expect("commit");
            let change = [Overwrite { offset: 4096, bytes: pattern(2, 4096) }];
            store.overwrite(chunk(1), LEASE, &change).await.expect("overwrite");
            store.sync().await.expect("sync");
            let store = served.restart(store, true).await;
            let range = [ByteRange { offset: 4096, bytes: 4096 }];
            assert!(store.read(chunk(1), &range).await.expect("durable")[0] == pattern(2, 4096));
        });
    }
}

#[test]
fn many_overwritten_chunks_do_not_keep_their_files_open() {
    run(1, |world| async move {
        let served = Served::format(world).await;
        let store = served.open().await;
        for number in 0..140 {
            put(&store, chunk(number), pattern(1, 5000)).await.expect("put");
        }
        let before = served.disk.stats().syncs;
        for number in 0..140 {
            let change = [Overwrite { offset: 0, bytes: pattern(2, 4096) }];
            store.overwrite(chunk(number), LEASE, &change).await.expect("overwrite");
        }
        assert!(served.disk.stats().syncs > before + 100);
    });
}

#[test]
fn a_fence_holds_for_chunks_after_the_store_was_opened_anew() {
    run(1, |world| async move {
        let mut served = Served::format(world).await;
        let store = served.open().await;
        put(&store, chunk(1), pattern(1, 4096)).await.expect("put");
        let change = [Overwrite { offset: 0, bytes: pattern(2, 4096) }];
        store.overwrite(chunk(1), LEASE, &change).await.expect("overwrite");
        let later = Lease { term: Term(2), ..LEASE };
        store.segments().fence(later).await.expect("fence");
        let store = served.restart(store, true).await;
        let fenced = ChunkError::Fenced { lease: LEASE, fenced: Term(2) };
        assert_eq!(store.overwrite(chunk(1), LEASE, &change).await, Err(fenced));
        store.overwrite(chunk(1), later, &change).await.expect("overwrite");
    });
}

#[test]
fn a_read_only_disk_takes_no_overwrite() {
    run(1, |world| async move {
        let served = Served::format(world).await;
        let store = served.open().await;
        put(&store, chunk(1), pattern(1, 9000)).await.expect("put");
        served.disk.set_read_only(true);
        let change = [Overwrite { offset: 0, bytes: pattern(2, 4096) }];
        let refused = store.overwrite(chunk(1), LEASE, &change).await;
        assert!(matches!(refused, Err(ChunkError::Unavailable { .. })), "{refused:?}");
        assert!(matches!(store.state(), StoreState::ReadOnly { .. }));
        let all = [ByteRange { offset: 0, bytes: 9000 }];
        assert!(store.read(chunk(1), &all).await.expect("readable")[0] == pattern(1, 9000));
    });
}

#[test]
fn overwrites_survive_a_header_that_counts_patches() {
    run(1, |world| async move {
        let mut served = Served::format(world).await;
        let store = served.open().await;
        put(&store, chunk(1), pattern(1, 9000)).await.expect("put");
        // As a build before the first release left it: its journal, and the header of a chunk that it changed once.
        let directory = served.disk.attach();
        directory.create("patch.journal").expect("create").write_at(0, &[7; 100]).expect("write");
        directory.sync_dir("").expect("sync");
        let path = format!("chunks/01/{}", chunk(1));
        let mut file = served.disk.content(&path);
        file[48] = 1;
        file[12..16].fill(0);
        let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &file[..64]) as u32;
        file[12..16].copy_from_slice(&crc.to_le_bytes());
        served.disk.set_content(&path, file);
        let store = served.restart(store, false).await;
        let change = [Overwrite { offset: 8192, bytes: pattern(2, 808) }];
        store.overwrite(chunk(1), LEASE, &change).await.expect("overwrite");
        store.sync().await.expect("sync");
        let store = served.restart(store, true).await;
        assert_eq!(store.verify(chunk(1)).await.expect("verify").lost_sectors, vec![]);
        assert!(served.disk.files().contains(&"patch.journal".to_owned()), "it is nobody's, and left alone");
    });
}
