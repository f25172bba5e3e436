//! Random 4 KiB reads per second, and CPU time per read, of both backends at several depths.
//!
//! `cargo run --release -p picaflor-device --example iops -- FILE [SECONDS]`: the file is made (1 GiB) if it
//! is missing. "chained": each completion submits the next read, as an event loop would. "threads":
//! that many threads submit one read each and sleep until it is done, as blocking callers do; "blocking":
//! the same threads call `read`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use std::{env, fs, io, thread};

use picaflor_device::{AlignedBuf, Backend, BufPool, Device, FileDevice, Op, OpenOptions, Preallocate, Request};

const BLOCK: u64 = 4096;

struct Run {
    device: Arc<dyn Device>,
    pool: BufPool,
    random: AtomicU64,
    reads: AtomicU64,
    stop: AtomicBool,
}

impl Run {
    fn offset(&self) -> u64 {
        // splitmix64
        let mut z = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % (self.device.capacity() / BLOCK) * BLOCK
    }
}

fn read(run: &Run, done: impl FnOnce(io::Result<AlignedBuf>) + Send + 'static) {
    let op = Op::Read(run.pool.take(BLOCK as usize));
    run.device.submit(vec![Request { offset: run.offset(), op, done: Box::new(done) }]);
}

fn chain(run: Arc<Run>, ended: mpsc::Sender<()>) {
    let next = Arc::clone(&run);
    read(&run, move |outcome| {
        outcome.expect("read");
        next.reads.fetch_add(1, Ordering::Relaxed);
        if next.stop.load(Ordering::Relaxed) {
            drop(ended);
        } else {
            chain(next, ended);
        }
    });
}

fn chained(run: &Arc<Run>, depth: usize, time: Duration) {
    let (ended, wait) = mpsc::channel();
    for _ in 0..depth {
        chain(Arc::clone(run), ended.clone());
    }
    drop(ended);
    thread::sleep(time);
    run.stop.store(true, Ordering::Relaxed);
    let _ = wait.recv();
}

fn threads(run: &Arc<Run>, depth: usize, time: Duration, blocking: bool) {
    thread::scope(|scope| {
        for _ in 0..depth {
            scope.spawn(|| {
                let mut buf = AlignedBuf::zeroed(BLOCK as usize);
                while !run.stop.load(Ordering::Relaxed) {
                    if blocking {
                        run.device.read(run.offset(), &mut buf).expect("read");
                    } else {
                        let (tell, told) = mpsc::sync_channel(1);
                        read(run, move |outcome| tell.send(outcome.map(drop)).expect("a waiting thread"));
                        told.recv().expect("an answer").expect("read");
                    }
                    run.reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        thread::sleep(time);
        run.stop.store(true, Ordering::Relaxed);
    });
}

/// CPU time of this process so far, in clock ticks of 10 ms.
fn cpu() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").expect("/proc");
    let after_name = stat.rsplit(')').next().expect("a name");
    let field = |n: usize| after_name.split_whitespace().nth(n).and_then(|text| text.parse::<u64>().ok());
    Duration::from_millis(10 * (field(11).expect("utime") + field(12).expect("stime")))
}

fn main() -> io::Result<()> {
    let path = env::args().nth(1).expect("usage: iops FILE [SECONDS]");
    let seconds = env::args().nth(2).map_or(3.0, |text| text.parse().expect("seconds"));
    let exists = fs::metadata(&path).is_ok_and(|metadata| metadata.len() > 0);
    for backend in [Backend::IoUring, Backend::Pool] {
        let options = OpenOptions {
            capacity: (!exists).then_some(1 << 30),
            create: true,
            backend,
            preallocate: Preallocate::Write,
            ..OpenOptions::default()
        };
        let device: Arc<dyn Device> = Arc::new(FileDevice::open(&path, options)?);
        println!("{}", device.backend());
        for mode in ["chained", "threads", "blocking"] {
            for depth in [1, 8, 32] {
                let run = Arc::new(Run {
                    device: Arc::clone(&device),
                    pool: BufPool::new(1 << 20),
                    random: AtomicU64::new(1),
                    reads: AtomicU64::new(0),
                    stop: AtomicBool::new(false),
                });
                let time = Duration::from_secs_f64(seconds);
                let (start, cpu_start) = (Instant::now(), cpu());
                match mode {
                    "chained" => chained(&run, depth, time),
                    _ => threads(&run, depth, time, mode == "blocking"),
                }
                let reads = run.reads.load(Ordering::Relaxed) as f64;
                println!(
                    "  {mode:8} depth {depth:2}: {:8.0} reads/s {:6.2} us CPU/read",
                    reads / start.elapsed().as_secs_f64(),
                    (cpu() - cpu_start).as_secs_f64() * 1e6 / reads,
                );
            }
        }
    }
    Ok(())
}
