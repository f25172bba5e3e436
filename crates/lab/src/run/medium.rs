//! What is under the store: memory, a simulated device, or a file on a modelled file system of one.

use std::{sync::Arc, time::Duration};

use picaflor::Place;
use picaflor_device::{Clock, Device, MemoryDevice, Profile, SimulatedDisk, SimulatedOptions};

use super::{Outcome, Setup};
use crate::{
    Error, Result,
    fs::{FileSystem, FsProfile},
};

pub(super) struct Medium {
    clock: Clock,
    disk: Option<SimulatedDisk>,
    place: Place,
}

impl Medium {
    pub(super) fn new(setup: &Setup, clock: &Clock) -> Result<Self> {
        let wrong = |why: String| Error::Experiment { name: setup.device.clone(), why };
        if setup.device == "memory" {
            let device = Arc::new(MemoryDevice::new(setup.capacity.next_multiple_of(1 << 20)));
            return Ok(Self { clock: clock.clone(), disk: None, place: Place::Device(device) });
        }
        let profile = Profile::find(&setup.device).map_err(|error| wrong(error.to_string()))?;
        let options = SimulatedOptions { seed: setup.seed, ..SimulatedOptions::default() };
        let disk = SimulatedDisk::new(&profile, clock.clone(), &options).map_err(|error| wrong(error.to_string()))?;
        let place = match &setup.file_system {
            None => Place::Device(Arc::new(disk.clone()) as Arc<dyn Device>),
            Some(name) => {
                let system =
                    FileSystem::new(&FsProfile::find(name)?, &disk).map_err(|error| wrong(error.to_string()))?;
                let file = system.big_file(setup.capacity);
                let why = |error| wrong(format!("a file of {} MiB on {name}: {error}", setup.capacity >> 20));
                Place::Device(Arc::new(file.map_err(why)?))
            }
        };
        Ok(Self { clock: clock.clone(), disk: Some(disk), place })
    }

    pub(super) fn place(&self) -> Place {
        self.place.clone()
    }

    /// Lets happen what happens next, and if nothing does, a hundredth of a second go by.
    pub(super) fn pass_time(&self) {
        let happened = match &self.place {
            Place::Device(device) => device.advance(),
            _ => false,
        };
        if !happened {
            self.clock.sleep(Duration::from_millis(10));
        }
    }

    /// Where the device's time went.
    pub(super) fn account(&self, outcome: &mut Outcome) {
        let Some(disk) = &self.disk else { return };
        let times = disk.times();
        let share = |nanos: u64| if outcome.seconds > 0.0 { nanos as f64 / 1e9 / outcome.seconds } else { 0.0 };
        (outcome.seek_share, outcome.rotation_share) = (share(times.seek), share(times.rotation));
        outcome.transfer_share = share(times.transfer);
        (outcome.disk_reads, outcome.disk_writes) = (times.reads, times.writes);
    }
}
