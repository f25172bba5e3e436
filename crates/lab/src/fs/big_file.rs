//! One large file as a device: what a storage manager in user space sees of a file system. It is preallocated, or it
//! grows: then a page that was never written is a hole, which takes no room and is read without the disk. What maps
//! pages to blocks is in memory.
//!
//! A write that covers a page in part reads the page first, if it is not in memory. A page that was written to its
//! end joins the run of pages written before it; the run goes to the disk when it is a cluster long, or when the next
//! write is elsewhere. A page that was written in part only stays dirty until the daemon finds it old.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use picaflor_device::{Device, Op, Request};
use picaflor_sim::SparseBytes;

use super::core::{Core, full};
use super::layout::{Address, Run};
use super::system::FileSystem;

/// Unit of reading and writing that a storage manager sees, in bytes.
const BLOCK: usize = 512;

/// A large file of a [`FileSystem`]. Clones share everything.
#[derive(Clone)]
pub struct BigFile {
    fs: FileSystem,
    capacity: u64,
    page: u64,
    state: Arc<Mutex<State>>,
    queue: Arc<Mutex<Queue>>,
}

struct State {
    /// Address of each page; none of a hole.
    addresses: Vec<Option<Address>>,
    /// Where the page that was allocated last ends: a hole with nothing before it is filled behind that.
    last: Option<Address>,
    inode: u64,
    contents: SparseBytes,
    /// Pages that wait to be a cluster.
    behind: Range<u64>,
    /// The page after the last that a read needed.
    next_read: u64,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Vec<Request>>,
    busy: bool,
}

impl State {
    fn address(&self, page: u64) -> Option<Address> {
        self.addresses.get(page as usize).copied().flatten()
    }

    /// The address of a page, which gets one if it is a hole.
    fn allocate(&mut self, core: &mut Core, page: u64) -> io::Result<Address> {
        if let Some(address) = self.address(page) {
            return Ok(address);
        }
        let fragments = core.layout.fragments;
        let before = page.checked_sub(1).and_then(|before| self.address(before)).map(|before| before + fragments);
        let wanted = before.or(self.last);
        let group = wanted.map_or(0, |wanted| core.layout.group_of(wanted).min(core.layout.groups() - 1));
        let address = core.layout.take_block(group, wanted).ok_or_else(full)?;
        self.addresses[page as usize] = Some(address);
        self.last = Some(address + fragments);
        Ok(address)
    }

    /// The first of these pages, and those behind it as far as they lie in one piece; none if it is a hole.
    fn run_of(&self, pages: Range<u64>, fragments: u64) -> Option<Run> {
        let start = self.address(pages.start)?;
        let follows = |(number, page): &(u64, u64)| self.address(*page) == Some(start + number * fragments);
        let count = (0..).zip(pages).take_while(follows).count() as u64;
        Some((start, count * fragments))
    }
}

impl FileSystem {
    /// One file of `bytes`, preallocated, as a device. `bytes` is rounded up to whole blocks.
    ///
    /// # Errors
    /// `StorageFull` if there is no room.
    pub fn big_file(&self, bytes: u64) -> io::Result<BigFile> {
        let file = BigFile::new(self, bytes)?;
        let pages = file.capacity / file.page;
        let core = &mut *self.core.lock();
        (0..pages).try_for_each(|page| file.state.lock().allocate(core, page).map(drop))?;
        Ok(file)
    }

    /// The same, which takes room page by page as it is written: `bytes` is how long it may grow.
    ///
    /// # Errors
    /// `StorageFull` if there is no room for all of it; a write, if others have taken that since.
    pub fn growing_file(&self, bytes: u64) -> io::Result<BigFile> {
        BigFile::new(self, bytes)
    }
}

impl BigFile {
    fn new(fs: &FileSystem, bytes: u64) -> io::Result<Self> {
        let mut core = fs.core.lock();
        let page = core.profile.layout.block;
        let pages = bytes.div_ceil(page);
        let fragments = core.layout.fragments;
        if core.layout.available() < pages * fragments {
            return Err(full());
        }
        let inode = core.layout.take_inode(0, false).ok_or_else(full)?;
        drop(core);
        let addresses = vec![None; pages as usize];
        let state = State { addresses, last: None, inode, contents: SparseBytes::new(), behind: 0..0, next_read: 0 };
        Ok(Self {
            fs: fs.clone(),
            capacity: pages * page,
            page,
            state: Arc::new(Mutex::new(state)),
            queue: Arc::default(),
        })
    }

    /// Bytes of memory that the contents take.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.state.lock().contents.held()
    }

    fn check(&self, offset: u64, len: usize) -> io::Result<()> {
        let len = len as u64;
        let aligned = offset.is_multiple_of(BLOCK as u64) && len.is_multiple_of(BLOCK as u64);
        if aligned && offset.checked_add(len).is_some_and(|end| end <= self.capacity) {
            return Ok(());
        }
        let what = format!("request at {offset} of {len} bytes is unaligned or outside the file of {}", self.capacity);
        Err(io::Error::new(io::ErrorKind::InvalidInput, what))
    }

    fn pages_of(&self, offset: u64, len: usize) -> Range<u64> {
        offset / self.page..(offset + len as u64).div_ceil(self.page)
    }

    /// What has to come from the disk so that a read finds its pages, in order: each page that follows the one before
    /// it brings the rest of a cluster with it, as far as that lies in one piece and is not in memory (McVoy & Kleiman
    /// 1991; 4.4BSD and Solaris alike). All of it counts as being in memory from now on.
    fn missing_of(&self, core: &mut Core, state: &mut State, pages: Range<u64>) -> io::Result<Vec<Run>> {
        let mut missing = Vec::new();
        for page in pages {
            let ahead = if page == state.next_read { core.profile.daemon.cluster / self.page } else { 1 };
            state.next_read = page + 1;
            let cluster = page..(page + ahead).min(self.capacity / self.page);
            let Some(piece) = state.run_of(cluster, core.layout.fragments) else { continue };
            if core.pages.has(piece.0) {
                continue;
            }
            if let Some((address, fragments)) = core.pages.missing(&[piece]).first().copied() {
                core.pages.arrived(address, fragments)?;
                missing.push((address, fragments));
            }
        }
        Ok(missing)
    }

    /// The pages that waited to be a cluster go to the disk.
    fn push(core: &mut Core, state: &mut State) -> io::Result<()> {
        let fragments = core.layout.fragments;
        let pages = std::mem::replace(&mut state.behind, 0..0);
        let mut run: Option<Run> = None;
        for address in pages.filter_map(|page| state.address(page)) {
            // The daemon may have been here.
            if !core.pages.is_dirty(address) {
                continue;
            }
            match &mut run {
                Some((start, count)) if *start + *count == address => *count += fragments,
                _ => {
                    if let Some((start, count)) = run.replace((address, fragments)) {
                        core.pages.write_later(start, count)?;
                    }
                }
            }
        }
        run.map_or(Ok(()), |(start, count)| core.pages.write_later(start, count))
    }

    fn write_page(&self, core: &mut Core, state: &mut State, page: u64, within: Range<u64>) -> io::Result<()> {
        let fragments = core.layout.fragments;
        let is_hole = state.address(page).is_none();
        let address = state.allocate(core, page)?;
        if (within.start > 0 || within.end < self.page) && !is_hole && !core.pages.has(address) {
            // This page alone, each time: Markatos et al. traced it, and a small write was "usually" a read of the
            // disk (§3.5). What the drive reads ahead meanwhile is the drive's.
            core.pages.need_data(&[(address, fragments)])?;
        }
        core.pages.dirty(address, fragments, false)?;
        if within.end < self.page || !core.profile.whole_blocks_at_once {
            return Ok(());
        }
        if state.behind.end == page && !state.behind.is_empty() {
            state.behind.end += 1;
        } else if !state.behind.contains(&page) {
            Self::push(core, state)?;
            state.behind = page..page + 1;
        }
        if (state.behind.end - state.behind.start) * self.page >= core.profile.daemon.cluster {
            Self::push(core, state)?;
        }
        Ok(())
    }

    /// A batch of reads: some at a time are sent to the disk together, which may choose their order.
    fn read_together(&self, reads: &[(u64, usize)]) -> io::Result<()> {
        let core = &mut *self.fs.core.lock();
        core.begin(reads.iter().map(|(_, len)| *len as u64).sum(), 0, false)?;
        let at_once = core.profile.daemon.reads_at_once;
        for some in reads.chunks(at_once) {
            let left = Arc::new(AtomicU64::new(0));
            for (offset, len) in some {
                let state = &mut *self.state.lock();
                for (address, fragments) in self.missing_of(core, state, self.pages_of(*offset, *len))? {
                    core.pages.read_later(address, fragments, &left)?;
                }
            }
            core.pages.wait_for(&left);
        }
        Ok(())
    }

    fn perform(&self, batch: Vec<Request>) {
        let reads: Option<Vec<(u64, usize)>> = batch
            .iter()
            .map(|request| match &request.op {
                Op::Read(buf) if self.check(request.offset, buf.len()).is_ok() => Some((request.offset, buf.len())),
                _ => None,
            })
            .collect();
        let together = match reads {
            Some(reads) if reads.len() > 1 => self.read_together(&reads),
            _ => Ok(()),
        };
        let together = together.map_err(|error| error.kind());
        for Request { offset, op, done } in batch {
            let blocking =
                || op.carry_out(|buf| self.read(offset, buf), |bytes| self.write(offset, bytes), || self.sync());
            done(together.map_err(io::Error::from).and_then(|()| blocking()));
        }
    }
}

impl Device for BigFile {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn block_size(&self) -> usize {
        BLOCK
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len())?;
        let core = &mut *self.fs.core.lock();
        core.begin(buf.len() as u64, 0, false)?;
        let state = &mut *self.state.lock();
        let left = Arc::new(AtomicU64::new(0));
        for (address, fragments) in self.missing_of(core, state, self.pages_of(offset, buf.len()))? {
            core.pages.read_later(address, fragments, &left)?;
            core.pages.wait_for(&left);
        }
        state.contents.read(offset, buf);
        Ok(())
    }

    fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.check(offset, buf.len())?;
        let core = &mut *self.fs.core.lock();
        core.begin(buf.len() as u64, 0, false)?;
        let state = &mut *self.state.lock();
        let end = offset + buf.len() as u64;
        for page in self.pages_of(offset, buf.len()) {
            let first = page * self.page;
            let within = offset.max(first) - first..end.min(first + self.page) - first;
            self.write_page(core, state, page, within)?;
        }
        state.contents.write(offset, buf);
        Ok(())
    }

    /// As `fsync`: what is dirty, then the inode, or the log that has it.
    fn sync(&self) -> io::Result<()> {
        let core = &mut *self.fs.core.lock();
        let state = &mut *self.state.lock();
        state.behind = 0..0;
        let inode = core.layout.inode_block(state.inode);
        if core.profile.records.is_some() {
            core.change(inode, false)?;
            return core.sync();
        }
        core.sync()?;
        core.pages.write(inode, core.layout.fragments)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(offset, len as usize)?;
        self.state.lock().contents.clear(offset, len);
        Ok(())
    }

    /// On this thread, in order; what a `done` submits waits for its turn.
    fn submit(&self, batch: Vec<Request>) {
        let mut queue = self.queue.lock();
        queue.waiting.push_back(batch);
        if std::mem::replace(&mut queue.busy, true) {
            return;
        }
        while let Some(batch) = queue.waiting.pop_front() {
            drop(queue);
            self.perform(batch);
            queue = self.queue.lock();
        }
        queue.busy = false;
    }

    fn backend(&self) -> String {
        format!("file of modelled {}", self.fs.name)
    }
}
