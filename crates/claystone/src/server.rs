//! The listeners of a store: S3, the console, and block devices over TCP and a unix socket.
//!
//! Invariants:
//! 1. Nobody is told of an address before it accepts.
//! 2. After [`Server::stop`] was called no new connection is taken; requests under way have `shutdown_limit` to end.

use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use claystone_console::{AdminToken, Metrics, Parts, router};
use claystone_keeper::Activity;
use claystone_nbd::{Listener, Nbd, Tls};
use claystone_s3::{Observer, S3};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::admin::admin_of;
use crate::components::Store;
use crate::endpoint::Endpoint;
use crate::exports::VolumeExports;
use crate::settings::Settings;

/// A store that is being served.
pub struct Server {
    endpoint: Endpoint,
    store: Store,
    stopping: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Server {
    /// Binds all listeners, serves them, and writes `endpoint.json`.
    ///
    /// # Errors
    /// An address is taken or not ours.
    pub async fn start(store: Store) -> anyhow::Result<Server> {
        let settings = store.settings.clone();
        let s3 = bind("listen", settings.listen).await?;
        let console = match bind("console", settings.console).await {
            // Several stores on one machine should just start; whoever named the address wants that one.
            Err(error) if !settings.console_named => {
                tracing::info!("the console takes a free port: {error:#}");
                bind("console", SocketAddr::new(settings.console.ip(), 0)).await?
            }
            bound => bound?,
        };
        let nbd = bind_nbd(&settings).await?;
        let socket = bind_socket(&settings)?;
        let endpoint = Endpoint {
            s3: s3.local_addr()?,
            console: console.local_addr()?,
            nbd: nbd.as_ref().map(TcpListener::local_addr).transpose()?,
            nbd_tls: nbd.is_some() && settings.nbd_tls.is_some(),
            nbd_socket: socket.as_ref().map(|(_, path)| path.clone()),
            region: settings.region.clone(),
            process: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let (stopping, stopped) = watch::channel(false);
        let metrics = Metrics::new(env!("CARGO_PKG_VERSION"));
        let observer = Arc::new(Requests { metrics: metrics.clone(), activity: store.keeper.activity() });
        let s3_settings = claystone_s3::Settings {
            region: settings.region.clone(),
            grace: settings.shutdown_limit,
            ..claystone_s3::Settings::default()
        };
        let service = S3::new(store.env.clone(), store.objects.clone(), s3_settings, store.keys.clone(), observer);
        let parts = Parts {
            env: store.env.clone(),
            keeper: store.keeper.clone(),
            volumes: store.volumes.clone(),
            admin: admin_of(&store),
            token: AdminToken::new(&store.credentials.admin_token).context("the admin token in credentials.json")?,
            metrics,
            // A write needs enough disks to survive what the default code promises to survive.
            disks_to_write: usize::from(store.objects.default_code().tolerance()) + 1,
            loopback: endpoint.console.ip().is_loopback(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            memory_bytes,
        };
        let stop = wait(stopped.clone());
        let mut tasks = serve_nbd(&store, nbd, socket, &stopped);
        tasks.extend([
            tokio::spawn(async move { service.serve(s3, stop).await }),
            tokio::spawn(async move {
                let serve = axum::serve(console, router(parts)).with_graceful_shutdown(wait(stopped));
                if let Err(error) = serve.await {
                    tracing::error!(%error, "the console has ended");
                }
            }),
        ]);
        endpoint.save(&settings.directory)?;
        Ok(Server { endpoint, store, stopping, tasks })
    }

    /// Where it answers.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Takes no more connections and waits for requests under way.
    pub async fn stop(self) {
        let limit = self.store.settings.shutdown_limit;
        // Nobody listens if both tasks have ended already.
        let _ = self.stopping.send(true);
        Endpoint::remove(&self.store.settings.directory);
        if let Some(socket) = &self.endpoint.nbd_socket {
            // A file that is left is taken away by the next start.
            let _ = std::fs::remove_file(socket);
        }
        // S3 keeps the limit by itself; this is for what does not.
        let deadline = tokio::time::Instant::now() + limit + Duration::from_secs(1);
        for mut task in self.tasks {
            if tokio::time::timeout_at(deadline, &mut task).await.is_err() {
                tracing::warn!("requests were still under way after {} s", limit.as_secs());
                task.abort();
            }
        }
    }
}

/// Serves block devices wherever there is a listener.
fn serve_nbd(
    store: &Store,
    tcp: Option<TcpListener>,
    socket: Option<(UnixListener, PathBuf)>,
    stopped: &watch::Receiver<bool>,
) -> Vec<JoinHandle<()>> {
    let settings =
        claystone_nbd::Settings { grace: store.settings.shutdown_limit, ..claystone_nbd::Settings::default() };
    let tls = match &store.settings.nbd_tls {
        Some(tls) => Tls::Required(tls.config.clone()),
        None => Tls::Off,
    };
    // Who reaches the socket is on this machine and has the right to.
    let tcp = tcp.map(|listener| (Listener::from(listener), tls));
    let socket = socket.map(|(listener, _)| (Listener::from(listener), Tls::Off));
    let serve = |(listener, tls): (Listener, Tls)| {
        let exports = VolumeExports { volumes: store.volumes.clone(), activity: store.keeper.activity() };
        let server = Nbd::new(store.env.clone(), Arc::new(exports), tls, settings.clone());
        let stop = wait(stopped.clone());
        tokio::spawn(async move { server.serve(listener, stop).await })
    };
    tcp.into_iter().chain(socket).map(serve).collect()
}

async fn bind_nbd(settings: &Settings) -> anyhow::Result<Option<TcpListener>> {
    let Some(address) = settings.nbd_listen else { return Ok(None) };
    match bind("nbd-listen", address).await {
        // As for the console. Clients that shall find it after a restart want a port of its own, or the socket.
        Err(error) if !settings.nbd_listen_named => {
            tracing::warn!("block devices are served on a free port, which `claystone volume attach` tells: {error:#}");
            bind("nbd-listen", SocketAddr::new(address.ip(), 0)).await.map(Some)
        }
        bound => bound.map(Some),
    }
}

/// Makes the socket, for its owner alone.
fn bind_socket(settings: &Settings) -> anyhow::Result<Option<(UnixListener, PathBuf)>> {
    let Some(path) = &settings.nbd_socket else { return Ok(None) };
    match listen_at(path) {
        Ok(listener) => Ok(Some((listener, path.clone()))),
        Err(error) if !settings.nbd_socket_named => {
            tracing::warn!("block devices are served over TCP only: {error:#}");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn listen_at(path: &Path) -> anyhow::Result<UnixListener> {
    let cannot =
        || format!("--nbd-socket {} cannot be used: name another path, of up to 107 bytes, or `none`", path.display());
    if path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket()) {
        let answers = std::os::unix::net::UnixStream::connect(path).is_ok();
        anyhow::ensure!(!answers, "{}: somebody serves there", cannot());
        // What a store that was killed left.
        std::fs::remove_file(path).with_context(cannot)?;
    }
    let listener = UnixListener::bind(path).with_context(cannot)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).with_context(cannot)?;
    Ok(listener)
}

async fn wait(mut stopping: watch::Receiver<bool>) {
    // An error means that the server is gone, which is an end too.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

async fn bind(name: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("--{name} {address} cannot be used: name another port (0 takes a free one), or stop what listens there")
    })
}

/// Counts requests, and tells upkeep that clients are busy.
struct Requests {
    metrics: Metrics,
    activity: Activity,
}

impl Observer for Requests {
    fn request(&self, operation: &'static str, status: u16, elapsed: Duration, bytes_in: u64, bytes_out: u64) {
        self.metrics.request(operation, status, elapsed, bytes_in, bytes_out);
        // A request that has ended counts as foreground load for a while.
        drop(self.activity.begin());
    }
}

/// Resident memory, where the system tells.
fn memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}
