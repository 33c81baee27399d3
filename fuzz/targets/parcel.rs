//! Damage in the files of a parcel: decoding gives the file or an error, never another file, and a repair that says it
//! is done leaves the parcel whole.
#![no_main]

use arbitrary::Arbitrary;
use claystone_parcel::{Encoder, Extent, Parcel, ParcelId, Place, Verdict, find};
use claystone_sim::{DiskModel, SimDisk, run};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input {
    code: u8,
    length: u16,
    damage: Vec<Damage>,
    missing_only: bool,
}

#[derive(Arbitrary, Debug)]
enum Damage {
    Lose { file: u8 },
    Cut { file: u8, bytes: u16 },
    Write { file: u8, at: u16, bytes: Vec<u8> },
    Swap { one: u8, other: u8 },
    Unreadable { file: u8, at: u16 },
}

const CODES: [&str; 5] = ["rs:2+1", "rs:3+2", "clay:2+2:3", "clay:4+2:5", "replica:2"];

fuzz_target!(|input: Input| {
    run(1, |world| async move { judge(&input, &world.disk("d", DiskModel::ssd(1 << 28))) });
});

fn judge(input: &Input, disk: &SimDisk) {
    let spec = CODES[usize::from(input.code) % CODES.len()].parse().expect("a spec");
    let file: Vec<u8> =
        (0..u32::from(input.length) % 20_000).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 13) as u8).collect();
    let mut encoder = Encoder::begin(disk.attach(), ParcelId([7; 16]), spec, "f", file.len() as u64).expect("begun");
    encoder.write(&file).expect("taken");
    encoder.finish().expect("written");
    for damage in input.damage.iter().take(8) {
        apply(damage, disk);
    }
    let Ok(parcel) = found(disk) else { return };
    let decoded = decode(&parcel);
    assert!(decoded.as_ref().is_none_or(|decoded| *decoded == file), "another file came out");
    let extent = if input.missing_only { Extent::Missing } else { Extent::All };
    let before = parcel.verify(&mut |_| ()).verdict();
    assert_eq!(decoded.is_some(), before == Verdict::Whole || before == Verdict::Repairable);
    if parcel.repair(&disk.attach(), extent, &mut |_| ()).is_ok() {
        let parcel = found(disk).expect("it was there before");
        assert_eq!(decode(&parcel).as_ref(), Some(&file));
        if extent == Extent::All {
            assert_eq!(parcel.verify(&mut |_| ()).verdict(), Verdict::Whole);
        }
    }
}

fn found(disk: &SimDisk) -> Result<Parcel, claystone_parcel::Error> {
    find(&[Place { directory: disk.attach(), file: None }])
}

fn decode(parcel: &Parcel) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut sink = |piece: &[u8]| {
        bytes.extend_from_slice(piece);
        Ok(())
    };
    let decoded = parcel.decode(&mut sink, &mut |_| ());
    decoded.is_ok().then_some(bytes)
}

fn apply(damage: &Damage, disk: &SimDisk) {
    let files = disk.files();
    let Some(last) = files.len().checked_sub(1) else { return };
    let name = |file: &u8| &files[usize::from(*file).min(last)];
    match damage {
        Damage::Lose { file } => disk.lose_file(name(file)),
        Damage::Cut { file, bytes } => {
            let bytes = u64::from(*bytes).min(disk.content(name(file)).len() as u64);
            disk.truncate(name(file), bytes);
        }
        Damage::Write { file, at, bytes } => {
            let mut content = disk.content(name(file));
            let bytes = &bytes[..bytes.len().min(64)];
            let at = usize::from(*at).min(content.len());
            let end = content.len().max(at + bytes.len());
            content.resize(end, 0);
            content[at..at + bytes.len()].copy_from_slice(bytes);
            disk.set_content(name(file), content);
        }
        Damage::Swap { one, other } => {
            let (a, b) = (disk.content(name(one)), disk.content(name(other)));
            disk.set_content(name(one), b);
            disk.set_content(name(other), a);
        }
        Damage::Unreadable { file, at } => {
            let length = disk.content(name(file)).len() as u64;
            let at = u64::from(*at).min(length.saturating_sub(1));
            disk.make_unreadable(name(file), at..(at + 1).min(length));
        }
    }
}
