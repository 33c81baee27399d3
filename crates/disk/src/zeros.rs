//! Zeros in memory, as the system's direct paths take them.

/// A mebibyte of zeros: aligned, and in no file of the program.
#[repr(align(4096))]
pub struct Zeros(pub [u8; 1 << 20]);

/// See [`Zeros`].
pub static ZEROS: Zeros = Zeros([0; 1 << 20]);
