//! `claystone backup`: a copy of the records.

use std::path::PathBuf;

use anyhow::Context;
use claystone_console::api;
use hyper::Method;

use super::{At, print_json};
use crate::admin::AdminClient;
use crate::output::output;
use crate::table::bytes;

/// Copy the records of a running store, which name every object's chunks, into a new file.
#[derive(Debug, clap::Args)]
pub struct Backup {
    /// A file that does not exist yet, best on another device than the store's directory
    file: PathBuf,
    #[command(flatten)]
    at: At,
    /// JSON instead of text
    #[arg(long)]
    json: bool,
}

impl Backup {
    /// Makes it.
    ///
    /// # Errors
    /// No store answers, the file exists, or no sound copy could be made.
    pub async fn run(self) -> anyhow::Result<()> {
        let client = AdminClient::of(&self.at.dir)?;
        let path = std::path::absolute(&self.file)?;
        let path = path.into_os_string().into_string().ok().context("the file's path is not UTF-8")?;
        let copied: api::BackedUp = client.send(Method::POST, "/backup", &api::BackUp { path }).await?;
        if self.json {
            print_json(&copied)?;
        } else {
            writeln!(output(), "{} of records copied to {} and checked", bytes(copied.bytes), copied.path)?;
        }
        Ok(())
    }
}
