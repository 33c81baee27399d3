//! A batch of work: several pieces of it at once, until all is done, it is to end early, or a piece fails that ends all.
//!
//! Invariants:
//! 1. What was begun is brought to its end, whatever fails beside it: half of a conversion or of a repair is chunks that no record
//!    names.

use std::sync::atomic::{AtomicBool, Ordering};

use futures::StreamExt;
use futures::stream;

/// Carries out `work` with `act`, `at_once` pieces at a time and in this order, while `goes_on`, which is told how many were begun,
/// and hands what comes of each to `take`.
///
/// # Errors
/// That of the first piece that failed. Nothing was begun after it.
pub(crate) async fn carry_out_all<W, T, E, F: Future<Output = Result<T, E>>>(
    work: impl IntoIterator<Item = W>,
    at_once: usize,
    goes_on: impl Fn(usize) -> bool,
    act: impl Fn(W) -> F,
    mut take: impl FnMut(T),
) -> Result<(), E> {
    let failed = AtomicBool::new(false);
    let mut outcomes = stream::iter(work.into_iter().enumerate())
        .take_while(|(begun, _)| std::future::ready(!failed.load(Ordering::Relaxed) && goes_on(*begun)))
        .map(|(_, work)| act(work))
        .buffer_unordered(at_once);
    let mut result = Ok(());
    while let Some(outcome) = outcomes.next().await {
        match outcome {
            Ok(outcome) => take(outcome),
            Err(error) => {
                failed.store(true, Ordering::Relaxed);
                result = result.and(Err(error));
            }
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Pieces that take so many seconds, of which those at `fails` fail; returns what was taken and what came of all.
    fn taken(seconds: &'static [u64], fails: &'static [usize], most: usize) -> (Vec<usize>, Result<(), usize>) {
        claystone_sim::run(1, move |world| async move {
            let clock = world.process("node").env().clock.clone();
            let mut taken = Vec::new();
            let act = |(at, seconds): (usize, &'static u64)| {
                let clock = clock.clone();
                async move {
                    clock.sleep(Duration::from_secs(*seconds)).await;
                    if fails.contains(&at) { Err(at) } else { Ok(at) }
                }
            };
            let work = seconds.iter().enumerate();
            let result = carry_out_all(work, 2, |begun| begun < most, act, |at| taken.push(at)).await;
            (taken, result)
        })
    }

    #[test]
    fn two_at_a_time_in_order_until_it_is_enough() {
        assert_eq!(taken(&[3, 1, 1, 9], &[], 9), (vec![1, 2, 0, 3], Ok(())));
        assert_eq!(taken(&[3, 1, 1, 9], &[], 2), (vec![1, 0], Ok(())));
        assert_eq!(taken(&[], &[], 9), (vec![], Ok(())));
    }

    #[test]
    fn what_is_under_way_when_another_fails_ends_and_nothing_else_begins() {
        assert_eq!(taken(&[3, 1, 1], &[1], 9), (vec![0], Err(1)));
        assert_eq!(taken(&[3, 1, 1], &[0, 1], 9), (vec![], Err(1)), "the first error counts");
    }
}
