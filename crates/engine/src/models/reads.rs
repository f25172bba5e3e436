//! Shared reads: callers that look for the same place at the same time are answered by one read, and none is forgotten.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use picaflor_device::MemoryDevice;

use super::{
    draw, finds, holds,
    shuttle::{future::block_on, thread},
};
use crate::{
    base::policy::Reading,
    read::reading::{InFlight, Reader, Sought},
};

struct Place {
    reader: Reader,
    device: MemoryDevice,
    /// What a read brings: each write makes it larger.
    version: AtomicU64,
    reading: AtomicU64,
}

const SOUGHT: Sought = Sought { place: 64, granted: 0, ring: 0 };

impl Place {
    fn read(&self, flight: &InFlight, fault: bool) {
        let others = self.reading.fetch_add(1, SeqCst);
        assert_eq!(others, 0, "two reads of one place at once");
        let version = self.version.load(SeqCst);
        thread::yield_now();
        self.reading.fetch_sub(1, SeqCst);
        // The fault: one that finds the version replaced lets the others wait for the next read.
        if !fault || self.version.load(SeqCst) == version {
            self.reader.land(SOUGHT, flight, Ok(Bytes::copy_from_slice(&version.to_le_bytes())));
        }
    }

    fn caller(&self, fault: bool) {
        for _ in 0..2 {
            let (flight, leads) = self.reader.join(SOUGHT);
            if leads {
                self.read(&flight, fault);
            }
            let outcome = match draw(0..3) {
                _ if leads && fault => continue,
                0 => flight.wait(&self.device),
                1 => block_on(poll_fn(|context| flight.poll(context.waker()).map_or(Poll::Pending, Poll::Ready))),
                _ => match flight.wait_for(Duration::from_millis(1)) {
                    Some(outcome) => outcome,
                    None => flight.wait(&self.device),
                },
            };
            let bytes = outcome.unwrap();
            assert!(u64::from_le_bytes(bytes[..].try_into().unwrap()) <= self.version.load(SeqCst));
        }
    }
}

fn model(fault: bool) {
    let place = Arc::new(Place {
        reader: Reader::new(Reading::Object),
        device: MemoryDevice::new(4096),
        version: AtomicU64::new(1),
        reading: AtomicU64::new(0),
    });
    let spawn = |act: fn(&Place, bool)| {
        let place = Arc::clone(&place);
        thread::spawn(move || act(&place, fault))
    };
    let writer: fn(&Place, bool) = |place, _| {
        place.version.fetch_add(1, SeqCst);
        thread::yield_now();
        place.version.fetch_add(1, SeqCst);
    };
    let all = [spawn(Place::caller), spawn(Place::caller), spawn(Place::caller), spawn(writer)];
    all.into_iter().for_each(|one| one.join().unwrap());
    let (_, leads) = place.reader.join(SOUGHT);
    assert!(leads, "a read that landed is still joined");
}

#[test]
fn reads() {
    holds("reads", || model(false));
}

#[test]
fn canary_reads() {
    finds("canary_reads", "deadlock", || model(true));
}
