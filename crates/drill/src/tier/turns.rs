//! Whose turn it is, of callers on threads: one runs, until an operation of a device begins or has ended, or it waits for another one, and a seed decides
//! who is next.
//!
//! Invariants:
//! 1. One caller runs at a time, and which one hangs on the seed alone. So a seed replays a run.
//! 2. Where all that are left wait for each other, each panics.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use claystone_env::Random;
use claystone_sim::SimRandom;
use claystone_tier::Bell;

/// See the module.
pub struct Turns {
    table: Mutex<Table>,
    changed: Condvar,
}

struct Table {
    random: SimRandom,
    callers: Vec<Caller>,
    /// Whose turn it is; `None`: all have ended, or nobody can go on.
    running: Option<usize>,
    /// How often somebody else came before who ran.
    passed: u64,
}

#[derive(Clone)]
enum Caller {
    Ready,
    /// At a bell, which had been rung so often.
    Waits(Arc<AtomicU64>, u64),
    Ended,
}

thread_local! {
    /// Which caller this thread is.
    static CALLER: Cell<Option<usize>> = const { Cell::new(None) };
}

impl Turns {
    /// Of so many callers.
    pub fn new(seed: u64, callers: usize) -> Arc<Turns> {
        let callers = vec![Caller::Ready; callers];
        let table = Table { random: SimRandom::new(seed), callers, running: Some(0), passed: 0 };
        Arc::new(Turns { table: Mutex::new(table), changed: Condvar::new() })
    }

    /// Calls as this caller: in its turns.
    pub fn call<T>(&self, caller: usize, call: impl FnOnce() -> T) -> T {
        CALLER.set(Some(caller));
        drop(self.until_mine(self.table(), caller));
        let _ends = Ends(self, caller);
        call()
    }

    /// Others come first, or not. Of who is no caller: nothing.
    pub fn give_way(&self) {
        if let Some(caller) = CALLER.get() {
            self.pass(caller, Caller::Ready);
        }
    }

    /// Where callers wait for each other.
    pub fn bell(self: &Arc<Turns>) -> Arc<dyn Bell> {
        Arc::new(TurnsBell { turns: self.clone(), rings: Arc::default() })
    }

    /// How often somebody else came before who ran.
    pub fn passed(&self) -> u64 {
        self.table().passed
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass(&self, caller: usize, state: Caller) {
        let mut table = self.table();
        table.callers[caller] = state;
        table.choose();
        table.passed += u64::from(table.running != Some(caller));
        self.changed.notify_all();
        let mut table = self.until_mine(table, caller);
        table.callers[caller] = Caller::Ready;
    }

    fn until_mine<'a>(&self, mut table: MutexGuard<'a, Table>, caller: usize) -> MutexGuard<'a, Table> {
        while table.running != Some(caller) {
            assert!(table.running.is_some(), "callers wait for each other");
            table = self.changed.wait(table).unwrap_or_else(PoisonError::into_inner);
        }
        table
    }
}

impl Table {
    fn choose(&mut self) {
        let goes_on = |caller: &Caller| match caller {
            Caller::Ready => true,
            Caller::Waits(bell, rings) => bell.load(Ordering::Relaxed) != *rings,
            Caller::Ended => false,
        };
        let who: Vec<usize> = (0..self.callers.len()).filter(|at| goes_on(&self.callers[*at])).collect();
        self.running = (!who.is_empty()).then(|| who[self.random.below(who.len() as u64) as usize]);
    }
}

/// A caller ends, by a panic too.
struct Ends<'a>(&'a Turns, usize);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        let Ends(turns, caller) = *self;
        let mut table = turns.table();
        table.callers[caller] = Caller::Ended;
        table.choose();
        turns.changed.notify_all();
    }
}

struct TurnsBell {
    turns: Arc<Turns>,
    rings: Arc<AtomicU64>,
}

impl Bell for TurnsBell {
    fn another(&self) -> Arc<dyn Bell> {
        self.turns.bell()
    }

    fn rings(&self) -> u64 {
        self.rings.load(Ordering::Relaxed)
    }

    fn wait(&self, rings: u64) {
        let caller = CALLER.get().expect("who is alone waits for nobody");
        self.turns.pass(caller, Caller::Waits(self.rings.clone(), rings));
    }

    fn ring(&self) {
        self.rings.fetch_add(1, Ordering::Relaxed);
    }
}
