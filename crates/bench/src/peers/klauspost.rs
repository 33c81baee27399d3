//! klauspost/reedsolomon, in a program of its own (bench/peers/klauspost) that samples when it is told to, so that it takes
//! its turn in the same rounds.
//!
//! The talk is lines of text. `encode K M BYTES COLD FIELD`, `add ..` or `repair .. LOST..` sets a cell up and is answered
//! by its number; `sample NUMBER` by `RUN_NS LOOP_NS BEST_NS`, the slower and the faster of its calibration loops; `drop
//! NUMBER` by `ok`. An answer that begins with `error` says what is wrong.
//!
//! Invariants:
//! 1. Its calibration loop was compiled by another compiler, so its samples are judged by a gate of their own.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use claystone_code::CodeSpec;

use crate::arena::{Stripe, Stripes};
use crate::contender::{Contender, Role, Work};
use crate::gate::{Gate, Sample};
use crate::plan::{Operation, Plan};

/// The running program.
#[derive(Debug)]
pub(super) struct Klauspost {
    name: String,
    process: RefCell<Process>,
}

impl Klauspost {
    /// Builds and starts it.
    pub(super) fn start() -> Result<Self, String> {
        let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/peers/klauspost");
        let mut command = Command::new("go");
        command.args(["run", "."]).current_dir(&place).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("`go run .` in {}: {error}", place.display()))?;
        let (input, output) = (child.stdin.take(), child.stdout.take().map(BufReader::new));
        let input = input.ok_or("it has no input")?;
        let output = output.ok_or("it has no output")?;
        let mut process = Process { child, input: Some(input), output, gate: Gate::default() };
        let version = process.ask("version")?;
        Ok(Self { name: format!("klauspost {version}"), process: RefCell::new(process) })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// It at what the plan says; with a choice of field where both fit.
    pub(super) fn contenders<'a>(&'a self, plan: &Plan) -> Vec<Contender<'a>> {
        let CodeSpec::ReedSolomon { .. } = plan.code else {
            return Vec::new();
        };
        let shape = plan.code.shape();
        let (verb, lost) = match &plan.operation {
            Operation::Encode => ("encode", String::new()),
            Operation::EncodeAdd { .. } => ("add", String::new()),
            Operation::Repair { lost } => ("repair", lost.iter().map(|chunk| format!(" {chunk}")).collect::<String>()),
            Operation::PlanRepair { .. } => return Vec::new(),
        };
        // Its 16-bit code beats its 8-bit one at many parities; its third, Leopard over 8 bits, has no (250, 5).
        let fields: &[(u8, &str)] = match shape.chunks() {
            0..=64 => &[(8, "")],
            65..=256 => &[(8, ""), (16, " leopard16")],
            _ => &[(16, " leopard16")],
        };
        let cell = |field: u8| {
            let (k, m, bytes, cold) = (shape.data, shape.parity, plan.chunk_bytes, u8::from(plan.is_cold));
            format!("{verb} {k} {m} {bytes} {cold} {field}{lost}")
        };
        let contender = |(field, suffix): &(u8, &str)| {
            let work = Remote { process: &self.process, cell: cell(*field), number: None };
            Contender::new(format!("{}{suffix}", self.name), Role::Peer, work)
        };
        fields.iter().filter(|(field, _)| *field == 8 || verb != "add").map(contender).collect()
    }
}

#[derive(Debug)]
struct Process {
    child: Child,
    /// Closed to end it.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    gate: Gate,
}

impl Process {
    fn ask(&mut self, line: &str) -> Result<String, String> {
        let input = self.input.as_mut().ok_or("it was ended")?;
        writeln!(input, "{line}").map_err(|error| error.to_string())?;
        let mut answer = String::new();
        self.output.read_line(&mut answer).map_err(|error| error.to_string())?;
        match answer.trim_end() {
            "" => Err("the program ended".to_owned()),
            answer if answer.starts_with("error") => Err(answer.to_owned()),
            answer => Ok(answer.to_owned()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.input = None;
        // It ends when its input does; what it then says interests nobody.
        let _ = self.child.wait();
    }
}

/// One cell of it.
struct Remote<'a> {
    process: &'a RefCell<Process>,
    /// The line that sets it up.
    cell: String,
    /// The program's number for it, once it is set up.
    number: Option<String>,
}

impl Work for Remote<'_> {
    fn once(&mut self, _: &mut Stripe<'_>) -> Result<bool, String> {
        self.number = Some(self.process.borrow_mut().ask(&self.cell)?);
        Ok(false)
    }

    fn sample(&mut self, _: &mut Gate, _: &mut Stripes<'_>) -> Result<Sample, String> {
        let number = self.number.as_ref().ok_or("it is not set up")?;
        let mut process = self.process.borrow_mut();
        let answer = process.ask(&format!("sample {number}"))?;
        let fields: Vec<f64> = answer.split(' ').filter_map(|field| field.parse().ok()).collect();
        let [run_ns, loop_ns, best_ns] = fields[..] else {
            return Err(format!("the answer {answer:?} is no sample"));
        };
        process.gate.learn(best_ns);
        Ok(Sample { run_ns, loop_ns })
    }

    fn is_quiet(&self, _: &Gate, sample: &Sample) -> bool {
        self.process.borrow().gate.is_quiet(sample)
    }
}

impl Drop for Remote<'_> {
    fn drop(&mut self) {
        if let Some(number) = &self.number {
            // A program that does not hear this has ended, and its buffers with it.
            let _ = self.process.borrow_mut().ask(&format!("drop {number}"));
        }
    }
}
