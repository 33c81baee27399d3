//! Benchmark records: runs the cases of bench/cases and keeps their rows.
//!
//! A case is a TOML file with `command` (arguments of the program), `why`, and `features` if the build needs any. One run
//! of one or more cases appends one JSON line `{commit, machine, started_unix, rows}` to bench/runs/MACHINE.jsonl, and is
//! compared with the line before.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use crate::source::files;

/// Runs the named cases, or all.
pub fn run(root: &Path, names: &[String]) -> anyhow::Result<()> {
    let cases = cases(root, names)?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(&cargo);
    build.current_dir(root).args(["build", "--release", "--package", "claystone"]);
    build.args(cases.iter().flat_map(|case| &case.features).flat_map(|feature| ["--features", feature]));
    ensure!(build.status()?.success(), "the release build failed");
    let mut rows = Vec::new();
    for Case { name, command, .. } in &cases {
        println!("== {name}: claystone {}", command.join(" "));
        rows.extend(measure(root, command).with_context(|| format!("case {name}"))?);
    }
    let machine = machine();
    let path = root.join("bench/runs").join(format!("{machine}.jsonl"));
    if let Some(previous) = fs::read_to_string(&path).ok().and_then(|text| text.lines().last().map(str::to_owned)) {
        compare(&serde_json::from_str(&previous).context("the last line of the record")?, &rows);
    }
    let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let record = json!({ "commit": commit(root), "machine": machine, "started_unix": started, "rows": rows });
    fs::create_dir_all(root.join("bench/runs"))?;
    let mut file = fs::OpenOptions::new().create(true).append(true).open(&path)?;
    writeln!(file, "{record}")?;
    println!("appended {} rows to {}", rows.len(), path.display());
    let missed = rows.iter().filter(|row| row["met"] == Value::Bool(false)).count();
    if missed > 0 {
        bail!("{missed} goal(s) missed");
    }
    Ok(())
}

/// A file of bench/cases.
struct Case {
    name: String,
    command: Vec<String>,
    features: Vec<String>,
}

fn cases(root: &Path, names: &[String]) -> anyhow::Result<Vec<Case>> {
    let mut cases = Vec::new();
    for path in files(&root.join("bench/cases"), "toml") {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let case: toml::Table =
            fs::read_to_string(&path)?.parse().with_context(|| format!("reading {}", path.display()))?;
        let texts = |key| {
            let texts = case.get(key)?.as_array()?.iter();
            Some(texts.filter_map(toml::Value::as_str).map(str::to_owned).collect())
        };
        let command = texts("command").context("a case needs a `command`")?;
        cases.push(Case { name, command, features: texts("features").unwrap_or_default() });
    }
    let known: Vec<String> = cases.iter().map(|case| case.name.clone()).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
        bail!("there is no case {unknown} in bench/cases (there are: {})", known.join(", "));
    }
    cases.retain(|case| names.is_empty() || names.contains(&case.name));
    Ok(cases)
}

fn measure(root: &Path, command: &[String]) -> anyhow::Result<Vec<Value>> {
    let output = Command::new(root.join("target/release/claystone"))
        .args(command)
        .arg("--json")
        .stderr(Stdio::inherit())
        .output()
        .context("starting the program")?;
    let text = String::from_utf8(output.stdout)?;
    let rows: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    for row in &rows {
        println!("{}", describe(row));
    }
    // A missed goal makes the program fail, and is a figure all the same.
    ensure!(!rows.is_empty(), "the program printed no rows ({})", output.status);
    Ok(rows)
}

fn describe(row: &Value) -> String {
    let met = if row["met"] == Value::Bool(false) { "  MISSED" } else { "" };
    let ratio = row["ratio"].as_f64().map_or(String::new(), |ratio| format!("  {ratio:.3} x {}", row["against"]));
    format!("{} {} {} {}{ratio}{met}", row["case"], row["metric"], row["value"], row["unit"])
}

fn compare(previous: &Value, rows: &[Value]) {
    println!("compared with commit {}:", previous["commit"]);
    let old_rows = previous["rows"].as_array().map_or(&[][..], Vec::as_slice);
    for row in rows {
        let old = old_rows.iter().find(|old| ["bench", "case", "metric"].iter().all(|key| old[key] == row[key]));
        if let (Some(old), Some(new)) = (old.and_then(|old| old["value"].as_f64()), row["value"].as_f64())
            && old != 0.0
        {
            println!("  {} {}: {old:.3} -> {new:.3} ({:+.1} %)", row["case"], row["metric"], (new / old - 1.0) * 100.0);
        }
    }
}

fn commit(root: &Path) -> String {
    let output = Command::new("git").current_dir(root).args(["describe", "--always", "--dirty"]).output();
    output.map_or_else(|_| "unknown".to_owned(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// What the figures depend on, without the machine's name: processors and their model.
fn machine() -> String {
    if let Ok(name) = std::env::var("CLAYSTONE_BENCH_MACHINE") {
        return name;
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = info.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let part = |name: &str| field(name).unwrap_or_else(|| "unknown".to_owned());
    format!("{threads}cpu-{}-family{}-model{}", part("vendor_id").to_lowercase(), part("cpu family"), part("model"))
}
