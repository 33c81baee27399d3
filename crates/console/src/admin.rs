//! What the console asks of the program, and what can go wrong with it.

use async_trait::async_trait;
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use claystone_chunk::DiskId;
use claystone_code::CodeSpec;
use claystone_meta::HeatPolicy;

use crate::api::{AddDisk, AddKey, BackedUp, Buckets, DiskAdded, ErrorBody, ErrorDetail, KeyAdded, Keys};

/// Actions that need more than the console may know: directories, credentials, buckets. Calls may come at once.
#[async_trait]
pub trait Admin: Send + Sync + 'static {
    /// Formats a directory as a disk (or opens it, if it is one of this store), records it and takes it into use.
    ///
    /// # Errors
    /// `Invalid` if the path cannot be a disk, `Conflict` if it belongs to another store or is in use.
    async fn add_disk(&self, disk: AddDisk) -> Result<DiskAdded, AdminError>;

    /// Takes an empty directory in the place of a disk, on the same node, and gives the old disk up: its chunks count
    /// as lost at once. A path that cannot be a disk costs the old one nothing.
    ///
    /// # Errors
    /// As `add_disk`, and `NotFound`.
    async fn replace_disk(&self, old: DiskId, path: &str) -> Result<DiskAdded, AdminError>;

    /// Gives a disk up: its chunks count as lost at once.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` if it is removed.
    async fn lose_disk(&self, disk: DiskId) -> Result<(), AdminError>;

    /// Begins to empty a disk.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` if it is lost or removed.
    async fn drain_disk(&self, disk: DiskId) -> Result<(), AdminError>;

    /// All buckets with their codes.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn buckets(&self) -> Result<Buckets, AdminError>;

    /// Sets the code for new objects of a bucket.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` if there are too few disks for it.
    async fn set_code(&self, bucket: &str, code: Option<CodeSpec>) -> Result<(), AdminError>;

    /// Sets how the redundancy of a bucket follows heat.
    ///
    /// # Errors
    /// `NotFound`, `Invalid` if there are too few disks for it, or its codes do not fit each other.
    async fn set_policy(&self, bucket: &str, policy: Option<HeatPolicy>) -> Result<(), AdminError>;

    /// All credentials.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn keys(&self) -> Result<Keys, AdminError>;

    /// Makes a credential with random parts.
    ///
    /// # Errors
    /// `Invalid` for an account that is no name, `Unavailable`.
    async fn add_key(&self, key: AddKey) -> Result<KeyAdded, AdminError>;

    /// Takes a credential away.
    ///
    /// # Errors
    /// `NotFound`, `Conflict` if it is the last one.
    async fn delete_key(&self, access_key: &str) -> Result<(), AdminError>;

    /// Copies all records, as they are at this moment, into a new file on this machine, and checks the copy.
    ///
    /// # Errors
    /// `Invalid` if the path is relative or taken, `Unavailable` if no sound copy could be made; nothing is left then.
    async fn back_up(&self, path: &str) -> Result<BackedUp, AdminError>;
}

/// Why an action was not taken. Nothing was changed, unless it says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// No token, or not the right one.
    #[error("the admin token is missing or wrong: send `authorization: Bearer TOKEN` with the token of this store")]
    Unauthorized,
    /// There is no such thing.
    #[error("there is no {what} {name:?}")]
    NotFound {
        /// Its kind.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// A part of the request is wrong.
    #[error("{field}: {reason}")]
    Invalid {
        /// Which part.
        field: &'static str,
        /// What is wrong and what is allowed.
        reason: String,
    },
    /// The store is in a state that does not allow it.
    #[error("{reason}")]
    Conflict {
        /// Which, and what to do.
        reason: String,
    },
    /// It could not be done now.
    #[error("{reason}")]
    Unavailable {
        /// Why.
        reason: String,
    },
    /// The path takes other methods.
    #[error("this path does not take the method {method}")]
    MethodNotAllowed {
        /// The method.
        method: String,
    },
    /// The body is too long.
    #[error("the request's body is longer than {most} bytes")]
    TooLarge {
        /// The limit.
        most: usize,
    },
}

impl AdminError {
    fn status_and_code(&self) -> (StatusCode, &'static str) {
        match self {
            AdminError::Unauthorized => (StatusCode::UNAUTHORIZED, "unauthorized"),
            AdminError::NotFound { .. } => (StatusCode::NOT_FOUND, "not_found"),
            AdminError::Invalid { .. } => (StatusCode::BAD_REQUEST, "invalid"),
            AdminError::Conflict { .. } => (StatusCode::CONFLICT, "conflict"),
            AdminError::Unavailable { .. } => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            AdminError::MethodNotAllowed { .. } => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            AdminError::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
        }
    }
}

impl IntoResponse for AdminError {
    fn into_response(self) -> Response {
        let (status, code) = self.status_and_code();
        let error = ErrorDetail { code: code.to_owned(), message: self.to_string() };
        (status, Json(ErrorBody { error })).into_response()
    }
}
