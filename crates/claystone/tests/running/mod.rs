//! The program's processes in a directory of their own.

#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod client;
pub mod store;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use client::Client;

/// A directory that the commands run in.
pub struct Scratch(tempfile::TempDir);

/// What a command did.
pub struct Run {
    /// Its exit code.
    status: ExitStatus,
    /// What it printed.
    pub out: String,
    /// What it complained of.
    pub err: String,
}

impl Run {
    /// Whether it did what it was asked for.
    pub fn ok(&self) -> bool {
        self.status.success()
    }

    /// Its exit code.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }
}

impl Scratch {
    /// An empty one.
    pub fn new() -> Scratch {
        Scratch(tempfile::tempdir().expect("a temporary directory"))
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Leaves it, to be looked at.
    pub fn keep(self) -> PathBuf {
        self.0.keep()
    }

    /// Starts the program, and does not wait or listen.
    pub fn begin(&self, arguments: &[&str]) -> Child {
        let mut command = self.prepare(Command::new(PROGRAM));
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
    }

    /// Runs the program to its end.
    pub fn run(&self, arguments: &[&str]) -> Run {
        finish(self.prepare(Command::new(PROGRAM)).args(arguments))
    }

    /// Runs the program with this standard output.
    pub fn run_into(&self, stdout: impl Into<Stdio>, arguments: &[&str]) -> Run {
        finish(self.prepare(Command::new(PROGRAM)).args(arguments).stdout(stdout))
    }

    /// Runs a line of shell in which `claystone` is the program.
    pub fn shell(&self, line: &str) -> Run {
        let command = Command::new("sh");
        let place = Path::new(PROGRAM).parent().expect("it lies in a directory");
        let path = format!("{}:{}", place.display(), std::env::var("PATH").unwrap_or_default());
        finish(self.prepare(command).args(["-c", line]).env("PATH", path))
    }

    fn prepare(&self, mut command: Command) -> Command {
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CLAYSTONE_")) {
            command.env_remove(name);
        }
        command.current_dir(self.0.path()).stdin(Stdio::null());
        command
    }
}

fn finish(command: &mut Command) -> Run {
    let output = command.output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Run { status: output.status, out: text(output.stdout), err: text(output.stderr) }
}

/// A store that runs.
pub struct Up {
    child: Child,
    said: String,
    log: PathBuf,
}

impl Up {
    /// Starts `claystone up` on free ports and waits for its ready line.
    pub fn start(scratch: &Scratch, arguments: &[&str]) -> Up {
        let mut up = Up::begin(scratch, arguments);
        let mut lines = BufReader::new(up.child.stdout.take().expect("piped"));
        while !up.said.contains("ready in") {
            if lines.read_line(&mut up.said).expect("text") == 0 {
                panic!("it ended: {}{}", up.said, fs::read_to_string(&up.log).expect("text"));
            }
        }
        up
    }

    /// Starts it and does not wait.
    pub fn begin(scratch: &Scratch, arguments: &[&str]) -> Up {
        let mut command = scratch.prepare(Command::new(PROGRAM));
        command.args(["up", "--listen", "127.0.0.1:0", "--console", "127.0.0.1:0"]).args(arguments);
        // A pipe that nobody reads would fill up and hold up the store.
        let log = scratch.path("up.log");
        let file = File::options().create(true).append(true).open(&log).expect("a file");
        let child = command.stdout(Stdio::piped()).stderr(file).spawn().expect("it starts");
        Up { child, said: String::new(), log }
    }

    /// A client with the store's first credentials.
    pub fn client(&self, scratch: &Scratch) -> Client {
        let credentials = fs::read_to_string(scratch.path("claystone-data/credentials.json")).expect("kept");
        let credentials: serde_json::Value = serde_json::from_str(&credentials).expect("json");
        let text = |name: &str| credentials[name].as_str().expect("a text").to_owned();
        let address = self.said.split_once("S3 on http://").and_then(|(_, rest)| rest.split_once(','));
        let address = address.expect("the ready line names it").0.parse().expect("an address");
        Client { address, access_key: text("access_key"), secret_key: text("secret_key") }
    }

    /// What it printed up to the ready line.
    pub fn said(&self) -> &str {
        &self.said
    }

    /// Asks it to end.
    pub fn stop(mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it runs");
        self.child.wait().expect("it ends")
    }

    /// Ends it without asking.
    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // A test that failed leaves nothing running.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("the store's log ends with\n{}", lines[lines.len().saturating_sub(40)..].join("\n"));
        }
    }
}

/// The lines that begin with `$ ` in blocks that begin with "```console test".
pub fn console_commands(text: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if line.starts_with("```") {
            inside = line == "```console test";
        } else if let Some(command) = line.strip_prefix("$ ")
            && inside
        {
            commands.push(command.to_owned());
        }
    }
    commands
}

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

const PROGRAM: &str = env!("CARGO_BIN_EXE_claystone");
