//! Where calls wait for each other: for a record that lands, for reads that end, for their turn.
//!
//! Invariants:
//! 1. Whoever heard how often it was rung, looked, and waits then, goes on if it was rung since it looked.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// See the module. Of threads, or of a simulated world that knows which of its calls wait.
pub trait Bell: Send + Sync {
    /// Another one of the same kind, for who waits for something of its own: nobody else is woken by it.
    fn another(&self) -> Arc<dyn Bell>;

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
    heard: Mutex<Heard>,
    rung: Condvar,
}

#[derive(Debug, Default)]
struct Heard {
    rings: u64,
    /// Threads that wait.
    waiting: usize,
}

impl ThreadBell {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bell for ThreadBell {
    fn another(&self) -> Arc<dyn Bell> {
        Arc::<ThreadBell>::default()
    }

    fn rings(&self) -> u64 {
        self.heard().rings
    }

    fn wait(&self, rings: u64) {
        let mut heard = self.heard();
        heard.waiting += 1;
        while heard.rings == rings {
            heard = self.rung.wait(heard).unwrap_or_else(PoisonError::into_inner);
        }
        heard.waiting -= 1;
    }

    fn ring(&self) {
        let mut heard = self.heard();
        heard.rings += 1;
        // Mostly nobody does, and to wake nobody is a call of the system too.
        if heard.waiting > 0 {
            self.rung.notify_all();
        }
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
