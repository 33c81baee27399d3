//! Credentials in SQLite.

use async_trait::async_trait;
use rusqlite::params;

use super::SqliteMeta;
use super::rows::{Int, time};
use crate::{AccessKey, KeyRecords, MetaError};

#[async_trait]
impl KeyRecords for SqliteMeta {
    async fn put_key(&self, key: AccessKey) -> Result<(), MetaError> {
        self.write(move |connection| {
            connection
                .prepare_cached(
                    "INSERT OR REPLACE INTO keys (access_key, secret_key, account, created_ms) VALUES (?1, ?2, ?3, ?4)",
                )?
                .execute(params![key.access_key, key.secret_key, key.account, Int(key.created.unix_ms)])?;
            Ok(())
        })
        .await
    }

    async fn keys(&self) -> Result<Vec<AccessKey>, MetaError> {
        self.read(|connection| {
            let mut statement = connection
                .prepare_cached("SELECT access_key, secret_key, account, created_ms FROM keys ORDER BY access_key")?;
            let mut rows = statement.query([])?;
            let mut keys = Vec::new();
            while let Some(row) = rows.next()? {
                keys.push(AccessKey {
                    access_key: row.get(0)?,
                    secret_key: row.get(1)?,
                    account: row.get(2)?,
                    created: time(row, 3)?,
                });
            }
            Ok(keys)
        })
        .await
    }

    async fn delete_key(&self, access_key: &str) -> Result<(), MetaError> {
        let access_key = access_key.to_owned();
        self.free(move |connection| {
            connection.prepare_cached("DELETE FROM keys WHERE access_key = ?1")?.execute(params![access_key])?;
            Ok(())
        })
        .await
    }
}
