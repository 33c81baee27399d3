//! Snapshots: what they hold, what is shared, what dies.

use claystone_chunk::{Lease, OwnerId, StripeId, Term};

use super::{add_disks, at, disk, ids, log, refused, stripe, volume};
use crate::{DiskState, Meta, MetaError, SnapshotId, SnapshotTally, StripeRecord, VolumeRecord};

/// Bytes of the volumes here: 16 stripes.
const BYTES: u64 = 16 * STRIPE_BYTES;
const STRIPE_BYTES: u64 = 256 << 10;

/// The volume `one` of id 1, opened, with the stripes 1 to 3 at the positions 0, 1 and 5.
async fn opened(meta: &dyn Meta) -> Result<Lease, MetaError> {
    add_disks(meta, 8).await?;
    meta.create_volume(volume(1, "one", BYTES)).await?;
    let lease = Lease { owner: OwnerId(1), term: meta.take_lease(OwnerId(1)).await?.term };
    put(meta, lease, &[(0, 1), (1, 2), (5, 3)]).await?;
    Ok(lease)
}

/// Puts new stripes of these ids at these positions, 0 takes away; returns the ids that died.
async fn put(meta: &dyn Meta, lease: Lease, stripes: &[(u64, u128)]) -> Result<Vec<u128>, MetaError> {
    let full = |id| stripe(id, "rs:4+2", STRIPE_BYTES);
    let stripes = stripes.iter().map(|(position, id)| (*position, (*id > 0).then(|| full(*id)))).collect();
    Ok(ids(&meta.put_volume_stripes(lease, stripes).await?))
}

fn positions(stripes: Vec<(u64, StripeRecord)>) -> Vec<(u64, u128)> {
    stripes.iter().map(|(position, stripe)| (*position, stripe.id.0)).collect()
}

async fn of_snapshot(meta: &dyn Meta, id: SnapshotId) -> Result<Vec<(u64, u128)>, MetaError> {
    Ok(positions(meta.snapshot_stripes(id, None, 99).await?))
}

async fn of_volume(meta: &dyn Meta, id: u128) -> Result<Vec<(u64, u128)>, MetaError> {
    Ok(positions(meta.volume_stripes(OwnerId(id), None, 99).await?))
}

async fn shared(meta: &dyn Meta) -> Result<Vec<u128>, MetaError> {
    let ids: Vec<StripeId> = (1..20).rev().map(StripeId).collect();
    Ok(meta.shared(&ids).await?.iter().map(|id| id.0).collect())
}

pub(super) async fn a_snapshot_holds_the_stripes_that_the_volume_had(meta: &dyn Meta) -> Result<(), MetaError> {
    let lease = opened(meta).await?;
    assert_eq!(shared(meta).await?, []);
    let snapshot = meta.create_snapshot(lease, "monday", at(7)).await?;
    assert_eq!((snapshot.full_name(), snapshot.volume), ("one@monday".to_owned(), OwnerId(1)));
    let VolumeRecord { bytes, page_bytes, chunk_bytes, redundancy, .. } = volume(1, "one", BYTES);
    assert_eq!((snapshot.bytes, snapshot.page_bytes, snapshot.chunk_bytes), (bytes, page_bytes, chunk_bytes));
    assert_eq!((snapshot.redundancy, snapshot.created), (redundancy, at(7)));
    assert_eq!(meta.snapshots().await?, std::slice::from_ref(&snapshot));
    assert_eq!(meta.snapshot("one", "monday").await?, snapshot);
    assert_eq!(shared(meta).await?, [1, 2, 3]);
    assert_eq!(meta.snapshot_tally(snapshot.id).await?, SnapshotTally { stripes: 3, alone: 0 });
    // A stripe of both is not changed in place.
    assert_eq!(meta.touch(&[StripeId(1)]).await?, []);
    assert_eq!(meta.stripe(StripeId(1)).await?.map(|stripe| stripe.revision), Some(0));

    // The volume goes on without them; none dies, and upkeep counts them.
    assert_eq!(put(meta, lease, &[(0, 4), (1, 0), (9, 5)]).await?, []);
    assert_eq!(of_snapshot(meta, snapshot.id).await?, [(0, 1), (1, 2), (5, 3)]);
    assert_eq!(positions(meta.snapshot_stripes(snapshot.id, Some(0), 1).await?), [(1, 2)]);
    assert_eq!(of_volume(meta, 1).await?, [(0, 4), (5, 3), (9, 5)]);
    assert_eq!(shared(meta).await?, [3]);
    assert_eq!(meta.snapshot_tally(snapshot.id).await?, SnapshotTally { stripes: 3, alone: 2 });
    assert_eq!(meta.tally().await?.stripes, 5);
    assert_eq!(ids(&meta.stripes(None, 99).await?), [1, 2, 3, 4, 5]);
    meta.set_disk_state(disk(0), DiskState::Lost).await?;
    assert_eq!(ids(&meta.degraded(99).await?), [1, 2, 3, 4, 5]);

    refused!(
        meta.delete_volume(lease.owner).await,
        MetaError::HasSnapshots { name, count: 1 } if name == "one"
    );
    let dead = ids(&meta.delete_snapshot(snapshot.id).await?);
    assert_eq!(dead, [1, 2]);
    assert_eq!(ids(&meta.dead_stripes(9).await?), [1, 2]);
    assert_eq!(shared(meta).await?, []);
    assert_eq!(meta.touch(&[StripeId(3)]).await?.len(), 1);
    refused!(meta.snapshot_stripes(snapshot.id, None, 9).await, MetaError::NoSuchSnapshot { .. });
    refused!(meta.delete_snapshot(snapshot.id).await, MetaError::NoSuchSnapshot { .. });
    assert_eq!(meta.delete_volume(lease.owner).await?.len(), 3);
    Ok(())
}

pub(super) async fn clones_share_until_each_has_its_own(meta: &dyn Meta) -> Result<(), MetaError> {
    let lease = opened(meta).await?;
    let snapshot = meta.create_snapshot(lease, "s", at(7)).await?;
    meta.clone_snapshot(snapshot.id, volume(2, "two", BYTES)).await?;
    refused!(
        meta.clone_snapshot(snapshot.id, volume(3, "two", BYTES)).await,
        MetaError::VolumeExists { name } if name == "two"
    );
    refused!(meta.clone_snapshot(SnapshotId(99), volume(3, "three", BYTES)).await, MetaError::NoSuchSnapshot { .. });
    assert_eq!(meta.volumes().await?.len(), 2);
    assert_eq!(of_volume(meta, 2).await?, [(0, 1), (1, 2), (5, 3)]);

    // The clone, then the snapshot, then the volume let go.
    let two = Lease { owner: OwnerId(2), term: meta.take_lease(OwnerId(2)).await?.term };
    assert_eq!(two.term, Term(1));
    assert_eq!(put(meta, two, &[(0, 4)]).await?, []);
    assert_eq!(meta.delete_snapshot(snapshot.id).await?, []);
    assert_eq!(shared(meta).await?, [2, 3], "with the clone");
    assert_eq!(put(meta, lease, &[(0, 5), (1, 6)]).await?, [1]);
    assert_eq!(shared(meta).await?, [3]);
    assert_eq!(ids(&meta.delete_volume(lease.owner).await?), [5, 6]);
    assert_eq!(of_volume(meta, 2).await?, [(0, 4), (1, 2), (5, 3)]);
    assert_eq!(shared(meta).await?, []);
    Ok(())
}

pub(super) async fn a_reverted_volume_has_the_stripes_of_its_snapshot(meta: &dyn Meta) -> Result<(), MetaError> {
    let lease = opened(meta).await?;
    let snapshot = meta.create_snapshot(lease, "s", at(7)).await?;
    meta.set_log(lease, log(&[disk(1), disk(2)], 2)).await?;
    put(meta, lease, &[(0, 4), (1, 0), (9, 5)]).await?;
    meta.grow_volume(lease.owner, 2 * BYTES).await?;

    assert_eq!(ids(&meta.revert_volume(lease.owner, snapshot.id).await?), [4, 5]);
    assert_eq!(of_volume(meta, 1).await?, [(0, 1), (1, 2), (5, 3)]);
    assert_eq!(of_snapshot(meta, snapshot.id).await?, [(0, 1), (1, 2), (5, 3)]);
    assert_eq!(shared(meta).await?, [1, 2, 3]);
    // The log is over, and whoever has the volume open has lost it.
    let reverted = VolumeRecord { term: Term(2), log_from: Term(2), ..volume(1, "one", 2 * BYTES) };
    assert_eq!(meta.volume("one").await?, reverted);
    refused!(put(meta, lease, &[(0, 9)]).await, MetaError::LeaseEnded { .. });
    assert_eq!(meta.disk_tally(disk(1)).await?.logs, 0);
    let opened = meta.take_lease(lease.owner).await?;
    assert_eq!((opened.term, opened.log_from), (Term(3), Term(2)));

    // To a snapshot of another volume it does not go, nor does it go twice to something else.
    meta.create_volume(volume(2, "two", BYTES)).await?;
    refused!(meta.revert_volume(OwnerId(2), snapshot.id).await, MetaError::NoSuchSnapshot { .. });
    assert_eq!(meta.revert_volume(lease.owner, snapshot.id).await?, []);
    assert_eq!(of_volume(meta, 1).await?, [(0, 1), (1, 2), (5, 3)]);
    refused!(meta.revert_volume(OwnerId(9), snapshot.id).await, MetaError::NoSuchVolume { .. });
    Ok(())
}

pub(super) async fn names_belong_to_a_volume_and_leases_count(meta: &dyn Meta) -> Result<(), MetaError> {
    let lease = opened(meta).await?;
    meta.create_volume(volume(2, "a", BYTES)).await?;
    let other = Lease { owner: OwnerId(2), term: meta.take_lease(OwnerId(2)).await?.term };
    for (lease, name) in [(lease, "z"), (lease, "b"), (other, "b")] {
        meta.create_snapshot(lease, name, at(7)).await?;
    }
    refused!(
        meta.create_snapshot(lease, "b", at(8)).await,
        MetaError::SnapshotExists { name } if name == "one@b"
    );
    let former = Lease { term: Term(0), ..lease };
    refused!(meta.create_snapshot(former, "c", at(8)).await, MetaError::LeaseEnded { .. });
    refused!(meta.snapshot("one", "c").await, MetaError::NoSuchSnapshot { name } if name == "one@c");
    refused!(meta.snapshot("none", "b").await, MetaError::NoSuchSnapshot { .. });
    let names: Vec<String> = meta.snapshots().await?.iter().map(|snapshot| snapshot.full_name()).collect();
    assert_eq!(names, ["a@b", "one@z", "one@b"]);
    assert_eq!(of_snapshot(meta, meta.snapshot("a", "b").await?.id).await?, []);
    Ok(())
}
