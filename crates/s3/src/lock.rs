//! Object lock: versions that must not go before a date, or while a hold is on them.
//!
//! Invariants:
//! 1. Only a named version can be locked; a plain delete adds a marker and is always allowed.
//! 2. `COMPLIANCE` is never shortened or lifted by anybody; `GOVERNANCE` only by who may bypass it and says so.

use claystone_env::WallTime;
use claystone_meta::BucketRecord;
use claystone_object::Attributes;
use s3s::dto::{
    DefaultRetention, GetObjectLegalHoldInput, GetObjectLegalHoldOutput, GetObjectLockConfigurationInput,
    GetObjectLockConfigurationOutput, GetObjectRetentionInput, GetObjectRetentionOutput, ObjectLockConfiguration,
    ObjectLockEnabled, ObjectLockLegalHold, ObjectLockLegalHoldStatus, ObjectLockRetention, ObjectLockRetentionMode,
    PutObjectLegalHoldInput, PutObjectLegalHoldOutput, PutObjectLockConfigurationInput,
    PutObjectLockConfigurationOutput, PutObjectRetentionInput, PutObjectRetentionOutput, Timestamp,
};
use s3s::{S3Error, S3Request, S3Response, S3Result, s3_error};
use serde::{Deserialize, Serialize};

use crate::documents;
use crate::error::other;
use crate::gateway::{self, Call, Gateway, Target, denied, version_ref};

/// Until when a version must stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct StoredRetention {
    mode: String,
    until_ms: u64,
}

/// Until when a version must stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Retention {
    pub(crate) mode: String,
    pub(crate) until: WallTime,
}

/// What a write says of locks.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    pub(crate) mode: Option<String>,
    pub(crate) until: Option<Timestamp>,
    pub(crate) hold: Option<String>,
}

pub(crate) fn retention(attributes: &Attributes) -> Option<Retention> {
    let stored: StoredRetention = serde_json::from_str(attributes.documents.get(RETENTION)?).ok()?;
    Some(Retention { mode: stored.mode, until: WallTime { unix_ms: stored.until_ms } })
}

pub(crate) fn legal_hold(attributes: &Attributes) -> Option<bool> {
    attributes.documents.get(LEGAL_HOLD).map(|status| status == "ON")
}

fn set_retention(attributes: &mut Attributes, retention: &Retention) {
    let stored = StoredRetention { mode: retention.mode.clone(), until_ms: retention.until.unix_ms };
    let text = serde_json::to_string(&stored).expect("plain data always serialises");
    attributes.documents.insert(RETENTION.to_owned(), text);
}

/// Whether a bucket locks objects, and how by default.
fn configuration(bucket: &BucketRecord) -> Option<ObjectLockConfiguration> {
    documents::read(bucket, documents::LOCK).ok().flatten()
}

/// Whether a bucket was made to lock objects.
pub(crate) fn is_enabled(bucket: &BucketRecord) -> bool {
    bucket.documents.contains_key(documents::LOCK)
}

/// Keeps the locks of a new object: what the request says, else the bucket's default.
///
/// # Errors
/// `InvalidRequest`, `InvalidArgument`.
pub(crate) fn keep(locks: Locks, attributes: &mut Attributes, bucket: &BucketRecord, now: WallTime) -> S3Result<()> {
    let asked = locks.mode.is_some() || locks.until.is_some() || locks.hold.is_some();
    if !is_enabled(bucket) {
        if asked {
            return Err(s3_error!(InvalidRequest, "Bucket is missing Object Lock Configuration"));
        }
        return Ok(());
    }
    match (locks.mode, locks.until) {
        (None, None) => {
            let default = configuration(bucket).and_then(|config| config.rule).and_then(|rule| rule.default_retention);
            if let Some(default) = default
                && let Some(retention) = default_retention(&default, now)
            {
                set_retention(attributes, &retention);
            }
        }
        (Some(mode), Some(until)) => {
            let until = wall(&until);
            if until <= now {
                return Err(s3_error!(InvalidArgument, "The retain until date must be in the future!"));
            }
            check_mode(&mode)?;
            set_retention(attributes, &Retention { mode, until });
        }
        _ => {
            return Err(s3_error!(
                InvalidArgument,
                "x-amz-object-lock-retain-until-date and x-amz-object-lock-mode must both be supplied"
            ));
        }
    }
    if let Some(hold) = locks.hold {
        check_hold(&hold)?;
        attributes.documents.insert(LEGAL_HOLD.to_owned(), hold);
    }
    Ok(())
}

fn default_retention(default: &DefaultRetention, now: WallTime) -> Option<Retention> {
    let days = match (default.days, default.years) {
        (Some(days), _) => u64::try_from(days).ok()?,
        (None, Some(years)) => u64::try_from(years).ok()?.checked_mul(365)?,
        (None, None) => return None,
    };
    let mode = default.mode.as_ref()?.as_str().to_owned();
    let until = WallTime { unix_ms: now.unix_ms.checked_add(days.checked_mul(DAY_MS)?)? };
    Some(Retention { mode, until })
}

/// Whether a version may go for good.
///
/// # Errors
/// `AccessDenied`.
pub(crate) fn check_removal(attributes: &Attributes, bypass: bool, now: WallTime) -> S3Result<()> {
    if legal_hold(attributes) == Some(true) {
        return Err(s3_error!(AccessDenied, "The version is under a legal hold"));
    }
    match retention(attributes) {
        Some(retention) if retention.until > now && !(bypass && retention.mode == GOVERNANCE) => {
            Err(s3_error!(AccessDenied, "Access Denied because object protected by object lock"))
        }
        _ => Ok(()),
    }
}

impl Gateway {
    /// Whether the caller may and wants to bypass governance.
    pub(crate) fn bypasses(&self, call: &Call, wanted: Option<bool>, bucket: &BucketRecord, key: &str) -> bool {
        wanted == Some(true) && self.allow(call, gateway::BYPASS_GOVERNANCE, bucket, Target::Key(key)).is_ok()
    }

    pub(crate) async fn put_object_lock_configuration(
        &self,
        request: S3Request<PutObjectLockConfigurationInput>,
    ) -> S3Result<S3Response<PutObjectLockConfigurationOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.bucket(&call, &input.bucket, gateway::PUT_BUCKET_LOCK).await?;
        let config =
            input.object_lock_configuration.ok_or_else(|| s3_error!(MalformedXML, "The configuration is missing"))?;
        check_configuration(&config)?;
        if documents::versioning(&bucket) != Some(documents::Versions::Enabled) {
            return Err(s3_error!(
                InvalidBucketState,
                "Versioning must be 'Enabled' on the bucket to apply a Object Lock configuration"
            ));
        }
        self.set_document(&bucket, documents::LOCK, Some(documents::to_xml(&config)?)).await?;
        Ok(S3Response::new(PutObjectLockConfigurationOutput::default()))
    }

    pub(crate) async fn get_object_lock_configuration(
        &self,
        request: S3Request<GetObjectLockConfigurationInput>,
    ) -> S3Result<S3Response<GetObjectLockConfigurationOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.bucket(&call, &input.bucket, gateway::GET_BUCKET_LOCK).await?;
        let config = configuration(&bucket).ok_or_else(|| {
            s3_error!(ObjectLockConfigurationNotFoundError, "Object Lock configuration does not exist for this bucket")
        })?;
        Ok(S3Response::new(GetObjectLockConfigurationOutput { object_lock_configuration: Some(config) }))
    }

    pub(crate) async fn put_object_retention(
        &self,
        request: S3Request<PutObjectRetentionInput>,
    ) -> S3Result<S3Response<PutObjectRetentionOutput>> {
        let (input, call) = self.open(request);
        let (place, version) = ((&*input.bucket, &*input.key), input.version_id.as_deref());
        let set = |bucket: &BucketRecord, attributes: &mut Attributes| {
            check_enabled(bucket)?;
            let now = self.env.clock.wall();
            let wanted = wanted_retention(input.retention.as_ref(), now)?;
            if let Some(current) = retention(attributes).filter(|current| current.until > now) {
                let bypass = self.bypasses(&call, input.bypass_governance_retention, bucket, &input.key);
                let loosens = match &wanted {
                    None => true,
                    Some(wanted) => {
                        wanted.until < current.until
                            || (current.mode == COMPLIANCE && wanted.mode != COMPLIANCE)
                            || (current.mode == GOVERNANCE && wanted.mode != GOVERNANCE)
                    }
                };
                if loosens && (current.mode == COMPLIANCE || !bypass) {
                    return Err(denied());
                }
            }
            match &wanted {
                Some(retention) => set_retention(attributes, retention),
                None => drop(attributes.documents.remove(RETENTION)),
            }
            Ok(())
        };
        self.change(&call, place, version, gateway::PUT_OBJECT_RETENTION, set).await?;
        Ok(S3Response::new(PutObjectRetentionOutput::default()))
    }

    pub(crate) async fn get_object_retention(
        &self,
        request: S3Request<GetObjectRetentionInput>,
    ) -> S3Result<S3Response<GetObjectRetentionOutput>> {
        let (input, call) = self.open(request);
        let version = version_ref(input.version_id.as_deref())?;
        let (bucket, object) =
            self.object(&call, &input.bucket, &input.key, &version, gateway::GET_OBJECT_RETENTION).await?;
        check_enabled(&bucket)?;
        let retention = retention(&object.attributes).ok_or_else(no_lock)?;
        let retention = ObjectLockRetention {
            mode: Some(ObjectLockRetentionMode::from(retention.mode)),
            retain_until_date: Some(exact(retention.until)),
        };
        Ok(S3Response::new(GetObjectRetentionOutput { retention: Some(retention) }))
    }

    pub(crate) async fn put_object_legal_hold(
        &self,
        request: S3Request<PutObjectLegalHoldInput>,
    ) -> S3Result<S3Response<PutObjectLegalHoldOutput>> {
        let (input, call) = self.open(request);
        let (place, version) = ((&*input.bucket, &*input.key), input.version_id.as_deref());
        let status = input.legal_hold.and_then(|hold| hold.status).map(|status| status.as_str().to_owned());
        let set = |bucket: &BucketRecord, attributes: &mut Attributes| {
            check_enabled(bucket)?;
            let status = status.clone().ok_or_else(|| s3_error!(MalformedXML, "A legal hold needs a status"))?;
            check_hold(&status)?;
            attributes.documents.insert(LEGAL_HOLD.to_owned(), status);
            Ok(())
        };
        self.change(&call, place, version, gateway::PUT_OBJECT_LEGAL_HOLD, set).await?;
        Ok(S3Response::new(PutObjectLegalHoldOutput::default()))
    }

    pub(crate) async fn get_object_legal_hold(
        &self,
        request: S3Request<GetObjectLegalHoldInput>,
    ) -> S3Result<S3Response<GetObjectLegalHoldOutput>> {
        let (input, call) = self.open(request);
        let version = version_ref(input.version_id.as_deref())?;
        let (bucket, object) =
            self.object(&call, &input.bucket, &input.key, &version, gateway::GET_OBJECT_LEGAL_HOLD).await?;
        check_enabled(&bucket)?;
        let held = legal_hold(&object.attributes).ok_or_else(no_lock)?;
        let status = ObjectLockLegalHoldStatus::from_static(if held { "ON" } else { "OFF" });
        Ok(S3Response::new(GetObjectLegalHoldOutput { legal_hold: Some(ObjectLockLegalHold { status: Some(status) }) }))
    }
}

fn wanted_retention(wanted: Option<&ObjectLockRetention>, now: WallTime) -> S3Result<Option<Retention>> {
    let Some(wanted) = wanted else { return Ok(None) };
    match (&wanted.mode, &wanted.retain_until_date) {
        (None, None) => Ok(None),
        (Some(mode), Some(until)) => {
            check_mode(mode.as_str())?;
            let until = wall(until);
            if until <= now {
                return Err(s3_error!(InvalidArgument, "The retain until date must be in the future!"));
            }
            Ok(Some(Retention { mode: mode.as_str().to_owned(), until }))
        }
        _ => Err(s3_error!(MalformedXML, "A retention needs both a mode and a date")),
    }
}

fn check_configuration(config: &ObjectLockConfiguration) -> S3Result<()> {
    let malformed = |message: &'static str| s3_error!(MalformedXML, "{message}");
    if config.object_lock_enabled.as_ref().map(ObjectLockEnabled::as_str) != Some(ObjectLockEnabled::ENABLED) {
        return Err(malformed("ObjectLockEnabled must be Enabled"));
    }
    let Some(rule) = &config.rule else { return Ok(()) };
    let default = rule.default_retention.as_ref().ok_or_else(|| malformed("A rule needs a DefaultRetention"))?;
    check_mode(default.mode.as_ref().map(ObjectLockRetentionMode::as_str).unwrap_or_default())?;
    let period = match (default.days, default.years) {
        (Some(days), None) => days,
        (None, Some(years)) => years,
        _ => return Err(malformed("A DefaultRetention needs either Days or Years")),
    };
    if period <= 0 {
        return Err(other(
            "InvalidRetentionPeriod",
            http::StatusCode::BAD_REQUEST,
            "Default retention period must be a positive integer value",
        ));
    }
    Ok(())
}

fn check_enabled(bucket: &BucketRecord) -> S3Result<()> {
    if is_enabled(bucket) {
        return Ok(());
    }
    Err(s3_error!(InvalidRequest, "Bucket is missing Object Lock Configuration"))
}

fn check_mode(mode: &str) -> S3Result<()> {
    if [GOVERNANCE, COMPLIANCE].contains(&mode) {
        return Ok(());
    }
    Err(s3_error!(MalformedXML, "A retention's mode is GOVERNANCE or COMPLIANCE, not {mode:?}"))
}

fn check_hold(status: &str) -> S3Result<()> {
    if ["ON", "OFF"].contains(&status) {
        return Ok(());
    }
    Err(s3_error!(MalformedXML, "A legal hold's status is ON or OFF, not {status:?}"))
}

fn no_lock() -> S3Error {
    s3_error!(NoSuchObjectLockConfiguration, "The specified object does not have a ObjectLock configuration")
}

/// To the millisecond: who waits for a lock to end must not come early.
pub(crate) fn exact(time: WallTime) -> Timestamp {
    let nanos = i128::from(time.unix_ms) * 1_000_000;
    time::OffsetDateTime::from_unix_timestamp_nanos(nanos).unwrap_or(time::OffsetDateTime::UNIX_EPOCH).into()
}

fn wall(date: &Timestamp) -> WallTime {
    let ms = time::OffsetDateTime::from(date.clone()).unix_timestamp_nanos() / 1_000_000;
    WallTime { unix_ms: u64::try_from(ms).unwrap_or(0) }
}

const RETENTION: &str = "retention";
const LEGAL_HOLD: &str = "legal-hold";
const GOVERNANCE: &str = "GOVERNANCE";
const COMPLIANCE: &str = "COMPLIANCE";
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn held(mode: &str, until_ms: u64) -> Attributes {
        let mut attributes = Attributes::default();
        set_retention(&mut attributes, &Retention { mode: mode.to_owned(), until: WallTime { unix_ms: until_ms } });
        attributes
    }

    #[test]
    fn governance_can_be_bypassed_and_compliance_cannot() {
        let now = WallTime { unix_ms: 1000 };
        assert!(check_removal(&held(GOVERNANCE, 2000), false, now).is_err());
        assert!(check_removal(&held(GOVERNANCE, 2000), true, now).is_ok());
        assert!(check_removal(&held(COMPLIANCE, 2000), true, now).is_err());
        assert!(check_removal(&held(COMPLIANCE, 1000), false, now).is_ok(), "the date has passed");
    }

    #[test]
    fn a_hold_keeps_whatever_the_date() {
        let mut attributes = Attributes::default();
        attributes.documents.insert(LEGAL_HOLD.to_owned(), "ON".to_owned());
        assert!(check_removal(&attributes, true, WallTime::default()).is_err());
        attributes.documents.insert(LEGAL_HOLD.to_owned(), "OFF".to_owned());
        assert!(check_removal(&attributes, false, WallTime::default()).is_ok());
    }
}
