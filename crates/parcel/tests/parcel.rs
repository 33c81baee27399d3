//! Parcels on simulated disks: every loss up to the tolerance, damage anywhere, power cuts at every operation.

use std::sync::Arc;

use claystone_code::CodeSpec;
use claystone_env::Directory;
use claystone_parcel::{
    Conversion, Encoder, Error, Extent, Head, Manifest, ManifestFile, NoHead, Oddity, Parcel, ParcelId, Place,
    SECTOR_BYTES, Verdict, chunk_file_name, find, manifest_file_name,
};
use claystone_sim::{DiskModel, SimDisk, run};

const NAME: &str = "holiday.tar";

fn with_disk<T>(scenario: impl FnOnce(SimDisk) -> T) -> T {
    run(7, |world| async move { scenario(world.disk("d", DiskModel::ssd(1 << 32))) })
}

fn content(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    (0..bytes).map(|_| next()).collect()
}

fn encode(directory: Arc<dyn Directory>, spec: &str, bytes: &[u8]) -> Result<Manifest, Error> {
    let spec: CodeSpec = spec.parse().expect("a spec");
    let mut encoder = Encoder::begin(directory, ParcelId([9; 16]), spec, NAME, bytes.len() as u64)?;
    for piece in bytes.chunks(1_000_003) {
        encoder.write(piece)?;
    }
    encoder.finish()
}

fn found(disk: &SimDisk) -> Result<Parcel, Error> {
    find(&[Place { directory: disk.attach(), file: None }])
}

fn decode(disk: &SimDisk) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let mut sink = |piece: &[u8]| {
        bytes.extend_from_slice(piece);
        Ok(())
    };
    found(disk)?.decode(&mut sink, &mut |_| ())?;
    Ok(bytes)
}

fn verdict(disk: &SimDisk) -> Verdict {
    found(disk).expect("found").verify(&mut |_| ()).verdict()
}

fn repair(disk: &SimDisk, extent: Extent) -> Result<claystone_parcel::Repaired, Error> {
    found(disk)?.repair(&disk.attach(), extent, &mut |_| ())
}

fn put(disk: &SimDisk, name: &str, bytes: Vec<u8>) {
    if !disk.files().iter().any(|file| file == name) {
        disk.attach().create(name).expect("made");
    }
    disk.set_content(name, bytes);
}

fn chunk_name(spec: &str, chunk: u16) -> String {
    let shape = spec.parse::<CodeSpec>().expect("a spec").shape();
    chunk_file_name(NAME, chunk, shape.chunks())
}

/// Lengths around every border: empty, one byte, a sector, a row, a row and a bit.
const LENGTHS: [usize; 9] = [0, 1, 3, 4095, 4097, 65_536 * 4, 65_536 * 4 + 1, 700_001, 65_536 * 16 - 1];
const SPECS: [&str; 5] = ["replica:3", "rs:4+2", "rs:1+1", "clay:4+2:5", "clay:3+3:4"];

#[test]
fn every_length_comes_back_and_is_whole() {
    for spec in SPECS {
        for length in LENGTHS {
            with_disk(|disk| {
                let bytes = content(length);
                encode(disk.attach(), spec, &bytes).expect("written");
                assert_eq!(decode(&disk).expect("decoded"), bytes, "{spec} {length}");
                assert_eq!(verdict(&disk), Verdict::Whole, "{spec} {length}");
            });
        }
    }
}

#[test]
fn every_loss_up_to_the_tolerance_comes_back_and_one_more_is_refused_with_the_numbers() {
    for spec in SPECS {
        with_disk(|disk| {
            let code = spec.parse::<CodeSpec>().expect("a spec");
            let (chunks, tolerance) = (code.shape().chunks(), code.tolerance());
            let bytes = content(300_000);
            encode(disk.attach(), spec, &bytes).expect("written");
            let names: Vec<String> = (0..chunks).map(|chunk| chunk_name(spec, chunk)).collect();
            let files: Vec<Vec<u8>> = names.iter().map(|name| disk.content(name)).collect();
            for pattern in 1u32..1 << chunks {
                let lost: Vec<usize> = (0..usize::from(chunks)).filter(|chunk| pattern >> chunk & 1 == 1).collect();
                for chunk in &lost {
                    disk.lose_file(&names[*chunk]);
                }
                if lost.len() <= usize::from(tolerance) {
                    assert_eq!(decode(&disk).expect("decoded"), bytes, "{spec} without {lost:?}");
                    assert_eq!(verdict(&disk), Verdict::Repairable);
                    let extent = if pattern % 2 == 0 { Extent::All } else { Extent::Missing };
                    let repaired = repair(&disk, extent).expect("repaired");
                    assert_eq!(repaired.rebuilt.len(), lost.len());
                    for (name, file) in names.iter().zip(&files) {
                        assert_eq!(disk.content(name), *file, "{spec} without {lost:?}: {name}");
                    }
                } else if lost.len() < usize::from(chunks) {
                    let error = decode(&disk).expect_err("too much is lost");
                    let left = u16::try_from(usize::from(chunks) - lost.len()).expect("small");
                    let Error::TooMuchLost { available, chunks: all, .. } = error else { panic!("{spec}: {error}") };
                    assert_eq!((available, all), (left, chunks), "{spec}");
                    assert_eq!(verdict(&disk), Verdict::TooMuchLost);
                    assert!(matches!(repair(&disk, Extent::All), Err(Error::TooMuchLost { .. })));
                    assert!(disk.files().iter().all(|name| !name.ends_with(".part")), "{:?}", disk.files());
                    for chunk in lost {
                        put(&disk, &names[chunk], files[chunk].clone());
                    }
                } else {
                    assert_eq!(found(&disk).expect("the manifest's file").absent().len(), usize::from(chunks));
                    assert!(matches!(decode(&disk), Err(Error::TooMuchLost { available: 0, .. })));
                }
            }
        });
    }
}

#[test]
fn a_flipped_bit_costs_its_sector_and_no_more() {
    // More sectors damaged than chunks may be lost, each in another place: all of them are mended.
    for spec in ["rs:4+2", "rs:3+1"] {
        with_disk(|disk| {
            let bytes = content(65_536 * 8);
            encode(disk.attach(), spec, &bytes).expect("written");
            let chunks = spec.parse::<CodeSpec>().expect("a spec").shape().chunks();
            for chunk in 0..chunks {
                let name = chunk_name(spec, chunk);
                let content_at = found(&disk).expect("found").layout().content_at();
                disk.flip_bit(&name, (content_at + u64::from(chunk) * SECTOR_BYTES as u64 + 5) * 8);
            }
            assert_eq!(decode(&disk).expect("decoded"), bytes);
            let report = found(&disk).expect("found").verify(&mut |_| ());
            assert_eq!(report.verdict(), Verdict::Repairable);
            assert_eq!(report.damage.len(), usize::from(chunks));
            for damage in &report.damage {
                let sector = u64::from(damage.chunk);
                assert_eq!(
                    (damage.sectors, &damage.first_sectors[..]),
                    (1, std::slice::from_ref(&(sector..sector + 1)))
                );
            }
            let repaired = repair(&disk, Extent::All).expect("repaired");
            assert_eq!(repaired.mended_sectors, u64::from(chunks));
            assert_eq!(verdict(&disk), Verdict::Whole);
        });
    }
}

#[test]
fn every_byte_of_a_chunk_file_may_flip() {
    with_disk(|disk| {
        let bytes = content(9000);
        encode(disk.attach(), "rs:2+1", &bytes).expect("written");
        let name = chunk_name("rs:2+1", 1);
        let whole = disk.content(&name);
        let layout = found(&disk).expect("found").layout();
        let (table_end, content_at) = (layout.entry_at(layout.sectors()), layout.content_at());
        for byte in (0..whole.len() as u64).filter(|byte| *byte < 600 || byte % 97 == 0) {
            disk.flip_bit(&name, byte * 8 + byte % 8);
            assert_eq!(decode(&disk).expect("decoded"), bytes, "byte {byte}");
            let means_something = byte < table_end || byte >= content_at;
            let expected = if means_something { Verdict::Repairable } else { Verdict::Whole };
            assert_eq!(verdict(&disk), expected, "byte {byte}");
            repair(&disk, Extent::All).expect("repaired");
            assert_eq!(verdict(&disk), Verdict::Whole, "byte {byte}");
            if means_something {
                assert_eq!(disk.content(&name), whole, "byte {byte}");
            }
            put(&disk, &name, whole.clone());
        }
    });
}

#[test]
fn a_chunk_file_may_end_anywhere() {
    with_disk(|disk| {
        let bytes = content(20_000);
        encode(disk.attach(), "rs:2+1", &bytes).expect("written");
        let name = chunk_name("rs:2+1", 0);
        let whole = disk.content(&name);
        for end in (0..whole.len() as u64).filter(|end| *end < 530 || end % 193 == 0) {
            disk.truncate(&name, end);
            assert_eq!(decode(&disk).expect("decoded"), bytes, "{end} bytes");
            let report = found(&disk).expect("found").verify(&mut |_| ());
            assert_eq!(report.verdict(), Verdict::Repairable, "{end} bytes");
            repair(&disk, Extent::All).expect("repaired");
            assert_eq!(disk.content(&name), whole, "{end} bytes");
        }
    });
}

#[test]
fn a_medium_that_lost_a_sector_gives_the_others() {
    with_disk(|disk| {
        let bytes = content(400_000);
        encode(disk.attach(), "clay:4+2:5", &bytes).expect("written");
        let (one, two) = (chunk_name("clay:4+2:5", 1), chunk_name("clay:4+2:5", 4));
        disk.make_unreadable(&one, 16_384..16_500);
        disk.make_unreadable(&two, 40_000..40_001);
        assert_eq!(decode(&disk).expect("decoded"), bytes);
        let report = found(&disk).expect("found").verify(&mut |_| ());
        assert_eq!(
            report.damage.iter().map(|damage| (damage.chunk, damage.sectors)).collect::<Vec<_>>(),
            [(1, 1), (4, 1)]
        );
        let repaired = repair(&disk, Extent::All).expect("repaired");
        assert_eq!(repaired.mended_sectors, 2);
        assert_eq!(verdict(&disk), Verdict::Whole);
    });
}

#[test]
fn a_missing_chunk_is_rebuilt_from_the_ranges_of_the_plan() {
    // Rows of 256 KiB: clay:4+2:5 reads half of each of five chunks, 2.5 bytes for each lost byte; rs:4+2 reads four.
    for (spec, read_for_ten) in [("clay:4+2:5", 25), ("rs:4+2", 40)] {
        for chunk in 0..6 {
            with_disk(|disk| {
                encode(disk.attach(), spec, &content(65_536 * 4 * 5)).expect("written");
                disk.lose_file(&chunk_name(spec, chunk));
                let before = disk.stats().bytes_read;
                let repaired = repair(&disk, Extent::Missing).expect("repaired");
                assert_eq!(repaired.lost_bytes, 65_536 * 5);
                assert_eq!(repaired.read_bytes * 10, repaired.lost_bytes * read_for_ten, "{spec} chunk {chunk}");
                // What the disk saw beside it: heads, tables, and the new file read back.
                let seen = disk.stats().bytes_read - before - repaired.read_bytes - repaired.lost_bytes;
                assert!(seen < 30_000, "{spec} chunk {chunk}: {seen} bytes more were read");
            });
        }
    }
}

#[test]
fn damage_that_is_met_on_the_way_is_avoided_and_told() {
    with_disk(|disk| {
        let bytes = content(65_536 * 8);
        encode(disk.attach(), "rs:4+2", &bytes).expect("written");
        let lost = disk.content(&chunk_name("rs:4+2", 2));
        disk.lose_file(&chunk_name("rs:4+2", 2));
        let content_at = found(&disk).expect("found").layout().content_at();
        disk.flip_bit(&chunk_name("rs:4+2", 0), (content_at + 70_000) * 8);
        let repaired = repair(&disk, Extent::Missing).expect("repaired");
        assert_eq!(repaired.met_sectors, 1, "however often it was met");
        assert_eq!(disk.content(&chunk_name("rs:4+2", 2)), lost);
        assert_eq!(repair(&disk, Extent::All).expect("repaired").mended_sectors, 1);
        assert_eq!(verdict(&disk), Verdict::Whole);
    });
}

#[test]
fn a_repair_that_cannot_mend_all_mends_nothing() {
    with_disk(|disk| {
        let bytes = content(65_536 * 4);
        let layout = encode(disk.attach(), "rs:2+1", &bytes).expect("written").layout();
        // One sector of the first row can be mended, two at one place of the last one cannot.
        let at = |row: u64| layout.content_at() + layout.row(row).chunk_at;
        for (chunk, row) in [(0, 0), (0, 1), (1, 1)] {
            disk.flip_bit(&chunk_name("rs:2+1", chunk), at(row) * 8);
        }
        let before: Vec<Vec<u8>> = (0..3).map(|chunk| disk.content(&chunk_name("rs:2+1", chunk))).collect();
        let error = repair(&disk, Extent::All).expect_err("too much is lost");
        assert!(matches!(error, Error::TooMuchLost { file_byte: 131_072, available: 1, needed: 2, chunks: 3, .. }));
        let after: Vec<Vec<u8>> = (0..3).map(|chunk| disk.content(&chunk_name("rs:2+1", chunk))).collect();
        assert!(before == after, "nothing was changed");
    });
}

#[test]
fn a_head_that_promises_more_than_there_is_costs_no_more_time_than_there_is() {
    with_disk(|disk| {
        let bytes = content(300_000);
        let mut manifest = encode(disk.attach(), "rs:2+1", &bytes).expect("written");
        manifest.file_bytes = 1 << 56;
        for chunk in [None, Some(0), Some(1), Some(2)] {
            let name = chunk.map_or(manifest_file_name(NAME), |chunk| chunk_name("rs:2+1", chunk));
            let mut file = disk.content(&name);
            file[..512].copy_from_slice(&Head { manifest: manifest.clone(), chunk }.encode());
            put(&disk, &name, file);
        }
        let mut told = 0;
        let report = found(&disk).expect("found").verify(&mut |bytes| told += bytes);
        assert_eq!((report.verdict(), report.first_lost_byte, told), (Verdict::TooMuchLost, Some(0), 1 << 56));
        assert!(report.lost_bytes >= 1 << 56);
        let sectors = (1u64 << 55) / SECTOR_BYTES as u64;
        let counted: Vec<u64> = report.damage.iter().map(|damage| damage.sectors).collect();
        assert_eq!(counted, [sectors; 3]);
        assert_eq!(report.damage[0].first_sectors[0], 0..sectors);
        let none = Error::TooMuchLost { spec: manifest.spec, file_byte: 0, available: 0, needed: 2, chunks: 3 };
        assert_eq!(repair(&disk, Extent::All).expect_err("lost").to_string(), none.to_string());
        // Nothing is missing, so nothing is looked at.
        assert!(repair(&disk, Extent::Missing).expect("nothing to do").rebuilt.is_empty());
    });
}

#[test]
fn a_power_cut_at_any_operation_leaves_no_half_for_whole() {
    let bytes = content(150_000);
    let (mut cut, mut operations) = (true, 0);
    while cut {
        with_disk(|disk| {
            disk.cut_power_after(operations);
            let written = encode(disk.attach(), "rs:2+1", &bytes);
            cut = !disk.is_powered();
            disk.crash();
            assert_eq!(written.is_err(), cut);
            // Any two of the chunk files that have their names give the file back.
            match found(&disk) {
                Ok(parcel) if parcel.absent().len() <= 1 => {
                    assert_eq!(decode(&disk).expect("decoded"), bytes, "{operations}")
                }
                Ok(_) => assert!(matches!(decode(&disk), Err(Error::TooMuchLost { .. })), "{operations}"),
                Err(Error::Nothing { .. }) => (),
                Err(error) => panic!("after {operations} operations: {error}"),
            }
            if !cut {
                assert_eq!(verdict(&disk), Verdict::Whole);
            }
        });
        operations += 1;
    }
    assert!(operations > 20);
}

#[test]
fn a_power_cut_at_any_operation_of_a_repair_loses_nothing() {
    let bytes = content(150_000);
    let (mut cut, mut operations) = (true, 0);
    while cut {
        with_disk(|disk| {
            encode(disk.attach(), "rs:2+2", &bytes).expect("written");
            disk.lose_file(&chunk_name("rs:2+2", 1));
            disk.flip_bit(&chunk_name("rs:2+2", 3), 5000 * 8);
            disk.flip_bit(&chunk_name("rs:2+2", 0), 20 * 8);
            disk.cut_power_after(operations);
            let repaired = repair(&disk, Extent::All);
            cut = !disk.is_powered();
            disk.crash();
            assert_eq!(repaired.is_err(), cut);
            assert_eq!(decode(&disk).expect("decoded"), bytes, "{operations}");
            repair(&disk, Extent::All).expect("repaired");
            assert_eq!(verdict(&disk), Verdict::Whole, "{operations}");
        });
        operations += 1;
    }
    assert!(operations > 20);
}

#[test]
fn a_writer_that_fails_leaves_nothing() {
    with_disk(|disk| {
        let short = Encoder::begin(disk.attach(), ParcelId([1; 16]), "rs:2+1".parse().expect("a spec"), NAME, 10);
        let mut short = short.expect("begun");
        short.write(b"abc").expect("taken");
        assert!(matches!(short.finish(), Err(Error::LengthChanged { expected: 10, got: 3 })));
        assert_eq!(disk.files(), Vec::<String>::new());
        let mut long = Encoder::begin(disk.attach(), ParcelId([1; 16]), "rs:2+1".parse().expect("a spec"), NAME, 2)
            .expect("begun");
        assert!(matches!(long.write(b"abc"), Err(Error::LengthChanged { expected: 2, got: 3 })));
        drop(long);
        assert_eq!(disk.files(), Vec::<String>::new());
    });
}

#[test]
fn nothing_that_has_a_name_is_written_over() {
    with_disk(|disk| {
        encode(disk.attach(), "rs:2+1", &content(100)).expect("written");
        let before = disk.content(&chunk_name("rs:2+1", 2));
        assert!(matches!(encode(disk.attach(), "rs:2+1", &content(200)), Err(Error::Exists { .. })));
        assert_eq!(disk.content(&chunk_name("rs:2+1", 2)), before);
        let lock = disk.attach();
        let _held = lock.lock().expect("free");
        assert!(matches!(encode(disk.attach(), "rs:2+1", &content(200)), Err(Error::Busy { .. })));
    });
}

#[test]
fn names_that_leave_the_directory_are_refused() {
    for name in ["", ".", "..", "a/b", "/etc/passwd", "a\nb", "a\0b", &"x".repeat(240)] {
        with_disk(|disk| {
            let spec = "rs:2+1".parse().expect("a spec");
            let begun = Encoder::begin(disk.attach(), ParcelId([1; 16]), spec, name, 1);
            assert!(matches!(begun.map(|_| ()), Err(Error::BadName { .. })), "{name:?}");
        });
    }
}

#[test]
fn a_code_whose_name_does_not_fit_is_refused() {
    let mixed = |chunks: u16| {
        let mirrored: Vec<String> = (0..chunks).map(|chunk| chunk.to_string()).collect();
        format!("mixed:32+2x3:{}", mirrored.join("+"))
    };
    with_disk(|disk| {
        let (fits, too_long) = (mixed(20), mixed(21));
        assert_eq!((fits.len(), too_long.len()), (62, 65));
        let bytes = content(100_000);
        let refused = encode(disk.attach(), &too_long, &bytes);
        assert!(matches!(refused, Err(Error::CodeTooLong { bytes: 65, limit: 64, .. })), "{refused:?}");
        assert_eq!(disk.files(), Vec::<String>::new());
        encode(disk.attach(), &fits, &bytes).expect("written");
        assert_eq!(decode(&disk).expect("decoded"), bytes);
        let (parcels, spec) = ([found(&disk).expect("found")], too_long.parse().expect("a spec"));
        let refused = Conversion::plan(&parcels, spec, ParcelId([9; 16])).map(|_| ());
        assert!(matches!(refused, Err(Error::CodeTooLong { bytes: 65, .. })), "{refused:?}");
    });
}

#[test]
fn other_parcels_duplicates_and_newer_files_are_told_apart() {
    with_disk(|disk| {
        let spec: CodeSpec = "rs:2+1".parse().expect("a spec");
        encode(disk.attach(), "rs:2+1", &content(100)).expect("written");
        let mut other = Encoder::begin(disk.attach(), ParcelId([3; 16]), spec, "other", 1).expect("begun");
        other.write(b"x").expect("taken");
        other.finish().expect("written");
        let place = |file: &str| Place { directory: disk.attach(), file: Some(file.to_owned()) };
        assert!(matches!(found(&disk), Err(Error::Several { found }) if found.len() == 2));
        let other = find(&[place("other.01.clay")]).expect("found");
        assert_eq!(other.manifest().expect("one file").name, "other");
        let both = find(&[place("other.01.clay"), place(&manifest_file_name(NAME))]);
        assert!(matches!(both.map(|_| ()), Err(Error::Foreign { .. })));

        // A chunk of another parcel under our name is not ours, and is not written over.
        let (ours, theirs) = (chunk_name("rs:2+1", 1), disk.content("other.01.clay"));
        let kept = disk.content(&ours);
        put(&disk, &ours, theirs);
        disk.lose_file("other.01.clay");
        let parcel = find(&[place(&chunk_name("rs:2+1", 0))]).expect("found");
        assert_eq!((parcel.absent(), parcel.oddities().len()), (vec![1], 1));
        assert!(matches!(parcel.repair(&disk.attach(), Extent::All, &mut |_| ()), Err(Error::Exists { .. })));
        put(&disk, &ours, kept.clone());

        put(&disk, "copy.clay", kept.clone());
        let twice = find(&[place(&ours)]);
        assert!(matches!(twice.map(|_| ()), Err(Error::Duplicate { index: 1, .. })));
        disk.lose_file("copy.clay");

        let mut newer = kept;
        newer[8] = 2;
        newer[12..16].fill(0);
        let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &newer[..512]) as u32;
        newer[12..16].copy_from_slice(&crc.to_le_bytes());
        put(&disk, &ours, newer);
        assert!(matches!(find(&[place(&ours)]).map(|_| ()), Err(Error::NewerFormat { version: 2, known: 1, .. })));
        assert!(matches!(find(&[place("nothing")]).map(|_| ()), Err(Error::Io { .. })));
    });
}

#[test]
fn a_file_of_somebody_else_under_a_chunks_name_is_not_written_over() {
    with_disk(|disk| {
        let bytes = content(100_000);
        encode(disk.attach(), "rs:2+1", &bytes).expect("written");
        let name = chunk_name("rs:2+1", 1);
        for foreign in [content(60_000), b"notes".to_vec(), vec![0; 4096], disk.content(&name)[1..].to_vec()] {
            put(&disk, &name, foreign.clone());
            let parcel = found(&disk).expect("found");
            assert!(matches!(parcel.oddities(), [Oddity::Foreign { path, .. }] if path.ends_with(&name)));
            assert_eq!((parcel.absent(), verdict(&disk)), (vec![1], Verdict::Repairable));
            assert_eq!(decode(&disk).expect("decoded"), bytes);
            for extent in [Extent::All, Extent::Missing] {
                let error = repair(&disk, extent).expect_err("it is in the way");
                assert!(matches!(&error, Error::Exists { path } if path.ends_with(&name)), "{error}");
                assert_eq!(disk.content(&name), foreign);
            }
        }
    });
}

#[test]
fn a_damaged_manifest_file_is_replaced_where_it_lies() {
    run(7, |world| async move {
        let (one, two) = (world.disk("one", DiskModel::ssd(1 << 32)), world.disk("two", DiskModel::ssd(1 << 32)));
        encode(one.attach(), "rs:2+1", &content(100_000)).expect("written");
        let places = [&one, &two].map(|disk| Place { directory: disk.attach(), file: None });
        let own = manifest_file_name(NAME);
        let whole = one.content(&own);
        for damaged in [whole[..100].to_vec(), Vec::new(), vec![0; 512]] {
            one.set_content(&own, damaged);
            let parcel = find(&places).expect("found");
            assert_eq!(parcel.verify(&mut |_| ()).manifest_file, ManifestFile::Damaged);
            let repaired = parcel.repair(&two.attach(), Extent::All, &mut |_| ()).expect("repaired");
            assert!(repaired.manifest_written && repaired.rebuilt.is_empty());
            assert_eq!((one.content(&own), two.files()), (whole.clone(), Vec::new()));
        }
        one.lose_file(&own);
        let parcel = find(&places).expect("found");
        assert_eq!(parcel.verify(&mut |_| ()).manifest_file, ManifestFile::Missing);
        parcel.repair(&two.attach(), Extent::All, &mut |_| ()).expect("repaired");
        assert_eq!(two.content(&own), whole);
    });
}

#[test]
fn a_file_of_somebody_else_under_the_manifests_name_is_not_written_over() {
    with_disk(|disk| {
        encode(disk.attach(), "rs:2+1", &content(100_000)).expect("written");
        let own = manifest_file_name(NAME);
        for foreign in [b"notes".to_vec(), content(60_000), content(513)] {
            put(&disk, &own, foreign.clone());
            let parcel = found(&disk).expect("found");
            assert!(matches!(parcel.oddities(), [Oddity::Foreign { path, .. }] if path.ends_with(&own)));
            assert_eq!(parcel.manifest_file(), ManifestFile::Missing);
            for extent in [Extent::All, Extent::Missing] {
                let error = repair(&disk, extent).expect_err("it is in the way");
                assert!(matches!(&error, Error::Exists { path } if path.ends_with(&own)), "{error}");
                assert_eq!(disk.content(&own), foreign);
            }
        }
    });
}

#[test]
fn a_chunk_of_ours_with_one_good_sector_is_mended_under_a_damaged_head() {
    with_disk(|disk| {
        encode(disk.attach(), "rs:2+1", &content(100_000)).expect("written");
        let name = chunk_name("rs:2+1", 1);
        let (whole, layout) = (disk.content(&name), found(&disk).expect("found").layout());
        let mut ruin = whole.clone();
        ruin[..512].fill(0xee);
        let last = (layout.content_at() + (layout.sectors() - 1) * SECTOR_BYTES as u64) as usize;
        ruin[layout.content_at() as usize..last].fill(0xee);
        put(&disk, &name, ruin);
        let repaired = repair(&disk, Extent::All).expect("repaired");
        assert_eq!((repaired.mended_heads, repaired.mended_sectors), (1, layout.sectors() - 1));
        assert_eq!(disk.content(&name), whole);
    });
}

#[test]
fn a_stray_copy_with_a_damaged_head_is_odd_and_stops_nothing() {
    run(7, |world| async move {
        let (one, two) = (world.disk("one", DiskModel::ssd(1 << 32)), world.disk("two", DiskModel::ssd(1 << 32)));
        let places = || [&one, &two].map(|disk| Place { directory: disk.attach(), file: None });
        let bytes = content(100_000);
        encode(one.attach(), "rs:2+1", &bytes).expect("written");
        let name = chunk_name("rs:2+1", 1);
        let (whole, layout) = (one.content(&name), find(&places()).expect("found").layout());
        let mut stray = whole.clone();
        stray[20] ^= 1;
        put(&two, &name, stray.clone());
        let judge = |stray: &[u8]| {
            let parcel = find(&places()).expect("found");
            let [Oddity::Foreign { path, .. }] = parcel.oddities() else { panic!("{:?}", parcel.oddities()) };
            assert!(path.starts_with("sim:two/"), "{path}");
            let mut decoded = Vec::new();
            let mut sink = |piece: &[u8]| {
                decoded.extend_from_slice(piece);
                Ok(())
            };
            parcel.decode(&mut sink, &mut |_| ()).expect("decoded");
            assert_eq!(decoded, bytes);
            one.lose_file(&chunk_name("rs:2+1", 0));
            parcel.repair(&one.attach(), Extent::All, &mut |_| ()).expect("repaired");
            assert_eq!(find(&places()).expect("found").verify(&mut |_| ()).verdict(), Verdict::Whole);
            assert_eq!((one.content(&name), two.content(&name)), (whole.clone(), stray.to_vec()));
        };
        judge(&stray);
        // Of two without a head the better one is the chunk.
        stray[layout.content_at() as usize] ^= 1;
        put(&two, &name, stray.clone());
        one.flip_bit(&name, 20 * 8);
        judge(&stray);
    });
}

#[test]
fn a_repair_looks_again_once_nobody_else_can_write() {
    with_disk(|disk| {
        let bytes = content(100_000);
        encode(disk.attach(), "rs:2+1", &bytes).expect("written");
        disk.lose_file(&chunk_name("rs:2+1", 1));
        // Two of them find chunk 1 missing. The second one is late, and in the meantime chunk 0 is lost.
        let late = found(&disk).expect("found");
        repair(&disk, Extent::Missing).expect("repaired");
        disk.lose_file(&chunk_name("rs:2+1", 0));
        let repaired = late.repair(&disk.attach(), Extent::Missing, &mut |_| ()).expect("repaired");
        assert_eq!(repaired.rebuilt, [0]);
        assert_eq!(verdict(&disk), Verdict::Whole);
    });
}

#[test]
fn bytes_behind_a_chunks_content_are_odd_and_no_damage() {
    with_disk(|disk| {
        encode(disk.attach(), "rs:2+1", &content(100_000)).expect("written");
        let name = chunk_name("rs:2+1", 1);
        let whole = disk.content(&name);
        put(&disk, &name, [&whole[..], b"more"].concat());
        let report = found(&disk).expect("found").verify(&mut |_| ());
        assert_eq!((report.verdict(), report.damage.len()), (Verdict::Whole, 0));
        let (bytes, expected) = (whole.len() as u64 + 4, whole.len() as u64);
        let [Oddity::Longer { path, bytes: is, expected_bytes }] = &report.oddities[..] else { panic!("it is odd") };
        assert!(path.ends_with(&name));
        assert_eq!((*is, *expected_bytes), (bytes, expected));
    });
}

#[test]
fn a_named_file_without_a_head_is_known_by_its_name() {
    with_disk(|disk| {
        let bytes = content(100_000);
        encode(disk.attach(), "rs:2+1", &bytes).expect("written");
        let name = chunk_name("rs:2+1", 1);
        disk.flip_bit(&name, 200 * 8);
        let parcel = find(&[Place { directory: disk.attach(), file: Some(name) }]).expect("found");
        assert!(parcel.absent().is_empty());
        put(&disk, "stray", vec![1; 1000]);
        let stray = find(&[Place { directory: disk.attach(), file: Some("stray".to_owned()) }]);
        assert!(matches!(stray.map(|_| ()), Err(Error::NotAPart { .. })));
    });
}

#[test]
fn every_byte_of_a_head_counts() {
    let manifest = Manifest {
        id: ParcelId([5; 16]),
        spec: "clay:4+2:5".parse().expect("a spec"),
        name: "ä b.tar".to_owned(),
        file_bytes: 12345,
        sub_bytes: 8192,
        hash: [7; 32],
    };
    for chunk in [None, Some(0), Some(5)] {
        let head = Head { manifest: manifest.clone(), chunk };
        let bytes = head.encode();
        assert_eq!(Head::decode(&bytes), Ok(head));
        for at in 0..bytes.len() {
            assert!(matches!(Head::decode(&bytes[..at]), Err(NoHead::Damaged(_))), "cut at {at}");
            let mut flipped = bytes;
            flipped[at] ^= 1 << (at % 8);
            assert!(Head::decode(&flipped).is_err(), "flip at {at}");
        }
    }
}

#[test]
fn a_head_whose_checksum_holds_is_still_judged() {
    let manifest = Manifest {
        id: ParcelId([5; 16]),
        spec: "rs:4+2".parse().expect("a spec"),
        name: "a".to_owned(),
        file_bytes: 1,
        sub_bytes: 4096,
        hash: [7; 32],
    };
    let good = Head { manifest, chunk: Some(5) }.encode();
    let cases: [(usize, &[u8]); 12] = [
        (10, &6u16.to_le_bytes()),
        (32, &u64::MAX.to_le_bytes()),
        (40, &0u32.to_le_bytes()),
        (40, &1000u32.to_le_bytes()),
        (40, &u32::MAX.to_le_bytes()),
        (44, &65u16.to_le_bytes()),
        (46, &240u16.to_le_bytes()),
        (46, &0u16.to_le_bytes()),
        (80, b"xx"),
        (144, b"/"),
        (144, &[0xff]),
        (400, &[1]),
    ];
    for (at, field) in cases {
        let mut bytes = good;
        bytes[at..at + field.len()].copy_from_slice(field);
        bytes[12..16].fill(0);
        let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes) as u32;
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        assert!(matches!(Head::decode(&bytes), Err(NoHead::Damaged(_))), "{field:?} at {at}");
    }
}

#[test]
fn written_bytes_are_those_of_the_document() {
    with_disk(|disk| {
        let spec = "rs:2+1".parse().expect("a spec");
        let id = ParcelId(*b"\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
        let mut encoder = Encoder::begin(disk.attach(), id, spec, "abc", 3).expect("begun");
        encoder.write(b"xyz").expect("taken");
        encoder.finish().expect("written");
        assert_eq!(disk.files(), ["abc.00.clay", "abc.01.clay", "abc.02.clay", "abc.clay"]);
        let file = disk.content("abc.02.clay");
        assert_eq!(file.len(), 4098);
        let document = include_str!("../../../docs/formats/parcel.md");
        for (at, bytes) in [(0usize, &file[..160]), (512, &file[512..516]), (4096, &file[4096..])] {
            for (line, bytes) in bytes.chunks(16).enumerate() {
                let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                let text = format!("{:04x}  {}", at + line * 16, hex.join(" "));
                assert!(document.contains(&text), "the document lacks: {text}");
            }
        }
        assert!(file[160..512].iter().all(|byte| *byte == 0) && file[516..4096].iter().all(|byte| *byte == 0));
        let manifest = disk.content("abc.clay");
        assert_eq!(manifest.len(), 512);
        assert_eq!(Head::decode(&manifest).expect("a head").chunk, None);
    });
}

#[test]
fn golden_hashes_of_whole_parcels() {
    for (spec, expected) in GOLDEN {
        with_disk(|disk| {
            encode(disk.attach(), spec, &content(1_000_000)).expect("written");
            let mut hasher = blake3::Hasher::new();
            for name in disk.files() {
                hasher.update(name.as_bytes());
                hasher.update(&disk.content(&name));
            }
            assert_eq!(&hasher.finalize().to_hex()[..32], expected, "{spec}");
        });
    }
}

const GOLDEN: [(&str, &str); 3] = [
    ("rs:4+2", "4e1ba6d464abd6b0c7abca4ff02d6764"),
    ("clay:4+2:5", "6ad44fb7dcfdeea102a2a96774bed0a7"),
    ("replica:2", "6825f957c5f6ed78fb2ba85612489e41"),
];
