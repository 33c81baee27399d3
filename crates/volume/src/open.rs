//! Opens a volume: takes its lease, reads its log again, finishes what was interrupted.
//!
//! ```text
//!  closed --take_lease, fence--> ours --read the log--> known --redo, log anew--> open
//! ```
//!
//! | step | what holds after it | after a crash in it |
//! |---|---|---|
//! | take_lease | no earlier owner changes the volume's records any more | the next opening takes a later lease |
//! | fence | no earlier owner changes a chunk or a segment on a disk that is present | the same |
//! | read the log | segments of before a revert are over; the diffs and the merges under way are as the last owner had made durable, or later | nothing was changed |
//! | make copies whole, sync | no crash takes away what is served from it, nor one more lost disk | done again |
//! | new segment | it names the one before and its end; appends are on as many disks as they should be | it is the last, or never was |
//! | redo | every stripe is a codeword: what an intent says is written and synced | written again |
//!
//! Invariants:
//! 1. Nothing is served before the last step.
//! 2. With as many log disks absent as a segment has copies at least, records may be missing: the volume does not open. A
//!    disk that cannot be asked is absent.
//! 3. A segment that a later one names must be whole, on all its disks together, up to where that one says it ended.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use claystone_chunk::{Lease, StripeId};
use claystone_env::Env;
use claystone_meta::{Meta, VolumeRecord};
use claystone_stripe::Stripes;

use crate::VolumeError;
use crate::diffs::Diffs;
use crate::geometry::Geometry;
use crate::log::{Log, LogSettings, LogStart, Recovery, TimedStores};
use crate::settings::Settings;
use crate::volume::{Inner, Parts, Volume};
use crate::volumes::{Held, log_fits, segment_bytes_min};

/// Opens a volume, as the module says. `held`: stripes that were kept since a merge left them half written; those that a
/// merge was writing are added, and all are let go when they are whole.
///
/// # Errors
/// As [`VolumeError`] says; the volume can be opened again when what was in the way is not any more.
pub(crate) async fn open(
    env: &Env,
    meta: Arc<dyn Meta>,
    stripes: Stripes,
    settings: Settings,
    record: &VolumeRecord,
    held: &Held,
) -> Result<Volume, VolumeError> {
    let shape = record.redundancy.code.shape();
    let geometry = Geometry { page_bytes: record.page_bytes, chunk_bytes: record.chunk_bytes, columns: shape.data };
    let chunks_bytes = u64::from(record.redundancy.chunks_max()) * geometry.chunk_bytes;
    if !geometry.is_sound() || shape.alpha != 1 || !log_fits(&settings, chunks_bytes) {
        return Err(VolumeError::Unusable { name: record.name.clone(), segment_bytes: settings.segment_bytes });
    }
    let record = meta.take_lease(record.id).await?;
    let settings = settings.of_volume(&record.redundancy, record.bytes);
    let lease = Lease { owner: record.id, term: record.term };
    let stores = stripes.stores().clone();
    let timed = TimedStores { stores: stores.clone(), clock: env.clock.clone(), limit: settings.timeout };
    let recovery = Recovery::begin(&record, lease, timed).await?;
    let mut known = BTreeMap::new();
    let mut after = None;
    loop {
        let page = meta.volume_stripes(record.id, after, STRIPES_PAGE).await?;
        let Some((last, _)) = page.last() else { break };
        after = Some(*last);
        known.extend(page.into_iter().map(|(position, stripe)| (position, Arc::new(stripe))));
    }
    let mut diffs = Diffs::new(geometry);
    let found = recovery.read(&mut diffs).await?;
    tracing::info!(
        volume = record.name,
        segments = found.segments.len(),
        pages = diffs.pages(),
        merges = found.intents.len(),
        "a volume's log was read again"
    );
    let diffs = Arc::new(Mutex::new(diffs));
    let log_settings = LogSettings {
        segment_bytes: settings.segment_bytes,
        segment_bytes_min: segment_bytes_min(chunks_bytes),
        copies: usize::from(record.redundancy.tolerance_max()) + 1,
        page_bytes: record.page_bytes,
        timeout: settings.timeout,
        late_after: settings.late_after,
    };
    let start = LogStart {
        segments: found.segments.clone(),
        last: found.last,
        failed: found.failed,
        recorded: record.log.clone(),
        intents: found.intents.len() as u64,
    };
    let log = Log::start(env, meta.clone(), stores, lease, log_settings, start, diffs.clone()).await?;
    recovery.delete_over(&found.segments).await;
    let env = env.clone();
    let volume = Volume::new(Parts { env, meta, stripes, record, geometry, settings, diffs, known, log });
    for (at, intent) in &found.intents {
        volume.inner.redo(*at, intent, held).await?;
    }
    held.clear();
    volume.inner.log.sync().await?;
    volume.inner.log.tend().await?;
    expect_copies(&volume.inner).await?;
    Ok(volume)
}

/// Of stripes that are shared merges log nothing: they are copied.
async fn expect_copies(inner: &Inner) -> Result<(), VolumeError> {
    let stripes: Vec<(StripeId, u64)> = {
        let known = inner.known.read().unwrap_or_else(PoisonError::into_inner);
        known.iter().map(|(position, stripe)| (stripe.id, *position)).collect()
    };
    for some in stripes.chunks(STRIPES_PAGE) {
        let some: BTreeMap<StripeId, u64> = some.iter().copied().collect();
        let shared = inner.meta.shared(&some.keys().copied().collect::<Vec<_>>()).await?;
        let mut diffs = inner.diffs();
        shared.iter().for_each(|stripe| diffs.set_begun(some[stripe], Some(0)));
    }
    Ok(())
}

const STRIPES_PAGE: usize = 1000;
