//! Pointers from C, checked as far as they can be.

use std::ffi::{CStr, c_char};

use claystone_guard::check_apart;

use crate::failure::Failure;

/// # Safety
/// `pointer` is null or valid for reading, for as long as the result lives.
pub unsafe fn reference<'a, T>(pointer: *const T, what: &'static str) -> Result<&'a T, Failure> {
    // SAFETY: as asked of the caller.
    unsafe { pointer.as_ref() }.ok_or(Failure::Null(what))
}

/// # Safety
/// `pointer` is null or valid for reading and writing by nobody else, for as long as the result lives.
pub unsafe fn out<'a, T>(pointer: *mut T, what: &'static str) -> Result<&'a mut T, Failure> {
    // SAFETY: as asked of the caller.
    unsafe { pointer.as_mut() }.ok_or(Failure::Null(what))
}

/// `count` values. An empty array may be null.
///
/// # Safety
/// `pointer` is null or valid for reading `count` values, for as long as the result lives.
pub unsafe fn array<'a, T>(pointer: *const T, count: usize, what: &'static str) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(Failure::Null(what));
    }
    if count.checked_mul(size_of::<T>()).is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(Failure::TooLong(what));
    }
    // SAFETY: not null, not longer than an object can be, and as asked of the caller.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// # Safety
/// As [`array`].
pub unsafe fn bytes<'a>(pointer: *const u8, length: usize, what: &'static str) -> Result<&'a [u8], Failure> {
    // SAFETY: as asked of the caller.
    unsafe { array(pointer, length, what) }
}

/// `count` buffers to read.
///
/// # Safety
/// As [`array`], for the array and for each of its pointers with its length.
pub unsafe fn each<'a>(
    pointers: *const *const u8,
    count: usize,
    length: impl Fn(usize) -> usize,
    what: &'static str,
) -> Result<Vec<&'a [u8]>, Failure> {
    // SAFETY: as asked of the caller.
    unsafe {
        let pointers = array(pointers, count, what)?;
        pointers.iter().enumerate().map(|(at, pointer)| bytes(*pointer, length(at), what)).collect()
    }
}

/// `count` buffers of `length` to write, none of which shares a byte with another or with `others`.
///
/// # Safety
/// As [`each`], and for writing by nobody else.
pub unsafe fn each_mut<'a>(
    pointers: *const *mut u8,
    count: usize,
    length: usize,
    others: &[&[u8]],
    what: &'static str,
) -> Result<Vec<&'a mut [u8]>, Failure> {
    // SAFETY: as asked of the caller.
    let pointers = unsafe { array(pointers, count, what)? };
    if length == 0 {
        return Ok(pointers.iter().map(|_| Default::default()).collect());
    }
    if pointers.iter().any(|pointer| pointer.is_null()) {
        return Err(Failure::Null(what));
    }
    if length > isize::MAX as usize {
        return Err(Failure::TooLong(what));
    }
    let written: Vec<_> =
        pointers.iter().map(|pointer| pointer.addr()..pointer.addr().saturating_add(length)).collect();
    let read: Vec<_> = others.iter().map(|other| other.as_ptr().addr()..other.as_ptr().addr() + other.len()).collect();
    check_apart(&read, &written)?;
    // SAFETY: not null, no two share a byte, not longer than an object can be, and as asked of the caller.
    Ok(pointers.iter().map(|pointer| unsafe { std::slice::from_raw_parts_mut(*pointer, length) }).collect())
}

/// # Safety
/// `pointer` is null or a C string, for as long as the result lives.
pub unsafe fn text<'a>(pointer: *const c_char, what: &'static str) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(Failure::Null(what));
    }
    // SAFETY: not null, and as asked of the caller.
    unsafe { CStr::from_ptr(pointer) }.to_str().map_err(|_| Failure::NotText(what))
}

/// Stores as many of the values as there is room for. No room at all may be null.
///
/// # Safety
/// `pointer` is null or valid for writing `capacity` values.
pub unsafe fn store(values: &[u16], pointer: *mut u16, capacity: usize, what: &'static str) -> Result<(), Failure> {
    if capacity > 0 && pointer.is_null() {
        return Err(Failure::Null(what));
    }
    for (at, value) in values.iter().take(capacity).enumerate() {
        // SAFETY: not null, and as asked of the caller.
        unsafe { pointer.add(at).write(*value) };
    }
    Ok(())
}
