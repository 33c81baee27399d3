//! What can go wrong inside a transaction, and what a caller is told of it.
//!
//! Invariants:
//! 1. A [`MetaError`] raised by a transaction's own logic undoes that transaction only.
//! 2. An error of SQLite that is not about one row ends the whole batch of transactions.

use rusqlite::ErrorCode;

use crate::MetaError;

/// A transaction's failure.
#[derive(Debug)]
pub(super) enum Fault {
    /// The transaction does not want to happen.
    Meta(MetaError),
    /// SQLite said no.
    Sql(rusqlite::Error),
}

impl Fault {
    /// A row holds `what`, which cannot be read.
    pub(super) fn corrupt(what: impl Into<String>) -> Fault {
        Fault::Meta(MetaError::Corrupt { what: what.into() })
    }

    /// Whether SQLite is in trouble beyond the statement that failed.
    pub(super) fn ends_batch(&self) -> bool {
        match self {
            Fault::Sql(rusqlite::Error::SqliteFailure(error, _)) => error.code != ErrorCode::ConstraintViolation,
            Fault::Sql(_) | Fault::Meta(_) => false,
        }
    }

    /// What the caller is told.
    pub(super) fn into_meta(self) -> MetaError {
        match self {
            Fault::Meta(error) => error,
            Fault::Sql(error) => sql_error(&error),
        }
    }
}

impl From<MetaError> for Fault {
    fn from(error: MetaError) -> Fault {
        Fault::Meta(error)
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Fault {
        Fault::Sql(error)
    }
}

/// What an error of SQLite means to a caller.
pub(super) fn sql_error(error: &rusqlite::Error) -> MetaError {
    let rusqlite::Error::SqliteFailure(failure, _) = error else {
        // Every other variant is about a value that has not the type or range it must have.
        return MetaError::Corrupt { what: error.to_string() };
    };
    match failure.code {
        ErrorCode::DiskFull => MetaError::Full,
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::ConstraintViolation => {
            MetaError::Corrupt { what: error.to_string() }
        }
        _ => MetaError::Unavailable { reason: error.to_string() },
    }
}
