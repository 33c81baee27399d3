//! `claystone disk` on a device, as a user runs it.

mod running;

use std::fs;
use std::os::unix::fs::FileExt;

use running::Scratch;
use serde_json::Value;

fn json(out: &str) -> Value {
    serde_json::from_str(out).expect("one JSON document")
}

#[test]
fn an_image_becomes_a_disk_and_is_checked_scrubbed_and_grown() {
    let scratch = Scratch::new();
    let made = scratch.run(&["disk", "format", "attic.img", "--size", "64M", "--label", "attic"]);
    assert!(made.ok(), "{}", made.err);
    for text in ["(attic)", "64.0 MiB", "250 data and 5 parity sectors: 2.1", "2 of all else"] {
        assert!(made.out.contains(text), "{text}: {}", made.out);
    }
    let info = scratch.run(&["disk", "info", "attic.img", "--json"]);
    let info = json(&info.out);
    assert_eq!((&info["label"], &info["group_parity"], &info["copies"]), (&"attic".into(), &5.into(), &2.into()));
    assert_eq!(info["bytes"], 64 << 20);
    assert!(scratch.run(&["disk", "info", "attic.img"]).out.contains("1 node\n"));

    let check = scratch.run(&["disk", "check", "attic.img", "--json"]);
    assert!(check.ok(), "{}", check.err);
    assert_eq!(json(&check.out)["problems"], Value::Array(Vec::new()));

    // Both copies of the superblock in front: the end has more.
    let image = fs::OpenOptions::new().write(true).open(scratch.path("attic.img")).expect("there");
    image.write_all_at(&[0xa5; 2 * 4096], 0).expect("written");
    let scrub = scratch.run(&["disk", "scrub", "attic.img"]);
    assert!(scrub.ok(), "{}", scrub.err);
    assert!(scrub.out.contains("0 sectors lost"), "{}", scrub.out);
    let mut front = [0; 8];
    fs::File::open(scratch.path("attic.img")).expect("there").read_exact_at(&mut front, 0).expect("read");
    assert_eq!(&front, b"CLAYDISK", "opening mended it");

    let same = scratch.run(&["disk", "grow", "attic.img"]);
    assert!(same.out.contains("has all 64.0 MiB"), "{}", same.out);
    image.set_len(96 << 20).expect("longer");
    let grown = scratch.run(&["disk", "grow", "attic.img", "--json"]);
    assert_eq!(json(&grown.out)["more_bytes"], 32 << 20, "{}", grown.err);
    assert!(scratch.run(&["disk", "check", "attic.img"]).ok());
}

#[test]
fn nothing_known_is_lost_without_force() {
    let scratch = Scratch::new();
    fs::write(scratch.path("ext.img"), vec![0; 32 << 20]).expect("written");
    let image = fs::OpenOptions::new().write(true).open(scratch.path("ext.img")).expect("there");
    image.write_all_at(b"\x53\xef", 0x438).expect("written");
    let refused = scratch.run(&["disk", "format", "ext.img"]);
    assert!(!refused.ok());
    assert!(refused.err.contains("holds an ext file system") && refused.err.contains("--force"), "{}", refused.err);
    let mut magic = [0; 2];
    fs::File::open(scratch.path("ext.img")).expect("there").read_exact_at(&mut magic, 0x438).expect("read");
    assert_eq!(&magic, b"\x53\xef", "nothing was written");
    assert!(scratch.run(&["disk", "format", "ext.img", "--force", "--parity", "0", "--copies", "1"]).ok());
    let again = scratch.run(&["disk", "format", "ext.img"]);
    assert!(again.err.contains("holds a Claystone disk"), "{}", again.err);
    // A file of nothing that is known, and one of which only the end is written.
    for at in [0, (32 << 20) - 7] {
        fs::write(scratch.path("film.mkv"), vec![0; 32 << 20]).expect("written");
        let film = fs::OpenOptions::new().write(true).open(scratch.path("film.mkv")).expect("there");
        film.write_all_at(b"a film", at).expect("written");
        let refused = scratch.run(&["disk", "format", "film.mkv"]);
        assert!(!refused.ok() && refused.err.contains("holds something else than zeros"), "{}", refused.err);
        assert!(refused.err.contains("--force"), "{}", refused.err);
        let mut kept = [0; 6];
        fs::File::open(scratch.path("film.mkv")).expect("there").read_exact_at(&mut kept, at).expect("read");
        assert_eq!(&kept, b"a film", "nothing was written");
        assert!(scratch.run(&["disk", "format", "film.mkv", "--force"]).ok());
    }
    let sized = scratch.run(&["disk", "format", "ext.img", "--size", "1G"]);
    assert!(sized.err.contains("is there already"), "{}", sized.err);
}

#[test]
fn a_file_of_something_unknown_is_not_written_to_without_force() {
    let scratch = Scratch::new();
    let film = |name: &str| {
        fs::write(scratch.path(name), vec![0; 80 << 20]).expect("written");
        let film = fs::OpenOptions::new().write(true).open(scratch.path(name)).expect("there");
        film.write_all_at(b"a film", 70).expect("written");
    };
    film("film.mkv");
    film("other.mkv");
    let pair = ["hdd.img", "--size", "192M", "--ssd", "ssd.img", "--ssd-size", "64M", "--profile", "none"];
    assert!(scratch.run(&[&["disk", "format"], &pair[..]].concat()).ok());
    let profile = ["disk", "profile", "film.mkv", "--rounds", "1", "--mib", "8"];
    let replace = ["disk", "replace-ssd", "hdd.img", "--with", "other.mkv"];
    for (arguments, name) in [(&profile[..], "film.mkv"), (&replace, "other.mkv")] {
        let before = fs::read(scratch.path(name)).expect("read");
        let refused = scratch.run(arguments);
        assert!(!refused.ok() && refused.err.contains("holds something else than zeros"), "{}", refused.err);
        assert!(refused.err.contains("--force"), "{}", refused.err);
        assert!(fs::read(scratch.path(name)).expect("read") == before, "nothing was written");
        let forced = scratch.run(&[arguments, &["--force"]].concat());
        assert!(forced.ok(), "{}{}", forced.out, forced.err);
        assert!(fs::read(scratch.path(name)).expect("read") != before);
    }
    let info = json(&scratch.run(&["disk", "info", "hdd.img", "--json"]).out);
    assert_eq!(info["sectors"]["pair"]["ssd"], "present", "{info}");
}

#[test]
fn errors_say_what_to_do() {
    let scratch = Scratch::new();
    fs::write(scratch.path("empty.img"), vec![0; 32 << 20]).expect("written");
    fs::write(scratch.path("tiny.img"), vec![0; 1 << 20]).expect("written");
    for (arguments, text) in [
        (&["disk", "info", "none.img"][..], "--size 10G"),
        (&["disk", "info", "empty.img"], "`claystone disk format empty.img`"),
        (&["disk", "format", "tiny.img"], "sectors are too few"),
        (&["disk", "format", "empty.img", "--soft-failures", "0.4"], "shorter --group"),
        (&["disk", "format", "empty.img", "--soft-failures", "2"], "a chance"),
        (&["disk", "format", "empty.img", "--group", "5", "--parity", "5"], "no data sector"),
        (&["disk", "format", "new.img", "--size", "ten"], "such as 10G"),
        (&["disk", "format", "empty.img", "--label", &"x".repeat(65)], "64 bytes"),
        (&["mount", "at"], "<DEVICE>"),
        (&["mount", "empty.img", "at", "--parity", "0"], "--parity"),
        (&["mount", "--emulate", "1M", "at"], "sectors are too few"),
    ] {
        let run = scratch.run(arguments);
        assert!(!run.ok(), "{arguments:?}");
        assert!(run.err.contains(text), "{arguments:?}: {}", run.err);
    }
    assert!(!scratch.path("new.img").exists());
}

/// Needs root, who becomes somebody else, and fusermount3 with a /dev/fuse that others may open; without, nothing is tested.
#[test]
fn who_is_not_root_formats_mounts_writes_and_unmounts() {
    let scratch = Scratch::new();
    let run = scratch.shell(
        r#"
        set -eu
        [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null && command -v fusermount3 >/dev/null || exit 77
        as="setpriv --reuid=65534 --regid=65534 --clear-groups"
        chmod 755 . && mkdir own && chown 65534:65534 own && cd own
        $as sh -c ': <>/dev/fuse && claystone --version' >/dev/null 2>&1 || exit 77
        $as claystone disk format own.img --size 64M >/dev/null
        $as mkdir at
        $as claystone mount own.img at --json >ready &
        until grep -q ready ready; do kill -0 $! || exit 1; sleep 0.05; done
        $as sh -c 'echo kept >at/file && cat at/file && stat -c %u:%g at at/file'
        kill -TERM $!
        wait $!
        [ ! -e at/file ]
        $as claystone disk check own.img >/dev/null
        "#,
    );
    if run.code() == Some(77) {
        eprintln!("skipped: {}", run.err);
        return;
    }
    assert!(run.ok(), "{}{}", run.out, run.err);
    assert_eq!(run.out, "kept\n65534:65534\n65534:65534\n");
}

/// Needs a root with /dev/fuse; without, nothing is tested.
#[test]
fn what_was_synced_is_there_when_a_killed_mount_is_mounted_again() {
    let scratch = Scratch::new();
    let run = scratch.shell(
        r#"
        set -eu
        [ "$(id -u)" = 0 ] && : 2>/dev/null <>/dev/fuse || exit 77
        trap 'umount -l at 2>/dev/null || true; [ -z "${served:-}" ] || kill -KILL $served 2>/dev/null || true' EXIT
        mkdir at kept
        claystone disk format disk.img --size 256M >/dev/null
        mounted() {
            rm -f ready
            claystone mount disk.img at "$@" >ready 2>log &
            served=$!
            until grep -qs ready ready; do kill -0 $served || { cat log >&2; exit 1; }; sleep 0.05; done
        }
        unmounted() {
            kill -TERM $served
            wait $served
            served=
        }
        # put NAME BYTES: a file with these many bytes, synced, and kept beside the disk too.
        put() {
            head -c $2 /dev/urandom >kept/$1
            dd if=kept/$1 of=at/$1 bs=64k conv=fsync 2>/dev/null
            sync at
        }
        for round in 1 2 3; do
            mounted
            diff -r -x unsynced kept at
            put tiny$round 100
            put small$round 9000
            put large$round 9000001
            # In place, and behind the end.
            head -c 12288 /dev/urandom >part
            for to in kept/large1 at/large1; do dd if=part of=$to bs=4k seek=7 conv=notrunc,fsync 2>/dev/null; done
            for to in kept/small1 at/small1; do dd if=part of=$to bs=100 oflag=append conv=notrunc,fsync 2>/dev/null; done
            # A name and an attribute are synced with their directory.
            mkdir -p at/below kept/below
            mv at/tiny$round at/below/moved$round && mv kept/tiny$round kept/below/moved$round
            echo x >at/gone && sync at/gone && rm at/gone
            sync at at/below
            # Somebody writes all the time, and syncs nothing.
            (while :; do head -c 300000 /dev/urandom >at/unsynced || exit; done) 2>/dev/null &
            writer=$!
            sleep 0.7
            kill -KILL $served
            wait $served || true
            served=
            wait $writer || true
            umount -l at
            # What the kill left is finished in memory, and nothing is written.
            sha256sum disk.img >as-left
            mounted --read-only
            diff -r -x unsynced kept at
            ! touch at/new 2>/dev/null
            if claystone mount disk.img at 2>refused; then exit 1; fi
            grep -q 'disk.img is in use by another claystone' refused
            unmounted
            sha256sum --check --quiet as-left
            claystone disk check disk.img >/dev/null
        done
        mounted
        diff -r -x unsynced kept at
        unmounted
        claystone disk check disk.img >/dev/null
        claystone disk scrub disk.img | grep -o '0 sectors lost'
        "#,
    );
    if run.code() == Some(77) {
        eprintln!("skipped: {}", run.err);
        return;
    }
    assert!(run.ok(), "{}{}", run.out, run.err);
    assert_eq!(run.out, "0 sectors lost\n");
}

/// Needs a root with /dev/fuse and loop devices; without, nothing is tested.
#[test]
fn a_block_device_is_formatted_mounted_written_and_checked() {
    let scratch = Scratch::new();
    let run = scratch.shell(
        r#"
        set -eu
        skip() { echo "$*" >&2; exit 77; }
        [ "$(id -u)" = 0 ] && : 2>/dev/null <>/dev/fuse || skip "needs root and /dev/fuse"
        head -c 134217728 /dev/zero >image
        device=$(losetup --find --show image 2>&1) || skip "there is no loop device: $device"
        trap 'umount -l at 2>/dev/null || true; losetup --detach $device' EXIT
        : 2>/dev/null <>$device || skip "the loop device does not open"
        mkdir at
        claystone disk format $device --label looped | grep -c looped
        served() {
            rm -f ready
            claystone mount $device at >ready 2>log &
            served=$!
            until grep -qs ready ready; do kill -0 $served || { cat log >&2; exit 1; }; sleep 0.05; done
        }
        served
        head -c 20000003 /dev/urandom >content
        cp content at/large
        echo small >at/small
        # A mount has it to itself.
        ! claystone disk check $device 2>busy
        grep -c 'in use' busy
        kill -TERM $served
        wait $served
        claystone disk check $device >/dev/null
        served
        cmp content at/large
        cat at/small
        kill -TERM $served
        wait $served
        claystone disk scrub $device | grep -o '0 sectors lost'
        claystone disk info $device | grep -c 'drive'
        "#,
    );
    if run.code() == Some(77) {
        eprintln!("skipped: {}", run.err);
        return;
    }
    assert!(run.ok(), "{}{}", run.out, run.err);
    assert_eq!(run.out.lines().collect::<Vec<_>>()[..4], ["1", "1", "small", "0 sectors lost"], "{}", run.out);
}

/// Needs a root with /dev/fuse; without, nothing is tested.
#[test]
fn an_emulated_drive_is_mounted_and_gone_when_it_is_unmounted() {
    let scratch = Scratch::new();
    let run = scratch.shell(
        r#"
        set -eu
        [ "$(id -u)" = 0 ] && : 2>/dev/null <>/dev/fuse || exit 77
        mkdir at
        claystone mount --emulate 64M --soft-failures 5e-3 at >told &
        until grep -q ready told; do kill -0 $! || exit 1; sleep 0.05; done
        head -c 300000 /dev/zero | tr '\0' x >at/file
        sync at/file
        [ "$(tr -d x <at/file | wc -c)" = 0 ]
        kill -TERM $!
        wait $!
        [ ! -e at/file ]
        sed 's/[0-9][0-9.]*/N/g' told
        "#,
    );
    if run.code() == Some(77) {
        eprintln!("skipped: {}", run.err);
        return;
    }
    assert!(run.ok(), "{}{}", run.out, run.err);
    for text in [
        "it is a hard disk in memory: what is written to it is gone",
        "the hard disk in memory is gone; it was busy for N s",
    ] {
        assert!(run.out.contains(text), "{}", run.out);
    }
}
