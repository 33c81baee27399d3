//! `claystone bench trace` as a user runs it: on small traces made here, and on recorded ones where CLAYSTONE_TRACES names the
//! directory that has them.

mod running;

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use running::{Run, Scratch};
use serde_json::Value;

/// A week in which one page is written each hour and another page once a day, each in another stripe.
fn week() -> String {
    let mut text = String::new();
    for hour in 0..168_u64 {
        let at = 128_166_372_000_000_000 + hour * 36_000_000_000;
        writeln!(text, "{at},made,3,Write,8192,4096,100").expect("a text");
        if hour % 24 == 0 {
            writeln!(text, "{at},made,3,Write,{},1024,100", (50_u64 << 30) + 4096).expect("a text");
            writeln!(text, "{at},made,3,Read,0,8192,100").expect("a text");
        }
    }
    text
}

/// The rows; a goal may be missed, because metadata are goals for traces of other kinds.
fn rows(run: &Run) -> Vec<Value> {
    assert!(run.ok() || run.err.contains("a goal was missed: metadata"), "{}", run.err);
    run.out.lines().map(|line| serde_json::from_str(line).expect("one object a line")).collect()
}

fn value(rows: &[Value], case: &str, metric: &str, field: &str) -> f64 {
    let row = rows.iter().find(|row| row["case"] == case && row["metric"] == metric);
    row.unwrap_or_else(|| panic!("{case} {metric}"))[field].as_f64().expect("a number")
}

#[test]
fn a_trace_is_counted_in_tables_json_and_a_plot() {
    let scratch = Scratch::new();
    fs::write(scratch.path("week.csv"), week()).expect("written");
    let tables = scratch.run(&["bench", "trace", "week.csv", "--simulate", "--plot", "updates.svg", "--dir", "."]);
    for text in ["msr", "182", "167 h 0 min", "8.0 MiB", "READ-MODIFY-WRITES", "METADATA", "0.042", "last seventh"] {
        let found = tables.out.to_lowercase().contains(&text.to_lowercase());
        assert!(found, "{text}: {} {}", tables.out, tables.err);
    }
    assert!(fs::read_to_string(scratch.path("updates.svg")).expect("written").contains("</svg>"));

    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(week().as_bytes()).expect("in memory");
    fs::write(scratch.path("week.csv.gz"), packed.finish().expect("in memory")).expect("written");
    let rows = rows(&scratch.run(&["bench", "trace", "week.csv.gz", "--simulate", "--json", "--dir", "."]));
    assert_eq!(value(&rows, "4KiB", "page_writes", "value"), 175.0);
    assert_eq!(value(&rows, "4KiB", "read_modify_writes", "value"), 7.0);
    assert_eq!(value(&rows, "1KiB", "read_modify_writes", "value"), 0.0);
    for metric in ["parity_updates", "parity_updates_by_stripe"] {
        assert_eq!(value(&rows, "4KiB reserve 64 pages", metric, "value"), 2.0);
        assert_eq!(value(&rows, "4KiB reserve 64 pages", metric, "against_value"), 175.0);
    }
}

#[test]
fn a_trace_is_replayed_on_a_volume() {
    let scratch = Scratch::new();
    fs::write(scratch.path("week.csv"), week()).expect("written");
    // The week in a third of a second; and as fast as it goes.
    for pace in [["--speed", "2000000x"], ["--depth", "2"]] {
        let run = ["bench", "trace", "week.csv", "--json", "--dir", ".", "--redundancy", "rs:2+1", "--reserve", "16M"];
        let rows = rows(&scratch.run(&[&run[..], &pace[..]].concat()));
        let case = rows[0]["case"].as_str().expect("a text").to_owned();
        assert!(case.starts_with("replay rs:2+1 4KiB"), "{case}");
        assert_eq!(value(&rows, &case, "writes", "value"), 175.0);
        assert_eq!(value(&rows, &case, "reads", "value"), 7.0);
        assert!(value(&rows, &case, "write_p99_ms", "value") > 0.0);
        // Each of the two rows once, when all is merged behind the last request.
        assert_eq!(value(&rows, &case, "parity_updates", "value"), 2.0);
        assert_eq!(value(&rows, &case, "parity_updates", "against_value"), 175.0);
        assert_eq!(value(&rows, &case, "parity_updates_simulated", "value"), 2.0);
    }
    // Copies have no parity to count, with the same requests.
    for code in ["replica:3", "mirror:2x2"] {
        let run = ["bench", "trace", "week.csv", "--json", "--dir", ".", "--redundancy", code, "--reserve", "16M"];
        let rows = rows(&scratch.run(&run));
        let case = rows[0]["case"].as_str().expect("a text").to_owned();
        assert_eq!(value(&rows, &case, "writes", "value"), 175.0);
        assert!(value(&rows, &case, "pages_merged", "value") > 0.0, "{code}");
        assert!(rows.iter().all(|row| row["metric"] != "parity_updates"), "{code}");
    }
    // Of two forms it is told how many data chunks have which; of the second there is room beside the log for one stripe that is mirrored.
    for (redundancy, mirrored_max) in [("replica:3/rs:4+2", 8.0), ("replica:3/rs:4+2<=2330%", 4.0)] {
        let run = ["bench", "trace", "week.csv", "--json", "--dir", ".", "--redundancy", redundancy];
        let rows = rows(&scratch.run(&[&run[..], &["--reserve", "16M"]].concat()));
        let case = rows[0]["case"].as_str().expect("a text").to_owned();
        assert!(case.starts_with(&format!("replay {redundancy} 4KiB")), "{case}");
        assert_eq!(value(&rows, &case, "writes", "value"), 175.0);
        let chunks = |form: &str| value(&rows, &case, &format!("chunks_{form}"), "value");
        let (mirrored, coded) = (chunks("mirrored"), chunks("coded"));
        assert!(mirrored <= mirrored_max && mirrored + coded == 8.0, "{redundancy}: {mirrored}, {coded}");
        assert!(mirrored_max < 8.0 || coded == 0.0, "{redundancy}: {coded}");
        assert!(rows.iter().all(|row| row["metric"] != "parity_updates"), "{redundancy}");
    }
    assert_eq!(fs::read_dir(scratch.path(".")).expect("there").count(), 1, "the disks are gone");
}

#[test]
fn a_trace_is_replayed_by_other_methods() {
    let scratch = Scratch::new();
    fs::write(scratch.path("week.csv"), week()).expect("written");
    let run = ["bench", "trace", "week.csv", "--json", "--dir", ".", "--reserve", "16M"];
    for (method, redundancy) in
        [("naive", "rs:2+1"), ("parity-log", "rs:2+1"), ("speculative", "rs:2+1"), ("replicas", "replica:2")]
    {
        let by = ["--redundancy", redundancy, "--scratch", method];
        let rows = rows(&scratch.run(&[&run[..], &by].concat()));
        let case = format!("replay {redundancy} {method} 4KiB depth 16");
        assert_eq!(value(&rows, &case, "writes", "value"), 175.0);
        assert_eq!(value(&rows, &case, "reads", "value"), 7.0);
        assert!(value(&rows, &case, "write_p99_ms", "value") > 0.0);
        assert_eq!(value(&rows, &case, "log_replays", "value"), 0.0, "logs have room for a week");
        assert!(rows.iter().all(|row| row["metric"] != "merges"), "{method}");
    }
    // 1,000 requests fill logs of a mebibyte.
    let made = ["bench", "trace", "--json", "--dir", ".", "--limit", "1000", "--size", "64M", "--reserve", "1M"];
    let rows = rows(&scratch.run(&[&made[..], &["--redundancy", "rs:2+1", "--scratch", "parity-log"]].concat()));
    assert!(value(&rows, "replay rs:2+1 parity-log 4KiB depth 16", "log_replays", "value") > 0.0);
    for (by, said) in [
        (&["--scratch", "naive", "--simulate"][..], "cannot be used with"),
        (&["--scratch", "replicas"], "goes with replica:N"),
        (&["--scratch", "naive", "--redundancy", "replica:3/rs:4+2"], "has one code"),
    ] {
        let refused = scratch.run(&[&run[..], by].concat());
        assert!(!refused.ok() && refused.err.contains(said), "{by:?}: {}", refused.err);
    }
}

#[test]
fn without_a_trace_one_is_made() {
    let scratch = Scratch::new();
    let run = ["bench", "trace", "--json", "--dir", ".", "--limit", "500", "--size", "64M", "--reserve", "32M"];
    let rows = rows(&scratch.run(&run));
    let case = rows[0]["case"].as_str().expect("a text").to_owned();
    let requests = value(&rows, &case, "writes", "value") + value(&rows, &case, "reads", "value");
    assert_eq!((case.as_str(), requests), ("replay rs:4+2 4KiB depth 16", 500.0));
    assert!(value(&rows, &case, "parity_updates", "value") > 0.0);
    let run = scratch.run(&["bench", "trace", "--dir", ".", "--limit", "500", "--size", "64M", "--reserve", "32M"]);
    assert!(run.ok() && run.out.contains("made here"), "{} {}", run.out, run.err);
}

#[test]
fn what_cannot_be_played_is_said() {
    let scratch = Scratch::new();
    fs::write(scratch.path("wrong.csv"), format!("{}what is this\n", week())).expect("written");
    fs::write(scratch.path("empty.csv"), "").expect("written");
    for (arguments, said) in [
        (&["wrong.csv"][..], "line 183: it has 1 columns, not 7"),
        (&["empty.csv"], "there is no request"),
        (&["nowhere.csv"], "nowhere.csv"),
        (&["wrong.csv", "--limit", "5", "--volume", "9"], "line 183"),
        (&["wrong.csv", "--limit", "5", "--redundancy", "replica:3"], "no parity"),
        (&["wrong.csv", "--limit", "5", "--redundancy", "replica:3/rs:4+2"], "no parity that each write"),
        (&["wrong.csv", "--format", "tencent"], "line 1: it has 7 columns, not 5"),
        (&["wrong.csv", "--limit", "5", "--page", "3k"], "1k, 2k, 4k or 8k"),
    ] {
        let run = scratch.run(&[&["bench", "trace", "--simulate", "--dir", "."], arguments].concat());
        assert!(!run.ok() && run.err.contains(said), "{arguments:?}: {}", run.err);
    }
}

/// Values of another program: `checks/trace_check.py` beside the traces.
// Test of: [drc-dpu §real-world workloads]
#[test]
fn recorded_weeks_cost_what_others_counted() {
    let Some(traces) = std::env::var_os("CLAYSTONE_TRACES").map(PathBuf::from) else { return };
    let scratch = Scratch::new();
    for (name, left) in
        [("rsrch_1", &[(64, 95), (1024, 88), (4096, 74)][..]), ("wdev_1", &[(64, 27)]), ("wdev_3", &[(64, 9)])]
    {
        let file = traces.join(Path::new("msr_full").join(format!("{name}.csv.gz")));
        let file = file.to_str().expect("UTF-8");
        let rows = rows(&scratch.run(&["bench", "trace", file, "--simulate", "--json", "--dir", "."]));
        for (reserve, percent) in left {
            let case = format!("4KiB reserve {reserve} pages");
            let found = 100.0 * value(&rows, &case, "parity_updates", "ratio");
            assert_eq!(found.round() as i64, *percent, "{name} {reserve}: {found}");
        }
    }
}
