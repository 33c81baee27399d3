//! Batches: who is undone, who is heard, and when to stop.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use claystone_env::{Job, Worker, WorkerStopped};
use claystone_host::ThreadWorker;
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::Link;
use crate::MetaError;
use crate::sqlite::fault::Fault;
use crate::testing::AtOnce;

/// Keeps jobs until it is told to run them.
#[derive(Default)]
struct Held(Mutex<Vec<(Job, oneshot::Sender<()>)>>);

impl Worker for Held {
    fn run(&self, job: Job) -> futures::future::BoxFuture<'static, Result<(), WorkerStopped>> {
        let (done, ran) = oneshot::channel();
        self.0.lock().expect("no test panics with it").push((job, done));
        Box::pin(async move { ran.await.map_err(|_| WorkerStopped) })
    }

    fn queued(&self) -> usize {
        self.0.lock().expect("no test panics with it").len()
    }
}

impl Held {
    fn release(&self) {
        let jobs = std::mem::take(&mut *self.0.lock().expect("no test panics with it"));
        for (job, done) in jobs {
            job();
            let _ = done.send(());
        }
    }
}

fn link() -> Arc<Link> {
    let connection = Connection::open_in_memory().expect("memory");
    connection
        .execute_batch(
            "PRAGMA foreign_keys = ON; CREATE TABLE t (x INTEGER PRIMARY KEY); \
             CREATE TABLE child (x REFERENCES t DEFERRABLE INITIALLY DEFERRED)",
        )
        .expect("valid SQL");
    Arc::new(Link::alone(connection))
}

fn insert(x: i64) -> impl Fn(&Connection) -> Result<i64, Fault> + Send {
    move |connection| {
        connection.execute("INSERT INTO t VALUES (?1)", [x])?;
        Ok(x)
    }
}

async fn all(link: &Arc<Link>) -> Vec<i64> {
    let read = link.read(&AtOnce, |connection| {
        let mut statement = connection.prepare("SELECT x FROM t ORDER BY x")?;
        let rows = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
        Ok(rows)
    });
    read.await.expect("readable")
}

#[tokio::test]
async fn a_failure_in_a_batch_undoes_itself_only() {
    let (link, worker) = (link(), Held::default());
    let refused = |connection: &Connection| -> Result<(), Fault> {
        connection.execute("INSERT INTO t VALUES (3)", [])?;
        Err(MetaError::PreconditionFailed { key: "key".to_owned() }.into())
    };
    let (one, two, three, four, ()) = tokio::join!(
        biased;
        link.write(&worker, false, insert(1)),
        link.write(&worker, false, refused),
        link.write(&worker, false, insert(1)),
        link.write(&worker, false, insert(4)),
        async { worker.release() },
    );
    assert_eq!((one.ok(), four.ok()), (Some(1), Some(4)));
    assert!(matches!(two, Err(MetaError::PreconditionFailed { .. })), "{two:?}");
    assert!(matches!(three, Err(MetaError::Corrupt { .. })), "{three:?}");
    assert_eq!(all(&link).await, [1, 4]);
}

#[tokio::test]
async fn more_than_one_batch_is_drained_by_one_job() {
    let (link, worker) = (link(), Held::default());
    let writes = (0..300).map(|x| link.write(&worker, false, insert(x)));
    // Without tokio's own limit of what one task does at a time.
    let unlimited = tokio::task::unconstrained(futures::future::join_all(writes));
    let first_job_only = async {
        let jobs = std::mem::take(&mut *worker.0.lock().expect("no test panics with it"));
        assert_eq!(jobs.len(), 300);
        let mut jobs = jobs.into_iter();
        let (job, done) = jobs.next().expect("300 jobs");
        job();
        let _ = done.send(());
        // The others are dropped unrun, as by a worker that stops.
    };
    let (results, ()) = tokio::join!(biased; unlimited, first_job_only);
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(all(&link).await.len(), 300);
}

#[tokio::test]
async fn a_transaction_whose_caller_went_away_does_not_happen() {
    let (link, worker) = (link(), Held::default());
    {
        let abandoned = link.write(&worker, false, insert(1));
        tokio::pin!(abandoned);
        assert!(futures::poll!(&mut abandoned).is_pending());
    }
    let (kept, ()) = tokio::join!(
        biased;
        link.write(&worker, false, insert(2)),
        async { worker.release() },
    );
    assert_eq!(kept.ok(), Some(2));
    assert_eq!(all(&link).await, [2]);
}

#[tokio::test]
async fn after_a_failed_commit_nothing_is_answered() {
    let (link, worker) = (link(), Held::default());
    // A deferred foreign key is checked by COMMIT itself.
    let orphan = |connection: &Connection| -> Result<(), Fault> {
        connection.execute("INSERT INTO child VALUES (99)", [])?;
        Ok(())
    };
    let (one, two, ()) = tokio::join!(
        biased;
        link.write(&worker, false, insert(1)),
        link.write(&worker, false, orphan),
        async { worker.release() },
    );
    assert!(matches!(one, Err(MetaError::Unavailable { .. })), "{one:?}");
    assert!(matches!(two, Err(MetaError::Unavailable { .. })), "{two:?}");
    let later = link.write(&AtOnce, false, insert(2)).await;
    assert!(matches!(later, Err(MetaError::Unavailable { .. })), "{later:?}");
    let read = link.read(&AtOnce, |_| Ok(())).await;
    assert!(matches!(read, Err(MetaError::Unavailable { .. })), "{read:?}");
}

#[tokio::test]
async fn after_a_panic_nothing_is_answered() {
    let link = link();
    let worker = ThreadWorker::start("writer", 1).expect("a thread");
    let ran = Arc::new(AtomicUsize::new(0));
    let count = ran.clone();
    let panics = move |connection: &Connection| -> Result<(), Fault> {
        connection.execute("INSERT INTO t VALUES (1)", [])?;
        count.fetch_add(1, Ordering::Relaxed);
        panic!("this panic is part of a test");
    };
    let first = link.write(&worker, false, panics).await;
    assert!(matches!(first, Err(MetaError::Unavailable { .. })), "{first:?}");
    let second = link.write(&worker, false, insert(2)).await;
    assert!(matches!(second, Err(MetaError::Unavailable { .. })), "{second:?}");
    let read = link.read(&AtOnce, |_| Ok(())).await;
    assert!(matches!(read, Err(MetaError::Unavailable { .. })), "{read:?}");
    assert_eq!(ran.load(Ordering::Relaxed), 1);
}
