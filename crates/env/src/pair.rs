//! How two devices are that are one: a hard disk, and the solid-state drive that takes writes for it.

/// How such a pair is. Counts are since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PairHealth {
    /// Whether the solid-state drive can be used.
    pub ssd: SsdState,
    /// What the hard disk's write buffer is believed to do with the next write.
    pub buffer: BufferState,
    /// Bytes that writers brought.
    pub written_bytes: u64,
    /// Bytes that went to the solid-state drive, with what describes them.
    pub ssd_bytes: u64,
    /// Writes that went to the hard disk's log instead.
    pub redirected_writes: u64,
    /// Their bytes.
    pub redirected_bytes: u64,
    /// Of them, bytes that went to the solid-state drive after all: a sync has copied them, because that was sooner done. What is left the
    /// solid-state drive was spared.
    pub copied_bytes: u64,
    /// Bytes written to the hard disk that nobody needs: they take it through its slow stages.
    pub padding_bytes: u64,
    /// Syncs of the hard disk that nobody asked for: they make its buffer quick.
    pub upkeep_syncs: u64,
    /// Slow stages of the hard disk's buffer.
    pub slow_stages: u64,
    /// Redirected writes that met a slow stage which was not foreseen.
    pub surprises: u64,
    /// Bytes brought from the logs to their place.
    pub drained_bytes: u64,
    /// Sectors that only the lost solid-state drive had, and that were not written since.
    pub lost_sectors: u64,
    /// The solid-state drive's log.
    pub ssd_log: LogFill,
    /// The hard disk's.
    pub hdd_log: LogFill,
    /// Bytes of both logs that are in no index: an opening after a crash reads them.
    pub unindexed_bytes: u64,
}

/// How full a log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogFill {
    /// Bytes that are not free.
    pub used_bytes: u64,
    /// All of it.
    pub bytes: u64,
}

/// Whether a pair's solid-state drive can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SsdState {
    /// It is.
    #[default]
    Present,
    /// It did not do what it was asked, and the hard disk does not have that in writing yet.
    Failed,
    /// The pair goes on without it.
    Lost,
}

impl SsdState {
    /// In one word.
    pub fn word(self) -> &'static str {
        match self {
            SsdState::Present => "present",
            SsdState::Failed => "failed",
            SsdState::Lost => "lost",
        }
    }
}

/// What a hard disk's write buffer is believed to do with the next write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BufferState {
    /// There is no profile of the drive: nothing is redirected.
    #[default]
    Unknown,
    /// The drive does not behave as its profile says: nothing is redirected until a trial has gone well.
    GivenUp,
    /// It is padded to find out how it behaves; nothing is redirected.
    OnTrial,
    /// It takes it at once.
    Fast,
    /// It takes it nearly so.
    Mid,
    /// It is about to make one wait.
    Due,
    /// It makes it wait.
    Slow,
    /// It was read, or did something of its own: how full it is is to be found out.
    Lost,
    /// Somebody reads from the drive, or syncs it.
    Suspended,
}

impl BufferState {
    /// In a word or two.
    pub fn word(self) -> &'static str {
        match self {
            BufferState::Unknown => "unknown",
            BufferState::GivenUp => "given up",
            BufferState::OnTrial => "on trial",
            BufferState::Fast => "fast",
            BufferState::Mid => "middle",
            BufferState::Due => "due",
            BufferState::Slow => "slow",
            BufferState::Lost => "lost",
            BufferState::Suspended => "suspended",
        }
    }
}
