//! libclaystone: the codes for C and everything that calls C. `include/claystone.h` is its documentation.
//!
//! Invariants:
//! 1. No panic crosses the border: each function catches, and returns `CLAYSTONE_INTERNAL`.
//! 2. Pointers are checked for null and buffers for overlap before slices are made of them; all else is checked by
//!    `claystone-guard`. What a caller must still promise is that a pointer points to as many bytes as is said.
//! 3. `unsafe` here turns pointers into references and nothing else.
//!
//! Left out: the header is written by hand; a test keeps it in step.

#![allow(unsafe_code, reason = "pointers from C; allowed here by docs/architecture.md, invariant 2")]
#![allow(clippy::missing_safety_doc, reason = "the header says it once for all functions")]

mod buffers;
mod conversion;
mod failure;
mod plan;

use std::ffi::{CStr, c_char};

use claystone_code::Tier;
use claystone_guard::{Guard, force_tier};

use crate::buffers::{array, bytes, each, each_mut, out, reference, store, text};
use crate::failure::{Status, catch};

/// A code.
pub struct Code(Guard);

/// What the header calls `claystone_shape`.
#[repr(C)]
pub struct Shape {
    data: u16,
    parity: u16,
    tolerance: u16,
    alpha: u32,
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn claystone_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn claystone_last_error() -> *const c_char {
    failure::last()
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn claystone_force_tier(tier: *const c_char) -> Status {
    catch(|| {
        // SAFETY: null or a C string, as the header asks.
        let tier = unsafe { text(tier, "tier")? };
        Ok(force_tier(tier)?)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn claystone_code_tier(code: *const Code, tier: *mut *const c_char) -> Status {
    catch(|| {
        // SAFETY: checked for null by the helpers, valid as the header asks.
        let (Code(guard), tier) = unsafe { (reference(code, "code")?, out(tier, "tier")?) };
        let name: &CStr = match guard.tier() {
            Tier::Scalar => c"scalar",
            Tier::Neon => c"neon",
            Tier::Avx2 => c"avx2",
            Tier::Avx2Gfni => c"avx2-gfni",
            Tier::Avx512Gfni => c"avx512-gfni",
        };
        *tier = name.as_ptr();
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn claystone_code_new(spec: *const c_char, code: *mut *mut Code) -> Status {
    catch(|| {
        // SAFETY: not null by `out`, and writable as the header asks.
        let code = unsafe { out(code, "code")? };
        // SAFETY: null or a C string, as the header asks.
        let spec = unsafe { text(spec, "spec")? };
        let made = Box::new(Code(Guard::new(spec)?));
        *code = Box::into_raw(made);
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn claystone_code_free(code: *mut Code) {
    if !code.is_null() {
        // SAFETY: made by `claystone_code_new` and freed once, as the header asks.
        drop(unsafe { Box::from_raw(code) });
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn claystone_code_shape(code: *const Code, shape: *mut Shape) -> Status {
    catch(|| {
        // SAFETY: checked for null by the helpers, valid as the header asks.
        let (Code(guard), shape) = unsafe { (reference(code, "code")?, out(shape, "shape")?) };
        let claystone_code::Shape { data, parity, alpha } = guard.shape();
        *shape = Shape { data, parity, tolerance: guard.spec().tolerance(), alpha };
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn claystone_encode(
    code: *const Code,
    data: *const *const u8,
    parity: *const *mut u8,
    tile_bytes: usize,
) -> Status {
    catch(|| {
        // SAFETY: checked for null and overlap by the helpers, as long as said as the header asks.
        unsafe {
            let Code(guard) = reference(code, "code")?;
            let shape = guard.shape();
            let data = each(data, usize::from(shape.data), |_| tile_bytes, "data")?;
            let mut parity = each_mut(parity, usize::from(shape.parity), tile_bytes, &data, "parity")?;
            Ok(guard.encode(&data, &mut parity)?)
        }
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn claystone_encode_add(
    code: *const Code,
    first: u16,
    data: *const *const u8,
    count: usize,
    parity: *const *mut u8,
    tile_bytes: usize,
) -> Status {
    catch(|| {
        // SAFETY: checked for null and overlap by the helpers, as long as said as the header asks.
        unsafe {
            let Code(guard) = reference(code, "code")?;
            let data = each(data, count, |_| tile_bytes, "data")?;
            let mut parity = each_mut(parity, usize::from(guard.shape().parity), tile_bytes, &data, "parity")?;
            Ok(guard.encode_add(first, &data, &mut parity)?)
        }
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn claystone_apply_delta(
    code: *const Code,
    chunk: u16,
    parity_chunk: u16,
    delta: *const u8,
    parity: *mut u8,
    length: usize,
) -> Status {
    catch(|| {
        // SAFETY: checked for null and overlap by the helpers, as long as said as the header asks.
        unsafe {
            let Code(guard) = reference(code, "code")?;
            let delta = bytes(delta, length, "delta")?;
            let mut parity = each_mut(&parity, 1, length, &[delta], "parity")?;
            Ok(guard.apply_delta(chunk, parity_chunk, delta, parity[0])?)
        }
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn claystone_locate(
    code: *const Code,
    chunks: *const *const u8,
    wrong: *mut u16,
    capacity: usize,
    count: *mut usize,
    tile_bytes: usize,
) -> Status {
    catch(|| {
        // SAFETY: checked for null by the helpers, as long as said as the header asks.
        unsafe {
            let (Code(guard), count) = (reference(code, "code")?, out(count, "count")?);
            let chunks = array(chunks, usize::from(guard.shape().chunks()), "chunks")?;
            let chunk = |chunk: &*const u8| match chunk.is_null() {
                true => Ok(None),
                false => bytes(*chunk, tile_bytes, "chunks").map(Some),
            };
            let chunks: Vec<Option<&[u8]>> = chunks.iter().map(chunk).collect::<Result<_, _>>()?;
            let found: Vec<u16> = guard.locate(&chunks)?.iter().map(|chunk| chunk.0).collect();
            store(&found, wrong, capacity, "wrong")?;
            *count = found.len();
            Ok(())
        }
    })
}
