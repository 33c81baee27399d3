//! The routes of volumes and their snapshots.
//!
//! Invariants:
//! 1. What is read or written in one request is bounded ([`CONTENT_BYTES_MAX`]); a long copy is many requests.
//! 2. A volume is held for the time of a request only.

mod snapshots;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use bytes::Bytes;
use claystone_chunk::{ByteRange, NodeId};
use claystone_env::timeout;
use claystone_meta::{MetaError, Redundancy, RedundancyError};
use claystone_volume::comparators::UnknownMethod;
use claystone_volume::{
    Blocks, BlocksError, Durable, Found, NewVolume, Scratch, SpanKind, State as VolumeState, Volume, VolumeError,
    joined, reserve_share,
};
use futures::TryFutureExt;

use crate::AdminError;
use crate::api::{
    self, AddVolume, Done, ResizeVolume, SetRedundancy, VolumeMerged, VolumeSpan, VolumeSpans, VolumeUse,
};
use crate::router::{Console, Input, Reply, STATUS_TIMEOUT, Shared};

/// The routes, below the admin API's prefix.
pub(crate) fn routes() -> Router<std::sync::Arc<Console>> {
    Router::new()
        .route("/volumes", get(list).post(add))
        .route("/volumes/{name}", get(info).delete(delete))
        .route("/volumes/{name}/size", put(resize))
        .route("/volumes/{name}/redundancy", put(set_redundancy))
        .route("/volumes/{name}/merge", post(merge))
        .route("/volumes/{name}/spans", get(spans))
        .route("/volumes/{name}/flush", post(flush))
        .route("/volumes/{name}/content", get(read).put(write))
        .route("/volumes/{name}/snapshots", post(snapshots::add))
        .route("/snapshots/{name}", get(snapshots::info).delete(snapshots::delete))
        .route("/snapshots/{name}/clone", post(snapshots::clone))
        .route("/snapshots/{name}/revert", post(snapshots::revert))
        .route("/snapshots/{name}/spans", get(snapshots::spans))
        .route("/snapshots/{name}/content", get(snapshots::read))
        .layer(axum::extract::DefaultBodyLimit::max(CONTENT_BYTES_MAX as usize))
}

impl Console {
    /// All volumes, by name.
    pub(crate) async fn volumes(&self) -> Result<Vec<api::Volume>, AdminError> {
        // Whoever opens a volume holds up who looks at it: not for ever.
        let look = self.parts.volumes.look();
        let found = timeout(&*self.parts.env.clock, STATUS_TIMEOUT, look).await;
        let late = || AdminError::Unavailable { reason: "a volume is being opened; try again later".to_owned() };
        let found = found.ok_or_else(late)?.map_err(refused)?;
        let mut volumes: Vec<api::Volume> = found.into_iter().map(shown).collect();
        for snapshot in self.parts.volumes.snapshots().await.map_err(refused)? {
            let of = &snapshot.record.volume_name;
            if let Some(volume) = volumes.iter_mut().find(|volume| volume.name == *of) {
                volume.snapshots.push(snapshots::shown(snapshot));
            }
        }
        volumes.extend(self.parts.volumes.scratches().iter().map(|scratch| shown_scratch(scratch)));
        volumes.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(volumes)
    }

    async fn volume(&self, name: &str) -> Result<api::Volume, AdminError> {
        let found = self.volumes().await?.into_iter().find(|volume| volume.name == name);
        found.ok_or_else(|| AdminError::NotFound { what: "volume", name: name.to_owned() })
    }

    async fn opened(&self, name: &str) -> Result<Volume, AdminError> {
        self.parts.volumes.open(name).await.map_err(refused)
    }

    /// A volume or a scratch volume, to be read and written.
    async fn blocks(&self, name: &str) -> Result<Arc<dyn Blocks>, AdminError> {
        match self.parts.volumes.scratch(name) {
            Some(scratch) => Ok(scratch.device.clone()),
            None => Ok(Arc::new(self.opened(name).await?)),
        }
    }
}

async fn list(State(console): Shared) -> Reply<api::Volumes> {
    console.volumes().await.map(|volumes| Json(api::Volumes { volumes }))
}

async fn info(State(console): Shared, Path(name): Path<String>) -> Reply<api::Volume> {
    let mut volume = console.volume(&name).await?;
    if volume.stripes.is_none() {
        let records = console.parts.volumes.list().await.map_err(refused)?;
        if let Some(record) = records.into_iter().find(|record| record.name == name) {
            volume.stripes = Some(console.parts.volumes.stripes(record.id).await.map_err(refused)?);
        }
    }
    Ok(Json(volume))
}

async fn add(State(console): Shared, Input(add): Input<AddVolume>) -> Reply<api::Volume> {
    let mut new = NewVolume::new(&add.name, add.bytes, redundancy_of(&add.code)?);
    new.page_bytes = add.page_bytes.unwrap_or(new.page_bytes);
    new.chunk_bytes = add.chunk_bytes.unwrap_or(new.chunk_bytes);
    new.homes = add.homes.into_iter().map(NodeId).collect();
    if let Some(method) = add.scratch {
        let unknown = |error: UnknownMethod| AdminError::Invalid { field: "scratch", reason: error.to_string() };
        let scratch = console.parts.volumes.create_scratch(new, method.parse().map_err(unknown)?).await;
        return Ok(Json(shown_scratch(&*scratch.map_err(refused)?)));
    }
    let record = console.parts.volumes.create(new).await.map_err(refused)?;
    Ok(Json(shown(Found { record, state: VolumeState::Closed })))
}

async fn set_redundancy(
    State(console): Shared,
    Path(name): Path<String>,
    Input(set): Input<SetRedundancy>,
) -> Reply<api::Volume> {
    let redundancy = redundancy_of(&set.code)?;
    console.parts.volumes.set_redundancy(&name, redundancy).await.map_err(refused)?;
    console.volume(&name).await.map(Json)
}

fn redundancy_of(text: &str) -> Result<Redundancy, AdminError> {
    let invalid = |error: RedundancyError| AdminError::Invalid { field: "code", reason: error.to_string() };
    text.parse().map_err(invalid)
}

async fn resize(
    State(console): Shared,
    Path(name): Path<String>,
    Input(resize): Input<ResizeVolume>,
) -> Reply<api::Volume> {
    console.parts.volumes.grow(&name, resize.bytes).await.map_err(refused)?;
    console.volume(&name).await.map(Json)
}

async fn delete(State(console): Shared, Path(name): Path<String>) -> Reply<Done> {
    if console.parts.volumes.scratch(&name).is_some() {
        console.parts.volumes.delete_scratch(&name).await.map_err(refused)?;
        return Ok(Json(Done {}));
    }
    let dead = console.parts.volumes.delete(&name).await.map_err(refused)?;
    tracing::info!(volume = name, stripes = dead.len(), "a volume was deleted");
    Ok(Json(Done {}))
}

async fn merge(State(console): Shared, Path(name): Path<String>) -> Reply<VolumeMerged> {
    let volume = console.opened(&name).await?;
    let report = volume.merge_beside_writers(MERGE_PAGES).await.map_err(failed)?;
    let left = volume.status().diff_pages;
    Ok(Json(VolumeMerged { pages: report.pages, left, stripes_lost: report.stripes_lost }))
}

async fn flush(State(console): Shared, Path(name): Path<String>) -> Reply<Done> {
    console.blocks(&name).and_then(async |blocks| blocks.flush().await.map_err(failed)).await?;
    Ok(Json(Done {}))
}

async fn spans(
    State(console): Shared,
    Path(name): Path<String>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Reply<VolumeSpans> {
    spans_of(&*console.blocks(&name).await?, &query).await
}

async fn spans_of(blocks: &dyn Blocks, query: &BTreeMap<String, String>) -> Reply<VolumeSpans> {
    let range = ByteRange { offset: number(query, "offset")?, bytes: number(query, "bytes")? };
    let spans = blocks.spans(range, SPANS_MAX).await.map_err(failed)?;
    let spans = spans.into_iter().map(|span| VolumeSpan { bytes: span.bytes, data: span.kind == SpanKind::Data });
    Ok(Json(VolumeSpans { spans: spans.collect() }))
}

async fn read(
    State(console): Shared,
    Path(name): Path<String>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Result<Response, AdminError> {
    let range = content_range(&query)?;
    content_of(&*console.blocks(&name).await?, range).await
}

/// A range that is not too long to be answered.
fn content_range(query: &BTreeMap<String, String>) -> Result<ByteRange, AdminError> {
    let range = ByteRange { offset: number(query, "offset")?, bytes: number(query, "bytes")? };
    if range.bytes > CONTENT_BYTES_MAX {
        let reason = format!("{} are more than the {CONTENT_BYTES_MAX} that one request may ask for", range.bytes);
        return Err(AdminError::Invalid { field: "bytes", reason });
    }
    Ok(range)
}

async fn content_of(blocks: &dyn Blocks, range: ByteRange) -> Result<Response, AdminError> {
    let stretches = blocks.read(range).await.map_err(failed)?;
    Ok(Body::from(joined(stretches)).into_response())
}

async fn write(
    State(console): Shared,
    Path(name): Path<String>,
    Query(query): Query<BTreeMap<String, String>>,
    content: Result<Bytes, axum::extract::rejection::BytesRejection>,
) -> Reply<Done> {
    let offset = number(&query, "offset")?;
    let content = content.map_err(|_| AdminError::TooLarge { most: CONTENT_BYTES_MAX as usize })?;
    let blocks = console.blocks(&name).await?;
    blocks.write(offset, content, Durable::WithFlush).await.map_err(failed)?;
    Ok(Json(Done {}))
}

fn number(query: &BTreeMap<String, String>, field: &'static str) -> Result<u64, AdminError> {
    let number = query.get(field).and_then(|text| text.parse().ok());
    number.ok_or_else(|| AdminError::Invalid { field, reason: "a whole number in the query is needed".to_owned() })
}

fn shown(found: Found) -> api::Volume {
    let Found { record, state } = found;
    let mut volume = api::Volume {
        name: record.name,
        bytes: record.bytes,
        code: record.redundancy.to_string(),
        page_bytes: record.page_bytes,
        chunk_bytes: record.chunk_bytes,
        homes: record.homes.into_iter().map(|home| home.0).collect(),
        created_unix_ms: record.created.unix_ms,
        state: "closed".to_owned(),
        reason: None,
        stripes: None,
        log_disks: record.log.disks.keys().map(ToString::to_string).collect(),
        open: None,
        snapshots: Vec::new(),
        scratch: None,
    };
    match state {
        VolumeState::Closed => {}
        VolumeState::Refused { reason } => (volume.state, volume.reason) = ("refused".to_owned(), Some(reason)),
        VolumeState::Open(status) => {
            let state = if status.failure.is_some() { "failed" } else { "open" };
            (volume.state, volume.reason) = (state.to_owned(), status.failure.clone());
            volume.stripes = Some(status.stripes);
            let data_bytes = status.stripes * status.stripe_bytes;
            let log_pays = reserve_share(&status.redundancy, status.reserve_bytes, data_bytes);
            volume.log_disks = status.log_disks.iter().map(ToString::to_string).collect();
            volume.open = Some(VolumeUse {
                log_bytes: status.log_bytes,
                log_copies: status.log_copies as u64,
                log_copies_wanted: status.log_copies_wanted as u64,
                reserve_bytes: status.reserve_bytes,
                log_used_percent: status.used_percent,
                diff_pages: status.diff_pages,
                diff_stripes: status.diff_stripes,
                clients: status.users as u64,
                merges: status.merges,
                merged_pages: status.merged.pages,
                parity_updates: status.merged.parity_updates,
                copied_stripes: status.merged.stripes_copied,
                stripe_bytes: status.stripe_bytes,
                mirrored_chunks: status.mirrored.chunks,
                mirrored_bytes: status.mirrored.bytes,
                coded_chunks: status.coded.chunks,
                coded_bytes: status.coded.bytes,
                other_chunks: status.others.chunks,
                other_bytes: status.others.bytes,
                coded_switches: status.switched.coded,
                mirrored_switches: status.switched.mirrored,
                log_pays_percent: log_pays.map(|share| (100.0 * share).ceil() as u64),
            });
        }
    }
    volume
}

fn shown_scratch(scratch: &Scratch) -> api::Volume {
    let device = &scratch.device;
    let state = if device.failure().is_some() { "failed" } else { "scratch" };
    api::Volume {
        name: scratch.name.clone(),
        bytes: device.bytes(),
        code: scratch.code.to_string(),
        page_bytes: scratch.geometry.page_bytes,
        chunk_bytes: scratch.geometry.chunk_bytes,
        homes: Vec::new(),
        created_unix_ms: scratch.created.unix_ms,
        state: state.to_owned(),
        reason: device.failure().map(str::to_owned),
        stripes: Some(device.records().count() as u64),
        log_disks: Vec::new(),
        open: None,
        snapshots: Vec::new(),
        scratch: Some(api::Scratch {
            method: device.method().to_string(),
            replays: device.replays(),
            clients: (Arc::strong_count(device) - 1) as u64,
        }),
    }
}

/// A volume as a whole was refused.
fn refused(error: VolumeError) -> AdminError {
    let reason = error.to_string();
    match error {
        VolumeError::Meta(MetaError::NoSuchVolume { name }) => AdminError::NotFound { what: "volume", name },
        VolumeError::Meta(MetaError::NoSuchSnapshot { name }) => AdminError::NotFound { what: "snapshot", name },
        VolumeError::Meta(
            MetaError::VolumeExists { .. }
            | MetaError::VolumeShrinks { .. }
            | MetaError::SnapshotExists { .. }
            | MetaError::HasSnapshots { .. },
        )
        | VolumeError::InUse { .. }
        | VolumeError::IsScratch { .. }
        | VolumeError::MoreCopies { .. }
        | VolumeError::SnapshotInUse { .. }
        | VolumeError::HasSnapshots { .. } => AdminError::Conflict { reason },
        VolumeError::BadName { .. } | VolumeError::BadSnapshotName { .. } => {
            AdminError::Invalid { field: "name", reason }
        }
        VolumeError::BadHome { .. }
        | VolumeError::UnevenHomes { .. }
        | VolumeError::TooFewNodes { .. }
        | VolumeError::TooFewAtHome { .. } => AdminError::Invalid { field: "homes", reason },
        VolumeError::BadLength { .. } | VolumeError::NotWholeStripes { .. } => {
            AdminError::Invalid { field: "bytes", reason }
        }
        VolumeError::BadScratch { .. } => AdminError::Invalid { field: "scratch", reason },
        VolumeError::BadPages { .. } => AdminError::Invalid { field: "page_bytes", reason },
        VolumeError::BadChunks { .. } => AdminError::Invalid { field: "chunk_bytes", reason },
        VolumeError::BadCode { .. }
        | VolumeError::TooFewDisks { .. }
        | VolumeError::Code(_)
        | VolumeError::Redundancy(_)
        | VolumeError::OtherData { .. } => AdminError::Invalid { field: "code", reason },
        VolumeError::TooWide { .. } => AdminError::Invalid { field: "code", reason },
        _ => AdminError::Unavailable { reason },
    }
}

/// An operation on an open volume failed.
fn failed(error: BlocksError) -> AdminError {
    match error {
        BlocksError::OutOfRange { .. } => AdminError::Invalid { field: "offset", reason: error.to_string() },
        _ => AdminError::Unavailable { reason: error.to_string() },
    }
}

/// Bytes that are read or written in one request.
const CONTENT_BYTES_MAX: u64 = 16 << 20;
const SPANS_MAX: usize = 4096;
/// Pages of one round of merging: a fraction of a second, so that progress shows.
const MERGE_PAGES: u64 = 1024;
