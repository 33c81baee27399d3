//! How clients reach a volume or a snapshot.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{bail, ensure};
use claystone_console::api;
use claystone_volume::StrandName;
use serde::Serialize;

use super::{route, route_of, say};
use crate::admin::AdminClient;

/// One way to a volume.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Way {
    /// Of libnbd, QEMU and fio.
    uri: String,
    /// What to type, as root, to have it as `/dev/nbd0`.
    nbd_client: String,
}

#[derive(Debug, Serialize)]
struct Attach {
    name: String,
    unix: Option<Way>,
    tcp: Option<Way>,
}

/// Shows them.
pub async fn attach(client: &AdminClient, name: &str, json: bool) -> anyhow::Result<()> {
    // There is one, and its name is in order.
    if name.contains(':') {
        let strand: StrandName = name.parse()?;
        let volume: api::Volume = client.get(&route(&strand.volume, "")?).await?;
        let is_home = volume.homes.contains(&strand.home.0);
        ensure!(is_home, "{} has no strand of that name: {}", strand.volume, super::homes(&volume));
        if let Some(snapshot) = strand.snapshot_name() {
            let _: serde_json::Value = client.get(&route_of(&snapshot.to_string(), "")?).await?;
        }
    } else {
        let _: serde_json::Value = client.get(&route_of(name, "")?).await?;
    }
    let endpoint = &client.endpoint;
    let unix = endpoint.nbd_socket.as_deref().map(|socket| over_socket(name, socket));
    let tcp = endpoint.nbd.map(|address| over_tcp(name, address, endpoint.nbd_tls));
    if unix.is_none() && tcp.is_none() {
        bail!("this store serves no block devices: start it with --nbd-listen or --nbd-socket");
    }
    let text = for_people(name, unix.as_ref(), tcp.as_ref());
    say(json, &Attach { name: name.to_owned(), unix, tcp }, text.trim_end())?;
    Ok(())
}

fn over_socket(name: &str, socket: &Path) -> Way {
    let quoted = quoted(&socket.display().to_string());
    Way {
        uri: format!("nbd+unix:///{name}?socket={}", encoded(&socket.display().to_string())),
        nbd_client: format!("nbd-client -unix {quoted} -N {name} /dev/nbd0"),
    }
}

fn over_tcp(name: &str, address: SocketAddr, tls: bool) -> Way {
    let (host, port) = (address.ip(), address.port());
    let (uri, certificates) = if tls {
        let certificates = " -certfile client-cert.pem -keyfile client-key.pem -cacertfile ca-cert.pem";
        (format!("nbds://{address}/{name}?tls-certificates=DIR"), certificates)
    } else {
        (format!("nbd://{address}/{name}"), "")
    };
    Way { uri, nbd_client: format!("nbd-client {host} {port} -N {name}{certificates} /dev/nbd0") }
}

fn for_people(name: &str, unix: Option<&Way>, tcp: Option<&Way>) -> String {
    let mut text = String::new();
    for (title, way) in [("on this machine, over the socket", unix), ("over TCP", tcp)] {
        let Some(Way { uri, nbd_client }) = way else { continue };
        let _ = writeln!(text, "{title}:");
        let _ = writeln!(text, "  sudo {nbd_client}      # a device of the kernel; `nbd-client -d /dev/nbd0` detaches");
        let _ = writeln!(text, "  nbdinfo '{uri}'");
        if name.contains('@') {
            let _ = writeln!(text, "  nbdcopy '{uri}' FILE      # a snapshot is only read");
        } else {
            let _ = writeln!(text, "  nbdcopy FILE '{uri}'      # writes over what is there");
        }
        let _ = writeln!(text, "  nbdfuse DIRECTORY/{name} '{uri}'      # a file, without root");
        let _ = writeln!(text, "  qemu-img info '{uri}'");
        let options = if name.contains('@') { "format=raw,if=virtio,readonly=on" } else { "format=raw,if=virtio" };
        let _ = writeln!(text, "  qemu-system-x86_64 -drive 'file={uri},{options}'");
    }
    if tcp.is_some_and(|way| way.uri.starts_with("nbds:")) {
        text.push_str(
            "DIR has ca-cert.pem, and client-cert.pem and client-key.pem where clients must show a certificate.\n",
        );
        text.push_str("QEMU takes TLS as an object: -object tls-creds-x509,id=tls,dir=DIR,endpoint=client\n");
    }
    text
}

/// A path within a URI.
fn encoded(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    path.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// A path within a line of shell.
fn quoted(path: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/-._".contains(letter);
    if path.chars().all(plain) { path.to_owned() } else { format!("'{}'", path.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_what_clients_take() {
        let way = over_socket("disk1", Path::new("/my store/nbd.sock"));
        assert_eq!(way.uri, "nbd+unix:///disk1?socket=/my%20store/nbd.sock");
        assert_eq!(way.nbd_client, "nbd-client -unix '/my store/nbd.sock' -N disk1 /dev/nbd0");
        let way = over_tcp("v", "[::1]:10809".parse().expect("an address"), false);
        assert_eq!(way.uri, "nbd://[::1]:10809/v");
        assert_eq!(way.nbd_client, "nbd-client ::1 10809 -N v /dev/nbd0");
        let way = over_tcp("v", "10.0.0.1:7".parse().expect("an address"), true);
        assert!(way.uri.starts_with("nbds://10.0.0.1:7/v?tls-certificates="));
    }
}
