//! From the errors of the store to those of S3.
//!
//! Invariants:
//! 1. An error of the store keeps its source, so that the log names the cause; the client sees S3's code and a
//!    sentence that says what to do.
//! 2. What the client did wrong is 4xx, what the store cannot do now is 503 (try again), the rest is 500.

use std::error::Error as StdError;

use claystone_chunk::ChunkError;
use claystone_meta::MetaError;
use claystone_object::{BodyError, ObjectError};
use claystone_stripe::StripeError;
use http::StatusCode;
use s3s::{S3Error, S3ErrorCode, s3_error};

/// S3's word for an error of the store.
pub(crate) fn from_object(error: ObjectError) -> S3Error {
    match error {
        ObjectError::Meta(error) => from_meta(error),
        ObjectError::Stripe(error) => from_stripe(error),
        ObjectError::Body(error) => from_body(error),
        error @ ObjectError::TooFewDisks { .. } => {
            let message = error.to_string();
            with(error, S3ErrorCode::ServiceUnavailable, message)
        }
        error @ ObjectError::DisksFull { .. } => insufficient_storage(error),
        error @ (ObjectError::Code(_) | ObjectError::Policy(_) | ObjectError::OtherTiles { .. }) => {
            let message = error.to_string();
            with(error, S3ErrorCode::InvalidArgument, message)
        }
        error @ ObjectError::TooLarge { .. } => {
            let message = error.to_string();
            with(error, S3ErrorCode::EntityTooLarge, message)
        }
        error @ ObjectError::PartTooSmall { .. } => {
            let message = error.to_string();
            with(error, S3ErrorCode::EntityTooSmall, message)
        }
        error @ ObjectError::PartOrder => {
            let message = error.to_string();
            with(error, S3ErrorCode::InvalidPartOrder, message)
        }
        error @ ObjectError::OutOfRange { .. } => {
            let message = error.to_string();
            with(error, S3ErrorCode::InvalidRange, message)
        }
        error @ (ObjectError::Corrupt { .. } | ObjectError::NotVerified { .. }) => internal(error),
        error @ ObjectError::ShuttingDown => {
            with(error, S3ErrorCode::ServiceUnavailable, "the store is shutting down".to_owned())
        }
    }
}

/// S3's word for an error of the records.
pub(crate) fn from_meta(error: MetaError) -> S3Error {
    match error {
        MetaError::NoSuchBucket { .. } => s3_error!(NoSuchBucket, "The specified bucket does not exist"),
        MetaError::BucketExists { .. } => {
            s3_error!(BucketAlreadyExists, "The requested bucket name is not available")
        }
        MetaError::BucketNotEmpty { .. } => {
            s3_error!(BucketNotEmpty, "The bucket has objects, versions or uploads: delete them first")
        }
        MetaError::NoSuchObject { .. } => s3_error!(NoSuchKey, "The specified key does not exist"),
        MetaError::ObjectChanged { .. } => {
            s3_error!(OperationAborted, "Others are changing this object too often. Please try again.")
        }
        MetaError::NoSuchUpload { .. } => s3_error!(
            NoSuchUpload,
            "The specified upload does not exist: it was completed or aborted, or its id is wrong"
        ),
        MetaError::InvalidPart { number } => s3_error!(
            InvalidPart,
            "Part {number} was not uploaded, or its entity tag is not the one that its upload returned"
        ),
        MetaError::PreconditionFailed { .. } => {
            s3_error!(PreconditionFailed, "At least one of the preconditions you specified did not hold")
        }
        error @ MetaError::Full => insufficient_storage(error),
        error @ MetaError::Unavailable { .. } => {
            with(error, S3ErrorCode::ServiceUnavailable, "the metadata store is not available".to_owned())
        }
        error @ MetaError::StripeLost { .. } => {
            let message = "disks that it was written to have left since: send it again".to_owned();
            with(error, S3ErrorCode::ServiceUnavailable, message)
        }
        error @ (MetaError::StripeChanged { .. }
        | MetaError::HeldByVolume { .. }
        | MetaError::PacksDiffer { .. }
        | MetaError::NoSuchDisk { .. }
        | MetaError::NoSuchVolume { .. }
        | MetaError::VolumeExists { .. }
        | MetaError::VolumeShrinks { .. }
        | MetaError::HasSnapshots { .. }
        | MetaError::NoSuchSnapshot { .. }
        | MetaError::SnapshotExists { .. }
        | MetaError::LeaseEnded { .. }
        | MetaError::Corrupt { .. }
        | MetaError::NewerSchema { .. }) => internal(error),
    }
}

/// S3's word for an error of the chunks.
pub(crate) fn from_stripe(error: StripeError) -> S3Error {
    match &error {
        StripeError::NotDurable { last: ChunkError::DiskFull { .. }, .. }
        | StripeError::Chunk(ChunkError::DiskFull { .. }) => insufficient_storage(error),
        StripeError::TooFewDisks { .. }
        | StripeError::NotDurable { .. }
        | StripeError::Unrecoverable { .. }
        | StripeError::Chunk(ChunkError::Unavailable { .. }) => {
            let message = error.to_string();
            with(error, S3ErrorCode::ServiceUnavailable, message)
        }
        _ => internal(error),
    }
}

/// S3's word for a body that could not be taken.
pub(crate) fn from_body(error: BodyError) -> S3Error {
    match error {
        BodyError::WrongLength { .. } => {
            let message = error.to_string();
            with(error, S3ErrorCode::IncompleteBody, message)
        }
        BodyError::Refused(source) => match source.downcast::<Refusal>() {
            Ok(refusal) => refusal.0,
            Err(source) => match source.downcast::<ObjectError>() {
                Ok(error) => from_object(*error),
                Err(source) => match source.downcast::<StripeError>() {
                    Ok(error) => from_stripe(*error),
                    Err(source) => from_transfer(source),
                },
            },
        },
    }
}

/// An error that arose in the body's stream below us: s3s checks signatures there, hyper reads the connection.
fn from_transfer(source: Box<dyn StdError + Send + Sync>) -> S3Error {
    // The error types of s3s's streams are private; their texts are pinned with the crate's version.
    let text = source.to_string();
    let code = if text.contains("Sha256Mismatch") {
        return custom(
            source,
            "XAmzContentSHA256Mismatch",
            StatusCode::BAD_REQUEST,
            "The provided 'x-amz-content-sha256' header does not match what was computed",
        );
    } else if text.contains("SignatureMismatch") {
        S3ErrorCode::SignatureDoesNotMatch
    } else if text.contains("FormatError") || text.contains("TooLarge") || text.contains("TooMany") {
        S3ErrorCode::InvalidRequest
    } else {
        S3ErrorCode::IncompleteBody
    };
    let message = match code {
        S3ErrorCode::SignatureDoesNotMatch => "The signature of a chunk of the body does not match".to_owned(),
        S3ErrorCode::InvalidRequest => format!("The chunked body is malformed: {text}"),
        _ => "The body ended before the declared number of bytes had come".to_owned(),
    };
    let mut error = S3Error::with_message(code, message);
    error.set_source(source);
    error
}

/// An S3 error on its way through the object crate, which hands it back in [`BodyError::Refused`].
#[derive(Debug, thiserror::Error)]
#[error("the body was refused")]
pub(crate) struct Refusal(pub(crate) S3Error);

impl From<Refusal> for BodyError {
    fn from(refusal: Refusal) -> BodyError {
        BodyError::Refused(Box::new(refusal))
    }
}

/// No disk has room: reads and deletes still work.
fn insufficient_storage(source: impl StdError + Send + Sync + 'static) -> S3Error {
    custom(
        Box::new(source),
        "InsufficientStorage",
        StatusCode::INSUFFICIENT_STORAGE,
        "The store's disks are full: delete objects or add disks. Reads and deletes still work",
    )
}

fn custom(
    source: Box<dyn StdError + Send + Sync>,
    code: &'static str,
    status: StatusCode,
    message: &'static str,
) -> S3Error {
    let mut error = S3Error::with_message(S3ErrorCode::Custom(code.into()), message);
    error.set_status_code(status);
    error.set_source(source);
    error
}

/// A code that s3s's table does not have, with its status.
pub(crate) fn other(code: &'static str, status: StatusCode, message: &'static str) -> S3Error {
    let mut error = S3Error::with_message(S3ErrorCode::Custom(code.into()), message);
    error.set_status_code(status);
    error
}

fn internal(source: impl StdError + Send + Sync + 'static) -> S3Error {
    with(source, S3ErrorCode::InternalError, "The store met an error; its log has the request id".to_owned())
}

fn with(source: impl StdError + Send + Sync + 'static, code: S3ErrorCode, message: String) -> S3Error {
    let mut error = S3Error::with_message(code, message);
    error.set_source(Box::new(source));
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use claystone_chunk::DiskId;

    #[test]
    fn full_disks_are_507_and_not_an_internal_error() {
        let full = ChunkError::DiskFull { disk: DiskId(1), needed_bytes: 2, free_bytes: 1 };
        let error = from_stripe(StripeError::NotDurable { written: 1, chunks: 6, needed: 5, last: full });
        assert_eq!(error.code().as_str(), "InsufficientStorage");
        assert_eq!(error.status_code(), Some(StatusCode::INSUFFICIENT_STORAGE));
    }

    #[test]
    fn a_refusal_comes_back_as_it_was() {
        let error = from_body(Refusal(s3_error!(BadDigest)).into());
        assert_eq!(error.code(), &S3ErrorCode::BadDigest);
    }

    #[test]
    fn s3s_stream_errors_are_told_by_their_text() {
        let refused = |text: &'static str| from_body(BodyError::Refused(text.into())).code().as_str().to_owned();
        assert_eq!(refused("UploadStreamError: Sha256Mismatch"), "XAmzContentSHA256Mismatch");
        assert_eq!(refused("AwsChunkedStreamError: SignatureMismatch"), "SignatureDoesNotMatch");
        assert_eq!(refused("AwsChunkedStreamError: Incomplete"), "IncompleteBody");
        assert_eq!(refused("AwsChunkedStreamError: FormatError"), "InvalidRequest");
    }
}
