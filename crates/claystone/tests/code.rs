//! `claystone code` as a user runs it: files, exit codes, and what it says.

mod running;

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use running::{Run, Scratch};

fn file(scratch: &Scratch, bytes: usize) -> Vec<u8> {
    let bytes: Vec<u8> =
        (0..bytes).map(|at| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]).collect();
    fs::write(scratch.path("photo.raw"), &bytes).expect("written");
    bytes
}

fn flip(path: &Path, at: u64) {
    let mut file = fs::File::options().read(true).write(true).open(path).expect("there");
    let mut byte = [0];
    file.seek(SeekFrom::Start(at)).expect("sought");
    file.read_exact(&mut byte).expect("read");
    file.seek(SeekFrom::Start(at)).expect("sought");
    file.write_all(&[byte[0] ^ 0x10]).expect("written");
}

fn json(run: &Run) -> serde_json::Value {
    serde_json::from_str(&run.out).unwrap_or_else(|_| panic!("no json: {}{}", run.out, run.err))
}

#[test]
fn a_file_goes_out_is_damaged_is_repaired_and_comes_back() {
    let scratch = Scratch::new();
    let bytes = file(&scratch, 3_000_000);
    let encoded = scratch.run(&["code", "encode", "photo.raw", "--code", "clay:4+2:5", "--out", "parts"]);
    assert!(encoded.ok(), "{}", encoded.err);
    assert!(encoded.out.contains("6 chunk files of clay:4+2:5") && encoded.out.contains("any 2"), "{}", encoded.out);
    let whole = scratch.run(&["code", "verify", "parts"]);
    assert!(whole.ok() && whole.out.contains("6 of 6 chunk files are whole"), "{}", whole.out);

    let lost = fs::read(scratch.path("parts/photo.raw.03.clay")).expect("there");
    fs::remove_file(scratch.path("parts/photo.raw.03.clay")).expect("removed");
    flip(&scratch.path("parts/photo.raw.00.clay"), 300_000);
    let verified = scratch.run(&["code", "verify", "parts/photo.raw.clay"]);
    assert_eq!(verified.code(), Some(3));
    assert!(verified.out.contains("chunk 3: missing"), "{}", verified.out);
    assert!(
        verified.out.contains("chunk 0: parts/photo.raw.00.clay: 1 damaged sector of 4 KiB: 72"),
        "{}",
        verified.out
    );
    assert!(verified.err.contains("claystone code repair parts/photo.raw.clay"), "{}", verified.err);
    let machine = json(&scratch.run(&["code", "verify", "--json", "parts"]));
    assert_eq!((&machine["verdict"], &machine["damage"][0]["first_sectors"][0][0]), (&"repairable".into(), &72.into()));

    let decoded = scratch.run(&["code", "decode", "parts"]);
    assert!(!decoded.ok() && decoded.err.contains("photo.raw is already there"), "{}", decoded.err);
    let decoded = scratch.run(&["code", "decode", "parts", "--out", "back.raw"]);
    assert!(decoded.ok(), "{}", decoded.err);
    assert_eq!(fs::read(scratch.path("back.raw")).expect("there"), bytes);

    let pipe = fs::File::create(scratch.path("piped.raw")).expect("made");
    let piped = scratch.run_into(pipe, &["code", "decode", "parts", "--out", "-"]);
    assert!(piped.ok() && piped.err.contains("1 chunk file is missing"), "{}", piped.err);
    assert_eq!(fs::read(scratch.path("piped.raw")).expect("there"), bytes);
    let both = scratch.run(&["code", "decode", "parts", "--out", "-", "--json"]);
    assert!(!both.ok() && both.out.is_empty() && both.err.contains("leave one out"), "{}", both.err);

    let repaired = scratch.run(&["code", "repair", "parts"]);
    assert!(repaired.ok(), "{}", repaired.err);
    assert!(repaired.out.contains("rebuilt 1 chunk file, mended 1 sector"), "{}", repaired.out);
    assert_eq!(fs::read(scratch.path("parts/photo.raw.03.clay")).expect("there"), lost);
    assert!(scratch.run(&["code", "verify", "parts"]).ok());
    assert!(scratch.run(&["code", "repair", "parts"]).out.contains("nothing to repair"));
    assert!(!scratch.path(".back.raw.claystone-part").exists());
}

#[test]
fn a_missing_chunk_is_rebuilt_from_less_than_k_chunks_under_clay() {
    let scratch = Scratch::new();
    file(&scratch, 4 * 65_536 * 8);
    for (code, read) in [("clay:4+2:5", "2.50"), ("rs:4+2", "4.00")] {
        assert!(scratch.run(&["code", "encode", "photo.raw", "--code", code, "--out", code]).ok());
        fs::remove_file(scratch.path(code).join("photo.raw.01.clay")).expect("removed");
        let repaired = scratch.run(&["code", "repair", "--missing", code]);
        assert!(repaired.out.contains(&format!("{read} bytes for each")), "{code}: {}{}", repaired.out, repaired.err);
    }
}

#[test]
fn too_much_lost_is_told_with_the_numbers() {
    let scratch = Scratch::new();
    file(&scratch, 500_000);
    assert!(scratch.run(&["code", "encode", "photo.raw", "--code", "rs:4+2", "--out", "parts"]).ok());
    for chunk in [0, 2, 5] {
        fs::remove_file(scratch.path(&format!("parts/photo.raw.0{chunk}.clay"))).expect("removed");
    }
    for command in ["decode", "repair", "verify"] {
        let run = match command {
            "decode" => scratch.run(&["code", command, "parts", "--out", "back"]),
            _ => scratch.run(&["code", command, "parts"]),
        };
        assert_eq!(run.code(), Some(4), "{command}: {}", run.err);
        assert!(run.err.contains("too much is lost"), "{command}: {}", run.err);
        assert!(command == "verify" || run.err.contains("needs 4 of 6 chunks, 3 are good"), "{command}: {}", run.err);
    }
    assert!(!scratch.path("back").exists());
    assert_eq!(fs::read_dir(scratch.path("parts")).expect("listed").count(), 4, "nothing was left behind");
    let told = scratch.run(&["code", "verify", "parts"]).out;
    assert!(told.contains("\n3 chunks are missing: 0, 2, 5\n") && !told.contains("missing\n"), "{told}");
    fs::remove_file(scratch.path("parts/photo.raw.03.clay")).expect("removed");
    let told = scratch.run(&["code", "verify", "parts"]).out;
    assert!(told.contains("\n4 chunks are missing: 0, 2-3, 5\n"), "{told}");
}

#[test]
fn the_manifests_own_file_is_told_when_it_is_damaged_or_missing_and_when_it_is_written() {
    let scratch = Scratch::new();
    file(&scratch, 100_000);
    assert!(scratch.run(&["code", "encode", "photo.raw", "--code", "rs:2+2", "--out", "parts"]).ok());
    let own = scratch.path("parts/photo.raw.clay");
    let whole = fs::read(&own).expect("there");
    for (word, extent) in
        [("damaged", "parts"), ("missing", "parts"), ("damaged", "--missing"), ("missing", "--missing")]
    {
        let spoil = || match word {
            "damaged" => fs::write(&own, &whole[..100]).expect("written"),
            _ => fs::remove_file(&own).expect("removed"),
        };
        spoil();
        let verified = scratch.run(&["code", "verify", "parts"]);
        assert_eq!(verified.code(), Some(3));
        assert!(verified.out.contains(&format!("the manifest's own file is {word} (")), "{}", verified.out);
        assert_eq!(json(&scratch.run(&["code", "verify", "parts", "--json"]))["manifest_file"], word);
        let repaired = scratch.run(&["code", "repair", "parts", extent]);
        assert!(repaired.ok(), "{}", repaired.err);
        assert!(repaired.out.ends_with("wrote the manifest's own file\n"), "{word}: {}", repaired.out);
        assert!(!repaired.out.contains("rebuilt"), "{word}: {}", repaired.out);
        assert!(fs::read(&own).expect("there") == whole);

        spoil();
        fs::remove_file(scratch.path("parts/photo.raw.01.clay")).expect("removed");
        let repaired = scratch.run(&["code", "repair", "parts", extent]);
        assert!(repaired.out.contains("rebuilt 1 chunk file"), "{word}: {}", repaired.out);
        assert!(repaired.out.ends_with("wrote the manifest's own file\n"), "{word}: {}", repaired.out);
        spoil();
        assert_eq!(json(&scratch.run(&["code", "repair", "parts", extent, "--json"]))["manifest_written"], true);
        assert_eq!(json(&scratch.run(&["code", "repair", "parts", extent, "--json"]))["manifest_written"], false);
        assert_eq!(json(&scratch.run(&["code", "verify", "parts", "--json"]))["manifest_file"], "whole");
    }
}

#[test]
fn what_is_odd_is_told_to_machines_too() {
    let scratch = Scratch::new();
    file(&scratch, 100_000);
    assert!(scratch.run(&["code", "encode", "photo.raw", "--code", "rs:2+2", "--out", "parts"]).ok());
    fs::write(scratch.path("parts/photo.raw.00.clay"), b"notes").expect("written");
    let mut longer = fs::File::options().append(true).open(scratch.path("parts/photo.raw.01.clay")).expect("there");
    longer.write_all(b"more").expect("written");
    let told = json(&scratch.run(&["code", "verify", "--json", "parts"]));
    let oddities = serde_json::json!([
        {"file": "parts/photo.raw.00.clay", "what": "holds neither the head nor a sector of chunk 0: move it away"},
        {"file": "parts/photo.raw.01.clay", "what": "has 4 bytes behind its end, which mean nothing"},
    ]);
    assert_eq!((&told["oddities"], &told["verdict"]), (&oddities, &"repairable".into()));
    let refused = scratch.run(&["code", "repair", "parts"]);
    assert!(!refused.ok() && refused.err.contains("move it away"), "{}", refused.err);
    assert_eq!(fs::read(scratch.path("parts/photo.raw.00.clay")).expect("there"), b"notes");
}

#[test]
fn what_is_in_the_way_of_a_repair_is_to_be_moved_away_first() {
    let scratch = Scratch::new();
    file(&scratch, 100_000);
    for out in ["parts", "other"] {
        assert!(scratch.run(&["code", "encode", "photo.raw", "--code", "rs:2+2", "--out", out]).ok());
    }
    // Chunks of another parcel under the names of chunks and of the manifest.
    for name in ["photo.raw.01.clay", "photo.raw.02.clay", "photo.raw.clay"] {
        fs::rename(scratch.path("other").join(name), scratch.path("parts").join(name)).expect("moved");
    }
    let first = "move parts/photo.raw.01.clay and parts/photo.raw.02.clay and parts/photo.raw.clay away first, then \
                 `claystone code repair parts/photo.raw.00.clay` mends all of it";
    let verified = scratch.run(&["code", "verify", "parts/photo.raw.00.clay"]);
    assert_eq!(verified.code(), Some(3));
    assert!(verified.err.contains(first), "{}", verified.err);
    let refused = scratch.run(&["code", "repair", "parts/photo.raw.00.clay"]);
    assert!(!refused.ok() && refused.err.contains("move it away"), "{}", refused.err);
    for name in ["photo.raw.01.clay", "photo.raw.02.clay", "photo.raw.clay"] {
        fs::rename(scratch.path("parts").join(name), scratch.path("other").join(name)).expect("moved");
    }
    let verified = scratch.run(&["code", "verify", "parts"]);
    assert!(verified.err.contains("damaged; `claystone code repair parts` mends all of it"), "{}", verified.err);
    assert!(scratch.run(&["code", "repair", "parts"]).ok());
    assert!(scratch.run(&["code", "verify", "parts"]).ok() && scratch.run(&["code", "verify", "other"]).ok());
}

#[test]
fn another_code_holds_the_same_file() {
    let scratch = Scratch::new();
    let bytes = file(&scratch, 1_000_000);
    assert!(scratch.run(&["code", "encode", "photo.raw", "--code", "rs:4+2", "--out", "old"]).ok());
    fs::remove_file(scratch.path("old/photo.raw.01.clay")).expect("removed");
    let here = scratch.run(&["code", "convert", "old", "--code", "clay:6+3:8", "--out", "old"]);
    assert!(!here.ok() && here.err.contains("already there"), "{}", here.err);
    let nowhere = scratch.run(&["code", "convert", "old", "--code", "clay:6+3:8"]);
    assert!(!nowhere.ok() && nowhere.err.contains("--out"), "{}", nowhere.err);
    let converted = scratch.run(&["code", "convert", "old", "--code", "clay:6+3:8", "--out", "new"]);
    assert!(converted.ok(), "{}", converted.err);
    let decoded = scratch.run(&["code", "decode", "new", "--out", "back"]);
    assert!(decoded.ok(), "{}", decoded.err);
    assert_eq!(fs::read(scratch.path("back")).expect("there"), bytes);
}

#[test]
fn parcels_merge_by_their_parities_and_come_apart_again() {
    let scratch = Scratch::new();
    let first = file(&scratch, 3 * 6 * 65_536);
    let second: Vec<u8> = first.iter().rev().copied().take(500_000).collect();
    fs::write(scratch.path("second.raw"), &second).expect("written");
    for name in ["photo.raw", "second.raw"] {
        assert!(scratch.run(&["code", "encode", name, "--code", "rsm:6+3", "--out", "parts"]).ok());
    }
    let list = || {
        let files = fs::read_dir(scratch.path("parts")).expect("listed").map(|entry| entry.expect("read").path());
        let mut files: Vec<_> = files.map(|path| (path.clone(), fs::read(path).expect("read"))).collect();
        files.sort();
        files
    };
    let before = list();
    let converted = scratch.run(&["code", "convert", "parts", "--code", "rsm:12+3", "--json"]);
    let told = json(&converted);
    // Three parities of each are read: of photo.raw 3 x 64 KiB long, of second.raw 500,000 / 6.
    assert_eq!(told["way"], "in place");
    assert_eq!(told["read_bytes"], 3 * (3 * 65_536 + 500_000_u64.div_ceil(6)));
    assert_eq!((&told["written_bytes"], &told["combined_bytes"]), (&(9 * 65_536).into(), &(18 * 65_536).into()));
    assert_eq!(told["removed"].as_array().map(Vec::len), Some(6));
    let data = |(path, _): &&(std::path::PathBuf, Vec<u8>)| {
        (0..6).any(|at| path.to_string_lossy().ends_with(&format!("0{at}.clay")))
    };
    let after = list();
    assert!(before.iter().filter(data).all(|file| after.contains(file)), "data stays");

    for lost in ["photo.raw.00.clay", "photo.raw.05.clay", "second.raw.03.clay"] {
        fs::remove_file(scratch.path("parts").join(lost)).expect("removed");
    }
    let which = scratch.run(&["code", "decode", "parts", "--out", "back"]);
    assert!(!which.ok() && which.err.contains("second.raw.clay"), "{}", which.err);
    for (name, bytes) in [("photo.raw", &first), ("second.raw", &second)] {
        let run = scratch.run(&["code", "decode", &format!("parts/{name}.clay"), "--out", &format!("{name}.back")]);
        assert!(run.ok(), "{}", run.err);
        assert_eq!(fs::read(scratch.path(&format!("{name}.back"))).expect("there"), *bytes);
    }
    let early = scratch.run(&["code", "convert", "parts", "--code", "rsm:6+3"]);
    assert!(!early.ok() && early.err.contains("repair"), "{}", early.err);
    assert!(scratch.run(&["code", "repair", "parts"]).ok());
    assert!(scratch.run(&["code", "verify", "parts"]).ok());
    let back = scratch.run(&["code", "convert", "parts", "--code", "rsm:6+3"]);
    assert!(back.ok() && back.out.contains("data stays where it is"), "{}{}", back.out, back.err);
    assert!(list() == before, "the same files as before");
}

#[test]
fn a_conversion_that_is_not_done_says_why_and_what_to_do() {
    let scratch = Scratch::new();
    for (name, code, out) in [
        ("a", "pc:2x5", "one"),
        ("a", "pc:6x5", "wide"),
        ("a", "rsm:6+3", "pair"),
        ("b", "rsm:6+3", "pair"),
        ("a", "rsm:6+3", "mixed"),
        ("b", "rsm:5+3", "mixed"),
    ] {
        fs::write(scratch.path(name), name).expect("written");
        assert!(scratch.run(&["code", "encode", name, "--code", code, "--out", out]).ok(), "{name} {code}");
    }
    let refused = |arguments: &[&str], says: &str| {
        let run = scratch.run(&[&["code", "convert"], arguments].concat());
        assert_eq!(run.code(), Some(1), "{arguments:?}: {}", run.out);
        assert!(run.err.contains(says), "{arguments:?}: {}", run.err);
    };
    refused(
        &["one", "--code", "pc:6x5"],
        "a conversion of pc:2x5 to pc:6x5 takes 3 parcels and keeps the data, with 1 parcel there is none: name as many, \
         or encode it anew, with --out DIR",
    );
    refused(
        &["wide", "--code", "pc:2x5"],
        "1 parcel of pc:6x5 would become 3 of pc:2x5, and no file is cut into several parcels: encode it anew, with --out \
         DIR",
    );
    refused(&["pair/a.clay", "--code", "rsm:3+3"], "1 parcel of rsm:6+3 would become 2 of rsm:3+3");
    refused(&["one", "--code", "clay:4+2:5"], "no conversion of pc:2x5 to clay:4+2:5 keeps the data: encode it anew");
    let each = ": pair/a.00.clay, pair/b.00.clay";
    refused(
        &["pair", "--code", "rsm:12+3", "--copy", "--out", "new"],
        &format!(
            "--copy encodes one parcel, and 2 parcels are there: encode one at a time anew, by naming a file of it{each}"
        ),
    );
    refused(
        &["pair", "--code", "rsm:18+3", "--out", "new"],
        &format!(
            "takes 3 parcels and keeps the data, with 2 parcels there is none: name as many, or encode one at a time \
             anew, by naming a file of it{each}"
        ),
    );
    refused(&["pair", "--code", "clay:4+2:5"], &format!("with --out DIR and a file of it{each}"));
    assert!(!scratch.path("new").exists());
    refused(&["mixed", "--code", "clay:4+2:5"], "the 2 parcels are of several codes: name those of one, or encode one");
    assert!(scratch.run(&["code", "convert", "pair", "--code", "rsm:12+3"]).ok());
    let back = "the parcels were merged: convert them back first, with --code rsm:6+3";
    refused(&["pair", "--code", "clay:4+2:5"], back);
    refused(&["pair", "--code", "clay:4+2:5", "--out", "new"], back);
    refused(&["pair", "one", "--code", "clay:4+2:5"], "was converted before: convert it back first, by itself, with");
}

#[test]
fn chunk_files_may_lie_on_several_disks() {
    let scratch = Scratch::new();
    let bytes = file(&scratch, 100_000);
    assert!(scratch.run(&["code", "encode", "photo.raw", "--code", "rs:2+2", "--out", "a"]).ok());
    fs::create_dir(scratch.path("b")).expect("made");
    for chunk in [1, 2] {
        let name = format!("photo.raw.0{chunk}.clay");
        fs::rename(scratch.path("a").join(&name), scratch.path("b").join(&name)).expect("moved");
    }
    fs::remove_file(scratch.path("b/photo.raw.01.clay")).expect("removed");
    fs::remove_file(scratch.path("a/photo.raw.00.clay")).expect("removed");
    let decoded = scratch.run(&["code", "decode", "a", "b", "--out", "back"]);
    assert!(decoded.ok(), "{}", decoded.err);
    assert_eq!(fs::read(scratch.path("back")).expect("there"), bytes);
    assert!(scratch.run(&["code", "repair", "b", "a"]).ok());
    assert!(scratch.path("b/photo.raw.00.clay").exists() && scratch.path("b/photo.raw.01.clay").exists());
}

#[test]
fn a_directory_that_is_named_twice_is_one() {
    let scratch = Scratch::new();
    let bytes = file(&scratch, 100_000);
    assert!(scratch.run(&["code", "encode", "photo.raw", "--code", "rs:2+2", "--out", "a"]).ok());
    std::os::unix::fs::symlink("a", scratch.path("link")).expect("linked");
    let whole = scratch.path("a").display().to_string();
    for other in ["a/../a", "link", &whole] {
        let verified = scratch.run(&["code", "verify", "a", other, "a/photo.raw.00.clay", "link/photo.raw.00.clay"]);
        assert!(verified.ok(), "{other}: {}", verified.err);
        fs::remove_file(scratch.path("a/photo.raw.00.clay")).expect("removed");
        let repaired = scratch.run(&["code", "repair", "a", other, "--out", other]);
        assert!(repaired.ok(), "{other}: {}", repaired.err);
        assert!(scratch.run(&["code", "convert", "a", other, "--code", "rs:2+3", "--out", other]).ok(), "{other}");
        assert!(scratch.run(&["code", "convert", other, "--code", "rs:2+2", "--out", "a"]).ok(), "{other}");
    }
    assert!(scratch.run(&["code", "decode", "a", "link", "--out", "back"]).ok());
    assert_eq!(fs::read(scratch.path("back")).expect("there"), bytes);
}

#[test]
fn wrong_input_is_told_apart() {
    let scratch = Scratch::new();
    file(&scratch, 1000);
    let bad: [(&[&str], &str); 10] = [
        (&["encode", "photo.raw", "--code", "rs:4"], "rs:K+M"),
        (&["encode", "photo.raw", "--code", "clay:4+2:9"], "helpers"),
        (&["encode", "nothing", "--code", "rs:4+2"], "nothing"),
        (&["encode", ".", "--code", "rs:4+2"], "path"),
        (&["verify", "photo.raw"], "no chunk file"),
        (&["verify", "."], "no chunk file"),
        (&["info", "rs:0+1"], "at least 1 data chunk"),
        (&["info", "rs:4+0"], "at least 1 parity chunk, got 0"),
        (&["info", "clay:4+1:4"], "at least 2 parity chunks, got 1"),
        (&["info", "lrc:1+2+2"], "1 data chunk does not divide into 2 equal groups"),
    ];
    for (arguments, says) in bad {
        let arguments: Vec<&str> = ["code"].iter().chain(arguments).copied().collect();
        let run = scratch.run(&arguments);
        assert!(!run.ok(), "{arguments:?}");
        assert!(run.err.contains(says), "{arguments:?}: {}", run.err);
    }
}

#[test]
fn one_of_something_is_told_as_one() {
    let scratch = Scratch::new();
    file(&scratch, 1000);
    let encoded = scratch.run(&["code", "encode", "photo.raw", "--code", "replica:1", "--out", "alone"]);
    assert!(encoded.out.contains(" in 1 chunk file of replica:1"), "{}", encoded.out);
    assert!(scratch.run(&["code", "encode", "photo.raw", "--code", "rs:4+2", "--out", "parts"]).ok());
    for (chunk, says) in [(0, "\n1 chunk file is missing; "), (3, "\n2 chunk files are missing; ")] {
        fs::remove_file(scratch.path(&format!("parts/photo.raw.0{chunk}.clay"))).expect("removed");
        let decoded = scratch.run(&["code", "decode", "parts", "--out", "back", "--force"]);
        assert!(decoded.out.contains(says), "{}{}", decoded.out, decoded.err);
    }
    let refused = scratch.run(&["code", "convert", "parts", "--code", "rs:4+3"]);
    let says = "photo.raw is not whole (missing chunk files: 2, damaged heads: 0): repair it";
    assert!(refused.err.contains(says), "{}", refused.err);
}

#[test]
fn codes_run_with_the_tier_that_is_asked_for() {
    let scratch = Scratch::new();
    let names = ["scalar", "neon", "avx2", "avx2-gfni", "avx512-gfni"];
    let mut has = 0;
    for name in names {
        let info = ["code", "info", "--json", "--no-speed", "clay:4+2:5", "--code-tier", name];
        let by_flag = scratch.run(&info);
        let by_variable = scratch.shell(&format!("CLAYSTONE_CODE_TIER={name} claystone {}", info[..5].join(" ")));
        let bench = scratch.run(&["bench", "clay", "--quick", "--case", "nothing has this name", "--code-tier", name]);
        if by_flag.ok() {
            has += 1;
            assert_eq!((&json(&by_flag)["tier"], &json(&by_variable)["tier"]), (&name.into(), &name.into()));
            assert!(bench.err.contains("no name contains"), "{}", bench.err);
        } else {
            let says = format!("this machine has not got {name}, it has scalar");
            assert!([&by_flag, &by_variable, &bench].iter().all(|run| run.err.contains(&says)), "{}", by_flag.err);
            let up = scratch.run(&["up", "store", "--code-tier", name]);
            assert!(!up.ok() && up.err.contains(&says) && up.err.contains("--code-tier"), "{}", up.err);
        }
    }
    assert!((1..names.len()).contains(&has), "scalar is everywhere, and no machine is of two architectures");
    let unknown = scratch.run(&["code", "info", "--code-tier", "sse2"]);
    assert_eq!(unknown.code(), Some(2));
    assert!(unknown.err.contains("expected scalar, neon, avx2, avx2-gfni or avx512-gfni"), "{}", unknown.err);
}

#[test]
fn only_files_are_encoded_and_replaced() {
    use std::os::unix::fs::{FileTypeExt, symlink};
    let scratch = Scratch::new();
    // A device or a pipe says that it has no bytes: as an empty parcel all of it would be lost.
    let device = scratch.run(&["code", "encode", "/dev/zero", "--code", "rs:2+1", "--out", "parts"]);
    assert!(!device.ok() && device.err.contains("does not say how long it is"), "{}{}", device.out, device.err);
    let proc = scratch.run(&["code", "encode", "/proc/cpuinfo", "--code", "rs:2+1", "--out", "proc"]);
    assert!(!proc.ok() && proc.err.contains("goes on behind the 0 bytes"), "{}{}", proc.out, proc.err);
    assert_eq!(fs::read_dir(scratch.path("proc")).expect("made").count(), 0);

    file(&scratch, 10_000);
    assert!(scratch.run(&["code", "encode", "photo.raw", "--code", "rs:2+1", "--out", "parts"]).ok());
    let _socket = std::os::unix::net::UnixListener::bind(scratch.path("socket")).expect("bound");
    let replaced = scratch.run(&["code", "decode", "parts", "--out", "socket", "--force"]);
    assert!(!replaced.ok() && replaced.err.contains("is no file"), "{}{}", replaced.out, replaced.err);
    assert!(fs::metadata(scratch.path("socket")).expect("there").file_type().is_socket());

    // A link that somebody laid under a chunk's name: what it leads to is no part of the parcel.
    fs::rename(scratch.path("parts/photo.raw.01.clay"), scratch.path("chunk")).expect("moved");
    fs::write(scratch.path("precious"), "precious").expect("written");
    symlink("../precious", scratch.path("parts/photo.raw.01.clay")).expect("a link");
    assert_eq!(scratch.run(&["code", "verify", "parts"]).code(), Some(3));
    let repaired = scratch.run(&["code", "repair", "parts"]);
    assert!(!repaired.ok() && repaired.err.contains("parts/photo.raw.01.clay is already there"), "{}", repaired.err);
    assert_eq!(fs::read(scratch.path("precious")).expect("there"), b"precious");
    // Not even where it leads to the damaged chunk itself.
    flip(&scratch.path("chunk"), 100);
    fs::remove_file(scratch.path("parts/photo.raw.01.clay")).expect("removed");
    symlink("../chunk", scratch.path("parts/photo.raw.01.clay")).expect("a link");
    let repaired = scratch.run(&["code", "repair", "parts"]);
    assert!(!repaired.ok() && repaired.err.contains("parts/photo.raw.01.clay: writing"), "{}", repaired.err);
}

#[test]
fn the_table_and_the_plot_of_codes() {
    let scratch = Scratch::new();
    let info = scratch.run(&["code", "info", "--no-speed", "--plot", "codes.svg"]);
    assert!(info.ok(), "{}", info.err);
    assert!(info.out.contains("clay:16+4:19") && info.out.contains("4.75"), "{}", info.out);
    assert!(fs::read_to_string(scratch.path("codes.svg")).expect("there").contains("clay:16+4:19"));
    let docs = running::repository().join("docs");
    let page = fs::read_to_string(docs.join("codes.md")).expect("there");
    // The page shows speeds of some machine; all else is the same on every one.
    for line in info.out.lines().filter(|line| !line.is_empty()) {
        let same = line.strip_suffix('-').unwrap_or(line);
        let is_it =
            |shown: &str| shown == line || shown.strip_prefix(same).is_some_and(|speed| speed.ends_with(" GB/s"));
        assert!(page.lines().any(is_it), "docs/codes.md lacks this line of `claystone code info`:\n{line}");
    }
    let plot = fs::read_to_string(docs.join("codes.svg")).expect("there");
    assert!(
        plot == fs::read_to_string(scratch.path("codes.svg")).expect("there"),
        "out of step: claystone code info --no-speed --plot docs/codes.svg"
    );
    assert!(scratch.run(&["code", "info", "--no-speed", "--plot", "codes.png"]).ok());
    assert!(fs::read(scratch.path("codes.png")).expect("there").starts_with(b"\x89PNG"));
    let unknown = scratch.run(&["code", "info", "--no-speed", "--plot", "codes.gif"]);
    assert!(!unknown.ok() && unknown.err.contains(".svg or .png"), "{}", unknown.err);
    let machine = scratch.run(&["code", "info", "--json", "--no-speed", "rs:4+2"]);
    let machine = json(&machine);
    assert_eq!((machine["overhead"].as_f64(), machine["repair_one"].as_f64()), (Some(1.5), Some(4.0)));
}
