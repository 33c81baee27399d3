//! The program: settings become components, components run; and every command.
//!
//! Invariants:
//! 1. Every error that reaches a person says what is wrong and what to do; secrets are in none of them.
//! 2. Standard output carries what was asked for, standard error carries logs, progress and errors.
//! 3. The exit code is 0 only if what was asked for was done, and every goal met where figures were asked for.
//! 4. Everything is written by way of [`output`](mod@output): who reads may go away.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod admin;
mod backup;
mod bench;
mod chart;
mod cli;
mod codes;
mod components;
mod credentials;
mod demo;
mod disk_path;
mod disks;
mod drives;
mod emulation;
mod endpoint;
mod exports;
mod http;
mod logs;
mod model;
mod output;
mod progress;
mod remarks;
mod roots;
mod rows;
mod server;
mod settings;
mod signature;
mod staircase;
mod sums_memory;
mod table;
mod tending;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;

use crate::output::{UNREAD, is_unread, note};

fn main() -> ExitCode {
    let start = Instant::now();
    let cli = cli::Cli::parse();
    claystone_host::raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(TOKIO_THREADS).enable_all().build();
    let result = match runtime {
        Ok(runtime) => {
            let result = runtime.block_on(cli.run(start));
            // Whatever still runs was given its time.
            runtime.shutdown_background();
            result
        }
        Err(error) => Err(anyhow::Error::from(error).context("the system gives no threads")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_unread(&error) => ExitCode::from(UNREAD),
        Err(error) => {
            note(format_args!("error: {error:#}"));
            error.downcast_ref::<cli::Exit>().map_or(ExitCode::FAILURE, |exit| ExitCode::from(exit.code))
        }
    }
}

/// Connections and bookkeeping; disks, hashes and codes have threads of their own.
const TOKIO_THREADS: usize = 2;
