//! Settings become components: a running store inside this process.
//!
//! Order of a start, each step naming what to do if it fails: lock, environment, metadata, disks, volumes, upkeep,
//! listeners. Volumes that have a log are opened before anybody repairs stripes: what a crash left half merged is finished, or
//! held. Where that fails upkeep waits, all else is served, and it is tried again.
//! The listeners come last, so whoever can connect is served.
//!
//! Invariants:
//! 1. One process serves a directory at a time: its lock is held from before the first write until the end.
//! 2. A store starts with any disk that is there; the others are absent with a reason. Without any it does not start.
//! 3. Stopping ends listeners first, then requests (within a limit), then upkeep, then volumes, then syncs what was buffered.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use claystone_chunk::{DiskId, NodeId, StoreState};
use claystone_code::CodeSpec;
use claystone_disk::{ClusterId, Options};
use claystone_env::{Directory, DirectoryLock, Env, Moment, Task, Worker};
use claystone_host::{HostDirectory, ThreadWorker};
use claystone_keeper::Keeper;
use claystone_meta::{AccessKey, DiskRecord, DiskState, Meta, MetaError, SqliteMeta, Workers};
use claystone_object::Objects;
use claystone_s3::{Account, KeyRing};
use claystone_stripe::{Absence, Member, Stores, Stripes};
use claystone_volume::Volumes;
use futures::future::join_all;
use serde::{Deserialize, Serialize};

use crate::credentials::{Credentials, write_private};
use crate::disk_path;
use crate::disks::{DEFAULT_NODE, Disks, Wanted, cluster_of, first_disks};
use crate::drives::{Opening, SsdQueues};
use crate::remarks::remarks;
use crate::settings::Settings;
use crate::tending::Care;

/// Everything but the listeners. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    /// Its settings.
    pub settings: Arc<Settings>,
    /// What it lives in.
    pub env: Env,
    /// Its records.
    pub meta: Arc<dyn Meta>,
    /// The same, for what only a database in a file can do.
    pub database: SqliteMeta,
    /// Buckets and objects.
    pub objects: Objects,
    /// Block devices.
    pub volumes: Volumes,
    /// Its disks.
    pub stores: Stores,
    /// Its upkeep.
    pub keeper: Keeper,
    /// Who may sign requests.
    pub keys: Arc<KeyRing>,
    /// The first credentials.
    pub credentials: Credentials,
    /// Whether this was the first start.
    pub is_new: bool,
    disks: Disks,
    queues: SsdQueues,
    /// Of buckets that name none.
    code: CodeSpec,
    tasks: Arc<tokio::sync::Mutex<Vec<Task>>>,
    _lock: Arc<DirectoryLock>,
}

impl Store {
    /// Brings a store up, making it if there is none.
    ///
    /// # Errors
    /// Each says what is wrong and what to do.
    pub async fn start(settings: Settings) -> anyhow::Result<Store> {
        let directory = settings.directory.clone();
        let lock = lock(&directory)?;
        let env = claystone_host::env().context("the system gives no threads or random bytes")?;
        let database = open_meta(&directory).await?;
        let meta = Arc::new(database.clone());
        let known = claystone_meta::DiskRecords::disks(&*meta).await?;
        let mut birth = Birth::load_or_begin(&directory, &env, &known, &settings).await?;
        let is_new = !birth.complete;
        let options = Options { sync_interval: settings.sync_interval, ..Options::default() };
        let cluster = birth.cluster.parse()?;
        let opening = Opening {
            limits: settings.recovery_limits,
            ssds: settings.ssds.clone(),
            steer: settings.steer,
            alone_if_at_rest: true,
            ..Opening::default()
        };
        let queues = opening.queues.clone();
        let used = known.iter().filter(|disk| matches!(disk.state, DiskState::Active | DiskState::Draining));
        let care = Care {
            scrub_cycle: Some(settings.keeper.scrub_cycle),
            opening,
            sums_memory: settings.sums_memory,
            disks: settings.disks.len().max(used.count()),
        };
        let disks = Disks::new(env.clone(), cluster, options, care);
        if is_new {
            first_start(&disks, &*meta, &known, &settings).await?;
            birth.complete = true;
            birth.save(&directory)?;
        }
        let known = claystone_meta::DiskRecords::disks(&*meta).await?;

        let stores = Stores::default();
        for member in disks.open_all(&*meta, known, &settings.disks).await? {
            stores.put(member);
        }
        let members = stores.members();
        if !members.iter().any(Member::readable) {
            let reasons: Vec<&str> =
                members.iter().filter_map(|m| Some(m.store.as_ref().err()?.reason.as_str())).collect();
            bail!("none of the store's {} disks can be used:\n  {}", members.len(), reasons.join("\n  "));
        }
        let of_stripes = claystone_stripe::Settings {
            heat_half_life: settings.heat_half_life,
            bound_from_bytes: settings.bound_from_bytes,
            ..claystone_stripe::Settings::default()
        };
        let (stripes, damage) = Stripes::new(env.clone(), stores.clone(), of_stripes);
        let meta: Arc<dyn Meta> = meta;
        let keeper = Keeper::new(env.clone(), meta.clone(), stripes.clone(), damage, settings.keeper.clone())?;
        let of_volumes = volume_settings(settings.volume_log_bytes);
        let volumes = Volumes::new(env.clone(), meta.clone(), stripes.clone(), of_volumes);
        let of_objects = object_settings(&settings, &birth)?;
        let code = of_objects.code;
        let objects = Objects::new(env.clone(), meta.clone(), stripes, of_objects);
        let credentials = credentials(&directory, &env, &*meta).await?;
        let keys = Arc::new(KeyRing::new());
        for key in meta.keys().await? {
            keys.insert(key.access_key, key.secret_key, Account::named(key.account));
        }
        let store = Store {
            settings: Arc::new(settings),
            env,
            meta,
            database,
            objects,
            volumes,
            stores,
            keeper,
            keys,
            credentials,
            is_new,
            disks,
            queues,
            code,
            tasks: Arc::default(),
            _lock: Arc::new(lock),
        };
        store.remark();
        let hindrance = store.open_volumes().await;
        store.start_tasks(hindrance).await;
        Ok(store)
    }

    /// Says in the status what makes the store less safe than it looks, or keeps a policy from being followed; in the log once.
    fn remark(&self) {
        let members = self.stores.members();
        let nodes: BTreeSet<&NodeId> =
            members.iter().filter(|member| is_wanted(member)).map(|member| &member.record.node).collect();
        let mut remarks = remarks(self.settings.durability, self.code, &nodes, &self.queues.shared());
        remarks.extend(self.keeper.without_copies());
        for remark in self.keeper.remark(remarks) {
            tracing::warn!("{remark}");
        }
    }

    /// Ends upkeep and makes durable what was acknowledged from memory.
    pub async fn stop(&self) {
        for task in self.tasks.lock().await.drain(..) {
            task.cancel();
            task.ended().await;
        }
        if let Err(claystone_keeper::KeeperError::Meta(error)) = self.keeper.write_heats().await {
            tracing::warn!(%error, "how much stripes were read lately is not kept");
        }
        self.volumes.stop().await;
        for member in self.stores.members() {
            if let Ok(store) = &member.store
                && let Err(error) = store.sync().await
            {
                tracing::warn!(path = member.record.path, %error, "a disk could not be synced");
            }
        }
        let resting = self.disks.rest().await;
        for Member { record, .. } in self.stores.members() {
            let reason = "the store is stopped".to_owned();
            self.stores.update(record.id, |member| member.store = Err(Absence { reason }));
        }
        join_all(resting.into_iter().map(|resting| resting.rest(self.env.clock.clone()))).await;
    }

    /// Formats an empty directory as a new disk of this store.
    ///
    /// # Errors
    /// It cannot be made or written, or there is something in it.
    pub async fn add_disk(&self, path: &Path, node: Option<String>) -> anyhow::Result<DiskRecord> {
        let path = std::path::absolute(path)?;
        let node = claystone_chunk::NodeId(node.unwrap_or_else(|| DEFAULT_NODE.to_owned()));
        let record = self.disks.add(&*self.meta, &Wanted { path, node }).await?;
        self.stores.put(self.disks.open(record.clone()).await);
        self.keeper.disks_changed();
        Ok(record)
    }

    /// Gives a disk up and takes an empty directory in its place; what was on the old one is rebuilt.
    ///
    /// # Errors
    /// As [`Store::add_disk`]; the old disk is then left as it was.
    pub async fn replace_disk(&self, old: DiskId, path: &Path) -> anyhow::Result<DiskRecord> {
        let old = self.stores.member(old).ok_or_else(|| anyhow!("disk {old} is not known"))?.record;
        // Whoever holds the old disk open would hold up a new one at the same path.
        if Path::new(&old.path) == std::path::absolute(path)? {
            let reason = "it is being replaced".to_owned();
            self.stores.put(Member { record: old.clone(), store: Err(Absence { reason }), space: Default::default() });
        }
        let record = self.add_disk(path, Some(old.node.0.clone())).await?;
        self.keeper.set_disk_state(old.id, DiskState::Lost).await?;
        Ok(record)
    }

    /// The one disk that a person means by an id, the beginning of one, or a path.
    ///
    /// # Errors
    /// None or several match.
    pub async fn find_disk(&self, text: &str) -> anyhow::Result<DiskId> {
        let disks = self.meta.disks().await?;
        let path = std::path::absolute(text).unwrap_or_default();
        let matches = |disk: &&DiskRecord| disk.id.to_string().starts_with(text) || Path::new(&disk.path) == path;
        // A path may have been a lost disk's before: the one in use is meant.
        let (in_use, given_up): (Vec<_>, Vec<_>) =
            disks.iter().filter(matches).partition(|disk| disk.state != DiskState::Lost);
        let found = if in_use.is_empty() { given_up } else { in_use };
        match found[..] {
            [disk] => Ok(disk.id),
            [] => bail!("no disk is called {text:?}: `claystone disk list` shows ids and paths"),
            _ => bail!("{} disks begin with {text:?}: name more letters of the id", found.len()),
        }
    }

    /// Adds a credential.
    ///
    /// # Errors
    /// It cannot be recorded.
    pub async fn add_key(&self, key: AccessKey) -> Result<(), MetaError> {
        self.meta.put_key(key.clone()).await?;
        self.keys.insert(key.access_key, key.secret_key, Account::named(key.account));
        Ok(())
    }

    /// Takes a credential away.
    ///
    /// # Errors
    /// It cannot be forgotten.
    pub async fn delete_key(&self, access_key: &str) -> Result<(), MetaError> {
        self.meta.delete_key(access_key).await?;
        self.keys.remove(access_key);
        Ok(())
    }

    /// `hindrance`: why upkeep must not begin yet.
    async fn start_tasks(&self, hindrance: Option<String>) {
        let mut tasks = match hindrance {
            None => self.keeper.start(),
            Some(_) => vec![self.env.tasks.spawn("upkeep waits", Box::pin(self.clone().start_upkeep(hindrance)))],
        };
        let (stores, clock) = (self.stores.clone(), self.env.clock.clone());
        tasks.push(self.env.tasks.spawn(
            "space",
            Box::pin(async move {
                loop {
                    clock.sleep(SPACE_EVERY).await;
                    stores.refresh_space(&*clock, SPACE_TIMEOUT).await;
                }
            }),
        ));
        tasks.push(self.env.tasks.spawn("repack", Box::pin(self.objects.clone().repack_loop())));
        tasks.push(self.env.tasks.spawn("disk watch", Box::pin(self.clone().watch_disks())));
        *self.tasks.lock().await = tasks;
    }

    /// Starts upkeep when no stripe can be in anybody's way that a merge left changed in part.
    async fn start_upkeep(self, mut hindrance: Option<String>) {
        let mut pause = RECOVER_PAUSE;
        while hindrance.is_some() {
            self.keeper.wait_for(hindrance);
            self.env.clock.sleep(pause).await;
            pause = (pause * 2).min(RECOVER_PAUSE_MAX);
            hindrance = self.open_volumes().await;
        }
        let mut tasks = self.tasks.lock().await;
        self.keeper.wait_for(None);
        tasks.extend(self.keeper.start());
    }

    /// Opens the volumes that have a log. One that does not open is left: `claystone volume list` says why. Returns why
    /// nothing may be repaired now: stripes of a volume may be half merged, and are not held.
    async fn open_volumes(&self) -> Option<String> {
        match self.volumes.recover().await {
            Ok(recovered) => {
                for (volume, error) in recovered.refused {
                    tracing::error!(volume, %error, "a volume does not open; its stripes are left as they are");
                }
                let unprotected = recovered.unprotected.join(", ");
                (!unprotected.is_empty()).then(|| format!("stripes of these volumes cannot be held: {unprotected}"))
            }
            Err(error) => {
                tracing::error!(%error, "it is not known which volumes there are");
                Some(format!("it is not known which volumes there are: {error}"))
            }
        }
    }

    /// Opens disks that have come back, now.
    pub async fn look_for_disks(&self) {
        for member in self.failed_members() {
            self.reopen(member).await;
        }
    }

    /// Opens disks that have come back. One that keeps failing is tried less and less often.
    async fn watch_disks(self) {
        let mut next: BTreeMap<DiskId, (Moment, Duration)> = BTreeMap::new();
        loop {
            self.env.clock.sleep(WATCH_EVERY).await;
            self.remark();
            let failed = self.failed_members();
            next.retain(|disk, _| failed.iter().any(|member| member.record.id == *disk));
            for member in failed {
                let now = self.env.clock.now();
                let (due, pause) = next.get(&member.record.id).copied().unwrap_or((now, WATCH_EVERY));
                if now >= due {
                    next.insert(member.record.id, (now.after(pause), (pause * 2).min(WATCH_PAUSE_MAX)));
                    self.reopen(member).await;
                }
            }
        }
    }

    /// Disks that should serve and do not.
    fn failed_members(&self) -> Vec<Member> {
        let failed = |member: &Member| match &member.store {
            Ok(store) => matches!(store.state(), StoreState::Failed { .. }),
            Err(_) => true,
        };
        self.stores.members().into_iter().filter(|member| is_wanted(member) && failed(member)).collect()
    }

    async fn reopen(&self, member: Member) {
        let Member { record, store, .. } = member;
        let reason = match &store {
            Err(absence) => absence.reason.clone(),
            Ok(store) => match store.state() {
                StoreState::Failed { reason } => reason,
                _ => return,
            },
        };
        // The old store holds the disk's lock until its last user is gone.
        drop(store);
        self.stores.update(record.id, |member| member.store = Err(Absence { reason }));
        let Ok(opened) = self.disks.open_all(&*self.meta, vec![record.clone()], &[]).await else { return };
        for Member { record, store, space } in opened {
            let mut returned = false;
            self.stores.update(record.id, |member| {
                // Somebody may have given it up meanwhile.
                if is_wanted(member) {
                    member.record.path.clone_from(&record.path);
                    (member.store, member.space) = (store, space);
                    returned = member.readable();
                }
            });
            if returned {
                tracing::info!(disk = %record.id, path = record.path, "a disk is back");
                self.keeper.disks_changed();
                // A volume may have waited for it.
                self.open_volumes().await;
            }
        }
    }
}

fn lock(directory: &Path) -> anyhow::Result<DirectoryLock> {
    let host = HostDirectory::make(directory).with_context(|| {
        format!("the directory {} cannot be made: name one that you may write to", directory.display())
    })?;
    host.lock().map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => {
            anyhow!("a store already runs in {}: `claystone status {0}` shows it", directory.display())
        }
        _ => anyhow!(error).context(format!("{} cannot be locked", directory.display())),
    })
}

async fn open_meta(directory: &Path) -> anyhow::Result<SqliteMeta> {
    use std::os::unix::fs::DirBuilderExt;
    let path = directory.join("meta");
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&path)
        .with_context(|| format!("{} cannot be made", path.display()))?;
    let worker =
        |name: &str, threads| -> anyhow::Result<Arc<dyn Worker>> { Ok(Arc::new(ThreadWorker::start(name, threads)?)) };
    let workers = Workers { writer: worker("meta-writer", 1)?, readers: worker("meta-reader", META_READERS)? };
    let file = path.join("claystone.db");
    let opened = SqliteMeta::open(&file, workers).await;
    let meta = opened.with_context(|| format!("the metadata in {} cannot be used", file.display()))?;
    meta.watch_space(Arc::new(HostDirectory::new(path)));
    Ok(meta)
}

/// What was decided when the store was made: `store.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Birth {
    /// The id that its disks carry.
    cluster: String,
    /// The code of buckets that name none, unless a setting says otherwise. It stays when disks come and go.
    code: String,
    /// Every first disk was formatted and recorded; until then the first start goes on where it was cut short.
    complete: bool,
}

impl Birth {
    async fn load_or_begin(
        directory: &Path,
        env: &Env,
        known: &[DiskRecord],
        settings: &Settings,
    ) -> anyhow::Result<Birth> {
        let path = directory.join(BIRTH);
        match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).with_context(|| {
                format!("{} is damaged: remove it, and the disks tell what was in it", path.display())
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let wanted = first_disks(&settings.directory, &settings.disks, &settings.nodes)?;
                let disks = if known.is_empty() { wanted.len() } else { known.len() };
                let cluster = match (known, cluster_of(env, known).await) {
                    ([], _) => ClusterId::new(&*env.random),
                    (_, Some(cluster)) => cluster,
                    (_, None) => {
                        bail!("{} is missing and no disk tells what was in it: connect a disk", path.display())
                    }
                };
                let code = settings.default_code(disks).to_string();
                let birth = Birth { cluster: cluster.to_string(), code, complete: !known.is_empty() };
                birth.save(directory)?;
                Ok(birth)
            }
            Err(error) => Err(error).with_context(|| format!("{} cannot be read", path.display())),
        }
    }

    fn save(&self, directory: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self).expect("texts always serialise");
        write_private(&directory.join(BIRTH), text.as_bytes())
    }
}

/// Makes the disks of a new store, those that an earlier attempt has made excepted.
async fn first_start(disks: &Disks, meta: &dyn Meta, known: &[DiskRecord], settings: &Settings) -> anyhow::Result<()> {
    let wanted = first_disks(&settings.directory, &settings.disks, &settings.nodes)?;
    let code = settings.default_code(wanted.len());
    let needed = usize::from(code.disks_min());
    ensure!(
        needed <= wanted.len(),
        "{code} needs {needed} disks, there are {}: name more with --disks, or another --code",
        wanted.len()
    );
    let new: Vec<Wanted> =
        wanted.into_iter().filter(|wanted| !known.iter().any(|known| Path::new(&known.path) == wanted.path)).collect();
    for drive in settings.drives.iter().filter(|drive| new.iter().any(|wanted| wanted.path == **drive)) {
        disk_path::check_drive(drive)?;
    }
    disks.add_all(meta, &new).await?;
    Ok(())
}

/// Whether a disk should serve.
fn is_wanted(member: &Member) -> bool {
    matches!(member.record.state, DiskState::Active | DiskState::Draining)
}

/// What volumes get where a log may take so many bytes; `None`: as their lengths suggest.
pub fn volume_settings(log_bytes: Option<u64>) -> claystone_volume::Settings {
    match log_bytes {
        Some(bytes) => claystone_volume::Settings::with_reserve(bytes),
        None => claystone_volume::Settings {
            reserve_percent: RESERVE_PERCENT,
            is_reserve_capped: true,
            ..Default::default()
        },
    }
}

fn object_settings(settings: &Settings, birth: &Birth) -> anyhow::Result<claystone_object::Settings> {
    let code = match settings.code {
        Some(code) => code,
        None => birth.code.parse().with_context(|| format!("the code {:?} in {BIRTH}", birth.code))?,
    };
    Ok(claystone_object::Settings {
        code,
        policy: settings.policy,
        durability: settings.durability,
        object_bytes_max: settings.object_bytes_max,
        part_bytes_min: PART_BYTES_MIN,
    })
}

async fn credentials(directory: &Path, env: &Env, meta: &dyn Meta) -> anyhow::Result<Credentials> {
    let credentials = match Credentials::load(directory)? {
        Some(credentials) => credentials,
        None => Credentials::create(directory, &*env.random)?,
    };
    // Written first, recorded second: after a crash in between the next start records them.
    if !meta.keys().await?.iter().any(|key| key.access_key == credentials.access_key) {
        let key = AccessKey {
            access_key: credentials.access_key.clone(),
            secret_key: credentials.secret_key.clone(),
            account: FIRST_ACCOUNT.to_owned(),
            created: env.clock.wall(),
        };
        meta.put_key(key).await?;
    }
    Ok(credentials)
}

/// Whose the first credentials are.
pub const FIRST_ACCOUNT: &str = "owner";
const BIRTH: &str = "store.json";
const META_READERS: usize = 2;
/// S3's limit.
const PART_BYTES_MIN: u64 = 5 << 20;
/// Volumes that were not recovered are tried again after so long, then less often.
const RECOVER_PAUSE: Duration = Duration::from_secs(1);
const RECOVER_PAUSE_MAX: Duration = Duration::from_secs(60);
/// So many percent of a volume's data, coded instead of mirrored, make up for its log where that is long.
const RESERVE_PERCENT: u64 = 4;
const SPACE_EVERY: Duration = Duration::from_secs(10);
const SPACE_TIMEOUT: Duration = Duration::from_secs(5);
const WATCH_EVERY: Duration = Duration::from_secs(5);
const WATCH_PAUSE_MAX: Duration = Duration::from_secs(600);
