//! Why a stripe changes its code, or keeps it: the numbers, and a sentence for people.

use std::fmt;

use claystone_code::CodeSpec;
use claystone_meta::Reads;

use crate::status::counted;

/// Why upkeep does what it does about a stripe of a bucket with a policy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Why {
    /// Fast stripes, or fresh ones, become one compact one, because all of them are read little.
    Cold {
        /// Reads of the one that is read most.
        heat: f64,
        /// The threshold.
        cold_below: Reads,
        /// How many there are.
        sources: u16,
    },
    /// Fast stripes, or fresh ones, become one compact one, because the bucket takes more than its bound and these are read least.
    OverBound {
        /// Reads of the one that is read most.
        heat: f64,
        /// Bytes of chunks for a hundred bytes of objects.
        percent: f64,
        /// The bound.
        percent_max: u32,
    },
    /// Fast stripes become one compact one, to make room for what is read much more.
    GivesWay {
        /// Reads of the one that is read most.
        heat: f64,
        /// Reads of what is to be made fast.
        hotter: f64,
        /// The bound.
        percent_max: u32,
    },
    /// Replicas become a fast stripe: it is no longer new, and is read or has nothing to be merged with.
    Settled {
        /// Reads.
        heat: f64,
        /// The threshold.
        cold_below: Reads,
    },
    /// A compact stripe becomes fast ones, because it is read much and there is room.
    Hot {
        /// Reads.
        heat: f64,
        /// The threshold.
        hot_above: Reads,
        /// What the bucket will take.
        percent: f64,
        /// The bound.
        percent_max: u32,
    },
    /// A compact stripe becomes fast ones, because objects that it held are deleted and what is left takes less alone.
    BandsDead {
        /// Bands that no object holds.
        dead: u16,
        /// All of them.
        bands: u16,
    },
    /// A fast stripe stays: it is read too much to be merged.
    Warm {
        /// Reads.
        heat: f64,
        /// The threshold.
        cold_below: Reads,
    },
    /// A compact stripe stays: it is read too little to be split.
    Cool {
        /// Reads.
        heat: f64,
        /// The threshold.
        hot_above: Reads,
    },
    /// A compact stripe that is read much stays: the bound leaves no room.
    NoRoom {
        /// Reads.
        heat: f64,
        /// What the bucket would take.
        percent: f64,
        /// The bound.
        percent_max: u32,
    },
    /// A fast stripe that is read little stays: there are not enough others to merge it with.
    NoPartner {
        /// Others that a merge needs.
        needed: u16,
        /// Others with chunks of this length that may be merged now.
        alike: usize,
    },
    /// Two of its data chunks lie on one disk, as copies may: other codes want them apart.
    Crowded {
        /// The other code.
        code: CodeSpec,
    },
    /// Too few disks take new chunks.
    TooFewDisks {
        /// The code.
        code: CodeSpec,
        /// Disks that it needs.
        needed: u16,
        /// Disks there are.
        available: usize,
    },
    /// There are too few nodes: the compact code would survive fewer losses of them.
    TooFewNodes {
        /// The compact code.
        code: CodeSpec,
        /// Nodes that it needs to survive as many of their losses as of disks.
        needed: u16,
        /// Nodes there are.
        available: usize,
    },
    /// It has none of the policy's codes: it is small, was written before the policy, or when disks were missing.
    OtherCode {
        /// Its code.
        code: CodeSpec,
    },
    /// It ends within a row, which the other code, of other sub-chunks, would cut otherwise.
    ShortRow {
        /// The other code.
        code: CodeSpec,
    },
    /// It was written or converted a short while ago, or upkeep runs for so short a time that reads may be lost.
    Young {
        /// Seconds until it counts.
        seconds_left: u64,
    },
    /// The same of a compact stripe: it was merged, or the bound left no room for more when it was written.
    YoungCompact {
        /// Seconds until it counts.
        seconds_left: u64,
    },
    /// Chunks of it are lost or do not answer: repair comes first.
    Hurt {
        /// How many.
        chunks: u16,
    },
    /// An attempt failed a short while ago.
    Waits,
    /// Objects of another bucket hold it too, whose policy decides.
    Elsewhere,
    /// A volume or a snapshot holds it too.
    OfVolume,
}

impl Why {
    /// In one word, for programs.
    pub fn word(&self) -> &'static str {
        match self {
            Why::Cold { .. } => "cold",
            Why::OverBound { .. } => "over_bound",
            Why::GivesWay { .. } => "gives_way",
            Why::Settled { .. } => "settled",
            Why::Hot { .. } => "hot",
            Why::BandsDead { .. } => "bands_dead",
            Why::Warm { .. } => "warm",
            Why::Cool { .. } => "cool",
            Why::NoRoom { .. } => "no_room",
            Why::NoPartner { .. } => "no_partner",
            Why::Crowded { .. } => "crowded",
            Why::TooFewDisks { .. } => "too_few_disks",
            Why::TooFewNodes { .. } => "too_few_nodes",
            Why::OtherCode { .. } => "other_code",
            Why::ShortRow { .. } => "short_row",
            Why::Young { .. } => "young",
            Why::YoungCompact { .. } => "young_compact",
            Why::Hurt { .. } => "hurt",
            Why::Waits => "waits",
            Why::Elsewhere => "elsewhere",
            Why::OfVolume => "of_volume",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Why::Cold { heat, cold_below, sources: 1 } => {
                write!(f, "it is made compact: it was read {heat:.2} times lately, less than {cold_below}")
            }
            Why::Cold { heat, cold_below, sources } => write!(
                f,
                "it is merged with {}: each was read at most {heat:.2} times lately, less than {cold_below}",
                counted(u64::from(sources) - 1, "other", "others")
            ),
            Why::OverBound { heat, percent, percent_max } => write!(
                f,
                "it is made compact: the bucket takes {percent:.1} % of its data, more than its bound of {percent_max} %, and \
                 this is among what is read least ({heat:.2} times lately)"
            ),
            Why::GivesWay { heat, hotter, percent_max } => write!(
                f,
                "it is made compact: it was read {heat:.2} times lately, and gives way to what was read {hotter:.2} times, for which the \
                 bound of {percent_max} % leaves no room"
            ),
            Why::Settled { heat, cold_below } if heat < cold_below.count() => write!(
                f,
                "its copies become parity: it is no longer new, and nothing that it could be merged with at once is read as \
                 little ({heat:.2} times lately)"
            ),
            Why::Settled { heat, cold_below } => write!(
                f,
                "its copies become parity: it is no longer new, and was read {heat:.2} times lately, not less than {cold_below}"
            ),
            Why::Hot { heat, hot_above, percent, percent_max } => write!(
                f,
                "it is made fast: it was read {heat:.2} times lately, more than {hot_above}, and the bucket will take \
                 {percent:.1} % of its data, within its bound of {percent_max} %"
            ),
            Why::BandsDead { dead, bands } => {
                write!(f, "it is split: {dead} of the {bands} stripes that were merged into it hold nothing any more")
            }
            Why::Warm { heat, cold_below } => {
                write!(f, "it stays fast: it was read {heat:.2} times lately, not less than {cold_below}")
            }
            Why::Cool { heat, hot_above } => {
                write!(f, "it stays compact: it was read {heat:.2} times lately, not more than {hot_above}")
            }
            Why::NoRoom { heat, percent, percent_max } => write!(
                f,
                "it stays compact though it was read {heat:.2} times lately: made fast, the bucket would take {percent:.1} % of \
                 its data, too near its bound of {percent_max} %"
            ),
            Why::NoPartner { needed, alike } => write!(
                f,
                "it stays fast though it is read little: a merge needs {needed} more with chunks as long as its own and on other \
                 disks and nodes, and {alike} have such chunks"
            ),
            Why::Crowded { code } => {
                write!(
                    f,
                    "it stays as it is until some of its data chunks are moved: they lie on one disk, {code} wants them apart, \
                     and disks with room must have none of them"
                )
            }
            Why::TooFewDisks { code, needed, available } => {
                write!(f, "it stays as it is: {code} needs {needed} disks that take writes, there are {available}")
            }
            Why::TooFewNodes { code, needed, available } => write!(
                f,
                "it stays as it is: on {available} nodes {code} would survive fewer losses of nodes, and it needs {needed} to have \
                 each chunk on its own"
            ),
            Why::OtherCode { code } => write!(
                f,
                "it stays as it is: it has {code}, because it is small, was written before the bucket had this policy, or when \
                 disks were missing"
            ),
            Why::ShortRow { code } => write!(
                f,
                "it stays as it is: it ends within a row, which {code} would cut otherwise, and data stays where it is"
            ),
            Why::Young { seconds_left } => write!(
                f,
                "it stays as it is: it is new, or the store was started a short while ago; it counts in {}",
                counted(seconds_left, "second", "seconds")
            ),
            Why::YoungCompact { seconds_left } => write!(
                f,
                "it stays compact: it was merged a short while ago, or written so because the bound left no room for more, or the store \
                 was started then; it counts in {}",
                counted(seconds_left, "second", "seconds")
            ),
            Why::Hurt { chunks } => write!(
                f,
                "it stays as it is: {}, and repair comes first",
                counted(chunks.into(), "of its chunks is lost or does not answer", "of its chunks are lost or do not answer")
            ),
            Why::Waits => f.write_str("it stays as it is: an attempt failed a short while ago and is repeated later"),
            Why::Elsewhere => f.write_str(
                "it stays as it is: objects of another bucket hold it too, whose policy decides, or of another part of this one",
            ),
            Why::OfVolume => f.write_str("it stays as it is: a volume or a snapshot holds it too, which has a stripe at each position"),
        }
    }
}
