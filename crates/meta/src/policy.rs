//! How the redundancy of a bucket's stripes follows their age and how much they are read: replicas of what is new, two codes of
//! a family, the space that all of it may take, and the heat at which a stripe goes from one to the other.
//!
//! ```text
//!  replica:3/pc:2x5/pc:6x5<=150%,0.25..1.00
//!  |         |      |        |   |     +-- read more than this, a compact stripe is split into fast ones while the bound allows it
//!  |         |      |        |   +-------- read less than this, fast stripes are merged
//!  |         |      |        +------------ chunks take at most so many bytes for a hundred bytes of objects, where that can be met
//!  |         |      +--------------------- the compact code: of what is read little
//!  |         +---------------------------- the fast code: of what is read much
//!  +-------------------------------------- copies of each data chunk while a stripe is new; `hybrid:2`: copies, and the parity of the
//!                                          fast code too; without either, what is new is fast
//! ```
//!
//! Invariants:
//! 1. `FromStr` accepts exactly what `Display` writes.
//! 2. Whole stripes of the fast code make one of the compact code, which takes less space and survives no fewer losses.
//! 3. Between the two thresholds there is room, so that a steady heat changes a stripe once at most.
//! 4. What is new has the data chunks of a fast stripe and takes more space. To make it fast, copies are dropped, and parity is made if
//!    it has none; copies alone survive no more losses than the fast code does.
//!
//! Source: [hacfs §3.1]

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use claystone_code::{CodeSpec, Coded, SpecError};

/// What a bucket's stripes get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeatPolicy {
    /// What new stripes have; `None`: they are fast.
    pub fresh: Option<Fresh>,
    /// Of those that are read much.
    pub fast: CodeSpec,
    /// Of those that are read little.
    pub compact: CodeSpec,
    /// Bytes of chunks for a hundred bytes of objects, over the whole bucket, at most.
    pub percent_max: u32,
    /// A fast stripe that is read less is merged.
    pub cold_below: Reads,
    /// A compact stripe that is read more is split; more than `cold_below`.
    pub hot_above: Reads,
}

/// What a stripe has while it is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fresh {
    /// Chunks with the bytes of each of its data chunks, itself included.
    pub copies: u8,
    /// Whether it has the parity of the fast code beside them.
    pub parity: bool,
}

impl Fresh {
    /// The code of such stripes with the data chunks of `fast`; `None`: there is none.
    pub fn code(self, fast: CodeSpec) -> Option<CodeSpec> {
        let Fresh { copies, parity } = self;
        match parity {
            true => Coded::of(fast).map(|coded| CodeSpec::Hybrid { coded, copies }),
            false => u8::try_from(fast.shape().data).ok().map(|data| CodeSpec::Mirror { data, copies }),
        }
    }
}

impl fmt::Display for Fresh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", if self.parity { "hybrid" } else { "replica" }, self.copies)
    }
}

impl FromStr for Fresh {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Fresh, PolicyError> {
        let (kind, copies) = text.split_once(':').ok_or(PolicyError::Malformed)?;
        let parity = match kind {
            "hybrid" => true,
            "replica" => false,
            _ => return Err(PolicyError::Malformed),
        };
        let fresh = Fresh { copies: copies.parse().map_err(|_| PolicyError::Malformed)?, parity };
        // One text for one number.
        if fresh.to_string() == text { Ok(fresh) } else { Err(PolicyError::Malformed) }
    }
}

/// Reads of all bytes of a stripe, decayed, in hundredths: `0.25`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reads {
    /// So many hundredths of a read.
    pub hundredths: u32,
}

/// A policy with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// What users type.
    pub name: &'static str,
    /// The policy, as [`HeatPolicy`] writes it.
    pub text: &'static str,
    /// What it is good for, in one sentence.
    pub summary: &'static str,
}

/// Why a text or its numbers are no policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// One of its codes is none.
    #[error(transparent)]
    Code(#[from] SpecError),
    /// It has another form.
    #[error(
        "expected FAST/COMPACT<=PERCENT%,COLD..HOT with two decimals, such as pc:2x5/pc:6x5<=150%,0.25..1.00, or the same \
         behind replica:COPIES/ or hybrid:COPIES/"
    )]
    Malformed,
    /// New stripes take as much space as fast ones, or less.
    #[error("{copies} copies take no more space than {fast}: there is nothing to encode")]
    NothingEncoded {
        /// Copies of new stripes.
        copies: u8,
        /// The fast code.
        fast: CodeSpec,
    },
    /// The fast code survives fewer losses than the copies.
    #[error("{fast} survives {losses} losses and {copies} copies more: what was new is not to be less safe", losses = .fast.tolerance())]
    LessSafeThanCopies {
        /// Copies of new stripes.
        copies: u8,
        /// The fast code.
        fast: CodeSpec,
    },
    /// The fast code has no stripes with copies beside their parity.
    #[error("copies go beside the parity of rsm, lrc and pc codes, not beside that of {fast}")]
    NoHybrid {
        /// The fast code.
        fast: CodeSpec,
    },
    /// The fast code cuts chunks into sub-chunks, and copies do not.
    #[error("copies are not encoded to {fast} where they lie: it cuts rows that are not whole otherwise")]
    FreshSubChunks {
        /// The fast code.
        fast: CodeSpec,
    },
    /// Stripes of one code do not fill stripes of the other.
    #[error("{fast} does not merge into {compact}: {data} data chunks are no multiple of {of}")]
    NoMerge {
        /// The fast code.
        fast: CodeSpec,
        /// The compact one.
        compact: CodeSpec,
        /// Data chunks of the compact one.
        data: u16,
        /// Data chunks of the fast one.
        of: u16,
    },
    /// The compact code takes as much space, or more.
    #[error("{compact} takes no less space than {fast}")]
    NothingSaved {
        /// The fast code.
        fast: CodeSpec,
        /// The compact one.
        compact: CodeSpec,
    },
    /// The compact code survives fewer losses.
    #[error("{compact} survives {compact_losses} losses and {fast} {fast_losses}: cold data is not to be less safe", compact_losses = .compact.tolerance(), fast_losses = .fast.tolerance())]
    LessSafe {
        /// The fast code.
        fast: CodeSpec,
        /// The compact one.
        compact: CodeSpec,
    },
    /// All stripes compact take more than the bound.
    #[error("a bound of {percent_max} % is less than the {least} % that {compact} takes")]
    BoundTooLow {
        /// The compact code.
        compact: CodeSpec,
        /// The bound.
        percent_max: u32,
        /// What it takes.
        least: u32,
    },
    /// A stripe would be cold and hot at once.
    #[error("the threshold of hot stripes ({hot_above}) must be above that of cold ones ({cold_below})")]
    Thresholds {
        /// Cold below.
        cold_below: Reads,
        /// Hot above.
        hot_above: Reads,
    },
}

impl HeatPolicy {
    /// The code of new stripes, if it is another than the fast one: the same data chunks, each in several copies.
    pub fn fresh_code(&self) -> Option<CodeSpec> {
        self.fresh?.code(self.fast)
    }

    /// Whether stripes of a code are new ones of this policy, or of one that differs in what new ones have.
    pub fn is_fresh(&self, code: CodeSpec) -> bool {
        let fresh = match code {
            CodeSpec::Mirror { copies, .. } => Fresh { copies, parity: false },
            CodeSpec::Hybrid { copies, .. } => Fresh { copies, parity: true },
            _ => return false,
        };
        fresh.code(self.fast) == Some(code) && self.validate_fresh(fresh).is_ok()
    }

    /// Disks with more than little room that there must be for new stripes to have copies: those on which they can be made fast.
    pub fn roomy_for_copies(&self) -> u16 {
        self.fresh_code().map_or(0, |fresh| fresh.disks_min()).max(self.fast.disks_min())
    }

    /// Fast stripes, or new ones, that make a compact one.
    pub fn sources(&self) -> u16 {
        self.compact.shape().data / self.fast.shape().data
    }

    /// Whether a compact stripe takes more than so many of its bands would as fast stripes: it is split when the others hold nothing.
    pub fn splits_with(&self, bands_living: u16) -> bool {
        u32::from(bands_living) * u32::from(self.fast.shape().chunks()) < u32::from(self.compact.shape().chunks())
    }

    /// What chunks take beyond what their bytes of objects would under the compact code; negative: less than that.
    pub fn excess_bytes(&self, data_bytes: u64, chunks_bytes: u64) -> i64 {
        let shape = self.compact.shape();
        let compact = u128::from(data_bytes) * u128::from(shape.chunks()) / u128::from(shape.data);
        i64::try_from(i128::from(chunks_bytes) - compact as i128).unwrap_or(i64::MAX)
    }

    /// The most that a bucket of so many bytes of objects may take beyond them under the compact code: what is between that code and the
    /// bound. Of a bucket of less than `bound_from_bytes` it is as much as of one of these: so what is written first can be new, or
    /// fast, at all.
    pub fn excess_bytes_max(&self, data_bytes: u64, bound_from_bytes: u64) -> i64 {
        let data_bytes = data_bytes.max(bound_from_bytes);
        let most = u128::from(data_bytes) * u128::from(self.percent_max) / 100;
        self.excess_bytes(data_bytes, u64::try_from(most).unwrap_or(u64::MAX))
    }

    /// Whether both codes cut a row that is not whole alike: they have the same number of sub-chunks.
    pub fn rows_alike(&self) -> bool {
        self.fast.shape().alpha == self.compact.shape().alpha
    }

    /// Failure domains that stripes of both codes need: disks, each on a node of its own where a node is to be lost whole.
    pub fn disks_min(&self) -> u16 {
        self.fast.disks_min().max(self.compact.disks_min())
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// All of [`PolicyError`] but `Malformed`.
    pub fn validate(&self) -> Result<(), PolicyError> {
        let HeatPolicy { fresh, fast, compact, percent_max, cold_below, hot_above } = *self;
        fast.validate()?;
        compact.validate()?;
        let (old, new) = (fast.shape(), compact.shape());
        if new.data % old.data != 0 {
            return Err(PolicyError::NoMerge { fast, compact, data: new.data, of: old.data });
        }
        let crossed = |chunks: u16, data: u16| u32::from(chunks) * u32::from(data);
        if crossed(new.chunks(), old.data) >= crossed(old.chunks(), new.data) {
            return Err(PolicyError::NothingSaved { fast, compact });
        }
        if compact.tolerance() < fast.tolerance() {
            return Err(PolicyError::LessSafe { fast, compact });
        }
        let least = (100 * u32::from(new.chunks())).div_ceil(new.data.into());
        if percent_max < least {
            return Err(PolicyError::BoundTooLow { compact, percent_max, least });
        }
        if cold_below >= hot_above {
            return Err(PolicyError::Thresholds { cold_below, hot_above });
        }
        fresh.map_or(Ok(()), |fresh| self.validate_fresh(fresh))
    }

    fn validate_fresh(&self, fresh: Fresh) -> Result<(), PolicyError> {
        let (Fresh { copies, parity: has_parity }, fast) = (fresh, self.fast);
        if copies < 2 {
            return Err(PolicyError::Malformed);
        }
        if has_parity {
            let code = fresh.code(fast).ok_or(PolicyError::NoHybrid { fast })?;
            return Ok(code.validate()?);
        }
        let shape = fast.shape();
        let (data, parity) = (shape.data, shape.data.saturating_mul(u16::from(copies) - 1));
        let too_many = SpecError::TooManyChunks { data, parity, limit: CodeSpec::CHUNKS_MAX };
        let fresh = fresh.code(fast).ok_or(too_many)?;
        fresh.validate()?;
        if fresh.shape().chunks() <= shape.chunks() {
            return Err(PolicyError::NothingEncoded { copies, fast });
        }
        if fast.tolerance() < fresh.tolerance() {
            return Err(PolicyError::LessSafeThanCopies { copies, fast });
        }
        if shape.alpha > 1 {
            return Err(PolicyError::FreshSubChunks { fast });
        }
        Ok(())
    }

    /// The preset that this is, if it is one as it was made.
    pub fn preset(&self) -> Option<&'static Preset> {
        let text = self.to_string();
        PRESETS.iter().find(|preset| preset.text == text)
    }

    /// The policy that people mean by a preset's name or a policy's text.
    ///
    /// # Errors
    /// All of [`PolicyError`].
    pub fn named(text: &str) -> Result<HeatPolicy, PolicyError> {
        PRESETS.iter().find(|preset| preset.name == text).map_or(text, |preset| preset.text).parse()
    }

    /// The preset of a store with disks on these nodes, one for each disk: the first under which what is new has copies beside its parity,
    /// all chunks of a stripe of any age are on failure domains of their own, and one domain is left, for repair; none if there are too
    /// few. Domains are the nodes where these are set apart, else the disks.
    pub fn for_disks<N: Ord>(nodes: impl IntoIterator<Item = N>) -> Option<&'static Preset> {
        let nodes: Vec<N> = nodes.into_iter().collect();
        let apart = nodes.iter().collect::<BTreeSet<_>>().len();
        let domains = if apart > 1 { apart } else { nodes.len() };
        let fits = |preset: &&Preset| {
            let policy: HeatPolicy = preset.text.parse().expect("presets are valid");
            let fresh = policy.fresh_code().filter(|_| policy.fresh.is_some_and(|fresh| fresh.parity));
            fresh.is_some_and(|fresh| usize::from(policy.disks_min().max(fresh.shape().chunks())) < domains)
        };
        PRESETS.iter().find(fits)
    }
}

impl Reads {
    /// As a number.
    pub fn count(self) -> f64 {
        f64::from(self.hundredths) / 100.0
    }
}

impl fmt::Display for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.hundredths / 100, self.hundredths % 100)
    }
}

impl FromStr for Reads {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Reads, PolicyError> {
        let (whole, rest) = text.split_once('.').ok_or(PolicyError::Malformed)?;
        let number = |text: &str| text.parse::<u32>().map_err(|_| PolicyError::Malformed);
        let hundredths = number(whole)?.checked_mul(100).and_then(|whole| whole.checked_add(number(rest).ok()?));
        let reads = Reads { hundredths: hundredths.ok_or(PolicyError::Malformed)? };
        // One text for one number.
        if reads.to_string() == text { Ok(reads) } else { Err(PolicyError::Malformed) }
    }
}

impl fmt::Display for HeatPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HeatPolicy { fresh, fast, compact, percent_max, cold_below, hot_above } = self;
        if let Some(fresh) = fresh {
            write!(f, "{fresh}/")?;
        }
        write!(f, "{fast}/{compact}<={percent_max}%,{cold_below}..{hot_above}")
    }
}

impl FromStr for HeatPolicy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<HeatPolicy, PolicyError> {
        let malformed = || PolicyError::Malformed;
        let (codes, rest) = text.split_once("<=").ok_or_else(malformed)?;
        let codes: Vec<&str> = codes.split('/').collect();
        let (fresh, fast, compact) = match codes[..] {
            [fast, compact] => (None, fast, compact),
            [fresh, fast, compact] => (Some(fresh.parse()?), fast, compact),
            _ => return Err(malformed()),
        };
        let (percent, thresholds) = rest.split_once("%,").ok_or_else(malformed)?;
        let (cold, hot) = thresholds.split_once("..").ok_or_else(malformed)?;
        let policy = HeatPolicy {
            fresh,
            fast: fast.parse()?,
            compact: compact.parse()?,
            percent_max: percent.parse().map_err(|_| malformed())?,
            cold_below: cold.parse()?,
            hot_above: hot.parse()?,
        };
        policy.validate()?;
        if policy.to_string() == text { Ok(policy) } else { Err(malformed()) }
    }
}

/// The policies with names, in the order in which [`HeatPolicy::for_disks`] looks at them. Bounds of `pc` and
/// `lrc`: [hacfs §4].
pub const PRESETS: [Preset; 12] = [
    Preset {
        name: "hybrid-pc",
        text: "hybrid:2/pc:2x5/pc:6x5<=150%,0.25..1.00",
        summary: "as pc, with a second copy of what is new: a lost chunk is read from 1 other then, and any 4 disks may be lost",
    },
    Preset {
        name: "hybrid-rsm-10+4",
        text: "hybrid:2/rsm:10+4/rsm:20+4<=130%,0.25..1.00",
        summary: "as rsm-10+4, with a second copy of what is new: a lost chunk is read from 1 other then, and any 5 disks may be lost",
    },
    Preset {
        name: "hybrid-rsm-6+3",
        text: "hybrid:2/rsm:6+3/rsm:12+3<=135%,0.25..1.00",
        summary: "as rsm-6+3, with a second copy of what is new: a lost chunk is read from 1 other then, and any 4 disks may be lost",
    },
    Preset {
        name: "hybrid-rsm-4+2",
        text: "hybrid:2/rsm:4+2/rsm:8+2<=135%,0.25..1.00",
        summary: "as rsm-4+2, with a second copy of what is new: a lost chunk is read from 1 other then, and any 3 disks may be lost",
    },
    Preset {
        name: "clay",
        text: "mirror:6x3/clay:6+2:7<=160%,0.25..1.00",
        summary: "three copies while hot; a lost chunk is read from halves of 7 others when cold; any 2 disks may be lost",
    },
    Preset {
        name: "pc",
        text: "pc:2x5/pc:6x5<=150%,0.25..1.00",
        summary: "a lost chunk is read from 2 others while hot, from 5 when cold; any 3 disks may be lost",
    },
    Preset {
        name: "rsm-10+4",
        text: "rsm:10+4/rsm:20+4<=130%,0.25..1.00",
        summary: "least space; a lost chunk is read from 10 others while hot, from 20 when cold; any 4 disks may be lost",
    },
    Preset {
        name: "lrc",
        text: "lrc:12+6+2/lrc:12+2+2<=140%,0.25..1.00",
        summary: "a lost chunk is read from 2 others while hot, from 6 when cold; any 3 disks may be lost",
    },
    Preset {
        name: "rsm-6+3",
        text: "rsm:6+3/rsm:12+3<=135%,0.25..1.00",
        summary: "a lost chunk is read from 6 others while hot, from 12 when cold; any 3 disks may be lost",
    },
    Preset {
        name: "rsm-4+2",
        text: "rsm:4+2/rsm:8+2<=135%,0.25..1.00",
        summary: "a lost chunk is read from 4 others while hot, from 8 when cold; any 2 disks may be lost",
    },
    Preset {
        name: "replica-pc",
        text: "replica:3/pc:2x5/pc:6x5<=150%,0.25..1.00",
        summary: "as pc, but three copies while new: any 2 disks may be lost then",
    },
    Preset {
        name: "replica-rsm-6+3",
        text: "replica:3/rsm:6+3/rsm:12+3<=135%,0.25..1.00",
        summary: "as rsm-6+3, but three copies while new: any 2 disks may be lost then",
    },
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn presets_are_valid_and_found_by_name() {
        for preset in PRESETS {
            let policy = HeatPolicy::named(preset.name).expect(preset.name);
            assert_eq!(policy.to_string(), preset.text);
            assert_eq!(policy.preset(), Some(&preset));
        }
        let numbers = |name: &str| {
            let policy = HeatPolicy::named(name).expect(name);
            (policy.sources(), policy.disks_min(), policy.percent_max)
        };
        assert_eq!(
            PRESETS.map(|preset| numbers(preset.name)),
            [
                (3, 42, 150),
                (2, 24, 130),
                (2, 15, 135),
                (2, 10, 135),
                (1, 8, 160),
                (3, 42, 150),
                (2, 24, 130),
                (1, 20, 140),
                (2, 15, 135),
                (2, 10, 135),
                (3, 42, 150),
                (2, 15, 135)
            ]
        );
    }

    #[test]
    fn what_is_new_has_copies_of_the_fast_codes_data_chunks() {
        let fresh = |name: &str| HeatPolicy::named(name).expect(name).fresh_code().map(|code| code.to_string());
        assert_eq!(fresh("replica-pc").as_deref(), Some("mirror:10x3"));
        assert_eq!(fresh("replica:4/rsm:6+3/rsm:12+3<=135%,0.25..1.00").as_deref(), Some("mirror:6x4"));
        assert_eq!(fresh("hybrid:2/rsm:6+3/rsm:12+3<=135%,0.25..1.00").as_deref(), Some("hybrid:rsm:6+3x2"));
        assert_eq!(fresh("pc"), None);
        let policy = HeatPolicy::named("rsm-6+3").expect("a preset");
        let is_fresh = |code: &str| policy.is_fresh(code.parse().expect(code));
        assert!(is_fresh("mirror:6x3") && is_fresh("hybrid:rsm:6+3x2") && is_fresh("hybrid:rsm:6+3x3"));
        assert!(
            !is_fresh("mirror:10x3")
                && !is_fresh("hybrid:rsm:10+3x2")
                && !is_fresh("rsm:6+3")
                && !is_fresh("mirror:6x5")
        );
    }

    #[test]
    fn a_store_has_a_policy_if_repair_has_a_disk_to_go_to() {
        let disks = [10, 11, 15, 16, 24, 25, 42, 43];
        let name = |nodes: Vec<usize>| HeatPolicy::for_disks(nodes).map_or("none", |preset| preset.name);
        let names = disks.map(|disks| name(vec![0; disks]));
        let (narrow, rsm, wide) = ("hybrid-rsm-4+2", "hybrid-rsm-6+3", "hybrid-rsm-10+4");
        assert_eq!(names, ["none", narrow, narrow, rsm, rsm, wide, wide, "hybrid-pc"]);
        assert_eq!(disks.map(|nodes| name((0..nodes).collect())), names, "each on a node of its own");
        // 43 disks on sixteen nodes, and on four.
        assert_eq!([16, 4].map(|nodes| name((0..43).map(|disk| disk % nodes).collect())), [rsm, "none"]);
    }

    #[test]
    fn what_saves_nothing_or_cannot_be_kept_is_refused() {
        let refused = |text: &str| text.parse::<HeatPolicy>().expect_err(text);
        for text in [
            "pc:2x5",
            "pc:2x5/pc:6x5",
            "pc:2x5/pc:6x5<=150%",
            "pc:2x5/pc:6x5<=0150%,0.25..1.00",
            "pc:2x5/pc:6x5<=150%,0.25..1",
            "pc:2x5/pc:6x5<=150%,0.250..1.00",
            "pc:2x5/pc:6x5<=150%,0.25..99999999.00",
        ] {
            assert_eq!(refused(text), PolicyError::Malformed, "{text}");
        }
        let with = |codes: &str, bound: &str| refused(&format!("{codes}<={bound}%,0.25..1.00"));
        assert!(matches!(with("rsm:6+3/rsm:10+3", "150"), PolicyError::NoMerge { data: 10, of: 6, .. }));
        assert!(matches!(with("pc:6x5/pc:2x5", "150"), PolicyError::NoMerge { .. }));
        assert!(matches!(with("rs:6+3/rs:6+3", "150"), PolicyError::NothingSaved { .. }));
        assert!(matches!(with("rsm:6+3/rsm:12+2", "150"), PolicyError::LessSafe { .. }));
        assert!(matches!(with("pc:2x5/pc:6x5", "139"), PolicyError::BoundTooLow { least: 140, .. }));
        assert!(matches!(refused("pc:2x5/pc:6x5<=150%,1.00..1.00"), PolicyError::Thresholds { .. }));
        assert!(matches!(with("raid:6/pc:6x5", "150"), PolicyError::Code(_)));
        assert!(matches!(with("hybrid:2/rs:6+3/rs:12+3", "150"), PolicyError::NoHybrid { .. }));
        assert!(matches!(
            with("hybrid:3/rsm:100+3/rsm:200+3", "150"),
            PolicyError::Code(SpecError::TooManyChunks { data: 100, parity: 203, .. })
        ));
        for text in [
            "rs:2+1/rsm:6+3/rsm:12+3",
            "replica:1/rsm:6+3/rsm:12+3",
            "hybrid:1/rsm:6+3/rsm:12+3",
            "hybrid:02/rsm:6+3/rsm:12+3",
            "replica:3/replica:3/rsm:6+3/rsm:12+3",
        ] {
            assert_eq!(with(text, "150"), PolicyError::Malformed, "{text}");
        }
        assert!(matches!(with("replica:2/rs:2+2/rs:4+2", "150"), PolicyError::NothingEncoded { copies: 2, .. }));
        assert!(matches!(with("replica:4/rs:6+2/rs:12+2", "150"), PolicyError::LessSafeThanCopies { copies: 4, .. }));
        assert!(matches!(with("replica:3/clay:6+2:7/clay:12+2:13", "150"), PolicyError::FreshSubChunks { .. }));
        assert!(matches!(
            with("replica:3/rs:200+2/rs:400+2", "150"),
            PolicyError::Code(SpecError::TooManyChunks { .. })
        ));
    }

    proptest! {
        #[test]
        fn what_is_accepted_is_written_as_it_was_read(
            text in "((replica|hybrid):[0-9]/)?rsm:[1-9]\\+3/rsm:[1-9]{1,2}\\+3<=[0-9]{3}%,[0-9]{1,2}\\.[0-9]{1,3}\\.\\.[0-9]{1,2}\\.[0-9]{2}"
        ) {
            if let Ok(policy) = text.parse::<HeatPolicy>() {
                prop_assert_eq!(policy.to_string(), text);
                prop_assert_eq!(policy.validate(), Ok(()));
            }
        }
    }
}
