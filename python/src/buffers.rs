//! Python's buffers as slices of bytes.
//!
//! Invariants:
//! 1. A buffer is held for as long as its bytes are used: Python neither frees nor resizes it meanwhile.
//! 2. No byte that is written is in another slice: overlap is refused.
//!
//! As with Python's own hashlib, another thread that changes the bytes meanwhile gets an arbitrary result; nothing is
//! read or written outside the buffers.

use claystone_guard::{Misuse, check_apart};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::PyByteArray;

use crate::arguments::Many;
use crate::refused;

/// Contiguous bytes that Python has.
pub struct Buffer(PyBuffer<u8>);

impl<'a, 'py> FromPyObject<'a, 'py> for Buffer {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Buffer> {
        let buffer = PyBuffer::<u8>::get(&object)?;
        if !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err("the buffer is not contiguous: copy it first"));
        }
        Ok(Buffer(buffer))
    }
}

impl Buffer {
    /// Bytes.
    pub fn length(&self) -> usize {
        self.0.len_bytes()
    }

    /// Looks at the bytes with all other Python threads held.
    pub fn read<T>(&self, _py: Python<'_>, look: impl FnOnce(&[u8]) -> T) -> T {
        // SAFETY: `read_slice`: the buffer is held by `self`.
        look(unsafe { self.read_slice() })
    }

    /// # Safety
    /// `self` must outlive the slice, and nobody may write the bytes meanwhile.
    unsafe fn read_slice<'a>(&self) -> &'a [u8] {
        if self.length() == 0 {
            return &[];
        }
        // SAFETY: a contiguous buffer of so many bytes, checked when it was taken.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast(), self.length()) }
    }

    /// # Safety
    /// `self` must outlive the slice, and nobody else may read or write the bytes meanwhile.
    unsafe fn write_slice<'a>(&self) -> &'a mut [u8] {
        if self.length() == 0 {
            return &mut [];
        }
        // SAFETY: a contiguous buffer of so many bytes that may be written, checked by `run`.
        unsafe { std::slice::from_raw_parts_mut(self.0.buf_ptr().cast(), self.length()) }
    }

    fn range(&self) -> std::ops::Range<usize> {
        let start = self.0.buf_ptr().addr();
        start..start + self.length()
    }
}

/// The buffers of byte arrays that we made.
pub fn of(arrays: &[Bound<'_, PyByteArray>]) -> PyResult<Many<Buffer>> {
    arrays.iter().map(|array| array.extract()).collect::<PyResult<_>>().map(Many)
}

/// Calls `work` with the bytes to read and to write; other Python threads run meanwhile if it is much.
pub fn run(
    py: Python<'_>,
    read: &[Buffer],
    written: &[Buffer],
    work: impl FnOnce(&[&[u8]], &mut [&mut [u8]]) -> Result<(), Misuse> + Send,
) -> PyResult<()> {
    if written.iter().any(|buffer| buffer.0.readonly()) {
        return Err(PyBufferError::new_err("a buffer to be written is read-only"));
    }
    let ranges = |buffers: &[Buffer]| buffers.iter().map(Buffer::range).collect::<Vec<_>>();
    check_apart(&ranges(read), &ranges(written)).map_err(refused)?;
    // SAFETY: the buffers outlive this function; none that is written overlaps another.
    let (from, mut to): (Vec<&[u8]>, Vec<&mut [u8]>) = unsafe {
        (read.iter().map(|one| one.read_slice()).collect(), written.iter().map(|one| one.write_slice()).collect())
    };
    let bytes: usize = from.iter().map(|from| from.len()).sum();
    let done = if bytes > DETACH_BYTES { py.detach(|| work(&from, &mut to)) } else { work(&from, &mut to) };
    done.map_err(refused)
}

/// From here on letting other threads in is worth its cost.
const DETACH_BYTES: usize = 64 << 10;
