//! Why a connection ended out of order.

use std::io;

/// Why a connection ended out of order. Nobody but its client is concerned.
#[derive(Debug, thiserror::Error)]
pub enum NbdError {
    /// It broke, or the client hung up in the middle of a message.
    #[error("the connection broke")]
    Io(#[from] io::Error),
    /// The client set flags that nobody offered.
    #[error("the client answered the greeting with flags that do not exist: {flags:?}")]
    UnknownClientFlags {
        /// What it sent.
        flags: [u8; 4],
    },
    /// Where a message should begin there is something else.
    #[error("a message does not begin as one")]
    NotAMessage,
    /// An option is longer than any that makes sense.
    #[error("an option of {data_bytes} bytes")]
    OptionTooLong {
        /// Its length.
        data_bytes: u32,
    },
    /// The client haggles without an end.
    #[error("more than {options_max} options")]
    TooManyOptions {
        /// The limit.
        options_max: usize,
    },
    /// The client chose an export in the way that knows no answer but an end.
    #[error("the export asked for is not there, or not without TLS")]
    NoSuchExport,
    /// So it did, and the export cannot be used now.
    #[error("the export asked for is refused: {reason}")]
    Refused {
        /// Why.
        reason: String,
    },
    /// An old client used an option that it cannot know.
    #[error("an option of the fixed handshake from a client that does not speak it")]
    NotFixedNewstyle,
    /// The handshake took too long.
    #[error("the handshake did not end in time")]
    HandshakeTooSlow,
}
