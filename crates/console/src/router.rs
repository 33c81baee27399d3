//! The routes.
//!
//! ```text
//! /              status page                       open on loopback, else token
//! /status.json   the page's data                   open on loopback, else token
//! /metrics       for Prometheus                    open on loopback, else token
//! /health[/read] for load balancers (see health)   always open; says no more than is needed
//! /admin/v1/*    see api                           always token
//! ```

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, FromRequest, Path, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use bytes::Bytes;
use claystone_chunk::DiskId;
use claystone_code::CodeSpec;
use claystone_env::{Env, Moment, timeout};
use claystone_keeper::{JobKind, Keeper, ScrubReport, Status};
use claystone_volume::Volumes;
use serde::de::DeserializeOwned;

use crate::access::AdminToken;
use crate::api::{
    AddDisk, AddKey, BackUp, BackedUp, Buckets, DiskAdded, DiskReplaced, Disks, Done, KeyAdded, Keys, PREFIX,
    ReplaceDisk, Scrub, SetCode,
};
use crate::health::health;
use crate::page::page;
use crate::{Admin, AdminError, Metrics, policies, volumes};

/// What the routes need. All of it is shared, nothing is owned.
pub struct Parts {
    /// Time.
    pub env: Env,
    /// Whose status is shown, and who scrubs.
    pub keeper: Keeper,
    /// What is shown, made and copied of volumes.
    pub volumes: Volumes,
    /// Who acts.
    pub admin: Arc<dyn Admin>,
    /// What opens the admin API.
    pub token: AdminToken,
    /// What `/metrics` shows.
    pub metrics: Metrics,
    /// Disks with room that a write needs at least.
    pub disks_to_write: usize,
    /// The listener is on loopback only. Otherwise every path but `/health` wants the token.
    pub loopback: bool,
    /// The program's version.
    pub version: String,
    /// The program's resident memory in bytes, where it can tell.
    pub memory_bytes: fn() -> Option<u64>,
}

pub(crate) struct Console {
    pub(crate) parts: Parts,
    /// The last status and when it was taken: a burst of readers costs one look.
    cached: tokio::sync::Mutex<Option<(Moment, Arc<Status>)>>,
}

pub(crate) type Shared = State<Arc<Console>>;
pub(crate) type Reply<T> = Result<Json<T>, AdminError>;

/// The routes, for a listener that the program has.
pub fn router(parts: Parts) -> Router {
    let console = Arc::new(Console { parts, cached: tokio::sync::Mutex::default() });
    let admin = Router::new()
        .route("/status", get(status))
        .route("/disks", get(disks).post(add_disk))
        .route("/disks/{id}/replace", post(replace_disk))
        .route("/disks/{id}/drain", post(drain_disk))
        .route("/scrub", get(scrub).post(start_scrub))
        .route("/buckets", get(buckets))
        .route("/buckets/{name}/code", put(set_code))
        .route("/keys", get(keys).post(add_key))
        .route("/keys/{access_key}", axum::routing::delete(delete_key))
        .route("/backup", post(back_up))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .merge(policies::routes())
        .merge(volumes::routes())
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(from_fn_with_state(console.clone(), require_token));
    let open = Router::new()
        .route("/", get(page))
        .route("/status.json", get(status))
        .route("/metrics", get(metrics))
        .layer(from_fn_with_state(console.clone(), require_token_beyond_loopback));
    Router::new()
        .merge(open)
        .route("/health", get(health_all))
        .route("/health/read", get(health_read))
        .nest(PREFIX, admin)
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .with_state(console)
}

impl Console {
    pub(crate) async fn status(&self) -> Result<Arc<Status>, AdminError> {
        let clock = &*self.parts.env.clock;
        let look = async {
            let mut cached = self.cached.lock().await;
            if let Some((at, status)) = &*cached
                && clock.now().since(*at) < STATUS_AGE_MAX
            {
                return Ok(status.clone());
            }
            let status = Arc::new(self.parts.keeper.status().await?);
            *cached = Some((clock.now(), status.clone()));
            Ok(status)
        };
        let unavailable = |reason: String| AdminError::Unavailable { reason };
        match timeout(clock, STATUS_TIMEOUT, look).await {
            Some(Ok(status)) => Ok(status),
            Some(Err(claystone_keeper::KeeperError::Meta(error))) => {
                tracing::warn!(%error, "the status cannot be told");
                Err(unavailable(error.to_string()))
            }
            None => Err(unavailable(format!("the metadata store did not answer within {STATUS_TIMEOUT:?}"))),
        }
    }

    /// What changed must show in the next status.
    async fn forget_status(&self) {
        *self.cached.lock().await = None;
    }
}

async fn require_token(State(console): Shared, request: Request, next: Next) -> Response {
    if console.parts.token.admits(request.headers()) {
        return next.run(request).await;
    }
    AdminError::Unauthorized.into_response()
}

async fn require_token_beyond_loopback(State(console): Shared, request: Request, next: Next) -> Response {
    if console.parts.loopback || console.parts.token.admits(request.headers()) {
        return next.run(request).await;
    }
    // The page is for browsers: let them ask for the token.
    let mut response = AdminError::Unauthorized.into_response();
    let ask = HeaderValue::from_static("Basic realm=\"claystone: any user, the admin token as password\"");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, ask);
    response
}

async fn no_route(request: Request) -> AdminError {
    AdminError::NotFound { what: "path", name: request.uri().path().to_owned() }
}

async fn no_method(method: Method) -> AdminError {
    AdminError::MethodNotAllowed { method: method.to_string() }
}

async fn health_all(State(console): Shared) -> Response {
    let status = console.status().await.ok();
    let health = health(status.as_deref(), console.parts.disks_to_write, &console.parts.version);
    let code = if health.writes { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(health)).into_response()
}

async fn health_read(State(console): Shared) -> Response {
    let status = console.status().await.ok();
    let health = health(status.as_deref(), 0, &console.parts.version);
    let code = if health.reads { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(health)).into_response()
}

async fn metrics(State(console): Shared) -> Result<Response, AdminError> {
    let status = console.status().await?;
    let volumes = console.volumes().await?;
    let text = console.parts.metrics.scrape(&status, &volumes, (console.parts.memory_bytes)());
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

async fn status(State(console): Shared) -> Reply<Status> {
    Ok(Json(Status::clone(&*console.status().await?)))
}

async fn disks(State(console): Shared) -> Reply<Disks> {
    Ok(Json(Disks { disks: console.status().await?.disks.clone() }))
}

async fn add_disk(State(console): Shared, Input(disk): Input<AddDisk>) -> Reply<DiskAdded> {
    let added = console.parts.admin.add_disk(checked(disk)?).await?;
    console.parts.keeper.disks_changed();
    console.forget_status().await;
    Ok(Json(added))
}

async fn replace_disk(
    State(console): Shared,
    Path(id): Path<String>,
    Input(replace): Input<ReplaceDisk>,
) -> Reply<DiskReplaced> {
    let lost = disk_id(&id)?;
    if !console.status().await?.disks.iter().any(|disk| disk.id == id) {
        return Err(AdminError::NotFound { what: "disk", name: id });
    }
    let added = match replace.path {
        Some(path) => {
            let AddDisk { path, .. } = checked(AddDisk { path, node: None })?;
            Some(console.parts.admin.replace_disk(lost, &path).await?)
        }
        None => {
            console.parts.admin.lose_disk(lost).await?;
            None
        }
    };
    console.parts.keeper.disks_changed();
    console.forget_status().await;
    Ok(Json(DiskReplaced { lost: lost.to_string(), added }))
}

async fn drain_disk(State(console): Shared, Path(id): Path<String>) -> Reply<Done> {
    console.parts.admin.drain_disk(disk_id(&id)?).await?;
    console.parts.keeper.disks_changed();
    console.forget_status().await;
    Ok(Json(Done {}))
}

async fn start_scrub(State(console): Shared) -> Reply<ScrubReport> {
    let started = console.parts.keeper.start_scrub().await;
    console.forget_status().await;
    started.map(Json).map_err(|claystone_keeper::KeeperError::Meta(error)| {
        tracing::warn!(%error, "a scrub could not be started");
        AdminError::Unavailable { reason: error.to_string() }
    })
}

async fn scrub(State(console): Shared) -> Reply<Scrub> {
    let status = console.status().await?;
    let job = status.jobs.iter().find(|job| job.kind == JobKind::Scrub).cloned();
    Ok(Json(Scrub { scrub: console.parts.keeper.scrub_report(), job }))
}

async fn buckets(State(console): Shared) -> Reply<Buckets> {
    console.parts.admin.buckets().await.map(Json)
}

async fn set_code(State(console): Shared, Path(name): Path<String>, Input(set): Input<SetCode>) -> Reply<Done> {
    let parse = |text: String| {
        text.parse::<CodeSpec>().map_err(|error| AdminError::Invalid { field: "code", reason: error.to_string() })
    };
    console.parts.admin.set_code(&name, set.code.map(parse).transpose()?).await?;
    Ok(Json(Done {}))
}

async fn keys(State(console): Shared) -> Reply<Keys> {
    console.parts.admin.keys().await.map(Json)
}

async fn add_key(State(console): Shared, Input(key): Input<AddKey>) -> Reply<KeyAdded> {
    if key.account.is_empty() || key.account.len() > ACCOUNT_BYTES_MAX {
        let reason =
            format!("an account's name has 1 to {ACCOUNT_BYTES_MAX} bytes, this one has {}", key.account.len());
        return Err(AdminError::Invalid { field: "account", reason });
    }
    console.parts.admin.add_key(key).await.map(Json)
}

async fn delete_key(State(console): Shared, Path(access_key): Path<String>) -> Reply<Done> {
    console.parts.admin.delete_key(&access_key).await?;
    Ok(Json(Done {}))
}

async fn back_up(State(console): Shared, Input(copy): Input<BackUp>) -> Reply<BackedUp> {
    console.parts.admin.back_up(&copy.path).await.map(Json)
}

fn disk_id(text: &str) -> Result<DiskId, AdminError> {
    text.parse()
        .map_err(|error: claystone_chunk::IdError| AdminError::Invalid { field: "disk", reason: error.to_string() })
}

fn checked(disk: AddDisk) -> Result<AddDisk, AdminError> {
    if disk.path.is_empty() || disk.path.len() > PATH_BYTES_MAX || disk.path.contains('\0') {
        let reason = format!("a path has 1 to {PATH_BYTES_MAX} bytes, none of them zero");
        return Err(AdminError::Invalid { field: "path", reason });
    }
    if disk.node.as_ref().is_some_and(|node| node.is_empty() || node.len() > ACCOUNT_BYTES_MAX) {
        let reason = format!("a node's name has 1 to {ACCOUNT_BYTES_MAX} bytes");
        return Err(AdminError::Invalid { field: "node", reason });
    }
    Ok(disk)
}

/// A JSON body; an empty one counts as `{}`. Whatever is wrong with it is said as an [`AdminError`].
pub(crate) struct Input<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Input<T> {
    type Rejection = AdminError;

    async fn from_request(request: axum::http::Request<Body>, state: &S) -> Result<Self, AdminError> {
        let body = Bytes::from_request(request, state).await.map_err(|rejection| {
            if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
                AdminError::TooLarge { most: BODY_BYTES_MAX }
            } else {
                AdminError::Invalid { field: "body", reason: rejection.body_text() }
            }
        })?;
        let text: &[u8] = if body.is_empty() { b"{}" } else { &body };
        serde_json::from_slice(text)
            .map(Input)
            .map_err(|error| AdminError::Invalid { field: "body", reason: error.to_string() })
    }
}

/// Requests are small documents.
const BODY_BYTES_MAX: usize = 64 << 10;
const PATH_BYTES_MAX: usize = 4096;
const ACCOUNT_BYTES_MAX: usize = 128;
const STATUS_AGE_MAX: Duration = Duration::from_secs(1);
pub(crate) const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
