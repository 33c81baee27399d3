//! Conditional requests: what must hold of an object for a read or a write to happen.
//!
//! Invariants:
//! 1. Order as in RFC 9110 section 13.2.2: If-Match overrides If-Unmodified-Since, If-None-Match overrides
//!    If-Modified-Since.
//! 2. Dates compare in whole seconds, which is what HTTP dates can say.

use claystone_env::WallTime;
use claystone_object::Precondition;
use s3s::dto::{ETagCondition, Timestamp};
use s3s::{S3Error, s3_error};

/// The conditions of a read, or of the source of a copy.
#[derive(Debug, Default)]
pub(crate) struct ReadConditions {
    pub(crate) if_match: Option<ETagCondition>,
    pub(crate) if_none_match: Option<ETagCondition>,
    pub(crate) if_modified_since: Option<Timestamp>,
    pub(crate) if_unmodified_since: Option<Timestamp>,
}

/// What the conditions say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Go on.
    Proceed,
    /// The client has it already.
    NotModified,
    /// It is not what the client wants.
    Failed,
}

impl ReadConditions {
    /// Compares with an object's entity tag (without quotes) and the time it was written.
    pub(crate) fn check(&self, etag: &str, written: WallTime) -> Outcome {
        let written = seconds(written);
        match (&self.if_match, &self.if_unmodified_since) {
            (Some(condition), _) if !matches(condition, etag) => return Outcome::Failed,
            (None, Some(date)) if written > unix(date) => return Outcome::Failed,
            _ => {}
        }
        match (&self.if_none_match, &self.if_modified_since) {
            (Some(condition), _) if matches(condition, etag) => Outcome::NotModified,
            (None, Some(date)) if written <= unix(date) => Outcome::NotModified,
            _ => Outcome::Proceed,
        }
    }
}

/// What a write demands of the current object.
///
/// # Errors
/// `NotImplemented` if both headers are there.
pub(crate) fn precondition(
    if_match: Option<ETagCondition>,
    if_none_match: Option<ETagCondition>,
) -> Result<Precondition, S3Error> {
    match (if_match, if_none_match) {
        (None, None) => Ok(Precondition::None),
        (Some(ETagCondition::Any), None) => Ok(Precondition::Exists),
        (Some(ETagCondition::ETag(etag)), None) => Ok(Precondition::Etag(etag.into_value())),
        (None, Some(ETagCondition::Any)) => Ok(Precondition::Absent),
        (None, Some(ETagCondition::ETag(etag))) => Ok(Precondition::NotEtag(etag.into_value())),
        (Some(_), Some(_)) => Err(s3_error!(NotImplemented, "If-Match and If-None-Match together are not supported")),
    }
}

/// Looks whether a write can succeed, before its body is taken. The transaction that commits it looks again.
///
/// # Errors
/// `NoSuchKey` or `PreconditionFailed`.
pub(crate) fn foresee(precondition: &Precondition, current: Option<&str>) -> Result<(), S3Error> {
    let holds = match (precondition, current) {
        (Precondition::None, _) | (Precondition::Absent | Precondition::NotEtag(_), None) => true,
        (Precondition::Exists | Precondition::Etag(_), None) => {
            return Err(s3_error!(NoSuchKey, "The specified key does not exist"));
        }
        (Precondition::Absent, Some(_)) => false,
        (Precondition::Exists, Some(_)) => true,
        (Precondition::Etag(wanted), Some(etag)) => wanted == etag,
        (Precondition::NotEtag(unwanted), Some(etag)) => unwanted != etag,
    };
    if holds { Ok(()) } else { Err(failed()) }
}

/// 412.
pub(crate) fn failed() -> S3Error {
    s3_error!(PreconditionFailed, "At least one of the preconditions you specified did not hold")
}

fn matches(condition: &ETagCondition, etag: &str) -> bool {
    match condition {
        ETagCondition::Any => true,
        ETagCondition::ETag(wanted) => wanted.value() == etag,
    }
}

fn seconds(time: WallTime) -> i64 {
    i64::try_from(time.unix_ms / 1000).unwrap_or(i64::MAX)
}

fn unix(date: &Timestamp) -> i64 {
    time::OffsetDateTime::from(date.clone()).unix_timestamp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use s3s::dto::ETag;

    const WRITTEN: WallTime = WallTime { unix_ms: 1_000_500 };

    fn tag(value: &str) -> Option<ETagCondition> {
        Some(ETagCondition::ETag(ETag::Strong(value.to_owned())))
    }

    fn date(seconds: i64) -> Option<Timestamp> {
        Some(time::OffsetDateTime::from_unix_timestamp(seconds).expect("in range").into())
    }

    #[test]
    fn if_match_overrides_if_unmodified_since() {
        let conditions =
            ReadConditions { if_match: tag("a"), if_unmodified_since: date(1), ..ReadConditions::default() };
        assert_eq!(conditions.check("a", WRITTEN), Outcome::Proceed);
        assert_eq!(conditions.check("b", WRITTEN), Outcome::Failed);
        let conditions = ReadConditions { if_unmodified_since: date(999), ..ReadConditions::default() };
        assert_eq!(conditions.check("a", WRITTEN), Outcome::Failed);
    }

    #[test]
    fn if_none_match_overrides_if_modified_since() {
        let conditions =
            ReadConditions { if_none_match: tag("a"), if_modified_since: date(2000), ..ReadConditions::default() };
        assert_eq!(conditions.check("a", WRITTEN), Outcome::NotModified);
        assert_eq!(conditions.check("b", WRITTEN), Outcome::Proceed);
    }

    #[test]
    fn dates_compare_in_whole_seconds() {
        let since = |at| ReadConditions { if_modified_since: date(at), ..ReadConditions::default() };
        assert_eq!(since(1000).check("a", WRITTEN), Outcome::NotModified);
        assert_eq!(since(999).check("a", WRITTEN), Outcome::Proceed);
        let conditions = ReadConditions { if_unmodified_since: date(1000), ..ReadConditions::default() };
        assert_eq!(conditions.check("a", WRITTEN), Outcome::Proceed);
    }

    #[test]
    fn writes_fail_before_their_body_when_they_cannot_succeed() {
        let code = |precondition, current| foresee(&precondition, current).map_err(|e| e.code().as_str().to_owned());
        assert_eq!(code(Precondition::Absent, Some("a")), Err("PreconditionFailed".to_owned()));
        assert_eq!(code(Precondition::Absent, None), Ok(()));
        assert_eq!(code(Precondition::Exists, None), Err("NoSuchKey".to_owned()));
        assert_eq!(code(Precondition::Etag("a".into()), Some("b")), Err("PreconditionFailed".to_owned()));
        assert_eq!(code(Precondition::NotEtag("a".into()), Some("a")), Err("PreconditionFailed".to_owned()));
        assert!(precondition(Some(ETagCondition::Any), Some(ETagCondition::Any)).is_err());
    }
}
