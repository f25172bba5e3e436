//! Kills a peer at work at a random moment and looks at what is there: by `kill -9`, or by a power cut of a file system
//! of its own.
//!
//! Invariant: a change counts as acknowledged if its message came out of the pipe; the one after the last may have
//! happened or not.

use std::{
    collections::HashMap,
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::{
    run::Program,
    work::{KEYS, change, now},
};

/// How a peer ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crash {
    /// The process is killed; what it gave to the kernel stays.
    Kill,
    /// The file system stops at once: what was not on the device is gone, as by a power cut. The device itself loses
    /// nothing that was written to it.
    PowerCut,
}

/// What was found after some crashes.
#[derive(Default, Clone, Serialize, Deserialize)]
pub(crate) struct Found {
    /// Crashes.
    pub(crate) rounds: u64,
    /// After how many it opened.
    pub(crate) opened: u64,
    /// Changes that were acknowledged.
    pub(crate) acknowledged: u64,
    /// Keys that had to be there.
    pub(crate) expected: u64,
    /// Of those, keys that were not there, or of an older version.
    pub(crate) lost: u64,
    /// How long before the crash the oldest change that was lost had been acknowledged, in microseconds.
    pub(crate) oldest_lost: u64,
    /// Keys that were deleted and there again.
    pub(crate) returned: u64,
    /// Keys with bytes that were never put.
    pub(crate) wrong: u64,
    /// Keys whose get was an error.
    pub(crate) errors: u64,
    /// What the last opening that failed said.
    pub(crate) why: String,
}

/// One folder for one peer, perhaps on a file system that can lose its power.
struct Ground {
    folder: PathBuf,
    image: Option<PathBuf>,
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let out = Command::new(program).args(arguments).output().with_context(|| program.to_owned())?;
    ensure!(out.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    Ok(())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}

/// `EXT4_IOC_SHUTDOWN` without flushing the log: nothing reaches the device any more.
const SHUTDOWN: &str = "import fcntl, os, struct, sys\n\
                        fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', 2))\n";

impl Ground {
    fn new(place: &Path, crash: Crash) -> Result<Self> {
        let folder = place.join("folder");
        fs::create_dir_all(&folder)?;
        if crash == Crash::Kill {
            return Ok(Self { folder, image: None });
        }
        let image = place.join("image");
        fs::File::create(&image)?.set_len(1 << 30)?;
        run("mkfs.ext4", &["-q", "-F", text(&image)])?;
        let ground = Self { folder, image: Some(image) };
        ground.mount()?;
        Ok(ground)
    }

    fn mount(&self) -> Result<()> {
        self.image.as_ref().map_or(Ok(()), |image| run("mount", &["-o", "loop", text(image), text(&self.folder)]))
    }

    /// A process that is gone may have given its last file back a moment later.
    fn unmount(&self) -> Result<()> {
        let Some(_) = &self.image else { return Ok(()) };
        for _ in 0..600 {
            match run("umount", &[text(&self.folder)]) {
                Err(error) if error.to_string().contains("busy") => thread::sleep(Duration::from_millis(100)),
                done => return done,
            }
        }
        bail!("{} is busy and stays so", text(&self.folder))
    }

    fn crash(&self, child: &mut Child) -> Result<()> {
        if self.image.is_some() {
            // It stands still, so that nothing is acknowledged that the file system has not heard of.
            run("kill", &["-STOP", &child.id().to_string()])?;
            run("python3", &["-c", SHUTDOWN, text(&self.folder)])?;
        }
        child.kill()?;
        child.wait()?;
        self.unmount()?;
        self.mount()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = self.unmount();
    }
}

/// The acknowledged changes, and the time of each; ends with the process.
fn acknowledged(child: &mut Child) -> Result<(mpsc::Receiver<()>, thread::JoinHandle<Vec<u64>>)> {
    let mut from = child.stdout.take().context("no pipe")?;
    let (opened, is_open) = mpsc::channel();
    let reader = thread::spawn(move || {
        let (mut times, mut record) = (Vec::new(), [0; 16]);
        while from.read_exact(&mut record).is_ok() {
            let [number, time] = [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|byte| record[at + byte])));
            if number == u64::MAX {
                let _ = opened.send(());
            } else {
                times.push(time);
            }
        }
        times
    });
    Ok((is_open, reader))
}

/// One crash, after so much time at work.
pub(crate) fn round(
    program: &Program<'_>,
    place: &Path,
    crash: Crash,
    (seed, lifetime): (u64, Duration),
    found: &mut Found,
) -> Result<()> {
    let ground = Ground::new(place, crash)?;
    let mut child = program.child("work", &ground.folder, seed)?.stdout(Stdio::piped()).spawn()?;
    let (is_open, reader) = acknowledged(&mut child)?;
    if is_open.recv().is_err() {
        bail!("{} does not open an empty folder", program.name);
    }
    // The moment is random; no result depends on how long this really takes.
    thread::sleep(lifetime);
    let end = now();
    ground.crash(&mut child)?;
    let times = reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))?;
    let judged = program.child("judge", &ground.folder, seed)?.output()?;
    found.rounds += 1;
    found.acknowledged += times.len() as u64;
    let out = String::from_utf8(judged.stdout)?;
    let lines: Vec<_> = out.lines().skip(1).collect();
    if lines.len() != KEYS as usize {
        let said = String::from_utf8_lossy(&judged.stderr);
        let line = said.lines().find(|line| !line.trim().is_empty());
        found.why = line.map_or("nothing, and died or did not end".into(), without_folders);
        return Ok(());
    }
    found.opened += 1;
    compare(seed, &times, &lines, end, found);
    Ok(())
}

/// A message whose paths are those of a crate, and not of this machine.
fn without_folders(message: &str) -> String {
    let short = |word: &str| match word.match_indices('/').rev().nth(2) {
        Some((at, _)) => word[at + 1..].to_owned(),
        None => word.to_owned(),
    };
    message.split_whitespace().map(short).collect::<Vec<_>>().join(" ")
}

/// Compares what is there with what was acknowledged. What is there is what the peer had at some moment; every change
/// of that key after it is lost. Where that may be one of several moments, it is the last of them.
fn compare(seed: u64, times: &[u64], lines: &[&str], end: u64, found: &mut Found) {
    let mut of_key: HashMap<u64, Vec<u64>> = HashMap::new();
    (0..times.len() as u64).for_each(|number| of_key.entry(change(seed, number).key).or_default().push(number));
    let in_flight = change(seed, times.len() as u64);
    for (key, line) in (0..).zip(lines) {
        let changes = of_key.get(&key).map_or(&[][..], Vec::as_slice);
        let expected = changes.last().copied().filter(|number| change(seed, *number).put.is_some());
        found.expected += u64::from(expected.is_some());
        let there = line.parse::<u64>().ok();
        let may_be = in_flight.key == key && there == in_flight.put.map(|_| times.len() as u64);
        // As bytes that were never put, or an error, all of the key is lost.
        let is_known = !matches!(*line, "?" | "!");
        let is_moment = |number: &u64| match there {
            Some(there) => *number == there,
            None => is_known && change(seed, *number).put.is_none(),
        };
        let kept = changes.iter().rposition(is_moment).map_or(0, |at| at + 1);
        let age = changes.get(kept).map_or(0, |number| end.saturating_sub(times[*number as usize]));
        match *line {
            "?" => found.wrong += 1,
            "!" => found.errors += 1,
            _ if there == expected || may_be => continue,
            _ => {}
        }
        found.oldest_lost = found.oldest_lost.max(age);
        match expected {
            Some(_) => found.lost += 1,
            None => found.returned += u64::from(is_known),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The judge sees each kind of fault, and none where there is none.
    #[test]
    fn each_fault_is_seen() {
        let (seed, count) = (3, 5000_u64);
        let times: Vec<u64> = (0..count).map(|number| number * 10).collect();
        let mut is = vec!["-".to_owned(); KEYS as usize];
        let mut before = is.clone();
        for number in 0..count {
            let change = change(seed, number);
            let key = change.key as usize;
            before[key].clone_from(&is[key]);
            is[key] = change.put.map_or("-".into(), |_| number.to_string());
        }
        let judge = |is: &[String]| {
            let mut found = Found::default();
            let lines: Vec<_> = is.iter().map(String::as_str).collect();
            compare(seed, &times, &lines, count * 10, &mut found);
            assert_eq!(found.oldest_lost > 0, found.lost + found.returned > 0);
            (found.lost, found.returned, found.wrong, found.errors)
        };
        assert_eq!(judge(&is), (0, 0, 0, 0));
        // Nothing at all: the first put of all, or the one after a delete, is the oldest change that is lost.
        let mut found = Found::default();
        compare(seed, &times, &["?"; KEYS as usize], count * 10, &mut found);
        assert_eq!(found.oldest_lost, count * 10, "the very first change");
        let put = is.iter().position(|it| it != "-").unwrap_or(0);
        let deleted = (0..is.len()).find(|key| is[*key] == "-" && before[*key] != "-").unwrap_or(0);
        for (key, now, wanted) in [
            (put, "-", (1, 0, 0, 0)),
            (put, "?", (1, 0, 1, 0)),
            (put, "!", (1, 0, 0, 1)),
            (deleted, before[deleted].as_str(), (0, 1, 0, 0)),
        ] {
            let mut broken = is.clone();
            broken[key] = now.into();
            assert_eq!(judge(&broken), wanted, "{now}");
        }
    }
}
