//! A store on disks that mend their own sectors: image files, as a user starts it.

mod running;

use std::fs;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use running::client::Client;
use running::store::{content, pause, status, until};
use running::{Scratch, Up};
use serde_json::Value;

const DISKS: [&str; 3] = ["one.img", "two.img", "three.img"];

fn format_disks(scratch: &Scratch) {
    for disk in DISKS {
        let made = scratch.run(&["disk", "format", disk, "--size", "128M", "--label", disk]);
        assert!(made.ok(), "{}", made.err);
    }
}

fn start(scratch: &Scratch) -> Up {
    Up::start(scratch, &[&["--disks"][..], &DISKS].concat())
}

/// What `GET /metrics` says.
fn metrics(up: &Up) -> Vec<String> {
    let address = up.said().split_once("console on http://").expect("the ready line names it").1;
    let address = address.split_whitespace().next().expect("an address").parse().expect("an address");
    let client = Client { address, access_key: String::new(), secret_key: String::new() };
    let request = format!("GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    let answer = client.exchange(request.as_bytes()).expect("an answer");
    assert!(answer.ok(), "{answer:?}");
    String::from_utf8(answer.body).expect("text").lines().map(str::to_owned).collect()
}

/// The values of a metric, one for each disk.
fn values(lines: &[String], name: &str) -> Vec<f64> {
    let value = |line: &String| {
        let rest = line.strip_prefix(&format!("claystone_{name}{{disk="))?;
        rest.rsplit(' ').next()?.parse().ok()
    };
    lines.iter().filter_map(value).collect()
}

const OBJECTS: [(u64, usize); 5] = [(1, 1), (2, 5000), (3, 300_000), (4, 3 << 20), (5, 9 << 20)];

#[test]
fn a_store_on_images_is_killed_and_started_again() {
    let scratch = Scratch::new();
    format_disks(&scratch);
    let up = start(&scratch);
    let client = up.client(&scratch);
    assert!(client.put("/box", Vec::new()).expect("an answer").ok());
    for (key, bytes) in OBJECTS {
        let put = client.put(&format!("/box/{key}"), content(key, bytes)).expect("an answer");
        assert!(put.ok(), "{put:?}");
    }
    let busy = scratch.run(&["disk", "check", "one.img"]);
    assert!(!busy.ok() && busy.err.contains("in use"), "{}", busy.err);
    up.kill();

    // As the killed store left it: looking changes nothing, not even what its journal says.
    let before = fs::read(scratch.path("one.img")).expect("read");
    let looked = scratch.run(&["disk", "info", "one.img"]);
    assert!(looked.ok() && looked.out.contains("(one.img)"), "{}{}", looked.out, looked.err);
    assert!(before == fs::read(scratch.path("one.img")).expect("read"), "looking wrote something");

    let up = start(&scratch);
    let client = up.client(&scratch);
    for (key, bytes) in OBJECTS {
        let answer = client.get(&format!("/box/{key}")).expect("an answer");
        assert!(answer.status == 200 && answer.body == content(key, bytes), "{key}: {}", answer.status);
    }
    let lines = metrics(&up);
    for name in [
        "disk_sectors_soft_failures_total",
        "disk_sectors_mended_total",
        "disk_sectors_mismatches_mended_total",
        "disk_sectors_retries_total",
        "disk_sectors_retries_avoided_total",
        "disk_sectors_lost_total",
        "disk_scrub_done_groups",
        "disk_scrub_all_groups",
    ] {
        assert_eq!(values(&lines, name).len(), DISKS.len(), "{name}: {lines:#?}");
    }
    until("the count of sectors read", || {
        let read = values(&metrics(&up), "disk_sectors_read_total").iter().sum::<f64>();
        if read > 1000.0 { Ok(()) } else { Err(read.to_string()) }
    });
    assert_eq!(values(&lines, "disk_parity"), [5.0; 3]);
    assert_eq!(values(&lines, "disk_parity_too_little"), [0.0; 3]);
    assert_eq!(values(&lines, "disk_soft_chance_stated"), [0.001; 3]);
    // An image is of a drive that retries by itself: nothing is measured, and nothing is claimed.
    assert_eq!(values(&lines, "disk_soft_chance"), [0.0; 0]);
    assert_eq!(values(&lines, "disk_parity_wanted"), [0.0; 0]);
    assert_eq!(status(&scratch)["disks"][0]["sectors"]["parity_verdict"], "unseen");

    let table = scratch.run(&["status"]).out;
    assert!(table.contains("RETRIES AVOIDED") && table.contains("1.0e-3"), "{table}");

    let asked = scratch.run(&["disk", "info", "two.img", "--json"]);
    let asked: Value = serde_json::from_str(&asked.out).expect("the store answers for its disk");
    assert!(asked["path"].as_str().is_some_and(|path| path.ends_with("two.img")), "{asked}");
    assert!(scratch.run(&["disk", "info", "two.img"]).out.contains("used by        the store"));
    let elsewhere = scratch.run(&["disk", "--dir", "nowhere", "info", "two.img"]);
    assert!(!elsewhere.ok() && elsewhere.err.contains("--dir DIR"), "{}", elsewhere.err);
    assert!(up.stop().success());
}

#[test]
fn a_sector_that_reads_wrong_is_mended_while_the_store_runs() {
    let scratch = Scratch::new();
    format_disks(&scratch);
    let up = start(&scratch);
    let client = up.client(&scratch);
    assert!(client.put("/box", Vec::new()).expect("an answer").ok());
    let body = content(7, 8 << 20);
    assert!(client.put("/box/k", body.clone()).expect("an answer").ok());
    // Until it is in groups, on each of the three.
    pause(Duration::from_secs(1));
    assert!(up.stop().success());
    let image = fs::OpenOptions::new().read(true).write(true).open(scratch.path("one.img")).expect("there");
    let bytes = fs::read(scratch.path("one.img")).expect("read");
    // A sector in the midst of what the object left there; what is in front of it may be the journal.
    let wanted = &body[4 << 20..][..64];
    let at = (0..bytes.len()).rev().find(|at| bytes[*at..].starts_with(wanted));
    let at = at.expect("three copies, one on each disk") as u64 / 4096 * 4096;
    image.write_all_at(&[0x5a; 4096], at).expect("written");
    drop(image);
    let up = start(&scratch);
    let scrub = scratch.run(&["scrub", "--wait"]);
    assert!(scrub.ok(), "{}{}", scrub.out, scrub.err);
    assert!(scrub.out.starts_with("read 24.1 MiB of 1 stripe: 1 whole"), "{}", scrub.out);
    // The page of numbers is made anew now and then.
    until("the mended sector's count", || {
        let lines = metrics(&up);
        assert_eq!(values(&lines, "disk_sectors_lost_total"), [0.0; 3]);
        let mended = values(&lines, "disk_sectors_mismatches_mended_total").iter().sum::<f64>();
        if mended == 1.0 { Ok(()) } else { Err(lines.join("\n")) }
    });
    let answer = up.client(&scratch).get("/box/k").expect("an answer");
    assert!(answer.body == body);
    assert!(up.stop().success());
    let info = scratch.run(&["disk", "info", "one.img"]);
    assert!(
        info.out.contains("mended         1 sector, 1 of them had read wrong"),
        "counts outlive the store: {}",
        info.out
    );
    let mut mended = [0; 4096];
    let image = fs::File::open(scratch.path("one.img")).expect("there");
    image.read_exact_at(&mut mended, at).expect("read");
    assert!(mended[..] == bytes[at as usize..][..4096], "it was not written again");
}
