//! One direction of a node's network card, in time alone: messages leave one after another and arrive a while later.
//!
//! Invariants:
//! 1. The card sends one message at a time, and they arrive in the order in which they were sent, as over one TCP connection.
//! 2. All chance comes from the link's own stream of the world's seed.
//!
//! Left out: loss, and cards of the nodes that receive.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use claystone_env::{Clock, Random};

use crate::clock::SimClock;

/// How long messages take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkModel {
    /// From one program to the other, for a message without bytes.
    pub delay: Duration,
    /// What is added to that in the mean, exponentially distributed.
    pub jitter: Duration,
    /// Bytes sent in a second.
    pub bytes_per_second: u64,
}

impl LinkModel {
    /// 10 Gb Ethernet between two systems, each with a kernel's network stack, over a switch: a round trip takes 90 us.
    ///
    /// Of two such systems 30 us were measured with the processors polling, and 47 us without (blog.cloudflare.com, 2015, in
    /// UDP); TCP, a switch and programs that are woken add the rest.
    pub fn ethernet_10g() -> LinkModel {
        LinkModel {
            delay: Duration::from_micros(40),
            jitter: Duration::from_micros(5),
            bytes_per_second: 1_250_000_000,
        }
    }
}

/// A link. Clones are the same.
#[derive(Clone)]
pub struct SimLink {
    model: LinkModel,
    clock: SimClock,
    random: Arc<dyn Random>,
    /// When the card has sent the last message, and when that arrives.
    last: Arc<Mutex<(Duration, Duration)>>,
}

impl SimLink {
    pub(crate) fn new(model: LinkModel, random: Arc<dyn Random>, clock: SimClock) -> SimLink {
        SimLink { model, clock, random, last: Arc::default() }
    }

    /// Completes when a message of so many bytes, sent now, has arrived.
    pub async fn carry(&self, bytes: u64) {
        let now = self.clock.now().0;
        // In (0, 1].
        let share = (self.random.below(1 << 53) + 1) as f64 / (1u64 << 53) as f64;
        let late = self.model.jitter.mul_f64(-share.ln());
        let arrives = {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            let sending = Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / self.model.bytes_per_second);
            let sent = now.max(last.0) + sending;
            *last = (sent, last.1.max(sent + self.model.delay + late));
            last.1
        };
        self.clock.sleep(arrives - now).await;
    }
}
