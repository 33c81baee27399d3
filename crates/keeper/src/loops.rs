//! The loops of upkeep; each only repeats a public step.
//!
//! ```text
//! damage    handle_damage     as reports of reads arrive
//! losses    losses_once       every 5 s, and page by page while a disk is read back that lost sectors
//! move      repair_once, drain_once, survey      until nothing is left, then at a wake-up or every 5 s
//! scrub     scrub_once        page by page; rests while a repair is under way, unless somebody asked for a scrub
//! reclaim   reclaim_once      every 10 s, and when a disk returns
//! convert   convert_once      every minute while buckets have policies; rests while a repair is under way
//! heat      write_heats       every 5 minutes
//! ```
//!
//! Invariants:
//! 1. A loop that fails tries again after a rest, without end: nobody else would.

use std::time::Duration;

use claystone_env::Task;
use futures::future::select;
use tokio::sync::Notify;

use crate::policies::LOOK_SHARE;
use crate::{Keeper, KeeperError};

impl Keeper {
    /// Starts the loops. Cancel the tasks to stop; what they had under way is taken up from the records later.
    pub fn start(&self) -> Vec<Task> {
        let tasks = &self.inner.env.tasks;
        vec![
            tasks.spawn("keeper-damage", Box::pin(self.clone().damage_loop())),
            tasks.spawn("keeper-losses", Box::pin(self.clone().losses_loop())),
            tasks.spawn("keeper-move", Box::pin(self.clone().move_loop())),
            tasks.spawn("keeper-scrub", Box::pin(self.clone().scrub_loop())),
            tasks.spawn("keeper-reclaim", Box::pin(self.clone().reclaim_loop())),
            tasks.spawn("keeper-convert", Box::pin(self.clone().convert_loop())),
            tasks.spawn("keeper-heat", Box::pin(self.clone().heat_loop())),
        ]
    }

    async fn move_loop(self) {
        loop {
            match self.move_round().await {
                Ok(true) => {}
                Ok(false) => self.rest(&self.inner.move_wake, MOVE_EVERY).await,
                Err(error) => self.failed("repair", &error).await,
            }
        }
    }

    async fn move_round(&self) -> Result<bool, KeeperError> {
        let repair = self.repair_once().await?;
        let drain = self.drain_once().await?;
        self.survey().await?;
        Ok(repair.chunks + repair.converted + repair.conflicts + drain.chunks + drain.conflicts + drain.removed > 0)
    }

    async fn scrub_loop(self) {
        loop {
            let asked = self.state().full_scrub.is_some();
            if self.repairs() && !asked {
                self.rest(&self.inner.scrub_wake, MOVE_EVERY).await;
                continue;
            }
            match self.scrub_once().await {
                Ok(round) if round.wrapped => self.rest(&self.inner.scrub_wake, SCRUB_EVERY).await,
                Ok(_) => {}
                Err(error) => self.failed("scrub", &error).await,
            }
        }
    }

    async fn reclaim_loop(self) {
        loop {
            match self.reclaim_once().await {
                Ok(round) if round.forgotten + round.orphans > 0 => {}
                Ok(_) => self.rest(&self.inner.reclaim_wake, RECLAIM_EVERY).await,
                Err(error) => self.failed("reclaim", &error).await,
            }
        }
    }

    async fn convert_loop(self) {
        loop {
            if self.repairs() {
                // Writers want to know what buckets take all the same.
                if let Err(error) = self.find_rooms_once().await {
                    self.failed("looking at buckets", &error).await;
                }
                self.rest(&self.inner.convert_wake, MOVE_EVERY).await;
                continue;
            }
            let began = self.now();
            match self.convert_once().await {
                // The next look says what came of it, and what is left.
                Ok(round) if round.converted() + round.spread > 0 => {}
                Ok(_) => {
                    // Large buckets are looked through less often: it takes at most a twentieth of the time.
                    let took = self.now().since(began);
                    self.rest(&self.inner.convert_wake, self.inner.settings.convert_every.max(took * LOOK_SHARE)).await;
                }
                Err(error) => self.failed("conversion", &error).await,
            }
        }
    }

    async fn heat_loop(self) {
        loop {
            self.inner.env.clock.sleep(self.inner.settings.heat_every).await;
            if let Err(error) = self.write_heats().await {
                self.failed("writing heat", &error).await;
            }
        }
    }

    async fn damage_loop(self) {
        while let Some(first) = {
            let mut reports = self.inner.damage.lock().await;
            reports.recv().await
        } {
            if let Err(error) = self.handle_damage(vec![first]).await {
                self.failed("damage reports", &error).await;
            }
        }
    }

    async fn losses_loop(self) {
        loop {
            match self.losses_once().await {
                Ok(round) if round.more => {}
                Ok(_) => self.inner.env.clock.sleep(LOSSES_EVERY).await,
                Err(error) => self.failed("reading back", &error).await,
            }
        }
    }

    async fn rest(&self, wake: &Notify, limit: Duration) {
        let woken = std::pin::pin!(wake.notified());
        select(woken, self.inner.env.clock.sleep(limit)).await;
    }

    async fn failed(&self, what: &str, error: &KeeperError) {
        let KeeperError::Meta(cause) = error;
        tracing::warn!(what, %cause, "upkeep could not go on and tries again in {ERROR_REST:?}");
        self.inner.env.clock.sleep(ERROR_REST).await;
    }
}

const LOSSES_EVERY: Duration = Duration::from_secs(5);
const MOVE_EVERY: Duration = Duration::from_secs(5);
const SCRUB_EVERY: Duration = Duration::from_secs(60);
const RECLAIM_EVERY: Duration = Duration::from_secs(10);
const ERROR_REST: Duration = Duration::from_secs(5);
