//! How many bytes a store is given, where its row lies in clusters: at its openings, and while it is at work.

use picaflor_format::zone::Map;

use super::setup::Setup;
use crate::dice::Dice;

/// Rows whose stores have more bytes or fewer than they were made with, if they are given so many.
const RESIZED: [&str; 3] = ["picaflor", "hummingbird", "damelo"];

/// What one life gives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Where it opens the store.
    pub(super) opening: u64,
    /// At work, where it gives more.
    pub(super) at_work: Option<u64>,
}

impl Sizes {
    /// What the life with this number gives: from half to twice of what the store is made with, to three times at work.
    pub(super) fn of(setup: &Setup, life: u32) -> Self {
        let same = Self { opening: setup.capacity, at_work: None };
        if !RESIZED.contains(&setup.preset) || !Dice::new(setup.seed, 0x512e).percent(60) {
            return same;
        }
        // Now and then two lives give as much.
        let mut dice = Dice::new(setup.seed, 0x512e_0000 + u64::from(life / 2));
        let (places, least) = (setup.places as u64, Map::least_capacity(setup.cluster));
        let part = |eighths: u64| (setup.capacity / places / 8 * eighths / 4096 * 4096).max(least) * places;
        let opening = dice.between(4, 16);
        let more = Dice::new(setup.seed, 0x512f_0000 + u64::from(life)).between(0, 16);
        Self { opening: part(opening), at_work: (more > 8).then(|| part(opening + more - 8)) }
    }
}
