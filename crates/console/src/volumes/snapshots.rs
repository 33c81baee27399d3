//! The routes of snapshots.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use claystone_volume::{FoundSnapshot, SnapshotName};

use super::{content_of, content_range, refused, spans_of};
use crate::AdminError;
use crate::api::{self, AddSnapshot, CloneSnapshot, Done, VolumeSpans};
use crate::router::{Console, Input, Reply, Shared};

impl Console {
    async fn snapshot(&self, name: &SnapshotName) -> Result<FoundSnapshot, AdminError> {
        let found = self.parts.volumes.snapshots().await.map_err(refused)?;
        let found = found.into_iter().find(|found| found.record.full_name() == name.to_string());
        found.ok_or_else(|| AdminError::NotFound { what: "snapshot", name: name.to_string() })
    }
}

pub(super) async fn add(
    State(console): Shared,
    Path(volume): Path<String>,
    Input(add): Input<AddSnapshot>,
) -> Reply<api::Snapshot> {
    let name = SnapshotName { volume, snapshot: add.name };
    let record = console.parts.volumes.take_snapshot(&name).await.map_err(refused)?;
    tracing::info!(snapshot = %name, "a snapshot was taken");
    Ok(Json(shown(FoundSnapshot { record, users: 0 })))
}

pub(super) async fn info(State(console): Shared, Path(name): Path<String>) -> Reply<api::Snapshot> {
    let found = console.snapshot(&parsed(&name)?).await?;
    let tally = console.parts.volumes.snapshot_tally(found.record.id).await.map_err(refused)?;
    let mut snapshot = shown(found);
    (snapshot.stripes, snapshot.stripes_alone) = (Some(tally.stripes), Some(tally.alone));
    Ok(Json(snapshot))
}

pub(super) async fn delete(State(console): Shared, Path(name): Path<String>) -> Reply<Done> {
    let dead = console.parts.volumes.delete_snapshot(&parsed(&name)?).await.map_err(refused)?;
    tracing::info!(snapshot = name, stripes = dead.len(), "a snapshot was deleted");
    Ok(Json(Done {}))
}

pub(super) async fn clone(
    State(console): Shared,
    Path(name): Path<String>,
    Input(clone): Input<CloneSnapshot>,
) -> Reply<api::Volume> {
    let record = console.parts.volumes.clone_snapshot(&parsed(&name)?, &clone.name).await.map_err(refused)?;
    tracing::info!(snapshot = name, volume = record.name, "a clone was made");
    console.volume(&record.name).await.map(Json)
}

pub(super) async fn revert(State(console): Shared, Path(name): Path<String>) -> Reply<api::Volume> {
    let name = parsed(&name)?;
    let dead = console.parts.volumes.revert(&name).await.map_err(refused)?;
    tracing::info!(snapshot = %name, stripes = dead.len(), "a volume was reverted");
    console.volume(&name.volume).await.map(Json)
}

pub(super) async fn spans(
    State(console): Shared,
    Path(name): Path<String>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Reply<VolumeSpans> {
    let snapshot = console.parts.volumes.open_snapshot(&parsed(&name)?).await.map_err(refused)?;
    spans_of(&snapshot, &query).await
}

pub(super) async fn read(
    State(console): Shared,
    Path(name): Path<String>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Result<Response, AdminError> {
    let range = content_range(&query)?;
    let snapshot = console.parts.volumes.open_snapshot(&parsed(&name)?).await.map_err(refused)?;
    content_of(&snapshot, range).await
}

fn parsed(name: &str) -> Result<SnapshotName, AdminError> {
    name.parse().map_err(refused)
}

pub(super) fn shown(found: FoundSnapshot) -> api::Snapshot {
    let FoundSnapshot { record, users } = found;
    api::Snapshot {
        name: record.full_name(),
        bytes: record.bytes,
        code: record.redundancy.to_string(),
        page_bytes: record.page_bytes,
        chunk_bytes: record.chunk_bytes,
        created_unix_ms: record.created.unix_ms,
        clients: users as u64,
        stripes: None,
        stripes_alone: None,
    }
}
