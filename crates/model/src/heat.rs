//! Which chunks a trace writes to, and how often: what decides which of them are coded and which stay replicated.
//!
//! Invariants:
//! 1. A write that touches several chunks counts in each of them.

use crate::compact::units;
use crate::trace::Request;

/// How many of the writes among `requests`, all within `device_bytes` of one volume, touch each chunk.
///
/// # Panics
/// If one is beyond the device.
pub fn chunk_writes(requests: &[Request], device_bytes: u64, chunk_bytes: u64) -> Vec<u64> {
    let mut writes = vec![0; device_bytes.div_ceil(chunk_bytes) as usize];
    for request in requests.iter().filter(|request| request.is_write) {
        for chunk in units(request, chunk_bytes) {
            writes[chunk as usize] += 1;
        }
    }
    writes
}

/// What is left of the writes among `requests` where only chunks in `chosen` count.
///
/// # Panics
/// If one is beyond the chunks.
pub fn writes_within(requests: &[Request], chunk_bytes: u64, chosen: &[bool]) -> Vec<Request> {
    let mut left = Vec::new();
    for request in requests.iter().filter(|request| request.is_write) {
        for chunk in units(request, chunk_bytes).filter(|chunk| chosen[*chunk as usize]) {
            let offset = request.offset.max(chunk * chunk_bytes);
            let end = request.end().min((chunk + 1) * chunk_bytes);
            match left.last_mut() {
                Some(Request { at_us, offset: first, bytes, .. })
                    if *at_us == request.at_us && *first >= request.offset && *first + u64::from(*bytes) == offset =>
                {
                    *bytes += (end - offset) as u32;
                }
                _ => left.push(Request { offset, bytes: (end - offset) as u32, ..*request }),
            }
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(at_us: u64, offset: u64, bytes: u32, is_write: bool) -> Request {
        Request { at_us, volume: 0, offset, bytes, is_write }
    }

    #[test]
    fn writes_are_counted_by_chunk() {
        let requests =
            [request(0, 5, 10, true), request(1, 0, 30, false), request(2, 29, 1, true), request(3, 0, 0, true)];
        assert_eq!(chunk_writes(&requests, 35, 10), [1, 1, 1, 0]);
    }

    #[test]
    fn writes_are_cut_to_the_chosen_chunks() {
        let requests =
            [request(0, 5, 30, true), request(1, 0, 40, false), request(2, 12, 3, true), request(3, 20, 5, true)];
        let left = writes_within(&requests, 10, &[true, false, true, true]);
        assert_eq!(left, [request(0, 5, 5, true), request(0, 20, 15, true), request(3, 20, 5, true)]);
    }
}
