//! The packetizer of Markatos et al. 1999, §3.5: a buffer of one page, aligned to one, that holds back what was written
//! last as long as the next write is contiguous. What fills pages is written at once, in whole pages.
//!
//! Invariants: `written <= to <= PAGE`; bytes of the page from `written` to `to` are nowhere else.

use std::io;

use picaflor_device::AlignedBuf;

/// Bytes of the buffer: the page of the paper's machine, an Ultra 1. Shorter pages divide it.
const PAGE: usize = 8192;

pub(super) struct Packet {
    page: AlignedBuf,
    /// Where the page lies on the device.
    start: u64,
    /// End of what was put into it.
    to: usize,
    /// End of what is on the device.
    written: usize,
}

/// Bytes that are not on the device yet, and where they belong.
pub(super) struct Pending {
    start: u64,
    bytes: Vec<u8>,
}

impl Packet {
    pub(super) fn new() -> Self {
        Self { page: AlignedBuf::zeroed(PAGE), start: 0, to: 0, written: 0 }
    }

    /// Takes bytes for this place. `write` is given what is to be written now: a place and bytes in two parts.
    ///
    /// # Errors
    /// Those of `write`; what was held back is then lost to the device.
    pub(super) fn append(
        &mut self,
        offset: u64,
        bytes: &[u8],
        mut write: impl FnMut(u64, [&[u8]; 2]) -> io::Result<()>,
    ) -> io::Result<()> {
        if offset != self.start + self.to as u64 {
            self.flush(&mut write)?;
            let within = (offset % PAGE as u64) as usize;
            (self.start, self.to, self.written) = (offset - within as u64, within, within);
        }
        let end = self.to + bytes.len();
        let whole = end / PAGE * PAGE;
        if whole == 0 {
            self.page[self.to..end].copy_from_slice(bytes);
            self.to = end;
            return Ok(());
        }
        let (now, later) = bytes.split_at(whole - self.to);
        write(self.start + self.written as u64, [&self.page[self.written..self.to], now])?;
        self.page[..later.len()].copy_from_slice(later);
        (self.start, self.to, self.written) = (self.start + whole as u64, later.len(), 0);
        Ok(())
    }

    /// Writes what is held back.
    ///
    /// # Errors
    /// As [`Packet::append`].
    pub(super) fn flush(&mut self, mut write: impl FnMut(u64, [&[u8]; 2]) -> io::Result<()>) -> io::Result<()> {
        if self.written < self.to {
            write(self.start + self.written as u64, [&self.page[self.written..self.to], &[]])?;
            self.written = self.to;
        }
        Ok(())
    }

    /// What is held back of a range of the device.
    pub(super) fn pending(&self, start: u64, len: usize) -> Option<Pending> {
        let from = start.max(self.start + self.written as u64);
        let end = (start + len as u64).min(self.start + self.to as u64);
        let at = |offset: u64| (offset - self.start) as usize;
        (from < end).then(|| Pending { start: from, bytes: self.page[at(from)..at(end)].to_vec() })
    }
}

impl Pending {
    /// Puts the bytes where they belong in what was read from `start` on.
    pub(super) fn lay_over(&self, start: u64, read: &mut [u8]) {
        let at = (self.start - start) as usize;
        read[at..at + self.bytes.len()].copy_from_slice(&self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contiguous_bytes_leave_in_whole_pages() {
        let mut packet = Packet::new();
        let mut disk = vec![0u8; 5 * PAGE];
        let mut writes = Vec::new();
        let mut write = |offset: u64, parts: [&[u8]; 2]| {
            let bytes = parts.concat();
            disk[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
            writes.push((offset as usize, bytes.len()));
            Ok(())
        };
        let bytes: Vec<u8> = (0..2 * PAGE).map(|i| i as u8 | 1).collect();
        packet.append(512, &bytes[..1024], &mut write).unwrap();
        packet.append(1536, &bytes[1024..2048], &mut write).unwrap();
        let pending = packet.pending(0, PAGE).unwrap();
        assert_eq!((pending.start, pending.bytes.len()), (512, 2048));
        packet.append(2560, &bytes[2048..2 * PAGE - 1024], &mut write).unwrap();
        // Not contiguous: the tail is written as it is.
        packet.append(4 * PAGE as u64 + 1024, &bytes[..512], &mut write).unwrap();
        let mut read = vec![0; PAGE];
        packet.pending(4 * PAGE as u64, PAGE).unwrap().lay_over(4 * PAGE as u64, &mut read);
        assert_eq!(read[1024..1536], bytes[..512]);
        packet.flush(&mut write).unwrap();
        packet.flush(&mut write).unwrap();
        assert!(packet.pending(0, 5 * PAGE).is_none());
        assert_eq!(writes, [(512, PAGE - 512), (PAGE, PAGE - 512), (4 * PAGE + 1024, 512)]);
        assert_eq!(disk[512..2 * PAGE - 512], bytes[..2 * PAGE - 1024]);
    }
}
