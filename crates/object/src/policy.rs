//! Which code a new stripe gets: a pure function.

use claystone_chunk::Durability;
use claystone_code::CodeSpec;

/// What the operator decided, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The code of buckets that name none.
    pub code: CodeSpec,
    /// When a put may be acknowledged.
    pub durability: Durability,
    /// The longest object.
    pub object_bytes_max: u64,
    /// The least length of a part that is not the last.
    pub part_bytes_min: u64,
}

impl Settings {
    /// Usual limits of S3 around a code.
    pub fn new(code: CodeSpec) -> Settings {
        Settings { code, durability: Durability::Synced, object_bytes_max: 5 << 40, part_bytes_min: 5 << 20 }
    }
}

/// The code for a stripe of `bytes` object bytes when `disks` disks take writes and `wanted` is the bucket's code.
///
/// The result survives the loss of as many disks as `wanted` does:
/// 1. A stripe of at most [`SMALL_BYTES`] is replicated: it costs half the operations of a code of six chunks, and
///    at these lengths no more space, since every chunk takes at least one sector.
/// 2. With fewer disks than the code has chunks, the data goes to fewer chunks with the same parity: less efficient,
///    never less safe. `rs:4+2` on five disks writes `rs:3+2`, on three `replica:3`.
/// 3. With too few disks even for that there is no code: `None`.
pub fn fit_code(wanted: CodeSpec, bytes: u64, disks: usize) -> Option<CodeSpec> {
    let parity = wanted.shape().parity;
    let replicated = CodeSpec::Replicated { copies: u8::try_from(parity + 1).ok()? };
    let data_left = u16::try_from(disks).unwrap_or(u16::MAX).checked_sub(parity)?;
    if data_left == 0 {
        return None;
    }
    let data = wanted.shape().data.min(data_left) as u8;
    Some(match wanted {
        CodeSpec::Replicated { .. } => wanted,
        _ if bytes <= SMALL_BYTES || data == 1 => replicated,
        CodeSpec::ReedSolomon { parity, .. } => CodeSpec::ReedSolomon { data, parity },
        CodeSpec::Clay { parity, helpers, .. } => {
            CodeSpec::Clay { data, parity, helpers: helpers.min(data + parity - 1).max(data + 1) }
        }
    })
}

/// Stripes up to this length are replicated whatever the bucket's code.
pub const SMALL_BYTES: u64 = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(wanted: &str, bytes: u64, disks: usize) -> Option<String> {
        fit_code(wanted.parse().expect("a valid code"), bytes, disks).map(|code| code.to_string())
    }

    #[test]
    fn enough_disks_give_the_wanted_code() {
        assert_eq!(fit("rs:4+2", 1 << 20, 6).as_deref(), Some("rs:4+2"));
        assert_eq!(fit("clay:4+2:5", 1 << 20, 9).as_deref(), Some("clay:4+2:5"));
    }

    #[test]
    fn fewer_disks_give_a_narrower_code_of_the_same_tolerance() {
        assert_eq!(fit("rs:4+2", 1 << 20, 5).as_deref(), Some("rs:3+2"));
        assert_eq!(fit("rs:4+2", 1 << 20, 4).as_deref(), Some("rs:2+2"));
        assert_eq!(fit("rs:4+2", 1 << 20, 3).as_deref(), Some("replica:3"));
        assert_eq!(fit("rs:4+2", 1 << 20, 2), None);
        assert_eq!(fit("clay:4+2:5", 1 << 20, 4).as_deref(), Some("clay:2+2:3"));
        assert_eq!(fit("replica:3", 1 << 20, 2), None);
        assert_eq!(fit("rs:4+2", 1 << 20, 0), None);
    }

    #[test]
    fn small_stripes_are_replicated_with_the_same_tolerance() {
        assert_eq!(fit("rs:4+2", SMALL_BYTES, 6).as_deref(), Some("replica:3"));
        assert_eq!(fit("rs:4+2", SMALL_BYTES + 1, 6).as_deref(), Some("rs:4+2"));
        assert_eq!(fit("replica:2", 1, 6).as_deref(), Some("replica:2"));
    }

    #[test]
    fn every_fitted_code_is_valid() {
        for wanted in ["rs:17+3", "clay:16+4:19", "clay:10+4:11", "clay:4+2:5", "rs:1+1", "replica:1"] {
            for disks in 0..30 {
                if let Some(code) = fit(wanted, 1 << 30, disks) {
                    let spec: CodeSpec = code.parse().expect("a fitted code is valid");
                    assert_eq!(spec.tolerance(), wanted.parse::<CodeSpec>().expect("valid").tolerance());
                    assert!(usize::from(spec.shape().chunks()) <= disks, "{code} on {disks} disks");
                }
            }
        }
    }
}
