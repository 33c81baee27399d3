//! What is wrong with a row of the catalog that cannot be read: the error of every decoder of keys and values.

/// Why stored bytes are no key or value of their table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The row is shorter than its fields.
    #[error("{bytes} bytes; it has at least {bytes_min}")]
    TooShort {
        /// Its length.
        bytes: usize,
        /// The least.
        bytes_min: usize,
    },
    /// The row is longer than its fields.
    #[error("{bytes} bytes; it has at most {bytes_max}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The most.
        bytes_max: usize,
    },
    /// A version that this program does not know.
    #[error("version {version}; only 1 is known")]
    Version {
        /// What is stored.
        version: u8,
    },
    /// No kind of node has this number.
    #[error("kind {kind}; 1 to 7 are known")]
    Kind {
        /// What is stored.
        kind: u8,
    },
    /// Bits beyond the low 12.
    #[error("permissions {permissions:#o}; at most 0o7777 is possible")]
    Permissions {
        /// What is stored.
        permissions: u16,
    },
    /// A second or more in nanoseconds.
    #[error("{nanoseconds} nanoseconds; less than 1,000,000,000 are possible")]
    Nanoseconds {
        /// What is stored.
        nanoseconds: u32,
    },
}
