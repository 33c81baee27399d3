//! `claystone up`: starts a store and serves it until a signal.

use std::path::PathBuf;
use std::time::Instant;

use claystone_code::Tier;
use serde_json::json;

use super::DEFAULT_DIRECTORY;
use super::signals::Signals;
use crate::components::Store;
use crate::credentials::Credentials;
use crate::logs;
use crate::output::say;
use crate::server::Server;
use crate::settings::{Layers, LogFormat, Settings};

/// Start a store; make it if there is none.
///
/// Each option is also a line of DIR/claystone.toml (`listen = "..."`) and an environment variable
/// (`CLAYSTONE_LISTEN`). Options win over variables, variables over the file.
#[derive(Debug, clap::Args)]
pub struct Up {
    /// Where the store lives: metadata, credentials and, unless named otherwise, six disks
    #[arg(default_value = DEFAULT_DIRECTORY, value_name = "DIR", env = "CLAYSTONE_DIR")]
    dir: PathBuf,
    /// Directories that are the store's disks, best each on a device of its own; or devices made by `claystone disk format`, of which
    /// one with a solid-state drive may be named as hdd:DEVICE [default: DIR/disk1 .. DIR/disk6]
    #[arg(long, num_args = 1.., value_name = "PATH")]
    disks: Option<Vec<String>>,
    /// Where solid-state drives of disks are that are no longer where they were (`claystone disk format DEVICE --ssd SSD`)
    #[arg(long, visible_alias = "ssd", num_args = 1.., value_name = "PATH")]
    ssds: Option<Vec<String>>,
    /// Where writes to disks of two drives go: latency (to the hard disk where that is sooner), wear (wherever its buffer takes them) or
    /// off (to the solid-state drive) [default: latency]
    #[arg(long, value_name = "HOW")]
    steer: Option<String>,
    /// Failure domain of each disk, in the same order [default: all on one node]
    #[arg(long, num_args = 1.., value_name = "NAME")]
    nodes: Option<Vec<String>>,
    /// Address of S3 [default: 127.0.0.1:9000; port 0 takes a free one]
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Address of the console, the admin API and metrics [default: 127.0.0.1:9001]
    #[arg(long, value_name = "HOST:PORT")]
    console: Option<String>,
    /// Address of block devices over NBD [default: 127.0.0.1:10809; `none`: not over TCP]
    #[arg(long, value_name = "HOST:PORT")]
    nbd_listen: Option<String>,
    /// Unix socket of block devices over NBD [default: DIR/nbd.sock; `none`: no socket]
    #[arg(long, value_name = "PATH")]
    nbd_socket: Option<String>,
    /// Certificate of the NBD server in PEM, with its chain: clients over TCP must use TLS
    #[arg(long, value_name = "FILE")]
    nbd_tls_cert: Option<String>,
    /// Key of that certificate in PEM
    #[arg(long, value_name = "FILE")]
    nbd_tls_key: Option<String>,
    /// Authority in PEM, of which clients of the NBD server must show a certificate
    #[arg(long, value_name = "FILE")]
    nbd_tls_ca: Option<String>,
    /// Code of buckets that name none [default: by number of disks: rs:4+2 from six on]
    #[arg(long, value_name = "CODE")]
    code: Option<String>,
    /// Policy that these buckets get when they are made: a name of `claystone policy list`, a policy, `none`, or `auto`: by the number
    /// of disks or nodes, none with fewer than eleven [default: auto, and none where a code is given]
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// Instruction set that codes run with: scalar, neon, avx2, avx2-gfni or avx512-gfni [default: the fastest there is]
    #[arg(long, value_name = "TIER")]
    code_tier: Option<String>,
    /// When a write is acknowledged: `sync` when it is on disk, or `replicated` when no one node that loses power takes it along
    #[arg(long, value_name = "sync|replicated")]
    durability: Option<String>,
    /// Memory for checksums of each disk on a device, in MiB: of a hard disk, ten times as many GiB of data are read anywhere without another seek
    /// for them [default: auto: what hard disks need, an eighth of the machine's memory at most]
    #[arg(long, value_name = "MIB")]
    sums_cache_mib: Option<String>,
    /// Settings file [default: DIR/claystone.toml, if there is one]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Accept plain HTTP on an address that other machines reach: whoever is in between reads everything
    #[arg(long)]
    insecure_public: bool,
    /// Which logs: error, warn, info, debug, trace [default: info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Logs and the ready line as JSON
    #[arg(long)]
    json: bool,
}

impl Up {
    /// Serves until a signal.
    ///
    /// # Errors
    /// The store cannot be started, or not be stopped in order.
    pub async fn run(self, start: Instant) -> anyhow::Result<()> {
        let settings = self.settings()?;
        let json = settings.logs == LogFormat::Json;
        logs::for_server(settings.logs, &settings.log_level)?;
        if let Some(tier) = settings.code_tier {
            tier.force()?;
        }
        tracing::info!(tier = %Tier::chosen(), "codes run with");
        let mut signals = Signals::new()?;
        let directory = settings.directory.clone();
        let store = Store::start(settings).await?;
        let server = Server::start(store.clone()).await?;
        let endpoint = server.endpoint().clone();
        let ready_ms = start.elapsed().as_secs_f64() * 1e3;
        if json {
            let line = json!({
                "event": "ready", "ms": ready_ms, "s3": format!("http://{}", endpoint.s3),
                "console": format!("http://{}", endpoint.console), "nbd": endpoint.nbd, "nbd_socket": endpoint.nbd_socket,
                "directory": directory, "process": endpoint.process,
            });
            say(line);
        } else {
            if store.is_new {
                tell_first_start(&store);
            }
            say(format_args!(
                "ready in {ready_ms:.0} ms: S3 on http://{}, console on http://{}",
                endpoint.s3, endpoint.console
            ));
        }
        let name = signals.next().await;
        tracing::info!(signal = name, "stopping; a second signal ends at once");
        let stop = async {
            server.stop().await;
            store.stop().await;
        };
        tokio::select! {
            biased;
            () = stop => {}
            name = signals.next() => tracing::warn!(signal = name, "stopped with requests under way"),
        }
        Ok(())
    }

    fn settings(self) -> anyhow::Result<Settings> {
        let mut layers = Layers::defaults();
        let file = self.config.clone().unwrap_or_else(|| self.dir.join("claystone.toml"));
        layers.file(&file, self.config.is_some())?;
        layers.environment(std::env::vars())?;
        let one = |value: Option<String>| value.map(|value| vec![value]);
        layers.flag("disks", self.disks);
        layers.flag("ssds", self.ssds);
        layers.flag("steer", one(self.steer));
        layers.flag("nodes", self.nodes);
        layers.flag("listen", one(self.listen));
        layers.flag("console", one(self.console));
        layers.flag("nbd_listen", one(self.nbd_listen));
        layers.flag("nbd_socket", one(self.nbd_socket));
        layers.flag("nbd_tls_cert", one(self.nbd_tls_cert));
        layers.flag("nbd_tls_key", one(self.nbd_tls_key));
        layers.flag("nbd_tls_ca", one(self.nbd_tls_ca));
        layers.flag("code", one(self.code));
        layers.flag("policy", one(self.policy));
        layers.flag("code_tier", one(self.code_tier));
        layers.flag("durability", one(self.durability));
        layers.flag("sums_cache_mib", one(self.sums_cache_mib));
        layers.flag("log_level", one(self.log_level));
        layers.flag("insecure_public", self.insecure_public.then(|| vec!["true".to_owned()]));
        layers.flag("logs", self.json.then(|| vec!["json".to_owned()]));
        Settings::check(&self.dir, &layers)
    }
}

/// The only time that the secrets are shown.
fn tell_first_start(store: &Store) {
    let Credentials { access_key, secret_key, admin_token } = &store.credentials;
    say(format_args!("made a new store in {}", store.settings.directory.display()));
    say(format_args!("  default code  {}", store.objects.default_code()));
    say(format_args!("  access key    {access_key}"));
    say(format_args!("  secret key    {secret_key}"));
    say(format_args!("  admin token   {admin_token}"));
    say(format_args!("  (kept in {}; not shown again)", Credentials::path(&store.settings.directory).display()));
}
