//! What a disk keeps outside its groups: superblock, sums and header of the page file, journal, a row of its catalog. Whatever is there, it is
//! refused with an error, or comes out again as it was; and a journal that opened takes entries.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| {
    let (what, bytes) = input;
    // Most inputs get right checksums: the rest ends at these.
    let seal = what & 0x30 != 0;
    match what % 4 {
        0 => claystone_files::fuzzing::superblock(bytes, seal),
        1 => claystone_files::fuzzing::pages(bytes, seal),
        2 => claystone_files::fuzzing::journal(bytes, seal),
        _ => claystone_files::fuzzing::swaths(bytes),
    }
});
