//! The chunk store over a directory: the asynchronous half, which hands every blocking call to the disk's worker.
//!
//! States, as [`ChunkStore::state`] tells them (`files` makes the transitions):
//!
//! ```text
//! open --> Serving --a write is refused--> ReadOnly
//!             |                               |
//!             +--- result unknown, or disk gone --> Failed  (open it anew)
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use claystone_chunk::{
    ByteRange, ChunkError, ChunkId, ChunkInfo, ChunkStore, ChunkWriter, DiskId, Lease, Load, Overwrite, SegmentStore,
    StoreState, Verdict,
};
use claystone_env::{Directory, Env, SectorHealth, Space, Worker, call};
use futures::FutureExt;

use crate::error::{OpenError, Refused};
use crate::files::{Files, Options, Verifying};
use crate::identity::Identity;
use crate::open::{Expected, open_now};
use crate::segments::DirectorySegments;
use crate::writer::DirectoryWriter;

/// Ids that one job of a list looks at.
const PAGE_IDS_MAX: usize = 10_000;
/// Between two steps of making spares, of 1 MiB each: 20 MB/s at most.
const SPARE_PAUSE: Duration = Duration::from_millis(50);
/// How long an opening waits for who has the disk, and how often it looks.
const LET_GO_WITHIN: Duration = Duration::from_secs(1);
const LET_GO_PAUSE: Duration = Duration::from_millis(10);

/// A disk that is a directory.
pub struct DirectoryStore {
    shared: Arc<Shared>,
    segments: DirectorySegments,
}

/// What the store and its writers use.
pub(crate) struct Shared {
    pub(crate) env: Env,
    pub(crate) files: Arc<Files>,
    worker: Arc<dyn Worker>,
    read_latency_ns: AtomicU64,
    sync_is_due: AtomicBool,
    spares_are_made: AtomicBool,
    // Who syncs: the others wait here, and not on the worker's threads.
    sync_turn: tokio::sync::Mutex<()>,
}

impl DirectoryStore {
    /// Opens the expected disk in `directory`, All its calls run on `worker`.
    /// A worker of about 4 threads lets reads pass syncs, and lets the file system put several syncs into one commit
    /// of its journal: with 16 writers of 4000 B on a busy ext4, 4 threads commit 15 times as many as one.
    /// The disk stays locked against other processes until the store and all that it gave out are dropped.
    ///
    /// # Errors
    /// Every [`OpenError`] but those of formatting; `InUse` after a second. A disk that refuses writes opens; see
    /// [`ChunkStore::state`].
    pub async fn open(
        env: &Env,
        directory: Arc<dyn Directory>,
        worker: Arc<dyn Worker>,
        expected: Expected,
        options: Options,
    ) -> Result<DirectoryStore, OpenError> {
        let began = env.clock.now();
        let opened = loop {
            let (label, directory, options) = (directory.label(), directory.clone(), options.clone());
            let opened = call(&*worker, move || open_now(directory, expected, options)).await;
            match opened.map_err(|_| OpenError::WorkerStopped { label })? {
                // What a store does by itself keeps the disk for a moment after it was let go.
                Err(OpenError::InUse { .. }) if env.clock.now().since(began) < LET_GO_WITHIN => {
                    env.clock.sleep(LET_GO_PAUSE).await;
                }
                opened => break opened?,
            }
        };
        let files = Arc::new(opened);
        let shared = Shared {
            env: env.clone(),
            files,
            worker,
            read_latency_ns: AtomicU64::new(0),
            sync_is_due: AtomicBool::new(false),
            spares_are_made: AtomicBool::new(false),
            sync_turn: tokio::sync::Mutex::new(()),
        };
        let shared = Arc::new(shared);
        Ok(DirectoryStore { segments: DirectorySegments::new(shared.clone()), shared })
    }

    /// What the disk says about itself.
    pub fn identity(&self) -> &Identity {
        self.shared.files.identity()
    }

    /// What a person would call this disk: its path.
    pub fn label(&self) -> String {
        self.shared.files.label()
    }

    /// Makes the files now that the next segments write over, which else come in the background: for who measures. A disk that cannot make
    /// them goes without.
    pub async fn make_spares(&self) {
        while matches!(self.shared.run(Files::make_spare).await, Ok(Ok(true))) {}
    }
}

impl std::fmt::Debug for DirectoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DirectoryStore({} at {})", self.identity().disk, self.label())
    }
}

impl Shared {
    /// Runs `work` on the disk's worker.
    pub(crate) async fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Files) -> R + Send + 'static,
    ) -> Result<R, Refused> {
        let files = self.files.clone();
        call(&*self.worker, move || work(&files)).await.map_err(|_| self.stopped())
    }

    pub(crate) fn stopped(&self) -> Refused {
        let reason = "the disk's worker has stopped".to_owned();
        Refused::Unavailable { disk: self.files.identity().disk, reason }
    }

    async fn sync(&self) -> Result<(), ChunkError> {
        let _turn = self.sync_turn.lock().await;
        self.run(Files::sync).await?
    }

    /// Syncs buffered chunks when the interval has passed.
    pub(crate) fn sync_later(self: &Arc<Self>) {
        if self.sync_is_due.swap(true, Ordering::AcqRel) {
            return;
        }
        let shared = Arc::downgrade(self);
        let sleep = self.env.clock.sleep(self.files.options().sync_interval);
        let task = async move {
            sleep.await;
            let Some(shared) = shared.upgrade() else { return };
            // Before the sync: a commit during it asks for the next one.
            shared.sync_is_due.store(false, Ordering::Release);
            // A failure shows in the state.
            let _ = shared.sync().await;
        };
        self.env.tasks.spawn("chunk sync", task.boxed());
    }

    /// Makes spares for the segments to come, one short step after another, until there are enough.
    pub(crate) fn make_spares(self: &Arc<Self>) {
        if self.spares_are_made.swap(true, Ordering::AcqRel) {
            return;
        }
        let (shared, clock) = (Arc::downgrade(self), self.env.clock.clone());
        let task = async move {
            loop {
                clock.sleep(SPARE_PAUSE).await;
                let Some(shared) = shared.upgrade() else { return };
                // Before the step: what is wanted after it is asked for anew.
                shared.spares_are_made.store(false, Ordering::Release);
                let goes_on = matches!(shared.run(Files::make_spare).await, Ok(Ok(true)));
                if !goes_on || shared.spares_are_made.swap(true, Ordering::AcqRel) {
                    return;
                }
            }
        };
        self.env.tasks.spawn("segment spares", task.boxed());
    }

    fn note_read(&self, latency: Duration) {
        let sample = latency.as_nanos() as u64;
        let smoothed = |old: u64| if old == 0 { sample } else { old - old / 8 + sample / 8 };
        // Lost updates between racing reads do not matter.
        let old = self.read_latency_ns.load(Ordering::Relaxed);
        self.read_latency_ns.store(smoothed(old), Ordering::Relaxed);
    }
}

#[async_trait]
impl ChunkStore for DirectoryStore {
    fn disk(&self) -> DiskId {
        self.identity().disk
    }

    async fn create(&self, id: ChunkId, bytes: u64) -> Result<Box<dyn ChunkWriter>, ChunkError> {
        assert!(bytes > 0, "a chunk has at least one byte");
        self.shared.files.begin(id, bytes)?;
        Ok(Box::new(DirectoryWriter::new(self.shared.clone(), id, bytes)))
    }

    async fn read(&self, id: ChunkId, ranges: &[ByteRange]) -> Result<Vec<Bytes>, ChunkError> {
        self.shared.files.readable()?;
        let began = self.shared.env.clock.now();
        let ranges = ranges.to_vec();
        let result = self.shared.run(move |files| files.read(id, &ranges)).await?;
        self.shared.note_read(self.shared.env.clock.now().since(began));
        result
    }

    async fn overwrite(&self, id: ChunkId, lease: Lease, changes: &[Overwrite]) -> Result<(), ChunkError> {
        self.shared.files.writable()?;
        let changes = changes.to_vec();
        self.shared.run(move |files| files.overwrite(id, lease, &changes)).await?
    }

    async fn take_space(&self, id: ChunkId) -> Result<(), ChunkError> {
        self.shared.run(move |files| files.take_space(id)).await?
    }

    async fn info(&self, id: ChunkId) -> Result<ChunkInfo, ChunkError> {
        self.shared.run(move |files| files.info(id)).await?
    }

    async fn verify(&self, id: ChunkId) -> Result<Verdict, ChunkError> {
        // What is not synced would be read from memory.
        if self.shared.files.has_unsynced() && self.state() == StoreState::Serving {
            self.sync().await?;
        }
        let mut progress = Verifying::default();
        loop {
            // One job for each step, so that other operations of the disk come between.
            let step = self.shared.run(move |files| {
                let result = files.verify_step(id, &mut progress);
                (result, progress)
            });
            let (result, after) = step.await?;
            if let Some(verdict) = result? {
                return Ok(verdict);
            }
            progress = after;
        }
    }

    async fn delete(&self, id: ChunkId) -> Result<(), ChunkError> {
        self.shared.run(move |files| files.delete(id)).await?
    }

    async fn list(&self, after: Option<ChunkId>, limit: usize) -> Result<Vec<ChunkId>, ChunkError> {
        let limit = limit.min(PAGE_IDS_MAX);
        loop {
            if let Some(page) = self.shared.run(move |files| files.page(after, limit)).await?? {
                return Ok(page);
            }
            while !self.shared.run(Files::index_step).await?? {}
        }
    }

    async fn sync(&self) -> Result<(), ChunkError> {
        self.shared.sync().await
    }

    async fn space(&self) -> Result<Space, ChunkError> {
        Ok(self.shared.run(Files::space).await??)
    }

    fn segments(&self) -> &dyn SegmentStore {
        &self.segments
    }

    fn load(&self) -> Load {
        Load {
            queued: self.shared.worker.queued(),
            read_latency: Duration::from_nanos(self.shared.read_latency_ns.load(Ordering::Relaxed)),
        }
    }

    fn state(&self) -> StoreState {
        self.shared.files.state()
    }

    fn sectors(&self) -> Option<SectorHealth> {
        self.shared.files.sectors()
    }
}
