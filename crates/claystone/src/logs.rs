//! Logs: text for people, JSON for machines, always on standard error.

use std::io::IsTerminal;

use anyhow::Context;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

use crate::settings::LogFormat;

/// Logs of a server.
///
/// # Errors
/// `level` is no filter.
pub fn for_server(format: LogFormat, level: &str) -> anyhow::Result<()> {
    // Migrations are told step by step, what a client did wrong as an error, and that somebody else has unmounted as a
    // warning: none is the operator's concern.
    let filter = EnvFilter::try_new(format!("refinery_core=warn,s3s=off,fuser=error,{level}"))
        .with_context(|| format!("log_level {level:?} is no level: use error, warn, info, debug or trace"))?;
    let terminal = std::io::stderr().is_terminal();
    let builder = fmt().with_writer(std::io::stderr).with_env_filter(filter);
    let json = match format {
        LogFormat::Json => true,
        LogFormat::Text => false,
        LogFormat::Auto => !terminal,
    };
    if json {
        builder.json().flatten_event(true).init();
    } else {
        builder.with_ansi(terminal).with_target(false).init();
    }
    Ok(())
}

/// Logs of the other commands: none, or what CLAYSTONE_LOG_LEVEL says. What a command has to say it prints; and what the
/// demo breaks on purpose is no news.
pub fn for_commands() {
    let level = std::env::var("CLAYSTONE_LOG_LEVEL").unwrap_or_else(|_| "off".to_owned());
    let filter = EnvFilter::try_new(level).unwrap_or_else(|_| EnvFilter::new("off"));
    let terminal = std::io::stderr().is_terminal();
    fmt().with_writer(std::io::stderr).with_env_filter(filter).with_ansi(terminal).with_target(false).init();
}
