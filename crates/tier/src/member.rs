//! Which side of which pair a device is, before the pair is opened.

use claystone_env::Device;

use crate::error::TierError;
use crate::profile::Profile;
use crate::superblock::{PairId, Side, SuperblockFault, VERSION, newest};

/// What a device says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Which pair it belongs to.
    pub pair: PairId,
    /// Which of the two it is.
    pub side: Side,
    /// How often its superblock was stored: of two copies of a side, that of the higher one is the newer.
    pub generation: u64,
    /// Whether the pair goes on without its solid-state drive.
    pub ssd_lost: bool,
    /// Whether the solid-state drive has nothing that is not at home, if this is the hard disk: the pair opens without it.
    pub at_rest: bool,
    /// How the hard disk's write buffer takes writes, if that is known.
    pub profile: Option<Profile>,
    /// The queue of the solid-state drive that is not long yet, if it was measured.
    pub queue_max: Option<u16>,
    /// Where the solid-state drive was when the pair was opened last; empty where that is not known.
    pub ssd_label: String,
}

impl Member {
    /// Of a device; `None` if it is of no pair.
    ///
    /// # Errors
    /// [`TierError::OtherVersion`], [`TierError::Device`].
    pub fn of(device: &dyn Device) -> Result<Option<Member>, TierError> {
        match newest(device)? {
            Ok((side, superblock)) => Ok(Some(Member {
                pair: superblock.id,
                side,
                generation: superblock.generation,
                ssd_lost: superblock.ssd_lost,
                at_rest: superblock.at_rest,
                profile: superblock.profile,
                queue_max: superblock.queue_max,
                ssd_label: superblock.ssd_label,
            })),
            Err(SuperblockFault::Foreign) => Ok(None),
            Err(SuperblockFault::Other(found)) => {
                Err(TierError::OtherVersion { label: device.label(), found, supported: VERSION })
            }
        }
    }
}
