//! Which code a new stripe gets, and which policy a new bucket: pure functions.

use claystone_chunk::{Durability, SECTOR_BYTES};
use claystone_code::CodeSpec;
use claystone_meta::HeatPolicy;
use claystone_stripe::{Layout, sub_bytes_for};

/// What the operator decided, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The code of buckets that name none.
    pub code: CodeSpec,
    /// The policy that such a bucket gets when it is made.
    pub policy: FirstPolicy,
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
        Settings {
            code,
            policy: FirstPolicy::None,
            durability: Durability::Synced,
            object_bytes_max: 5 << 40,
            part_bytes_min: 5 << 20,
        }
    }
}

/// Which policy a new bucket gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FirstPolicy {
    /// None.
    #[default]
    None,
    /// That of the disks there are then; none where they are too few ([`HeatPolicy::for_disks`]).
    ForDisks,
    /// This one.
    This(HeatPolicy),
}

impl FirstPolicy {
    /// The policy of a bucket that is made while there are disks on these nodes, one for each disk.
    pub fn on<N: Ord>(self, nodes: impl IntoIterator<Item = N>) -> Option<HeatPolicy> {
        match self {
            FirstPolicy::None => None,
            FirstPolicy::ForDisks => {
                let preset = HeatPolicy::for_disks(nodes)?;
                Some(preset.text.parse().expect("presets are valid"))
            }
            FirstPolicy::This(policy) => Some(policy),
        }
    }
}

/// The code for a stripe of `bytes` object bytes when `disks` disks take writes and `wanted` is the bucket's code.
///
/// The result survives the loss of as many disks as `wanted` does, or as it does without its copies beside a code:
/// 1. A stripe of at most [`SMALL_BYTES`] is replicated: it costs half the operations of a code of six chunks, and
///    at these lengths no more space, since every chunk takes at least one sector.
/// 2. With too few disks for copies beside a code, there are none.
/// 3. With fewer disks than the code has chunks, the data goes to fewer chunks with the same parity: less efficient,
///    never less safe. `rs:4+2` on five disks writes `rs:3+2`, on three `replica:3`. Codes of groups, rows and columns
///    have no narrower kind and fall back to Reed-Solomon: `lrc:12+2+2` on eight disks writes `rs:5+3`.
/// 4. With too few disks even for that there is no code: `None`.
pub fn fit_code(wanted: CodeSpec, bytes: u64, disks: usize) -> Option<CodeSpec> {
    if usize::from(wanted.disks_min()) > disks && wanted.without_copies() != wanted {
        return fit_code(wanted.without_copies(), bytes, disks);
    }
    let (tolerance, shape) = (wanted.tolerance(), wanted.shape());
    let data_left = u16::try_from(disks).unwrap_or(u16::MAX).checked_sub(tolerance)?;
    if data_left == 0 {
        return None;
    }
    let data = shape.data.min(data_left);
    Some(match wanted {
        CodeSpec::Replicated { .. } => wanted,
        _ if bytes <= SMALL_BYTES => replicated(tolerance),
        // Chunks of different data may share a disk.
        CodeSpec::Mirror { .. } | CodeSpec::Hybrid { .. } => wanted,
        CodeSpec::Mixed { .. } if usize::from(wanted.disks_min()) <= disks => wanted,
        _ if data == 1 => replicated(tolerance),
        CodeSpec::ReedSolomon { parity, .. } => CodeSpec::ReedSolomon { data, parity },
        CodeSpec::Isal { parity, .. } => CodeSpec::Isal { data, parity },
        CodeSpec::Klauspost { parity, .. } => CodeSpec::Klauspost { data, parity },
        CodeSpec::Clay { parity, helpers, data: wanted } => {
            let data = wanted.min(u8::try_from(data).unwrap_or(u8::MAX));
            CodeSpec::Clay { data, parity, helpers: helpers.min(data + parity - 1).max(data + 1) }
        }
        CodeSpec::Mergeable { parity, data: wanted } => {
            CodeSpec::Mergeable { data: wanted.min(u8::try_from(data).unwrap_or(u8::MAX)), parity }
        }
        CodeSpec::Mixed { .. } => CodeSpec::ReedSolomon { data, parity: tolerance },
        CodeSpec::Lrc { .. } | CodeSpec::Product { .. } if usize::from(shape.chunks()) <= disks => wanted,
        CodeSpec::Lrc { .. } | CodeSpec::Product { .. } => CodeSpec::ReedSolomon { data, parity: tolerance },
    })
}

/// The code of one data chunk that survives the loss of `parity` chunks. Codes of more than 254 parity chunks have more
/// copies than `replica` counts: there the one chunk is encoded, which needs the same disks.
fn replicated(parity: u16) -> CodeSpec {
    match u8::try_from(parity + 1) {
        Ok(copies) => CodeSpec::Replicated { copies },
        Err(_) => CodeSpec::ReedSolomon { data: 1, parity },
    }
}

/// The next stripe of an object: its code and its length. `taken` bytes are in earlier stripes, `left` are to come, a
/// stripe holds at most `stripe_bytes_max(code)`.
///
/// Clay repairs from parts of chunks only where those are whole sectors, that is, in full rows. What is left behind
/// the full rows gets a stripe of its own under the code of [`tail_code`], unless it is so short against the rows
/// that decoding it whole adds next to nothing to a repair. So no object of two rows or more costs more to repair.
pub fn next_stripe(
    wanted: CodeSpec,
    taken: u64,
    left: u64,
    disks: usize,
    stripe_bytes_max: impl Fn(CodeSpec) -> u64,
) -> Option<(CodeSpec, u64)> {
    let code = fit_code(wanted, left.min(stripe_bytes_max(wanted)), disks)?;
    let bytes = left.min(stripe_bytes_max(code));
    let CodeSpec::Clay { .. } = code else { return Some((code, bytes)) };
    let row_bytes = row_bytes(code);
    if taken > 0 && left < row_bytes {
        return fit_code(tail_code(code), left, disks).map(|code| (code, left));
    }
    let full = bytes - bytes % row_bytes;
    // What decoding reads of the tail: at least a whole sector of each of k chunks.
    let tail_bytes = (bytes - full).next_multiple_of(u64::from(code.shape().data) * u64::from(SECTOR_BYTES));
    let splits = (full >= 2 * row_bytes || taken > 0) && tail_bytes * TAIL_SHARE > full;
    Some((code, if splits { full } else { bytes }))
}

/// The code for what is left of an object behind the full rows of a Clay stripe: the same parity over so few data
/// chunks (`d/q` of them) that decoding one chunk reads no more than Clay's repair does.
fn tail_code(code: CodeSpec) -> CodeSpec {
    match code {
        CodeSpec::Clay { data, parity, helpers } => {
            CodeSpec::ReedSolomon { data: u16::from(helpers / (helpers - data + 1)), parity: parity.into() }
        }
        other => other,
    }
}

/// How much goes into a stripe that is to be merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Bytes of the content.
    pub bytes: u64,
    /// Bytes of the stripe: behind those of the content are zeros.
    pub stripe_bytes: u64,
}

/// Cuts the next stripe of `bytes` bytes of a content that are to be merged as `compact` with others under `fast`.
pub fn cut_to_merge(fast: CodeSpec, compact: CodeSpec, bytes: u64) -> Cut {
    let bytes = mergeable_bytes(fast, compact, bytes);
    Cut { bytes, stripe_bytes: padded_bytes(fast, compact, bytes) }
}

/// A stripe that is written compact at once, as if fast ones had been merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutInBands {
    /// Its code: the compact one, or what fits a few bytes.
    pub code: CodeSpec,
    /// Bytes of the content.
    pub bytes: u64,
    /// Fast stripes that it takes the place of.
    pub bands: u16,
    /// Bytes of each of these: behind those of the content are zeros in the last.
    pub band_bytes: u64,
}

/// Cuts the next stripe of `left` bytes of a content, behind `taken` others, of which `cut` would be fast, to be written compact at once: so that it can be
/// split into fast ones, of which several make one. A stripe of several has about `bands_bytes_max` bytes at most. `None`: so short a content does not
/// reach all bands. Where the codes cut rows differently only whole rows are converted: what has none stays as it is written.
pub fn cut_in_bands(
    policy: &HeatPolicy,
    cut: Cut,
    taken: u64,
    left: u64,
    disks: usize,
    stripe_bytes_max: impl Fn(CodeSpec) -> u64,
    bands_bytes_max: u64,
) -> Option<CutInBands> {
    let HeatPolicy { fast, compact, .. } = *policy;
    if policy.sources() > 1 {
        return cut_in_several(policy, left, bands_bytes_max.min(stripe_bytes_max(compact)));
    }
    if policy.rows_alike() || cut.stripe_bytes.is_multiple_of(row_bytes(fast)) {
        return Some(CutInBands { code: compact, bytes: cut.bytes, bands: 1, band_bytes: cut.stripe_bytes });
    }
    let (code, bytes) = next_stripe(compact, taken, left, disks, stripe_bytes_max)?;
    Some(CutInBands { code, bytes, bands: 1, band_bytes: bytes })
}

fn cut_in_several(policy: &HeatPolicy, bytes: u64, bytes_max: u64) -> Option<CutInBands> {
    let (fast, bands) = (policy.fast, policy.sources());
    let rows_bytes = u64::from(bands) * row_bytes(fast);
    let most = (bytes_max / rows_bytes).max(1) * rows_bytes;
    // What would be left behind is too little for rows of its own.
    let bytes = if bytes < most + rows_bytes { bytes } else { most };
    let bytes = if policy.rows_alike() { bytes } else { bytes - bytes % rows_bytes };
    if bytes == 0 {
        return None;
    }
    let layout = Layout::new(fast.shape(), sub_bytes_for(fast), bytes.div_ceil(bands.into()));
    let band_bytes = u64::from(fast.shape().data) * layout.chunk_bytes();
    let reaches_all = bytes > u64::from(bands - 1) * band_bytes;
    reaches_all.then_some(CutInBands { code: policy.compact, bytes, bands, band_bytes })
}

/// How many of `bytes` go into a stripe that is to be merged. Stripes merge if their chunks have one length, and lengths in
/// whole rows are few: what is left behind a good many rows gets a stripe of its own, shorter and so with fewer zeros
/// ([`padded_bytes`]).
///
/// Of 10 MiB under `pc:2x5`, 16 rows of 640 KiB, nothing is left; of 9 MiB, 14 rows become one stripe and 256 KiB another.
///
/// Codes with different sub-chunks cut short rows differently, so there every stripe that is to be converted has whole rows.
fn mergeable_bytes(fast: CodeSpec, compact: CodeSpec, bytes: u64) -> u64 {
    let row_bytes = row_bytes(fast);
    let full = bytes - bytes % row_bytes;
    let rows_min = if fast.shape().alpha == compact.shape().alpha { MERGED_ROWS_MIN } else { 1 };
    if full >= rows_min * row_bytes { full } else { bytes }
}

/// How long a stripe of `bytes` is made that is to be merged and is not cut, with zeros behind them, so that there are others whose
/// chunks are as long: of few lengths, sixteen up to twice one of them, or whole rows where these are nearer to each other. That
/// adds a sixteenth at most, and half of that on average, where no policy's merge gives back less than a seventh of what it takes.
///
/// Of 1.7 MiB under `pc:2x5`, in chunks of 174.1 KiB, chunks of 176 KiB are made; whole rows stay as they are.
///
/// What is merged with nothing stays as it is. Where codes have different sub-chunks only whole rows are converted, so there they
/// are made where that adds an eighth at most.
pub(crate) fn padded_bytes(fast: CodeSpec, compact: CodeSpec, bytes: u64) -> u64 {
    let (shape, row_bytes) = (fast.shape(), row_bytes(fast));
    if shape.alpha != compact.shape().alpha {
        let padded = bytes.next_multiple_of(row_bytes);
        return if padded - bytes <= bytes / PADDED_SHARE { padded } else { bytes };
    }
    if shape.data == compact.shape().data {
        return bytes;
    }
    let layout = Layout::new(shape, sub_bytes_for(fast), bytes);
    let step = (1 << layout.chunk_bytes().ilog2()) / LENGTHS_OF_DOUBLE;
    u64::from(shape.data) * layout.chunk_bytes().next_multiple_of(step.clamp(1, layout.tile_bytes()))
}

/// Bytes of a full row of a new stripe.
pub(crate) fn row_bytes(code: CodeSpec) -> u64 {
    Layout::new(code.shape(), sub_bytes_for(code), 1).row_bytes()
}

/// Whether a stripe has a code that a bucket of code `wanted` would give it on enough disks.
pub(crate) fn serves(wanted: CodeSpec, code: CodeSpec, bytes: u64) -> bool {
    let fits = |wanted| fit_code(wanted, bytes, usize::MAX) == Some(code);
    fits(wanted) || fits(tail_code(wanted))
}

/// A tail of less than one part in this many of the full rows stays with them. Decoding a chunk of it reads all of it,
/// which adds at most `k / 50` to the bytes read for each lost one: 0.08 to the 2.5 of `clay:4+2:5`.
const TAIL_SHARE: u64 = 50;

/// Rows of an object from which on what is left behind them is cut off: the further stripe then has a ninth of the bytes at
/// most.
const MERGED_ROWS_MIN: u64 = 8;

/// Whole rows are made by one part in so many at most.
const PADDED_SHARE: u64 = 8;

/// Lengths of chunks from one on to its double.
const LENGTHS_OF_DOUBLE: u64 = 16;

/// Stripes up to this length are replicated whatever the bucket's code.
pub const SMALL_BYTES: u64 = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PACKED_BYTES_MAX;

    fn fit(wanted: &str, bytes: u64, disks: usize) -> Option<String> {
        fit_code(wanted.parse().expect("a valid code"), bytes, disks).map(|code| code.to_string())
    }

    #[test]
    fn enough_disks_give_the_wanted_code() {
        assert_eq!(fit("rs:4+2", 1 << 20, 6).as_deref(), Some("rs:4+2"));
        assert_eq!(fit("clay:4+2:5", 1 << 20, 9).as_deref(), Some("clay:4+2:5"));
        assert_eq!(fit("mirror:4x3", 1 << 20, 3).as_deref(), Some("mirror:4x3"));
    }

    #[test]
    fn codes_of_groups_rows_and_columns_fall_back_to_reed_solomon() {
        for (wanted, disks, code) in [
            ("lrc:12+2+2", 16, "lrc:12+2+2"),
            ("lrc:12+2+2", 15, "rs:12+3"),
            ("lrc:12+2+2", 8, "rs:5+3"),
            ("lrc:12+2+2", 4, "replica:4"),
            ("pc:2x5", 18, "pc:2x5"),
            ("pc:2x5", 10, "rs:7+3"),
            ("rsm:6+3", 5, "rsm:2+3"),
        ] {
            assert_eq!(fit(wanted, 1 << 20, disks).as_deref(), Some(code), "{wanted} on {disks} disks");
        }
        let copies = "hybrid:rsm:6+3x2";
        let with = |bytes, disks| fit(copies, bytes, disks);
        assert_eq!(with(1 << 20, 10).as_deref(), Some(copies), "the second copies may share a disk");
        assert_eq!(with(1 << 20, 9).as_deref(), Some("rsm:6+3"));
        assert_eq!(with(1 << 20, 6).as_deref(), Some("rsm:3+3"));
        assert_eq!((with(1 << 20, 4).as_deref(), with(1 << 20, 3)), (Some("replica:4"), None));
        assert_eq!((with(1, 15).as_deref(), with(1, 9).as_deref()), (Some("replica:5"), Some("replica:4")));
        assert_eq!(fit("lrc:12+2+2", 1 << 20, 3), None);
        assert_eq!(fit("lrc:12+2+2", 100, 16).as_deref(), Some("replica:4"));
    }

    #[test]
    fn fewer_disks_give_a_narrower_code_of_the_same_tolerance() {
        assert_eq!(fit("rs:4+2", 1 << 20, 5).as_deref(), Some("rs:3+2"));
        assert_eq!(fit("rs:4+2", 1 << 20, 4).as_deref(), Some("rs:2+2"));
        assert_eq!(fit("rs:4+2", 1 << 20, 3).as_deref(), Some("replica:3"));
        assert_eq!(fit("rs:4+2", 1 << 20, 2), None);
        assert_eq!(fit("clay:4+2:5", 1 << 20, 4).as_deref(), Some("clay:2+2:3"));
        assert_eq!(fit("replica:3", 1 << 20, 2), None);
        assert_eq!(fit("mirror:4x3", 1 << 20, 2), None);
        assert_eq!(fit("rs:4+2", 1 << 20, 0), None);
    }

    #[test]
    fn small_stripes_are_replicated_with_the_same_tolerance() {
        assert_eq!(fit("rs:4+2", SMALL_BYTES, 6).as_deref(), Some("replica:3"));
        assert_eq!(fit("rs:4+2", SMALL_BYTES + 1, 6).as_deref(), Some("rs:4+2"));
        assert_eq!(fit("replica:2", 1, 6).as_deref(), Some("replica:2"));
        assert_eq!(fit("mirror:4x3", 1, 6).as_deref(), Some("replica:3"));
    }

    fn stripes(wanted: &str, bytes: u64) -> Vec<(String, u64)> {
        let wanted = wanted.parse().expect("a valid code");
        let (mut taken, mut stripes) = (0, Vec::new());
        while taken < bytes {
            let (code, length) = next_stripe(wanted, taken, bytes - taken, 6, |_| 64 << 20).expect("six disks");
            assert!(serves(wanted, code, length), "{code}");
            stripes.push((code.to_string(), length));
            taken += length;
        }
        stripes
    }

    #[test]
    fn clay_stripes_are_full_rows_and_the_rest_is_no_dearer_to_repair() {
        let kib = 1 << 10;
        assert_eq!(stripes("clay:4+2:5", 255 * kib), [("clay:4+2:5".to_owned(), 255 * kib)]);
        let (clay, rest) = ("clay:4+2:5".to_owned(), "rs:2+2".to_owned());
        assert_eq!(stripes("clay:4+2:5", 256 * kib), [(clay.clone(), 256 * kib)]);
        assert_eq!(stripes("clay:4+2:5", 300 * kib), [(clay.clone(), 256 * kib), (rest, 44 * kib)]);
        let small = "replica:3".to_owned();
        assert_eq!(stripes("clay:4+2:5", 272 * kib), [(clay.clone(), 256 * kib), (small, 16 * kib)]);
        assert_eq!(stripes("clay:4+2:5", 10_000 * kib), [(clay, 10_000 * kib)], "a short tail stays");
        assert_eq!(stripes("rs:4+2", 300 * kib).len(), 1);
    }

    #[test]
    fn what_is_compact_at_once_is_cut_in_bands_that_all_hold_some_of_it() {
        let (kib, mib) = (1 << 10, 1 << 20);
        let of = |policy: &HeatPolicy, left: u64| {
            let cut = cut_to_merge(policy.fast, policy.compact, left);
            cut_in_bands(policy, cut, 0, left, 99, |_| 64 * mib, 16 * mib)
        };
        for text in ["rsm:6+3/rsm:12+3", "pc:2x5/pc:6x5", "rsm:2+1/rsm:4+1"] {
            let policy: HeatPolicy = format!("{text}<=150%,0.25..1.00").parse().expect("valid");
            let HeatPolicy { fast, compact, .. } = policy;
            let row = u64::from(compact.shape().data) * 64 * kib;
            let lengths =
                [16 * kib + 1, 100 * kib, row - 1, row, row + 1, 16 * mib, 16 * mib + row, 17 * mib, 99 * mib + 7];
            for bytes in lengths {
                let (mut left, mut stripes) = (bytes, 0);
                while left > 0 {
                    let cut = of(&policy, left).expect("it reaches all bands");
                    let CutInBands { code, bytes, bands, band_bytes } = cut;
                    let all_bytes = u64::from(bands) * band_bytes;
                    assert!(bytes <= left && bytes <= all_bytes && bytes > all_bytes - band_bytes, "{cut:?} of {left}");
                    assert!(code == compact && bytes < 16 * mib + row, "{cut:?}");
                    assert!(all_bytes - bytes < u64::from(compact.shape().data) * 64 + 16, "few zeros: {cut:?}");
                    let layout = Layout::new(fast.shape(), sub_bytes_for(fast), band_bytes);
                    assert_eq!(
                        band_bytes,
                        u64::from(fast.shape().data) * layout.chunk_bytes(),
                        "no band has a ragged end"
                    );
                    (left, stripes) = (left - bytes, stripes + 1);
                }
                assert!(stripes <= 1 + bytes / (16 * mib - row), "{stripes} of {bytes}");
            }
        }
        let policy = |text: &str| -> HeatPolicy { text.parse().expect("valid") };
        let cut = |text: &str, left| {
            of(&policy(text), left).map(|cut| (cut.code.to_string(), cut.bytes, cut.bands, cut.band_bytes))
        };
        assert_eq!(cut("rsm:6+3/rsm:12+3<=150%,0.25..1.00", 300), None);
        // Where rows differ, whole ones, or what cannot be split.
        let of_one = |left| cut("mirror:6x3/clay:6+2:7<=160%,0.25..1.00", left);
        let clay = |bytes, whole| Some(("clay:6+2:7".to_owned(), bytes, 1, whole));
        assert_eq!(of_one(mib), clay(768 * kib, 768 * kib));
        assert_eq!(of_one(380 * kib), clay(380 * kib, 384 * kib));
        assert_eq!(of_one(100 * kib), clay(100 * kib, 100 * kib));
        let of_two = |left| cut("mirror:3x3/clay:6+2:7<=160%,0.25..1.00", left);
        assert_eq!(of_two(383 * kib), None);
        assert_eq!(of_two(mib), Some(("clay:6+2:7".to_owned(), 768 * kib, 2, 384 * kib)));
    }

    #[test]
    fn what_is_to_be_merged_has_whole_rows_or_few() {
        let valid = |code: &str| code.parse().expect("valid");
        let row = 6 * (64 << 10);
        let cases =
            [(1, 1), (row + 1, row + 1), (8 * row - 1, 8 * row - 1), (8 * row, 8 * row), (9 * row - 1, 8 * row)];
        for (bytes, expected) in cases {
            assert_eq!(mergeable_bytes(valid("rsm:6+3"), valid("rsm:12+3"), bytes), expected, "{bytes} bytes");
        }
        for (bytes, expected) in [(row - 1, row - 1), (row, row), (2 * row + 7, 2 * row)] {
            assert_eq!(mergeable_bytes(valid("mirror:6x3"), valid("clay:6+2:7"), bytes), expected, "{bytes} bytes");
        }
    }

    #[test]
    fn where_only_whole_rows_are_converted_they_are_made_for_an_eighth_at_most() {
        let valid = |code: &str| code.parse().expect("valid");
        let row: u64 = 6 * (64 << 10);
        for (bytes, expected) in [
            (1, 1),
            (row, row),
            (row + 1, row + 1),
            (2 * row - (row / 4), 2 * row - (row / 4)),
            (2 * row - (row / 5), 2 * row),
            (9 * row + 1, 10 * row),
            (10 * row, 10 * row),
        ] {
            assert_eq!(padded_bytes(valid("mirror:6x3"), valid("clay:6+2:7"), bytes), expected, "{bytes} bytes");
        }
    }

    #[test]
    fn what_is_to_be_merged_has_chunks_of_few_lengths_and_few_zeros() {
        for (fast, compact) in [("pc:2x5", "pc:6x5"), ("rsm:6+3", "rsm:12+3"), ("rsm:10+4", "rsm:20+4")] {
            let (fast, compact): (CodeSpec, CodeSpec) = (fast.parse().expect("valid"), compact.parse().expect("valid"));
            let chunk_bytes = |bytes| Layout::new(fast.shape(), sub_bytes_for(fast), bytes).chunk_bytes();
            let (mut lengths, mut shares) = (std::collections::BTreeSet::new(), Vec::new());
            let mut bytes = PACKED_BYTES_MAX;
            while bytes < 8 << 20 {
                bytes += bytes / 997 + 1;
                let padded = padded_bytes(fast, compact, bytes);
                assert_eq!(padded, u64::from(fast.shape().data) * chunk_bytes(padded), "no zeros but those");
                assert_eq!(padded_bytes(fast, compact, padded), padded);
                let share = (padded - bytes) as f64 / bytes as f64;
                assert!((0.0..=0.07).contains(&share), "{bytes} bytes become {padded}");
                lengths.insert(chunk_bytes(padded));
                shares.push(share);
            }
            assert!(lengths.len() <= 7 * 16 + 1, "{} lengths", lengths.len());
            let mean = shares.iter().sum::<f64>() / shares.len() as f64;
            assert!(mean < 0.026, "{mean}");
            for rows in 1..40 {
                let whole = rows * row_bytes(fast);
                assert_eq!(padded_bytes(fast, compact, whole), whole, "{rows} rows");
            }
        }
        let valid = |code: &str| code.parse().expect("valid");
        assert_eq!(padded_bytes(valid("pc:2x5"), valid("pc:6x5"), 1_782_000), 10 * (176 << 10));
        assert_eq!(padded_bytes(valid("lrc:12+6+2"), valid("lrc:12+2+2"), 1_782_000), 1_782_000, "it needs no others");
    }

    #[test]
    fn long_codes_are_narrowed_like_others() {
        assert_eq!(fit("rs:300+4", 1 << 30, 304).as_deref(), Some("rs:300+4"));
        assert_eq!(fit("rs:300+4", 1 << 30, 256).as_deref(), Some("rs:252+4"));
        assert_eq!(fit("rs:300+4", 1 << 30, 6).as_deref(), Some("rs:2+4"));
        assert_eq!(fit("rs:10+300", 1, 310).as_deref(), Some("rs:1+300"), "more copies than replica counts");
        assert_eq!(fit("rs:10+300", 1, 300), None);
    }

    #[test]
    fn every_fitted_code_is_valid() {
        for wanted in [
            "rs:17+3",
            "clay:16+4:19",
            "clay:10+4:11",
            "clay:4+2:5",
            "rs:1+1",
            "replica:1",
            "mirror:4x3",
            "hybrid:rsm:6+3x2",
        ] {
            for disks in 0..30 {
                if let Some(code) = fit(wanted, 1 << 30, disks) {
                    let (spec, wanted): (CodeSpec, CodeSpec) =
                        (code.parse().expect("valid"), wanted.parse().expect("valid"));
                    let is_as_safe = |of: CodeSpec| spec.tolerance() == of.tolerance();
                    assert!(is_as_safe(wanted) || is_as_safe(wanted.without_copies()), "{code} for {wanted}");
                    assert!(usize::from(spec.disks_min()) <= disks, "{code} on {disks} disks");
                }
            }
        }
    }
}
