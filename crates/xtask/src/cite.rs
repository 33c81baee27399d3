//! Citations: each `[key §n]` in the sources names a paper of docs/papers.md.
//!
//! A citation stands behind `Source:` where code follows a paper, and behind `Test of:` where a test proves that it does.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::report;
use crate::source::{Source, sources};

/// What is cited from one paper: sections.
#[derive(Default)]
struct Cited {
    by_code: BTreeSet<String>,
    by_tests: BTreeSet<String>,
}

/// Checks the keys and prints, paper by paper, which claims have code and which have tests.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let papers = fs::read_to_string(root.join("docs/papers.md")).context("reading docs/papers.md")?;
    let mut cited: BTreeMap<String, Cited> = keys(&papers).into_iter().map(|key| (key, Cited::default())).collect();
    let mut findings = Vec::new();
    // This crate talks about citations without making any.
    for source in sources(root).into_iter().filter(|source| !source.path.starts_with("crates/xtask/")) {
        collect(&source, &mut cited, &mut findings);
    }
    for (key, Cited { by_code, by_tests }) in &cited {
        let untested: Vec<&str> = by_code.difference(by_tests).map(String::as_str).collect();
        println!("{key:8} {:3} claims with code, {:3} with tests", by_code.len(), by_tests.len());
        if !untested.is_empty() {
            println!("         code without a test: {}", untested.join(", "));
        }
    }
    report("cite", &findings)
}

fn collect(source: &Source, cited: &mut BTreeMap<String, Cited>, findings: &mut Vec<String>) {
    for (number, line) in source.text.lines().enumerate() {
        for (key, section) in citations(line) {
            let Some(paper) = cited.get_mut(key) else {
                let known: Vec<&str> = cited.keys().map(String::as_str).collect();
                findings.push(format!(
                    "{}:{}: [{key} §{section}] names no paper of docs/papers.md (known: {})",
                    source.path,
                    number + 1,
                    known.join(", ")
                ));
                continue;
            };
            let test = line.contains("Test of:");
            let sections = if test { &mut paper.by_tests } else { &mut paper.by_code };
            sections.insert(format!("§{section}"));
        }
    }
}

/// The keys: every heading `## key: title`.
fn keys(papers: &str) -> Vec<String> {
    let headings = papers.lines().filter_map(|line| line.strip_prefix("## "));
    headings.filter_map(|heading| heading.split_once(':')).map(|(key, _)| key.trim().to_owned()).collect()
}

/// All `[key §section]` of a line.
fn citations(line: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices('[') {
        let Some((inside, _)) = line[at + 1..].split_once(']') else { continue };
        let Some((key, section)) = inside.split_once(" §") else { continue };
        // Rustdoc wants brackets that are no links escaped.
        let section = section.trim_end_matches('\\');
        let plain = |character: char| character.is_ascii_lowercase() || character.is_ascii_digit() || character == '-';
        if !key.is_empty() && key.chars().all(plain) && !section.is_empty() {
            found.push((key, section));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_keys_and_sections() {
        assert_eq!(citations("// Source: [clay §3.1], [drc-dpu §2]"), [("clay", "3.1"), ("drc-dpu", "2")]);
        assert_eq!(citations("//! \\[clay §4\\]"), [("clay", "4")]);
        assert_eq!(citations("a[0] [x] [A §1] [b §]"), []);
        assert_eq!(keys("# Papers\n## lec: Local codes\n## other\n"), ["lec"]);
    }

    #[test]
    fn an_unknown_key_is_a_finding() {
        let source = Source { path: "a.rs".to_owned(), text: "// Test of: [a §1]\n// Source: [b §1]\n".to_owned() };
        let mut cited = BTreeMap::from([("a".to_owned(), Cited::default())]);
        let mut findings = Vec::new();
        collect(&source, &mut cited, &mut findings);
        assert_eq!(findings.len(), 1);
        assert_eq!(cited["a"].by_tests.len(), 1);
        assert_eq!(cited["a"].by_code.len(), 0);
    }
}
