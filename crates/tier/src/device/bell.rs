//! Where calls wait for each other: for a record that lands, for reads that end, for their turn.
//!
//! Invariants:
//! 1. Whoever heard how often it was rung, looked, and waits then, goes on if it was rung since it looked.

use std::sync::{Condvar, Mutex, PoisonError};

/// See the module. Of threads, or of a simulated world that knows which of its calls wait.
pub trait Bell: Send + Sync {
    /// How often it was rung.
    fn rings(&self) -> u64;

    /// Blocks until it was rung more often than that.
    fn wait(&self, rings: u64);

    /// Lets all go on that wait.
    fn ring(&self);
}

/// That of threads.
#[derive(Debug, Default)]
pub struct ThreadBell {
    rings: Mutex<u64>,
    rung: Condvar,
}

impl Bell for ThreadBell {
    fn rings(&self) -> u64 {
        *self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, rings: u64) {
        let mut now = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        while *now == rings {
            now = self.rung.wait(now).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn ring(&self) {
        *self.rings.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.rung.notify_all();
    }
}

/// What one at a time does. Who wants to meanwhile waits at the bell.
#[derive(Debug, Default)]
pub struct Turn {
    is_taken: Mutex<bool>,
}

/// It is mine, until this is dropped.
pub struct TurnTaken<'a> {
    turn: &'a Turn,
    bell: &'a dyn Bell,
}

impl Turn {
    /// Takes it, as soon as nobody has it.
    pub fn take<'a>(&'a self, bell: &'a dyn Bell) -> TurnTaken<'a> {
        loop {
            let rings = bell.rings();
            if !self.set(true) {
                return TurnTaken { turn: self, bell };
            }
            bell.wait(rings);
        }
    }

    /// Returns what it was.
    fn set(&self, is_taken: bool) -> bool {
        std::mem::replace(&mut *self.is_taken.lock().unwrap_or_else(PoisonError::into_inner), is_taken)
    }
}

impl Drop for TurnTaken<'_> {
    fn drop(&mut self) {
        self.turn.set(false);
        self.bell.ring();
    }
}
