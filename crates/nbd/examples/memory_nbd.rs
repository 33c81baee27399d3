//! Serves block devices in memory over NBD, for tests of the protocol without a store:
//! `cargo run --example memory_nbd -- ADDRESS [bytes=N] [page=N] [tls=allowed|required chain=FILE key=FILE [clients=FILE]]`.
//!
//! ADDRESS is `unix:PATH` or `IP:PORT`, where port 0 is any free one. There are three exports: `disk`, also by no name;
//! `odd`, whose length is no whole number of pages; `fixed`, which only reads. Standard output says `ready ADDRESS`; when
//! standard input ends, requests end and then the server.

use std::io::Read;
use std::sync::Arc;

use async_trait::async_trait;
use claystone_nbd::{Export, Exports, Listed, Listener, Nbd, NoExport, Settings, Tls, tls_config};
use claystone_volume::testing::MemoryBlocks;
use claystone_volume::{Access, Blocks, Durable};

type Error = Box<dyn std::error::Error>;

struct Devices(Vec<Export>);

#[async_trait]
impl Exports for Devices {
    async fn list(&self) -> Vec<Listed> {
        self.0.iter().map(|export| export.listed.clone()).collect()
    }

    async fn open(&self, name: &str) -> Result<Export, NoExport> {
        let found = match name {
            "" => self.0.first(),
            _ => self.0.iter().find(|export| export.listed.name == name),
        };
        found.cloned().ok_or(NoExport::Missing)
    }
}

#[derive(Default)]
struct Arguments {
    bytes: Option<u64>,
    page_bytes: Option<u32>,
    tls: Option<String>,
    chain: Vec<u8>,
    key: Vec<u8>,
    clients: Option<Vec<u8>>,
}

fn main() -> Result<(), Error> {
    let mut given = std::env::args().skip(1);
    let address = given.next().ok_or("usage: memory_nbd ADDRESS [bytes=N] [page=N] [tls=...]")?;
    let mut arguments = Arguments::default();
    for argument in given {
        let (name, value) = argument.split_once('=').ok_or("arguments are NAME=VALUE")?;
        match name {
            "bytes" => arguments.bytes = Some(value.parse()?),
            "page" => arguments.page_bytes = Some(value.parse()?),
            "tls" => arguments.tls = Some(value.to_owned()),
            "chain" => arguments.chain = read(value)?,
            "key" => arguments.key = read(value)?,
            "clients" => arguments.clients = Some(read(value)?),
            _ => return Err(format!("there is no argument {name}").into()),
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(address, arguments))
}

async fn serve(address: String, arguments: Arguments) -> Result<(), Error> {
    let config = || tls_config(&arguments.chain, &arguments.key, arguments.clients.as_deref());
    let tls = match arguments.tls.as_deref() {
        None => Tls::Off,
        Some("allowed") => Tls::Allowed(config()?),
        Some("required") => Tls::Required(config()?),
        Some(other) => return Err(format!("tls={other} is neither allowed nor required").into()),
    };
    let (listener, address) = listen(&address).await?;
    let exports = Arc::new(devices(arguments.bytes.unwrap_or(1 << 30), arguments.page_bytes.unwrap_or(4096)).await?);
    let server = Nbd::new(claystone_host::env()?, exports, tls, Settings::default());
    println!("ready {address}");
    let (ended, end) = tokio::sync::oneshot::channel::<()>();
    #[expect(clippy::disallowed_methods, reason = "the program of a test, which waits for its input to end")]
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        drop(ended);
    });
    server.serve(listener, async { drop(end.await) }).await;
    Ok(())
}

async fn devices(bytes: u64, page_bytes: u32) -> Result<Devices, Error> {
    let export = |name: &str, description: &str, blocks: MemoryBlocks| Export {
        listed: Listed { name: name.to_owned(), description: description.to_owned() },
        blocks: Arc::new(blocks),
    };
    let fixed = MemoryBlocks::new(1 << 20, page_bytes);
    fixed.write(0, vec![0x5a; 10_000].into(), Durable::Now).await?;
    fixed.set_access(Access::ReadOnly);
    Ok(Devices(vec![
        export("disk", "memory", MemoryBlocks::new(bytes, page_bytes)),
        export("odd", "memory of an odd length", MemoryBlocks::new((4 << 20) + 300, page_bytes)),
        export("fixed", "memory that nobody changes", fixed),
    ]))
}

#[expect(clippy::disallowed_methods, reason = "this is the program that binds and hands the listener in")]
async fn listen(address: &str) -> Result<(Listener, String), Error> {
    if let Some(path) = address.strip_prefix("unix:") {
        return Ok((tokio::net::UnixListener::bind(path)?.into(), address.to_owned()));
    }
    let listener = tokio::net::TcpListener::bind(address).await?;
    let address = listener.local_addr()?.to_string();
    Ok((listener.into(), address))
}

#[expect(clippy::disallowed_methods, reason = "this is the program that reads what the server is given")]
fn read(path: &str) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|error| format!("{path}: {error}").into())
}
