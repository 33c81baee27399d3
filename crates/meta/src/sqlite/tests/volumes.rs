//! Volumes: rows that cannot be read, a full file system, and random operations against a model.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use claystone_chunk::{Lease, NodeId, OwnerId, StripeId, Term};
use proptest::prelude::*;

use super::{Free, assert_sound, memory, open};
use crate::testing::{add_disks, at, disk, log, new_object, stripe, volume};
use crate::{
    BucketRecords, LogRecord, MetaError, ObjectRecords, SnapshotId, SnapshotRecords, StripeRecord, StripeRecords,
    VolumeRecord, VolumeRecords,
};

const STRIPE_BYTES: u64 = 256 << 10;

fn full(id: u128) -> StripeRecord {
    stripe(id, "rs:4+2", STRIPE_BYTES)
}

/// A row that cannot be read is an error, never zeros, and `check` finds what contradicts something else.
#[tokio::test]
async fn corrupt_volumes_are_errors() {
    // Whether the record and the stripes can be read, and whether `check` sees it.
    for (sql, record, stripes, sound) in [
        ("UPDATE volumes SET redundancy = 'rs:x'", false, true, false),
        ("UPDATE volumes SET bytes = -1", false, true, false),
        ("UPDATE volumes SET bytes = 1048575", true, true, true),
        ("UPDATE volumes SET bytes = 786432", true, true, false),
        ("UPDATE volumes SET chunk_bytes = 65535", true, true, false),
        ("UPDATE volumes SET chunk_bytes = 9223372036854775807", true, true, false),
        ("UPDATE volumes SET page_bytes = 0", true, true, false),
        ("UPDATE volumes SET term = -1", false, true, false),
        ("UPDATE volumes SET term = 0", true, true, false),
        ("UPDATE volume_logs SET disk = 99", false, true, false),
        ("UPDATE volume_logs SET volume = 99", true, true, false),
        ("UPDATE volumes SET log_nodes = 2", false, true, false),
        ("UPDATE volumes SET log_nodes = -1", false, true, false),
        ("UPDATE volume_spans SET volume = 99", true, true, false),
        ("UPDATE volume_spans SET position = -1", true, true, false),
        ("UPDATE volume_spans SET position = 9223372036854775807", true, true, false),
        ("UPDATE volume_spans SET stripe = x'1234'", true, false, false),
        ("DELETE FROM volume_spans", true, true, false),
        ("DELETE FROM stripes", true, false, false),
        ("DELETE FROM chunks WHERE idx = 5", true, false, false),
        ("UPDATE stripes SET refs = 1", true, true, false),
        ("UPDATE stripes SET code = 'rs:x'", true, false, false),
        ("UPDATE volumes SET log_from = 2", true, true, false),
        ("UPDATE volumes SET log_from = -1", false, true, false),
        ("DELETE FROM snapshot_spans", true, true, false),
        ("DELETE FROM snapshots", true, true, false),
        ("UPDATE snapshots SET volume = 99", true, true, false),
        ("UPDATE snapshots SET bytes = 786432", true, true, false),
        ("UPDATE snapshot_spans SET stripe = x'00000000000000000000000000000099'", true, true, false),
    ] {
        let meta = memory().await;
        add_disks(&meta, 6).await.expect("room");
        meta.create_volume(volume(1, "one", 4 * STRIPE_BYTES)).await.expect("room");
        let term = meta.take_lease(OwnerId(1)).await.expect("room").term;
        let lease = Lease { owner: OwnerId(1), term };
        meta.set_log(lease, log(&[disk(0)], 0)).await.expect("room");
        meta.put_volume_stripes(lease, vec![(3, Some(full(1)))]).await.expect("room");
        meta.create_snapshot(lease, "s", at(1)).await.expect("room");
        meta.write(move |connection| Ok(connection.execute_batch(sql)?)).await.expect(sql);

        let read = meta.volume("one").await;
        assert_eq!(read.is_ok(), record, "{sql}: {read:?}");
        assert!(record || matches!(read, Err(MetaError::Corrupt { .. })), "{sql}: {read:?}");
        let read = meta.volume_stripes(OwnerId(1), None, 9).await;
        assert_eq!(read.is_ok(), stripes, "{sql}: {read:?}");
        assert!(stripes || matches!(read, Err(MetaError::Corrupt { .. })), "{sql}: {read:?}");
        let problems = meta.check().await;
        assert_eq!(problems.as_ref().is_ok_and(Vec::is_empty), sound, "{sql}: {problems:?}");

        // It is told apart, and hides no other.
        meta.create_volume(volume(2, "two", STRIPE_BYTES)).await.expect("room");
        let listed: Vec<OwnerId> = meta.volumes().await.expect("listed").iter().map(|volume| volume.id).collect();
        let corrupt = meta.corrupt_volumes().await.expect("listed");
        let corrupt: Vec<OwnerId> = corrupt.into_iter().map(|(id, _)| id).collect();
        let (one, two) = (OwnerId(1), OwnerId(2));
        let expected = if record { (vec![one, two], vec![]) } else { (vec![two], vec![one]) };
        assert_eq!((listed, corrupt), expected, "{sql}");
    }
}

/// Volumes are opened, change their logs, give stripes back and go while no page is left.
#[tokio::test]
async fn volumes_shrink_and_go_on_a_full_disk() {
    let directory = tempfile::tempdir().expect("a directory");
    let meta = open(&directory.path().join("meta.db")).await;
    let free = Arc::new(Free(AtomicU64::new(1 << 40)));
    meta.watch_space(free.clone());
    add_disks(&meta, 6).await.expect("room");
    let bucket = meta.create_bucket("photos", "ann", None, at(1)).await.expect("room").id;
    meta.create_volume(volume(1, "one", 1 << 40)).await.expect("room");
    let term = meta.take_lease(OwnerId(1)).await.expect("room").term;
    let lease = Lease { owner: OwnerId(1), term };
    // Ids in no order, as they are in life: dead ones are spread over their index.
    let id = |position: u64| u128::from(position + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
    let mut positions = 0;
    loop {
        // So many that the index of dead stripes needs more pages than the reserve has.
        if positions == 18_000 {
            free.0.store(0, Ordering::Relaxed);
        }
        let wave = positions..positions + 50;
        let stripes = wave.clone().map(|position| (position, Some(full(id(position))))).collect();
        match meta.put_volume_stripes(lease, stripes).await {
            Ok(_) => positions = wave.end,
            Err(MetaError::Full) => break,
            Err(other) => panic!("expected Full, got {other:?}"),
        }
        assert!(positions < 30_000, "the database grows without room");
    }
    // The last page too.
    let mut objects = 0;
    while meta.put_object(new_object(bucket, &format!("{objects}"), vec![full(objects)])).await.is_ok() {
        objects += 1;
    }

    let term = meta.take_lease(OwnerId(1)).await.expect("opened").term;
    let lease = Lease { owner: OwnerId(1), term };
    meta.set_log(lease, log(&[0, 1, 2].map(disk), 0)).await.expect("a log");
    let gone = (0..200).map(|position| (position, None)).collect();
    assert_eq!(meta.put_volume_stripes(lease, gone).await.expect("fewer stripes").len(), 200);
    let dead = meta.delete_volume(OwnerId(1)).await.expect("no volume");
    assert_eq!(dead.len() as u64, positions - 200);
    assert_sound(&meta).await;
    let dead = meta.dead_stripes(50_000).await.expect("readable");
    let dead: Vec<_> = dead.iter().map(|stripe| stripe.id).collect();
    assert_eq!(dead.len() as u64, positions);
    meta.forget(&dead).await.expect("reclaim works");
    meta.create_volume(volume(2, "two", 1 << 40)).await.expect("there is room again");
    assert_sound(&meta).await;
}

#[derive(Debug, Clone)]
enum Op {
    Create {
        id: u8,
        name: u8,
    },
    Delete {
        id: u8,
    },
    Open {
        id: u8,
    },
    /// Puts (or takes away) at positions, under the last lease or the one before it.
    Put {
        id: u8,
        stale: bool,
        positions: Vec<(u64, bool)>,
    },
    Logs {
        id: u8,
        stale: bool,
        disks: Vec<(u8, Option<u8>)>,
        copies: u16,
    },
    Grow {
        id: u8,
        bytes: u64,
    },
    Snapshot {
        id: u8,
        stale: bool,
        name: u8,
    },
    /// Of the snapshots in the order they were taken, that at this place, as is for all below.
    Clone {
        snapshot: usize,
        id: u8,
    },
    Revert {
        snapshot: usize,
    },
    DeleteSnapshot {
        snapshot: usize,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let id = 0..3u8;
    let stale = prop::bool::weighted(0.2);
    let positions = prop::collection::vec((0..6u64, any::<bool>()), 0..5);
    prop_oneof![
        2 => (id.clone(), 0..3u8).prop_map(|(id, name)| Op::Create { id, name }),
        1 => id.clone().prop_map(|id| Op::Delete { id }),
        3 => id.clone().prop_map(|id| Op::Open { id }),
        6 => (id.clone(), stale, positions)
            .prop_map(|(id, stale, positions)| Op::Put { id, stale, positions }),
        2 => (id.clone(), stale, prop::collection::vec((0..6u8, prop::option::of(0..3u8)), 0..4), 0..3u16)
            .prop_map(|(id, stale, disks, copies)| Op::Logs { id, stale, disks, copies }),
        1 => (id.clone(), 0..4u64).prop_map(|(id, steps)| Op::Grow { id, bytes: (6 + steps) * STRIPE_BYTES }),
        2 => (id.clone(), prop::bool::weighted(0.2), 0..3u8)
            .prop_map(|(id, stale, name)| Op::Snapshot { id, stale, name }),
        1 => (0..6usize, id).prop_map(|(snapshot, id)| Op::Clone { snapshot, id }),
        1 => (0..6usize).prop_map(|snapshot| Op::Revert { snapshot }),
        1 => (0..6usize).prop_map(|snapshot| Op::DeleteSnapshot { snapshot }),
    ]
}

#[derive(Clone)]
struct Known {
    record: VolumeRecord,
    stripes: BTreeMap<u64, u128>,
}

/// Stripes that something holds.
fn held(model: &BTreeMap<u128, Known>, snapshots: &[(SnapshotId, Known, u8)]) -> BTreeSet<u128> {
    let all = model.values().chain(snapshots.iter().map(|(_, known, _)| known));
    all.flat_map(|known| known.stripes.values().copied()).collect()
}

async fn run(ops: &[Op]) {
    let meta = memory().await;
    add_disks(&meta, 6).await.expect("room");
    let mut model: BTreeMap<u128, Known> = BTreeMap::new();
    let mut snapshots: Vec<(SnapshotId, Known, u8)> = Vec::new();
    let mut dead: BTreeSet<u128> = BTreeSet::new();
    // Ids are never used again, so each slot counts up.
    let mut made = [0u128; 3];
    let mut stripes_made = 0u128;
    for op in ops {
        let slot = |id: u8| usize::from(id);
        let current = |made: &[u128; 3], id: u8| 100 * (u128::from(id) + 1) + made[slot(id)];
        let lease = |model: &BTreeMap<u128, Known>, id: u128, stale: bool| {
            let term = model.get(&id).map_or(Term(1), |known| known.record.term);
            Lease { owner: OwnerId(id), term: Term(term.0.saturating_sub(u64::from(stale))) }
        };
        // Whether a change under `lease` must be refused, and how.
        let refused = |model: &BTreeMap<u128, Known>, lease: Lease, error: Option<&MetaError>| {
            let known = model.get(&lease.owner.0).map(|known| known.record.term);
            match (known, error) {
                (None, Some(MetaError::NoSuchVolume { .. })) => true,
                (Some(last), Some(MetaError::LeaseEnded { .. })) => {
                    assert!(lease.term != last || last == Term(0));
                    true
                }
                (Some(last), None) => {
                    assert!(lease.term == last && last > Term(0));
                    false
                }
                (known, error) => panic!("{known:?}: {error:?}"),
            }
        };
        match op {
            Op::Create { id, name } => {
                if model.contains_key(&current(&made, *id)) {
                    continue;
                }
                made[slot(*id)] += 1;
                let id = current(&made, *id);
                let record = volume(id, &format!("name {name}"), 6 * STRIPE_BYTES);
                let taken = model.values().any(|known| known.record.name == record.name);
                let result = meta.create_volume(record.clone()).await;
                assert_eq!(matches!(result, Err(MetaError::VolumeExists { .. })), taken, "{result:?}");
                if !taken {
                    model.insert(id, Known { record, stripes: BTreeMap::new() });
                }
            }
            Op::Delete { id } => {
                let id = current(&made, *id);
                let result = meta.delete_volume(OwnerId(id)).await;
                if snapshots.iter().any(|(_, known, _)| known.record.id == OwnerId(id)) {
                    assert!(matches!(result, Err(MetaError::HasSnapshots { .. })), "{result:?}");
                    continue;
                }
                let before = held(&model, &snapshots);
                if model.remove(&id).is_none() {
                    assert!(matches!(result, Err(MetaError::NoSuchVolume { .. })), "{result:?}");
                    continue;
                };
                let died = result.expect("the model has it").iter().map(|stripe| stripe.id.0).collect();
                assert_eq!(&before - &held(&model, &snapshots), died);
                dead.extend(died);
            }
            Op::Open { id } => {
                let id = current(&made, *id);
                let result = meta.take_lease(OwnerId(id)).await;
                if let Some(known) = model.get_mut(&id) {
                    known.record.term.0 += 1;
                    assert_eq!(result.expect("the model has it"), known.record);
                }
            }
            Op::Put { id, stale, positions } => {
                let lease = lease(&model, current(&made, *id), *stale);
                let mut stripes = Vec::new();
                for (position, there) in positions {
                    stripes_made += 1;
                    // The newer the stripe, the lesser its id.
                    stripes.push((*position, there.then(|| full(10_000 - stripes_made))));
                }
                let result = meta.put_volume_stripes(lease, stripes.clone()).await;
                if refused(&model, lease, result.as_ref().err()) {
                    continue;
                }
                let known = model.get_mut(&lease.owner.0).expect("not refused");
                let mut died = Vec::new();
                for (position, stripe) in stripes {
                    died.extend(match stripe {
                        Some(stripe) => known.stripes.insert(position, stripe.id.0),
                        None => known.stripes.remove(&position),
                    });
                }
                let still = held(&model, &snapshots);
                died.retain(|stripe| !still.contains(stripe));
                let found: Vec<u128> = result.expect("not refused").iter().map(|stripe| stripe.id.0).collect();
                assert_eq!(found, died);
                dead.extend(died);
            }
            Op::Snapshot { id, stale, name } => {
                let lease = lease(&model, current(&made, *id), *stale);
                let result = meta.create_snapshot(lease, &format!("s{name}"), at(5)).await;
                let same =
                    |(_, known, taken): &(SnapshotId, Known, u8)| known.record.id == lease.owner && taken == name;
                if snapshots.iter().any(same) && matches!(result, Err(MetaError::SnapshotExists { .. })) {
                    continue;
                }
                if refused(&model, lease, result.as_ref().err()) {
                    continue;
                }
                snapshots.push((result.expect("not refused").id, model[&lease.owner.0].clone(), *name));
            }
            Op::Clone { snapshot, id } => {
                let Some((snapshot, from, _)) = snapshots.get(*snapshot) else { continue };
                if model.contains_key(&current(&made, *id)) {
                    continue;
                }
                made[slot(*id)] += 1;
                let id = current(&made, *id);
                let record = volume(id, &format!("clone {id}"), from.record.bytes);
                meta.clone_snapshot(*snapshot, record.clone()).await.expect("the model has it");
                model.insert(id, Known { record, stripes: from.stripes.clone() });
            }
            Op::Revert { snapshot } => {
                let Some((snapshot, to, _)) = snapshots.get(*snapshot) else { continue };
                let before = held(&model, &snapshots);
                let died = meta.revert_volume(to.record.id, *snapshot).await.expect("the model has it");
                let known = model.get_mut(&to.record.id.0).expect("it has a snapshot");
                known.stripes = to.stripes.clone();
                known.record.term.0 += 1;
                (known.record.log_from, known.record.log) = (known.record.term, LogRecord::default());
                let died = died.iter().map(|stripe| stripe.id.0).collect();
                assert_eq!(&before - &held(&model, &snapshots), died);
                dead.extend(died);
            }
            Op::DeleteSnapshot { snapshot } => {
                if *snapshot >= snapshots.len() {
                    continue;
                }
                let before = held(&model, &snapshots);
                let (snapshot, _, _) = snapshots.remove(*snapshot);
                let died = meta.delete_snapshot(snapshot).await.expect("the model has it");
                let died = died.iter().map(|stripe| stripe.id.0).collect();
                assert_eq!(&before - &held(&model, &snapshots), died);
                dead.extend(died);
            }
            Op::Logs { id, stale, disks, copies } => {
                let lease = lease(&model, current(&made, *id), *stale);
                let node = |node: u8| NodeId(format!("node {node}"));
                let disks: BTreeMap<_, _> =
                    disks.iter().map(|(number, label)| (disk(*number), label.map(node))).collect();
                let nodes = disks.values().flatten().collect::<BTreeSet<_>>().len() as u16;
                let log = LogRecord { disks, copies: *copies, nodes };
                let result = meta.set_log(lease, log.clone()).await;
                if !refused(&model, lease, result.as_ref().err()) {
                    let known = model.get_mut(&lease.owner.0).expect("not refused");
                    known.record.log = log;
                }
            }
            Op::Grow { id, bytes } => {
                let id = current(&made, *id);
                let result = meta.grow_volume(OwnerId(id), *bytes).await;
                match model.get_mut(&id) {
                    Some(known) if *bytes >= known.record.bytes => {
                        known.record.bytes = *bytes;
                        assert_eq!(result.expect("it grows"), known.record);
                    }
                    Some(_) => assert!(matches!(result, Err(MetaError::VolumeShrinks { .. })), "{result:?}"),
                    None => assert!(matches!(result, Err(MetaError::NoSuchVolume { .. })), "{result:?}"),
                }
            }
        }
    }
    let mut records: Vec<VolumeRecord> = model.values().map(|known| known.record.clone()).collect();
    records.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(meta.volumes().await.expect("readable"), records);
    let live = held(&model, &snapshots);
    let mut names: BTreeMap<u128, u64> = BTreeMap::new();
    for (id, known) in &model {
        let found = meta.volume_stripes(OwnerId(*id), None, 100).await.expect("readable");
        let found = found.into_iter().map(|(position, stripe)| (position, stripe.id.0));
        assert!(found.eq(known.stripes.clone()));
    }
    for (id, known, _) in &snapshots {
        let found = meta.snapshot_stripes(*id, None, 100).await.expect("readable");
        let found = found.into_iter().map(|(position, stripe)| (position, stripe.id.0));
        assert!(found.eq(known.stripes.clone()));
    }
    for known in model.values().chain(snapshots.iter().map(|(_, known, _)| known)) {
        known.stripes.values().for_each(|stripe| *names.entry(*stripe).or_default() += 1);
    }
    let shared: Vec<StripeId> = names.iter().filter(|(_, count)| **count > 1).map(|(id, _)| StripeId(*id)).collect();
    let all: Vec<StripeId> = names.keys().copied().map(StripeId).collect();
    assert_eq!(meta.shared(&all).await.expect("readable"), shared);
    for (id, known, _) in &snapshots {
        let alone = known.stripes.values().filter(|stripe| names[stripe] == 1).count() as u64;
        let tally = meta.snapshot_tally(*id).await.expect("readable");
        assert_eq!((tally.stripes, tally.alone), (known.stripes.len() as u64, alone));
    }
    let ids = |stripes: Vec<StripeRecord>| stripes.iter().map(|stripe| stripe.id.0).collect::<BTreeSet<_>>();
    assert_eq!(ids(meta.stripes(None, 1_000).await.expect("readable")), live);
    assert_eq!(ids(meta.dead_stripes(1_000).await.expect("readable")), dead);
    assert_sound(&meta).await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn random_operations_on_volumes_do_as_the_model(ops in prop::collection::vec(op(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(run(&ops));
    }
}
