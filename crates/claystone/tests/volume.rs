//! Volumes of a store that is killed, loses disks and is asked for nonsense. Real clients: tests/volume/run.

mod running;

use std::fs;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

use running::client::Client;
use running::store::content;
use running::{Scratch, Up};
use serde_json::Value;

const MIB: usize = 1 << 20;

/// Bytes with a hole of 8 MiB in the middle, and an end that is no whole page.
fn image(seed: u64) -> Vec<u8> {
    let mut image = content(seed, 5 * MIB);
    image.resize(13 * MIB, 0);
    image.extend(content(seed + 1, 3 * MIB + 1000));
    image
}

fn ok(scratch: &Scratch, arguments: &[&str]) -> String {
    let run = scratch.run(arguments);
    assert!(run.ok(), "{arguments:?}: {}{}", run.out, run.err);
    run.out
}

fn json(scratch: &Scratch, arguments: &[&str]) -> Value {
    serde_json::from_str(&ok(scratch, arguments)).expect("json")
}

/// The volume, copied out: it begins with `image`, and all else is zeros.
fn holds(scratch: &Scratch, volume: &str, image: &[u8]) {
    ok(scratch, &["volume", "export", volume, "out"]);
    let path = scratch.path("out");
    let copied = fs::read(&path).expect("there");
    // Not compared with `assert_eq!`: nobody wants to read it.
    assert!(copied.starts_with(image), "{volume} is not what was copied in");
    assert!(copied[image.len()..].iter().all(|byte| *byte == 0), "{volume} does not end with zeros");
    let taken = fs::metadata(&path).expect("there").blocks() * 512;
    assert!(taken < 10 << 20, "the hole takes space: {taken} bytes");
    fs::remove_file(path).expect("removed");
}

/// What the console tells Prometheus.
fn metrics(up: &Up, scratch: &Scratch) -> String {
    let (_, console) = up.said().split_once("console on http://").expect("the ready line names it");
    let client = Client { address: console.trim().parse().expect("an address"), ..up.client(scratch) };
    let answer =
        client.exchange(b"GET /metrics HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n").expect("an answer");
    String::from_utf8(answer.body).expect("text")
}

#[test]
fn volumes_outlive_kills_and_lost_disks() {
    let scratch = Scratch::new();
    let image = image(1);
    fs::write(scratch.path("image"), &image).expect("written");
    let up = Up::start(&scratch, &[]);
    let made = json(&scratch, &["volume", "create", "rs", "--size", "64M", "--redundancy", "rs:4+2", "--json"]);
    assert_eq!(
        (&made["bytes"], &made["page_bytes"], &made["state"]),
        (&(64 << 20).into(), &4096.into(), &"closed".into())
    );
    ok(&scratch, &["volume", "import", "image", "rs"]);
    ok(&scratch, &["volume", "import", "image", "copies", "--redundancy", "replica:2"]);
    let info = json(&scratch, &["volume", "info", "rs", "--json"]);
    let waiting = info["open"]["diff_pages"].as_u64().expect("it is open");
    assert!((2000..=2100).contains(&waiting), "8 MiB and a page wait to be merged: {info}");
    up.kill();

    // What was imported is durable, and its logs are read again before anybody asks.
    let up = Up::start(&scratch, &[]);
    let volumes = json(&scratch, &["volume", "list", "--json"]);
    let states: Vec<&Value> = volumes["volumes"].as_array().expect("a list").iter().map(|of| &of["state"]).collect();
    assert_eq!(states, ["open", "open"]);
    holds(&scratch, "rs", &image);
    let merged = json(&scratch, &["volume", "merge", "rs", "--json"]);
    assert_eq!((&merged["pages"], &merged["left"]), (&waiting.into(), &0.into()));
    holds(&scratch, "rs", &image);
    holds(&scratch, "copies", &image);
    up.kill();

    // Two disks of six are away.
    for disk in ["disk1", "disk4"] {
        let path = scratch.path("claystone-data").join(disk);
        fs::rename(&path, path.with_extension("away")).expect("moved");
    }
    let up = Up::start(&scratch, &[]);
    holds(&scratch, "rs", &image);
    assert!(up.stop().success());
    for disk in ["disk1", "disk4"] {
        let path = scratch.path("claystone-data").join(disk);
        fs::rename(path.with_extension("away"), &path).expect("moved back");
    }
    let up = Up::start(&scratch, &[]);
    holds(&scratch, "rs", &image);
    holds(&scratch, "copies", &image);
    let metrics = metrics(&up, &scratch);
    for line in [
        "claystone_volume_bytes{volume=\"rs\",code=\"rs:4+2\"} 67108864",
        "claystone_volume_log_used_percent{",
        "claystone_volume_log_copies{volume=\"rs\",code=\"rs:4+2\"} 3\n",
        "claystone_volume_log_copies_wanted{volume=\"rs\",code=\"rs:4+2\"} 3\n",
    ] {
        assert!(metrics.contains(line), "{line} is missing in {metrics}");
    }
    let info = ok(&scratch, &["volume", "info", "rs"]);
    assert!(info.contains("log copies  3 of 3\n"), "{info}");
    ok(&scratch, &["volume", "delete", "rs", "--yes"]);
    ok(&scratch, &["volume", "delete", "copies", "--yes"]);
    assert_eq!(json(&scratch, &["volume", "list", "--json"])["volumes"], Value::Array(Vec::new()));
    assert!(up.stop().success());
}

/// A volume to compare with is like any other to whoever reads and writes it, takes the name, and ends with the store.
#[test]
fn scratch_volumes_are_used_like_volumes_and_gone_with_the_store() {
    let scratch = Scratch::new();
    fs::write(scratch.path("image"), image(3)).expect("written");
    let up = Up::start(&scratch, &[]);
    let create = ["volume", "create", "s", "--size", "64M", "--redundancy", "rs:4+2"];
    let made = json(&scratch, &[&create[..], &["--scratch", "speculative", "--json"]].concat());
    assert_eq!((&made["state"], &made["scratch"]["method"]), (&"scratch".into(), &"speculative".into()));
    let taken = scratch.run(&create);
    assert!(!taken.ok() && taken.err.contains("exists"), "{}", taken.err);
    // All of it is written, zeros.
    let import = scratch.run(&["volume", "import", "image", "s"]);
    assert!(!import.ok() && import.err.contains("nbdcopy"), "{}", import.err);
    ok(&scratch, &["volume", "export", "s", "out"]);
    let copied = fs::read(scratch.path("out")).expect("there");
    assert!(copied.len() == 64 * MIB && copied.iter().all(|byte| *byte == 0));
    let info = ok(&scratch, &["volume", "info", "s"]);
    assert!(info.contains("written in place: speculative; gone when the store stops"), "{info}");
    let merged = scratch.run(&["volume", "merge", "s"]);
    assert!(!merged.ok() && merged.err.contains("scratch volume"), "{}", merged.err);
    ok(&scratch, &["volume", "create", "t", "--size", "16M", "--redundancy", "replica:2", "--scratch", "replicas"]);
    ok(&scratch, &["volume", "delete", "t", "--yes"]);
    up.kill();
    let up = Up::start(&scratch, &[]);
    assert_eq!(json(&scratch, &["volume", "list", "--json"])["volumes"], Value::Array(Vec::new()));
    ok(&scratch, &create);
    assert!(up.stop().success());
}

#[test]
fn snapshots_and_clones_outlive_kills_and_volumes_go_back() {
    let scratch = Scratch::new();
    let image = image(5);
    fs::write(scratch.path("image"), &image).expect("written");
    let up = Up::start(&scratch, &[]);
    ok(&scratch, &["volume", "create", "v", "--size", "32M", "--redundancy", "rs:4+2"]);
    let taken = json(&scratch, &["volume", "snapshot", "v", "empty", "--json"]);
    assert_eq!((&taken["name"], &taken["bytes"]), (&"v@empty".into(), &(32 << 20).into()));
    ok(&scratch, &["volume", "import", "image", "v"]);
    ok(&scratch, &["volume", "snapshot", "v", "full"]);
    // All that waited was merged for it.
    let info = json(&scratch, &["volume", "info", "v", "--json"]);
    assert_eq!(info["open"]["diff_pages"], 0, "{info}");
    holds(&scratch, "v@full", &image);
    holds(&scratch, "v@empty", &[]);
    ok(&scratch, &["volume", "revert", "v@empty", "--yes"]);
    holds(&scratch, "v", &[]);
    up.kill();

    let up = Up::start(&scratch, &[]);
    holds(&scratch, "v", &[]);
    holds(&scratch, "v@full", &image);
    ok(&scratch, &["volume", "clone", "v@full", "w"]);
    holds(&scratch, "w", &image);
    let full = json(&scratch, &["volume", "info", "v@full", "--json"]);
    assert_eq!((&full["stripes"], &full["stripes_alone"]), (&4.into(), &0.into()), "the clone has them too: {full}");
    let listed = json(&scratch, &["volume", "list", "--json"]);
    let names: Vec<&Value> =
        listed["volumes"][0]["snapshots"].as_array().expect("a list").iter().map(|of| &of["name"]).collect();
    assert_eq!(names, ["v@empty", "v@full"]);
    assert!(ok(&scratch, &["volume", "list"]).contains("v@full"));
    assert!(ok(&scratch, &["volume", "attach", "v@full"]).contains("/v@full"));
    for (arguments, says) in [
        (&["volume", "delete", "v", "--yes"][..], "delete v@empty, v@full first"),
        (&["volume", "snapshot", "v", "full"], "\"v@full\" exists"),
        (&["volume", "snapshot", "v", "a@b"], "cannot be a snapshot's name"),
        (&["volume", "clone", "v@full", "w"], "exists"),
        (&["volume", "clone", "v", "w"], "cannot be a snapshot's name"),
        (&["volume", "resize", "v@full", "64M"], "is no volume"),
        (&["volume", "info", "v@none"], "no snapshot"),
        (&["volume", "revert", "v@full"], "--yes"),
        (&["volume", "delete", "v@full"], "--yes"),
    ] {
        let refused = scratch.run(arguments);
        assert!(!refused.ok() && refused.err.contains(says), "{arguments:?}: {}", refused.err);
    }
    let metrics = metrics(&up, &scratch);
    assert!(metrics.contains("claystone_volume_snapshots{volume=\"v\",code=\"rs:4+2\"} 2"), "{metrics}");
    ok(&scratch, &["volume", "revert", "v@full", "--yes"]);
    for name in ["v@empty", "v@full", "v"] {
        ok(&scratch, &["volume", "delete", name, "--yes"]);
    }
    holds(&scratch, "w", &image);
    assert!(up.stop().success());
}

#[test]
fn a_volume_whose_log_is_away_is_named_and_opens_when_it_is_back() {
    let scratch = Scratch::new();
    let image = image(3);
    fs::write(scratch.path("image"), &image).expect("written");
    let up = Up::start(&scratch, &[]);
    ok(&scratch, &["volume", "import", "image", "v", "--redundancy", "replica:2"]);
    ok(&scratch, &["volume", "create", "other", "--size", "1M", "--redundancy", "replica:2"]);
    let info = json(&scratch, &["volume", "info", "v", "--json"]);
    let status = running::store::status(&scratch);
    let disks = status["disks"].as_array().expect("a list");
    let paths: Vec<String> = info["log_disks"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|id| {
            disks.iter().find(|disk| disk["id"] == *id).expect("known")["path"].as_str().expect("text").to_owned()
        })
        .collect();
    // Of the first segment, which is short, and of the one after it.
    assert!((2..=4).contains(&paths.len()), "{info}");
    up.kill();
    let away = |path: &str| format!("{path}.away");
    paths.iter().for_each(|path| fs::rename(path, away(path)).expect("moved"));
    let up = Up::start(&scratch, &[]);
    let info = json(&scratch, &["volume", "info", "v", "--json"]);
    assert_eq!(info["state"], "refused");
    assert!(info["reason"].as_str().expect("a reason").contains("absent"), "{info}");
    assert!(ok(&scratch, &["status"]).contains("volume v is refused"));
    // Others are served.
    ok(&scratch, &["volume", "merge", "other"]);
    let refused = scratch.run(&["volume", "export", "v", "out"]);
    assert!(!refused.ok() && refused.err.contains("absent"), "{}", refused.err);
    assert!(!scratch.path("out").exists() && !scratch.path("out.part").exists());
    paths.iter().for_each(|path| fs::rename(away(path), path).expect("moved back"));
    // The store finds the disks, and then the volume, by itself.
    running::store::until("the volume's return", || match json(&scratch, &["volume", "info", "v", "--json"]) {
        info if info["state"] == "open" => Ok(()),
        info => Err(info.to_string()),
    });
    holds(&scratch, "v", &image);
    assert!(up.stop().success());
}

#[test]
fn the_log_of_a_volume_that_nobody_uses_leaves_a_disk_that_is_drained() {
    let scratch = Scratch::new();
    let image = image(5);
    fs::write(scratch.path("image"), &image).expect("written");
    let up = Up::start(&scratch, &[]);
    ok(&scratch, &["volume", "import", "image", "v", "--redundancy", "replica:3"]);
    let info = json(&scratch, &["volume", "info", "v", "--json"]);
    let disk = info["log_disks"][0].as_str().expect("an id");
    ok(&scratch, &["disk", "drain", disk]);
    running::store::until("the log's leave", || {
        let disks = json(&scratch, &["disk", "list", "--json"]);
        let logs = |known: &Value| known["id"] == disk && known["logs"] != 0;
        let found = disks["disks"].as_array().expect("a list").iter().find(|known| logs(known)).cloned();
        found.map_or(Ok(()), |found| Err(found.to_string()))
    });
    holds(&scratch, "v", &image);
    up.kill();
    let up = Up::start(&scratch, &[]);
    holds(&scratch, "v", &image);
    assert!(up.stop().success());
}

#[test]
fn wrong_commands_are_told_what_is_wrong() {
    let scratch = Scratch::new();
    let up = Up::start(&scratch, &[]);
    ok(&scratch, &["volume", "create", "v", "--size", "1M", "--redundancy", "replica:2", "--page", "8k"]);
    fs::write(scratch.path("file"), content(1, 8192)).expect("written");
    fs::write(scratch.path("long"), content(1, 2 * MIB)).expect("written");
    fs::write(scratch.path("empty"), "").expect("written");
    ok(&scratch, &["volume", "import", "file", "v"]);
    for (line, words) in [
        ("create w --size 1M", "--redundancy"),
        ("create w --size 1X --redundancy rs:4+2", "10G"),
        ("create w --size 1M --redundancy rs:4", "rs:K+M"),
        ("create w --size 1M --redundancy clay:4+2:5", "it takes replica:n and mirror:kxn"),
        ("create w --size 1M --redundancy replica:1", "of at least 2 copies"),
        ("create w --size 1M --redundancy mirror:4x3/rs:4+2", "replica:COPIES/CODE"),
        ("create w --size 1M --redundancy replica:3/rs:4+2 --space-at-most 90%", "2.2x or 220%"),
        ("create w --size 1M --redundancy rs:9+3", "needs 12 disks that take writes, there are 6"),
        ("create w --size 1000 --redundancy rs:4+2", "a multiple of 4096"),
        ("create w --size 0 --redundancy rs:4+2", "a multiple of 4096"),
        ("create w --size 2P --redundancy rs:4+2", "at most"),
        ("create w --size 1M --redundancy rs:4+2 --page 3k", "1024, 2048, 4096 or 8192"),
        ("create w --size 1M --redundancy rs:4+2 --page 8G", "1k, 2k, 4k or 8k"),
        ("create w --size 1M --redundancy rs:4+2 --chunk 6k", "chunks of 6144 bytes"),
        ("create w --size 1M --redundancy rs:4+2 --chunk 8192P", "at most 1 GiB"),
        ("create w --size 1M --redundancy rs:4+2 --chunk 1G", "too wide"),
        ("create a/b --size 1M --redundancy rs:4+2", "cannot be a volume's name"),
        ("create v --size 1M --redundancy rs:4+2", "volume \"v\" exists"),
        ("info w", "there is no volume \"w\""),
        ("info ../keys", "letters, digits"),
        ("resize v 512k", "cannot shrink"),
        ("resize v 1025k", "a multiple of 8192"),
        ("resize w 1M", "there is no volume"),
        ("delete v", "say --yes"),
        ("delete w --yes", "there is no volume"),
        ("attach w", "there is no volume"),
        ("merge w", "there is no volume"),
        ("export v file", "file exists"),
        ("export w out", "there is no volume"),
        ("import nothing v", "nothing cannot be read"),
        ("import empty v", "empty is empty"),
        ("import long v", "claystone volume resize v"),
        ("import file v", "v has data"),
        ("import file w", "there is no volume"),
        ("import file v --redundancy rs:4+2", "volume \"v\" exists"),
    ] {
        let arguments: Vec<&str> = ["volume"].into_iter().chain(line.split(' ')).collect();
        let run = scratch.run(&arguments);
        assert!(!run.ok(), "{line}: {}", run.out);
        assert!(run.err.contains(words), "{line}: {}", run.err);
    }
    ok(&scratch, &["volume", "create", "w", "--size", "1M", "--redundancy", "rs:4+2"]);
    for (code, warning) in [("rs:4+1", "survived 2 lost disks as rs:4+2; as rs:4+1 it survives 1"), ("rs:4+2", "")] {
        let set = scratch.run(&["volume", "set", "w", "--redundancy", code]);
        assert!(
            set.ok() && set.err.contains(warning) && set.err.is_empty() == warning.is_empty(),
            "{code}: {}",
            set.err
        );
    }
    ok(&scratch, &["volume", "resize", "v", "4M"]);
    assert_eq!(json(&scratch, &["volume", "info", "v", "--json"])["bytes"], 4 << 20);
    holds(&scratch, "v", &content(1, 8192));
    assert!(up.stop().success());
}

/// Bytes that files of chunks take.
fn chunks_bytes(scratch: &Scratch) -> u64 {
    fn of(directory: &Path) -> u64 {
        let entries = fs::read_dir(directory).expect("readable").map(|entry| entry.expect("readable").path());
        entries.map(|path| if path.is_dir() { of(&path) } else { taken(&path) }).sum()
    }
    fn taken(file: &Path) -> u64 {
        let is_chunk = file.components().any(|name| name.as_os_str() == "chunks");
        if is_chunk { fs::metadata(file).expect("there").blocks() * 512 } else { 0 }
    }
    of(&scratch.path("claystone-data"))
}

/// A stripe of `rs:4+2` whose first chunk has all its data takes three chunks.
#[test]
fn chunks_of_zeros_take_no_space() {
    let scratch = Scratch::new();
    let up = Up::start(&scratch, &[]);
    let image = fs::File::create(scratch.path("image")).expect("made");
    for stripe in 0..4 {
        image.write_all_at(&content(stripe, 4096), stripe * (4 << 20)).expect("written");
    }
    image.set_len(16 << 20).expect("a hole");
    ok(&scratch, &["volume", "import", "image", "v", "--redundancy", "rs:4+2"]);
    ok(&scratch, &["volume", "merge", "v"]);
    let taken = chunks_bytes(&scratch);
    assert!((12 << 20..13 << 20).contains(&taken), "{taken} bytes");
    holds(&scratch, "v", &fs::read(scratch.path("image")).expect("there"));
    let scrub = ok(&scratch, &["scrub", "--wait"]);
    assert!(!scrub.contains("lost"), "{scrub}");
    assert!(up.stop().success());
}

#[test]
fn a_volume_with_homes_is_a_device_for_each() {
    let scratch = Scratch::new();
    let up = Up::start(&scratch, &["--nodes", "a", "a", "b", "b", "c", "c"]);
    let made = ok(&scratch, &["volume", "create", "pair", "--size", "8M", "--redundancy", "rs:2+1", "--homes", "a,b"]);
    assert!(made.contains("as pair:a and pair:b of 4.0 MiB each; `claystone volume attach pair:a`"), "{made}");
    let info = ok(&scratch, &["volume", "info", "pair"]);
    assert!(info.contains("pair:a, 4.0 MiB") && info.contains("pair:b, 4.0 MiB"), "{info}");
    ok(&scratch, &["volume", "snapshot", "pair", "empty"]);
    let ways = json(&scratch, &["volume", "attach", "pair:b", "--json"]);
    let uri = ways["tcp"]["uri"].as_str().expect("served");
    assert!(uri.ends_with("/pair:b"), "{uri}");
    assert!(ok(&scratch, &["volume", "attach", "pair:b@empty"]).contains("/pair:b@empty"));
    for (line, words) in [
        ("attach pair:c", "its homes are a, b"),
        ("attach pair:a@none", "no snapshot"),
        ("attach none:a", "there is no volume"),
        ("delete pair:a --yes", "is no volume"),
        ("resize pair 9M", "no multiple of 2097152"),
        ("create w --size 8M --redundancy rs:2+1 --homes a,z", "node z"),
        ("create w --size 8M --redundancy rs:2+1 --homes a", "at most the 1 that it survives"),
        ("create w --size 8M --redundancy replica:2 --homes a --scratch replicas", "no homes"),
    ] {
        let arguments: Vec<&str> = ["volume"].into_iter().chain(line.split(' ')).collect();
        let run = scratch.run(&arguments);
        assert!(!run.ok() && run.err.contains(words), "{line}: {}", run.err);
    }
    assert!(up.stop().success());
}

#[test]
fn block_devices_are_served_where_attach_says() {
    let scratch = Scratch::new();
    let up = Up::start(&scratch, &[]);
    let socket = scratch.path("claystone-data/nbd.sock");
    let found = fs::metadata(&socket).expect("there");
    assert!(found.file_type().is_socket());
    assert_eq!(found.permissions().mode() & 0o777, 0o600);
    ok(&scratch, &["volume", "create", "v", "--size", "1M", "--redundancy", "replica:2"]);
    let ways = json(&scratch, &["volume", "attach", "v", "--json"]);
    let tcp = ways["tcp"]["uri"].as_str().expect("served").to_owned();
    assert!(tcp.starts_with("nbd://127.0.0.1:") && tcp.ends_with("/v"), "{tcp}");
    let unix = ways["unix"]["uri"].as_str().expect("served");
    assert!(unix.ends_with("/claystone-data/nbd.sock"), "{unix}");
    let text = ok(&scratch, &["volume", "attach", "v"]);
    for command in ["nbd-client -unix ", "nbdcopy FILE", "nbdfuse", "qemu-img info", &tcp] {
        assert!(text.contains(command), "{command}: {text}");
    }
    // A second store finds the default port taken, whoever has it, and starts all the same.
    let second = Scratch::new();
    let other = Up::start(&second, &[]);
    assert!(other.stop().success());
    up.kill();
    // What the killed one left is in nobody's way.
    assert!(socket.exists());
    let up = Up::start(&scratch, &["--nbd-listen", "none"]);
    assert_eq!(json(&scratch, &["volume", "attach", "v", "--json"])["tcp"], Value::Null);
    assert!(up.stop().success());
    assert!(!socket.exists());
    let up = Up::start(&scratch, &["--nbd-listen", "none", "--nbd-socket", "none"]);
    let refused = scratch.run(&["volume", "attach", "v"]);
    assert!(refused.err.contains("--nbd-listen"), "{}", refused.err);
    assert!(up.stop().success());
}
