//! What clients were told: the truth that the store is held against.

use std::collections::BTreeMap;

use bytes::Bytes;
use claystone_chunk::testing::pattern;

/// An object's bytes, by the seed they are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// Seed of the pattern.
    pub seed: u64,
    /// Length.
    pub bytes: usize,
}

impl Stored {
    /// The bytes.
    pub fn content(self) -> Bytes {
        pattern(self.seed, self.bytes)
    }
}

/// What may be under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Truth {
    /// This, or nothing.
    Known(Option<Stored>),
    /// An operation from the first to the second was cut off: either.
    Between(Option<Stored>, Option<Stored>),
}

/// All keys that were ever used.
#[derive(Debug, Clone, Default)]
pub struct Model(BTreeMap<String, Truth>);

impl Model {
    /// What is known to be under a key.
    ///
    /// # Panics
    /// If it is in doubt: settle it first.
    pub fn known(&self, key: &str) -> Option<Stored> {
        match self.0.get(key) {
            None => None,
            Some(Truth::Known(stored)) => *stored,
            Some(Truth::Between(..)) => panic!("{key} is in doubt"),
        }
    }

    /// An operation begins that makes `key` hold `after`.
    pub fn begin(&mut self, key: &str, after: Option<Stored>) {
        let before = self.known(key);
        self.0.insert(key.to_owned(), Truth::Between(before, after));
    }

    /// The operation returned.
    ///
    /// # Panics
    /// If none was begun.
    pub fn end(&mut self, key: &str, happened: bool) {
        let Some(Truth::Between(before, after)) = self.0.get(key).cloned() else { panic!("{key} has no operation") };
        self.0.insert(key.to_owned(), Truth::Known(if happened { after } else { before }));
    }

    /// Compares a key with what the store gave (`None`: no object), and settles doubt by it.
    ///
    /// # Errors
    /// What is wrong.
    pub fn observe(&mut self, key: &str, found: Option<&[u8]>) -> Result<(), String> {
        let holds = |stored: &Option<Stored>| match (stored, found) {
            (None, None) => true,
            (Some(stored), Some(found)) => stored.content() == found,
            _ => false,
        };
        let truth = self.0.get(key).cloned().unwrap_or(Truth::Known(None));
        let possible = match truth {
            Truth::Known(stored) => vec![stored],
            Truth::Between(before, after) => vec![after, before],
        };
        match possible.iter().find(|stored| holds(stored)) {
            Some(stored) => {
                self.0.insert(key.to_owned(), Truth::Known(*stored));
                Ok(())
            }
            None => Err(format!("{key} should hold one of {possible:?}, it holds {:?} bytes", found.map(<[u8]>::len))),
        }
    }

    /// All keys, also those that hold nothing.
    pub fn keys(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    /// The keys that hold an object.
    ///
    /// # Panics
    /// If one is in doubt.
    pub fn objects(&self) -> Vec<String> {
        self.0.keys().filter(|key| self.known(key).is_some()).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Stored = Stored { seed: 1, bytes: 10 };
    const B: Stored = Stored { seed: 2, bytes: 10 };

    #[test]
    fn an_operation_in_doubt_is_settled_by_what_is_seen_and_stays_so() {
        let mut model = Model::default();
        model.begin("k", Some(A));
        model.end("k", true);
        model.begin("k", Some(B));
        assert!(model.observe("k", None).is_err(), "neither old nor new");
        assert_eq!(model.observe("k", Some(&A.content())), Ok(()));
        assert!(model.observe("k", Some(&B.content())).is_err(), "it was settled as old");
    }

    #[test]
    fn an_operation_that_failed_did_not_happen() {
        let mut model = Model::default();
        model.begin("k", Some(A));
        model.end("k", false);
        assert_eq!(model.known("k"), None);
        assert!(model.observe("k", Some(&A.content())).is_err());
    }
}
