//! Any bytes as a trace: reading ends in requests and one error at most, and what is read can be counted.

#![no_main]

use claystone_model::trace::{Requests, TraceFormat};
use claystone_model::{page_updates, side_by_side};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| {
    let (format, text) = input;
    let format = TraceFormat::ALL.get(usize::from(format)).copied();
    let mut requests = Vec::new();
    let mut errors = 0;
    for request in Requests::new(text, format) {
        match request {
            Ok(request) => {
                assert!(request.end() <= 1 << 63, "a request is within its bounds");
                requests.push(request);
            }
            Err(_) => errors += 1,
        }
    }
    assert!(errors <= 1, "a trace ends with its first error");
    // Longer ones take memory for each of their pages.
    requests.retain(|request| request.bytes <= 1 << 20 && request.end() <= 1 << 62);
    let bytes: u64 = requests.iter().map(|request| u64::from(request.bytes)).sum();
    let device = side_by_side(&mut requests, 1 << 22);
    assert!(requests.iter().all(|request| request.bytes == 0 || request.end() <= device), "all lies on the device");
    let counts = page_updates(&requests, 4096, &[1, 16]);
    assert!(counts.page_writes <= bytes / 4096 + 2 * requests.len() as u64, "pages touched are those of bytes written");
    assert!(counts.updates[1] <= counts.updates[0] && counts.updates[0] <= counts.page_writes);
});
