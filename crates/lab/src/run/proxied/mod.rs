//! The real proxy under load, on this machine and its time: an origin, clients and the proxy between them, in one
//! process and over loopback. What Web Polygraph did for Ledlie 2000 (§5.4) and Shriver et al. 2001 (§5).
//!
//! 1. An origin listens that knows of each object whether it may be cached, and its body.
//! 2. A proxy starts in front of it, on a new store in a folder of this machine.
//! 3. Clients take the next request that no other has, until the time is up or there are no more; each waits for its
//!    answer, and compares it.
//! 4. The proxy stops, the folder goes.
//!
//! The requests and their order are a function of the seed. How many are answered is not.

mod client;
mod origin;
mod terms;

use std::{collections::BTreeMap, fs};

use picaflor_proxy::{
    Low, Server,
    config::{LowOrigin, Size},
};

pub use self::terms::{Proxied, Served};
use self::{
    origin::Origin,
    terms::{ANY_PORT, wrong},
};
use super::medium::Kept;
use crate::{Error, Result};

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
