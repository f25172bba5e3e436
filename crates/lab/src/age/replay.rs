//! How fast objects would be read from a simulated disk if they lay on it as they lie on the volume: in random order,
//! one after the other, each extent by one request. The volume is the outer edge of the disk, as a partition of its
//! size would be. Reads of metadata are not among them.

use picaflor_device::Clock;
use picaflor_sim::{Profile, SimulatedDisk, SimulatedOptions};

use super::extents::Extent;
use crate::{Error, Result, synth::Dice};

/// Objects that are read, at most.
const READS: usize = 2000;
const SECTOR: u64 = 512;

/// Reads objects, and says how many MB/s that were. `None` if nothing is there to be read.
pub(super) fn read(disk: &str, objects: &[&[Extent]], seed: u64) -> Result<Option<f64>> {
    let wrong = |why: String| Error::experiment(disk, why);
    let profile = Profile::find(disk).map_err(|error| wrong(error.to_string()))?;
    let clock = Clock::virtual_at(0);
    let device = SimulatedDisk::new(&profile, clock.clone(), &SimulatedOptions { seed, ..Default::default() });
    let device = device.map_err(|error| wrong(error.to_string()))?;
    let before = clock.now_nanos();
    let mut bytes = 0;
    for at in order(objects.len(), seed).into_iter().take(READS) {
        for extent in objects[at] {
            let from = extent.offset / SECTOR * SECTOR;
            let to = (extent.offset + extent.len).next_multiple_of(SECTOR);
            let why = |error: std::io::Error| wrong(format!("reading at {from}: {error}; use a larger disk"));
            device.touch_and_wait(from, to - from, false).map_err(why)?;
            bytes += extent.len;
        }
    }
    let seconds = (clock.now_nanos() - before) as f64 / 1e9;
    Ok((seconds > 0.0).then(|| bytes as f64 / 1e6 / seconds))
}

/// Numbers below `count`, shuffled.
pub(super) fn order(count: usize, seed: u64) -> Vec<usize> {
    let mut dice = Dice::new(seed, 0x04de4);
    let mut order: Vec<usize> = (0..count).collect();
    for at in (1..count).rev() {
        order.swap(at, dice.below(at as u64 + 1) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cost_seeks_on_a_disk_and_little_on_flash() {
        let whole: Vec<Vec<Extent>> = (0..200).map(|n| vec![Extent { offset: n << 20, len: 1 << 20 }]).collect();
        // The same bytes, each object in sixteen parts all over the volume.
        let parted: Vec<Vec<Extent>> = (0..200)
            .map(|n| (0..16).map(|part| Extent { offset: ((n * 37 + part * 71) % 3200) << 16, len: 1 << 16 }).collect())
            .collect();
        let speed = |disk, objects: &[Vec<Extent>]| {
            let objects: Vec<&[Extent]> = objects.iter().map(Vec::as_slice).collect();
            read(disk, &objects, 1).unwrap().unwrap()
        };
        let (whole_disk, parted_disk) = (speed("barracuda7200_8", &whole), speed("barracuda7200_8", &parted));
        assert!((30.0..70.0).contains(&whole_disk), "{whole_disk}: the disk moves 70 MB/s at its edge");
        assert!(parted_disk * 3.0 < whole_disk, "{parted_disk} and {whole_disk}");
        assert!(speed("nvme", &parted) > parted_disk * 10.0, "flash has no arm");
        assert_eq!(speed("nvme", &whole), speed("nvme", &whole));
        assert!(read("barracuda7200_8", &[], 1).unwrap().is_none());
        assert!(read("no-such-disk", &[], 1).is_err());
        let far = [Extent { offset: 1 << 40, len: 4096 }];
        assert!(read("barracuda7200_8", &[&far], 1).unwrap_err().to_string().contains("larger disk"));
    }
}
