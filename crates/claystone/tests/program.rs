//! The program as a user runs it: processes, signals, exit codes, and what it says when something is wrong.

mod running;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use running::store::content;
use running::{Scratch, Up};

#[test]
fn first_start_prints_the_secrets_once_and_keeps_them_private() {
    let scratch = Scratch::new();
    let up = Up::start(&scratch, &[]);
    let credentials = fs::read_to_string(scratch.path("claystone-data/credentials.json")).expect("kept");
    let credentials: serde_json::Value = serde_json::from_str(&credentials).expect("json");
    let secret = credentials["secret_key"].as_str().expect("a text").to_owned();
    assert!(up.said().contains(&secret));
    assert!(up.said().contains("ready in "), "{}", up.said());
    assert!(up.stop().success());
    assert!(!scratch.path("claystone-data/endpoint.json").exists(), "the endpoint is taken back");

    let again = Up::start(&scratch, &[]);
    assert!(!again.said().contains(&secret), "shown twice");
    assert!(again.stop().success());
}

#[test]
fn what_was_made_is_there_after_a_kill() {
    let scratch = Scratch::new();
    let up = Up::start(&scratch, &[]);
    assert!(scratch.run(&["bucket", "create", "photos", "--code", "clay:4+2:5"]).ok());
    assert!(scratch.run(&["key", "add", "--account", "backup"]).ok());
    up.kill();
    let up = Up::start(&scratch, &[]);
    let buckets = scratch.run(&["bucket", "--json", "list"]);
    assert!(buckets.out.contains(r#""name":"photos""#) && buckets.out.contains("clay:4+2:5"), "{}", buckets.out);
    assert!(scratch.run(&["key", "list"]).out.contains("backup"));
    assert!(up.stop().success());
}

#[test]
fn a_copy_of_the_records_and_the_disks_are_enough() {
    let scratch = Scratch::new();
    let up = Up::start(&scratch, &[]);
    let client = up.client(&scratch);
    assert!(client.put("/box", Vec::new()).expect("an answer").ok());
    for key in 0..20 {
        assert!(client.put(&format!("/box/{key}"), content(key, 50_000)).expect("an answer").ok());
    }
    let backup = scratch.run(&["backup", "copy.db"]);
    assert!(backup.ok() && backup.out.contains("and checked"), "{}{}", backup.out, backup.err);
    let mode = fs::metadata(scratch.path("copy.db")).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it holds secret keys");
    let again = scratch.run(&["backup", "copy.db"]);
    assert!(!again.ok() && again.err.contains("there is something already"), "{}", again.err);
    let nowhere = scratch.run(&["backup", "missing/copy.db"]);
    assert!(!nowhere.ok() && nowhere.err.contains("cannot be made"), "{}", nowhere.err);
    let names = fs::read_dir(scratch.path(".")).expect("listed").map(|entry| entry.expect("named").file_name());
    assert!(names.into_iter().all(|name| !name.to_string_lossy().starts_with("copy.db.")), "something is left over");
    up.kill();

    let data = scratch.path("claystone-data");
    for entry in fs::read_dir(&data).expect("listed") {
        let entry = entry.expect("named");
        match entry.file_name().to_string_lossy().starts_with("disk") {
            true => (),
            false if entry.path().is_dir() => fs::remove_dir_all(entry.path()).expect("removed"),
            false => fs::remove_file(entry.path()).expect("removed"),
        }
    }
    fs::create_dir(data.join("meta")).expect("made");
    fs::copy(scratch.path("copy.db"), data.join("meta/claystone.db")).expect("copied");
    let up = Up::start(&scratch, &[]);
    let client = up.client(&scratch);
    for key in 0..20 {
        let answer = client.get(&format!("/box/{key}")).expect("an answer");
        assert!(answer.body == content(key, 50_000), "{key}: {}", answer.status);
    }
    assert!(up.stop().success());
}

#[test]
fn a_store_in_another_directory_is_named_in_three_ways() {
    let scratch = Scratch::new();
    let up = Up::start(&scratch, &["elsewhere"]);
    let create = "volume create {} --size 1M --redundancy replica:2";
    for line in [
        "claystone status elsewhere".to_owned(),
        "claystone status --dir elsewhere".to_owned(),
        "CLAYSTONE_DIR=elsewhere claystone status".to_owned(),
        "CLAYSTONE_DIR=nowhere claystone status elsewhere".to_owned(),
        "claystone scrub --wait --dir elsewhere".to_owned(),
        "CLAYSTONE_DIR=elsewhere claystone scrub --wait".to_owned(),
        format!("claystone {} --dir elsewhere", create.replace("{}", "a")),
        format!("CLAYSTONE_DIR=elsewhere claystone {}", create.replace("{}", "b")),
        "claystone volume --dir elsewhere info a".to_owned(),
        "claystone disk list --dir elsewhere".to_owned(),
    ] {
        let run = scratch.shell(&line);
        assert!(run.ok(), "{line}: {}", run.err);
        let without = scratch.shell(&line.replace("elsewhere", "nowhere"));
        assert!(!without.ok(), "{line}: another store answers");
    }
    assert!(up.stop().success());
}

#[test]
fn one_process_serves_a_directory() {
    let scratch = Scratch::new();
    let up = Up::start(&scratch, &[]);
    let second = scratch.run(&["up", "--listen", "127.0.0.1:0"]);
    assert!(!second.ok());
    assert!(second.err.contains("a store already runs in"), "{}", second.err);
    assert!(up.stop().success());
}

#[test]
fn a_missing_disk_is_told_and_the_store_starts_without_it() {
    let scratch = Scratch::new();
    assert!(Up::start(&scratch, &[]).stop().success());
    fs::remove_dir_all(scratch.path("claystone-data/disk3")).expect("removed");
    let up = Up::start(&scratch, &[]);
    let disks = scratch.run(&["disk", "list"]);
    assert!(disks.out.contains("absent"), "{}", disks.out);
    assert!(disks.out.contains("is it mounted"), "{}", disks.out);
    let replaced = scratch.run(&["disk", "replace", "claystone-data/disk3", "claystone-data/disk3"]);
    assert!(replaced.ok(), "{}", replaced.err);
    let disks = scratch.run(&["disk", "list", "--json"]);
    let disks: serde_json::Value = serde_json::from_str(&disks.out).expect("json");
    let writable = disks["disks"].as_array().expect("a list").iter().filter(|disk| disk["writable"] == true).count();
    assert_eq!(writable, 6, "{disks}");
    assert!(up.stop().success());
}

#[test]
fn without_any_disk_there_is_no_store() {
    let scratch = Scratch::new();
    assert!(Up::start(&scratch, &[]).stop().success());
    for disk in 1..=6 {
        fs::remove_dir_all(scratch.path(&format!("claystone-data/disk{disk}"))).expect("removed");
    }
    let up = scratch.run(&["up", "--listen", "127.0.0.1:0", "--console", "127.0.0.1:0"]);
    assert!(!up.ok());
    assert!(up.err.contains("none of the store's 6 disks can be used"), "{}", up.err);
}

#[test]
fn a_directory_with_something_in_it_is_never_formatted() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("home")).expect("made");
    fs::write(scratch.path("home/thesis.tex"), "words").expect("written");
    let up = scratch.run(&["up", "--listen", "127.0.0.1:0", "--console", "127.0.0.1:0", "--disks", "home"]);
    assert!(!up.ok());
    assert!(up.err.contains("is not a Claystone disk"), "{}", up.err);
    assert_eq!(fs::read_dir(scratch.path("home")).expect("listed").count(), 1);
}

#[test]
fn fewer_disks_get_a_narrower_default_code() {
    let scratch = Scratch::new();
    let up = Up::start(&scratch, &["--disks", "a", "b", "c", "d"]);
    assert!(up.said().contains("default code  rs:2+2"), "{}", up.said());
    assert!(up.stop().success());
    let scratch = Scratch::new();
    let up = scratch.run(&["up", "--listen", "127.0.0.1:0", "--disks", "a", "b", "--code", "rs:4+2"]);
    assert!(up.err.contains("rs:4+2 needs 6 disks, there are 2"), "{}", up.err);
}

#[test]
fn a_public_address_needs_consent() {
    let scratch = Scratch::new();
    let up = scratch.run(&["up", "--listen", "0.0.0.0:0"]);
    assert!(!up.ok());
    assert!(up.err.contains("--insecure-public"), "{}", up.err);
    assert!(!scratch.path("claystone-data").exists(), "nothing was made");
}

#[test]
fn commands_without_a_store_say_how_to_start_one() {
    let scratch = Scratch::new();
    for command in [
        &["status"][..],
        &["disk", "list"],
        &["scrub"],
        &["bucket", "list"],
        &["policy", "list"],
        &["key", "list"],
        &["volume", "list"],
        &["backup", "copy.db"],
    ] {
        let run = scratch.run(command);
        assert!(!run.ok());
        assert!(run.err.contains("claystone up"), "{command:?}: {}", run.err);
    }
}

#[test]
fn the_commands_of_the_documents_work() {
    for document in
        ["README.md", "docs/codes.md", "docs/operating.md", "docs/policies.md", "docs/tier.md", "docs/volumes.md"]
    {
        let scratch = Scratch::new();
        let up = Up::start(&scratch, &[]);
        let text = fs::read_to_string(running::repository().join(document)).expect("there");
        let commands = running::console_commands(&text);
        assert!(!commands.is_empty(), "{document} has no block that begins with ```console test");
        for command in commands {
            let run = scratch.shell(&command);
            assert!(run.ok(), "{document}: {command}\n{}{}", run.out, run.err);
        }
        assert!(up.stop().success());
    }
}

/// As `head` does when it has enough: no panic and no word, and the exit code that shells show of what SIGPIPE ended.
#[test]
fn a_command_whose_reader_went_away_ends_quietly() {
    let scratch = Scratch::new();
    let up = Up::start(&scratch, &[]);
    let unread = |arguments: &[&str]| {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let run = scratch.run_into(writer, arguments);
        assert_eq!((run.code(), run.err.as_str()), (Some(141), ""), "{arguments:?}");
    };
    unread(&["code", "info", "--no-speed"]);
    unread(&["code", "info", "--no-speed", "--json"]);
    unread(&["bucket", "create", "photos"]);
    unread(&["bucket", "list"]);
    unread(&["status", "--watch"]);
    fs::write(scratch.path("photo.raw"), [7; 100_000]).expect("written");
    assert!(scratch.run(&["code", "encode", "photo.raw", "--code", "rs:2+1", "--out", "parts"]).ok());
    unread(&["code", "decode", "parts", "--out", "-"]);
    assert!(scratch.run(&["bucket", "list"]).out.contains("photos"), "what was asked for was done");
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("a device that is always full");
    for command in [&["bucket", "list"][..], &["code", "decode", "parts", "--out", "-"]] {
        let run = scratch.run_into(full.try_clone().expect("another handle"), command);
        assert_eq!(run.code(), Some(1), "{command:?}");
        assert!(run.err.contains("standard output takes no more: No space left"), "{}", run.err);
    }
    assert!(up.stop().success());
}
