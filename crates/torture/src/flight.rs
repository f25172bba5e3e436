//! What a device was given and has not told of yet: it lands in any order.
//!
//! A write in flight has reached the device when it takes off, when it lands, or, if the process ends before, perhaps:
//! so a sync in between may cover it or not, as on a device with a queue. A batch has no order.
//!
//! Invariant: no lock is held while a request is carried out or told of, for the one that is told may submit again.

use std::io;

use bytes::Bytes;
use parking_lot::Mutex;
use picaflor_device::{AlignedBuf, Done, Op, Request};

use crate::dice::Dice;

/// A request in flight.
enum Flying {
    /// It reaches the device when it lands.
    Request(Request),
    /// It has reached the device, and the caller was not told yet.
    Carried(Done, io::Result<AlignedBuf>),
}

/// The requests in flight of one device.
pub(crate) struct Flights(Mutex<State>);

struct State {
    dice: Dice,
    flying: Vec<Flying>,
}

impl Flights {
    pub(crate) fn new(seed: u64, device: u64) -> Self {
        Self(Mutex::new(State { dice: Dice::new(seed, 16 + device), flying: Vec::new() }))
    }

    /// Takes a batch: of each request either all is done at once, or it stays in flight.
    pub(crate) fn take_off(
        &self,
        mut batch: Vec<Request>,
        mut carry_out: impl FnMut(u64, Op) -> io::Result<AlignedBuf>,
    ) {
        self.shuffle(&mut batch);
        for request in batch {
            let fate = self.0.lock().dice.below(4);
            match fate {
                0 => (request.done)(carry_out(request.offset, request.op)),
                1 => {
                    let outcome = carry_out(request.offset, request.op);
                    self.0.lock().flying.push(Flying::Carried(request.done, outcome));
                }
                _ => self.0.lock().flying.push(Flying::Request(request)),
            }
        }
    }

    /// One of them lands. False if there is none.
    pub(crate) fn land_one(&self, carry_out: impl FnOnce(u64, Op) -> io::Result<AlignedBuf>) -> bool {
        let flying = {
            let mut state = self.0.lock();
            let count = state.flying.len() as u64;
            if count == 0 {
                return false;
            }
            let at = state.dice.below(count) as usize;
            state.flying.swap_remove(at)
        };
        match flying {
            Flying::Request(request) => (request.done)(carry_out(request.offset, request.op)),
            Flying::Carried(done, outcome) => done(outcome),
        }
        true
    }

    /// How many are to land now.
    pub(crate) fn how_many_land(&self) -> u64 {
        let mut state = self.0.lock();
        let count = state.flying.len() as u64;
        if count == 0 { 0 } else { state.dice.below(count + 1) }
    }

    /// The writes in flight that reach the device though no caller will be told: each or not.
    pub(crate) fn reaching(&self) -> Vec<(u64, Bytes)> {
        let State { dice, flying } = &mut *self.0.lock();
        let write = |flying: &Flying| match flying {
            Flying::Request(Request { offset, op: Op::Write(bytes), .. }) => Some((*offset, bytes.clone())),
            _ => None,
        };
        let mut reaching: Vec<_> = flying.iter().filter_map(write).filter(|_| dice.percent(50)).collect();
        dice.shuffle(&mut reaching);
        reaching
    }

    /// All of them failed.
    pub(crate) fn fail_all(&self) {
        loop {
            let all = std::mem::take(&mut self.0.lock().flying);
            if all.is_empty() {
                return;
            }
            for flying in all {
                let (Flying::Request(Request { done, .. }) | Flying::Carried(done, _)) = flying;
                done(Err(io::Error::other("the process was killed")));
            }
        }
    }

    pub(crate) fn shuffle(&self, batch: &mut [Request]) {
        self.0.lock().dice.shuffle(batch);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex as Lock, mpsc};

    use super::*;

    #[test]
    fn all_are_told_of_once_and_in_many_orders() {
        let mut orders = std::collections::HashSet::new();
        for seed in 0..50 {
            let (flights, (tell, told)) = (Flights::new(seed, 0), mpsc::channel());
            let request = |number: u64| {
                let tell = tell.clone();
                let done: Done = Box::new(move |_| {
                    let _ = tell.send(number);
                });
                Request { offset: number, op: Op::Write(Bytes::from_static(b"x")), done }
            };
            let carried = Arc::new(Lock::new(Vec::new()));
            let carry_out = |offset: u64, _: Op| {
                carried.lock().map(|mut carried| carried.push(offset)).map_err(|_| io::Error::other("poisoned"))?;
                Ok(AlignedBuf::empty())
            };
            flights.take_off((0..5).map(request).collect(), carry_out);
            while flights.land_one(carry_out) {}
            let mut all: Vec<u64> = told.try_iter().collect();
            orders.insert(all.clone());
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2, 3, 4]);
            assert_eq!(carried.lock().map(|carried| carried.len()).unwrap_or(0), 5);
        }
        assert!(orders.len() > 10, "{}", orders.len());
    }

    #[test]
    fn what_is_thrown_away_is_told_of_and_not_carried_out() {
        let (flights, (tell, told)) = (Flights::new(4, 0), mpsc::channel());
        let request = |_| {
            let tell = tell.clone();
            let done: Done = Box::new(move |outcome| {
                let _ = tell.send(outcome.is_ok());
            });
            Request { offset: 0, op: Op::Sync, done }
        };
        flights.take_off((0..40).map(request).collect(), |_, _| Ok(AlignedBuf::empty()));
        let before = told.try_iter().count();
        flights.fail_all();
        let after: Vec<bool> = told.try_iter().collect();
        assert!(before + after.len() == 40 && !after.is_empty() && !after.contains(&true));
    }
}
