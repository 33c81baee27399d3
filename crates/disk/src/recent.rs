//! What was used last, a bounded number of it: open files.

use std::collections::VecDeque;

/// At most `max` values by key, the ones used last.
#[derive(Debug)]
pub struct Recent<K, V> {
    // The one used last is at the end.
    kept: VecDeque<(K, V)>,
    max: usize,
}

impl<K: PartialEq, V: Clone> Recent<K, V> {
    /// Nothing yet.
    pub const fn new(max: usize) -> Recent<K, V> {
        Recent { kept: VecDeque::new(), max }
    }

    /// The value of a key, which is then the one used last.
    pub fn find(&mut self, key: &K) -> Option<V> {
        let at = self.kept.iter().rposition(|(kept, _)| kept == key)?;
        let found = self.kept.remove(at).expect("a position in the queue");
        let value = found.1.clone();
        self.kept.push_back(found);
        Some(value)
    }

    /// Keeps a value, in the place of the one that was not used for longest.
    pub fn keep(&mut self, key: K, value: V) {
        self.forget(&key);
        self.kept.push_back((key, value));
        if self.kept.len() > self.max {
            self.kept.pop_front();
        }
    }

    /// Forgets a key.
    pub fn forget(&mut self, key: &K) {
        self.kept.retain(|(kept, _)| kept != key);
    }

    /// Forgets every key for which `gone` holds.
    pub fn forget_all(&mut self, gone: impl Fn(&K) -> bool) {
        self.kept.retain(|(kept, _)| !gone(kept));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ones_used_last_are_kept() {
        let mut recent = Recent::new(3);
        for key in [1, 2, 3] {
            recent.keep(key, key * 10);
        }
        assert_eq!(recent.find(&1), Some(10));
        recent.keep(4, 40);
        assert_eq!([1, 2, 3, 4].map(|key| recent.find(&key)), [Some(10), None, Some(30), Some(40)]);
        recent.keep(3, 31);
        assert_eq!(recent.find(&3), Some(31));
        recent.forget(&1);
        recent.forget_all(|key| *key == 4);
        assert_eq!([1, 3, 4].map(|key| recent.find(&key)), [None, Some(31), None]);
    }
}
