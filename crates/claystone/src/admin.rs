//! The admin API from both sides: what the console asks of the running store, and how the commands reach it.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use async_trait::async_trait;
use bytes::Bytes;
use claystone_chunk::DiskId;
use claystone_code::CodeSpec;
use claystone_console::api::{self, AddDisk, AddKey, DiskAdded, ErrorBody, KeyAdded};
use claystone_console::{Admin, AdminError};
use claystone_meta::{AccessKey, DiskRecord, DiskState, HeatPolicy, MetaError};
use claystone_object::ObjectError;
use hyper::{Method, Request};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::components::Store;
use crate::credentials::{Credentials, new_key};
use crate::endpoint::Endpoint;
use crate::http::{self, Connection};

/// The running store, as the console sees it.
pub struct StoreAdmin(pub Store);

impl StoreAdmin {
    async fn disk(&self, disk: DiskId) -> Result<DiskRecord, AdminError> {
        let disks = self.0.meta.disks().await.map_err(meta)?;
        let found = disks.into_iter().find(|known| known.id == disk && known.state != DiskState::Removed);
        found.ok_or(AdminError::NotFound { what: "disk", name: disk.to_string() })
    }
}

#[async_trait]
impl Admin for StoreAdmin {
    async fn add_disk(&self, disk: AddDisk) -> Result<DiskAdded, AdminError> {
        let added = self.0.add_disk(Path::new(&disk.path), disk.node).await;
        let record = added.map_err(|error| AdminError::Conflict { reason: format!("{error:#}") })?;
        Ok(DiskAdded { id: record.id.to_string(), path: record.path, node: record.node.0 })
    }

    async fn replace_disk(&self, old: DiskId, path: &str) -> Result<DiskAdded, AdminError> {
        self.disk(old).await?;
        let added = self.0.replace_disk(old, Path::new(path)).await;
        let record = added.map_err(|error| AdminError::Conflict { reason: format!("{error:#}") })?;
        Ok(DiskAdded { id: record.id.to_string(), path: record.path, node: record.node.0 })
    }

    async fn lose_disk(&self, disk: DiskId) -> Result<(), AdminError> {
        self.disk(disk).await?;
        self.0.keeper.set_disk_state(disk, DiskState::Lost).await.map_err(meta)
    }

    async fn drain_disk(&self, disk: DiskId) -> Result<(), AdminError> {
        match self.disk(disk).await?.state {
            DiskState::Active | DiskState::Draining => {
                self.0.keeper.set_disk_state(disk, DiskState::Draining).await.map_err(meta)
            }
            _ => Err(AdminError::Conflict {
                reason: format!("disk {disk} was given up; its chunks are rebuilt elsewhere already"),
            }),
        }
    }

    async fn buckets(&self) -> Result<api::Buckets, AdminError> {
        let buckets = self.0.objects.buckets().await.map_err(object)?;
        let buckets = buckets.into_iter().map(|bucket| api::Bucket {
            name: bucket.name,
            owner: bucket.owner,
            created_unix_ms: bucket.created.unix_ms,
            code: bucket.code.map(|code| code.to_string()),
            policy: bucket.policy.map(|policy| policy.to_string()),
        });
        Ok(api::Buckets { buckets: buckets.collect() })
    }

    async fn set_code(&self, bucket: &str, code: Option<CodeSpec>) -> Result<(), AdminError> {
        self.0.objects.set_code(bucket, code).await.map_err(object)
    }

    async fn set_policy(&self, bucket: &str, policy: Option<HeatPolicy>) -> Result<(), AdminError> {
        self.0.objects.set_policy(bucket, policy).await.map_err(object)?;
        self.0.keeper.policy_changed();
        Ok(())
    }

    async fn keys(&self) -> Result<api::Keys, AdminError> {
        let mut keys = self.0.meta.keys().await.map_err(meta)?;
        keys.sort_by(|one, other| one.access_key.cmp(&other.access_key));
        let keys = keys.into_iter().map(|key| api::Key {
            access_key: key.access_key,
            account: key.account,
            created_unix_ms: key.created.unix_ms,
        });
        Ok(api::Keys { keys: keys.collect() })
    }

    async fn add_key(&self, key: AddKey) -> Result<KeyAdded, AdminError> {
        let (access_key, secret_key) = new_key(&*self.0.env.random);
        let added = KeyAdded { access_key, secret_key, account: key.account };
        let key = AccessKey {
            access_key: added.access_key.clone(),
            secret_key: added.secret_key.clone(),
            account: added.account.clone(),
            created: self.0.env.clock.wall(),
        };
        self.0.add_key(key).await.map_err(meta)?;
        Ok(added)
    }

    async fn delete_key(&self, access_key: &str) -> Result<(), AdminError> {
        let keys = self.0.meta.keys().await.map_err(meta)?;
        if !keys.iter().any(|key| key.access_key == access_key) {
            return Err(AdminError::NotFound { what: "key", name: access_key.to_owned() });
        }
        if access_key == self.0.credentials.access_key {
            let reason = "this is the store's own key, which its commands use: it stays".to_owned();
            return Err(AdminError::Conflict { reason });
        }
        self.0.delete_key(access_key).await.map_err(meta)
    }

    async fn back_up(&self, path: &str) -> Result<api::BackedUp, AdminError> {
        let target = Path::new(path);
        let refused = |reason: &str| AdminError::Invalid { field: "path", reason: format!("{path}: {reason}") };
        if !target.is_absolute() {
            return Err(refused("an absolute path is needed"));
        }
        if target.exists() {
            return Err(refused("there is something already; name a new file"));
        }
        let copied = crate::backup::back_up(&self.0.database, target).await;
        let bytes = copied.map_err(|error| AdminError::Unavailable { reason: format!("{error:#}") })?;
        Ok(api::BackedUp { path: path.to_owned(), bytes })
    }
}

fn meta(error: MetaError) -> AdminError {
    match error {
        MetaError::NoSuchDisk { disk } => AdminError::NotFound { what: "disk", name: disk.to_string() },
        MetaError::NoSuchBucket { name } => AdminError::NotFound { what: "bucket", name },
        other => AdminError::Unavailable { reason: other.to_string() },
    }
}

fn object(error: ObjectError) -> AdminError {
    match error {
        ObjectError::Meta(error) => meta(error),
        error @ (ObjectError::TooFewDisks { .. } | ObjectError::Code(_)) => {
            AdminError::Invalid { field: "code", reason: error.to_string() }
        }
        error @ (ObjectError::Policy(_) | ObjectError::OtherTiles { .. }) => {
            AdminError::Invalid { field: "policy", reason: error.to_string() }
        }
        other => AdminError::Unavailable { reason: other.to_string() },
    }
}

/// How the commands reach the store that runs on a directory.
pub struct AdminClient {
    /// Where it answers.
    pub endpoint: Endpoint,
    /// What opens it.
    pub credentials: Credentials,
}

impl AdminClient {
    /// The store in `directory`.
    ///
    /// # Errors
    /// None runs there.
    pub fn of(directory: &Path) -> anyhow::Result<AdminClient> {
        let endpoint = Endpoint::load(directory)?;
        let credentials = Credentials::load(directory)?
            .ok_or_else(|| anyhow!("{} is missing", Credentials::path(directory).display()))?;
        Ok(AdminClient { endpoint, credentials })
    }

    /// Asks.
    ///
    /// # Errors
    /// The store is not there or says no.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.call(Method::GET, path, Bytes::new()).await
    }

    /// Acts, with a document.
    ///
    /// # Errors
    /// The store is not there or says no.
    pub async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        self.call(method, path, serde_json::to_vec(body)?.into()).await
    }

    async fn call<T: DeserializeOwned>(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<T> {
        let answer = self.exchange(method, path, "application/json", body).await?;
        serde_json::from_slice(&answer).context("the store's answer is not understood: do versions differ?")
    }

    /// Fetches bytes.
    ///
    /// # Errors
    /// The store is not there or says no.
    pub async fn fetch(&self, path: &str) -> anyhow::Result<Bytes> {
        self.exchange(Method::GET, path, "application/json", Bytes::new()).await
    }

    /// Puts bytes.
    ///
    /// # Errors
    /// The store is not there or says no.
    pub async fn put(&self, path: &str, content: Bytes) -> anyhow::Result<()> {
        self.exchange(Method::PUT, path, "application/octet-stream", content).await.map(drop)
    }

    async fn exchange(&self, method: Method, path: &str, kind: &str, body: Bytes) -> anyhow::Result<Bytes> {
        let authority = self.endpoint.console.to_string();
        let mut connection = Connection::open(&authority).await.with_context(|| {
            format!("the store (process {}) does not answer: does it still run?", self.endpoint.process)
        })?;
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", api::PREFIX))
            .header("host", authority)
            .header("authorization", format!("Bearer {}", self.credentials.admin_token))
            .header("content-type", kind)
            .body(http::full(body))?;
        let response = connection.send(request).await?;
        let status = response.status();
        let body = http::collect(response, ANSWER_BYTES_MAX).await?;
        if !status.is_success() {
            match serde_json::from_slice::<ErrorBody>(&body) {
                Ok(body) => bail!("{}", body.error.message),
                Err(_) => bail!("the store answers {status}"),
            }
        }
        Ok(body)
    }
}

/// The console's face of a store.
pub fn admin_of(store: &Store) -> Arc<dyn Admin> {
    Arc::new(StoreAdmin(store.clone()))
}

const ANSWER_BYTES_MAX: usize = 64 << 20;
