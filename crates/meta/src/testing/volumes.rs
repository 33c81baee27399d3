//! Volumes: names, leases, logs and stripes at positions.

use claystone_chunk::{ChunkId, Generation, Lease, NodeId, OwnerId, StripeId, Term};
use claystone_code::ChunkIndex;

use super::{add_disks, at, bucket, delete, disk, ids, log, new_object, place, refused, stripe, volume};
use crate::{DiskState, DiskTally, LogRecord, Meta, MetaError, StripeRecord, Swap, VolumeRecord};

/// Bytes of the volumes here: 16 stripes.
const BYTES: u64 = 16 * STRIPE_BYTES;
const STRIPE_BYTES: u64 = 256 << 10;

/// The volume `one` of id 1, opened, and the disks 0 to 7.
async fn opened(meta: &dyn Meta) -> Result<Lease, MetaError> {
    add_disks(meta, 8).await?;
    meta.create_volume(volume(1, "one", BYTES)).await?;
    lease_of(meta, 1).await
}

async fn lease_of(meta: &dyn Meta, id: u128) -> Result<Lease, MetaError> {
    let volume = meta.take_lease(OwnerId(id)).await?;
    Ok(Lease { owner: volume.id, term: volume.term })
}

fn full(id: u128) -> StripeRecord {
    stripe(id, "rs:4+2", STRIPE_BYTES)
}

/// New stripes of these ids at these positions; 0 takes away.
fn puts(stripes: &[(u64, u128)]) -> Vec<(u64, Option<StripeRecord>)> {
    stripes.iter().map(|(position, id)| (*position, (*id > 0).then(|| full(*id)))).collect()
}

async fn positions(
    meta: &dyn Meta,
    id: OwnerId,
    after: Option<u64>,
    limit: usize,
) -> Result<Vec<(u64, u128)>, MetaError> {
    let page = meta.volume_stripes(id, after, limit).await?;
    Ok(page.iter().map(|(position, stripe)| (*position, stripe.id.0)).collect())
}

pub(super) async fn names_are_unique_and_records_are_kept(meta: &dyn Meta) -> Result<(), MetaError> {
    let zoo = VolumeRecord {
        page_bytes: 512,
        chunk_bytes: 1 << 40,
        redundancy: "replica:3/lrc:4+2+2<=250%".parse().expect("a redundancy"),
        homes: vec![NodeId("node-3".to_owned()), NodeId("node-1".to_owned())],
        ..volume(u128::MAX, "zoo", 0)
    };
    let art = volume(1, "art", BYTES);
    meta.create_volume(zoo.clone()).await?;
    meta.create_volume(art.clone()).await?;
    assert_eq!(art.stripe_bytes(), STRIPE_BYTES);
    refused!(
        meta.create_volume(volume(2, "zoo", 9)).await,
        MetaError::VolumeExists { name } if name == "zoo"
    );
    assert_eq!(meta.volumes().await?, [art.clone(), zoo.clone()]);
    assert_eq!(meta.volume("zoo").await?, zoo);
    refused!(meta.volume("Zoo").await, MetaError::NoSuchVolume { name } if name == "Zoo");

    meta.delete_volume(zoo.id).await?;
    refused!(meta.volume("zoo").await, MetaError::NoSuchVolume { .. });
    // A volume of the same name is another one.
    meta.create_volume(volume(2, "zoo", 9)).await?;
    assert_eq!(meta.volumes().await?, [art, volume(2, "zoo", 9)]);
    Ok(())
}

pub(super) async fn a_volume_grows_and_never_shrinks(meta: &dyn Meta) -> Result<(), MetaError> {
    meta.create_volume(volume(1, "one", BYTES)).await?;
    meta.create_volume(volume(2, "two", BYTES)).await?;
    assert_eq!(meta.grow_volume(OwnerId(1), BYTES).await?, volume(1, "one", BYTES), "by nothing");
    assert_eq!(meta.grow_volume(OwnerId(1), BYTES + 7).await?, volume(1, "one", BYTES + 7));
    refused!(
        meta.grow_volume(OwnerId(1), BYTES + 6).await,
        MetaError::VolumeShrinks { name, bytes, wanted: _ } if name == "one" && bytes == BYTES + 7
    );
    assert_eq!(meta.volumes().await?, [volume(1, "one", BYTES + 7), volume(2, "two", BYTES)]);
    refused!(meta.grow_volume(OwnerId(3), BYTES).await, MetaError::NoSuchVolume { .. });
    // Whoever has it open keeps it.
    let lease = lease_of(meta, 1).await?;
    assert_eq!(meta.grow_volume(lease.owner, 2 * BYTES).await?.term, lease.term);
    meta.set_log(lease, log(&[], 0)).await?;
    Ok(())
}

pub(super) async fn what_stripes_get_is_set_without_a_lease(meta: &dyn Meta) -> Result<(), MetaError> {
    let lease = opened(meta).await?;
    meta.put_volume_stripes(lease, puts(&[(3, 10)])).await?;
    for redundancy in ["replica:3/rs:4+2<=200%", "mirror:4x2", "rs:4+2"] {
        let redundancy = redundancy.parse().expect("a redundancy");
        let expected = VolumeRecord { term: lease.term, redundancy, ..volume(1, "one", BYTES) };
        assert_eq!(meta.set_redundancy(lease.owner, redundancy).await?, expected);
        assert_eq!(meta.volume("one").await?, expected);
    }
    // Whoever has it open keeps it, and its stripes are what they were.
    meta.set_log(lease, log(&[], 0)).await?;
    let stripes = meta.volume_stripes(lease.owner, None, 9).await?;
    assert_eq!(stripes.iter().map(|(_, stripe)| stripe.code.to_string()).collect::<Vec<_>>(), ["rs:4+2"]);
    let missing = meta.set_redundancy(OwnerId(7), "rs:4+2".parse().expect("a redundancy")).await;
    refused!(missing, MetaError::NoSuchVolume { .. });
    Ok(())
}

pub(super) async fn each_lease_ends_those_before(meta: &dyn Meta) -> Result<(), MetaError> {
    let first = opened(meta).await?;
    assert_eq!(first, Lease { owner: OwnerId(1), term: Term(1) });
    meta.set_log(first, log(&[disk(1)], 0)).await?;
    meta.put_volume_stripes(first, puts(&[(3, 10)])).await?;
    meta.create_volume(volume(2, "two", BYTES)).await?;

    // Another volume's leases end nothing here, and what the volume has stays.
    assert_eq!(lease_of(meta, 2).await?.term, Term(1));
    let second = meta.take_lease(first.owner).await?;
    let expected = VolumeRecord { term: Term(2), log: log(&[disk(1)], 0), ..volume(1, "one", BYTES) };
    assert_eq!(second, expected);

    // Neither a former lease nor one that never was, nor that of a volume which nobody has opened.
    meta.create_volume(volume(3, "three", BYTES)).await?;
    for (id, term, is) in [(1, 1, 2), (1, 3, 2), (1, 0, 2), (3, 0, 0), (3, 1, 0)] {
        let lease = Lease { owner: OwnerId(id), term: Term(term) };
        for refused in [
            meta.set_log(lease, log(&[disk(2)], 0)).await.err(),
            meta.put_volume_stripes(lease, puts(&[(3, 0)])).await.err(),
            meta.put_volume_stripes(lease, puts(&[(4, 11)])).await.err(),
            meta.put_volume_stripes(lease, Vec::new()).await.err(),
        ] {
            let Some(MetaError::LeaseEnded { lease: asked, last }) = refused else {
                panic!("volume {id} under term {term}: {refused:?}")
            };
            assert_eq!((asked, last), (lease, Term(is)));
        }
    }
    assert_eq!(meta.volume("one").await?, expected);
    assert_eq!(positions(meta, first.owner, None, 9).await?, [(3, 10)]);
    assert_eq!(ids(&meta.stripes(None, 9).await?), [10]);
    refused!(meta.take_lease(OwnerId(9)).await, MetaError::NoSuchVolume { .. });
    Ok(())
}

pub(super) async fn logs_name_disks_until_they_leave_them(meta: &dyn Meta) -> Result<(), MetaError> {
    let lease = opened(meta).await?;
    let logs = async |number| -> Result<DiskTally, MetaError> { meta.disk_tally(disk(number)).await };
    meta.set_log(lease, log(&[disk(5), disk(0), disk(5), disk(3)], 0)).await?;
    assert_eq!(meta.volume("one").await?.log, log(&[disk(0), disk(3), disk(5)], 0));
    refused!(
        meta.set_log(lease, log(&[disk(1), disk(99)], 0)).await,
        MetaError::NoSuchDisk { disk: unknown } if unknown == disk(99)
    );
    assert_eq!(meta.volume("one").await?.log, log(&[disk(0), disk(3), disk(5)], 0), "nothing changed");

    meta.set_log(lease, log(&[disk(0), disk(3), disk(5)], 2)).await?;
    assert_eq!(meta.volume("one").await?.log, log(&[disk(0), disk(3), disk(5)], 2));
    let former = Lease { term: Term(lease.term.0 - 1), ..lease };
    refused!(meta.set_log(former, log(&[disk(0)], 1)).await, MetaError::LeaseEnded { .. });
    assert_eq!(meta.volume("one").await?.log.copies, 2);

    meta.create_volume(volume(2, "two", BYTES)).await?;
    let two = lease_of(meta, 2).await?;
    meta.set_log(two, log(&[disk(3), disk(4)], 0)).await?;
    assert_eq!(logs(3).await?, DiskTally { chunks: 0, damaged: 0, logs: 2 });
    // The log may be read from a disk that is to leave, and be missed on one that is lost.
    meta.set_disk_state(disk(3), DiskState::Draining).await?;
    meta.set_disk_state(disk(5), DiskState::Lost).await?;
    assert_eq!(meta.volume("one").await?.log, log(&[disk(0), disk(3), disk(5)], 2));

    meta.set_log(lease, log(&[disk(0)], 0)).await?;
    assert_eq!((logs(3).await?.logs, logs(5).await?.logs, logs(0).await?.logs), (1, 0, 1));
    meta.delete_volume(two.owner).await?;
    assert_eq!((logs(3).await?.logs, logs(4).await?.logs, logs(0).await?.logs), (0, 0, 1));
    meta.set_log(lease, log(&[], 0)).await?;
    assert_eq!(meta.volume("one").await?.log, LogRecord::default());
    Ok(())
}

/// What is said of a log is kept as it was said, whatever the records of the disks say of their nodes, then or later.
pub(super) async fn logs_keep_the_nodes_that_their_disks_were_on(meta: &dyn Meta) -> Result<(), MetaError> {
    let lease = opened(meta).await?;
    let node = |name: &str| Some(NodeId(name.to_owned()));
    let disks = [(disk(0), node("a")), (disk(3), node("a")), (disk(4), None), (disk(5), node("b"))];
    let two = LogRecord { disks: disks.into(), copies: 3, nodes: 2 };
    meta.set_log(lease, two.clone()).await?;
    let mut moved = meta.disks().await?.into_iter().find(|known| known.id == disk(3)).expect("it is there");
    moved.node = NodeId("c".to_owned());
    meta.put_disk(moved).await?;
    assert_eq!(meta.volume("one").await?.log, two);
    let former = Lease { term: Term(lease.term.0 - 1), ..lease };
    refused!(meta.set_log(former, LogRecord::default()).await, MetaError::LeaseEnded { .. });
    assert_eq!(meta.take_lease(lease.owner).await?.log, two, "the next owner reads it");
    let one = LogRecord { disks: [(disk(3), node("c")), (disk(5), None)].into(), copies: 2, nodes: 1 };
    meta.set_log(lease_of(meta, 1).await?, one.clone()).await?;
    assert_eq!(meta.volumes().await?.pop().map(|volume| volume.log), Some(one));
    Ok(())
}

pub(super) async fn stripes_come_by_position_and_pages_add_up(meta: &dyn Meta) -> Result<(), MetaError> {
    let lease = opened(meta).await?;
    let id = lease.owner;
    assert_eq!(positions(meta, id, None, 9).await?, []);
    // Ids in another order than positions, and a neighbour with the same positions.
    let dead = meta.put_volume_stripes(lease, puts(&[(9, 1), (0, 5), (2, 3)])).await?;
    assert_eq!(dead, []);
    meta.create_volume(volume(2, "two", BYTES)).await?;
    meta.put_volume_stripes(lease_of(meta, 2).await?, puts(&[(0, 7), (1, 6)])).await?;

    assert_eq!(positions(meta, id, None, 9).await?, [(0, 5), (2, 3), (9, 1)]);
    assert_eq!(positions(meta, id, None, 2).await?, [(0, 5), (2, 3)]);
    assert_eq!(positions(meta, id, Some(2), 2).await?, [(9, 1)]);
    assert_eq!(positions(meta, id, Some(0), 1).await?, [(2, 3)]);
    assert_eq!(positions(meta, id, Some(u64::MAX), 9).await?, []);
    assert_eq!(positions(meta, id, None, 0).await?, []);
    assert_eq!(meta.volume_stripes(id, Some(2), 9).await?, [(9, full(1))], "with its places");

    // One is replaced, one taken away, one is new, and where nothing is nothing is taken.
    let dead = meta.put_volume_stripes(lease, puts(&[(2, 8), (9, 0), (4, 4), (5, 0)])).await?;
    assert_eq!(dead, [full(3), full(1)]);
    assert_eq!(positions(meta, id, None, 9).await?, [(0, 5), (2, 8), (4, 4)]);
    assert_eq!(positions(meta, OwnerId(2), None, 9).await?, [(0, 7), (1, 6)]);
    // One after the other: of two at a position the last stays.
    let dead = meta.put_volume_stripes(lease, puts(&[(0, 20), (0, 21), (4, 22), (4, 0)])).await?;
    assert_eq!(ids(&dead), [5, 20, 4, 22]);
    assert_eq!(positions(meta, id, None, 9).await?, [(0, 21), (2, 8)]);
    assert_eq!(ids(&meta.stripes(None, 9).await?), [6, 7, 8, 21]);
    assert_eq!(ids(&meta.dead_stripes(9).await?), [1, 3, 4, 5, 20, 22]);
    refused!(meta.volume_stripes(OwnerId(9), None, 9).await, MetaError::NoSuchVolume { .. });
    Ok(())
}

pub(super) async fn a_put_happens_whole_or_not_at_all(meta: &dyn Meta) -> Result<(), MetaError> {
    let lease = opened(meta).await?;
    meta.put_volume_stripes(lease, puts(&[(0, 1), (1, 2)])).await?;
    let mut foreign = full(5);
    foreign.places[5] = Some(place(99, 0));
    let mut stripes = puts(&[(0, 3), (1, 0), (2, 4)]);
    stripes.push((3, Some(foreign)));
    refused!(
        meta.put_volume_stripes(lease, stripes).await,
        MetaError::NoSuchDisk { disk: unknown } if unknown == disk(99)
    );
    assert_eq!(positions(meta, lease.owner, None, 9).await?, [(0, 1), (1, 2)]);
    assert_eq!(ids(&meta.stripes(None, 9).await?), [1, 2]);
    assert_eq!(meta.dead_stripes(9).await?, []);
    Ok(())
}

pub(super) async fn upkeep_sees_the_stripes_of_volumes(meta: &dyn Meta) -> Result<(), MetaError> {
    let lease = opened(meta).await?;
    let bucket = bucket(meta).await?;
    meta.put_object(new_object(bucket, "key", vec![stripe(2, "rs:4+2", 100)])).await?;
    meta.put_volume_stripes(lease, puts(&[(0, 1), (7, 3)])).await?;
    assert_eq!(ids(&meta.stripes(None, 9).await?), [1, 2, 3]);
    assert_eq!(ids(&meta.stripes_on(disk(5), None, 9).await?), [1, 2, 3]);
    assert_eq!(ids(&meta.named(&[StripeId(3), StripeId(4)]).await?), [3]);
    assert_eq!(meta.disk_tally(disk(0)).await?, DiskTally { chunks: 3, damaged: 0, logs: 0 });
    meta.mark_verified(StripeId(3), 0, at(9)).await?;
    let tally = meta.tally().await?;
    assert_eq!((tally.stripes, tally.data_bytes, tally.verified), (3, 100 + 2 * STRIPE_BYTES, 1));

    // Damaged, repaired elsewhere, and the volume has it from there.
    let chunk = ChunkId { stripe: StripeId(3), index: ChunkIndex(0), generation: Generation(0) };
    meta.mark_damaged(&[chunk]).await?;
    assert_eq!(ids(&meta.degraded(9).await?), [3]);
    let places = vec![(ChunkIndex(0), Some(place(6, 1)))];
    let repaired = meta.swap(Swap { stripe: StripeId(3), expected_revision: 1, places, lease: None }).await?;
    assert_eq!(meta.volume_stripes(lease.owner, Some(0), 9).await?, [(7, repaired.clone())]);
    assert_eq!(meta.degraded(9).await?, []);

    // A lost disk counts against live stripes only.
    meta.set_disk_state(disk(0), DiskState::Lost).await?;
    assert_eq!(ids(&meta.degraded(9).await?), [1, 2]);
    assert_eq!(meta.put_volume_stripes(lease, puts(&[(0, 0)])).await?, [full(1)]);
    assert_eq!(ids(&meta.degraded(9).await?), [2]);
    // The object goes without the volume, and what died is forgotten.
    meta.delete_object(delete(bucket, "key")).await?;
    assert_eq!(ids(&meta.dead_stripes(9).await?), [1, 2]);
    meta.forget(&[StripeId(1), StripeId(2), StripeId(3)]).await?;
    assert_eq!(meta.stripes(None, 9).await?, [repaired]);
    Ok(())
}

pub(super) async fn a_deleted_volume_leaves_dead_stripes(meta: &dyn Meta) -> Result<(), MetaError> {
    let lease = opened(meta).await?;
    meta.set_log(lease, log(&[disk(2)], 0)).await?;
    meta.put_volume_stripes(lease, puts(&[(5, 1), (0, 2)])).await?;
    meta.create_volume(volume(2, "two", BYTES)).await?;
    let two = lease_of(meta, 2).await?;
    meta.put_volume_stripes(two, puts(&[(5, 3)])).await?;

    let mut dead = ids(&meta.delete_volume(lease.owner).await?);
    dead.sort();
    assert_eq!(dead, [1, 2]);
    assert_eq!(ids(&meta.dead_stripes(9).await?), [1, 2]);
    assert_eq!(positions(meta, two.owner, None, 9).await?, [(5, 3)]);
    let one = format!("#{}", lease.owner);
    for refused in [
        meta.set_log(lease, log(&[], 0)).await.err(),
        meta.put_volume_stripes(lease, puts(&[(0, 9)])).await.err(),
        meta.volume_stripes(lease.owner, None, 9).await.err(),
        meta.take_lease(lease.owner).await.err(),
        meta.grow_volume(lease.owner, BYTES).await.err(),
        meta.delete_volume(lease.owner).await.err(),
    ] {
        assert!(matches!(&refused, Some(MetaError::NoSuchVolume { name }) if *name == one), "{refused:?}");
    }
    // Nor does its lease open a volume that came after it under its name.
    meta.create_volume(volume(3, "one", BYTES)).await?;
    refused!(meta.put_volume_stripes(lease, puts(&[(0, 9)])).await, MetaError::NoSuchVolume { .. });
    assert_eq!(ids(&meta.stripes(None, 9).await?), [3]);
    Ok(())
}
