//! `claystone bucket`: buckets and their codes.

use std::io;

use anyhow::bail;
use claystone_code::CodeSpec;
use claystone_console::api;
use claystone_s3::CODE_HEADER;
use hyper::header::HeaderValue;
use hyper::{Method, Request};

use super::{At, print_json};
use crate::admin::AdminClient;
use crate::http::{self, Connection};
use crate::output::output;
use crate::signature::Signer;
use crate::table::Table;

/// Buckets and their codes.
#[derive(Debug, clap::Args)]
pub struct Bucket {
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
    /// All buckets
    List,
    /// Make a bucket
    Create {
        /// Its name
        name: String,
        /// The code of its objects, such as rs:4+2, clay:4+2:5, replica:3 [default: the store's]
        #[arg(long, value_parser = code)]
        code: Option<CodeSpec>,
    },
    /// Choose the code of a bucket's new objects, instead of its policy if it has one; those that are there stay as they are
    Code {
        /// The bucket
        name: String,
        /// Such as rs:4+2, clay:4+2:5, replica:3; `default` for the store's
        code: String,
    },
}

impl Bucket {
    /// Acts.
    ///
    /// # Errors
    /// No store answers, or it says no.
    pub async fn run(self) -> anyhow::Result<()> {
        let client = AdminClient::of(&self.at.dir)?;
        match self.action {
            Action::List => {
                let buckets: api::Buckets = client.get("/buckets").await?;
                if self.json {
                    print_json(&buckets)?;
                    return Ok(());
                }
                let mut table = Table::new(&["bucket", "code", "owner"]);
                for bucket in buckets.buckets {
                    let code = bucket.policy.or(bucket.code);
                    table.row([bucket.name, code.unwrap_or_else(|| "(default)".to_owned()), bucket.owner]);
                }
                write!(output(), "{table}")?;
            }
            Action::Create { name, code } => {
                create(&client, &name, code).await?;
                self.at.say(self.json, &format!("made {name}"))?;
            }
            Action::Code { name, code: text } => {
                let wanted = if text == "default" { None } else { Some(code(&text).map_err(anyhow::Error::msg)?) };
                set_code(&client, &name, wanted).await?;
                self.at.say(
                    self.json,
                    &format!("new objects in {name} get {text}; those that are there stay as they are"),
                )?;
            }
        }
        Ok(())
    }
}

impl At {
    fn say(&self, json: bool, text: &str) -> io::Result<()> {
        if json { print_json(&api::Done {}) } else { writeln!(output(), "{text}") }
    }
}

/// Over S3, as any client does it.
async fn create(client: &AdminClient, name: &str, code: Option<CodeSpec>) -> anyhow::Result<()> {
    let plain =
        |character: char| character.is_ascii_lowercase() || character.is_ascii_digit() || "-.".contains(character);
    if !(3..=63).contains(&name.len()) || !name.chars().all(plain) {
        bail!("{name:?} is no bucket name: 3 to 63 of a-z, 0-9, - and .");
    }
    let signer = Signer {
        access_key: client.credentials.access_key.clone(),
        secret_key: client.credentials.secret_key.clone(),
        region: client.endpoint.region.clone(),
    };
    let authority = client.endpoint.s3.to_string();
    let mut request =
        Request::builder().method(Method::PUT).uri(format!("/{name}")).header("host", &authority).body(http::empty())?;
    if let Some(code) = code {
        request.headers_mut().insert(CODE_HEADER, HeaderValue::try_from(code.to_string())?);
    }
    signer.sign(&mut request);
    let response = Connection::open(&authority).await?.send(request).await?;
    let status = response.status();
    if !status.is_success() {
        let body = http::collect(response, 64 << 10).await?;
        let text = String::from_utf8_lossy(&body);
        let message = text.split("<Message>").nth(1).and_then(|rest| rest.split("</Message>").next());
        bail!("{name} cannot be made: {}", message.unwrap_or(status.as_str()));
    }
    Ok(())
}

async fn set_code(client: &AdminClient, name: &str, code: Option<CodeSpec>) -> anyhow::Result<()> {
    let body = api::SetCode { code: code.map(|code| code.to_string()) };
    let _: api::Done = client.send(Method::PUT, &format!("/buckets/{name}/code"), &body).await?;
    Ok(())
}

fn code(text: &str) -> Result<CodeSpec, String> {
    let code: CodeSpec = text.parse().map_err(|error: claystone_code::SpecError| error.to_string())?;
    Ok(code)
}
