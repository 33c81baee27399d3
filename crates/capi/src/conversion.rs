//! Conversions for C.

use std::ffi::c_char;

use claystone_code::{ConversionGoal, StripeChunk as Named};
use claystone_guard::Conversion as Inner;

use crate::buffers::{each, each_mut, out, reference, text};
use crate::failure::{Failure, Status, catch};

/// A conversion.
pub struct Conversion(Inner);

/// What the header calls `claystone_conversion_shape`.
#[repr(C)]
pub struct ConversionShape {
    sources: u16,
    targets: u16,
    kept: usize,
    reads: usize,
    writes: usize,
    combined: u64,
}

/// What the header calls `claystone_stripe_chunk`.
#[repr(C)]
pub struct StripeChunk {
    stripe: u16,
    chunk: u16,
}

impl From<Named> for StripeChunk {
    fn from(named: Named) -> StripeChunk {
        StripeChunk { stripe: named.stripe, chunk: named.chunk.0 }
    }
}

/// See the header. `goal` is a `claystone_goal`, or any number that a caller makes one of.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn claystone_conversion_new(
    from: *const c_char,
    to: *const c_char,
    goal: u32,
    conversion: *mut *mut Conversion,
) -> Status {
    catch(|| {
        // SAFETY: checked for null by the helpers, valid as the header asks.
        let (from, to, conversion) = unsafe { (text(from, "from")?, text(to, "to")?, out(conversion, "conversion")?) };
        let goal = match goal {
            0 => ConversionGoal::FewestReads,
            1 => ConversionGoal::ShortSums,
            2 => ConversionGoal::DataOnly,
            other => return Err(Failure::NoGoal(other)),
        };
        *conversion = Box::into_raw(Box::new(Conversion(Inner::new(from, to, goal)?)));
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn claystone_conversion_free(conversion: *mut Conversion) {
    if !conversion.is_null() {
        // SAFETY: made by `claystone_conversion_new` and freed once, as the header asks.
        drop(unsafe { Box::from_raw(conversion) });
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn claystone_conversion_plan(
    conversion: *const Conversion,
    shape: *mut ConversionShape,
) -> Status {
    catch(|| {
        // SAFETY: checked for null by the helpers, valid as the header asks.
        let (Conversion(conversion), shape) = unsafe { (reference(conversion, "conversion")?, out(shape, "shape")?) };
        let plan = conversion.plan();
        *shape = ConversionShape {
            sources: plan.sources,
            targets: plan.targets,
            kept: plan.kept.len(),
            reads: plan.reads.len(),
            writes: plan.writes.len(),
            combined: plan.bytes_combined(1),
        };
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn claystone_conversion_kept(
    conversion: *const Conversion,
    at: usize,
    from: *mut StripeChunk,
    to: *mut StripeChunk,
) -> Status {
    catch(|| {
        // SAFETY: checked for null by the helper, valid as the header asks.
        let Conversion(conversion) = unsafe { reference(conversion, "conversion")? };
        for (pointer, what) in [(from, "from"), (to, "to")] {
            if pointer.is_null() {
                return Err(Failure::Null(what));
            }
        }
        let kept = &conversion.plan().kept;
        let found = kept.get(at).ok_or(Failure::OutOfRange("kept chunk", at, kept.len()))?;
        // SAFETY: not null, and writable as the header asks; no references are made, since both may be one.
        unsafe { (from.write(found.from.into()), to.write(found.to.into())) };
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn claystone_conversion_read(
    conversion: *const Conversion,
    at: usize,
    chunk: *mut StripeChunk,
) -> Status {
    catch(|| {
        // SAFETY: checked for null by the helpers, valid as the header asks.
        let (Conversion(conversion), chunk) = unsafe { (reference(conversion, "conversion")?, out(chunk, "chunk")?) };
        named(&conversion.plan().reads, at, "read", chunk)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn claystone_conversion_write(
    conversion: *const Conversion,
    at: usize,
    chunk: *mut StripeChunk,
) -> Status {
    catch(|| {
        // SAFETY: checked for null by the helpers, valid as the header asks.
        let (Conversion(conversion), chunk) = unsafe { (reference(conversion, "conversion")?, out(chunk, "chunk")?) };
        named(&conversion.plan().writes, at, "write", chunk)
    })
}

fn named(chunks: &[Named], at: usize, what: &'static str, chunk: &mut StripeChunk) -> Result<(), Failure> {
    *chunk = (*chunks.get(at).ok_or(Failure::OutOfRange(what, at, chunks.len()))?).into();
    Ok(())
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn claystone_convert(
    conversion: *const Conversion,
    fetched: *const *const u8,
    fetched_count: usize,
    written: *const *mut u8,
    written_count: usize,
    tile_bytes: usize,
) -> Status {
    catch(|| {
        // SAFETY: checked for null and overlap by the helpers, as long as said as the header asks.
        unsafe {
            let Conversion(conversion) = reference(conversion, "conversion")?;
            let fetched = each(fetched, fetched_count, |_| tile_bytes, "fetched")?;
            let mut written = each_mut(written, written_count, tile_bytes, &fetched, "written")?;
            Ok(conversion.apply(&fetched, &mut written)?)
        }
    })
}
