//! Segments of a volume's log: whatever is in them is read as records or not, and applied without harm.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|parts: Vec<(Vec<u8>, Vec<u8>)>| claystone_volume::fuzzing::segment(&parts));
