//! Files: a place is a number, and the file system looks for room. What is counted here is how much all files may take.

pub(super) struct Numbers {
    next: u32,
    vacant: Vec<u32>,
    /// Slots in all.
    all: u64,
    /// Slots that files may still take.
    pub(super) free: u64,
}

impl Numbers {
    pub(super) fn new(slots: u32) -> Self {
        Self { next: 0, vacant: Vec::new(), all: slots.into(), free: slots.into() }
    }

    /// Slots that files take.
    pub(super) fn taken(&self) -> u64 {
        self.all - self.free
    }

    pub(super) fn take(&mut self, slots: u32) -> Option<u32> {
        self.free = self.free.checked_sub(slots.into())?;
        self.vacant.pop().or_else(|| {
            self.next += 1;
            Some(self.next - 1)
        })
    }

    pub(super) fn take_at(&mut self, number: u32, slots: u32) -> bool {
        // Each takes a slot or more, so none has a larger number.
        if u64::from(number) >= self.all {
            return false;
        }
        // An opening asks in their order: those between are free.
        self.vacant.extend(self.next..number);
        self.next = self.next.max(number + 1);
        let left = self.free.checked_sub(slots.into());
        self.free = left.unwrap_or(self.free);
        left.is_some()
    }

    pub(super) fn give(&mut self, number: u32, slots: u32) {
        self.free += u64::from(slots);
        self.vacant.push(number);
    }

    pub(super) fn bytes(&self) -> usize {
        self.vacant.capacity() * size_of::<u32>()
    }
}
