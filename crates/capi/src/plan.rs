//! Plans for C.

use claystone_code::UpdatePlan;
use claystone_guard::Plan as Inner;

use crate::Code;
use crate::buffers::{array, each, each_mut, out, reference, store};
use crate::failure::{Failure, Status, catch};

/// A plan.
pub struct Plan(Inner);

/// What the header calls `claystone_read`.
#[repr(C)]
pub struct Read {
    chunk: u16,
    ranges: usize,
    sub_chunks: u64,
}

/// `CLAYSTONE_LOST`.
const LOST: u32 = u32::MAX;

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn claystone_plan_read(
    code: *const Code,
    want: *const u16,
    want_count: usize,
    costs: *const u32,
    cost_count: usize,
    sub_bytes: u32,
    granule: u32,
    plan: *mut *mut Plan,
) -> Status {
    catch(|| {
        // SAFETY: checked for null by the helpers, as long as said as the header asks.
        let (Code(guard), plan) = unsafe { (reference(code, "code")?, out(plan, "plan")?) };
        // SAFETY: as above.
        let (want, costs) = unsafe { (array(want, want_count, "want")?, array(costs, cost_count, "costs")?) };
        let costs: Vec<Option<u32>> = costs.iter().map(|cost| (*cost != LOST).then_some(*cost)).collect();
        let made = guard.plan_read(want, &costs, sub_bytes, granule)?;
        *plan = Box::into_raw(Box::new(Plan(made)));
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn claystone_plan_free(plan: *mut Plan) {
    if !plan.is_null() {
        // SAFETY: made by `claystone_plan_read` and freed once, as the header asks.
        drop(unsafe { Box::from_raw(plan) });
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn claystone_plan_reads(plan: *const Plan) -> usize {
    // SAFETY: null or a plan, as the header asks.
    unsafe { plan.as_ref() }.map_or(0, |Plan(plan)| plan.data().reads.len())
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn claystone_plan_chunk(plan: *const Plan, at: usize, read: *mut Read) -> Status {
    catch(|| {
        // SAFETY: checked for null by the helpers, valid as the header asks.
        let (Plan(plan), read) = unsafe { (reference(plan, "plan")?, out(read, "read")?) };
        let reads = &plan.data().reads;
        let found = reads.get(at).ok_or(Failure::OutOfRange("read", at, reads.len()))?;
        *read = Read { chunk: found.chunk.0, ranges: found.sub_chunks.len(), sub_chunks: found.sub_chunks_total() };
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn claystone_plan_range(
    plan: *const Plan,
    at: usize,
    range: usize,
    start: *mut u32,
    end: *mut u32,
) -> Status {
    catch(|| {
        // SAFETY: checked for null by the helper, valid as the header asks.
        let Plan(plan) = unsafe { reference(plan, "plan")? };
        for (pointer, what) in [(start, "start"), (end, "end")] {
            if pointer.is_null() {
                return Err(Failure::Null(what));
            }
        }
        let reads = &plan.data().reads;
        let ranges = &reads.get(at).ok_or(Failure::OutOfRange("read", at, reads.len()))?.sub_chunks;
        let found = ranges.get(range).ok_or(Failure::OutOfRange("range", range, ranges.len()))?;
        // SAFETY: not null, and writable as the header asks; no references are made, since both may be one.
        unsafe { (start.write(found.start), end.write(found.end)) };
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn claystone_plan_bytes(
    plan: *const Plan,
    sub_bytes: u32,
    granule: u32,
    bytes: *mut u64,
) -> Status {
    catch(|| {
        // SAFETY: checked for null by the helpers, valid as the header asks.
        let (Plan(plan), bytes) = unsafe { (reference(plan, "plan")?, out(bytes, "bytes")?) };
        *bytes = plan.bytes_read(sub_bytes, granule)?;
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn claystone_recover(
    code: *const Code,
    plan: *const Plan,
    fetched: *const *const u8,
    fetched_bytes: *const usize,
    fetched_count: usize,
    out: *const *mut u8,
    out_count: usize,
    tile_bytes: usize,
) -> Status {
    catch(|| {
        // SAFETY: checked for null and overlap by the helpers, as long as said as the header asks.
        unsafe {
            let (Code(guard), Plan(plan)) = (reference(code, "code")?, reference(plan, "plan")?);
            let lengths = array(fetched_bytes, fetched_count, "fetched_bytes")?;
            let fetched = each(fetched, fetched_count, |at| lengths[at], "fetched")?;
            let mut out = each_mut(out, out_count, tile_bytes, &fetched, "out")?;
            Ok(guard.recover(plan, &fetched, &mut out)?)
        }
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn claystone_plan_update(
    code: *const Code,
    chunk: u16,
    parities: *mut u16,
    capacity: usize,
    count: *mut usize,
    by_delta: *mut i32,
) -> Status {
    catch(|| {
        // SAFETY: checked for null by the helpers, valid as the header asks.
        let (Code(guard), count, by_delta) =
            unsafe { (reference(code, "code")?, out(count, "count")?, out(by_delta, "by_delta")?) };
        let shape = guard.shape();
        let (touched, is_delta): (Vec<u16>, bool) = match guard.plan_update(chunk)? {
            UpdatePlan::Delta(parities) => (parities.iter().map(|(parity, _)| parity.0).collect(), true),
            UpdatePlan::Reencode => ((shape.data..shape.chunks()).collect(), false),
        };
        // SAFETY: checked for null by the helper, as long as said as the header asks.
        unsafe { store(&touched, parities, capacity, "parities")? };
        (*count, *by_delta) = (touched.len(), is_delta.into());
        Ok(())
    })
}
