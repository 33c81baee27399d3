//! Calls that block, in a simulated world: each has a thread, and one thread runs at a time.
//!
//! ```text
//! a task: call --turn--> its thread: runs, until a device of it is asked for something
//!         the world does it, and time passes <--wish-- blocks
//!              --turn--> goes on, until the next wish or its end: done
//!         others run                   <--waits at a bell
//!              --turn--> goes on, once another call has rung that one
//! ```
//!
//! Invariants:
//! 1. While a thread runs, the world waits for it, and the clock stands. So a seed repeats a run.

use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use claystone_env::{Clock, Moment, SectorRange};
use claystone_tier::{Bell, Now, Side};
use tokio::sync::Notify;

/// What a device is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// To read.
    Read(Side, SectorRange),
    /// To write.
    Write(Side, SectorRange),
    /// To sync.
    Sync(Side),
    /// That so much time passes: of the world alone.
    Sleep(Duration),
}

/// Asks the world, and blocks until it has done that. Outside of [`Blocking::call`] it is done at once.
///
/// # Errors
/// The world has ended.
pub fn ask(wish: Wish) -> io::Result<()> {
    give_way(Told::Wish(wish))
}

/// Blocks until the world has another turn for this thread.
fn give_way(told: Told) -> io::Result<()> {
    let ended = || io::Error::other("the world has ended");
    WORLD.with_borrow(|world| {
        let Some(World { tell, turns }) = world else { return Ok(()) };
        tell.send(told).map_err(|_| ended())?;
        match turns.recv() {
            Ok(Turn::GoOn) => Ok(()),
            Ok(Turn::Begin(_)) | Err(_) => Err(ended()),
        }
    })
}

/// See the module.
pub struct Blocking {
    clock: Arc<dyn Clock>,
    /// The time of the world, for who runs.
    now_ns: Arc<AtomicU64>,
    idle: RefCell<Vec<Thread>>,
    rung: Arc<Rung>,
}

/// A bell of which the world knows who waits at it.
struct WorldBell {
    at: Arc<Waiting>,
    rung: Arc<Rung>,
}

/// Who waits at a bell.
#[derive(Default)]
struct Waiting {
    rings: AtomicU64,
    woken: Notify,
}

/// Bells that were rung in the turn that is.
type Rung = Mutex<Vec<Arc<Waiting>>>;

impl Waiting {
    fn rings(&self) -> u64 {
        self.rings.load(Ordering::Relaxed)
    }
}

impl Bell for WorldBell {
    fn another(&self) -> Arc<dyn Bell> {
        Arc::new(WorldBell { at: Arc::default(), rung: self.rung.clone() })
    }

    fn rings(&self) -> u64 {
        self.at.rings()
    }

    fn wait(&self, rings: u64) {
        if give_way(Told::Waits(self.at.clone(), rings)).is_err() {
            // Nobody will ring it any more, and nobody waits for this thread.
            std::panic::resume_unwind(Box::new("the world has ended"));
        }
    }

    fn ring(&self) {
        self.at.rings.fetch_add(1, Ordering::Relaxed);
        self.rung.lock().expect("nobody panics here").push(self.at.clone());
    }
}

/// A thread that has nothing to do, or waits for what it wished.
struct Thread {
    turns: Sender<Turn>,
    told: Receiver<Told>,
}

enum Turn {
    Begin(Box<dyn FnOnce() + Send>),
    GoOn,
}

enum Told {
    Wish(Wish),
    /// For a bell, which was rung so often.
    Waits(Arc<Waiting>, u64),
    Done,
}

/// What a thread sees of the world.
struct World {
    tell: Sender<Told>,
    turns: Receiver<Turn>,
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

impl Blocking {
    /// In the world of this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Blocking {
        Blocking { clock, now_ns: Arc::default(), idle: RefCell::default(), rung: Arc::default() }
    }

    /// The time, for calls.
    pub fn now(&self) -> Now {
        let now_ns = self.now_ns.clone();
        Arc::new(move || Moment(Duration::from_nanos(now_ns.load(Ordering::Relaxed))))
    }

    /// Where calls wait for each other.
    pub fn bell(&self) -> Arc<dyn Bell> {
        Arc::new(WorldBell { at: Arc::default(), rung: self.rung.clone() })
    }

    /// Calls; `fulfil` does what devices are asked for meanwhile.
    ///
    /// # Panics
    /// If the call does.
    pub async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
        fulfil: impl AsyncFn(Wish),
    ) -> T {
        let idle = self.idle.borrow_mut().pop();
        let thread = idle.unwrap_or_else(Thread::start);
        let (tell, told) = channel();
        let mut turn = Turn::Begin(Box::new(move || drop(tell.send(call()))));
        loop {
            self.now_ns.store(self.clock.now().0.as_nanos() as u64, Ordering::Relaxed);
            thread.turns.send(turn).expect("it waits for its turn");
            let told = thread.told.recv().expect("a call panicked");
            for rung in self.rung.lock().expect("nobody panics here").drain(..) {
                rung.woken.notify_waiters();
            }
            match told {
                Told::Done => break,
                Told::Wish(wish) => fulfil(wish).await,
                Told::Waits(at, rings) => {
                    while at.rings() == rings {
                        at.woken.notified().await;
                    }
                }
            }
            turn = Turn::GoOn;
        }
        self.idle.borrow_mut().push(thread);
        told.recv().expect("it has returned")
    }
}

impl Thread {
    fn start() -> Thread {
        let ((turns, of_thread), (tell, told)) = (channel(), channel());
        std::thread::spawn(move || {
            WORLD.set(Some(World { tell, turns: of_thread }));
            // Not borrowed while the call runs, which asks.
            let next = || WORLD.with_borrow(|world| world.as_ref().expect("it was set").turns.recv());
            while let Ok(Turn::Begin(call)) = next() {
                call();
                if WORLD.with_borrow(|world| world.as_ref().expect("it was set").tell.send(Told::Done)).is_err() {
                    break;
                }
            }
        });
        Thread { turns, told }
    }
}

#[cfg(test)]
mod tests {
    use claystone_env::Sector;
    use tokio::task::LocalSet;

    use super::*;

    #[test]
    fn calls_take_the_time_of_what_they_wish_and_overlap() {
        let ends = claystone_sim::run(1, async |world| {
            let (clock, blocking) = (world.clock(), Blocking::new(world.clock()));
            let now = blocking.now();
            let call = |wait_us: u64| {
                let (now, clock) = (now.clone(), clock.clone());
                let range = SectorRange { first: Sector(wait_us), sectors: 1 };
                let wishes = move || {
                    let begun = now();
                    ask(Wish::Write(Side::Ssd, range)).expect("the world is there");
                    ask(Wish::Sync(Side::Hdd)).expect("the world is there");
                    now().since(begun).as_micros() as u64
                };
                let fulfil = async move |wish| match wish {
                    Wish::Read(_, range) | Wish::Write(_, range) => {
                        clock.sleep(Duration::from_micros(range.first.0)).await
                    }
                    Wish::Sync(_) => clock.sleep(Duration::from_micros(1000)).await,
                    Wish::Sleep(wait) => clock.sleep(wait).await,
                };
                blocking.call(wishes, fulfil)
            };
            let both = futures::future::join(call(300), call(20));
            LocalSet::new().run_until(async { (both.await, clock.now().0.as_micros() as u64) }).await
        });
        assert_eq!(ends, ((1300, 1020), 1300));
    }

    #[test]
    fn a_call_waits_for_another_and_no_longer() {
        let ends = claystone_sim::run(1, async |world| {
            let (clock, blocking) = (world.clock(), Blocking::new(world.clock()));
            let (now, bell) = (blocking.now(), blocking.bell());
            let waits = {
                let bell = bell.clone();
                move || {
                    bell.wait(bell.rings());
                    now().0.as_micros() as u64
                }
            };
            let rings = move || {
                ask(Wish::Sync(Side::Hdd)).expect("the world is there");
                bell.ring();
                // It is heard now, and not when this call ends.
                ask(Wish::Sync(Side::Hdd)).expect("the world is there");
            };
            let fulfil = async |_| clock.sleep(Duration::from_micros(700)).await;
            let both = futures::future::join(blocking.call(waits, fulfil), blocking.call(rings, fulfil));
            LocalSet::new().run_until(async { (both.await.0, clock.now().0.as_micros() as u64) }).await
        });
        assert_eq!(ends, (700, 1400));
    }

    #[test]
    fn outside_of_a_call_no_time_passes() {
        ask(Wish::Sync(Side::Ssd)).expect("at once");
    }
}
