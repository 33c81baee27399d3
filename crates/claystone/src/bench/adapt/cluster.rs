//! The servers of the paper, a thousand drives of them: what takes time is a drive, and a server's two directions of the
//! network. Each does one thing after the other.
//!
//! ```text
//!   drive --> its server's way out --> the reader's way in        all three at once, each when it is free
//! ```
//!
//! Invariants:
//! 1. Who comes first is served first: calls come in the order of time.
//! 2. What is under way to a server of the same name crosses no network.
//!
//! Left out: switches between servers, processors, the time to decode.
//! Source: [hacfs §5], eleven nodes with six drives of 7,200 rpm and 1 Gb/s each.

/// A cluster.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// When each drive is free.
    disks: Vec<f64>,
    /// When each server's way out is.
    out: Vec<f64>,
    /// And its way in.
    into: Vec<f64>,
    alive: Vec<bool>,
}

impl Cluster {
    /// So many drives, all idle.
    pub fn new(disks: usize) -> Cluster {
        let servers = disks.div_ceil(DISKS_PER_SERVER);
        Cluster {
            disks: vec![0.0; disks],
            out: vec![0.0; servers],
            into: vec![0.0; servers],
            alive: vec![true; servers],
        }
    }

    /// Drives, lost ones too.
    pub fn disks(&self) -> usize {
        self.disks.len()
    }

    /// Servers, lost ones too.
    pub fn servers(&self) -> usize {
        self.alive.len()
    }

    /// Where a drive is.
    pub fn server_of(disk: u32) -> usize {
        disk as usize / DISKS_PER_SERVER
    }

    /// The drives of a server.
    pub fn disks_of(&self, server: usize) -> std::ops::Range<u32> {
        let from = server * DISKS_PER_SERVER;
        from as u32..(from + DISKS_PER_SERVER).min(self.disks.len()) as u32
    }

    /// Whether a server answers.
    pub fn is_alive(&self, server: usize) -> bool {
        self.alive[server]
    }

    /// A server is gone, for good.
    pub fn lose(&mut self, server: usize) {
        self.alive[server] = false;
    }

    /// A drive reads `span_bytes` and sends `bytes` of these to a server. Returns when they are there.
    pub fn read(&mut self, now_s: f64, disk: u32, span_bytes: f64, bytes: f64, to: usize) -> f64 {
        let from = Cluster::server_of(disk);
        let read = take(&mut self.disks[disk as usize], now_s, SEEK_S + span_bytes / DISK_BYTES_PER_S);
        read.max(self.send(now_s, from, to, bytes))
    }

    /// A server sends bytes to a drive, which writes them. Returns when they are written.
    pub fn write(&mut self, now_s: f64, from: usize, disk: u32, bytes: f64) -> f64 {
        let sent = self.send(now_s, from, Cluster::server_of(disk), bytes);
        sent.max(take(&mut self.disks[disk as usize], now_s, SEEK_S + bytes / DISK_BYTES_PER_S))
    }

    fn send(&mut self, now_s: f64, from: usize, to: usize, bytes: f64) -> f64 {
        if from == to {
            return now_s;
        }
        let seconds = bytes / LINK_BYTES_PER_S;
        take(&mut self.out[from], now_s, seconds).max(take(&mut self.into[to], now_s, seconds))
    }
}

/// Takes something for so long, from when it is free. Returns the end.
fn take(free_s: &mut f64, now_s: f64, seconds: f64) -> f64 {
    *free_s = free_s.max(now_s) + seconds;
    *free_s
}

const DISKS_PER_SERVER: usize = 6;
/// A drive of 2 TB from its middle.
const DISK_BYTES_PER_S: f64 = 120e6;
/// To a track, and half a turn.
const SEEK_S: f64 = 0.0125;
const LINK_BYTES_PER_S: f64 = 125e6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_of_drive_and_network_counts_and_queues_form() {
        let mut cluster = Cluster::new(13);
        assert_eq!((cluster.servers(), cluster.disks_of(2)), (3, 12..13));
        // 120 MB take a second and a seek of the drive, and 0.96 s of the network.
        assert!((cluster.read(0.0, 0, 120e6, 120e6, 1) - 1.0125).abs() < 1e-9);
        // Another drive of the same server: the way out is taken until 0.96 s.
        assert!((cluster.read(0.0, 1, 120e6, 120e6, 2) - 1.92).abs() < 1e-9);
        // Half of what the drive passes over is sent.
        assert!((cluster.read(10.0, 2, 120e6, 60e6, 2) - 11.0125).abs() < 1e-9);
        // To its own server it takes no network.
        assert!((cluster.write(20.0, 0, 3, 12e6) - 20.1125).abs() < 1e-9);
    }
}
