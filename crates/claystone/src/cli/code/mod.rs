//! `claystone code`: parcels, and what each code costs.
//!
//! Exit codes: 0 it was done, or everything is whole; 1 it was not done; 2 the command line is wrong; 3 damaged, and all
//! of it can be mended; 4 too much is lost, or the file is not what was encoded.

mod convert;
mod decode;
mod encode;
mod info;
mod place;
mod repair;
mod verify;

use std::fmt;

use super::Kernels;

/// Encode files into chunks, get them back, repair them; compare codes.
#[derive(Debug, clap::Args)]
pub struct Code {
    #[command(flatten)]
    kernels: Kernels,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Cut a file into chunk files, any few of which may be lost
    Encode(encode::Encode),
    /// Get a file back from its chunk files
    Decode(decode::Decode),
    /// Read every sector and say exactly what is damaged
    Verify(verify::Verify),
    /// Rebuild missing chunk files and mend damaged sectors
    Repair(repair::Repair),
    /// Put data under another code, without moving it where that can be
    Convert(convert::Convert),
    /// Compare codes: space, tolerance, bytes read for repair, speed on this machine
    Info(info::Info),
}

impl Code {
    /// Does it.
    ///
    /// # Errors
    /// As the command says; [`Exit`] where the exit code tells more.
    pub fn run(self) -> anyhow::Result<()> {
        self.kernels.choose()?;
        match self.what {
            What::Encode(encode) => encode.run(),
            What::Decode(decode) => decode.run(),
            What::Verify(verify) => verify.run(),
            What::Repair(repair) => repair.run(),
            What::Convert(convert) => convert.run(),
            What::Info(info) => info.run(),
        }
    }
}

/// An error with an exit code of its own.
#[derive(Debug)]
pub struct Exit {
    /// The exit code.
    pub code: u8,
    /// What is wrong.
    pub message: String,
}

impl Exit {
    /// Something is damaged, and all of it can be mended.
    const REPAIRABLE: u8 = 3;
    /// Too much is lost.
    const LOST: u8 = 4;
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.message.fmt(f)
    }
}

impl std::error::Error for Exit {}

/// The error of a parcel, with its exit code.
fn exit(error: claystone_parcel::Error) -> anyhow::Error {
    use claystone_parcel::Error;
    match error {
        Error::TooMuchLost { .. } | Error::WrongHash { .. } => {
            Exit { code: Exit::LOST, message: error.to_string() }.into()
        }
        other => other.into(),
    }
}
