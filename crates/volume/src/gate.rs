//! Keeps writers of one page apart where one of them needs what the page was before.
//!
//! Writers *meet* on a page that both write if at least one of them writes it in part: writers of whole pages may be there
//! at once.
//!
//! ```text
//!            enter               nobody before it meets it               drop
//!  (nobody) ------> in the line ---------------------------> writing --------> (nobody)
//!                       |                                                         ^
//!                       +------------------------- drop --------------------------+
//! ```
//!
//! Invariants:
//! 1. A writer waits for those only who came before it and meet it, whether they write or wait: so it has its turn, however
//!    many come later.
//! 2. Nobody who has a pass asks for another one by [`Gate::enter`]: nobody waits for itself.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::geometry::Page;

/// The pages that are being written. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gate(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    inside: Mutex<Inside>,
    left: Notify,
}

#[derive(Debug, Default)]
struct Inside {
    next: u64,
    /// Who writes or waits, in the order they came.
    writers: Vec<Writer>,
}

#[derive(Debug)]
struct Writer {
    number: u64,
    pages: Range<Page>,
    parts: bool,
}

/// Pages that are being written until this is dropped.
#[derive(Debug)]
pub(crate) struct Pass {
    shared: Arc<Shared>,
    number: u64,
}

impl Gate {
    /// Waits until these pages may be written; `parts`: not all of each of them.
    pub(crate) async fn enter(&self, pages: Range<Page>, parts: bool) -> Pass {
        let number = self.0.inside().come(pages, parts);
        // Whoever goes away while it waits leaves the line.
        let pass = Pass { shared: self.0.clone(), number };
        loop {
            let left = self.0.left.notified();
            let mut left = std::pin::pin!(left);
            // Whoever leaves after the look below wakes this.
            left.as_mut().enable();
            if self.0.inside().may_write(number) {
                return pass;
            }
            left.await;
        }
    }

    /// If they may be written now: nobody who meets this one writes or waits.
    pub(crate) fn try_enter(&self, pages: &Range<Page>, parts: bool) -> Option<Pass> {
        let mut inside = self.0.inside();
        if inside.writers.iter().any(|writer| writer.meets(pages, parts)) {
            return None;
        }
        let number = inside.come(pages.clone(), parts);
        Some(Pass { shared: self.0.clone(), number })
    }
}

impl Inside {
    /// A writer comes to the end of the line.
    fn come(&mut self, pages: Range<Page>, parts: bool) -> u64 {
        let number = self.next;
        self.next += 1;
        self.writers.push(Writer { number, pages, parts });
        number
    }

    fn may_write(&self, number: u64) -> bool {
        let at = self.writers.iter().position(|writer| writer.number == number).expect("it leaves with its pass");
        let (before, this) = (&self.writers[..at], &self.writers[at]);
        !before.iter().any(|writer| writer.meets(&this.pages, this.parts))
    }
}

impl Writer {
    fn meets(&self, pages: &Range<Page>, parts: bool) -> bool {
        (parts || self.parts) && self.pages.start < pages.end && pages.start < self.pages.end
    }
}

impl Shared {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.shared.inside().writers.retain(|writer| writer.number != self.number);
        self.shared.left.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn writers_of_parts_are_alone_on_their_pages() {
        let gate = Gate::default();
        let whole = (gate.enter(Page(0)..Page(4), false).await, gate.enter(Page(2)..Page(6), false).await);
        let mut part = Box::pin(gate.enter(Page(5)..Page(6), true));
        assert!(part.as_mut().now_or_never().is_none());
        let elsewhere = gate.enter(Page(6)..Page(7), true).await;
        drop(whole);
        let part = part.await;
        let mut next = Box::pin(gate.enter(Page(5)..Page(7), false));
        assert!(next.as_mut().now_or_never().is_none());
        drop(elsewhere);
        assert!(next.as_mut().now_or_never().is_none());
        drop(part);
        next.await;
    }
    #[tokio::test]
    async fn a_writer_of_parts_has_its_turn_while_whole_pages_keep_being_written() {
        let gate = Gate::default();
        let pages = Page(0)..Page(2);
        let mut whole = gate.enter(pages.clone(), false).await;
        let mut part = Box::pin(gate.enter(Page(1)..Page(2), true));
        assert!(part.as_mut().now_or_never().is_none());
        // One comes before the one before it is gone, again and again.
        let mut later = Box::pin(gate.enter(pages.clone(), false));
        assert!(later.as_mut().now_or_never().is_none(), "it came after the one that waits");
        assert!(gate.try_enter(&pages, false).is_none());
        drop(gate.enter(Page(0)..Page(1), false).await);
        whole = {
            drop(whole);
            let part = part.as_mut().now_or_never().expect("whom it waited for is gone");
            assert!(later.as_mut().now_or_never().is_none());
            drop(part);
            later.await
        };
        // Who waited and went away holds up nobody.
        let mut part = Box::pin(gate.enter(Page(1)..Page(2), true));
        assert!(part.as_mut().now_or_never().is_none());
        let mut later = Box::pin(gate.enter(pages, false));
        assert!(later.as_mut().now_or_never().is_none());
        drop(part);
        drop((later.await, whole));
        assert!(gate.0.inside().writers.is_empty());
    }
}
