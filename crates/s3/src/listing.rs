//! Listings of buckets, objects, versions and uploads.
//!
//! Invariants:
//! 1. An empty delimiter, marker or token is as good as none.
//! 2. With `encoding-type=url` every text that holds a key is percent-encoded, `/` kept.
//! 3. A page goes on strictly behind the last key or common prefix of the page before, so nothing is listed twice
//!    and nothing that was there all along is left out.

use claystone_meta::{BucketRecord, ListPage, ListQuery, ObjectRecord, UploadId, UploadRecord, VersionName};
use claystone_object::Attributes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::dto::{
    Bucket, ChecksumType, CommonPrefix, DeleteMarkerEntry, ETag, EncodingType, Initiator, ListBucketsInput,
    ListBucketsOutput, ListMultipartUploadsInput, ListMultipartUploadsOutput, ListObjectVersionsInput,
    ListObjectVersionsOutput, ListObjectsInput, ListObjectsOutput, ListObjectsV2Input, ListObjectsV2Output,
    MultipartUpload, Object, ObjectStorageClass, ObjectVersion, ObjectVersionStorageClass, Owner, StorageClass,
};
use s3s::{S3Request, S3Response, S3Result, s3_error};

use crate::acl::{self, Acl};
use crate::checksum::Kind;
use crate::error::from_object;
use crate::gateway::{self, Action, Call, Gateway, timestamp};
use crate::multipart;

/// How texts that hold keys are shown.
#[derive(Debug, Clone, Copy)]
struct Encoding {
    url: bool,
}

impl Encoding {
    fn of(asked: Option<&EncodingType>) -> S3Result<Encoding> {
        match asked.map(EncodingType::as_str) {
            None | Some("") => Ok(Encoding { url: false }),
            Some(EncodingType::URL) => Ok(Encoding { url: true }),
            Some(_) => Err(s3_error!(InvalidArgument, "Invalid Encoding Method specified in Request")),
        }
    }

    fn show(self, text: &str) -> String {
        if self.url { utf8_percent_encode(text, KEPT).to_string() } else { text.to_owned() }
    }

    fn name(self) -> Option<EncodingType> {
        self.url.then(|| EncodingType::from_static(EncodingType::URL))
    }

    fn prefixes(self, prefixes: &[String]) -> Vec<CommonPrefix> {
        prefixes.iter().map(|prefix| CommonPrefix { prefix: Some(self.show(prefix)) }).collect()
    }
}

/// A page of objects and what is asked of it.
struct Asked {
    prefix: Option<String>,
    delimiter: Option<String>,
    after: Option<String>,
    limit: Option<i32>,
}

impl Gateway {
    pub(crate) async fn list_buckets(
        &self,
        request: S3Request<ListBucketsInput>,
    ) -> S3Result<S3Response<ListBucketsOutput>> {
        let (input, call) = self.open(request);
        let account = call.account()?;
        let prefix = input.prefix.clone().unwrap_or_default();
        let after = input.continuation_token.as_deref().map(token_key).transpose()?.flatten();
        let limit = match input.max_buckets {
            None => usize::MAX,
            Some(limit @ 1..=10_000) => limit as usize,
            Some(_) => return Err(s3_error!(InvalidArgument, "max-buckets must be between 1 and 10000")),
        };
        let all = self.objects.buckets().await.map_err(from_object)?;
        let mut own = all.into_iter().filter(|bucket| {
            bucket.owner == account.id
                && bucket.name.starts_with(&prefix)
                && after.as_ref().is_none_or(|after| bucket.name > *after)
        });
        let page: Vec<BucketRecord> = own.by_ref().take(limit).collect();
        let truncated = own.next().is_some();
        let token = page.last().filter(|_| truncated).map(|last| hex::encode(&last.name));
        let buckets = page.into_iter().map(|bucket| Bucket {
            bucket_region: input.max_buckets.map(|_| self.settings.region.clone()),
            creation_date: Some(timestamp(bucket.created)),
            name: Some(bucket.name),
        });
        Ok(S3Response::new(ListBucketsOutput {
            buckets: Some(buckets.collect()),
            continuation_token: token,
            owner: Some(acl::owner(&account.id, &*self.keys)),
            prefix: input.prefix,
        }))
    }

    pub(crate) async fn list_objects(
        &self,
        request: S3Request<ListObjectsInput>,
    ) -> S3Result<S3Response<ListObjectsOutput>> {
        let (input, mut call) = self.open(request);
        let encoding = Encoding::of(input.encoding_type.as_ref())?;
        let asked = Asked {
            prefix: input.prefix.clone(),
            delimiter: input.delimiter,
            after: input.marker.clone(),
            limit: input.max_keys,
        };
        let (bucket, query, page) = self.list_page(&mut call, &input.bucket, gateway::LIST_BUCKET, asked, None).await?;
        let next = page.truncated && query.delimiter.is_some();
        Ok(S3Response::new(ListObjectsOutput {
            name: Some(input.bucket),
            prefix: Some(encoding.show(&query.prefix)),
            marker: Some(encoding.show(input.marker.as_deref().unwrap_or_default())),
            max_keys: i32::try_from(query.limit).ok(),
            is_truncated: Some(page.truncated),
            common_prefixes: Some(encoding.prefixes(&page.common_prefixes)),
            delimiter: query.delimiter.as_deref().map(|delimiter| encoding.show(delimiter)),
            next_marker: if next { last(&page).map(|last| encoding.show(&last)) } else { None },
            encoding_type: encoding.name(),
            contents: Some(self.entries(&bucket, page.entries, encoding, true)?),
            request_charged: None,
        }))
    }

    pub(crate) async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let (input, mut call) = self.open(request);
        let encoding = Encoding::of(input.encoding_type.as_ref())?;
        let token = input.continuation_token.as_deref().map(token_key).transpose()?.flatten();
        let asked = Asked {
            prefix: input.prefix.clone(),
            delimiter: input.delimiter,
            after: token.or_else(|| input.start_after.clone()),
            limit: input.max_keys,
        };
        let (bucket, query, page) = self.list_page(&mut call, &input.bucket, gateway::LIST_BUCKET, asked, None).await?;
        let count = page.entries.len() + page.common_prefixes.len();
        let token = if page.truncated { last(&page).map(hex::encode) } else { None };
        Ok(S3Response::new(ListObjectsV2Output {
            name: Some(input.bucket),
            prefix: Some(encoding.show(&query.prefix)),
            max_keys: i32::try_from(query.limit).ok(),
            key_count: i32::try_from(count).ok(),
            continuation_token: input.continuation_token,
            is_truncated: Some(page.truncated),
            next_continuation_token: token,
            common_prefixes: Some(encoding.prefixes(&page.common_prefixes)),
            delimiter: query.delimiter.as_deref().map(|delimiter| encoding.show(delimiter)),
            encoding_type: encoding.name(),
            start_after: input.start_after.map(|start| encoding.show(&start)),
            contents: Some(self.entries(&bucket, page.entries, encoding, input.fetch_owner == Some(true))?),
            request_charged: None,
        }))
    }

    pub(crate) async fn list_object_versions(
        &self,
        request: S3Request<ListObjectVersionsInput>,
    ) -> S3Result<S3Response<ListObjectVersionsOutput>> {
        let (input, mut call) = self.open(request);
        let encoding = Encoding::of(input.encoding_type.as_ref())?;
        let version_marker = input.version_id_marker.clone().filter(|marker| !marker.is_empty());
        if version_marker.is_some() && input.key_marker.as_ref().is_none_or(String::is_empty) {
            return Err(s3_error!(InvalidArgument, "A version-id marker cannot be specified without a key marker"));
        }
        let asked = Asked {
            prefix: input.prefix.clone(),
            delimiter: input.delimiter,
            after: input.key_marker.clone(),
            limit: input.max_keys,
        };
        let versions = Some(version_marker.map(VersionName));
        let (bucket, query, page) =
            self.list_page(&mut call, &input.bucket, gateway::LIST_VERSIONS, asked, versions).await?;
        let last_key = last(&page);
        let last_version = page.entries.last().filter(|entry| last_key.as_ref() == Some(&entry.key));
        let last_version = last_version.map(|entry| entry.version.0.clone());
        let (mut versions, mut markers) = (Vec::new(), Vec::new());
        for record in page.entries {
            let owner = Some(self.owner_of(&record, &bucket)?);
            let key = Some(encoding.show(&record.key));
            let (is_latest, last_modified) = (Some(record.current), Some(timestamp(record.created)));
            let version_id = Some(record.version.0);
            if record.delete_marker {
                markers.push(DeleteMarkerEntry { is_latest, key, last_modified, owner, version_id });
            } else {
                versions.push(ObjectVersion {
                    e_tag: Some(ETag::Strong(record.etag)),
                    is_latest,
                    key,
                    last_modified,
                    owner,
                    size: i64::try_from(record.bytes).ok(),
                    storage_class: Some(ObjectVersionStorageClass::from_static(ObjectVersionStorageClass::STANDARD)),
                    version_id,
                    ..ObjectVersion::default()
                });
            }
        }
        Ok(S3Response::new(ListObjectVersionsOutput {
            common_prefixes: Some(encoding.prefixes(&page.common_prefixes)),
            delete_markers: Some(markers),
            delimiter: query.delimiter.as_deref().map(|delimiter| encoding.show(delimiter)),
            encoding_type: encoding.name(),
            is_truncated: Some(page.truncated),
            key_marker: Some(encoding.show(input.key_marker.as_deref().unwrap_or_default())),
            max_keys: i32::try_from(query.limit).ok(),
            name: Some(input.bucket),
            next_key_marker: if page.truncated { last_key.map(|key| encoding.show(&key)) } else { None },
            next_version_id_marker: if page.truncated { last_version } else { None },
            prefix: Some(encoding.show(&query.prefix)),
            request_charged: None,
            version_id_marker: Some(input.version_id_marker.unwrap_or_default()),
            versions: Some(versions),
        }))
    }

    pub(crate) async fn list_multipart_uploads(
        &self,
        request: S3Request<ListMultipartUploadsInput>,
    ) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
        let (input, mut call) = self.open(request);
        let encoding = Encoding::of(input.encoding_type.as_ref())?;
        let asked = Asked {
            prefix: input.prefix.clone(),
            delimiter: input.delimiter,
            after: input.key_marker.clone(),
            limit: input.max_uploads,
        };
        let query = query(&mut call, asked, None)?;
        let bucket = self.bucket(&call, &input.bucket, gateway::LIST_UPLOADS).await?;
        let after = input.upload_id_marker.clone().filter(|id| !id.is_empty() && query.after.is_some()).map(UploadId);
        let page = match query.limit {
            0 => empty(),
            _ => self.objects.list_uploads(bucket.id, &query, after.as_ref()).await.map_err(from_object)?,
        };
        let last_upload = page.entries.last().cloned();
        let next_key = match (&last_upload, page.common_prefixes.last()) {
            (Some(upload), Some(prefix)) => Some(upload.key.clone().max(prefix.clone())),
            (Some(upload), None) => Some(upload.key.clone()),
            (None, prefix) => prefix.cloned(),
        };
        let next_id = last_upload.filter(|upload| next_key.as_ref() == Some(&upload.key)).map(|upload| upload.id.0);
        let uploads: Vec<MultipartUpload> = page
            .entries
            .into_iter()
            .map(|upload| self.upload_entry(upload, &bucket, encoding))
            .collect::<S3Result<_>>()?;
        Ok(S3Response::new(ListMultipartUploadsOutput {
            bucket: Some(input.bucket),
            common_prefixes: Some(encoding.prefixes(&page.common_prefixes)),
            delimiter: query.delimiter.as_deref().map(|delimiter| encoding.show(delimiter)),
            encoding_type: encoding.name(),
            is_truncated: Some(page.truncated),
            key_marker: Some(encoding.show(input.key_marker.as_deref().unwrap_or_default())),
            max_uploads: i32::try_from(query.limit).ok(),
            next_key_marker: if page.truncated { next_key.map(|key| encoding.show(&key)) } else { None },
            next_upload_id_marker: if page.truncated { next_id } else { None },
            prefix: Some(encoding.show(&query.prefix)),
            request_charged: None,
            upload_id_marker: Some(input.upload_id_marker.unwrap_or_default()),
            uploads: Some(uploads),
        }))
    }

    /// One page. `versions`: all versions, of the marker's key those behind the one named.
    async fn list_page(
        &self,
        call: &mut Call,
        bucket: &str,
        action: Action,
        asked: Asked,
        versions: Option<Option<VersionName>>,
    ) -> S3Result<(BucketRecord, ListQuery, ListPage<ObjectRecord>)> {
        let query = query(call, asked, versions)?;
        let bucket = self.bucket(call, bucket, action).await?;
        let page = match query.limit {
            0 => empty(),
            _ => self.objects.list(bucket.id, &query).await.map_err(from_object)?,
        };
        Ok((bucket, query, page))
    }

    fn entries(
        &self,
        bucket: &BucketRecord,
        records: Vec<ObjectRecord>,
        encoding: Encoding,
        owners: bool,
    ) -> S3Result<Vec<Object>> {
        let entry = |record: ObjectRecord| {
            let attributes = Attributes::decode(&record.attributes).map_err(from_object)?;
            let owner = owners.then(|| acl::owner(&Acl::of_object(&attributes, bucket).owner, &*self.keys));
            let kinds: Vec<_> =
                attributes.checksums.keys().filter_map(|name| Kind::named(name)).map(Kind::label).collect();
            Ok(Object {
                checksum_type: attributes.checksum_type.filter(|_| !kinds.is_empty()).map(ChecksumType::from),
                checksum_algorithm: (!kinds.is_empty()).then_some(kinds),
                e_tag: Some(ETag::Strong(record.etag)),
                key: Some(encoding.show(&record.key)),
                last_modified: Some(timestamp(record.created)),
                owner,
                restore_status: None,
                size: i64::try_from(record.bytes).ok(),
                storage_class: Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD)),
            })
        };
        records.into_iter().map(entry).collect()
    }

    fn owner_of(&self, record: &ObjectRecord, bucket: &BucketRecord) -> S3Result<Owner> {
        let attributes = Attributes::decode(&record.attributes).map_err(from_object)?;
        Ok(acl::owner(&Acl::of_object(&attributes, bucket).owner, &*self.keys))
    }

    fn upload_entry(
        &self,
        upload: UploadRecord,
        bucket: &BucketRecord,
        encoding: Encoding,
    ) -> S3Result<MultipartUpload> {
        let attributes = Attributes::decode(&upload.attributes).map_err(from_object)?;
        let owner = acl::owner(&Acl::of_object(&attributes, bucket).owner, &*self.keys);
        let plan = multipart::Plan::of(&attributes);
        Ok(MultipartUpload {
            checksum_algorithm: plan.map(|plan| plan.kind.label()),
            checksum_type: plan.map(|plan| ChecksumType::from_static(plan.type_name())),
            initiated: Some(timestamp(upload.created)),
            initiator: Some(Initiator { display_name: owner.display_name.clone(), id: owner.id.clone() }),
            key: Some(encoding.show(&upload.key)),
            owner: Some(owner),
            storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
            upload_id: Some(upload.id.0),
        })
    }
}

/// What to look for, from what was asked.
fn query(call: &mut Call, asked: Asked, versions: Option<Option<VersionName>>) -> S3Result<ListQuery> {
    let limit = match asked.limit {
        None => KEYS_MAX,
        Some(limit) if limit < 0 => {
            return Err(s3_error!(InvalidArgument, "max-keys and the like must not be negative, it is {limit}"));
        }
        Some(limit) => (limit as usize).min(KEYS_MAX),
    };
    let prefix = asked.prefix.unwrap_or_default();
    let delimiter = asked.delimiter.filter(|delimiter| !delimiter.is_empty());
    call.facts.push(("s3:prefix", prefix.clone()));
    call.facts.push(("s3:max-keys", limit.to_string()));
    if let Some(delimiter) = &delimiter {
        call.facts.push(("s3:delimiter", delimiter.clone()));
    }
    Ok(ListQuery {
        prefix,
        delimiter,
        after: asked.after.filter(|after| !after.is_empty()),
        versions: versions.is_some(),
        after_version: versions.flatten(),
        limit,
    })
}

/// The last key or common prefix of a page.
fn last(page: &ListPage<ObjectRecord>) -> Option<String> {
    let key = page.entries.last().map(|entry| &entry.key);
    key.into_iter().chain(page.common_prefixes.last()).max().cloned()
}

/// The key that a continuation token of ours holds.
fn token_key(token: &str) -> S3Result<Option<String>> {
    if token.is_empty() {
        return Ok(None);
    }
    let key = hex::decode(token).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    key.map(Some).ok_or_else(|| s3_error!(InvalidArgument, "The continuation token provided is incorrect"))
}

fn empty<T>() -> ListPage<T> {
    ListPage { entries: Vec::new(), common_prefixes: Vec::new(), truncated: false }
}

const KEYS_MAX: usize = 1000;
/// Everything is encoded but what RFC 3986 calls unreserved, and `/`.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_url_encoded_with_slashes_kept() {
        let url = Encoding { url: true };
        assert_eq!(url.show("asdf+b/a b%\u{1}ü"), "asdf%2Bb/a%20b%25%01%C3%BC");
        assert_eq!(Encoding { url: false }.show("a b"), "a b");
    }

    #[test]
    fn tokens_hold_keys_of_any_kind() {
        let key = "a/ü\u{1}\"";
        assert_eq!(token_key(&hex::encode(key)).expect("own token"), Some(key.to_owned()));
        assert_eq!(token_key("").expect("as good as none"), None);
        assert!(token_key("zz").is_err() && token_key("ff").is_err());
    }
}
