//! Conversions of parcels on simulated disks: data stays byte for byte, parity is that of the new code, a power cut at
//! any operation loses nothing.

use claystone_code::CodeSpec;
use claystone_parcel::{
    Conversion, Converted, Encoder, Error, Extent, Joint, JointHead, Manifest, MemberChunk, NoHead, Obstacle, Parcel,
    ParcelId, Place, Verdict, find, find_all,
};
use claystone_sim::{DiskModel, SimDisk, run};

const NAMES: [&str; 3] = ["a.tar", "b.tar", "c.tar"];

fn with_disk<T>(scenario: impl FnOnce(SimDisk) -> T) -> T {
    run(7, |world| async move { scenario(world.disk("d", DiskModel::ssd(1 << 32))) })
}

fn spec(text: &str) -> CodeSpec {
    text.parse().expect("a spec")
}

fn content(seed: u8, bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32 + u32::from(seed);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    (0..bytes).map(|_| next()).collect()
}

fn encode(disk: &SimDisk, code: &str, lengths: &[usize]) -> Vec<Vec<u8>> {
    let files: Vec<Vec<u8>> = (1..).zip(lengths).map(|(seed, bytes)| content(seed, *bytes)).collect();
    for ((id, name), file) in (1..).zip(NAMES).zip(&files) {
        let encoder = Encoder::begin(disk.attach(), ParcelId([id; 16]), spec(code), name, file.len() as u64);
        let mut encoder = encoder.expect("begun");
        encoder.write(file).expect("taken");
        encoder.finish().expect("written");
    }
    files
}

fn place(disk: &SimDisk, file: Option<&str>) -> [Place; 1] {
    [Place { directory: disk.attach(), file: file.map(str::to_owned) }]
}

fn parcels(disk: &SimDisk) -> Vec<Parcel> {
    find_all(&place(disk, None)).expect("found")
}

/// Converts all that is there; `None` if there is no better way than encoding anew.
fn convert(disk: &SimDisk, to: &str) -> Result<Option<Converted>, Error> {
    let parcels = find_all(&place(disk, None))?;
    let Some(conversion) = Conversion::plan(&parcels, spec(to), ParcelId([9; 16]))? else { return Ok(None) };
    conversion.run(&disk.attach(), &mut |_| ()).map(Some)
}

fn decode(parcel: &Parcel) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let mut sink = |piece: &[u8]| {
        bytes.extend_from_slice(piece);
        Ok(())
    };
    parcel.decode(&mut sink, &mut |_| ())?;
    Ok(bytes)
}

/// Decodes each file by the name of its manifest's file.
fn check_files(disk: &SimDisk, files: &[Vec<u8>], what: &str) {
    for (name, file) in NAMES.iter().zip(files) {
        let parcel = find(&place(disk, Some(&format!("{name}.clay")))).expect("found");
        assert!(decode(&parcel).expect("decoded") == *file, "{what}: {name}");
    }
}

fn snapshot(disk: &SimDisk) -> Vec<(String, Vec<u8>)> {
    disk.files().into_iter().map(|name| (name.clone(), disk.content(&name))).collect()
}

/// Old code, new code, parcels that make one of the new.
const CONVERSIONS: [(&str, &str, usize); 9] = [
    ("rsm:6+3", "rsm:12+3", 2),
    ("rsm:2+2", "rsm:6+2", 3),
    ("pc:2x5", "pc:6x5", 3),
    ("lrc:12+6+2", "lrc:12+2+2", 1),
    ("lrc:12+2+2", "lrc:12+6+2", 1),
    ("rs:4+2", "rs:4+3", 1),
    ("rs:4+3", "rs:4+2", 1),
    ("replica:3", "replica:2", 1),
    ("rs:4+2", "lrc:4+2+1", 1),
];

/// Lengths of the files: equal ones, ones with rows more than others, an empty one.
const LENGTHS: [[usize; 3]; 3] = [[100_000; 3], [900_001, 5000, 300_003], [0, 200_000, 1]];

#[test]
fn data_stays_parity_is_the_new_codes_and_the_way_back_gives_the_same_files() {
    for (from, to, count) in CONVERSIONS {
        for lengths in LENGTHS {
            with_disk(|disk| {
                let files = encode(&disk, from, &lengths[..count]);
                let before = snapshot(&disk);
                let converted = convert(&disk, to).expect("converted").expect("a conversion");
                let after = snapshot(&disk);
                let removed: Vec<&str> = converted.removed.iter().filter_map(|path| path.rsplit('/').next()).collect();
                for (name, bytes) in before.iter().filter(|(name, _)| !removed.contains(&name.as_str())) {
                    assert!(after.contains(&(name.clone(), bytes.clone())), "{from} -> {to}: {name} was changed");
                }
                check_files(&disk, &files, to);
                let parcels = parcels(&disk);
                let [joint] = &parcels[..] else { panic!("one joint") };
                assert_eq!((joint.spec(), joint.members().len()), (spec(to), count));
                let report = joint.verify(&mut |_| ());
                assert_eq!((report.verdict(), report.is_hash_right), (Verdict::Whole, Some(true)), "{from} -> {to}");
                assert_eq!(report.oddities, []);
                check_losses(&disk, &files, to);

                let back = convert(&disk, from).expect("converted").expect("a way back");
                assert!(snapshot(&disk) == before, "{to} -> {from}: {back:?}");
            });
        }
    }
}

/// Loses chunks, as many as the code surely survives, and rebuilds them to the same bytes.
fn check_losses(disk: &SimDisk, files: &[Vec<u8>], code: &str) {
    let paths: Vec<String> = parcels(disk)[0].files().map(|file| file.name.clone()).collect();
    let tolerance = usize::from(spec(code).tolerance());
    for first in 0..paths.len() {
        let lost: Vec<&String> = (0..tolerance).map(|at| &paths[(first + at * at * 2 + at) % paths.len()]).collect();
        let lost: std::collections::BTreeSet<&String> = lost.into_iter().collect();
        let kept: Vec<Vec<u8>> = lost.iter().map(|name| disk.content(name)).collect();
        lost.iter().for_each(|name| disk.lose_file(name));
        check_files(disk, files, code);
        let extent = if first % 2 == 0 { Extent::All } else { Extent::Missing };
        let repaired = parcels(disk)[0].repair(&disk.attach(), extent, &mut |_| ()).expect("repaired");
        assert_eq!(repaired.rebuilt.len(), lost.len());
        for (name, kept) in lost.iter().zip(&kept) {
            assert!(disk.content(name) == *kept, "{code}: {name}");
        }
    }
}

#[test]
fn a_conversion_looks_again_once_nobody_else_can_write() {
    with_disk(|disk| {
        let files = encode(&disk, "rsm:2+2", &[70_000, 30_000]);
        let (one, other) = (parcels(&disk), parcels(&disk));
        let plan = |parcels| {
            let plan = Conversion::plan(parcels, spec("rsm:4+2"), ParcelId([9; 16]));
            plan.expect("planned").expect("a conversion")
        };
        // A chunk that is lost after the plan was made stops it, and the file can still be mended by the old parity.
        let late = plan(&one);
        let (name, lost) = ("a.tar.01.clay", disk.content("a.tar.01.clay"));
        disk.lose_file(name);
        let stopped = late.run(&disk.attach(), &mut |_| ());
        assert!(matches!(stopped, Err(Error::NotWhole { absent: 1, .. })), "{stopped:?}");
        disk.attach().create(name).expect("made");
        disk.set_content(name, lost);

        // Two plan the same; who is late is refused, and what the first one made stays whole.
        let first = plan(&other);
        first.run(&disk.attach(), &mut |_| ()).expect("converted");
        let before = snapshot(&disk);
        let refused = late.run(&disk.attach(), &mut |_| ());
        assert!(matches!(refused, Err(Error::Converted { .. })), "{refused:?}");
        assert!(snapshot(&disk) == before);
        check_files(&disk, &files, "converted once");
    });
}

#[test]
fn what_is_read_and_written_is_what_the_plan_says() {
    // Chunks read, written, and terms of sums: merging reads no data, collapsing groups reads the old local parities. And
    // chunks that stay, which are checked.
    for (from, to, count, reads, writes, terms, stay) in [
        ("rsm:6+3", "rsm:12+3", 2, 6, 3, 6, 12),
        ("pc:2x5", "pc:6x5", 3, 15, 6, 30, 36),
        ("lrc:12+6+2", "lrc:12+2+2", 1, 6, 2, 6, 14),
        ("rs:4+3", "rs:4+2", 1, 0, 0, 0, 6),
    ] {
        with_disk(|disk| {
            let bytes = usize::from(spec(from).shape().data) * 3 * 65_536;
            encode(&disk, from, &[bytes; 3][..count]);
            let before = disk.stats();
            let converted = convert(&disk, to).expect("converted").expect("a conversion");
            let chunk = 3 * 65_536;
            let counted = (converted.read_bytes, converted.written_bytes, converted.combined_bytes);
            assert_eq!(counted, (reads * chunk, writes * chunk, terms * chunk), "{from} -> {to}");
            // What the disk saw beside it: heads, tables, what stays, and the new files read back.
            let after = disk.stats();
            let beside = after.bytes_read - before.bytes_read - (reads + writes + stay) * chunk;
            assert!(beside < 200_000, "{from} -> {to}: {beside} bytes more were read");
            let beside = after.bytes_written - before.bytes_written - writes * chunk;
            assert!(beside < 100_000, "{from} -> {to}: {beside} bytes more were written");
        });
    }
}

#[test]
fn a_power_cut_at_any_operation_loses_nothing_and_converting_again_finishes() {
    for (from, to, count) in [("rsm:2+2", "rsm:4+2", 2), ("pc:2x2", "pc:4x2", 2), ("lrc:4+2+1", "lrc:4+1+1", 1)] {
        for is_back in [false, true] {
            let (mut cut, mut operations) = (true, 0);
            while cut {
                with_disk(|disk| {
                    let files = encode(&disk, from, &[70_000, 30_000][..count]);
                    if is_back {
                        convert(&disk, to).expect("converted");
                    }
                    let goal = if is_back { from } else { to };
                    let what = format!("to {goal}, cut after {operations} operations");
                    disk.cut_power_after(operations);
                    let converted = convert(&disk, goal);
                    cut = !disk.is_powered();
                    disk.crash();
                    assert_eq!(converted.is_err(), cut, "{what}");
                    check_files(&disk, &files, &what);
                    // Whichever of both it is, it is whole: any losses that its code survives may come now.
                    let before = snapshot(&disk);
                    for parcel in parcels(&disk) {
                        assert_eq!(parcel.verify(&mut |_| ()).damage, [], "{what}");
                        let lost: Vec<String> = parcel.files().map(|file| file.name.clone()).collect();
                        lost.iter().take(usize::from(parcel.spec().tolerance())).for_each(|name| disk.lose_file(name));
                        check_files(&disk, &files, &what);
                    }
                    for (name, bytes) in before {
                        if !disk.files().contains(&name) {
                            disk.attach().create(&name).expect("made");
                            disk.set_content(&name, bytes);
                        }
                    }
                    if parcels(&disk)[0].spec() != spec(goal) {
                        convert(&disk, goal).expect("converted").expect("a conversion");
                    }
                    for parcel in parcels(&disk) {
                        parcel.remove_superfluous().expect("removed");
                        // The manifest's own file may be what the cut took.
                        parcel.repair(&disk.attach(), Extent::Missing, &mut |_| ()).expect("repaired");
                    }
                    for parcel in parcels(&disk) {
                        assert_eq!((parcel.spec(), parcel.oddities()), (spec(goal), &[][..]), "{what}");
                        assert_eq!(parcel.verify(&mut |_| ()).verdict(), Verdict::Whole, "{what}");
                    }
                    check_files(&disk, &files, &what);
                });
                operations += 1;
            }
            assert!(operations > 20, "{operations}");
        }
    }
}

#[test]
fn what_is_not_whole_is_not_converted() {
    with_disk(|disk| {
        encode(&disk, "rsm:2+2", &[300_000; 2]);
        let content_at = parcels(&disk)[0].layout().content_at();
        disk.flip_bit("b.tar.03.clay", (content_at + 5000) * 8);
        let before = snapshot(&disk);
        let refused = convert(&disk, "rsm:4+2");
        assert!(matches!(refused, Err(Error::DamagedSource { sector: 1, .. })), "{refused:?}");
        assert!(snapshot(&disk) == before, "nothing was touched");
        disk.lose_file("a.tar.00.clay");
        let refused = convert(&disk, "rsm:4+2");
        assert!(matches!(refused, Err(Error::NotWhole { absent: 1, damaged: 0, .. })), "{refused:?}");
        for parcel in parcels(&disk) {
            parcel.repair(&disk.attach(), Extent::All, &mut |_| ()).expect("repaired");
        }
        convert(&disk, "rsm:4+2").expect("converted").expect("a conversion");
    });
}

#[test]
fn files_that_would_have_one_name_are_not_put_under_one_code() {
    // Two of one name, one with the name of a chunk of the other, and one with that of the joint: each is of a disk of its own.
    for (other, twin) in
        [("a.tar", "a.tar.00.clay"), ("a.tar.03", "a.tar.03.clay"), ("a.tar.rsm-4+2", "a.tar.rsm-4+2.00.clay")]
    {
        run(7, |world| async move {
            let disks = ["one", "two"].map(|name| world.disk(name, DiskModel::ssd(1 << 32)));
            for (id, (disk, name)) in (1..).zip(disks.iter().zip(["a.tar", other])) {
                let encoder = Encoder::begin(disk.attach(), ParcelId([id; 16]), spec("rsm:2+2"), name, 9);
                let mut encoder = encoder.expect("begun");
                encoder.write(&content(id, 9)).expect("taken");
                encoder.finish().expect("written");
            }
            let before = disks.each_ref().map(snapshot);
            let places = disks.each_ref().map(|disk| Place { directory: disk.attach(), file: None });
            let parcels = find_all(&places).expect("found");
            let refused = Conversion::plan(&parcels, spec("rsm:4+2"), ParcelId([9; 16])).map(|_| ());
            assert!(matches!(&refused, Err(Error::NameTwice { name }) if name == twin), "{other}: {refused:?}");
            assert!(disks.each_ref().map(snapshot) == before);
        });
    }
}

#[test]
fn a_file_of_somebody_else_under_a_manifests_name_is_not_written_over_by_a_conversion() {
    with_disk(|disk| {
        let files = encode(&disk, "rsm:2+2", &[70_000, 30_000]);
        let put = |name: &str, bytes: &[u8]| {
            disk.attach().create(name).expect("made");
            disk.set_content(name, bytes.to_vec());
        };
        let refused = |to: &str, twin: &str| {
            let before = snapshot(&disk);
            let refused = convert(&disk, to);
            assert!(matches!(&refused, Err(Error::Exists { path }) if path.ends_with(twin)), "{refused:?}");
            assert!(snapshot(&disk) == before);
        };
        let (of_joint, of_other) = ("a.tar.rsm-4+2.clay", disk.content("b.tar.clay"));
        for foreign in [b"notes", &of_other[..]] {
            put(of_joint, foreign);
            refused("rsm:4+2", of_joint);
            disk.lose_file(of_joint);
        }
        convert(&disk, "rsm:4+2").expect("converted").expect("a conversion");
        disk.lose_file("b.tar.clay");
        put("b.tar.clay", b"notes");
        refused("rsm:2+2", "b.tar.clay");
        disk.lose_file("b.tar.clay");
        // What is left of it is written over.
        put("b.tar.clay", &of_other[..100]);
        convert(&disk, "rsm:2+2").expect("converted").expect("a way back");
        check_files(&disk, &files, "back");
    });
}

#[test]
fn old_parity_that_damage_needs_is_not_removed() {
    // One sector of each of two data chunks of each file: together more than the one parity set of both can mend.
    for (code, to, count) in [("rsm:6+3", "rsm:12+3", 2), ("rs:6+4", "rs:6+3", 1)] {
        with_disk(|disk| {
            let files = encode(&disk, code, &[500_000, 400_000][..count]);
            for (at, name) in NAMES[..count].iter().enumerate() {
                for chunk in at..at + 2 {
                    disk.flip_bit(&format!("{name}.{chunk:02}.clay"), 5000 * 8);
                }
            }
            let before = snapshot(&disk);
            let error = convert(&disk, to).expect_err("damaged");
            assert!(matches!(error, Error::DamagedSource { sector: 0, .. }), "{code}: {error}");
            assert!(snapshot(&disk) == before, "{code}: nothing was changed");
            check_files(&disk, &files, code);
        });
    }
}

#[test]
fn where_nothing_is_better_than_encoding_anew_there_is_no_conversion() {
    for (from, to, count, obstacle) in [
        ("rs:4+2", "rs:6+3", 1, Obstacle::Split { from: 3, into: 2 }),
        ("rs:4+2", "clay:4+2:5", 1, Obstacle::NoGain),
        ("clay:4+2:5", "rs:4+2", 1, Obstacle::NoGain),
        ("rsm:6+3", "rsm:12+3", 1, Obstacle::Count { parcels: 2 }),
        ("rsm:6+3", "rsm:12+3", 3, Obstacle::Count { parcels: 2 }),
        ("rsm:6+3", "rsm:3+3", 1, Obstacle::Split { from: 1, into: 2 }),
        ("pc:2x5", "pc:6x5", 1, Obstacle::Count { parcels: 3 }),
        ("pc:6x5", "pc:2x5", 1, Obstacle::Split { from: 1, into: 3 }),
    ] {
        with_disk(|disk| {
            encode(&disk, from, &[1000; 3][..count]);
            let before = snapshot(&disk);
            assert_eq!(convert(&disk, to).expect("planned"), None, "{from} -> {to}");
            let told = Conversion::obstacle(&parcels(&disk), spec(to)).expect("planned");
            assert_eq!(told, obstacle, "{from} -> {to}");
            assert!(snapshot(&disk) == before);
        });
    }
    with_disk(|disk| {
        encode(&disk, "rs:4+2", &[1000]);
        assert!(matches!(convert(&disk, "rs:4+2"), Err(Error::NoConversion(_))));
    });
}

#[test]
fn a_joint_of_several_files_asks_which_one_is_meant() {
    with_disk(|disk| {
        encode(&disk, "rsm:2+1", &[1000, 2000]);
        convert(&disk, "rsm:4+1").expect("converted").expect("a conversion");
        let joint = find(&place(&disk, None)).expect("found");
        assert!(joint.manifest().is_none());
        assert!(matches!(decode(&joint), Err(Error::Several { found }) if found == ["a.tar", "b.tar"]));
        for file in ["b.tar.00.clay", "b.tar.clay"] {
            let parcel = find(&place(&disk, Some(file))).expect("found");
            assert_eq!(parcel.manifest().expect("the one that was named").name, "b.tar");
        }
        // Without any head of its own the joint's file is known by its name.
        disk.flip_bit("a.tar.rsm-4+1.04.clay", 100);
        assert_eq!(parcels(&disk)[0].verify(&mut |_| ()).verdict(), Verdict::Repairable);
        parcels(&disk)[0].repair(&disk.attach(), Extent::All, &mut |_| ()).expect("repaired");
        assert_eq!(parcels(&disk)[0].verify(&mut |_| ()).verdict(), Verdict::Whole);
    });
}

fn joint() -> Joint {
    let member = |id| Manifest {
        id: ParcelId([id; 16]),
        spec: spec("pc:2x2"),
        name: format!("file {id}"),
        file_bytes: 9000 * u64::from(id),
        sub_bytes: 65_536,
        hash: [id; 32],
    };
    let row = |member, chunk| Some(MemberChunk { member, chunk });
    let kept = vec![row(0, 4), row(0, 5), row(1, 4), row(1, 5), None, None, None];
    Joint { id: ParcelId([9; 16]), spec: spec("pc:4x2"), members: vec![member(1), member(2)], kept }
}

#[test]
fn every_byte_of_a_joints_head_counts() {
    for chunk in [None, Some(12), Some(14)] {
        let head = JointHead { joint: joint(), chunk };
        let bytes = head.encode();
        assert_eq!(bytes.len(), 512 * 4);
        assert_eq!(JointHead::decode(&bytes), Ok(head));
        for at in 0..bytes.len() {
            assert!(matches!(JointHead::decode(&bytes[..at]), Err(NoHead::Damaged(_))), "cut at {at}");
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            assert!(JointHead::decode(&flipped).is_err(), "flip at {at}");
        }
    }
}

#[test]
fn a_joints_head_whose_checksum_holds_is_still_judged() {
    let good = JointHead { joint: joint(), chunk: Some(14) }.encode();
    let cases: [(usize, &[u8]); 14] = [
        (10, &11u16.to_le_bytes()),
        (10, &0u16.to_le_bytes()),
        (10, &15u16.to_le_bytes()),
        (32, &1536u32.to_le_bytes()),
        (36, &1u16.to_le_bytes()),
        (36, &u16::MAX.to_le_bytes()),
        (38, &6u16.to_le_bytes()),
        (40, &65u16.to_le_bytes()),
        (42, &[1]),
        (48, b"xx"),
        (48, b"pc:2x3"),
        (1536, &7u16.to_le_bytes()),
        (1538, &5u16.to_le_bytes()),
        (1538, &3u16.to_le_bytes()),
    ];
    for (at, field) in cases {
        let mut bytes = good.clone();
        bytes[at..at + field.len()].copy_from_slice(field);
        bytes[12..16].fill(0);
        let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes) as u32;
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        assert!(matches!(JointHead::decode(&bytes), Err(NoHead::Damaged(_))), "{field:?} at {at}");
    }
    let mut newer = good;
    newer[8] = 2;
    newer[12..16].fill(0);
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &newer) as u32;
    newer[12..16].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(JointHead::decode(&newer), Err(NoHead::Newer(2)));
}

#[test]
fn golden_hashes_of_joints() {
    for (from, to, count, expected) in GOLDEN {
        with_disk(|disk| {
            encode(&disk, from, &[300_000, 5000, 0][..count]);
            convert(&disk, to).expect("converted").expect("a conversion");
            let mut hasher = blake3::Hasher::new();
            for (name, bytes) in snapshot(&disk) {
                hasher.update(name.as_bytes());
                hasher.update(&bytes);
            }
            assert_eq!(&hasher.finalize().to_hex()[..32], expected, "{from} -> {to}");
        });
    }
}

const GOLDEN: [(&str, &str, usize, &str); 3] = [
    ("rsm:6+3", "rsm:12+3", 2, "b1fc0282d20f55e1a54b92dae6f40b11"),
    ("pc:2x5", "pc:6x5", 3, "6d7b41efe769702958da3b27801ea8dc"),
    ("lrc:12+6+2", "lrc:12+2+2", 1, "dc5430fce3bd5f29d7c4a12296d4fa98"),
];
