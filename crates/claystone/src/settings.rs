//! Settings: defaults < file < environment < flags, checked once into [`Settings`].
//!
//! Invariants:
//! 1. Every setting has one name: `listen` in `claystone.toml`, `CLAYSTONE_LISTEN` in the environment, `--listen` as a flag.
//! 2. An error names the setting, where its value came from, and what would be accepted.
//! 3. Nothing behind [`Settings::check`] reads files, the environment or flags.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use claystone_chunk::Durability;
use claystone_code::{CodeSpec, ForceError, Tier};
use claystone_host::RecoveryLimits;
use claystone_meta::HeatPolicy;
use claystone_nbd::{ServerConfig, tls_config};
use claystone_object::FirstPolicy;

use crate::disk_path;
use crate::drives::Steer;
use crate::sums_memory::SumsMemory;
use crate::tending::Care;

/// What the operator decided, checked.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where metadata, credentials and default disks live; absolute.
    pub directory: PathBuf,
    /// The disks to begin with, in order; empty: six directories below `directory`, or those that the store has.
    pub disks: Vec<PathBuf>,
    /// Those of them that are said to be drives, and no directories.
    pub drives: Vec<PathBuf>,
    /// Where solid-state drives of disks may be, beside where they were.
    pub ssds: Vec<PathBuf>,
    /// Which of two drives a write goes to.
    pub steer: Steer,
    /// The failure domain of each disk in `disks`; empty: all on one node.
    pub nodes: Vec<String>,
    /// Where S3 is served.
    pub listen: SocketAddr,
    /// Where the admin API, metrics and health are served.
    pub console: SocketAddr,
    /// Whether somebody named the console's address; else another free port will do when it is taken.
    pub console_named: bool,
    /// Where block devices are served; `None`: nowhere over TCP.
    pub nbd_listen: Option<SocketAddr>,
    /// Whether somebody named that address; else another free port will do when it is taken.
    pub nbd_listen_named: bool,
    /// The unix socket where they are served; `None`: over none.
    pub nbd_socket: Option<PathBuf>,
    /// Whether somebody named the socket.
    pub nbd_socket_named: bool,
    /// How clients of block devices over TCP are served.
    pub nbd_tls: Option<NbdTls>,
    /// Bytes that the log of a volume may take on each of its disks; `None`: by the volume's length.
    pub volume_log_bytes: Option<u64>,
    /// The code of buckets that name none; `None`: by the number of disks.
    pub code: Option<CodeSpec>,
    /// The policy that these get when they are made: by the number of disks, where nobody chose it or a code.
    pub policy: FirstPolicy,
    /// The instruction set that codes run with, one that this machine has; `None`: the fastest.
    pub code_tier: Option<Tier>,
    /// When a put may be acknowledged.
    pub durability: Durability,
    /// How often what was acknowledged from memory is synced (`durability = "replicated"`).
    pub sync_interval: Duration,
    /// The region that clients sign for.
    pub region: String,
    /// The longest object.
    pub object_bytes_max: u64,
    /// Upkeep: repair, scrub, reclaim, conversions.
    pub keeper: claystone_keeper::Settings,
    /// A read counts half for the heat of a stripe when it is this old.
    pub heat_half_life: Duration,
    /// A bucket with a policy has room as if it had so many bytes of objects at least.
    pub bound_from_bytes: u64,
    /// What drives are told that try to read a bad sector for as long as they like.
    pub recovery_limits: Option<RecoveryLimits>,
    /// Memory for checksums of each disk on a device.
    pub sums_memory: SumsMemory,
    /// How long requests may go on once the program was told to stop.
    pub shutdown_limit: Duration,
    /// How logs are written.
    pub logs: LogFormat,
    /// Which logs are written: `error`, `warn`, `info`, `debug`, `trace`, or a filter by module.
    pub log_level: String,
    /// Whether plain HTTP on an address that others can reach is accepted.
    pub insecure_public: bool,
}

/// TLS for clients of block devices.
#[derive(Debug, Clone)]
pub struct NbdTls {
    /// What is shown to clients, and what they must show.
    pub config: Arc<ServerConfig>,
    /// Whether they must show a certificate.
    pub clients_show: bool,
}

/// How logs are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    Auto,
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    Default,
    File(PathBuf),
    Environment(String),
    Flag,
}

#[derive(Debug, Clone)]
struct Value {
    items: Vec<String>,
    source: Source,
}

/// Texts by name; later layers win.
#[derive(Debug, Clone, Default)]
pub struct Layers {
    values: BTreeMap<&'static str, Value>,
}

impl Layers {
    /// The defaults.
    pub fn defaults() -> Layers {
        let mut layers = Layers::default();
        for (name, default) in NAMES {
            if let Some(default) = default {
                layers.values.insert(name, Value { items: vec![(*default).to_owned()], source: Source::Default });
            }
        }
        layers
    }

    /// Lays the file over what is there. `required`: it is an error if there is none.
    ///
    /// # Errors
    /// It cannot be read, is no TOML, or has a name that is no setting.
    pub fn file(&mut self, path: &Path, required: bool) -> anyhow::Result<()> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !required => return Ok(()),
            Err(error) => {
                return Err(error).with_context(|| format!("the settings file {} cannot be read", path.display()));
            }
        };
        let table: toml::Table =
            text.parse().with_context(|| format!("the settings file {} is no valid TOML", path.display()))?;
        for (name, value) in table {
            let name = known(&name).with_context(|| format!("in {}", path.display()))?;
            let items = match value {
                toml::Value::Array(items) => items.iter().map(plain).collect(),
                value => plain(&value).map(|text| vec![text]),
            };
            let items = items.with_context(|| {
                format!("{name} in {}: expected a text, a number, true, false, or a list of these", path.display())
            })?;
            self.values.insert(name, Value { items, source: Source::File(path.to_owned()) });
        }
        Ok(())
    }

    /// Lays the variables `CLAYSTONE_*` over what is there. Other programs' variables with that prefix are left alone
    /// unless they look like a misspelt setting.
    ///
    /// # Errors
    /// A variable is one or two letters away from a setting.
    pub fn environment(&mut self, variables: impl Iterator<Item = (String, String)>) -> anyhow::Result<()> {
        for (variable, text) in variables {
            let Some(name) = variable.strip_prefix("CLAYSTONE_") else { continue };
            let name = name.to_lowercase();
            match known(&name) {
                Ok(name) => {
                    let items = text.split(',').map(|item| item.trim().to_owned()).filter(|item| !item.is_empty());
                    let items = if LISTS.contains(&name) { items.collect() } else { vec![text] };
                    self.values.insert(name, Value { items, source: Source::Environment(variable) });
                }
                Err(error) if nearest(&name).1 <= 2 => {
                    return Err(error).with_context(|| format!("the environment variable {variable}"));
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Lays one flag over what is there; `None` leaves it as it is.
    ///
    /// # Panics
    /// If `name` is no setting.
    pub fn flag(&mut self, name: &str, items: Option<Vec<String>>) {
        let name = known(name).expect("flags are named after settings");
        if let Some(items) = items {
            self.values.insert(name, Value { items, source: Source::Flag });
        }
    }

    fn text(&self, name: &str) -> Option<(&str, String)> {
        let value = self.values.get(name)?;
        let origin = match &value.source {
            Source::Default => format!("the setting {name} (default)"),
            Source::File(path) => format!("the setting {name} (from {})", path.display()),
            Source::Environment(variable) => format!("the setting {name} (from {variable})"),
            Source::Flag => format!("--{}", name.replace('_', "-")),
        };
        Some((value.items.first().map_or("", String::as_str), origin))
    }

    fn list(&self, name: &str) -> Vec<String> {
        self.values.get(name).map(|value| value.items.clone()).unwrap_or_default()
    }

    fn parsed<T: FromStr>(&self, name: &str, expected: &str) -> anyhow::Result<T>
    where
        T::Err: fmt::Display,
    {
        let (text, origin) = self.text(name).ok_or_else(|| anyhow!("the setting {name} has no value"))?;
        text.parse().map_err(|error| anyhow!("{origin}: {text:?} is not {expected}: {error}"))
    }

    fn number(&self, name: &str, least: u64, most: u64) -> anyhow::Result<u64> {
        let number: u64 = self.parsed(name, "a whole number")?;
        let (_, origin) = self.text(name).expect("it was just read");
        ensure!((least..=most).contains(&number), "{origin}: {number} is outside {least} to {most}");
        Ok(number)
    }
}

impl Settings {
    /// Checks every value.
    ///
    /// # Errors
    /// The first value that is not acceptable.
    pub fn check(directory: &Path, layers: &Layers) -> anyhow::Result<Settings> {
        let settings = Settings {
            directory: std::path::absolute(directory).with_context(|| format!("{} is no path", directory.display()))?,
            disks: paths("disks", layers.list("disks").iter().map(|disk| disk_path::parse(disk).0))?,
            drives: {
                let drives = layers.list("disks");
                paths(
                    "disks",
                    drives
                        .iter()
                        .map(|disk| disk_path::parse(disk))
                        .filter(|(_, is_drive)| *is_drive)
                        .map(|(path, _)| path),
                )?
            },
            ssds: paths("ssds", layers.list("ssds").iter().map(String::as_str))?,
            steer: match layers.parsed::<String>("steer", "a text")?.as_str() {
                "off" => Steer::Off,
                "latency" => Steer::Latency,
                "wear" => Steer::Wear,
                other => bail!("the setting steer: {other:?} is none of \"off\", \"latency\", \"wear\""),
            },
            nodes: layers.list("nodes"),
            listen: layers.parsed("listen", ADDRESS)?,
            console: layers.parsed("console", ADDRESS)?,
            console_named: layers.values.get("console").is_some_and(|value| value.source != Source::Default),
            nbd_listen: match layers.parsed::<String>("nbd_listen", "a text")?.as_str() {
                NONE => None,
                _ => Some(layers.parsed("nbd_listen", "an address with a port such as 127.0.0.1:10809, or `none`")?),
            },
            nbd_listen_named: layers.values.get("nbd_listen").is_some_and(|value| value.source != Source::Default),
            nbd_socket: match layers.text("nbd_socket") {
                None => Some(std::path::absolute(directory)?.join("nbd.sock")),
                Some((NONE, _)) => None,
                Some((path, origin)) => {
                    Some(std::path::absolute(path).with_context(|| format!("{origin}: {path:?} is no path"))?)
                }
            },
            nbd_socket_named: layers.values.contains_key("nbd_socket"),
            nbd_tls: nbd_tls(layers)?,
            volume_log_bytes: match layers.parsed::<String>("volume_log_mib", "a number, or `auto`")?.as_str() {
                "auto" => None,
                _ => Some(layers.number("volume_log_mib", 16, 1 << 20)? << 20),
            },
            code: if layers.values.contains_key("code") {
                Some(layers.parsed("code", "a code such as rs:4+2, clay:4+2:5 or replica:3")?)
            } else {
                None
            },
            policy: first_policy(layers)?,
            code_tier: code_tier(layers)?,
            durability: match layers.parsed::<String>("durability", "a text")?.as_str() {
                "sync" => Durability::Synced,
                "replicated" => Durability::Buffered,
                other => bail!("the setting durability: {other:?} is neither \"sync\" nor \"replicated\""),
            },
            sync_interval: Duration::from_millis(layers.number("sync_interval_ms", 10, 60_000)?),
            region: layers.parsed("region", "a region")?,
            object_bytes_max: layers.number("object_gib_max", 1, 50 << 10)? << 30,
            keeper: keeper(layers)?,
            heat_half_life: Duration::from_secs(60 * layers.number("heat_half_life_minutes", 1, 60 * 24 * 365)?),
            bound_from_bytes: layers.number("bound_from_mib", 0, 1 << 20)? << 20,
            recovery_limits: Care::limits_of(layers.number("error_recovery_seconds", 0, 99)? as u16),
            sums_memory: layers.parsed("sums_cache_mib", "`auto`, or a number of MiB from 1 to 65536")?,
            shutdown_limit: Duration::from_secs(layers.number("shutdown_seconds", 0, 3600)?),
            logs: match layers.parsed::<String>("logs", "a text")?.as_str() {
                "auto" => LogFormat::Auto,
                "text" => LogFormat::Text,
                "json" => LogFormat::Json,
                other => bail!("the setting logs: {other:?} is none of \"auto\", \"text\", \"json\""),
            },
            log_level: layers.parsed("log_level", "a level")?,
            insecure_public: layers.parsed("insecure_public", "true or false")?,
        };
        settings.check_together()?;
        Ok(settings)
    }

    fn check_together(&self) -> anyhow::Result<()> {
        ensure!(
            self.nodes.is_empty() || self.disks.is_empty() || self.nodes.len() == self.disks.len(),
            "nodes names {} failure domains for {} disks: give one for each disk, in the same order",
            self.nodes.len(),
            self.disks.len()
        );
        for (name, address) in [("listen", self.listen), ("console", self.console)] {
            ensure!(
                address.ip().is_loopback() || self.insecure_public,
                "--{name} {address} can be reached from other machines, and without TLS anybody in between reads and \
                 changes what is sent: put a TLS proxy in front and listen on 127.0.0.1, or accept it with --insecure-public"
            );
        }
        if let Some(address) = self.nbd_listen {
            ensure!(
                address.ip().is_loopback() || self.nbd_tls.as_ref().is_some_and(|tls| tls.clients_show),
                "--nbd-listen {address} can be reached from other machines, and whoever reaches it can read and change every \
                 volume: set nbd_tls_cert and nbd_tls_key, and nbd_tls_ca, of which clients must show a certificate; or \
                 listen on 127.0.0.1"
            );
            for (name, other) in [("listen", self.listen), ("console", self.console)] {
                ensure!(
                    address != other || address.port() == 0,
                    "--nbd-listen and --{name} cannot both listen on {address}: change one of them"
                );
            }
        }
        ensure!(
            self.listen != self.console || self.listen.port() == 0,
            "S3 and the console cannot both listen on {}: change --listen or --console",
            self.listen
        );
        for (number, disk) in self.disks.iter().enumerate() {
            ensure!(!self.disks[..number].contains(disk), "{} is named twice in --disks", disk.display());
        }
        Ok(())
    }

    /// The code of buckets that name none, for a store of so many disks.
    pub fn default_code(&self, disks: usize) -> CodeSpec {
        self.code.unwrap_or(match disks {
            0 | 1 => CodeSpec::Replicated { copies: 1 },
            2 => CodeSpec::Replicated { copies: 2 },
            3 => CodeSpec::Replicated { copies: 3 },
            4 => CodeSpec::ReedSolomon { data: 2, parity: 2 },
            5 => CodeSpec::ReedSolomon { data: 3, parity: 2 },
            _ => CodeSpec::ReedSolomon { data: 4, parity: 2 },
        })
    }
}

/// The policy that people mean by a name or a policy's text.
///
/// # Errors
/// They mean none.
pub fn policy_named(text: &str) -> anyhow::Result<HeatPolicy> {
    let unknown =
        || format!("{text:?} is neither a name of `claystone policy list`, nor `auto` or `none`, nor a policy");
    HeatPolicy::named(text).with_context(unknown)
}

fn first_policy(layers: &Layers) -> anyhow::Result<FirstPolicy> {
    let Some((text, origin)) = layers.text("policy") else {
        // Who chose a code wants that one.
        return Ok(if layers.values.contains_key("code") { FirstPolicy::None } else { FirstPolicy::ForDisks });
    };
    match text {
        NONE => Ok(FirstPolicy::None),
        "auto" => Ok(FirstPolicy::ForDisks),
        text => policy_named(text).map(FirstPolicy::This).context(origin),
    }
}

fn code_tier(layers: &Layers) -> anyhow::Result<Option<Tier>> {
    let Some((_, origin)) = layers.text("code_tier") else { return Ok(None) };
    let tier: Tier = layers.parsed("code_tier", "an instruction set")?;
    ensure!(Tier::available().contains(&tier), "{origin}: {}", ForceError::Unavailable { tier });
    Ok(Some(tier))
}

fn nbd_tls(layers: &Layers) -> anyhow::Result<Option<NbdTls>> {
    let file = |name: &str| -> anyhow::Result<Option<Vec<u8>>> {
        let Some((path, origin)) = layers.text(name) else { return Ok(None) };
        let read = std::fs::read(path).with_context(|| format!("{origin}: {path} cannot be read"))?;
        Ok(Some(read))
    };
    let (chain, key, authorities) = (file("nbd_tls_cert")?, file("nbd_tls_key")?, file("nbd_tls_ca")?);
    match (chain, key) {
        (Some(chain), Some(key)) => {
            let config = tls_config(&chain, &key, authorities.as_deref())
                .context("nbd_tls_cert, nbd_tls_key and nbd_tls_ca are files in PEM that belong together")?;
            Ok(Some(NbdTls { config, clients_show: authorities.is_some() }))
        }
        (None, None) => {
            ensure!(
                authorities.is_none(),
                "nbd_tls_ca needs nbd_tls_cert and nbd_tls_key: the server's own certificate"
            );
            Ok(None)
        }
        (Some(_), None) => bail!("nbd_tls_cert needs nbd_tls_key, the certificate's key"),
        (None, Some(_)) => bail!("nbd_tls_key needs nbd_tls_cert, the key's certificate"),
    }
}

fn keeper(layers: &Layers) -> anyhow::Result<claystone_keeper::Settings> {
    let minutes =
        |name| -> anyhow::Result<Duration> { Ok(Duration::from_secs(60 * layers.number(name, 1, 60 * 24 * 365)?)) };
    let limit = layers.values.contains_key("repair_mib_per_second");
    let limit = if limit { Some(layers.number("repair_mib_per_second", 1, 1 << 20)? << 20) } else { None };
    let settings = claystone_keeper::Settings {
        absent_after: minutes("absent_minutes")?,
        repair_share: layers.parsed("repair_share", "a share such as 0.3")?,
        bytes_per_second_max: limit,
        scrub_cycle: Duration::from_secs(24 * 3600 * layers.number("scrub_days", 1, 365)?),
        reclaim_after: Duration::from_secs(layers.number("reclaim_seconds", 0, 24 * 3600)?),
        convert_after: Duration::from_secs(60 * layers.number("convert_after_minutes", 0, 60 * 24 * 365)?),
        ..claystone_keeper::Settings::default()
    };
    settings.check().context("the settings of upkeep")?;
    Ok(settings)
}

/// The name of a setting as the table has it.
fn known(name: &str) -> anyhow::Result<&'static str> {
    if let Some((known, _)) = NAMES.iter().find(|(known, _)| *known == name) {
        return Ok(known);
    }
    let (nearest, distance) = nearest(name);
    if distance <= 3 {
        bail!("there is no setting {name:?}: did you mean {nearest:?}?");
    }
    let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
    bail!("there is no setting {name:?}: there are {}", names.join(", "));
}

fn nearest(name: &str) -> (&'static str, usize) {
    let distances = NAMES.iter().map(|(known, _)| (*known, distance(name, known)));
    distances.min_by_key(|(_, distance)| *distance).expect("there are settings")
}

/// Letters to insert, remove or replace to make one text the other (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (above, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = above + 1;
        for (column, known) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *known);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

fn plain(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(truth) => Some(truth.to_string()),
        _ => None,
    }
}

fn paths<'a>(setting: &str, texts: impl Iterator<Item = &'a str>) -> anyhow::Result<Vec<PathBuf>> {
    let path = |text| std::path::absolute(text).with_context(|| format!("{setting}: {text:?} is no path"));
    texts.map(path).collect()
}

/// Turns a listener off.
const NONE: &str = "none";
const ADDRESS: &str = "an address with a port such as 127.0.0.1:9000";

/// Every setting with its default.
const NAMES: [(&str, Option<&str>); 33] = [
    ("disks", None),
    ("ssds", None),
    ("steer", Some("latency")),
    ("nodes", None),
    ("listen", Some("127.0.0.1:9000")),
    ("console", Some("127.0.0.1:9001")),
    ("nbd_listen", Some("127.0.0.1:10809")),
    ("nbd_socket", None),
    ("nbd_tls_cert", None),
    ("nbd_tls_key", None),
    ("nbd_tls_ca", None),
    ("volume_log_mib", Some("auto")),
    ("code", None),
    ("code_tier", None),
    ("policy", None),
    ("durability", Some("sync")),
    ("sync_interval_ms", Some("1000")),
    ("region", Some("us-east-1")),
    ("object_gib_max", Some("5120")),
    ("absent_minutes", Some("10")),
    ("repair_share", Some("0.3")),
    ("repair_mib_per_second", None),
    ("scrub_days", Some("14")),
    ("reclaim_seconds", Some("60")),
    ("error_recovery_seconds", Some("7")),
    ("sums_cache_mib", Some("auto")),
    ("heat_half_life_minutes", Some("1440")),
    ("convert_after_minutes", Some("60")),
    ("bound_from_mib", Some("1024")),
    ("shutdown_seconds", Some("20")),
    ("logs", Some("auto")),
    ("log_level", Some("info")),
    ("insecure_public", Some("false")),
];

/// Settings that may have several values, with commas between them in the environment.
const LISTS: [&str; 3] = ["disks", "ssds", "nodes"];

#[cfg(test)]
mod tests {
    use super::*;

    /// A tier of another architecture.
    const FOREIGN_TIER: &str = if cfg!(target_arch = "x86_64") { "neon" } else { "avx2" };

    fn check(layers: &Layers) -> anyhow::Result<Settings> {
        Settings::check(Path::new("/tmp/store"), layers)
    }

    fn with_flag(name: &str, value: &str) -> Layers {
        let mut layers = Layers::defaults();
        layers.flag(name, Some(vec![value.to_owned()]));
        layers
    }

    #[test]
    fn later_layers_win() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("claystone.toml");
        std::fs::write(
            &file,
            "listen = \"127.0.0.1:1\"\nconsole = \"127.0.0.1:2\"\nregion = \"file\"\ndisks = [\"/a\", \"/b\"]\n\
             repair_share = 0.7\n",
        )
        .expect("write");
        let mut layers = Layers::defaults();
        layers.file(&file, true).expect("a good file");
        let variables =
            [("CLAYSTONE_CONSOLE", "127.0.0.1:3"), ("CLAYSTONE_REGION", "environment"), ("CLAYSTONE_BIN", "x")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        layers.environment(variables.into_iter()).expect("good variables");
        layers.flag("region", Some(vec!["flag".to_owned()]));
        layers.flag("listen", None);
        layers.flag("disks", Some(vec!["hdd:/a".to_owned(), "/b".to_owned()]));
        let settings = check(&layers).expect("good settings");
        assert_eq!(settings.listen.port(), 1);
        assert_eq!(settings.console.port(), 3);
        assert_eq!(settings.region, "flag");
        assert_eq!(settings.disks, [PathBuf::from("/a"), PathBuf::from("/b")]);
        assert_eq!(settings.drives, [PathBuf::from("/a")]);
        assert_eq!(settings.keeper.repair_share, 0.7);
        assert_eq!(settings.keeper.scrub_cycle, Duration::from_secs(14 * 24 * 3600));
    }

    #[test]
    fn unknown_names_are_refused_with_the_nearest_known_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("claystone.toml");
        std::fs::write(&file, "lisen = \"127.0.0.1:1\"\n").expect("write");
        let error = format!("{:#}", Layers::defaults().file(&file, true).expect_err("misspelt"));
        assert!(error.contains("did you mean \"listen\""), "{error}");
        let misspelt = [("CLAYSTONE_DURABILTY".to_owned(), "sync".to_owned())];
        let error = format!("{:#}", Layers::defaults().environment(misspelt.into_iter()).expect_err("misspelt"));
        assert!(error.contains("did you mean \"durability\""), "{error}");
    }

    #[test]
    fn who_chose_neither_a_policy_nor_a_code_gets_a_policy_for_his_disks() {
        let policy = |layers: &Layers| check(layers).expect("good settings").policy;
        assert_eq!(policy(&Layers::defaults()), FirstPolicy::ForDisks);
        assert_eq!(policy(&with_flag("code", "rs:4+2")), FirstPolicy::None);
        assert_eq!(policy(&with_flag("policy", "none")), FirstPolicy::None);
        let mut both = with_flag("code", "rs:4+2");
        both.flag("policy", Some(vec!["auto".to_owned()]));
        assert_eq!(policy(&both), FirstPolicy::ForDisks);
    }

    #[test]
    fn bad_values_are_refused_with_their_origin() {
        for (name, value, wanted) in [
            ("listen", "nowhere", "--listen"),
            ("code", "rs:4", "--code"),
            ("policy", "pc:2x5", "--policy: \"pc:2x5\" is neither a name of"),
            ("code_tier", "sse2", "--code-tier: \"sse2\" is not an instruction set: unknown"),
            ("code_tier", FOREIGN_TIER, "has not got"),
            ("code_tier", FOREIGN_TIER, "it has scalar"),
            ("durability", "maybe", "neither"),
            ("steer", "on", "none of"),
            ("sync_interval_ms", "5", "10 to 60000"),
            ("listen", "0.0.0.0:9000", "--insecure-public"),
            ("console", "127.0.0.1:9000", "cannot both"),
            ("nbd_listen", "nowhere", "or `none`"),
            ("nbd_listen", "0.0.0.0:10809", "nbd_tls_ca"),
            ("nbd_listen", "127.0.0.1:9000", "cannot both"),
            ("nbd_tls_cert", "/nothing/at/all", "--nbd-tls-cert: /nothing/at/all cannot be read"),
            ("nbd_tls_ca", "/dev/null", "nbd_tls_cert"),
            ("volume_log_mib", "8", "16 to"),
            ("volume_log_mib", "much", "volume-log-mib"),
            ("sums_cache_mib", "0", "1 to 65536"),
            ("sums_cache_mib", "much", "`auto`, or a number"),
        ] {
            let error = format!("{:#}", check(&with_flag(name, value)).expect_err(value));
            assert!(error.contains(wanted), "{error}");
        }
        let mut layers = with_flag("listen", "0.0.0.0:9000");
        layers.flag("insecure_public", Some(vec!["true".to_owned()]));
        check(&layers).expect("accepted on purpose");
    }

    #[test]
    fn block_devices_are_served_on_this_machine_unless_it_is_turned_off() {
        let settings = check(&Layers::defaults()).expect("defaults are good");
        assert_eq!(settings.nbd_listen, Some("127.0.0.1:10809".parse().expect("an address")));
        assert_eq!(settings.nbd_socket, Some(PathBuf::from("/tmp/store/nbd.sock")));
        assert!(!settings.nbd_listen_named && !settings.nbd_socket_named);
        let mut layers = with_flag("nbd_listen", "none");
        layers.flag("nbd_socket", Some(vec!["none".to_owned()]));
        let settings = check(&layers).expect("good settings");
        assert_eq!((settings.nbd_listen, settings.nbd_socket), (None, None));
    }

    #[test]
    fn the_tier_of_codes_is_one_that_this_machine_has() {
        assert_eq!(check(&Layers::defaults()).expect("defaults are good").code_tier, None);
        for tier in Tier::available() {
            let settings = check(&with_flag("code_tier", &tier.to_string())).expect("it is available");
            assert_eq!(settings.code_tier, Some(*tier));
        }
    }

    #[test]
    fn the_default_code_uses_all_disks_up_to_six() {
        let settings = check(&Layers::defaults()).expect("defaults are good");
        let codes = [1, 2, 3, 4, 5, 6, 12].map(|disks| settings.default_code(disks).to_string());
        assert_eq!(codes, ["replica:1", "replica:2", "replica:3", "rs:2+2", "rs:3+2", "rs:4+2", "rs:4+2"]);
    }

    #[test]
    fn distance_counts_letters() {
        assert_eq!(distance("listen", "listen"), 0);
        assert_eq!(distance("lisen", "listen"), 1);
        assert_eq!(distance("", "abc"), 3);
    }
}
