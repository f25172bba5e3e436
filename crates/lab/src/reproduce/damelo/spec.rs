//! The thesis's file: the machine, what runs on it, and the benchmarks that follow from it.

use serde::{Deserialize, Serialize};

use crate::{
    Error, Result,
    fs::FsProfile,
    run::{
        micro::{Bench, On, Order},
        wg::Machine,
    },
    synth::Polygraph,
};

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Spec {
    pub(super) title: String,
    pub(super) parts: u32,
    pub(super) objects: u64,
    pub(super) largest: u64,
    pub(super) groups: u32,
    pub(super) threads: u64,
    pub(super) pool_mib: u64,
    pub(super) raw_mib: u64,
    pub(super) pages_kib: Vec<u32>,
    pub(super) preset: String,
    pub(super) seed: u64,
    ext2: Ext2,
    pub(super) machine: Machine,
    pub(super) proxy: Proxy,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ext2 {
    threads: u64,
    blocks: Vec<u32>,
    cold_mib: u64,
    warm_mib: u64,
}

/// The test, as the paper's file has it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Proxy {
    pub(super) presets: [String; 2],
    pub(super) rounds: u64,
    pub(super) seconds: f64,
    pub(super) connections: usize,
    pub(super) requests: Polygraph,
}

impl Proxy {
    fn check(&self) -> Result<()> {
        let wrong = |why: &str| Err(Error::experiment("damelo", why));
        if self.rounds == 0 || self.connections == 0 || !(self.seconds > 0.0 && self.seconds <= 3600.0) {
            return wrong("rounds and connections of the proxy are at least 1, and seconds above 0, an hour at most");
        }
        if self.requests.kinds.is_empty() {
            return wrong("the proxy's requests have kinds of objects");
        }
        Ok(())
    }
}

/// What a benchmark was run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Who {
    /// Pages of so many KiB, and times the usual pool.
    Damelo { page_kib: u32, pools: u64 },
    /// Blocks of so many bytes, and whether the reads begin with nothing in memory.
    Ext2 { block: u32, cold: bool },
}

/// The order of which the thesis says most.
pub(super) const POPULAR: Order = Order::Zipf(1, 8);

impl Spec {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let spec: Self = toml::from_str(text).map_err(|error| Error::experiment("damelo", error.to_string()))?;
        if spec.parts == 0 || spec.ext2.blocks.is_empty() || spec.pages_kib.is_empty() {
            return Err(Error::experiment("damelo", "parts is at least 1, and there are blocks and pages_kib"));
        }
        spec.proxy.check()?;
        Ok(spec)
    }

    pub(super) fn benches(&self) -> Result<Vec<(Who, Order, Bench)>> {
        let mut all = Vec::new();
        let mut add = |who, order| self.bench(who, order).map(|bench| all.push((who, order, bench)));
        for order in Order::ALL {
            for &page_kib in &self.pages_kib {
                add(Who::Damelo { page_kib, pools: 1 }, order)?;
            }
            for &block in &self.ext2.blocks {
                add(Who::Ext2 { block, cold: true }, order)?;
                add(Who::Ext2 { block, cold: false }, order)?;
            }
        }
        // D-11: the other pool that the thesis tried.
        for &page_kib in &self.pages_kib {
            add(Who::Damelo { page_kib, pools: 2 }, POPULAR)?;
        }
        Ok(all)
    }

    /// ext2 with such blocks, on the machine with so many MiB for it.
    fn ext2(&self, block: u32, mib: u64) -> Result<FsProfile> {
        // A group is what one block of bits can map.
        let layout = [("block", block), ("fragment", block), ("group_blocks", 8 * block)];
        let layout: toml::Table =
            layout.into_iter().map(|(key, value)| (key.to_owned(), i64::from(value).into())).collect();
        let changes = toml::Table::from_iter([("layout".to_owned(), layout.into())]);
        self.machine.file_system("ext2", &changes, self.ext2.warm_mib, mib)
    }

    fn bench(&self, who: Who, order: Order) -> Result<Bench> {
        let part = |mib: u64| (mib << 20) / u64::from(self.parts);
        let on = match who {
            Who::Damelo { page_kib, pools } => On::Store {
                preset: self.preset.clone(),
                page: page_kib << 10,
                memory: part(self.pool_mib * pools),
                disk: part(self.raw_mib),
                processor: self.ext2(self.ext2.blocks[0], self.ext2.cold_mib)?.processor,
            },
            Who::Ext2 { block, cold } => {
                let mib = if cold { self.ext2.cold_mib } else { self.ext2.warm_mib };
                let kind = self.ext2(block, mib)?.part(self.parts);
                On::Files(Box::new(kind), cold)
            }
        };
        Ok(Bench {
            on,
            machine: self.machine.clone(),
            parts: self.parts,
            objects: self.objects / u64::from(self.parts),
            largest: self.largest,
            groups: self.groups,
            threads: if matches!(who, Who::Ext2 { .. }) { self.ext2.threads } else { self.threads },
            order,
            seed: self.seed,
        })
    }
}
