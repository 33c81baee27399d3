//! A store in a temporary directory behind S3, for tries by hand: `serve ADDRESS [DIRECTORY [CODE [v2]]]`.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a small program of its own")]

use std::path::PathBuf;
use std::sync::Arc;

use claystone_chunk::{ChunkStore, DiskId, NodeId};
use claystone_disk::{ClusterId, DirectoryStore, Expected, Identity, Options, format};
use claystone_env::Worker;
use claystone_host::{HostDirectory, ThreadWorker};
use claystone_meta::{DiskRecord, DiskRecords, DiskState, SqliteMeta, Workers};
use claystone_object::Objects;
use claystone_s3::{Account, KeyRing, S3, Settings, SignatureV2, Unobserved};
use claystone_stripe::{Member, Stores, Stripes};

type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    let address = arguments.get(1).map_or("127.0.0.1:9300", String::as_str).to_owned();
    let temporary = tempfile::tempdir()?;
    let root = arguments.get(2).map_or_else(|| temporary.path().to_owned(), PathBuf::from);
    let code = arguments.get(3).map_or("rs:4+2", String::as_str).parse()?;
    let env = claystone_host::env()?;
    let worker =
        |name: &str, threads| -> std::io::Result<Arc<dyn Worker>> { Ok(Arc::new(ThreadWorker::start(name, threads)?)) };
    std::fs::create_dir_all(&root)?;
    let workers = Workers { writer: worker("meta-writer", 1)?, readers: worker("meta-reader", 2)? };
    let meta = Arc::new(SqliteMeta::open(&root.join("claystone.db"), workers).await?);
    let cluster = ClusterId::new(&*env.random);
    let stores = Stores::default();
    for number in 1..=6 {
        let path = root.join(format!("d{number}"));
        let directory = Arc::new(HostDirectory::make(&path)?);
        let identity = Identity {
            disk: DiskId::new(&*env.random),
            cluster,
            node: NodeId("n".to_owned()),
            created: env.clock.wall(),
        };
        format(&ThreadWorker::start("format", 1)?, directory.clone(), identity.clone()).await?;
        let record = DiskRecord {
            id: identity.disk,
            node: identity.node.clone(),
            path: path.display().to_string(),
            state: DiskState::Active,
            added: env.clock.wall(),
        };
        meta.put_disk(record.clone()).await?;
        let expected = Expected { disk: identity.disk, cluster };
        let store = DirectoryStore::open(&env, directory, worker("disk", 2)?, expected, Options::default()).await?;
        let space = store.space().await?;
        stores.put(Member { record, store: Ok(Arc::new(store)), space });
    }
    let (stripes, _damage) = Stripes::new(env.clone(), stores, claystone_stripe::Settings::default());
    let objects = Objects::new(env.clone(), meta, stripes, claystone_object::Settings::new(code));
    let keys = KeyRing::new();
    for name in ["main", "alt", "tenant"] {
        let account = Account { email: Some(format!("{name}@example.com")), ..Account::named(name) };
        keys.insert(format!("{name}access"), format!("{name}secret"), account);
    }
    let settings = Settings {
        signature_v2: if arguments.get(4).is_some() { SignatureV2::Everywhere } else { SignatureV2::default() },
        ..Settings::default()
    };
    let s3 = S3::new(env, objects, settings, Arc::new(keys), Arc::new(Unobserved));
    let listener = tokio::net::TcpListener::bind(&address).await?;
    println!("serving on http://{address} from {}", root.display());
    s3.serve(listener, async { tokio::signal::ctrl_c().await.expect("signals can be listened to") }).await;
    Ok(())
}
