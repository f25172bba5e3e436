//! The real proxy under load, on this machine and its time: an origin, clients and the proxy between them, in one
//! process and over loopback. What Web Polygraph did for Ledlie 2000 (§5.4) and Shriver et al. 2001 (§5).
//!
//! 1. An origin listens that knows of each object whether it may be cached, and its body.
//! 2. A proxy starts in front of it, on a new store in a folder of this machine.
//! 3. Clients take the next request that nobody has, until the time is up or there are no more; each waits for its
//!    answer, and compares it.
//! 4. The proxy stops, the folder goes.
//!
//! The requests and their order are a function of the seed. How many are answered is not.

mod client;
mod origin;

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use origin::Origin;
use picaflor_proxy::{
    Low, Server,
    config::{LowOrigin, Size},
};
use serde::Serialize;

use super::medium::Kept;
use crate::{Error, Result, synth::Polygraph};

/// Everything that a test is told.
#[derive(Debug, Clone)]
pub struct Proxied {
    /// Row of the engine's table.
    pub preset: String,
    /// Bytes of memory for the store.
    pub memory: u64,
    /// Bytes of the store.
    pub capacity: u64,
    /// What is asked for.
    pub model: Polygraph,
    /// Requests under way at a time.
    pub connections: usize,
    /// How long.
    pub time: Duration,
    /// Requests after which it ends before its time.
    pub most: Option<usize>,
    /// Of the requests.
    pub seed: u64,
    /// Where the store is laid; the system's folder for temporary files, if nothing is said.
    pub folder: Option<PathBuf>,
}

/// What a test gave.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Served {
    /// Requests that were answered.
    pub requests: u64,
    /// From the first request to the last answer.
    pub seconds: f64,
    /// Requests a second.
    pub per_second: f64,
    /// Share of them that the proxy answered without asking the origin.
    pub hit_ratio: f64,
    /// Requests that the origin was asked.
    pub asked_origin: u64,
    /// Mean bytes of a body.
    pub mean_bytes: f64,
    /// Mean milliseconds of a request.
    pub mean_ms: f64,
    /// Puts that the store refused, by reason: what was not stored is asked of the origin again.
    pub refused: BTreeMap<String, u64>,
}

/// Where nobody is asked from but this machine, at a port that is free.
const ANY_PORT: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

fn wrong(why: impl ToString) -> Error {
    Error::experiment("the proxy test", why.to_string())
}

/// Runs one.
///
/// # Errors
/// If the proxy does not start, does not answer within a minute, or answers with anything but what the origin has.
pub fn run(test: &Proxied) -> Result<Served> {
    let inside = test.folder.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new().prefix("picaflor-lab-").tempdir_in(&inside);
    let folder = Kept::new(folder.map_err(Error::file("making a folder in", inside))?);
    let origin = Origin::listen(test.model.clone()).map_err(wrong)?;
    let mut low = Low { listen: Some(vec![ANY_PORT.into()]), ..Low::default() };
    low.origin = vec![LowOrigin { url: format!("http://{}", origin.address()), ..LowOrigin::default() }];
    low.admin.listen = Some(ANY_PORT.into());
    low.store.path = Some(folder.path().join("store"));
    (low.store.capacity, low.store.memory) = (Some(Size(test.capacity)), Some(Size(test.memory)));
    low.store.preset = Some(test.preset.clone());
    // The papers' caches lose what a crash takes; a file system's sync waits for whatever else the machine writes.
    low.store.durability = Some("none".into());
    let server = Server::start(low.resolve().map_err(wrong)?).map_err(wrong)?;
    let served = match server.addresses().first() {
        Some(proxy) => client::ask(test, *proxy),
        None => Err(wrong("the proxy does not listen")),
    };
    let refused = refusals(&server);
    let stopped = server.stop();
    let asked_origin = origin.stop();
    let served = Served { asked_origin, refused: refused?, ..served? };
    stopped.map_err(wrong)?;
    Ok(served)
}

/// What the proxy's admin listener tells of its store.
fn refusals(server: &Server) -> Result<BTreeMap<String, u64>> {
    let file = server.token_file().ok_or_else(|| wrong("the proxy has no token"))?;
    let token = fs::read_to_string(file).map_err(Error::file("reading", file))?;
    let stats = client::stats(server.admin_address(), token.trim()).map_err(wrong)?;
    let stats: serde_json::Value = serde_json::from_slice(&stats).map_err(wrong)?;
    serde_json::from_value(stats["store"]["refusals"].clone()).map_err(wrong)
}
