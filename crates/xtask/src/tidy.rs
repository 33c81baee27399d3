//! What protects the architecture, checked on every commit.
//!
//! Checks:
//! 1. A crate's `[dependencies]` name crates of lower levels only (the table in docs/architecture.md).
//! 2. `unsafe` is in the kernels of `code`, in `capi`, where `bench` calls ISA-L and in the io_uring of `host` only; in tests,
//!    where allocations are counted.
//! 3. Every file opens with a `//!` header.
//! 4. No unfinished work is left: see [`UNFINISHED`].
//! 5. No file is called utils, common or misc: a file is one noun.
//!
//! Left out: lengths and wording. They are for the reader's eye.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::source::{Source, code_of, sources};

/// Everything that is wrong, one line each.
pub fn findings(root: &Path) -> Vec<String> {
    let mut findings = match fs::read_to_string(root.join("docs/architecture.md")) {
        Ok(text) => levels(&text, &manifests(root)),
        Err(error) => vec![format!("docs/architecture.md: the table of levels cannot be read: {error}")],
    };
    for source in sources(root) {
        findings.extend(file_findings(&source));
    }
    findings
}

fn file_findings(source: &Source) -> Vec<String> {
    let path = &source.path;
    let mut findings = Vec::new();
    if !source.text.starts_with("//!") {
        findings.push(format!(
            "{path}:1: opens without a `//!` header: say in one sentence what it is, then what it keeps"
        ));
    }
    let vague = path.split('/').map(|name| name.trim_end_matches(".rs")).any(|name| VAGUE.contains(&name));
    if vague {
        findings.push(format!("{path}: name it after the one noun that it is about"));
    }
    for (number, line) in source.text.lines().enumerate() {
        let number = number + 1;
        let code = code_of(line);
        if words(&code).any(|word| word == "unsafe" || word == "unsafe_code") && !may_be_unsafe(path) {
            findings.push(format!("{path}:{number}: unsafe code belongs in {}", UNSAFE.join(", ")));
        }
        for (name, called) in UNFINISHED {
            let found = if called { has_macro(&code, name) } else { words(line).any(|word| word == name) };
            if found && !path.starts_with("crates/xtask/") {
                findings.push(format!("{path}:{number}: unfinished work: {name}"));
            }
        }
    }
    findings
}

/// Whether `name!` is called in this code.
fn has_macro(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let alone = !before.is_some_and(|character| character.is_alphanumeric() || character == '_');
        alone && code[at + name.len()..].starts_with('!')
    })
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|character: char| !character.is_alphanumeric() && character != '_')
}

fn may_be_unsafe(path: &str) -> bool {
    UNSAFE.iter().any(|place| path.starts_with(place))
}

/// Crate by crate, the workspace crates in its `[dependencies]`; names without the prefix `claystone-`.
fn manifests(root: &Path) -> BTreeMap<String, Vec<String>> {
    let mut manifests = BTreeMap::new();
    let crates = fs::read_dir(root.join("crates")).into_iter().flatten().flatten();
    for entry in crates {
        let Ok(text) = fs::read_to_string(entry.path().join("Cargo.toml")) else { continue };
        manifests.insert(entry.file_name().to_string_lossy().into_owned(), own_dependencies(&text));
    }
    manifests
}

fn own_dependencies(manifest: &str) -> Vec<String> {
    let manifest: toml::Table = manifest.parse().expect("cargo has read this manifest before us");
    let mut tables: Vec<&toml::Value> = manifest.get("dependencies").into_iter().collect();
    if let Some(targets) = manifest.get("target").and_then(toml::Value::as_table) {
        tables.extend(targets.values().filter_map(|target| target.get("dependencies")));
    }
    let names = tables.into_iter().filter_map(toml::Value::as_table).flat_map(toml::Table::keys);
    names.filter_map(|name| name.strip_prefix("claystone-")).map(str::to_owned).collect()
}

fn levels(architecture: &str, manifests: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let levels = level_table(architecture);
    if levels.is_empty() {
        return vec!["docs/architecture.md: no table with rows like `| 0 | `code` | ... |`".to_owned()];
    }
    let mut findings = Vec::new();
    for (user, used) in manifests {
        let Some(level) = levels.get(user) else {
            findings.push(format!("crates/{user}: has no row in the table of levels in docs/architecture.md"));
            continue;
        };
        for used in used {
            let allowed = match (level, levels.get(used)) {
                (Some(level), Some(Some(used))) => used < level,
                // Tools without a level may use everything that has one.
                (None, Some(_)) => true,
                _ => false,
            };
            if !allowed {
                findings.push(format!("crates/{user}/Cargo.toml: may not use `{used}`, which is not of a lower level"));
            }
        }
    }
    findings
}

/// Crate to level; `-` in the table is no level.
fn level_table(architecture: &str) -> BTreeMap<String, Option<u32>> {
    let rows = architecture.lines().filter_map(|line| {
        let mut cells = line.trim().strip_prefix('|')?.split('|').map(str::trim);
        let (level, name) = (cells.next()?, cells.next()?);
        let name = name.strip_prefix('`')?.strip_suffix('`')?;
        let level = if level == "-" { None } else { Some(level.parse().ok()?) };
        Some((name.to_owned(), level))
    });
    rows.collect()
}

/// Words of unfinished work, and whether it is a macro's name (in code) or any word (comments too).
const UNFINISHED: [(&str, bool); 4] = [("todo", true), ("dbg", true), ("unimplemented", true), ("FIXME", false)];

/// Where code may be unsafe (docs/architecture.md, invariant 2).
const UNSAFE: [&str; 5] = [
    "crates/code/src/kernel/",
    "crates/code/tests/allocations.rs",
    "crates/capi/src/",
    "crates/bench/src/peers/isal.rs",
    "crates/host/src/device/ring.rs",
];

const VAGUE: [&str; 4] = ["utils", "util", "common", "misc"];

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str, text: &str) -> Vec<String> {
        file_findings(&Source { path: path.to_owned(), text: text.to_owned() })
    }

    #[test]
    fn each_rule_finds_its_offence_and_nothing_else() {
        let good = "//! Doc.\n// unsafe in a comment\nlet a = \"todo!() unsafe\"; my_dbg!(a);\n";
        assert_eq!(of("crates/a/src/b.rs", good), Vec::<String>::new());
        assert_eq!(of("crates/a/src/b.rs", "fn a() {}\n").len(), 1);
        assert_eq!(of("crates/a/src/utils.rs", "//! Doc.\n").len(), 1);
        assert_eq!(of("crates/a/src/common/b.rs", "//! Doc.\n").len(), 1);
        assert_eq!(of("crates/a/src/b.rs", "//! Doc.\nunsafe { a() }\n").len(), 1);
        assert_eq!(of("crates/code/src/kernel/b.rs", "//! Doc.\nunsafe { a() }\n").len(), 0);
        assert_eq!(of("crates/a/src/b.rs", "//! Doc.\nfn a() { todo!() }\n").len(), 1);
        assert_eq!(of("crates/a/src/b.rs", "//! Doc.\n// FIXME later\n").len(), 1);
    }

    #[test]
    fn a_dependency_must_be_of_a_lower_level() {
        let table =
            "| level | crate | x |\n|---|---|---|\n| 0 | `code` | x |\n| 1 | `chunk` | x |\n| - | `xtask` | x |\n";
        let check = |user: &str, used: &[&str]| {
            let used = used.iter().map(|name| (*name).to_owned()).collect();
            levels(table, &BTreeMap::from([(user.to_owned(), used)])).len()
        };
        assert_eq!(check("chunk", &["code"]), 0);
        assert_eq!(check("code", &["chunk"]), 1);
        assert_eq!(check("chunk", &["chunk"]), 1);
        assert_eq!(check("chunk", &["xtask"]), 1);
        assert_eq!(check("xtask", &["chunk"]), 0);
        assert_eq!(check("stray", &[]), 1);
    }

    #[test]
    fn only_plain_dependencies_count() {
        let manifest = "[dependencies]\nclaystone-code.workspace = true\nserde = \"1\"\n[dev-dependencies]\nclaystone-sim.workspace = true\n";
        assert_eq!(own_dependencies(manifest), ["code"]);
    }
}
