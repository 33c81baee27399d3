//! Multipart uploads: parts are contents of their own until the upload is completed.

use claystone_meta::{
    BucketId, BucketRecord, Completed, HeatPolicy, ListPage, ListQuery, NewContent, NewObject, PartRecord,
    Precondition, UploadId, UploadRecord, Versioning,
};

use crate::objects::{Confirm, CopySource, Objects, Written};
use crate::transfer::Stored;
use crate::{Algorithm, Attributes, Body, ObjectError, PartAttributes};

/// An upload to begin.
#[derive(Debug, Clone)]
pub struct NewUpload {
    /// Bucket.
    pub bucket: String,
    /// Key.
    pub key: String,
    /// Of the object to come.
    pub attributes: Attributes,
}

/// A part to write.
pub struct Part {
    /// Bucket of the upload.
    pub bucket: String,
    /// Key of the upload.
    pub key: String,
    /// The upload.
    pub upload: UploadId,
    /// Number, 1 to 10,000.
    pub number: u32,
    /// Declared length.
    pub bytes: u64,
    /// The bytes.
    pub body: Body,
    /// Checksums to compute.
    pub digests: Vec<Algorithm>,
    /// Has the last word.
    pub confirm: Confirm,
}

/// A part as a completion names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletePart {
    /// Number.
    pub number: u32,
    /// Entity tag without quotes.
    pub etag: String,
}

impl Objects {
    /// Begins a multipart upload.
    ///
    /// # Errors
    /// `Meta(NoSuchBucket)`.
    pub async fn create_upload(&self, upload: NewUpload) -> Result<UploadRecord, ObjectError> {
        let bucket = self.meta.bucket(&upload.bucket).await?;
        let mut id = [0; 16];
        self.env.random.fill(&mut id);
        let record = UploadRecord {
            id: UploadId(hex::encode(id)),
            bucket: bucket.id,
            key: upload.key,
            created: self.env.clock.wall(),
            attributes: upload.attributes.encode(),
        };
        self.meta.create_upload(record.clone()).await?;
        Ok(record)
    }

    /// One upload.
    ///
    /// # Errors
    /// `Meta(NoSuchBucket | NoSuchUpload)`.
    pub async fn upload(&self, bucket: &str, key: &str, id: &UploadId) -> Result<UploadRecord, ObjectError> {
        let bucket = self.meta.bucket(bucket).await?;
        Ok(self.meta.upload(bucket.id, key, id).await?)
    }

    /// Writes a part, replacing one of the same number.
    ///
    /// # Errors
    /// As [`Objects::put`], and `Meta(NoSuchUpload)`.
    pub async fn put_part(&self, part: Part) -> Result<PartRecord, ObjectError> {
        let bucket = self.bucket_of_parts(&part.bucket).await?;
        self.meta.upload(bucket.id, &part.key, &part.upload).await?;
        let stored = self.store(&bucket, part.bytes, part.body, &part.digests).await?;
        match (part.confirm)(&stored.digests) {
            Ok(confirmed) => {
                let attributes =
                    PartAttributes { number: part.number, bytes: part.bytes, checksums: confirmed.checksums };
                self.commit_part(&part.upload, attributes, confirmed.etag, stored).await
            }
            Err(error) => {
                self.abandon(stored.source);
                Err(error.into())
            }
        }
    }

    /// Writes a part from an existing object's bytes; its entity tag is their MD5.
    ///
    /// # Errors
    /// As [`Objects::put_part`]; `OutOfRange` if the range is not inside the source.
    pub async fn copy_part(
        &self,
        bucket: &str,
        key: &str,
        upload: &UploadId,
        number: u32,
        source: CopySource,
    ) -> Result<PartRecord, ObjectError> {
        let bucket = self.bucket_of_parts(bucket).await?;
        self.meta.upload(bucket.id, key, upload).await?;
        let object_bytes = source.object.record.bytes;
        if let Some(range) = source.range
            && range.end() > object_bytes
        {
            return Err(ObjectError::OutOfRange { offset: range.offset, object_bytes });
        }
        let bytes = source.range.map_or(object_bytes, |range| range.bytes);
        let body = self.read(&source.object, source.range);
        let stored = self.store(&bucket, bytes, body, &[Algorithm::Md5]).await?;
        let etag = hex::encode(&stored.digests.values[&Algorithm::Md5]);
        let attributes = PartAttributes { number, bytes, ..PartAttributes::default() };
        self.commit_part(upload, attributes, etag, stored).await
    }

    /// A bucket as parts are written into it: they belong to long objects, which are not replicated first.
    async fn bucket_of_parts(&self, name: &str) -> Result<BucketRecord, ObjectError> {
        let mut bucket = self.meta.bucket(name).await?;
        bucket.policy = bucket.policy.map(|policy| HeatPolicy { fresh: None, ..policy });
        Ok(bucket)
    }

    /// Parts with numbers greater than `after`, and whether more follow.
    ///
    /// # Errors
    /// `Meta(NoSuchBucket | NoSuchUpload)`.
    pub async fn parts(
        &self,
        bucket: &str,
        key: &str,
        upload: &UploadId,
        after: u32,
        limit: usize,
    ) -> Result<(Vec<PartRecord>, bool), ObjectError> {
        let bucket = self.meta.bucket(bucket).await?;
        self.meta.upload(bucket.id, key, upload).await?;
        Ok(self.meta.parts(upload, after, limit).await?)
    }

    /// Turns parts into an object. `attributes` are the upload's with what completion adds (checksums, part list).
    ///
    /// # Errors
    /// `PartOrder`, `PartTooSmall`, `TooLarge`, `Meta(NoSuchUpload | InvalidPart | PreconditionFailed)`. After any
    /// error the upload is as it was.
    #[allow(
        clippy::too_many_arguments,
        reason = "each is a part of the one transaction, a struct would only rename them"
    )]
    pub async fn complete_upload(
        &self,
        bucket: &str,
        upload: &UploadRecord,
        parts: &[CompletePart],
        versioning: Versioning,
        precondition: Precondition,
        etag: String,
        attributes: Attributes,
    ) -> Result<Written, ObjectError> {
        let bucket = self.meta.bucket(bucket).await?;
        if parts.is_empty() || !parts.is_sorted_by(|a, b| a.number < b.number) {
            return Err(ObjectError::PartOrder);
        }
        let bytes = self.completed_bytes(upload, parts).await?;
        let created = self.env.clock.wall();
        let object = NewObject {
            bucket: bucket.id,
            key: upload.key.clone(),
            versioning,
            precondition,
            content: NewContent::Empty,
            bytes,
            etag: etag.clone(),
            created,
            attributes: attributes.encode(),
        };
        let named = parts.iter().map(|part| (part.number, part.etag.clone())).collect();
        let completed = Completed { object, upload: upload.id.clone(), parts: named };
        let outcome = self.meta.complete_upload(completed).await?;
        Ok(Written { version: outcome.version, etag, bytes, created, checksums: attributes.checksums })
    }

    /// Forgets an upload; its parts die.
    ///
    /// # Errors
    /// `Meta(NoSuchBucket | NoSuchUpload)`.
    pub async fn abort_upload(&self, bucket: &str, key: &str, id: &UploadId) -> Result<(), ObjectError> {
        let bucket = self.meta.bucket(bucket).await?;
        self.meta.abort_upload(bucket.id, key, id).await?;
        Ok(())
    }

    /// Lists uploads by key, then id.
    ///
    /// # Errors
    /// `Meta`.
    pub async fn list_uploads(
        &self,
        bucket: BucketId,
        query: &ListQuery,
        after: Option<&UploadId>,
    ) -> Result<ListPage<UploadRecord>, ObjectError> {
        Ok(self.meta.list_uploads(bucket, query, after).await?)
    }

    async fn commit_part(
        &self,
        upload: &UploadId,
        attributes: PartAttributes,
        etag: String,
        stored: Stored,
    ) -> Result<PartRecord, ObjectError> {
        let record = PartRecord {
            number: attributes.number,
            content: None,
            bytes: attributes.bytes,
            etag,
            created: self.env.clock.wall(),
            attributes: attributes.encode(),
        };
        let (meta, upload, part) = (self.meta.clone(), upload.clone(), record.clone());
        let put = move |content| {
            let (meta, upload, part) = (meta.clone(), upload.clone(), part.clone());
            async move { meta.put_part(&upload, part, content).await }
        };
        self.commit(stored.source, put).await?;
        Ok(record)
    }

    /// The length of the object that these parts make. Parts that are not there are left to the transaction.
    async fn completed_bytes(&self, upload: &UploadRecord, parts: &[CompletePart]) -> Result<u64, ObjectError> {
        let (records, _) = self.meta.parts(&upload.id, 0, PARTS_MAX).await?;
        let mut bytes = 0;
        for (at, part) in parts.iter().enumerate() {
            let Some(record) = records.iter().find(|record| record.number == part.number) else { continue };
            let minimum_bytes = self.settings.part_bytes_min;
            if record.bytes < minimum_bytes && at + 1 < parts.len() && record.etag == part.etag {
                return Err(ObjectError::PartTooSmall { number: part.number, bytes: record.bytes, minimum_bytes });
            }
            bytes += record.bytes;
        }
        if bytes > self.settings.object_bytes_max {
            return Err(ObjectError::TooLarge { bytes, limit_bytes: self.settings.object_bytes_max });
        }
        Ok(bytes)
    }
}

const PARTS_MAX: usize = 10_000;
