//! What a call returns when it fails, and what it says.
//!
//! Invariants:
//! 1. The text of a thread's last failure lives until that thread's next call.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use claystone_guard::Misuse;

/// What the header calls `claystone_status`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// An argument is wrong.
    Invalid = 1,
    /// The text names no code.
    BadCode = 2,
    /// Too many chunks are lost.
    Unrecoverable = 3,
    /// A panic was caught.
    Internal = 4,
}

/// Why a call failed.
#[derive(Debug)]
pub enum Failure {
    /// This pointer is null.
    Null(&'static str),
    /// This text is not UTF-8.
    NotText(&'static str),
    /// More bytes than an object can have.
    TooLong(&'static str),
    /// No such read or range.
    OutOfRange(&'static str, usize, usize),
    /// No goal of conversions has this number.
    NoGoal(u32),
    /// The guard's word.
    Misuse(Misuse),
}

impl From<Misuse> for Failure {
    fn from(misuse: Misuse) -> Failure {
        Failure::Misuse(misuse)
    }
}

impl Failure {
    fn status(&self) -> Status {
        match self {
            Failure::Misuse(Misuse::Spec(_)) => Status::BadCode,
            Failure::Misuse(Misuse::Unrecoverable(_)) => Status::Unrecoverable,
            _ => Status::Invalid,
        }
    }

    fn text(&self) -> String {
        match self {
            Failure::Null(what) => format!("{what} is null"),
            Failure::NotText(what) => format!("{what} is not UTF-8"),
            Failure::TooLong(what) => format!("{what} is longer than an object can be"),
            Failure::OutOfRange(what, at, count) => format!("there is no {what} {at}: there are {count}"),
            Failure::NoGoal(goal) => format!("there is no goal {goal}: there are 0, 1 and 2"),
            Failure::Misuse(misuse) => misuse.to_string(),
        }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// The text of this thread's last failure.
pub fn last() -> *const c_char {
    // A thread that is ending has no text any more.
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Runs a call: failures become a status and a text, panics too.
pub fn catch(call: impl FnOnce() -> Result<(), Failure>) -> Status {
    let (status, text) = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => return Status::Ok,
        Ok(Err(failure)) => (failure.status(), failure.text()),
        Err(_) => (Status::Internal, "a mistake in claystone itself: please report it".to_owned()),
    };
    let _ = LAST.try_with(|last| *last.borrow_mut() = CString::new(text).unwrap_or_default());
    status
}
