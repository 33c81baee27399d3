//! A bucket whose redundancy follows what is read: merged and split under readers, over kills and a lost disk.

mod running;

use std::fs;

use running::client::Client;
use running::store::{content, status, until};
use running::{Scratch, Up};
use serde_json::Value;

/// Eight rows of the fast code's two data chunks of 64 KiB, and some bytes behind them.
const BYTES: usize = (1 << 20) + 5000;
const POLICY: &str = "rsm:2+1/rsm:4+1<=200%,0.25..1.00";

fn ok(scratch: &Scratch, arguments: &[&str]) -> String {
    let run = scratch.run(arguments);
    assert!(run.ok(), "{arguments:?}: {}{}", run.out, run.err);
    run.out
}

/// The object is whole; how it is kept.
fn read(client: &Client, key: &str, seed: u64) -> String {
    let got = client.get(&format!("/photos/{key}")).expect("an answer");
    assert!(got.ok(), "{key}: {:?}", got.error());
    assert!(got.body == content(seed, BYTES), "{key} has other bytes");
    got.header("x-claystone-state").to_owned()
}

/// What the console tells Prometheus.
fn metrics(up: &Up, scratch: &Scratch) -> String {
    let (_, console) = up.said().split_once("console on http://").expect("the ready line names it");
    let client = Client { address: console.trim().parse().expect("an address"), ..up.client(scratch) };
    let answer = client.exchange(b"GET /metrics HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n");
    String::from_utf8(answer.expect("an answer").body).expect("text")
}

/// The code of the first stripe of the first object, without reading it.
fn code(scratch: &Scratch) -> String {
    let report = ok(scratch, &["policy", "explain", "photos", "0", "--json"]);
    let report: Value = serde_json::from_str(&report).expect("json");
    report["stripes"][0]["code"].as_str().expect("a text").to_owned()
}

#[test]
fn a_bucket_becomes_compact_and_fast_again_under_readers_and_kills() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("claystone-data")).expect("new");
    fs::write(scratch.path("claystone-data/claystone.toml"), "convert_after_minutes = 0\nreclaim_seconds = 0\n")
        .expect("written");
    let up = Up::start(&scratch, &[]);
    ok(&scratch, &["bucket", "create", "photos"]);
    let said = ok(&scratch, &["policy", "set", "photos", POLICY, "--space-at-most", "1.9x"]);
    assert!(said.contains("<=190%"), "{said}");
    let client = up.client(&scratch);
    for seed in 0..4 {
        assert!(client.put(&format!("/photos/{seed}"), content(seed, BYTES)).expect("an answer").ok());
    }
    // Setting it makes upkeep look at once.
    ok(&scratch, &["policy", "set", "photos", POLICY]);
    until("the bucket is compact", || {
        let of = &status(&scratch)["policies"][0];
        let is_done =
            of["compact_bytes"].as_u64() > Some(0) && of["conversions_left"] == 0 && code(&scratch) == "rsm:4+1";
        if is_done { Ok(()) } else { Err(of.to_string()) }
    });
    (0..4).for_each(|seed| assert_eq!(read(&client, &seed.to_string(), seed), "compact"));
    let metrics = metrics(&up, &scratch);
    assert!(metrics.contains("claystone_conversions_total{state=\"merged\"} 2"), "{metrics}");
    // The tail of each object is a stripe of its own, which is too short to be coded.
    let shown = ok(&scratch, &["status"]);
    assert!(shown.contains("photos") && shown.contains("2 made compact"), "{shown}");
    let explained = ok(&scratch, &["policy", "explain", "photos"]);
    assert!(explained.contains("it stays compact") && explained.contains("it has replica:2"), "{explained}");
    let shown = ok(&scratch, &["policy", "show", "photos"]);
    assert!(shown.contains(POLICY), "{shown}");

    up.kill();
    let up = Up::start(&scratch, &[]);
    let client = up.client(&scratch);
    assert_eq!(code(&scratch), "rsm:4+1");
    let disks: Value = serde_json::from_str(&ok(&scratch, &["disk", "list", "--json"])).expect("json");
    let lost = disks["disks"][0]["id"].as_str().expect("an id");
    ok(&scratch, &["disk", "remove", lost, "--now"]);
    (0..3).for_each(|_| assert_eq!(read(&client, "0", 0), "compact"));
    running::store::healed(&scratch);
    read(&client, "0", 0);
    ok(&scratch, &["policy", "set", "photos", POLICY]);
    until("what is read is fast again", || {
        let code = code(&scratch);
        if code == "rsm:2+1" { Ok(()) } else { Err(code) }
    });
    assert_eq!(read(&client, "0", 0), "fast");
    (1..4).for_each(|seed| assert!(["fast", "compact"].contains(&&*read(&client, &seed.to_string(), seed))));

    for (arguments, wanted) in [
        (&["policy", "set", "photos", "pc"][..], "42 disks"),
        (&["policy", "set", "photos", "auto"], "too few"),
        (&["policy", "set", "photos", "raid"], "policy list"),
        (&["policy", "set", "photos", POLICY, "--cold-below", "1.50"], "must be above"),
        (&["policy", "set", "nowhere", POLICY], "no bucket"),
        (&["policy", "explain", "photos", "nothing"], "no object"),
    ] {
        let run = scratch.run(arguments);
        assert!(!run.ok() && run.err.contains(wanted), "{arguments:?}: {}", run.err);
    }
    ok(&scratch, &["policy", "set", "photos", "none"]);
    assert!(ok(&scratch, &["policy", "explain", "photos"]).contains("has no policy"));
    assert!(up.stop().success());
}
