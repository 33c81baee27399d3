//! `claystone demo --adaptive`: what it shows, and that every goal of it is met.

mod running;

use running::Scratch;
use serde_json::Value;

#[test]
fn a_bucket_goes_from_copies_to_codes_and_back_over_two_kills_and_a_lost_disk() {
    let scratch = Scratch::new();
    let run = scratch.run(&["demo", "--adaptive", "--json", "demo"]);
    // Where the machine's disk is nearly full there are no copies to begin with, as a store there would have it; the rest is as elsewhere.
    let has_copies = !run.err.contains("less than a tenth of the space is free");
    assert!(run.ok() || !has_copies, "{}{}", run.out, run.err);
    let rows: Vec<Value> = run.out.lines().map(|line| serde_json::from_str(line).expect("json")).collect();
    let row = |case: &str, metric: &str| {
        let found = rows.iter().find(|row| row["case"] == case && row["metric"] == metric);
        found.unwrap_or_else(|| panic!("no {metric} of {case}: {}", run.out)).clone()
    };
    assert_eq!(row("adaptive", "objects_equal_ratio")["value"], 1.0);
    assert!(row("adaptive", "reads")["value"].as_f64() > Some(20.0 * 24.0));
    assert_eq!([row("adaptive", "kills")["value"].clone(), row("adaptive", "disks_lost")["value"].clone()], [2.0, 1.0]);
    // Parities made, of all chunks: 8 of 20, 2 of 16, 6 of 20.
    let phases = [("copies to fast", 0.4), ("fast to compact", 0.125), ("compact to fast", 0.3)];
    for (case, ratio) in phases.into_iter().skip(usize::from(!has_copies)) {
        assert!(row(case, "conversions")["value"].as_f64() > Some(0.0), "{case}: {}", run.out);
        let written = row(case, "written_bytes")["ratio"].as_f64().expect("it is compared");
        assert!((written - ratio).abs() < 1e-9, "{case}: {written}");
    }
    // What a client moved who copied it: all data three times, and four chunks for three.
    let moved = row("fast to compact", "moved_bytes");
    let copied = row("copied by a client", "read_bytes")["value"].as_f64().expect("bytes");
    assert_eq!(row("copied by a client", "written_bytes")["value"].as_f64(), Some(copied / 3.0 * 4.0));
    let ratio = moved["ratio"].as_f64().expect("it is compared");
    assert!(ratio <= 0.2 && moved["against"] == "copying", "{moved}");
    assert!(ratio >= 8.0 / 52.0 - 1e-9, "less than the plan moves: {moved}");
    let missed: Vec<&Value> = rows.iter().filter(|row| row["met"] == false).map(|row| &row["metric"]).collect();
    let due: &[&str] = if has_copies { &[] } else { &["objects_new_as_copies"] };
    assert_eq!(missed, due, "{}", run.out);
    assert!(!scratch.path("demo").exists(), "it cleans up");
}
