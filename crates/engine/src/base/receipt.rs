//! The recovery receipt: what an opening kept and dropped, and why.

use std::{fmt, time::Duration};

/// What opening a store found.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Receipt {
    /// Every entry of the index was there before this opening.
    pub objects: u64,
    /// Seconds that opening took.
    pub seconds: f64,
    /// Seconds from the beginning of the opening until all that was found could be replaced and deleted too. A cache
    /// gives gets their answers before that.
    pub seconds_merged: f64,
    /// Each volume.
    pub volumes: Vec<VolumeReceipt>,
    /// What was found before the store gave bytes back; none if it did not.
    pub before: Option<Box<Receipt>>,
}

/// One volume's part of the receipt.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct VolumeReceipt {
    /// Path or description of the device.
    pub place: String,
    /// It was made by this opening.
    pub created: bool,
    /// The last run closed it: nothing had to be scanned.
    pub clean: bool,
    /// Which checkpoint was used: `current`, `previous`, or `none`; `tables` where these are the index.
    pub checkpoint: &'static str,
    /// Entries taken from the checkpoint.
    pub from_checkpoint: u64,
    /// Entries found in clusters written since.
    pub from_scan: u64,
    /// Clusters looked at.
    pub scanned_clusters: u32,
    /// Clusters read whole and verified frame by frame, because no sync vouched for them.
    pub verified_clusters: u32,
    /// Deletes replayed from the journal.
    pub deletes: u64,
    /// Entries dropped, by reason.
    pub dropped: Dropped,
    /// Objects of the hot log, to be read first.
    pub hot: usize,
    /// Damage that was met, in words.
    pub damage: Vec<String>,
    /// What the device refused to read, in words: it may be whole.
    pub refused: Vec<String>,
    /// Entries in the index after all that.
    pub objects: u64,
}

/// Entries that recovery dropped.
#[derive(Debug, Clone, Copy, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Dropped {
    /// An older version of an object that was put again.
    pub replaced: u64,
    /// Deleted after the checkpoint.
    pub deleted: u64,
    /// In a cluster that has been written again since.
    pub overwritten: u64,
    /// The write was cut short by the crash.
    pub torn: u64,
    /// The device did not give what would have told it from an older version.
    pub unread: u64,
    /// No checkpoint could be read, so a cache starts empty.
    pub cold_start: bool,
}

impl Dropped {
    pub(crate) fn join(&mut self, other: &Self) {
        self.replaced += other.replaced;
        self.deleted += other.deleted;
        self.overwritten += other.overwritten;
        self.torn += other.torn;
        self.unread += other.unread;
        self.cold_start |= other.cold_start;
    }
}

impl Receipt {
    pub(crate) fn new(volumes: Vec<VolumeReceipt>, opened: Duration, merged: Duration) -> Self {
        let objects = volumes.iter().map(|volume| volume.objects).sum();
        Self { objects, seconds: opened.as_secs_f64(), seconds_merged: merged.as_secs_f64(), volumes, before: None }
    }
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} objects ready in {:.3} s", self.objects, self.seconds)?;
        if self.seconds_merged - self.seconds > 0.001 {
            write!(f, ", merged after {:.3} s", self.seconds_merged)?;
        }
        for volume in &self.volumes {
            write!(f, "\n  {volume}")?;
        }
        self.before.iter().try_for_each(|before| write!(f, "\n  before it gave bytes back: {before}"))
    }
}

impl fmt::Display for VolumeReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if self.created {
            return f.write_str("new");
        }
        if self.dropped.cold_start {
            f.write_str("started empty, ")?;
        }
        let how = if self.clean { "closed cleanly" } else { "recovered" };
        if self.checkpoint == "tables" {
            let later = if self.clean { "" } else { "; what the crash left over is looked for in the background" };
            return write!(f, "{how}; {} entries in tables{later}", self.objects);
        }
        let checkpoint = match self.checkpoint {
            "none" => "no checkpoint".to_owned(),
            which => format!("{} from the {which} checkpoint", self.from_checkpoint),
        };
        write!(
            f,
            "{how}; kept {} ({checkpoint}, {} from {} clusters scanned, {} of them verified); \
             replayed {} deletes; dropped {} replaced, {} deleted, {} overwritten, {} torn, {} unread; {} hot",
            self.objects,
            self.from_scan,
            self.scanned_clusters,
            self.verified_clusters,
            self.deletes,
            self.dropped.replaced,
            self.dropped.deleted,
            self.dropped.overwritten,
            self.dropped.torn,
            self.dropped.unread,
            self.hot,
        )?;
        for met in self.damage.iter().chain(&self.refused) {
            write!(f, "; {met}")?;
        }
        Ok(())
    }
}
