//! STREAM-PACKETIZER and its locality buffers written down a second time, from the text of Markatos et al. 1999 alone
//! (§3.5, §3.6.1) and without a line of the engine's.
//!
//! What the paper leaves open is taken as the engine says that it takes it (`places/locality.rs`): a buffer has 64 KiB,
//! what is longer than half of it passes by, and the victim is the buffer that was added to least recently.

use crate::second::{Asked, BLOCK, Manages, Stream};

const BUFFER: u64 = 64 << 10;
/// Bytes of the packetizer: "one page long and aligned to a page boundary".
pub(crate) const PAGE: u64 = 8192;

/// "A set of locality buffers whose purpose is to accumulate URL-write operations that correspond to URLs from a single
/// web server."
struct Buffer {
    server: u32,
    /// URLs and their bytes, in the order in which they came.
    urls: Vec<(u64, u64)>,
    bytes: u64,
    added: u64,
}

pub(crate) struct LocalityBuffers {
    stream: Stream,
    buffers: Vec<Buffer>,
    most: usize,
    tick: u64,
    /// What the packetizer holds: from here to where the last URL ended.
    held: u64,
    to: u64,
    /// Where the last packet ended.
    end: u64,
    asked: Asked,
}

impl LocalityBuffers {
    pub(crate) fn new(slots: usize, buffers: usize) -> Self {
        let stream = Stream::new(slots, BLOCK);
        let asked = Asked::default();
        Self { stream, buffers: Vec::new(), most: buffers, tick: 0, held: 0, to: 0, end: 0, asked }
    }

    /// URLs in the order in which they lie.
    pub(crate) fn in_order(&self) -> Vec<u64> {
        self.stream.in_order()
    }

    /// "It searches for a buffer that accumulates URLs from the same server [...]. If no such buffer is found, one
    /// victim buffer is selected, its contents are written to the disk, and the new URL is written in the buffer."
    fn buffer_of(&mut self, server: u32) -> usize {
        if let Some(own) = self.buffers.iter().position(|buffer| buffer.server == server) {
            return own;
        }
        if self.buffers.len() < self.most {
            self.buffers.push(Buffer { server, urls: Vec::new(), bytes: 0, added: 0 });
            return self.buffers.len() - 1;
        }
        let victim = (0..self.most).min_by_key(|&at| self.buffers[at].added).expect("a buffer");
        self.empty(victim);
        self.buffers[victim].server = server;
        victim
    }

    fn empty(&mut self, at: usize) {
        self.buffers[at].bytes = 0;
        for (url, bytes) in std::mem::take(&mut self.buffers[at].urls) {
            self.stream_out(url, bytes);
        }
    }

    /// "URL-write operations [...] are being accumulated into a packetizer as long as they are stored contiguously to
    /// the previous URL-write request. Once the packetizer fills up, or if the current request is not contiguous to the
    /// previous one, the packetizer is sent to the file system for writing to the disk."
    fn stream_out(&mut self, url: u64, bytes: u64) {
        let (start, end) = self.stream.place(url, bytes);
        if start as u64 * BLOCK != self.to {
            self.send(self.to);
            self.held = start as u64 * BLOCK;
        }
        self.to = end as u64 * BLOCK;
        self.send(self.to / PAGE * PAGE);
    }

    fn send(&mut self, to: u64) {
        if to <= self.held {
            return;
        }
        self.asked.packets += to.div_ceil(PAGE) - self.held / PAGE;
        self.asked.written += to - self.held;
        self.asked.breaks += u64::from(self.held != self.end);
        (self.held, self.end) = (to, to);
    }
}

impl Manages for LocalityBuffers {
    fn write(&mut self, url: u64, server: u32, bytes: u64) {
        if bytes > BUFFER / 2 {
            return self.stream_out(url, bytes);
        }
        let at = self.buffer_of(server);
        if self.buffers[at].bytes + bytes > BUFFER {
            self.empty(at);
        }
        self.tick += 1;
        let buffer = &mut self.buffers[at];
        buffer.urls.push((url, bytes));
        buffer.bytes += bytes;
        buffer.added = self.tick;
    }

    fn read(&mut self, url: u64) {
        let waits = self.buffers.iter().any(|buffer| buffer.urls.iter().any(|(one, _)| *one == url));
        if !waits {
            self.stream.read(url);
        }
    }

    fn delete(&mut self, url: u64) {
        self.buffers.iter_mut().for_each(|buffer| buffer.urls.retain(|(one, _)| *one != url));
        self.stream.delete(url);
    }

    fn commit(&mut self) {
        (0..self.buffers.len()).for_each(|at| self.empty(at));
        self.send(self.to);
    }

    fn asked(&self) -> Asked {
        let Asked { reads, read, .. } = self.stream.asked();
        Asked { reads, read, ..self.asked }
    }
}
