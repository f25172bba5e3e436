//! Groups: objects that the application wants together, with settings of their own.

use std::{collections::HashMap, time::Duration};

use parking_lot::RwLock;
use picaflor_format::journal;

/// How memory treats a group (Dámelo §3): loved objects leave last, least recently used first; hated
/// ones leave first, most recently used first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Priority {
    /// As any object.
    #[default]
    Neither,
    /// Will be asked for again.
    Loved,
    /// Read once, as by a scan.
    Hated,
}

/// How long a group's puts may stay volatile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CheckpointInterval {
    /// As long as the store's own bound says.
    #[default]
    OfStore,
    /// For ever: nothing is synced for their sake.
    Off,
    /// So long.
    Every(Duration),
}

/// The settings of all groups that have any.
#[derive(Default)]
pub(crate) struct Groups {
    settings: RwLock<HashMap<u32, journal::Group>>,
}

const STORE_BOUND: u32 = 0;
const NEVER: u32 = u32::MAX;

/// Bytes of a page of which the log2 is kept, if one is.
pub(crate) fn page_bytes(log2: u8) -> Option<u32> {
    1_u32.checked_shl(log2.into()).filter(|page| *page > 1)
}

impl Groups {
    pub(crate) fn priority(&self, group: u32) -> Priority {
        if group == 0 {
            return Priority::Neither;
        }
        match self.settings.read().get(&group).map(|set| set.priority) {
            Some(1) => Priority::Loved,
            Some(2) => Priority::Hated,
            _ => Priority::Neither,
        }
    }

    /// How long this group's puts may stay volatile.
    pub(crate) fn interval(&self, group: u32) -> CheckpointInterval {
        if group == 0 {
            return CheckpointInterval::OfStore;
        }
        match self.settings.read().get(&group).map_or(STORE_BOUND, |set| set.interval) {
            STORE_BOUND => CheckpointInterval::OfStore,
            NEVER => CheckpointInterval::Off,
            millis => CheckpointInterval::Every(Duration::from_millis(millis.into())),
        }
    }

    /// Bytes of the pages that this group's clusters are divided into, if it says.
    pub(crate) fn page(&self, group: u32) -> Option<u32> {
        page_bytes(self.settings.read().get(&group).filter(|_| group != 0)?.page)
    }

    pub(crate) fn any_loved(&self) -> bool {
        self.settings.read().values().any(|set| set.priority == Priority::Loved as u8)
    }

    pub(crate) fn set_priority(&self, id: u32, priority: Priority) -> journal::Group {
        self.change(id, |set| set.priority = priority as u8)
    }

    /// `None` turns the group's syncs off.
    pub(crate) fn set_interval(&self, id: u32, interval: Option<Duration>) -> journal::Group {
        self.change(id, |set| {
            set.interval = match interval {
                None => NEVER,
                Some(time) => u32::try_from(time.as_millis()).unwrap_or(NEVER - 1).clamp(1, NEVER - 1),
            };
        })
    }

    /// `None`: its clusters are not divided.
    pub(crate) fn set_page(&self, id: u32, page: Option<u32>) -> journal::Group {
        self.change(id, |set| set.page = page.map_or(0, |page| page.trailing_zeros() as u8))
    }

    fn change(&self, id: u32, change: impl FnOnce(&mut journal::Group)) -> journal::Group {
        let mut settings = self.settings.write();
        let set = settings.entry(id).or_insert(journal::Group { id, priority: 0, interval: STORE_BOUND, page: 0 });
        change(set);
        *set
    }

    /// Takes over settings read from the device.
    pub(crate) fn restore(&self, group: journal::Group) {
        self.settings.write().insert(group.id, group);
    }

    pub(crate) fn all(&self) -> Vec<journal::Group> {
        let mut all: Vec<_> = self.settings.read().values().copied().collect();
        all.sort_by_key(|group| group.id);
        all
    }
}
