//! How a preset that lies in clusters lays objects, where an experiment has it otherwise than the preset: the policies
//! and ages of Hummingbird (Shriver et al. 2001, §3.1 and §3.5).

use std::{fmt, time::Duration};

use picaflor::{ClusterAge, NextCluster, Options, PackOrder};
use serde::Deserialize;

/// What is not named is the preset's own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policies {
    /// What is packed first: `lru-tail`, `lru-head`, `greedy-dual-size`.
    pub pack_order: Option<PackOrder>,
    /// Which free cluster is written next: `overwrite`, `closest-to-write`, `closest-to-access`, `in-region`.
    pub next_cluster: Option<NextCluster>,
    /// Most MiB of objects that wait to be packed.
    pub unpacked_mib: Option<u64>,
    /// Seconds after which a cluster leaves, counted from when it was written.
    pub written_s: Option<u64>,
    /// The same, counted from when anything in it was asked for last.
    pub unused_s: Option<u64>,
}

impl Policies {
    /// With what cannot be.
    ///
    /// # Errors
    /// In words, for a file's author.
    pub fn check(&self) -> Result<(), String> {
        if self.written_s.is_some() && self.unused_s.is_some() {
            return Err("of policies either written_s or unused_s".into());
        }
        Ok(())
    }

    pub(super) fn bind(&self, options: &mut Options) {
        options.pack_order = self.pack_order.unwrap_or(options.pack_order);
        options.next_cluster = self.next_cluster.unwrap_or(options.next_cluster);
        options.unpacked = self.unpacked_mib.map_or(options.unpacked, |mib| mib << 20);
        let written = self.written_s.map(|seconds| ClusterAge::Written(Duration::from_secs(seconds)));
        let unused = self.unused_s.map(|seconds| ClusterAge::Unused(Duration::from_secs(seconds)));
        options.cluster_age = written.or(unused).unwrap_or(options.cluster_age);
    }
}

/// As a column of results has them; nothing where all are the preset's.
impl fmt::Display for Policies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let order = self.pack_order.map(|order| named(serde_json::json!(order)));
        let next = self.next_cluster.map(|next| named(serde_json::json!(next)));
        let parts = [
            order,
            next,
            self.unpacked_mib.map(|mib| format!("{mib} MiB unpacked")),
            self.written_s.map(|seconds| format!("{seconds} s written")),
            self.unused_s.map(|seconds| format!("{seconds} s unused")),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}
