//! The conformance suite of [`Meta`], and what tests need to call one.
//!
//! Left out: durability and crashes, which each implementation tests by its own means.

mod buckets;
mod heat;
mod listing;
mod objects;
mod packs;
mod snapshots;
mod stripes;
mod uploads;
mod volumes;

use std::collections::BTreeMap;
use std::sync::Arc;

use claystone_chunk::{DiskId, Generation, NodeId, OwnerId, StripeId, Term};
use claystone_code::CodeSpec;
use claystone_env::{Job, WallTime, Worker, WorkerStopped};

use crate::{
    AccessKey, BucketId, ChunkPlace, DeleteObject, DiskRecord, DiskState, Found, LogRecord, Meta, MetaError,
    NewContent, NewObject, NewStripe, Precondition, PutOutcome, StripeRecord, VersionName, VersionRef, Versioning,
    VolumeRecord,
};

/// Runs the whole suite, each test on an empty store from `make`.
///
/// # Panics
/// If a test fails.
pub async fn conformance(make: impl AsyncFn() -> Arc<dyn Meta>) {
    macro_rules! run {
        ($($test:path),* $(,)?) => { $(
            let meta = make().await;
            if let Err(error) = $test(&*meta).await {
                panic!("{}: {error}", stringify!($test));
            }
        )* };
    }
    run!(
        buckets::names_are_unique_and_ids_are_not_used_again,
        buckets::documents_and_code_are_kept,
        buckets::only_empty_buckets_can_be_deleted,
        objects::puts_are_found_with_their_stripes_in_order,
        objects::what_was_written_in_bands_is_held_band_by_band,
        objects::an_overwrite_frees_the_old_stripes,
        objects::copies_share_stripes_until_the_last_is_gone,
        objects::a_copy_of_what_went_away_is_refused,
        objects::versions_pile_up_and_the_newest_is_current,
        objects::delete_markers_hide_and_can_be_removed,
        objects::null_version_lives_beside_named_ones,
        objects::suspended_delete_leaves_a_null_marker,
        objects::deleting_nothing_is_no_error,
        objects::preconditions_hold_or_nothing_happens,
        objects::attributes_change_in_one_version_only,
        packs::parts_share_a_stripe_until_the_last_is_gone,
        packs::a_part_of_a_pack_that_came_and_went_is_refused,
        packs::repacks_move_what_is_still_named,
        packs::conversions_keep_parts,
        packs::zeros_behind_a_content_are_nobody_s,
        packs::packs_are_counted_by_band,
        packs::packs_for_different_codes_are_not_merged,
        listing::keys_come_in_byte_order,
        listing::delimiter_folds_and_pages_add_up,
        listing::markers_hide_keys_and_whole_prefixes,
        listing::versions_are_listed_newest_first_and_resumed,
        listing::after_a_prefix_or_inside_it_skips_it,
        listing::limit_zero_lists_nothing,
        uploads::parts_become_one_object_in_order,
        uploads::wrong_parts_are_refused_and_nothing_changes,
        uploads::a_replaced_part_and_an_aborted_upload_die,
        uploads::parts_copied_from_objects_share_stripes,
        uploads::completion_replaces_checks_and_versions,
        uploads::uploads_are_listed_by_key_then_id,
        volumes::names_are_unique_and_records_are_kept,
        volumes::a_volume_grows_and_never_shrinks,
        volumes::what_stripes_get_is_set_without_a_lease,
        volumes::each_lease_ends_those_before,
        volumes::logs_name_disks_until_they_leave_them,
        volumes::logs_keep_the_nodes_that_their_disks_were_on,
        volumes::stripes_come_by_position_and_pages_add_up,
        volumes::a_put_happens_whole_or_not_at_all,
        volumes::upkeep_sees_the_stripes_of_volumes,
        volumes::a_deleted_volume_leaves_dead_stripes,
        snapshots::a_snapshot_holds_the_stripes_that_the_volume_had,
        snapshots::clones_share_until_each_has_its_own,
        snapshots::a_reverted_volume_has_the_stripes_of_its_snapshot,
        snapshots::names_belong_to_a_volume_and_leases_count,
        stripes::walks_meet_live_stripes_in_order,
        stripes::swaps_need_the_planned_revision,
        stripes::recodes_keep_the_data_chunks,
        stripes::conversions_replace_stripes_and_keep_names,
        stripes::a_touched_stripe_is_verified_no_more,
        stripes::damage_marks_one_generation,
        stripes::dead_stripes_wait_until_forgotten,
        stripes::degraded_come_by_risk_with_hopeless_last,
        stripes::tally_counts_what_is_known,
        stripes::disk_states_change_what_counts_as_lost,
        stripes::unknown_disks_are_refused,
        heat::heat_is_kept_of_live_stripes,
        heat::what_a_bucket_holds_comes_in_order_and_pages_add_up,
        disks_are_kept_until_removed,
        keys_are_kept,
    );
}

/// A worker that runs each job at once, where it is called: for tests and simulations without threads.
#[derive(Debug, Clone, Copy, Default)]
pub struct AtOnce;

impl Worker for AtOnce {
    fn run(&self, job: Job) -> std::pin::Pin<Box<dyn Future<Output = Result<(), WorkerStopped>> + Send>> {
        job();
        Box::pin(std::future::ready(Ok(())))
    }

    fn queued(&self) -> usize {
        0
    }
}

/// Milliseconds as wall time.
pub fn at(unix_ms: u64) -> WallTime {
    WallTime { unix_ms }
}

/// The disk of this number.
pub fn disk(number: u8) -> DiskId {
    DiskId(0xD15C_0000 + u128::from(number))
}

/// Adds the disks 0 to `count`, all active, each on a node of its own.
///
/// # Errors
/// As [`crate::DiskRecords::put_disk`].
pub async fn add_disks(meta: &dyn Meta, count: u8) -> Result<(), MetaError> {
    for number in 0..count {
        meta.put_disk(disk_record(number)).await?;
    }
    Ok(())
}

/// An active disk of this number.
pub fn disk_record(number: u8) -> DiskRecord {
    DiskRecord {
        id: disk(number),
        node: NodeId(format!("node-{number}")),
        path: format!("/disks/{number}"),
        state: DiskState::Active,
        added: at(u64::from(number)),
    }
}

/// A stripe of `bytes` whose chunk `i` lies on disk `i` in generation 0.
pub fn stripe(id: u128, code: &str, bytes: u64) -> StripeRecord {
    let code: CodeSpec = code.parse().expect("tests name valid codes");
    let places = (0..code.shape().chunks()).map(|index| Some(place(index as u8, 0)));
    StripeRecord {
        id: StripeId(id),
        code,
        data_bytes: bytes,
        bands: Vec::new(),
        sub_bytes: 4096,
        places: places.collect(),
        origins: BTreeMap::new(),
        revision: 0,
        verified: None,
    }
}

/// A whole chunk on disk `number`.
pub fn place(number: u8, generation: u32) -> ChunkPlace {
    ChunkPlace { disk: disk(number), generation: Generation(generation), damaged: false }
}

/// An object of the bytes of `stripes`, without versioning and precondition.
pub fn new_object(bucket: BucketId, key: &str, stripes: Vec<StripeRecord>) -> NewObject {
    let bytes = stripes.iter().map(|stripe| stripe.data_bytes).sum();
    NewObject {
        bucket,
        key: key.to_owned(),
        versioning: Versioning::Off,
        precondition: Precondition::None,
        content: NewContent::Stripes(stripes.into_iter().map(NewStripe::from).collect()),
        bytes,
        etag: format!("etag-{bytes}"),
        created: at(1_000),
        attributes: b"attributes".to_vec(),
    }
}

/// An object of no bytes.
pub fn empty_object(bucket: BucketId, key: &str) -> NewObject {
    NewObject { content: NewContent::Empty, ..new_object(bucket, key, Vec::new()) }
}

/// A delete of the current version.
pub fn delete(bucket: BucketId, key: &str) -> DeleteObject {
    DeleteObject {
        bucket,
        key: key.to_owned(),
        version: VersionRef::Current,
        marker: None,
        precondition: Precondition::None,
        now: at(2_000),
    }
}

/// A volume under `rs:4+2` that nobody has opened, with stripes of 256 KiB.
pub fn volume(id: u128, name: &str, bytes: u64) -> VolumeRecord {
    VolumeRecord {
        id: OwnerId(id),
        name: name.to_owned(),
        bytes,
        page_bytes: 4096,
        chunk_bytes: 64 << 10,
        redundancy: CodeSpec::ReedSolomon { data: 4, parity: 2 }.into(),
        homes: Vec::new(),
        term: Term(0),
        log: LogRecord::default(),
        log_from: Term(0),
        created: at(3_000),
    }
}

/// A log on these disks, of which nobody said which nodes they are on.
pub fn log(disks: &[DiskId], copies: u16) -> LogRecord {
    LogRecord { disks: disks.iter().map(|disk| (*disk, None)).collect(), copies, nodes: 0 }
}

/// Asserts that an expression failed with an error of this pattern.
macro_rules! refused {
    ($result:expr, $pattern:pat $(if $guard:expr)?) => {
        match $result {
            Err($pattern) $(if $guard)? => {}
            other => panic!("expected {}, got {other:?}", stringify!($pattern)),
        }
    };
}
use refused;

async fn bucket(meta: &dyn Meta) -> Result<BucketId, MetaError> {
    Ok(meta.create_bucket("photos", "ann", None, at(1)).await?.id)
}

async fn put_versioned(meta: &dyn Meta, bucket: BucketId, key: &str, version: &str) -> Result<PutOutcome, MetaError> {
    let object = NewObject {
        versioning: Versioning::On(VersionName(version.to_owned())),
        etag: format!("etag of {version}"),
        ..empty_object(bucket, key)
    };
    meta.put_object(object).await
}

async fn current(meta: &dyn Meta, key: &str) -> Result<Found, MetaError> {
    meta.object("photos", key, &VersionRef::Current).await
}

fn named(version: &str) -> VersionRef {
    VersionRef::Named(VersionName(version.to_owned()))
}

fn ids(stripes: &[StripeRecord]) -> Vec<u128> {
    stripes.iter().map(|stripe| stripe.id.0).collect()
}

async fn disks_are_kept_until_removed(meta: &dyn Meta) -> Result<(), MetaError> {
    add_disks(meta, 3).await?;
    let mut moved = disk_record(1);
    moved.path = "/elsewhere".to_owned();
    moved.state = DiskState::Lost;
    meta.put_disk(moved.clone()).await?;
    // The state of a known disk changes by `set_disk_state` only.
    moved.state = DiskState::Active;
    assert_eq!(meta.disks().await?, [disk_record(0), moved, disk_record(2)]);

    meta.set_disk_state(disk(1), DiskState::Draining).await?;
    assert_eq!(meta.disks().await?[1].state, DiskState::Draining);
    meta.set_disk_state(disk(1), DiskState::Removed).await?;
    assert_eq!(meta.disks().await?, [disk_record(0), disk_record(2)]);
    refused!(meta.set_disk_state(disk(9), DiskState::Lost).await, MetaError::NoSuchDisk { .. });
    refused!(meta.disk_tally(disk(9)).await, MetaError::NoSuchDisk { .. });

    // A removed disk that is added again comes back.
    meta.put_disk(disk_record(1)).await?;
    assert!(meta.disks().await?.contains(&disk_record(1)));
    Ok(())
}

async fn keys_are_kept(meta: &dyn Meta) -> Result<(), MetaError> {
    let key = |access: &str, secret: &str| AccessKey {
        access_key: access.to_owned(),
        secret_key: secret.to_owned(),
        account: "ann".to_owned(),
        created: at(5),
    };
    meta.put_key(key("B", "1")).await?;
    meta.put_key(key("A", "2")).await?;
    meta.put_key(key("B", "3")).await?;
    assert_eq!(meta.keys().await?, [key("A", "2"), key("B", "3")]);
    meta.delete_key("A").await?;
    meta.delete_key("unknown").await?;
    assert_eq!(meta.keys().await?, [key("B", "3")]);
    Ok(())
}
