//! The proxies, each configured as its own documentation advises for this work, one process on one core.

mod haproxy;
mod nginx;
mod ours;
mod process;
mod trafficserver;

use std::{net::SocketAddr, path::PathBuf};

use anyhow::Result;

pub(crate) use process::Running;

/// What a server is to be.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    /// Folder of its own, empty.
    pub(crate) folder: PathBuf,
    /// Where it listens.
    pub(crate) listen: SocketAddr,
    /// Where it fetches.
    pub(crate) origin: SocketAddr,
    /// Memory for objects, in bytes.
    pub(crate) memory: u64,
    /// What a store on the device may take, in bytes.
    pub(crate) capacity: u64,
    /// Core it runs on.
    pub(crate) core: String,
    /// Door of a memory limit it runs under.
    pub(crate) door: Option<PathBuf>,
    /// Our program.
    pub(crate) picaflor: PathBuf,
}

/// One way to run one server.
pub(crate) struct Server {
    /// As the report calls it.
    pub(crate) name: &'static str,
    /// Whether it keeps objects on the device.
    pub(crate) on_device: bool,
    /// Program that must be there.
    pub(crate) program: &'static str,
    /// Starts it.
    pub(crate) start: fn(&Setup) -> Result<Running>,
}

/// Every server, ours first.
pub(crate) const SERVERS: &[Server] = &[
    Server { name: "picaflor", on_device: true, program: "", start: ours::start },
    Server { name: "picaflor, access log", on_device: false, program: "", start: ours::with_log },
    Server { name: "nginx, sendfile", on_device: true, program: "nginx", start: nginx::sendfile },
    Server { name: "nginx, sendfile, tcp_nopush", on_device: false, program: "nginx", start: nginx::nopush },
    Server { name: "nginx, open_file_cache", on_device: true, program: "nginx", start: nginx::open_file_cache },
    Server { name: "nginx, no sendfile", on_device: true, program: "nginx", start: nginx::no_sendfile },
    Server { name: "nginx, aio threads", on_device: true, program: "nginx", start: nginx::aio_threads },
    Server { name: "HAProxy", on_device: false, program: "haproxy", start: haproxy::start },
    Server { name: "Traffic Server", on_device: true, program: "traffic_server", start: trafficserver::start },
];
