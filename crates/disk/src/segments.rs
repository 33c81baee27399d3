//! The segment store over a directory: the asynchronous half, which hands every blocking call to the disk's worker.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use claystone_chunk::{ByteRange, Lease, OwnerId, SegmentError, SegmentId, SegmentInfo, SegmentStore};

use crate::files::{Files, Room};
use crate::store::Shared;

/// See the module.
pub struct DirectorySegments {
    shared: Arc<Shared>,
}

impl DirectorySegments {
    /// The segments of a store.
    pub fn new(shared: Arc<Shared>) -> DirectorySegments {
        DirectorySegments { shared }
    }

    async fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Files) -> Result<R, SegmentError> + Send + 'static,
    ) -> Result<R, SegmentError> {
        self.shared.run(work).await?
    }
}

impl std::fmt::Debug for DirectorySegments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DirectorySegments({} at {})", self.shared.files.identity().disk, self.shared.files.label())
    }
}

#[async_trait]
impl SegmentStore for DirectorySegments {
    async fn fence(&self, lease: Lease) -> Result<(), SegmentError> {
        self.run(move |files| files.fence(lease)).await
    }

    async fn create_segment(&self, number: u64, lease: Lease, bytes: u64) -> Result<(), SegmentError> {
        assert!(bytes > 0, "a segment has room for a byte");
        self.run(move |files| files.create_segment(number, lease, bytes, Room::AboveReserve)).await?;
        self.shared.make_spares();
        Ok(())
    }

    async fn create_segment_in_reserve(&self, number: u64, lease: Lease, bytes: u64) -> Result<(), SegmentError> {
        assert!(bytes > 0, "a segment has room for a byte");
        self.run(move |files| files.create_segment(number, lease, bytes, Room::All)).await
    }

    async fn reopen_segment(&self, number: u64, lease: Lease, end: u64) -> Result<(), SegmentError> {
        self.run(move |files| files.reopen_segment(number, lease, end)).await
    }

    async fn append(&self, number: u64, lease: Lease, offset: u64, content: Bytes) -> Result<(), SegmentError> {
        self.run(move |files| files.append(number, lease, offset, &content)).await
    }

    async fn sync_segment(&self, number: u64, lease: Lease) -> Result<(), SegmentError> {
        self.run(move |files| files.sync_segment(number, lease)).await
    }

    async fn read_segment(&self, id: SegmentId, ranges: &[ByteRange]) -> Result<Vec<Bytes>, SegmentError> {
        let ranges = ranges.to_vec();
        self.run(move |files| files.read_segment(id, &ranges)).await
    }

    async fn delete_segment(&self, number: u64, lease: Lease) -> Result<(), SegmentError> {
        self.run(move |files| files.delete_segment(number, lease)).await
    }

    async fn segments(&self, owner: OwnerId) -> Result<Vec<SegmentInfo>, SegmentError> {
        self.run(move |files| files.segments(owner)).await
    }

    async fn owners(&self) -> Result<Vec<OwnerId>, SegmentError> {
        self.run(Files::segment_owners).await
    }

    async fn forget_owner(&self, lease: Lease) -> Result<(), SegmentError> {
        self.run(move |files| files.forget_owner(lease)).await
    }
}
