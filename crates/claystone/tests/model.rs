//! `claystone model` as a user runs it.

mod running;

use std::fs;

use running::Scratch;

#[test]
fn local_coding_is_told_in_tables_json_and_plots() {
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.path("tree/below")).expect("made");
    fs::write(scratch.path("tree/small"), b"x").expect("written");
    fs::write(scratch.path("tree/below/large"), vec![0; 250 * 4096]).expect("written");
    std::os::unix::fs::symlink("large", scratch.path("tree/below/link")).expect("linked");
    fs::hard_link(scratch.path("tree/small"), scratch.path("tree/again")).expect("linked");

    let tables = scratch.run(&["model", "lec", "--trials", "200", "--tree", "tree", "--plot", "plots"]);
    assert!(tables.ok(), "{}", tables.err);
    for text in ["rs:250+5", "rs:1004+19", "2 copies", "like pagerank"] {
        assert!(tables.out.contains(text), "{text}: {}", tables.out);
    }
    for plot in ["plots/lec-overhead.svg", "plots/lec-tails-0.001.svg", "plots/lec-files.svg"] {
        assert!(fs::read_to_string(scratch.path(plot)).expect("written").contains("</svg>"), "{plot}");
    }
    for plot in ["plots/lec-gains.png", "plots/lec-tails-0.005.png", "plots/lec-files.png"] {
        assert!(fs::read(scratch.path(plot)).expect("written").starts_with(b"\x89PNG"), "{plot}");
    }

    let json = scratch.run(&["model", "lec", "--json", "--trials", "0", "--tree", "tree"]);
    let rows: Vec<serde_json::Value> =
        json.out.lines().map(|line| serde_json::from_str(line).expect("one object a line")).collect();
    let is_tree = |row: &&serde_json::Value| row["files"] == "tree" && row["code"] == "rs:250+5";
    let percent = rows.iter().find(is_tree).expect("a row of the tree")["overhead_percent"].as_f64().expect("a number");
    // 250 sectors with their checksums in the catalog, and a byte that lies there itself, in a record of which 36 fit into a page: the link and the second name do not count.
    let kept = 5.0 * 4096.0 + 2.0 * 4.0 * 250.0 + (2.0 * 4096.0 / 36.0 - 1.0);
    assert!((percent - 100.0 * kept / (250.0 * 4096.0 + 1.0)).abs() < 1e-9, "{percent}");

    let missing = scratch.run(&["model", "lec", "--tree", "nowhere"]);
    assert!(!missing.ok() && missing.err.contains("nowhere"), "{}", missing.err);
}
