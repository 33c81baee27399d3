//! A bucket whose redundancy follows what is read: merged and split under readers, over kills and a lost disk.

mod running;

use std::fs;

use running::client::Client;
use running::store::{content, status, until};
use running::{Scratch, Up};
use serde_json::Value;

/// Eight rows of the fast code's two data chunks of 64 KiB, and some bytes behind them.
const BYTES: usize = (1 << 20) + 5000;
/// Of the chunks of these rows.
const CHUNK_BYTES: u64 = 8 << 16;
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

/// Two merges of two fast stripes each, of which nothing else is left to convert: as one object and for people.
fn merged_shows_in_status(status: &Value, shown: &str) {
    let (of, done) = (&status["policies"][0], &status["conversions"]);
    let number = |of: &Value, name: &str| of[name].as_u64().unwrap_or_else(|| panic!("no {name}: {of}"));
    assert_eq!(number(of, "data_bytes"), 4 * BYTES as u64);
    // The tail of each object is a stripe of its own, which is too short to be coded.
    let by_state = ["fresh_bytes", "fast_bytes", "compact_bytes", "other_bytes"].map(|state| number(of, state));
    let [0, 0, compact, other] = by_state else { panic!("{of}") };
    assert_eq!(compact, 2 * 5 * CHUNK_BYTES);
    assert!(other >= 2 * 4 * 5000, "tails have a copy each: {of}");
    let percent = 100.0 * (compact + other) as f64 / (4.0 * BYTES as f64);
    assert!((of["percent"].as_f64().expect("a number") - percent).abs() < 1e-9, "{of}");
    assert_eq!((number(of, "percent_max"), number(of, "conversions_left")), (200, 0));
    let counts = ["encoded", "merged", "split", "saved_bytes"].map(|count| number(done, count));
    assert_eq!(counts, [0, 2, 0, 2 * CHUNK_BYTES], "of six chunks five are left");
    let moved = |of: &str| number(&done["merging"], of);
    assert_eq!([moved("read_bytes"), moved("written_bytes")], [2 * 2 * CHUNK_BYTES, 2 * CHUNK_BYTES]);

    let row = |name: &str| -> Vec<&str> {
        let line = shown.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name}: {shown}"));
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
    };
    let heading = ["BUCKET", "POLICY", "OBJECTS", "FRESH", "FAST", "COMPACT", "OTHER", "TAKES", "BOUND", "LEFT"];
    assert_eq!(row("BUCKET "), heading);
    let (other, takes) = (format!("{:.1} KiB", other as f64 / 1024.0), format!("{percent:.1} %"));
    assert_eq!(
        row("photos "),
        ["photos", POLICY, "4.0 MiB", "0 B", "0 B", "5.0 MiB", &other, &takes, "200 %", "0"],
        "{shown}"
    );
    let converted = "2 made compact, 0 made fast, 0 encoded of replicas; 1.0 MiB given back, ";
    assert!(shown.contains(converted), "{shown}");
}

/// The same as Prometheus gets it.
fn merged_shows_in_metrics(status: &Value, metrics: &str) {
    let (of, done) = (&status["policies"][0], &status["conversions"]);
    for (sample, value) in [
        ("claystone_policy_buckets", &Value::from(1)),
        ("claystone_policy_data_bytes", &of["data_bytes"]),
        ("claystone_policy_chunk_bytes{state=\"fresh\"}", &of["fresh_bytes"]),
        ("claystone_policy_chunk_bytes{state=\"fast\"}", &of["fast_bytes"]),
        ("claystone_policy_chunk_bytes{state=\"compact\"}", &of["compact_bytes"]),
        ("claystone_policy_chunk_bytes{state=\"other\"}", &of["other_bytes"]),
        ("claystone_policy_chunk_bytes_max", &Value::from(2 * 4 * BYTES)),
        ("claystone_conversions_left", &of["conversions_left"]),
        ("claystone_conversions_total{state=\"encoded\"}", &done["encoded"]),
        ("claystone_conversions_total{state=\"merged\"}", &done["merged"]),
        ("claystone_conversions_total{state=\"split\"}", &done["split"]),
        ("claystone_conversion_saved_bytes", &done["saved_bytes"]),
        ("claystone_conversion_moved_bytes_total", &done["moved_bytes"]),
    ] {
        let line = format!("{sample} {value}");
        assert!(metrics.lines().any(|of| of == line), "{line}: {metrics}");
    }
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
        let is_done = of["compact_bytes"].as_u64() > Some(0)
            && (&of["conversions_left"], &of["percent_max"]) == (&Value::from(0), &Value::from(200))
            && code(&scratch) == "rsm:4+1";
        if is_done { Ok(()) } else { Err(of.to_string()) }
    });
    (0..4).for_each(|seed| assert_eq!(read(&client, &seed.to_string(), seed), "compact"));
    let told = status(&scratch);
    merged_shows_in_status(&told, &ok(&scratch, &["status"]));
    merged_shows_in_metrics(&told, &metrics(&up, &scratch));
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

#[test]
fn a_store_with_a_policy_gives_it_to_new_buckets_that_name_no_code() {
    let scratch = Scratch::new();
    let up = Up::start(&scratch, &["--policy", POLICY]);
    ok(&scratch, &["bucket", "create", "photos"]);
    ok(&scratch, &["bucket", "create", "logs", "--code", "replica:3"]);
    ok(&scratch, &["bucket", "create", "films"]);
    ok(&scratch, &["bucket", "code", "films", "rs:2+1"]);
    let buckets: Value = serde_json::from_str(&ok(&scratch, &["bucket", "list", "--json"])).expect("json");
    let of = |name: &str| {
        let all = buckets["buckets"].as_array().expect("a list");
        let bucket = all.iter().find(|bucket| bucket["name"] == name).expect("it is there");
        (bucket["policy"].as_str().map(str::to_owned), bucket["code"].as_str().map(str::to_owned))
    };
    assert_eq!(of("photos"), (Some(POLICY.to_owned()), None));
    assert_eq!(of("logs"), (None, Some("replica:3".to_owned())));
    assert_eq!(of("films"), (None, Some("rs:2+1".to_owned())), "a code that is named takes the place of the policy");
    let client = up.client(&scratch);
    let told =
        |name: &str| client.request("HEAD", name).send().expect("an answer").header("x-claystone-code").to_owned();
    assert_eq!((told("/photos"), told("/logs")), ("rsm:2+1".to_owned(), "replica:3".to_owned()));
    // The same again is no error, and with another code it is.
    ok(&scratch, &["bucket", "create", "logs", "--code", "replica:3"]);
    let other = scratch.run(&["bucket", "create", "logs", "--code", "replica:2"]);
    assert!(!other.ok() && other.err.contains("other settings"), "{}", other.err);
    assert!(up.stop().success());
}
