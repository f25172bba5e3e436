//! A probe of the device and of the machine, beside an engine at work: it tells the host's stalls from the engine's.
//!
//! Steps: until the work is over, every two milliseconds one block of a file of its own, written before, is written
//! past the page cache; what the longest of these writes took stands in the report, and how late the probe woke at
//! most. An engine that keeps the device busy makes writes of others wait as well: what no probe saw was the engine's
//! alone, what one saw may be either's.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use nix::fcntl::OFlag;
use picaflor::device::AlignedBuf;

use super::Figures;

const BLOCK: usize = 4096;
const BLOCKS: u64 = 256;
const PAUSE: Duration = Duration::from_millis(2);

/// Works, and adds to its figures what the probe saw meanwhile.
pub(super) fn beside(folder: &Path, work: impl FnOnce() -> Result<Figures>) -> Result<Figures> {
    let path = folder.with_extension("probe");
    let file = written(&path).with_context(|| path.display().to_string())?;
    let over = AtomicBool::new(false);
    let figures = thread::scope(|scope| {
        let probe = scope.spawn(|| probe(&file, &over));
        let figures = work();
        over.store(true, Ordering::Relaxed);
        let (write, late) = probe.join().expect("the probe panicked")?;
        let mut figures = figures?;
        figures.insert("9 probe: longest write ms".into(), write.as_secs_f64() * 1e3);
        figures.insert("9 probe: latest wake ms".into(), late.as_secs_f64() * 1e3);
        Ok(figures)
    });
    fs::remove_file(&path)?;
    figures
}

fn written(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(true).write(true);
    let direct = options.clone().custom_flags(OFlag::O_DIRECT.bits()).open(path);
    // A file system in memory has no cache to pass by.
    let file = direct.or_else(|_| options.open(path))?;
    let block = AlignedBuf::zeroed(BLOCK);
    (0..BLOCKS).try_for_each(|at| file.write_all_at(&block, at * BLOCK as u64))?;
    file.sync_all()?;
    Ok(file)
}

/// The longest write, and the latest wake.
fn probe(file: &File, over: &AtomicBool) -> Result<(Duration, Duration)> {
    let block = AlignedBuf::zeroed(BLOCK);
    let (mut write, mut late) = (Duration::ZERO, Duration::ZERO);
    for at in (0..BLOCKS).cycle() {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let begin = Instant::now();
        thread::sleep(PAUSE);
        late = late.max(begin.elapsed().saturating_sub(PAUSE));
        let begin = Instant::now();
        file.write_all_at(&block, at * BLOCK as u64)?;
        write = write.max(begin.elapsed());
    }
    Ok((write, late))
}
