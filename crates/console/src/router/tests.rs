//! The routes, asked in memory: who is let in, what is answered, and what bad requests get.

use async_trait::async_trait;
use axum::http::Request;
use claystone_chunk::testing::MemoryStore;
use claystone_chunk::{NodeId, StoreState};
use claystone_env::Space;
use claystone_meta::{DiskRecord, DiskRecords, DiskState, HeatPolicy, SqliteMeta};
use claystone_stripe::{Member, Stores, Stripes};
use http_body_util::BodyExt;
use tower::ServiceExt;

use super::*;
use crate::api::{self, ErrorBody, Health};

const TOKEN: &str = "a-token-for-tests";

/// Remembers what it was asked to do.
#[derive(Default)]
struct Recorder(std::sync::Mutex<Vec<String>>);

impl Recorder {
    fn note(&self, what: String) {
        self.0.lock().expect("no test panics in it").push(what);
    }

    fn notes(&self) -> Vec<String> {
        self.0.lock().expect("no test panics in it").clone()
    }
}

#[async_trait]
impl Admin for Recorder {
    async fn add_disk(&self, disk: AddDisk) -> Result<DiskAdded, AdminError> {
        self.note(format!("add {}", disk.path));
        if disk.path == "/foreign" {
            return Err(AdminError::Conflict { reason: "/foreign is a disk of another store".to_owned() });
        }
        Ok(DiskAdded { id: DiskId(9).to_string(), path: disk.path, node: "n".to_owned() })
    }

    async fn replace_disk(&self, old: DiskId, path: &str) -> Result<DiskAdded, AdminError> {
        let added = self.add_disk(AddDisk { path: path.to_owned(), node: None }).await?;
        self.lose_disk(old).await?;
        Ok(added)
    }

    async fn lose_disk(&self, disk: DiskId) -> Result<(), AdminError> {
        self.note(format!("lose {}", disk.0));
        Ok(())
    }

    async fn drain_disk(&self, disk: DiskId) -> Result<(), AdminError> {
        self.note(format!("drain {}", disk.0));
        Ok(())
    }

    async fn buckets(&self) -> Result<Buckets, AdminError> {
        Ok(Buckets { buckets: Vec::new() })
    }

    async fn set_code(&self, bucket: &str, code: Option<CodeSpec>) -> Result<(), AdminError> {
        self.note(format!("code of {bucket}: {code:?}"));
        Ok(())
    }

    async fn set_policy(&self, bucket: &str, policy: Option<HeatPolicy>) -> Result<(), AdminError> {
        self.note(format!("policy of {bucket}: {}", policy.map_or("none".to_owned(), |policy| policy.to_string())));
        Ok(())
    }

    async fn keys(&self) -> Result<Keys, AdminError> {
        Ok(Keys { keys: Vec::new() })
    }

    async fn add_key(&self, key: AddKey) -> Result<KeyAdded, AdminError> {
        Ok(KeyAdded { access_key: "public".to_owned(), secret_key: "secret".to_owned(), account: key.account })
    }

    async fn delete_key(&self, access_key: &str) -> Result<(), AdminError> {
        Err(AdminError::NotFound { what: "key", name: access_key.to_owned() })
    }

    async fn back_up(&self, path: &str) -> Result<BackedUp, AdminError> {
        Ok(BackedUp { path: path.to_owned(), bytes: 4096 })
    }
}

struct Fixture {
    router: Router,
    admin: Arc<Recorder>,
    disk: MemoryStore,
    env: Env,
    metrics: Metrics,
}

/// A console on a store with one disk, in simulated time.
fn with_console<F: Future<Output = ()>>(loopback: bool, scenario: impl FnOnce(Fixture) -> F) {
    claystone_sim::run(1, |world| async move {
        let process = world.process("node");
        let env = process.env().clone();
        let meta = SqliteMeta::in_memory(env.cpu.clone()).await.expect("a database in memory");
        let (stripes, reports) = Stripes::new(env.clone(), Stores::default(), claystone_stripe::Settings::default());
        let disk = MemoryStore::new(DiskId(1));
        let record = DiskRecord {
            id: DiskId(1),
            node: NodeId("n".to_owned()),
            path: "/disks/1".to_owned(),
            state: DiskState::Active,
            added: env.clock.wall(),
        };
        meta.put_disk(record.clone()).await.expect("a new disk");
        stripes.stores().put(Member { record, store: Ok(Arc::new(disk.clone())), space: Space::default() });
        let settings = claystone_keeper::Settings::default();
        let meta: Arc<dyn claystone_meta::Meta> = Arc::new(meta);
        let volumes = Volumes::new(env.clone(), meta.clone(), stripes.clone(), claystone_volume::Settings::default());
        let keeper = Keeper::new(env.clone(), meta, stripes, reports, settings).expect("good settings");
        let admin = Arc::new(Recorder::default());
        let metrics = Metrics::new("1.2.3");
        let parts = Parts {
            env: env.clone(),
            keeper,
            volumes,
            admin: admin.clone(),
            token: AdminToken::new(TOKEN).expect("long enough"),
            metrics: metrics.clone(),
            disks_to_write: 1,
            loopback,
            version: "1.2.3".to_owned(),
            memory_bytes: || Some(77),
        };
        scenario(Fixture { router: router(parts), admin, disk, env, metrics }).await;
    });
}

impl Fixture {
    async fn send(&self, method: &str, path: &str, token: Option<&str>, body: &str) -> (StatusCode, String) {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Body::from(body.to_owned())).expect("a request");
        let response = self.router.clone().oneshot(request).await.expect("a router always answers");
        let status = response.status();
        let body = response.into_body().collect().await.expect("a body in memory").to_bytes();
        (status, String::from_utf8(body.to_vec()).expect("text"))
    }

    async fn admin<T: DeserializeOwned>(&self, method: &str, path: &str, body: &str) -> T {
        let (status, text) = self.send(method, &format!("{PREFIX}{path}"), Some(TOKEN), body).await;
        assert_eq!(status, StatusCode::OK, "{text}");
        serde_json::from_str(&text).expect("what the API says it is")
    }

    async fn error(&self, method: &str, path: &str, body: &str) -> (u16, String, String) {
        let (status, text) = self.send(method, &format!("{PREFIX}{path}"), Some(TOKEN), body).await;
        let ErrorBody { error } = serde_json::from_str(&text).expect("an error body");
        (status.as_u16(), error.code, error.message)
    }
}

#[test]
fn the_admin_api_answers_to_the_token_only_wherever_it_listens() {
    for loopback in [true, false] {
        with_console(loopback, |console| async move {
            for token in [None, Some("a-token-for-tests2"), Some("")] {
                for (method, path) in
                    [("GET", "/status"), ("POST", "/disks"), ("DELETE", "/keys/k"), ("GET", "/nothing")]
                {
                    let (status, text) = console.send(method, &format!("{PREFIX}{path}"), token, "{}").await;
                    assert_eq!(status, StatusCode::UNAUTHORIZED, "{method} {path}");
                    let body: ErrorBody = serde_json::from_str(&text).expect("an error body");
                    assert_eq!(body.error.code, "unauthorized");
                    assert!(!text.contains(TOKEN));
                }
            }
            assert!(console.admin.notes().is_empty());
        });
    }
}

#[test]
fn beyond_loopback_only_health_is_open() {
    for (loopback, open) in [(true, StatusCode::OK), (false, StatusCode::UNAUTHORIZED)] {
        with_console(loopback, |console| async move {
            for path in ["/", "/status.json", "/metrics"] {
                assert_eq!(console.send("GET", path, None, "").await.0, open, "{path}");
                assert_eq!(console.send("GET", path, Some(TOKEN), "").await.0, StatusCode::OK, "{path}");
            }
            assert_eq!(console.send("GET", "/health", None, "").await.0, StatusCode::OK);
        });
    }
}

#[test]
fn health_says_what_cannot_be_served() {
    with_console(false, |console| async move {
        let health = |path: &'static str| {
            let console = &console;
            async move {
                // Beyond the age of a cached status.
                console.env.clock.sleep(Duration::from_secs(2)).await;
                let (status, text) = console.send("GET", path, None, "").await;
                (status.as_u16(), serde_json::from_str::<Health>(&text).expect("a health document"))
            }
        };
        let (status, fine) = health("/health").await;
        assert_eq!((status, fine.status.as_str(), fine.overall.as_deref()), (200, "ok", Some("healthy")));
        console.disk.set_state(StoreState::ReadOnly { reason: "remounted".to_owned() });
        let (status, read_only) = health("/health").await;
        assert_eq!((status, read_only.reads, read_only.writes), (503, true, false));
        assert!(read_only.reason.is_some_and(|reason| reason.contains("a write needs 1 disks")));
        assert_eq!(health("/health/read").await.0, 200);
        console.disk.set_state(StoreState::Failed { reason: "gone".to_owned() });
        let (status, failed) = health("/health/read").await;
        assert_eq!((status, failed.reads), (503, false));
    });
}

#[test]
fn actions_reach_the_program_in_order() {
    with_console(true, |console| async move {
        let id = DiskId(1).to_string();
        let added: DiskAdded = console.admin("POST", "/disks", r#"{"path": "/disks/2"}"#).await;
        assert_eq!(added.path, "/disks/2");
        let _: Done = console.admin("POST", &format!("/disks/{id}/drain"), "").await;
        let replaced: DiskReplaced =
            console.admin("POST", &format!("/disks/{id}/replace"), r#"{"path": "/disks/3"}"#).await;
        assert_eq!((replaced.lost, replaced.added.map(|disk| disk.path)), (id.clone(), Some("/disks/3".to_owned())));
        let _: DiskReplaced = console.admin("POST", &format!("/disks/{id}/replace"), "").await;
        let _: Done = console.admin("PUT", "/buckets/b/code", r#"{"code": "clay:4+2:5"}"#).await;
        let _: Done = console.admin("PUT", "/buckets/b/code", r#"{"code": null}"#).await;
        let key: KeyAdded = console.admin("POST", "/keys", r#"{"account": "me"}"#).await;
        assert_eq!((key.secret_key.as_str(), key.account.as_str()), ("secret", "me"));
        assert!(!format!("{key:?}").contains("secret"));
        let copy: BackedUp = console.admin("POST", "/backup", r#"{"path": "/mnt/copy"}"#).await;
        assert_eq!((copy.path.as_str(), copy.bytes), ("/mnt/copy", 4096));
        let clay = "Some(Clay { data: 4, parity: 2, helpers: 5 })";
        let code = format!("code of b: {clay}");
        let expected =
            ["add /disks/2", "drain 1", "add /disks/3", "lose 1", "lose 1", code.as_str(), "code of b: None"];
        assert_eq!(console.admin.notes(), expected);
    });
}

#[test]
fn a_replacement_that_cannot_be_a_disk_does_not_cost_the_old_one() {
    with_console(true, |console| async move {
        let path = format!("/disks/{}/replace", DiskId(1));
        let (status, code, message) = console.error("POST", &path, r#"{"path": "/foreign"}"#).await;
        assert_eq!((status, code.as_str()), (409, "conflict"));
        assert!(message.contains("another store"));
        let unknown = format!("/disks/{}/replace", DiskId(5));
        assert_eq!(console.error("POST", &unknown, r#"{"path": "/disks/3"}"#).await.0, 404);
        assert_eq!(console.admin.notes(), ["add /foreign"]);
    });
}

#[test]
fn bad_requests_are_told_what_is_wrong() {
    with_console(true, |console| async move {
        let long = format!(r#"{{"path": "{}"}}"#, "x".repeat(5000));
        let huge = format!(r#"{{"path": "{}"}}"#, "x".repeat(70_000));
        for (method, path, body, status, word) in [
            ("POST", "/disks", "", 400, "path"),
            ("POST", "/disks", "{", 400, "EOF"),
            ("POST", "/disks", r#"{"path": ""}"#, 400, "path"),
            ("POST", "/disks", &long, 400, "4096"),
            ("POST", "/disks", &huge, 413, "65536"),
            ("POST", "/disks", r#"{"path": "/x", "nod": "n"}"#, 400, "nod"),
            ("POST", "/disks/xyz/drain", "", 400, "32 hex digits"),
            ("PUT", "/buckets/b/code", r#"{"code": "rs:4"}"#, 400, "rs:K+M"),
            ("POST", "/keys", r#"{"account": ""}"#, 400, "account"),
            ("DELETE", "/keys/nobody", "", 404, "nobody"),
            ("POST", "/volumes", r#"{"name": "v", "bytes": 4096, "code": "replica:2"}"#, 400, "needs 2 disks"),
            ("POST", "/volumes", r#"{"name": "v", "bytes": 4096, "code": "clay:4+2:5"}"#, 400, "it takes replica:n"),
            ("POST", "/volumes", r#"{"name": "v", "bytes": 4096, "code": "rs:4"}"#, 400, "rs:K+M"),
            ("POST", "/volumes", r#"{"name": "-", "bytes": 4096, "code": "rs:2+1"}"#, 400, "a letter or digit first"),
            ("POST", "/volumes", r#"{"name": "v", "bytes": 4097, "code": "rs:2+1"}"#, 400, "a multiple of 4096"),
            ("POST", "/volumes", r#"{"name": "v", "bytes": 9, "code": "rs:2+1", "page_bytes": 9}"#, 400, "8192"),
            ("GET", "/volumes/v", "", 404, "there is no volume \"v\""),
            ("DELETE", "/volumes/v", "", 404, "there is no volume"),
            ("PUT", "/volumes/v/size", r#"{"bytes": 4096}"#, 404, "there is no volume"),
            ("POST", "/volumes/v/merge", "", 404, "there is no volume"),
            ("POST", "/volumes/v/snapshots", r#"{"name": "s"}"#, 404, "there is no volume \"v\""),
            ("POST", "/volumes/v/snapshots", r#"{"name": "a b"}"#, 400, "a letter or digit first"),
            ("GET", "/snapshots/v@s", "", 404, "there is no snapshot \"v@s\""),
            ("GET", "/snapshots/v", "", 400, "cannot be a snapshot's name"),
            ("DELETE", "/snapshots/v@s", "", 404, "there is no snapshot"),
            ("POST", "/snapshots/v@s/clone", r#"{"name": "w"}"#, 404, "there is no snapshot"),
            ("POST", "/snapshots/v@s/revert", "", 404, "there is no volume"),
            ("GET", "/snapshots/v@s/content?offset=0&bytes=99999999", "", 400, "16777216"),
            ("GET", "/snapshots/v@s/spans?offset=0&bytes=1", "", 404, "there is no snapshot"),
            ("GET", "/volumes/v/content?offset=0", "", 400, "bytes: a whole number"),
            ("GET", "/volumes/v/content?offset=0&bytes=99999999", "", 400, "16777216"),
            ("GET", "/volumes/v/content?offset=0&bytes=4096", "", 404, "there is no volume"),
            ("GET", "/nothing", "", 404, "/nothing"),
            ("DELETE", "/disks", "", 405, "DELETE"),
        ] {
            let (given, _, message) = console.error(method, path, body).await;
            assert_eq!(given, status, "{method} {path} {message}");
            assert!(message.contains(word), "{method} {path}: {message}");
        }
        assert!(console.admin.notes().is_empty());
    });
}

#[test]
fn the_status_and_a_scrub_come_through() {
    with_console(true, |console| async move {
        let status: Status = console.admin("GET", "/status", "").await;
        assert_eq!((status.overall.word(), status.disks.len()), ("healthy", 1));
        let none: Scrub = console.admin("GET", "/scrub", "").await;
        assert_eq!(none.scrub, None);
        let started: ScrubReport = console.admin("POST", "/scrub", "").await;
        assert!(!started.finished);
        let scrub: Scrub = console.admin("GET", "/scrub", "").await;
        assert_eq!(scrub.scrub, Some(started));
        let disks: Disks = console.admin("GET", "/disks", "").await;
        assert_eq!(disks.disks, status.disks);
    });
}

#[test]
fn the_scrape_has_requests_disks_and_states() {
    with_console(true, |console| async move {
        console.metrics.request("GetObject", 200, Duration::from_millis(3), 0, 4096);
        console.metrics.request("GetObject", 404, Duration::from_millis(1), 0, 0);
        let (_, text) = console.send("GET", "/metrics", None, "").await;
        for line in [
            r#"claystone_requests_total{operation="GetObject",status="200"} 1"#,
            r#"claystone_requests_total{operation="GetObject",status="404"} 1"#,
            r#"claystone_request_bytes_total{operation="GetObject",direction="out"} 4096"#,
            r#"claystone_request_seconds_bucket{le="0.005",operation="GetObject"} 2"#,
            r#"claystone_overall{state="healthy"} 1"#,
            r#"claystone_overall{state="data_lost"} 0"#,
            r#"claystone_stripes{state="verified"} 0"#,
            r#"path="/disks/1",state="active"} 1099511627776"#,
            r#"claystone_memory_bytes 77"#,
            r#"claystone_build_info{version="1.2.3"} 1"#,
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    });
}

#[test]
fn the_page_loads_nothing_from_elsewhere() {
    with_console(true, |console| async move {
        let (status, page) = console.send("GET", "/", None, "").await;
        assert_eq!(status, StatusCode::OK);
        assert!(page.contains("fetch(\"status.json\""));
        for outside in ["src=", "https://", "@import", "innerHTML"] {
            assert!(!page.contains(outside), "{outside}");
        }
    });
}

#[test]
fn policies_are_listed_set_by_name_and_explained() {
    with_console(true, async |console| {
        let list: api::Policies = console.admin("GET", "/policies", "").await;
        let names: Vec<&str> = list.policies.iter().map(|policy| policy.name.as_str()).collect();
        assert_eq!((list.disks, list.chosen), (1, None));
        assert_eq!(names, claystone_meta::PRESETS.map(|preset| preset.name));
        let _: Done = console.admin("PUT", "/buckets/b/policy", r#"{"policy":"lrc"}"#).await;
        let _: Done = console.admin("PUT", "/buckets/b/policy", r#"{"policy":null}"#).await;
        let lrc = "policy of b: lrc:12+6+2/lrc:12+2+2<=140%,0.25..1.00";
        assert_eq!(console.admin.notes(), [lrc, "policy of b: none"]);
        let (status, code, message) = console.error("PUT", "/buckets/b/policy", r#"{"policy":"raid"}"#).await;
        assert_eq!((status, code.as_str()), (400, "invalid"));
        assert!(message.starts_with("policy: expected FAST/COMPACT"), "{message}");
        let (status, code, _) = console.error("GET", "/buckets/nowhere/policy?key=k", "").await;
        assert_eq!((status, code.as_str()), (404, "not_found"));
    });
}
