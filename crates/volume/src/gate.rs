//! Keeps writers of one page apart where one of them needs what the page was before.
//!
//! A writer of whole pages waits only for writers of parts of them, and these for every other.

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
        loop {
            let left = self.0.left.notified();
            let mut left = std::pin::pin!(left);
            // Whoever leaves after the look below wakes this.
            left.as_mut().enable();
            if let Some(pass) = self.try_enter(&pages, parts) {
                return pass;
            }
            left.await;
        }
    }

    /// If they may be written now.
    pub(crate) fn try_enter(&self, pages: &Range<Page>, parts: bool) -> Option<Pass> {
        let mut inside = self.0.inside();
        let meets = |writer: &Writer| {
            (parts || writer.parts) && writer.pages.start < pages.end && pages.start < writer.pages.end
        };
        if inside.writers.iter().any(meets) {
            return None;
        }
        let number = inside.next;
        inside.next += 1;
        inside.writers.push(Writer { number, pages: pages.clone(), parts });
        Some(Pass { shared: self.0.clone(), number })
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
}
