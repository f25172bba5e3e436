//! The client connections that are open: a list for each worker, and how many they are together and of each client.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use tokio::task::AbortHandle;

use crate::{
    conn::{Conn, Phase},
    metrics::Counters,
};

/// Those of one worker.
#[derive(Default)]
pub(crate) struct Open {
    next: u64,
    /// Most at once since memory was last given back.
    most: usize,
    pub(crate) by_number: HashMap<u64, (Arc<Conn>, Option<AbortHandle>)>,
}

/// So many closed connections leave memory that is worth giving back to the system.
const MANY_CLOSED: usize = 512;

impl Open {
    /// Whether most of many connections have gone: once for each time that they have.
    pub(crate) fn have_many_gone(&mut self) -> bool {
        let now = self.by_number.len();
        let gone = now * 2 <= self.most && self.most - now >= MANY_CLOSED;
        if gone {
            self.most = now;
            self.by_number.shrink_to_fit();
        }
        gone
    }
}

/// Those of all.
pub(crate) struct Connections {
    workers: Vec<Arc<Mutex<Open>>>,
    count: AtomicUsize,
    /// The most of one client, and how many each has, where that is bounded.
    most: Option<usize>,
    by_client: Mutex<HashMap<IpAddr, usize>>,
}

impl Connections {
    /// With at most `most` of one client.
    pub(crate) fn new(workers: usize, most: Option<usize>) -> Self {
        let workers = (0..workers).map(|_| Arc::default()).collect();
        Self { workers, count: AtomicUsize::new(0), most, by_client: Mutex::default() }
    }

    pub(crate) fn of(&self, worker: usize) -> Arc<Mutex<Open>> {
        self.workers[worker].clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Puts one into a worker's list, which it leaves with [`Connections::remove`]; `None` if its client has its most.
    pub(crate) fn add(&self, worker: &Mutex<Open>, conn: &Arc<Conn>) -> Option<u64> {
        if let Some(most) = self.most
            && !conn.is_front
        {
            let mut by_client = self.by_client.lock();
            let count = by_client.entry(conn.client).or_default();
            if *count >= most {
                return None;
            }
            *count += 1;
        }
        self.count.fetch_add(1, Relaxed);
        let mut open = worker.lock();
        open.next += 1;
        let number = open.next;
        open.by_number.insert(number, (conn.clone(), None));
        open.most = open.most.max(open.by_number.len());
        Some(number)
    }

    /// Takes one off that was added as the connection of `peer`.
    pub(crate) fn remove(&self, worker: &Mutex<Open>, number: u64, peer: &Conn) {
        worker.lock().by_number.remove(&number);
        self.count.fetch_sub(1, Relaxed);
        if self.most.is_some() && !peer.is_front {
            let mut by_client = self.by_client.lock();
            if let Some(count) = by_client.get_mut(&peer.client) {
                *count -= 1;
                if *count == 0 {
                    by_client.remove(&peer.client);
                }
            }
        }
    }

    /// The connection that has been without a request, or the end of its head or handshake, for the longest time at
    /// `now`: one of this worker, or else of another. One that has come within a second has yet to be heard.
    pub(crate) fn stillest(&self, worker: &Arc<Mutex<Open>>, now: u32) -> Option<AbortHandle> {
        let stillest = |open: &Mutex<Open>| {
            let open = open.lock();
            let still = open.by_number.values().filter_map(|(conn, abort)| {
                let (phase, since) = conn.phase();
                let is_still =
                    matches!(phase, Phase::Idle | Phase::Head | Phase::Handshake) && now.saturating_sub(since) > 1;
                let abort = abort.as_ref().filter(|abort| is_still && !abort.is_finished())?;
                Some((phase != Phase::Idle, since, abort))
            });
            still.min_by_key(|(is_asking, since, _)| (*is_asking, *since)).map(|(.., abort)| abort.clone())
        };
        let mut others = self.workers.iter().filter(|other| !Arc::ptr_eq(other, worker));
        stillest(worker).or_else(|| others.find_map(|other| stillest(other)))
    }
}

/// Takes the connection off the list when its task ends, however it ends, and the tunnel that it may have become.
pub(crate) struct Left {
    pub(crate) all: Arc<Connections>,
    pub(crate) open: Arc<Mutex<Open>>,
    pub(crate) number: u64,
    /// As it came: a PROXY header may have named another client since.
    pub(crate) peer: Arc<Conn>,
    pub(crate) counters: Arc<Counters>,
}

impl Left {
    /// From now on this task is what a time limit ends.
    pub(crate) fn goes_on_as(&self, task: AbortHandle) {
        if let Some((_, abort)) = self.open.lock().by_number.get_mut(&self.number) {
            *abort = Some(task);
        }
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        self.all.remove(&self.open, self.number, &self.peer);
        self.counters.closed.add(1);
    }
}
