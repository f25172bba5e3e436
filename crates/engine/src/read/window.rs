//! How much is read around an object: nothing, some bytes behind it, or all of its cluster; whichever has been paying.
//!
//! 1. Each device read tells how long it was and how long it took. A line through these says what a read costs, and
//!    what each byte more of it. Latency alone flatters long reads where many are in flight: a read then waits for
//!    others, and costs the device only its share of that time.
//! 2. Each neighbour that a read brought tells, when it is first asked for, which [`Reach`] was needed for it. So it is
//!    known, for each class of placement and each reach, how many neighbours come and how many are used. Those that are
//!    not used take memory from others.
//! 3. A get takes the reach that saves most: the reads that its neighbours save, less what its bytes cost. None, where
//!    none saves anything; but now and then one is tried, and a whole cluster is read, for what is not read teaches
//!    nothing.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::base::reach::Reach;

const CLASSES: usize = 256;
/// Reads of a class after which its own neighbours are what counts, and not those of all classes.
const KNOWN: u32 = 32;
/// Reads that one neighbour saves which is used. It saves one; an estimate that is too high is mended by the reads that
/// it causes, while one that is too low causes none. Counted as one, reads of four workloads on seven devices bring up
/// to 6% fewer hits a second, nowhere more.
const SAVED: i64 = 2;
/// Of so many neighbours that are not asked for, each in the place of something that memory held, one is taken to have
/// cost what one that is used saves.
const CROWD: u32 = 8;
/// Less than this part of a read is no gain: means of so few reads vary by as much.
const LEAST: f64 = 8.0;
/// One read in this many goes further than pays, to learn whether it would: often while a class is new, then so rarely
/// that it costs a few percent of the bytes read.
const EXPLORE: [u32; 2] = [32, 1024];
/// Such reads after which a class is no longer new.
const TRIALS: u32 = 16;
/// One read around an object in this many is of the whole cluster, to learn what that costs and brings; and so are the
/// first of all.
const MEASURE: u32 = 128;
const MEASURED: u32 = 8;
/// Weight of a new observation of neighbours: 1/16.
const EWMA: u32 = 4;
/// Means of neighbours are in 1/65536.
const FRACTION: u32 = 16;
/// Reads over which costs are a mean.
const COSTS: f64 = 256.0;
/// Bytes of the read of an object, where only differences count.
const OBJECT: f64 = 8192.0;

/// Neighbours by the reach that they needed.
pub(crate) type Neighbours = [u32; Reach::COUNT];

/// What the reads of a class brought: moving means, of the reads that reached as far.
#[derive(Default)]
struct Paid {
    used: [AtomicU32; Reach::COUNT],
    brought: [AtomicU32; Reach::COUNT],
    reads: AtomicU32,
}

impl Paid {
    fn brought(&self, neighbours: &Neighbours, reach: Reach) {
        let less = |old: u32| old - (old >> EWMA);
        let all = self.used.iter().zip(&self.brought).zip(neighbours);
        for ((used, brought), neighbours) in all.take(reach.at() + 1) {
            used.store(less(used.load(Relaxed)), Relaxed);
            brought.store(less(brought.load(Relaxed)) + weight(*neighbours), Relaxed);
        }
        self.reads.store((self.reads.load(Relaxed) + 1).min(KNOWN), Relaxed);
    }

    fn used(&self, reach: Reach) {
        let used = &self.used[reach.at()];
        used.store((used.load(Relaxed) + weight(1)).min(1 << 28), Relaxed);
    }

    /// Reads saved by what this reach has and the one before has not, in 1/65536.
    fn saved(&self, reach: Reach) -> i64 {
        let [used, brought] = [&self.used, &self.brought].map(|means| means[reach.at()].load(Relaxed));
        SAVED * (i64::from(used) - i64::from(brought / CROWD))
    }
}

fn weight(neighbours: u32) -> u32 {
    neighbours.min(1 << 10) << (FRACTION - EWMA)
}

/// What reads cost: moving means of their bytes `x` and nanoseconds `y`, from which least squares have a line.
#[derive(Default)]
struct Costs {
    reads: f64,
    in_flight: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl Costs {
    fn add(&mut self, x: f64, y: f64, in_flight: f64) {
        self.reads += 1.0;
        let weight = 1.0 / self.reads.min(COSTS);
        let blend = |mean: &mut f64, new: f64| *mean += (new - *mean) * weight;
        blend(&mut self.in_flight, in_flight);
        blend(&mut self.x, x);
        blend(&mut self.y, y);
        blend(&mut self.xx, x * x);
        blend(&mut self.xy, x * y);
    }

    /// Nanoseconds of the device for an object and for a byte more; `None` until reads of several lengths were seen.
    fn of_object_and_byte(&self) -> Option<(f64, f64)> {
        let spread = self.xx - self.x * self.x;
        // A block, squared: less is one length, and rounding.
        if self.reads < 2.0 || spread < 512.0 * 512.0 {
            return None;
        }
        let byte = ((self.xy - self.x * self.y) / spread).max(0.0);
        let none = (self.y - byte * self.x).max(0.0) / self.in_flight;
        Some((none + byte * OBJECT, byte))
    }
}

pub(crate) struct Windows {
    by_class: Box<[Paid]>,
    /// The same whatever the class, for those of which little is known.
    by_all: Paid,
    asked: Box<[AtomicU32]>,
    costs: Mutex<Costs>,
    /// Reads around an object.
    around: AtomicU32,
    in_flight: AtomicU32,
}

impl Windows {
    pub(crate) fn new() -> Self {
        Self {
            by_class: (0..CLASSES).map(|_| Paid::default()).collect(),
            by_all: Paid::default(),
            asked: (0..CLASSES).map(|_| AtomicU32::new(0)).collect(),
            costs: Mutex::default(),
            around: AtomicU32::new(0),
            in_flight: AtomicU32::new(0),
        }
    }

    /// How far to read for an object in a cluster of this class and so many bytes; `None` for the object alone.
    pub(crate) fn reach(&self, class: u16, cluster: usize) -> Option<Reach> {
        let class = usize::from(class) % CLASSES;
        let asked = self.asked[class].fetch_add(1, Relaxed);
        let every = EXPLORE[usize::from(asked >= TRIALS * EXPLORE[0])];
        let explores = asked % every == every - 1;
        let costs = self.costs.lock().of_object_and_byte();
        let reach = match costs {
            Some((object, byte)) => {
                let affordable = || Reach::all().rev().find(|reach| byte * reach.bytes(cluster) as f64 <= object);
                let tried = || affordable().unwrap_or_default().min(Reach::REST);
                self.best(class, cluster, (object, byte)).or_else(|| explores.then(tried))?
            }
            None if explores => Reach::CLUSTER,
            None => return None,
        };
        let nth = self.around.fetch_add(1, Relaxed);
        Some(if nth < MEASURED || nth.is_multiple_of(MEASURE) { Reach::CLUSTER } else { reach })
    }

    /// The reach that saves most, if any saves enough.
    fn best(&self, class: usize, cluster: usize, (object, byte): (f64, f64)) -> Option<Reach> {
        let own = &self.by_class[class];
        let paid = if own.reads.load(Relaxed) >= KNOWN { own } else { &self.by_all };
        let (mut saved, mut best) = (0, (object / LEAST, None));
        for reach in Reach::all() {
            saved += paid.saved(reach);
            let gain = saved as f64 / f64::from(1 << FRACTION) * object - byte * reach.bytes(cluster) as f64;
            if gain > best.0 {
                best = (gain, Some(reach));
            }
        }
        best.1
    }

    /// A device read begins.
    pub(crate) fn begin(&self) {
        self.in_flight.fetch_add(1, Relaxed);
    }

    /// It is over: so many bytes took so long.
    pub(crate) fn took(&self, len: usize, nanos: u64) {
        let in_flight = self.in_flight.fetch_sub(1, Relaxed);
        self.costs.lock().add(len as f64, nanos as f64, in_flight.into());
    }

    /// A read that reached so far in a cluster of this class brought these.
    pub(crate) fn brought(&self, class: u16, neighbours: &Neighbours, reach: Reach) {
        self.by_class[usize::from(class) % CLASSES].brought(neighbours, reach);
        self.by_all.brought(neighbours, reach);
    }

    /// One of them, for which this reach was needed, was asked for.
    pub(crate) fn used(&self, class: u16, reach: Reach) {
        self.by_class[usize::from(class) % CLASSES].used(reach);
        self.by_all.used(reach);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: usize = 256 << 10;
    const QUARTER: usize = 64 << 10;

    /// Of a device that needs so many nanoseconds for a read, and so many for a KiB more.
    fn measured(read: u64, kib: u64) -> Windows {
        let windows = Windows::new();
        for len in [4, 8, 64, 256].repeat(100) {
            windows.begin();
            windows.took(len << 10, read + kib * len as u64);
        }
        windows
    }

    /// So many reads of all that lies behind an object, each with one neighbour that needs this reach, of which every
    /// `nth` is used.
    fn teach(windows: &Windows, class: u16, reads: u32, reach: Reach, nth: u32) {
        let mut neighbours = Neighbours::default();
        neighbours[reach.at()] = 1;
        for read in 0..reads {
            windows.brought(class, &neighbours, Reach::REST);
            if read % nth == 0 {
                windows.used(class, reach);
            }
        }
    }

    fn reaches(windows: &Windows, class: u16) -> Vec<Option<Reach>> {
        (0..1024).map(|_| windows.reach(class, CLUSTER)).collect()
    }

    fn usual(windows: &Windows, class: u16) -> Option<Reach> {
        let all = reaches(windows, class);
        *all.iter().max_by_key(|reach| all.iter().filter(|other| other == reach).count()).unwrap()
    }

    #[test]
    fn a_line_through_reads_says_what_a_read_and_a_byte_cost() {
        let costs = |windows: &Windows| windows.costs.lock().of_object_and_byte().unwrap();
        let (object, byte) = costs(&measured(500_000, 8_000));
        assert!((object - 564_000.0).abs() < 1_000.0 && (byte * 1024.0 - 8_000.0).abs() < 10.0, "{object} {byte}");
        // Thirty-two in flight wait for each other: of the latency a read costs the device a part.
        let windows = Windows::new();
        (0..32).for_each(|_| windows.begin());
        for len in [4, 8, 64, 256].repeat(100) {
            windows.begin();
            windows.took(len << 10, 32 * 500_000 + 8_000 * len as u64);
        }
        let (object, _) = costs(&windows);
        assert!((500_000.0..600_000.0).contains(&object), "{object}");
        let one_length = Windows::new();
        (0..100).for_each(|_| (one_length.begin(), one_length.took(4096, 100_000)).1);
        assert_eq!(one_length.costs.lock().of_object_and_byte(), None, "a point is no line");
    }

    #[test]
    fn a_read_goes_as_far_as_its_neighbours_pay_for() {
        // 64 KiB take as long again as an object: a volume of 125 MiB/s that answers in half a millisecond.
        let near = Reach::needed(10 << 10, CLUSTER);
        let windows = measured(500_000, 8_000);
        teach(&windows, 7, 100, near, 1);
        assert_eq!(usual(&windows, 7), Some(near), "and no further");
        let every_128th = reaches(&windows, 7).iter().filter(|reach| **reach == Some(Reach::CLUSTER)).count();
        assert_eq!(every_128th, 8, "a glance at all of the cluster now and then");
        let windows = measured(500_000, 8_000);
        teach(&windows, 7, 100, Reach::REST, 4);
        assert_eq!(usual(&windows, 7), None, "a quarter of a read saved, for what costs four");
        // Where an arm moves, bytes are cheap.
        let windows = measured(8_000_000, 2_000);
        teach(&windows, 7, 100, Reach::REST, 4);
        assert_eq!(usual(&windows, 7), Some(Reach::REST));
    }

    #[test]
    fn what_is_not_known_is_tried_and_a_new_class_is_as_the_others() {
        let windows = measured(500_000, 8_000);
        let tried: Vec<_> = reaches(&windows, 7).into_iter().flatten().collect();
        assert_eq!(tried.len(), TRIALS as usize + 1, "often, then rarely");
        assert_eq!(tried[..MEASURED as usize], [Reach::CLUSTER; MEASURED as usize]);
        let affordable = Reach::within(QUARTER, CLUSTER);
        assert_eq!(tried[MEASURED as usize], affordable, "as much as takes as long again as the object");
        let near = Reach::needed(10 << 10, CLUSTER);
        teach(&windows, 8, 100, near, 1);
        assert_eq!(usual(&windows, 9), Some(near));
        teach(&windows, 9, KNOWN, Reach::REST, KNOWN);
        teach(&windows, 8, 100, near, 1);
        assert_eq!(usual(&windows, 9), None, "its own count, once there are enough");
        assert_eq!(Windows::new().reach(7, CLUSTER), None, "nothing was measured");
    }

    #[test]
    fn a_crowd_that_is_not_used_does_not_pay() {
        let crowded = |brought: u32| {
            let windows = measured(8_000_000, 100);
            let mut neighbours = Neighbours::default();
            neighbours[Reach::REST.at()] = brought;
            for _ in 0..100 {
                windows.brought(7, &neighbours, Reach::REST);
                (0..3).for_each(|_| windows.used(7, Reach::REST));
            }
            usual(&windows, 7)
        };
        assert_eq!(crowded(64), None, "three of 64 do not pay for what the rest pushes out");
        assert_eq!(crowded(16), Some(Reach::REST));
    }
}
