//! Disks that are full, read-only, or of which the metadata has no more room. On file systems in memory, so it needs the
//! right to mount; without it each test says so and passes.
//!
//! Invariants that are tested:
//! 1. A write that finds no room fails with an error that says so, and changes nothing.
//! 2. Reads and deletes go on, and what was deleted makes room again.

mod running;

use std::fs;
use std::io::Write;

use running::client::{Answer, Client};
use running::store::{Tmpfs, content, disk, files, healed, status, until};
use running::{Scratch, Up};

/// A store on six file systems of so many MiB.
struct Small {
    disks: Vec<Tmpfs>,
    scratch: Scratch,
    up: Up,
    client: Client,
}

impl Small {
    fn begin(mib: [u64; 6]) -> Option<Small> {
        let scratch = Scratch::new();
        let mount =
            |(number, mib): (u64, u64)| Tmpfs::mount(&scratch.path(&format!("claystone-data/disk{number}")), mib);
        let disks = (1..).zip(mib).map(mount).collect::<Option<Vec<Tmpfs>>>()?;
        fs::write(scratch.path("claystone-data/claystone.toml"), "reclaim_seconds = 0\n").expect("written");
        let up = Up::start(&scratch, &[]);
        let client = up.client(&scratch);
        assert!(client.put("/box", Vec::new()).expect("an answer").ok());
        Some(Small { disks, scratch, up, client })
    }

    fn put(&self, key: u64, bytes: usize) -> Answer {
        self.client.put(&format!("/box/{key}"), content(key, bytes)).expect("an answer")
    }

    fn delete(&self, key: u64) {
        let deleted = self.client.delete(&format!("/box/{key}")).expect("an answer");
        assert!(deleted.ok(), "{deleted:?}");
    }

    /// That these objects are there whole.
    fn check(&self, objects: &[(u64, usize)]) {
        for (key, bytes) in objects {
            let answer = self.client.get(&format!("/box/{key}")).expect("an answer");
            assert_eq!(answer.status, 200, "{key}: {}", String::from_utf8_lossy(&answer.body));
            assert!(answer.body == content(*key, *bytes), "{key} has other bytes");
        }
    }

    /// Stores objects of these lengths, each until one is refused; returns those that were taken.
    fn fill(&self, lengths: &[usize]) -> Vec<(u64, usize)> {
        let mut objects = Vec::new();
        for bytes in lengths {
            loop {
                let key = objects.len() as u64;
                let answer = self.put(key, *bytes);
                if !answer.ok() {
                    says_full(&answer);
                    assert_eq!(self.client.get(&format!("/box/{key}")).expect("an answer").status, 404);
                    break;
                }
                objects.push((key, *bytes));
                assert!(key < 10_000, "it takes no end");
            }
        }
        objects
    }

    fn files(&self) -> u64 {
        (1..=6).map(|disk| files(&self.scratch.path(&format!("claystone-data/disk{disk}")))).sum()
    }

    fn named(&self) -> u64 {
        let status = status(&self.scratch);
        let disks = status["disks"].as_array().expect("a list");
        disks.iter().map(|disk| disk["chunks"].as_u64().expect("a number")).sum()
    }
}

fn says_full(answer: &Answer) {
    assert_eq!(answer.error(), (507, "InsufficientStorage".to_owned()), "{}", String::from_utf8_lossy(&answer.body));
    let message = answer.element("Message");
    assert!(message.contains("full") && message.contains("delete objects or add disks"), "{message}");
}

#[test]
fn full_disks_refuse_writes_and_recover() {
    let Some(small) = Small::begin([48; 6]) else { return };
    let client = &small.client;
    assert!(small.put(5000, 70_000).ok());
    let created = client.request("POST", "/box/parts").query("uploads", "").send().expect("an answer");
    let id = created.element("UploadId");
    let mut objects = small.fill(&[4 << 20, 1 << 20, 100 << 10]);
    let raw: usize = objects.iter().map(|(_, bytes)| bytes * 3 / 2).sum();
    assert!(raw > 6 * (36 << 20), "{raw} bytes are too few to fill the disks");

    // Whatever else would take room is refused in the same words, and changes nothing.
    says_full(&client.put("/box/5000", content(1, 1 << 20)).expect("an answer"));
    let part = client.request("PUT", "/box/parts").query("uploadId", &id).query("partNumber", "1");
    says_full(&part.body(content(1, 1 << 20)).send().expect("an answer"));
    objects.push((5000, 70_000));
    // A copy shares the chunks of its source, so it needs no room.
    assert!(client.request("PUT", "/box/7000").header("x-amz-copy-source", "/box/0").send().expect("an answer").ok());
    assert!(client.get("/box/7000").expect("an answer").body == content(0, 4 << 20));
    small.delete(7000);
    small.check(&objects);
    until("the removal of what was refused", || match (small.named(), small.files()) {
        (named, files) if named >= files => Ok(()),
        (named, files) => Err(format!("{files} chunk files, {named} named")),
    });

    // A restart changes nothing, and half of the room comes back with half of the objects.
    let Small { disks, scratch, up, .. } = small;
    assert!(up.stop().success());
    let up = Up::start(&scratch, &[]);
    let client = up.client(&scratch);
    let small = Small { disks, scratch, up, client };
    small.check(&objects);
    let (gone, kept): (Vec<_>, Vec<_>) = objects.into_iter().partition(|(key, _)| key % 2 == 0);
    gone.iter().for_each(|(key, _)| small.delete(*key));
    until("the return of the room", || {
        let answer = small.put(6000, 4 << 20);
        if answer.ok() { Ok(()) } else { Err(String::from_utf8_lossy(&answer.body).into_owned()) }
    });
    small.check(&kept);
    small.check(&[(6000, 4 << 20)]);
    // Objects that lacked a chunk while the disks were full get it back.
    healed(&small.scratch);
    kept.iter().for_each(|(key, _)| small.delete(*key));
    small.delete(6000);
    until("an empty store", || match small.files() {
        0 => Ok(()),
        files => Err(format!("{files} chunk files")),
    });
    assert!(small.up.stop().success());
}

#[test]
fn one_full_disk_stops_nobody() {
    let Some(small) = Small::begin([10, 48, 48, 48, 48, 48]) else { return };
    let mut objects = Vec::new();
    for key in 0..30 {
        let answer = small.put(key, 2 << 20);
        assert!(answer.ok(), "{key}: {}", String::from_utf8_lossy(&answer.body));
        objects.push((key, 2 << 20));
    }
    let disk = disk(&small.scratch, "claystone-data/disk1");
    assert!(disk["free_bytes"].as_u64().expect("a number") < 2 << 20, "it is full: {disk}");
    small.check(&objects);
    objects.iter().for_each(|(key, _)| small.delete(*key));
    until("an empty store", || match small.files() {
        0 => Ok(()),
        files => Err(format!("{files} chunk files")),
    });
    assert!(small.put(0, 2 << 20).ok());
    assert!(small.up.stop().success());
}

#[test]
fn a_disk_that_becomes_read_only_is_named_and_read() {
    let Some(small) = Small::begin([48; 6]) else { return };
    let mut objects: Vec<(u64, usize)> = (0..8).map(|key| (key, 300_000)).collect();
    objects.iter().for_each(|(key, bytes)| assert!(small.put(*key, *bytes).ok()));
    small.disks[2].remount("ro");
    for key in 8..16 {
        let answer = small.put(key, 300_000);
        assert!(answer.ok(), "{}", String::from_utf8_lossy(&answer.body));
        objects.push((key, 300_000));
    }
    small.check(&objects);
    let disk = || disk(&small.scratch, "claystone-data/disk3");
    until("the report of the disk", || match disk() {
        disk if disk["present"] == true && disk["writable"] == false => Ok(()),
        disk => Err(disk.to_string()),
    });
    assert!(disk()["reason"].as_str().is_some_and(|reason| reason.contains("ead-only")), "{}", disk());
    // A delete waits for the disk, and harms nothing.
    small.delete(0);
    assert_eq!(small.client.get("/box/0").expect("an answer").status, 404);
    small.check(&objects[1..]);
    small.disks[2].remount("rw");
    let Small { disks, scratch, up, .. } = small;
    assert!(up.stop().success());
    let up = Up::start(&scratch, &[]);
    let client = up.client(&scratch);
    let small = Small { disks, scratch, up, client };
    healed(&small.scratch);
    small.check(&objects[1..]);
    let scrub = small.scratch.run(&["scrub", "--wait"]);
    assert!(scrub.ok(), "{}{}", scrub.out, scrub.err);
    assert!(small.up.stop().success());
}

#[test]
fn metadata_without_room_refuses_writes_and_recovers() {
    let scratch = Scratch::new();
    let Some(_meta) = Tmpfs::mount(&scratch.path("claystone-data/meta"), 32) else { return };
    fs::write(scratch.path("claystone-data/claystone.toml"), "reclaim_seconds = 0\n").expect("written");
    let up = Up::start(&scratch, &[]);
    let client = up.client(&scratch);
    assert!(client.put("/box", Vec::new()).expect("an answer").ok());
    // All that is left of the file system goes to somebody else.
    let filler = scratch.path("claystone-data/meta/filler");
    let mut file = fs::File::create(&filler).expect("made");
    while file.write_all(&[1; 4096]).is_ok() {}
    drop(file);
    let note = "n".repeat(1900);
    let put = |client: &Client, key: u64| {
        let request = client.request("PUT", &format!("/box/{key}")).header("x-amz-meta-note", &note);
        request.body(content(key, 100)).send().expect("an answer")
    };
    let mut taken = 0;
    let refused = loop {
        let answer = put(&client, taken);
        if !answer.ok() {
            break answer;
        }
        taken += 1;
        assert!(taken < 20_000, "it takes no end");
    };
    says_full(&refused);
    println!("{taken} objects were taken");
    let check = |client: &Client, keys: std::ops::Range<u64>| {
        for key in keys {
            assert_eq!(client.get(&format!("/box/{key}")).expect("an answer").body, content(key, 100), "{key}");
        }
    };
    check(&client, 0..taken);
    assert_eq!(client.get(&format!("/box/{taken}")).expect("an answer").status, 404);
    // Still full after a restart, and everything is there.
    up.kill();
    let up = Up::start(&scratch, &[]);
    let client = up.client(&scratch);
    check(&client, 0..taken);
    let deleted = taken / 2;
    for key in 0..deleted {
        let answer = client.delete(&format!("/box/{key}")).expect("an answer");
        assert!(answer.ok(), "{}", String::from_utf8_lossy(&answer.body));
    }
    check(&client, deleted..taken);
    // What was deleted has left room inside the database.
    until("the return of the room", || {
        let answer = put(&client, taken);
        if answer.ok() { Ok(()) } else { Err(String::from_utf8_lossy(&answer.body).into_owned()) }
    });
    fs::remove_file(&filler).expect("removed");
    for key in 0..deleted {
        assert!(put(&client, key).ok());
    }
    check(&client, 0..taken + 1);
    assert!(up.stop().success());
}
