//! The policies of a layout, for the command that has a store open for long.

use clap::Args;
use picaflor::{ClusterAge, NextCluster, Options, PackOrder};
use picaflor_proxy::config::{Size, Span};
use serde::de::{DeserializeOwned, IntoDeserializer};

/// How objects are laid in clusters, where that is not the preset's way, as long as the store is open.
#[derive(Args, Clone, Copy, Default)]
pub(crate) struct Policies {
    /// Which waiting objects are packed first: lru-tail, lru-head, greedy-dual-size [default: the preset's]
    #[arg(long, value_name = "ORDER", value_parser = named::<PackOrder>)]
    pack_order: Option<PackOrder>,
    /// Which free cluster is written next: overwrite, closest-to-write, closest-to-access, in-region [default: the
    /// preset's]
    #[arg(long, value_name = "WHICH", value_parser = named::<NextCluster>)]
    next_cluster: Option<NextCluster>,
    /// Most bytes of objects that wait in memory to be packed [default: an eighth of it, or as the preset has it]
    #[arg(long, value_name = "SIZE")]
    unpacked: Option<Size>,
    /// A cluster leaves a cache so long after it was written [default: when its place is needed]
    #[arg(long, value_name = "TIME", conflicts_with = "unused_age")]
    written_age: Option<Span>,
    /// The same after anything in it was asked for last
    #[arg(long, value_name = "TIME")]
    unused_age: Option<Span>,
}

impl Policies {
    pub(crate) fn bind(self, options: &mut Options) {
        options.pack_order = self.pack_order.unwrap_or(options.pack_order);
        options.next_cluster = self.next_cluster.unwrap_or(options.next_cluster);
        options.unpacked = self.unpacked.map_or(options.unpacked, |size| size.0);
        let written = self.written_age.map(|age| ClusterAge::Written(age.0));
        let unused = self.unused_age.map(|age| ClusterAge::Unused(age.0));
        options.cluster_age = written.or(unused).unwrap_or(options.cluster_age);
    }
}

/// One of a few words; else the error names them.
fn named<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    T::deserialize(text.into_deserializer()).map_err(|e: serde::de::value::Error| e.to_string())
}
