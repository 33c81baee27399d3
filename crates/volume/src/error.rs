//! What can go wrong with volumes as a whole.

use claystone_chunk::{DiskId, NodeId, SegmentError};
use claystone_code::{CodeSpec, SpecError};
use claystone_meta::{MetaError, Redundancy, RedundancyError};

use crate::BlocksError;
use crate::comparators::UpdateMethod;
use crate::log::LogFailure;

/// Why a volume could not be made, opened, changed or deleted.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// The name cannot be a volume's.
    #[error("{name:?} cannot be a volume's name: 1 to 128 letters, digits, '.', '_' or '-', a letter or digit first")]
    BadName {
        /// What was given.
        name: String,
    },
    /// The length cannot be a volume's.
    #[error("a volume of {bytes} bytes: it must be a multiple of {page_bytes}, at least that and at most {bytes_max}")]
    BadLength {
        /// What was given.
        bytes: u64,
        /// What it must be a multiple of.
        page_bytes: u32,
        /// The most.
        bytes_max: u64,
    },
    /// Pages cannot be so long.
    #[error("pages of {page_bytes} bytes: they are 1024, 2048, 4096 or 8192 bytes long")]
    BadPages {
        /// What was given.
        page_bytes: u32,
    },
    /// Chunks cannot be so long.
    #[error("chunks of {chunk_bytes} bytes: they are whole pages, multiples of 4096 bytes and at most 1 GiB")]
    BadChunks {
        /// What was given.
        chunk_bytes: u64,
    },
    /// Volumes take no code of this kind.
    #[error(
        "a volume cannot be kept as {code}: it takes replica:n and mirror:kxn of at least 2 copies, rs:k+m, lrc and pc codes"
    )]
    BadCode {
        /// The code.
        code: CodeSpec,
    },
    /// It cannot be a home, or is named twice.
    #[error("{:?} cannot be a home, or is one twice: a node's label of letters, digits, '.', '_' and '-' is needed", .home.0)]
    BadHome {
        /// What was given.
        home: NodeId,
    },
    /// So many homes do not have as many data chunks each, or more than may be lost with one.
    #[error("{homes} homes do not fit {redundancy}: {}", uneven(redundancy))]
    UnevenHomes {
        /// How many.
        homes: usize,
        /// How the volume was to be kept.
        redundancy: Redundancy,
    },
    /// With the disks there are, a stripe is lost with one of its nodes.
    #[error(
        "{code} with these homes needs more nodes: on those that take writes a stripe would be lost with one of them"
    )]
    TooFewNodes {
        /// The code.
        code: CodeSpec,
    },
    /// Strands are of whole stripes.
    #[error("a volume with homes has whole stripes: {bytes} bytes are no multiple of {stripe_bytes}")]
    NotWholeStripes {
        /// What was given.
        bytes: u64,
        /// Of the volume in one stripe.
        stripe_bytes: u64,
    },
    /// A home has too few disks for the chunks that are to lie there.
    #[error("{needed} disks that take writes are needed on node {}, there are {available}", .home.0)]
    TooFewAtHome {
        /// The node.
        home: NodeId,
        /// Data chunks of a stripe that lie there.
        needed: usize,
        /// Disks.
        available: usize,
    },
    /// The name cannot be a strand's.
    #[error("{name:?} cannot be a strand's name: VOLUME:HOME, or of a snapshot VOLUME:HOME@SNAPSHOT")]
    BadStrandName {
        /// What was given.
        name: String,
    },
    /// The volume has no such home.
    #[error("there is no strand {name:?}: {}", of_homes(homes))]
    NoSuchStrand {
        /// `VOLUME:HOME`.
        name: String,
        /// The homes that the volume has.
        homes: Vec<NodeId>,
    },
    /// The code needs more disks than there are.
    #[error("{code} needs {needed} disks that take writes, there are {available}")]
    TooFewDisks {
        /// The code.
        code: CodeSpec,
        /// Chunks of a stripe.
        needed: usize,
        /// Disks.
        available: usize,
    },
    /// The log's segments are too short for such stripes.
    #[error("{code} with chunks of {chunk_bytes} bytes is too wide for log segments of {segment_bytes} bytes")]
    TooWide {
        /// The code.
        code: CodeSpec,
        /// Bytes of each chunk.
        chunk_bytes: u64,
        /// The setting.
        segment_bytes: u64,
    },
    /// No scratch volume is kept so.
    #[error("a scratch volume of {redundancy} by the method {method}: {reason}")]
    BadScratch {
        /// How it was to be written.
        method: UpdateMethod,
        /// How it was to be kept.
        redundancy: Redundancy,
        /// Why not.
        reason: String,
    },
    /// A scratch volume has no log, no snapshots and one length.
    #[error("{name:?} is a scratch volume, which is written in place: it is only made, used and deleted")]
    IsScratch {
        /// Which.
        name: String,
    },
    /// The volume is in use.
    #[error("volume {name:?} is in use: detach its clients first")]
    InUse {
        /// Which.
        name: String,
    },
    /// The name cannot be a snapshot's.
    #[error("{name:?} cannot be a snapshot's name: 1 to 128 letters, digits, '.', '_' or '-', a letter or digit first")]
    BadSnapshotName {
        /// What was given.
        name: String,
    },
    /// Somebody reads the snapshot.
    #[error("snapshot {name:?} is in use: detach its clients first")]
    SnapshotInUse {
        /// `VOLUME@SNAPSHOT`.
        name: String,
    },
    /// The volume has snapshots.
    #[error("volume {name:?} has snapshots, which need its stripes: delete {} first", .snapshots.join(", "))]
    HasSnapshots {
        /// Which.
        name: String,
        /// Them, as `VOLUME@SNAPSHOT`.
        snapshots: Vec<String>,
    },
    /// What waits in the log cannot be brought into stripes now, so a snapshot would miss it.
    #[error(
        "{stripes} stripes of volume {name:?} take nothing of its log now, so no snapshot was taken: too much of them is \
         lost, they are being repaired, or there is no room; see `claystone status`"
    )]
    NotMerged {
        /// Which.
        name: String,
        /// Stripes that pages wait for.
        stripes: usize,
    },
    /// Segments are too short for the volume's stripes, or its record has lengths that no volume has.
    #[error("volume {name:?} cannot be used with log segments of {segment_bytes} bytes, or its record is damaged")]
    Unusable {
        /// Which.
        name: String,
        /// The setting.
        segment_bytes: u64,
    },
    /// It did not open for somebody who asked a moment before, and is not tried again for each who waited.
    #[error("volume {name:?} did not open: {reason}")]
    Refused {
        /// Which.
        name: String,
        /// Why.
        reason: String,
    },
    /// Somebody else has opened the volume since.
    #[error("volume {name:?} was opened by somebody else")]
    LeaseEnded {
        /// Which.
        name: String,
    },
    /// Too many disks with the volume's log are absent to know that nothing of it is missing.
    #[error("volume {name:?} does not open while these disks, which keep its log, are absent: {absent:?}")]
    LogAbsent {
        /// Which.
        name: String,
        /// Its log disks that are not there.
        absent: Vec<DiskId>,
    },
    /// A disk that is there does not give what it has of the log now.
    #[error("the log of volume {name:?} cannot be read now: {error}")]
    LogUnreadable {
        /// Which.
        name: String,
        /// What the disk said.
        error: SegmentError,
    },
    /// The log is damaged where it must be whole, on every disk that has it.
    #[error("the log of volume {name:?} is damaged on every disk: segment {segment} at {offset}")]
    LogDamaged {
        /// Which.
        name: String,
        /// The segment.
        segment: u64,
        /// Where in it.
        offset: u64,
    },
    /// The log takes no records.
    #[error(transparent)]
    Log(#[from] LogFailure),
    /// A device operation failed.
    #[error(transparent)]
    Blocks(#[from] BlocksError),
    /// The code cannot be built.
    #[error(transparent)]
    Code(#[from] SpecError),
    /// Its two forms do not go together.
    #[error(transparent)]
    Redundancy(#[from] RedundancyError),
    /// Data stays where it is, so the data chunks of a stripe stay as many.
    #[error("{}", other_data(from, to))]
    OtherData {
        /// The code that stripes get now.
        from: CodeSpec,
        /// The one asked for.
        to: CodeSpec,
    },
    /// The log of an open volume keeps its copies.
    #[error("volume {name:?} is in use, and would survive more lost disks than its log does: detach its clients first")]
    MoreCopies {
        /// The volume.
        name: String,
    },
    /// The records failed, or refuse.
    #[error(transparent)]
    Meta(#[from] MetaError),
}

/// What went wrong, and what goes instead.
fn other_data(from: &CodeSpec, to: &CodeSpec) -> String {
    let (has, wanted, lost) = (from.shape().data, to.shape().data, to.tolerance());
    let chunks = if has == 1 { "chunk" } else { "chunks" };
    let copies = u32::from(lost) + 1;
    format!(
        "stripes of {from} cannot become {to}: data stays where it is, so they keep {has} data {chunks}; a volume made as \
         mirror:{wanted}x{copies} can become {to}, and this one rs:{has}+{lost} or mirror:{has}x{copies}"
    )
}

/// What homes a volume takes.
fn uneven(redundancy: &Redundancy) -> String {
    let (data, survived) = (redundancy.code.shape().data, redundancy.tolerance_min());
    let chunks = if data == 1 { "chunk" } else { "chunks" };
    format!("each has as many of its {data} data {chunks}, and at most the {survived} that it survives to lose")
}

/// The homes that there are.
fn of_homes(homes: &[NodeId]) -> String {
    let names: Vec<&str> = homes.iter().map(|home| home.0.as_str()).collect();
    if names.is_empty() {
        "its volume has no homes".to_owned()
    } else {
        format!("its volume's homes are {}", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_other_data_chunks_is_told_what_goes_instead() {
        let refused = |from: &str, to: &str| {
            let code = |code: &str| code.parse().expect("a valid code");
            VolumeError::OtherData { from: code(from), to: code(to) }.to_string()
        };
        assert_eq!(
            refused("replica:3", "rs:4+2"),
            "stripes of replica:3 cannot become rs:4+2: data stays where it is, so they keep 1 data chunk; a volume made as \
             mirror:4x3 can become rs:4+2, and this one rs:1+2 or mirror:1x3"
        );
        assert!(refused("rs:4+2", "lrc:6+2+1").ends_with(
            "keep 4 data chunks; a volume made as mirror:6x3 can become lrc:6+2+1, and this one rs:4+2 or mirror:4x3"
        ));
    }
}
