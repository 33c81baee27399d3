//! Who may sign requests.
//!
//! Invariants:
//! 1. Looking up a key does no I/O: the program keeps the keys in memory and feeds changes in.
//! 2. A secret never appears in a log or an error.

use std::collections::BTreeMap;
use std::sync::RwLock;

/// An owner of buckets and objects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account {
    /// What is stored as the owner.
    pub id: String,
    /// What people see.
    pub display_name: String,
    /// By which a grant can name it.
    pub email: Option<String>,
}

impl Account {
    /// An account whose name is its id; an id with an `@` is its mail address as well.
    pub fn named(id: impl Into<String>) -> Account {
        let id = id.into();
        Account { display_name: id.clone(), email: id.contains('@').then(|| id.clone()), id }
    }
}

/// Knows the credentials. Called for each request.
pub trait Keys: Send + Sync + 'static {
    /// The secret of an access key, and whose it is.
    fn secret(&self, access_key: &str) -> Option<(String, Account)>;
    /// An account by its id.
    fn account(&self, id: &str) -> Option<Account>;
    /// An account by its mail address.
    fn account_by_email(&self, email: &str) -> Option<Account>;
}

/// Keys in memory.
#[derive(Default)]
pub struct KeyRing {
    keys: RwLock<BTreeMap<String, (String, Account)>>,
}

impl KeyRing {
    /// No keys.
    pub fn new() -> KeyRing {
        KeyRing::default()
    }

    /// Adds or replaces a key.
    pub fn insert(&self, access_key: impl Into<String>, secret: impl Into<String>, account: Account) {
        self.keys.write().expect(POISONED).insert(access_key.into(), (secret.into(), account));
    }

    /// Takes a key away: requests signed with it are refused from now on.
    pub fn remove(&self, access_key: &str) {
        self.keys.write().expect(POISONED).remove(access_key);
    }

    fn find(&self, wanted: impl Fn(&Account) -> bool) -> Option<Account> {
        let keys = self.keys.read().expect(POISONED);
        keys.values().map(|(_, account)| account).find(|account| wanted(account)).cloned()
    }
}

impl Keys for KeyRing {
    fn secret(&self, access_key: &str) -> Option<(String, Account)> {
        self.keys.read().expect(POISONED).get(access_key).cloned()
    }

    fn account(&self, id: &str) -> Option<Account> {
        self.find(|account| account.id == id)
    }

    fn account_by_email(&self, email: &str) -> Option<Account> {
        self.find(|account| account.email.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(email)))
    }
}

const POISONED: &str = "no code panics while it holds the keys";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_key_is_unknown() {
        let ring = KeyRing::new();
        ring.insert("a", "s", Account::named("ann@example.com"));
        assert_eq!(ring.secret("a").map(|(secret, _)| secret), Some("s".to_owned()));
        assert_eq!(ring.account_by_email("Ann@example.com").map(|a| a.id), Some("ann@example.com".to_owned()));
        ring.remove("a");
        assert_eq!(ring.secret("a"), None);
    }
}
