//! Zeros in memory, as the system's direct paths take them.

/// A mebibyte of zeros, aligned.
#[repr(align(4096))]
pub struct Zeros(pub [u8; 1 << 20]);

/// See [`Zeros`].
pub static ZEROS: Zeros = Zeros([0; 1 << 20]);

/// Whether bytes are all zeros: of others it looks at a few.
pub fn is_zeros(bytes: &[u8]) -> bool {
    bytes.chunks(ZEROS.0.len()).all(|part| *part == ZEROS.0[..part.len()])
}
