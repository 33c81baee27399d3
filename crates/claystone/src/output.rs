//! What a command was asked for, on standard output, and what else it has to say, on standard error.
//!
//! Invariants:
//! 1. Whoever reads may go away, as `head` does: what cannot be written is an error, and never a panic. The command ends
//!    without a word then, with the exit code that shells show of a program that SIGPIPE ended.
//! 2. A command that goes on without a reader, such as a server, writes with [`say`].
//!
//! The standard library ignores SIGPIPE, and it must stay so: a server would end with the first client that goes away.

use std::fmt;
use std::io::{self, ErrorKind, Write};

/// Standard output, for `write!` and `writeln!`.
#[derive(Debug, Clone, Copy)]
pub struct Output;

/// Standard output.
pub fn output() -> Output {
    Output
}

impl Output {
    /// What `write!` calls.
    ///
    /// # Errors
    /// Standard output takes no more.
    pub fn write_fmt(self, text: fmt::Arguments<'_>) -> io::Result<()> {
        self.write(|stdout| stdout.write_fmt(text))
    }

    /// Bytes as they are.
    ///
    /// # Errors
    /// Standard output takes no more.
    pub fn write_bytes(self, bytes: &[u8]) -> io::Result<()> {
        self.write(|stdout| stdout.write_all(bytes))
    }

    fn write(self, write: impl FnOnce(&mut io::StdoutLock<'_>) -> io::Result<()>) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        let written = write(&mut stdout).and_then(|()| stdout.flush());
        written.map_err(|error| io::Error::new(error.kind(), OutputError(error)))
    }
}

/// An error of standard output, told from one of a file or a socket.
#[derive(Debug, thiserror::Error)]
#[error("standard output takes no more")]
struct OutputError(#[source] io::Error);

/// Whether the command ended because nobody reads what it writes.
pub fn is_unread(error: &anyhow::Error) -> bool {
    let is_closed = |error: &io::Error| {
        error.kind() == ErrorKind::BrokenPipe && error.get_ref().is_some_and(|inner| inner.is::<OutputError>())
    };
    error.chain().any(|cause| cause.downcast_ref().is_some_and(is_closed))
}

/// A line on standard output, for who goes on without a reader.
pub fn say(line: impl fmt::Display) {
    let _ = writeln!(output(), "{line}");
}

/// A line on standard error, which may be closed as well.
pub fn note(line: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// The exit code where nobody reads: 128, and the number of SIGPIPE.
pub const UNREAD: u8 = 141;
