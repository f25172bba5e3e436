//! What a checkpoint is made of: images of the index, or of the places that objects have.

use picaflor_format::frame::GRAIN;

use super::Catalog;

pub(crate) struct Images<'a>(&'a Catalog);

impl Catalog {
    /// What a checkpoint is made of.
    pub(crate) fn images(&self) -> Images<'_> {
        Images(self)
    }
}

impl Images<'_> {
    /// Images that make a checkpoint: of the index's segments, or of its places, which have all that the index has.
    pub(crate) fn count(&self) -> u32 {
        self.0.places.as_ref().map_or_else(|| self.0.index.segment_count(), |places| places.parts())
    }

    pub(crate) fn get(&self, number: u32) -> Vec<u64> {
        if let Some(places) = &self.0.places {
            return places.image(number);
        }
        self.0.index.image(number, |slot, offset| {
            let home = self.0.buffers.home(slot)?;
            Some(self.0.medium.grain(home, offset * GRAIN as u32))
        })
    }

    /// Bytes of all images.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.places.as_ref().map_or_else(|| self.0.index.image_bytes(), |places| places.image_bytes())
    }
}
