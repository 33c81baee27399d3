//! What stands for io_uring where there is none: a ring that cannot be made.

use std::fs;
use std::io;

/// There is none.
pub enum Ring {}

impl Ring {
    /// # Errors
    /// Always.
    pub fn new() -> io::Result<Ring> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Never called.
    pub fn read(
        &mut self,
        _file: &fs::File,
        _reads: &mut [(u64, &mut [u8])],
        _priority: u16,
    ) -> Vec<io::Result<usize>> {
        match *self {}
    }

    /// Never called.
    pub fn write(&mut self, _file: &fs::File, _writes: &[(u64, &[u8])]) -> Vec<io::Result<usize>> {
        match *self {}
    }

    /// Never called.
    pub fn is_spent(&mut self) -> bool {
        match *self {}
    }
}
