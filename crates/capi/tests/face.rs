//! The library as C sees it: a program compiled with `cc` against the header, under valgrind too where it is installed.

#![expect(clippy::disallowed_methods, reason = "compiling a C program takes a compiler's process")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The library lies beside the test program, built together with it.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().expect("a running program has a path");
    test.parent().expect("it lies in a directory").to_owned()
}

/// Compiles the C program against `library`.
fn compile(into: &Path, library: &[&str]) -> PathBuf {
    // The rlib makes the library's code be built; this keeps it linked to the test.
    assert!(!claystone::claystone_version().is_null());
    let program = into.join("face");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-g", "-o"]).arg(&program);
    cc.arg("-I").arg(here("include")).arg(here("tests/face.c")).args(library);
    run(&mut cc);
    program
}

#[test]
fn a_c_program_encodes_loses_plans_recovers_and_is_refused() {
    let scratch = tempfile::tempdir().expect("a directory");
    let place = libraries();
    let place = place.to_str().expect("UTF-8");
    let shared = compile(scratch.path(), &["-L", place, "-lclaystone"]);
    let output = run(Command::new(&shared).env("LD_LIBRARY_PATH", place));
    let output = String::from_utf8_lossy(&output.stdout);
    let families: BTreeSet<&str> = output.lines().filter_map(|spec| spec.split(':').next()).collect();
    let all = ["clay", "hybrid", "isal", "klauspost", "lrc", "mirror", "mixed", "pc", "replica", "rs", "rsm"];
    assert_eq!(families, BTreeSet::from(all), "not one family is left out");
    let archive = format!("{place}/libclaystone.a");
    let alone = compile(scratch.path(), &[&archive, "-lpthread", "-ldl", "-lm"]);
    run(&mut Command::new(&alone));
    run(Command::new(&alone).arg("scalar"));
    if Command::new("valgrind").arg("--version").output().is_ok() {
        // Valgrind knows no AVX-512 and says so to the program: the AVX2 kernels run.
        run(Command::new("valgrind").args(["-q", "--error-exitcode=9", "--leak-check=full"]).arg(&alone));
    }
}

#[test]
fn the_header_is_plain_c_and_cpp() {
    let scratch = tempfile::tempdir().expect("a directory");
    for (name, flags) in [("a.c", "-std=c99"), ("a.cc", "-std=c++11")] {
        if name == "a.cc" && Command::new("c++").arg("--version").output().is_err() {
            continue;
        }
        let source = scratch.path().join(name);
        std::fs::write(&source, "#include \"claystone.h\"\n").expect("written");
        let compiler = if name == "a.cc" { "c++" } else { "cc" };
        run(Command::new(compiler)
            .args([flags, "-Wall", "-Werror", "-fsyntax-only", "-I"])
            .arg(here("include"))
            .arg(&source));
    }
}

#[test]
fn the_header_declares_what_the_library_exports() {
    let header = std::fs::read_to_string(here("include/claystone.h")).expect("there");
    let without_comments: String =
        header.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, rest)| rest)).collect();
    let mut declared: Vec<String> = Vec::new();
    for declaration in without_comments.split(';') {
        let Some((before, _)) = declaration.split_once('(') else { continue };
        let name = before.rsplit([' ', '*', '\n']).next().unwrap_or_default();
        if name.starts_with("claystone_") {
            declared.push(name.to_owned());
        }
    }
    let mut exported: Vec<String> = Vec::new();
    for file in ["src/lib.rs", "src/plan.rs", "src/conversion.rs"] {
        let source = std::fs::read_to_string(here(file)).expect("there");
        let names = source.split("extern \"C\" fn ").skip(1).filter_map(|rest| rest.split('(').next());
        exported.extend(names.map(str::to_owned));
    }
    declared.sort();
    exported.sort();
    assert_eq!(declared, exported);
    let source = std::fs::read_to_string(here("tests/face.c")).expect("there");
    for name in exported {
        assert!(source.contains(&format!("{name}(")), "the C program does not call {name}");
    }
}
