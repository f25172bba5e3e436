//! The operations of a run.

/// An object that an operation is to put. Its body, metadata and length follow from `id` alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draft {
    /// Number of the key.
    pub key: usize,
    /// Tells this version from every other.
    pub id: u64,
    /// Bytes of body.
    pub len: usize,
    /// Group, 0 for none.
    pub group: u32,
    /// Origin server, 0 for unknown.
    pub server: u32,
    /// Key to lie beside.
    pub beside: Option<usize>,
    /// Milliseconds until it expires; 0 is never, `None` is the store's default.
    pub expires_in: Option<u64>,
    /// Goes by memory.
    pub bypass: bool,
    /// Does not wait for the device.
    pub no_wait: bool,
}

impl Draft {
    /// The drafts of one call: keys so far from each other, which may come round to the same; bodies of other lengths.
    #[must_use]
    pub fn many(self, count: u32, stride: usize, keys: usize) -> Vec<Self> {
        let one = |number: u32| {
            let at = number as usize;
            // Operations are numbered far below this.
            let id = self.id | u64::from(number) << 32;
            let len = if at.is_multiple_of(3) { self.len } else { self.len * (at % 5) / 4 + at };
            Self { key: (self.key + at * stride) % keys, id, len, ..self }
        };
        (0..count).map(one).collect()
    }
}

/// One thing to do to a store.
#[expect(missing_docs, reason = "the fields are named in each variant's description")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Put in one call.
    Put(Draft),
    /// Put so many objects in one call: this one, and others under other keys; see [`Draft::many`].
    PutMany { draft: Draft, count: u32, stride: usize },
    /// Delete so many keys in one call, from this one on.
    DeleteMany { key: usize, count: u32, stride: usize },
    /// Put piece by piece, or begin to and stop.
    Stream { draft: Draft, piece: usize, announce: bool, finish: bool },
    /// Begin a stream that stays open while other things happen.
    Begin { slot: usize, draft: Draft, announce: bool },
    /// Write the next so many bytes of an open stream.
    Write { slot: usize, len: usize },
    /// Finish an open stream, or drop it.
    End { slot: usize, finish: bool },
    /// Get, or fetch what is not there.
    Fetch(Draft),
    /// Delete.
    Delete(usize),
    /// Get.
    Get(usize),
    /// Ask memory alone.
    TryGet(usize),
    /// Get a part of the body.
    Range { key: usize, from: u64, len: u64 },
    /// Ask whether it is there.
    Contains(usize),
    /// Get every key.
    Sweep,
    /// Ask for two keys to lie together.
    Collocate(usize, usize),
    /// Set a group: priority (0 neither, 1 loved, 2 hated), or interval in milliseconds (0 is never).
    Priority { group: u32, priority: u8 },
    /// Set how long a group's puts may be volatile, in milliseconds; 0 turns its syncs off.
    Interval { group: u32, millis: u64 },
    /// Divide the clusters of a group into pages of so many bytes.
    Page { group: u32, bytes: u32 },
    /// Pin a record with the value of this number, or take it out.
    Pin { name: usize, id: Option<u64> },
    /// Make everything durable.
    Flush,
    /// Let the daemons do so many steps.
    Step(u32),
    /// Let time pass.
    Advance { millis: u64 },
    /// Set the time of day, forward or back.
    SetClock { millis: i64 },
    /// From the so-manieth of its operations on a device fails, in one of several ways.
    Lasting { device: usize, how: usize, after: u64 },
    /// So many small puts, so many percent of them deletes instead.
    Churn { id: u64, count: u32, deletes: u64 },
    /// Fail the power at the so-manieth device operation from now.
    ArmCrash(u64),
    /// Fail the power now.
    Crash,
    /// Kill the process; the device goes on.
    Kill,
    /// Close, perhaps crashing at the so-manieth operation of that, and open again.
    Reopen(Option<u64>),
}

impl Op {
    /// Whether it asks for objects and changes none.
    pub(crate) fn only_looks(self) -> bool {
        matches!(self, Self::Get(_) | Self::TryGet(_) | Self::Range { .. } | Self::Contains(_) | Self::Sweep)
    }
}

/// Streams that may be open at one time.
pub(crate) const STREAMS: usize = 2;
