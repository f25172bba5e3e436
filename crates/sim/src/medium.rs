//! The medium under the faulty device: truth, lies and the write cache.
//!
//! Invariants:
//! - the inner device always holds the *truth*: the bytes that a faultless device would hold now. What the
//!   medium shows instead is kept beside it, sector by sector, in `overlays`;
//! - `log` can take back every volatile write exactly, truth and overlays, newest first;
//! - synced writes survive a crash wherever they landed.
//!
//! A crash, step by step: take back the log, newest first; then do again, oldest first, what survives. Each
//! sector so ends as some state of its own history, which is what a disk with a write cache guarantees.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::time::Duration;

use crate::fault::{Armed, Crashed, Fault, On, Random};
use picaflor_device::{AlignedBuf, Device};

/// Unit in which writes tear and faults are remembered, in bytes: what disks write at once.
pub(crate) const SECTOR: usize = 512;
/// Volatile bytes that the modelled write cache holds; beyond, the oldest writes reach the medium.
const CACHE: usize = 64 << 20;

pub(crate) struct State {
    pub(crate) seed: u64,
    pub(crate) rules: Vec<Armed>,
    /// Decides what survives and what tears; apart from the rules, so that adding one changes no crash.
    random: Random,
    /// What the medium shows where it differs from the truth, by sector number.
    overlays: BTreeMap<u64, Sector>,
    /// Writes that a crash may undo, oldest first, and those after them.
    log: VecDeque<Logged>,
    volatile_bytes: usize,
    pub(crate) crashed: bool,
}

type Sector = Box<[u8; SECTOR]>;

/// Where an acknowledged write really went.
#[derive(Clone)]
enum Landing {
    There,
    Nowhere,
    Torn(Vec<bool>),
    At(u64),
}

struct Logged {
    offset: u64,
    data: Box<[u8]>,
    landing: Landing,
    /// Which of its sectors were written at all: all of them, unless the write failed.
    written: Vec<bool>,
    fate: Fate,
    old_truth: AlignedBuf,
    old_overlays: Vec<(u64, Option<Sector>)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// In the write cache.
    Volatile,
    /// In a write cache that believes, after a failed sync, that it is clean.
    Forsaken,
    /// On the medium; kept in the log only while an older write may still be taken back.
    Durable,
}

/// What a crash did to the writes since the last sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survivors {
    /// Writes that survived wholly.
    pub whole: u64,
    /// Writes of which some sectors survived.
    pub torn: u64,
    /// Writes of which nothing survived.
    pub lost: u64,
}

pub(crate) fn read_truth(inner: &dyn Device, offset: u64, len: usize) -> io::Result<AlignedBuf> {
    let mut buf = AlignedBuf::zeroed(len);
    inner.read(offset, &mut buf)?;
    Ok(buf)
}

/// The sectors of an aligned range.
fn sectors(offset: u64, len: usize) -> Range<u64> {
    let first = offset / SECTOR as u64;
    first..first + (len / SECTOR) as u64
}

fn copy_sector(bytes: &[u8], index: usize) -> Sector {
    let mut sector = Box::new([0; SECTOR]);
    sector.copy_from_slice(&bytes[index * SECTOR..][..SECTOR]);
    sector
}

fn injected(what: &str, at: u64) -> io::Error {
    io::Error::other(format!("injected fault: {what} at {at}"))
}

impl State {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            rules: Vec::new(),
            random: Random::new(seed, 0),
            overlays: BTreeMap::new(),
            log: VecDeque::new(),
            volatile_bytes: 0,
            crashed: false,
        }
    }

    /// The medium shows the truth, and will after a crash.
    pub(crate) fn heal(&mut self) {
        self.overlays.clear();
        for logged in &mut self.log {
            logged.landing = Landing::There;
            logged.old_overlays.clear();
        }
    }

    /// The faults that this operation is to suffer, and the time they add.
    pub(crate) fn judge(&mut self, on: On, range: &Range<u64>) -> (Vec<usize>, Duration) {
        let mut fired = Vec::new();
        let mut delay = Duration::ZERO;
        for (index, armed) in self.rules.iter_mut().enumerate() {
            if armed.fires(on, range) {
                match armed.fault() {
                    Fault::Delay(_, time) => delay += time,
                    _ => fired.push(index),
                }
            }
        }
        (fired, delay)
    }

    fn suffers(&self, fired: &[usize], fault: Fault) -> bool {
        fired.iter().any(|&index| self.rules[index].fault() == fault)
    }

    fn crashes(&self, fired: &[usize]) -> bool {
        fired.iter().any(|&index| matches!(self.rules[index].fault(), Fault::Crash(_)))
    }

    pub(crate) fn read(&mut self, inner: &dyn Device, offset: u64, buf: &mut [u8], fired: &[usize]) -> io::Result<()> {
        if self.crashes(fired) {
            self.crash(inner)?;
            return Err(Crashed.into());
        }
        if self.suffers(fired, Fault::ReadError) {
            return Err(injected("read error", offset));
        }
        let range = offset..offset + buf.len() as u64;
        for &index in fired {
            if self.rules[index].fault() == Fault::Rot
                && let Some((byte, bit)) = self.rules[index].pick_bit(&range)
            {
                let shown = self.shown_byte(inner, byte)?;
                self.damage(inner, byte, &[shown ^ bit])?;
            }
        }
        inner.read(offset, buf)?;
        self.show(offset, buf);
        for &index in fired {
            if self.rules[index].fault() == Fault::Flicker
                && let Some((byte, bit)) = self.rules[index].pick_bit(&range)
            {
                buf[(byte - offset) as usize] ^= bit;
            }
        }
        Ok(())
    }

    pub(crate) fn write(&mut self, inner: &dyn Device, offset: u64, data: &[u8], fired: &[usize]) -> io::Result<()> {
        let count = data.len() / SECTOR;
        let all = vec![true; count];
        if self.crashes(fired) {
            self.log_write(inner, offset, data, Landing::There, all)?;
            self.crash(inner)?;
            return Err(Crashed.into());
        }
        if self.suffers(fired, Fault::NoSpace) {
            let what = format!("injected fault: no space at {offset}");
            return Err(io::Error::new(io::ErrorKind::StorageFull, what));
        }
        if self.suffers(fired, Fault::WriteError) {
            let written = match self.random.below(3) {
                0 => vec![false; count],
                1 => all,
                _ => self.random.tear(count),
            };
            self.log_write(inner, offset, data, Landing::There, written)?;
            return Err(injected("write error", offset));
        }
        let landing = if self.suffers(fired, Fault::Lost) {
            Landing::Nowhere
        } else if self.suffers(fired, Fault::Misdirected) {
            self.elsewhere(inner, offset, data.len())
        } else if self.suffers(fired, Fault::Torn) {
            Landing::Torn(self.random.tear(count))
        } else {
            Landing::There
        };
        self.log_write(inner, offset, data, landing, all)
    }

    /// A place of the same length that shares no byte with this one; nowhere if the device is too small.
    fn elsewhere(&mut self, inner: &dyn Device, offset: u64, len: usize) -> Landing {
        let block = inner.block_size() as u64;
        let places = (inner.capacity() - len as u64) / block + 1;
        for _ in 0..64 {
            let target = self.random.below(places) * block;
            if target.abs_diff(offset) >= len as u64 {
                return Landing::At(target);
            }
        }
        Landing::Nowhere
    }

    pub(crate) fn sync(&mut self, inner: &dyn Device, fired: &[usize]) -> io::Result<()> {
        if self.crashes(fired) {
            if self.random.coin() {
                self.settle();
            }
            self.crash(inner)?;
            return Err(Crashed.into());
        }
        if self.suffers(fired, Fault::SyncError) {
            for logged in self.log.iter_mut().filter(|logged| logged.fate == Fate::Volatile) {
                logged.fate = if self.random.coin() { Fate::Forsaken } else { Fate::Durable };
            }
            self.forget_durable();
            return Err(injected("sync error", 0));
        }
        if self.suffers(fired, Fault::LostSync) {
            return Ok(());
        }
        inner.sync()?;
        self.settle();
        Ok(())
    }

    /// All that is volatile reaches the medium.
    fn settle(&mut self) {
        for logged in self.log.iter_mut().filter(|logged| logged.fate == Fate::Volatile) {
            logged.fate = Fate::Durable;
        }
        self.forget_durable();
    }

    /// Durable writes need to be remembered only while an older one may be taken back from under them.
    fn forget_durable(&mut self) {
        while self.log.front().is_some_and(|logged| logged.fate == Fate::Durable) {
            if let Some(logged) = self.log.pop_front() {
                self.volatile_bytes -= logged.data.len();
            }
        }
    }

    fn log_write(
        &mut self,
        inner: &dyn Device,
        offset: u64,
        data: &[u8],
        landing: Landing,
        written: Vec<bool>,
    ) -> io::Result<()> {
        let logged = Logged {
            offset,
            data: data.into(),
            landing,
            written,
            fate: Fate::Volatile,
            old_truth: AlignedBuf::empty(),
            old_overlays: Vec::new(),
        };
        let logged = self.apply(inner, logged)?;
        self.log.push_back(logged);
        self.volatile_bytes += data.len();
        while self.volatile_bytes > CACHE
            && let Some(oldest) = self.log.pop_front()
        {
            self.volatile_bytes -= oldest.data.len();
        }
        self.forget_durable();
        Ok(())
    }

    /// Makes the write's sectors true, and the medium show them where they land; notes how to take it back.
    fn apply(&mut self, inner: &dyn Device, mut logged: Logged) -> io::Result<Logged> {
        let Logged { offset, ref data, ref landing, ref written, .. } = logged;
        let old_truth = read_truth(inner, offset, data.len())?;
        let mut truth = AlignedBuf::copy_from(&old_truth);
        let mut old_shown = AlignedBuf::copy_from(&old_truth);
        self.show(offset, &mut old_shown);
        let mut changes: Vec<(u64, Option<Sector>)> = Vec::new();
        for (index, sector) in sectors(offset, data.len()).enumerate().filter(|(index, _)| written[*index]) {
            truth[index * SECTOR..][..SECTOR].copy_from_slice(&data[index * SECTOR..][..SECTOR]);
            let lands = match landing {
                Landing::There => true,
                Landing::Nowhere => false,
                Landing::Torn(kept) => kept[index],
                Landing::At(target) => {
                    let there = target / SECTOR as u64 + index as u64;
                    changes.push((there, Some(copy_sector(data, index))));
                    false
                }
            };
            changes.push((sector, if lands { None } else { Some(copy_sector(&old_shown, index)) }));
        }
        inner.write(offset, &truth)?;
        logged.old_overlays =
            changes.into_iter().map(|(sector, overlay)| (sector, self.set_overlay(sector, overlay))).collect();
        logged.old_truth = old_truth;
        Ok(logged)
    }

    fn take_back(&mut self, inner: &dyn Device, logged: &mut Logged) -> io::Result<()> {
        inner.write(logged.offset, &logged.old_truth)?;
        for (sector, overlay) in std::mem::take(&mut logged.old_overlays).into_iter().rev() {
            self.set_overlay(sector, overlay);
        }
        Ok(())
    }

    fn set_overlay(&mut self, sector: u64, overlay: Option<Sector>) -> Option<Sector> {
        match overlay {
            Some(bytes) => self.overlays.insert(sector, bytes),
            None => self.overlays.remove(&sector),
        }
    }

    pub(crate) fn crash(&mut self, inner: &dyn Device) -> io::Result<Survivors> {
        let mut log = std::mem::take(&mut self.log);
        self.volatile_bytes = 0;
        for logged in log.iter_mut().rev() {
            self.take_back(inner, logged)?;
        }
        let mut survivors = Survivors::default();
        // Some crashes take everything, some nothing: corners that independent choices would never reach.
        let mood = self.random.below(6);
        for mut logged in log {
            let choice = match (logged.fate, mood) {
                (Fate::Durable, _) => {
                    self.apply(inner, logged)?;
                    continue;
                }
                (_, 0) => 0,
                (_, 1) => 1,
                _ => self.random.below(3),
            };
            let count = logged.written.len();
            let kept = match choice {
                0 => vec![false; count],
                1 => vec![true; count],
                _ => self.random.tear(count),
            };
            for (written, kept) in logged.written.iter_mut().zip(&kept) {
                *written &= kept;
            }
            match (kept.contains(&true), kept.contains(&false)) {
                (true, true) => survivors.torn += 1,
                (true, false) => survivors.whole += 1,
                (false, _) => survivors.lost += 1,
            }
            self.apply(inner, logged)?;
        }
        self.crashed = true;
        Ok(survivors)
    }

    /// Lays what the medium shows over the truth in `buf`.
    pub(crate) fn show(&self, offset: u64, buf: &mut [u8]) {
        let range = sectors(offset, buf.len());
        for (sector, bytes) in self.overlays.range(range.clone()) {
            let index = (sector - range.start) as usize;
            buf[index * SECTOR..][..SECTOR].copy_from_slice(&bytes[..]);
        }
    }

    /// The sector that holds this byte, as the medium shows it.
    fn shown_sector(&self, inner: &dyn Device, byte: u64) -> io::Result<Sector> {
        let block = inner.block_size() as u64;
        let start = byte / block * block;
        let mut shown = read_truth(inner, start, block as usize)?;
        self.show(start, &mut shown);
        Ok(copy_sector(&shown, ((byte - start) / SECTOR as u64) as usize))
    }

    fn shown_byte(&self, inner: &dyn Device, byte: u64) -> io::Result<u8> {
        Ok(self.shown_sector(inner, byte)?[byte as usize % SECTOR])
    }

    pub(crate) fn damage(&mut self, inner: &dyn Device, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let mut sector = self.shown_sector(inner, at)?;
            let start = (at % SECTOR as u64) as usize;
            let len = rest.len().min(SECTOR - start);
            sector[start..start + len].copy_from_slice(&rest[..len]);
            self.overlays.insert(at / SECTOR as u64, sector);
            at += len as u64;
            rest = &rest[len..];
        }
        Ok(())
    }
}
