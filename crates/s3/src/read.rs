//! GET and HEAD of an object, and its attributes.
//!
//! Invariants:
//! 1. One look-up finds the bucket, its documents, the object and its stripes.
//! 2. Nothing of a body is promised before its first piece was read.

use claystone_code::CodeSpec;
use claystone_meta::{BucketRecord, HeatPolicy};
use claystone_object::{ByteRange, Object};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use s3s::dto::{
    Checksum, ChecksumMode, ChecksumType, ETag, GetObjectAttributesInput, GetObjectAttributesOutput,
    GetObjectAttributesParts, GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput, ObjectAttributes,
    ObjectLockLegalHoldStatus, ObjectLockMode, ObjectPart, Range, StorageClass, StreamingBlob, Timestamp,
    TimestampFormat,
};
use s3s::{S3Error, S3Request, S3Response, S3Result, s3_error};

use crate::body::outgoing;
use crate::checksum::with_checksums;
use crate::conditions::{self, Outcome, ReadConditions};
use crate::describe::{DEFAULT_TYPE, REDIRECT};
use crate::documents;
use crate::gateway::{self, Call, Gateway, timestamp, version_ref};
use crate::lock;
use crate::range;

/// What a GET or HEAD asks for.
struct Ask {
    bucket: String,
    key: String,
    version: Option<String>,
    conditions: ReadConditions,
    range: Option<Range>,
    part: Option<i32>,
    checksums: bool,
}

macro_rules! ask {
    ($input:expr) => {
        Ask {
            bucket: $input.bucket,
            key: $input.key,
            version: $input.version_id,
            conditions: ReadConditions {
                if_match: $input.if_match,
                if_none_match: $input.if_none_match,
                if_modified_since: $input.if_modified_since,
                if_unmodified_since: $input.if_unmodified_since,
            },
            range: $input.range,
            part: $input.part_number,
            checksums: $input.checksum_mode.is_some_and(|mode| mode.as_str() == ChecksumMode::ENABLED),
        }
    };
}

/// What was found and how much of it is wanted.
struct Answer {
    bucket: BucketRecord,
    object: Object,
    /// `None`: all of it.
    range: Option<ByteRange>,
    /// Number of parts, if one was asked for.
    parts: Option<i32>,
    /// The checksums to show.
    checksum: Checksum,
}

impl Answer {
    fn bytes(&self) -> u64 {
        self.range.map_or(self.object.record.bytes, |range| range.bytes)
    }

    fn header(&self, name: &str) -> Option<String> {
        self.object.attributes.headers.get(name).cloned()
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let mut put = |name: &'static str, value: String| {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        };
        let tags = self.object.attributes.tags.len();
        if tags > 0 {
            put("x-amz-tagging-count", tags.to_string());
        }
        let codes: Vec<String> = self.object.codes().iter().map(ToString::to_string).collect();
        if !codes.is_empty() {
            put(CODE_HEADER, codes.join(","));
        }
        if let Some(state) = state_of(self.bucket.policy, &self.object.codes()) {
            put(STATE_HEADER, state.to_owned());
        }
        headers
    }
}

macro_rules! output {
    ($output:ident, $answer:expr) => {{
        let answer = &$answer;
        let object = &answer.object;
        let retention = lock::retention(&object.attributes);
        let user = &object.attributes.user;
        let checksum = answer.checksum.clone();
        $output {
            accept_ranges: Some("bytes".to_owned()),
            cache_control: answer.header("cache-control"),
            checksum_type: checksum.checksum_type,
            content_disposition: answer.header("content-disposition"),
            content_encoding: answer.header("content-encoding"),
            content_language: answer.header("content-language"),
            content_length: i64::try_from(answer.bytes()).ok(),
            content_range: answer.range.and_then(|range| range::content_range(range, object.record.bytes)),
            content_type: Some(answer.header("content-type").unwrap_or_else(|| DEFAULT_TYPE.to_owned())),
            e_tag: Some(ETag::Strong(object.record.etag.clone())),
            expires: answer.header("expires").and_then(|date| Timestamp::parse(TimestampFormat::HttpDate, &date).ok()),
            last_modified: Some(timestamp(object.record.created)),
            metadata: (!user.is_empty())
                .then(|| user.iter().map(|(name, value)| (name.clone(), value.clone())).collect()),
            object_lock_legal_hold_status: lock::legal_hold(&object.attributes)
                .map(|held| ObjectLockLegalHoldStatus::from(if held { "ON" } else { "OFF" }.to_owned())),
            object_lock_mode: retention.as_ref().map(|retention| ObjectLockMode::from(retention.mode.clone())),
            object_lock_retain_until_date: retention.as_ref().map(|retention| lock::exact(retention.until)),
            parts_count: answer.parts,
            version_id: documents::versioning(&answer.bucket).map(|_| object.record.version.0.clone()),
            website_redirect_location: answer.header(REDIRECT),
            ..with_checksums!($output, checksum)
        }
    }};
}

impl Gateway {
    pub(crate) async fn get_object(&self, request: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let (input, call) = self.open(request);
        let overrides = [
            input.response_cache_control.is_some(),
            input.response_content_disposition.is_some(),
            input.response_content_encoding.is_some(),
            input.response_content_language.is_some(),
            input.response_content_type.is_some(),
            input.response_expires.is_some(),
        ];
        if call.who.is_none() && overrides.contains(&true) {
            return Err(s3_error!(
                InvalidRequest,
                "Request specific response headers cannot be used for anonymous GET requests"
            ));
        }
        let answer = self.answer(&call, ask!(input)).await?;
        let mut output = output!(GetObjectOutput, answer);
        if answer.bytes() > 0 {
            let body = self.objects.read(&answer.object, answer.range);
            output.body = Some(outgoing(body, answer.bytes()).await?);
        } else {
            output.body = Some(StreamingBlob::from(s3s::Body::empty()));
        }
        Ok(S3Response::with_headers(output, answer.headers()))
    }

    pub(crate) async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let (input, call) = self.open(request);
        let answer = self.answer(&call, ask!(input)).await?;
        let output = output!(HeadObjectOutput, answer);
        Ok(S3Response::with_headers(output, answer.headers()))
    }

    async fn answer(&self, call: &Call, ask: Ask) -> S3Result<Answer> {
        let version = version_ref(ask.version.as_deref())?;
        let action = if ask.version.is_some() { gateway::GET_OBJECT_VERSION } else { gateway::GET_OBJECT };
        let (bucket, object) = self.object(call, &ask.bucket, &ask.key, &version, action).await?;
        match ask.conditions.check(&object.record.etag, object.record.created) {
            Outcome::Proceed => {}
            Outcome::NotModified => return Err(not_modified(&object)),
            Outcome::Failed => return Err(conditions::failed()),
        }
        let mut answer = Answer { bucket, object, range: None, parts: None, checksum: Checksum::default() };
        match (ask.part, &ask.range) {
            (Some(_), Some(_)) => {
                return Err(s3_error!(
                    InvalidRequest,
                    "Cannot specify both Range header and partNumber query parameter"
                ));
            }
            (Some(number), None) => answer.choose_part(number, ask.checksums)?,
            (None, Some(wanted)) => answer.range = Some(range::resolve(wanted, answer.object.record.bytes)?),
            (None, None) if ask.checksums => answer.checksum = whole_checksum(&answer.object),
            (None, None) => {}
        }
        Ok(answer)
    }

    pub(crate) async fn get_object_attributes(
        &self,
        request: S3Request<GetObjectAttributesInput>,
    ) -> S3Result<S3Response<GetObjectAttributesOutput>> {
        let (input, call) = self.open(request);
        let version = version_ref(input.version_id.as_deref())?;
        let action = if input.version_id.is_some() { gateway::GET_OBJECT_VERSION } else { gateway::GET_OBJECT };
        let (bucket, object) = self.object(&call, &input.bucket, &input.key, &version, action).await?;
        let names: Vec<String> = input
            .object_attributes
            .iter()
            .flat_map(|names| names.as_str().split(','))
            .map(|name| name.trim().to_owned())
            .collect();
        let wants = |name: &str| names.iter().any(|wanted| wanted == name);
        let checksum = wants(ObjectAttributes::CHECKSUM).then(|| whole_checksum(&object));
        let output = GetObjectAttributesOutput {
            checksum: checksum.filter(|_| !object.attributes.checksums.is_empty()),
            delete_marker: None,
            e_tag: wants(ObjectAttributes::ETAG).then(|| ETag::Strong(object.record.etag.clone())),
            last_modified: Some(timestamp(object.record.created)),
            object_parts: (wants(ObjectAttributes::OBJECT_PARTS) && !object.attributes.parts.is_empty())
                .then(|| parts_page(&object, input.max_parts, input.part_number_marker)),
            object_size: if wants(ObjectAttributes::OBJECT_SIZE) {
                i64::try_from(object.record.bytes).ok()
            } else {
                None
            },
            request_charged: None,
            storage_class: wants(ObjectAttributes::STORAGE_CLASS)
                .then(|| StorageClass::from_static(StorageClass::STANDARD)),
            version_id: documents::versioning(&bucket).map(|_| object.record.version.0.clone()),
        };
        Ok(S3Response::new(output))
    }
}

impl Answer {
    /// Narrows the answer to one part. A plain object is a part 1 of itself.
    fn choose_part(&mut self, number: i32, checksums: bool) -> S3Result<()> {
        let attributes = &self.object.attributes;
        let invalid = || s3_error!(InvalidPart, "The requested partnumber {number} is not satisfiable");
        if attributes.parts.is_empty() {
            if number != 1 {
                return Err(invalid());
            }
            if checksums {
                self.checksum = whole_checksum(&self.object);
            }
            return Ok(());
        }
        let mut offset = 0;
        for part in &attributes.parts {
            if i64::from(part.number) != i64::from(number) {
                offset += part.bytes;
                continue;
            }
            if checksums {
                self.checksum = to_checksum(&part.checksums, attributes.checksum_type.as_deref());
            }
            self.range = Some(ByteRange { offset, bytes: part.bytes });
            self.parts = i32::try_from(attributes.parts.len()).ok();
            return Ok(());
        }
        Err(invalid())
    }
}

/// The checksums of an object, for a response.
pub(crate) fn whole_checksum(object: &Object) -> Checksum {
    to_checksum(&object.attributes.checksums, object.attributes.checksum_type.as_deref())
}

/// Stored checksums, for a response.
pub(crate) fn to_checksum(values: &std::collections::BTreeMap<String, String>, kind: Option<&str>) -> Checksum {
    let value = |name: &str| values.get(name).cloned();
    let kind = kind.unwrap_or(ChecksumType::FULL_OBJECT);
    Checksum {
        checksum_crc32: value("crc32"),
        checksum_crc32c: value("crc32c"),
        checksum_crc64nvme: value("crc64nvme"),
        checksum_sha1: value("sha1"),
        checksum_sha256: value("sha256"),
        checksum_type: (!values.is_empty()).then(|| ChecksumType::from(kind.to_owned())),
    }
}

fn parts_page(object: &Object, limit: Option<i32>, after: Option<i32>) -> GetObjectAttributesParts {
    let parts = &object.attributes.parts;
    let limit = limit.unwrap_or(PARTS_SHOWN_MAX).clamp(0, PARTS_SHOWN_MAX);
    let after = after.unwrap_or(0);
    let rest = parts.iter().filter(|part| i64::from(part.number) > i64::from(after));
    let left = rest.clone().count();
    let page: Vec<ObjectPart> = rest
        .take(limit as usize)
        .map(|part| {
            let checksum = to_checksum(&part.checksums, None);
            ObjectPart {
                part_number: i32::try_from(part.number).ok(),
                size: i64::try_from(part.bytes).ok(),
                ..with_checksums!(ObjectPart, checksum)
            }
        })
        .collect();
    GetObjectAttributesParts {
        is_truncated: Some(left > page.len()),
        max_parts: Some(limit),
        next_part_number_marker: Some(page.last().and_then(|part| part.part_number).unwrap_or(after)),
        part_number_marker: Some(after),
        parts: Some(page),
        total_parts_count: i32::try_from(parts.len()).ok(),
    }
}

fn not_modified(object: &Object) -> S3Error {
    let mut error = s3_error!(NotModified);
    let mut headers = HeaderMap::new();
    if let Ok(etag) = ETag::Strong(object.record.etag.clone()).to_http_header() {
        headers.insert(header::ETAG, etag);
    }
    if let Some(date) = crate::describe::http_date(&timestamp(object.record.created)).and_then(|date| date.parse().ok())
    {
        headers.insert(header::LAST_MODIFIED, date);
    }
    error.set_headers(headers);
    error
}

/// How an object of a bucket whose redundancy follows heat is kept: `fresh`, `fast`, `compact`, `mixed` if some of its stripes
/// are the one and some another, or `other` if all have other codes. Ends of objects may be too short for any of these.
fn state_of(policy: Option<HeatPolicy>, codes: &[CodeSpec]) -> Option<&'static str> {
    let policy = policy?;
    let has = |is: &dyn Fn(CodeSpec) -> bool| codes.iter().any(|code| is(*code));
    let states = [
        (has(&|code| policy.is_fresh(code)), "fresh"),
        (has(&|code| code == policy.fast), "fast"),
        (has(&|code| code == policy.compact), "compact"),
    ];
    let mut found = states.into_iter().filter_map(|(has, state)| has.then_some(state));
    Some(match (found.next(), found.next()) {
        _ if codes.is_empty() => return None,
        (Some(state), None) => state,
        (Some(_), Some(_)) => "mixed",
        (None, _) => "other",
    })
}

/// Header that tells how an object of a bucket with a policy is kept.
const STATE_HEADER: &str = "x-claystone-state";
/// Header that tells the code of a bucket or object.
pub const CODE_HEADER: &str = "x-claystone-code";
const PARTS_SHOWN_MAX: i32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_what_all_of_its_stripes_are() {
        let policy = |text: &str| text.parse::<HeatPolicy>().expect("a valid policy");
        let now = policy("replica:3/rsm:6+3/rsm:12+3<=400%,0.25..1.00");
        let state = |policy: Option<HeatPolicy>, codes: &[&str]| {
            let codes: Vec<CodeSpec> = codes.iter().map(|code| code.parse().expect("a valid code")).collect();
            state_of(policy, &codes)
        };
        for (codes, expected) in [
            (&["mirror:6x3"][..], "fresh"),
            (&["rsm:6+3", "rsm:6+3"], "fast"),
            (&["rsm:12+3"], "compact"),
            (&["rsm:12+3", "rsm:6+3"], "mixed"),
            // The end of a long object.
            (&["rsm:6+3", "rs:4+2"], "fast"),
            (&["rs:4+2"], "other"),
            // Copies that it does not make, but of its data chunks, of an earlier policy.
            (&["mirror:6x4"], "fresh"),
            (&["hybrid:rsm:6+3x2"], "fresh"),
            (&["mirror:4x3"], "other"),
        ] {
            assert_eq!(state(Some(now), codes), Some(expected), "{codes:?}");
        }
        assert_eq!(state(Some(policy("rsm:6+3/rsm:12+3<=400%,0.25..1.00")), &["mirror:6x3"]), Some("fresh"));
        assert_eq!(state(Some(now), &[]), None);
        assert_eq!(state(None, &["rsm:6+3"]), None);
    }
}
