//! The drive's buffer for reading: a few runs of sectors, the least recently used one making room.

#[derive(Clone, Copy, Default)]
struct Segment {
    start: u64,
    end: u64,
    used: u64,
}

pub(crate) struct Segments {
    segments: Vec<Segment>,
    /// Sectors of each at most.
    size: u64,
    clock: u64,
}

impl Segments {
    pub(crate) fn new(count: usize, size: u64) -> Self {
        Self { segments: vec![Segment::default(); count], size, clock: 0 }
    }

    /// The segment that holds this sector, or that ends just before it.
    pub(crate) fn find(&mut self, lba: u64) -> Option<usize> {
        let within = |segment: &Segment| segment.start < segment.end && (segment.start..=segment.end).contains(&lba);
        let found = (0..self.segments.len()).filter(|index| within(&self.segments[*index]));
        let found = found.max_by_key(|index| self.segments[*index].end)?;
        self.touch(found);
        Some(found)
    }

    /// The sector after its last.
    pub(crate) fn end(&self, segment: usize) -> u64 {
        self.segments[segment].end
    }

    fn touch(&mut self, segment: usize) {
        self.clock += 1;
        self.segments[segment].used = self.clock;
    }

    /// More was read into it.
    pub(crate) fn reach(&mut self, segment: usize, end: u64) {
        let size = self.size;
        let segment = &mut self.segments[segment];
        segment.end = segment.end.max(end);
        segment.start = segment.start.max(segment.end.saturating_sub(size));
    }

    /// Keeps what was read, behind what a segment holds already or in place of the least recently used.
    pub(crate) fn hold(&mut self, found: Option<usize>, start: u64, end: u64) -> Option<usize> {
        let segment = match found {
            Some(segment) => segment,
            None => (0..self.segments.len()).min_by_key(|index| self.segments[*index].used)?,
        };
        if found.is_none() {
            self.segments[segment] = Segment { start, end: start, used: 0 };
        }
        self.reach(segment, end);
        self.touch(segment);
        Some(segment)
    }

    /// What is written is no longer held.
    pub(crate) fn forget(&mut self, lba: u64, sectors: u64) {
        for segment in &mut self.segments {
            if lba < segment.end && segment.start < lba + sectors {
                *segment = Segment::default();
            }
        }
    }
}
