//! `claystone key`: who may use a running store.

use claystone_console::api;
use hyper::Method;

use super::{At, print_json};
use crate::admin::AdminClient;
use crate::output::output;
use crate::table::Table;

/// Who may use a running store.
#[derive(Debug, clap::Args)]
pub struct Key {
    #[command(flatten)]
    at: At,
    /// JSON instead of tables
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// All access keys, without their secrets
    List,
    /// Make an access key; its secret is shown once
    Add {
        /// Whose it is: the owner of what is made with it
        #[arg(long, default_value = crate::components::FIRST_ACCOUNT)]
        account: String,
    },
    /// Take an access key away
    Delete {
        /// The key
        access_key: String,
    },
}

impl Key {
    /// Acts.
    ///
    /// # Errors
    /// No store answers, or it says no.
    pub async fn run(self) -> anyhow::Result<()> {
        let client = AdminClient::of(&self.at.dir)?;
        match self.action {
            Action::List => {
                let keys: api::Keys = client.get("/keys").await?;
                if self.json {
                    print_json(&keys)?;
                    return Ok(());
                }
                let mut table = Table::new(&["access key", "account"]);
                for key in keys.keys {
                    table.row([key.access_key, key.account]);
                }
                write!(output(), "{table}")?;
            }
            Action::Add { account } => {
                let added: api::KeyAdded = client.send(Method::POST, "/keys", &api::AddKey { account }).await?;
                if self.json {
                    print_json(&added)?;
                } else {
                    writeln!(
                        output(),
                        "access key  {}\nsecret key  {}\n(not shown again)",
                        added.access_key,
                        added.secret_key
                    )?;
                }
            }
            Action::Delete { access_key } => {
                let done: api::Done =
                    client.send(Method::DELETE, &format!("/keys/{access_key}"), &api::Done {}).await?;
                if self.json {
                    print_json(&done)?;
                } else {
                    writeln!(output(), "deleted {access_key}")?;
                }
            }
        }
        Ok(())
    }
}
