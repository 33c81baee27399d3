//! How a volume's stripes are kept: under one code, or mirrored while they are written much and coded while they are not.
//!
//! ```text
//!  rs:4+2                        always so
//!  replica:3/rs:4+2              three copies of each of the four data chunks, or two parities, or copies of some and parity of the others
//!  replica:3/rs:4+2<=200%        the same, of all stripes and the log together at most twice the bytes
//! ```
//!
//! Invariants:
//! 1. `FromStr` accepts exactly what `Display` writes.
//! 2. Both forms have the same data chunks, so that a stripe goes from one to the other without moving any.

use std::fmt;
use std::str::FromStr;

use claystone_code::{ChunkSet, CodeSpec, SpecError};

/// What a volume's stripes get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Redundancy {
    /// The code of a stripe that is written little, or of all.
    pub code: CodeSpec,
    /// What a stripe is that is written much; `None`: the same.
    pub mirroring: Option<Mirroring>,
}

/// How stripes are mirrored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mirroring {
    /// Chunks with the bytes of each data chunk, itself included; at least 2.
    pub copies: u8,
    /// Bytes of chunks and of the log for a hundred bytes of the volume, over all its stripes, at most; `None`: no bound.
    pub percent_max: Option<u32>,
}

/// Why a text or its numbers are no redundancy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RedundancyError {
    /// One of its codes is none.
    #[error(transparent)]
    Code(#[from] SpecError),
    /// What stands before the slash is no `replica:C` of at least two copies.
    #[error("expected CODE or replica:COPIES/CODE, with at least 2 copies")]
    Malformed,
    /// The coded form has as many bytes as the mirrored one, or more.
    #[error("{copies} copies take no more than {code} does: there is nothing to switch to")]
    NothingSaved {
        /// The coded form.
        code: CodeSpec,
        /// Copies of the mirrored one.
        copies: u8,
    },
    /// All stripes coded take more than the bound, alone or with the log.
    #[error("a bound of {percent_max} % is less than the {least} % that {code} takes{}", with_log(*.log_percent))]
    BoundTooLow {
        /// The coded form.
        code: CodeSpec,
        /// The bound.
        percent_max: u32,
        /// What it takes, with the log.
        least: u32,
        /// What of that the log takes, where it is known how long the log and the volume are; else 0.
        log_percent: u32,
    },
}

fn with_log(percent: u32) -> String {
    if percent == 0 { String::new() } else { format!(" with the volume's log, which takes {percent} %") }
}

impl Redundancy {
    /// The code of a stripe that is written much: that of new stripes.
    pub fn hot(&self) -> CodeSpec {
        match (self.mirroring, u8::try_from(self.code.shape().data)) {
            (Some(Mirroring { copies, .. }), Ok(data)) => CodeSpec::Mirror { data, copies },
            _ => self.code,
        }
    }

    /// The code of a stripe of which these data chunks are written much: some of them, and not all. `None`: there is none, and a stripe is mirrored
    /// as a whole or coded as a whole.
    pub fn partly_hot(&self, mirrored: ChunkSet) -> Option<CodeSpec> {
        let (Some(Mirroring { copies, .. }), CodeSpec::ReedSolomon { data, parity }) = (self.mirroring, self.code)
        else {
            return None;
        };
        let (data, parity) = (u8::try_from(data).ok()?, u8::try_from(parity).ok()?);
        let mixed = CodeSpec::Mixed { data, parity, copies, mirrored };
        mixed.validate().is_ok().then_some(mixed)
    }

    /// Whether each data chunk of a stripe may be mirrored or coded by itself.
    pub fn turns_by_chunk(&self) -> bool {
        let data = self.code.shape().data;
        // Of one with a single chunk there is no part.
        data <= ChunkSet::DATA_MAX && self.partly_hot(ChunkSet::first(data.saturating_sub(1))).is_some()
    }

    /// Both codes, once where they are the same.
    pub fn codes(&self) -> impl Iterator<Item = CodeSpec> + use<> {
        let hot = (self.hot() != self.code).then_some(self.hot());
        [self.code].into_iter().chain(hot)
    }

    /// The most disks that a stripe may lose under either form.
    pub fn tolerance_max(&self) -> u16 {
        self.codes().map(|code| code.tolerance()).max().expect("there is one")
    }

    /// The lost disks that every stripe survives, whichever form it has.
    pub fn tolerance_min(&self) -> u16 {
        self.codes().map(|code| code.tolerance()).min().expect("there is one")
    }

    /// The most chunks that a stripe has under either form.
    pub fn chunks_max(&self) -> u16 {
        self.codes().map(|code| code.shape().chunks()).max().expect("there is one")
    }

    /// Disks for stripes of both forms.
    pub fn disks_min(&self) -> u16 {
        self.codes().map(|code| code.disks_min()).max().expect("there is one")
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// All of [`RedundancyError`].
    pub fn validate(&self) -> Result<(), RedundancyError> {
        self.code.validate()?;
        let Some(Mirroring { copies, percent_max }) = self.mirroring else { return Ok(()) };
        if copies < 2 {
            return Err(RedundancyError::Malformed);
        }
        let data = self.code.shape().data;
        let narrow = u8::try_from(data).map_err(|_| {
            let parity = data.saturating_mul(u16::from(copies) - 1);
            SpecError::TooManyChunks { data, parity, limit: CodeSpec::CHUNKS_MAX }
        })?;
        let mirror = CodeSpec::Mirror { data: narrow, copies };
        mirror.validate()?;
        let code = self.code;
        if code.shape().chunks() >= mirror.shape().chunks() {
            return Err(RedundancyError::NothingSaved { code, copies });
        }
        let least = (100 * u32::from(code.shape().chunks())).div_ceil(data.into());
        match percent_max {
            Some(percent_max) if percent_max < least => {
                Err(RedundancyError::BoundTooLow { code, percent_max, least, log_percent: 0 })
            }
            _ => Ok(()),
        }
    }
}

impl From<CodeSpec> for Redundancy {
    fn from(code: CodeSpec) -> Redundancy {
        Redundancy { code, mirroring: None }
    }
}

impl fmt::Display for Redundancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mirroring {
            None => write!(f, "{}", self.code),
            Some(Mirroring { copies, percent_max: None }) => write!(f, "replica:{copies}/{}", self.code),
            Some(Mirroring { copies, percent_max: Some(most) }) => write!(f, "replica:{copies}/{}<={most}%", self.code),
        }
    }
}

impl FromStr for Redundancy {
    type Err = RedundancyError;

    fn from_str(text: &str) -> Result<Redundancy, RedundancyError> {
        let Some((mirrored, rest)) = text.split_once('/') else {
            return Ok(Redundancy::from(text.parse::<CodeSpec>()?));
        };
        let CodeSpec::Replicated { copies } = mirrored.parse()? else { return Err(RedundancyError::Malformed) };
        let (code, percent_max) = match rest.split_once("<=") {
            None => (rest, None),
            Some((code, bound)) => {
                let percent = bound.strip_suffix('%').and_then(|percent| percent.parse::<u32>().ok());
                (code, Some(percent.ok_or(RedundancyError::Malformed)?))
            }
        };
        let redundancy = Redundancy { code: code.parse()?, mirroring: Some(Mirroring { copies, percent_max }) };
        redundancy.validate()?;
        // One text for one redundancy: no signs, no leading zeros.
        if redundancy.to_string() == text { Ok(redundancy) } else { Err(RedundancyError::Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use claystone_code::ChunkIndex;
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Redundancy {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn both_forms_have_the_same_data_chunks() {
        let both = parsed("replica:3/rs:4+2");
        assert_eq!((both.hot().to_string(), both.code.to_string()), ("mirror:4x3".to_owned(), "rs:4+2".to_owned()));
        assert_eq!((both.tolerance_max(), both.chunks_max(), both.disks_min()), (2, 12, 6));
        let one = parsed("rs:4+2");
        assert_eq!((one.hot(), one.codes().count(), one.disks_min()), (one.code, 1, 6));
        assert_eq!(parsed("replica:3/rs:4+1").tolerance_max(), 2);
        let of = |chunks: &[u16]| both.partly_hot(chunks.iter().copied().map(ChunkIndex).collect());
        assert_eq!(of(&[0, 2]).map(|code| code.to_string()).as_deref(), Some("mixed:4+2x3:0+2"));
        assert_eq!((of(&[]), of(&[0, 1, 2, 3]), of(&[4])), (None, None, None));
        let by_chunk = |text: &str| parsed(text).turns_by_chunk();
        assert!(by_chunk("replica:3/rs:4+2") && by_chunk("replica:2/rs:2+1") && by_chunk("replica:2/rs:32+3"));
        let whole = ["rs:4+2", "replica:3/rs:1+1", "replica:3/lrc:4+2+1", "replica:2/rs:33+3"];
        assert!(!whole.into_iter().any(by_chunk));
        assert_eq!(parsed("replica:3/rs:4+2<=200%").mirroring, Some(Mirroring { copies: 3, percent_max: Some(200) }));
    }

    #[test]
    fn what_saves_nothing_or_cannot_be_kept_is_refused() {
        let refused = |text: &str| text.parse::<Redundancy>().expect_err(text);
        for text in ["replica:1/rs:4+2", "rs:4+2/rs:4+2", "replica:3/rs:4+2<=", "replica:3/rs:4+2<=0200%"] {
            assert_eq!(refused(text), RedundancyError::Malformed, "{text}");
        }
        assert!(matches!(refused("replica:2/rs:2+2"), RedundancyError::NothingSaved { .. }));
        assert!(matches!(refused("replica:2/replica:2"), RedundancyError::NothingSaved { .. }));
        assert!(matches!(
            refused("replica:3/rs:4+2<=149%"),
            RedundancyError::BoundTooLow { percent_max: 149, least: 150, log_percent: 0, .. }
        ));
        assert_eq!(
            refused("replica:3/rs:4+2<=149%").to_string(),
            "a bound of 149 % is less than the 150 % that rs:4+2 takes"
        );
        assert!(matches!(refused("replica:3/rs:100+2"), RedundancyError::Code(SpecError::TooManyChunks { .. })));
        assert!(matches!(refused("replica:3/rs:300+2"), RedundancyError::Code(SpecError::TooManyChunks { .. })));
        assert!(matches!(refused("raid:6"), RedundancyError::Code(SpecError::UnknownFamily)));
    }

    proptest! {
        #[test]
        fn what_is_accepted_is_written_as_it_was_read(text in "(replica:[0-9]{1,2}/)?rs:[0-9]{1,2}\\+[0-9](<=[0-9]{1,4}%)?") {
            if let Ok(redundancy) = text.parse::<Redundancy>() {
                prop_assert_eq!(redundancy.to_string(), text);
                prop_assert_eq!(redundancy.validate(), Ok(()));
            }
        }
    }
}
