//! The face of this crate: buckets, and objects as a whole. Uploads are in `uploads`, moving bytes in `transfer`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use claystone_chunk::ByteRange;
use claystone_code::CodeSpec;
use claystone_env::{Env, WallTime};
use claystone_meta::{
    BucketId, BucketRecord, DeleteObject, Deleted, DiskState, HeatPolicy, Held, ListPage, ListQuery, Meta, MetaError,
    NewBucket, NewContent, NewObject, ObjectRecord, Precondition, Span, StripeRecord, VersionName, VersionRef,
    Versioning,
};
use claystone_stripe::{Claim, Layout, Stripes, Taken, sub_bytes_for};
use futures::stream::BoxStream;

use crate::packs::Packer;
use crate::policy::serves;
use crate::transfer::{self, Source, Stored};
use crate::{Algorithm, Attributes, BodyError, Digests, ObjectError, Settings};

/// A stream of bytes, as it comes from or goes to a client.
pub type Body = BoxStream<'static, Result<Bytes, BodyError>>;

/// What a protocol crate says of a body it has seen whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confirmed {
    /// Entity tag without quotes.
    pub etag: String,
    /// Checksums to keep with the object, as in [`Attributes::checksums`].
    pub checksums: BTreeMap<String, String>,
}

/// Looks at the checksums of a body when it is whole and before anything is committed.
pub type Confirm = Box<dyn FnOnce(&Digests) -> Result<Confirmed, BodyError> + Send>;

/// An object to write.
pub struct Put {
    /// Bucket.
    pub bucket: String,
    /// Key.
    pub key: String,
    /// How the bucket keeps versions.
    pub versioning: Versioning,
    /// What must hold of the current version.
    pub precondition: Precondition,
    /// Headers, tags and documents; checksums come from `confirm`.
    pub attributes: Attributes,
    /// Declared length; a body of another length is refused.
    pub bytes: u64,
    /// The bytes.
    pub body: Body,
    /// Checksums to compute.
    pub digests: Vec<Algorithm>,
    /// Has the last word.
    pub confirm: Confirm,
}

/// An object that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Its version.
    pub version: VersionName,
    /// Its entity tag without quotes.
    pub etag: String,
    /// Its length.
    pub bytes: u64,
    /// When.
    pub created: WallTime,
    /// Its checksums, as in [`Attributes::checksums`].
    pub checksums: BTreeMap<String, String>,
}

/// An object version with everything a reader needs. While it is held, its chunks are not reclaimed.
#[derive(Debug, Clone)]
pub struct Object {
    /// Its record. `record.delete_marker` says that there is nothing to read.
    pub record: ObjectRecord,
    /// Its record's attributes, decoded.
    pub attributes: Attributes,
    pub(crate) spans: Vec<Span>,
    pub(crate) _claims: Arc<Vec<Claim>>,
}

impl Object {
    /// The codes its stripes have, each once, in order: how it is protected right now.
    pub fn codes(&self) -> Vec<CodeSpec> {
        let codes: BTreeSet<CodeSpec> = self.spans.iter().map(|span| span.stripe.code).collect();
        codes.into_iter().collect()
    }

    /// The stripes that hold its bytes, in order, alone or with those of others.
    pub fn stripes(&self) -> Vec<&StripeRecord> {
        self.spans.iter().map(|span| &span.stripe).collect()
    }
}

/// A look-up: one query.
#[derive(Debug, Clone)]
pub struct Content {
    /// The bucket.
    pub bucket: BucketRecord,
    /// The object version, which may be a delete marker; `None`: there is none.
    pub object: Option<Object>,
}

/// What a copy reads.
#[derive(Debug, Clone)]
pub struct CopySource {
    /// The object to copy, as found.
    pub object: Object,
    /// The bytes of it to copy; `None`: all.
    pub range: Option<ByteRange>,
}

/// Buckets and objects. Cheap to clone; calls may come from many tasks.
#[derive(Clone)]
pub struct Objects {
    pub(crate) env: Env,
    pub(crate) meta: Arc<dyn Meta>,
    pub(crate) stripes: Stripes,
    pub(crate) settings: Arc<Settings>,
    pub(crate) packer: Packer,
}

impl Objects {
    /// Buckets and objects with records in `meta` and bytes in `stripes`.
    pub fn new(env: Env, meta: Arc<dyn Meta>, stripes: Stripes, settings: Settings) -> Objects {
        Objects { env, meta, stripes, settings: Arc::new(settings), packer: Packer::default() }
    }

    /// The code of buckets that name none.
    pub fn default_code(&self) -> CodeSpec {
        self.settings.code
    }

    /// Makes a bucket. `code` `None`: the store's default, and the policy that new buckets get.
    ///
    /// # Errors
    /// `Meta(BucketExists)`, `TooFewDisks` if the code, or one of the policy's, can never be written here.
    pub async fn create_bucket(
        &self,
        name: &str,
        owner: &str,
        code: Option<CodeSpec>,
    ) -> Result<BucketRecord, ObjectError> {
        self.create_bucket_with(name, owner, code, BTreeMap::new()).await
    }

    /// Makes a bucket that has these documents from the first.
    ///
    /// # Errors
    /// As [`Objects::create_bucket`].
    pub async fn create_bucket_with(
        &self,
        name: &str,
        owner: &str,
        code: Option<CodeSpec>,
        documents: BTreeMap<String, Vec<u8>>,
    ) -> Result<BucketRecord, ObjectError> {
        self.check_code(code)?;
        let policy = if code.is_some() { None } else { self.first_policy()? };
        let (name, owner, created) = (name.to_owned(), owner.to_owned(), self.env.clock.wall());
        let bucket = NewBucket { name, owner, code, policy, documents, created };
        let bucket = self.meta.create_bucket_with(bucket).await?;
        if let Some(policy) = policy {
            self.stripes.rooms().found_new(bucket.id, &policy);
        }
        Ok(bucket)
    }

    /// The policy of a bucket that is made now.
    fn first_policy(&self) -> Result<Option<HeatPolicy>, ObjectError> {
        let members = self.stripes.stores().members();
        let nodes = members.iter().filter(|member| member.writable()).map(|member| &member.record.node);
        let policy = self.settings.policy.on(nodes);
        policy.iter().try_for_each(|policy| self.check_policy(policy))?;
        Ok(policy)
    }

    /// One bucket.
    ///
    /// # Errors
    /// `Meta(NoSuchBucket)`.
    pub async fn bucket(&self, name: &str) -> Result<BucketRecord, ObjectError> {
        Ok(self.meta.bucket(name).await?)
    }

    /// All buckets by name.
    ///
    /// # Errors
    /// `Meta`.
    pub async fn buckets(&self) -> Result<Vec<BucketRecord>, ObjectError> {
        Ok(self.meta.buckets().await?)
    }

    /// Removes an empty bucket.
    ///
    /// # Errors
    /// `Meta(NoSuchBucket)`, `Meta(BucketNotEmpty)`.
    pub async fn delete_bucket(&self, name: &str) -> Result<(), ObjectError> {
        Ok(self.meta.delete_bucket(name).await?)
    }

    /// Sets or removes a document of a bucket.
    ///
    /// # Errors
    /// `Meta(NoSuchBucket)`.
    pub async fn set_document(
        &self,
        bucket: &str,
        document: &str,
        content: Option<Vec<u8>>,
    ) -> Result<(), ObjectError> {
        Ok(self.meta.set_document(bucket, document, content).await?)
    }

    /// Sets the code for new objects of a bucket. One that is named ends the bucket's policy; stripes there are stay as they are.
    ///
    /// # Errors
    /// `Meta(NoSuchBucket)`, `TooFewDisks`.
    pub async fn set_code(&self, bucket: &str, code: Option<CodeSpec>) -> Result<(), ObjectError> {
        self.check_code(code)?;
        Ok(self.meta.set_code(bucket, code).await?)
    }

    /// Sets how redundancy follows heat in a bucket; with `None` its stripes stay as they are, and new ones get its code.
    ///
    /// # Errors
    /// `Meta(NoSuchBucket)`, `TooFewDisks`, `Policy`, `OtherTiles` if data would lie otherwise under the compact code.
    pub async fn set_policy(&self, bucket: &str, policy: Option<HeatPolicy>) -> Result<(), ObjectError> {
        policy.iter().try_for_each(|policy| self.check_policy(policy))?;
        self.meta.set_policy(bucket, policy).await?;
        // What a bucket takes is known when upkeep looks at it next, but for one that has nothing.
        if let Some(policy) = policy
            && let Ok(bucket) = self.meta.bucket(bucket).await
            // What is named from here on counts, seen or not.
            && let taken_before = self.stripes.rooms().begin_look(bucket.id)
            // In this order: an upload that is completed meanwhile is seen.
            && let Ok((parts, _)) = self.meta.uploaded_spans(bucket.id, None, 1).await
            && let Ok((objects, _)) = self.meta.bucket_spans(bucket.id, None, 1).await
            && parts.is_empty()
            && objects.is_empty()
            && !self.stripes.rooms().is_known(bucket.id, &policy)
        {
            self.stripes.rooms().found(bucket.id, &policy, 0, 0, taken_before);
        }
        Ok(())
    }

    /// Whether stripes can be kept so here.
    fn check_policy(&self, policy: &HeatPolicy) -> Result<(), ObjectError> {
        policy.validate()?;
        self.check_code(Some(policy.compact))?;
        self.check_code(Some(policy.fast))?;
        let HeatPolicy { fast, compact, .. } = *policy;
        let tile_bytes = |code: CodeSpec| Layout::new(code.shape(), sub_bytes_for(code), 1).tile_bytes();
        if tile_bytes(fast) != tile_bytes(compact) {
            return Err(ObjectError::OtherTiles { fast, compact });
        }
        Ok(())
    }

    /// The code of a bucket's objects when they are no longer new: the fast one of its policy, its own, or the store's default.
    pub fn code_of(&self, bucket: &BucketRecord) -> CodeSpec {
        bucket.policy.map(|policy| policy.fast).or(bucket.code).unwrap_or(self.settings.code)
    }

    /// Finds bucket and object by one query. A missing object is not an error.
    ///
    /// # Errors
    /// `Meta(NoSuchBucket)`.
    pub async fn find(&self, bucket: &str, key: &str, version: &VersionRef) -> Result<Content, ObjectError> {
        let _until_claimed = self.stripes.look_up();
        let found = self.meta.object(bucket, key, version).await?;
        let Some(record) = found.object else { return Ok(Content { bucket: found.bucket, object: None }) };
        let attributes = Attributes::decode(&record.attributes)?;
        let claims = found.spans.iter().map(|span| self.stripes.claim_record(&span.stripe)).collect();
        let object = Object { record, attributes, spans: found.spans, _claims: Arc::new(claims) };
        Ok(Content { bucket: found.bucket, object: Some(object) })
    }

    /// The bytes of an object, or a range of them. An error is the last item.
    ///
    /// # Panics
    /// If the range is not inside the object.
    pub fn read(&self, object: &Object, range: Option<ByteRange>) -> Body {
        let range = range.unwrap_or(ByteRange { offset: 0, bytes: object.record.bytes });
        assert!(range.end() <= object.record.bytes, "bytes up to {} of {}", range.end(), object.record.bytes);
        transfer::read(&self.env, &self.stripes, object.clone(), range)
    }

    /// Writes an object.
    ///
    /// # Errors
    /// `Meta(NoSuchBucket | PreconditionFailed | NoSuchObject | Full)`, `Body`, `TooLarge`, `TooFewDisks`, `Stripe`.
    /// After any error the key is as it was.
    pub async fn put(&self, put: Put) -> Result<Written, ObjectError> {
        let bucket = self.meta.bucket(&put.bucket).await?;
        let stored = self.store(&bucket, put.bytes, put.body, &put.digests).await?;
        let confirmed = match (put.confirm)(&stored.digests) {
            Ok(confirmed) => confirmed,
            Err(error) => {
                self.abandon(stored.source);
                return Err(error.into());
            }
        };
        let attributes = Attributes { checksums: confirmed.checksums, ..put.attributes };
        let object = NewObject {
            bucket: bucket.id,
            key: put.key,
            versioning: put.versioning,
            precondition: put.precondition,
            content: stored.source.content(),
            bytes: put.bytes,
            etag: confirmed.etag,
            created: self.env.clock.wall(),
            attributes: attributes.encode(),
        };
        self.put_record(object, attributes.checksums, stored.source).await
    }

    /// Copies an object with new attributes; entity tag and checksums stay. Shares the bytes if they are coded as
    /// the target bucket wants them, else writes them anew.
    ///
    /// # Errors
    /// As [`Objects::put`]; `Meta(NoSuchObject)` if the source went away meanwhile.
    pub async fn copy(
        &self,
        source: &Object,
        bucket: &str,
        key: &str,
        versioning: Versioning,
        precondition: Precondition,
        attributes: Attributes,
    ) -> Result<Written, ObjectError> {
        let bucket = self.meta.bucket(bucket).await?;
        let attributes = Attributes { checksums: source.attributes.checksums.clone(), ..attributes };
        let wanted = self.code_of(&bucket);
        let of_policy =
            |code: CodeSpec| bucket.policy.is_some_and(|policy| policy.is_fresh(code) || code == policy.compact);
        // What a pack is to become when it is written anew is known of those of the same bucket.
        let as_wanted = |span: &Span| {
            let StripeRecord { code, data_bytes, .. } = span.stripe;
            let becomes = !matches!(span.held, Held::Part(_)) || source.record.bucket == bucket.id;
            becomes && (of_policy(code) || serves(wanted, code, data_bytes))
        };
        let from = match source.record.content {
            None => Source::Stripes(Vec::new()),
            Some(content) if source.spans.iter().all(as_wanted) => {
                let room = self.room_of_shared(&bucket, source)?;
                Source::Shared { content, room }
            }
            Some(_) => self.store(&bucket, source.record.bytes, self.read(source, None), &[]).await?.source,
        };
        let object = NewObject {
            bucket: bucket.id,
            key: key.to_owned(),
            versioning,
            precondition,
            content: from.content(),
            bytes: source.record.bytes,
            etag: source.record.etag.clone(),
            created: self.env.clock.wall(),
            attributes: attributes.encode(),
        };
        self.put_record(object, attributes.checksums, from).await
    }

    /// What a bucket takes with the stripes of an object of another one; those of its own it has already.
    fn room_of_shared(&self, bucket: &BucketRecord, source: &Object) -> Result<Option<Taken>, ObjectError> {
        let Some(policy) = bucket.policy.filter(|_| source.record.bucket != bucket.id) else { return Ok(None) };
        let mut chunks_bytes = 0;
        for Span { stripe, .. } in &source.spans {
            let of_all = u64::from(stripe.code.shape().chunks()) * Layout::chunk_bytes_of(stripe)?;
            chunks_bytes += of_all.div_ceil(stripe.bands().len() as u64);
        }
        Ok(Some(self.stripes.rooms().take_anyway(bucket.id, &policy, source.record.bytes, chunks_bytes)))
    }

    /// Deletes. Deleting what is not there is no error.
    ///
    /// # Errors
    /// `Meta(PreconditionFailed)`.
    pub async fn delete(&self, delete: DeleteObject) -> Result<Deleted, ObjectError> {
        Ok(self.meta.delete_object(delete).await?)
    }

    /// Replaces the attributes of a version that is as it was seen.
    ///
    /// # Errors
    /// `Meta(NoSuchObject | ObjectChanged)`.
    pub async fn set_attributes(&self, seen: &ObjectRecord, attributes: &Attributes) -> Result<(), ObjectError> {
        Ok(self.meta.set_attributes(seen, attributes.encode()).await?)
    }

    /// Lists objects or versions.
    ///
    /// # Errors
    /// `Meta`.
    pub async fn list(&self, bucket: BucketId, query: &ListQuery) -> Result<ListPage<ObjectRecord>, ObjectError> {
        Ok(self.meta.list_objects(bucket, query).await?)
    }

    /// Takes a body into stripes that nobody names yet.
    pub(crate) async fn store(
        &self,
        bucket: &BucketRecord,
        bytes: u64,
        body: Body,
        digests: &[Algorithm],
    ) -> Result<Stored, ObjectError> {
        if bytes > self.settings.object_bytes_max {
            return Err(ObjectError::TooLarge { bytes, limit_bytes: self.settings.object_bytes_max });
        }
        transfer::store(self, bucket.id, self.code_of(bucket), bucket.policy, bytes, body, digests).await
    }

    /// The commit point of a put: one transaction.
    async fn put_record(
        &self,
        object: NewObject,
        checksums: BTreeMap<String, String>,
        source: Source,
    ) -> Result<Written, ObjectError> {
        let (bytes, etag, created) = (object.bytes, object.etag.clone(), object.created);
        let meta = self.meta.clone();
        let put = move |content| {
            let (meta, object) = (meta.clone(), NewObject { content, ..object.clone() });
            async move { meta.put_object(object).await }
        };
        let outcome = self.commit(source, put).await?;
        Ok(Written { version: outcome.version, etag, bytes, created, checksums })
    }

    /// Runs the transaction that names what is in `source`, as a task of its own: when the caller goes away with its client,
    /// the transaction may still happen, and the claims must outlive it.
    pub(crate) async fn commit<T, F>(
        &self,
        mut source: Source,
        transaction: impl Fn(NewContent) -> F + Send + Sync + 'static,
    ) -> Result<T, ObjectError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, MetaError>> + Send + 'static,
    {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let objects = self.clone();
        let task = async move {
            let result = loop {
                if let Source::Pack { packed, .. } = &source {
                    packed.hold.name();
                }
                let result = transaction(source.content()).await;
                // After `Unavailable` nobody knows whether it happened; reclaim will, by the records.
                let refused = matches!(&result, Err(error) if !matches!(error, MetaError::Unavailable { .. }));
                let (packed, bytes, room) = match source {
                    Source::Pack { packed, bytes, room } => (packed, bytes, room),
                    source => {
                        if refused {
                            objects.abandon(source);
                        } else {
                            source.end_taking(result.is_ok());
                        }
                        break result.map_err(ObjectError::from);
                    }
                };
                if refused {
                    packed.hold.refused();
                }
                if !matches!(result, Err(MetaError::StripeChanged { .. })) {
                    if !refused {
                        Source::Pack { packed, bytes, room }.end_taking(result.is_ok());
                    }
                    break result.map_err(ObjectError::from);
                }
                // Others' parts of the pack were named, and have gone or moved already, before this one was.
                match objects.pack(packed.kind, bytes.clone()).await {
                    Ok(packed) => source = Source::Pack { packed: Box::new(packed), bytes, room },
                    Err(error) => break Err(error),
                }
            };
            // A caller that went away does not need the result.
            let _ = sender.send(result);
        };
        self.env.tasks.spawn("commit", Box::pin(task));
        receiver.await.map_err(|_| ObjectError::ShuttingDown)?
    }

    /// Deletes the chunks of stripes that were written and will not be named. Reclaim would find them too. A pack goes when
    /// all have let it go.
    pub(crate) fn abandon(&self, source: Source) {
        let Source::Stripes(stripes) = source else { return };
        if stripes.is_empty() {
            return;
        }
        let engine = self.stripes.clone();
        let discard = async move {
            for unnamed in &stripes {
                engine.discard(&unnamed.new.stripe).await;
            }
        };
        self.env.tasks.spawn("abandon", Box::pin(discard));
    }

    /// Why no stripe of this code can be written now.
    pub(crate) fn too_few_disks(&self, wanted: CodeSpec) -> ObjectError {
        let stores = self.stripes.stores();
        let (needed, available) = (usize::from(wanted.tolerance()) + 1, stores.candidates().len());
        match stores.full() {
            0 => ObjectError::TooFewDisks { code: wanted.to_string(), needed, available },
            full => ObjectError::DisksFull { full, available, needed },
        }
    }

    fn check_code(&self, code: Option<CodeSpec>) -> Result<(), ObjectError> {
        let Some(code) = code else { return Ok(()) };
        code.validate()?;
        let members = self.stripes.stores().members();
        let available = members.iter().filter(|member| member.record.state == DiskState::Active).count();
        let needed = usize::from(code.disks_min());
        if needed > available {
            return Err(ObjectError::TooFewDisks { code: code.to_string(), needed, available });
        }
        Ok(())
    }
}
