//! `claystone bench small` as a user runs it, at its smallest.

mod running;

use running::Scratch;
use serde_json::Value;

#[test]
fn small_objects_have_no_file_of_their_own() {
    let scratch = Scratch::new();
    // What was packed gives its files back at once, not after a minute.
    let run = scratch.shell("CLAYSTONE_RECLAIM_SECONDS=1 claystone bench small --quick --json --dir .");
    assert!(run.ok(), "{}{}", run.out, run.err);
    let rows: Vec<Value> = run.out.lines().map(|line| serde_json::from_str(line).expect("one object a line")).collect();
    let value = |case: &str, metric: &str| {
        let row = rows.iter().find(|row| row["case"] == case && row["metric"] == metric);
        row.unwrap_or_else(|| panic!("no {metric} of {case}: {}", run.out))["value"].as_f64().expect("a number")
    };
    for metric in ["put_objects_per_s", "put_p99_ms", "list_1000_p99_ms", "get_objects_per_s", "records_per_object"] {
        assert!(value("many", metric) > 0.0, "{metric}");
    }
    // Six files for a pack, which holds hundreds of them; of those that came one by one, all forty are in one.
    assert!(value("many", "files_per_object") < 0.1, "{}", run.out);
    assert!(value("alone", "files_per_object") < 0.2, "{}", run.out);
    assert!(value("many", "space_ratio") < 1.8 && value("alone", "space_ratio") < 1.8, "{}", run.out);
    // They were copies before.
    assert!(value("alone", "space_at_first_ratio") > 2.9, "{}", run.out);
}
