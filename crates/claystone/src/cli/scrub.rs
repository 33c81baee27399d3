//! `claystone scrub`: reads everything back and checks it.

use std::time::Duration;

use anyhow::bail;
use claystone_console::api;
use hyper::Method;

use super::{Of, print_json};
use crate::admin::AdminClient;
use crate::output::output;
use crate::progress::Progress;
use crate::table::{bytes, counted};

/// Read everything back and check it.
#[derive(Debug, clap::Args)]
pub struct Scrub {
    #[command(flatten)]
    of: Of,
    /// Wait until it is done; fails if something was found damaged
    #[arg(long)]
    wait: bool,
    /// JSON instead of text
    #[arg(long)]
    json: bool,
}

impl Scrub {
    /// Starts it.
    ///
    /// # Errors
    /// No store answers; with `--wait` also if damage was found.
    pub async fn run(self) -> anyhow::Result<()> {
        let client = AdminClient::of(&self.of.dir())?;
        let started: api::ScrubReport = client.send(Method::POST, "/scrub", &api::Done {}).await?;
        if !self.wait {
            if self.json {
                print_json(&started)?;
            } else {
                writeln!(
                    output(),
                    "scrubbing {}; `claystone status` shows how far it is",
                    counted(started.stripes_total, "stripe", "stripes")
                )?;
            }
            return Ok(());
        }
        let progress = Progress::new("scrubbing", started.stripes_total);
        let report = loop {
            let api::Scrub { scrub, .. } = client.get("/scrub").await?;
            let Some(report) = scrub else { bail!("the store was restarted meanwhile: start the scrub again") };
            progress.of(report.stripes, report.stripes_total);
            if report.finished {
                break report;
            }
            tokio::time::sleep(POLL).await;
        };
        progress.end();
        if self.json {
            print_json(&report)?;
        } else {
            writeln!(
                output(),
                "read {} of {}: {} whole and right, {} damaged, {} not fully readable now",
                bytes(report.bytes_read),
                counted(report.stripes, "stripe", "stripes"),
                report.verified,
                counted(report.chunks_damaged, "chunk", "chunks"),
                counted(report.unknown, "stripe", "stripes")
            )?;
        }
        if report.chunks_damaged + report.unknown > 0 {
            bail!("not everything is whole; repair is on its way: see `claystone status`");
        }
        Ok(())
    }
}

const POLL: Duration = Duration::from_millis(200);
