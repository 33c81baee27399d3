//! What lies on a hard disk and a solid-state drive that are one: superblocks, headers, lists of marks, indexes, whole logs; and the file of a
//! drive's profile. Whatever is there, it is refused with an error, or comes out again as it was; and a pair that opened takes writes.

#![no_main]

use arbitrary::Arbitrary;
use claystone_tier::{Profile, fuzzing};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    Superblock(&'a [u8]),
    Record(&'a [u8]),
    Index(&'a [u8]),
    Logs(Vec<(bool, u8, &'a [u8])>),
    Profile(&'a str),
}

fuzz_target!(|input: Input<'_>| {
    match input {
        Input::Superblock(bytes) => fuzzing::superblock(bytes),
        Input::Record(bytes) => fuzzing::record(bytes),
        Input::Index(bytes) => {
            fuzzing::index(bytes);
            fuzzing::indexed(bytes);
        }
        Input::Logs(headers) => fuzzing::logs(&headers[..headers.len().min(12)]),
        Input::Profile(text) => {
            let profile = toml::from_str::<Profile>(text).ok().filter(|profile| profile.check().is_ok());
            if let Some(profile) = profile {
                let text = toml::to_string(&profile).expect("a profile is plain data");
                assert_eq!(toml::from_str::<Profile>(&text).as_ref(), Ok(&profile));
            }
        }
    }
});
