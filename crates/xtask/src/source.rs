//! The workspace's Rust sources, as lines.
//!
//! Invariants:
//! 1. Files come in the order of their paths, so that output is the same on every machine.

use std::fs;
use std::path::{Path, PathBuf};

/// One `.rs` file.
pub struct Source {
    /// Path from the workspace's root, with `/`.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// All `.rs` files of the crates, build scripts and tests included.
pub fn sources(root: &Path) -> Vec<Source> {
    files(&root.join("crates"), "rs")
        .into_iter()
        .filter_map(|path| {
            let text = fs::read_to_string(&path).ok()?;
            let path = path.strip_prefix(root).expect("found below it").to_string_lossy().replace('\\', "/");
            Some(Source { path, text })
        })
        .collect()
}

/// All files below `directory` whose names end with `.extension`, sorted; hidden directories and `target` are left out.
pub fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(directory) = waiting.pop() {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if path.is_dir() {
                if !name.starts_with('.') && name != "target" {
                    waiting.push(path);
                }
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The code of a line: what stands before a `//` comment, with the inside of string literals left out.
///
/// Good for spotting words; raw strings over several lines are taken as code.
pub fn code_of(line: &str) -> String {
    let mut code = String::new();
    let mut characters = line.chars().peekable();
    let mut in_text = false;
    while let Some(character) = characters.next() {
        match character {
            '\\' if in_text => {
                characters.next();
            }
            '"' => {
                in_text = !in_text;
                code.push('"');
            }
            '/' if !in_text && characters.peek() == Some(&'/') => break,
            _ if in_text => {}
            _ => code.push(character),
        }
    }
    code
}

#[cfg(test)]
mod tests {
    use super::code_of;

    #[test]
    fn comments_and_texts_are_not_code() {
        assert_eq!(code_of(r#"let a = "x // \" y"; b // c"#), r#"let a = ""; b "#);
        assert_eq!(code_of("/// doc"), "");
    }
}
