//! Multipart uploads.
//!
//! Invariants:
//! 1. What is said when an upload begins (headers, tags, list, checksum) is what its object has.
//! 2. Completing again what was completed answers as the first time, as long as its object is the current one.
//! 3. A checksum the client names for the whole must be the one that follows from the parts.

use std::collections::BTreeMap;

use claystone_meta::{BucketRecord, PartRecord, UploadId, UploadRecord, VersionRef};
use claystone_object::{
    Attributes, ByteRange, CompletePart, CopySource, NewUpload, Object, Part as NewPart, PartAttributes,
};
use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, ChecksumType, CompleteMultipartUploadInput,
    CompleteMultipartUploadOutput, CompletedPart, CreateMultipartUploadInput, CreateMultipartUploadOutput, ETag,
    Initiator, ListPartsInput, ListPartsOutput, Part, StorageClass, UploadPartInput, UploadPartOutput,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result, s3_error};

use crate::acl::{self, Acl};
use crate::body::incoming;
use crate::checksum::{self, Declared, Kind, checksums_of, with_checksums};
use crate::conditions::precondition;
use crate::describe::describe;
use crate::documents;
use crate::error::from_object;
use crate::gateway::{self, Gateway, Target, timestamp};
use crate::lock::{self, Locks};
use crate::read::to_checksum;
use crate::write::{body_bytes, shown_version};

/// How an upload makes the checksum of its object; kept with the upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) full_object: bool,
}

impl Plan {
    /// The plan kept in an upload's attributes.
    pub(crate) fn of(attributes: &Attributes) -> Option<Plan> {
        let kind = Kind::named(attributes.documents.get(ALGORITHM)?)?;
        Some(Plan { kind, full_object: attributes.checksum_type.as_deref() == Some(ChecksumType::FULL_OBJECT) })
    }

    pub(crate) fn type_name(self) -> &'static str {
        if self.full_object { ChecksumType::FULL_OBJECT } else { ChecksumType::COMPOSITE }
    }
}

impl Gateway {
    pub(crate) async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let (mut input, call) = self.open(request);
        let bucket = self.bucket_for(&call, &input.bucket, gateway::PUT_OBJECT, Target::Key(&input.key)).await?;
        let acl = self.new_acl(&call, &bucket, &call.asked_acl())?;
        let mut attributes = describe!(input).into_attributes()?;
        acl.keep(&mut attributes, &bucket);
        let locks = Locks {
            mode: input.object_lock_mode.map(|mode| mode.as_str().to_owned()),
            until: input.object_lock_retain_until_date,
            hold: input.object_lock_legal_hold_status.map(|status| status.as_str().to_owned()),
        };
        lock::keep(locks, &mut attributes, &bucket, self.env.clock.wall())?;
        let algorithm = input.checksum_algorithm.as_ref().map(|algorithm| algorithm.as_str());
        let plan = plan(algorithm, input.checksum_type.as_ref().map(|kind| kind.as_str()))?;
        if let Some(plan) = plan {
            attributes.documents.insert(ALGORITHM.to_owned(), plan.kind.name().to_owned());
            attributes.checksum_type = Some(plan.type_name().to_owned());
        }
        let upload = NewUpload { bucket: bucket.name.clone(), key: input.key.clone(), attributes };
        let upload = self.objects.create_upload(upload).await.map_err(from_object)?;
        Ok(S3Response::new(CreateMultipartUploadOutput {
            bucket: Some(bucket.name),
            checksum_algorithm: plan.map(|plan| plan.kind.label()),
            checksum_type: plan.map(|plan| ChecksumType::from_static(plan.type_name())),
            key: Some(input.key),
            upload_id: Some(upload.id.0),
            ..CreateMultipartUploadOutput::default()
        }))
    }

    pub(crate) async fn upload_part(
        &self,
        request: S3Request<UploadPartInput>,
    ) -> S3Result<S3Response<UploadPartOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.bucket_for(&call, &input.bucket, gateway::PUT_OBJECT, Target::Key(&input.key)).await?;
        let number = part_number(input.part_number)?;
        let upload = UploadId(input.upload_id);
        let record = self.objects.upload(&bucket.name, &input.key, &upload).await.map_err(from_object)?;
        let plan = Plan::of(&Attributes::decode(&record.attributes).map_err(from_object)?);
        let mut declared = Declared::from_headers(&call.headers)?;
        if let Some(plan) = plan {
            declared.want(plan.kind.name())?;
        }
        let bytes = body_bytes(&call, input.content_length, input.body.as_ref())?;
        check_part_bytes(bytes)?;
        let trailers = call.trailers.clone();
        let part = NewPart {
            bucket: bucket.name,
            key: input.key,
            upload,
            number,
            bytes,
            body: incoming(input.body, bytes),
            digests: declared.algorithms(),
            confirm: Box::new(move |digests| declared.confirm(digests, trailers.as_ref())),
        };
        let part = self.objects.put_part(part).await.map_err(from_object)?;
        let attributes = PartAttributes::decode(&part.attributes).map_err(from_object)?;
        let checksum = to_checksum(&attributes.checksums, None);
        Ok(S3Response::new(UploadPartOutput {
            e_tag: Some(ETag::Strong(part.etag)),
            ..with_checksums!(UploadPartOutput, checksum)
        }))
    }

    /// Makes a part of another object's bytes, with the checksum that the upload wants.
    pub(crate) async fn copy_part(
        &self,
        bucket: &BucketRecord,
        key: &str,
        upload: &str,
        number: i32,
        source: &Object,
        range: Option<ByteRange>,
    ) -> S3Result<PartRecord> {
        let number = part_number(number)?;
        let upload = UploadId(upload.to_owned());
        let record = self.objects.upload(&bucket.name, key, &upload).await.map_err(from_object)?;
        let bytes = range.map_or(source.record.bytes, |range| range.bytes);
        check_part_bytes(bytes)?;
        let Some(plan) = Plan::of(&Attributes::decode(&record.attributes).map_err(from_object)?) else {
            let source = CopySource { object: source.clone(), range };
            return self.objects.copy_part(&bucket.name, key, &upload, number, source).await.map_err(from_object);
        };
        let mut declared = Declared::default();
        declared.want(plan.kind.name())?;
        let part = NewPart {
            bucket: bucket.name.clone(),
            key: key.to_owned(),
            upload,
            number,
            bytes,
            body: self.objects.read(source, range),
            digests: declared.algorithms(),
            confirm: Box::new(move |digests| declared.confirm(digests, None)),
        };
        self.objects.put_part(part).await.map_err(from_object)
    }

    pub(crate) async fn list_parts(&self, request: S3Request<ListPartsInput>) -> S3Result<S3Response<ListPartsOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.bucket_for(&call, &input.bucket, gateway::LIST_PARTS, Target::Key(&input.key)).await?;
        let upload = UploadId(input.upload_id);
        let record = self.objects.upload(&bucket.name, &input.key, &upload).await.map_err(from_object)?;
        let attributes = Attributes::decode(&record.attributes).map_err(from_object)?;
        let negative = || s3_error!(InvalidArgument, "max-parts and part-number-marker must not be negative");
        let limit = input.max_parts.unwrap_or(PARTS_SHOWN_MAX).min(PARTS_SHOWN_MAX);
        let limit = usize::try_from(limit).map_err(|_| negative())?;
        let after = u32::try_from(input.part_number_marker.unwrap_or(0)).map_err(|_| negative())?;
        let (parts, truncated) = match limit {
            0 => (Vec::new(), false),
            _ => self.objects.parts(&bucket.name, &input.key, &upload, after, limit).await.map_err(from_object)?,
        };
        let next = parts.last().map_or(after, |part| part.number);
        let parts: Vec<Part> = parts.into_iter().map(part_entry).collect::<S3Result<_>>()?;
        let owner = acl::owner(&Acl::of_object(&attributes, &bucket).owner, &*self.keys);
        let plan = Plan::of(&attributes);
        Ok(S3Response::new(ListPartsOutput {
            bucket: Some(bucket.name),
            checksum_algorithm: plan.map(|plan| plan.kind.label()),
            checksum_type: plan.map(|plan| ChecksumType::from_static(plan.type_name())),
            initiator: Some(Initiator { display_name: owner.display_name.clone(), id: owner.id.clone() }),
            is_truncated: Some(truncated),
            key: Some(input.key),
            max_parts: i32::try_from(limit).ok(),
            next_part_number_marker: i32::try_from(next).ok(),
            owner: Some(owner),
            part_number_marker: i32::try_from(after).ok(),
            parts: Some(parts),
            storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
            upload_id: Some(upload.0),
            ..ListPartsOutput::default()
        }))
    }

    pub(crate) async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.bucket_for(&call, &input.bucket, gateway::ABORT_UPLOAD, Target::Key(&input.key)).await?;
        let upload = UploadId(input.upload_id);
        self.objects.abort_upload(&bucket.name, &input.key, &upload).await.map_err(from_object)?;
        Ok(S3Response::new(AbortMultipartUploadOutput::default()))
    }

    pub(crate) async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let (mut input, call) = self.open(request);
        let bucket = self.bucket_for(&call, &input.bucket, gateway::PUT_OBJECT, Target::Key(&input.key)).await?;
        let named = input.multipart_upload.take().and_then(|upload| upload.parts).unwrap_or_default();
        if named.is_empty() {
            return Err(s3_error!(MalformedXML, "A completion must name at least one part"));
        }
        let id = UploadId(input.upload_id.clone());
        let upload = match self.objects.upload(&bucket.name, &input.key, &id).await.map_err(from_object) {
            Ok(upload) => upload,
            Err(error) if *error.code() == S3ErrorCode::NoSuchUpload => {
                return self.completed_before(&bucket, &input.key, &id).await?.ok_or(error);
            }
            Err(error) => return Err(error),
        };
        let wanted = wanted_parts(&named)?;
        let parts = self.named_parts(&bucket, &upload, &wanted, &named).await?;
        let object_bytes: u64 = parts.iter().map(|part| part.bytes).sum();
        if input.mpu_object_size.is_some_and(|bytes| u64::try_from(bytes) != Ok(object_bytes)) {
            return Err(s3_error!(
                InvalidRequest,
                "The parts have {object_bytes} bytes, another x-amz-mp-object-size was given"
            ));
        }
        let mut attributes = Attributes::decode(&upload.attributes).map_err(from_object)?;
        let plan = Plan::of(&attributes);
        attributes.documents.remove(ALGORITHM);
        attributes.documents.insert(UPLOAD.to_owned(), id.0.clone());
        if let Some(plan) = plan {
            let value = checksum::of_parts(plan.kind, plan.full_object, &parts).ok_or_else(|| {
                s3_error!(
                    InvalidRequest,
                    "A part lacks the {} checksum that the upload was begun with",
                    plan.kind.name()
                )
            })?;
            attributes.checksums.insert(plan.kind.name().to_owned(), value);
        }
        check_whole(&input, plan, &attributes.checksums)?;
        attributes.parts = parts;
        let precondition = precondition(input.if_match.take(), input.if_none_match.take())?;
        self.foresee(&bucket.name, &input.key, &precondition).await?;
        let etag = checksum::etag_of_parts(wanted.iter().map(|part| part.etag.as_str()));
        let versioning = self.versioning(&bucket);
        let kind = attributes.checksum_type.clone();
        let written = self
            .objects
            .complete_upload(&bucket.name, &upload, &wanted, versioning, precondition, etag, attributes)
            .await
            .map_err(from_object)?;
        let version = shown_version(&bucket, &written);
        let done = Done { etag: written.etag, version, checksums: written.checksums, checksum_type: kind };
        Ok(done.response(&bucket, &input.key))
    }

    /// The answer to a completion that was answered before.
    async fn completed_before(
        &self,
        bucket: &BucketRecord,
        key: &str,
        id: &UploadId,
    ) -> S3Result<Option<S3Response<CompleteMultipartUploadOutput>>> {
        let found = self.objects.find(&bucket.name, key, &VersionRef::Current).await.map_err(from_object)?;
        let done =
            found.object.filter(|object| object.attributes.documents.get(UPLOAD) == Some(&id.0)).map(|object| Done {
                etag: object.record.etag,
                version: documents::versioning(bucket).map(|_| object.record.version.0),
                checksums: object.attributes.checksums,
                checksum_type: object.attributes.checksum_type,
            });
        Ok(done.map(|done| done.response(bucket, key)))
    }

    /// The attributes of the named parts, in order.
    async fn named_parts(
        &self,
        bucket: &BucketRecord,
        upload: &UploadRecord,
        wanted: &[CompletePart],
        named: &[CompletedPart],
    ) -> S3Result<Vec<PartAttributes>> {
        let (records, _) =
            self.objects.parts(&bucket.name, &upload.key, &upload.id, 0, PARTS_MAX).await.map_err(from_object)?;
        let records: BTreeMap<u32, PartRecord> = records.into_iter().map(|part| (part.number, part)).collect();
        let mut parts = Vec::with_capacity(wanted.len());
        for (part, named) in wanted.iter().zip(named) {
            let record = records.get(&part.number).filter(|record| record.etag == part.etag);
            let record = record.ok_or_else(|| invalid_part(part.number))?;
            let attributes = PartAttributes::decode(&record.attributes).map_err(from_object)?;
            let differs = |(kind, value): (Kind, &String)| {
                attributes.checksums.get(kind.name()).is_some_and(|stored| stored != value)
            };
            if checksums_of!(named).any(differs) {
                return Err(invalid_part(part.number));
            }
            parts.push(PartAttributes { number: record.number, bytes: record.bytes, ..attributes });
        }
        Ok(parts)
    }
}

/// A completed upload, for the answer.
struct Done {
    etag: String,
    version: Option<String>,
    checksums: BTreeMap<String, String>,
    checksum_type: Option<String>,
}

impl Done {
    fn response(self, bucket: &BucketRecord, key: &str) -> S3Response<CompleteMultipartUploadOutput> {
        let checksum = to_checksum(&self.checksums, self.checksum_type.as_deref());
        S3Response::new(CompleteMultipartUploadOutput {
            bucket: Some(bucket.name.clone()),
            checksum_type: checksum.checksum_type,
            e_tag: Some(ETag::Strong(self.etag)),
            key: Some(key.to_owned()),
            location: Some(format!("/{}/{key}", bucket.name)),
            version_id: self.version,
            ..with_checksums!(CompleteMultipartUploadOutput, checksum)
        })
    }
}

/// Compares the checksums that a completion names for the whole with what follows from the parts.
fn check_whole(
    input: &CompleteMultipartUploadInput,
    plan: Option<Plan>,
    computed: &BTreeMap<String, String>,
) -> S3Result<()> {
    if let (Some(asked), Some(plan)) = (&input.checksum_type, plan)
        && asked.as_str() != plan.type_name()
    {
        return Err(s3_error!(
            InvalidRequest,
            "The upload was created with the {} checksum type, not {}",
            plan.type_name(),
            asked.as_str()
        ));
    }
    for (kind, value) in checksums_of!(input) {
        let own = computed.get(kind.name());
        // A composite value may be named without the number of parts.
        let equal = own.is_some_and(|own| own == value || own.split('-').next() == Some(value));
        if !equal {
            return Err(s3_error!(
                BadDigest,
                "The {} you specified did not match the calculated checksum",
                kind.name()
            ));
        }
    }
    Ok(())
}

fn plan(algorithm: Option<&str>, kind: Option<&str>) -> S3Result<Option<Plan>> {
    let Some(algorithm) = algorithm else {
        return match kind {
            Some(_) => Err(s3_error!(
                InvalidRequest,
                "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header"
            )),
            None => Ok(None),
        };
    };
    let algorithm = Kind::named(algorithm)
        .ok_or_else(|| s3_error!(InvalidRequest, "Checksum algorithm provided is unsupported: {algorithm}"))?;
    let full_object = match kind.unwrap_or(algorithm.default_type()) {
        ChecksumType::FULL_OBJECT => true,
        ChecksumType::COMPOSITE => false,
        kind => return Err(s3_error!(InvalidRequest, "Value for x-amz-checksum-type header is invalid: {kind}")),
    };
    checksum::check_type(algorithm, full_object)?;
    Ok(Some(Plan { kind: algorithm, full_object }))
}

fn wanted_parts(named: &[CompletedPart]) -> S3Result<Vec<CompletePart>> {
    let mut wanted: Vec<CompletePart> = Vec::with_capacity(named.len());
    for part in named {
        let (Some(number), Some(etag)) = (part.part_number, &part.e_tag) else {
            return Err(s3_error!(MalformedXML, "Each part needs a PartNumber and an ETag"));
        };
        let number = part_number(number)?;
        if wanted.last().is_some_and(|last| last.number >= number) {
            return Err(s3_error!(InvalidPartOrder, "The list of parts was not in ascending order"));
        }
        wanted.push(CompletePart { number, etag: etag.value().to_owned() });
    }
    Ok(wanted)
}

fn part_number(number: i32) -> S3Result<u32> {
    let number = u32::try_from(number).ok().filter(|number| (1..=PARTS_MAX as u32).contains(number));
    number.ok_or_else(|| {
        s3_error!(InvalidArgument, "Part number must be an integer between 1 and {PARTS_MAX}, inclusive")
    })
}

fn check_part_bytes(bytes: u64) -> S3Result<()> {
    if bytes > PART_BYTES_MAX {
        return Err(s3_error!(EntityTooLarge, "A part can have at most {PART_BYTES_MAX} bytes, not {bytes}"));
    }
    Ok(())
}

fn invalid_part(number: u32) -> S3Error {
    s3_error!(
        InvalidPart,
        "Part {number} was not uploaded, or its entity tag or checksum is not the one that its upload returned"
    )
}

fn part_entry(record: PartRecord) -> S3Result<Part> {
    let attributes = PartAttributes::decode(&record.attributes).map_err(from_object)?;
    let checksum = to_checksum(&attributes.checksums, None);
    Ok(Part {
        e_tag: Some(ETag::Strong(record.etag)),
        last_modified: Some(timestamp(record.created)),
        part_number: i32::try_from(record.number).ok(),
        size: i64::try_from(record.bytes).ok(),
        ..with_checksums!(Part, checksum)
    })
}

/// Document of an upload: the algorithm of its checksum.
const ALGORITHM: &str = "checksum-algorithm";
/// Document of an object: the upload it came from.
const UPLOAD: &str = "upload";
const PARTS_MAX: usize = 10_000;
const PARTS_SHOWN_MAX: i32 = 1000;
const PART_BYTES_MAX: u64 = 5 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    fn code<T>(result: S3Result<T>) -> Result<T, String> {
        result.map_err(|error| error.code().as_str().to_owned())
    }

    #[test]
    fn algorithms_have_the_types_that_can_be_computed() {
        let planned = |algorithm, kind| code(plan(Some(algorithm), kind)).map(|plan| plan.map(Plan::type_name));
        assert_eq!(planned("CRC64NVME", None), Ok(Some("FULL_OBJECT")));
        assert_eq!(planned("SHA256", None), Ok(Some("COMPOSITE")));
        assert_eq!(planned("CRC32", Some("FULL_OBJECT")), Ok(Some("FULL_OBJECT")));
        assert_eq!(planned("SHA1", Some("FULL_OBJECT")), Err("InvalidRequest".to_owned()));
        assert_eq!(planned("CRC64NVME", Some("COMPOSITE")), Err("InvalidRequest".to_owned()));
        assert_eq!(code(plan(None, Some("COMPOSITE"))), Err("InvalidRequest".to_owned()));
    }

    #[test]
    fn parts_are_named_once_each_in_ascending_order() {
        let named = |numbers: &[i32]| {
            let part = |&number| CompletedPart {
                part_number: Some(number),
                e_tag: Some(ETag::Strong("e".to_owned())),
                ..CompletedPart::default()
            };
            code(wanted_parts(&numbers.iter().map(part).collect::<Vec<_>>())).map(|parts| parts.len())
        };
        assert_eq!(named(&[1, 2, 10_000]), Ok(3));
        assert_eq!(named(&[2, 1]), Err("InvalidPartOrder".to_owned()));
        assert_eq!(named(&[1, 1]), Err("InvalidPartOrder".to_owned()));
        assert_eq!(named(&[0]), Err("InvalidArgument".to_owned()));
        assert_eq!(named(&[10_001]), Err("InvalidArgument".to_owned()));
    }
}
