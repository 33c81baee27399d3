//! `claystone bench adapt` as a user runs it, at its smallest.

mod running;

use std::fs;

use running::{Run, Scratch};
use serde_json::Value;

fn rows(run: &Run) -> Vec<Value> {
    assert!(run.ok(), "{}", run.err);
    run.out.lines().map(|line| serde_json::from_str(line).expect("one object a line")).collect()
}

fn value(rows: &[Value], case: &str, metric: &str) -> f64 {
    let row = rows.iter().find(|row| row["case"] == case && row["metric"] == metric);
    row.unwrap_or_else(|| panic!("{case} {metric}"))["value"].as_f64().expect("a number")
}

/// Test of: [hacfs §3.2], [hacfs §3.3], [hacfs §5.3]
#[test]
fn what_codes_move_is_counted_at_the_stores() {
    let scratch = Scratch::new();
    // A thousand chunks are synced: in memory where the system has a place for that.
    let memory = tempfile::tempdir_in("/dev/shm");
    let place = memory.as_ref().map_or(".", |memory| memory.path().to_str().expect("text"));
    let run = ["bench", "adapt", "--quick", "--set-up", "machine", "--workload", "cc1"];
    let run = scratch.run(&[&run[..], &["--system", "hacfs-lrc", "--json", "--dir", place]].concat());
    assert!(run.err.contains("CLAYSTONE_FACEBOOK"), "what is left out is said: {}", run.err);
    let rows = rows(&run);
    for (case, data, parity, written) in [
        ("pc:2x5 to pc:6x5", 0.0, 15.0, 6.0),
        ("pc:6x5 to pc:2x5", 20.0, 5.0, 18.0),
        ("lrc:12+6+2 to lrc:12+2+2", 0.0, 6.0, 2.0),
        ("lrc:12+2+2 to lrc:12+6+2", 8.0, 2.0, 6.0),
        ("rsm:6+3 to rsm:12+3", 0.0, 6.0, 3.0),
        ("rsm:10+4 to rsm:20+4", 0.0, 8.0, 4.0),
    ] {
        let counted = ["data_chunks_read", "parity_chunks_read", "chunks_written"].map(|of| value(&rows, case, of));
        assert_eq!(counted, [data, parity, written], "{case}");
    }
    // The same copied to a new bucket: all data read, and all chunks of the new code written.
    for (case, at_disks, with_client) in [
        ("pc:2x5 to pc:6x5", 30.0 + 42.0, 2.0 * 30.0),
        ("lrc:12+6+2 to lrc:12+2+2", 12.0 + 16.0, 2.0 * 12.0),
        ("rsm:6+3 to rsm:12+3", 12.0 + 15.0, 2.0 * 12.0),
        ("rsm:10+4 to rsm:20+4", 20.0 + 24.0, 2.0 * 20.0),
    ] {
        let of_copying = |metric: &str| {
            let row = rows.iter().find(|row| row["case"] == case && row["metric"] == metric).expect("it is compared");
            let is_fifth = row["ratio"].as_f64().expect("it is compared") <= 0.2;
            assert_eq!(is_fifth, metric != "at_disks_beside_copying", "{row}");
            row["against_value"].as_f64()
        };
        assert_eq!(of_copying("at_disks_beside_copying"), Some(at_disks), "{case}");
        assert_eq!(of_copying("moved_beside_client_copying"), Some(at_disks + with_client), "{case}");
        of_copying("written_beside_copying");
    }
    for (case, data_most, moved) in [
        ("rebuild pc:2x5", 2.0, 5.4),
        ("rebuild pc:6x5", 5.0, 8.4),
        ("rebuild lrc:12+6+2", 2.0, 20.0 / 3.0),
        ("rebuild lrc:12+2+2", 6.0, 31.0 / 3.0),
        ("rebuild rs:6+3", 6.0, 10.5),
        ("rebuild rs:10+4", 10.0, 15.4),
    ] {
        assert_eq!(value(&rows, case, "data_chunk_read_most"), data_most, "{case}");
        let counted = value(&rows, case, "moved_per_data_chunk");
        assert!((counted - moved).abs() < 1e-9, "{case}: {counted}");
    }
    // The workload, small: eight files of which one is hot on the first day. 16 chunks for twelve if all are compact, and 20 if fast.
    let of = |metric| value(&rows, "machine cc1 hacfs-lrc", metric);
    // Some of it is fast when it is put, and the rest compact at once: the bound holds from the first byte on.
    for metric in ["space_as_put_percent", "space_mean_percent", "space_max_percent"] {
        assert!((133.33..=140.0).contains(&of(metric)), "{metric} {}", of(metric));
    }
    assert!(of("space_as_put_percent") > 134.0, "{}", of("space_as_put_percent"));
    assert_eq!(value(&rows, "machine hacfs-lrc", "space_percent"), of("space_max_percent"));
    // Six chunks read and two written for each merge.
    assert!(of("conversions") >= 1.0 && of("convert_read_bytes") >= 6.0 * of("conversions") * f64::from(64 << 10));
    assert!(of("degraded_reads") >= 1.0 && (2.0..=6.0).contains(&of("degraded_chunks_mean")));
    assert!(of("degraded_p50_ms") > 0.0 && of("degraded_p99_ms") >= of("degraded_p50_ms"));
    // Rebuilt is what was lost, and for it are read six chunks at most, or all data for a global parity.
    assert_eq!(of("rebuild_written_bytes"), of("rebuild_lost_bytes"));
    assert!((2.0..=12.0).contains(&of("rebuild_read_per_lost_byte")), "{}", of("rebuild_read_per_lost_byte"));
    assert!(of("rebuild_disk_s") > 0.0);
}

#[test]
fn a_workload_is_simulated_in_tables_json_and_plots() {
    let scratch = Scratch::new();
    let simulated = ["bench", "adapt", "--quick", "--set-up", "simulated"];
    let with = |more: &[&str]| scratch.run(&[&simulated[..], more].concat());
    let systems = ["--system", "rs:10+4", "--system", "hacfs-pc"];
    let json = with(&[&["--workload", "cc3", "--json"], &systems[..]].concat());
    let rows = rows(&json);
    assert_eq!(value(&rows, "cc3 rs:10+4", "space_max_percent"), 140.0);
    let most = value(&rows, "cc3 hacfs-pc", "space_max_percent");
    assert!(most > 141.0 && most <= 150.0, "{most}");
    assert!(value(&rows, "cc3 hacfs-pc unbounded", "space_mean_percent") > 150.0);
    let moved = |system| value(&rows, &format!("cc3 {system}"), "rebuild_moved_per_data_chunk");
    assert!((14.5..16.5).contains(&moved("rs:10+4")) && (7.0..8.6).contains(&moved("hacfs-pc")));
    let chunks = |system| value(&rows, &format!("cc3 {system}"), "degraded_chunks_mean");
    assert_eq!(chunks("rs:10+4"), 10.0);
    assert!((2.0..4.6).contains(&chunks("hacfs-pc")), "{}", chunks("hacfs-pc"));
    assert_eq!(value(&rows, "cc3 hacfs-pc", "unreadable"), 0.0);
    assert!(json.out == with(&[&["--workload", "cc3", "--json"], &systems[..]].concat()).out, "a seed repeats all");

    // A thousand files of any length are merged all the same, and zeros count.
    let short = self::rows(&with(&["--workload", "short", "--system", "hacfs-pc", "--json"]));
    assert!(value(&short, "short hacfs-pc", "merged") > 100.0);
    let most = value(&short, "short hacfs-pc", "space_max_percent");
    assert!(most <= 150.0, "{most}");

    fs::write(scratch.path("FB-1.tsv"), "job0\t9\t9\t2000000000\t0\t5\ta\njob1\t50\t9\t1000000\t0\t5\tb\n")
        .expect("written");
    let facebook = ["--workload", "cc1", "--facebook", "FB-1.tsv", "--plot", "plots", "--system", "clay-cold"];
    let tables = with(&facebook);
    for text in ["cc1 (synthetic", "fb-1 (recorded", "clay-cold", "160 %"] {
        assert!(tables.out.contains(text), "{text}: {}{}", tables.out, tables.err);
    }
    for name in ["degraded-reads", "rebuilding", "space"] {
        let plot = fs::read_to_string(scratch.path(&format!("plots/adapt-{name}.svg"))).expect("written");
        assert!(plot.contains("</svg>") && plot.contains("clay-cold"), "{name}");
    }
    let missing = with(&["--facebook", "nowhere"]);
    assert!(!missing.ok() && missing.err.contains("SWIM"), "{}", missing.err);
    let unknown = with(&["--system", "raid"]);
    assert!(!unknown.ok() && unknown.err.contains("hacfs-lrc"), "{}", unknown.err);
}
